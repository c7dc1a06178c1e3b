/* tests/test_pass_rematerialise.c: plans within a given .memory_limit: the same bits, the limit
 * kept, or said to be too low. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "support/context.h"
#include "support/effort.h"

/* ---- what is compiled: training steps and gradients ---- */

enum { ROWS = 48, WIDE = 160, DEEP = 6, TOKENS = 24, EMBEDDING = 32, VOCABULARY = 17 };

typedef struct trainee {
    gd_module *module;
    gd_optimizer *optimizer;
    double dropout;
} trainee;

/* Wide elementwise parts between products. */
static gd_tensor *mlp_loss(trainee *t, gd_tensor *const *in)
{
    gd_tensor *h = in[0];
    for (int i = 0; i < DEEP; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        h = gd_nn_linear(t->module, name, h, WIDE);
        gd_tensor *gate = gd_sigmoid(gd_mul_scalar(h, 1.5));
        h = gd_add(gd_mul(gd_tanh(h), gate), gd_gelu(gd_square(h)));
        if (t->dropout > 0)
            h = gd_dropout(h, t->dropout);
    }
    return gd_cross_entropy(gd_nn_linear(t->module, "out", h, 10), in[1]);
}

static gd_tensor *mlp_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, mlp_loss(t, in));
}

/* A small GPT; the body gives its loss and gradients to an Adam step. */
static gd_tensor *gpt_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    const gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS,
                                           .layers = 3,
                                           .width = EMBEDDING,
                                           .heads = 2,
                                           .vocabulary = VOCABULARY,
                                           .max_length = TOKENS,
                                           .pre_norm = true,
                                           .dropout = t->dropout };
    gd_tensor *logits = gd_nn_decoder_only(t->module, "gpt", in[0], &config);
    gd_tensor *flat = gd_reshape(logits, GD_SHAPE(-1, VOCABULARY));
    return gd_minimize(t->optimizer, gd_cross_entropy(flat, gd_reshape(in[1], GD_SHAPE(-1))));
}

typedef struct job {
    gd_function_body body;
    double dropout;
    bool is_gpt;
} job;

enum { CALLS = 3 };

typedef struct outcome {
    double loss[CALLS], sum; /* sum: of all parameters, weighted */
    gd_plan_stats stats;
    bool ok;
    char text[1 << 16];
} outcome;

static void run(const job *j, size_t limit, outcome *o)
{
    gd_context *gd = gd_open(test_device(), .threads = 2, .seed = 5);
    trainee t = { .module = gd_module_create(gd, .seed = 3), .dropout = j->dropout };
    t.optimizer = gd_adam(t.module, .lr = 0.01);
    gd_function *f = gd_compile(gd, j->body, &t, .memory_limit = limit ? limit : SIZE_MAX);
    gd_tensor *in[2];
    gd_shape labels = j->is_gpt ? GD_SHAPE(2, TOKENS) : GD_SHAPE(ROWS);
    in[0] = j->is_gpt ? gd_cast(gd_uniform(gd, labels, 0, VOCABULARY, GD_F32), GD_I64)
                      : gd_normal(gd, GD_SHAPE(ROWS, 20), 0, 1, GD_F32);
    in[1] = gd_cast(gd_uniform(gd, labels, 0, 10, GD_F32), GD_I64);
    memset(o, 0, sizeof *o);
    o->ok = true;
    for (int i = 0; o->ok && i < CALLS; i++) {
        gd_tensor *loss = gd_call(f, 2, in);
        o->ok = loss;
        o->loss[i] = loss ? gd_item(loss) : 0;
    }
    for (int i = 0; o->ok && i < gd_module_count(t.module); i++) {
        gd_tensor *w = gd_module_tensor(t.module, i);
        o->sum += gd_item(gd_sum(gd_sin(gd_mul_scalar(w, 1000)), GD_ALL_AXES, false));
    }
    o->stats = gd_function_stats(f);
    gd_plan_format(f, o->text, sizeof o->text);
    gd_close(gd);
}

static outcome free_run, limited;

static void expect_same_bits(const job *j, double share)
{
    size_t limit = (size_t)((double)free_run.stats.arena_bytes * share);
    run(j, limit, &limited);
    if (!limited.ok)
        fail_msg("%.2f of %zu B: %s", share, free_run.stats.arena_bytes, gd_error_message());
    assert_true(limited.stats.arena_bytes <= limit);
    assert_true(limited.stats.recomputed > 0);
    assert_memory_equal(free_run.loss, limited.loss, sizeof limited.loss);
    assert_true(free_run.sum == limited.sum);
    assert_non_null(strstr(limited.text, ", computed again\n"));
    assert_non_null(strstr(limited.text, "rematerialise "));
}

static const job mlp = { mlp_step, 0, false }, mlp_dropped = { mlp_step, 0.2, false },
                 gpt = { gpt_step, 0, true }, gpt_dropped = { gpt_step, 0.2, true };

