/* tests/test_scalar_allocation.c: the scalar engine when memory runs out. A whole round of use is
 * run with the n-th allocation failing, for every n until none fails: each time the failure must be
 * reported, nothing leaked, and the next round work. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/scalar.h>

#include <stdlib.h>
#include <string.h>

/* An allocator that fails from a chosen allocation on, or only that one, and counts what is held.
 */
typedef struct failing {
    long before_failure; /* how many allocations still succeed; negative: all */
    bool once;           /* after one failure all succeed */
    long failed;         /* how many did not */
    long held;           /* blocks taken and not given back */
} failing;

static void *failing_resize(void *user, void *block, size_t bytes)
{
    failing *f = user;
    if (bytes == 0) {
        f->held -= block != NULL;
        free(block);
        return NULL;
    }
    if (f->before_failure == 0) {
        f->failed++;
        if (f->once)
            f->before_failure = -1;
        return NULL;
    }
    if (f->before_failure > 0)
        f->before_failure--;
    void *resized = realloc(block, bytes);
    assert_non_null(resized);
    f->held += block == NULL;
    return resized;
}

/* One round: build a network, run it over some points, backward. 0, or -1 if anything failed. */
static int round_of_use(void)
{
    gd_mlp *mlp = gd_mlp_create((const size_t[]){ 2, 16, 16, 1 }, 4, GD_SCALAR_LINEAR, 1);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    gd_scalar_set *seen = gd_scalar_set_create();
    int status = seen != NULL ? gd_mlp_parameters(mlp, parameters) : -1;

    for (size_t i = 0; status == 0 && i < gd_scalar_vector_size(parameters); i++)
        if (gd_scalar_set_insert(seen, gd_scalar_vector_get(parameters, i)) != 1)
            status = -1;

    gd_value *loss = gd_value_create_leaf(0.0);
    for (int i = 0; i < 6; i++) { /* 3,900 values: more than one chunk of pages */
        gd_scalar_vector *x = gd_scalar_vector_create();
        gd_scalar_vector_push_leaf(x, i);
        gd_scalar_vector_push_leaf(x, -i);
        gd_scalar_vector *y = gd_mlp_forward(mlp, x);
        loss = gd_value_accumulate(loss, gd_value_tanh(gd_scalar_vector_get(y, 0)));
        gd_scalar_vector_destroy(y);
        gd_scalar_vector_destroy(x);
    }
    /* A vector that failed to take its leaf leaves a network without its input, so loss is NULL. */
    if (gd_value_backward(loss) != 0)
        status = -1;
    gd_value_release(loss);
    gd_scalar_set_destroy(seen);
    gd_scalar_vector_destroy(parameters);
    gd_mlp_destroy(mlp);
    return status;
}

/* All that was taken has been given back, and the allocator may be exchanged. */
static void assert_nothing_held(const failing *f)
{
    assert_int_equal(gd_scalar_live_values(), 0);
    assert_int_equal(gd_scalar_trim(), 0);
    assert_int_equal(f->held, 0);
    assert_int_equal(gd_scalar_set_allocator(NULL, NULL), 0);
}

static void fail_every_allocation_in_turn(bool once)
{
    int failures = 0;
    for (long n = 0;; n++) {
        failing f = { .before_failure = n, .once = once };
        gd_scalar_error_clear();
        assert_int_equal(gd_scalar_set_allocator(failing_resize, &f), 0);
        int status = round_of_use();
        if (f.failed == 0) {
            assert_int_equal(status, 0);
            assert_string_equal(gd_scalar_error(), "");
            assert_nothing_held(&f);
            break;
        }
        failures++;
        assert_int_equal(status, -1);
        assert_string_equal(gd_scalar_error(), "gd_scalar: out of memory");

        /* With memory back, the same engine works. */
        f.before_failure = -1;
        gd_scalar_error_clear();
        assert_int_equal(round_of_use(), 0);
        assert_string_equal(gd_scalar_error(), "");
        assert_nothing_held(&f);
    }
    assert_true(failures > 100); /* the round asks for memory that often */
}

static void memory_that_runs_out_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    fail_every_allocation_in_turn(false);
}

