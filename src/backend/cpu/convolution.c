/* backend/cpu/convolution.c: the ops convolution, convolution_grad_input and
 * convolution_grad_weight on the CPU. Here are plain loops over rows, whose inner loops compilers
 * vectorise. Padding counts as zeros that are multiplied: 0 times an infinite weight is NaN. Start
 * at the bottom. */
#include "backend/cpu/conv_micro.h"
#include "backend/cpu/cpu.h"
#include "base/error.h"
#include "base/threads.h"
#include "ops/spatial.h"

typedef struct conv_job {
    const gd_conv_attr *attr;
    gd_conv_sizes s;
    const double *a, *b, *bias; /* the operands, in their order */
    double *out;
} conv_job;

/* Taps have an index each axis; the rows of one tap. */
typedef struct tap {
    int64_t at[GD_SPATIAL];
} tap;

static tap tap_at(const gd_conv_sizes *s, int64_t k)
{
    return (tap){ { k / (s->kernel[1] * s->kernel[2]), k / s->kernel[2] % s->kernel[1],
                    k % s->kernel[2] } };
}

/* Where x's axis a is seen through tap t from element p of y's. */
static int64_t seen(const conv_job *job, const tap *t, int a, int64_t p)
{
    const gd_conv_attr *attr = job->attr;
    return p * attr->stride[a] - attr->before[a] + t->at[a] * attr->dilation[a];
}

/* The row of x's plane that row (z, y) of y's plane sees through tap t: its offset, or -1 in the
 * padding. */
static int64_t row_seen(const conv_job *job, const tap *t, int64_t z, int64_t y)
{
    const int64_t *in = job->s.in, in_z = seen(job, t, 0, z), in_y = seen(job, t, 1, y);
    return in_z < 0 || in_z >= in[0] || in_y < 0 || in_y >= in[1] ? -1
                                                                  : (in_z * in[1] + in_y) * in[2];
}

/* Elements [*first, *end) of a row of y see elements of the row of x; the others see padding. */
static void row_inside(const conv_job *job, const tap *t, int64_t *first, int64_t *end)
{
    const int64_t s = job->attr->stride[2], at = seen(job, t, 2, 0), size = job->s.out[2];
    const int64_t low = at < 0 ? (-at + s - 1) / s : 0;
    const int64_t high = job->s.in[2] - at > 0 ? (job->s.in[2] - at + s - 1) / s : 0;
    *end = high < size ? high : size;
    *first = low < *end ? low : *end;
}

/* ---- f64: every element is a sum in the order channels, taps (gradient of the weight: batch,
 * positions), each product and each sum rounded ---- */

/* Planes [begin, end) of y [n, o]. */
static void forward(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conv_job *job = context;
    const gd_conv_sizes *s = &job->s;
    const int64_t step = job->attr->stride[2], rows = s->out[0] * s->out[1], width = s->out[2];
    for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / (s->groups * s->o), o = i % (s->groups * s->o);
        const double *x = job->a + (n * s->groups + o / s->o) * s->c * s->in_plane;
        const double *w = job->b + o * s->c * s->taps; /* [c, taps] */
        double *y = job->out + i * s->out_plane;
        for (int64_t p = 0; p < s->out_plane; p++)
            y[p] = 0;
        for (int64_t k = 0; k < s->c * s->taps; k++) {
            const tap t = tap_at(s, k % s->taps);
            const double *plane = x + k / s->taps * s->in_plane, factor = w[k];
            int64_t first, last;
            row_inside(job, &t, &first, &last);
            for (int64_t row = 0; row < rows; row++) {
                double *to = y + row * width;
                const int64_t from = row_seen(job, &t, row / s->out[1], row % s->out[1]);
                const int64_t low = from < 0 ? width : first, high = from < 0 ? width : last;
                const double *seen_row = plane + (from < 0 ? 0 : from + seen(job, &t, 2, 0));
                for (int64_t p = 0; p < low; p++)
                    to[p] += factor * 0;
                for (int64_t p = low; p < high; p++)
                    to[p] += factor * seen_row[p * step];
                for (int64_t p = high; p < width; p++)
                    to[p] += factor * 0;
            }
        }
        const double bias = job->bias ? (job->bias)[o] : 0;
        for (int64_t p = 0; p < s->out_plane; p++) {
            const double value = job->bias ? y[p] + bias : y[p];
            y[p] = job->attr->relu && value < 0 ? 0 : value;
        }
    }
}

