/* tests/test_pass_multi_tensor.c: updates of several tensors as one kernel: which are joined and
 * which are not, that the bits stay eager's on one thread and on two, and what is said of them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "support/context.h"

enum { ROWS = 120, COLUMNS = 9, CALLS = 3, STATES = 4, MOST = 1 << 17 };

/* What bodies use beside in[0] f32 [120, 9]. */
typedef struct things {
    gd_module *module;
    gd_optimizer *optimizer;
    gd_tensor *state[STATES]; // [5, 7], [11], [0, 4], [6, 8]
    gd_tensor *view;          // [2, 8] of the last
    size_t memory_limit;
} things;

typedef struct result {
    float values[MOST]; /* of every call: the result, then all parameters and states */
    size_t count;
    gd_plan_stats stats;
    int updates; /* of the largest kernel of several; 0: there is none */
    char text[1 << 16];
} result;

static void open_things(things *t, gd_context *gd)
{
    static const int64_t shapes[STATES][2] = { { 5, 7 }, { 11, 1 }, { 0, 4 }, { 6, 8 } };
    for (int i = 0; i < STATES; i++)
        t->state[i] = gd_retain(gd_normal(gd, GD_SHAPE(shapes[i][0], shapes[i][1]), 0, 1, GD_F32));
    t->view = gd_retain(gd_slice(t->state[3], 0, 2, 4, 1));
    t->module = gd_module_create(gd, .seed = 1);
    assert_non_null(t->view);
}

static void read_into(result *r, const gd_tensor *t)
{
    size_t count = (size_t)gd_tensor_count(t);
    assert_true(r->count + count <= MOST);
    assert_int_equal(gd_tensor_read(t, &r->values[r->count], count * sizeof(float)), GD_OK);
    r->count += count;
}

/* Momentum where `adam` is false. */
static void run(gd_function_body body, bool adam, gd_mode mode, int threads, const char *switches,
                size_t limit, result *r)
{
    memset(r, 0, sizeof *r);
    gd_context *gd = gd_open(test_device(), .threads = threads, .seed = 6);
    things t = { 0 };
    open_things(&t, gd);
    t.optimizer = adam ? gd_adam(t.module) : gd_sgd(t.module, .lr = 0.1, .momentum = 0.9);
    gd_tensor *in = gd_normal(gd, GD_SHAPE(ROWS, COLUMNS), 0, 1, GD_F32);
    gd_function *f = gd_compile(
        gd, body, &t, .mode = mode, .detached = true,
        .memory_limit = mode == GD_MODE_COMPILED && limit ? limit : SIZE_MAX, .passes = switches);
    for (int call = 0; call < CALLS; call++) {
        gd_tensor *value = gd_call(f, 1, &in);
        if (!value)
            fail_msg("%s", gd_error_message());
        read_into(r, value);
        for (int i = 0; i < STATES; i++)
            read_into(r, t.state[i]);
        for (int i = 0; i < gd_module_count(t.module); i++)
            read_into(r, gd_module_tensor(t.module, i));
    }
    if (mode == GD_MODE_COMPILED) {
        r->stats = gd_function_stats(f);
        assert_true(gd_plan_format(f, r->text, sizeof r->text) < sizeof r->text);
        static const char row[] = "multi_tensor       "; /* of the list of kernels */
        for (const char *at = r->text; (at = strstr(at, row)); at++) {
            int updates = atoi(at + strlen(row));
            r->updates = updates > r->updates ? updates : r->updates;
        }
    }
    gd_close(gd);
}

static result eager, with, without;

/* On one thread and on two, the body has a kernel of `updates` updates or more (0: has none), and
 * the bits it has eagerly. Leaves the plans with and without the pass to be looked at. */
static void check(gd_function_body body, bool adam, int updates)
{
    run(body, adam, GD_MODE_EAGER, 1, "", 0, &eager);
    run(body, adam, GD_MODE_COMPILED, 1, "-multi_tensor", 0, &without);
    assert_non_null(strstr(without.text, "multi_tensor off;"));
    assert_int_equal(without.updates, 0);
    for (int threads = 1; threads <= 2; threads++) {
        run(body, adam, GD_MODE_COMPILED, threads, "", 0, &with);
        if (updates == 0)
            assert_int_equal(with.updates, 0);
        else if (test_device_is_host()) /* elsewhere another alignment decides what pays */
            assert_true(with.updates >= updates);
        assert_int_equal(with.count, eager.count);
        assert_memory_equal(with.values, eager.values, sizeof eager.values);
        assert_memory_equal(without.values, eager.values, sizeof eager.values);
    }
}

static gd_tensor *total(gd_tensor *x)
{
    return gd_sum(x, GD_ALL_AXES, false);
}

/* ---- training ---- */

static gd_tensor *learn(things *t, gd_tensor *x, int layers, int width)
{
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        x = gd_tanh(gd_nn_linear(t->module, name, x, width));
    }
    return gd_minimize(t->optimizer, gd_mean(gd_square(x), GD_ALL_AXES, false));
}

static gd_tensor *narrow(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return learn(user, in[0], 3, 7);
}

/* Together, the updates by Adam are worth two threads. */
static gd_tensor *wide(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return learn(user, in[0], 14, 31);
}

