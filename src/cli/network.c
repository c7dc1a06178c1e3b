/* cli/network.c: the context and the model the commands work on. */
#include "cli.h"

#include <float.h>
#include <string.h>

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

bool cli_is_model_file(const char *path)
{
    gd_tensor_file *file = path ? gd_tensor_file_open(path) : NULL;
    bool has_model = gd_tensor_file_metadata(file, "model") != NULL;
    gd_tensor_file_close(file);
    gd_error_clear();
    return has_model;
}

bool cli_network_open(cli_network *network, const cli_network_options *options)
{
    *network = (cli_network){ .context = gd_open("cpu", .threads = (int)options->threads) };
    uint64_t seed = (uint64_t)options->seed;
    if (!options->model || strcmp(options->model, "mnist_mlp") == 0)
        network->model = gd_model_create(network->context, &mnist_spec, .seed = seed);
    else if (cli_is_model_file(options->model))
        network->model = gd_model_load(network->context, options->model);
    else
        network->model = gd_model_load_json(network->context, options->model, .seed = seed);
    return network->model && (!options->weights || gd_module_load(gd_model_module(network->model),
                                                                  options->weights) == GD_OK);
}

bool cli_trained_open(cli_network *network, const cli_network_options *options)
{
    cli_network_options o = *options;
    if (!o.model && !o.weights)
        o.model = CLI_DEFAULT_WEIGHTS;
    else if (!o.weights && !cli_is_model_file(o.model))
        o.weights = CLI_DEFAULT_WEIGHTS;
    return cli_network_open(network, &o);
}

void cli_network_close(cli_network *network)
{
    gd_close(network->context);
    *network = (cli_network){ 0 };
}

gd_tensor *cli_forward(void *user, gd_tensor *x)
{
    const cli_network *network = user;
    gd_shape input = gd_model_input_shape(network->model, 0);
    if (x && input.rank > 1) {
        gd_shape shape = { .rank = input.rank + 1, .dim = { gd_tensor_shape(x).dim[0] } };
        for (int i = 0; i < input.rank; i++)
            shape.dim[i + 1] = input.dim[i];
        x = gd_reshape(x, shape);
    }
    gd_tensor *y = gd_model_forward(network->model, x);
    if (gd_model_gives_probabilities(network->model))
        y = gd_log(gd_clip(y, FLT_MIN, 1.0)); /* ln p are logits, with gd_model_loss's bound */
    return y;
}
