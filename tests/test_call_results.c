/* tests/test_call_results.c: results of compiled functions keep their contents as long as somebody
 * holds them: the user, a view, a gradient's history, another plan. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"

static const gd_mode modes[] = { GD_MODE_COMPILED, GD_MODE_EAGER, GD_MODE_LAZY };
enum { MODES = sizeof modes / sizeof *modes, CALLS = 5, WIDE = 1 << 16 };

/* x -> x + 1 [n], and the sum of it as a further result. Much memory is needed on the way. */
static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *y = gd_add_scalar(in[0], 1);
    gd_tensor *wide = gd_matmul(gd_reshape(y, GD_SHAPE(-1, 1)),
                                gd_ones(gd_tensor_context(y), GD_SHAPE(1, WIDE), GD_F32));
    (void)gd_output(gd_mean(wide, GD_ALL_AXES, false));
    return y;
}

static gd_tensor *fill(gd_context *gd, double value)
{
    return gd_full(gd, GD_SHAPE(3), value, GD_F32);
}

static double first(gd_tensor *t)
{
    return gd_item(gd_select(t, 0, 0));
}

/* Calls f on 0, 1, 2, … and retains both results of each. */
static void call_and_hold(gd_context *gd, gd_function *f, gd_tensor *held[CALLS][2])
{
    for (int i = 0; i < CALLS; i++) {
        gd_tensor *x = fill(gd, i);
        held[i][0] = gd_retain(gd_call(f, 1, &x));
        held[i][1] = gd_retain(gd_function_result(f, 1));
        assert_non_null(held[i][1]);
    }
}

static void held_results_keep_their_contents(void **state)
{
    gd_context *gd = *state;
    for (int m = 0; m < MODES; m++) {
        gd_function *f = gd_compile(gd, body, NULL, .mode = modes[m]);
        gd_tensor *held[CALLS][2];
        call_and_hold(gd, f, held);
        for (int i = 0; i < CALLS; i++) {
            assert_true(first(held[i][0]) == i + 1);
            assert_true(gd_item(held[i][1]) == i + 1);
        }
        gd_function_release(f); /* and when the function is gone */
        for (int i = 0; i < CALLS; i++) {
            assert_true(first(held[i][0]) == i + 1);
            gd_release(held[i][0]);
            gd_release(held[i][1]);
        }
    }
}

/* A list of losses holds numbers, not a training step's memory each. */
static void a_held_result_does_not_hold_the_plan(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, body, NULL);
    gd_tensor *x = fill(gd, 1), *held[CALLS][2];
    assert_non_null(gd_call(f, 1, &x));
    const size_t block = gd_function_stats(f).arena_bytes, before = gd_memory(gd).in_use;
    assert_true(block >= sizeof(float) * WIDE);
    call_and_hold(gd, f, held);
    assert_true(gd_memory(gd).in_use - before < block);
    for (int i = 0; i < CALLS; i++) {
        gd_release(held[i][0]);
        gd_release(held[i][1]);
    }
}

/* Results without other references take no memory when the function is called again. */
static void other_results_take_no_memory(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, body, NULL);
    gd_tensor *x = fill(gd, 1);
    gd_tensor *y = gd_call(f, 1, &x);
    const uint64_t before = gd_memory(gd).allocations;
    for (int i = 0; i < CALLS; i++)
        assert_ptr_equal(gd_call(f, 1, &x), y);
    assert_int_equal(gd_memory(gd).allocations, before);
}

static void views_and_addresses_stay(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, body, NULL);
    gd_tensor *x = fill(gd, 1), *z = fill(gd, 10);
    gd_tensor *y = gd_retain(gd_call(f, 1, &x));
    gd_tensor *view = gd_slice(y, 0, 1, 3, 1);
    assert_non_null(gd_call(f, 1, &z));
    assert_true(first(view) == 2 && first(y) == 2);
    assert_true(gd_item(gd_function_result(f, 1)) == 11);

    gd_release(y);
    if (!gd_context_has_host_memory(gd))
        return; /* there are no addresses to be known */
    gd_tensor *w = gd_retain(gd_call(f, 1, &z));
    const float *data = gd_tensor_data(w);
    assert_non_null(gd_call(f, 1, &x));
    assert_true(data[0] == 11 && gd_tensor_data(w) == data);
    gd_release(w);
}

/* An argument of the next call, held and not. */
static void results_are_arguments(void **state)
{
    gd_context *gd = *state;
    for (int m = 0; m < MODES; m++)
        for (int how = 0; how < 3; how++) {
            gd_function *f = gd_compile(gd, body, NULL, .mode = modes[m]);
            assert_int_equal(gd_scope_begin(gd), GD_OK);
            gd_tensor *x = fill(gd, 0), *held[CALLS] = { 0 };
            for (int i = 0; i < CALLS; i++) {
                x = gd_call(f, 1, &x);
                assert_true(first(x) == i + 1);
                if (how == 1)
                    held[i] = gd_retain(x);
                else if (how == 2) /* the further result keeps the block, the argument nothing */
                    held[i] = gd_retain(gd_reshape(gd_function_result(f, 1), GD_SHAPE(1)));
            }
            for (int i = 0; how && i < CALLS; i++) {
                assert_true(first(held[i]) == i + 1);
                gd_release(held[i]);
            }
            assert_int_equal(gd_scope_end(gd), GD_OK);
            gd_function_release(f);
        }
}