static void check(const job *j, double least)
{
    run(j, 0, &free_run);
    if (!free_run.ok)
        fail_msg("%s", gd_error_message());
    assert_true(free_run.loss[0] != free_run.loss[CALLS - 1]);
    assert_int_equal(free_run.stats.recomputed, 0);
    assert_null(strstr(free_run.text, "computed again"));
    const double step =
        TEST_UNDER_TSAN || TEST_UNDER_MEMORY_CHECKS ? 0.25 : 0.1; /* one or two shares */
    for (double share = 0.9; share >= least; share -= step)
        expect_same_bits(j, share);
}

static void a_wide_mlp_fits_with_the_same_bits(void **state)
{
    (void)state;
    if (!TEST_UNDER_TSAN)
        check(&mlp, 0.6);
    check(&mlp_dropped, 0.6);
}

static void a_small_gpt_fits_with_the_same_bits(void **state)
{
    (void)state;
    if (!TEST_UNDER_TSAN)
        check(&gpt, 0.7);
    check(&gpt_dropped, 0.7);
}

static void a_limit_that_is_kept_anyway_changes_nothing(void **state)
{
    (void)state;
    run(&mlp, 0, &free_run);
    run(&mlp, free_run.stats.arena_bytes, &limited);
    assert_true(limited.ok && limited.stats.recomputed == 0);
    assert_int_equal(limited.stats.kernels, free_run.stats.kernels);
}

static void an_impossible_limit_is_said(void **state)
{
    (void)state;
    gd_error_clear();
    run(&mlp, 1000, &limited);
    assert_false(limited.ok);
    expect_error(GD_ERR_MEMORY, ".memory_limit = 1000 B");
    /* the least that was reached is reached when it is the limit */
    run(&mlp, 1000, &limited);
    const char *least = strstr(gd_error_message(), "reached is ");
    assert_non_null(least);
    size_t bytes = (size_t)strtoull(least + strlen("reached is "), NULL, 10);
    gd_error_clear();
    run(&mlp, bytes, &limited);
    if (!limited.ok)
        fail_msg("%s", gd_error_message());
    run(&mlp, 0, &free_run);
    assert_true(bytes < free_run.stats.arena_bytes);
    assert_true(free_run.sum == limited.sum);
    /* without the pass a plan is what it is */
    setenv("GRADUS_PASSES", "-rematerialise", 1);
    run(&mlp, bytes, &limited);
    unsetenv("GRADUS_PASSES");
    assert_false(limited.ok);
    expect_error(GD_ERR_MEMORY, ".memory_limit");
}

/* ---- what must not be computed again: contents that have changed ---- */

static gd_tensor *reads_before_and_after(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *s = user;
    gd_tensor *old = gd_exp(gd_mul(s, in[0])); /* reads s before it is assigned */
    gd_tensor *large = gd_outer(gd_sin(in[0]), gd_cos(in[0]));
    gd_assign(s, gd_add(s, gd_sum(gd_square(large), GD_AXES(0), false)));
    gd_output(gd_add(gd_uniform(gd_tensor_context(s), gd_tensor_shape(in[0]), 0, 1, GD_F32), s));
    return gd_add(gd_sum(gd_tanh(large), GD_AXES(1), false), old);
}

static void what_has_been_assigned_is_not_read_again(void **state)
{
    gd_context *gd = *state;
    float want[CALLS][64], have[64];
    size_t bytes = 0;
    for (int limited_run = 0; limited_run < 2; limited_run++) {
        assert_int_equal(gd_seed(gd, 9), GD_OK);
        gd_tensor *s = gd_retain(gd_full(gd, GD_SHAPE(64), 0.25, GD_F32));
        gd_tensor *x = gd_linspace(gd, -1, 1, 64, GD_F32);
        gd_function *f = gd_compile(gd, reads_before_and_after, s,
                                    .memory_limit = limited_run ? bytes - 64 : SIZE_MAX);
        for (int i = 0; i < CALLS; i++) {
            gd_tensor *y = gd_call(f, 1, &x);
            if (!y && limited_run) { /* there may be nothing that can be given up */
                expect_error(GD_ERR_MEMORY, ".memory_limit");
                return;
            }
            y = gd_add(y, gd_function_result(f, 1));
            assert_int_equal(gd_tensor_read(y, limited_run ? have : want[i], sizeof have), GD_OK);
            if (limited_run)
                assert_memory_equal(have, want[i], sizeof have);
        }
        bytes = gd_function_stats(f).arena_bytes;
    }
}

/* ---- gradients through a call ---- */

static gd_tensor *loss_alone(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return mlp_loss(user, in);
}

