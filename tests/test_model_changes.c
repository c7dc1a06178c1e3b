/* tests/test_model_changes.c: models as data that are listed, changed, saved to one file, and made of
 * types of layers of one's own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradus/gradus.h>

#include "support/context.h"

static gd_tensor *waves(gd_context *gd, gd_shape shape)
{
    return gd_reshape(gd_sin(gd_arange(gd, 0, (double)gd_shape_count(shape), 1, GD_F32)), shape);
}

/* input [4] -> fc1 (relu) -> fc2 -> sum of both -> out */
static gd_model_builder *begin(gd_context *gd)
{
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(4), .seed = 5);
    gd_model_add(b, "fc1", "linear", .activation = "relu", .units = 6);
    gd_model_add(b, "fc2", "linear", .units = 6, .bias = false);
    gd_model_add(b, "sum", "add", .inputs = { "fc1", "fc2" });
    gd_model_add(b, "out", "linear", .units = 3);
    return b;
}

static gd_model *make(gd_context *gd)
{
    gd_model *model = gd_model_end(begin(gd));
    if (!model)
        fail_msg("%s", gd_error_message());
    return model;
}

static gd_tensor *parameter(const gd_model *model, const char *path)
{
    return gd_module_parameter(gd_model_module(model), path);
}

/* ---- looking at one ---- */

static void layers_are_listed(void **state)
{
    gd_model_builder *b = gd_model_begin(*state, GD_SHAPE(2, 8, 8), .seed = 5);
    gd_model_add(b, "conv", "conv2d", .activation = "relu", .channels = 4, .kernel = GD_SHAPE(3));
    gd_model_add(b, "norm", "batch_norm", .momentum = 0.2);
    gd_model_add(b, "out", "linear", .units = 3);
    gd_model *model = gd_model_end(b);
    assert_int_equal(gd_model_layer_count(model), 3);
    assert_int_equal(gd_model_layer_find(model, "norm"), 1);
    assert_int_equal(gd_model_layer_find(model, "input"), -1);
    assert_int_equal(gd_model_layer_find(model, "none"), -1);
    const gd_layer_spec *conv = gd_model_layer_spec(model, 0),
                        *norm = gd_model_layer_spec(model, 1);
    assert_string_equal(conv->name, "conv");
    assert_string_equal(conv->type, "conv2d");
    assert_string_equal(conv->activation, "relu");
    assert_string_equal(conv->inputs[0], "input");
    assert_null(conv->inputs[1]);
    assert_int_equal(conv->channels, 4);
    assert_int_equal(conv->kernel.dim[0], 3);
    assert_string_equal(norm->inputs[0], "conv");
    assert_true(norm->momentum == 0.2 && !norm->activation);
    assert_true(gd_shape_equal(gd_model_layer_shape(model, 0), GD_SHAPE(-1, 4, 6, 6)));
    assert_true(gd_shape_equal(gd_model_layer_shape(model, 2), GD_SHAPE(-1, 3)));
    assert_int_equal(gd_model_layer_parameter_count(model, 0), 4 * 2 * 9 + 4);
    assert_int_equal(gd_model_layer_parameter_count(model, 1), 8);
    assert_int_equal(gd_model_layer_tensor_count(model, 1), 4); /* with its statistics */
    assert_int_equal(gd_model_layer_tensor_count(model, 0), 2);
    assert_string_equal(gd_model_layer_tensor_path(model, 0, 1), "conv.bias");
    assert_null(gd_model_layer_tensor_path(model, 0, 2));
    assert_null(gd_model_layer_tensor_path(model, 0, -1));
    assert_null(gd_model_layer_spec(model, 3));
    assert_null(gd_model_layer_spec(model, -1));
    assert_int_equal(gd_model_input_count(model), 1);
    assert_string_equal(gd_model_input_name(model, 0), "input");
    assert_true(gd_shape_equal(gd_model_input_shape(model, 0), GD_SHAPE(2, 8, 8)));
    assert_null(gd_model_input_name(model, 1));
    assert_int_equal(gd_model_output_count(model), 1);
    assert_string_equal(gd_model_output_name(model, 0), "out");
    assert_int_equal(gd_model_loss_count(model), 1);
    assert_string_equal(gd_model_loss_spec(model, 0)->type, "cross_entropy");
    assert_string_equal(gd_model_loss_spec(model, 0)->outputs[0], "out");
    assert_null(gd_model_loss_spec(model, 1));
    int64_t all = 0;
    for (int i = 0; i < 3; i++)
        all += gd_model_layer_parameter_count(model, i);
    assert_int_equal(all, gd_module_parameter_count(gd_model_module(model)));
#ifdef GD_HAVE_JANSSON
    char text[512];
    assert_true(gd_model_layer_format_json(model, 1, text, sizeof text) > 0);
    assert_non_null(strstr(text, "\"type\": \"batch_norm\""));
    assert_non_null(strstr(text, "\"momentum\": 0.2"));
    assert_int_equal(gd_model_layer_format_json(model, 7, text, sizeof text), 0);
#endif
}

