/* backend/cpu/index.c: gather, scatter_add, and a parallel strided copy. Start at gather_kernel().
 *
 * Indices are checked before anything is written. An index that is stretched over an axis (stride
 * 0), as it is when whole rows are meant, is checked once and its elements are moved as one run.
 */
#include "backend/cpu/index.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/iterate.h"
#include "base/error.h"
#include "base/threads.h"
#include "ops/attrs.h"

/* ---- strided copy ---- */

#define BLOCK_ROWS 64

typedef struct copy_job {
    gd_nest nest; /* operand 0: from, 1: to */
    const char *from;
    char *to;
    size_t size;
    /* where the input runs along another axis than the result: the two innermost loops, taken out
     * of the nest */
    gd_ew_block_copy block_copy;
    gd_run rows, columns;
    int64_t row_blocks;
} copy_job;

static void copy_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const copy_job *job = context;
    gd_nest_copy(job->to, job->from, &job->nest, begin, end, job->size);
}

static void copy_blocks_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const copy_job *job = context;
    for (int64_t item = begin; item < end; item++) {
        gd_cursor cursor = gd_cursor_at(&job->nest, item / job->row_blocks);
        int64_t row = item % job->row_blocks * BLOCK_ROWS, rest = job->rows.size - row;
        int64_t from = cursor.at[0] + row * job->rows.stride[0];
        int64_t to = cursor.at[1] + row * job->rows.stride[1];
        job->block_copy(job->from + from * (int64_t)job->size, job->rows.stride[0],
                        job->columns.stride[0], job->to + to * (int64_t)job->size,
                        job->rows.stride[1], rest < BLOCK_ROWS ? rest : BLOCK_ROWS,
                        job->columns.size);
    }
}

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* If an outer loop of the nest steps through neighbours of the input, take it and the innermost one
 * out. */
static bool find_transposition(copy_job *job)
{
    gd_nest *nest = &job->nest;
    int last = nest->rank - 1, row = last - 1;
    if (last < 1 || nest->stride[last][1] != 1 || nest->stride[last][0] == 1)
        return false;
    while (row >= 0 && nest->stride[row][0] != 1)
        row--;
    if (row < 0)
        return false;
    job->columns = gd_nest_pop(nest);
    job->rows.size = nest->size[row];
    memcpy(job->rows.stride, nest->stride[row], sizeof job->rows.stride);
    nest->rank--;
    for (int i = row; i < nest->rank; i++) {
        nest->size[i] = nest->size[i + 1];
        memcpy(nest->stride[i], nest->stride[i + 1], sizeof nest->stride[i]);
    }
    job->row_blocks = (job->rows.size + BLOCK_ROWS - 1) / BLOCK_ROWS;
    return true;
}

void gd_copy_strided(const gd_kernel_call *call, void *to, const int64_t *to_stride,
                     const void *from, const int64_t *from_stride, int rank, const int64_t *shape,
                     size_t size)
{
    int order[GD_MAX_RANK]; /* axes by falling stride of the result, so that it is written in order
                             */
    for (int i = 0; i < rank; i++) {
        int place = i;
        for (; place > 0 && magnitude(to_stride[order[place - 1]]) < magnitude(to_stride[i]);
             place--)
            order[place] = order[place - 1];
        order[place] = i;
    }
    copy_job job = { .from = from, .to = to, .size = size };
    for (int i = 0; i < rank; i++) {
        const int64_t stride[GD_NEST_OPERANDS] = { from_stride[order[i]], to_stride[order[i]] };
        gd_nest_push(&job.nest, shape[order[i]], stride);
    }
    int64_t count = gd_nest_count(&job.nest);
    if (count == 0)
        return;
    int threads = call->device->threads;
    if (find_transposition(&job)) {
        const gd_ew_table *table = gd_ew_table_of(call->device);
        job.block_copy = table->copy[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3];
        gd_parallel_for(threads, gd_nest_count(&job.nest) * job.row_blocks,
                        1 + GD_PARALLEL_ELEMENTS / (BLOCK_ROWS * job.columns.size),
                        copy_blocks_range, &job);
    } else {
        gd_parallel_for(threads, count, GD_PARALLEL_ELEMENTS, copy_range, &job);
    }
}

