/* tests/test_lazy.c: GD_MODE_LAZY: a body recorded anew at every call, and recognised: whatever
 * changes from call to call takes effect, and what does not costs no plan. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"

enum { CALLS = 40 };

/* What the body does is decided in C, at every call. */
typedef struct choices {
    int depth, activation, extra_result, assigns, no_grad;
    double scale;
    gd_tensor *w, *state, *fresh;
    bool may_fail;
} choices;

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    choices *c = user;
    gd_context *gd = gd_tensor_context(in[0]);
    gd_tensor *h = in[0];
    for (int i = 0; i < c->depth; i++) {
        h = gd_matmul(h, c->w);
        if (i == 1)
            h = gd_add_(h, gd_mul_scalar(h, c->scale)); /* in place, of a value of the trace */
        h = c->activation == 0 ? gd_tanh(h) : c->activation == 1 ? gd_relu(h) : gd_dropout(h, 0.25);
    }
    if (c->fresh)
        h = gd_add(h, c->fresh);
    if (c->may_fail)
        return gd_reshape(h, GD_SHAPE(12345));
    if (c->no_grad)
        return gd_no_grad_begin(gd) == GD_OK && gd_exp(h) && gd_no_grad_end(gd) == GD_OK ? h : NULL;
    gd_tensor *loss = gd_sum(gd_square(h), GD_ALL_AXES, false), *g;
    if (gd_grad(1, &loss, NULL, 1, &c->w, &g) != GD_OK)
        return NULL;
    for (int i = 0; i < c->assigns; i++)
        gd_assign(c->state, gd_add(c->state, g));
    if (c->extra_result)
        gd_output(gd_detach(c->extra_result == 1 ? g : h));
    return gd_detach(loss);
}

typedef struct outcome {
    double value[CALLS], state[CALLS], next[CALLS];
    gd_plan_stats stats;
    size_t live_tensors;
} outcome;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Choices that change one at a time, and often not at all. */
static void choose(choices *c, uint32_t *random, gd_context *gd)
{
    switch (next_random(random) % 12) {
    case 0:
        c->depth = 1 + (int)(next_random(random) % 3);
        break;
    case 1:
        c->activation = (int)(next_random(random) % 3);
        break;
    case 2:
        c->extra_result = (int)(next_random(random) % 3);
        break;
    case 3:
        c->assigns = (int)(next_random(random) % 3);
        break;
    case 4:
        c->scale = (double)(next_random(random) % 4);
        break;
    case 5:
        c->fresh = c->fresh ? NULL : gd_scalar(gd, 0.125, GD_F32);
        break;
    case 6:
        c->no_grad = !c->no_grad;
        break;
    case 7:
        gd_set_requires_grad(c->state, !gd_requires_grad(c->state));
        break;
    default:
        break;
    }
}

static outcome run(gd_mode mode, bool with_failures)
{
    gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 3);
    choices c = { .depth = 2, .scale = 1 };
    c.w = gd_set_requires_grad(gd_retain(gd_normal(gd, GD_SHAPE(5, 5), 0, 0.5, GD_F32)), true);
    c.state = gd_retain(gd_zeros(gd, GD_SHAPE(5, 5), GD_F32));
    gd_tensor *x = gd_normal(gd, GD_SHAPE(4, 5), 0, 1, GD_F32), *y = gd_slice(x, 0, 0, 3, 1);
    gd_function *f = gd_compile(gd, body, &c, .mode = mode);
    outcome o;
    memset(&o, 0, sizeof o);
    uint32_t random = 77;
    for (int i = 0; i < CALLS; i++) {
        choose(&c, &random, gd);
        if (with_failures && i % 7 == 3) {
            c.may_fail = true;
            assert_null(gd_call(f, 1, &x));
            expect_error(GD_ERR_SHAPE, "gd_reshape");
            c.may_fail = false;
        }
        gd_tensor *r = gd_call(f, 1, next_random(&random) % 5 ? &x : &y);
        if (!r)
            fail_msg("call %d: %s", i, gd_error_message());
        o.value[i] = gd_item(gd_sum(r, GD_ALL_AXES, false));
        o.state[i] = gd_item(gd_sum(c.state, GD_ALL_AXES, false));
        if (!with_failures) /* eagerly, a body draws before it fails */
            o.next[i] = gd_item(gd_uniform(gd, GD_SCALAR, 0, 1, GD_F64));
        else
            assert_int_equal(gd_seed(gd, (uint64_t)i), GD_OK);
    }
    o.stats = gd_function_stats(f);
    gd_close(gd);
    return o;
}

