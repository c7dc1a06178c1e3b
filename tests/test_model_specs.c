/* tests/test_model_specs.c: models as data, by builder and JSON, are the models written as code, and bad ones are explained. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include <gradus/gradus.h>

#include "base/error.h"

#include "support/network.h"

#define LAYER GD_LAYER_SPEC_DEFAULTS

static const gd_layer_spec mnist_layers[] = {
    { LAYER, .name = "fc1", .type = "linear", .units = 16, .activation = "relu" },
    { LAYER, .name = "fc2", .type = "linear", .units = 16, .activation = "relu" },
    { LAYER, .name = "sum", .type = "add", .inputs = { "fc1", "fc2" } },
    { LAYER, .name = "fc3", .type = "linear", .units = 10 },
};

static gd_model_spec mnist_spec(void)
{
    return (gd_model_spec){ GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(784), .layers = mnist_layers,
                            .layer_count = 4 };
}

static void assert_same_modules(const gd_module *a, const gd_module *b)
{
    assert_int_equal(gd_module_count(a), gd_module_count(b));
    for (int i = 0; i < gd_module_count(a); i++) {
        assert_string_equal(gd_module_path(a, i), gd_module_path(b, i));
        assert_same_bits(gd_module_tensor(a, i), gd_module_tensor(b, i));
    }
}

static void models_as_data_equal_models_as_code(void **state)
{
    gd_module *code = gd_module_create(*state, .seed = 1);
    gd_tensor *x = ramp(*state, GD_SHAPE(3, 784));
    gd_tensor *y = network(code, x);
    gd_model_spec spec = mnist_spec();
    gd_model *data = gd_model_create(*state, &spec, .seed = 1);
    assert_non_null(data);
    assert_same_modules(gd_model_module(data), code);
    assert_same_bits(gd_model_forward(data, x), y);
    char text[512];
    gd_module_summary(gd_model_module(data), text, sizeof text);
    assert_string_equal(text, "layer  type           output shape  parameters\n"
                              "fc1    linear + relu  [batch, 16]       12,560\n"
                              "fc2    linear + relu  [batch, 16]          272\n"
                              "sum    add            [batch, 16]            0\n"
                              "fc3    linear         [batch, 10]          170\n"
                              "total                                   13,002\n");
    gd_tensor *labels = gd_arange(*state, 0.0, 3.0, 1.0, GD_I64);
    assert_same_bits(gd_model_loss(data, y, labels), gd_cross_entropy(y, labels));
    gd_model_release(data);
}

/* GD_ERR_UNSUPPORTED without jansson: the test has nothing to look at. */
static gd_model *load(gd_context *gd, const char *json, uint64_t seed)
{
    gd_model *model = gd_model_load_json(gd, json, .seed = seed);
    if (!model && gd_error_code() == GD_ERR_UNSUPPORTED) {
        gd_error_clear();
        skip();
    }
    return model;
}

static void json_models_equal_models_as_code(void **state)
{
    gd_module *code = gd_module_create(*state, .seed = 4);
    gd_tensor *x = ramp(*state, GD_SHAPE(3, 784));
    gd_tensor *y = network(code, x);
    gd_model *file = load(*state, GD_SOURCE_DIR "/examples/models/mnist_mlp.json", 4);
    assert_non_null(file);
    assert_same_modules(gd_model_module(file), code);
    assert_same_bits(gd_model_forward(file, x), y);
    /* Layers may be listed in any order: they are made when their inputs are. */
    gd_model *jumbled =
        load(*state,
             "{\"layers\": [{\"name\": \"fc3\", \"type\": \"linear\", \"units\": 10, \"inputs\": "
             "[\"sum\"]},"
             "{\"name\": \"sum\", \"type\": \"add\", \"inputs\": [\"fc1\", \"fc2\"]},"
             "{\"name\": \"fc1\", \"type\": \"linear\", \"units\": 16, \"activation\": \"relu\", "
             "\"inputs\": [\"input\"]},"
             "{\"name\": \"fc2\", \"type\": \"linear\", \"units\": 16, \"activation\": \"relu\", "
             "\"bias\": true}],"
             "\"output\": \"fc3\", \"input\": [784]}",
             4);
    assert_non_null(jumbled);
    assert_same_modules(gd_model_module(jumbled), code);
    assert_same_bits(gd_model_forward(jumbled, x), y);
}

