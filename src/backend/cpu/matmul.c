/* backend/cpu/matmul.c: matmul, linear and matmul_relu_grad on the CPU. Floats, with f16 and bf16, go to
 * gemm.h, of which only the operands' description is made here, and in a plan what was decided of
 * it; integers go through a plain loop, exact modulo 2^bits. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm_plan.h"
#include "base/error.h"
#include "base/threads.h"
#include "ops/attrs.h"

#include <string.h>

/* Stride of an operand along batch axis `axis` of the result it is broadcast to. */
static int64_t batch_stride(const gd_layout *in, const gd_layout *out, int axis)
{
    int own = axis - (out->rank - in->rank);
    return own < 0 || in->shape[own] == 1 ? 0 : in->stride[own];
}

/* x [.., m, k] @ w [.., k, n] -> [.., m, n] */
static gd_gemm_args describe(const gd_kernel_call *call)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)call->device;
    const gd_layout *x = call->in[0].layout, *w = call->in[1].layout, *out = call->out.layout;
    gd_gemm_args args = {
        .m = x->shape[x->rank - 2],
        .k = x->shape[x->rank - 1],
        .n = w->shape[w->rank - 1],
        .a = call->in[0].data,
        .a_row_stride = x->stride[x->rank - 2],
        .a_col_stride = x->stride[x->rank - 1],
        .b = call->in[1].data,
        .b_row_stride = w->stride[w->rank - 2],
        .b_col_stride = w->stride[w->rank - 1],
        .c = call->out.data,
        .c_row_stride = out->stride[out->rank - 2],
        .c_col_stride = out->stride[out->rank - 1],
        .batch_rank = out->rank - 2,
        .threads = cpu->base.threads,
        .paths = &cpu->paths,
        .workspace = gd_workspace_of(call),
    };
    for (int axis = 0; axis < args.batch_rank; axis++) {
        args.batch_shape[axis] = out->shape[axis];
        args.a_batch_stride[axis] = batch_stride(x, out, axis);
        args.b_batch_stride[axis] = batch_stride(w, out, axis);
        args.c_batch_stride[axis] = out->stride[axis];
    }
    return args;
}

/* ---- integers: rows of the result are dealt out to the threads ---- */

/* Element offsets of a, b and c in the batch entry `index`. */
static void locate_batch(const gd_gemm_args *args, int64_t index, int64_t *a, int64_t *b,
                         int64_t *c)
{
    *a = *b = *c = 0;
    for (int axis = args->batch_rank - 1; axis >= 0; axis--) {
        int64_t i = index % args->batch_shape[axis];
        index /= args->batch_shape[axis];
        *a += i * args->a_batch_stride[axis];
        *b += i * args->b_batch_stride[axis];
        *c += i * args->c_batch_stride[axis];
    }
}

/* S is what the elements are, U the unsigned type in which overflow wraps. */
#define DEFINE_INTEGER_ROWS(name, S, U)                                                           \
    static void name(void *context, int64_t begin, int64_t end, int thread)                       \
    {                                                                                             \
        (void)thread;                                                                             \
        typedef U word;                                                                           \
        const gd_gemm_args *g = context;                                                          \
        for (int64_t row = begin; row < end; row++) {                                             \
            int64_t i = row % g->m, a_at, b_at, c_at;                                             \
            locate_batch(g, row / g->m, &a_at, &b_at, &c_at);                                     \
            const word *a = g->a, *b = g->b, *bias = g->bias;                                     \
            word *c = g->c;                                                                       \
            a += a_at + i * g->a_row_stride; /* [k] */                                            \
            b += b_at;                       /* [k, n] */                                         \
            c += c_at + i * g->c_row_stride; /* [n] */                                            \
            for (int64_t j = 0; j < g->n; j++)                                                    \
                c[j * g->c_col_stride] = bias ? bias[j * g->bias_stride] : 0;                     \
            for (int64_t p = 0; p < g->k; p++) {                                                  \
                word factor = a[p * g->a_col_stride];                                             \
                for (int64_t j = 0; j < g->n; j++) {                                              \
                    word product = (word)(factor * b[p * g->b_row_stride + j * g->b_col_stride]); \
                    c[j * g->c_col_stride] = (word)(c[j * g->c_col_stride] + product);            \
                }                                                                                 \
            }                                                                                     \
            for (int64_t j = 0; j < g->n && g->relu; j++)                                         \
                if (!((S)c[j * g->c_col_stride] > 0))                                             \
                    c[j * g->c_col_stride] = 0;                                                   \
        }                                                                                         \
    }
