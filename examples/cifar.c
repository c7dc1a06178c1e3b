/* examples/cifar.c: a convolutional network with batch normalisation and dropout learns ten kinds
 * of things from the 10,000 photographs of CIFAR-10's first file (Krizhevsky 2009). Run it from the
 * top of the source: make cifar ARGS="folder [epochs]", with ../shared/data/cifar10 where no folder
 * is named. */
#include <gradus/gradus.h>

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, EPOCHS = 10 };
static const double WANTED = 0.5; /* of the test photographs; guessing gives 0.1 */

/* Two convolutions, then half the height and width. */
static gd_tensor *stage(gd_module *m, const char *name, gd_tensor *x, int64_t channels)
{
    char path[32];
    for (int i = 1; i <= 2; i++) {
        snprintf(path, sizeof path, "%s.conv%d", name, i);
        x = gd_nn_conv2d(m, path, x, channels, GD_SHAPE(3), .padding = GD_SHAPE(1), .bias = false,
                         .init = GD_INIT_HE_NORMAL);
        snprintf(path, sizeof path, "%s.norm%d", name, i);
        x = gd_relu(gd_nn_batch_norm(m, path, x));
    }
    return gd_max_pool2d(x, GD_SHAPE(2));
}

/* x [batch, 3, 32, 32] -> logits [batch, 10] */
static gd_tensor *network(void *user, gd_tensor *x)
{
    gd_module *m = user;
    x = stage(m, "stage1", gd_mul_scalar(gd_sub_scalar(x, 0.47), 4.0), 16); // [batch, 16, 16, 16]
    x = stage(m, "stage2", x, 32);                                          // [batch, 32, 8, 8]
    x = stage(m, "stage3", x, 64);                                          // [batch, 64, 4, 4]
    x = gd_nn_dropout(m, "drop", gd_reshape(x, GD_SHAPE(-1, 64 * 4 * 4)), 0.3);
    return gd_nn_linear(m, "out", x, 10);
}

/* What is done to photographs in training: He et al. 2015. */
static const gd_augment_options changes = { GD_AUGMENT_DEFAULTS, .padding = 4, .flip = 0.5 };

/* The cross entropy of a batch, and how many are right. */
static gd_tensor *objective(void *model, const gd_objective_call *call)
{
    gd_tensor *draws = call->training ? call->tensors[2] : NULL;
    gd_tensor *logits = network(model, gd_augment_with(call->tensors[0], draws, &changes));
    gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), call->tensors[1]));
    return gd_cross_entropy(logits, call->tensors[1]);
}

static gd_status show(void *user, const gd_fit_progress *p, bool *stop)
{
    (void)user, (void)stop;
    printf("epoch %lld/%lld  loss %.4f  accuracy %.1f %%  test accuracy %.1f %%  %.0f samples/s\n",
           (long long)p->epoch, (long long)p->epochs, gd_metrics_get(&p->train, "loss"),
           100.0 * gd_metrics_get(&p->train, "accuracy"),
           100.0 * gd_metrics_get(&p->validation, "accuracy"), p->samples_per_second);
    fflush(stdout);
    return GD_OK;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "../shared/data/cifar10";
    int epochs = argc > 2 ? atoi(argv[2]) : EPOCHS;
    gd_context *gd = gd_open("cpu", .seed = 1);
    gd_module *model = gd_module_create(gd, .seed = 1);
    gd_dataset *photographs = gd_cifar10(gd, folder, .batch_dtype = GD_U8),
               *unseen = gd_cifar10(gd, folder, .test = true, .batch_dtype = GD_U8);
    gd_loader *batches =
        gd_loader_create(photographs, .batch = BATCH, .shuffle = true, .seed = 1, .workers = 1,
                         .drop_last = true, .draws = (int)gd_augment_draws(&changes));
    gd_loader *test = gd_loader_create(unseen, .batch = 100);
    if (unseen)
        printf("%lld photographs to learn from, %lld to be tested on\n",
               (long long)gd_dataset_count(photographs), (long long)gd_dataset_count(unseen));

    gd_schedule schedule = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 3e-3,
                             .warmup = 40 };
    gd_metrics last = { 0 };
    gd_status status = gd_fit(gd_adamw(model, .lr = 3e-3), objective, model, batches,
                              .epochs = epochs, .validation = test, .schedule = gd_schedule_follow,
                              .schedule_user = &schedule, .progress = show, .result = &last);
    double accuracy = gd_metrics_get(&last, "accuracy");
    if (status != GD_OK)
        fprintf(stderr, "cifar: %s\n", gd_error_message());
    else
        printf("%.1f %% of the test photographs are right; %lld parameters\n", 100.0 * accuracy,
               (long long)gd_module_parameter_count(model));
    bool learned = status == GD_OK && accuracy >= WANTED;
    if (status == GD_OK && !learned)
        fprintf(stderr, "cifar: %.0f %% were expected\n", 100.0 * WANTED);
    gd_close(gd);
    return !learned;
}
