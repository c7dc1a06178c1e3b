/* backend/cpu/cast_isa.c: contiguous loops that convert one dtype to another, all pairs, for one
 * instruction set.
 *
 *   float to integer   toward zero; out of range goes to the nearest end of the range, NaN to 0
 *   integer to integer modulo 2^bits
 *   anything to bool   x != 0
 *   to float           rounded once, to nearest, ties to even, whatever lies between
 *
 * Start at the table at the end. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/isa.h"
#include "base/half.h"

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- float to integer. The bounds of the range are powers of two, so exact in either type. ----
 */
#define DEFINE_FLOAT_TO_INTEGER(from, F, to, I, LOW, ABOVE, LEAST, MOST)     \
    INLINE I from##_to_##to(F x)                                             \
    {                                                                        \
        F inside = ((x > (LOW)) & (x < (ABOVE))) ? x : 0; /* also for NaN */ \
        I result = (I)inside;                                                \
        result = x <= (LOW) ? (LEAST) : result;                              \
        return x >= (ABOVE) ? (MOST) : result;                               \
    }
DEFINE_FLOAT_TO_INTEGER(f32, float, i32, int32_t, -0x1p31f, 0x1p31f, INT32_MIN, INT32_MAX)
DEFINE_FLOAT_TO_INTEGER(f32, float, i64, int64_t, -0x1p63f, 0x1p63f, INT64_MIN, INT64_MAX)
DEFINE_FLOAT_TO_INTEGER(f64, double, i32, int32_t, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX)
DEFINE_FLOAT_TO_INTEGER(f64, double, i64, int64_t, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)

INLINE uint8_t f32_to_u8(float x)
{
    float inside = x > 0 ? x : 0; /* also for NaN */
    return (uint8_t)(int32_t)(inside < 255 ? inside : 255);
}

INLINE uint8_t f64_to_u8(double x)
{
    double inside = x > 0 ? x : 0;
    return (uint8_t)(int32_t)(inside < 255 ? inside : 255);
}

/* ---- to the half dtypes. f32 holds every i32 and i64 that binary16 does not round to infinity.
 * ---- */

/* Rounded to odd: cut toward zero, and the last bit set if anything was lost. Rounding that to
 * fewer than 23 bits gives what rounding x at once would (Boldo and Melquiond, Emulation of FMA and
 * correctly rounded sums, 2008). */
INLINE float f64_to_f32_odd(double x)
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

INLINE uint16_t f64_to_f16(double x)
{
    return gd_f32_to_f16(f64_to_f32_odd(x));
}

INLINE uint16_t f64_to_bf16(double x)
{
    return gd_f32_to_bf16(f64_to_f32_odd(x));
}

/* An f64 holds 53 bits. Beyond 2^40 the lowest 16 cannot change an 8-bit result but by being zero
 * or not. */
INLINE uint16_t i64_to_bf16(int64_t x)
{
    uint64_t magnitude = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    uint64_t rest = magnitude & 0xffff;
    uint64_t shortened = (magnitude - rest) | (rest != 0 ? 0x10000u : 0u);
    magnitude = magnitude >> 40 != 0 ? shortened : magnitude;
    double whole = (double)magnitude;
    return f64_to_bf16(x < 0 ? -whole : whole);
}

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed" /* some loops stay scalar without AVX-512DQ */
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define LOOP(from, F, to, T, formula)                                                           \
    static void from##_to_##to##_loop(const void *px, const void *py, const void *pz, void *po, \
                                      int64_t n)                                                \
    {                                                                                           \
        (void)py, (void)pz;                                                                     \
        INDEPENDENT                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                       \
            const F x = ((const F *)px)[i];                                                     \
            ((T *)po)[i] = (T)(formula);                                                        \
        }                                                                                       \
    }

LOOP(f32, float, f64, double, x)
LOOP(f32, float, i32, int32_t, f32_to_i32(x))
LOOP(f32, float, i64, int64_t, f32_to_i64(x))
LOOP(f32, float, u8, uint8_t, f32_to_u8(x))
LOOP(f32, float, bool, uint8_t, x != 0)
LOOP(f32, float, f16, uint16_t, gd_f32_to_f16(x))
LOOP(f32, float, bf16, uint16_t, gd_f32_to_bf16(x))

LOOP(f64, double, f32, float, x)
LOOP(f64, double, i32, int32_t, f64_to_i32(x))
LOOP(f64, double, i64, int64_t, f64_to_i64(x))
LOOP(f64, double, u8, uint8_t, f64_to_u8(x))
LOOP(f64, double, bool, uint8_t, x != 0)
LOOP(f64, double, f16, uint16_t, f64_to_f16(x))
LOOP(f64, double, bf16, uint16_t, f64_to_bf16(x))

LOOP(i32, int32_t, f32, float, x)
LOOP(i32, int32_t, f64, double, x)
LOOP(i32, int32_t, i64, int64_t, x)
LOOP(i32, int32_t, u8, uint8_t, x)
LOOP(i32, int32_t, bool, uint8_t, x != 0)
LOOP(i32, int32_t, f16, uint16_t, gd_f32_to_f16((float)x))
LOOP(i32, int32_t, bf16, uint16_t, f64_to_bf16(x))

LOOP(i64, int64_t, f32, float, x)
LOOP(i64, int64_t, f64, double, x)
LOOP(i64, int64_t, i32, int32_t, x)
LOOP(i64, int64_t, u8, uint8_t, x)
LOOP(i64, int64_t, bool, uint8_t, x != 0)
LOOP(i64, int64_t, f16, uint16_t, gd_f32_to_f16((float)x))
LOOP(i64, int64_t, bf16, uint16_t, i64_to_bf16(x))

