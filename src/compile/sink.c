/* compile/sink.c: assignments move down to where the new contents are first needed, or to the end.
 * A body that updates a moment, assigns it and goes on to use the value then leaves nothing between
 * the ops of its update, and `fuse` makes one pass over memory of them; `forward` removes the
 * assignment, as a rule.
 *
 * May move assignments of an elementwise op's own value only, since that cannot change on the way;
 * and not past an op that reads the storage, nor past another assignment to it. */
#include "compile/passes.h"

#include "base/memory.h"

static gd_storage *storage_of(const gd_ir *ir, int32_t value)
{
    const gd_ir_value *root = &ir->values[ir->values[value].root];
    return root->kind == GD_IR_EXTERNAL ? root->external->storage : NULL;
}

static bool may_sink(const gd_ir *ir, const gd_ir_value *v)
{
    const gd_ir_value *value = &ir->values[v->in[1]];
    return value->kind == GD_IR_OP && (value->op->flags & GD_OP_ELEMENTWISE) && !value->is_constant;
}

/* before[i], for an assignment: the op it goes before, `count` for the end; else i. How many move.
 * A storage's mark is the walk's generation where its trace_version is the next op that reads or
 * writes it. */
static int find_places(gd_ir *ir, int32_t *before)
{
    uint64_t generation = ++ir->context->generation;
    int moved = 0;
    for (int32_t i = (int32_t)ir->count; i-- > 0;) {
        const gd_ir_value *v = &ir->values[i];
        before[i] = i;
        if (v->kind != GD_IR_OP)
            continue;
        if (gd_ir_is_effect(v) && may_sink(ir, v)) {
            const gd_storage *target = storage_of(ir, v->in[0]);
            before[i] = target->mark == generation ? target->trace_version : (int32_t)ir->count;
            moved += before[i] > i + 1;
        }
        for (int k = 0; k < v->n; k++) {
            gd_storage *storage = storage_of(ir, v->in[k]);
            if (storage) {
                storage->mark = generation;
                storage->trace_version = before[i];
            }
        }
    }
    return moved;
}

/* Room for [ir->count] values, and as many lists: of what goes before each op, and at the end. */
static gd_status move(gd_ir *ir, const int32_t *before, int32_t *order, int32_t *first,
                      int32_t *next)
{
    int32_t count = (int32_t)ir->count;
    size_t n = 0;
    for (int32_t i = 0; i <= count; i++)
        first[i] = -1;
    for (int32_t i = count; i-- > 0;)
        if (before[i] != i) {
            next[i] = first[before[i]];
            first[before[i]] = i;
        }
    for (int32_t i = 0; i <= count; i++) {
        for (int32_t sunk = first[i]; sunk >= 0; sunk = next[sunk])
            order[n++] = sunk;
        if (i < count && before[i] == i && ir->values[i].kind != GD_IR_DEAD)
            order[n++] = i;
    }
    return gd_ir_reorder(ir, order, n);
}

gd_status gd_pass_sink(gd_ir *ir, int *changes)
{
    size_t count = ir->count + 1;
    int32_t *room = gd_alloc(4 * count * sizeof *room);
    if (!room)
        return GD_ERR_MEMORY;
    int moved = find_places(ir, room);
    gd_status status = GD_OK;
    if (moved > 0)
        status = move(ir, room, room + count, room + 2 * count, room + 3 * count);
    *changes += moved;
    gd_free(room);
    return status;
}
