/* compile/verify.c: the rules of a program that passes rely on and must keep. They are checked from
 * the values alone, with nothing taken from a pass: gd_ir_verify after tracing and, in debug builds,
 * after every pass; gd_memory_verify for the addresses of a plan.
 *
 * Order: operands come before their users. Shapes and dtypes: layouts are what the ops infer.
 * Aliasing: a view lies in the memory of what it is a view of; contents of a tensor outside are
 * read while they are there, that is, after as many writes to its memory as there were when the
 * body read them. Liveness: nothing removed is read or a result; values of a plan that are alive at
 * the same time lie apart. */
#include <string.h>

#include "base/error.h"
#include "compile/memory.h"
#include "graph/apply.h"

static gd_status fault(const gd_ir *ir, size_t i, const char *after, const char *what)
{
    const gd_ir_value *v = &ir->values[i];
    return gd_fail(GD_ERR_STATE, "compiler fault after %s: value %zu (%s): %s", after, i,
                   v->op ? v->op->name : "leaf", what);
}

/* ---- a value by itself ---- */

/* What is wrong with the operands of op i; NULL: nothing. */
static const char *operand_fault(const gd_ir *ir, size_t i)
{
    const gd_ir_value *v = &ir->values[i];
    if (v->n < 0 || v->n > GD_OP_MAX_INPUTS)
        return "its number of operands";
    for (int k = 0; k < v->n; k++) {
        if (v->in[k] < 0 || (size_t)v->in[k] >= i)
            return "an operand comes after its user";
        const gd_ir_value *operand = &ir->values[v->in[k]];
        if (operand->kind == GD_IR_DEAD)
            return "an operand was removed";
        if (gd_ir_is_effect(operand))
            return "an operand is an effect, which has no value";
        if (v->is_constant && !operand->is_constant)
            return "a constant of what is none";
    }
    return NULL;
}

static bool is_same_layout(const gd_ir_value *v, const gd_layout *inferred)
{
    bool same = gd_layout_same_shape(inferred, &v->layout) && inferred->dtype == v->layout.dtype &&
                (!gd_ir_is_view(v) || inferred->offset == v->layout.offset);
    for (int k = 0; same && k < inferred->rank; k++)
        same = inferred->stride[k] == v->layout.stride[k];
    return same;
}

static const char *place_fault(const gd_ir *ir, size_t i)
{
    const gd_ir_value *v = &ir->values[i];
    if (gd_ir_is_view(v) ? v->root != ir->values[v->in[0]].root : v->root != (int32_t)i)
        return gd_ir_is_view(v) ? "a view's root is not its operand's" : "its root is not itself";
    if (gd_ir_is_effect(v) &&
        (ir->values[v->in[0]].kind != GD_IR_EXTERNAL || v->is_constant || v->is_output))
        return "an effect on what is no tensor outside";
    if (!gd_ir_is_extra(v))
        return NULL;
    const gd_ir_value *group = &ir->values[v->in[0]];
    const int32_t behind = (int32_t)i - v->in[0];
    if (group->kind != GD_IR_OP || behind > gd_ir_extra_count(group))
        return "an extra result does not follow its group";
    return NULL;
}

static gd_status verify_op(const gd_ir *ir, size_t i, const char *after)
{
    const gd_ir_value *v = &ir->values[i];
    const gd_layout *layouts[GD_OP_MAX_INPUTS];
    const char *what = operand_fault(ir, i);
    if (!what)
        what = place_fault(ir, i);
    if (what)
        return fault(ir, i, after, what);
    gd_ir_layouts(ir, v, layouts);
    gd_layout inferred;
    if (gd_op_infer(v->op, v->n, layouts, v->attr, &inferred) != GD_OK)
        return gd_error_last();
    return is_same_layout(v, &inferred)
               ? GD_OK
               : fault(ir, i, after, "its layout is not the one the op infers");
}

static gd_status verify_results(const gd_ir *ir, const char *after)
{
    for (size_t i = 0; i < ir->output_count; i++) {
        const int32_t value = ir->outputs[i];
        if (value < 0 || (size_t)value >= ir->count)
            return gd_fail(GD_ERR_STATE, "compiler fault after %s: result %zu is no value", after,
                           i);
        const gd_ir_value *root = &ir->values[ir->values[value].root];
        if (ir->values[value].kind == GD_IR_DEAD || root->kind != GD_IR_OP || !root->is_output ||
            root->external || gd_ir_is_effect(root))
            return fault(ir, (size_t)value, after,
                         "a result that was removed, or has no memory of its own");
    }
    return GD_OK;
}