/* ---- changing one ---- */

/* The same layers written by hand have the same parameters and give the same bits. */
static void perceptrons_are_ready_made(void **state)
{
    gd_context *gd = *state;
    gd_model *made =
        gd_model_end(gd_model_begin_mlp(gd, 5, 2, ((int64_t[]){ 4, 3 }), 2, .seed = 7));
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(5), .seed = 7);
    gd_model_add(b, "fc1", "linear", .units = 4, .activation = "relu");
    gd_model_add(b, "fc2", "linear", .units = 3, .activation = "relu");
    gd_model_add(b, "out", "linear", .units = 2);
    gd_model *own = gd_model_end(b);
    gd_tensor *x = waves(gd, GD_SHAPE(6, 5));
    gd_tensor *same = gd_eq(gd_model_forward(made, x), gd_model_forward(own, x));
    assert_int_equal(gd_item(gd_all(same, GD_ALL_AXES, false)), 1);
    gd_model *line = gd_model_end(gd_model_begin_mlp(gd, 5, 0, NULL, 1));
    assert_int_equal(gd_model_layer_count(line), 1);

    assert_null(gd_model_begin_mlp(gd, 5, 2, NULL, 2));
    expect_error(GD_ERR_INVALID, "gd_model_begin_mlp: there are 0 widths");
    assert_null(gd_model_begin_mlp(gd, 5, 2, ((int64_t[]){ 4, 0 }), 2));
    expect_error(GD_ERR_INVALID, "widths[1] is 0, at least 1 is needed");
    assert_null(gd_model_begin_mlp(gd, 5, 0, NULL, -3));
    expect_error(GD_ERR_INVALID, "-3 results");
    assert_null(gd_model_end(gd_model_begin_mlp(gd, -5, 0, NULL, 1)));
    expect_error(GD_ERR_SHAPE, "-5");
}

/* Pools halve the maps while they can; the loss trains it. */
static void convolutional_networks_are_ready_made(void **state)
{
    gd_context *gd = *state;
    const gd_shape inputs[] = { GD_SHAPE(2, 5), GD_SHAPE(1, 6, 9), GD_SHAPE(1, 4, 4, 3) };
    for (int i = 0; i < 3; i++) {
        gd_model *model = gd_model_end(
            gd_model_begin_cnn(gd, inputs[i], 3, ((int64_t[]){ 3, 4, 2 }), 2, .seed = 1));
        if (!model)
            fail_msg("%s", gd_error_message());
        assert_true(gd_model_layer_find(model, "conv3") > 0);
        assert_int_equal(gd_model_layer_find(model, "pool3"),
                         -1); /* 5 -> 2 -> 1; 6 -> 3 -> 1; 3 -> 1 */
        assert_int_equal(gd_model_layer_find(model, "pool2") > 0, i < 2);
        gd_shape shape = { .rank = inputs[i].rank + 1, .dim = { 4 } };
        for (int a = 0; a < inputs[i].rank; a++)
            shape.dim[a + 1] = inputs[i].dim[a];
        gd_tensor *x = waves(gd, shape), *y = gd_mod_scalar(gd_arange(gd, 0, 4, 1, GD_I64), 2);
        gd_tensor *logits = gd_model_forward(model, x);
        assert_int_equal(gd_tensor_shape(logits).dim[1], 2);
        assert_int_equal(gd_backward(gd_model_loss(model, logits, y)), GD_OK);
        assert_non_null(gd_gradient(parameter(model, "conv1.weight")));
    }
    assert_null(gd_model_begin_cnn(gd, GD_SHAPE(5), 0, NULL, 2));
    expect_error(GD_ERR_SHAPE, "the input has 1 axes; channels and 1 to 3 are needed");
}

