/* tests/test_optimizers.c: optimizers against PyTorch (goldens/optimizers.h), eager against
 * compiled, and what goes with them: groups, clipping, averages, files of state, L-BFGS. Some tests
 * use several threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "optim/optimizer.h"
#include "support/context.h"

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
    p->w = gd_parameter(p->m, "w", GD_SHAPE(2, 3), .init = GD_INIT_ZEROS);
    p->b = gd_parameter(p->m, "b", GD_SHAPE(3), .init = GD_INIT_ZEROS);
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
    return gd_mse(gd_tanh(gd_linear(x, p->w, p->b)), t);
}

static gd_tensor *step_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    problem *p = user;
    return gd_minimize(p->optimizer, loss_of(p, in[0], in[1]));
}

/* ---- the rows of goldens/optimizers.h, as they are made here ---- */

typedef struct golden {
    const char *name, *call;
    float parameters[NUMBERS];
} golden;

#include "goldens/optimizers.h"

#define MAKE(name, call)                           \
    static gd_optimizer *make_##name(gd_module *m) \
    {                                              \
        return call;                               \
    }
MAKE(sgd, gd_sgd(m, .lr = 0.05))
MAKE(sgd_momentum, gd_sgd(m, .lr = 0.05, .momentum = 0.9))
MAKE(sgd_dampened, gd_sgd(m, .lr = 0.05, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01))
MAKE(sgd_nesterov, gd_sgd(m, .lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1))
MAKE(adam, gd_adam(m, .lr = 0.02))
MAKE(adam_other,
     gd_adam(m, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.1))
MAKE(amsgrad, gd_adam(m, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.9, .amsgrad = true))
MAKE(adamw, gd_adamw(m, .lr = 0.02))
MAKE(adamw_decayed, gd_adamw(m, .lr = 0.02, .weight_decay = 0.2, .amsgrad = true))
MAKE(nadam, gd_nadam(m, .lr = 0.02))
MAKE(nadam_other, gd_nadam(m, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4,
                           .momentum_decay = 0.01, .weight_decay = 0.1))
MAKE(nadam_decoupled, gd_nadam(m, .weight_decay = 0.2, .decoupled = true))
MAKE(radam, gd_radam(m, .lr = 0.02))
MAKE(radam_other,
     gd_radam(m, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-4, .weight_decay = 0.1))
MAKE(radam_decoupled, gd_radam(m, .lr = 0.02, .weight_decay = 0.2, .decoupled = true))
MAKE(rmsprop, gd_rmsprop(m, .lr = 0.02))
MAKE(rmsprop_other,
     gd_rmsprop(m, .lr = 0.02, .alpha = 0.9, .epsilon = 1e-4, .momentum = 0.8, .weight_decay = 0.1))
MAKE(adagrad, gd_adagrad(m, .lr = 0.1))
MAKE(adagrad_other, gd_adagrad(m, .lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.1,
                               .initial_accumulator = 0.25, .epsilon = 1e-4))
MAKE(adadelta, gd_adadelta(m))
MAKE(adadelta_other, gd_adadelta(m, .lr = 0.5, .rho = 0.8, .epsilon = 1e-4, .weight_decay = 0.1))
MAKE(lion, gd_lion(m, .lr = 0.01))
MAKE(lion_other, gd_lion(m, .lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1))
MAKE(lamb, gd_lamb(m, .lr = 0.02))
MAKE(lamb_other,
     gd_lamb(m, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.1))

static gd_optimizer *make_groups(gd_module *m)
{
    gd_optimizer *o = gd_adamw(m, .lr = 0.01, .weight_decay = 0.2);
    if (!o || gd_optimizer_group(o, "?", .weight_decay = 9) != GD_OK || /* the later one holds */
        gd_optimizer_group(o, "b*", .lr = 0.05, .weight_decay = 0) != GD_OK ||
        gd_optimizer_group(o, "[u-w]") != GD_OK)
        return NULL;
    return gd_optimizer_set_lr(o, 0.02) == GD_OK ? o : NULL; /* and 0.1 with it */
}

static gd_optimizer *make_clip_norm(gd_module *m)
{
    gd_optimizer *o = make_sgd_momentum(m);
    return o && gd_optimizer_clip_norm(o, 0.25) == GD_OK ? o : NULL;
}

