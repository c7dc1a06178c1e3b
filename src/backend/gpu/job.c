/* backend/gpu/job.c: jobs, what calls become on the device: told to it at once, or kept by plans.
 * Start at gd_gpu_describe. */
#include "backend/gpu/gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/gpu/convolution.h"
#include "base/error.h"
#include "base/memory.h"

/* ---- who describes what ---- */

typedef bool (*describer)(const gd_kernel_call *call, gd_gpu_job *job);

static const describer describers[GD_OP_COUNT] = {
    [GD_OP_cast] = gd_gpu_describe_elementwise,
    [GD_OP_copy] = gd_gpu_describe_elementwise,
    [GD_OP_assign] = gd_gpu_describe_elementwise,
    [GD_OP_fused] = gd_gpu_describe_elementwise,
    [GD_OP_sum] = gd_gpu_describe_reduction,
    [GD_OP_prod] = gd_gpu_describe_reduction,
    [GD_OP_max] = gd_gpu_describe_reduction,
    [GD_OP_min] = gd_gpu_describe_reduction,
    [GD_OP_argmax] = gd_gpu_describe_arg_reduction,
    [GD_OP_argmin] = gd_gpu_describe_arg_reduction,
    [GD_OP_softmax] = gd_gpu_describe_softmax,
    [GD_OP_log_softmax] = gd_gpu_describe_softmax,
    [GD_OP_cross_entropy] = gd_gpu_describe_cross_entropy,
    [GD_OP_cross_entropy_grad] = gd_gpu_describe_cross_entropy,
    [GD_OP_attention] = gd_gpu_describe_attention,
    [GD_OP_attention_grad] = gd_gpu_describe_attention_grad,
    [GD_OP_recurrent] = gd_gpu_describe_recurrent,
    [GD_OP_recurrent_grad] = gd_gpu_describe_recurrent_grad,
    [GD_OP_matmul] = gd_gpu_describe_product,
    [GD_OP_linear] = gd_gpu_describe_product,
    [GD_OP_matmul_relu_grad] = gd_gpu_describe_product,
    [GD_OP_quantized_linear] = gd_gpu_describe_quantized,
    [GD_OP_convolution] = gd_gpu_describe_convolution,
    [GD_OP_convolution_grad_input] = gd_gpu_describe_convolution,
    [GD_OP_convolution_grad_weight] = gd_gpu_describe_convolution,
    [GD_OP_normalize] = gd_gpu_describe_normalize,
    [GD_OP_normalize_grad] = gd_gpu_describe_normalize_grad,
    [GD_OP_max_pool] = gd_gpu_describe_pooling,
    [GD_OP_max_pool_index] = gd_gpu_describe_pooling,
    [GD_OP_avg_pool] = gd_gpu_describe_pooling,
    [GD_OP_max_pool_grad] = gd_gpu_describe_pooling,
    [GD_OP_avg_pool_grad] = gd_gpu_describe_pooling,
    [GD_OP_cumsum] = gd_gpu_describe_scan,
    [GD_OP_cumprod] = gd_gpu_describe_scan,
    [GD_OP_full] = gd_gpu_describe_full,
    [GD_OP_iota] = gd_gpu_describe_iota,
    [GD_OP_random_bits] = gd_gpu_describe_random,
    [GD_OP_dropout] = gd_gpu_describe_dropout,
    [GD_OP_pad] = gd_gpu_describe_pad,
    [GD_OP_concat] = gd_gpu_describe_concat,
    [GD_OP_gather] = gd_gpu_describe_gather,
    [GD_OP_scatter] = gd_gpu_describe_scatter,
    [GD_OP_scatter_add] = gd_gpu_describe_scatter,
    [GD_OP_argsort] = gd_gpu_describe_argsort,
    [GD_OP_searchsorted] = gd_gpu_describe_searchsorted,
};

static bool fits(const gd_gpu *gpu, const gd_gpu_job *job)
{
    bool all = true;
    for (int i = 0; i < job->steps; i++) {
        const gd_gpu_step *s = &job->step[i];
        if (gd_gpu_is_of_library(s))
            continue;
        all &= !s->is_too_large &&
               (size_t)s->places * gpu->place_bytes + sizeof *s->number * (size_t)s->numbers <=
                   gpu->parameter_bytes;
    }
    return all;
}

