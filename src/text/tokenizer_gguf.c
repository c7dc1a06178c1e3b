/* text/tokenizer_gguf.c: the tokeniser in a GGUF file ("tokenizer.ggml.…"): of the model "llama" SentencePiece's, with
 * scores; of "gpt2" byte pair encoding with a list of merges. Start at gd_tokenizer_load_gguf(). */
#include "text/bpe.h"
#include "text/merge.h"
#include "text/sentencepiece.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/gguf.h"

#include <math.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* What a token is, in the list of types. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

typedef struct source {
    const gd_gguf *file;
    int64_t count;  /* tokens */
    char *scratch;  /* as long as the longest token or merge */
    double *scores; /* [count] */
    int16_t byte_of[GD_BPE_CHARACTERS];
} source;

static gd_status fail(const source *s, const char *what)
{
    return gd_fail(GD_ERR_FORMAT, "%s: its tokeniser %s", gd_gguf_path(s->file), what);
}

static int type_of(const source *s, int64_t token)
{
    double type = NORMAL;
    (void)gd_gguf_number(s->file, KEY("token_type"), token, &type);
    return (int)type;
}

/* The number of a token, -1: the file names none. */
static gd_status special(const source *s, const char *key, int64_t otherwise, int32_t *out)
{
    double number = (double)otherwise;
    (void)gd_gguf_number(s->file, key, 0, &number);
    number = number == (double)UINT32_MAX ? -1.0 : number;
    if (!(number >= -1.0 && number < (double)s->count && number == floor(number)))
        return fail(s, "names a token that it has not");
    *out = (int32_t)number;
    return GD_OK;
}

static bool is_set(const source *s, const char *key, bool otherwise)
{
    double number = otherwise ? 1.0 : 0.0;
    (void)gd_gguf_number(s->file, key, 0, &number);
    return number != 0.0;
}

/* Beginning and end; the begin token only where a text is to be given it. */
static gd_status read_ends(const source *s, gd_tokenizer *t, bool begins, int64_t begin,
                           int64_t end)
{
    gd_status status = special(s, KEY("bos_token_id"), begin, &t->begin);
    if (status == GD_OK)
        status = special(s, KEY("eos_token_id"), end, &t->end);
    if (!is_set(s, KEY("add_bos_token"), begins))
        t->begin = -1;
    return status;
}

/* ---- SentencePiece ---- */

/* U+2581 stands for a space. */
static size_t with_spaces(const char *text, size_t size, char *out)
{
    size_t count = 0;
    for (size_t i = 0; i < size; count++) {
        bool space = size - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0;
        out[count] = space ? ' ' : text[i];
        i += space ? 3 : 1;
    }
    return count;
}

static gd_status add_pieces(source *s, gd_tokenizer *t)
{
    for (int64_t i = 0; i < s->count; i++) {
        size_t size;
        const char *text = gd_gguf_text(s->file, KEY("tokens"), i, &size);
        int type = type_of(s, i);
        if (size > GD_SENTENCEPIECE_LONGEST)
            return fail(s, "has a token of more than 512 bytes");
        if (!gd_gguf_number(s->file, KEY("scores"), i, &s->scores[i]) || isnan(s->scores[i]))
            return fail(s, "lacks the score of a token");
        gd_status status =
            gd_sentencepiece_add(t, s->scratch, with_spaces(text, size, s->scratch),
                                 type == NORMAL || type == USER_DEFINED || type == BYTE);
        if (status != GD_OK)
            return status;
    }
    return gd_sentencepiece_merge(t, s->scores);
}

static gd_tokenizer *read_pieces(source *s)
{
    gd_tokenizer *t = gd_sentencepiece_new(is_set(s, KEY("add_space_prefix"), true));
    s->scores = t ? gd_alloc((size_t)s->count * sizeof *s->scores) : NULL;
    if (t && (!s->scores || add_pieces(s, t) != GD_OK || read_ends(s, t, true, 1, 2) != GD_OK)) {
        gd_tokenizer_release(t);
        return NULL;
    }
    return t;
}

/* ---- byte pair encoding ---- */

typedef struct cutting {
    const char *name; /* of tokenizer.ggml.pre */
    size_t (*word)(const char *text, size_t size);
    bool begins; /* with the begin token, where the file does not say */
} cutting;

static const cutting cuttings[] = {
    { "gpt-2", gd_bpe_word_gpt2, false },       { "gpt2", gd_bpe_word_gpt2, false },
    { "default", gd_bpe_word_gpt2, false },     { "llama-bpe", gd_bpe_word_llama3, true },
    { "llama3", gd_bpe_word_llama3, true },     { "llama-v3", gd_bpe_word_llama3, true },
    { "smaug-bpe", gd_bpe_word_llama3, false }, { "qwen2", gd_bpe_word_qwen2, false },
    { "smollm", gd_bpe_word_digits, false },    { "starcoder", gd_bpe_word_digits, false },
    { "refact", gd_bpe_word_digits, false },    { "command-r", gd_bpe_word_digits, false },
};

static const cutting *find_cutting(const source *s)
{
    const char *name = gd_gguf_text(s->file, KEY("pre"), 0, NULL);
    name = name ? name : "gpt-2";
    for (size_t i = 0; i < sizeof cuttings / sizeof *cuttings; i++)
        if (strcmp(cuttings[i].name, name) == 0)
            return &cuttings[i];
    return gd_fail_null(GD_ERR_UNSUPPORTED,
                        "%s: its tokeniser cuts text into words as \"%s\" does; gpt-2, llama-bpe "
                        "and qwen2 are known here",
                        gd_gguf_path(s->file), name);
}

