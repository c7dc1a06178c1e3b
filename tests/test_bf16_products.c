/* tests/test_bf16_products.c: products of bfloat16 as users meet them, on every instruction set and
 * extension that this machine has. On one of them neither the mode nor the number of threads changes
 * a bit; between them results stay within the bound of backend/cpu/gemm_half.h, denormals being
 * allowed to count as 0; and a plan multiplies the rounded numbers as they are.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "base/half.h"
#include "support/bf16_targets.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- a layer forward and backward ---- */

enum { ROWS = 37, INNER = 530, COLUMNS = 45 };

/* bf16 operands and an f32 bias, and all gradients, end to end in one vector. */
static gd_tensor *layer(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_context *gd = gd_tensor_context(in[0]);
    if (gd_autocast_begin(gd, GD_BF16) != GD_OK)
        return NULL;
    gd_tensor *y = gd_linear(in[0], in[1], in[2]);
    if (gd_autocast_end(gd) != GD_OK || !y || gd_tensor_dtype(y) != GD_BF16)
        return NULL;
    gd_tensor *d[3];
    if (gd_grad(1, &y, &in[3], 3, in, d) != GD_OK)
        return NULL;
    gd_tensor *parts[4] = { gd_cast(y, GD_F32), d[0], d[1], d[2] };
    for (int i = 0; i < 4; i++)
        parts[i] = gd_reshape(parts[i], GD_SHAPE(-1));
    return gd_concat(4, parts, 0);
}

static void make_operands(gd_context *gd, gd_tensor *in[4])
{
    assert_int_equal(gd_seed(gd, 7), GD_OK);
    in[0] = gd_normal(gd, GD_SHAPE(ROWS, INNER), 0, 1, GD_F32);
    in[1] = gd_normal(gd, GD_SHAPE(INNER, COLUMNS), 0, 1, GD_F32);
    in[2] = gd_normal(gd, GD_SHAPE(COLUMNS), 0, 1, GD_F32);
    in[3] = gd_cast(gd_normal(gd, GD_SHAPE(ROWS, COLUMNS), 0, 1, GD_F32), GD_BF16);
    for (int i = 0; i < 3; i++)
        assert_non_null(gd_set_requires_grad(in[i], true));
}

static reading run_layer(gd_context *gd, gd_mode mode)
{
    gd_tensor *in[4];
    make_operands(gd, in);
    gd_function *f = gd_compile(gd, layer, NULL, .mode = mode, .detached = true);
    assert_non_null(f);
    gd_tensor *result = gd_call(f, 4, in);
    if (!result)
        fail_msg("%s", gd_error_message());
    reading r = reading_take(result, "layer");
    gd_function_release(f);
    return r;
}

/* The layer in double: its results, and for each the sum of the sizes of what is added up. */
typedef struct expectation {
    double value[ROWS * COLUMNS + ROWS * INNER + INNER * COLUMNS + COLUMNS];
    double size[ROWS * COLUMNS + ROWS * INNER + INNER * COLUMNS + COLUMNS];
    int64_t terms[ROWS * COLUMNS + ROWS * INNER + INNER * COLUMNS + COLUMNS];
} expectation;

static void expect_product(expectation *e, int64_t at, int64_t m, int64_t k, int64_t n,
                           const double *a, int64_t a_row, int64_t a_col, const double *b,
                           int64_t b_row, int64_t b_col, const double *bias)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = bias ? bias[j] : 0, size = fabs(sum);
            for (int64_t p = 0; p < k; p++) {
                const double x = a[i * a_row + p * a_col] * b[p * b_row + j * b_col];
                sum += x;
                size += fabs(x);
            }
            e->value[at + i * n + j] = sum;
            e->size[at + i * n + j] = size;
            e->terms[at + i * n + j] = k + 1;
        }
}

static void expect_layer(gd_context *gd, expectation *e)
{
    static double x[ROWS * INNER], w[INNER * COLUMNS], b[COLUMNS], g[ROWS * COLUMNS];
    double *const of[4] = { x, w, b, g };
    gd_tensor *in[4];
    make_operands(gd, in);
    for (int i = 0; i < 4; i++) {
        reading r = reading_take(i < 2 ? gd_cast(in[i], GD_BF16) : in[i], "operand");
        for (int64_t k = 0; k < r.count; k++)
            of[i][k] = reading_value(&r, k);
        reading_free(&r);
    }
    double ones[ROWS];
    for (int i = 0; i < ROWS; i++)
        ones[i] = 1;
    int64_t at = 0;
    expect_product(e, at, ROWS, INNER, COLUMNS, x, INNER, 1, w, COLUMNS, 1, b);
    at += ROWS * COLUMNS;
    expect_product(e, at, ROWS, COLUMNS, INNER, g, COLUMNS, 1, w, 1, COLUMNS, NULL);
    at += ROWS * INNER;
    expect_product(e, at, INNER, ROWS, COLUMNS, x, 1, INNER, g, COLUMNS, 1, NULL);
    at += INNER * COLUMNS;
    expect_product(e, at, 1, ROWS, COLUMNS, ones, 0, 1, g, COLUMNS, 1, NULL);
}

