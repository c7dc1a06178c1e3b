/* tests/test_fit.c: what gd_fit does beside training: metrics, accumulation, validation, early
 * stopping, averages, checkpoints, the search for NaN; models as data, and prediction. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/folder.h"

enum { SAMPLES = 22, IN = 3 };

/* x [3], y [1] = 2 x0 - x1 + 1, and the class of its sign. */
static gd_dataset *numbers(gd_context *gd)
{
    static float x[SAMPLES * IN], y[SAMPLES];
    static int64_t sign[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < IN; k++)
            x[i * IN + k] = (float)((i * 7 + k * 5) % 13) / 6.5f - 1.0f;
        y[i] = 2.0f * x[i * IN] - x[i * IN + 1] + 1.0f;
        sign[i] = y[i] > 1.0f;
    }
    const gd_field fields[] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(IN) },
        { GD_FIELD_DEFAULTS, .name = "y", .shape = GD_SHAPE(1) },
        { GD_FIELD_DEFAULTS, .name = "sign", .dtype = GD_I64, .classes = 2 },
    };
    const void *arrays[] = { x, y, sign };
    gd_dataset *d = gd_dataset_from_arrays(gd, SAMPLES, 3, fields, arrays);
    assert_non_null(d);
    return d;
}

typedef struct trainee {
    gd_module *module;
    double factor; /* of the loss */
    bool takes_log;
} trainee;

static gd_tensor *predicted(const trainee *t, gd_tensor *x)
{
    gd_tensor *h = gd_tanh(gd_nn_linear(t->module, "fc", x, 4));
    return gd_nn_linear(t->module, "out", h, 1);
}

static gd_tensor *objective(void *user, const gd_objective_call *call)
{
    const trainee *t = user;
    gd_tensor *y = predicted(t, call->tensors[0]), *truth = call->tensors[1];
    if (t->takes_log)
        y = gd_log(y);
    gd_tensor *squares = gd_square(gd_sub(y, truth));
    gd_report(call, "rmse", squares, .form = GD_METRIC_ROOT);
    gd_report(call, "r2", y, .form = GD_METRIC_R2, .truth = truth);
    gd_report(call, "mae", gd_mean(gd_abs(gd_sub(y, truth)), GD_ALL_AXES, false));
    return gd_mul_scalar(gd_mean(squares, GD_ALL_AXES, false), t->factor);
}

static trainee new_trainee(gd_context *gd)
{
    return (trainee){ .module = gd_module_create(gd, .seed = 3), .factor = 1.0 };
}

static double loss_of(const gd_metrics *m)
{
    return gd_metrics_get(m, "loss");
}

static void assert_same_parameters(const gd_module *a, const gd_module *b)
{
    assert_int_equal(gd_module_count(a), gd_module_count(b));
    for (int i = 0; i < gd_module_count(a); i++)
        assert_same_bits(gd_module_tensor(a, i), gd_module_tensor(b, i));
}

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

typedef struct watch {
    int64_t validations, improvements, last_step, stop_at;
    double lr;
    gd_fit_progress last;
} watch;

static gd_status look(void *user, const gd_fit_progress *p, bool *stop)
{
    watch *w = user;
    w->validations += p->validated;
    w->improvements += p->improved;
    assert_true(p->total_step > w->last_step);
    w->last_step = p->total_step;
    w->lr = p->lr;
    w->last = *p;
    *stop = p->total_step == w->stop_at;
    return GD_OK;
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

/* ---- going on ---- */

static gd_tensor *with_dropout(void *user, const gd_objective_call *call)
{
    gd_module *m = user;
    gd_tensor *h = gd_relu(gd_nn_linear(m, "fc", call->tensors[0], 8));
    h = gd_nn_batch_norm(m, "norm", gd_nn_dropout(m, "drop", h, 0.5));
    gd_tensor *logits = gd_nn_linear(m, "out", h, 2);
    gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), call->tensors[2]));
    return gd_cross_entropy(logits, call->tensors[2]);
}

