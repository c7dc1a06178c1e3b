/* backend/cpu/conv_micro.h: what convolutions have once per instruction set and element type:
 * micro-kernels, and packers of windows, behind a descriptor. Everything else, the choice of a way,
 * blocks and threads, is plain C that reads it (conv_choose.c, conv_driver.c). Where windows are
 * packed, a convolution is a product by gemm_driver.c, with its tiles, and the packers here.
 *
 * The other ways are of f32, and need kernels of their own. Each reads a copy of the image that is
 * no larger than the image, where packing would make one copy a tap. A type that has none of them
 * (bf16) has the packers alone.
 */
#ifndef GD_BACKEND_CPU_CONV_MICRO_H
#define GD_BACKEND_CPU_CONV_MICRO_H

#include "backend/cpu/conv_window.h"
#include "backend/cpu/conv_winograd.h"
#include "backend/cpu/gemm_micro.h"

/* The operands of a convolution's product, which packers read. */
typedef struct gd_conv_access {
    gd_gemm_access base; /* first */
    gd_window window;
    gd_conv_place place;
    int64_t a_channel, a_tap[GD_SPATIAL]; /* in the weight, from channel to channel, tap to tap */
    bool taps_plain;                      /* taps follow each other */
    int64_t g_n;                          /* dY, from image to image */
} gd_conv_access;

/* A tile that reads the image out of a band, vector by vector: C[rows, two vectors] (+)= A[rows,
 * depth] @ B, where step p of B is at t->b + shift[p] and at second + shift[p]. */
typedef void (*gd_direct_tile_fn)(const gd_gemm_tile *t, const float *second, const int32_t *shift);

/* Steps of a sum that follow each other in a band: `count`, from number `from` on. */
typedef struct gd_band_stretch {
    int64_t from, count;
} gd_band_stretch;

#define GD_BAND_ROWS 14 /* the tallest of these tiles */

/* A tile that reads the image out of a band, number by number: every row has an address of its own.
 * The other operand fills vectors. */
typedef struct gd_band_tile {
    const float *band;
    const gd_band_stretch *stretches; /* the steps of the sums */
    int many;
    int64_t step;                /* in the band, from step to step of a stretch */
    int64_t shift[GD_BAND_ROWS]; /* in the band, of each row of the tile, or of each line */
    const float *b;              // [steps, vectors]
    float *c;                    // [rows, vectors]
    int64_t c_row;
    bool accumulate;
} gd_band_tile;
typedef void (*gd_band_tile_fn)(const gd_band_tile *t);

/* The same for rows that are `taps` neighbours in the band, a line: a number of the band is read once for all
 * taps of its line, while the vectors that it is multiplied by stay in registers. One vector wide; from step
 * to step of a stretch is one number. Tiles have a multiple of `unit` lines, but for the last, which writes
 * rows that nobody reads. */
typedef struct gd_lines_micro {
    int taps, lines, unit;        /* lines: of the tallest */
    const gd_band_tile_fn *tiles; /* of unit, 2 unit, ... lines */
} gd_lines_micro;

/* Sums of `rows` rows of C at one position, for one group of images. Of the taps of each channel
 * lines * count see the image. */
typedef struct gd_images_tile {
    int64_t channels, lines, count;
    int64_t before, line_skip, channel_skip; /* taps left out: first of all, behind each line, … */
    const float *a;                          // [rows, channels, taps], at the first tap
    int64_t a_row, a_channel_skip;
    const float *b;                   // [channels, size, images], where the first tap sees it
    int64_t b_tap, b_line, b_channel; /* to the next: from a tap, a line's end, the last line's */
    float *c;                         // [rows, c_row]
    int64_t c_row;
} gd_images_tile;
typedef struct gd_images_tiles {
    int rows;
    void (*tile)(const gd_images_tile *t);
} gd_images_tiles;
#define GD_IMAGES_ROWS 16 /* of the tallest */

typedef struct gd_conv_micro gd_conv_micro;
struct gd_conv_micro {
    const gd_gemm_micro *product; /* its tiles and packers; NULL: those of gd_conv_args.product */
    const char *name;             /* what explain adds to "packing", or NULL */

    /* Packers of gd_gemm_access, whose first argument is a gd_conv_access: */
    size_t stage_bytes; /* they work in */
    /* B of Y and of dX: the image through its windows. */
    void (*pack_windows)(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                         const void *b, int64_t step, int64_t depth, int64_t column,
                         int64_t columns, void *stage);
    /* A of Y and of dX: of each channel the taps of the phase. */
    void (*pack_weight)(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                        const void *a, int64_t a_row, int64_t rows, int64_t step, int64_t depth,
                        int64_t *row_stride, int64_t *step_stride, void *stage);
    /* A and B of dW: positions of all images. NULL: conv_weight.c. */
    void (*pack_gradient)(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                          const void *a, int64_t a_row, int64_t rows, int64_t step, int64_t depth,
                          int64_t *row_stride, int64_t *step_stride, void *stage);
    void (*pack_transposed_windows)(const gd_gemm_access *access, const gd_gemm_micro *micro,
                                    void *dst, const void *b, int64_t step, int64_t depth,
                                    int64_t column, int64_t columns, void *stage);

    /* Kernels of f32; the first NULL: there are none. By height less one, as high as those of products: */
    const gd_direct_tile_fn *direct;
    /* By width, one vector and two: */
    gd_band_tile_fn band[2];
    int band_rows[2];
    /* Up to one whose taps are 0; and those for the vectors of `narrow`. NULL: there are none. */
    const gd_lines_micro *lines, *narrow_lines;
    /* By height, the lowest first, up to one of 0 rows; for so many images: */
    const gd_images_tiles *images_tiles;
    int images;
    /* Whether count numbers are all finite. */
    bool (*are_finite)(const float *x, int64_t count);
    /* A row of a band: `before` zeros, `count` numbers that are `step` apart in src, `after` zeros.
     * Zeros go on to the end of a vector. */
    void (*pad_row)(float *dst, int64_t before, const float *src, int64_t step, int64_t count,
                    int64_t after);
    /* A row of `width` numbers, rounded up to vectors: the pieces, `step` apart in data; with gaps
     * zeros between them. */
    void (*copy_pieces)(const gd_window_piece *pieces, int many, bool gaps, const float *data,
                        int64_t step, int64_t width, float *row);
    /* The transforms of conv_winograd.c, with as many lanes; or NULL. */
    const gd_winograd_kernels *winograd;
    /* Kernels with half as many lanes, for weights of few channels; or NULL. */
    const gd_conv_micro *narrow;
};

#define GD_CONV_DECLARE(isa) extern const gd_conv_micro gd_conv_f32_##isa;
GD_CONV_DECLARE(baseline)
GD_CONV_DECLARE(avx2)
GD_CONV_DECLARE(avx512)
GD_CONV_DECLARE(neon)
/* Operands of bf16, where AVX512-BF16 or AMX multiplies. */
extern const gd_conv_micro gd_conv_bf16_avx512;

#endif
