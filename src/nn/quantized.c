/* nn/quantized.c: layers whose weights stay in blocks of 8 bits. */
#include "nn/quantized.h"

#include "nn/sequence.h"

#include <gradus/ops.h>

#include <stdio.h>

#define BLOCK 32

static const char TYPE[] = "quantized_linear";

bool gd_nn_is_quantized(gd_module *m, const char *name)
{
    const gd_module_layer *layer = gd_module_layer_find(m, name);
    if (layer)
        return layer->type == TYPE;
    char path[GD_NN_PATH];
    const int length = snprintf(path, sizeof path, "%s.values", name);
    return length > 0 && (size_t)length < sizeof path && gd_names_find(&m->paths, path) >= 0;
}

gd_module_layer *gd_nn_quantized_use(gd_module *m, const char *who, const char *name, int64_t out,
                                     int64_t in, bool bias)
{
    static const gd_dtype values = GD_I8, scales = GD_F16;
    const gd_layer_tensor tensors[3] = {
        { GD_LAYER_TENSOR, .suffix = "values", .shape = GD_SHAPE(out, in), .is_buffer = true,
          .dtype = &values },
        { GD_LAYER_TENSOR, .suffix = "scales", .shape = GD_SHAPE(out, in / BLOCK),
          .is_buffer = true, .dtype = &scales },
        { GD_LAYER_TENSOR, .suffix = "bias", .shape = GD_SHAPE(out), .init = GD_INIT_ZEROS }
    };
    return gd_layer_use(m, who, name, TYPE, tensors, bias ? 3 : 2);
}

gd_tensor *gd_nn_quantized_product(const gd_module_layer *layer, gd_tensor *x)
{
    gd_tensor *y = gd_quantized_linear(x, layer->parameter[0], layer->parameter[1]);
    return y && layer->parameter[2] ? gd_add(y, layer->parameter[2]) : y;
}

gd_tensor *gd_nn_quantized_embedding(const gd_module_layer *layer, gd_tensor *index)
{
    gd_tensor *values = gd_cast(gd_embedding(index, layer->parameter[0]), GD_F32);
    gd_tensor *scales = gd_cast(gd_embedding(index, layer->parameter[1]), GD_F32);
    if (!values || !scales)
        return NULL;
    const gd_shape shape = gd_tensor_shape(values);
    gd_shape blocks = shape, one = gd_tensor_shape(scales);
    blocks.dim[shape.rank - 1] = one.dim[one.rank - 1];
    blocks.dim[blocks.rank++] = BLOCK;
    one.dim[one.rank++] = 1;
    return gd_reshape(gd_mul(gd_reshape(values, blocks), gd_reshape(scales, one)), shape);
}
