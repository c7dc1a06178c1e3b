/* compile/fuse.c: fusion of elementwise groups. A group ends in one op; an op joins when everything
 * that reads it is in the group and its result has the group's shape. The group becomes one `fused`
 * op, which runs the same formulas in the same order on tiles that stay in the L1 cache: one pass
 * over memory, the same bits. An op may only move down past effects that change nothing it reads.
 */
#include "compile/passes.h"

#include <string.h>

#include "base/memory.h"

typedef struct group {
    int32_t members[GD_FUSED_MAX_INSTRUCTIONS]; /* values, unordered; [0] is the last op */
    int n_members;
    int32_t inputs[GD_FUSED_MAX_INPUTS];
    int n_inputs;
} group;

static bool is_member(const group *g, int32_t value)
{
    for (int i = 0; i < g->n_members; i++)
        if (g->members[i] == value)
            return true;
    return false;
}

static bool can_fuse(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && ((v->op->flags & GD_OP_ELEMENTWISE) || v->op->id == GD_OP_cast) &&
           !v->is_constant;
}

/* How often the group's ops read a value. */
static int reads_in_group(const gd_ir *ir, const group *g, int32_t value)
{
    int reads = 0;
    for (int i = 0; i < g->n_members; i++) {
        const gd_ir_value *v = &ir->values[g->members[i]];
        for (int k = 0; k < v->n; k++)
            reads += v->in[k] == value;
    }
    return reads;
}

/* Whether an effect between `from` and `to` changes storage that v reads. */
static bool overtakes_effect(const gd_ir *ir, const gd_ir_value *v, int32_t from, int32_t to)
{
    bool reads_external = false;
    for (int k = 0; k < v->n; k++)
        reads_external |= ir->values[ir->values[v->in[k]].root].kind == GD_IR_EXTERNAL;
    for (int32_t i = from + 1; reads_external && i < to; i++) {
        if (!gd_ir_is_effect(&ir->values[i]))
            continue;
        const gd_storage *storage = ir->values[ir->values[i].in[0]].external->storage;
        for (int k = 0; k < v->n; k++) {
            const gd_ir_value *root = &ir->values[ir->values[v->in[k]].root];
            if (root->kind == GD_IR_EXTERNAL && root->external->storage == storage)
                return true;
        }
    }
    return false;
}

/* The group's inputs: what members read and is not a member. false: too many. */
static bool collect_inputs(const gd_ir *ir, group *g)
{
    g->n_inputs = 0;
    for (int i = 0; i < g->n_members; i++) {
        const gd_ir_value *v = &ir->values[g->members[i]];
        for (int k = 0; k < v->n; k++) {
            bool known = is_member(g, v->in[k]);
            for (int j = 0; j < g->n_inputs && !known; j++)
                known = g->inputs[j] == v->in[k];
            if (known)
                continue;
            if (g->n_inputs == GD_FUSED_MAX_INPUTS)
                return false;
            g->inputs[g->n_inputs++] = v->in[k];
        }
    }
    return true;
}

/* Add a producer the group may take; false when none is left. */
static bool absorb(const gd_ir *ir, group *g)
{
    const gd_ir_value *last = &ir->values[g->members[0]];
    for (int i = 0; i < g->n_inputs && g->n_members < GD_FUSED_MAX_INSTRUCTIONS; i++) {
        int32_t candidate = g->inputs[i];
        const gd_ir_value *v = &ir->values[candidate];
        if (!can_fuse(v) || v->is_output || !gd_layout_same_shape(&v->layout, &last->layout) ||
            v->users != reads_in_group(ir, g, candidate) ||
            overtakes_effect(ir, v, candidate, g->members[0]))
            continue;
        g->members[g->n_members++] = candidate;
        if (collect_inputs(ir, g))
            return true;
        g->n_members--;
        (void)collect_inputs(ir, g);
    }
    return false;
}

/* Number of a value within the group: inputs first, then instructions in order. */
static int16_t number_of(const group *g, int32_t value)
{
    for (int i = 0; i < g->n_inputs; i++)
        if (g->inputs[i] == value)
            return (int16_t)i;
    for (int i = 0; i < g->n_members; i++)
        if (g->members[i] == value)
            return (int16_t)(g->n_inputs + i);
    return -1;
}

static void describe(const gd_ir *ir, const group *g, gd_fused_attr *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->n_inputs = g->n_inputs;
    attr->n_instructions = g->n_members;
    for (int i = 0; i < g->n_members; i++) {
        const gd_ir_value *v = &ir->values[g->members[i]];
        gd_fused_instruction *instruction = &attr->instruction[i];
        instruction->op = (int16_t)v->op->id;
        instruction->dtype = (int16_t)v->layout.dtype;
        instruction->compute = (int16_t)ir->values[v->in[v->n - 1]].layout.dtype;
        for (int k = 0; k < v->n; k++)
            instruction->from[k] = number_of(g, v->in[k]);
    }
}

static gd_status make_group(gd_ir *ir, group *g, int *changes)
{
    int32_t last = g->members[0];
    /* Instructions in program order (insertion sort: groups are small). */
    for (int i = 1; i < g->n_members; i++)
        for (int k = i; k > 0 && g->members[k - 1] > g->members[k]; k--) {
            int32_t swap = g->members[k];
            g->members[k] = g->members[k - 1];
            g->members[k - 1] = swap;
        }
    gd_fused_attr *attr = gd_arena_push(&ir->memory, sizeof *attr, 8);
    int32_t *in = gd_arena_push(&ir->memory, sizeof g->inputs, sizeof(int32_t));
    if (!attr || !in)
        return GD_ERR_MEMORY;
    describe(ir, g, attr);
    memcpy(in, g->inputs, sizeof(int32_t) * (size_t)g->n_inputs);
    for (int i = 0; i < g->n_members; i++)
        if (g->members[i] != last)
            ir->values[g->members[i]].kind = GD_IR_DEAD;
    gd_ir_value *v = &ir->values[last];
    v->op = gd_op_row(GD_OP_fused);
    v->attr = attr;
    v->in = in;
    v->n = g->n_inputs;
    *changes += g->n_members - 1;
    return GD_OK;
}

gd_status gd_pass_fuse(gd_ir *ir, int *changes)
{
    if (!ir->context->device->kernel[GD_OP_fused])
        return GD_OK;
    gd_ir_count_users(ir);
    for (size_t i = ir->count; i-- > 0;) {
        if (!can_fuse(&ir->values[i]))
            continue;
        group g = { .members = { (int32_t)i }, .n_members = 1 };
        if (!collect_inputs(ir, &g))
            continue;
        while (absorb(ir, &g))
            ;
        if (g.n_members > 1 && make_group(ir, &g, changes) != GD_OK)
            return GD_ERR_MEMORY;
    }
    return GD_OK;
}
