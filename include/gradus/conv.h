/* gradus/conv.h: convolution and pooling, over one, two or three spatial axes. Start at gd_conv2d()
 * and gd_max_pool2d().
 *
 * Tensors are [batch, channels, spatial...] (PyTorch's NCL, NCHW, NCDHW). "Convolution" is what the
 * field calls so: cross-correlation. Everything computes in f32 or f64; f16 and bf16 go through f32
 * and come back, integers and bools become f32. NULL operands give NULL. Errors: GD_ERR_SHAPE where
 * shapes do not fit together, GD_ERR_INVALID for an option without meaning.
 */
#ifndef GRADUS_CONV_H
#define GRADUS_CONV_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolution ---- */

/* What may follow the operands; zero means the default. A number is for all axes; the lists are for
 * single axes, in the order of the shape. */
typedef struct gd_conv_options {
    gd_tensor *x;       /* [n, c, spatial...] */
    gd_tensor *w;       /* [out, c / groups, kernel...]; transposed: [c, out / groups, kernel...] */
    gd_tensor *b;       /* [out], or NULL */
    int64_t stride;     /* 1 */
    int64_t pad;        /* 0: zeros at both ends of every axis */
    int64_t dilation;   /* 1: distance of the kernel's elements */
    int64_t groups;     /* 1: channels come in so many groups that do not see each other; c of them
                           is a depthwise convolution */
    bool same;          /* pad so that the result has ceil(size / stride) elements; the odd zero
                           stands behind (as TensorFlow and ONNX SAME_UPPER) */
    int64_t strides[3]; /* of single axes, instead of stride */
    int64_t dilations[3]; /* instead of dilation */
    int64_t before[3];    /* zeros in front of an axis, in addition to pad */
    int64_t after[3];     /* zeros behind it, likewise */
    int64_t output_pad;   /* transposed only: so many more elements behind each axis, fewer than the
                             stride: which of the sizes that give x's is meant */
    int64_t output_pads[3]; /* of single axes, in addition */
} gd_conv_options;

/* gd_conv2d(x, w, b), gd_conv2d(x, w, NULL, .stride = 2, .pad = 1):
 *     r[n, o, p] = b[o] + sum over c, k of w[o, c, k] * x[n, c, p * stride - pad + k * dilation]
 * with x[n, c, q] = 0 outside, and c over the channels of o's group. Each axis has
 * floor((size + before + after - dilation * (kernel - 1) - 1) / stride) + 1 elements; a kernel
 * larger than the padded input is GD_ERR_SHAPE. Compiled, a ReLU behind it is part of the same
 * kernel. In f32 on the CPU every element is a fixed chain of fused multiply-adds
 * (src/backend/cpu/conv.h). */
#define gd_conv1d(...) gd_conv_with(1, GD_OPTIONS_3(gd_conv_options, x, w, b, __VA_ARGS__))
#define gd_conv2d(...) gd_conv_with(2, GD_OPTIONS_3(gd_conv_options, x, w, b, __VA_ARGS__))
#define gd_conv3d(...) gd_conv_with(3, GD_OPTIONS_3(gd_conv_options, x, w, b, __VA_ARGS__))
/* The same with the number of spatial axes as an argument, 1 … 3. */
GD_API gd_tensor *gd_conv_with(int axes, gd_conv_options options);

/* Transposed convolution: the gradient of a convolution with the same options by its input, plus b.
 * Each axis has (size - 1) * stride - before - after + dilation * (kernel - 1) + output_pad + 1
 * elements; with .same, size * stride. Zeiler et al. 2010. */
#define gd_conv_transpose1d(...) \
    gd_conv_transpose_with(1, GD_OPTIONS_3(gd_conv_options, x, w, b, __VA_ARGS__))
#define gd_conv_transpose2d(...) \
    gd_conv_transpose_with(2, GD_OPTIONS_3(gd_conv_options, x, w, b, __VA_ARGS__))
#define gd_conv_transpose3d(...) \
    gd_conv_transpose_with(3, GD_OPTIONS_3(gd_conv_options, x, w, b, __VA_ARGS__))
GD_API gd_tensor *gd_conv_transpose_with(int axes, gd_conv_options options);

/* ---- pooling ---- */

typedef struct gd_pool_options {
    gd_tensor *x;         /* [n, c, spatial...] */
    int64_t kernel;       /* size of the window */
    int64_t stride;       /* the window's size */
    int64_t pad;          /* 0: at both ends of every axis; at most half the window */
    int64_t dilation;     /* 1; maximum only */
    bool ceil_mode;       /* round the number of windows up: the last may reach over the edge */
    bool exclude_pad;     /* average only: divide by the elements inside the input, not by the
                             window's (PyTorch's count_include_pad = False) */
    int64_t kernels[3];   /* of single axes, instead of kernel */
    int64_t strides[3];   /* instead of stride */
    int64_t dilations[3]; /* instead of dilation */
    int64_t pads[3];      /* both ends of single axes, in addition to pad */
} gd_pool_options;

/* gd_max_pool2d(x, 2), gd_max_pool2d(x, 3, .stride = 2, .pad = 1): the largest element of each
 * window, padding never being it. NaN wins. The gradient goes to the first largest element. */
#define gd_max_pool1d(...) \
    gd_max_pool_with(1, GD_OPTIONS_2(gd_pool_options, x, kernel, __VA_ARGS__))
#define gd_max_pool2d(...) \
    gd_max_pool_with(2, GD_OPTIONS_2(gd_pool_options, x, kernel, __VA_ARGS__))
#define gd_max_pool3d(...) \
    gd_max_pool_with(3, GD_OPTIONS_2(gd_pool_options, x, kernel, __VA_ARGS__))
GD_API gd_tensor *gd_max_pool_with(int axes, gd_pool_options options);

/* The mean of each window, added up in row-major order. */
#define gd_avg_pool1d(...) \
    gd_avg_pool_with(1, GD_OPTIONS_2(gd_pool_options, x, kernel, __VA_ARGS__))
#define gd_avg_pool2d(...) \
    gd_avg_pool_with(2, GD_OPTIONS_2(gd_pool_options, x, kernel, __VA_ARGS__))
#define gd_avg_pool3d(...) \
    gd_avg_pool_with(3, GD_OPTIONS_2(gd_pool_options, x, kernel, __VA_ARGS__))
GD_API gd_tensor *gd_avg_pool_with(int axes, gd_pool_options options);

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
