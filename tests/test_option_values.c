/* tests/test_option_values.c: what is said in options is what happens, 0 too, where versions before
 * took 0 for "not given"; NULL means the defaults; a struct that nobody has filled is refused by
 * every function that takes one. How options of other versions are read is in test_options.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <gradus/gradus.h>

#include "support/context.h"

static gd_tensor *vector(gd_context *gd, int64_t count, const float *values)
{
    return gd_from_host(gd, GD_SHAPE(count), GD_F32, values);
}

#define VECTOR(...)                                                         \
    vector(gd, (int64_t)(sizeof((float[]){ __VA_ARGS__ }) / sizeof(float)), \
           (float[]){ __VA_ARGS__ })

static void assert_values(const gd_tensor *t, int count, const float *expected)
{
    float values[16];
    assert_true(count <= 16);
    assert_int_equal(gd_tensor_read(t, values, (size_t)count * sizeof *values), GD_OK);
    for (int i = 0; i < count; i++)
        assert_true(values[i] == expected[i]);
}

/* ---- losses ---- */

static void losses(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = VECTOR(0.5f, -2), *one = VECTOR(1, 1);
    assert_true(gd_item(gd_hinge(x, one, .reduction = GD_REDUCE_SUM)) == 3.5);
    assert_true(gd_item(gd_hinge(x, one, .margin = 0, .reduction = GD_REDUCE_SUM)) == 2.0);
    gd_tensor *minus = gd_neg(one);
    assert_true(gd_item(gd_hinge_embedding(gd_abs(x), minus, .margin = 0)) == 0.0);
    assert_true(gd_item(gd_triplet_margin(x, x, x)) == 1.0);
    assert_true(gd_item(gd_triplet_margin(x, x, x, .margin = 0)) == 0.0);
    assert_null(gd_triplet_margin(x, x, x, .p = 0));
    expect_error(GD_ERR_INVALID, "p is 0");
    assert_null(gd_huber(x, one, .delta = 0));
    expect_error(GD_ERR_INVALID, "delta is 0");
    /* without focus and balance it is the plain loss; alpha 0 leaves out positives */
    assert_same_bits(gd_focal(x, one, .alpha = NAN, .gamma = 0), gd_bce_with_logits(x, one));
    assert_true(gd_item(gd_focal(x, one, .alpha = 0)) == 0.0);
    assert_true(gd_item(gd_focal(x, one)) > 0.0);
    assert_null(gd_focal(x, one, .alpha = -1));
    expect_error(GD_ERR_INVALID, "alpha is -1");
    assert_same_bits(gd_mse_with(x, one, NULL), gd_mse(x, one));
}

/* Every index can be ignored, 0 and -1 as well, and none by default. */
static void ignored_indices(void **state)
{
    gd_context *gd = *state;
    gd_tensor *logits = gd_zeros(gd, GD_SHAPE(3, 4), GD_F32);
    const int64_t classes[3] = { 0, 1, 0 }, marked[3] = { -1, 1, -1 };
    gd_tensor *t = gd_from_host(gd, GD_SHAPE(3), GD_I64, classes);
    gd_tensor *m = gd_from_host(gd, GD_SHAPE(3), GD_I64, marked);
    const float log4 = (float)gd_item(gd_cross_entropy(logits, t));
    assert_values(gd_cross_entropy(logits, t, .ignore_index = 0, .reduction = GD_REDUCE_NONE), 3,
                  (float[]){ 0, log4, 0 });
    assert_values(gd_cross_entropy(logits, m, .ignore_index = -1, .reduction = GD_REDUCE_NONE), 3,
                  (float[]){ 0, log4, 0 });
    assert_values(gd_cross_entropy(logits, t, .reduction = GD_REDUCE_NONE), 3,
                  (float[]){ log4, log4, log4 });
    assert_values(
        gd_nll(gd_log_softmax(logits, 1), t, .ignore_index = 0, .reduction = GD_REDUCE_NONE), 3,
        (float[]){ 0, log4, 0 });
}

