/* tests/test_layers.c: layers with parameters (gradus/layers.h) and every type of layer of a model
 * as data: shapes, parameter counts and values against PyTorch, training against use, JSON there
 * and back, the builder, errors. Initial values are in test_init.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define SHAPE(...)                                                   \
    {                                                                \
        (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
        {                                                            \
            __VA_ARGS__                                              \
        }                                                            \
    }

/* ---- against PyTorch ---- */

typedef struct layer_golden {
    const char *model; /* JSON, a model of one layer */
    const char *call;
    int64_t batch, parameters;
    bool training;
    gd_shape output;
    int first; /* of layer_values */
} layer_golden;
#include "goldens/layers.h"

/* Element i of a tensor, by what it is; as fill() of make_layers.py. */
static double fill(const char *kind, int64_t i)
{
    double k = (double)i;
    if (strcmp(kind, "input") == 0)
        return sin(k * 1.3) * 2;
    if (strcmp(kind, "weight") == 0)
        return sin(k * 0.7 + 0.5) * 0.5;
    if (strcmp(kind, "bias") == 0)
        return cos(k) * 0.25;
    if (strcmp(kind, "running_mean") == 0)
        return sin(k + 1) * 0.1;
    if (strcmp(kind, "running_var") == 0)
        return 1 + 0.5 * cos(k);
    assert_string_equal(kind, "slope");
    return 0.1 + 0.05 * k;
}

static void fill_tensor(gd_tensor *t, const char *kind)
{
    float values[256];
    int64_t count = gd_tensor_count(t);
    assert_true(count <= COUNT(values));
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)fill(kind, i);
    assert_int_equal(gd_tensor_write(t, values, (size_t)count * sizeof(float)), GD_OK);
}

static void fill_module(gd_module *m)
{
    for (int i = 0; i < gd_module_count(m); i++)
        fill_tensor(gd_module_tensor(m, i), strrchr(gd_module_path(m, i), '.') + 1);
}

static gd_tensor *input_of(gd_context *gd, const gd_model *model, int64_t batch, bool indices)
{
    gd_shape one = gd_model_input_shape(model, 0),
             shape = { .rank = one.rank + 1, .dim = { batch } };
    for (int i = 0; i < one.rank; i++)
        shape.dim[i + 1] = one.dim[i];
    gd_tensor *x = gd_zeros(gd, shape, GD_F32);
    fill_tensor(x, "input");
    return indices ? gd_reshape(gd_arange(gd, 0, (double)gd_tensor_count(x), 1, GD_F32), shape) : x;
}

static gd_tensor *apply(gd_context *gd, gd_model *model, const layer_golden *row)
{
    if (!model)
        print_error("%s\n%s\n", row->model, gd_error_message());
    assert_non_null(model);
    gd_module *m = gd_model_module(model);
    fill_module(m);
    gd_module_set_training(m, row->training);
    return gd_model_forward(
        model, input_of(gd, model, row->batch, strstr(row->model, "embedding") != NULL));
}

static void check_values(const layer_golden *row, gd_tensor *y)
{
    float values[256];
    gd_shape shape = gd_tensor_shape(y);
    assert_int_equal(shape.rank, row->output.rank);
    for (int i = 0; i < shape.rank; i++)
        assert_int_equal(shape.dim[i], row->output.dim[i]);
    int64_t count = gd_tensor_count(y);
    assert_int_equal(gd_tensor_read(y, values, (size_t)count * sizeof(float)), GD_OK);
    for (int64_t i = 0; i < count; i++) {
        double expected = layer_values[row->first + i];
        if (!(fabs((double)values[i] - expected) <= 3e-6 * (1 + fabs(expected))))
            fail_msg("%s: element %lld is %.9g, expected %.9g", row->call, (long long)i,
                     (double)values[i], expected);
    }
}

/* Every type gives PyTorch's shape, count of parameters and values. */
static void test_types_as_torch(void **state)
{
    gd_context *gd = *state;
    need_json();
    for (int r = 0; r < COUNT(layer_goldens); r++) {
        const layer_golden *row = &layer_goldens[r];
        gd_model *model = gd_model_load_json(gd, row->model);
        gd_tensor *y = apply(gd, model, row);
        if (!y)
            fail_msg("%s: %s", row->model, gd_error_message());
        check_values(row, y);
        assert_int_equal(gd_module_parameter_count(gd_model_module(model)), row->parameters);
        gd_model_release(model);
    }
}

