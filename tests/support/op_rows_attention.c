/* tests/support/op_rows_attention.c: the rows of attention, its gradient, and positional encodings.
 * Dropout, and what only larger operands show, is in test_attention.c. */
#include "support/op_row_macros.h"

#include "backend/backend.h"
#include "graph/apply.h"
#include "graph/context.h"
#include "graph/dtypes.h"
#include "graph/node.h"
#include "ops/attrs.h"

#include <math.h>

/* Masks for scores of q and k: 1 bool, with a row (1) that may look nowhere; 2 numbers, the same
 * exclusions as -inf; 3 bool [tk] alone. 0: none. */
static gd_tensor *mask_of(gd_tensor *q, gd_tensor *k, int64_t kind)
{
    if (!q || !k || kind == 0)
        return NULL;
    gd_context *context = gd_tensor_context(q);
    gd_shape tq = gd_tensor_shape(q), tk = gd_tensor_shape(k);
    gd_tensor *i = gd_unsqueeze(gd_arange(context, 0, (double)tq.dim[tq.rank - 2], 1, GD_I64), 1);
    gd_tensor *j = gd_arange(context, 0, (double)tk.dim[tk.rank - 2], 1, GD_I64);
    if (kind == 3)
        return gd_ne(gd_mod(j, gd_scalar(context, 3, GD_I64)), gd_scalar(context, 1, GD_I64));
    gd_tensor *some =
        gd_ne(gd_mod(gd_add(i, j), gd_scalar(context, 3, GD_I64)), gd_scalar(context, 2, GD_I64));
    gd_tensor *may = gd_logical_and(some, gd_ne(i, gd_scalar(context, 1, GD_I64)));
    if (kind == 1)
        return may;
    gd_dtype dtype = gd_sums_dtype(gd_tensor_dtype(q));
    gd_tensor *bias = gd_mul_scalar(gd_cast(gd_sub(i, j), dtype), 0.125);
    return gd_where(may, bias, gd_full(context, GD_SCALAR, -INFINITY, dtype));
}

/* The op as builders record it: of halves where the device takes them so, else of f32. */
static gd_tensor *apply_as_taken(gd_op_id id, int n, gd_tensor **in, const void *attr)
{
    const gd_layout *layouts[GD_OP_MAX_INPUTS];
    for (int i = 0; i < n; i++) {
        if (!gd_usable(in[i], "gd_attention"))
            return NULL;
        layouts[i] = &in[i]->layout;
    }
    const gd_context *context = in[0]->context;
    const gd_dtype dtype = layouts[0]->dtype;
    const bool widens =
        gd_dtype_is_half(dtype) && (!gd_dtype_set_has(context->device->half_products, dtype) ||
                                    !gd_op_is_taken(context, id, n, layouts, attr));
    for (int i = 0; i < n && widens; i++)
        if (layouts[i]->dtype == dtype)
            in[i] = gd_cast(in[i], GD_F32);
    return gd_apply(NULL, id, n, in, attr);
}

/* p: causal, kind of mask. Wherever terms cancel, 8 is added to a row's result, so that units in
 * the last place mean something. */
static gd_tensor *packed(gd_tensor *const *in, const int64_t *p)
{
    gd_tensor *inputs[4] = { in[0], in[1], in[2], mask_of(in[0], in[1], p[1]) };
    gd_attention_attr attr = { .scale = 0.5, .causal = p[0] != 0, .has_mask = p[1] != 0 };
    return apply_as_taken(GD_OP_attention, p[1] ? 4 : 3, inputs, &attr);
}

