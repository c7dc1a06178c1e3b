/* backend/cpu/softmax.c: the walk of softmax, log_softmax, cross_entropy and its gradient over
 * strided tensors. What is computed, and in which order, stands in softmax.h. Start at
 * gd_softmax_run().
 *
 * Lines along the last axis are rows; when they do not lie contiguous they are first copied into
 * the result, where the work is then done in place. Along another axis, tiles of neighbouring lines
 * are taken together, row by row. Rows of f16 and bf16 become f32 in scratch, some at a time, and a
 * result that is rounded to those dtypes is first made there.
 */
#include "backend/cpu/softmax.h"
#include "backend/cpu/elementwise.h"
#include "base/error.h"
#include "base/threads.h"
#include "ops/attrs.h"

#define CHUNK_ROWS \
    64 /* rows whose statistics are kept at once, so that their logarithms are taken together */
#define CHUNK_ELEMENTS 8192 /* what they may hold between them, to stay in the cache */
#define HALF_ELEMENTS  4096 /* the same of f16 and bf16, which are in the cache as f32, too */
/* Columns taken at a time: many, since memory is slow at giving short pieces of rows that are pages
 * apart, and few enough that all threads have some. On Emerald Rapids 1,024 rows of 1,024 take 0.56
 * of the time that they take in tiles of 128. */
#define TILE_LEAST 128
#define TILE_MOST  1024

enum goal { SOFTMAX, LOG_SOFTMAX, LOSS };

typedef struct softmax_job {
    const gd_softmax_loops *loops;
    const gd_kernel_call *call;
    enum goal goal;
    int64_t size; /* bytes of an element */
    const char *in;
    char *out;
    int64_t n, stride; /* of the axis */
    int64_t inner;     /* elements of the axes behind it; the result is [before, n, inner] */
    bool by_rows;
    gd_nest before;           /* operand 0: the input, 1: the result */
    gd_nest behind;           /* operand 0: the input */
    int64_t tiles, width;     /* of the columns: how many, and theirs */
    gd_ew_loop widen, narrow; /* from and to f16 or bf16; NULL: the input, the result is none */
    /* cross_entropy, cross_entropy_grad */
    const void *labels;
    gd_dtype label_dtype;
    int64_t label_stride;
    const char *g; /* NULL but for the gradient */
    int64_t g_stride;
} softmax_job;

/* As much as one number of either dtype. */
typedef union numbers {
    float f32[CHUNK_ROWS];
    double f64[CHUNK_ROWS];
} numbers;

static int64_t label_at(const softmax_job *job, int64_t i)
{
    int64_t at = i * job->label_stride;
    switch (job->label_dtype) {
    case GD_I64:
        return ((const int64_t *)job->labels)[at];
    case GD_I32:
        return ((const int32_t *)job->labels)[at];
    default:
        return ((const uint8_t *)job->labels)[at];
    }
}

/* ---- rows ---- */

/* The loss of rows [first, first + count), which are at x. */
static void rows_loss(const softmax_job *job, int64_t first, const char *x, int64_t row_stride,
                      int64_t count)
{
    numbers max, sum, picked;
    job->loops->statistics_rows(x, row_stride, job->n, &max, &sum, count);
    job->loops->log(&sum, count);
    for (int64_t r = 0; r < count; r++)
        memcpy((char *)&picked + r * job->size,
               x + (r * row_stride + label_at(job, first + r)) * job->size, (size_t)job->size);
    job->loops->loss(job->out + first * job->size, &sum, &picked, &max, count);
}

