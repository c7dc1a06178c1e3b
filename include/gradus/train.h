/* gradus/train.h: training, evaluation and prediction. Start at gd_fit(). It takes any loader and any
 * loss, reports any metrics, validates, stops early, saves checkpoints and goes on from them bit for
 * bit. It uses nothing that is not public; a loop of one's own is as fast.
 */
#ifndef GRADUS_TRAIN_H
#define GRADUS_TRAIN_H

#include <gradus/checkpoint.h>
#include <gradus/compile.h>
#include <gradus/data.h>
#include <gradus/model.h>
#include <gradus/optim.h>
#include <gradus/schedule.h>

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what is trained: an objective ---- */

/* One use of an objective. The struct may become larger at its end. */
typedef struct gd_objective_call {
    bool training; /* false: in validation and evaluation */
    int count;
    gd_tensor *const *tensors; /* [count], of a batch: gd_loader_next */
    void *meter;               /* for gd_report */
} gd_objective_call;

/* The mean loss of a batch, []; NULL is the error already recorded. It is compiled, once for training
 * and once for evaluation:
 *
 *     gd_tensor *logits = gd_nn_linear(module, "out", call->tensors[0], 10);
 *     gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), call->tensors[1]));
 *     return gd_cross_entropy(logits, call->tensors[1]);
 */
typedef gd_tensor *(*gd_objective_fn)(void *user, const gd_objective_call *call);

/* How a metric is made of what is reported. */
typedef enum gd_metric_form {
    GD_METRIC_MEAN, /* of all values */
    GD_METRIC_ROOT, /* the root of it: of squared errors */
    GD_METRIC_EXP,  /* e to the power of it: a perplexity */
    GD_METRIC_R2,   /* of predicted values, and .truth: 1 - sum((y - x)^2) / sum((y - mean(y))^2) */
} gd_metric_form;

typedef struct gd_report_options {
    size_t size GD_DEFAULT(sizeof(gd_report_options));
    gd_metric_form form;
    gd_tensor *truth;
} gd_report_options;
#define GD_REPORT_DEFAULTS .size = sizeof(gd_report_options), .truth = NULL

/* gd_report(call, "r2", x, .form = GD_METRIC_R2, .truth = y), gd_report(call, "perplexity", loss, .form = GD_METRIC_EXP): tell a
 * metric beside the loss, of as many values a sample as you like; one number for a batch is taken as
 * the mean of its samples. The same names for every batch, of letters, digits, _ . / and -, at most 31,
 * and not "loss". Values are summed in tensors and read when shown. Errors also fail the objective. */
#define gd_report(...) \
    GD_WITH_3(gd_report_with, gd_report_options, GD_REPORT_DEFAULTS, __VA_ARGS__, )
GD_API gd_status gd_report_with(const gd_objective_call *call, const char *name, gd_tensor *values,
                                const gd_report_options *options);

/* The objective of a model as data: user is the gd_model. The batch's first tensors are its inputs, then
 * come the targets of its losses, each in order; what follows is passed over. It reports "accuracy"
 * of classes and of yes or no, "mae" and "r2" of numbers; of padded sequences (a layer's lengths are an input)
 * steps behind the end count for nothing; where there are several losses, under the
 * name of the output, "class/accuracy". */
GD_API gd_tensor *gd_model_objective(void *model, const gd_objective_call *call);

/* ---- what is measured ---- */

#define GD_METRICS_MAX      32
#define GD_METRIC_NAME_SIZE 32
typedef struct gd_metric {
    char name[GD_METRIC_NAME_SIZE];
    double value;
} gd_metric;

/* Over the samples of a pass; "loss" comes first. */
typedef struct gd_metrics {
    int64_t samples;
    int count;
    gd_metric list[GD_METRICS_MAX];
} gd_metrics;

/* The value of that name; NaN: there is none. */
GD_API double gd_metrics_get(const gd_metrics *metrics, const char *name);

/* ---- training ---- */

/* What a display is told. A step is an update of the parameters. */
typedef struct gd_fit_progress {
    int64_t epoch, epochs;           /* counted from 1 */
    int64_t step, steps;             /* of this epoch, counted from 1 */
    int64_t total_step, total_steps; /* of the whole training */
    bool epoch_done;                 /* the epoch is over */
    bool validated;                  /* validation is new */
    bool improved;                   /* and the best so far, by .monitor */
    gd_metrics train;                /* of the epoch so far */
    gd_metrics validation;           /* the last there was; samples 0: none */
    double lr;
    double seconds;      /* this epoch has taken for training, in this process */
    double data_seconds; /* of them, waiting for batches */
    double step_seconds; /* and computing */
    double
        save_seconds; /* and copying checkpoints, or waiting for the one before; that at the end of
                            an epoch is told of in the next */
    /* Of step_seconds, measured in one step of 16 and taken for all: forward, backward, update (clipping and
     * averages with it). The rest is compiling, and what is around kernels. 0: not known, as where
     * nothing is compiled. */
    double forward_seconds, backward_seconds, update_seconds;
    double validation_seconds; /* of the validations in this epoch; not in `seconds` */
    size_t memory;             /* the most bytes that tensors have taken so far: gd_memory */
    double samples_per_second;
    double seconds_left; /* of training, as far as can be told */
    /* With .validation_progress, while a validation is under way: batches that are done, and all of them;
     * 0: none is. Parameters are then those that are validated. */
    int64_t validation_step, validation_steps;
} gd_fit_progress;

