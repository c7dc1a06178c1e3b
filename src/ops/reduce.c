/* ops/reduce.c: reductions and scans: rows, derivatives and builders; mean, var and their kind as
 * composites. */
#include "ops/internal.h"

#include <math.h>

/* ---- shapes ---- */

static gd_shape reduced_shape(const gd_layout *in, uint32_t axes, bool keep)
{
    gd_shape shape = GD_SCALAR;
    for (int i = 0; i < in->rank; i++) {
        if (!(axes & (1u << i)))
            shape.dim[shape.rank++] = in->shape[i];
        else if (keep)
            shape.dim[shape.rank++] = 1;
    }
    return shape;
}

static gd_status infer_reduce(const gd_layout *in, const void *attr, gd_dtype dtype,
                              const char *who, gd_layout *out)
{
    const gd_reduce_attr *a = attr;
    return gd_layout_init(out, reduced_shape(in, a->axes, a->keep), dtype, who);
}

static gd_status infer_total(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    return infer_reduce(in[0], attr, gd_total_dtype(gd_sums_dtype(in[0]->dtype)), "gd_sum", out);
}

static gd_status infer_extreme(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    const gd_reduce_attr *a = attr;
    for (int i = 0; i < in[0]->rank; i++)
        if ((a->axes & (1u << i)) && in[0]->shape[i] == 0)
            return gd_fail(GD_ERR_SHAPE, "gd_max: axis %d is empty and has no extreme", i);
    return infer_reduce(in[0], attr, gd_sums_dtype(in[0]->dtype), "gd_max", out);
}

static void format_reduce(const void *attr, char *text, size_t size)
{
    const gd_reduce_attr *a = attr;
    gd_text t = { text, size, 0 };
    gd_text_add(&t, "axes=");
    for (int i = 0, first = 1; i < GD_MAX_RANK; i++)
        if (a->axes & (1u << i)) {
            gd_text_add(&t, "%s%d", first ? "" : ",", i);
            first = 0;
        }
}

/* ---- derivatives ---- */

/* A result or its gradient with the reduced axes back as size 1. */
static gd_tensor *with_axes(gd_tensor *t, const gd_tensor *r)
{
    const gd_reduce_attr *a = r->attr;
    return gd_reshape(t, reduced_shape(&r->inputs[0]->layout, a->axes, true));
}

static bool vjp_sum(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    return gd_put(&d[0], gd_as_shape(with_axes(g, r), gd_tensor_shape(r->inputs[0])));
}

/* Among equal extremes the gradient is shared. */
static bool vjp_extreme(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    const gd_reduce_attr *a = r->attr;
    gd_axes axes = { .count = 0 };
    for (int i = 0; i < r->inputs[0]->layout.rank; i++)
        if (a->axes & (1u << i))
            axes.axis[axes.count++] = i;
    gd_tensor *chosen = gd_as_dtype(gd_eq(r->inputs[0], with_axes(r, r)), g->layout.dtype);
    gd_tensor *share = gd_div(with_axes(g, r), gd_sum(chosen, axes, true));
    return gd_put(&d[0], gd_mul(chosen, share));
}

/* Product of all others: exclusive products from both sides, which needs no division and so is
 * right at zeros. The reduced axes are brought together at the end first. */
static bool vjp_prod(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    const gd_reduce_attr *a = r->attr;
    gd_tensor *x = gd_widen(r->inputs[0]);
    if (!x)
        return false;
    int rank = x->layout.rank, kept = 0;
    if (gd_tensor_count(x) == 0)
        return true;
    if (a->axes == 0)
        return gd_put(&d[0], g);
    gd_axes order = { .count = rank }, inverse = { .count = rank };
    for (int pass = 0, at = 0; pass < 2; pass++)
        for (int i = 0; i < rank; i++)
            if (((a->axes >> i) & 1u) == (uint32_t)pass) {
                inverse.axis[i] = at;
                order.axis[at++] = i;
                kept += pass == 0;
            }
    gd_tensor *moved = gd_permute(x, order);
    gd_shape rows = gd_tensor_shape(moved), full = rows;
    rows.rank = kept + 1;
    rows.dim[kept] = -1;
    gd_tensor *flat = gd_reshape(moved, rows);
    if (!flat)
        return false;
    gd_shape one = gd_tensor_shape(flat);
    int64_t n = one.dim[kept];
    one.dim[kept] = 1;
    gd_tensor *ones = gd_ones(x->context, one, x->layout.dtype);
    gd_tensor *before =
        gd_concat(2, (gd_tensor *[]){ ones, gd_slice(flat, kept, 0, n - 1, 1) }, kept);
    gd_tensor *back = gd_flip(flat, GD_AXES(kept));
    gd_tensor *after =
        gd_concat(2, (gd_tensor *[]){ ones, gd_slice(back, kept, 0, n - 1, 1) }, kept);
    gd_tensor *others =
        gd_mul(gd_cumprod(before, kept), gd_flip(gd_cumprod(after, kept), GD_AXES(kept)));
    gd_tensor *scaled = gd_mul(others, gd_reshape(g, one));
    return gd_put(&d[0], gd_permute(gd_reshape(scaled, full), inverse));
}

