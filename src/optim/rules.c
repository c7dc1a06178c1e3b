/* optim/rules.c: the optimization rules. Each is a row, gd_rule_…, with the function that builds
 * its update beside it. Formulas and order of operations are those of torch.optim's single-tensor
 * implementations, which the tests hold them to. */
#include "optim/optimizer.h"

#include <gradus/ops.h>

static bool never(const gd_hyper *hyper)
{
    (void)hyper;
    return false;
}

static bool always(const gd_hyper *hyper)
{
    (void)hyper;
    return true;
}

/* The gradient of the loss with a penalty weight_decay / 2 * |p|^2. */
static gd_tensor *decayed_gradient(const gd_hyper *hyper, const gd_update *u)
{
    return hyper->weight_decay != 0.0 ? gd_add(u->g, gd_mul_scalar(u->p, hyper->weight_decay))
                                      : u->g;
}

/* ---- sgd ---- */

static int sgd_states(const gd_hyper *hyper)
{
    return hyper->momentum != 0.0 ? 1 : 0;
}

static bool sgd_counts(const gd_hyper *hyper)
{
    return hyper->momentum != 0.0 && hyper->dampening != 0.0;
}

/* The first gradient enters the buffer whole. */
static bool sgd_prepare(const gd_hyper *hyper, gd_step_scalars *s)
{
    if (!s->count)
        return true;
    gd_context *context = gd_tensor_context(s->lr);
    gd_tensor *first = gd_eq(s->count, gd_scalar(context, 1.0, GD_F64));
    s->blend = gd_where(first, gd_scalar(context, 1.0, GD_F32),
                        gd_scalar(context, 1.0 - hyper->dampening, GD_F32));
    return s->blend;
}

static void sgd_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *g = decayed_gradient(hyper, u);
    if (hyper->momentum != 0.0) {
        gd_tensor *kept = gd_mul_scalar(u->state[0], hyper->momentum);
        u->next[0] = gd_add(kept, s->blend ? gd_mul(g, s->blend) : g);
        g = hyper->nesterov ? gd_add(g, gd_mul_scalar(u->next[0], hyper->momentum)) : u->next[0];
    }
    u->next_p = gd_sub(u->p, gd_mul(g, s->lr));
}

const gd_rule gd_rule_sgd = { .name = "sgd",
                              .lr = 1e-3,
                              .states = sgd_states,
                              .counts = sgd_counts,
                              .prepare = sgd_prepare,
                              .update = sgd_update };

/* ---- adam, adamw: state m, v ---- */

static int adam_states(const gd_hyper *hyper)
{
    (void)hyper;
    return 2;
}

/* 1 - beta^t. In f64: for beta2 and small t, f32 would lose half of its digits. */
static gd_tensor *bias_correction(double beta, gd_tensor *count)
{
    gd_tensor *power = gd_pow(gd_scalar(gd_tensor_context(count), beta, GD_F64), count);
    return gd_rsub_scalar(power, 1.0);
}

static bool adam_prepare(const gd_hyper *hyper, gd_step_scalars *s)
{
    gd_tensor *size = gd_div(gd_cast(s->lr, GD_F64), bias_correction(hyper->beta1, s->count));
    s->size = gd_cast(size, GD_F32);
    s->root = gd_cast(gd_sqrt(bias_correction(hyper->beta2, s->count)), GD_F32);
    return s->size && s->root;
}

/* p as it is decayed already, g as decayed: what adam and adamw share. */
static void adam_descend(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u,
                         gd_tensor *p, gd_tensor *g)
{
    gd_tensor *m = u->state[0], *v = u->state[1];
    m = gd_add(m, gd_mul_scalar(gd_sub(g, m), 1.0 - hyper->beta1));
    v = gd_add(gd_mul_scalar(v, hyper->beta2), gd_mul(gd_mul_scalar(g, 1.0 - hyper->beta2), g));
    gd_tensor *spread = gd_add_scalar(gd_div(gd_sqrt(v), s->root), hyper->epsilon);
    u->next[0] = m;
    u->next[1] = v;
    u->next_p = gd_sub(p, gd_div(gd_mul(m, s->size), spread));
}

static void adam_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    adam_descend(hyper, s, u, u->p, decayed_gradient(hyper, u));
}

static void adamw_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *keep = gd_rsub_scalar(gd_mul_scalar(s->lr, hyper->weight_decay), 1.0);
    adam_descend(hyper, s, u, hyper->weight_decay != 0.0 ? gd_mul(u->p, keep) : u->p, u->g);
}

const gd_rule gd_rule_adam = { .name = "adam",
                               .lr = 1e-3,
                               .states = adam_states,
                               .counts = always,
                               .prepare = adam_prepare,
                               .update = adam_update };

const gd_rule gd_rule_adamw = { .name = "adamw",
                                .lr = 1e-3,
                                .states = adam_states,
                                .counts = always,
                                .prepare = adam_prepare,
                                .update = adamw_update };

/* ---- rmsprop: state v, and the momentum buffer ---- */

static int rmsprop_states(const gd_hyper *hyper)
{
    return hyper->momentum != 0.0 ? 2 : 1;
}

static void rmsprop_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *g = decayed_gradient(hyper, u);
    gd_tensor *square = gd_mul(gd_mul_scalar(g, 1.0 - hyper->alpha), g);
    u->next[0] = gd_add(gd_mul_scalar(u->state[0], hyper->alpha), square);
    gd_tensor *spread = gd_add_scalar(gd_sqrt(u->next[0]), hyper->epsilon);
    if (hyper->momentum != 0.0) {
        u->next[1] = gd_add(gd_mul_scalar(u->state[1], hyper->momentum), gd_div(g, spread));
        u->next_p = gd_sub(u->p, gd_mul(u->next[1], s->lr));
    } else {
        u->next_p = gd_sub(u->p, gd_div(gd_mul(g, s->lr), spread));
    }
}

const gd_rule gd_rule_rmsprop = { .name = "rmsprop",
                                  .lr = 0.01,
                                  .states = rmsprop_states,
                                  .counts = never,
                                  .update = rmsprop_update };
