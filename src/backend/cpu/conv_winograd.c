/* backend/cpu/conv_winograd.c: convolution and its gradient by the input as 36 products over the channels
 * (conv_winograd.h), for all instruction sets. conv_choose.c says when. Start at gd_conv_winograd_rows, at the end.
 *
 * The result is DEFINED, whatever the thread count, the blocking or the vector width: the transforms are
 * those of conv_winograd_isa.c; a frequency's sum is a product's (gemm.h), with the channels as steps; then
 * + bias, or + 0 without one, and ReLU.
 *
 * A thread takes some channels of the result and some tiles. The kernels of these channels are transformed
 * once, or if the image has more than GD_GEMM_KC channels, once for each block of tiles; the tiles in blocks
 * that stay in the second-level cache together with their products:
 *     M[frequency, tiles, rows] (+)= V[frequency, tiles, channels] @ U[frequency, channels, rows]
 */
#include "backend/cpu/conv_plan.h"

/* The most numbers that gd_conv_shape_winograd asks for: a block has less than a strip more than
 * GD_WINOGRAD_BLOCK tiles, or fits in a product's packed block; `spread` adds less than two lines. */
#define MOST_TILES (GD_WINOGRAD_BLOCK + GD_WINOGRAD_STRIP)
#define MOST_OF_FREQUENCY \
    (GD_GEMM_KC * GD_WINOGRAD_ROWS + MOST_TILES * (GD_GEMM_KC + GD_WINOGRAD_ROWS) + 3 * 32)
#define MOST_NUMBERS (GD_WINOGRAD_FREQUENCIES * MOST_OF_FREQUENCY + GD_WINOGRAD_BAND(16))
_Static_assert(MOST_NUMBERS * sizeof(float) <= GD_CONV_FAST_SCRATCH, "a device has the scratch");

/* Numbers from frequency to frequency: an odd number of cache lines, lest all fall into the same sets. */
static int64_t spread(int64_t numbers)
{
    const int64_t line = GD_LINE_BYTES / (int64_t)sizeof(float);
    return ((numbers + line - 1) / line | 1) * line;
}

static int64_t parts(int64_t count, int64_t most)
{
    return (count + most - 1) / most;
}

void gd_conv_shape_winograd(const gd_conv_product *v, int64_t images, gd_conv_winograd *w)
{
    const gd_window *window = &v->access.window;
    const int64_t lanes = v->tiles->lanes, tile = GD_WINOGRAD_TILE;
    const int64_t width = parts(window->count[2], tile), strips = parts(width, GD_WINOGRAD_STRIP);
    const int64_t blocks = parts(v->m, GD_WINOGRAD_ROWS);
    w->tiles[0] = parts(window->count[1], tile);
    w->tiles[1] = width;
    w->strip_tiles = parts(width, strips);
    w->strips = parts(width, w->strip_tiles);
    w->all_strips = images * w->tiles[0] * w->strips;
    w->channels = v->depth / window->tap_count;
    w->steps = gd_gemm_least(w->channels, GD_GEMM_KC);
    w->steps = parts(w->steps, lanes) * lanes;
    w->rows = parts(parts(v->m, blocks), lanes) * lanes;
    w->row_parts = parts(v->m, w->rows);
    const int64_t room = (int64_t)(v->paths->block_bytes / sizeof(float));
    const int64_t strip = GD_WINOGRAD_FREQUENCIES * w->strip_tiles * (w->steps + w->rows);
    const int64_t least = parts(GD_WINOGRAD_BLOCK, w->strip_tiles);
    w->block = gd_gemm_least(room / strip > least ? room / strip : least, w->all_strips);
    const int64_t most = w->block * w->strip_tiles;
    w->image = spread(most * w->steps);
    w->weight = spread(w->steps * w->rows);
    w->sums = spread(most * w->rows);
}

size_t gd_conv_winograd_bytes(const gd_conv_product *v, const gd_conv_winograd *w)
{
    const int64_t most = w->block * w->strip_tiles;
    const int64_t numbers = GD_WINOGRAD_FREQUENCIES * (w->image + w->weight + w->sums) +
                            GD_WINOGRAD_BAND((int64_t)v->tiles->lanes);
    return (size_t)numbers * sizeof(float) +
           gd_gemm_most_bytes(v->tiles, v->paths, most > w->rows ? most : w->rows, w->steps);
}

/* What a thread works in. */
typedef struct room {
    gd_winograd_frequencies image, weight, sums;
    float *band;
    gd_scratch rest;
} room;

static gd_winograd_frequencies take_frequencies(gd_scratch *scratch, int64_t frequency,
                                                int64_t step)
{
    const size_t numbers = (size_t)(GD_WINOGRAD_FREQUENCIES * frequency);
    return (gd_winograd_frequencies){ gd_scratch_take(scratch, numbers * sizeof(float)), frequency,
                                      step };
}

static room take_room(const gd_conv_product *v, const gd_conv_winograd *w, gd_scratch scratch)
{
    room r = { .image = take_frequencies(&scratch, w->image, w->steps),
               .weight = take_frequencies(&scratch, w->weight, w->rows),
               .sums = take_frequencies(&scratch, w->sums, w->rows) };
    const size_t band = (size_t)GD_WINOGRAD_BAND((int64_t)v->tiles->lanes) * sizeof(float);
    r.band = gd_scratch_take(&scratch, band);
    r.rest = scratch;
    return r;
}

/* The same from vector `lane` and tile `tile` on. */
static gd_winograd_frequencies from(gd_winograd_frequencies f, int64_t tile, int64_t lane)
{
    f.first += tile * f.step + lane;
    return f;
}