/* ---- rows ---- */

#define REDUCED (GD_DTYPES_COMMON | GD_DTYPE_SET(GD_BOOL))
#define REDUCE_ROW(name_, flags_, halves_, infer_, vjp_, flops_)       \
    const gd_op gd_op_##name_ = { .id = GD_OP_##name_,                 \
                                  .name = #name_,                      \
                                  .arity = 1,                          \
                                  .flags = flags_,                     \
                                  .dtypes = REDUCED,                   \
                                  .halves = halves_,                   \
                                  .attr_size = sizeof(gd_reduce_attr), \
                                  .infer = infer_,                     \
                                  .vjp = vjp_,                         \
                                  .format = format_reduce,             \
                                  .flops = flops_,                     \
                                  .recompute = GD_RECOMPUTE_MOVES };
REDUCE_ROW(sum, GD_OP_FULL, 1, infer_total, vjp_sum, gd_flops_each_read)
REDUCE_ROW(prod, GD_OP_FULL, 1, infer_total, vjp_prod, gd_flops_each_read)
REDUCE_ROW(max, 0, 1, infer_extreme, vjp_extreme, gd_flops_each_read)
REDUCE_ROW(min, 0, 1, infer_extreme, vjp_extreme, gd_flops_each_read)

/* ---- arg reductions ---- */

static gd_status infer_arg(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    const gd_axis_attr *a = attr;
    if (in[0]->shape[a->axis] == 0)
        return gd_fail(GD_ERR_SHAPE, "gd_argmax: axis %d is empty and has no extreme", a->axis);
    return gd_layout_init(out, reduced_shape(in[0], 1u << a->axis, a->keep), GD_I64, "gd_argmax");
}

#define AXIS_ROW(name_, flags_, halves_, infer_, vjp_, flops_) \
    AXIS_ROW_OF(name_, flags_, halves_, false, infer_, vjp_, flops_)
#define AXIS_ROW_OF(name_, flags_, halves_, rounds_, infer_, vjp_, flops_) \
    const gd_op gd_op_##name_ = { .id = GD_OP_##name_,                     \
                                  .name = #name_,                          \
                                  .arity = 1,                              \
                                  .flags = flags_,                         \
                                  .dtypes = REDUCED,                       \
                                  .halves = halves_,                       \
                                  .rounds = rounds_,                       \
                                  .attr_size = sizeof(gd_axis_attr),       \
                                  .infer = infer_,                         \
                                  .vjp = vjp_,                             \
                                  .format = gd_format_axis,                \
                                  .flops = flops_,                         \
                                  .recompute = GD_RECOMPUTE_NEVER };
AXIS_ROW(argmax, 0, 1, infer_arg, NULL, gd_flops_each_read)
AXIS_ROW(argmin, 0, 1, infer_arg, NULL, gd_flops_each_read)

/* ---- scans ---- */

static gd_status infer_scan(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    const gd_dtype dtype = gd_total_dtype(gd_sums_dtype(in[0]->dtype));
    const int64_t rounded = ((const gd_axis_attr *)attr)->rounded;
    return gd_infer_like(in[0], gd_rounded_dtype(dtype, rounded), "gd_cumsum", out);
}

/* Sums from the end: sum over j >= i of t[j]. */
static gd_tensor *reverse_cumsum(gd_tensor *t, int axis)
{
    return gd_flip(gd_cumsum(gd_flip(t, GD_AXES(axis)), axis), GD_AXES(axis));
}

static bool vjp_cumsum(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    return gd_put(&d[0], reverse_cumsum(g, ((const gd_axis_attr *)r->attr)->axis));
}

/* d_i = p_i * s_i with p_i the product of what stands before i, and s_i = g_i + x_{i+1} * s_{i+1}.
 * This recurrence is solved by doubling (Kogge, Stone 1973): s_i covers `step` places from i on,
 * f_i is the product of x_{i+1} … x_{i+step}. Nothing is divided, so it is right at zeros, and so
 * are its derivatives. */
