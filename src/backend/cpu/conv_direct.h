/* backend/cpu/conv_direct.h: windows without packing: a padded copy of a band of the image's rows,
 * in which a tap is a shift, and micro-kernels that add a shift to their operand's address. The
 * copy is as large as the image where packing would be taps times as large. Positions are taken in
 * strips of one vector: along each row, or straight on through the padding between rows, whose
 * results are dropped. Start at direct_part().
 */
#ifndef GD_BACKEND_CPU_CONV_DIRECT_H
#define GD_BACKEND_CPU_CONV_DIRECT_H

#include "backend/cpu/conv_packed.h"
#include "backend/cpu/gemm_finish.h"
#include "backend/cpu/gemm_plan.h"

/* How a band lies in memory: [channels, phase_y, phase_x, rows, row]. With a stride s, columns x,
 * x + s, … of the image are neighbours, in phase x % s. */
typedef struct band_t {
    int64_t low[2], reach[2]; /* least shift of a tap; rows and columns beyond it, in phases */
    int64_t row;              /* positions from row to row */
    int64_t plane, channel;   /* numbers from phase to phase, from channel to channel */
    bool straight;            /* strips run on from row to row */
    int64_t taken;            /* lanes for a row of positions */
} band_t;

#define DIRECT_STEPS 256 /* of the depth: a block of the definition */
_Static_assert(DIRECT_STEPS == GD_GEMM_KC, "the table of shifts holds a block");

/* For a constant number of rows: C[rows, two strips] (+)= A[rows, depth] @ shifted strips. The
 * first strip is t->b. */
GD_SIMD_INLINE void direct_body(const gd_gemm_tile *t, const float *second, const int32_t *shift,
                                const int rows)
{
    int64_t a_step = t->a_step;
    const int64_t row = t->a_row;
    const float *a0 = t->a, *a4 = a0 + 4 * row, *a8 = a4 + 4 * row, *a12 = a8 + 4 * row;
    const float *first = t->b;
    VEC sum[ROWS_MAX][VECS_MAX];
    UNROLL
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = V(zero)();
    for (int64_t p = 0; p < t->depth; p++) {
        const VEC x0 = V(load)(first + shift[p]), x1 = V(load)(second + shift[p]);
        UNROLL
        for (int i = 0; i < rows; i++) {
            const float *a = i < 4 ? a0 : i < 8 ? a4 : i < 12 ? a8 : a12;
            const VEC av = V(set1)(a[(i % 4) * row]);
            sum[i][0] = V(fma)(av, x0, sum[i][0]);
            sum[i][1] = V(fma)(av, x1, sum[i][1]);
        }
        a0 += a_step;
        a4 += a_step;
        a8 += rows > 8 ? a_step : 0;
        a12 += rows > 12 ? a_step : 0;
        OPAQUE(a_step); /* as in tile_body */
        OPAQUE(a0);
        OPAQUE(a4);
    }
    tile_finish(t, sum, rows, VECS_MAX);
}

#define DIRECT_KERNEL(rows)                                                                     \
    static void direct_##rows(const gd_gemm_tile *t, const float *second, const int32_t *shift) \
    {                                                                                           \
        direct_body(t, second, shift, rows);                                                    \
    }
DIRECT_KERNEL(1)
DIRECT_KERNEL(2)
DIRECT_KERNEL(4)
#if ROWS_MAX > 6
DIRECT_KERNEL(8)
#endif
#if ROWS_MAX == 14
DIRECT_KERNEL(14)
#elif ROWS_MAX == 12
DIRECT_KERNEL(12)
#else
DIRECT_KERNEL(6)
#endif
#undef DIRECT_KERNEL

typedef void (*direct_fn)(const gd_gemm_tile *t, const float *second, const int32_t *shift);

/* The tallest tile for `left` rows. */
static direct_fn choose_direct_tile(int64_t left, int64_t *rows)
{
#if ROWS_MAX == 14
    if (left >= 14 && left != 16)
        return *rows = 14, direct_14;
#elif ROWS_MAX == 12
    if (left >= 12 && left != 16)
        return *rows = 12, direct_12;
#else
    if (left >= 6 && left != 8)
        return *rows = 6, direct_6;
#endif
#if ROWS_MAX > 6
    if (left >= 8)
        return *rows = 8, direct_8;
#endif
    if (left >= 4)
        return *rows = 4, direct_4;
    if (left >= 2)
        return *rows = 2, direct_2;
    return *rows = 1, direct_1;
}

