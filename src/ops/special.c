/* ops/special.c: functions of one or two numbers made of other ops: inverse hyperbolic functions,
 * hypot, logaddexp, clamp, bit operations. Compiled, each is one pass. Branches not taken are kept
 * finite, because the gradient of a choice passes through both; and signs are chosen rather than
 * multiplied in, because that has a slope at 0. */
#include "ops/internal.h"

#include <math.h>

static const double ln_2 = 0.69314718055994530942;

/* -y where the sign of x is minus, that of -0 too, else y */
static gd_tensor *with_sign(gd_tensor *x, gd_tensor *y)
{
    return gd_where(gd_signbit(x), gd_neg(y), y);
}

/* log(2x) where x is so large that nothing else counts, else `small` of x there and of 1 elsewhere.
 */
static gd_tensor *log_beyond(gd_tensor *x, gd_tensor *(*small)(gd_tensor *x))
{
    gd_tensor *one = gd_number_like(x, 1.0), *beyond = gd_gt(x, gd_number_like(x, 1e8));
    gd_tensor *large = gd_add_scalar(gd_log(gd_where(beyond, x, one)), ln_2);
    return gd_where(beyond, large, small(gd_where(beyond, one, x)));
}

static gd_tensor *small_asinh(gd_tensor *x)
{
    gd_tensor *square = gd_square(x);
    gd_tensor *root = gd_add_scalar(gd_sqrt(gd_add_scalar(square, 1.0)), 1.0);
    return gd_log1p(gd_add(x, gd_div(square, root)));
}

static gd_tensor *build_asinh(gd_tensor *x)
{
    return with_sign(x, log_beyond(with_sign(x, x), small_asinh));
}

gd_tensor *gd_asinh(gd_tensor *x)
{
    return GD_AS("gd_asinh", gd_round_like(build_asinh(gd_widen(x)), x));
}

/* Two roots, because the root of the product exists below -1, where there is no acosh. */
static gd_tensor *small_acosh(gd_tensor *x)
{
    gd_tensor *above = gd_sub_scalar(x, 1.0);
    gd_tensor *root = gd_mul(gd_sqrt(above), gd_sqrt(gd_add_scalar(above, 2.0)));
    return gd_log1p(gd_add(above, root));
}

gd_tensor *gd_acosh(gd_tensor *x)
{
    return GD_AS("gd_acosh", gd_round_like(log_beyond(gd_widen(x), small_acosh), x));
}

static gd_tensor *build_atanh(gd_tensor *x)
{
    gd_tensor *size = with_sign(x, x);
    gd_tensor *ratio = gd_div(gd_mul_scalar(size, 2.0), gd_rsub_scalar(size, 1.0));
    return with_sign(x, gd_mul_scalar(gd_log1p(ratio), 0.5));
}

gd_tensor *gd_atanh(gd_tensor *x)
{
    return GD_AS("gd_atanh", gd_round_like(build_atanh(gd_widen(x)), x));
}

/* s * sqrt((x/s)^2 + (y/s)^2), s the larger of the two, as a constant: the result does not depend
 * on it. */
static gd_tensor *build_hypot(gd_tensor *x, gd_tensor *y)
{
    gd_tensor *size = gd_detach(gd_maximum(gd_abs(x), gd_abs(y)));
    gd_tensor *one = gd_number_like(size, 1.0), *zero = gd_number_like(size, 0.0);
    gd_tensor *infinite = gd_logical_or(gd_isinf(x), gd_isinf(y));
    gd_tensor *plain = gd_logical_or(gd_eq(size, zero), infinite);
    gd_tensor *s = gd_where(plain, one, size);
    gd_tensor *squares = gd_add(gd_square(gd_div(x, s)), gd_square(gd_div(y, s)));
    gd_tensor *none = gd_eq(squares, zero);
    gd_tensor *r = gd_mul(s, gd_sqrt(gd_where(gd_logical_or(none, infinite), one, squares)));
    return gd_where(infinite, gd_number_like(size, INFINITY), gd_where(none, zero, r));
}

gd_tensor *gd_hypot(gd_tensor *x, gd_tensor *y)
{
    return GD_AS("gd_hypot", gd_round_like_both(build_hypot(gd_widen(x), gd_widen(y)), x, y));
}

/* The larger, plus softplus of the difference, which is not taken of two equal infinities. */
static gd_tensor *build_logaddexp(gd_tensor *x, gd_tensor *y)
{
    gd_tensor *first = gd_gt(x, y);
    gd_tensor *larger = gd_where(first, x, y), *smaller = gd_where(first, y, x);
    gd_tensor *infinite = gd_logical_and(gd_isinf(larger), gd_eq(x, y));
    gd_tensor *zero = gd_number_like(larger, 0.0);
    gd_tensor *gap = gd_sub(gd_where(infinite, zero, smaller), gd_where(infinite, zero, larger));
    return gd_add(larger, gd_softplus(gap));
}

gd_tensor *gd_logaddexp(gd_tensor *x, gd_tensor *y)
{
    return GD_AS("gd_logaddexp",
                 gd_round_like_both(build_logaddexp(gd_widen(x), gd_widen(y)), x, y));
}

