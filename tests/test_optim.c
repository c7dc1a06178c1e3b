/* tests/test_optim.c: optimizers against PyTorch, eager against compiled, and schedules. The last
 * tests use several threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gradus/gradus.h>

static int open_context(void **state)
{
    gd_error_clear();
    *state = gd_open("cpu", .threads = 1);
    return *state ? 0 : -1;
}

static int close_context(void **state)
{
    gd_close(*state);
    return 0;
}

static void expect_error(gd_status status, const char *words)
{
    if (!strstr(gd_error_message(), words))
        print_error("expected \"%s\" in \"%s\"\n", words, gd_error_message());
    assert_non_null(strstr(gd_error_message(), words));
    assert_int_equal(gd_error_code(), status);
    gd_error_clear();
}

/* ---- a small problem: tanh(x @ w + b) to t, mean squared error ---- */

enum { NUMBERS = 9 };

typedef struct problem {
    gd_context *gd;
    gd_module *m;
    gd_tensor *w, *b;
    gd_tensor *x, *t; /* [4, 2], [4, 3] */
    gd_optimizer *optimizer;
} problem;

static void open_problem(problem *p, gd_context *gd)
{
    static const float w[6] = { 0.5f, -0.25f, 0.125f, -0.75f, 1.0f, 0.375f };
    static const float b[3] = { 0.0625f, -0.5f, 0.25f };
    static const float x[8] = { 1.0f, -0.5f, 0.25f, 2.0f, -1.5f, 0.75f, 0.5f, 0.5f };
    static const float t[12] = { 1.0f, 0.0f, -1.0f, 0.5f,  -0.5f, 2.0f,
                                 0.0f, 1.0f, 0.25f, -1.0f, 0.75f, 1.5f };
    *p = (problem){ .gd = gd, .m = gd_module_create(gd) };
    p->w = gd_parameter(p->m, "w", GD_SHAPE(2, 3), GD_INIT_ZEROS);
    p->b = gd_parameter(p->m, "b", GD_SHAPE(3), GD_INIT_ZEROS);
    p->x = gd_from_host(gd, GD_SHAPE(4, 2), GD_F32, x);
    p->t = gd_from_host(gd, GD_SHAPE(4, 3), GD_F32, t);
    assert_int_equal(gd_tensor_write(p->w, w, sizeof w), GD_OK);
    assert_int_equal(gd_tensor_write(p->b, b, sizeof b), GD_OK);
}

static void read_parameters(const problem *p, float out[NUMBERS])
{
    assert_int_equal(gd_tensor_read(p->w, out, 6 * sizeof(float)), GD_OK);
    assert_int_equal(gd_tensor_read(p->b, out + 6, 3 * sizeof(float)), GD_OK);
}

static gd_tensor *loss_of(const problem *p, gd_tensor *x, gd_tensor *t)
{
    return gd_mse(gd_tanh(gd_affine(x, p->w, p->b)), t);
}

static gd_tensor *step_body(void *user, gd_tensor *const *in)
{
    problem *p = user;
    return gd_minimize(p->optimizer, loss_of(p, in[0], in[1]));
}

/* ---- the optimizers of these tests ---- */

static gd_optimizer *sgd(gd_module *m)
{
    return gd_sgd(m, .lr = 0.05);
}

static gd_optimizer *sgd_momentum(gd_module *m)
{
    return gd_sgd(m, .lr = 0.05, .momentum = 0.9);
}

static gd_optimizer *sgd_dampened(gd_module *m)
{
    return gd_sgd(m, .lr = 0.05, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01);
}

static gd_optimizer *sgd_nesterov(gd_module *m)
{
    return gd_sgd(m, .lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1);
}

static gd_optimizer *adam(gd_module *m)
{
    return gd_adam(m, .lr = 0.02);
}

static gd_optimizer *adam_other(gd_module *m)
{
    return gd_adam(m, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4,
                   .weight_decay = 0.1);
}

static gd_optimizer *adamw(gd_module *m)
{
    return gd_adamw(m, .lr = 0.02);
}

static gd_optimizer *adamw_decayed(gd_module *m)
{
    return gd_adamw(m, .lr = 0.02, .weight_decay = 0.2);
}

static gd_optimizer *rmsprop(gd_module *m)
{
    return gd_rmsprop(m, .lr = 0.02);
}

static gd_optimizer *rmsprop_other(gd_module *m)
{
    return gd_rmsprop(m, .lr = 0.02, .alpha = 0.9, .epsilon = 1e-4, .momentum = 0.8,
                      .weight_decay = 0.1);
}

/* Parameters after 20 steps, from PyTorch 2.15.0 (CPU, float32):
 *     o = torch.optim.CLASS([w, b], foreach=False, OPTIONS)
 *     20 times: o.zero_grad(); ((torch.tanh(x @ w + b) - t) ** 2).mean().backward(); o.step()
 *     w.flatten().tolist() + b.tolist()
 * with w, b, x, t as in open_problem. */
