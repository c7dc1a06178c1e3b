/* text/language_model.h: what a language model is, for the files that make, read and run it. */
#ifndef GD_TEXT_LANGUAGE_MODEL_H
#define GD_TEXT_LANGUAGE_MODEL_H

#include <gradus/language.h>

struct gd_language_model {
    gd_language_options options; /* defaults filled in */
    gd_module *module;
};

/* Keys and values of the tokens so far, for each layer. */
typedef struct gd_language_cache {
    int64_t length;     /* tokens in it */
    gd_tensor **k, **v; // [layers] of [1, kv_heads, length, head width]; retained; NULL: none yet
} gd_language_cache;

/* tokens [batch, time] -> [batch, time, width], normalised, as the output wants it. With a cache
 * the tokens follow on those in it, and are added to it; NULL: they are whole sequences. */
gd_tensor *gd_language_hidden(gd_language_model *model, gd_tensor *tokens,
                              gd_language_cache *cache);
/* [.., width] -> logits [.., vocabulary]. */
gd_tensor *gd_language_output(gd_language_model *model, gd_tensor *hidden);

/* A model without parameters; reading or gd_language_fill makes them. */
gd_language_model *gd_language_model_new(gd_language_options options);
/* Make the parameters that are not there yet. */
gd_status gd_language_fill(gd_language_model *model);

#endif
