/* backend/cpu/simd_half.h: vectors of f32 read from f16 and bf16, which f32 holds exactly, and with
 * AVX2 or AVX-512 (GD_SIMD_STORES_HALVES) rounded to them as base/half.h does:
 *     vf32_load_f16, vf32_load_bf16(p)                VF32_LANES halves
 *     vf32_load_first_f16, vf32_load_first_bf16(p, n) the first n, 0 <= n <= lanes; the others are 0, and
 *                                                     nothing beyond them is touched
 *     vf32_store_f16, vf32_store_bf16(p, x)           to nearest even
 */
#ifndef GD_BACKEND_CPU_SIMD_HALF_H
#define GD_BACKEND_CPU_SIMD_HALF_H

#include "backend/cpu/simd.h"
#include "base/half.h"

#if defined(GD_ISA_AVX512_BUILD)

GD_SIMD_INLINE vf32 vf32_of_bf16(__m256i halves)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

GD_SIMD_INLINE vf32 vf32_load_bf16(const uint16_t *p)
{
    return vf32_of_bf16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

GD_SIMD_INLINE vf32 vf32_load_first_bf16(const uint16_t *p, int64_t count)
{
    return vf32_of_bf16(_mm256_maskz_loadu_epi16(vf32_mask_first(count), p));
}

GD_SIMD_INLINE vf32 vf32_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

#define GD_SIMD_STORES_HALVES 1

/* VCVTNEPS2BF16 would count numbers below 2^-126 as 0. */
GD_SIMD_INLINE void vf32_store_bf16(uint16_t *p, vf32 x)
{
    const __m512i bits = _mm512_castps_si512(x), below = _mm512_set1_epi32(0x7fff);
    const __mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const __m512i up = _mm512_add_epi32(bits, below);
    const __m512i rounded = _mm512_mask_sub_epi32(up, is_odd, up, _mm512_set1_epi32(-1));
    const __m512i whole = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                               bits, _mm512_set1_epi32(0x400000));
    const __m512i upper = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 31, 29,
                                           27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper, whole)));
}

/* A NaN keeps its sign alone. */
GD_SIMD_INLINE void vf32_store_f16(uint16_t *p, vf32 x)
{
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN));
    const __m512i nan = _mm512_or_si512(sign, _mm512_set1_epi32(0x7fc00000));
    x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_castsi512_ps(nan));
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

GD_SIMD_INLINE vf32 vf32_load_first_f16(const uint16_t *p, int64_t count)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vf32_mask_first(count), p));
}

#else

#if defined(GD_ISA_AVX2_BUILD)

GD_SIMD_INLINE vf32 vf32_load_bf16(const uint16_t *p)
{
    const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

GD_SIMD_INLINE vf32 vf32_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

#define GD_SIMD_STORES_HALVES 1

/* Compilers make twice as many instructions of gd_f32_to_bf16. */
GD_SIMD_INLINE void vf32_store_bf16(uint16_t *p, vf32 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i whole = _mm256_castps_si256(_mm256_blendv_ps(
        _mm256_castsi256_ps(rounded), _mm256_castsi256_ps(nan), _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    const __m256i words = _mm256_srli_epi32(whole, 16);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi32(_mm256_castsi256_si128(words),
                                                            _mm256_extracti128_si256(words, 1)));
}

/* A NaN keeps its sign alone. */
GD_SIMD_INLINE void vf32_store_f16(uint16_t *p, vf32 x)
{
    const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
    const __m256 nan = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));
    x = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#elif defined(__aarch64__) && !defined(GD_SIMD_SCALAR)

GD_SIMD_INLINE vf32 vf32_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

GD_SIMD_INLINE vf32 vf32_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

#else

GD_SIMD_INLINE vf32 vf32_load_bf16(const uint16_t *p)
{
    float lanes[VF32_LANES];
    for (int i = 0; i < VF32_LANES; i++)
        lanes[i] = gd_bf16_to_f32(p[i]);
    return vf32_load(lanes);
}

GD_SIMD_INLINE vf32 vf32_load_f16(const uint16_t *p)
{
    float lanes[VF32_LANES];
    for (int i = 0; i < VF32_LANES; i++)
        lanes[i] = gd_f16_to_f32(p[i]);
    return vf32_load(lanes);
}

#endif

#define GD_SIMD_LOAD_FIRST(half)                                                 \
    GD_SIMD_INLINE vf32 vf32_load_first_##half(const uint16_t *p, int64_t count) \
    {                                                                            \
        uint16_t lanes[VF32_LANES] = { 0 };                                      \
        for (int64_t i = 0; i < count; i++)                                      \
            lanes[i] = p[i];                                                     \
        return vf32_load_##half(lanes);                                          \
    }
GD_SIMD_LOAD_FIRST(bf16)
GD_SIMD_LOAD_FIRST(f16)

#endif

#endif