/* Every type of layer against the ops it stands for. x is [2, 3, 4]. */
typedef struct type_row {
    gd_layer_spec layer;
    gd_tensor *(*expected)(gd_tensor *x);
} type_row;

static gd_tensor *twice(gd_tensor *x)
{
    return gd_add(x, x);
}

static gd_tensor *beside(gd_tensor *x)
{
    gd_tensor *both[2] = { x, x };
    return gd_concat(2, both, 1);
}

static gd_tensor *softmax_of_1(gd_tensor *x)
{
    return gd_softmax(x, 1);
}

static gd_tensor *softmax_of_last(gd_tensor *x)
{
    return gd_softmax(x, 2);
}

static gd_tensor *log_softmax_of_last(gd_tensor *x)
{
    return gd_log_softmax(x, 2);
}

static gd_tensor *flat(gd_tensor *x)
{
    return gd_reshape(x, GD_SHAPE(2, 12));
}

static gd_tensor *six_by_two(gd_tensor *x)
{
    return gd_reshape(x, GD_SHAPE(2, 6, 2));
}

static gd_tensor *relu_of_tanh(gd_tensor *x)
{
    return gd_relu(gd_tanh(x));
}

static void each_type_is_its_op(void **state)
{
    const type_row rows[] = {
        { { LAYER, .name = "l", .type = "relu" }, gd_relu },
        { { LAYER, .name = "l", .type = "sigmoid" }, gd_sigmoid },
        { { LAYER, .name = "l", .type = "tanh" }, gd_tanh },
        { { LAYER, .name = "l", .type = "gelu" }, gd_gelu },
        { { LAYER, .name = "l", .type = "tanh", .activation = "relu" }, relu_of_tanh },
        { { LAYER, .name = "l", .type = "softmax" }, softmax_of_last },
        { { LAYER, .name = "l", .type = "softmax", .axis = 1 }, softmax_of_1 },
        { { LAYER, .name = "l", .type = "softmax", .axis = -2 }, softmax_of_1 },
        { { LAYER, .name = "l", .type = "log_softmax" }, log_softmax_of_last },
        { { LAYER, .name = "l", .type = "add", .inputs = { "input", "input" } }, twice },
        { { LAYER, .name = "l", .type = "concat", .inputs = { "input", "input" }, .axis = 1 },
          beside },
        { { LAYER, .name = "l", .type = "flatten" }, flat },
        { { LAYER, .name = "l", .type = "reshape", .shape = { 2, { 6, 2 } } }, six_by_two },
        { { LAYER, .name = "l", .type = "reshape", .shape = { 2, { -1, 2 } } }, six_by_two },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gd_model_spec spec = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(3, 4),
                               .layers = &rows[i].layer, .layer_count = 1 };
        gd_model *model = gd_model_create(*state, &spec);
        assert_non_null(model);
        gd_tensor *x = ramp(*state, GD_SHAPE(2, 3, 4)), *y = gd_model_forward(model, x),
                  *expected = rows[i].expected(x);
        gd_shape a = gd_tensor_shape(y), b = gd_tensor_shape(expected);
        assert_int_equal(a.rank, b.rank);
        assert_memory_equal(a.dim, b.dim, (size_t)a.rank * sizeof(int64_t));
        assert_same_bits(y, expected);
        gd_model_release(model);
    }
}

