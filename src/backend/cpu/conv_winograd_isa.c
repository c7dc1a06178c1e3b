/* backend/cpu/conv_winograd_isa.c: the transforms of F(4 x 4, 3 x 3), compiled once per instruction set
 * (conv_winograd.h). Each lane of a vector is a channel, so planes are transposed on their way in and
 * out. A lane's operations are the same on each instruction set that has fused multiply-add, and so are
 * its bits. Start at the descriptor, at the end.
 */
#include "backend/cpu/conv_winograd.h"
#include "backend/cpu/gemm_real.h"

#define TILE  GD_WINOGRAD_TILE
#define SIZE  GD_WINOGRAD_SIZE
#define TAPS  9
#define TAPS3 3

/* The points 0, +-P, +-Q and infinity. */
#define P 0.625
#define Q 1.5

GD_SIMD_INLINE VEC scaled(double factor, VEC x)
{
    return V(mul)(V(set1)((float)factor), x);
}

/* factor * x + y */
GD_SIMD_INLINE VEC combined(double factor, VEC x, VEC y)
{
    return V(fma)(V(set1)((float)factor), x, y);
}

/* ---- along one axis ---- */

/* B^T x: the coefficients of the products of (t - point) over all other points. */
GD_SIMD_INLINE void image_axis(VEC x[SIZE])
{
    const VEC even_p = combined(-Q * Q, x[2], x[4]), odd_p = combined(-Q * Q, x[1], x[3]);
    const VEC even_q = combined(-P * P, x[2], x[4]), odd_q = combined(-P * P, x[1], x[3]);
    x[0] = combined(P * P * Q * Q, x[0], combined(-(P * P + Q * Q), x[2], x[4]));
    x[5] = combined(P * P * Q * Q, x[1], combined(-(P * P + Q * Q), x[3], x[5]));
    x[1] = combined(P, odd_p, even_p);
    x[2] = combined(-P, odd_p, even_p);
    x[3] = combined(Q, odd_q, even_q);
    x[4] = combined(-Q, odd_q, even_q);
}

/* G w: the values at the points, over the products of the point's distances from the others. */
GD_SIMD_INLINE void weight_axis(const VEC w[TAPS3], VEC u[SIZE])
{
    const double at_0 = 1 / (P * P * Q * Q);
    const double at_p = 1 / (2 * P * P * (P * P - Q * Q)), at_q = 1 / (2 * Q * Q * (Q * Q - P * P));
    const VEC even_p = combined(P * P * at_p, w[2], scaled(at_p, w[0]));
    const VEC even_q = combined(Q * Q * at_q, w[2], scaled(at_q, w[0]));
    u[0] = scaled(at_0, w[0]);
    u[1] = combined(P * at_p, w[1], even_p);
    u[2] = combined(-P * at_p, w[1], even_p);
    u[3] = combined(Q * at_q, w[1], even_q);
    u[4] = combined(-Q * at_q, w[1], even_q);
    u[5] = w[2];
}

/* A^T m: the powers of the points. */
GD_SIMD_INLINE void result_axis(const VEC m[SIZE], VEC y[TILE])
{
    const VEC sum_p = V(add)(m[1], m[2]), difference_p = combined(-1, m[2], m[1]);
    const VEC sum_q = V(add)(m[3], m[4]), difference_q = combined(-1, m[4], m[3]);
    y[0] = V(add)(V(add)(m[0], sum_p), sum_q);
    y[1] = combined(Q, difference_q, scaled(P, difference_p));
    y[2] = combined(Q * Q, sum_q, scaled(P * P, sum_p));
    y[3] = combined(Q * Q * Q, difference_q, combined(P * P * P, difference_p, m[5]));
}

/* ---- the image ---- */

