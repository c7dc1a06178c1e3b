/* backend/cpu/gemm_driver.h: from a description of a batch of products to calls of micro-kernels.
 * Included by gemm_isa.c per element type. N(run), at the end, divides the work over threads;
 * N(multiply) does one thread's part of one product.
 *
 * Blocking. A block of B, GD_GEMM_KC rows deep and as wide as half the second-level cache allows,
 * is packed into panels one tile wide. Against it goes one panel of A at a time, one tile high,
 * which stays in the first-level cache while the panels of B stream past it out of the second. This
 * is the scheme of Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008),
 * and of BLIS (Van Zee & van de Geijn 2015), with A and B exchanged: the depth is given by the
 * definition of the result, and at that depth it is the panel of A that fits the first level. Small
 * and thin products skip the packing, since kernels read A with any strides and B with contiguous
 * rows where they lie.
 */

/* A block of B and the rows of A and C that go with it. */
typedef struct block_t {
    const product_t *p;
    int64_t step, depth;     /* of k: [step, step+depth) */
    int64_t column, columns; /* of n */
    const REAL *packed;      /* the block, or its ragged last panel alone, as pack_b left it */
    bool packed_all;
    bool pack_rows; /* copy panels of A */
    REAL *row_panel;
} block_t;

/* One tile whose C has no contiguous rows, or no room for whole vectors: by way of a copy. */
static void N(tile_by_copy)(tile_t t, int64_t rows, int64_t vecs, int64_t c_col)
{
    REAL copy[ROWS_MAX * COLUMNS_MAX] = { 0 };
    REAL *c = t.c;
    const int64_t c_row = t.c_row;
    for (int64_t i = 0; t.accumulate && i < rows; i++)
        for (int64_t j = 0; j < t.columns; j++)
            copy[i * COLUMNS_MAX + j] = c[i * c_row + j * c_col];
    t.c = copy;
    t.c_row = COLUMNS_MAX;
    N(tile_kernels)[rows - 1][vecs - 1](&t);
    if (c_row == 1) {
        N(store_columns)(copy, COLUMNS_MAX, rows, t.columns, c, c_col, NULL, 0, false);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < t.columns; j++)
            c[i * c_row + j * c_col] = copy[i * COLUMNS_MAX + j];
}

/* The part of the block from its column j on that tile t covers: B, packed or where it lies, and
 * with the last block of k the bias, by way of `bias` if it is not contiguous. */
static void N(set_columns)(const block_t *block, int64_t j, int64_t vecs, bool ragged, tile_t *t,
                           REAL *bias)
{
    const product_t *p = block->p;
    const int64_t column = block->column + j;
    if (block->packed_all || ragged) {
        t->b = block->packed_all ? block->packed + j * t->depth : block->packed;
        t->b_step = vecs * LANES;
    } else {
        t->b = p->b + block->step * p->b_row + column;
        t->b_step = p->b_row;
    }
    if (!p->column_bias || block->step + block->depth < p->k)
        return;
    t->column_bias = p->column_bias + column * p->column_bias_stride;
    if (p->column_bias_stride != 1 || ragged) {
        for (int64_t i = 0; i < vecs * LANES; i++)
            bias[i] = i < t->columns ? t->column_bias[i * p->column_bias_stride] : (REAL)0;
        t->column_bias = bias;
    }
}

