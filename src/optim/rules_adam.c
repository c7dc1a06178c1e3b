/* optim/rules_adam.c: adam and what descends from it: adamw, nadam, radam, lamb. States m and v,
 * the running mean and the running square of the gradients; amsgrad adds the largest v so far.
 * Formulas and order of operations are torch.optim's, lamb's those of its paper. */
#include "optim/rules.h"
#include "ops/adam.h"
#include "ops/random.h"

static int adam_states(const gd_hyper *hyper)
{
    return hyper->amsgrad ? 3 : 2;
}

/* 1 - beta^t. In f64: for beta2 and small t, f32 would lose half of its digits. */
static gd_tensor *bias_correction(double beta, gd_tensor *count)
{
    gd_tensor *power = gd_pow(gd_scalar(gd_tensor_context(count), beta, GD_F64), count);
    return gd_rsub_scalar(power, 1.0);
}

/* With root = sqrt(1 - beta2^t): m * size / (sqrt(v) / root + epsilon) equals
 * m * (size * root) / (sqrt(v) + epsilon * root), which saves a division for each element. */
static bool adam_prepare(const gd_hyper *hyper, gd_step_scalars *s)
{
    gd_tensor *root = gd_sqrt(bias_correction(hyper->beta2, s->count));
    gd_tensor *size = gd_div(gd_cast(s->lr, GD_F64), bias_correction(hyper->beta1, s->count));
    s->step_size = gd_step_scalar(s, gd_mul(size, root));
    s->scaled_epsilon = gd_step_scalar(s, gd_mul_scalar(root, hyper->epsilon));
    return gd_prepare_decay(hyper, s) && s->step_size && s->scaled_epsilon;
}

/* The parameter as decoupled decay leaves it. */
static gd_tensor *decayed_parameter(const gd_step_scalars *s, const gd_update *u)
{
    return s->decay_factor ? gd_mul(u->p, s->decay_factor) : u->p;
}

/* m and v moved towards g and g^2. */
static void move_moments(const gd_hyper *hyper, gd_update *u, gd_tensor *g)
{
    gd_tensor *m = u->state[0];
    u->next[0] = gd_flush_subnormal(gd_add(m, gd_mul_scalar(gd_sub(g, m), 1.0 - hyper->beta1)));
    u->next[1] = gd_running_square(u->state[1], g, hyper->beta2);
}

static gd_tensor *number_for(const gd_step_scalars *s, double value)
{
    return gd_scalar(gd_tensor_context(s->lr), value, gd_tensor_dtype(s->lr));
}

/* Where a step may be passed over, its ops and those that choose are one group; and so they are with
 * those that convert states, but for states in bf16 that are rounded stochastically: adam_bf16 has
 * moments of f32 nowhere. */
static bool is_one_op(const gd_hyper *hyper, const gd_step_scalars *s, const gd_update *u)
{
    const bool takes_states =
        u->rounds_states ? gd_tensor_dtype(s->lr) == GD_F32 : u->kept[0] == u->state[0];
    return !hyper->amsgrad && !s->may_be_passed_over && takes_states;
}

static void adam_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *g = gd_decayed_gradient(hyper, u);
    if (is_one_op(hyper, s, u)) {
        const bool rounds = u->rounds_states;
        gd_tensor *const in[GD_ADAM_BF16_OPERANDS] = {
            [GD_ADAM_P] = u->p,
            [GD_ADAM_G] = g,
            [GD_ADAM_M] = rounds ? u->kept[0] : u->state[0],
            [GD_ADAM_V] = rounds ? u->kept[1] : u->state[1],
            [GD_ADAM_STEP_SIZE] = s->step_size,
            [GD_ADAM_EPSILON] = s->scaled_epsilon,
            [GD_ADAM_REST1] = number_for(s, 1.0 - hyper->beta1),
            [GD_ADAM_BETA2] = number_for(s, hyper->beta2),
            [GD_ADAM_REST2] = number_for(s, 1.0 - hyper->beta2),
            [GD_ADAM_DECAY] = s->decay_factor,
            [GD_ADAM_WORDS] =
                rounds ? gd_random_words(gd_tensor_context(g), gd_tensor_shape(g)) : NULL,
        };
        gd_tensor *next[GD_ADAM_RESULTS] = { NULL };
        /* what failed is NULL, and assigned nowhere */
        (void)(rounds ? gd_adam_step_bf16(in, next) : gd_adam_step(in, next));
        u->next_p = next[GD_ADAM_NEXT_P];
        u->next[0] = next[GD_ADAM_NEXT_M];
        u->next[1] = next[GD_ADAM_NEXT_V];
        return;
    }
    move_moments(hyper, u, g);
    gd_tensor *v = u->next[1];
    if (hyper->amsgrad)
        v = u->next[2] = gd_maximum(u->state[2], v);
    gd_tensor *step =
        gd_div(gd_mul(u->next[0], s->step_size), gd_add(gd_sqrt(v), s->scaled_epsilon));
    u->next_p = gd_sub(decayed_parameter(s, u), step);
}

