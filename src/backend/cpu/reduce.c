/* backend/cpu/reduce.c: the walk of sum, prod, max and min over strided tensors. The arithmetic is
 * a gd_reducer's and the order it happens in is defined in reduce.h, which is the place to start;
 * here, start at gd_reduce_run(). f16 and bf16 become f32 in scratch, a block at a time.
 */
#include "backend/cpu/reduce.h"

#include "backend/cpu/elementwise.h"
#include "base/error.h"
#include "base/threads.h"
#include "ops/attrs.h"

/* How a thread's scratch is used, in bytes. Partials are in the first thread's. */
#define LEVELS         GD_REDUCE_LEVELS /* at most */
#define TILE_BYTES     8192
#define TILE_BYTES_MIN 512
#define GATHER_BYTES   32768
#define PARTIAL_BYTES  (GD_CPU_SCRATCH - (LEVELS + 1) * TILE_BYTES - GATHER_BYTES)
_Static_assert((LEVELS + 6) * TILE_BYTES + GATHER_BYTES <= GD_CPU_SCRATCH, "scratch too small");
_Static_assert(GD_REDUCE_BLOCK * sizeof(int64_t) <= GATHER_BYTES, "a block must fit");
_Static_assert(64 * sizeof(int64_t) <= TILE_BYTES, "levels of single values must fit");
_Static_assert(GD_REDUCE_WIDE * sizeof(int64_t) <= TILE_BYTES, "a wide row must fit");

#define GRAIN       ((int64_t)32768)   /* elements a thread is woken for: some 3 us of work */
#define LARGE_BYTES ((int64_t)1 << 20) /* larger than the level 2 cache, or a large part of it */

#define BLOCKS 5 /* of scratch */

/* Elements of f16 and bf16 that are f32 at once, and how they are cut from columns. */
#define HALF_ELEMENTS GD_REDUCE_BLOCK
#define HALF_ROWS     8
#define HALF_COLUMNS  (HALF_ELEMENTS / HALF_ROWS)
#define HALF_BYTES    (HALF_ELEMENTS * sizeof(float))
_Static_assert(GD_CPU_SCRATCH + HALF_BYTES <= GD_CPU_WIDE_SCRATCH, "scratch too small");

typedef struct scratch {
    char *levels, *leaf, *gather;
    float *widened; /* [HALF_ELEMENTS], of f16 and bf16 */
} scratch;

typedef struct reduction {
    const gd_reducer *reducer;
    const gd_kernel_call *call;
    const char *in;
    size_t in_size;   /* of an element */
    gd_ew_loop widen; /* of f16 and bf16, which the reducer takes as f32; else NULL */
    char *out;
    gd_nest kept; /* operand 0: the input, 1: the result; by columns without the innermost loop */
    gd_nest reduced; /* operand 0: the input */
    int64_t reduced_count;
    int64_t blocks;    /* of each result, or of each column */
    size_t tree_bytes; /* of the tree of their sums */

    /* by rows */
    gd_nest runs;     /* `reduced` without its innermost loop */
    gd_run run;       /* and that loop */
    bool is_sequence; /* blocks are cut from the whole sequence of elements, not from each run */
    int64_t blocks_per_run;

    /* by columns */
    gd_run columns;
    int64_t lanes;      /* k of reduce.h */
    int64_t block_rows; /* a multiple of it */
    int64_t tile;       /* columns taken at a time; no result depends on it */
    int64_t tiles;
    bool one_by_one; /* see gd_reducer */

    /* one item's blocks shared by several threads */
    int64_t item;
    int64_t chunk_blocks; /* a power of two */
    int64_t partial_bytes;
    char *partials;
    gd_scratch first; /* of the first thread, behind the partials */
} reduction;

static scratch scratch_of(const reduction *r, int thread)
{
    gd_scratch area = r->partials && thread == 0 ? r->first : gd_scratch_of(r->call, thread);
    scratch s = { .levels = gd_scratch_take(&area, r->tree_bytes) };
    s.leaf = gd_scratch_take(&area, TILE_BYTES);
    s.gather = gd_scratch_take(&area, GATHER_BYTES);
    if (r->widen)
        s.widened = gd_scratch_take(&area, HALF_BYTES);
    return s;
}

