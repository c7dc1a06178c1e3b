/* gradus/loss.h: losses. Each is called with its tensors and, by name, what differs from the
 * defaults:
 *
 *     gd_cross_entropy(logits, target)
 *     gd_cross_entropy(logits, target, .label_smoothing = 0.1, .reduction = GD_REDUCE_SUM)
 *
 * Meanings are those of torch.nn.functional; an option left 0 takes its default. Where two shapes
 * must be equal nothing is broadcast. Integers are taken as f32, halves are computed in f32.
 * Errors: GD_ERR_SHAPE, GD_ERR_DTYPE, GD_ERR_INVALID for an option out of its range, GD_ERR_MEMORY.
 * NULL operands give NULL. The losses are made of ops, so they compile and can be differentiated,
 * twice too; gd_ctc alone once. The name without parentheses is a function of the tensors alone,
 * gd_loss_fn for gd_fit where it takes two.
 */
#ifndef GRADUS_LOSS_H
#define GRADUS_LOSS_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of the losses of the elements (or rows, or pairs). */
typedef enum gd_reduction {
    GD_REDUCE_MEAN,       /* their mean, [] */
    GD_REDUCE_SUM,        /* [] */
    GD_REDUCE_NONE,       /* all of them */
    GD_REDUCE_BATCH_MEAN, /* their sum divided by the size of the first axis, [] */
} gd_reduction;

/* ---- classes ---- */

typedef struct gd_cross_entropy_options {
    gd_tensor *logits, *target;
    gd_tensor *weight;      /* [classes], of each class; NULL: ones */
    double label_smoothing; /* 0 … 1 */
    bool ignore;            /* rows whose target is ignore_index count for nothing */
    int64_t ignore_index;
    gd_reduction reduction;
} gd_cross_entropy_options;

/* -weight[t] * log softmax(logits)[t]: logits [.., classes]; target either class indices t,
 * integers
 * [..] (out of range: GD_ERR_INVALID), or probabilities, floats [.., classes]: -sum(p * weight *
 * log softmax(logits)). Smoothing mixes the target with the uniform distribution (Szegedy et al.
 * 2016). The mean over indices is weighted: divided by the sum of weight[t] over the rows that
 * count (none: NaN); over probabilities it is divided by the number of rows. GD_REDUCE_NONE: [..].
 */
#define gd_cross_entropy(...) \
    gd_cross_entropy_with(GD_OPTIONS_2(gd_cross_entropy_options, logits, target, __VA_ARGS__))
GD_API gd_tensor *gd_cross_entropy_with(gd_cross_entropy_options options);
GD_API gd_tensor *(gd_cross_entropy)(gd_tensor *logits, gd_tensor *target);
/* The plain one before the mean: [..]. */
GD_API gd_tensor *gd_cross_entropy_each(gd_tensor *logits, gd_tensor *target);

typedef struct gd_nll_options {
    gd_tensor *log_probabilities, *target; /* [.., classes], integers [..] */
    gd_tensor *weight;                     /* as in gd_cross_entropy_options */
    bool ignore;
    int64_t ignore_index;
    gd_reduction reduction;
} gd_nll_options;

/* Negative log-likelihood: -weight[t] * log_probabilities[t], with gd_cross_entropy's mean. */
#define gd_nll(...) \
    gd_nll_with(GD_OPTIONS_2(gd_nll_options, log_probabilities, target, __VA_ARGS__))
GD_API gd_tensor *gd_nll_with(gd_nll_options options);
GD_API gd_tensor *(gd_nll)(gd_tensor *log_probabilities, gd_tensor *target);

/* Cross-entropy of probabilities that were computed already, as by a final softmax: -log
 * probabilities[t], or -sum(p * log probabilities); targets as gd_cross_entropy's, the mean over the
 * rows. Each logarithm is at least -100; where it would be less the gradient is 0. Prefer
 * gd_cross_entropy, of logits. */
GD_API gd_tensor *gd_cross_entropy_probabilities(gd_tensor *probabilities, gd_tensor *target);

/* Share of rows whose largest logit is the target's: logits [.., classes], target as in
 * gd_cross_entropy -> [] f32. */
GD_API gd_tensor *gd_accuracy(gd_tensor *logits, gd_tensor *target);

/* ---- yes or no ---- */

typedef struct gd_bce_options {
    gd_tensor *probability, *target; /* equal shapes, numbers in 0 … 1 */
    gd_tensor *weight;               /* of each element, broadcast; NULL: ones */
    gd_reduction reduction;
} gd_bce_options;