/* Row (z, y) of x's plane gathers what tap t brings it from g's plane. */
static void gather_row(const conv_job *job, const tap *t, const int64_t at[2], const double *g,
                       double factor, double *to)
{
    const gd_conv_sizes *s = &job->s;
    const gd_conv_attr *attr = job->attr;
    int64_t row = 0;
    bool inside = true;
    for (int a = 0; a < 2; a++) {
        const int64_t place = at[a] + attr->before[a] - t->at[a] * attr->dilation[a];
        if (place % attr->stride[a])
            return;
        const int64_t p = place / attr->stride[a];
        inside = inside && p >= 0 && p < s->out[a];
        row = row * s->out[a] + p;
    }
    const int64_t step = attr->stride[2], shift = attr->before[2] - t->at[2] * attr->dilation[2];
    for (int64_t q = ((-shift) % step + step) % step; q < s->in[2]; q += step) {
        const int64_t p = (q + shift) / step;
        to[q] += factor * (inside && p >= 0 && p < s->out[2] ? g[row * s->out[2] + p] : 0);
    }
}

/* Planes [begin, end) of x's gradient [n, c]. */
static void grad_input(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conv_job *job = context;
    const gd_conv_sizes *s = &job->s;
    for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / (s->groups * s->c), c = i % s->c, group = i / s->c % s->groups;
        double *x = job->out + i * s->in_plane;
        for (int64_t q = 0; q < s->in_plane; q++)
            x[q] = 0;
        for (int64_t o = group * s->o; o < (group + 1) * s->o; o++) {
            const double *g = job->a + (n * s->groups * s->o + o) * s->out_plane;
            const double *w = job->b + (o * s->c + c) * s->taps; /* [taps] */
            for (int64_t k = 0; k < s->taps; k++) {
                const tap t = tap_at(s, k);
                for (int64_t row = 0; row < s->in[0] * s->in[1]; row++) {
                    const int64_t at[2] = { row / s->in[1], row % s->in[1] };
                    gather_row(job, &t, at, g, w[k], x + row * s->in[2]);
                }
            }
        }
    }
}

/* Kernels [begin, end) of the weight's gradient [o, c]. */
static void grad_weight(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conv_job *job = context;
    const gd_conv_sizes *s = &job->s;
    const int64_t step = job->attr->stride[2], rows = s->out[0] * s->out[1], width = s->out[2];
    for (int64_t i = begin * s->taps; i < end * s->taps; i++) {
        const tap t = tap_at(s, i % s->taps);
        const int64_t o = i / s->taps / s->c, c = o / s->o * s->c + i / s->taps % s->c;
        int64_t first, last;
        row_inside(job, &t, &first, &last);
        double sum = 0;
        for (int64_t row = 0; row < s->n * rows; row++) {
            const int64_t n = row / rows, y = row % rows;
            const double *g =
                job->a + ((n * s->groups * s->o + o) * rows + y) * width; /* [width] */
            const double *x = job->b + (n * s->groups * s->c + c) * s->in_plane;
            const int64_t from = row_seen(job, &t, y / s->out[1], y % s->out[1]);
            const int64_t low = from < 0 ? width : first, high = from < 0 ? width : last;
            x += from < 0 ? 0 : from + seen(job, &t, 2, 0);
            for (int64_t p = 0; p < low; p++)
                sum += g[p] * 0;
            for (int64_t p = low; p < high; p++)
                sum += g[p] * x[p * step];
            for (int64_t p = high; p < width; p++)
                sum += g[p] * 0;
        }
        job->out[i] = sum;
    }
}

/* ---- the ops ---- */

#define LEAST_ROWS     16 /* channels of the result */
#define LEAST_CHANNELS 8  /* that windows see */

enum direction { FORWARD, GRAD_INPUT, GRAD_WEIGHT };
static const gd_range_fn f64_planes[] = { forward, grad_input, grad_weight };

/* Both are numbers, which may be the same one. NOLINTNEXTLINE(misc-redundant-expression) */
_Static_assert(GD_CONV_SCRATCH <= GD_CPU_SCRATCH, "convolution works in a thread's scratch");

static enum direction direction_of(const gd_kernel_call *call)
{
    return call->op->id == GD_OP_convolution              ? FORWARD
           : call->op->id == GD_OP_convolution_grad_input ? GRAD_INPUT
                                                          : GRAD_WEIGHT;
}

