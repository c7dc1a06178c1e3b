/* ops/softmax.c: softmax, log-softmax, cross-entropy, losses and activations made of simpler ops.
 */
#include "ops/internal.h"

/* ---- softmax and log_softmax ---- */

static gd_status infer_softmax(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)attr;
    if (in[0]->dtype != GD_F32 && in[0]->dtype != GD_F64)
        return gd_fail(GD_ERR_DTYPE, "gd_softmax: computes with f32 and f64, not %s",
                       gd_dtype_name(in[0]->dtype));
    return gd_infer_like(in[0], in[0]->dtype, "gd_softmax", out);
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

static void format_axis(const void *attr, char *text, size_t size)
{
    snprintf(text, size, "axis=%d", ((const gd_axis_attr *)attr)->axis);
}

const gd_op gd_op_softmax = { .id = GD_OP_softmax,
                              .name = "softmax",
                              .arity = 1,
                              .attr_size = sizeof(gd_axis_attr),
                              .infer = infer_softmax,
                              .vjp = vjp_softmax,
                              .decompose = decompose_softmax,
                              .format = format_axis };

const gd_op gd_op_log_softmax = { .id = GD_OP_log_softmax,
                                  .name = "log_softmax",
                                  .arity = 1,
                                  .attr_size = sizeof(gd_axis_attr),
                                  .infer = infer_softmax,
                                  .vjp = vjp_log_softmax,
                                  .decompose = decompose_log_softmax,
                                  .format = format_axis };

static gd_tensor *along_axis(gd_op_id id, gd_tensor *x, int axis, const char *who)
{
    if (!x)
        return NULL;
    gd_axis_attr attr = { .axis = gd_axis_normal(axis, x->layout.rank, who) };
    if (attr.axis < 0)
        return NULL;
    gd_dtype dtype = gd_float_dtype(x->layout.dtype);
    return gd_as_dtype(gd_apply1(id, gd_as_dtype(x, gd_compute_dtype(dtype)), &attr), dtype);
}

gd_tensor *gd_softmax(gd_tensor *x, int axis)
{
    return along_axis(GD_OP_softmax, x, axis, "gd_softmax");
}

gd_tensor *gd_log_softmax(gd_tensor *x, int axis)
{
    return along_axis(GD_OP_log_softmax, x, axis, "gd_log_softmax");
}

/* ---- cross-entropy with class indices: logits [n, c], labels [n] -> [n] ---- */

static gd_status check_logits(const gd_layout *logits, const gd_layout *labels)
{
    if (logits->rank != 2 || labels->rank != 1 || logits->shape[0] != labels->shape[0]) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail(
            GD_ERR_SHAPE,
            "gd_cross_entropy: logits %s and class indices %s; [n, classes] and [n] expected",
            gd_layout_text(logits, a), gd_layout_text(labels, b));
    }
    if (logits->dtype != GD_F32 && logits->dtype != GD_F64)
        return gd_fail(GD_ERR_DTYPE, "gd_cross_entropy: logits are %s",
                       gd_dtype_name(logits->dtype));
    if (labels->dtype != GD_I64 && labels->dtype != GD_I32 && labels->dtype != GD_U8)
        return gd_fail(GD_ERR_DTYPE, "gd_cross_entropy: class indices are %s",
                       gd_dtype_name(labels->dtype));
    if (logits->shape[1] == 0 && logits->shape[0] > 0)
        return gd_fail(GD_ERR_SHAPE, "gd_cross_entropy: there are no classes");
    return GD_OK;
}

static gd_status infer_cross_entropy(int n, const gd_layout *const *in, const void *attr,
                                     gd_layout *out)
{
    (void)n, (void)attr;
    if (check_logits(in[0], in[1]) != GD_OK)
        return gd_error_code();
    return gd_layout_init(out, GD_SHAPE(in[0]->shape[0]), in[0]->dtype, "gd_cross_entropy");
}

static bool vjp_cross_entropy(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor *inputs[3] = { r->inputs[0], r->inputs[1], g };
    return gd_put(&d[0], gd_apply(NULL, GD_OP_cross_entropy_grad, 3, inputs, NULL));
}

static gd_tensor *decompose_cross_entropy(int n, gd_tensor *const *in, const void *attr)
{
    (void)n, (void)attr;
    gd_tensor *index = gd_unsqueeze(gd_as_dtype(in[1], GD_I64), 1);
    return gd_neg(gd_squeeze(gd_gather(gd_log_softmax(in[0], 1), index, 1), 1));
}

const gd_op gd_op_cross_entropy = { .id = GD_OP_cross_entropy,
                                    .name = "cross_entropy",
                                    .arity = 2,
                                    .infer = infer_cross_entropy,
                                    .vjp = vjp_cross_entropy,
                                    .decompose = decompose_cross_entropy };

/* (softmax(logits) - onehot(labels)) * g[:, None]: logits [n, c], labels [n], g [n] -> [n, c] */
static gd_status infer_cross_entropy_grad(int n, const gd_layout *const *in, const void *attr,
                                          gd_layout *out)
{
    (void)n, (void)attr;
    if (check_logits(in[0], in[1]) != GD_OK)
        return gd_error_code();
    if (in[2]->rank != 1 || in[2]->shape[0] != in[0]->shape[0] || in[2]->dtype != in[0]->dtype)
        return gd_fail(GD_ERR_SHAPE, "cross_entropy_grad: the gradient does not fit the logits");
    return gd_infer_like(in[0], in[0]->dtype, "gd_cross_entropy", out);
}

