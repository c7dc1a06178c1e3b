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
    x = gd_autocast(GD_OP_cross_entropy, x);
    y = gd_autocast(GD_OP_cross_entropy, y);
    if (!x || !y)
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

static gd_tensor *build_mse(gd_tensor *x, gd_tensor *y, const gd_distance_options *options)
{
    gd_distance_options o = { GD_DISTANCE_DEFAULTS };
    pair p;
    if (!gd_options_read("gd_mse", &o, sizeof o, options) || !take_pair(&p, x, y, "gd_mse"))
        return NULL;
    return gd_reduce_losses(gd_square(gd_sub(p.x, p.y)), NULL, o.reduction, p.dtype, "gd_mse");
}

gd_tensor *gd_mse_with(gd_tensor *x, gd_tensor *y, const gd_distance_options *options)
{
    return GD_AS("gd_mse", build_mse(x, y, options));
}

gd_tensor *(gd_mse)(gd_tensor *x, gd_tensor *y)
{
    return gd_mse(x, y);
}

static gd_tensor *build_mae(gd_tensor *x, gd_tensor *y, const gd_distance_options *options)
{
    gd_distance_options o = { GD_DISTANCE_DEFAULTS };
    pair p;
    if (!gd_options_read("gd_mae", &o, sizeof o, options) || !take_pair(&p, x, y, "gd_mae"))
        return NULL;
    return gd_reduce_losses(gd_abs(gd_sub(p.x, p.y)), NULL, o.reduction, p.dtype, "gd_mae");
}

gd_tensor *gd_mae_with(gd_tensor *x, gd_tensor *y, const gd_distance_options *options)
{
    return GD_AS("gd_mae", build_mae(x, y, options));
}

gd_tensor *(gd_mae)(gd_tensor *x, gd_tensor *y)
{
    return gd_mae(x, y);
}

/* d^2 / 2 where |d| <= delta, else delta * (|d| - delta / 2), all times scale. */
static gd_tensor *huber(gd_tensor *x, gd_tensor *y, const gd_huber_options *options, bool by_delta,
                        const char *who)
{
    gd_huber_options o = { GD_HUBER_DEFAULTS };
    pair p;
    if (!gd_options_read(who, &o, sizeof o, options) || !take_pair(&p, x, y, who))
        return NULL;
    double delta = o.delta;
    if (!(delta > 0.0) || isinf(delta))
        return gd_fail_null(GD_ERR_INVALID, "%s: delta is %g; it must be more than 0", who, delta);
    double scale = by_delta ? 1.0 / delta : 1.0;
    gd_tensor *d = gd_sub(p.x, p.y), *size = gd_abs(d);
    gd_tensor *inner = gd_mul_scalar(gd_square(d), 0.5 * scale);
    gd_tensor *outer = gd_mul_scalar(gd_sub_scalar(size, 0.5 * delta), delta * scale);
    gd_tensor *each = gd_where(gd_le(size, gd_number_like(size, delta)), inner, outer);
    return gd_reduce_losses(each, NULL, o.reduction, p.dtype, who);
}

gd_tensor *gd_huber_with(gd_tensor *x, gd_tensor *y, const gd_huber_options *options)
{
    return GD_AS("gd_huber", huber(x, y, options, false, "gd_huber"));
}

gd_tensor *(gd_huber)(gd_tensor *x, gd_tensor *y)
{
    return gd_huber(x, y);
}

