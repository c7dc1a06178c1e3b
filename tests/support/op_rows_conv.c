/* tests/support/op_rows_conv.c: the rows of convolution and pooling. */
#include "support/op_row_macros.h"

#include <gradus/conv.h>

#include "graph/apply.h"
#include "graph/node.h"
#include "ops/attrs.h"

/* ---- convolution: p = axes, stride, pad, dilation, groups, more ---- */

enum {
    SAME = 1,
    LOPSIDED = 2,    /* one more zero before the first axis, two behind the last, which has a
                        stride one larger */
    LARGER = 4,      /* transposed: one more element behind each axis */
    LARGER_LAST = 8, /* behind the last alone */
};

/* `usual` for each axis, and `last` for the last. */
static gd_shape except_last(const int64_t *p, int64_t usual, int64_t last)
{
    gd_shape s = { .rank = (int)p[0] };
    for (int i = 0; i < s.rank; i++)
        s.dim[i] = i == s.rank - 1 ? last : usual;
    return s;
}

static int64_t or_one(int64_t number)
{
    return number ? number : 1;
}

static gd_tensor *conv(gd_tensor *x, gd_tensor *w, gd_tensor *b, const int64_t *p, bool transposed)
{
    const int64_t stride = or_one(p[1]), pad = p[2];
    gd_conv_options o = { GD_CONV_DEFAULTS, .stride = GD_SHAPE(stride),
                          .dilation = GD_SHAPE(or_one(p[3])), .groups = or_one(p[4]),
                          .same = p[5] & SAME };
    if (!o.same || pad)
        o.padding = GD_SHAPE(pad);
    if (p[5] & LOPSIDED) {
        o.padding_before = except_last(p, pad, pad);
        o.padding_before.dim[0]++;
        o.padding_after = except_last(p, pad, pad + 2);
        o.stride = except_last(p, stride, stride + 1);
    }
    if (p[5] & (LARGER | LARGER_LAST))
        o.output_padding = except_last(p, p[5] & LARGER ? 1 : 0, 1);
    return transposed ? gd_conv_transpose_with(x, w, b, (int)p[0], &o)
                      : gd_conv_with(x, w, b, (int)p[0], &o);
}

