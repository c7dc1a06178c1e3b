/* tests/test_norm.c: normalisation beyond its op rows: values and gradients of PyTorch, running
 * statistics, extreme and special numbers, errors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/context.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- PyTorch 2.15.0, f64, F = torch.nn.functional. x = ramp(2, 3, 4), with
 * def ramp(*s): i = torch.arange(math.prod(s)); return (torch.sin(i * 1.3) * 3 + i *
 * 0.125).reshape(s) w = torch.arange(4) * 0.25 + 0.5; b = torch.arange(4) - 1; g =
 * torch.cos(torch.arange(24)).reshape(2, 3, 4) ---- */

/* y = F.layer_norm(x, [4], w, b) */
static const double layer_y[] = { -1.218866,    0.93941024,   1.56920462,   0.269975492,
                                  -1.78134676,  0.0337979503, 2.20845332,   2.38647033,
                                  -1.51472019,  -0.673802817, 1.59323009,   3.66826756,
                                  -0.797111894, -0.905137292, 0.386143253,  3.76866282,
                                  -0.232623867, 0.0193879696, -0.241883687, 1.60160099,
                                  -0.562455071, 0.76681464,   0.492038138,  0.263065606 };
/* y.backward(g); x.grad */
static const double layer_x[] = { 0.493350948,   0.0223009146,  -0.2691174,    -0.246534463,
                                  -0.0016617125, -0.120597658,  -0.0388754399, 0.16113481,
                                  0.15265058,    -0.0980634823, -0.191394635,  0.136807537,
                                  0.302628662,   -0.0101004972, -0.137478396,  -0.155049769,
                                  -0.0160585671, -0.250781356,  -0.125842436,  0.392682358,
                                  0.189847257,   -0.114097783,  -0.175517752,  0.0997682776 };
/* w.grad */
static const double layer_w[] = { -0.0367494658, -0.15417432, 0.0296541337, 0.959536544 };
/* b.grad */
static const double layer_b[] = { 0.495132886, -0.00261158738, -0.497954979, -0.535480859 };
/* y = F.rms_norm(x, [4], w, 1e-5) */
static const double rms_y[] = { 0,           1.16132216,  0.922433772, -1.08359307,  -0.442411439,
                                0.392041851, 1.54123637,  0.942431513, -0.277171445, -0.325365889,
                                0.938117802, 2.02501256,  0.426120664, -0.407493022, -0.0301483225,
                                2.15695317,  0.906179028, 0.51091719,  -0.269123205, 0.528648887,
                                0.662515739, 1.06005216,  0.495448172, -0.0416816429 };
/* y.backward(g); x.grad */
static const double rms_x[] = { 0.256730214,   -0.0535747649, -0.369541256,  -0.488924159,
                                0.101331749,   -0.0517688208, -0.0156625885, 0.186834441,
                                -0.0500438938, -0.273240688,  -0.274857992,  0.0688698625,
                                0.361835409,   0.213177626,   0.0580913387,  -0.110570837,
                                -0.0674897784, -0.0353609772, 0.233126688,   0.494524339,
                                0.128298484,   -0.0370728564, -0.249890363,  -0.186140419 };
/* w.grad */
static const double rms_w[] = { 0.18328266, -0.0744830682, -0.36842418, 0.55879044 };
/* F.layer_norm(x, [3, 4]) */
static const double layer_two_axes[] = {
    -0.466322844,  0.937242917,  0.369812362,  -1.25209661, -1.46715274,   0.124932517,
    1.27698134,    0.38647032,   -1.156769,    -1.00665659, 0.702123331,   1.55143499,
    -0.0375778321, -1.43290635,  -0.919817731, 0.835595162, 1.3472315,     -0.0488739717,
    -1.2218403,    -0.367685891, 1.34783422,   1.49706222,  -0.0530380856, -0.945982947
};
/* x = ramp(2, 4, 3); F.group_norm(x, 2, w, b) */
static const double group_y[] = { -1.1009874,   -0.286650704,   -0.615868995, -0.835329783,
                                  -1.02249034,  0.363080762,    1.94471012,   1.09037884,
                                  -0.390161662, 0.442314966,    2.49150935,   3.51001656,
                                  -0.997288628, -1.73232399,    -1.46203762,  0.694026115,
                                  1.09830812,   -0.00485886429, -0.208217314, 0.607876765,
                                  2.24695488,   3.73691678,     1.88563019,   0.819185114 };
