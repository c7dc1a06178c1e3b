/* backend/cpu/gemm_driver.c: from a plan (gemm_choose.c) to calls of micro-kernels, for all
 * instruction sets and element types. gd_gemm, at the end, divides the work over threads; multiply
 * does one thread's part of one product.
 *
 * Blocking. A block of B, as deep as the descriptor says and as wide as half the second-level cache
 * allows, is packed into panels one tile wide. Against it goes one panel of A at a time, one tile
 * high, which stays in the first-level cache while the panels of B stream past it out of the
 * second. This is the scheme of Goto & van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication" (2008), and of BLIS (Van Zee & van de Geijn 2015), with A and B exchanged: the
 * depth is given by the definition of the result, and at that depth it is the panel of A that fits
 * the first level. Small and thin products skip the packing, where kernels read A with any strides
 * and B with contiguous rows in place.
 */
#include "backend/cpu/gemm_plan.h"
#include "base/threads.h"

#include <string.h>

#define THIN_ROWS      32 /* B is fetched a block ahead for at most so many rows */
#define DIRECT_COLUMNS 64 /* panels of A are fetched ahead for more columns */

/* A block of B and the rows of A and C that go with it. */
typedef struct block {
    const gd_gemm_micro *micro;
    const gd_gemm_product *p;
    int64_t step, depth;     /* of k: [step, step+depth) */
    int64_t packed_depth;    /* the same as packers round it up */
    int64_t column, columns; /* of n */
    char *packed;            /* the block, or its ragged last panel alone, as pack_b left it */
    bool packed_all;
    bool copied;    /* the first panel of rows reads B in place and packs it */
    bool pack_rows; /* copy panels of A */
    void *row_panel;
    void *stage; /* where packers of operands that are no matrices work */
} block;

/* Numbers of 4 or 8 bytes: to[i * to_row + j * to_col] = from[i * from_row + j * from_col]. */
static void copy_matrix(void *to, int64_t to_row, int64_t to_col, const void *from,
                        int64_t from_row, int64_t from_col, int64_t rows, int64_t columns,
                        int bytes)
{
    for (int64_t i = 0; i < rows; i++) {
        char *t = (char *)to + i * to_row * bytes;
        const char *f = (const char *)from + i * from_row * bytes;
        if (to_col == 1 && from_col == 1)
            memcpy(t, f, (size_t)(columns * bytes));
        else if (bytes == 4)
            for (int64_t j = 0; j < columns; j++, t += 4 * to_col, f += 4 * from_col)
                memcpy(t, f, 4);
        else
            for (int64_t j = 0; j < columns; j++, t += 8 * to_col, f += 8 * from_col)
                memcpy(t, f, 8);
    }
}

/* One tile whose C has no contiguous rows, or no room for what the kernel writes: by way of a copy.
 */
static void tile_by_copy(const gd_gemm_micro *micro, gd_gemm_tile t, int64_t rows, int64_t vectors,
                         int64_t c_col)
{
    _Alignas(GD_LINE_BYTES) char copy[GD_GEMM_MOST_TILE_BYTES];
    void *c = t.c;
    const int64_t c_row = t.c_row, row = micro->columns, unit = micro->height_unit;
    const int64_t written = unit == 1 ? rows : (rows + unit - 1) / unit * unit;
    if (t.accumulate) {
        memset(copy, 0, (size_t)(written * row * micro->c_bytes));
        copy_matrix(copy, row, 1, c, c_row, c_col, rows, t.columns, micro->c_bytes);
    }
    t.c = copy;
    t.c_row = row;
    gd_gemm_tile_kernel(micro, rows, vectors)(&t);
    if (c_row == 1 && c_col != 1 && micro->store_columns)
        micro->store_columns(copy, row, rows, t.columns, c, c_col, NULL, 0, false);
    else
        copy_matrix(c, c_row, c_col, copy, row, 1, rows, t.columns, micro->c_bytes);
}