static bool vjp_cumprod(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    int axis = ((const gd_axis_attr *)r->attr)->axis;
    gd_tensor *x = gd_widen(r->inputs[0]), *s = gd_widen(g);
    if (!x || !s)
        return false;
    int64_t n = x->layout.shape[axis];
    if (n < 2)
        return gd_put(&d[0], g);
    gd_tensor *f = gd_slice(x, axis, 1, n, 1);
    for (int64_t step = 1; step < n; step *= 2) {
        gd_tensor *sum =
            gd_add(gd_slice(s, axis, 0, n - step, 1), gd_mul(f, gd_slice(s, axis, step, n, 1)));
        s = gd_concat(2, (gd_tensor *[]){ sum, gd_slice(s, axis, n - step, n, 1) }, axis);
        if (2 * step < n)
            f = gd_mul(gd_slice(f, axis, 0, n - 2 * step, 1), gd_slice(f, axis, step, n - step, 1));
    }
    gd_tensor *first = gd_slice(x, axis, 0, 1, 1);
    gd_tensor *before =
        gd_concat(2,
                  (gd_tensor *[]){ gd_ones(x->context, gd_tensor_shape(first), x->layout.dtype),
                                   gd_slice(x, axis, 0, n - 1, 1) },
                  axis);
    return gd_put(&d[0], gd_mul(gd_cumprod(before, axis), s));
}

AXIS_ROW_OF(cumsum, GD_OP_FULL, 1, true, infer_scan, vjp_cumsum, gd_flops_each)
AXIS_ROW_OF(cumprod, GD_OP_FULL, 1, true, infer_scan, vjp_cumprod, gd_flops_each)

/* ---- builders ---- */

/* u64 and i64 in each other's place in order: with the top bit turned. */
static gd_tensor *turn_top_bit(gd_tensor *x)
{
    return x ? gd_bitwise_xor(x, gd_scalar(x->context, -0x1p63, GD_I64)) : NULL;
}

/* x in the dtype op compares it in; f16 and bf16 as they are where the device reads them. */
static gd_tensor *comparable(gd_tensor *x, gd_op_id op, const void *attr)
{
    if (gd_may_read_halves(op, 1, &x, attr))
        return x;
    gd_tensor *real = gd_as_dtype(x, gd_compute_dtype(op, x->layout.dtype));
    return x->layout.dtype == GD_U64 ? turn_top_bit(real) : real;
}

static gd_tensor *reduce(gd_op_id id, gd_tensor *x, gd_axes axes, bool keep, const char *who)
{
    if (!gd_usable(x, who))
        return NULL;
    bool ok;
    gd_reduce_attr attr = { .axes = gd_axes_mask(axes, x->layout.rank, who, &ok), .keep = keep };
    if (!ok)
        return NULL;
    gd_dtype dtype = gd_autocast_dtype(x->context, id, x->layout.dtype);
    const bool is_extreme = id == GD_OP_max || id == GD_OP_min;
    const gd_dtype computed = gd_compute_dtype(id, dtype),
                   result = is_extreme ? dtype : gd_sum_dtype(dtype);
    if (is_extreme)
        x = comparable(x, id, &attr);
    else if (!gd_may_read_halves(id, 1, &x, &attr))
        x = gd_as_dtype(x, computed);
    gd_tensor *r = id == GD_OP_sum ? gd_sum_along(x, attr.axes, keep) : gd_apply1(id, x, &attr);
    if (is_extreme && dtype == GD_U64)
        r = turn_top_bit(r);
    return r && r->layout.dtype != result ? gd_as_dtype(r, result) : r;
}

gd_tensor *gd_sum(gd_tensor *x, gd_axes axes, bool keep)
{
    return GD_AS("gd_sum", reduce(GD_OP_sum, x, axes, keep, "gd_sum"));
}

gd_tensor *gd_prod(gd_tensor *x, gd_axes axes, bool keep)
{
    return GD_AS("gd_prod", reduce(GD_OP_prod, x, axes, keep, "gd_prod"));
}

gd_tensor *gd_max(gd_tensor *x, gd_axes axes, bool keep)
{
    return GD_AS("gd_max", reduce(GD_OP_max, x, axes, keep, "gd_max"));
}

gd_tensor *gd_min(gd_tensor *x, gd_axes axes, bool keep)
{
    return GD_AS("gd_min", reduce(GD_OP_min, x, axes, keep, "gd_min"));
}

