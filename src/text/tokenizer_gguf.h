/* text/tokenizer_gguf.h: a tokeniser as values of a GGUF file. */
#ifndef GD_TEXT_TOKENIZER_GGUF_H
#define GD_TEXT_TOKENIZER_GGUF_H

#include "io/gguf.h"
#include "text/tokenizer.h"

/* GD_ERR_MEMORY; GD_ERR_UNSUPPORTED: one that has no name there. */
gd_status gd_tokenizer_add_values(const gd_tokenizer *tokenizer, gd_gguf_values *values);

#endif
