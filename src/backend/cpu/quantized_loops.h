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
        for (int i = 0; i < BLOCK / 2 && to->sums; i++) {
            first += values[i];
            second += values[i + BLOCK / 2];
        }
        if (to->sums && to->sums_of_block == 1)
            to->sums[b] = first + second;
        else if (to->sums) {
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

INLINE bool too_large(const operands *o)
{
    return o->four_bits && !o->has_least;
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
    return _mm_cvtsi128_si32(sum) - (too_large(o) ? 8 * o->x_sums[b] : 0);
}

/* The sums of eight blocks. */
INLINE __m256i block_sums(const operands *o, int64_t b)
{
    __m256i lanes[LANES];
    GD_SIMD_UNROLL
    for (int l = 0; l < LANES; l++)
        lanes[l] = lane_sums(o, b + l);
    const __m256i sums = join_sums(sums_of_four(lanes), sums_of_four(lanes + 4));
    if (!too_large(o))
        return sums;
    const __m256i of_x = _mm256_loadu_si256((const __m256i *)(o->x_sums + b));
    return _mm256_sub_epi32(sums, _mm256_slli_epi32(of_x, 3));
}

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
    const __m256 some = least ? _mm256_shuffle_ps(low, high, 0xdd) : _mm256_shuffle_ps(low, high, 0x88);
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
    return vaddvq_s32(lane_sums(o, b)) - (too_large(o) ? 8 * o->x_sums[b] : 0);
}

