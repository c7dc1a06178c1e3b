/* cli/compiled.c: a network compiled for inference or for training, for the commands that look at
 * plans. */
#include "cli.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* in: a value for each input of the model, or tokens [batch, time]. Results are in row-major order, as
 * C files give them. */
static gd_tensor *infer(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const cli_compiled *c = user;
    if (c->network.language)
        return gd_contiguous(gd_language_model_forward(c->network.language, in[0]));
    gd_tensor *out[GD_MODEL_MAX_OUTPUTS];
    int outputs = gd_model_output_count(c->network.model);
    if (gd_model_forward_all(c->network.model, gd_model_input_count(c->network.model), in, outputs,
                             out) != GD_OK)
        return NULL;
    for (int k = 1; k < outputs; k++)
        (void)gd_output(gd_contiguous(out[k]));
    return gd_contiguous(out[0]);
}

/* in: the same, and targets. Where --precision is of 16 bits, only the loss is computed so, as in gd_fit; the scope
 * ends with the body. */
static gd_tensor *train(void *user, int count, gd_tensor *const *in)
{
    const cli_compiled *c = user;
    gd_tensor *loss = c->network.language
                          ? gd_language_model_loss(c->network.language, in[0], in[1])
                          : gd_model_loss(c->network.model, infer(user, count, in), in[count - 1]);
    return gd_autocast_begin(c->network.context, GD_F32) == GD_OK ? gd_minimize(c->optimizer, loss)
                                                                  : NULL;
}

/* Targets of the kind the model's loss takes: classes, else numbers like the output. */
static gd_tensor *make_targets(const cli_compiled *c, gd_tensor *output, int64_t batch)
{
    gd_context *gd = c->network.context;
    gd_shape shape = gd_tensor_shape(output);
    gd_shape classes = shape;
    classes.rank = shape.rank > 1 ? shape.rank - 1 : 1;
    classes.dim[0] = batch;
    gd_tensor *targets = gd_zeros(gd, classes, GD_I64);
    if (gd_model_loss(c->network.model, output, targets))
        return targets;
    gd_error_clear();
    return gd_zeros(gd, shape, GD_F32);
}

static bool make_tokens(cli_compiled *c, int64_t batch, int64_t length)
{
    int64_t most = gd_language_model_options(c->network.language)->max_length;
    char sentence[128];
    snprintf(sentence, sizeof sentence, "--length %lld: the model takes %lld tokens at the most",
             (long long)length, (long long)most);
    if (length > most)
        return gd_error_record(GD_ERR_SHAPE, sentence) == GD_OK;
    for (int i = 0; i < 2; i++)
        c->inputs[i] =
            gd_zeros(c->network.context, GD_SHAPE(batch, length ? length : most), GD_I64);
    c->input_count = c->optimizer ? 2 : 1;
    return c->inputs[0] && c->inputs[1];
}

/* Noise for floats, unless they are tokens; zeros for what else there is. */
static bool make_samples(cli_compiled *c, int64_t batch, bool tokens)
{
    const gd_model *model = c->network.model;
    c->input_count = gd_model_input_count(model);
    for (int i = 0; i < c->input_count; i++) {
        gd_shape sample = gd_model_input_shape(model, i);
        gd_shape shape = { .rank = sample.rank + 1, .dim = { batch } };
        for (int axis = 0; axis < sample.rank; axis++)
            shape.dim[axis + 1] = sample.dim[axis];
        gd_dtype dtype = gd_model_input_dtype(model, i);
        bool floats = gd_dtype_is_float(dtype);
        c->inputs[i] = floats && !tokens
                           ? gd_normal(c->network.context, shape, 0, 1, GD_F32)
                           : gd_zeros(c->network.context, shape, floats ? GD_I64 : dtype);
        if (!c->inputs[i])
            return false;
    }
    return true;
}

static bool make_inputs(cli_compiled *c, int64_t batch)
{
    if (!make_samples(c, batch, false))
        return false;
    gd_tensor *output = infer(c, c->input_count, c->inputs);
    if (!output && gd_error_code() == GD_ERR_INVALID) { /* noise is no token */
        gd_error_clear();
        if (!make_samples(c, batch, true))
            return false;
        output = infer(c, c->input_count, c->inputs);
    }
    if (!output || !c->optimizer)
        return output;
    return (c->inputs[c->input_count++] = make_targets(c, output, batch)) != NULL;
}

gd_module *cli_compiled_module(const cli_compiled *c)
{
    return c->network.language ? gd_language_model_module(c->network.language)
                               : gd_model_module(c->network.model);
}

/* A JSON text begins with a brace; a language model's file with numbers, as a model's does, in which
 * there is a description. */
static bool is_language_model(const char *path)
{
    FILE *file = path && strcmp(path, "mnist_mlp") != 0 ? fopen(path, "rb") : NULL;
    if (!file)
        return false;
    int first = fgetc(file);
    while (isspace(first))
        first = fgetc(file);
    fclose(file);
    return first != '{' && first != EOF && !cli_is_model_file(path);
}

static bool open_network(cli_compiled *c, const cli_network_options *options)
{
    char path[CLI_PATH_BYTES];
    cli_find_model(options->model ? options->model : "mnist_mlp", path);
    if (!cli_has_network(path))
        return false;
    if (!is_language_model(path))
        return cli_network_open(&c->network, options);
    c->network.context = cli_open_device(options->device, options->precision, options->threads);
    if (!c->network.context)
        return false;
    c->network.language = gd_language_model_load(c->network.context, path);
    return c->network.language != NULL;
}

/* The network's plan, and what it needs. */
static bool compile(cli_compiled *c, const cli_compiled_options *options)
{
    gd_module *module = cli_compiled_module(c);
    gd_module_set_training(module, options->train);
    if (options->train) {
        c->optimizer = gd_optimizer_create(module, options->optimizer ? options->optimizer : "adam",
                                           .lr = options->lr);
        if (!c->optimizer)
            return false;
    }
    if (c->network.language ? !make_tokens(c, options->batch, options->length)
                            : !make_inputs(c, options->batch))
        return false;
    if (c->network.language && options->network.weights &&
        gd_module_load(module, options->network.weights) != GD_OK)
        return false;
    c->function =
        gd_compile(c->network.context, options->train ? train : infer, c, .detached = true,
                   .memory_limit = options->memory_limit, .frozen = options->frozen);
    return gd_function_prepare(c->function, c->input_count, c->inputs) == GD_OK;
}

int cli_compiled_open(cli_compiled *c, const cli_compiled_options *options)
{
    *c = (cli_compiled){ 0 };
    if (!options->train && (options->optimizer || !isnan(options->lr))) {
        fprintf(stderr, "gradus: %s is of the training step: give --train\n",
                options->optimizer ? "--optimizer" : "--lr");
        return CLI_USAGE;
    }
    if (!open_network(c, &options->network))
        return cli_fail();
    if (options->length && !c->network.language) {
        fprintf(stderr, "gradus: --length is for language models; this one says itself how large "
                        "its input is\n");
        return CLI_USAGE;
    }
    return compile(c, options) ? CLI_OK : cli_fail();
}

void cli_compiled_close(cli_compiled *c)
{
    cli_network_close(&c->network);
    *c = (cli_compiled){ 0 };
}
