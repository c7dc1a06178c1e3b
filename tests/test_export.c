/* tests/test_export.c: gd_export_c: plans written as C99, compiled with every compiler there is,
 * without a warning, and run: the same bits as the plan at the baseline instruction set. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compile/export.h"
#include "support/effort.h"
#include "support/guard.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/conv.h>
#include <gradus/layers.h>
#include <gradus/loss.h>
#include <gradus/nn.h>
#include <gradus/ops.h>
#include <gradus/norm.h>
#include <gradus/optim.h>
#include <gradus/sequence.h>

enum { MOST_INPUTS = 3, CALLS = 3 };

/* ---- the networks ---- */

typedef struct trainee {
    gd_module *module;
    gd_optimizer *optimizer;
} trainee;

/* The MNIST network: x [batch, 784] -> logits [batch, 10] */
static gd_tensor *logits(trainee *t, gd_tensor *x)
{
    gd_tensor *a = gd_relu(gd_nn_linear(t->module, "fc1", x, 16));
    gd_tensor *b = gd_relu(gd_nn_linear(t->module, "fc2", a, 16));
    return gd_nn_linear(t->module, "fc3", gd_add(a, b), 10);
}

static gd_tensor *infer(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_softmax(logits(user, in[0]), -1);
}

static gd_tensor *train(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_cross_entropy(logits(t, in[0]), in[1]));
}

/* ---- functions of many ops: in[0] f32 [6, 40], in[1] f64 [40], in[2] i64 [6] ---- */

static gd_tensor *functions_of_one(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0], *positive = gd_add_scalar(gd_abs(x), 0.25);
    gd_output(gd_tanh(gd_neg(gd_exp(x))));
    gd_output(gd_log(positive));
    gd_output(gd_sigmoid(gd_sqrt(positive)));
    gd_output(gd_gelu(x));
    gd_output(gd_softplus(gd_rsqrt(positive)));
    gd_output(gd_floor(gd_mul_scalar(x, 3.5)));
    gd_output(gd_pow(positive, x));
    gd_output(gd_log1p(gd_expm1(positive)));
    gd_output(gd_sign(gd_round(x)));
    return gd_silu(x);
}

static gd_tensor *mixed_types(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0], *y = in[1], *n = in[2];
    gd_tensor *wide = gd_mul(gd_cast(x, GD_F64), y); /* [6, 40], y broadcast */
    gd_output(gd_pow(gd_add_scalar(gd_abs(wide), 0.1), y));
    gd_output(gd_where(gd_gt(x, gd_scalar(gd_tensor_context(x), 0.5, GD_F32)), x, gd_neg(x)));
    gd_output(gd_cast(gd_mul_scalar(wide, 7.0), GD_I64));
    gd_output(gd_maximum(gd_unsqueeze(n, 1), gd_cast(x, GD_I64)));
    gd_output(gd_isnan(gd_log(x)));
    gd_output(gd_mod(wide, gd_scalar(gd_tensor_context(x), 0.75, GD_F64)));
    gd_output(gd_cast(gd_logical_not(gd_lt(wide, y)), GD_F32));
    return gd_exp(gd_slice(gd_transpose(wide, 0, 1), 0, 1, 39, 2));
}

static gd_tensor *reductions(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0];
    gd_tensor *cube = gd_reshape(x, GD_SHAPE(4, 3, 20));
    gd_output(gd_sum(x, GD_AXES(0), false));
    gd_output(gd_sum(x, GD_AXES(1), true));
    gd_output(gd_sum(cube, GD_AXES(0, 2), false));
    gd_output(gd_sum(cube, GD_AXES(1), false));
    gd_output(gd_sum(gd_transpose(cube, 0, 2), GD_AXES(1, 2), false));
    gd_output(gd_sum(gd_flip(x, GD_AXES(1)), GD_ALL_AXES, false));
    /* Long: blocks and their tree. */
    gd_tensor *far =
        gd_exp(gd_mul(gd_reshape(x, GD_SHAPE(240, 1)), gd_reshape(in[0], GD_SHAPE(1, 240))));
    gd_output(gd_sum(far, GD_ALL_AXES, false));
    gd_output(gd_sum(far, GD_AXES(0), false));
    gd_output(gd_softmax(far, -1));
    gd_output(gd_log_softmax(x, -1));
    return gd_mean(in[1], GD_ALL_AXES, false);
}

