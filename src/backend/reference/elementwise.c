/* backend/reference/elementwise.c: every row of ops/elementwise.def over every dtype it accepts,
 * one element at a time, with the functions of libm. The loops are in elementwise_rows.h, included
 * once per type that formulas are computed in; here are the words they are written in. */
#include "backend/reference/reference.h"

#include <float.h>
#include <math.h>

/* ---- the vocabulary ---- */

/* In terms of
 *   C      the type the formula computes in
 *   OWN    the name of a libm function for C: those that are exact or correctly rounded, as sqrt
 *   WIDE   a wider float type, in which the others are evaluated before they are rounded to C
 *   LIBM   the name of a libm function for WIDE
 * Integers compute in a type wide enough for any intermediate result and are cut to their own bits
 * when stored. */
#define SELECT(condition, a, b) ((condition) ? (C)(a) : (C)(b))
#define MAX(x, y)               ((x) != (x) || (x) > (y) ? (x) : (y)) /* NaN if either is */
#define MIN(x, y)               ((x) != (x) || (x) < (y) ? (x) : (y))
#define ABS(x)                  NAME(absolute)(x)
#define SIGN(x)                 ((x) > 0 ? (C)1 : (x) < 0 ? (C)-1 : (x) == 0 ? (C)0 : (x))
#define RELU(x)                 ((x) < 0 ? (C)0 : (x))
#define FLOOR_DIV(x, y)         NAME(floor_quotient)(x, y)
#define FLOOR_MOD(x, y)         NAME(floor_remainder)(x, y)
#define TRUNC_MOD(x, y)         NAME(remainder)(x, y)
#define INTEGER_POW(x, y)       NAME(integer_power)(x, y)
#define COPYSIGN(x, y)          OWN(copysign)(x, y)
#define NEXTAFTER(x, y)         OWN(nextafter)(x, y)
#define FLUSH(x)                SELECT(ABS(x) < (sizeof(C) == sizeof(float) ? (C)FLT_MIN : (C)DBL_MIN), 0, x)
#define ROUND_BF16(x, y)                                                         \
    ((C)round_bf16(x, y, sizeof(C) == sizeof(float) ? FLT_MIN_EXP : DBL_MIN_EXP, \
                   sizeof(C) == sizeof(float) ? FLT_MAX_EXP : DBL_MAX_EXP))
#define INFINITY_    ((C)INFINITY)
#define FMA(x, y, z) OWN(fma)(x, y, z)

#define FUNCTION(name, x)      ((C)LIBM(name)((WIDE)(x)))
#define FUNCTION_2(name, x, y) ((C)LIBM(name)((WIDE)(x), (WIDE)(y)))
#define SQRT(x)                OWN(sqrt)(x)
#define FLOOR(x)               OWN(floor)(x)
#define CEIL(x)                OWN(ceil)(x)
#define RINT(x)                OWN(rint)(x)
#define TRUNC(x)               OWN(trunc)(x)
#define EXP(x)                 FUNCTION(exp, x)
#define EXP2(x)                FUNCTION(exp2, x)
#define EXPM1(x)               FUNCTION(expm1, x)
#define LOG(x)                 FUNCTION(log, x)
#define LOG2(x)                FUNCTION(log2, x)
#define LOG10(x)               FUNCTION(log10, x)
#define LOG1P(x)               FUNCTION(log1p, x)
#define SIN(x)                 FUNCTION(sin, x)
#define COS(x)                 FUNCTION(cos, x)
#define TAN(x)                 FUNCTION(tan, x)
#define ASIN(x)                FUNCTION(asin, x)
#define ACOS(x)                FUNCTION(acos, x)
#define ATAN(x)                FUNCTION(atan, x)
#define SINH(x)                FUNCTION(sinh, x)
#define COSH(x)                FUNCTION(cosh, x)
#define TANH(x)                FUNCTION(tanh, x)
#define ERF(x)                 FUNCTION(erf, x)
#define POW(x, y)              FUNCTION_2(pow, x, y)
#define ATAN2(y, x)            FUNCTION_2(atan2, y, x)
#define SIGMOID(x)             ((C)sigmoid(x))
#define SOFTPLUS(x)            ((C)softplus(x))
#define ERFINV(x)              ((C)erfinv(x))
#define LGAMMA(x)              ((C)log_gamma(x))
#define POLYGAMMA(n, x)        ((C)polygamma(n, x))
#define GELU(x)                NAME(activation_gelu)(x)
#define GELU_GRAD(g, x)        NAME(activation_gelu_grad)(g, x)
#define GELU_TANH(x)           NAME(activation_gelu_tanh)(x)
#define GELU_TANH_GRAD(g, x)   NAME(activation_gelu_tanh_grad)(g, x)
#define SILU(x)                ((x)*SIGMOID(x))
#define SILU_GRAD(g, x)        NAME(activation_silu_grad)(g, x)

