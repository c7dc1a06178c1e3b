/* backend/cpu/vecmath.h: elementary functions of our own, as scalar C that compilers turn into
 * vector code.
 *
 * Every function is static and inlined, without branches, calls or (but for one, which says so)
 * tables, so that a plain loop,
 *
 *     for (int64_t i = 0; i < n; i++)
 *         out[i] = gd_exp_f32(x[i]);
 *
 * becomes full vector code with any instruction set under -O3 -ffp-contract=off -fno-math-errno
 * -fno-trapping-math. A loop's vector body and its scalar tail give the same bits. Nothing relies
 * on fast-math or on contraction: where a fused multiply-add helps, GD_FMA_F32 or GD_FMA_F64 asks
 * for it, and every bound holds without it too.
 *
 * "max 1.5 ulp" beside a function is the largest distance from the exact value that
 * tests/test_vecmath.c allows with any instruction set, in units in the last place of the exact
 * value's binade: the largest distance seen, rounded up to the next half. Subnormals, infinities,
 * NaN and signed zeros follow C99 Annex F.
 *
 * It is not a libm: no errno, no floating-point flags, one rounding mode (to nearest), and a NaN's
 * payload and sign are free. But for gd_lgamma_f64, the text needs of libm only fabs, sqrt and
 * copysign, so that it can be pasted into generated C.
 *
 * Polynomials are minimax for the relative error of the whole function (Remez exchange at 220
 * bits; coefficients rounded one after the other to the format, the rest refitted each time), in
 * Estrin's order where speed matters most, else in Horner's.
 *
 * Start at gd_exp_f32 in vecmath_f32.h; the tricks shared by all are here. */
#ifndef GD_BACKEND_CPU_VECMATH_H
#define GD_BACKEND_CPU_VECMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A call left in a loop would keep the loop scalar, so inlining is not left to the compiler's
 * judgement of size. */
#if defined(__GNUC__)
#define GD_INLINE static inline __attribute__((always_inline, unused))
#else
#define GD_INLINE static inline
#endif

/* a * b + c: one rounding where the machine has it, else two. */
#if defined(__FMA__) || defined(__aarch64__)
#define GD_HAVE_FMA         1
#define GD_FMA_F32(a, b, c) __builtin_fmaf((a), (b), (c))
#define GD_FMA_F64(a, b, c) __builtin_fma((a), (b), (c))
#else
#define GD_HAVE_FMA         0
#define GD_FMA_F32(a, b, c) ((a) * (b) + (c))
#define GD_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

/* A table, and what a pointer into it points to: some languages that this text is compiled as name
 * the memory it lies in. */
#define GD_CONSTANT static const
#define GD_TABLE    const

/* Adding 1.5 * 2^(p-1) rounds a small number to an integer, which then stands in the low mantissa
 * bits of the sum. Unlike rint and conversions to 64-bit integers, this is vector code on every
 * instruction set. */
#define GD_ROUND_F32 0x1.8p23f

#define GD_ROUND_F64 0x1.8p52

GD_INLINE uint32_t gd_bits_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

