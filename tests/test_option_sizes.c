/* tests/test_option_sizes.c: every struct of options as programs have it that were compiled against an
 * older version, with fewer members: every function that reads it does what it does with the members
 * the caller has and the defaults of the others. The structs are those of src/options/defaults.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/stat.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/context.h"

#include "options/defaults.h"

typedef struct env {
    gd_context *gd;
    gd_module *m;         /* of layers: what they made stays */
    gd_tensor *x, *index; /* [2, 4, 8] of numbers; [2, 4] of 0 … 3 */
} env;

/* ---- what a call did, as a number ---- */

static uint64_t add_bytes(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t of_number(double x)
{
    return add_bytes(1, &x, sizeof x);
}

static uint64_t of_status(gd_status status)
{
    return add_bytes(2, &status, sizeof status);
}

static uint64_t of_object(const void *object)
{
    return object ? 3 : 4;
}

static uint64_t of_tensor(gd_tensor *t)
{
    if (!t)
        return 5;
    const gd_shape shape = gd_tensor_shape(t);
    const size_t bytes = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    unsigned char *values = malloc(bytes + 1);
    assert_int_equal(gd_tensor_read(t, values, bytes), GD_OK);
    const uint64_t hash = add_bytes(add_bytes(6, &shape.rank, sizeof shape.rank), values, bytes);
    free(values);
    return hash;
}

/* ---- what options are given to ---- */

static gd_module *one_parameter(env *e)
{
    gd_module *m = gd_module_create(e->gd, .seed = 5);
    assert_non_null(gd_parameter(m, "p", GD_SHAPE(3, 4)));
    return m;
}

static gd_tensor *parameter_of(gd_optimizer *o)
{
    return gd_module_parameter(gd_optimizer_module(o), "p");
}

/* The parameter after two steps. */
static uint64_t of_steps(gd_optimizer *o)
{
    if (!o)
        return 7;
    for (int i = 0; i < 2; i++)
        if (!gd_minimize(o,
                         gd_sum(gd_square(gd_add_scalar(parameter_of(o), 1)), GD_ALL_AXES, false)))
            return 8;
    return of_tensor(parameter_of(o));
}

static uint64_t of_scaled(gd_optimizer *o, const gd_loss_scale_options *options)
{
    const uint64_t status = of_status(gd_optimizer_scale_losses_with(o, options));
    return status + of_steps(o) + (uint64_t)gd_optimizer_loss_scale(o);
}

static uint64_t of_group(gd_optimizer *o, const gd_optimizer_group_options *group)
{
    return of_status(gd_optimizer_group_with(o, "*", group)) + of_steps(o);
}

static gd_tensor *quadratic(void *user)
{
    return gd_sum(gd_square(gd_add_scalar(gd_module_parameter(user, "p"), 1)), GD_ALL_AXES, false);
}

static uint64_t of_lbfgs(env *e, const gd_lbfgs_options *o)
{
    gd_module *m = one_parameter(e);
    gd_lbfgs *l = gd_lbfgs_create_with(m, o);
    return l ? of_status(gd_lbfgs_step(l, quadratic, m, NULL)) +
                   of_tensor(gd_module_parameter(m, "p"))
             : 9;
}

static uint64_t of_ema(env *e, const gd_ema_options *o)
{
    gd_module *m = one_parameter(e);
    gd_ema *ema = gd_ema_create_with(m, o);
    uint64_t hash = of_status(gd_ema_update(ema));
    assert_int_equal(gd_assign(gd_module_parameter(m, "p"), gd_ones(e->gd, GD_SHAPE(3, 4), GD_F32))
                         ? GD_OK
                         : GD_ERR_STATE,
                     GD_OK);
    hash += of_status(gd_ema_update(ema)) + of_status(gd_ema_swap(ema));
    return hash + of_tensor(gd_module_parameter(m, "p"));
}

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_exp(in[0]);
}

static uint64_t of_function(env *e, const gd_compile_options *o)
{
    gd_function *f = gd_compile_with(e->gd, body, NULL, o);
    return f ? of_tensor(gd_call(f, 1, &e->x)) : 10;
}

static uint64_t of_context(gd_context *gd)
{
    const uint64_t hash = gd ? gd_memory(gd).limit : 11;
    gd_close(gd);
    return hash;
}

static const unsigned char sample_values[6 * 2];
static const int64_t sample_labels[6] = { 0, 1, 2, 0, 1, 2 };
static const gd_field sample_fields[2] = {
    { GD_FIELD_DEFAULTS, .name = "x", .shape = { 1, { 2 } }, .dtype = GD_U8,
      .batch_dtype = GD_F32 },
    { GD_FIELD_DEFAULTS, .name = "y", .dtype = GD_I64, .classes = 3 },
};

