/* cli/eval_text.c: gradus eval of a model of text: loss, perplexity, and bits a character. Start at
 * cli_eval_text(). */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 16 };

static gd_tensor *objective(void *user, const gd_objective_call *call)
{
    return gd_language_model_loss(user, call->tensors[0], call->tensors[1]);
}

/* The tokens of a text in sequences beside each other, as the model's run has them. */
static bool open_file(cli_data *d, gd_language_model *model, const char *model_path,
                      const char *path)
{
    size_t size;
    gd_tokens tokens = { 0 };
    char *text = cli_read_file(path, &size);
    d->tokenizer = text ? cli_file_tokenizer(model_path) : NULL;
    if (d->tokenizer && gd_tokenize(d->tokenizer, text, size, &tokens) == GD_OK)
        d->tokens = gd_token_data_create(d->context, tokens.count, tokens.ids);
    int64_t most = gd_language_model_options(model)->max_length;
    d->length = tokens.count - 1 < most ? tokens.count - 1 : most;
    gd_tokens_free(&tokens);
    free(text);
    if (d->tokens && d->length < 1)
        return gd_error_record(GD_ERR_INVALID, "the text is too short to be measured") == GD_OK;
    if (d->tokens)
        d->validation = gd_token_dataset(d->context, d->tokens, .length = d->length);
    return d->validation != NULL;
}

/* The mean loss of a data set's sequences, which are all as long. */
static bool measure(gd_language_model *model, gd_dataset *sequences, double *loss)
{
    gd_metrics metrics;
    gd_loader *batches = gd_loader_create(sequences, .batch = BATCH);
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
    if (!measure(model, d->validation, loss))
        return false;
    if (rest < 1)
        return true;
    gd_dataset *end =
        gd_token_dataset(d->context, d->tokens, .length = rest, .first = d->first + whole);
    bool ok = end && measure(model, end, &last);
    gd_dataset_release(end);
    *loss = (*loss * (double)whole + last * (double)rest) / (double)*tokens;
    return ok;
}

/* 1.4427 * loss where tokens are characters or bytes. */
static void print(int64_t tokens, double loss, const cli_data *d, const char *which)
{
    char count[CLI_COUNT_TEXT];
    const char *unit = gd_tokenizer_count(d->tokenizer) == 256 ? "byte" : "character";
    printf("%s %ss%s: loss %.4f, perplexity %s%.4f%s, %s%.4f bits a %s%s\n",
           cli_count(tokens, count), unit, which, loss, cli_bold(), exp(loss), cli_plain(),
           cli_bold(), loss / log(2.0), unit, cli_plain());
}

int cli_eval_text(const char *model_path, const char *path, const char *device, int64_t threads)
{
    gd_context *gd = cli_open_device(device, threads);
    gd_language_model *model = gd ? gd_language_model_load(gd, model_path) : NULL;
    cli_data d = { .context = gd };
    int64_t tokens;
    double loss;
    bool ok = model && (path ? open_file(&d, model, model_path, path)
                             : cli_data_open_kept(&d, gd, model_path));
    if (ok && gd_tokenizer_count(d.tokenizer) != gd_language_model_options(model)->vocabulary)
        ok = gd_error_record(GD_ERR_FORMAT, "the model and the text's tokens do not belong "
                                            "together") == GD_OK;
    ok = ok && measure_all(model, &d, &tokens, &loss);
    if (ok)
        print(tokens, loss, &d, path ? "" : " kept for validation");
    int code = ok ? CLI_OK : cli_fail();
    cli_data_close(&d);
    gd_close(gd);
    return code;
}
