/* tests/support/op_rows_loss.c: the rows of the losses of gradus/loss.h; those of plain
 * cross-entropy and mse are in op_rows.c. Values against PyTorch: tests/test_losses.c. */
#include "support/op_row_macros.h"

#include "graph/apply.h"
#include "graph/node.h"

#define DF (D | OP_FLOATS_ONLY)

/* ---- classes ---- */

static const op_case cross_entropy_smooth_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(5) } },
    { .shape = { SHAPE(2, 3, 5), SHAPE(2, 3) } },
    { .shape = { SHAPE(7), NUMBER } },
};
static const op_refusal cross_entropy_smooth_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(2, 3, 5), SHAPE(2, 4) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE, { NUMBER, NUMBER }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 5), SHAPE(2, 4) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(2, 5), SHAPE(2) }, { GD_F32, GD_BOOL }, { 0 } },
};
FUNCTION(cross_entropy_smooth, 2, D, RESULT_FLOAT, 64,
         gd_cross_entropy(x, y, .label_smoothing = 0.125, .reduction = GD_REDUCE_NONE),
         VALUES(-4, 1), INDICES(5))

/* Weights are an operand; class 2 is ignored (two rows, so that targets laid out with stride 0 are
 * not all ignored). */
static const op_case cross_entropy_weighted_cases[] = {
    { .shape = { SHAPE(2, 9, 5), SHAPE(2, 9), SHAPE(5) } },
};
static const op_refusal cross_entropy_weighted_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(9, 5), SHAPE(9), SHAPE(4) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(9, 5), SHAPE(9), NUMBER }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(9, 5), SHAPE(9, 5), SHAPE(5) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
FUNCTION(cross_entropy_weighted, 3, DF, RESULT_FLOAT, 64,
         z ? gd_cross_entropy(x, y, .weight = z, .label_smoothing = 0.25, .ignore_index = 2) : NULL,
         VALUES(-4, 1), INDICES(5), VALUES(0.5, 2))

static const op_case cross_entropy_soft_weighted_cases[] = {
    { .shape = { SHAPE(5, 3), SHAPE(5, 3), SHAPE(3) } },
    { .shape = { SHAPE(2, 2, 3), SHAPE(2, 2, 3), SHAPE(3) } },
};
FUNCTION_SAFE(cross_entropy_soft_weighted, 3, DF, RESULT_FLOAT, 64,
              z ? gd_cross_entropy(x, y, .weight = z, .label_smoothing = 0.25) : NULL,
              VALUES(-4, 1), VALUES(0.1, 1), VALUES(0.5, 2))

static const op_case cross_entropy_rows_cases[] = {
    { .shape = { SHAPE(2, 3, 5), SHAPE(2, 3) } },
    { .shape = { SHAPE(0, 3, 5), SHAPE(0, 3) } },
};
FUNCTION_SAFE(cross_entropy_rows, 2, D, RESULT_FLOAT, 64,
              gd_cross_entropy(x, y, .reduction = GD_REDUCE_NONE), VALUES(-4, 1), INDICES(5))

static const op_case cross_entropy_probabilities_cases[] = {
    { .shape = { SHAPE(9, 5), SHAPE(9) } },
    { .shape = { SHAPE(2, 3, 5), SHAPE(2, 3) } },
};
static const op_refusal cross_entropy_probabilities_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(9, 5), SHAPE(8) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(9, 5), SHAPE(9) }, { GD_F32, GD_BOOL }, { 0 } },
};
FUNCTION(cross_entropy_probabilities, 2, DF, RESULT_FLOAT, 64, gd_cross_entropy_probabilities(x, y),
         VALUES(0.05, 1), INDICES(5))
static const op_case cross_entropy_probabilities_soft_cases[] = {
    { .shape = { SHAPE(9, 5), SHAPE(9, 5) } },
};
FUNCTION_SAFE(cross_entropy_probabilities_soft, 2, DF, RESULT_FLOAT, 64,
              gd_cross_entropy_probabilities(x, y), VALUES(0.05, 1), VALUES(0.05, 1))

