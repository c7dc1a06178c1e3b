/* tests/test_fit_nan.c: what gd_fit does when numbers are not finite: it names the op, and leaves the parameters. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/fit.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(the_op_that_made_a_nan_is_named),
        context_test(steps_that_go_too_far_are_told),
        folder_test(blame_leaves_all_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
