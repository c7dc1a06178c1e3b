/* cli/network.c: the context and the model the commands work on. */
#include "cli.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

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

bool cli_is_language_file(const char *path)
{
    if (path && cli_is_gguf(path))
        return true;
    gd_tensor_file *file = path ? gd_tensor_file_open(path) : NULL;
    bool has_options = gd_tensor_file_metadata(file, "gradus.vocabulary") != NULL;
    gd_tensor_file_close(file);
    gd_error_clear();
    return has_options;
}

/* A GPT-2 as Hugging Face has it says by its names what it is. */
static bool is_gpt2(gd_tensor_file *file)
{
    return gd_tensor_file_find(file, "wte.weight") >= 0 ||
           gd_tensor_file_find(file, "transformer.wte.weight") >= 0;
}

static bool has_parameters_alone(const char *path)
{
    gd_tensor_file *file = path ? gd_tensor_file_open(path) : NULL;
    bool alone = file && !gd_tensor_file_metadata(file, "model") &&
                 !gd_tensor_file_metadata(file, "gradus.vocabulary") && !is_gpt2(file);
    gd_tensor_file_close(file);
    gd_error_clear();
    return alone;
}

bool cli_has_network(const char *path)
{
    char sentence[CLI_PATH_BYTES + 256];
    if (!has_parameters_alone(path))
        return true;
    snprintf(sentence, sizeof sentence,
             "%.4000s has parameters, and does not say of which network: Python saves so what a "
             "class of one's own has learnt. It is used in Python, by that class's load(FILE); the "
             "shell takes what is trained as an nn.Model",
             path);
    return gd_error_record(GD_ERR_INVALID, sentence) == GD_OK;
}

void cli_find_model(const char *given, char path[CLI_PATH_BYTES])
{
    struct stat status;
    bool folder = stat(given, &status) == 0 && S_ISDIR(status.st_mode);
    snprintf(path, CLI_PATH_BYTES, "%.4000s%s", given, folder ? "/model.safetensors" : "");
}

bool cli_precision(const char *command, const char *word, gd_dtype *precision)
{
    static const char *const words[] = { "f32", "bf16", "f16" };
    static const gd_dtype dtypes[] = { GD_F32, GD_BF16, GD_F16 };
    *precision = GD_F32;
    for (int i = 0; word && i < 3; i++)
        if (strcasecmp(words[i], word) == 0) {
            *precision = dtypes[i];
            return true;
        }
    if (word)
        fprintf(stderr, "gradus %s: --precision is f32, bf16 or f16, not '%s'%s\n", command, word,
                cli_suggestion(word, "", 3, words));
    return !word;
}

gd_context *cli_open_device(const char *device, gd_dtype precision, int64_t threads)
{
    gd_context *gd = gd_open(device ? device : "cpu", .threads = (int)threads);
    if (!gd || precision == GD_F32 || gd_autocast_begin(gd, precision) == GD_OK)
        return gd;
    gd_close(gd);
    return NULL;
}

/* A run of which nothing is trained: it has begun, and nothing more. */
static bool is_unfinished(const char *given)
{
    char log[CLI_PATH_BYTES], model[CLI_PATH_BYTES];
    snprintf(log, sizeof log, "%.4000s/metrics.jsonl", given);
    snprintf(model, sizeof model, "%.4000s/model.safetensors", given);
    return access(log, F_OK) == 0 && access(model, F_OK) != 0;
}

static bool is_trained(const char *given)
{
    char sentence[2 * CLI_WORD_BYTES], word[CLI_WORD_BYTES];
    if (!is_unfinished(given))
        return true;
    snprintf(sentence, sizeof sentence,
             "%.4000s has no model.safetensors yet: its training has not ended. If it does not run "
             "any more, gradus train --resume %.4200s goes on with it",
             given, cli_shell_word(given, word));
    return gd_error_record(GD_ERR_STATE, sentence) == GD_OK;
}

