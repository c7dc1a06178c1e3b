/* train/meter.h: running metrics. They are summed in tensors, by effects inside the compiled step, and
 * read when displayed; and what is common to training and evaluation. */
#ifndef GD_TRAIN_METER_H
#define GD_TRAIN_METER_H

#include <gradus/train.h>

#include "base/text.h"

enum { GD_METER_SUMS = 3 };

/* A metric: sums over all samples so far. R2 has squared differences, truths and squared truths. */
typedef struct gd_meter_slot {
    char name[GD_METRIC_NAME_SIZE];
    gd_metric_form form;
    gd_tensor *sum[GD_METER_SUMS]; /* [] f64, retained */
    double start[GD_METER_SUMS];   /* what a sum begins with that is not made yet */
    uint64_t round;                /* the use of the objective that reported it last */
} gd_meter_slot;

typedef struct gd_meter {
    gd_context *context;
    gd_dtype precision; /* objectives run in this scope: gd_autocast_begin; f32: in none */
    int64_t samples;    /* counted by the caller */
    uint64_t round;
    gd_status failed; /* of this round */
    int count;
    gd_meter_slot slots[GD_METRICS_MAX];
} gd_meter;

void gd_meter_open(gd_meter *meter, gd_context *context, gd_dtype precision);
void gd_meter_close(gd_meter *meter);
/* All sums 0. */
gd_status gd_meter_reset(gd_meter *meter);
gd_metrics gd_meter_read(const gd_meter *meter);

/* As lines of text, exactly; and back, into a meter without tensors yet. */
void gd_meter_write(const gd_meter *meter, gd_text *text);
gd_status gd_meter_restore(gd_meter *meter, const char *text);

/* An objective, its loss and its metrics added to the meter: the body of a step. NULL: failed. */
gd_tensor *gd_objective_run(gd_objective_fn objective, void *user, gd_meter *meter, bool training,
                            int count, gd_tensor *const *tensors);

/* The next batch, over the end of an epoch. */
bool gd_loader_next_batch(gd_loader *loader, gd_batch *batch);

/* ---- evaluation: train/evaluate.c ---- */

typedef struct gd_evaluator {
    gd_module *module;
    gd_objective_fn objective;
    void *user;
    gd_loader *loader;
    gd_mode mode;
    gd_dtype precision;
    gd_meter meter;
    gd_function *function;
    /* Called after each batch but the last, where it is not NULL: so many of so many are done. */
    gd_status (*after_batch)(void *fit, int64_t done, int64_t batches);
    void *fit;
} gd_evaluator;

/* Of an evaluator whose members up to `precision` are set, the rest 0. false: failed; close it all the
 * same. */
bool gd_evaluator_open(gd_evaluator *evaluator);
void gd_evaluator_close(gd_evaluator *evaluator);
/* The first batch alone, to find out what is reported. */
gd_status gd_evaluator_try(gd_evaluator *evaluator);
gd_status gd_evaluator_run(gd_evaluator *evaluator, gd_metrics *out);

#endif
