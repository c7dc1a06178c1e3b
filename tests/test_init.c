/* tests/test_init.c: initial values of parameters: distributions, fans, orthogonality, determinism.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"

#include <math.h>
#include <stdlib.h>

typedef struct statistics {
    double mean, deviation, least, most;
} statistics;

static float *values_of(gd_tensor *t)
{
    if (!t)
        print_error("%s\n", gd_error_message());
    assert_non_null(t);
    size_t bytes = (size_t)gd_tensor_count(t) * sizeof(float);
    float *values = malloc(bytes);
    assert_non_null(values);
    assert_int_equal(gd_tensor_read(t, values, bytes), GD_OK);
    return values;
}

static statistics statistics_of(gd_tensor *t)
{
    float *values = values_of(t);
    int64_t count = gd_tensor_count(t);
    statistics s = { 0, 0, INFINITY, -INFINITY };
    for (int64_t i = 0; i < count; i++) {
        double v = (double)values[i];
        s.mean += v / (double)count;
        s.least = fmin(s.least, v);
        s.most = fmax(s.most, v);
    }
    for (int64_t i = 0; i < count; i++)
        s.deviation += ((double)values[i] - s.mean) * ((double)values[i] - s.mean) / (double)count;
    s.deviation = sqrt(s.deviation);
    free(values);
    return s;
}

static gd_tensor *drawn(gd_module *m, const char *path, gd_init init, double scale)
{
    return gd_parameter(m, path, GD_SHAPE(200, 100), .init = init, .init_scale = scale);
}

typedef struct expectation {
    gd_init init;
    double scale, deviation, limit; /* scale NaN: not given; limit 0: none */
} expectation;

/* Mean 0, the deviation and the bounds of each kind, for fans 200 and 100. A truncated normal of
 * deviation 1 has deviation 0.8796. */
static void test_distributions(void **state)
{
    static const expectation expected[] = {
        { GD_INIT_GLOROT_UNIFORM, NAN, 0.081650, 0.141421 },
        { GD_INIT_GLOROT_UNIFORM, 2, 0.163299, 0.282843 },
        { GD_INIT_GLOROT_NORMAL, NAN, 0.081650, 0 },
        { GD_INIT_HE_UNIFORM, NAN, 0.1, 0.173205 },
        { GD_INIT_HE_NORMAL, NAN, 0.1, 0 },
        { GD_INIT_LECUN_UNIFORM, NAN, 0.070711, 0.122474 },
        { GD_INIT_LECUN_NORMAL, 0.5, 0.035355, 0 },
        { GD_INIT_UNIFORM, NAN, 0.028868, 0.05 },
        { GD_INIT_UNIFORM, 3, 1.732051, 3 },
        { GD_INIT_NORMAL, NAN, 0.05, 0 },
        { GD_INIT_NORMAL, 0.02, 0.02, 0 },
        { GD_INIT_TRUNCATED_NORMAL, 1, 0.879626, 2 },
        { GD_INIT_TRUNCATED_NORMAL, NAN, 0.043981, 0.1 },
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        gd_module *m = gd_module_create(*state, .seed = 5);
        const expectation *e = &expected[i];
        statistics s = statistics_of(drawn(m, "p", e->init, e->scale));
        if (fabs(s.mean) > 0.03 * e->deviation || fabs(s.deviation / e->deviation - 1) > 0.02)
            fail_msg("%s: mean %g, deviation %g, expected %g", gd_init_name(e->init), s.mean,
                     s.deviation, e->deviation);
        if (e->limit > 0) {
            assert_true(s.most <= e->limit * (1 + 1e-6) && s.least >= -e->limit * (1 + 1e-6));
            assert_true(s.most > 0.98 * e->limit && s.least < -0.98 * e->limit);
        }
        gd_module_release(m);
    }
}

static void test_constants(void **state)
{
    gd_module *m = gd_module_create(*state);
    statistics s = statistics_of(drawn(m, "half", GD_INIT_CONSTANT, 0.5));
    assert_true(s.least == 0.5 && s.most == 0.5);
    s = statistics_of(drawn(m, "none", GD_INIT_CONSTANT, 0));
    assert_true(s.least == 0 && s.most == 0);
    s = statistics_of(drawn(m, "nothing", GD_INIT_CONSTANT, NAN));
    assert_true(s.least == 0 && s.most == 0);
    s = statistics_of(drawn(m, "still", GD_INIT_NORMAL, 0));
    assert_true(s.least == 0 && s.most == 0);
    s = statistics_of(drawn(m, "flat", GD_INIT_GLOROT_UNIFORM, 0));
    assert_true(s.least == 0 && s.most == 0);
    s = statistics_of(drawn(m, "ones", GD_INIT_ONES, 0.5));
    assert_true(s.least == 1 && s.most == 1);
}

