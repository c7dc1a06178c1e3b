/* gradus/train.h: a training loop for classifiers, thin: epochs, metrics, evaluation, a callback
 * for display. Start at gd_fit(). It uses nothing that is not public; a loop of one's own is as
 * fast.
 */
#ifndef GRADUS_TRAIN_H
#define GRADUS_TRAIN_H

#include <gradus/compile.h>
#include <gradus/data.h>
#include <gradus/optim.h>
#include <gradus/schedule.h>

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x [batch, ..] -> logits [batch, classes], not probabilities. NULL reports the error already
 * recorded. */
typedef gd_tensor *(*gd_forward_fn)(void *user, gd_tensor *x);
/* A loss of the logits and class indices [batch] (or whatever the loader's second tensor is) -> [].
 */
typedef gd_tensor *(*gd_loss_fn)(void *user, gd_tensor *logits, gd_tensor *target);

/* Means over the samples of a pass. */
typedef struct gd_metrics {
    double loss;
    double accuracy; /* of logits [batch, classes], two classes or more, against class indices
                        [batch]; NaN for an output of any other shape, as a regression's */
    int64_t samples;
} gd_metrics;

/* What a display is told. */
typedef struct gd_fit_progress {
    int epoch, epochs;   /* counted from 1 */
    int64_t step, steps; /* of this epoch, counted from 1 */
    bool epoch_done;     /* the epoch is over and, where there is a test set, evaluated */
    gd_metrics train;    /* of the epoch so far, during training */
    gd_metrics test;     /* at the end of an epoch; samples 0: no test set */
    double lr;
    double seconds;            /* this epoch has taken for training */
    double samples_per_second; /* in training, this epoch */
    double seconds_left;       /* of training, for all epochs to come, as far as can be told */
} gd_fit_progress;

/* Told how training gets on. *stop, false before, ends it where it is set to true, and gd_fit gives
 * GD_OK; a status other than GD_OK ends it as well, and is gd_fit's. */
typedef gd_status (*gd_fit_callback)(void *user, const gd_fit_progress *progress, bool *stop);
/* The learning rate of a step counted over all epochs, 0 … steps-1, into *lr. */
typedef gd_status (*gd_schedule_fn)(void *user, int64_t step, int64_t steps, double *lr);

typedef struct gd_fit_options {
    size_t size GD_DEFAULT(sizeof(gd_fit_options));
    int epochs GD_DEFAULT(1); /* 0: nothing is trained */
    gd_loss_fn loss;          /* NULL: gd_cross_entropy */
    void *loss_user;
    gd_mode mode;     /* GD_MODE_COMPILED, GD_MODE_EAGER */
    bool per_example; /* forward and backward one example at a time, one update a batch: the same
                         gradients, slower */
    gd_schedule_fn schedule; /* gd_schedule_follow, or one of your own; NULL: the optimizer's
                                learning rate is left alone */
    void *schedule_user;
    gd_fit_callback progress; /* NULL: silence */
    void *progress_user;
    /* seconds between calls within an epoch; 0: after every step; infinite: only at the end of an
     * epoch */
    double progress_interval GD_DEFAULT(INFINITY);
    gd_metrics *result; /* of the last evaluation; NULL: not wanted */
} gd_fit_options;
#define GD_FIT_DEFAULTS \
    .size = sizeof(gd_fit_options), .epochs = 1, .progress_interval = INFINITY, .result = NULL

/* gd_fit(optimizer, forward, user, train, test, .epochs = 10); test may be NULL. Forward, loss,
 * metrics, backward and update of a batch are one compiled function. Metrics are summed in tensors
 * and read only when displayed. */
#define gd_fit(...) GD_WITH_5(gd_fit_with, gd_fit_options, GD_FIT_DEFAULTS, __VA_ARGS__, )
GD_API gd_status gd_fit_with(gd_optimizer *optimizer, gd_forward_fn forward, void *user,
                             gd_loader *train, gd_loader *test, const gd_fit_options *options);

typedef struct gd_evaluate_options {
    size_t size GD_DEFAULT(sizeof(gd_evaluate_options));
    gd_loss_fn loss; /* NULL: gd_cross_entropy */
    void *loss_user;
    gd_mode mode;
} gd_evaluate_options;
#define GD_EVALUATE_DEFAULTS .size = sizeof(gd_evaluate_options), .mode = GD_MODE_COMPILED

/* gd_evaluate(module, forward, user, loader, &metrics): loss and accuracy over all samples of a
 * loader, of which one epoch is read, the last batch weighted by its size. The module is switched
 * out of training for the time. */
#define gd_evaluate(...) \
    GD_WITH_5(gd_evaluate_with, gd_evaluate_options, GD_EVALUATE_DEFAULTS, __VA_ARGS__, )
GD_API gd_status gd_evaluate_with(gd_module *module, gd_forward_fn forward, void *user,
                                  gd_loader *loader, gd_metrics *result,
                                  const gd_evaluate_options *options);

/* Many steps in one call: gd_call(step, batch.count, batch.tensors) with the loader's next `count`
 * batches, over the ends of epochs. results[i], if results is not NULL, is what call i gives,
 * one number: the loss of a training step. Returns how many calls succeeded: fewer than
 * `count` after an error, which gd_error_code tells. A function without a body, which its caller
 * traces, needs its plans before (gd_function_has_plan): for a full batch, and for a last one that
 * is smaller. */
GD_API int64_t gd_function_run(gd_function *step, gd_loader *loader, int64_t count,
                               double *results);

#ifdef __cplusplus
}
#endif
#endif
