/* ops/activation.c: activations made of other ops; compiled, each is one pass. GELU and SiLU are ops
 * of their own (ops/elementwise.def). What a branch not taken would compute is kept finite, because
 * the gradient of a choice passes through both. */
#include "ops/internal.h"

static gd_tensor *is_positive(gd_tensor *x)
{
    return gd_gt(x, gd_number_like(x, 0.0));
}

/* f(x) of a function made of several ops: halves are computed in f32 and rounded once. */
static gd_tensor *map(gd_tensor *x, gd_tensor *(*f)(gd_tensor *x))
{
    return gd_round_like(f(gd_widen(x)), x);
}

static gd_tensor *log_sigmoid(gd_tensor *x)
{
    return gd_neg(gd_softplus(gd_neg(x)));
}

gd_tensor *gd_log_sigmoid(gd_tensor *x)
{
    return GD_AS("gd_log_sigmoid", map(x, log_sigmoid));
}

static gd_tensor *leaky_relu(gd_tensor *x, double slope)
{
    return gd_where(is_positive(x), x, gd_mul_scalar(x, slope));
}

gd_tensor *gd_leaky_relu(gd_tensor *x, double slope)
{
    return GD_AS("gd_leaky_relu", gd_round_like(leaky_relu(gd_widen(x), slope), x));
}

gd_tensor *gd_prelu(gd_tensor *x, gd_tensor *slope)
{
    return GD_AS("gd_prelu", gd_where(is_positive(x), x, gd_mul(x, slope)));
}

/* As gd_relu, its gradient at 0 is 0. */
gd_tensor *gd_relu6(gd_tensor *x)
{
    return GD_AS("gd_relu6", gd_clip(gd_relu(x), 0.0, 6.0));
}

/* scale * (x where x > 0, else alpha * expm1(x)) */
static gd_tensor *scaled_elu(gd_tensor *x, double scale, double alpha)
{
    gd_tensor *positive = is_positive(x);
    gd_tensor *below = gd_where(positive, gd_number_like(x, 0.0), x);
    return gd_where(positive, scale == 1.0 ? x : gd_mul_scalar(x, scale),
                    gd_mul_scalar(gd_expm1(below), scale * alpha));
}

gd_tensor *gd_elu(gd_tensor *x, double alpha)
{
    return GD_AS("gd_elu", gd_round_like(scaled_elu(gd_widen(x), 1.0, alpha), x));
}

gd_tensor *gd_selu(gd_tensor *x)
{
    const double scale = 1.0507009873554804934193349852946,
                 alpha = 1.6732632423543772848170429916717;
    return GD_AS("gd_selu", gd_round_like(scaled_elu(gd_widen(x), scale, alpha), x));
}

static gd_tensor *mish(gd_tensor *x)
{
    return gd_mul(x, gd_tanh(gd_softplus(x)));
}

gd_tensor *gd_mish(gd_tensor *x)
{
    return GD_AS("gd_mish", map(x, mish));
}

static gd_tensor *hard_sigmoid(gd_tensor *x)
{
    return gd_div_scalar(gd_clip(gd_add_scalar(x, 3.0), 0.0, 6.0), 6.0);
}

gd_tensor *gd_hard_sigmoid(gd_tensor *x)
{
    return GD_AS("gd_hard_sigmoid", map(x, hard_sigmoid));
}

static gd_tensor *hard_swish(gd_tensor *x)
{
    return gd_mul(x, hard_sigmoid(x));
}

gd_tensor *gd_hard_swish(gd_tensor *x)
{
    return GD_AS("gd_hard_swish", map(x, hard_swish));
}

static gd_tensor *softsign(gd_tensor *x)
{
    return gd_div(x, gd_add_scalar(gd_abs(x), 1.0));
}

gd_tensor *gd_softsign(gd_tensor *x)
{
    return GD_AS("gd_softsign", map(x, softsign));
}

gd_tensor *gd_glu(gd_tensor *x, int axis)
{
    if (!gd_usable(x, "gd_glu"))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, "gd_glu");
    if (axis < 0)
        return NULL;
    int64_t size = x->layout.shape[axis];
    if (size % 2)
        return gd_fail_null(GD_ERR_SHAPE, "gd_glu: axis %d of size %lld has no halves", axis,
                            (long long)size);
    gd_tensor *a = gd_slice(x, axis, 0, size / 2, 1), *b = gd_slice(x, axis, size / 2, size, 1);
    return GD_AS("gd_glu", gd_round_like(gd_mul(gd_widen(a), gd_sigmoid(gd_widen(b))), x));
}