/* ---- indices ---- */

typedef struct bad_index {
    int64_t position; /* in the index tensor, row-major; INT64_MAX when there is none */
    int64_t value;
} bad_index;

typedef struct check_job {
    gd_nest nest; /* over what is stored of the index: operand 0: index, 1: row-major position */
    const void *index;
    gd_dtype dtype;
    int64_t size; /* of the axis indexed */
    bad_index bad[GD_MAX_THREADS];
} check_job;

static int64_t index_at(const void *index, gd_dtype dtype, int64_t at)
{
    return dtype == GD_I32 ? ((const int32_t *)index)[at] : ((const int64_t *)index)[at];
}

static bool run_in_range(const check_job *job, int64_t at, int64_t stride, int64_t n)
{
    uint64_t size = (uint64_t)job->size;
    bool beyond = false; /* no early way out: such a loop is vectorised */
    if (job->dtype == GD_I32) {
        const int32_t *index = (const int32_t *)job->index + at;
        for (int64_t i = 0; i < n; i++)
            beyond |= (uint64_t)index[i * stride] >= size;
    } else {
        const int64_t *index = (const int64_t *)job->index + at;
        for (int64_t i = 0; i < n; i++)
            beyond |= (uint64_t)index[i * stride] >= size;
    }
    return !beyond;
}

/* Stop at the first index that is out of range. */
static void check_range(void *context, int64_t begin, int64_t end, int thread)
{
    check_job *job = context;
    gd_nest outer = job->nest;
    gd_run run = gd_nest_pop(&outer);
    gd_cursor cursor = gd_cursor_at(&outer, begin / run.size);
    int64_t skip = begin % run.size;
    for (int64_t n; begin < end; begin += n) {
        n = run.size - skip < end - begin ? run.size - skip : end - begin;
        int64_t at = cursor.at[0] + skip * run.stride[0];
        if (!run_in_range(job, at, run.stride[0], n)) {
            int64_t i = 0;
            while ((uint64_t)index_at(job->index, job->dtype, at + i * run.stride[0]) <
                   (uint64_t)job->size)
                i++;
            const int64_t position = cursor.at[1] + (skip + i) * run.stride[1];
            if (position < job->bad[thread].position) /* else an earlier call found one before it */
                job->bad[thread] = (bad_index){ position, index_at(job->index, job->dtype,
                                                                   at + i * run.stride[0]) };
            return;
        }
        skip = 0;
        gd_cursor_next(&cursor);
    }
}

/* Whether all of the index, input 1, lies in 0 … size-1; of those that do not, the first is
 * reported. */
static gd_status check_indices(const gd_kernel_call *call, int axis, int64_t size)
{
    const gd_layout *index = call->in[1].layout;
    if (index->dtype != GD_I32 && index->dtype != GD_I64)
        return gd_fail(GD_ERR_DTYPE, "%s: the index is %s, not i64 or i32", call->op->name,
                       gd_dtype_name(index->dtype));
    check_job job = { .index = call->in[1].data, .dtype = index->dtype, .size = size };
    int threads = call->device->threads;
    for (int i = 0; i < threads; i++)
        job.bad[i].position = INT64_MAX;
    int64_t position[GD_MAX_RANK];
    gd_strides_row_major(index->rank, index->shape, position);
    for (int i = 0; i < index->rank; i++) {
        const int64_t stride[GD_NEST_OPERANDS] = { index->stride[i], position[i] };
        bool stretched = index->stride[i] == 0 && index->shape[i] > 1;
        gd_nest_push(&job.nest, stretched ? 1 : index->shape[i], stride);
    }
    gd_parallel_for(threads, gd_nest_count(&job.nest), GD_PARALLEL_ELEMENTS, check_range, &job);
    bad_index first = job.bad[0];
    for (int i = 1; i < threads; i++)
        if (job.bad[i].position < first.position)
            first = job.bad[i];
    if (first.position == INT64_MAX)
        return GD_OK;
    return gd_fail(GD_ERR_INVALID,
                   "%s: index %lld (element %lld of the index tensor) is out of range for axis %d "
                   "of size %lld",
                   call->op->name, (long long)first.value, (long long)first.position, axis,
                   (long long)size);
}

