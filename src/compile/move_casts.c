/* compile/move_casts.c: conversions where they cost no pass over memory of their own. What a product
 * or another such op makes is cast, and then read in another shape by elementwise ops: the cast moves
 * behind the view, where `fuse` takes it into their group. A cast whose result is copied into another
 * order reads in that order instead.
 *
 * May move a cast past one view that alone reads it. May not touch results and constants, nor casts of
 * what elementwise ops make, which join those. */
#include "compile/passes.h"

#include "base/error.h"
#include "graph/apply.h"

static bool joins_groups(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && ((v->op->flags & GD_OP_ELEMENTWISE) || v->op->id == GD_OP_cast);
}

static bool is_movable_cast(const gd_ir *ir, int32_t i)
{
    const gd_ir_value *c = &ir->values[i];
    return c->kind == GD_IR_OP && c->op->id == GD_OP_cast && !c->is_output && !c->is_constant;
}

static bool is_view_by(const gd_ir *ir, int32_t i, gd_op_id op)
{
    const gd_ir_value *v = &ir->values[i];
    return v->kind == GD_IR_OP && v->op->id == op && v->n == 1;
}

/* Whether elementwise ops alone read value i. */
static bool feeds_groups(const gd_ir *ir, const gd_ir_users *users, int32_t i)
{
    bool feeds = users->first[i] < users->first[i + 1];
    for (int32_t u = users->first[i]; u < users->first[i + 1]; u++)
        feeds &= joins_groups(&ir->values[users->op[u]]);
    return feeds;
}

/* Cast `i` becomes its reader `view` of its operand, and value `to`, with what lies in its memory, the
 * cast of that. */
static gd_status exchange(gd_ir *ir, int32_t i, int32_t view, int32_t to)
{
    gd_ir_value *c = &ir->values[i], *w = &ir->values[view], *v = &ir->values[to];
    const gd_layout *from = &ir->values[c->in[0]].layout;
    gd_layout layout;
    int32_t *in = gd_arena_push(&ir->memory, sizeof *in, sizeof *in);
    if (!in || gd_op_infer(w->op, 1, &from, w->attr, &layout) != GD_OK)
        return gd_error_last();
    const gd_op *cast = c->op;
    const void *attr = c->attr;
    *in = i;
    c->op = w->op;
    c->attr = w->attr;
    c->layout = layout;
    c->root = ir->values[c->in[0]].root;
    w->kind = GD_IR_DEAD;
    v->kind = GD_IR_OP;
    v->op = cast;
    v->attr = attr;
    v->in = in;
    v->n = 1;
    v->root = to;
    for (size_t k = (size_t)to + 1; k < ir->count; k++)
        if (ir->values[k].root == i)
            ir->values[k].root = to;
    return GD_OK;
}

/* reshape(cast x) with x made by another op, read by groups. */
static bool is_reshaped_for_groups(const gd_ir *ir, const gd_ir_users *users, int32_t i)
{
    const gd_ir_value *x = &ir->values[ir->values[i].in[0]];
    const int32_t view = gd_ir_sole_user(users, i);
    return view >= 0 && is_view_by(ir, view, GD_OP_reshape) && !ir->values[view].is_output &&
           gd_layout_is_contiguous(&x->layout) && ir->values[x->root].kind == GD_IR_OP &&
           !joins_groups(&ir->values[x->root]) && feeds_groups(ir, users, view);
}

/* The copy of permute(cast x), where nothing else reads cast i; or -1. */
static int32_t copy_in_other_order(const gd_ir *ir, const gd_ir_users *users, int32_t i)
{
    const int32_t view = gd_ir_sole_user(users, i);
    if (view < 0 || !is_view_by(ir, view, GD_OP_permute) || ir->values[view].is_output)
        return -1;
    const int32_t copy = gd_ir_sole_user(users, view);
    return copy >= 0 && is_view_by(ir, copy, GD_OP_copy) ? copy : -1;
}

gd_status gd_pass_move_casts(gd_ir *ir, gd_arena *scratch, int *changes)
{
    gd_ir_users users;
    gd_status status = gd_ir_users_make(&users, ir, scratch);
    for (int32_t i = 0; status == GD_OK && i < (int32_t)ir->count; i++) {
        if (!is_movable_cast(ir, i))
            continue;
        const int32_t view = gd_ir_sole_user(&users, i);
        int32_t to = copy_in_other_order(ir, &users, i);
        if (to < 0 && is_reshaped_for_groups(ir, &users, i))
            to = view;
        if (to < 0)
            continue;
        status = exchange(ir, i, view, to);
        ++*changes;
    }
    return status;
}
