/* compile/fuse.c: fusion of elementwise groups, and of reductions along rows with what feeds them
 * and what reads them. A group ends in one op, its last. It takes in ops above, of its last op's
 * shape, whose other readers come below it; what those read becomes an extra result. Where readers
 * come before its end, as the new parameter does that is computed of a moment before the moment is
 * rounded, it takes those in as well. Then it takes in neighbours, ops that read what the group
 * reads, so that this is read once. The group becomes one `fused` op, which runs the same formulas
 * in the same order on tiles that stay in the L1 cache: one pass over memory, the same bits.
 *
 * With the first reduction it takes in, the group's shape is cut into rows (rows.h): from then on
 * it may hold ops on that shape, reductions of the same rows, and ops on one number a row, such as
 * the mean. Tiles are then whole rows.
 *
 * May move an op down to its group; not past an effect that changes what it reads, and not past a
 * reader. Views of what a group makes go with it. Start at gd_pass_fuse. */
#include "compile/passes.h"

#include <string.h>

#include "compile/rows.h"

enum {
    STEPS_ALONG = 4, /* ops above one that moves, and for it alone, do not count as its operands */
    /* From an op on one number a row up to the reduction that says so. */
    UP_TO_ROWS = 6,
};

typedef struct group {
    int32_t last;                               /* the op the group ends in */
    int32_t members[GD_FUSED_MAX_INSTRUCTIONS]; /* values, that one included, unordered */
    int n_members;
    gd_rows rows;
    int32_t inputs[GD_FUSED_MAX_INPUTS];
    bool is_outer[GD_FUSED_MAX_INPUTS]; /* aligned with the axes before the rows */
    int n_inputs;
} group;

