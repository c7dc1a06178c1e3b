/* tests/test_in_place.c: ops that change a tensor in place: the numbers, whose storage it is, that
 * a derivative is either right or refused, and what eager and compiled execution forbid alike. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/autograd.h>

#include "support/guard.h"
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <math.h>
#include <string.h>

static gd_context *context;

static int open_context(void **state)
{
    (void)state;
    gd_error_clear();
    context = gd_open(test_device(), .threads = 1);
    return context ? 0 : -1;
}

static int close_context(void **state)
{
    (void)state;
    gd_close(context);
    return 0;
}

static gd_tensor *leaf(const double *x, int n, bool requires_grad)
{
    return gd_set_requires_grad(gd_from_host(context, GD_SHAPE(n), GD_F64, x), requires_grad);
}

static void assert_values(gd_tensor *t, int n, const double *expected)
{
    double got[16];
    if (!t || gd_tensor_read(t, got, (size_t)n * sizeof *got) != GD_OK)
        fail_msg("%s", gd_error_message());
    for (int i = 0; i < n; i++)
        if (fabs(got[i] - expected[i]) > 1e-14)
            fail_msg("element %d is %.17g, expected %.17g", i, got[i], expected[i]);
}

static void assert_refused(const void *result, gd_status code)
{
    assert_null(result);
    if (gd_error_code() != code)
        fail_msg("%s: \"%s\", expected %s", gd_status_name(gd_error_code()), gd_error_message(),
                 gd_status_name(code));
    gd_error_clear();
}

static gd_tensor *total(gd_tensor *t)
{
    return gd_sum(t, GD_ALL_AXES, false);
}

static const double a[3] = { 1, -2, 3 }, b[3] = { 4, 5, -6 };

/* ---- values ---- */

static void test_values_and_storage(void **state)
{
    (void)state;
    gd_tensor *x = leaf(a, 3, false), *y = leaf(b, 3, false);
    void *data = gd_tensor_data(x);
    assert_ptr_equal(gd_add_(x, y), x); /* no history: x itself */
    assert_values(x, 3, (double[]){ 5, 3, -3 });
    assert_values(gd_mul_(x, x), 3, (double[]){ 25, 9, 9 });
    assert_values(gd_sqrt_(x), 3, (double[]){ 5, 3, 3 });
    assert_values(gd_sub_(x, gd_scalar(context, 4, GD_I32)), 3, (double[]){ 1, -1, -1 });
    assert_values(gd_relu_(x), 3, (double[]){ 1, 0, 0 });
    assert_values(gd_add_scalar_(gd_mul_scalar_(x, 3), 0.5), 3, (double[]){ 3.5, 0.5, 0.5 });
    assert_values(gd_masked_fill_(x, gd_gt(x, gd_scalar(context, 1, GD_F64)), -1), 3,
                  (double[]){ -1, 0.5, 0.5 });
    assert_ptr_equal(gd_tensor_data(x), data);

    /* Through a view with steps, and with an operand that overlaps it. */
    gd_tensor *z = leaf((double[]){ 1, 2, 3, 4, 5 }, 5, false);
    assert_non_null(gd_neg_(gd_slice(z, 0, 0, GD_END, 2)));
    assert_values(z, 5, (double[]){ -1, 2, -3, 4, -5 });
    assert_non_null(gd_add_(gd_slice(z, 0, 1, 5, 1), gd_slice(z, 0, 0, 4, 1)));
    assert_values(z, 5, (double[]){ -1, 1, -1, 1, -1 });
    assert_non_null(gd_sub_(z, gd_flip(z, GD_ALL_AXES)));
    assert_values(z, 5, (double[]){ 0, 0, 0, 0, 0 });
}

