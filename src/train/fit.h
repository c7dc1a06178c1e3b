/* train/fit.h: a training that is going on. The loop is train/fit.c, what of it goes into checkpoints
 * train/fit_file.c, the search for what is not finite train/blame.c. */
#ifndef GD_TRAIN_FIT_H
#define GD_TRAIN_FIT_H

#include "compile/timed.h"
#include "train/kept.h"
#include "train/meter.h"

enum { GD_BLAME_STEPS = 64 };

/* With .blame: a copy of all that steps change, taken each GD_BLAME_STEPS of them, from which the steps
 * since can be done again. */
typedef struct gd_blame {
    gd_kept kept;
    int64_t done; /* updates when it was taken; -1: it is to be taken anew */
    double lr[GD_BLAME_STEPS];
} gd_blame;

typedef struct gd_fit {
    gd_optimizer *optimizer;
    gd_module *module;
    gd_context *context;
    gd_objective_fn objective;
    void *user;
    gd_loader *train;
    gd_fit_options options;
    gd_meter meter;
    gd_evaluator evaluator;
    bool evaluates;
    gd_function *step;        /* a whole update; or the gradients of one batch, … */
    gd_function *update;      /* … and the update once they are added up */
    gd_tensor *share;         /* [] f64: of a batch in the mean over those of an update; retained */
    uint64_t data;            /* the training data's fingerprint, where there is a run */
    int64_t per_epoch;        /* updates */
    int64_t total, done;      /* updates of all epochs */
    int64_t begun;            /* those done when this process began */
    int64_t samples_before;   /* of this epoch, seen before this process began */
    int64_t saved;            /* done at the last checkpoint; -1: none */
    double best;              /* of the monitored metric; NaN: none yet */
    int64_t bad;              /* validations since */
    bool stopped, is_watched; /* by the callback; the loss is read at every step */
    gd_fit_progress now;
    double train_seconds; /* of the epochs that are over, in this process */
    double epoch_start, last_display, last_save;
    double phase_seconds[GD_PHASES]; /* of the timed steps of this process */
    int64_t timed, epoch_begun;      /* timed steps; steps done when the epoch began here */
    bool is_timed;                   /* the step at hand is */
    gd_kept_of of;
    gd_blame blame;
} gd_fit;

/* A checkpoint of it, and going on from the last there is. */
gd_status gd_fit_save(gd_fit *f, bool best);
gd_status gd_fit_resume(gd_fit *f);

/* How many batches the step at hand has, and their samples. */
int64_t gd_fit_group(const gd_fit *f, int64_t *samples);
/* A batch, of a step with so many samples, through the compiled function. NULL: failed. */
gd_tensor *gd_fit_call(gd_fit *f, const gd_batch *batch, int64_t samples);
gd_tensor *gd_fit_step_body(void *fit, int count, gd_tensor *const *in);

/* Where the loss is not looked at in every step: it is now. */
gd_status gd_fit_check_loss(gd_fit *f);

/* Before a step: keep what it starts from. */
gd_status gd_blame_keep(gd_fit *f);
/* Record the error that tells what made the loss of batch `i` of the step at hand `loss`, and leave all as
 * it was before the step. i is -1: it was a step since the copy was taken. */
gd_status gd_blame_tell(gd_fit *f, int64_t i, double loss);

#endif