/* Rows [row, row+rows) of C against one block of B, tile by tile. */
static void N(multiply_panel)(const block_t *block, int64_t row, int64_t rows)
{
    const product_t *p = block->p;
    const bool last = block->step + block->depth == p->k;
    tile_t t = {
        .a = p->a + row * p->a_row + block->step * p->a_col,
        .a_row = p->a_row,
        .a_step = p->a_col,
        .c_row = p->c_row,
        .depth = block->depth,
        .row_bias = last && p->row_bias ? p->row_bias + row * p->row_bias_stride : NULL,
        .row_bias_stride = p->row_bias_stride,
        .next_a = p->a,
        .accumulate = block->step > 0 || p->accumulate,
        .relu = last && p->relu,
    };
    /* With few rows the time goes into reading B from memory: the first panel prefetches the next
     * block. */
    const bool next_block = p->m <= THIN_ROWS && !block->packed_all && p->k * p->n > LARGE &&
                            block->step + GD_GEMM_KC < p->k;
    if (next_block && row == 0)
        t.next_b = GD_GEMM_KC * p->b_row;
    if (p->a_col == 1 &&
        (next_block || (row + 2 * rows <= p->m &&
                        (block->pack_rows || p->n > DIRECT_COLUMNS || p->m * p->k > LARGE)))) {
        const int64_t tiles = (block->columns + COLUMNS_MAX - 1) / COLUMNS_MAX;
        t.next_a = t.a + (next_block ? GD_GEMM_KC : rows * p->a_row);
        t.next_a_row = p->a_row;
        t.next_lines = (t.depth + LINE * tiles - 1) / (LINE * tiles);
    }
    if (block->pack_rows) {
        N(pack_a)(block->row_panel, t.a, t.a_row, t.a_step, rows, t.depth, &t.a_row, &t.a_step);
        t.a = block->row_panel;
    }
    for (int64_t j = 0; j < block->columns; j += COLUMNS_MAX) {
        REAL bias[COLUMNS_MAX];
        t.columns = LEAST(block->columns - j, COLUMNS_MAX);
        const int64_t vecs = (t.columns + LANES - 1) / LANES;
        const bool ragged = !GD_SIMD_MASK_FREE && t.columns < vecs * LANES;
        N(set_columns)(block, j, vecs, ragged, &t, bias);
        t.c = p->c + row * p->c_row + (block->column + j) * p->c_col;
        if (p->c_col == 1 && !ragged)
            N(tile_kernels)[rows - 1][vecs - 1](&t);
        else
            N(tile_by_copy)(t, rows, vecs, p->c_col);
        if (last && p->relu_result)
            N(apply_relu_grad)(p, row, rows, block->column + j, t.columns);
        t.next_a += t.next_lines * LINE;
    }
}

/* Whether numbers this far apart fall into the same few sets of the caches. */
static bool N(collide)(int64_t stride)
{
    return stride % (4096 / (int64_t)sizeof(REAL)) == 0;
}

/* Whether to pack B, rather than to read it where it lies. A tile one cache line wide uses a page
 * for each line it reads, if rows are so far apart. */
static bool N(packing_pays)(const product_t *p)
{
    if (p->paths->matmul == GD_MATMUL_PACKED || p->paths->matmul == GD_MATMUL_DIRECT)
        return p->b_col != 1 || p->paths->matmul == GD_MATMUL_PACKED;
    const bool is_far = COLUMNS_MAX <= LINE && p->b_row > 16 * LINE;
    const int64_t most = N(collide)(p->b_row) ? DIRECT_ROWS / 4 : DIRECT_ROWS;
    return p->b_col != 1 || p->m > (is_far ? THIN_ROWS : most);
}

/* Whether to copy panels of A. */
static bool N(panel_pays)(const product_t *p)
{
    if (p->paths->matmul == GD_MATMUL_PACKED || p->paths->matmul == GD_MATMUL_DIRECT)
        return p->paths->matmul == GD_MATMUL_PACKED;
    return p->a_col == 1 ? p->m > 8 && N(collide)(p->a_row) : p->n > DIRECT_COLUMNS;
}

/* Columns of a packed block, as many as the cache holds. */
static int64_t N(block_columns)(const gd_paths *paths)
{
    return (int64_t)(paths->block_bytes / sizeof(REAL) / GD_GEMM_KC) / COLUMNS_MAX * COLUMNS_MAX;
}

/* The five loops: blocks of columns, blocks of k, panels of rows; then panels of columns above, and
 * k in the kernel. */