/* The kernels of rows [row, row+m) and channels [channel, channel+steps). */
static void transform_weight(const gd_conv_product *v, const gd_conv_winograd *w, int64_t row,
                             int64_t m, int64_t channel, int64_t steps, const room *r)
{
    const float *first = (const float *)v->a + row * v->a_row + channel * v->access.a_channel;
    const bool flipped = v->access.window.gap[2] < 0;
    for (int64_t i = 0; i < w->rows; i += v->tiles->lanes) {
        const gd_winograd_frequencies to = from(r->weight, 0, i);
        v->micro->winograd->transform_weight(first + i * v->a_row, v->a_row, v->access.a_channel,
                                             gd_gemm_least(m - i, v->tiles->lanes), steps, flipped,
                                             &to);
    }
}

/* The tiles of a strip, counted through the batch; *image: which one they are of. */
static gd_winograd_strip strip_at(const gd_conv_winograd *w, int64_t index, int64_t *image)
{
    const int64_t x = index % w->strips, line = index / w->strips;
    *image = line / w->tiles[0];
    return (gd_winograd_strip){ .tiles =
                                    gd_gemm_least(w->tiles[1] - x * w->strip_tiles, w->strip_tiles),
                                .y = line % w->tiles[0] * GD_WINOGRAD_TILE,
                                .x = x * w->strip_tiles * GD_WINOGRAD_TILE };
}

/* Channels [channel, channel+steps) of what strips [strip, strip+count) see; how many tiles these have. */
static int64_t transform_image(const gd_conv_product *v, const gd_conv_winograd *w, int64_t strip,
                               int64_t count, int64_t channel, int64_t steps, const room *r)
{
    const gd_window *window = &v->access.window;
    const int64_t lanes = v->tiles->lanes;
    int64_t tile = 0;
    for (int64_t i = strip; i < strip + count; i++) {
        int64_t n;
        gd_winograd_strip s = strip_at(w, i, &n);
        s.height = window->size[1], s.width = window->size[2];
        /* taps in reverse begin at the last one */
        s.y += window->first[1] + (window->gap[1] < 0 ? 2 * window->gap[1] : 0);
        s.x += window->first[2] + (window->gap[2] < 0 ? 2 * window->gap[2] : 0);
        s.channel = window->c_stride;
        const float *image =
            (const float *)v->image + n * window->n_stride + channel * window->c_stride;
        for (int64_t c = 0; c < steps; c += lanes) {
            const gd_winograd_frequencies to = from(r->image, tile, c);
            s.channels = gd_gemm_least(steps - c, lanes);
            v->micro->winograd->transform_image(&s, image + c * window->c_stride, r->band, &to);
        }
        tile += s.tiles;
    }
    return tile;
}

static void multiply(const gd_conv_product *v, const gd_conv_winograd *w, int64_t tiles,
                     int64_t steps, bool accumulate, const room *r)
{
    const gd_gemm_args product = { .m = tiles,
                                   .n = w->rows,
                                   .k = steps,
                                   .a = r->image.first,
                                   .a_row_stride = w->steps,
                                   .a_col_stride = 1,
                                   .b = r->weight.first,
                                   .b_row_stride = w->rows,
                                   .b_col_stride = 1,
                                   .c = r->sums.first,
                                   .c_row_stride = w->rows,
                                   .c_col_stride = 1,
                                   .batch_rank = 1,
                                   .batch_shape = { GD_WINOGRAD_FREQUENCIES },
                                   .a_batch_stride = { w->image },
                                   .b_batch_stride = { w->weight },
                                   .c_batch_stride = { w->sums },
                                   .accumulate = accumulate,
                                   .threads = 1,
                                   .paths = v->paths,
                                   .workspace = gd_scratch_rest(&r->rest) };
    gd_gemm(v->tiles, &product);
}

/* Rows [row, row+m) of the result of some strips. */
static void transform_result(const gd_conv_product *v, const gd_conv_winograd *w, int64_t row,
                             int64_t m, int64_t strip, int64_t count, const room *r)
{
    const gd_window *window = &v->access.window;
    const int64_t lanes = v->tiles->lanes;
    int64_t tile = 0;
    for (int64_t i = strip; i < strip + count; i++) {
        int64_t n;
        gd_winograd_strip s = strip_at(w, i, &n);
        s.height = window->count[1], s.width = window->count[2];
        s.channel = v->c_row;
        for (int64_t c = 0; c < m; c += lanes) {
            const gd_winograd_frequencies sums = from(r->sums, tile, c);
            s.channels = gd_gemm_least(m - c, lanes);
            v->micro->winograd->transform_result(
                &s, &sums, r->band, v->bias + (row + c) * v->bias_step, v->bias_step, v->relu,
                v->c + (row + c) * v->c_row + n * v->access.place.n);
        }
        tile += s.tiles;
    }
}

void gd_conv_winograd_rows(const gd_conv_product *v, const gd_conv_winograd *w, int64_t row,
                           int64_t m, int64_t strip, int64_t strips, gd_scratch scratch)
{
    const room r = take_room(v, w, scratch);
    for (int64_t at = strip, count; at < strip + strips; at += count) {
        count = gd_gemm_least(strip + strips - at, w->block);
        for (int64_t channel = 0; channel < w->channels; channel += GD_GEMM_KC) {
            const int64_t steps = gd_gemm_least(w->channels - channel, GD_GEMM_KC);
            if (at == strip || w->channels > GD_GEMM_KC)
                transform_weight(v, w, row, m, channel, steps, &r);
            const int64_t tiles = transform_image(v, w, at, count, channel, steps, &r);
            multiply(v, w, tiles, steps, channel > 0, &r);
        }
        transform_result(v, w, row, m, at, count, &r);
    }
}