/* Where a bound is NaN, so is the result; no comparison would find it. */
static gd_tensor *clamp(gd_tensor *x, gd_tensor *low, gd_tensor *high)
{
    gd_tensor *inside = gd_where(gd_lt(x, low), low, gd_where(gd_gt(x, high), high, x));
    gd_tensor *bounds = gd_add(low, high);
    if (!inside || !gd_dtype_is_float(gd_tensor_dtype(bounds)))
        return inside;
    return gd_where(gd_logical_or(gd_isnan(low), gd_isnan(high)), bounds, inside);
}

gd_tensor *gd_clamp(gd_tensor *x, gd_tensor *low, gd_tensor *high)
{
    return GD_AS("gd_clamp", clamp(x, low, high));
}

gd_tensor *gd_isfinite(gd_tensor *x)
{
    gd_tensor *real =
        gd_usable(x, "gd_isfinite") ? gd_as_dtype(x, gd_float_dtype(x->layout.dtype)) : NULL;
    return GD_AS("gd_isfinite", gd_lt(gd_abs(real), gd_number_like(real, INFINITY)));
}

gd_tensor *gd_digamma(gd_tensor *x)
{
    gd_tensor *order = gd_usable(x, "gd_digamma")
                           ? gd_scalar(x->context, 0.0, gd_float_dtype(x->layout.dtype))
                           : NULL;
    return GD_AS("gd_digamma", gd_polygamma(order, x));
}

/* ---- bits ---- */

static gd_tensor *build_bitwise_not(gd_tensor *x)
{
    if (!gd_usable(x, "gd_bitwise_not"))
        return NULL;
    if (x->layout.dtype == GD_BOOL)
        return gd_logical_not(x);
    gd_tensor *all = gd_neg(gd_number_like(x, 1.0)); /* all bits, unsigned or not */
    return all ? gd_bitwise_xor(x, all) : NULL;
}

gd_tensor *gd_bitwise_not(gd_tensor *x)
{
    return GD_AS("gd_bitwise_not", build_bitwise_not(x));
}

/* Whether no count is negative. Where values are not known yet, the table refuses them at the run. */
static bool check_counts(gd_tensor *n, const char *who)
{
    if (n->context->trace || gd_tensor_count(n) == 0)
        return true;
    double least = gd_item(gd_min(n, GD_ALL_AXES, false));
    if (least >= 0)
        return true;
    (void)gd_fail(GD_ERR_INVALID, "%s: a shift by %.0f places; 0 or more are possible", who, least);
    return false;
}

/* Shifts compute in 64 bits, where products wrap as shifts do. */
static gd_tensor *shift(gd_tensor *x, gd_tensor *n, bool left, const char *who)
{
    if (!gd_usable(x, who) || !gd_usable(n, who))
        return NULL;
    gd_dtype dtype = gd_dtype_promote(x->layout.dtype, n->layout.dtype);
    if (gd_dtype_is_float(x->layout.dtype) || gd_dtype_is_float(n->layout.dtype))
        return gd_fail_null(GD_ERR_DTYPE, "%s: needs integers or bools, not %s", who,
                            gd_dtype_name(dtype));
    if (gd_dtype_is_float(dtype)) /* u64 and a signed one */
        dtype = x->layout.dtype;
    gd_dtype compute = x->layout.dtype == GD_U64 ? GD_U64 : GD_I64;
    if (!check_counts(n, who))
        return NULL;
    int64_t power[65] = { 0 }; /* 2^64 wraps to 0, and a quotient by 0 is 0 */
    for (int i = 0; i < 64; i++)
        power[i] = (int64_t)((uint64_t)1 << i);
    gd_tensor *wide = gd_as_dtype(x, compute), *r;
    gd_tensor *places = gd_as_dtype(gd_minimum(n, gd_number_like(n, 64.0)), GD_I64);
    gd_tensor *factor = gd_take(gd_from_host(x->context, GD_SHAPE(65), compute, power), places, 0);
    if (left) {
        r = gd_mul(wide, factor);
    } else if (compute == GD_U64) {
        r = gd_floor_div(wide, factor);
    } else { /* 2^63 is negative here: what it leaves is the sign */
        gd_tensor *zero = gd_number_like(wide, 0.0);
        gd_tensor *sign = gd_neg(gd_cast(gd_lt(wide, zero), GD_I64));
        gd_tensor *all = gd_ge(places, gd_number_like(places, 63.0));
        r = gd_where(all, sign, gd_floor_div(wide, factor));
    }
    return gd_as_dtype(r, dtype == GD_BOOL ? GD_I32 : dtype);
}

gd_tensor *gd_left_shift(gd_tensor *x, gd_tensor *n)
{
    return GD_AS("gd_left_shift", shift(x, n, true, "gd_left_shift"));
}

gd_tensor *gd_right_shift(gd_tensor *x, gd_tensor *n)
{
    return GD_AS("gd_right_shift", shift(x, n, false, "gd_right_shift"));
}
