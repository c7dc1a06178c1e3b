/* backend/gpu/softmax.c: softmax, log_softmax, cross_entropy and its gradient. The kernels are in
 * codegen/device/softmax.txt, the order that they keep is backend/cpu/softmax.h's. Start at
 * gd_gpu_describe_softmax and gd_gpu_describe_cross_entropy. */
#include "backend/gpu/gpu.h"

#include "backend/cpu/reduce.h"
#include "ops/attrs.h"

enum {
    ITEMS = 128,
    ITEMS_A_ROW = 256, /* of several blocks */
};

/* Lines of n elements: how they are added up. */
typedef struct lines {
    int64_t count, n;
    gd_dtype dtype;
    bool by_rows;
} lines;

/* A kernel for the lines: a group a row, or an item a line. */
static gd_gpu_step *add_kernel(gd_gpu_job *job, const lines *l, const char *by_group,
                               const char *by_item)
{
    const int size = (int)gd_dtype_size(l->dtype), lanes = 256 / size;
    const bool by_items = !l->by_rows || l->n <= 64 / size;
    const int teams = by_items || l->n <= GD_REDUCE_BLOCK ? 1 : ITEMS_A_ROW / lanes;
    int64_t block = l->by_rows ? GD_REDUCE_BLOCK : GD_REDUCE_BLOCK_ROWS;
    while (!l->by_rows && l->n / block >= GD_REDUCE_MAX_BLOCKS)
        block *= 2;
    gd_gpu_step *s = by_items
                         ? gd_gpu_add_kernel(job, by_item, gd_gpu_groups(l->count, ITEMS), ITEMS)
                         : gd_gpu_add_kernel(job, by_group, l->count, teams * lanes);
    gd_gpu_define(s, "T", "%s", gd_codegen_type(l->dtype));
    gd_gpu_define(s, "EXP", "gd_exp_%s", gd_codegen_suffix(l->dtype));
    if (by_items) {
        gd_gpu_define(s, "BLOCK", "%lld", (long long)block);
        gd_gpu_define(s, "LEVELS", "%d", l->n > block ? GD_REDUCE_LEVELS : 1);
    } else {
        gd_gpu_define(s, "LANES", "%d", lanes);
        gd_gpu_define(s, "TEAMS", "%d", teams);
    }
    return s;
}

static void define_log_softmax(gd_gpu_step *s, gd_dtype dtype)
{
    gd_gpu_define(s, "FACTOR(sum)", "gd_log_%s(sum)", gd_codegen_suffix(dtype));
    gd_gpu_define(s, "RESULT(x, most, factor)", "((x) - (most)) - (factor)");
}

bool gd_gpu_describe_softmax(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *in = call->in[0].layout, *out = call->out.layout;
    const int axis = in->rank ? ((const gd_axis_attr *)call->attr)->axis : 0;
    const int64_t count = gd_layout_count(in), n = in->rank ? in->shape[axis] : 1;
    if (in->dtype != GD_F32 && in->dtype != GD_F64)
        return false;
    if (count == 0)
        return true;
    const gd_loops loops = gd_gpu_lines_of(in, out, axis);
    const int64_t out_step = in->rank ? out->stride[axis] : 1;
    const lines l = {
        .count = count / n, .n = n, .dtype = in->dtype, .by_rows = in->rank == 0 || out_step == 1
    };
    gd_gpu_step *s = add_kernel(job, &l, "softmax_row", "softmax_lines");
    if (call->op->id == GD_OP_log_softmax) {
        define_log_softmax(s, in->dtype);
    } else {
        gd_gpu_define(s, "FACTOR(sum)", "1 / (sum)");
        gd_gpu_define(s, "RESULT(x, most, factor)", "EXP((x) - (most)) * (factor)");
    }
    gd_gpu_add_place(s, 0);
    gd_gpu_add_place(s, 1);
    gd_gpu_add_number(s, l.count);
    gd_gpu_add_number(s, n);
    gd_gpu_add_number(s, in->rank ? in->stride[axis] : 1);
    gd_gpu_add_number(s, out_step);
    gd_gpu_add_loops(s, &loops);
    return true;
}

/* ---- cross entropy ---- */

/* Labels that are no class are found before. */
static void add_label_check(gd_gpu_job *job, const gd_kernel_call *call, int64_t classes)
{
    const gd_layout *labels = call->in[1].layout;
    gd_loops loops;
    gd_codegen_merge(&loops, labels, (const gd_layout *[]){ labels, labels }, 2);
    for (int a = 0; a < loops.rank; a++)
        loops.stride[1][a] = 1;
    gd_gpu_step *s = gd_gpu_add_kernel(job, "check_indices", 1, ITEMS);
    gd_gpu_define(s, "I", "%s", gd_codegen_type(labels->dtype));
    gd_gpu_add_place(s, 1);
    gd_gpu_add_place(s, GD_GPU_FOUND);
    gd_gpu_add_number(s, gd_layout_count(labels));
    gd_gpu_add_number(s, classes);
    gd_gpu_add_number(s, call->op->id);
    gd_gpu_add_number(s, 0);
    gd_gpu_add_loops(s, &loops);
}

bool gd_gpu_describe_cross_entropy(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *in = call->in[0].layout, *labels = call->in[1].layout;
    const bool is_grad = call->op->id == GD_OP_cross_entropy_grad;
    const lines l = { .count = in->shape[0],
                      .n = in->shape[1],
                      .dtype = in->dtype,
                      .by_rows = is_grad || in->stride[1] == 1 || in->shape[1] == 1 };
    if ((l.dtype != GD_F32 && l.dtype != GD_F64) || l.n == 0 ||
        (labels->dtype != GD_I64 && labels->dtype != GD_I32 && labels->dtype != GD_U8))
        return false;
    if (l.count == 0)
        return true;
    add_label_check(job, call, l.n);
    gd_gpu_step *s = add_kernel(job, &l, "cross_entropy_row", "cross_entropy_lines");
    gd_gpu_define(s, "I", "%s", gd_codegen_type(labels->dtype));
    gd_gpu_define(s, "LOG", "gd_log_%s", gd_codegen_suffix(l.dtype));
    gd_gpu_define(s, "LOSS", "%s", is_grad ? "LOSS_GRADIENT" : "LOSS_VALUE");
    gd_gpu_add_place(s, 0);
    gd_gpu_add_place(s, 1);
    gd_gpu_add_place(s, is_grad ? 2 : 0);
    gd_gpu_add_place(s, call->n);
    gd_gpu_add_number(s, l.count);
    gd_gpu_add_number(s, l.n);
    gd_gpu_add_number(s, in->stride[0]);
    gd_gpu_add_number(s, in->stride[1]);
    gd_gpu_add_number(s, labels->stride[0]);
    gd_gpu_add_number(s, is_grad ? call->in[2].layout->stride[0] : 0);
    return true;
}
