/* ops/matmul.c: the matrix product and what is made of it. */
#include "ops/internal.h"

#include "backend/backend.h"

/* ---- matmul: [.., m, k] @ [.., k, n]. The op gives sums in the dtype that they are made in: f32 of
 * f16 and bf16, which builders round once, after what is added to them. ---- */

static gd_status fail_shapes(const gd_layout *x, const gd_layout *y, const char *why, int64_t a,
                             int64_t b)
{
    char x_text[GD_SHAPE_TEXT], y_text[GD_SHAPE_TEXT];
    return gd_fail(GD_ERR_SHAPE, "gd_matmul: %s @ %s: %s (%lld, %lld)", gd_layout_text(x, x_text),
                   gd_layout_text(y, y_text), why, (long long)a, (long long)b);
}

/* Shape of the product of two operands of rank 2 or more. */
static gd_status product_shape(const gd_layout *x, const gd_layout *y, gd_shape *out)
{
    if (x->rank < 2 || y->rank < 2)
        return fail_shapes(x, y, "both need rank 2 or more; ranks are", x->rank, y->rank);
    int64_t inner_x = x->shape[x->rank - 1], inner_y = y->shape[y->rank - 2];
    if (inner_x != inner_y)
        return fail_shapes(x, y, "inner sizes differ", inner_x, inner_y);
    gd_shape batch_x = gd_layout_shape(x), batch_y = gd_layout_shape(y);
    batch_x.rank -= 2;
    batch_y.rank -= 2;
    if (!gd_shape_broadcast(batch_x, batch_y, out))
        return fail_shapes(x, y, "leading axes do not broadcast; ranks are", x->rank, y->rank);
    out->dim[out->rank++] = x->shape[x->rank - 2];
    out->dim[out->rank++] = y->shape[y->rank - 1];
    return GD_OK;
}

static gd_status infer_matmul(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)attr;
    gd_shape shape;
    if (product_shape(in[0], in[1], &shape) != GD_OK)
        return gd_error_last();
    return gd_layout_init(out, shape, gd_sums_dtype(in[0]->dtype), "gd_matmul");
}

static gd_tensor *transposed(gd_tensor *x)
{
    return gd_transpose(x, -1, -2);
}

/* [.., m, k] -> [.. * m, k] */
static gd_tensor *tall(gd_tensor *x)
{
    return gd_reshape(x, GD_SHAPE(-1, x->layout.shape[x->layout.rank - 1]));
}

/* a @ b, the gradient of t. Where t is a transposed view, the gradient is one, too. An optimizer
 * reads both together, and so reads both in the order of memory. */
static gd_tensor *gradient_product(const gd_tensor *t, gd_tensor *a, gd_tensor *b)
{
    const int64_t *stride = t->layout.stride + t->layout.rank - 2;
    bool is_transposed = stride[0] == 1 && stride[1] > 1;
    return is_transposed ? transposed(gd_matmul(transposed(b), transposed(a))) : gd_matmul(a, b);
}

/* d x = g @ yT, d y = xT @ g; what was broadcast is summed by the walk. One matrix shared by a
 * whole batch gets its gradient from one tall product rather than from a product per element and a
 * sum. */
static bool vjp_matmul(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor *x = r->inputs[0], *y = r->inputs[1];
    g = gd_as_dtype(g,
                    x->layout.dtype); /* sums of halves were rounded to it: so is their gradient */
    if (!g)
        return false;
    if (gd_wants_grad(x) && !gd_put(&d[0], gradient_product(x, g, transposed(y))))
        return false;
    if (!gd_wants_grad(y))
        return true;
    if (y->layout.rank == 2 && x->layout.rank > 2 && gd_tensor_count(x) > 0 &&
        gd_tensor_count(g) > 0) {
        gd_tensor *flat_x = tall(x), *flat_g = tall(g);
        return flat_x && flat_g && gd_put(&d[1], gradient_product(y, transposed(flat_x), flat_g));
    }
    return gd_put(&d[1], gradient_product(y, transposed(x), g));
}

const gd_op gd_op_matmul = { .id = GD_OP_matmul,
                             .name = "matmul",
                             .arity = 2,
                             .flags = GD_OP_LOWER,
                             .dtypes =
                                 GD_DTYPES_COMMON | GD_DTYPE_SET(GD_BF16) | GD_DTYPE_SET(GD_F16),
                             .alike = GD_ALIKE_ALL,
                             .infer = infer_matmul,
                             .vjp = vjp_matmul,
                             .flops = gd_flops_product,
                             .recompute = GD_RECOMPUTE_PRODUCT };

