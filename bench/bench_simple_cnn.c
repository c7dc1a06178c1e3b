/* bench/bench_simple_cnn.c: a training step of the simple network of the training-loop design: a
 * convolution 3x3 of 3 -> 8 channels, ReLU, the mean over each channel, 2 classes; batch 32 of
 * 3x32x32, SGD. What is measured, and how, is in cnn.c. */
#include "cnn.h"

/* x [batch, 3, 32, 32] -> logits [batch, 2] */
static gd_tensor *simple(gd_module *m, gd_tensor *x)
{
    x = gd_relu(
        gd_nn_conv2d(m, "conv", x, 8, GD_SHAPE(3), .padding = GD_SHAPE(1))); // [batch, 8, 32, 32]
    return gd_nn_linear(m, "fc", gd_global_avg_pool(x), 2);
}

int main(int count, char **arguments)
{
    const gd_bench_cnn cnn = { .suite = "simple_cnn",
                               .network = simple,
                               .input = GD_SHAPE(32, 3, 32, 32),
                               .classes = 2,
                               .learning_rate = 0.1,
                               /* forward, and the gradient of the weights */
                               .multiply_adds = 2 * 32 * 32 * 8 * (3 * 9) + 3 * 8 * 2,
                               .chunk = 50,
                               .seconds = 1.5 };
    return gd_bench_cnn_run(&cnn, count, arguments);
}
