/* backend/cpu/gemm.h: the packed matrix-product core. It knows pointers and strides, not tensors.
 *
 * The result is DEFINED, bit for bit, whatever the path, the blocking, the thread count or the
 * vector width: for every output (i, j): K is cut into blocks of GD_GEMM_KC; within a block s = 0,
 * then s = fma(a[i,p], b[p,j], s) for p ascending; block sums are added in ascending order, c =
 * ((s0 + s1) + s2) + …; then + bias[j]; then max(c, 0), which is c < 0 ? 0 : c, so NaN stays NaN
 * and -0 stays -0; or c becomes 0 where the result of another ReLU is not above 0. (On the baseline
 * ISA of x86-64, which has no fused multiply-add, fma(a,b,c) means a*b rounded, plus c rounded.)
 * Which NaN comes out where several go in is not defined.
 */
#ifndef GD_BACKEND_CPU_GEMM_H
#define GD_BACKEND_CPU_GEMM_H

#include "backend/cpu/paths.h"
#include "backend/cpu/scratch.h"

#include <stdbool.h>
#include <stdint.h>

#define GD_GEMM_KC         256
#define GD_GEMM_BATCH_RANK 6

/* Columns of C that are `stride` apart: `count` of them, from element `from` of C and column `at` of
 * a tile on. */
typedef struct gd_gemm_stretch {
    int64_t from, stride;
    int32_t at, count;
} gd_gemm_stretch;

/* What a product is given in place of strides, where its operands are no matrices in memory: packers
 * that read them in place, and the addresses of C's columns. Steps and columns are counted over the
 * whole product. Addresses are those of a product of the batch and, of A and C, of a row. Products
 * that have it are not transposed, their bias [products of the batch, m] is one of rows, and their
 * tiles always read packed operands. */
typedef struct gd_gemm_access gd_gemm_access;
typedef struct gd_gemm_micro gd_gemm_micro;
struct gd_gemm_access {
    size_t stage_bytes; /* that packers work in, at most GD_GEMM_STAGE_BYTES */
    /* Rows [0, rows) and steps [step, step+depth) of A, as micro->pack_a leaves them. NULL: A has
     * strides. */
    void (*pack_a)(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                   const void *a, int64_t a_row, int64_t rows, int64_t step, int64_t depth,
                   int64_t *row_stride, int64_t *step_stride, void *stage);
    /* Steps [step, step+depth) and columns [column, column+columns) of B, as micro->pack_b leaves
     * them. NULL: B has strides. */
    void (*pack_b)(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                   const void *b, int64_t step, int64_t depth, int64_t column, int64_t columns,
                   void *stage);
    /* Where columns [column, column+columns) of a row of C lie; at most GD_GEMM_RUNS columns. How many
     * runs. NULL: C has strides. */
    int (*find_c)(const gd_gemm_access *access, int64_t column, int64_t columns,
                  gd_gemm_stretch *runs);
};
#define GD_GEMM_RUNS        32
#define GD_GEMM_STAGE_BYTES ((size_t)128 * 1024)

/* Memory that is fetched into the second-level cache during a product: [m] rows of so many bytes,
 * `row` bytes apart, a multiple of the size of A's numbers. */
typedef struct gd_gemm_fetch {
    const void *first;
    int64_t row, bytes;
} gd_gemm_fetch;

/* C[batch…, m, n] = A[batch…, m, k] @ B[batch…, k, n], then + bias, then ReLU. All strides are in
 * elements, may be zero (broadcast) or negative for a and b. c must not overlap a, b or bias. k may
 * be 0 (C = bias or 0). */
