/* text/tokenizer_llama2c.c: llama2.c's tokenizer.bin, a SentencePiece vocabulary:
 *
 *     longest token: i32 | for each token: score f32 | size i32 | bytes
 *
 * little-endian. Tokens 0, 1, 2 are <unk>, <s>, </s>; those named <0x00> … <0xFF> are bytes. Two
 * neighbours merge where the text of both together is a token's, the one of the highest score
 * first. */
#include "text/merge.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UNKNOWN = 0, BEGIN = 1, END = 2, CONTROLS = 3, LONGEST = 512 };

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
    if (status == GD_OK)
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

/* ---- the file ---- */

typedef struct source {
    const char *name;
    const unsigned char *bytes;
    size_t size, at;
} source;

static bool read_u32(source *s, uint32_t *out)
{
    if (s->size - s->at < 4)
        return false;
    const unsigned char *b = s->bytes + s->at;
    *out = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    s->at += 4;
    return true;
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

static gd_status read_token(gd_tokenizer *t, source *s, double *score)
{
    uint32_t bits, size;
    if (!read_u32(s, &bits) || !read_u32(s, &size) || size > s->size - s->at)
        return gd_fail(GD_ERR_FORMAT, "%s: token %zu goes beyond the end of the file", s->name,
                       t->count);
    float value;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value) || size > LONGEST)
        return gd_fail(GD_ERR_FORMAT,
                       "%s: token %zu has score %g and %u bytes; a number and at most %d are "
                       "expected: is this a tokeniser of llama2.c?",
                       s->name, t->count, (double)value, (unsigned)size, LONGEST);
    *score = value;
    const char *text = (const char *)s->bytes + s->at;
    s->at += size;
    int32_t token = (int32_t)t->count;
    int byte = byte_named(text, size);
    char single = (char)(unsigned char)byte;
    if (token < CONTROLS || byte < 0 || t->byte_token[byte] >= 0) {
        gd_status status = gd_tokenizer_add(t, text, size);
        return status == GD_OK && token >= CONTROLS && size > 0 ? gd_tokenizer_add_name(t, token)
                                                                : status;
    }
    t->byte_token[byte] = token;
    return gd_tokenizer_add(t, &single, 1);
}

/* Each way to cut a token in two tokens is a merge. Counts them; notes them when there is a table.
 * A token has at most LONGEST bytes, so that this takes time in proportion to the file. */
static gd_status find_merges(gd_tokenizer *t, const double *score, size_t *count)
{
    *count = 0;
    for (size_t i = CONTROLS; i < t->count; i++) {
        const char *text = t->text + t->spans[i].start;
        size_t size = t->spans[i].size;
        if (gd_tokenizer_find_name(t, text, size) != (int32_t)i)
            continue; /* a byte, or a second token of the same text */
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

static gd_status read_tokens(gd_tokenizer *t, source *s)
{
    double *scores = NULL;
    size_t capacity = 0;
    uint32_t longest;
    gd_status status = read_u32(s, &longest) ? GD_OK : GD_ERR_FORMAT;
    if (status != GD_OK)
        return gd_fail(status, "%s: too short for a tokeniser of llama2.c", s->name);
    while (status == GD_OK && s->at < s->size) {
        if (!gd_grow((void **)&scores, &capacity, t->count + 1, sizeof *scores))
            status = GD_ERR_MEMORY;
        else
            status = read_token(t, s, &scores[t->count]);
    }
    if (status == GD_OK && t->count <= CONTROLS)
        status =
            gd_fail(GD_ERR_FORMAT, "%s: it has no tokens besides <unk>, <s> and </s>", s->name);
    size_t merges = 0;
    if (status == GD_OK)
        status = find_merges(t, scores, &merges);
    if (status == GD_OK)
        status = gd_merges_reserve(t, merges);
    if (status == GD_OK)
        status = find_merges(t, scores, &merges);
    gd_free(scores);
    return status;
}

static gd_tokenizer *read_llama2c(source *s)
{
    gd_tokenizer *t = gd_tokenizer_new(encode);
    if (!t)
        return NULL;
    t->begin = BEGIN;
    t->end = END;
    t->leading_space = true;
    memset(t->byte_token, -1, sizeof t->byte_token);
    if (read_tokens(t, s) != GD_OK) {
        gd_tokenizer_release(t);
        return NULL;
    }
    return t;
}

gd_tokenizer *gd_tokenizer_llama2c(const void *bytes, size_t size)
{
    if (!bytes)
        return gd_fail_null(GD_ERR_INVALID, "gd_tokenizer_llama2c: the bytes are NULL");
    return read_llama2c(&(source){ .name = "memory", .bytes = bytes, .size = size });
}

gd_tokenizer *gd_tokenizer_load_llama2c(const char *path)
{
    unsigned char *bytes;
    size_t size;
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_tokenizer_load_llama2c: the path is NULL");
    if (gd_file_read_all(path, GD_TOKENIZER_MOST_BYTES, &bytes, &size) != GD_OK)
        return NULL;
    gd_tokenizer *t = read_llama2c(&(source){ .name = path, .bytes = bytes, .size = size });
    gd_free(bytes);
    return t;
}
