/* backend/cpu/gemm_vector.h: products with one row, y[n] = x[k] @ B[k, n]. Nothing is reused here
 * but y, so it is memory that bounds them, or, when small, the latency of an addition chain.
 * Products with one column come here transposed. Included by gemm_isa.c per element type. Start
 * reading at N(multiply_row).
 */

/* One product, or a part of one: C[m, n] = A[m, k] @ B[k, n]. Where the driver found it better, it
 * is the transposed of what the caller asked for, and the bias runs along rows. */
typedef struct product_t {
    int64_t m, n, k;
    const REAL *a;
    int64_t a_row, a_col;
    const REAL *b;
    int64_t b_row, b_col;
    REAL *c;
    int64_t c_row, c_col;
    const REAL *column_bias; // [n] or NULL
    int64_t column_bias_stride;
    const REAL *row_bias; // [m] or NULL
    int64_t row_bias_stride;
    bool relu, accumulate, transposed;
} product_t;

/* values [count] -> columns [first, first+count) of the one row of C, with bias and ReLU. */
static void N(store_row)(const product_t *p, int64_t first, int64_t count, const REAL *values)
{
    REAL *c = p->c + first * p->c_col;
    int64_t j = 0;
    if (p->c_col == 1 && p->column_bias_stride == 1 && !p->row_bias)
        for (; j + LANES <= count; j += LANES) {
            VEC y = V(load)(values + j);
            if (p->column_bias)
                y = V(add)(y, V(load)(p->column_bias + first + j));
            V(store)(c + j, p->relu ? V(relu)(y) : y);
        }
    for (; j < count; j++) {
        REAL y = values[j];
        if (p->column_bias)
            y = y + p->column_bias[(first + j) * p->column_bias_stride];
        if (p->row_bias)
            y = y + p->row_bias[0];
        c[j * p->c_col] = p->relu && y < 0 ? (REAL)0 : y;
    }
}

/* Few columns, contiguous: all of k in registers, blocks side by side. */
static void N(row_chains)(const product_t *p)
{
    REAL values[COLUMNS_MAX];
    for (int64_t j = 0; j < p->n;) {
        int64_t columns = p->n - j < COLUMNS_MAX ? p->n - j : COLUMNS_MAX;
        int64_t vecs = (columns + LANES - 1) / LANES;
        if (!GD_SIMD_MASK_FREE && columns < vecs * LANES) { /* do some columns twice instead */
            vecs = vecs * LANES <= p->n ? vecs : 1;
            columns = vecs * LANES;
            j = j + columns <= p->n ? j : p->n - columns;
        }
        const bool plain = p->c_col == 1 && p->column_bias_stride == 1;
        const tile_t t = {
            .a = p->a,
            .a_step = p->a_col,
            .b = p->b + j,
            .b_step = p->b_row,
            .c = plain ? p->c + j : values,
            .depth = p->k,
            .columns = columns,
            .column_bias = plain && p->column_bias ? p->column_bias + j : NULL,
            .row_bias = plain ? p->row_bias : NULL,
            .relu = plain && p->relu,
        };
        N(chain_kernels)[vecs - 1](&t);
        if (!plain)
            N(store_row)(p, j, columns, values);
        j += columns;
    }
}

/* One number of C with several blocks side by side, for fewer columns than a vector holds where
 * masks are not free. */
static REAL N(dot_scalar)(const REAL *x, int64_t x_step, const REAL *y, int64_t y_step, int64_t k)
{
    REAL total = 0;
    for (int64_t from = 0; from < k; from += CHAINS_MAX * GD_GEMM_KC) {
        const int64_t rest = k - from;
        REAL sum[CHAINS_MAX] = { 0 };
        for (int64_t p = 0; p < GD_GEMM_KC && p < rest; p++) {
            UNROLL
            for (int g = 0; g < CHAINS_MAX; g++) {
                const int64_t at = p + g * GD_GEMM_KC;
                if (at < rest)
                    sum[g] = FMA(x[(from + at) * x_step], y[(from + at) * y_step], sum[g]);
            }
        }
        for (int g = 0; g < CHAINS_MAX && g * GD_GEMM_KC < rest; g++)
            total = from == 0 && g == 0 ? sum[g] : total + sum[g];
    }
    return total;
}

