/* backend/gpu/reduce.c: sum, prod, max, min along any axes; argmax, argmin, cumsum, cumprod along one.
 * The kernels are in codegen/device/reduce.txt, the order that they keep is backend/cpu/reduce.h's.
 * Start at gd_gpu_describe_reduction. */
#include "backend/gpu/gpu.h"

#include "backend/cpu/reduce.h"
#include "ops/attrs.h"

enum { ITEMS = 128 };

static int64_t count_of(const gd_loops *l)
{
    int64_t count = 1;
    for (int a = 0; a < l->rank; a++)
        count *= l->size[a];
    return count;
}

/* ---- reductions ---- */

typedef struct reduction {
    gd_loops kept, reduced;
    int64_t offset, results, rows; /* rows: elements of a result */
    gd_dtype in, out;
    gd_op_id op;
} reduction;

static gd_gpu_step *add_kernel(gd_gpu_job *job, const reduction *r, const char *name,
                               int64_t groups, int items)
{
    const bool is_product = r->op == GD_OP_prod || r->op == GD_OP_cumprod;
    const char *op = r->op == GD_OP_max   ? "max"
                     : r->op == GD_OP_min ? "min"
                     : is_product         ? "prod"
                                          : "sum";
    gd_gpu_step *step = gd_gpu_add_kernel(job, name, groups, items);
    gd_gpu_define(step, "X", "%s", gd_codegen_type(r->in));
    gd_gpu_define(step, "T", "%s", gd_codegen_type(r->out));
    gd_gpu_define(step, "COMBINE", "combine_%s_%s", op, gd_codegen_suffix(r->out));
    return step;
}

/* The blocks of each result lie in the workspace and are added up there. */
static void add_tree(gd_gpu_job *job, const reduction *r, int64_t blocks, int result)
{
    int lanes = 1; /* a pair of blocks each, at first */
    while (lanes < ITEMS && 2 * lanes < blocks)
        lanes *= 2;
    job->workspace = (size_t)(blocks * r->results) * gd_dtype_size(r->out);
    gd_gpu_step *step =
        add_kernel(job, r, "reduce_tree", gd_gpu_groups(r->results, ITEMS / lanes), ITEMS);
    gd_gpu_add_place(step, GD_GPU_WORKSPACE);
    gd_gpu_add_place(step, result);
    gd_gpu_add_number(step, r->results);
    gd_gpu_add_number(step, blocks);
    gd_gpu_add_number(step, lanes);
    gd_gpu_add_number(step, ITEMS / lanes);
}

static void add_operands(gd_gpu_step *step, const reduction *r, int64_t blocks)
{
    gd_gpu_define(step, "IDENTITY", "%s", gd_codegen_identity(r->op, r->out));
    gd_gpu_add_place(step, 0);
    gd_gpu_add_place(step, blocks > 1 ? GD_GPU_WORKSPACE : 1);
    gd_gpu_add_number(step, r->results);
    gd_gpu_add_number(step, blocks);
}

static void add_loops(gd_gpu_step *step, const reduction *r)
{
    gd_gpu_add_number(step, r->offset);
    gd_gpu_add_loops(step, &r->kept);
    gd_gpu_add_loops(step, &r->reduced);
}

static void describe_rows(gd_gpu_job *job, const reduction *r)
{
    const int last = r->reduced.rank - 1;
    const bool by_runs = last > 0 && r->reduced.size[last] >= GD_REDUCE_RUN;
    const int64_t run = by_runs ? r->reduced.size[last] : r->rows;
    const int64_t run_blocks = gd_gpu_groups(run, GD_REDUCE_BLOCK);
    const int64_t blocks = r->rows / run * run_blocks;
    const int lanes = 256 / (int)gd_dtype_size(r->out) < 64 ? 32 : 64;
    const bool is_short = r->rows <= 16;
    gd_gpu_step *step =
        is_short ? add_kernel(job, r, "reduce_short_rows", gd_gpu_groups(r->results, ITEMS), ITEMS)
                 : add_kernel(job, r, "reduce_rows", r->results * blocks, lanes);
    if (!is_short)
        gd_gpu_define(step, "LANES", "%d", lanes);
    add_operands(step, r, blocks);
    gd_gpu_add_number(step, run);
    gd_gpu_add_number(step, run_blocks);
    add_loops(step, r);
    if (blocks > 1)
        add_tree(job, r, blocks, 1);
}

static void describe_columns(gd_gpu_job *job, const reduction *r)
{
    const int64_t columns = r->kept.size[r->kept.rank - 1];
    int64_t lanes = 1;
    while (columns < GD_REDUCE_NARROW && 2 * lanes * columns <= GD_REDUCE_WIDE &&
           2 * lanes * 4 <= r->rows)
        lanes *= 2;
    int64_t block_rows = GD_REDUCE_BLOCK_ROWS * lanes;
    while (r->rows / block_rows >= GD_REDUCE_MAX_BLOCKS)
        block_rows *= 2;
    const int64_t width = columns < ITEMS ? columns : ITEMS;
    const int64_t blocks = (r->rows + block_rows - 1) / block_rows;
    const int64_t outer = r->results / columns;
    gd_gpu_step *step = add_kernel(job, r, "reduce_columns",
                                   gd_gpu_groups(columns, (int)width) * blocks * outer, ITEMS);
    add_operands(step, r, blocks);
    gd_gpu_add_number(step, r->rows);
    gd_gpu_add_number(step, block_rows);
    gd_gpu_add_number(step, columns);
    gd_gpu_add_number(step, width);
    gd_gpu_add_number(step, lanes);
    add_loops(step, r);
    if (blocks > 1)
        add_tree(job, r, blocks, 1);
}