static bool has_f64(gd_gpu *gpu, const gd_gpu_job *job)
{
    bool any = false;
    for (int i = 0; i < job->steps && !any; i++) {
        const gd_gpu_step *s = &job->step[i];
        any = !gd_gpu_is_of_library(s) &&
              gd_gpu_kernel_has_f64(gpu, s->key.text, s->key_bytes, s->write);
    }
    return any;
}

bool gd_gpu_describe(const gd_kernel_call *call, gd_gpu_job *job)
{
    gd_gpu *gpu = (gd_gpu *)call->device;
    const gd_op *op = call->op;
    const describer describe =
        op->flags & GD_OP_ELEMENTWISE ? gd_gpu_describe_elementwise : describers[op->id];
    job->steps = 0;
    job->workspace = 0;
    job->turns = 1;
    return describe && describe(call, job) && fits(gpu, job) &&
           !(gpu->is_without_f64 && has_f64(gpu, job));
}

bool gd_gpu_takes(const gd_kernel_call *call)
{
    gd_gpu_job job;
    return gd_gpu_describe(call, &job);
}

/* ---- describing ---- */

gd_gpu_step *gd_gpu_add_step(gd_gpu_job *job, int64_t groups, int items)
{
    gd_gpu_step *s = &job->step[job->steps++];
    s->key_bytes = 0;
    s->places = s->numbers = 0;
    s->groups[0] = groups;
    s->groups[1] = 1;
    s->items = items;
    s->is_too_large = s->is_copy = s->is_uneven = false;
    s->is_product = s->is_bias = s->is_convolution = false;
    return s;
}

/* The key of a kernel of the library: its name, a line end, its definitions. */
static void write_text(const void *key, gd_gpu_source *source)
{
    const char *text = key;
    const size_t name = strcspn(text, "\n");
    snprintf(source->kernel, sizeof source->kernel, "%.*s", (int)name, text);
    gd_buffer_add(&source->definitions, "%s", text + name + 1);
}

static void add_text(gd_gpu_step *step, const char *format, va_list arguments)
{
    char *end = step->key.text + step->key_bytes;
    const size_t room = sizeof step->key.text - step->key_bytes;
    const int length = vsnprintf(end, room, format, arguments);
    if (length < 0 || (size_t)length >= room)
        step->is_too_large = true;
    else
        step->key_bytes += (size_t)length;
}

static GD_PRINTF(2, 3) void add_line(gd_gpu_step *step, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_text(step, format, arguments);
    va_end(arguments);
}

gd_gpu_step *gd_gpu_add_kernel(gd_gpu_job *job, const char *name, int64_t groups, int items)
{
    gd_gpu_step *step = gd_gpu_add_step(job, groups, items);
    step->write = write_text;
    add_line(step, "%s\n", name);
    step->key_bytes++; /* with the 0 at its end */
    return step;
}

void gd_gpu_define(gd_gpu_step *step, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    step->key_bytes--;
    add_line(step, "#define %s ", name);
    add_text(step, format, arguments);
    add_line(step, "\n");
    step->key_bytes++;
    va_end(arguments);
}

void gd_gpu_add_place(gd_gpu_step *step, int operand)
{
    if (step->places == GD_GPU_PLACES)
        step->is_too_large = true;
    else
        step->place[step->places++] = (int8_t)operand;
}

void gd_gpu_add_number(gd_gpu_step *step, int64_t number)
{
    if (step->numbers == GD_GPU_NUMBERS)
        step->is_too_large = true;
    else
        step->number[step->numbers++] = number;
}

void gd_gpu_add_real(gd_gpu_step *step, gd_dtype dtype, double x)
{
    const float single = (float)x;
    uint32_t bits;
    uint64_t all;
    memcpy(&bits, &single, sizeof bits);
    memcpy(&all, &x, sizeof all);
    gd_gpu_add_number(step, dtype == GD_F64 ? (int64_t)all : bits);
}

void gd_gpu_add_loops(gd_gpu_step *step, const gd_loops *loops)
{
    gd_gpu_add_number(step, loops->rank);
    for (int k = -1; k < loops->operands; k++)
        for (int a = 0; a < GD_MAX_RANK; a++) {
            const int64_t *row = k < 0 ? loops->size : loops->stride[k];
            gd_gpu_add_number(step, a < loops->rank ? row[a] : 0);
        }
}