/* F.instance_norm(x, weight=w, bias=b) */
static const double instance_y[] = { -1.64750544,  -0.430178018, -0.922316538,  -0.411863594,
                                     -0.640544789, 1.05240838,   2.1021177,     1.21640399,
                                     -0.318521692, 0.328768199,  2.33663322,    3.33459858,
                                     -0.34126638,  -1.55196521,  -1.10676841,   0.161624949,
                                     0.827015973,  -0.988640922, -0.0680792533, 0.73129299,
                                     2.33678626,   3.64843728,   1.72871523,    0.622847484 };
/* m = zeros(4); v = ones(4); F.batch_norm(x, m, v, w, b, True, 0.1, 1e-5) */
static const double batch_y[] = { -1.31704427,  -0.256391472,   -0.685189908,  -0.875076352,
                                  -1.01107681,  -0.00424981696, 1.98470056,    1.12736623,
                                  -0.358378492, 0.185865477,    2.2429269,     3.26534425,
                                  -0.675779172, -1.72586595,    -1.33972923,   0.708403296,
                                  1.0306275,    0.151372179,    -0.0121294986, 0.806817038,
                                  2.45162415,   3.69769857,     1.83934145,    0.76882335 };
/* m */
static const double batch_mean[] = { 0.0901428187, 0.128479884, 0.154804861, 0.207692416 };
/* v */
static const double batch_var[] = { 1.14251665, 1.67916504, 1.49767068, 1.49728493 };
/* F.batch_norm(x * 2, m, v, w, b, True, 0.1, 1e-5) */
static const double batch_y2[] = { -1.31704485,  -0.256390092,   -0.685189324,  -0.875076858,
                                   -1.01107739,  -0.00424981941, 1.98470131,    1.12736633,
                                   -0.358379515, 0.18586411,     2.24292708,    3.2653452,
                                   -0.67577857,  -1.7258673,     -1.33972986,   0.708403705,
                                   1.0306281,    0.151372266,    -0.0121302606, 0.806816893,
                                   2.45162525,   3.69769985,     1.83934133,    0.768822423 };
/* m */
static const double batch_mean2[] = { 0.261414174, 0.372591664, 0.448934096, 0.602308007 };
/* v */
static const double batch_var2[] = { 1.99833161, 4.6279087, 3.73858634, 3.73669616 };
/* F.batch_norm(x, m, v, w, b, False, 0.1, 1e-5) */
static const double batch_eval[] = { -1.09246221,    -0.0258179256, -0.457038589, -0.718494164,
                                     -0.879585408,   0.312991591,   2.70500087,   1.71545321,
                                     0.000585202936, 0.85979855,    3.23392244,   4.41392875,
                                     -0.447574692,   -1.50359328,   -1.11527532,  1.15712243,
                                     1.53879394,     0.497324366,   0.400230789,  1.3454707,
                                     3.24393082,     4.91292343,    2.76813088,   1.53260987 };

static gd_tensor *from_values(gd_context *gd, gd_shape shape, const double *values)
{
    return gd_from_host(gd, shape, GD_F64, values);
}

static gd_tensor *ramp(gd_context *gd, gd_shape shape)
{
    double values[64];
    int count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= (int)shape.dim[i];
    for (int i = 0; i < count; i++)
        values[i] = sin(i * 1.3) * 3 + i * 0.125;
    return from_values(gd, shape, values);
}

static gd_tensor *weight_of(gd_context *gd)
{
    return from_values(gd, GD_SHAPE(4), (const double[]){ 0.5, 0.75, 1, 1.25 });
}

static gd_tensor *bias_of(gd_context *gd)
{
    return from_values(gd, GD_SHAPE(4), (const double[]){ -1, 0, 1, 2 });
}

