/* backend/cpu/gemm_pack.h: copies of blocks of A and B in the order in which the micro-kernels read
 * them. This is where strides end: transposed, reversed and broadcast operands all leave here
 * contiguous.
 */
#ifndef GD_BACKEND_CPU_GEMM_PACK_H
#define GD_BACKEND_CPU_GEMM_PACK_H

#include "backend/cpu/gemm_real.h"

/* What is packed: numbers as tiles read them, or an includer's, which become those. */
#ifndef ITEM
#define ITEM                      REAL
#define ITEM_LOAD(p)              V(load)(p)
#define ITEM_LOAD_FIRST(p, count) V(load_masked)(V(mask_first)(count), p)
#define ITEM_VALUE(x)             (x)
#endif
#define ITEM_LINE (GD_LINE_BYTES / (int)sizeof(ITEM)) /* of them in a cache line */

#define PACK_DEPTH 16 /* steps of k packed at a time: rows of B are read in as many streams */

/* Columns [first, first+width) of rows [0, depth) of b, transposed in memory (b_step == 1), to dst
 * [depth, dst_row]. */
static void pack_transposed(void *to, int64_t dst_row, const void *from, int64_t b_col,
                            int64_t depth, int64_t width)
{
    REAL *dst = to;
    const ITEM *b = from;
    for (int64_t j = 0; j < width; j += LANES) {
        const ITEM *column[LANES];
        for (int i = 0; i < LANES; i++) /* past the edge: the last column again, not to be kept */
            column[i] = b + (j + i < width ? j + i : width - 1) * b_col;
        for (int64_t p = 0; p < depth; p += LANES) {
            const int64_t rest = depth - p;
            VEC square[LANES];
            UNROLL
            for (int i = 0; i < LANES; i++)
                square[i] =
                    rest < LANES ? ITEM_LOAD_FIRST(column[i] + p, rest) : ITEM_LOAD(column[i] + p);
            V(transpose)(square);
            UNROLL
            for (int i = 0; i < LANES; i++)
                if (i < rest)
                    V(store)(dst + (p + i) * dst_row + j, square[i]);
        }
    }
}

/* The same with contiguous rows (b_col == 1). */
static void pack_rows(REAL *dst, int64_t dst_row, const ITEM *b, int64_t b_step, int64_t depth,
                      int64_t width)
{
    const int64_t whole = width / LANES * LANES;
    for (int64_t p = 0; p < depth; p++, dst += dst_row, b += b_step) {
        for (int64_t j = 0; j < whole; j += LANES)
            V(store)(dst + j, ITEM_LOAD(b + j));
        if (whole < width)
            V(store)(dst + whole, ITEM_LOAD_FIRST(b + whole, width - whole));
    }
}

/* The same with any strides. */
static void pack_any(REAL *dst, int64_t dst_row, const ITEM *b, int64_t b_step, int64_t b_col,
                     int64_t depth, int64_t width)
{
    for (int64_t p = 0; p < depth; p++, dst += dst_row, b += b_step)
        for (int64_t j = 0; j < dst_row; j++)
            dst[j] = j < width ? ITEM_VALUE(b[j * b_col]) : (REAL)0;
}

/* b [depth, columns] -> panels of COLUMNS_MAX columns one after the other, each [depth, its width
 * rounded up to vectors]. A short vector at the edge is filled up with numbers that nobody keeps.
 */
static void pack_b(void *dst, const void *b, int64_t b_step, int64_t b_col, int64_t depth,
                   int64_t columns)
{
    /* Of a transposed B whole columns: each is a stretch of memory, and begins a page of its own.
     */
    const int64_t most = b_col != 1 && b_step == 1 ? depth : PACK_DEPTH;
    for (int64_t p = 0; p < depth; p += most) {
        const int64_t steps = depth - p < most ? depth - p : most;
        for (int64_t j = 0; j < columns; j += COLUMNS_MAX) {
            const int64_t width = columns - j < COLUMNS_MAX ? columns - j : COLUMNS_MAX;
            const int64_t dst_row = (width + LANES - 1) / LANES * LANES;
            REAL *to = (REAL *)dst + j * depth + p * dst_row;
            const ITEM *from = (const ITEM *)b + p * b_step + j * b_col;
            if (b_col == 1)
                pack_rows(to, dst_row, from, b_step, steps, width);
            else if (b_step == 1)
                pack_transposed(to, dst_row, from, b_col, steps, width);
            else
                pack_any(to, dst_row, from, b_step, b_col, steps, width);
        }
    }
}

/* a [rows, depth] -> dst: rows of A_PANEL_ROW numbers where those of A are contiguous, else one
 * vector or two for each step of k. Kernels take either; what matters is that the panel stays in
 * the first-level cache, out of its own way. */
static void pack_a(void *dst, const void *a, int64_t a_row, int64_t a_col, int64_t rows,
                   int64_t depth, int64_t *row, int64_t *step)
{
    if (a_col == 1) {
        *row = A_PANEL_ROW;
        *step = 1;
        pack_rows(dst, A_PANEL_ROW, a, a_row, rows, depth);
        return;
    }
    *row = 1;
    *step = (rows + LANES - 1) / LANES * LANES;
    if (a_row == 1)
        pack_rows(dst, *step, a, a_col, depth, rows);
    else
        pack_any(dst, *step, a, a_col, a_row, depth, rows);
}

#endif