static gd_dataset *samples(env *e, const gd_dataset_from_arrays_options *o)
{
    const void *arrays[2] = { sample_values, sample_labels };
    return gd_dataset_from_arrays_with(e->gd, 6, 2, sample_fields, arrays, o);
}

static gd_status write_sample(void *user, int64_t index, gd_sample_values *sample)
{
    (void)user;
    *(float *)sample->data[0] = (float)index;
    return GD_OK;
}

static gd_dataset *called_back(env *e, const gd_dataset_options *o)
{
    static const gd_field number = { GD_FIELD_DEFAULTS, .name = "x" };
    return gd_dataset_create_with(e->gd, 6, 1, &number, write_sample, NULL, o);
}

static gd_dataset *one_field(env *e, const gd_field *o)
{
    static const float values[6] = { 1, 2, 3, 4, 5, 6 };
    const void *array = values;
    return gd_dataset_from_arrays(e->gd, 6, 1, o, &array);
}

static uint64_t of_batch(gd_dataset *data, const gd_loader_options *o)
{
    gd_loader *l = gd_loader_create_with(data, o);
    gd_batch b;
    return gd_loader_next(l, &b) ? of_tensor(b.tensors[0]) : of_object(l);
}

static uint64_t of_split(env *e, const gd_dataset_split_options *o)
{
    gd_dataset *first, *second;
    gd_status status = gd_dataset_split_with(samples(e, NULL), 0.5, &first, &second, o);
    return of_status(status) + (status == GD_OK ? of_batch(second, NULL) : 0);
}

static uint64_t of_tokens(env *e, const gd_token_dataset_options *o)
{
    static const int32_t tokens[40];
    gd_token_data *data = gd_token_data_create(e->gd, 40, tokens);
    return of_batch(gd_token_dataset_with(e->gd, data, o), NULL);
}

static uint64_t of_sampler(gd_sampler *s)
{
    const float logits[] = { 0.5f, 2, 1 };
    uint64_t hash = s ? 0 : 12;
    for (int i = 0; s && i < 8; i++)
        hash = 31 * hash + (uint64_t)gd_sample(s, 3, logits, 0, NULL);
    gd_sampler_release(s);
    return hash;
}

static gd_tensor *objective(void *user, const gd_objective_call *call)
{
    return gd_cross_entropy(gd_nn_linear(user, "out", call->tensors[0], 3), call->tensors[1]);
}

static uint64_t of_fit(env *e, const gd_fit_options *o)
{
    gd_module *m = gd_module_create(e->gd, .seed = 1);
    gd_loader *l = gd_loader_create(samples(e, NULL), .batch = 3);
    const uint64_t hash = of_status(gd_fit_with(gd_adam(m), objective, m, l, o));
    return hash + of_tensor(gd_module_tensor(m, 0));
}

/* The metric as its form makes it: reported within an evaluation. */
static gd_tensor *reporter(void *user, const gd_objective_call *call)
{
    gd_tensor *mean = gd_mean(call->tensors[0], GD_ALL_AXES, false);
    return gd_report_with(call, "mean", mean, user) == GD_OK ? mean : NULL;
}

static uint64_t of_report(env *e, const gd_report_options *o)
{
    gd_metrics metrics;
    gd_loader *l = gd_loader_create(samples(e, NULL), .batch = 3);
    gd_module *m = gd_module_create(e->gd);
    const uint64_t hash = of_status(gd_evaluate(m, reporter, (void *)(uintptr_t)o, l, &metrics));
    return hash + of_number(gd_metrics_get(&metrics, "mean"));
}

static uint64_t of_range(env *e, const gd_lr_range_options *o)
{
    static gd_lr_point points[200];
    double lr = 0;
    gd_module *m = gd_module_create(e->gd, .seed = 1);
    gd_loader *l = gd_loader_create(samples(e, NULL), .batch = 3);
    const int64_t count = gd_lr_range_with(gd_sgd(m), objective, m, l, points, &lr, o);
    return add_bytes(of_number(lr), &count, sizeof count);
}

static uint64_t of_evaluation(env *e, const gd_evaluate_options *o)
{
    gd_metrics metrics;
    gd_loader *l = gd_loader_create(samples(e, NULL), .batch = 3);
    gd_module *m = gd_module_create(e->gd, .seed = 1);
    const uint64_t hash = of_status(gd_evaluate_with(m, objective, m, l, &metrics, o));
    return hash + of_number(gd_metrics_get(&metrics, "loss"));
}

