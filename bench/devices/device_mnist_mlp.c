/* bench/devices/device_mnist_mlp.c: a training step of examples/models/mnist_mlp.json on MNIST, batch
 * 50, Adam: one side of ours on any device, for tools/gpu_models.py. What is measured, and how, is in
 * cnn.c; bench_mnist_mlp.c has the rest of this network on the CPU. */
#include "cnn.h"

/* x [batch, 1, 28, 28] -> logits [batch, 10] */
static gd_tensor *perceptron(gd_module *m, gd_tensor *x)
{
    x = gd_reshape(x, GD_SHAPE(-1, 784));
    gd_tensor *first = gd_relu(gd_nn_linear(m, "fc1", x, 16));
    gd_tensor *second = gd_relu(gd_nn_linear(m, "fc2", first, 16));
    return gd_nn_linear(m, "fc3", gd_add(first, second), 10);
}

int main(int count, char **arguments)
{
    /* Each thrice, for the forward pass and both gradients, but the first: nobody asks for the
     * gradient of the digits. */
    const gd_bench_cnn mlp = { .suite = "mnist_mlp",
                               .network = perceptron,
                               .input = GD_SHAPE(50, 1, 28, 28),
                               .classes = 10,
                               .digits = true,
                               .adam = true,
                               .learning_rate = 1e-3,
                               .multiply_adds = 2 * 784 * 16 + 3 * (16 * 16 + 16 * 10),
                               .chunk = 50,
                               .seconds = 1.5 };
    return gd_bench_cnn_run(&mlp, count, arguments);
}
