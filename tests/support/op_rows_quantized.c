/* tests/support/op_rows_quantized.c: the row of products with weights in blocks. What rows cannot
 * try (scales of f16, an oracle, gradients) is in test_quantized_linear.c. */
#include "support/op_row_macros.h"

static const op_case quantized_linear_cases[] = {
    { .shape = { SHAPE(5, 64), SHAPE(7, 64), SHAPE(7, 2) } },
    { .shape = { SHAPE(1, 608), SHAPE(19, 608), SHAPE(19, 19) } },
    { .shape = { SHAPE(2, 3, 256), SHAPE(5, 256), SHAPE(5, 8) } },
    { .shape = { SHAPE(288), SHAPE(3, 288), SHAPE(3, 9) } },
    { .shape = { SHAPE(0, 32), SHAPE(3, 32), SHAPE(3, 1) } },
    { .shape = { SHAPE(3, 32), SHAPE(0, 32), SHAPE(0, 1) } },
    { .shape = { SHAPE(3, 0), SHAPE(5, 0), SHAPE(5, 0) } },
    /* of 4 bits */
    { .shape = { SHAPE(5, 64), SHAPE(7, 32), SHAPE(7, 2) } },
    { .shape = { SHAPE(2, 3, 288), SHAPE(19, 144), SHAPE(19, 9) } },
    { .shape = { SHAPE(288), SHAPE(3, 144), SHAPE(3, 9) } },
    /* with least values: 8 bits, and 4 */
    { .shape = { SHAPE(5, 64), SHAPE(7, 64), SHAPE(7, 4) } },
    { .shape = { SHAPE(2, 3, 288), SHAPE(19, 288), SHAPE(19, 18) } },
    { .shape = { SHAPE(5, 64), SHAPE(7, 32), SHAPE(7, 4) } },
    { .shape = { SHAPE(2, 3, 288), SHAPE(19, 144), SHAPE(19, 18) } },
    /* scales of two levels: 4 and 8 bits, 16 and 8 groups, without and with least values */
    { .shape = { SHAPE(5, 256), SHAPE(7, 144), SHAPE(7, 1) } },
    { .shape = { SHAPE(2, 3, 512), SHAPE(19, 272), SHAPE(19, 2) } },
    { .shape = { SHAPE(512), SHAPE(3, 320), SHAPE(3, 4) } },
    { .shape = { SHAPE(5, 256), SHAPE(7, 144), SHAPE(7, 2) } },
    { .shape = { SHAPE(5, 256), SHAPE(7, 272), SHAPE(7, 1) } },
    { .shape = { SHAPE(2, 3, 512), SHAPE(5, 528), SHAPE(5, 2) } },
    { .shape = { SHAPE(512), SHAPE(3, 576), SHAPE(3, 4) } },
    { .shape = { SHAPE(5, 256), SHAPE(7, 272), SHAPE(7, 2) } },
};
static const op_refusal quantized_linear_refusals[] = {
    { GD_ERR_SHAPE, { NUMBER, SHAPE(3, 32), SHAPE(3, 1) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE,
      { SHAPE(2, 33), SHAPE(3, 33), SHAPE(3, 1) },
      { GD_F32, GD_I64, GD_F32 },
      { 0 } },
    { GD_ERR_SHAPE,
      { SHAPE(2, 32), SHAPE(3, 64), SHAPE(3, 2) },
      { GD_F32, GD_I64, GD_F32 },
      { 0 } },
    { GD_ERR_SHAPE,
      { SHAPE(2, 64), SHAPE(3, 64), SHAPE(3, 1) },
      { GD_F32, GD_I64, GD_F32 },
      { 0 } },
    { GD_ERR_SHAPE,
      { SHAPE(2, 64), SHAPE(3, 64), SHAPE(4, 2) },
      { GD_F32, GD_I64, GD_F32 },
      { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 32), SHAPE(32), SHAPE(1) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
};
/* Weights are any i8, or any u8 where there are fewer bytes than x has numbers in a row. */
static gd_tensor *product_in_blocks(gd_tensor *x, gd_tensor *y, gd_tensor *z)
{
    const gd_shape rows = gd_tensor_shape(x), weights = gd_tensor_shape(y);
    const bool four_bits = rows.rank > 0 && weights.rank > 0 &&
                           weights.dim[weights.rank - 1] < rows.dim[rows.rank - 1];
    gd_tensor *values = four_bits ? gd_cast(gd_add_scalar(y, 128), GD_U8) : gd_cast(y, GD_I8);
    return gd_quantized_linear(x, values, gd_cast(z, GD_F32));
}

OP(quantized_linear, 3, E | OP_FLOATS_ONLY, RESULT_SAME, 0, product_in_blocks(x, y, z),
   VALUES(-4, 4), { -128, 128, OPERAND_INDEX }, VALUES(0.001, 0.02))