static void a_call_with_a_history_keeps_less(void **state)
{
    gd_context *gd = *state;
    trainee t = { .module = gd_module_create(gd, .seed = 3), .dropout = 0.1 };
    gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(ROWS, 20), 0, 1, GD_F32),
                         gd_zeros(gd, GD_SHAPE(ROWS), GD_I64) };
    double sum[2];
    size_t bytes[2] = { 0, 0 };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gd_seed(gd, 4), GD_OK);
        gd_function *f =
            gd_compile(gd, loss_alone, &t, .memory_limit = i ? bytes[0] * 3 / 4 : SIZE_MAX);
        gd_tensor *loss = gd_call(f, 2, in), *w = gd_module_tensor(t.module, 0), *g = NULL;
        if (!loss || gd_grad(1, &loss, NULL, 1, &w, &g) != GD_OK)
            fail_msg("%s", gd_error_message());
        sum[i] = gd_item(gd_sum(gd_sin(gd_mul_scalar(g, 1e4)), GD_ALL_AXES, false));
        bytes[i] = gd_function_stats(f).arena_bytes;
    }
    assert_true(sum[0] == sum[1] && sum[0] != 0);
    assert_true(bytes[1] <= bytes[0] * 3 / 4);
}

/* There and back: all that is made on the way there is read on the way back. */
enum { DEEPEST = 257 };
static gd_tensor *there_and_back(gd_tensor *const *in, int depth)
{
    gd_tensor *h[DEEPEST] = { gd_exp(in[0]) }, *sum = NULL;
    for (int i = 1; i < depth; i++)
        h[i] = gd_matmul(gd_tanh(h[i - 1]), in[1]);
    for (int i = depth - 1; i >= 0; i--)
        sum = i == depth - 1 ? h[i] : gd_mul(gd_matmul(sum, in[1]), h[i]);
    return sum;
}

static gd_tensor *deep_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return there_and_back(in, *(const int *)user);
}

/* Allocations that a limit of half the memory adds to compiling; each look at the program takes
 * some for every value. */
static int64_t allocations_of_limit(gd_context *gd, int depth)
{
    gd_tensor *x = gd_ones(gd, GD_SHAPE(8, 8), GD_F32), *in[2] = { x, x };
    int64_t made[2];
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        gd_function *f =
            gd_compile(gd, deep_body, &depth, .memory_limit = i ? bytes / 2 : SIZE_MAX);
        gd_fail_allocations_after(INT64_MAX);
        assert_int_equal(gd_function_prepare(f, 2, in), GD_OK);
        made[i] = gd_fail_allocations_after(-1);
        bytes = gd_function_stats(f).arena_bytes;
        assert_true((gd_function_stats(f).recomputed > depth / 3) == (i == 1));
    }
    return made[1] - made[0];
}

/* n log n: eight times the depth takes less than 12 times the allocations; it was 54 times when the
 * program was looked at anew for each value that is made again. */
static void a_limit_costs_little_in_deep_programs(void **state)
{
    gd_context *gd = *state;
    const int64_t deep = allocations_of_limit(gd, DEEPEST - 1);
    const int64_t shallow = allocations_of_limit(gd, DEEPEST / 8);
    assert_true(shallow > 0 && deep < 12 * shallow);
}

/* A convolution that has taken the place of its ReLU reads what the removed one read. */
static gd_tensor *convolved(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_reshape(there_and_back(in, 5), GD_SHAPE(1, 1, 8, 8));
    gd_tensor *w = gd_reshape(gd_slice(in[1], 0, 0, 2, 1), GD_SHAPE(1, 1, 4, 4));
    return gd_relu(gd_conv2d(x, w, NULL));
}

static void what_was_removed_is_not_put_in_order(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(8, 8), 0, 1, GD_F32),
                         gd_normal(gd, GD_SHAPE(8, 8), 0, 0.1, GD_F32) };
    gd_function *f = gd_compile(gd, convolved, NULL, .memory_limit = 8 * 8 * 4 * 5,
                                .passes = "-dead,-fuse,-recompute,-schedule");
    gd_tensor *got = gd_call(f, 2, in);
    assert_same_bits(convolved(NULL, 2, in), got);
    assert_true(gd_function_stats(f).recomputed > 0);
}

static gd_tensor *small_body(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return there_and_back(in, 5);
}

static bool everything(int argument)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_tensor *x = gd ? gd_ones(gd, GD_SHAPE(8, 8), GD_F32) : NULL, *in[2] = { x, x };
    gd_function *f = x ? gd_compile(gd, small_body, NULL, .memory_limit = (size_t)argument) : NULL;
    bool ok = f && gd_call(f, 2, in) && gd_function_stats(f).recomputed > 0;
    gd_close(gd);
    return ok;
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    fail_every_allocation(everything, 8 * 8 * 4 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wide_mlp_fits_with_the_same_bits),
        cmocka_unit_test(a_small_gpt_fits_with_the_same_bits),
        cmocka_unit_test(a_limit_that_is_kept_anyway_changes_nothing),
        cmocka_unit_test(an_impossible_limit_is_said),
        context_test(what_has_been_assigned_is_not_read_again),
        context_test(a_call_with_a_history_keeps_less),
        context_test(a_limit_costs_little_in_deep_programs),
        context_test(what_was_removed_is_not_put_in_order),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