static const op_case attention_cases[] = {
    { .shape = { SHAPE(1, 5, 3), SHAPE(1, 7, 3), SHAPE(1, 7, 2) } },
    { { SHAPE(2, 2, 3, 4), SHAPE(2, 2, 3, 4), SHAPE(2, 2, 3, 4) }, { 1 } },
    { { SHAPE(4, 3, 2), SHAPE(2, 5, 2), SHAPE(2, 5, 2) }, { 1 } },
    { { SHAPE(2, 4, 3), SHAPE(1, 3, 3), SHAPE(1, 3, 5) }, { 0, 1 } },
    { { SHAPE(2, 3, 2), SHAPE(2, 4, 2), SHAPE(2, 4, 2) }, { 0, 2 } },
    { { SHAPE(1, 5, 2), SHAPE(1, 3, 2), SHAPE(1, 3, 2) }, { 1, 3 } },
    { .shape = { SHAPE(2, 0, 3), SHAPE(2, 4, 3), SHAPE(2, 4, 3) } },
    { .shape = { SHAPE(2, 3, 3), SHAPE(2, 0, 3), SHAPE(2, 0, 3) } },
    { .shape = { SHAPE(0, 2, 3, 3), SHAPE(0, 1, 4, 3), SHAPE(0, 1, 4, 3) } },
    { { SHAPE(1, 9, 5), SHAPE(1, 67, 5), SHAPE(1, 67, 3) }, { 1, 0 } },
};
#define F32_3                  \
    {                          \
        GD_F32, GD_F32, GD_F32 \
    }
static const op_refusal attention_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 3), SHAPE(5, 3), SHAPE(5, 3) }, F32_3, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 5, 3), SHAPE(2, 5, 4), SHAPE(2, 5, 4) }, F32_3, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(3, 5, 3), SHAPE(2, 5, 3), SHAPE(2, 5, 3) }, F32_3, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 5, 3), SHAPE(2, 5, 3), SHAPE(2, 6, 3) }, F32_3, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(3, 2, 5, 3), SHAPE(2, 2, 5, 3), SHAPE(2, 2, 5, 3) }, F32_3, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 5, 0), SHAPE(2, 5, 0), SHAPE(2, 5, 3) }, F32_3, { 0 } },
};
OP(attention, 3, OP_FLOATS_ONLY | OP_NO_SPECIALS, RESULT_SUMS, 128, gd_add_scalar(packed(in, p), 8),
   VALUES(-2, 2), VALUES(-2, 2), VALUES(0.5, 2))

/* p: causal, kind of mask, dtype of k and v: 0 bf16, 1 i8. Their numbers are whole, and exact in either. */
static gd_tensor *attend_narrowly(gd_tensor *const *in, const int64_t *p)
{
    const gd_dtype dtype = p[2] ? GD_I8 : GD_BF16;
    gd_tensor *k = gd_cast(in[1], dtype), *v = gd_cast(in[2], dtype), *scale[2] = { NULL, NULL };
    for (int i = 0; i < 2 && p[2] && k && v; i++) {
        gd_shape rows = gd_tensor_shape(i ? v : k);
        rows.dim[rows.rank - 1] = 1;
        scale[i] = gd_full(gd_tensor_context(k), rows, i ? 0.0625 : 0.03125, GD_F32);
    }
    gd_tensor *r = gd_attention(in[0], k, v, .causal = p[0] != 0, .k_scale = scale[0],
                                .v_scale = scale[1], .mask = mask_of(in[0], k, p[1]));
    const gd_dtype of_q = in[0] ? gd_tensor_dtype(in[0]) : GD_F32;
    return of_q == GD_F32 ? r : gd_cast(r, of_q);
}