static void a_layer_is_inserted(void **state)
{
    gd_context *gd = *state;
    gd_model *model = make(gd);
    gd_tensor *x = waves(gd, GD_SHAPE(5, 4)), *before = gd_copy(gd_model_forward(model, x));
    gd_model_builder *b = gd_model_edit(model, 9);
    assert_int_equal(gd_model_insert(b, "fc1", "norm", "layer_norm"), GD_OK);
    assert_int_equal(gd_model_insert(b, "input", "double", "add", .inputs = { "input", "input" }),
                     GD_OK);
    assert_int_equal(gd_model_insert(b, "out", "end", "linear", .units = 2), GD_OK);
    gd_model *other = gd_model_end(b);
    if (!other)
        fail_msg("%s", gd_error_message());
    assert_int_equal(gd_model_layer_count(other), 7);
    assert_string_equal(gd_model_output_name(other, 0), "end");
    assert_string_equal(gd_model_layer_spec(other, gd_model_layer_find(other, "fc2"))->inputs[0],
                        "norm");
    gd_module *m = gd_model_module(other);
    gd_tensor *a = gd_relu(gd_nn_linear(m, "fc1", gd_add(x, x), 6));
    a = gd_nn_layer_norm(m, "norm", a);
    gd_tensor *y =
        gd_nn_linear(m, "out", gd_add(a, gd_nn_linear(m, "fc2", a, 6, .bias = false)), 3);
    assert_same_bits(gd_model_forward(other, x), gd_nn_linear(m, "end", y, 2));
    /* The others are the same tensors; and the first model is as it was. */
    assert_ptr_equal(parameter(other, "fc1.weight"), parameter(model, "fc1.weight"));
    assert_ptr_equal(parameter(other, "out.bias"), parameter(model, "out.bias"));
    assert_int_equal(gd_model_layer_count(model), 4);
    assert_same_bits(gd_model_forward(model, x), before);
}

static void a_layer_is_replaced_and_the_rest_is_kept(void **state)
{
    gd_context *gd = *state;
    gd_model *model = make(gd);
    gd_tensor *x = waves(gd, GD_SHAPE(5, 4));
    gd_tensor *kept = gd_copy(parameter(model, "fc1.weight"));
    gd_model_builder *b = gd_model_edit(model, 9);
    assert_int_equal(gd_model_replace(b, "out", "linear", .units = 2), GD_OK);
    assert_int_equal(gd_model_drop_losses(b), GD_OK);
    assert_int_equal(gd_model_add_loss(b, "mse", .reduction = GD_REDUCE_SUM), GD_OK);
    gd_model *other = gd_model_end(b);
    assert_non_null(other);
    gd_model_release(model); /* the parameters live on */
    assert_same_bits(parameter(other, "fc1.weight"), kept);
    assert_true(gd_shape_equal(gd_tensor_shape(parameter(other, "out.weight")), GD_SHAPE(6, 2)));
    gd_optimizer *sgd = gd_sgd(gd_model_module(other), .lr = 0.001);
    gd_tensor *y = gd_model_forward(other, x), *target = gd_zeros(gd, GD_SHAPE(5, 2), GD_F32);
    double first = gd_item(gd_minimize(sgd, gd_model_loss(other, y, target)));
    y = gd_model_forward(other, x);
    assert_same_bits(gd_model_loss(other, y, target),
                     gd_mse(y, target, .reduction = GD_REDUCE_SUM));
    assert_true(gd_item(gd_model_loss(other, y, target)) < first);
    assert_false(gd_equal(parameter(other, "fc1.weight"), kept));
}

