/* backend/cpu/conv_direct.c: windows without packing: a padded copy of a band of the image's rows,
 * in which a tap is a shift, and micro-kernels that add a shift to their operand's address. The
 * copy is as large as the image where packing would be taps times as large. Positions are taken in
 * strips of one vector: along each row, or straight on through the padding between rows, whose
 * results are dropped. Start at gd_conv_direct, at the end.
 */
#include "backend/cpu/conv_plan.h"

#include <string.h>

#define LINE ((int64_t)(GD_LINE_BYTES / sizeof(float))) /* numbers in a cache line */

/* ---- bands ---- */

bool gd_conv_shape_band(const gd_conv_product *v, gd_conv_band *b)
{
    const gd_window *w = &v->access.window;
    const int64_t lanes = v->tiles->lanes;
    if (w->taps[0] != 1 || w->count[0] != 1 || w->size[0] != 1 || w->first[0] != 0 ||
        w->tap_count == 0)
        return false;
    int64_t shared = 0;
    for (int a = 1; a < GD_SPATIAL; a++) {
        const int64_t other = w->first[a] + (w->taps[a] - 1) * w->gap[a];
        const int64_t low = gd_gemm_least(w->first[a], other), high = w->first[a] + other - low;
        b->low[a - 1] = low;
        b->reach[a - 1] = (high - low) / w->step[a];
        /* Zeros at the end of a row may be those at the beginning of the next. */
        const int64_t behind = w->count[a] - 1 + high - (w->size[a] - 1);
        if (a == GD_SPATIAL - 1 && w->step[a] == 1)
            shared = gd_gemm_least(gd_gemm_least(-low, behind), high - low);
    }
    const int64_t width = w->count[2];
    b->row = width + b->reach[1] - (shared > 0 ? shared : 0);
    const int64_t by_rows = (width + lanes - 1) / lanes * lanes;
    /* Strips over row ends are stored in pieces, which weighs the more the shorter the sums. */
    b->straight = by_rows - b->row > width / (v->depth < 128 ? 4 : 16);
    b->taken = b->straight ? b->row : by_rows;
    return true;
}

/* The planes of a band of `rows` rows of positions. */
static void set_planes(const gd_window *w, gd_conv_band *b, int64_t rows, int64_t slack)
{
    b->plane = (rows + b->reach[0]) * b->row + slack;
    b->plane = (b->plane + LINE - 1) / LINE * LINE;
    b->channel = w->step[1] * w->step[2] * b->plane;
    if (b->channel % 1024 == 0)
        b->channel += LINE; /* not all channels into the same sets of the cache */
}

int64_t gd_conv_fit_band(const gd_conv_product *v, gd_conv_band *b, int64_t channels, int64_t rows,
                         int64_t room)
{
    const gd_window *w = &v->access.window;
    /* Numbers behind a plane's rows, since the last strips read on. */
    const int64_t slack = 2 * v->tiles->columns + b->row + b->reach[1];
    const int64_t plane = room / channels / (w->step[1] * w->step[2]);
    const int64_t most = (plane - slack) / b->row - b->reach[0];
    for (rows = gd_gemm_least(rows, most); rows > 0;
         rows--) { /* fewer where rounding takes too much */
        set_planes(w, b, rows, slack);
        if (channels * b->channel <= room)
            return rows;
    }
    return 0;
}

/* What `rows` rows of positions from `first_row` on see of image n, channels [channel, channel +
 * channels), to band. */