static gd_tensor *arg_reduce(gd_op_id id, gd_tensor *x, int axis, bool keep, const char *who)
{
    if (!gd_usable(x, who))
        return NULL;
    gd_axis_attr attr = { .axis = gd_axis_normal(axis, x->layout.rank, who), .keep = keep };
    return attr.axis < 0 ? NULL : gd_apply1(id, comparable(x, id, &attr), &attr);
}

gd_tensor *gd_argmax(gd_tensor *x, int axis, bool keep)
{
    return GD_AS("gd_argmax", arg_reduce(GD_OP_argmax, x, axis, keep, "gd_argmax"));
}

gd_tensor *gd_argmin(gd_tensor *x, int axis, bool keep)
{
    return GD_AS("gd_argmin", arg_reduce(GD_OP_argmin, x, axis, keep, "gd_argmin"));
}

static gd_tensor *scan(gd_op_id id, gd_tensor *x, int axis, const char *who)
{
    if (!gd_usable(x, who))
        return NULL;
    gd_axis_attr attr = { .axis = gd_axis_normal(axis, x->layout.rank, who) };
    x = gd_autocast(id, x);
    if (attr.axis < 0 || !x)
        return NULL;
    gd_dtype dtype = x->layout.dtype;
    if (gd_dtype_is_half(dtype)) {
        attr.rounded = (int64_t)dtype;
        if (gd_may_read_halves(id, 1, &x, &attr))
            return gd_apply1(id, x, &attr);
        attr.rounded = 0;
    }
    gd_tensor *r = gd_apply1(id, gd_as_dtype(x, gd_compute_dtype(id, dtype)), &attr);
    return gd_as_dtype(r, gd_sum_dtype(dtype));
}

gd_tensor *gd_cumsum(gd_tensor *x, int axis)
{
    return GD_AS("gd_cumsum", scan(GD_OP_cumsum, x, axis, "gd_cumsum"));
}

gd_tensor *gd_cumprod(gd_tensor *x, int axis)
{
    return GD_AS("gd_cumprod", scan(GD_OP_cumprod, x, axis, "gd_cumprod"));
}

/* ---- composites ---- */

/* How many elements each result stands for, as a number. */
static double reduced_count(const gd_tensor *x, gd_axes axes)
{
    bool ok;
    uint32_t mask = gd_axes_mask(axes, x->layout.rank, "gd_mean", &ok);
    double count = 1.0;
    for (int i = 0; i < x->layout.rank; i++)
        if (mask & (1u << i))
            count *= (double)x->layout.shape[i];
    return count;
}

static gd_tensor *build_mean(gd_tensor *x, gd_axes axes, bool keep)
{
    if (!gd_usable(x, "gd_mean"))
        return NULL;
    bool ok;
    const gd_reduce_attr attr = { .axes = gd_axes_mask(axes, x->layout.rank, "gd_mean", &ok),
                                  .keep = keep };
    const gd_dtype dtype =
        gd_float_dtype(gd_autocast_dtype(x->context, GD_OP_sum, x->layout.dtype));
    if (!ok)
        return NULL;
    gd_tensor *real = gd_may_read_halves(GD_OP_sum, 1, &x, &attr) ? x : gd_widen(x);
    gd_tensor *sum = real ? gd_sum_along(real, attr.axes, keep) : NULL;
    return sum ? gd_as_dtype(gd_div_scalar(sum, reduced_count(x, axes)), dtype) : NULL;
}

gd_tensor *gd_mean(gd_tensor *x, gd_axes axes, bool keep)
{
    return GD_AS("gd_mean", build_mean(x, axes, keep));
}

static gd_tensor *build_var(gd_tensor *x, gd_axes axes, double correction, bool keep)
{
    if (!gd_usable(x, "gd_var") || !(x = gd_autocast(GD_OP_sum, x)))
        return NULL;
    gd_dtype dtype = gd_float_dtype(x->layout.dtype);
    gd_tensor *real = gd_widen(x);
    gd_tensor *deviation = gd_sub(real, gd_mean(real, axes, true));
    gd_tensor *sum = gd_sum(gd_square(deviation), axes, keep);
    return sum ? gd_as_dtype(gd_div_scalar(sum, fmax(reduced_count(x, axes) - correction, 0.0)),
                             dtype)
               : NULL;
}

gd_tensor *gd_var(gd_tensor *x, gd_axes axes, double correction, bool keep)
{
    return GD_AS("gd_var", build_var(x, axes, correction, keep));
}

