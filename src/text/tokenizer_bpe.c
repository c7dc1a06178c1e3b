/* text/tokenizer_bpe.c: GPT-2's byte pair encoding. Start at read_merges() for the file, at
 * encode() for text. */
#include "text/bpe.h"

#include "text/characters.h"
#include "text/merge.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"

#include <string.h>

/* ---- cutting text into words ---- */

/* Bytes of the 's 't 're 've 'm 'll 'd at the head of a text; 0: none. */
static size_t contraction(const char *text, size_t size)
{
    static const char alone[] = { 's', 't', 'm', 'd' };
    if (size < 2 || text[0] != '\'')
        return 0;
    if (memchr(alone, text[1], sizeof alone))
        return 2;
    bool two = size > 2 && (memcmp(text + 1, "re", 2) == 0 || memcmp(text + 1, "ve", 2) == 0 ||
                            memcmp(text + 1, "ll", 2) == 0);
    return two ? 3 : 0;
}

static gd_character_class class_at(const char *text, size_t size, size_t *bytes)
{
    gd_character c = gd_character_at(text, size);
    *bytes = (size_t)c.bytes;
    return gd_character_class_of(c.point);
}

/* Bytes of the characters of one class at the head of a text; *last: of the last of them. */
static size_t stretch(gd_character_class of, const char *text, size_t size, size_t *last)
{
    size_t at = 0, bytes;
    for (*last = 0; at < size && class_at(text + at, size - at, &bytes) == of; at += bytes)
        *last = bytes;
    return at;
}

/* Bytes of the first word of a text: GPT-2's pattern in gradus/text.h, as a regular expression matches
 * it. */
size_t gd_bpe_word_gpt2(const char *text, size_t size)
{
    size_t length = contraction(text, size), bytes, last;
    if (length > 0)
        return length;
    size_t space = text[0] == ' ' && size > 1;
    gd_character_class class = class_at(text + space, size - space, &bytes);
    if (class != GD_CLASS_SPACE)
        return space + stretch(class, text + space, size - space, &last);
    /* White space, but for its last character where something follows that may take it. */
    length = stretch(GD_CLASS_SPACE, text, size, &last);
    return length < size && length > last ? length - last : length;
}

/* Bytes up to behind the last line end among the white space at the head of a text; 0: there is none. */
static size_t line_ends(const char *text, size_t size)
{
    size_t last, length = stretch(GD_CLASS_SPACE, text, size, &last);
    while (length > 0 && text[length - 1] != '\r' && text[length - 1] != '\n')
        length--;
    return length;
}

/* Bytes of the digits at the head of a text, `most` of them at most. */
static size_t digits(const char *text, size_t size, int most)
{
    size_t at = 0, bytes;
    for (int i = 0;
         i < most && at < size && class_at(text + at, size - at, &bytes) == GD_CLASS_NUMBER; i++)
        at += bytes;
    return at;
}

/* Llama 3's pattern in gradus/text.h, with up to `most` digits in a word. */
static size_t word_of_digits(const char *text, size_t size, int most)
{
    char lower[3] = { 0 };
    for (size_t i = 0; i < 3 && i < size; i++)
        lower[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]);
    size_t length = contraction(lower, size < 3 ? size : 3), bytes, last, skip;
    if (length > 0)
        return length;
    gd_character_class class = class_at(text, size, &bytes);
    if (class == GD_CLASS_NUMBER)
        return digits(text, size, most);
    bool joins = class != GD_CLASS_LETTER && text[0] != '\r' && text[0] != '\n';
    skip = joins ? bytes : 0;
    length = skip < size ? stretch(GD_CLASS_LETTER, text + skip, size - skip, &last) : 0;
    if (length > 0)
        return skip + length;
    skip = text[0] == ' ' && size > 1;
    length = stretch(GD_CLASS_OTHER, text + skip, size - skip, &last);
    if (length > 0) {
        length += skip;
        while (length < size && (text[length] == '\r' || text[length] == '\n'))
            length++;
        return length;
    }
    length = line_ends(text, size);
    if (length > 0)
        return length;
    length = stretch(GD_CLASS_SPACE, text, size, &last);
    return length < size && length > last ? length - last : length;
}

