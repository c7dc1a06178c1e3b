/* tests/test_scalar_nn.c: neurons, layers and the multi-layer perceptron of the scalar engine. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/scalar.h>

#include <math.h>
#include <string.h>

static int set_up(void **state)
{
    (void)state;
    gd_scalar_error_clear();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return gd_scalar_live_values() == 0 && gd_scalar_trim() == 0 ? 0 : -1;
}

static void assert_close(double actual, double expected)
{
    if (!(fabs(actual - expected) <= 1e-12 * fmax(1.0, fabs(expected))))
        fail_msg("%.17g is not %.17g", actual, expected);
}

static gd_scalar_vector *vector_of(size_t count, const double *numbers)
{
    gd_scalar_vector *vector = gd_scalar_vector_create();
    for (size_t i = 0; i < count; i++)
        assert_int_equal(gd_scalar_vector_push_leaf(vector, numbers[i]), 0);
    return vector;
}

static void set_all(const gd_scalar_vector *parameters, const double *numbers)
{
    for (size_t i = 0; i < gd_scalar_vector_size(parameters); i++)
        assert_int_equal(gd_value_set_data(gd_scalar_vector_get(parameters, i), numbers[i]), 0);
}

/* ---- Random numbers -------------------------------------------------------------------------- */

/* The first three outputs of SplitMix64 from seed 1234567, as rosettacode.org lists them under
 * "Pseudo-random numbers/Splitmix64". We keep the top 53 bits of each. */
static void random_numbers_are_those_of_splitmix64(void **state)
{
    (void)state;
    gd_scalar_random random = { 1234567 };
    static const uint64_t expected[] = { UINT64_C(6457827717110365317),
                                         UINT64_C(3203168211198807973),
                                         UINT64_C(9817491932198370423) };
    for (int i = 0; i < 3; i++)
        assert_true(gd_scalar_uniform(&random, 0.0, 1.0) == (double)(expected[i] >> 11) * 0x1p-53);
}

static void uniform_numbers_stay_in_their_interval(void **state)
{
    (void)state;
    gd_scalar_random random = { 0 };
    double low = INFINITY, high = -INFINITY, sum = 0.0;
    for (int i = 0; i < 100000; i++) {
        double x = gd_scalar_uniform(&random, -2.0, 3.0);
        low = fmin(low, x);
        high = fmax(high, x);
        sum += x;
    }
    assert_true(low >= -2.0 && low < -1.999 && high < 3.0 && high > 2.999);
    assert_true(fabs(sum / 100000 - 0.5) < 0.02); /* 4 standard deviations */
}

/* ---- Neuron ---------------------------------------------------------------------------------- */

static void a_neuron_weighs_its_inputs(void **state)
{
    (void)state;
    gd_scalar_random random = { 1 };
    gd_neuron *neuron = gd_neuron_create(2, GD_SCALAR_RELU, &random);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    assert_int_equal(gd_neuron_parameters(neuron, parameters), 0);
    assert_int_equal(gd_scalar_vector_size(parameters), 3); /* w_0, w_1, b */
    set_all(parameters, (const double[]){ 2.0, -3.0, 0.5 });
    gd_scalar_vector *x = vector_of(2, (const double[]){ 4.0, 1.0 });

    gd_value *y = gd_neuron_forward(neuron, x);
    assert_close(gd_value_data(y), 5.5); /* 8 - 3 + 0.5 */
    assert_int_equal(gd_value_operation(y), GD_VALUE_RELU);
    assert_int_equal(gd_value_references(y), 1);
    gd_value_backward(y);
    assert_close(gd_value_grad(gd_scalar_vector_get(parameters, 0)), 4.0);
    assert_close(gd_value_grad(gd_scalar_vector_get(parameters, 1)), 1.0);
    assert_close(gd_value_grad(gd_scalar_vector_get(parameters, 2)), 1.0);
    assert_close(gd_value_grad(gd_scalar_vector_get(x, 1)), -3.0);
    gd_value_release(y);
    assert_int_equal(gd_scalar_live_values(), 5); /* the graph is gone */

    gd_scalar_vector_destroy(x);
    gd_scalar_vector_destroy(parameters);
    gd_neuron_destroy(neuron);
}