static uint64_t of_text(env *e, const gd_generate_options *o)
{
    gd_language_model *m = gd_language_model_create(e->gd, .vocabulary = 256, .max_length = 6,
                                                    .layers = 1, .heads = 1, .width = 8);
    gd_tokenizer *t = gd_tokenizer_bytes();
    gd_sampler *s = gd_sampler_create(.seed = 1);
    const int64_t made = gd_generate_with(gd_generator_create(m), t, s, o);
    gd_sampler_release(s);
    gd_tokenizer_release(t);
    gd_language_model_release(m);
    return (uint64_t)made;
}

static uint64_t of_language_model(gd_language_model *m)
{
    const uint64_t hash = m ? of_tensor(gd_module_tensor(gd_language_model_module(m), 0)) : 13;
    gd_language_model_release(m);
    return hash;
}

static uint64_t of_module(gd_module *m)
{
    return m ? of_tensor(gd_parameter(m, "p", GD_SHAPE(3, 4))) : 14;
}

static uint64_t of_model(gd_model *m)
{
    return m ? of_tensor(gd_module_tensor(gd_model_module(m), 0)) : 15;
}

/* A model of one layer, or the error of adding it. */
static uint64_t of_layer(env *e, const gd_model_options *o, const gd_layer_spec *layer)
{
    gd_model_builder *b = gd_model_begin_with(e->gd, GD_SHAPE(4), o);
    const gd_status status = b ? gd_model_add_with(b, layer) : GD_ERR_INVALID;
    gd_model *m = gd_model_end(b);
    return of_status(status) + of_model(m);
}

static const gd_layer_spec fc = { GD_LAYER_SPEC_DEFAULTS, .name = "fc", .type = "linear",
                                  .units = 3 };
/* The loss of the model of a layer, from a spec and by calls. */
static uint64_t of_losses(env *e, const gd_loss_spec *o)
{
    const gd_model_spec spec = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(4), .layer_count = 1,
                                 .layers = &fc,          .loss_count = 1,      .losses = o };
    gd_model_builder *b = gd_model_begin(e->gd, GD_SHAPE(4));
    (void)gd_model_add_with(b, &fc);
    (void)gd_model_add_loss_with(b, o);
    gd_tensor *y = gd_ones(e->gd, GD_SHAPE(2, 3), GD_F32),
              *t = gd_zeros(e->gd, GD_SHAPE(2, 3), GD_F32);
    return of_tensor(gd_model_loss(gd_model_create(e->gd, &spec), y, t)) +
           of_tensor(gd_model_loss(gd_model_end(b), y, t));
}

static gd_status build_same(void *user, const gd_layer_call *call, gd_tensor **result)
{
    (void)user;
    *result = call->inputs[0];
    return GD_OK;
}

/* A type in a context of its own, and a model of it with two inputs. */
static uint64_t of_layer_type(const gd_layer_type_options *o)
{
    gd_context *gd = gd_open("cpu", .threads = 1);
    const gd_status status = gd_layer_type_register_with(gd, "own", build_same, NULL, o);
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(4));
    gd_model_add(b, "a", "own", .inputs = { "input", "input" });
    const uint64_t hash = of_status(status) + of_object(gd_model_end(b));
    gd_close(gd);
    return hash;
}

static const gd_transformer_config small = { GD_TRANSFORMER_CONFIG_DEFAULTS,
                                             .width = 8,
                                             .heads = 2,
                                             .layers = 1,
                                             .vocabulary = 4,
                                             .max_length = 8 };

static uint64_t of_plateau(const gd_plateau *o)
{
    gd_plateau plateau; /* it is written to */
    memset(&plateau, 0x55, sizeof plateau);
    memcpy(&plateau, o, o->size);
    return of_number(gd_plateau_step(&plateau, 1, 3));
}

static uint64_t of_run(const gd_run_options *o)
{
    char folder[] = "/tmp/gradus_run_XXXXXX", command[64];
    gd_run *run = mkdtemp(folder) ? gd_run_open_with(folder, o) : NULL;
    const uint64_t hash = of_object(run) + of_status(gd_run_close(run));
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? hash : 0;
}

static uint64_t of_table(const gd_table_options *o)
{
    static const char text[] = "#,x\n1;2,5\n3;4,5\n";
    gd_table *t = gd_table_create_with(text, sizeof text - 1, o);
    const uint64_t hash =
        of_number((double)gd_table_columns(t)) + of_number((double)gd_table_rows(t));
    gd_table_release(t);
    return hash;
}

static uint64_t of_encoder(const gd_table_encoder_options *o)
{
    static const char text[] = "x,y\na,1\nb,2\nc,3\nc,4\n";
    gd_table *t = gd_table_create(text, sizeof text - 1);
    gd_table_encoder *encoder = gd_table_encoder_create_with(t, o);
    const uint64_t hash = of_number((double)gd_table_encoder_features(encoder)) +
                          of_number((double)gd_table_encoder_classes(encoder));
    gd_table_encoder_release(encoder);
    gd_table_release(t);
    return hash;
}

