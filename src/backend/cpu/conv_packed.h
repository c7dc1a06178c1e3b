/* backend/cpu/conv_packed.h: convolution, and its gradient by the input, as a matrix product with
 * packed windows, blocked as gemm_driver.c blocks products and computed by the same micro-kernels.
 * Start at conv_part.
 */
#ifndef GD_BACKEND_CPU_CONV_PACKED_H
#define GD_BACKEND_CPU_CONV_PACKED_H

#include "backend/cpu/conv_copy.h"
#include "backend/cpu/conv_place.h"

#if GD_SIMD_MASK_FREE
/* A row of `width` numbers (rounded up to vectors): the spans, zeros elsewhere. */
GD_SIMD_INLINE void copy_spans(const span_t *spans, int many, const float *data, int64_t width,
                               float *row)
{
    for (int64_t i = 0; i < width; i += LANES) {
        VEC x = V(zero)();
        for (int k = 0; k < many; k++)
            x = V(load_over)(x, (VMASK)(spans[k].mask >> i), data + spans[k].shift + i);
        V(store)(row + i, x);
    }
}
#endif

/* Rows [row, row+depth) of the matrix, columns [column, column+columns), to dst, in panels as
 * pack_b makes them. Of a plain window pack_b itself does it, but for panels of two images. */
static void pack_window(const window_t *w, float *dst, int64_t row, int64_t depth, int64_t column,
                        int64_t columns)
{
    const bool plain = is_plain(w);
    for (int64_t j = 0; j < columns; j += COLUMNS_MAX) {
        const int64_t count = LEAST(columns - j, COLUMNS_MAX);
        if (plain) {
            const int64_t n = (column + j) / w->plane, at = (column + j) % w->plane;
            const int64_t rest = LEAST(w->plane - at, columns - j);
            const int64_t whole = rest == columns - j ? rest : rest / COLUMNS_MAX * COLUMNS_MAX;
            if (whole > 0) {
                PRODUCTS.pack_b(dst + j * depth, w->data + n * w->n_stride + row * w->c_stride + at,
                                w->c_stride, 1, depth, whole);
                j += (whole - 1) / COLUMNS_MAX * COLUMNS_MAX;
                continue;
            }
        }
        const int64_t width = (count + LANES - 1) / LANES * LANES;
        float *panel = dst + j * depth; // [depth, width]
        run_t runs[COLUMNS_MAX];
        piece_t pieces[COLUMNS_MAX];
        const int run_count = list_runs(w, column + j, count, runs);
        for (int64_t tap = 0; tap < w->tap_count; tap++) {
            int64_t covered;
            const int many = list_pieces(w, tap, runs, run_count, pieces, &covered);
            int64_t c = row > tap ? (row - tap + w->tap_count - 1) / w->tap_count : 0;
            int64_t p = c * w->tap_count + tap - row;
            const float *data = w->data + c * w->c_stride;
#if GD_SIMD_MASK_FREE
            if (w->step[2] == 1) {
                span_t spans[COLUMNS_MAX];
                const int span_count = list_spans(pieces, many, spans);
                for (; p < depth; p += w->tap_count, data += w->c_stride)
                    copy_spans(spans, span_count, data, width, panel + p * width);
            }
#endif
            for (; p < depth; p += w->tap_count, data += w->c_stride)
                copy_pieces(pieces, many, covered < width, data, w->step[2], width,
                            panel + p * width);
        }
    }
}

/* C[m, positions] = A[m, depth] @ window[depth, positions], then bias and ReLU. */
typedef struct conv_t {
    window_t window;
    int64_t m, depth; /* depth = channels * taps */
    const float *a;   // [m, channels, taps...]
    int64_t a_row, a_channel, a_tap[GD_SPATIAL];
    bool taps_plain, a_plain; /* taps follow each other; channels too */
    float *c;                 // [m, n, positions...]
    int64_t c_row;
    place_t place;
    const float *bias; // [m], bias_step apart
    int64_t bias_step;
    bool relu;
    const gd_paths *paths;
} conv_t;

/* Where there is no bias, at steps of 0. */
static const float no_bias = 0;

