/* tests/support/op_rows_norm.c: rows of normalisation. Results lie on both sides of 0, where a
 * relative error means little, so a bias or a constant moves them away. */
#include "support/op_row_macros.h"

#include "graph/node.h"
#include "ops/internal.h"

/* Among special values a bias may cancel what it is added to; test_norm.c tries them. */
#define DV (OP_DIFFERENTIABLE | OP_MUST_VARY | OP_NO_SPECIALS)

/* p[0]: axes */
static const op_case normalize_cases[] = {
    { { SHAPE(5, 7), SHAPE(7), SHAPE(7) }, { 1 } },
    { { SHAPE(2, 3, 33), SHAPE(33), SHAPE(33) }, { 1 } },
    { { SHAPE(3, 5, 2), SHAPE(5, 2), SHAPE(5, 2) }, { 2 } },
    { { SHAPE(13), SHAPE(13), SHAPE(13) }, { 1 } },
    { { SHAPE(0, 3), SHAPE(3), SHAPE(3) }, { 1 } },
    { { SHAPE(3, 0), SHAPE(0), SHAPE(0) }, { 1 } },
    { { SHAPE(2, 4999), SHAPE(4999), SHAPE(4999) }, { 1 } },
    { { SHAPE(67, 5), SHAPE(5), SHAPE(5) }, { 1 } },
};
static const op_refusal normalize_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5), SHAPE(7) }, { GD_F32, GD_F32, GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(7), SHAPE(1) }, { GD_F32, GD_F32, GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(7), SHAPE(7) }, { GD_F32, GD_F32, GD_F32 }, { 3 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(7), SHAPE(7) }, { GD_F32, GD_F32, GD_F32 }, { -1 } },
    { GD_ERR_SHAPE, { NUMBER, NUMBER, NUMBER }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
OP(normalize, 3, DV, RESULT_FLOAT, 8, y &&z ? gd_layer_norm(x, y, z, .axes = (int)p[0]) : NULL,
   VALUES(-4, 4), VALUES(0.5, 1), VALUES(6, 9))

/* The row op's gradient, whose first half serves rms_norm. p[0]: centred; p[1]: parts */
static gd_tensor *gradient(gd_tensor *x, gd_tensor *g, gd_tensor *weight, const int64_t *p)
{
    if (!x || !g || !weight)
        return NULL;
    if (gd_dtype_is_half(gd_tensor_dtype(weight)))
        weight = gd_cast(weight, GD_F32);
    gd_norm_attr attr = { .epsilon = 1e-3, .center = (int32_t)p[0], .parts = (int32_t)p[1] };
    return gd_add_scalar(gd_normalize_grad(x, g, weight, &attr), 64);
}
static const op_case normalize_grad_cases[] = {
    { { SHAPE(5, 7), SHAPE(5, 7), SHAPE(7) }, { 1, 2 } },
    { { SHAPE(2, 3, 33), SHAPE(2, 3, 33), SHAPE(33) }, { 1, 1 } },
    { { SHAPE(5, 7), SHAPE(5, 7), SHAPE(7) }, { 1, 0 } },
    { { SHAPE(5, 7), SHAPE(5, 7), SHAPE(7) }, { 0, 1 } },
    { { SHAPE(5, 7), SHAPE(5, 7), SHAPE(7) }, { 0, 0 } },
    { { SHAPE(13), SHAPE(13), SHAPE(13) }, { 0, 2 } },
    { { SHAPE(0, 3), SHAPE(0, 3), SHAPE(3) }, { 1, 2 } },
    { { SHAPE(3, 0), SHAPE(3, 0), SHAPE(0) }, { 1, 2 } },
    { { SHAPE(35, 3), SHAPE(35, 3), SHAPE(3) }, { 1, 2 } },
};
static const op_refusal normalize_grad_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 6), SHAPE(7) }, { GD_F32, GD_F32, GD_F32 }, { 1, 2 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 7), SHAPE(6) }, { GD_F32, GD_F32, GD_F32 }, { 1, 2 } },
    { GD_ERR_SHAPE, { NUMBER, NUMBER, SHAPE(1) }, { GD_F32, GD_F32, GD_F32 }, { 1, 2 } },
    { GD_ERR_DTYPE, { SHAPE(5, 7), SHAPE(5, 7), SHAPE(7) }, { GD_I32, GD_I32, GD_I32 }, { 1, 2 } },
};
OP(normalize_grad, 3, DV | OP_FLOATS_ONLY, RESULT_SUMS, 8, gradient(x, y, z, p), VALUES(-4, 4),
   VALUES(-2, 2), VALUES(0.5, 1))

