/* examples/cats_dogs.c: the network of the training-loop design, 33.6 million parameters, learns to
 * tell cats from dogs on photographs (Dogs vs. Cats, Asirra): 3 x 64 x 64, three convolutions 3x3
 * with ReLU, 3 -> 16 -> 32 -> 64 channels, then 128 and 2 units. Run it from the top of the source:
 * make cats_dogs ARGS="folder [epochs]"; the folder holds train/ and test/, each with a folder of
 * JPEG or PNG images for each class. Photographs are decoded by the loader's workers, as bytes, and
 * changed at random inside the compiled step. */
#include <gradus/gradus.h>

#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 64, BATCH = 16, EPOCHS = 10 };
static const double WANTED = 0.6; /* of the test photographs; guessing gives 0.5 */

/* What is done to photographs in training; otherwise they are made f32 alone. */
static const gd_augment_options changes = { GD_AUGMENT_DEFAULTS, .padding = 2, .flip = 0.5 };

/* x [batch, 3, 64, 64] -> logits [batch, 2] */
static gd_tensor *network(void *user, gd_tensor *x)
{
    gd_module *m = user;
    x = gd_mul_scalar(gd_sub_scalar(x, 0.45), 4.0); /* about mean 0, deviation 1 */
    x = gd_relu(gd_nn_conv2d(m, "conv1", x, 16, GD_SHAPE(3), .padding = GD_SHAPE(1),
                             .init = GD_INIT_HE_UNIFORM));
    x = gd_relu(gd_nn_conv2d(m, "conv2", x, 32, GD_SHAPE(3), .padding = GD_SHAPE(1),
                             .init = GD_INIT_HE_UNIFORM));
    x = gd_relu(gd_nn_conv2d(m, "conv3", x, 64, GD_SHAPE(3), .padding = GD_SHAPE(1),
                             .init = GD_INIT_HE_UNIFORM));
    x = gd_reshape(x, GD_SHAPE(-1, 64 * SIZE * SIZE)); // [batch, 262144]
    x = gd_relu(gd_nn_linear(m, "fc1", x, 128));
    return gd_nn_linear(m, "fc2", x, 2);
}

/* The cross entropy of a batch, and how many are right. */
static gd_tensor *objective(void *model, const gd_objective_call *call)
{
    gd_tensor *draws = call->training ? call->tensors[2] : NULL;
    gd_tensor *logits = network(model, gd_augment_with(call->tensors[0], draws, &changes));
    gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), call->tensors[1]));
    return gd_cross_entropy(logits, call->tensors[1]);
}

/* The first epoch's loss and the last's. */
typedef struct course {
    double first, last;
} course;

static gd_status show(void *user, const gd_fit_progress *p, bool *stop)
{
    (void)stop;
    course *c = user;
    c->last = gd_metrics_get(&p->train, "loss");
    c->first = p->epoch == 1 ? c->last : c->first;
    printf("epoch %lld/%lld  loss %.4f  accuracy %.1f %%  test accuracy %.1f %%  %.1f steps/s\n",
           (long long)p->epoch, (long long)p->epochs, c->last,
           100.0 * gd_metrics_get(&p->train, "accuracy"),
           100.0 * gd_metrics_get(&p->validation, "accuracy"), (double)p->steps / p->seconds);
    fflush(stdout);
    return GD_OK;
}

int main(int argc, char **argv)
{
    char train[1024], test[1024];
    const char *folder = argc > 1 ? argv[1] : "../shared/data/cats_dogs";
    int epochs = argc > 2 ? atoi(argv[2]) : EPOCHS;
    snprintf(train, sizeof train, "%s/train", folder);
    snprintf(test, sizeof test, "%s/test", folder);

    gd_context *gd = gd_open("cpu", .seed = 1);
    gd_module *model = gd_module_create(gd, .seed = 1);
    gd_dataset *photographs = gd_image_folder(gd, train, SIZE, SIZE, .batch_dtype = GD_U8),
               *unseen = gd_image_folder(gd, test, SIZE, SIZE, .batch_dtype = GD_U8);
    gd_loader *batches = gd_loader_create(photographs, .batch = BATCH, .shuffle = true, .seed = 1,
                                          .workers = 2, .draws = (int)gd_augment_draws(&changes));
    gd_loader *tests = gd_loader_create(unseen, .batch = 50);
    if (unseen) {
        (void)network(model,
                      gd_zeros(gd, GD_SHAPE(1, 3, SIZE, SIZE), GD_F32)); /* makes the parameters */
        printf("%lld photographs to learn from, %lld to be tested on; %lld parameters\n",
               (long long)gd_dataset_count(photographs), (long long)gd_dataset_count(unseen),
               (long long)gd_module_parameter_count(model));
        fflush(stdout);
    }

    course c = { 0 };
    gd_schedule schedule = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 1e-5,
                             .warmup = 15 };
    gd_metrics last = { 0 };
    gd_status status =
        gd_fit(gd_adam(model, .lr = 1e-5), objective, model, batches, .epochs = epochs,
               .validation = tests, .schedule = gd_schedule_follow, .schedule_user = &schedule,
               .progress = show, .progress_user = &c, .result = &last);
    double accuracy = gd_metrics_get(&last, "accuracy");
    bool learned = status == GD_OK && c.last < c.first && accuracy >= WANTED;
    if (status != GD_OK)
        fprintf(stderr, "cats_dogs: %s\n", gd_error_message());
    else if (!learned)
        fprintf(stderr,
                "cats_dogs: the loss went from %.4f to %.4f and %.1f %% of the test photographs "
                "are right; %.0f %% "
                "were expected\n",
                c.first, c.last, 100.0 * accuracy, 100.0 * WANTED);
    else
        printf("%.1f %% of the test photographs are right\n", 100.0 * accuracy);
    gd_close(gd);
    return !learned;
}
