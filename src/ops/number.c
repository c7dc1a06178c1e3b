/* ops/number.c: C numbers beside tensors: which numbers a dtype can hold, and the builders that
 * take one, made of those that take two tensors. */
#include "ops/internal.h"

#include <math.h>

/* ---- which numbers ---- */

/* The least whole number of an integer dtype and the one behind its largest. */
static void integer_range(gd_dtype dtype, double *least, double *end)
{
    const bool is_signed = gd_dtype_promote(dtype, GD_I8) == dtype;
    const int bits = 8 * (int)gd_dtype_size(dtype);
    *least = is_signed ? -ldexp(1.0, bits - 1) : 0.0;
    *end = ldexp(1.0, is_signed ? bits - 1 : bits);
}

bool gd_check_number(double value, gd_dtype dtype, const char *who)
{
    if (!gd_dtype_is_integer(dtype))
        return true;
    double least, end;
    integer_range(dtype, &least, &end);
    if (value == floor(value) && value >= least && value < end)
        return true;
    (void)gd_fail(GD_ERR_INVALID, "%s: %s cannot hold %.17g", who, gd_dtype_name(dtype), value);
    return false;
}

static bool is_whole(double c)
{
    return isfinite(c) && c == floor(c);
}

/* c as a 0-d tensor, beside x in arithmetic: of x's dtype; f32 where x is of integers and c is not
 * whole. NULL, recorded: whole, but no number of x's dtype. */
static gd_tensor *number_for(gd_tensor *x, double c)
{
    if (!gd_usable(x, "gd_scalar"))
        return NULL;
    gd_dtype dtype = x->layout.dtype;
    if (!gd_dtype_is_float(dtype))
        dtype = !is_whole(c) ? GD_F32 : dtype == GD_BOOL ? GD_I32 : dtype;
    return gd_scalar(x->context, c, dtype);
}

/* The same beside x where integers are computed with as f32. */
static gd_tensor *real_number_for(gd_tensor *x, double c)
{
    return gd_usable(x, "gd_scalar") ? gd_scalar(x->context, c, gd_float_dtype(x->layout.dtype))
                                     : NULL;
}

/* ---- arithmetic ---- */

gd_tensor *gd_add_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_add_scalar", gd_add(x, number_for(x, c)));
}

gd_tensor *gd_sub_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_sub_scalar", gd_sub(x, number_for(x, c)));
}

gd_tensor *gd_rsub_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_rsub_scalar", gd_sub(number_for(x, c), x));
}

gd_tensor *gd_mul_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_mul_scalar", gd_mul(x, number_for(x, c)));
}

gd_tensor *gd_div_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_div_scalar", gd_div(x, real_number_for(x, c)));
}

gd_tensor *gd_rdiv_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_rdiv_scalar", gd_div(real_number_for(x, c), x));
}

gd_tensor *gd_pow_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_pow_scalar", gd_pow(x, real_number_for(x, c)));
}

gd_tensor *gd_rpow_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_rpow_scalar", gd_pow(real_number_for(x, c), x));
}

gd_tensor *gd_floor_div_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_floor_div_scalar", gd_floor_div(x, number_for(x, c)));
}

gd_tensor *gd_rfloor_div_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_rfloor_div_scalar", gd_floor_div(number_for(x, c), x));
}

gd_tensor *gd_mod_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_mod_scalar", gd_mod(x, number_for(x, c)));
}

gd_tensor *gd_rmod_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_rmod_scalar", gd_mod(number_for(x, c), x));
}

gd_tensor *gd_maximum_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_maximum_scalar", gd_maximum(x, number_for(x, c)));
}

gd_tensor *gd_minimum_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_minimum_scalar", gd_minimum(x, number_for(x, c)));
}

/* ---- comparisons ---- */

typedef gd_tensor *(*comparison)(gd_tensor *x, gd_tensor *y);

/* Of integers and c, by value: `bound` is the whole number that stands for c, or one beyond what the
 * dtype holds, on the side of c. */
