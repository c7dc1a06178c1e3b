/* backend/cpu/gemm_micro.h: what the matrix product has once per instruction set and element types:
 * micro-kernels and packers, behind a descriptor. Everything else, blocks, threads and the choice
 * of a way, is plain C that reads the descriptor (gemm_driver.c, gemm_rows.c, gemm_choose.c).
 *
 * So a new element type or a tile engine is one file with a gd_gemm_micro, and a row where the back
 * end chooses: docs/design/cpu.md says how. Addresses are of numbers of the descriptor's types;
 * strides and counts are in numbers.
 */
#ifndef GD_BACKEND_CPU_GEMM_MICRO_H
#define GD_BACKEND_CPU_GEMM_MICRO_H

#include "backend/cpu/gemm.h"

#include <gradus/tensor.h>

/* One tile: C[rows, columns] (+)= A[rows, depth] @ B[depth, columns], then bias and ReLU. */
typedef struct gd_gemm_tile {
    const void *a; // [rows, depth], any strides, or a panel as pack_a left it
    int64_t a_row, a_step;
    const void *b; // [depth, columns], each row contiguous, or a panel as pack_b left it
    int64_t b_step;
    void *b_copy; // where to leave B as pack_b would, all of its vectors being whole; or NULL
    void *c;      // [rows, columns], each row contiguous
    int64_t c_row;
    int64_t depth;           /* at most the descriptor's; chain kernels take all of k */
    int64_t columns;         /* whole vectors, unless the descriptor has any_width */
    const void *column_bias; // [columns] contiguous, or NULL
    const void *row_bias;    // [rows], or NULL
    int64_t row_bias_stride;
    bool accumulate; /* add to C: not the first block of k */
    bool relu;
    /* What to fetch meanwhile, such as the next panel of A: next_lines times a cache line for each row
     * of the tile, those next_a_bytes apart, and next_a_step from one time to the next. */
    const void *next_a;
    int64_t next_a_bytes, next_a_step, next_lines;
    int64_t next_b; /* how far on in B to fetch what comes after this; 0: nothing */
    int64_t rows;   /* fewer than the kernel's where height_unit is more than 1 */
} gd_gemm_tile;

typedef void (*gd_gemm_tile_fn)(const gd_gemm_tile *t);

/* One product, or a part of one: C[m, n] = A[m, k] @ B[k, n]. Where that was chosen it is the
 * transposed of what the caller asked for, and the bias runs along rows. */
typedef struct gd_gemm_product {
    int64_t m, n, k;
    const void *a;
    int64_t a_row, a_col;
    const void *b;
    int64_t b_row, b_col;
    void *c;
    int64_t c_row, c_col;
    const void *column_bias; // [n] or NULL
    int64_t column_bias_stride;
    const void *row_bias; // [m] or NULL
    int64_t row_bias_stride;
    const void *relu_result; // as c, or NULL
    bool relu, accumulate;
    const gd_gemm_access *access; /* or NULL */
    int64_t column;               /* the first of the whole product's that this part has */
    const void *b_packed;         /* this and those below: as in gd_gemm_args */
    bool streams;                 /* C goes past the caches */
    int64_t b_width; /* with b_packed: columns of the whole product, rounded up to vectors */
    const gd_gemm_fetch *fetch;
    int fetches;
} gd_gemm_product;

/* Products with one row, y[n] = x[k] @ B[k, n]: gemm_rows.h. */
typedef struct gd_gemm_row_kernels {
    /* Whole products. B with contiguous rows, or one column; NULL: `sums` instead. */
    void (*chains)(const gd_gemm_product *p);
    /* B transposed in memory, n at least a vector: */
    void (*dots)(const gd_gemm_product *p);
    /* any B, number by number: */
    void (*scalars)(const gd_gemm_product *p);
    /* s [n, rounded up to vectors] = start + the sums over rows [from, end) of one block of k. Row
     * `then` of B is read next; -1: none. */
    void (*sums)(const gd_gemm_product *p, int64_t from, int64_t end, int64_t then,
                 const void *start, void *s);
    /* total [count, rounded up to vectors] += s */
    void (*add)(void *total, const void *s, int64_t count);
    /* values [count] -> columns [first, first+count) of the one row of C, with bias and ReLU. */
    void (*store)(const gd_gemm_product *p, int64_t first, int64_t count, const void *values);
} gd_gemm_row_kernels;

#define GD_GEMM_ABREAST 8 /* rows of B read abreast by `sums` */

/* The tiles of f32, which other types may take, too. */
#define GD_GEMM_DECLARE_TILES(isa) \
    extern const gd_gemm_tile_fn gd_gemm_tiles_f32_##isa[], gd_gemm_tiles_f64_##isa[];
GD_GEMM_DECLARE_TILES(baseline)
GD_GEMM_DECLARE_TILES(avx2)
GD_GEMM_DECLARE_TILES(avx512)
GD_GEMM_DECLARE_TILES(neon)