static const op_case convolution_cases[] = {
    { { SHAPE(1, 2, 7), SHAPE(3, 2, 3), SHAPE(3) }, { 1 } },
    { { SHAPE(2, 1, 5), SHAPE(2, 1, 2), SHAPE(2) }, { 1, 2, 1, 2 } },
    { { SHAPE(1, 2, 4, 5), SHAPE(2, 2, 3, 3), SHAPE(2) }, { 2, 1, 1 } },
    { { SHAPE(1, 2, 3, 3), SHAPE(2, 1, 2, 2), SHAPE(2) }, { 2, 1, 0, 1, 2 } }, /* depthwise */
    { { SHAPE(1, 2, 2, 3), SHAPE(4, 1, 2, 2), SHAPE(4) }, { 2, 2, 1, 1, 2 } },
    { { SHAPE(1, 1, 5, 4), SHAPE(1, 1, 3, 2), SHAPE(1) }, { 2, 1, 0, 1, 1, LOPSIDED } },
    { { SHAPE(1, 3, 2, 2), SHAPE(4, 3, 1, 1), SHAPE(4) }, { 2 } }, /* 1x1 */
    { { SHAPE(1, 1, 2, 3, 4), SHAPE(2, 1, 2, 2, 2), SHAPE(2) }, { 3, 2, 1 } },
    { { SHAPE(1, 1, 5, 5), SHAPE(2, 1, 2, 3), SHAPE(2) }, { 2, 2, 0, 1, 1, SAME } },
    { { SHAPE(0, 2, 5, 5), SHAPE(3, 2, 3, 3), SHAPE(3) }, { 2 } },
    { { SHAPE(2, 0, 5, 5), SHAPE(3, 0, 3, 3), SHAPE(3) }, { 2, 1, 1 } },
    { { SHAPE(3, 5, 7, 11), SHAPE(17, 5, 3, 3), SHAPE(17) }, { 2, 1, 1 } },
    { { SHAPE(2, 31, 5, 7), SHAPE(5, 31, 3, 3), SHAPE(5) }, { 2, 2, 1 } },
    { { SHAPE(2, 6, 9, 13), SHAPE(34, 3, 3, 5), SHAPE(34) }, { 2, 1, 2, 2, 2 } },
    { { SHAPE(2, 8, 7, 33), SHAPE(8, 1, 3, 3), SHAPE(8) }, { 2, 1, 1, 1, 8 } },
    { { SHAPE(2, 3, 4, 5, 6), SHAPE(5, 3, 3, 2, 3), SHAPE(5) }, { 3, 2, 1, 1, 1, LOPSIDED } },
    { { SHAPE(1, 270, 3, 4), SHAPE(15, 270, 1, 1), SHAPE(15) }, { 2 } },
};
static const op_refusal convolution_refusals[] = {
    { GD_ERR_SHAPE,
      { SHAPE(1, 2, 4), SHAPE(3, 2, 5), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 1 } },
    { GD_ERR_SHAPE,
      { SHAPE(1, 2, 4), SHAPE(3, 2, 0), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 1 } },
    { GD_ERR_SHAPE,
      { SHAPE(1, 2, 4), SHAPE(3, 3, 2), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 1 } },
    { GD_ERR_SHAPE,
      { SHAPE(1, 2, 4), SHAPE(3, 2, 2), SHAPE(2) },
      { GD_F32, GD_F32, GD_F32 },
      { 1 } },
    { GD_ERR_SHAPE,
      { SHAPE(1, 2, 4), SHAPE(3, 1, 2), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 1, 1, 0, 1, 2 } },
    { GD_ERR_SHAPE,
      { SHAPE(1, 2, 4, 4), SHAPE(3, 2, 2), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 2 } },
    { GD_ERR_SHAPE, { SHAPE(2, 4), SHAPE(3, 2), SHAPE(3) }, { GD_F32, GD_F32, GD_F32 }, { 1 } },
    { GD_ERR_INVALID,
      { SHAPE(1, 2, 4), SHAPE(3, 2, 2), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 1, -1 } },
    { GD_ERR_INVALID,
      { SHAPE(1, 2, 4), SHAPE(3, 2, 2), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 1, 1, -1 } },
    { GD_ERR_INVALID,
      { SHAPE(1, 2, 4), SHAPE(3, 2, 2), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 1, 1, 0, (int64_t)1 << 40 } },
    { GD_ERR_INVALID,
      { SHAPE(1, 2, 4), SHAPE(3, 2, 2), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 1, 1, 0, 1, -2 } },
    { GD_ERR_INVALID,
      { SHAPE(1, 2, 4), SHAPE(3, 2, 2), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 1, 1, 1, 1, 1, SAME } },
    { GD_ERR_INVALID,
      { SHAPE(1, 2, 4), SHAPE(3, 2, 2), SHAPE(3) },
      { GD_F32, GD_F32, GD_F32 },
      { 4 } },
};
OP(convolution, 3, D | OP_SUM, RESULT_FLOAT, 128, conv(x, y, z, p, false), VALUES(0.5, 2),
   VALUES(0.5, 2), VALUES(0.5, 2))

static const op_case conv_without_bias_cases[] = {
    { .shape = { SHAPE(1, 2, 3, 4), SHAPE(2, 2, 2, 2) }, .p = { 2, 1, 1 } },
    { .shape = { SHAPE(1, 3, 2, 2), SHAPE(2, 3, 1, 1) }, .p = { 2 } },
};
FUNCTION_SAFE(conv_without_bias, 2, D | OP_SUM, RESULT_FLOAT, 128, conv(x, y, NULL, p, false),
              VALUES(0.5, 2), VALUES(0.5, 2))