/* The op of batch normalisation: x and g as they are where the device reads halves. p[0]: 1 squares, without g,
 * about the means, times `center`. */
static gd_tensor *centred(gd_tensor *x, gd_tensor *center, gd_tensor *g, const int64_t *p)
{
    if (!x || !center || !g)
        return NULL;
    gd_tensor *in[3] = { gd_contiguous(x), gd_contiguous(center), gd_contiguous(g) };
    const int n = p[0] ? 2 : 3;
    const bool half = gd_dtype_is_half(gd_tensor_dtype(x));
    gd_axes others = { .count = gd_tensor_shape(x).rank - 1 };
    for (int i = 1; i < others.count; i++)
        others.axis[i] = i + 1;
    if (p[0] && gd_dtype_is_float(gd_tensor_dtype(x)) && gd_tensor_shape(x).rank > 2)
        in[1] = gd_mean(half ? gd_cast(in[0], GD_F32) : in[0], others, false);
    in[1] = half ? gd_cast(in[1], GD_F32) : in[1];
    for (int i = 0; i < 3 && half && !gd_may_read_halves(GD_OP_centred_products, n, in, NULL);
         i += 2)
        in[i] = gd_cast(in[i], GD_F32);
    gd_tensor *r = gd_apply(NULL, GD_OP_centred_products, n, in, NULL);
    return p[0] ? gd_mul(r, center) : r;
}
static const op_case centred_products_cases[] = {
    { { SHAPE(2, 3, 7), SHAPE(3), SHAPE(2, 3, 7) }, { 0 } },
    { { SHAPE(2, 3, 4, 5), SHAPE(3), SHAPE(2, 3, 4, 5) }, { 1 } },
    { { SHAPE(3, 2, 1031), SHAPE(2), SHAPE(3, 2, 1031) }, { 0 } },
    { { SHAPE(1, 2, 9001), SHAPE(2), SHAPE(1, 2, 9001) }, { 1 } },
    { { SHAPE(2, 1, 4096), SHAPE(1), SHAPE(2, 1, 4096) }, { 0 } },
    { { SHAPE(0, 3, 5), SHAPE(3), SHAPE(0, 3, 5) }, { 0 } },
    { { SHAPE(2, 0, 5), SHAPE(0), SHAPE(2, 0, 5) }, { 1 } },
    { { SHAPE(2, 3, 0), SHAPE(3), SHAPE(2, 3, 0) }, { 1 } },
};
static const op_refusal centred_products_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(2, 3), SHAPE(3), SHAPE(2, 3) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE,
      { SHAPE(2, 3, 4), SHAPE(2), SHAPE(2, 3, 4) },
      { GD_F32, GD_F32, GD_F32 },
      { 0 } },
    { GD_ERR_SHAPE,
      { SHAPE(2, 3, 4), SHAPE(3, 1), SHAPE(2, 3, 4) },
      { GD_F32, GD_F32, GD_F32 },
      { 0 } },
    { GD_ERR_SHAPE,
      { SHAPE(2, 3, 4), SHAPE(3), SHAPE(2, 3, 5) },
      { GD_F32, GD_F32, GD_F32 },
      { 0 } },
    { GD_ERR_DTYPE,
      { SHAPE(2, 3, 4), SHAPE(3), SHAPE(2, 3, 4) },
      { GD_I32, GD_I32, GD_I32 },
      { 0 } },
};
OP(centred_products, 3, OP_DIFFERENTIABLE | OP_MUST_VARY | OP_FLOATS_ONLY, RESULT_SUMS, 64,
   centred(x, y, z, p), VALUES(6, 9), VALUES(0.5, 1), VALUES(1, 2))

static const op_case rms_norm_cases[] = {
    { { SHAPE(5, 7), SHAPE(7) }, { 1 } },
    { { SHAPE(3, 5, 2), SHAPE(5, 2) }, { 2 } },
    { { SHAPE(2, 301), SHAPE(301) }, { 1 } },
};
static const op_refusal rms_norm_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5) }, { GD_F32, GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 7) }, { GD_F32, GD_F32 }, { 1 } },
};
FUNCTION(rms_norm, 2, DV, RESULT_FLOAT, 8,
         y ? gd_rms_norm(x, y, .axes = (int)p[0], .epsilon = 1e-6) : NULL, VALUES(1, 4),
         VALUES(0.5, 1))

