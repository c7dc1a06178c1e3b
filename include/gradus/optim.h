/* gradus/optim.h: optimizers over a module's parameters (schedules: gradus/schedule.h). Formulas
 * and order of operations are PyTorch's (torch.optim, single-tensor implementations); lr, betas and
 * so on mean what they mean there.
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

/* Two options that every optimizer has, and gd_optimizer_create:
 *
 * state_dtype: what the states (momenta, running squares, sums) are kept in, in memory and in files.
 * GD_DTYPE_COUNT, the default: what updates are computed in, f64 for parameters of f64, else f32. GD_BF16:
 * half the memory of f32. A step widens the states, computes as it would without, and rounds
 * each once when it is stored. What else is given is GD_ERR_DTYPE; f16 among it, whose smallest number,
 * 6e-8, is larger than the squares of most gradients.
 *
 * stochastic_rounding: how a step rounds what is kept in bf16. 1 (true): by chance to the number below or
 * above, so that the mean is what was rounded (gd_round_bf16): both states in bf16 and the parameters of a
 * bf16 module. 0 (false): both to nearest. -1, the default: states by chance, parameters to nearest, as
 * gd_cast does. States, because a running square that is rounded to nearest stands still: with beta2 =
 * 0.999 it moves by a thousandth of its distance to g^2, and numbers of bf16 are 1/256 to 1/128 apart, so it
 * could grow but not shrink. In the same way a parameter of bf16 that is rounded to nearest loses updates
 * of less than 1/512 of it.
 *
 * Chance is 16 bits for each number that is rounded, from words of the context's stream (gd_seed), as
 * gd_dropout draws them: the same in eager and compiled steps, with any number of threads, on any device,
 * and after resuming. In the order of its states, the parameter last, two of what is rounded share a word for
 * each element: the first takes the low half, the second the high one with its first bit inverted. Gupta et
 * al., "Deep learning with limited numerical precision", 2015; Zamirai et al., "Revisiting bfloat16
 * training", 2020. */

