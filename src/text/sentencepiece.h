/* text/sentencepiece.h: byte pair encoding by scores, as SentencePiece does it: for llama2.c's files and for GGUF. */
#ifndef GD_TEXT_SENTENCEPIECE_H
#define GD_TEXT_SENTENCEPIECE_H

#include "text/tokenizer.h"

enum { GD_SENTENCEPIECE_LONGEST = 512 }; /* bytes of a token */

gd_tokenizer *gd_sentencepiece_new(bool leading_space);
/* Give the next number to a token of at most GD_SENTENCEPIECE_LONGEST bytes, in which a space is a space. Texts are made of it
 * where it `spells`: of "<0x41>" the byte, else its own text; control tokens do not. */
gd_status gd_sentencepiece_add(gd_tokenizer *tokenizer, const char *text, size_t size, bool spells);
/* All tokens are there: two neighbours merge where the text of both together is a token's, the one of the highest
 * of scores[count] first. */
gd_status gd_sentencepiece_merge(gd_tokenizer *tokenizer, const double *scores);

#endif
