/* tests/test_tracing.c: functions without a body, traced by their caller: gd_trace_begin,
 * gd_trace_end, gd_trace_abandon, gd_function_has_plan. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include "graph/context.h"

static int open_context(void **state)
{
    gd_error_clear();
    *state = gd_open("cpu", .threads = 1, .seed = 3);
    return *state ? 0 : -1;
}

static int close_context(void **state)
{
    gd_close(*state);
    gd_error_clear();
    return 0;
}

static void assert_error(gd_status status, const char *part)
{
    assert_int_equal(gd_error_code(), status);
    if (!strstr(gd_error_message(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, gd_error_message());
    gd_error_clear();
}

static gd_tensor *numbers(gd_context *gd, int64_t count)
{
    return gd_arange(gd, 1, (double)count + 1, 1, GD_F32);
}

/* tanh(x) * y + dropout, so that the random stream is part of it; sum as a second result. */
static gd_tensor *compute(gd_tensor *x, gd_tensor *y, gd_tensor **sum)
{
    gd_tensor *t = gd_add(gd_mul(gd_tanh(x), y), gd_dropout(y, 0.5));
    *sum = gd_sum(t, GD_ALL_AXES, false);
    return t;
}

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *sum, *t = compute(in[0], in[1], &sum);
    gd_output(sum);
    return t;
}

static gd_status trace(gd_function *f, gd_tensor *const *in)
{
    gd_tensor *places[2], *results[2];
    gd_status status = gd_trace_begin(f, 2, in, places);
    if (status != GD_OK)
        return status;
    results[0] = compute(places[0], places[1], &results[1]);
    return gd_trace_end(f, 2, results);
}

static void assert_same(gd_tensor *a, gd_tensor *b)
{
    float x[64] = { 0 }, y[64] = { 1 };
    size_t bytes = (size_t)gd_tensor_count(a) * sizeof(float);
    assert_true(gd_tensor_count(a) == gd_tensor_count(b));
    assert_int_equal(gd_tensor_read(a, x, bytes), GD_OK);
    assert_int_equal(gd_tensor_read(b, y, bytes), GD_OK);
    assert_memory_equal(x, y, bytes);
}

/* ---- what it is for ---- */

static void a_traced_function_gives_what_a_body_gives(void **state)
{
    gd_context *gd = *state;
    gd_function *traced = gd_compile(gd, NULL, NULL), *compiled = gd_compile(gd, body, NULL);
    for (int64_t size = 3; size < 6; size++) {
        gd_tensor *in[2] = { numbers(gd, size), gd_ones(gd, GD_SHAPE(size), GD_F32) };
        assert_false(gd_function_has_plan(traced, 2, in));
        assert_int_equal(trace(traced, in), GD_OK);
        assert_true(gd_function_has_plan(traced, 2, in));
        for (int call = 0; call < 3; call++) {
            gd_seed(gd, 7 + (uint64_t)call);
            gd_tensor *expected = gd_retain(gd_call(compiled, 2, in));
            gd_tensor *sum = gd_retain(gd_function_result(compiled, 1));
            gd_seed(gd, 7 + (uint64_t)call);
            assert_same(gd_call(traced, 2, in), expected);
            assert_same(gd_function_result(traced, 1), sum);
            assert_null(gd_function_result(traced, 2));
            gd_release(expected);
            gd_release(sum);
        }
    }
    assert_int_equal(gd_function_stats(traced).traces, 3);
    assert_int_equal(gd_function_stats(traced).plans, 3);
    assert_int_equal(gd_error_code(), GD_OK);
}

static void traced_functions_have_gradients(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, NULL, NULL);
    gd_tensor *x = gd_set_requires_grad(gd_copy(numbers(gd, 4)), true), *place;
    assert_int_equal(gd_trace_begin(f, 1, &x, &place), GD_OK);
    assert_true(gd_requires_grad(place));
    gd_tensor *y = gd_square(place);
    assert_int_equal(gd_trace_end(f, 1, &y), GD_OK);
    for (int call = 1; call < 4; call++) {
        assert_int_equal(gd_backward(gd_sum(gd_call(f, 1, &x), GD_ALL_AXES, false)), GD_OK);
        assert_true(gd_get(gd_gradient(x), 3) == 8 * call);
    }
    /* An input that requires none is another signature. */
    gd_tensor *plain = numbers(gd, 4);
    assert_false(gd_function_has_plan(f, 1, &plain));
    assert_null(gd_call(f, 1, &plain));
    assert_error(GD_ERR_STATE, "gd_trace_begin");
}

static void effects_happen_at_calls_and_not_while_tracing(void **state)
{
    gd_context *gd = *state;
    gd_tensor *total = gd_state(gd, GD_SCALAR, 0, GD_F32), *x = numbers(gd, 3), *place;
    gd_function *f = gd_compile(gd, NULL, NULL);
    assert_int_equal(gd_trace_begin(f, 1, &x, &place), GD_OK);
    assert_true(gd_is_tracing(gd));
    gd_tensor *sum = gd_sum(place, GD_ALL_AXES, false);
    gd_assign(total, gd_add(total, sum));
    assert_int_equal(gd_trace_end(f, 1, &sum), GD_OK);
    assert_false(gd_is_tracing(gd));
    assert_true(gd_item(total) == 0);
    assert_non_null(gd_call(f, 1, &x));
    assert_non_null(gd_call(f, 1, &x));
    assert_true(gd_item(total) == 12);
    gd_release(total);
}

