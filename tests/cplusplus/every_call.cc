/* tests/cplusplus/every_call.cc: each macro with options once, with a named member where it has
 * any. Compiled as C++17 and C++20 and never run; tools/check-snippets sees to it that none is
 * missing. */
#include <gradus/gradus.h>

extern void every_call(gd_context *gd, gd_module *m, gd_optimizer *o, gd_tensor *x);

namespace {

gd_tensor *body(void *, int, gd_tensor *const *in)
{
    return in[0];
}

gd_tensor *objective(void *, const gd_objective_call *call)
{
    gd_report(call, "metric", call->tensors[0], .form = GD_METRIC_R2, .truth = call->tensors[1]);
    return call->tensors[0];
}

void data(gd_context *gd, gd_module *m, gd_optimizer *o)
{
    gd_metrics result;
    gd_field fields[2];
    fields[0].name = "x";
    fields[0].shape = GD_SHAPE(GD_VARIES, 3);
    fields[0].max_length = 9;
    fields[1].name = "y";
    gd_dataset *d = gd_dataset_create(gd, 4, 2, fields, nullptr, nullptr, .one_thread = true);
    d = gd_dataset_from_arrays(gd, 4, 2, fields, nullptr, .copy = false);
    d = gd_dataset_load_idx(gd, "samples", "labels", .scale = 0.5F);
    d = gd_mnist(gd, "folder", .test = true);
    d = gd_cifar10(gd, "folder", .test = true);
    d = gd_image_folder(gd, "folder", 64, 64, .cache = 0, .crop = true);
    d = gd_image_list(gd, "list", 64, 64, .batch_dtype = GD_U8);
    d = gd_audio_folder(gd, "sounds", 16000, .channels = 0);
    gd_table *t = gd_table_load("table.csv", .separator = ";", .header = 1);
    t = gd_table_create("a,b", 3, .decimal_comma = true);
    gd_table_encoder_release(gd_table_encoder_create(t, .target = "price", .max_categories = 8));
    gd_loader *l = gd_loader_create(d, .batch = 32, .shuffle = true, .seed = 1, .workers = 2);
    gd_run *run = gd_run_open("run", .asynchronous = false);
    gd_fit(o, objective, m, l, .epochs = 2, .validation = l, .run = run, .result = &result);
    gd_lr_point points[50];
    gd_lr_range(o, objective, m, l, points, nullptr, .steps = 50);
    gd_evaluate(m, objective, m, l, &result, .mode = GD_MODE_EAGER);
    gd_dataset *parts[2];
    gd_dataset_split(d, 0.8, parts, parts + 1, .stratify = 1);
    gd_dataset_fold(d, 5, 0, parts, parts + 1, .seed = 3);
    d = gd_token_dataset(gd, nullptr, .length = 64, .stride = 1);
    l = gd_loader_create(d, .with_replacement = true, .batches_per_epoch = INT64_MAX);
    gd_sampler *sampler = gd_sampler_create(.temperature = 0.8, .top_k = 40);
    gd_language_model *model = gd_language_model_create(gd, GD_GPT2_124M, .seed = 1);
    model = gd_language_model_create(gd, .vocabulary = 65, .max_length = 256, .layers = 6, .heads = 6,
                                     .width = 384);
    model = gd_language_model_load(gd, "model.gguf", .quantized = true);
    gd_generate(nullptr, nullptr, sampler, .prompt = "Once", .max_tokens = 10, .draft = nullptr,
                .draft_tokens = 8);
    gd_language_model_save_gguf(model, nullptr, "model.gguf", .type = GD_GGUF_Q4_0);
    gd_gguf_quantize("model.gguf", "small.gguf", .type = GD_GGUF_Q4_0);
    gd_language_model_release(model);
}

void reports()
{
    gd_run_log_close(gd_run_log_open("runs/first", .csv = true, .prometheus = "first.prom"));
    const double x[] = { 0, 1 };
    gd_chart *chart = gd_chart_create(.title = "Loss", .x_label = "step", .log_y = true);
    gd_chart_line(chart, "train", 2, x, x, .smoothing = 0.9);
    gd_chart_release(chart);
}

void models(gd_context *gd)
{
    gd_model_spec spec = {};
    gd_model *model = gd_model_load_json(gd, "model.json", .seed = 1);
    model = gd_model_create(gd, &spec, .seed = 1);
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(784), .seed = 1);
    gd_model_add(b, "fc", "linear", .activation = "relu", .units = 16);
    gd_model_add_loss(b, "mse", .scale = 0.5);
    gd_model_insert(b, "fc", "drop", "dropout", .dropout = 0.1);
    gd_model_replace(b, "fc", "linear", .units = 8);
    model = gd_model_end(b);
    const int64_t sizes[] = { 16, 8 };
    b = gd_model_begin_mlp(gd, 784, 2, sizes, 10, .seed = 1);
    b = gd_model_begin_cnn(gd, GD_SHAPE(3, 32, 32), 2, sizes, 10, .dtype = GD_F64);
    (void)gd_layer_type_register(gd, "own", nullptr, nullptr, .max_inputs = 2, .uses = "units");
    gd_model_release(model);
}

