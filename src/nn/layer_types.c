/* nn/layer_types.c: one row and one function for each type of layer; those of images and channels
 * are in nn/layer_types_spatial.c, those of sequences in nn/layer_types_sequence.c, those of users in
 * nn/layer_registry.c. To add a type: its function, and a row in types[]. */
#include "nn/layer_types.h"

#include "base/error.h"
#include "base/nearest.h"

#include <gradus/layers.h>
#include <gradus/ops.h>

#include <stdio.h>
#include <string.h>

static gd_tensor *build_simple(const gd_layer_args *c)
{
    return c->type->simple(c->in[0]);
}

/* x [batch, ..] -> [batch, sizes..] */
static gd_tensor *reshape_sample(gd_tensor *x, gd_shape sizes)
{
    if (sizes.rank >= GD_MAX_RANK)
        return gd_fail_null(GD_ERR_SHAPE, "a shape has at most %d sizes beside the batch",
                            GD_MAX_RANK - 1);
    gd_shape shape = { .rank = sizes.rank + 1 };
    shape.dim[0] = gd_tensor_shape(x).dim[0];
    memcpy(shape.dim + 1, sizes.dim, sizeof(int64_t) * (size_t)sizes.rank);
    return gd_reshape(x, shape);
}

static gd_tensor *build_flatten(const gd_layer_args *c)
{
    gd_shape shape = gd_tensor_shape(c->in[0]);
    int64_t count = 1;
    for (int i = 1; i < shape.rank; i++)
        count *= shape.dim[i];
    return reshape_sample(c->in[0], GD_SHAPE(count));
}

/* The last axis of maps is the width of an image, along which no one wants a linear layer. */
static gd_tensor *rows_of(const gd_layer_args *c)
{
    return c->of_maps ? build_flatten(c) : c->in[0];
}

static gd_tensor *build_linear(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    return gd_nn_linear(c->module, s->name, rows_of(c), s->units, .bias = s->bias, .init = s->init,
                        .init_scale = s->init_scale);
}

static gd_tensor *build_drop_connect(const gd_layer_args *c)
{
    return gd_nn_drop_connect(c->module, c->spec->name, rows_of(c), c->spec->units,
                              c->spec->dropout);
}

static gd_tensor *build_dropout(const gd_layer_args *c)
{
    return gd_nn_dropout(c->module, c->spec->name, c->in[0], c->spec->dropout);
}

/* Indices may come as the floats a model's input is. */
static gd_tensor *build_embedding(const gd_layer_args *c)
{
    gd_tensor *index = c->in[0];
    if (gd_dtype_is_float(gd_tensor_dtype(index)))
        index = gd_cast(index, GD_I64);
    return gd_nn_embedding(c->module, c->spec->name, index, c->spec->vocabulary, c->spec->units);
}

/* ---- activations ---- */

static gd_tensor *build_leaky_relu(const gd_layer_args *c)
{
    return gd_leaky_relu(c->in[0], isnan(c->spec->alpha) ? 0.01 : c->spec->alpha);
}

static gd_tensor *build_elu(const gd_layer_args *c)
{
    return gd_elu(c->in[0], isnan(c->spec->alpha) ? 1.0 : c->spec->alpha);
}

static gd_tensor *build_prelu(const gd_layer_args *c)
{
    return gd_nn_prelu(c->module, c->spec->name, c->in[0], c->spec->per_channel);
}

/* spec->axis, counted from the front; 0, the batch axis, is an error. Returns 0 on failure. */
static int axis_of(const gd_layer_spec *spec, const gd_tensor *x)
{
    int rank = gd_tensor_shape(x).rank;
    int axis = spec->axis < 0 ? spec->axis + rank : spec->axis;
    if (axis > 0 && axis < rank)
        return axis;
    (void)gd_fail(GD_ERR_SHAPE,
                  "axis %d is not one of the input's: 1 to %d, or counted from the end, -1 to %d",
                  spec->axis, rank - 1, 1 - rank);
    return 0;
}

static gd_tensor *build_softmax(const gd_layer_args *c)
{
    int axis = axis_of(c->spec, c->in[0]);
    return axis ? gd_softmax(c->in[0], axis) : NULL;
}

static gd_tensor *build_log_softmax(const gd_layer_args *c)
{
    int axis = axis_of(c->spec, c->in[0]);
    return axis ? gd_log_softmax(c->in[0], axis) : NULL;
}

/* ---- joining and reshaping ---- */

static gd_tensor *build_add(const gd_layer_args *c)
{
    gd_tensor *sum = c->in[0];
    for (int i = 1; i < c->n; i++)
        sum = gd_add(sum, c->in[i]);
    return sum;
}

static gd_tensor *build_multiply(const gd_layer_args *c)
{
    gd_tensor *product = c->in[0];
    for (int i = 1; i < c->n; i++)
        product = gd_mul(product, c->in[i]);
    return product;
}

static gd_tensor *build_concat(const gd_layer_args *c)
{
    int axis = axis_of(c->spec, c->in[0]);
    return axis ? gd_concat(c->n, c->in, axis) : NULL;
}