/* ---- normalisation, attention, positions ---- */

static void norms(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_reshape(VECTOR(1, 3), GD_SHAPE(1, 2));
    assert_values(gd_layer_norm(x, NULL, NULL, .epsilon = 0), 2, (float[]){ -1, 1 });
    gd_tensor *by_default = gd_layer_norm_with(x, NULL, NULL, NULL);
    assert_same_bits(by_default, gd_layer_norm(x, NULL, NULL, .axes = 1, .epsilon = 1e-5));
    assert_true(gd_item(gd_max(by_default, GD_ALL_AXES, false)) < 1.0);
    assert_null(gd_layer_norm(x, NULL, NULL, .axes = 0));
    expect_error(GD_ERR_SHAPE, "0 axes");
    assert_values(gd_rms_norm(gd_reshape(VECTOR(3, 3), GD_SHAPE(1, 2)), NULL, .epsilon = 0), 2,
                  (float[]){ 1, 1 });
    assert_null(gd_group_norm(x, NULL, NULL, 0));
    expect_error(GD_ERR_SHAPE, "0 groups");
    gd_tensor *batch = gd_reshape(VECTOR(1, 3), GD_SHAPE(2, 1));
    gd_tensor *mean = gd_state(gd, GD_SHAPE(1), 7, GD_F32);
    gd_tensor *variance = gd_state(gd, GD_SHAPE(1), 5, GD_F32);
    assert_values(gd_batch_norm(batch, NULL, NULL, mean, variance, .training = true, .momentum = 0,
                                .epsilon = 0),
                  2, (float[]){ -1, 1 });
    assert_true(gd_item(mean) == 7.0 && gd_item(variance) == 5.0);
    gd_release(mean);
    gd_release(variance);
}

static void attention_and_positions(void **state)
{
    gd_context *gd = *state;
    gd_tensor *q = gd_reshape(VECTOR(5, 1, -3, 2), GD_SHAPE(1, 1, 2, 2));
    gd_tensor *v = gd_reshape(VECTOR(1, 2, 3, 6), GD_SHAPE(1, 1, 2, 2));
    assert_values(gd_attention(q, q, v, .scale = 0), 4, (float[]){ 2, 4, 2, 4 });
    assert_values(gd_attention(q, q, v, .scale = 0, .causal = true), 4, (float[]){ 1, 2, 2, 4 });
    assert_same_bits(gd_attention_with(q, q, v, NULL), gd_attention(q, q, v, .scale = sqrt(0.5)));
    assert_null(gd_rope(q, .rotary_base = 0));
    expect_error(GD_ERR_INVALID, "rotary_base 0");
    assert_same_bits(gd_rope_with(q, NULL), gd_rope(q, .rotary_base = 10000));
}

/* ---- convolution and pooling ---- */

