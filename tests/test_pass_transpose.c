/* tests/test_pass_transpose.c: products that are read transposed: which are computed so, and that the
 * bits stay eager's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"

enum { ROWS = 37, INNER = 300, COLUMNS = 70 };

/* [70, 37]: the transpose of a product. */
static gd_tensor *product(gd_tensor *const *in)
{
    return gd_transpose(gd_matmul(in[0], in[1]), 0, 1);
}

static gd_tensor *into_group(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_relu(gd_add(product(in), gd_transpose(in[2], 0, 1)));
}

/* One operand is a transpose, as in gradients of weights. */
static gd_tensor *of_transpose(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_copy(gd_transpose(in[0], 0, 1)); // [INNER, ROWS]
    return gd_neg(gd_transpose(gd_matmul(gd_transpose(x, 0, 1), in[1]), 0, 1));
}

/* Rounded to bf16 and widened before. */
static gd_tensor *behind_casts(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *rounded = gd_cast(gd_matmul(in[0], in[1]), GD_BF16);
    return gd_neg(gd_transpose(gd_cast(rounded, GD_F32), 0, 1));
}

static gd_tensor *of_bf16(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *half[2] = { gd_cast(in[0], GD_BF16), gd_cast(in[1], GD_BF16) };
    return gd_neg(gd_cast(product(half), GD_F32));
}

static gd_tensor *as_base(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *index = gd_broadcast_to(gd_cast(gd_argmax(gd_abs(in[2]), 1, true), GD_I64),
                                       GD_SHAPE(ROWS, ROWS)); // in 0 … 69
    return gd_scatter_add(product(in), index, gd_slice(in[2], 1, 0, ROWS, 1), 0);
}

/* ---- not these ---- */

/* A sum adds in an order that depends on how its operand lies. */
static gd_tensor *into_sum(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_sum(product(in), GD_AXES(0), false);
}

static gd_tensor *read_both_ways(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_matmul(in[0], in[1]);
    return gd_add(gd_neg(gd_transpose(x, 0, 1)), gd_transpose(gd_relu(x), 0, 1));
}

static gd_tensor *of_result(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_matmul(in[0], in[1]);
    (void)gd_output(x);
    return gd_neg(gd_transpose(x, 0, 1));
}

static gd_tensor *into_product(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_matmul(product(in), in[2]);
}

/* The body's bits are eager's, and so many products are computed transposed. */
static void check(gd_function_body body, int transposed)
{
    static char text[1 << 15];
    gd_context *gd = gd_open(test_device(), .threads = 2, .seed = 2);
    gd_tensor *in[3] = { gd_normal(gd, GD_SHAPE(ROWS, INNER), 0, 1, GD_F32),
                         gd_normal(gd, GD_SHAPE(INNER, COLUMNS), 0, 1, GD_F32),
                         gd_normal(gd, GD_SHAPE(ROWS, COLUMNS), 0, 1, GD_F32) };
    gd_function *eager = gd_compile(gd, body, NULL, .mode = GD_MODE_EAGER),
                *with = gd_compile(gd, body, NULL, .passes = ""),
                *without = gd_compile(gd, body, NULL, .passes = "-transpose");
    gd_tensor *expected = gd_retain(gd_call(eager, 3, in));
    assert_same_bits(expected, gd_call(with, 3, in));
    assert_same_bits(expected, gd_call(without, 3, in));
    assert_true(gd_plan_format(with, text, sizeof text) < sizeof text);
    if (test_device_is_host() && pass_changes(text, "transpose") != transposed)
        fail_msg("not %d products transposed:\n%s", transposed, text);
    gd_close(gd);
}

static void products_read_transposed(void **state)
{
    (void)state;
    check(into_group, 1);
    check(of_transpose, 1);
    check(behind_casts, 1);
    check(of_bf16, 1);
    check(as_base, 1);
}

static void others_stay(void **state)
{
    (void)state;
    check(into_sum, 0);
    check(read_both_ways, 0);
    check(of_result, 0);
    check(into_product, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_read_transposed),
        cmocka_unit_test(others_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
