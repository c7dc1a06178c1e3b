/* cli/quantize.c: gradus quantize: a language model in fewer bits, as a GGUF file, and what that changes of each tensor. Start at
 * cli_quantize(). */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TYPES "Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0, Q3_K, Q2_K, BF16, F16 or F32"

typedef struct settings {
    const char *from, *to, *type, *tokenizer, *calibrate;
    bool quiet;
} settings;

typedef struct progress {
    const settings *settings;
    double bytes, numbers;
    bool begun, calibrated;
} progress;

static double count_of(gd_shape shape)
{
    double count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= (double)shape.dim[i];
    return count;
}

/* A line for each tensor: 72 columns, 81 with the error of products. */
static gd_status tell(void *user, const gd_gguf_written *t, bool *stop)
{
    progress *p = user;
    char shape[32] = "";
    for (int i = 0; i < t->shape.rank; i++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", i > 0 ? "x" : "",
                 (long long)t->shape.dim[i]);
    p->bytes += (double)t->bytes;
    p->numbers += count_of(t->shape);
    *stop = cli_is_interrupted();
    if (p->settings->quiet)
        return GD_OK;
    if (!p->begun)
        printf("%-30s %-16s %-5s %9s %8s%s\n", "tensor", "shape", "type", "KB", "error",
               p->calibrated ? "  product" : "");
    p->begun = true;
    printf("%-30s %-16s %-5s %9.1f", t->name, shape, gd_gguf_type_name(t->type),
           (double)t->bytes / 1e3);
    if (t->error > 0)
        printf(" %7.3f%%", 100 * t->error);
    else
        printf(" %8s", "none");
    if (p->calibrated && t->output_error >= 0)
        printf(" %7.3f%%", 100 * t->output_error);
    putchar('\n');
    return fflush(stdout) == 0 ? GD_OK : GD_ERR_IO;
}

enum { MOST_TOKENS = 1 << 16 /* of a text to calibrate with: means do not change with more */ };

/* The importance of the columns over --calibrate's text. */
static gd_importance *calibrate(const settings *s, gd_language_model *model,
                                const gd_tokenizer *tokenizer)
{
    size_t size;
    gd_tokens tokens = { 0 };
    gd_importance *importance = NULL;
    char *text = cli_read_file(s->calibrate, &size);
    gd_status status = text ? GD_OK : gd_error_code();
    if (status == GD_OK)
        status = gd_tokenize(tokenizer, text, size, &tokens);
    if (status == GD_OK)
        importance = gd_language_model_calibrate(
            model, tokens.count < MOST_TOKENS ? tokens.count : MOST_TOKENS, tokens.ids);
    gd_tokens_free(&tokens);
    free(text);
    return importance;
}

static gd_status write_model(const settings *s, const char *from, gd_gguf_type type,
                             const gd_tokenizer *tokenizer, progress *p)
{
    const bool is_gguf = cli_is_gguf(from);
    gd_importance *importance = NULL;
    gd_context *gd = gd_open("cpu");
    gd_language_model *model = is_gguf && !s->calibrate ? NULL : gd_language_model_load(gd, from);
    if (s->calibrate)
        importance = model ? calibrate(s, model, tokenizer) : NULL;
    p->calibrated = importance != NULL;
    gd_status status;
    if ((!is_gguf && !model) || (s->calibrate && !importance))
        status = gd_error_code();
    else if (is_gguf)
        status = gd_gguf_quantize(from, s->to, .type = type, .callback = tell, .user = p,
                                  .importance = importance);
    else
        status = gd_language_model_save_gguf(model, tokenizer, s->to, .type = type,
                                             .callback = tell, .user = p, .importance = importance);
    gd_importance_release(importance);
    gd_close(gd);
    return status;
}