/* The shape of a model's result for one sample, and what comes out for it. */
static void linear_behind_maps_flattens(void **state)
{
    /* conv -> norm -> activation -> linear, and pooling of two branches joined -> linear */
    static const gd_layer_spec layers[] = {
        { LAYER, .name = "conv", .type = "conv2d", .channels = 4, .kernel = { 1, { 3 } } },
        { LAYER, .name = "norm", .type = "batch_norm" },
        { LAYER, .name = "relu", .type = "relu" },
        { LAYER, .name = "pool", .type = "max_pool2d", .kernel = { 1, { 2 } },
          .inputs = { "relu" } },
        { LAYER, .name = "both", .type = "concat", .inputs = { "pool", "pool" }, .axis = 1 },
        { LAYER, .name = "out", .type = "linear", .units = 10 },
        { LAYER, .name = "again", .type = "linear", .units = 3 },
    };
    gd_model_spec spec = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(1, 8, 8), .layers = layers,
                           .layer_count = 7 };
    gd_model *model = gd_model_create(*state, &spec);
    assert_non_null(model);
    gd_shape weight = gd_tensor_shape(gd_module_parameter(gd_model_module(model), "out.weight"));
    assert_int_equal(weight.dim[0], 8 * 3 * 3);
    gd_tensor *y = gd_model_forward(model, ramp(*state, GD_SHAPE(2, 1, 8, 8)));
    assert_int_equal(gd_tensor_shape(y).rank, 2);
    assert_int_equal(gd_tensor_shape(y).dim[1], 3);
    gd_tensor *labels = gd_arange(*state, 0.0, 2.0, 1.0, GD_I64);
    assert_non_null(gd_model_loss(model, y, labels));
    gd_model_release(model);

    /* The same bits as with a flatten written out. */
    gd_layer_spec plain[] = { layers[0], { LAYER, .name = "flat", .type = "flatten" }, layers[5] };
    gd_layer_spec straight[] = { layers[0], layers[5] };
    gd_model_spec with = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(1, 8, 8), .layers = plain,
                           .layer_count = 3 };
    gd_model_spec without = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(1, 8, 8),
                              .layers = straight, .layer_count = 2 };
    gd_model *a = gd_model_create(*state, &with, .seed = 5);
    gd_model *b = gd_model_create(*state, &without, .seed = 5);
    gd_tensor *x = ramp(*state, GD_SHAPE(2, 1, 8, 8));
    assert_same_bits(gd_model_forward(a, x), gd_model_forward(b, x));

    /* Sequences keep their time. */
    gd_model_spec sequence = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(6, 5),
                               .layers = &layers[5], .layer_count = 1 };
    gd_model *c = gd_model_create(*state, &sequence);
    assert_int_equal(gd_tensor_shape(gd_model_forward(c, ramp(*state, GD_SHAPE(2, 6, 5)))).rank, 3);
}

/* The model ends in softmax; its loss is -ln p, the loss of the logits before it. */
static void check_probabilities(gd_context *gd, const gd_layer_spec *layers, int count)
{
    gd_layer_spec plain = { LAYER, .name = "out", .type = "linear", .units = 4 };
    gd_model_spec of_logits = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(5), .layers = &plain,
                                .layer_count = 1 };
    gd_model_spec of_p = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(5), .layers = layers,
                           .layer_count = count };
    gd_model *a = gd_model_create(gd, &of_logits, .seed = 3);
    gd_model *b = gd_model_create(gd, &of_p, .seed = 3);
    assert_false(gd_model_gives_probabilities(a));
    assert_true(gd_model_gives_probabilities(b));
    gd_tensor *x = ramp(gd, GD_SHAPE(3, 5)), *labels = gd_arange(gd, 0.0, 3.0, 1.0, GD_I64);
    gd_tensor *expected = gd_model_loss(a, gd_model_forward(a, x), labels);
    gd_tensor *p = gd_model_forward(b, x), *loss = gd_model_loss(b, p, labels);
    assert_float_equal(gd_item(loss), gd_item(expected), 1e-6);
    assert_int_equal(gd_backward(expected), GD_OK);
    assert_int_equal(gd_backward(loss), GD_OK);
    gd_tensor *da = gd_gradient(gd_module_parameter(gd_model_module(a), "out.weight"));
    gd_tensor *db = gd_gradient(gd_module_parameter(gd_model_module(b), "out.weight"));
    assert_true(gd_item(gd_max(gd_abs(gd_sub(da, db)), GD_ALL_AXES, false)) < 1e-6);
    /* Probabilities as targets, and one that has vanished. */
    gd_tensor *soft = gd_softmax(ramp(gd, GD_SHAPE(3, 4)), -1);
    assert_float_equal(gd_item(gd_model_loss(b, p, soft)),
                       gd_item(gd_model_loss(a, gd_model_forward(a, x), soft)), 1e-6);
    gd_tensor *sure = gd_eye(gd, 4, GD_F32), *wrong = gd_full(gd, GD_SHAPE(4), 1.0, GD_I64);
    assert_true(isfinite(gd_item(gd_model_loss(b, sure, wrong))));
    assert_int_equal(gd_error_code(), GD_OK);
}