typedef struct fusion {
    gd_ir *ir;
    const gd_device_limits *limits;
    gd_ir_users users;
    const int32_t *overwritten_at; /* see gd_ir_find_assignments */
    int32_t *position;             /* of each op: its own number, or that of the group it is in */
    group g;
    bool with_rows; /* groups may have reductions */
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

/* Whether member `op` reads member `made`, or views of it, place by place. */
static bool reads_in_place(const fusion *f, const gd_ir_value *op, int32_t made)
{
    const gd_ir_value *values = f->ir->values;
    gd_row_form form = gd_rows_form(&f->g.rows, &values[made].layout);
    for (int k = 0; k < op->n; k++)
        if (values[op->in[k]].root == made &&
            !gd_rows_reads(&f->g.rows, &values[op->in[k]].layout, form, op))
            return false;
    return true;
}

/* How often others than the group's ops read `value`, which is `made` or a view of it; -1: one of
 * them before the group's end, or a member reads it out of place. */
static int readers_of(const fusion *f, int32_t value, int32_t made)
{
    int readers = 0;
    for (int32_t u = f->users.first[value]; u < f->users.first[value + 1]; u++) {
        int32_t user = f->users.op[u];
        const gd_ir_value *v = &f->ir->values[user];
        if (gd_ir_is_view(v) && v->root == made) {
            int more = readers_of(f, user, made);
            if (more < 0)
                return -1;
            readers += more;
        } else if (is_member(&f->g, user)) {
            if (!reads_in_place(f, v, made))
                return -1;
        } else if (f->position[user] <= f->g.last) {
            return -1;
        } else {
            readers++;
        }
    }
    return readers;
}

static int readers_outside(const fusion *f, int32_t value)
{
    int readers = readers_of(f, value, value);
    return readers < 0 ? -1 : readers + f->ir->values[value].is_output;
}

/* Whether input `value` of a member is aligned with the axes before the rows. */
static bool is_outer_input(const fusion *f, const gd_ir_value *member, int32_t value)
{
    return !gd_fused_reduces(member->op->id) && f->ir->values[value].layout.rank > 0 &&
           gd_rows_form(&f->g.rows, &member->layout) == GD_FORM_OUTER;
}

/* Number of an operand within the group: inputs first, then instructions in order; -1: neither. */
static int16_t number_of(const fusion *f, const gd_ir_value *member, int32_t value)
{
    const group *g = &f->g;
    bool is_outer = is_outer_input(f, member, value);
    for (int i = 0; i < g->n_members; i++)
        if (g->members[i] == f->ir->values[value].root)
            return (int16_t)(g->n_inputs + i);
    for (int i = 0; i < g->n_inputs; i++)
        if (g->inputs[i] == value && g->is_outer[i] == is_outer)
            return (int16_t)i;
    return -1;
}

/* The group's inputs: what members read and is not a member. false: too many. */
static bool collect_inputs(fusion *f)
{
    group *g = &f->g;
    g->n_inputs = 0;
    for (int i = 0; i < g->n_members; i++) {
        const gd_ir_value *v = &f->ir->values[g->members[i]];
        for (int k = 0; k < v->n; k++) {
            if (number_of(f, v, v->in[k]) >= 0)
                continue;
            if (g->n_inputs == f->limits->group_inputs)
                return false;
            g->is_outer[g->n_inputs] = is_outer_input(f, v, v->in[k]);
            g->inputs[g->n_inputs++] = v->in[k];
        }
    }
    return true;
}

/* How many operands of the shape of op `value` die with it: its own, or those of ops above that are
 * for it alone and come along, up to `steps` of them in a line. */
static int count_dying(const fusion *f, int32_t value, int steps)
{
    const gd_ir_value *v = &f->ir->values[value];
    int dying = 0;
    for (int k = 0; k < v->n; k++) {
        const gd_ir_value *operand = &f->ir->values[v->in[k]];
        int32_t begin = f->users.first[v->in[k]], end = f->users.first[v->in[k] + 1];
        if (operand->kind != GD_IR_OP || !gd_layout_same_shape(&operand->layout, &v->layout) ||
            end == begin || f->position[f->users.op[end - 1]] > value)
            continue;
        bool comes_along = steps > 0 && end - begin == 1 && can_fuse(operand);
        dying += comes_along ? count_dying(f, v->in[k], steps - 1) : 1;
    }
    return dying;
}

/* Whether moving an op that is kept for others down to the group would let operands live on that
 * die where it is now: from a distance on, they take more memory for longer than it saves. */
static bool is_costly(const fusion *f, int32_t value)
{
    return f->g.last - value > f->limits->group_distance && count_dying(f, value, STEPS_ALONG) > 1;
}

/* Results of the group besides its last. */
static int count_kept(const fusion *f)
{
    int kept = 0;
    for (int i = 0; i < f->g.n_members; i++)
        kept += f->g.members[i] != f->g.last && readers_outside(f, f->g.members[i]) > 0;
    return kept;
}

/* Whether a reduction is so far up that its operand, which dies there, is better not read here. */
static bool is_far(const fusion *f, int32_t value)
{
    int32_t operand = f->ir->values[value].in[0], end = f->users.first[operand + 1];
    return f->g.last - value > f->limits->row_group_distance &&
           f->ir->values[operand].kind == GD_IR_OP && f->position[f->users.op[end - 1]] <= value;
}

/* Cut the group into the rows that op v reduces, where it has no rows yet. */
static bool take_rows(fusion *f, const gd_ir_value *v)
{
    group *g = &f->g;
    gd_rows rows;
    if (!f->with_rows || !gd_rows_of(f->ir, v, &rows))
        return false;
    if (g->rows.axes > 0)
        return rows.axes == g->rows.axes && gd_layout_same_shape(rows.whole, g->rows.whole);
    for (int i = 0; i < g->n_members; i++)
        if (gd_rows_form(&rows, &f->ir->values[g->members[i]].layout) == GD_FORM_NONE)
            return false;
    g->rows = rows;
    return true;
}

/* Cut the group into the rows of a reduction that `value` is made of, by ops on one number a row.
 */
static bool take_rows_of(fusion *f, int32_t value, int steps)
{
    const gd_ir_value *v = &f->ir->values[f->ir->values[value].root];
    if (v->kind != GD_IR_OP || steps == 0 || gd_layout_same_shape(&v->layout, f->g.rows.whole))
        return false;
    if (gd_fused_reduces(v->op->id))
        return take_rows(f, v);
    for (int k = 0; k < v->n && can_fuse(v); k++)
        if (take_rows_of(f, v->in[k], steps - 1))
            return true;
    return false;
}

/* Whether op `candidate` may be in the group, as far as it alone is concerned. */
static bool is_candidate(fusion *f, int32_t candidate)
{
    const group *g = &f->g;
    const gd_ir_value *v = &f->ir->values[candidate];
    int most = g->rows.axes > 0 ? f->limits->row_group_instructions : f->limits->group_instructions;
    if (g->n_members == most || is_member(g, candidate) || candidate > g->last ||
        f->position[candidate] != candidate ||
        !gd_ir_may_sink(f->ir, f->overwritten_at, v, g->last))
        return false;
    if (v->kind == GD_IR_OP && gd_fused_reduces(v->op->id))
        return !is_far(f, candidate) && take_rows(f, v);
    if (!can_fuse(v))
        return false;
    if (gd_rows_form(&g->rows, &v->layout) == GD_FORM_NONE && g->rows.axes == 0)
        (void)take_rows_of(f, candidate, UP_TO_ROWS);
    return gd_rows_form(&g->rows, &v->layout) != GD_FORM_NONE;
}

static bool add_with_readers(fusion *f, int32_t candidate);

/* Make members of what reads `value`, which is `made` or a view of it, before the group's end. */
static bool add_readers(fusion *f, int32_t value, int32_t made)
{
    bool may = true;
    for (int32_t u = f->users.first[value]; may && u < f->users.first[value + 1]; u++) {
        const int32_t user = f->users.op[u];
        const gd_ir_value *v = &f->ir->values[user];
        if (gd_ir_is_view(v) && v->root == made)
            may = add_readers(f, user, made);
        else if (!is_member(&f->g, user) && f->position[user] <= f->g.last)
            may = add_with_readers(f, user);
    }
    return may;
}

static bool add_with_readers(fusion *f, int32_t candidate)
{
    if (!is_candidate(f, candidate))
        return false;
    f->g.members[f->g.n_members++] = candidate;
    return add_readers(f, candidate, candidate);
}

/* Whether members from number `first` on may be in the group, as far as others that read them are
 * concerned, and the device's limits. */
static bool may_stay(fusion *f, int first)
{
    for (int i = first; i < f->g.n_members; i++) {
        const int outside = readers_outside(f, f->g.members[i]);
        if (outside < 0 || (outside > 0 && is_costly(f, f->g.members[i])))
            return false;
    }
    return collect_inputs(f) && count_kept(f) <= f->limits->group_results;
}

/* Take in an op if that is allowed; with_readers: and with it what reads it before the group's end. */
static bool take_in(fusion *f, int32_t candidate, bool with_readers)
{
    group *g = &f->g;
    const gd_rows before = g->rows;
    const int n_before = g->n_members;
    bool may = with_readers ? add_with_readers(f, candidate) : is_candidate(f, candidate);
    if (may && !with_readers)
        g->members[g->n_members++] = candidate;
    if (may && may_stay(f, n_before))
        return true;
    g->n_members = n_before;
    g->rows = before;
    (void)collect_inputs(f);
    return false;
}

/* Take in an op that makes what the group reads: alone, as long as there is such a one. */
static bool absorb(fusion *f)
{
    for (int with_readers = 0; with_readers < 2; with_readers++)
        for (int i = 0; i < f->g.n_inputs; i++)
            if (take_in(f, f->ir->values[f->g.inputs[i]].root, with_readers))
                return true;
    return false;
}

/* The first of the ops that read `value`, in users.op, that is number `least` or later. */
static int32_t first_user_from(const fusion *f, int32_t value, int32_t least)
{
    int32_t low = f->users.first[value], high = f->users.first[value + 1];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (f->users.op[middle] < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Take in an op that reads what the group reads. */
static bool join(fusion *f)
{
    const int distance =
        f->g.rows.axes > 0 ? f->limits->row_group_distance : f->limits->group_distance;
    for (int i = 0; i < f->g.n_inputs; i++) {
        int32_t input = f->g.inputs[i];
        if (!gd_layout_same_shape(&f->ir->values[input].layout, f->g.rows.whole))
            continue;
        const int32_t end = f->users.first[input + 1];
        for (int32_t u = first_user_from(f, input, f->g.last - distance);
             u < end && f->users.op[u] < f->g.last; u++)
            if (take_in(f, f->users.op[u], false))
                return true;
    }
    return false;
}

/* Whether an instruction is the same all along a row, and no reduction needs it whole. */
static bool is_constant_in_row(const fusion *f, const gd_fused_attr *attr, int instruction, int n)
{
    const gd_ir_value *values = f->ir->values;
    for (int i = instruction + 1; i < f->g.n_members; i++) {
        const gd_ir_value *reader = &values[f->g.members[i]];
        if (gd_fused_reduces(reader->op->id) &&
            values[reader->in[0]].root == f->g.members[instruction])
            return false;
    }
    for (int k = 0; k < n; k++) {
        int from = attr->instruction[instruction].from[k];
        const gd_layout *input =
            from < attr->n_inputs ? &f->ir->values[f->g.inputs[from]].layout : NULL;
        if (input ? !gd_fused_is_row_input(attr, from, input)
                  : !attr->instruction[from - attr->n_inputs].is_row)
            return false;
    }
    return true;
}

/* kept: what is a result of the group. */
static void describe(const fusion *f, const bool *kept, gd_fused_attr *attr)
{
    const group *g = &f->g;
    const gd_ir *ir = f->ir;
    memset(attr, 0, sizeof *attr);
    attr->n_inputs = g->n_inputs;
    attr->n_instructions = g->n_members;
    attr->row_axes = g->rows.axes;
    attr->shape = gd_layout_shape(g->rows.whole);
    for (int i = 0; i < g->n_inputs; i++)
        attr->outer_inputs |= (uint32_t)g->is_outer[i] << i;
    for (int i = 0; i < g->n_members; i++) {
        const gd_ir_value *v = &ir->values[g->members[i]];
        gd_fused_instruction *instruction = &attr->instruction[i];
        instruction->op = (int16_t)v->op->id;
        instruction->dtype = (int16_t)v->layout.dtype;
        instruction->compute = (int16_t)ir->values[v->in[v->n - 1]].layout.dtype;
        for (int k = 0; k < v->n; k++)
            instruction->from[k] = number_of(f, v, v->in[k]);
        if (gd_ir_is_extra(v))
            instruction->from[1] = (int16_t)((const gd_extra_result_attr *)v->attr)->index;
        /* What is the same all along a row, and no result, is computed once a row. */
        instruction->is_row =
            g->rows.axes > 0 && (gd_rows_form(&g->rows, &v->layout) != GD_FORM_WHOLE ||
                                 (!kept[i] && is_constant_in_row(f, attr, i, v->n)));
        if (kept[i] && i < g->n_members - 1)
            attr->extra[attr->n_extra++] = (int16_t)i;
        attr->result = gd_layout_shape(&v->layout);
    }
}

/* Value `member` becomes extra result `index` of the group that ends in `last`. */
static gd_status make_extra_result(gd_ir *ir, int32_t member, int32_t last, int32_t index)
{
    gd_ir_value *v = &ir->values[member];
    gd_extra_result_attr *attr = gd_arena_push_zero(&ir->memory, sizeof *attr, 8);
    int32_t *in = gd_arena_push(&ir->memory, sizeof(int32_t), sizeof(int32_t));
    if (!attr || !in)
        return GD_ERR_MEMORY;
    attr->index = index;
    attr->dtype = (int32_t)v->layout.dtype;
    attr->shape = gd_layout_shape(&v->layout);
    *in = last;
    v->op = gd_op_row(GD_OP_extra_result);
    v->attr = attr;
    v->in = in;
    v->n = 1;
    return GD_OK;
}

/* Instructions in program order (insertion sort: groups are small). */
static void sort_members(group *g)
{
    for (int i = 1; i < g->n_members; i++)
        for (int k = i; k > 0 && g->members[k - 1] > g->members[k]; k--) {
            int32_t swap = g->members[k];
            g->members[k] = g->members[k - 1];
            g->members[k - 1] = swap;
        }
}

/* Whether the device runs the group, and it has a reduction if it is cut into rows. */
static bool kernel_takes(const fusion *f, const gd_fused_attr *attr)
{
    bool reduces = attr->row_axes == 0;
    for (int i = 0; i < attr->n_instructions; i++)
        reduces |= gd_fused_reduces(attr->instruction[i].op);
    if (!reduces)
        return false;
    const gd_ir_value *values = f->ir->values;
    const group *g = &f->g;
    const gd_layout *extra[GD_FUSED_MAX_EXTRA];
    for (int i = 0; i < attr->n_extra; i++)
        extra[i] = &values[g->members[attr->extra[i]]].layout;
    return gd_ir_device_takes(f->ir, gd_op_row(GD_OP_fused), attr, g->n_inputs, g->inputs,
                              &values[g->members[g->n_members - 1]].layout, extra);
}

/* Views of a member nobody needs by itself go with it. */
static void remove_views(fusion *f, int32_t value, int32_t made)
{
    for (int32_t u = f->users.first[value]; u < f->users.first[value + 1]; u++) {
        gd_ir_value *v = &f->ir->values[f->users.op[u]];
        if (gd_ir_is_view(v) && v->root == made) {
            remove_views(f, f->users.op[u], made);
            v->kind = GD_IR_DEAD;
        }
    }
}

/* Write the group found as one op. *fits: it can be run so; otherwise nothing is changed. */
static gd_status make_group(fusion *f, int *changes, bool *fits)
{
    gd_ir *ir = f->ir;
    group *g = &f->g;
    int32_t last = g->last;
    bool kept[GD_FUSED_MAX_INSTRUCTIONS] = { false };
    sort_members(g);
    for (int i = 0; i < g->n_members; i++)
        kept[i] = g->members[i] == last || readers_outside(f, g->members[i]) > 0;
    gd_fused_attr *attr = gd_arena_push(&ir->memory, sizeof *attr, 8);
    int32_t *in = gd_arena_push(&ir->memory, sizeof g->inputs, sizeof(int32_t));
    if (!attr || !in)
        return GD_ERR_MEMORY;
    describe(f, kept, attr);
    *fits = kernel_takes(f, attr);
    if (!*fits)
        return GD_OK;
    memcpy(in, g->inputs, sizeof(int32_t) * (size_t)g->n_inputs);
    for (int i = 0, index = 0; i < g->n_members - 1; i++) {
        f->position[g->members[i]] = last;
        if (!kept[i]) {
            remove_views(f, g->members[i], g->members[i]);
            ir->values[g->members[i]].kind = GD_IR_DEAD;
        } else if (make_extra_result(ir, g->members[i], last, index++) != GD_OK) {
            return GD_ERR_MEMORY;
        }
    }
    gd_ir_value *v = &ir->values[last];
    v->op = gd_op_row(GD_OP_fused);
    v->attr = attr;
    v->in = in;
    v->n = g->n_inputs;
    *changes += g->n_members - 1;
    return GD_OK;
}

/* The op of several results whose last one is value i, or which i, a cast of one of them, directly
 * follows: it may be in a group that ends with i; -1: none. */
static int32_t op_of_results(const gd_ir *ir, int32_t i)
{
    const gd_ir_value *v = &ir->values[i];
    int32_t last = i;
    if (v->kind == GD_IR_OP && v->op->id == GD_OP_cast) {
        v = &ir->values[v->in[0]];
        last = i - 1;
    }
    if (!gd_ir_is_extra(v)) /* and of a group that was made before */
        return -1;
    const int32_t op = v->in[0];
    return op < last && op + ir->values[op].op->extra == last ? op : -1;
}

/* The group that ends in op i. */
static gd_status group_at(fusion *f, int32_t i, bool with_rows, int *changes, bool *fits)
{
    const gd_ir_value *v = &f->ir->values[i];
    const int32_t several = op_of_results(f->ir, i);
    f->with_rows = with_rows && several < 0;
    f->g.n_members = 0;
    f->g.rows = (gd_rows){ &v->layout, 0 };
    f->g.last = i;
    *fits = true;
    if (several < 0 && !can_fuse(v) && !take_rows(f, v))
        return GD_OK;
    for (int32_t member = several < 0 ? i : several; member <= i; member++)
        f->g.members[f->g.n_members++] = member;
    if (!collect_inputs(f))
        return GD_OK;
    while (absorb(f) || join(f))
        ;
    return f->g.n_members > 1 ? make_group(f, changes, fits) : GD_OK;
}

static gd_status find_groups(fusion *f, int *changes)
{
    const bool with_rows = f->limits->row_group_instructions > 0;
    for (int32_t i = (int32_t)f->ir->count; i-- > 0;) {
        bool fits;
        gd_status status = group_at(f, i, with_rows, changes, &fits);
        if (status == GD_OK && !fits)
            status = group_at(f, i, false, changes, &fits);
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

/* Put extra results behind their groups, and views of them behind those; leave out what is dead. */
static gd_status put_in_order(gd_ir *ir, gd_arena *scratch)
{
    const size_t count = ir->count + 1;
    int32_t *order = gd_arena_array(scratch, count, sizeof *order);
    int32_t *slot = gd_arena_array(scratch, count, sizeof *slot);
    int32_t *first = gd_arena_array(scratch, count, sizeof *first); /* of what goes to a slot */
    int32_t *next = gd_arena_array(scratch, count, sizeof *next);   /* in the same slot */
    if (!order || !slot || !first || !next)
        return GD_ERR_MEMORY;
    size_t n = 0;
    for (int32_t i = 0; i < (int32_t)ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        bool goes_along = v->kind == GD_IR_OP && (gd_ir_is_extra(v) || gd_ir_is_view(v));
        slot[i] = goes_along ? slot[v->in[0]] : i;
        first[i] = -1;
        if (goes_along && gd_ir_is_extra(v))
            slot[i] = v->in[0];
        else if (slot[i] < i)
            slot[i] = i;
    }
    /* Lists are filled from their ends: views, then extra results, which come first. */
    for (int extra = 0; extra < 2; extra++)
        for (int32_t i = (int32_t)ir->count; i-- > 0;)
            if (slot[i] != i && gd_ir_is_extra(&ir->values[i]) == (extra == 1)) {
                next[i] = first[slot[i]];
                first[slot[i]] = i;
            }
    for (int32_t i = 0; i < (int32_t)ir->count; i++) {
        if (slot[i] == i && ir->values[i].kind != GD_IR_DEAD)
            order[n++] = i;
        for (int32_t along = first[i]; along >= 0; along = next[along])
            if (ir->values[along].kind != GD_IR_DEAD)
                order[n++] = along;
    }
    return gd_ir_reorder(ir, order, n);
}

gd_status gd_pass_fuse(gd_ir *ir, gd_arena *scratch, int *changes)
{
    if (!ir->context->device->kernel[GD_OP_fused])
        return GD_OK;
    fusion f = { .ir = ir,
                 .limits = &ir->context->device->limits,
                 .overwritten_at = gd_ir_find_assignments(ir, scratch),
                 .position = gd_arena_array(scratch, ir->count + 1, sizeof *f.position) };
    if (!f.overwritten_at || !f.position || gd_ir_users_make(&f.users, ir, scratch) != GD_OK)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < ir->count; i++)
        f.position[i] = (int32_t)i;
    gd_status status = find_groups(&f, changes);
    return status == GD_OK ? put_in_order(ir, scratch) : status;
}