/* A tile whose C goes past the caches: by way of a copy. */
static void tile_streamed(const gd_gemm_micro *micro, gd_gemm_tile t, int64_t rows, int64_t vectors)
{
    _Alignas(GD_LINE_BYTES) char copy[GD_GEMM_MOST_TILE_BYTES];
    const int64_t row = micro->columns * micro->c_bytes, c_row = t.c_row * micro->c_bytes;
    char *c = t.c;
    t.c = copy;
    t.c_row = micro->columns;
    gd_gemm_tile_kernel(micro, rows, vectors)(&t);
    for (int64_t i = 0; i < rows; i++)
        micro->stream(c + i * c_row, copy + i * row, (size_t)(t.columns * micro->c_bytes));
}

/* A tile whose columns of C gd_gemm_access finds: in place, if they are contiguous and the kernel
 * writes no others; else by way of a copy. t.c is row `row` of C. */
static void tile_by_runs(const gd_gemm_product *p, const gd_gemm_micro *micro, gd_gemm_tile t,
                         int64_t rows, int64_t column, bool may_write)
{
    _Alignas(GD_LINE_BYTES) char copy[GD_GEMM_MOST_TILE_BYTES];
    gd_gemm_stretch runs[GD_GEMM_RUNS];
    char *c = t.c;
    const int many = p->access->find_c(p->access, p->column + column, t.columns, runs);
    const gd_gemm_tile_fn kernel =
        gd_gemm_tile_kernel(micro, rows, gd_gemm_vectors(micro, t.columns));
    if (may_write && many == 1 && runs[0].stride == 1) {
        t.c = c + runs[0].from * micro->c_bytes;
        kernel(&t);
        return;
    }
    const int64_t c_row = t.c_row, unit = micro->height_unit;
    const int64_t written = (rows + unit - 1) / unit * unit;
    if (t.accumulate) {
        memset(copy, 0, (size_t)(written * micro->columns * micro->c_bytes));
        micro->copy_runs(copy, micro->columns, c, c_row, rows, runs, many, false);
    }
    t.c = copy;
    t.c_row = micro->columns;
    kernel(&t);
    micro->copy_runs(copy, micro->columns, c, c_row, rows, runs, many, true);
}

/* The part of the block from its column j on that tile t covers: B, packed or in place, and
 * with the last block of k the bias, by way of `bias` if it is not contiguous. */
static void set_columns(const block *b, int64_t row, int64_t j, int64_t vectors, bool ragged,
                        gd_gemm_tile *t, char *bias)
{
    const gd_gemm_micro *micro = b->micro;
    const gd_gemm_product *p = b->p;
    const int64_t column = b->column + j, width = vectors << micro->lane_shift;
    char *packed = b->packed + (b->packed_all ? j * b->packed_depth * micro->b_packed_bytes : 0);
    t->b_copy = b->copied && row == 0 && t->columns == width ? packed : NULL;
    if (t->b_copy) /* the next tile's columns, which come from afar */
        t->next_b = j + micro->columns < b->columns ? micro->columns : 0;
    if ((b->packed_all || ragged) && !t->b_copy) {
        t->b = packed;
        t->b_step = width;
    } else {
        t->b = gd_gemm_at(p->b, b->step * p->b_row + column, micro->b_bytes);
        t->b_step = p->b_row;
    }
    if (!p->column_bias || b->step + b->depth < p->k)
        return;
    t->column_bias = gd_gemm_at(p->column_bias, column * p->column_bias_stride, micro->c_bytes);
    if (p->column_bias_stride != 1 || ragged) {
        const int64_t rest = t->columns * micro->c_bytes;
        if (ragged)
            memset(bias + rest, 0, (size_t)(width * micro->c_bytes - rest));
        copy_matrix(bias, 0, 1, t->column_bias, 0, p->column_bias_stride, 1, t->columns,
                    micro->c_bytes);
        t->column_bias = bias;
    }
}

/* C[rows, columns] from (row, column) on becomes 0 where relu_result is not > 0. */
static void apply_relu_grad(const gd_gemm_micro *micro, const gd_gemm_product *p, int64_t row,
                            int64_t rows, int64_t column, int64_t columns)
{
    const int64_t first = row * p->c_row + column * p->c_col;
    char *c = (char *)p->c + first * micro->c_bytes;
    const void *y = gd_gemm_at(p->relu_result, first, micro->c_bytes);
    if (p->c_row == 1)
        micro->relu_grad(c, y, columns, p->c_col, rows, 1);
    else
        micro->relu_grad(c, y, rows, p->c_row, columns, p->c_col);
}

