/* gradus/loss.h: losses. Each is called with its tensors and, by name, what differs from the
 * defaults:
 *
 *     gd_cross_entropy(logits, target)
 *     gd_cross_entropy(logits, target, .label_smoothing = 0.1, .reduction = GD_REDUCE_SUM)
 *
 * Meanings are those of torch.nn.functional. Where two shapes must be equal nothing is broadcast. Integers are taken as f32, halves are computed in f32.
 * Errors: GD_ERR_SHAPE, GD_ERR_DTYPE, GD_ERR_INVALID for an option out of its range, GD_ERR_MEMORY.
 * NULL operands give NULL. The losses are made of ops, so they compile and can be differentiated,
 * twice too; gd_ctc alone once. The name without parentheses is a function of the tensors alone.
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
    size_t size GD_DEFAULT(sizeof(gd_cross_entropy_options));
    gd_tensor *weight;      /* [classes], of each class; NULL: ones */
    double label_smoothing; /* 0 … 1 */
    /* rows with this target count for nothing; GD_NO_INDEX: there are none */
    int64_t ignore_index GD_DEFAULT(GD_NO_INDEX);
    gd_reduction reduction;
} gd_cross_entropy_options;
#define GD_CROSS_ENTROPY_DEFAULTS                                          \
    .size = sizeof(gd_cross_entropy_options), .ignore_index = GD_NO_INDEX, \
    .reduction = GD_REDUCE_MEAN

/* -weight[t] * log softmax(logits)[t]: logits [.., classes]; target either class indices t,
 * integers
 * [..] (out of range: GD_ERR_INVALID), or probabilities, floats [.., classes]: -sum(p * weight *
 * log softmax(logits)). Smoothing mixes the target with the uniform distribution (Szegedy et al.
 * 2016). The mean over indices is weighted: divided by the sum of weight[t] over the rows that
 * count (none: NaN); over probabilities it is divided by the number of rows. GD_REDUCE_NONE: [..].
 */
#define gd_cross_entropy(...)                                                             \
    GD_WITH_2(gd_cross_entropy_with, gd_cross_entropy_options, GD_CROSS_ENTROPY_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_cross_entropy_with(gd_tensor *logits, gd_tensor *target,
                                        const gd_cross_entropy_options *options);
GD_API gd_tensor *(gd_cross_entropy)(gd_tensor *logits, gd_tensor *target);
/* The plain one before the mean: [..]. */
GD_API gd_tensor *gd_cross_entropy_each(gd_tensor *logits, gd_tensor *target);

typedef struct gd_nll_options {
    size_t size GD_DEFAULT(sizeof(gd_nll_options));
    gd_tensor *weight; /* these as in gd_cross_entropy_options */
    int64_t ignore_index GD_DEFAULT(GD_NO_INDEX);
    gd_reduction reduction;
} gd_nll_options;
#define GD_NLL_DEFAULTS \
    .size = sizeof(gd_nll_options), .ignore_index = GD_NO_INDEX, .reduction = GD_REDUCE_MEAN

/* Negative log-likelihood: -weight[t] * log_probabilities[t], with gd_cross_entropy's mean:
 * log_probabilities [.., classes], target integers [..]. */
#define gd_nll(...) GD_WITH_2(gd_nll_with, gd_nll_options, GD_NLL_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_nll_with(gd_tensor *log_probabilities, gd_tensor *target,
                              const gd_nll_options *options);
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
    size_t size GD_DEFAULT(sizeof(gd_bce_options));
    gd_tensor *weight; /* of each element, broadcast; NULL: ones */
    gd_reduction reduction;
} gd_bce_options;
#define GD_BCE_DEFAULTS .size = sizeof(gd_bce_options), .reduction = GD_REDUCE_MEAN

/* -(y log p + (1 - y) log(1 - p)) of probabilities p and targets y of equal shapes, numbers in 0 …
 * 1; each logarithm at least -100; where it would be less the gradient is 0. Prefer
 * gd_bce_with_logits. */
#define gd_bce(...) GD_WITH_2(gd_bce_with, gd_bce_options, GD_BCE_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_bce_with(gd_tensor *probability, gd_tensor *target,
                              const gd_bce_options *options);
GD_API gd_tensor *(gd_bce)(gd_tensor *probability, gd_tensor *target);

typedef struct gd_bce_with_logits_options {
    size_t size GD_DEFAULT(sizeof(gd_bce_with_logits_options));
    gd_tensor *weight;          /* of each element, broadcast; NULL: ones */
    gd_tensor *positive_weight; /* of the term of positive targets, broadcast; NULL: ones */
    gd_reduction reduction;
} gd_bce_with_logits_options;
#define GD_BCE_WITH_LOGITS_DEFAULTS \
    .size = sizeof(gd_bce_with_logits_options), .reduction = GD_REDUCE_MEAN

