/* A program on an installed Gradus, with what a static library must be linked with: threads,
 * Jansson (a model from JSON, parameters to a file and back), zlib (MNIST), libjpeg (photographs).
 * It fails when the header and the library it runs with are not of one version, or when a model
 * that was saved and loaded answers otherwise. A build without an optional library says so. */
#include <gradus/gradus.h>

#include <stdio.h>
#include <string.h>

static const char json[] =
    "{ \"input\": [64], \"layers\": ["
    "{ \"name\": \"fc1\", \"type\": \"linear\", \"units\": 512, \"activation\": \"relu\" },"
    "{ \"name\": \"fc2\", \"type\": \"linear\", \"units\": 3 } ] }";

static int failures;

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s: %s\n", what, gd_error_message());
    failures++;
}

/* The last call needs a library that this build does without. */
static bool is_left_out(void)
{
    bool left_out = gd_error_code() == GD_ERR_UNSUPPORTED;
    if (left_out)
        gd_error_clear();
    return left_out;
}

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_optimizer *o = user;
    gd_module *m = gd_optimizer_module(o);
    gd_tensor *h = gd_relu(gd_nn_linear(m, "fc1", in[0], 512));
    return gd_minimize(o, gd_cross_entropy(gd_nn_linear(m, "fc2", h, 3), in[1]));
}

/* Trains on two threads; the losses fall. */
static gd_module *train(gd_context *gd, gd_tensor *x, gd_tensor *labels)
{
    gd_module *m = gd_module_create(gd, .seed = 1);
    gd_function *f = gd_compile(gd, step, gd_adam(m, .lr = 1e-3));
    gd_tensor *in[] = { x, labels };
    double first = gd_item(gd_call(f, 2, in)), last = first;
    for (int i = 0; i < 20; i++)
        last = gd_item(gd_call(f, 2, in));
    check(last < first, "training");
    return m;
}

static void save_and_load(gd_context *gd, gd_module *trained, gd_tensor *x, const char *path)
{
    gd_model *model = gd_model_load_json(gd, json, .seed = 2);
    if (!model && is_left_out())
        return;
    check(gd_module_save(trained, path) == GD_OK, "gd_module_save");
    check(gd_module_load(gd_model_module(model), path) == GD_OK, "gd_module_load");
    gd_tensor *h = gd_relu(gd_nn_linear(trained, "fc1", x, 512));
    gd_tensor *apart = gd_sub(gd_model_forward(model, x), gd_nn_linear(trained, "fc2", h, 3));
    check(gd_item(gd_max(gd_abs(apart), GD_ALL_AXES, false)) == 0.0, "the model that was loaded");
    remove(path);
}

/* Files that are not there: an error of reading them, and not of the build. */
static void read_files(gd_context *gd)
{
    check(!gd_mnist(gd, "no such folder"), "gd_mnist");
    check(is_left_out() || gd_error_code() == GD_ERR_IO, "gd_mnist's error");
    gd_error_clear();
    check(!gd_image_folder(gd, "no such folder", 8, 8), "gd_image_folder");
    check(is_left_out() || gd_error_code() == GD_ERR_IO, "gd_image_folder's error");
    gd_error_clear();
}

int main(int count, char **argument)
{
    check(strcmp(gd_version(), GD_VERSION_STRING) == 0, "version");
    gd_context *gd = gd_open("cpu", .threads = 2, .seed = 3);
    check(gd && gd_context_threads(gd) == 2, "gd_open");
    gd_tensor *x = gd_normal(gd, GD_SHAPE(96, 64), 0.0, 1.0, GD_F32);
    gd_tensor *labels = gd_mod_scalar(gd_arange(gd, 0.0, 96.0, 1.0, GD_I64), 3);
    gd_module *m = train(gd, x, labels);
    save_and_load(gd, m, x, count > 1 ? argument[1] : "consumer.safetensors");
    check(gd_error_code() == GD_OK, "an error where none is expected");
    read_files(gd);
    gd_close(gd);
    printf("gradus %s\n", gd_version());
    return failures != 0;
}