size_t gd_bpe_word_llama3(const char *text, size_t size)
{
    return word_of_digits(text, size, 3);
}

size_t gd_bpe_word_qwen2(const char *text, size_t size)
{
    return word_of_digits(text, size, 1);
}

/* GPT-2's words of what stands between digits, and each digit. */
size_t gd_bpe_word_digits(const char *text, size_t size)
{
    size_t bytes, last, space = stretch(GD_CLASS_SPACE, text, size, &last);
    if (digits(text, size, 1) > 0)
        return digits(text, size, 1);
    if (space > 0 && space < size &&
        class_at(text + space, size - space, &bytes) == GD_CLASS_NUMBER)
        return space;
    return gd_bpe_word_gpt2(text, size);
}

static gd_status encode(const gd_tokenizer *t, const char *text, size_t size, gd_tokens *out)
{
    gd_merger merger = { 0 };
    gd_status status = GD_OK;
    for (size_t at = 0, length; status == GD_OK && at < size; at += length) {
        length = t->word(text + at, size - at);
        status = gd_merger_begin(&merger, length);
        for (size_t i = 0; status == GD_OK && i < length; i++) {
            int32_t token = t->byte_token[(unsigned char)text[at + i]];
            if (token < 0)
                status =
                    gd_fail(GD_ERR_INVALID, "gd_tokenize: the vocabulary lacks the byte 0x%02X",
                            (unsigned char)text[at + i]);
            else
                gd_merger_push(&merger, token);
        }
        if (status == GD_OK)
            status = gd_merger_finish(&merger, t, out);
    }
    gd_merger_free(&merger);
    return status;
}

/* ---- the file of merges ---- */

/* In the file a byte is written as a character that can be seen: itself where it can, else one of
 * U+0100 and on, in order. Tokens are numbered likewise, first the bytes that can be seen. */
