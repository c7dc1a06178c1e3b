/* backend/gpu/product.c: matmul, linear, matmul_relu_grad, and convolution with its gradients. There is
 * one kernel, in codegen/device/product.txt; the orders that it keeps are those of
 * backend/cpu/gemm.h and conv.h. Start at gd_gpu_describe_product. */
#include "backend/gpu/gpu.h"

#include "backend/cpu/gemm.h"
#include "ops/spatial.h"

enum {
    ITEMS = 256,
    LARGE = 8,        /* elements along both axes that an item of a large product makes */
    MANY_GROUPS = 64, /* work for half of the multiprocessors of a large device */
};

/* ---- definitions that all have ---- */

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

/* Outputs of m rows and n columns. */
typedef struct outputs {
    int64_t m, n, products;
} outputs;

/* An item makes so many elements along both axes. The more, the fewer reads for each product of two
 * numbers; but 8 x 8 of f64 do not fit in registers, nor do those of f32 with what a convolution needs
 * to find its operands, and few large squares leave multiprocessors without work. */
static int work_of(const outputs *out, bool may_be_large)
{
    const int tile = LARGE * 16;
    if (may_be_large && out->m >= tile && out->n >= tile &&
        out->products * gd_gpu_groups(out->m, tile) * gd_gpu_groups(out->n, tile) >= MANY_GROUPS)
        return LARGE;
    return out->m >= 64 && out->n >= 64 ? 4 : 1;
}

/* `kind`: which functions of the text say what is multiplied. */
static gd_gpu_step *add_product(gd_gpu_job *job, const char *kind, gd_dtype dtype,
                                const outputs *out, int work)
{
    const int tile = 16 * work;
    gd_gpu_step *step = gd_gpu_add_kernel(
        job, "product", out->products * gd_gpu_groups(out->m, tile) * gd_gpu_groups(out->n, tile),
        ITEMS);
    gd_gpu_define(step, "T", "%s", element_of(dtype));
    gd_gpu_define(step, "WORK", "%d", work);
    gd_gpu_define(step, "PIECE", "%s_piece", kind);
    gd_gpu_define(step, "TO", "%s_to", kind);
    return step;
}

static void define_order(gd_gpu_step *step, const char *block, const char *multiply_add)
{
    gd_gpu_define(step, "BLOCK", "%s", block);
    gd_gpu_define(step, "MULTIPLY_ADD(x, y, s)", "%s", multiply_add);
}

static void add_places(const gd_kernel_call *call, gd_gpu_step *step, int left, int right)
{
    gd_gpu_add_place(step, left);
    gd_gpu_add_place(step, right);
    gd_gpu_add_place(step, call->n > 2 ? 2 : 0);
    gd_gpu_add_place(step, call->n);
}

/* ---- products ---- */

/* Whether neighbours along k are neighbours in memory, the kernel of large products knows when it is
 * compiled. */
static void define_matrices(const gd_kernel_call *call, gd_gpu_step *step, bool is_large)
{
    const gd_layout *x = call->in[0].layout, *w = call->in[1].layout;
    const char *left = x->stride[x->rank - 1] == 1 ? "1" : "0",
               *right = w->stride[w->rank - 2] == 1 ? "1" : "0";
    gd_gpu_define(step, "P", "matmul_numbers");
    gd_gpu_define(step, "LEFT_BEGIN", "matmul_left_begin");
    gd_gpu_define(step, "RIGHT_BEGIN", "matmul_right_begin");
    gd_gpu_define(step, "LEFT_NEXT", "matmul_left_next");
    gd_gpu_define(step, "RIGHT_NEXT", "matmul_right_next");
    gd_gpu_define(step, "LEFT", "matmul_at");
    gd_gpu_define(step, "RIGHT", "matmul_at");
    gd_gpu_define(step, "LEFT_BY_DEPTH", "%s", is_large ? left : "(p.a_step == 1)");
    gd_gpu_define(step, "RIGHT_BY_DEPTH", "%s", is_large ? right : "(p.b_row == 1)");
}

/* What happens to a sum on its way out: bias, then ReLU; or the ReLU's gradient. LAST: what else that
 * reads. */
