/* text/generator.h: a sequence as it grows, for the files that choose its tokens. */
#ifndef GD_TEXT_GENERATOR_H
#define GD_TEXT_GENERATOR_H

#include "text/language_model.h"

struct gd_generator {
    gd_language_model *model;
    gd_kv_cache *cache;
    int32_t *tokens; /* [length]: those whose keys and values the cache has */
    float *logits;   /* [vocabulary], or of as many tokens as were asked for */
    size_t capacity; /* of logits */
    int64_t drafted, accepted;
};

#endif
