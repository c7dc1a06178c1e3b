/* gradus/norm.h: normalisation. weight and bias may be NULL; epsilon 0 means 1e-5. Parameters of
 * another float dtype than x are promoted with it; half precision is computed in f32. Errors:
 * GD_ERR_SHAPE, GD_ERR_INVALID (a negative epsilon), GD_ERR_MEMORY. Layers with parameters of their
 * own are in gradus/nn.h.
 */
#ifndef GRADUS_NORM_H
#define GRADUS_NORM_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_layer_norm_options {
    gd_tensor *x, *weight, *bias;
    int axes; /* how many of the last axes are normalised together; 0 means 1 */
    double epsilon;
} gd_layer_norm_options;
/* gd_layer_norm(x, weight, bias), gd_layer_norm(x, NULL, NULL, .axes = 2): (x - mean) / sqrt(var +
 * epsilon) * weight + bias over the last axes, var divided by n; weight and bias have the shape of
 * those axes. Ba, Kiros, Hinton 2016. */
#define gd_layer_norm(...) \
    gd_layer_norm_with(GD_OPTIONS_3(gd_layer_norm_options, x, weight, bias, __VA_ARGS__))
GD_API gd_tensor *gd_layer_norm_with(gd_layer_norm_options options);

typedef struct gd_rms_norm_options {
    gd_tensor *x, *weight;
    int axes;
    double epsilon;
} gd_rms_norm_options;
/* gd_rms_norm(x, weight): x / sqrt(mean(x^2) + epsilon) * weight over the last axes. Zhang,
 * Sennrich 2019. */
#define gd_rms_norm(...) gd_rms_norm_with(GD_OPTIONS_2(gd_rms_norm_options, x, weight, __VA_ARGS__))
GD_API gd_tensor *gd_rms_norm_with(gd_rms_norm_options options);

typedef struct gd_group_norm_options {
    gd_tensor *x, *weight, *bias;
    int64_t groups; /* 0 means 1; must divide the channels, else GD_ERR_SHAPE */
    double epsilon;
} gd_group_norm_options;
/* gd_group_norm(x, weight, bias, .groups = 8): x [batch, channels, ..] normalised over each group
 * of channels of each sample; weight and bias [channels]. Wu, He 2018. */
#define gd_group_norm(...) \
    gd_group_norm_with(GD_OPTIONS_3(gd_group_norm_options, x, weight, bias, __VA_ARGS__))
GD_API gd_tensor *gd_group_norm_with(gd_group_norm_options options);

typedef struct gd_instance_norm_options {
    gd_tensor *x, *weight, *bias;
    double epsilon;
} gd_instance_norm_options;
/* gd_instance_norm(x, weight, bias): each channel of each sample by itself. Ulyanov et al. 2016. */
#define gd_instance_norm(...) \
    gd_instance_norm_with(GD_OPTIONS_3(gd_instance_norm_options, x, weight, bias, __VA_ARGS__))
GD_API gd_tensor *gd_instance_norm_with(gd_instance_norm_options options);

typedef struct gd_batch_norm_options {
    gd_tensor *x, *weight, *bias;
    gd_tensor *mean, *variance; /* running statistics [channels], persistent tensors */
    bool training;
    double momentum; /* share of the new statistics; 0 means 0.1 */
    double epsilon;
} gd_batch_norm_options;
/* gd_batch_norm(x, weight, bias, mean, variance, .training = true): each channel of x [batch,
 * channels, ..] over the batch and all axes behind. In training with the batch's own statistics
 * (var divided by n), and as effects mean += momentum (batch mean - mean), variance likewise with
 * the batch's var divided by n - 1; both may be NULL then. Otherwise with the running statistics,
 * which are needed: GD_ERR_INVALID. Ioffe, Szegedy 2015. */
#define gd_batch_norm(...) \
    gd_batch_norm_with(    \
        GD_OPTIONS_5(gd_batch_norm_options, x, weight, bias, mean, variance, __VA_ARGS__))
GD_API gd_tensor *gd_batch_norm_with(gd_batch_norm_options options);

#ifdef __cplusplus
}
#endif
#endif
