/* backend/cpu/conv_bf16_isa.c: convolution of bfloat16 and its gradients, with sums in f32, where
 * AVX512-BF16 or AMX multiplies. Each is a product of bfloat16 (gemm_half.h), whose packers read the
 * image through windows, and which is within that header's bound; steps are those of conv.h:
 *     Y[o, positions]  = W[o, channel and tap]  @ window[channel and tap, positions]
 *     dX[c, positions] = W[c, channel and tap]  @ window of dY, a product for each phase of the stride
 *     dW[o, channel and tap] = dY[o, positions] @ window[channel and tap, positions]^T
 * Groups are a batch. Packers write rows to a stage first, as they lie in memory, and the product's own
 * packers turn them into what its tiles read. Start at the functions at the end.
 */
#include "backend/cpu/conv_place.h"
#include "backend/cpu/gemm_plan.h"

#include <immintrin.h>
#include <string.h>

#define STEPS       512          /* of a block, at most */
#define STAGE_ROW   (STEPS + 32) /* from row to row, out of each other's way */
#define STAGE_ROWS  32
#define PIECES_KEPT 4096

/* What packers work in. */
typedef struct stage_t {
    uint16_t rows[STAGE_ROWS * STAGE_ROW]; // [rows, STAGE_ROW], or [steps, STAGE_ROWS]
    run_t runs[STEPS];
    piece_t pieces[PIECES_KEPT];
    int first[STEPS + 1]; /* of each tap's pieces */
} stage_t;
_Static_assert(sizeof(stage_t) <= GD_GEMM_STAGE_BYTES, "the stage fits");
_Static_assert(COLUMNS_MAX <= STAGE_ROWS && ROWS_MAX <= STAGE_ROWS, "a panel fits");
_Static_assert(COLUMNS_MAX <= GD_GEMM_RUNS, "the runs of a panel fit");

/* The operands of one of the products. */
typedef struct access_t {
    gd_gemm_access base; /* first */
    window_t window;
    place_t place;
    int64_t a_channel, a_tap[GD_SPATIAL]; /* in the weight, from channel to channel, tap to tap */
    bool taps_plain;                      /* taps follow each other */
    int64_t g_n;                          /* dY, from image to image */
} access_t;

/* ---- numbers of 16 bits ---- */

/* The first `count` of 32. */
GD_SIMD_INLINE __mmask32 first_of_32(int64_t count)
{
    return count >= 32 ? UINT32_MAX : (__mmask32)((1u << count) - 1);
}

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
static void copy_pieces(uint16_t *row, const piece_t *pieces, int many, bool gaps,
                        const uint16_t *data, int64_t step, int64_t width)
{
    if (gaps)
        memset(row, 0, (size_t)width * sizeof *row);
    for (int k = 0; k < many; k++)
        copy_halves(row + pieces[k].at, data + pieces[k].from, step, pieces[k].count);
}

/* ---- packers ---- */

/* Window rows [step, step+depth) at `count` positions from `column` on, to [depth, STAGE_ROWS]. */
static void stage_windows(const window_t *w, const uint16_t *image, int64_t step, int64_t depth,
                          int64_t column, int64_t count, uint16_t *rows)
{
    run_t runs[COLUMNS_MAX];
    piece_t pieces[COLUMNS_MAX];
    const int run_count = list_runs(w, column, count, runs);
    for (int64_t tap = 0; tap < w->tap_count; tap++) {
        const int64_t c = step > tap ? (step - tap + w->tap_count - 1) / w->tap_count : 0;
        int64_t p = c * w->tap_count + tap - step, covered;
        if (p >= depth)
            continue;
        const uint16_t *data = image + c * w->c_stride;
        const int many = list_pieces(w, tap, runs, run_count, pieces, &covered);
        if (w->step[2] == 1) {
            span_t spans[COLUMNS_MAX];
            const int span_count = list_spans(pieces, many, spans);
            for (; p < depth; p += w->tap_count, data += w->c_stride) {
                __m512i x = _mm512_setzero_si512();
                for (int k = 0; k < span_count; k++)
                    x = _mm512_mask_loadu_epi16(x, spans[k].mask, data + spans[k].shift);
                _mm512_storeu_si512(rows + p * STAGE_ROWS, x);
            }
            continue;
        }
        for (; p < depth; p += w->tap_count, data += w->c_stride)
            copy_pieces(rows + p * STAGE_ROWS, pieces, many, covered < count, data, w->step[2],
                        count);
    }
}

/* B of Y and of dX: the image through its windows. */
static void pack_windows(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                         const void *b, int64_t step, int64_t depth, int64_t column,
                         int64_t columns, void *stage)
{
    const access_t *v = (const access_t *)access;
    uint16_t *rows = ((stage_t *)stage)->rows;
    const int64_t unit = micro->depth_unit, packed_depth = (depth + unit - 1) / unit * unit;
    for (int64_t j = 0; j < columns; j += micro->columns) {
        const int64_t count = LEAST(columns - j, micro->columns);
        stage_windows(&v->window, b, step, depth, column + j, count, rows);
        micro->pack_b((char *)dst + j * packed_depth * micro->b_packed_bytes, rows, STAGE_ROWS, 1,
                      depth, count);
    }
}

