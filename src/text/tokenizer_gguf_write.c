/* text/tokenizer_gguf_write.c: a tokeniser as values of a GGUF file. Of byte pair encoding the model is "gpt2", its
 * merges in their order; all others are "llama": SentencePiece's, and tokenisers of bytes and of characters, which are
 * SentencePiece's without merges. Start at gd_tokenizer_add_values(). */
#include "text/tokenizer_gguf.h"

#include "base/error.h"
#include "base/memory.h"
#include "text/bpe.h"
#include "text/characters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

enum { NORMAL = 1, CONTROL = 3, UNUSED = 5, BYTE = 6 };

/* ---- tokens as the file writes them ---- */

/* A byte as GPT-2's files have it: a character that can be seen. */
static void byte_characters(char (*out)[4], int sizes[256])
{
    int16_t byte_of[GD_BPE_CHARACTERS];
    gd_bpe_characters(byte_of);
    for (int i = 0; i < GD_BPE_CHARACTERS; i++)
        if (byte_of[i] >= 0)
            sizes[byte_of[i]] = gd_character_put((uint32_t)i, out[byte_of[i]]);
}

/* Written to `out`, of four bytes for each of the text's. */
static size_t visible(const char *text, size_t size, char *out)
{
    char characters[256][4];
    int sizes[256];
    byte_characters(characters, sizes);
    size_t length = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        memcpy(out + length, characters[byte], 4);
        length += (size_t)sizes[byte];
    }
    return length;
}

static size_t spaces_marked(const char *text, size_t size, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < size; i++) {
        bool space = text[i] == ' ';
        memcpy(out + length, space ? "\xe2\x96\x81" : text + i, space ? 3 : 1);
        length += space ? 3 : 1;
    }
    return length;
}

static bool is_named(const gd_tokenizer *t, size_t token)
{
    const gd_token_span *s = &t->spans[token];
    return gd_tokenizer_find_name(t, t->text + s->start, s->size) == (int32_t)token;
}

static bool is_of_bytes(const gd_tokenizer *t)
{
    return t->count == 256 && t->name_count == 0 && !t->characters;
}

/* The byte that a token of SentencePiece's spells, -1: it is none. Of a tokeniser of bytes the space is none: it is written
 * as U+2581, which readers put in place of a text's spaces before they look for tokens. */
static int spelled_byte(const gd_tokenizer *t, size_t token)
{
    const gd_token_span *s = &t->spans[token];
    if (s->size != 1)
        return -1;
    int byte = (unsigned char)t->text[s->start];
    bool bytes = is_of_bytes(t) && byte != ' ';
    bool stray = t->characters && t->characters[token] >= GD_STRAY_BYTE;
    bool spells = t->name_count > 0 && t->byte_token[byte] == (int32_t)token && !is_named(t, token);
    return bytes || stray || spells ? byte : -1;
}

static int type_of(const gd_tokenizer *t, size_t token)
{
    bool control = (int32_t)token == t->begin || (int32_t)token == t->end;
    if (t->characters)
        return spelled_byte(t, token) >= 0 ? BYTE : NORMAL;
    if (is_of_bytes(t) && spelled_byte(t, token) < 0)
        return NORMAL;
    if (!t->word && spelled_byte(t, token) >= 0)
        return BYTE;
    return control ? CONTROL : is_named(t, token) ? NORMAL : UNUSED;
}

static gd_status add_tokens(const gd_tokenizer *t, gd_gguf_values *v)
{
    size_t longest = 8;
    for (size_t i = 0; i < t->count; i++)
        longest = t->spans[i].size > longest ? t->spans[i].size : longest;
    char *scratch = gd_alloc(4 * longest + 1);
    if (!scratch)
        return GD_ERR_MEMORY;
    gd_gguf_add_list(v, KEY("tokens"), GD_GGUF_TEXT, t->count);
    for (size_t i = 0; i < t->count; i++) {
        const char *text = t->text + t->spans[i].start;
        size_t size = t->spans[i].size;
        int type = type_of(t, i);
        if (type == BYTE) {
            snprintf(scratch, 8, "<0x%02X>", (unsigned)spelled_byte(t, i));
            size = 6;
        } else if (t->word && type != NORMAL) {
            memcpy(scratch, text, size);
        } else {
            size = t->word ? visible(text, size, scratch) : spaces_marked(text, size, scratch);
        }
        gd_gguf_put_text(v, scratch, size);
    }
    gd_gguf_add_list(v, KEY("token_type"), GD_GGUF_I32, t->count);
    for (size_t i = 0; i < t->count; i++)
        gd_gguf_put_u32(v, (uint32_t)type_of(t, i));
    gd_free(scratch);
    return GD_OK;
}