static void convolutions(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(1, 1, 4, 4), GD_F32);
    gd_tensor *w = gd_ones(gd, GD_SHAPE(1, 1, 2, 2), GD_F32);
    assert_null(gd_conv2d(x, w, NULL, .stride = GD_SHAPE(0)));
    expect_error(GD_ERR_INVALID, "gd_conv2d: stride is 0");
    assert_null(gd_conv2d(x, w, NULL, .stride = GD_SHAPE(1, 0)));
    expect_error(GD_ERR_INVALID, "stride is 0");
    assert_null(gd_conv2d(x, w, NULL, .dilation = GD_SHAPE(0)));
    expect_error(GD_ERR_INVALID, "dilation is 0");
    assert_null(gd_conv2d(x, w, NULL, .groups = 0));
    expect_error(GD_ERR_INVALID, "groups is 0");
    assert_null(gd_conv2d(x, w, NULL, .padding = GD_SHAPE(1, 1, 1)));
    expect_error(GD_ERR_INVALID, "padding has 3 numbers; one, or one for each of 2 axes");
    assert_null(gd_conv2d(x, w, NULL, .same = true, .padding = GD_SHAPE(0)));
    expect_error(GD_ERR_INVALID, "both are given");
    assert_null(gd_conv2d(x, w, NULL, .output_padding = GD_SHAPE(0)));
    expect_error(GD_ERR_INVALID, "an option of transposed convolution");
    /* an end without a number of its own has that of both */
    gd_tensor *y = gd_conv2d(x, w, NULL, .padding = GD_SHAPE(1), .padding_before = GD_SHAPE(0, 2));
    assert_int_equal(gd_tensor_shape(y).dim[2], 4);
    assert_int_equal(gd_tensor_shape(y).dim[3], 6);
    assert_same_bits(gd_conv_with(x, w, NULL, 2, NULL), gd_conv2d(x, w, NULL));
    assert_null(gd_max_pool2d(x, GD_SHAPE(2), .stride = GD_SHAPE(0)));
    expect_error(GD_ERR_INVALID, "stride is 0");
    assert_null(gd_avg_pool2d(x, GD_SCALAR));
    expect_error(GD_ERR_INVALID, "kernel is 0");
    gd_tensor *counted = gd_avg_pool2d(x, GD_SHAPE(2), .padding = GD_SHAPE(1));
    gd_tensor *inside =
        gd_avg_pool2d(x, GD_SHAPE(2), .padding = GD_SHAPE(1), .count_padding = false);
    assert_true(gd_item(gd_min(counted, GD_ALL_AXES, false)) == 0.25);
    assert_true(gd_item(gd_min(inside, GD_ALL_AXES, false)) == 1.0);
}

/* ---- data and training ---- */

static gd_tensor *objective(void *user, const gd_objective_call *call)
{
    return gd_cross_entropy(gd_nn_linear(user, "fc", call->tensors[0], 2), call->tensors[1]);
}

static gd_status count_calls(void *user, const gd_fit_progress *progress, bool *stop)
{
    (void)progress, (void)stop;
    ++*(int *)user;
    return GD_OK;
}

static void data_and_training(void **state)
{
    gd_context *gd = *state;
    const float samples[4] = { 1, 2, 3, 4 };
    const int64_t labels[4] = { 0, 1, 1, 0 };
    gd_field fields[2] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(1), .scale = 0, .shift = 7 },
        { GD_FIELD_DEFAULTS, .name = "y", .dtype = GD_I64, .classes = -1 },
    };
    const void *arrays[2] = { samples, labels };
    gd_dataset *flat = gd_dataset_from_arrays(gd, 4, 2, fields, arrays);
    gd_tensor *t[2];
    assert_int_equal(gd_dataset_get(flat, 0, 4, t), GD_OK);
    assert_values(t[0], 4, (float[]){ 7, 7, 7, 7 });
    fields[0].scale = 1;
    fields[0].shift = 0;
    gd_dataset *d = gd_dataset_from_arrays_with(gd, 4, 2, fields, arrays, NULL);
    assert_int_equal(gd_dataset_get(d, 0, 4, t), GD_OK);
    assert_values(t[0], 4, samples);
    assert_null(gd_loader_create(d, .batch = 0));
    expect_error(GD_ERR_INVALID, "batch 0");
    assert_int_equal(gd_loader_batch_size(gd_loader_create_with(d, NULL)), 32);
    gd_module *m = gd_module_create(gd, .seed = 1);
    gd_optimizer *o = gd_sgd(m);
    gd_loader *l = gd_loader_create(d, .batch = 1);
    assert_int_equal(gd_fit(o, objective, m, l, .epochs = 0), GD_OK);
    assert_int_equal(gd_module_count(m), 0); /* nothing was run */
    int calls = 0;
    assert_int_equal(gd_fit(o, objective, m, l, .progress = count_calls, .progress_user = &calls),
                     GD_OK);
    assert_int_equal(calls, 1); /* at the end of the epoch */
    assert_int_equal(gd_fit(o, objective, m, l, .progress = count_calls, .progress_user = &calls,
                            .progress_interval = 0),
                     GD_OK);
    assert_int_equal(calls, 1 + 4);
    assert_int_equal(gd_fit(o, objective, m, l, .steps = 0), GD_OK);
    assert_int_equal(gd_fit(o, objective, m, l, .steps = 2, .progress = count_calls,
                            .progress_user = &calls, .progress_interval = 0),
                     GD_OK);
    assert_int_equal(calls, 1 + 4 + 2);
    assert_int_equal(gd_fit(o, objective, m, l, .progress_interval = -1), GD_ERR_INVALID);
    assert_int_equal(gd_fit(o, objective, m, l, .accumulate = 0), GD_ERR_INVALID);
    assert_int_equal(gd_fit(o, objective, m, l, .validate_steps = 0), GD_ERR_INVALID);
    assert_int_equal(gd_fit(o, objective, m, l, .checkpoint_steps = 0), GD_ERR_INVALID);
    assert_int_equal(gd_fit(o, objective, m, l, .resume = true), GD_ERR_INVALID);
    assert_int_equal(gd_fit(o, objective, m, l, .schedule = gd_schedule_follow,
                            .plateau = &(gd_plateau){ GD_PLATEAU_DEFAULTS }),
                     GD_ERR_INVALID);
    gd_error_clear();
}

