/* optim/create.c: optimizers from their options: defaults filled in, or by name. */
#include "optim/optimizer.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

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
    return gd_optimizer_make(&gd_rule_sgd, options.module, options.lr, hyper);
}

static gd_hyper adam_hyper(const gd_adam_options *options)
{
    return (gd_hyper){ .beta1 = or_else(options->beta1, 0.9),
                       .beta2 = or_else(options->beta2, 0.999),
                       .epsilon = or_else(options->epsilon, 1e-8),
                       .weight_decay = options->weight_decay,
                       .amsgrad = options->amsgrad };
}

gd_optimizer *gd_adam_with(gd_adam_options options)
{
    return gd_optimizer_make(&gd_rule_adam, options.module, options.lr, adam_hyper(&options));
}

gd_optimizer *gd_adamw_with(gd_adam_options options)
{
    gd_hyper hyper = adam_hyper(&options);
    hyper.weight_decay = or_else(options.weight_decay, 0.01);
    hyper.decoupled = true;
    return gd_optimizer_make(&gd_rule_adamw, options.module, options.lr, hyper);
}

gd_optimizer *gd_nadam_with(gd_nadam_options options)
{
    gd_hyper hyper = { .beta1 = or_else(options.beta1, 0.9),
                       .beta2 = or_else(options.beta2, 0.999),
                       .epsilon = or_else(options.epsilon, 1e-8),
                       .decay = or_else(options.momentum_decay, 4e-3),
                       .weight_decay = options.weight_decay,
                       .decoupled = options.decoupled };
    return gd_optimizer_make(&gd_rule_nadam, options.module, options.lr, hyper);
}

gd_optimizer *gd_radam_with(gd_radam_options options)
{
    gd_hyper hyper = { .beta1 = or_else(options.beta1, 0.9),
                       .beta2 = or_else(options.beta2, 0.999),
                       .epsilon = or_else(options.epsilon, 1e-8),
                       .weight_decay = options.weight_decay,
                       .decoupled = options.decoupled };
    return gd_optimizer_make(&gd_rule_radam, options.module, options.lr, hyper);
}

gd_optimizer *gd_rmsprop_with(gd_rmsprop_options options)
{
    gd_hyper hyper = { .alpha = or_else(options.alpha, 0.99),
                       .epsilon = or_else(options.epsilon, 1e-8),
                       .momentum = options.momentum,
                       .weight_decay = options.weight_decay };
    return gd_optimizer_make(&gd_rule_rmsprop, options.module, options.lr, hyper);
}

gd_optimizer *gd_adagrad_with(gd_adagrad_options options)
{
    gd_hyper hyper = { .epsilon = or_else(options.epsilon, 1e-10),
                       .decay = options.lr_decay,
                       .start = options.initial_accumulator,
                       .weight_decay = options.weight_decay };
    return gd_optimizer_make(&gd_rule_adagrad, options.module, options.lr, hyper);
}

gd_optimizer *gd_adadelta_with(gd_adadelta_options options)
{
    gd_hyper hyper = { .alpha = or_else(options.rho, 0.9),
                       .epsilon = or_else(options.epsilon, 1e-6),
                       .weight_decay = options.weight_decay };
    return gd_optimizer_make(&gd_rule_adadelta, options.module, options.lr, hyper);
}

gd_optimizer *gd_lion_with(gd_lion_options options)
{
    gd_hyper hyper = { .beta1 = or_else(options.beta1, 0.9),
                       .beta2 = or_else(options.beta2, 0.99),
                       .weight_decay = options.weight_decay,
                       .decoupled = true };
    return gd_optimizer_make(&gd_rule_lion, options.module, options.lr, hyper);
}

gd_optimizer *gd_lamb_with(gd_lamb_options options)
{
    gd_hyper hyper = { .beta1 = or_else(options.beta1, 0.9),
                       .beta2 = or_else(options.beta2, 0.999),
                       .epsilon = or_else(options.epsilon, 1e-6),
                       .weight_decay = options.weight_decay };
    return gd_optimizer_make(&gd_rule_lamb, options.module, options.lr, hyper);
}

/* ---- by name ---- */

#define MADE(name)                                                 \
    static gd_optimizer *make_##name(gd_module *module, double lr) \
    {                                                              \
        return gd_##name(module, .lr = lr);                        \
    }
MADE(adam)
MADE(adamw)
MADE(nadam)
MADE(radam)
MADE(adagrad)
MADE(adadelta)
MADE(lion)
MADE(lamb)

/* What has no momentum of that name. */
static const struct {
    const char *name;
    gd_optimizer *(*make)(gd_module *module, double lr);
} made[] = {
    { "adam", make_adam },   { "adamw", make_adamw },     { "nadam", make_nadam },
    { "radam", make_radam }, { "adagrad", make_adagrad }, { "adadelta", make_adadelta },
    { "lion", make_lion },   { "lamb", make_lamb },
};

gd_optimizer *gd_optimizer_create(const char *name, gd_module *module, double lr, double momentum)
{
    if (!name || !module)
        return name ? NULL : gd_fail_null(GD_ERR_INVALID, "gd_optimizer_create: the name is NULL");
    if (strcmp(name, "sgd") == 0)
        return gd_sgd(module, .lr = lr, .momentum = momentum);
    if (strcmp(name, "rmsprop") == 0)
        return gd_rmsprop(module, .lr = lr, .momentum = momentum);
    char names[160] = "sgd, rmsprop";
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, ", %s", made[i].name);
        if (strcmp(name, made[i].name) != 0)
            continue;
        if (momentum != 0.0)
            return gd_fail_null(GD_ERR_INVALID, "%s has no momentum to set; sgd and rmsprop have",
                                name);
        return made[i].make(module, lr);
    }
    return gd_fail_null(GD_ERR_INVALID, "there is no optimizer \"%s\"; there are %s", name, names);
}
