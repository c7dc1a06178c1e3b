/* tests/test_compile.c: compiled functions against eager execution, bit for bit; effects, caching,
 * passes, and what running costs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradus/autograd.h>

#include "support/effort.h"
#include "support/guard.h"
#include <gradus/compile.h>
#include <gradus/nn.h>
#include <gradus/ops.h>
#include <gradus/optim.h>

static void assert_error(gd_status status, const char *part)
{
    assert_int_equal(gd_error_code(), status);
    if (!strstr(gd_error_message(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, gd_error_message());
    gd_error_clear();
}

static int open_context(void **state)
{
    gd_error_clear();
    *state = gd_open(test_device(), .threads = 1, .seed = 3);
    return *state ? 0 : -1;
}

static int close_context(void **state)
{
    gd_close(*state);
    gd_error_clear();
    return 0;
}

/* ---- a training step: two layers, Adam-like state, a metric, dropout-like noise ---- */

typedef struct trainee {
    gd_tensor *w[2], *m[2], *count, *noise_seen;
} trainee;

static gd_tensor *parameter(gd_context *gd, gd_shape shape)
{
    return gd_set_requires_grad(gd_retain(gd_normal(gd, shape, 0, 0.3, GD_F32)), true);
}

static trainee make_trainee(gd_context *gd)
{
    trainee t = { .w = { parameter(gd, GD_SHAPE(12, 9)), parameter(gd, GD_SHAPE(9, 5)) },
                  .m = { gd_retain(gd_zeros(gd, GD_SHAPE(12, 9), GD_F32)),
                         gd_retain(gd_zeros(gd, GD_SHAPE(9, 5), GD_F32)) },
                  .count = gd_retain(gd_scalar(gd, 0, GD_F32)),
                  .noise_seen = gd_retain(gd_scalar(gd, 0, GD_F32)) };
    return t;
}

static gd_tensor *train_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_context *gd = gd_tensor_context(in[0]);
    gd_tensor *noise = gd_uniform(gd, gd_tensor_shape(in[0]), 0.9, 1.1, GD_F32);
    gd_tensor *hidden = gd_relu(gd_matmul(gd_mul(in[0], noise), t->w[0]));
    gd_tensor *logits = gd_matmul(gd_tanh(hidden), t->w[1]);
    gd_tensor *loss = gd_cross_entropy(logits, in[1]);
    gd_tensor *g[2];
    if (gd_grad(1, &loss, NULL, 2, t->w, g) != GD_OK)
        return NULL;
    for (int i = 0; i < 2; i++) {
        gd_tensor *m = gd_add(gd_mul_scalar(t->m[i], 0.9), gd_mul_scalar(g[i], 0.1));
        gd_assign(t->w[i],
                  gd_sub(t->w[i], gd_mul_scalar(gd_div(m, gd_add_scalar(gd_abs(m), 1e-3)), 0.01)));
        gd_assign(t->m[i], m);
    }
    gd_assign(t->count, gd_add_scalar(t->count, 1.0));
    gd_assign(t->noise_seen, gd_mean(noise, GD_ALL_AXES, false));
    gd_output(logits);
    return loss;
}

enum { STEPS = 25, WEIGHTS = 12 * 9 + 9 * 5 };

typedef struct outcome {
    float loss[STEPS], logit[STEPS], weights[WEIGHTS], count, noise;
} outcome;

static outcome run_training(gd_mode mode, int threads, const char *passes)
{
    gd_context *gd = gd_open(test_device(), .threads = threads, .seed = 5);
    trainee t = make_trainee(gd);
    gd_function *f = gd_compile(gd, train_step, &t, .mode = mode, .passes = passes);
    outcome result;
    memset(&result, 0, sizeof result);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(gd_scope_begin(gd), GD_OK);
        int64_t n = i % 4 == 3 ? 3 : 7; /* the batch size changes */
        gd_tensor *x = gd_normal(gd, GD_SHAPE(n, 12), 0, 1, GD_F32);
        gd_tensor *y = gd_cast(gd_uniform(gd, GD_SHAPE(n), 0, 5, GD_F32), GD_I64);
        gd_tensor *loss = gd_call(f, 2, (gd_tensor *[]){ x, y });
        if (!loss)
            fail_msg("%s", gd_error_message());
        result.loss[i] = (float)gd_item(loss);
        gd_tensor *logits = gd_function_result(f, 1);
        assert_int_equal(gd_tensor_shape(logits).dim[0], n);
        result.logit[i] = (float)gd_item(gd_sum(logits, GD_ALL_AXES, false));
        assert_null(gd_function_result(f, 2));
        assert_int_equal(gd_scope_end(gd), GD_OK);
    }
    assert_int_equal(gd_tensor_read(t.w[0], result.weights, 12 * 9 * sizeof(float)), GD_OK);
    assert_int_equal(gd_tensor_read(t.w[1], result.weights + 12 * 9, 9 * 5 * sizeof(float)), GD_OK);
    result.count = (float)gd_item(t.count);
    result.noise = (float)gd_item(t.noise_seen);
    if (mode == GD_MODE_COMPILED)
        assert_int_equal(gd_function_stats(f).traces, 2);
    if (mode == GD_MODE_LAZY) {
        assert_int_equal(gd_function_stats(f).traces, STEPS);
        assert_int_equal(gd_function_stats(f).plans, 2);
    }
    gd_close(gd);
    return result;
}