static void relu_cuts_and_linear_does_not(void **state)
{
    (void)state;
    gd_scalar_vector *x = vector_of(1, (const double[]){ 3.0 });
    for (int linear = 0; linear < 2; linear++) {
        gd_scalar_random random = { 1 };
        gd_neuron *neuron =
            gd_neuron_create(1, linear ? GD_SCALAR_LINEAR : GD_SCALAR_RELU, &random);
        gd_scalar_vector *parameters = gd_scalar_vector_create();
        gd_neuron_parameters(neuron, parameters);
        set_all(parameters, (const double[]){ -1.0, 1.0 });
        gd_value *y = gd_neuron_forward(neuron, x);
        assert_close(gd_value_data(y), linear ? -2.0 : 0.0);
        gd_value_release(y);
        gd_scalar_vector_destroy(parameters);
        gd_neuron_destroy(neuron);
    }
    gd_scalar_vector_destroy(x);
}

static void weights_start_within_the_bound_and_the_bias_at_zero(void **state)
{
    (void)state;
    enum { INPUTS = 600 };
    gd_scalar_random random = { 3 };
    gd_neuron *neuron = gd_neuron_create(INPUTS, GD_SCALAR_RELU, &random);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    gd_neuron_parameters(neuron, parameters);
    double largest = 0.0;
    for (size_t i = 0; i < INPUTS; i++)
        largest = fmax(largest, fabs(gd_value_data(gd_scalar_vector_get(parameters, i))));
    assert_true(largest <= 0.1 && largest > 0.098); /* sqrt(6 / 600) = 0.1 */
    assert_true(gd_value_data(gd_scalar_vector_get(parameters, INPUTS)) == 0.0);
    gd_scalar_vector_destroy(parameters);
    gd_neuron_destroy(neuron);
}

/* ---- Layer and MLP --------------------------------------------------------------------------- */

static void a_layer_is_neurons_side_by_side(void **state)
{
    (void)state;
    gd_scalar_random random = { 1 };
    gd_scalar_layer *layer = gd_scalar_layer_create(2, 3, GD_SCALAR_LINEAR, &random);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    assert_int_equal(gd_scalar_layer_parameters(layer, parameters), 0);
    assert_int_equal(gd_scalar_vector_size(parameters), 9);
    set_all(parameters, (const double[]){ 1, 0, 0, 0, 1, 0, 1, 1, 10 });
    gd_scalar_vector *x = vector_of(2, (const double[]){ 4.0, 5.0 });
    gd_scalar_vector *y = gd_scalar_layer_forward(layer, x);
    assert_int_equal(gd_scalar_vector_size(y), 3);
    assert_close(gd_value_data(gd_scalar_vector_get(y, 0)), 4.0);
    assert_close(gd_value_data(gd_scalar_vector_get(y, 1)), 5.0);
    assert_close(gd_value_data(gd_scalar_vector_get(y, 2)), 19.0);
    assert_int_equal(gd_value_references(gd_scalar_vector_get(y, 0)), 1); /* y's */
    gd_scalar_vector_destroy(y);
    gd_scalar_vector_destroy(x);
    gd_scalar_vector_destroy(parameters);
    gd_scalar_layer_destroy(layer);
}

/* 2 -> 2 -> 1 that computes x xor y (Goodfellow, Bengio, Courville, "Deep Learning", 6.1):
 * relu(x + y) - 2 relu(x + y - 1). */
static void an_mlp_computes_exclusive_or(void **state)
{
    (void)state;
    gd_mlp *mlp = gd_mlp_create((const size_t[]){ 2, 2, 1 }, 3, GD_SCALAR_LINEAR, 1);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    assert_int_equal(gd_mlp_parameters(mlp, parameters), 0);
    assert_int_equal(gd_scalar_vector_size(parameters), 9);
    set_all(parameters, (const double[]){ 1, 1, 0, 1, 1, -1, 1, -2, 0 });
    for (int i = 0; i < 4; i++) {
        gd_scalar_vector *x = vector_of(2, (const double[]){ i & 1, i >> 1 });
        gd_scalar_vector *y = gd_mlp_forward(mlp, x);
        assert_int_equal(gd_scalar_vector_size(y), 1);
        assert_close(gd_value_data(gd_scalar_vector_get(y, 0)), (i & 1) ^ (i >> 1));
        gd_scalar_vector_destroy(y);
        gd_scalar_vector_destroy(x);
    }
    gd_scalar_vector_destroy(parameters);
    gd_mlp_destroy(mlp);
}