LOOP(u8, uint8_t, f32, float, x)
LOOP(u8, uint8_t, f64, double, x)
LOOP(u8, uint8_t, i32, int32_t, x)
LOOP(u8, uint8_t, i64, int64_t, x)
LOOP(u8, uint8_t, u8, uint8_t, x) /* bool to u8 */
LOOP(u8, uint8_t, bool, uint8_t, x != 0)
LOOP(u8, uint8_t, f16, uint16_t, gd_f32_to_f16(x))
LOOP(u8, uint8_t, bf16, uint16_t, gd_f32_to_bf16(x))

#define HALF_LOOPS(half)                                                  \
    LOOP(half, uint16_t, f32, float, gd_##half##_to_f32(x))               \
    LOOP(half, uint16_t, f64, double, gd_##half##_to_f32(x))              \
    LOOP(half, uint16_t, i32, int32_t, f32_to_i32(gd_##half##_to_f32(x))) \
    LOOP(half, uint16_t, i64, int64_t, f32_to_i64(gd_##half##_to_f32(x))) \
    LOOP(half, uint16_t, u8, uint8_t, f32_to_u8(gd_##half##_to_f32(x)))   \
    LOOP(half, uint16_t, bool, uint8_t, (x & 0x7fff) != 0)
HALF_LOOPS(f16)
HALF_LOOPS(bf16)
LOOP(f16, uint16_t, bf16, uint16_t, gd_f32_to_bf16(gd_f16_to_f32(x)))
LOOP(bf16, uint16_t, f16, uint16_t, gd_f32_to_f16(gd_bf16_to_f32(x)))

extern const gd_ew_loop GD_ISA_NAME(gd_ew_casts)[GD_DTYPE_COUNT][GD_DTYPE_COUNT];
const gd_ew_loop GD_ISA_NAME(gd_ew_casts)[GD_DTYPE_COUNT][GD_DTYPE_COUNT] = {
    [GD_F32] = { [GD_F64] = f32_to_f64_loop,
                 [GD_I32] = f32_to_i32_loop,
                 [GD_I64] = f32_to_i64_loop,
                 [GD_U8] = f32_to_u8_loop,
                 [GD_BOOL] = f32_to_bool_loop,
                 [GD_F16] = f32_to_f16_loop,
                 [GD_BF16] = f32_to_bf16_loop },
    [GD_F64] = { [GD_F32] = f64_to_f32_loop,
                 [GD_I32] = f64_to_i32_loop,
                 [GD_I64] = f64_to_i64_loop,
                 [GD_U8] = f64_to_u8_loop,
                 [GD_BOOL] = f64_to_bool_loop,
                 [GD_F16] = f64_to_f16_loop,
                 [GD_BF16] = f64_to_bf16_loop },
    [GD_I32] = { [GD_F32] = i32_to_f32_loop,
                 [GD_F64] = i32_to_f64_loop,
                 [GD_I64] = i32_to_i64_loop,
                 [GD_U8] = i32_to_u8_loop,
                 [GD_BOOL] = i32_to_bool_loop,
                 [GD_F16] = i32_to_f16_loop,
                 [GD_BF16] = i32_to_bf16_loop },
    [GD_I64] = { [GD_F32] = i64_to_f32_loop,
                 [GD_F64] = i64_to_f64_loop,
                 [GD_I32] = i64_to_i32_loop,
                 [GD_U8] = i64_to_u8_loop,
                 [GD_BOOL] = i64_to_bool_loop,
                 [GD_F16] = i64_to_f16_loop,
                 [GD_BF16] = i64_to_bf16_loop },
    [GD_U8] = { [GD_F32] = u8_to_f32_loop,
                [GD_F64] = u8_to_f64_loop,
                [GD_I32] = u8_to_i32_loop,
                [GD_I64] = u8_to_i64_loop,
                [GD_BOOL] = u8_to_bool_loop,
                [GD_F16] = u8_to_f16_loop,
                [GD_BF16] = u8_to_bf16_loop },
    [GD_BOOL] = { [GD_F32] = u8_to_f32_loop,
                  [GD_F64] = u8_to_f64_loop,
                  [GD_I32] = u8_to_i32_loop,
                  [GD_I64] = u8_to_i64_loop,
                  [GD_U8] = u8_to_u8_loop,
                  [GD_F16] = u8_to_f16_loop,
                  [GD_BF16] = u8_to_bf16_loop },
    [GD_F16] = { [GD_F32] = f16_to_f32_loop,
                 [GD_F64] = f16_to_f64_loop,
                 [GD_I32] = f16_to_i32_loop,
                 [GD_I64] = f16_to_i64_loop,
                 [GD_U8] = f16_to_u8_loop,
                 [GD_BOOL] = f16_to_bool_loop,
                 [GD_BF16] = f16_to_bf16_loop },
    [GD_BF16] = { [GD_F32] = bf16_to_f32_loop,
                  [GD_F64] = bf16_to_f64_loop,
                  [GD_I32] = bf16_to_i32_loop,
                  [GD_I64] = bf16_to_i64_loop,
                  [GD_U8] = bf16_to_u8_loop,
                  [GD_BOOL] = bf16_to_bool_loop,
                  [GD_F16] = bf16_to_f16_loop },
};
