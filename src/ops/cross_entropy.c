/* ops/cross_entropy.c: losses of classes. First the op for class indices, a kernel of its own; then
 * what is built on it, start at gd_cross_entropy_with(). */
#include "ops/loss.h"

/* ---- cross-entropy with class indices: logits [n, c], labels [n] -> [n] ---- */

static gd_status check_logits(const gd_layout *logits, const gd_layout *labels)
{
    if (logits->rank != 2 || labels->rank != 1 || logits->shape[0] != labels->shape[0]) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail(
            GD_ERR_SHAPE,
            "gd_cross_entropy: logits %s and class indices %s; [n, classes] and [n] expected",
            gd_layout_text(logits, a), gd_layout_text(labels, b));
    }
    if (labels->dtype != GD_I64 && labels->dtype != GD_I32 && labels->dtype != GD_U8)
        return gd_fail(GD_ERR_DTYPE, "gd_cross_entropy: class indices are %s",
                       gd_dtype_name(labels->dtype));
    if (logits->shape[1] == 0 && logits->shape[0] > 0)
        return gd_fail(GD_ERR_SHAPE, "gd_cross_entropy: there are no classes");
    return GD_OK;
}

static gd_status infer_cross_entropy(int n, const gd_layout *const *in, const void *attr,
                                     gd_layout *out)
{
    (void)n, (void)attr;
    if (check_logits(in[0], in[1]) != GD_OK)
        return gd_error_last();
    return gd_layout_init(out, GD_SHAPE(in[0]->shape[0]), gd_sums_dtype(in[0]->dtype),
                          "gd_cross_entropy");
}

static bool vjp_cross_entropy(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor *inputs[3] = { r->inputs[0], r->inputs[1], g };
    const gd_rounded_attr attr = { 0 };
    return gd_put(&d[0], gd_apply(NULL, GD_OP_cross_entropy_grad, 3, inputs, &attr));
}

static gd_tensor *decompose_cross_entropy(int n, gd_tensor *const *in, const void *attr)
{
    (void)n, (void)attr;
    gd_tensor *index = gd_unsqueeze(gd_as_dtype(in[1], GD_I64), 1);
    return gd_neg(gd_squeeze(gd_gather(gd_log_softmax(in[0], 1), index, 1), 1));
}

const gd_op gd_op_cross_entropy = { .id = GD_OP_cross_entropy,
                                    .name = "cross_entropy",
                                    .arity = 2,
                                    .flags = GD_OP_FULL,
                                    .dtypes = GD_DTYPES_REAL,
                                    .halves = 1,
                                    .infer = infer_cross_entropy,
                                    .vjp = vjp_cross_entropy,
                                    .decompose = decompose_cross_entropy,
                                    .flops = gd_flops_softmax,
                                    .recompute = GD_RECOMPUTE_NEVER };

/* (softmax(logits) - onehot(labels)) * g[:, None]: logits [n, c], labels [n], g [n] -> [n, c] */
static gd_status infer_cross_entropy_grad(int n, const gd_layout *const *in, const void *attr,
                                          gd_layout *out)
{
    (void)n;
    const int64_t rounded = ((const gd_rounded_attr *)attr)->rounded;
    if (check_logits(in[0], in[1]) != GD_OK)
        return gd_error_last();
    if (in[2]->rank != 1 || in[2]->shape[0] != in[0]->shape[0])
        return gd_fail(GD_ERR_SHAPE, "cross_entropy_grad: the gradient does not fit the logits");
    return gd_infer_like(in[0], gd_rounded_dtype(in[0]->dtype, rounded), "gd_cross_entropy", out);
}

/* softmax(logits) and softmax(logits) - onehot(labels) */
static gd_tensor *residual(gd_tensor *logits, gd_tensor *labels, gd_tensor **soft)
{
    *soft = gd_softmax(logits, 1);
    return gd_sub(*soft, gd_one_hot(labels, logits->layout.shape[1], logits->layout.dtype));
}

static gd_tensor *decompose_cross_entropy_grad(int n, gd_tensor *const *in, const void *attr)
{
    (void)n, (void)attr;
    gd_tensor *soft;
    return gd_mul(residual(in[0], in[1], &soft), gd_unsqueeze(in[2], 1));
}

/* With u the gradient of the result: d g = sum(u * (s - onehot)); d logits is softmax's product
 * with u * g. */
