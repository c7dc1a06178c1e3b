/* backend/cpu/conv_weight.c: the gradient of a convolution's weight in f32 (conv.h): for each group
 *     dw[o, channel and tap] = G[o, positions] @ window[channel and tap, positions]^T
 * with the positions of the whole batch. It is computed transposed: panels of window rows against a
 * packed block of G^T; sums stay in scratch until all positions are in.
 *
 * Where windows overlap, the part of the image that a block of positions sees is copied once, with
 * its padding, to a band, and the micro-kernel reads every window row out of it, at an address of its
 * own. So no row is packed, of which there are as many copies of the image as taps. Elsewhere window
 * rows are packed. Start at gd_conv_weight, at the end.
 */
#include "backend/cpu/conv_plan.h"
#include "base/threads.h"

#include <string.h>

#define LINE ((int64_t)(GD_LINE_BYTES / sizeof(float))) /* numbers in a cache line */

static int64_t whole_vectors(const gd_gemm_micro *tiles, int64_t n)
{
    return gd_gemm_vectors(tiles, n) << tiles->lane_shift;
}

/* Numbers from row to row of a packed panel. */
static int64_t panel_row(const gd_gemm_micro *tiles)
{
    return GD_GEMM_KC + tiles->lanes;
}

/* Part of the gradient of one group: window rows [row, row+m), output channels [column, column+n).
 */
typedef struct weight_part {
    const gd_conv_micro *micro;
    const gd_lines_micro *lines; /* tiles of whole lines of taps; or NULL */
    const gd_gemm_micro *tiles;
    const gd_window *window;
    const float *image; // [n, c, size...], of the group
    const float *g;     // [n, o, plane], of the group
    int64_t g_n;        /* from image to image */
    float *out;         // [o, channels * taps]
    int64_t out_row;
    int64_t row, m, column, n, positions;
    float *block, *panel, *sums; // G^T; window rows; [m, n in whole vectors]
    int64_t sums_row;
    const gd_paths *paths;
} weight_part;

typedef struct weight_band {
    float *data;               // [channels, plane]
    int64_t channel, channels; /* those that the part's rows read */
    int64_t row, plane;        /* numbers from row to row, from channel to channel */
    gd_window_run runs[GD_GEMM_KC];
    gd_band_stretch stretches[GD_GEMM_KC];
    int many;
} weight_band;

/* Whether the part is for this path: two axes, more than one tap, and room behind the block. */
static bool shape_weight_band(const weight_part *part, weight_band *b)
{
    const gd_window *w = part->window;
    if (part->paths->conv == GD_CONV_PACKED || w->taps[0] != 1 || w->count[0] != 1 ||
        w->size[0] != 1 || w->first[0] != 0 || w->tap_count < 2)
        return false;
    b->channel = part->row / w->tap_count;
    b->channels = (part->row + part->m - 1) / w->tap_count + 1 - b->channel;
    b->row = (w->count[2] - 1) * w->step[2] + (w->taps[2] - 1) * w->gap[2] + 1;
    const int64_t images = (GD_GEMM_KC - 1) / w->plane + 2; /* at most, in a block */
    const int64_t lines = (GD_GEMM_KC - 1) / w->count[2] + 2;
    b->plane =
        (lines * w->step[1] + gd_gemm_least(images, lines) * ((w->taps[1] - 1) * w->gap[1] + 1)) *
        b->row;
    b->plane = (b->plane + LINE - 1) / LINE * LINE + LINE;
    const int64_t room = (int64_t)(part->paths->block_bytes / sizeof(float));
    return b->channels * b->plane <= room - GD_GEMM_KC * part->sums_row;
}

/* Row y of a plane of the image, with its padding; rows are filled in ascending order. */
static void copy_padded_row(const weight_part *part, const float *plane, int64_t y, int64_t width,
                            float *to)
{
    const gd_window *w = part->window;
    const int64_t before = w->first[2] < 0 ? gd_gemm_least(-w->first[2], width) : 0;
    const int64_t room = w->size[2] - w->first[2];
    const bool inside = y >= 0 && y < w->size[1] && room > before;
    const int64_t count = inside ? gd_gemm_least(room, width) - before : 0;
    const float *from = count > 0 ? plane + y * w->size[2] + w->first[2] + before : plane;
    part->micro->pad_row(to, before, from, 1, count, width - before - count);
}

