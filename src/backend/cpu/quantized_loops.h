/* backend/cpu/quantized_loops.h: products with weights in blocks of 32, in the order that
 * ops/quantized.c defines, for one instruction set. Before: NAME(function), and WITH_AVX2 1, with
 * WITH_VNNI 1 besides, or WITH_DOTPROD 1, or none of them. Start at gd_quantized_columns. */
#include "backend/cpu/quantized.h"
#include "base/half.h"

#include <string.h>

#ifdef WITH_AVX2
#include <immintrin.h>
#endif
#ifdef WITH_DOTPROD
#include <arm_neon.h>
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
    for (int64_t b = 0; b < to->rows * to->blocks; b++) {
        int8_t *values = to->values + b * BLOCK;
        to->scales[b] = quantize_block(x + b * BLOCK, values);
        if (to->starts) {
            int32_t sum = 0;
            for (int i = 0; i < BLOCK; i++)
                sum += values[i];
            to->starts[b] = -8 * sum;
        }
    }
}

/* ---- products of two rows ---- */

/* Some blocks of a row of x, and of a row of weights. With four_bits, known when this is compiled,
 * weights are 16 bytes a block, and sums begin with `starts`. */
typedef struct operands {
    const int8_t *x;
    const float *x_scales;
    const int32_t *starts;
    const uint8_t *w;
    const void *w_scales;
    bool half_scales, four_bits;
} operands;

INLINE int64_t weight_bytes(bool four_bits)
{
    return four_bits ? BLOCK / 2 : BLOCK;
}

#ifdef WITH_AVX2
/* The weights of a block that are 8 more than they are, in 4 bits each. */
INLINE __m256i unpack_halves(const uint8_t *w)
{
    const __m128i both = _mm_loadu_si128((const __m128i *)w);
    const __m256i apart =
        _mm256_inserti128_si256(_mm256_castsi128_si256(both), _mm_srli_epi16(both, 4), 1);
    return _mm256_and_si256(apart, _mm256_set1_epi8(15));
}

/* Eight lanes, of four products each. |w| is at most 128, which is a u8, and x has the sign of w put
 * on it: |x| is at most 127. So no sum of two leaves 16 bits. */
INLINE __m256i lane_sums(const operands *o, int64_t b)
{
    const uint8_t *w = o->w + b * weight_bytes(o->four_bits);
    __m256i numbers = _mm256_loadu_si256((const __m256i *)(o->x + b * BLOCK)), size;
    if (o->four_bits) {
        size = unpack_halves(w);
    } else {
        const __m256i weights = _mm256_loadu_si256((const __m256i *)w);
        size = _mm256_abs_epi8(weights);
        numbers = _mm256_sign_epi8(numbers, weights);
    }
#ifdef WITH_VNNI
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), size, numbers);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(size, numbers), _mm256_set1_epi16(1));
#endif
}

INLINE __m256i sums_of_four(const operands *o, int64_t b)
{
    const __m256i low = _mm256_hadd_epi32(lane_sums(o, b), lane_sums(o, b + 1));
    const __m256i high = _mm256_hadd_epi32(lane_sums(o, b + 2), lane_sums(o, b + 3));
    return _mm256_hadd_epi32(low, high);
}

INLINE int32_t block_sum(const operands *o, int64_t b)
{
    const __m256i lanes = lane_sums(o, b);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum) + (o->four_bits ? o->starts[b] : 0);
}

/* The sums of eight blocks. */
INLINE __m256i block_sums(const operands *o, int64_t b)
{
    const __m256i low = sums_of_four(o, b), high = sums_of_four(o, b + 4);
    const __m256i sums = _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                          _mm256_permute2x128_si256(low, high, 0x31));
    if (!o->four_bits)
        return sums;
    return _mm256_add_epi32(sums, _mm256_loadu_si256((const __m256i *)(o->starts + b)));
}

INLINE __m256 read_scales(const void *scales, bool half, int64_t at)
{
    return half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)scales + at)))
                : _mm256_loadu_ps((const float *)scales + at);
}

/* The terms of blocks 0 … end - 1, a multiple of the lanes, added up in them. */
INLINE void add_whole(const operands *o, int64_t end, float *lane)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t b = 0; b < end; b += LANES) {
        const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(o->x_scales + b),
                                           read_scales(o->w_scales, o->half_scales, b));
        const __m256 exact = _mm256_cvtepi32_ps(block_sums(o, b));
        sum = _mm256_add_ps(sum, _mm256_mul_ps(scale, exact));
    }
    _mm256_storeu_ps(lane, sum);
}
#endif

#ifdef WITH_DOTPROD
/* Four lanes, of eight products each. */
INLINE int32x4_t lane_sums(const operands *o, int64_t b)
{
    const int8_t *x = o->x + b * BLOCK;
    const uint8_t *w = o->w + b * weight_bytes(o->four_bits);
    const uint8x16_t first = vld1q_u8(w);
    int8x16_t low, high;
    if (o->four_bits) {
        low = vreinterpretq_s8_u8(vandq_u8(first, vdupq_n_u8(15)));
        high = vreinterpretq_s8_u8(vshrq_n_u8(first, 4));
    } else {
        low = vreinterpretq_s8_u8(first);
        high = vreinterpretq_s8_u8(vld1q_u8(w + BLOCK / 2));
    }
    const int32x4_t sums = vdotq_s32(vdupq_n_s32(0), low, vld1q_s8(x));
    return vdotq_s32(sums, high, vld1q_s8(x + BLOCK / 2));
}

