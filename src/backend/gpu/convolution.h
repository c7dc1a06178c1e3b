/* backend/gpu/convolution.h: a convolution as a library of a device's maker is told of it: all that its
 * choice of a kernel may depend on, and so the key under which plans are kept. */
#ifndef GD_BACKEND_GPU_CONVOLUTION_H
#define GD_BACKEND_GPU_CONVOLUTION_H

#include <stdint.h>

#include "ops/attrs.h"

/* Of y = x * w, which one is computed from the two others: also the numbers of their places. */
typedef enum gd_gpu_convolution_operand {
    GD_CONV_X,
    GD_CONV_W,
    GD_CONV_Y
} gd_gpu_convolution_operand;

enum { GD_CONV_OPERANDS = 3, GD_CONV_AXES = 2 + GD_SPATIAL };

/* f32, contiguous: x [n, groups * c, in...], w [groups * o, c, kernel...], y [n, groups * o, out...].
 * Numbers of 64 bits alone: it is compared and hashed as bytes. */
typedef struct gd_gpu_convolution {
    int64_t result; /* a gd_gpu_convolution_operand */
    int64_t axes;   /* of an operand: 4, or 5 with three spatial ones; the rest of an array is 0 */
    int64_t groups;
    int64_t size[GD_CONV_OPERANDS][GD_CONV_AXES];
    int64_t stride[GD_SPATIAL], before[GD_SPATIAL], after[GD_SPATIAL], dilation[GD_SPATIAL];
} gd_gpu_convolution;

enum { GD_CONV_NUMBERS = sizeof(gd_gpu_convolution) / sizeof(int64_t) };

#endif
