/* tests/test_fit.c: what gd_fit does beside training: metrics, accumulation, validation, early stopping, averages, errors
 * before the first step, times, and the search for a learning rate. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/fit.h"

/* Against the same sums by hand, over batches of which the last is smaller. */
static void metrics_are_over_all_samples(void **state)
{
    trainee t = new_trainee(*state);
    gd_dataset *d = numbers(*state);
    gd_tensor *all[3];
    assert_int_equal(gd_dataset_get(d, 0, SAMPLES, all), GD_OK);
    float y[SAMPLES], truth[SAMPLES];
    assert_int_equal(gd_tensor_read(predicted(&t, all[0]), y, sizeof y), GD_OK);
    assert_int_equal(gd_tensor_read(all[1], truth, sizeof truth), GD_OK);
    double squares = 0, absolute = 0, mean = 0, variation = 0;
    for (int i = 0; i < SAMPLES; i++) {
        squares += (y[i] - truth[i]) * (double)(y[i] - truth[i]);
        absolute += fabs((double)y[i] - (double)truth[i]);
        mean += truth[i] / (double)SAMPLES;
    }
    for (int i = 0; i < SAMPLES; i++)
        variation += (truth[i] - mean) * (truth[i] - mean);
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++) {
        gd_metrics m;
        gd_loader *l = gd_loader_create(d, .batch = 5, .shuffle = true);
        gd_batch b;
        assert_true(gd_loader_next(l, &b) && gd_loader_next(l, &b));
        assert_int_equal(gd_evaluate(t.module, objective, &t, l, &m, .mode = (gd_mode)mode), GD_OK);
        assert_int_equal(gd_loader_position(l), 2);
        assert_int_equal(m.samples, SAMPLES);
        assert_int_equal(m.count, 4);
        assert_string_equal(m.list[0].name, "loss");
        assert_true(fabs(loss_of(&m) - squares / SAMPLES) < 1e-6);
        assert_true(fabs(gd_metrics_get(&m, "rmse") - sqrt(squares / SAMPLES)) < 1e-6);
        assert_true(fabs(gd_metrics_get(&m, "mae") - absolute / SAMPLES) < 1e-6);
        assert_true(fabs(gd_metrics_get(&m, "r2") - (1 - squares / variation)) < 1e-5);
        assert_true(isnan(gd_metrics_get(&m, "nothing")));
    }
}

static gd_tensor *bad_reports(void *user, const gd_objective_call *call)
{
    const int *which = user;
    gd_tensor *x = call->tensors[0];
    static const char *const names[] = { "two words", "", "loss", "twice" };
    if (*which < 4)
        gd_report(call, names[*which], x);
    if (*which == 3)
        gd_report(call, "twice", x);
    if (*which == 4)
        gd_report(call, "r2", x, .form = GD_METRIC_R2);
    return *which == 5 ? x : gd_mean(x, GD_ALL_AXES, false);
}

static void bad_reports_are_errors(void **state)
{
    static const char *const words[] = { "no name of a metric", "no name of a metric",
                                         "reported twice",      "reported twice",
                                         "needs .truth",        "is no number" };
    gd_loader *l = gd_loader_create(numbers(*state), .batch = 5);
    gd_module *m = gd_module_create(*state);
    for (int i = 0; i < 6; i++) {
        gd_metrics metrics;
        gd_status status = gd_evaluate(m, bad_reports, &i, l, &metrics);
        assert_int_equal(status, i < 4 ? GD_ERR_INVALID : GD_ERR_SHAPE);
        expect_error(status, words[i]);
    }
}

/* Gradients of 2 batches of 4 added up are those of one of 8, the last group being smaller. */
static void accumulated_batches_are_as_one(void **state)
{
    trainee a = new_trainee(*state), b = new_trainee(*state);
    gd_dataset *d = numbers(*state);
    gd_metrics metrics[2];
    gd_loader *whole = gd_loader_create(d, .batch = 8), *parts = gd_loader_create(d, .batch = 4);
    assert_int_equal(gd_fit(gd_sgd(a.module, .lr = 0.1), objective, &a, whole, .epochs = 3,
                            .result = &metrics[0]),
                     GD_OK);
    assert_int_equal(gd_fit(gd_sgd(b.module, .lr = 0.1), objective, &b, parts, .epochs = 3,
                            .accumulate = 2, .result = &metrics[1]),
                     GD_OK);
    assert_true(fabs(loss_of(&metrics[0]) - loss_of(&metrics[1])) < 1e-6);
    for (int i = 0; i < gd_module_count(a.module); i++) {
        gd_tensor *apart =
            gd_abs(gd_sub(gd_module_tensor(a.module, i), gd_module_tensor(b.module, i)));
        assert_true(gd_item(gd_max(apart, GD_ALL_AXES, false)) < 1e-6);
    }
}

