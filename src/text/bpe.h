/* text/bpe.h: byte pair encoding of bytes, as GPT-2 does it: for lists of merges and for GGUF. */
#ifndef GD_TEXT_BPE_H
#define GD_TEXT_BPE_H

#include "text/tokenizer.h"

/* One that cuts text into words by `word`, without tokens. byte_token, names and merges are the caller's to fill. */
gd_tokenizer *gd_bpe_new(size_t (*word)(const char *text, size_t size));

/* Bytes of the first word of a text of size > 0: see gradus/text.h. */
size_t gd_bpe_word_gpt2(const char *text, size_t size);
size_t gd_bpe_word_llama3(const char *text, size_t size);
size_t gd_bpe_word_qwen2(const char *text, size_t size);
size_t gd_bpe_word_digits(const char *text, size_t size);

/* In files a byte is written as a character that can be seen, all below this. byte_of[character], -1: of none. */
enum { GD_BPE_CHARACTERS = 512 };
void gd_bpe_characters(int16_t byte_of[GD_BPE_CHARACTERS]);
/* From such characters to bytes, never more than `size`. -1: not a character of a byte. */
int64_t gd_bpe_bytes(const char *text, size_t size, const int16_t byte_of[GD_BPE_CHARACTERS],
                     char *out);

#endif
