/* train/metrics.c: metrics whose sums are kept in tensors: confusion matrices, regression, running
 * means. What needs every score is train/ranking.c. */
#include <gradus/metrics.h>

#include "base/error.h"
#include "base/memory.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <math.h>

/* ---- sums: the first member of each object ---- */

/* Numbers that batches are added to. */
typedef struct sums {
    gd_context *context;
    gd_tensor *tensor; /* [n], f64 or i64; retained */
} sums;

struct gd_confusion {
    sums sums; /* i64 [classes * classes]: at truth * classes + predicted */
    int64_t classes;
};

struct gd_regression {
    sums sums; /* f64 [5]: count, |d|, d^2, y, y^2 */
};

struct gd_running {
    sums sums; /* f64 [2]: samples, their total */
};

static void sums_destroy(void *object)
{
    sums *s = object;
    gd_release(s->tensor);
    gd_free(s);
}

/* An object of `bytes` that begins with n sums. */
static void *sums_create(size_t bytes, gd_context *context, int64_t n, gd_dtype dtype)
{
    if (!context)
        return NULL;
    sums *s = gd_alloc_zero(1, bytes);
    if (!s)
        return NULL;
    s->context = context;
    s->tensor = gd_state(context, GD_SHAPE(n), 0.0, dtype);
    if (!s->tensor || gd_context_adopt(context, s, sums_destroy) != GD_OK) {
        sums_destroy(s);
        return NULL;
    }
    return s;
}

static void sums_release(sums *s)
{
    if (!s)
        return;
    gd_context_disown(s->context, s);
    sums_destroy(s);
}

static gd_status missing(const char *who)
{
    return gd_fail(GD_ERR_INVALID, "%s: an argument is NULL", who);
}

static gd_status sums_reset(sums *s, const char *who)
{
    if (!s)
        return missing(who);
    gd_status status = gd_scope_begin(s->context);
    if (status != GD_OK)
        return status;
    if (!gd_assign(s->tensor, gd_zeros_like(s->tensor)))
        status = gd_error_last();
    (void)gd_scope_end(s->context);
    return status;
}

/* Add what `part` gives, [n] of the sums' dtype, without history and in a scope of its own. */
static gd_status sums_add(sums *s, gd_tensor *(*part)(const sums *s, gd_tensor *x, gd_tensor *y),
                          gd_tensor *x, gd_tensor *y)
{
    gd_status status = gd_scope_begin(s->context);
    if (status != GD_OK)
        return status;
    (void)gd_no_grad_begin(s->context);
    if (!gd_assign(s->tensor, part(s, x, y)))
        status = gd_error_last();
    (void)gd_no_grad_end(s->context);
    (void)gd_scope_end(s->context);
    return status;
}

static bool same_shape(const gd_tensor *x, const gd_tensor *y, const char *who)
{
    gd_shape a = gd_tensor_shape(x), b = gd_tensor_shape(y);
    bool same = a.rank == b.rank;
    for (int i = 0; same && i < a.rank; i++)
        same = a.dim[i] == b.dim[i];
    if (!same)
        (void)gd_fail(GD_ERR_SHAPE, "%s: the shapes differ: %d axes and %d, or their sizes", who,
                      a.rank, b.rank);
    return same;
}

static bool is_float(const gd_tensor *t)
{
    return gd_dtype_is_float(gd_tensor_dtype(t));
}

static gd_tensor *flat(gd_tensor *x, gd_dtype dtype)
{
    return gd_cast(gd_reshape(x, GD_SHAPE(-1)), dtype);
}

/* ---- classes ---- */