/* What positions [position, position+depth) see. */
static void fill_weight_band(const weight_part *part, weight_band *b, int64_t position,
                             int64_t depth)
{
    const gd_window *w = part->window;
    b->many = gd_window_runs(w, position, depth, b->runs);
    int64_t line = 0;
    for (int first = 0, last; first < b->many; first = last + 1) {
        const gd_window_run *run = &b->runs[first];
        for (last = first; last + 1 < b->many && b->runs[last + 1].n == run->n;)
            last++;
        for (int i = first; i <= last; i++) {
            const gd_window_run *r = &b->runs[i];
            b->stretches[i].from =
                (line + (r->y - run->y) * w->step[1]) * b->row + r->x * w->step[2];
            b->stretches[i].count = r->count;
        }
        const int64_t height =
            (b->runs[last].y - run->y) * w->step[1] + (w->taps[1] - 1) * w->gap[1] + 1;
        const float *plane = part->image + run->n * w->n_stride + b->channel * w->c_stride;
        for (int64_t c = 0; c < b->channels; c++, plane += w->c_stride)
            for (int64_t i = 0; i < height; i++)
                copy_padded_row(part, plane, run->y * w->step[1] + w->first[1] + i, b->row,
                                b->data + c * b->plane + (line + i) * b->row);
        line += height;
    }
}

/* The tile for the next vectors of those left, and its height. */
static gd_band_tile_fn choose_tile(const gd_conv_micro *micro, int64_t vectors, int64_t *height)
{
    const bool two = vectors >= 2;
    *height = micro->band_rows[two];
    return micro->band[two];
}

/* One block of positions, which the band has, by tiles of lines, as high as each other or a unit higher: all
 * rows of the part against its one vector of columns. */
static void multiply_lines(const weight_part *part, const weight_band *band, int64_t position)
{
    const gd_window *w = part->window;
    const gd_lines_micro *l = part->lines;
    const int64_t lines = part->m / l->taps, units = (lines + l->unit - 1) / l->unit;
    const int64_t most = l->lines / l->unit, tiles = (units + most - 1) / most;
    int64_t channel = part->row / w->tap_count - band->channel,
            ty = part->row % w->tap_count / l->taps;
    gd_band_tile t = { .band = band->data,
                       .stretches = band->stretches,
                       .many = band->many,
                       .b = part->block,
                       .c_row = part->sums_row,
                       .accumulate = position > 0 };
    for (int64_t i = 0, end, from = 0; i < tiles; i++, from = end) {
        end = units * (i + 1) / tiles * l->unit;
        for (int64_t k = from; k < end; k++) {
            t.shift[k - from] = channel * band->plane + ty * w->gap[1] * band->row;
            if (k + 1 < lines && ++ty == w->taps[1])
                ty = 0, channel++;
        }
        t.c = part->sums + from * l->taps * part->sums_row;
        l->tiles[(end - from) / l->unit - 1](&t);
    }
}

/* One block of positions: all rows of the part against all columns. Rows beyond the last are
 * computed as the last one is, into sums that nobody reads. */
