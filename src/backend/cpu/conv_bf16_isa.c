/* backend/cpu/conv_bf16_isa.c: the packers of convolutions of bfloat16 (conv_micro.h), where
 * AVX512-BF16 or AMX multiplies: products of bfloat16 (gemm_half.h) whose packers read the image
 * through windows. Where positions are neighbours in the image they write pairs, as products' packers do;
 * else rows to a stage first, as they lie in memory, which those turn into what tiles read. The loops
 * round them are conv_driver.c.
 */
#include "backend/cpu/conv_micro.h"
#include "backend/cpu/gemm_bf16_pack.h"

#include <immintrin.h>
#include <string.h>

#define STEPS       512          /* of a block, at most */
#define STAGE_ROW   (STEPS + 32) /* from row to row, out of each other's way */
#define STAGE_ROWS  32
#define PIECES_KEPT 4096

/* What packers work in. */
typedef struct stage_t {
    uint16_t rows[STAGE_ROWS * STAGE_ROW]; // [rows, STAGE_ROW], or [steps, STAGE_ROWS]
    gd_window_run runs[STEPS];
    union {
        gd_window_piece pieces[PIECES_KEPT];
        gd_window_span spans[PIECES_KEPT];
    } of;
    int first[STEPS + 1]; /* of each tap's pieces, or spans */
    int64_t furthest;     /* of a channel that any span begins at */
} stage_t;
_Static_assert(sizeof(stage_t) <= GD_GEMM_STAGE_BYTES, "the stage fits");
_Static_assert(COLUMNS_MAX <= STAGE_ROWS && ROWS_MAX <= STAGE_ROWS, "a panel fits");
_Static_assert(COLUMNS_MAX <= GD_GEMM_RUNS, "the runs of a panel fit");
_Static_assert(PIECES_KEPT / COLUMNS_MAX <= STEPS, "so do places of the taps' spans");

/* ---- numbers of 16 bits ---- */

/* count numbers, `step` apart. */
static void copy_halves(uint16_t *to, const uint16_t *from, int64_t step, int64_t count)
{
    for (; step == 1 && count > 0; count -= 32, to += 32, from += 32) {
        const __mmask32 mask = first_of_32(count);
        _mm512_mask_storeu_epi16(to, mask, _mm512_maskz_loadu_epi16(mask, from));
    }
    for (; step == 2 && count > 0; count -= 32, to += 32, from += 64) {
        const int64_t read = 2 * LEAST(count, 32) - 1;
        const __m512i low = _mm512_maskz_loadu_epi16(first_of_32(read), from);
        const __m512i high = _mm512_maskz_loadu_epi16(read > 32 ? first_of_32(read - 32) : 0,
                                                      from + (read > 32 ? 32 : 0));
        _mm256_mask_storeu_epi16(to, (__mmask16)first_of_32(count), _mm512_cvtepi32_epi16(low));
        if (count > 16)
            _mm256_mask_storeu_epi16(to + 16, (__mmask16)(first_of_32(count) >> 16),
                                     _mm512_cvtepi32_epi16(high));
    }
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i * step];
}

/* A row of `width` numbers: the pieces, zeros between them. */
static void copy_pieces(uint16_t *row, const gd_window_piece *pieces, int many, bool gaps,
                        const uint16_t *data, int64_t step, int64_t width)
{
    if (gaps)
        memset(row, 0, (size_t)width * sizeof *row);
    for (int k = 0; k < many; k++)
        copy_halves(row + pieces[k].at, data + pieces[k].from, step, pieces[k].count);
}

/* ---- packers ---- */

/* Window rows [step, step+depth) at `count` positions from `column` on, to [depth, STAGE_ROWS]. */
static void stage_windows(const gd_window *w, const uint16_t *image, int64_t step, int64_t depth,
                          int64_t column, int64_t count, uint16_t *rows)
{
    gd_window_run runs[COLUMNS_MAX];
    gd_window_piece pieces[COLUMNS_MAX];
    const int run_count = gd_window_runs(w, column, count, runs);
    for (int64_t tap = 0; tap < w->tap_count; tap++) {
        const int64_t c = step > tap ? (step - tap + w->tap_count - 1) / w->tap_count : 0;
        int64_t p = c * w->tap_count + tap - step, covered;
        if (p >= depth)
            continue;
        const uint16_t *data = image + c * w->c_stride;
        const int many = gd_window_pieces(w, tap, runs, run_count, pieces, &covered);
        for (; p < depth; p += w->tap_count, data += w->c_stride)
            copy_pieces(rows + p * STAGE_ROWS, pieces, many, covered < count, data, w->step[2],
                        count);
    }
}