static void a_training_step_equals_eager_bit_for_bit(void **state)
{
    (void)state;
    outcome eager = run_training(GD_MODE_EAGER, 1, NULL);
    assert_true(eager.count == STEPS);
    assert_true(eager.loss[0] != eager.loss[STEPS - 1]);
    for (int threads = 1; threads <= 8; threads *= 2) {
        outcome compiled = run_training(GD_MODE_COMPILED, threads, NULL);
        assert_memory_equal(&eager, &compiled, sizeof eager);
    }
    outcome lazy = run_training(GD_MODE_LAZY, 2, NULL);
    assert_memory_equal(&eager, &lazy, sizeof eager);
}

/* What the body does in plain C is done at every lazy call: each recording that is new makes a
 * plan. */
static gd_tensor *counts_in_c(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    int *calls = user;
    return ++*calls % 3 ? gd_mul_scalar(in[0], (double)(*calls % 3)) : gd_neg(in[0]);
}

static void a_lazy_body_is_recorded_at_every_call(void **state)
{
    gd_context *gd = *state;
    int calls = 0;
    gd_function *f = gd_compile(gd, counts_in_c, &calls, .mode = GD_MODE_LAZY);
    gd_tensor *x = gd_scalar(gd, 5, GD_F32);
    for (int i = 1; i <= 12; i++)
        assert_true(gd_item(gd_call(f, 1, &x)) == (i % 3 ? 5.0 * (i % 3) : -5.0));
    assert_int_equal(calls, 12);
    assert_int_equal(gd_function_stats(f).plans, 3);
    assert_int_equal(gd_function_stats(f).traces, 12);
    int64_t live = gd_memory(gd).live_tensors;
    for (int i = 0; i < 30; i++)
        assert_non_null(gd_call(f, 1, &x));
    assert_int_equal(gd_memory(gd).live_tensors, live);
    assert_int_equal(gd_function_prepare(f, 1, &x), GD_ERR_STATE);
    gd_error_clear();
}

static void every_pass_may_be_switched_off(void **state)
{
    (void)state;
    outcome eager = run_training(GD_MODE_EAGER, 2, NULL);
    const char *names[] = { "-cse",     "-dead",     "-fold",     "-epilogue", "-fuse",
                            "-forward", "-schedule", "-simplify", "-sink",     "-recompute" };
    char list[96];
    int number = 0;
    for (unsigned mask = 0; mask < 1024; mask++) {
        if (!test_tries_similar(&number))
            continue;
        list[0] = '\0';
        for (int i = 0; i < 10; i++)
            if (mask & (1u << i)) {
                if (list[0])
                    strcat(list, ",");
                strcat(list, names[i]);
            }
        outcome compiled = run_training(GD_MODE_COMPILED, 1, list);
        if (memcmp(&eager, &compiled, sizeof eager) != 0)
            fail_msg(".passes = %s changes the result", list);
    }
}

/* ---- running ---- */

static void running_a_plan_allocates_nothing(void **state)
{
    gd_context *gd = *state;
    trainee t = make_trainee(gd);
    gd_function *f = gd_compile(gd, train_step, &t);
    gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(7, 12), GD_F32), gd_zeros(gd, GD_SHAPE(7), GD_I64) };
    assert_non_null(gd_call(f, 2, in));
    gd_memory_stats before = gd_memory(gd);
    gd_fail_allocations_after(0);
    for (int i = 0; i < 10; i++)
        assert_non_null(gd_call(f, 2, in));
    assert_int_equal(gd_fail_allocations_after(-1), 0);
    assert_int_equal(gd_memory(gd).allocations, before.allocations);
    assert_int_equal(gd_memory(gd).live_tensors, before.live_tensors);
}