bool cli_network_open(cli_network *network, const cli_network_options *options)
{
    *network = (cli_network){ 0 };
    if (options->model && !is_trained(options->model))
        return false;
    network->context = cli_open_device(options->device, options->precision, options->threads);
    if (!network->context)
        return false;
    uint64_t seed = (uint64_t)options->seed;
    char path[CLI_PATH_BYTES] = "", sentence[CLI_PATH_BYTES + 32];
    if (options->model)
        cli_find_model(options->model, path);
    if (!options->model || strcmp(options->model, "mnist_mlp") == 0)
        network->model = cli_mnist_model(network->context, seed);
    else if (cli_is_model_file(path) || cli_has_ending(path, ".safetensors")) {
        network->model = gd_model_load(network->context, path);
        memcpy(network->path, path, sizeof network->path);
    } else if (cli_has_ending(path, ".gguf")) { /* what is one has been told of */
        snprintf(sentence, sizeof sentence, "%.4000s is no GGUF file", path);
        (void)gd_error_record(GD_ERR_FORMAT, sentence);
    } else
        network->model = gd_model_load_json(network->context, path, .seed = seed);
    return network->model && (!options->weights || gd_module_load(gd_model_module(network->model),
                                                                  options->weights) == GD_OK);
}

/* The file of the run that was trained last; false: there is none, which is recorded. */
static bool find_newest_run(char newest[CLI_PATH_BYTES])
{
    DIR *stream = opendir(CLI_RUNS);
    struct timespec latest = { 0 };
    newest[0] = '\0';
    for (struct dirent *e; stream && (e = readdir(stream));) {
        char path[CLI_PATH_BYTES];
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

/* The run folder, where the file is a run's. */
static const char *name_run(char path[CLI_PATH_BYTES])
{
    static const char file[] = "/model.safetensors";
    size_t length = strlen(path), n = strlen(file);
    if (length > n && strcmp(path + length - n, file) == 0)
        path[length - n] = '\0';
    return path;
}

bool cli_find_trained(const char *given, char path[CLI_PATH_BYTES])
{
    char run[CLI_PATH_BYTES];
    if (given) {
        cli_find_model(given, path);
        return is_trained(given);
    }
    if (!find_newest_run(path))
        return false;
    memcpy(run, path, sizeof run);
    fprintf(stderr, "gradus: with %s, the newest run\n", name_run(run));
    return true;
}

bool cli_find_language(const char *given, char path[CLI_PATH_BYTES])
{
    char sentence[CLI_PATH_BYTES + 256];
    if (!cli_find_trained(given, path))
        return false;
    if (!cli_is_model_file(path))
        return cli_has_network(path);
    snprintf(sentence, sizeof sentence,
             "%.4000s is no model of text: gradus predict says what it makes of new data", given);
    return gd_error_record(GD_ERR_INVALID, sentence) == GD_OK;
}

bool cli_loads_language(const char *path)
{
    gd_context *gd = gd_open("cpu");
    const bool loads = gd && gd_language_model_load(gd, path);
    gd_close(gd);
    return loads;
}

bool cli_trained_open(cli_network *network, const cli_network_options *options)
{
    cli_network_options o = *options;
    char path[CLI_PATH_BYTES], file[CLI_PATH_BYTES], word[CLI_WORD_BYTES];
    char sentence[2 * CLI_WORD_BYTES];
    *network = (cli_network){ 0 };
    if (!o.model && !o.weights) {
        if (!cli_find_trained(NULL, path))
            return false;
        o.model = name_run(path);
    }
    if (o.model) {
        cli_find_model(o.model, file);
        if (!cli_has_network(file))
            return false;
        if (cli_is_language_file(file)) {
            snprintf(sentence, sizeof sentence,
                     "%.4000s is a model of text: gradus generate %.4200s goes on with one",
                     o.model, cli_shell_word(name_run(file), word));
            return gd_error_record(GD_ERR_INVALID, sentence) == GD_OK;
        }
    }
    return cli_network_open(network, &o);
}

void cli_network_close(cli_network *network)
{
    gd_close(network->context);
    *network = (cli_network){ 0 };
}

/* Also one that is damaged, or is not trained yet: no data, of which another model could be asked. JSON is a
 * network that has not been trained. */
static bool is_model(const char *given)
{
    static const char *const endings[] = { ".json", ".safetensors", ".gguf" };
    char path[CLI_PATH_BYTES];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (cli_has_ending(given, endings[i]))
            return true;
    cli_find_model(given, path);
    return is_unfinished(given) || (strcmp(path, given) != 0 && access(path, F_OK) == 0) ||
           cli_is_model_file(path) || cli_is_language_file(path) || has_parameters_alone(path);
}

void cli_sort_operands(const char **model, cli_words *data)
{
    struct stat status;
    if (!*model || is_model(*model))
        return;
    /* The first word stands before the others. */
    if (data->count > 0 && is_model(data->words[data->count - 1])) {
        *model = data->words[data->count - 1];
        data->words--;
    } else if (stat(*model, &status) == 0 || cli_is_photograph(*model)) {
        *model = NULL;
        data->words--;
        data->count++;
    }
}
