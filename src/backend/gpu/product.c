/* backend/gpu/product.c: matmul, linear and matmul_relu_grad. The kernel is in
 * codegen/device/product.txt, the order that it keeps is backend/cpu/gemm.h's. Start at
 * gd_gpu_describe_product. */
#include "backend/gpu/gpu.h"

#include "ops/attrs.h"

enum { ITEMS = 256 };

/* How whole numbers of a dtype are multiplied: of these bits, overflow wrapping. */
static const char *element_of(gd_dtype dtype)
{
    return dtype == GD_F32   ? "float"
           : dtype == GD_F64 ? "double"
           : dtype == GD_I32 ? "uint32_t"
           : dtype == GD_I64 ? "uint64_t"
           : dtype == GD_U8  ? "uint8_t"
                             : NULL;
}

/* What happens to a sum on its way out: bias, then ReLU; or the ReLU's gradient. */
static void define_finish(const gd_kernel_call *call, gd_gpu_step *step)
{
    const gd_dtype dtype = call->out.layout->dtype;
    const bool is_linear = call->op->id == GD_OP_linear;
    const char *sum = is_linear && call->n > 2 ? "((s) + last[q * p.last_step])" : "(s)";
    if (call->op->id == GD_OP_matmul_relu_grad)
        gd_gpu_define(step, "FINISH(s)", "(last[to] > 0 ? (s) : (T)0)");
    else if (is_linear && ((const gd_linear_attr *)call->attr)->relu)
        gd_gpu_define(step, "FINISH(s)", "(T)relu_%s(%s)", gd_codegen_suffix(dtype), sum);
    else
        gd_gpu_define(step, "FINISH(s)", "(T)%s", sum);
}

static void define_types(gd_dtype dtype, int work, gd_gpu_step *step)
{
    gd_gpu_define(step, "T", "%s", element_of(dtype));
    gd_gpu_define(step, "WORK", "%d", work);
    if (dtype == GD_F32 || dtype == GD_F64)
        gd_gpu_define(step, "MULTIPLY_ADD(x, y, s)", "GD_FMA_%s(x, y, s)",
                      dtype == GD_F32 ? "F32" : "F64");
    else
        gd_gpu_define(step, "MULTIPLY_ADD(x, y, s)", "(T)((s) + (x) * (y))");
}

/* Where the products of a batch begin, in both operands. */
static gd_loops batch_of(const gd_layout *x, const gd_layout *w, const gd_layout *out)
{
    gd_layout over = *out, of[2] = { *x, *w };
    over.rank = out->rank - 2;
    of[0].rank = x->rank - 2;
    of[1].rank = w->rank - 2;
    gd_loops l;
    gd_codegen_merge(&l, &over, (const gd_layout *[]){ &of[0], &of[1] }, 2);
    return l;
}

bool gd_gpu_describe_product(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *x = call->in[0].layout, *w = call->in[1].layout, *out = call->out.layout;
    const int64_t m = x->shape[x->rank - 2], n = w->shape[w->rank - 1];
    if (!element_of(out->dtype))
        return false;
    if (gd_layout_count(out) == 0)
        return true;
    const int64_t products = gd_layout_count(out) / (m * n);
    const int work = m >= 64 && n >= 64 ? 4 : 1;
    const int tile = 16 * work;
    gd_gpu_step *step = gd_gpu_add_kernel(
        job, "product", products * gd_gpu_groups(m, tile) * gd_gpu_groups(n, tile), ITEMS);
    define_types(out->dtype, work, step);
    define_finish(call, step);
    gd_gpu_add_place(step, 0);
    gd_gpu_add_place(step, 1);
    gd_gpu_add_place(step, call->n > 2 ? 2 : 0);
    gd_gpu_add_place(step, call->n);
    gd_gpu_add_number(step, m);
    gd_gpu_add_number(step, n);
    gd_gpu_add_number(step, x->shape[x->rank - 1]);
    gd_gpu_add_number(step, x->stride[x->rank - 2]);
    gd_gpu_add_number(step, x->stride[x->rank - 1]);
    gd_gpu_add_number(step, w->stride[w->rank - 2]);
    gd_gpu_add_number(step, w->stride[w->rank - 1]);
    gd_gpu_add_number(step, call->op->id == GD_OP_linear && call->n > 2 && n > 1
                                ? call->in[2].layout->stride[0]
                                : 0);
    const gd_loops batch = batch_of(x, w, out);
    gd_gpu_add_loops(step, &batch);
    return true;
}