/* In f16 losses are scaled, by what the optimizer was told, 1 among it. */
static void losses_are_scaled_in_f16(void **state)
{
    gd_dataset *d = numbers(*state);
    static const double initial[] = { 0, 1, 8 };
    for (int i = 0; i < 3; i++) {
        trainee t = new_trainee(*state);
        gd_loader *l = gd_loader_create(d, .batch = 5);
        gd_optimizer *o = gd_adam(t.module, .lr = 0.01);
        if (initial[i] > 0)
            assert_int_equal(gd_optimizer_scale_losses(o, .initial = initial[i]), GD_OK);
        assert_int_equal(gd_fit(o, objective, &t, l, .epochs = 2, .precision = GD_F16), GD_OK);
        const double scale = gd_optimizer_loss_scale(o);
        if (initial[i] > 0 ? scale != initial[i] : !(scale > 1000)) /* 65536, that comes down */
            fail_msg("begun with %g, it is %g", initial[i], scale);
    }
}

/* Where the loader stands within an epoch, the small batch is not the last of a group: a batch of 2 and
 * one of 4 count as one of their 6 samples. */
static void groups_begin_where_the_loader_stands(void **state)
{
    trainee a = new_trainee(*state), b = new_trainee(*state);
    gd_dataset *d = numbers(*state);
    gd_dataset *six = gd_dataset_subset(d, 6, (const int64_t[]){ 20, 21, 0, 1, 2, 3 });
    gd_loader *whole = gd_loader_create(six, .batch = 6), *parts = gd_loader_create(d, .batch = 4);
    assert_int_equal(gd_loader_seek(parts, 5), GD_OK);
    assert_int_equal(gd_fit(gd_sgd(a.module, .lr = 0.1), objective, &a, whole), GD_OK);
    assert_int_equal(
        gd_fit(gd_sgd(b.module, .lr = 0.1), objective, &b, parts, .steps = 1, .accumulate = 2),
        GD_OK);
    for (int i = 0; i < gd_module_count(a.module); i++) {
        gd_tensor *apart =
            gd_abs(gd_sub(gd_module_tensor(a.module, i), gd_module_tensor(b.module, i)));
        assert_true(gd_item(gd_max(apart, GD_ALL_AXES, false)) < 1e-6);
    }
}

/* With a loss of 0 nothing improves after the first validation: training ends after it and
 * `patience` more, and a plateau lowers the rate. */
static void training_ends_without_improvement(void **state)
{
    trainee t = new_trainee(*state);
    gd_dataset *d = numbers(*state);
    gd_loader *l = gd_loader_create(d, .batch = 8), *v = gd_loader_create(d, .batch = 10);
    gd_optimizer *o = gd_sgd(t.module, .lr = 0.1);
    t.factor = 0.0;
    gd_plateau plateau = { GD_PLATEAU_DEFAULTS, .patience = 1, .factor = 0.5 };
    watch w = { 0 };
    assert_int_equal(gd_fit(o, objective, &t, l, .epochs = 50, .validation = v, .validate_steps = 2,
                            .patience = 2, .plateau = &plateau, .progress = look,
                            .progress_user = &w),
                     GD_OK);
    assert_int_equal(w.validations, 1 + 3);
    assert_int_equal(w.improvements, 1);
    assert_int_equal(w.last_step, 8);
    assert_true(w.lr == 0.05);
    assert_int_equal(w.last.validation.samples, SAMPLES);
    /* Of a metric of which more is better, and that is not there. */
    t.factor = 1.0;
    w = (watch){ 0 };
    assert_int_equal(gd_fit(gd_sgd(t.module, .lr = 0.05), objective, &t, l, .steps = 7,
                            .validation = v, .monitor = "r2", .rising = true, .progress = look,
                            .progress_user = &w),
                     GD_OK);
    assert_int_equal(w.last_step, 7);
    assert_int_equal(w.last.epochs, 3);
    assert_int_equal(w.validations, 3);
    assert_true(w.improvements >= 2);
    assert_int_equal(gd_fit(o, objective, &t, l, .monitor = "f1"), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "\"f1\" to monitor is not reported");
}