void optimizers(gd_module *m)
{
    gd_optimizer *o = gd_optimizer_create(m, "sgd", .lr = 0.1, .momentum = 0.9);
    o = gd_sgd(m, .lr = 0.1, .momentum = 0.9);
    o = gd_adam(m, .lr = 1e-3, .beta1 = 0.8);
    o = gd_adamw(m, .weight_decay = 0.1);
    o = gd_nadam(m, .lr = 1e-3);
    o = gd_radam(m, .lr = 1e-3);
    o = gd_rmsprop(m, .alpha = 0.9);
    o = gd_adagrad(m, .lr = 1e-2);
    o = gd_adadelta(m, .rho = 0.8);
    o = gd_lion(m, .lr = 1e-4);
    o = gd_lamb(m, .lr = 1e-3);
    gd_optimizer_group(o, "*.bias", .weight_decay = 0);
    gd_optimizer_scale_losses(o, .initial = 1024);
    gd_ema_create(m, .decay = 0.99);
    gd_lbfgs_create(m, .max_iterations = 5);
}

void convolutions(gd_module *m, gd_tensor *x)
{
    gd_conv1d(x, x, nullptr, .stride = GD_SHAPE(2));
    gd_conv2d(x, x, x, .stride = GD_SHAPE(1, 2), .padding = GD_SHAPE(0), .same = false);
    gd_conv3d(x, x, nullptr, .groups = 2);
    gd_conv_transpose1d(x, x, nullptr, .output_padding = GD_SHAPE(1));
    gd_conv_transpose2d(x, x, x);
    gd_conv_transpose3d(x, x, nullptr, .dilation = GD_SHAPE(2));
    gd_max_pool1d(x, GD_SHAPE(2), .stride = GD_SHAPE(1));
    gd_max_pool2d(x, GD_SHAPE(2));
    gd_max_pool3d(x, GD_SHAPE(2), .ceil_mode = true);
    gd_avg_pool1d(x, GD_SHAPE(2), .count_padding = false);
    gd_avg_pool2d(x, GD_SHAPE(2));
    gd_avg_pool3d(x, GD_SHAPE(2), .padding = GD_SHAPE(1));
    gd_nn_conv1d(m, "a", x, 8, GD_SHAPE(3));
    gd_nn_conv2d(m, "b", x, 8, GD_SHAPE(3), .stride = GD_SHAPE(2), .same = true);
    gd_nn_conv3d(m, "c", x, 8, GD_SHAPE(3));
    gd_nn_conv_transpose1d(m, "d", x, 8, GD_SHAPE(3));
    gd_nn_conv_transpose2d(m, "e", x, 8, GD_SHAPE(3), .stride = GD_SHAPE(2));
    gd_nn_conv_transpose3d(m, "f", x, 8, GD_SHAPE(3));
}

