/* compile/words.c: random words that one elementwise group alone reads are drawn by it, on the tile where
 * they are used: they are a function of an element's number, so no pass over memory has to keep them. The
 * group's operand is then the state of the random stream (gd_fused_attr.drawn_inputs); the words are the
 * same.
 *
 * Where the device's groups draw (gd_device_limits.group_draws). May not take words that others read, or
 * that are results. It comes behind the passes that take groups apart. */
#include "compile/passes.h"

/* The attribute of the group with input k, which op `bits` makes, drawn; NULL: out of memory. */
static gd_fused_attr *drawing_attr(gd_ir *ir, const gd_ir_value *group, int k,
                                   const gd_ir_value *bits)
{
    gd_fused_attr *attr = gd_arena_push(&ir->memory, sizeof *attr, 8);
    if (!attr)
        return NULL;
    *attr = *(const gd_fused_attr *)group->attr;
    attr->shape = gd_layout_shape(&group->layout);
    attr->drawn_inputs |= UINT32_C(1) << k;
    attr->first_word[k] = ((const gd_random_attr *)bits->attr)->offset;
    return attr;
}

/* Whether group i alone reads input k, words for its elements. */
static bool is_drawable(const gd_ir *ir, const gd_ir_users *users, const int32_t *overwritten_at,
                        int32_t i, int k)
{
    const gd_ir_value *group = &ir->values[i];
    const gd_ir_value *bits = &ir->values[group->in[k]];
    return bits->kind == GD_IR_OP && bits->op->id == GD_OP_random_bits &&
           bits->layout.dtype == GD_I32 && gd_ir_is_temporary(bits) && !bits->external &&
           gd_ir_sole_user(users, group->in[k]) == i &&
           gd_layout_same_shape(&bits->layout, &group->layout) &&
           gd_ir_may_sink(ir, overwritten_at, bits, i);
}

static gd_status draw_input(gd_ir *ir, int32_t i, int k, int *changes)
{
    gd_ir_value *group = &ir->values[i], *bits = &ir->values[group->in[k]];
    const gd_layout *extra[GD_FUSED_MAX_EXTRA];
    int32_t *in = gd_arena_push(&ir->memory, sizeof *in * (size_t)group->n, sizeof *in);
    const gd_fused_attr *attr = drawing_attr(ir, group, k, bits);
    if (!in || !attr)
        return GD_ERR_MEMORY;
    for (int e = 0; e < attr->n_extra; e++)
        extra[e] = &ir->values[i + 1 + e].layout;
    for (int o = 0; o < group->n; o++)
        in[o] = o == k ? bits->in[0] : group->in[o];
    if (!gd_ir_device_takes(ir, group->op, attr, group->n, in, &group->layout, extra))
        return GD_OK;
    group->attr = attr;
    group->in = in;
    bits->kind = GD_IR_DEAD;
    ++*changes;
    return GD_OK;
}

gd_status gd_pass_words(gd_ir *ir, gd_arena *scratch, int *changes)
{
    if (!ir->context->device->limits.group_draws)
        return GD_OK;
    gd_ir_users users;
    const int32_t *overwritten_at = gd_ir_find_assignments(ir, scratch);
    if (!overwritten_at || gd_ir_users_make(&users, ir, scratch) != GD_OK)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    for (int32_t i = 0; i < (int32_t)ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP || v->op->id != GD_OP_fused ||
            ((const gd_fused_attr *)v->attr)->row_axes > 0)
            continue;
        for (int k = 0; status == GD_OK && k < v->n; k++)
            if (is_drawable(ir, &users, overwritten_at, i, k))
                status = draw_input(ir, i, k, changes);
    }
    return status == GD_OK ? gd_ir_remove_dead(ir) : status;
}