INLINE int32_t block_sum(const operands *o, int64_t b)
{
    return vaddvq_s32(lane_sums(o, b)) + (o->four_bits ? o->starts[b] : 0);
}

/* The sums of four blocks. */
INLINE int32x4_t block_sums(const operands *o, int64_t b)
{
    const int32x4_t low = vpaddq_s32(lane_sums(o, b), lane_sums(o, b + 1));
    const int32x4_t high = vpaddq_s32(lane_sums(o, b + 2), lane_sums(o, b + 3));
    const int32x4_t sums = vpaddq_s32(low, high);
    return o->four_bits ? vaddq_s32(sums, vld1q_s32(o->starts + b)) : sums;
}

INLINE float32x4_t read_scales(const void *scales, bool half, int64_t at)
{
    if (!half)
        return vld1q_f32((const float *)scales + at);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)scales + at)));
}

/* The terms of four blocks. */
INLINE float32x4_t terms(const operands *o, int64_t b)
{
    const float32x4_t scale =
        vmulq_f32(vld1q_f32(o->x_scales + b), read_scales(o->w_scales, o->half_scales, b));
    return vmulq_f32(scale, vcvtq_f32_s32(block_sums(o, b)));
}

/* The terms of blocks 0 … end - 1, a multiple of the lanes, added up in them. */
INLINE void add_whole(const operands *o, int64_t end, float *lane)
{
    float32x4_t low = vdupq_n_f32(0), high = low;
    for (int64_t b = 0; b < end; b += LANES) {
        low = vaddq_f32(low, terms(o, b));
        high = vaddq_f32(high, terms(o, b + LANES / 2));
    }
    vst1q_f32(lane, low);
    vst1q_f32(lane + LANES / 2, high);
}
#endif

INLINE float read_scale(const void *scales, bool half, int64_t at)
{
    return half ? gd_f16_to_f32(((const uint16_t *)scales)[at]) : ((const float *)scales)[at];
}

#if !defined(WITH_AVX2) && !defined(WITH_DOTPROD)
INLINE int32_t block_sum(const operands *o, int64_t b)
{
    const int8_t *x = o->x + b * BLOCK;
    const uint8_t *w = o->w + b * weight_bytes(o->four_bits);
    int32_t sum = o->four_bits ? o->starts[b] : 0;
    for (int i = 0; i < BLOCK / 2 && o->four_bits; i++)
        sum += x[i] * (w[i] & 15) + x[i + BLOCK / 2] * (w[i] >> 4);
    for (int i = 0; i < BLOCK && !o->four_bits; i++)
        sum += x[i] * (int8_t)w[i];
    return sum;
}
#endif

INLINE float term(const operands *o, int64_t b)
{
    return o->x_scales[b] * read_scale(o->w_scales, o->half_scales, b) * (float)block_sum(o, b);
}

#if !defined(WITH_AVX2) && !defined(WITH_DOTPROD)
INLINE void add_whole(const operands *o, int64_t end, float *lane)
{
    for (int l = 0; l < LANES; l++)
        lane[l] = 0;
    for (int64_t b = 0; b < end; b++)
        lane[b % LANES] += term(o, b);
}
#endif

INLINE float product(const operands *o, int64_t blocks)
{
    const int64_t whole = blocks / LANES * LANES;
    float lane[LANES];
    add_whole(o, whole, lane);
    for (int64_t b = whole; b < blocks; b++)
        lane[b - whole] += term(o, b);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* A column's weights are read once from memory, and from the L1 cache for all rows but the first. */
INLINE void columns(const gd_quantized_rows *x, const gd_quantized_weights *w, bool half_scales,
                    bool four_bits, int64_t begin, int64_t end, float *out, int64_t stride)
{
    const int64_t blocks = x->blocks;
    const int64_t scale_bytes = half_scales ? sizeof(uint16_t) : sizeof(float);
    for (int64_t j = begin; j < end; j++)
        for (int64_t i = 0; i < x->rows; i++) {
            const operands o = { .x = x->values + i * blocks * BLOCK,
                                 .x_scales = x->scales + i * blocks,
                                 .starts = four_bits ? x->starts + i * blocks : NULL,
                                 .w = w->values + j * blocks * weight_bytes(four_bits),
                                 .w_scales = (const char *)w->scales + j * blocks * scale_bytes,
                                 .half_scales = half_scales,
                                 .four_bits = four_bits };
            out[i * stride + j] = product(&o, blocks);
        }
}

void NAME(gd_quantized_columns)(const gd_quantized_rows *x, const gd_quantized_weights *w,
                                int64_t begin, int64_t end, float *out, int64_t stride)
{
    if (w->half_scales && w->four_bits)
        columns(x, w, true, true, begin, end, out, stride);
    else if (w->half_scales)
        columns(x, w, true, false, begin, end, out, stride);
    else if (w->four_bits)
        columns(x, w, false, true, begin, end, out, stride);
    else
        columns(x, w, false, false, begin, end, out, stride);
}

#include "backend/cpu/quantized_blocked.h"
