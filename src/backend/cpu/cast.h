/* backend/cpu/cast.h: what the two files of conversions share: single numbers converted, and the
 * loops of cast_integer_isa.c by name. Included by files compiled once per instruction set alone. */
#ifndef GD_BACKEND_CPU_CAST_H
#define GD_BACKEND_CPU_CAST_H

#include "backend/cpu/elementwise.h"
#include "backend/cpu/isa.h"
#include "base/half.h"

#include <stdint.h>
#include <string.h>

#define GD_CAST_INLINE static inline __attribute__((always_inline, unused))

/* ---- float to integer. The bounds of the range are powers of two, so exact in either type. ----
 */
#define GD_CAST_FLOAT_TO_INTEGER(from, F, to, I, LOW, ABOVE, LEAST, MOST)    \
    GD_CAST_INLINE I from##_to_##to(F x)                                     \
    {                                                                        \
        F inside = ((x > (LOW)) & (x < (ABOVE))) ? x : 0; /* also for NaN */ \
        I result = (I)inside;                                                \
        result = x <= (LOW) ? (LEAST) : result;                              \
        return x >= (ABOVE) ? (MOST) : result;                               \
    }

/* ---- to the half dtypes. f32 holds every i32 and i64 that binary16 does not round to infinity.
 * ---- */

/* Rounded to odd: cut toward zero, and the last bit set if anything was lost. Rounding that to
 * fewer than 23 bits gives what rounding x at once would (Boldo and Melquiond, Emulation of FMA and
 * correctly rounded sums, 2008). */
GD_CAST_INLINE float f64_to_f32_odd(double x)
{
    float nearest = (float)x;
    double back = nearest;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    uint32_t away = __builtin_fabs(back) > __builtin_fabs(x) ? 1 : 0;
    uint32_t inexact =
        back != x ? 1 : 0; /* NaN keeps its being one: a bit of its fraction is set */
    bits = (bits - away) | inexact;
    memcpy(&nearest, &bits, sizeof bits);
    return nearest;
}

GD_CAST_INLINE uint16_t f64_to_f16(double x)
{
    return gd_f32_to_f16(f64_to_f32_odd(x));
}

GD_CAST_INLINE uint16_t f64_to_bf16(double x)
{
    return gd_f32_to_bf16(f64_to_f32_odd(x));
}

/* An f64 holds 53 bits. Beyond 2^40 the lowest 16 cannot change an 8-bit result but by being zero
 * or not. */
GD_CAST_INLINE double shorten(uint64_t magnitude)
{
    uint64_t rest = magnitude & 0xffff;
    uint64_t shortened = (magnitude - rest) | (rest != 0 ? 0x10000u : 0u);
    return (double)(magnitude >> 40 != 0 ? shortened : magnitude);
}

GD_CAST_INLINE uint16_t i64_to_bf16(int64_t x)
{
    double whole = shorten(x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
    return f64_to_bf16(x < 0 ? -whole : whole);
}

GD_CAST_INLINE uint16_t u64_to_bf16(uint64_t x)
{
    return f64_to_bf16(shorten(x));
}

#if defined(__clang__)
#define GD_CAST_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed" /* some loops stay scalar without AVX-512DQ */
#else
#define GD_CAST_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* ---- the loops of cast_integer_isa.c ---- */

#define GD_CAST_DECLARE(from, to)                                                        \
    void GD_ISA_NAME(gd_cast_##from##_##to)(const void *x, const void *y, const void *z, \
                                            void *out, int64_t n);
#define GD_CAST_DECLARE_TO_REST(from) \
    GD_CAST_DECLARE(from, i8)         \
    GD_CAST_DECLARE(from, i16)        \
    GD_CAST_DECLARE(from, u16)        \
    GD_CAST_DECLARE(from, u32)        \
    GD_CAST_DECLARE(from, u64)
#define GD_CAST_DECLARE_FROM_REST(from) \
    GD_CAST_DECLARE(from, f32)          \
    GD_CAST_DECLARE(from, f64)          \
    GD_CAST_DECLARE(from, f16)          \
    GD_CAST_DECLARE(from, bf16)         \
    GD_CAST_DECLARE(from, i32)          \
    GD_CAST_DECLARE(from, i64)          \
    GD_CAST_DECLARE(from, u8)           \
    GD_CAST_DECLARE(from, bool)         \
    GD_CAST_DECLARE_TO_REST(from)
GD_CAST_DECLARE_TO_REST(f32)
GD_CAST_DECLARE_TO_REST(f64)
GD_CAST_DECLARE_TO_REST(f16)
GD_CAST_DECLARE_TO_REST(bf16)
GD_CAST_DECLARE_TO_REST(i32)
GD_CAST_DECLARE_TO_REST(i64)
GD_CAST_DECLARE_TO_REST(u8)
GD_CAST_DECLARE_FROM_REST(i8)
GD_CAST_DECLARE_FROM_REST(i16)
GD_CAST_DECLARE_FROM_REST(u16)
GD_CAST_DECLARE_FROM_REST(u32)
GD_CAST_DECLARE_FROM_REST(u64)

/* Entries of the tables, of each instruction set. */
#define GD_CAST_TO_REST(from)                                                                   \
    [GD_I8] = GD_ISA_NAME(gd_cast_##from##_i8), [GD_I16] = GD_ISA_NAME(gd_cast_##from##_i16),   \
    [GD_U16] = GD_ISA_NAME(gd_cast_##from##_u16), [GD_U32] = GD_ISA_NAME(gd_cast_##from##_u32), \
    [GD_U64] = GD_ISA_NAME(gd_cast_##from##_u64)
#define GD_CAST_FROM_REST(dtype, from)                          \
    [dtype] = { [GD_F32] = GD_ISA_NAME(gd_cast_##from##_f32),   \
                [GD_F64] = GD_ISA_NAME(gd_cast_##from##_f64),   \
                [GD_F16] = GD_ISA_NAME(gd_cast_##from##_f16),   \
                [GD_BF16] = GD_ISA_NAME(gd_cast_##from##_bf16), \
                [GD_I32] = GD_ISA_NAME(gd_cast_##from##_i32),   \
                [GD_I64] = GD_ISA_NAME(gd_cast_##from##_i64),   \
                [GD_U8] = GD_ISA_NAME(gd_cast_##from##_u8),     \
                [GD_BOOL] = GD_ISA_NAME(gd_cast_##from##_bool), \
                GD_CAST_TO_REST(from) }

#endif
