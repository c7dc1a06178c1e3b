/* backend/cpu/formulas.h: the vocabulary of the formulas in ops/elementwise.def, spelled for C.
 * Every word is an exact IEEE 754 operation, a selection, an integer operation modulo 2^bits, or a
 * function of backend/cpu/vecmath.h: nothing the compiler could round differently in a vector and
 * in a single number.
 *
 * Included once per type by elementwise_loops.h, which has defined GD_T, GD_T_SUFFIX and the kind
 * of type. The words are macros that find the functions of the type being compiled; the functions
 * that differ by type are at the end. */
#ifndef GD_BACKEND_CPU_FORMULAS_H
#define GD_BACKEND_CPU_FORMULAS_H

#include "backend/cpu/vecmath.h"
#include "base/special.h"

#include <math.h>
#include <stdint.h>

#define GD_T_PASTE_(a, b) a##_##b
#define GD_T_PASTE(a, b)  GD_T_PASTE_(a, b)
#define GD_T_NAME(name)   GD_T_PASTE(name, GD_T_SUFFIX) /* gd_exp -> gd_exp_f32 */

/* ---- any type ---- */
#define SELECT(condition, a, b) ((condition) ? (GD_T)(a) : (GD_T)(b))
#define MAX(x, y)               GD_T_NAME(maximum)(x, y) /* NaN if either is NaN */
#define MIN(x, y)               GD_T_NAME(minimum)(x, y)
#define ABS(x)                  GD_T_NAME(absolute)(x)
#define SIGN(x)                 GD_T_NAME(sign)(x) /* -1, 0 or 1; NaN stays */
#define RELU(x)                 GD_T_NAME(relu)(x) /* NaN and -0 stay, as in the matrix product's epilogue */
#define FLOOR_DIV(x, y)         GD_T_NAME(floor_div)(x, y) /* Python's //; integers: x // 0 is 0 */
#define FLOOR_MOD(x, y) \
    GD_T_NAME(floor_mod)(x, y) /* Python's %: the sign of y; integers: x % 0 is 0 */
#define TRUNC_MOD(x, y) GD_T_NAME(trunc_mod)(x, y)

/* ---- integers and bool ---- */
#define INTEGER_POW(x, y) GD_T_NAME(integer_pow)(x, y)

/* ---- floating types ---- */
#define INFINITY_        ((GD_T)INFINITY)
#define FMA(x, y, z)     GD_T_NAME(fused_multiply_add)(x, y, z)
#define SQRT(x)          GD_T_NAME(square_root)(x)
#define FLOOR(x)         GD_T_NAME(round_down)(x)
#define CEIL(x)          GD_T_NAME(round_up)(x)
#define RINT(x)          GD_T_NAME(round_even)(x) /* to nearest, ties to even */
#define TRUNC(x)         GD_T_NAME(round_to_zero)(x)
#define COPYSIGN(x, y)   GD_T_NAME(copy_sign)(x, y)  /* |x| with the sign of y */
#define NEXTAFTER(x, y)  GD_T_NAME(next_after)(x, y) /* the number beside x, towards y */
#define FLUSH(x)         GD_T_NAME(flush)(x)         /* 0 where x is subnormal */
#define ROUND_BF16(x, y) GD_T_NAME(gd_round_bf16)(x, y)
#define POW(x, y)        GD_T_NAME(gd_pow)(x, y)
#define ATAN2(y, x)      GD_T_NAME(gd_atan2)(y, x)
#define EXP(x)           GD_T_NAME(gd_exp)(x)
#define EXP2(x)          GD_T_NAME(gd_exp2)(x)
#define EXPM1(x)         GD_T_NAME(gd_expm1)(x)
#define LOG(x)           GD_T_NAME(gd_log)(x)
#define LOG2(x)          GD_T_NAME(gd_log2)(x)
#define LOG10(x)         GD_T_NAME(gd_log10)(x)
#define LOG1P(x)         GD_T_NAME(gd_log1p)(x)
#define SIN(x)           GD_T_NAME(gd_sin)(x)
#define COS(x)           GD_T_NAME(gd_cos)(x)
#define TAN(x)           GD_T_NAME(gd_tan)(x)
#define ASIN(x)          GD_T_NAME(gd_asin)(x)
#define ACOS(x)          GD_T_NAME(gd_acos)(x)
#define ATAN(x)          GD_T_NAME(gd_atan)(x)
#define SINH(x)          GD_T_NAME(gd_sinh)(x)
#define COSH(x)          GD_T_NAME(gd_cosh)(x)
#define TANH(x)          GD_T_NAME(gd_tanh)(x)
#define SIGMOID(x)       GD_T_NAME(gd_sigmoid)(x)
#define SOFTPLUS(x)      GD_T_NAME(gd_softplus)(x)
#define ERF(x)           GD_T_NAME(gd_erf)(x)
#define ERFINV(x)        GD_T_NAME(gd_erfinv)(x)
#define LGAMMA(x)        ((GD_T)gd_special_lgamma((double)(x)))
#define POLYGAMMA(n, x)  ((GD_T)gd_special_polygamma((double)(n), (double)(x)))

