/* tests/test_fit_resume.c: a training by gd_fit that was stopped goes on to the same bytes, and refuses files and loaders of
 * others. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/fit.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(a_stopped_training_goes_on),
        folder_test(the_rate_is_of_what_was_done_here),
        folder_test(other_files_are_refused),
        folder_test(other_loaders_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
