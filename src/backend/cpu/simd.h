/* backend/cpu/simd.h: one vector of floats and one of doubles, as wide as the instruction set this
 * file is compiled for, with the few operations the matrix product needs. It is a spelling of
 * intrinsics, not a portable vector library. Only for …_isa.c files (see isa.h). Everything is
 * static.
 *
 * For T in {f32, f64}:
 *     vT, VT_LANES                  the vector and how many numbers it holds
 *     vT_zero, vT_set1, vT_load, vT_store, vT_add, vT_mul
 *     vT_max(a, b)                  a > b ? a : b, so b if either is NaN
 *     vT_fma(a, b, c)               a*b + c: one rounding; on baseline x86-64 both steps round
 *     vT_relu(x)                    x < 0 ? 0 : x, so NaN stays NaN and -0 stays -0
 *     vT_mask, vT_mask_first(n)     the first n lanes, 0 <= n <= lanes
 *     vT_load_masked, vT_store_masked   touch no memory beyond the mask; the other lanes load as 0
 *     vf32_load_over(x, mask, p)    x, but for the lanes of the mask, which are loaded
 *     vf32_load_even, vf32_store_even   lane i, of the first `count`, is p[2 i]; nothing else is
 *                                       touched, 0 < count <= lanes
 *     vT_transpose(r)               r[i][j] <-> r[j][i] over a square of VT_LANES vectors
 *
 * GD_SIMD_MASK_FREE is 1 where masked loads and stores cost no more than plain ones, GD_SIMD_FUSED
 * is 1 where vT_fma rounds once.
 */
#ifndef GD_BACKEND_CPU_SIMD_H
#define GD_BACKEND_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#define GD_SIMD_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define GD_SIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GD_SIMD_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(GD_ISA_AVX512_BUILD)
#include <immintrin.h>

#define GD_SIMD_MASK_FREE 1
#define GD_SIMD_FUSED     1
#define VF32_LANES        16
#define VF64_LANES        8
typedef __m512 vf32;
typedef __m512d vf64;
typedef __mmask16 vf32_mask;
typedef __mmask8 vf64_mask;

#define GD_SIMD_DEFINE(T, REAL, SUFFIX)                                        \
    GD_SIMD_INLINE v##T v##T##_zero(void)                                      \
    {                                                                          \
        return _mm512_setzero_##SUFFIX();                                      \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_set1(REAL x)                                    \
    {                                                                          \
        return _mm512_set1_##SUFFIX(x);                                        \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_load(const REAL *p)                             \
    {                                                                          \
        return _mm512_loadu_##SUFFIX(p);                                       \
    }                                                                          \
    GD_SIMD_INLINE void v##T##_store(REAL *p, v##T x)                          \
    {                                                                          \
        _mm512_storeu_##SUFFIX(p, x);                                          \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_add(v##T a, v##T b)                             \
    {                                                                          \
        return _mm512_add_##SUFFIX(a, b);                                      \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_mul(v##T a, v##T b)                             \
    {                                                                          \
        return _mm512_mul_##SUFFIX(a, b);                                      \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_max(v##T a, v##T b)                             \
    {                                                                          \
        return _mm512_max_##SUFFIX(a, b);                                      \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_fma(v##T a, v##T b, v##T c)                     \
    {                                                                          \
        return _mm512_fmadd_##SUFFIX(a, b, c);                                 \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_relu(v##T x)                                    \
    {                                                                          \
        return _mm512_max_##SUFFIX(_mm512_setzero_##SUFFIX(), x);              \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_load_masked(v##T##_mask mask, const REAL *p)    \
    {                                                                          \
        return _mm512_maskz_loadu_##SUFFIX(mask, p);                           \
    }                                                                          \
    GD_SIMD_INLINE void v##T##_store_masked(REAL *p, v##T##_mask mask, v##T x) \
    {                                                                          \
        _mm512_mask_storeu_##SUFFIX(p, mask, x);                               \
    }
GD_SIMD_DEFINE(f32, float, ps)
GD_SIMD_DEFINE(f64, double, pd)

GD_SIMD_INLINE vf32_mask vf32_mask_first(int64_t count)
{
    return (vf32_mask)((1u << count) - 1u);
}

GD_SIMD_INLINE vf64_mask vf64_mask_first(int64_t count)
{
    return (vf64_mask)((1u << count) - 1u);
}

GD_SIMD_INLINE vf32 vf32_load_over(vf32 x, vf32_mask mask, const float *p)
{
    return _mm512_mask_loadu_ps(x, mask, p);
}

GD_SIMD_INLINE vf32 vf32_load_even(const float *p, int64_t count)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const uint32_t mask = (uint32_t)(((uint64_t)1 << 2 * count >> 1) - 1);
    return _mm512_permutex2var_ps(_mm512_maskz_loadu_ps((vf32_mask)mask, p), even,
                                  _mm512_maskz_loadu_ps((vf32_mask)(mask >> 16), p + 16));
}

GD_SIMD_INLINE void vf32_store_even(float *p, int64_t count, vf32 x)
{
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const uint32_t mask = (uint32_t)(((uint64_t)1 << 2 * count) - 1) & 0x55555555u;
    _mm512_mask_storeu_ps(p, (vf32_mask)mask, _mm512_permutexvar_ps(low, x));
    _mm512_mask_storeu_ps(p + 16, (vf32_mask)(mask >> 16), _mm512_permutexvar_ps(high, x));
}

GD_SIMD_INLINE void vf32_transpose(vf32 r[16])
{
    vf32 t[16];
    GD_SIMD_UNROLL
    for (int i = 0; i < 16; i += 4) { /* 4x4 blocks within each 128-bit lane */
        vf32 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        vf32 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xEE);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xEE);
    }
    GD_SIMD_UNROLL
    for (int i = 0; i < 4; i++) { /* then the lanes themselves, as a 4x4 of lanes */
        vf32 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        vf32 b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xDD);
        vf32 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        vf32 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xDD);
        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xDD);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xDD);
    }
}

GD_SIMD_INLINE void vf64_transpose(vf64 r[8])
{
    vf64 t[8];
    GD_SIMD_UNROLL
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
    }
    GD_SIMD_UNROLL
    for (int i = 0; i < 2; i++) {
        vf64 a = _mm512_shuffle_f64x2(t[i], t[i + 2], 0x88);
        vf64 b = _mm512_shuffle_f64x2(t[i], t[i + 2], 0xDD);
        vf64 c = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0x88);
        vf64 d = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0xDD);
        r[i] = _mm512_shuffle_f64x2(a, c, 0x88);
        r[i + 2] = _mm512_shuffle_f64x2(b, d, 0x88);
        r[i + 4] = _mm512_shuffle_f64x2(a, c, 0xDD);
        r[i + 6] = _mm512_shuffle_f64x2(b, d, 0xDD);
    }
}