/* The transposed convolution without a bias is this op. */
static const op_case convolution_grad_input_cases[] = {
    { { SHAPE(1, 2, 5), SHAPE(2, 3, 3) }, { 1 } },
    { { SHAPE(2, 2, 4), SHAPE(2, 1, 3) }, { 1, 2, 1, 1, 1, LARGER } },
    { { SHAPE(1, 2, 3, 3), SHAPE(2, 2, 3, 3) }, { 2, 1, 1 } },
    { { SHAPE(1, 2, 3, 2), SHAPE(2, 1, 2, 2) }, { 2, 2, 0, 1, 2 } },
    { { SHAPE(1, 2, 2, 3), SHAPE(2, 2, 1, 1) }, { 2, 2, 0, 1, 1, LARGER_LAST } },
    { { SHAPE(1, 1, 3, 4), SHAPE(1, 2, 3, 2) }, { 2, 1, 0, 1, 1, LOPSIDED } },
    { { SHAPE(1, 1, 3, 4), SHAPE(1, 2, 2, 3) }, { 2, 2, 0, 1, 1, SAME } },
    { { SHAPE(1, 2, 2, 2, 3), SHAPE(2, 1, 2, 2, 2) }, { 3, 2, 1, 2, 1, LARGER } },
    { { SHAPE(0, 2, 3, 3), SHAPE(2, 2, 3, 3) }, { 2 } },
    { { SHAPE(3, 17, 5, 7), SHAPE(17, 19, 3, 3) }, { 2, 1, 1 } },
    { { SHAPE(2, 33, 5, 7), SHAPE(33, 5, 3, 4) }, { 2, 2, 1 } },
    { { SHAPE(2, 6, 9, 13), SHAPE(6, 15, 3, 3) }, { 2, 3, 2, 2, 2, LARGER } },
    { { SHAPE(2, 8, 7, 33), SHAPE(8, 1, 3, 3) }, { 2, 1, 1, 1, 8 } },
};
static const op_refusal convolution_grad_input_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(1, 2, 4), SHAPE(3, 2, 2) }, { GD_F32, GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { SHAPE(1, 2, 4), SHAPE(2, 2) }, { GD_F32, GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { SHAPE(1, 2, 1), SHAPE(2, 2, 2) }, { GD_F32, GD_F32 }, { 1, 1, 1 } },
    { GD_ERR_SHAPE, { SHAPE(1, 3, 4), SHAPE(3, 2, 2) }, { GD_F32, GD_F32 }, { 1, 1, 0, 1, 2 } },
    { GD_ERR_INVALID,
      { SHAPE(1, 2, 4), SHAPE(2, 2, 2) },
      { GD_F32, GD_F32 },
      { 1, 1, 0, 1, 1, LARGER } },
    { GD_ERR_INVALID, { SHAPE(1, 2, 4), SHAPE(2, 2, 2) }, { GD_F32, GD_F32 }, { 1, 0, -2 } },
};
OP(convolution_grad_input, 2, D | OP_SUM, RESULT_FLOAT, 128, conv(x, y, NULL, p, true),
   VALUES(0.5, 2), VALUES(0.5, 2))

static const op_case conv_transpose_cases[] = {
    { { SHAPE(1, 2, 3, 2), SHAPE(2, 3, 2, 2), SHAPE(3) }, { 2, 2, 1, 1, 1, LARGER } },
    { { SHAPE(2, 2, 3), SHAPE(2, 1, 3), SHAPE(2) }, { 1, 1, 0, 1, 2 } },
};
static const op_refusal conv_transpose_refusals[] = {
    { GD_ERR_SHAPE,
      { SHAPE(1, 2, 4), SHAPE(2, 3, 2), SHAPE(2) },
      { GD_F32, GD_F32, GD_F32 },
      { 1 } },
    { GD_ERR_SHAPE,
      { SHAPE(1, 2, 4), SHAPE(2, 3, 2), SHAPE(3, 1) },
      { GD_F32, GD_F32, GD_F32 },
      { 1 } },
};
FUNCTION(conv_transpose, 3, D | OP_SUM, RESULT_FLOAT, 128, conv(x, y, z, p, true), VALUES(0.5, 2),
         VALUES(0.5, 2), VALUES(0.5, 2))

