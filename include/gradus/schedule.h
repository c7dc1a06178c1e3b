/* gradus/schedule.h: learning rates over time. A schedule is a value, written down by its fields,
 * and a pure function of the step:
 *
 *     gd_schedule cosine = { .kind = GD_SCHEDULE_COSINE, .lr = 0.1, .steps = 1000, .warmup = 50 };
 *     gd_optimizer_set_lr(optimizer, gd_schedule_at(&cosine, step));
 *
 * or, with gd_fit, .schedule = gd_schedule_follow, .schedule_user = &cosine. Steps are counted from
 * 0; formulas are those of torch.optim.lr_scheduler. What reacts to a metric is gd_plateau.
 */
#ifndef GRADUS_SCHEDULE_H
#define GRADUS_SCHEDULE_H

#include <gradus/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which, and what each uses beside lr, warmup and steps. t is the step, n is `steps`, both less the
 * warm-up. */
typedef enum gd_schedule_kind {
    GD_SCHEDULE_CONSTANT,    /* lr */
    GD_SCHEDULE_STEP,        /* lr * factor^floor(t / period) */
    GD_SCHEDULE_MULTI_STEP,  /* lr * factor^(how many of the milestones are at most t) */
    GD_SCHEDULE_EXPONENTIAL, /* lr * factor^t */
    GD_SCHEDULE_LINEAR,      /* from lr to lr_end over n steps */
    GD_SCHEDULE_POLYNOMIAL,  /* lr_end + (lr - lr_end) * (1 - t / n)^power */
    GD_SCHEDULE_COSINE,      /* lr_end + (lr - lr_end) * (1 + cos(pi * t / n)) / 2; with a period it
                                starts again after `period` steps, then after period * growth, and so
                                on. Loshchilov, Hutter, "SGDR", 2016 */
    GD_SCHEDULE_ONE_CYCLE, /* up from lr / start_divisor to lr over the first share of n steps, down
                              to lr / start_divisor / end_divisor over the rest, by cosines. Smith,
                              Topin, "Super-convergence", 2017 */
    GD_SCHEDULE_COUNT
} gd_schedule_kind;

typedef struct gd_schedule {
    gd_schedule_kind kind;
    double lr;
    double lr_end;             /* from the last of `steps` on */
    int64_t steps;             /* with the warm-up; 0: what gd_fit counts (gd_schedule_follow) */
    int64_t warmup;            /* steps from lr / warmup up to lr, before anything else */
    double factor;             /* default 0.1; exponential: 0.99 */
    int64_t period;            /* step: default 1; cosine: 0 is no restarts */
    double growth;             /* of the period, at least 1; default 1 */
    const int64_t *milestones; /* ascending */
    int milestone_count;
    double power;          /* default 1 */
    double rising_share;   /* one cycle; between 0 and 1; default 0.3 */
    double start_divisor;  /* default 25 */
    double end_divisor;    /* default 1e4 */
    bool linear_annealing; /* one cycle by straight lines */
} gd_schedule;

/* The learning rate of a step. NaN, and GD_ERR_INVALID, when a field is out of its range. */
GD_API double gd_schedule_at(const gd_schedule *schedule, int64_t step);
/* The same as a gd_schedule_fn for gd_fit: `schedule` is a const gd_schedule *, and its steps, if
 * 0, are `steps`. */
GD_API double gd_schedule_follow(void *schedule, int64_t step, int64_t steps);

/* Lower the learning rate when a metric has stopped falling (rising). All zero: the defaults, ready
 * to start. */
typedef struct gd_plateau {
    double factor;    /* default 0.1 */
    int patience;     /* calls without an improvement that are borne; default 10 */
    double threshold; /* how much better, relatively, counts as an improvement; default 1e-4 */
    int cooldown;     /* calls after a reduction in which nothing is counted */
    double lr_end;    /* never below */
    bool rising;      /* more is better: accuracy */
    bool impatient;   /* patience is 0 */
    /* its state */
    bool started;
    double best;
    int bad, cooling;
} gd_plateau;

/* Tell it a metric, once an epoch; gives the learning rate to go on with. */
GD_API double gd_plateau_step(gd_plateau *plateau, double lr, double metric);

#ifdef __cplusplus
}
#endif
#endif