/* Validation is of the averages, and the parameters are what they were after it. */
static void averages_are_validated(void **state)
{
    trainee a = new_trainee(*state), b = new_trainee(*state);
    gd_dataset *d = numbers(*state);
    gd_loader *l = gd_loader_create(d, .batch = 8), *v = gd_loader_create(d, .batch = 10);
    gd_metrics with, averaged, without;
    gd_ema *ema = gd_ema_create(a.module, .decay = 0.9);
    assert_int_equal(gd_fit(gd_sgd(a.module, .lr = 0.1), objective, &a, l, .epochs = 3, .ema = ema,
                            .validation = v, .result = &with),
                     GD_OK);
    assert_int_equal(gd_loader_seek(l, 0), GD_OK);
    assert_int_equal(gd_fit(gd_sgd(b.module, .lr = 0.1), objective, &b, l, .epochs = 3,
                            .validation = v, .result = &without),
                     GD_OK);
    assert_same_parameters(a.module, b.module);
    assert_true(loss_of(&with) != loss_of(&without));
    assert_int_equal(gd_ema_swap(ema), GD_OK);
    assert_int_equal(gd_evaluate(a.module, objective, &a, v, &averaged), GD_OK);
    assert_true(loss_of(&averaged) == loss_of(&with));
}

static gd_status returns_number(void *user, const gd_fit_progress *p, bool *stop)
{
    (void)p, (void)stop;
    return (gd_status) * (const int *)user;
}

/* A callback's errno or -1 is an error that says so. */
static void numbers_that_are_no_status_are_told(void **state)
{
    trainee t = new_trainee(*state);
    gd_loader *l = gd_loader_create(numbers(*state), .batch = 8);
    for (int i = 0; i < 2; i++) {
        int number = i == 0 ? -1 : 77;
        assert_int_equal(gd_fit(gd_sgd(t.module), objective, &t, l, .progress = returns_number,
                                .progress_user = &number),
                         GD_ERR_INVALID);
        expect_error(GD_ERR_INVALID, i == 0 ? "returned -1, which is no" : "returned 77, which");
    }
}

/* ---- what would be late after an epoch ---- */

static gd_status never(void *user, const gd_fit_progress *p, bool *stop)
{
    (void)p, (void)stop;
    *(bool *)user = true;
    return GD_OK;
}

static gd_tensor *validation_alone(void *user, const gd_objective_call *call)
{
    if (!call->training)
        gd_report(call, "seen", gd_ones_like(call->tensors[0]));
    return objective(user, call);
}

static void late_errors_come_early(void **state)
{
    trainee t = new_trainee(*state);
    bool told = false;
    gd_loader *l = gd_loader_create(numbers(*state), .batch = 8),
              *v = gd_loader_create(numbers(*state), .batch = 10);
    gd_optimizer *o = gd_sgd(t.module, .lr = 0.1);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(gd_fit(o, objective, &t, l, .validation = k ? v : NULL, .monitor = "r3",
                                .progress = never, .progress_user = &told),
                         GD_ERR_INVALID);
        expect_error(GD_ERR_INVALID,
                     "\"r3\" to monitor is not reported; there are: rmse, r2, mae, loss");
        assert_false(told);
        assert_int_equal(gd_loader_position(l), k + 1);
    }
    watch w = { 0 };
    assert_int_equal(gd_fit(o, validation_alone, &t, l, .steps = 3, .validation = v,
                            .monitor = "seen", .progress = look, .progress_user = &w),
                     GD_OK);
    assert_int_equal(w.last.validation.samples, SAMPLES);
    assert_true(gd_metrics_get(&w.last.validation, "seen") == 1.0);
    static const char *const keys[] = { "model", "producer", "fit", "twice", "checksum" };
    gd_run *run = gd_run_open(folder);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const gd_metadata strings[] = { { keys[i], "a" }, { "twice", "b" } };
        int64_t before = gd_loader_position(l);
        assert_int_equal(
            gd_fit(o, objective, &t, l, .run = run, .metadata_count = 2, .metadata = strings),
            GD_ERR_INVALID);
        assert_non_null(strstr(gd_error_message(), keys[i]));
        expect_error(GD_ERR_INVALID, "is the key of");
        assert_int_equal(gd_loader_position(l), before);
    }
    assert_false(gd_run_has_checkpoint(run));
    assert_int_equal(gd_run_close(run), GD_OK);
}