/* Within the bound of sums in f32, and one rounding to bf16. */
static void assert_within_bound(const target *t, const reading *r, const expectation *e)
{
    for (int64_t i = 0; i < r->count; i++) {
        const double x = reading_value(r, i),
                     sums = (double)(e->terms[i] + 2) * FLT_EPSILON * e->size[i];
        if (!(fabs(x - e->value[i]) <= sums + (fabs(e->value[i]) + sums) / 256))
            fail_msg("%s: number %lld is %.9g, not %.9g", t->name, (long long)i, x, e->value[i]);
    }
}

static void test_one_machine_one_result(void **state)
{
    (void)state;
    static expectation expected;
    gd_context *plain = gd_open("cpu", .threads = 1);
    expect_layer(plain, &expected);
    gd_close(plain);
    int tried = 0;
    for (size_t i = 0; i < COUNT(targets); i++) {
        gd_context *one = open_target(&targets[i], 1), *three = open_target(&targets[i], 3);
        if (!one)
            continue;
        reading first = run_layer(one, GD_MODE_EAGER);
        assert_int_equal(first.count, COUNT(expected.value));
        assert_within_bound(&targets[i], &first, &expected);
        gd_context *const contexts[] = { one, one, three, three, three };
        static const gd_mode modes[] = { GD_MODE_COMPILED, GD_MODE_LAZY, GD_MODE_EAGER,
                                         GD_MODE_COMPILED, GD_MODE_LAZY };
        for (int k = 0; k < 5; k++) {
            reading other = run_layer(contexts[k], modes[k]);
            assert_same_bits(&first, &other, targets[i].name);
            reading_free(&other);
        }
        reading_free(&first);
        close_context(one);
        close_context(three);
        tried++;
    }
    assert_true(tried > 0);
}

/* ---- numbers too small ---- */

/* Small factors, a small product, and a small sum: what they are, or 0, and nothing between. */
static void test_denormals(void **state)
{
    (void)state;
    static const float factors[][2] = {
        { 0x1p-130f, 0x1p20f }, /* a denormal, with a normal product */
        { 0x1p-65f, 0x1p-65f }, /* a denormal product */
        { 0x1p-126f, 0x1p-2f },
        { 0x1p-126f, 1.0f }
    }; /* the smallest that must not vanish */
    for (size_t i = 0; i < COUNT(targets); i++) {
        gd_context *gd = open_target(&targets[i], 1);
        if (!gd)
            continue;
        for (size_t k = 0; k < COUNT(factors); k++) {
            gd_tensor *x =
                gd_cast(gd_full(gd, GD_SHAPE(3, 2), (double)factors[k][0], GD_F32), GD_BF16);
            gd_tensor *y =
                gd_cast(gd_full(gd, GD_SHAPE(2, 3), (double)factors[k][1], GD_F32), GD_BF16);
            reading r = reading_take(gd_matmul(x, y), "small");
            const double exact = 2.0 * (double)factors[k][0] * (double)factors[k][1];
            const bool widens = targets[i].extension < 0, may_vanish = !widens && k != 3;
            for (int64_t n = 0; n < r.count; n++)
                if (reading_value(&r, n) != exact && !(may_vanish && reading_value(&r, n) == 0))
                    fail_msg("%s: case %d gives %g", targets[i].name, (int)k, reading_value(&r, n));
            reading_free(&r);
        }
        close_context(gd);
    }
}

/* ---- rounding ---- */

/* Every upper half of an f32 with lower halves below, at and above the middle of bf16 and of f16: zeros,
 * denormals, ties, what rounds to infinity, infinities and NaNs. One more than whole vectors. And every
 * half, widened. */
static void check_rounding(const target *t, gd_dtype dtype)
{
    enum { LOWS = 10, NUMBERS = LOWS * 65536 + 1, HALVES = 65536 };
    static const uint32_t low[LOWS] = { 0,      1,      0x7fff, 0x8000, 0x8001,
                                        0xffff, 0x0fff, 0x1000, 0x1001, 0x3000 };
    static float x[NUMBERS], wide[HALVES];
    static uint16_t expected[NUMBERS], half[HALVES];
    for (uint32_t i = 0; i < NUMBERS; i++) {
        const uint32_t bits = i / LOWS << 16 | low[i % LOWS];
        memcpy(&x[i], &bits, sizeof bits);
        expected[i] = dtype == GD_F16 ? gd_f32_to_f16(x[i]) : gd_f32_to_bf16(x[i]);
    }
    for (uint32_t i = 0; i < HALVES; i++) {
        half[i] = (uint16_t)i;
        wide[i] = dtype == GD_F16 ? gd_f16_to_f32(half[i]) : gd_bf16_to_f32(half[i]);
    }
    gd_context *gd = open_target(t, 1);
    if (!gd)
        return;
    reading r =
        reading_take(gd_cast(gd_from_host(gd, GD_SHAPE(NUMBERS), GD_F32, x), dtype), "rounded");
    assert_int_equal(r.bytes, sizeof expected);
    assert_memory_equal(r.data, expected, sizeof expected);
    reading_free(&r);
    r = reading_take(gd_cast(gd_from_host(gd, GD_SHAPE(HALVES), dtype, half), GD_F32), "widened");
    assert_int_equal(r.bytes, sizeof wide);
    assert_memory_equal(r.data, wide, sizeof wide);
    reading_free(&r);
    close_context(gd);
}

