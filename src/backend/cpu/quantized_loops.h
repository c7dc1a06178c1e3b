/* backend/cpu/quantized_loops.h: products with weights in blocks, in the order that
 * ops/quantized.c defines, for one instruction set. Before: NAME(function), and WITH_AVX2 1, with
 * WITH_VNNI 1 besides, or WITH_DOTPROD 1, or none of them. Start at gd_quantized_columns. */
#include "backend/cpu/quantized.h"
#include "backend/cpu/simd.h"
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
        int32_t first = 0, second = 0;
        for (int i = 0; i < BLOCK / 2; i++) {
            first += values[i];
            second += values[i + BLOCK / 2];
        }
        if (to->sums_of_block == 1) {
            to->sums[b] = first + second;
        } else {
            int32_t *fours = to->sums + b / 4 * 8; /* what four blocks have */
            fours[b % 4] = first;
            fours[4 + b % 4] = second;
        }
    }
}

/* ---- products of two rows ---- */

/* Some blocks of a row of x, with their scales and sums, and of a row of weights. What is bool is known
 * when this is compiled. With four_bits weights are 16 bytes a block, each 8 more than it is, unless they
 * have least values. */
typedef struct operands {
    const int8_t *x;
    const float *x_scales;
    const int32_t *x_sums;
    const uint8_t *w;
    const void *w_scales;
    bool half_scales, four_bits, has_least;
} operands;

INLINE int64_t weight_bytes(bool four_bits)
{
    return four_bits ? BLOCK / 2 : BLOCK;
}

/* Whether weights are kept as 8 more than they are. */
INLINE bool counts_8_more(const operands *o)
{
    return o->four_bits && !o->has_least;
}

#ifdef WITH_AVX2
/* The numbers of a block, of 4 bits each. */
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

/* The sums of four blocks: of the first 16 of each, then of the last 16 of each. */
INLINE __m256i sums_of_four(const __m256i *lanes)
{
    return _mm256_hadd_epi32(_mm256_hadd_epi32(lanes[0], lanes[1]),
                             _mm256_hadd_epi32(lanes[2], lanes[3]));
}

/* The sums of eight blocks, of those of two times four as sums_of_four() has them. */
INLINE __m256i join_sums(__m256i low, __m256i high)
{
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                            _mm256_permute2x128_si256(low, high, 0x31));
}

INLINE int32_t block_sum(const operands *o, int64_t b)
{
    const __m256i lanes = lane_sums(o, b);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum) - (counts_8_more(o) ? 8 * o->x_sums[b] : 0);
}

#ifdef WITH_VNNI
/* The sums of the first 16 products of each of eight blocks, then of the last 16 of each. Weights of 8 bits
 * count 128 more than they are. */
INLINE __m512i half_sums(const operands *o, int64_t b)
{
    const int8_t *x = o->x + b * BLOCK;
    const uint8_t *w = o->w + b * weight_bytes(o->four_bits);
    const __m512i zero = _mm512_setzero_si512();
    __m512i part[4], order;
    if (o->four_bits) { /* first and last halves of four blocks, then of the other four */
        const __m512i fifteen = _mm512_set1_epi8(15);
        const __m512i first = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13);
        const __m512i last = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
        GD_SIMD_UNROLL
        for (int four = 0; four < 2; four++) {
            const __m512i both = _mm512_loadu_si512(w + 64 * four);
            const __m512i low = _mm512_and_si512(both, fifteen);
            const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), fifteen);
            const __m512i x_low = _mm512_loadu_si512(x + 128 * four);
            const __m512i x_high = _mm512_loadu_si512(x + 128 * four + 64);
            part[2 * four] =
                _mm512_dpbusd_epi32(zero, low, _mm512_permutex2var_epi64(x_low, first, x_high));
            part[2 * four + 1] =
                _mm512_dpbusd_epi32(zero, high, _mm512_permutex2var_epi64(x_low, last, x_high));
        }
        order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15);
    } else { /* two blocks each */
        const __m512i offset = _mm512_set1_epi8(-128);
        GD_SIMD_UNROLL
        for (int two = 0; two < 4; two++) {
            const __m512i weights = _mm512_xor_si512(_mm512_loadu_si512(w + 64 * two), offset);
            part[two] = _mm512_dpbusd_epi32(zero, weights, _mm512_loadu_si512(x + 64 * two));
        }
        order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    const __m512i even = _mm512_add_epi32(_mm512_unpacklo_epi32(part[0], part[1]),
                                          _mm512_unpackhi_epi32(part[0], part[1]));
    const __m512i odd = _mm512_add_epi32(_mm512_unpacklo_epi32(part[2], part[3]),
                                         _mm512_unpackhi_epi32(part[2], part[3]));
    const __m512i sums =
        _mm512_add_epi32(_mm512_unpacklo_epi64(even, odd), _mm512_unpackhi_epi64(even, odd));
    return _mm512_permutexvar_epi32(order, sums);
}

