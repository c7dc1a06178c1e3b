/* optim/optimizer.h: what an optimization rule is: a row of a table, and a function that builds the
 * update out of ops. The machinery around it is optim/optimizer.c, the rules are optim/rules.c. */
#ifndef GD_OPTIM_OPTIMIZER_H
#define GD_OPTIM_OPTIMIZER_H

#include <gradus/optim.h>

/* Constants of an optimizer. Each rule uses some. The learning rate is not among them: it is a
 * tensor. */
typedef struct gd_hyper {
    double momentum, dampening, weight_decay;
    double beta1, beta2;
    double alpha;
    double epsilon;
    bool nesterov;
} gd_hyper;

/* 0-d tensors every parameter's update shares, made once a step. A rule's prepare adds what it
 * needs. */
typedef struct gd_step_scalars {
    gd_tensor *lr;    /* f32 */
    gd_tensor *count; /* f64: 1, 2, … ; NULL for a rule that does not count */
    gd_tensor *size;  /* f32: adam's lr / (1 - beta1^t) */
    gd_tensor *root;  /* f32: adam's sqrt(1 - beta2^t) */
    gd_tensor *blend; /* f32: sgd's factor of the gradient in the momentum buffer, 1 the first time,
                         then 1 - dampening */
} gd_step_scalars;

#define GD_RULE_MAX_STATES 2

/* Tensors of one parameter's update, all of the parameter's shape. */
typedef struct gd_update {
    gd_tensor *p, *g;
    gd_tensor *state[GD_RULE_MAX_STATES]; /* as they are */
    gd_tensor *next[GD_RULE_MAX_STATES];  /* as they become; filled by the rule */
    gd_tensor *next_p;                    /* likewise */
} gd_update;

typedef struct gd_rule {
    const char *name;
    double lr; /* default */
    /* How many state tensors a parameter has, zeros at first, and whether steps are counted. */
    int (*states)(const gd_hyper *hyper);
    bool (*counts)(const gd_hyper *hyper);
    bool (*prepare)(const gd_hyper *hyper,
                    gd_step_scalars *scalars); /* NULL: nothing to do. false: failed */
    void (*update)(const gd_hyper *hyper, const gd_step_scalars *scalars, gd_update *u);
} gd_rule;

extern const gd_rule gd_rule_sgd, gd_rule_adam, gd_rule_adamw, gd_rule_rmsprop;

#endif