/* -(y log p + (1 - y) log(1 - p)), each logarithm at least -100; where it would be less the
 * gradient is 0. Prefer gd_bce_with_logits. */
#define gd_bce(...) gd_bce_with(GD_OPTIONS_2(gd_bce_options, probability, target, __VA_ARGS__))
GD_API gd_tensor *gd_bce_with(gd_bce_options options);
GD_API gd_tensor *(gd_bce)(gd_tensor *probability, gd_tensor *target);

typedef struct gd_bce_with_logits_options {
    gd_tensor *logits, *target; /* equal shapes */
    gd_tensor *weight;          /* of each element, broadcast; NULL: ones */
    gd_tensor *pos_weight;      /* of the term of positive targets, broadcast; NULL: ones */
    gd_reduction reduction;
} gd_bce_with_logits_options;

/* gd_bce of sigmoid(logits), without overflow. */
#define gd_bce_with_logits(...) \
    gd_bce_with_logits_with(GD_OPTIONS_2(gd_bce_with_logits_options, logits, target, __VA_ARGS__))
GD_API gd_tensor *gd_bce_with_logits_with(gd_bce_with_logits_options options);
GD_API gd_tensor *(gd_bce_with_logits)(gd_tensor *logits, gd_tensor *target);

typedef struct gd_focal_options {
    gd_tensor *logits, *target; /* equal shapes */
    double alpha;               /* weight of positives, 1 - alpha of negatives; default 0.25;
                                   negative: both 1 */
    double gamma;               /* default 2 */
    gd_reduction reduction;
} gd_focal_options;

/* gd_bce_with_logits * (1 - p_t)^gamma, p_t the probability given to the target. Lin et al., "Focal
 * loss for dense object detection", 2017; torchvision.ops.sigmoid_focal_loss. */
#define gd_focal(...) gd_focal_with(GD_OPTIONS_2(gd_focal_options, logits, target, __VA_ARGS__))
GD_API gd_tensor *gd_focal_with(gd_focal_options options);
GD_API gd_tensor *(gd_focal)(gd_tensor *logits, gd_tensor *target);

typedef struct gd_hinge_options {
    gd_tensor *x, *y; /* equal shapes; y is 1 or -1 */
    double margin;    /* default 1 */
    gd_reduction reduction;
} gd_hinge_options;

/* max(0, margin - x * y): of a support vector machine. Cortes, Vapnik 1995. */
#define gd_hinge(...) gd_hinge_with(GD_OPTIONS_2(gd_hinge_options, x, y, __VA_ARGS__))
GD_API gd_tensor *gd_hinge_with(gd_hinge_options options);
GD_API gd_tensor *(gd_hinge)(gd_tensor *x, gd_tensor *y);
/* x where y is 1, max(0, margin - x) where it is -1: x is a distance. */
#define gd_hinge_embedding(...) \
    gd_hinge_embedding_with(GD_OPTIONS_2(gd_hinge_options, x, y, __VA_ARGS__))
GD_API gd_tensor *gd_hinge_embedding_with(gd_hinge_options options);
GD_API gd_tensor *(gd_hinge_embedding)(gd_tensor *x, gd_tensor *y);

/* ---- distributions ---- */

typedef struct gd_kl_div_options {
    gd_tensor *log_q,
        *p;          /* equal shapes: the model's log-probabilities, the target's probabilities */
    bool log_target; /* p are log-probabilities, too */
    gd_reduction reduction; /* the divergence of a batch is GD_REDUCE_BATCH_MEAN; GD_REDUCE_MEAN
                               divides by all elements */
} gd_kl_div_options;

/* p * (log p - log q), 0 where p is 0. Kullback, Leibler 1951. */
#define gd_kl_div(...) gd_kl_div_with(GD_OPTIONS_2(gd_kl_div_options, log_q, p, __VA_ARGS__))
GD_API gd_tensor *gd_kl_div_with(gd_kl_div_options options);
GD_API gd_tensor *(gd_kl_div)(gd_tensor *log_q, gd_tensor *p);

/* ---- distances. Equal shapes ---- */

typedef struct gd_distance_options {
    gd_tensor *x, *y;
    gd_reduction reduction;
} gd_distance_options;

/* (x - y)^2 */
#define gd_mse(...) gd_mse_with(GD_OPTIONS_2(gd_distance_options, x, y, __VA_ARGS__))
GD_API gd_tensor *gd_mse_with(gd_distance_options options);
GD_API gd_tensor *(gd_mse)(gd_tensor *x, gd_tensor *y);
/* |x - y| */
#define gd_mae(...) gd_mae_with(GD_OPTIONS_2(gd_distance_options, x, y, __VA_ARGS__))
GD_API gd_tensor *gd_mae_with(gd_distance_options options);
GD_API gd_tensor *(gd_mae)(gd_tensor *x, gd_tensor *y);