/* ---- memory outside, which the program writes to ---- */

/* What op i reads of tensors outside, and of values that were made in their memory, is there. A
 * view is no reader, its readers are. writes [memories]: so far; made_at [count]: of what is made in
 * such memory, the writes up to it. */
static gd_status verify_reads(const gd_ir *ir, size_t i, const int32_t *writes,
                              const int32_t *made_at, const char *after)
{
    const gd_ir_value *v = &ir->values[i];
    for (int k = gd_ir_is_effect(v); k < v->n && !gd_ir_is_view(v) && !gd_ir_is_extra(v); k++) {
        const int32_t of = ir->values[v->in[k]].root;
        const gd_ir_value *root = &ir->values[of];
        if (root->memory < 0)
            continue;
        if (writes[root->memory] != (root->kind == GD_IR_EXTERNAL ? root->version : made_at[of]))
            return fault(ir, i, after, "it reads contents of a tensor outside that are not there");
    }
    return GD_OK;
}

static gd_status verify_memory_outside(const gd_ir *ir, gd_arena *scratch, const char *after)
{
    int32_t *made_at = gd_arena_array(scratch, ir->count + 1, sizeof *made_at);
    int32_t *writes = gd_arena_array(scratch, (size_t)ir->memory_count + 1, sizeof *writes);
    if (!made_at || !writes)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP)
            continue;
        if (verify_reads(ir, i, writes, made_at, after) != GD_OK)
            return gd_error_last();
        const int32_t target = gd_ir_is_effect(v) ? gd_ir_memory(ir, v->in[0]) : v->memory;
        if (target >= 0)
            made_at[i] = ++writes[target];
    }
    return GD_OK;
}

/* The op at `first` and those joined to it, which run at once: all make their results in memory
 * outside, and none writes what another one reads or writes. writer [memories]: room, all 0; 1 + the
 * op that writes it. */
static gd_status verify_joined(const gd_ir *ir, size_t first, int32_t *writer, const char *after)
{
    size_t end = first;
    for (; end < ir->count; end++) {
        const gd_ir_value *v = &ir->values[end];
        const bool is_extra = gd_ir_is_extra(v);
        if (end > first && !v->is_joined && !is_extra)
            break;
        if (v->kind != GD_IR_OP || v->memory < 0 || writer[v->memory])
            return fault(ir, end, after, "its kernel writes this twice, or into the plan's memory");
        writer[v->memory] = 1 + (is_extra ? v->in[0] : (int32_t)end);
    }
    for (size_t i = first; i < end; i++)
        for (int k = 0; k < ir->values[i].n && !gd_ir_is_extra(&ir->values[i]); k++) {
            const int32_t read = gd_ir_memory(ir, ir->values[i].in[k]);
            if (read >= 0 && writer[read] && writer[read] != 1 + (int32_t)i)
                return fault(ir, i, after, "it reads what another op of its kernel writes");
        }
    for (size_t i = first; i < end; i++)
        writer[ir->values[i].memory] = 0;
    return GD_OK;
}

static gd_status verify_kernels(const gd_ir *ir, gd_arena *scratch, const char *after)
{
    int32_t *writer = gd_arena_array(scratch, (size_t)ir->memory_count + 1, sizeof *writer);
    gd_status status = writer ? GD_OK : GD_ERR_MEMORY;
    size_t last = 0; /* op, extra results not counted */
    for (size_t i = 0; status == GD_OK && i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (v->is_joined && !ir->values[last].is_joined)
            status = verify_joined(ir, last, writer, after);
        last = gd_ir_is_extra(v) ? last : i;
    }
    return status;
}

/* A value that lies in memory outside says which, and views and arguments do not. */
static gd_status verify_numbers(const gd_ir *ir, const char *after)
{
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_DEAD &&
            (v->external ? v->memory < 0 || v->memory >= ir->memory_count : v->memory != -1))
            return fault(ir, i, after, "the number of its memory");
    }
    return GD_OK;
}

gd_status gd_ir_verify(const gd_ir *ir, const char *after)
{
    gd_arena scratch = { 0 };
    gd_status status = verify_numbers(ir, after);
    for (size_t i = 0; status == GD_OK && i < ir->count; i++)
        if (ir->values[i].kind == GD_IR_OP)
            status = verify_op(ir, i, after);
    if (status == GD_OK)
        status = verify_results(ir, after);
    if (status == GD_OK)
        status = verify_kernels(ir, &scratch, after);
    if (status == GD_OK)
        status = verify_memory_outside(ir, &scratch, after);
    gd_arena_close(&scratch);
    return status;
}