/* ---- gather ---- */

/* out[i] = x[i * x_stride + index[i * index_stride] * axis_stride] for i < n */
typedef void (*gather_run_fn)(void *out, const void *x, int64_t x_stride, int64_t axis_stride,
                              const void *index, int64_t index_stride, int64_t n);

#define GATHER_RUN(bits, index_bits)                                                          \
    static void gather_run_##bits##_i##index_bits(void *out, const void *x, int64_t x_stride, \
                                                  int64_t axis_stride, const void *index,     \
                                                  int64_t index_stride, int64_t n)            \
    {                                                                                         \
        gd_bits##bits *to = out;                                                              \
        const gd_bits##bits *from = x;                                                        \
        const int##index_bits##_t *at = index;                                                \
        for (int64_t i = 0; i < n; i++)                                                       \
            to[i] = from[i * x_stride + at[i * index_stride] * axis_stride];                  \
    }
GATHER_RUN(8, 32)
GATHER_RUN(16, 32)
GATHER_RUN(32, 32)
GATHER_RUN(64, 32)
GATHER_RUN(8, 64)
GATHER_RUN(16, 64)
GATHER_RUN(32, 64)
GATHER_RUN(64, 64)

static gather_run_fn gather_run_of(size_t size, gd_dtype index)
{
    static const gather_run_fn i32[] = { gather_run_8_i32, gather_run_16_i32, gather_run_32_i32,
                                         gather_run_64_i32 };
    static const gather_run_fn i64[] = { gather_run_8_i64, gather_run_16_i64, gather_run_32_i64,
                                         gather_run_64_i64 };
    return (index == GD_I32 ? i32 : i64)[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3];
}

typedef struct gather_job {
    gd_nest nest; /* over the index: operand 0: index, 1: x */
    const char *index, *x;
    char *out;
    gd_dtype index_dtype;
    int64_t size, index_size; /* bytes of an element */
    int64_t axis_stride;
    gather_run_fn run;
} gather_job;

static void gather_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const gather_job *job = context;
    gd_nest outer = job->nest;
    gd_run run = gd_nest_pop(&outer);
    gd_cursor cursor = gd_cursor_at(&outer, begin / run.size);
    int64_t skip = begin % run.size;
    for (int64_t n; begin < end; begin += n) {
        n = run.size - skip < end - begin ? run.size - skip : end - begin;
        const char *index = job->index + (cursor.at[0] + skip * run.stride[0]) * job->index_size;
        const char *x = job->x + (cursor.at[1] + skip * run.stride[1]) * job->size;
        char *out = job->out + begin * job->size;
        if (run.stride[0] == 0) /* one index for all of them: a row of an embedding, say */
            gd_copy_run(out, 1,
                        x + index_at(index, job->index_dtype, 0) * job->axis_stride * job->size,
                        run.stride[1], n, (size_t)job->size);
        else
            job->run(out, x, run.stride[1], job->axis_stride, index, run.stride[0], n);
        skip = 0;
        gd_cursor_next(&cursor);
    }
}

/* x, index [as x but along the axis] -> as index: out[.., i, ..] = x[.., index[.., i, ..], ..] */
static gd_status gather_kernel(const gd_kernel_call *call)
{
    const gd_axis_attr *attr = call->attr;
    const gd_layout *x = call->in[0].layout, *index = call->in[1].layout;
    gd_status status = check_indices(call, attr->axis, x->shape[attr->axis]);
    if (status != GD_OK)
        return status;
    gather_job job = { .index = call->in[1].data,
                       .x = call->in[0].data,
                       .out = call->out.data,
                       .index_dtype = index->dtype,
                       .size = (int64_t)gd_dtype_size(x->dtype),
                       .index_size = (int64_t)gd_dtype_size(index->dtype),
                       .axis_stride = x->stride[attr->axis],
                       .run = gather_run_of(gd_dtype_size(x->dtype), index->dtype) };
    int64_t x_stride[GD_MAX_RANK];
    memcpy(x_stride, x->stride, sizeof x_stride);
    x_stride[attr->axis] = 0; /* there the index says where */
    job.nest = gd_nest_make(index->rank, index->shape, index->stride, x_stride, NULL);
    gd_parallel_for(call->device->threads, gd_nest_count(&job.nest), GD_PARALLEL_ELEMENTS,
                    gather_range, &job);
    return GD_OK;
}