/* ---- times ---- */

static gd_status note(void *user, const gd_fit_progress *p, bool *stop)
{
    (void)stop;
    if (p->epoch_done)
        *(gd_fit_progress *)user = *p;
    return GD_OK;
}

/* The parts of a step take time, and together no more than the step; what is not compiled is not known. */
static void parts_of_steps_are_timed(void **state)
{
    for (int64_t accumulate = 1; accumulate <= 2; accumulate++)
        for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++) {
            trainee t = new_trainee(*state);
            gd_loader *l = gd_loader_create(numbers(*state), .batch = 1);
            gd_fit_progress p = { 0 };
            assert_int_equal(gd_fit(gd_adam(t.module), objective, &t, l, .epochs = 2,
                                    .accumulate = accumulate, .mode = (gd_mode)mode,
                                    .ema = gd_ema_create(t.module), .validation = l,
                                    .progress = note, .progress_user = &p),
                             GD_OK);
            bool known = mode == GD_MODE_COMPILED;
            assert_true((p.forward_seconds > 0) == known && (p.backward_seconds > 0) == known &&
                        (p.update_seconds > 0) == known);
            assert_true(p.validation_seconds > 0 && p.step_seconds > 0 && p.data_seconds > 0);
            assert_true(p.step_seconds + p.data_seconds <= p.seconds);
            assert_true(p.memory >= gd_memory(*state).in_use && p.memory > 0);
        }
}

/* What is told of validations while they are under way. */
typedef struct validations {
    int calls, epochs, stop_at; /* stop_at: of calls; 0: never */
    int64_t step, steps;
    bool fails;
} validations;

static gd_status watch_validation(void *user, const gd_fit_progress *p, bool *stop)
{
    validations *v = user;
    if (p->validation_steps == 0) {
        v->epochs += p->epoch_done;
        v->step = 0;
        return GD_OK;
    }
    assert_false(p->epoch_done || p->validated || p->improved);
    assert_int_equal(p->validation_step, v->step + 1);
    v->step = p->validation_step;
    v->steps = p->validation_steps;
    *stop = ++v->calls == v->stop_at;
    return v->fails ? GD_ERR_IO : GD_OK;
}

static void validations_are_told_of(void **state)
{
    /* Not; each of 5 batches but the last; stopped, and failed, within a validation. */
    static const int calls[] = { 0, 12, 4, 1 }, epochs[] = { 3, 3, 1, 0 };
    for (int kind = 0; kind < 4; kind++) {
        trainee t = new_trainee(*state);
        gd_dataset *d = numbers(*state);
        gd_loader *l = gd_loader_create(d, .batch = 8), *v = gd_loader_create(d, .batch = 5);
        validations w = { .stop_at = kind == 2 ? 2 : 0, .fails = kind == 3 };
        gd_status status =
            gd_fit(gd_sgd(t.module, .lr = 0.01), objective, &t, l, .epochs = 3, .validation = v,
                   .progress = watch_validation, .progress_user = &w, .progress_interval = 0,
                   .validation_progress = kind > 0);
        assert_int_equal(status, kind == 3 ? GD_ERR_IO : GD_OK);
        gd_error_clear();
        assert_int_equal(w.calls, calls[kind]);
        assert_int_equal(w.epochs, epochs[kind]);
        assert_true(kind == 0 || w.steps == 5);
    }
}

/* ---- finding a learning rate ---- */

/* Small rates change nothing, large ones let the loss explode, and afterwards all is as before: the
 * next training gives the same bits. */
