/* tests/test_check_gradients.c: gd_check_gradients: passes right derivatives, finds wrong ones and
 * says where, leaves inputs and the random stream as they were. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
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

static gd_tensor *leaf(gd_context *gd, gd_shape shape, gd_dtype dtype)
{
    return gd_set_requires_grad(gd_normal(gd, shape, 0, 1, dtype), true);
}

static gd_tensor *product(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_tanh(gd_matmul(in[0], in[1]));
}

static void right_gradients_pass(void **state)
{
    gd_context *gd = *state;
    const gd_dtype dtypes[] = { GD_F64, GD_F32 };
    for (int i = 0; i < 2; i++) {
        gd_tensor *in[2] = { leaf(gd, GD_SHAPE(2, 3), dtypes[i]),
                             leaf(gd, GD_SHAPE(3, 4), dtypes[i]) };
        gd_gradient_error worst;
        assert_int_equal(gd_check_gradients(product, NULL, 2, in, i == 0 ? 1e-9 : 1e-3, &worst),
                         GD_OK);
        assert_int_equal(worst.elements, 18);
        assert_true(worst.error <= (i == 0 ? 1e-9 : 1e-3));
    }
}

/* 2 x * y + y, with the derivative by x left out in one element of y. */
static gd_tensor *wrong(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *hidden = gd_where(user, gd_detach(in[0]), in[0]);
    return gd_add(gd_mul(gd_mul_scalar(hidden, 2), in[1]), in[1]);
}

static void a_wrong_element_is_named(void **state)
{
    gd_context *gd = *state;
    const double x[6] = { 1, 2, 3, 4, 5, 6 }, y[6] = { 1, 1, 1, 1, 1, 4 };
    const unsigned char hides[6] = { 0, 0, 0, 0, 0, 1 };
    gd_tensor *in[2] = { gd_from_host(gd, GD_SHAPE(2, 3), GD_F64, x),
                         gd_from_host(gd, GD_SHAPE(2, 3), GD_F64, y) };
    gd_set_requires_grad(gd_set_name(in[0], "speed"), true);
    gd_set_requires_grad(in[1], true);
    gd_tensor *mask = gd_from_host(gd, GD_SHAPE(2, 3), GD_BOOL, hides);
    gd_gradient_error worst;
    assert_int_equal(gd_check_gradients(wrong, mask, 2, in, 1e-6, &worst), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "input 0 \"speed\", element [1, 2]: the gradient is 0");
    assert_int_equal(worst.input, 0);
    assert_true(gd_shape_equal(worst.index, GD_SHAPE(1, 2)));
    assert_true(worst.gradient == 0.0);
    assert_true(fabs(worst.slope) > 3.9); /* 2 * 4 * a weight from 0.5 on */
    assert_true(fabs(worst.error - 1.0) < 1e-6);
    assert_int_equal(worst.elements, 12);
    /* A tolerance that allows it. */
    assert_int_equal(gd_check_gradients(wrong, mask, 2, in, 1.5, NULL), GD_OK);
    /* Inputs have their values again. */
    double after[6];
    assert_int_equal(gd_tensor_read(in[0], after, sizeof after), GD_OK);
    assert_memory_equal(after, x, sizeof x);
}

/* NaN is never within a tolerance. */
static gd_tensor *root(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_sqrt(in[0]);
}

static void nan_is_an_error(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x =
        gd_set_requires_grad(gd_from_host(gd, GD_SHAPE(3), GD_F64, (double[]){ 4, -1, 9 }), true);
    gd_gradient_error worst;
    assert_int_equal(gd_check_gradients(root, NULL, 1, &x, 1e300, &worst), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "input 0, element [0]");
    assert_true(isnan(worst.error));
    assert_int_equal(worst.elements, 3);
}

static gd_tensor *dropped(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_dropout(gd_square(in[0]), 0.5);
}

static void random_functions_draw_the_same_numbers(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd, GD_SHAPE(20), GD_F64);
    assert_int_equal(gd_check_gradients(dropped, NULL, 1, &x, 1e-8, NULL), GD_OK);
}

