/* bench/bench_lenet.c: a training step of LeNet-5 (LeCun et al., "Gradient-based learning applied
 * to document recognition", 1998; as usual today with ReLU and the largest of 2x2) on MNIST, batch
 * 64, Adam. What is measured, and how, is in cnn.c. */
#include "cnn.h"

/* x [batch, 1, 28, 28] -> logits [batch, 10] */
static gd_tensor *lenet(gd_module *m, gd_tensor *x)
{
    x = gd_relu(
        gd_nn_conv2d(m, "conv1", x, 6, GD_SHAPE(5), .padding = GD_SHAPE(2))); // [batch, 6, 28, 28]
    x = gd_max_pool2d(x, GD_SHAPE(2));                                        // [batch, 6, 14, 14]
    x = gd_relu(gd_nn_conv2d(m, "conv2", x, 16, GD_SHAPE(5)));                // [batch, 16, 10, 10]
    x = gd_reshape(gd_max_pool2d(x, GD_SHAPE(2)), GD_SHAPE(-1, 400));
    x = gd_relu(gd_nn_linear(m, "fc1", x, 120));
    x = gd_relu(gd_nn_linear(m, "fc2", x, 84));
    return gd_nn_linear(m, "fc3", x, 10);
}

int main(int count, char **arguments)
{
    /* Each thrice, for the forward pass and both gradients, but the first: nobody asks for the
     * gradient of the digits. */
    const double first = 28 * 28 * 6 * 25;
    const double rest = 10 * 10 * 16 * (6 * 25) + 400 * 120 + 120 * 84 + 84 * 10;
    const gd_bench_cnn cnn = { .suite = "lenet",
                               .network = lenet,
                               .input = GD_SHAPE(64, 1, 28, 28),
                               .classes = 10,
                               .digits = true,
                               .adam = true,
                               .learning_rate = 1e-4,
                               .multiply_adds = 2 * first + 3 * rest,
                               .chunk = 20,
                               .seconds = 1.5 };
    return gd_bench_cnn_run(&cnn, count, arguments);
}