/* gd_bce of sigmoid(logits), without overflow. Equal shapes. */
#define gd_bce_with_logits(...)                                                                 \
    GD_WITH_2(gd_bce_with_logits_with, gd_bce_with_logits_options, GD_BCE_WITH_LOGITS_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_bce_with_logits_with(gd_tensor *logits, gd_tensor *target,
                                          const gd_bce_with_logits_options *options);
GD_API gd_tensor *(gd_bce_with_logits)(gd_tensor *logits, gd_tensor *target);

typedef struct gd_focal_options {
    size_t size GD_DEFAULT(sizeof(gd_focal_options));
    /* weight of positives, 1 - alpha of negatives: 0 … 1; NaN: both 1 */
    double alpha GD_DEFAULT(0.25);
    double gamma GD_DEFAULT(2); /* not negative; 0: no focus */
    gd_reduction reduction;
} gd_focal_options;
#define GD_FOCAL_DEFAULTS \
    .size = sizeof(gd_focal_options), .alpha = 0.25, .gamma = 2, .reduction = GD_REDUCE_MEAN

/* gd_bce_with_logits * (1 - p_t)^gamma, p_t the probability given to the target. Equal shapes. Lin et al., "Focal
 * loss for dense object detection", 2017; torchvision.ops.sigmoid_focal_loss. */
#define gd_focal(...) GD_WITH_2(gd_focal_with, gd_focal_options, GD_FOCAL_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_focal_with(gd_tensor *logits, gd_tensor *target,
                                const gd_focal_options *options);
GD_API gd_tensor *(gd_focal)(gd_tensor *logits, gd_tensor *target);

typedef struct gd_hinge_options {
    size_t size GD_DEFAULT(sizeof(gd_hinge_options));
    double margin GD_DEFAULT(1);
    gd_reduction reduction;
} gd_hinge_options;
#define GD_HINGE_DEFAULTS .size = sizeof(gd_hinge_options), .margin = 1, .reduction = GD_REDUCE_MEAN

/* max(0, margin - x * y), y being 1 or -1: of a support vector machine. Equal shapes. Cortes,
 * Vapnik 1995. */
