/* compile/working_copies.c: what mixed precision rounds of a parameter is a tensor of its own, that
 * lasts from run to run. A program that casts a tensor outside to 16 bits for a product reads the
 * working copy (working_copy.h) instead; and where it assigns to a tensor that has one, the value is
 * cast and assigned to the copy as well. `fuse` then makes both in the update's pass over memory, and
 * `forward` in their places.
 *
 * May not take casts that elementwise ops alone read, who convert in registers; nor results, nor what
 * is read behind the assignment. A tensor that is assigned to twice, or in part, is converted again at
 * the next run. Not with .memory_limit: copies are memory beside the block. Start at
 * gd_pass_working_copies. */
#include "compile/passes.h"

#include "base/memory.h"
#include "compile/working_copy.h"
#include "graph/apply.h"

typedef struct copying {
    gd_ir *ir;
    int32_t count; /* of values, before the pass */
    gd_ir_users users;
    int32_t *last_use;    /* see gd_ir_find_last_uses */
    int32_t *assignments; /* [memories] to each */
    int32_t *effect;      /* [memories] the last of them */
    int32_t *copy_of;     /* [count] of casts: number of the copy that stands for it; else -1 */
    int32_t *tensor;      /* [copies] each as a value */
    int32_t *behind;      /* of values made: that which each comes behind; -1: before all */
    int32_t *stands;      /* of all values: what is read for each */
} copying;

/* ---- which ---- */

/* Whether an op besides elementwise ones reads value i, or a view of it. */
static bool is_read_from_memory(const copying *c, int32_t i)
{
    for (int32_t u = c->users.first[i]; u < c->users.first[i + 1]; u++) {
        const int32_t user = c->users.op[u];
        const gd_ir_value *v = &c->ir->values[user];
        if (gd_ir_is_view(v) ? is_read_from_memory(c, user)
                             : !(v->op->flags & GD_OP_ELEMENTWISE) && v->op->id != GD_OP_cast)
            return true;
    }
    return false;
}

/* Whether matrix products alone read value i, or it transposed: they take any strides. */
static bool is_factor(const copying *c, int32_t i)
{
    bool is = true;
    for (int32_t u = c->users.first[i]; is && u < c->users.first[i + 1]; u++) {
        const int32_t user = c->users.op[u];
        const gd_op_id op = c->ir->values[user].op->id;
        is = op == GD_OP_matmul || (op == GD_OP_permute && is_factor(c, user));
    }
    return is;
}

/* Whether a copy may stand for value i: a cast of a tensor outside, or of all of it in another order
 * for matrix products. */
static bool is_candidate(const copying *c, int32_t i)
{
    const gd_ir_value *v = &c->ir->values[i];
    if (v->kind != GD_IR_OP || v->op->id != GD_OP_cast || v->is_output || v->is_constant ||
        !gd_dtype_is_half(v->layout.dtype))
        return false;
    const gd_ir_value *x = &c->ir->values[v->in[0]], *root = &c->ir->values[x->root];
    if (root->kind != GD_IR_EXTERNAL || root->version > 0 || root->layout.dtype != GD_F32 ||
        x->layout.dtype != GD_F32 || !gd_layout_is_contiguous(&root->layout) ||
        !is_read_from_memory(c, i))
        return false;
    if (c->assignments[root->memory] > 0 && c->last_use[i] > c->effect[root->memory])
        return false;
    return x == root ||
           (gd_layout_count(&x->layout) == gd_layout_count(&root->layout) && is_factor(c, i));
}

/* The number of t's copy among those of the program, where it is noted; -1 with GD_OK: the device makes
 * none. */
static gd_status note_copy(gd_ir *ir, gd_tensor *t, gd_dtype dtype, int32_t *number)
{
    gd_working_copy *copy;
    *number = -1;
    if (!gd_grow((void **)&ir->copies, &ir->copy_capacity, ir->copy_count + 1,
                 sizeof *ir->copies) ||
        gd_working_copy_take(t, dtype, &copy) != GD_OK)
        return GD_ERR_MEMORY;
    if (!copy)
        return GD_OK;
    for (size_t k = 0; k < ir->copy_count; k++)
        if (ir->copies[k].copy == copy) {
            gd_working_copy_drop(copy);
            *number = (int32_t)k;
            return GD_OK;
        }
    *number = (int32_t)ir->copy_count;
    ir->copies[ir->copy_count++] = (gd_ir_copy){ .copy = copy };
    return GD_OK;
}