/* Every form against the op it is the form of. */
static void test_every_form(void **state)
{
    (void)state;
    static const struct {
        gd_tensor *(*in_place)(gd_tensor *x);
        gd_tensor *(*op)(gd_tensor *x);
    } unary[] = {
        { gd_neg_, gd_neg },   { gd_abs_, gd_abs },   { gd_square_, gd_square },
        { gd_sqrt_, gd_sqrt }, { gd_exp_, gd_exp },   { gd_log_, gd_log },
        { gd_relu_, gd_relu }, { gd_tanh_, gd_tanh }, { gd_sigmoid_, gd_sigmoid },
    };
    static const struct {
        gd_tensor *(*in_place)(gd_tensor *x, gd_tensor *y);
        gd_tensor *(*op)(gd_tensor *x, gd_tensor *y);
    } binary[] = {
        { gd_add_, gd_add }, { gd_sub_, gd_sub },         { gd_mul_, gd_mul },
        { gd_div_, gd_div }, { gd_maximum_, gd_maximum }, { gd_minimum_, gd_minimum },
    };
    static const double values[4] = { -1.5, 0, 0.25, 3 }, others[4] = { 2, -1, 0.25, 0.5 };
    double expected[4];
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
        bool real = unary[i].op == gd_sqrt || unary[i].op == gd_log; /* of positive numbers */
        gd_tensor *x = leaf(values + 2 * real, 4 - 2 * real, false);
        assert_int_equal(gd_tensor_read(unary[i].op(x), expected, (size_t)(4 - 2 * real) * 8), 0);
        gd_tensor *r = unary[i].in_place(x);
        assert_ptr_equal(gd_tensor_data(r), gd_tensor_data(x));
        assert_values(r, 4 - 2 * real, expected);
    }
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++) {
        gd_tensor *x = leaf(values, 4, false), *y = leaf(others, 4, false);
        assert_int_equal(gd_tensor_read(binary[i].op(x, y), expected, sizeof expected), 0);
        gd_tensor *r = binary[i].in_place(x, y);
        assert_ptr_equal(gd_tensor_data(r), gd_tensor_data(x));
        assert_values(r, 4, expected);
    }
}

static void test_refused_operands(void **state)
{
    (void)state;
    gd_tensor *x = leaf(a, 3, false), *number = gd_scalar(context, 2, GD_F64);
    gd_tensor *whole = gd_cast(x, GD_I32), *single = gd_cast(x, GD_F32);
    assert_refused(gd_add_(number, x), GD_ERR_SHAPE);
    assert_refused(gd_add_(x, gd_zeros(context, GD_SHAPE(4), GD_F64)), GD_ERR_SHAPE);
    assert_refused(gd_add_(whole, x), GD_ERR_DTYPE);
    assert_refused(gd_add_(single, x), GD_ERR_DTYPE);
    assert_refused(gd_exp_(whole), GD_ERR_DTYPE);
    assert_refused(gd_relu_(gd_broadcast_to(number, GD_SHAPE(3))), GD_ERR_INVALID);
    assert_refused(gd_masked_fill_(x, x, 0), GD_ERR_DTYPE);
    assert_refused(gd_add_(x, NULL), GD_OK);
    assert_refused(gd_relu_(NULL), GD_OK);
    assert_values(x, 3, a);
}

/* What a composite makes on its way and nobody else sees keeps no memory of its own, unless its
 * derivative needs it. */
static void test_composites_replace_their_own_values(void **state)
{
    (void)state;
    const size_t bytes = 64 * 64 * sizeof(float);
    gd_tensor *x = gd_ones(context, GD_SHAPE(64, 64), GD_F32),
              *bias = gd_ones(context, GD_SHAPE(64), GD_F32);
    gd_set_requires_grad(x, true);
    size_t before = gd_memory(context).in_use;
    gd_tensor *y = gd_linear(x, x, bias);
    assert_int_equal(gd_memory(context).in_use, before + bytes);
    gd_tensor *gradient;
    gd_tensor *sum = total(y);
    assert_int_equal(gd_grad(1, &sum, NULL, 1, &x, &gradient), GD_OK);
    assert_true(gd_item(gd_slice(gd_reshape(gradient, GD_SHAPE(4096)), 0, 0, 1, 1)) == 128);

    before = gd_memory(context).in_use;
    assert_non_null(gd_gelu_tanh(x)); /* one op: its derivative needs x alone */
    assert_int_equal(gd_memory(context).in_use, before + bytes);

    /* A bias that makes the result wider. */
    y = gd_linear(x, x, gd_ones(context, GD_SHAPE(64), GD_F64));
    assert_int_equal(gd_tensor_dtype(y), GD_F64);
    assert_int_equal(
        gd_tensor_shape(gd_linear(x, x, gd_ones(context, GD_SHAPE(3, 1, 64), GD_F32))).rank, 3);
}

/* ---- gradients ---- */