static gd_optimizer *make_clip_value(gd_module *m)
{
    gd_optimizer *o = make_sgd_momentum(m);
    return o && gd_optimizer_clip_value(o, 0.125) == GD_OK ? o : NULL;
}

typedef struct row {
    const char *name;
    gd_optimizer *(*create)(gd_module *m);
} row;
#define ROW(name)          \
    {                      \
#name, make_##name \
    }
static const row rows[] = {
    ROW(sgd),           ROW(sgd_momentum),  ROW(sgd_dampened),
    ROW(sgd_nesterov),  ROW(adam),          ROW(adam_other),
    ROW(amsgrad),       ROW(adamw),         ROW(adamw_decayed),
    ROW(nadam),         ROW(nadam_other),   ROW(nadam_decoupled),
    ROW(radam),         ROW(radam_other),   ROW(radam_decoupled),
    ROW(rmsprop),       ROW(rmsprop_other), ROW(adagrad),
    ROW(adagrad_other), ROW(adadelta),      ROW(adadelta_other),
    ROW(lion),          ROW(lion_other),    ROW(lamb),
    ROW(lamb_other),    ROW(groups),        ROW(clip_norm),
    ROW(clip_value),
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert(ROWS == sizeof goldens / sizeof *goldens, "a golden value for each row");

static void expect_parameters(const golden *g, const float got[NUMBERS], double tolerance)
{
    for (int i = 0; i < NUMBERS; i++) {
        double difference = fabs((double)got[i] - (double)g->parameters[i]);
        if (!(difference <= tolerance))
            fail_msg("%s (%s): parameter %d is %.9g, %.9g expected", g->name, g->call, i,
                     (double)got[i], (double)g->parameters[i]);
    }
}

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
        assert_string_equal(rows[r].name, goldens[r].name);
        train(*state, &rows[r], GD_MODE_EAGER, got);
        expect_parameters(&goldens[r], got, 1e-6);
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

/* A parameter of values by their place, with a gradient likewise. */
static gd_tensor *make_parameter(gd_module *m, int64_t count)
{
    gd_context *gd = gd_module_context(m);
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(i % 1009 - 504) * 3e-3f;
    gd_tensor *p = gd_parameter(m, "p", GD_SHAPE(count), .init = GD_INIT_ZEROS);
    assert_int_equal(gd_tensor_write(p, values, (size_t)count * sizeof *values), GD_OK);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(i % 777 - 300) * 1e-3f;
    gd_tensor *factor = gd_from_host(gd, GD_SHAPE(count), GD_F32, values);
    free(values);
    assert_int_equal(gd_backward(gd_sum(gd_mul(p, factor), GD_ALL_AXES, false)), GD_OK);
    return p;
}

/* The update op by op, each on its own. */
typedef struct by_ops {
    gd_tensor *p, *g, *m, *v;
} by_ops;

static gd_tensor *rest_of(gd_context *gd, double beta, int t)
{
    gd_tensor *power = gd_pow(gd_scalar(gd, beta, GD_F64), gd_scalar(gd, t, GD_F64));
    return gd_rsub_scalar(power, 1.0);
}

static void adam_by_ops(by_ops *a, int t, double decay, double penalty)
{
    gd_context *gd = gd_tensor_context(a->p);
    gd_tensor *lr = gd_scalar(gd, 0.01, GD_F32), *root = gd_sqrt(rest_of(gd, 0.999, t));
    gd_tensor *part = gd_div(gd_cast(lr, GD_F64), rest_of(gd, 0.9, t));
    gd_tensor *size = gd_cast(gd_mul(part, root), GD_F32);
    gd_tensor *spread = gd_cast(gd_mul_scalar(root, 1e-8), GD_F32);
    gd_tensor *g = penalty != 0.0 ? gd_add(a->g, gd_mul_scalar(a->p, penalty)) : a->g;
    a->m = gd_add(a->m, gd_mul_scalar(gd_sub(g, a->m), 1.0 - 0.9));
    gd_tensor *square = gd_mul(gd_mul_scalar(g, 1.0 - 0.999), g);
    a->v = gd_add(gd_mul_scalar(a->v, 0.999), square);
    gd_tensor *step = gd_div(gd_mul(a->m, size), gd_add(gd_sqrt(a->v), spread));
    if (decay != 0.0)
        a->p = gd_mul(a->p, gd_rsub_scalar(gd_mul_scalar(lr, decay), 1.0));
    a->p = gd_sub(a->p, step);
}

static void expect_adam_by_ops(gd_context *gd, int64_t count, double decay, double clip,
                               double penalty)
{
    gd_module *m = gd_module_create(gd);
    gd_tensor *p = make_parameter(m, count), *zeros = gd_zeros(gd, GD_SHAPE(count), GD_F32);
    by_ops a = { gd_mul_scalar(p, 1.0), gd_gradient(p), zeros, zeros };
    if (clip != 0.0)
        a.g = gd_clip(a.g, -clip, clip);
    gd_optimizer *o = decay != 0.0 ? gd_adamw(m, .lr = 0.01, .weight_decay = decay)
                                   : gd_adam(m, .lr = 0.01, .weight_decay = penalty);
    assert_int_equal(gd_optimizer_clip_value(o, clip), GD_OK);
    (void)gd_no_grad_begin(gd);
    for (int t = 1; t <= 3; t++) {
        adam_by_ops(&a, t, decay, penalty);
        assert_int_equal(gd_optimizer_step(o), GD_OK);
        assert_same_bits(p, a.p);
    }
    (void)gd_no_grad_end(gd);
}

/* On every instruction set there is. Results of 40,000 go to two threads, and are long enough for
 * several tiles. */
static void adam_equals_its_ops_bit_for_bit(void **state)
{
    (void)state;
    static const char *const isa[] = { "baseline", "avx2", "avx512", "neon" };
    static const int64_t counts[] = { 1, 5, 131, 40000 };
    char saved[32] = "";
    if (getenv("GRADUS_ISA"))
        snprintf(saved, sizeof saved, "%s", getenv("GRADUS_ISA"));
    for (int k = 0; k < 4; k++) {
        setenv("GRADUS_ISA", isa[k], 1);
        gd_context *gd = gd_open(test_device(), .threads = 2);
        if (!gd) /* not on this machine */
            gd_error_clear();
        for (int i = 0; gd && i < 4; i++)
            for (int variant = 0; variant < 6; variant++)
                expect_adam_by_ops(gd, counts[i], variant % 3 == 1 ? 0.2 : 0,
                                   variant > 2 ? 0.125 : 0, variant % 3 == 2 ? 0.1 : 0);
        gd_close(gd);
    }
    setenv("GRADUS_ISA", saved, 1);
}

/* A moment whose gradients are zero from some step on ends as zero: once it is subnormal, a tenth of
 * it rounds to nothing. */
static void moments_do_not_stay_subnormal(void **state)
{
    enum { COUNT = 40, STEPS = 1100 };
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd);
    gd_tensor *p = make_parameter(m, COUNT), *zeros = gd_zeros(gd, GD_SHAPE(COUNT), GD_F32);
    gd_tensor *g = gd_add_scalar(gd_abs(gd_gradient(p)), 0.1);
    gd_optimizer *optimizers[] = { gd_sgd(m, .momentum = 0.9), gd_adam(m, .beta2 = 0.9),
                                   gd_rmsprop(m, .alpha = 0.9), gd_lion(m, .beta2 = 0.9) };
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        assert_int_equal(gd_set_gradient(p, g), GD_OK);
        assert_int_equal(gd_optimizer_step(optimizers[i]), GD_OK);
        gd_tensor *moment = gd_optimizer_state(optimizers[i], 0, 0);
        assert_true(gd_item(gd_min(moment, GD_ALL_AXES, false)) > 0);
        assert_int_equal(gd_set_gradient(p, zeros), GD_OK);
        for (int step = 0; step < STEPS; step++)
            assert_int_equal(gd_optimizer_step(optimizers[i]), GD_OK);
        assert_true(gd_item(gd_max(gd_abs(moment), GD_ALL_AXES, false)) == 0);
    }
}