/* Layer norm and softmax of simple ops: groups with reductions along rows. */
static gd_tensor *row_groups(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_reshape(in[0], GD_SHAPE(2, 3, 40));
    gd_tensor *c = gd_sub(x, gd_mean(x, GD_AXES(-1), true));
    gd_tensor *v = gd_mean(gd_square(c), GD_AXES(-1), true);
    gd_tensor *y = gd_mul(gd_mul(c, gd_rsqrt(gd_add_scalar(v, 1e-5))), gd_slice(x, 0, 0, 1, 1));
    gd_tensor *e = gd_exp(gd_mul_scalar(y, 0.1));
    gd_tensor *s = gd_div(e, gd_unsqueeze(gd_sum(e, GD_AXES(2), false), -1));
    gd_tensor *wide = gd_sum(gd_mul(gd_cast(s, GD_F64), in[1]), GD_AXES(1, 2), false);
    gd_output(v);
    gd_output(gd_sum(gd_square(gd_cast(y, GD_F64)), GD_AXES(-1), false));
    gd_output(gd_mean(gd_square(wide), GD_ALL_AXES, false));
    return s;
}

static gd_tensor *products(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0], *t = gd_transpose(x, 0, 1);
    gd_output(gd_matmul(x, t));
    gd_output(gd_matmul(t, x));
    gd_tensor *cube = gd_reshape(x, GD_SHAPE(2, 3, 40));
    gd_output(gd_relu(gd_matmul(cube, gd_transpose(cube, 1, 2))));
    return gd_matmul(gd_cast(t, GD_F64), gd_cast(x, GD_F64));
}

/* Rows of 700: more than two blocks of k. in[0] f32 [3, 700], in[1] f32 [700, 21] */
static gd_tensor *deep_product(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_relu(gd_add(gd_matmul(in[0], in[1]), gd_slice(gd_select(in[1], 0, 3), 0, 0, 21, 1)));
}

/* Convolution, pooling and their gradients. in[0] f32 [4, 3, 13, 12], in[1] i64 [4] */
static gd_tensor *convolutional(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *x = gd_nn_conv2d(t->module, "c1", in[0], 6, GD_SHAPE(3), .padding = GD_SHAPE(1));
    x = gd_max_pool2d(gd_relu(x), GD_SHAPE(3), .stride = GD_SHAPE(2), .padding = GD_SHAPE(1));
    x = gd_nn_conv2d(t->module, "c2", x, 40, GD_SHAPE(3), .stride = GD_SHAPE(2), .groups = 2);
    x = gd_avg_pool2d(gd_tanh(x), GD_SHAPE(2), .stride = GD_SHAPE(1), .padding = GD_SHAPE(1));
    x = gd_nn_conv2d(t->module, "c3", x, 5, GD_SHAPE(3), .padding = GD_SHAPE(2),
                     .dilation = GD_SHAPE(2), .bias = false);
    x = gd_nn_linear(t->module, "fc", gd_reshape(x, GD_SHAPE(4, -1)), 10);
    gd_tensor *loss = gd_cross_entropy(x, in[1]), *parameter[7], *gradient[7];
    for (int i = 0; i < 7; i++)
        parameter[i] = gd_module_tensor(t->module, i);
    if (gd_grad(1, &loss, NULL, 7, parameter, gradient) != GD_OK)
        return NULL;
    for (int i = 0; i < 7; i++)
        gd_output(gradient[i]);
    return loss;
}

/* ---- sequences ---- */

static const gd_transformer_config gpt_config = { GD_TRANSFORMER_CONFIG_DEFAULTS,
                                                  .width = 32,
                                                  .heads = 4,
                                                  .hidden = 48,
                                                  .layers = 2,
                                                  .vocabulary = 19,
                                                  .max_length = 70,
                                                  .pre_norm = true,
                                                  .tied = true,
                                                  .dropout = 0.2 };

/* Logits of a small GPT, not training. in[0] i64 [3, 70] */
static gd_tensor *gpt_infer(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_module_set_training(t->module, false);
    return gd_nn_decoder_only(t->module, "gpt", in[0], &gpt_config);
}

/* Scores x [.., 19] of the tokens that follow. */
static gd_tensor *learn_tokens(trainee *t, gd_tensor *x, gd_tensor *tokens)
{
    gd_tensor *scores = gd_reshape(x, GD_SHAPE(-1, 19));
    return gd_minimize(t->optimizer, gd_cross_entropy(scores, gd_reshape(tokens, GD_SHAPE(-1))));
}

/* A whole training step. in[0], in[1] i64 [3, 70] */
static gd_tensor *gpt_train(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_module_set_training(t->module, true);
    gd_tensor *x = gd_nn_decoder_only(t->module, "gpt", in[0], &gpt_config);
    return learn_tokens(t, x, in[1]);
}