static void a_layer_is_removed(void **state)
{
    gd_context *gd = *state;
    gd_model *model = make(gd);
    gd_tensor *x = waves(gd, GD_SHAPE(5, 4));
    gd_model_builder *b = gd_model_edit(model, 9);
    assert_int_equal(gd_model_remove(b, "fc2"), GD_OK);
    assert_int_equal(gd_model_remove(b, "out"), GD_OK);
    gd_model *other = gd_model_end(b);
    assert_non_null(other);
    assert_int_equal(gd_module_count(gd_model_module(other)), 2);
    assert_string_equal(gd_model_output_name(other, 0), "sum");
    gd_tensor *a = gd_relu(gd_nn_linear(gd_model_module(model), "fc1", x, 6));
    assert_same_bits(gd_model_forward(other, x), gd_add(a, a));
    /* Further outputs, and a branch of its own for them. */
    b = gd_model_edit(other, 2);
    gd_model_add(b, "head", "linear", .units = 2, .inputs = { "fc1" });
    gd_model_set_outputs(b, 2, (const char *const[]){ "head", "sum" });
    gd_model *two = gd_model_end(b);
    assert_non_null(two);
    gd_tensor *out[2];
    assert_int_equal(gd_model_forward_all(two, 1, &x, 2, out), GD_OK);
    assert_same_bits(out[1], gd_add(a, a));
    assert_int_equal(gd_tensor_shape(out[0]).dim[1], 2);
    assert_string_equal(gd_model_loss_spec(two, 0)->outputs[0], "sum"); /* as it was */
}

static void bad_changes_are_explained(void **state)
{
    gd_context *gd = *state;
    gd_model *model = make(gd);
    gd_model_builder *b = gd_model_edit(model, 1);
    assert_int_equal(gd_model_remove(b, "fc9"), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "there is no layer \"fc9\"");
    assert_null(gd_model_end(b)); /* keeps it */
    expect_error(GD_ERR_INVALID, "there is no layer \"fc9\"");
    b = gd_model_edit(model, 1);
    assert_int_equal(gd_model_insert(b, "none", "a", "relu"), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "there is no layer \"none\"");
    gd_error_clear();
    assert_null(gd_model_end(b));
    gd_error_clear();
    b = gd_model_edit(model, 1);
    assert_int_equal(gd_model_replace(b, "fc1", "linear", .units = 7), GD_OK);
    assert_null(gd_model_end(b)); /* fc2's weight is [6, 6] */
    expect_error(GD_ERR_SHAPE, "layer \"fc2\" (linear): \"fc2.weight\" is f32 [6, 6]");
    b = gd_model_edit(model, 1);
    assert_int_equal(gd_model_insert(b, "fc1", "fc2", "relu"), GD_OK);
    assert_null(gd_model_end(b));
    expect_error(GD_ERR_INVALID, "two layers are called \"fc2\"");
    b = gd_model_edit(model, 1);
    gd_model_set_outputs(b, 1, (const char *const[]){ "fc1" });
    assert_null(gd_model_end(b));
    expect_error(GD_ERR_INVALID, "nothing leads from layer \"fc2\" to the output \"fc1\"");
    assert_null(gd_model_edit(NULL, 1));
    assert_int_equal(gd_model_remove(NULL, "a"), GD_ERR_INVALID);
    gd_error_clear();
    b = gd_model_edit(model, 1);
    gd_model_release(model);
    const int64_t live = gd_memory(gd).live_tensors; /* its five parameters are the builder's */
    gd_model_builder_release(b);
    assert_int_equal(gd_memory(gd).live_tensors, live - 5);
    gd_model_builder_release(NULL);
    model = make(gd);
    assert_non_null(gd_model_edit(model, 1)); /* left to the context */
}

/* ---- types of layers of one's own ---- */

typedef struct scale_user {
    int calls;
    gd_status status;
} scale_user;