/* Eagerly, too, an update needs no room for values in between. */
static void an_eager_update_makes_no_temporaries(void **state)
{
    enum { COUNT = 100000 };
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd);
    (void)make_parameter(m, COUNT);
    gd_optimizer *o = gd_adam(m, .lr = 0.01, .weight_decay = 0.1);
    assert_int_equal(gd_optimizer_step(o), GD_OK); /* makes the state */
    size_t before = gd_memory(gd).in_use;
    gd_memory_reset_peak(gd);
    assert_int_equal(gd_optimizer_step(o), GD_OK);
    assert_true(gd_memory(gd).peak - before < COUNT * sizeof(float));
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
    assert_non_null(gd_minimize(optimizer, gd_sum(gd_nn_linear(m, "a", x, 2), GD_ALL_AXES, false)));
    gd_tensor *both = gd_add(gd_nn_linear(m, "a", x, 2), gd_nn_linear(m, "b", x, 2));
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
    assert_null(gd_optimizer_create(p.m, "newton"));
    expect_error(GD_ERR_INVALID,
                 "there is no optimizer \"newton\"; there are sgd, rmsprop, adam, adamw, nadam");
    assert_null(gd_optimizer_create(p.m, "adam", .momentum = 0.9));
    expect_error(GD_ERR_INVALID, "adam has no momentum to set");
    static const char *const names[] = { "sgd",   "rmsprop", "adam",     "adamw", "nadam",
                                         "radam", "adagrad", "adadelta", "lion",  "lamb" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(gd_optimizer_name(gd_optimizer_create(p.m, names[i])), names[i]);
    gd_optimizer *o = gd_optimizer_create(p.m, "rmsprop", .momentum = 0.9);
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

/* ---- groups, clipping ---- */

static void groups_are_checked(void **state)
{
    problem p;
    open_problem(&p, *state);
    gd_optimizer *o = gd_sgd(p.m, .lr = 0.05);
    assert_int_equal(gd_optimizer_group(o, NULL), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the pattern is NULL");
    assert_int_equal(gd_optimizer_group(o, "w", .weight_decay = -1), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "weight_decay is -1");
    assert_int_equal(gd_optimizer_group(o, "w", .lr = -1), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "lr is -1");
    assert_non_null(gd_minimize(o, loss_of(&p, p.x, p.t)));
    assert_int_equal(gd_optimizer_group(o, "w"), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "has taken a step already");
    assert_int_equal(gd_optimizer_clip_norm(o, -1), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "gd_optimizer_clip_norm");
    assert_int_equal(gd_optimizer_clip_value(o, NAN), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "gd_optimizer_clip_value");
}

static void the_norm_of_the_gradients_is_told(void **state)
{
    problem p;
    open_problem(&p, *state);
    gd_tensor *loss = loss_of(&p, p.x, p.t), *d[2];
    assert_int_equal(gd_grad(1, &loss, NULL, 2, (gd_tensor *[]){ p.w, p.b }, d), GD_OK);
    double norm = sqrt(gd_item(gd_sum(gd_square(d[0]), GD_ALL_AXES, false)) +
                       gd_item(gd_sum(gd_square(d[1]), GD_ALL_AXES, false)));
    gd_optimizer *o = gd_sgd(p.m, .lr = 0.05);
    assert_true(isnan(gd_optimizer_gradient_norm(o)));
    assert_int_equal(gd_optimizer_clip_norm(o, 100), GD_OK);
    assert_non_null(gd_minimize(o, loss));
    assert_true(fabs(gd_optimizer_gradient_norm(o) - norm) <= 1e-6 * norm);
}

/* ---- averages of the weights ---- */

typedef struct averaged {
    problem p;
    gd_ema *ema;
} averaged;

static gd_tensor *averaged_step(void *user, int count, gd_tensor *const *in)
{
    averaged *a = user;
    gd_tensor *loss = step_body(&a->p, count, in);
    return loss && gd_ema_update(a->ema) == GD_OK ? loss : NULL;
}

static void averages_equal_pytorch(void **state)
{
    float got[2][NUMBERS], kept[NUMBERS], back[NUMBERS];
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++) {
        averaged a;
        open_problem(&a.p, *state);
        a.p.optimizer = gd_sgd(a.p.m, .lr = 0.05);
        a.ema = gd_ema_create(a.p.m, .decay = 0.9);
        assert_int_equal(gd_ema_swap(a.ema), GD_ERR_STATE);
        expect_error(GD_ERR_STATE, "before gd_ema_update");
        gd_function *step = gd_compile(*state, averaged_step, &a, .mode = (gd_mode)mode);
        for (int i = 0; i < 20; i++)
            assert_non_null(gd_call(step, 2, (gd_tensor *[]){ a.p.x, a.p.t }));
        read_parameters(&a.p, kept);
        assert_int_equal(gd_ema_swap(a.ema), GD_OK);
        read_parameters(&a.p, got[mode]);
        expect_parameters(&averages, got[mode], 1e-6);
        assert_int_equal(gd_ema_swap(a.ema), GD_OK);
        read_parameters(&a.p, back);
        assert_memory_equal(kept, back, sizeof kept);
        gd_function_release(step);
        gd_ema_release(a.ema);
        gd_optimizer_release(a.p.optimizer);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    assert_null(gd_ema_create(NULL));
    problem p;
    open_problem(&p, *state);
    assert_null(gd_ema_create(p.m, .decay = 1.5));
    expect_error(GD_ERR_INVALID, "decay is 1.5");
}

/* A decay of 0 forgets at once: after each update the average is the parameter. */
static void ema_of_decay_zero_is_the_parameter(void **state)
{
    problem p;
    open_problem(&p, *state);
    gd_ema *ema = gd_ema_create(p.m, .decay = 0);
    assert_int_equal(gd_ema_update(ema), GD_OK);
    static const float b[3] = { 3.0f, -7.0f, 0.1f };
    assert_int_equal(gd_tensor_write(p.b, b, sizeof b), GD_OK);
    assert_int_equal(gd_ema_update(ema), GD_OK);
    assert_int_equal(gd_ema_swap(ema), GD_OK);
    float got[3];
    assert_int_equal(gd_tensor_read(p.b, got, sizeof got), GD_OK);
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(got[i] - b[i]) < 1e-6f);
}

/* ---- zero is a value ---- */

/* The parameter, 1 at first, after two steps with these gradients. */
static double after_two_steps(gd_context *gd, gd_optimizer *o, double first, double second)
{
    gd_tensor *p = gd_module_parameter(gd_optimizer_module(o), "p");
    float value = 1.0f;
    assert_int_equal(gd_tensor_write(p, &value, sizeof value), GD_OK);
    assert_non_null(gd_minimize(o, gd_mul(p, gd_scalar(gd, first, GD_F32))));
    assert_non_null(gd_minimize(o, gd_mul(p, gd_scalar(gd, second, GD_F32))));
    value = (float)gd_item(p);
    gd_optimizer_release(o);
    return (double)value;
}

/* Steps computed from the formulas of gradus/optim.h, in f64, by another program; in brackets what
 * the default would give. */
static void options_of_zero_are_honoured(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd);
    assert_non_null(gd_parameter(m, "p", GD_SCALAR, .init = GD_INIT_ONES));
#define EXPECT(p, optimizer, first, second) \
    assert_true(fabs(after_two_steps(gd, optimizer, first, second) - (p)) < 2e-6)
    EXPECT(0.963255, gd_adam(m, .lr = 0.1, .beta1 = 0), 2, -1);         /* [0.873366] */
    EXPECT(0.857895, gd_adam(m, .lr = 0.1, .beta2 = 0), 2, -1);         /* [0.873366] */
    EXPECT(0.873366, gd_adam(m, .lr = 0.1, .epsilon = 0), 2e-9, -1e-9); /* [0.979698] */
    EXPECT(0.873366, gd_adamw(m, .lr = 0.1, .weight_decay = 0), 2, -1); /* [0.871467] */
    EXPECT(0.871467, gd_adamw(m, .lr = 0.1), 2, -1);
    EXPECT(1.0, gd_rmsprop(m, .lr = 0.1, .alpha = 0), 2, -1);                /* [0.449013] */
    EXPECT(0.944721, gd_adagrad(m, .lr = 0.1, .epsilon = 0), 2e-10, -1e-10); /* [0.964235] */
    EXPECT(1.000414, gd_adadelta(m, .rho = 0), 2, -1);                       /* [0.998923] */
    EXPECT(0.8, gd_lion(m, .lr = 0.1, .beta2 = 0), 2, -1);                   /* [1.0] */
    EXPECT(1.0, gd_sgd(m, .lr = 0), 2, -1);                                  /* [0.999] */
    EXPECT(0.9, gd_sgd(m, .lr = 0.1, .momentum = 0), 2, -1);
    EXPECT(1.0, gd_optimizer_create(m, "adam", .lr = 0), 2, -1);
    EXPECT(0.9, gd_optimizer_create(m, "sgd", .lr = 0.1, .momentum = 0), 2, -1);
    EXPECT(0.72, gd_optimizer_create(m, "sgd", .lr = 0.1, .momentum = 0.9), 2, -1);
#undef EXPECT
}

