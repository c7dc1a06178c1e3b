/* cli/generate.c: gradus generate: text from a language model, shown as it comes. Start at
 * cli_generate(). */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    const char *model, *tokenizer, *prompt;
    const char *device, *cache, *draft, *precision_name;
    gd_dtype cache_dtype, precision;
    int64_t tokens, top_k, seed, threads, draft_tokens;
    double temperature, top_p, repetition_penalty;
    bool quiet, quantized;
} settings;

/* ---- the command ---- */

/* Once, where the text begins: a prompt that the model refuses is not printed. */
static void print_prompt(const char **prompt)
{
    if (*prompt)
        fputs(*prompt, stdout);
    *prompt = NULL;
}

static gd_status print_token(void *user, int32_t token, const char *text, size_t size, bool *stop)
{
    (void)token;
    print_prompt(user);
    fwrite(text, 1, size, stdout);
    *stop = fflush(stdout) != 0 || cli_is_interrupted(); /* where nobody reads on, stop */
    return GD_OK;
}

static gd_generator *generator_of(const settings *s, gd_language_model *model)
{
    gd_generator *g = gd_generator_create(model);
    return g && (s->cache_dtype == GD_F32 ||
                 gd_generator_set_cache_dtype(g, s->cache_dtype) == GD_OK)
               ? g
               : NULL;
}

/* How many tokens, and which share of the draft's was kept. */
static void print_counts(const settings *s, const gd_generator *g, int64_t made, double seconds)
{
    fprintf(stderr, "%s%lld tokens, %.1f a second%s", cli_bold(), (long long)made,
            (double)made / seconds, cli_plain());
    const int64_t drafted = gd_generator_drafted(g), accepted = gd_generator_accepted(g);
    if (s->draft)
        fprintf(stderr, "; of %lld drafted %lld accepted (%.1f %%)", (long long)drafted,
                (long long)accepted,
                drafted > 0 ? 100.0 * (double)accepted / (double)drafted : 0.0);
    fputc('\n', stderr);
}

static bool generate(const settings *s, gd_language_model *model, gd_language_model *draft,
                     const gd_tokenizer *tokenizer)
{
    gd_generator *generator = generator_of(s, model);
    gd_generator *drafts = draft ? generator_of(s, draft) : NULL;
    if (!generator || (draft && !drafts))
        return false;
    gd_sampler *sampler =
        gd_sampler_create(.temperature = s->temperature, .top_k = s->top_k, .top_p = s->top_p,
                          .repetition_penalty = s->repetition_penalty, .seed = (uint64_t)s->seed);
    const char *prompt = s->prompt;
    double start = gd_seconds();
    int64_t made =
        sampler ? gd_generate(generator, tokenizer, sampler, .prompt = s->prompt,
                              .max_tokens = s->tokens, .callback = print_token, .user = &prompt,
                              .draft = drafts, .draft_tokens = s->draft_tokens)
                : -1;
    double seconds = gd_seconds() - start;
    if (made >= 0) {
        print_prompt(&prompt);
        putchar('\n');
        (void)fflush(stdout);
    }
    if (made >= 0 && !s->quiet)
        print_counts(s, generator, made, seconds);
    gd_sampler_release(sampler);
    return made >= 0;
}

/* A model and a tokeniser that do not belong together would talk nonsense, or fail in the middle.
 */
static bool belong_together(gd_language_model *model, const gd_tokenizer *tokenizer)
{
    int64_t tokens = gd_language_model_options(model)->vocabulary;
    if (gd_tokenizer_count(tokenizer) == tokens)
        return true;
    fprintf(stderr, "gradus generate: the model has %lld tokens, the tokeniser %lld\n",
            (long long)tokens, (long long)gd_tokenizer_count(tokenizer));
    return false;
}

static int run(const settings *s, gd_tokenizer *tokenizer)
{
    gd_context *gd = cli_open_device(s->device, s->precision, s->threads);
    gd_language_model *model = gd_language_model_load(gd, s->model, .quantized = s->quantized);
    char path[CLI_PATH_BYTES];
    bool ok = model != NULL;
    gd_language_model *draft = NULL;
    if (ok && s->draft) {
        ok = cli_find_language(s->draft, path);
        draft = ok ? gd_language_model_load(gd, path, .quantized = s->quantized) : NULL;
        ok = draft != NULL;
    }
    int code = CLI_FAILED;
    if (!ok || belong_together(model, tokenizer))
        code = !ok || !generate(s, model, draft, tokenizer) ? cli_fail()
               : cli_is_interrupted()                       ? CLI_INTERRUPTED
                                                            : CLI_OK;
    gd_close(gd);
    gd_tokenizer_release(tokenizer);
    return code;
}

