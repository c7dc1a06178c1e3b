/* compile/schedule.c: order for lower peak memory. An op that frees more than it makes, such as a
 * parameter's update, which ends the life of the gradient, moves up to where all it needs is there;
 * so gradients need not wait for each other. The new order is kept only if less is alive at the
 * worst step.
 *
 * May move an op up only: not above what makes its operands, nor above a reader of old contents it
 * overwrites. May not move effects, nor what reads a tensor after an assignment to it. */
#include "compile/passes.h"

#include <stdlib.h>

#include "compile/memory.h"

/* What may be made early for others' sake: numbers, such as a learning rate. */
enum { SMALL = 64 };

typedef struct schedule {
    gd_ir *ir;
    int32_t *slot; /* of each value: the place it comes behind, its own number when it stays; -1:
                      first of all */
    int32_t *last_use;     /* see gd_ir_find_last_uses */
    int32_t *readers_slot; /* [memories] of the last reader so far of each one's contents */
} schedule;

/* Bytes that end with op i: of operands nobody reads behind it, directly or through views. */
static size_t bytes_freed(const schedule *s, int32_t i)
{
    const gd_ir_value *v = &s->ir->values[i];
    size_t bytes = 0;
    for (int k = 0; k < v->n; k++) {
        int32_t root = s->ir->values[v->in[k]].root;
        bool again = false;
        for (int j = 0; j < k; j++)
            again |= s->ir->values[v->in[j]].root == root;
        if (!again && gd_ir_is_temporary(&s->ir->values[root]) && s->last_use[root] == i)
            bytes += gd_layout_bytes(&s->ir->values[root].layout);
    }
    return bytes;
}

/* Bytes of the plan's memory that op i makes, extra results included. */
static size_t bytes_made(const schedule *s, int32_t i)
{
    size_t bytes = 0;
    for (int32_t r = i; r <= i + gd_ir_extra_count(&s->ir->values[i]); r++)
        bytes += s->ir->values[r].external ? 0 : gd_layout_bytes(&s->ir->values[r].layout);
    return bytes;
}

static int32_t later(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The place op i may move up to; its own number where it may not move. */
static int32_t earliest(const schedule *s, int32_t i)
{
    const gd_ir *ir = s->ir;
    const gd_ir_value *v = &ir->values[i];
    int32_t slot = -1;
    for (int k = 0; k < v->n; k++) {
        const gd_ir_value *root = &ir->values[ir->values[v->in[k]].root];
        if (root->kind == GD_IR_EXTERNAL && root->version > 0)
            return i;
        slot = later(slot, s->slot[v->in[k]]);
    }
    for (int32_t r = i; r <= i + gd_ir_extra_count(v); r++)
        if (ir->values[r].external)
            slot = later(slot, s->readers_slot[ir->values[r].memory]);
    return slot;
}

/* Slots in program order; how many ops move up. */
static int choose_slots(schedule *s)
{
    gd_ir *ir = s->ir;
    int moved = 0;
    for (int32_t i = 0; i < (int32_t)ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        bool is_there = (v->kind == GD_IR_EXTERNAL && v->version == 0) || v->is_constant;
        s->slot[i] = is_there ? -1 : i;
        if (v->kind != GD_IR_OP)
            continue;
        if (gd_ir_is_view(v) || gd_ir_is_extra(v)) { /* go with what they belong to */
            s->slot[i] = s->slot[v->in[0]];
        } else if (!gd_ir_is_effect(v) && !v->is_constant) {
            size_t freed = bytes_freed(s, i), made = bytes_made(s, i);
            if (freed > made || made <= SMALL) {
                s->slot[i] = earliest(s, i);
                moved += s->slot[i] != i && s->slot[i] < i - 1;
            }
        }
        for (int k = 0; k < v->n; k++) {
            const gd_ir_value *root = &ir->values[ir->values[v->in[k]].root];
            if (root->kind == GD_IR_EXTERNAL)
                s->readers_slot[root->memory] = later(s->readers_slot[root->memory], s->slot[i]);
        }
    }
    return moved;
}

typedef struct position {
    int32_t slot, value;
} position;

static int by_slot(const void *a, const void *b)
{
    const position *x = a, *y = b;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->value < y->value ? -1 : 1;
}

/* Carry out the order, or undo it where it does not pay. */
static gd_status try_order(const schedule *s, gd_arena *scratch, bool *pays)
{
    gd_ir *ir = s->ir;
    const size_t count = ir->count + 1;
    position *positions = gd_arena_array(scratch, count, sizeof *positions);
    int32_t *order = gd_arena_array(scratch, count, sizeof *order);
    int32_t *number = gd_arena_array(scratch, count, sizeof *number); /* in the new order */
    int32_t *back = gd_arena_array(scratch, count, sizeof *back); /* the old order, from the new */
    size_t before, after, n = 0, kept = 0;
    if (!positions || !order || !number || !back || gd_memory_live(ir, &before) != GD_OK)
        return GD_ERR_MEMORY;
    for (int32_t i = 0; i < (int32_t)ir->count; i++)
        if (ir->values[i].kind != GD_IR_DEAD)
            positions[n++] = (position){ s->slot[i], i };
    qsort(positions, n, sizeof *positions, by_slot);
    for (size_t i = 0; i < n; i++) {
        order[i] = positions[i].value;
        number[positions[i].value] = (int32_t)i;
    }
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind != GD_IR_DEAD)
            back[kept++] = number[i];
    if (gd_ir_reorder(ir, order, n) != GD_OK || gd_memory_live(ir, &after) != GD_OK)
        return GD_ERR_MEMORY;
    *pays = after < before;
    return *pays ? GD_OK : gd_ir_reorder(ir, back, n);
}

gd_status gd_pass_schedule(gd_ir *ir, gd_arena *scratch, int *changes)
{
    const size_t memories = (size_t)ir->memory_count;
    schedule s = { .ir = ir,
                   .slot = gd_arena_array(scratch, ir->count + 1, sizeof *s.slot),
                   .last_use = gd_arena_array(scratch, ir->count + 1, sizeof *s.last_use),
                   .readers_slot = gd_arena_array(scratch, memories + 1, sizeof *s.readers_slot) };
    if (!s.slot || !s.last_use || !s.readers_slot)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < memories; i++)
        s.readers_slot[i] = -1;
    gd_ir_find_last_uses(ir, s.last_use);
    const int moved = choose_slots(&s);
    bool pays = false;
    gd_status status = moved > 0 ? try_order(&s, scratch, &pays) : GD_OK;
    *changes += pays ? moved : 0;
    return status;
}
