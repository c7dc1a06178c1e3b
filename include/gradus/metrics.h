/* gradus/metrics.h: how good a model is, over any number of batches. Each metric is an object that
 * batches are added to, is read at the end, and can be reset:
 *
 *     gd_confusion *c = gd_confusion_create(gd, 10);
 *     gd_confusion_add(c, logits, target);             // for each batch
 *     double f1 = gd_confusion_score(c, GD_AVERAGE_MACRO).f1;
 *
 * Sums are kept in tensors and adding is an effect, like gd_assign: it runs eagerly or as a part of
 * a compiled function, and nothing is read until it is asked for (gd_ranking alone reads at once).
 * Objects belong to their context; a release function ends one earlier. Definitions are those of
 * scikit-learn.
 */
#ifndef GRADUS_METRICS_H
#define GRADUS_METRICS_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- classes ---- */

/* Share of rows whose target is among the k largest logits: logits [.., classes], integers [..] ->
 * [] f32. Of equal logits the first counts as the larger. An op, for use with gd_running. */
GD_API gd_tensor *gd_top_k_accuracy(gd_tensor *logits, gd_tensor *target, int64_t k);

typedef struct gd_confusion gd_confusion;

/* Counts of (truth, prediction). classes: 1 … 65536. */
GD_API gd_confusion *gd_confusion_create(gd_context *context, int64_t classes);
GD_API void gd_confusion_release(gd_confusion *confusion);
GD_API gd_status gd_confusion_reset(gd_confusion *confusion);
/* Add a batch. predicted: classes, integers [..], or their scores, floats [.., classes]; truth:
 * integers [..]. GD_ERR_INVALID (when it runs): a class out of range. */
GD_API gd_status gd_confusion_add(gd_confusion *confusion, gd_tensor *predicted, gd_tensor *truth);
/* How many of a class were predicted to be another; -1 and an error when there is no such class. */
GD_API int64_t gd_confusion_count(const gd_confusion *confusion, int64_t truth, int64_t predicted);
/* All counts as they are now, [classes, classes] i64 with the truth in rows; a temporary. */
GD_API gd_tensor *gd_confusion_matrix(const gd_confusion *confusion);

typedef struct gd_class_scores {
    double
        precision; /* of what was predicted to be of the class, how much is; 0 where nothing was */
    double recall; /* of what is of the class, how much was found; 0 where nothing is */
    double f1;     /* their harmonic mean */
    int64_t support; /* how many are of the class */
} gd_class_scores;

typedef enum gd_average {
    GD_AVERAGE_MICRO,    /* all samples count alike: precision = recall = f1 = accuracy */
    GD_AVERAGE_MACRO,    /* all classes that occur count alike */
    GD_AVERAGE_WEIGHTED, /* classes by their support */
} gd_average;

/* Over all classes. NaN and an error: nothing was added, or it cannot be read. */
GD_API gd_class_scores gd_confusion_score(const gd_confusion *confusion, gd_average average);
/* Of one class. */
GD_API gd_class_scores gd_confusion_class(const gd_confusion *confusion, int64_t number);

/* ---- rankings: is it, or not ---- */

typedef struct gd_ranking gd_ranking;

GD_API gd_ranking *gd_ranking_create(gd_context *context);
GD_API void gd_ranking_release(gd_ranking *ranking);
GD_API void gd_ranking_reset(gd_ranking *ranking);
/* Add scores, floats, and whether each is positive (not 0), of equal shapes. They are read and
 * kept: GD_ERR_STATE within a trace. GD_ERR_INVALID: a score is NaN. */
GD_API gd_status gd_ranking_add(gd_ranking *ranking, gd_tensor *scores, gd_tensor *positive);
/* Area under the ROC curve: the share of pairs of a positive and a negative in which the positive
 * has the higher score, ties being half. NaN, and GD_ERR_STATE, unless there are both. */
GD_API double gd_ranking_auc(const gd_ranking *ranking);
/* The mean of the precision at each positive: the area under the precision-recall curve as a sum of
 * steps, (recall - recall before) * precision. NaN, and GD_ERR_STATE, where there are no positives. */
GD_API double gd_ranking_average_precision(const gd_ranking *ranking);

/* Curves as tensors f64, temporaries; each is NULL after an error. GD_ERR_STATE: there are no
 * positives, or no negatives where these are needed, too. */

/* [points] each: the share of the negatives, and that of the positives, whose scores are at least the
 * threshold. The thresholds are infinity, at which both are 0, and then every score, falling
 * (scikit-learn's roc_curve with drop_intermediate=False). */
GD_API gd_status gd_ranking_roc(const gd_ranking *ranking, gd_tensor **false_positive_rate,
                                gd_tensor **true_positive_rate, gd_tensor **thresholds);
/* Precision and recall [points + 1] of those whose scores are at least the threshold; thresholds
 * [points] are every score, rising, and the last precision and recall are 1 and 0
 * (precision_recall_curve). */
GD_API gd_status gd_ranking_precision_recall(const gd_ranking *ranking, gd_tensor **precision,
                                             gd_tensor **recall, gd_tensor **thresholds);
/* Scores that are probabilities, in `bins` ranges of equal width: the mean of the scores and the share
 * that is positive in each range that has any (calibration_curve). GD_ERR_INVALID: a score beyond 0
 * and 1. */
GD_API gd_status gd_ranking_calibration(const gd_ranking *ranking, int64_t bins,
                                        gd_tensor **predicted, gd_tensor **observed);

/* ---- numbers ---- */

typedef struct gd_regression gd_regression;

typedef struct gd_regression_scores {
    double mae, mse, rmse;
    double r2; /* 1 - sum((y - x)^2) / sum((y - mean(y))^2); NaN where y does not vary */
    int64_t count;
} gd_regression_scores;

GD_API gd_regression *gd_regression_create(gd_context *context);
GD_API void gd_regression_release(gd_regression *regression);
GD_API gd_status gd_regression_reset(gd_regression *regression);
/* Add predictions x and truths y of equal shapes. */
GD_API gd_status gd_regression_add(gd_regression *regression, gd_tensor *x, gd_tensor *y);
/* All NaN, and an error, when nothing was added or it cannot be read. */
GD_API gd_regression_scores gd_regression_score(const gd_regression *regression);

/* ---- means over batches ---- */

typedef struct gd_running gd_running;

GD_API gd_running *gd_running_create(gd_context *context);
GD_API void gd_running_release(gd_running *running);
GD_API gd_status gd_running_reset(gd_running *running);
/* Add the mean of `samples` samples, []: a batch's loss, its gd_top_k_accuracy. */
GD_API gd_status gd_running_add(gd_running *running, gd_tensor *mean, int64_t samples);
/* The mean over all samples. NaN, and an error, when there are none or it cannot be read. */
GD_API double gd_running_mean(const gd_running *running);
/* e to the power of it: of a mean cross-entropy in nats per token, the perplexity. */
GD_API double gd_running_perplexity(const gd_running *running);

#ifdef __cplusplus
}
#endif
#endif
