/* tests/test_gradient_access.c: gradients from a program: seeds of gd_backward, gradients of results,
 * setting and dropping gradients (compiled functions too), and looking at a graph's nodes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

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

/* [1, 2, 3], a leaf. */
static gd_tensor *leaf(gd_context *gd)
{
    return gd_set_requires_grad(gd_from_host(gd, GD_SHAPE(3), GD_F64, (double[]){ 1, 2, 3 }), true);
}

static void assert_values(const gd_tensor *t, double a, double b, double c)
{
    double values[3] = { 0 }, expected[3] = { a, b, c };
    assert_int_equal(gd_tensor_read(t, values, sizeof values), GD_OK);
    for (int i = 0; i < 3; i++)
        if (!(values[i] == expected[i]))
            fail_msg("[%g %g %g] is not [%g %g %g]", values[0], values[1], values[2], a, b, c);
}

/* ---- seeds ---- */

static void a_seed_is_the_gradient_from_above(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd), *y = gd_square(x);
    gd_tensor *seed = gd_from_host(gd, GD_SHAPE(3), GD_F64, (double[]){ 1, 10, -1 });
    assert_int_equal(gd_backward_seeded(y, seed), GD_OK);
    assert_values(gd_gradient(x), 2, 40, -6);
    assert_values(seed, 1, 10, -1); /* it is not added up in */
    assert_int_equal(gd_backward_seeded(gd_square(x), seed), GD_OK);
    assert_values(gd_gradient(x), 4, 80, -12);
    /* Of a leaf itself. */
    gd_tensor *z = leaf(gd);
    assert_int_equal(gd_backward_seeded(z, seed), GD_OK);
    assert_values(gd_gradient(z), 1, 10, -1);
    assert_int_equal(gd_backward_seeded(z, seed), GD_OK);
    assert_values(gd_gradient(z), 2, 20, -2);
    assert_values(seed, 1, 10, -1);
}

static void wrong_seeds_are_refused(void **state)
{
    gd_context *gd = *state;
    gd_tensor *y = gd_square(leaf(gd));
    assert_int_equal(gd_backward_seeded(y, NULL), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(gd_backward_seeded(y, gd_ones(gd, GD_SHAPE(2), GD_F64)), GD_ERR_SHAPE);
    assert_error(GD_ERR_SHAPE, "gd_backward_seeded: a seed is [2], its output [3]");
    gd_context *other = gd_open("cpu");
    assert_int_equal(gd_backward_seeded(y, gd_ones(other, GD_SHAPE(3), GD_F64)), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "another context");
    gd_close(other);
}

/* ---- gradients of results ---- */

static void results_keep_their_gradients(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd), *y = gd_square(x), *z = gd_mul_scalar(y, 3);
    assert_ptr_equal(gd_retain_grad(y), y);
    assert_null(gd_gradient(y));
    assert_int_equal(gd_backward(gd_sum(gd_mul(z, y), GD_ALL_AXES, false)), GD_OK); /* 3 x^4 */
    assert_values(gd_gradient(y), 6, 24, 54);                                       /* 6 x^2 */
    assert_values(gd_gradient(x), 12, 96, 324);
    assert_null(gd_gradient(z));
    assert_int_equal(gd_backward(gd_sum(y, GD_ALL_AXES, false)), GD_OK);
    assert_values(gd_gradient(y), 7, 25, 55);
    assert_int_equal(gd_zero_grad(y), GD_OK);
    assert_values(gd_gradient(y), 0, 0, 0);
    assert_ptr_equal(gd_retain_grad(x), x);  /* of a leaf: nothing new */
    assert_int_equal(gd_backward(y), GD_OK); /* of the output itself */
    assert_values(gd_gradient(y), 1, 1, 1);
}