/* Levels of a tree with so many leaves. */
static size_t levels_of(int64_t leaves)
{
    size_t levels = 1;
    for (; leaves > 1; leaves >>= 1)
        levels++;
    return levels;
}

static gd_tree tree_begin(const reduction *r, scratch s, int64_t width)
{
    return (gd_tree){ .merge = r->reducer->merge,
                      .levels = s.levels,
                      .width = width,
                      .bytes = (size_t)width * r->reducer->acc_size };
}

static const char *at_element(const reduction *r, const char *base, int64_t elements)
{
    return base + elements * (int64_t)r->in_size;
}

/* ---- the reducer's loops on whatever the input is ---- */

static void widen_rows(const reduction *r, const char *x, int64_t rows, int64_t row_stride,
                       int64_t n, float *out)
{
    if (row_stride == n || rows == 1)
        r->widen(x, NULL, NULL, out, rows * n);
    else
        for (int64_t i = 0; i < rows; i++)
            r->widen(at_element(r, x, i * row_stride), NULL, NULL, out + i * n, n);
}

static void reduce_rows(const reduction *r, const char *x, int64_t row_stride, int64_t n, char *out,
                        int64_t out_stride, int64_t count, scratch s)
{
    if (!r->widen) {
        r->reducer->rows(x, row_stride, n, out, out_stride, count);
        return;
    }
    const int64_t most = HALF_ELEMENTS / n; /* n is at most a block */
    for (int64_t i = 0; i < count; i += most) {
        const int64_t rows = count - i < most ? count - i : most;
        widen_rows(r, at_element(r, x, i * row_stride), rows, row_stride, n, s.widened);
        r->reducer->rows(s.widened, n, n, out + i * out_stride * (int64_t)r->reducer->acc_size,
                         out_stride, rows);
    }
}

static void reduce_columns(const reduction *r, char *acc, const char *x, int64_t rows,
                           int64_t row_stride, int64_t n, bool one_by_one, scratch s)
{
    if (!r->widen) {
        r->reducer->columns(acc, x, rows, row_stride, n, one_by_one);
        return;
    }
    for (int64_t first = 0; first < n; first += HALF_COLUMNS) {
        const int64_t width = n - first < HALF_COLUMNS ? n - first : HALF_COLUMNS;
        const int64_t most = HALF_ELEMENTS / width / HALF_ROWS * HALF_ROWS;
        char *sums = acc + first * (int64_t)r->reducer->acc_size;
        for (int64_t row = 0; row < rows; row += most) {
            const int64_t count = rows - row < most ? rows - row : most;
            widen_rows(r, at_element(r, x, row * row_stride + first), count, row_stride, width,
                       s.widened);
            r->reducer->columns(sums, s.widened, count, width, width, false);
        }
    }
}

/* ---- by rows ---- */

/* Reduce n elements of a run, from its `skip`-th, to the leaf. */
static void reduce_run_piece(const reduction *r, const char *run, int64_t skip, int64_t n,
                             scratch s)
{
    const char *x = at_element(r, run, skip * r->run.stride[0]);
    if (r->run.stride[0] != 1) {
        gd_copy_run(s.gather, 1, x, r->run.stride[0], n, r->in_size);
        x = s.gather;
    }
    reduce_rows(r, x, 0, n, s.leaf, 0, 1, s);
}