static void copy_band(const gd_conv_product *v, const gd_conv_band *b, int64_t n, int64_t channel,
                      int64_t channels, int64_t first_row, int64_t rows, float *band)
{
    const gd_window *w = &v->access.window;
    const int64_t step_y = w->step[1], step_x = w->step[2], height = rows + b->reach[0];
    const float *image = (const float *)v->image + n * w->n_stride + channel * w->c_stride;
    for (int64_t c = 0; c < channels; c++, image += w->c_stride)
        for (int64_t phase = 0; phase < step_y * step_x; phase++) {
            float *plane = band + c * b->channel + phase * b->plane;
            const int64_t px = phase % step_x, py = phase / step_x;
            const int64_t x0 = px + b->low[1]; /* column of the image that column 0 shows */
            const int64_t before = x0 >= 0 ? 0 : (-x0 + step_x - 1) / step_x;
            const int64_t room = x0 >= w->size[2] ? 0 : (w->size[2] - x0 + step_x - 1) / step_x;
            const int64_t end = gd_gemm_least(room, b->row), first = gd_gemm_least(before, end);
            for (int64_t r = 0; r < height; r++) {
                const int64_t y = (first_row + r) * step_y + py + b->low[0];
                const bool inside = y >= 0 && y < w->size[1];
                const int64_t from = inside ? first : 0, to = inside ? end : 0;
                const float *row = inside ? image + y * w->size[2] + x0 + from * step_x : image;
                v->micro->pad_row(plane + r * b->row, from, row, step_x, to - from, b->row - to);
            }
            memset(plane + height * b->row, 0,
                   (size_t)(b->plane - height * b->row) * sizeof(float));
        }
}

/* Address of each step of [step, step+depth) in a band that begins at `channel`. */
static void list_shifts(const gd_window *w, const gd_conv_band *b, int64_t channel, int64_t step,
                        int64_t depth, int32_t *shift)
{
    const int64_t step_y = w->step[1], step_x = w->step[2];
    int64_t c = step / w->tap_count - channel, tx = step % w->taps[2],
            ty = step % w->tap_count / w->taps[2];
    for (int64_t p = 0; p < depth; tx = 0) {
        const int64_t y = w->first[1] + ty * w->gap[1] - b->low[0];
        const int64_t row = c * b->channel + y % step_y * step_x * b->plane + y / step_y * b->row;
        int64_t x = w->first[2] + tx * w->gap[2] - b->low[1];
        for (; tx < w->taps[2] && p < depth; tx++, p++, x += w->gap[2])
            shift[p] = (int32_t)(step_x == 1 ? row + x : row + x % step_x * b->plane + x / step_x);
        if (++ty == w->taps[1]) {
            ty = 0;
            c++;
        }
    }
}

int64_t gd_conv_band_channels(const gd_conv_product *v)
{
    const int64_t taps = v->access.window.tap_count;
    return gd_gemm_least(v->depth / taps, GD_GEMM_KC / taps + 2);
}

int64_t gd_conv_band_room(const gd_conv_product *v)
{
    return (int64_t)(v->paths->block_bytes / sizeof(float)) / 2;
}

size_t gd_conv_direct_bytes(const gd_conv_product *v, const gd_conv_band *b)
{
    return GD_GEMM_PANEL_BYTES + (size_t)(gd_conv_band_channels(v) * b->channel) * sizeof(float);
}

/* ---- tiles ---- */

/* The lanes of a strip that are positions of C, as runs, from lane `at` on; returns how many. */
static int list_strip(const gd_conv_product *v, const gd_conv_band *b, int64_t image,
                      int64_t first_row, int64_t rows, int64_t from, int32_t at,
                      gd_gemm_stretch *c_runs)
{
    const int64_t width = v->access.window.count[2], lanes = v->tiles->lanes;
    const gd_conv_place *place = &v->access.place;
    int64_t y = from / b->row, x = from % b->row;
    int many = 0;
    for (int64_t lane = 0; lane < lanes && y < rows; y++, x = 0) {
        if (x < width) {
            const int64_t count = gd_gemm_least(width - x, lanes - lane), step = place->step[2];
            const int64_t begin = image + (first_row + y) * place->step[1] + x * step;
            gd_gemm_stretch *last = many > 0 ? &c_runs[many - 1] : NULL;
            if (last && step == 1 && last->from + last->count == begin && b->row == width)
                last->count += (int32_t)count; /* no padding between rows */
            else
                c_runs[many++] =
                    (gd_gemm_stretch){ begin, step, (int32_t)(at + lane), (int32_t)count };
        }
        lane += b->row - x;
        if (!b->straight)
            break;
    }
    return many;
}