/* Each model written as JSON and read back is the same: the text, and the result's bits. */
static void test_json_there_and_back(void **state)
{
    gd_context *gd = *state;
    need_json();
    for (int r = 0; r < COUNT(layer_goldens); r++) {
        const layer_golden *row = &layer_goldens[r];
        char first[2048], second[2048];
        gd_model *model = gd_model_load_json(gd, row->model);
        size_t length = gd_model_format_json(model, first, sizeof first);
        assert_true(length > 0 && length < sizeof first);
        gd_model *back = gd_model_load_json(gd, first);
        if (!back)
            fail_msg("%s\n%s", first, gd_error_message());
        assert_int_equal(gd_model_format_json(back, second, sizeof second), length);
        assert_string_equal(first, second);
        float a[256], b[256];
        gd_tensor *y = apply(gd, model, row), *z = apply(gd, back, row);
        size_t bytes = (size_t)gd_tensor_count(y) * sizeof(float);
        assert_int_equal(gd_tensor_read(y, a, bytes), GD_OK);
        assert_int_equal(gd_tensor_read(z, b, bytes), GD_OK);
        assert_memory_equal(a, b, bytes);
        assert_int_equal(gd_model_format_json(model, second, 5), length); /* as snprintf */
        assert_int_equal(strlen(second), 4);
        gd_model_release(model);
        gd_model_release(back);
    }
}

static gd_tensor *summed(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_model_forward(user, in[0]);
    return gd_sum(gd_square(y), GD_ALL_AXES, false);
}

/* Compiled, a model gives the bits of eager execution, and every parameter has a gradient. */
static void test_types_compiled(void **state)
{
    gd_context *gd = *state;
    need_json();
    for (int r = 0; r < COUNT(layer_goldens); r++) {
        const layer_golden *row = &layer_goldens[r];
        gd_model *model = gd_model_load_json(gd, row->model);
        gd_module *m = gd_model_module(model);
        fill_module(m);
        gd_module_set_training(m, row->training && !strstr(row->model, "batch_norm"));
        gd_tensor *x = input_of(gd, model, row->batch, strstr(row->model, "embedding") != NULL);
        gd_tensor *eager = summed(model, 1, &x);
        gd_function *f = gd_compile(gd, summed, model);
        gd_tensor *compiled = gd_call(f, 1, &x);
        assert_non_null(compiled);
        assert_true(gd_item(eager) == gd_item(compiled));
        if (gd_module_parameter_count(m))
            assert_int_equal(gd_backward(eager), GD_OK);
        for (int i = 0; i < gd_module_count(m); i++)
            if (gd_module_is_parameter(m, i))
                assert_non_null(gd_gradient(gd_module_tensor(m, i)));
        gd_model_release(model);
    }
}

/* ---- training and use ---- */

static void test_batch_norm_statistics(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd);
    const float numbers[8] = { 1, 2, 3, 4, 10, 20, 30, 40 };
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(4, 2), GD_F32, numbers);
    assert_non_null(gd_nn_batch_norm(m, "norm", x, .momentum = 0.5));
    /* means 11 and 16.5; variances of the sample, by n - 1 */
    double mean = 0.5 * 11, var = 0.5 + 0.5 * ((100.0 + 64 + 1 + 361) / 3);
    assert_true(fabs(gd_item(gd_select(gd_module_parameter(m, "norm.running_mean"), 0, 0)) - mean) <
                1e-5);
    assert_true(fabs(gd_item(gd_select(gd_module_parameter(m, "norm.running_var"), 0, 0)) - var) <
                1e-4);
    gd_module_set_training(m, false);
    gd_tensor *y = gd_nn_batch_norm(m, "norm", x);
    assert_true(fabs(gd_item(gd_select(gd_select(y, 0, 0), 0, 0)) - (1 - mean) / sqrt(var + 1e-5)) <
                1e-5);
    assert_true(fabs(gd_item(gd_select(gd_module_parameter(m, "norm.running_mean"), 0, 0)) - mean) <
                1e-5);
    assert_int_equal(gd_module_parameter_count(m), 4);
}

/* Share of zeros of t. */
static double share_of_zeros(gd_tensor *t)
{
    return gd_item(gd_mean(gd_eq(t, gd_zeros_like(t)), GD_ALL_AXES, false));
}

static void test_dropout(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(100, 100), GD_F32);
    gd_tensor *y = gd_nn_dropout(m, "drop", x, 0.25);
    assert_true(fabs(share_of_zeros(y) - 0.25) < 0.03);
    assert_true(fabs(gd_item(gd_max(y, GD_ALL_AXES, false)) - 1 / 0.75) < 1e-6);
    assert_ptr_equal(gd_nn_dropout(m, "drop", x, 0), x);
    gd_module_set_training(m, false);
    assert_ptr_equal(gd_nn_dropout(m, "drop", x, 0.25), x);
    assert_int_equal(gd_module_count(m), 0);
}