/* A result whose only readers are slices and gathered rows, whose gradients wait to be joined. */
static void results_of_which_parts_are_read_keep_theirs(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd), *y = gd_retain_grad(gd_mul_scalar(x, 2));
    gd_tensor *first = gd_slice(y, 0, 0, 1, 1), *last = gd_slice(y, 0, 2, 3, 1);
    gd_tensor *index = gd_from_host(gd, GD_SHAPE(2), GD_I64, (int64_t[]){ 1, 1 });
    gd_tensor *loss = gd_add(gd_add(gd_sum(gd_mul_scalar(first, 5), GD_ALL_AXES, false),
                                    gd_sum(gd_square(last), GD_ALL_AXES, false)),
                             gd_sum(gd_gather(y, index, 0), GD_ALL_AXES, false));
    assert_int_equal(gd_backward(loss), GD_OK);
    assert_values(gd_gradient(y), 5, 2, 12);
    assert_values(gd_gradient(x), 10, 4, 24);
}

static gd_tensor *cube(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul(gd_square(in[0]), in[0]);
}

static gd_tensor *retains_inside(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_retain_grad(gd_square(in[0]));
}

static void results_of_compiled_calls_keep_theirs(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd);
    gd_function *f = gd_compile(gd, cube, NULL);
    for (int i = 0; i < 3; i++) {
        gd_tensor *y = gd_call(f, 1, &x);
        assert_null(gd_gradient(y)); /* each call's result is a new tensor */
        assert_ptr_equal(gd_retain_grad(y), y);
        assert_int_equal(gd_backward(gd_sum(gd_square(y), GD_ALL_AXES, false)), GD_OK);
        assert_values(gd_gradient(y), 2, 16, 54);
    }
    gd_tensor *y = gd_call(f, 1, &x); /* not marked again */
    assert_int_equal(gd_backward(y), GD_OK);
    assert_null(gd_gradient(y));
    assert_null(gd_call(gd_compile(gd, retains_inside, NULL), 1, &x));
    assert_error(GD_ERR_STATE, "gd_retain_grad");
    assert_null(gd_retain_grad(gd_ones(gd, GD_SHAPE(3), GD_F64)));
    assert_error(GD_ERR_STATE, "gd_retain_grad");
}

/* ---- setting and dropping ---- */

static void gradients_are_set_and_dropped(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd), *g = gd_from_host(gd, GD_SHAPE(3), GD_F64, (double[]){ 5, 6, 7 });
    assert_int_equal(gd_set_gradient(x, g), GD_OK);
    assert_values(gd_gradient(x), 5, 6, 7);
    assert_ptr_not_equal(gd_gradient(x), g);
    assert_int_equal(gd_set(g, 100, 0), GD_OK); /* a copy */
    assert_values(gd_gradient(x), 5, 6, 7);
    assert_int_equal(gd_backward(gd_square(x)), GD_OK);
    assert_values(gd_gradient(x), 7, 10, 13);
    assert_int_equal(gd_set_gradient(x, gd_gradient(x)), GD_OK);
    assert_values(gd_gradient(x), 7, 10, 13);

    int64_t live = gd_memory(gd).live_tensors;
    assert_int_equal(gd_set_gradient(x, NULL), GD_OK);
    assert_null(gd_gradient(x));
    assert_int_equal(gd_memory(gd).live_tensors, live - 1);
    assert_int_equal(gd_set_gradient(x, NULL), GD_OK);
    assert_int_equal(gd_backward(gd_square(x)), GD_OK);
    assert_values(gd_gradient(x), 2, 4, 6);
}

