/* backend/cpu/pooling.c: maximum and mean over windows, and their gradients. A thread takes whole
 * planes, so that every sum has one order. Start at the bottom; the loops are in pooling_loops.h,
 * those of the usual maximum of two by two in pooling_squares.h.
 */
#include "backend/cpu/pooling.h"

#include "backend/cpu/elementwise.h"
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

/* ---- f16 and bf16: some planes at a time become f32 ---- */

#define HALF_ELEMENTS \
    4096 /* of planes and windows that are f32 at once, if one plane has no more */

/* Planes of an operand or of the result. */
typedef struct planes {
    char *all;       /* of every plane */
    int64_t each;    /* elements of one */
    gd_ew_loop cast; /* gd_ew_half_cast; NULL: the loops use the planes as they are */
} planes;

typedef struct half_job {
    const gd_kernel_call *call;
    gd_pool_job job;
    gd_range_fn loop;
    planes in, g, out;
} half_job;

static int64_t half_planes_at_once(int64_t elements)
{
    return elements < HALF_ELEMENTS ? HALF_ELEMENTS / elements : 1;
}

/* Elements of a plane and of its windows. */
static int64_t elements_of(const gd_layout *x)
{
    int64_t count = 1;
    for (int i = 2; i < x->rank; i++)
        count *= x->shape[i];
    return count;
}

/* The most that a plane takes, of each operand and of the result. */
static int64_t plane_elements(const gd_kernel_call *call)
{
    int64_t count = elements_of(call->out.layout);
    for (int i = 0; i < call->n; i++)
        count += elements_of(call->in[i].layout);
    return count;
}

enum { BLOCKS = 3 };

bool gd_pool_takes_halves(const gd_kernel_call *call)
{
    const size_t bytes = (size_t)plane_elements(call) * sizeof(float);
    bool takes =
        call->out.layout->dtype != GD_F64 && gd_scratch_bytes(bytes, BLOCKS) <= GD_CPU_WIDE_SCRATCH;
    for (int i = 0; i < call->n; i++)
        takes = takes && gd_layout_is_contiguous(call->in[i].layout);
    return takes;
}

/* Of planes, of which a thread takes so many at least. */
static int64_t grain(int64_t in_plane, int64_t out_plane)
{
    return GD_PARALLEL_ELEMENTS / (in_plane + out_plane + 1) + 1;
}

gd_workspace gd_pool_scratch(const gd_kernel_call *call)
{
    const gd_layout *out = call->out.layout;
    const int64_t count = gd_layout_count(out);
    if (!gd_call_has_halves(call) || count == 0)
        return (gd_workspace){ 0 };
    const int64_t each = elements_of(out), all = plane_elements(call);
    const size_t bytes = (size_t)(half_planes_at_once(all) * all) * sizeof(float);
    return (gd_workspace){ NULL, gd_scratch_bytes(bytes, BLOCKS),
                           gd_parallel_ranges(call->device->threads, count / each,
                                              grain(each, elements_of(call->in[0].layout))) };
}

static planes planes_of(const gd_kernel_call *call, const gd_operand *of)
{
    return (planes){ .all = of->data,
                     .each = elements_of(of->layout),
                     .cast = gd_ew_half_cast(call, of) };
}

static char *plane_at(const planes *p, int64_t i)
{
    return p->all + i * p->each * (int64_t)(p->cast ? sizeof(uint16_t) : sizeof(float));
}

/* Planes from i on as f32. */
static const void *read_planes(const planes *p, int64_t i, int64_t count, float *room)
{
    if (!p->cast)
        return plane_at(p, i);
    p->cast(plane_at(p, i), NULL, NULL, room, count * p->each);
    return room;
}

static void half_planes_range(void *context, int64_t begin, int64_t end, int thread)
{
    const half_job *h = context;
    const int64_t most = half_planes_at_once(plane_elements(h->call));
    gd_scratch s = gd_scratch_of(h->call, thread);
    float *in = gd_scratch_take(&s, (size_t)(most * h->in.each) * sizeof *in);
    float *g = in; /* the same operand, but of max_pool_grad */
    if (h->call->n > 1)
        g = gd_scratch_take(&s, (size_t)(most * h->g.each) * sizeof *g);
    float *out = gd_scratch_take(&s, (size_t)(most * h->out.each) * sizeof *out);
    for (int64_t count; begin < end; begin += count) {
        count = end - begin < most ? end - begin : most;
        gd_pool_job some = h->job;
        some.in = read_planes(&h->in, begin, count, in);
        some.g = h->call->n > 1 ? read_planes(&h->g, begin, count, g) : some.in;
        some.out = h->out.cast ? (char *)out : plane_at(&h->out, begin);
        h->loop(&some, 0, count, thread);
        if (h->out.cast)
            h->out.cast(out, NULL, NULL, plane_at(&h->out, begin), count * h->out.each);
    }
}

/* ---- the ops ---- */

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
    const gd_range_fn loop = squares ? loops->squares[which] : loops->any[which];
    half_job halves = { call,
                        job,
                        loop,
                        planes_of(call, &call->in[call->n - 1]),
                        planes_of(call, &call->in[0]),
                        planes_of(call, &call->out) };
    const bool has_halves = gd_call_has_halves(call);
    gd_parallel_for(call->device->threads, job.s.planes, grain(job.s.in_plane, job.s.out_plane),
                    has_halves ? half_planes_range : loop, has_halves ? (void *)&halves : &job);
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
