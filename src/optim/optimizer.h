/* optim/optimizer.h: what an optimization rule is: a row of a table, and a function that builds the
 * update out of ops; and the optimizer object. The machinery is optim/optimizer.c, the rules are
 * optim/rules*.c, their options optim/create.c, files of state optim/state_file.c. */
#ifndef GD_OPTIM_OPTIMIZER_H
#define GD_OPTIM_OPTIMIZER_H

#include <gradus/compile.h>
#include <gradus/optim.h>

/* Constants of an optimizer. Each rule uses some. The learning rate is not among them: it is a
 * tensor. */
typedef struct gd_hyper {
    double momentum, dampening, weight_decay;
    double beta1, beta2;
    double alpha; /* rmsprop; adadelta's rho */
    double epsilon;
    double decay; /* nadam's momentum_decay, adagrad's lr_decay */
    double start; /* adagrad: what the accumulator begins with */
    bool nesterov, amsgrad, decoupled;
} gd_hyper;

/* 0-d tensors every update of a group shares, made once a step. A rule's prepare adds what it
 * needs. */
typedef struct gd_step_scalars {
    gd_tensor *lr;      /* of the optimizer's dtype */
    gd_tensor *count;   /* f64: 1, 2, … ; NULL for a rule that does not count */
    gd_tensor *product; /* f64: nadam's product of momenta up to the step before; 1 at first */
    gd_tensor *next_product;
    /* of lr's dtype: */
    gd_tensor *step_size;         /* adam's lr / (1 - beta1^t) * sqrt(1 - beta2^t) */
    gd_tensor *second_correction; /* of the second moment's bias: lamb's sqrt(1 - beta2^t) */
    gd_tensor *scaled_epsilon;    /* adam's epsilon * sqrt(1 - beta2^t) */
    /* factor of the gradient: sgd's in the momentum buffer, 1 at the first step, then 1 - dampening;
     * nadam's in the step */
    gd_tensor *gradient_factor;
    gd_tensor *decay_factor; /* 1 - lr * weight_decay, where decay is decoupled; else NULL */

    gd_tensor *rectified;    /* bool: radam's choice */
    bool may_be_passed_over; /* new values are taken only where gradients are finite */
} gd_step_scalars;

#define GD_RULE_MAX_STATES 3

/* Tensors of one parameter's update, all of the parameter's shape, and of the dtype updates are computed
 * in but for `kept`. */
typedef struct gd_update {
    gd_tensor *p, *g;
    gd_tensor *state[GD_RULE_MAX_STATES]; /* as they are */
    gd_tensor *kept[GD_RULE_MAX_STATES];  /* the same as they are stored */
    bool rounds_states;                   /* they are bf16, to be rounded stochastically */
    gd_tensor
        *next[GD_RULE_MAX_STATES]; /* as they become; filled by the rule, which may store them as
                                             they are kept */
    gd_tensor *next_p;             /* likewise, not yet stored */
} gd_update;

typedef struct gd_rule {
    const char *name;
    /* What its options call hyper.alpha and hyper.decay, where not so. */
    const char *alpha_name, *decay_name;
    const char *state_name[GD_RULE_MAX_STATES];
    /* How many of them a parameter has, and whether steps are counted. */
    int (*states)(const gd_hyper *hyper);
    bool (*counts)(const gd_hyper *hyper);
    bool has_product; /* scalars.product is kept from step to step */
    bool (*prepare)(const gd_hyper *hyper,
                    gd_step_scalars *scalars); /* NULL: nothing to do. false: failed */
    void (*update)(const gd_hyper *hyper, const gd_step_scalars *scalars, gd_update *u);
} gd_rule;

extern const gd_rule gd_rule_sgd, gd_rule_adam, gd_rule_adamw, gd_rule_nadam, gd_rule_radam,
    gd_rule_rmsprop, gd_rule_adagrad, gd_rule_adadelta, gd_rule_lion, gd_rule_lamb;

