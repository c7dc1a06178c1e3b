/* gradus/layers.h: layers with parameters or with a training mode. Each is called with the module,
 * a name, and its input; it makes its parameters at first use with shapes inferred from the input,
 * and finds them again at every later use (gradus/nn.h). Options by name follow; zero means the
 * default. Start at gd_nn_conv2d().
 *
 * Inputs are floats, [batch, channels, spatial...] where there are channels; of which dtype, see
 * gd_module_create. NULL modules and inputs
 * give NULL. Errors name the layer: GD_ERR_INVALID for an option without meaning or a name that is
 * another type's, GD_ERR_SHAPE where the input does not fit the options or the first use,
 * GD_ERR_DTYPE, GD_ERR_MEMORY, GD_ERR_STATE as gd_parameter. Layers without parameters are the ops
 * themselves: gd_relu, gd_max_pool2d, gd_reshape.
 */
#ifndef GRADUS_LAYERS_H
#define GRADUS_LAYERS_H

#include <gradus/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolution ---- */

typedef struct gd_nn_conv_options {
    gd_module *module;
    const char *name;
    gd_tensor *x;                                 /* [n, c, spatial...] */
    int64_t channels;                             /* of the result */
    int64_t kernel;                               /* its size along every axis */
    int64_t stride, pad, dilation, groups;        /* 1, 0, 1, 1; see gd_conv2d */
    bool same;                                    /* the result has ceil(size / stride) elements */
    int64_t kernels[3], strides[3], dilations[3]; /* of single axes, instead */
    int64_t before[3], after[3]; /* zeros in front of and behind single axes, in addition to pad */
    int64_t output_pad, output_pads[3]; /* transposed only, see gd_conv_transpose2d */
    bool no_bias;
    gd_init init; /* of the weight */
    double init_scale;
} gd_nn_conv_options;

/* gd_nn_conv2d(m, "conv1", x, 32, 3, .pad = 1): gd_conv2d with the parameters "conv1.weight"
 * [channels, c / groups, kernel...] and "conv1.bias" [channels] (zeros). Fans of the initialiser
 * are c / groups times the kernel's elements, and channels / groups times those. */
#define gd_nn_conv1d(...) \
    gd_nn_conv_with(      \
        1, GD_OPTIONS_5(gd_nn_conv_options, module, name, x, channels, kernel, __VA_ARGS__))
#define gd_nn_conv2d(...) \
    gd_nn_conv_with(      \
        2, GD_OPTIONS_5(gd_nn_conv_options, module, name, x, channels, kernel, __VA_ARGS__))
#define gd_nn_conv3d(...) \
    gd_nn_conv_with(      \
        3, GD_OPTIONS_5(gd_nn_conv_options, module, name, x, channels, kernel, __VA_ARGS__))
GD_API gd_tensor *gd_nn_conv_with(int axes, gd_nn_conv_options options);
/* gd_conv_transpose2d; the weight is [c, channels / groups, kernel...]. */
#define gd_nn_conv_transpose1d(...) \
    gd_nn_conv_transpose_with(      \
        1, GD_OPTIONS_5(gd_nn_conv_options, module, name, x, channels, kernel, __VA_ARGS__))
#define gd_nn_conv_transpose2d(...) \
    gd_nn_conv_transpose_with(      \
        2, GD_OPTIONS_5(gd_nn_conv_options, module, name, x, channels, kernel, __VA_ARGS__))
#define gd_nn_conv_transpose3d(...) \
    gd_nn_conv_transpose_with(      \
        3, GD_OPTIONS_5(gd_nn_conv_options, module, name, x, channels, kernel, __VA_ARGS__))
GD_API gd_tensor *gd_nn_conv_transpose_with(int axes, gd_nn_conv_options options);

/* ---- normalisation, gradus/norm.h. "weight" is made of ones, "bias" of zeros; no_affine: neither
 * is made ---- */

typedef struct gd_nn_norm_options {
    gd_module *module;
    const char *name;
    gd_tensor *x;
    bool no_affine, no_bias;
    double epsilon;  /* 1e-5 */
    double momentum; /* batch norm only: 0.1 */
    int axes;        /* layer and RMS norm only: how many last axes; 1 */
    int64_t groups;  /* group norm only: needed */
} gd_nn_norm_options;

/* gd_nn_layer_norm(m, "norm", x): over the last axis, weight and bias of its size. */
#define gd_nn_layer_norm(...) \
    gd_nn_layer_norm_with(GD_OPTIONS_3(gd_nn_norm_options, module, name, x, __VA_ARGS__))
GD_API gd_tensor *gd_nn_layer_norm_with(gd_nn_norm_options options);
/* Likewise; a weight only. */
#define gd_nn_rms_norm(...) \
    gd_nn_rms_norm_with(GD_OPTIONS_3(gd_nn_norm_options, module, name, x, __VA_ARGS__))
GD_API gd_tensor *gd_nn_rms_norm_with(gd_nn_norm_options options);
/* gd_nn_group_norm(m, "norm", x, .groups = 8): x [n, c, ..], weight and bias [c]. */
#define gd_nn_group_norm(...) \
    gd_nn_group_norm_with(GD_OPTIONS_3(gd_nn_norm_options, module, name, x, __VA_ARGS__))
GD_API gd_tensor *gd_nn_group_norm_with(gd_nn_norm_options options);
#define gd_nn_instance_norm(...) \
    gd_nn_instance_norm_with(GD_OPTIONS_3(gd_nn_norm_options, module, name, x, __VA_ARGS__))
GD_API gd_tensor *gd_nn_instance_norm_with(gd_nn_norm_options options);
/* Batch statistics while the module is in training, and the buffers "running_mean" and
 * "running_var" [c] (from 0 and 1) updated as an effect; otherwise the buffers. */
#define gd_nn_batch_norm(...) \
    gd_nn_batch_norm_with(GD_OPTIONS_3(gd_nn_norm_options, module, name, x, __VA_ARGS__))
GD_API gd_tensor *gd_nn_batch_norm_with(gd_nn_norm_options options);

/* ---- dropping ---- */

/* gd_dropout(x, p) while the module is in training, x itself otherwise. 0 <= p < 1. Srivastava et
 * al. 2014. */
GD_API gd_tensor *gd_nn_dropout(gd_module *m, const char *name, gd_tensor *x, double p);
/* gd_nn_linear with each weight dropped with probability p in training. Wan et al., "Regularization of
 * neural networks using DropConnect", 2013 (with the mean of the weights in use, as dropout). */
GD_API gd_tensor *gd_nn_drop_connect(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                                     double p);

/* ---- others ---- */

/* max(x, 0) + slope * min(x, 0) with the parameter "slope", from 0.25: one number, or per_channel
 * [c] for x [n, c, ..]. He et al. 2015. */
GD_API gd_tensor *gd_nn_prelu(gd_module *m, const char *name, gd_tensor *x, bool per_channel);
/* Rows of the parameter "weight" [count, units] (normal, deviation 1) named by integers: index [..]
 * -> [.., units]; an index out of range is GD_ERR_INVALID. */
GD_API gd_tensor *gd_nn_embedding(gd_module *m, const char *name, gd_tensor *index, int64_t count,
                                  int64_t units);

#ifdef __cplusplus
}
#endif
#endif