static watch watched;

/* A training of 3 epochs, in a context of its own, until step stop_at; the whole result. */
static gd_metrics train_on(const char *run_folder, int64_t stop_at, int64_t accumulate, int workers)
{
    gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 5);
    gd_module *m = gd_module_create(gd, .seed = 3);
    gd_dataset *d = numbers(gd);
    gd_loader *l = gd_loader_create(d, .batch = 4, .shuffle = true, .seed = 2, .workers = workers);
    gd_loader *v = gd_loader_create(d, .batch = 10);
    gd_schedule schedule = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 0.05,
                             .warmup = 3 };
    gd_run *run = gd_run_open(run_folder);
    watch w = { .stop_at = stop_at };
    gd_metrics result;
    gd_status status =
        gd_fit(gd_adam(m), with_dropout, m, l, .epochs = 3, .accumulate = accumulate,
               .ema = gd_ema_create(m), .schedule = gd_schedule_follow, .schedule_user = &schedule,
               .validation = v, .validate_steps = 4, .progress = look, .progress_user = &w,
               .progress_interval = 0, .run = run, .resume = true, .result = &result);
    if (status != GD_OK)
        fail_msg("%s", gd_error_message());
    assert_int_equal(gd_run_close(run), GD_OK);
    gd_close(gd);
    watched = w;
    return result;
}

static void assert_same_files(const char *a, const char *b)
{
    char command[640];
    snprintf(command, sizeof command,
             "cmp %s/%s/checkpoints/last.safetensors %s/%s/checkpoints/last.safetensors && "
             "cmp %s/%s/checkpoints/best.safetensors %s/%s/checkpoints/best.safetensors",
             folder, a, folder, b, folder, a, folder, b);
    assert_int_equal(system(command), 0);
}

/* Stopped after any step, with any number of workers, and gone on, it ends in the same checkpoint,
 * byte for byte, and so does the best. */
static void a_stopped_training_goes_on(void **state)
{
    (void)state;
    need_json();
    for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
        char whole[96], part[96];
        snprintf(whole, sizeof whole, "%s/whole%d", folder, (int)accumulate);
        gd_metrics expected = train_on(whole, -1, accumulate, 0);
        assert_int_equal(expected.samples, SAMPLES);
        int64_t steps = accumulate == 1 ? 18 : 9;
        for (int64_t stop = 1; stop < steps; stop++) {
            snprintf(part, sizeof part, "%s/part%d_%d", folder, (int)accumulate, (int)stop);
            train_on(part, stop, accumulate, (int)(stop % 3));
            train_on(part, stop + 1, accumulate, 0); /* one step, or until the end */
            gd_metrics m = train_on(part, -1, accumulate, 1);
            assert_memory_equal(&m, &expected, sizeof m);
            assert_same_files(strrchr(whole, '/') + 1, strrchr(part, '/') + 1);
            m = train_on(part, -1, accumulate, 0); /* it is over: nothing happens but the result */
            assert_memory_equal(&m, &expected, sizeof m);
        }
    }
}

/* The samples a second are those of this process. */
static void the_rate_is_of_what_was_done_here(void **state)
{
    (void)state;
    need_json();
    char part[96];
    snprintf(part, sizeof part, "%s/rate", folder);
    train_on(part, 5, 1, 0);
    assert_true(fabs(watched.last.samples_per_second * watched.last.seconds - 20) < 1e-6);
    train_on(part, 6, 1, 0);
    assert_int_equal(watched.last.train.samples, SAMPLES);
    assert_true(fabs(watched.last.samples_per_second * watched.last.seconds - (SAMPLES - 20)) <
                1e-6);
    train_on(part, 7, 1, 0);
    assert_true(fabs(watched.last.samples_per_second * watched.last.seconds - 4) < 1e-6);
}

