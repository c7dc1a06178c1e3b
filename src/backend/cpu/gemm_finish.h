/* backend/cpu/gemm_finish.h: how a tile's sums leave the registers: added to C, with bias and ReLU. Of
 * the micro-kernels of products and of those convolutions that have kernels of their own. Start at
 * tile_finish.
 */
#ifndef GD_BACKEND_CPU_GEMM_FINISH_H
#define GD_BACKEND_CPU_GEMM_FINISH_H

#include "backend/cpu/gemm_real.h"

/* Vector v of a row of the tile. Where masks are free the last one is always masked, full or not.
 */
GD_SIMD_INLINE VEC load_vec(const REAL *row, int v, int vecs, VMASK mask)
{
    return GD_SIMD_MASK_FREE && v == vecs - 1 ? V(load_masked)(mask, row + v * LANES)
                                              : V(load)(row + v * LANES);
}

GD_SIMD_INLINE void store_vec(REAL *row, int v, int vecs, VMASK mask, VEC x)
{
    if (GD_SIMD_MASK_FREE && v == vecs - 1)
        V(store_masked)(row + v * LANES, mask, x);
    else
        V(store)(row + v * LANES, x);
}

GD_SIMD_INLINE VMASK tile_mask(const gd_gemm_tile *t, int vecs)
{
    return V(mask_first)(GD_SIMD_MASK_FREE ? t->columns - (vecs - 1) * LANES : LANES);
}

/* Asks for the rows of C that the tile's sums will be added to, which may be in memory by then. On
 * Zen 5 2048 x 384 x 1536 takes 9.9 ms instead of 10.8 while others use the memory, else no less;
 * Emerald Rapids gains nothing. */
GD_SIMD_INLINE void tile_fetch_c(const gd_gemm_tile *t, const int rows, const int vecs)
{
    const REAL *c = t->c;
    if (t->accumulate)
        for (int i = 0; i < rows; i++, c += t->c_row)
            for (int v = 0; v < vecs; v++)
                __builtin_prefetch(c + v * LANES, 1, 3);
}

/* sum[rows][vecs] -> C. Each stage covers the whole tile, so that every `if` is asked once. */
GD_SIMD_INLINE void tile_finish(const gd_gemm_tile *t, VEC sum[][VECS_MAX], const int rows,
                                const int vecs)
{
    const VMASK mask = tile_mask(t, vecs);
    if (t->accumulate) {
        const REAL *c = t->c;
        UNROLL
        for (int i = 0; i < rows; i++, c += t->c_row) {
            UNROLL
            for (int v = 0; v < vecs; v++)
                sum[i][v] = V(add)(load_vec(c, v, vecs, mask), sum[i][v]);
        }
    }
    if (t->column_bias) {
        UNROLL
        for (int v = 0; v < vecs; v++) {
            const VEC bias = load_vec(t->column_bias, v, vecs, mask);
            UNROLL
            for (int i = 0; i < rows; i++)
                sum[i][v] = V(add)(sum[i][v], bias);
        }
    }
    if (t->row_bias) {
        const REAL *row_bias = t->row_bias;
        UNROLL
        for (int i = 0; i < rows; i++) {
            const VEC bias = V(set1)(row_bias[i * t->row_bias_stride]);
            UNROLL
            for (int v = 0; v < vecs; v++)
                sum[i][v] = V(add)(sum[i][v], bias);
        }
    }
    if (t->relu) {
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int v = 0; v < vecs; v++)
                sum[i][v] = V(relu)(sum[i][v]);
        }
    }
    REAL *c = t->c;
    UNROLL
    for (int i = 0; i < rows; i++, c += t->c_row) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            store_vec(c, v, vecs, mask, sum[i][v]);
    }
}

