/* text/tokenizer.c: what all tokenisers share: the table of token texts, and decoding. */
#include "text/tokenizer.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* ---- making ---- */

gd_tokenizer *gd_tokenizer_new(gd_status (*encode)(const gd_tokenizer *tokenizer, const char *text,
                                                   size_t size, gd_tokens *out))
{
    gd_tokenizer *t = gd_alloc_zero(1, sizeof *t);
    if (t) {
        t->encode = encode;
        t->begin = t->end = -1;
    }
    return t;
}

void gd_tokenizer_release(gd_tokenizer *t)
{
    if (!t)
        return;
    gd_free(t->text);
    gd_free(t->spans);
    gd_free(t->characters);
    gd_free(t->merges);
    gd_free(t->names);
    gd_free(t);
}

gd_status gd_tokenizer_add(gd_tokenizer *t, const char *text, size_t size)
{
    if (t->count >= INT32_MAX)
        return gd_fail(GD_ERR_UNSUPPORTED, "a tokeniser of more than %d tokens", INT32_MAX);
    if (!gd_grow((void **)&t->spans, &t->span_capacity, t->count + 1, sizeof *t->spans) ||
        !gd_grow((void **)&t->text, &t->text_capacity, t->text_size + size + 1, 1))
        return GD_ERR_MEMORY;
    if (size > 0)
        memcpy(t->text + t->text_size, text, size);
    t->spans[t->count++] = (gd_token_span){ t->text_size, size };
    t->text_size += size;
    return GD_OK;
}

/* ---- tokens by their text ---- */

/* FNV-1a. */
static size_t hash(const char *text, size_t size)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 32);
}

/* The slot of a text, or the free slot for it. NULL: neither is among the slots that may be probed.
 */
static int32_t *name_slot(const gd_tokenizer *t, const char *text, size_t size)
{
    size_t i = hash(text, size);
    for (int probes = 0; probes < GD_TOKENIZER_MOST_PROBES; probes++, i++) {
        int32_t *slot = &t->names[i & (t->name_slots - 1)];
        if (*slot < 0)
            return slot;
        const gd_token_span *s = &t->spans[*slot];
        if (s->size == size && memcmp(t->text + s->start, text, size) == 0)
            return slot;
    }
    return NULL;
}

int32_t gd_tokenizer_find_name(const gd_tokenizer *t, const char *text, size_t size)
{
    const int32_t *slot = t->name_slots ? name_slot(t, text, size) : NULL;
    return slot ? *slot : -1;
}

/* Put a token where its text is found, unless another of that text is there. */
static gd_status put_name(gd_tokenizer *t, int32_t token, size_t *count)
{
    const gd_token_span *s = &t->spans[token];
    int32_t *slot = name_slot(t, t->text + s->start, s->size);
    if (!slot)
        return gd_fail(GD_ERR_FORMAT, "a tokeniser with too many tokens that hash alike");
    if (*slot < 0) {
        *slot = token;
        ++*count;
    }
    return GD_OK;
}

static gd_status grow_names(gd_tokenizer *t)
{
    size_t old_slots = t->name_slots, slots = old_slots ? 2 * old_slots : 1024, count = 0;
    int32_t *old = t->names, *grown = gd_alloc(slots * sizeof *grown);
    if (!grown)
        return GD_ERR_MEMORY;
    memset(grown, -1, slots * sizeof *grown);
    t->names = grown;
    t->name_slots = slots;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < old_slots; i++)
        if (old[i] >= 0)
            status = put_name(t, old[i], &count);
    gd_free(old);
    return status;
}

gd_status gd_tokenizer_add_name(gd_tokenizer *t, int32_t token)
{
    gd_status status = 2 * (t->name_count + 1) > t->name_slots ? grow_names(t) : GD_OK;
    return status == GD_OK ? put_name(t, token, &t->name_count) : status;
}

/* ---- asking ---- */

int64_t gd_tokenizer_count(const gd_tokenizer *t)
{
    return t ? (int64_t)t->count : 0;
}

int32_t gd_tokenizer_begin(const gd_tokenizer *t)
{
    return t ? t->begin : -1;
}

int32_t gd_tokenizer_end(const gd_tokenizer *t)
{
    return t ? t->end : -1;
}

/* ---- text to tokens ---- */

void gd_tokens_free(gd_tokens *tokens)
{
    if (!tokens)
        return;
    gd_free(tokens->ids);
    *tokens = (gd_tokens){ 0 };
}

gd_status gd_tokens_reserve(gd_tokens *tokens, size_t more)
{
    size_t capacity = (size_t)tokens->capacity;
    if (!gd_grow((void **)&tokens->ids, &capacity, (size_t)tokens->count + more,
                 sizeof *tokens->ids))
        return GD_ERR_MEMORY;
    tokens->capacity = (int64_t)capacity;
    return GD_OK;
}

gd_status gd_tokens_add(gd_tokens *tokens, int32_t token)
{
    if (gd_tokens_reserve(tokens, 1) != GD_OK)
        return GD_ERR_MEMORY;
    tokens->ids[tokens->count++] = token;
    return GD_OK;
}

gd_status gd_tokenize(const gd_tokenizer *t, const char *text, size_t size, gd_tokens *out)
{
    if (!t || !out || (!text && size > 0))
        return gd_fail(GD_ERR_INVALID, "gd_tokenize: the %s is NULL",
                       !t     ? "tokeniser"
                       : !out ? "list"
                              : "text");
    int64_t before = out->count;
    gd_status status = size > 0 ? t->encode(t, text, size, out) : GD_OK;
    if (status != GD_OK)
        out->count = before;
    return status;
}

/* ---- and back ---- */

const char *gd_token_text(const gd_tokenizer *t, int32_t previous, int32_t token, size_t *size)
{
    size_t unused;
    size = size ? size : &unused;
    *size = 0;
    if (!t)
        return NULL;
    if (token < 0 || (size_t)token >= t->count)
        return gd_fail_null(GD_ERR_INVALID, "gd_token_text: %d is no token; there are %zu",
                            (int)token, t->count);
    gd_token_span s = t->spans[token];
    if (token == t->begin && token != t->end)
        s.size = 0;
    else if (t->leading_space && (previous < 0 || previous == t->begin) && s.size > 0 &&
             t->text[s.start] == ' ')
        s = (gd_token_span){ s.start + 1, s.size - 1 };
    *size = s.size;
    return t->text + s.start;
}

char *gd_detokenize(const gd_tokenizer *t, int64_t count, const int32_t *tokens, size_t *size)
{
    if (size)
        *size = 0;
    if (!t)
        return NULL;
    if (count < 0 || (!tokens && count > 0))
        return gd_fail_null(GD_ERR_INVALID, "gd_detokenize: %lld tokens%s", (long long)count,
                            count < 0 ? "" : " at NULL");
    size_t total = 0, piece;
    for (int64_t i = 0; i < count; i++) {
        if (!gd_token_text(t, i > 0 ? tokens[i - 1] : -1, tokens[i], &piece))
            return NULL;
        total += piece;
    }
    char *text = gd_alloc(total + 1);
    if (!text)
        return NULL;
    size_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *bytes = gd_token_text(t, i > 0 ? tokens[i - 1] : -1, tokens[i], &piece);
        if (piece > 0)
            memcpy(text + at, bytes, piece);
        at += piece;
    }
    text[total] = '\0';
    if (size)
        *size = total;
    return text;
}

void gd_text_free(char *text)
{
    gd_free(text);
}