static void gradients_that_do_not_fit_are_refused(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd);
    assert_int_equal(gd_set_gradient(x, gd_ones(gd, GD_SHAPE(2), GD_F64)), GD_ERR_SHAPE);
    assert_error(GD_ERR_SHAPE, "gd_set_gradient");
    assert_int_equal(gd_set_gradient(x, gd_ones(gd, GD_SHAPE(3), GD_F32)), GD_ERR_DTYPE);
    assert_error(GD_ERR_DTYPE, "gd_set_gradient");
    assert_int_equal(gd_set_gradient(gd_square(x), x), GD_ERR_STATE);
    gd_error_clear();
    assert_int_equal(gd_set_gradient(gd_ones(gd, GD_SHAPE(3), GD_F64), x), GD_ERR_STATE);
    gd_error_clear();
    assert_int_equal(gd_set_gradient(NULL, x), GD_ERR_INVALID);
    gd_error_clear();
    assert_null(gd_gradient(x));
}

/* Adds d(x^2)/dx to x's gradient at each call. */
static gd_tensor *accumulates(void *user, int count, gd_tensor *const *in)
{
    (void)count, (void)in;
    gd_tensor *y = gd_sum(gd_square(user), GD_ALL_AXES, false);
    return gd_backward(y) == GD_OK ? y : NULL;
}

/* The plan adds to the gradient there is, after it was dropped as before. */
static void dropped_gradients_are_made_again_by_compiled_functions(void **state)
{
    gd_context *gd = *state;
    const gd_mode modes[] = { GD_MODE_COMPILED, GD_MODE_EAGER, GD_MODE_LAZY };
    for (int m = 0; m < 3; m++) {
        gd_tensor *x = leaf(gd);
        gd_function *f = gd_compile(gd, accumulates, x, .mode = modes[m]);
        assert_non_null(gd_call(f, 0, NULL));
        assert_non_null(gd_call(f, 0, NULL));
        assert_values(gd_gradient(x), 4, 8, 12);
        assert_int_equal(gd_set_gradient(x, NULL), GD_OK);
        assert_non_null(gd_call(f, 0, NULL));
        assert_non_null(gd_gradient(x));
        assert_values(gd_gradient(x), 2, 4, 6);
        assert_int_equal(gd_set_gradient(x, gd_ones(gd, GD_SHAPE(3), GD_F64)), GD_OK);
        assert_non_null(gd_call(f, 0, NULL)); /* set in place: the same plan */
        assert_values(gd_gradient(x), 3, 5, 7);
        if (modes[m] == GD_MODE_COMPILED)
            assert_int_equal(gd_function_stats(f).traces, 2);
    }
}

static gd_tensor *sets_a_gradient(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_set_gradient(user, gd_mul_scalar(in[0], 2)) == GD_OK ? in[0] : NULL;
}

static gd_tensor *drops_a_gradient(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_set_gradient(user, NULL) == GD_OK ? in[0] : NULL;
}

static void setting_is_an_effect_of_compiled_functions(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd);
    gd_function *f = gd_compile(gd, sets_a_gradient, x);
    for (int i = 1; i < 4; i++) {
        gd_tensor *g = gd_full(gd, GD_SHAPE(3), i, GD_F64);
        assert_non_null(gd_call(f, 1, &g));
        assert_values(gd_gradient(x), 2 * i, 2 * i, 2 * i);
    }
    assert_null(gd_call(gd_compile(gd, drops_a_gradient, x), 1, &x));
    assert_int_equal(gd_error_code(), GD_ERR_STATE);
}

/* ---- looking at a graph ---- */

static gd_tensor *zeroes_first(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *const *x = user;
    if (gd_zero_grad(x[0]) != GD_OK || gd_zero_grad(x[1]) != GD_OK)
        return NULL;
    gd_tensor *loss = gd_sum(gd_mul(x[0], in[0]), GD_ALL_AXES, false);
    return gd_backward(loss) == GD_OK && gd_backward(gd_square(x[0])) == GD_OK ? loss : NULL;
}