static void other_files_are_refused(void **state)
{
    need_json();
    trainee t = new_trainee(*state);
    gd_loader *l = gd_loader_create(numbers(*state), .batch = 8);
    char path[128];
    snprintf(path, sizeof path, "%s/other", folder);
    gd_run *run = gd_run_open(path);
    gd_optimizer *o = gd_sgd(t.module);
    assert_non_null(predicted(&t, gd_zeros(*state, GD_SHAPE(1, IN), GD_F32)));
    gd_training training = { GD_TRAINING_DEFAULTS, .optimizer = o };
    assert_int_equal(gd_run_save(run, &training, false), GD_OK);
    assert_int_equal(gd_fit(o, objective, &t, l, .run = run, .resume = true), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "no checkpoint of gd_fit");
    /* Without .resume it begins anew, and there are strings of the caller's. */
    assert_int_equal(gd_fit(o, objective, &t, l, .run = run, .metadata_count = 1,
                            .metadata = &(gd_metadata){ "config", "{}" }),
                     GD_OK);
    snprintf(path, sizeof path, "%s/other/checkpoints/last.safetensors", folder);
    gd_tensor_file *file = gd_tensor_file_open(path);
    assert_string_equal(gd_tensor_file_metadata(file, "config"), "{}");
    assert_non_null(strstr(gd_tensor_file_metadata(file, "fit"), "done 3\n"));
    gd_tensor_file_close(file);
    assert_int_equal(gd_run_close(run), GD_OK);
}

/* The position of one loader says nothing to another: other batches, another group, fewer samples. */
static void other_loaders_are_refused(void **state)
{
    need_json();
    trainee t = new_trainee(*state);
    gd_dataset *d = numbers(*state);
    gd_dataset *few = gd_dataset_subset(d, 9, (const int64_t[]){ 0, 1, 2, 3, 4, 5, 6, 7, 8 });
    gd_loader *l = gd_loader_create(d, .batch = 8), *smaller = gd_loader_create(d, .batch = 4),
              *fewer = gd_loader_create(few, .batch = 8);
    gd_optimizer *o = gd_sgd(t.module, .lr = 0.01);
    char path[128];
    snprintf(path, sizeof path, "%s/loaders", folder);
    gd_run *run = gd_run_open(path);
    assert_int_equal(gd_fit(o, objective, &t, l, .run = run), GD_OK);
    assert_int_equal(gd_fit(o, objective, &t, smaller, .run = run, .resume = true), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID,
                 "22 samples in 3 batches of 8, accumulated by 1; these are 22 in 6");
    assert_int_equal(gd_fit(o, objective, &t, fewer, .run = run, .resume = true), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "these are 9 in 2 of 8, by 1");
    assert_int_equal(gd_fit(o, objective, &t, l, .run = run, .resume = true, .accumulate = 2),
                     GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "these are 22 in 3 of 8, by 2");
    gd_dataset *part = gd_dataset_subset(d, SAMPLES, (const int64_t[SAMPLES]){ 0, 1, 2 });
    gd_loader *changed = gd_loader_create(part, .batch = 8);
    assert_int_equal(gd_fit(o, objective, &t, changed, .run = run, .resume = true, .epochs = 2),
                     GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the training data have changed since the checkpoint was saved");
    /* More epochs than there were to be. */
    assert_int_equal(gd_fit(o, objective, &t, l, .run = run, .resume = true, .precision = GD_BF16),
                     GD_ERR_INVALID);
    assert_non_null(strstr(gd_error_message(), "was trained in f32, this would be in bf16"));
    gd_error_clear();
    assert_int_equal(gd_fit(o, objective, &t, l, .precision = GD_F64), GD_ERR_DTYPE);
    gd_error_clear();
    assert_int_equal(gd_fit(o, objective, &t, l, .run = run, .resume = true, .epochs = 2), GD_OK);
    assert_int_equal(gd_loader_position(l), 6);
    assert_int_equal(gd_run_close(run), GD_OK);
}

/* ---- what is not finite ---- */

/* The loss becomes NaN in the logarithm of a number below 0: the error names the step, the op and the
 * parameter before it, and the parameters are those from before the step. */
static void the_op_that_made_a_nan_is_named(void **state)
{
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++)
        for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
            trainee t = new_trainee(*state);
            t.takes_log = true;
            gd_loader *l = gd_loader_create(numbers(*state), .batch = 8);
            gd_optimizer *o = gd_sgd(t.module, .lr = 0.1);
            gd_status status = gd_fit(o, objective, &t, l, .mode = (gd_mode)mode,
                                      .accumulate = accumulate, .epochs = 5);
            assert_int_equal(status, GD_ERR_STATE);
            /* A device whose memory is not the host's is not asked at every step. */
            expect_error(GD_ERR_STATE, test_device_is_host()
                                           ? "the loss of step 1, in epoch 1, is nan; with .blame"
                                           : ", in epoch 1, is nan, or became so before");
            t.module = gd_module_create(*state, .seed = 3);
            assert_non_null(predicted(&t, gd_zeros(*state, GD_SHAPE(1, IN), GD_F32)));
            gd_module *fresh = gd_module_create(*state, .seed = 3);
            trainee same = { .module = fresh };
            assert_non_null(predicted(&same, gd_zeros(*state, GD_SHAPE(1, IN), GD_F32)));
            o = gd_sgd(t.module, .lr = 0.1);
            status = gd_fit(o, objective, &t, l, .mode = (gd_mode)mode, .accumulate = accumulate,
                            .blame = true);
            assert_int_equal(status, GD_ERR_STATE);
            assert_non_null(strstr(gd_error_message(), "behind \"out.bias\""));
            expect_error(GD_ERR_STATE, "\"log\" of [8, 1] makes nan of numbers in -");
            assert_same_parameters(t.module, fresh);
        }
}