/* As a shift: weights count 8 more than they are, or 128; -1: no more. */
INLINE int offset_shift(const operands *o)
{
    return !o->four_bits ? 7 : o->has_least ? -1 : 3;
}

/* The halves added. */
INLINE __m256i add_halves(__m512i sums)
{
    return _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
}

/* The sums of eight blocks. */
INLINE __m256i block_sums(const operands *o, int64_t b)
{
    const __m256i sums = add_halves(half_sums(o, b));
    if (offset_shift(o) < 0)
        return sums;
    const __m256i of_x = _mm256_loadu_si256((const __m256i *)(o->x_sums + b));
    return _mm256_sub_epi32(sums, _mm256_slli_epi32(of_x, offset_shift(o)));
}
#else
/* The sums of eight blocks. */
INLINE __m256i block_sums(const operands *o, int64_t b)
{
    __m256i lanes[LANES];
    GD_SIMD_UNROLL
    for (int l = 0; l < LANES; l++)
        lanes[l] = lane_sums(o, b + l);
    const __m256i sums = join_sums(sums_of_four(lanes), sums_of_four(lanes + 4));
    if (!counts_8_more(o))
        return sums;
    const __m256i of_x = _mm256_loadu_si256((const __m256i *)(o->x_sums + b));
    return _mm256_sub_epi32(sums, _mm256_slli_epi32(of_x, 3));
}
#endif

INLINE __m256 read_scales(const void *scales, bool half, int64_t at)
{
    return half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)scales + at)))
                : _mm256_loadu_ps((const float *)scales + at);
}

/* The scales of eight blocks, or their least values, which lie beside each other. */
INLINE __m256 read_every_second(const void *scales, bool half, int64_t b, bool least)
{
    const __m256 low = read_scales(scales, half, 2 * b);
    const __m256 high = read_scales(scales, half, 2 * b + LANES);
    const __m256 some =
        least ? _mm256_shuffle_ps(low, high, 0xdd) : _mm256_shuffle_ps(low, high, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(some), 0xd8));
}

/* The terms of eight blocks. */
INLINE __m256 terms(const operands *o, int64_t b)
{
    const __m256 x_scales = _mm256_loadu_ps(o->x_scales + b);
    const __m256 exact = _mm256_cvtepi32_ps(block_sums(o, b));
    if (!o->has_least)
        return _mm256_mul_ps(_mm256_mul_ps(x_scales, read_scales(o->w_scales, o->half_scales, b)),
                             exact);
    const __m256 d = read_every_second(o->w_scales, o->half_scales, b, false);
    const __m256 e = read_every_second(o->w_scales, o->half_scales, b, true);
    const __m256 of_x = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(o->x_sums + b)));
    return _mm256_sub_ps(_mm256_mul_ps(_mm256_mul_ps(x_scales, d), exact),
                         _mm256_mul_ps(_mm256_mul_ps(x_scales, e), of_x));
}