static const op_case attention_narrow_cases[] = {
    { { SHAPE(1, 5, 3), SHAPE(1, 7, 3), SHAPE(1, 7, 2) }, { 0, 0, 1 } },
    { { SHAPE(2, 2, 3, 4), SHAPE(2, 2, 3, 4), SHAPE(2, 2, 3, 4) }, { 1, 0, 0 } },
    { { SHAPE(4, 3, 2), SHAPE(2, 5, 2), SHAPE(2, 5, 2) }, { 1, 0, 1 } },
    { { SHAPE(2, 4, 3), SHAPE(1, 3, 3), SHAPE(1, 3, 5) }, { 0, 1, 1 } },
    { { SHAPE(2, 3, 2), SHAPE(2, 4, 2), SHAPE(2, 4, 2) }, { 0, 2, 0 } },
    { { SHAPE(2, 3, 3), SHAPE(2, 0, 3), SHAPE(2, 0, 3) }, { 0, 0, 1 } },
    { { SHAPE(1, 9, 5), SHAPE(1, 67, 5), SHAPE(1, 67, 3) }, { 1, 0, 1 } },
};
#define attention_narrow_refusals attention_refusals
OP(attention_narrow, 3, OP_FLOATS_ONLY | OP_NO_SPECIALS, RESULT_SAME, 128, attend_narrowly(in, p),
   VALUES(-2, 2), { -60, 60, OPERAND_INDEX }, { 1, 60, OPERAND_INDEX })

#define attention_result_cases    attention_cases
#define attention_result_refusals attention_refusals
OP(attention_result, 3, D | OP_FLOATS_ONLY | OP_NO_SPECIALS, RESULT_SAME, 128,
   gd_attention(x, y, z, .causal = p[0] != 0, .mask = mask_of(x, y, p[1])), VALUES(-2, 2),
   VALUES(-2, 2), VALUES(0.5, 2))

static const op_case attention_plain_cases[] = {
    { .shape = { SHAPE(1, 5, 3), SHAPE(1, 7, 3), SHAPE(1, 7, 2) } },
    { { SHAPE(4, 3, 2), SHAPE(2, 5, 2), SHAPE(2, 5, 2) }, { 1, 1 } },
};
#define attention_plain_refusals attention_refusals
FUNCTION(attention_plain, 3, D | OP_FLOATS_ONLY | OP_NO_SPECIALS, RESULT_SAME, 256,
         gd_attention(x, y, z, .causal = p[0] != 0, .mask = mask_of(x, y, p[1]), .plain = true),
         VALUES(-2, 2), VALUES(-2, 2), VALUES(0.5, 2))

/* Operands q, k and v together [2, ..], and g. p: causal, kind of mask, joined. */
static gd_tensor *grad_of(gd_tensor *const *in, const int64_t *p)
{
    if (!in[0] || !in[1] || !in[2])
        return NULL;
    gd_tensor *qkv[3] = { in[0], gd_select(in[1], 0, 0), gd_select(in[1], 0, 1) };
    gd_tensor *inputs[6] = { qkv[0],         qkv[1], qkv[2],
                             packed(qkv, p), in[2],  mask_of(in[0], qkv[1], p[1]) };
    gd_attention_attr attr = {
        .scale = 0.5, .causal = p[0] != 0, .has_mask = p[1] != 0, .is_joined = p[2] != 0
    };
    return gd_add_scalar(apply_as_taken(GD_OP_attention_grad, p[1] ? 6 : 5, inputs, &attr), 8);
}

static const op_case attention_grad_cases[] = {
    { .shape = { SHAPE(1, 5, 3), SHAPE(2, 1, 7, 3), SHAPE(1, 5, 3) } },
    { { SHAPE(4, 3, 2), SHAPE(2, 2, 5, 2), SHAPE(4, 3, 2) }, { 1 } },
    { { SHAPE(2, 4, 3), SHAPE(2, 1, 3, 3), SHAPE(2, 4, 3) }, { 0, 1 } },
    { { SHAPE(2, 3, 2), SHAPE(2, 2, 4, 2), SHAPE(2, 3, 2) }, { 0, 2 } },
    { .shape = { SHAPE(2, 0, 3), SHAPE(2, 2, 4, 3), SHAPE(2, 0, 3) } },
    { { SHAPE(1, 9, 5), SHAPE(2, 1, 67, 5), SHAPE(1, 9, 5) }, { 1, 0 } },
    { { SHAPE(2, 4, 3, 2), SHAPE(2, 2, 2, 3, 2), SHAPE(2, 4, 3, 2) }, { 1, 0, 1 } },
    { { SHAPE(2, 0, 3), SHAPE(2, 2, 0, 3), SHAPE(2, 0, 3) }, { 0, 0, 1 } },
};
static const op_refusal attention_grad_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(2, 5, 3), SHAPE(2, 2, 7, 3), SHAPE(2, 5, 3) }, F32_3, { 0, 0, 1 } },
    { GD_ERR_SHAPE, { SHAPE(2, 5, 3), SHAPE(2, 2, 7, 3), SHAPE(2, 5, 4) }, F32_3, { 0 } },
};
OP(attention_grad, 3, D | OP_FLOATS_ONLY | OP_NO_SPECIALS, RESULT_SUMS, 64, grad_of(in, p),
   VALUES(-2, 2), VALUES(-1, 1), VALUES(-1, 1))