typedef struct row {
    const char *call;
    gd_optimizer *(*create)(gd_module *m);
    float golden[NUMBERS];
} row;

static const row rows[] = {
    { "SGD(lr=0.05)",
      sgd,
      { 0.399353772f, -0.215306297f, 0.0615984499f, -0.685028553f, 0.993188202f, 0.616112173f,
        0.0416547768f, -0.322212964f, 0.226694718f } },
    { "SGD(lr=0.05, momentum=0.9)",
      sgd_momentum,
      { -0.0158445723f, -0.00697930902f, -0.0727426335f, -0.236743271f, 0.900729418f, 1.43403351f,
        0.173448488f, 0.397490174f, 0.108185418f } },
    { "SGD(lr=0.05, momentum=0.9, dampening=0.5, weight_decay=0.01)",
      sgd_dampened,
      { 0.172365487f, -0.118046008f, -0.0413258784f, -0.48888585f, 0.927602887f, 1.04780936f,
        0.0484967269f, 0.0564368069f, 0.160270095f } },
    { "SGD(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1)",
      sgd_nesterov,
      { 0.0049462528f, -0.0744475573f, -0.017659802f, 0.0723266825f, 0.20811677f, 1.08506656f,
        0.186181784f, 0.402451068f, 0.0705964789f } },
    { "Adam(lr=0.02)",
      adam,
      { 0.112670697f, -0.144935444f, -0.129520953f, -0.329316378f, 0.584487557f, 0.752237082f,
        0.175312713f, -0.10285683f, 0.2490879f } },
    { "Adam(lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)",
      adam_other,
      { 0.119632237f, -0.116523996f, -0.0306413323f, -0.333008111f, 0.590093493f, 0.72713089f,
        0.218278259f, -0.108846568f, 0.136386305f } },
    { "AdamW(lr=0.02)",
      adamw,
      { 0.111534581f, -0.145871893f, -0.129883289f, -0.327093333f, 0.581358671f, 0.750108778f,
        0.1761747f, -0.101684071f, 0.249565065f } },
    { "AdamW(lr=0.02, weight_decay=0.2)",
      adamw_decayed,
      { 0.0917305425f, -0.163433269f, -0.13667883f, -0.286947995f, 0.524114072f, 0.710942388f,
        0.190176561f, -0.0805040896f, 0.258021504f } },
    { "RMSprop(lr=0.02)",
      rmsprop,
      { 0.146366403f, -0.569003284f, 0.285950065f, -0.0441739038f, -0.341638863f, 1.36049414f,
        0.143176377f, 0.59395206f, -0.0922170132f } },
    { "RMSprop(lr=0.02, alpha=0.9, eps=1e-4, momentum=0.8, weight_decay=0.1)",
      rmsprop_other,
      { 0.104560889f, -0.459445417f, 0.117824629f, 0.0137210451f, -0.29071781f, 1.04519057f,
        0.142753452f, 0.551121831f, 0.00695589557f } },
};
enum { ROWS = sizeof rows / sizeof *rows };

/* 20 steps; parameters into out. */
static void train(gd_context *gd, const row *r, gd_mode mode, float out[NUMBERS])
{
    problem p;
    open_problem(&p, gd);
    p.optimizer = r->create(p.m);
    gd_function *step = gd_compile(gd, step_body, &p, .mode = mode);
    gd_tensor *in[2] = { p.x, p.t };
    for (int i = 0; i < 20; i++)
        assert_non_null(gd_call(step, 2, in));
    read_parameters(&p, out);
    gd_function_release(step);
    gd_optimizer_release(p.optimizer);
    gd_module_release(p.m);
}

static void twenty_steps_equal_pytorch(void **state)
{
    for (int r = 0; r < ROWS; r++) {
        float got[NUMBERS];
        train(*state, &rows[r], GD_MODE_EAGER, got);
        for (int i = 0; i < NUMBERS; i++) {
            double difference = fabs((double)got[i] - (double)rows[r].golden[i]);
            if (!(difference <= 1e-6))
                print_error("%s: parameter %d is %.9g, PyTorch has %.9g\n", rows[r].call, i,
                            (double)got[i], (double)rows[r].golden[i]);
            assert_true(difference <= 1e-6);
        }
    }
}

static void compiled_equals_eager_bit_for_bit(void **state)
{
    for (int threads = 1; threads <= 2; threads++) {
        assert_int_equal(gd_context_set_threads(*state, threads), GD_OK);
        for (int r = 0; r < ROWS; r++) {
            float eager[NUMBERS], compiled[NUMBERS];
            train(*state, &rows[r], GD_MODE_EAGER, eager);
            train(*state, &rows[r], GD_MODE_COMPILED, compiled);
            assert_memory_equal(eager, compiled, sizeof eager);
        }
    }
}

