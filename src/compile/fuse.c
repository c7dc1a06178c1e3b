/* compile/fuse.c: fusion of elementwise groups. A group ends in one op, its last. It takes in ops
 * above, of its last op's shape, whose other readers come below it; what those read becomes a
 * further result. Then it takes in neighbours, ops that read what the group reads, so that this is
 * read once. The group becomes one `fused` op, which runs the same formulas in the same order on
 * tiles that stay in the L1 cache: one pass over memory, the same bits.
 *
 * May move an elementwise op down to its group; not past an effect that changes what it reads, and
 * not past a reader. Start at gd_pass_fuse. */
#include "compile/passes.h"

#include <string.h>

#include "base/memory.h"

enum {
    /* A value that is kept for others and ends the life of two operands or more is moved at most so
     * many places: further, its operands would take more memory for longer than it saves. */
    NEAR = 12,
};

typedef struct group {
    int32_t members[GD_FUSED_MAX_INSTRUCTIONS]; /* values, unordered; [0] is the last op */
    int n_members;
    int32_t inputs[GD_FUSED_MAX_INPUTS];
    int n_inputs;
} group;

typedef struct fusion {
    gd_ir *ir;
    gd_ir_users users;
    int32_t *until;    /* see gd_ir_find_assignments */
    int32_t *position; /* of each op: its own number, or that of the group it is in */
    group g;
} fusion;

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