/* What the builders do with dtypes: integers become f32, halves go through it and come back. */
static gd_dtype computed_in(gd_dtype dtype)
{
    return dtype == GD_F64 ? GD_F64 : GD_F32;
}

static gd_tensor *as_half(gd_tensor *r, gd_dtype dtype)
{
    return dtype == GD_F16 || dtype == GD_BF16 ? gd_cast(r, dtype) : r;
}

/* p = stride, pad, dilation, groups, then the kernel's sizes of the last three axes. */
static gd_tensor *grad_weight(gd_tensor *g, gd_tensor *x, const int64_t *p)
{
    if (!g || !x)
        return NULL;
    const gd_dtype whole = gd_dtype_promote(gd_tensor_dtype(g), gd_tensor_dtype(x));
    const gd_dtype dtype = computed_in(whole);
    gd_conv_attr attr = { .groups = p[3] };
    for (int a = 0; a < GD_SPATIAL; a++) {
        const bool used = p[4 + a] > 0;
        attr.stride[a] = used ? p[0] : 1;
        attr.dilation[a] = used ? p[2] : 1;
        attr.before[a] = attr.after[a] = used ? p[1] : 0;
        attr.size[a] = used ? p[4 + a] : 1;
    }
    gd_tensor *in[2] = { gd_contiguous(gd_cast(g, dtype)), gd_contiguous(gd_cast(x, dtype)) };
    return as_half(gd_apply(NULL, GD_OP_convolution_grad_weight, 2, in, &attr), whole);
}

static const op_case convolution_grad_weight_cases[] = {
    { { SHAPE(2, 2, 5), SHAPE(2, 3, 7) }, { 1, 0, 1, 1, 0, 0, 3 } },
    { { SHAPE(1, 2, 3, 4), SHAPE(1, 2, 3, 4) }, { 1, 1, 1, 1, 0, 3, 3 } },
    { { SHAPE(2, 2, 2, 3), SHAPE(2, 2, 4, 5) }, { 2, 0, 1, 2, 0, 2, 1 } },
    { { SHAPE(1, 1, 4, 3), SHAPE(1, 2, 4, 3) }, { 1, 1, 2, 1, 0, 2, 2 } },
    { { SHAPE(1, 2, 2, 2, 1), SHAPE(1, 1, 3, 4, 3) }, { 2, 1, 1, 1, 2, 3, 4 } },
    { { SHAPE(0, 2, 3, 4), SHAPE(0, 2, 3, 4) }, { 1, 1, 1, 1, 0, 3, 3 } },
    { { SHAPE(3, 17, 5, 7), SHAPE(3, 19, 5, 7) }, { 1, 1, 1, 1, 0, 3, 3 } },
    { { SHAPE(2, 33, 5, 7), SHAPE(2, 3, 11, 15) }, { 2, 0, 1, 1, 0, 3, 3 } },
    { { SHAPE(2, 6, 9, 13), SHAPE(2, 4, 9, 13) }, { 1, 2, 2, 2, 0, 3, 3 } },
    { { SHAPE(2, 8, 7, 33), SHAPE(2, 8, 7, 33) }, { 1, 1, 1, 8, 0, 3, 3 } },
    { { SHAPE(2, 5, 17, 19), SHAPE(2, 7, 17, 19) }, { 1, 0, 1, 1, 0, 1, 1 } },
};
static const op_refusal convolution_grad_weight_refusals[] = {
    { GD_ERR_SHAPE,
      { SHAPE(2, 2, 5), SHAPE(1, 3, 7) },
      { GD_F32, GD_F32 },
      { 1, 0, 1, 1, 0, 0, 3 } },
    { GD_ERR_SHAPE,
      { SHAPE(2, 2, 4), SHAPE(2, 3, 7) },
      { GD_F32, GD_F32 },
      { 1, 0, 1, 1, 0, 0, 3 } },
    { GD_ERR_SHAPE,
      { SHAPE(2, 3, 5), SHAPE(2, 3, 7) },
      { GD_F32, GD_F32 },
      { 1, 0, 1, 2, 0, 0, 3 } },
};
OP(convolution_grad_weight, 2, D | OP_SUM, RESULT_FREE, 256, grad_weight(x, y, p), VALUES(0.5, 2),
   VALUES(0.5, 2))