/* x to 8 binary digits: up where what is behind them and y, of 2^16, make one. `least` and `most` are
 * the exponents of the smallest normal and of the largest number. */
static real round_bf16(real x, real y, int least, int most)
{
    if (!isfinite(x))
        return x;
    int exponent;
    (void)frexpl(x, &exponent);
    const int last = (exponent > least ? exponent : least) - 8; /* of the eighth digit */
    const real scaled = fabsl(ldexpl(x, -last)), whole = floorl(scaled);
    const bool is_largest = whole == 255 && exponent == most;
    const real noise = is_largest ? 32768 : rintl(fminl(fmaxl(y, 0), 65535));
    return copysignl(ldexpl(whole + (scaled - whole + noise / 65536 >= 1), last), x);
}

static real sigmoid(real x)
{
    return 1 / (1 + expl(-x));
}

static real softplus(real x)
{
    return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x));
}

/* The y with erf(y) = x: Halley's iteration from the estimate of Winitzki (2008). Toward |x| = 1
 * the equation is solved for erfc, which keeps its digits there. */
static real erfinv(real x)
{
    real a = fabsl(x);
    if (!(a < 1))
        return a == 1 ? copysignl(INFINITY, x) : NAN;
    if (a == 0)
        return x;
    const real pi = 3.14159265358979323846264338327950288L;
    real l = logl(1 - a) + log1pl(a), t = 2 / (pi * 0.147L) + l / 2;
    real y = sqrtl(sqrtl(t * t - l / 0.147L) - t);
    for (int i = 0; i < 6; i++) {
        real error = a > 0.5L ? (1 - a) - erfcl(y) : erfl(y) - a;
        real slope = 2 / sqrtl(pi) * expl(-y * y);
        real newton = error / slope;
        y -= newton / (1 + y * newton);
    }
    return copysignl(y, x);
}

static real log_gamma(real x)
{
#if defined(__GLIBC__)
    int sign;
    return lgammal_r(x, &sign);
#else
    return lgammal(x);
#endif
}

/* x^-n for n = 1 … 101, by squaring: powl takes a microsecond. */
static real inverse_power(real x, int n)
{
    real power = 1;
    for (; n > 0; n >>= 1) {
        power *= n & 1 ? x : 1;
        x *= x;
    }
    return 1 / power;
}

/* The derivatives of log_gamma: recurrence, then a few terms of the asymptotic series. Where
 * it is not defined: base/special.h. */
