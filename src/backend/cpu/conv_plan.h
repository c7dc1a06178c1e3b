/* backend/cpu/conv_plan.h: how a convolution, or a phase of its gradient by the input, is computed:
 * conv_choose.c decides, and the files of the ways do it, all in plain C that reads the descriptor
 * (conv_micro.h).
 */
#ifndef GD_BACKEND_CPU_CONV_PLAN_H
#define GD_BACKEND_CPU_CONV_PLAN_H

#include "backend/cpu/conv_micro.h"
#include "backend/cpu/gemm_plan.h"

typedef enum gd_conv_way {
    GD_CONV_BY_PRODUCT, /* each window is one element: a product for each image, by gemm_driver.c */
    GD_CONV_BY_PACKING, /* windows are packed: a product, by gemm_driver.c */
    GD_CONV_BY_BANDS,   /* rows are copied to a band, and taps are shifts in it: conv_direct.c */
    GD_CONV_BY_IMAGES,  /* images of the batch in the lanes of vectors: conv_images.c */
    GD_CONV_BY_WINOGRAD, /* products of transformed tiles, in other numbers: conv_winograd.c */
} gd_conv_way;

/* C[m, positions] = A[m, depth] @ window[depth, positions], then bias and ReLU: of one group. */
typedef struct gd_conv_product {
    gd_conv_access access;
    const gd_conv_micro *micro;
    const gd_gemm_micro *tiles;
    const gd_paths *paths;
    int64_t m, depth; /* depth = channels * taps */
    const void *image, *a;
    int64_t a_row;
    bool a_plain; /* the weight's channels and taps follow each other */
    float *c;     // [m, n, positions...]
    int64_t c_row;
    const float *bias; // [m], bias_step apart
    int64_t bias_step;
    bool relu;
} gd_conv_product;

/* How a band lies in memory: [channels, phase_y, phase_x, rows, row]. With a stride s, columns x,
 * x + s, … of the image are neighbours, in phase x % s. */
typedef struct gd_conv_band {
    int64_t low[2], reach[2]; /* least shift of a tap; rows and columns beyond it, in phases */
    int64_t row;              /* positions from row to row */
    int64_t plane, channel;   /* numbers from phase to phase, from channel to channel */
    bool straight;            /* strips run on from row to row */
    int64_t taken;            /* lanes for a row of positions */
} gd_conv_band;

/* How conv_winograd.c divides a group. Tiles beside each other are taken in strips. */
typedef struct gd_conv_winograd {
    int64_t tiles[2];                        /* of an image, by axis */
    int64_t strip_tiles, strips, all_strips; /* tiles of a strip; strips of a row, of the batch */
    int64_t block;                           /* strips that are multiplied together */
    int64_t channels, steps;     /* of the image: all, in a block of the depth; whole vectors */
    int64_t rows, row_parts;     /* of the result: in a part, whole vectors; how many parts */
    int64_t image, weight, sums; /* numbers from frequency to frequency */
} gd_conv_winograd;

typedef struct gd_conv_choice {
    gd_conv_way way;
    const char *why;
    gd_conv_band band;         /* of GD_CONV_BY_BANDS */
    gd_conv_winograd winograd; /* of GD_CONV_BY_WINOGRAD */
} gd_conv_choice;

/* ---- conv_choose.c ---- */

/* The way of a product that may be one of images: gd_conv_takes_images. */
void gd_conv_choose(const gd_conv_args *args, const gd_conv_product *v, bool images,
                    gd_conv_choice *choice);

/* Whether images in the lanes suit C [n, m, width...] and images of `numbers` numbers. */
bool gd_conv_takes_images(const gd_conv_args *args, int64_t m, int64_t numbers, int64_t width);

/* The kernels of the weight's gradient: those with half as many lanes, where these are enough. */
const gd_conv_micro *gd_conv_choose_weight_lanes(const gd_conv_args *args);

/* ---- the ways: bytes of scratch, and a thread's part ---- */

size_t gd_conv_direct_bytes(const gd_conv_product *v, const gd_conv_band *b);
/* Rows [row, row+m) of C, rows [line, line+lines) of positions counted through the batch. */
void gd_conv_direct(const gd_conv_product *v, const gd_conv_band *shape, int64_t row, int64_t m,
                    int64_t line, int64_t lines, gd_scratch scratch);

size_t gd_conv_images_bytes(const gd_conv_product *v);
/* Rows [line, line+lines) of positions, counted through groups of images, all rows of C. */
void gd_conv_images(const gd_conv_product *v, int64_t n, int64_t line, int64_t lines,
                    gd_scratch scratch);

void gd_conv_shape_winograd(const gd_conv_product *v, int64_t images, gd_conv_winograd *w);
size_t gd_conv_winograd_bytes(const gd_conv_product *v, const gd_conv_winograd *w);
/* Rows [row, row+m) of C, a part of them, of strips [strip, strip+strips) counted through the batch. */
void gd_conv_winograd_rows(const gd_conv_product *v, const gd_conv_winograd *w, int64_t row,
                           int64_t m, int64_t strip, int64_t strips, gd_scratch scratch);
#define GD_WINOGRAD_ROWS  64 /* of the result, whose kernels are transformed together */
#define GD_WINOGRAD_BLOCK 56 /* tiles at least, that packing and reading the kernels pays */

/* The gradient by the weight in f32, by some kernels: conv_weight.c. */
void gd_conv_weight(const gd_conv_args *args, const gd_conv_micro *micro);

/* ---- bands: conv_direct.c ---- */

/* The band's shape; false where a window does not lie in two axes. */
bool gd_conv_shape_band(const gd_conv_product *v, gd_conv_band *b);

/* Rows of positions whose band fits in `room` numbers, at most `rows`; 0: none. Sets plane and
 * channel, so that channels * channel <= room. */
int64_t gd_conv_fit_band(const gd_conv_product *v, gd_conv_band *b, int64_t channels, int64_t rows,
                         int64_t room);

/* Channels of the image that a block of the depth reads, and numbers that their band may take: the
 * other half of the cache is for data read or written once. */
int64_t gd_conv_band_channels(const gd_conv_product *v);
int64_t gd_conv_band_room(const gd_conv_product *v);

#define GD_CONV_IMAGES_WIDTH 20 /* wider rows fill vectors well enough */

#endif