/* A file that is no GGUF is a model, whose tokeniser goes with it. */
static gd_status convert(const settings *s, gd_gguf_type type, progress *p, bool *told)
{
    char path[CLI_PATH_BYTES];
    gd_tokenizer *tokenizer = NULL;
    if (cli_is_gguf(s->from) && !s->calibrate)
        return write_model(s, s->from, type, NULL, p);
    if (!cli_find_language(s->from, path))
        return gd_error_code();
    if (s->tokenizer) {
        tokenizer = cli_open_tokenizer(s->tokenizer);
        *told = !tokenizer;
    } else if (cli_own_tokenizer(path, &tokenizer) && !tokenizer && cli_loads_language(path)) {
        fprintf(stderr, "gradus quantize: --tokenizer is needed: %s has none in it\n", s->from);
        *told = true;
    }
    gd_status status = tokenizer ? write_model(s, path, type, tokenizer, p) : GD_ERR_INVALID;
    gd_tokenizer_release(tokenizer);
    return status;
}

static int run(const settings *s, gd_gguf_type type)
{
    progress p = { .settings = s };
    bool told = false;
    cli_catch_interrupts();
    if (convert(s, type, &p, &told) != GD_OK)
        return cli_is_interrupted() ? CLI_INTERRUPTED : told ? CLI_FAILED : cli_fail();
    if (!s->quiet)
        printf("%s: %.1f MB, %.2f bits a number; error: of the values' root mean square%s\n", s->to,
               p.bytes / 1e6, p.numbers > 0 ? 8 * p.bytes / p.numbers : 0.0,
               p.calibrated ? "; product: of those of the text, likewise" : "");
    return CLI_OK;
}

int cli_quantize(int argc, char **argv)
{
    settings s = { .type = "Q8_0" };
    const cli_option options[] = {
        { "MODEL", NULL,
          "a run folder, safetensors (GPT-2, or saved by Gradus), GGUF or a llama2.c checkpoint",
          CLI_OPERAND, &s.from, 0, 0 },
        { "OUT", NULL, "the GGUF file to write", CLI_OPERAND, &s.to, 0, 0 },
        { "type", "TYPE", TYPES " (default: Q8_0)", CLI_TEXT, &s.type, 0, 0 },
        { "tokenizer", "FILE",
          "merges (vocab.bpe), llama2.c's tokenizer.bin, GGUF, 'bytes', or 'characters:TEXTFILE' "
          "(default: that in the model's file)",
          CLI_TEXT, &s.tokenizer, 0, 0 },
        { "calibrate", "TEXT",
          "a text whose tokens tell which columns of matrices count: k-quants are made for them, "
          "and "
          "the report says how far the matrix' products are off",
          CLI_TEXT, &s.calibrate, 0, 0 },
        { "quiet", NULL, "print nothing", CLI_FLAG, &s.quiet, 0, 0 },
    };
    const cli_command_help help = {
        "gradus quantize MODEL OUT [--type TYPE] [OPTION]...",
        "Write a language model with its matrices in fewer bits, as a GGUF file, which gradus "
        "generate and llama.cpp read."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, (int)(sizeof options / sizeof *options), &code))
        return code;
    gd_gguf_type type;
    if (!s.from || !s.to) {
        fprintf(stderr,
                "gradus quantize: %s is needed; 'gradus quantize --help' tells what it may be\n",
                s.from ? "OUT" : "a MODEL");
        return CLI_USAGE;
    }
    if (!gd_gguf_type_find(s.type, &type)) {
        fprintf(stderr, "gradus quantize: --type takes " TYPES ", not '%s'\n", s.type);
        return CLI_USAGE;
    }
    if (s.tokenizer && cli_is_gguf(s.from)) {
        fprintf(stderr,
                "gradus quantize: %s keeps its own tokeniser; --tokenizer is for other files\n",
                s.from);
        return CLI_USAGE;
    }
    if (access(s.from, F_OK) != 0) {
        fprintf(stderr, "gradus quantize: %s is not there\n", s.from);
        return CLI_FAILED;
    }
    return gd_file_check_writable(s.to) == GD_OK ? run(&s, type) : cli_fail();
}