/* Called while training runs. Set *stop, which is false before, to true to end it: gd_fit then saves
 * a checkpoint, if it saves any, and returns GD_OK. A status other than GD_OK ends it as well, and
 * gd_fit returns that. */
typedef gd_status (*gd_fit_callback)(void *user, const gd_fit_progress *progress, bool *stop);
/* The learning rate of a step counted over all epochs, 0 … steps-1, into *lr. */
typedef gd_status (*gd_schedule_fn)(void *user, int64_t step, int64_t steps, double *lr);

typedef struct gd_fit_options {
    size_t size GD_DEFAULT(sizeof(gd_fit_options));
    int64_t epochs GD_DEFAULT(1); /* 0: nothing is trained */
    int64_t steps GD_DEFAULT(-1); /* instead of epochs; -1: epochs */
    gd_mode mode;
    int64_t
        accumulate GD_DEFAULT(1); /* batches whose gradients are added up for a step: as one batch
                                         of all their samples */
    gd_dtype precision;           /* GD_BF16 or GD_F16: objective and gradients in mixed precision
                                     (gradus/precision.h), also of the validation. GD_F16 scales losses as by
                                     gd_optimizer_scale_losses, unless that is on */
    gd_ema *ema;                  /* updated after each step; validation is of its averages */

    gd_schedule_fn schedule; /* gd_schedule_follow, or one of your own; NULL: the optimizer's
                                learning rate is left alone */
    void *schedule_user;
    gd_plateau *plateau; /* told the monitored metric at each validation; not beside a schedule */

    gd_loader *validation; /* one epoch of it is read from its first batch on; NULL: none */
    int64_t validate_steps GD_DEFAULT(-1); /* validate each so many steps; -1: after each epoch */
    const char *monitor; /* the metric that says what is best, of the validation, without one of the
                            training; NULL: "loss" */
    bool rising;         /* more of it is better */
    int64_t patience GD_DEFAULT(-1); /* validations without an improvement after which training ends
                                        at the next; -1: it goes on */
    double min_improvement;          /* what is no more than that is none */

    gd_run
        *run; /* checkpoints: after each epoch and at the end; of short epochs not all are written:
                    .interval of gd_run_open. NULL: none */
    int64_t checkpoint_steps GD_DEFAULT(-1);  /* and each so many steps */
    double checkpoint_seconds GD_DEFAULT(60); /* and each so many seconds */
    bool resume;      /* go on from the run's last checkpoint, if it has one */
    gd_model *model;  /* whose description goes into checkpoints; known where gd_model_objective is
                            the objective */
    int tensor_count; /* further state for checkpoints: gd_training */
    const gd_named_tensor *tensors;
    int metadata_count;
    const gd_metadata *metadata;

    gd_fit_callback progress; /* NULL: silence */
    void *progress_user;
    /* seconds between calls within an epoch; 0: after every step; infinite: only at validations and
     * the ends of epochs */
    double progress_interval GD_DEFAULT(INFINITY);
    bool
        blame; /* when the loss is not finite, go back, do the step again op by op, and tell the first
                   op that made it so; all is left as it was before the step. A copy of what steps
                   change is taken at each 64th, and those since are done again: a progress
                   function that changes parameters hides them from that. Without, the error
                   tells the step. */
    bool validation_progress; /* .progress is called during validations, too, each
                                 .progress_interval seconds */
    gd_metrics
        *result; /* of the last validation, without one of the last epoch; NULL: not wanted */
} gd_fit_options;
#define GD_FIT_DEFAULTS                                                                     \
    .size = sizeof(gd_fit_options), .epochs = 1, .steps = -1, .accumulate = 1,              \
    .validate_steps = -1, .patience = -1, .checkpoint_steps = -1, .checkpoint_seconds = 60, \
    .progress_interval = INFINITY, .result = NULL