/* count numbers that follow each other. */
GD_SIMD_INLINE void copy_run(REAL *dst, const REAL *src, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        V(store)(dst + i, V(load)(src + i));
    if (GD_SIMD_MASK_FREE) {
        const VMASK mask = V(mask_first)(count - i);
        V(store_masked)(dst + i, mask, V(load_masked)(mask, src + i));
        return;
    }
    if (i < count && count >= LANES) { /* once more, some of them */
        V(store)(dst + count - LANES, V(load)(src + count - LANES));
        return;
    }
    for (; i < count; i++)
        dst[i] = src[i];
}

/* Numbers `from` apart to where they are `to` apart. */
static inline void copy_strided(REAL *dst, int64_t to, const REAL *src, int64_t from, int64_t count)
{
#if GD_SIMD_MASK_FREE && !defined(GD_GEMM_F64)
    for (; from == 2 && to == 1 && count > 0; count -= LANES, src += 2 * LANES, dst += LANES)
        V(store_masked)
    (dst, V(mask_first)(LEAST(count, LANES)), V(load_even)(src, LEAST(count, LANES)));
    for (; from == 1 && to == 2 && count > 0; count -= LANES, src += LANES, dst += 2 * LANES)
        V(store_even)
    (dst, LEAST(count, LANES), V(load_masked)(V(mask_first)(LEAST(count, LANES)), src));
#endif
    for (int64_t i = 0; i < count; i++)
        dst[i * to] = src[i * from];
}

/* The columns of a tile that lie in runs: gemm_micro.h. */
static inline void copy_runs(void *tile, int64_t tile_row, void *first, int64_t c_row, int64_t rows,
                             const gd_gemm_stretch *runs, int many, bool back)
{
    REAL *copy = tile, *c = first;
    for (int64_t i = 0; i < rows; i++, copy += tile_row, c += c_row)
        for (const gd_gemm_stretch *r = runs; r < runs + many; r++) {
            REAL *at = copy + r->at, *place = c + r->from;
            if (r->stride == 1)
                copy_run(back ? place : at, back ? at : place, r->count);
            else if (back)
                copy_strided(place, r->stride, at, 1, r->count);
            else
                copy_strided(at, 1, place, r->stride, r->count);
        }
}

/* The derivative of ReLU: gemm_micro.h. */
static inline void relu_grad(void *to, const void *result, int64_t lines, int64_t line,
                             int64_t count, int64_t step)
{
    for (int64_t i = 0; i < lines; i++) {
        REAL *restrict c = (REAL *)to + i * line;
        const REAL *restrict y = (const REAL *)result + i * line;
        for (int64_t j = 0; j < count && step == 1; j++)
            c[j] = y[j] > 0 ? c[j] : (REAL)0;
        for (int64_t j = 0; j < count && step != 1; j++)
            c[j * step] = y[j * step] > 0 ? c[j * step] : (REAL)0;
    }
}

/* A tile whose C is transposed: sums [rows, columns], whole vectors sum_row apart, to C, whose columns are
 * contiguous and c_col apart; bias [columns], bias_step apart, or NULL. */
static inline void store_columns(const void *from, int64_t sum_row, int64_t rows, int64_t columns,
                                 void *to, int64_t c_col, const void *column_bias,
                                 int64_t bias_step, bool relu)
{
    const REAL *sums = from, *bias = column_bias;
    REAL *c = to;
    for (int64_t j = 0; j < columns; j += LANES)
        for (int64_t i = 0; i < rows; i += LANES) {
            const VMASK mask = V(mask_first)(LEAST(rows - i, LANES));
            VEC square[LANES];
            UNROLL
            for (int k = 0; k < LANES; k++)
                square[k] = V(load)(sums + LEAST(i + k, rows - 1) * sum_row + j);
            V(transpose)(square);
            for (int64_t k = 0; k < LEAST(columns - j, LANES); k++) {
                VEC x = square[k];
                if (bias)
                    x = V(add)(x, V(set1)(bias[(j + k) * bias_step]));
                if (relu)
                    x = V(relu)(x);
                if (rows - i < LANES)
                    V(store_masked)(c + (j + k) * c_col + i, mask, x);
                else /* with AVX2 several times as fast */
                    V(store)(c + (j + k) * c_col + i, x);
            }
        }
}

#endif
