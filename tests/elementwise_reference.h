/* tests/elementwise_reference.h: what each row of ops/elementwise.def should give, said a second
 * time, without the library: by C's own operators and libm. Exact rows are computed in the type
 * itself and must agree to the bit; the others are computed in long double and carry the error that
 * is allowed, in units in the last place. Start at the table references. */
#ifndef GD_TESTS_ELEMENTWISE_REFERENCE_H
#define GD_TESTS_ELEMENTWISE_REFERENCE_H

#include "graph/op.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tgmath.h>

typedef struct reference {
    int arity;
    float (*f32)(float x, float y);
    double (*f64)(double x, double y);
    int64_t (*integer)(int64_t x, int64_t y);
    long double (*wide)(long double x, long double y);
    double ulps;     /* of wide */
    bool gives_bool; /* else the operands' dtype */
    bool chooses;    /* by a bool, between two of one dtype */
    bool any_zero;   /* the sign of a zero is not defined */
    bool elsewhere;  /* values near poles and roots need ranges of their own: tests/test_vecmath.c
                        and the op's row try them */
} reference;

#define FLOATS(name, expression)                 \
    static float name##_f32(float x, float y)    \
    {                                            \
        (void)y;                                 \
        return (float)(expression);              \
    }                                            \
    static double name##_f64(double x, double y) \
    {                                            \
        (void)y;                                 \
        return (double)(expression);             \
    }
#define INTEGERS(name, expression)                      \
    static int64_t name##_integer(int64_t x, int64_t y) \
    {                                                   \
        (void)x, (void)y;                               \
        return (int64_t)(expression);                   \
    }
#define WIDE(name, expression)                                   \
    static long double name##_wide(long double x, long double y) \
    {                                                            \
        (void)y;                                                 \
        return (expression);                                     \
    }

/* Integers are taken modulo 2^bits of their type when stored, so the sums may be modulo 2^64. */
#define U(x) ((uint64_t)(x))
FLOATS(add, x + y)
INTEGERS(add, U(x) + U(y))
FLOATS(sub, x - y)
INTEGERS(sub, U(x) - U(y))
FLOATS(mul, x *y)
INTEGERS(mul, U(x) * U(y))
FLOATS(div, x / y)
FLOATS(fmod, fmod(x, y))
INTEGERS(fmod, y == 0 || y == -1 ? 0 : x % y)
FLOATS(maximum, isnan(x) || isnan(y) ? NAN : fmax(x, y))
INTEGERS(maximum, x > y ? x : y)
FLOATS(minimum, isnan(x) || isnan(y) ? NAN : fmin(x, y))
INTEGERS(minimum, x < y ? x : y)
FLOATS(neg, -x)
INTEGERS(neg, 0 - U(x))
FLOATS(abs, fabs(x))
INTEGERS(abs, x < 0 ? 0 - U(x) : U(x))
FLOATS(sign, isnan(x) ? x : x == 0 ? 0 : copysign(1, x))
INTEGERS(sign, x<0 ? -1 : x> 0 ? 1 : 0)
FLOATS(square, x *x)
FLOATS(square_about_mean, (x - y) * (x - y))
INTEGERS(square, U(x) * U(x))
FLOATS(reciprocal, 1 / x)
FLOATS(sqrt, sqrt(x))
FLOATS(rsqrt, 1 / sqrt(x))
FLOATS(floor, floor(x))
FLOATS(ceil, ceil(x))
FLOATS(round, nearbyint(x))
FLOATS(trunc, trunc(x))
FLOATS(relu, x < 0 ? 0 : x)
INTEGERS(relu, x > 0 ? x : 0)
FLOATS(relu_grad, y > 0 ? x : 0)
INTEGERS(relu_grad, y > 0 ? x : 0)
FLOATS(eq, x == y)
INTEGERS(eq, x == y)
FLOATS(ne, !(x == y))
INTEGERS(ne, x != y)
FLOATS(lt, isless(x, y))
INTEGERS(lt, x < y)
FLOATS(le, islessequal(x, y))
INTEGERS(le, x <= y)
FLOATS(gt, isgreater(x, y))
INTEGERS(gt, x > y)
FLOATS(ge, isgreaterequal(x, y))
INTEGERS(ge, x >= y)
FLOATS(logical_and, x != 0 && y != 0)
INTEGERS(logical_and, x &&y)
FLOATS(logical_or, x != 0 || y != 0)
INTEGERS(logical_or, x || y)
FLOATS(logical_xor, (x != 0) != (y != 0))
INTEGERS(logical_xor, !x != !y)
FLOATS(logical_not, x == 0)
INTEGERS(logical_not, !x)
FLOATS(isnan, isnan(x) != 0)
FLOATS(isinf, isinf(x) != 0)
FLOATS(copysign, copysign(x, y))
FLOATS(nextafter, nextafter(x, y))
/* Of a number's bits, the `behind` lowest cut off, or one more in the place before them where those and
 * y / 65536 make one. */
