/* compile/halves.c: ops that read f16 and bf16, and round what they make to them, in place of casts.
 * Softmax, normalisation, the losses, sums and extremes compute in f32, and a trace has the casts
 * before and behind them. Where the device reads halves as they are (gd_device.takes_halves), the op
 * takes the operand of the cast, and gives what the cast behind it would: half the bytes, and no pass
 * over memory for the conversion. The bits are the same.
 *
 * May do so only where the device takes the new op, and may not move a read past an assignment to what
 * it reads. A reduction of rows is left to `fuse`, which takes the cast into its group, unless the two
 * would be all of the group. */
#include "compile/passes.h"

#include <string.h>

#include "compile/rows.h"

static bool is_cast(const gd_ir *ir, int32_t i)
{
    const gd_ir_value *v = &ir->values[i];
    return v->kind == GD_IR_OP && v->op->id == GD_OP_cast && !v->is_constant;
}

/* Operand k of op i without its cast: the number of the value that is cast; or -1. */
static int32_t half_behind(const gd_ir *ir, const int32_t *overwritten_at, int32_t i, int k)
{
    const gd_ir_value *v = &ir->values[i];
    const int32_t from = v->in[k];
    if (!(v->op->halves >> k & 1) || !is_cast(ir, from) || ir->values[from].layout.dtype != GD_F32)
        return -1;
    const gd_ir_value *cast = &ir->values[from], *x = &ir->values[cast->in[0]];
    return gd_dtype_is_half(x->layout.dtype) && gd_layout_is_contiguous(&x->layout) &&
                   gd_ir_may_sink(ir, overwritten_at, cast, i)
               ? cast->in[0]
               : -1;
}

/* Whether op i reads halves in place of its operand k, which is a cast. */
static bool reads_half(const gd_ir *ir, const int32_t *overwritten_at, int32_t i, int k)
{
    const gd_ir_value *v = &ir->values[i];
    int32_t in[GD_OP_MAX_INPUTS];
    const int32_t half = half_behind(ir, overwritten_at, i, k);
    memcpy(in, v->in, sizeof *in * (size_t)v->n);
    in[k] = half;
    return half >= 0 && gd_ir_device_takes(ir, v->op, v->attr, v->n, in, &v->layout, NULL);
}

/* Whether an op that is no reduction reads the halves in place of cast i, so that they are read anyway. */
static bool is_read_as_halves(const gd_ir *ir, const gd_ir_users *users,
                              const int32_t *overwritten_at, int32_t i)
{
    for (int32_t u = users->first[i]; u < users->first[i + 1]; u++) {
        const gd_ir_value *v = &ir->values[users->op[u]];
        for (int k = 0; k < v->n && v->op->halves && !gd_fused_reduces(v->op->id); k++)
            if (v->in[k] == i && reads_half(ir, overwritten_at, users->op[u], k))
                return true;
    }
    return false;
}

/* Whether a group may have this reduction and the cast of its operand, and more than these two. */
static bool is_left_to_fuse(const gd_ir *ir, const gd_ir_users *users,
                            const int32_t *overwritten_at, const gd_ir_value *v)
{
    gd_rows rows;
    if (ir->context->device->limits.row_group_instructions == 0 || !is_cast(ir, v->in[0]) ||
        !gd_rows_of(ir, v, &rows) || is_read_as_halves(ir, users, overwritten_at, v->in[0]))
        return false;
    const gd_ir_value *x = &ir->values[ir->values[v->in[0]].in[0]];
    return gd_ir_sole_user(users, v->in[0]) < 0 ||
           (x->kind == GD_IR_OP && (x->op->flags & GD_OP_ELEMENTWISE || x->op->id == GD_OP_cast));
}

static void read_halves(gd_ir *ir, const int32_t *overwritten_at, int32_t i, int *changes)
{
    gd_ir_value *v = &ir->values[i];
    int32_t *in = gd_arena_push(&ir->memory, sizeof *in * (size_t)v->n, sizeof *in);
    bool any = false;
    for (int k = 0; in && k < v->n; k++) {
        const int32_t half = half_behind(ir, overwritten_at, i, k);
        in[k] = half >= 0 ? half : v->in[k];
        any |= half >= 0;
    }
    if (any && gd_ir_device_takes(ir, v->op, v->attr, v->n, in, &v->layout, NULL)) {
        v->in = in;
        ++*changes;
    }
}

/* The attribute of op v with its result rounded to `dtype`; NULL: it has none that says so, or there is
 * no memory, and the program is as right without. */
static void *rounded_attr(gd_ir *ir, const gd_ir_value *v, gd_dtype dtype)
{
    void *attr = v->op->rounds ? gd_arena_push(&ir->memory, v->op->attr_size, 8) : NULL;
    if (!attr)
        return NULL;
    const int64_t rounded = (int64_t)dtype;
    memcpy(attr, v->attr, v->op->attr_size);
    memcpy((char *)attr + v->op->attr_size - sizeof rounded, &rounded, sizeof rounded);
    return attr;
}

/* Op i, whose result only a cast to a half reads, gives what that cast gives. */
static void round_result(gd_ir *ir, const gd_ir_users *users, int32_t i, int32_t *replaced_by,
                         int *changes)
{
    gd_ir_value *v = &ir->values[i];
    const int32_t next = v->is_output || v->is_constant ? -1 : gd_ir_sole_user(users, i);
    if (next < 0 || !is_cast(ir, next) || v->layout.dtype != GD_F32 ||
        !gd_dtype_is_half(ir->values[next].layout.dtype))
        return;
    gd_ir_value *cast = &ir->values[next];
    const void *attr = rounded_attr(ir, v, cast->layout.dtype);
    if (!attr || !gd_ir_device_takes(ir, v->op, attr, v->n, v->in, &cast->layout, NULL))
        return;
    v->attr = attr;
    v->layout = cast->layout;
    v->is_output = cast->is_output;
    cast->kind = GD_IR_DEAD;
    replaced_by[next] = i;
    ++*changes;
}

gd_status gd_pass_halves(gd_ir *ir, gd_arena *scratch, int *changes)
{
    if (!ir->context->device->takes_halves)
        return GD_OK;
    gd_ir_users users;
    const int32_t *overwritten_at = gd_ir_find_assignments(ir, scratch);
    int32_t *replaced_by = gd_arena_array(scratch, ir->count + 1, sizeof *replaced_by);
    if (!overwritten_at || !replaced_by || gd_ir_users_make(&users, ir, scratch) != GD_OK)
        return GD_ERR_MEMORY;
    for (int32_t i = 0; i < (int32_t)ir->count; i++)
        replaced_by[i] = i;
    for (int32_t i = 0; i < (int32_t)ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP || !v->op->halves || is_left_to_fuse(ir, &users, overwritten_at, v))
            continue;
        read_halves(ir, overwritten_at, i, changes);
        round_result(ir, &users, i, replaced_by, changes);
    }
    gd_ir_replace(ir, replaced_by);
    int unread = 0; /* casts */
    return *changes ? gd_pass_dead(ir, scratch, &unread) : GD_OK;
}
