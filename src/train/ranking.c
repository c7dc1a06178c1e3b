/* train/ranking.c: what depends on the order of all scores, so that they are kept: the ROC and the
 * precision-recall curve with their areas. (Hanley, McNeil 1982: the area under the ROC curve is the
 * statistic of Mann and Whitney.) */
#include <gradus/metrics.h>

#include "base/error.h"
#include "base/memory.h"

#include <gradus/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sample {
    double score;
    bool positive;
} sample;

struct gd_ranking {
    gd_context *context;
    sample *samples;
    size_t count, capacity;
};

static void destroy(void *object)
{
    gd_ranking *r = object;
    gd_free(r->samples);
    gd_free(r);
}

gd_ranking *gd_ranking_create(gd_context *context)
{
    gd_ranking *r = context ? gd_alloc_zero(1, sizeof *r) : NULL;
    if (!r)
        return NULL;
    r->context = context;
    if (gd_context_adopt(context, r, destroy) != GD_OK) {
        destroy(r);
        return NULL;
    }
    return r;
}

void gd_ranking_release(gd_ranking *r)
{
    if (!r)
        return;
    gd_context_disown(r->context, r);
    destroy(r);
}

void gd_ranking_reset(gd_ranking *r)
{
    if (r)
        r->count = 0;
}

/* Both as doubles, read into two arrays of n. */
static gd_status read_both(gd_tensor *scores, gd_tensor *positive, double *out, size_t n)
{
    gd_tensor *truth = gd_cast(gd_cast(positive, GD_BOOL), GD_F64);
    scores = gd_cast(scores, GD_F64);
    if (!scores || !truth)
        return gd_error_last();
    gd_status status = gd_tensor_read(scores, out, n * sizeof *out);
    return status == GD_OK ? gd_tensor_read(truth, out + n, n * sizeof *out) : status;
}

static gd_status append(gd_ranking *r, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(values[i]))
            return gd_fail(GD_ERR_INVALID, "gd_ranking_add: score %zu is NaN", i);
    if (!gd_grow((void **)&r->samples, &r->capacity, r->count + n, sizeof *r->samples))
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        r->samples[r->count++] = (sample){ values[i], values[n + i] != 0.0 };
    return GD_OK;
}

gd_status gd_ranking_add(gd_ranking *r, gd_tensor *scores, gd_tensor *positive)
{
    if (!r || !scores || !positive)
        return gd_fail(GD_ERR_INVALID, "gd_ranking_add: an argument is NULL");
    size_t n = (size_t)gd_tensor_count(scores);
    if (gd_tensor_count(positive) != gd_tensor_count(scores))
        return gd_fail(GD_ERR_SHAPE, "gd_ranking_add: %zu scores, %lld truths", n,
                       (long long)gd_tensor_count(positive));
    gd_status status = gd_scope_begin(r->context);
    if (status != GD_OK)
        return status;
    double *values = gd_alloc((2 * n + 1) * sizeof *values);
    status = values ? read_both(scores, positive, values, n) : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = append(r, values, n);
    gd_free(values);
    (void)gd_scope_end(r->context);
    return status;
}

/* ---- thresholds ---- */

/* How many are positive and negative with a score of at least `threshold`. */
typedef struct step {
    double threshold;
    int64_t positives, negatives;
} step;

static int by_score(const void *a, const void *b)
{
    double x = ((const sample *)a)->score, y = ((const sample *)b)->score;
    return (x < y) - (x > y);
}

/* A step for each different score, the highest first, to be gd_free'd; the last has all samples. NULL:
 * GD_ERR_STATE unless there are positives and, if they are needed, negatives; GD_ERR_MEMORY. */