/* Without a weight, and with a bias alone. */
static const op_case layer_norm_bias_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(7) } } };
static const op_refusal layer_norm_bias_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5) }, { GD_F32, GD_F32 }, { 0 } },
};
FUNCTION(layer_norm_bias, 2, DV, RESULT_FLOAT, 8, y ? gd_layer_norm(x, NULL, y) : NULL,
         VALUES(-4, 4), VALUES(6, 9))

/* p[0]: groups */
static const op_case group_norm_cases[] = {
    { { SHAPE(2, 6, 3, 5), SHAPE(6), SHAPE(6) }, { 3 } },
    { { SHAPE(2, 4, 3), SHAPE(4), SHAPE(4) }, { 1 } },
    { { SHAPE(3, 4), SHAPE(4), SHAPE(4) }, { 2 } },
};
static const op_refusal group_norm_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(2, 6, 3), SHAPE(6), SHAPE(6) }, { GD_F32, GD_F32, GD_F32 }, { 4 } },
    { GD_ERR_SHAPE, { SHAPE(2, 6, 3), SHAPE(6), SHAPE(6) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 6, 3), SHAPE(6), SHAPE(6) }, { GD_F32, GD_F32, GD_F32 }, { -2 } },
    { GD_ERR_SHAPE, { SHAPE(2, 6, 3), SHAPE(3), SHAPE(6) }, { GD_F32, GD_F32, GD_F32 }, { 3 } },
    { GD_ERR_SHAPE, { SHAPE(6), SHAPE(6), SHAPE(6) }, { GD_F32, GD_F32, GD_F32 }, { 3 } },
};
FUNCTION(group_norm, 3, DV, RESULT_FLOAT, 8, y &&z ? gd_group_norm(x, y, z, p[0]) : NULL,
         VALUES(-4, 4), VALUES(0.5, 1), VALUES(6, 9))

#define instance_norm_cases    instance_cases
#define instance_norm_refusals instance_refusals
static const op_case instance_cases[] = {
    { .shape = { SHAPE(2, 3, 5, 2), SHAPE(3), SHAPE(3) } },
    { .shape = { SHAPE(2, 3, 7), SHAPE(3), SHAPE(3) } },
};
static const op_refusal instance_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(6), SHAPE(6), SHAPE(6) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
FUNCTION(instance_norm, 3, DV, RESULT_FLOAT, 8, y &&z ? gd_instance_norm(x, y, z) : NULL,
         VALUES(-4, 4), VALUES(0.5, 1), VALUES(6, 9))

static const op_case batch_norm_cases[] = {
    { .shape = { SHAPE(3, 4, 5), SHAPE(4), SHAPE(4) } },
    { .shape = { SHAPE(7, 3), SHAPE(3), SHAPE(3) } },
    { .shape = { SHAPE(2, 3, 5, 2), SHAPE(3), SHAPE(3) } },
};
static const op_refusal batch_norm_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3, 4, 5), SHAPE(5), SHAPE(4) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(1, 4), SHAPE(4), SHAPE(4) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(4), SHAPE(4), SHAPE(4) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
FUNCTION(batch_norm, 3, DV, RESULT_FLOAT, 8,
         y &&z ? gd_batch_norm(x, y, z, NULL, NULL, .training = true, .epsilon = 1e-3) : NULL,
         VALUES(-4, 4), VALUES(0.5, 1), VALUES(6, 9))

/* With given statistics: y the mean, z the variance. */
static const op_case batch_norm_eval_cases[] = {
    { .shape = { SHAPE(3, 4, 5), SHAPE(4), SHAPE(4) } },
};
static const op_refusal batch_norm_eval_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3, 4, 5), SHAPE(5), SHAPE(4) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
FUNCTION(batch_norm_eval, 3, OP_DIFFERENTIABLE, RESULT_FLOAT, 8,
         y &&z ? gd_batch_norm(x, NULL, NULL, y, z) : NULL, VALUES(4, 9), VALUES(0.5, 1),
         VALUES(1, 3))