/* Rows [first, first + count): x at `row_stride`, the result one after another at `out`. */
static void rows_chunk(const softmax_job *job, int64_t first, const char *x, int64_t row_stride,
                       char *out, int64_t count)
{
    const gd_softmax_loops *loops = job->loops;
    if (job->goal == LOSS) {
        rows_loss(job, first, x, row_stride, count);
        return;
    }
    if (job->stride != 1) {
        for (int64_t r = 0; r < count; r++)
            gd_copy_run(out + r * job->n * job->size, 1, x + r * row_stride * job->size,
                        job->stride, job->n, (size_t)job->size);
        x = out;
        row_stride = job->n;
    }
    if (job->goal == LOG_SOFTMAX) {
        numbers max, sum;
        loops->statistics_rows(x, row_stride, job->n, &max, &sum, count);
        loops->log(&sum, count);
        loops->shift_rows(x, row_stride, job->n, &max, &sum, out, count);
        return;
    }
    loops->softmax_rows(x, row_stride, job->n, out, count);
    if (job->g) {
        int64_t labels[CHUNK_ROWS];
        for (int64_t r = 0; r < count; r++)
            labels[r] = label_at(job, first + r);
        loops->gradient_rows(out, job->n, labels, job->g + first * job->g_stride * job->size,
                             job->g_stride, count);
    }
}

static void rows_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const softmax_job *job = context;
    gd_nest outer = job->before;
    gd_run lines = gd_nest_pop(&outer);
    gd_cursor cursor = gd_cursor_at(&outer, begin / lines.size);
    int64_t skip = begin % lines.size, most = CHUNK_ELEMENTS / job->n;
    most = most < 1 ? 1 : most > CHUNK_ROWS ? CHUNK_ROWS : most;
    while (begin < end) {
        int64_t count = lines.size - skip < end - begin ? lines.size - skip : end - begin;
        if (count > most)
            count = most;
        rows_chunk(job, begin, job->in + (cursor.at[0] + skip * lines.stride[0]) * job->size,
                   lines.stride[0], job->out + begin * job->n * job->size, count);
        begin += count;
        skip += count;
        if (skip == lines.size) {
            skip = 0;
            gd_cursor_next(&cursor);
        }
    }
}

/* ---- rows of halves, which follow one another ---- */

static int64_t half_rows_at_once(int64_t n)
{
    const int64_t most = HALF_ELEMENTS / n;
    return most < 1 ? 1 : most > CHUNK_ROWS ? CHUNK_ROWS : most;
}

static void half_rows_range(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *job = context;
    const int64_t n = job->n, most = half_rows_at_once(n);
    const int64_t in_size = job->widen ? sizeof(uint16_t) : sizeof(float),
                  out_size = job->narrow ? sizeof(uint16_t) : sizeof(float);
    gd_scratch s = gd_scratch_of(job->call, thread);
    float *rows = gd_scratch_take(&s, (size_t)(most * n) * sizeof *rows);
    for (int64_t count; begin < end; begin += count) {
        count = end - begin < most ? end - begin : most;
        const char *x = job->in + begin * n * in_size;
        char *out = job->out + begin * n * out_size;
        if (job->widen)
            job->widen(x, NULL, NULL, rows, count * n);
        rows_chunk(job, begin, job->widen ? (const char *)rows : x, n,
                   job->narrow ? (char *)rows : out, count);
        if (job->narrow)
            job->narrow(rows, NULL, NULL, out, count * n);
    }
}

bool gd_softmax_takes_halves(const gd_kernel_call *call)
{
    const gd_layout *in = call->in[0].layout;
    const bool is_loss =
        call->op->id == GD_OP_cross_entropy || call->op->id == GD_OP_cross_entropy_grad;
    const int last = in->rank - 1, axis = is_loss ? 1 : ((const gd_axis_attr *)call->attr)->axis;
    return in->dtype != GD_F64 && in->rank > 0 && axis == last && gd_layout_is_contiguous(in) &&
           in->shape[last] <= (int64_t)(GD_CPU_WIDE_SCRATCH / sizeof(float));
}

/* ---- columns ---- */

/* A tile of `width` lines side by side. Its scratch: five rows, then the levels of the tree. */
typedef struct tile {
    const softmax_job *job;
    const char *in; /* of the tile's item of the axes before */
    int64_t first, width;
    bool is_plain; /* the elements of a row are neighbours */
    char *max, *sum, *block_sum, *gather, *levels;
} tile;

