/* backend/cpu/convolution.c: the ops convolution, convolution_grad_input and
 * convolution_grad_weight on the CPU. Here are plain loops over rows, whose inner loops compilers
 * vectorise. Padding counts as zeros that are multiplied: 0 times an infinite weight is NaN. Start
 * at the bottom. */
#include "backend/cpu/cpu.h"
#include "base/error.h"
#include "base/threads.h"
#include "ops/spatial.h"

typedef struct conv_job {
    const gd_conv_attr *attr;
    gd_conv_sizes s;
    const void *a, *b, *bias; /* the operands, in their order */
    void *out;
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

#define REAL  float
#define N(op) op##_f32
#include "backend/cpu/convolution_loops.h"
#define REAL  double
#define N(op) op##_f64
#include "backend/cpu/convolution_loops.h"

static gd_status run(const gd_kernel_call *call, const gd_layout *x, const gd_layout *w,
                     const gd_layout *y, gd_range_fn f32, gd_range_fn f64, int64_t planes)
{
    const gd_conv_attr *attr = call->attr;
    conv_job job = { .attr = attr,
                     .s = gd_conv_sizes_of(x, w, y, attr->groups),
                     .a = call->in[0].data,
                     .b = call->in[1].data,
                     .bias = call->n > 2 ? call->in[2].data : NULL,
                     .out = call->out.data };
    const bool is_f32 = call->out.layout->dtype == GD_F32;
    gd_parallel_for(call->device->threads, planes, 1, is_f32 ? f32 : f64, &job);
    return GD_OK;
}

static gd_status convolution(const gd_kernel_call *call)
{
    const gd_layout *y = call->out.layout;
    return run(call, call->in[0].layout, call->in[1].layout, y, forward_f32, forward_f64,
               y->shape[0] * y->shape[1]);
}

static gd_status convolution_grad_input(const gd_kernel_call *call)
{
    const gd_layout *x = call->out.layout;
    return run(call, x, call->in[1].layout, call->in[0].layout, grad_input_f32, grad_input_f64,
               x->shape[0] * x->shape[1]);
}

static gd_status convolution_grad_weight(const gd_kernel_call *call)
{
    const gd_layout *w = call->out.layout;
    return run(call, call->in[1].layout, w, call->in[0].layout, grad_weight_f32, grad_weight_f64,
               w->shape[0] * w->shape[1]);
}

void gd_cpu_register_convolution(gd_kernel_fn *kernel)
{
    kernel[GD_OP_convolution] = convolution;
    kernel[GD_OP_convolution_grad_input] = convolution_grad_input;
    kernel[GD_OP_convolution_grad_weight] = convolution_grad_weight;
}