static step *steps_of(const char *who, const gd_ranking *r, bool needs_negatives, size_t *count)
{
    size_t n = r ? r->count : 0;
    sample *sorted = gd_alloc(n * sizeof *sorted + 1);
    step *steps = gd_alloc(n * sizeof *steps + 1);
    if (sorted && steps && n) {
        memcpy(sorted, r->samples, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, by_score);
    }
    step now = { 0 };
    *count = 0;
    for (size_t i = 0; sorted && steps && i < n; i++) {
        now.threshold = sorted[i].score;
        now.positives += sorted[i].positive;
        now.negatives += !sorted[i].positive;
        if (i + 1 == n || sorted[i + 1].score != now.threshold)
            steps[(*count)++] = now;
    }
    bool whole = sorted && steps;
    gd_free(sorted);
    if (whole && now.positives > 0 && (now.negatives > 0 || !needs_negatives))
        return steps;
    gd_free(steps);
    return whole ? gd_fail_null(GD_ERR_STATE, "%s: %lld positives and %lld negatives", who,
                                (long long)now.positives, (long long)now.negatives)
                 : NULL;
}

double gd_ranking_auc(const gd_ranking *r)
{
    size_t count;
    step *steps = steps_of("gd_ranking_auc", r, true, &count);
    if (!steps)
        return NAN;
    double won = 0.0; /* pairs in which the positive has the higher score */
    for (size_t i = 0; i < count; i++) {
        step before = i ? steps[i - 1] : (step){ 0 };
        double higher = 0.5 * (double)(before.positives + steps[i].positives);
        won += higher * (double)(steps[i].negatives - before.negatives);
    }
    double pairs = (double)steps[count - 1].positives * (double)steps[count - 1].negatives;
    gd_free(steps);
    return won / pairs;
}

static double precision_of(step s)
{
    return (double)s.positives / (double)(s.positives + s.negatives);
}

double gd_ranking_average_precision(const gd_ranking *r)
{
    size_t count;
    step *steps = steps_of("gd_ranking_average_precision", r, false, &count);
    if (!steps)
        return NAN;
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        int64_t before = i ? steps[i - 1].positives : 0;
        sum += (double)(steps[i].positives - before) * precision_of(steps[i]);
    }
    sum /= (double)steps[count - 1].positives;
    gd_free(steps);
    return sum;
}

/* ---- curves ---- */

enum { MOST_COLUMNS = 3 };

/* Columns of equal or different lengths as f64 tensors. */
static gd_status give(const gd_ranking *r, int columns, double *const *values, const size_t *counts,
                      gd_tensor **const *out)
{
    gd_status status = GD_OK;
    for (int i = 0; i < columns; i++) {
        gd_tensor *made = status == GD_OK ? gd_from_host(r->context, GD_SHAPE((int64_t)counts[i]),
                                                         GD_F64, values[i])
                                          : NULL;
        if (status == GD_OK && !made)
            status = gd_error_last();
        *out[i] = made;
    }
    for (int i = 0; status != GD_OK && i < columns; i++)
        *out[i] = NULL;
    return status;
}

/* Room for columns of n numbers each; *block is gd_free'd. */
static bool make_columns(size_t n, int columns, double **block, double **values)
{
    *block = gd_alloc(n * (size_t)columns * sizeof **block);
    for (int i = 0; *block && i < columns; i++)
        values[i] = *block + (size_t)i * n;
    return *block;
}

static gd_status clear(const char *who, const gd_ranking *r, int columns, gd_tensor **const *out)
{
    for (int i = 0; i < columns; i++)
        if (!out[i])
            return gd_fail(GD_ERR_INVALID, "%s: an argument is NULL", who);
    for (int i = 0; i < columns; i++)
        *out[i] = NULL;
    return r ? GD_OK : gd_fail(GD_ERR_INVALID, "%s: an argument is NULL", who);
}

