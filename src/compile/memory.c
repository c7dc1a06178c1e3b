/* compile/memory.c: memory planning: greedy by size. Buffers are placed largest first, each at the
 * lowest offset where it overlaps nothing alive at the same time (Pisarchyk and Lee, "Efficient
 * memory management for deep neural net inference", 2020).
 *
 * Scratch, which the device asks for op by op, is placed behind all values, into what they leave free
 * at its step, where the scratch before lies if it can, so that it is in the caches. What finds no room
 * is left to the device: a plan is as large as its values make it.
 *
 * Decides addresses alone. An elementwise op, or scatter, may write over an operand that dies in
 * it, where it reads that straight through and no other operand looks at the same memory; results
 * and constants are written over by nobody. It is no pass with a switch: a plan without addresses
 * cannot run. */
#include "compile/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/group.h"
#include "compile/packed.h"

size_t gd_memory_bytes(const gd_ir *ir, const gd_layout *layout)
{
    const size_t bytes = gd_layout_bytes(layout), alignment = ir->context->device->alignment;
    return bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
}

/* The operand whose memory result i may write over, or -1: it dies here, is read
 * straight through, and no other result has it. */
static int32_t taken_over(const gd_ir *ir, const int32_t *last_use, const bool *is_taken, size_t i)
{
    const gd_ir_value *v = &ir->values[i];
    size_t at = gd_ir_is_extra(v) ? (size_t)v->in[0] : i;
    const gd_ir_value *op = &ir->values[at];
    if (v->is_output)
        return -1;
    for (int k = 0; k < op->n; k++) {
        const gd_ir_value *operand = &ir->values[op->in[k]];
        int32_t root = operand->root;
        const gd_ir_value *r = &ir->values[root];
        bool fits = gd_ir_may_overwrite(op, v, k) && gd_ir_is_temporary(r) && !is_taken[root] &&
                    last_use[root] == (int32_t)at && gd_layout_is_contiguous(&operand->layout) &&
                    gd_layout_count(&operand->layout) == gd_layout_count(&r->layout) &&
                    gd_layout_same_shape(&operand->layout, &v->layout) &&
                    gd_dtype_size(operand->layout.dtype) == gd_dtype_size(v->layout.dtype);
        /* Another operand may look at the same memory in another order. */
        for (int j = 0; fits && j < op->n; j++)
            fits = j == k || ir->values[op->in[j]].root != root;
        fits = fits && !(v != op && gd_group_reads_behind(op, v, k));
        if (fits)
            return root;
    }
    return -1;
}

static int by_size(const void *a, const void *b)
{
    const gd_plan_buffer *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->value < y->value ? -1 : 1;
}

/* The most bytes alive at any step, by a sweep over changes; at each step in each_step [steps],
 * where it is not NULL. */
static size_t most_alive(const gd_plan_buffer *buffers, size_t count, size_t steps, size_t *change,
                         size_t *each_step)
{
    /* change[2*s] begins, change[2*s+1] ends */
    for (size_t i = 0; i < count; i++) {
        change[2 * (size_t)buffers[i].first] += buffers[i].bytes;
        change[2 * (size_t)buffers[i].last + 1] += buffers[i].bytes;
    }
    size_t alive = 0, most = 0;
    for (size_t s = 0; s < steps; s++) {
        alive += change[2 * s];
        most = alive > most ? alive : most;
        if (each_step)
            each_step[s] = alive;
        alive -= change[2 * s + 1];
    }
    return most;
}

/* One buffer for each memory; an op that takes over another's extends that. owner[i]: the number of
 * the buffer that root i uses. is_apart: each value has one, from the first step to the last. */
static size_t make_buffers(const gd_ir *ir, const int32_t *last_use, int32_t *owner, bool *is_taken,
                           bool is_apart, gd_plan_buffer *buffers)
{
    size_t n = 0;
    int32_t end = (int32_t)ir->count - 1;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        owner[i] = -1;
        if (!gd_ir_needs_memory(v))
            continue;
        int32_t from = is_apart ? -1 : taken_over(ir, last_use, is_taken, i);
        if (from >= 0) {
            is_taken[from] = true;
            owner[i] = owner[from];
            buffers[owner[i]].last = last_use[i];
            continue;
        }
        bool forever = v->is_output || v->is_constant || is_apart;
        owner[i] = (int32_t)n;
        buffers[n++] = (gd_plan_buffer){ .bytes = gd_memory_bytes(ir, &v->layout),
                                         .first = v->is_constant || is_apart ? 0
                                                  : gd_ir_is_extra(v)        ? v->in[0]
                                                                             : (int32_t)i,
                                         .last = forever ? end : last_use[i],
                                         .value = (int32_t)i };
    }
    return n;
}