static void define_finish(const gd_kernel_call *call, gd_gpu_step *step)
{
    const gd_dtype dtype = call->out.layout->dtype;
    const bool is_linear = call->op->id == GD_OP_linear, has_bias = is_linear && call->n > 2;
    const bool is_grad = call->op->id == GD_OP_matmul_relu_grad;
    const char *sum = has_bias ? "((s) + (l))" : "(s)";
    gd_gpu_define(step, "LAST", "%s",
                  is_grad    ? "last[to]"
                  : has_bias ? "last[j * p.last_step]"
                             : "(T)0");
    if (is_grad)
        gd_gpu_define(step, "FINISH(s, l)", "((l) > 0 ? (s) : (T)0)");
    else if (is_linear && ((const gd_linear_attr *)call->attr)->relu)
        gd_gpu_define(step, "FINISH(s, l)", "(T)relu_%s(%s)", gd_codegen_suffix(dtype), sum);
    else
        gd_gpu_define(step, "FINISH(s, l)", "(T)%s", sum);
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

static void add_product_numbers(const gd_kernel_call *call, gd_gpu_step *step)
{
    const gd_layout *x = call->in[0].layout, *w = call->in[1].layout, *out = call->out.layout;
    const int64_t n = w->shape[w->rank - 1];
    const bool has_bias = call->op->id == GD_OP_linear && call->n > 2;
    const gd_loops batch = batch_of(x, w, out);
    gd_gpu_add_number(step, x->shape[x->rank - 2]);
    gd_gpu_add_number(step, n);
    gd_gpu_add_number(step, x->shape[x->rank - 1]);
    gd_gpu_add_number(step, x->stride[x->rank - 2]);
    gd_gpu_add_number(step, x->stride[x->rank - 1]);
    gd_gpu_add_number(step, w->stride[w->rank - 2]);
    gd_gpu_add_number(step, w->stride[w->rank - 1]);
    gd_gpu_add_number(step, has_bias && n > 1 ? call->in[2].layout->stride[0] : 0);
    gd_gpu_add_loops(step, &batch);
}

static void define_product(const gd_kernel_call *call, gd_gpu_step *step)
{
    const gd_dtype dtype = call->out.layout->dtype;
    define_order(step, "256",
                 dtype == GD_F32   ? "GD_FMA_F32(x, y, s)"
                 : dtype == GD_F64 ? "GD_FMA_F64(x, y, s)"
                                   : "(T)((s) + (x) * (y))");
    define_finish(call, step);
    add_places(call, step, 0, 1);
    add_product_numbers(call, step);
}

void gd_gpu_finish_product(const gd_kernel_call *call, gd_gpu_step *step)
{
    gd_gpu_define(step, "T", "%s", element_of(call->out.layout->dtype));
    define_product(call, step);
}

bool gd_gpu_describe_product(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *x = call->in[0].layout, *w = call->in[1].layout, *out = call->out.layout;
    const int64_t m = x->shape[x->rank - 2], n = w->shape[w->rank - 1];
    const gd_dtype dtype = out->dtype;
    if (gd_gpu_is_library_product(call))
        return gd_gpu_describe_library_product(call, job);
    if (!element_of(dtype) || (gd_dtype_is_half(x->dtype) && x->shape[x->rank - 1] > 0))
        return false;
    if (gd_layout_count(out) == 0)
        return true;
    const outputs of = { m, n, gd_layout_count(out) / (m * n) };
    const int work = work_of(&of, dtype == GD_F32);
    gd_gpu_step *step = add_product(job, "matmul", dtype, &of, work);
    define_matrices(call, step, work == LARGE);
    define_product(call, step);
    return true;
}

/* ---- convolution: f32 as products, f64 as plain chains of products and sums ---- */

static void add_conv_numbers(const gd_conv_sizes *s, const gd_conv_attr *attr, gd_gpu_step *step)
{
    const int64_t *const axes[] = { s->in,        s->kernel,    s->out,
                                    attr->stride, attr->before, attr->dilation };
    gd_gpu_add_number(step, s->n);
    gd_gpu_add_number(step, s->groups);
    gd_gpu_add_number(step, s->c);
    gd_gpu_add_number(step, s->o);
    for (int i = 0; i < 6; i++)
        for (int a = 0; a < GD_SPATIAL; a++)
            gd_gpu_add_number(step, axes[i][a]);
    gd_gpu_add_number(step, s->in_plane);
    gd_gpu_add_number(step, s->taps);
    gd_gpu_add_number(step, s->out_plane);
}

static gd_conv_sizes sizes_of(const gd_kernel_call *call)
{
    const gd_layout *a = call->in[0].layout, *b = call->in[1].layout, *out = call->out.layout;
    const int64_t groups = ((const gd_conv_attr *)call->attr)->groups;
    return call->op->id == GD_OP_convolution              ? gd_conv_sizes_of(a, b, out, groups)
           : call->op->id == GD_OP_convolution_grad_input ? gd_conv_sizes_of(out, b, a, groups)
                                                          : gd_conv_sizes_of(b, out, a, groups);
}

static void define_images(gd_gpu_step *step, const char *kind)
{
    gd_gpu_define(step, "P", "conv_numbers");
    gd_gpu_define(step, "LEFT_BEGIN", "conv_begin");
    gd_gpu_define(step, "RIGHT_BEGIN", "conv_begin");
    gd_gpu_define(step, "LEFT_NEXT", "conv_next");
    gd_gpu_define(step, "RIGHT_NEXT", "conv_next");
    gd_gpu_define(step, "LEFT", "%s_left", kind);
    gd_gpu_define(step, "RIGHT", "%s_right", kind);
    gd_gpu_define(step, "LEFT_BY_DEPTH", "1");
}

/* The kernel counts a product's rows, columns and steps in 32 bits. */
static bool is_small(const gd_conv_sizes *s)
{
    const double most = INT32_MAX;
    return (double)s->n * (double)s->out_plane < most && (double)s->in_plane < most &&
           (double)s->c * (double)s->taps < most && (double)s->o * (double)s->taps < most;
}

static gd_gpu_step *add_grad_input(gd_gpu_job *job, const gd_conv_sizes *s,
                                   const gd_conv_attr *attr, gd_dtype dtype)
{
    int64_t most = 1, phases = 1;
    for (int a = 0; a < GD_SPATIAL; a++) {
        most *= (s->in[a] + attr->stride[a] - 1) / attr->stride[a];
        phases *= attr->stride[a] < s->in[a] ? attr->stride[a] : s->in[a];
    }
    const outputs of = { s->c, most, s->n * s->groups * phases };
    gd_gpu_step *step = add_product(job, "conv_input", dtype, &of, work_of(&of, false));
    step->is_uneven = phases > 1;
    return step;
}

/* f32 adds 0 where there is no bias. */
static void define_conv_finish(const gd_kernel_call *call, gd_gpu_step *step)
{
    const bool is_forward = call->op->id == GD_OP_convolution,
               is_f32 = call->out.layout->dtype == GD_F32;
    const bool has_bias = is_forward && call->n > 2;
    const char *sum = has_bias                                                  ? "((s) + (l))"
                      : is_f32 && call->op->id != GD_OP_convolution_grad_weight ? "((s) + 0)"
                                                                                : "(s)";
    gd_gpu_define(step, "LAST", "%s", has_bias ? "last[o.product % p.groups * p.o + i]" : "(T)0");
    if (is_forward && ((const gd_conv_attr *)call->attr)->relu)
        gd_gpu_define(step, "FINISH(s, l)", "relu_%s(%s)", is_f32 ? "f32" : "f64", sum);
    else
        gd_gpu_define(step, "FINISH(s, l)", "%s", sum);
}

bool gd_gpu_describe_convolution(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_conv_attr *attr = call->attr;
    const gd_dtype dtype = call->out.layout->dtype;
    const gd_conv_sizes s = sizes_of(call);
    const bool is_forward = call->op->id == GD_OP_convolution,
               is_by_weight = call->op->id == GD_OP_convolution_grad_weight;
    if ((dtype != GD_F32 && dtype != GD_F64) || call->in[0].layout->dtype != dtype || !is_small(&s))
        return false;
    if (gd_layout_count(call->out.layout) == 0 ||
        gd_gpu_describe_library_convolution(call, &s, job))
        return true;
    const outputs forward = { s.o, s.out_plane, s.n * s.groups },
                  by_weight = { s.o, s.c * s.taps, s.groups };
    gd_gpu_step *step =
        is_forward ? add_product(job, "conv", dtype, &forward, work_of(&forward, false))
        : is_by_weight
            ? add_product(job, "conv_weight", dtype, &by_weight, work_of(&by_weight, false))
            : add_grad_input(job, &s, attr, dtype);
    define_images(step, is_forward ? "conv" : is_by_weight ? "conv_weight" : "conv_input");
    gd_gpu_define(step, "RIGHT_BY_DEPTH", "%d", is_by_weight);
    if (dtype == GD_F32)
        define_order(step, "256", "GD_FMA_F32(x, y, s)");
    else
        define_order(step, "INT64_MAX / 2", "((s) + (x) * (y))");
    define_conv_finish(call, step);
    add_places(call, step, is_by_weight ? 0 : 1, is_by_weight ? 1 : 0);
    add_conv_numbers(&s, attr, step);
    return true;
}
