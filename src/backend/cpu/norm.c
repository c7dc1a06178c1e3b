/* backend/cpu/norm.c: normalize and normalize_grad: rows split among threads, and the loops for
 * f64. Operands are contiguous (the ops' infer sees to it). Rows of f16 and bf16 become f32 in
 * scratch, some at a time, and so does a result before it is rounded to those dtypes. Start at
 * gd_normalize_run(). */
#include "backend/cpu/norm.h"

#include "backend/cpu/elementwise.h"
#include "backend/cpu/iterate.h"
#include "base/threads.h"

#include <math.h>

#define TYPE       double
#define NAME(what) norm_f64_##what
#include "backend/cpu/norm_loops.h"

const gd_norm_loops gd_norm_f64_loops = { .size = sizeof(double),
                                          .forward = norm_f64_forward,
                                          .backward = norm_f64_backward,
                                          .centred = norm_f64_centred };

#define HALF_ELEMENTS \
    2048 /* of rows that become f32 at once: x, g or the result are in the cache */

/* Rows of an operand or of the result: how the loops come by them. */
typedef struct rows {
    char *all;       /* every row; NULL: there is no such operand */
    int64_t size;    /* of an element */
    gd_ew_loop cast; /* gd_ew_half_cast; NULL: the loops use the rows as they are */
} rows;

typedef struct norm_work {
    const gd_norm_loops *loops;
    const gd_kernel_call *call;
    gd_norm_rows_job all; /* every row, but for x, g and out */
    rows x, g, out;
    int64_t each; /* rows of a block; normalize_grad only */
    char *sums;   /* [parts, blocks, k], NULL when there are none */
    int64_t blocks;
    int parts;
} norm_work;

static rows rows_of(const gd_kernel_call *call, const gd_operand *of)
{
    return (rows){ .all = of->data,
                   .size = (int64_t)gd_dtype_size(of->layout->dtype),
                   .cast = gd_ew_half_cast(call, of) };
}

static norm_work work_of(const gd_kernel_call *call, const gd_norm_loops *loops)
{
    const gd_norm_attr *attr = call->attr;
    const gd_layout *x = call->in[0].layout;
    return (norm_work){ .loops = loops,
                        .call = call,
                        .all = { .count = gd_norm_rows(x),
                                 .k = x->shape[x->rank - 1],
                                 .epsilon = attr->epsilon,
                                 .center = attr->center },
                        .x = rows_of(call, &call->in[0]),
                        .out = rows_of(call, &call->out),
                        .parts = attr->parts };
}

/* ---- f16 and bf16 ---- */

static bool has_halves(const norm_work *work)
{
    return work->x.cast || work->g.cast || work->out.cast;
}

static int64_t half_rows_at_once(int64_t k)
{
    return k < HALF_ELEMENTS ? HALF_ELEMENTS / k : 1;
}

bool gd_norm_takes_halves(const gd_kernel_call *call)
{
    const gd_layout *x = call->in[0].layout;
    const size_t widest = 2 * (size_t)x->shape[x->rank - 1] * sizeof(float);
    return x->dtype != GD_F64 && widest + 2 * GD_SCRATCH_ALIGN <= GD_CPU_WIDE_SCRATCH;
}

/* Two blocks of rows: x and the result, or x and g. */
gd_workspace gd_norm_scratch(const gd_kernel_call *call)
{
    const gd_layout *x = call->in[0].layout;
    const int64_t k = x->shape[x->rank - 1], count = gd_norm_rows(x);
    if (!gd_call_has_halves(call) || k == 0)
        return (gd_workspace){ 0 };
    const bool is_grad = call->op->id == GD_OP_normalize_grad;
    const int64_t each = is_grad ? gd_norm_block_rows(count) : 1;
    const size_t bytes = 2 * (size_t)(half_rows_at_once(k) * k) * sizeof(float);
    return (gd_workspace){ NULL, gd_scratch_bytes(bytes, 2),
                           gd_parallel_ranges(call->device->threads, (count + each - 1) / each,
                                              1 + GD_PARALLEL_ELEMENTS / (k * each)) };
}