static void test_right_gradients(void **state)
{
    (void)state;
    gd_tensor *x = leaf(a, 3, true), *y = leaf(b, 3, true), *d[2];
    /* relu(2x + y) * y: relu needs its result alone, + nothing, so all may be overwritten. */
    gd_tensor *t = gd_relu_(gd_add_(gd_mul_scalar(x, 2), y));
    gd_tensor *loss = total(gd_mul(t, y));
    assert_int_equal(gd_graph_verify(loss), GD_OK);
    assert_int_equal(gd_grad(1, &loss, NULL, 2, (gd_tensor *[]){ x, y }, d), GD_OK);
    assert_values(d[0], 3, (double[]){ 8, 10, 0 });
    assert_values(d[1], 3, (double[]){ 6 + 4, 1 + 5, 0 });

    /* In part of a tensor, through a view: exp(3x) by its result. */
    gd_tensor *e = gd_exp_(gd_mul_scalar_(gd_mul_scalar(x, 1.5), 2));
    loss = total(e);
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &x, d), GD_OK);
    assert_values(d[0], 3, (double[]){ 3 * exp(3), 3 * exp(-6), 3 * exp(9) });

    /* Twice: the derivative of the derivative. */
    gd_tensor *s = gd_sigmoid_(gd_mul_scalar(x, 1));
    loss = total(s);
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &x, d), GD_OK);
    loss = total(d[0]);
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &x, d), GD_OK);
    double second[3];
    for (int i = 0; i < 3; i++) {
        double p = 1 / (1 + exp(-a[i]));
        second[i] = p * (1 - p) * (1 - 2 * p);
    }
    assert_values(d[0], 3, second);

    /* A constant takes part: adding into it gives it a history. */
    gd_tensor *sum = gd_add_(gd_zeros(context, GD_SHAPE(3), GD_F64), x);
    loss = total(gd_square(sum));
    assert_int_equal(gd_backward(loss), GD_OK);
    assert_values(gd_gradient(x), 3, (double[]){ 2, -4, 6 });
}

/* A number stretched to no elements: they share no memory. Gradients that meet may lie so. */
static void test_empty_values_are_changed(void **state)
{
    (void)state;
    gd_tensor *x = gd_broadcast_to(gd_scalar(context, 1, GD_F32), GD_SHAPE(0, 5));
    assert_ptr_equal(gd_add_(x, gd_zeros(context, GD_SHAPE(0, 5), GD_F32)), x);
}

/* loss_of changes a value the derivative needs: gd_grad says so. */
static void assert_gradient_refused(gd_tensor *loss, gd_tensor *x, const char *op)
{
    gd_tensor *d;
    if (!loss)
        fail_msg("%s: %s", op, gd_error_message());
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &x, &d), GD_ERR_STATE);
    if (!strstr(gd_error_message(), op))
        fail_msg("\"%s\" does not name %s", gd_error_message(), op);
    gd_error_clear();
}

static void test_wrong_gradients_are_refused(void **state)
{
    (void)state;
    gd_tensor *x = leaf(a, 3, true), *y = leaf(b, 3, true);
    /* The result of sigmoid, which its derivative reads, is doubled. */
    gd_tensor *s = gd_sigmoid(x);
    assert_gradient_refused(total(gd_mul_scalar_(s, 2)), x, "sigmoid");
    /* The operand of a product, read before, is overwritten by relu, by a view, by assignment. */
    gd_tensor *h = gd_mul_scalar(x, 3), *p = gd_mul(h, y);
    assert_non_null(gd_relu_(h));
    assert_gradient_refused(total(p), y, "mul");
    h = gd_mul_scalar(x, 3);
    p = gd_mul(h, y);
    assert_non_null(gd_neg_(gd_slice(h, 0, 0, 1, 1)));
    assert_gradient_refused(total(p), y, "mul");
    gd_tensor *state_of = leaf(b, 3, false);
    p = gd_mul(state_of, x);
    assert_non_null(gd_add_scalar_(state_of, 1));
    assert_gradient_refused(total(p), x, "mul");
    p = gd_mul(state_of, x);
    assert_int_equal(gd_tensor_write(state_of, a, sizeof a), GD_OK);
    assert_gradient_refused(total(p), x, "mul");
    /* log in place needs the value it has replaced. */
    gd_tensor *positive = gd_exp(x);
    assert_gradient_refused(total(gd_log_(positive)), x, "log");
}

