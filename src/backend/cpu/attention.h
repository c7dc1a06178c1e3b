/* backend/cpu/attention.h: attention in tiles (FlashAttention: Dao et al. 2022; Dao 2023). The walk
 * over blocks of queries and keys, and the matrix products, are in attention.c; what is done with
 * the numbers of one tile between two products is in attention_isa.c, compiled once per instruction
 * set.
 *
 * The order of all sums is a function of shapes alone. Of a row's tiles, one after the other: m' =
 * max(m, max S), a = exp(m - m'), l = l a + sum(exp(S - m')), O = O a + exp(S - m') V; at the end O
 * / l.
 *
 * bf16 where instructions multiply it: the products multiply bf16 with sums in f32 (gemm_half.h); a
 * tile's scores, softmax, sums and gradients are f32; what is multiplied next, exp(S - m') with
 * dropout, and the gradient of the scores, is rounded to bf16 once (l is of numbers not rounded). O
 * and the gradients of q, k and v are added up in f32.
 *
 * f16, and bf16 elsewhere: rows are widened to f32, which holds them exactly, in the thread's scratch,
 * a tile's queries and a block of keys at a time; so are keys and values of halves, or of i8 with a
 * scale for each row, beside queries of f32 (attention_narrow). All else is as of f32, with its bits.
 */
#ifndef GD_BACKEND_CPU_ATTENTION_H
#define GD_BACKEND_CPU_ATTENTION_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/random.h"

#include <stdbool.h>
#include <stdint.h>

#define GD_ATTENTION_QUERIES 128 /* rows of a tile at most */
#define GD_ATTENTION_KEYS    256 /* columns at most */
#define GD_ATTENTION_ROW     272 /* distance between rows: they do not meet in the caches */
#define GD_ATTENTION_WIDTH   256 /* of keys and values together: their transposes fit the scratch */
#define GD_ATTENTION_LANES   16  /* sums along a row are made in so many lanes */
#define GD_ATTENTION_STRIP   64  /* rows of bf16 multiplied together at least, if there are */

/* Scores of some queries and keys, and what is known of their rows. */
typedef struct gd_attention_tile {
    float *s;  // [rows, keys], distance GD_ATTENTION_ROW: in: q k^T; out: weights, 0 where excluded
    float *dp; // the same, for the gradient only: in: g v^T; out: the gradient of q k^T
    uint16_t *s_bf16, *dp_bf16; // NULL, or the same rounded to bf16, 0 behind what a row sees
    int64_t rows, keys;
    int64_t seen; /* row i may look at the first `seen + i * seen_step` keys */
    int64_t seen_step;
    float scale;
    const void *mask; // NULL, or that of row 0, key 0: strides in elements
    int64_t mask_row, mask_key;
    bool mask_is_bool;
    uint64_t seed, word, word_row; /* dropout: number of the first word, distance between rows */
    uint32_t drop_below;           /* of the low 24 bits; 0: no dropout */
    float keep;                    /* factor of what is kept */
    float *max, *sum;              // [rows]: m and l so far
    float *o;                      // [rows, width], distance o_row: O so far
    int64_t o_row, width;
    const float *logarithm; // [rows], for the gradient
    const float *result;    // [rows, width], for the gradient: O,
    const void *g;          // and its gradient, f32 or bf16 as s_bf16 says
    int64_t result_row, g_row, g_column;
} gd_attention_tile;

/* Rows that are not f32: halves, or i8 with a scale for each row. */
typedef struct gd_attention_rows {
    const void *data;    // [rows, width]
    int64_t row, column; /* strides in elements */
    int64_t rows, width;
    const float *scale; // of i8: [rows], scale_row apart
    int64_t scale_row;
} gd_attention_rows;

#define GD_ATTENTION_SLACK 16 /* numbers behind the last row that `widen` may write */

typedef struct gd_attention_loops {
    /* x as f32, to [rows, width], contiguous; by dtype: f16, bf16 and i8 */
    void (*widen[GD_DTYPE_COUNT])(const gd_attention_rows *x, float *to);
    /* to [width, rows], distance GD_ATTENTION_ROW, is the transpose of x [rows, width] */
    void (*transpose)(const float *x, int64_t row, int64_t column, int64_t rows, int64_t width,
                      float *to);
    void (*weights)(gd_attention_tile *tile);                  /* a step of the forward pass */
    void (*finish)(gd_attention_tile *tile, float *logarithm); /* O / l; m + log l, unless NULL */
    void (*gradients)(gd_attention_tile *tile); /* s -> dropped weights, dp -> gradient */
    double (*exp)(double x);                    /* for f64 */
    double (*log)(double x);
} gd_attention_loops;

/* f32 and f64; bf16 where instructions multiply it; halves that are widened, in heads whose blocks fit
 * the scratch. */
bool gd_attention_takes(const gd_kernel_call *call);
gd_workspace gd_attention_scratch(const gd_kernel_call *call);
void gd_attention_explain(const gd_kernel_call *call, gd_text *text);
gd_status gd_attention_run(const gd_kernel_call *call, const gd_attention_loops *loops);
gd_status gd_attention_grad_run(const gd_kernel_call *call, const gd_attention_loops *loops);

#endif
