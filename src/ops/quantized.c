/* ops/quantized.c: the product with weights in blocks, and its definition. Start at
 * gd_quantized_linear().
 *
 * A row of weights is cut into blocks of 32: 32 int8, and a scale by which they are multiplied; so
 * GGUF's Q8_0 has them. A row x of activations is cut alike and rounded, each block to a scale of its
 * own:
 *
 *     a = max |x| in the block;  s = a / 127;  q = x * (127 / a), rounded to nearest, ties to even
 *
 * in f32. Where a < 2^-100, s and all q are 0. Where a is infinite or one of the x is NaN, s is NaN
 * and all q are 0: the row of the result is NaN. The result for row x and row w of weights is
 *
 *     term b = (s_b * scale of w_b) * float(sum of the 32 products q * w, exact)
 *     lane l = 0 + term l + term (l + 8) + term (l + 16) + …                   l = 0 … 7
 *     result = ((lane 0 + lane 4) + (lane 2 + lane 6)) + ((lane 1 + lane 5) + (lane 3 + lane 7))
 *
 * each step rounded to f32. The sum of a block is below 2^24, so nothing of it is lost; there is no
 * fused multiply-add. So all instruction sets, devices and numbers of threads give the same bits. */
#include "ops/internal.h"

#define BLOCK 32
/* Numbers of a row: a kernel keeps a row in blocks in its scratch. */
#define MOST_INNER ((int64_t)1 << 18)

static bool is_scale(gd_dtype dtype)
{
    return dtype == GD_F32 || dtype == GD_F16;
}

static gd_status fail_shapes(const gd_layout *const *in, const char *why)
{
    char x[GD_SHAPE_TEXT], values[GD_SHAPE_TEXT], scales[GD_SHAPE_TEXT];
    return gd_fail(GD_ERR_SHAPE, "gd_quantized_linear: %s, weights %s with scales %s: %s",
                   gd_layout_text(in[0], x), gd_layout_text(in[1], values),
                   gd_layout_text(in[2], scales), why);
}

static gd_status infer_quantized_linear(int n, const gd_layout *const *in, const void *attr,
                                        gd_layout *out)
{
    (void)n, (void)attr;
    const gd_layout *x = in[0], *values = in[1], *scales = in[2];
    if (values->dtype != GD_I8 || !is_scale(scales->dtype))
        return gd_fail(GD_ERR_DTYPE,
                       "gd_quantized_linear: the values are %s and the scales %s; i8, and f16 or "
                       "f32, expected",
                       gd_dtype_name(values->dtype), gd_dtype_name(scales->dtype));
    if (x->rank < 1 || values->rank != 2 || scales->rank != 2)
        return fail_shapes(in, "[.., in], [out, in] and [out, in / 32] expected");
    const int64_t inner = x->shape[x->rank - 1];
    if (inner % BLOCK != 0 || inner > MOST_INNER)
        return fail_shapes(in, "rows must be multiples of 32, and at most 262144");
    if (values->shape[1] != inner || scales->shape[1] != inner / BLOCK ||
        scales->shape[0] != values->shape[0])
        return fail_shapes(in, "sizes differ; [.., in], [out, in] and [out, in / 32] expected");
    for (int i = 0; i < 3; i++)
        if (!gd_layout_is_contiguous(in[i]))
            return fail_shapes(in, "they must be contiguous");
    gd_shape shape = gd_layout_shape(x);
    shape.dim[shape.rank - 1] = values->shape[0];
    return gd_layout_init(out, shape, GD_F32, "gd_quantized_linear");
}

/* The weights as f32 [out, in]. */
static gd_tensor *dequantized(gd_tensor *values, gd_tensor *scales)
{
    const int64_t rows = values->layout.shape[0], blocks = scales->layout.shape[1];
    gd_tensor *numbers = gd_reshape(gd_cast(values, GD_F32), GD_SHAPE(rows, blocks, BLOCK));
    gd_tensor *scaled = gd_mul(numbers, gd_unsqueeze(gd_as_dtype(scales, GD_F32), 2));
    return gd_reshape(scaled, GD_SHAPE(rows, blocks * BLOCK));
}

/* The gradient by x is that of the product without rounding of x; weights have none. */
static bool vjp_quantized_linear(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    if (!gd_wants_grad(r->inputs[0]))
        return true;
    if (g->layout.rank > 1)
        return gd_put(&d[0], gd_product(g, dequantized(r->inputs[1], r->inputs[2])));
    gd_tensor *row = gd_product(gd_unsqueeze(g, 0), dequantized(r->inputs[1], r->inputs[2]));
    return gd_put(&d[0], gd_squeeze(row, 0));
}

const gd_op gd_op_quantized_linear = { .id = GD_OP_quantized_linear,
                                       .name = "quantized_linear",
                                       .arity = 3,
                                       .flags = GD_OP_FULL,
                                       .dtypes = GD_DTYPE_SET(GD_F32),
                                       .infer = infer_quantized_linear,
                                       .vjp = vjp_quantized_linear,
                                       .flops = gd_flops_product,
                                       .recompute = GD_RECOMPUTE_PRODUCT };

static gd_tensor *build(gd_tensor *x, gd_tensor *values, gd_tensor *scales)
{
    const gd_dtype dtype = gd_float_dtype(x->layout.dtype);
    gd_tensor *in[3] = { gd_contiguous(gd_as_dtype(x, GD_F32)), gd_contiguous(values),
                         gd_contiguous(scales) };
    return gd_as_dtype(gd_apply(NULL, GD_OP_quantized_linear, 3, in, NULL), dtype);
}

gd_tensor *gd_quantized_linear(gd_tensor *x, gd_tensor *values, gd_tensor *scales)
{
    if (!gd_usable(x, "gd_quantized_linear") || !gd_usable(values, "gd_quantized_linear") ||
        !gd_usable(scales, "gd_quantized_linear"))
        return NULL;
    x = gd_autocast(GD_OP_quantized_linear, x);
    return x ? GD_AS("gd_quantized_linear", build(x, values, scales)) : NULL;
}