/* Results that no element goes into. */
static void describe_nothing(gd_gpu_job *job, const reduction *r)
{
    gd_gpu_step *step =
        add_kernel(job, r, "reduce_nothing", gd_gpu_groups(r->results, ITEMS), ITEMS);
    gd_gpu_define(step, "IDENTITY", "%s", gd_codegen_identity(r->op, r->out));
    gd_gpu_add_place(step, 1);
    gd_gpu_add_number(step, r->results);
}

bool gd_gpu_describe_reduction(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *in = call->in[0].layout;
    reduction r = { .in = in->dtype, .out = call->out.layout->dtype, .op = call->op->id };
    if (!gd_codegen_type(r.in) || !gd_codegen_type(r.out))
        return false;
    const gd_reduce_loops loops = gd_codegen_reduce(in, ((const gd_reduce_attr *)call->attr)->axes);
    r.kept = loops.kept;
    r.reduced = loops.reduced;
    r.offset = loops.offset;
    r.results = count_of(&r.kept);
    r.rows = count_of(&r.reduced);
    if (r.results == 0)
        return true;
    if (r.rows == 0)
        describe_nothing(job, &r);
    else if (loops.is_by_columns)
        describe_columns(job, &r);
    else
        describe_rows(job, &r);
    return true;
}

/* ---- along one axis ---- */

gd_loops gd_gpu_lines_of(const gd_layout *in, const gd_layout *out, int axis)
{
    gd_layout lines[2] = { *in, *in };
    int64_t stride = 1;
    for (int i = in->rank - 1; i >= 0; i--) {
        lines[1].stride[i] = stride;
        stride *= out->rank == in->rank ? out->shape[i] : i == axis ? 1 : in->shape[i];
    }
    for (int k = 0; k < 2 && in->rank > 0; k++)
        lines[k].shape[axis] = 1;
    gd_loops l;
    gd_codegen_merge(&l, &lines[0], (const gd_layout *[]){ &lines[0], &lines[1] }, 2);
    return l;
}

bool gd_gpu_describe_arg_reduction(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *in = call->in[0].layout;
    const int axis = ((const gd_axis_attr *)call->attr)->axis;
    const int64_t n = in->rank ? in->shape[axis] : 1, step = in->rank ? in->stride[axis] : 1;
    const gd_loops lines = gd_gpu_lines_of(in, call->out.layout, axis);
    const int64_t results = count_of(&lines);
    if (!gd_codegen_type(in->dtype) || call->out.layout->dtype != GD_I64 || n == 0)
        return false;
    if (results == 0)
        return true;
    const bool by_groups = n >= 64 && (step == 1 || results < ITEMS);
    gd_gpu_step *s =
        by_groups ? gd_gpu_add_kernel(job, "arg_line", results, 64)
                  : gd_gpu_add_kernel(job, "arg_lines", gd_gpu_groups(results, ITEMS), ITEMS);
    gd_gpu_define(s, "X", "%s", gd_codegen_type(in->dtype));
    gd_gpu_define(s, "BEATS", "%s_%s", call->op->id == GD_OP_argmax ? "beats" : "is_beaten",
                  gd_codegen_suffix(in->dtype));
    gd_gpu_add_place(s, 0);
    gd_gpu_add_place(s, 1);
    gd_gpu_add_number(s, results);
    gd_gpu_add_number(s, n);
    gd_gpu_add_number(s, step);
    gd_gpu_add_loops(s, &lines);
    return true;
}

bool gd_gpu_describe_scan(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *in = call->in[0].layout, *out = call->out.layout;
    const int axis = ((const gd_axis_attr *)call->attr)->axis;
    const reduction r = { .in = in->dtype, .out = out->dtype, .op = call->op->id };
    const gd_loops lines = gd_gpu_lines_of(in, out, axis);
    const int64_t results = count_of(&lines), n = in->rank ? in->shape[axis] : 1;
    if (!gd_codegen_type(r.in) || !gd_codegen_type(r.out))
        return false;
    if (results == 0 || n == 0)
        return true;
    gd_gpu_step *s = add_kernel(job, &r, "scan_lines", gd_gpu_groups(results, ITEMS), ITEMS);
    gd_gpu_add_place(s, 0);
    gd_gpu_add_place(s, 1);
    gd_gpu_add_number(s, results);
    gd_gpu_add_number(s, n);
    gd_gpu_add_number(s, in->rank ? in->stride[axis] : 1);
    gd_gpu_add_number(s, in->rank ? out->stride[axis] : 1);
    gd_gpu_add_loops(s, &lines);
    return true;
}