static void N(multiply_blocks)(const product_t *p, gd_scratch scratch)
{
    const int64_t most = N(block_columns)(p->paths);
    const int64_t block_columns = LEAST(most, (p->n + LANES - 1) / LANES * LANES);
    const int64_t panels = (p->m + ROWS_MAX - 1) / ROWS_MAX;
    const int64_t height = p->m / TILE_UNIT / panels; /* units of rows a panel, */
    const int64_t higher = p->m / TILE_UNIT % panels; /* and how many have one more */
    block_t block = {
        .p = p,
        .packed_all = N(packing_pays)(p),
        .pack_rows = N(panel_pays)(p),
    };
    const int64_t packed_columns = block.packed_all ? block_columns : COLUMNS_MAX;
    REAL *packed = gd_scratch_take(&scratch, (size_t)(packed_columns * LEAST(p->k, GD_GEMM_KC)) *
                                                 sizeof(REAL));
    block.packed = packed;
    block.row_panel = gd_scratch_take(&scratch, GD_GEMM_PANEL_BYTES);
    for (int64_t j = 0; j < p->n; j += block_columns) {
        block.column = j;
        block.columns = LEAST(p->n - j, block_columns);
        for (int64_t step = 0; step < p->k; step += GD_GEMM_KC) {
            block.step = step;
            block.depth = LEAST(p->k - step, GD_GEMM_KC);
            /* The first column to pack: all, none, or those of a last panel that does not fill its
             * vectors. */
            int64_t first = 0;
            if (!block.packed_all)
                first = !GD_SIMD_MASK_FREE && block.columns % LANES
                            ? block.columns / COLUMNS_MAX * COLUMNS_MAX
                            : block.columns;
            const REAL *from = p->b + step * p->b_row + (j + first) * p->b_col;
            N(pack_b)(packed, from, p->b_row, p->b_col, block.depth, block.columns - first);
            int64_t row = 0;
            for (int64_t i = 0; i < panels; i++) {
                const int64_t rows =
                    i < panels - 1 ? (height + (i < higher)) * TILE_UNIT : p->m - row;
                N(multiply_panel)(&block, row, rows);
                row += rows;
            }
        }
    }
}

/* Rows one by one, where that is better. */
static bool N(multiply_rows)(const product_t *p, gd_scratch scratch)
{
    const gd_matmul_path path = p->paths->matmul;
    if (p->accumulate || path == GD_MATMUL_PACKED || path == GD_MATMUL_DIRECT)
        return false;
    if (p->m == 1)
        return N(multiply_row)(p, scratch);
    if (path != GD_MATMUL_ROWS &&
        (p->m > CHAIN_ROWS || p->k <= GD_GEMM_KC || p->n > COLUMNS_MAX || p->b_col != 1))
        return false;
    product_t row = *p; /* too few sums side by side: take blocks of k side by side instead */
    row.m = 1;
    for (int64_t i = 0; i < p->m; i++) {
        if (!N(multiply_row)(&row, scratch)) /* of no row, then */
            return false;
        row.a += p->a_row;
        row.c += p->c_row;
        if (row.row_bias)
            row.row_bias += p->row_bias_stride;
    }
    return true;
}

/* One product, or a part of one, in this thread. m, n, k > 0. */
static void N(multiply)(const product_t *p, gd_scratch scratch)
{
    if (!N(multiply_rows)(p, scratch))
        N(multiply_blocks)(p, scratch);
    else if (p->relu_result)
        N(apply_relu_grad)(p, 0, p->m, 0, p->n);
}

/* Whether to compute C^T = B^T A^T: products commute and sums keep their order, so no bit changes.
 * Kernels want the rows of C and B contiguous, and n to fill vectors. The cost is in quarters of a
 * cycle per step of k: a multiply-add takes a cycle, packing a transposed number about half of one.
 */
