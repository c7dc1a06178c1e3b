/* tests/support/sequence_golden.h: layers with the parameters that tests/goldens/make_sequences.py
 * gave PyTorch's, and the comparison of outputs and gradients. For tests that use
 * goldens/sequences.h. */
#ifndef GD_TESTS_SEQUENCE_GOLDEN_H
#define GD_TESTS_SEQUENCE_GOLDEN_H

#include <gradus/gradus.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct parameter_golden {
    const char *path;
    double sum; /* of the gradient times cos(0.3 j) */
} parameter_golden;

/* Number j of what is called `name`: scale * sin(0.7 j + (sum of its bytes) mod 101). */
static void golden_fill(const char *name, int64_t count, double scale, double shift, float *out)
{
    int base = 0;
    for (const char *c = name; *c; c++)
        base += (unsigned char)*c;
    for (int64_t j = 0; j < count; j++) {
        float x = (float)(scale * sin(0.7 * (double)j + base % 101));
        out[j] = shift == 0 ? x : (float)(shift + (double)x);
    }
}

static gd_tensor *golden_tensor(gd_context *context, const char *name, gd_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    float *values = malloc((size_t)count * sizeof *values);
    golden_fill(name, count, 1, 0, values);
    gd_tensor *t = gd_from_host(context, shape, GD_F32, values);
    free(values);
    return gd_set_requires_grad(t, true);
}

/* Set all parameters of a module: weights of norms are 1 larger. */
static void golden_parameters(gd_module *m)
{
    for (int i = 0; i < gd_module_count(m); i++) {
        const char *path = gd_module_path(m, i);
        gd_tensor *t = gd_module_tensor(m, i);
        size_t count = (size_t)gd_tensor_count(t);
        float *values = malloc(count * sizeof *values);
        size_t length = strlen(path);
        bool is_norm = strstr(path, ".norm") && strcmp(path + length - 6, "weight") == 0;
        golden_fill(path, (int64_t)count, 0.3, is_norm, values);
        assert_int_equal(gd_tensor_write(t, values, count * sizeof *values), GD_OK);
        free(values);
    }
}

/* cos(0.3 j) in t's shape. */
static gd_tensor *golden_weights(gd_tensor *t)
{
    int64_t count = gd_tensor_count(t);
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t j = 0; j < count; j++)
        values[j] = (float)cos(0.3 * (double)j);
    gd_tensor *w = gd_from_host(gd_tensor_context(t), gd_tensor_shape(t), GD_F32, values);
    free(values);
    return w;
}

/* Within 2e-5 of 1 + size: sums of up to some hundred f32 terms against f64. */
static void golden_compare(gd_tensor *t, const double *expected, size_t count, const char *what)
{
    if (!t)
        fail_msg("%s: %s", what, gd_error_message());
    assert_int_equal(gd_tensor_count(t), count);
    float *values = malloc(count * sizeof *values);
    assert_int_equal(gd_tensor_read(t, values, count * sizeof *values), GD_OK);
    for (size_t j = 0; j < count; j++)
        if (!(fabs((double)values[j] - expected[j]) <= 2e-5 * (1 + fabs(expected[j]))))
            fail_msg("%s, element %zu: %.9g, PyTorch %.9g", what, j, (double)values[j],
                     expected[j]);
    free(values);
}

/* Outputs against PyTorch's, and the gradients of sum(output * cos(0.3 j)) over all outputs. */
static void golden_check(gd_module *m, int outputs, gd_tensor **output,
                         const double *const *expected, const size_t *count, int inputs,
                         gd_tensor **input, const double *const *gradient,
                         const parameter_golden *sums, int sum_count)
{
    gd_tensor *seeds[4], *grads[160], *wanted[160];
    int n = 0;
    for (int i = 0; i < outputs; i++) {
        golden_compare(output[i], expected[i], count[i], "output");
        seeds[i] = golden_weights(output[i]);
    }
    for (int i = 0; i < inputs; i++)
        wanted[n++] = input[i];
    assert_int_equal(gd_module_count(m), sum_count);
    for (int i = 0; i < sum_count; i++)
        wanted[n++] = gd_module_parameter(m, sums[i].path);
    assert_int_equal(gd_grad(outputs, output, seeds, n, wanted, grads), GD_OK);
    for (int i = 0; i < inputs; i++)
        golden_compare(grads[i], gradient[i], (size_t)gd_tensor_count(input[i]), "gradient");
    for (int i = 0; i < sum_count; i++) {
        gd_tensor *g = grads[inputs + i];
        double sum = gd_item(gd_sum(gd_mul(g, golden_weights(g)), GD_ALL_AXES, false));
        if (!(fabs(sum - sums[i].sum) <= 5e-5 * (1 + fabs(sums[i].sum))))
            fail_msg("gradient of %s: weighted sum %.9g, PyTorch %.9g", sums[i].path, sum,
                     sums[i].sum);
    }
}

#define GOLDEN_COUNT(array) (sizeof(array) / sizeof *(array))

#endif
