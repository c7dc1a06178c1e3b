/* backend/gpu/index.c: gather, scatter and scatter_add, argsort and searchsorted; the kernels are in
 * codegen/device/index.txt. What is added to one element is added in rising order, as on the CPU. */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "ops/attrs.h"

enum {
    ITEMS = 128,
    MANY_ITEMS = 1 << 15, /* fewer lines are divided among items by their indices */
    MOST_PARTS = 64,
    LONGEST_LINE = 4096, /* that is sorted by counting; of longer ones runs are */
    SHORT_RUN = 512,
};

/* The layout with one element along the axis: loops over it pass over the axis. */
static gd_layout across(const gd_layout *layout, int axis)
{
    gd_layout l = *layout;
    l.shape[axis] = 1;
    return l;
}

/* ---- indices ---- */

/* Looks for one out of range. Where one index stands for many, along an axis with stride 0, it is
 * looked at once. */
static void add_check(gd_gpu_job *job, const gd_kernel_call *call, int axis, int64_t size)
{
    const gd_layout *index = call->in[1].layout;
    gd_layout over = *index, positions = *index;
    gd_loops loops;
    for (int64_t a = index->rank - 1, stride = 1; a >= 0; stride *= index->shape[a--]) {
        positions.stride[a] = stride;
        if (index->stride[a] == 0)
            over.shape[a] = positions.shape[a] = 1;
    }
    gd_codegen_merge(&loops, &over, (const gd_layout *[]){ &over, &positions }, 2);
    gd_gpu_step *s = gd_gpu_add_kernel(job, "check_indices", 1, ITEMS);
    gd_gpu_define(s, "I", "%s", gd_codegen_type(index->dtype));
    gd_gpu_add_place(s, 1);
    gd_gpu_add_place(s, GD_GPU_FOUND);
    gd_gpu_add_number(s, gd_layout_count(&over));
    gd_gpu_add_number(s, size);
    gd_gpu_add_number(s, call->op->id);
    gd_gpu_add_number(s, axis);
    gd_gpu_add_loops(s, &loops);
}

static bool is_index(gd_dtype dtype)
{
    return dtype == GD_I32 || dtype == GD_I64;
}

bool gd_gpu_describe_gather(const gd_kernel_call *call, gd_gpu_job *job)
{
    const int axis = ((const gd_axis_attr *)call->attr)->axis;
    const gd_layout *x = call->in[0].layout, *index = call->in[1].layout;
    const gd_layout rows = across(x, axis);
    const int64_t items = gd_layout_count(index);
    gd_loops loops;
    if (!is_index(index->dtype))
        return false;
    if (items == 0)
        return true;
    add_check(job, call, axis, x->shape[axis]);
    gd_codegen_merge(&loops, index, (const gd_layout *[]){ index, &rows }, 2);
    gd_gpu_step *s = gd_gpu_add_kernel(job, "gather_elements", gd_gpu_groups(items, ITEMS), ITEMS);
    gd_gpu_define(s, "T", "%s", gd_gpu_moved_type(x->dtype));
    gd_gpu_define(s, "I", "%s", gd_codegen_type(index->dtype));
    for (int i = 0; i < 3; i++)
        gd_gpu_add_place(s, i);
    gd_gpu_add_number(s, items);
    gd_gpu_add_number(s, x->shape[axis]);
    gd_gpu_add_number(s, x->stride[axis]);
    gd_gpu_add_loops(s, &loops);
    return true;
}

/* ---- scatter, scatter_add ---- */

/* The base, input 0, becomes the result, if it is not in place. */
static void add_base(gd_gpu_job *job, const gd_kernel_call *call)
{
    const gd_kernel_call copy = { .device = call->device,
                                  .op = gd_op_row(GD_OP_copy),
                                  .n = 1,
                                  .in = call->in,
                                  .out = call->out };
    const int step = job->steps;
    (void)gd_gpu_describe_elementwise(&copy, job);
    job->step[step].place[1] = (int8_t)call->n; /* the result of this call */
    job->step[step].is_copy = true;
}

