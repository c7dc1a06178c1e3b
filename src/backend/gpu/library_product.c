/* backend/gpu/library_product.c: matrix products by the library of a device's maker, where a context has
 * its numbers (gd_open_options): f32, f16 and bf16, with sums in f32. Start at
 * gd_gpu_describe_library_product.
 *
 * Which algorithm computes a product is the library's choice from sizes, dtypes, layouts and the
 * alignment of addresses, with the same room to work in always: the same call has the same bits.
 * Operands whose rows and columns both have gaps, or lie in an order that a library does not know, are
 * copied first. ReLU and its gradient are not the library's: it need not keep NaN in them. So what
 * joins them to a product is declined, and they are kernels of their own. */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "base/error.h"
#include "ops/attrs.h"

enum {
    ITEMS = 128,
    MOST_BATCH = 65535, /* products told at once */
    ALIGNMENT = 256,    /* of what is copied */
};

/* A step's numbers. */
typedef struct library_product {
    gd_gpu_product product;
    int64_t offset[2]; /* bytes from the places of a and b on */
    /* Batches of products, of `product.batch` each: how many along each axis, and elements of a and b
     * from one to the next. */
    int64_t rank, size[GD_MAX_RANK], step[2][GD_MAX_RANK];
} library_product;

enum { NUMBERS = sizeof(library_product) / sizeof(int64_t), A = 0, B, BIAS, C, WORKSPACE, PLACES };
_Static_assert(sizeof(library_product) <= GD_GPU_NUMBERS * sizeof(int64_t), "a step has room");

/* ---- which calls ---- */

static bool is_product(gd_op_id id)
{
    return id == GD_OP_matmul || id == GD_OP_linear || id == GD_OP_matmul_relu_grad;
}

static bool is_multiplied(gd_dtype dtype)
{
    return dtype == GD_F32 || gd_dtype_is_half(dtype);
}

bool gd_gpu_declines(const gd_kernel_call *call)
{
    const gd_gpu *gpu = (const gd_gpu *)call->device;
    const gd_op_id id = call->op->id;
    const gd_dtype dtype = call->n > 0 ? call->in[0].layout->dtype : GD_BOOL;
    if (gpu->numbers == GD_NUMBERS_EXACT || !is_multiplied(dtype))
        return false;
    if (id == GD_OP_matmul_relu_grad)
        return true;
    if (id == GD_OP_linear)
        return dtype != GD_F32 || ((const gd_linear_attr *)call->attr)->relu;
    /* Products of halves that the device has no kernel for are not left to the host. */
    const bool has_products = id == GD_OP_attention || id == GD_OP_attention_grad ||
                              id == GD_OP_convolution || id == GD_OP_convolution_grad_input ||
                              id == GD_OP_convolution_grad_weight;
    return has_products && dtype != GD_F32 && !gd_gpu_takes(call);
}

/* ---- matrices ---- */

/* How a matrix lies, for a library; false: it has to be copied. The sizes of its batch are not looked
 * at, but that none lies upon itself backwards. */
static bool matrix_of(const gd_layout *x, gd_gpu_matrix *out)
{
    const int64_t rows = x->shape[x->rank - 2], columns = x->shape[x->rank - 1];
    const int64_t row = rows == 1 ? columns : x->stride[x->rank - 2];
    const int64_t column = columns == 1 ? 1 : x->stride[x->rank - 1];
    *out = (gd_gpu_matrix){ .stride = row };
    for (int a = 0; a < x->rank - 2; a++)
        if (x->stride[a] < 0)
            return false;
    if (column == 1 && row >= columns)
        return true;
    const int64_t by_column = columns == 1 ? rows : x->stride[x->rank - 1];
    *out = (gd_gpu_matrix){ .is_transposed = 1, .stride = by_column };
    return (rows == 1 || x->stride[x->rank - 2] == 1) && by_column >= rows;
}

