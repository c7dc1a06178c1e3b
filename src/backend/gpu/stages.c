/* backend/gpu/stages.c: the order of the steps of a plan that is one kernel. A stage is steps that may
 * run side by side, since none writes what another reads or writes; behind it all wait. Its steps are
 * shared by all work-groups, or are the first one's alone: a barrier of that one costs next to nothing,
 * one of all a round trip to the device's memory. Stages that are the first work-group's, one behind
 * another, are a run. Meanwhile another work-group does what has nothing to do with the run.
 *
 * What nobody waits for is put off until all work-groups take part. Start at gd_gpu_plan_stages. */
#include "backend/gpu/stages.h"

#include <math.h>

#include "base/error.h"
#include "base/memory.h"

/* By estimate, in cycles of a multiprocessor of 1.7 GHz. */
enum {
    LATENCY = 450,      /* operands come from the second cache, and a few operations on them */
    ALL_BARRIER = 1200, /* of all work-groups, with what it makes wait for memory */
    OPERATIONS = 40,    /* that a work-group does in a cycle, in steps other than products */
};

/* ---- which steps may run side by side ---- */

/* The bytes around element 0 that a layout reaches. */
static void reach(const gd_layout *layout, uint64_t at, gd_plan_range *range)
{
    const int64_t size = (int64_t)gd_dtype_size(layout->dtype);
    range->begin = range->end = at;
    if (gd_layout_count(layout) == 0)
        return;
    for (int a = 0; a < layout->rank; a++) {
        const int64_t bytes = (layout->shape[a] - 1) * layout->stride[a] * size;
        if (bytes < 0)
            range->begin -= (uint64_t)-bytes;
        else
            range->end += (uint64_t)bytes;
    }
    range->end += (uint64_t)size;
}

static gd_status range_of(gd_gpu *gpu, const gd_kernel_call *call, int operand,
                          gd_plan_range *range)
{
    gd_gpu_place place;
    const gd_status status = gd_gpu_place_of(gpu, gd_gpu_address_of(call, operand), &place);
    if (status != GD_OK)
        return status;
    const bool is_addressed = gpu->driver->is_addressed;
    const uint64_t at = place.offset + (is_addressed ? (uintptr_t)place.block : 0);
    range->block = is_addressed ? NULL : place.block;
    range->is_written = operand < 0 || operand >= call->n;
    if (operand < 0) {
        range->begin = at;
        range->end = at + (operand == GD_GPU_WORKSPACE ? gpu->workspace_bytes : 1);
    } else {
        reach(operand < call->n    ? call->in[operand].layout
              : operand == call->n ? call->out.layout
                                   : call->extra[operand - call->n - 1].layout,
              at, range);
    }
    return GD_OK;
}

gd_status gd_gpu_plan_ranges(gd_gpu *gpu, const gd_kernel_call *const *calls,
                             const gd_plan_steps *steps, gd_plan_range *ranges)
{
    gd_status status = GD_OK;
    for (size_t i = 0; i < steps->count; i++) {
        const gd_plan_step *s = &steps->step[i];
        for (int k = 0; status == GD_OK && k < s->step.places; k++)
            status = range_of(gpu, calls[s->call], s->step.place[k], ranges++);
    }
    return status;
}

/* Whether one of n ranges is written that one of m others has a part of. */
static bool meet(const gd_plan_range *a, int n, const gd_plan_range *b, int m)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            if ((a[i].is_written || b[k].is_written) && a[i].block == b[k].block &&
                a[i].begin < b[k].end && b[k].begin < a[i].end)
                return true;
    return false;
}

/* Whether e, which is before s in the plan, is done when s begins. */
static bool is_before(const gd_plan_step *e, const gd_plan_step *s)
{
    return e->last < s->stage || (e->block > 0 && e->block == s->block && e->last == s->last);
}

bool gd_gpu_plan_stages_hold(const gd_plan_steps *steps, const gd_plan_range *ranges)
{
    const gd_plan_range *later = ranges;
    for (size_t i = 0; i < steps->count; i++) {
        const gd_plan_step *s = &steps->step[i];
        const gd_plan_range *earlier = ranges;
        for (size_t k = 0; k < i; k++) {
            const gd_plan_step *e = &steps->step[k];
            if (!is_before(e, s) && meet(earlier, e->step.places, later, s->step.places))
                return false;
            earlier += e->step.places;
        }
        later += s->step.places;
    }
    return true;
}

/* Each step in the first stage that it can be in. */
static void begin_early(gd_plan_steps *steps, const gd_plan_range *ranges)
{
    const gd_plan_range *later = ranges;
    steps->stages = 0;
    for (size_t i = 0; i < steps->count; i++) {
        gd_plan_step *s = &steps->step[i];
        const gd_plan_range *earlier = ranges;
        s->stage = 0;
        for (size_t k = 0; k < i; k++) {
            const gd_plan_step *e = &steps->step[k];
            if (e->stage >= s->stage && meet(earlier, e->step.places, later, s->step.places))
                s->stage = e->stage + 1;
            earlier += e->step.places;
        }
        later += s->step.places;
        steps->stages = s->stage + 1 > steps->stages ? s->stage + 1 : steps->stages;
    }
}

/* ---- what they cost ---- */

double gd_gpu_plan_cycles(const gd_gpu *gpu, const gd_kernel_call *call, const gd_plan_step *s,
                          int blocks)
{
    const double product = gd_gpu_plan_product_cycles(call, gpu->plan_items, blocks);
    if (product > 0)
        return product;
    const double items = (double)(s->step.groups[0] * s->step.groups[1] * s->step.items);
    return LATENCY * ceil(items / (blocks * gpu->plan_items)) +
           s->operations / (blocks * OPERATIONS);
}

