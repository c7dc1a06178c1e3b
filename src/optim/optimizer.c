/* optim/optimizer.c: optimizers: state tensors of the parameters, groups, clipping, and one step
 * over all of them. Start at update_all(). It knows no rule. */
#include "optim/optimizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "graph/phase.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>
#include <gradus/precision.h>

#include <fnmatch.h>
#include <math.h>

static gd_tensor *updates(void *user, int count, gd_tensor *const *in);

/* ---- making and ending ---- */

static void destroy(void *object)
{
    gd_optimizer *o = object;
    gd_function_release(o->updates);
    for (size_t i = 0; i < o->slot_count; i++)
        for (int k = 0; k < GD_RULE_MAX_STATES; k++)
            gd_release(o->slots[i].state[k]);
    for (size_t i = 0; i < o->group_count; i++) {
        gd_release(o->groups[i].lr_tensor);
        gd_free(o->groups[i].pattern);
    }
    gd_release(o->count_tensor);
    gd_release(o->product_tensor);
    gd_release(o->norm_tensor);
    gd_release(o->scale_tensor);
    gd_free(o->groups);
    gd_free(o->slots);
    gd_free(o->lists);
    gd_free(o);
}

void gd_optimizer_release(gd_optimizer *o)
{
    if (!o)
        return;
    gd_context_disown(o->context, o);
    destroy(o);
}

const char *gd_optimizer_name(const gd_optimizer *o)
{
    return o ? o->rule->name : "";
}

gd_module *gd_optimizer_module(const gd_optimizer *o)
{
    return o ? o->module : NULL;
}

static gd_status check_hyper(const char *name, const gd_rule *rule, double lr, const gd_hyper *h)
{
    const struct {
        const char *name;
        double value, limit;
    } rows[] = {
        { "lr", lr, INFINITY },
        { "momentum", h->momentum, INFINITY },
        { "weight_decay", h->weight_decay, INFINITY },
        { "epsilon", h->epsilon, INFINITY },
        { "beta1", h->beta1, 1.0 },
        { "beta2", h->beta2, 1.0 },
        { rule->alpha_name ? rule->alpha_name : "alpha", h->alpha, 1.0 },
        { rule->decay_name ? rule->decay_name : "decay", h->decay, INFINITY },
        { "initial_accumulator", h->start, INFINITY },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].value >= 0.0 && rows[i].value < rows[i].limit))
            return gd_fail(GD_ERR_INVALID, "gd_%s: %s is %g; it must be 0 or more, below %g", name,
                           rows[i].name, rows[i].value, rows[i].limit);
    if (!isfinite(h->dampening))
        return gd_fail(GD_ERR_INVALID, "gd_%s: dampening is %g", name, h->dampening);
    if (h->nesterov && (h->momentum == 0.0 || h->dampening != 0.0))
        return gd_fail(GD_ERR_INVALID, "gd_%s: nesterov needs momentum, and no dampening", name);
    return GD_OK;
}

static gd_status write_lr(const gd_optimizer *o, const gd_group *group)
{
    double value = o->lr * group->lr_ratio;
    float narrow = (float)value;
    return o->dtype == GD_F64 ? gd_tensor_write(group->lr_tensor, &value, sizeof value)
                              : gd_tensor_write(group->lr_tensor, &narrow, sizeof narrow);
}

static gd_status add_group(gd_optimizer *o, const char *pattern, double lr_ratio, gd_hyper hyper)
{
    if (!gd_grow((void **)&o->groups, &o->group_capacity, o->group_count + 1, sizeof *o->groups))
        return GD_ERR_MEMORY;
    gd_group group = { .lr_ratio = lr_ratio, .hyper = hyper };
    group.lr_tensor = gd_state(o->context, GD_SCALAR, o->lr * lr_ratio, o->dtype);
    group.pattern = pattern ? gd_strdup(pattern) : NULL;
    if (!group.lr_tensor || (pattern && !group.pattern)) {
        gd_release(group.lr_tensor);
        gd_free(group.pattern);
        return GD_ERR_MEMORY;
    }
    o->groups[o->group_count++] = group;
    return GD_OK;
}

static gd_dtype dtype_of_updates(const gd_module *module)
{
    return gd_module_dtype(module) == GD_F64 ? GD_F64 : GD_F32;
}