static gd_tensor *seed_of(gd_context *gd)
{
    double values[24];
    for (int i = 0; i < 24; i++)
        values[i] = cos(i);
    return from_values(gd, GD_SHAPE(2, 3, 4), values);
}

static void check(gd_tensor *t, const double *expected, int count, double tolerance)
{
    double values[64];
    if (!t)
        print_error("%s\n", gd_error_message());
    assert_non_null(t);
    assert_int_equal(gd_tensor_count(t), count);
    assert_int_equal(gd_tensor_read(gd_cast(t, GD_F64), values, (size_t)count * sizeof(double)),
                     GD_OK);
    for (int i = 0; i < count; i++)
        if (!(fabs(values[i] - expected[i]) <= tolerance * (1 + fabs(expected[i]))))
            fail_msg("element %d is %.9g, expected %.9g", i, values[i], expected[i]);
}
#define CHECK(t, expected) check(t, expected, COUNT(expected), 2e-8)

static void test_layer_norm_as_torch(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[3] = { gd_set_requires_grad(ramp(gd, GD_SHAPE(2, 3, 4)), true),
                         gd_set_requires_grad(weight_of(gd), true),
                         gd_set_requires_grad(bias_of(gd), true) };
    gd_tensor *y = gd_layer_norm(in[0], in[1], in[2]), *g = seed_of(gd), *d[3];
    CHECK(y, layer_y);
    assert_int_equal(gd_grad(1, &y, &g, 3, in, d), GD_OK);
    CHECK(d[0], layer_x);
    CHECK(d[1], layer_w);
    CHECK(d[2], layer_b);
    CHECK(gd_layer_norm(in[0], NULL, NULL, .axes = 2), layer_two_axes);
    check(gd_layer_norm(gd_cast(in[0], GD_F32), gd_cast(in[1], GD_F32), gd_cast(in[2], GD_F32)),
          layer_y, 24, 1e-6);
}

static void test_rms_norm_as_torch(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[2] = { gd_set_requires_grad(ramp(gd, GD_SHAPE(2, 3, 4)), true),
                         gd_set_requires_grad(weight_of(gd), true) };
    gd_tensor *y = gd_rms_norm(in[0], in[1]), *g = seed_of(gd), *d[2];
    CHECK(y, rms_y);
    assert_int_equal(gd_grad(1, &y, &g, 2, in, d), GD_OK);
    CHECK(d[0], rms_x);
    CHECK(d[1], rms_w);
}

static void test_channel_norms_as_torch(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = ramp(gd, GD_SHAPE(2, 4, 3)), *w = weight_of(gd), *b = bias_of(gd);
    CHECK(gd_group_norm(x, w, b, 2), group_y);
    CHECK(gd_instance_norm(x, w, b), instance_y);
}

/* Two training steps, then evaluation, as PyTorch; the statistics change by effects. */
static void test_batch_norm_as_torch(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = ramp(gd, GD_SHAPE(2, 4, 3)), *w = weight_of(gd), *b = bias_of(gd);
    gd_tensor *mean = gd_zeros(gd, GD_SHAPE(4), GD_F64), *var = gd_ones(gd, GD_SHAPE(4), GD_F64);
    CHECK(gd_batch_norm(x, w, b, mean, var, .training = true), batch_y);
    CHECK(mean, batch_mean);
    CHECK(var, batch_var);
    CHECK(gd_batch_norm(gd_mul_scalar(x, 2), w, b, mean, var, .training = true), batch_y2);
    CHECK(mean, batch_mean2);
    CHECK(var, batch_var2);
    CHECK(gd_batch_norm(x, w, b, mean, var), batch_eval);
    CHECK(mean, batch_mean2);
    CHECK(gd_batch_norm(x, w, b, NULL, NULL, .training = true), batch_y);
}