/* ---- pooling: p = axes, window, stride, pad, dilation, more ---- */

enum {
    CEIL = 1,
    EXCLUDE_PAD = 2,
    OBLONG = 4, /* the last axis has a window one larger */
};

static gd_tensor *pool(gd_tensor *x, const int64_t *p, bool maximum)
{
    const gd_shape window = except_last(p, p[1], p[1] + (p[5] & OBLONG ? 1 : 0));
    gd_pool_options o = { GD_POOL_DEFAULTS, .padding = GD_SHAPE(p[3]),
                          .dilation = GD_SHAPE(or_one(p[4])), .ceil_mode = p[5] & CEIL,
                          .count_padding = !(p[5] & EXCLUDE_PAD) };
    if (p[2])
        o.stride = GD_SHAPE(p[2]);
    return maximum ? gd_max_pool_with(x, (int)p[0], window, &o)
                   : gd_avg_pool_with(x, (int)p[0], window, &o);
}

static const op_case max_pool_cases[] = {
    { { SHAPE(2, 2, 7) }, { 1, 2 } },
    { { SHAPE(1, 2, 4, 6) }, { 2, 2 } },
    { { SHAPE(1, 2, 5, 5) }, { 2, 3, 2, 1 } },
    { { SHAPE(2, 1, 5, 6) }, { 2, 2, 2, 0, 0, CEIL } },
    { { SHAPE(1, 1, 5, 7) }, { 2, 2, 1, 1, 2 } },
    { { SHAPE(1, 1, 3, 4, 5) }, { 3, 2, 2, 1, 1, CEIL } },
    { { SHAPE(0, 3, 4, 4) }, { 2, 2 } },
    { { SHAPE(3, 5, 9, 17) }, { 2, 2, 3, 1, 1, OBLONG } },
    { { SHAPE(3, 5, 8, 34) }, { 2, 2, 2 } },
    { { SHAPE(2, 2, 5, 10) }, { 2, 2 } },
    { { SHAPE(1, 2, 4, 39) }, { 2, 2 } },
};
static const op_refusal max_pool_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(1, 2, 3) }, { GD_F32 }, { 1, 4 } },
    { GD_ERR_SHAPE, { SHAPE(1, 2, 0) }, { GD_F32 }, { 1, 2, 1, 1 } },
    { GD_ERR_SHAPE, { SHAPE(2, 3) }, { GD_F32 }, { 1, 2 } },
    { GD_ERR_SHAPE, { SHAPE(1, 2, 3, 3) }, { GD_F32 }, { 1, 2 } },
    { GD_ERR_SHAPE, { SHAPE(1, 2, 3, 3) }, { GD_F32 }, { 4, 2 } },
    { GD_ERR_INVALID, { SHAPE(1, 2, 3) }, { GD_F32 }, { 1 } },
    { GD_ERR_INVALID, { SHAPE(1, 2, 3) }, { GD_F32 }, { 1, 2, -1 } },
    { GD_ERR_INVALID, { SHAPE(1, 2, 3) }, { GD_F32 }, { 1, 2, 1, 2 } },
    { GD_ERR_INVALID, { SHAPE(1, 2, 3) }, { GD_F32 }, { 1, 2, 1, -1 } },
};
#define avg_pool_refusals max_pool_refusals
OP(max_pool, 1, DE | OP_MUST_VARY, RESULT_FLOAT, 0, pool(x, p, true), VALUES(-20, 20))