/* Rotary positions, grouped queries, RMS norm, SwiGLU: Llama; its gradients too. */
static gd_tensor *llama_train(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    const gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS,
                                           .width = 24,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .hidden = 40,
                                           .layers = 1,
                                           .vocabulary = 19,
                                           .activation = GD_ACTIVATION_SWIGLU,
                                           .norm = GD_NORM_RMS,
                                           .position = GD_POSITION_ROTARY,
                                           .pre_norm = true,
                                           .bias = false };
    gd_tensor *x = gd_nn_decoder_only(t->module, "llama", in[0], &config);
    return learn_tokens(t, x, in[1]);
}

/* Attention with masks, memory and dropout, more queries than a tile has. in[0] f32 [2, 300, 8],
 * in[1] f32 [2, 150, 12] */
static gd_tensor *attentive(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_context *gd = gd_tensor_context(in[0]);
    gd_module_set_training(t->module, true);
    gd_tensor *cross =
        gd_nn_multi_head_attention(t->module, "cross", in[0], 2, .memory = in[1], .dropout = 0.1);
    gd_tensor *i = gd_arange(gd, 0, 300, 1, GD_I64);
    gd_tensor *near = gd_lt(gd_abs(gd_sub(gd_unsqueeze(i, 1), i)), gd_scalar(gd, 40, GD_I64));
    gd_tensor *masked =
        gd_nn_multi_head_attention(t->module, "masked", cross, 4, .kv_heads = 1, .mask = near);
    gd_tensor *slope = gd_mul_scalar(gd_cast(gd_sub(i, gd_unsqueeze(i, 1)), GD_F32), 0.01);
    gd_tensor *loss = gd_mean(gd_square(gd_nn_multi_head_attention(t->module, "biased", masked, 2,
                                                                   .mask = slope, .causal = true)),
                              GD_ALL_AXES, false);
    return gd_minimize(t->optimizer, loss);
}

/* A text model of LSTM, GRU and RNN with lengths: a training step. in[0] i64 [5, 9], in[1] i64 [5]
 */
static gd_tensor *recurrent_train(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_module_set_training(t->module, true);
    gd_tensor *x = gd_nn_embedding(t->module, "token", in[0], 19, 6), *last_cell;
    x = gd_nn_lstm(t->module, "lstm", x, 7, .layers = 2, .bidirectional = true, .dropout = 0.1,
                   .last_cell = &last_cell);
    x = gd_nn_gru(t->module, "gru", x, 6, .lengths = in[1]);
    x = gd_nn_rnn(t->module, "relu", gd_nn_rnn(t->module, "rnn", x, 5), 5, .relu = true);
    gd_tensor *scores = gd_nn_linear(t->module, "head", gd_reshape(x, GD_SHAPE(45, 5)), 19);
    gd_tensor *loss = gd_cross_entropy(scores, gd_reshape(in[0], GD_SHAPE(45)));
    loss = gd_add(loss, gd_mean(gd_square(last_cell), GD_ALL_AXES, false));
    return gd_minimize(t->optimizer, loss);
}

/* More channels, taps and strides than fit one block, forwards and backwards. in[0] f32 [2, 3, 9,
 * 8]
 */
static gd_tensor *wide_convolution(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *x = gd_tanh(gd_nn_conv2d(t->module, "c1", in[0], 70, GD_SHAPE(1)));
    x = gd_tanh(gd_nn_conv2d(t->module, "c2", x, 40, GD_SHAPE(3), .stride = GD_SHAPE(2),
                             .padding = GD_SHAPE(1)));
    x = gd_nn_conv_transpose2d(t->module, "c3", x, 6, GD_SHAPE(3), .stride = GD_SHAPE(3));
    return gd_minimize(t->optimizer, gd_mean(gd_square(x), GD_ALL_AXES, false));
}

/* So many images that they lie side by side, in groups and with dilation; weights that are infinite
 * and a bias of -0 want the zeros around images multiplied. in[0] f32 [19, 8, 7, 6] */
