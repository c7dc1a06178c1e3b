/* tests/support/op_rows_elementwise.c: the rows of the elementwise ops. The oracle of each is
 * written out here again, with the C library in long double, apart from the formulas of
 * ops/elementwise.def. */
#include "support/op_rows.h"

#include <math.h>

/* ---- shapes ---- */

static const op_case unary_cases[] = {
    { .shape = { SHAPE(5, 7, 3) } }, { .shape = { SHAPE(13) } },
    { .shape = { NUMBER } },         { .shape = { SHAPE(0) } },
    { .shape = { SHAPE(4, 0, 2) } }, { .shape = { SHAPE(1, 11, 1) } },
    { .shape = { SHAPE(3, 1031) } },
};

static const op_case binary_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(5, 7) } },
    { .shape = { SHAPE(13), SHAPE(13) } },
    { .shape = { NUMBER, NUMBER } },
    { .shape = { SHAPE(5, 1, 3), SHAPE(11, 1) } },
    { .shape = { NUMBER, SHAPE(13) } },
    { .shape = { SHAPE(7, 5), SHAPE(5) } },
    { .shape = { SHAPE(0, 3), SHAPE(1, 3) } },
    { .shape = { SHAPE(2, 3, 1), NUMBER } },
    { .shape = { SHAPE(1031), SHAPE(2, 1031) } },
    { .shape = { SHAPE(3, 1), SHAPE(1, 517) } },
};

static const op_case ternary_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(5, 7), SHAPE(5, 7) } },
    { .shape = { SHAPE(5, 1), SHAPE(7), SHAPE(5, 7) } },
    { .shape = { NUMBER, NUMBER, NUMBER } },
    { .shape = { SHAPE(11), NUMBER, SHAPE(1) } },
    { .shape = { SHAPE(0), SHAPE(0), SHAPE(1) } },
    { .shape = { SHAPE(2, 1031), SHAPE(1031), NUMBER } },
};

static const op_refusal binary_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3), SHAPE(4) }, { GD_I32, GD_I32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 3, 4), SHAPE(2, 4) }, { GD_I32, GD_I32 }, { 0 } },
};
static const op_refusal integral_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3), SHAPE(4) }, { GD_I32, GD_I32 }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(3), SHAPE(3) }, { GD_F32, GD_I32 }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(3), SHAPE(3) }, { GD_I32, GD_F64 }, { 0 } },
    { GD_ERR_DTYPE, { NUMBER, NUMBER }, { GD_F16, GD_F16 }, { 0 } },
};
static const op_refusal ternary_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3), SHAPE(4), SHAPE(3) }, { GD_BOOL, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(3), SHAPE(3), SHAPE(2, 2) }, { GD_BOOL, GD_F32, GD_F32 }, { 0 } },
};

/* ---- rows: operands' ranges keep clear of kinks and poles; special values are tried apart ---- */

#define VALUES(low, high)        \
    {                            \
        low, high, OPERAND_VALUE \
    }

#define UNARY(name_, low_, high_, result_, ulp_, flags_, formula)                                \
    static gd_tensor *build_##name_(gd_context *context, gd_tensor *const *in, const int64_t *p) \
    {                                                                                            \
        (void)context, (void)p;                                                                  \
        return gd_##name_(in[0]);                                                                \
    }                                                                                            \
    static long double oracle_##name_(long double x, long double y, long double z)               \
    {                                                                                            \
        (void)y, (void)z;                                                                        \
        return formula;                                                                          \
    }                                                                                            \
    extern const op_row op_row_##name_;                                                          \
    const op_row op_row_##name_ = { .name = #name_,                                              \
                                    .id = GD_OP_##name_,                                         \
                                    .operands = 1,                                               \
                                    .flags = flags_,                                             \
                                    .result = result_,                                           \
                                    .ulp = ulp_,                                                 \
                                    .operand = { VALUES(low_, high_) },                          \
                                    .cases = unary_cases,                                        \
                                    .case_count = COUNT(unary_cases),                            \
                                    .build = build_##name_,                                      \
                                    .oracle = oracle_##name_ };