static const char *tile_row(const tile *t, int64_t i)
{
    const softmax_job *job = t->job;
    const char *row = t->in + i * job->stride * job->size;
    if (t->is_plain)
        return row + t->first * job->size;
    gd_nest_gather(t->gather, row, &job->behind, t->first, t->first + t->width, (size_t)job->size);
    return t->gather;
}

/* max and sum of each column; with `out`, the exponentials go there, rows `inner` apart. */
static void tile_statistics(tile *t, char *out)
{
    const softmax_job *job = t->job;
    const gd_softmax_loops *loops = job->loops;
    loops->lowest(t->max, t->width);
    for (int64_t i = 0; i < job->n; i++)
        loops->column_max(t->max, tile_row(t, i), t->width);

    gd_tree tree = { .merge = loops->column_add,
                     .levels = t->levels,
                     .width = t->width,
                     .bytes = (size_t)(t->width * job->size) };
    int64_t block_rows = GD_REDUCE_BLOCK_ROWS;
    while (job->n / block_rows >= GD_REDUCE_MAX_BLOCKS)
        block_rows *= 2;
    for (int64_t i = 0; i < job->n;) {
        memset(t->block_sum, 0, tree.bytes);
        for (int64_t end = i + block_rows; i < end && i < job->n; i++)
            loops->column_exp(out ? out + i * job->inner * job->size : NULL, t->block_sum,
                              tile_row(t, i), t->max, t->width);
        gd_tree_push(&tree, t->block_sum);
    }
    memcpy(t->sum, gd_tree_end(&tree), tree.bytes);
}

/* Columns are examples, in their order; all of them are behind the axis. */
static void tile_loss(tile *t)
{
    const softmax_job *job = t->job;
    tile_statistics(t, NULL);
    job->loops->log(t->sum, t->width);
    int64_t stride = job->behind.rank ? job->behind.stride[0][0] : 0;
    char *picked = t->gather;
    for (int64_t c = 0; c < t->width; c++) {
        int64_t at = (t->first + c) * stride + label_at(job, t->first + c) * job->stride;
        memcpy(picked + c * job->size, job->in + at * job->size, (size_t)job->size);
    }
    job->loops->loss(job->out + t->first * job->size, t->sum, picked, t->max, t->width);
}

static void tile_run(tile *t, char *out)
{
    const softmax_job *job = t->job;
    int64_t step = job->inner * job->size;
    tile_statistics(t, job->goal == SOFTMAX ? out : NULL);
    if (job->goal == SOFTMAX) {
        job->loops->reciprocal(t->sum, t->width);
        for (int64_t i = 0; i < job->n; i++)
            job->loops->column_scale(out + i * step, t->sum, t->width);
    } else {
        job->loops->log(t->sum, t->width);
        for (int64_t i = 0; i < job->n; i++)
            job->loops->column_shift(out + i * step, tile_row(t, i), t->max, t->sum, t->width);
    }
}

enum { BLOCKS = 5, ROWS = 5 + GD_REDUCE_LEVELS };
_Static_assert(ROWS *TILE_MOST * sizeof(double) <= GD_CPU_SCRATCH, "scratch too small");

static gd_workspace half_scratch(const gd_kernel_call *call)
{
    const gd_layout *in = call->in[0].layout;
    const int64_t count = gd_layout_count(in), n = in->shape[in->rank - 1];
    if (count == 0)
        return (gd_workspace){ 0 };
    const size_t bytes = (size_t)(half_rows_at_once(n) * n) * sizeof(float);
    return (gd_workspace){ NULL, gd_scratch_bytes(bytes, 1),
                           gd_parallel_ranges(call->device->threads, count / n,
                                              1 + GD_PARALLEL_ELEMENTS / n) };
}

