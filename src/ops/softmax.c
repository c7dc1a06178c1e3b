/* ops/softmax.c: softmax and log-softmax. */
#include "ops/internal.h"

/* ---- softmax and log_softmax ---- */

static gd_status infer_softmax(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    const int64_t rounded = ((const gd_axis_attr *)attr)->rounded;
    return gd_infer_like(in[0], gd_rounded_dtype(in[0]->dtype, rounded), "gd_softmax", out);
}

static int axis_of(const gd_tensor *r)
{
    return ((const gd_axis_attr *)r->attr)->axis;
}

/* The vector-Jacobian product, O(n): r * (g - sum(g * r)). */
static bool vjp_softmax(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor *along = gd_sum(gd_mul(g, r), GD_AXES(axis_of(r)), true);
    return gd_put(&d[0], gd_mul(r, gd_sub(g, along)));
}

/* g - softmax(x) * sum(g), with softmax = exp(r). */
static bool vjp_log_softmax(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor *sum = gd_sum(g, GD_AXES(axis_of(r)), true);
    return gd_put(&d[0], gd_sub(g, gd_mul(gd_exp(r), sum)));
}

static gd_tensor *shifted(gd_tensor *x, int axis)
{
    return gd_sub(x, gd_detach(gd_max(x, GD_AXES(axis), true)));
}

static gd_tensor *decompose_softmax(int n, gd_tensor *const *in, const void *attr)
{
    (void)n;
    int axis = ((const gd_axis_attr *)attr)->axis;
    gd_tensor *e = gd_exp(shifted(in[0], axis));
    return gd_div(e, gd_sum(e, GD_AXES(axis), true));
}

static gd_tensor *decompose_log_softmax(int n, gd_tensor *const *in, const void *attr)
{
    (void)n;
    int axis = ((const gd_axis_attr *)attr)->axis;
    gd_tensor *s = shifted(in[0], axis);
    return gd_sub(s, gd_log(gd_sum(gd_exp(s), GD_AXES(axis), true)));
}

const gd_op gd_op_softmax = { .id = GD_OP_softmax,
                              .name = "softmax",
                              .arity = 1,
                              .flags = GD_OP_FULL,
                              .dtypes = GD_DTYPES_REAL,
                              .halves = 1,
                              .rounds = true,
                              .attr_size = sizeof(gd_axis_attr),
                              .infer = infer_softmax,
                              .vjp = vjp_softmax,
                              .decompose = decompose_softmax,
                              .format = gd_format_axis,
                              .flops = gd_flops_softmax,
                              .recompute = GD_RECOMPUTE_FUNCTION };

const gd_op gd_op_log_softmax = { .id = GD_OP_log_softmax,
                                  .name = "log_softmax",
                                  .arity = 1,
                                  .flags = GD_OP_FULL,
                                  .dtypes = GD_DTYPES_REAL,
                                  .halves = 1,
                                  .rounds = true,
                                  .attr_size = sizeof(gd_axis_attr),
                                  .infer = infer_softmax,
                                  .vjp = vjp_log_softmax,
                                  .decompose = decompose_log_softmax,
                                  .format = gd_format_axis,
                                  .flops = gd_flops_softmax,
                                  .recompute = GD_RECOMPUTE_FUNCTION };

static gd_tensor *along_axis(gd_op_id id, gd_tensor *x, int axis, const char *who)
{
    if (!gd_usable(x, who))
        return NULL;
    gd_axis_attr attr = { .axis = gd_axis_normal(axis, x->layout.rank, who) };
    if (attr.axis < 0)
        return NULL;
    const gd_dtype dtype = gd_float_dtype(gd_autocast_dtype(x->context, id, x->layout.dtype));
    /* The gradient reads the result before it is rounded. */
    if (gd_dtype_is_half(dtype) && !gd_has_history(x))
        attr.rounded = (int64_t)dtype;
    if (gd_may_read_halves(id, 1, &x, &attr))
        return gd_as_dtype(gd_apply1(id, x, &attr), dtype);
    attr.rounded = 0;
    return gd_as_dtype(gd_apply1(id, gd_as_dtype(x, gd_real_dtype(dtype)), &attr), dtype);
}

gd_tensor *gd_softmax(gd_tensor *x, int axis)
{
    return along_axis(GD_OP_softmax, x, axis, "gd_softmax");
}

gd_tensor *gd_log_softmax(gd_tensor *x, int axis)
{
    return along_axis(GD_OP_log_softmax, x, axis, "gd_log_softmax");
}