DEFINE_INTEGER_ROWS(multiply_rows_i32, int32_t, uint32_t)
DEFINE_INTEGER_ROWS(multiply_rows_i64, int64_t, uint64_t)
DEFINE_INTEGER_ROWS(multiply_rows_u8, uint8_t, uint8_t)

static void multiply_integers(gd_gemm_args *args, gd_range_fn rows)
{
    int64_t count = args->m;
    for (int axis = 0; axis < args->batch_rank; axis++)
        count *= args->batch_shape[axis];
    int64_t work = args->k * args->n; /* multiply-adds of a row */
    const int64_t worth_a_thread = 64 * 1024;
    gd_parallel_for(args->threads, count, work > 0 ? worth_a_thread / work + 1 : count, rows, args);
}

/* ---- floats ---- */

/* Taking numbers apart costs some cycles each, which so many rows and columns save by AMX (reckoned, not
 * measured): a multiply-add of f32 takes a 32nd of a cycle, three of bfloat16 a 171st. */
#define FAST_SIDE  128
#define FAST_STEPS 32

/* Whether a product of f32 is computed in fast numbers: by shapes alone, as its bits are others. */
static bool takes_fast(const gd_cpu_device *cpu, const gd_kernel_call *call)
{
    if (!cpu->gemm_fast || !gd_matmul_may_choose(&cpu->paths))
        return false;
    if (cpu->paths.matmul == GD_MATMUL_BF16X3)
        return true;
    const gd_gemm_args args = describe(call);
    int64_t rows = args.m;
    for (int d = 0; d < args.batch_rank; d++)
        if (args.b_batch_stride[d] == 0)
            rows *= args.batch_shape[d];
    return rows >= FAST_SIDE && args.n >= FAST_SIDE && args.k >= FAST_STEPS;
}

static const gd_gemm_micro *micro_of(const gd_kernel_call *call)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)call->device;
    const gd_dtype dtype = call->in[0].layout->dtype;
    return dtype == GD_F64         ? cpu->gemm_f64
           : dtype == GD_BF16      ? cpu->gemm_bf16
           : dtype == GD_F16       ? cpu->gemm_f16
           : takes_fast(cpu, call) ? cpu->gemm_fast
                                   : cpu->gemm_f32;
}

/* What a plan has: whether there is something to compute, and how. */
typedef struct prepared_product {
    bool is_empty;
    gd_gemm_plan plan;
} prepared_product;

/* The address of operand 2. While a plan is made it may have none yet; that there is one decides how
 * the product is computed, so it is some address then. */
static const void *third_of(const gd_kernel_call *call)
{
    return call->in[2].data ? call->in[2].data : call->in;
}

static gd_gemm_args describe_all(const gd_kernel_call *call)
{
    gd_gemm_args args = describe(call);
    args.b_packed = call->packed;
    if (call->op->id == GD_OP_linear) {
        if (call->n > 2) { /* [n] */
            args.bias = third_of(call);
            args.bias_stride =
                batch_stride(call->in[2].layout, call->out.layout, call->out.layout->rank - 1);
        }
        args.relu = ((const gd_linear_attr *)call->attr)->relu != 0;
    } else if (call->op->id == GD_OP_matmul_relu_grad) {
        args.relu_result = third_of(call); /* made for floats alone (compile/epilogue.c) */
    }
    return args;
}

bool gd_cpu_is_product(const gd_kernel_call *call)
{
    const gd_op_id id = call->op->id;
    const gd_dtype dtype = call->out.layout->dtype;
    return (id == GD_OP_matmul || id == GD_OP_linear || id == GD_OP_matmul_relu_grad) &&
           (dtype == GD_F32 || dtype == GD_F64);
}

