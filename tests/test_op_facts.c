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
#include "ops/internal.h"
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

/* Ops that move, draw, order and find elements, and those that only others' kernels run. */
static bool moves_only(gd_op_id id)
{
    static const gd_op_id list[] = {
        GD_OP_full,           GD_OP_iota,         GD_OP_random_bits,
        GD_OP_copy,           GD_OP_cast,         GD_OP_pad,
        GD_OP_concat,         GD_OP_gather,       GD_OP_scatter,
        GD_OP_argsort,        GD_OP_searchsorted, GD_OP_call,
        GD_OP_max_pool_index, GD_OP_extra_result, GD_OP_ctc_alpha,
        GD_OP_ctc_alpha_grad, /* sums of exponentials along a lattice, by a mask */
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] == id)
            return true;
    return false;
}

/* What the row of an op says of operands of these shapes. */
static double flops_of(gd_op_id id, int n, const gd_shape *shapes, gd_shape result,
                       const void *attr)
{
    gd_layout in[4], out;
    const gd_layout *list[4];
    for (int i = 0; i < n; i++) {
        assert_int_equal(gd_layout_init(&in[i], shapes[i], GD_F32, "in"), GD_OK);
        list[i] = &in[i];
    }
    assert_int_equal(gd_layout_init(&out, result, GD_F32, "out"), GD_OK);
    return gd_op_row(id)->flops(n, list, &out, attr);
}

static void what_computes_counts_its_flops(void **state)
{
    (void)state;
    for (int id = 0; id < GD_OP_COUNT; id++) {
        const gd_op *op = gd_op_row((gd_op_id)id);
        if (op->flops && moves_only(op->id) != (op->flops == gd_flops_none))
            fail_msg("the row of %s says that it has %s flops", op->name,
                     op->flops == gd_flops_none ? "no" : "some");
    }
    const gd_shape x = GD_SHAPE(6, 8), row = GD_SHAPE(6);
    assert_true(flops_of(GD_OP_softmax, 1, &x, x, NULL) == 5 * 48);
    assert_true(flops_of(GD_OP_max, 1, &x, row, NULL) == 48);
    assert_true(flops_of(GD_OP_cross_entropy, 2, (gd_shape[]){ x, row }, row, NULL) == 5 * 48);
    const gd_norm_attr norm = { .center = 1, .parts = 2 };
    assert_true(flops_of(GD_OP_normalize, 1, &x, x, &norm) == 7 * 48);
    const gd_pool_attr pool = { .kernel = { 1, 2, 2 }, .stride = { 1, 1, 1 } };
    assert_true(flops_of(GD_OP_avg_pool, 1, (gd_shape[]){ GD_SHAPE(1, 1, 4, 4) },
                         GD_SHAPE(1, 1, 3, 3), &pool) == 4 * 9);
    /* LSTM of 5 numbers, 4 gates, batch 2, 3 steps; its result has h, c and the gates of each. */
    const gd_recurrent_attr lstm = { .cell = GD_CELL_LSTM };
    const double product = 2.0 * 2 * 3 * 5 * 4 * 5;
    assert_true(flops_of(GD_OP_recurrent, 2, (gd_shape[]){ GD_SHAPE(2, 3, 20), GD_SHAPE(5, 20) },
                         GD_SHAPE(2 * 3 * 5 * 6), &lstm) == product);
    assert_true(flops_of(GD_OP_recurrent_grad, 2,
                         (gd_shape[]){ GD_SHAPE(2 * 3 * 5 * 6), GD_SHAPE(20, 5) },
                         GD_SHAPE(2 * 5 * (4 * 3 + 2)), &lstm) == product);
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
        cmocka_unit_test(what_computes_counts_its_flops),
        cmocka_unit_test_setup_teardown(laws_hold_for_every_value, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
