/* ops/quantized.c: the product with weights in blocks, and its definition. Start at
 * gd_quantized_linear().
 *
 * A row of weights is cut into blocks of 32: 32 int8, and a scale by which they are multiplied; so
 * GGUF's Q8_0 has them. Values of u8 hold two weights each, so GGUF's Q4_0: byte i of a block's 16 has
 * weight i in its low four bits and weight i + 16 in its high ones, plus 8. A row x of activations is
 * cut alike and rounded, each block to a scale of its own:
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
 * fused multiply-add. So all instruction sets, devices and numbers of threads give the same bits.
 *
 * Blocks may have a least value e beside the scale d: a weight is d * w - e, as GGUF's Q4_1 and Q5_1 have
 * it, whose m is -e. Scales are then d and e of one block after the other, and w of 4 bits are as they are,
 * 0 to 15, not 8 more. Of these
 *
 *     term b = (s_b * d) * float(sum of q * w, exact) - (s_b * e) * float(sum of q, exact)
 *
 * Scales may have two levels, as those of GGUF's k-quants: 256 weights share a scale d, and with least
 * values a second, e; groups of 32 or of 16 among them have a scale k and a least value l each, whole
 * numbers of 8 bits with sign. A weight is d * k * w - e * l. Its row of values has for each 256 weights
 * their bytes as above, then k of each group, then l of each; scales are d, or d and e. Of these
 *
 *     term b = (s_b * d) * float(sum of k * q * w, exact) - (s_b * e) * float(sum of l * q, exact)
 *
 * over the 32 numbers of block b, without the latter product where there are no least values. */
#include "ops/internal.h"
#include "base/quantized_form.h"

#include <gradus/autograd.h>

#define BLOCK 32
/* Numbers of a row: a kernel keeps a row in blocks in its scratch. */
#define MOST_INNER ((int64_t)1 << 18)

static bool is_scale(gd_dtype dtype)
{
    return dtype == GD_F32 || dtype == GD_F16;
}

/* By how many weights a value holds. */
static const char *const shapes_of[] = {
    [1] =
        "[.., in], i8 [out, in] and [out, in / 32], or [out, in / 16] with least values, or scales "
        "of two levels, expected",
    [2] = "[.., in], u8 [out, in / 2] and [out, in / 32], or [out, in / 16] with least values, or "
          "scales of two levels, expected",
};

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
    if ((values->dtype != GD_I8 && values->dtype != GD_U8) || !is_scale(scales->dtype))
        return gd_fail(
            GD_ERR_DTYPE,
            "gd_quantized_linear: the values are %s and the scales %s; i8 or u8, and f16 "
            "or f32, expected",
            gd_dtype_name(values->dtype), gd_dtype_name(scales->dtype));
    const int per_value = values->dtype == GD_U8 ? 2 : 1;
    if (x->rank < 1 || values->rank != 2 || scales->rank != 2)
        return fail_shapes(in, shapes_of[per_value]);
    const int64_t inner = x->shape[x->rank - 1];
    if (inner % BLOCK != 0 || inner > MOST_INNER)
        return fail_shapes(in, "rows must be multiples of 32, and at most 262144");
    gd_quantized_form form;
    if (!gd_quantized_form_of(values->dtype == GD_U8, values->shape[1], scales->shape[1], &form) ||
        gd_quantized_inner(&form, scales->shape[1]) != inner ||
        scales->shape[0] != values->shape[0])
        return fail_shapes(in, shapes_of[per_value]);
    for (int i = 0; i < 3; i++)
        if (!gd_layout_is_contiguous(in[i]))
            return fail_shapes(in, "they must be contiguous");
    gd_shape shape = gd_layout_shape(x);
    shape.dim[shape.rank - 1] = values->shape[0];
    return gd_layout_init(out, shape, GD_F32, "gd_quantized_linear");
}

/* Both weights of each byte of [.., 16]: f32 [.., 32]. */
static gd_tensor *both_halves(gd_tensor *bytes, double offset)
{
    gd_tensor *high = gd_floor(gd_mul_scalar(bytes, 1.0 / 16));
    gd_tensor *both[2] = { gd_sub(bytes, gd_mul_scalar(high, 16)), high };
    return gd_add_scalar(gd_concat(2, both, -1), offset);
}