/* A compiled function inlines one with a body, not one without. */
static void other_functions_are_called_in_a_trace(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[2] = { numbers(gd, 3), numbers(gd, 3) }, *places[2], *none[2];
    gd_function *f = gd_compile(gd, NULL, NULL), *inner = gd_compile(gd, body, NULL);
    gd_function *bare = gd_compile(gd, NULL, NULL);
    assert_int_equal(gd_trace_begin(f, 2, in, places), GD_OK);
    gd_tensor *t = gd_call(inner, 2, places);
    assert_non_null(t);
    assert_null(gd_call(bare, 2, places));
    assert_error(GD_ERR_STATE, "has no body");
    assert_int_equal(gd_trace_begin(bare, 2, places, none), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "is being traced");
    assert_int_equal(gd_trace_end(f, 1, &t), GD_OK); /* the errors were cleared */
    assert_non_null(gd_call(f, 2, in));
    /* A function with a body may be traced so as well. */
    assert_int_equal(trace(inner, in), GD_OK);
    assert_non_null(gd_call(inner, 2, in));
    assert_int_equal(gd_function_stats(inner).traces, 1);
}

/* ---- failures ---- */

/* What a failed trace leaves: the function can be traced again, nothing is recorded any more. */
static void assert_over(gd_context *gd, gd_function *f, gd_tensor *const *in)
{
    assert_false(gd_is_tracing(gd));
    assert_false(gd_function_has_plan(f, 2, in));
    assert_true(gd_item(gd_add_scalar(gd_scalar(gd, 1, GD_F32), 1)) == 2);
    assert_int_equal(trace(f, in), GD_OK);
    assert_non_null(gd_call(f, 2, in));
}

static void a_trace_is_abandoned(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[2] = { numbers(gd, 3), numbers(gd, 3) }, *places[2];
    gd_function *f = gd_compile(gd, NULL, NULL);
    int64_t live = gd_memory(gd).live_tensors;
    assert_int_equal(gd_trace_begin(f, 2, in, places), GD_OK);
    gd_scope_begin(gd); /* left open, as by an exception */
    gd_no_grad_begin(gd);
    (void)gd_mul(places[0], places[1]);
    assert_int_equal(gd_trace_abandon(f), GD_OK);
    assert_int_equal(gd_memory(gd).live_tensors, live); /* nothing stays */
    assert_null(gd->scope->parent);
    assert_int_equal(gd->no_grad, 0);
    assert_over(gd, f, in);
    assert_int_equal(gd_trace_abandon(f), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "without gd_trace_begin");
}

static void an_error_fails_the_trace(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[2] = { numbers(gd, 3), numbers(gd, 3) }, *places[2], *none = NULL;
    gd_function *f = gd_compile(gd, NULL, NULL);
    int64_t live = gd_memory(gd).live_tensors;

    assert_int_equal(gd_trace_begin(f, 2, in, places), GD_OK);
    (void)gd_item(places[0]); /* has no value: a branch on it would stay in the plan */
    assert_int_equal(gd_trace_end(f, 1, places), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "gd_item");
    assert_int_equal(gd_memory(gd).live_tensors, live);
    assert_over(gd, f, in);

    gd_function *g = gd_compile(gd, NULL, NULL);
    assert_int_equal(gd_trace_begin(g, 2, in, places), GD_OK);
    assert_int_equal(gd_trace_end(g, 0, NULL), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "no outputs");
    assert_int_equal(gd_trace_begin(g, 2, in, places), GD_OK);
    assert_int_equal(gd_trace_end(g, 1, &none), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "output 0 is NULL");
    gd_context *other = gd_open("cpu");
    gd_tensor *foreign = gd_scalar(other, 1, GD_F32);
    assert_int_equal(gd_trace_begin(g, 2, in, places), GD_OK);
    assert_int_equal(gd_trace_end(g, 1, &foreign), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "another context");
    gd_close(other);
    assert_over(gd, g, in);
}

