/* tests/test_metrics.c: metrics over batches against scikit-learn (goldens/metrics.h), eagerly and
 * compiled; what they refuse. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "support/context.h"

#include "goldens/metrics.h"

#define assert_close(got, golden) assert_true(fabs((got) - (golden)) <= 1e-6 * (1 + fabs(golden)))

/* All metrics, fed by one function body. */
typedef struct all {
    gd_confusion *confusion;
    gd_regression *regression;
    gd_running *top[2];
} all;

static all open_all(gd_context *gd)
{
    return (all){ gd_confusion_create(gd, CLASSES),
                  gd_regression_create(gd),
                  { gd_running_create(gd), gd_running_create(gd) } };
}

/* in: logits, truth, predictions, values */
static gd_tensor *add_batch(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    all *a = user;
    int64_t samples = gd_tensor_shape(in[0]).dim[0];
    bool ok = gd_confusion_add(a->confusion, in[0], in[1]) == GD_OK &&
              gd_regression_add(a->regression, in[2], in[3]) == GD_OK &&
              gd_running_add(a->top[0], gd_top_k_accuracy(in[0], in[1], 2), samples) == GD_OK &&
              gd_running_add(a->top[1], gd_top_k_accuracy(in[0], in[1], 3), samples) == GD_OK;
    return ok ? gd_mul_scalar(in[2], 1.0) : NULL;
}

/* Batches of 16, the last smaller. */
static void add_all(gd_context *gd, all *a, gd_mode mode)
{
    gd_function *f = gd_compile(gd, add_batch, a, .mode = mode);
    for (int64_t i = 0; i < SAMPLES; i += 16) {
        int64_t n = SAMPLES - i < 16 ? SAMPLES - i : 16;
        gd_tensor *in[4] = { gd_from_host(gd, GD_SHAPE(n, CLASSES), GD_F32, logits + i * CLASSES),
                             gd_from_host(gd, GD_SHAPE(n), GD_I64, truth + i),
                             gd_from_host(gd, GD_SHAPE(n), GD_F32, predictions + i),
                             gd_from_host(gd, GD_SHAPE(n), GD_F32, values + i) };
        if (!gd_call(f, 4, in))
            fail_msg("%s", gd_error_message());
    }
    gd_function_release(f);
}

static void metrics_equal_scikit_learn(void **state)
{
    all a = open_all(*state);
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++) {
        add_all(*state, &a, (gd_mode)mode);
        for (int64_t t = 0; t < CLASSES; t++)
            for (int64_t p = 0; p < CLASSES; p++)
                assert_int_equal(gd_confusion_count(a.confusion, t, p),
                                 confusions[t * CLASSES + p]);
        gd_class_scores s = gd_confusion_score(a.confusion, GD_AVERAGE_MICRO);
        assert_close(s.precision, GOLDEN_accuracy);
        assert_close(s.recall, GOLDEN_accuracy);
        assert_close(s.f1, GOLDEN_accuracy);
        assert_int_equal(s.support, SAMPLES);
        s = gd_confusion_score(a.confusion, GD_AVERAGE_MACRO);
        assert_close(s.precision, GOLDEN_macro_precision);
        assert_close(s.recall, GOLDEN_macro_recall);
        assert_close(s.f1, GOLDEN_macro_f1);
        s = gd_confusion_score(a.confusion, GD_AVERAGE_WEIGHTED);
        assert_close(s.precision, GOLDEN_weighted_precision);
        assert_close(s.recall, GOLDEN_weighted_recall);
        assert_close(s.f1, GOLDEN_weighted_f1);
        s = gd_confusion_class(a.confusion, 2);
        assert_close(s.precision, GOLDEN_precision_2);
        assert_close(s.recall, GOLDEN_recall_2);
        assert_close(s.f1, GOLDEN_f1_2);
        s = gd_confusion_class(a.confusion, 5);
        assert_true(s.precision == 0 && s.recall == 0 && s.f1 == 0 && s.support == 0);
        gd_regression_scores r = gd_regression_score(a.regression);
        assert_close(r.mae, GOLDEN_mae);
        assert_close(r.mse, GOLDEN_mse);
        assert_close(r.rmse, GOLDEN_rmse);
        assert_close(r.r2, GOLDEN_r2);
        assert_int_equal(r.count, SAMPLES);
        assert_close(gd_running_mean(a.top[0]), GOLDEN_top_2);
        assert_close(gd_running_mean(a.top[1]), GOLDEN_top_3);
        assert_int_equal(gd_confusion_reset(a.confusion), GD_OK);
        assert_int_equal(gd_regression_reset(a.regression), GD_OK);
        assert_int_equal(gd_running_reset(a.top[0]), GD_OK);
        assert_int_equal(gd_running_reset(a.top[1]), GD_OK);
        assert_true(isnan(gd_running_mean(a.top[0])));
        expect_error(GD_ERR_STATE, "gd_running_mean: nothing was added");
    }
    gd_confusion_release(a.confusion);
    gd_regression_release(a.regression);
    gd_running_release(a.top[0]);
}