typedef struct gd_huber_options {
    gd_tensor *x, *y;
    double delta; /* more than 0; default 1 */
    gd_reduction reduction;
} gd_huber_options;

/* d^2 / 2 where |d| <= delta, else delta * (|d| - delta / 2); d = x - y. Huber 1964. */
#define gd_huber(...) gd_huber_with(GD_OPTIONS_2(gd_huber_options, x, y, __VA_ARGS__))
GD_API gd_tensor *gd_huber_with(gd_huber_options options);
GD_API gd_tensor *(gd_huber)(gd_tensor *x, gd_tensor *y);
/* That divided by delta (PyTorch's beta). Girshick, "Fast R-CNN", 2015. */
#define gd_smooth_l1(...) gd_smooth_l1_with(GD_OPTIONS_2(gd_huber_options, x, y, __VA_ARGS__))
GD_API gd_tensor *gd_smooth_l1_with(gd_huber_options options);
GD_API gd_tensor *(gd_smooth_l1)(gd_tensor *x, gd_tensor *y);

/* ---- embeddings ---- */

/* sum(x * y) / (max(|x|, 1e-8) * max(|y|, 1e-8)) along an axis, which goes; x and y of equal
 * shapes.
 */
GD_API gd_tensor *gd_cosine_similarity(gd_tensor *x, gd_tensor *y, int axis);

typedef struct gd_cosine_embedding_options {
    gd_tensor *x, *y, *target; /* [.., n], [.., n], and 1 or -1 [..] */
    double margin;             /* default 0 */
    gd_reduction reduction;
} gd_cosine_embedding_options;

/* 1 - cos(x, y) where the target is 1, max(0, cos(x, y) - margin) where it is -1. */
#define gd_cosine_embedding(...) \
    gd_cosine_embedding_with(GD_OPTIONS_3(gd_cosine_embedding_options, x, y, target, __VA_ARGS__))
GD_API gd_tensor *gd_cosine_embedding_with(gd_cosine_embedding_options options);
GD_API gd_tensor *(gd_cosine_embedding)(gd_tensor *x, gd_tensor *y, gd_tensor *target);

typedef struct gd_triplet_margin_options {
    gd_tensor *anchor, *positive, *negative; /* [.., n] of equal shapes */
    double margin;                           /* default 1 */
    double p;                                /* of the norm; default 2 */
    bool swap; /* take the nearer of anchor and positive as the negative's neighbour. Balntas et al.
                  2016 */
    gd_reduction reduction;
} gd_triplet_margin_options;

/* max(0, d(anchor, positive) - d(anchor, negative) + margin), d(x, y) = |x - y + 1e-6|_p along the
 * last axis. Schroff et al., "FaceNet", 2015. */
#define gd_triplet_margin(...) \
    gd_triplet_margin_with(    \
        GD_OPTIONS_3(gd_triplet_margin_options, anchor, positive, negative, __VA_ARGS__))
GD_API gd_tensor *gd_triplet_margin_with(gd_triplet_margin_options options);
GD_API gd_tensor *(gd_triplet_margin)(gd_tensor *anchor, gd_tensor *positive, gd_tensor *negative);

/* ---- sequences ---- */

typedef struct gd_ctc_options {
    gd_tensor *log_probabilities; /* [time, batch, classes], as gd_log_softmax gives them */
    gd_tensor *targets;           /* integers [batch, length]: classes without blanks; what lies
                                     behind a target's length is not looked at */
    gd_tensor *input_lengths;     /* integers [batch], 1 … time */
    gd_tensor *target_lengths;    /* integers [batch], 0 … length */
    int64_t blank;                /* the class that stands for none */
    bool zero_infinity;           /* a target that cannot be aligned counts 0, not infinity */
    gd_reduction reduction;
} gd_ctc_options;

/* -log of the probability of all paths over time that spell the target. Graves et al.,
 * "Connectionist temporal classification", 2006, in logarithms. The mean is over the batch, each
 * loss divided by its target's length first. A target that cannot be aligned has gradient 0. */
#define gd_ctc(...)                                                                     \
    gd_ctc_with(GD_OPTIONS_4(gd_ctc_options, log_probabilities, targets, input_lengths, \
                             target_lengths, __VA_ARGS__))
GD_API gd_tensor *gd_ctc_with(gd_ctc_options options);

#ifdef __cplusplus
}
#endif
#endif