/* ---- merges ---- */

static int compare_merges(const void *a, const void *b)
{
    double x = ((const gd_token_merge *)a)->order, y = ((const gd_token_merge *)b)->order;
    return (x > y) - (x < y);
}

/* "left right", the strongest first. */
static void put_merge(const gd_tokenizer *t, const gd_token_merge *m, char *scratch,
                      gd_gguf_values *v)
{
    const gd_token_span *left = &t->spans[m->pair >> 32], *right = &t->spans[m->pair & UINT32_MAX];
    size_t size = visible(t->text + left->start, left->size, scratch);
    scratch[size++] = ' ';
    size += visible(t->text + right->start, right->size, scratch + size);
    gd_gguf_put_text(v, scratch, size);
}

static gd_status add_merges(const gd_tokenizer *t, gd_gguf_values *v)
{
    size_t count = 0, longest = 0;
    gd_token_merge *list = gd_alloc((t->merge_slots + 1) * sizeof *list);
    for (size_t i = 0; i < t->count; i++)
        longest = t->spans[i].size > longest ? t->spans[i].size : longest;
    char *scratch = gd_alloc(8 * longest + 2);
    for (size_t i = 0; list && i < t->merge_slots; i++)
        if (t->merges[i].pair != GD_NO_PAIR)
            list[count++] = t->merges[i];
    if (list && scratch) {
        qsort(list, count, sizeof *list, compare_merges);
        gd_gguf_add_list(v, KEY("merges"), GD_GGUF_TEXT, count);
    }
    for (size_t i = 0; list && scratch && i < count; i++)
        put_merge(t, &list[i], scratch, v);
    gd_status status = list && scratch ? GD_OK : GD_ERR_MEMORY;
    gd_free(scratch);
    gd_free(list);
    return status;
}

/* A token's score is that of the merges that make it; others are not asked for theirs. */
static gd_status add_scores(const gd_tokenizer *t, gd_gguf_values *v)
{
    float *scores = gd_alloc_zero(t->count + 1, sizeof *scores);
    if (!scores)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < t->merge_slots; i++)
        if (t->merges[i].pair != GD_NO_PAIR)
            scores[t->merges[i].token] = (float)-t->merges[i].order;
    gd_gguf_add_list(v, KEY("scores"), GD_GGUF_REAL32, t->count);
    for (size_t i = 0; i < t->count; i++)
        gd_gguf_put_real(v, scores[i]);
    gd_free(scores);
    return GD_OK;
}

/* ---- all of it ---- */

static const char *cutting_of(const gd_tokenizer *t)
{
    return t->word == gd_bpe_word_llama3   ? "llama-bpe"
           : t->word == gd_bpe_word_qwen2  ? "qwen2"
           : t->word == gd_bpe_word_digits ? "smollm"
                                           : "gpt-2";
}

gd_status gd_tokenizer_add_values(const gd_tokenizer *t, gd_gguf_values *v)
{
    bool bpe = t->word != NULL;
    gd_gguf_add_text(v, KEY("model"), bpe ? "gpt2" : "llama");
    gd_gguf_add_text(v, KEY("pre"), bpe ? cutting_of(t) : "default");
    gd_status status = add_tokens(t, v);
    if (status == GD_OK)
        status = bpe ? add_merges(t, v) : add_scores(t, v);
    /* -1, none, as u32: a value that is left out is a token */
    gd_gguf_add_u32(v, KEY("bos_token_id"), (uint32_t)(t->begin >= 0 ? t->begin : t->end));
    gd_gguf_add_u32(v, KEY("eos_token_id"), (uint32_t)t->end);
    gd_gguf_add_bool(v, KEY("add_bos_token"), t->begin >= 0);
    if (!bpe)
        gd_gguf_add_bool(v, KEY("add_space_prefix"), t->leading_space);
    return status;
}