/* Weights are dropped, not results: with one input of 1 each result is a weight, 0 or twice itself.
 */
static void test_drop_connect(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd, .seed = 3);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3, 1), GD_F32);
    gd_tensor *y = gd_nn_drop_connect(m, "fc", x, 2000, 0.5);
    assert_true(fabs(share_of_zeros(y) - 0.5) < 0.06);
    /* every row of the batch sees the same weights */
    assert_true(
        gd_item(gd_all(gd_eq(gd_select(y, 0, 0), gd_select(y, 0, 2)), GD_ALL_AXES, false)) == 1);
    gd_module_set_training(m, false);
    y = gd_nn_drop_connect(m, "fc", x, 2000, 0.5);
    gd_tensor *w = gd_module_parameter(m, "fc.weight");
    assert_true(
        gd_item(gd_all(gd_eq(gd_select(y, 0, 0), gd_select(w, 0, 0)), GD_ALL_AXES, false)) == 1);
}

/* Making a model neither updates statistics nor draws random numbers. */
static void test_making_a_model_has_no_effects(void **state)
{
    gd_context *gd = *state;
    need_json();
    gd_model *model = gd_model_load_json(
        gd, "{ \"input\": [3], \"layers\": ["
            "{ \"name\": \"norm\", \"type\": \"batch_norm\" },"
            "{ \"name\": \"drop\", \"type\": \"dropout\", \"dropout\": 0.5 } ] }");
    gd_module *m = gd_model_module(model);
    assert_true(gd_module_is_training(m));
    assert_true(gd_item(gd_min(gd_module_parameter(m, "norm.running_var"), GD_ALL_AXES, false)) ==
                1);
    gd_tensor *drawn = gd_uniform(gd, GD_SCALAR, 0, 1, GD_F32);
    gd_seed(gd, 0);
    assert_true(gd_item(drawn) == gd_item(gd_uniform(gd, GD_SCALAR, 0, 1, GD_F32)));
}

/* ---- layers as functions ---- */

/* Parameters are shared by name, and saved and loaded with buffers. */
static void test_names_are_parameters(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd, .seed = 1);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2, 3, 8, 8), GD_F32);
    gd_tensor *y =
        gd_nn_conv2d(m, "conv", x, 4, GD_SHAPE(3), .padding = GD_SHAPE(1), .stride = GD_SHAPE(2));
    gd_tensor *z =
        gd_nn_conv2d(m, "conv", x, 4, GD_SHAPE(3), .padding = GD_SHAPE(1), .stride = GD_SHAPE(2));
    assert_true(gd_item(gd_all(gd_eq(y, z), GD_ALL_AXES, false)) == 1);
    assert_int_equal(gd_module_count(m), 2);
    y = gd_nn_batch_norm(m, "norm", y);
    assert_int_equal(gd_module_count(m), 6);
    assert_int_equal(gd_module_parameter_count(m), 4 * 3 * 9 + 4 + 8);
    char text[1024];
    gd_module_summary(m, text, sizeof text);
    assert_non_null(strstr(text, "conv2d"));
    assert_non_null(strstr(text, "[2, 4, 4, 4]"));
    assert_non_null(strstr(text, "112"));
}

