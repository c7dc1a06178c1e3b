/* ops/formulas.c: the table of formulas, made of the rows of elementwise.def. */
#include "ops/formulas.h"

enum { SAME, BOOL };
enum { FLOAT, WHOLE, NUMERIC, INTEGRAL, ALL, CHOOSE };

static const gd_op_formula formulas[GD_OP_ELEMENTWISE_COUNT] = {
#define GD_UNARY(name, types, result, formula, ...) \
    [GD_OP_##name] = { #formula, 1, result == BOOL, types == CHOOSE },
#define GD_BINARY(name, types, result, formula, ...) \
    [GD_OP_##name] = { #formula, 2, result == BOOL, types == CHOOSE },
#define GD_TERNARY(name, types, result, formula, ...) \
    [GD_OP_##name] = { #formula, 3, result == BOOL, types == CHOOSE },
#include "ops/elementwise.def"
};

const gd_op_formula *gd_op_formula_of(gd_op_id id)
{
    return &formulas[id];
}
