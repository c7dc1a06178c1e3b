/* gradus/schedule.h: learning rates over time. A schedule is a value, written down by its fields,
 * and a pure function of the step:
 *
 *     gd_schedule cosine = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 0.1,
 *                            .steps = 1000, .warmup = 50 };
 *     gd_optimizer_set_lr(optimizer, gd_schedule_at(&cosine, step));
 *
 * or, with gd_fit, .schedule = gd_schedule_follow, .schedule_user = &cosine. Steps are counted from
 * 0; formulas are those of torch.optim.lr_scheduler. What reacts to a metric is gd_plateau.
 */
#ifndef GRADUS_SCHEDULE_H
#define GRADUS_SCHEDULE_H

#include <gradus/options.h>

#include <math.h>

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
    size_t size GD_DEFAULT(sizeof(gd_schedule));
    gd_schedule_kind kind;
    double lr;
    double lr_end; /* from the last of `steps` on */
    int64_t
        steps GD_DEFAULT(-1); /* with the warm-up; -1: what gd_fit counts (gd_schedule_follow) */
    int64_t warmup;           /* steps from lr / warmup up to lr, before anything else */
    double factor GD_DEFAULT(NAN); /* NaN: 0.1; exponential: 0.99 */
    int64_t period GD_DEFAULT(-1); /* -1: 1; cosine: no restarts */
    double growth GD_DEFAULT(1.0); /* of the period, at least 1 */
    int milestone_count;
    const int64_t *milestones; /* ascending */
    double power GD_DEFAULT(1.0);
    double rising_share GD_DEFAULT(0.3); /* one cycle; from 0 to below 1 */
    double start_divisor GD_DEFAULT(25.0), end_divisor GD_DEFAULT(1e4);
    bool linear_annealing; /* one cycle by straight lines */
} gd_schedule;
#define GD_SCHEDULE_DEFAULTS                                                              \
    .size = sizeof(gd_schedule), .steps = -1, .factor = NAN, .period = -1, .growth = 1.0, \
    .power = 1.0, .rising_share = 0.3, .start_divisor = 25.0, .end_divisor = 1e4,         \
    .linear_annealing = false

/* The learning rate of a step. NaN, and GD_ERR_INVALID, when a field is out of its range. */
GD_API double gd_schedule_at(const gd_schedule *schedule, int64_t step);
/* The same as a gd_schedule_fn for gd_fit: `schedule` is a const gd_schedule *, and its steps, if
 * -1, are `steps`. */
GD_API gd_status gd_schedule_follow(void *schedule, int64_t step, int64_t steps, double *lr);

/* Lower the learning rate when a metric has stopped falling (rising):
 *
 *     gd_plateau plateau = { GD_PLATEAU_DEFAULTS, .patience = 3 };
 */
typedef struct gd_plateau {
    size_t size GD_DEFAULT(sizeof(gd_plateau));
    double factor GD_DEFAULT(0.1);
    int patience GD_DEFAULT(10);       /* calls without an improvement that are borne */
    double threshold GD_DEFAULT(1e-4); /* how much better, relatively, counts as an improvement */
    int cooldown;                      /* calls after a reduction in which nothing is counted */
    double lr_end;                     /* never below */
    bool rising;                       /* more is better: accuracy */
    /* its state */
    bool started;
    double best;
    int bad, cooling;
} gd_plateau;
#define GD_PLATEAU_DEFAULTS \
    .size = sizeof(gd_plateau), .factor = 0.1, .patience = 10, .threshold = 1e-4, .cooling = 0

/* Tell it a metric, once an epoch; gives the learning rate to go on with. NaN, and GD_ERR_INVALID:
 * nobody has filled the plateau. */
GD_API double gd_plateau_step(gd_plateau *plateau, double lr, double metric);

#ifdef __cplusplus
}
#endif
#endif
