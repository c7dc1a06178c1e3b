/* nn/quantized.c: layers whose weights stay in blocks of 8 or 4 bits. */
#include "nn/quantized.h"

#include "nn/sequence.h"
#include "base/quantized_form.h"

#include <gradus/ops.h>

#include <stdio.h>

#define BLOCK 32

static const char TYPE[] = "quantized_linear";

/* The buffer name.values or name.scales; NULL: there is none. */
static gd_tensor *find_buffer(gd_module *m, const char *name, const char *suffix)
{
    char path[GD_NN_PATH];
    const int length = snprintf(path, sizeof path, "%s.%s", name, suffix);
    if (length <= 0 || (size_t)length >= sizeof path)
        return NULL;
    const int64_t index = gd_names_find(&m->paths, path);
    return index >= 0 ? gd_module_tensor(m, (int)index) : NULL;
}

bool gd_nn_is_quantized(gd_module *m, const char *name)
{
    const gd_module_layer *layer = gd_module_layer_find(m, name);
    return layer ? layer->type == TYPE : find_buffer(m, name, "values") != NULL;
}

/* Bytes of values and scales of a row of `in` weights, in the form that the layer's tensors have;
 * where they have none, or not for so many weights, of bytes in blocks of 32. */
static void sizes_of_rows(gd_tensor *values, gd_tensor *scales, int64_t in, int64_t *bytes,
                          int64_t *count)
{
    gd_quantized_form form;
    *bytes = in;
    *count = in / BLOCK;
    if (!values || !scales)
        return;
    const gd_shape v = gd_tensor_shape(values), s = gd_tensor_shape(scales);
    if (v.rank == 2 && s.rank == 2 &&
        gd_quantized_form_of(gd_tensor_dtype(values) == GD_U8, v.dim[1], s.dim[1], &form) &&
        gd_quantized_inner(&form, s.dim[1]) == in) {
        *bytes = v.dim[1];
        *count = s.dim[1];
    }
}

gd_module_layer *gd_nn_quantized_use(gd_module *m, const char *who, const char *name, int64_t out,
                                     int64_t in, bool bias)
{
    static const gd_dtype eight = GD_I8, four = GD_U8, half = GD_F16;
    const gd_module_layer *layer = gd_module_layer_find(m, name);
    gd_tensor *values = layer ? layer->parameter[0] : find_buffer(m, name, "values");
    gd_tensor *scales = layer ? layer->parameter[1] : find_buffer(m, name, "scales");
    int64_t bytes, count;
    sizes_of_rows(values, scales, in, &bytes, &count);
    const gd_layer_tensor tensors[3] = {
        { GD_LAYER_TENSOR, .suffix = "values", .shape = GD_SHAPE(out, bytes), .is_buffer = true,
          .dtype = values && gd_tensor_dtype(values) == GD_U8 ? &four : &eight },
        { GD_LAYER_TENSOR, .suffix = "scales", .shape = GD_SHAPE(out, count), .is_buffer = true,
          .dtype = &half },
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