static gd_status check_storage(const char *name, gd_dtype updates, const gd_storage *s)
{
    if (s->state_dtype != updates && s->state_dtype != GD_BF16 && s->state_dtype != GD_DTYPE_COUNT)
        return gd_fail(GD_ERR_DTYPE, "gd_%s: states are kept in %s or bf16, not in %s%s", name,
                       gd_dtype_name(updates), gd_dtype_name(s->state_dtype),
                       s->state_dtype == GD_F16 ? ", where running squares would be 0" : "");
    if (s->stochastic_rounding < -1 || s->stochastic_rounding > 1)
        return gd_fail(GD_ERR_INVALID, "gd_%s: stochastic_rounding is %d; it must be 0, 1 or -1",
                       name, s->stochastic_rounding);
    return GD_OK;
}

gd_optimizer *gd_optimizer_make(const gd_rule *rule, gd_module *module, double lr, gd_hyper hyper,
                                gd_storage storage)
{
    if (!module)
        return NULL;
    if (check_hyper(rule->name, rule, lr, &hyper) != GD_OK ||
        check_storage(rule->name, dtype_of_updates(module), &storage) != GD_OK)
        return NULL;
    gd_optimizer *o = gd_alloc_zero(1, sizeof *o);
    if (!o)
        return NULL;
    o->module = module;
    o->context = gd_module_context(module);
    o->dtype = dtype_of_updates(module);
    o->state_dtype = storage.state_dtype == GD_DTYPE_COUNT ? o->dtype : storage.state_dtype;
    o->rounds_states = storage.stochastic_rounding != 0;
    o->rounds_parameters = storage.stochastic_rounding > 0;
    o->rule = rule;
    o->lr = lr;
    bool counts = rule->counts(&hyper);
    if (counts)
        o->count_tensor = gd_state(o->context, GD_SCALAR, 0.0, GD_F64);
    if (rule->has_product)
        o->product_tensor = gd_state(o->context, GD_SCALAR, 1.0, GD_F64);
    o->updates = gd_compile(o->context, updates, o, .mode = GD_MODE_LAZY);
    if (!o->updates || (counts && !o->count_tensor) || (rule->has_product && !o->product_tensor) ||
        add_group(o, NULL, 1.0, hyper) != GD_OK ||
        gd_context_adopt(o->context, o, destroy) != GD_OK) {
        destroy(o);
        return NULL;
    }
    return o;
}

gd_status gd_optimizer_set_lr(gd_optimizer *o, double lr)
{
    if (!o || !(lr >= 0.0) || isinf(lr))
        return gd_fail(GD_ERR_INVALID, "gd_optimizer_set_lr: %s",
                       o ? "a learning rate must be 0 or more" : "the optimizer is NULL");
    if (gd_is_tracing(o->context))
        return gd_fail_traced("gd_optimizer_set_lr");
    o->lr = lr;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < o->group_count; i++)
        status = write_lr(o, &o->groups[i]);
    return status;
}

double gd_optimizer_lr(const gd_optimizer *o)
{
    return o ? o->lr : NAN;
}

gd_status gd_optimizer_group_with(gd_optimizer *o, const char *pattern,
                                  const gd_optimizer_group_options *options)
{
    gd_optimizer_group_options given = { GD_OPTIMIZER_GROUP_DEFAULTS };
    if (!gd_options_read("gd_optimizer_group", &given, sizeof given, options))
        return gd_error_last();
    if (!o || !pattern)
        return gd_fail(GD_ERR_INVALID, "gd_optimizer_group: the optimizer or the pattern is NULL");
    if (o->slot_count)
        return gd_fail(GD_ERR_STATE, "gd_optimizer_group: the optimizer has taken a step already");
    double lr = isnan(given.lr) ? o->lr : given.lr;
    if (o->lr == 0.0 && lr != 0.0)
        return gd_fail(GD_ERR_STATE, "gd_optimizer_group: the optimizer's own lr is 0");
    gd_hyper hyper = o->groups[0].hyper;
    if (!isnan(given.weight_decay))
        hyper.weight_decay = given.weight_decay;
    gd_status status = check_hyper("optimizer_group", o->rule, lr, &hyper);
    double ratio = isnan(given.lr) ? 1.0 : lr == 0.0 ? 0.0 : lr / o->lr;
    return status == GD_OK ? add_group(o, pattern, ratio, hyper) : status;
}