void norms(gd_module *m, gd_tensor *x)
{
    gd_augment(x, x, .padding = 4, .flip = 0.5);
    gd_layer_norm(x, x, x, .axes = 2);
    gd_rms_norm(x, x, .epsilon = 1e-6);
    gd_group_norm(x, x, x, 8, .epsilon = 0);
    gd_instance_norm(x, nullptr, nullptr, .epsilon = 1e-6);
    gd_batch_norm(x, x, x, x, x, .training = true);
    gd_nn_layer_norm(m, "a", x, .axes = 2);
    gd_nn_rms_norm(m, "b", x);
    gd_nn_group_norm(m, "c", x, 4);
    gd_nn_instance_norm(m, "d", x);
    gd_nn_batch_norm(m, "e", x, .momentum = 0.2);
}

void losses(gd_tensor *x)
{
    gd_cross_entropy(x, x, .label_smoothing = 0.1);
    gd_nll(x, x, .ignore_index = -1);
    gd_bce(x, x, .reduction = GD_REDUCE_SUM);
    gd_bce_with_logits(x, x, .positive_weight = x);
    gd_focal(x, x, .alpha = 0.5);
    gd_hinge(x, x, .margin = 2.0);
    gd_hinge_embedding(x, x);
    gd_kl_div(x, x, .log_target = true);
    gd_mse(x, x, .reduction = GD_REDUCE_NONE);
    gd_mae(x, x);
    gd_huber(x, x, .delta = 2.0);
    gd_smooth_l1(x, x);
    gd_cosine_embedding(x, x, x, .margin = 0.5);
    gd_triplet_margin(x, x, x, .swap = true);
    gd_ctc(x, x, x, x, .zero_infinity = true);
}

void sequences(gd_context *gd, gd_module *m, gd_tensor *x)
{
    gd_transformer_config config = {};
    gd_kv_cache *cache = gd_kv_cache_create(gd, 128);
    gd_attention(x, x, x, .mask = x, .causal = true);
    gd_recurrent(x, x, x, GD_CELL_GRU, .first_hidden = x);
    gd_rope(x, .start = 4, .halves = true);
    gd_nn_multi_head_attention(m, "a", x, 4, .causal = true, .cache = cache);
    gd_nn_feed_forward(m, "b", x, 64, .activation = GD_ACTIVATION_SILU);
    gd_nn_encoder_layer(m, "c", x, &config, .mask = x);
    gd_nn_decoder_layer(m, "d", x, x, &config);
    gd_nn_encoder(m, "e", x, &config);
    gd_nn_decoder(m, "f", x, x, &config, .mask = x);
    gd_nn_transformer(m, "g", x, x, &config, .source_mask = x);
    gd_nn_token_embedding(m, "h", x, &config, .start = 3);
    gd_nn_decoder_only(m, "i", x, &config, .cache = cache);
    gd_nn_encoder_only(m, "j", x, &config);
    gd_nn_lstm(m, "k", x, 32, .layers = 2, .bidirectional = true);
    gd_nn_gru(m, "l", x, 32);
    gd_nn_rnn(m, "m", x, 32);
}

} // namespace

void every_call(gd_context *gd, gd_module *m, gd_optimizer *o, gd_tensor *x)
{
    gd = gd_open("cpu", .threads = 2);
    m = gd_module_create(gd, .seed = 1);
    gd_parameter(m, "p", GD_SHAPE(2, 3), .init = GD_INIT_ONES);
    gd_module_draw(m, GD_SHAPE(2, 3), .init = GD_INIT_ONES);
    gd_nn_linear(m, "fc", x, 16, .bias = false);
    gd_compile(gd, body, nullptr, .mode = GD_MODE_EAGER);
    gd_sum(x, GD_AXES(0, -1), false);
    gd_reshape(x, GD_SHAPE(2, -1));
    data(gd, m, o);
    reports();
    models(gd);
    optimizers(m);
    convolutions(m, x);
    norms(m, x);
    losses(x);
    sequences(gd, m, x);
}
