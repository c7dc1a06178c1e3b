/* scalar_mnist.c: a few hundred MNIST digits learned one number at a time. A demonstration of what
 * the scalar engine can do, and of why there are tensors.
 *
 * 784 -> 16 -> 10, softmax, cross-entropy. Each image is a graph of some 26,000 values, built, sent
 * back through and released; the gradients of a batch add up in the parameters by themselves. Run
 * it with `make scalar_mnist`; an argument names the folder of the MNIST files.
 */
#include <gradus/data.h>
#include <gradus/scalar.h>

#include <math.h>
#include <stdio.h>
#include <time.h>

enum {
    SIDE = 28,
    PIXELS = SIDE * SIDE,
    DIGITS = 10,
    TRAINED = 400,
    TESTED = 200,
    BATCH = 10,
    EPOCHS = 8,
    SHOWN = 4
};

/* Images [count, 28, 28] and their labels [count]. */
typedef struct digits {
    gd_idx images, labels;
} digits;

/* 0, or -1 with a message if the files are not the MNIST files or hold fewer than `least` digits.
 */
static int read_digits(digits *out, const char *folder, const char *part, int least)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte", folder, part);
    if (gd_idx_read(path, &out->images) != GD_OK)
        goto failed;
    snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte", folder, part);
    if (gd_idx_read(path, &out->labels) != GD_OK)
        goto failed;
    const gd_idx *images = &out->images, *labels = &out->labels;
    if (images->type == GD_IDX_U8 && images->rank == 3 && images->dims[0] >= least &&
        images->dims[1] == SIDE && images->dims[2] == SIDE && labels->type == GD_IDX_U8 &&
        labels->rank == 1 && labels->dims[0] >= least)
        return 0;
    fprintf(stderr, "scalar_mnist: %s is not the MNIST data\n", folder);
    return -1;

failed:
    fprintf(stderr, "scalar_mnist: %s\n", gd_error_message());
    return -1;
}

static const unsigned char *image_at(const digits *set, int i)
{
    return (const unsigned char *)set->images.data + (ptrdiff_t)i * PIXELS; // [28, 28]
}

static int label_at(const digits *set, int i)
{
    return ((const unsigned char *)set->labels.data)[i] % DIGITS;
}

/* The network's ten scores for an image; NULL if memory ran out. */
static gd_scalar_vector *scores_of(const gd_mlp *mlp, const unsigned char *image)
{
    gd_scalar_vector *input = gd_scalar_vector_create();
    for (int i = 0; i < PIXELS; i++)
        gd_scalar_vector_push_leaf(input, image[i] / 255.0);
    gd_scalar_vector *scores = gd_mlp_forward(mlp, input);
    gd_scalar_vector_destroy(input);
    return scores;
}

static int best_of(const gd_scalar_vector *scores)
{
    int best = 0;
    for (int k = 1; k < DIGITS; k++)
        if (gd_value_data(gd_scalar_vector_get(scores, (size_t)k)) >
            gd_value_data(gd_scalar_vector_get(scores, (size_t)best)))
            best = k;
    return best;
}

/* -ln softmax(scores)[label] = ln sum_k e^(s_k - m) - (s_label - m). The largest score m is taken
 * off everywhere, a constant that changes nothing but keeps e^s small. */
static gd_value *cross_entropy(const gd_scalar_vector *scores, int label)
{
    gd_value *largest =
        gd_value_create_leaf(gd_value_data(gd_scalar_vector_get(scores, (size_t)best_of(scores))));
    gd_value *sum = gd_value_create_leaf(0.0);
    for (int k = 0; k < DIGITS; k++) {
        gd_value *shifted = gd_value_sub(gd_scalar_vector_get(scores, (size_t)k), largest);
        sum = gd_value_accumulate(sum, gd_value_exp(shifted));
        gd_value_release(shifted);
    }
    gd_value *target = gd_value_sub(gd_scalar_vector_get(scores, (size_t)label), largest);
    gd_value *log_sum = gd_value_log(sum);
    gd_value *loss = gd_value_sub(log_sum, target);
    gd_value_release(log_sum);
    gd_value_release(target);
    gd_value_release(sum);
    gd_value_release(largest);
    return loss;
}