static void the_area_under_the_curve_equals_scikit_learn(void **state)
{
    gd_ranking *r = gd_ranking_create(*state);
    for (int64_t i = 0; i < SAMPLES; i += 20)
        assert_int_equal(gd_ranking_add(r, gd_from_host(*state, GD_SHAPE(20), GD_F32, score + i),
                                        gd_from_host(*state, GD_SHAPE(20), GD_I64, positive + i)),
                         GD_OK);
    assert_close(gd_ranking_auc(r), GOLDEN_auc);
    gd_ranking_reset(r);
    assert_true(isnan(gd_ranking_auc(r)));
    expect_error(GD_ERR_STATE, "gd_ranking_auc: 0 positives and 0 negatives");
    gd_tensor *ordered = gd_arange(*state, 0, 9, 1, GD_F32);
    gd_tensor *above = gd_gt(ordered, gd_scalar(*state, 3, GD_F32));
    assert_int_equal(gd_ranking_add(r, ordered, above), GD_OK);
    assert_true(gd_ranking_auc(r) == 1);
    assert_int_equal(gd_ranking_add(r, gd_neg(ordered), above), GD_OK);
    gd_ranking_release(r);
}

#define assert_column(tensor, golden)                                                  \
    do {                                                                               \
        enum { POINTS = sizeof(golden) / sizeof *(golden) };                           \
        double got[POINTS];                                                            \
        assert_int_equal(gd_tensor_count(tensor), POINTS);                             \
        assert_int_equal(gd_tensor_read(tensor, got, sizeof got), GD_OK);              \
        for (int i = 0; i < POINTS; i++)                                               \
            assert_true(got[i] == (golden)[i] || fabs(got[i] - (golden)[i]) <= 1e-12); \
    } while (0)

static gd_ranking *ranked(gd_context *gd)
{
    gd_ranking *r = gd_ranking_create(gd);
    assert_int_equal(gd_ranking_add(r, gd_from_host(gd, GD_SHAPE(SAMPLES), GD_F32, score),
                                    gd_from_host(gd, GD_SHAPE(SAMPLES), GD_I64, positive)),
                     GD_OK);
    return r;
}

static void curves_equal_scikit_learn(void **state)
{
    gd_ranking *r = ranked(*state);
    gd_tensor *x, *y, *at;
    assert_int_equal(gd_ranking_roc(r, &x, &y, &at), GD_OK);
    assert_column(x, golden_roc_x);
    assert_column(y, golden_roc_y);
    assert_column(at, golden_roc_at);
    assert_int_equal(gd_ranking_precision_recall(r, &x, &y, &at), GD_OK);
    assert_column(x, golden_precision);
    assert_column(y, golden_recall);
    assert_column(at, golden_recall_at);
    assert_int_equal(gd_ranking_calibration(r, 7, &x, &y), GD_OK);
    assert_column(x, golden_predicted_mean);
    assert_column(y, golden_observed);
    assert_close(gd_ranking_average_precision(r), GOLDEN_average_precision);
    assert_int_equal(gd_ranking_calibration(r, 0, &x, &y), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "gd_ranking_calibration: 0 bins");
    assert_null(x);
    gd_ranking_release(r);
}