static void add_scatter(gd_gpu_job *job, const gd_kernel_call *call, int axis)
{
    const gd_layout *index = call->in[1].layout, *source = call->in[2].layout;
    const gd_layout *out = call->out.layout;
    const gd_layout lines = across(index, axis), from = across(source, axis);
    gd_layout to = lines;
    gd_loops places, results;
    const int64_t n = gd_layout_count(&lines), size = out->shape[axis];
    int64_t parts = 1;
    while (parts < MOST_PARTS && 2 * parts <= size && 2 * parts * n <= MANY_ITEMS)
        parts *= 2;
    memcpy(to.stride, out->stride, sizeof to.stride);
    gd_codegen_merge(&places, &lines, (const gd_layout *[]){ &lines, &from }, 2);
    gd_codegen_merge(&results, &lines, (const gd_layout *[]){ &to }, 1);
    gd_gpu_step *s =
        gd_gpu_add_kernel(job, "scatter_lines", gd_gpu_groups(n * parts, ITEMS), ITEMS);
    const bool adds = call->op->id == GD_OP_scatter_add;
    gd_gpu_define(s, "T", "%s", adds ? gd_codegen_type(out->dtype) : gd_gpu_moved_type(out->dtype));
    gd_gpu_define(s, "I", "%s", gd_codegen_type(index->dtype));
    if (adds)
        gd_gpu_define(s, "PUT(a, b)", "combine_sum_%s(a, b)", gd_codegen_suffix(out->dtype));
    else
        gd_gpu_define(s, "PUT(a, b)", "(b)");
    for (int i = 1; i < 4; i++)
        gd_gpu_add_place(s, i);
    gd_gpu_add_number(s, n);
    gd_gpu_add_number(s, parts);
    gd_gpu_add_number(s, index->shape[axis]);
    gd_gpu_add_number(s, size);
    gd_gpu_add_number(s, index->stride[axis]);
    gd_gpu_add_number(s, source->stride[axis]);
    gd_gpu_add_number(s, to.stride[axis]);
    gd_gpu_add_loops(s, &places);
    gd_gpu_add_loops(s, &results);
}

bool gd_gpu_describe_scatter(const gd_kernel_call *call, gd_gpu_job *job)
{
    const int axis = ((const gd_axis_attr *)call->attr)->axis;
    const gd_layout *base = call->in[0].layout, *index = call->in[1].layout;
    if (!is_index(index->dtype) ||
        (call->op->id == GD_OP_scatter_add && !gd_codegen_type(base->dtype)))
        return false;
    if (gd_layout_count(base) == 0 && gd_layout_count(index) == 0)
        return true;
    if (gd_layout_count(index) > 0)
        add_check(job, call, axis, base->shape[axis]);
    if (gd_layout_count(base) > 0)
        add_base(job, call);
    if (gd_layout_count(index) > 0 && gd_layout_count(base) > 0)
        add_scatter(job, call, axis);
    return true;
}

/* ---- sorting ---- */

static void define_key(gd_gpu_step *s, gd_dtype dtype)
{
    const char *type = gd_codegen_type(dtype);
    gd_gpu_define(s, "X", "%s", type ? type : gd_gpu_moved_type(dtype));
    gd_gpu_define(s, "KEY", "sort_key_%s",
                  type              ? gd_codegen_suffix(dtype)
                  : dtype == GD_F16 ? "f16"
                                    : "bf16");
}

/* Lines no longer than this: each element counts those before it. */
static void add_short_sort(const gd_kernel_call *call, gd_gpu_job *job, const gd_loops *loops)
{
    const gd_sort_attr *attr = call->attr;
    const gd_layout *x = call->in[0].layout;
    const int64_t n = x->shape[x->rank - 1], items = gd_layout_count(x);
    gd_gpu_step *s = gd_gpu_add_kernel(job, "sort_places", gd_gpu_groups(items, ITEMS), ITEMS);
    define_key(s, x->dtype);
    gd_gpu_add_place(s, 0);
    gd_gpu_add_place(s, 1);
    gd_gpu_add_number(s, items / n);
    gd_gpu_add_number(s, n);
    gd_gpu_add_number(s, x->stride[x->rank - 1]);
    gd_gpu_add_number(s, attr->count);
    gd_gpu_add_number(s, attr->descending ? -1 : 0);
    gd_gpu_add_loops(s, loops);
}