/* One pass over the training digits. The mean loss; negative if memory ran out. */
static double train(const gd_mlp *mlp, const gd_scalar_vector *parameters, const digits *set,
                    double step_size)
{
    double total = 0.0;
    for (int i = 0; i < TRAINED; i++) {
        gd_scalar_vector *scores = scores_of(mlp, image_at(set, i));
        gd_value *loss = cross_entropy(scores, label_at(set, i));
        int status = gd_value_backward(loss);
        total += gd_value_data(loss);
        gd_value_release(loss);
        gd_scalar_vector_destroy(scores);
        if (status != 0)
            return -1.0;
        if ((i + 1) % BATCH == 0) {
            gd_scalar_descend(parameters, step_size / BATCH);
            gd_scalar_zero_grad(parameters);
        }
    }
    return total / TRAINED;
}

/* Percent of the first TESTED digits recognised. */
static double test(const gd_mlp *mlp, const digits *set)
{
    int right = 0;
    for (int i = 0; i < TESTED; i++) {
        gd_scalar_vector *scores = scores_of(mlp, image_at(set, i));
        right += best_of(scores) == label_at(set, i);
        gd_scalar_vector_destroy(scores);
    }
    return 100.0 * right / TESTED;
}

/* The first few test digits side by side, two rows of pixels to a line, and what they are taken
 * for. */
static void show(const gd_mlp *mlp, const digits *set)
{
    static const char shades[] = " .:-=+*#%@";
    for (int y = 0; y < SIDE; y += 2) {
        for (int i = 0; i < SHOWN; i++) {
            const unsigned char *row = image_at(set, i) + (ptrdiff_t)y * SIDE;
            for (int x = 0; x < SIDE; x++)
                putchar(shades[(row[x] + row[x + SIDE]) / 2 * 9 / 255]);
        }
        putchar('\n');
    }
    for (int i = 0; i < SHOWN; i++) {
        gd_scalar_vector *scores = scores_of(mlp, image_at(set, i));
        int best = best_of(scores);
        gd_value *loss = cross_entropy(scores, best); /* -ln of the probability of `best` */
        char caption[64];
        snprintf(caption, sizeof caption, "a %d? %d, sure to %.0f %%", label_at(set, i), best,
                 100.0 * exp(-gd_value_data(loss)));
        printf("    %-*s", SIDE - 4, caption);
        gd_value_release(loss);
        gd_scalar_vector_destroy(scores);
    }
    putchar('\n');
}

static int learn(const gd_mlp *mlp, const digits *training, const digits *testing)
{
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    gd_mlp_parameters(mlp, parameters);
    printf("784-16-10 perceptron, %zu parameters, %d digits to learn from, %d to test\n\n",
           gd_scalar_vector_size(parameters), TRAINED, TESTED);
    int status = 0;
    for (int epoch = 1; epoch <= EPOCHS && status == 0; epoch++) {
        clock_t start = clock();
        double loss = train(mlp, parameters, training, 0.1);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (loss < 0.0)
            status = -1;
        else
            printf("epoch %d   loss %.4f   %4.1f %% of the test digits right   %.0f images/s\n",
                   epoch, loss, test(mlp, testing), TRAINED / fmax(seconds, 1e-9));
    }
    if (status == 0) {
        putchar('\n');
        show(mlp, testing);
    }
    gd_scalar_vector_destroy(parameters);
    return status;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "data/mnist";
    static digits training, testing;
    int status = -1;
    if (read_digits(&training, folder, "train", TRAINED) == 0 &&
        read_digits(&testing, folder, "t10k", TESTED) == 0) {
        static const size_t sizes[] = { PIXELS, 16, DIGITS };
        gd_mlp *mlp = gd_mlp_create(sizes, 3, GD_SCALAR_LINEAR, 1);
        status = mlp != NULL ? learn(mlp, &training, &testing) : -1;
        gd_mlp_destroy(mlp);
        if (status != 0)
            fprintf(stderr, "scalar_mnist: %s\n", gd_scalar_error());
    }
    gd_idx_free(&training.images);
    gd_idx_free(&training.labels);
    gd_idx_free(&testing.images);
    gd_idx_free(&testing.labels);
    return status == 0 ? 0 : 1;
}
