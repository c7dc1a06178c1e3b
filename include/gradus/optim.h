/* gradus/optim.h: optimizers over a module's parameters, and learning-rate schedules. Formulas and
 * order of operations are PyTorch's (torch.optim, single-tensor implementations); lr, betas and so
 * on mean what they mean there. An option left 0 takes its default.
 *
 * With loss in hand, gd_minimize(optimizer, loss) computes gradients and updates the parameters.
 * Or, to accumulate gradients over several losses: gd_backward for each, then gd_optimizer_step,
 * then gd_optimizer_zero_grad. Both run eagerly or as part of a compiled function.
 */
#ifndef GRADUS_OPTIM_H
#define GRADUS_OPTIM_H

#include <gradus/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_optimizer gd_optimizer;

typedef struct gd_sgd_options {
    gd_module *module;
    double lr; /* default 1e-3 */
    double momentum, dampening, weight_decay;
    bool nesterov; /* needs momentum and no dampening */
} gd_sgd_options;

/* gd_sgd(m, .lr = 0.01, .momentum = 0.9). g += weight_decay * p; with momentum: b = momentum * b +
 * (1 - dampening) * g (the first time b = g), g = nesterov ? g + momentum * b : b; p -= lr * g.
 * Robbins, Monro 1951; Polyak 1964; Sutskever et al. 2013. */
#define gd_sgd(...) gd_sgd_with((gd_sgd_options){ .module = __VA_ARGS__ })
GD_API gd_optimizer *gd_sgd_with(gd_sgd_options options);

typedef struct gd_adam_options {
    gd_module *module;
    double lr;           /* default 1e-3 */
    double beta1, beta2; /* default 0.9, 0.999 */
    double epsilon;      /* default 1e-8 */
    double weight_decay; /* gd_adam: L2, default 0; gd_adamw: decoupled, default 0.01 */
} gd_adam_options;

/* m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
 * p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon). Kingma, Ba, "Adam", 2014.
 */
#define gd_adam(...) gd_adam_with((gd_adam_options){ .module = __VA_ARGS__ })
GD_API gd_optimizer *gd_adam_with(gd_adam_options options);
/* The same after p *= 1 - lr * weight_decay. Loshchilov, Hutter, "Decoupled weight decay
 * regularization", 2017. */
#define gd_adamw(...) gd_adamw_with((gd_adam_options){ .module = __VA_ARGS__ })
GD_API gd_optimizer *gd_adamw_with(gd_adam_options options);

typedef struct gd_rmsprop_options {
    gd_module *module;
    double lr;      /* default 0.01 */
    double alpha;   /* default 0.99 */
    double epsilon; /* default 1e-8 */
    double momentum, weight_decay;
} gd_rmsprop_options;

/* v = alpha * v + (1 - alpha) * g^2; d = g / (sqrt(v) + epsilon); with momentum b = momentum * b +
 * d, d = b; p -= lr * d. Hinton, lecture 6e of "Neural networks for machine learning", 2012. */
#define gd_rmsprop(...) gd_rmsprop_with((gd_rmsprop_options){ .module = __VA_ARGS__ })
GD_API gd_optimizer *gd_rmsprop_with(gd_rmsprop_options options);

/* An optimizer by its name, "sgd", "adam", "adamw" or "rmsprop", with defaults but for lr (0: its
 * default) and momentum (sgd, rmsprop; must be 0 for the others). GD_ERR_INVALID lists the names.
 */
GD_API gd_optimizer *gd_optimizer_create(const char *name, gd_module *module, double lr,
                                         double momentum);

/* Optimizers belong to the context of their module; this ends one earlier. NULL is fine. */
GD_API void gd_optimizer_release(gd_optimizer *optimizer);
/* "adam" */
GD_API const char *gd_optimizer_name(const gd_optimizer *optimizer);
GD_API gd_module *gd_optimizer_module(const gd_optimizer *optimizer);

/* Update every parameter against the gradient of loss, a tensor of any shape that is summed.
 * Returns loss, NULL on error, so that a training step ends `return gd_minimize(optimizer, loss);`.
 * GD_ERR_STATE: loss depends on no parameter of the module. Parameters with gd_set_requires_grad(p,
 * false) are left alone. Parameters made later join in at the next use. */
GD_API gd_tensor *gd_minimize(gd_optimizer *optimizer, gd_tensor *loss);

/* The same from the gradients gd_backward has accumulated; parameters without one are left alone.
 * GD_ERR_STATE: none has one. */
GD_API gd_status gd_optimizer_step(gd_optimizer *optimizer);
/* Set the accumulated gradients of the module's parameters to zero. An effect, like gd_assign. */
GD_API gd_status gd_optimizer_zero_grad(gd_optimizer *optimizer);

/* The learning rate. It lives in a tensor: a change is seen by compiled functions at their next
 * call, without a new trace. */
GD_API gd_status gd_optimizer_set_lr(gd_optimizer *optimizer, double lr);
GD_API double gd_optimizer_lr(const gd_optimizer *optimizer);

/* ---- schedules: pure functions of the step, 0 … steps-1 ---- */

/* lr */
GD_API double gd_schedule_constant(double lr, int64_t step);
/* Linear from lr / warmup up to lr over the first `warmup` steps, then lr_end + (lr - lr_end) * (1
 * + cos(pi * t)) / 2 with t from 0 to 1 over the rest; lr_end from step `steps` on. Loshchilov,
 * Hutter, "SGDR", 2016, without restarts. */
GD_API double gd_schedule_cosine(double lr, double lr_end, int64_t step, int64_t steps,
                                 int64_t warmup);

#ifdef __cplusplus
}
#endif
#endif