static void multiply_band(const weight_part *part, weight_band *band, int64_t position,
                          int64_t depth)
{
    const gd_window *w = part->window;
    fill_weight_band(part, band, position, depth);
    if (part->lines) {
        multiply_lines(part, band, position);
        return;
    }
    gd_band_tile t = { .band = band->data,
                       .stretches = band->stretches,
                       .many = band->many,
                       .step = w->step[2],
                       .c_row = part->sums_row,
                       .accumulate = position > 0 };
    for (int64_t j = 0; j < part->sums_row; j += part->tiles->columns) {
        const int64_t vectors = gd_gemm_vectors(part->tiles, part->sums_row - j);
        int64_t height;
        const gd_band_tile_fn kernel = choose_tile(part->micro, vectors, &height);
        int64_t channel = part->row / w->tap_count - band->channel, tx = part->row % w->taps[2],
                ty = part->row % w->tap_count / w->taps[2];
        t.b = part->block + j * depth;
        for (int64_t i = 0; i < part->m; i += height) {
            for (int64_t k = 0; k < height; k++) {
                t.shift[k] = channel * band->plane + ty * w->gap[1] * band->row + tx * w->gap[2];
                if (i + k + 1 >= part->m || ++tx < w->taps[2])
                    continue;
                tx = 0;
                if (++ty == w->taps[1])
                    ty = 0, channel++;
            }
            t.c = part->sums + i * part->sums_row + j;
            kernel(&t);
        }
    }
}

/* Where panel i of m rows begins: even heights, an odd row in the last, which is no higher. */
static int64_t panel_begin(const gd_gemm_micro *tiles, int64_t m, int64_t i, int64_t panels)
{
    const int64_t unit = tiles->row_unit;
    return i == panels ? m : (m / unit * i + panels - 1) / panels * unit;
}

typedef struct weight_work {
    const gd_conv_args *args;
    const gd_conv_micro *micro;
    const gd_lines_micro *lines;
    gd_window window; /* of group 0 */
    int64_t row_unit; /* rows are cut at multiples of it */
    int64_t row_parts, column_parts;
} weight_work;

/* The rows before part i of a group's. */
static int64_t row_begin(const weight_work *work, int64_t i)
{
    const int64_t units = work->args->s.c * work->args->s.taps / work->row_unit;
    return units * i / work->row_parts * work->row_unit;
}

/* The rows of the largest part. */
static int64_t most_rows(const weight_work *work)
{
    const int64_t units = work->args->s.c * work->args->s.taps / work->row_unit;
    return (units + work->row_parts - 1) / work->row_parts * work->row_unit;
}

#define PIECES_KEPT 1024

/* Pieces of the block's runs for every tap, as long as they fit; else of one tap at a time. */
typedef struct piece_table {
    gd_window_run runs[GD_GEMM_KC];
    int run_count;
    bool kept;
    gd_window_piece pieces[PIECES_KEPT];
    int first[PIECES_KEPT + 1]; /* [taps + 1], when kept */
} piece_table;

static void fill_table(const gd_window *w, int64_t position, int64_t depth, piece_table *t)
{
    int64_t covered;
    t->run_count = gd_window_runs(w, position, depth, t->runs);
    t->kept = t->run_count * w->tap_count <= PIECES_KEPT;
    if (!t->kept)
        return;
    t->first[0] = 0;
    for (int64_t tap = 0; tap < w->tap_count; tap++)
        t->first[tap + 1] = t->first[tap] + gd_window_pieces(w, tap, t->runs, t->run_count,
                                                             t->pieces + t->first[tap], &covered);
}

/* Window rows [row, row+rows) at the block's positions, to the panel [rows, panel_row]. */
static void pack_window_rows(const weight_part *part, piece_table *t, int64_t row, int64_t rows,
                             int64_t depth)
{
    const gd_window *w = part->window;
    const int64_t width = whole_vectors(part->tiles, depth);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t channel = (row + i) / w->tap_count, tap = (row + i) % w->tap_count;
        const gd_window_piece *pieces = t->pieces;
        int many;
        if (t->kept) {
            pieces += t->first[tap];
            many = t->first[tap + 1] - t->first[tap];
        } else {
            int64_t covered;
            many = gd_window_pieces(w, tap, t->runs, t->run_count, t->pieces, &covered);
        }
        const bool gaps = many != 1 || pieces->count < depth;
        part->micro->copy_pieces(pieces, many, gaps, part->image + channel * w->c_stride,
                                 w->step[2], width, part->panel + i * panel_row(part->tiles));
    }
}

