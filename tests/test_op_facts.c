/* tests/test_op_facts.c: what the rows of ops tell the compiler (graph/op.h): every row says it, and
 * the laws of elementwise ops are true. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "graph/apply.h"
#include "graph/node.h"
#include "support/context.h"

static void every_op_with_a_kernel_says_its_work(void **state)
{
    (void)state;
    for (int id = 0; id < GD_OP_COUNT; id++) {
        const gd_op *op = gd_op_row((gd_op_id)id);
        const bool is_asked = !(op->flags & (GD_OP_VIEW | GD_OP_EFFECT));
        if (is_asked && (!op->flops || op->recompute == GD_RECOMPUTE_UNKNOWN))
            fail_msg("the row of %s says nothing of its flops, or of computing it again", op->name);
    }
}

static const double values[] = { 0,   -0.0, 1,     -1,    0.5,      -2.5,      3.25,
                                 0.1, 1e30, -1e30, 1e-40, INFINITY, -INFINITY, NAN };
enum { COUNT = sizeof values / sizeof *values };

/* All of them, as [COUNT, 1] or [1, COUNT]. */
static gd_tensor *all_values(gd_context *gd, gd_dtype dtype, bool as_column)
{
    gd_tensor *x = gd_cast(gd_from_host(gd, GD_SHAPE(COUNT), GD_F64, values), dtype);
    return gd_reshape(x, as_column ? GD_SHAPE(COUNT, 1) : GD_SHAPE(1, COUNT));
}

static gd_tensor *apply(const gd_op *op, gd_tensor *x, gd_tensor *y)
{
    gd_tensor *in[2] = { x, y };
    return gd_apply(NULL, op->id, op->arity, in, NULL);
}

static void check_unit(gd_context *gd, const gd_op *op, gd_dtype dtype, unsigned law, double unit)
{
    gd_tensor *x = all_values(gd, dtype, true);
    if (op->flags & law)
        assert_same_bits(apply(op, x, gd_scalar(gd, unit, dtype)), x);
}

static void check_laws(gd_context *gd, const gd_op *op, gd_dtype dtype)
{
    gd_tensor *x = all_values(gd, dtype, true), *y = all_values(gd, dtype, false);
    check_unit(gd, op, dtype, GD_OP_UNIT_ONE, 1);
    check_unit(gd, op, dtype, GD_OP_UNIT_ZERO, 0);
    check_unit(gd, op, dtype, GD_OP_UNIT_MINUS_ZERO, -0.0);
    if (op->flags & GD_OP_COMMUTES)
        assert_same_bits(apply(op, x, y), apply(op, y, x));
    if (op->flags & GD_OP_IDEMPOTENT)
        assert_same_bits(apply(op, apply(op, x, NULL), NULL), apply(op, x, NULL));
    if (op->flags & GD_OP_INVOLUTION)
        assert_same_bits(apply(op, apply(op, x, NULL), NULL), x);
}

static void laws_hold_for_every_value(void **state)
{
    const unsigned laws = GD_OP_COMMUTES | GD_OP_UNIT_ONE | GD_OP_UNIT_ZERO |
                          GD_OP_UNIT_MINUS_ZERO | GD_OP_IDEMPOTENT | GD_OP_INVOLUTION;
    int checked = 0;
    for (int id = 0; id < GD_OP_COUNT; id++) {
        const gd_op *op = gd_op_row((gd_op_id)id);
        if (!(op->flags & laws))
            continue;
        assert_true(op->flags & GD_OP_ELEMENTWISE);
        check_laws(*state, op, GD_F32);
        check_laws(*state, op, GD_F64);
        checked++;
    }
    assert_true(checked >= 7); /* add, sub, mul, div, neg, abs, relu */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_with_a_kernel_says_its_work),
        cmocka_unit_test_setup_teardown(laws_hold_for_every_value, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
