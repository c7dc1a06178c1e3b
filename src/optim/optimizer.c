/* optim/optimizer.c: optimizers: state tensors of the parameters, and one step over all of them.
 * Start at apply(). It knows no rule. */
#include "optim/optimizer.h"

#include "base/error.h"
#include "base/memory.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <math.h>
#include <string.h>

/* State of the module's parameter of the same number. */
typedef struct slot {
    gd_tensor *state[GD_RULE_MAX_STATES]; /* retained; NULL: not used yet */
} slot;

struct gd_optimizer {
    gd_module *module;
    gd_context *context;
    const gd_rule *rule;
    gd_hyper hyper;
    double lr;
    gd_tensor *lr_tensor;    /* [] f32 */
    gd_tensor *count_tensor; /* [] f64, steps taken; NULL when the rule does not count */
    slot *slots;             /* by number of the module's parameter */
    size_t slot_count, slot_capacity;
    gd_tensor **lists; /* room for parameters and gradients of a step */
    size_t list_capacity;
};

/* ---- making and ending ---- */

static void destroy(void *object)
{
    gd_optimizer *o = object;
    for (size_t i = 0; i < o->slot_count; i++)
        for (int k = 0; k < GD_RULE_MAX_STATES; k++)
            gd_release(o->slots[i].state[k]);
    gd_release(o->lr_tensor);
    gd_release(o->count_tensor);
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

/* Zeros of the optimizer's own, not recorded by a trace. */
static gd_tensor *make_state(gd_context *context, gd_shape shape, gd_dtype dtype)
{
    gd_trace_pause(context);
    gd_tensor *t = NULL;
    if (gd_scope_begin(context) == GD_OK) {
        t = gd_retain(gd_zeros(context, shape, dtype));
        (void)gd_scope_end(context);
    }
    gd_trace_resume(context);
    return t;
}

static gd_status check_hyper(const char *name, double lr, const gd_hyper *h)
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
        { "alpha", h->alpha, 1.0 },
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

static gd_optimizer *create(const gd_rule *rule, gd_module *module, double lr, gd_hyper hyper)
{
    if (!module)
        return NULL;
    lr = lr == 0.0 ? rule->lr : lr;
    if (check_hyper(rule->name, lr, &hyper) != GD_OK)
        return NULL;
    gd_optimizer *o = gd_alloc_zero(1, sizeof *o);
    if (!o)
        return NULL;
    o->module = module;
    o->context = gd_module_context(module);
    o->rule = rule;
    o->hyper = hyper;
    o->lr_tensor = make_state(o->context, GD_SCALAR, GD_F32);
    bool counts = rule->counts(&hyper);
    if (counts)
        o->count_tensor = make_state(o->context, GD_SCALAR, GD_F64);
    if (!o->lr_tensor || (counts && !o->count_tensor) || gd_optimizer_set_lr(o, lr) != GD_OK ||
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
    float value = (float)lr;
    o->lr = lr;
    return gd_tensor_write(o->lr_tensor, &value, sizeof value);
}

double gd_optimizer_lr(const gd_optimizer *o)
{
    return o ? o->lr : NAN;
}

/* ---- a step ---- */

static bool reserve(gd_optimizer *o)
{
    size_t count = (size_t)gd_module_count(o->module);
    if (!gd_grow((void **)&o->slots, &o->slot_capacity, count, sizeof *o->slots) ||
        !gd_grow((void **)&o->lists, &o->list_capacity, 2 * count, sizeof(gd_tensor *)))
        return false;
    for (; o->slot_count < count; o->slot_count++)
        o->slots[o->slot_count] = (slot){ { NULL } };
    return true;
}

static bool take_state(gd_optimizer *o, size_t i, gd_update *u)
{
    int states = o->rule->states(&o->hyper);
    for (int k = 0; k < states; k++) {
        gd_tensor **state = &o->slots[i].state[k];
        if (!*state)
            *state = make_state(o->context, gd_tensor_shape(u->p), gd_tensor_dtype(u->p));
        if (!*state)
            return false;
        u->state[k] = *state;
    }
    return true;
}

/* Update parameter number i of the module from its gradient. */
static bool update_one(gd_optimizer *o, const gd_step_scalars *scalars, size_t i, gd_tensor *g)
{
    gd_update u = { .p = gd_module_tensor(o->module, (int)i), .g = g };
    if (!take_state(o, i, &u))
        return false;
    o->rule->update(&o->hyper, scalars, &u);
    for (int k = 0; k < GD_RULE_MAX_STATES && u.state[k]; k++)
        if (!gd_assign(u.state[k], u.next[k]))
            return false;
    return gd_assign(u.p, u.next_p);
}

/* gradients[i] for the module's parameter i; NULL leaves it alone. */
static bool apply(gd_optimizer *o, gd_tensor *const *gradients)
{
    gd_step_scalars scalars = { .lr = o->lr_tensor };
    if (o->count_tensor) {
        scalars.count = gd_add_scalar(o->count_tensor, 1.0);
        if (!scalars.count)
            return false;
    }
    if (o->rule->prepare && !o->rule->prepare(&o->hyper, &scalars))
        return false;
    for (int i = 0; i < gd_module_count(o->module); i++)
        if (gradients[i] && !update_one(o, &scalars, (size_t)i, gradients[i]))
            return false;
    return !o->count_tensor || gd_assign(o->count_tensor, scalars.count);
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
    if (gd_grad(&loss, NULL, 1, parameters, gradients, wanted) != GD_OK)
        return false;
    for (int i = count;
         i-- > 0;) /* spread them out, from the end: a gradient's number is at least its place */
        gradients[i] = is_trainable(o->module, i) ? gradients[--wanted] : NULL;
    return true;
}

gd_tensor *gd_minimize(gd_optimizer *o, gd_tensor *loss)
{
    if (!o || !loss)
        return NULL;
    if (!gd_requires_grad(loss))
        return gd_fail_null(GD_ERR_STATE, "gd_minimize: the loss depends on no parameter");
    if (!reserve(o) || gd_scope_begin(o->context) != GD_OK)
        return NULL;
    (void)gd_no_grad_begin(
        o->context); /* the update, and the gradients' own history, are not differentiated */
    bool ok = differentiate(o, loss, o->lists) && apply(o, o->lists);
    (void)gd_no_grad_end(o->context);
    (void)gd_scope_end(o->context);
    return ok ? loss : NULL;
}

gd_status gd_optimizer_step(gd_optimizer *o)
{
    if (!o)
        return gd_fail(GD_ERR_INVALID, "gd_optimizer_step: the optimizer is NULL");
    if (!reserve(o))
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
    bool ok = apply(o, o->lists);
    (void)gd_no_grad_end(o->context);
    (void)gd_scope_end(o->context);
    return ok ? GD_OK : gd_error_code();
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

/* ---- constructors: options to constants ---- */

static double or_else(double value, double otherwise)
{
    return value == 0.0 ? otherwise : value;
}

gd_optimizer *gd_sgd_with(gd_sgd_options options)
{
    gd_hyper hyper = { .momentum = options.momentum,
                       .dampening = options.dampening,
                       .weight_decay = options.weight_decay,
                       .nesterov = options.nesterov };
    return create(&gd_rule_sgd, options.module, options.lr, hyper);
}

static gd_hyper adam_hyper(const gd_adam_options *options, double weight_decay)
{
    return (gd_hyper){ .beta1 = or_else(options->beta1, 0.9),
                       .beta2 = or_else(options->beta2, 0.999),
                       .epsilon = or_else(options->epsilon, 1e-8),
                       .weight_decay = or_else(options->weight_decay, weight_decay) };
}

gd_optimizer *gd_adam_with(gd_adam_options options)
{
    return create(&gd_rule_adam, options.module, options.lr, adam_hyper(&options, 0.0));
}

gd_optimizer *gd_adamw_with(gd_adam_options options)
{
    return create(&gd_rule_adamw, options.module, options.lr, adam_hyper(&options, 0.01));
}

gd_optimizer *gd_rmsprop_with(gd_rmsprop_options options)
{
    gd_hyper hyper = { .alpha = or_else(options.alpha, 0.99),
                       .epsilon = or_else(options.epsilon, 1e-8),
                       .momentum = options.momentum,
                       .weight_decay = options.weight_decay };
    return create(&gd_rule_rmsprop, options.module, options.lr, hyper);
}

gd_optimizer *gd_optimizer_create(const char *name, gd_module *module, double lr, double momentum)
{
    if (!name || !module)
        return name ? NULL : gd_fail_null(GD_ERR_INVALID, "gd_optimizer_create: the name is NULL");
    if (strcmp(name, "sgd") == 0)
        return gd_sgd(module, .lr = lr, .momentum = momentum);
    if (strcmp(name, "rmsprop") == 0)
        return gd_rmsprop(module, .lr = lr, .momentum = momentum);
    bool adam = strcmp(name, "adam") == 0, adamw = strcmp(name, "adamw") == 0;
    if (!adam && !adamw)
        return gd_fail_null(GD_ERR_INVALID,
                            "there is no optimizer \"%s\"; there are sgd, adam, adamw, rmsprop",
                            name);
    if (momentum != 0.0)
        return gd_fail_null(GD_ERR_INVALID, "%s has betas in place of momentum", name);
    return adam ? gd_adam(module, .lr = lr) : gd_adamw(module, .lr = lr);
}