GD_INLINE float gd_from_bits_f32(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

GD_INLINE uint64_t gd_bits_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

GD_INLINE double gd_from_bits_f64(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* condition ? a : b without a branch to begin with. Given ?: with a constant arm, or an arm used
 * nowhere else, gcc moves code that follows into the branch, to save work, and then cannot make the
 * loop vector code any more. Before SSE4.2 there is no way but ?: for 64 bits. */
#define GD_SELECT_F32(condition, a, b) gd_blend_f32(UINT32_C(0) - (uint32_t)(condition), (a), (b))

#if defined(__SSE2__) && !defined(__SSE4_2__)
#define GD_SELECT_F64(condition, a, b) ((condition) ? (a) : (b))
#else
#define GD_SELECT_F64(condition, a, b) gd_blend_f64(UINT64_C(0) - (uint64_t)(condition), (a), (b))
#endif

GD_INLINE float gd_blend_f32(uint32_t mask, float a, float b)
{
    return gd_from_bits_f32((gd_bits_f32(a) & mask) | (gd_bits_f32(b) & ~mask));
}

GD_INLINE double gd_blend_f64(uint64_t mask, double a, double b)
{
    return gd_from_bits_f64((gd_bits_f64(a) & mask) | (gd_bits_f64(b) & ~mask));
}

/* a where the sign bit of s is set, else b: where even the baseline must not have a branch. */
GD_INLINE double gd_select_sign_f64(double s, double a, double b)
{
    return gd_blend_f64(UINT64_C(0) - (gd_bits_f64(s) >> 63), a, b);
}

/* x rounded to the 8 binary digits of bf16 by 16 bits of noise: they are added to the digits behind the
 * eighth, in units of 2^-16 of that one, and what is behind is cut off. So x that has no more digits
 * stays, and where the noise is random the mean of the results is x. Where the result could be infinite,
 * x is rounded to nearest instead. NaN and infinities stay. */
GD_INLINE float gd_round_bf16_by_f32(float x, uint32_t noise)
{
    uint32_t bits = gd_bits_f32(x), cut = bits & UINT32_C(0x7fff0000);
    noise = cut == UINT32_C(0x7f7f0000) ? UINT32_C(0x8000) : noise;
    uint32_t rounded = (bits + noise) & UINT32_C(0xffff0000);
    return gd_from_bits_f32(cut < UINT32_C(0x7f800000) ? rounded : bits);
}

/* The same by a whole number; what lies outside of 0 ... 65535 counts as the end beside it, NaN as 0. */
GD_INLINE float gd_round_bf16_f32(float x, float y)
{
    y = y > 0.0f ? y : 0.0f;
    y = y < 65535.0f ? y : 65535.0f;
    return gd_round_bf16_by_f32(x, gd_bits_f32(y + 0x1p23f) & UINT32_C(0xffff));
}

/* x rounded to an integer, |x| < 2^22 (2^51). */
GD_INLINE float gd_round_small_f32(float x)
{
    return (x + GD_ROUND_F32) - GD_ROUND_F32;
}

GD_INLINE double gd_round_small_f64(double x)
{
    return (x + GD_ROUND_F64) - GD_ROUND_F64;
}

/* An integer-valued n, |n| < 2^22 (2^51), as an integer in two's complement. */
GD_INLINE uint32_t gd_integer_f32(float n)
{
    return gd_bits_f32(n + GD_ROUND_F32) - UINT32_C(0x4b400000);
}

GD_INLINE uint64_t gd_integer_f64(double n)
{
    return gd_bits_f64(n + GD_ROUND_F64) - UINT64_C(0x4338000000000000);
}

/* 2^k, k in [-126, 127] ([-1022, 1023]). */
GD_INLINE float gd_pow2_f32(uint32_t k)
{
    return gd_from_bits_f32((k + 127) << 23);
}

GD_INLINE double gd_pow2_f64(uint64_t k)
{
    return gd_from_bits_f64((k + 1023) << 52);
}

/* p 2^k with one rounding, for p near 1 and k in [-252, 254] ([-2044, 2046]): gradual underflow,
 * overflow. */
GD_INLINE float gd_scale_f32(float p, uint32_t k)
{
    uint32_t half = (uint32_t)((int32_t)k >> 1);
    return p * gd_pow2_f32(half) * gd_pow2_f32(k - half);
}

GD_INLINE double gd_scale_f64(double p, uint64_t k)
{
    uint64_t half =
        ((k + 4096) >> 1) - 2048; /* arithmetic shifts of 64 bits are rare before AVX-512 */
    return p * gd_pow2_f64(half) * gd_pow2_f64(k - half);
}

/* a + b as an exact sum of two numbers (Knuth's TwoSum): the rounded one, and what rounding lost.
 */
GD_INLINE double gd_two_sum_f64(double a, double b, double *lost)
{
    double s = a + b;
    double bb = s - a;
    *lost = (a - (s - bb)) + (b - bb);
    return s;
}

/* a * b as an exact sum of two numbers (with FMA; else Dekker's product, |a|, |b| < 2^990). */
GD_INLINE double gd_two_prod_f64(double a, double b, double *lost)
{
    double p = a * b;
#if GD_HAVE_FMA
    *lost = GD_FMA_F64(a, b, -p);
#else
    double ca = a * 0x1.0000002p27, cb = b * 0x1.0000002p27;
    double ah = ca - (ca - a), bh = cb - (cb - b);
    double al = a - ah, bl = b - bh;
    *lost = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
    return p;
}

#include "vecmath_f64.h"
#include "vecmath_f32.h"
#include "vecmath_trig.h"
#include "vecmath_special.h"
#include "vecmath_activation.h"

#endif
