/* compile/multi_tensor.c: updates of several tensors as one kernel (the field's multi-tensor
 * apply). A model has many small parameters, and the update of each is too little work for two
 * threads. Ops whose results are all made in tensors outside the plan (pass forward) are joined:
 * each moves down to the last of its batch, where all but the first are marked `is_joined`. The
 * plan runs a batch as one call, its work divided among the threads as a whole; the loops are those
 * of each op by itself, and so are the bits.
 *
 * May move such an op down, but not past one that reads or writes what it writes, nor past one that
 * writes what it reads; so no member of a batch depends on another. Nor where the gradients, which
 * live longer then, would make more alive at the worst step. May not join large updates: the thread
 * that made a part of a gradient has it in its cache, and is to update that part. */
#include "compile/passes.h"

#include "compile/memory.h"

/* The batch that is open, in the walk down the program. */
typedef struct batch {
    int32_t number;      /* from 1 */
    int32_t first, last; /* members; -1: none yet */
    size_t held;         /* bytes of the plan's memory its members read */
} batch;

typedef struct walk {
    gd_ir *ir;
    int32_t *first; /* [count] of what comes where value i is now: i itself; but of a batch all
                       where its last member is, and extra results with their groups:
                       -1 elsewhere */
    int32_t *next;  /* [count] member behind this one, or -1 */
    batch open;
    /* [memories] the number of the last batch that reads or writes each, or writes it */
    int32_t *touched_by, *written_by;
    size_t *alive, peak; /* [count] bytes alive at each step, and the most of them */
    int joined;
} walk;

static void open_batch(walk *w)
{
    w->open = (batch){ w->open.number + 1, -1, -1, 0 };
}

/* The memory outside the plan where result r of op i is written, or -1. */
static int32_t target_of(const gd_ir *ir, int32_t i, int32_t r)
{
    const gd_ir_value *v = &ir->values[i];
    return gd_ir_memory(ir, gd_ir_is_effect(v) ? v->in[0] : r);
}

/* Whether op i must stay behind the batch. */
static bool depends(const walk *w, int32_t i)
{
    const gd_ir_value *v = &w->ir->values[i];
    for (int k = 0; k < v->n; k++) {
        const int32_t read = gd_ir_memory(w->ir, v->in[k]);
        if (read >= 0 && w->written_by[read] == w->open.number)
            return true;
    }
    for (int32_t r = i; r <= i + gd_ir_extra_count(v); r++) {
        const int32_t target = target_of(w->ir, i, r);
        if (target >= 0 && w->touched_by[target] == w->open.number)
            return true;
    }
    return false;
}

/* Whether op i may be of a batch at all. */
static bool is_update(const gd_ir *ir, int32_t i)
{
    const gd_ir_value *v = &ir->values[i];
    bool is = (v->op->flags & GD_OP_ELEMENTWISE) || v->op->id == GD_OP_fused ||
              v->op->id == GD_OP_cast || v->op->extra > 0;
    size_t bytes = 0; /* of the largest result */
    for (int32_t r = i; is && r <= i + gd_ir_extra_count(v); r++) {
        const size_t made = gd_layout_bytes(&ir->values[r].layout);
        is = ir->values[r].external;
        bytes = made > bytes ? made : bytes;
    }
    return is && !v->is_constant && bytes > 0 &&
           bytes <= ir->context->device->limits.together_result;
}

static void note_read(walk *w, int32_t value)
{
    const gd_ir_value *root = &w->ir->values[w->ir->values[value].root];
    if (root->memory >= 0)
        w->touched_by[root->memory] = w->open.number;
    else if (gd_ir_is_temporary(root))
        w->open.held += gd_memory_bytes(w->ir, &root->layout);
}

static void note_write(walk *w, int32_t value)
{
    const int32_t memory = gd_ir_memory(w->ir, value);
    w->touched_by[memory] = w->written_by[memory] = w->open.number;
}

static void add_member(walk *w, int32_t i)
{
    const gd_ir_value *v = &w->ir->values[i];
    for (int k = 0; k < v->n; k++)
        note_read(w, v->in[k]);
    for (int32_t r = i; r <= i + gd_ir_extra_count(v); r++)
        note_write(w, r);
    if (w->open.last < 0) {
        w->open.first = i;
    } else {
        w->first[i] = w->open.first;
        w->first[w->open.last] = -1;
        w->next[w->open.last] = i;
        w->joined++;
    }
    w->open.last = i;
}

