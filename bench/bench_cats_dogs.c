/* bench/bench_cats_dogs.c: a training step of the cats-and-dogs network of the training-loop design
 * (examples/cats_dogs.c): three convolutions 3x3 with ReLU, 3 -> 16 -> 32 -> 64 channels, then 128
 * and 2 units, 33.6 million parameters; batch 16 of 3x64x64, Adam. What is measured, and how, is in
 * cnn.c. */
#include "cnn.h"

enum { SIZE = 64 };

/* x [batch, 3, 64, 64] -> logits [batch, 2] */
static gd_tensor *cats_dogs(gd_module *m, gd_tensor *x)
{
    x = gd_relu(gd_nn_conv2d(m, "conv1", x, 16, GD_SHAPE(3), .padding = GD_SHAPE(1)));
    x = gd_relu(gd_nn_conv2d(m, "conv2", x, 32, GD_SHAPE(3), .padding = GD_SHAPE(1)));
    x = gd_relu(gd_nn_conv2d(m, "conv3", x, 64, GD_SHAPE(3), .padding = GD_SHAPE(1)));
    x = gd_reshape(x, GD_SHAPE(-1, 64 * SIZE * SIZE)); // [batch, 262144]
    x = gd_relu(gd_nn_linear(m, "fc1", x, 128));
    return gd_nn_linear(m, "fc2", x, 2);
}

int main(int count, char **arguments)
{
    /* Each thrice, for the forward pass and both gradients, but the first: nobody asks for the
     * gradient of the photographs. */
    const double first = SIZE * SIZE * 16 * (3 * 9);
    const double rest =
        SIZE * SIZE * (32 * (16 * 9) + 64 * (32 * 9)) + 64.0 * SIZE * SIZE * 128 + 128 * 2;
    const gd_bench_cnn cnn = { .suite = "cats_dogs",
                               .network = cats_dogs,
                               .input = GD_SHAPE(16, 3, SIZE, SIZE),
                               .classes = 2,
                               .adam = true,
                               .learning_rate = 1e-5,
                               .multiply_adds = 2 * first + 3 * rest,
                               .chunk = 1,
                               .seconds = 3 };
    return gd_bench_cnn_run(&cnn, count, arguments);
}