/* The gradient by x where the mean is 1000 times the deviation: nothing is the difference of large sums. */
static void test_batch_norm_far_from_zero(void **state)
{
    enum { N = 8, C = 4, K = 999, COUNT = N * C * K };
    gd_context *gd = *state;
    float *x = malloc(COUNT * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < COUNT; i++)
        x[i] = 1000 + sinf((float)(i % 7919));
    gd_tensor *d[2];
    for (int wide = 0; wide < 2; wide++) {
        const gd_dtype dtype = wide ? GD_F64 : GD_F32;
        gd_tensor *in = gd_cast(gd_from_host(gd, GD_SHAPE(N, C, K), GD_F32, x), dtype);
        in = gd_set_requires_grad(gd_detach(in), true);
        gd_tensor *y = gd_batch_norm(in, NULL, NULL, NULL, NULL, .training = true);
        gd_tensor *g = gd_cos(
            gd_cast(gd_reshape(gd_arange(gd, 0, COUNT, 1, GD_F64), GD_SHAPE(N, C, K)), dtype));
        assert_int_equal(gd_grad(1, &y, &g, 1, &in, &d[wide]), GD_OK);
    }
    gd_tensor *off = gd_abs(gd_sub(gd_cast(d[0], GD_F64), d[1]));
    const double most = gd_item(gd_max(off, GD_ALL_AXES, false));
    const double size = gd_item(gd_max(gd_abs(d[1]), GD_ALL_AXES, false));
    if (!(most < 1e-5 * size))
        fail_msg("errors of %g in gradients of %g", most, size);
    free(x);
}

typedef struct statistics {
    gd_tensor *mean, *var;
} statistics;

static gd_tensor *train_batch_norm(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const statistics *s = user;
    return gd_batch_norm(in[0], NULL, NULL, s->mean, s->var, .training = true);
}

/* A compiled call updates the running statistics at every run, to the same bits as eager calls. */
static void test_compiled_running_statistics(void **state)
{
    gd_context *gd = *state;
    statistics s[2];
    gd_tensor *x = gd_cast(ramp(gd, GD_SHAPE(2, 4, 3)), GD_F32);
    for (int i = 0; i < 2; i++)
        s[i] = (statistics){ gd_zeros(gd, GD_SHAPE(4), GD_F32), gd_ones(gd, GD_SHAPE(4), GD_F32) };
    gd_function *f = gd_compile(gd, train_batch_norm, &s[0]);
    for (int step = 0; step < 3; step++) {
        assert_non_null(gd_call(f, 1, &x));
        assert_non_null(train_batch_norm(&s[1], 1, &x));
    }
    float a[4], b[4];
    assert_int_equal(gd_tensor_read(s[0].mean, a, sizeof a), GD_OK);
    assert_int_equal(gd_tensor_read(s[1].mean, b, sizeof b), GD_OK);
    assert_memory_equal(a, b, sizeof a);
    assert_true(a[0] != 0);
    assert_int_equal(gd_tensor_read(s[0].var, a, sizeof a), GD_OK);
    assert_int_equal(gd_tensor_read(s[1].var, b, sizeof b), GD_OK);
    assert_memory_equal(a, b, sizeof a);
}

/* Running statistics in f16 and bf16 are updated in f32 and rounded once. */
static void test_running_statistics_in_halves(void **state)
{
    gd_context *gd = *state;
    static const gd_dtype dtypes[] = { GD_F16, GD_BF16 };
    const double mean = 77 / 256.0, var = 109 / 64.0; /* exact in each */
    for (int d = 0; d < 2; d++) {
        gd_tensor *x = gd_cast(ramp(gd, GD_SHAPE(2, 4, 3)), dtypes[d]);
        statistics s[2];
        for (int wide = 0; wide < 2; wide++) {
            const gd_dtype dtype = wide ? GD_F32 : dtypes[d];
            s[wide] = (statistics){ gd_full(gd, GD_SHAPE(4), mean, dtype),
                                    gd_full(gd, GD_SHAPE(4), var, dtype) };
            gd_tensor *in = gd_cast(x, dtype);
            assert_non_null(train_batch_norm(&s[wide], 1, &in));
        }
        assert_true(gd_equal(s[0].mean, gd_cast(s[1].mean, dtypes[d])));
        assert_true(gd_equal(s[0].var, gd_cast(s[1].var, dtypes[d])));
    }
}

/* A row of equal numbers gives the bias; one whose squares overflow f32 is normalised all the same;
 * a NaN or an infinity stays in its row. */
