/* backend/cpu/conv_f32_isa.c: the micro-kernels and packers of convolutions in f32, and their
 * descriptor (conv_micro.h), compiled once per instruction set. The loops round them are
 * conv_driver.c and the files of the ways. Start at the descriptor, at the end.
 */
#include "backend/cpu/conv_micro.h"
#include "backend/cpu/gemm_finish.h"

#include <string.h>

/* Tiles and packers are those of products. */
#define PRODUCTS GD_ISA_NAME(gd_gemm_f32)

_Static_assert(COLUMNS_MAX <= GD_GEMM_RUNS, "the runs of a panel fit");

/* ---- tiles: bands, vector by vector ---- */

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
DIRECT_KERNEL(3)
DIRECT_KERNEL(4)
DIRECT_KERNEL(5)
DIRECT_KERNEL(6)
#if ROWS_MAX > 6
DIRECT_KERNEL(7)
DIRECT_KERNEL(8)
DIRECT_KERNEL(9)
DIRECT_KERNEL(10)
DIRECT_KERNEL(11)
DIRECT_KERNEL(12)
#endif
#if ROWS_MAX > 12
DIRECT_KERNEL(13)
DIRECT_KERNEL(14)
#endif
#undef DIRECT_KERNEL

/* ---- tiles: bands, number by number ---- */

/* The height of a tile of one vector is GD_BAND_ROWS, of one of two ROWS_MAX. */
GD_SIMD_INLINE void band_body(const gd_band_tile *t, const int rows, const int vecs)
{
    VEC sum[GD_BAND_ROWS][VECS_MAX];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            sum[i][v] = V(zero)();
    }
    const float *b = t->b;
    const int64_t *shift = t->shift;
    for (int k = 0; k < t->many; k++) {
        const float *x = t->band + t->stretches[k].from;
        for (int64_t p = t->stretches[k].count; p > 0; p--) {
            VEC bv[VECS_MAX];
            UNROLL
            for (int v = 0; v < vecs; v++)
                bv[v] = V(load)(b + v * LANES);
            UNROLL
            for (int i = 0; i < rows; i++) {
                const VEC xv = V(set1)(x[shift[i]]);
                UNROLL
                for (int v = 0; v < vecs; v++)
                    sum[i][v] = V(fma)(xv, bv[v], sum[i][v]);
            }
            x += t->step;
            b += vecs * LANES;
            /* Kept where the compiler likes: with two narrow multiply-adds a cycle, reading them
             * anew takes the ports that x needs. With one wide one it is best. */
            if (LANES == 16)
                OPAQUE(shift);
        }
    }
    float *c = t->c;
    UNROLL
    for (int i = 0; i < rows; i++, c += t->c_row) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            V(store)
        (c + v * LANES, t->accumulate ? V(add)(V(load)(c + v * LANES), sum[i][v]) : sum[i][v]);
    }
}

static void band_tile_1(const gd_band_tile *t)
{
    band_body(t, GD_BAND_ROWS, 1);
}

static void band_tile_2(const gd_band_tile *t)
{
    band_body(t, ROWS_MAX, 2);
}

/* ---- tiles: bands, lines of taps ---- */

/* Of 16 registers too few would be left for sums; 32 hold those of 9 lines of 3 taps, or of 5 of 5, beside the
 * vectors that wait and a number. */
#if LANES == 16
#define MOST_LINES 9
#define MOST_TAPS  5

/* What a line multiplies: in `two` halves of a vector what two lines do. */
GD_SIMD_INLINE VEC line_numbers(const float *x, const int64_t *shift, const int i, const bool two)
{
    if (!two)
        return V(set1)(x[shift[i]]);
    return _mm512_mask_broadcastss_ps(_mm512_set1_ps(x[shift[2 * i]]), 0xFF00,
                                      _mm_load_ss(x + shift[2 * i + 1]));
}

GD_SIMD_INLINE VEC line_vector(const float *b, const bool two)
{
    return two ? _mm512_broadcast_f32x8(_mm256_loadu_ps(b)) : V(load)(b);
}