static gd_tensor *many_images(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_context *gd = gd_tensor_context(in[0]);
    gd_tensor *x = in[0], *flat = gd_reshape(x, GD_SHAPE(-1));
    gd_tensor *w = gd_reshape(gd_slice(flat, 0, 0, 48 * 9, 1), GD_SHAPE(6, 8, 3, 3)),
              *back = gd_reshape(w, GD_SHAPE(8, 6, 3, 3)),
              *half = gd_reshape(gd_slice(flat, 0, 5, 5 + 24 * 6, 1), GD_SHAPE(6, 4, 3, 2)),
              *half_back = gd_reshape(half, GD_SHAPE(8, 3, 3, 2));
    gd_tensor *lines = gd_reshape(x, GD_SHAPE(19, 48, 7)), /* sums of more than a block */
        *deep = gd_reshape(gd_slice(flat, 0, 9, 9 + 4 * 48 * 6, 1), GD_SHAPE(4, 48, 6)),
              *deep_back = gd_reshape(deep, GD_SHAPE(48, 4, 6));
    gd_tensor *large = gd_full(gd, GD_SCALAR, INFINITY, GD_F32),
              *limit = gd_full(gd, GD_SCALAR, 0.9, GD_F32),
              *minus = gd_neg(gd_zeros(gd, GD_SHAPE(6), GD_F32));
    gd_tensor *results[] = {
        gd_relu(gd_conv2d(x, w, NULL, .padding = GD_SHAPE(1))),
        gd_conv2d(x, half, minus, .groups = 2, .dilation = GD_SHAPE(2), .padding = GD_SHAPE(2)),
        gd_conv2d(x, gd_where(gd_gt(w, limit), large, w), NULL, .padding = GD_SHAPE(1)),
        gd_conv_transpose2d(x, back, NULL, .padding = GD_SHAPE(1)),
        gd_conv_transpose2d(x, half_back, NULL, .groups = 2, .dilation = GD_SHAPE(2),
                            .padding = GD_SHAPE(2)),
        gd_conv_transpose2d(x, gd_where(gd_gt(back, limit), large, back), NULL,
                            .padding = GD_SHAPE(1)),
        gd_conv1d(lines, deep, NULL, .padding = GD_SHAPE(4)),
        gd_conv_transpose1d(lines, deep_back, NULL, .padding = GD_SHAPE(2)),
    };
    for (size_t i = 0; i < sizeof results / sizeof *results;
         i++) { /* which NaN comes out is not defined */
        gd_tensor *is_nan = gd_isnan(results[i]);
        gd_output(gd_cast(is_nan, GD_F32));
        gd_output(gd_where(is_nan, limit, results[i]));
    }
    return gd_sum(results[0], GD_ALL_AXES, false);
}

/* ---- a convolutional model with batch norm, not training. in[0] f32 [2, 3, 12, 12] ---- */

static gd_tensor *batch_norm(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_module_set_training(t->module, false);
    gd_tensor *x = gd_nn_conv2d(t->module, "c1", in[0], 8, GD_SHAPE(3), .padding = GD_SHAPE(1));
    x = gd_relu(gd_nn_batch_norm(t->module, "n1", x));
    x = gd_nn_conv2d(t->module, "c2", x, 8, GD_SHAPE(3), .stride = GD_SHAPE(2));
    x = gd_relu(gd_nn_group_norm(t->module, "n2", x, 2));
    return gd_softmax(gd_nn_linear(t->module, "fc", gd_global_avg_pool(x), 5), -1);
}

/* ---- moving, ordering, drawing. MANY ---- */

static gd_tensor *moving(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0], *y = in[1], *n = in[2], *index;
    gd_context *gd = gd_tensor_context(x);
    gd_tensor *t = gd_transpose(x, 0, 1), *parts[] = { t, gd_flip(t, GD_AXES(0)) };
    gd_output(gd_pad(t, GD_SHAPE(1, 2), GD_SHAPE(0, 1), -1.5));
    gd_output(gd_concat(2, parts, 1));
    gd_output(gd_gather(x, gd_unsqueeze(n, 1), 1));
    gd_output(gd_index_select(t, n, 0));
    gd_tensor *places = gd_broadcast_to(gd_unsqueeze(n, 1), gd_tensor_shape(x));
    gd_output(gd_scatter_add(gd_zeros(gd, GD_SHAPE(10, 40), GD_F32), places, x, 0));
    gd_output(gd_argsort(x, -1, true));
    gd_output(
        gd_sort(gd_where(gd_gt(x, gd_scalar(gd, 1, GD_F32)), gd_log(gd_neg(x)), x), 0, false));
    gd_output(gd_topk(x, -1, 3, true, &index));
    gd_output(index);
    gd_output(gd_searchsorted(gd_sort(y, -1, false), gd_cast(x, GD_F64), true));
    gd_output(gd_cumsum(x, 0));
    gd_output(gd_cumprod(gd_transpose(x, 0, 1), 0));
    gd_output(gd_cumsum(n, 0));
    return gd_one_hot(n, 10, GD_F32);
}

