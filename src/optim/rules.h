/* optim/rules.h: pieces that several rules are made of. */
#ifndef GD_OPTIM_RULES_H
#define GD_OPTIM_RULES_H

#include "optim/optimizer.h"

#include <gradus/ops.h>

static inline bool gd_rule_never(const gd_hyper *hyper)
{
    (void)hyper;
    return false;
}

static inline bool gd_rule_always(const gd_hyper *hyper)
{
    (void)hyper;
    return true;
}

/* A number that was computed in f64, as updates take it. */
static inline gd_tensor *gd_step_scalar(const gd_step_scalars *s, gd_tensor *number)
{
    return gd_cast(number, gd_tensor_dtype(s->lr));
}

/* The gradient of the loss with a penalty weight_decay / 2 * |p|^2, where decay is not decoupled.
 */
static inline gd_tensor *gd_decayed_gradient(const gd_hyper *hyper, const gd_update *u)
{
    bool penalty = hyper->weight_decay != 0.0 && !hyper->decoupled;
    return penalty ? gd_add(u->g, gd_mul_scalar(u->p, hyper->weight_decay)) : u->g;
}

/* scalars.keep, where decay is decoupled. */
static inline bool gd_prepare_decay(const gd_hyper *hyper, gd_step_scalars *s)
{
    if (hyper->weight_decay == 0.0 || !hyper->decoupled)
        return true;
    s->decay_factor = gd_rsub_scalar(gd_mul_scalar(s->lr, hyper->weight_decay), 1.0);
    return s->decay_factor;
}

/* beta * v + (1 - beta) * x^2, flushed. Moments are flushed, here and in the rules: where gradients
 * stay zero, as those of a unit that is never active, a moment shrinks until it is subnormal, where
 * rounding to nearest keeps it for ever, and processors take up to a hundred times as long for it. */
static inline gd_tensor *gd_running_square(gd_tensor *v, gd_tensor *x, double beta)
{
    gd_tensor *kept = gd_mul_scalar(v, beta);
    return gd_flush_subnormal(gd_add(kept, gd_mul(gd_mul_scalar(x, 1.0 - beta), x)));
}

#endif
