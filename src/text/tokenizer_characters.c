/* text/tokenizer_characters.c: a token for a byte, or for a character. */
#include "text/characters.h"
#include "text/tokenizer.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>

/* ---- bytes ---- */

static gd_status encode_bytes(const gd_tokenizer *t, const char *text, size_t size, gd_tokens *out)
{
    (void)t;
    if (gd_tokens_reserve(out, size) != GD_OK)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < size; i++)
        out->ids[out->count++] = (unsigned char)text[i];
    return GD_OK;
}

gd_tokenizer *gd_tokenizer_bytes(void)
{
    gd_tokenizer *t = gd_tokenizer_new(encode_bytes);
    for (int i = 0; t && i < 256; i++) {
        char byte = (char)(unsigned char)i;
        if (gd_tokenizer_add(t, &byte, 1) != GD_OK) {
            gd_tokenizer_release(t);
            return NULL;
        }
    }
    return t;
}

/* ---- characters ---- */

static int compare_points(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static gd_status encode_characters(const gd_tokenizer *t, const char *text, size_t size,
                                   gd_tokens *out)
{
    for (size_t i = 0; i < size;) {
        gd_character c = gd_character_at(text + i, size - i);
        const uint32_t *found =
            bsearch(&c.point, t->characters, t->count, sizeof *t->characters, compare_points);
        if (!found && c.point < GD_STRAY_BYTE)
            return gd_fail(GD_ERR_INVALID,
                           "gd_tokenize: '%.*s' (U+%04X, byte %zu of the text) is not among the "
                           "%zu characters of this tokeniser",
                           c.bytes, text + i, (unsigned)c.point, i, t->count);
        if (!found)
            return gd_fail(GD_ERR_INVALID,
                           "gd_tokenize: byte %zu of the text, 0x%02x, is not UTF-8, and not among "
                           "the %zu characters of this tokeniser",
                           i, (unsigned)(c.point - GD_STRAY_BYTE), t->count);
        if (gd_tokens_add(out, (int32_t)(found - t->characters)) != GD_OK)
            return GD_ERR_MEMORY;
        i += (size_t)c.bytes;
    }
    return GD_OK;
}

/* Mark the characters of a text in a bit set, then number them in order. */
static gd_status collect(gd_tokenizer *t, const char *text, size_t size)
{
    enum { POINTS = GD_STRAY_BYTE + 256 };
    uint8_t *seen = gd_alloc_zero(POINTS / 8, 1);
    if (!seen)
        return GD_ERR_MEMORY;
    size_t count = 0;
    for (size_t i = 0; i < size;) {
        gd_character c = gd_character_at(text + i, size - i);
        uint8_t bit = (uint8_t)(1u << (c.point & 7));
        count += !(seen[c.point >> 3] & bit);
        seen[c.point >> 3] |= bit;
        i += (size_t)c.bytes;
    }
    t->characters = gd_alloc(count * sizeof *t->characters);
    gd_status status = t->characters ? GD_OK : GD_ERR_MEMORY;
    for (uint32_t point = 0; status == GD_OK && point < POINTS; point++) {
        if (!seen[point >> 3]) {
            point |= 7; /* eight at once */
            continue;
        }
        if (!(seen[point >> 3] >> (point & 7) & 1))
            continue;
        char bytes[4];
        int length = gd_character_put(point, bytes);
        t->characters[t->count] = point;
        status = gd_tokenizer_add(t, bytes, (size_t)length);
    }
    gd_free(seen);
    return status;
}

gd_tokenizer *gd_tokenizer_characters(const char *text, size_t size)
{
    if (!text || size == 0)
        return gd_fail_null(GD_ERR_INVALID, "gd_tokenizer_characters: there is no text");
    gd_tokenizer *t = gd_tokenizer_new(encode_characters);
    if (t && collect(t, text, size) != GD_OK) {
        gd_tokenizer_release(t);
        return NULL;
    }
    return t;
}
