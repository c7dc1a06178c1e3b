/* ops/loss.c: losses of elements and of vectors, each an expression in ops, with the reductions all
 * losses share at the top. Losses of classes: cross_entropy.c; of sequences: ctc.c. */
#include "ops/loss.h"

#include <math.h>

/* ---- what losses share ---- */

gd_tensor *gd_reduce_losses(gd_tensor *each, gd_tensor *share, gd_reduction reduction,
                            gd_dtype dtype, const char *who)
{
    if (!gd_usable(each, "gd_reduce_losses"))
        return NULL;
    gd_tensor *r = NULL;
    switch (reduction) {
    case GD_REDUCE_NONE:
        return gd_as_dtype(each, dtype);
    case GD_REDUCE_SUM:
        r = gd_sum(each, GD_ALL_AXES, false);
        break;
    case GD_REDUCE_MEAN:
        r = share ? gd_div(gd_sum(each, GD_ALL_AXES, false), gd_sum(share, GD_ALL_AXES, false))
                  : gd_mean(each, GD_ALL_AXES, false);
        break;
    case GD_REDUCE_BATCH_MEAN:
        r = gd_sum(each, GD_ALL_AXES, false);
        if (each->layout.rank > 0)
            r = gd_div_scalar(r, (double)each->layout.shape[0]);
        break;
    default:
        return gd_fail_null(GD_ERR_INVALID, "%s: %d is no reduction", who, (int)reduction);
    }
    return gd_as_dtype(r, dtype);
}

bool gd_same_shapes(const gd_tensor *x, const gd_tensor *y, const char *who)
{
    if (!gd_usable(x, who) || !gd_usable(y, who))
        return false;
    if (gd_layout_same_shape(&x->layout, &y->layout))
        return true;
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    (void)gd_fail(GD_ERR_SHAPE, "%s: shapes %s and %s differ", who, gd_layout_text(&x->layout, a),
                  gd_layout_text(&y->layout, b));
    return false;
}

/* Two operands of equal shapes, ready to compute with, and the dtype of the result. */
typedef struct pair {
    gd_tensor *x, *y;
    gd_dtype dtype;
} pair;

static bool take_pair(pair *p, gd_tensor *x, gd_tensor *y, const char *who)
{
    if (!gd_usable(x, who) || !gd_usable(y, who) || !gd_same_shapes(x, y, who))
        return false;
    p->dtype = gd_float_dtype(gd_dtype_promote(x->layout.dtype, y->layout.dtype));
    gd_dtype compute = gd_real_dtype(p->dtype);
    p->x = gd_as_dtype(x, compute);
    p->y = gd_as_dtype(y, compute);
    return p->x && p->y;
}

static gd_tensor *weighted(gd_tensor *each, gd_tensor *weight)
{
    return weight && each ? gd_mul(each, gd_as_dtype(weight, each->layout.dtype)) : each;
}

/* ---- distances ---- */

static gd_tensor *build_mse(gd_distance_options options)
{
    pair p;
    if (!take_pair(&p, options.x, options.y, "gd_mse"))
        return NULL;
    return gd_reduce_losses(gd_square(gd_sub(p.x, p.y)), NULL, options.reduction, p.dtype,
                            "gd_mse");
}

gd_tensor *gd_mse_with(gd_distance_options options)
{
    return GD_AS("gd_mse", build_mse(options));
}

gd_tensor *(gd_mse)(gd_tensor *x, gd_tensor *y)
{
    return gd_mse(x, y);
}

static gd_tensor *build_mae(gd_distance_options options)
{
    pair p;
    if (!take_pair(&p, options.x, options.y, "gd_mae"))
        return NULL;
    return gd_reduce_losses(gd_abs(gd_sub(p.x, p.y)), NULL, options.reduction, p.dtype, "gd_mae");
}

gd_tensor *gd_mae_with(gd_distance_options options)
{
    return GD_AS("gd_mae", build_mae(options));
}

gd_tensor *(gd_mae)(gd_tensor *x, gd_tensor *y)
{
    return gd_mae(x, y);
}

