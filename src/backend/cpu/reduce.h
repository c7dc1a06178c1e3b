/* backend/cpu/reduce.h: what a reduction is made of: the few loops that depend on the operation,
 * the dtype and the instruction set (gd_reducer, filled in by reduce_isa.c), and the drivers that
 * walk over tensors with them (reduce.c, arg_reduce.c, scan.c).
 *
 * The order of additions (and of products, and the choice among equal extremes) is DEFINED, as a
 * function of the input's shape, strides and reduced axes alone; never of the threads, the vector
 * width or the tiles. So the same call gives the same bits with any number of threads and on every
 * instruction set.
 *
 * Axes. Axes of size 1 are dropped, reduced axes of negative stride are reversed, and axes are
 * ordered by falling |stride|, stride 0 first, equals as they come; neighbours among the kept, or
 * among the reduced ones, that form one regular loop (in the result as well) are merged.
 *
 * By rows, when the innermost axis is reduced. The elements that make one result, in order, are cut
 * into blocks of at most GD_REDUCE_BLOCK: each run of the innermost axis by itself when it is alone
 * or has at least GD_REDUCE_RUN elements, else their whole sequence. A block is reduced by L lanes,
 * L = 256 bytes / size of an accumulator: lane[j], from 0, gets x[j], x[L + j], x[2L + j] and so
 * on added, one after another. Then the lanes are folded: lane[j] += lane[j + h] for j < h, with
 * h = L/2, L/4, …, 1.
 *
 * By columns, when the innermost axis is kept and has C elements. Rows are cut into blocks of 64 k
 * rows (doubled while there are 2^20 blocks or more), where k = 1, or for C < 64 the largest power
 * of two with k C <= 128 and k <= rows / 4. In a block, rows q, q + k, q + 2k, … are added to 0 one
 * after another, for each q < k; then the k sums are folded as above.
 *
 * Blocks b0, b1, b2, … are combined as a binary tree whose every node covers an aligned power of
 * two of blocks, a shorter rest hanging on the right: ((b0 + b1) + (b2 + b3)) + b4. So the error
 * grows as in pairwise summation (Higham 1993).
 *
 * f16 and bf16 are reduced in f32, to f32: the same as of a cast operand.
 *
 * For max and min the same order decides which NaN or zero is returned, and NaN wins, as in NumPy.
 */
#ifndef GD_BACKEND_CPU_REDUCE_H
#define GD_BACKEND_CPU_REDUCE_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/iterate.h"

#define GD_REDUCE_BLOCK      4096 /* elements of a block by rows */
#define GD_REDUCE_RUN        256
#define GD_REDUCE_BLOCK_ROWS 64
#define GD_REDUCE_NARROW     64
#define GD_REDUCE_WIDE       128
#define GD_REDUCE_MAX_BLOCKS ((int64_t)1 << 20) /* by columns */
#define GD_REDUCE_LEVELS     22                 /* of their tree: log2 of that, and one to spare */

/* One operation on one dtype. `x` points to elements, `acc` and `out` to accumulators. */
typedef struct gd_reducer {
    gd_dtype result; /* of the accumulators and of the result */
    size_t in_size, acc_size;
    /* out[i * out_stride] = reduction of the block x[i * row_stride + 0 … n-1], n <=
     * GD_REDUCE_BLOCK, for i < count */
    void (*rows)(const void *x, int64_t row_stride, int64_t n, void *out, int64_t out_stride,
                 int64_t count);
    /* acc[c] = ((acc[c] + x[c]) + x[row_stride + c]) + …, over `rows` rows, for c < n. Several rows
     * are taken at once, which saves loads and stores of acc, or one_by_one, so that short rows
     * that lie end to end in memory are read in order, as prefetching wants it. */
    void (*columns)(void *acc, const void *x, int64_t rows, int64_t row_stride, int64_t n,
                    bool one_by_one);
    void (*merge)(void *acc, const void *later, int64_t n); /* acc[c] = acc[c] + later[c] */
    void (*fill)(void *acc, int64_t n);                     /* with the reduction of nothing */
} gd_reducer;