static void a_final_softmax_is_not_applied_twice(void **state)
{
    static const gd_layer_spec layer[] = { { LAYER, .name = "out", .type = "linear", .units = 4 },
                                           { LAYER, .name = "p", .type = "softmax" } };
    static const gd_layer_spec activation[] = { { LAYER, .name = "out", .type = "linear",
                                                  .units = 4, .activation = "softmax" } };
    check_probabilities(*state, layer, 2);
    check_probabilities(*state, activation, 1);
    /* Classes along another axis are refused, not misread. */
    static const gd_layer_spec across[] = { { LAYER, .name = "p", .type = "softmax", .axis = 1 } };
    gd_model_spec spec = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(3, 4), .layers = across,
                           .layer_count = 1 };
    gd_model *model = gd_model_create(*state, &spec);
    gd_tensor *p = gd_model_forward(model, ramp(*state, GD_SHAPE(2, 3, 4)));
    assert_null(gd_model_loss(model, p, gd_zeros(*state, GD_SHAPE(2, 3), GD_I64)));
    expect_error(GD_ERR_SHAPE, "the softmax of layer \"p\" is along axis 1");
}

typedef struct bad_spec {
    gd_layer_spec layers[3];
    const char *output, *loss;
    gd_status status;
    const char *words;
} bad_spec;