/* Positions [position, position+depth) of G's channels as panels [depth, width] of the block. */
static void pack_gradient(const weight_part *part, int64_t position, int64_t depth)
{
    const int64_t plane = part->window->plane;
    for (int64_t j = 0; j < part->n; j += part->tiles->columns) {
        const int64_t columns = gd_gemm_least(part->n - j, part->tiles->columns);
        const int64_t width = whole_vectors(part->tiles, columns);
        float *panel = part->block + j * depth;
        for (int64_t p = 0; p < depth;) {
            const int64_t n = (position + p) / plane, at = (position + p) % plane;
            const int64_t count = gd_gemm_least(plane - at, depth - p);
            part->tiles->pack_transposed(panel + p * width, width,
                                         part->g + n * part->g_n + (part->column + j) * plane + at,
                                         plane, count, columns);
            p += count;
        }
    }
}

/* Fetch what pack_gradient will read: channels lie far apart, in more streams than the processor
 * follows by itself. */
static void fetch_gradient(const weight_part *part, int64_t position, int64_t depth)
{
    const int64_t plane = part->window->plane;
    for (int64_t p = 0; p < depth;) {
        const int64_t n = (position + p) / plane, at = (position + p) % plane;
        const int64_t count = gd_gemm_least(plane - at, depth - p);
        const float *g = part->g + n * part->g_n + part->column * plane + at;
        for (int64_t j = 0; j < part->n; j++, g += plane)
            for (int64_t i = 0; i < count; i += LINE)
                __builtin_prefetch(g + i, 0, 2);
        p += count;
    }
}

/* One block of positions whose window rows are packed. */
static void multiply_packed(const weight_part *part, piece_table *table, int64_t position,
                            int64_t depth)
{
    const int64_t panels = (part->m + part->tiles->rows - 1) / part->tiles->rows;
    fill_table(part->window, position, depth, table);
    for (int64_t i = 0; i < panels; i++) {
        const int64_t from = panel_begin(part->tiles, part->m, i, panels),
                      rows = panel_begin(part->tiles, part->m, i + 1, panels) - from;
        pack_window_rows(part, table, part->row + from, rows, depth);
        gd_gemm_tile t = { .a = part->panel,
                           .a_row = panel_row(part->tiles),
                           .a_step = 1,
                           .c_row = part->sums_row,
                           .depth = depth,
                           .row_bias_stride = 1,
                           .next_a = part->panel,
                           .accumulate = position > 0 };
        for (int64_t j = 0; j < part->sums_row; j += part->tiles->columns) {
            t.columns = t.b_step = gd_gemm_least(part->sums_row - j, part->tiles->columns);
            t.b = part->block + j * depth;
            t.c = part->sums + from * part->sums_row + j;
            gd_gemm_tile_kernel(part->tiles, rows, gd_gemm_vectors(part->tiles, t.columns))(&t);
        }
    }
}

static void multiply_weight(weight_part *part, gd_scratch scratch)
{
    union {
        piece_table pieces;
        weight_band band;
    } u;
    const int64_t deepest = gd_gemm_least(part->positions, GD_GEMM_KC);
    const int64_t sums =
        (part->m + GD_BAND_ROWS) * part->sums_row; /* the last tile is a whole one */
    part->sums = gd_scratch_take(&scratch, (size_t)sums * sizeof(float));
    part->block = gd_scratch_take(&scratch, (size_t)(deepest * part->sums_row) * sizeof(float));
    const bool use_band = shape_weight_band(part, &u.band);
    if (use_band)
        u.band.data =
            gd_scratch_take(&scratch, (size_t)(u.band.channels * u.band.plane) * sizeof(float));
    else
        part->panel = gd_scratch_take(&scratch, GD_GEMM_PANEL_BYTES);
    for (int64_t position = 0; position < part->positions; position += GD_GEMM_KC) {
        const int64_t depth = gd_gemm_least(part->positions - position, GD_GEMM_KC);
        pack_gradient(part, position, depth);
        fetch_gradient(part, position + depth,
                       gd_gemm_least(part->positions - position - depth, GD_GEMM_KC));
        if (use_band)
            multiply_band(part, &u.band, position, depth);
        else
            multiply_packed(part, &u.pieces, position, depth);
    }
    part->tiles->store_columns(part->sums, part->sums_row, part->m, part->n,
                               part->out + part->column * part->out_row + part->row, part->out_row,
                               NULL, 0, false);
}