/* A group with lr 0 stays where it is, also when the optimizer's is changed; one whose lr is the
 * optimizer's, given or not, follows it. */
static void a_group_may_have_lr_zero(void **state)
{
    problem p;
    open_problem(&p, *state);
    gd_optimizer *o = gd_sgd(p.m, .lr = 0.1);
    assert_int_equal(gd_optimizer_group(o, "b", .lr = 0), GD_OK);
    float before[NUMBERS], after[NUMBERS];
    read_parameters(&p, before);
    assert_int_equal(gd_optimizer_set_lr(o, 0.5), GD_OK);
    assert_non_null(gd_minimize(o, loss_of(&p, p.x, p.t)));
    read_parameters(&p, after);
    assert_memory_equal(before + 6, after + 6, 3 * sizeof(float));
    for (int i = 0; i < 6; i++)
        assert_true(before[i] != after[i]);
    gd_optimizer *still = gd_sgd(p.m, .lr = 0);
    assert_int_equal(gd_optimizer_group(still, "b", .lr = 0.1), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "own lr is 0");
}

/* ---- files of state ---- */

static char *state_path(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/test_optimizers_%ld.safetensors", GD_BINARY_DIR,
             (long)getpid());
    return path;
}

static bool can_save(const gd_optimizer *o)
{
    if (gd_optimizer_save(o, state_path()) == GD_OK)
        return true;
    assert_int_equal(gd_error_code(), GD_ERR_UNSUPPORTED); /* a build without jansson */
    gd_error_clear();
    return false;
}