/* Blocks [begin, end) of the result whose input starts at base. The value stays in the scratch. */
static const char *reduce_row_blocks(const reduction *r, const char *base, int64_t begin,
                                     int64_t end, scratch s)
{
    gd_tree t = tree_begin(r, s, 1);
    if (r->is_sequence) {
        for (int64_t b = begin; b < end; b++) {
            int64_t first = b * GD_REDUCE_BLOCK, rest = r->reduced_count - first;
            int64_t n = rest < GD_REDUCE_BLOCK ? rest : GD_REDUCE_BLOCK;
            gd_nest_gather(s.gather, base, &r->reduced, first, first + n, r->in_size);
            reduce_rows(r, s.gather, 0, n, s.leaf, 0, 1, s);
            gd_tree_push(&t, s.leaf);
        }
        return gd_tree_end(&t);
    }
    gd_cursor cursor = gd_cursor_at(&r->runs, begin / r->blocks_per_run);
    int64_t piece = begin % r->blocks_per_run;
    for (int64_t b = begin; b < end; b++) {
        int64_t skip = piece * GD_REDUCE_BLOCK, rest = r->run.size - skip;
        reduce_run_piece(r, at_element(r, base, cursor.at[0]), skip,
                         rest < GD_REDUCE_BLOCK ? rest : GD_REDUCE_BLOCK, s);
        gd_tree_push(&t, s.leaf);
        if (++piece == r->blocks_per_run) {
            piece = 0;
            gd_cursor_next(&cursor);
        }
    }
    return gd_tree_end(&t);
}

/* Results [begin, end), in the order of the kept loops. */
static void reduce_rows_range(void *context, int64_t begin, int64_t end, int thread)
{
    const reduction *r = context;
    scratch s = scratch_of(r, thread);
    size_t acc_size = r->reducer->acc_size;
    gd_nest outer = r->kept;
    gd_run kept = gd_nest_pop(&outer);
    gd_cursor cursor = gd_cursor_at(&outer, begin / kept.size);
    int64_t skip = begin % kept.size;
    while (begin < end) {
        int64_t count = kept.size - skip < end - begin ? kept.size - skip : end - begin;
        const char *x = at_element(r, r->in, cursor.at[0] + skip * kept.stride[0]);
        char *out = r->out + (cursor.at[1] + skip * kept.stride[1]) * (int64_t)acc_size;
        if (r->blocks == 1 && !r->is_sequence && r->run.stride[0] == 1)
            reduce_rows(r, x, kept.stride[0], r->run.size, out, kept.stride[1], count, s);
        else
            for (int64_t i = 0; i < count; i++)
                memcpy(out + i * kept.stride[1] * (int64_t)acc_size,
                       reduce_row_blocks(r, at_element(r, x, i * kept.stride[0]), 0, r->blocks, s),
                       acc_size);
        begin += count;
        skip = 0;
        gd_cursor_next(&cursor);
    }
}

static void plan_rows(reduction *r)
{
    r->runs = r->reduced;
    r->run = gd_nest_pop(&r->runs);
    int64_t runs = gd_nest_count(&r->runs);
    r->is_sequence = runs > 1 && r->run.size < GD_REDUCE_RUN;
    int64_t cut = r->is_sequence ? r->reduced_count : r->run.size;
    r->blocks_per_run = (cut + GD_REDUCE_BLOCK - 1) / GD_REDUCE_BLOCK;
    r->blocks = r->is_sequence ? r->blocks_per_run : r->blocks_per_run * runs;
}

/* ---- by columns ---- */

/* Add `rows` rows of n columns, the first of them number `row`, to the lanes at acc. `row` is a
 * multiple of the lanes. */
static void add_gathered_rows(const reduction *r, const char *base, int64_t row, int64_t rows,
                              int64_t n, char *acc, scratch s)
{
    gd_nest lines = r->reduced;
    gd_nest_push(&lines, n, r->columns.stride);
    size_t row_bytes = (size_t)n * r->in_size;
    int64_t wide = r->lanes * n; /* so many columns in one step: a row of each lane */
    int64_t most = GATHER_BYTES / (int64_t)row_bytes / r->lanes * r->lanes;
    while (rows > 0) {
        int64_t count = rows < most ? rows : most;
        gd_nest_gather(s.gather, base, &lines, row * n, (row + count) * n, r->in_size);
        int64_t full = count / r->lanes;
        reduce_columns(r, acc, s.gather, full, wide, wide, false, s);
        if (count % r->lanes)
            reduce_columns(r, acc, at_element(r, s.gather, full * wide), 1, 0, count % r->lanes * n,
                           true, s);
        row += count;
        rows -= count;
    }
}