static void test_layer_errors(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2, 3, 8, 8), GD_F32), *none = NULL;
    gd_module *no_module = NULL;
    assert_null(gd_nn_conv2d(m, "conv", none, 4, GD_SHAPE(3)));
    assert_null(gd_nn_conv2d(no_module, "conv", x, 4, GD_SHAPE(3)));
    assert_null(gd_nn_batch_norm(m, "norm", none));
    assert_null(gd_nn_dropout(m, "drop", none, 0.5));
    assert_null(gd_nn_prelu(no_module, "act", x, false));
    assert_null(gd_nn_embedding(m, "table", none, 3, 4));
    assert_int_equal(gd_error_code(), GD_OK);
    assert_null(gd_nn_conv2d(m, "", x, 4, GD_SHAPE(3)));
    expect_error(GD_ERR_INVALID, "the name is empty");
    assert_null(gd_nn_conv2d(m, "conv", x, 0, GD_SHAPE(3)));
    expect_error(GD_ERR_INVALID, "\"conv\" has 0 channels");
    assert_null(gd_nn_conv2d(m, "conv", x, 4, GD_SHAPE(0)));
    expect_error(GD_ERR_INVALID, "the kernel of \"conv\" is 0");
    assert_null(gd_nn_conv1d(m, "conv", x, 4, GD_SHAPE(3)));
    expect_error(GD_ERR_SHAPE, "the input of \"conv\" is [2, 3, 8, 8]");
    assert_null(gd_nn_conv2d(m, "conv", x, 4, GD_SHAPE(3), .groups = 2));
    expect_error(GD_ERR_SHAPE, "\"conv\" takes 3 channels to 4: 2 groups");
    assert_null(gd_nn_conv2d(m, "conv", gd_cast(x, GD_I32), 4, GD_SHAPE(3)));
    expect_error(GD_ERR_DTYPE, "\"conv\" is i32");
    const int64_t long_side = INT64_C(1) << 20; /* weights of more than 63 bits */
    gd_tensor *volume = gd_ones(gd, GD_SHAPE(1, 3, 2, 2, 2), GD_F32);
    assert_null(gd_nn_conv3d(m, "conv", volume, INT64_C(1) << 31, GD_SHAPE(long_side)));
    expect_error(GD_ERR_SHAPE, "the weight of \"conv\" would be [2147483648, 3, 1048576, ");
    gd_tensor *sequence = gd_ones(gd, GD_SHAPE(1, 2, 3), GD_F32);
    assert_null(gd_nn_lstm(m, "lstm", sequence, INT64_MAX / 2));
    expect_error(GD_ERR_INVALID, "\"lstm\": 4611686018427387903 units");
    assert_null(gd_nn_multi_head_attention(m, "attend", sequence, INT64_C(1) << 32,
                                           .head_width = INT64_C(1) << 32));
    expect_error(GD_ERR_INVALID, "\"attend\": 4294967296 heads, 4294967296 of keys");
    assert_null(gd_nn_conv_transpose3d(m, "conv", volume, 1, GD_SHAPE(long_side)));
    expect_error(GD_ERR_SHAPE, "the weight of \"conv\" would be [3, 1, 1048576, ");
    assert_int_equal(gd_module_count(m), 0);
    assert_non_null(gd_nn_conv2d(m, "conv", x, 4, GD_SHAPE(3)));
    assert_null(gd_nn_conv2d(m, "conv", x, 4, GD_SHAPE(5)));
    expect_error(
        GD_ERR_SHAPE,
        "\"conv.weight\" is [4, 3, 3, 3], but this input and these options need [4, 3, 5, 5]");
    assert_null(gd_nn_conv2d(m, "conv", x, 4, GD_SHAPE(3), .bias = false));
    expect_error(GD_ERR_SHAPE, "more parameters");
    assert_null(gd_nn_batch_norm(m, "conv", x));
    expect_error(GD_ERR_INVALID, "\"conv\" is a layer of type conv2d already");
    assert_null(gd_nn_group_norm(m, "norm", x, 0));
    expect_error(GD_ERR_INVALID, "\"norm\" has 0 groups");
    assert_null(gd_nn_layer_norm(m, "norm", x, .axes = 5));
    expect_error(GD_ERR_SHAPE, "\"norm\" normalises 5 axes");
    assert_null(gd_nn_dropout(m, "drop", x, 1));
    expect_error(GD_ERR_INVALID, "the probability of \"drop\" is 1");
    assert_null(gd_nn_drop_connect(m, "drop", x, 0, 0.5));
    expect_error(GD_ERR_INVALID, "\"drop\" has 0 units");
    assert_null(gd_nn_embedding(m, "table", gd_arange(gd, 0, 3, 1, GD_I64), 0, 4));
    expect_error(GD_ERR_INVALID, "\"table\" has 0 rows");
}

/* ---- zero is a value ---- */

static gd_model *model_of(gd_context *gd, gd_shape input, gd_layer_spec layer)
{
    gd_model_spec spec = { GD_MODEL_SPEC_DEFAULTS, .input = input, .layer_count = 1,
                           .layers = &layer };
    return gd_model_create(gd, &spec);
}