/* Ten steps, saved, and ten more by another optimizer with a compiled step, are twenty. */
static void training_goes_on_from_a_file(void **state)
{
    for (int r = 0; r < ROWS; r++) {
        float whole[NUMBERS], resumed[NUMBERS];
        train(*state, &rows[r], GD_MODE_EAGER, whole);
        problem p;
        open_problem(&p, *state);
        p.optimizer = rows[r].create(p.m);
        for (int i = 0; i < 10; i++)
            assert_non_null(gd_minimize(p.optimizer, loss_of(&p, p.x, p.t)));
        if (!can_save(p.optimizer))
            skip();
        gd_optimizer_release(p.optimizer);
        p.optimizer = rows[r].create(p.m);
        if (gd_optimizer_load(p.optimizer, state_path()) != GD_OK)
            fail_msg("%s: %s", rows[r].name, gd_error_message());
        gd_function *step = gd_compile(*state, step_body, &p);
        for (int i = 0; i < 10; i++)
            assert_non_null(gd_call(step, 2, (gd_tensor *[]){ p.x, p.t }));
        read_parameters(&p, resumed);
        assert_memory_equal(whole, resumed, sizeof whole);
        gd_function_release(step);
        gd_optimizer_release(p.optimizer);
    }
    remove(state_path());
}