static void results_and_statistics_are_given(void **state)
{
    gd_context *gd = *state;
    trainee t = make_trainee(gd);
    gd_function *f = gd_compile(gd, train_step, &t);
    assert_int_equal(gd_plan_format(f, NULL, 0), 0);
    gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(7, 12), GD_F32), gd_zeros(gd, GD_SHAPE(7), GD_I64) };
    gd_tensor *loss = gd_call(f, 2, in);
    assert_ptr_equal(loss, gd_function_result(f, 0));
    gd_shape logits = gd_tensor_shape(gd_function_result(f, 1));
    assert_true(logits.rank == 2 && logits.dim[0] == 7 && logits.dim[1] == 5);
    assert_null(gd_function_result(f, 2));
    gd_plan_stats stats = gd_function_stats(f);
    assert_int_equal(stats.plans, 1);
    assert_int_equal(stats.calls, 1);
    assert_true(stats.kernels > 5 && stats.kernels < stats.nodes_traced);
    assert_true(stats.arena_bytes >= stats.live_bytes && stats.live_bytes > 0);
    size_t length = gd_plan_format(f, NULL, 0);
    char *text = malloc(length + 1);
    assert_int_equal(gd_plan_format(f, text, length + 1), length);
    assert_int_equal(strlen(text), length);
    assert_non_null(strstr(text, "linear"));
    assert_non_null(strstr(text, "fused"));
    free(text);
}

static void plans_are_drawn_and_profiled(void **state)
{
    gd_context *gd = *state;
    trainee t = make_trainee(gd);
    gd_function *f = gd_compile(gd, train_step, &t);
    gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(7, 12), GD_F32), gd_zeros(gd, GD_SHAPE(7), GD_I64) };
    gd_kernel_profile rows[100];
    int kernels = gd_function_profile(f, 2, in, 3, 100, rows);
    assert_int_equal(kernels, gd_function_stats(f).kernels);
    assert_true(gd_item(t.count) == 4.0);
    bool product = false;
    for (int i = 0; i < kernels; i++) {
        assert_true(rows[i].seconds >= 0 && rows[i].bytes > 0);
        product |= strcmp(rows[i].op, "linear") == 0 && rows[i].flops == 2.0 * 7 * 12 * 9;
    }
    assert_true(product);
    char table[16384], json[32768];
    gd_profile_bounds bounds = { 1e9, 1e9 };
    size_t length = gd_profile_format(kernels, rows, bounds, table, sizeof table);
    assert_true(length == strlen(table) && strstr(table, "of bound") && strstr(table, "linear"));
    assert_int_equal(gd_profile_format(kernels, rows, bounds, NULL, 0), length);
    assert_int_equal(gd_profile_format(0, NULL, bounds, table, sizeof table), 0);
    rows[0].op = "a \"quoted\\ name";
    assert_true(gd_profile_format_trace(kernels, rows, json, sizeof json) == strlen(json));
    assert_non_null(strstr(json, "\"name\": \"a \\u0022quoted\\u005c name\", \"ts\": "));
    assert_int_equal(gd_function_profile(f, 2, in, 0, 100, rows), -1);
    assert_error(GD_ERR_INVALID, "0 runs");
    static char text[65536];
    (void)gd_set_name(t.w[0], "w\"0\\");
    assert_true(gd_plan_format_dot(f, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "digraph plan {"));
    assert_non_null(strstr(text, "linear"));
    assert_non_null(strstr(text, "style=bold, label=\"w\\\"0\\\\\\n"));
    assert_non_null(strstr(text, "\\nin w\\\"0\\\\"));       /* the update */
    assert_non_null(strstr(text, "[peripheries=2, label=")); /* the logits */
    (void)gd_set_name(t.w[0], "w<0>&");
    length = gd_plan_format_svg(f, 0, NULL, text, sizeof text);
    assert_in_range(length, 1, sizeof text - 1);
    assert_int_equal(strlen(text), length);
    assert_non_null(strstr(text, "<tspan class=\"o\">linear</tspan> f32["));
    assert_non_null(strstr(text, "w&lt;0&gt;&amp;"));
    assert_null(strstr(text, "w<0>"));
    assert_non_null(strstr(text, "bytes that a kernel moves"));
    assert_non_null(strstr(text, "</title></rect>\n")); /* of the memory */
    int bars = 0;
    for (const char *at = text; (at = strstr(at, " %</text>")); at++)
        bars++;
    assert_int_equal(bars, kernels);
    assert_true(gd_plan_format_svg(f, kernels, rows, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "the shortest time of a kernel"));
    assert_int_equal(gd_plan_format_svg(f, -1, rows, text, sizeof text), 0);
    assert_error(GD_ERR_INVALID, "-1 rows");
    assert_int_equal(gd_plan_format_svg(NULL, 0, NULL, text, sizeof text), 0);
    for (int i = 0; i + 1 < kernels; i++) /* one run, in which none overlaps */
        assert_true(rows[i].start + rows[i].seconds <= rows[i + 1].start + 1e-9);
}