GD_SIMD_INLINE void store_line(const gd_band_tile *t, VEC sum, float *c, float *second,
                               const bool two)
{
    if (!two) {
        V(store)(c, t->accumulate ? V(add)(V(load)(c), sum) : sum);
        return;
    }
    __m256 low = _mm512_castps512_ps256(sum), high = _mm512_extractf32x8_ps(sum, 1);
    if (t->accumulate) {
        low = _mm256_add_ps(_mm256_loadu_ps(c), low);
        high = _mm256_add_ps(_mm256_loadu_ps(second), high);
    }
    _mm256_storeu_ps(c, low);
    _mm256_storeu_ps(second, high);
}

/* Sums of `lines` registers for each of `taps` taps. Tap t multiplies number q of a line by vector q - t: v has
 * the last of them, the newest at its end. Each sum adds its products in the order of the steps. */
GD_SIMD_INLINE void lines_body(const gd_band_tile *t, const int lines, const int taps,
                               const bool two)
{
    VEC sum[MOST_LINES][MOST_TAPS];
    UNROLL
    for (int i = 0; i < lines; i++) {
        UNROLL
        for (int k = 0; k < taps; k++)
            sum[i][k] = V(zero)();
    }
    const float *b = t->b;
    const int64_t *shift = t->shift, b_step = two ? LANES / 2 : LANES;
    for (int s = 0; s < t->many; s++) {
        const float *x = t->band + t->stretches[s].from;
        int64_t count = t->stretches[s].count;
        VEC v[MOST_TAPS];
        for (; count > 0 && count < taps - 1; count--, x++, b += b_step) { /* short: step by step */
            v[0] = line_vector(b, two);
            UNROLL
            for (int i = 0; i < lines; i++) {
                UNROLL
                for (int k = 0; k < taps; k++)
                    sum[i][k] = V(fma)(line_numbers(x + k, shift, i, two), v[0], sum[i][k]);
            }
        }
        if (count == 0)
            continue;
        UNROLL
        for (int q = 0; q < taps - 1;
             q++, x++, b += b_step) { /* numbers that not all taps see yet */
            v[q + 1] = line_vector(b, two);
            UNROLL
            for (int i = 0; i < lines; i++) {
                const VEC xv = line_numbers(x, shift, i, two);
                UNROLL
                for (int k = 0; k <= q; k++)
                    sum[i][k] = V(fma)(xv, v[q + 1 - k], sum[i][k]);
            }
        }
        for (count -= taps - 1; count > 0; count--, x++, b += b_step) {
            UNROLL
            for (int k = 0; k < taps - 1; k++)
                v[k] = v[k + 1];
            v[taps - 1] = line_vector(b, two);
            UNROLL
            for (int i = 0; i < lines; i++) {
                const VEC xv = line_numbers(x, shift, i, two);
                UNROLL
                for (int k = 0; k < taps; k++)
                    sum[i][k] = V(fma)(xv, v[taps - 1 - k], sum[i][k]);
            }
            OPAQUE(shift); /* as in band_body */
        }
        UNROLL
        for (int q = 1; q < taps; q++, x++) { /* and those that the first do not see */
            UNROLL
            for (int i = 0; i < lines; i++) {
                const VEC xv = line_numbers(x, shift, i, two);
                UNROLL
                for (int k = q; k < taps; k++)
                    sum[i][k] = V(fma)(xv, v[taps - 1 - k + q], sum[i][k]);
            }
        }
    }
    float *c = t->c;
    UNROLL
    for (int i = 0; i < lines; i++) {
        UNROLL
        for (int k = 0; k < taps; k++, c += t->c_row)
            store_line(t, sum[i][k], c, c + taps * t->c_row, two);
        c += two ? taps * t->c_row : 0;
    }
}

#define LINES_KERNEL(name, count, taps, two)                   \
    static void name##_##count##_##taps(const gd_band_tile *t) \
    {                                                          \
        lines_body(t, count, taps, two);                       \
    }
#define LINES_KERNELS(count, taps)          \
    LINES_KERNEL(lines, count, taps, false) \
    LINES_KERNEL(doubles, count, taps, true)
