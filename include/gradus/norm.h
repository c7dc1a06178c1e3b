/* gradus/norm.h: normalisation. weight and bias may be NULL. epsilon, added to a variance, is 0 or
 * more. Parameters of another float dtype than x are promoted with it; half precision is computed
 * in f32. Errors: GD_ERR_SHAPE, GD_ERR_INVALID (a negative epsilon), GD_ERR_MEMORY. Layers with
 * parameters of their own are in gradus/layers.h.
 */
#ifndef GRADUS_NORM_H
#define GRADUS_NORM_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_layer_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_layer_norm_options));
    int axes GD_DEFAULT(1); /* how many of the last axes are normalised together */
    double epsilon GD_DEFAULT(1e-5);
} gd_layer_norm_options;
#define GD_LAYER_NORM_DEFAULTS .size = sizeof(gd_layer_norm_options), .axes = 1, .epsilon = 1e-5
/* gd_layer_norm(x, weight, bias), gd_layer_norm(x, NULL, NULL, .axes = 2): (x - mean) / sqrt(var +
 * epsilon) * weight + bias over the last axes, var divided by n; weight and bias have the shape of
 * those axes. Ba, Kiros, Hinton 2016. */
#define gd_layer_norm(...) \
    GD_WITH_3(gd_layer_norm_with, gd_layer_norm_options, GD_LAYER_NORM_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_layer_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                                     const gd_layer_norm_options *options);

typedef struct gd_rms_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_rms_norm_options));
    int axes GD_DEFAULT(1);
    double epsilon GD_DEFAULT(1e-5);
} gd_rms_norm_options;
#define GD_RMS_NORM_DEFAULTS .size = sizeof(gd_rms_norm_options), .axes = 1, .epsilon = 1e-5
/* gd_rms_norm(x, weight): x / sqrt(mean(x^2) + epsilon) * weight over the last axes. Zhang,
 * Sennrich 2019. */
#define gd_rms_norm(...) \
    GD_WITH_2(gd_rms_norm_with, gd_rms_norm_options, GD_RMS_NORM_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_rms_norm_with(gd_tensor *x, gd_tensor *weight,
                                   const gd_rms_norm_options *options);

typedef struct gd_group_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_group_norm_options));
    double epsilon GD_DEFAULT(1e-5);
} gd_group_norm_options;
#define GD_GROUP_NORM_DEFAULTS .size = sizeof(gd_group_norm_options), .epsilon = 1e-5
/* gd_group_norm(x, weight, bias, 8): x [batch, channels, ..] normalised over each group of channels
 * of each sample; weight and bias [channels]. GD_ERR_SHAPE: the groups do not divide the channels.
 * Wu, He 2018. */
#define gd_group_norm(...) \
    GD_WITH_4(gd_group_norm_with, gd_group_norm_options, GD_GROUP_NORM_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_group_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                                     int64_t groups, const gd_group_norm_options *options);

typedef struct gd_instance_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_instance_norm_options));
    double epsilon GD_DEFAULT(1e-5);
} gd_instance_norm_options;
#define GD_INSTANCE_NORM_DEFAULTS .size = sizeof(gd_instance_norm_options), .epsilon = 1e-5
/* gd_instance_norm(x, weight, bias): each channel of each sample by itself. Ulyanov et al. 2016. */
#define gd_instance_norm(...)                                                             \
    GD_WITH_3(gd_instance_norm_with, gd_instance_norm_options, GD_INSTANCE_NORM_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_instance_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                                        const gd_instance_norm_options *options);

typedef struct gd_batch_norm_options {
    size_t size GD_DEFAULT(sizeof(gd_batch_norm_options));
    bool training;
    double momentum GD_DEFAULT(0.1); /* share of the new statistics, 0 … 1 */
    double epsilon GD_DEFAULT(1e-5);
} gd_batch_norm_options;
#define GD_BATCH_NORM_DEFAULTS \
    .size = sizeof(gd_batch_norm_options), .momentum = 0.1, .epsilon = 1e-5
/* gd_batch_norm(x, weight, bias, mean, variance, .training = true): each channel of x [batch,
 * channels, ..] over the batch and all axes behind. mean and variance are running statistics
 * [channels], persistent tensors. In training with the batch's own statistics (var divided by n),
 * and as effects mean += momentum (batch mean - mean), variance likewise with the batch's var
 * divided by n - 1; both may be NULL then. Otherwise with the running statistics, which are needed:
 * GD_ERR_INVALID. Ioffe, Szegedy 2015. */
#define gd_batch_norm(...) \
    GD_WITH_5(gd_batch_norm_with, gd_batch_norm_options, GD_BATCH_NORM_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_batch_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                                     gd_tensor *mean, gd_tensor *variance,
                                     const gd_batch_norm_options *options);

#ifdef __cplusplus
}
#endif
#endif