/* The sums of four blocks. */
INLINE int32x4_t block_sums(const operands *o, int64_t b)
{
    const int32x4_t low = vpaddq_s32(lane_sums(o, b), lane_sums(o, b + 1));
    const int32x4_t high = vpaddq_s32(lane_sums(o, b + 2), lane_sums(o, b + 3));
    const int32x4_t sums = vpaddq_s32(low, high);
    return too_large(o) ? vsubq_s32(sums, vshlq_n_s32(vld1q_s32(o->x_sums + b), 3)) : sums;
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
    int32_t sum = too_large(o) ? -8 * o->x_sums[b] : 0;
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
                    bool four_bits, bool has_least, int64_t begin, int64_t end, float *out,
                    int64_t stride)
{
    const int64_t blocks = x->blocks;
    const int64_t scale_bytes = (half_scales ? 2 : 4) * (has_least ? 2 : 1);
    for (int64_t j = begin; j < end; j++)
        for (int64_t i = 0; i < x->rows; i++) {
            const operands o = { .x = x->values + i * blocks * BLOCK,
                                 .x_scales = x->scales + i * blocks,
                                 .x_sums = four_bits || has_least ? x->sums + i * blocks : NULL,
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

/* What the groups of a large block have, in the order in which sums come: those of the first 16 of four
 * blocks, of their last 16, and so of the other four. Groups of 32 count twice. */
typedef struct group_numbers {
    int32_t scales[GROUPS], least[GROUPS];
} group_numbers;

INLINE void read_groups(const uint8_t *from, int groups, int32_t *to)
{
#if defined(WITH_AVX2)
    const bool all = groups == GROUPS;
    const __m128i bytes =
        all ? _mm_loadu_si128((const __m128i *)from) : _mm_loadl_epi64((const __m128i *)from);
    const __m128i order = all ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                              : _mm_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7);
    const __m128i ordered = _mm_shuffle_epi8(bytes, order);
    _mm256_storeu_si256((__m256i *)to, _mm256_cvtepi8_epi32(ordered));
    _mm256_storeu_si256((__m256i *)(to + 8), _mm256_cvtepi8_epi32(_mm_srli_si128(ordered, 8)));
#else
    for (int i = 0; i < GROUPS; i++) {
        const int block = i / 8 * 4 + i % 4, second = i / 4 % 2;
        to[i] = (int8_t)from[(2 * block + second) * groups / GROUPS];
    }
#endif
}

#if defined(WITH_AVX2)
INLINE __m256i load_eight(const int32_t *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

/* For each of eight blocks: the sums of x over its two groups, times their numbers, added. */
INLINE __m256i sums_of_groups(const int32_t *x_sums, const int32_t *numbers)
{
    return join_sums(_mm256_mullo_epi32(load_eight(x_sums), load_eight(numbers)),
                     _mm256_mullo_epi32(load_eight(x_sums + 8), load_eight(numbers + 8)));
}

/* Add the terms of a large block, one in each lane. A block's lanes are four of its first group and four
 * of its second. */
INLINE void add_large(const operands *o, const group_numbers *g, float d, float e, float *lane)
{
    __m256i lanes[LANES];
    GD_SIMD_UNROLL
    for (int b = 0; b < LANES; b++)
        lanes[b] = lane_sums(o, b);
    const __m256i low = _mm256_mullo_epi32(sums_of_four(lanes), load_eight(g->scales));
    const __m256i high = _mm256_mullo_epi32(sums_of_four(lanes + 4), load_eight(g->scales + 8));
    __m256i sums = join_sums(low, high);
    if (too_large(o))
        sums = _mm256_sub_epi32(sums, _mm256_slli_epi32(sums_of_groups(o->x_sums, g->scales), 3));
    const __m256 scales = _mm256_loadu_ps(o->x_scales);
    __m256 term = _mm256_mul_ps(_mm256_mul_ps(scales, _mm256_set1_ps(d)), _mm256_cvtepi32_ps(sums));
    if (o->has_least) {
        const __m256 less = _mm256_cvtepi32_ps(sums_of_groups(o->x_sums, g->least));
        term = _mm256_sub_ps(term, _mm256_mul_ps(_mm256_mul_ps(scales, _mm256_set1_ps(e)), less));
    }
    _mm256_storeu_ps(lane, _mm256_add_ps(_mm256_loadu_ps(lane), term));
}
#else
/* Of block b: the sums of its two groups, times their numbers, added. */
INLINE int32_t sum_of_groups(const int32_t *sums, const int32_t *numbers, int b)
{
    const int at = b / 4 * 8 + b % 4;
    return sums[at] * numbers[at] + sums[at + 4] * numbers[at + 4];
}

INLINE void sum_block(const operands *o, int b, int32_t *sums)
{
    const int8_t *x = o->x + b * BLOCK;
    const uint8_t *w = o->w + b * weight_bytes(o->four_bits);
    int32_t first = 0, second = 0;
    for (int i = 0; i < BLOCK / 2 && o->four_bits; i++) {
        first += x[i] * (w[i] & 15);
        second += x[i + BLOCK / 2] * (w[i] >> 4);
    }
    for (int i = 0; i < BLOCK / 2 && !o->four_bits; i++) {
        first += x[i] * (int8_t)w[i];
        second += x[i + BLOCK / 2] * (int8_t)w[i + BLOCK / 2];
    }
    sums[b / 4 * 8 + b % 4] = first;
    sums[b / 4 * 8 + b % 4 + 4] = second;
}

/* Add the terms of a large block, one in each lane. */
INLINE void add_large(const operands *o, const group_numbers *g, float d, float e, float *lane)
{
    int32_t sums[GROUPS];
    for (int b = 0; b < LANES; b++)
        sum_block(o, b, sums);
    for (int b = 0; b < LANES; b++) {
        int32_t sum = sum_of_groups(sums, g->scales, b);
        if (too_large(o))
            sum -= 8 * sum_of_groups(o->x_sums, g->scales, b);
        float term = o->x_scales[b] * d * (float)sum;
        if (o->has_least)
            term -= o->x_scales[b] * e * (float)sum_of_groups(o->x_sums, g->least, b);
        lane[b] += term;
    }
}
#endif

/* The groups' numbers of a large block are read once for as many rows as these. */
enum { ROWS_AT_ONCE = 4 };

INLINE void columns_in_groups(const gd_quantized_rows *x, const gd_quantized_weights *w,
                              bool four_bits, bool has_least, int64_t begin, int64_t end,
                              float *out, int64_t stride)
{
    const gd_quantized_form form = w->form;
    const int64_t large = x->blocks / LANES;
    for (int64_t j = begin; j < end; j++)
        for (int64_t row = 0; row < x->rows; row += ROWS_AT_ONCE) {
            const int rows = (int)(x->rows - row < ROWS_AT_ONCE ? x->rows - row : ROWS_AT_ONCE);
            float lane[ROWS_AT_ONCE][LANES] = { { 0 } };
            for (int64_t n = 0; n < large; n++) {
                const uint8_t *block = w->values + (j * large + n) * form.bytes;
                const int64_t scale = (j * large + n) * form.scales;
                group_numbers g;
                read_groups(block + form.numbers, form.groups, g.scales);
                if (has_least)
                    read_groups(block + form.numbers + form.groups, form.groups, g.least);
                const float d = read_scale(w->scales, w->half_scales, scale);
                const float e = has_least ? read_scale(w->scales, w->half_scales, scale + 1) : 0;
                for (int i = 0; i < rows; i++) {
                    const int64_t at = (row + i) * x->blocks + n * LANES;
                    const operands o = { .x = x->values + at * BLOCK,
                                         .x_scales = x->scales + at,
                                         .x_sums = x->sums + 2 * at,
                                         .w = block,
                                         .four_bits = four_bits,
                                         .has_least = has_least };
                    add_large(&o, &g, d, e, lane[i]);
                }
            }
            for (int i = 0; i < rows; i++)
                out[(row + i) * stride + j] =
                    ((lane[i][0] + lane[i][4]) + (lane[i][2] + lane[i][6])) +
                    ((lane[i][1] + lane[i][5]) + (lane[i][3] + lane[i][7]));
        }
}

INLINE void columns_of(const gd_quantized_rows *x, const gd_quantized_weights *w, bool four_bits,
                       bool has_least, int64_t begin, int64_t end, float *out, int64_t stride)
{
    if (w->form.groups)
        columns_in_groups(x, w, four_bits, has_least, begin, end, out, stride);
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
