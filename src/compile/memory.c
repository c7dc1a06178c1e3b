/* compile/memory.c: memory planning: greedy by size. Buffers are placed largest first, each at the
 * lowest offset where it overlaps nothing alive at the same time (Pisarchyk and Lee, "Efficient
 * memory management for deep neural net inference", 2020).
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
#include "compile/place.h"

enum { ALIGNMENT = 64 };

size_t gd_memory_bytes(const gd_layout *layout)
{
    const size_t bytes = gd_layout_bytes(layout);
    return bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* A root value that needs memory of the plan's. */
static bool needs_memory(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && !gd_ir_is_view(v) && !gd_ir_is_effect(v) && !v->external;
}

/* Last step that reads each root's memory. */
static void find_last_reads(const gd_ir *ir, int32_t *last)
{
    for (size_t i = 0; i < ir->count; i++)
        last[i] = (int32_t)i;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP || gd_ir_is_view(v))
            continue;
        for (int k = 0; k < v->n; k++)
            last[ir->values[v->in[k]].root] = (int32_t)i;
    }
}

/* The operand whose memory result i may write over, or -1: it dies here, is read
 * straight through, and no other result has it. */
static int32_t taken_over(const gd_ir *ir, const int32_t *last, const bool *is_taken, size_t i)
{
    const gd_ir_value *v = &ir->values[i];
    size_t at = gd_ir_is_part(v) ? (size_t)v->in[0] : i;
    const gd_ir_value *op = &ir->values[at];
    if (v->is_output)
        return -1;
    for (int k = 0; k < op->n; k++) {
        const gd_ir_value *operand = &ir->values[op->in[k]];
        int32_t root = operand->root;
        const gd_ir_value *r = &ir->values[root];
        bool fits = gd_ir_may_overwrite(op, v, k) && needs_memory(r) && !r->is_output &&
                    !r->is_constant && !is_taken[root] && last[root] == (int32_t)at &&
                    gd_layout_is_contiguous(&operand->layout) &&
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

/* One buffer for each memory; an op that takes over another's extends that. owner[i]: whose buffer
 * root i uses. */
static size_t make_buffers(const gd_ir *ir, const int32_t *last, int32_t *owner, bool *is_taken,
                           gd_plan_buffer *buffers)
{
    size_t n = 0;
    int32_t end = (int32_t)ir->count - 1;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        owner[i] = -1;
        if (!needs_memory(v))
            continue;
        int32_t from = taken_over(ir, last, is_taken, i);
        if (from >= 0) {
            is_taken[from] = true;
            owner[i] = owner[from];
            buffers[owner[i]].last = last[i];
            continue;
        }
        bool forever = v->is_output || v->is_constant;
        owner[i] = (int32_t)n;
        buffers[n++] = (gd_plan_buffer){ .bytes = gd_memory_bytes(&v->layout),
                                         .first = v->is_constant     ? 0
                                                  : gd_ir_is_part(v) ? v->in[0]
                                                                     : (int32_t)i,
                                         .last = forever ? end : last[i],
                                         .value = (int32_t)i };
    }
    return n;
}

static gd_status sweep(const gd_ir *ir, size_t *bytes, size_t *each_step)
{
    size_t count = ir->count + 1;
    int32_t *last = gd_alloc(count * sizeof *last), *owner = gd_alloc(count * sizeof *owner);
    gd_plan_buffer *buffers = gd_alloc(count * sizeof *buffers);
    size_t *change = gd_alloc_zero(2 * count, sizeof *change);
    bool *is_taken = gd_alloc_zero(count, sizeof *is_taken);
    gd_status status = GD_ERR_MEMORY;
    if (last && owner && buffers && change && is_taken) {
        find_last_reads(ir, last);
        size_t n = make_buffers(ir, last, owner, is_taken, buffers);
        *bytes = most_alive(buffers, n, ir->count, change, each_step);
        status = GD_OK;
    }
    gd_free(last);
    gd_free(owner);
    gd_free(buffers);
    gd_free(change);
    gd_free(is_taken);
    return status;
}

gd_status gd_memory_live(const gd_ir *ir, size_t *bytes)
{
    return sweep(ir, bytes, NULL);
}

gd_status gd_memory_alive(const gd_ir *ir, size_t *alive)
{
    size_t most;
    return sweep(ir, &most, alive);
}

gd_status gd_memory_plan_make(gd_memory_plan *plan, const gd_ir *ir)
{
    size_t count = ir->count + 1;
    int32_t *last = gd_alloc(count * sizeof *last), *owner = gd_alloc(count * sizeof *owner);
    gd_plan_buffer *buffers = gd_alloc(count * sizeof *buffers);
    size_t *change = gd_alloc_zero(2 * count, sizeof *change),
           *offset = gd_alloc(count * sizeof *offset);
    size_t *place_of = gd_alloc(count * sizeof *place_of);
    bool *is_taken = gd_alloc_zero(count, sizeof *is_taken);
    *plan = (gd_memory_plan){ .offset = offset };
    gd_status status = GD_ERR_MEMORY;
    if (last && owner && buffers && change && offset && place_of && is_taken) {
        find_last_reads(ir, last);
        size_t n = make_buffers(ir, last, owner, is_taken, buffers);
        plan->live_bytes = most_alive(buffers, n, ir->count, change, NULL);
        for (size_t i = 0; i < n; i++) {
            if (ir->values[buffers[i].value].is_constant)
                plan->constant_bytes += buffers[i].bytes;
            change[i] = (size_t)buffers[i].value; /* reused: identity before sorting */
        }
        qsort(buffers, n, sizeof *buffers, by_size);
        status = gd_place(buffers, n, ir->count, &plan->bytes);
        for (size_t i = 0; i < ir->count; i++)
            place_of[i] = GD_NO_OFFSET;
        for (size_t i = 0; i < n; i++)
            place_of[buffers[i].value] = buffers[i].offset;
        for (size_t i = 0; i < ir->count; i++)
            offset[i] = owner[i] < 0 ? GD_NO_OFFSET : place_of[change[owner[i]]];
    }
    gd_free(last);
    gd_free(owner);
    gd_free(buffers);
    gd_free(change);
    gd_free(place_of);
    gd_free(is_taken);
    if (status != GD_OK)
        gd_memory_plan_free(plan);
    return status;
}

void gd_memory_plan_free(gd_memory_plan *plan)
{
    gd_free(plan->offset);
    *plan = (gd_memory_plan){ 0 };
}