/* ---- how many threads ---- */

/* data: how wide the layers are. */
static gd_tensor *deep(void *data, int count, gd_tensor *const *in)
{
    (void)count;
    gd_context *gd = gd_tensor_context(in[0]);
    const int64_t width = *(const int64_t *)data;
    gd_tensor *x = in[0];
    for (int layer = 0; layer < 9; layer++)
        x = gd_matmul(gd_tanh(x), gd_full(gd, GD_SHAPE(width, width), 0.01 * (layer + 1), GD_F32));
    return x;
}

/* A plan of many kernels and little work runs on one thread, and a large one, or a small one of few
 * kernels, on those that its kernels take. The device has its threads again afterwards. */
static void a_small_plan_runs_on_one_thread(void **state)
{
    (void)state;
    static char text[1 << 16];
    for (int is_large = 0; is_large < 2; is_large++) {
        int64_t width = is_large ? 256 : 48;
        gd_context *gd = gd_open("cpu", .threads = 2, .seed = 2);
        gd_tensor *x = gd_normal(gd, GD_SHAPE(64, width), 0, 1, GD_F32), *made[2];
        for (int eager = 0; eager < 2; eager++) {
            gd_function *f = gd_compile(gd, deep, &width, .detached = true,
                                        .mode = eager ? GD_MODE_EAGER : GD_MODE_COMPILED);
            made[eager] = gd_call(f, 1, &x);
            assert_non_null(made[eager]);
            assert_int_equal(gd_context_threads(gd), 2);
            if (eager)
                continue;
            assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
            assert_int_equal(strstr(text, "all on one thread") != NULL, !is_large);
            assert_int_equal(strstr(text, "; 2 threads") != NULL, is_large);
            gd_kernel_profile rows[32];
            assert_true(gd_function_profile(f, 1, &x, 2, 32, rows) >= 9);
            assert_int_equal(gd_context_threads(gd), 2);
        }
        static float values[2][64 * 256];
        const size_t bytes = (size_t)gd_tensor_count(x) * sizeof(float);
        for (int i = 0; i < 2; i++)
            assert_int_equal(gd_tensor_read(made[i], values[i], bytes), GD_OK);
        assert_memory_equal(values[0], values[1], bytes);
        gd_close(gd);
    }
}

/* ---- what the passes make of an optimizer ---- */

enum { LAYERS = 15 };

typedef struct mlp {
    gd_module *module;
    gd_optimizer *optimizer;
} mlp;

static gd_tensor *mlp_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    mlp *net = user;
    gd_tensor *h = in[0];
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        h = gd_nn_linear(net->module, name, h, 10);
        h = i + 1 < LAYERS ? gd_relu(h) : h;
    }
    gd_tensor *loss = gd_cross_entropy(h, in[1]);
    return gd_minimize(net->optimizer, loss);
}

/* Adam reads p, g, m and v once, and writes p, m and v: one kernel for each of 30 parameters. */
static void an_update_is_one_kernel_a_parameter(void **state)
{
    gd_context *gd = *state;
    mlp net = { gd_module_create(gd, .seed = 1), NULL };
    net.optimizer = gd_adam(net.module);
    gd_function *f =
        gd_compile(gd, mlp_step, &net, .passes = "-multi_tensor"); /* would join them */
    gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(7, 9), 0, 1, GD_F32),
                         gd_zeros(gd, GD_SHAPE(7), GD_I64) };
    assert_non_null(gd_call(f, 2, in));
    static char text[1 << 18];
    assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
    int updates = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        bool writes_parameter = strncmp(line, "fused", 5) == 0 && strstr(line, "@fc") != NULL &&
                                strstr(line, "@fc") < strstr(line, "<-");
        updates += writes_parameter;
        /* The op adam; or its formula, from the gradient to the new parameter, with m and v (*) on the
         * way. */
        const char *moment = "flush_subnormal*";
        const char *m = strstr(line, moment), *v = m ? strstr(m + 1, moment) : NULL;
        if (writes_parameter && !strstr(line, "{adam*}") &&
            (!strstr(line, "{sub ") || !v || !strstr(v, "sqrt") || !strstr(v, "sub}")))
            fail_msg("not one pass: %s", line);
        assert_true(strncmp(line, "assign", 6) != 0);
    }
    assert_int_equal(updates, 2 * LAYERS);
    /* Updates come as soon as their gradients are there: these never lie side by side. */
    gd_function *late = gd_compile(gd, mlp_step, &net, .passes = "-schedule");
    assert_non_null(gd_call(late, 2, in));
    assert_true(gd_function_stats(f).arena_bytes < gd_function_stats(late).arena_bytes);
}

