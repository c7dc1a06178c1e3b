/* text/language_model.h: what a language model is, for the files that make, read and run it. */
#ifndef GD_TEXT_LANGUAGE_MODEL_H
#define GD_TEXT_LANGUAGE_MODEL_H

#include <gradus/language.h>
#include <gradus/sequence.h>

struct gd_language_model {
    gd_context *context;
    gd_language_options options;  /* defaults filled in */
    gd_transformer_config config; /* the same, as layers want it */
    gd_module *module;
};

/* tokens [batch, time] -> logits [batch, time, vocabulary]. With a cache the tokens follow on those
 * in it, are added to it, and the logits are those of the last alone, [batch, 1, vocabulary]. */
gd_tensor *gd_language_logits(gd_language_model *model, gd_tensor *tokens, gd_kv_cache *cache);

/* A model without parameters; reading or gd_language_fill makes them. */
gd_language_model *gd_language_model_new(gd_context *context, gd_language_options options);
/* Make the parameters that are not there yet. */
gd_status gd_language_fill(gd_language_model *model);

#endif
