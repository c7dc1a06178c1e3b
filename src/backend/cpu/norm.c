/* backend/cpu/norm.c: normalize and normalize_grad: rows split among threads, and the loops for
 * f64. Operands are contiguous (the ops' infer sees to it). Start at gd_normalize_run(). */
#include "backend/cpu/norm.h"

#include "backend/cpu/iterate.h"
#include "base/threads.h"

#include <math.h>

#define TYPE       double
#define NAME(what) norm_f64_##what
#include "backend/cpu/norm_loops.h"

const gd_norm_loops gd_norm_f64_loops = { .size = sizeof(double),
                                          .forward = norm_f64_forward,
                                          .backward = norm_f64_backward };

typedef struct norm_work {
    const gd_norm_loops *loops;
    gd_norm_rows_job all; /* every row */
    int64_t each;         /* rows of a block; normalize_grad only */
    char *sums;           /* [parts, blocks, k], NULL when there are none */
    int64_t blocks;
    int parts;
} norm_work;

static norm_work work_of(const gd_kernel_call *call, const gd_norm_loops *loops)
{
    const gd_norm_attr *attr = call->attr;
    const gd_layout *x = call->in[0].layout;
    return (norm_work){ .loops = loops,
                        .all = { .x = call->in[0].data,
                                 .out = call->out.data,
                                 .count = gd_norm_rows(x),
                                 .k = x->shape[x->rank - 1],
                                 .epsilon = attr->epsilon,
                                 .center = attr->center },
                        .parts = attr->parts };
}

/* Rows [begin, end). */
static gd_norm_rows_job some_rows(const norm_work *work, int64_t begin, int64_t end)
{
    gd_norm_rows_job job = work->all;
    int64_t skip = begin * job.k * (int64_t)work->loops->size;
    job.x = (const char *)job.x + skip;
    job.g = job.g ? (const char *)job.g + skip : NULL;
    job.out = (char *)job.out + skip;
    job.count = end - begin;
    return job;
}

static void forward_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const norm_work *work = context;
    gd_norm_rows_job job = some_rows(work, begin, end);
    work->loops->forward(&job);
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

/* Blocks [begin, end) of rows. */
static void backward_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const norm_work *work = context;
    int64_t row_bytes = work->all.k * (int64_t)work->loops->size;
    for (int64_t block = begin; block < end; block++) {
        int64_t first = block * work->each, rest = work->all.count - first;
        gd_norm_rows_job job =
            some_rows(work, first, first + (rest < work->each ? rest : work->each));
        job.weight_sum = work->parts > 0 ? work->sums + block * row_bytes : NULL;
        job.bias_sum = work->parts > 1 ? work->sums + (work->blocks + block) * row_bytes : NULL;
        work->loops->backward(&job);
    }
}

gd_status gd_normalize_grad_run(const gd_kernel_call *call, const gd_norm_loops *loops)
{
    norm_work work = work_of(call, loops);
    if (work.all.k == 0)
        return GD_OK;
    work.all.g = call->in[1].data;
    work.all.weight = work.parts > 0 ? call->in[2].data : NULL;
    work.each = gd_norm_block_rows(work.all.count);
    work.blocks = gd_norm_blocks(work.all.count);
    work.sums = (char *)call->out.data + work.all.count * work.all.k * (int64_t)loops->size;
    gd_parallel_for(call->device->threads, work.blocks,
                    1 + GD_PARALLEL_ELEMENTS / (work.all.k * work.each), backward_range, &work);
    return GD_OK;
}