/* How often others than the group's ops read a value; -1: one of them before the group's end. */
static int readers_outside(const fusion *f, int32_t value)
{
    int readers = f->ir->values[value].is_output;
    for (int32_t u = f->users.first[value]; u < f->users.first[value + 1]; u++) {
        int32_t user = f->users.op[u];
        if (is_member(&f->g, user))
            continue;
        if (f->position[user] <= f->g.members[0])
            return -1;
        readers++;
    }
    return readers;
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

/* Whether moving v, which is kept for others, down to the group would let operands live on that die
 * where it is now. */
static bool is_costly(const fusion *f, int32_t value)
{
    const gd_ir_value *v = &f->ir->values[value];
    if (f->g.members[0] - value <= NEAR)
        return false;
    int dying = 0;
    for (int k = 0; k < v->n; k++) {
        const gd_ir_value *operand = &f->ir->values[v->in[k]];
        int32_t end = f->users.first[v->in[k] + 1];
        dying += operand->kind == GD_IR_OP && gd_layout_same_shape(&operand->layout, &v->layout) &&
                 end > 0 && f->position[f->users.op[end - 1]] <= value;
    }
    return dying > 1;
}

/* Results of the group besides its last. */
static int count_kept(const fusion *f)
{
    int kept = 0;
    for (int i = 1; i < f->g.n_members; i++)
        kept += readers_outside(f, f->g.members[i]) > 0;
    return kept;
}

/* Take in an op if that is allowed. */
static bool take_in(fusion *f, int32_t candidate)
{
    const gd_ir *ir = f->ir;
    group *g = &f->g;
    const gd_ir_value *v = &ir->values[candidate];
    if (g->n_members == GD_FUSED_MAX_INSTRUCTIONS || !can_fuse(v) || is_member(g, candidate) ||
        candidate > g->members[0] || f->position[candidate] != candidate ||
        !gd_layout_same_shape(&v->layout, &ir->values[g->members[0]].layout))
        return false;
    int outside = readers_outside(f, candidate);
    if (outside < 0 || (outside > 0 && is_costly(f, candidate)) ||
        !gd_ir_may_sink(ir, f->until, v, g->members[0]))
        return false;
    g->members[g->n_members++] = candidate;
    if (collect_inputs(ir, g) && count_kept(f) <= GD_FUSED_MAX_MORE)
        return true;
    g->n_members--;
    (void)collect_inputs(ir, g);
    return false;
}

/* Take in an op that makes what the group reads. */
static bool absorb(fusion *f)
{
    for (int i = 0; i < f->g.n_inputs; i++)
        if (take_in(f, f->g.inputs[i]))
            return true;
    return false;
}

/* Take in an op that reads what the group reads. */
static bool join(fusion *f)
{
    for (int i = 0; i < f->g.n_inputs; i++) {
        int32_t input = f->g.inputs[i];
        if (!gd_layout_same_shape(&f->ir->values[input].layout,
                                  &f->ir->values[f->g.members[0]].layout))
            continue;
        for (int32_t u = f->users.first[input]; u < f->users.first[input + 1]; u++) {
            int32_t user = f->users.op[u];
            if (user < f->g.members[0] && f->g.members[0] - user <= NEAR && take_in(f, user))
                return true;
        }
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

/* Value `member` becomes further result `index` of the group that ends in `last`. */
static gd_status make_part(gd_ir *ir, int32_t member, int32_t last, int32_t index)
{
    gd_ir_value *v = &ir->values[member];
    gd_part_attr *attr = gd_arena_push_zero(&ir->memory, sizeof *attr, 8);
    int32_t *in = gd_arena_push(&ir->memory, sizeof(int32_t), sizeof(int32_t));
    if (!attr || !in)
        return GD_ERR_MEMORY;
    attr->index = index;
    attr->dtype = (int32_t)v->layout.dtype;
    *in = last;
    v->op = gd_op_row(GD_OP_part);
    v->attr = attr;
    v->in = in;
    v->n = 1;
    return GD_OK;
}

static gd_status make_group(fusion *f, int *changes)
{
    gd_ir *ir = f->ir;
    group *g = &f->g;
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
    bool kept[GD_FUSED_MAX_INSTRUCTIONS] = { false };
    for (int i = 0; i < g->n_members; i++) {
        kept[i] = ir->values[g->members[i]].is_output;
        for (int32_t u = f->users.first[g->members[i]]; u < f->users.first[g->members[i] + 1]; u++)
            kept[i] |= !is_member(g, f->users.op[u]);
    }
    for (int i = 0; i < g->n_members - 1; i++) {
        f->position[g->members[i]] = last;
        if (!kept[i])
            ir->values[g->members[i]].kind = GD_IR_DEAD;
        else if (make_part(ir, g->members[i], last, attr->n_more) == GD_OK)
            attr->more[attr->n_more++] = (int16_t)i;
        else
            return GD_ERR_MEMORY;
    }
    gd_ir_value *v = &ir->values[last];
    v->op = gd_op_row(GD_OP_fused);
    v->attr = attr;
    v->in = in;
    v->n = g->n_inputs;
    *changes += g->n_members - 1;
    return GD_OK;
}

static gd_status find_groups(fusion *f, int *changes)
{
    for (int32_t i = (int32_t)f->ir->count; i-- > 0;) {
        if (!can_fuse(&f->ir->values[i]))
            continue;
        f->g.members[0] = i;
        f->g.n_members = 1;
        if (!collect_inputs(f->ir, &f->g))
            continue;
        while (absorb(f) || join(f))
            ;
        if (f->g.n_members > 1 && make_group(f, changes) != GD_OK)
            return GD_ERR_MEMORY;
    }
    return GD_OK;
}

/* Put the parts behind their groups and leave out what is dead. */
static gd_status put_in_order(gd_ir *ir)
{
    int32_t *order = gd_alloc(sizeof(int32_t) * (ir->count + 1));
    int32_t *next = gd_alloc(sizeof(int32_t) * (ir->count + 1)); /* part of the same group */
    int32_t *first = gd_alloc(sizeof(int32_t) * (ir->count + 1));
    gd_status status = GD_ERR_MEMORY;
    if (order && next && first) {
        size_t n = 0;
        for (size_t i = 0; i < ir->count; i++)
            first[i] = -1;
        for (int32_t i = (int32_t)ir->count; i-- > 0;)
            if (gd_ir_is_part(&ir->values[i])) {
                next[i] = first[ir->values[i].in[0]];
                first[ir->values[i].in[0]] = i;
            }
        for (int32_t i = 0; i < (int32_t)ir->count; i++) {
            if (ir->values[i].kind == GD_IR_DEAD || gd_ir_is_part(&ir->values[i]))
                continue;
            order[n++] = i;
            for (int32_t part = first[i]; part >= 0; part = next[part])
                order[n++] = part;
        }
        status = gd_ir_reorder(ir, order, n);
    }
    gd_free(order);
    gd_free(next);
    gd_free(first);
    return status;
}

gd_status gd_pass_fuse(gd_ir *ir, int *changes)
{
    if (!ir->context->device->kernel[GD_OP_fused])
        return GD_OK;
    fusion f = { .ir = ir,
                 .until = gd_alloc(sizeof(int32_t) * (ir->count + 1)),
                 .position = gd_alloc(sizeof(int32_t) * (ir->count + 1)) };
    gd_status status = f.until && f.position ? gd_ir_users_make(&f.users, ir) : GD_ERR_MEMORY;
    if (status == GD_OK) {
        gd_ir_find_assignments(ir, f.until);
        for (size_t i = 0; i < ir->count; i++)
            f.position[i] = (int32_t)i;
        status = find_groups(&f, changes);
    }
    gd_ir_users_free(&f.users);
    gd_free(f.until);
    gd_free(f.position);
    return status == GD_OK ? put_in_order(ir) : status;
}
