/* cli/eval_text.c: gradus eval of a model of text: loss, perplexity, and bits a character. Start at
 * cli_eval_text(). */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A sequence of a text has no more tokens than LENGTH, and a batch's logits no more numbers than LOGITS, but for one sequence. */
enum { BATCH = 16, LENGTH = 1024, LOGITS = 1 << 26 };

static gd_tensor *objective(void *user, const gd_objective_call *call)
{
    return gd_language_model_loss(user, call->tensors[0], call->tensors[1]);
}

/* The tokens of a text behind the begin token, where texts have one. */
static gd_token_data *tokens_of(const cli_data *d, const char *text, size_t size)
{
    gd_tokens tokens = { 0 };
    gd_token_data *data = NULL;
    int32_t *all = gd_tokenize(d->tokenizer, text, size, &tokens) == GD_OK
                       ? malloc(((size_t)tokens.count + 1) * sizeof *all)
                       : NULL;
    int64_t count = 0;
    if (all && gd_tokenizer_begin(d->tokenizer) >= 0)
        all[count++] = gd_tokenizer_begin(d->tokenizer);
    if (all && tokens.count > 0)
        memcpy(all + count, tokens.ids, (size_t)tokens.count * sizeof *all);
    count += tokens.count;
    if (all && count < 2)
        (void)gd_error_record(GD_ERR_INVALID, "the text is too short to be measured");
    else if (all)
        data = gd_token_data_create(d->context, count, all);
    gd_tokens_free(&tokens);
    free(all);
    return data;
}

/* A text in sequences beside each other. */
static bool open_file(cli_data *d, gd_language_model *model, const char *path, size_t *size)
{
    char *text = cli_read_file(path, size);
    d->tokens = text ? tokens_of(d, text, *size) : NULL;
    free(text);
    int64_t most = gd_language_model_options(model)->max_length;
    int64_t count = gd_token_data_count(d->tokens) - 1;
    most = most < LENGTH ? most : LENGTH;
    d->length = count < most ? count : most;
    if (d->tokens)
        d->validation = gd_token_dataset(d->context, d->tokens, .length = d->length);
    return d->validation != NULL;
}

/* The mean loss of a data set's sequences, which are all as long. */
static bool measure(gd_language_model *model, gd_dataset *sequences, int64_t length, double *loss)
{
    gd_metrics metrics;
    int64_t batch = LOGITS / (gd_language_model_options(model)->vocabulary * length);
    batch = batch < 1 ? 1 : batch > BATCH ? BATCH : batch;
    gd_loader *batches = gd_loader_create(sequences, .batch = batch);
    bool ok = batches && gd_evaluate(gd_language_model_module(model), objective, model, batches,
                                     &metrics) == GD_OK;
    gd_loader_release(batches);
    *loss = ok ? gd_metrics_get(&metrics, "loss") : NAN;
    return ok;
}

/* Of all tokens but the first: whole sequences, then what is left behind them. */
static bool measure_all(gd_language_model *model, const cli_data *d, int64_t *tokens, double *loss)
{
    const int64_t whole = gd_dataset_count(d->validation) * d->length;
    const int64_t rest = gd_token_data_count(d->tokens) - 1 - d->first - whole;
    double last = 0.0;
    *tokens = whole + rest;
    if (!measure(model, d->validation, d->length, loss))
        return false;
    if (rest < 1)
        return true;
    gd_dataset *end =
        gd_token_dataset(d->context, d->tokens, .length = rest, .first = d->first + whole);
    bool ok = end && measure(model, end, rest, &last);
    gd_dataset_release(end);
    *loss = (*loss * (double)whole + last * (double)rest) / (double)*tokens;
    return ok;
}

/* The same tokens in the same sequences, with keys and values out of a cache. */
static bool measure_cached(gd_language_model *model, const cli_data *d, gd_dtype dtype,
                           int64_t *tokens, double *loss)
{
    const int64_t count = gd_token_data_count(d->tokens) - d->first;
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    gd_generator *g = ids ? gd_generator_create(model) : NULL;
    for (int64_t i = 0; g && i < count; i++)
        ids[i] = gd_token_data_get(d->tokens, d->first + i);
    bool ok = g && gd_generator_set_cache_dtype(g, dtype) == GD_OK &&
              gd_generator_loss(g, count, ids, loss) == GD_OK;
    *tokens = count - 1;
    free(ids);
    return ok;
}