/* Second derivatives: the function is a gradient. */
static gd_tensor *slope(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *y = gd_sum(gd_exp(gd_sin(in[0])), GD_ALL_AXES, false), *g = NULL;
    return gd_grad(1, &y, NULL, 1, in, &g) == GD_OK ? g : NULL;
}

static void second_derivatives_are_checked(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd, GD_SHAPE(7), GD_F64);
    assert_int_equal(gd_check_gradients(slope, NULL, 1, &x, 1e-8, NULL), GD_OK);
}

/* A compiled layer whose parameters are the inputs that are checked. */
typedef struct network {
    gd_function *function;
    gd_tensor *weight, *bias, *x;
} network;

static gd_tensor *layer(void *user, int count, gd_tensor *const *in)
{
    const network *n = user;
    (void)count;
    return gd_tanh(gd_add(gd_matmul(in[0], n->weight), n->bias));
}

static gd_tensor *run_network(void *user, int count, gd_tensor *const *in)
{
    const network *n = user;
    (void)count, (void)in;
    return gd_call(n->function, 1, &n->x);
}

static void parameters_of_a_compiled_function_are_checked(void **state)
{
    gd_context *gd = *state;
    network n = { .weight = leaf(gd, GD_SHAPE(3, 2), GD_F64),
                  .bias = leaf(gd, GD_SHAPE(2), GD_F64),
                  .x = gd_normal(gd, GD_SHAPE(4, 3), 0, 1, GD_F64) };
    n.function = gd_compile(gd, layer, &n);
    gd_tensor *parameters[2] = { n.weight, n.bias };
    assert_int_equal(gd_check_gradients(run_network, &n, 2, parameters, 1e-8, NULL), GD_OK);
    assert_int_equal(gd_function_stats(n.function).traces, 1);
}

static gd_tensor *fails(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_reshape(in[0], GD_SHAPE(77));
}

static gd_tensor *gives_nothing(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count, (void)in;
    return NULL;
}

static gd_tensor *gives_indices(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_argmax(in[0], 0, false);
}

static void what_cannot_be_checked_is_refused(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd, GD_SHAPE(3), GD_F64);
    assert_int_equal(gd_check_gradients(NULL, NULL, 1, &x, 1e-6, NULL), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(gd_check_gradients(root, NULL, 0, &x, 1e-6, NULL), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(gd_check_gradients(fails, NULL, 1, &x, 1e-6, NULL), GD_ERR_SHAPE);
    gd_error_clear();
    assert_int_equal(gd_check_gradients(gives_nothing, NULL, 1, &x, 1e-6, NULL), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "returned NULL");
    assert_int_equal(gd_check_gradients(gives_indices, NULL, 1, &x, 1e-6, NULL), GD_ERR_DTYPE);
    assert_error(GD_ERR_DTYPE, "i64");
    gd_tensor *plain = gd_ones(gd, GD_SHAPE(3), GD_F64);
    assert_int_equal(gd_check_gradients(root, NULL, 1, &plain, 1e-6, NULL), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "no input requires a gradient");
    gd_tensor *result = gd_square(x);
    assert_int_equal(gd_check_gradients(root, NULL, 1, &result, 1e-6, NULL), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "result of square");
    gd_tensor *half = leaf(gd, GD_SHAPE(3), GD_F16);
    assert_int_equal(gd_check_gradients(root, NULL, 1, &half, 1e-6, NULL), GD_ERR_DTYPE);
    gd_error_clear();
    gd_no_grad_begin(gd);
    assert_int_equal(gd_check_gradients(root, NULL, 1, &x, 1e-6, NULL), GD_ERR_STATE);
    gd_no_grad_end(gd);
    gd_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(right_gradients_pass, open_context, close_context),
        cmocka_unit_test_setup_teardown(a_wrong_element_is_named, open_context, close_context),
        cmocka_unit_test_setup_teardown(nan_is_an_error, open_context, close_context),
        cmocka_unit_test_setup_teardown(random_functions_draw_the_same_numbers, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(second_derivatives_are_checked, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(parameters_of_a_compiled_function_are_checked, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(what_cannot_be_checked_is_refused, open_context,
                                        close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