/* pack_weight where taps do not follow each other: step by step, for all rows. */
static __attribute__((noinline)) void pack_phase(const conv_t *v, int64_t row, int64_t rows,
                                                 int64_t step, int64_t depth, float *panel)
{
    const int64_t *taps = v->window.taps, *to_next = v->a_tap, count = v->window.tap_count;
    int64_t tx = step % taps[2], ty = step / taps[2] % taps[1],
            tz = step % count / taps[2] / taps[1];
    const float *channel = v->a + row * v->a_row + step / count * v->a_channel;
    for (int64_t p = 0; p < depth; p++) {
        const float *a = channel + tz * to_next[0] + ty * to_next[1] + tx * to_next[2];
        for (int64_t i = 0; i < rows; i++)
            panel[i * A_PANEL_ROW + p] = a[i * v->a_row];
        if (++tx < taps[2])
            continue;
        tx = 0;
        if (++ty < taps[1])
            continue;
        ty = 0;
        if (++tz < taps[0])
            continue;
        tz = 0;
        channel += v->a_channel;
    }
}

/* rows [row, row+rows) of A, steps [step, step+depth), to panel [rows, A_PANEL_ROW]. */
static __attribute__((noinline)) void pack_weight(const conv_t *v, int64_t row, int64_t rows,
                                                  int64_t step, int64_t depth, float *panel)
{
    const window_t *w = &v->window;
    int64_t channel = step / w->tap_count, tap = step % w->tap_count;
    if (!v->taps_plain) {
        pack_phase(v, row, rows, step, depth, panel);
        return;
    }
    for (int64_t p = 0; p < depth; channel++, tap = 0) {
        const float *a = v->a + row * v->a_row + channel * v->a_channel;
        const int64_t count = LEAST(w->tap_count - tap, depth - p);
        for (int64_t i = 0; i < rows * v->a_row;
             i += LINE) /* the next panel lies behind this one */
            __builtin_prefetch(a + rows * v->a_row + i, 0, 2);
        for (int64_t i = 0; i < rows; i++, a += v->a_row)
            copy_run(panel + i * A_PANEL_ROW + p, a + tap, count);
        p += count;
    }
}

/* Points the tile at rows [row, row+rows) of A from step `step` on: in place, or copied to a panel. */
static __attribute__((noinline)) void point_to_weight(const conv_t *v, int64_t row, int64_t rows,
                                                      int64_t step, int64_t depth, float *panel,
                                                      gd_gemm_tile *t)
{
    t->a = v->a + row * v->a_row + step * v->a_channel;
    t->a_row = v->a_row;
    t->a_step = v->a_channel;
    if (v->window.tap_count == 1) {
        if (v->a_channel != 1)
            PRODUCTS.pack_a(panel, t->a, t->a_row, t->a_step, rows, depth, &t->a_row, &t->a_step);
        else if (rows < 8 || !gd_gemm_collide(v->a_row * (int64_t)sizeof(float)))
            return;
        else
            PRODUCTS.pack_a(panel, t->a, t->a_row, 1, rows, depth, &t->a_row, &t->a_step);
        t->a = panel;
        return;
    }
    t->a = v->a + row * v->a_row + step;
    t->a_step = 1;
    if (v->a_plain && (rows < 8 || !gd_gemm_collide(v->a_row * (int64_t)sizeof(float))))
        return;
    if (v->a_plain)
        PRODUCTS.pack_a(panel, t->a, t->a_row, 1, rows, depth, &t->a_row, &t->a_step);
    else
        pack_weight(v, row, rows, step, depth, panel);
    t->a = panel;
    t->a_row = A_PANEL_ROW;
}

/* count numbers, `from` apart in src, to dst, `to` apart there. */
static __attribute__((noinline)) void copy_numbers(float *dst, int64_t to, const float *src,
                                                   int64_t from, int64_t count)
{
    if (to == 1 && from == 1)
        copy_run(dst, src, count);
    else
        copy_strided(dst, to, src, from, count);
}

/* Elements of the rows of C, those of some runs, to the rows of a tile, or back. */
static __attribute__((noinline)) void copy_c_runs(float *copy, float *c, int64_t c_row,
                                                  int64_t rows, const gd_gemm_stretch *c_runs,
                                                  int many, bool back)
{
    for (int64_t i = 0; i < rows; i++, copy += COLUMNS_MAX, c += c_row)
        for (int k = 0; k < many; k++) {
            const gd_gemm_stretch *p = &c_runs[k];
            if (back)
                copy_numbers(c + p->from, p->stride, copy + p->at, 1, p->count);
            else
                copy_numbers(copy + p->at, 1, c + p->from, p->stride, p->count);
        }
}

