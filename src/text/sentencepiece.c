/* text/sentencepiece.c: SentencePiece's byte pair encoding. Start at encode() for text, at gd_sentencepiece_add() for
 * the vocabulary. */
#include "text/sentencepiece.h"

#include "base/error.h"
#include "text/merge.h"

#include <string.h>

/* ---- text to tokens ---- */

/* A character is a byte and the up to three continuation bytes behind it, as in llama2.c. */
static size_t character_bytes(const char *text, size_t size)
{
    size_t n = 1;
    while (n < size && n < 4 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n++;
    return n;
}

static gd_status push_character(const gd_tokenizer *t, const char *text, size_t size, gd_merger *m)
{
    int32_t token = gd_tokenizer_find_name(t, text, size);
    if (token >= 0) {
        gd_merger_push(m, token);
        return GD_OK;
    }
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (t->byte_token[byte] < 0)
            return gd_fail(GD_ERR_INVALID,
                           "gd_tokenize: '%.*s' is not in the vocabulary, and neither is <0x%02X>",
                           (int)size, text, byte);
        gd_merger_push(m, t->byte_token[byte]);
    }
    return GD_OK;
}

static gd_status encode(const gd_tokenizer *t, const char *text, size_t size, gd_tokens *out)
{
    gd_merger m = { 0 };
    gd_status status = gd_merger_begin(&m, size + 1);
    if (status == GD_OK && t->leading_space)
        status = push_character(t, " ", 1, &m);
    for (size_t at = 0, length; status == GD_OK && at < size; at += length) {
        length = character_bytes(text + at, size - at);
        status = push_character(t, text + at, length, &m);
    }
    if (status == GD_OK)
        status = gd_merger_finish(&m, t, out);
    gd_merger_free(&m);
    return status;
}

/* ---- the vocabulary ---- */

gd_tokenizer *gd_sentencepiece_new(bool leading_space)
{
    gd_tokenizer *t = gd_tokenizer_new(encode);
    if (!t)
        return NULL;
    t->leading_space = leading_space;
    memset(t->byte_token, -1, sizeof t->byte_token);
    return t;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that "<0x41>" stands for, -1: it is not of that form. */
static int byte_named(const char *text, size_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high >= 0 && low >= 0 ? high * 16 + low : -1;
}

gd_status gd_sentencepiece_add(gd_tokenizer *t, const char *text, size_t size, bool spells)
{
    int32_t token = (int32_t)t->count;
    int byte = spells ? byte_named(text, size) : -1;
    char single = (char)(unsigned char)byte;
    if (byte >= 0 && t->byte_token[byte] < 0) {
        t->byte_token[byte] = token;
        return gd_tokenizer_add(t, &single, 1);
    }
    gd_status status = gd_tokenizer_add(t, text, size);
    return status == GD_OK && spells && size > 0 ? gd_tokenizer_add_name(t, token) : status;
}

/* Each way to cut a token in two tokens is a merge. Counts them; notes them when there is a table.
 * A token has at most GD_SENTENCEPIECE_LONGEST bytes, so that this takes time in proportion to the file. */
static gd_status find_merges(gd_tokenizer *t, const double *score, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < t->count; i++) {
        const char *text = t->text + t->spans[i].start;
        size_t size = t->spans[i].size;
        if (gd_tokenizer_find_name(t, text, size) != (int32_t)i)
            continue; /* a control, a byte, or a second token of the same text */
        for (size_t cut = 1; cut < size; cut++) {
            int32_t left = gd_tokenizer_find_name(t, text, cut);
            int32_t right = left < 0 ? -1 : gd_tokenizer_find_name(t, text + cut, size - cut);
            if (right < 0)
                continue;
            ++*count;
            gd_status status =
                t->merges ? gd_merges_add(t, left, right, -score[i], (int32_t)i) : GD_OK;
            if (status != GD_OK)
                return status;
        }
    }
    return GD_OK;
}

gd_status gd_sentencepiece_merge(gd_tokenizer *t, const double *scores)
{
    size_t merges;
    gd_status status = find_merges(t, scores, &merges);
    if (status == GD_OK)
        status = gd_merges_reserve(t, merges);
    return status == GD_OK ? find_merges(t, scores, &merges) : status;
}
