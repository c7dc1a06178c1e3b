/* backend/cpu/pooling.c: maximum and mean over windows, and their gradients. A thread takes whole
 * planes, so that every sum has one order. Start at the bottom; the loops are in pooling_loops.h,
 * those of the usual maximum of two by two in pooling_squares.h.
 */
#include "backend/cpu/pooling.h"

#include "backend/cpu/iterate.h"
#include "base/threads.h"

#include <string.h>

/* The windows of three axes that one element of the result sees. */
typedef struct box {
    gd_pool_window w[GD_SPATIAL];
} box;

/* Not inlined: ten loops call it. */
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

/* Whether windows are two by two and touch each other. */
static bool are_squares(const gd_pool_sizes *s)
{
    const gd_pool_attr *a = s->attr;
    bool squares = !a->adaptive && s->in[0] == s->out[0] && a->kernel[0] == 1;
    for (int k = 1; k < GD_SPATIAL; k++)
        squares = squares && a->kernel[k] == 2 && a->stride[k] == 2 && a->before[k] == 0 &&
                  a->dilation[k] == 1 && 2 * s->out[k] <= s->in[k];
    return squares;
}

#define REAL  float
#define N(op) op##_f32
#include "backend/cpu/pooling_loops.h"
#define REAL  double
#define N(op) op##_f64
#include "backend/cpu/pooling_loops.h"
#define REAL  double
#define BITS  uint64_t
#define N(op) op##_f64
#include "backend/cpu/pooling_squares.h"

/* The loops of one op: for f32 and f64; of any windows, and of squares (none: NULL). */
typedef struct pool_loops {
    gd_range_fn any[2], squares[2];
} pool_loops;

static gd_status run(const gd_kernel_call *call, const gd_layout *in, const gd_layout *out,
                     const pool_loops *loops)
{
    gd_pool_job job = { .s = gd_pool_sizes_of(in, out, call->attr),
                        .in = call->in[call->n - 1].data,
                        .g = call->in[0].data,
                        .out = call->out.data };
    const int which = call->in[0].layout->dtype == GD_F64;
    const bool squares = loops->squares[which] && are_squares(&job.s);
    const int64_t work = job.s.in_plane + job.s.out_plane;
    gd_parallel_for(call->device->threads, job.s.planes, GD_PARALLEL_ELEMENTS / (work + 1) + 1,
                    squares ? loops->squares[which] : loops->any[which], &job);
    return GD_OK;
}

gd_status gd_max_pool_run(const gd_kernel_call *call, gd_range_fn squares_f32)
{
    const pool_loops loops = { { max_pool_f32, max_pool_f64 }, { squares_f32, max_squares_f64 } };
    return run(call, call->in[0].layout, call->out.layout, &loops);
}

static gd_status max_pool_index(const gd_kernel_call *call)
{
    static const pool_loops loops = { .any = { max_pool_index_f32, max_pool_index_f64 } };
    return run(call, call->in[0].layout, call->out.layout, &loops);
}

gd_status gd_max_pool_grad_run(const gd_kernel_call *call, gd_range_fn squares_f32)
{
    const pool_loops loops = { { max_pool_grad_f32, max_pool_grad_f64 },
                               { squares_f32, max_squares_grad_f64 } };
    return run(call, call->out.layout, call->in[0].layout, &loops);
}

static gd_status avg_pool(const gd_kernel_call *call)
{
    static const pool_loops loops = { .any = { avg_pool_f32, avg_pool_f64 } };
    return run(call, call->in[0].layout, call->out.layout, &loops);
}

static gd_status avg_pool_grad(const gd_kernel_call *call)
{
    static const pool_loops loops = { .any = { avg_pool_grad_f32, avg_pool_grad_f64 } };
    return run(call, call->out.layout, call->in[0].layout, &loops);
}

void gd_cpu_register_pooling(gd_kernel_fn *kernel)
{
    kernel[GD_OP_max_pool_index] = max_pool_index;
    kernel[GD_OP_avg_pool] = avg_pool;
    kernel[GD_OP_avg_pool_grad] = avg_pool_grad;
}
