/* bench/bench_resnet20.c: a training step of a residual network with batch normalisation, the one of 20 layers for
 * CIFAR-10 of He, Zhang, Ren, Sun, "Deep residual learning for image recognition" (2016), its shortcuts between
 * widths being convolutions of 1x1; batch 64 of 3x32x32, SGD. What is measured, and how, is in cnn.c. */
#include "cnn.h"

#include <stdio.h>

enum { BLOCKS = 3 /* of a width */, WIDTHS = 3 };

/* A convolution without bias, normalised. */
static gd_tensor *convolve(gd_module *m, const char *block, int number, gd_tensor *x, int64_t width,
                           int64_t size, int64_t stride)
{
    char name[32];
    snprintf(name, sizeof name, "%s.conv%d", block, number);
    x = gd_nn_conv2d(m, name, x, width, GD_SHAPE(size), .padding = GD_SHAPE(size / 2),
                     .stride = GD_SHAPE(stride), .bias = false);
    snprintf(name, sizeof name, "%s.norm%d", block, number);
    return gd_nn_batch_norm(m, name, x);
}

static gd_tensor *block(gd_module *m, const char *name, gd_tensor *x, int64_t width, int64_t stride)
{
    gd_tensor *y = gd_relu(convolve(m, name, 1, x, width, 3, stride));
    y = convolve(m, name, 2, y, width, 3, 1);
    return gd_relu(gd_add(y, stride == 1 ? x : convolve(m, name, 3, x, width, 1, stride)));
}

/* x [batch, 3, 32, 32] -> logits [batch, 10] */
static gd_tensor *resnet20(gd_module *m, gd_tensor *x)
{
    x = gd_relu(convolve(m, "first", 1, x, 16, 3, 1));
    for (int i = 0; i < WIDTHS * BLOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "block%d", i);
        x = block(m, name, x, 16 << i / BLOCKS, i > 0 && i % BLOCKS == 0 ? 2 : 1);
    }
    return gd_nn_linear(m, "fc", gd_global_avg_pool(x), 10);
}

int main(int count, char **arguments)
{
    const double first = 32 * 32 * 16 * (3 * 9); /* forward, and the gradient of the weights */
    double others = 64 * 10;                     /* and of the input */
    for (int i = 0; i < WIDTHS; i++) {
        const double width = 16 << i, positions = 1024 >> 2 * i;
        const double entering = i > 0 ? width / 2 * width * (9 + 1) : width * width * 9;
        others += positions * (entering + (2 * BLOCKS - 1) * width * width * 9);
    }
    const gd_bench_cnn cnn = { .suite = "resnet20",
                               .network = resnet20,
                               .input = GD_SHAPE(64, 3, 32, 32),
                               .classes = 10,
                               .learning_rate = 0.01,
                               .multiply_adds = 2 * first + 3 * others,
                               .chunk = 5,
                               /* peers differ among themselves by 4e-4: deviations divide */
                               .tolerance = 1e-3,
                               .seconds = 2.5 };
    return gd_bench_cnn_run(&cnn, count, arguments);
}