static bool vjp_cross_entropy_grad(gd_tensor *r, gd_tensor *u, gd_tensor **d)
{
    gd_tensor *soft, *apart = residual(r->inputs[0], r->inputs[1], &soft);
    gd_tensor *t = gd_mul(u, gd_unsqueeze(r->inputs[2], 1));
    gd_tensor *along = gd_sum(gd_mul(t, soft), GD_AXES(1), true);
    return (!gd_wants_grad(r->inputs[0]) || gd_put(&d[0], gd_mul(soft, gd_sub(t, along)))) &&
           (!gd_wants_grad(r->inputs[2]) ||
            gd_put(&d[2], gd_sum(gd_mul(u, apart), GD_AXES(1), false)));
}

/* A softmax, a difference, a product. */
static double flops_grad(int n, const gd_layout *const *in, const gd_layout *out, const void *attr)
{
    return gd_flops_softmax(n, in, out, attr) + 2 * (double)gd_layout_count(out);
}

const gd_op gd_op_cross_entropy_grad = { .id = GD_OP_cross_entropy_grad,
                                         .name = "cross_entropy_grad",
                                         .arity = 3,
                                         .dtypes = GD_DTYPES_REAL,
                                         .alike = 1 << 2,
                                         .halves = 1,
                                         .rounds = true,
                                         .attr_size = sizeof(gd_rounded_attr),
                                         .infer = infer_cross_entropy_grad,
                                         .vjp = vjp_cross_entropy_grad,
                                         .decompose = decompose_cross_entropy_grad,
                                         .flops = flops_grad,
                                         .recompute = GD_RECOMPUTE_NEVER };

/* ---- the losses: rows of classes, [n, classes] and [n] inside ---- */

/* What gd_cross_entropy and gd_nll have in common; names as in their options. */
typedef struct class_loss {
    const char *who;
    gd_tensor *scores, *target, *weight;
    bool are_log;          /* scores are logarithms of probabilities already */
    bool no_distributions; /* the target is class indices alone */
    double label_smoothing;
    int64_t ignore_index; /* GD_NO_INDEX: none */
    gd_reduction reduction;
} class_loss;

static gd_tensor *fail_shapes(const class_loss *l)
{
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    return gd_fail_null(GD_ERR_SHAPE,
                        "%s: scores %s and target %s; [.., classes] with class indices [..] or "
                        "probabilities [.., classes] expected",
                        l->who, gd_layout_text(&l->scores->layout, a),
                        gd_layout_text(&l->target->layout, b));
}

/* Whether target has the scores' shape, without the last axis for class indices. */
static bool target_fits(const gd_layout *scores, const gd_layout *target)
{
    int axes = scores->rank - (gd_dtype_is_float(target->dtype) ? 0 : 1);
    bool fits = scores->rank >= 1 && target->rank == axes;
    for (int i = 0; fits && i < axes; i++)
        fits = target->shape[i] == scores->shape[i];
    return fits;
}

static bool check_options(const class_loss *l)
{
    gd_dtype dtype = l->target->layout.dtype;
    int64_t classes = l->scores->layout.shape[l->scores->layout.rank - 1];
    char text[GD_SHAPE_TEXT];
    gd_status status = GD_OK;
    if (!(l->label_smoothing >= 0.0 && l->label_smoothing <= 1.0))
        status = gd_fail(GD_ERR_INVALID, "%s: label_smoothing is %g; it must be 0 to 1", l->who,
                         l->label_smoothing);
    else if (l->ignore_index != GD_NO_INDEX && gd_dtype_is_float(dtype))
        status = gd_fail(GD_ERR_INVALID, "%s: ignore_index is for class indices", l->who);
    else if (dtype == GD_BOOL || (l->no_distributions && gd_dtype_is_float(dtype)))
        status = gd_fail(GD_ERR_DTYPE, "%s: the target is %s", l->who, gd_dtype_name(dtype));
    else if (l->weight && (l->weight->layout.rank != 1 || l->weight->layout.shape[0] != classes))
        status =
            gd_fail(GD_ERR_SHAPE, "%s: weight %s; one number for each of %lld classes expected",
                    l->who, gd_layout_text(&l->weight->layout, text), (long long)classes);
    return status == GD_OK;
}