/* activations, and their gradients: g times the derivative at x */
#define GELU(x)              GD_T_NAME(gd_gelu)(x)
#define GELU_GRAD(g, x)      GD_T_NAME(gd_gelu_grad)(g, x)
#define GELU_TANH(x)         GD_T_NAME(gd_gelu_tanh)(x)
#define GELU_TANH_GRAD(g, x) GD_T_NAME(gd_gelu_tanh_grad)(g, x)
#define SILU(x)              GD_T_NAME(gd_silu)(x)
#define SILU_GRAD(g, x)      GD_T_NAME(gd_silu_grad)(g, x)

#define GD_T_INLINE static inline __attribute__((always_inline, unused))

/* What C spells differently for float and double. */
#define GD_T_DEFINE_ROUNDING(T, suffix, f)                   \
    GD_T_INLINE T square_root_##suffix(T x)                  \
    {                                                        \
        return __builtin_sqrt##f(x);                         \
    }                                                        \
    GD_T_INLINE T round_down_##suffix(T x)                   \
    {                                                        \
        return __builtin_floor##f(x);                        \
    }                                                        \
    GD_T_INLINE T round_up_##suffix(T x)                     \
    {                                                        \
        return __builtin_ceil##f(x);                         \
    }                                                        \
    GD_T_INLINE T round_even_##suffix(T x)                   \
    {                                                        \
        return __builtin_rint##f(x);                         \
    }                                                        \
    GD_T_INLINE T round_to_zero_##suffix(T x)                \
    {                                                        \
        return __builtin_trunc##f(x);                        \
    }                                                        \
    GD_T_INLINE T absolute_##suffix(T x)                     \
    {                                                        \
        return __builtin_fabs##f(x);                         \
    }                                                        \
    GD_T_INLINE T fused_multiply_add_##suffix(T x, T y, T z) \
    {                                                        \
        return __builtin_fma##f(x, y, z);                    \
    }                                                        \
    GD_T_INLINE T remainder_##suffix(T x, T y)               \
    {                                                        \
        return __builtin_fmod##f(x, y);                      \
    }                                                        \
    GD_T_INLINE T copy_sign_##suffix(T x, T y)               \
    {                                                        \
        return __builtin_copysign##f(x, y);                  \
    }                                                        \
    GD_T_INLINE T next_after_##suffix(T x, T y)              \
    {                                                        \
        return __builtin_nextafter##f(x, y);                 \
    }
GD_T_DEFINE_ROUNDING(float, f32, f)
GD_T_DEFINE_ROUNDING(double, f64, )

GD_T_INLINE float flush_f32(float x)
{
    return __builtin_fabsf(x) < 0x1p-126F ? 0 : x;
}

GD_T_INLINE double flush_f64(double x)
{
    return __builtin_fabs(x) < 0x1p-1022 ? 0 : x;
}

#endif

#if defined(GD_T_FLOAT)
GD_T_INLINE GD_T GD_T_NAME(maximum)(GD_T x, GD_T y)
{
    return ((x > y) | (x != x)) ? x : y;
}

GD_T_INLINE GD_T GD_T_NAME(minimum)(GD_T x, GD_T y)
{
    return ((x < y) | (x != x)) ? x : y;
}

GD_T_INLINE GD_T GD_T_NAME(relu)(GD_T x)
{
    return x < 0 ? 0 : x;
}

GD_T_INLINE GD_T GD_T_NAME(sign)(GD_T x)
{
    return x > 0 ? (GD_T)1 : x < 0 ? (GD_T)-1 : x == 0 ? (GD_T)0 : x;
}

/* The remainder of x / y with the sign of y, as Python and NumPy define it: fmod is exact, and the
 * sum rounds once. */
GD_T_INLINE GD_T GD_T_NAME(floor_mod)(GD_T x, GD_T y)
{
    GD_T r = GD_T_NAME(remainder)(x, y);
    return r == 0 ? GD_T_NAME(copy_sign)(0, y) : (r < 0) != (y < 0) ? r + y : r;
}

/* The same with the sign of x, as C defines it. */
GD_T_INLINE GD_T GD_T_NAME(trunc_mod)(GD_T x, GD_T y)
{
    return GD_T_NAME(remainder)(x, y);
}