static void curves_need_both_kinds(void **state)
{
    gd_ranking *r = gd_ranking_create(*state);
    gd_tensor *x, *y, *at, *none = gd_full(*state, GD_SHAPE(3), 0, GD_BOOL),
                           *scores = gd_arange(*state, 0, 3, 1, GD_F32);
    assert_int_equal(gd_ranking_calibration(r, 5, &x, &y), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "0 samples");
    assert_int_equal(gd_ranking_add(r, scores, none), GD_OK);
    assert_int_equal(gd_ranking_roc(r, &x, &y, &at), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "gd_ranking_roc: 0 positives and 3 negatives");
    assert_true(!x && !y && !at);
    assert_int_equal(gd_ranking_precision_recall(r, &x, &y, &at), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "gd_ranking_precision_recall: 0 positives");
    assert_true(isnan(gd_ranking_average_precision(r)));
    expect_error(GD_ERR_STATE, "gd_ranking_average_precision: 0 positives");
    assert_int_equal(gd_ranking_calibration(r, 5, &x, &y), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "a score is 2, and no probability");
    gd_ranking_reset(r);
    assert_int_equal(gd_ranking_add(r, scores, gd_logical_not(none)), GD_OK);
    assert_true(gd_ranking_average_precision(r) == 1); /* no negatives are needed */
    assert_int_equal(gd_ranking_roc(r, &x, &y, NULL), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "an argument is NULL");
    gd_ranking_release(r);
}

/* e^(mean of the losses of 3 and 5 samples) */
static void perplexity_weighs_batches_by_size(void **state)
{
    gd_running *r = gd_running_create(*state);
    assert_int_equal(gd_running_add(r, gd_scalar(*state, 2, GD_F32), 3), GD_OK);
    assert_int_equal(gd_running_add(r, gd_scalar(*state, 1, GD_F32), 5), GD_OK);
    assert_true(gd_running_mean(r) == 11.0 / 8.0);
    assert_close(gd_running_perplexity(r), exp(11.0 / 8.0));
}

/* Of equal logits the first counts; NaN is nobody's answer. */
static void top_k_takes_the_first_of_equals(void **state)
{
    const float rows[12] = { 1, 1, 1, 0, 0, 2, 2, 1, NAN, 1, 0, 0 };
    const int64_t at[3] = { 1, 2, 0 };
    gd_tensor *x = gd_from_host(*state, GD_SHAPE(3, 4), GD_F32, rows);
    gd_tensor *y = gd_from_host(*state, GD_SHAPE(3), GD_I64, at);
    assert_true(gd_item(gd_top_k_accuracy(x, y, 1)) == 0);
    assert_close(gd_item(gd_top_k_accuracy(x, y, 2)), 2.0 / 3.0);
    assert_close(gd_item(gd_top_k_accuracy(x, y, 4)), 2.0 / 3.0);
}

static gd_tensor *rank_in_a_trace(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_ranking_add(user, in[0], in[0]) == GD_OK ? in[0] : NULL;
}

