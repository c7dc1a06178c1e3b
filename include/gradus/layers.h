/* gradus/layers.h: layers with parameters or with a training mode. Each is called with the module,
 * a name, and its input; it makes its parameters at first use with shapes inferred from the input,
 * and finds them again at every later use (gradus/nn.h). Options by name follow. Start at
 * gd_nn_conv2d().
 *
 * Inputs are floats, [batch, channels, spatial...] where there are channels; of which dtype, see
 * gd_module_create. NULL modules and inputs give NULL. Errors name the layer: GD_ERR_INVALID for an option without meaning or a name that is
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

/* As gd_conv_options: a shape is one number for all spatial axes or one for each, GD_SHAPE(2),
 * GD_SHAPE(1, 3); of rank 0, as it is by default, it means what its comment says. */
typedef struct gd_nn_conv_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_conv_options));
    gd_shape stride;         /* 1 */
    gd_shape padding;        /* zeros at both ends of an axis; none */
    gd_shape padding_before; /* zeros in front of an axis; as padding */
    gd_shape padding_after;  /* zeros behind it; as padding */
    gd_shape dilation;       /* 1 */
    int64_t groups GD_DEFAULT(1);
    bool same;               /* the result has ceil(size / stride) elements */
    gd_shape output_padding; /* transposed only, see gd_conv_transpose2d; none */
    bool bias GD_DEFAULT(true);
    gd_init init; /* of the weight */
    double init_scale GD_DEFAULT(NAN);
} gd_nn_conv_options;
#define GD_NN_CONV_DEFAULTS \
    .size = sizeof(gd_nn_conv_options), .groups = 1, .bias = true, .init_scale = NAN

/* gd_nn_conv2d(m, "conv1", x, 32, GD_SHAPE(3), .padding = GD_SHAPE(1)): gd_conv2d of x [n, c,
 * spatial...] to 32 channels with a kernel of 3 by 3, and the parameters "conv1.weight" [channels,
 * c / groups, kernel...] and "conv1.bias" [channels] (zeros). Fans of the initialiser are
 * c / groups times the kernel's elements, and channels / groups times those. */
#define gd_nn_conv1d(...) GD_NN_CONV_OVER(gd_nn_conv_with, 1, __VA_ARGS__, )
#define gd_nn_conv2d(...) GD_NN_CONV_OVER(gd_nn_conv_with, 2, __VA_ARGS__, )
#define gd_nn_conv3d(...) GD_NN_CONV_OVER(gd_nn_conv_with, 3, __VA_ARGS__, )
/* The same with the number of spatial axes as an argument, 1 … 3. */
GD_API gd_tensor *gd_nn_conv_with(gd_module *m, const char *name, gd_tensor *x, int axes,
                                  int64_t channels, gd_shape kernel,
                                  const gd_nn_conv_options *options);
/* gd_conv_transpose2d; the weight is [c, channels / groups, kernel...]. */
#define gd_nn_conv_transpose1d(...) GD_NN_CONV_OVER(gd_nn_conv_transpose_with, 1, __VA_ARGS__, )
#define gd_nn_conv_transpose2d(...) GD_NN_CONV_OVER(gd_nn_conv_transpose_with, 2, __VA_ARGS__, )
#define gd_nn_conv_transpose3d(...) GD_NN_CONV_OVER(gd_nn_conv_transpose_with, 3, __VA_ARGS__, )
GD_API gd_tensor *gd_nn_conv_transpose_with(gd_module *m, const char *name, gd_tensor *x, int axes,
                                            int64_t channels, gd_shape kernel,
                                            const gd_nn_conv_options *options);

#define GD_NN_CONV_OVER(f, axes, m, name, x, channels, kernel, ...)                           \
    GD_WITH_6(f, gd_nn_conv_options, GD_NN_CONV_DEFAULTS, m, name, x, axes, channels, kernel, \
              __VA_ARGS__)

/* ---- normalisation, gradus/norm.h. "weight" is made of ones, "bias" of zeros; without affine
 * neither is made, without bias the weight alone ---- */

typedef struct gd_nn_layer_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_layer_norm_options));
    int axes GD_DEFAULT(1); /* how many last ones */
    double epsilon GD_DEFAULT(1e-5);
    bool affine GD_DEFAULT(true), bias GD_DEFAULT(true);
} gd_nn_layer_norm_options;
#define GD_NN_LAYER_NORM_DEFAULTS                                                         \
    .size = sizeof(gd_nn_layer_norm_options), .axes = 1, .epsilon = 1e-5, .affine = true, \
    .bias = true