/* A tile whose positions do not lie in whole vectors of one image: by way of a copy. */
static __attribute__((noinline)) void conv_tile_by_copy(gd_gemm_tile t, int64_t rows, int64_t vecs,
                                                        const gd_gemm_stretch *c_runs, int many)
{
    float copy[ROWS_MAX * COLUMNS_MAX];
    float *c = t.c;
    const int64_t c_row = t.c_row;
    if (t.accumulate)
        copy_c_runs(copy, c, c_row, rows, c_runs, many, false);
    t.c = copy;
    t.c_row = COLUMNS_MAX;
    if (!GD_SIMD_MASK_FREE)
        t.columns = vecs * LANES;
    gd_gemm_tile_kernel(&PRODUCTS, rows, vecs)(&t);
    copy_c_runs(copy, c, c_row, rows, c_runs, many, true);
}

/* Rows [row, row+rows) of C, columns [column, column+columns), one block of the depth. */
static __attribute__((noinline)) void conv_panel(const conv_t *v, int64_t row, int64_t rows,
                                                 int64_t column, int64_t columns, int64_t step,
                                                 int64_t depth, const float *packed,
                                                 float *row_panel)
{
    const bool last = step + depth == v->depth;
    gd_gemm_tile t = {
        .depth = depth,
        .c_row = v->c_row,
        .row_bias = last ? v->bias + row * v->bias_step : NULL,
        .row_bias_stride = v->bias_step,
        .next_a = v->a,
        .accumulate = step > 0,
        .relu = last && v->relu,
    };
    point_to_weight(v, row, rows, step, depth, row_panel, &t);
    if (v->a_plain && row + 2 * rows <= v->m) {
        const int64_t tiles = (columns + COLUMNS_MAX - 1) / COLUMNS_MAX;
        t.next_a = v->a + (row + rows) * v->a_row + step;
        t.next_a_bytes = v->a_row * (int64_t)sizeof(float);
        t.next_lines = (depth + LINE * tiles - 1) / (LINE * tiles);
    }
    for (int64_t j = 0; j < columns; j += COLUMNS_MAX) {
        gd_gemm_stretch c_runs[COLUMNS_MAX];
        t.columns = LEAST(columns - j, COLUMNS_MAX);
        const int64_t vecs = (t.columns + LANES - 1) / LANES;
        const int many = list_c_runs(&v->window, &v->place, column + j, t.columns, c_runs);
        t.b = packed + j * depth;
        t.b_step = vecs * LANES;
        t.c = v->c + row * v->c_row;
        if (many == 1 && c_runs[0].stride == 1 &&
            (GD_SIMD_MASK_FREE || t.columns == vecs * LANES)) {
            t.c = (float *)t.c + c_runs[0].from;
            gd_gemm_tile_kernel(&PRODUCTS, rows, vecs)(&t);
        } else {
            conv_tile_by_copy(t, rows, vecs, c_runs, many);
        }
        t.next_a = (const float *)t.next_a + t.next_lines * LINE;
    }
}

/* Rows [row, row+m) and columns [column, column+n) of C in this thread. */
static void conv_part(const conv_t *v, int64_t row, int64_t m, int64_t column, int64_t n,
                      gd_scratch scratch)
{
    const int64_t most = gd_gemm_block_columns(&PRODUCTS, v->paths);
    const int64_t block_columns = LEAST(most, (n + LANES - 1) / LANES * LANES);
    float *block = gd_scratch_take(&scratch, (size_t)(block_columns * LEAST(v->depth, GD_GEMM_KC)) *
                                                 sizeof *block);
    float *panel = gd_scratch_take(&scratch, GD_GEMM_PANEL_BYTES);
    const int64_t panels = (m + ROWS_MAX - 1) / ROWS_MAX;
    for (int64_t j = 0; j < n; j += block_columns) {
        const int64_t columns = LEAST(n - j, block_columns);
        for (int64_t step = 0; step < v->depth; step += GD_GEMM_KC) {
            const int64_t depth = LEAST(v->depth - step, GD_GEMM_KC);
            pack_window(&v->window, block, step, depth, column + j, columns);
            for (int64_t i = 0; i < panels; i++) {
                const int64_t from = panel_begin(m, i, panels), to = panel_begin(m, i + 1, panels);
                conv_panel(v, row + from, to - from, column + j, columns, step, depth, block,
                           panel);
            }
        }
    }
}

#endif