static void steps_that_go_too_far_are_told(void **state)
{
    if (!test_device_is_host())
        skip();
    trainee t = new_trainee(*state);
    t.factor = 1e30;
    gd_loader *l = gd_loader_create(numbers(*state), .batch = 8);
    gd_optimizer *o = gd_sgd(t.module, .lr = 1e30);
    assert_int_equal(gd_fit(o, objective, &t, l, .epochs = 5, .blame = true), GD_ERR_STATE);
    assert_non_null(strstr(gd_error_message(), "the loss of step 2"));
    expect_error(GD_ERR_STATE, "was not finite before it");
}

/* A loss that is infinite from batch `breaks_at` on. */
typedef struct fragile {
    gd_module *module;
    gd_tensor *batches; /* [] so far */
    double breaks_at;
} fragile;

static gd_tensor *fragile_objective(void *user, const gd_objective_call *call)
{
    const fragile *t = user;
    gd_tensor *x = gd_nn_dropout(t->module, "drop", call->tensors[0], 0.5);
    gd_tensor *y = gd_nn_linear(t->module, "fc", x, 1);
    gd_tensor *error = gd_mean(gd_square(gd_sub(y, call->tensors[1])), GD_ALL_AXES, false);
    gd_tensor *left = gd_cast(gd_add_scalar(gd_neg(t->batches), t->breaks_at), GD_F32);
    left = gd_add(gd_maximum(left, gd_zeros_like(left)), gd_mul_scalar(error, 0.0));
    gd_assign(t->batches, gd_add_scalar(t->batches, 1.0));
    return gd_add(error, gd_abs(gd_mul_scalar(gd_log(left), 1e-30)));
}

/* Steps of Adam with dropout, of which the last cannot be done: its error is told, and everything is left
 * as `steps` steps leave it. */