/* Lion makes p before m, so that nothing reads the old m when the new one is made in its place. */
static void an_update_by_lion_copies_nothing(void **state)
{
    gd_context *gd = *state;
    mlp net = { gd_module_create(gd, .seed = 1), NULL };
    net.optimizer = gd_lion(net.module);
    gd_function *f = gd_compile(gd, mlp_step, &net);
    gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(7, 9), 0, 1, GD_F32),
                         gd_zeros(gd, GD_SHAPE(7), GD_I64) };
    assert_non_null(gd_call(f, 2, in));
    static char text[1 << 18];
    assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
    assert_null(strstr(text, "\nassign"));
}

/* ---- signatures ---- */

static gd_tensor *twice(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_add(in[0], in[0]);
}

static void plans_are_cached_by_signature(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, twice, NULL, .cache_limit = 2);
    gd_tensor *a = gd_arange(gd, 0, 6, 1, GD_F32), *b = gd_reshape(a, GD_SHAPE(2, 3)),
              *c = gd_transpose(b, 0, 1);
    gd_tensor *d = gd_cast(a, GD_I64);
    for (int round = 0; round < 3; round++)
        assert_non_null(gd_call(f, 1, &a));
    assert_int_equal(gd_function_stats(f).traces, 1);
    assert_non_null(gd_call(f, 1, &b));
    gd_tensor *r = gd_call(f, 1, &c);
    float values[6], expected[6] = { 0, 6, 2, 8, 4, 10 };
    assert_int_equal(gd_tensor_read(r, values, sizeof values), GD_OK);
    assert_memory_equal(values, expected, sizeof values);
    assert_non_null(gd_call(f, 1, &d));
    gd_plan_stats stats = gd_function_stats(f);
    assert_int_equal(stats.plans, 2);
    assert_int_equal(stats.traces, 4);
    assert_int_equal(stats.evictions, 2);
    /* The same memory again, elsewhere: addresses are arguments, not part of the plan. */
    gd_tensor *e = gd_slice(gd_cast(gd_arange(gd, 10, 20, 1, GD_F32), GD_I64), 0, 1, 7, 1);
    assert_true(gd_item(gd_sum(gd_call(f, 1, &e), GD_ALL_AXES, false)) ==
                2 * (11 + 12 + 13 + 14 + 15 + 16));
    assert_int_equal(gd_function_stats(f).traces, 4);
    gd_function_release(f);
}

static gd_tensor *first_input(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_output(in[0]);
    return in[0];
}

static void an_argument_may_be_the_result(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, first_input, NULL);
    gd_tensor *x = gd_arange(gd, 0, 3, 1, GD_F32);
    gd_tensor *r = gd_call(f, 1, &x);
    assert_true(r != x && gd_item(gd_sum(r, GD_ALL_AXES, false)) == 3.0);
    assert_true(gd_item(gd_sum(gd_function_result(f, 1), GD_ALL_AXES, false)) == 3.0);
}

static gd_tensor *outer_of_outputs(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_output(gd_mul_scalar(in[0], 5.0));
    gd_tensor *y = gd_call(user, 1, in); /* what it gives to gd_output is not this one's */
    return gd_add(gd_output(gd_mul_scalar(in[0], 7.0)), y);
}

static void every_function_has_its_own_results(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_scalar(gd, 3, GD_F32);
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_LAZY; mode++) {
        gd_function *inner = gd_compile(gd, first_input, NULL, .mode = (gd_mode)mode);
        gd_function *f = gd_compile(gd, outer_of_outputs, inner, .mode = (gd_mode)mode);
        assert_true(gd_item(gd_call(f, 1, &x)) == 24.0);
        assert_true(gd_item(gd_function_result(f, 1)) == 15.0);
        assert_true(gd_item(gd_function_result(f, 2)) == 21.0);
        assert_null(gd_function_result(f, 3));
        assert_ptr_equal(gd_output(x), x);
        gd_function_release(f);
        gd_function_release(inner);
    }
}

