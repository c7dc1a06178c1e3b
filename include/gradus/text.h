/* gradus/text.h: text for language models: tokenisers, token files, batches, and choosing the next
 * token. Start at gd_tokenizer_load_bpe(), gd_token_dataset() and gd_sample().
 */
#ifndef GRADUS_TEXT_H
#define GRADUS_TEXT_H

#include <gradus/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokenisers: text to token numbers, and back ---- */

/* Immutable, and of no context: threads may share one. The caller releases it. Text is bytes with a
 * size; UTF-8 where a tokeniser looks at characters, but any bytes are accepted, and come back. */
typedef struct gd_tokenizer gd_tokenizer;

/* Token numbers, 0 … gd_tokenizer_count - 1. All zero is an empty list; free it with
 * gd_tokens_free. */
typedef struct gd_tokens {
    int32_t *ids;
    int64_t count, capacity;
} gd_tokens;

GD_API void gd_tokens_free(gd_tokens *tokens);

/* 256 tokens, a byte each. */
GD_API gd_tokenizer *gd_tokenizer_bytes(void);

/* The distinct characters of a text, in the order of their code points; a byte that is not UTF-8 is
 * a character of its own. Such a tokeniser refuses text with other characters (GD_ERR_INVALID).
 * GD_ERR_INVALID: an empty text. */
GD_API gd_tokenizer *gd_tokenizer_characters(const char *text, size_t size);

/* GPT-2's byte pair encoding from its list of merges ("vocab.bpe", in other places "merges.txt"):
 * after an optional line "#version…", a line "left right" for each merge, the first being the
 * strongest. Tokens: 256 bytes, one for each merge, "<|endoftext|>". Sennrich, Haddow, Birch,
 * "Neural machine translation of rare words with subword units", 2016; Radford et al., "Language
 * models are unsupervised multitask learners", 2019. Text is first cut into words by
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * "<|endoftext|>" in a text is text; its token is gd_tokenizer_end. Time is O(n log n).
 * GD_ERR_IO; GD_ERR_FORMAT names the line; GD_ERR_MEMORY. */
GD_API gd_tokenizer *gd_tokenizer_load_bpe(const char *path);
/* The same from `size` bytes in memory, which are only read. */
GD_API gd_tokenizer *gd_tokenizer_bpe(const void *bytes, size_t size);

/* The tokeniser file of llama2.c ("tok512.bin"): a SentencePiece BPE vocabulary with scores; token
 * 1 begins a text, token 2 ends it; what has no token is spelled in bytes. As there, a text is
 * given a leading space, which decoding takes away. Kudo, Richardson, "SentencePiece", 2018. Errors
 * as above. */
GD_API gd_tokenizer *gd_tokenizer_load_llama2c(const char *path);
GD_API gd_tokenizer *gd_tokenizer_llama2c(const void *bytes, size_t size);

/* The tokeniser in a GGUF file (gradus/gguf.h): of the model "llama" SentencePiece's, of "gpt2" byte pair encoding. Its
 * words are those of GPT-2, or, where the file says so, of Llama 3:
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
 *     \s+(?!\S)|\s+
 *
 * or of Qwen 2, which has \p{N} there for \p{N}{1,3}, or GPT-2's of what stands between digits, each digit by itself
 * (SmolLM, StarCoder). Control tokens in a text are text. gd_tokenizer_begin is the token
 * that the file wants before a text, if any. GD_ERR_IO; GD_ERR_FORMAT: there is none; GD_ERR_UNSUPPORTED: of another model, or
 * with words of another kind; GD_ERR_MEMORY. */
GD_API gd_tokenizer *gd_tokenizer_load_gguf(const char *path);

GD_API void gd_tokenizer_release(gd_tokenizer *tokenizer);

/* How many tokens there are. */
GD_API int64_t gd_tokenizer_count(const gd_tokenizer *tokenizer);
/* The token that begins a text, and the one that ends it; -1: there is none. Tokenising adds
 * neither. */
GD_API int32_t gd_tokenizer_begin(const gd_tokenizer *tokenizer);
GD_API int32_t gd_tokenizer_end(const gd_tokenizer *tokenizer);

/* Append the tokens of a text to `out`, which is unchanged on an error. GD_ERR_INVALID: NULL, a
 * character that the tokeniser does not have; GD_ERR_MEMORY. */
GD_API gd_status gd_tokenize(const gd_tokenizer *tokenizer, const char *text, size_t size,
                             gd_tokens *out);

/* The bytes that `token` adds to a text after the token `previous` (-1: at its start), as they may
 * be printed at once; they may end amid a character. *size of them, no 0 byte at the end; owned by
 * the tokeniser. The begin token gives none. NULL: GD_ERR_INVALID, no such token. */
GD_API const char *gd_token_text(const gd_tokenizer *tokenizer, int32_t previous, int32_t token,
                                 size_t *size);

/* The text of tokens, with a 0 byte after its *size bytes; gd_text_free it. NULL: GD_ERR_INVALID
 * for a number that is no token, GD_ERR_MEMORY. size may be NULL. */
GD_API char *gd_detokenize(const gd_tokenizer *tokenizer, int64_t count, const int32_t *tokens,
                           size_t *size);
GD_API void gd_text_free(char *text);

/* ---- token files: what a model is trained on, as numbers ---- */

