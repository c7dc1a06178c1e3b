/* examples/lenet.c: a convolutional network of LeNet's class (LeCun et al., "Gradient-based
 * learning applied to document recognition", 1998) with 78,078 parameters learns handwritten digits
 * to 99 % in five epochs. Run it from the top of the source: make lenet. The same network as data
 * is examples/models/lenet.json, for gradus train --model. */
#include <gradus/gradus.h>

#include <stdio.h>

enum { BATCH = 64, EPOCHS = 5 };
static const double WANTED = 0.99;

/* x [batch, 28, 28] -> logits [batch, 10] */
static gd_tensor *network(void *user, gd_tensor *x)
{
    gd_module *m = user;
    x = gd_unsqueeze(x, 1);                                                  // [batch, 1, 28, 28]
    x = gd_relu(gd_nn_conv2d(m, "conv1", x, 12, GD_SHAPE(5), .same = true)); // [batch, 12, 28, 28]
    x = gd_max_pool2d(x, GD_SHAPE(2));                                       // [batch, 12, 14, 14]
    x = gd_relu(gd_nn_conv2d(m, "conv2", x, 32, GD_SHAPE(5)));               // [batch, 32, 10, 10]
    x = gd_reshape(gd_max_pool2d(x, GD_SHAPE(2)), GD_SHAPE(-1, 32 * 5 * 5)); // [batch, 800]
    x = gd_relu(gd_nn_linear(m, "fc1", x, 84));
    return gd_nn_linear(m, "fc2", x, 10);
}

/* The cross entropy of a batch, and how many are right. */
static gd_tensor *objective(void *model, const gd_objective_call *call)
{
    gd_tensor *logits = network(model, call->tensors[0]);
    gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), call->tensors[1]));
    return gd_cross_entropy(logits, call->tensors[1]);
}

static gd_status show(void *user, const gd_fit_progress *p, bool *stop)
{
    (void)user, (void)stop;
    printf("epoch %lld/%lld  loss %.4f  test accuracy %.2f %%  %.0f samples/s\n",
           (long long)p->epoch, (long long)p->epochs, gd_metrics_get(&p->train, "loss"),
           100.0 * gd_metrics_get(&p->validation, "accuracy"), p->samples_per_second);
    fflush(stdout);
    return GD_OK;
}

int main(void)
{
    gd_context *gd = gd_open("cpu");
    gd_module *model = gd_module_create(gd, .seed = 1);
    gd_dataset *digits = gd_mnist(gd, "data/mnist", .keep_shape = true);
    gd_dataset *unseen = gd_mnist(gd, "data/mnist", .keep_shape = true, .test = true);
    gd_loader *batches =
        gd_loader_create(digits, .batch = BATCH, .shuffle = true, .seed = 1, .workers = 1);
    gd_loader *test = gd_loader_create(unseen, .batch = 500);

    /* Used once, the network makes its parameters. */
    char summary[2048];
    (void)network(model, gd_zeros(gd, GD_SHAPE(1, 28, 28), GD_F32));
    gd_module_summary(model, summary, sizeof summary);
    printf("%s\n", summary);

    gd_schedule schedule = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 2e-3,
                             .warmup = 90 };
    gd_metrics last = { 0 };
    gd_status status = gd_fit(gd_adam(model, .lr = 2e-3), objective, model, batches,
                              .epochs = EPOCHS, .validation = test, .schedule = gd_schedule_follow,
                              .schedule_user = &schedule, .progress = show, .result = &last);
    double accuracy = gd_metrics_get(&last, "accuracy");
    if (status == GD_OK)
        status = gd_module_save(model, "lenet.safetensors");
    if (status != GD_OK)
        fprintf(stderr, "lenet: %s\n", gd_error_message());
    else if (accuracy < WANTED)
        fprintf(stderr, "lenet: %.2f %% of the test digits are right, %.1f %% were expected\n",
                100.0 * accuracy, 100.0 * WANTED);
    else
        printf("%.2f %% of the test digits are right; the network is in lenet.safetensors\n",
               100.0 * accuracy);
    gd_close(gd);
    return status != GD_OK || accuracy < WANTED;
}
