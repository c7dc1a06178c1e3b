/* backend/gpu/norm.c: normalize and normalize_grad. The kernels are in codegen/device/norm.txt, the
 * order that they keep is backend/cpu/norm.h's. Operands are contiguous (the ops' infer sees to
 * it). */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "ops/attrs.h"

enum { LANES = 32, ITEMS = 128 };

static void add_numbers(const gd_kernel_call *call, gd_gpu_step *step)
{
    const gd_norm_attr *attr = call->attr;
    const gd_layout *x = call->in[0].layout;
    const int64_t rows = gd_norm_rows(x);
    int64_t epsilon;
    memcpy(&epsilon, &attr->epsilon, sizeof epsilon);
    gd_gpu_add_number(step, rows);
    gd_gpu_add_number(step, x->shape[x->rank - 1]);
    gd_gpu_add_number(step, attr->center);
    gd_gpu_add_number(step, attr->parts);
    gd_gpu_add_number(step, epsilon);
    gd_gpu_add_number(step, gd_norm_block_rows(rows));
    gd_gpu_add_number(step, gd_norm_blocks(rows));
}

/* A kernel of four operands or, with `kept`, five. */
static void add_kernel(const gd_kernel_call *call, gd_gpu_job *job, const char *name,
                       int64_t groups, int items, const int *places, int count)
{
    gd_gpu_step *step = gd_gpu_add_kernel(job, name, groups, items);
    gd_gpu_define(step, "T", "%s", gd_codegen_type(call->out.layout->dtype));
    for (int i = 0; i < count; i++)
        gd_gpu_add_place(step, places[i]);
    add_numbers(call, step);
}

static bool is_taken(const gd_kernel_call *call)
{
    const gd_dtype dtype = call->out.layout->dtype;
    return dtype == GD_F32 || dtype == GD_F64;
}

bool gd_gpu_describe_normalize(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *x = call->in[0].layout;
    const int parts = ((const gd_norm_attr *)call->attr)->parts;
    const int places[] = { 0, parts > 0 ? 1 : 0, parts > 1 ? 2 : 0, call->n };
    if (!is_taken(call))
        return false;
    if (gd_layout_count(x) > 0)
        add_kernel(call, job, "normalize_row", gd_norm_rows(x), LANES, places, 4);
    return true;
}

bool gd_gpu_describe_normalize_grad(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *x = call->in[0].layout;
    const int parts = ((const gd_norm_attr *)call->attr)->parts;
    const int64_t rows = gd_norm_rows(x), k = x->shape[x->rank - 1];
    const int by_row[] = { 0, 1, parts > 0 ? 2 : 0, call->n, GD_GPU_WORKSPACE };
    const int by_column[] = { 0, 1, GD_GPU_WORKSPACE, call->n };
    if (!is_taken(call))
        return false;
    if (gd_layout_count(x) == 0)
        return k == 0 || gd_layout_count(call->out.layout) == 0;
    job->workspace = 2 * (size_t)rows * gd_dtype_size(call->out.layout->dtype);
    add_kernel(call, job, "normalize_grad_row", rows, LANES, by_row, 5);
    if (parts > 0)
        add_kernel(call, job, "normalize_sums", gd_gpu_groups(gd_norm_blocks(rows) * k, ITEMS),
                   ITEMS, by_column, 4);
    return true;
}