/* gd_fit(optimizer, gd_model_objective, model, loader, .epochs = 10, .validation = unseen). The
 * objective, its gradient, metrics and the update are one compiled function. Epochs are counted from
 * where the loader stands. GD_ERR_STATE: the loss is not finite (on devices whose memory is not the
 * host's it is looked at when shown, after each epoch and, with .blame, each 64 steps).
 *
 * RESUMED with the same arguments, in a fresh process, it ends with the same bits as if it had not
 * been stopped, however it was stopped: parameters, optimizer, averages, dropout, order of samples,
 * metrics and schedule go on. What is a callback's own is not saved. GD_ERR_INVALID: the loader's
 * epochs or batches have other sizes, its data set another fingerprint (gd_dataset_fingerprint), or
 * .accumulate or .precision differs. Further arguments are not compared; more epochs train on. */
#define gd_fit(...) GD_WITH_4(gd_fit_with, gd_fit_options, GD_FIT_DEFAULTS, __VA_ARGS__, )
GD_API gd_status gd_fit_with(gd_optimizer *optimizer, gd_objective_fn objective, void *user,
                             gd_loader *train, const gd_fit_options *options);

/* ---- finding a learning rate ---- */

typedef struct gd_lr_point {
    double lr, loss; /* the loss of the step, smoothed over those before: an average in which each
                        counts 0.98 of the next, as in fastai and PyTorch Lightning */
} gd_lr_point;

typedef struct gd_lr_range_options {
    size_t size GD_DEFAULT(sizeof(gd_lr_range_options));
    double from GD_DEFAULT(1e-6), to
        GD_DEFAULT(10); /* rates, growing by the same factor each step */
    int64_t steps GD_DEFAULT(100);
    gd_dtype precision; /* as of gd_fit */
} gd_lr_range_options;
#define GD_LR_RANGE_DEFAULTS \
    .size = sizeof(gd_lr_range_options), .from = 1e-6, .to = 10, .steps = 100, .precision = GD_F32

/* gd_lr_range(optimizer, objective, user, loader, points, NULL): train for .steps steps with ever larger
 * learning rates, until the loss is no number or four times its least, and put everything back:
 * parameters, optimizer, random stream, loader. points has room for .steps; how many there are is
 * returned, -1: an error. *lr, if lr is not NULL, is where the loss fell most steeply, a good rate to
 * begin with; NaN: nowhere. Smith, "Cyclical learning rates for training neural networks", 2017. */
#define gd_lr_range(...) \
    GD_WITH_6(gd_lr_range_with, gd_lr_range_options, GD_LR_RANGE_DEFAULTS, __VA_ARGS__, )
GD_API int64_t gd_lr_range_with(gd_optimizer *optimizer, gd_objective_fn objective, void *user,
                                gd_loader *loader, gd_lr_point *points, double *lr,
                                const gd_lr_range_options *options);

/* ---- evaluation ---- */

typedef struct gd_evaluate_options {
    size_t size GD_DEFAULT(sizeof(gd_evaluate_options));
    gd_mode mode;
    gd_dtype precision; /* as of gd_fit */
} gd_evaluate_options;
#define GD_EVALUATE_DEFAULTS .size = sizeof(gd_evaluate_options), .precision = GD_F32

/* gd_evaluate(module, objective, user, loader, &metrics): loss and metrics over one epoch of a loader,
 * from its first batch on; the loader stands afterwards where it stood. The module is switched out of
 * training for the time. */
#define gd_evaluate(...) \
    GD_WITH_5(gd_evaluate_with, gd_evaluate_options, GD_EVALUATE_DEFAULTS, __VA_ARGS__, )
GD_API gd_status gd_evaluate_with(gd_module *module, gd_objective_fn objective, void *user,
                                  gd_loader *loader, gd_metrics *result,
                                  const gd_evaluate_options *options);

/* ---- prediction ---- */

/* A model's forward pass outside of training, compiled once for each size of batch. Owned by the
 * context. */
typedef struct gd_predictor gd_predictor;
GD_API gd_predictor *gd_predictor_create(gd_model *model);
/* NULL is fine. */
GD_API void gd_predictor_release(gd_predictor *predictor);
/* Of a batch, or of one sample as a batch of one: inputs in the model's order, outputs[o] is a new
 * temporary [batch, ..]. Both counts are the model's. */
GD_API gd_status gd_predict(gd_predictor *predictor, int count, gd_tensor *const *inputs,
                            int output_count, gd_tensor **outputs);
/* Of all samples of an epoch of a loader, from its first batch on, whose first tensors are the inputs:
 * outputs[o] is a new temporary [samples, ..]. */
GD_API gd_status gd_predict_loader(gd_predictor *predictor, gd_loader *loader, int output_count,
                                   gd_tensor **outputs);

/* ---- steps of one's own ---- */

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