static int64_t lines_of(const gd_gemm_fetch *f)
{
    return (f->bytes + GD_LINE_BYTES - 1) / GD_LINE_BYTES;
}

/* The share of p->fetch that falls to the tile of the block's column j: those lines are divided among
 * all tiles of a panel of rows, over all of k. */
static void set_fetch(const block *b, int64_t row, int64_t j, gd_gemm_tile *t)
{
    const gd_gemm_micro *micro = b->micro;
    const gd_gemm_product *p = b->p;
    const int64_t tiles = (p->n + micro->columns - 1) / micro->columns;
    const int64_t all = (p->k + micro->depth - 1) / micro->depth * tiles;
    const int64_t index = b->step / micro->depth * tiles + (b->column + j) / micro->columns;
    int64_t lines = 0, before = 0;
    for (int i = 0; i < p->fetches; i++)
        lines += lines_of(&p->fetch[i]);
    const int64_t at = lines * index / all, end = lines * (index + 1) / all;
    const gd_gemm_fetch *f = p->fetch;
    while (at >= before + lines_of(f) && f < p->fetch + p->fetches - 1)
        before += lines_of(f++);
    t->next_a = (const char *)f->first + row * f->row + (at - before) * GD_LINE_BYTES;
    t->next_a_bytes = f->row;
    t->next_lines = gd_gemm_least(end, before + lines_of(f)) - at;
}

/* What tiles fetch meanwhile: the next panel of A; or, with few rows, when the time goes into
 * reading B from memory, the next block of both, with the first panel. */
static void set_next(const block *b, int64_t row, int64_t rows, gd_gemm_tile *t)
{
    const gd_gemm_micro *micro = b->micro;
    const gd_gemm_product *p = b->p;
    const bool next_block = p->m <= THIN_ROWS && !b->packed_all && p->k * p->n > GD_GEMM_LARGE &&
                            b->step + micro->depth < p->k;
    if (next_block && row == 0)
        t->next_b = micro->depth * p->b_row;
    const int64_t tiles = (b->columns + micro->columns - 1) / micro->columns;
    if (p->a_col != 1) {
        /* Each step of k has a few numbers of the next panel, which end in a cache line that this
         * one has not read. On Zen 5 1536 x 2048 x 384 takes 10.3 ms instead of 11.4. */
        if (!b->pack_rows || p->a_row != 1 || row + 2 * rows > p->m)
            return;
        t->next_a = gd_gemm_at(t->a, 2 * rows - 1, micro->a_bytes);
        t->next_a_bytes = p->a_col * micro->a_bytes;
        t->next_a_step = rows * t->next_a_bytes;
        t->next_lines = (t->depth + rows * tiles - 1) / (rows * tiles);
        return;
    }
    if (!next_block && (row + 2 * rows > p->m ||
                        !(b->pack_rows || p->n > DIRECT_COLUMNS || p->m * p->k > GD_GEMM_LARGE)))
        return;
    const int64_t line = GD_LINE_BYTES / micro->a_bytes; /* numbers */
    t->next_a = gd_gemm_at(t->a, next_block ? micro->depth : rows * p->a_row, micro->a_bytes);
    t->next_a_bytes = p->a_row * micro->a_bytes;
    t->next_lines = (t->depth + line * tiles - 1) / (line * tiles);
}