/* floor(x / y) of the exact quotient, as Python and NumPy define it: the remainder goes first, so
 * that what is left is nearly a whole number, which rounding makes whole. x / 0 is an infinity or
 * NaN. */
GD_T_INLINE GD_T GD_T_NAME(floor_div)(GD_T x, GD_T y)
{
    GD_T r = GD_T_NAME(remainder)(x, y);
    GD_T quotient = (x - r) / y;
    quotient = r != 0 && (r < 0) != (y < 0) ? quotient - 1 : quotient;
    GD_T whole = GD_T_NAME(round_down)(quotient);
    whole = quotient - whole > (GD_T)0.5 ? whole + 1 : whole;
    whole = quotient == 0 ? GD_T_NAME(copy_sign)(0, x / y) : whole;
    return y == 0 ? x / y : whole;
}

#elif defined(GD_T_SIGNED) || defined(GD_T_UNSIGNED)
GD_T_INLINE GD_T GD_T_NAME(maximum)(GD_T x, GD_T y)
{
    return x > y ? x : y;
}

GD_T_INLINE GD_T GD_T_NAME(minimum)(GD_T x, GD_T y)
{
    return x < y ? x : y;
}
#endif

#if defined(GD_T_SIGNED) || defined(GD_T_UNSIGNED)
/* By squaring, modulo 2^bits. */
GD_T_INLINE GD_T GD_T_NAME(whole_power)(GD_T x, uint64_t y)
{
    uint64_t base = (uint64_t)x, power = 1;
    for (; y > 0; y >>= 1) {
        power *= y & 1 ? base : 1;
        base *= base;
    }
    return (GD_T)power;
}
#endif

#if defined(GD_T_SIGNED)
GD_T_INLINE GD_T GD_T_NAME(integer_pow)(GD_T x, GD_T y)
{
    if (y < 0) /* 1 / x^-y: all else is a fraction, and 0 */
        return (GD_T)(x == 1 ? 1 : x != -1 ? 0 : y % 2 == 0 ? 1 : -1);
    return GD_T_NAME(whole_power)(x, (uint64_t)y);
}

GD_T_INLINE GD_T GD_T_NAME(absolute)(GD_T x)
{
    return (GD_T)(x < 0 ? -x : x);
}

GD_T_INLINE GD_T GD_T_NAME(relu)(GD_T x)
{
    return (GD_T)(x < 0 ? 0 : x);
}

GD_T_INLINE GD_T GD_T_NAME(sign)(GD_T x)
{
    return (GD_T)((x > 0) - (x < 0));
}

/* A quotient by -1 is a negation, which wraps: the processor's division would trap on the smallest
 * number. */
GD_T_INLINE GD_T GD_T_NAME(floor_div)(GD_T x, GD_T y)
{
    if (y == 0)
        return 0;
    if (y == -1)
        return (GD_T)-x;
    return (GD_T)(x / y - (x % y != 0 && (x < 0) != (y < 0)));
}

GD_T_INLINE GD_T GD_T_NAME(floor_mod)(GD_T x, GD_T y)
{
    if (y == 0 || y == -1)
        return 0;
    GD_T r = (GD_T)(x % y);
    return (GD_T)(r != 0 && (r < 0) != (y < 0) ? r + y : r);
}

GD_T_INLINE GD_T GD_T_NAME(trunc_mod)(GD_T x, GD_T y)
{
    return (GD_T)(y == 0 || y == -1 ? 0 : x % y);
}

#elif defined(GD_T_UNSIGNED)
GD_T_INLINE GD_T GD_T_NAME(integer_pow)(GD_T x, GD_T y)
{
    return GD_T_NAME(whole_power)(x, y);
}

GD_T_INLINE GD_T GD_T_NAME(trunc_mod)(GD_T x, GD_T y)
{
    return (GD_T)(y == 0 ? 0 : x % y);
}

GD_T_INLINE GD_T GD_T_NAME(absolute)(GD_T x)
{
    return x;
}

GD_T_INLINE GD_T GD_T_NAME(relu)(GD_T x)
{
    return x;
}

GD_T_INLINE GD_T GD_T_NAME(sign)(GD_T x)
{
    return x > 0;
}

GD_T_INLINE GD_T GD_T_NAME(floor_div)(GD_T x, GD_T y)
{
    return (GD_T)(y == 0 ? 0 : x / y);
}

GD_T_INLINE GD_T GD_T_NAME(floor_mod)(GD_T x, GD_T y)
{
    return (GD_T)(y == 0 ? 0 : x % y);
}
#endif
