/* tests/test_module_to.c: modules go to other contexts, and other devices (gd_module_to). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "support/context.h"

static gd_tensor *network(gd_module *m, gd_tensor *x)
{
    return gd_nn_linear(m, "fc2", gd_relu(gd_nn_linear(m, "fc1", x, 3)), 2);
}

static void expect_same_values(const gd_module *a, const gd_module *b)
{
    assert_int_equal(gd_module_count(a), gd_module_count(b));
    for (int i = 0; i < gd_module_count(a); i++) {
        const gd_tensor *t = gd_module_tensor(a, i), *copy = gd_module_tensor(b, i);
        assert_string_equal(gd_module_path(a, i), gd_module_path(b, i));
        assert_string_equal(gd_tensor_name(t), gd_tensor_name(copy));
        assert_int_equal(gd_module_is_parameter(a, i), gd_module_is_parameter(b, i));
        assert_int_equal(gd_requires_grad(t), gd_requires_grad(copy));
        assert_ptr_not_equal(t, copy);
        assert_same_bits(t, copy);
    }
}

/* With parameters that are trained and one that is not, and a buffer. */
static void modules_go_to_other_contexts(void **state)
{
    static const char *const where[] = { "cpu", "reference" };
    static const float threes[3] = { 3, 3, 3 };
    gd_module *m = gd_module_create(*state, .seed = 7);
    gd_tensor *x = gd_ones(*state, GD_SHAPE(2, 4), GD_F32);
    assert_non_null(network(m, x));
    assert_non_null(gd_buffer(m, "mean", GD_SHAPE(3), 2.5, GD_F32));
    assert_non_null(gd_set_requires_grad(gd_module_parameter(m, "fc2.bias"), false));
    gd_module_set_training(m, false);
    for (int i = 0; i < 3; i++) { /* the last time to its own */
        gd_context *other = i < 2 ? gd_open(where[i], .threads = 1) : *state;
        gd_module *copy = gd_module_to(other, m);
        assert_non_null(copy);
        assert_ptr_equal(gd_module_context(copy), other);
        assert_false(gd_module_is_training(copy));
        expect_same_values(m, copy);
        gd_module *next = gd_module_to(*state, copy); /* draws the next values alike */
        gd_module *expected = gd_module_to(*state, m);
        assert_same_bits(gd_parameter(next, "more", GD_SHAPE(4, 5)),
                         gd_parameter(expected, "more", GD_SHAPE(4, 5)));
        gd_module_release(next);
        gd_module_release(expected);
        assert_non_null(network(copy, gd_to(other, x)));
        assert_int_equal(gd_module_count(copy), 5);
        assert_int_equal(
            gd_tensor_write(gd_module_parameter(copy, "fc1.bias"), threes, sizeof threes), GD_OK);
        gd_module_release(copy);
        assert_true(gd_item(gd_sum(gd_module_parameter(m, "fc1.bias"), GD_ALL_AXES, false)) == 0);
        if (i < 2)
            gd_close(other);
    }
    assert_null(gd_module_to(NULL, m));
    expect_error(GD_ERR_INVALID, "gd_module_to: the context is NULL");
    assert_null(gd_module_to(*state, NULL));
    expect_error(GD_ERR_INVALID, "gd_module_to: the module is NULL");
}

/* Between two contexts; whatever fails, nothing of a copy is left. */
static bool copy_module(int argument)
{
    (void)argument;
    bool ok = false;
    gd_context *a = gd_open("cpu", .threads = 1), *b = a ? gd_open("cpu", .threads = 1) : NULL;
    gd_module *m = b ? gd_module_create(a) : NULL;
    if (m && gd_parameter(m, "w", GD_SHAPE(2, 3)) && gd_buffer(m, "b", GD_SHAPE(2), 1, GD_F32)) {
        gd_module *copy = gd_module_to(b, m);
        ok = copy && gd_module_count(copy) == 2;
    }
    gd_close(b);
    gd_close(a);
    return ok;
}

static void copies_of_modules_survive_failing_allocations(void **state)
{
    (void)state;
    fail_every_allocation(copy_module, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(modules_go_to_other_contexts),
        cmocka_unit_test(copies_of_modules_survive_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
