/* tests/test_pass_move_casts.c: casts that move behind views, into groups and copies, and casts there and
 * back through a view: what moves and what does not, and that the bits stay eager's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"

enum { ROWS = 6, INNER = 20, HEADS = 3, SIZE = 8 };

/* bf16 [6, 24] of a product. */
static gd_tensor *product(gd_tensor *const *in)
{
    return gd_cast(gd_matmul(in[0], in[1]), GD_BF16);
}

/* Reshaped, then read by an elementwise op. */
static gd_tensor *into_group(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_cast(gd_relu(gd_reshape(product(in), GD_SHAPE(2, 3, HEADS * SIZE))), GD_F32);
}

/* Heads put in another order. */
static gd_tensor *into_copy(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *heads =
        gd_transpose(gd_reshape(gd_matmul(in[0], in[1]), GD_SHAPE(ROWS, HEADS, SIZE)), 0, 1);
    gd_tensor *rounded = gd_cast(heads, GD_BF16); // [3, 6, 8]
    gd_tensor *merged = gd_copy(gd_transpose(rounded, 0, 1));
    return gd_softmax(gd_cast(gd_reshape(merged, GD_SHAPE(ROWS, HEADS * SIZE)), GD_F32), 1);
}

/* The cast's value is a result, too. */
static gd_tensor *of_result(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = product(in);
    (void)gd_output(x);
    return gd_cast(gd_relu(gd_reshape(x, GD_SHAPE(2, 3, HEADS * SIZE))), GD_F32);
}

/* Another op reads it as it is. */
static gd_tensor *with_two_readers(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = product(in);
    gd_tensor *y = gd_cast(gd_relu(gd_reshape(x, GD_SHAPE(2, 3, HEADS * SIZE))), GD_F32);
    return gd_add(gd_reshape(y, GD_SHAPE(ROWS, HEADS * SIZE)),
                  gd_cumsum(gd_cast(gd_neg(gd_cast(x, GD_F32)), GD_F32), 1));
}

/* Of what an elementwise op makes: it is of that group. */
static gd_tensor *of_group(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_cast(gd_tanh(gd_matmul(in[0], in[1])), GD_BF16);
    return gd_cast(gd_relu(gd_reshape(x, GD_SHAPE(2, 3, HEADS * SIZE))), GD_F32);
}

/* bf16, in another shape, to f32 and back: nothing. */
static gd_tensor *there_and_back(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_relu(product(in));
    gd_tensor *same =
        gd_cast(gd_cast(gd_reshape(x, GD_SHAPE(2, 3, HEADS * SIZE)), GD_F32), GD_BF16);
    return gd_cast(
        gd_sort(gd_cast(gd_reshape(same, GD_SHAPE(ROWS, HEADS * SIZE)), GD_F32), 1, false), GD_F32);
}

/* The body's bits are eager's, and its plan moves so many casts. Returns how many values `simplify`
 * left out. */
static int check(gd_function_body body, int moved)
{
    static char text[1 << 15];
    gd_context *gd = gd_open(test_device(), .threads = 2, .seed = 2);
    gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(ROWS, INNER), 0, 1, GD_F32),
                         gd_normal(gd, GD_SHAPE(INNER, HEADS * SIZE), 0, 1, GD_F32) };
    gd_function *eager = gd_compile(gd, body, NULL, .mode = GD_MODE_EAGER),
                *with = gd_compile(gd, body, NULL, .passes = ""),
                *without = gd_compile(gd, body, NULL, .passes = "-move_casts,-simplify");
    gd_tensor *expected = gd_retain(gd_call(eager, 2, in));
    assert_same_bits(expected, gd_call(with, 2, in));
    assert_same_bits(expected, gd_call(without, 2, in));
    assert_true(gd_plan_format(with, text, sizeof text) < sizeof text);
    const int simplified = pass_changes(text, "simplify");
    if (pass_changes(text, "move_casts") != moved)
        fail_msg("not %d casts moved:\n%s", moved, text);
    if (moved && test_device_is_host())
        assert_true(gd_function_stats(with).kernels < gd_function_stats(without).kernels);
    gd_close(gd);
    return simplified;
}

static void casts_move_into_groups_and_copies(void **state)
{
    (void)state;
    (void)check(into_group, 1);
    (void)check(into_copy, 2); /* and behind the reshape of that */
}

static void others_stay(void **state)
{
    (void)state;
    (void)check(of_result, 0);
    (void)check(with_two_readers, 0);
    (void)check(of_group, 0);
}

static void there_and_back_is_nothing(void **state)
{
    (void)state;
    assert_true(check(there_and_back, 0) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_move_into_groups_and_copies),
        cmocka_unit_test(others_stay),
        cmocka_unit_test(there_and_back_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
