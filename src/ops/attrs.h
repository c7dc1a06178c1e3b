/* ops/attrs.h: the attributes of ops, plain values a kernel can read. All padding must be zero
 * (start from `= { 0 }` or memset): attributes are compared as bytes. */
#ifndef GD_OPS_ATTRS_H
#define GD_OPS_ATTRS_H

#include "tensor/layout.h"

typedef struct gd_full_attr {
    gd_shape shape;
    double value;
    int64_t whole; /* in place of `value`, for integer dtypes; of u64 the bits */
    int64_t dtype;
} gd_full_attr; /* full */

typedef struct gd_iota_attr {
    int64_t count;
    double start, step; /* value i = start + i*step in f64, then converted */
    int64_t integer_start, integer_step;
    int64_t use_integers; /* i64/i32 exact */
    int64_t dtype;
} gd_iota_attr; /* iota: result [count] */

/* Word i of the result is word (state[1] + offset + i) of the Philox stream of seed state[0]
 * (base/random.h); i64 results take two words each, low word first. Input 0: the context's state,
 * i64 [2] = {seed, position}. */
typedef struct gd_random_attr {
    gd_shape shape;
    uint64_t offset;
    int64_t dtype; /* GD_I32 or GD_I64 */
} gd_random_attr;  /* random_bits */

/* Element i stays, times `scale`, where word (state[1] + offset + i) of the stream of seed state[0]
 * is at least `threshold`; else it becomes 0. Inputs: x, state as for random_bits. */
typedef struct gd_dropout_attr {
    uint64_t offset;
    uint64_t threshold; /* 0 … 2^32 */
    double scale;
} gd_dropout_attr;

typedef struct gd_shape_attr {
    gd_shape shape;
} gd_shape_attr; /* reshape, broadcast_to */

typedef struct gd_permute_attr {
    int32_t order[GD_MAX_RANK];
} gd_permute_attr;

typedef struct gd_slice_attr {
    int64_t start[GD_MAX_RANK]; /* index of the first element taken, in range when size > 0 */
    int64_t step[GD_MAX_RANK];  /* not 0 */
    int64_t size[GD_MAX_RANK];
} gd_slice_attr;

typedef struct gd_pad_attr {
    int64_t before[GD_MAX_RANK], after[GD_MAX_RANK]; /* not negative */
    double value;
} gd_pad_attr;

typedef struct gd_cast_attr {
    int64_t dtype;
} gd_cast_attr;

/* Reductions: result has the kept axes in order; the reduced ones stay with size 1 when `keep`,
 * else they go. Result is contiguous either way, so a kernel need not look at `keep`. */
typedef struct gd_reduce_attr {
    uint32_t axes; /* bit a: axis a is reduced */
    uint32_t keep;
} gd_reduce_attr; /* sum prod max min */

typedef struct gd_axis_attr {
    int32_t axis;    /* in 0 … rank-1 */
    uint32_t keep;   /* argmax, argmin only: keep the axis with size 1 */
    int64_t rounded; /* softmax, log_softmax, cumsum, cumprod only: gd_op.rounds */
} gd_axis_attr; /* argmax argmin cumsum cumprod concat gather scatter_add softmax log_softmax */

/* argsort: the first `count` along the last axis. NaN counts as the largest number. */
typedef struct gd_sort_attr {
    int64_t count;
    int64_t descending;
} gd_sort_attr;

typedef struct gd_search_attr {
    int64_t right; /* behind equal ones */
} gd_search_attr;  /* searchsorted */

typedef struct gd_linear_attr {
    int64_t relu; /* apply ReLU last */
} gd_linear_attr; /* linear: inputs x [.., m, k], w [.., k, n], bias [n] (bias may be absent: two
                     inputs) */

typedef struct gd_extra_result_attr {
    int32_t index; /* which of the extra results of the group, or of an op that has several */
    int32_t dtype;
    gd_shape shape;
} gd_extra_result_attr; /* extra_result: input the group or op */

typedef struct gd_checkpoint_attr {
    gd_tensor *(*body)(void *user, int count, gd_tensor *const *in);
    void *user;
    int64_t count;     /* of its inputs, the first of the node's behind the result */
    uint64_t position; /* of the random stream when the block was run */
    uint64_t autocast; /* of the context then */
} gd_checkpoint_attr;  /* checkpoint */

typedef struct gd_call_attr {
    struct gd_stage *stage; /* what was run (compile/call_gradient.c) */
    uint64_t position;      /* of the random stream then */
    int64_t bytes;          /* of the memory its results lie in */
} gd_call_attr;             /* call */

typedef struct gd_call_result_attr {
    gd_layout layout; /* in the memory of the call */
    int64_t index;
} gd_call_result_attr; /* call_result; in plans any view of several operands */

typedef struct gd_norm_attr {
    double epsilon;
    int32_t center;  /* take the mean off first */
    int32_t parts;   /* of weight and bias: 0 neither, 1 weight, 2 both */
    int64_t rounded; /* normalize only: gd_op.rounds */
} gd_norm_attr;      /* normalize, normalize_grad */

typedef struct gd_rounded_attr {
    int64_t rounded; /* gd_op.rounds */
} gd_rounded_attr;   /* cross_entropy_grad */

/* Numbers of x [n, c, ..] that centred_products adds up for a result. */
static inline int64_t gd_centred_row(const gd_layout *x)
{
    int64_t k = 1;
    for (int i = 2; i < x->rank; i++)
        k *= x->shape[i];
    return k;
}