#define gd_hinge(...) GD_WITH_2(gd_hinge_with, gd_hinge_options, GD_HINGE_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_hinge_with(gd_tensor *x, gd_tensor *y, const gd_hinge_options *options);
GD_API gd_tensor *(gd_hinge)(gd_tensor *x, gd_tensor *y);
/* x where y is 1, max(0, margin - x) where it is -1: x is a distance. */
#define gd_hinge_embedding(...) \
    GD_WITH_2(gd_hinge_embedding_with, gd_hinge_options, GD_HINGE_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_hinge_embedding_with(gd_tensor *x, gd_tensor *y,
                                          const gd_hinge_options *options);
GD_API gd_tensor *(gd_hinge_embedding)(gd_tensor *x, gd_tensor *y);

/* ---- distributions ---- */

typedef struct gd_kl_div_options {
    size_t size GD_DEFAULT(sizeof(gd_kl_div_options));
    bool log_target;        /* p are log-probabilities, too */
    gd_reduction reduction; /* the divergence of a batch is GD_REDUCE_BATCH_MEAN; GD_REDUCE_MEAN
                               divides by all elements */
} gd_kl_div_options;
#define GD_KL_DIV_DEFAULTS .size = sizeof(gd_kl_div_options), .reduction = GD_REDUCE_MEAN

/* p * (log p - log q), 0 where p is 0, of the model's log-probabilities and the target's
 * probabilities, of equal shapes. Kullback, Leibler 1951. */
#define gd_kl_div(...) \
    GD_WITH_2(gd_kl_div_with, gd_kl_div_options, GD_KL_DIV_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_kl_div_with(gd_tensor *log_q, gd_tensor *p, const gd_kl_div_options *options);
GD_API gd_tensor *(gd_kl_div)(gd_tensor *log_q, gd_tensor *p);

/* ---- distances. Equal shapes ---- */

typedef struct gd_distance_options {
    size_t size GD_DEFAULT(sizeof(gd_distance_options));
    gd_reduction reduction;
} gd_distance_options;
#define GD_DISTANCE_DEFAULTS .size = sizeof(gd_distance_options), .reduction = GD_REDUCE_MEAN

/* (x - y)^2 */
#define gd_mse(...) GD_WITH_2(gd_mse_with, gd_distance_options, GD_DISTANCE_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_mse_with(gd_tensor *x, gd_tensor *y, const gd_distance_options *options);
GD_API gd_tensor *(gd_mse)(gd_tensor *x, gd_tensor *y);
/* |x - y| */
#define gd_mae(...) GD_WITH_2(gd_mae_with, gd_distance_options, GD_DISTANCE_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_mae_with(gd_tensor *x, gd_tensor *y, const gd_distance_options *options);
GD_API gd_tensor *(gd_mae)(gd_tensor *x, gd_tensor *y);

typedef struct gd_huber_options {
    size_t size GD_DEFAULT(sizeof(gd_huber_options));
    double delta GD_DEFAULT(1); /* more than 0 */
    gd_reduction reduction;
} gd_huber_options;
#define GD_HUBER_DEFAULTS .size = sizeof(gd_huber_options), .delta = 1, .reduction = GD_REDUCE_MEAN

/* d^2 / 2 where |d| <= delta, else delta * (|d| - delta / 2); d = x - y. Huber 1964. */
#define gd_huber(...) GD_WITH_2(gd_huber_with, gd_huber_options, GD_HUBER_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_huber_with(gd_tensor *x, gd_tensor *y, const gd_huber_options *options);
GD_API gd_tensor *(gd_huber)(gd_tensor *x, gd_tensor *y);
/* That divided by delta (PyTorch's beta). Girshick, "Fast R-CNN", 2015. */
#define gd_smooth_l1(...) \
    GD_WITH_2(gd_smooth_l1_with, gd_huber_options, GD_HUBER_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_smooth_l1_with(gd_tensor *x, gd_tensor *y, const gd_huber_options *options);
GD_API gd_tensor *(gd_smooth_l1)(gd_tensor *x, gd_tensor *y);

/* ---- embeddings ---- */

/* sum(x * y) / (max(|x|, 1e-8) * max(|y|, 1e-8)) along an axis, which goes; x and y of equal
 * shapes.
 */
GD_API gd_tensor *gd_cosine_similarity(gd_tensor *x, gd_tensor *y, int axis);

typedef struct gd_cosine_embedding_options {
    size_t size GD_DEFAULT(sizeof(gd_cosine_embedding_options));
    double margin;
    gd_reduction reduction;
} gd_cosine_embedding_options;
#define GD_COSINE_EMBEDDING_DEFAULTS \
    .size = sizeof(gd_cosine_embedding_options), .reduction = GD_REDUCE_MEAN

/* 1 - cos(x, y) where the target is 1, max(0, cos(x, y) - margin) where it is -1: x and y [.., n],
 * target [..]. */
#define gd_cosine_embedding(...)                                                                   \
    GD_WITH_3(gd_cosine_embedding_with, gd_cosine_embedding_options, GD_COSINE_EMBEDDING_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_cosine_embedding_with(gd_tensor *x, gd_tensor *y, gd_tensor *target,
                                           const gd_cosine_embedding_options *options);
GD_API gd_tensor *(gd_cosine_embedding)(gd_tensor *x, gd_tensor *y, gd_tensor *target);

typedef struct gd_triplet_margin_options {
    size_t size GD_DEFAULT(sizeof(gd_triplet_margin_options));
    double margin GD_DEFAULT(1);
    double p GD_DEFAULT(2); /* of the norm; 1 or more */
    bool swap; /* take the nearer of anchor and positive as the negative's neighbour. Balntas et al.
                  2016 */
    gd_reduction reduction;
} gd_triplet_margin_options;
#define GD_TRIPLET_MARGIN_DEFAULTS \
    .size = sizeof(gd_triplet_margin_options), .margin = 1, .p = 2, .reduction = GD_REDUCE_MEAN

/* max(0, d(anchor, positive) - d(anchor, negative) + margin), d(x, y) = |x - y + 1e-6|_p along the
 * last axis of tensors [.., n] of equal shapes. Schroff et al., "FaceNet", 2015. */
#define gd_triplet_margin(...)                                                               \
    GD_WITH_3(gd_triplet_margin_with, gd_triplet_margin_options, GD_TRIPLET_MARGIN_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_triplet_margin_with(gd_tensor *anchor, gd_tensor *positive,
                                         gd_tensor *negative,
                                         const gd_triplet_margin_options *options);
GD_API gd_tensor *(gd_triplet_margin)(gd_tensor *anchor, gd_tensor *positive, gd_tensor *negative);

/* ---- sequences ---- */

typedef struct gd_ctc_options {
    size_t size GD_DEFAULT(sizeof(gd_ctc_options));
    int64_t blank;      /* the class that stands for none */
    bool zero_infinity; /* a target that cannot be aligned counts 0, not infinity */
    gd_reduction reduction;
} gd_ctc_options;
#define GD_CTC_DEFAULTS .size = sizeof(gd_ctc_options), .reduction = GD_REDUCE_MEAN

/* -log of the probability of all paths over time that spell the target:
 *   log_probabilities   [time, batch, classes], as gd_log_softmax gives them
 *   targets             integers [batch, length]: classes without blanks; what lies behind a
 *                       target's length is not looked at
 *   input_lengths       integers [batch], 1 … time
 *   target_lengths      integers [batch], 0 … length
 * Graves et al.,
 * "Connectionist temporal classification", 2006, in logarithms. The mean is over the batch, each
 * loss divided by its target's length first. A target that cannot be aligned has gradient 0. */
#define gd_ctc(...) GD_WITH_4(gd_ctc_with, gd_ctc_options, GD_CTC_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_ctc_with(gd_tensor *log_probabilities, gd_tensor *targets,
                              gd_tensor *input_lengths, gd_tensor *target_lengths,
                              const gd_ctc_options *options);

#ifdef __cplusplus
}
#endif
#endif