/* ---- recurrent networks: operands z, weight [width, gates * width] and first h [batch, width].
 * The bias is made of the weight's first row, c0 of h0. p: cell, reverse, lengths, plain ---- */

static gd_tensor *run(gd_tensor *const *in, const int64_t *p, gd_tensor **c)
{
    if (!in[0] || !in[1] || !in[2])
        return NULL;
    gd_shape z = gd_tensor_shape(in[0]);
    gd_tensor *lengths = NULL;
    if (p[2] && z.rank == 3) /* 1, 2, … time, 1, 2, … */
        lengths = gd_add_scalar(
            gd_mod(gd_arange(gd_tensor_context(in[0]), 0, (double)z.dim[0], 1, GD_I64),
                   gd_scalar(gd_tensor_context(in[0]), (double)z.dim[1], GD_I64)),
            1);
    gd_tensor *bias = gd_tensor_shape(in[1]).rank == 2 ? gd_select(in[1], 0, 0) : in[1];
    return gd_recurrent(in[0], in[1], bias, (gd_cell)p[0], .first_hidden = in[2],
                        .first_cell = p[0] == GD_CELL_LSTM ? gd_mul_scalar(in[2], 0.5) : NULL,
                        .lengths = lengths, .reverse = p[1] != 0, .plain = p[3] != 0,
                        .last_cell = c);
}

/* h of all steps, and of LSTM the last c as one more. */
static gd_tensor *outcome(gd_tensor *const *in, const int64_t *p)
{
    gd_tensor *c = NULL, *h = run(in, p, &c);
    gd_tensor *all[2] = { h, c ? gd_unsqueeze(c, 1) : NULL };
    return c ? gd_concat(2, all, 1) : h;
}

static const op_case recurrent_result_cases[] = {
    { { SHAPE(2, 3, 4), SHAPE(4, 4), SHAPE(2, 4) }, { GD_CELL_RNN } },
    { { SHAPE(3, 2, 3), SHAPE(3, 3), SHAPE(3, 3) }, { GD_CELL_RNN, 1, 1 } },
    { { SHAPE(2, 3, 12), SHAPE(3, 12), SHAPE(2, 3) }, { GD_CELL_LSTM } },
    { { SHAPE(3, 3, 8), SHAPE(2, 8), SHAPE(3, 2) }, { GD_CELL_LSTM, 1, 1 } },
    { { SHAPE(2, 3, 9), SHAPE(3, 9), SHAPE(2, 3) }, { GD_CELL_GRU } },
    { { SHAPE(3, 3, 6), SHAPE(2, 6), SHAPE(3, 2) }, { GD_CELL_GRU, 1, 1 } },
    { { SHAPE(1, 1, 4), SHAPE(1, 4), SHAPE(1, 1) }, { GD_CELL_LSTM } },
    { { SHAPE(0, 3, 8), SHAPE(2, 8), SHAPE(0, 2) }, { GD_CELL_LSTM } },
};
static const op_refusal recurrent_result_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(2, 12), SHAPE(3, 12), SHAPE(2, 3) }, F32_3, { GD_CELL_LSTM } },
    { GD_ERR_SHAPE, { SHAPE(2, 3, 12), SHAPE(4, 12), SHAPE(2, 4) }, F32_3, { GD_CELL_LSTM } },
    { GD_ERR_SHAPE, { SHAPE(2, 3, 12), SHAPE(3, 12), SHAPE(1, 3) }, F32_3, { GD_CELL_LSTM } },
    { GD_ERR_SHAPE, { SHAPE(2, 0, 3), SHAPE(3, 3), SHAPE(2, 3) }, F32_3, { GD_CELL_RNN } },
    { GD_ERR_INVALID, { SHAPE(2, 2, 3), SHAPE(3, 3), SHAPE(2, 3) }, F32_3, { 4 } },
};
/* 8 is added as above. */
OP(recurrent_result, 3, D | OP_FLOATS_ONLY | OP_NO_HALVES | OP_NO_SPECIALS | OP_ONCE, RESULT_SAME,
   64, gd_add_scalar(outcome(in, p), 8), VALUES(-2, 2), VALUES(-1, 1), VALUES(-1, 1))