/* The band's shape; false where a window does not lie in two axes. */
static __attribute__((noinline)) bool shape_band(const conv_t *v, band_t *b)
{
    const window_t *w = &v->window;
    if (w->taps[0] != 1 || w->count[0] != 1 || w->size[0] != 1 || w->first[0] != 0 ||
        w->tap_count == 0)
        return false;
    int64_t shared = 0;
    for (int a = 1; a < GD_SPATIAL; a++) {
        const int64_t other = w->first[a] + (w->taps[a] - 1) * w->gap[a];
        const int64_t low = LEAST(w->first[a], other), high = w->first[a] + other - low;
        b->low[a - 1] = low;
        b->reach[a - 1] = (high - low) / w->step[a];
        /* Zeros at the end of a row may be those at the beginning of the next. */
        const int64_t behind = w->count[a] - 1 + high - (w->size[a] - 1);
        if (a == GD_SPATIAL - 1 && w->step[a] == 1)
            shared = LEAST(LEAST(-low, behind), high - low);
    }
    const int64_t width = w->count[2];
    b->row = width + b->reach[1] - (shared > 0 ? shared : 0);
    const int64_t by_rows = (width + LANES - 1) / LANES * LANES;
    /* Strips over row ends are stored in pieces, which weighs the more the shorter the sums. */
    b->straight = by_rows - b->row > width / (v->depth < 128 ? 4 : 16);
    b->taken = b->straight ? b->row : by_rows;
    return true;
}

/* Numbers behind a plane's rows, since the last strips read on. */
static int64_t band_slack(const band_t *b)
{
    return 2 * COLUMNS_MAX + b->row + b->reach[1];
}

/* The planes of a band of `rows` rows of positions. */
static void set_planes(const window_t *w, band_t *b, int64_t rows)
{
    b->plane = (rows + b->reach[0]) * b->row + band_slack(b);
    b->plane = (b->plane + LINE - 1) / LINE * LINE;
    b->channel = w->step[1] * w->step[2] * b->plane;
    if (b->channel % 1024 == 0)
        b->channel += LINE; /* not all channels into the same sets of the cache */
}

/* Rows of positions whose band fits in `room` numbers, at most `rows`; 0: none. Sets plane and
 * channel, so that channels * channel <= room. */
static int64_t fit_band(const window_t *w, band_t *b, int64_t channels, int64_t rows, int64_t room)
{
    const int64_t plane = room / channels / (w->step[1] * w->step[2]);
    const int64_t most = (plane - band_slack(b)) / b->row - b->reach[0];
    for (rows = LEAST(rows, most); rows > 0; rows--) { /* fewer where rounding takes too much */
        set_planes(w, b, rows);
        if (channels * b->channel <= room)
            return rows;
    }
    return 0;
}

/* What `rows` rows of positions from `first_row` on see of image n, channels [channel, channel +
 * channels), to band. */
static __attribute__((noinline)) void copy_band(const window_t *w, const band_t *b, int64_t n,
                                                int64_t channel, int64_t channels,
                                                int64_t first_row, int64_t rows, float *band)
{
    const int64_t step_y = w->step[1], step_x = w->step[2], height = rows + b->reach[0];
    const float *image = w->data + n * w->n_stride + channel * w->c_stride;
    for (int64_t c = 0; c < channels; c++, image += w->c_stride)
        for (int64_t phase = 0; phase < step_y * step_x; phase++) {
            float *plane = band + c * b->channel + phase * b->plane;
            const int64_t px = phase % step_x, py = phase / step_x;
            const int64_t x0 = px + b->low[1]; /* column of the image that column 0 shows */
            const int64_t before = x0 >= 0 ? 0 : (-x0 + step_x - 1) / step_x;
            const int64_t room = x0 >= w->size[2] ? 0 : (w->size[2] - x0 + step_x - 1) / step_x;
            const int64_t end = LEAST(room, b->row), first = LEAST(before, end);
            for (int64_t r = 0; r < height; r++) {
                const int64_t y = (first_row + r) * step_y + py + b->low[0];
                float *to = plane + r * b->row;
                if (y < 0 || y >= w->size[1]) {
                    zero_over(to, b->row);
                    continue;
                }
                zero_over(to, first);
                copy_numbers(to + first, 1, image + y * w->size[2] + x0 + first * step_x, step_x,
                             end - first);
                zero_over(to + end, b->row - end);
            }
            memset(plane + height * b->row, 0,
                   (size_t)(b->plane - height * b->row) * sizeof(float));
        }
}