/* Numbers [first, end) of those at p; the other lanes are 0, and not read. */
GD_SIMD_INLINE VEC load_part(const float *p, int64_t first, int64_t end)
{
    if (first == 0 && end == LANES)
        return V(load)(p);
#if GD_SIMD_MASK_FREE
    return V(load_masked)((VMASK)(V(mask_first)(end) & ~V(mask_first)(first)), p);
#else
    if (first == 0)
        return V(load_masked)(V(mask_first)(end), p);
    float lanes[LANES] = { 0 };
    for (int64_t i = first; i < end; i++)
        lanes[i] = p[i];
    return V(load)(lanes);
#endif
}

/* Row y of the planes, from column strip->x on, to band [columns, lanes]; zeros in the padding. */
static void load_row(const gd_winograd_strip *strip, const float *image, int64_t y, int64_t columns,
                     float *band)
{
    const bool inside = y >= 0 && y < strip->height;
    for (int64_t column = 0; column < columns; column += LANES) {
        const int64_t x = strip->x + column;
        const int64_t end = inside ? LEAST(strip->width - x, LANES) : 0;
        const int64_t first = x < 0 ? -x : 0;
        VEC r[LANES];
        UNROLL
        for (int i = 0; i < LANES; i++)
            r[i] = V(zero)();
        if (end > first) {
            const float *from = image + y * strip->width + x;
            for (int i = 0; i < LANES && i < strip->channels; i++) {
                r[i] = load_part(from + i * strip->channel, first, end);
                __builtin_prefetch(from + (LANES + i) * strip->channel, 0, 2);
            }
            V(transpose)(r);
        }
        UNROLL
        for (int i = 0; i < LANES; i++)
            V(store)(band + (column + i) * LANES, r[i]);
    }
}

static void transform_image(const gd_winograd_strip *strip, const float *image, float *band,
                            const gd_winograd_frequencies *to)
{
    const int64_t seen = strip->tiles * TILE + SIZE - TILE;
    const int64_t columns = (seen + LANES - 1) / LANES * LANES, row = columns * LANES;
    for (int i = 0; i < SIZE; i++)
        load_row(strip, image, strip->y + i, columns, band + i * row);
    for (int64_t column = 0; column < seen; column++) {
        VEC x[SIZE];
        UNROLL
        for (int i = 0; i < SIZE; i++)
            x[i] = V(load)(band + i * row + column * LANES);
        image_axis(x);
        UNROLL
        for (int i = 0; i < SIZE; i++)
            V(store)(band + i * row + column * LANES, x[i]);
    }
    for (int64_t tile = 0; tile < strip->tiles; tile++)
        for (int i = 0; i < SIZE; i++) {
            const float *from = band + i * row + tile * TILE * LANES;
            float *v = to->first + tile * to->step + i * SIZE * to->frequency;
            VEC x[SIZE];
            UNROLL
            for (int j = 0; j < SIZE; j++)
                x[j] = V(load)(from + j * LANES);
            image_axis(x);
            UNROLL
            for (int j = 0; j < SIZE; j++)
                V(store)(v + j * to->frequency, x[j]);
        }
}

/* ---- the weight ---- */

/* The taps of one kernel for each lane, to taps [TAPS, lanes]. */
GD_SIMD_INLINE void load_taps(const float *weight, int64_t channel, int64_t channels, bool flipped,
                              float *taps)
{
    for (int t = 0; t < TAPS; t += LANES) {
        const int64_t count = LEAST(TAPS - t, LANES);
        VEC r[LANES];
        UNROLL
        for (int i = 0; i < LANES; i++)
            r[i] = V(zero)();
        for (int i = 0; i < LANES && i < channels; i++)
            r[i] = load_part(weight + i * channel + t, 0, count);
        V(transpose)(r);
        for (int i = 0; i < count; i++)
            V(store)(taps + (flipped ? TAPS - 1 - t - i : t + i) * LANES, r[i]);
    }
}