/* Columns are taken by tiles, each with its scratch. */
gd_workspace gd_softmax_scratch(const gd_kernel_call *call)
{
    const gd_layout *in = call->in[0].layout;
    if (gd_call_has_halves(call))
        return half_scratch(call);
    const bool is_loss = call->op->id == GD_OP_cross_entropy;
    int64_t inner = 1; /* elements side by side; 1: by rows */
    if (is_loss)
        inner = in->stride[1] == 1 || in->shape[1] == 1 ? 1 : in->shape[0];
    else if (call->op->id != GD_OP_cross_entropy_grad && in->rank > 0)
        for (int i = ((const gd_axis_attr *)call->attr)->axis + 1; i < in->rank; i++)
            inner *= in->shape[i];
    if (inner == 1 && !is_loss)
        return (gd_workspace){ 0 };
    const size_t row_bytes = (size_t)(inner < TILE_MOST ? inner : TILE_MOST) * sizeof(double);
    /* Tiles, the last of which may be narrow, count as whole ones. */
    const int threads =
        gd_parallel_ranges(call->device->threads, 2 * gd_layout_count(in), GD_PARALLEL_ELEMENTS);
    return (gd_workspace){ NULL, gd_scratch_bytes(ROWS * row_bytes, BLOCKS), threads };
}

static void tiles_range(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *job = context;
    gd_scratch s = gd_scratch_of(job->call, thread);
    const size_t row_bytes = (size_t)job->width * sizeof(double);
    char *max = gd_scratch_take(&s, row_bytes), *sum = gd_scratch_take(&s, row_bytes),
         *block_sum = gd_scratch_take(&s, row_bytes), *gather = gd_scratch_take(&s, 2 * row_bytes),
         *levels = gd_scratch_take(&s, GD_REDUCE_LEVELS * row_bytes);
    bool is_plain =
        job->behind.rank == 0 || (job->behind.rank == 1 && job->behind.stride[0][0] == 1);
    for (int64_t item = begin; item < end; item++) {
        gd_cursor cursor = gd_cursor_at(&job->before, item / job->tiles);
        int64_t first = item % job->tiles * job->width, rest = job->inner - first;
        tile t = { .job = job,
                   .in = job->in + cursor.at[0] * job->size,
                   .first = first,
                   .width = rest < job->width ? rest : job->width,
                   .is_plain = is_plain,
                   .max = max,
                   .sum = sum,
                   .block_sum = block_sum,
                   .gather = gather,
                   .levels = levels };
        if (job->goal == LOSS)
            tile_loss(&t);
        else
            tile_run(&t, job->out + (cursor.at[1] + first) * job->size);
    }
}

/* ---- planning ---- */

/* At least so many tiles, if they are not too narrow; of whole lines of the cache. */
static void set_tiles(softmax_job *job, int64_t least)
{
    const int64_t line = 64 / job->size;
    int64_t width = ((job->inner + least - 1) / least + line - 1) / line * line;
    width = width < TILE_LEAST ? TILE_LEAST : width > TILE_MOST ? TILE_MOST : width;
    job->width = width < job->inner ? width : job->inner;
    job->tiles = job->width > 0 ? (job->inner + job->width - 1) / job->width : 0;
}

static void softmax_run(softmax_job *job, int64_t lines)
{
    int threads = job->call->device->threads;
    if (job->by_rows) {
        gd_parallel_for(threads, lines, 1 + GD_PARALLEL_ELEMENTS / job->n,
                        job->widen || job->narrow ? half_rows_range : rows_range, job);
        return;
    }
    const int64_t items = gd_nest_count(&job->before);
    set_tiles(job, items > 0 ? (threads + items - 1) / items : 1);
    gd_parallel_for(threads, items * job->tiles, 1 + GD_PARALLEL_ELEMENTS / (job->n * job->width),
                    tiles_range, job);
}

/* f16 and bf16 of the call, whose rows lie one behind the other. */
static void set_halves(softmax_job *job)
{
    if (!gd_call_has_halves(job->call))
        return;
    job->widen = gd_ew_half_cast(job->call, &job->call->in[0]);
    job->narrow = gd_ew_half_cast(job->call, &job->call->out);
    job->stride = 1;
    job->by_rows = true;
}