static uint64_t round_bits(uint64_t bits, int behind, uint64_t infinity, double y)
{
    const uint64_t unit = UINT64_C(1) << behind, part = bits % unit, cut = bits - part;
    if ((bits & infinity) == infinity)
        return bits;
    const bool is_largest = ((cut + unit) & infinity) == infinity;
    const double noise = is_largest ? 32768 : nearbyint(fmin(fmax(y, 0), 65535));
    return cut + (part + (uint64_t)noise * (unit >> 16) >= unit ? unit : 0);
}

static float round_bf16_f32(float x, float y)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (uint32_t)round_bits(bits, 16, 0x7f800000, y);
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double round_bf16_f64(double x, double y)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = round_bits(bits, 45, UINT64_C(0x7ff0000000000000), y);
    memcpy(&x, &bits, sizeof x);
    return x;
}
FLOATS(flush_subnormal, fabs(x) < (sizeof x == 4 ? (double)FLT_MIN : DBL_MIN) ? 0 : x)
FLOATS(signbit, signbit(x) != 0)
INTEGERS(bitwise_and, U(x) & U(y))
INTEGERS(bitwise_or, U(x) | U(y))
INTEGERS(bitwise_xor, U(x) ^ U(y))

/* CPython's float_floor_div and float_rem (Objects/floatobject.c), but dividing by zero is not an
 * error. */
FLOATS(mod, fmod(x, y) == 0                     ? copysign(0, y)
            : signbit(fmod(x, y)) != signbit(y) ? fmod(x, y) + y
                                                : fmod(x, y))
static long double floor_div_wide(long double x, long double y)
{
    if (y == 0)
        return x / y;
    long double rest = fmodl(x, y);
    return floorl((x - rest) / y - (rest != 0 && (rest < 0) != (y < 0) ? 0.5L : -0.5L));
}

static int64_t floor_div_integer(int64_t x, int64_t y)
{
    if (y == 0)
        return 0;
    if (y == -1)
        return (int64_t)(0 - U(x));
    int64_t quotient = x / y, rest = x - quotient * y;
    if (rest != 0 && (y < 0 ? rest > 0 : rest < 0))
        quotient--;
    return quotient;
}

static uint64_t integer_pow(int64_t x, int64_t y)
{
    if (y < 0)
        return x == 1 || (x == -1 && y % 2 == 0) ? 1 : x == -1 ? U(-1) : 0;
    uint64_t power = 1;
    for (int bit = 62; bit >= 0; bit--)
        power = power * power * (y >> bit & 1 ? U(x) : 1);
    return power;
}
INTEGERS(integer_pow, integer_pow(x, y))
INTEGERS(mod, y == 0 ? 0 : U(x) - U(floor_div_integer(x, y)) * U(y))

WIDE(exp, expl(x))
WIDE(exp2, exp2l(x))
WIDE(expm1, expm1l(x))
WIDE(log, logl(x))
WIDE(log2, log2l(x))
WIDE(log10, log10l(x))
WIDE(log1p, log1pl(x))
WIDE(sin, sinl(x))
WIDE(cos, cosl(x))
WIDE(tan, tanl(x))
WIDE(asin, asinl(x))
WIDE(acos, acosl(x))
WIDE(atan, atanl(x))
WIDE(sinh, sinhl(x))
WIDE(cosh, coshl(x))
WIDE(tanh, tanhl(x))
WIDE(sigmoid, 1 / (1 + expl(-x)))
WIDE(softplus, (x > 0 ? x : 0) + log1pl(expl(-fabsl(x))))
WIDE(erf, erfl(x))
WIDE(pow, powl(x, y))
WIDE(pow_log, x == 0 && y >= 0 ? 0 : powl(x, y) * logl(x))
WIDE(atan2, atan2l(x, y))

