/* backend/cpu/quantized_loops.h: products with weights in blocks of 32 int8, in the order that
 * ops/quantized.c defines, for one instruction set. Before: NAME(function), and WITH_AVX2 1, with
 * WITH_VNNI 1 besides, or neither. Start at gd_quantized_columns. */
#include "backend/cpu/quantized.h"
#include "base/half.h"

#include <string.h>

#ifdef WITH_AVX2
#include <immintrin.h>
#endif

#define BLOCK  GD_QUANTIZED_BLOCK
#define LANES  GD_QUANTIZED_LANES
#define INLINE static inline __attribute__((always_inline))

/* ---- activations in blocks ---- */

/* The bits of the largest of |x|; those of NaN are above those of infinity. */
INLINE uint32_t largest_bits(const float *x)
{
    int32_t most = 0;
    for (int i = 0; i < BLOCK; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

/* Adding 1.5 * 2^23 rounds |v| <= 127 to nearest, ties to even, and leaves it in the lowest bits. */
INLINE int8_t rounded(float v)
{
    const float shifted = v + 12582912.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return (int8_t)(bits - 0x4b400000);
}

INLINE float quantize_block(const float *x, int8_t *to)
{
    const uint32_t bits = largest_bits(x);
    const uint32_t least = 0x0d800000u, infinite = 0x7f800000u; /* 2^-100, infinity */
    if (bits < least || bits >= infinite) {
        memset(to, 0, BLOCK);
        return bits < least ? 0.0f : __builtin_nanf("");
    }
    float most;
    memcpy(&most, &bits, sizeof most);
    const float factor = 127.0f / most;
    for (int i = 0; i < BLOCK; i++)
        to[i] = rounded(x[i] * factor);
    return most / 127.0f;
}

void NAME(gd_quantize_rows)(const float *x, const gd_quantized_rows *to)
{
    for (int64_t b = 0; b < to->rows * to->blocks; b++)
        to->scales[b] = quantize_block(x + b * BLOCK, to->values + b * BLOCK);
}

/* ---- products ---- */

INLINE int32_t block_sum(const int8_t *x, const int8_t *w)
{
    int32_t sum = 0;
    for (int i = 0; i < BLOCK; i++)
        sum += x[i] * w[i];
    return sum;
}

#ifdef WITH_AVX2
/* Eight lanes, of four products each. |w| is at most 128, which is a u8, and x has the sign of w put
 * on it: |x| is at most 127. So no sum of two leaves 16 bits. */
INLINE __m256i lane_sums(const int8_t *x, const int8_t *w)
{
    const __m256i weights = _mm256_loadu_si256((const __m256i *)w);
    const __m256i size = _mm256_abs_epi8(weights);
    const __m256i numbers = _mm256_sign_epi8(_mm256_loadu_si256((const __m256i *)x), weights);
#ifdef WITH_VNNI
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), size, numbers);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(size, numbers), _mm256_set1_epi16(1));
#endif
}

INLINE __m256i sums_of_four(const int8_t *x, const int8_t *w)
{
    const __m256i a = _mm256_hadd_epi32(lane_sums(x, w), lane_sums(x + BLOCK, w + BLOCK));
    const __m256i b = _mm256_hadd_epi32(lane_sums(x + 2 * BLOCK, w + 2 * BLOCK),
                                        lane_sums(x + 3 * BLOCK, w + 3 * BLOCK));
    return _mm256_hadd_epi32(a, b);
}

/* The sums of eight blocks. */
INLINE void block_sums(const int8_t *x, const int8_t *w, int32_t *sum)
{
    const __m256i low = sums_of_four(x, w), high = sums_of_four(x + 4 * BLOCK, w + 4 * BLOCK);
    const __m256i all = _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                         _mm256_permute2x128_si256(low, high, 0x31));
    _mm256_storeu_si256((__m256i *)sum, all);
}
#else
INLINE void block_sums(const int8_t *x, const int8_t *w, int32_t *sum)
{
    for (int b = 0; b < LANES; b++)
        sum[b] = block_sum(x + b * BLOCK, w + b * BLOCK);
}
#endif

INLINE void read_scales(const gd_quantized_weights *w, int64_t at, float *to)
{
    if (!w->half_scales) {
        memcpy(to, (const float *)w->scales + at, LANES * sizeof *to);
        return;
    }
    const uint16_t *from = (const uint16_t *)w->scales + at;
#ifdef WITH_AVX2
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)));
#else
    for (int i = 0; i < LANES; i++)
        to[i] = gd_f16_to_f32(from[i]);
#endif
}

INLINE float read_scale(const gd_quantized_weights *w, int64_t at)
{
    return w->half_scales ? gd_f16_to_f32(((const uint16_t *)w->scales)[at])
                          : ((const float *)w->scales)[at];
}

/* Row i of x times column j of the weights. */
INLINE float product(const gd_quantized_rows *x, const gd_quantized_weights *w, int64_t i,
                     int64_t j)
{
    const int64_t blocks = x->blocks, whole = blocks / LANES * LANES;
    const int8_t *a = x->values + i * blocks * BLOCK, *b = w->values + j * blocks * BLOCK;
    const float *scale = x->scales + i * blocks;
    float lane[LANES] = { 0 };
    for (int64_t p = 0; p < whole; p += LANES, a += LANES * BLOCK, b += LANES * BLOCK) {
        int32_t sum[LANES];
        float weight_scale[LANES];
        block_sums(a, b, sum);
        read_scales(w, j * blocks + p, weight_scale);
        for (int l = 0; l < LANES; l++)
            lane[l] += scale[p + l] * weight_scale[l] * (float)sum[l];
    }
    for (int64_t p = whole; p < blocks; p++, a += BLOCK, b += BLOCK)
        lane[p - whole] += scale[p] * read_scale(w, j * blocks + p) * (float)block_sum(a, b);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* A column's weights are read once from memory, and from the L1 cache for all rows but the first. */
void NAME(gd_quantized_columns)(const gd_quantized_rows *x, const gd_quantized_weights *w,
                                int64_t begin, int64_t end, float *out, int64_t stride)
{
    for (int64_t j = begin; j < end; j++)
        for (int64_t i = 0; i < x->rows; i++)
            out[i * stride + j] = product(x, w, i, j);
}