/* The allocations after the failed one succeed: nothing may go on as if all were well. */
static void a_single_failure_is_not_forgotten(void **state)
{
    (void)state;
    fail_every_allocation_in_turn(true);
}

static void a_vector_that_cannot_grow_keeps_what_it_has(void **state)
{
    (void)state;
    failing f = { .before_failure = -1 };
    assert_int_equal(gd_scalar_set_allocator(failing_resize, &f), 0);
    gd_scalar_vector *vector = gd_scalar_vector_create();
    gd_value *a = gd_value_create_leaf(1.0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(gd_scalar_vector_push(vector, a), 0);
    f.before_failure = 0;
    assert_int_equal(gd_scalar_vector_push(vector, a), -1); /* has to grow, and cannot */
    f.before_failure = -1;
    assert_int_equal(gd_scalar_vector_size(vector), 8);
    assert_ptr_equal(gd_scalar_vector_get(vector, 7), a);
    assert_int_equal(gd_value_references(a), 9);
    assert_int_equal(gd_scalar_vector_push(vector, a), 0);
    gd_scalar_vector_destroy(vector);
    gd_value_release(a);
    assert_nothing_held(&f);
    gd_scalar_error_clear();
}

static void a_set_that_cannot_grow_keeps_what_it_has(void **state)
{
    (void)state;
    char items[9];
    failing f = { .before_failure = -1 };
    assert_int_equal(gd_scalar_set_allocator(failing_resize, &f), 0);
    gd_scalar_set *set = gd_scalar_set_create();
    for (int i = 0; i < 8; i++)
        assert_int_equal(gd_scalar_set_insert(set, &items[i]), 1);
    f.before_failure = 0;
    assert_int_equal(gd_scalar_set_insert(set, &items[8]), -1);
    assert_int_equal(gd_scalar_set_insert(set, &items[3]), 0); /* known: needs no room */
    assert_int_equal(gd_scalar_set_size(set), 8);
    assert_false(gd_scalar_set_contains(set, &items[8]));
    f.before_failure = -1;
    assert_int_equal(gd_scalar_set_insert(set, &items[8]), 1);
    gd_scalar_set_destroy(set);
    assert_nothing_held(&f);
    gd_scalar_error_clear();
}

static void backward_without_memory_changes_nothing(void **state)
{
    (void)state;
    failing f = { .before_failure = -1 };
    assert_int_equal(gd_scalar_set_allocator(failing_resize, &f), 0);
    gd_value *a = gd_value_create_leaf(3.0);
    gd_value *b = gd_value_mul(a, a);
    f.before_failure = 0;
    assert_int_equal(gd_value_backward(b), -1);
    assert_true(gd_value_grad(a) == 0.0 && gd_value_grad(b) == 0.0);
    f.before_failure = -1;
    assert_int_equal(gd_value_backward(b), 0);
    assert_true(gd_value_grad(a) == 6.0);
    gd_value_release(b);
    gd_value_release(a);
    assert_nothing_held(&f);
    gd_scalar_error_clear();
}

static void the_allocator_cannot_change_under_living_memory(void **state)
{
    (void)state;
    failing f = { .before_failure = -1 };
    gd_scalar_vector *vector = gd_scalar_vector_create();
    assert_int_equal(gd_scalar_set_allocator(failing_resize, &f), -1);
    assert_non_null(strstr(gd_scalar_error(), "still in use"));
    gd_scalar_vector_destroy(vector);
    assert_int_equal(gd_scalar_set_allocator(failing_resize, &f), 0);
    gd_value *a = gd_value_create_leaf(1.0);
    assert_true(f.held > 0);
    assert_int_equal(gd_scalar_set_allocator(NULL, NULL), -1);
    gd_value_release(a);
    assert_nothing_held(&f);
    gd_scalar_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_runs_out_is_reported_and_nothing_leaks),
        cmocka_unit_test(a_single_failure_is_not_forgotten),
        cmocka_unit_test(a_vector_that_cannot_grow_keeps_what_it_has),
        cmocka_unit_test(a_set_that_cannot_grow_keeps_what_it_has),
        cmocka_unit_test(backward_without_memory_changes_nothing),
        cmocka_unit_test(the_allocator_cannot_change_under_living_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