/* Traced before every call, with another number each time of three. */
static void a_lazy_function_finds_the_plans_of_equal_traces(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, NULL, NULL, .mode = GD_MODE_LAZY);
    gd_tensor *w = gd_set_requires_grad(gd_full(gd, GD_SHAPE(3), 2, GD_F32), true);
    gd_tensor *in = gd_ones(gd, GD_SHAPE(3), GD_F32), *place;
    assert_null(gd_call(f, 1, &in));
    assert_error(GD_ERR_STATE, "no plan for these inputs");
    int64_t live = 0;
    for (int i = 0; i < 40; i++) {
        assert_false(gd_function_has_plan(f, 1, &in));
        assert_int_equal(gd_trace_begin(f, 1, &in, &place), GD_OK);
        gd_tensor *y = gd_sum(gd_mul(gd_mul_scalar(place, i % 3 + 1), w), GD_ALL_AXES, false);
        assert_int_equal(gd_trace_end(f, 1, &y), GD_OK);
        for (int again = 0; again < 2; again++)
            assert_true(gd_item(gd_call(f, 1, &in)) == 6 * (i % 3 + 1));
        if (i == 10)
            live = gd_memory(gd).live_tensors;
    }
    assert_int_equal(gd_memory(gd).live_tensors, live);
    assert_int_equal(gd_function_stats(f).plans, 3);
    assert_int_equal(gd_function_stats(f).traces, 41); /* with the call before */
    assert_int_equal(gd_backward(gd_call(f, 1, &in)), GD_OK);
    assert_true(gd_get(gd_gradient(w), 1) == 1);
    assert_int_equal(gd_trace_begin(f, 1, &in, &place), GD_OK);
    assert_int_equal(gd_trace_abandon(f), GD_OK);
    assert_int_equal(gd_trace_begin(f, 1, &in, &place), GD_OK);
    gd_tensor *y = gd_neg(place);
    assert_int_equal(gd_trace_end(f, 1, &y), GD_OK);
    assert_true(gd_get(gd_call(f, 1, &in), 2) == -1);
    assert_int_equal(gd_function_stats(f).plans, 4);
}

static void misuse_is_refused(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[2] = { numbers(gd, 3), numbers(gd, 3) }, *places[2], *none[2];
    assert_null(gd_compile(gd, NULL, NULL, .mode = GD_MODE_EAGER));
    assert_error(GD_ERR_INVALID, "the body is NULL");
    gd_function *lazy = gd_compile(gd, body, NULL, .mode = GD_MODE_LAZY);
    assert_int_equal(gd_trace_begin(lazy, 2, in, places), GD_ERR_STATE);
    gd_error_clear();
    gd_function *f = gd_compile(gd, NULL, NULL);
    assert_null(gd_call(f, 2, in));
    assert_error(GD_ERR_STATE, "no plan for these inputs");
    assert_int_equal(gd_trace_end(f, 1, in), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "without gd_trace_begin");
    assert_int_equal(gd_trace_begin(f, 2, in, NULL), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(gd_trace_begin(f, 2, (gd_tensor *[]){ in[0], NULL }, places), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "gd_trace_begin: input 1 is NULL");
    assert_int_equal(gd_trace_begin(NULL, 2, in, places), GD_ERR_INVALID);
    gd_error_clear();

    assert_int_equal(gd_trace_begin(f, 2, in, places), GD_OK);
    gd_function_release(f);
    assert_error(GD_ERR_STATE, "is being run");
    assert_int_equal(gd_trace_begin(f, 2, in, none), GD_ERR_STATE);
    gd_error_clear();
    gd_trace_pause(gd);
    assert_int_equal(gd_trace_end(f, 1, places), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "paused");
    gd_trace_resume(gd);
    gd_tensor *sum = gd_add(places[0], places[1]);
    assert_int_equal(gd_scope_end(gd), GD_ERR_STATE); /* the trace's own */
    gd_error_clear();
    assert_int_equal(gd_trace_end(f, 1, &sum), GD_OK);
    assert_true(gd_get(gd_call(f, 2, in), 2) == 6);
}

/* Inputs may be released between the beginning and the end. */
static void inputs_last_as_long_as_the_trace(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, NULL, NULL);
    gd_scope_begin(gd);
    gd_tensor *x = gd_retain(numbers(gd, 3)), *place;
    gd_scope_end(gd);
    assert_int_equal(gd_trace_begin(f, 1, &x, &place), GD_OK);
    gd_release(x);
    gd_tensor *y = gd_exp(place);
    assert_int_equal(gd_trace_end(f, 1, &y), GD_OK);
    gd_tensor *again = numbers(gd, 3);
    assert_true(gd_function_has_plan(f, 1, &again));
}

static void a_context_may_close_within_a_trace(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    gd_tensor *x = numbers(gd, 3), *place;
    gd_function *f = gd_compile(gd, NULL, NULL);
    assert_int_equal(gd_trace_begin(f, 1, &x, &place), GD_OK);
    (void)gd_exp(place);
    gd_close(gd);
    assert_int_equal(gd_error_code(), GD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
        TEST(a_traced_function_gives_what_a_body_gives),
        TEST(traced_functions_have_gradients),
        TEST(effects_happen_at_calls_and_not_while_tracing),
        TEST(other_functions_are_called_in_a_trace),
        TEST(a_trace_is_abandoned),
        TEST(an_error_fails_the_trace),
        TEST(a_lazy_function_finds_the_plans_of_equal_traces),
        TEST(misuse_is_refused),
        TEST(inputs_last_as_long_as_the_trace),
        cmocka_unit_test(a_context_may_close_within_a_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
