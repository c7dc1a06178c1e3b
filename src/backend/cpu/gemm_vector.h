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
    for (int64_t j = 0; j < count; j++) {
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

/* s [columns] (+)= `rows` rows of B times x, for a constant number of rows: `rows` streams through
 * memory. */
GD_SIMD_INLINE void N(row_stream)(const product_t *p, int64_t from, int64_t j0, int64_t columns,
                                  const int rows, bool overwrite, REAL *s)
{
    const int64_t whole = columns / LANES * LANES;
    const VMASK mask = V(mask_first)(columns - whole);
    const REAL *b = p->b + from * p->b_row + j0;
    VEC x[STREAMS];
    UNROLL
    for (int r = 0; r < rows; r++)
        x[r] = V(set1)(p->a[(from + r) * p->a_col]);
    for (int64_t j = 0; j < whole; j += LANES) {
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

/* Many columns, contiguous: B is read once, several rows abreast, in long runs; sums stay in the
 * first-level cache. */
static void N(row_streams)(const product_t *p, REAL *scratch)
{
    REAL *s = scratch, *total = scratch + STREAM_COLUMNS;
    for (int64_t j = 0; j < p->n; j += STREAM_COLUMNS) {
        const int64_t columns = p->n - j < STREAM_COLUMNS ? p->n - j : STREAM_COLUMNS;
        for (int64_t block = 0; block < p->k; block += GD_GEMM_KC) {
            const int64_t end = p->k - block < GD_GEMM_KC ? p->k : block + GD_GEMM_KC;
            REAL *sum = block == 0 ? total : s;
            int64_t from = block;
            for (; from + STREAMS <= end; from += STREAMS)
                N(row_stream)(p, from, j, columns, STREAMS, from == block, sum);
            for (; from < end; from++)
                N(row_stream)(p, from, j, columns, 1, from == block, sum);
            for (int64_t i = 0; block > 0 && i < columns; i++)
                total[i] = total[i] + s[i];
        }
        N(store_row)(p, j, columns, total);
    }
}

/* B transposed in memory, so y[j] is a dot product of contiguous rows: squares of B are turned in
 * registers, for the lanes must be different j if each sum is to run along k in order. */
static void N(row_dots)(const product_t *p)
{
    for (int64_t j = 0; j < p->n; j += LANES) {
        const int64_t columns = p->n - j < LANES ? p->n - j : LANES;
        const REAL *column[LANES];
        for (int i = 0; i < LANES; i++)
            column[i] = p->b + (j + (i < columns ? i : columns - 1)) * p->b_col;
        VEC total = V(zero)();
        for (int64_t block = 0; block < p->k; block += GD_GEMM_KC) {
            const int64_t end = p->k - block < GD_GEMM_KC ? p->k : block + GD_GEMM_KC;
            VEC sum = V(zero)();
            for (int64_t q = block; q < end; q += LANES) {
                const int64_t rest = end - q;
                const VMASK mask = V(mask_first)(rest < LANES ? rest : LANES);
                const REAL *x = p->a + q * p->a_col;
                VEC square[LANES];
                UNROLL
                for (int i = 0; i < LANES; i++)
                    square[i] =
                        rest < LANES ? V(load_masked)(mask, column[i] + q) : V(load)(column[i] + q);
                V(transpose)(square);
                UNROLL
                for (int i = 0; i < LANES; i++)
                    if (i < rest)
                        sum = V(fma)(V(set1)(x[i * p->a_col]), square[i], sum);
            }
            total = block == 0 ? sum : V(add)(total, sum);
        }
        REAL values[LANES];
        V(store)(values, total);
        N(store_row)(p, j, columns, values);
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
    if (p->b_row == 1) {
        N(row_dots)(p);
        return true;
    }
    return false;
}
