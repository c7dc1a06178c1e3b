/* tests/test_train.c: training as a whole: the network of the main job on real MNIST, in each mode
 * and at one and two threads. */
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

#include <gradus/gradus.h>

#include "support/context.h"
#include "support/effort.h"
#include "support/data.h"

#define MNIST GD_SOURCE_DIR "/data/mnist"

/* ---- the network, and digits ---- */

static gd_tensor *network(void *module, gd_tensor *x)
{
    gd_module *m = module;
    gd_tensor *a = gd_relu(gd_nn_linear(m, "fc1", x, 16));
    gd_tensor *b = gd_relu(gd_nn_linear(m, "fc2", a, 16));
    return gd_nn_linear(m, "fc3", gd_add(a, b), 10);
}

/* The loss of a batch of digits, and how many are right. */
static gd_tensor *classify(gd_tensor *logits, const gd_objective_call *call)
{
    gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), call->tensors[1]));
    return gd_cross_entropy(logits, call->tensors[1]);
}

static gd_tensor *objective(void *module, const gd_objective_call *call)
{
    return classify(network(module, call->tensors[0]), call);
}

/* The test digits (they are fewer to decompress), or skip in a build without zlib. */
static gd_dataset *digits(gd_context *gd, bool test)
{
    gd_dataset *d = gd_mnist(gd, MNIST, .test = test);
    if (!d && gd_error_code() == GD_ERR_UNSUPPORTED) {
        gd_error_clear();
        skip();
    }
    assert_non_null(d);
    return d;
}

/* Made-up digits: each class has its own few bright pixels, with noise. No file is read. */
static gd_dataset *simple_digits(gd_context *gd, int64_t count)
{
    uint8_t *pixels = calloc((size_t)count, 784);
    int64_t *labels = calloc((size_t)count, sizeof *labels);
    uint32_t noise = 1;
    for (int64_t i = 0; i < count; i++) {
        labels[i] = i % 10;
        for (int k = 0; k < 784; k++) {
            noise = noise * 1664525u + 1013904223u;
            int bright = k % 10 == labels[i] ? 128 : 0;
            pixels[i * 784 + k] = (uint8_t)(bright + (int)(noise >> 25));
        }
    }
    gd_dataset *d =
        labelled_samples(gd, GD_SHAPE(784), GD_U8, 1.0f / 255.0f, count, pixels, labels);
    free(pixels);
    free(labels);
    assert_non_null(d);
    return d;
}

typedef struct trainee {
    gd_module *m;
    gd_optimizer *optimizer;
} trainee;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_cross_entropy(network(t->m, in[0]), in[1]));
}

static void assert_same_modules(const gd_module *a, const gd_module *b)
{
    assert_int_equal(gd_module_count(a), gd_module_count(b));
    for (int i = 0; i < gd_module_count(a); i++) {
        size_t bytes = (size_t)gd_tensor_count(gd_module_tensor(a, i)) * sizeof(float);
        float *left = malloc(bytes), *right = malloc(bytes);
        assert_int_equal(gd_tensor_read(gd_module_tensor(a, i), left, bytes), GD_OK);
        assert_int_equal(gd_tensor_read(gd_module_tensor(b, i), right, bytes), GD_OK);
        assert_memory_equal(left, right, bytes);
        free(left);
        free(right);
    }
}

/* ---- one step ---- */

static void per_example_gradients_equal_the_batch(void **state)
{
    enum { BATCH = 50 };
    gd_loader *l =
        gd_loader_create(digits(*state, true), .batch = BATCH, .shuffle = true, .seed = 5);
    gd_module *whole = gd_module_create(*state, .seed = 1),
              *single = gd_module_create(*state, .seed = 1);
    gd_batch b;
    assert_true(gd_loader_next(l, &b));
    assert_int_equal(gd_backward(gd_cross_entropy(network(whole, b.tensors[0]), b.tensors[1])),
                     GD_OK);
    for (int64_t i = 0; i < BATCH; i++) {
        gd_tensor *x = gd_slice(b.tensors[0], 0, i, i + 1, 1),
                  *y = gd_slice(b.tensors[1], 0, i, i + 1, 1);
        gd_tensor *loss = gd_cross_entropy(network(single, x), y);
        assert_int_equal(gd_backward(gd_mul_scalar(loss, 1.0 / BATCH)), GD_OK);
    }
    for (int i = 0; i < 6; i++) {
        gd_tensor *a = gd_gradient(gd_module_tensor(whole, i)),
                  *c = gd_gradient(gd_module_tensor(single, i));
        double apart = gd_item(gd_max(gd_abs(gd_sub(a, c)), GD_ALL_AXES, false));
        double size = gd_item(gd_max(gd_abs(a), GD_ALL_AXES, false));
        assert_true(size > 1e-4); /* there is something to compare */
        assert_true(apart <= 2e-6 * size + 1e-8);
    }
}