static real polygamma(real order, real x)
{
    real n = truncl(order), sum = 0;
    if (!(n >= 0 && n <= 100) || isnan(x) || x < (n > 0 ? -1e6L : -LDBL_MAX))
        return NAN;
    if (x <= 0 && x == floorl(x))
        return n > 0    ? (fmodl(n, 2) == 0 ? -INFINITY : INFINITY)
               : x == 0 ? copysignl(INFINITY, -x)
                        : NAN;
    if (isinf(x))
        return n > 0 ? 0 : x;
    if (n == 0 && x < 0) {
        const real pi = 3.14159265358979323846264338327950288L;
        return polygamma(0, 1 - x) - pi / tanl(pi * (x - rintl(x)));
    }
    const real least = 30 + n;
    while (x < least) {
        sum += n == 0 ? -1 / x : inverse_power(x, (int)n + 1);
        x += 1;
    }
    real square = x * x;
    if (n == 0)
        return sum + logl(x) - 1 / (2 * x) -
               (1 - (0.1L - (1 / 21.0L - (0.05L - 1 / (11 * square)) / square) / square) / square) /
                   (12 * square);
    real s = n + 1, power = inverse_power(x, (int)s), factor = s * power / x;
    static const real ratio[] = { 1 / 12.0L,
                                  -1 / 720.0L,
                                  1 / 30240.0L,
                                  -1 / 1209600.0L,
                                  1 / 47900160.0L,
                                  -691 / 1307674368000.0L,
                                  1 / 74724249600.0L,
                                  -3617 / 10670622842880000.0L,
                                  43867 / 5109094217170944000.0L,
                                  -174611 / 802857662698291200000.0L,
                                  77683 / 14101100039391805440000.0L,
                                  -236364091 / 1693824136731743669452800000.0L };
    sum += power * x / (s - 1) + power / 2;
    for (int k = 0; k < 12; k++) {
        sum += ratio[k] * factor;
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2) / square;
    }
    return (fmodl(n, 2) == 0 ? -1 : 1) * tgammal(n + 1) * sum;
}

/* Which rows a dtype has: KEEP_<types of the row> keeps or drops the row's text. */
#define KEEP(...) __VA_ARGS__
#define DROP(...)
#define KEEP_NUMERIC KEEP
#define KEEP_ALL     KEEP
#define KEEP_CHOOSE  KEEP

/* ---- f64; f32, which also computes f16 and bf16 ---- */
#define KEEP_FLOAT    KEEP
#define KEEP_WHOLE    KEEP
#define KEEP_INTEGRAL DROP
#define IS_FLOAT      1

#define NAME(name) name##_f64
#define C          double
#define WIDE       long double
#define LIBM(name) name##l
#define OWN(name)  name
#define LOAD       gd_ref_load
#define STORE      gd_ref_store
#include "backend/reference/elementwise_rows.h"

#define NAME(name) name##_f32
#define C          float
#define WIDE       double
#define LIBM(name) name
#define OWN(name)  name##f
#define LOAD       gd_ref_load
#define STORE      gd_ref_store
#include "backend/reference/elementwise_rows.h"

#undef KEEP_FLOAT
#undef KEEP_WHOLE
#undef KEEP_INTEGRAL
#undef IS_FLOAT

/* ---- integers and bool ---- */
#define KEEP_FLOAT    DROP
#define KEEP_WHOLE    DROP
#define KEEP_INTEGRAL KEEP
#define IS_FLOAT      0

__extension__ typedef __int128 int128;

static int128 load_whole(const gd_operand *operand, int64_t offset)
{
    int64_t whole = gd_ref_load_integer(operand, offset);
    return operand->layout->dtype == GD_U64 ? (int128)(uint64_t)whole : whole;
}

#define NAME(name)                     name##_integer
#define C                              int128
#define LOAD                           load_whole
#define STORE(operand, offset, number) gd_ref_store_integer(operand, offset, (int64_t)(number))
#include "backend/reference/elementwise_rows.h"

/* ---- the kernel of every row: the loop for the operands' dtype ---- */

static const gd_kernel_fn *const loops[GD_DTYPE_COUNT] = {
    [GD_F64] = loops_f64,     [GD_F32] = loops_f32,      [GD_F16] = loops_f32,
    [GD_BF16] = loops_f32,    [GD_I64] = loops_integer,  [GD_I32] = loops_integer,
    [GD_U8] = loops_integer,  [GD_BOOL] = loops_integer, [GD_I8] = loops_integer,
    [GD_I16] = loops_integer, [GD_U16] = loops_integer,  [GD_U32] = loops_integer,
    [GD_U64] = loops_integer,
};

static gd_status run_row(const gd_kernel_call *call)
{
    gd_dtype dtype =
        call->in[call->n - 1].layout->dtype; /* the last: the first of `where` is bool */
    return loops[dtype][call->op->id](call);
}

void gd_reference_register_elementwise(gd_kernel_fn *kernel)
{
    for (int op = 0; op < GD_OP_ELEMENTWISE_COUNT; op++)
        kernel[op] = run_row;
}
