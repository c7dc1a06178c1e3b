/* bench/devices/device_speed.c: what a device takes for the simplest things, and for steps of training:
 * a line "name value unit" each, for tools/gpu-check.
 *
 *     device_speed DEVICE [SECONDS]
 *
 * Times are of the clock, of batches of runs that end in a wait: the median of those that fit in
 * SECONDS (1 by default), 3 at least. */
#include <gradus/gradus.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_SAMPLES = 1000, BATCH = 50, PIXELS = 784, CLASSES = 10, LARGE = 16 << 20 };

static gd_context *gd;
static double seconds = 1;

static void die(const char *what)
{
    fprintf(stderr, "device_speed: %s: %s\n", what, gd_error_message());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of one run, of batches of `count` that end in a wait. */
static double measure(bool (*run)(void *user), void *user, int count)
{
    static double samples[MOST_SAMPLES];
    int n = 0;
    for (int i = 0; i < count; i++)
        if (!run(user))
            die("a run");
    if (gd_synchronize(gd) != GD_OK)
        die("gd_synchronize");
    for (const double end = now() + seconds; n < MOST_SAMPLES && (n < 3 || now() < end); n++) {
        const double begin = now();
        for (int i = 0; i < count; i++)
            if (!run(user))
                die("a run");
        if (gd_synchronize(gd) != GD_OK)
            die("gd_synchronize");
        samples[n] = (now() - begin) / count;
    }
    qsort(samples, (size_t)n, sizeof *samples, compare);
    return samples[n / 2];
}

/* ---- the simplest things ---- */

typedef struct buffers {
    gd_tensor *small, *large;
    float *host;
} buffers;

static bool negate(void *user)
{
    gd_scope_begin(gd);
    const bool ok = gd_neg(((buffers *)user)->small) != NULL;
    return gd_scope_end(gd) == GD_OK && ok;
}

static bool write_large(void *user)
{
    const buffers *b = user;
    return gd_tensor_write(b->large, b->host, (size_t)LARGE * sizeof(float)) == GD_OK;
}

static bool read_large(void *user)
{
    const buffers *b = user;
    return gd_tensor_read(b->large, b->host, (size_t)LARGE * sizeof(float)) == GD_OK;
}

static bool read_small(void *user)
{
    float number[1];
    return gd_tensor_read(((buffers *)user)->small, number, sizeof number) == GD_OK;
}

static bool add_large(void *user)
{
    const buffers *b = user;
    gd_scope_begin(gd);
    const bool ok = gd_add(b->large, b->large) != NULL;
    return gd_scope_end(gd) == GD_OK && ok;
}

static void simple_things(void)
{
    const double bytes = (double)LARGE * sizeof(float);
    buffers b = { .host = calloc(LARGE, sizeof(float)) };
    gd_scope_begin(gd);
    b.small = gd_ones(gd, GD_SHAPE(1), GD_F32);
    b.large = gd_zeros(gd, GD_SHAPE(LARGE), GD_F32);
    if (!b.host || !b.small || !b.large)
        die("memory");
    printf("eager_op %.3g us\n", 1e6 * measure(negate, &b, 200));
    printf("read_of_a_number %.3g us\n", 1e6 * measure(read_small, &b, 20));
    printf("write %.3g GB/s\n", 1e-9 * bytes / measure(write_large, &b, 1));
    printf("read %.3g GB/s\n", 1e-9 * bytes / measure(read_large, &b, 1));
    printf("add %.3g GB/s\n", 3e-9 * bytes / measure(add_large, &b, 5));
    gd_scope_end(gd);
    free(b.host);
}

/* ---- products ---- */

static bool multiply(void *user)
{
    gd_tensor *const *in = user;
    gd_scope_begin(gd);
    const bool ok = gd_matmul(in[0], in[1]) != NULL;
    return gd_scope_end(gd) == GD_OK && ok;
}

static void products(void)
{
    const int64_t largest = gd_context_has_host_memory(gd) ? 1024 : 4096;
    static const gd_dtype dtypes[] = { GD_F32, GD_BF16 };
    for (int64_t i = 0, n = 256; n <= largest; n *= i % 2 ? 4 : 1, i++) {
        gd_scope_begin(gd);
        gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(n, n), dtypes[i % 2]),
                             gd_ones(gd, GD_SHAPE(n, n), dtypes[i % 2]) };
        if (!in[0] || !in[1])
            die("memory");
        printf("product_%s%lld %.4g GFLOP/s\n", i % 2 ? "bf16_" : "", (long long)n,
               2e-9 * (double)n * (double)n * (double)n / measure(multiply, in, n < 1024 ? 20 : 2));
        gd_scope_end(gd);
    }
}