/* What is kept, as a whole. */
static gd_tensor *kept(gd_tensor *const *in, const int64_t *p)
{
    if (!in[0] || !in[1] || !in[2])
        return NULL;
    gd_tensor *inputs[5] = { in[0], in[1], gd_contiguous(gd_select(in[1], 0, 0)), in[2], in[2] };
    gd_recurrent_attr attr = { .cell = (int32_t)p[0], .reverse = p[1] != 0 };
    inputs[0] = gd_contiguous(in[0]);
    return gd_add_scalar(
        gd_apply(NULL, GD_OP_recurrent, p[0] == GD_CELL_LSTM ? 5 : 4, inputs, &attr), 8);
}
static const op_case recurrent_cases[] = {
    { { SHAPE(2, 3, 4), SHAPE(4, 4), SHAPE(2, 4) }, { GD_CELL_RNN_RELU } },
    { { SHAPE(2, 3, 12), SHAPE(3, 12), SHAPE(2, 3) }, { GD_CELL_LSTM, 1 } },
    { { SHAPE(2, 3, 9), SHAPE(3, 9), SHAPE(2, 3) }, { GD_CELL_GRU } },
};
OP_SAFE(recurrent, 3, OP_FLOATS_ONLY | OP_NO_HALVES | OP_NO_SPECIALS, RESULT_SAME, 64, kept(in, p),
        VALUES(-2, 2), VALUES(-1, 1), VALUES(-1, 1))

/* The gradient for one of h made of z. */
static gd_tensor *back(gd_tensor *const *in, const int64_t *p)
{
    if (!in[0] || !in[1] || !in[2])
        return NULL;
    int states = p[0] == GD_CELL_LSTM ? 2 : 1, n = 2;
    gd_tensor *forward[6] = { gd_contiguous(in[0]), in[1], gd_contiguous(gd_select(in[1], 0, 0)),
                              in[2], in[2] };
    gd_tensor *lengths =
        p[2] ? gd_ones(gd_tensor_context(in[0]), GD_SHAPE(gd_tensor_shape(in[2]).dim[0]), GD_I64)
             : NULL;
    forward[3 + states] = lengths;
    gd_recurrent_attr attr = { .cell = (int32_t)p[0],
                               .reverse = p[1] != 0,
                               .has_lengths = p[2] != 0 };
    int count = 3 + states + (lengths != NULL);
    gd_tensor *inputs[6] = { gd_apply(NULL, GD_OP_recurrent, count, forward, &attr),
                             gd_contiguous(gd_transpose(in[1], 0, 1)) };
    for (int i = 3; i < count; i++)
        inputs[n++] = forward[i];
    inputs[n++] = gd_slice(in[0], 2, 0, gd_tensor_shape(in[2]).dim[1], 1);
    return gd_add_scalar(gd_apply(NULL, GD_OP_recurrent_grad, n, inputs, &attr), 8);
}
static const op_case recurrent_grad_cases[] = {
    { { SHAPE(2, 3, 4), SHAPE(4, 4), SHAPE(2, 4) }, { GD_CELL_RNN_RELU } },
    { { SHAPE(2, 3, 12), SHAPE(3, 12), SHAPE(2, 3) }, { GD_CELL_LSTM, 1 } },
    { { SHAPE(2, 3, 9), SHAPE(3, 9), SHAPE(2, 3) }, { GD_CELL_GRU, 0, 1 } },
};
OP_SAFE(recurrent_grad, 3, OP_FLOATS_ONLY | OP_NO_HALVES | OP_NO_SPECIALS, RESULT_SAME, 64,
        back(in, p), VALUES(-2, 2), VALUES(-1, 1), VALUES(-1, 1))