gd_status gd_ranking_roc(const gd_ranking *r, gd_tensor **false_positive_rate,
                         gd_tensor **true_positive_rate, gd_tensor **thresholds)
{
    static const char who[] = "gd_ranking_roc";
    gd_tensor **const out[] = { false_positive_rate, true_positive_rate, thresholds };
    gd_status status = clear(who, r, 3, out);
    if (status != GD_OK)
        return status;
    size_t count;
    double *block = NULL, *values[MOST_COLUMNS];
    step *steps = steps_of(who, r, true, &count);
    if (!steps || !make_columns(count + 1, 3, &block, values)) {
        gd_free(steps);
        return gd_error_last();
    }
    step all = steps[count - 1];
    values[0][0] = values[1][0] = 0.0;
    values[2][0] = INFINITY;
    for (size_t i = 0; i < count; i++) {
        values[0][i + 1] = (double)steps[i].negatives / (double)all.negatives;
        values[1][i + 1] = (double)steps[i].positives / (double)all.positives;
        values[2][i + 1] = steps[i].threshold;
    }
    status = give(r, 3, values, (size_t[]){ count + 1, count + 1, count + 1 }, out);
    gd_free(steps);
    gd_free(block);
    return status;
}

gd_status gd_ranking_precision_recall(const gd_ranking *r, gd_tensor **precision,
                                      gd_tensor **recall, gd_tensor **thresholds)
{
    static const char who[] = "gd_ranking_precision_recall";
    gd_tensor **const out[] = { precision, recall, thresholds };
    gd_status status = clear(who, r, 3, out);
    if (status != GD_OK)
        return status;
    size_t count;
    double *block = NULL, *values[MOST_COLUMNS];
    step *steps = steps_of(who, r, false, &count);
    if (!steps || !make_columns(count + 1, 3, &block, values)) {
        gd_free(steps);
        return gd_error_last();
    }
    for (size_t i = 0; i < count; i++) {
        step s = steps[count - 1 - i];
        values[0][i] = precision_of(s);
        values[1][i] = (double)s.positives / (double)steps[count - 1].positives;
        values[2][i] = s.threshold;
    }
    values[0][count] = 1.0;
    values[1][count] = 0.0;
    status = give(r, 3, values, (size_t[]){ count + 1, count + 1, count }, out);
    gd_free(steps);
    gd_free(block);
    return status;
}

gd_status gd_ranking_calibration(const gd_ranking *r, int64_t bins, gd_tensor **predicted,
                                 gd_tensor **observed)
{
    static const char who[] = "gd_ranking_calibration";
    gd_tensor **const out[] = { predicted, observed };
    gd_status status = clear(who, r, 2, out);
    if (status != GD_OK)
        return status;
    if (bins < 1 || bins > 65536 || r->count == 0)
        return gd_fail(r->count ? GD_ERR_INVALID : GD_ERR_STATE, "%s: %lld bins, %zu samples", who,
                       (long long)bins, r->count);
    double *block, *values[MOST_COLUMNS]; /* sums of scores and positives, counts */
    if (!make_columns((size_t)bins, 3, &block, values))
        return GD_ERR_MEMORY;
    memset(block, 0, (size_t)bins * 3 * sizeof *block);
    for (size_t i = 0; status == GD_OK && i < r->count; i++) {
        double score = r->samples[i].score;
        if (!(score >= 0 && score <= 1)) {
            status = gd_fail(GD_ERR_INVALID, "%s: a score is %g, and no probability", who, score);
            break;
        }
        int64_t bin = (int64_t)ceil(score * (double)bins) - 1; /* (low, high], the first with 0 */
        while (bin > 0 && score <= (double)bin / (double)bins)
            bin--;
        while (bin + 1 < bins && score > (double)(bin + 1) / (double)bins)
            bin++;
        bin = bin < 0 ? 0 : bin;
        values[0][bin] += score;
        values[1][bin] += r->samples[i].positive;
        values[2][bin] += 1;
    }
    size_t used = 0;
    for (int64_t i = 0; i < bins; i++) {
        if (values[2][i] == 0)
            continue;
        values[0][used] = values[0][i] / values[2][i];
        values[1][used++] = values[1][i] / values[2][i];
    }
    if (status == GD_OK)
        status = give(r, 2, values, (size_t[]){ used, used }, out);
    gd_free(block);
    return status;
}