/* The tree over blocks. It works like a binary counter: bit k of `count` says that level k holds
 * the combination of 2^k blocks, older ones higher up. An entry is `width` accumulators, `bytes`
 * bytes. */
typedef struct gd_tree {
    void (*merge)(void *acc, const void *later, int64_t n);
    char *levels;
    int64_t width;
    size_t bytes;
    uint64_t count;
} gd_tree;

GD_STATIC_INLINE void gd_tree_push(gd_tree *tree, const char *leaf)
{
    size_t level = 0;
    for (uint64_t count = tree->count; count & 1; count >>= 1, level++) {
        char *older = tree->levels + level * tree->bytes;
        tree->merge(older, leaf, tree->width);
        leaf = older;
    }
    memcpy(tree->levels + level * tree->bytes, leaf, tree->bytes);
    tree->count++;
}

/* The combination of all leaves, of which there was at least one. It lies in the levels. */
GD_STATIC_INLINE const char *gd_tree_end(gd_tree *tree)
{
    const char *sum = NULL;
    size_t level = 0;
    for (uint64_t count = tree->count; count; count >>= 1, level++) {
        if (!(count & 1))
            continue;
        char *older = tree->levels + level * tree->bytes;
        if (sum)
            tree->merge(older, sum, tree->width);
        sum = older;
    }
    return sum;
}

/* Run a reduction of attribute gd_reduce_attr. GD_ERR_DTYPE when the result's dtype is not the
 * reducer's. */
gd_workspace gd_reduce_scratch(const gd_kernel_call *call);
void gd_reduce_explain(const gd_kernel_call *call, gd_text *text);
gd_workspace gd_arg_reduce_scratch(const gd_kernel_call *call);
gd_status gd_reduce_run(const gd_kernel_call *call, const gd_reducer *reducer);

/* argmax, argmin over one dtype. */
typedef struct gd_arg_reducer {
    const gd_reducer *extreme; /* max or min */
    /* index of the first of x[0 … n-1] that equals *value, or is NaN when *value is; it is there */
    int64_t (*find)(const void *x, int64_t n, const void *value);
    bool (*beats)(const void *later, const void *first); /* later is more extreme than first */
    /* best[c] and index[c] become the first extreme of rows 0 … rows-1 of column c, for c < n. rows
     * < 2^31 */
    void (*columns)(void *best, int32_t *index, const void *x, int64_t rows, int64_t row_stride,
                    int64_t n);
    /* where block[c] beats best[c]: best[c] = block[c], index[c] = first_row + block_index[c] */
    void (*merge)(void *best, int64_t *index, const void *block, const int32_t *block_index,
                  int64_t first_row, int64_t n);
} gd_arg_reducer;

/* Along lines whose elements are neighbours. */
bool gd_arg_reduce_takes_halves(const gd_kernel_call *call);
gd_status gd_arg_reduce_run(const gd_kernel_call *call, const gd_arg_reducer *reducer);

/* cumsum, cumprod: each result is the one before combined with the next element, nothing
 * reassociated. */
typedef struct gd_scanner {
    gd_dtype result;
    size_t in_size, out_size;
    /* Along `rows` lines at once: out[r * out_row_stride + i] = running value of x[r * x_row_stride
     * + i * x_stride], i < n */
    void (*lines)(const void *x, int64_t x_row_stride, int64_t x_stride, int64_t n, void *out,
                  int64_t out_row_stride, int64_t rows);
    /* out[c] = before[c] + x[c * x_stride] for c < n; before NULL stands for nothing */
    void (*step)(const void *before, const void *x, int64_t x_stride, void *out, int64_t n);
} gd_scanner;

gd_workspace gd_scan_scratch(const gd_kernel_call *call);
gd_status gd_scan_run(const gd_kernel_call *call, const gd_scanner *scanner);

#endif