/* gd_backward, gd_optimizer_step, gd_optimizer_zero_grad do what gd_minimize does. */
static void accumulated_steps_equal_minimize(void **state)
{
    for (int r = 0; r < ROWS; r++) {
        float minimized[NUMBERS], stepped[NUMBERS];
        train(*state, &rows[r], GD_MODE_EAGER, minimized);
        problem p;
        open_problem(&p, *state);
        p.optimizer = rows[r].create(p.m);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(gd_backward(loss_of(&p, p.x, p.t)), GD_OK);
            assert_int_equal(gd_optimizer_step(p.optimizer), GD_OK);
            assert_int_equal(gd_optimizer_zero_grad(p.optimizer), GD_OK);
        }
        read_parameters(&p, stepped);
        assert_memory_equal(minimized, stepped, sizeof stepped);
    }
}

static void the_learning_rate_changes_without_a_new_trace(void **state)
{
    problem p;
    open_problem(&p, *state);
    p.optimizer = gd_sgd(p.m, .lr = 0.5);
    gd_function *step = gd_compile(*state, step_body, &p);
    gd_tensor *in[2] = { p.x, p.t };
    assert_non_null(gd_call(step, 2, in));
    float before[NUMBERS], after[NUMBERS];
    read_parameters(&p, before);
    assert_int_equal(gd_optimizer_set_lr(p.optimizer, 0.0), GD_OK);
    assert_true(gd_optimizer_lr(p.optimizer) == 0.0);
    assert_non_null(gd_call(step, 2, in));
    read_parameters(&p, after);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(gd_optimizer_set_lr(p.optimizer, 0.1), GD_OK);
    assert_non_null(gd_call(step, 2, in));
    read_parameters(&p, after);
    assert_memory_not_equal(before, after, sizeof before);
    assert_int_equal(gd_function_stats(step).traces, 1);
}

static void frozen_parameters_stay(void **state)
{
    problem p;
    open_problem(&p, *state);
    p.optimizer = gd_adam(p.m);
    assert_non_null(gd_set_requires_grad(p.w, false));
    float before[NUMBERS], after[NUMBERS];
    read_parameters(&p, before);
    assert_non_null(gd_minimize(p.optimizer, loss_of(&p, p.x, p.t)));
    read_parameters(&p, after);
    assert_memory_equal(before, after, 6 * sizeof(float));
    assert_memory_not_equal(before + 6, after + 6, 3 * sizeof(float));
    assert_non_null(gd_set_requires_grad(p.b, false));
    gd_tensor *other = gd_set_requires_grad(gd_ones(*state, GD_SHAPE(2), GD_F32), true);
    assert_null(gd_minimize(p.optimizer, gd_sum(other, GD_ALL_AXES, false)));
    expect_error(GD_ERR_STATE, "no parameter that requires a gradient");
}

static void parameters_made_later_join_in(void **state)
{
    gd_module *m = gd_module_create(*state, .seed = 2);
    gd_optimizer *optimizer = gd_adam(m, .lr = 0.1);
    gd_tensor *x = gd_ones(*state, GD_SHAPE(2, 3), GD_F32);
    assert_non_null(gd_minimize(optimizer, gd_sum(gd_linear(m, "a", x, 2), GD_ALL_AXES, false)));
    gd_tensor *both = gd_add(gd_linear(m, "a", x, 2), gd_linear(m, "b", x, 2));
    assert_non_null(gd_minimize(optimizer, gd_sum(both, GD_ALL_AXES, false)));
    float bias[2];
    assert_int_equal(gd_tensor_read(gd_module_parameter(m, "b.bias"), bias, sizeof bias), GD_OK);
    assert_true(bias[0] < 0.0f && bias[1] < 0.0f);
}