/* ---- scratch ---- */

/* What the device asks for op i, which has no addresses yet. */
static gd_kernel_scratch ask(const gd_ir *ir, size_t i)
{
    const gd_ir_value *v = &ir->values[i];
    gd_device *device = ir->context->device;
    gd_operand in[GD_OP_MAX_INPUTS], extra[GD_FUSED_MAX_EXTRA];
    for (int k = 0; k < v->n; k++)
        in[k] = (gd_operand){ NULL, &ir->values[v->in[k]].layout };
    const int n_extra = gd_ir_extra_count(v);
    for (int k = 0; k < n_extra; k++) {
        const gd_ir_value *made = &v[1 + k];
        extra[((const gd_extra_result_attr *)made->attr)->index] =
            (gd_operand){ NULL, &made->layout };
    }
    gd_kernel_call call = { .device = device,
                            .op = v->op,
                            .attr = v->attr,
                            .n = v->n,
                            .in = in,
                            .out = gd_ir_is_effect(v) ? in[0] : (gd_operand){ NULL, &v->layout },
                            .extra = n_extra ? extra : NULL };
    if (gd_packed_wanted(ir, v, &call) > 0)
        call.packed = in; /* any address: it is only compared with NULL */
    return device->backend->scratch(&call);
}

/* The scratch of the kernel that begins with op i; of several ops together the most of any, for every
 * thread. *last: the last of them. */
static gd_kernel_scratch scratch_of_kernel(const gd_ir *ir, size_t i, size_t *last)
{
    gd_kernel_scratch all = ask(ir, i);
    *last = i;
    for (size_t k = i + 1; k < ir->count; k++) {
        if (!gd_ir_is_kernel(&ir->values[k]))
            continue;
        if (!ir->values[k].is_joined)
            break;
        const gd_kernel_scratch one = ask(ir, k);
        all.bytes = one.bytes > all.bytes ? one.bytes : all.bytes;
        all.areas = all.threads = ir->context->device->threads;
        *last = k;
    }
    return all;
}

/* Behind the `n` buffers of values those of scratch, in the order of their steps. Returns how many there
 * are then. */
static size_t make_scratch_buffers(const gd_ir *ir, size_t n, gd_plan_buffer *buffers,
                                   gd_scratch_place *places)
{
    if (!ir->context->device->backend->scratch)
        return n;
    for (size_t i = 0; i < ir->count; i++) {
        if (!gd_ir_is_kernel(&ir->values[i]) || ir->values[i].is_joined)
            continue;
        size_t last;
        const gd_kernel_scratch asked = scratch_of_kernel(ir, i, &last);
        for (size_t k = i; k <= last; k++)
            places[k].asked = asked;
        if (asked.bytes > 0)
            buffers[n++] = (gd_plan_buffer){ .bytes = asked.bytes * (size_t)asked.areas,
                                             .first = (int32_t)i,
                                             .last = (int32_t)last,
                                             .value = (int32_t)i,
                                             .in_gaps = true };
    }
    return n;
}

/* The buffers of a program: arrays of a scratch arena. */
typedef struct buffers_of {
    int32_t *owner; /* [count] number of the buffer root i uses; -1: none, it lies elsewhere */
    gd_plan_buffer *buffers;
    size_t n;
    size_t most; /* bytes alive at any step */
} buffers_of;

/* Whether the device has each value of a program as small as this in memory of its own. */
static bool is_to_be_apart(const gd_ir *ir)
{
    size_t bytes = 0;
    for (size_t i = 0; i < ir->count; i++)
        if (gd_ir_needs_memory(&ir->values[i]))
            bytes += gd_memory_bytes(ir, &ir->values[i].layout);
    return bytes <= ir->context->device->limits.apart_bytes;
}