static gd_conv_sizes sizes_of(const gd_kernel_call *call, enum direction direction)
{
    const gd_layout *first = call->in[0].layout, *second = call->in[1].layout;
    const gd_layout *out = call->out.layout;
    const gd_layout *x = direction == FORWARD ? first : direction == GRAD_INPUT ? out : second;
    const gd_layout *w = direction == GRAD_WEIGHT ? out : second;
    const gd_layout *y = direction == FORWARD ? out : first;
    return gd_conv_sizes_of(x, w, y, ((const gd_conv_attr *)call->attr)->groups);
}

static const gd_conv_fn directions[] = { gd_conv_forward, gd_conv_grad_input, gd_conv_grad_weight };

/* Whether there is a kernel, for bf16 whether it pays. Where products widen it does not: packed windows
 * are the slowest of the ways that f32 has. Elsewhere a row of 32 positions of a window takes 5 ns to
 * pack and 20 ns more to find, which the channels share (Emerald Rapids); f32 multiplies it by a channel
 * of the result in half a nanosecond. GRADUS_CONV=packed: whatever the channels. */
bool gd_cpu_convolution_takes(const gd_kernel_call *call)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)call->device;
    if (call->in[0].layout->dtype != GD_BF16)
        return true;
    if (!cpu->conv_bf16 || cpu->gemm_bf16->b_packed_bytes != (int)sizeof(uint16_t))
        return false;
    const enum direction direction = direction_of(call);
    const gd_conv_sizes s = sizes_of(call, direction);
    const int64_t rows = direction == GRAD_INPUT ? s.c : s.o, channels = s.c + s.o - rows;
    return cpu->paths.conv == GD_CONV_PACKED || (rows >= LEAST_ROWS && channels >= LEAST_CHANNELS);
}

/* asked: a call that is asked about may have no addresses: some stands for them, which nobody reads. */
static gd_conv_args args_of(const gd_kernel_call *call, bool asked)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)call->device;
    const enum direction direction = direction_of(call);
    const bool is_bf16 = call->in[0].layout->dtype == GD_BF16;
    static float some[1];
    return (gd_conv_args){ .attr = call->attr,
                           .s = sizes_of(call, direction),
                           .a = asked ? some : call->in[0].data,
                           .b = asked ? some : call->in[1].data,
                           .bias = call->n > 2 && !asked ? call->in[2].data : NULL,
                           .out = asked ? some : call->out.data,
                           .micro = is_bf16 ? cpu->conv_bf16 : cpu->conv_f32,
                           .product = cpu->gemm_bf16,
                           .threads = cpu->base.threads,
                           .paths = &cpu->paths,
                           .fast = cpu->fast,
                           .workspace = gd_workspace_of(call) };
}

/* Sums are f32; operands are, too, or bf16. */
static bool is_convolution_f32(const gd_kernel_call *call)
{
    const gd_op_id id = call->op->id;
    return (id == GD_OP_convolution || id == GD_OP_convolution_grad_input ||
            id == GD_OP_convolution_grad_weight) &&
           call->out.layout->dtype == GD_F32;
}

/* Weights decide between two ways (conv_images.c), when they are known: the larger of both. */
gd_workspace gd_cpu_convolution_scratch(const gd_kernel_call *call)
{
    gd_workspace need = { 0 };
    if (!is_convolution_f32(call))
        return need;
    gd_conv_args args = args_of(call, true);
    args.scratch = &need;
    directions[direction_of(call)](&args);
    args.has_not_finite = true;
    directions[direction_of(call)](&args);
    return need;
}

static gd_status convolution(const gd_kernel_call *call)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)call->device;
    const gd_layout *out = call->out.layout;
    if (out->dtype == GD_F32) {
        const gd_conv_args args = args_of(call, false);
        directions[direction_of(call)](&args);
        return GD_OK;
    }
    const enum direction direction = direction_of(call);
    conv_job job = { .attr = call->attr,
                     .s = sizes_of(call, direction),
                     .a = call->in[0].data,
                     .b = call->in[1].data,
                     .bias = call->n > 2 ? call->in[2].data : NULL,
                     .out = call->out.data };
    gd_parallel_for(cpu->base.threads, out->shape[0] * out->shape[1], 1, f64_planes[direction],
                    &job);
    return GD_OK;
}

void gd_cpu_convolution_explain(const gd_kernel_call *call, gd_text *text)
{
    if (!is_convolution_f32(call))
        return;
    gd_conv_args args = args_of(call, true);
    args.explain = text;
    directions[direction_of(call)](&args);
}

void gd_cpu_register_convolution(gd_kernel_fn *kernel)
{
    kernel[GD_OP_convolution] = convolution;
    kernel[GD_OP_convolution_grad_input] = convolution;
    kernel[GD_OP_convolution_grad_weight] = convolution;
}
