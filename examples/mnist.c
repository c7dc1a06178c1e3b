/* examples/mnist.c: a residual network with 13,002 parameters learns handwritten digits. Run it
 * from the top of the source: make mnist is the tool with all its options; this is the same in C.
 * examples/models/mnist_mlp.json is the same network as data. */
#include <gradus/gradus.h>

#include <stdio.h>

enum { BATCH = 50, EPOCHS = 10 };

typedef struct {
    gd_module *model;
    gd_optimizer *optimizer;
} trainee;

/* x [batch, 784] -> logits [batch, 10]. Layers make their parameters when they are first used. */
static gd_tensor *network(gd_module *m, gd_tensor *x)
{
    gd_tensor *a = gd_relu(gd_nn_linear(m, "fc1", x, 16));
    gd_tensor *b = gd_relu(gd_nn_linear(m, "fc2", a, 16));
    return gd_nn_linear(m, "fc3", gd_add(a, b), 10);
}

/* Forward, backward and update: in[0] pixels [batch, 784], in[1] digits [batch] -> loss [].
 * Compiled, it is one call. */
static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *loss = gd_cross_entropy(network(t->model, in[0]), in[1]);
    return gd_minimize(t->optimizer, loss);
}

/* Share of correct answers in a batch. */
static gd_tensor *score(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_accuracy(network(t->model, in[0]), in[1]);
}

int main(void)
{
    gd_context *gd = gd_open("cpu");
    gd_module *model = gd_module_create(gd, .seed = 1);
    trainee t = { model, gd_adam(model, .lr = 2e-3) };
    gd_function *train = gd_compile(gd, step, &t);
    gd_function *test = gd_compile(gd, score, &t);
    gd_loader *digits =
        gd_loader_create(gd_mnist(gd, "data/mnist"), .batch = BATCH, .shuffle = true);
    gd_loader *unseen = gd_loader_create(gd_mnist(gd, "data/mnist", .test = true), .batch = BATCH);

    for (int epoch = 1; epoch <= EPOCHS && !gd_error_code(); epoch++) {
        double loss = 0.0, correct = 0.0;
        for (gd_batch b; gd_loader_next(digits, &b);)
            loss += gd_item(gd_call(train, b.count, b.tensors)) * (double)b.size;
        for (gd_batch b; gd_loader_next(unseen, &b);)
            correct += gd_item(gd_call(test, b.count, b.tensors)) * (double)b.size;
        printf("epoch %2d  loss %.4f  test accuracy %.2f %%\n", epoch,
               loss / (double)gd_loader_samples(digits),
               100.0 * correct / (double)gd_loader_samples(unseen));
    }

    gd_status status = gd_error_code();
    if (status == GD_OK)
        status = gd_module_save(model, "mnist_mlp.safetensors");
    if (status != GD_OK)
        fprintf(stderr, "mnist: %s\n", gd_error_message());
    gd_close(gd);
    return status != GD_OK;
}