/* ---- scatter_add ---- */

/* One step along the axis, for a run across it:
 * out[i * out_stride + index[i * index_stride] * axis_stride] += source[i * source_stride] for i <
 * n */
typedef struct scatter_step {
    void *out;
    int64_t out_stride, axis_stride;
    const void *source;
    int64_t source_stride;
    const void *index;
    gd_dtype index_dtype;
    int64_t index_stride;
    int64_t n;
} scatter_step;

typedef void (*scatter_step_fn)(const scatter_step *step);

/* SUM: the type sums are taken in; unsigned for integers, which wrap. */
#define SCATTER_STEP(name, type, SUM)                                                            \
    static void scatter_step_##name(const scatter_step *s)                                       \
    {                                                                                            \
        type *out = s->out;                                                                      \
        const type *source = s->source;                                                          \
        if (s->index_stride == 0) { /* a whole row */                                            \
            out += index_at(s->index, s->index_dtype, 0) * s->axis_stride;                       \
            if (s->out_stride == 1 && s->source_stride == 1)                                     \
                for (int64_t i = 0; i < s->n; i++)                                               \
                    out[i] = (type)((SUM)out[i] + (SUM)source[i]);                               \
            else                                                                                 \
                for (int64_t i = 0; i < s->n; i++)                                               \
                    out[i * s->out_stride] =                                                     \
                        (type)((SUM)out[i * s->out_stride] + (SUM)source[i * s->source_stride]); \
            return;                                                                              \
        }                                                                                        \
        for (int64_t i = 0; i < s->n; i++) {                                                     \
            int64_t k = index_at(s->index, s->index_dtype, i * s->index_stride);                 \
            type *to = out + i * s->out_stride + k * s->axis_stride;                             \
            *to = (type)((SUM)*to + (SUM)source[i * s->source_stride]);                          \
        }                                                                                        \
    }
SCATTER_STEP(f32, float, float)
SCATTER_STEP(f64, double, double)
SCATTER_STEP(i32, int32_t, uint32_t)
SCATTER_STEP(i64, int64_t, uint64_t)
SCATTER_STEP(u8, uint8_t, uint32_t)

static const scatter_step_fn scatter_steps[GD_DTYPE_COUNT] = {
    [GD_F32] = scatter_step_f32, [GD_F64] = scatter_step_f64, [GD_I32] = scatter_step_i32,
    [GD_I64] = scatter_step_i64, [GD_U8] = scatter_step_u8,
};

/* scatter: the same, but the last one stays. */
#define SCATTER_SET(bits)                                                               \
    static void scatter_set_##bits(const scatter_step *s)                               \
    {                                                                                   \
        gd_bits##bits *out = s->out;                                                    \
        const gd_bits##bits *source = s->source;                                        \
        for (int64_t i = 0; i < s->n; i++) {                                            \
            int64_t k = index_at(s->index, s->index_dtype, i * s->index_stride);        \
            out[i * s->out_stride + k * s->axis_stride] = source[i * s->source_stride]; \
        }                                                                               \
    }
SCATTER_SET(8)
SCATTER_SET(16)
SCATTER_SET(32)
SCATTER_SET(64)

typedef struct scatter_job {
    gd_nest across; /* the axes but the one indexed: operand 0: index, 1: source, 2: result */
    const char *index, *source;
    char *out;
    int64_t size, index_size;            /* bytes of an element */
    int64_t length;                      /* of the index along the axis */
    int64_t index_stride, source_stride; /* along it */
    scatter_step step;                   /* what is the same for all */
    scatter_step_fn step_fn;
} scatter_job;

/* Iterations [begin, end) across the axis, each along all of it: so what is added to one element is
 * added in index order. */