/* d^2 / 2 where |d| <= delta, else delta * (|d| - delta / 2), all times scale. */
static gd_tensor *huber(gd_huber_options o, bool by_delta, const char *who)
{
    pair p;
    if (!take_pair(&p, o.x, o.y, who))
        return NULL;
    double delta = o.delta == 0.0 ? 1.0 : o.delta;
    if (!(delta > 0.0) || isinf(delta))
        return gd_fail_null(GD_ERR_INVALID, "%s: delta is %g; it must be more than 0", who, delta);
    double scale = by_delta ? 1.0 / delta : 1.0;
    gd_tensor *d = gd_sub(p.x, p.y), *size = gd_abs(d);
    gd_tensor *inner = gd_mul_scalar(gd_square(d), 0.5 * scale);
    gd_tensor *outer = gd_mul_scalar(gd_sub_scalar(size, 0.5 * delta), delta * scale);
    gd_tensor *each = gd_where(gd_le(size, gd_number_like(size, delta)), inner, outer);
    return gd_reduce_losses(each, NULL, o.reduction, p.dtype, who);
}

gd_tensor *gd_huber_with(gd_huber_options options)
{
    return GD_AS("gd_huber", huber(options, false, "gd_huber"));
}

gd_tensor *(gd_huber)(gd_tensor *x, gd_tensor *y)
{
    return gd_huber(x, y);
}

gd_tensor *gd_smooth_l1_with(gd_huber_options options)
{
    return GD_AS("gd_smooth_l1", huber(options, true, "gd_smooth_l1"));
}

gd_tensor *(gd_smooth_l1)(gd_tensor *x, gd_tensor *y)
{
    return gd_smooth_l1(x, y);
}

/* ---- yes or no ---- */

/* Where p is 0 the logarithm is not taken: the gradient is 0, not NaN. */
gd_tensor *gd_bounded_log(gd_tensor *p)
{
    if (!gd_usable(p, "gd_log"))
        return NULL;
    gd_tensor *none = gd_eq(p, gd_number_like(p, 0.0)), *least = gd_number_like(p, -100.0);
    gd_tensor *log = gd_log(gd_where(none, gd_number_like(p, 1.0), p));
    return gd_where(none, least, gd_maximum(log, least));
}

static gd_tensor *build_bce(gd_bce_options options)
{
    pair p;
    if (!take_pair(&p, options.probability, options.target, "gd_bce"))
        return NULL;
    gd_tensor *yes = gd_mul(p.y, gd_bounded_log(p.x));
    gd_tensor *no = gd_mul(gd_rsub_scalar(p.y, 1.0), gd_bounded_log(gd_rsub_scalar(p.x, 1.0)));
    gd_tensor *each = weighted(gd_neg(gd_add(yes, no)), options.weight);
    return gd_reduce_losses(each, NULL, options.reduction, p.dtype, "gd_bce");
}

gd_tensor *gd_bce_with(gd_bce_options options)
{
    return GD_AS("gd_bce", build_bce(options));
}

gd_tensor *(gd_bce)(gd_tensor *probability, gd_tensor *target)
{
    return gd_bce(probability, target);
}

/* (1 - y) x + (1 + (pos_weight - 1) y) softplus(-x) */
static gd_tensor *logit_losses(gd_tensor *x, gd_tensor *y, gd_tensor *pos_weight)
{
    gd_tensor *tail = gd_softplus(gd_neg(x));
    if (pos_weight)
        tail = gd_mul(tail, gd_add_scalar(gd_mul(gd_sub_scalar(pos_weight, 1.0), y), 1.0));
    return gd_add(gd_mul(gd_rsub_scalar(y, 1.0), x), tail);
}

static gd_tensor *build_bce_with_logits(gd_bce_with_logits_options options)
{
    pair p;
    if (!take_pair(&p, options.logits, options.target, "gd_bce_with_logits"))
        return NULL;
    gd_tensor *pos = options.pos_weight ? gd_as_dtype(options.pos_weight, p.x->layout.dtype) : NULL;
    if (options.pos_weight && !pos)
        return NULL;
    gd_tensor *each = weighted(logit_losses(p.x, p.y, pos), options.weight);
    return gd_reduce_losses(each, NULL, options.reduction, p.dtype, "gd_bce_with_logits");
}

gd_tensor *gd_bce_with_logits_with(gd_bce_with_logits_options options)
{
    return GD_AS("gd_bce_with_logits", build_bce_with_logits(options));
}

gd_tensor *(gd_bce_with_logits)(gd_tensor *logits, gd_tensor *target)
{
    return gd_bce_with_logits(logits, target);
}