/* Whether the batch may wait till after op i. An eighth of the peak stays free: what lives longer
 * is harder to place. */
static bool may_wait(const walk *w, int32_t i)
{
    const size_t held = w->open.held;
    const size_t most = w->ir->context->device->limits.together_waiting;
    return held == 0 || (held <= most && w->alive[i] + held <= w->peak / 8 * 7);
}

static void find_batches(walk *w)
{
    const gd_ir *ir = w->ir;
    open_batch(w);
    for (int32_t i = 0; i < (int32_t)ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        w->first[i] = gd_ir_is_extra(v) ? -1 : i;
        w->next[i] = -1;
        if (v->kind != GD_IR_OP || gd_ir_is_view(v) || gd_ir_is_extra(v))
            continue;
        if (depends(w, i) || !may_wait(w, i))
            open_batch(w);
        if (is_update(ir, i))
            add_member(w, i);
    }
}

/* Joins the batches, in a new order. Room for [count] values each; back: the order from the new one
 * to that before. */
static gd_status join(walk *w, int32_t *order, int32_t *back)
{
    gd_ir *ir = w->ir;
    size_t n = 0;
    for (int32_t i = 0; i < (int32_t)ir->count; i++)
        for (int32_t op = w->first[i]; op >= 0; op = w->next[op]) {
            if (w->next[op] >= 0)
                ir->values[w->next[op]].is_joined = true;
            const bool has_extra = ir->values[op].kind == GD_IR_OP;
            for (int32_t r = op; r <= op + (has_extra ? gd_ir_extra_count(&ir->values[op]) : 0);
                 r++) {
                back[r] = (int32_t)n;
                order[n++] = r;
            }
        }
    return gd_ir_reorder(ir, order, n);
}

static gd_status undo(gd_ir *ir, const int32_t *back)
{
    for (size_t i = 0; i < ir->count; i++)
        ir->values[i].is_joined = false;
    return gd_ir_reorder(ir, back, ir->count);
}

/* Whether the plan is within its limit: buffers that live longer may be harder to place. */
static gd_status keeps_limit(const gd_ir *ir, bool *keeps)
{
    *keeps = true;
    if (ir->options.memory_limit == SIZE_MAX)
        return GD_OK;
    gd_memory_plan plan;
    gd_status status = gd_memory_plan_make(&plan, ir);
    if (status == GD_OK)
        *keeps = plan.bytes <= ir->options.memory_limit;
    gd_memory_plan_free(&plan);
    return status;
}

static gd_status find_and_join(walk *w, gd_arena *scratch, int *changes)
{
    int32_t *order = gd_arena_array(scratch, w->ir->count + 1, sizeof *order);
    int32_t *back = gd_arena_array(scratch, w->ir->count + 1, sizeof *back);
    if (!order || !back || gd_memory_alive(w->ir, w->alive) != GD_OK)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < w->ir->count; i++)
        w->peak = w->alive[i] > w->peak ? w->alive[i] : w->peak;
    find_batches(w);
    if (w->joined == 0)
        return GD_OK;
    bool keeps;
    if (join(w, order, back) != GD_OK || keeps_limit(w->ir, &keeps) != GD_OK)
        return GD_ERR_MEMORY;
    *changes += keeps ? w->joined : 0;
    return keeps ? GD_OK : undo(w->ir, back);
}

gd_status gd_pass_multi_tensor(gd_ir *ir, gd_arena *scratch, int *changes)
{
    if (!ir->context->device->backend->run_together)
        return GD_OK;
    const size_t count = ir->count + 1, memories = (size_t)ir->memory_count + 1;
    walk w = { .ir = ir,
               .first = gd_arena_array(scratch, count, sizeof *w.first),
               .next = gd_arena_array(scratch, count, sizeof *w.next),
               .touched_by = gd_arena_array(scratch, memories, sizeof *w.touched_by),
               .written_by = gd_arena_array(scratch, memories, sizeof *w.written_by),
               .alive = gd_arena_array(scratch, count, sizeof *w.alive) };
    if (!w.first || !w.next || !w.touched_by || !w.written_by || !w.alive)
        return GD_ERR_MEMORY;
    return find_and_join(&w, scratch, changes);
}