/* A band's strips: where strip i begins, counted along rows of the band. */
static int64_t strip_begin(const gd_conv_product *v, const gd_conv_band *b, int64_t i)
{
    const int64_t lanes = v->tiles->lanes;
    const int64_t in_row = gd_gemm_vectors(v->tiles, v->access.window.count[2]);
    return b->straight ? i * lanes : i / in_row * b->row + i % in_row * lanes;
}

typedef struct direct_tile {
    const float *first, *second;
    int many;
    int64_t columns; /* when C lies in one run; else 0 */
    gd_gemm_stretch c_runs[GD_GEMM_RUNS];
} direct_tile;

static void set_direct_tile(const gd_conv_product *v, const gd_conv_band *b, int64_t image,
                            int64_t first_row, int64_t rows, int64_t strip, int64_t strips,
                            const float *band, direct_tile *d)
{
    const gd_gemm_micro *tiles = v->tiles;
    const int lanes = tiles->lanes;
    const int64_t from = strip_begin(v, b, strip);
    const bool pair = strip + 1 < strips;
    const int64_t next = pair ? strip_begin(v, b, strip + 1) : from;
    d->first = band + from;
    d->second = band + next;
    d->many = list_strip(v, b, image, first_row, rows, from, 0, d->c_runs);
    if (pair)
        d->many += list_strip(v, b, image, first_row, rows, next, lanes, d->c_runs + d->many);
    const gd_gemm_stretch *p = d->c_runs;
    const bool one_run = d->many == 2 && p[0].count == lanes && p[1].at == lanes &&
                         p[1].from == p[0].from + lanes && p[0].stride == 1;
    d->columns = one_run ? lanes + p[1].count : 0;
    if (!tiles->any_width && d->columns < tiles->columns)
        d->columns = 0;
}

static void direct_tile_by_copy(const gd_gemm_micro *tiles, gd_gemm_tile t,
                                gd_direct_tile_fn kernel, int64_t rows, const direct_tile *d,
                                const int32_t *shift)
{
    _Alignas(GD_LINE_BYTES) float copy[GD_GEMM_MOST_TILE_BYTES / sizeof(float)];
    float *c = t.c;
    const int64_t c_row = t.c_row;
    if (t.accumulate)
        tiles->copy_runs(copy, tiles->columns, c, c_row, rows, d->c_runs, d->many, false);
    t.c = copy;
    t.c_row = tiles->columns;
    t.columns = tiles->columns;
    kernel(&t, d->second, shift);
    tiles->copy_runs(copy, tiles->columns, c, c_row, rows, d->c_runs, d->many, true);
}

/* Points the tile at rows [row, row+rows) of A from step `step` on: in place, or copied to a panel. */
static void point_to_weight(const gd_conv_product *v, int64_t row, int64_t rows, int64_t step,
                            int64_t depth, float *panel, gd_gemm_tile *t)
{
    const gd_gemm_micro *tiles = v->tiles;
    const float *a = (const float *)v->a + row * v->a_row;
    const bool in_rows = v->a_plain || v->access.window.tap_count == 1; /* steps are equally far */
    t->a_row = v->a_row;
    t->a_step = v->a_plain ? 1 : v->access.a_channel;
    t->a = a + step * t->a_step;
    if (!in_rows)
        v->micro->pack_weight(&v->access.base, tiles, panel, a, v->a_row, rows, step, depth,
                              &t->a_row, &t->a_step, NULL);
    else if (t->a_step != 1 || (rows >= 8 && gd_gemm_collide(v->a_row * (int64_t)sizeof(float))))
        tiles->pack_a(panel, t->a, t->a_row, t->a_step, rows, depth, &t->a_row, &t->a_step);
    else
        return;
    t->a = panel;
}