/* d/dw of sum(y * w) is y, whatever has been called since. */
static void gradients_read_what_was_there(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, body, NULL, .detached = true);
    gd_tensor *w = gd_set_requires_grad(fill(gd, 3), true);
    gd_tensor *x = fill(gd, 1), *z = fill(gd, 10);
    gd_tensor *loss = gd_sum(gd_mul(gd_call(f, 1, &x), w), GD_ALL_AXES, false);
    assert_non_null(gd_call(f, 1, &z));
    assert_int_equal(gd_backward(loss), GD_OK);
    assert_true(first(gd_gradient(w)) == 2);
}

static gd_tensor *reads_outside(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_mul(in[0], user);
}

static void another_plan_reads_what_was_there(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, body, NULL);
    gd_tensor *x = fill(gd, 1), *z = fill(gd, 10);
    gd_tensor *y = gd_retain(gd_call(f, 1, &x));
    gd_function *g = gd_compile(gd, reads_outside, y);
    assert_true(first(gd_call(g, 1, &z)) == 20);
    assert_true(first(gd_call(f, 1, &z)) == 11);
    assert_true(first(gd_call(g, 1, &z)) == 20);
    gd_release(y);
}

static void a_result_is_not_the_callers_to_release(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, body, NULL);
    gd_tensor *x = fill(gd, 1), *y = gd_call(f, 1, &x);
    gd_release(y);
    expect_error(GD_ERR_STATE, "gd_release: the tensor was not retained");
    assert_true(first(gd_call(f, 1, &x)) == 2);
}

static gd_tensor *times(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_mul(in[0], user);
}

/* Nor where the function holds results itself: with a history, eagerly. */
static void results_with_history_are_not_the_callers_to_release(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(fill(gd, 3), true), *x = fill(gd, 2);
    for (int m = 0; m < MODES; m++) {
        gd_function *f = gd_compile(gd, times, w, .mode = modes[m]);
        for (int i = 0; i < CALLS; i++) {
            assert_int_equal(gd_scope_begin(gd), GD_OK);
            gd_tensor *y = gd_call(f, 1, &x);
            assert_true(first(y) == 6);
            gd_release(y);
            expect_error(GD_ERR_STATE, "gd_release: the tensor was not retained");
            assert_int_equal(gd_scope_end(gd), GD_OK);
            assert_true(first(gd_function_result(f, 0)) == 6);
        }
        gd_function_release(f);
    }
}

static gd_tensor *releases(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_add_scalar(in[0], 1);
    gd_release(user ? in[0] : y);
    return gd_output(y);
}

/* Nor in a body, whose arguments and values a trace holds. */
static void nor_are_values_in_a_body(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = fill(gd, 2);
    for (int m = 0; m < MODES; m++)
        for (int which = 0; which < 2; which++) {
            gd_function *f = gd_compile(gd, releases, which ? x : NULL, .mode = modes[m]);
            assert_null(gd_call(f, 1, &x));
            expect_error(GD_ERR_STATE, "gd_release: the tensor was not retained");
            gd_function_release(f);
        }
}

/* A result is a new tensor, though in the handle of the one before: no marks or gradients pass. */
static void results_are_new(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = fill(gd, 2), *w = gd_set_requires_grad(fill(gd, 3), true);
    for (int m = 0; m < MODES; m++) {
        gd_function *f = gd_compile(gd, body, NULL, .mode = modes[m]);
        for (int i = 0; i < CALLS; i++) {
            assert_int_equal(gd_scope_begin(gd), GD_OK);
            gd_tensor *y = gd_call(f, 1, &x);
            assert_false(gd_requires_grad(y));
            assert_null(gd_gradient(y));
            if (i % 2) {
                assert_non_null(gd_add_(y, w)); /* y stands for its old value no more */
            } else {
                assert_non_null(gd_set_requires_grad(y, true));
                assert_int_equal(gd_backward(gd_sum(gd_mul(y, y), GD_ALL_AXES, false)), GD_OK);
                assert_true(first(gd_gradient(y)) == 6);
            }
            assert_int_equal(gd_scope_end(gd), GD_OK);
        }
        gd_function_release(f);
    }
}

static gd_tensor *shorten(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_add_scalar(gd_slice(in[0], 0, 0, gd_tensor_shape(in[0]).dim[0] - 1, 1), 1);
}

