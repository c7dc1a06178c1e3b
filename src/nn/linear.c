/* nn/linear.c: the linear layer. */
#include "nn/module.h"

#include "base/error.h"
#include "base/memory.h"

#include <gradus/ops.h>

static const char TYPE[] = "linear";

/* Make the layer and its parameters, for an input of `in` values. */
static gd_module_layer *create(const gd_nn_linear_options *o, int64_t in)
{
    gd_tensor *weight = NULL, *bias = NULL;
    char *weight_path = gd_module_join(o->name, "weight");
    char *bias_path = gd_module_join(o->name, "bias");
    if (weight_path && bias_path) {
        weight = gd_parameter_with((gd_parameter_options){ .module = o->module,
                                                           .path = weight_path,
                                                           .shape = GD_SHAPE(in, o->units),
                                                           .init = o->init,
                                                           .init_scale = o->init_scale });
        if (weight && !o->no_bias)
            bias = gd_parameter(o->module, bias_path, GD_SHAPE(o->units), GD_INIT_ZEROS);
    }
    gd_free(weight_path);
    gd_free(bias_path);
    if (!weight || (!bias && !o->no_bias))
        return NULL;
    gd_module_layer *layer = gd_module_layer_add(o->module, o->name, TYPE);
    if (layer) {
        layer->parameter[0] = weight;
        layer->parameter[1] = bias;
        layer->numbers = gd_tensor_count(weight) + gd_tensor_count(bias);
    }
    return layer;
}

/* A later use must fit the first. */
static bool fits(const gd_nn_linear_options *o, const gd_module_layer *layer)
{
    if (layer->type != TYPE) {
        (void)gd_fail(GD_ERR_INVALID, "gd_nn_linear: \"%s\" is a layer of type %s already", o->name,
                      layer->type);
        return false;
    }
    gd_shape weight = gd_tensor_shape(layer->parameter[0]);
    if (weight.dim[1] == o->units && !layer->parameter[1] == o->no_bias)
        return true;
    (void)gd_fail(
        GD_ERR_SHAPE,
        "gd_nn_linear: \"%s\" was made with %lld units and %s bias, here it has %lld and %s bias",
        o->name, (long long)weight.dim[1], layer->parameter[1] ? "a" : "no", (long long)o->units,
        o->no_bias ? "no" : "a");
    return false;
}

gd_tensor *gd_nn_linear_with(gd_nn_linear_options o)
{
    if (!o.module || !o.x)
        return NULL;
    if (!o.name || !*o.name || o.units < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_nn_linear: %s",
                            o.name && *o.name ? "units must be at least 1" : "the name is empty");
    gd_shape shape = gd_tensor_shape(o.x);
    if (shape.rank < 1 || gd_tensor_dtype(o.x) != GD_F32)
        return gd_fail_null(
            shape.rank < 1 ? GD_ERR_SHAPE : GD_ERR_DTYPE,
            "gd_nn_linear: the input of \"%s\" is %s of rank %d; f32 of rank 1 or more is needed",
            o.name, gd_dtype_name(gd_tensor_dtype(o.x)), shape.rank);
    int64_t in = shape.dim[shape.rank - 1];
    gd_module_layer *layer = gd_module_layer_find(o.module, o.name);
    if (layer ? !fits(&o, layer) : !(layer = create(&o, in)))
        return NULL;
    int64_t rows = gd_tensor_shape(layer->parameter[0]).dim[0];
    if (rows != in) {
        char text[GD_NN_SHAPE_TEXT];
        return gd_fail_null(
            GD_ERR_SHAPE,
            "gd_nn_linear: the input is %s, but \"%s.weight\" is [%lld, %lld]: the input's "
            "last size must be %lld",
            gd_nn_shape_text(shape, text), o.name, (long long)rows, (long long)o.units,
            (long long)rows);
    }
    gd_tensor *y = gd_affine(o.x, layer->parameter[0], layer->parameter[1]);
    if (y)
        layer->output = gd_tensor_shape(y);
    return y;
}
