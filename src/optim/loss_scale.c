/* optim/loss_scale.c: dynamic scaling of losses, for gradients of f16 (Micikevicius et al., "Mixed
 * precision training", 2018; constants as in PyTorch's GradScaler). The scale is a tensor, and a step
 * whose gradients are not finite is passed over by choosing the old values: all of it is within the
 * compiled step. */
#include "optim/optimizer.h"
#include "optim/state.h"

#include "base/error.h"
#include "base/options.h"

#include <gradus/ops.h>

#include <math.h>

enum { SCALE, STREAK }; /* of scale_tensor: the factor, and finite steps since it last changed */

gd_status gd_optimizer_scale_losses_with(gd_optimizer *o, const gd_loss_scale_options *options)
{
    gd_loss_scale_options s = { GD_LOSS_SCALE_DEFAULTS };
    if (!gd_options_read("gd_optimizer_scale_losses", &s, sizeof s, options))
        return gd_error_last();
    if (!o)
        return gd_fail(GD_ERR_INVALID, "gd_optimizer_scale_losses: the optimizer is NULL");
    if (!(s.initial > 0 && isfinite(s.initial)) || !(s.growth >= 1 && isfinite(s.growth)) ||
        !(s.backoff > 0 && s.backoff <= 1) || s.interval < 1)
        return gd_fail(
            GD_ERR_INVALID,
            "gd_optimizer_scale_losses: initial %g, growth %g, backoff %g, interval %lld; "
            "more than 0, 1 or more, 0 to 1, and 1 or more expected",
            s.initial, s.growth, s.backoff, (long long)s.interval);
    if (!o->scale_tensor)
        o->scale_tensor = gd_state(o->context, GD_SHAPE(2), 0.0, GD_F64);
    if (!o->scale_tensor)
        return gd_error_last();
    o->scale_options = s;
    const double begin[2] = { [SCALE] = s.initial };
    return gd_tensor_write(o->scale_tensor, begin, sizeof begin);
}

double gd_optimizer_loss_scale(const gd_optimizer *o)
{
    double now[2] = { 1.0 };
    if (o && o->scale_tensor && gd_tensor_read(o->scale_tensor, now, sizeof now) != GD_OK)
        return NAN;
    return now[SCALE];
}

bool gd_optimizer_scales_losses(const gd_optimizer *o)
{
    return o->scale_tensor != NULL;
}

static gd_tensor *part(const gd_optimizer *o, int which)
{
    return gd_select(o->scale_tensor, 0, which);
}

gd_tensor *gd_optimizer_scale(const gd_optimizer *o, gd_dtype dtype)
{
    return gd_cast(part(o, SCALE), dtype);
}

gd_tensor *gd_scale_loss(gd_optimizer *o, gd_tensor *loss)
{
    if (!o || !loss)
        return gd_fail_null(GD_ERR_INVALID, "gd_scale_loss: the optimizer or the loss is NULL");
    if (!o->scale_tensor)
        return loss;
    return GD_AS("gd_scale_loss", gd_mul(loss, gd_optimizer_scale(o, gd_tensor_dtype(loss))));
}

bool gd_optimizer_unscale(gd_optimizer *o, gd_tensor **gradients)
{
    gd_tensor *inverse = gd_reciprocal(part(o, SCALE)), *wrong = NULL;
    for (int i = 0; inverse && i < gd_module_count(o->module); i++) {
        if (!gradients[i])
            continue;
        gd_tensor *g = gd_mul(gradients[i], gd_cast(inverse, gd_tensor_dtype(gradients[i])));
        /* 0, but NaN where an element is not finite; it cannot overflow. */
        gd_tensor *sum = gd_sum(gd_mul_scalar(g, 0.0), GD_ALL_AXES, false);
        wrong = wrong ? gd_add(wrong, sum) : sum;
        if (!g || !wrong)
            return false;
        gradients[i] = g;
    }
    o->is_finite = wrong ? gd_logical_not(gd_isnan(wrong)) : NULL;
    return o->is_finite != NULL;
}

gd_tensor *gd_optimizer_chosen(const gd_optimizer *o, gd_tensor *next, gd_tensor *before)
{
    return o->is_finite && next ? gd_where(o->is_finite, next, before) : next;
}

bool gd_optimizer_rescale(gd_optimizer *o)
{
    const gd_loss_scale_options *s = &o->scale_options;
    gd_tensor *scale = part(o, SCALE), *streak = gd_add_scalar(part(o, STREAK), 1.0);
    gd_tensor *grows = gd_ge_scalar(streak, (double)s->interval);
    /* Within what f32 holds, so that no gradient of 0 becomes NaN. */
    gd_tensor *larger = gd_minimum_scalar(gd_mul_scalar(scale, s->growth), 0x1p126);
    gd_tensor *smaller = gd_maximum_scalar(gd_mul_scalar(scale, s->backoff), 0x1p-126);
    gd_tensor *none = gd_zeros_like(streak);
    gd_tensor *next[2] = {
        [SCALE] = gd_where(o->is_finite, gd_where(grows, larger, scale), smaller),
        [STREAK] = gd_where(gd_logical_and(o->is_finite, gd_logical_not(grows)), streak, none),
    };
    gd_tensor *both = next[0] && next[1] ? gd_stack(2, next, 0) : NULL;
    o->is_finite = NULL;
    return both && gd_assign(o->scale_tensor, both);
}