static gd_tensor *reductions_of_all_kinds(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0], *y = in[1], *n = in[2];
    gd_tensor *cube = gd_reshape(x, GD_SHAPE(4, 3, 20)), *hole = gd_log(x);
    gd_output(gd_max(hole, GD_AXES(1), false));
    gd_output(gd_min(cube, GD_AXES(0, 2), true));
    gd_output(gd_max(gd_transpose(cube, 0, 2), GD_AXES(0), false));
    gd_output(gd_prod(cube, GD_AXES(1), false));
    gd_output(gd_prod(y, GD_ALL_AXES, false));
    gd_output(gd_sum(n, GD_ALL_AXES, false));
    gd_output(gd_max(gd_gt(x, gd_scalar(gd_tensor_context(x), 0, GD_F32)), GD_AXES(0), false));
    gd_output(gd_argmax(hole, 1, true));
    gd_output(gd_argmin(cube, 1, false));
    gd_output(gd_softmax(cube, 1));
    gd_output(gd_log_softmax(gd_cast(x, GD_F64), 0));
    gd_output(gd_layer_norm(gd_cast(x, GD_F64), NULL, NULL));
    return gd_logsumexp(x, GD_AXES(-1), false);
}

static gd_tensor *drawing(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_context *gd = gd_tensor_context(in[0]);
    gd_output(gd_uniform(gd, GD_SHAPE(7, 3), -1, 2, GD_F32));
    gd_output(gd_normal(gd, GD_SHAPE(11), 1, 2, GD_F32));
    gd_output(gd_normal(gd, GD_SHAPE(5), 0, 1, GD_F64));
    gd_output(gd_dropout(gd_transpose(in[0], 0, 1), 0.3));
    gd_output(gd_permutation(gd, 9));
    gd_output(gd_categorical(in[0], 1));
    return gd_bernoulli(gd_sigmoid(in[0]));
}

static gd_tensor *trigonometric(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0], *small = gd_tanh(in[1]);
    gd_output(gd_sin(gd_mul_scalar(x, 1e6)));
    gd_output(gd_cos(in[1]));
    gd_output(gd_tan(x));
    gd_output(gd_asin(small));
    gd_output(gd_acos(gd_tanh(x)));
    gd_output(gd_atan(x));
    gd_output(gd_atan2(x, gd_flip(x, GD_AXES(0))));
    gd_output(gd_sinh(x));
    gd_output(gd_cosh(small));
    gd_output(gd_erf(x));
    gd_output(gd_lgamma(x));
    gd_output(gd_erfinv(small));
    gd_output(gd_exp2(x));
    gd_output(gd_log2(gd_abs(x)));
    gd_output(gd_log10(gd_abs(in[1])));
    gd_output(gd_fmod(x, gd_scalar(gd_tensor_context(x), 0.7, GD_F32)));
    return gd_cast(gd_mul_scalar(x, 200), GD_U8);
}

typedef struct example {
    const char *name;
    gd_function_body body;
    int inputs;
    gd_shape shape[MOST_INPUTS];
    gd_dtype dtype[MOST_INPUTS];
} example;

#define MANY                                              \
    3, { { 2, { 6, 40 } }, { 1, { 40 } }, { 1, { 6 } } }, \
    {                                                     \
        GD_F32, GD_F64, GD_I64                            \
    }