static const op_case nll_cases[] = {
    { .shape = { SHAPE(9, 5), SHAPE(9), SHAPE(5) } },
    { .shape = { SHAPE(2, 3, 5), SHAPE(2, 3), SHAPE(5) } },
};
static const op_refusal nll_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(9, 5), SHAPE(9, 5), SHAPE(5) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(9, 5), SHAPE(8), SHAPE(5) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
};
FUNCTION(nll, 3, DF, RESULT_FLOAT, 64, z ? gd_nll(x, y, .weight = z) : NULL, VALUES(-4, -1),
         INDICES(5), VALUES(0.5, 2))

/* ---- yes or no ---- */

#define PAIR_CASES(name)                                                               \
    static const op_case name##_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(5, 7) } }, \
                                            { .shape = { NUMBER, NUMBER } } };         \
    static const op_refusal name##_refusals[] = {                                      \
        { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(7) }, { GD_F32, GD_F32 }, { 0 } }         \
    };

PAIR_CASES(bce)
FUNCTION(bce, 2, DF, RESULT_SAME, 64, gd_bce(x, y), VALUES(0.1, 0.9), VALUES(0.1, 0.9))
PAIR_CASES(bce_with_logits)
FUNCTION(bce_with_logits, 2, DF, RESULT_SAME, 64, gd_bce_with_logits(x, y), VALUES(-4, 4),
         VALUES(0.1, 0.9))
static const op_case bce_pos_weight_cases[] = {
    { .shape = { SHAPE(5, 3), SHAPE(5, 3), SHAPE(3) } },
};
FUNCTION_SAFE(bce_pos_weight, 3, DF, RESULT_SAME, 64,
              z ? gd_bce_with_logits(x, y, .positive_weight = z, .weight = z) : NULL, VALUES(-4, 4),
              VALUES(0.1, 0.9), VALUES(0.5, 2))
PAIR_CASES(focal)
FUNCTION(focal, 2, DF, RESULT_SAME, 64, gd_focal(x, y), VALUES(-3, 3), VALUES(0.1, 0.9))
PAIR_CASES(focal_other)
FUNCTION(focal_other, 2, DF, RESULT_SAME, 128,
         gd_focal(x, y, .alpha = NAN, .gamma = 1.5, .reduction = GD_REDUCE_SUM), VALUES(-3, 3),
         VALUES(0.1, 0.9))
PAIR_CASES(hinge)
FUNCTION(hinge, 2, DF, RESULT_SAME, 64, gd_hinge(x, y), VALUES(-0.9, 0.9), VALUES(-1, 1))
PAIR_CASES(hinge_embedding)
FUNCTION(hinge_embedding, 2, OP_FLOATS_ONLY, RESULT_SAME, 64, gd_hinge_embedding(x, y),
         VALUES(0.1, 3), VALUES(-1, 1))

/* ---- distributions ---- */

PAIR_CASES(kl_div)
FUNCTION(kl_div, 2, DF, RESULT_SAME, 64, gd_kl_div(x, y, .reduction = GD_REDUCE_BATCH_MEAN),
         VALUES(-4, -2), VALUES(0.5, 0.9))
PAIR_CASES(kl_div_log)
FUNCTION(kl_div_log, 2, DF, RESULT_SAME, 64, gd_kl_div(x, y, .log_target = true), VALUES(-4, -2),
         VALUES(-1, -0.1))

/* ---- distances: x and y far enough apart to keep clear of the kinks ---- */

PAIR_CASES(mae)
FUNCTION(mae, 2, D, RESULT_FLOAT, 64, gd_mae(x, y), VALUES(-20, -2), VALUES(0, 20))
PAIR_CASES(huber)
FUNCTION(huber, 2, D, RESULT_FLOAT, 64, gd_huber(x, y, .delta = 1.5), VALUES(-3, -0.5),
         VALUES(0, 3))