/* The root of erf(r) = x by bisection on the complement, which keeps its precision near 1. */
static long double erfinv_wide(long double x, long double y)
{
    (void)y;
    if (isnan(x) || fabsl(x) >= 1)
        return fabsl(x) == 1 ? x * INFINITY : NAN;
    long double low = 0, high = 8, target = 1 - fabsl(x);
    if (fabsl(x) < 1e-6L)
        return x * 0.886226925452758013649L * (1 + x * x * 0.2617993877991494L);
    for (int i = 0; i < 80; i++) {
        long double middle = (low + high) / 2;
        if (fabsl(x) < 0.5L ? erfl(middle) < fabsl(x) : erfcl(middle) > target)
            low = middle;
        else
            high = middle;
    }
    return copysignl((low + high) / 2, x);
}

#define BOTH(name)        .f32 = name##_f32, .f64 = name##_f64
#define WHOLE(name)       .integer = name##_integer
#define NEAR(name, error) .wide = name##_wide, .ulps = error
static const reference references[GD_OP_ELEMENTWISE_COUNT] = {
    [GD_OP_add] = { 2, BOTH(add), WHOLE(add) },
    [GD_OP_sub] = { 2, BOTH(sub), WHOLE(sub) },
    [GD_OP_mul] = { 2, BOTH(mul), WHOLE(mul) },
    [GD_OP_div] = { 2, BOTH(div) },
    [GD_OP_floor_div] = { 2, WHOLE(floor_div), NEAR(floor_div, 1), .any_zero = true },
    [GD_OP_mod] = { 2, BOTH(mod), WHOLE(mod) },
    [GD_OP_fmod] = { 2, BOTH(fmod), WHOLE(fmod) },
    [GD_OP_pow] = { 2, NEAR(pow, 2) },
    [GD_OP_pow_log] = { 2, NEAR(pow_log, 5) },
    [GD_OP_maximum] = { 2, BOTH(maximum), WHOLE(maximum), .any_zero = true },
    [GD_OP_minimum] = { 2, BOTH(minimum), WHOLE(minimum), .any_zero = true },
    [GD_OP_integer_pow] = { 2, WHOLE(integer_pow) },
    [GD_OP_copysign] = { 2, BOTH(copysign) },
    [GD_OP_nextafter] = { 2, BOTH(nextafter) },
    [GD_OP_round_bf16] = { 2, BOTH(round_bf16) },
    [GD_OP_atan2] = { 2, NEAR(atan2, 3) },
    [GD_OP_neg] = { 1, BOTH(neg), WHOLE(neg) },
    [GD_OP_abs] = { 1, BOTH(abs), WHOLE(abs) },
    [GD_OP_sign] = { 1, BOTH(sign), WHOLE(sign) },
    [GD_OP_flush_subnormal] = { 1, BOTH(flush_subnormal) },
    [GD_OP_square] = { 1, BOTH(square), WHOLE(square) },
    [GD_OP_square_about_mean] = { 2, BOTH(square_about_mean) },
    [GD_OP_scale_centred] = { .arity = 3 }, /* tested by itself */
    [GD_OP_reciprocal] = { 1, BOTH(reciprocal) },
    [GD_OP_sqrt] = { 1, BOTH(sqrt) },
    [GD_OP_rsqrt] = { 1, BOTH(rsqrt) },
    [GD_OP_floor] = { 1, BOTH(floor) },
    [GD_OP_ceil] = { 1, BOTH(ceil) },
    [GD_OP_round] = { 1, BOTH(round) },
    [GD_OP_trunc] = { 1, BOTH(trunc) },
    [GD_OP_exp] = { 1, NEAR(exp, 2) },
    [GD_OP_exp2] = { 1, NEAR(exp2, 2) },
    [GD_OP_expm1] = { 1, NEAR(expm1, 2) },
    [GD_OP_log] = { 1, NEAR(log, 2) },
    [GD_OP_log2] = { 1, NEAR(log2, 2) },
    [GD_OP_log10] = { 1, NEAR(log10, 2) },
    [GD_OP_log1p] = { 1, NEAR(log1p, 2) },
    [GD_OP_sin] = { 1, NEAR(sin, 2) },
    [GD_OP_cos] = { 1, NEAR(cos, 2) },
    [GD_OP_tan] = { 1, NEAR(tan, 3) },
    [GD_OP_asin] = { 1, NEAR(asin, 2) },
    [GD_OP_acos] = { 1, NEAR(acos, 2) },
    [GD_OP_atan] = { 1, NEAR(atan, 2) },
    [GD_OP_sinh] = { 1, NEAR(sinh, 2) },
    [GD_OP_cosh] = { 1, NEAR(cosh, 2) },
    [GD_OP_tanh] = { 1, NEAR(tanh, 2) },
    [GD_OP_relu] = { 1, BOTH(relu), WHOLE(relu) },
    [GD_OP_relu_grad] = { 2, BOTH(relu_grad), WHOLE(relu_grad) },
    /* tests/test_activation_bits.c */
    [GD_OP_gelu] = { .arity = 1, .elsewhere = true },
    [GD_OP_gelu_grad] = { .arity = 2, .elsewhere = true },
    [GD_OP_gelu_tanh] = { .arity = 1, .elsewhere = true },
    [GD_OP_gelu_tanh_grad] = { .arity = 2, .elsewhere = true },
    [GD_OP_silu] = { .arity = 1, .elsewhere = true },
    [GD_OP_silu_grad] = { .arity = 2, .elsewhere = true },
    [GD_OP_sigmoid] = { 1, NEAR(sigmoid, 3) },
    [GD_OP_softplus] = { 1, NEAR(softplus, 3) },
    [GD_OP_erf] = { 1, NEAR(erf, 2) },
    [GD_OP_erfinv] = { 1, NEAR(erfinv, 4) },
    [GD_OP_lgamma] = { .arity = 1, .elsewhere = true },
    [GD_OP_polygamma] = { .arity = 2, .elsewhere = true },
    [GD_OP_signbit] = { 1, BOTH(signbit), .gives_bool = true },
    [GD_OP_eq] = { 2, BOTH(eq), WHOLE(eq), .gives_bool = true },
    [GD_OP_ne] = { 2, BOTH(ne), WHOLE(ne), .gives_bool = true },
    [GD_OP_lt] = { 2, BOTH(lt), WHOLE(lt), .gives_bool = true },
    [GD_OP_le] = { 2, BOTH(le), WHOLE(le), .gives_bool = true },
    [GD_OP_gt] = { 2, BOTH(gt), WHOLE(gt), .gives_bool = true },
    [GD_OP_ge] = { 2, BOTH(ge), WHOLE(ge), .gives_bool = true },
    [GD_OP_logical_and] = { 2, BOTH(logical_and), WHOLE(logical_and), .gives_bool = true },
    [GD_OP_logical_or] = { 2, BOTH(logical_or), WHOLE(logical_or), .gives_bool = true },
    [GD_OP_logical_xor] = { 2, BOTH(logical_xor), WHOLE(logical_xor), .gives_bool = true },
    [GD_OP_logical_not] = { 1, BOTH(logical_not), WHOLE(logical_not), .gives_bool = true },
    [GD_OP_isnan] = { 1, BOTH(isnan), .gives_bool = true },
    [GD_OP_isinf] = { 1, BOTH(isinf), .gives_bool = true },
    [GD_OP_bitwise_and] = { 2, WHOLE(bitwise_and) },
    [GD_OP_bitwise_or] = { 2, WHOLE(bitwise_or) },
    [GD_OP_bitwise_xor] = { 2, WHOLE(bitwise_xor) },
    [GD_OP_where] = { .arity = 3, .chooses = true }, /* a choice: tested by itself */
};

#endif