/* Address of each step of [step, step+depth) in a band that begins at `channel`. */
static __attribute__((noinline)) void list_shifts(const window_t *w, const band_t *b,
                                                  int64_t channel, int64_t step, int64_t depth,
                                                  int32_t *shift)
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

/* The lanes of a strip that are positions of C, as runs, from lane `at` on; returns how many. */
static __attribute__((noinline)) int list_strip(const conv_t *v, const band_t *b, int64_t image,
                                                int64_t first_row, int64_t rows, int64_t from,
                                                int32_t at, gd_gemm_stretch *c_runs)
{
    const int64_t width = v->window.count[2];
    int64_t y = from / b->row, x = from % b->row;
    int many = 0;
    for (int64_t lane = 0; lane < LANES && y < rows; y++, x = 0) {
        if (x < width) {
            const int64_t count = LEAST(width - x, LANES - lane), step = v->place.step[2];
            const int64_t begin = image + (first_row + y) * v->place.step[1] + x * step;
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
static int64_t strip_begin(const conv_t *v, const band_t *b, int64_t i)
{
    const int64_t in_row = (v->window.count[2] + LANES - 1) / LANES;
    return b->straight ? i * LANES : i / in_row * b->row + i % in_row * LANES;
}

typedef struct direct_tile {
    const float *first, *second;
    int many;
    int64_t columns; /* when C lies in one run; else 0 */
    gd_gemm_stretch c_runs[2 * LANES];
} direct_tile;

static __attribute__((noinline)) void set_direct_tile(const conv_t *v, const band_t *b,
                                                      int64_t image, int64_t first_row,
                                                      int64_t rows, int64_t strip, int64_t strips,
                                                      const float *band, direct_tile *d)
{
    const int64_t from = strip_begin(v, b, strip);
    const bool pair = strip + 1 < strips;
    const int64_t next = pair ? strip_begin(v, b, strip + 1) : from;
    d->first = band + from;
    d->second = band + next;
    d->many = list_strip(v, b, image, first_row, rows, from, 0, d->c_runs);
    if (pair)
        d->many += list_strip(v, b, image, first_row, rows, next, LANES, d->c_runs + d->many);
    const gd_gemm_stretch *p = d->c_runs;
    const bool one_run = d->many == 2 && p[0].count == LANES && p[1].at == LANES &&
                         p[1].from == p[0].from + LANES && p[0].stride == 1;
    d->columns = one_run ? LANES + p[1].count : 0;
    if (!GD_SIMD_MASK_FREE && d->columns < COLUMNS_MAX)
        d->columns = 0;
}

static void direct_tile_by_copy(gd_gemm_tile t, direct_fn kernel, int64_t rows,
                                const direct_tile *d, const int32_t *shift)
{
    float copy[ROWS_MAX * COLUMNS_MAX];
    float *c = t.c;
    const int64_t c_row = t.c_row;
    if (t.accumulate)
        copy_c_runs(copy, c, c_row, rows, d->c_runs, d->many, false);
    t.c = copy;
    t.c_row = COLUMNS_MAX;
    t.columns = COLUMNS_MAX;
    kernel(&t, d->second, shift);
    copy_c_runs(copy, c, c_row, rows, d->c_runs, d->many, true);
}

/* Rows [row, row+m) of C for one band and one block of the depth. */
static __attribute__((noinline)) void direct_rows(const conv_t *v, int64_t row, int64_t m,
                                                  int64_t step, int64_t depth, const int32_t *shift,
                                                  direct_tile *tiles, int64_t tile_count,
                                                  float *row_panel)
{
    const bool last = step + depth == v->depth;
    for (int64_t i = 0, rows; i < m; i += rows) {
        const direct_fn kernel = choose_direct_tile(m - i, &rows);
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
                direct_tile_by_copy(t, kernel, rows, d, shift);
            }
        }
    }
}

#define DIRECT_TILES 64 /* set at a time */

/* Channels of the image that a block of the depth reads, and numbers that their band may take: the
 * other half of the cache is for data read or written once. */
static int64_t band_channels(const conv_t *v)
{
    const int64_t taps = v->window.tap_count;
    return LEAST(v->depth / taps, GD_GEMM_KC / taps + 2);
}

static int64_t band_room(const conv_t *v)
{
    return (int64_t)(v->paths->block_bytes / sizeof(float)) / 2;
}

/* b: of the highest band. */
static size_t direct_bytes(const conv_t *v, const band_t *b)
{
    return GD_GEMM_PANEL_BYTES + (size_t)(band_channels(v) * b->channel) * sizeof(float);
}

/* Rows [row, row+m) of C, rows [line, line+lines) of positions counted through the batch. */
static void direct_part(const conv_t *v, const band_t *shape, int64_t row, int64_t m, int64_t line,
                        int64_t lines, gd_scratch scratch)
{
    const window_t *w = &v->window;
    const int64_t channels = band_channels(v), room = band_room(v);
    float *panel = gd_scratch_take(&scratch, GD_GEMM_PANEL_BYTES);
    band_t b = *shape;
    direct_tile tiles[DIRECT_TILES];
    int32_t shift[DIRECT_STEPS];
    for (int64_t at = line, rows; at < line + lines; at += rows) {
        const int64_t n = at / w->count[1], y = at % w->count[1];
        rows = fit_band(w, &b, channels, LEAST(w->count[1] - y, line + lines - at), room);
        gd_scratch behind = scratch;
        float *band = gd_scratch_take(&behind, (size_t)(channels * b.channel) * sizeof *band);
        const int64_t in_row = (w->count[2] + LANES - 1) / LANES;
        const int64_t strips =
            b.straight ? (rows * b.row - (b.row - w->count[2]) + LANES - 1) / LANES : rows * in_row;
        for (int64_t step = 0; step < v->depth; step += GD_GEMM_KC) {
            const int64_t depth = LEAST(v->depth - step, GD_GEMM_KC);
            const int64_t channel = step / w->tap_count,
                          end = (step + depth + w->tap_count - 1) / w->tap_count;
            copy_band(w, &b, n, channel, end - channel, y, rows, band);
            list_shifts(w, &b, channel, step, depth, shift);
            for (int64_t strip = 0; strip < strips; strip += 2 * DIRECT_TILES) {
                int64_t count = 0;
                for (int64_t s = strip; s < strips && count < DIRECT_TILES; s += 2)
                    set_direct_tile(v, &b, n * v->place.n, y, rows, s, strips, band,
                                    &tiles[count++]);
                direct_rows(v, row, m, step, depth, shift, tiles, count, panel);
            }
        }
    }
}

/* Whether it pays. Packing costs about as much as sixteen rows of C. */
static bool direct_pays(const conv_t *v, const band_t *b)
{
    const window_t *w = &v->window;
    const int64_t lanes = (b->taken * w->count[1] + COLUMNS_MAX - 1) / COLUMNS_MAX * COLUMNS_MAX;
    return w->step[1] * w->step[2] <= 16 && (b->taken - w->count[2]) * v->m <= 16 * w->count[2] &&
           (lanes - w->plane) * v->m <= 16 * w->plane;
}

/* Whether to: some rows of positions must fit in a band. */
static gd_gemm_choice choose_direct(const conv_t *v, band_t *b)
{
    const bool forced = v->paths->conv == GD_CONV_DIRECT;
    if (!forced && !gd_conv_may_choose(v->paths))
        return (gd_gemm_choice){ 0, "GRADUS_CONV" };
    if (!shape_band(v, b))
        return (gd_gemm_choice){ 0, "windows lie in three axes, or nowhere" };
    if (!forced && !direct_pays(v, b))
        return (gd_gemm_choice){ 0, "packing costs less than lanes left empty by short rows" };
    const int64_t rows = v->window.count[1], least = forced ? 1 : LEAST(4, rows);
    if (fit_band(&v->window, b, band_channels(v), rows, band_room(v)) < least)
        return (gd_gemm_choice){ 0, "a band of padded rows does not fit the cache" };
    return (gd_gemm_choice){ 1, forced ? "GRADUS_CONV"
                                       : "rows are copied once, and taps are shifts in them" };
}

#endif