#define BINARY_ROW(name_, low_x, high_x, low_y, high_y, result_, ulp_, flags_, refusals_, formula) \
    static gd_tensor *build_##name_(gd_context *context, gd_tensor *const *in, const int64_t *p)   \
    {                                                                                              \
        (void)context, (void)p;                                                                    \
        return gd_##name_(in[0], in[1]);                                                           \
    }                                                                                              \
    static long double oracle_##name_(long double x, long double y, long double z)                 \
    {                                                                                              \
        (void)z;                                                                                   \
        return formula;                                                                            \
    }                                                                                              \
    extern const op_row op_row_##name_;                                                            \
    const op_row op_row_##name_ = { .name = #name_,                                                \
                                    .id = GD_OP_##name_,                                           \
                                    .operands = 2,                                                 \
                                    .flags = flags_,                                               \
                                    .result = result_,                                             \
                                    .ulp = ulp_,                                                   \
                                    .operand = { VALUES(low_x, high_x), VALUES(low_y, high_y) },   \
                                    .cases = binary_cases,                                         \
                                    .case_count = COUNT(binary_cases),                             \
                                    .refusals = refusals_,                                         \
                                    .refusal_count = COUNT(refusals_),                             \
                                    .build = build_##name_,                                        \
                                    .oracle = oracle_##name_ };
#define BINARY(name, lx, hx, ly, hy, result, ulp, flags, formula) \
    BINARY_ROW(name, lx, hx, ly, hy, result, ulp, flags, binary_refusals, formula)
#define BITWISE(name, formula)                                                          \
    BINARY_ROW(name, -100, 100, -100, 100, RESULT_SAME, 0, OP_EXACT | OP_INTEGERS_ONLY, \
               integral_refusals, (long double)((int64_t)x formula(int64_t) y))

/* Python's // and %. Integers divided by 0 give 0; their oracle is never asked for that of floats.
 */