static void add_rows(const reduction *r, const char *base, int64_t row, int64_t rows, int64_t n,
                     char *acc, scratch s)
{
    gd_nest outer = r->reduced;
    gd_run inner = gd_nest_pop(&outer);
    bool regular = r->columns.stride[0] == 1 || n == 1;
    if (regular && r->lanes == 1) {
        gd_cursor cursor = gd_cursor_at(&outer, row / inner.size);
        int64_t skip = row % inner.size;
        while (rows > 0) {
            int64_t count = inner.size - skip < rows ? inner.size - skip : rows;
            const char *x = at_element(r, base, cursor.at[0] + skip * inner.stride[0]);
            reduce_columns(r, acc, x, count, inner.stride[0], n, r->one_by_one, s);
            rows -= count;
            skip = 0;
            gd_cursor_next(&cursor);
        }
    } else if (regular && outer.rank == 0 && inner.stride[0] == n) { /* rows lie end to end */
        int64_t full = rows / r->lanes, wide = r->lanes * n;
        const char *x = at_element(r, base, row * n);
        reduce_columns(r, acc, x, full, wide, wide, r->one_by_one, s);
        if (rows % r->lanes)
            reduce_columns(r, acc, at_element(r, x, full * wide), 1, 0, rows % r->lanes * n, true,
                           s);
    } else {
        add_gathered_rows(r, base, row, rows, n, acc, s);
    }
}

/* Blocks [begin, end) of n columns whose input starts at base. The n values stay in the scratch. */
static const char *reduce_column_blocks(const reduction *r, const char *base, int64_t n,
                                        int64_t begin, int64_t end, scratch s)
{
    size_t acc_size = r->reducer->acc_size;
    gd_tree t = tree_begin(r, s, n);
    for (int64_t b = begin; b < end; b++) {
        int64_t row = b * r->block_rows, rest = r->reduced_count - row;
        r->reducer->fill(s.leaf, r->lanes * n);
        add_rows(r, base, row, rest < r->block_rows ? rest : r->block_rows, n, s.leaf, s);
        for (int64_t half = r->lanes / 2; half > 0; half /= 2)
            r->reducer->merge(s.leaf, s.leaf + (size_t)(half * n) * acc_size, half * n);
        if (end - begin == 1)
            return s.leaf;
        gd_tree_push(&t, s.leaf);
    }
    return gd_tree_end(&t);
}

/* Where item `item`, a tile of columns, begins in the input and the result, and its width. */
static int64_t locate_tile(const reduction *r, int64_t item, const char **in, char **out)
{
    gd_cursor cursor = gd_cursor_at(&r->kept, item / r->tiles);
    int64_t first = item % r->tiles * r->tile;
    *in = at_element(r, r->in, cursor.at[0] + first * r->columns.stride[0]);
    *out = r->out + (cursor.at[1] + first * r->columns.stride[1]) * (int64_t)r->reducer->acc_size;
    return r->columns.size - first < r->tile ? r->columns.size - first : r->tile;
}

static void store_tile(const reduction *r, char *out, const char *acc, int64_t n)
{
    gd_copy_run(out, r->columns.stride[1], acc, 1, n, r->reducer->acc_size);
}

static void reduce_tiles_range(void *context, int64_t begin, int64_t end, int thread)
{
    const reduction *r = context;
    scratch s = scratch_of(r, thread);
    for (int64_t item = begin; item < end; item++) {
        const char *in;
        char *out;
        int64_t n = locate_tile(r, item, &in, &out);
        store_tile(r, out, reduce_column_blocks(r, in, n, 0, r->blocks, s), n);
    }
}