static void empty_and_0d_signatures_work(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, twice, NULL);
    gd_tensor *none = gd_zeros(gd, GD_SHAPE(0, 3), GD_F32), *number = gd_scalar(gd, 4, GD_F32);
    assert_int_equal(gd_tensor_count(gd_call(f, 1, &none)), 0);
    assert_true(gd_item(gd_call(f, 1, &number)) == 8.0);
}

/* ---- nesting, gradients through calls ---- */

static gd_tensor *outer(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_call(user, 1, in); /* 2x */
    return gd_call(user, 1, &y);         /* 4x */
}

static gd_tensor *gradient_of_inner(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_square(gd_call(user, 1, in)); /* 4 x^2 */
    gd_tensor *g;
    gd_tensor *x = in[0];
    return gd_grad(1, &y, NULL, 1, &x, &g) == GD_OK ? g : NULL;
}

static void compiled_functions_nest(void **state)
{
    gd_context *gd = *state;
    gd_function *inner = gd_compile(gd, twice, NULL), *f = gd_compile(gd, outer, inner);
    gd_tensor *x = gd_scalar(gd, 3, GD_F64);
    assert_true(gd_item(gd_call(f, 1, &x)) == 12.0);
    gd_function *g = gd_compile(gd, gradient_of_inner, inner);
    gd_set_requires_grad(x, true);
    assert_true(gd_item(gd_call(g, 1, &x)) == 24.0);
}

/* in: w and x. The gradient of x by itself is the seed, made of w: a copy of it, that is read twice, as
 * the seed is. What comes back to w is added up by the copy first. */
static gd_tensor *gradient_by_a_seeds_weight(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *seed = gd_sigmoid(in[0]), *x = in[1], *y = gd_add_scalar(x, 1), *g, *result;
    if (gd_grad(1, &y, &seed, 1, &x, &g) != GD_OK)
        return NULL;
    gd_tensor *sum = gd_add(gd_mul_scalar(g, 0.71), gd_square(g));
    sum = gd_add(sum, gd_add(gd_mul_scalar(seed, 1.37), gd_square(seed)));
    gd_tensor *loss = gd_sum(gd_mul(sum, x), GD_ALL_AXES, false), *w = in[0];
    return gd_grad(1, &loss, NULL, 1, &w, &result) == GD_OK ? result : NULL;
}

static void gradients_of_gradients_that_are_seeds_have_the_bits(void **state)
{
    gd_context *gd = *state;
    enum { COUNT = 1000 };
    gd_tensor *in[2];
    for (int i = 0; i < 2; i++)
        in[i] = gd_set_requires_grad(gd_detach(gd_normal(gd, GD_SHAPE(COUNT), 0, 1, GD_F32)), true);
    gd_function *f = gd_compile(gd, gradient_by_a_seeds_weight, NULL);
    float eager[COUNT], compiled[COUNT];
    gd_tensor *y = gradient_by_a_seeds_weight(NULL, 2, in), *z = gd_call(f, 2, in);
    assert_int_equal(gd_tensor_read(y, eager, sizeof eager), GD_OK);
    assert_int_equal(gd_tensor_read(z, compiled, sizeof compiled), GD_OK);
    assert_memory_equal(eager, compiled, sizeof eager);
}

/* ---- effects ---- */

typedef struct states {
    gd_tensor *a, *b;
} states;

/* Reads before and after assignments, twice to one tensor, and a swap. */
static gd_tensor *many_effects(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    states *s = user;
    gd_tensor *old = gd_mul_scalar(s->a, 10.0);
    gd_assign(s->a, gd_add(s->a, in[0]));
    gd_tensor *middle = gd_mul_scalar(s->a, 100.0);
    gd_assign(s->a, gd_add(s->a, s->a));
    gd_tensor *kept = gd_add_scalar(s->a, 0.0);
    gd_assign(s->a, s->b);
    gd_assign(s->b, kept);
    return gd_add(gd_add(old, middle), gd_add(s->a, s->b));
}

static void effects_happen_in_order(void **state)
{
    gd_context *gd = *state;
    double result[2], a[2], b[2];
    for (int mode = 0; mode < 2; mode++) {
        states s = { gd_retain(gd_scalar(gd, 1, GD_F64)), gd_retain(gd_scalar(gd, 2, GD_F64)) };
        gd_function *f =
            gd_compile(gd, many_effects, &s, .mode = mode ? GD_MODE_EAGER : GD_MODE_COMPILED);
        gd_tensor *x = gd_scalar(gd, 0.5, GD_F64);
        for (int i = 0; i < 3; i++)
            result[mode] = gd_item(gd_call(f, 1, &x));
        a[mode] = gd_item(s.a);
        b[mode] = gd_item(s.b);
    }
    assert_true(result[0] == result[1] && a[0] == a[1] && b[0] == b[1]);
}