/* ---- the optimizer ---- */

/* What states are kept in and how they are rounded, as the options of every optimizer say it. */
typedef struct gd_storage {
    gd_dtype state_dtype;    /* GD_DTYPE_COUNT: the optimizer's */
    int stochastic_rounding; /* -1: of states alone */
} gd_storage;

/* State of the module's parameter of the same number. */
typedef struct gd_slot {
    gd_tensor *state[GD_RULE_MAX_STATES]; /* retained; NULL: not used yet */
} gd_slot;

/* Parameters that share constants. Group 0 takes what no other does. */
typedef struct gd_group {
    char *pattern;        /* NULL for group 0 */
    double lr_ratio;      /* to the optimizer's */
    gd_tensor *lr_tensor; /* [], of the optimizer's dtype */
    gd_hyper hyper;
    gd_step_scalars scalars; /* of the step being built */
} gd_group;

struct gd_optimizer {
    gd_module *module;
    gd_context *context;
    gd_dtype dtype;                        /* updates are computed in it; f32 or f64 */
    gd_dtype state_dtype;                  /* that, or bf16 */
    bool rounds_states, rounds_parameters; /* stochastically, where they are bf16 */
    const gd_rule *rule;
    double lr;
    gd_group *groups;
    size_t group_count, group_capacity;
    gd_tensor *count_tensor;      /* [] f64, steps taken; NULL when the rule does not count */
    gd_tensor *product_tensor;    /* [] f64, or NULL */
    double clip_norm, clip_value; /* 0: not clipped */
    gd_tensor *norm_tensor;       /* [], of the last gradients; NULL until norms are clipped */
    gd_tensor *scale_tensor;      /* [2] f64, of losses (optim/loss_scale.c); NULL: not scaled */
    gd_loss_scale_options scale_options;
    gd_tensor *is_finite; /* [] bool, in the step being built: its gradients are; NULL: not asked */
    gd_slot *slots;       /* by number of the module's parameter */
    size_t slot_count, slot_capacity;
    gd_tensor **lists; /* [3, parameters]: gradients of a step, and room to work */
    gd_function *updates;
    size_t list_capacity;
};

gd_optimizer *gd_optimizer_make(const gd_rule *rule, gd_module *module, double lr, gd_hyper hyper,
                                gd_storage storage);
/* The group of the module's parameter number i. */
gd_group *gd_optimizer_group_of(const gd_optimizer *o, int i);
/* Room for a slot for each parameter there is. */
bool gd_optimizer_reserve(gd_optimizer *o);
/* State number k of parameter i, made at first use; NULL: failed. */
gd_tensor *gd_optimizer_state(gd_optimizer *o, int i, int k);

/* ---- rounding.c ---- */

/* The words of the random stream that round what one parameter's update stores. Starts as zeros. */
typedef struct gd_rounding {
    gd_tensor *words; /* i32, of the parameter's shape */
    int used;         /* halves of such words */
} gd_rounding;

/* x, of the dtype updates are computed in, as it is stored in `dtype`: rounded to nearest, or
 * stochastically by the next half of the words. NULL for NULL. */
gd_tensor *gd_optimizer_stored(gd_rounding *rounding, gd_tensor *x, gd_dtype dtype,
                               bool stochastically);

/* ---- loss_scale.c, where losses are scaled ---- */

/* The factor as a tensor. */
gd_tensor *gd_optimizer_scale(const gd_optimizer *o, gd_dtype dtype);
/* Divide the gradients in their list by it, and ask whether they are finite. */
bool gd_optimizer_unscale(gd_optimizer *o, gd_tensor **gradients);
/* next, or what it was before where this step's gradients are not finite. */
gd_tensor *gd_optimizer_chosen(const gd_optimizer *o, gd_tensor *next, gd_tensor *before);
/* The factor after the step. */
bool gd_optimizer_rescale(gd_optimizer *o);

#endif
