/* cli/data_text.c: plain text: characters or bytes as tokens, and a small GPT that says what comes next.
 * Start at open_text(). */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST = 128, SHORTEST = 16, MOST_CHARACTERS = 512 };

static bool is_text(const char *path)
{
    struct stat status;
    static const char *const endings[] = { ".txt", ".md", ".text" };
    if (stat(path, &status) != 0 || S_ISDIR(status.st_mode))
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (cli_has_ending(path, endings[i]))
            return true;
    return false;
}

/* The tokens' texts after each other, of which gd_tokenizer_characters makes the same tokeniser; "" where a
 * file's strings cannot hold them: a 0 byte, a byte that is no UTF-8. NULL: no memory. */
static char *characters_of(const gd_tokenizer *t)
{
    int32_t ids[MOST_CHARACTERS];
    size_t size;
    int64_t count = gd_tokenizer_count(t);
    bool is_text = true;
    for (int32_t i = 0; i < (int32_t)count; i++) {
        const char *one = gd_token_text(t, -1, i, &size);
        is_text &= size > 1 || (size == 1 && *one > 0 && (unsigned char)*one < 0x80);
        ids[i] = i;
    }
    return is_text ? gd_detokenize(t, count, ids, &size) : gd_detokenize(t, 0, ids, &size);
}

/* Characters, where the text has few different ones, else bytes. The model's file says which. */
static gd_tokenizer *choose_tokenizer(cli_data *d, const char *text, size_t size)
{
    gd_tokenizer *t = gd_tokenizer_characters(text, size);
    if (!t)
        return NULL;
    bool are_few = gd_tokenizer_count(t) <= MOST_CHARACTERS;
    char *characters = are_few ? characters_of(t) : NULL;
    bool are_characters = characters && *characters;
    if (!are_characters) {
        gd_tokenizer_release(t);
        t = gd_tokenizer_bytes();
    }
    bool kept = t && (!are_few || characters) &&
                (are_characters ? cli_data_keep(d, CLI_CHARACTERS, characters)
                                : cli_data_keep(d, CLI_TOKENIZER, "bytes"));
    gd_text_free(characters);
    if (kept)
        return t;
    gd_tokenizer_release(t);
    return NULL;
}

/* The end of the text is for validation: sequences beside each other there, from anywhere before. */
static bool make_sets(cli_data *d, const cli_data_options *o)
{
    int64_t count = gd_token_data_count(d->tokens);
    int64_t training = (int64_t)((1.0 - o->validation) * (double)count);
    int64_t least = count - training < training ? count - training : training;
    d->length = least - 1 < LONGEST ? least - 1 : LONGEST;
    if (d->length < SHORTEST) {
        char sentence[CLI_PATH_BYTES + 128];
        snprintf(sentence, sizeof sentence,
                 "%.4000s: %lld tokens are too few to learn from and to validate with", o->path,
                 (long long)count);
        return gd_error_record(GD_ERR_INVALID, sentence) == GD_OK;
    }
    d->first = training;
    d->train = gd_token_dataset(d->context, d->tokens, .length = d->length, .stride = 1,
                                .count = training);
    d->validation = gd_token_dataset(d->context, d->tokens, .length = d->length, .first = training);
    return d->train && d->validation;
}

/* What gzip writes begins so. Its bytes could be learnt, and nobody wants that. */
static bool is_compressed(const char *text, size_t size)
{
    return text && size > 2 && memcmp(text, "\x1f\x8b", 2) == 0;
}

static bool open_text(cli_data *d, const cli_data_options *o)
{
    size_t size;
    gd_tokens tokens = { 0 };
    char count[CLI_COUNT_TEXT];
    char *text = cli_read_file(o->path, &size);
    if (is_compressed(text, size)) {
        free(text);
        return gd_error_record(GD_ERR_FORMAT, "the text is compressed with gzip: unpack it first "
                                              "(gunzip)") == GD_OK;
    }
    if (text && size == 0) {
        char sentence[CLI_PATH_BYTES + 32];
        free(text);
        snprintf(sentence, sizeof sentence, "%.4000s: there is no text in it", o->path);
        return gd_error_record(GD_ERR_INVALID, sentence) == GD_OK;
    }
    d->tokenizer = text ? choose_tokenizer(d, text, size) : NULL;
    if (d->tokenizer && gd_tokenize(d->tokenizer, text, size, &tokens) == GD_OK)
        d->tokens = gd_token_data_create(d->context, tokens.count, tokens.ids);
    gd_tokens_free(&tokens);
    free(text);
    if (!d->tokens || !make_sets(d, o))
        return false;
    d->outputs = gd_tokenizer_count(d->tokenizer);
    snprintf(d->about, sizeof d->about, "%s tokens, %lld different ones",
             cli_count(gd_token_data_count(d->tokens), count), (long long)d->outputs);
    return true;
}

/* Runs of text are continued by gradus generate. */
static bool reopen_text(cli_data *d, const char *path, gd_tensor_file *file)
{
    (void)d, (void)path, (void)file;
    (void)gd_error_record(GD_ERR_INVALID, "a model of text is used by gradus generate");
    return false;
}

/* As GPTs are built today: rotary positions know of distances from the first step on, while learned
 * ones take half as many steps again. SwiGLU has three matrices where GELU has two: 8/3 of the width
 * make as many weights as 4 there. */
gd_language_model *cli_propose_language(const cli_data *d, uint64_t seed)
{
    return gd_language_model_create(
        d->context, .decoder = GD_DECODER_LLAMA, .vocabulary = d->outputs, .max_length = d->length,
        .layers = 4, .heads = 4, .width = 128, .hidden = 344, .dropout = 0.1, .seed = seed);
}

const cli_data_kind cli_text_kind = {
    .name = "text",
    .sample = "sequence",
    .is = is_text,
    .open = open_text,
    .reopen = reopen_text,
    .epochs = 10,
    .batch = 16,
    .lr = 1e-3,
    .monitor = "loss",
    .steps = 100,
};
