/* backend/gpu/product.c: matmul, linear, matmul_relu_grad, and convolution with its gradients. There is
 * one kernel, in codegen/device/product.txt, and one of large matrices in product_large.txt; the orders
 * that they keep are those of backend/cpu/gemm.h and conv.h. How the work is divided is chosen in product_choose.c. Start at
 * gd_gpu_describe_product. */
#include "backend/gpu/product.h"

#include "backend/cpu/gemm.h"
#include "backend/gpu/gpu.h"
#include "ops/spatial.h"

enum {
    ADDING_ITEMS = 64,
    SPLIT_NUMBERS = 4,
    LARGE = 128, /* rows and columns of a tile of product_large.txt */
};

/* What a call multiplies. */
typedef struct product {
    const gd_kernel_call *call;
    const gd_conv_sizes *conv; /* NULL: matrices */
    const char *kind;          /* the functions of the text that say what is multiplied */
    bool is_uneven;            /* some of the products have fewer columns and steps */
    gd_gpu_product_size size;
    gd_gpu_product_plan plan;
} product;

/* How whole numbers of a dtype are multiplied: of these bits, overflow wrapping. "": it has no kernel. */
static const char *element_of(gd_dtype dtype)
{
    return dtype == GD_F32   ? "float"
           : dtype == GD_F64 ? "double"
           : dtype == GD_I32 ? "uint32_t"
           : dtype == GD_I64 ? "uint64_t"
           : dtype == GD_U8  ? "uint8_t"
                             : "";
}

/* ---- products ---- */

/* Whether neighbours along k are neighbours in memory. */
static bool left_by_depth(const gd_kernel_call *call)
{
    const gd_layout *x = call->in[0].layout;
    return x->stride[x->rank - 1] == 1;
}

static bool right_by_depth(const gd_kernel_call *call)
{
    const gd_layout *w = call->in[1].layout;
    return w->stride[w->rank - 2] == 1;
}

/* Of two matrices whose rows or columns are contiguous, in the largest tiles: product_large.txt. */
static bool is_large_matrix(const product *o)
{
    const gd_layout *x = o->call->in[0].layout, *w = o->call->in[1].layout;
    return !o->conv && o->size.dtype == GD_F32 && gd_gpu_product_rows(&o->plan.tile) == LARGE &&
           gd_gpu_product_columns(&o->plan.tile) == LARGE &&
           (left_by_depth(o->call) || x->stride[x->rank - 2] == 1) &&
           (right_by_depth(o->call) || w->stride[w->rank - 1] == 1);
}

static void define_contiguity(const gd_kernel_call *call, gd_gpu_step *step)
{
    gd_gpu_define(step, "LEFT_BY_DEPTH", "%d", left_by_depth(call));
    gd_gpu_define(step, "RIGHT_BY_DEPTH", "%d", right_by_depth(call));
}

/* Kernels with large tiles know when they are compiled whether neighbours along k are neighbours in
 * memory. */
static void define_matrices(const product *o, gd_gpu_step *step)
{
    const bool is_large = o->plan.tile.work_m > 2;
    gd_gpu_define(step, "P", "matmul_numbers");
    gd_gpu_define(step, "LEFT_NEXT", "matmul_left_next");
    gd_gpu_define(step, "RIGHT_NEXT", "matmul_right_next");
    gd_gpu_define(step, "LEFT", "matmul_at");
    gd_gpu_define(step, "RIGHT", "matmul_at");
    if (is_large) {
        define_contiguity(o->call, step);
    } else {
        gd_gpu_define(step, "LEFT_BY_DEPTH", "(p.a_step == 1)");
        gd_gpu_define(step, "RIGHT_BY_DEPTH", "(p.b_row == 1)");
    }
    gd_gpu_define(step, "HAS_STEPS", "0");
    gd_gpu_define(step, "AXES", "0");
    gd_gpu_define(step, "AT(o, i, j)", "(j)");
}