static void transform_weight(const float *weight, int64_t channel, int64_t step, int64_t channels,
                             int64_t steps, bool flipped, const gd_winograd_frequencies *to)
{
    for (int64_t s = 0; s < steps; s++) {
        float taps[TAPS * LANES], columns[SIZE * TAPS3 * LANES];
        load_taps(weight + s * step, channel, channels, flipped, taps);
        for (int j = 0; j < TAPS3; j++) {
            VEC w[TAPS3], u[SIZE];
            UNROLL
            for (int i = 0; i < TAPS3; i++)
                w[i] = V(load)(taps + (i * TAPS3 + j) * LANES);
            weight_axis(w, u);
            UNROLL
            for (int i = 0; i < SIZE; i++)
                V(store)(columns + (i * TAPS3 + j) * LANES, u[i]);
        }
        for (int i = 0; i < SIZE; i++) {
            float *frequency = to->first + s * to->step + i * SIZE * to->frequency;
            VEC w[TAPS3], u[SIZE];
            UNROLL
            for (int j = 0; j < TAPS3; j++)
                w[j] = V(load)(columns + (i * TAPS3 + j) * LANES);
            weight_axis(w, u);
            UNROLL
            for (int j = 0; j < SIZE; j++)
                V(store)(frequency + j * to->frequency, u[j]);
        }
    }
}

/* ---- the result ---- */

/* A row of the band [columns, lanes] to a row of the planes, of which `width` are kept. */
static void store_row(const gd_winograd_strip *strip, const float *band, int64_t width,
                      const float *bias, int64_t bias_step, bool relu, float *result)
{
    for (int64_t column = 0; column < width; column += LANES) {
        const int64_t count = LEAST(width - column, LANES);
        VEC r[LANES];
        UNROLL
        for (int i = 0; i < LANES; i++)
            r[i] = V(load)(band + (column + i) * LANES);
        V(transpose)(r);
        for (int i = 0; i < LANES && i < strip->channels; i++) {
            float *to = result + i * strip->channel + column;
            VEC y = V(add)(r[i], V(set1)(bias[i * bias_step]));
            y = relu ? V(relu)(y) : y;
            if (count == LANES)
                V(store)(to, y);
            else
                V(store_masked)(to, V(mask_first)(count), y);
        }
    }
}

static void transform_result(const gd_winograd_strip *strip, const gd_winograd_frequencies *from,
                             float *band, const float *bias, int64_t bias_step, bool relu,
                             float *result)
{
    const int64_t columns = strip->tiles * TILE, row = (columns + LANES) * LANES;
    const int64_t height = LEAST(strip->height - strip->y, TILE);
    const int64_t width = LEAST(strip->width - strip->x, columns);
    for (int64_t tile = 0; tile < strip->tiles; tile++) {
        const float *m = from->first + tile * from->step;
        float halves[TILE * SIZE * LANES];
        for (int j = 0; j < SIZE; j++) {
            VEC x[SIZE], y[TILE];
            UNROLL
            for (int i = 0; i < SIZE; i++)
                x[i] = V(load)(m + (i * SIZE + j) * from->frequency);
            result_axis(x, y);
            UNROLL
            for (int i = 0; i < TILE; i++)
                V(store)(halves + (i * SIZE + j) * LANES, y[i]);
        }
        for (int i = 0; i < TILE; i++) {
            VEC x[SIZE], y[TILE];
            UNROLL
            for (int j = 0; j < SIZE; j++)
                x[j] = V(load)(halves + (i * SIZE + j) * LANES);
            result_axis(x, y);
            UNROLL
            for (int j = 0; j < TILE; j++)
                V(store)(band + i * row + (tile * TILE + j) * LANES, y[j]);
        }
    }
    for (int64_t i = 0; i < height; i++)
        store_row(strip, band + i * row, width, bias, bias_step, relu,
                  result + (strip->y + i) * strip->width + strip->x);
}

/* ---- the descriptor ---- */

const gd_winograd_kernels GD_ISA_NAME(gd_winograd) = {
    .transform_image = transform_image,
    .transform_weight = transform_weight,
    .transform_result = transform_result,
};