static void break_after(gd_context *gd, int64_t steps, int64_t accumulate, gd_mode mode)
{
    char paths[2][112], compare[256];
    /* Of two batches the second; the last step of an epoch of 11 has one. */
    const int64_t last = accumulate == 1 ? steps : steps / 6 * 11 + steps % 6 * 2 + 1;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(gd_seed(gd, 5), GD_OK);
        fragile t = { .module = gd_module_create(gd, .seed = 3),
                      .batches = gd_state(gd, GD_SCALAR, 0.0, GD_F64),
                      .breaks_at = k ? 1e9 : (double)last };
        gd_loader *l = gd_loader_create(numbers(gd), .batch = 2, .shuffle = true, .seed = 2);
        gd_optimizer *o = gd_adam(t.module, .lr = 0.01);
        gd_schedule schedule = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 0.01 };
        const gd_named_tensor more = { "batches", t.batches };
        watch w = { .stop_at = k ? steps : -1 };
        assert_int_equal(gd_fit(o, fragile_objective, &t, l, .steps = 300, .accumulate = accumulate,
                                .mode = mode, .blame = true, .tensor_count = 1, .tensors = &more,
                                .schedule = gd_schedule_follow, .schedule_user = &schedule,
                                .progress = look, .progress_user = &w, .progress_interval = 0),
                         k ? GD_OK : GD_ERR_STATE);
        char step[96];
        snprintf(step, sizeof step, "the loss of step %lld, in epoch %lld,", (long long)steps + 1,
                 (long long)(steps / (accumulate == 1 ? 11 : 6) + 1));
        if (k == 0) {
            assert_non_null(strstr(gd_error_message(), step));
            expect_error(GD_ERR_STATE, "\"log\" of [] makes -inf of numbers in 0 ... 0");
        }
        snprintf(paths[k], sizeof paths[k], "%s/%d.safetensors", folder, k);
        const gd_training training = { GD_TRAINING_DEFAULTS, .optimizer = o, .tensor_count = 1,
                                       .tensors = &more };
        assert_int_equal(gd_optimizer_set_lr(o, 0.01), GD_OK);
        assert_int_equal(gd_training_save(&training, paths[k]), GD_OK);
        gd_release(t.batches);
    }
    snprintf(compare, sizeof compare, "cmp %s %s", paths[0], paths[1]);
    assert_int_equal(system(compare), 0);
}

