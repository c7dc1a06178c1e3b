/* train/meter.h: running loss and accuracy. They are summed in tensors, by effects inside the
 * compiled step, and read when displayed. */
#ifndef GD_TRAIN_METER_H
#define GD_TRAIN_METER_H

#include <gradus/train.h>

typedef struct gd_meter {
    gd_tensor *loss;    /* [] f64: sum of the losses of all samples; retained */
    gd_tensor *correct; /* [] i64: samples whose largest logit is at the target; retained */
    int64_t samples;    /* counted by the caller */
    bool has_classes;   /* the batches' outputs and targets can be compared as classes */
} gd_meter;

/* false: failed; close it all the same. */
bool gd_meter_open(gd_meter *meter, gd_context *context);
void gd_meter_close(gd_meter *meter);
gd_status gd_meter_reset(gd_meter *meter);
/* Add a batch: output [n, ..], target [n, ..], mean_loss []. Hits are counted where the output is
 * logits [n, .., classes], two or more, and the target indices [n, ..]. Eager or traced. */
bool gd_meter_add(gd_meter *meter, gd_tensor *output, gd_tensor *target, gd_tensor *mean_loss);
/* accuracy: NaN where there are no classes. */
gd_metrics gd_meter_read(const gd_meter *meter);

/* ---- evaluation: train/evaluate.c ---- */

typedef struct gd_evaluator {
    gd_module *module;
    gd_forward_fn forward;
    void *user;
    gd_loader *loader;
    gd_loss_fn loss;
    void *loss_user;
    gd_mode mode;
    gd_meter meter;
    gd_function *function;
} gd_evaluator;

/* gd_cross_entropy as a gd_loss_fn. */
gd_tensor *gd_default_loss(void *user, gd_tensor *logits, gd_tensor *target);

/* Of an evaluator whose members up to `mode` are set, the rest 0. false: failed; close it all the
 * same. */
bool gd_evaluator_open(gd_evaluator *evaluator);
void gd_evaluator_close(gd_evaluator *evaluator);
gd_status gd_evaluator_run(gd_evaluator *evaluator, gd_metrics *out);

#endif