static void plan_columns(reduction *r)
{
    r->columns = gd_nest_pop(&r->kept);
    int64_t c = r->columns.size, rows = r->reduced_count;
    r->lanes = 1;
    if (c < GD_REDUCE_NARROW)
        while (2 * r->lanes * c <= GD_REDUCE_WIDE && 2 * r->lanes * 4 <= rows)
            r->lanes *= 2;
    r->block_rows = GD_REDUCE_BLOCK_ROWS * r->lanes;
    while (rows / r->block_rows >= GD_REDUCE_MAX_BLOCKS)
        r->block_rows *= 2;
    r->blocks = (rows + r->block_rows - 1) / r->block_rows;

    int64_t in_size = (int64_t)r->in_size;
    r->one_by_one =
        c * in_size < 4096 && gd_nest_count(&r->kept) * rows * c * in_size > LARGE_BYTES;

    /* The widest tile, as long as there is work for all threads: tiles, and chunks of their blocks.
     */
    int64_t acc_size = (int64_t)r->reducer->acc_size, others = gd_nest_count(&r->kept);
    int threads = r->call->device->threads;
    for (r->tile = TILE_BYTES / acc_size; threads > 1 && r->tile * acc_size > TILE_BYTES_MIN;
         r->tile /= 2) {
        int64_t chunks = (int64_t)PARTIAL_BYTES / (r->tile * acc_size);
        if (others * ((c + r->tile - 1) / r->tile) * (chunks < r->blocks ? chunks : r->blocks) >=
            2 * threads)
            break;
    }
    if (r->tile < GD_REDUCE_NARROW)
        r->tile = GD_REDUCE_NARROW; /* one tile: the lanes of narrow rows span several rows */
    if (r->tile > c)
        r->tile = c;
    r->tiles = (c + r->tile - 1) / r->tile;
}

/* ---- one result, or one tile of columns, by several threads ---- */

static const char *reduce_blocks(const reduction *r, int64_t begin, int64_t end, scratch s,
                                 int64_t *width, char **out)
{
    const char *in;
    if (r->columns.size) {
        *width = locate_tile(r, r->item, &in, out);
        return reduce_column_blocks(r, in, *width, begin, end, s);
    }
    gd_cursor cursor = gd_cursor_at(&r->kept, r->item);
    in = at_element(r, r->in, cursor.at[0]);
    *out = r->out + cursor.at[1] * (int64_t)r->reducer->acc_size;
    *width = 1;
    return reduce_row_blocks(r, in, begin, end, s);
}

static void reduce_chunks_range(void *context, int64_t begin, int64_t end, int thread)
{
    const reduction *r = context;
    scratch s = scratch_of(r, thread);
    for (int64_t chunk = begin; chunk < end; chunk++) {
        int64_t first = chunk * r->chunk_blocks, rest = r->blocks - first, width;
        char *out;
        const char *value = reduce_blocks(
            r, first, first + (rest < r->chunk_blocks ? rest : r->chunk_blocks), s, &width, &out);
        memcpy(r->partials + chunk * r->partial_bytes, value, (size_t)width * r->reducer->acc_size);
    }
}

/* Chunks of the blocks of an item that several threads share: how many. */
static int64_t choose_chunks(reduction *r)
{
    int threads = r->call->device->threads;
    r->partial_bytes = (r->columns.size ? r->tile : 1) * (int64_t)r->reducer->acc_size;
    int64_t most = (int64_t)PARTIAL_BYTES / r->partial_bytes;
    r->chunk_blocks = 1;
    while ((r->blocks + r->chunk_blocks - 1) / r->chunk_blocks > most ||
           r->blocks / r->chunk_blocks > 16 * threads)
        r->chunk_blocks *= 2;
    return (r->blocks + r->chunk_blocks - 1) / r->chunk_blocks;
}

/* Items one after another, the blocks of each cut into chunks that are whole subtrees of the tree,
 * so the sum is the same. */