/* The usual order: zeros, gradients, step. At the first call there is nothing to set to zeros. */
static void gradients_begin_with_zeros_at_each_call(void **state)
{
    gd_context *gd = *state;
    static const gd_mode modes[] = { GD_MODE_EAGER, GD_MODE_COMPILED, GD_MODE_LAZY };
    for (int m = 0; m < 3; m++) {
        gd_tensor *x[2] = { leaf(gd), leaf(gd) }, *w = gd_full(gd, GD_SHAPE(3), 5, GD_F64);
        gd_function *f = gd_compile(gd, zeroes_first, x, .mode = modes[m]);
        for (int i = 0; i < 3; i++) {
            assert_non_null(gd_call(f, 1, &w));
            assert_values(gd_gradient(x[0]), 7, 9, 11);
            assert_null(gd_gradient(x[1])); /* which the loss does not depend on */
        }
    }
}

static void a_tensor_tells_what_made_it(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd), *y = gd_matmul(x, gd_ones(gd, GD_SHAPE(3, 2), GD_F64));
    gd_tensor *z = gd_softmax(gd_set_name(y, "scores"), 0);
    assert_string_equal(gd_tensor_op(x), "");
    assert_string_equal(gd_tensor_op(z), "softmax");
    assert_string_equal(gd_tensor_op(NULL), "");
    assert_string_equal(gd_tensor_name(y), "scores");
    assert_string_equal(gd_tensor_name(z), "");
    assert_int_equal(gd_tensor_input_count(x), 0);
    assert_int_equal(gd_tensor_input_count(z), 1);
    assert_ptr_equal(gd_tensor_input(z, 0), y);
    assert_null(gd_tensor_input(z, 1));
    assert_null(gd_tensor_input(z, -1));
    assert_null(gd_tensor_input(NULL, 0));
    assert_int_equal(gd_error_code(), GD_OK);

    char text[8];
    assert_int_equal(gd_tensor_attribute(z, text, sizeof text), strlen("axis=0"));
    assert_string_equal(text, "axis=0");
    assert_int_equal(gd_tensor_attribute(z, text, 4), strlen("axis=0"));
    assert_string_equal(text, "axi");
    assert_int_equal(gd_tensor_attribute(z, NULL, 0), strlen("axis=0"));
    assert_int_equal(gd_tensor_attribute(x, text, sizeof text), 0);
    assert_string_equal(text, "");
    /* A result without a history. */
    gd_tensor *plain = gd_exp(gd_ones(gd, GD_SHAPE(3), GD_F64));
    assert_string_equal(gd_tensor_op(plain), "exp");
    assert_int_equal(gd_tensor_input_count(plain), 0);
}

static void the_order_has_inputs_before_users(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd), *a = gd_exp(x), *b = gd_mul(a, x), *c = gd_add(b, a);
    gd_tensor *order[8] = { NULL };
    assert_int_equal(gd_graph_order(c, NULL, 0), 4);
    assert_int_equal(gd_graph_order(c, order, 8), 4);
    assert_ptr_equal(order[0], x);
    assert_ptr_equal(order[1], a);
    assert_ptr_equal(order[2], b);
    assert_ptr_equal(order[3], c);
    assert_null(order[4]);
    gd_tensor *two[3] = { NULL, NULL, x };
    assert_int_equal(gd_graph_order(c, two, 2), 4);
    assert_ptr_equal(two[1], a);
    assert_ptr_equal(two[2], x);
    assert_int_equal(gd_graph_order(NULL, order, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
        TEST(a_seed_is_the_gradient_from_above),
        TEST(wrong_seeds_are_refused),
        TEST(results_keep_their_gradients),
        TEST(results_of_which_parts_are_read_keep_theirs),
        TEST(results_of_compiled_calls_keep_theirs),
        TEST(gradients_are_set_and_dropped),
        TEST(gradients_that_do_not_fit_are_refused),
        TEST(dropped_gradients_are_made_again_by_compiled_functions),
        TEST(setting_is_an_effect_of_compiled_functions),
        TEST(gradients_begin_with_zeros_at_each_call),
        TEST(a_tensor_tells_what_made_it),
        TEST(the_order_has_inputs_before_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