/* normalize_grad sums the gradients of weight and bias over blocks of rows, in order, and leaves
 * the block sums to be added up. How rows are cut depends on their number alone, so results do not
 * depend on threads. Its result is [rows + parts * blocks, k]: the gradient by x, the block sums
 * for the weight, those for the bias. */
static inline int64_t gd_norm_block_rows(int64_t rows)
{
    return rows <= 16 * 64 ? 16 : (rows + 63) / 64;
}
static inline int64_t gd_norm_blocks(int64_t rows)
{
    int64_t each = gd_norm_block_rows(rows);
    return (rows + each - 1) / each;
}
/* How many rows x [.., k] has; k may be 0. */
static inline int64_t gd_norm_rows(const gd_layout *x)
{
    int64_t rows = 1;
    for (int i = 0; i < x->rank - 1; i++)
        rows *= x->shape[i];
    return rows;
}

/* attention, attention_result, attention_grad: ops/attention.c */
typedef struct gd_attention_attr {
    double scale, dropout; /* dropout: probability, 0 for none */
    uint64_t offset;       /* of its first random word from the position in the state */
    int32_t causal;
    int16_t has_mask;
    int16_t is_joined; /* attention_grad: the gradients by q, k and v lie side by side, [.., time,
                          widths of all heads], and not one after the other (pass join_attention) */
} gd_attention_attr;

/* Where the gradients by q, k and v begin in the result of attention_grad, and how far apart the
 * rows of each are, with all its heads; in elements. */
typedef struct gd_attention_offsets {
    int64_t at[3], row[3];
} gd_attention_offsets;

static inline gd_attention_offsets gd_attention_grad_offsets(const gd_attention_attr *attr,
                                                             const gd_layout *const *qkv)
{
    gd_attention_offsets p;
    int64_t row = 0, count = 0;
    for (int i = 0; i < 3; i++) {
        const gd_layout *x = qkv[i];
        p.at[i] = attr->is_joined ? row : count;
        p.row[i] = x->shape[x->rank - 3] * x->shape[x->rank - 1];
        row += p.row[i];
        count += gd_layout_count(x);
    }
    for (int i = 0; i < 3 && attr->is_joined; i++)
        p.row[i] = row;
    return p;
}

/* recurrent, recurrent_result, recurrent_grad: ops/recurrent.c */
typedef struct gd_recurrent_attr {
    int32_t cell; /* gd_cell */
    int32_t reverse, has_lengths;
    int32_t part; /* recurrent_result: 0 h of all steps, 1 the last c; recurrent_grad: of which */
} gd_recurrent_attr;

#define GD_RECURRENT_WIDEST 4096 /* state: one row of it must fit a thread's scratch */

static inline int64_t gd_recurrent_gates(int32_t cell)
{
    return cell == 2 ? 4 : cell == 3 ? 3 : 1;
}
/* Numbers kept for each of a step's: h; LSTM: c and 4 gates; GRU: 4 gates. */
static inline int64_t gd_recurrent_kept(int32_t cell)
{
    return cell == 2 ? 6 : cell == 3 ? 5 : 1;
}

/* adam and adam_bf16: operands, whose formula stands in ops/adam.h; those from GD_ADAM_NUMBERS on are 0-d. Its
 * results: the op's own and, behind it, extra results. */
enum {
    GD_ADAM_P,
    GD_ADAM_G,
    GD_ADAM_M,
    GD_ADAM_V,
    GD_ADAM_NUMBERS,
    GD_ADAM_STEP_SIZE = GD_ADAM_NUMBERS,
    GD_ADAM_EPSILON,
    GD_ADAM_REST1,
    GD_ADAM_BETA2,
    GD_ADAM_REST2,
    GD_ADAM_DECAY,
    GD_ADAM_OPERANDS,
    GD_ADAM_WORDS = GD_ADAM_OPERANDS, /* of adam_bf16 */
    GD_ADAM_BF16_OPERANDS
};
enum { GD_ADAM_NEXT_M, GD_ADAM_NEXT_V, GD_ADAM_NEXT_P, GD_ADAM_RESULTS };
#define GD_ADAM_FLOPS 14.0 /* of an element: its elementwise ops, decay left out */

/* Convolution and pooling see up to three spatial axes; with fewer, they are the last of the three,
 * and those before them have size 1, stride 1 and no padding. */
#define GD_SPATIAL 3

typedef struct gd_conv_attr {
    int64_t stride[GD_SPATIAL], before[GD_SPATIAL], after[GD_SPATIAL], dilation[GD_SPATIAL];
    int64_t size[GD_SPATIAL]; /* convolution_grad_input: spatial sizes of its result;
                                 convolution_grad_weight: the kernel's; convolution: 0 */
    int64_t groups;
    int64_t relu; /* convolution only, set by the compiler: ReLU last */
} gd_conv_attr;   /* convolution: x, w, and a bias or none. convolution_grad_input: g, w.
                     convolution_grad_weight: g, x */

typedef struct gd_pool_attr {
    int64_t kernel[GD_SPATIAL], stride[GD_SPATIAL], before[GD_SPATIAL], after[GD_SPATIAL],
        dilation[GD_SPATIAL];
    int64_t size[GD_SPATIAL]; /* spatial sizes: of the windows' side; avg_pool_grad: of the other */
    int64_t adaptive;         /* windows divide the axis instead; the fields above are not used */
    int64_t exclude_pad;      /* avg_pool: divide by the elements inside the input */
    int64_t rounded;          /* gd_op.rounds; 0 of max_pool_index */
} gd_pool_attr; /* max_pool max_pool_index avg_pool: x. max_pool_grad: g, x. avg_pool_grad: g */

#endif
