/* backend/cpu/pooling.c: maximum and mean over windows, and their gradients. A thread takes whole
 * planes, so that every sum has one order. Start at the bottom; the loops are in pooling_loops.h.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/iterate.h"
#include "base/threads.h"
#include "ops/spatial.h"

typedef struct pool_job {
    gd_pool_sizes s;
    const void *in; /* [planes, in_plane], or what has the windows' side in the mean's gradient */
    const void *g;  /* [planes, out_plane], the gradient of a maximum */
    void *out;
} pool_job;

/* The windows of three axes that one element of the result sees. */
typedef struct box {
    gd_pool_window w[GD_SPATIAL];
} box;

/* Out of line: ten loops ask for windows. */
static __attribute__((noinline)) void set_window(const gd_pool_sizes *s, int a, int64_t i, box *b)
{
    b->w[a] = gd_pool_window_at(s, a, i);
}

/* What the sum over a window is divided by. */
static __attribute__((noinline)) double divisor(const gd_pool_sizes *s, const box *b)
{
    int64_t count = 1;
    for (int a = 0; a < GD_SPATIAL; a++)
        count *= s->attr->exclude_pad ? b->w[a].end - b->w[a].first : b->w[a].padded;
    return (double)count;
}

#define REAL  float
#define N(op) op##_f32
#include "backend/cpu/pooling_loops.h"
#define REAL  double
#define N(op) op##_f64
#include "backend/cpu/pooling_loops.h"

static gd_status run(const gd_kernel_call *call, const gd_layout *in, const gd_layout *out,
                     gd_range_fn f32, gd_range_fn f64)
{
    pool_job job = { .s = gd_pool_sizes_of(in, out, call->attr),
                     .in = call->in[call->n - 1].data,
                     .g = call->in[0].data,
                     .out = call->out.data };
    const bool is_f32 = call->in[0].layout->dtype == GD_F32;
    const int64_t work = job.s.in_plane + job.s.out_plane;
    gd_parallel_for(call->device->threads, job.s.planes, GD_PARALLEL_ELEMENTS / (work + 1) + 1,
                    is_f32 ? f32 : f64, &job);
    return GD_OK;
}

static gd_status max_pool(const gd_kernel_call *call)
{
    return run(call, call->in[0].layout, call->out.layout, max_pool_f32, max_pool_f64);
}

static gd_status max_pool_index(const gd_kernel_call *call)
{
    return run(call, call->in[0].layout, call->out.layout, max_pool_index_f32, max_pool_index_f64);
}

static gd_status max_pool_grad(const gd_kernel_call *call)
{
    return run(call, call->out.layout, call->in[0].layout, max_pool_grad_f32, max_pool_grad_f64);
}

static gd_status avg_pool(const gd_kernel_call *call)
{
    return run(call, call->in[0].layout, call->out.layout, avg_pool_f32, avg_pool_f64);
}

static gd_status avg_pool_grad(const gd_kernel_call *call)
{
    return run(call, call->out.layout, call->in[0].layout, avg_pool_grad_f32, avg_pool_grad_f64);
}

void gd_cpu_register_pooling(gd_kernel_fn *kernel)
{
    kernel[GD_OP_max_pool] = max_pool;
    kernel[GD_OP_max_pool_index] = max_pool_index;
    kernel[GD_OP_max_pool_grad] = max_pool_grad;
    kernel[GD_OP_avg_pool] = avg_pool;
    kernel[GD_OP_avg_pool_grad] = avg_pool_grad;
}