#define ADAM_STATES       \
    {                     \
        "m", "v", "v_max" \
    }

const gd_rule gd_rule_adam = { .name = "adam",
                               .state_name = ADAM_STATES,
                               .states = adam_states,
                               .counts = gd_rule_always,
                               .prepare = adam_prepare,
                               .update = adam_update };

const gd_rule gd_rule_adamw = { .name = "adamw",
                                .state_name = ADAM_STATES,
                                .states = adam_states,
                                .counts = gd_rule_always,
                                .prepare = adam_prepare,
                                .update = adam_update };

/* ---- nadam ---- */

/* The momentum of a step, beta1 * (1 - 0.96^(t * momentum_decay) / 2). */
static gd_tensor *momentum_at(const gd_hyper *hyper, gd_tensor *count)
{
    gd_tensor *base = gd_scalar(gd_tensor_context(count), 0.96, GD_F64);
    gd_tensor *power = gd_pow(base, gd_mul_scalar(count, hyper->decay));
    return gd_mul_scalar(gd_rsub_scalar(gd_mul_scalar(power, 0.5), 1.0), hyper->beta1);
}

/* gradient_factor multiplies the gradient, step_size the first moment. */
static bool nadam_prepare(const gd_hyper *hyper, gd_step_scalars *s)
{
    gd_tensor *lr = gd_cast(s->lr, GD_F64), *mu = momentum_at(hyper, s->count);
    gd_tensor *next_mu = momentum_at(hyper, gd_add_scalar(s->count, 1.0));
    s->next_product = gd_mul(s->product, mu);
    gd_tensor *of_g = gd_div(gd_rsub_scalar(mu, 1.0), gd_rsub_scalar(s->next_product, 1.0));
    gd_tensor *of_m = gd_div(next_mu, gd_rsub_scalar(gd_mul(s->next_product, next_mu), 1.0));
    s->gradient_factor = gd_step_scalar(s, gd_mul(lr, of_g));
    s->step_size = gd_step_scalar(s, gd_mul(lr, of_m));
    s->second_correction = gd_step_scalar(s, bias_correction(hyper->beta2, s->count));
    return gd_prepare_decay(hyper, s) && s->gradient_factor && s->step_size && s->second_correction;
}

static void nadam_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    gd_tensor *g = gd_decayed_gradient(hyper, u);
    move_moments(hyper, u, g);
    gd_tensor *denominator =
        gd_add_scalar(gd_sqrt(gd_div(u->next[1], s->second_correction)), hyper->epsilon);
    gd_tensor *p =
        gd_sub(decayed_parameter(s, u), gd_div(gd_mul(g, s->gradient_factor), denominator));
    u->next_p = gd_sub(p, gd_div(gd_mul(u->next[0], s->step_size), denominator));
}

const gd_rule gd_rule_nadam = { .name = "nadam",
                                .decay_name = "momentum_decay",
                                .state_name = ADAM_STATES,
                                .states = adam_states,
                                .counts = gd_rule_always,
                                .has_product = true,
                                .prepare = nadam_prepare,
                                .update = nadam_update };

/* ---- radam ---- */

/* rho_t is the length of the average behind v; above 5 its variance is known, and the step is
 * divided by sqrt(v). second_correction is then the rectification times sqrt(1 - beta2^t). */