/* 30 steps on the first batches; the losses into out. */
static gd_module *train_30(gd_context *gd, gd_dataset *d, gd_mode mode, int threads, float out[30])
{
    assert_int_equal(gd_context_set_threads(gd, threads), GD_OK);
    trainee t = { .m = gd_module_create(gd, .seed = 2) };
    t.optimizer = gd_adam(t.m, .lr = 0.005);
    gd_function *f = gd_compile(gd, step, &t, .mode = mode);
    gd_loader *l = gd_loader_create(d, .batch = 50, .shuffle = true, .seed = 9);
    gd_batch b;
    for (int i = 0; i < 30; i++) {
        assert_true(gd_loader_next(l, &b));
        gd_tensor *loss = gd_call(f, b.count, b.tensors);
        assert_non_null(loss);
        assert_int_equal(gd_tensor_read(loss, &out[i], sizeof(float)), GD_OK);
    }
    gd_function_release(f);
    gd_optimizer_release(t.optimizer);
    gd_loader_release(l);
    return t.m;
}

static void modes_and_threads_agree_bit_for_bit(void **state)
{
    gd_dataset *d = simple_digits(*state, 2000);
    float reference[30], losses[30];
    gd_module *first = train_30(*state, d, GD_MODE_EAGER, 1, reference);
    assert_true(reference[29] < reference[0]);
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++)
        for (int threads = 1; threads <= 2; threads++) {
            gd_module *m = train_30(*state, d, (gd_mode)mode, threads, losses);
            assert_memory_equal(losses, reference, sizeof losses);
            assert_same_modules(m, first);
        }
}

static void a_compiled_step_allocates_nothing(void **state)
{
    trainee t = { .m = gd_module_create(*state, .seed = 2) };
    t.optimizer = gd_adam(t.m);
    gd_function *f = gd_compile(*state, step, &t);
    gd_loader *l = gd_loader_create(simple_digits(*state, 1000), .batch = 50, .shuffle = true);
    gd_batch b;
    assert_true(gd_loader_next(l, &b));
    assert_non_null(gd_call(f, b.count, b.tensors));
    uint64_t before = gd_memory(*state).allocations;
    gd_fail_allocations_after(0);
    while (gd_loader_next(l, &b))
        assert_non_null(gd_call(f, b.count, b.tensors));
    assert_int_equal(gd_fail_allocations_after(-1), 0);
    assert_int_equal(gd_memory(*state).allocations, before);
    assert_int_equal(gd_function_stats(f).traces, 1);
}

/* ---- gd_fit and gd_evaluate ---- */

static gd_tensor *constant_answer(gd_tensor *x)
{
    return gd_slice(gd_mul_scalar(x, 1.0), 1, 0, 10, 1); /* the first ten pixels as logits */
}

static gd_tensor *constant_objective(void *user, const gd_objective_call *call)
{
    (void)user;
    return classify(constant_answer(call->tensors[0]), call);
}

static void evaluation_counts_every_sample_once(void **state)
{
    gd_dataset *d = simple_digits(*state, 1003);
    gd_module *m = gd_module_create(*state, .seed = 1);
    gd_tensor *t[2]; /* x, y */
    assert_int_equal(gd_dataset_get(d, 0, 1003, t), GD_OK);
    double loss = gd_item(gd_cross_entropy(constant_answer(t[0]), t[1]));
    double accuracy = gd_item(gd_accuracy(constant_answer(t[0]), t[1]));
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++)
        for (int64_t batch = 1; batch <= 1100; batch = 3 * batch + 7) {
            gd_metrics metrics;
            gd_loader *l = gd_loader_create(d, .batch = batch);
            assert_int_equal(
                gd_evaluate(m, constant_objective, m, l, &metrics, .mode = (gd_mode)mode), GD_OK);
            assert_int_equal(metrics.samples, 1003);
            assert_true(fabs(gd_metrics_get(&metrics, "accuracy") - accuracy) < 1e-6);
            assert_true(fabs(gd_metrics_get(&metrics, "loss") - loss) < 1e-5 * loss);
            gd_loader_release(l);
        }
    assert_true(gd_module_is_training(m));
}