gd_tensor *gd_top_k_accuracy(gd_tensor *logits, gd_tensor *target, int64_t k)
{
    if (!logits || !target)
        return NULL;
    gd_shape shape = gd_tensor_shape(logits);
    if (k < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_top_k_accuracy: k is %lld", (long long)k);
    if (shape.rank < 1 || is_float(target) || gd_tensor_dtype(target) == GD_BOOL)
        return gd_fail_null(GD_ERR_DTYPE, "gd_top_k_accuracy: logits [.., classes] and integers "
                                          "[..] expected");
    int64_t classes = shape.dim[shape.rank - 1];
    shape.rank--;
    gd_tensor *rows = gd_detach(logits);
    if (!same_shape(target, gd_select(rows, -1, 0), "gd_top_k_accuracy"))
        return NULL;
    gd_tensor *index = gd_unsqueeze(gd_cast(target, GD_I64), -1);
    gd_tensor *score = gd_gather(rows, index, -1);
    gd_tensor *number = gd_arange(gd_tensor_context(logits), 0.0, (double)classes, 1.0, GD_I64);
    gd_tensor *before = gd_logical_and(gd_eq(rows, score), gd_lt(number, index));
    gd_tensor *ahead = gd_sum(gd_logical_or(gd_gt(rows, score), before), GD_AXES(-1), false);
    gd_tensor *found = gd_lt(ahead, gd_scalar(gd_tensor_context(logits), (double)k, GD_I64));
    gd_tensor *known = gd_logical_not(gd_isnan(gd_squeeze(score, -1)));
    return gd_mean(gd_logical_and(found, known), GD_ALL_AXES, false);
}

gd_confusion *gd_confusion_create(gd_context *context, int64_t classes)
{
    if (classes < 1 || classes > 65536)
        return gd_fail_null(GD_ERR_INVALID, "gd_confusion_create: %lld classes",
                            (long long)classes);
    gd_confusion *c = sums_create(sizeof *c, context, classes * classes, GD_I64);
    if (c)
        c->classes = classes;
    return c;
}

void gd_confusion_release(gd_confusion *confusion)
{
    sums_release((sums *)confusion);
}

gd_status gd_confusion_reset(gd_confusion *confusion)
{
    return sums_reset((sums *)confusion, "gd_confusion_reset");
}

/* predicted and truth: integers of equal shapes. A class out of range gives an index out of range.
 */
static gd_tensor *count_cells(const sums *s, gd_tensor *predicted, gd_tensor *truth)
{
    double classes =
        (double)((const gd_confusion *)s)->classes; /* s is the first member of a gd_confusion */
    gd_tensor *column = flat(predicted, GD_I64), *row = flat(truth, GD_I64);
    gd_tensor *cell = gd_add(gd_mul_scalar(row, classes), column);
    gd_tensor *bound = gd_scalar(s->context, classes, GD_I64),
              *none = gd_scalar(s->context, 0.0, GD_I64);
    gd_tensor *beyond = gd_logical_or(gd_ge(column, bound), gd_lt(column, none));
    gd_tensor *index = gd_where(beyond, gd_scalar(s->context, -1.0, GD_I64), cell);
    return index ? gd_scatter_add(s->tensor, index, gd_add_scalar(gd_zeros_like(index), 1.0), 0)
                 : NULL;
}

gd_status gd_confusion_add(gd_confusion *confusion, gd_tensor *predicted, gd_tensor *truth)
{
    if (!confusion || !predicted || !truth)
        return missing("gd_confusion_add");
    if (is_float(truth))
        return gd_fail(GD_ERR_DTYPE, "gd_confusion_add: the truth is %s, not integers",
                       gd_dtype_name(gd_tensor_dtype(truth)));
    if (is_float(predicted))
        predicted = gd_argmax(predicted, -1, false);
    if (!predicted || !same_shape(predicted, truth, "gd_confusion_add"))
        return gd_error_last();
    return sums_add(&confusion->sums, count_cells, predicted, truth);
}

/* All counts, to be freed; NULL: failed. */
static int64_t *read_counts(const gd_confusion *c)
{
    if (!c) {
        (void)missing("gd_confusion");
        return NULL;
    }
    const gd_tensor *tensor = c->sums.tensor;
    size_t bytes = (size_t)gd_tensor_count(tensor) * sizeof(int64_t);
    int64_t *counts = gd_alloc(bytes);
    if (counts && gd_tensor_read(tensor, counts, bytes) != GD_OK) {
        gd_free(counts);
        counts = NULL;
    }
    return counts;
}

static bool check_class(const gd_confusion *c, int64_t number, const char *who)
{
    if (!c) {
        (void)missing(who);
        return false;
    }
    int64_t classes = c->classes;
    if (number >= 0 && number < classes)
        return true;
    (void)gd_fail(GD_ERR_INVALID, "%s: there is no class %lld of %lld", who, (long long)number,
                  (long long)classes);
    return false;
}

int64_t gd_confusion_count(const gd_confusion *c, int64_t truth, int64_t predicted)
{
    if (!check_class(c, truth, "gd_confusion_count") ||
        !check_class(c, predicted, "gd_confusion_count"))
        return -1;
    int64_t *counts = read_counts(c);
    int64_t count = counts ? counts[truth * c->classes + predicted] : -1;
    gd_free(counts);
    return count;
}

gd_tensor *gd_confusion_matrix(const gd_confusion *c)
{
    if (!c) {
        (void)missing("gd_confusion_matrix");
        return NULL;
    }
    return gd_copy(gd_reshape(gd_detach(c->sums.tensor), GD_SHAPE(c->classes, c->classes)));
}

static double share(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : 0.0;
}

/* Of class k; *predicted: how often it was predicted. */
static gd_class_scores score_class(const int64_t *counts, int64_t classes, int64_t k,
                                   int64_t *predicted)
{
    int64_t found = counts[k * classes + k], truth = 0;
    *predicted = 0;
    for (int64_t i = 0; i < classes; i++) {
        truth += counts[k * classes + i];
        *predicted += counts[i * classes + k];
    }
    return (gd_class_scores){ .precision = share(found, *predicted),
                              .recall = share(found, truth),
                              .f1 = share(2 * found, *predicted + truth),
                              .support = truth };
}

static const gd_class_scores no_scores = { NAN, NAN, NAN, 0 };

gd_class_scores gd_confusion_class(const gd_confusion *c, int64_t number)
{
    int64_t predicted, *counts = NULL;
    if (check_class(c, number, "gd_confusion_class"))
        counts = read_counts(c);
    gd_class_scores scores =
        counts ? score_class(counts, c->classes, number, &predicted) : no_scores;
    gd_free(counts);
    return scores;
}

/* Means over the classes that occur, weighted by support or not. */
static gd_class_scores average_classes(const int64_t *counts, int64_t classes, bool by_support)
{
    gd_class_scores mean = { 0 };
    double weights = 0.0;
    for (int64_t k = 0; k < classes; k++) {
        int64_t predicted;
        gd_class_scores one = score_class(counts, classes, k, &predicted);
        double weight = by_support ? (double)one.support : predicted + one.support > 0;
        mean.precision += weight * one.precision;
        mean.recall += weight * one.recall;
        mean.f1 += weight * one.f1;
        mean.support += one.support;
        weights += weight;
    }
    mean.precision /= weights;
    mean.recall /= weights;
    mean.f1 /= weights;
    return mean;
}

gd_class_scores gd_confusion_score(const gd_confusion *c, gd_average average)
{
    int64_t *counts = read_counts(c);
    if (!counts)
        return no_scores;
    int64_t classes = c->classes, right = 0, all = 0;
    for (int64_t i = 0; i < classes * classes; i++)
        all += counts[i];
    for (int64_t k = 0; k < classes; k++)
        right += counts[k * classes + k];
    gd_class_scores scores = no_scores;
    if (all == 0)
        (void)gd_fail(GD_ERR_STATE, "gd_confusion_score: nothing was added");
    else if (average == GD_AVERAGE_MICRO)
        scores = (gd_class_scores){ share(right, all), share(right, all), share(right, all), all };
    else
        scores = average_classes(counts, classes, average == GD_AVERAGE_WEIGHTED);
    gd_free(counts);
    return scores;
}

/* ---- numbers ---- */

gd_regression *gd_regression_create(gd_context *context)
{
    return sums_create(sizeof(gd_regression), context, 5, GD_F64);
}

void gd_regression_release(gd_regression *regression)
{
    sums_release((sums *)regression);
}

gd_status gd_regression_reset(gd_regression *regression)
{
    return sums_reset((sums *)regression, "gd_regression_reset");
}

static gd_tensor *sum_errors(const sums *s, gd_tensor *x, gd_tensor *y)
{
    gd_tensor *predicted = flat(x, GD_F64), *truth = flat(y, GD_F64);
    gd_tensor *d = gd_sub(predicted, truth);
    gd_tensor *parts[5] = { gd_scalar(s->context, (double)gd_tensor_count(x), GD_F64),
                            gd_sum(gd_abs(d), GD_ALL_AXES, false),
                            gd_sum(gd_square(d), GD_ALL_AXES, false),
                            gd_sum(truth, GD_ALL_AXES, false),
                            gd_sum(gd_square(truth), GD_ALL_AXES, false) };
    for (int i = 0; i < 5; i++)
        if (!parts[i])
            return NULL;
    return gd_add(s->tensor, gd_stack(5, parts, 0));
}

gd_status gd_regression_add(gd_regression *regression, gd_tensor *x, gd_tensor *y)
{
    if (!regression || !x || !y)
        return missing("gd_regression_add");
    if (!same_shape(x, y, "gd_regression_add"))
        return gd_error_last();
    return sums_add(&regression->sums, sum_errors, x, y);
}

gd_regression_scores gd_regression_score(const gd_regression *regression)
{
    gd_regression_scores scores = { NAN, NAN, NAN, NAN, 0 };
    double sum[5];
    if (!regression) {
        (void)missing("gd_regression_score");
        return scores;
    }
    if (gd_tensor_read(regression->sums.tensor, sum, sizeof sum) != GD_OK)
        return scores;
    double n = sum[0];
    if (n == 0.0) {
        (void)gd_fail(GD_ERR_STATE, "gd_regression_score: nothing was added");
        return scores;
    }
    double variation = sum[4] - sum[3] * sum[3] / n;
    scores = (gd_regression_scores){ .mae = sum[1] / n,
                                     .mse = sum[2] / n,
                                     .rmse = sqrt(sum[2] / n),
                                     .r2 = variation > 0.0 ? 1.0 - sum[2] / variation : NAN,
                                     .count = (int64_t)n };
    return scores;
}

/* ---- means over batches ---- */

gd_running *gd_running_create(gd_context *context)
{
    return sums_create(sizeof(gd_running), context, 2, GD_F64);
}

void gd_running_release(gd_running *running)
{
    sums_release((sums *)running);
}

gd_status gd_running_reset(gd_running *running)
{
    return sums_reset((sums *)running, "gd_running_reset");
}

static gd_tensor *sum_samples(const sums *s, gd_tensor *mean, gd_tensor *samples)
{
    gd_tensor *total = gd_mul(gd_cast(gd_reshape(mean, GD_SCALAR), GD_F64), samples);
    gd_tensor *parts[2] = { samples, total };
    return total ? gd_add(s->tensor, gd_stack(2, parts, 0)) : NULL;
}

gd_status gd_running_add(gd_running *running, gd_tensor *mean, int64_t samples)
{
    if (!running || !mean)
        return missing("gd_running_add");
    if (gd_tensor_count(mean) != 1 || samples < 0)
        return gd_fail(GD_ERR_SHAPE, "gd_running_add: one number and 0 or more samples expected");
    gd_tensor *count = gd_scalar(running->sums.context, (double)samples, GD_F64);
    return count ? sums_add(&running->sums, sum_samples, mean, count) : gd_error_last();
}

double gd_running_mean(const gd_running *running)
{
    double sum[2];
    if (!running) {
        (void)missing("gd_running_mean");
        return NAN;
    }
    if (gd_tensor_read(running->sums.tensor, sum, sizeof sum) != GD_OK)
        return NAN;
    if (sum[0] == 0.0)
        (void)gd_fail(GD_ERR_STATE, "gd_running_mean: nothing was added");
    return sum[0] == 0.0 ? NAN : sum[1] / sum[0];
}

double gd_running_perplexity(const gd_running *running)
{
    return exp(gd_running_mean(running));
}