static gd_tensor *build_focal(gd_focal_options options)
{
    pair p;
    double alpha = options.alpha == 0.0 ? 0.25 : options.alpha;
    double gamma = options.gamma == 0.0 ? 2.0 : options.gamma;
    if (!take_pair(&p, options.logits, options.target, "gd_focal"))
        return NULL;
    if (!(alpha <= 1.0) || !(gamma > 0.0) || isinf(gamma))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_focal: alpha is %g, gamma %g; at most 1, and more than 0, expected",
                            alpha, gamma);
    /* 1 - p_t without the cancellation */
    gd_tensor *other = gd_rsub_scalar(p.y, 1.0);
    gd_tensor *miss = gd_add(gd_mul(p.y, gd_sigmoid(gd_neg(p.x))), gd_mul(other, gd_sigmoid(p.x)));
    gd_tensor *focus = gamma == 2.0 ? gd_square(miss) : gd_power_of_size(miss, gamma);
    gd_tensor *each = gd_mul(logit_losses(p.x, p.y, NULL), focus);
    if (alpha >= 0.0)
        each = gd_mul(each, gd_add(gd_mul_scalar(p.y, alpha), gd_mul_scalar(other, 1.0 - alpha)));
    return gd_reduce_losses(each, NULL, options.reduction, p.dtype, "gd_focal");
}

gd_tensor *gd_focal_with(gd_focal_options options)
{
    return GD_AS("gd_focal", build_focal(options));
}

gd_tensor *(gd_focal)(gd_tensor *logits, gd_tensor *target)
{
    return gd_focal(logits, target);
}

static bool check_margin(double margin, const char *who)
{
    if (isfinite(margin))
        return true;
    (void)gd_fail(GD_ERR_INVALID, "%s: the margin is %g", who, margin);
    return false;
}

static gd_tensor *build_hinge(gd_hinge_options options)
{
    pair p;
    double margin = options.margin == 0.0 ? 1.0 : options.margin;
    if (!take_pair(&p, options.x, options.y, "gd_hinge") || !check_margin(margin, "gd_hinge"))
        return NULL;
    gd_tensor *each = gd_relu(gd_rsub_scalar(gd_mul(p.x, p.y), margin));
    return gd_reduce_losses(each, NULL, options.reduction, p.dtype, "gd_hinge");
}

gd_tensor *gd_hinge_with(gd_hinge_options options)
{
    return GD_AS("gd_hinge", build_hinge(options));
}

gd_tensor *(gd_hinge)(gd_tensor *x, gd_tensor *y)
{
    return gd_hinge(x, y);
}

static gd_tensor *build_hinge_embedding(gd_hinge_options options)
{
    pair p;
    double margin = options.margin == 0.0 ? 1.0 : options.margin;
    if (!take_pair(&p, options.x, options.y, "gd_hinge_embedding") ||
        !check_margin(margin, "gd_hinge_embedding"))
        return NULL;
    gd_tensor *near = gd_gt(p.y, gd_number_like(p.y, 0.0));
    gd_tensor *each = gd_where(near, p.x, gd_relu(gd_rsub_scalar(p.x, margin)));
    return gd_reduce_losses(each, NULL, options.reduction, p.dtype, "gd_hinge_embedding");
}

gd_tensor *gd_hinge_embedding_with(gd_hinge_options options)
{
    return GD_AS("gd_hinge_embedding", build_hinge_embedding(options));
}

gd_tensor *(gd_hinge_embedding)(gd_tensor *x, gd_tensor *y)
{
    return gd_hinge_embedding(x, y);
}

/* ---- distributions ---- */

static gd_tensor *build_kl_div(gd_kl_div_options options)
{
    pair p;
    if (!take_pair(&p, options.log_q, options.p, "gd_kl_div"))
        return NULL;
    gd_tensor *each;
    if (options.log_target) {
        each = gd_mul(gd_exp(p.y), gd_sub(p.y, p.x));
    } else {
        gd_tensor *some = gd_gt(p.y, gd_number_like(p.y, 0.0)), *one = gd_number_like(p.y, 1.0);
        each = gd_mul(p.y, gd_sub(gd_log(gd_where(some, p.y, one)), p.x));
    }
    return gd_reduce_losses(each, NULL, options.reduction, p.dtype, "gd_kl_div");
}

gd_tensor *gd_kl_div_with(gd_kl_div_options options)
{
    return GD_AS("gd_kl_div", build_kl_div(options));
}

gd_tensor *(gd_kl_div)(gd_tensor *log_q, gd_tensor *p)
{
    return gd_kl_div(log_q, p);
}