static void bad_specs_are_explained(void **state)
{
    static const bad_spec rows[] = {
        { { { LAYER, .name = "a", .type = "lineal", .units = 3 } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "there is no type \"lineal\": did you mean \"linear\"? there are linear, relu" },
        { { { LAYER, .name = "a", .type = "lineal", .units = 3 } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "decoder_only, encoder_only" }, /* the list is whole */
        { { { LAYER, .name = "a", .type = "linear" } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "layer \"a\": type linear needs \"units\"" },
        { { { LAYER, .name = "a", .type = "linear", .units = -3 } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "\"units\" is -3" },
        { { { LAYER, .name = "a", .type = "relu", .units = 3 } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "type relu does not use \"units\"" },
        { { { LAYER, .name = "a", .type = "linear", .units = 3, .axis = 1 } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "does not use \"axis\"" },
        { { { LAYER, .name = "a" } }, NULL, NULL, GD_ERR_INVALID, "layer \"a\" has no type" },
        { { { LAYER, .type = "relu" } }, NULL, NULL, GD_ERR_INVALID, "layer number 1 has no name" },
        { { { LAYER, .name = "input", .type = "relu" } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "is called \"input\"" },
        { { { LAYER, .name = "a", .type = "relu" }, { LAYER, .name = "a", .type = "relu" } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "two layers are called \"a\"" },
        { { { LAYER, .name = "a", .type = "relu", .activation = "linear" } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "no activation \"linear\"; there are relu, sigmoid, tanh, gelu, softmax" },
        { { { LAYER, .name = "a", .type = "relu", .inputs = { "b" } } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "its input \"b\" is no layer" },
        { { { LAYER, .name = "a", .type = "relu", .inputs = { "b" } },
            { LAYER, .name = "b", .type = "tanh" } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "\"a\" depends on itself" },
        { { { LAYER, .name = "a", .type = "relu", .inputs = { "a" } } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "a cycle" },
        { { { LAYER, .name = "a", .type = "add" } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "type add takes at least 2 inputs, not 1" },
        { { { LAYER, .name = "a", .type = "relu", .inputs = { "input", "input" } } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "takes 1 input, not 2" },
        { { { LAYER, .name = "a", .type = "relu" },
            { LAYER, .name = "b", .type = "relu", .inputs = { "input" } } },
          NULL,
          NULL,
          GD_ERR_INVALID,
          "nothing leads from layer \"a\"" },
        { { { LAYER, .name = "a", .type = "relu" } },
          "z",
          NULL,
          GD_ERR_INVALID,
          "the output \"z\"" },
        { { { LAYER, .name = "a", .type = "relu" } },
          NULL,
          "hinges",
          GD_ERR_INVALID,
          "there is no loss \"hinges\": did you mean \"hinge\"? there are cross_entropy, " },
        { { { LAYER, .name = "a", .type = "softmax", .axis = 2 } },
          NULL,
          NULL,
          GD_ERR_SHAPE,
          "layer \"a\" (softmax): axis 2" },
        { { { LAYER, .name = "a", .type = "softmax", .axis = -2 } },
          NULL,
          NULL,
          GD_ERR_SHAPE,
          "axis -2" },
        { { { LAYER, .name = "a", .type = "reshape", .shape = { 2, { 3, 5 } } } },
          NULL,
          NULL,
          GD_ERR_SHAPE,
          "layer \"a\" (reshape)" },
        { { { LAYER, .name = "a", .type = "linear", .units = 3 },
            { LAYER, .name = "b", .type = "add", .inputs = { "input", "a" } } },
          NULL,
          NULL,
          GD_ERR_SHAPE,
          "layer \"b\" (add)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int count = rows[i].layers[1].type ? 2 : 1;
        const gd_loss_spec loss = { GD_LOSS_SPEC_DEFAULTS, .type = rows[i].loss };
        gd_model_spec spec = { GD_MODEL_SPEC_DEFAULTS,   .input = GD_SHAPE(4),
                               .layers = rows[i].layers, .layer_count = count,
                               .output = rows[i].output, .loss_count = rows[i].loss != NULL,
                               .losses = &loss };
        assert_null(gd_model_create(*state, &spec));
        expect_error(rows[i].status, rows[i].words);
    }
    gd_model_spec spec = mnist_spec();
    spec.input = GD_SCALAR;
    assert_null(gd_model_create(*state, &spec));
    expect_error(GD_ERR_SHAPE, "0 axes");
    spec.input = GD_SHAPE(3, 0);
    assert_null(gd_model_create(*state, &spec));
    expect_error(GD_ERR_SHAPE, "size 1 of the input \"input\" is 0");
    spec = mnist_spec();
    spec.layer_count = 0;
    assert_null(gd_model_create(*state, &spec));
    expect_error(GD_ERR_INVALID, "0 layers");
    assert_null(gd_model_create(*state, NULL));
    expect_error(GD_ERR_INVALID, "spec is NULL");
    spec = mnist_spec();
    gd_model *model = gd_model_create(*state, &spec);
    assert_null(gd_model_forward(model, ramp(*state, GD_SHAPE(2, 10))));
    expect_error(GD_ERR_SHAPE, "x is [2, 10]; the model takes a batch of [784]");
}

static void a_layer_that_fails_is_named_while_an_older_error_is_pending(void **state)
{
    gd_model_spec spec = {
        GD_MODEL_SPEC_DEFAULTS,
        .input = GD_SHAPE(4),
        .layers = (gd_layer_spec[]){ { LAYER, .name = "a", .type = "softmax", .axis = 2 } },
        .layer_count = 1,
    };
    assert_null(gd_scalar(*state, 1e10, GD_I32));
    assert_null(gd_model_create(*state, &spec));
    assert_non_null(strstr(gd_error_last_message(), "layer \"a\" (softmax): axis 2"));
    expect_error(GD_ERR_INVALID, "i32 cannot hold 10000000000");
}

static void bad_json_is_explained(void **state)
{
    static const struct {
        const char *json;
        gd_status status;
        const char *words;
    } rows[] = {
        { "{", GD_ERR_FORMAT, "not JSON: line 1" },
        { "{\"input\": [4], \"input\": [4]}", GD_ERR_FORMAT, "duplicate" },
        { "{}", GD_ERR_FORMAT, "has no \"layers\"" },
        { "{\"layers\": [{\"name\": \"a\", \"type\": \"relu\"}]}", GD_ERR_FORMAT,
          "has no \"input\"" },
        { "{\"input\": 4}", GD_ERR_FORMAT, "\"input\" must be a list" },
        { "{\"input\": [4.5]}", GD_ERR_FORMAT, "whole numbers" },
        { "{\"input\": [1,1,1,1,1,1,1,1]}", GD_ERR_FORMAT, "1 to 7" },
        { "{\"inputz\": [4]}", GD_ERR_FORMAT,
          "no key \"inputz\": did you mean \"input\"? there are input, inputs, layers, output" },
        { "{\"inputs\": [4]}", GD_ERR_FORMAT, "input number 1 must be an object {\"name\"" },
        { "{\"input\": [4], \"layers\": []}", GD_ERR_FORMAT, "1 to 4096 layers" },
        { "{\"input\": [4], \"layers\": [7]}", GD_ERR_FORMAT, "layer number 1 must be an object" },
        { "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"kind\": 1}]}", GD_ERR_FORMAT,
          "layer \"a\": there is no key \"kind\"; there are name, type" },
        { "{\"input\": [4], \"layers\": [{\"name\": 3}]}", GD_ERR_FORMAT,
          "\"name\" must be a string" },
        { "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"units\": 0}]}", GD_ERR_FORMAT,
          "layer \"a\": \"units\" must be a whole number above 0" },
        { "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"bias\": 1}]}", GD_ERR_FORMAT,
          "\"bias\" must be true or false" },
        { "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"init\": \"xavier\"}]}", GD_ERR_FORMAT,
          "one of zeros, ones, glorot_uniform" },
        { "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"axis\": 0}]}", GD_ERR_FORMAT,
          "other than 0" },
        { "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"inputs\": \"input\"}]}", GD_ERR_FORMAT,
          "a list of 1 to 16 names" },
        { "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"inputs\": [1]}]}", GD_ERR_FORMAT,
          "a list of 1 to 16 names" },
        { "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"type\": \"relux\"}]}", GD_ERR_INVALID,
          "there is no type \"relux\"" },
        { "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"type\": \"relu\"}], \"loss\": 1}",
          GD_ERR_FORMAT, "loss number 1 must be the name of a loss, or an object" },
        { "/no/such/model.json", GD_ERR_IO, "/no/such/model.json" },
        { "[1]", GD_ERR_IO, "cannot be opened" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_null(load(*state, rows[i].json, 0));
        expect_error(rows[i].status, rows[i].words);
    }
    assert_null(gd_model_load_json(*state, NULL));
    assert_int_not_equal(gd_error_code(), GD_OK);
    gd_error_clear();
}

/* ---- out of memory, at every allocation in turn ---- */

static bool everything(int unused)
{
    (void)unused;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_tensor *x = gd ? gd_zeros(gd, GD_SHAPE(2, 784), GD_F32) : NULL;
    gd_model_spec spec = mnist_spec();
    gd_model *model = x ? gd_model_create(gd, &spec) : NULL;
    const bool ok = model && gd_model_forward(model, x);
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    fail_every_allocation(everything, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(models_as_data_equal_models_as_code),
        context_test(json_models_equal_models_as_code),
        context_test(each_type_is_its_op),
        context_test(linear_behind_maps_flattens),
        context_test(a_final_softmax_is_not_applied_twice),
        context_test(bad_specs_are_explained),
        context_test(a_layer_that_fails_is_named_while_an_older_error_is_pending),
        context_test(bad_json_is_explained),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