static void scatter_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const scatter_job *job = context;
    gd_nest outer = job->across;
    gd_run run = gd_nest_pop(&outer);
    gd_cursor cursor = gd_cursor_at(&outer, begin / run.size);
    int64_t skip = begin % run.size;
    for (int64_t n; begin < end; begin += n) {
        n = run.size - skip < end - begin ? run.size - skip : end - begin;
        scatter_step s = job->step;
        s.out = job->out + (cursor.at[2] + skip * run.stride[2]) * job->size;
        s.out_stride = run.stride[2];
        s.source_stride = run.stride[1];
        s.index_stride = run.stride[0];
        s.n = n;
        const char *index = job->index + (cursor.at[0] + skip * run.stride[0]) * job->index_size;
        const char *source = job->source + (cursor.at[1] + skip * run.stride[1]) * job->size;
        for (int64_t i = 0; i < job->length; i++) {
            s.index = index + i * job->index_stride * job->index_size;
            s.source = source + i * job->source_stride * job->size;
            job->step_fn(&s);
        }
        skip = 0;
        gd_cursor_next(&cursor);
    }
}

/* A copy of base, or base itself, then one step along the axis after the other. */
static gd_status scatter_with(const gd_kernel_call *call, scatter_step_fn step_fn)
{
    const gd_axis_attr *attr = call->attr;
    const gd_layout *base = call->in[0].layout, *index = call->in[1].layout;
    const gd_layout *source = call->in[2].layout;
    int axis = attr->axis;
    gd_status status = check_indices(call, axis, base->shape[axis]);
    if (status != GD_OK)
        return status;
    int64_t out_stride[GD_MAX_RANK];
    gd_strides_row_major(base->rank, base->shape, out_stride);
    if (call->out.data != call->in[0].data) /* else in place */
        gd_copy_strided(call, call->out.data, out_stride, call->in[0].data, base->stride,
                        base->rank, base->shape, gd_dtype_size(base->dtype));

    scatter_job job = { .index = call->in[1].data,
                        .source = call->in[2].data,
                        .out = call->out.data,
                        .size = (int64_t)gd_dtype_size(base->dtype),
                        .index_size = (int64_t)gd_dtype_size(index->dtype),
                        .length = index->shape[axis],
                        .index_stride = index->stride[axis],
                        .source_stride = source->stride[axis],
                        .step = { .axis_stride = out_stride[axis], .index_dtype = index->dtype },
                        .step_fn = step_fn };
    for (int i = 0; i < index->rank; i++) {
        const int64_t stride[GD_NEST_OPERANDS] = { index->stride[i], source->stride[i],
                                                   out_stride[i] };
        if (i != axis)
            gd_nest_push(&job.across, index->shape[i], stride);
    }
    if (job.length > 0)
        gd_parallel_for(call->device->threads, gd_nest_count(&job.across),
                        1 + GD_PARALLEL_ELEMENTS / job.length, scatter_range, &job);
    return GD_OK;
}

/* base, index, source [as index] -> as base: out[.., index[.., i, ..], ..] += source[.., i, ..] for
 * rising i */
static gd_status scatter_add_kernel(const gd_kernel_call *call)
{
    gd_dtype dtype = call->in[0].layout->dtype;
    if (!scatter_steps[dtype])
        return gd_fail(GD_ERR_DTYPE, "%s: %s cannot be added up", call->op->name,
                       gd_dtype_name(dtype));
    return scatter_with(call, scatter_steps[dtype]);
}

/* The same with = in place of +=. */
static gd_status scatter_kernel(const gd_kernel_call *call)
{
    static const scatter_step_fn set[] = { scatter_set_8, scatter_set_16, scatter_set_32,
                                           scatter_set_64 };
    size_t size = gd_dtype_size(call->in[0].layout->dtype);
    return scatter_with(call, set[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3]);
}

void gd_cpu_register_index(gd_kernel_fn *kernel)
{
    kernel[GD_OP_scatter] = scatter_kernel;
    kernel[GD_OP_gather] = gather_kernel;
    kernel[GD_OP_scatter_add] = scatter_add_kernel;
}