struct gd_gemm_micro {
    const char *name; /* of what explain should tell besides types and tile; or NULL */
    gd_dtype a, b, c;
    int a_bytes, b_bytes, c_bytes; /* of a number */
    int b_packed_bytes;            /* of a number of B, as pack_b leaves it */
    bool fused;                    /* multiply-adds round once: gemm.h */

    int packing;           /* a vector of B takes as long as so many multiply-adds of one */
    int lanes, lane_shift; /* numbers of C in a vector, and the power of two that is */
    int rows, columns;     /* of the tallest and widest tile */
    int row_unit;          /* panels have heights of so many rows, but for the last */
    int depth, depth_unit; /* of a block of k, and what packers round it up to, with zeros */
    bool any_width;        /* tiles write any number of columns; else whole vectors */
    int height_unit;       /* they write a multiple of so many rows: 1, or an engine's */
    bool reads_a, reads_b; /* kernels read A in place, and B if its rows are contiguous, which they
                              can pack as they read; else both are always packed */
    /* They read A in place if its rows are contiguous and whole units of depth long. */
    bool reads_rows_of_a;

    const gd_gemm_tile_fn *tiles; /* [rows][columns / lanes], by height and width less one */
    int widths;                   /* columns / lanes */

    /* a [rows, depth] -> dst, a panel of GD_GEMM_PANEL_BYTES at most, with the strides that tiles
     * read it by. */
    void (*pack_a)(void *dst, const void *a, int64_t a_row, int64_t a_col, int64_t rows,
                   int64_t depth, int64_t *row, int64_t *step);
    /* b [depth, columns] -> panels of `columns` columns one after the other, each [depth, its width
     * rounded up to vectors]. A short vector at the edge is filled up with numbers that nobody
     * keeps. */
    void (*pack_b)(void *dst, const void *b, int64_t b_step, int64_t b_col, int64_t depth,
                   int64_t columns);
    /* Columns [0, width) of rows [0, depth) of b, transposed in memory, to dst [depth, dst_row]. */
    void (*pack_transposed)(void *dst, int64_t dst_row, const void *b, int64_t b_col, int64_t depth,
                            int64_t width);
    /* sums [rows, columns], whole vectors sum_row apart, to C, whose columns are contiguous and
     * c_col apart; bias [columns], bias_step apart, or NULL. */
    void (*store_columns)(const void *sums, int64_t sum_row, int64_t rows, int64_t columns, void *c,
                          int64_t c_col, const void *bias, int64_t bias_step, bool relu);
    /* Columns of the rows of C, those of some runs, to a tile [rows, tile_row], or back. */
    void (*copy_runs)(void *tile, int64_t tile_row, void *c, int64_t c_row, int64_t rows,
                      const gd_gemm_stretch *runs, int many, bool back);
    /* The derivative of ReLU: c [lines, count] becomes 0 where y, which lies as c, is not > 0. */
    void (*relu_grad)(void *c, const void *y, int64_t lines, int64_t line, int64_t count,
                      int64_t step);
    /* As memcpy, past the caches (gd_ew_stream of elementwise.h); NULL: the processor cannot. */
    void (*stream)(void *to, const void *from, size_t bytes);
    const gd_gemm_row_kernels *row;    /* NULL: products with one row are blocks, too */
    void (*begin)(void), (*end)(void); /* round the kernels of a thread; NULL: nothing to do */
};

/* What the driver keeps on the stack, for the copies of a tile. */
#define GD_GEMM_MOST_TILE_BYTES  4096
#define GD_GEMM_MOST_WIDTH_BYTES 256

/* Numbers that the second-level cache does not hold: they are fetched before they are needed. */
#define GD_GEMM_LARGE ((int64_t)1 << 18)

#define GD_LINE_BYTES 64 /* of a cache line */

/* Vectors that n columns take. */
static inline int64_t gd_gemm_vectors(const gd_gemm_micro *micro, int64_t n)
{
    return (n + micro->lanes - 1) >> micro->lane_shift;
}

static inline gd_gemm_tile_fn gd_gemm_tile_kernel(const gd_gemm_micro *micro, int64_t rows,
                                                  int64_t vectors)
{
    return micro->tiles[(rows - 1) * micro->widths + vectors - 1];
}

/* Columns of a packed block, as many as the cache holds. */
static inline int64_t gd_gemm_block_columns(const gd_gemm_micro *micro, const gd_paths *paths)
{
    return (int64_t)paths->block_bytes / micro->b_packed_bytes / micro->depth / micro->columns *
           micro->columns;
}

/* Whether numbers this many bytes apart fall into the same few sets of the caches. */
static inline bool gd_gemm_collide(int64_t bytes)
{
    return bytes % 4096 == 0;
}

#endif