gd_group *gd_optimizer_group_of(const gd_optimizer *o, int i)
{
    size_t g = o->group_count;
    while (g-- > 1)
        if (fnmatch(o->groups[g].pattern, gd_module_path(o->module, i), 0) == 0)
            return &o->groups[g];
    return &o->groups[0];
}

/* ---- clipping ---- */

static gd_status check_limit(const gd_optimizer *o, double limit, const char *who)
{
    if (!o || !(limit >= 0.0) || isinf(limit))
        return gd_fail(GD_ERR_INVALID, "%s: %s", who,
                       o ? "the limit must be 0 (none) or more" : "the optimizer is NULL");
    return GD_OK;
}

gd_status gd_optimizer_clip_norm(gd_optimizer *o, double max_norm)
{
    gd_status status = check_limit(o, max_norm, "gd_optimizer_clip_norm");
    if (status != GD_OK)
        return status;
    if (!o->norm_tensor)
        o->norm_tensor = gd_state(o->context, GD_SCALAR, 0.0, o->dtype);
    if (!o->norm_tensor)
        return GD_ERR_MEMORY;
    o->clip_norm = max_norm;
    return GD_OK;
}

gd_status gd_optimizer_clip_value(gd_optimizer *o, double limit)
{
    gd_status status = check_limit(o, limit, "gd_optimizer_clip_value");
    if (status == GD_OK)
        o->clip_value = limit;
    return status;
}

double gd_optimizer_gradient_norm(const gd_optimizer *o)
{
    return o && o->norm_tensor ? gd_item(o->norm_tensor) : NAN;
}

/* sqrt of the sum of all squares */
static gd_tensor *global_norm(gd_tensor *const *gradients, int count)
{
    gd_tensor *sum = NULL;
    for (int i = 0; i < count; i++) {
        if (!gradients[i])
            continue;
        gd_tensor *part = gd_sum(gd_square(gradients[i]), GD_ALL_AXES, false);
        sum = sum ? gd_add(sum, part) : part;
        if (!sum)
            return NULL;
    }
    return gd_sqrt(sum);
}

/* The gradients in their list, clipped: each element first, then all together. */
static bool clip(gd_optimizer *o, gd_tensor **gradients)
{
    int count = gd_module_count(o->module);
    for (int i = 0; o->clip_value != 0.0 && i < count; i++)
        if (gradients[i]) {
            gradients[i] = gd_clip(gradients[i], -o->clip_value, o->clip_value);
            if (!gradients[i])
                return false;
        }
    if (o->clip_norm == 0.0)
        return true;
    gd_tensor *norm = global_norm(gradients, count);
    gd_tensor *factor = gd_rdiv_scalar(gd_add_scalar(norm, 1e-6), o->clip_norm);
    factor = factor ? gd_minimum(factor, gd_scalar(o->context, 1.0, o->dtype)) : NULL;
    for (int i = 0; factor && i < count; i++)
        if (gradients[i]) {
            gradients[i] = gd_mul(gradients[i], factor);
            if (!gradients[i])
                return false;
        }
    return factor && gd_assign(o->norm_tensor, norm);
}

/* ---- a step ---- */

bool gd_optimizer_reserve(gd_optimizer *o)
{
    size_t count = (size_t)gd_module_count(o->module);
    if (!gd_grow((void **)&o->slots, &o->slot_capacity, count, sizeof *o->slots) ||
        !gd_grow((void **)&o->lists, &o->list_capacity, 3 * count, sizeof(gd_tensor *)))
        return false;
    for (; o->slot_count < count; o->slot_count++)
        o->slots[o->slot_count] = (gd_slot){ { NULL } };
    return true;
}

gd_tensor *gd_optimizer_state(gd_optimizer *o, int i, int k)
{
    gd_tensor **state = &o->slots[i].state[k];
    gd_tensor *p = gd_module_tensor(o->module, i);
    if (!*state)
        *state = gd_state(o->context, gd_tensor_shape(p), 0.0, o->state_dtype);
    return *state;
}