static void blame_leaves_all_as_it_was(void **state)
{
    static const int64_t steps[] = { 1, 63, 64, 65, 100 };
    need_json();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        break_after(*state, steps[i], 1, GD_MODE_COMPILED);
    break_after(*state, 70, 2, GD_MODE_COMPILED);
    break_after(*state, 3, 2, GD_MODE_COMPILED);
    break_after(*state, 67, 1, GD_MODE_EAGER);
    break_after(*state, 5, 1, GD_MODE_LAZY);
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

/* ---- models as data ---- */

static void models_are_trained_and_predict(void **state)
{
    need_json();
    gd_model *model = gd_model_load_json(
        *state,
        "{\"input\": [3], \"layers\": [{\"name\": \"fc\", \"type\": \"linear\", \"units\": 8,"
        "\"activation\": \"tanh\"}, {\"name\": \"drop\", \"type\": \"dropout\", \"dropout\": 0.1},"
        "{\"name\": \"y\", \"type\": \"linear\", \"units\": 1},"
        "{\"name\": \"sign\", \"type\": \"linear\", \"units\": 2, \"inputs\": [\"drop\"]}],"
        "\"outputs\": [\"y\", \"sign\"], \"losses\": [{\"type\": \"mse\", \"outputs\": [\"y\"]},"
        "{\"type\": \"cross_entropy\", \"outputs\": [\"sign\"]}]}",
        .seed = 1);
    if (!model)
        fail_msg("%s", gd_error_message());
    gd_module *m = gd_model_module(model);
    gd_dataset *d = numbers(*state);
    gd_loader *l = gd_loader_create(d, .batch = 5, .shuffle = true);
    gd_metrics metrics;
    assert_int_equal(gd_fit(gd_adam(m, .lr = 0.02), gd_model_objective, model, l, .epochs = 60,
                            .validation = l, .result = &metrics),
                     GD_OK);
    assert_int_equal(metrics.count, 4);
    assert_true(gd_metrics_get(&metrics, "y/r2") > 0.9);
    assert_true(gd_metrics_get(&metrics, "y/mae") < 0.3);
    assert_true(gd_metrics_get(&metrics, "sign/accuracy") > 0.85);

    gd_predictor *p = gd_predictor_create(model);
    gd_loader *in_order = gd_loader_create(d, .batch = 5);
    gd_tensor *all[3], *one[2], *of_loader[2];
    assert_int_equal(gd_dataset_get(d, 0, SAMPLES, all), GD_OK);
    assert_int_equal(gd_predict_loader(p, in_order, 2, of_loader), GD_OK);
    assert_int_equal(gd_tensor_shape(of_loader[1]).dim[0], SAMPLES);
    assert_int_equal(gd_tensor_shape(of_loader[1]).dim[1], 2);
    for (int64_t i = 0; i < SAMPLES; i++) {
        gd_tensor *x = gd_slice(all[0], 0, i, i + 1, 1);
        assert_int_equal(gd_predict(p, 1, &x, 2, one), GD_OK);
        for (int k = 0; k < 2; k++) {
            gd_tensor *apart = gd_abs(gd_sub(one[k], gd_slice(of_loader[k], 0, i, i + 1, 1)));
            assert_true(gd_item(gd_max(apart, GD_ALL_AXES, false)) < 1e-6);
        }
    }
    assert_true(gd_module_is_training(m));
    assert_int_equal(gd_predict(p, 1, all, 1, one), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the model has 2 outputs, not 1");
    gd_predictor_release(p);
    const gd_field field = { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(3) };
    const float values[6] = { 1 };
    const void *array = values;
    gd_loader *few = gd_loader_create(gd_dataset_from_arrays(*state, 2, 1, &field, &array));
    assert_int_equal(gd_fit(gd_sgd(m), gd_model_objective, model, few), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "batches have 1 tensors; the model has 1 inputs and its losses 2");
}

/* ---- padded sequences ---- */

static const char *const step_losses[] = { "cross_entropy", "mse", "bce_with_logits" };

/* Sequences of 6 steps of which the first has 2 and the second 5, the rest being `padding`. */
static gd_dataset *sequences(gd_context *gd, bool classes, float padding)
{
    static float x[2][6][2], y[2][6][1];
    static int64_t lengths[2] = { 2, 5 }, class[2][6];
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < 6; t++) {
            bool there = t < lengths[i];
            x[i][t][0] = there ? (float)(i + t) / 4 : padding;
            x[i][t][1] = there ? (float)(i * t) / 3 - 1 : -padding;
            y[i][t][0] = there ? (float)((i + t) % 2) : padding;
            class[i][t] = there ? (i + t) % 3 : (int64_t)padding % 3;
        }
    const gd_field fields[] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(6, 2) },
        { GD_FIELD_DEFAULTS, .name = "n", .dtype = GD_I64 },
        { GD_FIELD_DEFAULTS, .name = "y", .shape = classes ? GD_SHAPE(6) : GD_SHAPE(6, 1),
          .dtype = classes ? GD_I64 : GD_F32 },
    };
    const void *const arrays[] = { x, lengths, classes ? (const void *)class : (const void *)y };
    gd_dataset *d = gd_dataset_from_arrays(gd, 2, 3, fields, arrays);
    assert_non_null(d);
    return d;
}

/* Whatever stands behind the ends of sequences, loss, metrics and the steps of a training are the same, and
 * the loss is that of the steps that are there. */