static void test_outdated_tensors_are_refused(void **state)
{
    (void)state;
    gd_tensor *x = leaf(a, 3, true);
    gd_tensor *h = gd_mul_scalar(x, 3), *view = gd_flip(h, GD_ALL_AXES), *r = gd_relu_(h);
    assert_refused(gd_neg(h), GD_ERR_STATE);    /* its history lacks the relu */
    assert_refused(gd_neg(view), GD_ERR_STATE); /* and so does that of its view */
    assert_refused(gd_neg_(h), GD_ERR_STATE);
    assert_values(r, 3, (double[]){ 3, 0, 9 });
    assert_values(h, 3, (double[]){ 3, 0, 9 }); /* reading is no op */

    /* The same when a history was overwritten where none is recorded. */
    h = gd_mul_scalar(x, 3);
    gd_no_grad_begin(context);
    assert_non_null(gd_neg_(h));
    gd_no_grad_end(context);
    assert_refused(gd_exp(h), GD_ERR_STATE);

    /* Views of a leaf show it as it is. */
    gd_tensor *w = leaf(b, 3, true), *turned = gd_flip(w, GD_ALL_AXES), *d;
    gd_no_grad_begin(context);
    assert_ptr_equal(gd_add_scalar_(w, 1), w);
    gd_no_grad_end(context);
    gd_tensor *loss = total(gd_square(turned));
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &w, &d), GD_OK);
    assert_values(d, 3, (double[]){ 10, 12, -10 });
}

static void test_leaves_are_protected(void **state)
{
    (void)state;
    gd_tensor *x = leaf(a, 3, true);
    assert_refused(gd_relu_(x), GD_ERR_STATE);
    assert_refused(gd_neg_(gd_slice(x, 0, 0, 2, 1)), GD_ERR_STATE);
    assert_values(x, 3, a);
    gd_no_grad_begin(context);
    assert_non_null(gd_neg_(gd_slice(x, 0, 0, 2, 1)));
    gd_no_grad_end(context);
    assert_values(x, 3, (double[]){ -1, 2, 3 });
    assert_true(gd_requires_grad(x));
}

/* ---- compiled ---- */

static gd_tensor *counter;

static gd_tensor *block(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *h = gd_relu_(gd_add_(gd_mul(in[0], in[1]), in[1]));
    gd_add_scalar_(counter, 1);
    gd_tensor *loss = total(gd_square(h)), *d;
    if (gd_grad(1, &loss, NULL, 1, in, &d) != GD_OK)
        return NULL;
    return gd_sigmoid_(d);
}

static void test_compiled_agrees(void **state)
{
    (void)state;
    gd_tensor *x = leaf(a, 3, true), *y = leaf(b, 3, false);
    gd_tensor *in[2] = { x, y };
    counter = gd_zeros(context, GD_SHAPE(1), GD_F64);
    double eager[3], compiled[3];
    assert_int_equal(gd_tensor_read(block(NULL, 2, in), eager, sizeof eager), GD_OK);
    gd_function *f = gd_compile(context, block, NULL);
    for (int i = 0; i < 2; i++) {
        gd_tensor *r = gd_call(f, 2, in);
        if (!r)
            fail_msg("%s", gd_error_message());
        assert_int_equal(gd_tensor_read(r, compiled, sizeof compiled), GD_OK);
        assert_memory_equal(eager, compiled, sizeof eager);
    }
    assert_values(counter, 1, (double[]){ 3 });
    gd_function_release(f);
}

/* What eager execution would do otherwise than a plan. */
static gd_tensor *forbidden(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *h = gd_mul_scalar(in[0], 3), *view = gd_flip(h, GD_ALL_AXES);
    switch (*(const int *)user) {
    case 0:
        return gd_neg_(in[0]);
    case 1:
        return gd_neg_(view);
    case 2:
        gd_neg_(h);
        return gd_exp(view);
    default:
        gd_neg_(h);
        return gd_exp(h);
    }
}

static void test_forbidden_in_a_trace(void **state)
{
    (void)state;
    gd_tensor *x = leaf(a, 3, false);
    for (int which = 0; which < 4; which++) {
        gd_function *f = gd_compile(context, forbidden, &which);
        assert_refused(gd_call(f, 1, &x), GD_ERR_STATE);
        gd_function_release(f);
    }
    assert_values(x, 3, a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_values_and_storage, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_every_form, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_refused_operands, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_right_gradients, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_empty_values_are_changed, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_wrong_gradients_are_refused, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(test_outdated_tensors_are_refused, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(test_leaves_are_protected, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_composites_replace_their_own_values, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(test_compiled_agrees, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_forbidden_in_a_trace, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