static const example examples[] = {
    { "infer", infer, 1, { { 2, { 50, 784 } } }, { GD_F32 } },
    { "train", train, 2, { { 2, { 50, 784 } }, { 1, { 50 } } }, { GD_F32, GD_I64 } },
    { "train_unfused", train, 2, { { 2, { 50, 784 } }, { 1, { 50 } } }, { GD_F32, GD_I64 } },
    { "functions_of_one", functions_of_one, MANY },
    { "mixed_types", mixed_types, MANY },
    { "reductions", reductions, MANY },
    { "row_groups", row_groups, MANY },
    { "products", products, MANY },
    { "deep_product",
      deep_product,
      2,
      { { 2, { 3, 700 } }, { 2, { 700, 21 } } },
      { GD_F32, GD_F32 } },
    { "convolutional",
      convolutional,
      2,
      { { 4, { 4, 3, 13, 12 } }, { 1, { 4 } } },
      { GD_F32, GD_I64 } },
    { "gpt_infer", gpt_infer, 1, { { 2, { 3, 70 } } }, { GD_I64 } },
    { "gpt_train", gpt_train, 2, { { 2, { 3, 70 } }, { 2, { 3, 70 } } }, { GD_I64, GD_I64 } },
    { "llama_train", llama_train, 2, { { 2, { 3, 20 } }, { 2, { 3, 20 } } }, { GD_I64, GD_I64 } },
    { "attentive",
      attentive,
      2,
      { { 3, { 2, 300, 8 } }, { 3, { 2, 150, 12 } } },
      { GD_F32, GD_F32 } },
    { "recurrent_train",
      recurrent_train,
      2,
      { { 2, { 5, 9 } }, { 1, { 5 } } },
      { GD_I64, GD_I64 } },
    { "wide_convolution", wide_convolution, 1, { { 4, { 2, 3, 9, 8 } } }, { GD_F32 } },
    { "many_images", many_images, 1, { { 4, { 19, 8, 7, 6 } } }, { GD_F32 } },
    { "batch_norm", batch_norm, 1, { { 4, { 2, 3, 12, 12 } } }, { GD_F32 } },
    { "moving", moving, MANY },
    { "reductions_of_all_kinds", reductions_of_all_kinds, MANY },
    { "drawing", drawing, MANY },
    { "trigonometric", trigonometric, MANY },
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

/* ---- running them here, and writing them ---- */

static char folder[256];

static FILE *create(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    return file;
}

static void append(FILE *file, const gd_tensor *t)
{
    size_t bytes = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    char *data = malloc(bytes + 1);
    assert_non_null(data);
    assert_int_equal(gd_tensor_read(t, data, bytes), GD_OK);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    free(data);
}

static size_t bytes_of(const gd_tensor *t)
{
    return (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
}

/* Part of main.c: read the inputs, call CALLS times, write the results. */
static void write_caller(FILE *out, const char *name, gd_tensor *const *in, int inputs,
                         gd_function *f)
{
    fprintf(out, "    {\n");
    for (int i = 0; i < inputs; i++)
        fprintf(out,
                "        static double in%d[%zu];\n        if (fread(in%d, 1, %zu, in) != %zu) "
                "return 1;\n",
                i, bytes_of(in[i]) / 8 + 1, i, bytes_of(in[i]), bytes_of(in[i]));
    int results = 0;
    for (gd_tensor *r; (r = gd_function_result(f, results)) != NULL; results++)
        fprintf(out, "        static double r%d[%zu];\n", results, bytes_of(r) / 8 + 1);
    fprintf(out, "        for (int call = 0; call < %d; call++) {\n            if (%s(", CALLS,
            name);
    for (int i = 0; i < inputs; i++)
        fprintf(out, "%s(const void *)in%d", i ? ", " : "", i);
    for (int r = 0; r < results; r++)
        fprintf(out, ", (void *)r%d", r);
    fprintf(out, ")) return 1;\n");
    for (int r = 0; r < results; r++)
        fprintf(out, "            fwrite(r%d, 1, %zu, out);\n", r,
                bytes_of(gd_function_result(f, r)));
    fprintf(out, "        }\n    }\n");
}

static long want_end[EXAMPLES]; /* where the results of each end in want.bin */

static void write_example(gd_context *gd, const example *e, FILE *in_file, FILE *want, FILE *caller,
                          FILE *prototypes)
{
    trainee t = { gd_module_create(gd, .seed = 1), NULL };
    t.optimizer = gd_adamw(t.module, .lr = 0.01);
    gd_tensor *in[MOST_INPUTS];
    for (int i = 0; i < e->inputs; i++) {
        in[i] = e->dtype[i] == GD_I64 ? gd_cast(gd_uniform(gd, e->shape[i], 0, 10, GD_F32), GD_I64)
                                      : gd_normal(gd, e->shape[i], 0, 1, e->dtype[i]);
        append(in_file, in[i]);
    }
    /* The plan is made, and parameters are, by a call on a copy; what is written is the state
     * before the calls that are compared. */
    gd_function *f = gd_compile(gd, e->body, &t, .detached = true,
                                .passes = strcmp(e->name, "train_unfused") == 0 ? "-fuse" : "");
    if (!gd_call(f, e->inputs, in))
        fail_msg("%s: %s", e->name, gd_error_message());
    if (e->body == train) { /* its C text is that of the ops of such a kernel */
        char text[1 << 14];
        assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
        assert_non_null(strstr(text, "multi_tensor       "));
    }
    char name[64];
    snprintf(name, sizeof name, "%s.c", e->name);
    FILE *file = create(name);
    if (gd_export_c(f, e->name, file) != GD_OK)
        fail_msg("%s: %s", e->name, gd_error_message());
    fclose(file);
    fprintf(prototypes, "int %s();\n", e->name);
    write_caller(caller, e->name, in, e->inputs, f);
    for (int call = 0; call < CALLS; call++) {
        assert_non_null(gd_call(f, e->inputs, in));
        for (int r = 0; gd_function_result(f, r); r++)
            append(want, gd_function_result(f, r));
    }
    want_end[e - examples] = ftell(want);
}

/* ---- compiling and running what was written ---- */

static char *contents(const char *name, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t capacity = 16 << 20;
    char *data = malloc(capacity);
    assert_non_null(data);
    *size = fread(data, 1, capacity, file);
    fclose(file);
    return data;
}

static bool shell(const char *format, ...)
{
    char command[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    return system(command) == 0;
}

static void check_with(const char *compiler)
{
    char all[1024] = "";
    for (int i = 0; i < EXAMPLES; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), " %s.c", examples[i].name);
    if (!shell("cd '%s' && %s -std=c99 -Wall -Wextra -pedantic -Wconversion -Wshadow -Werror -O1 "
               "-c%s",
               folder, compiler, all))
        fail_msg("%s does not compile what was written without a warning", compiler);
    assert_true(shell("cd '%s' && %s -std=c99 -w -c main.c && %s *.o -o run -lm && ./run", folder,
                      compiler, compiler));
    size_t want_size, size;
    char *want = contents("want.bin", &want_size), *got = contents("out.bin", &size);
    assert_int_equal(size, want_size);
    for (size_t i = 0; i < size; i++) {
        int of = 0;
        while ((size_t)want_end[of] <= i)
            of++;
        if (got[i] != want[i])
            fail_msg("%s, %s: byte %zu of the results differs", compiler, examples[of].name,
                     i - (of ? (size_t)want_end[of - 1] : 0));
    }
    free(want);
    free(got);
}

static void exported_plans_give_the_same_bits(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    setenv("GRADUS_ISA", "baseline", 1);
    gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 11);
    unsetenv("GRADUS_ISA");
    assert_non_null(gd);
    FILE *in = create("in.bin"), *want = create("want.bin"), *caller = create("caller.txt"),
         *prototypes = create("prototypes.txt");
    for (int i = 0; i < EXAMPLES; i++)
        write_example(gd, &examples[i], in, want, caller, prototypes);
    fclose(in);
    fclose(want);
    fprintf(caller, "    return fclose(out);\n}\n");
    fclose(caller);
    fclose(prototypes);
    FILE *head = create("head.txt");
    fprintf(head, "#include <stdio.h>\n");
    fclose(head);
    FILE *begin = create("begin.txt");
    fprintf(begin, "int main(void)\n{\n    FILE *in = fopen(\"in.bin\", \"rb\"), *out = "
                   "fopen(\"out.bin\", \"wb\");\n");
    fclose(begin);
    assert_true(
        shell("cd '%s' && cat head.txt prototypes.txt begin.txt caller.txt > main.c", folder));
    gd_close(gd);
    int compilers = 0;
    static const char *const names[] = { "gcc", "clang", "cc" };
    /* The stage release compiles what is written with two; elsewhere one will do. */
    const int most = test_is_slow() || TEST_UNDER_MEMORY_CHECKS ? 1 : 2;
    for (int i = 0; i < 3 && (i < most || compilers == 0); i++)
        if (shell("command -v %s >/dev/null", names[i])) {
            compilers++;
            check_with(names[i]);
        }
    if (compilers == 0)
        skip();
}

static gd_tensor *refused(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_cast(gd_neg(gd_cast(in[0], GD_F16)), GD_F32);
}

static void what_cannot_be_written_is_said(void **state)
{
    (void)state;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_function *f = gd_compile(gd, refused, NULL);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32);
    assert_int_equal(gd_export_c(f, "f", stderr), GD_ERR_STATE);
    gd_error_clear();
    assert_non_null(gd_call(f, 1, &x));
    assert_int_equal(gd_export_c(f, "f", stderr), GD_ERR_UNSUPPORTED);
    assert_non_null(strstr(gd_error_message(), "there is no C type for f16"));
    gd_error_clear();
    static const char *const names[] = { "no name", "1st", "", "int", "while", "main", "memory" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(gd_export_c(f, names[i], stderr), GD_ERR_INVALID);
        gd_error_clear();
    }
    assert_int_equal(gd_export_c(NULL, "f", stderr), GD_ERR_INVALID);
    gd_error_clear();
    gd_close(gd);
}