static gd_tensor *stale_view(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    states *s = user;
    gd_tensor *view = gd_reshape(s->a, GD_SHAPE(1));
    gd_assign(s->a, in[0]);
    return gd_add(view, view);
}

static void a_view_from_before_an_assignment_is_refused(void **state)
{
    gd_context *gd = *state;
    states s = { gd_retain(gd_scalar(gd, 1, GD_F32)), NULL };
    gd_function *f = gd_compile(gd, stale_view, &s);
    gd_tensor *x = gd_scalar(gd, 0.5, GD_F32);
    assert_null(gd_call(f, 1, &x));
    assert_error(GD_ERR_STATE, "make the view again");
}

static gd_tensor *backward_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    states *s = user;
    gd_tensor *loss = gd_sum(gd_square(gd_mul(s->a, in[0])), GD_ALL_AXES, false);
    return gd_backward(loss) == GD_OK ? loss : NULL;
}

static void backward_in_a_plan_accumulates(void **state)
{
    gd_context *gd = *state;
    states s = { gd_set_requires_grad(gd_retain(gd_scalar(gd, 3, GD_F32)), true), NULL };
    gd_function *f = gd_compile(gd, backward_step, &s);
    gd_tensor *x = gd_scalar(gd, 2, GD_F32);
    for (int i = 1; i <= 3; i++) {
        assert_non_null(gd_call(f, 1, &x));
        assert_true(gd_item(gd_gradient(s.a)) == 24.0 * i); /* 2 a x^2 */
    }
}

static gd_tensor *makes_state(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    states *s = user;
    if (!s->a) {
        gd_context *gd = gd_tensor_context(in[0]);
        gd_trace_pause(gd);
        s->a = gd_retain(gd_scalar(gd, 0, GD_F32));
        gd_trace_resume(gd);
    }
    return gd_assign(s->a, gd_add(s->a, in[0]));
}

static void state_may_be_made_while_tracing(void **state)
{
    gd_context *gd = *state;
    states s = { NULL, NULL };
    gd_function *f = gd_compile(gd, makes_state, &s);
    gd_tensor *x = gd_scalar(gd, 2, GD_F32);
    assert_true(gd_item(gd_call(f, 1, &x)) == 2.0);
    assert_true(gd_item(gd_call(f, 1, &x)) == 4.0);
    assert_true(gd_item(s.a) == 4.0);
}

typedef struct paused_call {
    gd_function *inner;
    gd_tensor *constant;
} paused_call;

static gd_tensor *square_of_first(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_square(in[0]);
}

static gd_tensor *calls_while_paused(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    paused_call *p = user;
    gd_context *gd = gd_tensor_context(in[0]);
    gd_trace_pause(gd);
    double value = gd_item(gd_call(p->inner, 1, &p->constant));
    gd_trace_resume(gd);
    return gd_mul_scalar(in[0], value);
}

static void a_function_may_be_called_while_tracing_is_paused(void **state)
{
    gd_context *gd = *state;
    paused_call p = { gd_compile(gd, square_of_first, NULL), gd_scalar(gd, 3, GD_F32) };
    gd_function *f = gd_compile(gd, calls_while_paused, &p);
    gd_tensor *x = gd_scalar(gd, 2, GD_F32);
    for (int i = 0; i < 2; i++)
        assert_true(gd_item(gd_call(f, 1, &x)) == 18.0);
    assert_int_equal(gd_function_stats(p.inner).calls, 1); /* while f was traced */
}

/* ---- errors ---- */

static gd_tensor *reads_traced_value(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    *(double *)user = gd_item(in[0]);
    return in[0];
}

static gd_tensor *fails(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_reshape(in[0], GD_SHAPE(1234));
}

static gd_tensor *stolen;
static gd_tensor *squares(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_sum(gd_square(gd_mul(in[0], user)), GD_ALL_AXES, false);
}

/* The history of a result goes when the next call begins: two are never there at once. */
static void an_eager_call_lets_the_result_before_go(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(256, 256), GD_F32), true);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(256, 256), GD_F32);
    gd_function *f = gd_compile(gd, squares, w, .mode = GD_MODE_EAGER);
    assert_non_null(gd_call(f, 1, &x));
    size_t peak = gd_memory(gd).peak;
    gd_tensor *y = gd_call(f, 1, &x);
    assert_int_equal(gd_memory(gd).peak, peak);
    y = gd_call(f, 1, &y); /* and one that is an argument stays as long as it is that */
    assert_true(gd_item(y) == 256.0 * 256 * 65536 * 65536);
}