LINES_KERNELS(1, 3)
LINES_KERNELS(2, 3)
LINES_KERNELS(3, 3)
LINES_KERNELS(4, 3)
LINES_KERNELS(5, 3)
LINES_KERNELS(6, 3)
LINES_KERNELS(7, 3)
LINES_KERNEL(lines, 8, 3, false)
LINES_KERNEL(lines, 9, 3, false)
LINES_KERNELS(1, 5)
LINES_KERNELS(2, 5)
LINES_KERNELS(3, 5)
LINES_KERNELS(4, 5)
LINES_KERNELS(5, 5)
#undef LINES_KERNELS
#undef LINES_KERNEL

#define UP_TO_5(name, taps) \
    name##_1_##taps, name##_2_##taps, name##_3_##taps, name##_4_##taps, name##_5_##taps
static const gd_band_tile_fn lines_of_3[] = { UP_TO_5(lines, 3), lines_6_3, lines_7_3, lines_8_3,
                                              lines_9_3 };
static const gd_band_tile_fn lines_of_5[] = { UP_TO_5(lines, 5) };
static const gd_band_tile_fn doubles_of_3[] = { UP_TO_5(doubles, 3), doubles_6_3, doubles_7_3 };
static const gd_band_tile_fn doubles_of_5[] = { UP_TO_5(doubles, 5) };
static const gd_lines_micro lines_tiles[] = { { 3, 9, 1, lines_of_3 },
                                              { 5, 5, 1, lines_of_5 },
                                              { 0 } };
static const gd_lines_micro doubles_tiles[] = { { 3, 14, 2, doubles_of_3 },
                                                { 5, 10, 2, doubles_of_5 },
                                                { 0 } };
#define LINES_TILES   lines_tiles
#define DOUBLES_TILES doubles_tiles
#else
#define LINES_TILES   NULL
#define DOUBLES_TILES NULL
#endif

/* ---- tiles: images in the lanes ---- */

/* With two vectors of AVX-512, thirty-two images at a time would not fit the first-level cache. */
#define IMAGES_VECS (LANES == 16 ? 1 : 2)
#define IMAGES      (IMAGES_VECS * LANES)

