/* cli/compiled.c: a network compiled for inference or for training, for the commands that look at
 * plans. */
#include "cli.h"

/* in[0]: samples. */
static gd_tensor *infer(void *user, gd_tensor *const *in)
{
    const cli_compiled *c = user;
    return gd_model_forward(c->network.model, in[0]);
}

/* in[0]: samples, in[1]: targets. */
static gd_tensor *train(void *user, gd_tensor *const *in)
{
    const cli_compiled *c = user;
    gd_tensor *loss = gd_model_loss(c->network.model, infer(user, in), in[1]);
    return gd_minimize(c->optimizer, loss);
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

static bool make_inputs(cli_compiled *c, int64_t batch)
{
    gd_shape sample = gd_model_input_shape(c->network.model);
    gd_shape shape = { .rank = sample.rank + 1, .dim = { batch } };
    for (int i = 0; i < sample.rank; i++)
        shape.dim[i + 1] = sample.dim[i];
    c->inputs[0] = gd_normal(c->network.context, shape, 0, 1, GD_F32);
    c->input_count = 1;
    gd_tensor *output = gd_model_forward(c->network.model, c->inputs[0]); /* makes the parameters */
    if (!output || !c->optimizer)
        return output;
    c->inputs[1] = make_targets(c, output, batch);
    c->input_count = 2;
    return c->inputs[1];
}

bool cli_compiled_open(cli_compiled *c, const cli_compiled_options *options)
{
    *c = (cli_compiled){ 0 };
    if (!cli_network_open(&c->network, &options->network))
        return false;
    if (options->train) {
        c->optimizer = gd_optimizer_create(options->optimizer ? options->optimizer : "adam",
                                           gd_model_module(c->network.model), options->lr, 0);
        if (!c->optimizer)
            return false;
    }
    if (!make_inputs(c, options->batch))
        return false;
    if (options->network.weights &&
        gd_module_load(gd_model_module(c->network.model), options->network.weights) != GD_OK)
        return false;
    c->function = gd_compile(c->network.context, options->train ? train : infer, c,
                             .detached = true, .memory_limit = options->memory_limit);
    return gd_function_prepare(c->function, c->input_count, c->inputs) == GD_OK;
}

void cli_compiled_close(cli_compiled *c)
{
    cli_network_close(&c->network);
    *c = (cli_compiled){ 0 };
}