static void what_changes_takes_effect(void **state)
{
    (void)state;
    for (int with_failures = 0; with_failures < 2; with_failures++) {
        outcome eager = run(GD_MODE_EAGER, with_failures), lazy = run(GD_MODE_LAZY, with_failures);
        assert_memory_equal(eager.value, lazy.value, sizeof eager.value);
        assert_memory_equal(eager.state, lazy.state, sizeof eager.state);
        assert_memory_equal(eager.next, lazy.next, sizeof eager.next);
        assert_true(lazy.stats.traces >= CALLS);
    }
}

static void what_does_not_change_is_recognised(void **state)
{
    gd_context *gd = *state;
    choices c = { .depth = 3, .activation = 2, .scale = 2, .assigns = 1, .extra_result = 1 };
    c.w = gd_set_requires_grad(gd_retain(gd_normal(gd, GD_SHAPE(5, 5), 0, 0.5, GD_F32)), true);
    c.state = gd_retain(gd_zeros(gd, GD_SHAPE(5, 5), GD_F32));
    gd_tensor *x = gd_normal(gd, GD_SHAPE(4, 5), 0, 1, GD_F32);
    gd_function *f = gd_compile(gd, body, &c, .mode = GD_MODE_LAZY);
    assert_non_null(gd_call(f, 1, &x));
    gd_memory_stats before = gd_memory(gd);
    for (int i = 0; i < 20; i++)
        assert_non_null(gd_call(f, 1, &x));
    assert_int_equal(gd_function_stats(f).plans, 1);
    assert_int_equal(gd_memory(gd).live_tensors, before.live_tensors);
    assert_int_equal(gd_memory(gd).in_use, before.in_use);
    /* back and forth between two recordings: two plans */
    for (int i = 0; i < 10; i++) {
        c.activation = i % 2;
        assert_non_null(gd_call(f, 1, &x));
    }
    assert_int_equal(gd_function_stats(f).plans, 3);
    assert_int_equal(gd_function_stats(f).evictions, 0);
}

/* A traced value kept from an earlier call is no value of this one. */
static gd_tensor *keeps(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor **kept = user;
    gd_tensor *y = *kept ? gd_add(*kept, in[0]) : in[0];
    gd_tensor *z = gd_exp(y);
    if (!*kept)
        *kept = gd_retain(z);
    return z;
}

static void a_value_of_an_earlier_recording_is_refused(void **state)
{
    gd_context *gd = *state;
    gd_tensor *kept = NULL, *x = gd_scalar(gd, 1, GD_F32);
    gd_function *f = gd_compile(gd, keeps, &kept, .mode = GD_MODE_LAZY);
    assert_non_null(gd_call(f, 1, &x));
    assert_null(gd_call(f, 1, &x));
    expect_error(GD_ERR_STATE, "trace");
    gd_release(kept);
}

static bool everything(int calls)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    choices c = { .depth = 2, .scale = 1, .assigns = 1 };
    c.w = gd ? gd_set_requires_grad(gd_ones(gd, GD_SHAPE(5, 5), GD_F32), true) : NULL;
    c.state = c.w ? gd_zeros(gd, GD_SHAPE(5, 5), GD_F32) : NULL;
    gd_tensor *x = c.state ? gd_ones(gd, GD_SHAPE(2, 5), GD_F32) : NULL;
    gd_function *f = x ? gd_compile(gd, body, &c, .mode = GD_MODE_LAZY) : NULL;
    bool ok = f;
    for (int i = 0; ok && i < calls; i++) {
        c.activation = i / 2;
        ok = gd_call(f, 1, &x);
    }
    gd_close(gd);
    return ok;
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    fail_every_allocation(everything, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_changes_takes_effect),
        context_test(what_does_not_change_is_recognised),
        context_test(a_value_of_an_earlier_recording_is_refused),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