static gd_status find_reads(copying *c)
{
    gd_ir *ir = c->ir;
    for (int32_t i = 0; i < c->count; i++) {
        c->copy_of[i] = -1;
        if (!is_candidate(c, i))
            continue;
        const gd_ir_value *v = &ir->values[i];
        gd_tensor *t = ir->values[ir->values[v->in[0]].root].external;
        if (note_copy(ir, t, v->layout.dtype, &c->copy_of[i]) != GD_OK)
            return GD_ERR_MEMORY;
        if (c->copy_of[i] >= 0)
            ir->copies[c->copy_of[i]].is_read = true;
    }
    return GD_OK;
}

/* Of tensors that are assigned to once, as a whole, all copies that there are. */
static gd_status find_updates(copying *c)
{
    gd_ir *ir = c->ir;
    for (int32_t m = 0; m < ir->memory_count; m++) {
        if (c->assignments[m] != 1)
            continue;
        const gd_ir_value *target = &ir->values[ir->values[c->effect[m]].in[0]];
        for (gd_working_copy *copy = target->external->storage->copies; copy; copy = copy->next) {
            const gd_dtype dtype = copy->tensor->layout.dtype;
            int32_t number;
            if (!gd_working_copy_is_of(copy, &target->layout, dtype))
                continue;
            if (note_copy(ir, target->external, dtype, &number) != GD_OK)
                return GD_ERR_MEMORY;
            ir->copies[number].is_updated = true;
            ir->copies[number].effect = c->effect[m];
        }
    }
    return GD_OK;
}

/* ---- writing it ---- */

static gd_status add_tensors(copying *c)
{
    for (size_t k = 0; k < c->ir->copy_count; k++) {
        const int32_t value =
            gd_ir_push_external(c->ir, c->ir->copies[k].copy->tensor, c->ir->memory_count);
        if (value < 0)
            return GD_ERR_MEMORY;
        c->ir->memory_count++;
        c->tensor[k] = value;
        c->behind[value] = -1;
    }
    return GD_OK;
}

/* Transposed views of value i, which lies so, are views of value `root`. */
static gd_status lay_out_views(const copying *c, int32_t i, const gd_layout *layout, int32_t root)
{
    gd_status status = GD_OK;
    for (int32_t u = c->users.first[i]; status == GD_OK && u < c->users.first[i + 1]; u++) {
        gd_ir_value *v = &c->ir->values[c->users.op[u]];
        if (!gd_ir_is_view(v))
            continue;
        v->root = root;
        status = gd_op_infer(v->op, 1, &layout, v->attr, &v->layout);
        if (status == GD_OK)
            status = lay_out_views(c, c->users.op[u], &v->layout, root);
    }
    return status;
}

/* Reads of cast i are of the copy, or of a view of that as i's operand is one of the tensor. */
static gd_status replace_cast(copying *c, int32_t i)
{
    gd_ir *ir = c->ir;
    const gd_ir_value *x = &ir->values[ir->values[i].in[0]];
    int32_t copy = c->tensor[c->copy_of[i]];
    if (x->root != ir->values[i].in[0]) {
        gd_layout layout = x->layout;
        layout.offset -= ir->values[x->root].layout.offset;
        layout.dtype = ir->values[i].layout.dtype;
        copy = gd_ir_push_view(ir, copy, &layout);
        if (copy < 0)
            return GD_ERR_MEMORY;
        c->behind[copy] = i;
        c->stands[i] = copy;
        ir->values[i].kind = GD_IR_DEAD;
        return lay_out_views(c, i, &layout, c->tensor[c->copy_of[i]]);
    }
    c->stands[i] = copy;
    ir->values[i].kind = GD_IR_DEAD;
    return GD_OK;
}

/* Where a cast of what `effect` assigns comes: behind the op that makes it, with all its results. */
static int32_t place_of_cast(const gd_ir *ir, int32_t effect)
{
    const int32_t value = ir->values[effect].in[1];
    const gd_ir_value *v = &ir->values[value];
    if (v->kind != GD_IR_OP)
        return effect - 1;
    const int32_t op = gd_ir_is_extra(v) ? v->in[0] : value;
    const int32_t last = op + gd_ir_extra_count(&ir->values[op]);
    for (int32_t r = op + 1; r <= last; r++)
        if (!gd_ir_is_extra(&ir->values[r]) || ir->values[r].in[0] != op)
            return effect - 1;
    return last;
}

