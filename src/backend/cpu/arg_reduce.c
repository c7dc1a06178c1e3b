/* backend/cpu/arg_reduce.c: the walk of argmax and argmin along one axis. The first of equal
 * extremes wins and a NaN is the most extreme, so the result does not depend on how the work is
 * cut. Start at gd_arg_reduce_run().
 */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/reduce.h"
#include "base/error.h"
#include "base/threads.h"
#include "ops/attrs.h"

#define TILE         1024 /* columns taken at a time */
#define TILE_ROWS    1024
#define MAX_CHUNKS   1024
#define MOST_FETCHED 8192 /* bytes */

/* Scratch of a thread. */
typedef struct scratch {
    char *best, *block_best; // [TILE], elements
    int64_t *index;          // [TILE]
    int32_t *block_index;    // [TILE]
    char *gather;            // [GD_REDUCE_BLOCK], elements
} scratch;

typedef struct arg_reduction {
    const gd_arg_reducer *reducer;
    const gd_kernel_call *call;
    size_t size;       /* of an element */
    size_t value_size; /* of an extreme */
    gd_ew_loop widen;  /* of f16 and bf16, which the reducer takes as f32; else NULL */
    const char *in;
    int64_t *out;
    int64_t n, stride; /* of the axis */
    gd_nest kept; /* operand 0: the input, 1: the result; by columns without the innermost loop */
    gd_run columns;
    int64_t tiles;
    int64_t chunk; /* elements of a chunk of a shared line */
    const char *line;
    int64_t *chunk_index; // [MAX_CHUNKS], of a line that several threads share; or NULL
    char *chunk_best;
    gd_scratch first; /* of the first thread, behind those two */
} arg_reduction;

static scratch scratch_of(const arg_reduction *r, int thread)
{
    gd_scratch area = r->chunk_index && thread == 0 ? r->first : gd_scratch_of(r->call, thread);
    scratch s = { .best = gd_scratch_take(&area, TILE * sizeof(int64_t)) };
    s.block_best = gd_scratch_take(&area, TILE * sizeof(int64_t));
    s.index = gd_scratch_take(&area, TILE * sizeof *s.index);
    s.block_index = gd_scratch_take(&area, TILE * sizeof *s.block_index);
    s.gather = gd_scratch_take(&area, GD_REDUCE_BLOCK * sizeof(int64_t));
    return s;
}
enum {
    BLOCKS = 7,
    AREA = TILE * 28 + GD_REDUCE_BLOCK * 8,
    SHARED = MAX_CHUNKS * 16, /* the first thread's */
};
_Static_assert(AREA + SHARED <= GD_CPU_SCRATCH, "scratch too small");

gd_workspace gd_arg_reduce_scratch(const gd_kernel_call *call)
{
    /* Tiles, the last of which may be narrow, count as whole ones. */
    const int threads = gd_parallel_ranges(
        call->device->threads, 2 * gd_layout_count(call->in[0].layout), GD_PARALLEL_ELEMENTS);
    return (gd_workspace){ NULL, gd_scratch_bytes(AREA + (threads > 1 ? SHARED : 0), BLOCKS),
                           threads };
}

/* ---- along lines ---- */

/* Asks for the first `bytes` bytes of the next line, or of as much as the caches take beside this one,
 * before this one is read a second time, for where its extreme is. Asked before the first time, they delay
 * it: on Zen 5 16 Mi numbers in rows of 1,024 are read at 18 GB/s instead of 23. */
static void fetch(const char *line, int64_t bytes)
{
    for (int64_t at = 0; at < bytes && at < MOST_FETCHED; at += 64)
        __builtin_prefetch(line + at, 0, 2);
}

/* The first extreme of elements [begin, end) of a line: its index is returned, its value goes to
 * *best. `next`: the line read after it, or NULL. */
static int64_t search_line(const arg_reduction *r, const char *line, int64_t begin, int64_t end,
                           const char *next, char *gather, void *best)
{
    int64_t index = begin;
    for (int64_t first = begin; first < end; first += GD_REDUCE_BLOCK) {
        int64_t n = end - first < GD_REDUCE_BLOCK ? end - first : GD_REDUCE_BLOCK;
        const char *x = line + first * r->stride * (int64_t)r->size;
        if (r->widen) {
            r->widen(x, NULL, NULL, gather, n);
            x = gather;
        } else if (r->stride != 1) {
            gd_copy_run(gather, 1, x, r->stride, n, r->size);
            x = gather;
        }
        int64_t value; /* room for any element */
        r->reducer->extreme->rows(x, 0, n, &value, 0, 1);
        if (next && first + n == end)
            fetch(next, r->n * (int64_t)r->size);
        if (first == begin || r->reducer->beats(&value, best)) {
            memcpy(best, &value, r->value_size);
            index = first + r->reducer->find(x, n, &value);
        }
    }
    return index;
}

static void search_lines_range(void *context, int64_t begin, int64_t end, int thread)
{
    const arg_reduction *r = context;
    scratch s = scratch_of(r, thread);
    gd_cursor cursor = gd_cursor_at(&r->kept, begin);
    for (int64_t i = begin; i < end; i++) {
        const char *line = r->in + cursor.at[0] * (int64_t)r->size;
        int64_t *out = r->out + cursor.at[1];
        gd_cursor_next(&cursor);
        const bool is_next = i + 1 < end && r->stride == 1;
        const char *next = is_next ? r->in + cursor.at[0] * (int64_t)r->size : NULL;
        *out = search_line(r, line, 0, r->n, next, s.gather, s.best);
    }
}

