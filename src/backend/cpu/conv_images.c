/* backend/cpu/conv_images.c: convolution, and its gradient by the input, for batches of small
 * images: images lie in the lanes of vectors (the layout CHWN, which cuda-convnet had; Fu et al.,
 * "High Performance Im2win and Direct Convolutions using Three Tensor Layouts on SIMD
 * Architectures", 2024). Vectors are full however short a row is, and taps that see padding are
 * left out, which in small images are many; the image and C are transposed for it. Start at
 * gd_conv_images.
 *
 * A step that is left out, s = fma(w, 0, s), changes s in three cases: w is infinite or NaN, which
 * gd_conv_takes_images looks for, or s is -0, which comes of the least products alone. Adding the
 * bias, or 0, makes 0 of either zero, except that of -0, which gd_conv_takes_images looks for, too.
 */
#include "backend/cpu/conv_plan.h"

#define IMAGES_POSITIONS 16 /* of C, transposed together */

/* The taps along an axis that see the image, and where the first of them sees it. */
typedef struct seen {
    int64_t tap, count, at;
} seen;

static seen find_seen(const gd_window *w, int a, int64_t position)
{
    seen s = { .at = position * w->step[a] + w->first[a] };
    const int64_t gap = w->gap[a], size = w->size[a];
    while (s.tap < w->taps[a] && (s.at < 0 || s.at >= size))
        s.tap++, s.at += gap;
    while (s.tap + s.count < w->taps[a] && s.at + s.count * gap >= 0 && s.at + s.count * gap < size)
        s.count++;
    return s;
}

/* Rows [row, row+rows) of C at `count` positions from `position` on; columns: what each position of
 * a line sees along it. */
static void images_positions(const gd_conv_product *v, const float *image, const seen *columns,
                             int64_t row, const gd_images_tiles *tile, int64_t position,
                             int64_t count, float *sums)
{
    const gd_window *w = &v->access.window;
    const int64_t images = v->micro->images;
    int64_t line = position / w->count[2], column = position % w->count[2];
    seen y = find_seen(w, 1, line);
    const int64_t taps_x = w->taps[2], width = w->size[2] * images, plane = w->size[1] * width;
    gd_images_tile t = { .a_row = v->a_row,
                         .b_tap = w->gap[2] * images,
                         .c = sums,
                         .c_row = IMAGES_POSITIONS * images };
    for (int64_t i = 0; i < count; i++, t.c += images) {
        const seen x = columns[column];
        t.channels = y.count > 0 && x.count > 0 ? v->depth / w->tap_count : 0;
        t.lines = y.count;
        t.count = x.count;
        t.before = y.tap * taps_x + x.tap;
        t.line_skip = taps_x - x.count;
        t.channel_skip = w->tap_count - y.count * taps_x;
        t.a = (const float *)v->a + row * v->a_row + t.before;
        t.a_channel_skip = v->access.a_channel - y.count * taps_x;
        t.b = image + y.at * width + x.at * images;
        t.b_line = w->gap[1] * width - x.count * t.b_tap;
        t.b_channel = plane - y.count * w->gap[1] * width;
        tile->tile(&t);
        if (++column == w->count[2])
            column = 0, y = find_seen(w, 1, ++line);
    }
}

static int64_t image_numbers(const gd_conv_product *v)
{
    return v->depth / v->access.window.tap_count * v->access.window.c_stride;
}

static size_t sums_bytes(const gd_conv_product *v)
{
    return (size_t)(GD_IMAGES_ROWS * IMAGES_POSITIONS * v->micro->images) * sizeof(float);
}

size_t gd_conv_images_bytes(const gd_conv_product *v)
{
    return (size_t)(image_numbers(v) * v->micro->images) * sizeof(float) + sums_bytes(v);
}

/* The tile for `left` of m rows: of as many tiles as they need, the lowest that will do. */
static const gd_images_tiles *choose_tile(const gd_conv_micro *micro, int64_t left, int64_t m)
{
    const gd_images_tiles *tile = micro->images_tiles, *tallest = tile;
    while (tallest[1].rows > 0)
        tallest++;
    const int64_t tiles = (left + tallest->rows - 1) / tallest->rows,
                  rows = (left + tiles - 1) / tiles;
    while (tile->rows < rows && tile < tallest && tile[1].rows <= m)
        tile++;
    return tile;
}

void gd_conv_images(const gd_conv_product *v, int64_t n, int64_t line, int64_t lines,
                    gd_scratch scratch)
{
    const gd_window *w = &v->access.window;
    const gd_gemm_micro *tiles = v->tiles;
    const int64_t numbers = image_numbers(v), width = w->count[2], most = v->micro->images;
    float *block = gd_scratch_take(&scratch, (size_t)(numbers * most) * sizeof *block);
    float *sums = gd_scratch_take(&scratch, sums_bytes(v));
    seen columns[GD_CONV_IMAGES_WIDTH];
    for (int64_t x = 0; x < width; x++)
        columns[x] = find_seen(w, 2, x);
    for (int64_t at = line, count; at < line + lines; at += count) {
        const int64_t first = at / w->count[1] * most, y = at % w->count[1];
        const int64_t images = gd_gemm_least(n - first, most);
        count = gd_gemm_least(w->count[1] - y, line + lines - at);
        tiles->pack_transposed(block, most, (const float *)v->image + first * w->n_stride,
                               w->n_stride, numbers, images);
        for (int64_t p = y * width; p < (y + count) * width; p += IMAGES_POSITIONS) {
            const int64_t positions = gd_gemm_least((y + count) * width - p, IMAGES_POSITIONS);
            for (int64_t row = 0, rows; row < v->m; row += rows) {
                const gd_images_tiles *tile = choose_tile(v->micro, v->m - row, v->m);
                rows = tile->rows;
                const int64_t from = gd_gemm_least(row, v->m - rows); /* some rows once more */
                images_positions(v, block, columns, from, tile, p, positions, sums);
                for (int64_t i = 0; i < rows; i++)
                    tiles->store_columns(
                        sums + i * IMAGES_POSITIONS * most, most, positions, images,
                        v->c + first * v->access.place.n + (from + i) * v->c_row + p,
                        v->access.place.n, v->bias + (from + i) * v->bias_step, 0, v->relu);
            }
        }
    }
}