/* A token of bytes, or, of a special one, its name as it is. */
static gd_status add_token(source *s, gd_tokenizer *t, int64_t index)
{
    size_t size;
    const char *text = gd_gguf_text(s->file, KEY("tokens"), index, &size);
    int type = type_of(s, index);
    int64_t bytes = type == NORMAL ? gd_bpe_bytes(text, size, s->byte_of, s->scratch) : -1;
    if (bytes < 0)
        return gd_tokenizer_add(t, text, size);
    int32_t token = (int32_t)t->count;
    gd_status status = gd_tokenizer_add(t, s->scratch, (size_t)bytes);
    if (status == GD_OK && bytes == 1 && t->byte_token[(unsigned char)s->scratch[0]] < 0)
        t->byte_token[(unsigned char)s->scratch[0]] = token;
    return status == GD_OK && bytes > 0 ? gd_tokenizer_add_name(t, token) : status;
}

/* "left right" */
static gd_status add_merge(source *s, gd_tokenizer *t, int64_t rank)
{
    size_t size;
    const char *text = gd_gguf_text(s->file, KEY("merges"), rank, &size);
    const char *gap = size > 0 ? memchr(text + 1, ' ', size - 1) : NULL;
    size_t left = gap ? (size_t)(gap - text) : 0;
    int64_t bytes = gap ? gd_bpe_bytes(text, left, s->byte_of, s->scratch) : -1;
    int64_t more =
        bytes < 0 ? -1 : gd_bpe_bytes(gap + 1, size - left - 1, s->byte_of, s->scratch + bytes);
    if (more < 0)
        return fail(s, "has a merge that is not \"left right\"");
    int32_t a = gd_tokenizer_find_name(t, s->scratch, (size_t)bytes);
    int32_t b = gd_tokenizer_find_name(t, s->scratch + bytes, (size_t)more);
    int32_t both = gd_tokenizer_find_name(t, s->scratch, (size_t)(bytes + more));
    if (a < 0 || b < 0 || both < 0)
        return fail(s, "has a merge of what are no tokens");
    return gd_merges_add(t, a, b, (double)rank, both);
}

static gd_status add_tokens(source *s, gd_tokenizer *t, const cutting *c)
{
    int64_t merges = gd_gguf_length(s->file, KEY("merges"));
    if (merges > 0 && !gd_gguf_text(s->file, KEY("merges"), 0, NULL))
        merges = -1;
    gd_bpe_characters(s->byte_of);
    memset(t->byte_token, -1, sizeof t->byte_token);
    gd_status status = merges < 0 ? fail(s, "lacks the list \"tokenizer.ggml.merges\"")
                                  : gd_merges_reserve(t, (size_t)merges);
    for (int64_t i = 0; status == GD_OK && i < s->count; i++)
        status = add_token(s, t, i);
    for (int64_t i = 0; status == GD_OK && i < merges; i++)
        status = add_merge(s, t, i);
    return status == GD_OK ? read_ends(s, t, c->begins, -1, -1) : status;
}

static gd_tokenizer *read_merges(source *s)
{
    const cutting *c = find_cutting(s);
    gd_tokenizer *t = c ? gd_bpe_new(c->word) : NULL;
    if (t && add_tokens(s, t, c) != GD_OK) {
        gd_tokenizer_release(t);
        return NULL;
    }
    return t;
}

/* ---- either ---- */

/* Bytes of the longest text of a list. */
static size_t longest(const gd_gguf *g, const char *key)
{
    size_t most = 0, size;
    for (int64_t i = 0; i < gd_gguf_length(g, key); i++)
        if (gd_gguf_text(g, key, i, &size) && size > most)
            most = size;
    return most;
}

static gd_tokenizer *read_tokenizer(const gd_gguf *g)
{
    const char *model = gd_gguf_text(g, KEY("model"), 0, NULL);
    source s = { .file = g, .count = gd_gguf_length(g, KEY("tokens")) };
    bool pieces = model && strcmp(model, "llama") == 0;
    if (!model || s.count < 1 || !gd_gguf_text(g, KEY("tokens"), 0, NULL))
        return gd_fail_null(GD_ERR_FORMAT, "%s: it has no tokeniser", gd_gguf_path(g));
    if (!pieces && strcmp(model, "gpt2") != 0)
        return gd_fail_null(GD_ERR_UNSUPPORTED,
                            "%s: a tokeniser of the model \"%s\"; gpt2 and llama are read",
                            gd_gguf_path(g), model);
    size_t token = longest(g, KEY("tokens")), merge = longest(g, KEY("merges"));
    s.scratch = gd_alloc((token > merge ? token : merge) + 1);
    gd_tokenizer *t = !s.scratch ? NULL : pieces ? read_pieces(&s) : read_merges(&s);
    gd_free(s.scores);
    gd_free(s.scratch);
    return t;
}

gd_tokenizer *gd_tokenizer_load_gguf(const char *path)
{
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_tokenizer_load_gguf: the path is NULL");
    gd_gguf *g = gd_gguf_open(path);
    gd_tokenizer *t = g ? read_tokenizer(g) : NULL;
    gd_gguf_close(g);
    return t;
}
