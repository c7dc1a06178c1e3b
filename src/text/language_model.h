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
    bool is_quantized; /* matrices are in blocks of 8 or 4 bits */
};

/* GD_ERR_UNSUPPORTED: what a model with matrices in blocks is not made for. */
gd_status gd_language_refuse_quantized(const char *who);

/* tokens [batch, time] -> logits [batch, time, vocabulary], or of the last alone, [batch, 1, vocabulary]. With a cache
 * the tokens follow on those in it, and are added to it. */
gd_tensor *gd_language_logits(gd_language_model *model, gd_tensor *tokens, gd_kv_cache *cache,
                              bool last_only);

/* A model without parameters; reading or gd_language_fill makes them. */
gd_language_model *gd_language_model_new(gd_context *context, gd_language_options options);
/* Make the parameters that are not there yet. */
gd_status gd_language_fill(gd_language_model *model);

/* Call `each` with the path and shape of every parameter that a model of these sizes has, in order,
 * until it fails. */
typedef gd_status (*gd_language_each_fn)(void *user, const char *path, gd_shape shape);
gd_status gd_language_each(const gd_language_options *options, gd_language_each_fn each,
                           void *user);
/* GD_ERR_FORMAT: the tensor `name` of the file `path` has not the shape that is wanted. */
gd_status gd_language_check_shape(const char *path, const char *name, gd_shape got,
                                  gd_shape wanted);

enum { GD_LANGUAGE_FILE_NAME = 128 };
/* The names that GGUF has for the matrices of the linear layer `name`, "0.self.qkv", of which one to three are put into
 * `names`; `room` is theirs. How many: 0, it has none. */
int gd_language_file_names(const gd_language_model *model, const char *name, const char *names[3],
                           char room[3][GD_LANGUAGE_FILE_NAME]);
/* gd_language_model_load of a GGUF file (language_gguf.c). */
gd_language_model *gd_language_open_gguf(gd_context *context, const char *path, bool quantized);

#endif
