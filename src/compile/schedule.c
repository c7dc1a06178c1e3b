/* compile/schedule.c: order for lower peak memory. An op that frees more than it makes, such as a
 * parameter's update, which ends the life of the gradient, moves up to where all it needs is there;
 * so gradients need not wait for each other. The new order is kept only if less is alive at the
 * worst step.
 *
 * May move an op up only: not above what makes its operands, nor above a reader of old contents it
 * overwrites. May not move effects, nor what reads a tensor after an assignment to it. */
#include "compile/passes.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/memory.h"

/* What may be made early for others' sake: numbers, such as a learning rate. */
enum { SMALL = 64 };

typedef struct schedule {
    gd_ir *ir;
    int32_t *slot; /* of each value: the place it comes behind, its own number when it stays; -1:
                      first of all */
} schedule;

static bool lies_in_plan(const gd_ir_value *root)
{
    return root->kind == GD_IR_OP && !root->external && !root->is_constant && !root->is_output;
}

/* Bytes that end with op i: of operands nobody reads behind it, directly or through views. */
static size_t bytes_freed(const schedule *s, const int32_t *last_read, int32_t i)
{
    const gd_ir_value *v = &s->ir->values[i];
    size_t bytes = 0;
    for (int k = 0; k < v->n; k++) {
        int32_t root = s->ir->values[v->in[k]].root;
        bool again = false;
        for (int j = 0; j < k; j++)
            again |= s->ir->values[v->in[j]].root == root;
        if (!again && lies_in_plan(&s->ir->values[root]) && last_read[root] == i)
            bytes += gd_layout_bytes(&s->ir->values[root].layout);
    }
    return bytes;
}

/* Bytes of the plan's memory that op i and its parts make. */
static size_t bytes_made(const schedule *s, int32_t i)
{
    size_t bytes = 0;
    for (int32_t r = i; r <= i + gd_ir_parts_of(&s->ir->values[i]); r++)
        bytes += s->ir->values[r].external ? 0 : gd_layout_bytes(&s->ir->values[r].layout);
    return bytes;
}

static int32_t later(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The place op i may move up to; its own number where it may not move. */
static int32_t earliest(const schedule *s, const int32_t *readers_slot, int32_t i)
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
    for (int32_t r = i; r <= i + gd_ir_parts_of(v); r++)
        if (ir->values[r].external)
            slot = later(slot, readers_slot[ir->values[r].external->storage->trace_version]);
    return slot;
}

static void find_last_reads(const gd_ir *ir, int32_t *last_read)
{
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        last_read[i] = -1;
        if (v->kind == GD_IR_OP && !gd_ir_is_view(v))
            for (int k = 0; k < v->n; k++)
                last_read[ir->values[v->in[k]].root] = (int32_t)i;
    }
}

/* Number the storages of externals, in storage->trace_version. */
static int32_t number_storages(gd_ir *ir)
{
    uint64_t generation = ++ir->context->generation;
    int32_t count = 0;
    for (size_t i = 0; i < ir->count; i++) {
        gd_storage *storage = ir->values[i].external ? ir->values[i].external->storage : NULL;
        if (storage && storage->mark != generation) {
            storage->mark = generation;
            storage->trace_version = count++;
        }
    }
    return count;
}

/* Slots in program order; how many ops move up. readers_slot [storages]: of the last reader so far
 * of each storage's contents. */
static int choose_slots(schedule *s, const int32_t *last_read, int32_t *readers_slot)
{
    gd_ir *ir = s->ir;
    int moved = 0;
    for (int32_t i = 0; i < (int32_t)ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        bool is_there = (v->kind == GD_IR_EXTERNAL && v->version == 0) || v->is_constant;
        s->slot[i] = is_there ? -1 : i;
        if (v->kind != GD_IR_OP)
            continue;
        if (gd_ir_is_view(v) || gd_ir_is_part(v)) { /* go with what they belong to */
            s->slot[i] = s->slot[v->in[0]];
        } else if (!gd_ir_is_effect(v) && !v->is_constant) {
            size_t freed = bytes_freed(s, last_read, i), made = bytes_made(s, i);
            if (freed > made || made <= SMALL) {
                s->slot[i] = earliest(s, readers_slot, i);
                moved += s->slot[i] != i && s->slot[i] < i - 1;
            }
        }
        for (int k = 0; k < v->n; k++) {
            const gd_ir_value *root = &ir->values[ir->values[v->in[k]].root];
            if (root->kind == GD_IR_EXTERNAL) {
                int32_t *slot = &readers_slot[root->external->storage->trace_version];
                *slot = later(*slot, s->slot[i]);
            }
        }
    }
    return moved;
}

typedef struct place {
    int32_t slot, value;
} place;

static int by_slot(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->value < y->value ? -1 : 1;
}

/* Carry out the order, or undo it where it does not pay. Room for [ir->count] each, twice that for
 * order. */
static gd_status try_order(gd_ir *ir, const int32_t *slot, place *places, int32_t *order,
                           int32_t *back, bool *pays)
{
    size_t before, after, n = 0;
    if (gd_memory_live(ir, &before) != GD_OK)
        return GD_ERR_MEMORY;
    for (int32_t i = 0; i < (int32_t)ir->count; i++)
        if (ir->values[i].kind != GD_IR_DEAD)
            places[n++] = (place){ slot[i], i };
    qsort(places, n, sizeof *places, by_slot);
    int32_t *now = order + ir->count; /* of each value, its number in the new order */
    for (size_t i = 0; i < n; i++) {
        order[i] = places[i].value;
        now[places[i].value] = (int32_t)i;
    }
    size_t kept = 0;
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind != GD_IR_DEAD)
            back[kept++] = now[i];
    if (gd_ir_reorder(ir, order, n) != GD_OK || gd_memory_live(ir, &after) != GD_OK)
        return GD_ERR_MEMORY;
    *pays = after < before;
    return *pays ? GD_OK : gd_ir_reorder(ir, back, n);
}

gd_status gd_pass_schedule(gd_ir *ir, int *changes)
{
    size_t count = ir->count + 1;
    int32_t *slot = gd_alloc(count * sizeof(int32_t)), *last = gd_alloc(count * sizeof(int32_t));
    int32_t *order = gd_alloc(2 * count * sizeof(int32_t)),
            *back = gd_alloc(count * sizeof(int32_t));
    place *places = gd_alloc(count * sizeof(place));
    gd_status status = slot && last && order && back && places ? GD_OK : GD_ERR_MEMORY;
    if (status == GD_OK) {
        int32_t storages = number_storages(ir);
        for (int32_t i = 0; i < storages; i++)
            order[i] = -1; /* as room for the readers' slots */
        find_last_reads(ir, last);
        schedule s = { ir, slot };
        int moved = choose_slots(&s, last, order);
        bool pays = false;
        if (moved > 0)
            status = try_order(ir, slot, places, order, back, &pays);
        *changes += pays ? moved : 0;
    }
    gd_free(slot);
    gd_free(last);
    gd_free(order);
    gd_free(back);
    gd_free(places);
    return status;
}