/* The terms of blocks 0 … end - 1, a multiple of the lanes, added up in them. */
INLINE void add_whole(const operands *o, int64_t end, float *lane)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t b = 0; b < end; b += LANES)
        sum = _mm256_add_ps(sum, terms(o, b));
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
    return vaddvq_s32(lane_sums(o, b)) - (counts_8_more(o) ? 8 * o->x_sums[b] : 0);
}

/* The sums of four blocks. */
INLINE int32x4_t block_sums(const operands *o, int64_t b)
{
    const int32x4_t low = vpaddq_s32(lane_sums(o, b), lane_sums(o, b + 1));
    const int32x4_t high = vpaddq_s32(lane_sums(o, b + 2), lane_sums(o, b + 3));
    const int32x4_t sums = vpaddq_s32(low, high);
    return counts_8_more(o) ? vsubq_s32(sums, vshlq_n_s32(vld1q_s32(o->x_sums + b), 3)) : sums;
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
    const float32x4_t x_scales = vld1q_f32(o->x_scales + b);
    const float32x4_t exact = vcvtq_f32_s32(block_sums(o, b));
    if (!o->has_least)
        return vmulq_f32(vmulq_f32(x_scales, read_scales(o->w_scales, o->half_scales, b)), exact);
    const float32x4_t low = read_scales(o->w_scales, o->half_scales, 2 * b);
    const float32x4_t high = read_scales(o->w_scales, o->half_scales, 2 * b + LANES / 2);
    const float32x4_t of_x = vcvtq_f32_s32(vld1q_s32(o->x_sums + b));
    return vsubq_f32(vmulq_f32(vmulq_f32(x_scales, vuzp1q_f32(low, high)), exact),
                     vmulq_f32(vmulq_f32(x_scales, vuzp2q_f32(low, high)), of_x));
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
#ifdef WITH_AVX2
    if (half)
        return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(((const uint16_t *)scales)[at])));
#endif
    return half ? gd_f16_to_f32(((const uint16_t *)scales)[at]) : ((const float *)scales)[at];
}

#if !defined(WITH_AVX2) && !defined(WITH_DOTPROD)
INLINE int32_t block_sum(const operands *o, int64_t b)
{
    const int8_t *x = o->x + b * BLOCK;
    const uint8_t *w = o->w + b * weight_bytes(o->four_bits);
    int32_t sum = counts_8_more(o) ? -8 * o->x_sums[b] : 0;
    for (int i = 0; i < BLOCK / 2 && o->four_bits; i++)
        sum += x[i] * (w[i] & 15) + x[i + BLOCK / 2] * (w[i] >> 4);
    for (int i = 0; i < BLOCK && !o->four_bits; i++)
        sum += x[i] * (int8_t)w[i];
    return sum;
}
#endif

