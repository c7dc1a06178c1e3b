/* nn/quantized.c: layers whose weights stay in blocks of 8 or 4 bits. */
#include "nn/quantized.h"

#include "nn/sequence.h"

#include <gradus/ops.h>

#include <stdio.h>

#define BLOCK 32

static const char TYPE[] = "quantized_linear";

/* The buffer name.values; NULL: there is none. */
static gd_tensor *find_values(gd_module *m, const char *name)
{
    char path[GD_NN_PATH];
    const int length = snprintf(path, sizeof path, "%s.values", name);
    if (length <= 0 || (size_t)length >= sizeof path)
        return NULL;
    const int64_t index = gd_names_find(&m->paths, path);
    return index >= 0 ? gd_module_tensor(m, (int)index) : NULL;
}

bool gd_nn_is_quantized(gd_module *m, const char *name)
{
    const gd_module_layer *layer = gd_module_layer_find(m, name);
    return layer ? layer->type == TYPE : find_values(m, name) != NULL;
}

gd_module_layer *gd_nn_quantized_use(gd_module *m, const char *who, const char *name, int64_t out,
                                     int64_t in, bool bias)
{
    static const gd_dtype eight = GD_I8, four = GD_U8, scales = GD_F16;
    const gd_module_layer *layer = gd_module_layer_find(m, name);
    gd_tensor *found = layer ? layer->parameter[0] : find_values(m, name);
    const bool four_bits = found && gd_tensor_dtype(found) == GD_U8;
    const gd_layer_tensor tensors[3] = {
        { GD_LAYER_TENSOR, .suffix = "values", .shape = GD_SHAPE(out, four_bits ? in / 2 : in),
          .is_buffer = true, .dtype = four_bits ? &four : &eight },
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
    return gd_dequantize(gd_embedding(index, layer->parameter[0]),
                         gd_embedding(index, layer->parameter[1]));
}
