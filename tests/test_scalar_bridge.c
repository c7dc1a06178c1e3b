/* tests/test_scalar_bridge.c: the scalar engine and the tensor engine are two ways to say the same
 * thing. The same perceptron with the same weights on the same data gives the same loss and the
 * same gradients in both, to 1e-12 in f64. Neither shares a line of code with the other, so each is
 * the other's oracle.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/autograd.h>

#include "support/guard.h"
#include <gradus/ops.h>
#include <gradus/scalar.h>
#include <gradus/tensor.h>

#include <math.h>

enum { POINTS = 25, INPUTS = 2, WIDTH = 16, LAYERS = 3, LARGEST = WIDTH * WIDTH };

static const size_t sizes[LAYERS + 1] = { INPUTS, WIDTH, WIDTH, 1 };

/* The data both sides see. */
typedef struct problem {
    double x[POINTS][INPUTS];
    double targets[POINTS]; /* -1 or 1 */
} problem;

/* One side's result: the loss and a gradient for each parameter, in the order of gd_mlp_parameters:
 * by layer, by neuron, weights and then the bias. */
typedef struct result {
    double loss;
    double gradients[LAYERS * (LARGEST + WIDTH)];
    size_t count;
} result;

static void make_problem(problem *p)
{
    gd_scalar_random random = { 11 };
    for (int i = 0; i < POINTS; i++) {
        for (int k = 0; k < INPUTS; k++)
            p->x[i][k] = gd_scalar_uniform(&random, -2.0, 2.0);
        p->targets[i] = p->x[i][0] * p->x[i][1] > 0.0 ? 1.0 : -1.0;
    }
}

/* ---- The losses, twice ------------------------------------------------------------------------
 */

/* (y - t)^2 */
static gd_value *squared_error_of_value(gd_value *y, gd_value *t)
{
    gd_value *error = gd_value_sub(y, t);
    gd_value *loss = gd_value_pow(error, 2.0);
    gd_value_release(error);
    return loss;
}

static gd_tensor *squared_error_of_tensor(gd_tensor *y, gd_tensor *t)
{
    return gd_square(gd_sub(y, t));
}

/* -ln sigmoid(t y) */
static gd_value *log_loss_of_value(gd_value *y, gd_value *t)
{
    gd_value *margin = gd_value_mul(t, y);
    gd_value *probability = gd_value_sigmoid(margin);
    gd_value *log = gd_value_log(probability);
    gd_value *loss = gd_value_neg(log);
    gd_value_release(margin);
    gd_value_release(probability);
    gd_value_release(log);
    return loss;
}

static gd_tensor *log_loss_of_tensor(gd_tensor *y, gd_tensor *t)
{
    return gd_neg(gd_log(gd_sigmoid(gd_mul(t, y))));
}

/* tanh(y) / (e^-y + 2 + t^2): no loss anybody uses, but it has the operations that are left. */
static gd_value *odd_loss_of_value(gd_value *y, gd_value *t)
{
    gd_value *minus = gd_value_neg(y);
    gd_value *below = gd_value_accumulate(gd_value_exp(minus), gd_value_create_leaf(2.0));
    below = gd_value_accumulate(below, gd_value_mul(t, t));
    gd_value *above = gd_value_tanh(y);
    gd_value *loss = gd_value_div(above, below);
    gd_value_release(minus);
    gd_value_release(below);
    gd_value_release(above);
    return loss;
}

static gd_tensor *odd_loss_of_tensor(gd_tensor *y, gd_tensor *t)
{
    return gd_div(gd_tanh(y), gd_add(gd_add_scalar(gd_exp(gd_neg(y)), 2.0), gd_mul(t, t)));
}

typedef struct loss_pair {
    gd_value *(*of_value)(gd_value *y, gd_value *t);
    gd_tensor *(*of_tensor)(gd_tensor *y, gd_tensor *t);
} loss_pair;

/* ---- One number at a time ---------------------------------------------------------------------
 */

static void through_scalars(const gd_mlp *mlp, const problem *p, loss_pair pair, result *out)
{
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    assert_int_equal(gd_mlp_parameters(mlp, parameters), 0);
    gd_scalar_zero_grad(parameters);

    gd_value *sum = gd_value_create_leaf(0.0);
    for (int i = 0; i < POINTS; i++) {
        gd_scalar_vector *x = gd_scalar_vector_create();
        for (int k = 0; k < INPUTS; k++)
            gd_scalar_vector_push_leaf(x, p->x[i][k]);
        gd_scalar_vector *y = gd_mlp_forward(mlp, x);
        gd_value *t = gd_value_create_leaf(p->targets[i]);
        sum = gd_value_accumulate(sum, pair.of_value(gd_scalar_vector_get(y, 0), t));
        gd_value_release(t);
        gd_scalar_vector_destroy(y);
        gd_scalar_vector_destroy(x);
    }
    assert_int_equal(gd_value_backward(sum), 0);
    out->loss = gd_value_data(sum);
    out->count = gd_scalar_vector_size(parameters);
    for (size_t i = 0; i < out->count; i++)
        out->gradients[i] = gd_value_grad(gd_scalar_vector_get(parameters, i));
    gd_value_release(sum);
    gd_scalar_vector_destroy(parameters);
}