INLINE float term(const operands *o, int64_t b)
{
    const int64_t at = o->has_least ? 2 * b : b;
    const float d = read_scale(o->w_scales, o->half_scales, at);
    const float term = o->x_scales[b] * d * (float)block_sum(o, b);
    if (!o->has_least)
        return term;
    const float e = read_scale(o->w_scales, o->half_scales, at + 1);
    return term - o->x_scales[b] * e * (float)o->x_sums[b];
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

INLINE float add_lanes(const float *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

INLINE float product(const operands *o, int64_t blocks)
{
    const int64_t whole = blocks / LANES * LANES;
    float lane[LANES];
    add_whole(o, whole, lane);
    for (int64_t b = whole; b < blocks; b++)
        lane[b - whole] += term(o, b);
    return add_lanes(lane);
}

/* A column's weights are read once from memory, and from the L1 cache for all rows but the first. */
INLINE void columns(const gd_quantized_rows *x, const gd_quantized_weights *w, bool half_scales,
                    bool four_bits, bool has_least, int64_t begin, int64_t end, float *out,
                    int64_t stride)
{
    const int64_t blocks = x->blocks;
    const int64_t scale_bytes = (half_scales ? 2 : 4) * (has_least ? 2 : 1);
    for (int64_t j = begin; j < end; j++)
        for (int64_t i = 0; i < x->rows; i++) {
            const operands o = { .x = x->values + i * blocks * BLOCK,
                                 .x_scales = x->scales + i * blocks,
                                 .x_sums = x->sums + i * blocks,
                                 .w = w->values + j * blocks * weight_bytes(four_bits),
                                 .w_scales = (const char *)w->scales + j * blocks * scale_bytes,
                                 .half_scales = half_scales,
                                 .four_bits = four_bits,
                                 .has_least = has_least };
            out[i * stride + j] = product(&o, blocks);
        }
}

/* ---- scales of two levels ---- */

enum { LARGE = GD_QUANTIZED_LARGE, GROUPS = GD_QUANTIZED_GROUPS };

#if defined(WITH_AVX2)
typedef __m256 eight;

INLINE __m256 floats_of_bytes(const uint8_t *from)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
}

INLINE __m256i load_eight(const int32_t *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

/* The terms of a large block with groups of 32, a lane each; their scales are bytes from k on.
 * float(k * sum) is float(k) * float(sum), rounded once. */
INLINE eight terms_of_32(const operands *o, const uint8_t *k, float d, float e)
{
    const __m256 scales = _mm256_loadu_ps(o->x_scales);
    const __m256 exact = _mm256_mul_ps(floats_of_bytes(k), _mm256_cvtepi32_ps(block_sums(o, 0)));
    const __m256 all = _mm256_mul_ps(_mm256_mul_ps(scales, _mm256_set1_ps(d)), exact);
    if (!o->has_least)
        return all;
    const __m256 sums = _mm256_cvtepi32_ps(load_eight(o->x_sums));
    const __m256 less = _mm256_mul_ps(floats_of_bytes(k + LANES), sums);
    return _mm256_sub_ps(all, _mm256_mul_ps(_mm256_mul_ps(scales, _mm256_set1_ps(e)), less));
}

#ifdef WITH_VNNI
/* The sums of eight blocks, times the numbers of their groups of 16. */
INLINE __m256i add_groups(__m512i sums, const uint8_t *numbers)
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i bytes = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)numbers), order);
    return add_halves(_mm512_mullo_epi32(sums, _mm512_cvtepi8_epi32(bytes)));
}

/* The same with groups of 16. */
INLINE eight terms_of_16(const operands *o, const uint8_t *k, float d, float e)
{
    const __m512i fours = _mm512_loadu_si512(o->x_sums);
    const __m512i of_x = _mm512_shuffle_i64x2(fours, fours, 0xd8);
    __m512i halves = half_sums(o, 0);
    if (offset_shift(o) >= 0)
        halves = _mm512_sub_epi32(halves, _mm512_slli_epi32(of_x, (unsigned)offset_shift(o)));
    const __m256 exact = _mm256_cvtepi32_ps(add_groups(halves, k));
    const __m256 scales = _mm256_loadu_ps(o->x_scales);
    const __m256 all = _mm256_mul_ps(_mm256_mul_ps(scales, _mm256_set1_ps(d)), exact);
    if (!o->has_least)
        return all;
    const __m256 less = _mm256_cvtepi32_ps(add_groups(of_x, k + GROUPS));
    return _mm256_sub_ps(all, _mm256_mul_ps(_mm256_mul_ps(scales, _mm256_set1_ps(e)), less));
}
#else
/* The sums of two groups in each of eight blocks, times the groups' numbers, added. `low` has the sums of the
 * first 16 of four blocks, then of their last 16, `high` those of the other four. */
INLINE __m256i add_groups(__m256i low, __m256i high, const uint8_t *numbers)
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m128i bytes = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)numbers), order);
    const __m256i of_high = _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8));
    return join_sums(_mm256_mullo_epi32(low, _mm256_cvtepi8_epi32(bytes)),
                     _mm256_mullo_epi32(high, of_high));
}