/* shape with its last axis replaced by two. */
static gd_shape split_last(gd_shape shape, int64_t first, int64_t second)
{
    shape.dim[shape.rank - 1] = first;
    shape.dim[shape.rank++] = second;
    return shape;
}

static gd_tensor *in_blocks(gd_tensor *values, gd_tensor *scales, const gd_quantized_form *form)
{
    const gd_shape shape = gd_layout_shape(&scales->layout);
    const int64_t blocks = shape.dim[shape.rank - 1] / form->scales;
    gd_tensor *numbers = gd_reshape(values, split_last(shape, blocks, form->bytes));
    gd_tensor *by = gd_reshape(scales, split_last(shape, blocks, form->scales));
    if (form->four_bits)
        numbers = both_halves(numbers, form->has_least ? 0 : -8);
    numbers = gd_mul(numbers, gd_slice(by, -1, 0, 1, 1));
    return form->has_least ? gd_sub(numbers, gd_slice(by, -1, 1, 2, 1)) : numbers;
}

/* Bytes from … of the large blocks [.., bytes] as numbers with a sign, one for each group: [.., groups, 1]. */
static gd_tensor *of_groups(gd_tensor *blocks, const gd_quantized_form *form, int from)
{
    gd_tensor *k = gd_slice(blocks, -1, from, from + form->groups, 1);
    if (form->four_bits) /* they come from u8 */
        k = gd_sub(k, gd_mul_scalar(gd_floor(gd_mul_scalar(k, 1.0 / 128)), 256));
    return gd_unsqueeze(k, -1);
}

static gd_tensor *in_groups(gd_tensor *values, gd_tensor *scales, const gd_quantized_form *form)
{
    const gd_shape shape = gd_layout_shape(&scales->layout);
    const int64_t large = shape.dim[shape.rank - 1] / form->scales;
    gd_tensor *blocks = gd_reshape(values, split_last(shape, large, form->bytes));
    gd_tensor *by = gd_reshape(scales, split_last(shape, large, form->scales));
    gd_tensor *numbers = gd_slice(blocks, -1, 0, form->numbers, 1);
    const gd_shape of_blocks = split_last(shape, large, GD_QUANTIZED_LARGE);
    if (form->four_bits) {
        numbers = gd_reshape(numbers, split_last(of_blocks, 8, form->numbers / 8));
        numbers = both_halves(numbers, form->has_least ? 0 : -8);
    }
    numbers =
        gd_reshape(numbers, split_last(of_blocks, form->groups, GD_QUANTIZED_LARGE / form->groups));
    gd_tensor *d = gd_unsqueeze(gd_slice(by, -1, 0, 1, 1), -1); // [.., large, 1, 1]
    numbers = gd_mul(gd_mul(d, of_groups(blocks, form, form->numbers)), numbers);
    if (!form->has_least)
        return numbers;
    gd_tensor *e = gd_unsqueeze(gd_slice(by, -1, 1, 2, 1), -1);
    return gd_sub(numbers, gd_mul(e, of_groups(blocks, form, form->numbers + form->groups)));
}

static gd_tensor *numbers_of(gd_tensor *values, gd_tensor *scales)
{
    const int last = values->layout.rank - 1;
    const int64_t count = scales->layout.shape[last];
    gd_quantized_form form;
    if (!gd_quantized_form_of(values->layout.dtype == GD_U8, values->layout.shape[last], count,
                              &form))
        return NULL; /* not reached: the shapes were looked at */
    gd_shape shape = gd_layout_shape(&values->layout);
    shape.dim[last] = gd_quantized_inner(&form, count);
    gd_tensor *bytes = gd_cast(values, GD_F32), *by = gd_as_dtype(scales, GD_F32);
    return gd_reshape(form.groups ? in_groups(bytes, by, &form) : in_blocks(bytes, by, &form),
                      shape);
}

/* Scales are as many as the form has, and two axes more fit. */
static bool are_blocks(const gd_layout *values, const gd_layout *scales)
{
    const int last = values->rank - 1;
    bool same = last >= 0 && scales->rank == values->rank;
    for (int i = 0; same && i < last; i++)
        same = values->shape[i] == scales->shape[i];
    gd_quantized_form form;
    return same &&
           gd_quantized_form_of(values->dtype == GD_U8, values->shape[last], scales->shape[last],
                                &form) &&
           values->rank + (form.groups ? 2 : 1) <= GD_MAX_RANK;
}

