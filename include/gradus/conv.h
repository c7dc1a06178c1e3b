/* gradus/conv.h: convolution and pooling, over one, two or three spatial axes. Start at gd_conv2d()
 * and gd_max_pool2d().
 *
 * Tensors are [batch, channels, spatial...] (PyTorch's NCL, NCHW, NCDHW). "Convolution" is what the
 * field calls so: cross-correlation. Everything computes in f32 or f64; f16 and bf16 go through f32
 * and come back, but for convolutions of bf16 on processors that multiply it, which add up in f32
 * (gradus/precision.h); integers and bools become f32. NULL operands give NULL. Errors: GD_ERR_SHAPE
 * where shapes do not fit together, GD_ERR_INVALID for an option without meaning.
 */
#ifndef GRADUS_CONV_H
#define GRADUS_CONV_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolution ---- */

/* What may follow the operands. A shape is one number for all spatial axes or one for each:
 * GD_SHAPE(2), GD_SHAPE(1, 3); of rank 0, as it is by default, it means what its comment says. */
typedef struct gd_conv_options {
    size_t size GD_DEFAULT(sizeof(gd_conv_options));
    gd_shape stride;              /* 1 */
    gd_shape padding;             /* zeros at both ends of an axis; none */
    gd_shape padding_before;      /* zeros in front of an axis; as padding */
    gd_shape padding_after;       /* zeros behind it; as padding */
    gd_shape dilation;            /* distance of the kernel's elements; 1 */
    int64_t groups GD_DEFAULT(1); /* channels come in so many groups that do not see each
                                              other; as many as channels: a depthwise convolution */
    bool same;               /* padding so that the result has ceil(size / stride) elements; the odd
                                zero stands behind (as TensorFlow and ONNX SAME_UPPER) */
    gd_shape output_padding; /* transposed only: so many more elements behind an axis, fewer than
                                the stride: which of the sizes that give x's is meant; none */
} gd_conv_options;
#define GD_CONV_DEFAULTS .size = sizeof(gd_conv_options), .groups = 1, .output_padding = { 0 }

/* gd_conv2d(x, weight, bias), gd_conv2d(x, weight, NULL, .stride = GD_SHAPE(2)):
 *     r[n, o, p] = bias[o]
 *         + sum over c, k of weight[o, c, k] * x[n, c, p * stride - padding + k * dilation]
 * of x [n, c, spatial...], weight [out, c / groups, kernel...] and bias [out] or NULL, with
 * x[n, c, q] = 0 outside, and c over the channels of o's group. Each axis has floor((size +
 * padding_before + padding_after - dilation * (kernel - 1) - 1) / stride) + 1 elements; a kernel
 * larger than the padded input is GD_ERR_SHAPE. Compiled, a ReLU behind it is part of the same
 * kernel. In f32 on the CPU every element is a fixed chain of fused multiply-adds
 * (src/backend/cpu/conv.h). */
#define gd_conv1d(...) GD_CONV_OVER(gd_conv_with, 1, __VA_ARGS__, )
#define gd_conv2d(...) GD_CONV_OVER(gd_conv_with, 2, __VA_ARGS__, )
#define gd_conv3d(...) GD_CONV_OVER(gd_conv_with, 3, __VA_ARGS__, )
/* The same with the number of spatial axes as an argument, 1 … 3. */
GD_API gd_tensor *gd_conv_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, int axes,
                               const gd_conv_options *options);

/* Transposed convolution: the gradient of a convolution with the same options by its input, plus
 * bias [out]; weight [c, out / groups, kernel...]. Each axis has (size - 1) * stride -
 * padding_before - padding_after + dilation * (kernel - 1) + output_padding + 1 elements; with
 * .same, size * stride. Zeiler et al. 2010. */
#define gd_conv_transpose1d(...) GD_CONV_OVER(gd_conv_transpose_with, 1, __VA_ARGS__, )
#define gd_conv_transpose2d(...) GD_CONV_OVER(gd_conv_transpose_with, 2, __VA_ARGS__, )
#define gd_conv_transpose3d(...) GD_CONV_OVER(gd_conv_transpose_with, 3, __VA_ARGS__, )
GD_API gd_tensor *gd_conv_transpose_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, int axes,
                                         const gd_conv_options *options);

