/* backend/cpu/gemm_tile.h: the micro-kernels of the matrix product. A micro-kernel holds one tile
 * of C, `rows` by `vecs` vectors, in registers while it walks along k; it knows nothing of blocks,
 * threads or packing. Start at tile_body.
 */
#ifndef GD_BACKEND_CPU_GEMM_TILE_H
#define GD_BACKEND_CPU_GEMM_TILE_H

#include "backend/cpu/gemm_finish.h"
#include "backend/cpu/gemm_real.h"

#define CHAINS_MAX 4 /* blocks of k side by side */

/* How a tile reads B. */
enum {
    B_SHORT, /* its last vector may be short */
    B_WHOLE, /* whole vectors. On Intel's processors a masked load takes the place of a multiply-add,
              * for they share a port. */
    B_COPIED, /* whole vectors, which it packs as it goes; fetches what is next_b further on */
    B_FETCHED /* as B_SHORT; fetches what is next_b further on */
};

/* The sums of a tile, sum[rows][vecs] += A B over all of its depth; `rows`, `vecs` and `reading` are
 * constants where it is inlined. A number of A is one broadcast load, so A needs no particular
 * layout: four rows share a pointer, at 0, 1, 2 and 3 strides from it. */
GD_SIMD_INLINE void tile_sums(const gd_gemm_tile *t, VEC sum[][VECS_MAX], const int rows,
                              const int vecs, const int reading)
{
    const VMASK mask = tile_mask(t, vecs);
    const int64_t row = t->a_row, b_step = t->b_step, next_b = t->next_b;
    int64_t a_step = t->a_step;
    const REAL *a0 = t->a, *a4 = a0 + 4 * row, *a8 = a4 + 4 * row, *a12 = a8 + 4 * row;
    const REAL *b = t->b;
    const char *next_a = t->next_a;
    REAL *b_copy = t->b_copy;
    int64_t next_lines = t->next_lines;
    for (int64_t left = t->depth; left > 0;) {
        int64_t steps = left;
        if (next_lines-- > 0) {
            const char *line = next_a;
            for (int i = 0; i < rows; i++, line += t->next_a_bytes)
                __builtin_prefetch(line, 0, 2);
            next_a += t->next_a_step;
            steps = LEAST(left, LINE);
        }
        left -= steps;
        for (; steps > 0; steps--) {
            VEC bv[VECS_MAX];
            UNROLL
            for (int v = 0; v < vecs; v++) {
                bv[v] = reading == B_SHORT || reading == B_FETCHED ? load_vec(b, v, vecs, mask)
                                                                   : V(load)(b + v * LANES);
                if (reading == B_COPIED || reading == B_FETCHED)
                    __builtin_prefetch(b + next_b + v * LANES, 0, 2);
                if (reading == B_COPIED)
                    V(store)(b_copy + v * LANES, bv[v]);
            }
            b_copy += reading == B_COPIED ? vecs * LANES : 0;
            UNROLL
            for (int i = 0; i < rows; i++) {
                const REAL *a = i < 4 ? a0 : i < 8 ? a4 : i < 12 ? a8 : a12;
                const VEC av = V(set1)(a[(i % 4) * row]);
                UNROLL
                for (int v = 0; v < vecs; v++)
                    sum[i][v] = V(fma)(av, bv[v], sum[i][v]);
            }
            b += b_step;
            a0 += a_step;
            a4 += a_step;
            a8 += rows > 8 ? a_step : 0;
            a12 += rows > 12 ? a_step : 0;
            /* Keep it so: left alone, gcc adds a second loop for a_step == 1, and clang walks
             * fourteen pointers. */
            OPAQUE(a_step);
            OPAQUE(a0);
            OPAQUE(a4);
            if (rows > 8)
                OPAQUE(a8);
            if (rows > 12)
                OPAQUE(a12);
        }
    }
}

/* The text of every micro-kernel; `rows` and `vecs` are constants where it is inlined. Prefetches
 * that fetch nothing new are not free on Intel's processors, and C has none: eight products of
 * 256 x 64 x 256 take 0.9 of the time on Emerald Rapids, and those that add to C no more. */
GD_SIMD_INLINE void tile_body(const gd_gemm_tile *t, const int rows, const int vecs,
                              const bool fetching)
{
    VEC sum[ROWS_MAX][VECS_MAX];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            sum[i][v] = V(zero)();
    }
    tile_fetch_c(t, rows, vecs);
    if (fetching)
        tile_sums(t, sum, rows, vecs, B_FETCHED);
    else if (t->b_copy)
        tile_sums(t, sum, rows, vecs, B_COPIED);
    else if (!GD_SIMD_MASK_FREE || t->columns == vecs * LANES)
        tile_sums(t, sum, rows, vecs, B_WHOLE);
    else
        tile_sums(t, sum, rows, vecs, B_SHORT);
    tile_finish(t, sum, rows, vecs);
}

/* `count` steps along k of `chains` blocks at once: sum[g] += a[block g] b[block g]. */
GD_SIMD_INLINE void chain_steps(const gd_gemm_tile *t, int64_t from, int64_t count,
                                const int chains, const int vecs, VEC sum[][VECS_MAX])
{
    const VMASK mask = tile_mask(t, vecs);
    const int64_t a_block = GD_GEMM_KC * t->a_step, b_block = GD_GEMM_KC * t->b_step;
    const REAL *a = (const REAL *)t->a + from * t->a_step;
    const REAL *b = (const REAL *)t->b + from * t->b_step;
    for (int64_t p = 0; p < count; p++, a += t->a_step, b += t->b_step) {
        UNROLL
        for (int g = 0; g < chains; g++) {
            const VEC av = V(set1)(a[g * a_block]);
            UNROLL
            for (int v = 0; v < vecs; v++)
                sum[g][v] = V(fma)(av, load_vec(b + g * b_block, v, vecs, mask), sum[g][v]);
        }
    }
}

