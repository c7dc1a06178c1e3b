/* backend/gpu/library_convolution.c: convolution and its gradients by the library of the device's maker,
 * where the context asks for its numbers (gd_open_options): the sums are the library's, bias and ReLU
 * are a kernel of ours behind it, which has the same bits whether they are part of the op or follow it. So
 * eager and compiled functions agree. Start at gd_gpu_describe_library_convolution. */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "backend/gpu/convolution.h"
#include "base/error.h"
#include "ops/spatial.h"

/* A convolution along one or two axes is one of two axes: the library knows none of one. */
static int first_axis(const gd_conv_sizes *s)
{
    return s->in[0] == 1 && s->kernel[0] == 1 && s->out[0] == 1 ? 1 : 0;
}

static void set_sizes(int64_t size[GD_CONV_AXES], int64_t first, int64_t second,
                      const int64_t *spatial, int count)
{
    size[0] = first;
    size[1] = second;
    memcpy(size + 2, spatial, sizeof *spatial * (size_t)count);
}

static gd_gpu_convolution convolution_of(const gd_kernel_call *call, const gd_conv_sizes *s)
{
    const gd_conv_attr *attr = call->attr;
    const int first = first_axis(s), count = GD_SPATIAL - first;
    const size_t bytes = sizeof(int64_t) * (size_t)count;
    gd_gpu_convolution c;
    memset(&c, 0, sizeof c);
    c.result = call->op->id == GD_OP_convolution              ? GD_CONV_Y
               : call->op->id == GD_OP_convolution_grad_input ? GD_CONV_X
                                                              : GD_CONV_W;
    c.axes = 2 + count;
    c.groups = s->groups;
    set_sizes(c.size[GD_CONV_X], s->n, s->groups * s->c, s->in + first, count);
    set_sizes(c.size[GD_CONV_W], s->groups * s->o, s->c, s->kernel + first, count);
    set_sizes(c.size[GD_CONV_Y], s->n, s->groups * s->o, s->out + first, count);
    memcpy(c.stride, attr->stride + first, bytes);
    memcpy(c.before, attr->before + first, bytes);
    memcpy(c.after, attr->after + first, bytes);
    memcpy(c.dilation, attr->dilation + first, bytes);
    return c;
}

static bool is_empty(const gd_gpu_convolution *c)
{
    bool any = false;
    for (int k = 0; k < GD_CONV_OPERANDS; k++)
        for (int a = 0; a < c->axes; a++)
            any |= c->size[k][a] == 0;
    return any;
}

/* The op's operands as x, w and y. */
static void add_places(const gd_kernel_call *call, const gd_gpu_convolution *c, gd_gpu_step *step)
{
    static const int from[GD_CONV_OPERANDS][GD_CONV_OPERANDS] = {
        [GD_CONV_X] = { -1, 1, 0 }, /* of g and w */
        [GD_CONV_W] = { 1, -1, 0 }, /* of g and x */
        [GD_CONV_Y] = { 0, 1, -1 },
    };
    for (int k = 0; k < GD_CONV_OPERANDS; k++) {
        const int operand = from[c->result][k];
        gd_gpu_add_place(step, operand < 0 ? call->n : operand);
    }
}

/* ---- bias and ReLU ---- */

/* y = relu(y + bias), or one of the two, as a group of elementwise ops. */
static gd_fused_attr finish_of(bool has_bias, bool has_relu)
{
    gd_fused_attr group;
    memset(&group, 0, sizeof group);
    group.n_inputs = 1 + has_bias;
    if (has_bias)
        group.instruction[group.n_instructions++] = (gd_fused_instruction){
            .op = GD_OP_add, .dtype = GD_F32, .from = { 0, 1 }, .compute = GD_F32
        };
    if (has_relu)
        group.instruction[group.n_instructions++] = (gd_fused_instruction){
            .op = GD_OP_relu, .dtype = GD_F32, .from = { has_bias ? 2 : 0 }, .compute = GD_F32
        };
    return group;
}

static bool add_finish(const gd_kernel_call *call, gd_gpu_job *job)
{
    const bool has_bias = call->n > 2, has_relu = ((const gd_conv_attr *)call->attr)->relu;
    const gd_layout *out = call->out.layout;
    const gd_fused_attr group = finish_of(has_bias, has_relu);
    gd_layout bias = *out; /* along the channels */
    for (int a = 0; a < out->rank; a++)
        bias.stride[a] = a == 1;
    const gd_operand in[] = { call->out, { NULL, &bias } };
    const gd_kernel_call finish = { .device = call->device,
                                    .op = gd_op_row(GD_OP_fused),
                                    .attr = &group,
                                    .n = group.n_inputs,
                                    .in = in,
                                    .out = call->out };
    if (group.n_instructions == 0)
        return true;
    if (!gd_gpu_describe_elementwise(&finish, job))
        return false;
    gd_gpu_step *step = &job->step[job->steps - 1];
    for (int i = 0; i < step->places; i++)
        step->place[i] = (int8_t)(step->place[i] == 1 && has_bias ? 2 : call->n);
    return true;
}

/* ---- the convolution ---- */

bool gd_gpu_may_be_library_convolution(const gd_kernel_call *call)
{
    const gd_gpu *gpu = (const gd_gpu *)call->device;
    const gd_op_id id = call->op->id;
    return gpu->numbers != GD_NUMBERS_EXACT && gpu->driver->convolution_find &&
           call->out.layout->dtype == GD_F32 &&
           (id == GD_OP_convolution || id == GD_OP_convolution_grad_input ||
            id == GD_OP_convolution_grad_weight);
}

bool gd_gpu_describe_library_convolution(const gd_kernel_call *call, const gd_conv_sizes *s,
                                         gd_gpu_job *job)
{
    gd_gpu *gpu = (gd_gpu *)call->device;
    if (!gd_gpu_may_be_library_convolution(call))
        return false;
    const gd_gpu_convolution c = convolution_of(call, s);
    if (is_empty(&c))
        return false;
    bool is_there = false;
    size_t workspace = 0;
    const uint64_t mark = gd_error_mark();
    const gd_status status = gpu->driver->convolution_find(gpu, &c, &is_there, &workspace);
    gd_error_rollback(mark); /* of a failure: who runs it is told */
    if (status == GD_OK && !is_there)
        return false;
    gd_gpu_step *step = gd_gpu_add_step(job, 1, 1);
    step->is_convolution = true;
    job->workspace = workspace;
    add_places(call, &c, step);
    int64_t numbers[GD_CONV_NUMBERS];
    memcpy(numbers, &c, sizeof c);
    for (int i = 0; i < GD_CONV_NUMBERS; i++)
        gd_gpu_add_number(step, numbers[i]);
    if (c.result != GD_CONV_Y || add_finish(call, job))
        return true;
    job->steps = 0;
    return false;
}