/* A pass over all elements; the places lie in one half of the workspace and go to the other, or, the
 * last ones, to the result. Without `merges` there are none yet. */
static void add_pass(const gd_kernel_call *call, gd_gpu_job *job, const gd_loops *loops,
                     bool merges, int64_t run, bool is_last)
{
    const gd_sort_attr *attr = call->attr;
    const gd_layout *x = call->in[0].layout;
    const int64_t n = x->shape[x->rank - 1], items = gd_layout_count(x);
    const int64_t half = job->steps % 2 * items;
    gd_gpu_step *s = gd_gpu_add_kernel(job, merges ? "merge_runs" : "sort_runs",
                                       gd_gpu_groups(items, ITEMS), ITEMS);
    define_key(s, x->dtype);
    gd_gpu_add_place(s, 0);
    if (merges)
        gd_gpu_add_place(s, GD_GPU_WORKSPACE);
    gd_gpu_add_place(s, is_last ? 1 : GD_GPU_WORKSPACE);
    gd_gpu_add_number(s, items / n);
    gd_gpu_add_number(s, n);
    gd_gpu_add_number(s, x->stride[x->rank - 1]);
    gd_gpu_add_number(s, attr->descending ? -1 : 0);
    gd_gpu_add_number(s, run);
    gd_gpu_add_number(s, items - half);
    gd_gpu_add_number(s, is_last ? 0 : half);
    gd_gpu_add_number(s, is_last ? attr->count : n);
    gd_gpu_add_loops(s, loops);
}

/* Runs are as short as leaves room for the passes that merge them. */
static void add_long_sort(const gd_kernel_call *call, gd_gpu_job *job, const gd_loops *loops)
{
    const gd_layout *x = call->in[0].layout;
    const int64_t n = x->shape[x->rank - 1];
    int64_t run = SHORT_RUN;
    while (n > run << (GD_GPU_STEPS - 1))
        run *= 2;
    job->workspace = 2 * (size_t)gd_layout_count(x) * sizeof(int64_t);
    add_pass(call, job, loops, false, run, false);
    for (; run < n; run *= 2)
        add_pass(call, job, loops, true, run, 2 * run >= n);
}

bool gd_gpu_describe_argsort(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *x = call->in[0].layout;
    const int last = x->rank - 1;
    const gd_layout lines = across(x, last);
    gd_loops loops;
    if (gd_layout_count(x) == 0)
        return true;
    gd_codegen_merge(&loops, &lines, (const gd_layout *[]){ &lines }, 1);
    if (x->shape[last] <= LONGEST_LINE)
        add_short_sort(call, job, &loops);
    else
        add_long_sort(call, job, &loops);
    return true;
}

bool gd_gpu_describe_searchsorted(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *sorted = call->in[0].layout, *values = call->in[1].layout;
    const int64_t items = gd_layout_count(values);
    gd_loops loops;
    if (items == 0)
        return true;
    gd_codegen_merge(&loops, values, (const gd_layout *[]){ values }, 1);
    gd_gpu_step *s = gd_gpu_add_kernel(job, "search_places", gd_gpu_groups(items, ITEMS), ITEMS);
    define_key(s, sorted->dtype);
    for (int i = 0; i < 3; i++)
        gd_gpu_add_place(s, i);
    gd_gpu_add_number(s, items);
    gd_gpu_add_number(s, sorted->shape[0]);
    gd_gpu_add_number(s, sorted->stride[0]);
    gd_gpu_add_number(s, ((const gd_search_attr *)call->attr)->right);
    gd_gpu_add_loops(s, &loops);
    return true;
}
