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

INLINE int32_t block_sum(const int8_t *x, const int8_t *w)
{
    const __m256i lanes = lane_sums(x, w);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
}

/* The sums of eight blocks. */
INLINE __m256i block_sums(const int8_t *x, const int8_t *w)
{
    const __m256i low = sums_of_four(x, w), high = sums_of_four(x + 4 * BLOCK, w + 4 * BLOCK);
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                            _mm256_permute2x128_si256(low, high, 0x31));
}

INLINE __m256 read_scales(const void *scales, bool half, int64_t at)
{
    return half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)scales + at)))
                : _mm256_loadu_ps((const float *)scales + at);
}

/* The terms of blocks 0 … end - 1, a multiple of the lanes, added up in them. */
INLINE void add_whole(const int8_t *x, const float *x_scales, const int8_t *w, const void *w_scales,
                      bool half, int64_t end, float *lane)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t b = 0; b < end; b += LANES) {
        const __m256 scale =
            _mm256_mul_ps(_mm256_loadu_ps(x_scales + b), read_scales(w_scales, half, b));
        const __m256 exact = _mm256_cvtepi32_ps(block_sums(x + b * BLOCK, w + b * BLOCK));
        sum = _mm256_add_ps(sum, _mm256_mul_ps(scale, exact));
    }
    _mm256_storeu_ps(lane, sum);
}
#endif

INLINE float read_scale(const void *scales, bool half, int64_t at)
{
    return half ? gd_f16_to_f32(((const uint16_t *)scales)[at]) : ((const float *)scales)[at];
}

#ifndef WITH_AVX2
INLINE int32_t block_sum(const int8_t *x, const int8_t *w)
{
    int32_t sum = 0;
    for (int i = 0; i < BLOCK; i++)
        sum += x[i] * w[i];
    return sum;
}

INLINE void add_whole(const int8_t *x, const float *x_scales, const int8_t *w, const void *w_scales,
                      bool half, int64_t end, float *lane)
{
    for (int l = 0; l < LANES; l++)
        lane[l] = 0;
    for (int64_t b = 0; b < end; b++)
        lane[b % LANES] += x_scales[b] * read_scale(w_scales, half, b) *
                           (float)block_sum(x + b * BLOCK, w + b * BLOCK);
}
#endif

/* A row of x times a row of the weights. */
INLINE float product(const int8_t *x, const float *x_scales, const int8_t *w, const void *w_scales,
                     bool half, int64_t blocks)
{
    const int64_t whole = blocks / LANES * LANES;
    float lane[LANES];
    add_whole(x, x_scales, w, w_scales, half, whole, lane);
    for (int64_t b = whole; b < blocks; b++)
        lane[b - whole] += x_scales[b] * read_scale(w_scales, half, b) *
                           (float)block_sum(x + b * BLOCK, w + b * BLOCK);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* A column's weights are read once from memory, and from the L1 cache for all rows but the first. */
INLINE void columns(const gd_quantized_rows *x, const gd_quantized_weights *w, bool half,
                    int64_t begin, int64_t end, float *out, int64_t stride)
{
    const int64_t blocks = x->blocks;
    const size_t scale_bytes = half ? sizeof(uint16_t) : sizeof(float);
    for (int64_t j = begin; j < end; j++) {
        const int8_t *values = w->values + j * blocks * BLOCK;
        const void *scales = (const char *)w->scales + (size_t)(j * blocks) * scale_bytes;
        for (int64_t i = 0; i < x->rows; i++)
            out[i * stride + j] = product(x->values + i * blocks * BLOCK, x->scales + i * blocks,
                                          values, scales, half, blocks);
    }
}

void NAME(gd_quantized_columns)(const gd_quantized_rows *x, const gd_quantized_weights *w,
                                int64_t begin, int64_t end, float *out, int64_t stride)
{
    if (w->half_scales)
        columns(x, w, true, begin, end, out, stride);
    else
        columns(x, w, false, begin, end, out, stride);
}

#include "backend/cpu/quantized_blocked.h"
