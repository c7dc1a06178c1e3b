/* backend/cpu/simd_half.h: vectors of f32 read from f16 and bf16, which f32 holds exactly:
 *     vf32_load_f16, vf32_load_bf16(p)                VF32_LANES halves
 *     vf32_load_first_f16, vf32_load_first_bf16(p, n) the first n, 0 <= n <= lanes; the others are 0, and
 *                                                     nothing beyond them is touched
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

#define GD_SIMD_LOAD_FIRST(half)                                                       \
    GD_SIMD_INLINE vf32 vf32_load_first_##half(const uint16_t *p, int64_t count)       \
    {                                                                                  \
        uint16_t lanes[VF32_LANES] = { 0 };                                            \
        for (int64_t i = 0; i < count; i++)                                            \
            lanes[i] = p[i];                                                           \
        return vf32_load_##half(lanes);                                                \
    }
GD_SIMD_LOAD_FIRST(bf16)
GD_SIMD_LOAD_FIRST(f16)

#endif

#endif
