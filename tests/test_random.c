/* tests/test_random.c: what is drawn from the random stream: that frequencies and moments are those
 * of the distribution, that dropout's gradient has the mask of its value, eager and compiled, that
 * every call draws anew, and that a compiled dropout is one pass. Sample sizes and seeds are fixed,
 * so a test gives the same at every run; bounds are five standard deviations or more. */
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
#include <stdlib.h>
#include <string.h>

enum { N = 40000 };

static gd_context *context;
static float values[N];

static int open_context(void **state)
{
    (void)state;
    gd_error_clear();
    context = gd_open(test_device(), .threads = 2, .seed = 5);
    return context ? 0 : -1;
}

static int close_context(void **state)
{
    (void)state;
    gd_close(context);
    return 0;
}

static void read_values(gd_tensor *t)
{
    if (gd_tensor_read(t, values, sizeof values) != GD_OK)
        fail_msg("%s", gd_error_message());
}

static double mean_of(const float *x)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += x[i];
    return sum / N;
}

/* ---- dropout ---- */

static void test_dropout_frequency(void **state)
{
    (void)state;
    for (int k = 1; k < 10; k += 4) {
        double p = k / 10.0;
        read_values(gd_dropout(gd_ones(context, GD_SHAPE(N), GD_F32), p));
        int kept = 0;
        for (int i = 0; i < N; i++) {
            assert_true(values[i] == 0 || values[i] == (float)(1 / (1 - p)));
            kept += values[i] != 0;
        }
        assert_true(fabs(kept - N * (1 - p)) < 5 * sqrt(N * p * (1 - p)));
    }
}

static gd_tensor *gradient; /* as dropout_and_gradient left it */

/* x -> dropout(x), then its gradient for ones. */
static gd_tensor *dropout_and_gradient(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *r = gd_dropout(in[0], 0.4), *g;
    (void)gd_dropout(in[0], 0.1); /* the stream moves on between the two */
    if (gd_grad(1, &r, NULL, 1, in, &g) != GD_OK)
        return NULL;
    gradient = gd_output(g);
    return r;
}

static void test_dropout_gradient_has_the_mask(void **state)
{
    (void)state;
    static float eager[2][2][N], compiled[2][2][N]; /* call; value, gradient */
    gd_tensor *x = gd_set_requires_grad(gd_ones(context, GD_SHAPE(N), GD_F32), true);
    gd_function *f = gd_compile(context, dropout_and_gradient, NULL);
    assert_int_equal(gd_seed(context, 9), GD_OK);
    for (int call = 0; call < 2; call++) {
        gd_tensor *r = dropout_and_gradient(NULL, 1, &x);
        assert_int_equal(gd_tensor_read(r, eager[call][0], sizeof values), GD_OK);
        assert_int_equal(gd_tensor_read(gradient, eager[call][1], sizeof values), GD_OK);
    }
    assert_int_equal(gd_seed(context, 9), GD_OK);
    for (int call = 0; call < 2; call++) {
        gd_tensor *r = gd_call(f, 1, &x);
        assert_int_equal(gd_tensor_read(r, compiled[call][0], sizeof values), GD_OK);
        assert_int_equal(gd_tensor_read(gd_function_result(f, 1), compiled[call][1], sizeof values),
                         GD_OK);
    }
    assert_memory_equal(eager, compiled, sizeof eager);
    for (int call = 0; call < 2; call++) /* of ones: value and gradient are the mask */
        assert_memory_equal(eager[call][0], eager[call][1], sizeof values);
    assert_memory_not_equal(eager[0][0], eager[1][0], sizeof values);
    gd_function_release(f);
}

static gd_tensor *only_dropout(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_dropout(in[0], 0.5);
}

static void test_dropout_is_one_pass(void **state)
{
    (void)state;
    gd_tensor *x = gd_ones(context, GD_SHAPE(N), GD_F32);
    gd_function *f = gd_compile(context, only_dropout, NULL);
    assert_non_null(gd_call(f, 1, &x));
    assert_int_equal(gd_function_stats(f).kernels, 1);
    char text[2048];
    gd_plan_format(f, text, sizeof text);
    assert_non_null(strstr(text, "dropout"));
    gd_function_release(f);
}