typedef struct watch {
    int calls, epochs_done;
    int stop_after;
    gd_fit_progress last;
} watch;

static gd_status watch_progress(void *user, const gd_fit_progress *p, bool *stop)
{
    watch *w = user;
    w->calls++;
    w->epochs_done += p->epoch_done;
    w->last = *p;
    *stop = w->calls == w->stop_after;
    return GD_OK;
}

/* A fresh module trained by gd_fit for two epochs of made-up digits, in one way or another. */
static gd_module *fit(gd_context *gd, gd_mode mode, bool per_example, int workers,
                      gd_metrics *result, watch *w)
{
    gd_dataset *d = simple_digits(gd, 530);
    gd_module *m = gd_module_create(gd, .seed = 4);
    gd_optimizer *o = gd_sgd(m, .lr = 0.1, .momentum = 0.5);
    gd_loader *train = gd_loader_create(d, .batch = per_example ? 1 : 50, .shuffle = true,
                                        .seed = 6, .workers = workers);
    gd_loader *test = gd_loader_create(d, .batch = 200);
    assert_int_equal(gd_fit(o, objective, m, train, .epochs = 2, .validation = test, .mode = mode,
                            .accumulate = per_example ? 50 : 1,
                            .progress = w ? watch_progress : NULL, .progress_user = w,
                            .progress_interval = 0, .result = result),
                     GD_OK);
    return m;
}

static void the_trainer_is_the_same_in_every_mode(void **state)
{
    gd_metrics reference, metrics;
    watch w = { 0 };
    gd_module *m = fit(*state, GD_MODE_COMPILED, false, 0, &reference, &w);
    assert_int_equal(w.calls, 2 * 11);
    assert_int_equal(w.epochs_done, 2);
    assert_int_equal(w.last.epoch, 2);
    assert_int_equal(w.last.step, 11);
    assert_int_equal(w.last.train.samples, 530);
    assert_int_equal(w.last.validation.samples, 530);
    assert_memory_equal(&w.last.validation, &reference, sizeof reference);
    assert_true(gd_metrics_get(&reference, "accuracy") > 0.5 &&
                gd_metrics_get(&reference, "loss") < 2.0);
    assert_true(w.last.seconds_left == 0.0);
    assert_same_modules(fit(*state, GD_MODE_EAGER, false, 0, &metrics, NULL), m);
    assert_memory_equal(&metrics, &reference, sizeof metrics);
    assert_same_modules(fit(*state, GD_MODE_COMPILED, false, 2, &metrics, NULL), m);
    /* One example at a time adds in another order. */
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++) {
        fit(*state, (gd_mode)mode, true, 0, &metrics, NULL);
        assert_true(fabs(gd_metrics_get(&metrics, "loss") - gd_metrics_get(&reference, "loss")) <
                    1e-4);
    }
}

static void training_can_be_stopped(void **state)
{
    gd_metrics result;
    watch w = { .stop_after = 5 };
    fit(*state, GD_MODE_COMPILED, false, 0, &result, &w);
    assert_int_equal(w.calls, 5);
    assert_int_equal(w.epochs_done, 0);
    assert_int_equal(result.samples, 0);
}

static gd_status halve(void *user, int64_t now, int64_t steps, double *lr)
{
    int64_t *seen = user;
    assert_int_equal(steps, 22);
    assert_int_equal(now, *seen);
    (*seen)++;
    *lr = 0.1 / (double)(now + 1);
    return GD_OK;
}

static gd_status give_up(void *user, const gd_fit_progress *p, bool *stop)
{
    (void)p, (void)stop;
    const bool *says_why = user;
    return *says_why ? gd_open("nowhere") ? GD_OK : gd_error_code() : GD_ERR_IO;
}

static gd_status no_rate(void *user, int64_t now, int64_t steps, double *lr)
{
    (void)user, (void)steps, (void)lr;
    return now == 0 ? GD_ERR_UNSUPPORTED : GD_OK;
}