/* ---- text ---- */

static void sampling(void **state)
{
    (void)state;
    assert_null(gd_sampler_create(.top_k = 0));
    expect_error(GD_ERR_INVALID, "top_k 0");
    assert_null(gd_sampler_create(.repetition_penalty = 0));
    expect_error(GD_ERR_INVALID, "repetition_penalty 0");
    const float even[4] = { 0, 0.001f, 0, 0 };
    gd_sampler *nucleus = gd_sampler_create(.top_p = 0), *plain = gd_sampler_create();
    int others = 0;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(gd_sample(nucleus, 4, even, 0, NULL), 1);
        others += gd_sample(plain, 4, even, 0, NULL) != 1;
    }
    assert_true(others > 20); /* by default a token is drawn as likely as the model says */
    gd_sampler_release(nucleus);
    gd_sampler_release(plain);
}

static void tokens(void **state)
{
    gd_context *gd = *state;
    int32_t few[300];
    for (int i = 0; i < 300; i++)
        few[i] = i % 5;
    gd_token_data *data = gd_token_data_create(gd, 300, few);
    assert_null(gd_token_dataset(gd, data, .stride = 0));
    expect_error(GD_ERR_INVALID, "stride 0");
    assert_null(gd_token_dataset(gd, data, .length = 4, .count = 0));
    expect_error(GD_ERR_SHAPE, "there are 0");
    assert_int_equal(gd_dataset_count(gd_token_dataset_with(gd, data, NULL)), 1); /* of 256 */
    gd_language_model *m = gd_language_model_create(gd, .vocabulary = 256, .max_length = 6,
                                                    .layers = 1, .heads = 1, .width = 8);
    assert_null(gd_language_model_create(gd, .vocabulary = 256, .max_length = 6, .layers = 1,
                                         .heads = 1, .width = 8, .hidden = 0));
    expect_error(GD_ERR_INVALID, "hidden 0");
    assert_null(gd_language_model_create(gd, .vocabulary = 256, .max_length = 6, .layers = 1,
                                         .heads = 1, .width = 8, .epsilon = 0));
    expect_error(GD_ERR_INVALID, "epsilon is 0");
    assert_null(gd_language_model_create(gd, .vocabulary = 256, .max_length = 6, .layers = 1,
                                         .heads = 1, .width = 8, .rotary_base = -1));
    expect_error(GD_ERR_INVALID, "rotary_base -1");
    gd_tokenizer *t = gd_tokenizer_bytes();
    gd_sampler *s = gd_sampler_create(.temperature = 0);
    gd_generator *g = gd_generator_create(m);
    assert_int_equal(gd_generate(g, t, s, .prompt = "ab", .max_tokens = 0), 0);
    assert_int_equal(gd_generator_length(g), 0);
    assert_int_equal(gd_generate(g, t, s, .prompt = "ab"), 5); /* until the sequence is full */
    gd_sampler_release(s);
    gd_tokenizer_release(t);
}

