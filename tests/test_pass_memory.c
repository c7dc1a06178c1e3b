/* tests/test_pass_memory.c: memory planning: where buffers are placed, and what plans of whole
 * networks take. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/memory.h"
#include "compile/place.h"
#include "support/context.h"
#include "support/effort.h"

/* ---- placing, against the definition tried offset by offset ---- */

enum { MOST = 120 };

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static bool collides(const gd_plan_buffer *a, const gd_plan_buffer *b, size_t offset)
{
    return a->first <= b->last && b->first <= a->last && offset < b->offset + b->bytes &&
           b->offset < offset + a->bytes;
}

/* 0, or behind one of the buffers before, whichever is lowest and free. */
static size_t expected(const gd_plan_buffer *buffers, int i)
{
    size_t best = SIZE_MAX;
    for (int k = -1; k < i; k++) {
        size_t at = k < 0 ? 0 : buffers[k].offset + buffers[k].bytes;
        bool is_free = at < best;
        for (int j = 0; j < i && is_free; j++)
            is_free = !collides(&buffers[i], &buffers[j], at);
        best = is_free ? at : best;
    }
    return best;
}

static void each_buffer_lies_as_low_as_it_can(void **state)
{
    (void)state;
    uint32_t random = 7;
    for (int round = 0; round < (TEST_UNDER_TSAN || TEST_UNDER_MEMORY_CHECKS ? 20 : 200); round++) {
        gd_plan_buffer buffers[MOST];
        int count = (int)(next_random(&random) % MOST) + 1;
        int32_t steps = (int32_t)(next_random(&random) % 70) + 1, longest = round % 2 ? steps : 4;
        for (int i = 0; i < count; i++) {
            int32_t first = (int32_t)(next_random(&random) % (uint32_t)steps);
            int32_t last = first + (int32_t)(next_random(&random) % (uint32_t)longest);
            buffers[i] = (gd_plan_buffer){ .bytes = 1 + next_random(&random) % 9,
                                           .first = first,
                                           .last = last < steps ? last : steps - 1 };
        }
        size_t bytes, most = 0;
        assert_int_equal(gd_place(buffers, (size_t)count, (size_t)steps, &bytes), GD_OK);
        for (int i = 0; i < count; i++) {
            assert_int_equal(buffers[i].offset, expected(buffers, i));
            size_t end = buffers[i].offset + buffers[i].bytes;
            most = end > most ? end : most;
        }
        assert_int_equal(bytes, most);
    }
}

static bool place_some(int count)
{
    gd_plan_buffer *buffers = calloc((size_t)count, sizeof *buffers);
    for (int i = 0; i < count; i++)
        buffers[i] = (gd_plan_buffer){ .bytes = 64, .first = i, .last = i + 1 };
    size_t bytes = 0;
    bool ok = gd_place(buffers, (size_t)count, (size_t)count + 1, &bytes) == GD_OK;
    assert_true(!ok || bytes == 128);
    free(buffers);
    return ok;
}

static void a_failed_allocation_is_reported(void **state)
{
    (void)state;
    fail_every_allocation(place_some, 9);
    assert_true(place_some(20000)); /* by a scan over all before, this would take seconds */
    size_t bytes = 1;
    assert_int_equal(gd_place(NULL, 0, 0, &bytes), GD_OK);
    assert_int_equal(bytes, 0);
}

/* 20,000 results that wait for each other and die in another order than they were made: what each
 * part of the tree has is in pieces, and the search for a gap ends early. */
static void many_that_wait_lie_apart(void **state)
{
    (void)state;
    enum { WAITING = TEST_UNDER_TSAN || TEST_UNDER_MEMORY_CHECKS ? 4000 : 20000, LATER = 100 };
    gd_plan_buffer *buffers = calloc(WAITING + LATER, sizeof *buffers);
    assert_non_null(buffers);
    for (int i = 0; i < WAITING; i++)
        buffers[i] = (gd_plan_buffer){ .bytes = 64, .first = i, .last = WAITING + i * 7 % WAITING };
    for (int i = 0; i < LATER; i++) /* in what the first to die have left */
        buffers[WAITING + i] =
            (gd_plan_buffer){ .bytes = 64, .first = 2 * WAITING - 1 - i, .last = 2 * WAITING };
    size_t bytes;
    assert_int_equal(gd_place(buffers, WAITING + LATER, 2 * WAITING + 1, &bytes), GD_OK);
    assert_int_equal(bytes, (size_t)WAITING * 64);
    for (int i = 0; i < WAITING; i++)
        assert_int_equal(buffers[i].offset, (size_t)i * 64);
    for (int i = WAITING; i < WAITING + LATER; i++)
        for (int j = 0; j < i; j++)
            assert_false(collides(&buffers[i], &buffers[j], buffers[i].offset));
    free(buffers);
}

/* ---- plans ---- */

typedef struct tower {
    gd_module *module;
    gd_optimizer *optimizer;
    int layers;
} tower;

static gd_tensor *tower_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    tower *t = user;
    gd_tensor *h = in[0];
    for (int i = 0; i < t->layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        h = gd_tanh(gd_nn_linear(t->module, name, h, 10 + i % 7 * 5));
    }
    return gd_minimize(t->optimizer, gd_cross_entropy(h, in[1]));
}

/* Within 5 % of what is alive at the worst step. */
static void plans_are_as_small_as_what_is_alive(void **state)
{
    gd_context *gd = *state;
    for (int layers = 1; layers <= 64; layers *= 4) {
        tower t = { gd_module_create(gd, .seed = 1), NULL, layers };
        t.optimizer = gd_adam(t.module);
        gd_function *f = gd_compile(gd, tower_step, &t);
        gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(30, 40), 0, 1, GD_F32),
                             gd_zeros(gd, GD_SHAPE(30), GD_I64) };
        assert_int_equal(gd_function_prepare(f, 2, in), GD_OK);
        gd_plan_stats stats = gd_function_stats(f);
        assert_true(stats.arena_bytes >= stats.live_bytes);
        assert_true((double)stats.arena_bytes <= 1.05 * (double)stats.live_bytes);
    }
}

/* y = neg(x * x): one buffer, written over in place; the result has memory of its own. */
static gd_tensor *in_place_chain(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_softmax(in[0], 0); /* nothing fuses with it */
    for (int i = 0; i < 6; i++)
        x = gd_softmax(gd_exp(x), 0);
    return x;
}

static void an_elementwise_op_takes_over_what_dies_in_it(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(1024), GD_F32);
    gd_function *f = gd_compile(gd, in_place_chain, NULL);
    assert_int_equal(gd_function_prepare(f, 1, &x), GD_OK);
    assert_int_equal(gd_function_stats(f).arena_bytes, 2 * 4096); /* in turn */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_buffer_lies_as_low_as_it_can),
        cmocka_unit_test(a_failed_allocation_is_reported),
        cmocka_unit_test(many_that_wait_lie_apart),
        context_test(plans_are_as_small_as_what_is_alive),
        context_test(an_elementwise_op_takes_over_what_dies_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