/* For a constant number of rows. Taps that are left out count where blocks of the sum end. */
GD_SIMD_INLINE void images_body(const gd_images_tile *t, const int rows)
{
    int64_t row = t->a_row;
    const int64_t b_tap = t->b_tap;
    const float *a0 = t->a, *b = t->b;
    int64_t channels = t->channels, lines = t->lines, left = t->count;
    int64_t room = GD_GEMM_KC - t->before; /* steps to the end of the block */
    for (bool accumulate = false;; accumulate = true, room += GD_GEMM_KC) {
        VEC sum[GD_IMAGES_ROWS][IMAGES_VECS];
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int v = 0; v < IMAGES_VECS; v++)
                sum[i][v] = V(zero)();
        }
        while (room > 0 && channels > 0) {
            const float *a4 = a0 + 4 * row, *a8 = a4 + 4 * row, *a12 = a8 + 4 * row;
            const int64_t count = LEAST(left, room);
            for (int64_t p = count; p > 0; p--) {
                VEC bv[IMAGES_VECS];
                UNROLL
                for (int v = 0; v < IMAGES_VECS; v++)
                    bv[v] = V(load)(b + v * LANES);
                UNROLL
                for (int i = 0; i < rows; i++) {
                    const float *a = i < 4 ? a0 : i < 8 ? a4 : i < 12 ? a8 : a12;
                    const VEC av = V(set1)(a[(i % 4) * row]);
                    UNROLL
                    for (int v = 0; v < IMAGES_VECS; v++)
                        sum[i][v] = V(fma)(av, bv[v], sum[i][v]);
                }
                b += b_tap;
                a0++;
                a4++;
                a8++;
                a12++;
                OPAQUE(row); /* as in tile_body */
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

#define IMAGES_KERNEL(rows)                            \
    static void images_##rows(const gd_images_tile *t) \
    {                                                  \
        images_body(t, rows);                          \
    }
IMAGES_KERNEL(4)
IMAGES_KERNEL(6)
#if LANES == 16
IMAGES_KERNEL(8)
IMAGES_KERNEL(12)
IMAGES_KERNEL(16)
#endif
#undef IMAGES_KERNEL

/* ---- copies ---- */

/* Zeros, count of them, and as many behind as a vector has: for short runs that something else is
 * written behind afterwards. */
GD_SIMD_INLINE void zero_over(float *dst, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES)
        V(store)(dst + i, V(zero)());
}

/* A row of a band. */
static void pad_row(float *dst, int64_t before, const float *src, int64_t step, int64_t count,
                    int64_t after)
{
    zero_over(dst, before);
    if (step == 1)
        copy_run(dst + before, src, count);
    else
        copy_strided(dst + before, 1, src, step, count);
    zero_over(dst + before + count, after);
}

/* A row of `width` numbers (rounded up to vectors): the pieces, zeros between them. */
static void copy_pieces(const gd_window_piece *pieces, int many, bool gaps, const float *data,
                        int64_t step, int64_t width, float *row)
{
    for (int64_t i = 0; gaps && i < width; i += LANES)
        V(store)(row + i, V(zero)());
    for (int k = 0; k < many; k++)
        if (step == 1)
            copy_run(row + pieces[k].at, data + pieces[k].from, pieces[k].count);
        else
            copy_strided(row + pieces[k].at, 1, data + pieces[k].from, step, pieces[k].count);
}

static bool are_finite(const float *x, int64_t count)
{
    float lanes[LANES];
    VEC sum = V(zero)();
    for (int64_t i = 0; i < count; i += LANES)
        sum = V(fma)(V(load_masked)(V(mask_first)(LEAST(count - i, LANES)), x + i), V(zero)(), sum);
    V(store)(lanes, sum);
    bool finite = true;
    for (int i = 0; i < LANES; i++)
        finite = finite && lanes[i] == 0;
    return finite;
}

/* ---- packers ---- */

#if GD_SIMD_MASK_FREE
/* A row of `width` numbers (rounded up to vectors): the spans, zeros elsewhere. */
GD_SIMD_INLINE void copy_spans(const gd_window_span *spans, int many, const float *data,
                               int64_t width, float *row)
{
    for (int64_t i = 0; i < width; i += LANES) {
        VEC x = V(zero)();
        for (int k = 0; k < many; k++)
            x = V(load_over)(x, (VMASK)(spans[k].mask >> i), data + spans[k].shift + i);
        V(store)(row + i, x);
    }
}
#endif

/* B of Y and of dX: panels as PRODUCTS.pack_b makes them. Of a plain window pack_b itself does it, but
 * for panels of two images. */
static void pack_windows(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                         const void *b, int64_t row, int64_t depth, int64_t column, int64_t columns,
                         void *stage)
{
    const gd_window *w = &((const gd_conv_access *)access)->window;
    const float *image = b;
    const bool plain = gd_window_is_plain(w);
    (void)stage;
    for (int64_t j = 0; j < columns; j += COLUMNS_MAX) {
        const int64_t count = LEAST(columns - j, COLUMNS_MAX);
        float *panel = (float *)dst + j * depth; // [depth, width]
        if (plain) {
            const int64_t n = (column + j) / w->plane, at = (column + j) % w->plane;
            const int64_t rest = LEAST(w->plane - at, columns - j);
            const int64_t whole = rest == columns - j ? rest : rest / COLUMNS_MAX * COLUMNS_MAX;
            if (whole > 0) {
                micro->pack_b(panel, image + n * w->n_stride + row * w->c_stride + at, w->c_stride,
                              1, depth, whole);
                j += (whole - 1) / COLUMNS_MAX * COLUMNS_MAX;
                continue;
            }
        }
        const int64_t width = (count + LANES - 1) / LANES * LANES;
        gd_window_run runs[COLUMNS_MAX];
        gd_window_piece pieces[COLUMNS_MAX];
        const int run_count = gd_window_runs(w, column + j, count, runs);
        for (int64_t tap = 0; tap < w->tap_count; tap++) {
            int64_t covered;
            const int many = gd_window_pieces(w, tap, runs, run_count, pieces, &covered);
            int64_t c = row > tap ? (row - tap + w->tap_count - 1) / w->tap_count : 0;
            int64_t p = c * w->tap_count + tap - row;
            const float *data = image + c * w->c_stride;
#if GD_SIMD_MASK_FREE
            if (w->step[2] == 1) {
                gd_window_span spans[COLUMNS_MAX];
                const int span_count = gd_window_spans(pieces, many, spans);
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

/* pack_weight where taps do not follow each other: step by step, for all rows. */
static __attribute__((noinline)) void pack_phase(const gd_conv_access *v, const float *a,
                                                 int64_t a_row, int64_t rows, int64_t step,
                                                 int64_t depth, float *panel)
{
    const int64_t *taps = v->window.taps, *to_next = v->a_tap, count = v->window.tap_count;
    int64_t tx = step % taps[2], ty = step / taps[2] % taps[1],
            tz = step % count / taps[2] / taps[1];
    const float *channel = a + step / count * v->a_channel;
    for (int64_t p = 0; p < depth; p++) {
        const float *from = channel + tz * to_next[0] + ty * to_next[1] + tx * to_next[2];
        for (int64_t i = 0; i < rows; i++)
            panel[i * A_PANEL_ROW + p] = from[i * a_row];
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

/* A of Y and of dX, to a panel [rows, A_PANEL_ROW]. */
static void pack_weight(const gd_gemm_access *access, const gd_gemm_micro *micro, void *dst,
                        const void *weight, int64_t a_row, int64_t rows, int64_t step,
                        int64_t depth, int64_t *row_stride, int64_t *step_stride, void *stage)
{
    const gd_conv_access *v = (const gd_conv_access *)access;
    const gd_window *w = &v->window;
    int64_t channel = step / w->tap_count, tap = step % w->tap_count;
    float *panel = dst;
    (void)micro, (void)stage;
    *row_stride = A_PANEL_ROW;
    *step_stride = 1;
    if (!v->taps_plain) {
        pack_phase(v, weight, a_row, rows, step, depth, panel);
        return;
    }
    for (int64_t p = 0; p < depth; channel++, tap = 0) {
        const float *a = (const float *)weight + channel * v->a_channel;
        const int64_t count = LEAST(w->tap_count - tap, depth - p);
        for (int64_t i = 0; i < rows * a_row; i += LINE) /* the next panel lies behind this one */
            __builtin_prefetch(a + rows * a_row + i, 0, 2);
        for (int64_t i = 0; i < rows; i++, a += a_row)
            copy_run(panel + i * A_PANEL_ROW + p, a + tap, count);
        p += count;
    }
}

/* ---- the descriptor ---- */

static const gd_direct_tile_fn direct_tiles[ROWS_MAX] = {
    direct_1,  direct_2,  direct_3, direct_4,  direct_5,  direct_6,
#if ROWS_MAX > 6
    direct_7,  direct_8,  direct_9, direct_10, direct_11, direct_12,
#endif
#if ROWS_MAX > 12
    direct_13, direct_14,
#endif
};

static const gd_images_tiles images_tiles[] = {
    { 4, images_4 }, { 6, images_6 },
#if LANES == 16
    { 8, images_8 }, { 12, images_12 }, { 16, images_16 },
#endif
    { 0, NULL },
};

#if defined(GD_ISA_AVX512_BUILD)
#define NARROW &gd_conv_f32_avx2
#else
#define NARROW NULL
#endif

const gd_conv_micro GD_ISA_NAME(gd_conv_f32) = {
    .product = &PRODUCTS,
    .pack_windows = pack_windows,
    .pack_weight = pack_weight,
    .direct = direct_tiles,
    .band = { band_tile_1, band_tile_2 },
    .band_rows = { GD_BAND_ROWS, ROWS_MAX },
    .lines = LINES_TILES,
    .narrow_lines = DOUBLES_TILES,
    .images_tiles = images_tiles,
    .images = IMAGES,
    .are_finite = are_finite,
    .pad_row = pad_row,
    .copy_pieces = copy_pieces,
    .winograd = &GD_ISA_NAME(gd_winograd),
    .narrow = NARROW,
};
