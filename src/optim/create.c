/* optim/create.c: optimizers from their options, or by name. */
#include "optim/optimizer.h"

#include "base/error.h"
#include "base/options.h"

#include <stdio.h>
#include <string.h>

/* The two options that all of the structs have. */
#define STORAGE(o) ((gd_storage){ (o).state_dtype, (o).stochastic_rounding })

gd_optimizer *gd_sgd_with(gd_module *module, const gd_sgd_options *options)
{
    gd_sgd_options o = { GD_SGD_DEFAULTS };
    if (!gd_options_read("gd_sgd", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = { .momentum = o.momentum,
                       .dampening = o.dampening,
                       .weight_decay = o.weight_decay,
                       .nesterov = o.nesterov };
    return gd_optimizer_make(&gd_rule_sgd, module, o.lr, hyper, STORAGE(o));
}

gd_optimizer *gd_adam_with(gd_module *module, const gd_adam_options *options)
{
    gd_adam_options o = { GD_ADAM_DEFAULTS };
    if (!gd_options_read("gd_adam", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = { .beta1 = o.beta1,
                       .beta2 = o.beta2,
                       .epsilon = o.epsilon,
                       .weight_decay = o.weight_decay,
                       .amsgrad = o.amsgrad };
    return gd_optimizer_make(&gd_rule_adam, module, o.lr, hyper, STORAGE(o));
}

gd_optimizer *gd_adamw_with(gd_module *module, const gd_adamw_options *options)
{
    gd_adamw_options o = { GD_ADAMW_DEFAULTS };
    if (!gd_options_read("gd_adamw", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = { .beta1 = o.beta1,
                       .beta2 = o.beta2,
                       .epsilon = o.epsilon,
                       .weight_decay = o.weight_decay,
                       .amsgrad = o.amsgrad,
                       .decoupled = true };
    return gd_optimizer_make(&gd_rule_adamw, module, o.lr, hyper, STORAGE(o));
}

gd_optimizer *gd_nadam_with(gd_module *module, const gd_nadam_options *options)
{
    gd_nadam_options o = { GD_NADAM_DEFAULTS };
    if (!gd_options_read("gd_nadam", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = { .beta1 = o.beta1,
                       .beta2 = o.beta2,
                       .epsilon = o.epsilon,
                       .decay = o.momentum_decay,
                       .weight_decay = o.weight_decay,
                       .decoupled = o.decoupled };
    return gd_optimizer_make(&gd_rule_nadam, module, o.lr, hyper, STORAGE(o));
}

gd_optimizer *gd_radam_with(gd_module *module, const gd_radam_options *options)
{
    gd_radam_options o = { GD_RADAM_DEFAULTS };
    if (!gd_options_read("gd_radam", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = { .beta1 = o.beta1,
                       .beta2 = o.beta2,
                       .epsilon = o.epsilon,
                       .weight_decay = o.weight_decay,
                       .decoupled = o.decoupled };
    return gd_optimizer_make(&gd_rule_radam, module, o.lr, hyper, STORAGE(o));
}

gd_optimizer *gd_rmsprop_with(gd_module *module, const gd_rmsprop_options *options)
{
    gd_rmsprop_options o = { GD_RMSPROP_DEFAULTS };
    if (!gd_options_read("gd_rmsprop", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = { .alpha = o.alpha,
                       .epsilon = o.epsilon,
                       .momentum = o.momentum,
                       .weight_decay = o.weight_decay };
    return gd_optimizer_make(&gd_rule_rmsprop, module, o.lr, hyper, STORAGE(o));
}

gd_optimizer *gd_adagrad_with(gd_module *module, const gd_adagrad_options *options)
{
    gd_adagrad_options o = { GD_ADAGRAD_DEFAULTS };
    if (!gd_options_read("gd_adagrad", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = { .epsilon = o.epsilon,
                       .decay = o.lr_decay,
                       .start = o.initial_accumulator,
                       .weight_decay = o.weight_decay };
    return gd_optimizer_make(&gd_rule_adagrad, module, o.lr, hyper, STORAGE(o));
}

gd_optimizer *gd_adadelta_with(gd_module *module, const gd_adadelta_options *options)
{
    gd_adadelta_options o = { GD_ADADELTA_DEFAULTS };
    if (!gd_options_read("gd_adadelta", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = { .alpha = o.rho, .epsilon = o.epsilon, .weight_decay = o.weight_decay };
    return gd_optimizer_make(&gd_rule_adadelta, module, o.lr, hyper, STORAGE(o));
}

gd_optimizer *gd_lion_with(gd_module *module, const gd_lion_options *options)
{
    gd_lion_options o = { GD_LION_DEFAULTS };
    if (!gd_options_read("gd_lion", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = {
        .beta1 = o.beta1, .beta2 = o.beta2, .weight_decay = o.weight_decay, .decoupled = true
    };
    return gd_optimizer_make(&gd_rule_lion, module, o.lr, hyper, STORAGE(o));
}

gd_optimizer *gd_lamb_with(gd_module *module, const gd_lamb_options *options)
{
    gd_lamb_options o = { GD_LAMB_DEFAULTS };
    if (!gd_options_read("gd_lamb", &o, sizeof o, options))
        return NULL;
    gd_hyper hyper = {
        .beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay
    };
    return gd_optimizer_make(&gd_rule_lamb, module, o.lr, hyper, STORAGE(o));
}

/* ---- by name ---- */

static double or_default(double given, double otherwise)
{
    return isnan(given) ? otherwise : given;
}

/* gd_NAME with what is given of o, and its own defaults for the rest. */
#define MAKE_AND(name, NAME, more)                                                     \
    static gd_optimizer *make_##name(gd_module *module, const gd_optimizer_options *o) \
    {                                                                                  \
        gd_##name##_options own = { GD_##NAME##_DEFAULTS };                            \
        own.lr = or_default(o->lr, own.lr);                                            \
        own.state_dtype = o->state_dtype;                                              \
        own.stochastic_rounding = o->stochastic_rounding;                              \
        more return gd_##name##_with(module, &own);                                    \
    }
#define MAKE(name, NAME) MAKE_AND(name, NAME, )
#define MAKE_WITH_MOMENTUM(name, NAME) \
    MAKE_AND(name, NAME, own.momentum = or_default(o->momentum, own.momentum);)
MAKE_WITH_MOMENTUM(sgd, SGD)
MAKE_WITH_MOMENTUM(rmsprop, RMSPROP)
MAKE(adam, ADAM)
MAKE(adamw, ADAMW)
MAKE(nadam, NADAM)
MAKE(radam, RADAM)
MAKE(adagrad, ADAGRAD)
MAKE(adadelta, ADADELTA)
MAKE(lion, LION)
MAKE(lamb, LAMB)

static const struct {
    const char *name;
    gd_optimizer *(*make)(gd_module *module, const gd_optimizer_options *o);
    bool has_momentum;
} kinds[] = {
    { "sgd", make_sgd, true },          { "rmsprop", make_rmsprop, true },
    { "adam", make_adam, false },       { "adamw", make_adamw, false },
    { "nadam", make_nadam, false },     { "radam", make_radam, false },
    { "adagrad", make_adagrad, false }, { "adadelta", make_adadelta, false },
    { "lion", make_lion, false },       { "lamb", make_lamb, false },
};

gd_optimizer *gd_optimizer_create_with(gd_module *module, const char *name,
                                       const gd_optimizer_options *options)
{
    gd_optimizer_options o = { GD_OPTIMIZER_DEFAULTS };
    if (!module || !gd_options_read("gd_optimizer_create", &o, sizeof o, options))
        return NULL;
    if (!name)
        return gd_fail_null(GD_ERR_INVALID, "gd_optimizer_create: the name is NULL");
    char names[160] = "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", kinds[i].name);
        if (strcmp(name, kinds[i].name) != 0)
            continue;
        if (!kinds[i].has_momentum && !isnan(o.momentum))
            return gd_fail_null(GD_ERR_INVALID, "%s has no momentum to set; sgd and rmsprop have",
                                name);
        return kinds[i].make(module, &o);
    }
    return gd_fail_null(GD_ERR_INVALID, "there is no optimizer \"%s\"; there are %s", name, names);
}