/* The first part of a piece of a group: all that is left of its columns and rows, cut to what the
 * block and the scratch hold. */
static weight_part begin_part(const weight_work *work, int64_t group)
{
    const gd_conv_args *args = work->args;
    const gd_conv_sizes *s = &args->s;
    const int64_t rows = s->c * s->taps;
    return (weight_part){ .micro = work->micro,
                          .lines = work->lines,
                          .tiles = work->micro->product,
                          .window = &work->window,
                          .image = (const float *)args->b + group * s->c * s->in_plane,
                          .g = (const float *)args->a + group * s->o * s->out_plane,
                          .g_n = s->groups * s->o * s->out_plane,
                          .out = args->out + group * s->o * rows,
                          .out_row = rows,
                          .positions = s->n * s->out_plane,
                          .paths = args->paths };
}

static void cut_columns(weight_part *part, int64_t end)
{
    part->n = gd_gemm_least(end - part->column, gd_gemm_block_columns(part->tiles, part->paths));
    part->sums_row = whole_vectors(part->tiles, part->n);
}

static void cut_rows(const weight_work *work, weight_part *part, int64_t end)
{
    const int64_t room = (int64_t)(GD_CONV_SCRATCH / sizeof(float)) / part->sums_row;
    const int64_t unit = GD_BAND_ROWS * work->row_unit;
    part->m = gd_gemm_least(end - part->row, (room - GD_BAND_ROWS) / unit * unit);
}

static void explain_weight(const weight_work *work, int threads)
{
    const int lanes = work->micro->product->lanes;
    const gd_conv_sizes *s = &work->args->s;
    const int64_t rows = s->c * s->taps;
    gd_text *text = work->args->explain;
    weight_part part = begin_part(work, 0);
    weight_band band;
    const int64_t vecs = gd_gemm_vectors(work->micro->product, s->o), parts = work->column_parts;
    cut_columns(&part,
                gd_gemm_least((vecs + parts - 1) / parts * lanes, s->o)); /* the largest piece */
    cut_rows(work, &part, most_rows(work));
    if (s->groups > 1)
        gd_text_add(text, "%lld times ", (long long)s->groups);
    gd_text_add(text, "%lld x %lld x %lld by %s; vectors of %d; %d thread%s", (long long)s->o,
                (long long)part.positions, (long long)rows,
                !shape_weight_band(&part, &band)
                    ? "packing: windows do not overlap, or their band does not fit the cache"
                : work->lines ? "bands: rows are copied once, and read once for the taps of a line"
                              : "bands: rows are copied once, and read at each tap's shift",
                lanes, threads, threads == 1 ? "" : "s");
    if (work->row_parts * work->column_parts > 1)
        gd_text_add(text, ", %lld x %lld pieces", (long long)work->row_parts,
                    (long long)work->column_parts);
}

/* The most that a part of the largest piece takes. Parts are cut so that sums and the room of a band
 * keep their limits. */