/* ---- a path instead of a file ---- */

static gd_tensor *doubled(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_add(in[0], in[0]);
}

/* The text of a file, to be freed. */
static char *text_of(FILE *file)
{
    assert_non_null(file);
    rewind(file);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

/* The same text; and what fails leaves an old file alone. */
static void a_path_will_do(void **state)
{
    (void)state;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_function *f = gd_compile(gd, doubled, NULL), *never = gd_compile(gd, doubled, NULL);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32);
    assert_non_null(gd_call(f, 1, &x));
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(gd_export_c(f, "twice", file), GD_OK);
    char *expected = text_of(file);
    static const char path[] = "test_export_path.c";
    assert_int_equal(gd_export_c_path(f, "twice", path), GD_OK);
    assert_int_equal(gd_export_c_path(never, "twice", path), GD_ERR_STATE);
    assert_non_null(strstr(gd_error_message(), "gd_export_c_path: the function has not been"));
    gd_error_clear();
    char *written = text_of(fopen(path, "r"));
    assert_string_equal(written, expected);
    unlink(path);
    assert_int_equal(gd_export_c_path(f, "twice", "no/such/folder/x.c"), GD_ERR_IO);
    gd_error_clear();
    assert_int_equal(gd_export_c_path(f, "twice", NULL), GD_ERR_INVALID);
    gd_error_clear();
    free(expected);
    free(written);
    gd_close(gd);
}

