/* backend/cpu/gemm_rows.h: the kernels of products with one row, y[n] = x[k] @ B[k, n]. Nothing is
 * reused here but y, so it is memory that bounds them, or, when small, the latency of an addition
 * chain. Products with one column come here transposed. gemm_rows.c makes products of `row_sums`,
 * for many columns.
 */
#ifndef GD_BACKEND_CPU_GEMM_ROWS_H
#define GD_BACKEND_CPU_GEMM_ROWS_H

#include "backend/cpu/gemm_pack.h"

#define STREAMS GD_GEMM_ABREAST

/* values [count] -> columns [first, first+count) of the one row of C, with bias and ReLU. */
static void store_row(const gd_gemm_product *p, int64_t first, int64_t count, const void *from)
{
    const REAL *values = from, *column_bias = p->column_bias, *row_bias = p->row_bias;
    REAL *c = (REAL *)p->c + first * p->c_col;
    int64_t j = 0;
    if (p->c_col == 1 && p->column_bias_stride == 1 && !row_bias)
        for (; j + LANES <= count; j += LANES) {
            VEC y = V(load)(values + j);
            if (column_bias)
                y = V(add)(y, V(load)(column_bias + first + j));
            V(store)(c + j, p->relu ? V(relu)(y) : y);
        }
    for (; j < count; j++) {
        REAL y = values[j];
        if (column_bias)
            y = y + column_bias[(first + j) * p->column_bias_stride];
        if (row_bias)
            y = y + row_bias[0];
        c[j * p->c_col] = p->relu && y < 0 ? (REAL)0 : y;
    }
}

#ifdef CHAINS_MAX /* of gemm_tile.h */
/* Few columns, contiguous: all of k in registers, blocks side by side. */
static void row_chains(const gd_gemm_product *p)
{
    const REAL *b = p->b, *column_bias = p->column_bias;
    REAL values[COLUMNS_MAX], *c = p->c;
    for (int64_t j = 0; j < p->n;) {
        int64_t columns = p->n - j < COLUMNS_MAX ? p->n - j : COLUMNS_MAX;
        int64_t vecs = (columns + LANES - 1) / LANES;
        if (!GD_SIMD_MASK_FREE && columns < vecs * LANES) { /* compute some columns twice instead */
            vecs = vecs * LANES <= p->n ? vecs : 1;
            columns = vecs * LANES;
            j = j + columns <= p->n ? j : p->n - columns;
        }
        const bool plain = p->c_col == 1 && p->column_bias_stride == 1;
        const gd_gemm_tile t = {
            .a = p->a,
            .a_step = p->a_col,
            .b = b + j,
            .b_step = p->b_row,
            .c = plain ? c + j : values,
            .depth = p->k,
            .columns = columns,
            .column_bias = plain && column_bias ? column_bias + j : NULL,
            .row_bias = plain ? p->row_bias : NULL,
            .relu = plain && p->relu,
        };
        (vecs == 2 ? chain_2 : chain_1)(&t);
        if (!plain)
            store_row(p, j, columns, values);
        j += columns;
    }
}
#endif

/* One number of C with several blocks side by side, for fewer columns than a vector holds where
 * masks are not free. */
static REAL dot_scalar(const ITEM *x, int64_t x_step, const ITEM *y, int64_t y_step, int64_t k)
{
    enum { BLOCKS = 4 };
    REAL total = 0;
    for (int64_t from = 0; from < k; from += BLOCKS * GD_GEMM_KC) {
        const int64_t rest = k - from;
        REAL sum[BLOCKS] = { 0 };
        for (int64_t p = 0; p < GD_GEMM_KC && p < rest; p++) {
            UNROLL
            for (int g = 0; g < BLOCKS; g++) {
                const int64_t at = p + g * GD_GEMM_KC;
                if (at < rest)
                    sum[g] = FMA(ITEM_VALUE(x[(from + at) * x_step]),
                                 ITEM_VALUE(y[(from + at) * y_step]), sum[g]);
            }
        }
        for (int g = 0; g < BLOCKS && g * GD_GEMM_KC < rest; g++)
            total = from == 0 && g == 0 ? sum[g] : total + sum[g];
    }
    return total;
}

static void row_scalars(const gd_gemm_product *p)
{
    const ITEM *b = p->b;
    for (int64_t j = 0; j < p->n; j++) {
        const REAL y = dot_scalar(p->a, p->a_col, b + j * p->b_col, p->b_row, p->k);
        store_row(p, j, 1, &y);
    }
}

/* s [n] = start + `rows` rows of B times x, for a constant number of rows; no start is zeros.
 * Rows read abreast are as many streams, and memory gives several at a lower rate than one; so the
 * rows at `next`, which are read afterwards, are meanwhile fetched into the second-level cache, one
 * after the other. NULL: there are none. */