/* rows . rows = identity times scale^2; columns when there are fewer of them. */
static void check_orthogonal(gd_tensor *t, int64_t height, int64_t width, double scale)
{
    float *v = values_of(t);
    int64_t n = height < width ? height : width, along = height < width ? width : height;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double dot = 0;
            for (int64_t k = 0; k < along; k++)
                dot += n == height ? (double)v[i * width + k] * (double)v[j * width + k]
                                   : (double)v[k * width + i] * (double)v[k * width + j];
            assert_true(fabs(dot - (i == j ? scale * scale : 0)) < 1e-5);
        }
    free(v);
}

static void test_orthogonal(void **state)
{
    gd_module *m = gd_module_create(*state, .seed = 2);
    gd_parameter_options o = { GD_PARAMETER_DEFAULTS, .init = GD_INIT_ORTHOGONAL };
    check_orthogonal(gd_parameter_with(m, "wide", GD_SHAPE(5, 13), &o), 5, 13, 1);
    check_orthogonal(gd_parameter_with(m, "conv", GD_SHAPE(4, 3, 2, 2), &o), 4, 12, 1);
    check_orthogonal(gd_parameter_with(m, "square", GD_SHAPE(30, 30), &o), 30, 30, 1);
    o.init_scale = 2;
    check_orthogonal(gd_parameter_with(m, "tall", GD_SHAPE(13, 5), &o), 13, 5, 2);
}

/* A convolution's fans: c / groups * kernel numbers make a result, and channels / groups * kernel
 * results are made of a number, whichever way the weight lies. */
static void test_fans_of_convolutions(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd, .seed = 1);
    gd_tensor *x = gd_zeros(gd, GD_SHAPE(1, 32, 6, 6), GD_F32);
    assert_non_null(gd_nn_conv2d(m, "he", x, 64, GD_SHAPE(3), .init = GD_INIT_HE_NORMAL));
    assert_non_null(
        gd_nn_conv2d(m, "grouped", x, 64, GD_SHAPE(3), .groups = 4, .init = GD_INIT_HE_NORMAL));
    assert_non_null(gd_nn_conv2d(m, "glorot", x, 64, GD_SHAPE(3)));
    assert_non_null(
        gd_nn_conv_transpose2d(m, "back", x, 64, GD_SHAPE(3), .init = GD_INIT_HE_NORMAL));
    double he = statistics_of(gd_module_parameter(m, "he.weight")).deviation;
    double grouped = statistics_of(gd_module_parameter(m, "grouped.weight")).deviation;
    double back = statistics_of(gd_module_parameter(m, "back.weight")).deviation;
    double glorot = statistics_of(gd_module_parameter(m, "glorot.weight")).most;
    assert_true(fabs(he / sqrt(2.0 / (32 * 9)) - 1) < 0.03);
    assert_true(fabs(grouped / sqrt(2.0 / (8 * 9)) - 1) < 0.04);
    assert_true(fabs(back / sqrt(2.0 / (32 * 9)) - 1) < 0.03);
    assert_true(fabs(glorot / sqrt(6.0 / ((32 + 64) * 9)) - 1) < 0.01);
}

/* The values depend on the seed and on what was drawn before, and on nothing else. */
static void test_determinism(void **state)
{
    static const gd_init kinds[] = { GD_INIT_TRUNCATED_NORMAL, GD_INIT_ORTHOGONAL,
                                     GD_INIT_UNIFORM };
    float *first[2];
    for (int run = 0; run < 2; run++) {
        gd_module *m = gd_module_create(*state, .seed = 9);
        for (int k = 0; k < 3; k++)
            assert_non_null(drawn(m, k == 0 ? "a" : k == 1 ? "b" : "c", kinds[k], NAN));
        first[run] = values_of(gd_module_parameter(m, "c"));
        gd_module_release(m);
    }
    assert_memory_equal(first[0], first[1], 200 * 100 * sizeof(float));
    free(first[0]);
    free(first[1]);
}

static void test_errors(void **state)
{
    gd_module *m = gd_module_create(*state);
    assert_null(gd_parameter(m, "a", GD_SHAPE(5), .init = GD_INIT_ORTHOGONAL));
    expect_error(GD_ERR_SHAPE, "orthogonal needs at least two axes");
    assert_null(gd_parameter(m, "a", GD_SHAPE(5), .init = GD_INIT_LECUN_NORMAL));
    expect_error(GD_ERR_SHAPE, "lecun_normal needs at least two axes");
    assert_null(gd_parameter(m, "a", GD_SHAPE(5), .init = (gd_init)99));
    expect_error(GD_ERR_INVALID, "no initialiser number 99");
    assert_null(drawn(m, "a", GD_INIT_NORMAL, INFINITY));
    expect_error(GD_ERR_INVALID, "the scale is inf");
    assert_non_null(gd_parameter(m, "a", GD_SHAPE(5), .init = GD_INIT_NORMAL));
    assert_non_null(gd_parameter(m, "empty", GD_SHAPE(0, 5), .init = GD_INIT_ORTHOGONAL));
    assert_null(gd_parameter(NULL, "a", GD_SHAPE(5)));
    assert_int_equal(gd_error_code(), GD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(test_distributions), context_test(test_constants),
        context_test(test_orthogonal),    context_test(test_fans_of_convolutions),
        context_test(test_determinism),   context_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