/* ---- convolutions: the largest of examples/models/cats_dogs.json ---- */

enum { IMAGES = 16, IN = 32, OUT = 64, SIDE = 64, KERNEL = 3 };

static bool convolve(void *user)
{
    gd_tensor *const *in = user;
    gd_scope_begin(gd);
    const bool ok = gd_conv2d(in[0], in[1], NULL, .padding = GD_SHAPE(1)) != NULL;
    return gd_scope_end(gd) == GD_OK && ok;
}

/* Forward, and both gradients. */
static bool differentiate(void *user)
{
    gd_tensor *const *in = user, *gradients[2];
    gd_scope_begin(gd);
    gd_tensor *y = gd_conv2d(in[0], in[1], NULL, .padding = GD_SHAPE(1));
    const bool ok = y && gd_grad(1, &y, &in[2], 2, in, gradients) == GD_OK;
    return gd_scope_end(gd) == GD_OK && ok;
}

static void convolutions(void)
{
    const double operations = 2.0 * IMAGES * SIDE * SIDE * OUT * IN * KERNEL * KERNEL;
    gd_scope_begin(gd);
    gd_tensor *in[3] = { gd_ones(gd, GD_SHAPE(IMAGES, IN, SIDE, SIDE), GD_F32),
                         gd_ones(gd, GD_SHAPE(OUT, IN, KERNEL, KERNEL), GD_F32),
                         gd_ones(gd, GD_SHAPE(IMAGES, OUT, SIDE, SIDE), GD_F32) };
    if (!in[0] || !in[1] || !in[2])
        die("memory");
    printf("convolution %.4g GFLOP/s\n", 1e-9 * operations / measure(convolve, in, 5));
    if (!gd_set_requires_grad(in[0], true) || !gd_set_requires_grad(in[1], true))
        die("gradients");
    printf("convolution_and_gradients %.4g GFLOP/s\n",
           3e-9 * operations / measure(differentiate, in, 2));
    gd_scope_end(gd);
}

/* ---- training of examples/models/mnist_mlp.json, on numbers that are none ---- */

typedef struct training {
    gd_module *module;
    gd_optimizer *optimizer;
    gd_function *step;
    gd_tensor *in[2];
} training;

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    training *t = user;
    gd_tensor *first = gd_relu(gd_nn_linear(t->module, "fc1", in[0], 16));
    gd_tensor *second = gd_relu(gd_nn_linear(t->module, "fc2", first, 16));
    gd_tensor *scores = gd_nn_linear(t->module, "fc3", gd_add(first, second), CLASSES);
    return gd_minimize(t->optimizer, gd_cross_entropy(scores, in[1]));
}

static bool run_step(void *user)
{
    training *t = user;
    gd_scope_begin(gd);
    const bool ok = gd_call(t->step, 2, t->in) != NULL;
    return gd_scope_end(gd) == GD_OK && ok;
}

static void train(void)
{
    static float pixels[BATCH * PIXELS];
    int64_t labels[BATCH];
    for (int i = 0; i < BATCH * PIXELS; i++)
        pixels[i] = (float)(i * 37 % 101) / 101;
    for (int i = 0; i < BATCH; i++)
        labels[i] = i % CLASSES;
    gd_scope_begin(gd);
    gd_seed(gd, 1);
    training t = { .module = gd_module_create(gd) };
    t.in[0] = gd_from_host(gd, GD_SHAPE(BATCH, PIXELS), GD_F32, pixels);
    t.in[1] = gd_from_host(gd, GD_SHAPE(BATCH), GD_I64, labels);
    t.optimizer = gd_adam(t.module, .lr = 0.001);
    t.step = gd_compile(gd, body, &t);
    if (!t.in[0] || !t.in[1] || !t.optimizer || !t.step)
        die("training");
    const double step = measure(run_step, &t, 50);
    printf("mnist_mlp_step %.4g us\nmnist_mlp %.5g steps/s\n", 1e6 * step, 1 / step);
    gd_function_release(t.step);
    gd_optimizer_release(t.optimizer);
    gd_module_release(t.module);
    gd_scope_end(gd);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: device_speed DEVICE [SECONDS]\n");
        return 2;
    }
    if (argc > 2)
        seconds = atof(argv[2]);
    gd = gd_open(argv[1]);
    if (!gd)
        die(argv[1]);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    simple_things();
    train();
    products();
    convolutions();
    gd_close(gd);
    return 0;
}