static const op_case avg_pool_cases[] = {
    { { SHAPE(2, 2, 7) }, { 1, 2 } },
    { { SHAPE(1, 2, 4, 6) }, { 2, 2 } },
    { { SHAPE(1, 2, 5, 5) }, { 2, 3, 2, 1 } },
    { { SHAPE(1, 2, 5, 5) }, { 2, 3, 2, 1, 0, EXCLUDE_PAD } },
    { { SHAPE(2, 1, 5, 6) }, { 2, 2, 2, 1, 0, CEIL } },
    { { SHAPE(1, 1, 3, 4, 5) }, { 3, 2, 2, 1, 1, CEIL | EXCLUDE_PAD } },
    { { SHAPE(0, 3, 4, 4) }, { 2, 2 } },
    { { SHAPE(3, 5, 9, 17) }, { 2, 2, 3, 1, 1, OBLONG } },
    { { SHAPE(3, 5, 8, 34) }, { 2, 2, 2 } },
};
OP(avg_pool, 1, D, RESULT_FLOAT, 32, pool(x, p, false), VALUES(0.5, 2))

/* The attribute of a pooling of the last two axes: p = window, stride, pad, result's sizes. */
static gd_pool_attr plane_attr(const int64_t *p)
{
    gd_pool_attr attr = { .exclude_pad = 1 };
    for (int a = 0; a < GD_SPATIAL; a++) {
        attr.kernel[a] = a ? p[0] : 1;
        attr.stride[a] = a ? p[1] : 1;
        attr.before[a] = attr.after[a] = a ? p[2] : 0;
        attr.dilation[a] = 1;
        attr.size[a] = a ? p[2 + a] : 1;
    }
    return attr;
}

/* An op of n operands, the last of which is y. */
static gd_tensor *apply_pool(gd_op_id id, int n, gd_tensor *x, gd_tensor *y, const int64_t *p)
{
    if (!x || !y)
        return NULL;
    const gd_dtype dtype = computed_in(gd_tensor_dtype(x));
    const gd_pool_attr attr = plane_attr(p);
    gd_tensor *in[2] = { gd_contiguous(gd_cast(x, dtype)), gd_contiguous(gd_cast(y, dtype)) };
    return gd_apply(NULL, id, n, in, &attr);
}

static const op_case max_pool_index_cases[] = {
    { { SHAPE(2, 2, 5, 4) }, { 2, 2, 0, 2, 2 } },
    { { SHAPE(2, 1, 5, 5) }, { 3, 2, 1, 3, 3 } },
    { { SHAPE(0, 1, 5, 5) }, { 3, 2, 1, 3, 3 } },
};
static const op_refusal max_pool_index_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 5) }, { GD_F32 }, { 2, 2, 0, 2, 2 } },
};
OP(max_pool_index, 1, E, RESULT_I64, 0, apply_pool(GD_OP_max_pool_index, 1, x, x, p),
   VALUES(-20, 20))

