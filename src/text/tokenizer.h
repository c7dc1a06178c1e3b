/* text/tokenizer.h: what a kind of tokeniser gives to the functions they share. */
#ifndef GD_TEXT_TOKENIZER_H
#define GD_TEXT_TOKENIZER_H

#include <gradus/text.h>

/* Bytes of a token in gd_tokenizer's text. */
typedef struct gd_token_span {
    size_t start, size;
} gd_token_span;

/* What two neighbouring tokens become, and how urgent that is: lower goes first. */
typedef struct gd_token_merge {
    uint64_t pair; /* left << 32 | right; GD_NO_PAIR: a free slot */
    double order;
    int32_t token;
} gd_token_merge;

#define GD_NO_PAIR UINT64_MAX

/* The most slots that are looked at for one entry of a hash table. At a load of a half no honest
 * vocabulary comes near it; of one made to collide it bounds the time. */
#define GD_TOKENIZER_MOST_PROBES 1024

#define GD_TOKENIZER_MOST_BYTES ((size_t)1 << 30) /* of a tokeniser's file */

struct gd_tokenizer {
    /* Append the tokens of a text. May leave part of them behind on an error. */
    gd_status (*encode)(const gd_tokenizer *tokenizer, const char *text, size_t size,
                        gd_tokens *out);
    char *text; /* of all tokens, one after another */
    size_t text_size, text_capacity;
    gd_token_span *spans; /* [count] */
    size_t count, span_capacity;
    int32_t begin, end;      /* -1: none */
    bool leading_space;      /* a text begins with a space that is not its own */
    uint32_t *characters;    /* [count], ascending: of a character tokeniser */
    int32_t byte_token[256]; /* of BPE: the token of each byte, -1: none */
    size_t (*word)(const char *text, size_t size); /* of BPE: bytes of the first word of a text */
    gd_token_merge *merges;                        /* hash table, open addressing, linear probing */
    size_t merge_slots;                            /* a power of two */
    int32_t *names;                                /* likewise: tokens by their text; -1: free */
    size_t name_slots;
    size_t name_count;
};

/* An empty one, ended by gd_tokenizer_release. */
gd_tokenizer *gd_tokenizer_new(gd_status (*encode)(const gd_tokenizer *tokenizer, const char *text,
                                                   size_t size, gd_tokens *out));
/* Give the next number to a token with this text. */
gd_status gd_tokenizer_add(gd_tokenizer *tokenizer, const char *text, size_t size);
gd_status gd_tokens_add(gd_tokens *tokens, int32_t token);
/* Room for `more` tokens behind those there are. */
gd_status gd_tokens_reserve(gd_tokens *tokens, size_t more);

/* The token with a text, -1: none. Those that gd_tokenizer_add_name has been called for. */
int32_t gd_tokenizer_find_name(const gd_tokenizer *tokenizer, const char *text, size_t size);
/* Let token be found by its text; of two with the same text, the first is. GD_ERR_MEMORY;
 * GD_ERR_FORMAT: too many texts hash alike. */
gd_status gd_tokenizer_add_name(gd_tokenizer *tokenizer, int32_t token);

#endif