/* x * gate(x) * scale, with parameters, and a number of its own. */
static gd_status gated(void *user, const gd_layer_call *call, gd_tensor **result)
{
    scale_user *u = user;
    char path[64];
    u->calls++;
    if (u->status != GD_OK)
        return u->status;
    snprintf(path, sizeof path, "%s.gate", call->spec->name);
    gd_tensor *gate = gd_nn_linear(call->module, path, call->inputs[0], call->spec->units,
                                   .bias = call->spec->bias);
    snprintf(path, sizeof path, "%s.scale", call->spec->name);
    gd_tensor *scale =
        gd_parameter(call->module, path, GD_SHAPE(call->spec->units), .init = GD_INIT_ONES);
    *result = gd_mul(gd_sigmoid(gate), scale);
    if (call->mask)
        *result = gd_mul(*result, call->mask);
    return *result ? GD_OK : gd_error_code();
}

static gd_status square(void *user, const gd_layer_call *call, gd_tensor **result)
{
    (void)user;
    *result = gd_square(call->inputs[0]);
    return GD_OK;
}

static gd_status nothing(void *user, const gd_layer_call *call, gd_tensor **result)
{
    (void)user, (void)call, (void)result;
    return GD_OK;
}

static void types_of_ones_own_are_layers(void **state)
{
    gd_context *gd = *state;
    scale_user user = { 0 };
    int all = gd_layer_type_count(gd);
    assert_int_equal(gd_layer_type_register(gd, "gated", gated, &user, .uses = "units bias mask",
                                            .needs = "units"),
                     GD_OK);
    assert_int_equal(gd_layer_type_register(gd, "square", square, NULL, .activation = true), GD_OK);
    assert_int_equal(gd_layer_type_count(gd), all + 2);
    assert_string_equal(gd_layer_type_name(gd, all), "gated");
    assert_null(gd_layer_type_name(gd, all + 2));
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(4), .seed = 5);
    gd_model_add(b, "g", "gated", .activation = "square", .units = 4, .mask = "input");
    gd_model_add(b, "s", "square");
    gd_model *model = gd_model_end(b);
    if (!model)
        fail_msg("%s", gd_error_message());
    assert_int_equal(user.calls, 1);
    assert_int_equal(gd_model_layer_parameter_count(model, 0), 4 * 4 + 4 + 4);
    gd_tensor *x = waves(gd, GD_SHAPE(5, 4));
    gd_module *m = gd_model_module(model);
    gd_tensor *y = gd_mul(gd_sigmoid(gd_nn_linear(m, "g.gate", x, 4)), parameter(model, "g.scale"));
    assert_same_bits(gd_model_forward(model, x), gd_square(gd_square(gd_mul(y, x))));
    /* Its errors are the model's. */
    user.status = GD_ERR_STATE;
    assert_null(gd_model_forward(model, x));
    expect_error(GD_ERR_STATE, "layer \"g\" (gated): ");
    user.status = GD_OK;
    assert_int_equal(gd_layer_type_register(gd, "nothing", nothing, NULL), GD_OK);
    b = gd_model_begin(gd, GD_SHAPE(4));
    gd_model_add(b, "n", "nothing");
    assert_null(gd_model_end(b));
    expect_error(GD_ERR_INVALID, "layer \"n\" (nothing): the build function of the type gave no");
    /* Another context does not have them. */
    gd_context *apart = gd_open(test_device(), .threads = 1);
    b = gd_model_begin(apart, GD_SHAPE(4));
    gd_model_add(b, "s", "square");
    assert_null(gd_model_end(b));
    expect_error(GD_ERR_INVALID, "there is no type \"square\"");
    gd_close(apart);
}