/* ---- distributions ---- */

static void test_bernoulli(void **state)
{
    (void)state;
    gd_tensor *p = gd_linspace(context, 0, 1, N, GD_F32);
    read_values(gd_bernoulli(p));
    double low = 0, high = 0; /* of the first and the last quarter: 1/8 and 7/8 of them expected */
    for (int i = 0; i < N; i++) {
        assert_true(values[i] == 0 || values[i] == 1);
        low += i < N / 4 ? values[i] : 0;
        high += i >= N / 4 * 3 ? values[i] : 0;
    }
    assert_true(values[0] == 0 && values[N - 1] == 1);
    double spread = 5 * sqrt(N / 4.0 * 0.125 * 0.875);
    assert_true(fabs(low - N / 4.0 * 0.125) < spread && fabs(high - N / 4.0 * 0.875) < spread);
}

static void test_categorical(void **state)
{
    (void)state;
    static const double p[4] = { 0.5, 0.125, 0, 0.375 };
    static int64_t drawn[N];
    gd_tensor *probabilities = gd_from_host(context, GD_SHAPE(4), GD_F64, p);
    gd_tensor *logits = gd_broadcast_to(gd_log(gd_cast(probabilities, GD_F32)), GD_SHAPE(N, 4));
    assert_int_equal(gd_tensor_read(gd_categorical(logits, -1), drawn, sizeof drawn), GD_OK);
    double count[4] = { 0 };
    for (int i = 0; i < N; i++)
        count[drawn[i]]++;
    for (int k = 0; k < 4; k++)
        assert_true(fabs(count[k] - N * p[k]) <= 5 * sqrt(N * p[k] * (1 - p[k])));
}

/* scipy.stats.truncnorm(-0.5, 1.25, loc=1, scale=2).stats() */
static void test_truncated_normal(void **state)
{
    (void)state;
    const double expected = 1.5783973101275233, variance = 0.9045465975013416;
    read_values(gd_truncated_normal(context, GD_SHAPE(N), 1, 2, 0, 3.5, GD_F32));
    double mean = mean_of(values), spread = 0;
    for (int i = 0; i < N; i++) {
        assert_true(values[i] >= 0 && values[i] <= 3.5F);
        spread += (values[i] - mean) * (values[i] - mean);
    }
    assert_true(fabs(mean - expected) < 5 * sqrt(variance / N));
    assert_true(fabs(spread / N - variance) < 0.05 * variance);
}

/* In every dtype numbers lie below `high`, to which those just below it would round in f16 and bf16. */
static void test_uniform_stays_below(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_F32, GD_F16, GD_BF16 };
    static const double bounds[][2] = { { 0, 1 }, { -3, 5 }, { -1, 0 }, { -5, -3 }, { 0, 1.003 } };
    for (int d = 0; d < 3; d++)
        for (int b = 0; b < 5; b++) {
            const double low = bounds[b][0], high = bounds[b][1];
            read_values(gd_cast(gd_uniform(context, GD_SHAPE(N), low, high, dtypes[d]), GD_F32));
            double least = high, most = low;
            for (int i = 0; i < N; i++) {
                assert_true(values[i] >= low && values[i] < high);
                least = fmin(least, values[i]);
                most = fmax(most, values[i]);
            }
            /* Both ends are reached, within a few of N steps and two of bf16's. */
            const double near = (high - low) * 8 / N + 0x1p-6 * fmax(fabs(low), fabs(high));
            assert_true(least <= low + near && most >= high - near);
            assert_true(fabs(mean_of(values) - (low + high) / 2) < 0.02 * (high - low));
        }
    for (int d = 0; d < 3; d++) {
        read_values(gd_cast(gd_uniform(context, GD_SHAPE(N), 2, 2, dtypes[d]), GD_F32));
        for (int i = 0; i < N; i++)
            assert_true(values[i] == 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_dropout_frequency, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_dropout_gradient_has_the_mask, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(test_dropout_is_one_pass, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_uniform_stays_below, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_bernoulli, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_categorical, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_truncated_normal, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