/* What happens to a sum on its way out: bias, then ReLU; or the ReLU's gradient. LAST: what else that
 * reads. */
static void define_product_finish(const gd_kernel_call *call, gd_gpu_step *step)
{
    const gd_dtype dtype = call->out.layout->dtype;
    const bool is_linear = call->op->id == GD_OP_linear, has_bias = is_linear && call->n > 2;
    const bool is_grad = call->op->id == GD_OP_matmul_relu_grad;
    const char *sum = has_bias ? "((s) + (l))" : "(s)";
    gd_gpu_define(step, "LAST(to, at)", "%s",
                  is_grad    ? "last[to]"
                  : has_bias ? "last[(at) * p.last_step]"
                             : "(T)0");
    if (is_grad)
        gd_gpu_define(step, "FINISH(s, l)", "((l) > 0 ? (s) : (T)0)");
    else if (is_linear && ((const gd_linear_attr *)call->attr)->relu)
        gd_gpu_define(step, "FINISH(s, l)", "(T)relu_%s(%s)", gd_codegen_suffix(dtype), sum);
    else
        gd_gpu_define(step, "FINISH(s, l)", "(T)%s", sum);
}

/* Elements from one of the bias to the next. */
static int64_t bias_step(const gd_kernel_call *call)
{
    return call->op->id == GD_OP_linear && call->n > 2 && call->in[2].layout->shape[0] > 1
               ? call->in[2].layout->stride[0]
               : 0;
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
    const gd_loops batch = batch_of(x, w, out);
    gd_gpu_add_number(step, x->shape[x->rank - 2]);
    gd_gpu_add_number(step, w->shape[w->rank - 1]);
    gd_gpu_add_number(step, x->shape[x->rank - 1]);
    gd_gpu_add_number(step, x->stride[x->rank - 2]);
    gd_gpu_add_number(step, x->stride[x->rank - 1]);
    gd_gpu_add_number(step, w->stride[w->rank - 2]);
    gd_gpu_add_number(step, w->stride[w->rank - 1]);
    gd_gpu_add_number(step, bias_step(call));
    gd_gpu_add_loops(step, &batch);
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

/* Along how many of the last axes an operand may be read outside of its planes: three or, as of images,
 * two. */
static int axes_outside(const product *o)
{
    const gd_conv_sizes *s = o->conv;
    const gd_conv_attr *attr = o->call->attr;
    return s->kernel[0] == 1 && attr->before[0] == 0 && attr->stride[0] == 1 &&
                   s->in[0] == s->out[0]
               ? GD_SPATIAL - 1
               : GD_SPATIAL;
}

static void define_images(const product *o, gd_gpu_step *step)
{
    const gd_op_id id = o->call->op->id;
    gd_gpu_define(step, "P", "conv_numbers");
    gd_gpu_define(step, "LEFT_NEXT", "conv_next");
    gd_gpu_define(step, "RIGHT_NEXT", "conv_next");
    gd_gpu_define(step, "LEFT", "conv_left");
    gd_gpu_define(step, "RIGHT",
                  id == GD_OP_convolution_grad_input ? "conv_input_right" : "conv_right");
    gd_gpu_define(step, "LEFT_BY_DEPTH", "1");
    gd_gpu_define(step, "RIGHT_BY_DEPTH", "%d", id == GD_OP_convolution_grad_weight);
    gd_gpu_define(step, "HAS_STEPS", "1");
    gd_gpu_define(step, "AXES", "%d", axes_outside(o));
    gd_gpu_define(step, "AT(o, i, j)", "((o).number * p.o + (i))");
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
    gd_gpu_define(step, "LAST(to, at)", "%s", has_bias ? "last[at]" : "(T)0");
    if (is_forward && ((const gd_conv_attr *)call->attr)->relu)
        gd_gpu_define(step, "FINISH(s, l)", "relu_%s(%s)", is_f32 ? "f32" : "f64", sum);
    else
        gd_gpu_define(step, "FINISH(s, l)", "%s", sum);
}

/* ---- steps ---- */

static const char *multiply_add_of(gd_dtype dtype, bool is_chain)
{
    return dtype == GD_F32                ? "GD_FMA_F32(x, y, s)"
           : dtype == GD_F64 && !is_chain ? "GD_FMA_F64(x, y, s)"
                                          : "(T)((s) + (x) * (y))";
}

static int last_operand(const gd_kernel_call *call)
{
    return call->n > 2 ? 2 : 0;
}

void gd_gpu_finish_product(const gd_kernel_call *call, gd_gpu_step *step)
{
    const gd_dtype dtype = call->out.layout->dtype;
    gd_gpu_define(step, "T", "%s", element_of(dtype));
    gd_gpu_define(step, "BLOCK", "%d", GD_GEMM_KC);
    gd_gpu_define(step, "MULTIPLY_ADD(x, y, s)", "%s", multiply_add_of(dtype, false));
    define_product_finish(call, step);
    const int places[] = { 0, 1, last_operand(call), call->n };
    for (int i = 0; i < 4; i++)
        gd_gpu_add_place(step, places[i]);
    add_product_numbers(call, step);
    for (int i = 0; i < SPLIT_NUMBERS; i++)
        gd_gpu_add_number(step, 0);
}

static void define_no_finish(gd_gpu_step *step)
{
    gd_gpu_define(step, "LAST(to, at)", "(T)0");
    gd_gpu_define(step, "FINISH(s, l)", "(s)");
}

static void define_finish(const product *o, gd_gpu_step *step)
{
    if (o->conv)
        define_conv_finish(o->call, step);
    else
        define_product_finish(o->call, step);
}

static void define_tile(const gd_gpu_product_tile *tile, gd_gpu_step *step)
{
    gd_gpu_define(step, "DOWN", "%d", tile->down);
    gd_gpu_define(step, "WORK_M", "%d", tile->work_m);
    gd_gpu_define(step, "WORK_N", "%d", tile->work_n);
    gd_gpu_define(step, "DEPTH", "%d", tile->depth);
}

/* The functions that are named after the kind. */
static void define_kind(const product *o, gd_gpu_step *step)
{
    static const char *const of[][2] = {
        { "PIECE", "piece" },    { "LEFT_BEGIN", "left_begin" }, { "RIGHT_BEGIN", "right_begin" },
        { "MAKE_STEP", "step" }, { "ROW_TO", "row_to" },         { "COLUMN_TO", "column_to" },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        gd_gpu_define(step, of[i][0], "%s_%s", o->kind, of[i][1]);
}

static void define_order(const product *o, gd_gpu_step *step)
{
    const gd_dtype dtype = o->size.dtype;
    const bool is_split = o->plan.blocks > 0, is_chain = o->conv && dtype == GD_F64,
               is_one_block = o->size.k <= GD_GEMM_KC && o->plan.tile.work_m > 4;
    gd_gpu_define(step, "BLOCK", "%d", GD_GEMM_KC);
    gd_gpu_define(step, "SPLIT", "%d", is_split);
    gd_gpu_define(step, "TOTALS", "%d", !is_split && !is_chain && !is_one_block);
    gd_gpu_define(step, "MULTIPLY_ADD(x, y, s)", "%s", multiply_add_of(dtype, is_chain));
}

/* The step that computes `blocks` blocks from `first` on into slots of the workspace from `slot` on; or,
 * where k is not split, everything. */
static void add_product(const product *o, gd_gpu_job *job, int64_t first, int64_t blocks,
                        int64_t slot)
{
    const gd_kernel_call *call = o->call;
    const gd_gpu_product_plan *plan = &o->plan;
    const bool is_split = plan->blocks > 0,
               is_by_weight = call->op->id == GD_OP_convolution_grad_weight;
    const bool is_large = is_large_matrix(o);
    gd_gpu_step *step =
        gd_gpu_add_kernel(job, is_large ? "product_large" : "product",
                          plan->pieces * (is_split ? blocks : 1), GD_GPU_PRODUCT_ITEMS);
    gd_gpu_define(step, "T", "%s", element_of(o->size.dtype));
    define_tile(&plan->tile, step);
    define_order(o, step);
    if (is_large) {
        gd_gpu_define(step, "RESIDENT", "LARGE_RESIDENT");
        define_contiguity(call, step);
    } else {
        gd_gpu_define(step, "RESIDENT", "%d", plan->tile.resident);
        define_kind(o, step);
        if (o->conv)
            define_images(o, step);
        else
            define_matrices(o, step);
    }
    if (is_split)
        define_no_finish(step);
    else
        define_finish(o, step);
    gd_gpu_add_place(step, o->conv && !is_by_weight ? 1 : 0);
    gd_gpu_add_place(step, o->conv && !is_by_weight ? 0 : 1);
    gd_gpu_add_place(step, last_operand(call));
    gd_gpu_add_place(step, is_split ? GD_GPU_WORKSPACE : call->n);
    if (o->conv)
        add_conv_numbers(o->conv, call->attr, step);
    else
        add_product_numbers(call, step);
    gd_gpu_add_number(step, plan->pieces);
    gd_gpu_add_number(step, first);
    gd_gpu_add_number(step, slot);
    gd_gpu_add_number(step, gd_layout_count(call->out.layout));
    step->is_uneven = o->is_uneven;
}

/* The step that adds up `slots` slots of the workspace: into the result, or into the first. */
static void add_parts(const product *o, gd_gpu_job *job, int64_t slots, bool is_last)
{
    const gd_kernel_call *call = o->call;
    const gd_layout *out = call->out.layout;
    const int64_t results = gd_layout_count(out);
    gd_gpu_step *step =
        gd_gpu_add_kernel(job, "product_parts", gd_gpu_groups(results, ADDING_ITEMS), ADDING_ITEMS);
    gd_gpu_define(step, "T", "%s", element_of(o->size.dtype));
    if (is_last)
        define_finish(o, step);
    else
        define_no_finish(step);
    gd_gpu_add_place(step, GD_GPU_WORKSPACE);
    gd_gpu_add_place(step, last_operand(call));
    gd_gpu_add_place(step, is_last ? call->n : GD_GPU_WORKSPACE);
    gd_gpu_add_number(step, results);
    gd_gpu_add_number(step, slots);
    gd_gpu_add_number(step, o->conv ? o->conv->out_plane : 1);
    gd_gpu_add_number(step, o->conv ? out->shape[1] : out->shape[out->rank - 1]);
    gd_gpu_add_number(step, bias_step(call));
}

static void add_steps(product *o, gd_gpu_job *job)
{
    o->plan = gd_gpu_product_choose(&o->size);
    const gd_gpu_product_plan *plan = &o->plan;
    const int64_t all = gd_gpu_groups(o->size.k, GD_GEMM_KC);
    if (plan->blocks == 0) {
        add_product(o, job, 0, 0, 0);
        return;
    }
    job->workspace = (size_t)plan->slots * (size_t)gd_layout_count(o->call->out.layout) *
                     gd_dtype_size(o->size.dtype);
    for (int64_t first = 0; first < all; first += plan->blocks) {
        const int64_t blocks = all - first < plan->blocks ? all - first : plan->blocks;
        add_product(o, job, first, blocks, first > 0);
        add_parts(o, job, blocks + (first > 0), first + blocks == all);
    }
}

/* ---- calls ---- */

bool gd_gpu_describe_product(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *x = call->in[0].layout, *w = call->in[1].layout, *out = call->out.layout;
    const int64_t m = x->shape[x->rank - 2], k = x->shape[x->rank - 1], n = w->shape[w->rank - 1];
    if (gd_gpu_is_library_product(call))
        return gd_gpu_describe_library_product(call, job);
    if (!*element_of(out->dtype) || (gd_dtype_is_half(x->dtype) && k > 0))
        return false;
    if (gd_layout_count(out) == 0)
        return true;
    product o = { .call = call,
                  .kind = "matmul",
                  .size = { out->dtype, m, n, k, gd_layout_count(out) / (m * n), true } };
    add_steps(&o, job);
    return true;
}

static gd_conv_sizes sizes_of(const gd_kernel_call *call)
{
    const gd_layout *a = call->in[0].layout, *b = call->in[1].layout, *out = call->out.layout;
    const int64_t groups = ((const gd_conv_attr *)call->attr)->groups;
    return call->op->id == GD_OP_convolution              ? gd_conv_sizes_of(a, b, out, groups)
           : call->op->id == GD_OP_convolution_grad_input ? gd_conv_sizes_of(out, b, a, groups)
                                                          : gd_conv_sizes_of(b, out, a, groups);
}

/* The kernel counts a product's rows, columns and steps in 31 bits, and the elements of each operand in
 * 32. */
static bool is_small(const gd_kernel_call *call, const gd_conv_sizes *s)
{
    const double most = INT32_MAX, images = (double)s->n;
    bool is_small = images * (double)s->out_plane < most && images * (double)s->in_plane < most &&
                    (double)s->c * (double)s->taps < most && (double)s->o * (double)s->taps < most;
    for (int i = 0; i < 2; i++)
        is_small &= gd_layout_count(call->in[i].layout) <= UINT32_MAX;
    return is_small;
}

/* Of the gradient by the input: elements of an axis that are a multiple of the stride apart see the same
 * taps. */
static int64_t phases_of(const gd_conv_sizes *s, const gd_conv_attr *attr)
{
    int64_t phases = 1;
    for (int a = 0; a < GD_SPATIAL; a++)
        phases *= attr->stride[a] < s->in[a] ? attr->stride[a] : s->in[a];
    return phases;
}

/* A product for each group, and for each phase; of the largest phase. */
static gd_gpu_product_size conv_size(const gd_kernel_call *call, const gd_conv_sizes *s)
{
    const gd_conv_attr *attr = call->attr;
    const int64_t phases = phases_of(s, attr), positions = s->n * s->out_plane,
                  seen = s->c * s->taps;
    gd_gpu_product_size size = { .dtype = call->out.layout->dtype, .products = s->groups };
    size.may_split = size.dtype == GD_F32;
    size.m = s->o;
    if (call->op->id == GD_OP_convolution) {
        size.n = positions;
        size.k = seen;
    } else if (call->op->id == GD_OP_convolution_grad_weight) {
        size.n = seen;
        size.k = positions;
    } else {
        size.m = s->c;
        size.n = s->n;
        size.k = s->o * s->taps;
        size.products *= phases;
        size.may_split &= phases == 1;
        for (int a = 0; a < GD_SPATIAL; a++)
            size.n *= (s->in[a] + attr->stride[a] - 1) / attr->stride[a];
    }
    return size;
}

bool gd_gpu_describe_convolution(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_dtype dtype = call->out.layout->dtype;
    const gd_conv_sizes s = sizes_of(call);
    const gd_op_id id = call->op->id;
    if ((dtype != GD_F32 && dtype != GD_F64) || call->in[0].layout->dtype != dtype ||
        !is_small(call, &s))
        return false;
    if (gd_layout_count(call->out.layout) == 0 ||
        gd_gpu_describe_library_convolution(call, &s, job))
        return true;
    product o = { .call = call,
                  .conv = &s,
                  .kind = id == GD_OP_convolution               ? "conv"
                          : id == GD_OP_convolution_grad_weight ? "conv_weight"
                                                                : "conv_input",
                  .is_uneven = id == GD_OP_convolution_grad_input && phases_of(&s, call->attr) > 1,
                  .size = conv_size(call, &s) };
    add_steps(&o, job);
    return true;
}