/* A callback's status ends training and is its status; its own words stay. */
static void callbacks_may_fail(void **state)
{
    gd_loader *train = gd_loader_create(simple_digits(*state, 100), .batch = 50);
    gd_module *m = gd_module_create(*state, .seed = 4);
    gd_optimizer *o = gd_sgd(m);
    bool says_why = false;
    assert_int_equal(gd_fit(o, objective, m, train, .epochs = 2, .progress = give_up,
                            .progress_user = &says_why),
                     GD_ERR_IO);
    expect_error(GD_ERR_IO, "gd_fit: the callback returned GD_ERR_IO");
    says_why = true;
    assert_int_equal(gd_fit(o, objective, m, train, .epochs = 2, .progress = give_up,
                            .progress_user = &says_why),
                     GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "nowhere");
    assert_int_equal(gd_fit(o, objective, m, train, .epochs = 2, .schedule = no_rate),
                     GD_ERR_UNSUPPORTED);
    expect_error(GD_ERR_UNSUPPORTED, "gd_fit: the callback returned GD_ERR_UNSUPPORTED");
}

static void schedules_are_asked_at_every_step(void **state)
{
    gd_dataset *d = simple_digits(*state, 530);
    gd_module *m = gd_module_create(*state, .seed = 4);
    gd_optimizer *o = gd_sgd(m);
    int64_t seen = 0;
    gd_loader *train = gd_loader_create(d, .batch = 50);
    assert_int_equal(
        gd_fit(o, objective, m, train, .epochs = 2, .schedule = halve, .schedule_user = &seen),
        GD_OK);
    assert_int_equal(seen, 22);
    assert_true(gd_optimizer_lr(o) == 0.1 / 22.0);
}

static gd_tensor *wrong_objective(void *module, const gd_objective_call *call)
{
    gd_tensor *x = gd_reshape(call->tensors[0], GD_SHAPE(-1, 7));
    return gd_cross_entropy(gd_nn_linear(module, "fc", x, 3), call->tensors[1]);
}

static void errors_come_out(void **state)
{
    gd_dataset *d = simple_digits(*state, 100);
    gd_module *m = gd_module_create(*state);
    gd_optimizer *o = gd_sgd(m);
    gd_loader *l = gd_loader_create(d, .batch = 50);
    assert_int_equal(gd_fit(o, wrong_objective, m, l), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "gd_cross_entropy");
    gd_metrics metrics;
    assert_int_equal(gd_evaluate(m, wrong_objective, m, l, &metrics), GD_ERR_SHAPE);
    gd_error_clear();
    assert_int_equal(gd_fit(o, objective, m, NULL), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "gd_fit");
    assert_int_equal(gd_evaluate(m, objective, m, NULL, &metrics), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "gd_evaluate");
}

/* ---- real digits ---- */

static void one_epoch_of_mnist_learns_it(void **state)
{
    TEST_OF_ONE_THREAD();
    gd_dataset *train = digits(*state, false), *test = digits(*state, true);
    gd_module *m = gd_module_create(*state, .seed = 1);
    gd_metrics metrics;
    gd_loader *batches = gd_loader_create(train, .batch = 50, .shuffle = true, .seed = 1);
    gd_loader *unseen = gd_loader_create(test, .batch = 300);
    assert_int_equal(gd_fit(gd_adam(m, .lr = 0.005), objective, m, batches, .epochs = 1,
                            .validation = unseen, .result = &metrics),
                     GD_OK);
    assert_int_equal(metrics.samples, 10000);
    assert_true(gd_metrics_get(&metrics, "accuracy") > 0.85);

    /* Saved, loaded, and used again: the same predictions. */
    char path[256];
    snprintf(path, sizeof path, "%s/test_train_%ld.safetensors", GD_BINARY_DIR, (long)getpid());
    if (gd_module_save(m, path) != GD_OK) {
        assert_int_equal(gd_error_code(), GD_ERR_UNSUPPORTED);
        gd_error_clear();
        return;
    }
    gd_module *loaded = gd_module_create(*state);
    assert_int_equal(gd_module_load(loaded, path), GD_OK);
    remove(path);
    gd_tensor *t[2], *a, *b;
    assert_int_equal(gd_dataset_get(test, 0, 100, t), GD_OK);
    float left[1000], right[1000];
    a = gd_softmax(network(m, t[0]), 1);
    b = gd_softmax(network(loaded, t[0]), 1);
    assert_int_equal(gd_tensor_read(a, left, sizeof left), GD_OK);
    assert_int_equal(gd_tensor_read(b, right, sizeof right), GD_OK);
    assert_memory_equal(left, right, sizeof left);
    gd_metrics again;
    assert_int_equal(gd_evaluate(loaded, objective, loaded, unseen, &again), GD_OK);
    assert_memory_equal(&again, &metrics, sizeof again);
}