static void test_zero_in_specs(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_normal(gd, GD_SHAPE(4, 3, 2), 0, 1, GD_F32);
    const gd_shape input = GD_SHAPE(3, 2);
    static const char *const types[] = { "leaky_relu", "elu" };
    for (int i = 0; i < 2; i++) {
        gd_layer_spec layer = { GD_LAYER_SPEC_DEFAULTS, .name = "a", .type = types[i] };
        gd_tensor *usual = gd_model_forward(model_of(gd, input, layer), x);
        layer.alpha = 0;
        gd_tensor *flat = gd_model_forward(model_of(gd, input, layer), x);
        gd_tensor *apart = gd_abs(gd_sub(flat, gd_relu(x)));
        assert_true(gd_item(gd_max(apart, GD_ALL_AXES, false)) == 0);
        assert_true(gd_item(gd_min(usual, GD_ALL_AXES, false)) < 0);
    }
    gd_layer_spec drop = { GD_LAYER_SPEC_DEFAULTS, .name = "a", .type = "dropout" };
    assert_null(model_of(gd, input, drop));
    expect_error(GD_ERR_INVALID, "type dropout needs \"dropout\"");
    drop.dropout = 0;
    assert_same_bits(gd_model_forward(model_of(gd, input, drop), x), x);
    gd_layer_spec softmax = { GD_LAYER_SPEC_DEFAULTS, .name = "a", .type = "softmax", .axis = 0 };
    assert_null(model_of(gd, input, softmax));
    expect_error(GD_ERR_SHAPE, "axis 0 is not one of the input's");
    gd_layer_spec forward = { GD_LAYER_SPEC_DEFAULTS, .name = "a", .type = "feed_forward",
                              .hidden = 0 };
    assert_null(model_of(gd, input, forward));
    expect_error(GD_ERR_INVALID, "\"hidden\" is 0, it must be at least 1");
    gd_layer_spec group = { GD_LAYER_SPEC_DEFAULTS, .name = "a", .type = "group_norm" };
    assert_null(model_of(gd, input, group));
    expect_error(GD_ERR_INVALID, "type group_norm needs \"groups\"");
    gd_layer_spec nobody = { .name = "a", .type = "relu" };
    assert_null(model_of(gd, input, nobody));
    expect_error(GD_ERR_INVALID, "gd_layer_spec: the options have size 0");
}

/* A batch norm whose momentum is 0 keeps its statistics; of 0 and no epsilon it makes 0 / 0; a
 * weight whose scale is 0 is 0. */
static void test_zero_in_layers(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd);
    gd_tensor *x = gd_normal(gd, GD_SHAPE(8, 3), 5, 2, GD_F32);
    assert_non_null(gd_nn_batch_norm(m, "still", x, .momentum = 0));
    gd_tensor *mean = gd_module_parameter(m, "still.running_mean");
    assert_same_bits(mean, gd_zeros(gd, GD_SHAPE(3), GD_F32));
    assert_non_null(gd_nn_batch_norm(m, "moving", x));
    mean = gd_module_parameter(m, "moving.running_mean");
    assert_true(gd_item(gd_min(mean, GD_ALL_AXES, false)) > 0.1);
    gd_tensor *nothing = gd_zeros(gd, GD_SHAPE(2, 3), GD_F32);
    assert_true(isnan(
        gd_item(gd_max(gd_nn_rms_norm(m, "rms", nothing, .epsilon = 0), GD_ALL_AXES, false))));
    assert_same_bits(gd_nn_rms_norm(m, "rms", nothing), nothing);
    gd_tensor *y = gd_nn_linear(m, "flat", x, 4, .init_scale = 0);
    assert_same_bits(y, gd_zeros(gd, GD_SHAPE(8, 4), GD_F32));
}

/* Specs of a caller compiled against a version with further members: as large as the first says. */
static void test_specs_of_another_size(void **state)
{
    gd_context *gd = *state;
    struct {
        gd_layer_spec layer;
        int64_t more;
    } layers[3] = { { { GD_LAYER_SPEC_DEFAULTS, .name = "a", .type = "linear", .units = 5 }, 0 },
                    { { GD_LAYER_SPEC_DEFAULTS, .name = "b", .type = "relu" }, 0 },
                    { { GD_LAYER_SPEC_DEFAULTS, .name = "c", .type = "linear", .units = 2 }, 0 } };
    for (int i = 0; i < 3; i++)
        layers[i].layer.size = sizeof layers[i];
    gd_model_spec spec = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(3), .layer_count = 3,
                           .layers = &layers[0].layer };
    gd_model *model = gd_model_create(gd, &spec);
    assert_non_null(model);
    assert_int_equal(gd_module_parameter_count(gd_model_module(model)), 3 * 5 + 5 + 5 * 2 + 2);
    layers[1].more = 1;
    assert_null(gd_model_create(gd, &spec));
    expect_error(GD_ERR_UNSUPPORTED, "set what this version");
}

