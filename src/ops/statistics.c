/* ops/statistics.c: medians and quantiles, running extremes, counting, closeness: functions made of
 * other ops. None has a row of its own. */
#include "ops/internal.h"

#include <gradus/compile.h>

#include <math.h>

/* ---- order statistics ---- */

/* Elements `from` and the one behind it along the axis, of size 1 there. */
static gd_tensor *element(gd_tensor *x, int axis, int64_t i)
{
    return gd_slice(x, axis, i, i + 1, 1);
}

/* Two neighbours a <= b, `share` of the way from one to the other: exact where they are equal. */
static gd_tensor *between(gd_tensor *a, gd_tensor *b, double share)
{
    gd_tensor *step = gd_sub(b, a);
    return share < 0.5 ? gd_add(a, gd_mul_scalar(step, share))
                       : gd_sub(b, gd_mul_scalar(step, 1.0 - share));
}

static gd_tensor *half_way(gd_tensor *a, gd_tensor *b, double share)
{
    (void)share;
    return gd_mul_scalar(gd_add(a, b), 0.5);
}

/* The element at q of the way through x in rising order; NaN where one is. */
static gd_tensor *order_statistic(gd_tensor *x, int axis, double q, bool keep,
                                  gd_tensor *(*mix)(gd_tensor *a, gd_tensor *b, double share),
                                  const char *who)
{
    if (!x)
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, who);
    if (axis < 0)
        return NULL;
    int64_t n = x->layout.shape[axis];
    if (n == 0)
        return gd_fail_null(GD_ERR_SHAPE, "%s: axis %d is empty", who, axis);
    if (!(q >= 0.0 && q <= 1.0))
        return gd_fail_null(GD_ERR_INVALID, "%s: %g is not in 0 … 1", who, q);
    gd_tensor *sorted = gd_sort(x, axis, false);
    double at = q * (double)(n - 1);
    int64_t low = (int64_t)at;
    gd_tensor *value = element(sorted, axis, low);
    if (at > (double)low)
        value = mix(value, element(sorted, axis, low + 1), at - (double)low);
    gd_tensor *last = element(sorted, axis, n - 1);
    value = gd_where(gd_isnan(last), last, value);
    return keep ? value : gd_squeeze(value, axis);
}

gd_tensor *gd_quantile(gd_tensor *x, int axis, double q, bool keep)
{
    return GD_AS(
        "gd_quantile",
        gd_round_like(order_statistic(gd_widen(x), axis, q, keep, between, "gd_quantile"), x));
}

gd_tensor *gd_median(gd_tensor *x, int axis, bool keep)
{
    return GD_AS(
        "gd_median",
        gd_round_like(order_statistic(gd_widen(x), axis, 0.5, keep, half_way, "gd_median"), x));
}

/* ---- running extremes ---- */

/* Each element with all before it along the axis, by doubling: log2(n) passes. */
static gd_tensor *running(gd_tensor *x, int axis, gd_tensor *(*extreme)(gd_tensor *, gd_tensor *))
{
    int64_t n = x ? x->layout.shape[axis] : 0;
    for (int64_t step = 1; x && step < n; step *= 2) {
        gd_tensor *first = gd_slice(x, axis, 0, step, 1);
        gd_tensor *rest = extreme(gd_slice(x, axis, step, n, 1), gd_slice(x, axis, 0, n - step, 1));
        gd_tensor *parts[2] = { gd_as_dtype(first, rest ? rest->layout.dtype : GD_F32), rest };
        x = gd_concat(2, parts, axis);
    }
    return x;
}

/* Where the extreme of x so far was found last: i64, x's shape. */
static gd_tensor *found_last(gd_tensor *x, int axis,
                             gd_tensor *(*extreme)(gd_tensor *, gd_tensor *))
{
    gd_tensor *so_far = running(x, axis, extreme);
    gd_tensor *is_it = gd_logical_or(gd_eq(x, so_far), gd_ne(x, x)); /* NaN stays the extreme */
    gd_shape line = GD_SCALAR;
    for (int i = axis; i < x->layout.rank; i++)
        line.dim[line.rank++] = i == axis ? x->layout.shape[axis] : 1;
    gd_tensor *place = gd_arange(x->context, 0.0, (double)line.dim[0], 1.0, GD_I64);
    place = gd_where(is_it, gd_reshape(place, line), gd_number_like(place, 0.0));
    return running(place, axis, gd_maximum);
}

static gd_tensor *running_extreme(gd_tensor *x, int axis, gd_tensor **indices,
                                  gd_tensor *(*extreme)(gd_tensor *, gd_tensor *), const char *who)
{
    if (indices)
        *indices = NULL;
    if (!gd_usable(x, who))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, who);
    if (axis < 0)
        return NULL;
    gd_tensor *at = found_last(gd_detach(x), axis, extreme);
    gd_tensor *values = at ? gd_gather(x, at, axis) : NULL;
    if (values && indices)
        *indices = at;
    return values;
}