static const op_case max_pool_grad_cases[] = {
    { { SHAPE(2, 2, 2, 2), SHAPE(2, 2, 5, 4) }, { 2, 2, 0, 2, 2 } },
    { { SHAPE(1, 2, 3, 3), SHAPE(1, 2, 5, 5) }, { 3, 2, 1, 3, 3 } },
    { { SHAPE(0, 2, 3, 3), SHAPE(0, 2, 5, 5) }, { 3, 2, 1, 3, 3 } },
    { { SHAPE(1, 2, 2, 5), SHAPE(1, 2, 5, 10) }, { 2, 2, 0, 2, 5 } },
    { { SHAPE(1, 1, 2, 19), SHAPE(1, 1, 4, 39) }, { 2, 2, 0, 2, 19 } },
};
static const op_refusal max_pool_grad_refusals[] = {
    { GD_ERR_SHAPE,
      { SHAPE(2, 2, 2, 3), SHAPE(2, 2, 5, 4) },
      { GD_F32, GD_F32 },
      { 2, 2, 0, 2, 2 } },
    { GD_ERR_SHAPE, { SHAPE(2, 2), SHAPE(5, 4) }, { GD_F32, GD_F32 }, { 2, 2, 0, 2, 2 } },
};
OP(max_pool_grad, 2, D | OP_SUM | OP_MUST_VARY, RESULT_FREE, 16,
   apply_pool(GD_OP_max_pool_grad, 2, x, y, p), VALUES(0.5, 2), VALUES(-20, 20))

static const op_case avg_pool_grad_cases[] = {
    { { SHAPE(2, 2, 2, 2) }, { 2, 2, 0, 5, 4 } },
    { { SHAPE(1, 2, 3, 3) }, { 3, 2, 1, 5, 5 } },
    { { SHAPE(0, 2, 3, 3) }, { 3, 2, 1, 5, 5 } },
};
static const op_refusal avg_pool_grad_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 5) }, { GD_F32 }, { 2, 2, 0, 2, 2 } },
};
OP(avg_pool_grad, 1, D, RESULT_FREE, 16, apply_pool(GD_OP_avg_pool_grad, 1, x, x, p),
   VALUES(0.5, 2))

static const op_case adaptive_avg_pool_cases[] = {
    { { SHAPE(2, 2, 7) }, { 1, 3 } },
    { { SHAPE(1, 2, 5, 6) }, { 2, 3, 2 } },
    { { SHAPE(1, 1, 2, 3, 5) }, { 3, 1, 4, 3 } },
};
static const op_refusal adaptive_avg_pool_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(1, 2, 3) }, { GD_F32 }, { 1, 0 } },
    { GD_ERR_SHAPE, { SHAPE(1, 2, 0) }, { GD_F32 }, { 1, 1 } },
    { GD_ERR_SHAPE, { SHAPE(1, 2, 3) }, { GD_F32 }, { 2, 1, 1 } },
    { GD_ERR_SHAPE, { SHAPE(1, 2, 3) }, { GD_F32 }, { 0 } },
};
#define adaptive_max_pool_cases    adaptive_avg_pool_cases
#define adaptive_max_pool_refusals adaptive_avg_pool_refusals
FUNCTION(adaptive_avg_pool, 1, D, RESULT_FLOAT, 16, gd_adaptive_avg_pool(x, shape_of(p)),
         VALUES(0.5, 2))
FUNCTION(adaptive_max_pool, 1, DE | OP_MUST_VARY, RESULT_FLOAT, 0,
         gd_adaptive_max_pool(x, shape_of(p)), VALUES(-20, 20))

static const op_case global_avg_pool_cases[] = { { .shape = { SHAPE(2, 3, 5) } },
                                                 { .shape = { SHAPE(2, 3, 4, 5) } } };
static const op_refusal global_avg_pool_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 5) }, { GD_F32 }, { 0 } }
};
#define global_max_pool_cases    global_avg_pool_cases
#define global_max_pool_refusals global_avg_pool_refusals
FUNCTION(global_avg_pool, 1, D, RESULT_FLOAT, 64, gd_global_avg_pool(x), VALUES(0.5, 2))
FUNCTION(global_max_pool, 1, DE | OP_MUST_VARY, RESULT_SAME, 0, gd_global_max_pool(x),
         VALUES(-20, 20))
