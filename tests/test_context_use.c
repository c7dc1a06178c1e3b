/* tests/test_context_use.c: a context is used by one thread at a time: what another thread does with it
 * while one is inside a long call is an error, and nothing happens. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "support/context.h"

/* What the other thread is given, and what it found. */
typedef struct other {
    gd_context *gd;
    gd_function *f;
    gd_tensor *x;
    int refused, tried;
} other;

static void count_refusal(other *o, bool refused)
{
    o->tried++;
    o->refused += refused && gd_error_code() == GD_ERR_STATE &&
                  strstr(gd_error_message(), "in use by another thread");
    gd_error_clear();
}

static void *use_it(void *argument)
{
    other *o = argument;
    float values[2] = { 0 };
    gd_tensor *gradient;
    count_refusal(o, !gd_add(o->x, o->x));
    count_refusal(o, !gd_reshape(o->x, GD_SHAPE(2, 1)));
    count_refusal(o, !gd_add_(o->x, o->x));
    count_refusal(o, !gd_zeros(o->gd, GD_SHAPE(3), GD_F32));
    count_refusal(o, !gd_empty(o->gd, GD_SHAPE(3), GD_F32));
    count_refusal(o, !gd_from_host(o->gd, GD_SHAPE(2), GD_F32, values));
    count_refusal(o, !gd_call(o->f, 1, &o->x));
    count_refusal(o, gd_function_prepare(o->f, 1, &o->x) != GD_OK);
    count_refusal(o, gd_backward(o->x) != GD_OK);
    count_refusal(o, gd_grad(1, &o->x, NULL, 1, &o->x, &gradient) != GD_OK);
    count_refusal(o, gd_tensor_read(o->x, values, sizeof values) != GD_OK);
    count_refusal(o, gd_tensor_write(o->x, values, sizeof values) != GD_OK);
    count_refusal(o, gd_scope_begin(o->gd) != GD_OK);
    count_refusal(o, gd_scope_end(o->gd) != GD_OK);
    count_refusal(o, !gd_claim(o->gd, o->x));
    gd_release_later(o->x); /* as this one is said to, it works */
    return NULL;
}

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    pthread_t thread;
    gd_tensor *before = gd_exp(in[0]);
    assert_int_equal(pthread_create(&thread, NULL, use_it, user), 0);
    pthread_join(thread, NULL);
    return gd_add(before, in[0]);
}

static gd_tensor *plain(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_relu(in[0]);
}

static gd_tensor *failing(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_reshape(in[0], GD_SHAPE(7));
}

static void expect_refusals(gd_context *gd, gd_mode mode)
{
    gd_tensor *x = gd_full(gd, GD_SHAPE(2), 1, GD_F32);
    other o = { .gd = gd, .f = gd_compile(gd, plain, NULL), .x = gd_retain(x) };
    gd_function *f = gd_compile(gd, body, &o, .mode = mode);
    gd_tensor *y = gd_call(f, 1, &x);
    assert_non_null(y);
    assert_int_equal(o.tried, 15);
    assert_int_equal(o.refused, 15);
    assert_true(gd_get(y, 0) > 3.7 && gd_get(y, 0) < 3.8 && gd_get(x, 1) == 1);
    assert_int_equal(gd_error_code(), GD_OK);
}

static void another_thread_is_refused(void **state)
{
    expect_refusals(*state, GD_MODE_EAGER);
    expect_refusals(*state, GD_MODE_COMPILED);
}

/* Long calls within one another are the same thread's, and the last to end ends the use. */
static void after_the_call_another_thread_may(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2), GD_F32);
    other o = { .gd = gd, .f = gd_compile(gd, plain, NULL), .x = gd_retain(gd_retain(x)) };
    gd_function *inner = gd_compile(gd, body, &o, .mode = GD_MODE_EAGER);
    assert_non_null(gd_call(gd_compile(gd, plain, NULL), 1, &x));
    assert_non_null(gd_call(inner, 1, &x));
    assert_int_equal(o.refused, 15);
    assert_null(gd_call(gd_compile(gd, failing, NULL), 1, &x)); /* one that fails ends it as well */
    gd_error_clear();
    o.refused = o.tried = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_it, &o), 0);
    pthread_join(thread, NULL);
    assert_int_equal(o.refused, 0);
}

/* A body that goes on only when the other thread is in its own. */
static gd_tensor *meeting(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    pthread_barrier_wait(user);
    gd_tensor *y = gd_exp(in[0]);
    pthread_barrier_wait(user);
    return gd_add(y, in[0]);
}

static void *call_in_own_context(void *barrier)
{
    gd_context *gd = gd_open("cpu", .threads = 1);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2), GD_F32);
    gd_tensor *y = gd_call(gd_compile(gd, meeting, barrier), 1, &x);
    bool is_right = y && gd_get(y, 0) > 3.7 && gd_get(y, 0) < 3.8;
    gd_close(gd);
    return is_right ? barrier : NULL;
}

static void contexts_are_used_at_once(void **state)
{
    (void)state;
    pthread_barrier_t barrier;
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, call_in_own_context, &barrier), 0);
    assert_non_null(call_in_own_context(&barrier));
    pthread_join(thread, &result);
    assert_non_null(result);
    pthread_barrier_destroy(&barrier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(another_thread_is_refused),
        context_test(after_the_call_another_thread_may),
        cmocka_unit_test(contexts_are_used_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