/* gd_nn_layer_norm(m, "norm", x): over the last axes, weight and bias of their sizes. */
#define gd_nn_layer_norm(...)                                                             \
    GD_WITH_3(gd_nn_layer_norm_with, gd_nn_layer_norm_options, GD_NN_LAYER_NORM_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_layer_norm_with(gd_module *m, const char *name, gd_tensor *x,
                                        const gd_nn_layer_norm_options *options);

typedef struct gd_nn_rms_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_rms_norm_options));
    int axes GD_DEFAULT(1); /* how many last ones */
    double epsilon GD_DEFAULT(1e-5);
    bool affine GD_DEFAULT(true);
} gd_nn_rms_norm_options;
#define GD_NN_RMS_NORM_DEFAULTS \
    .size = sizeof(gd_nn_rms_norm_options), .axes = 1, .epsilon = 1e-5, .affine = true

/* Likewise; a weight only. */
#define gd_nn_rms_norm(...) \
    GD_WITH_3(gd_nn_rms_norm_with, gd_nn_rms_norm_options, GD_NN_RMS_NORM_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_nn_rms_norm_with(gd_module *m, const char *name, gd_tensor *x,
                                      const gd_nn_rms_norm_options *options);

typedef struct gd_nn_group_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_group_norm_options));
    double epsilon GD_DEFAULT(1e-5);
    bool affine GD_DEFAULT(true), bias GD_DEFAULT(true);
} gd_nn_group_norm_options;
#define GD_NN_GROUP_NORM_DEFAULTS \
    .size = sizeof(gd_nn_group_norm_options), .epsilon = 1e-5, .affine = true, .bias = true

/* gd_nn_group_norm(m, "norm", x, 8): x [n, c, ..] in 8 groups of channels, weight and bias [c]. */
#define gd_nn_group_norm(...)                                                             \
    GD_WITH_4(gd_nn_group_norm_with, gd_nn_group_norm_options, GD_NN_GROUP_NORM_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_group_norm_with(gd_module *m, const char *name, gd_tensor *x,
                                        int64_t groups, const gd_nn_group_norm_options *options);

typedef struct gd_nn_instance_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_instance_norm_options));
    double epsilon GD_DEFAULT(1e-5);
    bool affine GD_DEFAULT(true), bias GD_DEFAULT(true);
} gd_nn_instance_norm_options;
#define GD_NN_INSTANCE_NORM_DEFAULTS \
    .size = sizeof(gd_nn_instance_norm_options), .epsilon = 1e-5, .affine = true, .bias = true

/* gd_nn_instance_norm(m, "norm", x): each channel by itself, weight and bias [c]. */
#define gd_nn_instance_norm(...)                                                                   \
    GD_WITH_3(gd_nn_instance_norm_with, gd_nn_instance_norm_options, GD_NN_INSTANCE_NORM_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_instance_norm_with(gd_module *m, const char *name, gd_tensor *x,
                                           const gd_nn_instance_norm_options *options);

typedef struct gd_nn_batch_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_batch_norm_options));
    double momentum GD_DEFAULT(0.1); /* share of the new statistics */
    double epsilon GD_DEFAULT(1e-5);
    bool affine GD_DEFAULT(true), bias GD_DEFAULT(true);
} gd_nn_batch_norm_options;
#define GD_NN_BATCH_NORM_DEFAULTS                                                               \
    .size = sizeof(gd_nn_batch_norm_options), .momentum = 0.1, .epsilon = 1e-5, .affine = true, \
    .bias = true

/* gd_nn_batch_norm(m, "norm", x): batch statistics while the module is in training, and the buffers
 * "running_mean" and "running_var" [c] (from 0 and 1) updated as an effect; otherwise the buffers.
 */
#define gd_nn_batch_norm(...)                                                             \
    GD_WITH_3(gd_nn_batch_norm_with, gd_nn_batch_norm_options, GD_NN_BATCH_NORM_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_batch_norm_with(gd_module *m, const char *name, gd_tensor *x,
                                        const gd_nn_batch_norm_options *options);

/* ---- dropping ---- */

/* gd_dropout(x, dropout) while the module is in training, x itself otherwise. dropout, the
 * probability of being set to 0, is at least 0 and below 1. Srivastava et al. 2014. */
GD_API gd_tensor *gd_nn_dropout(gd_module *m, const char *name, gd_tensor *x, double dropout);
/* gd_nn_linear with each weight dropped with this probability in training. Wan et al.,
 * "Regularization of neural networks using DropConnect", 2013 (with the mean of the weights in use,
 * as dropout). */
GD_API gd_tensor *gd_nn_drop_connect(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                                     double dropout);

/* ---- others ---- */

/* max(x, 0) + slope * min(x, 0) with the parameter "slope", from 0.25: one number, or per_channel
 * [c] for x [n, c, ..]. He et al. 2015. */
GD_API gd_tensor *gd_nn_prelu(gd_module *m, const char *name, gd_tensor *x, bool per_channel);
/* Rows of the parameter "weight" [vocabulary, units] (normal, deviation 1) named by integers: index
 * [..] -> [.., units]; an index out of range is GD_ERR_INVALID. */
GD_API gd_tensor *gd_nn_embedding(gd_module *m, const char *name, gd_tensor *index,
                                  int64_t vocabulary, int64_t units);

#ifdef __cplusplus
}
#endif
#endif