static void test_extreme_rows(void **state)
{
    gd_context *gd = *state;
    const float rows[5][4] = { { 3, 3, 3, 3 },
                               { 1e30f, -1e30f, 2e30f, -2e30f },
                               { 2e38f, 2e38f, 2e38f, -2e38f },
                               { 1, NAN, 2, 3 },
                               { 1, INFINITY, 2, 3 } };
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(5, 4), GD_F32, rows);
    gd_tensor *y = gd_layer_norm(x, NULL, NULL);
    float out[5][4];
    assert_int_equal(gd_tensor_read(y, out, sizeof out), GD_OK);
    for (int i = 0; i < 4; i++) {
        const double large[4] = { 1 / sqrt(2.5), -1 / sqrt(2.5), 2 / sqrt(2.5), -2 / sqrt(2.5) };
        assert_true(out[0][i] == 0);
        assert_true(fabs((double)out[1][i] - large[i]) < 1e-6);
        assert_true(fabs((double)out[2][i] - (i < 3 ? 1 / sqrt(3.0) : -sqrt(3.0))) < 1e-6);
        assert_true(isnan(out[3][i]) && isnan(out[4][i]));
    }
    assert_int_equal(gd_tensor_read(gd_rms_norm(x, NULL), out, sizeof out), GD_OK);
    for (int i = 0; i < 4; i++)
        assert_true(fabs((double)out[1][i] - (double)rows[1][i] / (1e30 * sqrt(2.5))) < 1e-6);
}

/* A large common offset does not destroy the variance: it is taken of deviations. */
static void test_offset(void **state)
{
    gd_context *gd = *state;
    const float row[4] = { 65536 + 1, 65536 - 1, 65536 + 2, 65536 - 2 };
    float out[4];
    gd_tensor *y = gd_layer_norm(gd_from_host(gd, GD_SHAPE(4), GD_F32, row), NULL, NULL);
    assert_int_equal(gd_tensor_read(y, out, sizeof out), GD_OK);
    for (int i = 0; i < 4; i++)
        assert_true(fabs((double)out[i] - ((double)row[i] - 65536) / sqrt(2.5 + 1e-5)) < 1e-6);
}

static void test_errors(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = ramp(gd, GD_SHAPE(2, 4, 3)), *w = weight_of(gd), *none = NULL;
    assert_null(gd_layer_norm(none, w, w));
    assert_null(gd_batch_norm(none, w, w, NULL, NULL));
    assert_int_equal(gd_error_code(), GD_OK);
    assert_null(gd_layer_norm(x, NULL, NULL, .epsilon = -1));
    expect_error(GD_ERR_INVALID, "epsilon is -1");
    assert_null(gd_layer_norm(x, w, NULL));
    expect_error(GD_ERR_SHAPE, "gd_layer_norm: x is [2, 4, 3]");
    assert_null(gd_group_norm(x, w, NULL, 3));
    expect_error(GD_ERR_SHAPE, "4 channels do not divide into 3 groups");
    assert_null(gd_batch_norm(x, w, NULL, NULL, NULL));
    expect_error(GD_ERR_INVALID, "the running mean and variance are needed");
    assert_null(gd_batch_norm(x, w, NULL, NULL, NULL, .training = true, .momentum = 2));
    expect_error(GD_ERR_INVALID, "momentum is 2");
    assert_null(gd_batch_norm(gd_slice(gd_select(x, 2, 0), 0, 0, 1, 1), w, NULL, NULL, NULL,
                              .training = true));
    expect_error(GD_ERR_SHAPE, "a channel has 1 values");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
    const struct CMUnitTest tests[] = {
        TEST(test_layer_norm_as_torch),
        TEST(test_rms_norm_as_torch),
        TEST(test_channel_norms_as_torch),
        TEST(test_batch_norm_as_torch),
        TEST(test_batch_norm_far_from_zero),
        TEST(test_compiled_running_statistics),
        TEST(test_running_statistics_in_halves),
        TEST(test_extreme_rows),
        TEST(test_offset),
        TEST(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