/* What each tap sees from `count` positions from `column` on. false: there is no room for that. */
static bool find_spans(const gd_window *w, int64_t column, int64_t count, stage_t *s)
{
    gd_window_run runs[COLUMNS_MAX];
    gd_window_piece pieces[COLUMNS_MAX];
    if (w->tap_count * COLUMNS_MAX > PIECES_KEPT)
        return false;
    const int run_count = gd_window_runs(w, column, count, runs);
    s->first[0] = 0;
    s->furthest = 0;
    for (int64_t tap = 0; tap < w->tap_count; tap++) {
        int64_t covered;
        const int many = gd_window_pieces(w, tap, runs, run_count, pieces, &covered);
        gd_window_span *spans = s->of.spans + s->first[tap];
        const int span_count = gd_window_spans(pieces, many, spans);
        s->first[tap + 1] = s->first[tap] + span_count;
        for (int k = 0; k < span_count; k++)
            s->furthest = spans[k].shift > s->furthest ? spans[k].shift : s->furthest;
    }
    return true;
}

/* A row of the window's matrix: what a tap sees of a channel. */
typedef struct seen_row {
    int64_t tap;
    const uint16_t *channel;
} seen_row;

/* It, and then the next one. Asks once a channel for what the panel after the next sees of it first, since
 * channels lie too far apart for the processor to do so; not into the first-level cache, where they
 * would push each other out. On Zen 5, one thread, 32-64 channels by input have 300 GFLOP/s, 190 without. */
GD_SIMD_INLINE __m512i load_row(const gd_window *w, const stage_t *s, seen_row *row)
{
    const gd_window_span *span = s->of.spans + s->first[row->tap];
    const gd_window_span *end = s->of.spans + s->first[row->tap + 1];
    __m512i x = _mm512_setzero_si512();
    for (; span < end; span++)
        x = _mm512_mask_loadu_epi16(x, span->mask, row->channel + span->shift);
    if (++row->tap == w->tap_count) {
        __builtin_prefetch(row->channel + s->furthest + 2 * COLUMNS_MAX, 0, 2);
        row->tap = 0;
        row->channel += w->c_stride;
    }
    return x;
}

/* Window rows [step, step+depth) at the positions of find_spans, to [packed_depth / 2][width][2]. */
static void pack_spans(const gd_window *w, const stage_t *s, const uint16_t *image, int64_t step,
                       int64_t depth, int64_t packed_depth, int64_t width, uint32_t *to)
{
    seen_row row = { step % w->tap_count, image + step / w->tap_count * w->c_stride };
    const __m512i none = _mm512_setzero_si512();
    for (int64_t p = 0; p < packed_depth; p += 2, to += width) {
        const __m512i low = p < depth ? load_row(w, s, &row) : none;
        const __m512i high = p + 1 < depth ? load_row(w, s, &row) : none;
        store_pair(to, low, high, width);
    }
}

/* B of Y and of dX: the image through its windows. */
static void pack_windows(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                         const void *b, int64_t step, int64_t depth, int64_t column,
                         int64_t columns, void *stage)
{
    const gd_conv_access *v = (const gd_conv_access *)access;
    stage_t *s = stage;
    const int64_t unit = micro->depth_unit, packed_depth = (depth + unit - 1) / unit * unit;
    for (int64_t j = 0; j < columns; j += micro->columns) {
        const int64_t count = LEAST(columns - j, micro->columns);
        if (v->window.step[2] == 1 && find_spans(&v->window, column + j, count, s)) {
            pack_spans(&v->window, s, b, step, depth, packed_depth, (count + 15) / 16 * 16,
                       (uint32_t *)dst + j * packed_depth / 2);
            continue;
        }
        stage_windows(&v->window, b, step, depth, column + j, count, s->rows);
        micro->pack_b((char *)dst + j * packed_depth * micro->b_packed_bytes, s->rows, STAGE_ROWS,
                      1, depth, count);
    }
}

/* Rows of the weight where taps do not follow each other, to [rows, STAGE_ROW]. */
static void stage_phase(const gd_conv_access *v, const uint16_t *a, int64_t a_row, int64_t rows,
                        int64_t step, int64_t depth, uint16_t *to)
{
    const int64_t *taps = v->window.taps, *to_next = v->a_tap, count = v->window.tap_count;
    for (int64_t p = 0; p < depth; p++) {
        const int64_t channel = (step + p) / count, tap = (step + p) % count;
        const uint16_t *from = a + channel * v->a_channel + tap / (taps[1] * taps[2]) * to_next[0] +
                               tap / taps[2] % taps[1] * to_next[1] + tap % taps[2] * to_next[2];
        for (int64_t i = 0; i < rows; i++)
            to[i * STAGE_ROW + p] = from[i * a_row];
    }
}