/* s [columns] (+)= `rows` rows of B times x, for a constant number of rows. Rows read abreast are
 * as many streams, and memory gives several at a lower rate than one; so the next rows are
 * meanwhile fetched into the second-level cache, one after the other. */
GD_SIMD_INLINE void N(row_stream)(const product_t *p, int64_t from, int64_t j0, int64_t columns,
                                  const int rows, bool overwrite, REAL *s)
{
    const int64_t whole = columns / LANES * LANES;
    const VMASK mask = V(mask_first)(columns - whole);
    const REAL *b = p->b + from * p->b_row + j0;
    const bool fetch = rows > 1 && p->k * p->n > LARGE && from + 2 * rows <= p->k;
    const REAL *next = b + rows * p->b_row, *next_end = next + columns;
    VEC x[STREAMS];
    UNROLL
    for (int r = 0; r < rows; r++)
        x[r] = V(set1)(p->a[(from + r) * p->a_col]);
    for (int64_t j = 0; j < whole; j += LANES) {
        if (fetch) {
            UNROLL
            for (int r = 0; r < rows; r += (int)(LINE / LANES))
                __builtin_prefetch(next + r * LANES, 0, 2);
            next += rows * LANES;
            if (next >= next_end) {
                next += p->b_row - columns;
                next_end += p->b_row;
            }
        }
        VEC sum = overwrite ? V(zero)() : V(load)(s + j);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum = V(fma)(x[r], V(load)(b + r * p->b_row + j), sum);
        V(store)(s + j, sum);
    }
    if (whole < columns) {
        VEC sum = overwrite ? V(zero)() : V(load)(s + whole);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum = V(fma)(x[r], V(load_masked)(mask, b + r * p->b_row + whole), sum);
        V(store)(s + whole, sum);
    }
}

/* s [columns, rounded up to vectors] = the sums of the block of k that begins at `block`, for
 * columns [j, j+columns). */
static void N(row_sums)(const product_t *p, int64_t block, int64_t j, int64_t columns, REAL *s)
{
    const int64_t end = LEAST(p->k, block + GD_GEMM_KC);
    int64_t from = block;
    for (; from + STREAMS <= end; from += STREAMS)
        N(row_stream)(p, from, j, columns, STREAMS, from == block, s);
    for (; from < end; from++)
        N(row_stream)(p, from, j, columns, 1, from == block, s);
}

/* total [count, rounded up to vectors] += s */
static __attribute__((noinline)) void N(add_sums)(REAL *total, const REAL *s, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES)
        V(store)(total + i, V(add)(V(load)(total + i), V(load)(s + i)));
}

/* Many columns, contiguous: B is read once, several rows abreast, in long runs; sums stay in the
 * first-level cache. */
static void N(row_streams)(const product_t *p, REAL *scratch)
{
    REAL *s = scratch, *total = scratch + STREAM_COLUMNS;
    for (int64_t j = 0; j < p->n; j += STREAM_COLUMNS) {
        const int64_t columns = LEAST(p->n - j, STREAM_COLUMNS);
        N(row_sums)(p, 0, j, columns, total);
        for (int64_t block = GD_GEMM_KC; block < p->k; block += GD_GEMM_KC) {
            N(row_sums)(p, block, j, columns, s);
            N(add_sums)(total, s, columns);
        }
        N(store_row)(p, j, columns, total);
    }
}

/* The same on several threads, where rows are short. Threads that share columns jump from one part
 * of a row to the next; so each takes a stretch of B as it lies in memory instead, with rows of k
 * standing for it: of a block that it shares with another, some columns. Blocks are added when all
 * are there. */
typedef struct row_work_t {
    const product_t *p;
    REAL *sums; // [blocks, width]
    int64_t width;
} row_work_t;

static void N(run_stretch)(void *context, int64_t begin, int64_t end, int thread)
{
    const row_work_t *work = context;
    const int64_t k = work->p->k, width = work->width;
    product_t p = *work->p;
    (void)thread;
    p.k = LEAST(k, (end + GD_GEMM_KC - 1) / GD_GEMM_KC * GD_GEMM_KC); /* fetch no further */
    for (int64_t block = begin / GD_GEMM_KC * GD_GEMM_KC; block < end; block += GD_GEMM_KC) {
        const int64_t depth = LEAST(k - block, GD_GEMM_KC), from = begin - block, to = end - block;
        const int64_t first = from <= 0 ? 0 : from * width / depth / LANES * LANES;
        const int64_t last = to >= depth ? p.n : to * width / depth / LANES * LANES;
        REAL *sums = work->sums + block / GD_GEMM_KC * width + first;
        if (first < last)
            N(row_sums)(&p, block, first, last - first, sums);
    }
}

