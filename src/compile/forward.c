/* compile/forward.c: where a value is computed only to be assigned, it is computed in the target
 * itself and the copy is dropped. Allowed when the target's old contents are not read after that
 * point; an elementwise op that reads them at the same place it writes may do so. */
#include "compile/passes.h"

/* Whether value i's memory is the given storage, as an external. */
static bool lies_in(const gd_ir *ir, int32_t i, const gd_storage *storage)
{
    const gd_ir_value *root = &ir->values[ir->values[i].root];
    return root->kind == GD_IR_EXTERNAL && root->external->storage == storage;
}

/* The op `at` reads old contents only where it writes: elementwise, through the target's own
 * contiguous layout. */
static bool reads_in_place(const gd_ir *ir, const gd_ir_value *v, const gd_storage *storage)
{
    for (int k = 0; k < v->n; k++) {
        if (!lies_in(ir, v->in[k], storage))
            continue;
        const gd_layout *layout = &ir->values[v->in[k]].layout;
        bool elementwise = (v->op->flags & GD_OP_ELEMENTWISE) || v->op->id == GD_OP_fused;
        if (!elementwise || !gd_layout_same_shape(layout, &v->layout) ||
            !gd_layout_is_contiguous(layout) || layout->dtype != v->layout.dtype ||
            gd_ir_is_view(&ir->values[v->in[k]]))
            return false;
    }
    return true;
}

static bool can_forward(const gd_ir *ir, int32_t assign)
{
    const gd_ir_value *a = &ir->values[assign];
    const gd_ir_value *target = &ir->values[a->in[0]], *v = &ir->values[a->in[1]];
    const gd_storage *storage = target->external->storage;
    if (v->kind != GD_IR_OP || gd_ir_is_view(v) || gd_ir_is_effect(v) || v->is_output ||
        v->is_constant || v->external || !gd_layout_is_contiguous(&target->layout))
        return false;
    if (!reads_in_place(ir, v, storage))
        return false;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *w = &ir->values[i];
        if (w->kind != GD_IR_OP || (int32_t)i == assign)
            continue;
        if (gd_ir_is_effect(w) && lies_in(ir, w->in[0], storage))
            return false; /* assigned more than once */
        if (w->external && w->external->storage == storage)
            return false; /* something else is made there already */
        if ((int32_t)i <= a->in[1])
            continue;
        for (int k = 0; k < w->n; k++)
            if (lies_in(ir, w->in[k], storage) &&
                ir->values[ir->values[w->in[k]].root].version <= target->version)
                return false; /* old contents are read later */
    }
    return true;
}

gd_status gd_pass_forward(gd_ir *ir, int *changes)
{
    for (size_t i = 0; i < ir->count; i++) {
        gd_ir_value *a = &ir->values[i];
        if (!gd_ir_is_effect(a) || !can_forward(ir, (int32_t)i))
            continue;
        ir->values[a->in[1]].external = ir->values[a->in[0]].external;
        a->kind = GD_IR_DEAD;
        ++*changes;
    }
    return GD_OK;
}