/* Rows [row, row+rows) of C against one block of B, tile by tile. */
static void multiply_panel(const block *b, int64_t row, int64_t rows)
{
    const gd_gemm_micro *micro = b->micro;
    const gd_gemm_product *p = b->p;
    const bool last = b->step + b->depth == p->k;
    gd_gemm_tile t = {
        .a = gd_gemm_at(p->a, row * p->a_row + b->step * p->a_col, micro->a_bytes),
        .a_row = p->a_row,
        .a_step = p->a_col,
        .c_row = p->c_row,
        .depth = b->depth,
        .row_bias_stride = p->row_bias_stride,
        .next_a = p->a,
        .next_a_step = GD_LINE_BYTES,
        .accumulate = b->step > 0 || p->accumulate,
        .relu = last && p->relu,
        .rows = rows,
    };
    if (last && p->row_bias)
        t.row_bias = gd_gemm_at(p->row_bias, row * p->row_bias_stride, micro->c_bytes);
    set_next(b, row, rows, &t);
    if (p->access && p->access->pack_a) {
        p->access->pack_a(p->access, micro, b->row_panel,
                          gd_gemm_at(p->a, row * p->a_row, micro->a_bytes), p->a_row, rows, b->step,
                          b->depth, &t.a_row, &t.a_step, b->stage);
        t.a = b->row_panel;
    } else if (b->pack_rows) {
        micro->pack_a(b->row_panel, t.a, t.a_row, t.a_step, rows, t.depth, &t.a_row, &t.a_step);
        t.a = b->row_panel;
    }
    const bool whole_rows = micro->height_unit == 1 || rows % micro->height_unit == 0;
    for (int64_t j = 0; j < b->columns; j += micro->columns) {
        char bias[GD_GEMM_MOST_WIDTH_BYTES];
        t.columns = gd_gemm_least(b->columns - j, micro->columns);
        const int64_t vectors = gd_gemm_vectors(micro, t.columns);
        const bool ragged = !micro->any_width && t.columns < vectors << micro->lane_shift;
        set_columns(b, row, j, vectors, ragged, &t, bias);
        if (p->fetches > 0)
            set_fetch(b, row, j, &t);
        else if (p->b_packed && row == 0 && p->k * p->n > GD_GEMM_LARGE) /* the next panel */
            t.next_b = b->packed_depth * (vectors << micro->lane_shift);
        t.c = (char *)p->c + (row * p->c_row + (b->column + j) * p->c_col) * micro->c_bytes;
        if (p->access && p->access->find_c)
            tile_by_runs(p, micro, t, rows, b->column + j, !ragged && whole_rows);
        else if (p->streams)
            tile_streamed(micro, t, rows, vectors);
        else if (p->c_col == 1 && !ragged && whole_rows)
            gd_gemm_tile_kernel(micro, rows, vectors)(&t);
        else
            tile_by_copy(micro, t, rows, vectors, p->c_col);
        if (last && p->relu_result)
            apply_relu_grad(micro, p, row, rows, b->column + j, t.columns);
        t.next_a = (const char *)t.next_a + t.next_lines * t.next_a_step;
    }
}

/* The block's columns that tiles cannot read in place: all, none, or those of a last panel
 * that does not fill its vectors. */
static void pack_columns(const block *b)
{
    char *packed = b->packed;
    const gd_gemm_micro *micro = b->micro;
    const gd_gemm_product *p = b->p;
    if (p->b_packed)
        return;
    if (p->access && p->access->pack_b) {
        p->access->pack_b(p->access, micro, packed, p->b, b->step, b->depth, p->column + b->column,
                          b->columns, b->stage);
        return;
    }
    const bool all = b->packed_all && !b->copied;
    if (!all && ((micro->any_width && !b->copied) || b->columns % micro->lanes == 0))
        return;
    const int64_t first = all ? 0 : b->columns / micro->columns * micro->columns;
    const int64_t at = b->step * p->b_row + (b->column + first) * p->b_col;
    if (b->copied)
        packed += first * b->packed_depth * micro->b_packed_bytes;
    micro->pack_b(packed, gd_gemm_at(p->b, at, micro->b_bytes), p->b_row, p->b_col, b->depth,
                  b->columns - first);
}

/* All panels of rows of C against one block of B: even ones, of units of rows. */
static void multiply_block(const block *b)
{
    const int64_t m = b->p->m, unit = b->micro->row_unit;
    const int64_t panels = (m + b->micro->rows - 1) / b->micro->rows;
    const int64_t height = m / unit / panels; /* units of rows a panel, */
    const int64_t higher = m / unit % panels; /* and how many have one more */
    int64_t row = 0;
    for (int64_t i = 0; i < panels; i++) {
        const int64_t rows = i < panels - 1 ? (height + (i < higher)) * unit : m - row;
        multiply_panel(b, row, rows);
        row += rows;
    }
}