/* -p * weight * log q summed over classes; with smoothing p is mixed with 1 / classes. [n] */
static gd_tensor *soft_losses(const class_loss *l)
{
    gd_tensor *p = gd_as_dtype(l->target, l->scores->layout.dtype);
    if (l->label_smoothing != 0.0) {
        double share = l->label_smoothing / (double)l->scores->layout.shape[1];
        p = gd_add_scalar(gd_mul_scalar(p, 1.0 - l->label_smoothing), share);
    }
    gd_tensor *log_q = l->are_log ? l->scores : gd_log_softmax(l->scores, 1);
    if (l->weight)
        log_q = gd_mul(log_q, l->weight);
    return gd_neg(gd_sum(gd_mul(p, log_q), GD_AXES(1), false));
}

static gd_tensor *picked(gd_tensor *log_q, gd_tensor *index)
{
    return gd_neg(gd_squeeze(gd_gather(log_q, gd_unsqueeze(index, 1), 1), 1));
}

/* Whether the losses are the op cross_entropy. */
static bool is_one_op(const class_loss *l)
{
    return !gd_dtype_is_float(l->target->layout.dtype) && !l->are_log && l->label_smoothing == 0.0;
}

/* The op; f16 and bf16 without a history are read as they are where the device does that. (Second
 * derivatives meet in the f32 that was cast, and are added before they are rounded.) */
static gd_tensor *cross_entropy(gd_tensor *scores, gd_tensor *index)
{
    gd_tensor *in[2] = { scores, index };
    if (!scores || gd_has_history(scores) || !gd_may_read_halves(GD_OP_cross_entropy, 2, in, NULL))
        in[0] = gd_widen(scores);
    return gd_apply(NULL, GD_OP_cross_entropy, 2, in, NULL);
}

/* Losses by class index, [n], and each row's share in the mean, [n] or NULL for 1. */
static gd_tensor *index_losses(const class_loss *l, gd_tensor **share)
{
    gd_tensor *index = gd_as_dtype(l->target, GD_I64), *valid = NULL, *scores = l->scores;
    if (l->ignore_index != GD_NO_INDEX) {
        valid = gd_ne(index, gd_number_like(index, (double)l->ignore_index));
        index = gd_where(valid, index, gd_number_like(index, 0.0));
    }
    gd_tensor *weight = l->weight ? gd_gather(l->weight, index, 0) : NULL;
    if (l->weight && !weight)
        return NULL;
    gd_tensor *log_q = l->are_log || l->label_smoothing == 0.0 ? scores : gd_log_softmax(scores, 1);
    gd_tensor *each = is_one_op(l) ? cross_entropy(scores, index) : picked(log_q, index);
    if (!each)
        return NULL;
    if (weight)
        each = gd_mul(each, weight);
    if (l->label_smoothing != 0.0) {
        gd_tensor *all = gd_sum(l->weight ? gd_mul(log_q, l->weight) : log_q, GD_AXES(1), false);
        double smoothing = l->label_smoothing;
        each = gd_sub(gd_mul_scalar(each, 1.0 - smoothing),
                      gd_mul_scalar(all, smoothing / (double)scores->layout.shape[1]));
    }
    if (valid) {
        each = gd_where(valid, each, gd_number_like(each, 0.0));
        weight = gd_mul(weight ? weight : gd_number_like(each, 1.0),
                        gd_as_dtype(valid, each->layout.dtype));
    }
    *share = weight;
    return each;
}

static gd_tensor *class_losses(class_loss l)
{
    if (!l.scores || !l.target || !GD_NONE_ENDED(l.who, l.scores, l.target, l.weight))
        return NULL;
    gd_layout scores = l.scores->layout, target = l.target->layout;
    if (!target_fits(&scores, &target))
        return fail_shapes(&l);
    if (!check_options(&l))
        return NULL;
    const gd_dtype dtype = gd_float_dtype(
        gd_autocast_dtype(l.scores->context, GD_OP_cross_entropy, l.scores->layout.dtype));
    if (!is_one_op(&l))
        l.scores = gd_widen(l.scores);
    if (l.weight && l.scores)
        l.weight = gd_as_dtype(l.weight, gd_real_dtype(scores.dtype));
    if (scores.rank != 2) {
        int64_t classes = scores.shape[scores.rank - 1], rows = gd_layout_count(&scores);
        rows = classes ? rows / classes : 0;
        bool soft = gd_dtype_is_float(target.dtype);
        l.scores = gd_reshape(l.scores, GD_SHAPE(rows, classes));
        l.target = gd_reshape(l.target, soft ? GD_SHAPE(rows, classes) : GD_SHAPE(rows));
    }
    if (!l.scores || !l.target)
        return NULL;
    bool soft = gd_dtype_is_float(target.dtype);
    gd_tensor *share = NULL, *each = soft ? soft_losses(&l) : index_losses(&l, &share);
    if (l.reduction == GD_REDUCE_NONE || l.reduction == GD_REDUCE_BATCH_MEAN) {
        gd_shape shape = gd_layout_shape(&scores);
        shape.rank--;
        each = gd_reshape(each, shape);
    }
    return gd_reduce_losses(each, share, l.reduction, dtype, l.who);
}