static gd_tensor *compare_integers(gd_tensor *x, comparison compare, double bound)
{
    double least, end;
    x = x->layout.dtype == GD_BOOL ? gd_as_dtype(x, GD_I32) : x;
    if (!x)
        return NULL;
    integer_range(x->layout.dtype, &least, &end);
    if (bound >= least && bound < end)
        return compare(x, gd_scalar(x->context, bound, x->layout.dtype));
    /* As every number of the dtype: 0 against one that is as far away. */
    gd_tensor *zero = gd_scalar(x->context, 0.0, GD_F32);
    gd_tensor *truth = compare(zero, gd_scalar(x->context, bound < least ? -1.0 : 1.0, GD_F32));
    return gd_as_shape(truth, gd_tensor_shape(x));
}

/* `bound`: of c, for integers: its floor or ceiling. */
static gd_tensor *compare_number(gd_tensor *x, comparison compare, double c, double bound,
                                 const char *who)
{
    if (!gd_usable(x, who))
        return NULL;
    if (gd_dtype_is_float(x->layout.dtype))
        return compare(x, gd_number_like(x, c));
    return isnan(c) ? gd_full(x->context, gd_tensor_shape(x), compare == gd_ne, GD_BOOL)
                    : compare_integers(x, compare, bound);
}

/* A number that is not whole is no integer's: any beyond all of them will do. */
static double whole_or_beyond(double c)
{
    return c == floor(c) ? c : (double)INFINITY;
}

gd_tensor *gd_eq_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_eq_scalar", compare_number(x, gd_eq, c, whole_or_beyond(c), "gd_eq_scalar"));
}

gd_tensor *gd_ne_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_ne_scalar", compare_number(x, gd_ne, c, whole_or_beyond(c), "gd_ne_scalar"));
}

gd_tensor *gd_lt_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_lt_scalar", compare_number(x, gd_lt, c, ceil(c), "gd_lt_scalar"));
}

gd_tensor *gd_le_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_le_scalar", compare_number(x, gd_le, c, floor(c), "gd_le_scalar"));
}

gd_tensor *gd_gt_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_gt_scalar", compare_number(x, gd_gt, c, floor(c), "gd_gt_scalar"));
}

gd_tensor *gd_ge_scalar(gd_tensor *x, double c)
{
    return GD_AS("gd_ge_scalar", compare_number(x, gd_ge, c, ceil(c), "gd_ge_scalar"));
}

/* ---- in place ---- */

gd_tensor *gd_add_scalar_(gd_tensor *x, double c)
{
    return GD_AS("gd_add_scalar_", gd_add_(x, gd_number_like(x, c)));
}

gd_tensor *gd_mul_scalar_(gd_tensor *x, double c)
{
    return GD_AS("gd_mul_scalar_", gd_mul_(x, gd_number_like(x, c)));
}

/* ---- bounds ---- */

/* By choice rather than by min and max: at a bound itself the gradient is the inner one. Of
 * integers a bound beyond what the dtype holds does not bind. */
static gd_tensor *clip(gd_tensor *x, double low, double high)
{
    if (isnan(low) || isnan(high))
        return gd_fail_null(GD_ERR_INVALID, "gd_clip: the bounds are %g and %g", low, high);
    low = fmin(low, high);
    double least = -INFINITY, end = INFINITY;
    if (!gd_dtype_is_float(x->layout.dtype)) {
        x = x->layout.dtype == GD_BOOL ? gd_as_dtype(x, GD_I32) : x;
        if (!x)
            return NULL;
        integer_range(x->layout.dtype, &least, &end);
    }
    gd_tensor *upper = high < end ? number_for(x, high) : NULL;
    gd_tensor *lower = low > least ? number_for(x, low) : NULL;
    if ((high < end && !upper) || (low > least && !lower))
        return NULL;
    gd_tensor *below = upper ? gd_where(gd_gt(x, upper), upper, x) : x;
    return lower ? gd_where(gd_lt(x, lower), lower, below) : below;
}

gd_tensor *gd_clip(gd_tensor *x, double low, double high)
{
    return gd_usable(x, "gd_clip") ? GD_AS("gd_clip", clip(x, low, high)) : NULL;
}