/* Rows of the weight where taps do not follow each other, to [rows, STAGE_ROW]. */
static void stage_phase(const access_t *v, const uint16_t *a, int64_t a_row, int64_t rows,
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
    const access_t *v = (const access_t *)access;
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
    const access_t *v = (const access_t *)access;
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
    const window_t *w = &((const access_t *)access)->window;
    stage_t *s = stage;
    const int64_t unit = micro->depth_unit, packed_depth = (depth + unit - 1) / unit * unit;
    const int run_count = list_runs(w, step, depth, s->runs);
    const bool kept = w->tap_count <= STEPS && run_count * w->tap_count <= PIECES_KEPT;
    int64_t covered;
    s->first[0] = 0;
    for (int64_t tap = 0; kept && tap < w->tap_count; tap++)
        s->first[tap + 1] = s->first[tap] + list_pieces(w, tap, s->runs, run_count,
                                                        s->pieces + s->first[tap], &covered);
    for (int64_t j = 0; j < columns; j += micro->columns) {
        const int64_t count = LEAST(columns - j, micro->columns);
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = column + j + i, tap = row % w->tap_count;
            const piece_t *pieces = s->pieces + (kept ? s->first[tap] : 0);
            const int many = kept ? s->first[tap + 1] - s->first[tap]
                                  : list_pieces(w, tap, s->runs, run_count, s->pieces, &covered);
            const bool gaps = many != 1 || pieces->count < depth;
            copy_pieces(s->rows + i * STAGE_ROW, pieces, many, gaps,
                        (const uint16_t *)b + row / w->tap_count * w->c_stride, w->step[2], depth);
        }
        micro->pack_b((char *)dst + j * packed_depth * micro->b_packed_bytes, s->rows, 1, STAGE_ROW,
                      depth, count);
    }
}

static int find_columns(const gd_gemm_access *access, int64_t column, int64_t columns,
                        gd_gemm_stretch *runs)
{
    const access_t *v = (const access_t *)access;
    return list_c_runs(&v->window, &v->place, column, columns, runs);
}

/* ---- products ---- */

static void answer(const gd_conv_args *args, const gd_gemm_args *product, const char *what)
{
    gd_gemm_plan plan;
    if (!gd_gemm_choose(args->bf16, product, &plan))
        return;
    if (args->scratch) {
        gd_conv_raise(args, gd_gemm_plan_scratch(args->bf16, &plan));
        return;
    }
    gd_text_add(args->explain, "%s: ", what);
    gd_gemm_explain(args->bf16, &plan, args->explain);
}

static void run(const gd_conv_args *args, const access_t *v, gd_gemm_args product)
{
    product.access = &v->base;
    product.batch_rank = 1;
    product.batch_shape[0] = args->s.groups;
    product.threads = args->threads;
    product.paths = args->paths;
    product.workspace = args->workspace;
    if (gd_conv_is_asked(args))
        answer(args, &product, "windows packed in bf16");
    else
        gd_gemm(args->bf16, &product);
}

/* Where each window is one element of the image and its planes are long: a product for each image,
 * C^T [plane, m] = image^T @ A^T, of the same steps. product: that of all images in one. */
static bool run_plain(const gd_conv_args *args, const access_t *v, const gd_gemm_args *product)
{
    const window_t *w = &v->window;
    if (!gd_conv_may_choose(args->paths) || !v->place.plain || !is_plain(w) ||
        (w->plane % LANES != 0 && w->plane < 16 * LANES))
        return false;
    gd_gemm_args p = { .m = w->plane,
                       .n = product->m,
                       .k = product->k,
                       .a = product->b,
                       .a_row_stride = 1,
                       .a_col_stride = w->c_stride,
                       .b = product->a,
                       .b_row_stride = product->a_col_stride,
                       .b_col_stride = product->a_row_stride,
                       .c = product->c,
                       .c_row_stride = 1,
                       .c_col_stride = product->c_row_stride,
                       .batch_rank = 1,
                       .batch_shape = { args->s.n },
                       .a_batch_stride = { w->n_stride },
                       .c_batch_stride = { v->place.n },
                       .bias = product->bias,
                       .bias_stride = 1,
                       .relu = product->relu,
                       .threads = args->threads,
                       .paths = args->paths,
                       .workspace = args->workspace };
    if (gd_conv_is_asked(args)) {
        answer(args, &p, "a product in bf16, a window being one element");
        return true;
    }
    for (int64_t g = 0; g < args->s.groups; g++) {
        p.a = (const uint16_t *)product->b + g * product->b_batch_stride[0];
        p.b = (const uint16_t *)product->a + g * product->a_batch_stride[0];
        p.c = (float *)product->c + g * product->c_batch_stride[0];
        p.bias = product->bias ? (const float *)product->bias + g * product->m : NULL;
        gd_gemm(args->bf16, &p);
    }
    return true;
}