static void files_of_others_are_refused(void **state)
{
    problem p;
    open_problem(&p, *state);
    gd_optimizer *adam = gd_adam(p.m), *sgd = gd_sgd(p.m, .momentum = 0.5);
    assert_non_null(gd_minimize(adam, loss_of(&p, p.x, p.t)));
    if (!can_save(adam))
        skip();
    assert_int_equal(gd_optimizer_load(sgd, state_path()), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "holds the state of adam, not of sgd");
    gd_module *other = gd_module_create(*state);
    assert_non_null(gd_parameter(other, "w", GD_SHAPE(3, 2), .init = GD_INIT_ZEROS));
    assert_non_null(gd_parameter(other, "b", GD_SHAPE(3), .init = GD_INIT_ZEROS));
    assert_int_equal(gd_optimizer_load(gd_adam(other), state_path()), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "its \"w.m\" has another shape");
    gd_module *less = gd_module_create(*state);
    assert_non_null(gd_parameter(less, "b", GD_SHAPE(3), .init = GD_INIT_ZEROS));
    assert_int_equal(gd_optimizer_load(gd_adam(less), state_path()), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "it has a \"w.m\"");
    assert_int_equal(gd_optimizer_save(gd_adam(p.m), state_path()), GD_OK); /* no steps yet */
    assert_int_equal(gd_optimizer_load(adam, state_path()), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "it has no \"w.m\"");
    remove(state_path());
    assert_int_equal(gd_optimizer_load(adam, state_path()), GD_ERR_IO);
    gd_error_clear();
    assert_int_equal(gd_optimizer_load(NULL, state_path()), GD_ERR_INVALID);
    assert_int_equal(gd_optimizer_save(NULL, state_path()), GD_ERR_INVALID);
    gd_error_clear();
}