static void wrong_options_are_errors(void **state)
{
    problem p;
    open_problem(&p, *state);
    assert_null(gd_sgd(p.m, .lr = -1.0));
    expect_error(GD_ERR_INVALID, "gd_sgd: lr is -1");
    assert_null(gd_sgd(p.m, .lr = NAN));
    expect_error(GD_ERR_INVALID, "lr is");
    assert_null(gd_sgd(p.m, .nesterov = true));
    expect_error(GD_ERR_INVALID, "nesterov needs momentum");
    assert_null(gd_adam(p.m, .beta1 = 1.0));
    expect_error(GD_ERR_INVALID, "beta1 is 1");
    assert_null(gd_rmsprop(p.m, .alpha = -0.1));
    expect_error(GD_ERR_INVALID, "alpha");
    assert_null(gd_optimizer_create("adagrad", p.m, 0.0, 0.0));
    expect_error(GD_ERR_INVALID,
                 "there is no optimizer \"adagrad\"; there are sgd, adam, adamw, rmsprop");
    assert_null(gd_optimizer_create("adam", p.m, 0.0, 0.9));
    expect_error(GD_ERR_INVALID, "betas");
    gd_optimizer *o = gd_optimizer_create("rmsprop", p.m, 0.0, 0.9);
    assert_string_equal(gd_optimizer_name(o), "rmsprop");
    assert_true(gd_optimizer_lr(o) == 0.01);
    assert_ptr_equal(gd_optimizer_module(o), p.m);
    assert_int_equal(gd_optimizer_set_lr(o, -0.5), GD_ERR_INVALID);
    gd_error_clear();
    assert_null(gd_minimize(o, gd_sum(p.x, GD_ALL_AXES, false)));
    expect_error(GD_ERR_STATE, "depends on no parameter");
    assert_int_equal(gd_optimizer_step(o), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "no parameter has a gradient");
    assert_null(gd_minimize(o, NULL));
    assert_null(gd_minimize(NULL, p.x));
    assert_null(gd_sgd(NULL));
    assert_int_equal(gd_error_code(), GD_OK);
}

static void schedules_have_their_shape(void **state)
{
    (void)state;
    assert_true(gd_schedule_constant(0.3, 17) == 0.3);
    assert_true(fabs(gd_schedule_cosine(1.0, 0.1, 0, 110, 10) - 0.1) < 1e-15);
    assert_true(fabs(gd_schedule_cosine(1.0, 0.1, 9, 110, 10) - 1.0) < 1e-15);
    assert_true(fabs(gd_schedule_cosine(1.0, 0.1, 10, 110, 10) - 1.0) < 1e-15);
    assert_true(fabs(gd_schedule_cosine(1.0, 0.1, 60, 110, 10) - 0.55) < 1e-15);
    assert_true(gd_schedule_cosine(1.0, 0.1, 110, 110, 10) == 0.1);
    assert_true(gd_schedule_cosine(1.0, 0.1, 1000, 110, 10) == 0.1);
    assert_true(gd_schedule_cosine(1.0, 0.0, 0, 10, 0) == 1.0);
    for (int64_t step = 11; step < 110; step++)
        assert_true(gd_schedule_cosine(1.0, 0.1, step, 110, 10) <
                    gd_schedule_cosine(1.0, 0.1, step - 1, 110, 10));
}

/* ---- out of memory, at every allocation in turn ---- */

static bool everything(gd_optimizer *(*create)(gd_module *m), gd_mode mode)
{
    gd_context *gd = gd_open("cpu", .threads = 1);
    gd_module *m = gd_module_create(gd, .seed = 1);
    problem p = { .gd = gd, .m = m };
    if (m) {
        p.w = gd_parameter(m, "w", GD_SHAPE(2, 3), GD_INIT_DEFAULT);
        p.b = gd_parameter(m, "b", GD_SHAPE(3), GD_INIT_ZEROS);
    }
    p.x = gd ? gd_ones(gd, GD_SHAPE(4, 2), GD_F32) : NULL;
    p.t = gd ? gd_ones(gd, GD_SHAPE(4, 3), GD_F32) : NULL;
    p.optimizer = p.b ? create(m) : NULL;
    gd_function *step = p.optimizer ? gd_compile(gd, step_body, &p, .mode = mode) : NULL;
    bool ok = step && gd_call(step, 2, (gd_tensor *[]){ p.x, p.t }) &&
              gd_call(step, 2, (gd_tensor *[]){ p.x, p.t });
    ok = ok && gd_backward(loss_of(&p, p.x, p.t)) == GD_OK &&
         gd_optimizer_step(p.optimizer) == GD_OK && gd_optimizer_zero_grad(p.optimizer) == GD_OK;
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++)
        for (int64_t n = 0;; n++) {
            gd_error_clear();
            gd_fail_allocations_after(n);
            bool ok = everything(adam, (gd_mode)mode);
            gd_fail_allocations_after(-1);
            if (ok)
                break;
            assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
            assert_true(n < 100000);
        }
    gd_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(twenty_steps_equal_pytorch, open_context, close_context),
        cmocka_unit_test_setup_teardown(compiled_equals_eager_bit_for_bit, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(accumulated_steps_equal_minimize, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(the_learning_rate_changes_without_a_new_trace, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(frozen_parameters_stay, open_context, close_context),
        cmocka_unit_test_setup_teardown(parameters_made_later_join_in, open_context, close_context),
        cmocka_unit_test_setup_teardown(wrong_options_are_errors, open_context, close_context),
        cmocka_unit_test_setup_teardown(schedules_have_their_shape, open_context, close_context),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