/* Where x is 0, and a root has no slope, 1 stands in for it, so that the gradient is 0, not NaN. */
gd_tensor *gd_power_of_size(gd_tensor *x, double p)
{
    if (p >= 1.0)
        return gd_pow_scalar(x, p);
    gd_tensor *zero = gd_number_like(x, 0.0), *none = gd_eq(x, zero);
    gd_tensor *some = gd_where(none, gd_number_like(x, 1.0), x);
    return gd_where(none, zero, p == 0.5 ? gd_sqrt(some) : gd_pow_scalar(some, p));
}

gd_tensor *gd_std(gd_tensor *x, gd_axes axes, double correction, bool keep)
{
    if (gd_usable(x, "gd_std"))
        x = gd_autocast(GD_OP_sum, x);
    gd_tensor *variance = GD_AS("gd_std", gd_var(gd_widen(x), axes, correction, keep));
    return GD_AS("gd_std", gd_round_like(gd_power_of_size(variance, 0.5), x));
}

/* max + log(sum(exp(x - max))); an infinite max is not subtracted, so that all -inf gives -inf. */
static gd_tensor *build_logsumexp(gd_tensor *x, gd_axes axes, bool keep)
{
    if (!gd_usable(x, "gd_logsumexp") || !(x = gd_autocast(GD_OP_sum, x)))
        return NULL;
    gd_dtype dtype = gd_float_dtype(x->layout.dtype);
    gd_tensor *real = gd_widen(x);
    gd_tensor *top = gd_detach(gd_max(real, axes, true));
    gd_tensor *shift = gd_where(gd_isinf(top), gd_number_like(real, 0.0), top);
    gd_tensor *sum = gd_log(gd_sum(gd_exp(gd_sub(real, shift)), axes, true));
    gd_tensor *whole = gd_add(sum, shift);
    if (!whole || keep)
        return gd_as_dtype(whole, dtype);
    bool ok;
    uint32_t mask = gd_axes_mask(axes, x->layout.rank, "gd_logsumexp", &ok);
    return gd_as_dtype(gd_reshape(whole, reduced_shape(&x->layout, mask, false)), dtype);
}

gd_tensor *gd_logsumexp(gd_tensor *x, gd_axes axes, bool keep)
{
    return GD_AS("gd_logsumexp", build_logsumexp(x, axes, keep));
}

/* |x|^p summed, and its p-th root. */
static gd_tensor *power_norm(gd_tensor *x, double p, gd_axes axes, bool keep)
{
    gd_tensor *powers = p == 2.0 ? gd_square(x) : gd_power_of_size(gd_abs(x), p);
    return gd_power_of_size(gd_sum(powers, axes, keep), 1.0 / p);
}

static gd_tensor *build_norm(gd_tensor *x, double p, gd_axes axes, bool keep)
{
    if (!gd_usable(x, "gd_norm"))
        return NULL;
    if (isnan(p) || (p < 0.0 && !isinf(p)))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_norm: the order is %g, it must be 0, positive or infinite", p);
    if (!(x = gd_autocast(GD_OP_sum, x)))
        return NULL;
    gd_dtype dtype = gd_float_dtype(x->layout.dtype);
    gd_tensor *real = gd_widen(x), *r;
    if (isinf(p))
        r = p > 0.0 ? gd_max(gd_abs(real), axes, keep) : gd_min(gd_abs(real), axes, keep);
    else if (p == 0.0)
        r = gd_sum(gd_cast(gd_cast(real, GD_BOOL), gd_real_dtype(dtype)), axes, keep);
    else if (p == 1.0)
        r = gd_sum(gd_abs(real), axes, keep);
    else
        r = power_norm(real, p, axes, keep);
    return gd_as_dtype(r, dtype);
}

gd_tensor *gd_norm(gd_tensor *x, gd_axes axes, double p, bool keep)
{
    return GD_AS("gd_norm", build_norm(x, p, axes, keep));
}

static gd_tensor *build_all(gd_tensor *x, gd_axes axes, bool keep)
{
    gd_tensor *truth = gd_cast(x, GD_BOOL);
    return gd_as_dtype(gd_prod(truth, axes, keep), GD_BOOL);
}

gd_tensor *gd_all(gd_tensor *x, gd_axes axes, bool keep)
{
    return GD_AS("gd_all", build_all(x, axes, keep));
}

static gd_tensor *build_any(gd_tensor *x, gd_axes axes, bool keep)
{
    gd_tensor *truth = gd_cast(x, GD_BOOL);
    return gd_as_dtype(gd_sum(truth, axes, keep), GD_BOOL);
}

gd_tensor *gd_any(gd_tensor *x, gd_axes axes, bool keep)
{
    return GD_AS("gd_any", build_any(x, axes, keep));
}