gd_tensor *gd_cummax(gd_tensor *x, int axis, gd_tensor **indices)
{
    return GD_AS("gd_cummax", running_extreme(x, axis, indices, gd_maximum, "gd_cummax"));
}

gd_tensor *gd_cummin(gd_tensor *x, int axis, gd_tensor **indices)
{
    return GD_AS("gd_cummin", running_extreme(x, axis, indices, gd_minimum, "gd_cummin"));
}

/* ---- counting ---- */

gd_tensor *gd_count_nonzero(gd_tensor *x, gd_axes axes, bool keep)
{
    if (!gd_usable(x, "gd_count_nonzero"))
        return NULL;
    return GD_AS("gd_count_nonzero", gd_sum(gd_as_dtype(x, GD_BOOL), axes, keep));
}

static gd_tensor *flat(gd_tensor *x)
{
    return x ? gd_reshape(x, GD_SHAPE(gd_tensor_count(x))) : NULL;
}

static gd_tensor *build_bincount(gd_tensor *x, gd_tensor *weights, int64_t bins)
{
    if (!gd_usable(x, "gd_bincount") || (weights && !gd_usable(weights, "gd_bincount")))
        return NULL;
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    if (bins < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_bincount: %lld bins", (long long)bins);
    if (gd_dtype_is_float(x->layout.dtype))
        return gd_fail_null(GD_ERR_DTYPE, "gd_bincount: counts integers, not %s",
                            gd_dtype_name(x->layout.dtype));
    if (weights && !gd_layout_same_shape(&x->layout, &weights->layout))
        return gd_fail_null(GD_ERR_SHAPE, "gd_bincount: the weights are %s, the numbers %s",
                            gd_layout_text(&weights->layout, a), gd_layout_text(&x->layout, b));
    gd_dtype dtype = weights ? gd_sum_dtype(weights->layout.dtype) : GD_I64;
    if (gd_dtype_is_float(dtype))
        dtype = gd_real_dtype(dtype);
    gd_tensor *each = weights ? flat(gd_as_dtype(weights, dtype))
                              : gd_ones(x->context, GD_SHAPE(gd_tensor_count(x)), dtype);
    gd_tensor *none = gd_zeros(x->context, GD_SHAPE(bins), dtype);
    gd_tensor *sums =
        each && none ? gd_scatter_add(none, flat(gd_as_dtype(x, GD_I64)), each, 0) : NULL;
    return sums && weights && gd_dtype_is_float(weights->layout.dtype)
               ? gd_as_dtype(sums, weights->layout.dtype)
               : sums;
}

gd_tensor *gd_bincount(gd_tensor *x, gd_tensor *weights, int64_t bins)
{
    return GD_AS("gd_bincount", build_bincount(x, weights, bins));
}

/* What lies in none of the bins is counted in one more, which is left out. */
static gd_tensor *build_histogram(gd_tensor *x, int64_t bins, double low, double high)
{
    if (!gd_usable(x, "gd_histogram"))
        return NULL;
    if (bins < 1 || !isfinite(low) || !isfinite(high) || !(low < high))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_histogram: %lld bins from %g to %g; at least one is needed, and "
                            "bounds in order",
                            (long long)bins, low, high);
    gd_tensor *edges = gd_linspace(x->context, low, high, bins + 1, GD_F64);
    gd_tensor *values = flat(gd_as_dtype(gd_detach(x), GD_F64));
    if (!edges || !values)
        return NULL;
    gd_tensor *bin = gd_sub_scalar(gd_searchsorted(edges, values, true), 1.0);
    gd_tensor *outside = bin ? gd_number_like(bin, (double)bins) : NULL;
    gd_tensor *last = bin ? gd_number_like(bin, (double)(bins - 1)) : NULL;
    bin = gd_where(gd_eq(values, gd_number_like(values, high)), last, bin);
    bin = gd_where(gd_lt(bin, gd_number_like(bin, 0.0)), outside, bin);
    gd_tensor *counts = gd_bincount(bin, NULL, bins + 1);
    return counts ? gd_slice(counts, 0, 0, bins, 1) : NULL;
}

gd_tensor *gd_histogram(gd_tensor *x, int64_t bins, double low, double high)
{
    return GD_AS("gd_histogram", build_histogram(x, bins, low, high));
}

/* ---- neighbours ---- */

gd_tensor *gd_diff(gd_tensor *x, int axis)
{
    if (!gd_usable(x, "gd_diff"))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, "gd_diff");
    if (axis < 0)
        return NULL;
    return GD_AS("gd_diff", gd_sub(gd_slice(x, axis, 1, GD_END, 1), gd_slice(x, axis, 0, -1, 1)));
}

gd_tensor *gd_lerp(gd_tensor *x, gd_tensor *y, gd_tensor *weight)
{
    gd_tensor *from = gd_widen(x), *to = gd_widen(y), *share = gd_widen(weight);
    return GD_AS("gd_lerp",
                 gd_round_like_both(gd_add(from, gd_mul(share, gd_sub(to, from))), x, y));
}

