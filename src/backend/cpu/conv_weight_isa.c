/* backend/cpu/conv_weight_isa.c: the gradient of a convolution's weight in f32 (conv.h), compiled
 * once per instruction set: for each group
 *     dw[o, channel and tap] = G[o, positions] @ window[channel and tap, positions]^T
 * with the positions of the whole batch. It is computed transposed: panels of window rows, read out
 * of the image, against a packed block of G^T; sums stay in scratch until all positions are in.
 * Start at GD_ISA_NAME(gd_conv_grad_weight_f32), at the end.
 */
#include "backend/cpu/conv_weight_band.h"
#include "base/threads.h"

#include <string.h>

typedef struct weight_work {
    const gd_conv_args *args;
    window_t window; /* of group 0 */
    int64_t row_parts, column_parts;
} weight_work;

#define PIECES_KEPT 1024

/* Pieces of the block's runs for every tap, as long as they fit; else of one tap at a time. */
typedef struct piece_table {
    run_t runs[GD_GEMM_KC];
    int run_count;
    bool kept;
    piece_t pieces[PIECES_KEPT];
    int first[PIECES_KEPT + 1]; /* [taps + 1], when kept */
} piece_table;

static void fill_table(const window_t *w, int64_t position, int64_t depth, piece_table *t)
{
    int64_t covered;
    t->run_count = list_runs(w, position, depth, t->runs);
    t->kept = t->run_count * w->tap_count <= PIECES_KEPT;
    if (!t->kept)
        return;
    t->first[0] = 0;
    for (int64_t tap = 0; tap < w->tap_count; tap++)
        t->first[tap + 1] = t->first[tap] + list_pieces(w, tap, t->runs, t->run_count,
                                                        t->pieces + t->first[tap], &covered);
}

/* Window rows [row, row+rows) at the block's positions, to panel [rows, A_PANEL_ROW]. */
static void pack_window_rows(const window_t *w, piece_table *t, int64_t row, int64_t rows,
                             int64_t depth, float *panel)
{
    const int64_t width = (depth + LANES - 1) / LANES * LANES;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t channel = (row + i) / w->tap_count, tap = (row + i) % w->tap_count;
        const piece_t *pieces = t->pieces;
        int many;
        if (t->kept) {
            pieces += t->first[tap];
            many = t->first[tap + 1] - t->first[tap];
        } else {
            int64_t covered;
            many = list_pieces(w, tap, t->runs, t->run_count, t->pieces, &covered);
        }
        const bool gaps = many != 1 || pieces->count < depth;
        copy_pieces(pieces, many, gaps, w->data + channel * w->c_stride, w->step[2], width,
                    panel + i * A_PANEL_ROW);
    }
}