/* The operand, copied without gaps behind `job->workspace`, and its layout there. */
static int64_t add_copy(gd_gpu_job *job, int operand, gd_layout *x)
{
    const int64_t items = gd_layout_count(x), size = (int64_t)gd_dtype_size(x->dtype);
    const int64_t offset = (int64_t)job->workspace;
    gd_loops loops;
    gd_codegen_merge(&loops, x, (const gd_layout *const[]){ x }, 1);
    gd_gpu_step *step = gd_gpu_add_kernel(job, "gather_matrix", gd_gpu_groups(items, ITEMS), ITEMS);
    gd_gpu_define(step, "T", "%s", gd_gpu_moved_type(x->dtype));
    gd_gpu_add_place(step, operand);
    gd_gpu_add_place(step, GD_GPU_WORKSPACE);
    gd_gpu_add_number(step, items);
    gd_gpu_add_number(step, offset / size);
    gd_gpu_add_loops(step, &loops);
    job->workspace += (size_t)((items * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    int64_t stride = 1;
    for (int a = x->rank - 1; a >= 0; a--) {
        x->stride[a] = stride;
        stride *= x->shape[a];
    }
    return offset;
}

/* Batches of products, the last axis as one batch for the library; and where rows of a batch share b
 * and follow one another, they are rows of one product. */
static void set_batch(library_product *l, const gd_layout *x, const gd_layout *w,
                      const gd_layout *out)
{
    gd_gpu_product *p = &l->product;
    gd_layout over = *out, of[2] = { *x, *w };
    gd_loops loops;
    over.rank = out->rank - 2;
    of[0].rank = x->rank - 2;
    of[1].rank = w->rank - 2;
    gd_codegen_merge(&loops, &over, (const gd_layout *[]){ &of[0], &of[1] }, 2);
    l->rank = loops.rank;
    for (int a = 0; a < loops.rank; a++) {
        l->size[a] = loops.size[a];
        l->step[0][a] = loops.stride[0][a];
        l->step[1][a] = loops.stride[1][a];
    }
    p->batch = 1;
    if (l->rank == 0)
        return;
    const int64_t last = --l->rank, size = l->size[last];
    if (!p->a.is_transposed && l->step[1][last] == 0 && l->step[0][last] == p->m * p->a.stride) {
        p->m *= size;
        return;
    }
    p->batch = size;
    p->a.batch = l->step[0][last];
    p->b.batch = l->step[1][last];
}

/* ---- the job ---- */

static gd_gpu_step *add_product(gd_gpu_job *job, const library_product *l)
{
    gd_gpu_step *step = gd_gpu_add_step(job, 1, 1);
    int64_t numbers[NUMBERS];
    step->is_product = true;
    memcpy(numbers, l, sizeof *l);
    for (int i = 0; i < NUMBERS; i++)
        gd_gpu_add_number(step, numbers[i]);
    return step;
}

static void add_bias(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *out = call->out.layout, *bias = call->in[2].layout;
    const int64_t items = gd_layout_count(out);
    gd_gpu_step *step = gd_gpu_add_kernel(job, "add_bias", gd_gpu_groups(items, ITEMS), ITEMS);
    step->is_bias = true;
    gd_gpu_define(step, "T", "float");
    gd_gpu_add_place(step, 2);
    gd_gpu_add_place(step, call->n);
    gd_gpu_add_number(step, items);
    gd_gpu_add_number(step, out->shape[out->rank - 1]);
    gd_gpu_add_number(step, bias->stride[0]);
}

bool gd_gpu_is_library_product(const gd_kernel_call *call)
{
    const gd_gpu *gpu = (const gd_gpu *)call->device;
    const gd_layout *x = call->in[0].layout;
    return gpu->numbers != GD_NUMBERS_EXACT && is_product(call->op->id) &&
           is_multiplied(x->dtype) && x->shape[x->rank - 1] > 0 &&
           gd_layout_count(call->out.layout) > 0;
}

bool gd_gpu_describe_library_product(const gd_kernel_call *call, gd_gpu_job *job)
{
    gd_layout of[2] = { *call->in[0].layout, *call->in[1].layout };
    const gd_layout *out = call->out.layout;
    library_product l = { .product = { .dtype = of[0].dtype } };
    gd_gpu_product *p = &l.product;
    gd_gpu_matrix *const matrices[2] = { &p->a, &p->b };
    int place[2] = { 0, 1 };
    if (gd_gpu_declines(call))
        return false;
    job->workspace = GD_GPU_PRODUCT_WORKSPACE;
    for (int i = 0; i < 2; i++)
        if (!matrix_of(&of[i], matrices[i])) {
            l.offset[i] = add_copy(job, i, &of[i]);
            place[i] = GD_GPU_WORKSPACE;
            (void)matrix_of(&of[i], matrices[i]);
        }
    p->m = of[0].shape[of[0].rank - 2];
    p->n = of[1].shape[of[1].rank - 1];
    p->k = of[0].shape[of[0].rank - 1];
    set_batch(&l, &of[0], &of[1], out);
    p->has_bias = call->n > 2 && l.rank == 0 && p->batch == 1 &&
                  (p->n == 1 || call->in[2].layout->stride[0] == 1);
    gd_gpu_step *step = add_product(job, &l);
    gd_gpu_add_place(step, place[0]);
    gd_gpu_add_place(step, place[1]);
    gd_gpu_add_place(step, call->n > 2 ? 2 : call->n);
    gd_gpu_add_place(step, call->n);
    gd_gpu_add_place(step, GD_GPU_WORKSPACE);
    if (call->n > 2)
        add_bias(call, job);
    return true;
}

/* ---- telling the device ---- */

/* Products p->batch of which are one after another, at most MOST_BATCH told at once. */
static gd_status run_batch(gd_gpu *gpu, const gd_gpu_product *all, const gd_gpu_place *place,
                           bool *adds_bias)
{
    const size_t size = gd_dtype_size((gd_dtype)all->dtype);
    gd_status status = GD_OK;
    for (int64_t from = 0; status == GD_OK && from < all->batch; from += MOST_BATCH) {
        gd_gpu_product p = *all;
        gd_gpu_place at[PLACES];
        memcpy(at, place, sizeof at);
        p.batch = all->batch - from < MOST_BATCH ? all->batch - from : MOST_BATCH;
        at[A].offset += (size_t)(from * p.a.batch) * size;
        at[B].offset += (size_t)(from * p.b.batch) * size;
        at[C].offset += (size_t)(from * p.m * p.n) * sizeof(float);
        status = gpu->driver->product(gpu, &p, at, GD_GPU_PRODUCT_WORKSPACE, adds_bias);
    }
    return status;
}

gd_status gd_gpu_run_library_product(gd_gpu *gpu, const int64_t *numbers, const gd_gpu_place *place,
                                     bool *has_bias)
{
    library_product l;
    memcpy(&l, numbers, sizeof l);
    const size_t size = gd_dtype_size((gd_dtype)l.product.dtype);
    int64_t batches = 1, at[GD_MAX_RANK] = { 0 };
    gd_status status = GD_OK;
    for (int64_t a = 0; a < l.rank; a++)
        batches *= l.size[a];
    *has_bias = l.product.has_bias;
    for (int64_t i = 0; status == GD_OK && i < batches; i++) {
        gd_gpu_place moved[PLACES];
        memcpy(moved, place, sizeof moved);
        moved[A].offset += (size_t)l.offset[0];
        moved[B].offset += (size_t)l.offset[1];
        moved[C].offset +=
            (size_t)(i * l.product.batch * l.product.m * l.product.n) * sizeof(float);
        for (int64_t a = 0; a < l.rank; a++) {
            moved[A].offset += (size_t)(at[a] * l.step[0][a]) * size;
            moved[B].offset += (size_t)(at[a] * l.step[1][a]) * size;
        }
        status = run_batch(gpu, &l.product, moved, has_bias);
        for (int64_t a = l.rank - 1; a >= 0 && ++at[a] == l.size[a]; a--)
            at[a] = 0;
    }
    return status;
}