/* ---- closeness ---- */

/* In f64 for integers. */
static gd_tensor *comparable(gd_tensor *x)
{
    gd_dtype dtype = x->layout.dtype;
    return gd_as_dtype(x, gd_dtype_is_float(dtype) ? gd_real_dtype(dtype) : GD_F64);
}

static gd_tensor *build_isclose(gd_tensor *x, gd_tensor *y, double relative, double absolute,
                                bool equal_nan)
{
    if (!gd_usable(x, "gd_isclose") || !gd_usable(y, "gd_isclose"))
        return NULL;
    if (!(relative >= 0.0) || !(absolute >= 0.0))
        return gd_fail_null(GD_ERR_INVALID, "gd_isclose: tolerances %g and %g", relative, absolute);
    x = comparable(gd_detach(x));
    y = comparable(gd_detach(y));
    if (!x || !y)
        return NULL;
    gd_tensor *bound = gd_add_scalar(gd_mul_scalar(gd_abs(y), relative), absolute);
    gd_tensor *near = gd_logical_and(gd_le(gd_abs(gd_sub(x, y)), bound), gd_isfinite(y));
    gd_tensor *close = gd_logical_or(gd_eq(x, y), near);
    return equal_nan ? gd_logical_or(close, gd_logical_and(gd_isnan(x), gd_isnan(y))) : close;
}

gd_tensor *gd_isclose(gd_tensor *x, gd_tensor *y, double relative, double absolute, bool equal_nan)
{
    return GD_AS("gd_isclose", build_isclose(x, y, relative, absolute, equal_nan));
}

/* Whether all of a bool tensor holds; false for NULL and on an error. */
static bool holds(gd_tensor *truth)
{
    return truth && gd_item(gd_all(truth, GD_ALL_AXES, false)) == 1.0;
}

bool gd_allclose(gd_tensor *x, gd_tensor *y, double relative, double absolute, bool equal_nan)
{
    if (!gd_usable(x, "gd_allclose") || !gd_usable(y, "gd_allclose") ||
        gd_scope_begin(x->context) != GD_OK)
        return false;
    gd_context *context = x->context;
    gd_tensor *truth = GD_AS("gd_allclose", build_isclose(x, y, relative, absolute, equal_nan));
    bool all = holds(truth);
    (void)gd_scope_end(context);
    return all;
}

bool gd_equal(gd_tensor *x, gd_tensor *y)
{
    if (!gd_usable(x, "gd_equal") || !gd_usable(y, "gd_equal") ||
        !gd_layout_same_shape(&x->layout, &y->layout) || gd_scope_begin(x->context) != GD_OK)
        return false;
    gd_context *context = x->context;
    bool all = holds(GD_AS("gd_equal", gd_eq(x, y)));
    (void)gd_scope_end(context);
    return all;
}

/* ---- others of NumPy ---- */

static gd_tensor *build_isin(gd_tensor *x, gd_tensor *values)
{
    if (!gd_usable(x, "gd_isin") || !gd_usable(values, "gd_isin"))
        return NULL;
    int64_t n = gd_tensor_count(values);
    if (n == 0)
        return gd_zeros(x->context, gd_tensor_shape(x), GD_BOOL);
    gd_dtype dtype = gd_dtype_promote(x->layout.dtype, values->layout.dtype);
    gd_tensor *wanted = gd_as_dtype(gd_detach(x), dtype);
    gd_tensor *sorted = gd_sort(flat(gd_as_dtype(gd_detach(values), dtype)), 0, false);
    gd_tensor *place = gd_searchsorted(sorted, wanted, false);
    place = place ? gd_minimum(place, gd_number_like(place, (double)(n - 1))) : NULL;
    return place ? gd_eq(gd_take(sorted, place, 0), wanted) : NULL;
}

gd_tensor *gd_isin(gd_tensor *x, gd_tensor *values)
{
    return GD_AS("gd_isin", build_isin(x, values));
}

static gd_tensor *build_nan_to_num(gd_tensor *x, double nan, double above, double below)
{
    if (!gd_usable(x, "gd_nan_to_num"))
        return NULL;
    if (!gd_dtype_is_float(x->layout.dtype))
        return x;
    gd_tensor *highest = gd_eq(x, gd_number_like(x, (double)INFINITY));
    gd_tensor *lowest = gd_eq(x, gd_number_like(x, -(double)INFINITY));
    gd_tensor *t = gd_where(gd_isnan(x), gd_number_like(x, nan), x);
    t = gd_where(highest, gd_number_like(x, above), t);
    return gd_where(lowest, gd_number_like(x, below), t);
}

gd_tensor *gd_nan_to_num(gd_tensor *x, double nan, double above, double below)
{
    return GD_AS("gd_nan_to_num", build_nan_to_num(x, nan, above, below));
}