static gd_tensor *build_cross_entropy(gd_tensor *logits, gd_tensor *target,
                                      const gd_cross_entropy_options *options)
{
    gd_cross_entropy_options o = { GD_CROSS_ENTROPY_DEFAULTS };
    if (!gd_options_read("gd_cross_entropy", &o, sizeof o, options))
        return NULL;
    return class_losses((class_loss){ .who = "gd_cross_entropy",
                                      .scores = logits,
                                      .target = target,
                                      .weight = o.weight,
                                      .label_smoothing = o.label_smoothing,
                                      .ignore_index = o.ignore_index,
                                      .reduction = o.reduction });
}

gd_tensor *gd_cross_entropy_with(gd_tensor *logits, gd_tensor *target,
                                 const gd_cross_entropy_options *options)
{
    return GD_AS("gd_cross_entropy", build_cross_entropy(logits, target, options));
}

gd_tensor *(gd_cross_entropy)(gd_tensor *logits, gd_tensor *target)
{
    return gd_cross_entropy(logits, target);
}

gd_tensor *gd_cross_entropy_each(gd_tensor *logits, gd_tensor *target)
{
    return gd_cross_entropy(logits, target, .reduction = GD_REDUCE_NONE);
}

static gd_tensor *build_nll(gd_tensor *log_probabilities, gd_tensor *target,
                            const gd_nll_options *options)
{
    gd_nll_options o = { GD_NLL_DEFAULTS };
    if (!gd_options_read("gd_nll", &o, sizeof o, options))
        return NULL;
    return class_losses((class_loss){ .who = "gd_nll",
                                      .scores = log_probabilities,
                                      .target = target,
                                      .weight = o.weight,
                                      .are_log = true,
                                      .no_distributions = true,
                                      .ignore_index = o.ignore_index,
                                      .reduction = o.reduction });
}

gd_tensor *gd_nll_with(gd_tensor *log_probabilities, gd_tensor *target,
                       const gd_nll_options *options)
{
    return GD_AS("gd_nll", build_nll(log_probabilities, target, options));
}

gd_tensor *(gd_nll)(gd_tensor *log_probabilities, gd_tensor *target)
{
    return gd_nll(log_probabilities, target);
}

static gd_tensor *build_cross_entropy_probabilities(gd_tensor *probabilities, gd_tensor *target)
{
    if (gd_usable(probabilities, "gd_cross_entropy_probabilities"))
        probabilities = gd_autocast(GD_OP_cross_entropy, probabilities);
    return gd_round_like(
        class_losses((class_loss){ .who = "gd_cross_entropy_probabilities",
                                   .scores = gd_bounded_log(gd_widen(probabilities)),
                                   .target = target,
                                   .are_log = true,
                                   .ignore_index = GD_NO_INDEX }),
        probabilities);
}

gd_tensor *gd_cross_entropy_probabilities(gd_tensor *probabilities, gd_tensor *target)
{
    return GD_AS("gd_cross_entropy_probabilities",
                 build_cross_entropy_probabilities(probabilities, target));
}

static gd_tensor *build_accuracy(gd_tensor *logits, gd_tensor *target)
{
    if (!gd_usable(logits, "gd_accuracy") || !gd_usable(target, "gd_accuracy"))
        return NULL;
    if (!target_fits(&logits->layout, &target->layout))
        return fail_shapes(&(class_loss){ .who = "gd_accuracy", logits, target });
    gd_tensor *truth =
        gd_dtype_is_float(target->layout.dtype) ? gd_argmax(target, -1, false) : target;
    return gd_mean(gd_eq(gd_argmax(logits, -1, false), truth), GD_ALL_AXES, false);
}

gd_tensor *gd_accuracy(gd_tensor *logits, gd_tensor *target)
{
    return GD_AS("gd_accuracy", build_accuracy(logits, target));
}