/* ---- All numbers at once ----------------------------------------------------------------------
 */

/* Parameters of a layer as tensors that want gradients, from those of the scalar network starting
 * at *next: weights [inputs, outputs] and bias [outputs]. */
static void layer_tensors(gd_context *gd, const gd_scalar_vector *parameters, size_t layer,
                          size_t *next, gd_tensor **weights, gd_tensor **bias)
{
    size_t inputs = sizes[layer], outputs = sizes[layer + 1];
    double w[LARGEST], b[WIDTH];
    for (size_t neuron = 0; neuron < outputs; neuron++) {
        for (size_t i = 0; i < inputs; i++)
            w[i * outputs + neuron] = gd_value_data(gd_scalar_vector_get(parameters, (*next)++));
        b[neuron] = gd_value_data(gd_scalar_vector_get(parameters, (*next)++));
    }
    *weights = gd_from_host(gd, GD_SHAPE((int64_t)inputs, (int64_t)outputs), GD_F64, w);
    *bias = gd_from_host(gd, GD_SHAPE((int64_t)outputs), GD_F64, b);
    gd_set_requires_grad(*weights, true);
    gd_set_requires_grad(*bias, true);
}

/* The gradients of a layer's tensors, appended to out in the scalar network's order. */
static void append_gradients(result *out, size_t layer, gd_tensor *weights, gd_tensor *bias)
{
    size_t inputs = sizes[layer], outputs = sizes[layer + 1];
    double w[LARGEST], b[WIDTH];
    assert_int_equal(gd_tensor_read(gd_gradient(weights), w, inputs * outputs * sizeof *w), GD_OK);
    assert_int_equal(gd_tensor_read(gd_gradient(bias), b, outputs * sizeof *b), GD_OK);
    for (size_t neuron = 0; neuron < outputs; neuron++) {
        for (size_t i = 0; i < inputs; i++)
            out->gradients[out->count++] = w[i * outputs + neuron];
        out->gradients[out->count++] = b[neuron];
    }
}

static void through_tensors(const gd_mlp *mlp, const problem *p, loss_pair pair, result *out)
{
    gd_context *gd = gd_open(test_device());
    assert_non_null(gd);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    assert_int_equal(gd_mlp_parameters(mlp, parameters), 0);

    gd_tensor *weights[LAYERS], *biases[LAYERS];
    gd_tensor *h = gd_from_host(gd, GD_SHAPE(POINTS, INPUTS), GD_F64, p->x); // [points, inputs]
    size_t next = 0;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        layer_tensors(gd, parameters, layer, &next, &weights[layer], &biases[layer]);
        h = gd_add(gd_matmul(h, weights[layer]), biases[layer]);
        if (layer + 1 < LAYERS)
            h = gd_relu(h);
    }
    gd_tensor *targets = gd_from_host(gd, GD_SHAPE(POINTS, 1), GD_F64, p->targets);
    gd_tensor *loss = gd_sum(pair.of_tensor(h, targets), GD_ALL_AXES, false);
    if (gd_backward(loss) != GD_OK)
        fail_msg("%s", gd_error_message());
    out->loss = gd_item(loss);
    out->count = 0;
    for (size_t layer = 0; layer < LAYERS; layer++)
        append_gradients(out, layer, weights[layer], biases[layer]);

    gd_scalar_vector_destroy(parameters);
    gd_close(gd);
}

/* ---- The same ---------------------------------------------------------------------------------
 */

static void assert_close(double a, double b, const char *what, size_t i)
{
    if (!(fabs(a - b) <= 1e-12 * fmax(1.0, fabs(a))))
        fail_msg("%s %zu: %.17g through scalars, %.17g through tensors", what, i, a, b);
}

static void compare(loss_pair pair)
{
    problem p;
    make_problem(&p);
    gd_mlp *mlp = gd_mlp_create(sizes, LAYERS + 1, GD_SCALAR_LINEAR, 5);
    assert_non_null(mlp);
    result scalars, tensors;
    through_scalars(mlp, &p, pair, &scalars);
    through_tensors(mlp, &p, pair, &tensors);

    assert_close(scalars.loss, tensors.loss, "loss", 0);
    assert_int_equal(scalars.count, tensors.count);
    assert_int_equal(scalars.count, 3 * 16 + 17 * 16 + 17);
    size_t moving = 0;
    for (size_t i = 0; i < scalars.count; i++) {
        assert_close(scalars.gradients[i], tensors.gradients[i], "gradient", i);
        moving += fabs(scalars.gradients[i]) > 1e-6;
    }
    assert_true(moving > scalars.count / 2); /* it was no comparison of zeros */
    gd_mlp_destroy(mlp);
    assert_int_equal(gd_scalar_live_values(), 0);
}

static void squared_error(void **state)
{
    (void)state;
    compare((loss_pair){ squared_error_of_value, squared_error_of_tensor });
}

static void log_loss(void **state)
{
    (void)state;
    compare((loss_pair){ log_loss_of_value, log_loss_of_tensor });
}

static void exp_tanh_and_division(void **state)
{
    (void)state;
    compare((loss_pair){ odd_loss_of_value, odd_loss_of_tensor });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squared_error),
        cmocka_unit_test(log_loss),
        cmocka_unit_test(exp_tanh_and_division),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