static void every_neuron_has_relu_unless_the_output_is_linear(void **state)
{
    (void)state;
    gd_scalar_vector *x = vector_of(2, (const double[]){ 1.0, 2.0 });
    for (int linear = 0; linear < 2; linear++) {
        gd_mlp *mlp = gd_mlp_create((const size_t[]){ 2, 4, 1 }, 3,
                                    linear ? GD_SCALAR_LINEAR : GD_SCALAR_RELU, 5);
        gd_scalar_vector *y = gd_mlp_forward(mlp, x);
        assert_int_equal(gd_value_operation(gd_scalar_vector_get(y, 0)),
                         linear ? GD_VALUE_ADD : GD_VALUE_RELU);
        gd_scalar_vector_destroy(y);
        gd_mlp_destroy(mlp);
    }
    gd_scalar_vector_destroy(x);
}

static void the_seed_fixes_every_weight(void **state)
{
    (void)state;
    static const uint64_t seeds[] = { 1, 1, 2 };
    gd_mlp *mlps[3];
    gd_scalar_vector *parameters[3];
    for (int i = 0; i < 3; i++) {
        mlps[i] = gd_mlp_create((const size_t[]){ 3, 4, 2 }, 3, GD_SCALAR_RELU, seeds[i]);
        parameters[i] = gd_scalar_vector_create();
        gd_mlp_parameters(mlps[i], parameters[i]);
        assert_int_equal(gd_scalar_vector_size(parameters[i]), 4 * 4 + 2 * 5);
    }
    int different = 0;
    for (size_t i = 0; i < 26; i++) {
        double first = gd_value_data(gd_scalar_vector_get(parameters[0], i));
        assert_true(first == gd_value_data(gd_scalar_vector_get(parameters[1], i)));
        different += first != gd_value_data(gd_scalar_vector_get(parameters[2], i));
    }
    assert_int_equal(different, 3 * 4 + 4 * 2); /* the weights; all biases are 0 */
    for (int i = 0; i < 3; i++) {
        gd_scalar_vector_destroy(parameters[i]);
        gd_mlp_destroy(mlps[i]);
    }
}

/* ---- Learning -------------------------------------------------------------------------------- */

static void descend_steps_against_the_gradient(void **state)
{
    (void)state;
    gd_scalar_vector *p = vector_of(1, (const double[]){ 3.0 });
    gd_value *loss = gd_value_pow(gd_scalar_vector_get(p, 0), 2.0);
    gd_value_backward(loss);
    gd_scalar_descend(p, 0.25);
    assert_close(gd_value_data(gd_scalar_vector_get(p, 0)), 1.5); /* 3 - 0.25 * 6 */
    gd_scalar_zero_grad(p);
    assert_true(gd_value_grad(gd_scalar_vector_get(p, 0)) == 0.0);
    gd_value_release(loss);
    gd_scalar_vector_destroy(p);
}

/* Loss of `mlp` on y = x^2 at 9 points. */
static gd_value *parabola_loss(const gd_mlp *mlp)
{
    gd_value *loss = gd_value_create_leaf(0.0);
    for (int i = 0; i < 9; i++) {
        double at = (i - 4) / 4.0;
        gd_scalar_vector *x = vector_of(1, &at);
        gd_scalar_vector *y = gd_mlp_forward(mlp, x);
        gd_value *target = gd_value_create_leaf(at * at);
        gd_value *error = gd_value_sub(gd_scalar_vector_get(y, 0), target);
        loss = gd_value_accumulate(loss, gd_value_mul(error, error));
        gd_value_release(error);
        gd_value_release(target);
        gd_scalar_vector_destroy(y);
        gd_scalar_vector_destroy(x);
    }
    return loss;
}

static void an_mlp_learns_a_parabola(void **state)
{
    (void)state;
    gd_mlp *mlp = gd_mlp_create((const size_t[]){ 1, 8, 1 }, 3, GD_SCALAR_LINEAR, 7);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    gd_mlp_parameters(mlp, parameters);
    double first = 0.0, last = 0.0;
    for (int step = 0; step < 500; step++) {
        gd_value *loss = parabola_loss(mlp);
        last = gd_value_data(loss);
        if (step == 0)
            first = last;
        gd_scalar_zero_grad(parameters);
        assert_int_equal(gd_value_backward(loss), 0);
        gd_value_release(loss);
        gd_scalar_descend(parameters, 0.02);
    }
    assert_true(first > 0.5);
    assert_true(last < 0.02 * first);
    gd_scalar_vector_destroy(parameters);
    gd_mlp_destroy(mlp);
}