/* ---- contexts and compiled functions ---- */

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_sum(gd_exp(gd_matmul(in[0], in[0])), GD_ALL_AXES, false);
}

static void limits(void **state)
{
    gd_context *gd = *state;
    assert_null(gd_open("cpu", .memory_limit = 0));
    expect_error(GD_ERR_MEMORY, "the limit of 0");
    assert_null(gd_open("cpu", .threads = 0));
    expect_error(GD_ERR_INVALID, "0 threads");
    assert_true(gd_memory(gd).limit == SIZE_MAX);
    assert_null(gd_compile(gd, body, NULL, .cache_limit = 0));
    expect_error(GD_ERR_INVALID, "cache limit is 0");
    gd_tensor *x = gd_ones(gd, GD_SHAPE(4, 4), GD_F32);
    assert_null(gd_call(gd_compile(gd, body, NULL, .memory_limit = 0), 1, &x));
    expect_error(GD_ERR_MEMORY, ".memory_limit");
    assert_non_null(gd_call(gd_compile_with(gd, body, NULL, NULL), 1, &x));
}

/* ---- structs that nobody has filled ---- */

#define REFUSED(type, call)                                      \
    do {                                                         \
        type zeros;                                              \
        memset(&zeros, 0, sizeof zeros);                         \
        (void)(call);                                            \
        expect_error(GD_ERR_INVALID, "the options have size 0"); \
    } while (0)

