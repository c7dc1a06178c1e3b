/* backend/cpu/conv_lanes.h: convolution, and its gradient by the input, where there are few
 * channels in C and rows of positions are short, as in the second layer of LeNet: channels of C lie
 * in the lanes of vectors, and a tile's rows are positions, which may go over the ends of rows at
 * no cost. Start at lanes_part.
 */
#ifndef GD_BACKEND_CPU_CONV_LANES_H
#define GD_BACKEND_CPU_CONV_LANES_H

#include "backend/cpu/conv_band_tile.h"
#include "backend/cpu/conv_direct.h"

#define LANES_DEPTH    1024
#define LANES_COLUMNS  (2 * COLUMNS_MAX)
#define LANES_BLOCKS   (LANES_DEPTH / GD_GEMM_KC)
#define LANES_LEAST    64 /* steps that are worth transposing the result */
#define LANES_PANEL    (COLUMNS_MAX * A_PANEL_ROW)
#define LANES_WIDTH(m) (((m) + LANES - 1) / LANES * LANES)

/* Whether it pays: lanes that hold nothing, against those of a row of positions and four for
 * vectors that begin anywhere. */
static bool lanes_pay(const conv_t *v, const band_t *b)
{
    return v->depth >= LANES_LEAST &&
           5 * LANES_WIDTH(v->m) * v->window.count[2] < 4 * (v->m + 4) * b->taken;
}

/* Whether to: all channels of an image must fit in a band, behind the weights. */
static bool use_lanes(const conv_t *v, band_t *b)
{
    const window_t *w = &v->window;
    const int64_t wide = LANES_WIDTH(v->m);
    const bool forced = v->paths->conv == GD_CONV_LANES;
    if ((!forced && !gd_conv_may_choose(v->paths)) || !shape_band(v, b) || !v->place.plain ||
        w->step[1] * w->step[2] != 1 || v->depth > LANES_DEPTH || wide > LANES_COLUMNS ||
        (!forced && !lanes_pay(v, b)))
        return false;
    const int64_t room = (int64_t)(v->paths->block_bytes / sizeof(float));
    return fit_band(w, b, v->depth / w->tap_count, w->count[1],
                    room - wide * v->depth - LANES_PANEL) == w->count[1];
}

/* The steps of each block of the depth as stretches. */
typedef struct lanes_steps {
    stretch_t stretches[LANES_DEPTH];
    int first[LANES_BLOCKS + 1];
} lanes_steps;

static void list_stretches(const conv_t *v, const band_t *b, lanes_steps *steps)
{
    int32_t shift[GD_GEMM_KC];
    int many = 0, block = 0;
    for (int64_t step = 0; step < v->depth; step += GD_GEMM_KC) {
        const int64_t depth = LEAST(v->depth - step, GD_GEMM_KC);
        list_shifts(&v->window, b, 0, step, depth, shift);
        steps->first[block++] = many;
        for (int64_t p = 0; p < depth; p++)
            if (p > 0 && shift[p] - shift[p - 1] == v->window.gap[2])
                steps->stretches[many - 1].count++;
            else
                steps->stretches[many++] = (stretch_t){ shift[p], 1 };
    }
    steps->first[block] = many;
}

/* A transposed: for each panel of columns of C^T, [depth, its width]. */
static void pack_lanes(const conv_t *v, float *panel, float *to)
{
    for (int64_t j = 0; j < v->m; j += COLUMNS_MAX) {
        const int64_t rows = LEAST(v->m - j, COLUMNS_MAX), wide = LANES_WIDTH(rows);
        for (int64_t step = 0; step < v->depth; step += GD_GEMM_KC) {
            const int64_t depth = LEAST(v->depth - step, GD_GEMM_KC);
            pack_weight(v, j, rows, step, depth, panel);
            PRODUCTS.pack_transposed(to, wide, panel, A_PANEL_ROW, depth, rows);
            to += depth * wide;
        }
    }
}