static bool radam_prepare(const gd_hyper *hyper, gd_step_scalars *s)
{
    gd_context *context = gd_tensor_context(s->count);
    double all = 2.0 / (1.0 - hyper->beta2) - 1.0;
    gd_tensor *known = bias_correction(hyper->beta2, s->count);
    gd_tensor *power = gd_rsub_scalar(known, 1.0);
    gd_tensor *rho =
        gd_rsub_scalar(gd_div(gd_mul(gd_mul_scalar(s->count, 2.0), power), known), all);
    s->rectified = gd_gt(rho, gd_scalar(context, 5.0, GD_F64));
    gd_tensor *above =
        gd_maximum(rho, gd_scalar(context, 5.0, GD_F64)); /* no root of less than 0 */
    gd_tensor *part = gd_mul(gd_sub_scalar(above, 4.0), gd_sub_scalar(above, 2.0));
    gd_tensor *whole = gd_mul_scalar(above, (all - 4.0) * (all - 2.0));
    gd_tensor *rectification = gd_sqrt(gd_div(gd_mul_scalar(part, all), whole));
    s->second_correction = gd_step_scalar(s, gd_mul(rectification, gd_sqrt(known)));
    gd_tensor *size = gd_div(gd_cast(s->lr, GD_F64), bias_correction(hyper->beta1, s->count));
    s->step_size = gd_step_scalar(s, size);
    return gd_prepare_decay(hyper, s) && s->rectified && s->second_correction && s->step_size;
}

static void radam_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    move_moments(hyper, u, gd_decayed_gradient(hyper, u));
    gd_tensor *plain = gd_mul(u->next[0], s->step_size);
    gd_tensor *denominator = gd_add_scalar(gd_sqrt(u->next[1]), hyper->epsilon);
    gd_tensor *adapted = gd_div(gd_mul(plain, s->second_correction), denominator);
    u->next_p = gd_sub(decayed_parameter(s, u), gd_where(s->rectified, adapted, plain));
}

const gd_rule gd_rule_radam = { .name = "radam",
                                .state_name = ADAM_STATES,
                                .states = adam_states,
                                .counts = gd_rule_always,
                                .prepare = radam_prepare,
                                .update = radam_update };

/* ---- lamb: adam's step with decay, scaled to the norm of the parameter ---- */

static bool lamb_prepare(const gd_hyper *hyper, gd_step_scalars *s)
{
    gd_tensor *size = gd_rdiv_scalar(bias_correction(hyper->beta1, s->count), 1.0);
    s->step_size = gd_step_scalar(s, size);
    s->second_correction = gd_step_scalar(s, gd_sqrt(bias_correction(hyper->beta2, s->count)));
    return s->step_size && s->second_correction;
}

static gd_tensor *norm_of(gd_tensor *x)
{
    return gd_sqrt(gd_sum(gd_square(x), GD_ALL_AXES, false));
}

static void lamb_update(const gd_hyper *hyper, const gd_step_scalars *s, gd_update *u)
{
    move_moments(hyper, u, u->g);
    gd_tensor *denominator =
        gd_add_scalar(gd_div(gd_sqrt(u->next[1]), s->second_correction), hyper->epsilon);
    gd_tensor *step = gd_div(gd_mul(u->next[0], s->step_size), denominator);
    if (hyper->weight_decay != 0.0)
        step = gd_add(step, gd_mul_scalar(u->p, hyper->weight_decay));
    gd_tensor *length = norm_of(u->p), *stride = norm_of(step);
    gd_tensor *product = gd_mul(length, stride);
    if (!product)
        return;
    gd_context *context = gd_tensor_context(product);
    gd_tensor *some = gd_gt(product, gd_scalar(context, 0.0, gd_tensor_dtype(product)));
    gd_tensor *trust =
        gd_where(some, gd_div(length, stride), gd_scalar(context, 1.0, gd_tensor_dtype(product)));
    u->next_p = gd_sub(u->p, gd_mul(step, gd_mul(trust, s->lr)));
}

const gd_rule gd_rule_lamb = { .name = "lamb",
                               .state_name = ADAM_STATES,
                               .states = adam_states,
                               .counts = gd_rule_always,
                               .prepare = lamb_prepare,
                               .update = lamb_update };