/* ---- telling the device ---- */

gd_status gd_gpu_make_workspace(gd_gpu *gpu, size_t bytes)
{
    if (bytes <= gpu->workspace_bytes)
        return GD_OK;
    void *larger = gd_gpu_memory_alloc(&gpu->base, bytes);
    if (!larger)
        return gd_error_last();
    if (gpu->workspace)
        gd_gpu_memory_free(&gpu->base, gpu->workspace, gpu->workspace_bytes);
    gpu->workspace = larger;
    gpu->workspace_bytes = bytes;
    return GD_OK;
}

const void *gd_gpu_address_of(const gd_kernel_call *call, int operand)
{
    gd_gpu *gpu = (gd_gpu *)call->device;
    if (operand == GD_GPU_WORKSPACE)
        return gpu->workspace;
    if (operand == GD_GPU_FOUND) {
        gpu->may_find = true;
        return gpu->found;
    }
    return operand < call->n    ? call->in[operand].data
           : operand == call->n ? call->out.data
                                : call->extra[operand - call->n - 1].data;
}

/* What a step is besides a launch. */
typedef struct step_kind {
    bool is_copy, is_product, is_bias, is_convolution;
} step_kind;

static gd_status run_convolution(gd_gpu *gpu, const int64_t *numbers, const gd_gpu_place *place)
{
    gd_gpu_convolution c;
    memcpy(&c, numbers, sizeof c);
    return gpu->driver->convolution_run(gpu, &c, place);
}

/* Some steps run turn after turn: their first number is the turn's. */
typedef struct job_turn {
    int64_t number, of;
} job_turn;

/* `described` has all but the places and the turn. *has_bias: whether a product added it. */
static gd_status launch_at(const gd_kernel_call *call, const gd_gpu_launch *described,
                           const int8_t *operand, step_kind kind, job_turn turn, bool *has_bias)
{
    gd_gpu *gpu = (gd_gpu *)call->device;
    gd_gpu_launch launch = *described;
    gd_gpu_place place[GD_GPU_PLACES];
    int64_t numbers[GD_GPU_NUMBERS];
    gd_status status = GD_OK;
    if (kind.is_bias && *has_bias)
        return GD_OK;
    if (kind.is_copy && gd_gpu_address_of(call, operand[0]) == gd_gpu_address_of(call, operand[1]))
        return GD_OK;
    for (int i = 0; status == GD_OK && i < launch.places; i++)
        status = gd_gpu_place_of(gpu, gd_gpu_address_of(call, operand[i]), &place[i]);
    launch.place = place;
    if (turn.of > 1) {
        memcpy(numbers, launch.number, sizeof *numbers * (size_t)launch.numbers);
        numbers[0] = turn.number;
        launch.number = numbers;
    }
    gpu->launched++;
    if (status == GD_OK)
        status = kind.is_product ? gd_gpu_run_library_product(gpu, launch.number, place, has_bias)
                 : kind.is_convolution ? run_convolution(gpu, launch.number, place)
                                       : gpu->driver->launch(gpu, &launch);
    return status;
}

static step_kind kind_of(const gd_gpu_step *s)
{
    return (step_kind){ s->is_copy, s->is_product, s->is_bias, s->is_convolution };
}

/* The step's kernel; of a library's, which has none, *gpu. NULL: not to be had. */
static void *kernel_of(gd_gpu *gpu, const gd_gpu_step *s)
{
    return gd_gpu_is_of_library(s) ? gpu : gd_gpu_kernel(gpu, s->key.text, s->key_bytes, s->write);
}

static gd_gpu_launch launch_of(const gd_gpu_step *s, void *kernel)
{
    return (gd_gpu_launch){ .kernel = kernel,
                            .places = s->places,
                            .numbers = s->numbers,
                            .number = s->number,
                            .groups = { s->groups[0], s->groups[1] },
                            .items = s->items };
}

