/* cli/export.c: gradus export: a network as one C file. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    const char *model, *weights, *output, *name, *optimizer;
    int64_t batch, length;
    double lr;
    bool train;
} settings;

/* The whole text first: a plan that cannot be exported leaves an old file alone. */
static bool write_c(const settings *s, const cli_compiled *compiled)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory) {
        fprintf(stderr, "gradus export: out of memory\n");
        return false;
    }
    const char *name = s->name ? s->name : s->train ? "train_step" : "infer";
    bool ok = gd_export_c(compiled->function, name, memory) == GD_OK;
    bool whole = fclose(memory) == 0; /* it also makes text and size what they are */
    if (ok && !whole)
        fprintf(stderr, "gradus export: out of memory\n");
    else if (ok && s->output)
        ok = gd_file_write(s->output, text, size) == GD_OK;
    else if (ok)
        (void)fwrite(text, 1, size, stdout); /* main() looks after what cannot be written */
    if (!ok)
        (void)cli_fail();
    free(text);
    return ok && whole;
}

int cli_export(int argc, char **argv)
{
    settings s = { .batch = 1, .lr = NAN };
    const cli_option options[] = {
        { "MODEL", NULL,
          "the network: a JSON file, what gradus train saved, a language model (see gradus "
          "generate), "
          "or mnist_mlp (the default)",
          CLI_OPERAND, &s.model, 0, 0 },
        { "output", "FILE", "where to write it, also -o (default: standard output)", CLI_TEXT,
          &s.output, 0, 0 },
        { "weights", "FILE",
          "parameters, a safetensors file (default: the model's, or as initialised)", CLI_TEXT,
          &s.weights, 0, 0 },
        { "name", "NAME", "of the C function (default: infer, or train_step)", CLI_TEXT, &s.name, 0,
          0 },
        { "batch", "N", "samples in a batch (default: 1)", CLI_WHOLE, &s.batch, 1, 1e6 },
        { "length", "N", "tokens of a sequence, for language models (default: the most it takes)",
          CLI_WHOLE, &s.length, 1, 1e9 },
        { "train", NULL, "a training step: forward, backward and update", CLI_FLAG, &s.train, 0,
          0 },
        { "optimizer", "NAME", "of the training step (default: adam)", CLI_TEXT, &s.optimizer, 0,
          0 },
        { "lr", "X", "learning rate (default: the optimizer's)", CLI_REAL, &s.lr, 0, 1e6 },
    };
    const cli_command_help help = {
        "gradus export [MODEL] [OPTION]...",
        "Write a network as one C99 file that needs libc and libm alone and allocates nothing; "
        "its\n"
        "results are the engine's bit for bit. The file's head says how to compile it."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, (int)(sizeof options / sizeof *options), &code))
        return code;
    if (s.output && gd_file_check_writable(s.output) != GD_OK)
        return cli_fail();
    cli_compiled_options compiled_options = {
        .network = { .model = s.model, .weights = s.weights, .threads = 1, .seed = 1 },
        .batch = s.batch,
        .length = s.length,
        .train = s.train,
        .optimizer = s.optimizer,
        .lr = s.lr,
        .memory_limit = SIZE_MAX
    };
    cli_compiled compiled;
    code = cli_compiled_open(&compiled, &compiled_options);
    if (code == CLI_OK)
        code = write_c(&s, &compiled) ? CLI_OK : CLI_FAILED;
    cli_compiled_close(&compiled);
    return code;
}