/* Update parameter number i of the module from its gradient. */
static bool update_one(gd_optimizer *o, int i, gd_tensor *g)
{
    const gd_group *group = gd_optimizer_group_of(o, i);
    gd_tensor *p = gd_module_tensor(o->module, i);
    gd_update u = { .p = gd_cast(p, o->dtype),
                    .g = g,
                    .rounds_states = o->rounds_states && o->state_dtype != o->dtype };
    int states = o->rule->states(&group->hyper);
    for (int k = 0; k < states; k++) {
        u.kept[k] = gd_optimizer_state(o, i, k);
        u.state[k] = gd_cast(u.kept[k], o->dtype);
        if (!u.state[k])
            return false;
    }
    o->rule->update(&group->hyper, &group->scalars, &u);
    gd_rounding rounding = { 0 };
    gd_tensor *stored[GD_RULE_MAX_STATES];
    for (int k = 0; k < states; k++)
        stored[k] = gd_optimizer_stored(&rounding, gd_optimizer_chosen(o, u.next[k], u.state[k]),
                                        o->state_dtype, o->rounds_states);
    gd_tensor *next = gd_optimizer_stored(&rounding, gd_optimizer_chosen(o, u.next_p, u.p),
                                          gd_tensor_dtype(p), o->rounds_parameters);
    /* Behind all that is computed, which can then be one group. */
    for (int k = 0; k < states; k++)
        if (!gd_assign(u.kept[k], stored[k]))
            return false;
    return gd_assign(p, next);
}

/* What the updates of a step share, group by group. */
static bool prepare(gd_optimizer *o)
{
    gd_tensor *count = o->count_tensor ? gd_add_scalar(o->count_tensor, 1.0) : NULL;
    if (o->count_tensor && !count)
        return false;
    for (size_t i = 0; i < o->group_count; i++) {
        gd_group *g = &o->groups[i];
        g->scalars = (gd_step_scalars){ .lr = g->lr_tensor,
                                        .count = count,
                                        .product = o->product_tensor,
                                        .may_be_passed_over = o->is_finite != NULL };
        if (o->rule->prepare && !o->rule->prepare(&g->hyper, &g->scalars))
            return false;
    }
    return true;
}

/* gradients[i] for the module's parameter i; NULL leaves it alone. */
static bool update_all(gd_optimizer *o, gd_tensor **gradients)
{
    if ((o->scale_tensor && !gd_optimizer_unscale(o, gradients)) || !clip(o, gradients) ||
        !prepare(o))
        return false;
    for (int i = 0; i < gd_module_count(o->module); i++)
        if (gradients[i] && !update_one(o, i, gradients[i]))
            return false;
    const gd_step_scalars *scalars = &o->groups[0].scalars;
    gd_tensor *count = o->count_tensor, *product = o->product_tensor;
    return (!count || gd_assign(count, gd_optimizer_chosen(o, scalars->count, count))) &&
           (!product ||
            gd_assign(product, gd_optimizer_chosen(o, scalars->next_product, product))) &&
           (!o->scale_tensor || gd_optimizer_rescale(o));
}

/* The body of o->updates, on the gradients there are. */
static gd_tensor *updates(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_optimizer *o = user;
    int parameters = gd_module_count(o->module);
    gd_tensor **gradients = o->lists + parameters;
    for (int i = 0; i < parameters; i++) {
        gradients[i] = o->lists[i] ? gd_cast(*in++, o->dtype) : NULL;
        if (o->lists[i] && !gradients[i])
            return NULL;
    }
    return update_all(o, gradients) ? o->groups[0].lr_tensor : NULL;
}

/* One step from the gradients in o->lists, by number of the parameter. Outside of a trace it runs
 * as a plan of its own, recorded lazily since groups and clipping may change: so a parameter's
 * update is one pass over memory in eager execution, too. */
static bool apply(gd_optimizer *o)
{
    int count = gd_module_count(o->module), given = 0;
    gd_tensor **in = o->lists + 2 * (size_t)count;
    for (int i = 0; i < count; i++)
        if (o->lists[i])
            in[given++] = o->lists[i];
    if (gd_autocast_begin(o->context, GD_F32) != GD_OK) /* parameters are not rounded */
        return false;
    bool ok = gd_call(o->updates, given, in);
    (void)gd_autocast_end(o->context);
    return ok;
}