static void search_chunks_range(void *context, int64_t begin, int64_t end, int thread)
{
    const arg_reduction *r = context;
    scratch s = scratch_of(r, thread);
    for (int64_t c = begin; c < end; c++) {
        int64_t last = (c + 1) * r->chunk < r->n ? (c + 1) * r->chunk : r->n;
        r->chunk_index[c] = search_line(r, r->line, c * r->chunk, last, NULL, s.gather,
                                        r->chunk_best + (size_t)c * r->value_size);
    }
}

/* Few long lines: each by all threads. */
static void search_lines_split(arg_reduction *r, int64_t lines)
{
    r->first = gd_scratch_of(r->call, 0);
    r->chunk_index = gd_scratch_take(&r->first, MAX_CHUNKS * sizeof *r->chunk_index);
    r->chunk_best = gd_scratch_take(&r->first, MAX_CHUNKS * sizeof(int64_t));
    r->chunk = 8 * GD_REDUCE_BLOCK;
    while ((r->n + r->chunk - 1) / r->chunk > MAX_CHUNKS)
        r->chunk *= 2;
    int64_t chunks = (r->n + r->chunk - 1) / r->chunk;
    gd_cursor cursor = gd_cursor_at(&r->kept, 0);
    for (int64_t i = 0; i < lines; i++) {
        r->line = r->in + cursor.at[0] * (int64_t)r->size;
        gd_parallel_for(r->call->device->threads, chunks, 1, search_chunks_range, r);
        int64_t best = 0;
        for (int64_t c = 1; c < chunks; c++)
            if (r->reducer->beats(r->chunk_best + (size_t)c * r->value_size,
                                  r->chunk_best + (size_t)best * r->value_size))
                best = c;
        r->out[cursor.at[1]] = r->chunk_index[best];
        gd_cursor_next(&cursor);
    }
}

bool gd_arg_reduce_takes_halves(const gd_kernel_call *call)
{
    const gd_layout *in = call->in[0].layout;
    return in->rank > 0 && in->stride[((const gd_axis_attr *)call->attr)->axis] == 1;
}

/* ---- along columns ---- */

static void search_tiles_range(void *context, int64_t begin, int64_t end, int thread)
{
    const arg_reduction *r = context;
    scratch s = scratch_of(r, thread);
    for (int64_t item = begin; item < end; item++) {
        gd_cursor cursor = gd_cursor_at(&r->kept, item / r->tiles);
        int64_t first = item % r->tiles * TILE, rest = r->columns.size - first;
        int64_t n = rest < TILE ? rest : TILE;
        const char *x = r->in + (cursor.at[0] + first) * (int64_t)r->size;
        for (int64_t row = 0; row < r->n; row += TILE_ROWS) {
            int64_t rows = r->n - row < TILE_ROWS ? r->n - row : TILE_ROWS;
            const char *block = x + row * r->stride * (int64_t)r->size;
            char *best = row == 0 ? s.best : s.block_best;
            r->reducer->columns(best, s.block_index, block, rows, r->stride, n);
            if (row == 0)
                for (int64_t c = 0; c < n; c++)
                    s.index[c] = s.block_index[c];
            else
                r->reducer->merge(s.best, s.index, s.block_best, s.block_index, row, n);
        }
        gd_copy_run(r->out + cursor.at[1] + first * r->columns.stride[1], r->columns.stride[1],
                    s.index, 1, n, sizeof(int64_t));
    }
}

gd_status gd_arg_reduce_run(const gd_kernel_call *call, const gd_arg_reducer *reducer)
{
    const gd_axis_attr *attr = call->attr;
    const gd_layout *in = call->in[0].layout;
    if (call->out.layout->dtype != GD_I64)
        return gd_fail(GD_ERR_DTYPE, "%s gives i64, not %s", call->op->name,
                       gd_dtype_name(call->out.layout->dtype));
    arg_reduction r = { .reducer = reducer,
                        .call = call,
                        .size = gd_dtype_size(in->dtype),
                        .value_size = reducer->extreme->acc_size,
                        .in = call->in[0].data,
                        .out = call->out.data,
                        .n = 1,
                        .stride = 1 };
    r.widen = gd_ew_half_cast(call, &call->in[0]); /* of lines: gd_arg_reduce_takes_halves */
    int64_t shape[GD_MAX_RANK], in_stride[GD_MAX_RANK], out_stride[GD_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < in->rank; i++)
        if (i == attr->axis) {
            r.n = in->shape[i];
            r.stride = in->stride[i];
        } else {
            shape[rank] = in->shape[i];
            in_stride[rank++] = in->stride[i];
        }
    gd_strides_row_major(rank, shape, out_stride);
    r.kept = gd_nest_make(rank, shape, in_stride, out_stride, NULL);
    int64_t lines = gd_nest_count(&r.kept);
    if (lines == 0)
        return GD_OK;
    if (r.n == 0)
        return gd_fail(GD_ERR_SHAPE, "%s along an axis of size 0", call->op->name);

    int threads = call->device->threads, last = r.kept.rank - 1;
    if (r.stride != 1 && last >= 0 && r.kept.stride[last][0] == 1 && r.kept.size[last] >= 8) {
        r.columns = gd_nest_pop(&r.kept);
        r.tiles = (r.columns.size + TILE - 1) / TILE;
        int64_t tile = r.columns.size < TILE ? r.columns.size : TILE;
        gd_parallel_for(threads, gd_nest_count(&r.kept) * r.tiles,
                        1 + GD_PARALLEL_ELEMENTS / (r.n * tile), search_tiles_range, &r);
    } else if (threads > 1 && lines < 4 * threads && r.n >= 4 * GD_PARALLEL_ELEMENTS) {
        search_lines_split(&r, lines);
    } else {
        gd_parallel_for(threads, lines, 1 + GD_PARALLEL_ELEMENTS / r.n, search_lines_range, &r);
    }
    return GD_OK;
}