size_t gd_cpu_product_prepare_bytes(void)
{
    return sizeof(prepared_product);
}

gd_status gd_cpu_product_prepare(const gd_kernel_call *call, void *memory)
{
    const gd_gemm_args args = describe_all(call);
    prepared_product *p = memory;
    memset(p, 0, sizeof *p);
    p->is_empty = !gd_gemm_choose(micro_of(call), &args, &p->plan);
    return GD_OK;
}

size_t gd_cpu_product_pack_bytes(const gd_kernel_call *call)
{
    if (!gd_cpu_is_product(call))
        return 0;
    const gd_gemm_args args = describe_all(call);
    const gd_gemm_micro *micro = micro_of(call);
    return gd_gemm_packs_once(micro, &args) ? gd_gemm_ahead_bytes(micro, args.k, args.n) : 0;
}

void gd_cpu_product_pack(const gd_kernel_call *call, void *memory)
{
    const gd_gemm_args args = describe_all(call);
    gd_gemm_pack_ahead(micro_of(call), memory, args.b, args.b_row_stride, args.b_col_stride, args.k,
                       args.n);
}

gd_workspace gd_cpu_product_scratch(const gd_kernel_call *call)
{
    gd_gemm_plan plan;
    if (!gd_cpu_is_product(call))
        return (gd_workspace){ 0 };
    const gd_gemm_args args = describe_all(call);
    return gd_gemm_choose(micro_of(call), &args, &plan)
               ? gd_gemm_plan_scratch(micro_of(call), &plan)
               : (gd_workspace){ 0 };
}

void gd_cpu_product_explain(const gd_kernel_call *call, gd_text *text)
{
    const prepared_product *p = call->prepared;
    if (p && !p->is_empty)
        gd_gemm_explain(micro_of(call), &p->plan, text);
}

/* A plan is for a number of threads: that of the device may have been changed since. */
static void multiply_floats(const gd_kernel_call *call)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)call->device;
    const prepared_product *p = call->prepared;
    if (!p || (!p->is_empty && p->plan.asked != cpu->base.threads)) {
        const gd_gemm_args args = describe_all(call);
        gd_gemm(micro_of(call), &args);
        return;
    }
    if (p->is_empty)
        return;
    const void *third = call->n > 2 ? call->in[2].data : NULL;
    const bool relu_grad = call->op->id == GD_OP_matmul_relu_grad;
    const gd_gemm_operands operands = { .a = call->in[0].data,
                                        .b = call->in[1].data,
                                        .bias = relu_grad ? NULL : third,
                                        .relu_result = relu_grad ? third : NULL,
                                        .b_packed = call->packed,
                                        .c = call->out.data };
    const gd_workspace workspace = gd_workspace_of(call);
    gd_gemm_run(micro_of(call), &p->plan, &operands, &workspace);
}

static gd_status multiply(const gd_kernel_call *call)
{
    const gd_dtype dtype = call->out.layout->dtype;
    if (dtype == GD_F32 || dtype == GD_F64) {
        multiply_floats(call);
        return GD_OK;
    }
    gd_gemm_args args = describe_all(call);
    switch (dtype) {
    case GD_I32:
        multiply_integers(&args, multiply_rows_i32);
        return GD_OK;
    case GD_I64:
        multiply_integers(&args, multiply_rows_i64);
        return GD_OK;
    case GD_U8:
        multiply_integers(&args, multiply_rows_u8);
        return GD_OK;
    default:
        return gd_fail(GD_ERR_UNSUPPORTED, "cpu: no kernel for %s of %s", call->op->name,
                       gd_dtype_name(dtype));
    }
}

void gd_cpu_register_matmul(gd_kernel_fn *kernel)
{
    kernel[GD_OP_matmul] = multiply;
    kernel[GD_OP_linear] = multiply;
    kernel[GD_OP_matmul_relu_grad] = multiply;
}