/* Which files the log makes. */
static uint64_t of_log(const gd_run_log_options *o)
{
    static char folder[] = "/tmp/gradus_log_XXXXXX"; /* one name, which errors tell */
    static bool is_named;
    char command[128];
    const bool there = is_named ? mkdir(folder, 0700) == 0 : mkdtemp(folder) != NULL;
    is_named = true;
    gd_run_log *log = there ? gd_run_log_open_with(folder, o) : NULL;
    uint64_t hash = of_object(log) + of_status(gd_run_log_scalar(log, 1, "a", 1));
    gd_run_log_close(log);
    snprintf(command, sizeof command, "test -e %s/metrics.csv", folder);
    hash = 2 * hash + (system(command) == 0);
    snprintf(command, sizeof command, "test -e %s/metrics.jsonl", folder);
    hash = 2 * hash + (system(command) == 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? hash : 0;
}

static uint64_t of_chart(gd_chart *c)
{
    char text[4096] = "";
    const uint64_t hash = of_number((double)gd_chart_svg(c, NULL, 0));
    (void)gd_chart_text(c, 40, 10, GD_TEXT_ASCII, text, sizeof text);
    gd_chart_release(c);
    return add_bytes(hash, text, strlen(text));
}

static gd_chart *with_line(const gd_chart_line_options *o)
{
    static const double x[] = { 0, 1, 2 }, y[] = { 3, 1, 2 };
    gd_chart *c = gd_chart_create();
    if (gd_chart_line_with(c, "line", 3, x, y, o) == GD_OK)
        return c;
    gd_chart_release(c);
    return NULL;
}

static gd_tensor *row(env *e)
{
    return gd_select(gd_select(e->x, 0, 0), 0, 0);
}

static gd_tensor *rows(env *e) /* [8, 8] */
{
    return gd_reshape(e->x, GD_SHAPE(8, 8));
}

/* ---- every struct: its name, members that are set, a call with `o` ---- */

/* clang-format off */
#define CASES(_) \
    _(gd_adadelta_options, of_steps(gd_adadelta_with(one_parameter(e), o)), GD_ADADELTA_DEFAULTS, .lr = 0.5) \
    _(gd_adagrad_options, of_steps(gd_adagrad_with(one_parameter(e), o)), GD_ADAGRAD_DEFAULTS, .lr = 0.5) \
    _(gd_adam_options, of_steps(gd_adam_with(one_parameter(e), o)), GD_ADAM_DEFAULTS, .lr = 0.5) \
    _(gd_adamw_options, of_steps(gd_adamw_with(one_parameter(e), o)), GD_ADAMW_DEFAULTS, .lr = 0.5) \
    _(gd_attention_options, of_tensor(gd_attention_with(e->x, e->x, e->x, o)), GD_ATTENTION_DEFAULTS, .causal = true) \
    _(gd_augment_options, of_tensor(gd_augment_with(gd_reshape(e->x, GD_SHAPE(1, 1, 8, 8)), NULL, o)) + of_number((double)gd_augment_draws(o)), GD_AUGMENT_DEFAULTS, .height = 5, .flip = 0.5) \
    _(gd_batch_norm_options, of_tensor(gd_batch_norm_with(rows(e), NULL, NULL, gd_copy(row(e)), gd_copy(row(e)), o)), GD_BATCH_NORM_DEFAULTS) \
    _(gd_bce_options, of_tensor(gd_bce_with(gd_sigmoid(e->x), gd_sigmoid(e->x), o)), GD_BCE_DEFAULTS) \
    _(gd_bce_with_logits_options, of_tensor(gd_bce_with_logits_with(e->x, gd_sigmoid(e->x), o)), GD_BCE_WITH_LOGITS_DEFAULTS) \
    _(gd_audio_folder_options, of_object(gd_audio_folder_with(e->gd, "nowhere", 2, o)), GD_AUDIO_FOLDER_DEFAULTS) \
    _(gd_image_options, of_object(gd_image_folder_with(e->gd, "nowhere", 2, 2, o)) + of_object(gd_image_list_with(e->gd, "nowhere", 2, 2, o)), GD_IMAGE_DEFAULTS) \
    _(gd_chart_line_options, of_chart(with_line(o)), GD_CHART_LINE_DEFAULTS, .smoothing = 0.5) \
    _(gd_chart_options, of_chart(gd_chart_create_with(o)), GD_CHART_DEFAULTS, .title = "t", .width = 300) \
    _(gd_cifar10_options, of_object(gd_cifar10_with(e->gd, "nowhere", o)), GD_CIFAR10_DEFAULTS) \
    _(gd_compile_options, of_function(e, o), GD_COMPILE_DEFAULTS) \
    _(gd_conv_options, of_tensor(gd_conv_with(e->x, gd_slice(e->x, 2, 0, 3, 1), NULL, 1, o)) + of_tensor(gd_conv_transpose_with(e->x, gd_reshape(e->x, GD_SHAPE(4, 4, 4)), NULL, 1, o)), GD_CONV_DEFAULTS, .padding = GD_SHAPE(1)) \
    _(gd_cosine_embedding_options, of_tensor(gd_cosine_embedding_with(rows(e), gd_exp(rows(e)), gd_sign(row(e)), o)), GD_COSINE_EMBEDDING_DEFAULTS) \
    _(gd_cross_entropy_options, of_tensor(gd_cross_entropy_with(e->x, e->index, o)), GD_CROSS_ENTROPY_DEFAULTS, .label_smoothing = 0.5) \
    _(gd_ctc_options, of_tensor(gd_ctc_with(gd_log_softmax(gd_transpose(e->x, 0, 1), 2), gd_slice(gd_add_scalar(e->index, 1), 1, 0, 1, 1), gd_full(e->gd, GD_SHAPE(2), 4, GD_I64), gd_full(e->gd, GD_SHAPE(2), 1, GD_I64), o)), GD_CTC_DEFAULTS) \
    _(gd_dataset_idx_options, of_object(gd_dataset_load_idx_with(e->gd, "nowhere", "nowhere", o)), GD_DATASET_IDX_DEFAULTS) \
    _(gd_dataset_from_arrays_options, of_batch(samples(e, o), NULL), GD_DATASET_FROM_ARRAYS_DEFAULTS) \
    _(gd_dataset_options, of_batch(called_back(e, o), NULL), GD_DATASET_DEFAULTS) \
    _(gd_dataset_split_options, of_split(e, o), GD_DATASET_SPLIT_DEFAULTS) \
    _(gd_distance_options, of_tensor(gd_mse_with(e->x, gd_exp(e->x), o)) + of_tensor(gd_mae_with(e->x, gd_exp(e->x), o)), GD_DISTANCE_DEFAULTS, .reduction = GD_REDUCE_SUM) \
    _(gd_ema_options, of_ema(e, o), GD_EMA_DEFAULTS, .decay = 0.25) \
    _(gd_evaluate_options, of_evaluation(e, o), GD_EVALUATE_DEFAULTS) \
    _(gd_field, of_batch(one_field(e, o), NULL), GD_FIELD_DEFAULTS, .name = "x") \
    _(gd_fit_options, of_fit(e, o), GD_FIT_DEFAULTS, .epochs = 2) \
    _(gd_focal_options, of_tensor(gd_focal_with(e->x, gd_sigmoid(e->x), o)), GD_FOCAL_DEFAULTS) \
    _(gd_generate_options, of_text(e, o), GD_GENERATE_DEFAULTS, .prompt = "a", .max_tokens = 2) \
    _(gd_gguf_quantize_options, of_status(gd_gguf_quantize_with("nowhere", "nowhere", o)), GD_GGUF_QUANTIZE_DEFAULTS, .type = (gd_gguf_type)9) \
    _(gd_group_norm_options, of_tensor(gd_group_norm_with(e->x, NULL, NULL, 2, o)), GD_GROUP_NORM_DEFAULTS, .epsilon = 0.5) \
    _(gd_hinge_options, of_tensor(gd_hinge_with(e->x, gd_sign(e->x), o)) + of_tensor(gd_hinge_embedding_with(e->x, gd_sign(e->x), o)), GD_HINGE_DEFAULTS) \
    _(gd_huber_options, of_tensor(gd_huber_with(e->x, gd_exp(e->x), o)) + of_tensor(gd_smooth_l1_with(e->x, gd_exp(e->x), o)), GD_HUBER_DEFAULTS) \
    _(gd_input_spec, of_model(gd_model_create_with(e->gd, &(gd_model_spec){ GD_MODEL_SPEC_DEFAULTS, .input_count = 1, .inputs = o, .layer_count = 1, .layers = &fc }, NULL)), GD_INPUT_SPEC_DEFAULTS, .name = "x", .shape = GD_SHAPE(4)) \
    _(gd_instance_norm_options, of_tensor(gd_instance_norm_with(e->x, NULL, NULL, o)), GD_INSTANCE_NORM_DEFAULTS, .epsilon = 0.5) \
    _(gd_kl_div_options, of_tensor(gd_kl_div_with(gd_log_softmax(e->x, 2), gd_softmax(e->x, 2), o)), GD_KL_DIV_DEFAULTS) \
    _(gd_lamb_options, of_steps(gd_lamb_with(one_parameter(e), o)), GD_LAMB_DEFAULTS, .lr = 0.5) \
    _(gd_language_options, of_language_model(gd_language_model_create_with(e->gd, o)), GD_LANGUAGE_DEFAULTS, .vocabulary = 5, .max_length = 4, .layers = 1, .heads = 1, .width = 8) \
    _(gd_language_load_options, of_object(gd_language_model_load_with(e->gd, "nowhere", o)), GD_LANGUAGE_LOAD_DEFAULTS) \
    _(gd_layer_norm_options, of_tensor(gd_layer_norm_with(e->x, NULL, NULL, o)), GD_LAYER_NORM_DEFAULTS, .epsilon = 0.5) \
    _(gd_layer_spec, of_layer(e, NULL, o), GD_LAYER_SPEC_DEFAULTS, .name = "fc", .type = "linear", .units = 3) \
    _(gd_layer_type_options, of_layer_type(o), GD_LAYER_TYPE_DEFAULTS, .max_inputs = 2) \
    _(gd_lbfgs_options, of_lbfgs(e, o), GD_LBFGS_DEFAULTS, .max_iterations = 3) \
    _(gd_lion_options, of_steps(gd_lion_with(one_parameter(e), o)), GD_LION_DEFAULTS, .lr = 0.5) \
    _(gd_loader_options, of_batch(samples(e, NULL), o), GD_LOADER_DEFAULTS, .batch = 2) \
    _(gd_loss_spec, of_losses(e, o), GD_LOSS_SPEC_DEFAULTS, .type = "huber", .scale = 3) \
    _(gd_mnist_options, of_object(gd_mnist_with(e->gd, "nowhere", o)), GD_MNIST_DEFAULTS) \
    _(gd_model_options, of_model(gd_model_create_with(e->gd, &(gd_model_spec){ GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(4), .layer_count = 1, .layers = &fc }, o)) + of_layer(e, o, &fc), GD_MODEL_DEFAULTS, .seed = 9) \
    _(gd_model_spec, of_model(gd_model_create(e->gd, o)), GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(4), .layer_count = 1, .layers = &fc) \
    _(gd_module_options, of_module(gd_module_create_with(e->gd, o)), GD_MODULE_DEFAULTS, .seed = 9) \
    _(gd_nadam_options, of_steps(gd_nadam_with(one_parameter(e), o)), GD_NADAM_DEFAULTS, .lr = 0.5) \
    _(gd_nll_options, of_tensor(gd_nll_with(gd_log_softmax(e->x, 2), e->index, o)), GD_NLL_DEFAULTS) \
    _(gd_nn_batch_norm_options, of_tensor(gd_nn_batch_norm_with(e->m, "batch_norm", rows(e), o)), GD_NN_BATCH_NORM_DEFAULTS) \
    _(gd_nn_conv_options, of_tensor(gd_nn_conv_with(e->m, "conv", e->x, 1, 3, GD_SHAPE(3), o)) + of_tensor(gd_nn_conv_transpose_with(e->m, "conv_t", e->x, 1, 3, GD_SHAPE(3), o)), GD_NN_CONV_DEFAULTS, .bias = true) \
    _(gd_nn_decoder_only_options, of_tensor(gd_nn_decoder_only_with(e->m, "gpt", e->index, &small, o)), GD_NN_DECODER_ONLY_DEFAULTS) \
    _(gd_nn_decoder_options, of_tensor(gd_nn_decoder_with(e->m, "decoder", e->x, e->x, &small, o)) + of_tensor(gd_nn_decoder_layer_with(e->m, "decoder0", e->x, e->x, &small, o)), GD_NN_DECODER_DEFAULTS) \
    _(gd_nn_encoder_only_options, of_tensor(gd_nn_encoder_only_with(e->m, "bert", e->index, &small, o)), GD_NN_ENCODER_ONLY_DEFAULTS) \
    _(gd_nn_encoder_options, of_tensor(gd_nn_encoder_with(e->m, "encoder", e->x, &small, o)) + of_tensor(gd_nn_encoder_layer_with(e->m, "encoder0", e->x, &small, o)), GD_NN_ENCODER_DEFAULTS) \
    _(gd_nn_feed_forward_options, of_tensor(gd_nn_feed_forward_with(e->m, "ff", e->x, 5, o)), GD_NN_FEED_FORWARD_DEFAULTS) \
    _(gd_nn_group_norm_options, of_tensor(gd_nn_group_norm_with(e->m, "group_norm", e->x, 2, o)), GD_NN_GROUP_NORM_DEFAULTS) \
    _(gd_nn_instance_norm_options, of_tensor(gd_nn_instance_norm_with(e->m, "instance_norm", e->x, o)), GD_NN_INSTANCE_NORM_DEFAULTS) \
    _(gd_nn_layer_norm_options, of_tensor(gd_nn_layer_norm_with(e->m, "layer_norm", e->x, o)), GD_NN_LAYER_NORM_DEFAULTS) \
    _(gd_nn_linear_options, of_tensor(gd_nn_linear_with(e->m, "linear", e->x, 3, o)), GD_NN_LINEAR_DEFAULTS) \
    _(gd_nn_multi_head_attention_options, of_tensor(gd_nn_multi_head_attention_with(e->m, "attention", e->x, 2, o)), GD_NN_MULTI_HEAD_ATTENTION_DEFAULTS) \
    _(gd_nn_recurrent_options, of_tensor(gd_nn_lstm_with(e->m, "lstm", e->x, 3, o)) + of_tensor(gd_nn_gru_with(e->m, "gru", e->x, 3, o)) + of_tensor(gd_nn_rnn_with(e->m, "rnn", e->x, 3, o)), GD_NN_RECURRENT_DEFAULTS) \
    _(gd_nn_rms_norm_options, of_tensor(gd_nn_rms_norm_with(e->m, "rms_norm", e->x, o)), GD_NN_RMS_NORM_DEFAULTS) \
    _(gd_nn_token_embedding_options, of_tensor(gd_nn_token_embedding_with(e->m, "embedding", e->index, &small, o)), GD_NN_TOKEN_EMBEDDING_DEFAULTS, .start = 1) \
    _(gd_nn_transformer_options, of_tensor(gd_nn_transformer_with(e->m, "transformer", e->x, e->x, &small, o)), GD_NN_TRANSFORMER_DEFAULTS) \
    _(gd_open_options, of_context(gd_open_with("cpu", o)), GD_OPEN_DEFAULTS, .threads = 1) \
    _(gd_loss_scale_options, of_scaled(gd_adam(one_parameter(e)), o), GD_LOSS_SCALE_DEFAULTS, .initial = 8, .growth = 4, .backoff = 0.25, .interval = 2) \
    _(gd_optimizer_group_options, of_group(gd_adam(one_parameter(e)), o), GD_OPTIMIZER_GROUP_DEFAULTS, .lr = 0.5) \
    _(gd_optimizer_options, of_steps(gd_optimizer_create_with(one_parameter(e), "adam", o)), GD_OPTIMIZER_DEFAULTS, .lr = 0.5) \
    _(gd_parameter_options, of_tensor(gd_module_draw_with(gd_module_create(e->gd, .seed = 4), GD_SHAPE(3, 4), o)) + of_tensor(gd_parameter_with(gd_module_create(e->gd, .seed = 4), "p", GD_SHAPE(3, 4), o)), GD_PARAMETER_DEFAULTS) \
    _(gd_plateau, of_plateau(o), GD_PLATEAU_DEFAULTS, .patience = 0) \
    _(gd_pool_options, of_tensor(gd_max_pool_with(e->x, 1, GD_SHAPE(3), o)) + of_tensor(gd_avg_pool_with(e->x, 1, GD_SHAPE(3), o)), GD_POOL_DEFAULTS, .stride = GD_SHAPE(1)) \
    _(gd_radam_options, of_steps(gd_radam_with(one_parameter(e), o)), GD_RADAM_DEFAULTS, .lr = 0.5) \
    _(gd_recurrent_options, of_tensor(gd_recurrent_with(e->x, rows(e), row(e), GD_CELL_RNN, o)), GD_RECURRENT_DEFAULTS) \
    _(gd_report_options, of_report(e, o), GD_REPORT_DEFAULTS, .form = GD_METRIC_EXP) \
    _(gd_rms_norm_options, of_tensor(gd_rms_norm_with(e->x, NULL, o)), GD_RMS_NORM_DEFAULTS, .epsilon = 0.5) \
    _(gd_rmsprop_options, of_steps(gd_rmsprop_with(one_parameter(e), o)), GD_RMSPROP_DEFAULTS, .lr = 0.5) \
    _(gd_rope_options, of_tensor(gd_rope_with(e->x, o)), GD_ROPE_DEFAULTS, .start = 3) \
    _(gd_lr_range_options, of_range(e, o), GD_LR_RANGE_DEFAULTS, .from = 0.01, .to = 0.1) \
    _(gd_run_options, of_run(o), GD_RUN_DEFAULTS, .asynchronous = false) \
    _(gd_run_log_options, of_log(o), GD_RUN_LOG_DEFAULTS, .json = false, .csv = true) \
    _(gd_sampler_options, of_sampler(gd_sampler_create_with(o)), GD_SAMPLER_DEFAULTS, .temperature = 0.5) \
    _(gd_schedule, of_number(gd_schedule_at(o, 3)), GD_SCHEDULE_DEFAULTS, .lr = 0.5, .steps = 9) \
    _(gd_sgd_options, of_steps(gd_sgd_with(one_parameter(e), o)), GD_SGD_DEFAULTS, .lr = 0.5) \
    _(gd_table_encoder_options, of_encoder(o), GD_TABLE_ENCODER_DEFAULTS, .target = "y", .max_categories = 2) \
    _(gd_table_options, of_table(o), GD_TABLE_DEFAULTS, .separator = ";", .header = 0) \
    _(gd_token_dataset_options, of_tokens(e, o), GD_TOKEN_DATASET_DEFAULTS, .length = 5) \
    _(gd_training, of_status(gd_training_save(o, "/tmp/no/such/folder")), GD_TRAINING_DEFAULTS, .metadata_count = 1) \
    _(gd_transformer_config, of_tensor(gd_nn_decoder_only(e->m, "model", e->index, o)), GD_TRANSFORMER_CONFIG_DEFAULTS, .width = 8, .heads = 2, .layers = 1, .vocabulary = 4, .max_length = 8) \
    _(gd_triplet_margin_options, of_tensor(gd_triplet_margin_with(rows(e), gd_exp(rows(e)), gd_sigmoid(rows(e)), o)), GD_TRIPLET_MARGIN_DEFAULTS)
/* clang-format on */

#define CALL(type, call, ...)                                \
    static uint64_t call_##type(env *e, const void *options) \
    {                                                        \
        (void)e;                                             \
        const type *o = options;                             \
        return call;                                         \
    }                                                        \
    static void give_##type(void *to)                        \
    {                                                        \
        const type given = { __VA_ARGS__ };                  \
        memcpy(to, &given, sizeof given);                    \
    }
CASES(CALL)

typedef struct option_case {
    const char *type;
    void (*give)(void *to);
    size_t size;
    uint64_t (*call)(env *e, const void *options);
} option_case;

#define ROW(type, ...) { #type, give_##type, sizeof(type), call_##type },
static const option_case cases[] = { CASES(ROW) };
enum { CASE_COUNT = sizeof cases / sizeof *cases };

static const option_case *find_case(const char *type)
{
    for (int i = 0; i < CASE_COUNT; i++)
        if (strcmp(cases[i].type, type) == 0)
            return &cases[i];
    return NULL;
}

/* What a call did, with the words of the error it recorded. */
static uint64_t run(env *e, const option_case *c, const void *options)
{
    gd_error_clear();
    uint64_t hash = 31 * c->call(e, options);
    hash = add_bytes(hash, gd_error_message(), strlen(gd_error_message()));
    gd_error_clear();
    return hash;
}

/* The first `size` bytes of what is given: by a caller who has no more, behind whose struct is
 * something else; and by one who has all members, with the defaults in the others. */
static void compare(env *e, const option_case *c, size_t size)
{
    unsigned char *older = malloc(c->size), *whole = malloc(c->size);
    assert_true(older && whole);
    c->give(older);
    assert_int_equal(gd_options_default(c->type, whole, c->size), GD_OK);
    memcpy(whole + sizeof size, older + sizeof size, size - sizeof size);
    memcpy(older, &size, sizeof size);
    memset(older + size, 0x55, c->size - size);
    gd_scope_begin(e->gd);
    const uint64_t expected = run(e, c, whole);
    if (run(e, c, older) != expected)
        fail_msg("%s of %zu bytes is read otherwise than with the defaults behind them", c->type,
                 size);
    gd_scope_end(e->gd);
    free(older);
    free(whole);
}

static void structs_of_older_programs_are_read(void **state)
{
    gd_context *gd = *state;
    env e = { .gd = gd, .m = gd_module_create(gd, .seed = 2) };
    e.x = gd_uniform(gd, GD_SHAPE(2, 4, 8), -1, 1, GD_F32);
    e.index = gd_reshape(gd_mod_scalar(gd_arange(gd, 0, 8, 1, GD_I64), 4), GD_SHAPE(2, 4));
    size_t size;
    for (size_t i = 0; gd_options_type(i, &size); i++) {
        const option_case *c = find_case(gd_options_type(i, &size));
        if (!c)
            fail_msg("%s has no call here", gd_options_type(i, &size));
        assert_int_equal(c->size, size);
        for (size_t prefix = sizeof(size_t); prefix <= size; prefix += 8)
            compare(&e, c, prefix);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(structs_of_older_programs_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