/* ---- embeddings ---- */

/* max(|x|, 1e-8) along an axis; the bound lies under the root, where it keeps the gradient finite.
 */
static gd_tensor *bounded_norm(gd_tensor *x, int axis)
{
    gd_tensor *square = gd_sum(gd_square(x), GD_AXES(axis), false);
    return gd_sqrt(gd_maximum(square, gd_number_like(square, 1e-16)));
}

static gd_tensor *cosine(gd_tensor *x, gd_tensor *y, int axis)
{
    gd_tensor *product = gd_sum(gd_mul(x, y), GD_AXES(axis), false);
    return gd_div(product, gd_mul(bounded_norm(x, axis), bounded_norm(y, axis)));
}

static gd_tensor *build_cosine_similarity(gd_tensor *x, gd_tensor *y, int axis)
{
    pair p;
    if (!take_pair(&p, x, y, "gd_cosine_similarity"))
        return NULL;
    axis = gd_axis_normal(axis, p.x->layout.rank, "gd_cosine_similarity");
    return axis < 0 ? NULL : gd_as_dtype(cosine(p.x, p.y, axis), p.dtype);
}

gd_tensor *gd_cosine_similarity(gd_tensor *x, gd_tensor *y, int axis)
{
    return GD_AS("gd_cosine_similarity", build_cosine_similarity(x, y, axis));
}

static gd_tensor *build_cosine_embedding(gd_cosine_embedding_options options)
{
    pair p;
    gd_tensor *target = options.target;
    const char *who = "gd_cosine_embedding";
    if (!target || !take_pair(&p, options.x, options.y, who) || !check_margin(options.margin, who))
        return NULL;
    int last = gd_axis_normal(-1, p.x->layout.rank, who);
    if (last < 0)
        return NULL;
    gd_tensor *similar = cosine(p.x, p.y, last);
    if (!similar || !gd_same_shapes(similar, target, who))
        return NULL;
    gd_tensor *near = gd_gt(target, gd_number_like(target, 0.0));
    gd_tensor *each = gd_where(near, gd_rsub_scalar(similar, 1.0),
                               gd_relu(gd_sub_scalar(similar, options.margin)));
    return gd_reduce_losses(each, NULL, options.reduction, p.dtype, who);
}

gd_tensor *gd_cosine_embedding_with(gd_cosine_embedding_options options)
{
    return GD_AS("gd_cosine_embedding", build_cosine_embedding(options));
}

gd_tensor *(gd_cosine_embedding)(gd_tensor *x, gd_tensor *y, gd_tensor *target)
{
    return gd_cosine_embedding(x, y, target);
}

/* |x - y + 1e-6|_p along the last axis */
static gd_tensor *distance(gd_tensor *x, gd_tensor *y, double p)
{
    gd_tensor *d = gd_add_scalar(gd_sub(x, y), 1e-6);
    return gd_norm(d, GD_AXES(-1), p, false);
}

static gd_tensor *build_triplet_margin(gd_triplet_margin_options options)
{
    pair near, far;
    const char *who = "gd_triplet_margin";
    double p = options.p == 0.0 ? 2.0 : options.p;
    double margin = options.margin == 0.0 ? 1.0 : options.margin;
    if (!options.negative || !take_pair(&near, options.anchor, options.positive, who) ||
        !take_pair(&far, options.anchor, options.negative, who) || !check_margin(margin, who))
        return NULL;
    if (!(p >= 1.0) || isinf(p))
        return gd_fail_null(GD_ERR_INVALID, "%s: p is %g; it must be 1 or more", who, p);
    if (gd_axis_normal(-1, near.x->layout.rank, who) < 0)
        return NULL;
    gd_tensor *apart = distance(far.x, far.y, p);
    if (options.swap)
        apart = gd_minimum(apart, distance(near.y, far.y, p));
    gd_tensor *each = gd_relu(gd_add_scalar(gd_sub(distance(near.x, near.y, p), apart), margin));
    return gd_reduce_losses(each, NULL, options.reduction, gd_dtype_promote(near.dtype, far.dtype),
                            who);
}

gd_tensor *gd_triplet_margin_with(gd_triplet_margin_options options)
{
    return GD_AS("gd_triplet_margin", build_triplet_margin(options));
}

gd_tensor *(gd_triplet_margin)(gd_tensor *anchor, gd_tensor *positive, gd_tensor *negative)
{
    return gd_triplet_margin(anchor, positive, negative);
}
