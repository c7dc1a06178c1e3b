/* train/ranking.c: the area under the ROC curve. It depends on the order of all scores, so they are
 * kept; Hanley, McNeil 1982: it is the statistic of Mann and Whitney. */
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

static int by_score(const void *a, const void *b)
{
    double x = ((const sample *)a)->score, y = ((const sample *)b)->score;
    return (x > y) - (x < y);
}

double gd_ranking_auc(const gd_ranking *r)
{
    double positives = 0.0;
    for (size_t i = 0; r && i < r->count; i++)
        positives += r->samples[i].positive;
    double negatives = r ? (double)r->count - positives : 0.0;
    if (positives == 0.0 || negatives == 0.0) {
        (void)gd_fail(GD_ERR_STATE, "gd_ranking_auc: %g positives and %g negatives", positives,
                      negatives);
        return NAN;
    }
    sample *sorted = gd_alloc(r->count * sizeof *sorted);
    if (!sorted)
        return NAN;
    memcpy(sorted, r->samples, r->count * sizeof *sorted);
    qsort(sorted, r->count, sizeof *sorted, by_score);
    double won = 0.0;   /* pairs in which the positive has the higher score */
    double below = 0.0; /* negatives with lower scores */
    for (size_t i = 0, end; i < r->count; i = end) {
        double tied[2] = { 0.0, 0.0 }; /* negatives, positives of one score */
        for (end = i; end < r->count && sorted[end].score == sorted[i].score; end++)
            tied[sorted[end].positive] += 1.0;
        won += tied[1] * (below + 0.5 * tied[0]);
        below += tied[0];
    }
    gd_free(sorted);
    return won / (positives * negatives);
}