/* No steps: the bias, or 0. */
static void fill(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t channels = s->groups * s->o;
    for (int64_t i = 0; i < s->n * channels; i++) {
        const float bias = args->bias ? args->bias[i % channels] : 0;
        for (int64_t p = 0; p < s->out_plane; p++)
            args->out[i * s->out_plane + p] = args->attr->relu && bias < 0 ? 0 : bias;
    }
}

void gd_conv_forward_bf16(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t depth = s->c * s->taps;
    if (depth == 0) {
        if (!gd_conv_is_asked(args))
            fill(args);
        return;
    }
    access_t v = { .base = { .pack_b = pack_windows, .find_c = find_columns } };
    set_forward_window(args, &v.window);
    set_forward_place(s, &v.place);
    const gd_gemm_args product = { .m = s->o,
                                   .n = s->n * s->out_plane,
                                   .k = depth,
                                   .a = args->b,
                                   .a_row_stride = depth,
                                   .a_col_stride = 1,
                                   .b = args->a,
                                   .c = args->out,
                                   .c_row_stride = s->out_plane,
                                   .a_batch_stride = { s->o * depth },
                                   .b_batch_stride = { s->c * s->in_plane },
                                   .c_batch_stride = { s->o * s->out_plane },
                                   .bias = args->bias,
                                   .bias_stride = 1,
                                   .relu = args->attr->relu != 0 };
    if (!run_plain(args, &v, &product))
        run(args, &v, product);
}

/* Elements first, first + stride, … of each axis of dX. False: no tap reaches them. */
static bool run_phase(const gd_conv_args *args, const int64_t first[GD_SPATIAL])
{
    const gd_conv_sizes *s = &args->s;
    access_t v = { .base = { .pack_b = pack_windows, .find_c = find_columns },
                   .a_channel = s->c * s->taps };
    v.window.n_stride = s->groups * s->o * s->out_plane;
    v.window.c_stride = s->out_plane;
    const phase_t phase = set_phase(args, first, &v.window, &v.place);
    memcpy(v.a_tap, phase.a_tap, sizeof v.a_tap);
    v.taps_plain = v.window.tap_count == s->taps;
    if (v.window.tap_count > 1)
        v.base.pack_a = pack_weight;
    const gd_gemm_args product = { .m = s->c,
                                   .n = s->n * v.window.plane,
                                   .k = s->o * v.window.tap_count,
                                   .a = (const uint16_t *)args->b + phase.tap_first,
                                   .a_row_stride = s->taps,
                                   .a_col_stride = v.base.pack_a ? 0 : v.a_channel,
                                   .b = args->a,
                                   .c = args->out + phase.c_first,
                                   .c_row_stride = s->in_plane,
                                   .a_batch_stride = { s->o * v.a_channel },
                                   .b_batch_stride = { s->o * s->out_plane },
                                   .c_batch_stride = { s->c * s->in_plane } };
    if (product.k == 0)
        return false;
    if (!run_plain(args, &v, &product))
        run(args, &v, product);
    return true;
}

void gd_conv_grad_input_bf16(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    int64_t phases[GD_SPATIAL];
    bool all = true; /* elements have a tap that reaches them */
    for (int a = 0; a < GD_SPATIAL; a++) {
        const int64_t stride = args->attr->stride[a];
        phases[a] = LEAST(stride, s->in[a]);
        all = all && (stride == 1 || (args->attr->dilation[a] == 1 && s->kernel[a] >= stride));
    }
    if (!gd_conv_is_asked(args) && (!all || s->o == 0))
        memset(args->out, 0, (size_t)(s->n * s->groups * s->c * s->in_plane) * sizeof *args->out);
    const int64_t count = phases[0] * phases[1] * phases[2];
    for (int64_t i = 0; i < count; i++) {
        const int64_t first[GD_SPATIAL] = { i / phases[2] / phases[1], i / phases[2] % phases[1],
                                            i % phases[2] };
        if (run_phase(args, first) && args->explain) {
            if (count > 1)
                gd_text_add(args->explain, "; so each %lldth element, and the others likewise",
                            (long long)count);
            return;
        }
    }
}

void gd_conv_grad_weight_bf16(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t rows = s->c * s->taps, positions = s->n * s->out_plane;
    if (positions == 0) {
        if (!gd_conv_is_asked(args))
            memset(args->out, 0, (size_t)(s->groups * s->o * rows) * sizeof *args->out);
        return;
    }
    access_t v = { .base = { .pack_a = pack_gradient, .pack_b = pack_transposed_windows },
                   .g_n = s->groups * s->o * s->out_plane };
    set_forward_window(args, &v.window);
    run(args, &v,
        (gd_gemm_args){ .m = s->o,
                        .n = rows,
                        .k = positions,
                        .a = args->a,
                        .a_row_stride = s->out_plane,
                        .b = args->b,
                        .c = args->out,
                        .c_row_stride = rows,
                        .c_col_stride = 1,
                        .a_batch_stride = { s->o * s->out_plane },
                        .b_batch_stride = { s->c * s->in_plane },
                        .c_batch_stride = { s->o * rows } });
}
