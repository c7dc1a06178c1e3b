/* text/merge.h: joining neighbouring tokens, the core of byte pair encoding. */
#ifndef GD_TEXT_MERGE_H
#define GD_TEXT_MERGE_H

#include "text/tokenizer.h"

/* Make room in the tokeniser's table for `count` merges. */
gd_status gd_merges_reserve(gd_tokenizer *tokenizer, size_t count);
/* Note that left and right become `token`. A pair that is there already is left as it is.
 * GD_ERR_FORMAT: too many pairs hash alike. */
gd_status gd_merges_add(gd_tokenizer *tokenizer, int32_t left, int32_t right, double order,
                        int32_t token);

/* A token in a word, linked to its neighbours. */
typedef struct gd_merge_symbol {
    int32_t token;          /* -1: it has been merged into its left neighbour */
    int32_t previous, next; /* -1: none */
} gd_merge_symbol;

/* A merge that was possible when it was noted. */
typedef struct gd_merge_candidate {
    double order;
    int32_t at;          /* the left symbol */
    int32_t left, right; /* the tokens seen then */
    int32_t token;
} gd_merge_candidate;

/* Space to work in, kept from word to word. All zero is empty. */
typedef struct gd_merger {
    gd_merge_symbol *symbols;
    size_t count, symbol_capacity;
    gd_merge_candidate *heap; /* the lowest order first, then the leftmost */
    size_t candidates, heap_capacity;
} gd_merger;

void gd_merger_free(gd_merger *merger);
/* Begin a word of up to `most` symbols, then give it its tokens one by one. */
gd_status gd_merger_begin(gd_merger *merger, size_t most);
void gd_merger_push(gd_merger *merger, int32_t token);
/* Merge, always the lowest order first and the leftmost of equals, until nothing can be; append
 * what is left. O(n log n). */
gd_status gd_merger_finish(gd_merger *merger, const gd_tokenizer *tokenizer, gd_tokens *out);

#endif
