/* backend/gpu/stages.c: the order of the steps of a plan that is one kernel. A stage is steps that may
 * run side by side, since none writes what another reads or writes; behind it all wait. Its steps are
 * shared by all work-groups, or are the first one's alone: a barrier of that one costs next to nothing,
 * one of all a round trip to the device's memory. Start at gd_gpu_plan_stages. */
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

bool gd_gpu_plan_stages_hold(const gd_plan_steps *steps, const gd_plan_range *ranges)
{
    const gd_plan_range *later = ranges;
    for (size_t i = 0; i < steps->count; i++) {
        const gd_plan_step *s = &steps->step[i];
        const gd_plan_range *earlier = ranges;
        for (size_t k = 0; k < i; k++) {
            const gd_plan_step *e = &steps->step[k];
            if (e->stage >= s->stage && meet(earlier, e->step.places, later, s->step.places))
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

/* The last stage in which all work-groups take part that the step can be in, or where it is. `own`: its
 * ranges, behind which the later steps' are. */
static int latest_wide(const gd_plan_steps *steps, size_t i, const gd_plan_range *own)
{
    const gd_plan_step *s = &steps->step[i];
    const gd_plan_range *later = own + s->step.places;
    int last = steps->stages - 1;
    for (size_t k = i + 1; k < steps->count; k++) {
        const gd_plan_step *l = &steps->step[k];
        if (l->stage <= last && meet(own, s->step.places, later, l->step.places))
            last = l->stage - 1;
        later += l->step.places;
    }
    while (last > s->stage && !steps->is_wide[last])
        last--;
    return last;
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

/* Stages that all work-groups take part in gain what that costs: a barrier before and one behind. */
static gd_status choose_width(const gd_gpu *gpu, const gd_kernel_call *const *calls,
                              gd_plan_steps *steps)
{
    double *gain = gd_alloc_zero((size_t)steps->stages, sizeof *gain);
    steps->is_wide = gd_alloc_zero((size_t)steps->stages, sizeof *steps->is_wide);
    for (size_t i = 0; gain && steps->is_wide && gpu->plan_blocks > 1 && i < steps->count; i++) {
        const gd_plan_step *s = &steps->step[i];
        gain[s->stage] += gd_gpu_plan_cycles(gpu, calls[s->call], s, 1) -
                          gd_gpu_plan_cycles(gpu, calls[s->call], s, gpu->plan_blocks);
        steps->is_wide[s->stage] = gain[s->stage] > 2 * ALL_BARRIER;
    }
    gd_free(gain);
    return gain && steps->is_wide ? GD_OK : GD_ERR_MEMORY;
}

gd_status gd_gpu_plan_stages(const gd_gpu *gpu, const gd_kernel_call *const *calls,
                             gd_plan_steps *steps, const gd_plan_range *ranges)
{
    begin_early(steps, ranges);
    const gd_status status = choose_width(gpu, calls, steps);
    const gd_plan_range *own = ranges;
    for (size_t i = 0; i < steps->count; i++)
        own += steps->step[i].step.places;
    for (size_t i = steps->count; status == GD_OK && i-- > 0;) {
        own -= steps->step[i].step.places;
        steps->step[i].stage = latest_wide(steps, i, own);
    }
    return status;
}
