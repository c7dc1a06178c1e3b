/* nn/quantized.h: layers whose weights stay in blocks of 8 or 4 bits. Buffers name.values and name.scales
 * (f16), the operands of gd_quantized_linear in one of their forms, stand in place of the parameter
 * name.weight: a module that has them computes with them, as reading a model in blocks makes it
 * (text/language_gguf.c). */
#ifndef GD_NN_QUANTIZED_H
#define GD_NN_QUANTIZED_H

#include "nn/layer.h"

/* Whether the layer `name` is one, or will be once it is used. */
bool gd_nn_is_quantized(gd_module *m, const char *name);
/* The layer: values, scales and, with one, a bias. */
gd_module_layer *gd_nn_quantized_use(gd_module *m, const char *who, const char *name, int64_t out,
                                     int64_t in, bool bias);
/* x [.., in] -> [.., out]: its bias is added where it has one. */
gd_tensor *gd_nn_quantized_product(const gd_module_layer *layer, gd_tensor *x);
/* Rows of the weights by their numbers, as f32 of the module. */
gd_tensor *gd_nn_quantized_embedding(const gd_module_layer *layer, gd_tensor *index);

#endif