PAIR_CASES(smooth_l1)
FUNCTION(smooth_l1, 2, D, RESULT_FLOAT, 64,
         gd_smooth_l1(x, y, .delta = 1.5, .reduction = GD_REDUCE_NONE), VALUES(-3, -0.5),
         VALUES(0, 3))

/* ---- embeddings ---- */

static const op_case cosine_similarity_cases[] = {
    { { SHAPE(5, 7), SHAPE(5, 7) }, { 1 } },
    { { SHAPE(5, 7), SHAPE(5, 7) }, { -2 } },
    { { SHAPE(3), SHAPE(3) }, { 0 } },
};
static const op_refusal cosine_similarity_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 6) }, { GD_F32, GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 7) }, { GD_F32, GD_F32 }, { 2 } },
};
FUNCTION(cosine_similarity, 2, D, RESULT_FLOAT, 64, gd_cosine_similarity(x, y, (int)p[0]),
         VALUES(0.5, 2), VALUES(0.5, 2))

static const op_case cosine_embedding_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(5, 7), SHAPE(5) } },
    { .shape = { SHAPE(3), SHAPE(3), NUMBER } },
};
static const op_refusal cosine_embedding_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 7), SHAPE(7) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { NUMBER, NUMBER, NUMBER }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
/* 1 - cos cancels where the two point the same way. */
FUNCTION(cosine_embedding, 3, OP_FLOATS_ONLY, RESULT_SAME, 4096,
         gd_cosine_embedding(x, y, z, .margin = 0.125), VALUES(0.5, 2), VALUES(0.5, 2),
         VALUES(-1, 1))

static const op_case triplet_margin_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(5, 7), SHAPE(5, 7) } },
    { .shape = { SHAPE(3), SHAPE(3), SHAPE(3) } },
};
static const op_refusal triplet_margin_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 7), SHAPE(7) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { NUMBER, NUMBER, NUMBER }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
#define triplet_margin_other_cases    triplet_margin_cases
#define triplet_margin_other_refusals triplet_margin_refusals
FUNCTION(triplet_margin, 3, DF, RESULT_SAME, 64, gd_triplet_margin(x, y, z, .margin = 3),
         VALUES(-2, -1), VALUES(0, 2), VALUES(0, 2))
FUNCTION(triplet_margin_other, 3, DF, RESULT_SAME, 128,
         gd_triplet_margin(x, y, z, .margin = 9, .p = 3, .swap = true), VALUES(-2, -1),
         VALUES(0, 2), VALUES(4, 5))

/* ---- sequences ---- */

static const op_case ctc_alpha_cases[] = {
    { .shape = { SHAPE(2, 4, 5), SHAPE(2, 5) } }, { .shape = { SHAPE(3, 11, 7), SHAPE(3, 7) } },
    { .shape = { SHAPE(2, 3, 1), SHAPE(2, 1) } }, { .shape = { SHAPE(0, 4, 5), SHAPE(0, 5) } },
    { .shape = { SHAPE(2, 0, 5), SHAPE(2, 5) } },
};
static const op_refusal ctc_alpha_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(2, 4, 5), SHAPE(2, 4) }, { GD_F32, GD_BOOL }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 4, 5), SHAPE(5) }, { GD_F32, GD_BOOL }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(2, 4, 5), SHAPE(2, 5) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(2, 4, 5), SHAPE(2, 5) }, { GD_I32, GD_BOOL }, { 0 } },
};
#define TRUTH               \
    {                       \
        0, 2, OPERAND_TRUTH \
    }

