/* compile/forward.c: where a value is computed only to be assigned, it is computed in the target
 * itself and the copy is dropped. Allowed when the target's old contents are not read after that
 * point; an elementwise op that reads them at the same place it writes may do so. May not touch a
 * storage that is assigned to more than once. */
#include "compile/passes.h"

#include "compile/group.h"

/* What is known of the memory of a tensor outside, by its number. */
typedef struct target_facts {
    int32_t assignments;
    int32_t last_read; /* of its contents from before all assignments */
    bool is_taken;     /* a value is made there already */
} target_facts;

static void note_uses(const gd_ir *ir, target_facts *targets)
{
    for (int32_t i = 0; i < ir->memory_count; i++)
        targets[i].last_read = -1;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP)
            continue;
        bool is_effect = gd_ir_is_effect(v);
        if (is_effect)
            targets[gd_ir_memory(ir, v->in[0])].assignments++;
        for (int k = is_effect; k < v->n; k++) {
            const gd_ir_value *root = &ir->values[ir->values[v->in[k]].root];
            if (root->kind == GD_IR_EXTERNAL && root->version == 0)
                targets[root->memory].last_read = (int32_t)i;
        }
    }
}

/* What computes value v reads the target's old contents only where it writes, through
 * the target's own contiguous layout. */
static bool reads_in_place(const gd_ir *ir, const gd_ir_value *v, int32_t memory)
{
    const gd_ir_value *op = gd_ir_is_extra(v) ? &ir->values[v->in[0]] : v;
    for (int k = 0; k < op->n; k++) {
        const gd_ir_value *operand = &ir->values[op->in[k]];
        if (gd_ir_memory(ir, op->in[k]) != memory)
            continue;
        if (!gd_ir_may_overwrite(op, v, k) || !gd_layout_same_shape(&operand->layout, &v->layout) ||
            !gd_layout_is_contiguous(&operand->layout) ||
            operand->layout.dtype != v->layout.dtype || gd_ir_is_view(operand))
            return false;
        if (gd_ir_is_extra(v) && gd_group_reads_behind(op, v, k))
            return false;
    }
    return true;
}

static bool can_forward(const gd_ir *ir, const target_facts *targets, const gd_ir_value *a)
{
    const gd_ir_value *target = &ir->values[a->in[0]], *v = &ir->values[a->in[1]];
    const target_facts *facts = &targets[target->memory];
    if (v->kind != GD_IR_OP || gd_ir_is_view(v) || gd_ir_is_effect(v) || v->is_output ||
        v->is_constant || v->external || !gd_layout_is_contiguous(&target->layout))
        return false;
    return facts->assignments == 1 && !facts->is_taken && facts->last_read <= a->in[1] &&
           reads_in_place(ir, v, target->memory);
}

gd_status gd_pass_forward(gd_ir *ir, gd_arena *scratch, int *changes)
{
    target_facts *targets = gd_arena_array(scratch, (size_t)ir->memory_count + 1, sizeof *targets);
    if (!targets)
        return GD_ERR_MEMORY;
    note_uses(ir, targets);
    for (size_t i = 0; i < ir->count; i++) {
        gd_ir_value *a = &ir->values[i];
        if (!gd_ir_is_effect(a) || !can_forward(ir, targets, a))
            continue;
        const gd_ir_value *target = &ir->values[a->in[0]];
        gd_ir_value *v = &ir->values[a->in[1]];
        v->external = target->external;
        v->memory = target->memory;
        targets[target->memory].is_taken = true;
        a->kind = GD_IR_DEAD;
        ++*changes;
    }
    return GD_OK;
}
