/* nn/layer_types.c: one row and one function for each type of layer. To add a type: its function,
 * and a row in types[]. */
#include "nn/layer_types.h"

#include "base/error.h"

#include <gradus/ops.h>

#include <stdio.h>
#include <string.h>

static gd_tensor *build_linear(gd_module *m, const gd_layer_spec *spec, int n, gd_tensor *const *in)
{
    (void)n;
    return gd_linear(m, spec->name, in[0], spec->units, .no_bias = spec->no_bias,
                     .init = spec->init);
}

/* spec->axis, -1 when it was left out; 0, the batch axis, is an error. Returns 0 on failure. */
static int axis_of(const gd_layer_spec *spec, const gd_tensor *x)
{
    int rank = gd_tensor_shape(x).rank;
    int axis = spec->axis == 0 ? -1 : spec->axis;
    if (axis < 0)
        axis += rank;
    if (axis > 0 && axis < rank)
        return axis;
    (void)gd_fail(GD_ERR_SHAPE,
                  "axis %d is not one of the input's: 1 to %d, or counted from the end, -1 to %d",
                  spec->axis, rank - 1, 1 - rank);
    return 0;
}

static gd_tensor *build_softmax(gd_module *m, const gd_layer_spec *spec, int n,
                                gd_tensor *const *in)
{
    (void)m, (void)n;
    int axis = axis_of(spec, in[0]);
    return axis ? gd_softmax(in[0], axis) : NULL;
}

static gd_tensor *build_log_softmax(gd_module *m, const gd_layer_spec *spec, int n,
                                    gd_tensor *const *in)
{
    (void)m, (void)n;
    int axis = axis_of(spec, in[0]);
    return axis ? gd_log_softmax(in[0], axis) : NULL;
}

static gd_tensor *build_relu(gd_module *m, const gd_layer_spec *spec, int n, gd_tensor *const *in)
{
    (void)m, (void)spec, (void)n;
    return gd_relu(in[0]);
}

static gd_tensor *build_sigmoid(gd_module *m, const gd_layer_spec *spec, int n,
                                gd_tensor *const *in)
{
    (void)m, (void)spec, (void)n;
    return gd_sigmoid(in[0]);
}

static gd_tensor *build_tanh(gd_module *m, const gd_layer_spec *spec, int n, gd_tensor *const *in)
{
    (void)m, (void)spec, (void)n;
    return gd_tanh(in[0]);
}

static gd_tensor *build_gelu(gd_module *m, const gd_layer_spec *spec, int n, gd_tensor *const *in)
{
    (void)m, (void)spec, (void)n;
    return gd_gelu(in[0]);
}

static gd_tensor *build_add(gd_module *m, const gd_layer_spec *spec, int n, gd_tensor *const *in)
{
    (void)m, (void)spec;
    gd_tensor *sum = in[0];
    for (int i = 1; i < n; i++)
        sum = gd_add(sum, in[i]);
    return sum;
}

static gd_tensor *build_concat(gd_module *m, const gd_layer_spec *spec, int n, gd_tensor *const *in)
{
    (void)m;
    int axis = axis_of(spec, in[0]);
    return axis ? gd_concat(in, n, axis) : NULL;
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

static gd_tensor *build_flatten(gd_module *m, const gd_layer_spec *spec, int n,
                                gd_tensor *const *in)
{
    (void)m, (void)spec, (void)n;
    gd_shape shape = gd_tensor_shape(in[0]);
    int64_t count = 1;
    for (int i = 1; i < shape.rank; i++)
        count *= shape.dim[i];
    return reshape_sample(in[0], GD_SHAPE(count));
}

static gd_tensor *build_reshape(gd_module *m, const gd_layer_spec *spec, int n,
                                gd_tensor *const *in)
{
    (void)m, (void)n;
    return reshape_sample(in[0], spec->shape);
}

enum { MANY = GD_LAYER_MAX_INPUTS };

static const gd_layer_type types[] = {
    { "linear", build_linear, 1, 1, GD_USES_UNITS | GD_USES_BIAS | GD_USES_INIT, GD_USES_UNITS,
      false },
    { "relu", build_relu, 1, 1, 0, 0, true },
    { "sigmoid", build_sigmoid, 1, 1, 0, 0, true },
    { "tanh", build_tanh, 1, 1, 0, 0, true },
    { "gelu", build_gelu, 1, 1, 0, 0, true },
    { "softmax", build_softmax, 1, 1, GD_USES_AXIS, 0, true },
    { "log_softmax", build_log_softmax, 1, 1, GD_USES_AXIS, 0, true },
    { "add", build_add, 2, MANY, 0, 0, false },
    { "concat", build_concat, 2, MANY, GD_USES_AXIS, 0, false },
    { "flatten", build_flatten, 1, 1, 0, 0, false },
    { "reshape", build_reshape, 1, 1, GD_USES_SHAPE, GD_USES_SHAPE, false },
};

const gd_layer_type *gd_layer_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const char *gd_layer_types_text(bool activations_only, char text[GD_LAYER_TYPES_TEXT])
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types && at < GD_LAYER_TYPES_TEXT; i++)
        if (types[i].is_activation || !activations_only)
            at += (size_t)snprintf(text + at, GD_LAYER_TYPES_TEXT - at, "%s%s", at ? ", " : "",
                                   types[i].name);
    return text;
}

const char *gd_layer_use_name(unsigned use)
{
    static const char *const names[] = { "units", "bias", "init", "axis", "shape" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (use & 1u << i)
            return names[i];
    return "?";
}