typedef struct gd_sgd_options {
    size_t size GD_DEFAULT(sizeof(gd_sgd_options));
    double lr GD_DEFAULT(1e-3);
    double momentum, dampening, weight_decay;
    bool nesterov; /* needs momentum and no dampening */
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_sgd_options;
#define GD_SGD_DEFAULTS                                                        \
    .size = sizeof(gd_sgd_options), .lr = 1e-3, .state_dtype = GD_DTYPE_COUNT, \
    .stochastic_rounding = -1

/* gd_sgd(m, .lr = 0.01, .momentum = 0.9). g += weight_decay * p; with momentum: b = momentum * b +
 * (1 - dampening) * g (the first time b = g), g = nesterov ? g + momentum * b : b; p -= lr * g.
 * Robbins, Monro 1951; Polyak 1964; Sutskever et al. 2013. */
#define gd_sgd(...) GD_WITH_1(gd_sgd_with, gd_sgd_options, GD_SGD_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_sgd_with(gd_module *module, const gd_sgd_options *options);

typedef struct gd_adam_options {
    size_t size GD_DEFAULT(sizeof(gd_adam_options));
    double lr GD_DEFAULT(1e-3);
    double beta1 GD_DEFAULT(0.9), beta2 GD_DEFAULT(0.999);
    double epsilon GD_DEFAULT(1e-8);
    double weight_decay; /* L2 */
    bool amsgrad; /* divide by the largest v so far. Reddi et al., "On the convergence of Adam and
                     beyond", 2018 */
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_adam_options;
#define GD_ADAM_DEFAULTS                                                                        \
    .size = sizeof(gd_adam_options), .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, \
    .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1

/* m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
 * p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon). Kingma, Ba, "Adam", 2014.
 */
#define gd_adam(...) GD_WITH_1(gd_adam_with, gd_adam_options, GD_ADAM_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_adam_with(gd_module *module, const gd_adam_options *options);
typedef struct gd_adamw_options {
    size_t size GD_DEFAULT(sizeof(gd_adamw_options));
    double lr GD_DEFAULT(1e-3);
    double beta1 GD_DEFAULT(0.9), beta2 GD_DEFAULT(0.999);
    double epsilon GD_DEFAULT(1e-8);
    double weight_decay GD_DEFAULT(0.01); /* decoupled */
    bool amsgrad;
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_adamw_options;
#define GD_ADAMW_DEFAULTS                                                                        \
    .size = sizeof(gd_adamw_options), .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, \
    .weight_decay = 0.01, .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1
/* gd_adam after p *= 1 - lr * weight_decay. Loshchilov, Hutter, "Decoupled weight decay
 * regularization", 2017. */
#define gd_adamw(...) GD_WITH_1(gd_adamw_with, gd_adamw_options, GD_ADAMW_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_adamw_with(gd_module *module, const gd_adamw_options *options);

typedef struct gd_nadam_options {
    size_t size GD_DEFAULT(sizeof(gd_nadam_options));
    double lr GD_DEFAULT(2e-3);
    double beta1 GD_DEFAULT(0.9), beta2 GD_DEFAULT(0.999);
    double epsilon GD_DEFAULT(1e-8);
    double momentum_decay GD_DEFAULT(4e-3);
    double weight_decay;
    bool decoupled; /* decay as gd_adamw does */
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_nadam_options;
#define GD_NADAM_DEFAULTS                                                                        \
    .size = sizeof(gd_nadam_options), .lr = 2e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, \
    .momentum_decay = 4e-3, .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1

/* Adam with Nesterov's momentum. Dozat, "Incorporating Nesterov momentum into Adam", 2016. */
#define gd_nadam(...) GD_WITH_1(gd_nadam_with, gd_nadam_options, GD_NADAM_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_nadam_with(gd_module *module, const gd_nadam_options *options);

typedef struct gd_radam_options {
    size_t size GD_DEFAULT(sizeof(gd_radam_options));
    double lr GD_DEFAULT(1e-3);
    double beta1 GD_DEFAULT(0.9), beta2 GD_DEFAULT(0.999);
    double epsilon GD_DEFAULT(1e-8);
    double weight_decay;
    bool decoupled; /* decay as gd_adamw does */
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_radam_options;
#define GD_RADAM_DEFAULTS                                                                        \
    .size = sizeof(gd_radam_options), .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, \
    .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1

/* Adam whose first steps are not divided by sqrt(v), and whose later ones are rectified. Liu et
 * al., "On the variance of the adaptive learning rate and beyond", 2019. */
#define gd_radam(...) GD_WITH_1(gd_radam_with, gd_radam_options, GD_RADAM_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_radam_with(gd_module *module, const gd_radam_options *options);

typedef struct gd_rmsprop_options {
    size_t size GD_DEFAULT(sizeof(gd_rmsprop_options));
    double lr GD_DEFAULT(0.01);
    double alpha GD_DEFAULT(0.99);
    double epsilon GD_DEFAULT(1e-8);
    double momentum, weight_decay;
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_rmsprop_options;
#define GD_RMSPROP_DEFAULTS                                                         \
    .size = sizeof(gd_rmsprop_options), .lr = 0.01, .alpha = 0.99, .epsilon = 1e-8, \
    .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1

/* v = alpha * v + (1 - alpha) * g^2; d = g / (sqrt(v) + epsilon); with momentum b = momentum * b +
 * d, d = b; p -= lr * d. Hinton, lecture 6e of "Neural networks for machine learning", 2012. */
#define gd_rmsprop(...) \
    GD_WITH_1(gd_rmsprop_with, gd_rmsprop_options, GD_RMSPROP_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_rmsprop_with(gd_module *module, const gd_rmsprop_options *options);

typedef struct gd_adagrad_options {
    size_t size GD_DEFAULT(sizeof(gd_adagrad_options));
    double lr GD_DEFAULT(0.01);
    double epsilon GD_DEFAULT(1e-10);
    double lr_decay, weight_decay;
    double initial_accumulator;
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_adagrad_options;
#define GD_ADAGRAD_DEFAULTS                                           \
    .size = sizeof(gd_adagrad_options), .lr = 0.01, .epsilon = 1e-10, \
    .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1

/* v += g^2; p -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(v) + epsilon). Duchi et al., "Adaptive
 * subgradient methods", 2011. */
#define gd_adagrad(...) \
    GD_WITH_1(gd_adagrad_with, gd_adagrad_options, GD_ADAGRAD_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_adagrad_with(gd_module *module, const gd_adagrad_options *options);

typedef struct gd_adadelta_options {
    size_t size GD_DEFAULT(sizeof(gd_adadelta_options));
    double lr GD_DEFAULT(1.0);
    double rho GD_DEFAULT(0.9);
    double epsilon GD_DEFAULT(1e-6);
    double weight_decay;
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_adadelta_options;
#define GD_ADADELTA_DEFAULTS                                                     \
    .size = sizeof(gd_adadelta_options), .lr = 1.0, .rho = 0.9, .epsilon = 1e-6, \
    .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1

/* v = rho * v + (1 - rho) * g^2; d = sqrt(u + epsilon) / sqrt(v + epsilon) * g; u = rho * u + (1 -
 * rho) * d^2; p -= lr * d. Zeiler, "ADADELTA", 2012. */
#define gd_adadelta(...) \
    GD_WITH_1(gd_adadelta_with, gd_adadelta_options, GD_ADADELTA_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_adadelta_with(gd_module *module, const gd_adadelta_options *options);

typedef struct gd_lion_options {
    size_t size GD_DEFAULT(sizeof(gd_lion_options));
    double lr GD_DEFAULT(1e-4);
    double beta1 GD_DEFAULT(0.9), beta2 GD_DEFAULT(0.99);
    double weight_decay; /* decoupled */
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_lion_options;
#define GD_LION_DEFAULTS                                                      \
    .size = sizeof(gd_lion_options), .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, \
    .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1

/* p -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p); m = beta2 * m + (1 - beta2) *
 * g. Chen et al., "Symbolic discovery of optimization algorithms", 2023. */
#define gd_lion(...) GD_WITH_1(gd_lion_with, gd_lion_options, GD_LION_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_lion_with(gd_module *module, const gd_lion_options *options);

typedef struct gd_lamb_options {
    size_t size GD_DEFAULT(sizeof(gd_lamb_options));
    double lr GD_DEFAULT(1e-3);
    double beta1 GD_DEFAULT(0.9), beta2 GD_DEFAULT(0.999);
    double epsilon GD_DEFAULT(1e-6);
    double weight_decay;
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_lamb_options;
#define GD_LAMB_DEFAULTS                                                                        \
    .size = sizeof(gd_lamb_options), .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6, \
    .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1

/* u = adam's step + weight_decay * p; p -= lr * |p| / |u| * u, each parameter tensor by itself (the
 * ratio is 1 where a norm is 0). You et al., "Large batch optimization for deep learning", 2019. */
#define gd_lamb(...) GD_WITH_1(gd_lamb_with, gd_lamb_options, GD_LAMB_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_lamb_with(gd_module *module, const gd_lamb_options *options);

typedef struct gd_optimizer_options {
    size_t size GD_DEFAULT(sizeof(gd_optimizer_options));
    double lr GD_DEFAULT(NAN);       /* NaN: the optimizer's default */
    double momentum GD_DEFAULT(NAN); /* likewise; sgd and rmsprop alone have it */
    gd_dtype state_dtype GD_DEFAULT(GD_DTYPE_COUNT);
    int stochastic_rounding GD_DEFAULT(-1);
} gd_optimizer_options;
#define GD_OPTIMIZER_DEFAULTS                                         \
    .size = sizeof(gd_optimizer_options), .lr = NAN, .momentum = NAN, \
    .state_dtype = GD_DTYPE_COUNT, .stochastic_rounding = -1

/* gd_optimizer_create(m, "sgd", .lr = 0.1): an optimizer by its name, with its defaults: "sgd",
 * "rmsprop", "adam", "adamw", "nadam", "radam", "adagrad", "adadelta", "lion", "lamb".
 * GD_ERR_INVALID: another name (the error lists them), or momentum given to one that has none. */
#define gd_optimizer_create(...) \
    GD_WITH_2(gd_optimizer_create_with, gd_optimizer_options, GD_OPTIMIZER_DEFAULTS, __VA_ARGS__, )
GD_API gd_optimizer *gd_optimizer_create_with(gd_module *module, const char *name,
                                              const gd_optimizer_options *options);

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

typedef struct gd_optimizer_group_options {
    size_t size GD_DEFAULT(sizeof(gd_optimizer_group_options));
    double
        lr GD_DEFAULT(NAN); /* NaN: the optimizer's; its ratio to that stays when it is changed */
    double weight_decay GD_DEFAULT(NAN); /* NaN: the optimizer's */
} gd_optimizer_group_options;
#define GD_OPTIMIZER_GROUP_DEFAULTS \
    .size = sizeof(gd_optimizer_group_options), .lr = NAN, .weight_decay = NAN

/* gd_optimizer_group(optimizer, "*.bias", .weight_decay = 0): constants of their own for the
 * parameters whose path matches a pattern: * stands for any characters, ? for one, [a-z] for one of
 * some. Where several patterns match, the one given last. GD_ERR_STATE: a step has been taken or
 * traced already. */
#define gd_optimizer_group(...)                                                                 \
    GD_WITH_2(gd_optimizer_group_with, gd_optimizer_group_options, GD_OPTIMIZER_GROUP_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_status gd_optimizer_group_with(gd_optimizer *optimizer, const char *pattern,
                                         const gd_optimizer_group_options *options);

/* Scale all gradients together so that their norm, over all parameters, is at most max_norm, before
 * every update; 0: do not (the default). A compiled function keeps what was set when it was traced.
 * Pascanu et al., "On the difficulty of training recurrent neural networks", 2013. */
GD_API gd_status gd_optimizer_clip_norm(gd_optimizer *optimizer, double max_norm);
/* Hold every element of the gradients within +-limit; 0: do not. Before the norm is taken. */
GD_API gd_status gd_optimizer_clip_value(gd_optimizer *optimizer, double limit);
/* The norm of the last step's gradients before it was clipped; NaN unless norms are clipped. */
GD_API double gd_optimizer_gradient_norm(const gd_optimizer *optimizer);

/* Scaling of losses, for gradients that are computed in f16, whose smallest numbers would become 0. */
typedef struct gd_loss_scale_options {
    size_t size GD_DEFAULT(sizeof(gd_loss_scale_options));
    double initial GD_DEFAULT(65536);  /* the factor to begin with */
    double growth GD_DEFAULT(2);       /* the factor is multiplied by it */
    double backoff GD_DEFAULT(0.5);    /* and by this after gradients that are not finite */
    int64_t interval GD_DEFAULT(2000); /* steps with finite gradients before it grows */
} gd_loss_scale_options;
#define GD_LOSS_SCALE_DEFAULTS                                                            \
    .size = sizeof(gd_loss_scale_options), .initial = 65536, .growth = 2, .backoff = 0.5, \
    .interval = 2000

/* gd_optimizer_scale_losses(optimizer), gd_optimizer_scale_losses(optimizer, .initial = 1024): from
 * now on gd_minimize multiplies the loss by a factor and divides the gradients by it. A step whose
 * gradients are not finite changes neither parameters nor moments nor their count, but makes the
 * factor smaller: all that within the compiled step, which waits for nothing. gd_backward is given
 * gd_scale_loss(optimizer, loss); gd_optimizer_step then divides. The factor is part of the optimizer's state,
 * in files, too. A compiled function keeps what was set when it was traced. bf16 does not need it:
 * its range is that of f32. Powers of 2 round nothing. GD_ERR_INVALID: an option is out of range.
 * Micikevicius et al., "Mixed precision training", 2018. */
#define gd_optimizer_scale_losses(...)                                                       \
    GD_WITH_1(gd_optimizer_scale_losses_with, gd_loss_scale_options, GD_LOSS_SCALE_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_status gd_optimizer_scale_losses_with(gd_optimizer *optimizer,
                                                const gd_loss_scale_options *options);
/* The factor now; 1 where losses are not scaled, NaN for an error. */
GD_API double gd_optimizer_loss_scale(const gd_optimizer *optimizer);
/* loss times the factor, for gd_backward; loss itself where losses are not scaled. */
GD_API gd_tensor *gd_scale_loss(gd_optimizer *optimizer, gd_tensor *loss);

/* Write the optimizer's state (moments, the count of steps, the learning rate) to a safetensors
 * file, atomically, so that training can go on as if it had never stopped. Errors of
 * gd_tensors_save. */
GD_API gd_status gd_optimizer_save(const gd_optimizer *optimizer, const char *path);
/* Read it back, into an optimizer of the same kind over a module with the same parameters;
 * otherwise GD_ERR_FORMAT says what differs, and nothing is changed. States become what this optimizer
 * keeps them in: those of a file in bf16 are widened, and those in f32 are rounded to bf16, to nearest. */
GD_API gd_status gd_optimizer_load(gd_optimizer *optimizer, const char *path);

/* ---- moving averages of the weights ---- */

typedef struct gd_ema gd_ema;

typedef struct gd_ema_options {
    size_t size GD_DEFAULT(sizeof(gd_ema_options));
    double decay GD_DEFAULT(0.999);
} gd_ema_options;
#define GD_EMA_DEFAULTS .size = sizeof(gd_ema_options), .decay = 0.999

/* gd_ema_create(m, .decay = 0.99): averages of all parameters. Owned by the context;
 * gd_ema_release ends it earlier. GD_ERR_DTYPE: of a bf16 module, in whose dtype averages would stand
 * still. Polyak, Juditsky 1992. */
#define gd_ema_create(...) \
    GD_WITH_1(gd_ema_create_with, gd_ema_options, GD_EMA_DEFAULTS, __VA_ARGS__, )
GD_API gd_ema *gd_ema_create_with(gd_module *module, const gd_ema_options *options);
GD_API void gd_ema_release(gd_ema *ema);
/* average += (1 - decay) * (parameter - average); the first time, average = parameter. After the
 * update of a step; an effect, like gd_assign. */
GD_API gd_status gd_ema_update(gd_ema *ema);
/* Exchange parameters and averages: before an evaluation, and once more after it. GD_ERR_STATE:
 * within a trace, or before the first update. */
GD_API gd_status gd_ema_swap(gd_ema *ema);

/* ---- L-BFGS ---- */

typedef struct gd_lbfgs gd_lbfgs;

typedef struct gd_lbfgs_options {
    size_t size GD_DEFAULT(sizeof(gd_lbfgs_options));
    double lr GD_DEFAULT(1.0);                  /* the first length tried in each direction */
    int max_iterations GD_DEFAULT(20);          /* of a call */
    int max_evaluations GD_DEFAULT(-1);         /* of a call; -1: 5/4 of max_iterations */
    int history GD_DEFAULT(100);                /* pairs kept */
    double tolerance_gradient GD_DEFAULT(1e-7); /* stop at a largest element that is no larger */
    double tolerance_change GD_DEFAULT(1e-9);   /* stop at smaller steps */
    bool line_search GD_DEFAULT(true);          /* false: take steps of length lr as they are */
} gd_lbfgs_options;
#define GD_LBFGS_DEFAULTS                                                                     \
    .size = sizeof(gd_lbfgs_options), .lr = 1.0, .max_iterations = 20, .max_evaluations = -1, \
    .history = 100, .tolerance_gradient = 1e-7, .tolerance_change = 1e-9, .line_search = true

/* The loss of the module's parameters as they are: [], on the whole of the data. */
typedef gd_tensor *(*gd_closure)(void *user);

/* gd_lbfgs_create(m): limited-memory BFGS with a line search for the strong Wolfe conditions, for
 * small models and losses without noise. It keeps its pairs as they are computed, and has neither
 * state_dtype nor stochastic_rounding: the search for a step needs all digits. GD_ERR_DTYPE: of a bf16
 * module. Owned by the context. Liu, Nocedal, "On the limited memory
 * BFGS method", 1989; Nocedal, Wright, "Numerical optimization", algorithms 3.5 and 3.6. */
#define gd_lbfgs_create(...) \
    GD_WITH_1(gd_lbfgs_create_with, gd_lbfgs_options, GD_LBFGS_DEFAULTS, __VA_ARGS__, )
GD_API gd_lbfgs *gd_lbfgs_create_with(gd_module *module, const gd_lbfgs_options *options);
GD_API void gd_lbfgs_release(gd_lbfgs *lbfgs);
/* Improve the parameters by up to max_iterations steps. It evaluates the loss as often as it needs,
 * eagerly, and reads it, so it cannot be compiled (GD_ERR_STATE in a trace). *loss, if not NULL, is
 * the loss before the first of them. */
GD_API gd_status gd_lbfgs_step(gd_lbfgs *lbfgs, gd_closure closure, void *user, double *loss);

#ifdef __cplusplus
}
#endif
#endif
