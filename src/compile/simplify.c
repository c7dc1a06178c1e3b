/* compile/simplify.c: algebra that is exact in floating point. An op that gives one of its operands
 * back, bit for bit and for every value, is left out: x * 1, 1 * x, x / 1, x - 0 (but not x + 0,
 * which turns -0 into +0), x + -0, -(-x), relu(relu x), abs(abs x), a cast to a wider type and
 * back, a cast to the type it has.
 *
 * May not touch effects or results; only where the operand lies as the op's result would, and is
 * not overwritten later. (Reshapes of reshapes and transposed operands of products need no
 * rewriting: views have no kernels, and products read any strides.) */
#include "compile/passes.h"

#include <math.h>

/* Whether value i is one number everywhere, as `full` makes it. */
static bool is_number(const gd_ir *ir, int32_t i, double number)
{
    const gd_ir_value *v = &ir->values[ir->values[i].root];
    if (v->kind != GD_IR_OP || v->op->id != GD_OP_full || !gd_dtype_is_float(v->layout.dtype))
        return false;
    double value = ((const gd_full_attr *)v->attr)->value;
    return value == number && signbit(value) == signbit(number);
}

static bool makes(const gd_ir *ir, int32_t i, gd_op_id op)
{
    const gd_ir_value *v = &ir->values[i];
    return v->kind == GD_IR_OP && v->op->id == op;
}

/* Whether value i is a number n with x op n = x. */
static bool is_unit(const gd_ir *ir, const gd_op *op, int32_t i)
{
    return (op->flags & GD_OP_UNIT_ONE && is_number(ir, i, 1)) ||
           (op->flags & GD_OP_UNIT_ZERO && is_number(ir, i, 0)) ||
           (op->flags & GD_OP_UNIT_MINUS_ZERO && is_number(ir, i, -0.0));
}

/* The operand that a cast gives back: of a cast to the type it has, or back from a wider one. */
static int32_t same_as_cast(const gd_ir *ir, const gd_ir_value *v)
{
    const int32_t x = v->in[0];
    if (ir->values[x].layout.dtype == v->layout.dtype)
        return x;
    return makes(ir, x, GD_OP_cast) &&
                   ir->values[ir->values[x].in[0]].layout.dtype == v->layout.dtype &&
                   gd_dtype_holds(ir->values[x].layout.dtype, v->layout.dtype)
               ? ir->values[x].in[0]
               : -1;
}

/* The operand value v equals by a law of its op, or -1. */
static int32_t same_as(const gd_ir *ir, const gd_ir_value *v)
{
    const int32_t x = v->in[0];
    const unsigned laws = v->op->flags;
    if (v->op->id == GD_OP_cast)
        return same_as_cast(ir, v);
    if (v->n == 2 && is_unit(ir, v->op, v->in[1]))
        return x;
    if (v->n == 2 && laws & GD_OP_COMMUTES && is_unit(ir, v->op, x))
        return v->in[1];
    if (laws & GD_OP_IDEMPOTENT && makes(ir, x, v->op->id))
        return x;
    if (laws & GD_OP_INVOLUTION && makes(ir, x, v->op->id) && gd_dtype_is_float(v->layout.dtype))
        return ir->values[x].in[0];
    return -1;
}

/* Whether x, a view perhaps, may be read in v's place: it lies alike, in memory that keeps its
 * contents. */
static bool may_stand_for(const gd_ir *ir, const int32_t *overwritten_at, int32_t x,
                          const gd_ir_value *v)
{
    const gd_ir_value *w = &ir->values[x];
    if (overwritten_at[w->root] != INT32_MAX || w->layout.dtype != v->layout.dtype ||
        w->layout.offset != 0 || !gd_layout_same_shape(&w->layout, &v->layout))
        return false;
    for (int a = 0; a < v->layout.rank; a++)
        if (w->layout.stride[a] != v->layout.stride[a])
            return false;
    return w->kind != GD_IR_OP || !gd_ir_is_effect(w);
}

gd_status gd_pass_simplify(gd_ir *ir, gd_arena *scratch, int *changes)
{
    int32_t *replaced_by = gd_arena_array(scratch, ir->count + 1, sizeof *replaced_by);
    const int32_t *overwritten_at = gd_ir_find_assignments(ir, scratch);
    if (!replaced_by || !overwritten_at)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < ir->count; i++) {
        gd_ir_value *v = &ir->values[i];
        replaced_by[i] = (int32_t)i;
        if (v->kind != GD_IR_OP)
            continue;
        gd_ir_rename(v, replaced_by);
        if (gd_ir_is_view(v)) /* of what is a view itself, perhaps */
            v->root = ir->values[v->in[0]].root;
        const bool may_go = !gd_ir_is_effect(v) && !v->is_output && v->n > 0;
        const int32_t x = may_go ? same_as(ir, v) : -1;
        if (x < 0 || !may_stand_for(ir, overwritten_at, x, v))
            continue;
        replaced_by[i] = x;
        v->kind = GD_IR_DEAD;
        ++*changes;
    }
    gd_ir_replace(ir, replaced_by);
    return GD_OK;
}