static void reduce_items_split(reduction *r, int64_t items)
{
    const int threads = r->call->device->threads;
    const int64_t chunks = choose_chunks(r);
    r->first = gd_scratch_of(r->call, 0);
    r->partials = gd_scratch_take(&r->first, (size_t)(chunks * r->partial_bytes));
    for (r->item = 0; r->item < items; r->item++) {
        int64_t width;
        char *out;
        gd_parallel_for(threads, chunks, 1, reduce_chunks_range, r);
        if (r->columns.size) {
            const char *in;
            width = locate_tile(r, r->item, &in, &out);
        } else {
            out = r->out + gd_cursor_at(&r->kept, r->item).at[1] * (int64_t)r->reducer->acc_size;
            width = 1;
        }
        gd_tree t = tree_begin(r, scratch_of(r, 0), width);
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            gd_tree_push(&t, r->partials + chunk * r->partial_bytes);
        const char *sum = gd_tree_end(&t);
        if (r->columns.size)
            store_tile(r, out, sum, width);
        else
            memcpy(out, sum, r->reducer->acc_size);
    }
}

/* ---- planning ---- */

typedef struct axis {
    int64_t size;
    int64_t stride[GD_NEST_OPERANDS]; /* of the input, of the result */
    bool reduced;
} axis;

static uint64_t order_key(const axis *a)
{
    int64_t stride = a->stride[0] < 0 ? -a->stride[0] : a->stride[0];
    return stride == 0 ? UINT64_MAX : (uint64_t)stride;
}

/* The axes of reduce.h into the two nests. Returns whether the innermost is reduced. */
static bool order_axes(reduction *r, const gd_layout *in, uint32_t axes)
{
    axis list[GD_MAX_RANK];
    int n = 0;
    int64_t out_stride = 1;
    for (int i = in->rank - 1; i >= 0; i--) {
        axis a = { .size = in->shape[i], .stride = { in->stride[i] }, .reduced = axes >> i & 1 };
        if (a.reduced) {
            r->reduced_count *= a.size;
            if (a.stride[0] < 0 && a.size > 0) {
                r->in = at_element(r, r->in, a.stride[0] * (a.size - 1));
                a.stride[0] = -a.stride[0];
            }
        } else {
            a.stride[1] = out_stride;
            out_stride *= a.size;
        }
        if (a.size == 1)
            continue;
        int place = n++; /* by rising key, the last axis first */
        for (; place > 0 && order_key(&a) < order_key(&list[place - 1]); place--)
            list[place] = list[place - 1];
        list[place] = a;
    }
    for (int i = n - 1; i >= 0; i--)
        gd_nest_push(list[i].reduced ? &r->reduced : &r->kept, list[i].size, list[i].stride);
    return n == 0 || list[0].reduced;
}

/* How the work is divided: items that may be computed independently, of which a thread takes `grain`
 * at least; or, where there are few, the blocks of each among the threads. */
typedef struct division {
    bool by_rows, split;
    int64_t items, grain;
} division;

/* Of results that are sums of something. */
static division plan(reduction *r, bool by_rows, int64_t results)
{
    const int threads = r->call->device->threads;
    division d = { .by_rows = by_rows, .items = results };
    int64_t elements = r->reduced_count; /* of an item */
    if (by_rows) {
        plan_rows(r);
        r->tree_bytes = levels_of(r->blocks) * r->reducer->acc_size;
    } else {
        plan_columns(r);
        d.items = gd_nest_count(&r->kept) * r->tiles;
        elements *= r->tile;
        r->tree_bytes = levels_of(r->blocks) * (size_t)r->tile * r->reducer->acc_size;
    }
    d.grain = 1 + GRAIN / elements;
    d.split = threads > 1 && r->blocks > 1 && d.items < 4 * threads && elements >= 2 * GRAIN;
    return d;
}

/* The plan of a call without its arithmetic. False: nothing is added up. */
static bool plan_call(const gd_kernel_call *call, reduction *r, gd_reducer *sizes, division *d)
{
    const gd_layout *in = call->in[0].layout;
    *sizes = (gd_reducer){ .acc_size = gd_dtype_size(call->out.layout->dtype) };
    *r = (reduction){ .reducer = sizes,
                      .call = call,
                      .in = (const char *)in,
                      .in_size = gd_dtype_size(in->dtype),
                      .reduced_count = 1 };
    const bool by_rows = order_axes(r, in, ((const gd_reduce_attr *)call->attr)->axes);
    const int64_t results = gd_nest_count(&r->kept);
    if (results == 0 || r->reduced_count == 0)
        return false;
    *d = plan(r, by_rows, results);
    return true;
}