gd_tensor *gd_dequantize(gd_tensor *values, gd_tensor *scales)
{
    if (!gd_usable(values, "gd_dequantize") || !gd_usable(scales, "gd_dequantize"))
        return NULL;
    const gd_layout *v = &values->layout, *s = &scales->layout;
    if ((v->dtype != GD_I8 && v->dtype != GD_U8) || !is_scale(s->dtype))
        return gd_fail_null(GD_ERR_DTYPE,
                            "gd_dequantize: the values are %s and the scales %s; i8 or u8, and f16 "
                            "or f32, expected",
                            gd_dtype_name(v->dtype), gd_dtype_name(s->dtype));
    char values_text[GD_SHAPE_TEXT], scales_text[GD_SHAPE_TEXT];
    if (!are_blocks(v, s))
        return gd_fail_null(
            GD_ERR_SHAPE,
            "gd_dequantize: values %s with scales %s; i8 [.., in] or u8 [.., in / "
            "2], and [.., in / 32], or [.., in / 16] with least values, or scales of two "
            "levels, expected",
            gd_layout_text(v, values_text), gd_layout_text(s, scales_text));
    return GD_AS("gd_dequantize", numbers_of(values, scales));
}

/* Blocks [.., in / 32, 32] in 8 bits, [.., in], and their scales [.., in / 32]. */
static gd_tensor *rounded(gd_tensor *blocks, bool per_channel, gd_tensor **scales)
{
    gd_shape shape = gd_layout_shape(&blocks->layout), of_scales = shape;
    const int last = shape.rank - 1;
    of_scales.dim[last] = 1;
    gd_tensor *most = gd_max(gd_abs(blocks), GD_AXES(-1), true);
    if (per_channel)
        most = gd_broadcast_to(gd_max(most, GD_AXES(-2), true), of_scales);
    gd_tensor *scale = gd_contiguous(gd_div_scalar(most, 127.0));
    gd_tensor *values = gd_cast(gd_round(gd_div(blocks, scale)), GD_I8);
    shape.dim[last - 1] *= BLOCK;
    shape.rank--;
    of_scales.rank--;
    *scales = gd_reshape(scale, of_scales);
    values = gd_reshape(values, shape);
    return *scales ? values : NULL;
}

gd_tensor *gd_quantize(gd_tensor *x, bool per_channel, gd_tensor **scales)
{
    if (!gd_usable(x, "gd_quantize"))
        return NULL;
    if (!scales)
        return gd_fail_null(GD_ERR_INVALID, "gd_quantize: there is no place for the scales");
    gd_shape shape = gd_layout_shape(&x->layout);
    char text[GD_SHAPE_TEXT];
    if (!gd_dtype_is_float(x->layout.dtype))
        return gd_fail_null(GD_ERR_DTYPE, "gd_quantize: x is %s; floats are needed",
                            gd_dtype_name(x->layout.dtype));
    if (shape.rank < 1 || shape.rank >= GD_MAX_RANK || shape.dim[shape.rank - 1] % BLOCK != 0 ||
        shape.dim[shape.rank - 1] == 0)
        return gd_fail_null(GD_ERR_SHAPE, "gd_quantize: x %s; rows must be multiples of 32",
                            gd_layout_text(&x->layout, text));
    shape.dim[shape.rank - 1] /= BLOCK;
    shape.dim[shape.rank++] = BLOCK;
    gd_tensor *plain = gd_contiguous(gd_as_dtype(gd_detach(x), GD_F32));
    return GD_AS("gd_quantize", rounded(gd_reshape(plain, shape), per_channel, scales));
}

/* The gradient by x is that of the product without rounding of x; weights have none. */
static bool vjp_quantized_linear(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    if (!gd_wants_grad(r->inputs[0]))
        return true;
    if (g->layout.rank > 1)
        return gd_put(&d[0], gd_product(g, numbers_of(r->inputs[1], r->inputs[2])));
    gd_tensor *row = gd_product(gd_unsqueeze(g, 0), numbers_of(r->inputs[1], r->inputs[2]));
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
