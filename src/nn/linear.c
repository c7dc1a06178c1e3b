/* nn/linear.c: the linear layer. */
#include "nn/quantized.h"

#include "base/error.h"
#include "base/options.h"

#include <gradus/ops.h>

static const char TYPE[] = "linear";

void gd_module_observe(gd_module *m, gd_observe_fn observe, void *observer)
{
    m->observe = observe;
    m->observer = observer;
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
    if (!x || (m->observe && m->observe(m->observer, name, x) != GD_OK))
        return NULL;
    int64_t in = shape.dim[shape.rank - 1];
    if (gd_nn_is_quantized(m, name)) {
        gd_module_layer *blocks = gd_nn_quantized_use(m, "gd_nn_linear", name, units, in, o.bias);
        return blocks ? gd_layer_done(blocks, gd_nn_quantized_product(blocks, x)) : NULL;
    }
    gd_module_layer *layer = gd_module_layer_find(m, name);
    if (layer && !fits(layer, units, o.bias))
        return NULL;
    if (!layer) {
        const gd_layer_tensor tensors[2] = {
            { GD_LAYER_TENSOR, .suffix = "weight", .shape = GD_SHAPE(in, units), .init = o.init,
              .init_scale = o.init_scale },
            { GD_LAYER_TENSOR, .suffix = "bias", .shape = GD_SHAPE(units), .init = GD_INIT_ZEROS }
        };
        layer = gd_layer_use(m, "gd_nn_linear", name, TYPE, tensors, o.bias ? 2 : 1);
    }
    if (!layer)
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
    return gd_layer_done(layer, gd_linear(x, layer->parameter[0], layer->parameter[1]));
}
