/* tests/test_error_names.c: the sentence of an error begins with the name of the function that was
 * called, also where that function is made of others. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "support/context.h"

/* Where a device tells late what only values show, the sentence has the name of the op. */
static void expect_name(gd_context *gd, const char *name)
{
    char begin[64];
    if (gd_error_code() == GD_OK && gd_synchronize(gd) != GD_OK) {
        gd_error_clear();
        return;
    }
    snprintf(begin, sizeof begin, "%s: ", name);
    if (strncmp(gd_error_message(), begin, strlen(begin)) != 0)
        fail_msg("an error of %s says \"%s\"", name, gd_error_message());
    gd_error_clear();
}

/* `call`, with a wrong argument, fails with a sentence of gd_<name>. */
#define EXPECT(name, call)                    \
    do {                                      \
        (void)(call);                         \
        expect_name(o->context, "gd_" #name); \
    } while (0)

typedef struct operands {
    gd_context *context, *other;
    gd_tensor *x;      /* f32 [2, 3] */
    gd_tensor *far;    /* f32 [2, 3] of another context */
    gd_tensor *narrow; /* f32 [2, 4]: broadcasts with none of them */
    gd_tensor *vector; /* f32 [3] */
    gd_tensor *whole;  /* i64 [2, 3], zeros */
    gd_tensor *beyond; /* i64 [1], 9 */
    gd_tensor *number; /* f32 [] */
    gd_tensor *mask;   /* bool [5] */
} operands;

static const gd_axes wrong = { .count = 1, .axis = { 5 } };
static const gd_shape huge = { .rank = 3, .dim = { 1 << 30, 1 << 30, 1 << 30 } };
static const gd_shape negative = { .rank = 1, .dim = { -1 } };

static void creation(const operands *o)
{
    gd_context *c = o->context;
    EXPECT(zeros, gd_zeros(c, negative, GD_F32));
    EXPECT(ones, gd_ones(c, huge, GD_F32));
    EXPECT(full, gd_full(c, negative, 1, GD_F32));
    EXPECT(scalar, gd_scalar(c, 0.5, GD_I32));
    EXPECT(state, gd_state(c, negative, 0, GD_F32));
    EXPECT(arange, gd_arange(c, 0, 1, 0, GD_F32));
    EXPECT(linspace, gd_linspace(c, 0, 1, 3, GD_I32));
    EXPECT(eye, gd_eye(c, 3, GD_DTYPE_COUNT));
    EXPECT(uniform, gd_uniform(c, negative, 0, 1, GD_F32));
    EXPECT(normal, gd_normal(c, negative, 0, 1, GD_F32));
    EXPECT(truncated_normal, gd_truncated_normal(c, negative, 0, 1, -1, 1, GD_F32));
    EXPECT(permutation, gd_permutation(c, -1));
    EXPECT(from_host, gd_from_host(c, negative, GD_F32, o));
    EXPECT(sinusoidal_positions, gd_sinusoidal_positions(c, 0, (int64_t)1 << 45, 64, GD_F32));
}

static void arithmetic(const operands *o)
{
    gd_tensor *x = o->x, *narrow = o->narrow;
    gd_tensor *row = gd_broadcast_to(o->number, GD_SHAPE(1, (int64_t)1 << 40));
    gd_tensor *column = gd_broadcast_to(o->number, GD_SHAPE((int64_t)1 << 40, 1));
    EXPECT(add, gd_add(row, column)); /* too large */
    EXPECT(eq, gd_eq(row, column));
    EXPECT(add, gd_add(x, narrow));
    EXPECT(div, gd_div(x, o->far));
    EXPECT(pow, gd_pow(x, narrow));
    EXPECT(logaddexp, gd_logaddexp(x, narrow));
    EXPECT(hypot, gd_hypot(x, narrow));
    EXPECT(clamp, gd_clamp(x, narrow, x));
    EXPECT(prelu, gd_prelu(x, narrow));
    EXPECT(clip, gd_clip(x, NAN, 1));
    EXPECT(add_scalar, gd_add_scalar(gd_cast(x, GD_U8), 256));
    EXPECT(add_, gd_add_(gd_contiguous(x), narrow));
    EXPECT(sqrt_, gd_sqrt_(gd_cast(x, GD_I32)));
    EXPECT(mul_scalar_, gd_mul_scalar_(gd_cast(x, GD_I32), 0.5));
    EXPECT(masked_fill, gd_masked_fill(x, o->mask, 1));
    EXPECT(masked_fill_, gd_masked_fill_(x, o->mask, 1));
    EXPECT(bitwise_not, gd_bitwise_not(x));
    EXPECT(bitwise_and, gd_bitwise_and(x, x));
    EXPECT(left_shift, gd_left_shift(o->whole, gd_zeros(o->context, GD_SHAPE(4), GD_I64)));
    EXPECT(right_shift, gd_right_shift(o->whole, x));
    EXPECT(where, gd_where(o->mask, x, x));
    EXPECT(glu, gd_glu(x, 1));
    EXPECT(softmax, gd_softmax(x, 5));
    EXPECT(log_softmax, gd_log_softmax(x, 5));
    EXPECT(dropout, gd_dropout(x, 2));
    EXPECT(categorical, gd_categorical(x, 5));
    EXPECT(cast, gd_cast(x, GD_DTYPE_COUNT));
    EXPECT(assign, gd_assign(gd_zeros(o->context, GD_SHAPE(2, 3), GD_F32), narrow));
}

static void arrangement(const operands *o)
{
    gd_tensor *x = o->x, *pieces[2];
    EXPECT(reshape, gd_reshape(x, GD_SHAPE(5)));
    EXPECT(squeeze, gd_squeeze(x, 0));
    EXPECT(unsqueeze, gd_unsqueeze(x, 9));
    EXPECT(select, gd_select(x, 0, 9));
    EXPECT(broadcast_to, gd_broadcast_to(x, GD_SHAPE(7)));
    EXPECT(pad, gd_pad(x, GD_SHAPE(1), GD_SHAPE(1), 0));
    EXPECT(concat, gd_concat(2, (gd_tensor *[]){ x, o->narrow }, 0));
    EXPECT(stack, gd_stack(2, (gd_tensor *[]){ x, o->narrow }, 0));
    EXPECT(stack, gd_stack(2, (gd_tensor *[]){ x, x }, 9));
    EXPECT(split, gd_split(x, 0, 1, (int64_t[]){ 9 }, pieces));
    EXPECT(chunk, gd_chunk(x, 9, 2, pieces));
    EXPECT(tile, gd_tile(x, GD_SHAPE((int64_t)1 << 46)));
    EXPECT(repeat, gd_repeat(x, 0, (int64_t)1 << 46));
    EXPECT(roll, gd_roll(x, 5, 1));
    EXPECT(tril, gd_tril(o->vector, 0));
    EXPECT(triu, gd_triu(o->vector, 0));
    EXPECT(diagonal, gd_diagonal(x, 1, 1, 0));
    EXPECT(diag, gd_diag(o->number, 0));
    EXPECT(diag, gd_diag(o->vector, INT64_MAX));
    EXPECT(diag_embed, gd_diag_embed(x, INT64_MAX));
    EXPECT(meshgrid, gd_meshgrid(1, (gd_tensor *[]){ x }, pieces));
    EXPECT(pad_reflect, gd_pad_reflect(x, GD_SHAPE(-1, 0), GD_SHAPE(0, 0)));
    EXPECT(pad_replicate, gd_pad_replicate(x, GD_SHAPE(1), GD_SHAPE(1)));
}

static void reductions(const operands *o)
{
    gd_tensor *x = o->x, *empty = gd_zeros(o->context, GD_SHAPE(0), GD_F32);
    EXPECT(sum, gd_sum(x, wrong, false));
    EXPECT(prod, gd_prod(x, wrong, false));
    EXPECT(mean, gd_mean(x, wrong, false));
    EXPECT(max, gd_max(x, wrong, false));
    EXPECT(min, gd_min(empty, GD_ALL_AXES, false));
    EXPECT(var, gd_var(x, wrong, 1, false));
    EXPECT(std, gd_std(x, wrong, 1, false));
    EXPECT(logsumexp, gd_logsumexp(x, wrong, false));
    EXPECT(logsumexp, gd_logsumexp(empty, GD_ALL_AXES, false));
    EXPECT(norm, gd_norm(x, wrong, INFINITY, false));
    EXPECT(norm, gd_norm(x, wrong, 2, false));
    EXPECT(all, gd_all(x, wrong, false));
    EXPECT(any, gd_any(x, wrong, false));
    EXPECT(argmax, gd_argmax(x, 5, false));
    EXPECT(argmin, gd_argmin(empty, 0, false));
    EXPECT(cumsum, gd_cumsum(x, 5));
    EXPECT(cumprod, gd_cumprod(x, 5));
}

static void products(const operands *o)
{
    gd_tensor *x = o->x;
    EXPECT(matmul, gd_matmul(x, x));
    EXPECT(linear, gd_linear(x, x, NULL));
    EXPECT(linear, gd_linear(x, gd_transpose(x, 0, 1), o->vector));
    EXPECT(quantized_linear, gd_quantized_linear(x, x, x));
    EXPECT(dequantize, gd_dequantize(x, x));
    EXPECT(quantize, gd_quantize(x, true, &(gd_tensor *){ NULL }));
    EXPECT(outer, gd_outer(x, x));
    EXPECT(dot, gd_dot(o->vector, gd_zeros(o->context, GD_SHAPE(4), GD_F32)));
    EXPECT(einsum, gd_einsum("ij->k", 1, &x));
    EXPECT(einsum, gd_einsum("ij,ij->", 2, (gd_tensor *[]){ x, o->far }));
}

static void indexing(const operands *o)
{
    gd_tensor *x = o->x, *beyond = o->beyond, *one = gd_ones(o->context, GD_SHAPE(1, 3), GD_F32);
    EXPECT(gather, gd_gather(x, x, 0));
    EXPECT(gather, gd_gather(o->vector, beyond, 0));
    EXPECT(scatter, gd_scatter(x, o->whole, o->narrow, 0));
    EXPECT(scatter_add,
           gd_scatter_add(o->vector, beyond, gd_zeros(o->context, GD_SHAPE(1), GD_F32), 0));
    EXPECT(take, gd_take(x, beyond, 0));
    EXPECT(index_select, gd_index_select(x, beyond, 0));
    EXPECT(embedding, gd_embedding(beyond, x));
    EXPECT(index_add, gd_index_add(x, beyond, one, 0));
    EXPECT(one_hot, gd_one_hot(o->whole, 3, GD_DTYPE_COUNT));
    EXPECT(index, gd_index(x, 1, &beyond));
    EXPECT(index_put, gd_index_put(x, 1, &beyond, o->number, false));
    EXPECT(index_put, gd_index_put(x, 0, &beyond, o->narrow, false));
    EXPECT(masked_select, gd_masked_select(x, o->mask));
    EXPECT(sort, gd_sort(x, 5, false));
    EXPECT(argsort, gd_argsort(x, 5, false));
    EXPECT(topk, gd_topk(x, 0, 9, true, NULL));
    EXPECT(searchsorted, gd_searchsorted(x, x, false));
}

static void losses(const operands *o)
{
    gd_tensor *x = o->x, *narrow = o->narrow, *far = o->far;
    EXPECT(mse, gd_mse(x, narrow));
    EXPECT(mse, gd_mse(x, far));
    EXPECT(mae, gd_mae(x, far));
    EXPECT(huber, gd_huber(x, far));
    EXPECT(smooth_l1, gd_smooth_l1(x, far));
    EXPECT(bce, gd_bce(x, x, .weight = narrow));
    EXPECT(bce_with_logits, gd_bce_with_logits(x, x, .positive_weight = narrow));
    EXPECT(focal, gd_focal(x, far));
    EXPECT(hinge, gd_hinge(x, far));
    EXPECT(hinge_embedding, gd_hinge_embedding(x, far));
    EXPECT(kl_div, gd_kl_div(x, far));
    EXPECT(cosine_similarity, gd_cosine_similarity(x, x, 5));
    EXPECT(cosine_embedding, gd_cosine_embedding(x, far, gd_sum(x, GD_AXES(1), false)));
    EXPECT(triplet_margin, gd_triplet_margin(x, x, far));
    gd_tensor *labels = gd_full(o->context, GD_SHAPE(2), 7, GD_I64);
    EXPECT(cross_entropy, gd_cross_entropy(x, labels));
    EXPECT(cross_entropy, gd_cross_entropy(x, x, .weight = narrow));
    EXPECT(nll, gd_nll(x, labels));
    EXPECT(accuracy, gd_accuracy(x, gd_zeros(o->context, GD_SHAPE(3), GD_I64)));
    EXPECT(mse, gd_mse(x, x, .reduction = (gd_reduction)9));
}

static void layers(const operands *o)
{
    gd_tensor *x = o->x, *narrow = o->narrow;
    EXPECT(layer_norm, gd_layer_norm(x, NULL, NULL, .axes = 5));
    EXPECT(layer_norm, gd_layer_norm(x, gd_ones(o->other, GD_SHAPE(3), GD_F32), NULL));
    EXPECT(rms_norm, gd_rms_norm(x, NULL, .axes = 5));
    EXPECT(group_norm, gd_group_norm(x, NULL, NULL, 2));
    EXPECT(instance_norm, gd_instance_norm(x, NULL, NULL, .epsilon = -1));
    EXPECT(batch_norm, gd_batch_norm(x, narrow, NULL, NULL, NULL, .training = true));
    EXPECT(batch_norm, gd_batch_norm(x, gd_ones(o->other, GD_SHAPE(3), GD_F32), NULL, NULL, NULL,
                                     .training = true));
    EXPECT(attention, gd_attention(x, narrow, x));
    EXPECT(recurrent, gd_recurrent(x, x, o->vector, GD_CELL_RNN));
    EXPECT(rope, gd_rope(x));
}

static void windows(const operands *o)
{
    gd_tensor *x = o->x, *image = gd_ones(o->context, GD_SHAPE(1, 1, 4, 4), GD_F32);
    gd_tensor *far = gd_ones(o->other, GD_SHAPE(1, 1, 2, 2), GD_F32);
    EXPECT(conv2d, gd_conv2d(image, x, NULL));
    EXPECT(conv2d, gd_conv2d(image, far, NULL));
    EXPECT(conv1d, gd_conv1d(x, x, NULL));
    EXPECT(conv_transpose2d, gd_conv_transpose2d(image, x, NULL));
    EXPECT(conv_transpose2d, gd_conv_transpose2d(image, far, NULL));
    EXPECT(max_pool2d, gd_max_pool2d(image, GD_SHAPE(9)));
    EXPECT(avg_pool3d, gd_avg_pool3d(image, GD_SHAPE(2)));
    EXPECT(avg_pool2d, gd_avg_pool2d(image, GD_SHAPE(2), .dilation = GD_SHAPE(2)));
    EXPECT(adaptive_max_pool, gd_adaptive_max_pool(image, GD_SHAPE(2)));
    EXPECT(adaptive_avg_pool, gd_adaptive_avg_pool(image, GD_SHAPE(0, 1)));
    EXPECT(global_avg_pool, gd_global_avg_pool(x));
    EXPECT(global_max_pool, gd_global_max_pool(x));
}

static void every_function_names_itself(void **state)
{
    gd_context *c = *state;
    operands o = { .context = c, .other = gd_open(test_device()) };
    o.x = gd_ones(c, GD_SHAPE(2, 3), GD_F32);
    o.far = gd_ones(o.other, GD_SHAPE(2, 3), GD_F32);
    o.narrow = gd_ones(c, GD_SHAPE(2, 4), GD_F32);
    o.vector = gd_ones(c, GD_SHAPE(3), GD_F32);
    o.whole = gd_zeros(c, GD_SHAPE(2, 3), GD_I64);
    o.beyond = gd_full(c, GD_SHAPE(1), 9, GD_I64);
    o.number = gd_scalar(c, 1, GD_F32);
    o.mask = gd_ones(c, GD_SHAPE(5), GD_BOOL);
    creation(&o);
    arithmetic(&o);
    arrangement(&o);
    reductions(&o);
    products(&o);
    indexing(&o);
    losses(&o);
    layers(&o);
    windows(&o);
    gd_close(o.other);
}

/* Options keep their own names. */
static void options_are_named_as_they_are_given(void **state)
{
    gd_context *c = *state;
    gd_module *m = gd_module_create(c);
    assert_null(gd_adadelta(m, .rho = 2));
    expect_error(GD_ERR_INVALID, "gd_adadelta: rho is 2");
    assert_null(gd_adagrad(m, .lr_decay = -1));
    expect_error(GD_ERR_INVALID, "gd_adagrad: lr_decay is -1");
    assert_null(gd_nadam(m, .momentum_decay = -1));
    expect_error(GD_ERR_INVALID, "gd_nadam: momentum_decay is -1");
    assert_null(gd_rmsprop(m, .alpha = 2));
    expect_error(GD_ERR_INVALID, "gd_rmsprop: alpha is 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(every_function_names_itself),
        context_test(options_are_named_as_they_are_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