/* The argument is the result of a plan that this call drops from the cache. */
static void results_of_dropped_plans_are_arguments(void **state)
{
    gd_context *gd = *state;
    for (int m = 0; m < MODES; m += 2) {
        gd_function *f = gd_compile(gd, shorten, NULL, .mode = modes[m], .cache_limit = 1);
        gd_tensor *x = gd_ones(gd, GD_SHAPE(CALLS + 1), GD_F32);
        for (int i = 0; i < CALLS; i++) {
            gd_tensor *y = gd_call(f, 1, &x);
            assert_true(first(y) == i + 2 && first(x) == i + 1);
            x = y;
        }
    }
}

/* The argument is a result with a history that the function alone holds, of a call that has none. */
static void results_with_history_are_arguments(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(fill(gd, 3), true), *x = fill(gd, 2);
    for (int m = 0; m < MODES; m++) {
        gd_function *f = gd_compile(gd, times, w, .mode = modes[m]);
        assert_int_equal(gd_scope_begin(gd), GD_OK);
        gd_tensor *y = gd_call(f, 1, &x);
        assert_int_equal(gd_scope_end(gd), GD_OK);
        gd_no_grad_begin(gd);
        assert_true(first(gd_call(f, 1, &y)) == 18);
        gd_no_grad_end(gd);
    }
}

/* A plan that has been made and not run, or not to its end, has no results to give. */
static void results_are_of_the_last_call(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(fill(gd, 3), true), *x = fill(gd, 2);
    gd_tensor *other = gd_ones(gd, GD_SHAPE(1), GD_F32), *wrong = gd_ones(gd, GD_SHAPE(2), GD_F32);
    for (int limit = 1; limit < 3; limit++)
        for (int detached = 0; detached < 2; detached++) {
            gd_function *f = gd_compile(gd, times, w, .detached = detached, .cache_limit = limit);
            assert_int_equal(gd_function_prepare(f, 1, &x), GD_OK);
            assert_null(gd_function_result(f, 0));
            gd_tensor *y = gd_call(f, 1, &x);
            assert_int_equal(gd_function_prepare(f, 1, &other), GD_OK);
            if (limit > 1 || !detached) { /* else the plan is gone, and its results with it */
                assert_ptr_equal(gd_function_result(f, 0), y);
                assert_true(first(y) == 6);
            } else {
                assert_null(gd_function_result(f, 0));
            }
            assert_null(gd_call(f, 1, &wrong));
            expect_error(GD_ERR_SHAPE, "gd_mul");
            assert_null(gd_function_result(f, 0));
            assert_true(first(gd_call(f, 1, &x)) == 6);
            assert_true(first(gd_function_result(f, 0)) == 6);
        }
}

/* Whichever allocation fails, retained results keep their contents and a later call works. */
static void failed_allocations_lose_nothing(void **state)
{
    gd_context *gd = *state;
    for (int kind = 0; kind < 2; kind++) {
        gd_function *f = gd_compile(gd, body, NULL);
        gd_tensor *x = fill(gd, 1), *z = fill(gd, 10);
        bool failed = true;
        for (int64_t n = 0; failed; n++) {
            assert_int_equal(gd_scope_begin(gd), GD_OK);
            gd_tensor *y = gd_retain(gd_call(f, 1, &x));
            gd_tensor *view = kind ? gd_slice(y, 0, 1, 3, 1) : y;
            assert_true(first(y) == 2);
            gd_memory_trim(gd);
            gd_fail_allocations_after(n);
            failed = gd_call(f, 1, &z) == NULL;
            (void)gd_fail_allocations_after(-1);
            assert_int_equal(gd_error_code(), failed ? GD_ERR_MEMORY : GD_OK);
            gd_error_clear();
            assert_true(first(y) == 2 && first(view) == 2);
            assert_true(first(gd_call(f, 1, &z)) == 11);
            assert_true(first(y) == 2 && first(view) == 2);
            gd_release(y);
            assert_int_equal(gd_scope_end(gd), GD_OK);
        }
        gd_function_release(f);
    }
}

#define IN_CONTEXT(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CONTEXT(held_results_keep_their_contents),
        IN_CONTEXT(a_held_result_does_not_hold_the_plan),
        IN_CONTEXT(other_results_take_no_memory),
        IN_CONTEXT(views_and_addresses_stay),
        IN_CONTEXT(results_are_arguments),
        IN_CONTEXT(gradients_read_what_was_there),
        IN_CONTEXT(another_plan_reads_what_was_there),
        IN_CONTEXT(a_result_is_not_the_callers_to_release),
        IN_CONTEXT(results_with_history_are_not_the_callers_to_release),
        IN_CONTEXT(nor_are_values_in_a_body),
        IN_CONTEXT(results_are_new),
        IN_CONTEXT(results_of_dropped_plans_are_arguments),
        IN_CONTEXT(results_with_history_are_arguments),
        IN_CONTEXT(results_are_of_the_last_call),
        IN_CONTEXT(failed_allocations_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