/* What is written is what is not the default, zeros and false included, and it is read back. */
static void test_written_specs(void **state)
{
    gd_context *gd = *state;
    need_json();
    gd_model *model = gd_model_load_json(
        gd, "{ \"input\": [3, 8], \"layers\": ["
            "{ \"name\": \"a\", \"type\": \"leaky_relu\", \"alpha\": 0 },"
            "{ \"name\": \"b\", \"type\": \"linear\", \"units\": 4, \"bias\": false },"
            "{ \"name\": \"c\", \"type\": \"dropout\", \"dropout\": 0 },"
            "{ \"name\": \"d\", \"type\": \"layer_norm\", \"bias\": true, \"axes\": 1 } ] }");
    char text[2048];
    assert_true(gd_model_format_json(model, text, sizeof text) > 0);
    assert_non_null(strstr(text, "\"alpha\": 0.0"));
    assert_non_null(strstr(text, "\"bias\": false"));
    assert_non_null(strstr(text, "\"dropout\": 0.0"));
    assert_null(strstr(text, "\"bias\": true"));
    assert_null(strstr(text, "axes"));
    assert_null(strstr(text, "epsilon"));
    gd_model *back = gd_model_load_json(gd, text);
    gd_tensor *x = gd_normal(gd, GD_SHAPE(2, 3, 8), 0, 1, GD_F32);
    assert_same_bits(gd_model_forward(back, x), gd_model_forward(model, x));
    assert_null(gd_model_load_json(gd,
                                   "{ \"input\": [3], \"layers\": [ { \"name\": \"a\", "
                                   "\"type\": \"linear\", \"units\": 2, \"no_bias\": true } ] }"));
    expect_error(GD_ERR_FORMAT, "there is no key \"no_bias\"");
}

/* ---- the builder ---- */

static void test_builder(void **state)
{
    gd_context *gd = *state;
    char name[8] = "c1"; /* the builder copies */
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(1, 8, 8), .seed = 4);
    assert_int_equal(gd_model_add(b, name, "conv2d", .channels = 2, .kernel = GD_SHAPE(3),
                                  .same = true, .activation = "relu"),
                     GD_OK);
    name[0] = 'x';
    assert_int_equal(gd_model_add(b, "c2", "conv2d", .inputs = { "c1" }, .channels = 2,
                                  .kernel = GD_SHAPE(3, 3), .padding = GD_SHAPE(1)),
                     GD_OK);
    assert_int_equal(gd_model_add(b, "sum", "add", .inputs = { "c1", "c2" }), GD_OK);
    assert_int_equal(gd_model_add(b, "mean", "global_avg_pool"), GD_OK);
    assert_int_equal(gd_model_add(b, "out", "linear", .units = 3), GD_OK);
    gd_model *model = gd_model_end(b);
    assert_non_null(model);
    assert_int_equal(gd_module_parameter_count(gd_model_module(model)), 2 * 9 + 2 + 4 * 9 + 2 + 9);
    gd_tensor *y = gd_model_forward(model, gd_ones(gd, GD_SHAPE(5, 1, 8, 8), GD_F32));
    assert_int_equal(gd_tensor_shape(y).dim[1], 3);
    char text[1024];
    gd_module_summary(gd_model_module(model), text, sizeof text);
    assert_non_null(strstr(text, "conv2d + relu"));
    assert_non_null(strstr(text, "[batch, 2, 8, 8]"));
}

static void test_builder_errors(void **state)
{
    gd_context *gd = *state, *none = NULL;
    assert_null(gd_model_begin(none, GD_SHAPE(1)));
    assert_null(gd_model_end(NULL));
    assert_int_equal(gd_error_code(), GD_OK);
    assert_int_equal(gd_model_add(NULL, "a", "relu"), GD_ERR_INVALID);
    gd_error_clear();
    assert_null(gd_model_end(gd_model_begin(gd, GD_SHAPE(4))));
    expect_error(GD_ERR_INVALID, "there are 0 layers");
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(4));
    gd_model_add(b, "a", "conv2d", .channels = 4, .kernel = GD_SHAPE(3));
    assert_null(gd_model_end(b));
    expect_error(GD_ERR_SHAPE, "layer \"a\" (conv2d)");
    assert_non_null(gd_model_begin(gd, GD_SHAPE(4))); /* left to the context */
}

/* ---- errors of models name the layer ---- */

typedef struct bad_layer {
    const char *layer; /* the rest of an object after its name */
    gd_status status;
    const char *words;
} bad_layer;