static void a_rate_is_found_and_nothing_is_changed(void **state)
{
    enum { STEPS = 80 };
    trainee t = new_trainee(*state), same = new_trainee(*state);
    gd_dataset *d = numbers(*state);
    gd_loader *l = gd_loader_create(d, .batch = 8, .shuffle = true),
              *k = gd_loader_create(d, .batch = 8, .shuffle = true);
    gd_optimizer *o = gd_sgd(t.module, .lr = 0.05, .momentum = 0.5),
                 *p = gd_sgd(same.module, .lr = 0.05, .momentum = 0.5);
    assert_int_equal(gd_fit(o, objective, &t, l, .steps = 2), GD_OK);
    assert_int_equal(gd_fit(p, objective, &same, k, .steps = 2), GD_OK);
    gd_lr_point points[STEPS];
    double lr;
    int64_t count =
        gd_lr_range(o, objective, &t, l, points, &lr, .from = 1e-5, .to = 100, .steps = STEPS);
    assert_true(count > 20 && count < STEPS);
    assert_true(points[0].lr == 1e-5 && lr > 0.01 && lr < 0.5);
    assert_true(gd_optimizer_lr(o) == 0.05);
    assert_int_equal(gd_loader_position(l), 2);
    assert_same_parameters(t.module, same.module);
    assert_int_equal(gd_fit(o, objective, &t, l, .steps = 3), GD_OK);
    assert_int_equal(gd_fit(p, objective, &same, k, .steps = 3), GD_OK);
    assert_same_parameters(t.module, same.module);
    assert_int_equal(gd_lr_range(o, objective, &t, l, points, NULL, .from = 0), -1);
    expect_error(GD_ERR_INVALID, "gd_lr_range");
}

static gd_tensor *bowl(void *user, const gd_objective_call *call)
{
    gd_module *m = user;
    (void)call;
    gd_tensor *w = gd_nn_linear(m, "w", gd_ones(gd_module_context(m), GD_SHAPE(1, 1), GD_F64), 1,
                                .bias = false, .init = GD_INIT_ONES);
    return gd_mean(gd_square(gd_add_scalar(w, 1.0)), GD_ALL_AXES, false);
}

/* Against the definition of fastai's and Lightning's finders, on (w + 1)^2 from w = 1: an average with
 * 0.98 of the past, divided by 1 - 0.98^n; the end at four times its least. The rate found is where it
 * falls most over a tenth of the points. */
static void rates_are_found_as_others_find_them(void **state)
{
    enum { STEPS = 100 };
    gd_module *m = gd_module_create(*state, .dtype = GD_F64);
    gd_loader *l = gd_loader_create(numbers(*state), .batch = 8);
    gd_lr_point points[STEPS];
    double found, w = 1.0, average = 0.0, smooth[STEPS], least = INFINITY, lrs[STEPS];
    int64_t count = gd_lr_range(gd_sgd(m), bowl, m, l, points, &found, .from = 1e-4, .to = 100);
    int64_t n = 0;
    while (n < STEPS) {
        lrs[n] = 1e-4 * pow(1e6, (double)n / (STEPS - 1));
        average = 0.98 * average + 0.02 * (w + 1) * (w + 1);
        smooth[n] = average / (1 - pow(0.98, (double)n + 1));
        w -= lrs[n] * 2 * (w + 1);
        least = fmin(least, smooth[n]);
        if (smooth[n++] > 4 * least)
            break;
    }
    assert_true(n > 60 && n < STEPS);
    assert_int_equal(count, n);
    for (int64_t i = 0; i < n; i++) {
        assert_true(fabs(points[i].lr / lrs[i] - 1) < 1e-9);
        assert_true(fabs(points[i].loss / smooth[i] - 1) < 1e-6);
    }
    int64_t width = n / 10 + 1, best = 2 * width;
    for (int64_t i = best; i < n; i++)
        if (smooth[i - width] - smooth[i] > smooth[best - width] - smooth[best])
            best = i;
    assert_true(fabs(found / lrs[best - width / 2] - 1) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(metrics_are_over_all_samples),
        context_test(bad_reports_are_errors),
        context_test(accumulated_batches_are_as_one),
        context_test(losses_are_scaled_in_f16),
        context_test(groups_begin_where_the_loader_stands),
        context_test(training_ends_without_improvement),
        context_test(averages_are_validated),
        context_test(numbers_that_are_no_status_are_told),
        folder_test(late_errors_come_early),
        context_test(parts_of_steps_are_timed),
        context_test(validations_are_told_of),
        context_test(a_rate_is_found_and_nothing_is_changed),
        context_test(rates_are_found_as_others_find_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
