/* text/tokenizer_llama2c.c: llama2.c's tokenizer.bin, a SentencePiece vocabulary:
 *
 *     longest token: i32 | for each token: score f32 | size i32 | bytes
 *
 * little-endian. Tokens 0, 1, 2 are <unk>, <s>, </s>. */
#include "text/sentencepiece.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BEGIN = 1, END = 2, CONTROLS = 3 };

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

static gd_status read_token(gd_tokenizer *t, source *s, double *score)
{
    uint32_t bits, size;
    if (!read_u32(s, &bits) || !read_u32(s, &size) || size > s->size - s->at)
        return gd_fail(GD_ERR_FORMAT, "%s: token %zu goes beyond the end of the file", s->name,
                       t->count);
    float value;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value) || size > GD_SENTENCEPIECE_LONGEST)
        return gd_fail(GD_ERR_FORMAT,
                       "%s: token %zu has score %g and %u bytes; a number and at most %d are "
                       "expected: is this a tokeniser of llama2.c?",
                       s->name, t->count, (double)value, (unsigned)size, GD_SENTENCEPIECE_LONGEST);
    *score = value;
    const char *text = (const char *)s->bytes + s->at;
    s->at += size;
    return gd_sentencepiece_add(t, text, size, t->count >= CONTROLS);
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
    if (status == GD_OK)
        status = gd_sentencepiece_merge(t, scores);
    gd_free(scores);
    return status;
}

static gd_tokenizer *read_llama2c(source *s)
{
    gd_tokenizer *t = gd_sentencepiece_new(true);
    if (!t)
        return NULL;
    t->begin = BEGIN;
    t->end = END;
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