static void bad_types_are_refused(void **state)
{
    gd_context *gd = *state;
    scale_user user = { 0 };
    assert_int_equal(gd_layer_type_register(gd, "linear", gated, &user), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "there is a type \"linear\" already");
    assert_int_equal(gd_layer_type_register(gd, "", gated, &user), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the name is empty");
    assert_int_equal(gd_layer_type_register(gd, "g", gated, &user, .uses = "units unit"),
                     GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "a layer has no member \"unit\"");
    assert_int_equal(gd_layer_type_register(gd, "g", gated, &user, .max_inputs = 99),
                     GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "takes 1 to 99 inputs; 1 to 16 are allowed");
    assert_int_equal(
        gd_layer_type_register(gd, "g", gated, &user, .uses = "units", .activation = true),
        GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "is an activation, which takes one input and nothing else");
    assert_int_equal(gd_layer_type_register(gd, "g", NULL, &user), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the function is NULL");
    assert_int_equal(gd_layer_type_register(gd, "g", gated, &user, .needs = "units"), GD_OK);
    assert_int_equal(gd_layer_type_register(gd, "g", gated, &user), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "there is a type \"g\" already");
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(4));
    gd_model_add(b, "a", "g", .heads = 2);
    assert_null(gd_model_end(b));
    expect_error(GD_ERR_INVALID, "type g does not use \"heads\"");
    b = gd_model_begin(gd, GD_SHAPE(4));
    gd_model_add(b, "a", "g");
    assert_null(gd_model_end(b));
    expect_error(GD_ERR_INVALID, "type g needs \"units\"");
}

#ifdef GD_HAVE_JANSSON

/* Reads what its config says. */
static gd_status configured(void *user, const gd_layer_call *call, gd_tensor **result)
{
    (void)user;
    double factor = 1;
    if (call->spec->config)
        (void)sscanf(call->spec->config, "{\"factor\": %lf", &factor);
    *result = gd_mul_scalar(call->inputs[0], factor);
    return GD_OK;
}

static void they_stand_in_json_with_a_config(void **state)
{
    gd_context *gd = *state;
    assert_int_equal(gd_layer_type_register(gd, "times", configured, NULL, .uses = "config"),
                     GD_OK);
    gd_model *model = gd_model_load_json(
        gd, "{ \"input\": [4], \"layers\": [ { \"name\": \"a\", \"type\": \"times\", \"config\": "
            "{ \"factor\": 2.5, \"more\": [1, { \"deep\": null }] } } ] }");
    if (!model)
        fail_msg("%s", gd_error_message());
    gd_tensor *x = waves(gd, GD_SHAPE(5, 4));
    assert_same_bits(gd_model_forward(model, x), gd_mul_scalar(x, 2.5));
    char text[2048];
    assert_true(gd_model_format_json(model, text, sizeof text) < sizeof text);
    gd_model *back = gd_model_load_json(gd, text);
    assert_same_bits(gd_model_forward(back, x), gd_mul_scalar(x, 2.5));
    assert_string_equal(gd_model_layer_spec(back, 0)->config,
                        gd_model_layer_spec(model, 0)->config);
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(4));
    gd_model_add(b, "a", "times", .config = "{ half");
    assert_null(gd_model_end(b));
    expect_error(GD_ERR_FORMAT, "layer \"a\": its config is no JSON text of an object");
}

/* ---- one file ---- */

static const char *temporary(char path[256], const char *what)
{
    snprintf(path, 256, "%s/test_model_%s_%ld.safetensors", GD_BINARY_DIR, what, (long)getpid());
    return path;
}

static gd_tensor *train(gd_model *model, gd_optimizer *optimizer, int steps)
{
    gd_context *gd = gd_module_context(gd_model_module(model));
    gd_tensor *x = waves(gd, GD_SHAPE(6, 4)), *loss = NULL;
    gd_tensor *y = gd_cast(gd_mod_scalar(gd_arange(gd, 0, 6, 1, GD_I64), 3), GD_I64);
    for (int i = 0; i < steps; i++)
        loss = gd_minimize(optimizer, gd_model_loss(model, gd_model_forward(model, x), y));
    return loss;
}

/* A model with everything: buffers, options, a loss with a weight; of another dtype. */
static gd_model *make_trained(gd_context *gd, gd_dtype dtype)
{
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(4), .seed = 5, .dtype = dtype);
    gd_model_add(b, "z", "linear", .activation = "relu", .units = 6);
    gd_model_add(b, "norm", "batch_norm");
    gd_model_add(b, "a", "linear", .units = 3);
    const float weight[3] = { 1, 0.25f, 3 };
    gd_model_add_loss(b, "cross_entropy", .weight = gd_from_host(gd, GD_SHAPE(3), GD_F32, weight),
                      .label_smoothing = 0.1);
    gd_model *model = gd_model_end(b);
    if (!model)
        fail_msg("%s", gd_error_message());
    return model;
}