gd_tensor *gd_smooth_l1_with(gd_tensor *x, gd_tensor *y, const gd_huber_options *options)
{
    return GD_AS("gd_smooth_l1", huber(x, y, options, true, "gd_smooth_l1"));
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

static gd_tensor *build_bce(gd_tensor *probability, gd_tensor *target,
                            const gd_bce_options *options)
{
    gd_bce_options o = { GD_BCE_DEFAULTS };
    pair p;
    if (!gd_options_read("gd_bce", &o, sizeof o, options) ||
        !take_pair(&p, probability, target, "gd_bce"))
        return NULL;
    gd_tensor *yes = gd_mul(p.y, gd_bounded_log(p.x));
    gd_tensor *no = gd_mul(gd_rsub_scalar(p.y, 1.0), gd_bounded_log(gd_rsub_scalar(p.x, 1.0)));
    gd_tensor *each = weighted(gd_neg(gd_add(yes, no)), o.weight);
    return gd_reduce_losses(each, NULL, o.reduction, p.dtype, "gd_bce");
}

gd_tensor *gd_bce_with(gd_tensor *probability, gd_tensor *target, const gd_bce_options *options)
{
    return GD_AS("gd_bce", build_bce(probability, target, options));
}

gd_tensor *(gd_bce)(gd_tensor *probability, gd_tensor *target)
{
    return gd_bce(probability, target);
}

/* (1 - y) x + (1 + (positive_weight - 1) y) softplus(-x) */
static gd_tensor *logit_losses(gd_tensor *x, gd_tensor *y, gd_tensor *positive_weight)
{
    gd_tensor *tail = gd_softplus(gd_neg(x));
    if (positive_weight)
        tail = gd_mul(tail, gd_add_scalar(gd_mul(gd_sub_scalar(positive_weight, 1.0), y), 1.0));
    return gd_add(gd_mul(gd_rsub_scalar(y, 1.0), x), tail);
}

static gd_tensor *build_bce_with_logits(gd_tensor *logits, gd_tensor *target,
                                        const gd_bce_with_logits_options *options)
{
    gd_bce_with_logits_options o = { GD_BCE_WITH_LOGITS_DEFAULTS };
    pair p;
    if (!gd_options_read("gd_bce_with_logits", &o, sizeof o, options) ||
        !take_pair(&p, logits, target, "gd_bce_with_logits"))
        return NULL;
    gd_tensor *pos = o.positive_weight ? gd_as_dtype(o.positive_weight, p.x->layout.dtype) : NULL;
    if (o.positive_weight && !pos)
        return NULL;
    gd_tensor *each = weighted(logit_losses(p.x, p.y, pos), o.weight);
    return gd_reduce_losses(each, NULL, o.reduction, p.dtype, "gd_bce_with_logits");
}

gd_tensor *gd_bce_with_logits_with(gd_tensor *logits, gd_tensor *target,
                                   const gd_bce_with_logits_options *options)
{
    return GD_AS("gd_bce_with_logits", build_bce_with_logits(logits, target, options));
}

gd_tensor *(gd_bce_with_logits)(gd_tensor *logits, gd_tensor *target)
{
    return gd_bce_with_logits(logits, target);
}

static gd_tensor *build_focal(gd_tensor *logits, gd_tensor *target, const gd_focal_options *options)
{
    gd_focal_options o = { GD_FOCAL_DEFAULTS };
    pair p;
    if (!gd_options_read("gd_focal", &o, sizeof o, options) ||
        !take_pair(&p, logits, target, "gd_focal"))
        return NULL;
    const double alpha = o.alpha, gamma = o.gamma;
    const bool balanced = !isnan(alpha);
    if ((balanced && !(alpha >= 0.0 && alpha <= 1.0)) || !(gamma >= 0.0) || isinf(gamma))
        return gd_fail_null(
            GD_ERR_INVALID,
            "gd_focal: alpha is %g, gamma %g; 0 to 1 or NaN, and 0 or more, expected", alpha,
            gamma);
    /* 1 - p_t without the cancellation */
    gd_tensor *other = gd_rsub_scalar(p.y, 1.0);
    gd_tensor *miss = gd_add(gd_mul(p.y, gd_sigmoid(gd_neg(p.x))), gd_mul(other, gd_sigmoid(p.x)));
    gd_tensor *each = logit_losses(p.x, p.y, NULL);
    if (gamma != 0.0)
        each = gd_mul(each, gamma == 2.0 ? gd_square(miss) : gd_power_of_size(miss, gamma));
    if (balanced)
        each = gd_mul(each, gd_add(gd_mul_scalar(p.y, alpha), gd_mul_scalar(other, 1.0 - alpha)));
    return gd_reduce_losses(each, NULL, o.reduction, p.dtype, "gd_focal");
}

gd_tensor *gd_focal_with(gd_tensor *logits, gd_tensor *target, const gd_focal_options *options)
{
    return GD_AS("gd_focal", build_focal(logits, target, options));
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

static gd_tensor *build_hinge(gd_tensor *x, gd_tensor *y, const gd_hinge_options *options)
{
    gd_hinge_options o = { GD_HINGE_DEFAULTS };
    pair p;
    if (!gd_options_read("gd_hinge", &o, sizeof o, options) || !take_pair(&p, x, y, "gd_hinge") ||
        !check_margin(o.margin, "gd_hinge"))
        return NULL;
    gd_tensor *each = gd_relu(gd_rsub_scalar(gd_mul(p.x, p.y), o.margin));
    return gd_reduce_losses(each, NULL, o.reduction, p.dtype, "gd_hinge");
}

gd_tensor *gd_hinge_with(gd_tensor *x, gd_tensor *y, const gd_hinge_options *options)
{
    return GD_AS("gd_hinge", build_hinge(x, y, options));
}

gd_tensor *(gd_hinge)(gd_tensor *x, gd_tensor *y)
{
    return gd_hinge(x, y);
}

static gd_tensor *build_hinge_embedding(gd_tensor *x, gd_tensor *y, const gd_hinge_options *options)
{
    gd_hinge_options o = { GD_HINGE_DEFAULTS };
    pair p;
    if (!gd_options_read("gd_hinge_embedding", &o, sizeof o, options) ||
        !take_pair(&p, x, y, "gd_hinge_embedding") || !check_margin(o.margin, "gd_hinge_embedding"))
        return NULL;
    gd_tensor *near = gd_gt(p.y, gd_number_like(p.y, 0.0));
    gd_tensor *each = gd_where(near, p.x, gd_relu(gd_rsub_scalar(p.x, o.margin)));
    return gd_reduce_losses(each, NULL, o.reduction, p.dtype, "gd_hinge_embedding");
}

gd_tensor *gd_hinge_embedding_with(gd_tensor *x, gd_tensor *y, const gd_hinge_options *options)
{
    return GD_AS("gd_hinge_embedding", build_hinge_embedding(x, y, options));
}

gd_tensor *(gd_hinge_embedding)(gd_tensor *x, gd_tensor *y)
{
    return gd_hinge_embedding(x, y);
}

/* ---- distributions ---- */

static gd_tensor *build_kl_div(gd_tensor *log_q, gd_tensor *truth, const gd_kl_div_options *options)
{
    gd_kl_div_options o = { GD_KL_DIV_DEFAULTS };
    pair p;
    if (!gd_options_read("gd_kl_div", &o, sizeof o, options) ||
        !take_pair(&p, log_q, truth, "gd_kl_div"))
        return NULL;
    gd_tensor *each;
    if (o.log_target) {
        each = gd_mul(gd_exp(p.y), gd_sub(p.y, p.x));
    } else {
        gd_tensor *some = gd_gt(p.y, gd_number_like(p.y, 0.0)), *one = gd_number_like(p.y, 1.0);
        each = gd_mul(p.y, gd_sub(gd_log(gd_where(some, p.y, one)), p.x));
    }
    return gd_reduce_losses(each, NULL, o.reduction, p.dtype, "gd_kl_div");
}

gd_tensor *gd_kl_div_with(gd_tensor *log_q, gd_tensor *p, const gd_kl_div_options *options)
{
    return GD_AS("gd_kl_div", build_kl_div(log_q, p, options));
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

static gd_tensor *build_cosine_embedding(gd_tensor *x, gd_tensor *y, gd_tensor *target,
                                         const gd_cosine_embedding_options *options)
{
    gd_cosine_embedding_options o = { GD_COSINE_EMBEDDING_DEFAULTS };
    pair p;
    const char *who = "gd_cosine_embedding";
    if (!gd_options_read(who, &o, sizeof o, options) || !target || !take_pair(&p, x, y, who) ||
        !check_margin(o.margin, who))
        return NULL;
    int last = gd_axis_normal(-1, p.x->layout.rank, who);
    if (last < 0)
        return NULL;
    gd_tensor *similar = cosine(p.x, p.y, last);
    if (!similar || !gd_same_shapes(similar, target, who))
        return NULL;
    gd_tensor *near = gd_gt(target, gd_number_like(target, 0.0));
    gd_tensor *each =
        gd_where(near, gd_rsub_scalar(similar, 1.0), gd_relu(gd_sub_scalar(similar, o.margin)));
    return gd_reduce_losses(each, NULL, o.reduction, p.dtype, who);
}

gd_tensor *gd_cosine_embedding_with(gd_tensor *x, gd_tensor *y, gd_tensor *target,
                                    const gd_cosine_embedding_options *options)
{
    return GD_AS("gd_cosine_embedding", build_cosine_embedding(x, y, target, options));
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

static gd_tensor *build_triplet_margin(gd_tensor *anchor, gd_tensor *positive, gd_tensor *negative,
                                       const gd_triplet_margin_options *options)
{
    gd_triplet_margin_options o = { GD_TRIPLET_MARGIN_DEFAULTS };
    pair near, far;
    const char *who = "gd_triplet_margin";
    if (!gd_options_read(who, &o, sizeof o, options) || !negative ||
        !take_pair(&near, anchor, positive, who) || !take_pair(&far, anchor, negative, who) ||
        !check_margin(o.margin, who))
        return NULL;
    const double p = o.p;
    if (!(p >= 1.0) || isinf(p))
        return gd_fail_null(GD_ERR_INVALID, "%s: p is %g; it must be 1 or more", who, p);
    if (gd_axis_normal(-1, near.x->layout.rank, who) < 0)
        return NULL;
    gd_tensor *apart = distance(far.x, far.y, p);
    if (o.swap)
        apart = gd_minimum(apart, distance(near.y, far.y, p));
    gd_tensor *each = gd_relu(gd_add_scalar(gd_sub(distance(near.x, near.y, p), apart), o.margin));
    return gd_reduce_losses(each, NULL, o.reduction, gd_dtype_promote(near.dtype, far.dtype), who);
}

gd_tensor *gd_triplet_margin_with(gd_tensor *anchor, gd_tensor *positive, gd_tensor *negative,
                                  const gd_triplet_margin_options *options)
{
    return GD_AS("gd_triplet_margin", build_triplet_margin(anchor, positive, negative, options));
}

gd_tensor *(gd_triplet_margin)(gd_tensor *anchor, gd_tensor *positive, gd_tensor *negative)
{
    return gd_triplet_margin(anchor, positive, negative);
}