/* ---- many steps in one call ---- */

/* 23 steps of 80 digits in batches of 30: over the ends of seven epochs, whose last batches are
 * smaller. */
enum { RUN_STEPS = 23, RUN_DIGITS = 80, RUN_BATCH = 30 };

static gd_module *run_or_loop(gd_context *gd, bool in_one_call, double losses[RUN_STEPS])
{
    trainee t = { .m = gd_module_create(gd, .seed = 2) };
    t.optimizer = gd_adam(t.m, .lr = 0.005);
    gd_function *f = gd_compile(gd, step, &t);
    gd_loader *l =
        gd_loader_create(simple_digits(gd, RUN_DIGITS), .batch = RUN_BATCH, .shuffle = true);
    if (in_one_call) {
        assert_int_equal(gd_function_run(f, l, 5, losses), 5);
        assert_int_equal(gd_function_run(f, l, RUN_STEPS - 5, losses + 5), RUN_STEPS - 5);
    } else {
        gd_batch b;
        for (int i = 0; i < RUN_STEPS; i++) {
            assert_true(gd_loader_next(l, &b) || gd_loader_next(l, &b));
            losses[i] = gd_item(gd_call(f, b.count, b.tensors));
        }
    }
    gd_function_release(f);
    gd_optimizer_release(t.optimizer);
    gd_loader_release(l);
    return t.m;
}

static void many_steps_are_one_call(void **state)
{
    double looped[RUN_STEPS], ran[RUN_STEPS];
    gd_module *a = run_or_loop(*state, false, looped), *b = run_or_loop(*state, true, ran);
    assert_memory_equal(looped, ran, sizeof ran);
    assert_same_modules(a, b);
    assert_true(ran[RUN_STEPS - 1] < ran[0]);
}

static void a_run_says_how_far_it_came(void **state)
{
    gd_loader *l = gd_loader_create(simple_digits(*state, RUN_DIGITS), .batch = RUN_BATCH);
    gd_function *untraced = gd_compile(*state, NULL, NULL);
    double losses[2];
    assert_int_equal(gd_function_run(untraced, l, 2, losses), 0);
    assert_int_equal(gd_error_code(), GD_ERR_STATE);
    gd_error_clear();
    trainee t = { .m = gd_module_create(*state, .seed = 2) };
    t.optimizer = gd_adam(t.m);
    assert_int_equal(gd_function_run(gd_compile(*state, step, &t), l, 3, NULL), 3);
    assert_int_equal(gd_function_run(untraced, NULL, 1, losses), 0);
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    gd_error_clear();
}

/* ---- out of memory, at every allocation in turn ---- */

static bool everything(int per_example)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    float samples[6][4] = { { 1.0f } };
    int64_t labels[6] = { 0, 1, 2, 0, 1, 2 };
    gd_dataset *d = gd ? labelled_samples(gd, GD_SHAPE(4), GD_F32, 1, 6, samples, labels) : NULL;
    gd_module *m = gd_module_create(gd, .seed = 1);
    gd_optimizer *o = gd_adam(m);
    gd_loader *train = gd_loader_create(d, .batch = per_example ? 1 : 4),
              *test = gd_loader_create(d, .batch = 6);
    gd_metrics metrics;
    bool ok = o && train && test &&
              gd_fit(o, objective, m, train, .validation = test, .accumulate = per_example ? 4 : 1,
                     .result = &metrics) == GD_OK;
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    for (int per_example = 0; per_example < 2; per_example++)
        fail_every_allocation(everything, per_example);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(per_example_gradients_equal_the_batch, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(modes_and_threads_agree_bit_for_bit, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(a_compiled_step_allocates_nothing, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(evaluation_counts_every_sample_once, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(the_trainer_is_the_same_in_every_mode, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(callbacks_may_fail, open_context, close_context),
        cmocka_unit_test_setup_teardown(training_can_be_stopped, open_context, close_context),
        cmocka_unit_test_setup_teardown(schedules_are_asked_at_every_step, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(errors_come_out, open_context, close_context),
        cmocka_unit_test_setup_teardown(many_steps_are_one_call, open_context, close_context),
        cmocka_unit_test_setup_teardown(a_run_says_how_far_it_came, open_context, close_context),
        cmocka_unit_test_setup_teardown(one_epoch_of_mnist_learns_it, open_context, close_context),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
