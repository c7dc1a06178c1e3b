/* backend/cpu/conv_images.h: convolution, and its gradient by the input, for batches of small
 * images: images lie in the lanes of vectors (the layout CHWN, which cuda-convnet had; Fu et al.,
 * "High Performance Im2win and Direct Convolutions using Three Tensor Layouts on SIMD
 * Architectures", 2024). Vectors are full however short a row is, and taps that see padding are
 * left out, which in small images are many; the image and C are transposed for it. Start at images_part.
 *
 * A step that is left out, s = fma(w, 0, s), changes s in three cases: w is infinite or NaN, which
 * use_images looks for, or s is -0, which comes of the least products alone. Adding the bias, or 0,
 * makes 0 of either zero, except that of -0, which use_images looks for, too.
 */
#ifndef GD_BACKEND_CPU_CONV_IMAGES_H
#define GD_BACKEND_CPU_CONV_IMAGES_H

#include "backend/cpu/conv_packed.h"

/* With two vectors of AVX-512, thirty-two images at a time would not fit the first-level cache. */
#define IMAGES_VECS      (LANES == 16 ? 1 : 2)
#define IMAGES           (IMAGES_VECS * LANES)
#define IMAGES_ROWS      6
#define IMAGES_POSITIONS 16 /* of C, transposed together */
#define IMAGES_WIDTH     20 /* wider rows fill vectors well enough */

_Static_assert(sizeof(float) * IMAGES_ROWS * IMAGES_POSITIONS * IMAGES <= GD_GEMM_PANEL_BYTES,
               "the sums fit in a panel");

/* The taps along an axis that see the image, and where the first of them sees it. */
typedef struct seen_t {
    int64_t tap, count, at;
} seen_t;

static __attribute__((noinline)) seen_t find_seen(const window_t *w, int a, int64_t position)
{
    seen_t s = { .at = position * w->step[a] + w->first[a] };
    const int64_t gap = w->gap[a], size = w->size[a];
    while (s.tap < w->taps[a] && (s.at < 0 || s.at >= size))
        s.tap++, s.at += gap;
    while (s.tap + s.count < w->taps[a] && s.at + s.count * gap >= 0 && s.at + s.count * gap < size)
        s.count++;
    return s;
}

/* Sums of `rows` rows of C at one position, for one group of images. Of the taps of each channel
 * lines * count see the image. */
typedef struct images_tile_t {
    int64_t channels, lines, count;
    int64_t before, line_skip, channel_skip; /* taps left out: first of all, behind each line, … */
    const float *a;                          // [rows, channels, taps], at the first tap
    int64_t a_row, a_channel_skip;
    const float *b;                   // [channels, size, IMAGES], where the first tap sees it
    int64_t b_tap, b_line, b_channel; /* to the next: from a tap, a line's end, the last line's */
    float *c;                         // [rows, c_row]
    int64_t c_row;
} images_tile_t;

/* For a constant number of rows. Taps that are left out count where blocks of the sum end. */
GD_SIMD_INLINE void images_body(const images_tile_t *t, const int rows)
{
    const int64_t row = t->a_row, b_tap = t->b_tap;
    const float *a0 = t->a, *b = t->b;
    int64_t channels = t->channels, lines = t->lines, left = t->count;
    int64_t room = GD_GEMM_KC - t->before; /* steps to the end of the block */
    for (bool accumulate = false;; accumulate = true, room += GD_GEMM_KC) {
        VEC sum[IMAGES_ROWS][IMAGES_VECS];
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int v = 0; v < IMAGES_VECS; v++)
                sum[i][v] = V(zero)();
        }
        while (room > 0 && channels > 0) {
            const float *a4 = a0 + 4 * row;
            const int64_t count = LEAST(left, room);
            for (int64_t p = count; p > 0; p--) {
                UNROLL
                for (int i = 0; i < rows; i++) {
                    const VEC av = V(set1)((i < 4 ? a0 : a4)[(i % 4) * row]);
                    UNROLL
                    for (int v = 0; v < IMAGES_VECS; v++)
                        sum[i][v] = V(fma)(av, V(load)(b + v * LANES), sum[i][v]);
                }
                b += b_tap;
                a0++;
                a4++;
            }
            room -= count;
            left -= count;
            if (left > 0)
                break;
            left = t->count;
            room -= t->line_skip;
            a0 += t->line_skip;
            b += t->b_line;
            if (--lines > 0)
                continue;
            lines = t->lines;
            room -= t->channel_skip;
            a0 += t->a_channel_skip;
            b += t->b_channel;
            channels--;
        }
        float *c = t->c;
        UNROLL
        for (int i = 0; i < rows; i++, c += t->c_row) {
            UNROLL
            for (int v = 0; v < IMAGES_VECS; v++) {
                const VEC blocks = accumulate ? V(load)(c + v * LANES) : V(zero)();
                V(store)(c + v * LANES, V(add)(blocks, sum[i][v]));
            }
        }
        if (channels == 0)
            return;
    }
}

static void images_tile_4(const images_tile_t *t)
{
    images_body(t, 4);
}

static void images_tile_6(const images_tile_t *t)
{
    images_body(t, IMAGES_ROWS);
}

/* Rows [row, row+rows) of C at `count` positions from `position` on; columns: what each position of
 * a line sees along it. */