static void weight_need(const weight_work *work, int threads)
{
    const int lanes = work->micro->product->lanes;
    const gd_conv_args *args = work->args;
    const gd_conv_sizes *s = &args->s;
    const int64_t vecs = gd_gemm_vectors(work->micro->product, s->o), parts = work->column_parts;
    weight_part part = begin_part(work, 0);
    weight_band band;
    cut_columns(&part, gd_gemm_least((vecs + parts - 1) / parts * lanes, s->o));
    part.m = most_rows(work);
    const int64_t number = sizeof(float), limit = (int64_t)args->paths->block_bytes;
    const int64_t all_sums = (part.m + GD_BAND_ROWS) * part.sums_row * number;
    const int64_t sums = gd_gemm_least(all_sums, GD_CONV_SCRATCH);
    const int64_t block = gd_gemm_least(part.positions, GD_GEMM_KC) * part.sums_row * number;
    int64_t rest = block + GD_GEMM_PANEL_BYTES;
    band.plane = 0;
    (void)shape_weight_band(&part,
                            &band); /* parts with fewer rows may have a band where it has none */
    if (band.plane > 0) {
        const int64_t channels = (part.m - 1) / work->window.tap_count + 2;
        const int64_t bands = gd_gemm_least(block + channels * band.plane * number, limit);
        rest = bands > rest ? bands : rest;
    }
    const int64_t pieces = s->groups * work->row_parts * parts;
    gd_conv_raise(
        args, (gd_workspace){ NULL, gd_scratch_bytes((size_t)(sums + rest), GD_CONV_SCRATCH_BLOCKS),
                              gd_parallel_ranges(threads, pieces, 1) });
}

static void weight_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const weight_work *work = context;
    const int lanes = work->micro->product->lanes;
    const gd_conv_args *args = work->args;
    const gd_conv_sizes *s = &args->s;
    const int64_t parts = work->row_parts * work->column_parts;
    const gd_scratch scratch = gd_scratch_of_thread(&args->workspace, thread);
    for (int64_t index = begin; index < end; index++) {
        const int64_t group = index / parts, i = index % parts / work->column_parts,
                      j = index % work->column_parts,
                      vecs = gd_gemm_vectors(work->micro->product, s->o);
        const int64_t row_end = row_begin(work, i + 1);
        const int64_t column_end = gd_gemm_least(vecs * (j + 1) / work->column_parts * lanes, s->o);
        weight_part part = begin_part(work, group);
        for (part.column = vecs * j / work->column_parts * lanes; part.column < column_end;
             part.column += part.n) {
            cut_columns(&part, column_end);
            for (part.row = row_begin(work, i); part.row < row_end; part.row += part.m) {
                cut_rows(work, &part, row_end);
                multiply_weight(&part, scratch);
            }
        }
    }
}

/* Tiles for the taps of a line, where they are neighbours in a band, and one vector has all of the result's
 * channels; two vectors multiply what is read for both, and gain nothing. Of 64 images at 32 x 32, 3 x 3 taps
 * of 16 to 16 channels run at 120 GFLOP/s instead of 84, of 16 to 32 at 125 and 123 (Emerald Rapids). */
static const gd_lines_micro *choose_lines(const gd_conv_args *args, const gd_conv_micro *micro,
                                          const gd_window *w)
{
    const bool is_narrow = micro != args->micro;
    const gd_lines_micro *l = is_narrow ? args->micro->narrow_lines : micro->lines;
    if (!l || args->s.o > micro->product->lanes || !gd_conv_may_choose(args->paths) ||
        w->step[2] != 1 || w->gap[2] != 1)
        return NULL;
    while (l->taps > 0 && l->taps != w->taps[2])
        l++;
    return l->taps > 0 ? l : NULL;
}

void gd_conv_weight(const gd_conv_args *args, const gd_conv_micro *micro)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t rows = s->c * s->taps;
    weight_work work = { .args = args, .micro = micro };
    gd_conv_forward_window(args, &work.window);
    work.lines = choose_lines(args, micro, &work.window);
    work.row_unit = work.lines ? work.lines->taps : 1;
    const gd_gemm_args size = {
        .m = rows, .n = s->o, .k = s->n * s->out_plane, .threads = args->threads
    };
    const int threads = gd_gemm_threads(&size, s->groups);
    const gd_gemm_work products = { rows, s->o, s->groups, micro->product->lanes,
                                    micro->product->packing };
    gd_gemm_divide(&products, threads, &work.row_parts, &work.column_parts);
    if (args->explain)
        explain_weight(&work, threads);
    else if (args->scratch)
        weight_need(&work, threads);
    else
        gd_parallel_for(threads, s->groups * work.row_parts * work.column_parts, 1, weight_pieces,
                        &work);
}