/* The dtype in which x and y are multiplied. Halves: their own, where both have it and the device has
 * such products; else f32. */
static gd_dtype factor_dtype(const gd_tensor *x, const gd_tensor *y)
{
    const gd_dtype dtype = gd_dtype_promote(x->layout.dtype, y->layout.dtype);
    if (gd_dtype_is_half(dtype) && (x->layout.dtype != y->layout.dtype ||
                                    !gd_dtype_set_has(x->context->device->half_products, dtype)))
        return GD_F32;
    return gd_compute_dtype(GD_OP_matmul, dtype);
}

gd_tensor *gd_product_sums(gd_tensor *x, gd_tensor *y)
{
    if (!gd_usable(x, "gd_matmul") || !gd_usable(y, "gd_matmul"))
        return NULL;
    if (x->layout.rank == 0 || y->layout.rank == 0) {
        (void)fail_shapes(&x->layout, &y->layout, "a number has no matrix product; ranks are",
                          x->layout.rank, y->layout.rank);
        return NULL;
    }
    const gd_dtype compute = factor_dtype(x, y);
    bool row = x->layout.rank == 1, column = y->layout.rank == 1;
    gd_tensor *a = gd_as_dtype(row ? gd_unsqueeze(x, 0) : x, compute);
    gd_tensor *b = gd_as_dtype(column ? gd_unsqueeze(y, 1) : y, compute);
    gd_tensor *r = gd_apply2(GD_OP_matmul, a, b, NULL);
    if (column)
        r = gd_squeeze(r, -1);
    if (row)
        r = gd_squeeze(r, column ? -1 : -2);
    return r;
}

gd_tensor *gd_product(gd_tensor *x, gd_tensor *y)
{
    gd_tensor *r = gd_product_sums(x, y);
    if (!r)
        return NULL;
    const gd_dtype dtype = gd_dtype_promote(x->layout.dtype, y->layout.dtype);
    return dtype == GD_BOOL ? r : gd_as_dtype(r, dtype);
}

gd_tensor *gd_matmul(gd_tensor *x, gd_tensor *y)
{
    if (!gd_usable(x, "gd_matmul") || !gd_usable(y, "gd_matmul"))
        return NULL;
    return gd_product(gd_autocast(GD_OP_matmul, x), gd_autocast(GD_OP_matmul, y));
}

gd_tensor *gd_outer(gd_tensor *x, gd_tensor *y)
{
    if (!gd_usable(x, "gd_outer") || !gd_usable(y, "gd_outer"))
        return NULL;
    if (x->layout.rank != 1 || y->layout.rank != 1)
        return gd_fail_null(GD_ERR_SHAPE, "gd_outer: needs two vectors; ranks are %d and %d",
                            x->layout.rank, y->layout.rank);
    return gd_mul(gd_unsqueeze(x, 1), y);
}

gd_tensor *gd_dot(gd_tensor *x, gd_tensor *y)
{
    if (!gd_usable(x, "gd_dot") || !gd_usable(y, "gd_dot"))
        return NULL;
    if (x->layout.rank != 1 || y->layout.rank != 1)
        return gd_fail_null(GD_ERR_SHAPE, "gd_dot: needs two vectors; ranks are %d and %d",
                            x->layout.rank, y->layout.rank);
    return GD_AS("gd_dot", gd_matmul(x, y));
}

extern const gd_op gd_op_linear;

/* Whether the compiler's linear, which has no derivative, gives gd_linear's value: eagerly, without
 * a history, for plain operands. */
static bool may_be_linear(const gd_tensor *x, const gd_tensor *weight, const gd_tensor *bias)
{
    if (!x || !weight || !bias || x->context->trace ||
        (x->context->no_grad == 0 &&
         (x->requires_grad || weight->requires_grad || bias->requires_grad)))
        return false;
    const gd_layout *a = &x->layout, *b = &weight->layout, *c = &bias->layout;
    return gd_dtype_set_has(gd_op_linear.dtypes, a->dtype) && b->dtype == a->dtype &&
           c->dtype == gd_sums_dtype(a->dtype) && a->rank >= 2 && b->rank == 2 && c->rank == 1 &&
           c->shape[0] == b->shape[1];
}

/* Halves: in f32, which the caller rounds. */
static gd_tensor *product_and_bias(gd_tensor *x, gd_tensor *weight, gd_tensor *bias)
{
    gd_tensor *product =
        x && gd_dtype_is_half(x->layout.dtype) ? gd_product_sums(x, weight) : gd_product(x, weight);
    if (!bias || !product)
        return product;
    return gd_may_replace(product, bias) ? gd_add_(product, bias) : gd_add(product, bias);
}