/* Positions of `lines` rows whose band is in place, for the columns of C^T from j on. */
static void lanes_columns(const conv_t *v, const band_t *b, const lanes_steps *steps, int64_t j,
                          int64_t lines, const float *weight, const float *band, float *c)
{
    float sums[BAND_ROWS * COLUMNS_MAX];
    const int64_t width = v->window.count[2], rows = LEAST(v->m - j, COLUMNS_MAX);
    const int64_t wide = LANES_WIDTH(rows);
    int64_t height, y = 0, x = 0;
    const band_fn kernel = choose_band_tile(wide, &height);
    band_tile_t t = { .band = band, .step = v->window.gap[2], .c = sums, .c_row = COLUMNS_MAX };
    for (int64_t at = 0; at < lines * width; at += height) {
        const int64_t count = LEAST(lines * width - at, height);
        for (int64_t k = 0; k < height; k++) { /* past the end: the last position again */
            t.shift[k] = y * b->row + x;
            if (k + 1 < count && ++x == width)
                x = 0, y++;
        }
        if (++x == width)
            x = 0, y++;
        for (int64_t step = 0; step < v->depth; step += GD_GEMM_KC) {
            const int block = (int)(step / GD_GEMM_KC);
            t.stretches = steps->stretches + steps->first[block];
            t.many = steps->first[block + 1] - steps->first[block];
            t.b = weight + j * v->depth + step * wide;
            t.accumulate = step > 0;
            kernel(&t);
        }
        PRODUCTS.store_columns(sums, COLUMNS_MAX, count, rows, c + j * v->c_row + at, v->c_row,
                               v->bias + j * v->bias_step, v->bias_step, v->relu);
    }
}

static size_t lanes_bytes(const conv_t *v, const band_t *b)
{
    const int64_t band = v->depth / v->window.tap_count * b->channel;
    return (size_t)(LANES_WIDTH(v->m) * v->depth + LANES_PANEL + band) * sizeof(float);
}

/* Rows [line, line+lines) of positions counted through the batch, all rows of C. */
static __attribute__((noinline)) void lanes_part(const conv_t *v, const band_t *b, int64_t line,
                                                 int64_t lines, gd_scratch scratch)
{
    const window_t *w = &v->window;
    const int64_t weights = LANES_WIDTH(v->m) * v->depth,
                  numbers = v->depth / w->tap_count * b->channel;
    float *weight = gd_scratch_take(&scratch, (size_t)weights * sizeof *weight),
          *panel = gd_scratch_take(&scratch, LANES_PANEL * sizeof *panel),
          *band = gd_scratch_take(&scratch, (size_t)numbers * sizeof *band);
    lanes_steps steps;
    list_stretches(v, b, &steps);
    pack_lanes(v, panel, weight);
    for (int64_t at = line, rows; at < line + lines; at += rows) {
        const int64_t n = at / w->count[1], y = at % w->count[1];
        rows = LEAST(w->count[1] - y, line + lines - at);
        copy_band(w, b, n, 0, v->depth / w->tap_count, y, rows, band);
        for (int64_t j = 0; j < v->m; j += COLUMNS_MAX)
            lanes_columns(v, b, &steps, j, rows, weight, band,
                          v->c + n * v->place.n + y * w->count[2]);
    }
}

/* Whether AVX2's narrower vectors suit: they do twice as many multiply-adds in the same time. */
static inline bool is_narrow(const gd_conv_args *args, int64_t m, int64_t depth, int64_t width)
{
    const int64_t *stride = args->attr->stride;
    return args->paths->conv == GD_CONV_BEST && m <= VF32_LANES / 2 && width <= VF32_LANES &&
           depth >= LANES_LEAST && stride[0] * stride[1] * stride[2] == 1 &&
           args->s.in[0] * args->s.kernel[0] == 1;
}

#endif