typedef struct gd_gemm_args {
    int64_t m, n, k;
    const void *a;
    int64_t a_row_stride, a_col_stride; /* between i, between p */
    const void *b;
    int64_t b_row_stride, b_col_stride; /* between p, between j */
    void *c;
    int64_t c_row_stride, c_col_stride; /* between i, between j */
    int batch_rank;                     /* 0 … GD_GEMM_BATCH_RANK; 0 means one product */
    int64_t batch_shape[GD_GEMM_BATCH_RANK];
    int64_t a_batch_stride[GD_GEMM_BATCH_RANK];
    int64_t b_batch_stride[GD_GEMM_BATCH_RANK];
    int64_t c_batch_stride[GD_GEMM_BATCH_RANK];
    const void *bias; /* [n] or NULL: added to every row */
    int64_t bias_stride;
    bool relu; /* NaN stays NaN */
    /* With the strides of C, or NULL. C becomes 0 where relu_result is not > 0: so the gradient by
     * the result of a ReLU becomes the gradient by its operand. Not with accumulate. */
    const void *relu_result;
    const gd_gemm_access *access; /* or NULL */
    /* B as gd_gemm_pack_ahead left it; b is not read. NULL: it has not been packed. With it there is
     * no access, and all products of the batch have the same B. */
    const void *b_packed;
    /* With b_packed, no batch and one thread: what the caller reads and writes next, `fetches` of
     * them. */
    const gd_gemm_fetch *fetch;
    int fetches;
    bool accumulate; /* add the block sums to what C holds, in order: c = ((c + s0) + s1) + … */
    int threads;     /* at most; small problems use fewer */
    const gd_paths *paths;  /* which way it is computed */
    gd_workspace workspace; /* of `threads` threads: gd_gemm_scratch_bytes(paths) for each */
} gd_gemm_args;

/* What a product takes of a thread's scratch at most: a packed block of B, and a panel of A; with
 * gd_gemm_args.access GD_GEMM_STAGE_BYTES more. */
size_t gd_gemm_scratch_bytes(const gd_paths *paths);
#define GD_GEMM_PANEL_BYTES    32768
#define GD_GEMM_SCRATCH_BLOCKS 4

/* ---- how work is divided: gemm.c ---- */

/* Simplify the batch dimensions of *args without changing the result: drop those of size 1, join
 * neighbours, and turn rows of a batch that share B into rows of one product. Returns how many
 * products remain. No dimension may be 0. */
int64_t gd_gemm_join_batch(gd_gemm_args *args);

/* How many of args->threads the arithmetic of `batch` products is worth. */
int gd_gemm_threads(const gd_gemm_args *args, int64_t batch);

/* Products to be divided: so many of [m, n]. */
typedef struct gd_gemm_work {
    int64_t m, n, batch;
    int lanes, packing; /* gd_gemm_micro's */
} gd_gemm_work;

/* Cut each into row_parts by column_parts pieces, `wanted` in all or some more; columns are cut at
 * multiples of `lanes`. Never along k, so that no result depends on it. The cost of a product's
 * pieces: a multiply-add of a vector is 1. */
double gd_gemm_divide(const gd_gemm_work *w, int wanted, int64_t *row_parts, int64_t *column_parts);

/* The same for so many threads: a piece for each, or several if they are long, so that a fast thread takes
 * more of them than a slow one. Not for operands that are dear to pack, as a convolution's windows are:
 * each piece packs its own. */
void gd_gemm_cut(const gd_gemm_work *w, int64_t k, int threads, int64_t *row_parts,
                 int64_t *column_parts);

/* What there is per instruction set and element type: gemm_micro.h. */
#define GD_GEMM_DECLARE(isa) extern const gd_gemm_micro gd_gemm_f32_##isa, gd_gemm_f64_##isa;
GD_GEMM_DECLARE(baseline)
GD_GEMM_DECLARE(avx2)
GD_GEMM_DECLARE(avx512)
GD_GEMM_DECLARE(neon)

/* B [k, n] packed once, for products with `b_packed`: the bytes that it takes; and packing it,
 * into memory aligned as scratch is. */
size_t gd_gemm_ahead_bytes(const gd_gemm_micro *micro, int64_t k, int64_t n);
void gd_gemm_pack_ahead(const gd_gemm_micro *micro, void *dst, const void *b, int64_t b_row,
                        int64_t b_col, int64_t k, int64_t n);

/* Computes the product, with operands of the types that `micro` is for. */
void gd_gemm(const gd_gemm_micro *micro, const gd_gemm_args *args);

#endif