/* Where no path leads alpha is -infinity; such elements are shown as 0. */
static gd_tensor *reachable(gd_tensor *t)
{
    return t ? gd_where(gd_isinf(t), gd_zeros_like(t), t) : NULL;
}
OP(ctc_alpha, 2, DF | OP_NO_HALVES | OP_ONCE, RESULT_SAME, 64,
   x &&y ? reachable(gd_apply2(GD_OP_ctc_alpha, x, y, NULL)) : NULL, VALUES(-4, -2), TRUTH)

static const op_case ctc_alpha_grad_cases[] = {
    { .shape = { SHAPE(2, 4, 5), SHAPE(2, 5), SHAPE(2, 4, 5) } },
    { .shape = { SHAPE(3, 11, 7), SHAPE(3, 7), SHAPE(3, 11, 7) } },
    { .shape = { SHAPE(2, 3, 1), SHAPE(2, 1), SHAPE(2, 3, 1) } },
    { .shape = { SHAPE(2, 0, 5), SHAPE(2, 5), SHAPE(2, 0, 5) } },
};
static const op_refusal ctc_alpha_grad_refusals[] = {
    { GD_ERR_SHAPE,
      { SHAPE(2, 4, 5), SHAPE(2, 5), SHAPE(2, 3, 5) },
      { GD_F32, GD_BOOL, GD_F32 },
      { 0 } },
    { GD_ERR_DTYPE,
      { SHAPE(2, 4, 5), SHAPE(2, 5), SHAPE(2, 4, 5) },
      { GD_F32, GD_BOOL, GD_F64 },
      { 0 } },
};
OP(ctc_alpha_grad, 3, OP_FLOATS_ONLY | OP_NO_HALVES, RESULT_SAME, 64,
   x &&y &&z ? gd_apply(NULL, GD_OP_ctc_alpha_grad, 3, in, NULL) : NULL, VALUES(-4, -2), TRUTH,
   VALUES(0.5, 2))

/* Logarithms of probabilities [time, n, classes], targets [n, length] of classes 1 … 4, their lengths [n]. */
static const op_case ctc_cases[] = {
    { .shape = { SHAPE(6, 2, 5), SHAPE(2, 3), SHAPE(2) } },
    { .shape = { SHAPE(4, 3, 5), SHAPE(3, 2), SHAPE(3) } },
    { .shape = { SHAPE(3, 2, 5), SHAPE(2, 0), SHAPE(2) } },
};
static const op_refusal ctc_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(6, 2, 5), SHAPE(3, 3), SHAPE(2) }, { GD_F32, GD_I64, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(6, 2, 5), SHAPE(2, 3), SHAPE(1) }, { GD_F32, GD_I64, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(6, 5), SHAPE(2, 3), SHAPE(2) }, { GD_F32, GD_I64, GD_I64 }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(6, 2, 5), SHAPE(2, 3), SHAPE(2) }, { GD_F32, GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_INVALID,
      { SHAPE(6, 2, 0), SHAPE(2, 3), SHAPE(2) },
      { GD_F32, GD_I64, GD_I64 },
      { 0 } },
};

static gd_tensor *ctc_of(gd_tensor *x, gd_tensor *y, gd_tensor *z)
{
    if (!x || !y || !z)
        return NULL;
    gd_shape shape = gd_tensor_shape(x);
    gd_tensor *times =
        gd_full(gd_tensor_context(x), GD_SHAPE(shape.dim[1]), (double)shape.dim[0], GD_I64);
    gd_tensor *lengths = gd_minimum(
        z, gd_scalar(gd_tensor_context(z), (double)gd_tensor_shape(y).dim[1], gd_tensor_dtype(z)));
    return gd_ctc(x, y, times, lengths, .reduction = GD_REDUCE_NONE, .zero_infinity = true);
}
FUNCTION(ctc, 3, DF | OP_ONCE | OP_NO_SPECIALS, RESULT_FLOAT, 256, ctc_of(x, y, z), VALUES(-4, -1),
         { 1, 5, OPERAND_INDEX }, INDICES(4))