/* Rows [row, row+m) of C for one band and one block of the depth. */
static void direct_rows(const gd_conv_product *v, int64_t row, int64_t m, int64_t step,
                        int64_t depth, const int32_t *shift, direct_tile *tiles, int64_t tile_count,
                        float *row_panel)
{
    const bool last = step + depth == v->depth;
    const int64_t panels =
        (m + v->tiles->rows - 1) / v->tiles->rows; /* as high as each other, or one higher */
    for (int64_t i = 0, panel = 0, end; panel < panels; panel++, i = end) {
        end = m * (panel + 1) / panels;
        const int64_t rows = end - i;
        const gd_direct_tile_fn kernel = v->micro->direct[rows - 1];
        gd_gemm_tile t = { .c_row = v->c_row,
                           .depth = depth,
                           .row_bias = last ? v->bias + (row + i) * v->bias_step : NULL,
                           .row_bias_stride = v->bias_step,
                           .accumulate = step > 0,
                           .relu = last && v->relu };
        point_to_weight(v, row + i, rows, step, depth, row_panel, &t);
        for (int64_t j = 0; j < tile_count; j++) {
            direct_tile *d = &tiles[j];
            t.b = d->first;
            t.c = v->c + (row + i) * v->c_row;
            if (d->columns > 0) {
                t.c = (float *)t.c + d->c_runs[0].from;
                t.columns = d->columns;
                kernel(&t, d->second, shift);
            } else {
                direct_tile_by_copy(v->tiles, t, kernel, rows, d, shift);
            }
        }
    }
}

#define DIRECT_TILES 64 /* set at a time */

void gd_conv_direct(const gd_conv_product *v, const gd_conv_band *shape, int64_t row, int64_t m,
                    int64_t line, int64_t lines, gd_scratch scratch)
{
    const gd_window *w = &v->access.window;
    const int64_t channels = gd_conv_band_channels(v), room = gd_conv_band_room(v);
    const int64_t in_row = gd_gemm_vectors(v->tiles, w->count[2]);
    float *panel = gd_scratch_take(&scratch, GD_GEMM_PANEL_BYTES);
    gd_conv_band b = *shape;
    direct_tile tiles[DIRECT_TILES];
    int32_t shift[GD_GEMM_KC];
    for (int64_t at = line, rows; at < line + lines; at += rows) {
        const int64_t n = at / w->count[1], y = at % w->count[1];
        rows = gd_conv_fit_band(v, &b, channels, gd_gemm_least(w->count[1] - y, line + lines - at),
                                room);
        gd_scratch behind = scratch;
        float *band = gd_scratch_take(&behind, (size_t)(channels * b.channel) * sizeof *band);
        const int64_t strips = b.straight
                                   ? gd_gemm_vectors(v->tiles, rows * b.row - (b.row - w->count[2]))
                                   : rows * in_row;
        for (int64_t step = 0; step < v->depth; step += GD_GEMM_KC) {
            const int64_t depth = gd_gemm_least(v->depth - step, GD_GEMM_KC);
            const int64_t channel = step / w->tap_count,
                          end = (step + depth + w->tap_count - 1) / w->tap_count;
            copy_band(v, &b, n, channel, end - channel, y, rows, band);
            list_shifts(w, &b, channel, step, depth, shift);
            for (int64_t strip = 0; strip < strips; strip += 2 * DIRECT_TILES) {
                int64_t count = 0;
                for (int64_t s = strip; s < strips && count < DIRECT_TILES; s += 2)
                    set_direct_tile(v, &b, n * v->access.place.n, y, rows, s, strips, band,
                                    &tiles[count++]);
                direct_rows(v, row, m, step, depth, shift, tiles, count, panel);
            }
        }
    }
}