double gd_gpu_plan_cycles_of_all(const gd_gpu *gpu, const gd_kernel_call *const *calls,
                                 const gd_plan_steps *steps)
{
    double cycles = 0;
    for (size_t i = 0; i < steps->count; i++) {
        const gd_plan_step *s = &steps->step[i];
        const double one = gd_gpu_plan_cycles(gpu, calls[s->call], s, 1);
        const double all =
            gd_gpu_plan_cycles(gpu, calls[s->call], s, gpu->plan_blocks) + 2 * ALL_BARRIER;
        cycles += one < all ? one : all;
    }
    return cycles;
}

/* What a step gains by all work-groups. */
static double gain_of(const gd_gpu *gpu, const gd_kernel_call *call, const gd_plan_step *s)
{
    return gd_gpu_plan_cycles(gpu, call, s, 1) - gd_gpu_plan_cycles(gpu, call, s, gpu->plan_blocks);
}

bool gd_gpu_plan_is_large(const gd_gpu *gpu, const gd_kernel_call *call, const gd_plan_step *s)
{
    return gain_of(gpu, call, s) > 2 * ALL_BARRIER;
}

/* Stages that all work-groups take part in gain what that costs: a barrier before and one behind. */
static gd_status choose_width(const gd_gpu *gpu, const gd_kernel_call *const *calls,
                              gd_plan_steps *steps)
{
    double *gain = gd_alloc_zero((size_t)steps->stages, sizeof *gain);
    steps->is_wide = gd_alloc_zero((size_t)steps->stages, sizeof *steps->is_wide);
    for (size_t i = 0; gain && steps->is_wide && gpu->plan_blocks > 1 && i < steps->count; i++) {
        const gd_plan_step *s = &steps->step[i];
        gain[s->stage] += gain_of(gpu, calls[s->call], s);
        steps->is_wide[s->stage] = gain[s->stage] > 2 * ALL_BARRIER;
    }
    gd_free(gain);
    return gain && steps->is_wide ? GD_OK : GD_ERR_MEMORY;
}

/* ---- where they are in the end ---- */

/* Where a step could be. */
typedef struct room {
    int first, last; /* stages */
    int run;   /* where one begins beside which steps of another work-group wait for it, or -1 */
    int block; /* that one */
} room;

/* Those behind the step have their places. `own`: its ranges, behind which theirs are. */
static room room_of(const gd_plan_steps *steps, size_t i, const gd_plan_range *own)
{
    const gd_plan_step *s = &steps->step[i];
    const gd_plan_range *later = own + s->step.places;
    room r = { s->stage, steps->stages - 1, -1, 0 };
    for (size_t k = i + 1; k < steps->count; later += steps->step[k++].step.places) {
        const gd_plan_step *l = &steps->step[k];
        if (!meet(own, s->step.places, later, l->step.places))
            continue;
        const bool is_others = l->block > 0;
        if (is_others && (r.run < 0 || l->stage < r.run)) {
            r.run = l->stage;
            r.block = l->block;
        } else if ((!is_others || (l->stage == r.run && l->block != r.block)) &&
                   l->stage <= r.last) {
            r.last = l->stage - 1;
        }
    }
    return r;
}

/* The stage where the run that `stage` is in begins. */
static int run_begin(const gd_plan_steps *steps, int stage)
{
    while (stage > 0 && !steps->is_wide[stage - 1])
        stage--;
    return stage;
}

/* The last run that a step could be beside, all of it: where it begins and ends; false: there is none. */
static bool find_run(const gd_plan_steps *steps, const room *r, int *begin, int *end)
{
    for (*end = r->last; *end >= r->first; *end = *begin - 1) {
        *begin = *end;
        if (steps->is_wide[*end])
            continue;
        *begin = run_begin(steps, *end);
        const bool is_whole = *end == steps->stages - 1 || steps->is_wide[*end + 1];
        if (is_whole && *begin >= r->first && (r->run < 0 || *begin <= r->run))
            return true;
    }
    return false;
}

/* A step, where those behind it have their places. *others: how many are other work-groups' so far. */
static void settle(const gd_gpu *gpu, const gd_kernel_call *const *calls, gd_plan_steps *steps,
                   size_t i, const gd_plan_range *own, int *others)
{
    gd_plan_step *s = &steps->step[i];
    room r = room_of(steps, i, own);
    int begin, end;
    s->last = s->stage;
    s->block = gpu->plan_blocks > 1 && steps->is_wide[s->stage] ? GD_PLAN_SHARED : 0;
    if (gpu->plan_blocks == 1)
        return;
    if (!gd_gpu_plan_is_large(gpu, calls[s->call], s) && find_run(steps, &r, &begin, &end)) {
        s->block = r.run == begin ? r.block : 1 + (*others)++ % (gpu->plan_blocks - 1);
        s->stage = begin;
        s->last = end;
        return;
    }
    if (r.run >= 0 && r.run <= r.last)
        r.last = r.run - 1;
    while (r.last > r.first && !steps->is_wide[r.last])
        r.last--;
    s->stage = s->last = r.last;
    s->block = steps->is_wide[s->stage] ? GD_PLAN_SHARED : 0;
}

gd_status gd_gpu_plan_stages(const gd_gpu *gpu, const gd_kernel_call *const *calls,
                             gd_plan_steps *steps, const gd_plan_range *ranges)
{
    begin_early(steps, ranges);
    const gd_status status = choose_width(gpu, calls, steps);
    const gd_plan_range *own = ranges;
    int others = 0;
    for (size_t i = 0; i < steps->count; i++)
        own += steps->step[i].step.places;
    for (size_t i = steps->count; status == GD_OK && i-- > 0;) {
        own -= steps->step[i].step.places;
        settle(gpu, calls, steps, i, own, &others);
    }
    return status;
}