/* Bytes of B that are packed together: a block, or its ragged last panel alone. */
static size_t packed_bytes(const gd_gemm_micro *micro, const gd_gemm_plan *plan, int64_t n,
                           int64_t k)
{
    const int64_t unit = micro->depth_unit, whole = gd_gemm_vectors(micro, n) << micro->lane_shift;
    const int64_t deepest = gd_gemm_least((k + unit - 1) / unit * unit, micro->depth);
    const int64_t columns =
        plan->pack_b.taken ? gd_gemm_least(plan->block_columns, whole) : micro->columns;
    return (size_t)(columns * deepest * micro->b_packed_bytes);
}

/* The block of B that gd_gemm_pack_ahead has packed. Its panels are those of the whole product. */
static char *packed_ahead(const block *b)
{
    const gd_gemm_product *p = b->p;
    const int64_t at = b->step * p->b_width + (p->column + b->column) * b->packed_depth;
    return (char *)(uintptr_t)p->b_packed + at * b->micro->b_packed_bytes;
}

size_t gd_gemm_ahead_bytes(const gd_gemm_micro *micro, int64_t k, int64_t n)
{
    const int64_t unit = micro->depth_unit, width = gd_gemm_vectors(micro, n) << micro->lane_shift;
    return (size_t)((k + unit - 1) / unit * unit * width * micro->b_packed_bytes);
}

void gd_gemm_pack_ahead(const gd_gemm_micro *micro, void *dst, const void *b, int64_t b_row,
                        int64_t b_col, int64_t k, int64_t n)
{
    const int64_t width = gd_gemm_vectors(micro, n) << micro->lane_shift;
    for (int64_t step = 0; step < k; step += micro->depth)
        micro->pack_b((char *)dst + step * width * micro->b_packed_bytes,
                      gd_gemm_at(b, step * b_row, micro->b_bytes), b_row, b_col,
                      gd_gemm_least(k - step, micro->depth), n);
}

/* The five loops: blocks of columns, blocks of k, panels of rows; then panels of columns above, and
 * k in the kernel. */
static void multiply_blocks(const gd_gemm_micro *micro, const gd_gemm_plan *plan,
                            const gd_gemm_product *p, gd_scratch scratch)
{
    const int64_t most = plan->block_columns, unit = micro->depth_unit;
    const int64_t columns = gd_gemm_least(most, gd_gemm_vectors(micro, p->n) << micro->lane_shift);
    block b = {
        .micro = micro, .p = p, .packed_all = plan->pack_b.taken, .pack_rows = plan->pack_a.taken
    };
    b.copied = b.packed_all && micro->reads_b && p->b_col == 1 && !p->access && !p->b_packed;
    if (!p->b_packed)
        b.packed = gd_scratch_take(&scratch, packed_bytes(micro, plan, p->n, p->k));
    if (b.pack_rows)
        b.row_panel = gd_scratch_take(&scratch, GD_GEMM_PANEL_BYTES);
    if (p->access && p->access->stage_bytes > 0)
        b.stage = gd_scratch_take(&scratch, p->access->stage_bytes);
    for (b.column = 0; b.column < p->n; b.column += columns) {
        b.columns = gd_gemm_least(p->n - b.column, columns);
        for (b.step = 0; b.step < p->k; b.step += micro->depth) {
            b.depth = gd_gemm_least(p->k - b.step, micro->depth);
            b.packed_depth = unit == 1 ? b.depth : (b.depth + unit - 1) / unit * unit;
            if (p->b_packed)
                b.packed = packed_ahead(&b);
            pack_columns(&b);
            multiply_block(&b);
        }
    }
}

/* A product with one row. */
static void multiply_row(const gd_gemm_micro *micro, gd_gemm_way way, const gd_gemm_product *p,
                         gd_scratch scratch)
{
    /* What is left of columns cut into pieces may be narrow. */
    const bool narrow = p->n < micro->lanes && (way == GD_GEMM_DOTS || !micro->any_width);
    if (narrow || way == GD_GEMM_SCALARS)
        micro->row->scalars(p);
    else if (way == GD_GEMM_CHAINS)
        micro->row->chains(p);
    else if (way == GD_GEMM_STREAMS)
        gd_gemm_streams(micro, p, scratch);
    else
        micro->row->dots(p);
}