static bool is_trainable(const gd_module *m, int i)
{
    return gd_module_is_parameter(m, i) && gd_requires_grad(gd_module_tensor(m, i));
}

/* Gradients of loss for the trainable parameters, into gradients[] by number; NULL for the others.
 */
static bool differentiate(gd_optimizer *o, gd_tensor *loss, gd_tensor **gradients)
{
    int count = gd_module_count(o->module), wanted = 0;
    gd_tensor **parameters = o->lists + count;
    for (int i = 0; i < count; i++)
        if (is_trainable(o->module, i))
            parameters[wanted++] = gd_module_tensor(o->module, i);
    if (wanted == 0) {
        (void)gd_fail(GD_ERR_STATE,
                      "gd_minimize: the module has no parameter that requires a gradient");
        return false;
    }
    (void)gd_no_grad_begin(o->context); /* the gradients' own history would keep all values alive */
    gd_tensor *seed = o->scale_tensor ? gd_optimizer_scale(o, gd_tensor_dtype(loss)) : NULL;
    if (seed)
        seed = gd_broadcast_to(seed, gd_tensor_shape(loss));
    gd_status status = o->scale_tensor && !seed
                           ? gd_error_last()
                           : gd_grad(1, &loss, &seed, wanted, parameters, gradients);
    (void)gd_no_grad_end(o->context);
    if (status != GD_OK)
        return false;
    /* To the numbers of their parameters, from the end: a parameter's number is at least its index
     * among the trainable ones. */
    for (int i = count; i-- > 0;)
        gradients[i] = is_trainable(o->module, i) ? gradients[--wanted] : NULL;
    return true;
}

gd_tensor *gd_minimize(gd_optimizer *o, gd_tensor *loss)
{
    if (!o || !loss)
        return NULL;
    if (!gd_requires_grad(loss))
        return gd_fail_null(GD_ERR_STATE, "gd_minimize: the loss depends on no parameter");
    if (!gd_optimizer_reserve(o) || gd_scope_begin(o->context) != GD_OK)
        return NULL;
    (void)gd_no_grad_begin(
        o->context); /* the update, and the gradients' own history, are not differentiated */
    gd_phase before = gd_trace_set_phase(o->context, GD_PHASE_BACKWARD);
    bool ok = differentiate(o, loss, o->lists);
    (void)gd_trace_set_phase(o->context, GD_PHASE_UPDATE);
    ok = ok && apply(o);
    (void)gd_trace_set_phase(o->context, before);
    (void)gd_no_grad_end(o->context);
    (void)gd_scope_end(o->context);
    return ok ? loss : NULL;
}

gd_status gd_optimizer_step(gd_optimizer *o)
{
    if (!o)
        return gd_fail(GD_ERR_INVALID, "gd_optimizer_step: the optimizer is NULL");
    if (!gd_optimizer_reserve(o))
        return GD_ERR_MEMORY;
    bool any = false;
    for (int i = 0; i < gd_module_count(o->module); i++) {
        o->lists[i] =
            is_trainable(o->module, i) ? gd_gradient(gd_module_tensor(o->module, i)) : NULL;
        any |= o->lists[i] != NULL;
    }
    if (!any)
        return gd_fail(GD_ERR_STATE,
                       "gd_optimizer_step: no parameter has a gradient; gd_backward comes first");
    if (gd_scope_begin(o->context) != GD_OK)
        return GD_ERR_MEMORY;
    (void)gd_no_grad_begin(o->context);
    bool ok = apply(o);
    (void)gd_no_grad_end(o->context);
    (void)gd_scope_end(o->context);
    return ok ? GD_OK : gd_error_last();
}

gd_status gd_optimizer_zero_grad(gd_optimizer *o)
{
    if (!o)
        return gd_fail(GD_ERR_INVALID, "gd_optimizer_zero_grad: the optimizer is NULL");
    gd_status status = gd_scope_begin(o->context);
    if (status != GD_OK)
        return status;
    for (int i = 0; status == GD_OK && i < gd_module_count(o->module); i++)
        status = gd_zero_grad(gd_module_tensor(o->module, i));
    (void)gd_scope_end(o->context);
    return status;
}