static bool N(better_transposed)(const gd_gemm_args *args)
{
    const int64_t m = args->m, n = args->n;
    if (args->paths->matmul == GD_MATMUL_TRANSPOSED)
        return true;
    if (m == 1 || n == 1)
        return n == 1 && m > 1;
    if (args->c_col_stride != 1 && args->c_row_stride == 1)
        return true;
    const int64_t n_vecs = (n + LANES - 1) / LANES, m_vecs = (m + LANES - 1) / LANES;
    const int64_t as_is = 4 * m * n_vecs + (args->b_col_stride == 1 ? 0 : 2 * n);
    const int64_t transposed = 4 * n * m_vecs + (args->a_row_stride == 1 ? 0 : 2 * m);
    return transposed + transposed / 4 < as_is;
}

/* The first product of the batch. Field by field into place: copies of a fresh structure wait for
 * its stores. */
static void N(get_product)(const gd_gemm_args *args, product_t *p)
{
    const bool transposed = N(better_transposed)(args);
    p->k = args->k;
    p->c = args->c;
    p->relu = args->relu;
    p->relu_result = args->relu_result;
    p->accumulate = args->accumulate;
    p->transposed = transposed;
    p->paths = args->paths;
    if (!transposed) {
        p->m = args->m, p->n = args->n;
        p->a = args->a, p->a_row = args->a_row_stride, p->a_col = args->a_col_stride;
        p->b = args->b, p->b_row = args->b_row_stride, p->b_col = args->b_col_stride;
        p->c_row = args->c_row_stride, p->c_col = args->c_col_stride;
        p->column_bias = args->bias, p->column_bias_stride = args->bias ? args->bias_stride : 1;
        p->row_bias = NULL, p->row_bias_stride = 1;
    } else {
        p->m = args->n, p->n = args->m;
        p->a = args->b, p->a_row = args->b_col_stride, p->a_col = args->b_row_stride;
        p->b = args->a, p->b_row = args->a_col_stride, p->b_col = args->a_row_stride;
        p->c_row = args->c_col_stride, p->c_col = args->c_row_stride;
        p->column_bias = NULL, p->column_bias_stride = 1;
        p->row_bias = args->bias, p->row_bias_stride = args->bias_stride;
    }
}

/* A batch of products, each cut into row_parts by column_parts pieces. */
typedef struct work_t {
    product_t first; /* the product at batch index 0 */
    const gd_gemm_args *args;
    int64_t row_parts, column_parts;
} work_t;

/* Piece `index` of its product. Columns are cut at whole vectors. */
static void N(get_piece)(const work_t *work, int64_t index, product_t *p)
{
    const product_t *q = &work->first;
    const gd_gemm_args *args = work->args;
    int64_t batch = index, row = 0, column = 0;
    *p = *q;
    if (work->row_parts * work->column_parts > 1) {
        const int64_t part = index % (work->row_parts * work->column_parts);
        batch = index / (work->row_parts * work->column_parts);
        const int64_t i = part / work->column_parts, j = part % work->column_parts;
        const int64_t vecs = (q->n + LANES - 1) / LANES;
        row = q->m * i / work->row_parts;
        column = vecs * j / work->column_parts * LANES;
        p->m = q->m * (i + 1) / work->row_parts - row;
        p->n = LEAST(vecs * (j + 1) / work->column_parts * LANES, q->n) - column;
    }
    int64_t a = 0, b = 0, c = 0;
    for (int d = args->batch_rank - 1; d >= 0; d--) {
        const int64_t at = d > 0 ? batch % args->batch_shape[d] : batch;
        batch = d > 0 ? batch / args->batch_shape[d] : 0;
        a += at * args->a_batch_stride[d];
        b += at * args->b_batch_stride[d];
        c += at * args->c_batch_stride[d];
    }
    p->a += (q->transposed ? b : a) + row * q->a_row;
    p->b += (q->transposed ? a : b) + column * q->b_col;
    c += row * q->c_row + column * q->c_col;
    p->c += c;
    if (p->relu_result)
        p->relu_result += c;
    if (p->row_bias)
        p->row_bias += row * q->row_bias_stride;
    if (p->column_bias)
        p->column_bias += column * q->column_bias_stride;
}

