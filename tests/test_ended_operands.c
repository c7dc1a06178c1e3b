/* tests/test_ended_operands.c: every op and function of the rows of support/op_rows.h refuses an
 * operand whose scope has ended. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include <string.h>

#include "support/guard.h"
#include "support/tensors.h"

/* The row on its first case, with operand `ended` of a scope that is over; `since` tensors have
 * been in its memory. */
static gd_tensor *build_on_ended(gd_context *gd, const op_row *row, int ended, int since,
                                 numbers *n)
{
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    gd_dtype dtype = row->flags & OP_INTEGERS_ONLY ? GD_I32 : GD_F32;
    for (int i = 0; i < row->operands; i++)
        if (i != ended) {
            operand o = operand_make(row, &row->cases[0], i, dtype, LAYOUT_CONTIGUOUS, false, n);
            in[i] = operand_place(gd, &o, false).view;
            operand_free(&o);
        }
    operand o = operand_make(row, &row->cases[0], ended, dtype, LAYOUT_CONTIGUOUS, false, n);
    gd_scope_begin(gd);
    in[ended] = operand_place(gd, &o, false).view;
    gd_scope_end(gd);
    operand_free(&o);
    for (int i = 0; i < since; i++) {
        gd_scope_begin(gd);
        for (int k = 0; k < 3; k++)
            (void)gd_full(gd, GD_SHAPE(2, 3, 4, 1, 1, 1, 1, 1), 200, GD_U8);
        gd_scope_end(gd);
    }
    return row->build(gd, in, row->cases[0].p);
}

/* An operand that was released, or whose scope has ended, is GD_ERR_STATE, whatever is in its
 * memory since. */
static void test_ended_operands(void **state)
{
    (void)state;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    assert_non_null(gd);
    numbers n = { 5 };
    for (int r = 0; r < op_row_count; r++)
        for (int ended = 0; ended < op_rows[r]->operands; ended++)
            for (int since = 0; since < 5; since++) {
                gd_scope_begin(gd);
                gd_error_clear();
                gd_tensor *t = build_on_ended(gd, op_rows[r], ended, since, &n);
                /* For its builder NULL is an index that takes all of an axis. */
                bool may_be_null = strcmp(op_rows[r]->name, "index_negative") == 0;
                if ((t && !may_be_null) || gd_error_code() != GD_ERR_STATE ||
                    !strstr(gd_error_message(), "was released"))
                    fail_msg("%s with operand %d ended: code %s \"%s\"", op_rows[r]->name, ended,
                             gd_status_name(gd_error_code()), gd_error_message());
                gd_error_clear();
                gd_scope_end(gd);
            }
    gd_close(gd);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ended_operands) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