/* The value that is assigned to the tensor, assigned to copy k as well. */
static gd_status add_update(copying *c, size_t k)
{
    gd_ir *ir = c->ir;
    const int32_t effect = ir->copies[k].effect, value = ir->values[effect].in[1];
    const gd_layout layout = ir->values[c->tensor[k]].layout;
    const gd_cast_attr attr = { .dtype = (int64_t)layout.dtype };
    const int32_t cast = gd_ir_push(ir, gd_op_row(GD_OP_cast), 1, &value, &attr, &layout);
    const int32_t in[2] = { c->tensor[k], cast };
    const int32_t assign =
        cast < 0 ? -1 : gd_ir_push(ir, gd_op_row(GD_OP_assign), 2, in, NULL, &layout);
    if (assign < 0)
        return GD_ERR_MEMORY;
    c->behind[cast] = place_of_cast(ir, effect);
    c->behind[assign] = effect;
    ir->values[cast].phase = ir->values[assign].phase = ir->values[effect].phase;
    ir->values[cast].region = ir->values[assign].region = ir->values[effect].region;
    return GD_OK;
}

/* All values in order, those made behind those they belong to, in the order they were made. */
static gd_status put_in_order(copying *c, gd_arena *scratch)
{
    gd_ir *ir = c->ir;
    const int32_t all = (int32_t)ir->count;
    int32_t *order = gd_arena_array(scratch, ir->count + 1, sizeof *order);
    int32_t *next = gd_arena_array(scratch, ir->count + 1, sizeof *next);
    /* first[i + 1]: of those behind value i */
    int32_t *first = gd_arena_array(scratch, (size_t)c->count + 2, sizeof *first);
    if (!order || !next || !first)
        return GD_ERR_MEMORY;
    size_t n = 0;
    for (int32_t i = -1; i < c->count; i++)
        first[i + 1] = -1;
    for (int32_t i = all; i-- > c->count;) {
        next[i] = first[c->behind[i] + 1];
        first[c->behind[i] + 1] = i;
    }
    for (int32_t i = -1; i < c->count; i++) {
        if (i >= 0 && ir->values[i].kind != GD_IR_DEAD)
            order[n++] = i;
        for (int32_t made = first[i + 1]; made >= 0; made = next[made])
            order[n++] = made;
    }
    return gd_ir_reorder(ir, order, n);
}

static gd_status rewrite(copying *c, gd_arena *scratch, int *changes)
{
    gd_ir *ir = c->ir;
    /* A view for a cast at most, and three values for a copy. */
    const size_t most = 2 * (size_t)c->count + 3 * ir->copy_count + 1;
    c->tensor = gd_arena_array(scratch, ir->copy_count + 1, sizeof *c->tensor);
    c->behind = gd_arena_array(scratch, most, sizeof *c->behind);
    c->stands = gd_arena_array(scratch, most, sizeof *c->stands);
    if (!c->tensor || !c->behind || !c->stands)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < most; i++)
        c->stands[i] = (int32_t)i;
    gd_status status = add_tensors(c);
    for (int32_t i = 0; status == GD_OK && i < c->count; i++)
        if (c->copy_of[i] >= 0) {
            status = replace_cast(c, i);
            ++*changes;
        }
    for (size_t k = 0; status == GD_OK && k < ir->copy_count; k++)
        if (ir->copies[k].is_updated)
            status = add_update(c, k);
    if (status != GD_OK)
        return status;
    gd_ir_replace(ir, c->stands);
    return put_in_order(c, scratch);
}

gd_status gd_pass_working_copies(gd_ir *ir, gd_arena *scratch, int *changes)
{
    const size_t count = ir->count + 1, memories = (size_t)ir->memory_count + 1;
    copying c = { .ir = ir,
                  .count = (int32_t)ir->count,
                  .last_use = gd_arena_array(scratch, count, sizeof *c.last_use),
                  .assignments = gd_arena_array(scratch, memories, sizeof *c.assignments),
                  .effect = gd_arena_array(scratch, memories, sizeof *c.effect),
                  .copy_of = gd_arena_array(scratch, count, sizeof *c.copy_of) };
    if (ir->options.memory_limit != SIZE_MAX)
        return GD_OK;
    if (!c.last_use || !c.assignments || !c.effect || !c.copy_of ||
        gd_ir_users_make(&c.users, ir, scratch) != GD_OK)
        return GD_ERR_MEMORY;
    gd_ir_find_last_uses(ir, c.last_use);
    for (int32_t i = 0; i < c.count; i++)
        if (gd_ir_is_effect(&ir->values[i])) {
            const int32_t memory = gd_ir_memory(ir, ir->values[i].in[0]);
            c.assignments[memory]++;
            c.effect[memory] = i;
        }
    if (find_reads(&c) != GD_OK || find_updates(&c) != GD_OK)
        return GD_ERR_MEMORY;
    return ir->copy_count > 0 ? rewrite(&c, scratch, changes) : GD_OK;
}