#define GD_CONV_OVER(f, axes, x, weight, bias, ...) \
    GD_WITH_4(f, gd_conv_options, GD_CONV_DEFAULTS, x, weight, bias, axes, __VA_ARGS__)

/* ---- pooling ---- */

/* Shapes as in gd_conv_options. */
typedef struct gd_pool_options {
    size_t size GD_DEFAULT(sizeof(gd_pool_options));
    gd_shape stride;   /* the window's size */
    gd_shape padding;  /* at both ends of an axis, at most half the window; none */
    gd_shape dilation; /* maximum only; 1 */
    bool ceil_mode;    /* round the number of windows up: the last may reach over the edge */
    /* average only: divide by the window's elements; false: by those that lie inside the input */
    bool count_padding GD_DEFAULT(true);
} gd_pool_options;
#define GD_POOL_DEFAULTS .size = sizeof(gd_pool_options), .count_padding = true

/* gd_max_pool2d(x, GD_SHAPE(2)), gd_max_pool2d(x, GD_SHAPE(3), .stride = GD_SHAPE(2)): the largest
 * element of each window of x [n, c, spatial...], padding never being it. The kernel is the
 * window's size. NaN wins. The gradient goes to the first largest element. */
#define gd_max_pool1d(...) GD_POOL_OVER(gd_max_pool_with, 1, __VA_ARGS__, )
#define gd_max_pool2d(...) GD_POOL_OVER(gd_max_pool_with, 2, __VA_ARGS__, )
#define gd_max_pool3d(...) GD_POOL_OVER(gd_max_pool_with, 3, __VA_ARGS__, )
GD_API gd_tensor *gd_max_pool_with(gd_tensor *x, int axes, gd_shape kernel,
                                   const gd_pool_options *options);

/* The mean of each window, added up in row-major order. */
#define gd_avg_pool1d(...) GD_POOL_OVER(gd_avg_pool_with, 1, __VA_ARGS__, )
#define gd_avg_pool2d(...) GD_POOL_OVER(gd_avg_pool_with, 2, __VA_ARGS__, )
#define gd_avg_pool3d(...) GD_POOL_OVER(gd_avg_pool_with, 3, __VA_ARGS__, )
GD_API gd_tensor *gd_avg_pool_with(gd_tensor *x, int axes, gd_shape kernel,
                                   const gd_pool_options *options);

#define GD_POOL_OVER(f, axes, x, kernel, ...) \
    GD_WITH_3(f, gd_pool_options, GD_POOL_DEFAULTS, x, axes, kernel, __VA_ARGS__)

/* gd_adaptive_avg_pool2d(x, 7, 7): windows so that the result has these spatial sizes: window i of
 * n covers elements floor(i * size / n) … ceil((i + 1) * size / n) - 1. */
#define gd_adaptive_avg_pool1d(x, size)          gd_adaptive_avg_pool(x, GD_SHAPE(size))
#define gd_adaptive_avg_pool2d(x, rows, columns) gd_adaptive_avg_pool(x, GD_SHAPE(rows, columns))
#define gd_adaptive_avg_pool3d(x, depth, rows, columns) \
    gd_adaptive_avg_pool(x, GD_SHAPE(depth, rows, columns))
#define gd_adaptive_max_pool1d(x, size)          gd_adaptive_max_pool(x, GD_SHAPE(size))
#define gd_adaptive_max_pool2d(x, rows, columns) gd_adaptive_max_pool(x, GD_SHAPE(rows, columns))
#define gd_adaptive_max_pool3d(x, depth, rows, columns) \
    gd_adaptive_max_pool(x, GD_SHAPE(depth, rows, columns))
GD_API gd_tensor *gd_adaptive_avg_pool(gd_tensor *x, gd_shape spatial);
GD_API gd_tensor *gd_adaptive_max_pool(gd_tensor *x, gd_shape spatial);

/* The mean, the maximum over all spatial axes: [n, c, spatial...] -> [n, c]. Lin et al. 2013. The
 * maximum's gradient is shared by equal elements, as gd_max's. */
GD_API gd_tensor *gd_global_avg_pool(gd_tensor *x);
GD_API gd_tensor *gd_global_max_pool(gd_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