/* False where that is no better, or scratch of `room` numbers too small. */
static __attribute__((noinline)) bool N(row_stretches)(const product_t *p, REAL *scratch,
                                                       size_t room, int threads)
{
    const int64_t blocks = (p->k + GD_GEMM_KC - 1) / GD_GEMM_KC;
    const int64_t width = (p->n + LANES - 1) / LANES * LANES;
    if (p->m > 1 || p->b_col != 1 || p->accumulate || p->n <= 2 * COLUMNS_MAX ||
        p->n > STREAM_COLUMNS || blocks > (int64_t)room / width)
        return false;
    row_work_t work = { p, scratch, width };
    gd_parallel_for(threads, p->k, 1, N(run_stretch), &work);
    for (int64_t block = 1; block < blocks; block++)
        N(add_sums)(scratch, scratch + block * width, width);
    N(store_row)(p, 0, p->n, scratch);
    return true;
}

/* B transposed in memory, so y[j] is a dot product of contiguous rows: squares of B are turned in
 * registers, for the lanes must be different j if each sum is to run along k in order. Squares lie
 * across as many streams; while some columns are multiplied the next are fetched one after the
 * other. n >= LANES. */
static void N(row_dots)(const product_t *p)
{
    const bool fetch = p->b_col == p->k && p->k * p->n > LARGE;
    const int64_t b_col = p->b_col;
    for (int64_t j = 0; j < p->n; j += LANES) {
        const int64_t first = LEAST(j, p->n - LANES); /* at the edge some columns twice */
        const REAL *b = p->b + first * b_col, *next = b + LANES * b_col;
        VEC total = V(zero)();
        for (int64_t block = 0; block < p->k; block += GD_GEMM_KC) {
            const int64_t end = LEAST(p->k, block + GD_GEMM_KC);
            const REAL *x = p->a + block * p->a_col;
            VEC sum = V(zero)();
            int64_t q = block;
            for (; q + LANES <= end; q += LANES) {
                VEC square[LANES];
                const REAL *column = b + q;
                UNROLL
                for (int i = 0; i < LANES; i++) {
                    square[i] = V(load)(column + i % 4 * b_col);
                    if (i % 4 == 3) { /* one pointer: sixteen were walked from memory */
                        column += 4 * b_col;
                        OPAQUE(column);
                    }
                    if (fetch && i % (LINE / LANES) == 0)
                        __builtin_prefetch(next + i * LANES, 0, 2);
                }
                next += LANES * LANES;
                V(transpose)(square);
                UNROLL
                for (int i = 0; i < LANES; i++, x += p->a_col)
                    sum = V(fma)(V(set1)(*x), square[i], sum);
            }
            for (; q < end; q++, x += p->a_col) {
                REAL row[LANES];
                for (int i = 0; i < LANES; i++)
                    row[i] = b[i * b_col + q];
                sum = V(fma)(V(set1)(*x), V(load)(row), sum);
            }
            total = block == 0 ? sum : V(add)(total, sum);
        }
        REAL values[LANES];
        V(store)(values, total);
        N(store_row)(p, first, LANES, values);
    }
}

/* y = x @ B. False when the strides of B suit none of the ways above, and packing it is best. */
static bool N(multiply_row)(const product_t *p, REAL *scratch)
{
    if (p->n < LANES && !GD_SIMD_MASK_FREE && (p->n == 1 || p->b_col == 1)) {
        for (int64_t j = 0; j < p->n; j++) {
            const REAL y = N(dot_scalar)(p->a, p->a_col, p->b + j * p->b_col, p->b_row, p->k);
            N(store_row)(p, j, 1, &y);
        }
        return true;
    }
    if (p->b_col == 1 || p->n == 1) {
        if (p->n <= 2 * COLUMNS_MAX)
            N(row_chains)(p);
        else
            N(row_streams)(p, scratch);
        return true;
    }
    if (p->b_row == 1 && p->n >= LANES) {
        N(row_dots)(p);
        return true;
    }
    return false;
}