gd_status gd_gpu_run(const gd_kernel_call *call, const gd_gpu_job *job)
{
    gd_gpu *gpu = (gd_gpu *)call->device;
    gd_status status = gd_gpu_make_workspace(gpu, job->workspace);
    bool has_bias = false;
    for (int64_t n = 0; status == GD_OK && n < job->steps * job->turns; n++) {
        const gd_gpu_step *s = &job->step[n % job->steps];
        const job_turn turn = { n / job->steps, job->turns };
        void *kernel = kernel_of(gpu, s);
        if (!kernel)
            return gd_error_last();
        gd_gpu_launch launch = launch_of(s, kernel);
        status = launch_at(call, &launch, s->place, kind_of(s), turn, &has_bias);
    }
    return status;
}

/* ---- plans ---- */

/* What a plan keeps of a step: the launch without addresses, then its numbers. */
typedef struct prepared_step {
    gd_gpu_launch launch;
    int8_t place[GD_GPU_PLACES];
    step_kind kind;
    int64_t number[];
} prepared_step;

typedef struct prepared_job {
    int64_t steps, turns;
} prepared_job;

static size_t step_bytes(int numbers)
{
    return sizeof(prepared_step) + sizeof(int64_t) * (size_t)numbers;
}

/* Of a library's convolution as much as anything that it may become takes: between two questions the library
 * may have failed once. */
size_t gd_gpu_job_bytes(const gd_kernel_call *call)
{
    gd_gpu_job job;
    if (!gd_gpu_describe(call, &job))
        return 0;
    size_t bytes = sizeof(prepared_job);
    if (gd_gpu_may_be_library_convolution(call))
        return bytes + 2 * step_bytes(GD_GPU_NUMBERS);
    for (int i = 0; i < job.steps; i++)
        bytes += step_bytes(job.step[i].numbers);
    return bytes;
}

/* Whether the library has the convolution that it was taken to have: a failure to ask is told here, and not
 * kept in a plan. */
static gd_status check_convolution(gd_gpu *gpu, const int64_t *numbers)
{
    gd_gpu_convolution c;
    bool is_there = false;
    size_t workspace = 0;
    memcpy(&c, numbers, sizeof c);
    const gd_status status = gpu->driver->convolution_find(gpu, &c, &is_there, &workspace);
    return status != GD_OK || is_there
               ? status
               : gd_fail(GD_ERR_DEVICE, "%s: the library of convolutions failed once; try again",
                         gpu->base.name);
}

gd_status gd_gpu_job_prepare(const gd_kernel_call *call, void *memory)
{
    gd_gpu *gpu = (gd_gpu *)call->device;
    gd_status status = GD_OK;
    gd_gpu_job job;
    (void)gd_gpu_describe(call, &job);
    *(prepared_job *)memory = (prepared_job){ job.steps, job.turns };
    char *at = (char *)memory + sizeof(prepared_job);
    for (int i = 0; i < job.steps; i++) {
        const gd_gpu_step *s = &job.step[i];
        prepared_step *p = (void *)at;
        memset(p, 0, sizeof *p);
        p->launch = launch_of(s, kernel_of(gpu, s));
        if (!p->launch.kernel)
            return gd_error_last();
        memcpy(p->place, s->place, sizeof *s->place * (size_t)s->places);
        p->kind = kind_of(s);
        memcpy(p->number, s->number, sizeof *s->number * (size_t)s->numbers);
        at += step_bytes(s->numbers);
        if (s->is_convolution && (status = check_convolution(gpu, s->number)) != GD_OK)
            return status;
    }
    return gd_gpu_make_workspace(gpu, job.workspace);
}

gd_status gd_gpu_job_run(const gd_kernel_call *call, const void *memory)
{
    gd_status status = GD_OK;
    bool has_bias = false;
    const prepared_job *job = memory;
    const char *at = NULL;
    for (int64_t n = 0; status == GD_OK && n < job->steps * job->turns; n++) {
        if (n % job->steps == 0)
            at = (const char *)memory + sizeof *job;
        const prepared_step *p = (const void *)at;
        gd_gpu_launch launch = p->launch;
        launch.number = p->number; /* plans copy what is prepared */
        status = launch_at(call, &launch, p->place, p->kind,
                           (job_turn){ n / job->steps, job->turns }, &has_bias);
        at += step_bytes(launch.numbers);
    }
    return status;
}