static gd_tensor *build_reshape(const gd_layer_args *c)
{
    return reshape_sample(c->in[0], c->spec->shape);
}

enum { MANY = GD_LAYER_MAX_INPUTS };
#define LINEAR   (GD_USES(UNITS) | GD_USES(BIAS) | GD_USES(INIT) | GD_USES(INIT_SCALE))
#define AS_INPUT .maps = GD_MAPS_AS_INPUT
#define ACTIVATION(name, function)                                                          \
    {                                                                                       \
        name, build_simple, 1, 1, 0, 0, .is_activation = true, AS_INPUT, .simple = function \
    }

static const gd_layer_type types[] = {
    { "linear", build_linear, 1, 1, LINEAR, GD_USES(UNITS), .simple = NULL },
    ACTIVATION("relu", gd_relu),
    ACTIVATION("sigmoid", gd_sigmoid),
    ACTIVATION("tanh", gd_tanh),
    ACTIVATION("gelu", gd_gelu),
    { "softmax", build_softmax, 1, 1, GD_USES(AXIS), 0, .is_activation = true, AS_INPUT },
    { "log_softmax", build_log_softmax, 1, 1, GD_USES(AXIS), 0, .is_activation = true, AS_INPUT },
    ACTIVATION("gelu_tanh", gd_gelu_tanh),
    ACTIVATION("silu", gd_silu),
    ACTIVATION("mish", gd_mish),
    ACTIVATION("softplus", gd_softplus),
    ACTIVATION("selu", gd_selu),
    ACTIVATION("relu6", gd_relu6),
    ACTIVATION("hard_sigmoid", gd_hard_sigmoid),
    ACTIVATION("hard_swish", gd_hard_swish),
    { "leaky_relu", build_leaky_relu, 1, 1, GD_USES(ALPHA), 0, .is_activation = true, AS_INPUT },
    { "elu", build_elu, 1, 1, GD_USES(ALPHA), 0, .is_activation = true, AS_INPUT },
    { "prelu", build_prelu, 1, 1, GD_USES(PER_CHANNEL), 0, AS_INPUT },
    { "add", build_add, 2, MANY, 0, 0, AS_INPUT },
    { "multiply", build_multiply, 2, MANY, 0, 0, AS_INPUT },
    { "concat", build_concat, 2, MANY, GD_USES(AXIS), 0, AS_INPUT },
    { "flatten", build_flatten, 1, 1, 0, 0, .simple = NULL },
    { "reshape", build_reshape, 1, 1, GD_USES(SHAPE), GD_USES(SHAPE), .simple = NULL },
    { "dropout", build_dropout, 1, 1, GD_USES(DROPOUT), GD_USES(DROPOUT), AS_INPUT },
    { "drop_connect", build_drop_connect, 1, 1, GD_USES(UNITS) | GD_USES(DROPOUT),
      GD_USES(UNITS) | GD_USES(DROPOUT), .simple = NULL },
    { "embedding", build_embedding, 1, 1, GD_USES(VOCABULARY) | GD_USES(UNITS),
      GD_USES(VOCABULARY) | GD_USES(UNITS), .simple = NULL },
};
enum { TYPES = sizeof types / sizeof *types };

const gd_layer_type *gd_layer_type_at(gd_context *context, int i)
{
    if (i < TYPES)
        return &types[i];
    i -= TYPES;
    if (i < gd_spatial_layer_type_count)
        return &gd_spatial_layer_types[i];
    i -= gd_spatial_layer_type_count;
    if (i < gd_sequence_layer_type_count)
        return &gd_sequence_layer_types[i];
    return gd_custom_layer_type(context, i - gd_sequence_layer_type_count);
}

const gd_layer_type *gd_layer_type_find(gd_context *context, const char *name)
{
    const gd_layer_type *type;
    for (int i = 0; (type = gd_layer_type_at(context, i)) != NULL; i++)
        if (strcmp(type->name, name) == 0)
            return type;
    return NULL;
}

gd_status gd_layer_type_fail(gd_context *context, const char *who, const char *name,
                             bool activations_only)
{
    char all[1024], words[GD_NEAREST_TEXT];
    size_t at = 0;
    gd_nearest nearest = { .given = name };
    const gd_layer_type *type;
    for (int i = 0; (type = gd_layer_type_at(context, i)) != NULL && at < sizeof all; i++)
        if (type->is_activation || !activations_only) {
            gd_nearest_try(&nearest, type->name);
            at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", at ? ", " : "", type->name);
        }
    return gd_fail(GD_ERR_INVALID, "%s: there is no %s \"%.64s\"%s%s there are %s", who,
                   activations_only ? "activation" : "type", name,
                   gd_nearest_words(&nearest, words), nearest.name ? "" : ";", all);
}

int gd_layer_type_count(gd_context *context)
{
    int count = 0;
    while (gd_layer_type_at(context, count))
        count++;
    return count;
}

const char *gd_layer_type_name(gd_context *context, int index)
{
    const gd_layer_type *type = index >= 0 ? gd_layer_type_at(context, index) : NULL;
    return type ? type->name : NULL;
}