/* ---- names ---- */

/* Those of C, of the file's own functions, of each other but for what C does not allow. */
static const char *const hard_names[] = { "int",      "memory",       "op_add_f32", "matmul_f32",
                                          "a.b",      "a_b",          "a.b_1",      "0",
                                          "\xc3\xbc", "random_state", "result0",    "state.0" };
enum { HARD_NAMES = sizeof hard_names / sizeof *hard_names };

static gd_tensor *names_clash(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *x = gd_dropout(in[0], 0.5);
    for (int i = 0; i < HARD_NAMES; i++) {
        gd_tensor *w = gd_parameter(t->module, hard_names[i], GD_SHAPE(4), .init = GD_INIT_NORMAL);
        x = gd_matmul(x, gd_mul(w, gd_eye(gd_tensor_context(x), 4, GD_F32)));
    }
    return gd_minimize(t->optimizer, gd_mean(x, GD_ALL_AXES, false));
}

/* Whatever parameters are called, and for two models of the same names in one program. */
static void names_do_not_clash(void **state)
{
    (void)state;
    if (!shell("command -v cc >/dev/null"))
        skip();
    gd_context *gd = gd_open(test_device(), .threads = 1);
    trainee t = { gd_module_create(gd, .seed = 1), NULL };
    t.optimizer = gd_adamw(t.module, .lr = 0.01);
    gd_function *f = gd_compile(gd, names_clash, &t, .detached = true);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2, 4), GD_F32);
    if (gd_function_prepare(f, 1, &x) != GD_OK)
        fail_msg("%s", gd_error_message());
    static const char *const names[] = { "first", "op_add" };
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "names%d.c", i);
        FILE *file = create(path);
        assert_int_equal(gd_export_c(f, names[i], file), GD_OK);
        fclose(file);
    }
    gd_close(gd);
    FILE *file = create("names.c");
    fprintf(file, "int first(const float *, float *);\nint op_add(const float *, float *);\n"
                  "extern float first_int[], op_add_int[];\nint main(void)\n{\n"
                  "    float x[8] = { 1, 2 }, a, b, was = first_int[1];\n"
                  "    int failed = first(x, &a) | op_add(x, &b);\n"
                  "    return failed || a != b || first_int[1] == was ||\n"
                  "           first_int[1] != op_add_int[1];\n}\n");
    fclose(file);
    assert_true(shell("cd '%s' && cc -std=c99 -Wall -Wextra -pedantic -Wconversion -Wshadow "
                      "-Werror -o names names.c names0.c names1.c -lm && ./names",
                      folder));
}

/* Every op has a row in export_steps.c, is a view, or is elementwise. */
static void every_op_can_be_written(void **state)
{
    (void)state;
    for (int id = 0; id < GD_OP_COUNT; id++)
        if (!gd_export_has_writer((gd_op_id)id) && id != GD_OP_checkpoint &&
            id != GD_OP_call &&    /* those are never in a plan */
            id != GD_OP_adam_bf16) /* C has no bf16 */
            fail_msg("%s", gd_op_row((gd_op_id)id)->name);
}

/* Out of memory is an error, and leaves nothing behind. */
static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    trainee t = { gd_module_create(gd, .seed = 1), NULL };
    gd_function *f = gd_compile(gd, infer, &t, .detached = true);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2, 5), GD_F32);
    assert_non_null(gd_call(f, 1, &x));
    FILE *file = create("unused.c");
    bool done = false;
    for (int64_t n = 0; !done; n += TEST_UNDER_TSAN || TEST_UNDER_MEMORY_CHECKS ? 3 : 1) {
        gd_fail_allocations_after(n);
        gd_status status = gd_export_c(f, "f", file);
        done = gd_fail_allocations_after(-1) <= n;
        assert_true(status == (done ? GD_OK : GD_ERR_MEMORY));
        gd_error_clear();
    }
    fclose(file);
    gd_close(gd);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/test_export_XXXXXX", GD_BINARY_DIR);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return shell("rm -r '%s'", folder) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exported_plans_give_the_same_bits),
        cmocka_unit_test(what_cannot_be_written_is_said),
        cmocka_unit_test(a_path_will_do),
        cmocka_unit_test(names_do_not_clash),
        cmocka_unit_test(every_op_can_be_written),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