/* A file of tokens as llm.c writes them: 256 numbers i32, of which the first three are 20240520, 1
 * and the count, then the tokens as u16; or 20240801, 7 and tokens as u32, where a vocabulary has
 * more than 65,536. Little-endian. */

/* Write tokens to such a file, atomically. `vocabulary`, the tokeniser's count, decides between the
 * two forms. GD_ERR_INVALID: a token outside of it; GD_ERR_UNSUPPORTED: more than 2^31 - 1 tokens;
 * GD_ERR_IO, GD_ERR_MEMORY. */
GD_API gd_status gd_token_file_write(const char *path, int64_t count, const int32_t *tokens,
                                     int64_t vocabulary);

/* Tokens in sequence, in a file or in memory; immutable. */
typedef struct gd_token_data gd_token_data;

/* Open a token file. Tokens are read from it when they are asked for; a file that is truncated in
 * the meantime makes that an error (GD_ERR_IO). Owned by the context. GD_ERR_IO, GD_ERR_FORMAT,
 * GD_ERR_MEMORY. */
GD_API gd_token_data *gd_token_data_open(gd_context *context, const char *path);
/* The same over a copy of tokens in memory. GD_ERR_INVALID: none, or a negative one. */
GD_API gd_token_data *gd_token_data_create(gd_context *context, int64_t count,
                                           const int32_t *tokens);
/* End it before its context closes; data sets of it must be released first. NULL is fine. */
GD_API void gd_token_data_close(gd_token_data *data);
GD_API int64_t gd_token_data_count(const gd_token_data *data);
/* Token number i; -1: there is none, or (with the error recorded) it cannot be read. */
GD_API int32_t gd_token_data_get(const gd_token_data *data, int64_t i);

typedef struct gd_token_dataset_options {
    size_t size GD_DEFAULT(sizeof(gd_token_dataset_options));
    int64_t length GD_DEFAULT(256); /* tokens of a sequence */
    int64_t stride GD_DEFAULT(-1);  /* from where one begins to where the next does; -1: length */
    int64_t first;                  /* the part of the data to use, for splits: from here on … */
    int64_t count GD_DEFAULT(GD_END); /* … so many tokens; GD_END: to its end */
} gd_token_dataset_options;
#define GD_TOKEN_DATASET_DEFAULTS \
    .size = sizeof(gd_token_dataset_options), .length = 256, .stride = -1, .count = GD_END

/* gd_token_dataset(context, data, .length = 256): a data set for language models. Its samples are
 * sequences of tokens, fields "x" and "y", both i64 [length], y being the token behind each of x.
 * Sequences from anywhere are those of .stride = 1, drawn by a loader with .with_replacement. Owned
 * by the context; to be released, with its loaders, before `data` is closed. GD_ERR_INVALID;
 * GD_ERR_SHAPE: there are fewer than length + 1 tokens. */
#define gd_token_dataset(...)                                                             \
    GD_WITH_2(gd_token_dataset_with, gd_token_dataset_options, GD_TOKEN_DATASET_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_dataset *gd_token_dataset_with(gd_context *context, const gd_token_data *data,
                                         const gd_token_dataset_options *options);

/* ---- choosing the next token ---- */

typedef struct gd_sampler gd_sampler;

typedef struct gd_sampler_options {
    size_t size GD_DEFAULT(sizeof(gd_sampler_options));
    /* logits are divided by it; 0: the most likely token, always */
    double temperature GD_DEFAULT(1);
    int64_t top_k GD_DEFAULT(INT64_MAX); /* only among the k most likely */
    /* only among the likeliest whose probabilities reach p together ("nucleus": Holtzman et al.
     * 2019), one at least; 1: all */
    double top_p GD_DEFAULT(1);
    /* logits of tokens already there are divided by it, or multiplied where negative (Keskar et
     * al., "CTRL", 2019); more than 0; 1: none */
    double repetition_penalty GD_DEFAULT(1);
    uint64_t seed;
} gd_sampler_options;
#define GD_SAMPLER_DEFAULTS                                                               \
    .size = sizeof(gd_sampler_options), .temperature = 1, .top_k = INT64_MAX, .top_p = 1, \
    .repetition_penalty = 1, .seed = 0

/* gd_sampler_create(.temperature = 0.8, .top_p = 0.95, .seed = 1), gd_sampler_create(.temperature =
 * 0). The caller releases it. The order: penalty, temperature, top_k, top_p. GD_ERR_INVALID: a
 * negative number, a top_k or a penalty of 0, or top_p above 1; GD_ERR_MEMORY. */
#define gd_sampler_create(...) \
    GD_WITH_0(gd_sampler_create_with, gd_sampler_options, GD_SAMPLER_DEFAULTS, __VA_ARGS__)
GD_API gd_sampler *gd_sampler_create_with(const gd_sampler_options *options);
GD_API void gd_sampler_release(gd_sampler *sampler);

/* Choose one of `count` tokens by their logits. The n-th draw depends on the seed, n, the logits
 * and the `past` tokens that the penalty is for (NULL: none). Of equal logits the lower token goes
 * first. -1: GD_ERR_INVALID (no finite logit: a NaN, or all -inf), GD_ERR_MEMORY. */
GD_API int32_t gd_sample(gd_sampler *sampler, int64_t count, const float *logits,
                         int64_t past_count, const int32_t *past);

#ifdef __cplusplus
}
#endif
#endif