static void images_positions(const conv_t *v, const float *image, const seen_t *columns,
                             int64_t row, int64_t rows, int64_t position, int64_t count,
                             float *sums)
{
    const window_t *w = &v->window;
    int64_t line = position / w->count[2], column = position % w->count[2];
    seen_t y = find_seen(w, 1, line);
    const int64_t taps_x = w->taps[2], width = w->size[2] * IMAGES, plane = w->size[1] * width;
    void (*const tile)(const images_tile_t *) = rows == IMAGES_ROWS ? images_tile_6 : images_tile_4;
    images_tile_t t = { .a_row = v->a_row,
                        .b_tap = w->gap[2] * IMAGES,
                        .c = sums,
                        .c_row = IMAGES_POSITIONS * IMAGES };
    for (int64_t i = 0; i < count; i++, t.c += IMAGES) {
        const seen_t x = columns[column];
        t.channels = y.count > 0 && x.count > 0 ? v->depth / w->tap_count : 0;
        t.lines = y.count;
        t.count = x.count;
        t.before = y.tap * taps_x + x.tap;
        t.line_skip = taps_x - x.count;
        t.channel_skip = w->tap_count - y.count * taps_x;
        t.a = v->a + row * v->a_row + t.before;
        t.a_channel_skip = v->a_channel - y.count * taps_x;
        t.b = image + y.at * width + x.at * IMAGES;
        t.b_line = w->gap[1] * width - x.count * t.b_tap;
        t.b_channel = plane - y.count * w->gap[1] * width;
        tile(&t);
        if (++column == w->count[2])
            column = 0, y = find_seen(w, 1, ++line);
    }
}

static int64_t images_numbers(const conv_t *v)
{
    return v->depth / v->window.tap_count * v->window.c_stride;
}

static size_t images_bytes(const conv_t *v)
{
    return (size_t)(images_numbers(v) * IMAGES) * sizeof(float) +
           sizeof(float[IMAGES_ROWS][IMAGES_POSITIONS][IMAGES]);
}

/* Rows [line, line+lines) of positions, counted through groups of images, all rows of C. */
static __attribute__((noinline)) void images_part(const conv_t *v, int64_t n, int64_t line,
                                                  int64_t lines, gd_scratch scratch)
{
    const window_t *w = &v->window;
    const int64_t numbers = images_numbers(v), width = w->count[2];
    float *block = gd_scratch_take(&scratch, (size_t)(numbers * IMAGES) * sizeof *block);
    float *sums = gd_scratch_take(&scratch, sizeof(float[IMAGES_ROWS][IMAGES_POSITIONS][IMAGES]));
    seen_t columns[IMAGES_WIDTH];
    for (int64_t x = 0; x < width; x++)
        columns[x] = find_seen(w, 2, x);
    for (int64_t at = line, count; at < line + lines; at += count) {
        const int64_t first = at / w->count[1] * IMAGES, y = at % w->count[1];
        const int64_t images = LEAST(n - first, IMAGES);
        count = LEAST(w->count[1] - y, line + lines - at);
        PRODUCTS.pack_transposed(block, IMAGES, w->data + first * w->n_stride, w->n_stride, numbers,
                                 images);
        for (int64_t p = y * width; p < (y + count) * width; p += IMAGES_POSITIONS) {
            const int64_t positions = LEAST((y + count) * width - p, IMAGES_POSITIONS);
            for (int64_t row = 0, rows; row < v->m; row += rows) {
                const int64_t left = v->m - row;
                rows = left == 6 || left > 8 ? 6 : 4;
                const int64_t from = LEAST(row, v->m - rows); /* some rows once more */
                images_positions(v, block, columns, from, rows, p, positions, sums);
                for (int64_t i = 0; i < rows; i++)
                    PRODUCTS.store_columns(
                        sums + i * IMAGES_POSITIONS * IMAGES, IMAGES, positions, images,
                        v->c + first * v->place.n + (from + i) * v->c_row + p, v->place.n,
                        v->bias + (from + i) * v->bias_step, 0, v->relu);
            }
        }
    }
}

/* Whether padding need not be multiplied: see above. */
static __attribute__((noinline)) bool may_leave_out(const float *weight, int64_t count,
                                                    const float *bias, int64_t bias_count)
{
    float lanes[LANES];
    VEC sum = V(zero)();
    for (int64_t i = 0; i < count; i += LANES)
        sum = V(fma)(V(load_masked)(V(mask_first)(LEAST(count - i, LANES)), weight + i), V(zero)(),
                     sum);
    V(store)(lanes, sum);
    bool may = true;
    for (int i = 0; i < LANES; i++)
        may = may && lanes[i] == 0;
    for (int64_t i = 0; bias && i < bias_count; i++)
        may = may && (bias[i] != 0 || !signbit(bias[i]));
    return may;
}

/* Whether it pays for C [n, m, width...] and images of `numbers` numbers. A single tap is a matrix
 * product. The baseline of x86-64 does without, for the library's size. */
static bool use_images(const gd_conv_args *args, int64_t m, int64_t numbers, int64_t width)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t lanes = (s->n + IMAGES - 1) / IMAGES * IMAGES;
    const bool forced = args->paths->conv == GD_CONV_IMAGES;
    return GD_SIMD_FUSED && (forced || gd_conv_may_choose(args->paths)) &&
           s->in[0] * s->kernel[0] * s->out[0] == 1 && args->attr->before[0] == 0 && s->taps > 1 &&
           m >= 4 && width <= IMAGES_WIDTH && (forced || 5 * s->n >= 4 * lanes) &&
           numbers * IMAGES <= (int64_t)(args->paths->block_bytes / sizeof(float)) &&
           (gd_conv_is_asked(args) ? !args->has_not_finite
                                   : may_leave_out(args->b, s->groups * s->o * s->c * s->taps,
                                                   args->bias, s->groups * s->o));
}

#endif