/* Positions [position, position+depth) of G's channels as panels [depth, width] of the block. */
static void pack_gradient(const weight_part *part, int64_t position, int64_t depth)
{
    const int64_t plane = part->window->plane;
    for (int64_t j = 0; j < part->n; j += COLUMNS_MAX) {
        const int64_t columns = LEAST(part->n - j, COLUMNS_MAX);
        const int64_t width = (columns + LANES - 1) / LANES * LANES;
        float *panel = part->block + j * depth;
        for (int64_t p = 0; p < depth;) {
            const int64_t n = (position + p) / plane, at = (position + p) % plane;
            const int64_t count = LEAST(plane - at, depth - p);
            PRODUCTS.pack_transposed(panel + p * width, width,
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
        const int64_t count = LEAST(plane - at, depth - p);
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
    const int64_t panels = (part->m + ROWS_MAX - 1) / ROWS_MAX;
    fill_table(part->window, position, depth, table);
    for (int64_t i = 0; i < panels; i++) {
        const int64_t from = panel_begin(part->m, i, panels),
                      rows = panel_begin(part->m, i + 1, panels) - from;
        pack_window_rows(part->window, table, part->row + from, rows, depth, part->panel);
        gd_gemm_tile t = { .a = part->panel,
                           .a_row = A_PANEL_ROW,
                           .a_step = 1,
                           .c_row = part->sums_row,
                           .depth = depth,
                           .row_bias_stride = 1,
                           .next_a = part->panel,
                           .accumulate = position > 0 };
        for (int64_t j = 0; j < part->sums_row; j += COLUMNS_MAX) {
            t.columns = t.b_step = LEAST(part->sums_row - j, COLUMNS_MAX);
            t.b = part->block + j * depth;
            t.c = part->sums + from * part->sums_row + j;
            gd_gemm_tile_kernel(&PRODUCTS, rows, t.columns / LANES)(&t);
        }
    }
}

static void multiply_weight(weight_part *part, gd_scratch scratch)
{
    union {
        piece_table pieces;
        weight_band band;
    } u;
    const int64_t deepest = LEAST(part->positions, GD_GEMM_KC);
    const int64_t sums = (part->m + BAND_ROWS) * part->sums_row; /* the last tile is a whole one */
    part->sums = gd_scratch_take(&scratch, (size_t)sums * sizeof(float));
    part->block = gd_scratch_take(&scratch, (size_t)(deepest * part->sums_row) * sizeof(float));
    const bool use_band = shape_weight_band(part, &u.band);
    if (use_band)
        u.band.data =
            gd_scratch_take(&scratch, (size_t)(u.band.channels * u.band.plane) * sizeof(float));
    else
        part->panel = gd_scratch_take(&scratch, GD_GEMM_PANEL_BYTES);
    for (int64_t position = 0; position < part->positions; position += GD_GEMM_KC) {
        const int64_t depth = LEAST(part->positions - position, GD_GEMM_KC);
        pack_gradient(part, position, depth);
        fetch_gradient(part, position + depth,
                       LEAST(part->positions - position - depth, GD_GEMM_KC));
        if (use_band)
            multiply_band(part, &u.band, position, depth);
        else
            multiply_packed(part, &u.pieces, position, depth);
    }
    PRODUCTS.store_columns(part->sums, part->sums_row, part->m, part->n,
                           part->out + part->column * part->out_row + part->row, part->out_row,
                           NULL, 0, false);
}

/* The first part of a piece of a group: all that is left of its columns and rows, cut to what the
 * block and the scratch hold. */
static weight_part begin_part(const weight_work *work, int64_t group, const window_t *window)
{
    const gd_conv_args *args = work->args;
    const gd_conv_sizes *s = &args->s;
    const int64_t rows = s->c * s->taps;
    return (weight_part){ .window = window,
                          .g = (const float *)args->a + group * s->o * s->out_plane,
                          .g_n = s->groups * s->o * s->out_plane,
                          .out = args->out + group * s->o * rows,
                          .out_row = rows,
                          .positions = s->n * s->out_plane,
                          .paths = args->paths };
}

static void cut_columns(weight_part *part, int64_t end)
{
    part->n = LEAST(end - part->column, gd_gemm_block_columns(&PRODUCTS, part->paths));
    part->sums_row = (part->n + LANES - 1) / LANES * LANES;
}

static void cut_rows(weight_part *part, int64_t end)
{
    const int64_t room = (int64_t)(GD_CONV_SCRATCH / sizeof(float)) / part->sums_row;
    part->m = LEAST(end - part->row, (room - BAND_ROWS) / BAND_ROWS * BAND_ROWS);
}

static void explain_weight(const weight_work *work, int threads)
{
    const gd_conv_sizes *s = &work->args->s;
    const int64_t rows = s->c * s->taps;
    gd_text *text = work->args->explain;
    weight_part part = begin_part(work, 0, &work->window);
    weight_band band;
    const int64_t vecs = (s->o + LANES - 1) / LANES, parts = work->column_parts;
    cut_columns(&part, LEAST((vecs + parts - 1) / parts * LANES, s->o)); /* the largest piece */
    cut_rows(&part, (rows + work->row_parts - 1) / work->row_parts);
    if (s->groups > 1)
        gd_text_add(text, "%lld times ", (long long)s->groups);
    gd_text_add(text, "%lld x %lld x %lld by %s; vectors of %d; %d thread%s", (long long)s->o,
                (long long)part.positions, (long long)rows,
                shape_weight_band(&part, &band)
                    ? "bands: rows are copied once, and read at each tap's shift"
                    : "packing: windows do not overlap, or their band does not fit the cache",
                LANES, threads, threads == 1 ? "" : "s");
    if (work->row_parts * work->column_parts > 1)
        gd_text_add(text, ", %lld x %lld pieces", (long long)work->row_parts,
                    (long long)work->column_parts);
}

/* The most that a part of the largest piece takes. Parts are cut so that sums and the room of a band
 * keep their limits. */
static void weight_need(const weight_work *work, int threads)
{
    const gd_conv_args *args = work->args;
    const gd_conv_sizes *s = &args->s;
    const int64_t vecs = (s->o + LANES - 1) / LANES, parts = work->column_parts;
    weight_part part = begin_part(work, 0, &work->window);
    weight_band band;
    cut_columns(&part, LEAST((vecs + parts - 1) / parts * LANES, s->o));
    part.m = (s->c * s->taps + work->row_parts - 1) / work->row_parts;
    const size_t number = sizeof(float), limit = args->paths->block_bytes;
    size_t sums = (size_t)((part.m + BAND_ROWS) * part.sums_row) * number;
    sums = LEAST(sums, GD_CONV_SCRATCH);
    const size_t block = (size_t)(LEAST(part.positions, GD_GEMM_KC) * part.sums_row) * number;
    size_t rest = block + GD_GEMM_PANEL_BYTES;
    band.plane = 0;
    (void)shape_weight_band(&part,
                            &band); /* parts with fewer rows may have a band where it has none */
    if (band.plane > 0) {
        const size_t channels = (size_t)(part.m - 1) / (size_t)work->window.tap_count + 2;
        const size_t bands = block + channels * (size_t)band.plane * number;
        rest = LEAST(bands, limit) > rest ? LEAST(bands, limit) : rest;
    }
    const int64_t pieces = s->groups * work->row_parts * parts;
    gd_conv_raise(args, (gd_workspace){ NULL, gd_scratch_bytes(sums + rest, GD_CONV_SCRATCH_BLOCKS),
                                        gd_parallel_ranges(threads, pieces, 1) });
}

static void weight_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const weight_work *work = context;
    const gd_conv_args *args = work->args;
    const gd_conv_sizes *s = &args->s;
    const int64_t parts = work->row_parts * work->column_parts, rows = s->c * s->taps;
    const gd_scratch scratch = gd_scratch_of_thread(&args->workspace, thread);
    for (int64_t index = begin; index < end; index++) {
        const int64_t group = index / parts, i = index % parts / work->column_parts,
                      j = index % work->column_parts, vecs = (s->o + LANES - 1) / LANES;
        window_t window = work->window;
        window.data += group * s->c * s->in_plane;
        const int64_t row_end = rows * (i + 1) / work->row_parts;
        const int64_t column_end = LEAST(vecs * (j + 1) / work->column_parts * LANES, s->o);
        weight_part part = begin_part(work, group, &window);
        for (part.column = vecs * j / work->column_parts * LANES; part.column < column_end;
             part.column += part.n) {
            cut_columns(&part, column_end);
            for (part.row = rows * i / work->row_parts; part.row < row_end; part.row += part.m) {
                cut_rows(&part, row_end);
                multiply_weight(&part, scratch);
            }
        }
    }
}

void GD_ISA_NAME(gd_conv_grad_weight_f32)(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
#if defined(GD_ISA_AVX512_BUILD)
    const bool narrow = args->paths->conv == GD_CONV_BEST && s->o <= VF32_LANES / 2;
    if (narrow || args->paths->conv == GD_CONV_NARROW) { /* which fill the vectors of AVX2 */
        gd_conv_grad_weight_f32_avx2(args);
        return;
    }
#endif
    const int64_t rows = s->c * s->taps, positions = s->n * s->out_plane;
    if (rows == 0 || s->o == 0)
        return;
    if (positions == 0 && gd_conv_is_asked(args))
        return;
    if (positions == 0) {
        memset(args->out, 0, (size_t)(s->groups * s->o * rows) * sizeof(float));
        return;
    }
    weight_work work = { .args = args };
    set_forward_window(args, &work.window);
    work.window.data = args->b;
    const gd_gemm_args size = { .m = rows, .n = s->o, .k = positions, .threads = args->threads };
    const int threads = gd_gemm_threads(&size, s->groups);
    gd_gemm_divide(rows, s->o, LANES, s->groups, gd_gemm_pieces(&size, s->groups, threads),
                   &work.row_parts, &work.column_parts);
    if (args->explain) {
        explain_weight(&work, threads);
        return;
    }
    if (args->scratch) {
        weight_need(&work, threads);
        return;
    }
    gd_parallel_for(threads, s->groups * work.row_parts * work.column_parts, 1, weight_pieces,
                    &work);
}