/* The same with groups of 16. A block's lanes are four of its first group and four of its second. */
INLINE eight terms_of_16(const operands *o, const uint8_t *k, float d, float e)
{
    __m256i lanes[LANES];
    GD_SIMD_UNROLL
    for (int b = 0; b < LANES; b++)
        lanes[b] = lane_sums(o, b);
    __m256i sums = add_groups(sums_of_four(lanes), sums_of_four(lanes + 4), k);
    const __m256i low = load_eight(o->x_sums), high = load_eight(o->x_sums + LANES);
    if (counts_8_more(o))
        sums = _mm256_sub_epi32(sums, _mm256_slli_epi32(add_groups(low, high, k), 3));
    const __m256 scales = _mm256_loadu_ps(o->x_scales);
    const __m256 all =
        _mm256_mul_ps(_mm256_mul_ps(scales, _mm256_set1_ps(d)), _mm256_cvtepi32_ps(sums));
    if (!o->has_least)
        return all;
    const __m256 less = _mm256_cvtepi32_ps(add_groups(low, high, k + GROUPS));
    return _mm256_sub_ps(all, _mm256_mul_ps(_mm256_mul_ps(scales, _mm256_set1_ps(e)), less));
}

#endif

INLINE eight add_eight(eight a, eight b)
{
    return _mm256_add_ps(a, b);
}
#else
typedef struct eight {
    float lane[LANES];
} eight;

/* What a block gives to its lane, of sums that are exact. */
INLINE float term_of_large(const operands *o, int b, float d, float exact, float e, float less)
{
    const float all = o->x_scales[b] * d * exact;
    return o->has_least ? all - o->x_scales[b] * e * less : all;
}

/* The terms of a large block with groups of 32, a lane each; their scales are bytes from k on.
 * float(k * sum) is float(k) * float(sum), rounded once. */
INLINE eight terms_of_32(const operands *o, const uint8_t *k, float d, float e)
{
    eight r;
#ifdef WITH_DOTPROD
    vst1q_f32(r.lane, vcvtq_f32_s32(block_sums(o, 0)));
    vst1q_f32(r.lane + LANES / 2, vcvtq_f32_s32(block_sums(o, LANES / 2)));
#else
    for (int b = 0; b < LANES; b++)
        r.lane[b] = (float)block_sum(o, b);
#endif
    for (int b = 0; b < LANES; b++) {
        const float less = o->has_least ? (float)(int8_t)k[LANES + b] * (float)o->x_sums[b] : 0;
        r.lane[b] = term_of_large(o, b, d, (float)(int8_t)k[b] * r.lane[b], e, less);
    }
    return r;
}

/* The products of two groups of a block of x and weights. */
INLINE void sum_groups(const operands *o, int b, int32_t sums[2])
{
    const int8_t *x = o->x + b * BLOCK;
    const uint8_t *w = o->w + b * weight_bytes(o->four_bits);
    sums[0] = sums[1] = 0;
    for (int i = 0; i < BLOCK / 2 && o->four_bits; i++) {
        sums[0] += x[i] * (w[i] & 15);
        sums[1] += x[i + BLOCK / 2] * (w[i] >> 4);
    }
    for (int i = 0; i < BLOCK / 2 && !o->four_bits; i++) {
        sums[0] += x[i] * (int8_t)w[i];
        sums[1] += x[i + BLOCK / 2] * (int8_t)w[i + BLOCK / 2];
    }
}

/* The same with groups of 16. */
INLINE eight terms_of_16(const operands *o, const uint8_t *k, float d, float e)
{
    eight r;
    for (int b = 0; b < LANES; b++) {
        const int8_t *scales = (const int8_t *)k + 2 * b, *least = scales + GROUPS;
        const int32_t *x_sums = o->x_sums + b / 4 * 8 + b % 4; /* and four further */
        int32_t sums[2];
        sum_groups(o, b, sums);
        if (counts_8_more(o)) {
            sums[0] -= 8 * x_sums[0];
            sums[1] -= 8 * x_sums[4];
        }
        const float exact = (float)(sums[0] * scales[0] + sums[1] * scales[1]);
        const float less = o->has_least ? (float)(x_sums[0] * least[0] + x_sums[4] * least[1]) : 0;
        r.lane[b] = term_of_large(o, b, d, exact, e, less);
    }
    return r;
}