static void one_file_has_the_model(void **state)
{
    gd_context *gd = *state;
    char path[256], states[256];
    static const gd_dtype dtypes[] = { GD_F32, GD_F64 };
    for (int i = 0; i < 2; i++) {
        gd_model *model = make_trained(gd, dtypes[i]);
        gd_optimizer *adam = gd_adam(gd_model_module(model), .lr = 0.01);
        train(model, adam, 3);
        assert_int_equal(gd_model_save(model, temporary(path, "one")), GD_OK);
        assert_int_equal(gd_optimizer_save(adam, temporary(states, "states")), GD_OK);
        gd_model *back = gd_model_load(gd, path);
        if (!back)
            fail_msg("%s", gd_error_message());
        gd_module *m = gd_model_module(model), *other = gd_model_module(back);
        assert_int_equal(gd_module_dtype(other), dtypes[i]);
        assert_int_equal(gd_module_count(other), gd_module_count(m));
        for (int k = 0; k < gd_module_count(m); k++) { /* in the same order, too */
            assert_string_equal(gd_module_path(other, k), gd_module_path(m, k));
            assert_int_equal(gd_module_is_parameter(other, k), gd_module_is_parameter(m, k));
            assert_same_bits(gd_module_tensor(other, k), gd_module_tensor(m, k));
        }
        gd_module *plain = gd_module_create(gd, .dtype = dtypes[i]);
        assert_int_equal(gd_module_load(plain, path), GD_OK);
        assert_same_bits(gd_module_parameter(plain, "a.weight"), parameter(model, "a.weight"));
        gd_optimizer *again = gd_adam(other, .lr = 0.01);
        assert_int_equal(gd_optimizer_load(again, states), GD_OK);
        assert_same_bits(train(back, again, 3), train(model, adam, 3)); /* goes on alike */
    }
    remove(path);
    remove(states);
}

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = malloc(1 << 16);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    return bytes;
}