/* softmax(logits) and softmax(logits) - onehot(labels) */
static gd_tensor *residual(gd_tensor *logits, gd_tensor *labels, gd_tensor **soft)
{
    *soft = gd_softmax(logits, 1);
    return gd_sub(*soft, gd_one_hot(labels, logits->layout.shape[1], logits->layout.dtype));
}

static gd_tensor *decompose_cross_entropy_grad(int n, gd_tensor *const *in, const void *attr)
{
    (void)n, (void)attr;
    gd_tensor *soft;
    return gd_mul(residual(in[0], in[1], &soft), gd_unsqueeze(in[2], 1));
}

/* With u the gradient of the result: d g = sum(u * (s - onehot)); d logits is softmax's product
 * with u * g. */
static bool vjp_cross_entropy_grad(gd_tensor *r, gd_tensor *u, gd_tensor **d)
{
    gd_tensor *soft, *apart = residual(r->inputs[0], r->inputs[1], &soft);
    gd_tensor *t = gd_mul(u, gd_unsqueeze(r->inputs[2], 1));
    gd_tensor *along = gd_sum(gd_mul(t, soft), GD_AXES(1), true);
    return (!gd_wants_grad(r->inputs[0]) || gd_put(&d[0], gd_mul(soft, gd_sub(t, along)))) &&
           (!gd_wants_grad(r->inputs[2]) ||
            gd_put(&d[2], gd_sum(gd_mul(u, apart), GD_AXES(1), false)));
}

const gd_op gd_op_cross_entropy_grad = { .id = GD_OP_cross_entropy_grad,
                                         .name = "cross_entropy_grad",
                                         .arity = 3,
                                         .infer = infer_cross_entropy_grad,
                                         .vjp = vjp_cross_entropy_grad,
                                         .decompose = decompose_cross_entropy_grad };

/* ---- losses ---- */

static gd_tensor *cross_entropy_probabilities(gd_tensor *logits, gd_tensor *p)
{
    if (logits->layout.rank != 2 || !gd_layout_same_shape(&logits->layout, &p->layout)) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail_null(
            GD_ERR_SHAPE,
            "gd_cross_entropy: logits %s and probabilities %s; both [n, classes] expected",
            gd_layout_text(&logits->layout, a), gd_layout_text(&p->layout, b));
    }
    return gd_neg(gd_sum(gd_mul(p, gd_log_softmax(logits, 1)), GD_AXES(1), false));
}

gd_tensor *gd_cross_entropy_each(gd_tensor *logits, gd_tensor *target)
{
    if (!logits || !target)
        return NULL;
    gd_dtype dtype = gd_float_dtype(logits->layout.dtype);
    gd_tensor *real = gd_as_dtype(logits, gd_compute_dtype(dtype));
    if (!real)
        return NULL;
    if (gd_dtype_is_float(target->layout.dtype))
        return gd_as_dtype(cross_entropy_probabilities(real, target), dtype);
    return gd_as_dtype(gd_apply2(GD_OP_cross_entropy, real, target, NULL), dtype);
}

gd_tensor *gd_cross_entropy(gd_tensor *logits, gd_tensor *target)
{
    return gd_mean(gd_cross_entropy_each(logits, target), GD_ALL_AXES, false);
}

gd_tensor *gd_mse(gd_tensor *x, gd_tensor *y)
{
    if (x && y && !gd_layout_same_shape(&x->layout, &y->layout)) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail_null(GD_ERR_SHAPE, "gd_mse: shapes %s and %s differ",
                            gd_layout_text(&x->layout, a), gd_layout_text(&y->layout, b));
    }
    return gd_mean(gd_square(gd_sub(x, y)), GD_ALL_AXES, false);
}

gd_tensor *gd_accuracy(gd_tensor *logits, gd_tensor *target)
{
    if (!logits || !target)
        return NULL;
    bool probabilities = gd_dtype_is_float(target->layout.dtype);
    bool fits = logits->layout.rank == 2 && target->layout.rank == (probabilities ? 2 : 1) &&
                target->layout.shape[0] == logits->layout.shape[0];
    if (!fits) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail_null(
            GD_ERR_SHAPE,
            "gd_accuracy: logits %s and target %s; [n, classes] and [n] (or [n, classes] of "
            "probabilities) expected",
            gd_layout_text(&logits->layout, a), gd_layout_text(&target->layout, b));
    }
    gd_tensor *truth = probabilities ? gd_argmax(target, 1, false) : target;
    return gd_mean(gd_eq(gd_argmax(logits, 1, false), truth), GD_ALL_AXES, false);
}

/* ---- activations made of simpler ops ---- */

gd_tensor *gd_gelu(gd_tensor *x)
{
    gd_tensor *cdf = gd_add_scalar(gd_erf(gd_mul_scalar(x, 0.70710678118654752440)), 1.0);
    return gd_mul(gd_mul_scalar(x, 0.5), cdf);
}

gd_tensor *gd_gelu_tanh(gd_tensor *x)
{
    gd_tensor *cubic = gd_mul(gd_mul_scalar(gd_square(x), 0.044715), x);
    gd_tensor *inner = gd_mul_scalar(gd_add(x, cubic), 0.79788456080286535588);
    return gd_mul(gd_mul_scalar(x, 0.5), gd_add_scalar(gd_tanh(inner), 1.0));
}

gd_tensor *gd_silu(gd_tensor *x)
{
    return gd_mul(x, gd_sigmoid(x));
}
