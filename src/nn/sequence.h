/* nn/sequence.h: what the files of sequence layers share. */
#ifndef GD_NN_SEQUENCE_H
#define GD_NN_SEQUENCE_H

#include <gradus/ops.h>
#include <gradus/sequence.h>

/* The most heads, and values in a head or a state: products of a few such sizes fit 63 bits. */
#define GD_NN_LARGEST (INT64_C(1) << 30)

/* "name.part" into text, or "part" where name is NULL or empty. NULL: too long, and the error
 * recorded. */
#define GD_NN_PATH 256
const char *gd_nn_path(char text[GD_NN_PATH], const char *name, const char *part);
/* "name.number" */
const char *gd_nn_path_number(char text[GD_NN_PATH], const char *name, int64_t number);

/* gd_dropout while the module is training, else x. */
gd_tensor *gd_nn_drop(const gd_module *m, gd_tensor *x, double p);

typedef gd_tensor *(*gd_nn_layer_fn)(gd_nn_transformer_layer_options o);
/* layer(o) within gd_checkpoint. o has a config and a name, and no cache. */
gd_tensor *gd_nn_checkpointed(gd_nn_transformer_layer_options o, gd_nn_layer_fn layer);

/* Keys and values [batch, heads, t, d] behind those the cache has for `name`; *k and *v become all
 * of them. */
gd_status gd_kv_cache_append(gd_kv_cache *cache, const char *name, gd_tensor **k, gd_tensor **v);
/* Tokens it has for `name`. */
int64_t gd_kv_cache_length_of(const gd_kv_cache *cache, const char *name);

#endif