/* Rows from `first` on as f32: in `room` where they are halves. */
static void *read_rows(const rows *r, int64_t first, int64_t count, int64_t k, float *room)
{
    char *from = r->all ? r->all + first * k * r->size : NULL;
    if (!r->cast)
        return from;
    r->cast(from, NULL, NULL, room, count * k);
    return room;
}

/* ---- rows ---- */

typedef void (*rows_fn)(const gd_norm_rows_job *job);

/* Rows [begin, end) of `job`, by fn: all at once, or as many as become f32 at once. */
static void run_rows(const norm_work *work, rows_fn fn, gd_norm_rows_job job, int64_t begin,
                     int64_t end, int thread)
{
    const int64_t k = job.k, most = has_halves(work) ? half_rows_at_once(k) : end - begin;
    const size_t room_bytes = (size_t)(most * k) * sizeof(float);
    float *room[2] = { NULL, NULL };
    if (has_halves(work)) {
        gd_scratch s = gd_scratch_of(work->call, thread);
        room[0] = gd_scratch_take(&s, room_bytes);
        room[1] = gd_scratch_take(&s, room_bytes);
    }
    for (; begin < end; begin += job.count) {
        char *out = work->out.all + begin * k * work->out.size;
        job.count = end - begin < most ? end - begin : most;
        job.x = read_rows(&work->x, begin, job.count, k, room[0]);
        job.g = read_rows(&work->g, begin, job.count, k, room[1]);
        job.out = work->out.cast ? (char *)room[1] : out;
        fn(&job);
        if (work->out.cast)
            work->out.cast(job.out, NULL, NULL, out, job.count * k);
    }
}

static void forward_range(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_work *work = context;
    run_rows(work, work->loops->forward, work->all, begin, end, thread);
}

gd_status gd_normalize_run(const gd_kernel_call *call, const gd_norm_loops *loops)
{
    norm_work work = work_of(call, loops);
    if (work.all.k == 0)
        return GD_OK;
    work.all.weight = work.parts > 0 ? call->in[1].data : NULL;
    work.all.bias = work.parts > 1 ? call->in[2].data : NULL;
    gd_parallel_for(call->device->threads, work.all.count, 1 + GD_PARALLEL_ELEMENTS / work.all.k,
                    forward_range, &work);
    return GD_OK;
}

/* Where block number `block` of part number `part` is added up: zeros. */
static char *block_sums(const norm_work *work, int part, int64_t block)
{
    const size_t row_bytes = (size_t)work->all.k * work->loops->size;
    if (part >= work->parts)
        return NULL;
    char *sums = work->sums + (size_t)(part * work->blocks + block) * row_bytes;
    memset(sums, 0, row_bytes);
    return sums;
}

/* Blocks [begin, end) of rows. */
static void backward_range(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_work *work = context;
    for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * work->each, rest = work->all.count - first;
        gd_norm_rows_job job = work->all;
        job.weight_sum = block_sums(work, 0, block);
        job.bias_sum = block_sums(work, 1, block);
        run_rows(work, work->loops->backward, job, first,
                 first + (rest < work->each ? rest : work->each), thread);
    }
}

gd_status gd_normalize_grad_run(const gd_kernel_call *call, const gd_norm_loops *loops)
{
    norm_work work = work_of(call, loops);
    if (work.all.k == 0)
        return GD_OK;
    work.g = rows_of(call, &call->in[1]);
    work.all.weight = work.parts > 0 ? call->in[2].data : NULL;
    work.each = gd_norm_block_rows(work.all.count);
    work.blocks = gd_norm_blocks(work.all.count);
    work.sums = (char *)call->out.data + work.all.count * work.all.k * (int64_t)loops->size;
    gd_parallel_for(call->device->threads, work.blocks,
                    1 + GD_PARALLEL_ELEMENTS / (work.all.k * work.each), backward_range, &work);
    return GD_OK;
}