static const bad_layer bad_layers[] = {
    { "\"type\": \"conv2d\", \"kernel\": 3", GD_ERR_INVALID,
      "layer \"a\": type conv2d needs \"channels\"" },
    { "\"type\": \"conv2d\", \"channels\": 3", GD_ERR_INVALID,
      "layer \"a\": type conv2d needs \"kernel\"" },
    { "\"type\": \"conv2d\", \"channels\": 3, \"kernel\": 9", GD_ERR_SHAPE,
      "layer \"a\" (conv2d): " },
    { "\"type\": \"conv2d\", \"channels\": 3, \"kernel\": [1, 2, 3]", GD_ERR_INVALID,
      "the kernel of \"a\" has 3 sizes" },
    { "\"type\": \"conv2d\", \"channels\": 3, \"kernel\": []", GD_ERR_FORMAT,
      "layer \"a\": \"kernel\" must be" },
    { "\"type\": \"conv2d\", \"channels\": 3, \"kernel\": \"same\"", GD_ERR_FORMAT,
      "\"kernel\" must be" },
    { "\"type\": \"conv2d\", \"channels\": 3, \"kernel\": 3, \"padding\": \"valid\"", GD_ERR_FORMAT,
      "\"padding\" must be a number, a list, or \"same\"" },
    { "\"type\": \"conv2d\", \"channels\": 3, \"kernel\": 3, \"groups\": 2", GD_ERR_SHAPE,
      "2 groups do not divide" },
    { "\"type\": \"conv2d\", \"channels\": 0, \"kernel\": 3", GD_ERR_FORMAT,
      "\"channels\" must be" },
    { "\"type\": \"conv2d\", \"channels\": 3, \"kernel\": -3", GD_ERR_INVALID,
      "the kernel of \"a\" is -3" },
    { "\"type\": \"conv2d\", \"channels\": 3, \"kernel\": 3, \"stride\": -1", GD_ERR_INVALID,
      "layer \"a\" (conv2d)" },
    { "\"type\": \"conv1d\", \"channels\": 3, \"kernel\": 3", GD_ERR_SHAPE,
      "layer \"a\" (conv1d)" },
    { "\"type\": \"max_pool2d\", \"kernel\": 2, \"padding\": \"same\"", GD_ERR_INVALID,
      "not \"same\"" },
    { "\"type\": \"max_pool2d\", \"kernel\": 9", GD_ERR_SHAPE, "layer \"a\" (max_pool2d)" },
    { "\"type\": \"max_pool2d\"", GD_ERR_INVALID, "needs \"kernel\"" },
    { "\"type\": \"relu\", \"kernel\": 2", GD_ERR_INVALID, "type relu does not use \"kernel\"" },
    { "\"type\": \"dropout\", \"dropout\": 1.5", GD_ERR_INVALID, "layer \"a\" (dropout): " },
    { "\"type\": \"dropout\", \"dropout\": \"half\"", GD_ERR_FORMAT,
      "\"dropout\" must be a number" },
    { "\"type\": \"dropout\"", GD_ERR_INVALID, "needs \"dropout\"" },
    { "\"type\": \"group_norm\", \"groups\": 4", GD_ERR_SHAPE,
      "3 channels do not divide into 4 groups" },
    { "\"type\": \"layer_norm\", \"axes\": 4", GD_ERR_SHAPE, "layer \"a\" (layer_norm): 4 axes" },
    { "\"type\": \"layer_norm\", \"axes\": 99", GD_ERR_FORMAT, "\"axes\" must be" },
    { "\"type\": \"batch_norm\", \"affine\": 1", GD_ERR_FORMAT,
      "\"affine\" must be true or false" },
    { "\"type\": \"batch_norm\", \"epsilon\": -1", GD_ERR_INVALID, "epsilon is -1" },
    { "\"type\": \"adaptive_avg_pool\", \"shape\": [2]", GD_ERR_SHAPE,
      "layer \"a\" (adaptive_avg_pool)" },
    { "\"type\": \"linear\", \"units\": 2, \"init\": \"best\"", GD_ERR_FORMAT, "truncated_normal" },
    { "\"type\": \"linear\", \"units\": 2, \"depth\": 2", GD_ERR_FORMAT,
      "there is no key \"depth\"" },
};

static void test_model_errors(void **state)
{
    gd_context *gd = *state;
    need_json();
    for (int i = 0; i < COUNT(bad_layers); i++) {
        char model[256];
        snprintf(model, sizeof model,
                 "{ \"input\": [3, 8, 8], \"layers\": [ { \"name\": \"a\", %s } ] }",
                 bad_layers[i].layer);
        gd_model *made = gd_model_load_json(gd, model);
        if (made)
            fail_msg("%s was taken", model);
        expect_error(bad_layers[i].status, bad_layers[i].words);
    }
}

/* ---- layers as C functions, against the functional forms ---- */

static gd_tensor *numbers(gd_context *gd, gd_shape shape)
{
    return gd_normal(gd, shape, 0, 1, GD_F32);
}