/* A of dX: of each channel of dY the taps of the phase. */
static void pack_weight(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                        const void *a, int64_t a_row, int64_t rows, int64_t step, int64_t depth,
                        int64_t *row_stride, int64_t *step_stride, void *stage)
{
    const gd_conv_access *v = (const gd_conv_access *)access;
    uint16_t *to = ((stage_t *)stage)->rows;
    int64_t channel = step / v->window.tap_count, tap = step % v->window.tap_count;
    if (!v->taps_plain)
        stage_phase(v, a, a_row, rows, step, depth, to);
    for (int64_t p = 0; v->taps_plain && p < depth; channel++, tap = 0) {
        const uint16_t *from = (const uint16_t *)a + channel * v->a_channel + tap;
        const int64_t count = LEAST(v->window.tap_count - tap, depth - p);
        for (int64_t i = 0; i < rows; i++, from += a_row)
            copy_halves(to + i * STAGE_ROW + p, from, 1, count);
        p += count;
    }
    micro->pack_a(dst, to, STAGE_ROW, 1, rows, depth, row_stride, step_stride);
}

/* A of dW: positions of all images. */
static void pack_gradient(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                          const void *a, int64_t a_row, int64_t rows, int64_t step, int64_t depth,
                          int64_t *row_stride, int64_t *step_stride, void *stage)
{
    const gd_conv_access *v = (const gd_conv_access *)access;
    const int64_t plane = v->window.plane;
    const uint16_t *g = (const uint16_t *)a + step / plane * v->g_n;
    if (step % plane + depth <= plane) {
        micro->pack_a(dst, g + step % plane, a_row, 1, rows, depth, row_stride, step_stride);
        return;
    }
    uint16_t *to = ((stage_t *)stage)->rows;
    for (int64_t p = 0, at = step % plane; p < depth; at = 0, g += v->g_n) {
        const int64_t count = LEAST(plane - at, depth - p);
        for (int64_t i = 0; i < rows; i++)
            copy_halves(to + i * STAGE_ROW + p, g + i * a_row + at, 1, count);
        p += count;
    }
    micro->pack_a(dst, to, STAGE_ROW, 1, rows, depth, row_stride, step_stride);
}

/* B of dW: window rows [column, column+columns), each a column, at positions [step, step+depth).
 * The pieces of all taps are kept for all channels, if they fit. */
static void pack_transposed_windows(const gd_gemm_access *access, const gd_gemm_micro *micro,
                                    void *dst, const void *b, int64_t step, int64_t depth,
                                    int64_t column, int64_t columns, void *stage)
{
    const gd_window *w = &((const gd_conv_access *)access)->window;
    stage_t *s = stage;
    const int64_t unit = micro->depth_unit, packed_depth = (depth + unit - 1) / unit * unit;
    const int run_count = gd_window_runs(w, step, depth, s->runs);
    const bool kept = w->tap_count <= STEPS && run_count * w->tap_count <= PIECES_KEPT;
    int64_t covered;
    s->first[0] = 0;
    for (int64_t tap = 0; kept && tap < w->tap_count; tap++)
        s->first[tap + 1] =
            s->first[tap] +
            gd_window_pieces(w, tap, s->runs, run_count, s->of.pieces + s->first[tap], &covered);
    for (int64_t j = 0; j < columns; j += micro->columns) {
        const int64_t count = LEAST(columns - j, micro->columns);
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = column + j + i, tap = row % w->tap_count;
            const gd_window_piece *pieces = s->of.pieces + (kept ? s->first[tap] : 0);
            const int many =
                kept ? s->first[tap + 1] - s->first[tap]
                     : gd_window_pieces(w, tap, s->runs, run_count, s->of.pieces, &covered);
            const bool gaps = many != 1 || pieces->count < depth;
            copy_pieces(s->rows + i * STAGE_ROW, pieces, many, gaps,
                        (const uint16_t *)b + row / w->tap_count * w->c_stride, w->step[2], depth);
        }
        micro->pack_b((char *)dst + j * packed_depth * micro->b_packed_bytes, s->rows, 1, STAGE_ROW,
                      depth, count);
    }
}

const gd_conv_micro GD_ISA_NAME(gd_conv_bf16) = { .name = "windows packed in bf16: ",
                                                  .stage_bytes = sizeof(stage_t),
                                                  .pack_windows = pack_windows,
                                                  .pack_weight = pack_weight,
                                                  .pack_gradient = pack_gradient,
                                                  .pack_transposed_windows =
                                                      pack_transposed_windows };
