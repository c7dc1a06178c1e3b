/* nn/linear.c: the linear layer. */
#include "nn/layer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <gradus/ops.h>

static const char TYPE[] = "linear";

/* Make the layer and its parameters, for an input of `in` values. */
static gd_module_layer *create(gd_module *m, const char *name, int64_t in, int64_t units,
                               const gd_nn_linear_options *o)
{
    gd_tensor *weight = NULL, *bias = NULL;
    char *weight_path = gd_module_join(name, "weight");
    char *bias_path = gd_module_join(name, "bias");
    if (weight_path && bias_path) {
        weight = gd_parameter(m, weight_path, GD_SHAPE(in, units), .init = o->init,
                              .init_scale = o->init_scale);
        if (weight && o->bias)
            bias = gd_parameter(m, bias_path, GD_SHAPE(units), .init = GD_INIT_ZEROS);
    }
    gd_free(weight_path);
    gd_free(bias_path);
    if (!weight || (!bias && o->bias))
        return NULL;
    gd_module_layer *layer = gd_module_layer_add(m, name, TYPE);
    if (layer) {
        layer->parameter[0] = weight;
        layer->parameter[1] = bias;
        layer->numbers = gd_tensor_count(weight) + gd_tensor_count(bias);
    }
    return layer;
}

/* A later use must fit the first. */
static bool fits(const gd_module_layer *layer, int64_t units, bool bias)
{
    if (layer->type != TYPE) {
        (void)gd_fail(GD_ERR_INVALID, "gd_nn_linear: \"%s\" is a layer of type %s already",
                      layer->name, layer->type);
        return false;
    }
    gd_shape weight = gd_tensor_shape(layer->parameter[0]);
    bool has_bias = layer->parameter[1];
    if (weight.dim[1] == units && has_bias == bias)
        return true;
    (void)gd_fail(
        GD_ERR_SHAPE,
        "gd_nn_linear: \"%s\" was made with %lld units and %s bias, here it has %lld and %s bias",
        layer->name, (long long)weight.dim[1], has_bias ? "a" : "no", (long long)units,
        bias ? "a" : "no");
    return false;
}

gd_tensor *gd_nn_linear_with(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                             const gd_nn_linear_options *options)
{
    gd_nn_linear_options o = { GD_NN_LINEAR_DEFAULTS };
    if (!m || !x || !gd_options_read("gd_nn_linear", &o, sizeof o, options))
        return NULL;
    if (!name || !*name || units < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_nn_linear: %s",
                            name && *name ? "units must be at least 1" : "the name is empty");
    gd_shape shape = gd_tensor_shape(x);
    x = gd_layer_input(m, "gd_nn_linear", name, x, 1);
    if (!x)
        return NULL;
    int64_t in = shape.dim[shape.rank - 1];
    gd_module_layer *layer = gd_module_layer_find(m, name);
    if (layer ? !fits(layer, units, o.bias) : !(layer = create(m, name, in, units, &o)))
        return NULL;
    int64_t rows = gd_tensor_shape(layer->parameter[0]).dim[0];
    if (rows != in) {
        char text[GD_NN_SHAPE_TEXT];
        return gd_fail_null(
            GD_ERR_SHAPE,
            "gd_nn_linear: the input is %s, but \"%s.weight\" is [%lld, %lld]: the input's "
            "last size must be %lld",
            gd_nn_shape_text(shape, text), name, (long long)rows, (long long)units,
            (long long)rows);
    }
    gd_tensor *y = gd_linear(x, layer->parameter[0], layer->parameter[1]);
    if (y)
        layer->output = gd_tensor_shape(y);
    return y;
}
