/* support/network.h: the network of `make mnist`, written in C, and an input for it. Include after cmocka.h. */
#ifndef GD_TESTS_NETWORK_H
#define GD_TESTS_NETWORK_H

#include "support/context.h"

static inline gd_tensor *ramp(gd_context *gd, gd_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    gd_tensor *t = gd_arange(gd, 0.0, (double)count, 1.0, GD_F32);
    return gd_reshape(gd_sub_scalar(gd_mul_scalar(t, 0.0625), 1.0), shape);
}

/* The network of the main job. */
static inline gd_tensor *network(gd_module *m, gd_tensor *x)
{
    gd_tensor *a = gd_relu(gd_nn_linear(m, "fc1", x, 16));
    gd_tensor *b = gd_relu(gd_nn_linear(m, "fc2", a, 16));
    return gd_nn_linear(m, "fc3", gd_add(a, b), 10);
}

#endif