GD_SIMD_INLINE void row_stream(const gd_gemm_product *p, int64_t from, const int rows,
                               const ITEM *next, const REAL *start, REAL *s)
{
    const int64_t whole = p->n / LANES * LANES;
    const ITEM *b = (const ITEM *)p->b + from * p->b_row, *next_end = next ? next + p->n : NULL;
    const ITEM *a = p->a;
    VEC x[STREAMS];
    UNROLL
    for (int r = 0; r < rows; r++)
        x[r] = V(set1)(ITEM_VALUE(a[(from + r) * p->a_col]));
    for (int64_t j = 0; j < whole; j += LANES) {
        if (rows > 1 && next) {
            UNROLL
            for (int r = 0; r < rows; r += (int)(ITEM_LINE / LANES))
                __builtin_prefetch(next + r * LANES, 0, 2);
            next += rows * LANES;
            if (next >= next_end) {
                next += p->b_row - p->n;
                next_end += p->b_row;
            }
        }
        VEC sum = start ? V(load)(start + j) : V(zero)();
        UNROLL
        for (int r = 0; r < rows; r++)
            sum = V(fma)(x[r], ITEM_LOAD(b + r * p->b_row + j), sum);
        V(store)(s + j, sum);
    }
    if (whole < p->n) {
        VEC sum = start ? V(load)(start + whole) : V(zero)();
        UNROLL
        for (int r = 0; r < rows; r++)
            sum = V(fma)(x[r], ITEM_LOAD_FIRST(b + r * p->b_row + whole, p->n - whole), sum);
        V(store)(s + whole, sum);
    }
}

/* s [n, rounded up to vectors] = start + the sums over rows [from, end) of one block of k. Row
 * `then` of B is read next; -1: none. */
static __attribute__((noinline)) void row_sums(const gd_gemm_product *p, int64_t from, int64_t end,
                                               int64_t then, const void *from_sums, void *sums)
{
    const ITEM *b = p->b;
    const REAL *start = from_sums;
    REAL *s = sums;
    const bool large = p->k * p->n > GD_GEMM_LARGE;
    for (; from + STREAMS <= end; from += STREAMS, start = s) {
        const int64_t next = from + 2 * STREAMS <= end ? from + STREAMS : then;
        const ITEM *fetched = large && next >= 0 ? b + next * p->b_row : NULL;
        row_stream(p, from, STREAMS, fetched, start, s);
    }
    for (; from < end; from++, start = s)
        row_stream(p, from, 1, NULL, start, s);
}

/* total [count, rounded up to vectors] += s */
static __attribute__((noinline)) void add_sums(void *total, const void *sums, int64_t count)
{
    REAL *to = total;
    const REAL *s = sums;
    for (int64_t i = 0; i < count; i += LANES)
        V(store)(to + i, V(add)(V(load)(to + i), V(load)(s + i)));
}

/* B transposed in memory, so y[j] is a dot product of contiguous rows: squares of B are transposed
 * in registers, for the lanes must be different j if each sum is to run along k in order. Squares
 * lie across as many streams; while some columns are multiplied the next are fetched into the
 * second level of caches one after the other, and the next square into the first. n >= LANES. */
static void row_dots(const gd_gemm_product *p)
{
    const bool fetch = p->b_col == p->k && p->k * p->n > GD_GEMM_LARGE;
    const int64_t b_col = p->b_col;
    const ITEM *rows = p->b, *a = p->a;
    for (int64_t j = 0; j < p->n; j += LANES) {
        const int64_t first = LEAST(j, p->n - LANES); /* at the edge some columns twice */
        const ITEM *b = rows + first * b_col, *next = b + LANES * b_col;
        VEC total = V(zero)();
        for (int64_t block = 0; block < p->k; block += GD_GEMM_KC) {
            const int64_t end = LEAST(p->k, block + GD_GEMM_KC);
            const ITEM *x = a + block * p->a_col;
            VEC sum = V(zero)();
            int64_t q = block;
            for (; q + LANES <= end; q += LANES) {
                VEC square[LANES];
                const ITEM *column = b + q;
                UNROLL
                for (int i = 0; i < LANES; i++) {
                    square[i] = ITEM_LOAD(column + i % 4 * b_col);
                    if (fetch)
                        __builtin_prefetch(column + i % 4 * b_col + LANES, 0, 3);
                    if (i % 4 == 3) { /* one pointer: sixteen were walked from memory */
                        column += 4 * b_col;
                        OPAQUE(column);
                    }
                    if (fetch && i % (ITEM_LINE / LANES) == 0)
                        __builtin_prefetch(next + i * LANES, 0, 2);
                }
                next += LANES * LANES;
                V(transpose)(square);
                UNROLL
                for (int i = 0; i < LANES; i++, x += p->a_col)
                    sum = V(fma)(V(set1)(ITEM_VALUE(*x)), square[i], sum);
            }
            for (; q < end; q++, x += p->a_col) {
                REAL row[LANES];
                for (int i = 0; i < LANES; i++)
                    row[i] = ITEM_VALUE(b[i * b_col + q]);
                sum = V(fma)(V(set1)(ITEM_VALUE(*x)), V(load)(row), sum);
            }
            total = block == 0 ? sum : V(add)(total, sum);
        }
        REAL values[LANES];
        V(store)(values, total);
        store_row(p, first, LANES, values);
    }
}

#endif