INLINE eight add_eight(eight a, eight b)
{
    for (int l = 0; l < LANES; l++)
        a.lane[l] += b.lane[l];
    return a;
}
#endif

/* A row of x times one of weights, whose values and scales begin at o->w and o->w_scales. */
INLINE float product_of_large(const operands *row, const gd_quantized_form *form, bool of_32,
                              int64_t count)
{
    const int sums = gd_quantized_sums_of(form);
    operands o = *row;
    eight sum;
    float lane[LANES];
    memset(&sum, 0, sizeof sum);
    for (int64_t n = 0; n < count; n++) {
        const uint8_t *k = o.w + form->numbers;
        const float d = read_scale(o.w_scales, o.half_scales, n * form->scales);
        const float e =
            o.has_least ? read_scale(o.w_scales, o.half_scales, n * form->scales + 1) : 0;
        sum = add_eight(sum, of_32 ? terms_of_32(&o, k, d, e) : terms_of_16(&o, k, d, e));
        o.x += LARGE;
        o.x_scales += LANES;
        o.x_sums += sums * LANES;
        o.w += form->bytes;
    }
    memcpy(lane, &sum, sizeof lane);
    return add_lanes(lane);
}

INLINE void columns_of_large(const gd_quantized_rows *x, const gd_quantized_weights *w, bool of_32,
                             bool four_bits, bool has_least, int64_t begin, int64_t end, float *out,
                             int64_t stride)
{
    const gd_quantized_form form =
        gd_quantized_form_make(four_bits, of_32 ? LANES : GROUPS, has_least);
    const int64_t blocks = x->blocks, large = blocks / LANES;
    const int64_t scale_bytes = form.scales * (w->half_scales ? 2 : 4);
    for (int64_t j = begin; j < end; j++)
        for (int64_t i = 0; i < x->rows; i++) {
            const operands o = { .x = x->values + i * blocks * BLOCK,
                                 .x_scales = x->scales + i * blocks,
                                 .x_sums = x->sums + i * blocks * x->sums_of_block,
                                 .w = w->values + j * large * form.bytes,
                                 .w_scales = (const char *)w->scales + j * large * scale_bytes,
                                 .half_scales = w->half_scales,
                                 .four_bits = four_bits,
                                 .has_least = has_least };
            out[i * stride + j] = product_of_large(&o, &form, of_32, large);
        }
}

INLINE void columns_of(const gd_quantized_rows *x, const gd_quantized_weights *w, bool four_bits,
                       bool has_least, int64_t begin, int64_t end, float *out, int64_t stride)
{
    if (w->form.groups == GROUPS)
        columns_of_large(x, w, false, four_bits, has_least, begin, end, out, stride);
    else if (w->form.groups)
        columns_of_large(x, w, true, four_bits, has_least, begin, end, out, stride);
    else if (w->half_scales)
        columns(x, w, true, four_bits, has_least, begin, end, out, stride);
    else
        columns(x, w, false, four_bits, has_least, begin, end, out, stride);
}

void NAME(gd_quantized_columns)(const gd_quantized_rows *x, const gd_quantized_weights *w,
                                int64_t begin, int64_t end, float *out, int64_t stride)
{
    if (w->form.four_bits && w->form.has_least)
        columns_of(x, w, true, true, begin, end, out, stride);
    else if (w->form.four_bits)
        columns_of(x, w, true, false, begin, end, out, stride);
    else if (w->form.has_least)
        columns_of(x, w, false, true, begin, end, out, stride);
    else
        columns_of(x, w, false, false, begin, end, out, stride);
}

#include "backend/cpu/quantized_blocked.h"