static long double python_mod(long double x, long double y)
{
    long double rest = fmodl(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

#define D  OP_DIFFERENTIABLE
#define E  OP_EXACT
#define DE (D | E)
#define DC (D | OP_COMPOUND)

BINARY(add, -20, 20, -20, 20, RESULT_NUMERIC, 0, DE, x + y)
BINARY(sub, -20, 20, -20, 20, RESULT_NUMERIC, 0, DE, x - y)
BINARY(mul, -20, 20, -20, 20, RESULT_NUMERIC, 0, DE, x *y)
BINARY(div, -20, 20, 0.5, 20, RESULT_FLOAT, 0, DE, x / y)
BINARY(floor_div, -20, 20, 1.2, 7, RESULT_NUMERIC, 0, DE, floorl(x / y))
BINARY(mod, -20, 20, 1.2, 7, RESULT_NUMERIC, 0, DE, python_mod(x, y))
BINARY(fmod, -20, 20, 1.2, 7, RESULT_NUMERIC, 0, DE, fmodl(x, y))
BINARY(pow, 0.2, 4, -3, 4, RESULT_FLOAT, 2, D, powl(x, y))
BINARY(pow_log, 0.2, 4, -3, 4, RESULT_FLOAT, 6, D, x == 0 && y >= 0 ? 0 : powl(x, y) * logl(x))
BINARY(maximum, -20, 20, -20, 20, RESULT_SAME, 0, DE, fmaxl(x, y))
BINARY(minimum, -20, 20, -20, 20, RESULT_SAME, 0, DE, fminl(x, y))
BINARY(atan2, -4, 4, -4, 4, RESULT_FLOAT, 2, D, atan2l(x, y))
BINARY(copysign, -20, 20, -4, 4, RESULT_FLOAT, 0, DE, copysignl(x, y))
/* The oracle does not know the dtype: the number beside x is one ulp from it. */
BINARY(nextafter, -20, 20, -4, 4, RESULT_FLOAT, 1, D, nextafterl(x, y))
/* x lies between two numbers of 8 digits; y of 65536 decides beside the part that is left of it. */
static long double round_bf16(long double x, long double y)
{
    int exponent;
    (void)frexpl(x, &exponent);
    const long double unit = ldexpl(1, exponent - 8), below = floorl(fabsl(x) / unit) * unit;
    const bool up = fabsl(x) - below >= unit * (1 - rintl(y) / 65536);
    return copysignl(up ? below + unit : below, x);
}
BINARY(round_bf16, -20, 20, 0, 65535, RESULT_FLOAT, 0, OP_EXACT, round_bf16(x, y))
static long double integer_pow(long double x, long double y)
{
    int64_t power = 1;
    for (int64_t n = (int64_t)y; n > 0; n--)
        power *= (int64_t)x;
    return (long double)power;
}
BINARY_ROW(integer_pow, -3, 3, 0, 4, RESULT_SAME, 0, E | OP_INTEGERS_ONLY, integral_refusals,
           integer_pow(x, y))
UNARY(neg, -20, 20, RESULT_NUMERIC, 0, DE, -x)
UNARY(abs, -20, 20, RESULT_NUMERIC, 0, DE, fabsl(x))
UNARY(sign, -20, 20, RESULT_NUMERIC, 0, DE, (x > 0) - (x < 0))
UNARY(flush_subnormal, -20, 20, RESULT_FLOAT, 0, DE, x)
UNARY(square, -20, 20, RESULT_NUMERIC, 0, DE, x *x)
UNARY(reciprocal, 0.3, 20, RESULT_FLOAT, 0, DE, 1 / x)
UNARY(sqrt, 0.1, 20, RESULT_FLOAT, 0, DE, sqrtl(x))
UNARY(rsqrt, 0.1, 20, RESULT_FLOAT, 0, DE, 1 / sqrtl(x))
UNARY(floor, -20, 20, RESULT_SAME, 0, DE, floorl(x))
UNARY(ceil, -20, 20, RESULT_SAME, 0, DE, ceill(x))
UNARY(round, -20, 20, RESULT_SAME, 0, DE, rintl(x))
UNARY(trunc, -20, 20, RESULT_SAME, 0, DE, truncl(x))

UNARY(exp, -5, 5, RESULT_FLOAT, 2, D, expl(x))
UNARY(exp2, -5, 5, RESULT_FLOAT, 2, D, exp2l(x))
UNARY(expm1, -3, 3, RESULT_FLOAT, 2, D, expm1l(x))
UNARY(log, 0.1, 20, RESULT_FLOAT, 2, D, logl(x))
UNARY(log2, 0.1, 20, RESULT_FLOAT, 2, D, log2l(x))
UNARY(log10, 0.1, 20, RESULT_FLOAT, 2, D, log10l(x))
UNARY(log1p, -0.9, 20, RESULT_FLOAT, 2, D, log1pl(x))

UNARY(sin, -10, 10, RESULT_FLOAT, 2, D, sinl(x))
UNARY(cos, -10, 10, RESULT_FLOAT, 2, D, cosl(x))
UNARY(tan, -1.4, 1.4, RESULT_FLOAT, 2, D, tanl(x))
UNARY(asin, -0.9, 0.9, RESULT_FLOAT, 2, D, asinl(x))
UNARY(acos, -0.9, 0.9, RESULT_FLOAT, 2, D, acosl(x))
UNARY(atan, -5, 5, RESULT_FLOAT, 2, D, atanl(x))
UNARY(sinh, -4, 4, RESULT_FLOAT, 2, D, sinhl(x))
UNARY(cosh, -4, 4, RESULT_FLOAT, 2, D, coshl(x))
UNARY(tanh, -3, 3, RESULT_FLOAT, 2, D, tanhl(x))

UNARY(relu, -20, 20, RESULT_NUMERIC, 0, DE, x > 0 ? x : 0)
BINARY(relu_grad, -20, 20, -20, 20, RESULT_NUMERIC, 0, DE, y > 0 ? x : 0)
/* Sums and products that round one by one, clear of cancellation. */
static long double normal_cdf(long double x)
{
    return (1 + erfl(x * 0.707106781186547524401L)) / 2;
}

static long double gelu_inner(long double x)
{
    return 0.797884560802865355880L * (x + 0.044715L * x * x * x);
}

static long double gelu_tanh_slope(long double x)
{
    const long double t = tanhl(gelu_inner(x));
    return (1 + t) / 2 +
           x / 2 * (1 - t * t) * 0.797884560802865355880L * (1 + 3 * 0.044715L * x * x);
}

static long double logistic(long double x)
{
    return 1 / (1 + expl(-x));
}

UNARY(gelu, 0.1, 3, RESULT_FLOAT, 8, DC, x *normal_cdf(x))
UNARY(gelu_tanh, 0.1, 3, RESULT_FLOAT, 8, DC, x / 2 * (1 + tanhl(gelu_inner(x))))
UNARY(silu, -5, 5, RESULT_FLOAT, 4, DC, x *logistic(x))
/* Their terms cancel where x is negative, as some of the special values are. */
BINARY(gelu_grad, -3, 3, 0.1, 3, RESULT_FLOAT, 16, DC,
       x *(normal_cdf(y) + y * expl(-y * y / 2) * 0.398942280401432677940L))
BINARY(gelu_tanh_grad, -3, 3, 0.1, 3, RESULT_FLOAT, 16, DC, x *gelu_tanh_slope(y))
BINARY(silu_grad, -3, 3, 0.1, 5, RESULT_FLOAT, 16, DC, x *logistic(y) * (1 + y * (1 - logistic(y))))
UNARY(sigmoid, -8, 8, RESULT_FLOAT, 2, D, 1 / (1 + expl(-x)))
UNARY(softplus, -8, 8, RESULT_FLOAT, 2, D, log1pl(expl(x)))
UNARY(erf, -2.5, 2.5, RESULT_FLOAT, 2, D, erfl(x))
/* Newton's method on erf, from 0: the inverse increases more slowly than the iteration leaves its
 * range for |x| <= 0.9. */
static long double erfinv(long double x)
{
    long double y = 0;
    for (int i = 0; i < 60; i++)
        y += (x - erfl(y)) * 0.886226925452758013649L * expl(fminl(y * y, 2.0L));
    return y;
}
UNARY(erfinv, -0.9, 0.9, RESULT_FLOAT, 3, D, erfinv(x))

UNARY(lgamma, 2.1, 20, RESULT_FLOAT, 8, D, lgammal(x))
static long double inverse_power(long double x, long double n)
{
    long double power = 1;
    for (; n > 0; n--)
        power *= x;
    return 1 / power;
}

/* Sums of 200 terms, then Euler and Maclaurin's formula. */
static long double polygamma(long double order, long double x)
{
    long double n = truncl(order), sum = 0, a = x + 200;
    for (int k = 199; k >= 0; k--)
        sum += n > 0 ? inverse_power(x + k, n + 1) : -1 / (x + k);
    if (n == 0)
        return logl(a) - 1 / (2 * a) - 1 / (12 * a * a) + 1 / (120 * a * a * a * a) -
               1 / (252 * a * a * a * a * a * a) + sum;
    sum += inverse_power(a, n) / n + inverse_power(a, n + 1) / 2 +
           (n + 1) * inverse_power(a, n + 2) / 12 -
           (n + 1) * (n + 2) * (n + 3) * inverse_power(a, n + 4) / 720;
    return (fmodl(n, 2) == 0 ? -1 : 1) * tgammal(n + 1) * sum;
}
/* Near a zero of digamma, which the special values come near to, the error is absolute. */
BINARY(polygamma, 0, 3.9, 1.7, 10, RESULT_FLOAT, 256, D, polygamma(x, y))

BINARY(eq, -3, 3, -3, 3, RESULT_BOOL, 0, E, x == y)
BINARY(ne, -3, 3, -3, 3, RESULT_BOOL, 0, E, x != y)
BINARY(lt, -3, 3, -3, 3, RESULT_BOOL, 0, E, x < y)
BINARY(le, -3, 3, -3, 3, RESULT_BOOL, 0, E, x <= y)
BINARY(gt, -3, 3, -3, 3, RESULT_BOOL, 0, E, x > y)
BINARY(ge, -3, 3, -3, 3, RESULT_BOOL, 0, E, x >= y)
BINARY(logical_and, -2, 2, -2, 2, RESULT_BOOL, 0, E, x != 0 && y != 0)
BINARY(logical_or, -2, 2, -2, 2, RESULT_BOOL, 0, E, x != 0 || y != 0)
BINARY(logical_xor, -2, 2, -2, 2, RESULT_BOOL, 0, E, (x != 0) != (y != 0))
UNARY(logical_not, -2, 2, RESULT_BOOL, 0, E, x == 0)
UNARY(isnan, -2, 2, RESULT_BOOL, 0, E, isnan(x) != 0)
UNARY(isinf, -2, 2, RESULT_BOOL, 0, E, isinf(x) != 0)
UNARY(signbit, -2, 2, RESULT_BOOL, 0, E, signbit(x) != 0)
BITWISE(bitwise_and, &)
BITWISE(bitwise_or, |)
BITWISE(bitwise_xor, ^)

static gd_tensor *build_where(gd_context *context, gd_tensor *const *in, const int64_t *p)
{
    (void)context, (void)p;
    return gd_where(in[0], in[1], in[2]);
}

static long double oracle_where(long double x, long double y, long double z)
{
    return x != 0 ? y : z;
}

extern const op_row op_row_where;
const op_row op_row_where = {
    .name = "where",
    .id = GD_OP_where,
    .operands = 3,
    .flags = DE,
    .result = RESULT_SAME,
    .operand = { { 0, 2, OPERAND_TRUTH }, VALUES(-20, 20), VALUES(-20, 20) },
    .cases = ternary_cases,
    .case_count = COUNT(ternary_cases),
    .refusals = ternary_refusals,
    .refusal_count = COUNT(ternary_refusals),
    .build = build_where,
    .oracle = oracle_where
};

static gd_tensor *build_scale_centred(gd_context *context, gd_tensor *const *in, const int64_t *p)
{
    (void)context, (void)p;
    return gd_scale_centred(in[0], in[1], in[2]);
}

static long double oracle_scale_centred(long double x, long double y, long double z)
{
    return (x - y) * z;
}

static gd_tensor *build_square_about_mean(gd_context *context, gd_tensor *const *in,
                                          const int64_t *p)
{
    (void)context, (void)p;
    return gd_square_about_mean(in[0], in[1]);
}

static long double oracle_square_about_mean(long double x, long double y, long double z)
{
    (void)z;
    return (x - y) * (x - y);
}

/* Its derivative, which is by x alone, is tried with batch normalisation. */
extern const op_row op_row_square_about_mean;
const op_row op_row_square_about_mean = { .name = "square_about_mean",
                                          .id = GD_OP_square_about_mean,
                                          .operands = 2,
                                          .flags = OP_COMPOUND,
                                          .result = RESULT_FLOAT,
                                          .ulp = 3,
                                          .operand = { VALUES(4, 20), VALUES(-20, -4) },
                                          .cases = binary_cases,
                                          .case_count = COUNT(binary_cases),
                                          .refusals = binary_refusals,
                                          .refusal_count = COUNT(binary_refusals),
                                          .build = build_square_about_mean,
                                          .oracle = oracle_square_about_mean };

/* The last two are of channels, whose sums the derivatives take at once. */
static const op_case scale_centred_cases[] = {
    { .shape = { SHAPE(2, 3, 5), SHAPE(2, 3, 5), SHAPE(2, 3, 5) } },
    { .shape = { SHAPE(4, 1), SHAPE(5), NUMBER } },
    { .shape = { NUMBER, NUMBER, NUMBER } },
    { .shape = { SHAPE(0, 3), SHAPE(3), SHAPE(1, 1) } },
    { .shape = { SHAPE(3, 4), SHAPE(4), SHAPE(4) } },
    { .shape = { SHAPE(2, 3, 5), SHAPE(3, 1), SHAPE(3, 1) } },
    { .shape = { SHAPE(2, 3, 2, 3), SHAPE(1, 3, 1, 1), SHAPE(3, 1, 1) } },
};
static const op_refusal scale_centred_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3), SHAPE(4), SHAPE(3) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(3), SHAPE(3), SHAPE(4) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
extern const op_row op_row_scale_centred;
const op_row op_row_scale_centred = { .name = "scale_centred",
                                      .id = GD_OP_scale_centred,
                                      .operands = 3,
                                      .flags = D | OP_COMPOUND,
                                      .result = RESULT_FLOAT,
                                      .ulp = 2,
                                      .operand = { VALUES(4, 20), VALUES(-20, -4),
                                                   VALUES(-20, 20) },
                                      .cases = scale_centred_cases,
                                      .case_count = COUNT(scale_centred_cases),
                                      .refusals = scale_centred_refusals,
                                      .refusal_count = COUNT(scale_centred_refusals),
                                      .build = build_scale_centred,
                                      .oracle = oracle_scale_centred };

/* ---- functions of one element made of several ops ---- */

#define FUNCTION(name_, low, high, result, ulp, flags, call, formula)                            \
    static gd_tensor *build_##name_(gd_context *context, gd_tensor *const *in, const int64_t *p) \
    {                                                                                            \
        (void)context, (void)p;                                                                  \
        gd_tensor *t = in[0];                                                                    \
        return call;                                                                             \
    }                                                                                            \
    static long double oracle_##name_(long double x, long double y, long double z)               \
    {                                                                                            \
        (void)y, (void)z;                                                                        \
        return formula;                                                                          \
    }                                                                                            \
    extern const op_row op_row_##name_;                                                          \
    const op_row op_row_##name_ = { #name_,                                                      \
                                    GD_OP_COUNT,                                                 \
                                    1,                                                           \
                                    flags,                                                       \
                                    result,                                                      \
                                    ulp,                                                         \
                                    { VALUES(low, high) },                                       \
                                    unary_cases,                                                 \
                                    COUNT(unary_cases),                                          \
                                    NULL,                                                        \
                                    0,                                                           \
                                    build_##name_,                                               \
                                    oracle_##name_ };

/* Tolerances of these: every op of theirs rounds, and the reference rounds as often. */
FUNCTION(clip, -5, 5, RESULT_FREE, 0, DE, gd_clip(t, -2.5, 3.5),
         x<-2.5L ? -2.5L : x> 3.5L ? 3.5L : x)
FUNCTION(add_scalar, -20, 20, RESULT_NUMERIC, 0, DE, gd_add_scalar(t, 3), x + 3)
FUNCTION(sub_scalar, -20, 20, RESULT_NUMERIC, 0, DE, gd_sub_scalar(t, 3), x - 3)
FUNCTION(rsub_scalar, -20, 20, RESULT_NUMERIC, 0, DE, gd_rsub_scalar(t, 3), 3 - x)
FUNCTION(mul_scalar, -20, 20, RESULT_NUMERIC, 0, DE, gd_mul_scalar(t, 3), 3 * x)
FUNCTION(mul_fraction, -20, 20, RESULT_FLOAT, 0, DE, gd_mul_scalar(t, 0.375), 0.375L * x)
FUNCTION(div_scalar, -20, 20, RESULT_FLOAT, 0, DE, gd_div_scalar(t, 3), x / 3)
FUNCTION(rdiv_scalar, 0.5, 20, RESULT_FLOAT, 0, DE, gd_rdiv_scalar(t, 3), 3 / x)
FUNCTION(pow_scalar, 0.5, 4, RESULT_FLOAT, 2, D, gd_pow_scalar(t, 3), x *x *x)

/* Two words for the formulas that choose. */
#define ELU(x, a) (x > 0 ? x : (a)*expm1l(x))
FUNCTION(log_sigmoid, -8, 8, RESULT_FLOAT, 2, D, gd_log_sigmoid(t), -log1pl(expl(-x)))
FUNCTION(leaky_relu, -20, 20, RESULT_FLOAT, 0, DE, gd_leaky_relu(t, 0.125), x > 0 ? x : x / 8)
FUNCTION(relu6, -20, 20, RESULT_FREE, 0, DE, gd_relu6(t), fminl(fmaxl(x, 0), 6))
FUNCTION(elu, -5, 5, RESULT_FLOAT, 4, D, gd_elu(t, 1.5), ELU(x, 1.5L))
FUNCTION(selu, -5, 5, RESULT_FLOAT, 4, D, gd_selu(t),
         1.0507009873554804934193349852946L * ELU(x, 1.6732632423543772848170429916717L))
FUNCTION(mish, 0.1, 5, RESULT_FLOAT, 8, D, gd_mish(t), x *tanhl(log1pl(expl(x))))
FUNCTION(hard_sigmoid, -2.5, 8, RESULT_FLOAT, 4, D, gd_hard_sigmoid(t),
         fminl(fmaxl(x + 3, 0), 6) / 6)
FUNCTION(hard_swish, -2.5, 8, RESULT_FLOAT, 4, D, gd_hard_swish(t),
         x *fminl(fmaxl(x + 3, 0), 6) / 6)
FUNCTION(softsign, -20, 20, RESULT_FLOAT, 1, D, gd_softsign(t), x / (1 + fabsl(x)))

FUNCTION(asinh, -20, 20, RESULT_FLOAT, 4, D, gd_asinh(t), asinhl(x))
FUNCTION(acosh, 1.1, 20, RESULT_FLOAT, 4, D, gd_acosh(t), acoshl(x))
FUNCTION(atanh, -0.9, 0.9, RESULT_FLOAT, 4, D, gd_atanh(t), atanhl(x))
FUNCTION(digamma, 1.7, 20, RESULT_FLOAT, 64, D, gd_digamma(t), polygamma(0, x))
FUNCTION(isfinite, -2, 2, RESULT_BOOL, 0, E, gd_isfinite(t), isfinite(x) != 0)
FUNCTION(floor_div_scalar, -20, 20, RESULT_NUMERIC, 0, DE, gd_floor_div_scalar(t, 3), floorl(x / 3))
FUNCTION(mod_scalar, -20, 20, RESULT_NUMERIC, 0, DE, gd_mod_scalar(t, 3), python_mod(x, 3))
FUNCTION(rfloor_div_scalar, 1.2, 20, RESULT_NUMERIC, 0, DE, gd_rfloor_div_scalar(t, 30),
         floorl(30 / x))
FUNCTION(rmod_scalar, 1.2, 20, RESULT_NUMERIC, 0, DE, gd_rmod_scalar(t, 30), python_mod(30, x))
FUNCTION(rpow_scalar, -3, 3, RESULT_FLOAT, 2, D, gd_rpow_scalar(t, 3), powl(3, x))