/* ---- L-BFGS ---- */

/* With a penalty, so that there is a minimum to find. */
static gd_tensor *bounded_loss(void *user)
{
    problem *p = user;
    gd_tensor *size = gd_add(gd_sum(gd_square(p->w), GD_ALL_AXES, false),
                             gd_sum(gd_square(p->b), GD_ALL_AXES, false));
    return gd_add(loss_of(p, p->x, p->t), gd_mul_scalar(size, 0.125));
}

/* Losses and gradients are f32 here, f64 in the golden values; so near the minimum, where losses
 * differ by less than f32 holds, a line search ends elsewhere (PyTorch's in float32, too). */
static void lbfgs_equals_pytorch(void **state)
{
    for (int r = 0; r < 3; r++) {
        problem p;
        open_problem(&p, *state);
        gd_lbfgs *l =
            r == 0   ? gd_lbfgs_create(p.m)
            : r == 1 ? gd_lbfgs_create(p.m, .max_iterations = 3, .history = 2)
                     : gd_lbfgs_create(p.m, .lr = 0.5, .max_iterations = 5, .line_search = false);
        static const int steps[] = { 1, 3, 2 };
        double first = NAN, loss = NAN;
        for (int i = 0; i < steps[r]; i++)
            assert_int_equal(gd_lbfgs_step(l, bounded_loss, &p, i ? &loss : &first), GD_OK);
        float got[NUMBERS];
        read_parameters(&p, got);
        expect_parameters(&lbfgs_goldens[r], got, 2e-6);
        assert_true(steps[r] == 1 || loss < first);
        gd_lbfgs_release(l);
    }
}

/* Rosenbrock's valley from (-1.2, 1): the minimum is 0 at (1, 1). */
static gd_tensor *valley(void *user)
{
    problem *p = user;
    gd_tensor *x = gd_select(p->b, 0, 0), *y = gd_select(p->b, 0, 1);
    gd_tensor *along = gd_square(gd_sub(y, gd_square(x)));
    return gd_add(gd_mul_scalar(along, 100), gd_square(gd_rsub_scalar(x, 1)));
}

static void lbfgs_finds_the_end_of_the_valley(void **state)
{
    problem p = { .gd = *state, .m = gd_module_create(*state) };
    p.b = gd_parameter(p.m, "b", GD_SHAPE(2), .init = GD_INIT_ZEROS);
    const float start[2] = { -1.2f, 1.0f };
    float end[2];
    assert_int_equal(gd_tensor_write(p.b, start, sizeof start), GD_OK);
    gd_lbfgs *l = gd_lbfgs_create(p.m, .max_iterations = 100);
    assert_int_equal(gd_lbfgs_step(l, valley, &p, NULL), GD_OK);
    assert_int_equal(gd_tensor_read(p.b, end, sizeof end), GD_OK);
    assert_true(fabsf(end[0] - 1) < 1e-3f && fabsf(end[1] - 1) < 1e-3f);
}

static gd_tensor *no_loss(void *user)
{
    (void)user;
    return NULL;
}

static gd_tensor *whole_batch(void *user)
{
    return ((problem *)user)->x;
}

static gd_tensor *lbfgs_in_a_trace(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    problem *p = user;
    return gd_lbfgs_step(gd_lbfgs_create(p->m), bounded_loss, p, NULL) == GD_OK ? in[0] : NULL;
}