/* ---- a plan's addresses ---- */

/* The steps at which root i's memory is in use, its own included. */
static void find_life(const gd_ir *ir, size_t i, int32_t *first, int32_t *last)
{
    const gd_ir_value *v = &ir->values[i];
    *first = v->is_constant ? 0 : gd_ir_is_extra(v) ? v->in[0] : (int32_t)i;
    *last = v->is_constant || v->is_output ? (int32_t)ir->count : *first;
    for (size_t u = i + 1; u < ir->count && *last < (int32_t)ir->count; u++) {
        const gd_ir_value *user = &ir->values[u];
        for (int k = 0; user->kind == GD_IR_OP && !gd_ir_is_view(user) && k < user->n; k++)
            if (ir->values[user->in[k]].root == (int32_t)i)
                *last = (int32_t)u;
    }
}

/* Whether what root `by` is a result of may write over root `of`, which dies there: it is read in
 * place, element by element, and by no other operand in another way. */
static bool may_take_over(const gd_ir *ir, size_t of, size_t by)
{
    const gd_ir_value *v = &ir->values[by];
    const gd_ir_value *op = gd_ir_is_extra(v) ? &ir->values[v->in[0]] : v;
    int readers = 0;
    for (int k = 0; k < op->n; k++) {
        const gd_layout *operand = &ir->values[op->in[k]].layout;
        if (ir->values[op->in[k]].root != (int32_t)of)
            continue;
        readers++;
        if (!gd_ir_may_overwrite(op, v, k) || !gd_layout_is_contiguous(operand) ||
            !gd_layout_same_shape(operand, &v->layout))
            return false;
    }
    return readers == 1;
}

/* Scratch of ops, inside the block, beside what is alive while they run. */
static gd_status verify_scratch(const gd_memory_plan *plan, const gd_ir *ir, const int32_t *first,
                                const int32_t *last)
{
    for (size_t i = 0; i < ir->count; i++) {
        const gd_scratch_place *s = &plan->scratch[i];
        const size_t bytes = s->asked.bytes * (size_t)s->asked.areas;
        if (!gd_ir_is_kernel(&ir->values[i]) || bytes == 0)
            continue;
        if (s->offset > plan->bytes || bytes > plan->bytes - s->offset)
            return fault(ir, i, "memory planning", "its scratch lies outside of the block");
        for (size_t j = 0; j < ir->count; j++)
            if (gd_ir_needs_memory(&ir->values[j]) && first[j] <= (int32_t)i &&
                (int32_t)i <= last[j] && plan->offset[j] < s->offset + bytes &&
                s->offset < plan->offset[j] + gd_layout_bytes(&ir->values[j].layout))
                return fault(ir, i, "memory planning",
                             "its scratch overlaps a value that is alive");
    }
    return GD_OK;
}

gd_status gd_memory_verify(const gd_memory_plan *plan, const gd_ir *ir)
{
    gd_arena scratch = { 0 };
    int32_t *first = gd_arena_array(&scratch, ir->count + 1, sizeof *first);
    int32_t *last = gd_arena_array(&scratch, ir->count + 1, sizeof *last);
    gd_status status = first && last ? GD_OK : GD_ERR_MEMORY;
    for (size_t i = 0; status == GD_OK && i < ir->count; i++) {
        if (!gd_ir_needs_memory(&ir->values[i]))
            continue;
        const size_t bytes = gd_layout_bytes(&ir->values[i].layout), at = plan->offset[i];
        find_life(ir, i, &first[i], &last[i]);
        if (at > plan->bytes || bytes > plan->bytes - at)
            status = fault(ir, i, "memory planning", "it lies outside of the block");
        for (size_t j = 0; j < i && status == GD_OK; j++) {
            const size_t other = plan->offset[j];
            if (!gd_ir_needs_memory(&ir->values[j]) || last[j] < first[i] || last[i] < first[j] ||
                at >= other + gd_layout_bytes(&ir->values[j].layout) || other >= at + bytes)
                continue;
            if (last[j] != first[i] || other != at || !may_take_over(ir, j, i))
                status = fault(ir, i, "memory planning", "it overlaps a value that is alive");
        }
    }
    if (status == GD_OK)
        status = verify_scratch(plan, ir, first, last);
    gd_arena_close(&scratch);
    return status;
}