static bool can_be_seen(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

void gd_bpe_characters(int16_t byte_of[GD_BPE_CHARACTERS])
{
    for (int i = 0; i < GD_BPE_CHARACTERS; i++)
        byte_of[i] = -1;
    for (int byte = 0, hidden = 0; byte < 256; byte++)
        byte_of[can_be_seen(byte) ? byte : 256 + hidden++] = (int16_t)byte;
}

/* The tokens of single bytes, and byte_of[character]. */
static gd_status add_bytes(gd_tokenizer *t, int16_t byte_of[GD_BPE_CHARACTERS])
{
    gd_bpe_characters(byte_of);
    for (int seen = 1; seen >= 0; seen--)
        for (int byte = 0; byte < 256; byte++) {
            if (can_be_seen(byte) != (seen == 1))
                continue;
            t->byte_token[byte] = (int32_t)t->count;
            char text = (char)(unsigned char)byte;
            if (gd_tokenizer_add(t, &text, 1) != GD_OK ||
                gd_tokenizer_add_name(t, t->byte_token[byte]) != GD_OK)
                return GD_ERR_MEMORY;
        }
    return GD_OK;
}

int64_t gd_bpe_bytes(const char *text, size_t size, const int16_t byte_of[GD_BPE_CHARACTERS],
                     char *out)
{
    int64_t count = 0;
    for (size_t i = 0; i < size;) {
        gd_character c = gd_character_at(text + i, size - i);
        if (c.point >= GD_BPE_CHARACTERS || byte_of[c.point] < 0)
            return -1;
        out[count++] = (char)(unsigned char)byte_of[c.point];
        i += (size_t)c.bytes;
    }
    return count;
}

typedef struct merge_file {
    const char *name;
    const char *text;
    size_t size;
    char *scratch; /* [size] */
    int16_t byte_of[GD_BPE_CHARACTERS];
} merge_file;

/* The line "left right" of `size` bytes, the merge of that rank. */
static gd_status add_line(gd_tokenizer *t, merge_file *f, const char *line, size_t size,
                          size_t number, double rank)
{
    const char *gap = memchr(line, ' ', size);
    size_t left_size = gap ? (size_t)(gap - line) : 0;
    if (left_size == 0 || left_size + 1 == size)
        return gd_fail(GD_ERR_FORMAT, "%s: line %zu is not \"left right\"", f->name, number);
    int64_t left_bytes = gd_bpe_bytes(line, left_size, f->byte_of, f->scratch);
    int64_t right_bytes = left_bytes < 0 ? -1
                                         : gd_bpe_bytes(gap + 1, size - left_size - 1, f->byte_of,
                                                        f->scratch + left_bytes);
    if (right_bytes < 0)
        return gd_fail(GD_ERR_FORMAT, "%s: line %zu has a character that stands for no byte",
                       f->name, number);
    int32_t left = gd_tokenizer_find_name(t, f->scratch, (size_t)left_bytes);
    int32_t right = gd_tokenizer_find_name(t, f->scratch + left_bytes, (size_t)right_bytes);
    if (left < 0 || right < 0)
        return gd_fail(GD_ERR_FORMAT, "%s: line %zu merges \"%.*s\", which no line above makes",
                       f->name, number, (int)(left < 0 ? left_size : size - left_size - 1),
                       left < 0 ? line : gap + 1);
    size_t both = (size_t)(left_bytes + right_bytes);
    int32_t token = gd_tokenizer_find_name(t, f->scratch, both);
    if (token < 0) {
        token = (int32_t)t->count;
        gd_status status = gd_tokenizer_add(t, f->scratch, both);
        if (status == GD_OK)
            status = gd_tokenizer_add_name(t, token);
        if (status != GD_OK)
            return status;
    }
    return gd_merges_add(t, left, right, rank, token);
}

static size_t count_lines(const merge_file *f)
{
    size_t count = 1;
    for (size_t i = 0; i < f->size; i++)
        count += f->text[i] == '\n';
    return count;
}

static gd_status read_merges(gd_tokenizer *t, merge_file *f)
{
    static const char version[] = "#version", end[] = "<|endoftext|>";
    f->scratch = gd_alloc(f->size + 1);
    if (!f->scratch || add_bytes(t, f->byte_of) != GD_OK ||
        gd_merges_reserve(t, count_lines(f)) != GD_OK)
        return GD_ERR_MEMORY;
    size_t number = 0, rank = 0, used = 0;
    for (const char *line = f->text, *stop = f->text + f->size; line < stop; line += used) {
        const char *newline = memchr(line, '\n', (size_t)(stop - line));
        size_t size = (size_t)((newline ? newline : stop) - line);
        used = size + 1;
        size -= size > 0 && line[size - 1] == '\r';
        number++;
        bool is_version =
            number == 1 && size >= strlen(version) && memcmp(line, version, strlen(version)) == 0;
        if (size == 0 || is_version)
            continue;
        gd_status status = add_line(t, f, line, size, number, (double)rank++);
        if (status != GD_OK)
            return status;
        if (!newline)
            break;
    }
    if (rank == 0)
        return gd_fail(GD_ERR_FORMAT, "%s: there is no merge in it", f->name);
    t->end = (int32_t)t->count;
    return gd_tokenizer_add(t, end, strlen(end));
}

gd_tokenizer *gd_bpe_new(size_t (*word)(const char *text, size_t size))
{
    gd_tokenizer *t = gd_tokenizer_new(encode);
    if (t)
        t->word = word;
    return t;
}

static gd_tokenizer *read_bpe(merge_file *f)
{
    gd_tokenizer *t = gd_bpe_new(gd_bpe_word_gpt2);
    if (t && read_merges(t, f) != GD_OK) {
        gd_tokenizer_release(t);
        t = NULL;
    }
    gd_free(f->scratch);
    return t;
}

gd_tokenizer *gd_tokenizer_bpe(const void *bytes, size_t size)
{
    if (!bytes)
        return gd_fail_null(GD_ERR_INVALID, "gd_tokenizer_bpe: the bytes are NULL");
    return read_bpe(&(merge_file){ .name = "memory", .text = bytes, .size = size });
}

gd_tokenizer *gd_tokenizer_load_bpe(const char *path)
{
    unsigned char *bytes;
    size_t size;
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_tokenizer_load_bpe: the path is NULL");
    if (gd_file_read_all(path, GD_TOKENIZER_MOST_BYTES, &bytes, &size) != GD_OK)
        return NULL;
    gd_tokenizer *t =
        read_bpe(&(merge_file){ .name = path, .text = (const char *)bytes, .size = size });
    gd_free(bytes);
    return t;
}
