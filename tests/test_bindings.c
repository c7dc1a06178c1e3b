/* tests/test_bindings.c: what bindings of other languages stand on: parameters that are made outside of their module, and the
 * hash by which a library is told from another. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include <gradus/gradus.h>

#include "support/context.h"

static void read_values(gd_tensor *t, float *values, size_t count)
{
    assert_non_null(t);
    assert_int_equal(gd_tensor_read(t, values, count * sizeof(float)), GD_OK);
}

/* Parameters drawn and put have the bits of those that the module makes itself, and train alike. */
static void drawn_parameters_are_those_the_module_would_make(void **state)
{
    gd_context *gd = *state;
    gd_module *own = gd_module_create(gd, .seed = 3), *source = gd_module_create(gd, .seed = 3);
    gd_module *taken = gd_module_create(gd);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2, 4), GD_F32);
    gd_tensor *expected = gd_nn_linear(own, "fc2", gd_nn_linear(own, "fc1", x, 3), 2);

    static const char *const paths[] = { "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias" };
    const gd_shape shapes[] = { GD_SHAPE(4, 3), GD_SHAPE(3), GD_SHAPE(3, 2), GD_SHAPE(2) };
    for (int i = 0; i < 4; i++) {
        gd_init init = i % 2 ? GD_INIT_ZEROS : GD_INIT_GLOROT_UNIFORM;
        gd_tensor *p = gd_module_draw(source, shapes[i], .init = init);
        assert_true(gd_requires_grad(p));
        assert_int_equal(gd_module_put(taken, paths[i], p, true), GD_OK);
        assert_ptr_equal(gd_module_parameter(taken, paths[i]), p);
    }
    assert_int_equal(gd_module_count(source), 0);
    assert_int_equal(gd_module_count(taken), 4);
    gd_tensor *result = gd_nn_linear(taken, "fc2", gd_nn_linear(taken, "fc1", x, 3), 2);
    assert_non_null(gd_minimize(gd_adam(own, .lr = 0.1), gd_sum(expected, GD_ALL_AXES, false)));
    assert_non_null(gd_minimize(gd_adam(taken, .lr = 0.1), gd_sum(result, GD_ALL_AXES, false)));
    for (int i = 0; i < 4; i++) {
        float a[12], b[12];
        size_t count = (size_t)gd_tensor_count(gd_module_parameter(own, paths[i]));
        read_values(gd_module_parameter(own, paths[i]), a, count);
        read_values(gd_module_parameter(taken, paths[i]), b, count);
        assert_memory_equal(a, b, count * sizeof(float));
    }
}

/* A module that has taken a tensor in keeps it, and a buffer is not trained. */
static void put_tensors_live_with_the_module(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd);
    assert_int_equal(gd_scope_begin(gd), GD_OK);
    assert_int_equal(gd_module_put(m, "mean", gd_full(gd, GD_SHAPE(2), 7, GD_I64), false), GD_OK);
    gd_tensor *named = gd_set_name(gd_ones(gd, GD_SHAPE(2), GD_F32), "its own");
    assert_int_equal(gd_module_put(m, "frozen", named, true), GD_OK);
    assert_int_equal(gd_scope_end(gd), GD_OK);
    assert_string_equal(gd_tensor_name(gd_module_tensor(m, 0)), "mean");
    assert_string_equal(gd_tensor_name(gd_module_tensor(m, 1)), "its own");
    assert_false(gd_module_is_parameter(m, 0));
    assert_true(gd_module_is_parameter(m, 1));
    assert_false(gd_requires_grad(gd_module_tensor(m, 1)));
    assert_true(gd_item(gd_sum(gd_module_tensor(m, 0), GD_ALL_AXES, false)) == 14.0);
}

static void what_cannot_be_a_parameter_is_refused(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd);
    gd_tensor *p = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(2), GD_F32), true);
    assert_int_equal(gd_module_put(m, "p", p, true), GD_OK);
    gd_module_put(m, "p", p, true);
    expect_error(GD_ERR_INVALID, "there is a \"p\" already");
    gd_module_put(m, "q", p, true);
    expect_error(GD_ERR_INVALID,
                 "\"q\" is the module's \"p\", which an optimizer would change twice");
    gd_module_put(m, "", p, true);
    expect_error(GD_ERR_INVALID, "the path is empty");
    gd_module_put(m, "q", gd_relu(p), true);
    expect_error(GD_ERR_STATE, "not a leaf");
    gd_module_put(m, "q", gd_zeros(gd, GD_SHAPE(2), GD_F64), true);
    expect_error(GD_ERR_DTYPE, "is f64, the module's parameters are f32");
    gd_module_put(m, NULL, p, true);
    expect_error(GD_ERR_INVALID, "the path is NULL");
    gd_module_put(m, "q", NULL, true);
    expect_error(GD_ERR_INVALID, "the tensor is NULL");
    gd_context *other = gd_open("cpu", .threads = 1);
    gd_module_put(m, "q", gd_ones(other, GD_SHAPE(2), GD_F32), true);
    expect_error(GD_ERR_INVALID, "another context");
    gd_close(other);
    assert_null(gd_module_draw(m, GD_SHAPE(2, -1)));
    expect_error(GD_ERR_SHAPE, "");
    assert_int_equal(gd_module_count(m), 1);
}

static void the_hash_is_a_sha256(void **state)
{
    (void)state;
    assert_int_equal(strlen(gd_api_hash()), 64);
    assert_int_equal(strspn(gd_api_hash(), "0123456789abcdef"), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(drawn_parameters_are_those_the_module_would_make,
                                        open_context, close_context),
        cmocka_unit_test_setup_teardown(put_tensors_live_with_the_module, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(what_cannot_be_a_parameter_is_refused, open_context,
                                        close_context),
        cmocka_unit_test(the_hash_is_a_sha256),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
