/* gradus/text.h: text for language models: tokenisers, token files, batches, and choosing the next
 * token. Start at gd_tokenizer_read_bpe(), gd_token_loader_open() and gd_sample().
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
    size_t count, capacity;
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
GD_API gd_tokenizer *gd_tokenizer_read_bpe(const char *path);
/* The same from `size` bytes in memory, which are only read. */
GD_API gd_tokenizer *gd_tokenizer_read_bpe_memory(const void *bytes, size_t size);

/* The tokeniser file of llama2.c ("tok512.bin"): a SentencePiece BPE vocabulary with scores; token
 * 1 begins a text, token 2 ends it; what has no token is spelled in bytes. As there, a text is given
 * a leading space, which decoding takes away. Kudo, Richardson, "SentencePiece", 2018. Errors as
 * above. */
GD_API gd_tokenizer *gd_tokenizer_read_llama2c(const char *path);
GD_API gd_tokenizer *gd_tokenizer_read_llama2c_memory(const void *bytes, size_t size);

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
GD_API char *gd_detokenize(const gd_tokenizer *tokenizer, const int32_t *tokens, size_t count,
                           size_t *size);
GD_API void gd_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