static const op_case recurrent_plain_cases[] = {
    { { SHAPE(2, 2, 3), SHAPE(3, 3), SHAPE(2, 3) }, { GD_CELL_RNN, 0, 1, 1 } },
    { { SHAPE(2, 2, 8), SHAPE(2, 8), SHAPE(2, 2) }, { GD_CELL_LSTM, 1, 1, 1 } },
    { { SHAPE(2, 2, 6), SHAPE(2, 6), SHAPE(2, 2) }, { GD_CELL_GRU, 0, 1, 1 } },
};
FUNCTION_SAFE(recurrent_plain, 3, D | OP_FLOATS_ONLY | OP_NO_HALVES | OP_NO_SPECIALS, RESULT_SAME,
              64, gd_add_scalar(outcome(in, p), 8), VALUES(-2, 2), VALUES(-1, 1), VALUES(-1, 1))

/* Of positive numbers no terms cancel, and nothing is added, which would round halves again. */
static const op_case recurrent_positive_cases[] = {
    { { SHAPE(2, 3, 4), SHAPE(4, 4), SHAPE(2, 4) }, { GD_CELL_RNN_RELU } },
    { { SHAPE(3, 2, 3), SHAPE(3, 3), SHAPE(3, 3) }, { GD_CELL_RNN, 1, 1 } },
    { { SHAPE(3, 3, 8), SHAPE(2, 8), SHAPE(3, 2) }, { GD_CELL_LSTM, 1, 1 } },
    { { SHAPE(3, 3, 6), SHAPE(2, 6), SHAPE(3, 2) }, { GD_CELL_GRU, 0, 1 } },
    { { SHAPE(0, 3, 8), SHAPE(2, 8), SHAPE(0, 2) }, { GD_CELL_LSTM } },
    { { SHAPE(2, 2, 8), SHAPE(2, 8), SHAPE(2, 2) }, { GD_CELL_LSTM, 0, 1, 1 } },
    { { SHAPE(2, 2, 6), SHAPE(2, 6), SHAPE(2, 2) }, { GD_CELL_GRU, 1, 0, 1 } },
};
FUNCTION_SAFE(recurrent_positive, 3, D | OP_FLOATS_ONLY | OP_NO_SPECIALS | OP_ONCE, RESULT_SAME, 64,
              outcome(in, p), VALUES(0.125, 1), VALUES(0.125, 1), VALUES(0.125, 1))

/* ---- positions. p: start, halves ---- */

static const op_case rope_cases[] = {
    { { SHAPE(5, 6) }, { 0, 0 } },
    { { SHAPE(2, 3, 4) }, { 7, 1 } },
    { { SHAPE(2, 0, 4) }, { 0, 0 } },
};
static const op_refusal rope_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 3) }, { GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(4) }, { GD_F32 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(5, 4) }, { GD_F32 }, { -1 } },
};
FUNCTION(rope, 1, D | OP_FLOATS_ONLY, RESULT_SAME, 4,
         gd_rope(x, .start = p[0], .halves = p[1] != 0), VALUES(-2, 2))
