/* compile/sink.c: assignments move down to where the new contents are first needed, or to the end.
 * A body that updates a moment, assigns it and goes on to use the value then leaves nothing between
 * the ops of its update, and `fuse` makes one pass over memory of them; `forward` removes the
 * assignment, as a rule. Numbers that no op needs, such as the loss, move to the end, so that what
 * they are made of may be a result of a group that the gradient ends. (`schedule` moves them up
 * again where that takes less memory.)
 *
 * May move assignments of an elementwise op's own value only, since that cannot change on the way;
 * and not past an op that reads the storage, nor past another assignment to it. Of numbers, only
 * elementwise ops and reductions over values that ops made. */
#include "compile/passes.h"

static bool may_sink(const gd_ir *ir, const gd_ir_value *v)
{
    const gd_ir_value *value = &ir->values[v->in[1]];
    return value->kind == GD_IR_OP && (value->op->flags & GD_OP_ELEMENTWISE) && !value->is_constant;
}

/* Whether op `i`, whose readers all move to the end, makes a number and may move there, too. */
static bool is_last_number(const gd_ir *ir, int32_t i)
{
    const gd_ir_value *v = &ir->values[i];
    bool may = gd_layout_count(&v->layout) == 1 && !v->is_constant &&
               ((v->op->flags & GD_OP_ELEMENTWISE) || gd_fused_reduces(v->op->id));
    for (int k = 0; k < v->n; k++)
        may &= ir->values[ir->values[v->in[k]].root].kind == GD_IR_OP;
    return may;
}

/* before[i], for what moves: the op it goes before, `count` for the end; else i. How many move.
 * next_use [memories], all `count` to begin with: the next op that reads or writes each. is_read[i],
 * all false to begin with: by an op that does not move to the end. */
static int find_places(const gd_ir *ir, int32_t *before, int32_t *next_use, bool *is_read)
{
    const int32_t end = (int32_t)ir->count;
    bool all_end = true; /* so far, all move to the end */
    int moved = 0;
    for (int32_t i = end; i-- > 0;) {
        const gd_ir_value *v = &ir->values[i];
        before[i] = i;
        if (v->kind != GD_IR_OP)
            continue;
        if (gd_ir_is_effect(v) && may_sink(ir, v)) {
            before[i] = next_use[gd_ir_memory(ir, v->in[0])];
            moved += before[i] > i + 1;
        } else if (!is_read[i] && is_last_number(ir, i)) {
            before[i] = end;
            moved += !all_end;
        }
        all_end &= before[i] == end;
        for (int k = 0; k < v->n; k++) {
            const int32_t memory = gd_ir_memory(ir, v->in[k]);
            is_read[v->in[k]] |= before[i] < end;
            if (memory >= 0)
                next_use[memory] = before[i];
        }
    }
    return moved;
}

static gd_status move(gd_ir *ir, const int32_t *before, gd_arena *scratch)
{
    const int32_t count = (int32_t)ir->count;
    int32_t *order = gd_arena_array(scratch, ir->count + 1, sizeof *order);
    /* lists of what goes before each op, and at the end */
    int32_t *first = gd_arena_array(scratch, ir->count + 1, sizeof *first);
    int32_t *next = gd_arena_array(scratch, ir->count + 1, sizeof *next);
    if (!order || !first || !next)
        return GD_ERR_MEMORY;
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

gd_status gd_pass_sink(gd_ir *ir, gd_arena *scratch, int *changes)
{
    int32_t *before = gd_arena_array(scratch, ir->count + 1, sizeof *before);
    int32_t *next_use = gd_arena_array(scratch, (size_t)ir->memory_count + 1, sizeof *next_use);
    bool *is_read = gd_arena_array(scratch, ir->count + 1, sizeof *is_read);
    if (!before || !next_use || !is_read)
        return GD_ERR_MEMORY;
    for (int32_t i = 0; i < ir->memory_count; i++)
        next_use[i] = (int32_t)ir->count;
    const int moved = find_places(ir, before, next_use, is_read);
    *changes += moved;
    return moved > 0 ? move(ir, before, scratch) : GD_OK;
}