/* One product, or a part of one, in this thread. m, n, k > 0. */
static void multiply(const gd_gemm_micro *micro, const gd_gemm_plan *plan, const gd_gemm_product *p,
                     gd_scratch scratch)
{
    const gd_gemm_way way = (gd_gemm_way)plan->way.taken;
    if (way == GD_GEMM_BLOCKS) {
        multiply_blocks(micro, plan, p, scratch);
        return;
    }
    if (p->m == 1) {
        multiply_row(micro, way, p, scratch);
    } else {
        gd_gemm_product row = *p;
        row.m = 1;
        for (int64_t i = 0; i < p->m; i++) {
            multiply_row(micro, way, &row, scratch);
            row.a = gd_gemm_at(row.a, p->a_row, micro->a_bytes);
            row.c = (char *)row.c + p->c_row * micro->c_bytes;
            if (row.row_bias)
                row.row_bias = gd_gemm_at(row.row_bias, p->row_bias_stride, micro->c_bytes);
        }
    }
    if (p->relu_result)
        apply_relu_grad(micro, p, 0, p->m, 0, p->n);
}

/* Element offsets of the product at batch index `batch`. */
static void locate(const gd_gemm_plan *plan, int64_t batch, int64_t *a, int64_t *b, int64_t *c)
{
    *a = *b = *c = 0;
    for (int d = plan->batch_rank - 1; d >= 0; d--) {
        const int64_t at = d > 0 ? batch % plan->batch_shape[d] : batch;
        batch = d > 0 ? batch / plan->batch_shape[d] : 0;
        *a += at * plan->a_batch_stride[d];
        *b += at * plan->b_batch_stride[d];
        *c += at * plan->c_batch_stride[d];
    }
}

/* Piece `index` of the batch, *p, which is the first product before. Columns are cut at whole
 * vectors; of a packed B, at whole panels. */
static void get_piece(const gd_gemm_micro *micro, const gd_gemm_plan *plan, int64_t index,
                      gd_gemm_product *p)
{
    const int64_t biases = p->access ? p->m : 0; /* from product to product */
    int64_t batch = index, row = 0, column = 0, a, b, c;
    if (plan->row_parts * plan->column_parts > 1) {
        const int64_t part = index % (plan->row_parts * plan->column_parts);
        batch = index / (plan->row_parts * plan->column_parts);
        const int64_t i = part / plan->column_parts, j = part % plan->column_parts;
        const int64_t m = p->m, n = p->n, unit = p->b_packed ? micro->columns : micro->lanes;
        const int64_t units = (n + unit - 1) / unit;
        row = m * i / plan->row_parts;
        column = units * j / plan->column_parts * unit;
        p->m = m * (i + 1) / plan->row_parts - row;
        p->n = gd_gemm_least(units * (j + 1) / plan->column_parts * unit, n) - column;
    }
    locate(plan, batch, &a, &b, &c);
    p->column = column;
    c += row * p->c_row + column * p->c_col;
    p->a = gd_gemm_at(p->a, a + row * p->a_row, micro->a_bytes);
    p->b = gd_gemm_at(p->b, b + column * p->b_col, micro->b_bytes);
    p->c = (char *)p->c + c * micro->c_bytes;
    if (p->relu_result)
        p->relu_result = gd_gemm_at(p->relu_result, c, micro->c_bytes);
    if (p->row_bias)
        p->row_bias =
            gd_gemm_at(p->row_bias, (batch * biases + row) * p->row_bias_stride, micro->c_bytes);
    if (p->column_bias)
        p->column_bias = gd_gemm_at(p->column_bias, column * p->column_bias_stride, micro->c_bytes);
}

typedef struct pieces_work {
    const gd_gemm_micro *micro;
    const gd_gemm_plan *plan;
    const gd_gemm_product *first;
    const gd_workspace *workspace;
} pieces_work;