static gd_tensor *steals(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    stolen = gd_retain(gd_neg(in[0]));
    return stolen;
}

static gd_tensor *picks(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_gather(in[0], in[1], 0);
}

static void errors_leave_nothing_behind(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_arange(gd, 0, 3, 1, GD_F32);
    int64_t live = gd_memory(gd).live_tensors;
    double value;
    (void)gd_call(gd_compile(gd, reads_traced_value, &value), 1, &x);
    assert_error(GD_ERR_STATE, "being traced");
    assert_null(gd_call(gd_compile(gd, fails, NULL), 1, &x));
    assert_error(GD_ERR_SHAPE, "gd_reshape");
    assert_null(gd_call(NULL, 0, NULL));
    gd_error_clear();
    gd_tensor *nothing = NULL;
    assert_null(gd_call(gd_compile(gd, twice, NULL), 1, &nothing));
    assert_error(GD_ERR_INVALID, "input 0 is NULL");
    assert_null(
        gd_compile(gd, NULL, NULL, .mode = GD_MODE_EAGER)); /* without a body: compiled alone */
    gd_error_clear();
    assert_true(gd_memory(gd).live_tensors <= live + 1); /* the first function's result */

    /* A traced value that outlives its trace can be released, not used. */
    assert_non_null(gd_call(gd_compile(gd, steals, NULL), 1, &x));
    assert_null(gd_add(stolen, x));
    assert_error(GD_ERR_STATE, "traced");
    gd_release(stolen);

    /* What only values show fails the call, not the plan. */
    gd_function *f = gd_compile(gd, picks, NULL);
    int64_t index = 7;
    gd_tensor *in[2] = { x, gd_from_host(gd, GD_SHAPE(1), GD_I64, &index) };
    assert_true(!gd_call(f, 2, in) || gd_synchronize(gd) != GD_OK);
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    gd_error_clear();
    index = 2;
    assert_int_equal(gd_tensor_write(in[1], &index, sizeof index), GD_OK);
    assert_true(gd_item(gd_call(f, 2, in)) == 2.0);
}

/* Make every allocation of tracing, planning and running fail in turn. */
static void fail_every_allocation_of_a_call(gd_mode mode)
{
    bool done = false;
    for (int64_t n = 0; !done; n += test_allocation_step()) {
        assert_true(n < 100000);
        gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 5);
        trainee t = make_trainee(gd);
        gd_function *f = gd_compile(gd, train_step, &t, .mode = mode);
        gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(7, 12), GD_F32),
                             gd_zeros(gd, GD_SHAPE(7), GD_I64) };
        gd_fail_allocations_after(n);
        gd_tensor *loss = gd_call(f, 2, in);
        done = gd_fail_allocations_after(-1) <= n;
        if (loss) {
            assert_true(done);
        } else {
            assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
            gd_error_clear();
            assert_non_null(gd_call(f, 2, in)); /* nothing is broken */
        }
        gd_close(gd);
    }
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_LAZY; mode++)
        fail_every_allocation_of_a_call((gd_mode)mode);
}

#define IN_CONTEXT(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_step_equals_eager_bit_for_bit),
        cmocka_unit_test(every_pass_may_be_switched_off),
        IN_CONTEXT(a_lazy_body_is_recorded_at_every_call),
        IN_CONTEXT(running_a_plan_allocates_nothing),
        IN_CONTEXT(results_and_statistics_are_given),
        IN_CONTEXT(plans_are_drawn_and_profiled),
        cmocka_unit_test(a_small_plan_runs_on_one_thread),
        IN_CONTEXT(an_update_is_one_kernel_a_parameter),
        IN_CONTEXT(an_update_by_lion_copies_nothing),
        IN_CONTEXT(plans_are_cached_by_signature),
        IN_CONTEXT(an_argument_may_be_the_result),
        IN_CONTEXT(every_function_has_its_own_results),
        IN_CONTEXT(empty_and_0d_signatures_work),
        IN_CONTEXT(compiled_functions_nest),
        IN_CONTEXT(gradients_of_gradients_that_are_seeds_have_the_bits),
        IN_CONTEXT(effects_happen_in_order),
        IN_CONTEXT(a_view_from_before_an_assignment_is_refused),
        IN_CONTEXT(backward_in_a_plan_accumulates),
        IN_CONTEXT(state_may_be_made_while_tracing),
        IN_CONTEXT(a_function_may_be_called_while_tracing_is_paused),
        IN_CONTEXT(errors_leave_nothing_behind),
        IN_CONTEXT(an_eager_call_lets_the_result_before_go),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
