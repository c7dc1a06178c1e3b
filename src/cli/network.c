/* cli/network.c: the context and the model the commands work on. */
#include "cli.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = sizeof((cli_network *)0)->path };

/* The network of examples/models/mnist_mlp.json, so that the tool works from anywhere and without a
 * JSON reader: x -> relu(fc1) = a;  a -> relu(fc2) = b;  a + b -> fc3 -> logits */
static const gd_layer_spec mnist_layers[] = {
    { GD_LAYER_SPEC_DEFAULTS, .name = "fc1", .type = "linear", .units = 16, .activation = "relu" },
    { GD_LAYER_SPEC_DEFAULTS, .name = "fc2", .type = "linear", .units = 16, .activation = "relu" },
    { GD_LAYER_SPEC_DEFAULTS, .name = "sum", .type = "add", .inputs = { "fc1", "fc2" } },
    { GD_LAYER_SPEC_DEFAULTS, .name = "fc3", .type = "linear", .units = 10 },
};

static const gd_model_spec mnist_spec = {
    GD_MODEL_SPEC_DEFAULTS,
    .input = { .rank = 1, .dim = { 784 } },
    .layers = mnist_layers,
    .layer_count = sizeof mnist_layers / sizeof *mnist_layers,
};

gd_model *cli_mnist_model(gd_context *context, uint64_t seed)
{
    return gd_model_create(context, &mnist_spec, .seed = seed);
}

bool cli_is_model_file(const char *path)
{
    gd_tensor_file *file = path ? gd_tensor_file_open(path) : NULL;
    bool has_model = gd_tensor_file_metadata(file, "model") != NULL;
    gd_tensor_file_close(file);
    gd_error_clear();
    return has_model;
}

/* A run folder is its model.safetensors. */
static void find_file(const char *given, char path[PATH_BYTES])
{
    struct stat status;
    bool folder = stat(given, &status) == 0 && S_ISDIR(status.st_mode);
    snprintf(path, PATH_BYTES, "%.4000s%s", given, folder ? "/model.safetensors" : "");
}

bool cli_network_open(cli_network *network, const cli_network_options *options)
{
    *network = (cli_network){ .context = gd_open("cpu", .threads = (int)options->threads) };
    uint64_t seed = (uint64_t)options->seed;
    char path[PATH_BYTES] = "";
    if (options->model)
        find_file(options->model, path);
    if (!options->model || strcmp(options->model, "mnist_mlp") == 0)
        network->model = cli_mnist_model(network->context, seed);
    else if (cli_is_model_file(path)) {
        network->model = gd_model_load(network->context, path);
        memcpy(network->path, path, sizeof network->path);
    } else
        network->model = gd_model_load_json(network->context, path, .seed = seed);
    return network->model && (!options->weights || gd_module_load(gd_model_module(network->model),
                                                                  options->weights) == GD_OK);
}

/* The file of the run that was trained last; false: there is none, which is recorded. */
static bool find_newest_run(char newest[PATH_BYTES])
{
    DIR *stream = opendir(CLI_RUNS);
    struct timespec latest = { 0 };
    newest[0] = '\0';
    for (struct dirent *e; stream && (e = readdir(stream));) {
        char path[PATH_BYTES];
        struct stat status;
        snprintf(path, sizeof path, CLI_RUNS "/%s/model.safetensors", e->d_name);
        if (e->d_name[0] == '.' || stat(path, &status) != 0 ||
            (newest[0] &&
             (status.st_mtim.tv_sec < latest.tv_sec ||
              (status.st_mtim.tv_sec == latest.tv_sec && status.st_mtim.tv_nsec < latest.tv_nsec))))
            continue;
        latest = status.st_mtim;
        memcpy(newest, path, sizeof path);
    }
    if (stream)
        closedir(stream);
    if (!newest[0])
        (void)gd_error_record(GD_ERR_INVALID,
                              "no trained model is given, and there is none in " CLI_RUNS
                              "/: 'gradus train' makes one");
    return newest[0] != '\0';
}

bool cli_trained_open(cli_network *network, const cli_network_options *options)
{
    cli_network_options o = *options;
    char newest[PATH_BYTES];
    *network = (cli_network){ 0 };
    if (!o.model && !o.weights) {
        if (!find_newest_run(newest))
            return false;
        o.model = newest;
    }
    return cli_network_open(network, &o);
}

void cli_network_close(cli_network *network)
{
    gd_close(network->context);
    *network = (cli_network){ 0 };
}

void cli_sort_operands(const char **model, const char **data)
{
    char path[PATH_BYTES];
    struct stat status;
    if (!*model || *data)
        return;
    find_file(*model, path);
    if (stat(*model, &status) == 0 && !cli_is_model_file(path)) {
        *data = *model;
        *model = NULL;
    }
}