static void misuse_is_an_error(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(4, 3), GD_F32), *y = gd_zeros(gd, GD_SHAPE(4), GD_I64);
    assert_null(gd_confusion_create(gd, 0));
    expect_error(GD_ERR_INVALID, "0 classes");
    gd_confusion *c = gd_confusion_create(gd, 3);
    assert_true(isnan(gd_confusion_score(c, GD_AVERAGE_MACRO).f1));
    expect_error(GD_ERR_STATE, "nothing was added");
    assert_true(gd_confusion_add(c, x, gd_add_scalar(y, 3)) || gd_synchronize(gd));
    expect_error(GD_ERR_INVALID, "out of range");
    assert_true(gd_confusion_add(c, gd_add_scalar(y, 3), y) || gd_synchronize(gd));
    expect_error(GD_ERR_INVALID, "out of range");
    assert_int_equal(gd_confusion_add(c, x, gd_slice(y, 0, 0, 3, 1)), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "gd_confusion_add");
    assert_int_equal(gd_confusion_add(c, x, x), GD_ERR_DTYPE);
    expect_error(GD_ERR_DTYPE, "not integers");
    assert_int_equal(gd_confusion_add(c, NULL, y), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "NULL");
    assert_int_equal(gd_confusion_count(c, 3, 0), -1);
    expect_error(GD_ERR_INVALID, "no class 3 of 3");
    assert_true(isnan(gd_confusion_class(c, -1).f1));
    expect_error(GD_ERR_INVALID, "no class -1");
    assert_null(gd_top_k_accuracy(x, y, 0));
    expect_error(GD_ERR_INVALID, "k is 0");
    assert_null(gd_top_k_accuracy(x, x, 1));
    expect_error(GD_ERR_DTYPE, "gd_top_k_accuracy");
    gd_regression *r = gd_regression_create(gd);
    assert_int_equal(gd_regression_add(r, x, y), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "gd_regression_add");
    assert_true(isnan(gd_regression_score(r).r2));
    expect_error(GD_ERR_STATE, "nothing was added");
    assert_int_equal(gd_regression_add(r, x, x), GD_OK);
    gd_regression_scores scores = gd_regression_score(r);
    assert_true(scores.mae == 0 && isnan(scores.r2)); /* y does not vary */
    gd_ranking *ranking = gd_ranking_create(gd);
    assert_int_equal(gd_ranking_add(ranking, x, y), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "gd_ranking_add");
    assert_int_equal(gd_ranking_add(ranking, gd_full(gd, GD_SHAPE(4), NAN, GD_F32), y),
                     GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "is NaN");
    gd_function *f = gd_compile(gd, rank_in_a_trace, ranking);
    assert_null(gd_call(f, 1, &x));
    assert_int_equal(gd_error_code(), GD_ERR_STATE);
    gd_error_clear();
    gd_running *running = gd_running_create(gd);
    assert_int_equal(gd_running_add(running, x, 4), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "one number");
    assert_null(gd_confusion_create(NULL, 3));
    assert_null(gd_ranking_create(NULL));
    gd_error_clear();
}

/* ---- out of memory, at every allocation in turn ---- */

static bool everything(int unused)
{
    (void)unused;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    all a = open_all(gd);
    gd_ranking *r = gd_ranking_create(gd);
    gd_tensor *x = gd ? gd_ones(gd, GD_SHAPE(4, CLASSES), GD_F32) : NULL;
    gd_tensor *y = gd ? gd_zeros(gd, GD_SHAPE(4), GD_I64) : NULL;
    gd_tensor *v = gd ? gd_arange(gd, 0, 4, 1, GD_F32) : NULL;
    bool ok = a.confusion && a.regression && a.top[0] && a.top[1] && r && x && y && v &&
              add_batch(&a, 4, (gd_tensor *[]){ x, y, v, v }) &&
              gd_ranking_add(r, v, gd_gt(v, gd_scalar(gd, 1, GD_F32))) == GD_OK &&
              gd_ranking_auc(r) == 1 && gd_confusion_count(a.confusion, 0, 0) == 4 &&
              gd_confusion_score(a.confusion, GD_AVERAGE_MACRO).f1 == 1 &&
              gd_confusion_reset(a.confusion) == GD_OK;
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    fail_every_allocation(everything, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(metrics_equal_scikit_learn),
        context_test(the_area_under_the_curve_equals_scikit_learn),
        context_test(curves_equal_scikit_learn),
        context_test(curves_need_both_kinds),
        context_test(perplexity_weighs_batches_by_size),
        context_test(top_k_takes_the_first_of_equals),
        context_test(misuse_is_an_error),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