static void run_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const pieces_work *work = context;
    const gd_scratch scratch = gd_scratch_of_thread(work->workspace, thread);
    if (work->micro->begin)
        work->micro->begin();
    for (int64_t index = begin; index < end; index++) {
        gd_gemm_product p = *work->first;
        get_piece(work->micro, work->plan, index, &p);
        if (p.m > 0 && p.n > 0)
            multiply(work->micro, work->plan, &p, scratch);
    }
    if (work->micro->end)
        work->micro->end();
    if (work->first->streams)
        work->micro->stream(NULL, NULL, 0);
}

/* `first` is the plan's first product, with the addresses of this call. */
static void run(const gd_gemm_micro *micro, const gd_gemm_plan *plan, const gd_gemm_product *first,
                const gd_workspace *workspace)
{
    if (plan->way.taken == GD_GEMM_STRETCHES) {
        gd_gemm_stretches(micro, first, workspace, plan->threads);
    } else if (plan->pieces == 1 && !micro->begin && !first->streams) {
        multiply(micro, plan, first, gd_scratch_of_thread(workspace, 0));
    } else {
        pieces_work work = { micro, plan, first, workspace };
        gd_parallel_for(plan->threads, plan->pieces, 1, run_pieces, &work);
    }
}

size_t gd_gemm_most_bytes(const gd_gemm_micro *micro, const gd_paths *paths, int64_t width,
                          int64_t depth)
{
    gd_gemm_plan plan = { .block_columns = gd_gemm_block_columns(micro, paths) };
    const size_t in_place = packed_bytes(micro, &plan, width, depth);
    plan.pack_b.taken = 1;
    const size_t packed = packed_bytes(micro, &plan, width, depth);
    const size_t blocks = (packed > in_place ? packed : in_place) + GD_GEMM_PANEL_BYTES;
    const size_t streams = gd_gemm_streams_bytes(micro, width);
    return gd_scratch_bytes(blocks > streams ? blocks : streams, GD_GEMM_SCRATCH_BLOCKS);
}

gd_workspace gd_gemm_plan_scratch(const gd_gemm_micro *micro, const gd_gemm_plan *plan)
{
    const gd_gemm_product *p = &plan->first;
    const int threads = plan->threads;
    size_t bytes = 0;
    switch ((gd_gemm_way)plan->way.taken) {
    case GD_GEMM_STRETCHES:
        bytes =
            (gd_gemm_stretches_bytes(micro, p, threads) + (size_t)threads - 1) / (size_t)threads;
        return (gd_workspace){ NULL, gd_scratch_bytes(bytes, GD_GEMM_SCRATCH_BLOCKS), threads };
    case GD_GEMM_BLOCKS: {
        const int64_t parts = plan->column_parts, vectors = gd_gemm_vectors(micro, p->n);
        const int64_t widest = (vectors + parts - 1) / parts << micro->lane_shift;
        bytes = packed_bytes(micro, plan, widest, p->k) +
                (plan->pack_a.taken ? GD_GEMM_PANEL_BYTES : 0) +
                (p->access ? p->access->stage_bytes : 0);
        break;
    }
    case GD_GEMM_STREAMS:
        bytes = gd_gemm_streams_bytes(micro, p->n);
        break;
    default:
        return (gd_workspace){ 0 };
    }
    return (gd_workspace){ NULL, gd_scratch_bytes(bytes, GD_GEMM_SCRATCH_BLOCKS),
                           gd_parallel_ranges(threads, plan->pieces, 1) };
}

void gd_gemm_run(const gd_gemm_micro *micro, const gd_gemm_plan *plan,
                 const gd_gemm_operands *operands, const gd_workspace *workspace)
{
    const bool transposed = plan->transposed.taken;
    gd_gemm_product p = plan->first;
    if (plan->has_steps) {
        p.a = transposed ? operands->b : operands->a;
        p.b = transposed ? operands->a : operands->b;
    }
    *(transposed ? &p.row_bias : &p.column_bias) = operands->bias;
    p.c = operands->c;
    p.b_packed = operands->b_packed;
    p.relu_result = operands->relu_result;
    run(micro, plan, &p, workspace);
}

void gd_gemm(const gd_gemm_micro *micro, const gd_gemm_args *args)
{
    gd_gemm_plan plan;
    if (gd_gemm_choose(micro, args, &plan))
        run(micro, &plan, &plan.first, &args->workspace);
}