static void test_functional_forms(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd, .seed = 2);
    gd_tensor *line = numbers(gd, GD_SHAPE(2, 4, 9)), *box = numbers(gd, GD_SHAPE(2, 4, 5, 6, 4));
    gd_tensor *c1 =
        gd_nn_conv1d(m, "c1", line, 6, GD_SHAPE(3), .stride = GD_SHAPE(2), .same = true);
    gd_tensor *c3 = gd_nn_conv3d(m, "c3", box, 6, GD_SHAPE(2), .padding = GD_SHAPE(1), .groups = 2);
    gd_tensor *t1 = gd_nn_conv_transpose1d(m, "t1", line, 6, GD_SHAPE(3), .stride = GD_SHAPE(2),
                                           .output_padding = GD_SHAPE(1));
    gd_tensor *t3 =
        gd_nn_conv_transpose3d(m, "t3", box, 2, GD_SHAPE(3), .padding = GD_SHAPE(1), .bias = false);
#define PART(path) gd_module_parameter(m, path)
    assert_same_bits(c1, gd_conv1d(line, PART("c1.weight"), PART("c1.bias"), .stride = GD_SHAPE(2),
                                   .same = true));
    assert_same_bits(c3, gd_conv3d(box, PART("c3.weight"), PART("c3.bias"), .padding = GD_SHAPE(1),
                                   .groups = 2));
    assert_same_bits(t1, gd_conv_transpose1d(line, PART("t1.weight"), PART("t1.bias"),
                                             .stride = GD_SHAPE(2), .output_padding = GD_SHAPE(1)));
    assert_same_bits(t3, gd_conv_transpose3d(box, PART("t3.weight"), NULL, .padding = GD_SHAPE(1)));
    gd_tensor *in = gd_nn_instance_norm(m, "in", box, .epsilon = 1e-3);
    gd_tensor *rms = gd_nn_rms_norm(m, "rms", box, .axes = 2);
    assert_same_bits(in,
                     gd_instance_norm(box, PART("in.weight"), PART("in.bias"), .epsilon = 1e-3));
    assert_same_bits(rms, gd_rms_norm(box, PART("rms.weight"), .axes = 2));
#undef PART
    assert_int_equal(gd_module_parameter_count(m), /* c1, c3, t1, t3, in, rms */
                     6 * 4 * 3 + 6 + 6 * 2 * 8 + 6 + 4 * 6 * 3 + 6 + 4 * 2 * 27 + 2 * 4 + 6 * 4);
}

/* A line is a plane of one row, and a plane a box of one layer. */
static void test_pooling_along_one_and_three_axes(void **state)
{
    gd_context *gd = *state;
    gd_tensor *line = numbers(gd, GD_SHAPE(2, 3, 9)), *plane = gd_unsqueeze(line, 2);
    gd_tensor *box = gd_unsqueeze(plane, 2);
    assert_same_bits(
        gd_max_pool1d(line, GD_SHAPE(3), .stride = GD_SHAPE(2), .padding = GD_SHAPE(1)),
        gd_max_pool3d(box, GD_SHAPE(1, 1, 3), .stride = GD_SHAPE(1, 1, 2),
                      .padding = GD_SHAPE(0, 0, 1)));
    assert_same_bits(
        gd_avg_pool1d(line, GD_SHAPE(3), .stride = GD_SHAPE(2), .padding = GD_SHAPE(1)),
        gd_avg_pool3d(box, GD_SHAPE(1, 1, 3), .stride = GD_SHAPE(1, 1, 2),
                      .padding = GD_SHAPE(0, 0, 1)));
    assert_same_bits(gd_adaptive_avg_pool1d(line, 4), gd_adaptive_avg_pool2d(plane, 1, 4));
    assert_same_bits(gd_adaptive_avg_pool1d(line, 4), gd_adaptive_avg_pool3d(box, 1, 1, 4));
    assert_same_bits(gd_adaptive_max_pool1d(line, 4), gd_adaptive_max_pool2d(plane, 1, 4));
    assert_same_bits(gd_adaptive_max_pool1d(line, 4), gd_adaptive_max_pool3d(box, 1, 1, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(test_types_as_torch),
        context_test(test_json_there_and_back),
        context_test(test_types_compiled),
        context_test(test_batch_norm_statistics),
        context_test(test_dropout),
        context_test(test_drop_connect),
        context_test(test_making_a_model_has_no_effects),
        context_test(test_names_are_parameters),
        context_test(test_layer_errors),
        context_test(test_zero_in_specs),
        context_test(test_zero_in_layers),
        context_test(test_specs_of_another_size),
        context_test(test_written_specs),
        context_test(test_builder),
        context_test(test_builder_errors),
        context_test(test_model_errors),
        context_test(test_functional_forms),
        context_test(test_pooling_along_one_and_three_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