static void test_rounding(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(targets); i++) {
        check_rounding(&targets[i], GD_BF16);
        check_rounding(&targets[i], GD_F16);
    }
}

/* ---- plans ---- */

/* A weight is rounded by one cast for all that read it, and nothing is widened. */
static gd_tensor *two_readers(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *first = gd_matmul(in[0], in[1]);
    return gd_matmul(gd_reshape(first, GD_SHAPE(4, 16)), in[1]);
}

static int count_of(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        count++;
    return count;
}

static void test_plans_multiply_bf16(void **state)
{
    (void)state;
    char text[4096];
    for (size_t i = 0; i < COUNT(targets); i++) {
        gd_context *gd = open_target(&targets[i], 1);
        if (!gd)
            continue;
        gd_tensor *in[2] = { gd_cast(gd_normal(gd, GD_SHAPE(4, 16), 0, 1, GD_F32), GD_BF16),
                             gd_normal(gd, GD_SHAPE(16, 16), 0, 1, GD_F32) };
        gd_function *f = gd_compile(gd, two_readers, NULL);
        assert_int_equal(gd_autocast_begin(gd, GD_BF16), GD_OK);
        assert_non_null(gd_call(f, 2, in));
        assert_int_equal(gd_autocast_end(gd), GD_OK);
        assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
        assert_int_equal(count_of(text, targets[i].kernel), 2);
        assert_true(gd_function_stats(f).kernels <= 5); /* the products, the cast, two roundings */
        gd_function_release(f);
        close_context(gd);
    }
}

/* ---- f16 ---- */

/* The layer of f16 operands, as it is or by way of f32, with all gradients. */
static gd_tensor *f16_layer(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const bool wide = *(const bool *)user;
    gd_tensor *x = wide ? gd_cast(in[0], GD_F32) : in[0];
    gd_tensor *w = wide ? gd_cast(in[1], GD_F32) : in[1];
    gd_tensor *y = gd_cast(gd_add(gd_matmul(x, w), wide ? gd_cast(in[2], GD_F32) : in[2]), GD_F16);
    if (!wide)
        y = gd_linear(x, w, in[2]);
    gd_tensor *d[3];
    if (gd_grad(1, &y, &in[3], 3, in, d) != GD_OK)
        return NULL;
    gd_tensor *parts[4] = { y, d[0], d[1], d[2] };
    for (int i = 0; i < 4; i++)
        parts[i] = gd_reshape(parts[i], GD_SHAPE(-1));
    return gd_concat(4, parts, 0);
}

static reading run_f16_layer(gd_context *gd, gd_mode mode, bool wide)
{
    gd_tensor *in[4];
    make_operands(gd, in);
    for (int i = 0; i < 4; i++)
        in[i] = gd_set_requires_grad(gd_cast(gd_detach(in[i]), GD_F16), i < 3);
    gd_function *f = gd_compile(gd, f16_layer, &wide, .mode = mode, .detached = true);
    assert_non_null(f);
    gd_tensor *result = gd_call(f, 4, in);
    if (!result)
        fail_msg("%s", gd_error_message());
    reading r = reading_take(result, "layer of f16");
    gd_function_release(f);
    return r;
}

/* f16 is multiplied as it is, with the bits of f32's products of the same numbers. */
static void test_f16_has_the_bits_of_f32(void **state)
{
    (void)state;
    char text[8192];
    for (size_t i = 0; i < COUNT(targets); i++) {
        gd_context *one = open_target(&targets[i], 1), *three = open_target(&targets[i], 3);
        if (!one)
            continue;
        reading expected = run_f16_layer(one, GD_MODE_EAGER, true);
        static const gd_mode modes[] = { GD_MODE_EAGER, GD_MODE_COMPILED, GD_MODE_LAZY };
        for (int k = 0; k < 6; k++) {
            reading other = run_f16_layer(k < 3 ? one : three, modes[k % 3], false);
            assert_same_bits(&expected, &other, targets[i].name);
            reading_free(&other);
        }
        gd_tensor *in[2] = { gd_cast(gd_normal(one, GD_SHAPE(4, 16), 0, 1, GD_F32), GD_F16),
                             gd_cast(gd_normal(one, GD_SHAPE(16, 16), 0, 1, GD_F32), GD_F16) };
        gd_function *f = gd_compile(one, two_readers, NULL);
        assert_non_null(gd_call(f, 2, in));
        assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
        assert_int_equal(count_of(text, "f16 widened to f32"), 2);
        gd_function_release(f);
        reading_free(&expected);
        close_context(one);
        close_context(three);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_one_machine_one_result),
                                        cmocka_unit_test(test_denormals),
                                        cmocka_unit_test(test_rounding),
                                        cmocka_unit_test(test_plans_multiply_bf16),
                                        cmocka_unit_test(test_f16_has_the_bits_of_f32) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