static void zeros_are_refused(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2, 2, 2), GD_F32);
    REFUSED(gd_open_options, gd_open_with("cpu", &zeros));
    REFUSED(gd_compile_options, gd_compile_with(gd, body, NULL, &zeros));
    REFUSED(gd_cross_entropy_options, gd_cross_entropy_with(x, x, &zeros));
    REFUSED(gd_nll_options, gd_nll_with(x, x, &zeros));
    REFUSED(gd_bce_options, gd_bce_with(x, x, &zeros));
    REFUSED(gd_bce_with_logits_options, gd_bce_with_logits_with(x, x, &zeros));
    REFUSED(gd_focal_options, gd_focal_with(x, x, &zeros));
    REFUSED(gd_hinge_options, gd_hinge_with(x, x, &zeros));
    REFUSED(gd_hinge_options, gd_hinge_embedding_with(x, x, &zeros));
    REFUSED(gd_kl_div_options, gd_kl_div_with(x, x, &zeros));
    REFUSED(gd_distance_options, gd_mse_with(x, x, &zeros));
    REFUSED(gd_distance_options, gd_mae_with(x, x, &zeros));
    REFUSED(gd_huber_options, gd_huber_with(x, x, &zeros));
    REFUSED(gd_huber_options, gd_smooth_l1_with(x, x, &zeros));
    REFUSED(gd_cosine_embedding_options, gd_cosine_embedding_with(x, x, x, &zeros));
    REFUSED(gd_triplet_margin_options, gd_triplet_margin_with(x, x, x, &zeros));
    REFUSED(gd_ctc_options, gd_ctc_with(x, x, x, x, &zeros));
    REFUSED(gd_layer_norm_options, gd_layer_norm_with(x, x, x, &zeros));
    REFUSED(gd_rms_norm_options, gd_rms_norm_with(x, x, &zeros));
    REFUSED(gd_group_norm_options, gd_group_norm_with(x, x, x, 1, &zeros));
    REFUSED(gd_instance_norm_options, gd_instance_norm_with(x, x, x, &zeros));
    REFUSED(gd_batch_norm_options, gd_batch_norm_with(x, x, x, x, x, &zeros));
    REFUSED(gd_attention_options, gd_attention_with(x, x, x, &zeros));
    REFUSED(gd_recurrent_options, gd_recurrent_with(x, x, x, GD_CELL_GRU, &zeros));
    REFUSED(gd_rope_options, gd_rope_with(x, &zeros));
    REFUSED(gd_augment_options, gd_augment_with(x, x, &zeros));
    REFUSED(gd_augment_options, gd_augment_draws(&zeros) < 0 ? NULL : x);
    REFUSED(gd_conv_options, gd_conv_with(x, x, x, 1, &zeros));
    REFUSED(gd_conv_options, gd_conv_transpose_with(x, x, x, 1, &zeros));
    REFUSED(gd_pool_options, gd_max_pool_with(x, 1, GD_SHAPE(1), &zeros));
    REFUSED(gd_pool_options, gd_avg_pool_with(x, 1, GD_SHAPE(1), &zeros));
    REFUSED(gd_dataset_options, gd_dataset_create_with(gd, 1, 1, NULL, NULL, NULL, &zeros));
    REFUSED(gd_dataset_split_options, gd_dataset_split_with(NULL, 0.5, NULL, NULL, &zeros));
    REFUSED(gd_dataset_from_arrays_options,
            gd_dataset_from_arrays_with(gd, 1, 1, NULL, NULL, &zeros));
    REFUSED(gd_field, gd_dataset_from_arrays_with(gd, 1, 1, &zeros, NULL, NULL));
    REFUSED(gd_dataset_idx_options, gd_dataset_load_idx_with(gd, "x", "y", &zeros));
    REFUSED(gd_mnist_options, gd_mnist_with(gd, "folder", &zeros));
    REFUSED(gd_cifar10_options, gd_cifar10_with(gd, "folder", &zeros));
    REFUSED(gd_image_options, gd_image_folder_with(gd, "folder", 2, 2, &zeros));
    REFUSED(gd_image_options, gd_image_list_with(gd, "list", 2, 2, &zeros));
    REFUSED(gd_audio_folder_options, gd_audio_folder_with(gd, "folder", 2, &zeros));
    REFUSED(gd_loader_options, gd_loader_create_with(NULL, &zeros));
    REFUSED(gd_fit_options, gd_fit_with(NULL, objective, NULL, NULL, &zeros));
    REFUSED(gd_evaluate_options, gd_evaluate_with(NULL, objective, NULL, NULL, NULL, &zeros));
    REFUSED(gd_token_dataset_options, gd_token_dataset_with(gd, NULL, &zeros));
    REFUSED(gd_table_options, gd_table_load_with("/tmp", &zeros));
    REFUSED(gd_table_options, gd_table_create_with("a", 1, &zeros));
    REFUSED(gd_table_encoder_options, gd_table_encoder_create_with(NULL, &zeros));
    REFUSED(gd_report_options, gd_report_with(NULL, "name", NULL, &zeros));
    REFUSED(gd_lr_range_options, gd_lr_range_with(NULL, objective, NULL, NULL, NULL, NULL, &zeros));
    REFUSED(gd_run_options, gd_run_open_with("/tmp", &zeros));
    REFUSED(gd_chart_options, gd_chart_create_with(&zeros));
    REFUSED(gd_chart_line_options, gd_chart_line_with(NULL, NULL, 0, NULL, NULL, &zeros));
    REFUSED(gd_run_log_options, gd_run_log_open_with("/tmp", &zeros));
    REFUSED(gd_training, gd_training_save(&zeros, "file"));
    REFUSED(gd_sampler_options, gd_sampler_create_with(&zeros));
    REFUSED(gd_language_options, gd_language_model_create_with(gd, &zeros));
    REFUSED(gd_generate_options, gd_generate_with(NULL, NULL, NULL, &zeros));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(losses),       context_test(ignored_indices),
        context_test(norms),        context_test(attention_and_positions),
        context_test(convolutions), context_test(data_and_training),
        cmocka_unit_test(sampling), context_test(tokens),
        context_test(limits),       context_test(zeros_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