static void padding_counts_for_nothing(void **state)
{
    gd_context *gd = *state;
    need_json();
    for (int k = 0; k < 3; k++) {
        gd_metrics metrics[2];
        gd_model *models[2];
        bool classes = k == 0;
        for (int p = 0; p < 2; p++) {
            char json[512];
            snprintf(
                json, sizeof json,
                "{ \"inputs\": [ { \"name\": \"x\", \"shape\": [6, 2] }, { \"name\": \"n\", "
                "\"shape\": [], \"dtype\": \"i64\" } ], \"layers\": [ { \"name\": \"rnn\", "
                "\"type\": "
                "\"gru\", \"units\": 4, \"lengths\": \"n\", \"inputs\": [\"x\"] }, { \"name\": "
                "\"out\", \"type\": \"linear\", \"units\": %d } ], \"loss\": { \"type\": \"%s\" } "
                "}",
                classes ? 3 : 1, step_losses[k]);
            models[p] = gd_model_load_json(gd, json, .seed = 4);
            assert_non_null(models[p]);
            gd_loader *l = gd_loader_create(sequences(gd, classes, p ? 7.0f : 100.0f), .batch = 2);
            assert_int_equal(gd_fit(gd_sgd(gd_model_module(models[p]), .lr = 0.1),
                                    gd_model_objective, models[p], l, .steps = 4,
                                    .result = &metrics[p]),
                             GD_OK);
        }
        assert_same_parameters(gd_model_module(models[0]), gd_model_module(models[1]));
        assert_int_equal(metrics[0].count, 2);
        assert_string_equal(metrics[0].list[1].name, k == 1 ? "mae" : "accuracy");
        for (int i = 0; i < 2; i++)
            assert_true(metrics[0].list[i].value == metrics[1].list[i].value);
        /* The mean of 7 steps. */
        gd_tensor *in[3], *outputs[1];
        assert_int_equal(gd_dataset_get(sequences(gd, classes, 7.0f), 0, 2, in), GD_OK);
        assert_int_equal(gd_model_forward_all(models[0], 2, in, 1, outputs), GD_OK);
        double sum = 0;
        for (int i = 0; i < 2; i++) {
            int64_t n = i == 0 ? 2 : 5;
            gd_tensor *y = gd_slice(gd_slice(outputs[0], 0, i, i + 1, 1), 1, 0, n, 1);
            gd_tensor *truth = gd_slice(gd_slice(in[2], 0, i, i + 1, 1), 1, 0, n, 1);
            sum += (double)n * gd_item(k == 0   ? gd_cross_entropy(y, truth)
                                       : k == 1 ? gd_mse(y, truth)
                                                : gd_bce_with_logits(y, truth));
        }
        gd_tensor *loss = gd_model_loss_padded(models[0], 1, outputs, 1, &in[2], in[1]);
        assert_true(fabs(gd_item(loss) - sum / 7) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(metrics_are_over_all_samples),
        context_test(bad_reports_are_errors),
        context_test(accumulated_batches_are_as_one),
        context_test(groups_begin_where_the_loader_stands),
        context_test(training_ends_without_improvement),
        context_test(averages_are_validated),
        context_test(numbers_that_are_no_status_are_told),
        cmocka_unit_test_setup_teardown(a_stopped_training_goes_on, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_rate_is_of_what_was_done_here, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(other_files_are_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(other_loaders_are_refused, make_folder, remove_folder),
        context_test(the_op_that_made_a_nan_is_named),
        context_test(steps_that_go_too_far_are_told),
        cmocka_unit_test_setup_teardown(blame_leaves_all_as_it_was, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(late_errors_come_early, make_folder, remove_folder),
        context_test(parts_of_steps_are_timed),
        context_test(validations_are_told_of),
        context_test(a_rate_is_found_and_nothing_is_changed),
        context_test(rates_are_found_as_others_find_them),
        context_test(models_are_trained_and_predict),
        context_test(padding_counts_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