static void N(run_pieces)(void *context, int64_t begin, int64_t end, int thread)
{
    const work_t *work = context;
    const gd_scratch scratch = gd_scratch_of_thread(&work->args->workspace, thread);
    for (int64_t index = begin; index < end; index++) {
        product_t p;
        N(get_piece)(work, index, &p);
        if (p.m > 0 && p.n > 0)
            N(multiply)(&p, scratch);
    }
}

static void N(run)(const gd_gemm_args *args);

/* k == 0: C is the bias alone. */
static void N(fill)(const gd_gemm_args *args)
{
    gd_gemm_args zero = *args; /* one product with 0 gives it without a second text */
    static const REAL nothing = 0;
    zero.k = 1;
    zero.a = zero.b = &nothing;
    zero.a_row_stride = zero.a_col_stride = zero.b_row_stride = zero.b_col_stride = 0;
    memset(zero.a_batch_stride, 0, sizeof zero.a_batch_stride);
    memset(zero.b_batch_stride, 0, sizeof zero.b_batch_stride);
    N(run)(&zero);
}

static void N(run)(const gd_gemm_args *args)
{
    int64_t batch = 1;
    for (int d = 0; d < args->batch_rank; d++)
        batch *= args->batch_shape[d];
    if (args->m <= 0 || args->n <= 0 || batch <= 0)
        return;
    if (args->k <= 0 && args->accumulate)
        return;
    if (args->k <= 0) {
        N(fill)(args);
        return;
    }
    gd_gemm_args joined;
    if (batch > 1) {
        joined = *args;
        batch = gd_gemm_join_batch(&joined);
        args = &joined;
    }
    const int threads = args->threads > 1 ? gd_gemm_threads(args, batch) : 1;
    work_t work;
    N(get_product)(args, &work.first);
    if (threads == 1 && args->batch_rank == 0) {
        N(multiply)(&work.first, gd_scratch_of_thread(&args->workspace, 0));
        return;
    }
    if (threads > 1 && batch == 1 && N(row_stretches)(&work.first, &args->workspace, threads))
        return;
    work.args = args;
    gd_gemm_divide(work.first.m, work.first.n, LANES, batch, threads, &work.row_parts,
                   &work.column_parts);
    gd_parallel_for(threads, batch * work.row_parts * work.column_parts, 1, N(run_pieces), &work);
}

/* The definition of the result, word for word (see gemm.h). */
static REAL N(reference_element)(const REAL *a, int64_t a_step, const REAL *b, int64_t b_step,
                                 int64_t k)
{
    REAL c = 0;
    for (int64_t block = 0; block < k; block += GD_GEMM_KC) {
        REAL s = 0;
        for (int64_t p = block; p < k && p < block + GD_GEMM_KC; p++)
            s = FMA(a[p * a_step], b[p * b_step], s);
        c = block == 0 ? s : c + s;
    }
    return c;
}

static void N(reference)(const gd_gemm_args *args)
{
    int64_t batch = 1;
    for (int d = 0; d < args->batch_rank; d++)
        batch *= args->batch_shape[d];
    for (int64_t index = 0; index < batch; index++) {
        const REAL *a = args->a, *b = args->b, *bias = args->bias, *y = args->relu_result;
        REAL *c = args->c;
        int64_t rest = index, first = 0;
        for (int d = args->batch_rank - 1; d >= 0; d--) {
            const int64_t at = rest % args->batch_shape[d];
            rest /= args->batch_shape[d];
            a += at * args->a_batch_stride[d];
            b += at * args->b_batch_stride[d];
            first += at * args->c_batch_stride[d];
        }
        for (int64_t i = 0; i < args->m; i++)
            for (int64_t j = 0; j < args->n; j++) {
                REAL x =
                    N(reference_element)(a + i * args->a_row_stride, args->a_col_stride,
                                         b + j * args->b_col_stride, args->b_row_stride, args->k);
                if (bias)
                    x = x + bias[j * args->bias_stride];
                const int64_t at = first + i * args->c_row_stride + j * args->c_col_stride;
                c[at] = (args->relu && x < 0) || (y && !(y[at] > 0)) ? 0 : x;
            }
    }
}