static void joins_updates_of_parameters(void **state)
{
    (void)state;
    for (int adam = 0; adam < 2; adam++) {
        check(narrow, adam, 4);
        assert_true(without.stats.kernels - with.stats.kernels >= with.updates - 1);
        assert_true(with.stats.live_bytes <= without.stats.live_bytes);
        check(wide, adam, 20);
    }
}

/* Gradients do not live longer for it where memory is limited. */
static void keeps_to_a_memory_limit(void **state)
{
    (void)state;
    check(narrow, true, 4);
    const size_t limit = without.stats.arena_bytes;
    run(narrow, true, GD_MODE_COMPILED, 1, "", limit, &with);
    assert_true(with.stats.arena_bytes <= limit);
    assert_memory_equal(with.values, eager.values, sizeof eager.values);
}

/* ---- what may be joined, and what not ---- */

static gd_tensor *independent(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_assign(t->state[0], gd_exp(gd_mul_scalar(t->state[0], 0.5))); /* a group, */
    gd_assign(t->state[2], gd_mul_scalar(t->state[2], 0.9));         /* nothing at all, */
    gd_assign(t->state[1], gd_tanh(t->state[1]));                    /* one op, */
    gd_assign(t->view, gd_add_scalar(t->view, 1));                   /* a part of a tensor */
    return total(in[0]);
}

/* The second reads the first one's new contents. */
static gd_tensor *reads_new(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_assign(t->state[0], gd_tanh(t->state[0]));
    gd_tensor *one = gd_slice(gd_slice(t->state[0], 0, 0, 1, 1), 1, 0, 1, 1); // [1, 1]
    gd_assign(t->state[1], gd_mul(t->state[1], one));
    return total(in[0]);
}

/* The second writes what the first one reads. */
static gd_tensor *reads_old(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *one = gd_slice(gd_slice(t->state[0], 0, 0, 1, 1), 1, 0, 1, 1); // [1, 1]
    gd_assign(t->state[1], gd_mul(t->state[1], one));
    gd_assign(t->state[0], gd_tanh(t->state[0]));
    return total(in[0]);
}

/* Between the two, an op reads the first one's new contents. */
static gd_tensor *is_read_between(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_assign(t->state[0], gd_tanh(t->state[0]));
    gd_tensor *sum = gd_softmax(t->state[0], 0);
    gd_assign(t->state[1], gd_mul(t->state[1], total(sum)));
    return total(in[0]);
}

/* A tensor that is assigned to twice is no target, nor is one whose value is a result. */
static gd_tensor *is_no_target(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_assign(t->state[0], gd_tanh(t->state[0]));
    gd_assign(t->state[3], gd_exp(t->state[3]));
    gd_assign(t->view, gd_tanh(t->view));
    return gd_add(total(in[0]), total(t->state[0]));
}

static void joins_what_is_independent(void **state)
{
    (void)state;
    check(independent, true, 3);
    assert_int_equal(without.stats.kernels - with.stats.kernels, 2);
}

static void leaves_what_depends(void **state)
{
    (void)state;
    check(reads_new, true, 0);
    check(reads_old, true, 0);
    check(is_read_between, true, 0);
    check(is_no_target, true, 0);
}

/* ---- what is said of it ---- */

static void is_one_kernel_to_users(void **state)
{
    gd_context *gd = *state;
    if (!test_device_is_host())
        skip(); /* another alignment decides what pays */
    things t = { 0 };
    open_things(&t, gd);
    t.optimizer = gd_adam(t.module);
    gd_tensor *in = gd_normal(gd, GD_SHAPE(ROWS, COLUMNS), 0, 1, GD_F32);
    gd_function *f = gd_compile(gd, narrow, &t, .detached = true);
    gd_kernel_profile rows[64];
    int kernels = gd_function_profile(f, 1, &in, 2, 64, rows), found = 0;
    assert_int_equal(kernels, gd_function_stats(f).kernels);
    for (int i = 0; i < kernels; i++)
        if (strcmp(rows[i].op, "multi_tensor") == 0) {
            found++;
            assert_non_null(strstr(rows[i].what, " updates: f32["));
            assert_non_null(strstr(rows[i].what, "@fc0.weight"));
            assert_true(rows[i].bytes > 7 * sizeof(float) * (7 * 9 + 7 * 7 + 2 * 7));
        }
    assert_int_equal(found, 1);
    char dot[1 << 14];
    assert_true(gd_plan_format_dot(f, dot, sizeof dot) < sizeof dot);
    assert_non_null(strstr(dot, "label=\"multi_tensor\""));
}

static bool train_once(int adam)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    things t = { .module = gd ? gd_module_create(gd, .seed = 1) : NULL };
    t.optimizer = adam ? gd_adam(t.module) : gd_sgd(t.module, .momentum = 0.9);
    gd_function *f = gd_compile(gd, narrow, &t, .detached = true);
    gd_tensor *in = gd ? gd_zeros(gd, GD_SHAPE(ROWS, COLUMNS), GD_F32) : NULL;
    const bool ok = in && f && gd_call(f, 1, &in);
    gd_close(gd);
    return ok;
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    fail_every_allocation(train_once, 1);
    fail_every_allocation(train_once, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_updates_of_parameters),
        cmocka_unit_test(keeps_to_a_memory_limit),
        cmocka_unit_test(joins_what_is_independent),
        cmocka_unit_test(leaves_what_depends),
        context_test(is_one_kernel_to_users),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