/* Without waiting for the disk. */
static void write_plainly(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void damaged_files_are_refused(void **state)
{
    gd_context *gd = *state;
    char path[256], bad[256];
    size_t size;
    assert_int_equal(gd_model_save(make_trained(gd, GD_F32), temporary(path, "whole")), GD_OK);
    char *bytes = read_file(path, &size);
    temporary(bad, "bad");
    for (size_t length = 0; length < size; length += length < 64 ? 1 : 61) {
        write_plainly(bad, bytes, length);
        assert_null(gd_model_load(gd, bad));
        assert_true(gd_error_code() == GD_ERR_FORMAT);
        gd_error_clear();
    }
    for (size_t at = 8; at < size; at += 7) { /* no crash, no model without its parameters */
        char was = bytes[at];
        bytes[at] = (char)(was ^ 0x11);
        write_plainly(bad, bytes, size);
        gd_model_release(gd_model_load(gd, bad));
        gd_error_clear();
        bytes[at] = was;
    }
    free(bytes);
    remove(path);
    remove(bad);
}

/* The description and the tensors of a file need not be of one model. */
static void save_with(gd_context *gd, const char *path, const char *json, const char *dtype)
{
    const gd_named_tensor tensors[] = {
        { "a.weight", gd_ones(gd, GD_SHAPE(4, 3), GD_F32) },
        { "a.bias", gd_zeros(gd, GD_SHAPE(3), GD_F32) },
    };
    const gd_metadata metadata[] = { { "dtype", dtype }, { "model", json } };
    assert_int_equal(gd_tensors_save(path, 2, tensors, json ? 2 : 1, metadata), GD_OK);
}

static void files_that_lie_are_refused(void **state)
{
    gd_context *gd = *state;
#define A(units) "{ \"name\": \"a\", \"type\": \"linear\", \"units\": " units " }"
    static const struct {
        const char *json, *dtype;
        gd_status status;
        const char *words;
    } rows[] = {
        { NULL, "f32", GD_ERR_FORMAT, "it has no description of a model" },
        { "/etc/passwd", "f32", GD_ERR_FORMAT, "it has no description of a model" },
        { "{ \"input\": [4], \"layers\": [" A("3") "] }", "i64", GD_ERR_FORMAT, "are i64" },
        { "{ \"input\": [4], \"layers\": [" A("2147483648") "] }", "f32", GD_ERR_SHAPE,
          "\"a.weight\" is f32 [4, 3]" },
        { "{ \"input\": [4], \"layers\": [ { \"name\": \"b\", \"type\": \"linear\", \"units\": "
          "2147483648 } ] }",
          "f32", GD_ERR_STATE, "\"b.weight\" is not in " },
        { "{ \"input\": [4], \"layers\": [ { \"name\": \"a\", \"type\": \"linear\", \"units\": 3, "
          "\"bias\": false } ] }",
          "f32", GD_ERR_FORMAT, "it has a \"a.bias\", which no layer asks for" },
        { "{ \"input\": [4], \"input\": [4], \"layers\": [" A("3") "] }", "f32", GD_ERR_FORMAT,
          "duplicate" },
        { "{ \"input\": [4], \"layers\": [" A("3") "], \"los\": 1 }", "f32", GD_ERR_FORMAT,
          "no key \"los\": did you mean \"loss\"?" },
    };
    char path[256];
    temporary(path, "lies");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        save_with(gd, path, rows[i].json, rows[i].dtype);
        assert_null(gd_model_load(gd, path));
        expect_error(rows[i].status, rows[i].words);
    }
    save_with(gd, path, "{ \"input\": [4], \"layers\": [" A("3") "] }", "f32");
    assert_non_null(gd_model_load(gd, path)); /* the same without the lie */
    remove(path);
    assert_null(gd_model_load(gd, "/no/such/file"));
    expect_error(GD_ERR_IO, "/no/such/file");
    assert_int_equal(gd_model_save(NULL, path), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the model is NULL");
    assert_int_equal(gd_model_save(make(gd), "/no/such/folder/m"), GD_ERR_IO);
    gd_error_clear();
}

#endif

/* ---- out of memory, at every allocation in turn ---- */

static char saved[256]; /* a model's file */

static bool everything(int unused)
{
    (void)unused;
    scale_user user = { 0 };
    gd_context *gd = gd_open(test_device(), .threads = 1);
    bool ok =
        gd && gd_layer_type_register(gd, "gated", gated, &user, .needs = "units bias") == GD_OK;
    gd_model *model = ok ? gd_model_end(begin(gd)) : NULL;
    gd_model_builder *b = gd_model_edit(model, 2);
    if (b) {
        gd_model_insert(b, "fc1", "gate", "gated", .units = 6, .bias = false);
        gd_model_replace(b, "out", "linear", .units = 2);
        gd_model_remove(b, "fc2");
        gd_model_set_outputs(b, 1, (const char *const[]){ "out" });
        gd_model_add_loss(b, "mse", .outputs = { "out" }, .scale = 0);
    }
    ok = gd_model_end(b) != NULL;
#ifdef GD_HAVE_JANSSON
    ok = ok && gd_model_save(model, "/dev/null") == GD_OK && gd_model_load(gd, saved);
#endif
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
#ifdef GD_HAVE_JANSSON
    assert_int_equal(gd_model_save(make(*state), temporary(saved, "memory")), GD_OK);
#endif
    (void)state;
    fail_every_allocation(everything, 0);
    remove(saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(layers_are_listed),
        context_test(perceptrons_are_ready_made),
        context_test(convolutional_networks_are_ready_made),
        context_test(a_layer_is_inserted),
        context_test(a_layer_is_replaced_and_the_rest_is_kept),
        context_test(a_layer_is_removed),
        context_test(bad_changes_are_explained),
        context_test(types_of_ones_own_are_layers),
        context_test(bad_types_are_refused),
#ifdef GD_HAVE_JANSSON
        context_test(they_stand_in_json_with_a_config),
        context_test(one_file_has_the_model),
        context_test(damaged_files_are_refused),
        context_test(files_that_lie_are_refused),
#endif
        context_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