static gd_status find_buffers(buffers_of *b, const gd_ir *ir, gd_arena *scratch, size_t *each_step)
{
    const size_t count = ir->count + 1;
    int32_t *last_use = gd_arena_array(scratch, count, sizeof *last_use);
    size_t *change = gd_arena_array(scratch, 2 * count, sizeof *change);
    bool *is_taken = gd_arena_array(scratch, count, sizeof *is_taken);
    b->owner = gd_arena_array(scratch, count, sizeof *b->owner);
    b->buffers = gd_arena_array(scratch, 2 * count, sizeof *b->buffers);
    if (!last_use || !change || !is_taken || !b->owner || !b->buffers)
        return GD_ERR_MEMORY;
    gd_ir_find_last_uses(ir, last_use);
    b->n = make_buffers(ir, last_use, b->owner, is_taken, false, b->buffers);
    b->most = most_alive(b->buffers, b->n, ir->count, change, each_step);
    if (!each_step && is_to_be_apart(ir))
        b->n = make_buffers(ir, last_use, b->owner, is_taken, true, b->buffers);
    return GD_OK;
}

gd_status gd_memory_alive(const gd_ir *ir, size_t *alive)
{
    gd_arena scratch = { 0 };
    buffers_of b;
    gd_status status = find_buffers(&b, ir, &scratch, alive);
    gd_arena_close(&scratch);
    return status;
}

gd_status gd_memory_live(const gd_ir *ir, size_t *bytes)
{
    gd_arena scratch = { 0 };
    buffers_of b;
    gd_status status = find_buffers(&b, ir, &scratch, NULL);
    if (status == GD_OK)
        *bytes = b.most;
    gd_arena_close(&scratch);
    return status;
}

/* The kernel whose scratch b is; without an offset it takes the device's. */
static void set_scratch(gd_memory_plan *plan, const gd_plan_buffer *b)
{
    for (int32_t i = b->first; i <= b->last; i++)
        if (b->offset == GD_NO_OFFSET)
            plan->scratch[i].asked = (gd_kernel_scratch){ 0 };
        else
            plan->scratch[i].offset = b->offset;
}

static gd_status plan_offsets(gd_memory_plan *plan, const gd_ir *ir, gd_arena *scratch)
{
    buffers_of b;
    size_t *offset_of = gd_arena_array(scratch, ir->count + 1, sizeof *offset_of);
    if (!offset_of || find_buffers(&b, ir, scratch, NULL) != GD_OK)
        return GD_ERR_MEMORY;
    plan->live_bytes = b.most;
    for (size_t i = 0; i < ir->count; i++) /* sorting changes the buffers' numbers */
        b.owner[i] = b.owner[i] < 0 ? -1 : b.buffers[b.owner[i]].value;
    for (size_t i = 0; i < b.n; i++)
        if (ir->values[b.buffers[i].value].is_constant)
            plan->constant_bytes += b.buffers[i].bytes;
    qsort(b.buffers, b.n, sizeof *b.buffers, by_size);
    const size_t all = make_scratch_buffers(ir, b.n, b.buffers, plan->scratch);
    if (gd_place(b.buffers, all, ir->count, &plan->bytes) != GD_OK)
        return GD_ERR_MEMORY;
    for (size_t i = b.n; i < all; i++)
        set_scratch(plan, &b.buffers[i]);
    for (size_t i = 0; i < b.n; i++)
        offset_of[b.buffers[i].value] = b.buffers[i].offset;
    for (size_t i = 0; i < ir->count; i++)
        plan->offset[i] = b.owner[i] < 0 ? GD_NO_OFFSET : offset_of[b.owner[i]];
    return GD_OK;
}

gd_status gd_memory_plan_make(gd_memory_plan *plan, const gd_ir *ir)
{
    gd_arena scratch = { 0 };
    *plan = (gd_memory_plan){ .offset = gd_alloc((ir->count + 1) * sizeof *plan->offset),
                              .scratch = gd_alloc_zero(ir->count + 1, sizeof *plan->scratch) };
    gd_status status =
        plan->offset && plan->scratch ? plan_offsets(plan, ir, &scratch) : GD_ERR_MEMORY;
    gd_arena_close(&scratch);
    if (status != GD_OK)
        gd_memory_plan_free(plan);
    return status;
}

void gd_memory_plan_free(gd_memory_plan *plan)
{
    gd_free(plan->offset);
    gd_free(plan->scratch);
    *plan = (gd_memory_plan){ 0 };
}