int cli_generate(int argc, char **argv)
{
    settings s = { .tokens = -1,
                   .temperature = 0.8,
                   .top_k = INT64_MAX,
                   .top_p = 0.95,
                   .repetition_penalty = 1,
                   .seed = 1,
                   .cache = "f32",
                   .draft_tokens = 4,
                   .threads = -1 };
    const cli_option options[] = {
        { "MODEL", NULL,
          "a run folder, safetensors (GPT-2, or saved by Gradus), GGUF (gpt2, llama) or a llama2.c "
          "checkpoint",
          CLI_OPERAND, &s.model, 0, 0 },
        { "tokenizer", "FILE",
          "merges (vocab.bpe), llama2.c's tokenizer.bin, GGUF, 'bytes', or 'characters:TEXTFILE' "
          "(default: that in the model's file)",
          CLI_TEXT, &s.tokenizer, 0, 0 },
        { "prompt", "TEXT", "what to continue (default: nothing)", CLI_TEXT, &s.prompt, 0, 0 },
        { "tokens", "N", "the most to generate (default: as long as the model can)", CLI_WHOLE,
          &s.tokens, 1, 1e9 },
        { "temperature", "X", "0: always the likeliest; 1: as the model says (default: 0.8)",
          CLI_REAL, &s.temperature, 0, 100 },
        { "top-k", "N", "choose among the N likeliest (default: all)", CLI_WHOLE, &s.top_k, 1,
          1e9 },
        { "top-p", "X", "choose among the likeliest that make up X together (default: 0.95)",
          CLI_REAL, &s.top_p, 0, 1 },
        { "repetition-penalty", "X", "above 1: against repeating itself (default: 1)", CLI_REAL,
          &s.repetition_penalty, 0.01, 100 },
        { "seed", "N", "of the choices (default: 1)", CLI_WHOLE, &s.seed, 0, 9e15 },
        { "threads", "N", "threads to compute with (default: the cores there are)", CLI_WHOLE,
          &s.threads, 1, 256 },
        CLI_DEVICE_OPTION(&s.device),
        CLI_PRECISION_OPTION(&s.precision_name),
        { "quantized", NULL,
          "keep a GGUF file's Q8_0, Q5_1, Q5_0, Q4_1, Q4_0 and k-quants in 8 or 4 bits, and "
          "compute with them",
          CLI_FLAG, &s.quantized, 0, 0 },
        { "cache", "DTYPE",
          "of keys and values: f32, or f16 for half the memory, or int8 for a quarter (default: "
          "f32)",
          CLI_TEXT, &s.cache, 0, 0 },
        { "draft", "MODEL",
          "a smaller model with the same tokens, whose proposals MODEL reads in one pass", CLI_TEXT,
          &s.draft, 0, 0 },
        { "draft-tokens", "N", "that it proposes at a time (default: 4)", CLI_WHOLE,
          &s.draft_tokens, 1, GD_MOST_DRAFT_TOKENS },
        { "quiet", NULL, "print the text alone", CLI_FLAG, &s.quiet, 0, 0 },
    };
    const cli_command_help help = { "gradus generate MODEL [--tokenizer FILE] [OPTION]...",
                                    "Continue a text with a language model, token by token." };
    int code;
    if (cli_parse(argc, argv, &help, options, (int)(sizeof options / sizeof *options), &code))
        return code;
    char model[CLI_PATH_BYTES];
    gd_tokenizer *tokenizer = NULL;
    if (!cli_cache_dtype("generate", s.cache, &s.cache_dtype) ||
        !cli_precision("generate", s.precision_name, &s.precision))
        return CLI_USAGE;
    if (s.draft && access(s.draft, F_OK) != 0) {
        fprintf(stderr, "gradus generate: %s is not there\n", s.draft);
        return CLI_FAILED;
    }
    if (s.model && access(s.model, F_OK) != 0) {
        fprintf(stderr, "gradus generate: %s is not there\n", s.model);
        return CLI_FAILED;
    }
    if (s.model) {
        if (!cli_find_language(s.model, model))
            return cli_fail();
        if (!s.tokenizer &&
            (!cli_own_tokenizer(model, &tokenizer) || (!tokenizer && !cli_loads_language(model))))
            return cli_fail();
        s.model = model;
    }
    if (!s.model || (!s.tokenizer && !tokenizer)) {
        fprintf(stderr,
                "gradus generate: %s is needed; 'gradus generate --help' tells what it may be\n",
                s.model ? "--tokenizer" : "a MODEL");
        return CLI_USAGE;
    }
    cli_catch_interrupts();
    tokenizer = s.tokenizer ? cli_open_tokenizer(s.tokenizer) : tokenizer;
    return tokenizer ? run(&s, tokenizer) : CLI_FAILED;
}
