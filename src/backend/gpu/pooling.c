/* backend/gpu/pooling.c: max_pool, max_pool_index, avg_pool and the gradients of pooling. The kernels
 * are in codegen/device/pool.txt. Operands are contiguous (the ops' infer sees to it). */
#include "backend/gpu/gpu.h"

#include "ops/spatial.h"

enum { ITEMS = 128 };

static void add_numbers(const gd_pool_sizes *s, int64_t count, gd_gpu_step *step)
{
    const gd_pool_attr *attr = s->attr;
    const int64_t *const axes[] = { s->in,        s->out,      attr->kernel,  attr->stride,
                                    attr->before, attr->after, attr->dilation };
    gd_gpu_add_number(step, count);
    for (int i = 0; i < 7; i++)
        for (int a = 0; a < GD_SPATIAL; a++)
            gd_gpu_add_number(step, axes[i][a]);
    gd_gpu_add_number(step, attr->adaptive);
    gd_gpu_add_number(step, attr->exclude_pad);
    gd_gpu_add_number(step, s->in_plane);
    gd_gpu_add_number(step, s->out_plane);
}

/* The kernel of pooling, or NULL for a gradient. */
static const char *kernel_of(gd_op_id op)
{
    return op == GD_OP_max_pool         ? "max_pool"
           : op == GD_OP_max_pool_index ? "max_pool_index"
           : op == GD_OP_avg_pool       ? "avg_pool"
                                        : NULL;
}

bool gd_gpu_describe_pooling(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_op_id op = call->op->id;
    const gd_layout *first = call->in[0].layout, *out = call->out.layout;
    const bool is_max_grad = op == GD_OP_max_pool_grad, is_grad = !kernel_of(op);
    const int64_t count = gd_layout_count(out);
    if (first->dtype != GD_F32 && first->dtype != GD_F64)
        return false;
    if (count == 0)
        return true;
    const gd_pool_sizes s = is_grad ? gd_pool_sizes_of(out, first, call->attr)
                                    : gd_pool_sizes_of(first, out, call->attr);
    gd_gpu_step *step = gd_gpu_add_kernel(job, is_grad ? "pool_grad" : kernel_of(op),
                                          gd_gpu_groups(count, ITEMS), ITEMS);
    gd_gpu_define(step, "T", "%s", gd_codegen_type(first->dtype));
    if (is_grad) {
        gd_gpu_define(step, "TAKES", "%s",
                      is_max_grad ? "pool_largest(p, w, plane) == place" : "1");
        gd_gpu_define(step, "SHARE(g)", "%s",
                      is_max_grad ? "(g)" : "(g) / (T)(w[0].extent * w[1].extent * w[2].extent)");
    }
    gd_gpu_add_place(step, 0);
    if (is_grad)
        gd_gpu_add_place(step, is_max_grad ? 1 : 0);
    gd_gpu_add_place(step, call->n);
    add_numbers(&s, count, step);
    return true;
}