/* total += the next `chains` blocks of k, beginning at step `from`; the last of them may be short.
 */
GD_SIMD_INLINE void chain_group(const gd_gemm_tile *t, int64_t from, const int chains,
                                const int vecs, VEC total[][VECS_MAX])
{
    const int64_t rest = t->depth - from - (chains - 1) * GD_GEMM_KC;
    const int64_t last = rest < GD_GEMM_KC ? rest : GD_GEMM_KC;
    VEC sum[CHAINS_MAX][VECS_MAX];
    UNROLL
    for (int g = 0; g < chains; g++) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            sum[g][v] = V(zero)();
    }
    chain_steps(t, from, last, chains, vecs, sum);
    if (chains > 1)
        chain_steps(t, from + last, GD_GEMM_KC - last, chains - 1, vecs, sum);
    UNROLL
    for (int g = 0; g < chains; g++) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            total[0][v] = from == 0 && g == 0 ? sum[g][v] : V(add)(total[0][v], sum[g][v]);
    }
}

/* One row of C over all of k. A single row has too few sums to hide the latency of an addition, so
 * that blocks of k are summed side by side, and added in order afterwards. */
GD_SIMD_INLINE void chain_body(const gd_gemm_tile *t, const int vecs)
{
    VEC total[1][VECS_MAX] = { { V(zero)() } };
    int64_t from = 0;
    for (; t->depth - from > (CHAINS_MAX - 1) * GD_GEMM_KC; from += CHAINS_MAX * GD_GEMM_KC)
        chain_group(t, from, CHAINS_MAX, vecs, total);
    if (t->depth - from > 2 * GD_GEMM_KC)
        chain_group(t, from, 3, vecs, total);
    else if (t->depth - from > GD_GEMM_KC)
        chain_group(t, from, 2, vecs, total);
    else if (t->depth - from > 0)
        chain_group(t, from, 1, vecs, total);
    tile_finish(t, total, 1, vecs);
}

static void chain_1(const gd_gemm_tile *t)
{
    chain_body(t, 1);
}

static void chain_2(const gd_gemm_tile *t)
{
    chain_body(t, 2);
}

/* The kernels that fetch what comes after B are functions of their own, so that the others have the
 * registers. */
#define TILE_KERNEL(rows, vecs)                                                               \
    static __attribute__((noinline)) void tile_##rows##_##vecs##_fetch(const gd_gemm_tile *t) \
    {                                                                                         \
        tile_body(t, rows, vecs, true);                                                       \
    }                                                                                         \
    static void tile_##rows##_##vecs(const gd_gemm_tile *t)                                   \
    {                                                                                         \
        if (t->next_b && !t->b_copy)                                                          \
            tile_##rows##_##vecs##_fetch(t);                                                  \
        else                                                                                  \
            tile_body(t, rows, vecs, false);                                                  \
    }
#define TILE_KERNELS(rows) TILE_KERNEL(rows, 1) TILE_KERNEL(rows, 2)
#define TILE_ENTRY(rows)   tile_##rows##_1, tile_##rows##_2

TILE_KERNELS(1)
TILE_KERNELS(2)
TILE_KERNELS(4)
TILE_KERNELS(6)
#if ROWS_MAX > 6
TILE_KERNELS(8)
TILE_KERNELS(10)
TILE_KERNELS(12)
#endif
#if ROWS_MAX > 12
TILE_KERNELS(14)
#endif

/* An odd height is an even one and a row, for kernels are long. */
static void tile_odd(const gd_gemm_tile *t, int64_t rows, gd_gemm_tile_fn even, gd_gemm_tile_fn one)
{
    gd_gemm_tile part = *t;
    even(&part);
    part.a = (const REAL *)t->a + rows * t->a_row;
    part.c = (REAL *)t->c + rows * t->c_row;
    if (t->row_bias)
        part.row_bias = (const REAL *)t->row_bias + rows * t->row_bias_stride;
    part.next_lines = part.next_b = 0;
    part.b_copy = NULL;
    one(&part);
}
#define TILE_ODD(rows, even)                              \
    static void tile_##rows##_1(const gd_gemm_tile *t)    \
    {                                                     \
        tile_odd(t, rows - 1, tile_##even##_1, tile_1_1); \
    }                                                     \
    static void tile_##rows##_2(const gd_gemm_tile *t)    \
    {                                                     \
        tile_odd(t, rows - 1, tile_##even##_2, tile_1_2); \
    }
TILE_ODD(3, 2)
TILE_ODD(5, 4)
#if ROWS_MAX > 6
TILE_ODD(7, 6)
TILE_ODD(9, 8)
TILE_ODD(11, 10)
#endif
#if ROWS_MAX > 12
TILE_ODD(13, 12)
#endif
#undef TILE_ODD

/* By height less one, then width less one. */
const gd_gemm_tile_fn TILES_NAME[ROWS_MAX * VECS_MAX] = {
    TILE_ENTRY(1),  TILE_ENTRY(2),  TILE_ENTRY(3), TILE_ENTRY(4),  TILE_ENTRY(5),  TILE_ENTRY(6),
#if ROWS_MAX > 6
    TILE_ENTRY(7),  TILE_ENTRY(8),  TILE_ENTRY(9), TILE_ENTRY(10), TILE_ENTRY(11), TILE_ENTRY(12),
#endif
#if ROWS_MAX > 12
    TILE_ENTRY(13), TILE_ENTRY(14),
#endif
};

#undef TILE_KERNELS
#undef TILE_KERNEL
#undef TILE_ENTRY

#endif