static gd_status softmax_start(const gd_kernel_call *call, const gd_softmax_loops *loops,
                               enum goal goal)
{
    const gd_axis_attr *attr = call->attr;
    const gd_layout *in = call->in[0].layout;
    int64_t count = gd_layout_count(in), out_stride[GD_MAX_RANK];
    if (count == 0)
        return GD_OK;
    int rank = in->rank, axis = rank == 0 ? 0 : attr->axis;
    gd_strides_row_major(rank, in->shape, out_stride);
    softmax_job job = { .loops = loops,
                        .call = call,
                        .goal = goal,
                        .size = (int64_t)loops->size,
                        .in = call->in[0].data,
                        .out = call->out.data,
                        .n = rank == 0 ? 1 : in->shape[axis],
                        .stride = rank == 0 ? 1 : in->stride[axis],
                        .inner = rank == 0 ? 1 : out_stride[axis] };
    job.by_rows = job.inner == 1;
    job.before = gd_nest_make(axis, in->shape, in->stride, out_stride, NULL);
    if (rank > 0)
        job.behind =
            gd_nest_make(rank - axis - 1, in->shape + axis + 1, in->stride + axis + 1, NULL, NULL);
    set_halves(&job);
    softmax_run(&job, count / job.n);
    return GD_OK;
}

gd_status gd_softmax_run(const gd_kernel_call *call, const gd_softmax_loops *loops)
{
    return softmax_start(call, loops, SOFTMAX);
}

gd_status gd_log_softmax_run(const gd_kernel_call *call, const gd_softmax_loops *loops)
{
    return softmax_start(call, loops, LOG_SOFTMAX);
}

/* What the loss and its gradient share: logits [rows, n] and labels, which are checked. */
static gd_status loss_begin(const gd_kernel_call *call, const gd_softmax_loops *loops,
                            softmax_job *job)
{
    const gd_layout *in = call->in[0].layout, *labels = call->in[1].layout;
    *job = (softmax_job){ .loops = loops,
                          .call = call,
                          .size = (int64_t)loops->size,
                          .in = call->in[0].data,
                          .out = call->out.data,
                          .n = in->shape[1],
                          .stride = in->stride[1],
                          .labels = call->in[1].data,
                          .label_dtype = labels->dtype,
                          .label_stride = labels->stride[0] };
    if (labels->dtype != GD_I64 && labels->dtype != GD_I32 && labels->dtype != GD_U8)
        return gd_fail(GD_ERR_DTYPE, "%s: labels are %s, not i64, i32 or u8", call->op->name,
                       gd_dtype_name(labels->dtype));
    for (int64_t i = 0; i < in->shape[0]; i++) {
        int64_t label = label_at(job, i);
        if (label < 0 || label >= job->n)
            return gd_fail(GD_ERR_INVALID, "%s: label %lld of row %lld is not one of %lld classes",
                           call->op->name, (long long)label, (long long)i, (long long)job->n);
    }
    return GD_OK;
}

gd_status gd_cross_entropy_run(const gd_kernel_call *call, const gd_softmax_loops *loops)
{
    const gd_layout *in = call->in[0].layout;
    softmax_job job;
    gd_status status = loss_begin(call, loops, &job);
    if (status != GD_OK || in->shape[0] == 0)
        return status;
    job.goal = LOSS;
    job.by_rows = job.stride == 1 || job.n == 1;
    job.inner = in->shape[0];
    set_halves(&job);
    gd_nest *rows = job.by_rows ? &job.before : &job.behind;
    *rows = gd_nest_make(1, in->shape, in->stride, NULL, NULL);
    softmax_run(&job, in->shape[0]);
    return GD_OK;
}

gd_status gd_cross_entropy_grad_run(const gd_kernel_call *call, const gd_softmax_loops *loops)
{
    const gd_layout *in = call->in[0].layout;
    softmax_job job;
    gd_status status = loss_begin(call, loops, &job);
    if (status != GD_OK || in->shape[0] == 0)
        return status;
    job.goal = SOFTMAX;
    job.by_rows = true;
    job.g = call->in[2].data;
    job.g_stride = call->in[2].layout->stride[0];
    job.before = gd_nest_make(1, in->shape, in->stride, NULL, NULL);
    set_halves(&job);
    softmax_run(&job, in->shape[0]);
    return GD_OK;
}