gd_workspace gd_reduce_scratch(const gd_kernel_call *call)
{
    reduction r;
    gd_reducer sizes;
    division d;
    if (!plan_call(call, &r, &sizes, &d))
        return (gd_workspace){ 0 };
    size_t bytes = r.tree_bytes + TILE_BYTES + GATHER_BYTES;
    if (gd_call_has_halves(call))
        bytes += HALF_BYTES;
    const int threads = call->device->threads;
    if (!d.split)
        return (gd_workspace){ NULL, gd_scratch_bytes(bytes, BLOCKS),
                               gd_parallel_ranges(threads, d.items, d.grain) };
    const int64_t chunks = choose_chunks(&r);
    bytes += (size_t)(chunks * r.partial_bytes);
    return (gd_workspace){ NULL, gd_scratch_bytes(bytes, BLOCKS),
                           gd_parallel_ranges(threads, chunks, 1) };
}

void gd_reduce_explain(const gd_kernel_call *call, gd_text *text)
{
    reduction r;
    gd_reducer sizes;
    division d;
    if (!plan_call(call, &r, &sizes, &d))
        return;
    const int64_t results = gd_layout_count(call->out.layout);
    const int threads = call->device->threads;
    gd_text_add(text, "%lld result%s of %lld by ", (long long)results, results == 1 ? "" : "s",
                (long long)r.reduced_count);
    if (d.by_rows)
        gd_text_add(text, "rows: what is added up lies closest together; %s of %d",
                    r.is_sequence ? "runs are short: copied to blocks" : "blocks", GD_REDUCE_BLOCK);
    else
        gd_text_add(text,
                    "columns: results lie closest together; tiles of %lld, blocks of %lld rows",
                    (long long)r.tile, (long long)r.block_rows);
    if (d.split)
        gd_text_add(text, "; few long sums: %d threads share the blocks of each",
                    gd_parallel_ranges(threads, choose_chunks(&r), 1));
    else
        gd_cpu_explain_threads(text, gd_parallel_ranges(threads, d.items, d.grain));
}

gd_status gd_reduce_run(const gd_kernel_call *call, const gd_reducer *reducer)
{
    const gd_reduce_attr *attr = call->attr;
    const gd_layout *in = call->in[0].layout;
    if (!reducer)
        return gd_fail(GD_ERR_DTYPE, "%s of %s", call->op->name, gd_dtype_name(in->dtype));
    gd_dtype result = reducer->result == GD_U8 ? in->dtype : reducer->result; /* bool stays bool */
    if (call->out.layout->dtype != result)
        return gd_fail(GD_ERR_DTYPE, "%s of %s gives %s, not %s", call->op->name,
                       gd_dtype_name(in->dtype), gd_dtype_name(result),
                       gd_dtype_name(call->out.layout->dtype));
    reduction r = { .reducer = reducer,
                    .call = call,
                    .in = call->in[0].data,
                    .in_size = gd_dtype_size(in->dtype),
                    .out = call->out.data,
                    .reduced_count = 1 };
    r.widen = gd_ew_half_cast(call, &call->in[0]);
    bool by_rows = order_axes(&r, in, attr->axes);
    int64_t results = gd_nest_count(&r.kept);
    if (results == 0)
        return GD_OK;
    if (r.reduced_count == 0) {
        reducer->fill(r.out, results);
        return GD_OK;
    }
    const division d = plan(&r, by_rows, results);
    if (d.split)
        reduce_items_split(&r, d.items);
    else
        gd_parallel_for(call->device->threads, d.items, d.grain,
                        by_rows ? reduce_rows_range : reduce_tiles_range, &r);
    return GD_OK;
}
