/* tests/support/op_rows_checkpoint.c: the row of checkpoint: a block of one matrix product and some
 * elementwise ops. More is in tests/test_checkpoint.c. */
#include "support/op_row_macros.h"

#include "graph/node.h"

static gd_tensor *block(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul(gd_matmul(in[0], in[1]), gd_select(in[1], 0, 0));
}

static const op_case checkpoint_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(7, 3) } },
    { .shape = { SHAPE(2, 3, 5), SHAPE(5, 2) } },
};
static const op_refusal checkpoint_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 7) }, { GD_F32, GD_F32 }, { 0 } },
};
OP(checkpoint, 2, D | OP_SUM, RESULT_NUMERIC, 64, gd_checkpoint(block, NULL, 2, in), VALUES(0.5, 2),
   VALUES(0.5, 2))