/* ---- Wrong use ------------------------------------------------------------------------------- */

static void wrong_sizes_are_refused_with_a_reason(void **state)
{
    (void)state;
    gd_scalar_random random = { 1 };
    assert_null(gd_neuron_create(0, GD_SCALAR_RELU, &random));
    assert_non_null(strstr(gd_scalar_error(), "gd_neuron_create"));
    gd_scalar_error_clear();
    assert_null(gd_neuron_create(2, GD_SCALAR_RELU, NULL));
    assert_null(gd_scalar_layer_create(0, 2, GD_SCALAR_RELU, &random));
    assert_null(gd_scalar_layer_create(2, 2, GD_SCALAR_RELU, NULL));
    gd_scalar_error_clear();
    assert_null(gd_scalar_layer_create(2, 0, GD_SCALAR_RELU, &random));
    assert_non_null(strstr(gd_scalar_error(), "gd_scalar_layer_create"));
    gd_scalar_error_clear();
    assert_null(gd_mlp_create(NULL, 3, GD_SCALAR_RELU, 1));
    assert_null(gd_mlp_create((const size_t[]){ 2 }, 1, GD_SCALAR_RELU, 1));
    assert_non_null(strstr(gd_scalar_error(), "gd_mlp_create"));
    assert_null(gd_mlp_create((const size_t[]){ 2, 0, 1 }, 3, GD_SCALAR_RELU, 1));
    assert_null(gd_mlp_create((const size_t[]){ 0, 2 }, 2, GD_SCALAR_RELU, 1));

    gd_mlp *mlp = gd_mlp_create((const size_t[]){ 2, 3, 1 }, 3, GD_SCALAR_RELU, 1);
    gd_scalar_vector *x = vector_of(3, (const double[]){ 1, 2, 3 });
    gd_scalar_error_clear();
    assert_null(gd_mlp_forward(mlp, x));
    assert_non_null(strstr(gd_scalar_error(), "number of inputs"));
    gd_scalar_vector_destroy(x);
    gd_mlp_destroy(mlp);
}

static void null_is_no_network(void **state)
{
    (void)state;
    gd_scalar_vector *vector = gd_scalar_vector_create();
    assert_null(gd_neuron_forward(NULL, vector));
    assert_null(gd_scalar_layer_forward(NULL, vector));
    assert_null(gd_mlp_forward(NULL, vector));
    assert_int_equal(gd_neuron_parameters(NULL, vector), -1);
    assert_int_equal(gd_scalar_layer_parameters(NULL, vector), -1);
    assert_int_equal(gd_mlp_parameters(NULL, vector), -1);
    gd_mlp *mlp = gd_mlp_create((const size_t[]){ 1, 1 }, 2, GD_SCALAR_RELU, 1);
    assert_null(gd_mlp_forward(mlp, NULL));
    assert_int_equal(gd_mlp_parameters(mlp, NULL), -1);
    gd_mlp_destroy(mlp);
    gd_mlp_destroy(NULL);
    gd_scalar_layer_destroy(NULL);
    gd_neuron_destroy(NULL);
    gd_scalar_zero_grad(NULL);
    gd_scalar_descend(NULL, 1.0);
    gd_scalar_vector_destroy(vector);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_numbers_are_those_of_splitmix64, set_up, tear_down),
        cmocka_unit_test_setup_teardown(uniform_numbers_stay_in_their_interval, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_neuron_weighs_its_inputs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(relu_cuts_and_linear_does_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(weights_start_within_the_bound_and_the_bias_at_zero, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_layer_is_neurons_side_by_side, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_mlp_computes_exclusive_or, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_neuron_has_relu_unless_the_output_is_linear, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_seed_fixes_every_weight, set_up, tear_down),
        cmocka_unit_test_setup_teardown(descend_steps_against_the_gradient, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_mlp_learns_a_parabola, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_sizes_are_refused_with_a_reason, set_up, tear_down),
        cmocka_unit_test_setup_teardown(null_is_no_network, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