#elif defined(GD_ISA_AVX2_BUILD)
#include <immintrin.h>

#define GD_SIMD_MASK_FREE 0
#define GD_SIMD_FUSED     1
#define VF32_LANES        8
#define VF64_LANES        4
typedef __m256 vf32;
typedef __m256d vf64;
typedef __m256i vf32_mask;
typedef __m256i vf64_mask;

#define GD_SIMD_DEFINE(T, REAL, SUFFIX)                                        \
    GD_SIMD_INLINE v##T v##T##_zero(void)                                      \
    {                                                                          \
        return _mm256_setzero_##SUFFIX();                                      \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_set1(REAL x)                                    \
    {                                                                          \
        return _mm256_set1_##SUFFIX(x);                                        \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_load(const REAL *p)                             \
    {                                                                          \
        return _mm256_loadu_##SUFFIX(p);                                       \
    }                                                                          \
    GD_SIMD_INLINE void v##T##_store(REAL *p, v##T x)                          \
    {                                                                          \
        _mm256_storeu_##SUFFIX(p, x);                                          \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_add(v##T a, v##T b)                             \
    {                                                                          \
        return _mm256_add_##SUFFIX(a, b);                                      \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_mul(v##T a, v##T b)                             \
    {                                                                          \
        return _mm256_mul_##SUFFIX(a, b);                                      \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_max(v##T a, v##T b)                             \
    {                                                                          \
        return _mm256_max_##SUFFIX(a, b);                                      \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_fma(v##T a, v##T b, v##T c)                     \
    {                                                                          \
        return _mm256_fmadd_##SUFFIX(a, b, c);                                 \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_relu(v##T x)                                    \
    {                                                                          \
        return _mm256_max_##SUFFIX(_mm256_setzero_##SUFFIX(), x);              \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_load_masked(v##T##_mask mask, const REAL *p)    \
    {                                                                          \
        return _mm256_maskload_##SUFFIX(p, mask);                              \
    }                                                                          \
    GD_SIMD_INLINE void v##T##_store_masked(REAL *p, v##T##_mask mask, v##T x) \
    {                                                                          \
        _mm256_maskstore_##SUFFIX(p, mask, x);                                 \
    }
GD_SIMD_DEFINE(f32, float, ps)
GD_SIMD_DEFINE(f64, double, pd)

GD_SIMD_INLINE vf32_mask vf32_mask_first(int64_t count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

GD_SIMD_INLINE vf64_mask vf64_mask_first(int64_t count)
{
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}

GD_SIMD_INLINE void vf32_transpose(vf32 r[8])
{
    vf32 t[8];
    GD_SIMD_UNROLL
    for (int i = 0; i < 8; i += 4) {
        vf32 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        vf32 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xEE);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xEE);
    }
    GD_SIMD_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

GD_SIMD_INLINE void vf64_transpose(vf64 r[4])
{
    vf64 a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
    vf64 c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
    r[0] = _mm256_permute2f128_pd(a, c, 0x20);
    r[1] = _mm256_permute2f128_pd(b, d, 0x20);
    r[2] = _mm256_permute2f128_pd(a, c, 0x31);
    r[3] = _mm256_permute2f128_pd(b, d, 0x31);
}

#else /* 128 bits or a single number: no masked access, so the tail goes through a small buffer */

#define GD_SIMD_MASK_FREE 0
#define GD_SIMD_DEFINE_MASKS(T, REAL, LANES)                                   \
    typedef int v##T##_mask;                                                   \
    GD_SIMD_INLINE v##T##_mask v##T##_mask_first(int64_t count)                \
    {                                                                          \
        return (v##T##_mask)count;                                             \
    }                                                                          \
    GD_SIMD_INLINE v##T v##T##_load_masked(v##T##_mask mask, const REAL *p)    \
    {                                                                          \
        REAL lanes[LANES] = { 0 };                                             \
        for (int i = 0; i < mask; i++)                                         \
            lanes[i] = p[i];                                                   \
        return v##T##_load(lanes);                                             \
    }                                                                          \
    GD_SIMD_INLINE void v##T##_store_masked(REAL *p, v##T##_mask mask, v##T x) \
    {                                                                          \
        REAL lanes[LANES];                                                     \
        v##T##_store(lanes, x);                                                \
        for (int i = 0; i < mask; i++)                                         \
            p[i] = lanes[i];                                                   \
    }

#if defined(__aarch64__) && !defined(GD_SIMD_SCALAR)
#include <arm_neon.h>

#define GD_SIMD_FUSED 1
#define VF32_LANES    4
#define VF64_LANES    2
typedef float32x4_t vf32;
typedef float64x2_t vf64;

#define GD_SIMD_DEFINE(T, REAL, SUFFIX, BITS)                                                \
    GD_SIMD_INLINE v##T v##T##_zero(void)                                                    \
    {                                                                                        \
        return vdupq_n_##SUFFIX((REAL)0);                                                    \
    }                                                                                        \
    GD_SIMD_INLINE v##T v##T##_set1(REAL x)                                                  \
    {                                                                                        \
        return vdupq_n_##SUFFIX(x);                                                          \
    }                                                                                        \
    GD_SIMD_INLINE v##T v##T##_load(const REAL *p)                                           \
    {                                                                                        \
        return vld1q_##SUFFIX(p);                                                            \
    }                                                                                        \
    GD_SIMD_INLINE void v##T##_store(REAL *p, v##T x)                                        \
    {                                                                                        \
        vst1q_##SUFFIX(p, x);                                                                \
    }                                                                                        \
    GD_SIMD_INLINE v##T v##T##_add(v##T a, v##T b)                                           \
    {                                                                                        \
        return vaddq_##SUFFIX(a, b);                                                         \
    }                                                                                        \
    GD_SIMD_INLINE v##T v##T##_mul(v##T a, v##T b)                                           \
    {                                                                                        \
        return vmulq_##SUFFIX(a, b);                                                         \
    }                                                                                        \
    GD_SIMD_INLINE v##T v##T##_max(v##T a, v##T b)                                           \
    {                                                                                        \
        return vbslq_##SUFFIX(vcgtq_##SUFFIX(a, b), a, b);                                   \
    }                                                                                        \
    GD_SIMD_INLINE v##T v##T##_fma(v##T a, v##T b, v##T c)                                   \
    {                                                                                        \
        return vfmaq_##SUFFIX(c, a, b);                                                      \
    }                                                                                        \
    GD_SIMD_INLINE v##T v##T##_relu(v##T x)                                                  \
    {                                                                                        \
        uint##BITS negative = vcltzq_##SUFFIX(x);                                            \
        __asm__("" : "+w"(negative)); /* lest clang make it a maximum, which is +0 for -0 */ \
        return vbslq_##SUFFIX(negative, vdupq_n_##SUFFIX((REAL)0), x);                       \
    }
GD_SIMD_DEFINE(f32, float, f32, 32x4_t)
GD_SIMD_DEFINE(f64, double, f64, 64x2_t)

GD_SIMD_INLINE void vf32_transpose(vf32 r[4])
{
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
    float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
    float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

GD_SIMD_INLINE void vf64_transpose(vf64 r[2])
{
    vf64 a = r[0], b = r[1];
    r[0] = vtrn1q_f64(a, b);
    r[1] = vtrn2q_f64(a, b);
}

#elif defined(__SSE2__) && !defined(GD_SIMD_SCALAR)
#include <emmintrin.h>

#define GD_SIMD_FUSED 0
#define VF32_LANES    4
#define VF64_LANES    2
typedef __m128 vf32;
typedef __m128d vf64;

#define GD_SIMD_DEFINE(T, REAL, SUFFIX)                     \
    GD_SIMD_INLINE v##T v##T##_zero(void)                   \
    {                                                       \
        return _mm_setzero_##SUFFIX();                      \
    }                                                       \
    GD_SIMD_INLINE v##T v##T##_set1(REAL x)                 \
    {                                                       \
        return _mm_set1_##SUFFIX(x);                        \
    }                                                       \
    GD_SIMD_INLINE v##T v##T##_load(const REAL *p)          \
    {                                                       \
        return _mm_loadu_##SUFFIX(p);                       \
    }                                                       \
    GD_SIMD_INLINE void v##T##_store(REAL *p, v##T x)       \
    {                                                       \
        _mm_storeu_##SUFFIX(p, x);                          \
    }                                                       \
    GD_SIMD_INLINE v##T v##T##_add(v##T a, v##T b)          \
    {                                                       \
        return _mm_add_##SUFFIX(a, b);                      \
    }                                                       \
    GD_SIMD_INLINE v##T v##T##_mul(v##T a, v##T b)          \
    {                                                       \
        return _mm_mul_##SUFFIX(a, b);                      \
    }                                                       \
    GD_SIMD_INLINE v##T v##T##_max(v##T a, v##T b)          \
    {                                                       \
        return _mm_max_##SUFFIX(a, b);                      \
    }                                                       \
    GD_SIMD_INLINE v##T v##T##_fma(v##T a, v##T b, v##T c)  \
    {                                                       \
        return _mm_add_##SUFFIX(_mm_mul_##SUFFIX(a, b), c); \
    }                                                       \
    GD_SIMD_INLINE v##T v##T##_relu(v##T x)                 \
    {                                                       \
        return _mm_max_##SUFFIX(_mm_setzero_##SUFFIX(), x); \
    }
GD_SIMD_DEFINE(f32, float, ps)
GD_SIMD_DEFINE(f64, double, pd)

GD_SIMD_INLINE void vf32_transpose(vf32 r[4])
{
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
}

GD_SIMD_INLINE void vf64_transpose(vf64 r[2])
{
    vf64 a = r[0], b = r[1];
    r[0] = _mm_unpacklo_pd(a, b);
    r[1] = _mm_unpackhi_pd(a, b);
}

#else /* a machine we have no intrinsics for: vectors of one number */

#define GD_SIMD_FUSED 0
#define VF32_LANES    1
#define VF64_LANES    1
typedef float vf32;
typedef double vf64;

#define GD_SIMD_DEFINE(T, REAL)                            \
    GD_SIMD_INLINE v##T v##T##_zero(void)                  \
    {                                                      \
        return (REAL)0;                                    \
    }                                                      \
    GD_SIMD_INLINE v##T v##T##_set1(REAL x)                \
    {                                                      \
        return x;                                          \
    }                                                      \
    GD_SIMD_INLINE v##T v##T##_load(const REAL *p)         \
    {                                                      \
        return *p;                                         \
    }                                                      \
    GD_SIMD_INLINE void v##T##_store(REAL *p, v##T x)      \
    {                                                      \
        *p = x;                                            \
    }                                                      \
    GD_SIMD_INLINE v##T v##T##_add(v##T a, v##T b)         \
    {                                                      \
        return a + b;                                      \
    }                                                      \
    GD_SIMD_INLINE v##T v##T##_mul(v##T a, v##T b)         \
    {                                                      \
        return a * b;                                      \
    }                                                      \
    GD_SIMD_INLINE v##T v##T##_max(v##T a, v##T b)         \
    {                                                      \
        return a > b ? a : b;                              \
    }                                                      \
    GD_SIMD_INLINE v##T v##T##_fma(v##T a, v##T b, v##T c) \
    {                                                      \
        return a * b + c;                                  \
    }                                                      \
    GD_SIMD_INLINE v##T v##T##_relu(v##T x)                \
    {                                                      \
        return x < 0 ? (REAL)0 : x;                        \
    }                                                      \
    GD_SIMD_INLINE void v##T##_transpose(v##T r[1])        \
    {                                                      \
        (void)r;                                           \
    }
GD_SIMD_DEFINE(f32, float)
GD_SIMD_DEFINE(f64, double)

#endif

GD_SIMD_DEFINE_MASKS(f32, float, VF32_LANES)
GD_SIMD_DEFINE_MASKS(f64, double, VF64_LANES)
#undef GD_SIMD_DEFINE_MASKS
#endif
#undef GD_SIMD_DEFINE

#endif