bool cli_cache_dtype(const char *command, const char *word, gd_dtype *dtype)
{
    static const struct {
        const char *word;
        gd_dtype dtype;
    } words[] = { { "f32", GD_F32 }, { "f16", GD_F16 }, { "int8", GD_I8 } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(words[i].word, word) == 0) {
            *dtype = words[i].dtype;
            return true;
        }
    fprintf(stderr, "gradus %s: --cache takes f32, f16 or int8, not '%s'\n", command, word);
    return false;
}

/* In bits of a token, where that is a character or a byte (1.4427 * loss), else of the text's `bytes`. */
static void print(int64_t tokens, double loss, const cli_data *d, const char *which, size_t bytes)
{
    char count[CLI_COUNT_TEXT];
    int64_t kinds = gd_tokenizer_count(d->tokenizer);
    bool words = gd_tokenizer_end(d->tokenizer) >= 0 || gd_tokenizer_begin(d->tokenizer) >= 0;
    const char *unit = words ? "token" : kinds == 256 ? "byte" : "character";
    double bits = loss / log(2.0) * (words ? (double)tokens / (double)bytes : 1.0);
    printf("%s %ss%s: loss %.4f, perplexity %s%.4f%s, %s%.4f bits a %s%s\n",
           cli_count(tokens, count), unit, which, loss, cli_bold(), exp(loss), cli_plain(),
           cli_bold(), bits, words ? "byte" : unit, cli_plain());
}

/* The tokeniser of the text: --tokenizer's, or that in the file. *told: the error has been. */
static bool open_tokenizer(cli_data *d, const char *model_path, const char *tokenizer, bool *told)
{
    if (tokenizer) {
        d->tokenizer = cli_open_tokenizer(tokenizer);
        *told = !d->tokenizer;
    } else if (cli_own_tokenizer(model_path, &d->tokenizer) && !d->tokenizer) {
        (void)gd_error_record(
            GD_ERR_INVALID, "the model's file does not say what its tokens are: give --tokenizer");
    }
    return d->tokenizer != NULL;
}

static bool open_data(cli_data *d, gd_language_model *model, const char *model_path,
                      const char *path, const char *tokenizer, size_t *bytes, bool *told)
{
    if (!path && (tokenizer || cli_is_gguf(model_path))) {
        (void)gd_error_record(GD_ERR_INVALID, "a text is needed, to measure the model on");
        return false;
    }
    bool ok =
        path ? open_tokenizer(d, model_path, tokenizer, told) && open_file(d, model, path, bytes)
             : cli_data_open_kept(d, d->context, model_path);
    if (ok && gd_tokenizer_count(d->tokenizer) != gd_language_model_options(model)->vocabulary)
        ok = gd_error_record(GD_ERR_FORMAT, "the model and the text's tokens do not belong "
                                            "together") == GD_OK;
    return ok;
}

int cli_eval_text(const char *model_path, const char *path, const cli_eval_text_options *o)
{
    gd_dtype dtype = GD_F32;
    if (o->cache && !cli_cache_dtype("eval", o->cache, &dtype))
        return CLI_USAGE;
    gd_context *gd = cli_open_device(o->device, o->precision, o->threads);
    gd_language_model *model =
        gd ? gd_language_model_load(gd, model_path, .quantized = o->quantized) : NULL;
    cli_data d = { .context = gd };
    int64_t tokens;
    size_t bytes = 1;
    double loss;
    bool told = false;
    bool ok = model && open_data(&d, model, model_path, path, o->tokenizer, &bytes, &told);
    if (ok)
        ok = o->cache ? measure_cached(model, &d, dtype, &tokens, &loss)
                      : measure_all(model, &d, &tokens, &loss);
    if (ok)
        print(tokens, loss, &d, path ? "" : " kept for validation", bytes);
    int code = ok ? CLI_OK : told ? CLI_FAILED : cli_fail();
    cli_data_close(&d);
    gd_close(gd);
    return code;
}
