/* backend/gpu/recurrent.c: recurrent networks and their gradient: one launch for all steps,
 * a group a sequence. The kernels are in codegen/device/recurrent.txt, the order that they keep is
 * that of backend/cpu/recurrent.c. */
#include "backend/gpu/gpu.h"

#include "ops/attrs.h"

enum { ITEMS = 128, LSTM = 2 };

typedef struct sizes {
    int64_t batch, time, w, gates;
} sizes;

static void add_strides(gd_gpu_step *step, const gd_layout *x, int count)
{
    for (int a = 0; a < count; a++)
        gd_gpu_add_number(step, x && a < x->rank ? x->stride[a] : 0);
}

/* As recurrent_numbers has them. Of the operands, `first` is the number of h0; the gradient's g and
 * the forward pass's z are `moving`. */
static void add_numbers(const gd_kernel_call *call, gd_gpu_step *step, const sizes *s, int first,
                        int moving, int lengths)
{
    const gd_recurrent_attr *attr = call->attr;
    const bool is_lstm = attr->cell == LSTM;
    const int64_t numbers[] = { s->batch,
                                s->time,
                                s->w,
                                s->gates,
                                attr->cell,
                                attr->reverse != 0,
                                attr->has_lengths != 0,
                                attr->part,
                                attr->has_lengths ? call->in[lengths].layout->stride[0] : 0 };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        gd_gpu_add_number(step, numbers[i]);
    add_strides(step, call->in[1].layout, 2);
    add_strides(step, call->in[first].layout, 2);
    add_strides(step, is_lstm ? call->in[first + 1].layout : NULL, 2);
    add_strides(step, call->in[moving].layout, 3);
}

static void add_places(gd_gpu_step *step, const int *places, int count)
{
    for (int i = 0; i < count; i++)
        gd_gpu_add_place(step, places[i]);
}

/* What u is tells f32 and f64 from what the CPU alone does: products of bf16. */
static bool is_taken(const gd_kernel_call *call)
{
    const gd_dtype dtype = call->in[1].layout->dtype;
    return dtype == GD_F32 || dtype == GD_F64;
}

static size_t bytes_of(const gd_kernel_call *call, int64_t numbers)
{
    return (size_t)numbers * gd_dtype_size(call->out.layout->dtype);
}

static gd_gpu_step *add_kernel(const gd_kernel_call *call, gd_gpu_job *job, const char *name,
                               int64_t batch)
{
    const gd_dtype dtype = call->out.layout->dtype;
    const char *suffix = gd_codegen_suffix(dtype);
    gd_gpu_step *step = gd_gpu_add_kernel(job, name, batch, ITEMS);
    step->is_uneven = true;
    gd_gpu_define(step, "T", "%s", gd_codegen_type(dtype));
    gd_gpu_define(step, "FMA", "GD_FMA_%s", dtype == GD_F64 ? "F64" : "F32");
    gd_gpu_define(step, "TANH", "gd_tanh_%s", suffix);
    gd_gpu_define(step, "SIGMOID", "gd_sigmoid_%s", suffix);
    return step;
}

/* z, u, b, h0, for LSTM c0, lengths where there are some */
bool gd_gpu_describe_recurrent(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_recurrent_attr *attr = call->attr;
    const gd_layout *z = call->in[0].layout;
    const sizes s = { .batch = z->shape[0],
                      .time = z->shape[1],
                      .w = call->in[1].layout->shape[0],
                      .gates = gd_recurrent_gates(attr->cell) };
    const int places[] = { 0,
                           1,
                           2,
                           3,
                           attr->cell == LSTM ? 4 : 3,
                           attr->has_lengths ? call->n - 1 : 0,
                           call->n,
                           GD_GPU_WORKSPACE };
    if (!is_taken(call))
        return false;
    if (s.batch == 0)
        return true;
    job->workspace = bytes_of(call, s.batch * s.gates * s.w);
    gd_gpu_step *step = add_kernel(call, job, "recurrent_steps", s.batch);
    add_places(step, places, 8);
    add_numbers(call, step, &s, 3, 0, call->n - 1);
    return true;
}

/* what was kept, u transposed, h0, for LSTM c0, lengths where there are some, g */
bool gd_gpu_describe_recurrent_grad(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_recurrent_attr *attr = call->attr;
    sizes s = { .batch = call->in[2].layout->shape[0],
                .w = call->in[1].layout->shape[1],
                .gates = gd_recurrent_gates(attr->cell) };
    const int places[] = { 0,
                           1,
                           2,
                           attr->cell == LSTM ? 3 : 2,
                           attr->has_lengths ? call->n - 2 : 0,
                           call->n - 1,
                           call->n,
                           GD_GPU_WORKSPACE };
    if (!is_taken(call))
        return false;
    if (s.batch == 0)
        return true;
    s.time = call->in[0].layout->shape[0] / (s.batch * s.w * gd_recurrent_kept(attr->cell));
    job->workspace = bytes_of(call, s.batch * (2 + s.gates) * s.w);
    gd_gpu_step *step = add_kernel(call, job, "recurrent_grad_steps", s.batch);
    add_places(step, places, 8);
    add_numbers(call, step, &s, 2, call->n - 1, call->n - 2);
    return true;
}
