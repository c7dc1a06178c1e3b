/* compile/forward.c: where a value is computed only to be assigned, it is computed in the target
 * itself and the copy is dropped. Allowed when the target's old contents are not read after that
 * point; an elementwise op that reads them at the same place it writes may do so. May not touch a
 * storage that is assigned to more than once. */
#include "compile/passes.h"

#include "base/memory.h"
#include "compile/group.h"

/* What is known of the storage of externals, by its number. */
typedef struct target_facts {
    int32_t assignments;
    int32_t last_read; /* of its contents from before all assignments */
    bool is_taken;     /* a value is made there already */
} target_facts;

typedef struct forwarding {
    gd_ir *ir;
    int32_t *number; /* of the storage a value lies in, as an external or a view of one; -1: none */
    target_facts *targets;
} forwarding;

static void number_storages(forwarding *f)
{
    gd_ir *ir = f->ir;
    uint64_t generation = ++ir->context->generation;
    int32_t count = 0;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *root = &ir->values[ir->values[i].root];
        f->number[i] = -1;
        if (root->kind != GD_IR_EXTERNAL)
            continue;
        gd_storage *storage = root->external->storage;
        if (storage->mark != generation) {
            storage->mark = generation;
            storage->trace_version = count;
            f->targets[count++] = (target_facts){ .last_read = -1 };
        }
        f->number[i] = storage->trace_version;
    }
}

static void note_uses(forwarding *f)
{
    const gd_ir *ir = f->ir;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP)
            continue;
        bool is_effect = gd_ir_is_effect(v);
        if (is_effect)
            f->targets[f->number[v->in[0]]].assignments++;
        for (int k = is_effect; k < v->n; k++)
            if (f->number[v->in[k]] >= 0 && ir->values[ir->values[v->in[k]].root].version == 0)
                f->targets[f->number[v->in[k]]].last_read = (int32_t)i;
    }
}

/* What computes value v reads the target's old contents only where it writes, through
 * the target's own contiguous layout. */
static bool reads_in_place(const forwarding *f, const gd_ir_value *v, int32_t storage)
{
    const gd_ir *ir = f->ir;
    const gd_ir_value *op = gd_ir_is_part(v) ? &ir->values[v->in[0]] : v;
    for (int k = 0; k < op->n; k++) {
        const gd_ir_value *operand = &ir->values[op->in[k]];
        if (f->number[op->in[k]] != storage)
            continue;
        if (!gd_ir_may_overwrite(op, v, k) || !gd_layout_same_shape(&operand->layout, &v->layout) ||
            !gd_layout_is_contiguous(&operand->layout) ||
            operand->layout.dtype != v->layout.dtype || gd_ir_is_view(operand))
            return false;
        if (gd_ir_is_part(v) && gd_group_reads_behind(op, v, k))
            return false;
    }
    return true;
}

static bool can_forward(const forwarding *f, const gd_ir_value *a)
{
    const gd_ir *ir = f->ir;
    const gd_ir_value *target = &ir->values[a->in[0]], *v = &ir->values[a->in[1]];
    const target_facts *facts = &f->targets[f->number[a->in[0]]];
    if (v->kind != GD_IR_OP || gd_ir_is_view(v) || gd_ir_is_effect(v) || v->is_output ||
        v->is_constant || v->external || !gd_layout_is_contiguous(&target->layout))
        return false;
    return facts->assignments == 1 && !facts->is_taken && facts->last_read <= a->in[1] &&
           reads_in_place(f, v, f->number[a->in[0]]);
}

gd_status gd_pass_forward(gd_ir *ir, int *changes)
{
    forwarding f = { .ir = ir,
                     .number = gd_alloc(sizeof(int32_t) * (ir->count + 1)),
                     .targets = gd_alloc(sizeof(target_facts) * (ir->count + 1)) };
    gd_status status = f.number && f.targets ? GD_OK : GD_ERR_MEMORY;
    if (status == GD_OK) {
        number_storages(&f);
        note_uses(&f);
        for (size_t i = 0; i < ir->count; i++) {
            gd_ir_value *a = &ir->values[i];
            if (!gd_ir_is_effect(a) || !can_forward(&f, a))
                continue;
            ir->values[a->in[1]].external = ir->values[a->in[0]].external;
            f.targets[f.number[a->in[0]]].is_taken = true;
            a->kind = GD_IR_DEAD;
            ++*changes;
        }
    }
    gd_free(f.number);
    gd_free(f.targets);
    return status;
}
