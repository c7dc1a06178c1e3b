/* optim/rules.c: the optimization rules of one moment or none: sgd, rmsprop, adagrad, adadelta,
 * lion. Each is a row, gd_rule_…, with the function that builds its update beside it. Formulas and
 * order of operations are those of torch.optim's single-tensor implementations (lion: of its
 * paper), which the tests hold them to. The family of adam is rules_adam.c. */
#include "optim/rules.h"

/* ---- sgd: state b, with momentum ---- */

static int sgd_states(const gd_hyper *hyper)
{
    return hyper->momentum != 0.0 ? 1 : 0;
}

static bool sgd_counts(const gd_hyper *hyper)
{
    return hyper->momentum != 0.0 && hyper->dampening != 0.0;
}

/* In the first step the momentum buffer is the gradient itself, without dampening. */
static bool sgd_prepare(const gd_hyper *hyper, gd_step_scalars *s)
{
    if (!s->count)
        return true;
    gd_context *context = gd_tensor_context(s->lr);
    gd_dtype dtype = gd_tensor_dtype(s->lr);
    gd_tensor *first = gd_eq(s->count, gd_scalar(context, 1.0, GD_F64));
    s->gradient_factor = gd_where(first, gd_scalar(context, 1.0, dtype),
                                  gd_scalar(context, 1.0 - hyper->dampening, dtype));
    return s->gradient_factor;
}

static void sgd_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *g = gd_decayed_gradient(hyper, u);
    if (hyper->momentum != 0.0) {
        gd_tensor *kept = gd_mul_scalar(u->state[0], hyper->momentum);
        u->next[0] = gd_flush_subnormal(
            gd_add(kept, s->gradient_factor ? gd_mul(g, s->gradient_factor) : g));
        g = hyper->nesterov ? gd_add(g, gd_mul_scalar(u->next[0], hyper->momentum)) : u->next[0];
    }
    u->next_p = gd_sub(u->p, gd_mul(g, s->lr));
}

const gd_rule gd_rule_sgd = { .name = "sgd",
                              .state_name = { "momentum" },
                              .states = sgd_states,
                              .counts = sgd_counts,
                              .prepare = sgd_prepare,
                              .update = sgd_update };

/* ---- rmsprop: state v, and the momentum buffer ---- */

static int rmsprop_states(const gd_hyper *hyper)
{
    return hyper->momentum != 0.0 ? 2 : 1;
}

static void rmsprop_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *g = gd_decayed_gradient(hyper, u);
    u->next[0] = gd_running_square(u->state[0], g, hyper->alpha);
    gd_tensor *denominator = gd_add_scalar(gd_sqrt(u->next[0]), hyper->epsilon);
    if (hyper->momentum != 0.0) {
        u->next[1] = gd_flush_subnormal(
            gd_add(gd_mul_scalar(u->state[1], hyper->momentum), gd_div(g, denominator)));
        u->next_p = gd_sub(u->p, gd_mul(u->next[1], s->lr));
    } else {
        u->next_p = gd_sub(u->p, gd_div(gd_mul(g, s->lr), denominator));
    }
}

const gd_rule gd_rule_rmsprop = { .name = "rmsprop",
                                  .state_name = { "square", "momentum" },
                                  .states = rmsprop_states,
                                  .counts = gd_rule_never,
                                  .update = rmsprop_update };

/* ---- adagrad: state v, the sum of squares less its start. States begin as zeros, so `start` is
 * added where the sum is used ---- */

static int adagrad_states(const gd_hyper *hyper)
{
    (void)hyper;
    return 1;
}

static bool adagrad_counts(const gd_hyper *hyper)
{
    return hyper->decay != 0.0;
}

/* lr / (1 + (t - 1) * lr_decay) */
static bool adagrad_prepare(const gd_hyper *hyper, gd_step_scalars *s)
{
    s->step_size = s->lr;
    if (s->count) {
        gd_tensor *slowed =
            gd_add_scalar(gd_mul_scalar(gd_sub_scalar(s->count, 1.0), hyper->decay), 1.0);
        s->step_size = gd_step_scalar(s, gd_div(gd_cast(s->lr, GD_F64), slowed));
    }
    return s->step_size;
}

static void adagrad_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *g = gd_decayed_gradient(hyper, u);
    u->next[0] = gd_add(u->state[0], gd_mul(g, g));
    gd_tensor *sum = u->next[0];
    if (hyper->start != 0.0)
        sum = gd_add_scalar(sum, hyper->start);
    gd_tensor *denominator = gd_add_scalar(gd_sqrt(sum), hyper->epsilon);
    u->next_p = gd_sub(u->p, gd_div(gd_mul(g, s->step_size), denominator));
}

const gd_rule gd_rule_adagrad = { .name = "adagrad",
                                  .decay_name = "lr_decay",
                                  .state_name = { "sum" },
                                  .states = adagrad_states,
                                  .counts = adagrad_counts,
                                  .prepare = adagrad_prepare,
                                  .update = adagrad_update };

/* ---- adadelta: state v, and the running square of the steps ---- */

static int adadelta_states(const gd_hyper *hyper)
{
    (void)hyper;
    return 2;
}

static void adadelta_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *g = gd_decayed_gradient(hyper, u);
    u->next[0] = gd_running_square(u->state[0], g, hyper->alpha);
    gd_tensor *denominator = gd_sqrt(gd_add_scalar(u->next[0], hyper->epsilon));
    gd_tensor *reach = gd_sqrt(gd_add_scalar(u->state[1], hyper->epsilon));
    gd_tensor *step = gd_mul(gd_div(reach, denominator), g);
    u->next[1] = gd_running_square(u->state[1], step, hyper->alpha);
    u->next_p = gd_sub(u->p, gd_mul(step, s->lr));
}

const gd_rule gd_rule_adadelta = { .name = "adadelta",
                                   .alpha_name = "rho",
                                   .state_name = { "square", "step" },
                                   .states = adadelta_states,
                                   .counts = gd_rule_never,
                                   .update = adadelta_update };

/* ---- lion: state m ---- */

static int lion_states(const gd_hyper *hyper)
{
    (void)hyper;
    return 1;
}

static void lion_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *mixed =
        gd_add(gd_mul_scalar(u->state[0], hyper->beta1), gd_mul_scalar(u->g, 1.0 - hyper->beta1));
    gd_tensor *p = s->decay_factor ? gd_mul(u->p, s->decay_factor) : u->p;
    /* In this order the old m is read no more when the new one is made, and the compiler makes it in
     * its place. */
    u->next_p = gd_sub(p, gd_mul(gd_sign(mixed), s->lr));
    u->next[0] = gd_flush_subnormal(
        gd_add(gd_mul_scalar(u->state[0], hyper->beta2), gd_mul_scalar(u->g, 1.0 - hyper->beta2)));
}

const gd_rule gd_rule_lion = { .name = "lion",
                               .state_name = { "m" },
                               .states = lion_states,
                               .counts = gd_rule_never,
                               .prepare = gd_prepare_decay,
                               .update = lion_update };
