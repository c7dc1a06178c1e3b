/* guide_5.c: the program of docs/guide/5-training.md: a small convolutional network learns
 * handwritten digits, is evaluated, saved, and trained on. Run it with `make guide_5`, from the top
 * of the source; every number in the chapter is one it prints. */
#include <gradus/gradus.h>

#include <stdio.h>

enum { BATCH = 50, EPOCHS = 2 };

/* x [batch, 28, 28] -> logits [batch, 10] */
static gd_tensor *network(void *module, gd_tensor *x)
{
    x = gd_unsqueeze(x, 1);                                                  // [batch, 1, 28, 28]
    x = gd_relu(gd_nn_conv2d(module, "conv1", x, 8, GD_SHAPE(5)));           // [batch, 8, 24, 24]
    x = gd_max_pool2d(x, GD_SHAPE(2));                                       // [batch, 8, 12, 12]
    x = gd_relu(gd_nn_conv2d(module, "conv2", x, 16, GD_SHAPE(5)));          // [batch, 16, 8, 8]
    x = gd_reshape(gd_max_pool2d(x, GD_SHAPE(2)), GD_SHAPE(-1, 16 * 4 * 4)); // [batch, 256]
    return gd_nn_linear(module, "out", x, 10);
}

/* The first `count` digits of a data set, 4000 at most, as a data set of their own. */
static gd_dataset *first_digits(const gd_dataset *all, int64_t count)
{
    int64_t indices[4000];
    for (int64_t i = 0; i < count; i++)
        indices[i] = i;
    return gd_dataset_subset(all, count, indices);
}

/* A digit of the data set as characters. */
static void draw(gd_dataset *digits, int64_t number)
{
    gd_tensor *digit[2]; /* image, label */
    if (gd_dataset_get(digits, number, 1, digit) != GD_OK)
        return;
    const float *pixel = gd_tensor_data(digit[0]);
    printf("== digit\ndigit %lld is a %g\n", (long long)number, gd_item(digit[1]));
    for (int i = 4; i < 26; i += 2) {
        for (int j = 2; j < 26; j++)
            printf("%c", " .+#"[(int)(pixel[i * 28 + j] * 3.99F)]);
        printf("\n");
    }
}

/* The loss of a batch, and how many are right, for gd_evaluate. */
static gd_tensor *objective(void *module, const gd_objective_call *call)
{
    gd_tensor *logits = network(module, call->tensors[0]);
    gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), call->tensors[1]));
    return gd_cross_entropy(logits, call->tensors[1]);
}

/* ---- one step ---- */

typedef struct trainee {
    gd_module *module;
    gd_optimizer *optimizer;
} trainee;

/* in[0] x [batch, 28, 28], in[1] classes [batch] -> loss [] */
static gd_tensor *train_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_cross_entropy(network(t->module, in[0]), in[1]));
}

/* Epochs first … last-1 of the training. */
static void train(gd_context *gd, trainee *t, gd_dataset *digits, int first, int last)
{
    gd_loader *loader = gd_loader_create(digits, .batch = BATCH, .shuffle = true, .seed = 1);
    gd_function *step = gd_compile(gd, train_step, t);
    int64_t batches = gd_loader_batches(loader), now = first * batches;
    gd_loader_seek(loader, now);
    gd_schedule cosine = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 4e-3,
                           .steps = EPOCHS * batches, .warmup = 10 };
    gd_batch batch;
    for (int epoch = first; epoch < last; epoch++)
        for (double sum = 0; gd_loader_next(loader, &batch); now++) {
            gd_optimizer_set_lr(t->optimizer, gd_schedule_at(&cosine, now));
            sum += gd_item(gd_call(step, batch.count, batch.tensors));
            if (now % batches == batches - 1)
                printf("epoch %d  mean loss %.4f  last learning rate %.6f\n", epoch + 1,
                       sum / (double)batches, gd_optimizer_lr(t->optimizer));
        }
    gd_function_release(step);
    gd_loader_release(loader);
}

static void evaluate(const char *what, trainee *t, gd_dataset *digits)
{
    gd_loader *loader = gd_loader_create(digits, .batch = 100);
    gd_metrics result = { 0 };
    if (gd_evaluate(t->module, objective, t->module, loader, &result) == GD_OK)
        printf("%s: loss %.4f, %.1f %% of %lld digits are right\n", what,
               gd_metrics_get(&result, "loss"), 100.0 * gd_metrics_get(&result, "accuracy"),
               (long long)result.samples);
    gd_loader_release(loader);
}

static trainee begin(gd_context *gd)
{
    gd_module *m = gd_module_create(gd, .seed = 1);
    return (trainee){ m, gd_adam(m) };
}

/* The exit status of a program that this build has not the libraries for. */
static int cannot_run(void)
{
    printf("guide_5 needs what this build lacks: %s\n", gd_error_message());
    return 77;
}

int main(void)
{
    gd_context *gd = gd_open("cpu");
    gd_dataset *all = gd_mnist(gd, "data/mnist", .keep_shape = true);
    gd_dataset *unseen = gd_mnist(gd, "data/mnist", .keep_shape = true, .test = true);
    if (gd_error_code() == GD_ERR_UNSUPPORTED)
        return cannot_run();
    gd_dataset *digits = first_digits(all, 4000);
    unseen = first_digits(unseen, 2000);
    draw(digits, 0);
    printf("%lld of %lld digits are used\n", (long long)gd_dataset_count(digits),
           (long long)gd_dataset_count(all));

    trainee whole = begin(gd);
    printf("== training\n");
    evaluate("before", &whole, unseen);
    train(gd, &whole, digits, 0, EPOCHS);
    evaluate("after, digits it has seen", &whole, digits);
    evaluate("after, digits it has not seen", &whole, unseen);
    printf("%lld parameters\n", (long long)gd_module_parameter_count(whole.module));

    printf("== resumed\n");
    trainee half = begin(gd);
    train(gd, &half, digits, 0, 1);
    gd_training training = { GD_TRAINING_DEFAULTS, .optimizer = half.optimizer };
    gd_training_save(&training, "guide_5.safetensors");
    if (gd_error_code() == GD_ERR_UNSUPPORTED)
        return cannot_run();
    trainee resumed = begin(gd);
    training.optimizer = resumed.optimizer; // of a module without parameters
    gd_training_load(&training, "guide_5.safetensors");
    train(gd, &resumed, digits, 1, EPOCHS);
    evaluate("saved, loaded and trained on", &resumed, unseen);
    remove("guide_5.safetensors");

    if (gd_error_code())
        fprintf(stderr, "guide_5: %s\n", gd_error_message());
    gd_close(gd);
    return gd_error_code() != GD_OK;
}
