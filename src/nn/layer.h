/* nn/layer.h: what layers with parameters share. */
#ifndef GD_NN_LAYER_H
#define GD_NN_LAYER_H

#include "nn/module.h"

/* A parameter or buffer of a layer. */
typedef struct gd_layer_tensor {
    const char *suffix; /* "weight" */
    gd_shape shape;
    gd_init init;
    double init_scale;
    int64_t fan_in, fan_out; /* as in gd_parameter_options */
    bool is_buffer;          /* full of `value` */
    double value;
    const gd_dtype *dtype; /* of a buffer; NULL: its module's */
} gd_layer_tensor;
#define GD_LAYER_TENSOR .init_scale = NAN, .fan_in = -1, .fan_out = -1

/* The layer `name` of `type`, with its tensors in layer->parameter in order: found, and then type and
 * shapes must be these, or made. `type` and `who` ("gd_nn_conv2d") are constant strings. NULL with
 * the error recorded. */
gd_module_layer *gd_layer_use(gd_module *m, const char *who, const char *name, const char *type,
                              const gd_layer_tensor *tensors, int count);

/* Note the shape of a layer's result, for the summary. Returns y. */
gd_tensor *gd_layer_done(gd_module_layer *layer, gd_tensor *y);

/* A layer's input, converted to its module's dtype where that is wider. NULL, recorded: x is not of
 * floats, wider, or has fewer than `least` axes. */
gd_tensor *gd_layer_input(const gd_module *m, const char *who, const char *name, gd_tensor *x,
                          int least);

#endif