static void lbfgs_errors(void **state)
{
    problem p;
    open_problem(&p, *state);
    gd_lbfgs *l = gd_lbfgs_create(p.m);
    assert_int_equal(gd_lbfgs_step(l, NULL, NULL, NULL), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the closure is NULL");
    assert_int_equal(gd_lbfgs_step(l, no_loss, NULL, NULL), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the closure gave NULL");
    assert_int_equal(gd_lbfgs_step(l, whole_batch, &p, NULL), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "not one number");
    assert_null(gd_lbfgs_create(p.m, .lr = -1));
    expect_error(GD_ERR_INVALID, "lr -1");
    assert_null(gd_lbfgs_create(NULL));
    gd_lbfgs *empty = gd_lbfgs_create(gd_module_create(*state));
    assert_int_equal(gd_lbfgs_step(empty, bounded_loss, &p, NULL), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "no parameter to train");
    gd_function *f = gd_compile(*state, lbfgs_in_a_trace, &p);
    assert_null(gd_call(f, 1, &p.x));
    assert_int_equal(gd_error_code(), GD_ERR_STATE);
    gd_error_clear();
}

/* ---- out of memory, at every allocation in turn ---- */

/* Groups, clipping, averages, a step, a file, and L-BFGS. */
static bool everything(int mode)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_module *m = gd_module_create(gd, .seed = 1);
    averaged a = { .p = { .gd = gd, .m = m } };
    problem *p = &a.p;
    if (m) {
        p->w = gd_parameter(m, "w", GD_SHAPE(2, 3), .init = GD_INIT_DEFAULT);
        p->b = gd_parameter(m, "b", GD_SHAPE(3), .init = GD_INIT_ZEROS);
    }
    p->x = gd ? gd_ones(gd, GD_SHAPE(4, 2), GD_F32) : NULL;
    p->t = gd ? gd_ones(gd, GD_SHAPE(4, 3), GD_F32) : NULL;
    p->optimizer = p->b ? gd_nadam(m, .weight_decay = 0.1, .decoupled = true) : NULL;
    a.ema = p->optimizer ? gd_ema_create(m) : NULL;
    bool ok = a.ema && gd_optimizer_group(p->optimizer, "b", .lr = 0.5) == GD_OK &&
              gd_optimizer_clip_norm(p->optimizer, 1) == GD_OK &&
              gd_optimizer_clip_value(p->optimizer, 0.5) == GD_OK;
    gd_function *step = ok ? gd_compile(gd, averaged_step, &a, .mode = (gd_mode)mode) : NULL;
    ok = step && gd_call(step, 2, (gd_tensor *[]){ p->x, p->t }) &&
         gd_call(step, 2, (gd_tensor *[]){ p->x, p->t });
    ok = ok && gd_backward(loss_of(p, p->x, p->t)) == GD_OK &&
         gd_optimizer_step(p->optimizer) == GD_OK && gd_optimizer_zero_grad(p->optimizer) == GD_OK;
    ok = ok && gd_ema_swap(a.ema) == GD_OK;
    gd_lbfgs *l = ok ? gd_lbfgs_create(m, .max_iterations = 2, .history = 2) : NULL;
    ok = l && gd_lbfgs_step(l, bounded_loss, p, NULL) == GD_OK;
    if (ok && gd_optimizer_save(p->optimizer, state_path()) != GD_OK)
        ok = gd_error_code() == GD_ERR_UNSUPPORTED;
    else
        ok = ok && gd_optimizer_load(p->optimizer, state_path()) == GD_OK;
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++)
        fail_every_allocation(everything, mode);
    remove(state_path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(twenty_steps_equal_pytorch),
        context_test(compiled_equals_eager_bit_for_bit),
        cmocka_unit_test(adam_equals_its_ops_bit_for_bit),
        context_test(moments_do_not_stay_subnormal),
        context_test(an_eager_update_makes_no_temporaries),
        context_test(accumulated_steps_equal_minimize),
        context_test(the_learning_rate_changes_without_a_new_trace),
        context_test(frozen_parameters_stay),
        context_test(parameters_made_later_join_in),
        context_test(wrong_options_are_errors),
        context_test(groups_are_checked),
        context_test(the_norm_of_the_gradients_is_told),
        context_test(averages_equal_pytorch),
        context_test(ema_of_decay_zero_is_the_parameter),
        context_test(options_of_zero_are_honoured),
        context_test(a_group_may_have_lr_zero),
        context_test(training_goes_on_from_a_file),
        context_test(files_of_others_are_refused),
        context_test(lbfgs_equals_pytorch),
        context_test(lbfgs_finds_the_end_of_the_valley),
        context_test(lbfgs_errors),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