static gd_tensor *affine(gd_tensor *x, gd_tensor *weight, gd_tensor *bias)
{
    if (may_be_linear(x, weight, bias)) {
        gd_tensor *in[3] = { x, weight, bias };
        const gd_linear_attr attr = { 0 };
        return gd_apply(NULL, GD_OP_linear, 3, in, &attr);
    }
    return product_and_bias(x, weight, bias);
}

gd_tensor *gd_linear(gd_tensor *x, gd_tensor *weight, gd_tensor *bias)
{
    if (!x || !weight || !GD_NONE_ENDED("gd_linear", x, weight, bias))
        return NULL;
    x = gd_autocast(GD_OP_matmul, x);
    weight = gd_autocast(GD_OP_matmul, weight);
    if (!x || !weight)
        return NULL;
    gd_dtype dtype = gd_dtype_promote(x->layout.dtype, weight->layout.dtype);
    if (bias && !gd_autocast_is_on(x->context))
        dtype = gd_dtype_promote(dtype, bias->layout.dtype);
    if (!gd_dtype_is_half(dtype))
        return GD_AS("gd_linear", affine(x, weight, bias));
    const gd_dtype compute = factor_dtype(x, weight);
    gd_tensor *r = GD_AS("gd_linear", affine(gd_as_dtype(x, compute), gd_as_dtype(weight, compute),
                                             bias ? gd_widen(bias) : NULL));
    return gd_as_dtype(r, dtype);
}

/* ---- linear: matmul with bias and ReLU on its way out; made by the compiler ---- */

static gd_status infer_linear(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    if (n < 2 || n > 3)
        return gd_fail(GD_ERR_INVALID, "linear: %d operands, 2 or 3 expected", n);
    if (infer_matmul(2, in, attr, out) != GD_OK)
        return gd_error_last();
    if (n == 3 && (in[2]->rank != 1 || in[2]->shape[0] != out->shape[out->rank - 1] ||
                   in[2]->dtype != out->dtype))
        return gd_fail(GD_ERR_SHAPE, "linear: the bias does not fit");
    return GD_OK;
}

static gd_tensor *decompose_linear(int n, gd_tensor *const *in, const void *attr)
{
    gd_tensor *r = product_and_bias(in[0], in[1], n == 3 ? in[2] : NULL);
    return ((const gd_linear_attr *)attr)->relu ? gd_relu(r) : r;
}

static void format_linear(const void *attr, char *text, size_t size)
{
    snprintf(text, size, "%s", ((const gd_linear_attr *)attr)->relu ? "relu" : "");
}

const gd_op gd_op_linear = { .id = GD_OP_linear,
                             .name = "linear",
                             .arity = GD_OP_VARIADIC,
                             .dtypes =
                                 GD_DTYPES_REAL | GD_DTYPE_SET(GD_BF16) | GD_DTYPE_SET(GD_F16),
                             .alike = 1 << 1,
                             .flags = GD_OP_COMPILER_ONLY,
                             .attr_size = sizeof(gd_linear_attr),
                             .infer = infer_linear,
                             .decompose = decompose_linear,
                             .format = format_linear,
                             .flops = gd_flops_product,
                             .recompute = GD_RECOMPUTE_PRODUCT };

/* ---- matmul_relu_grad: the gradient by the operand of a ReLU whose result is y, from the product
 * that is the gradient by y: x @ w where y > 0, else 0 ---- */

static gd_status infer_matmul_relu_grad(int n, const gd_layout *const *in, const void *attr,
                                        gd_layout *out)
{
    if (infer_matmul(n, in, attr, out) != GD_OK)
        return gd_error_last();
    if (!gd_layout_same_shape(in[2], out) || !gd_layout_is_contiguous(in[2]))
        return gd_fail(GD_ERR_SHAPE, "matmul_relu_grad: the ReLU's result does not fit");
    return GD_OK;
}

static gd_tensor *decompose_matmul_relu_grad(int n, gd_tensor *const *in, const void *attr)
{
    (void)n, (void)attr;
    return gd_relu_grad(gd_matmul(in[0], in[1]), in[2]);
}

const gd_op gd_op_matmul_relu_grad = { .id = GD_OP_matmul_relu_grad,
                                       .name = "matmul_relu_grad",
                                       .arity = 3,
                                       .dtypes = GD_DTYPES_REAL,
                                       .alike = GD_ALIKE_ALL,
                                       .flags = GD_OP_COMPILER_ONLY,
                                       .infer = infer_matmul_relu_grad,
                                       .decompose = decompose_matmul_relu_grad,
                                       .flops = gd_flops_product,
                                       .recompute = GD_RECOMPUTE_PRODUCT };
