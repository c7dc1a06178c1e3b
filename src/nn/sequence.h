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

/* One use of a Transformer's layer, or of a stack of them; without memory it is an encoder's. */
typedef struct gd_nn_block {
    gd_module *module;
    const char *name;
    gd_tensor *x;
    const gd_transformer_config *config; /* with every member read */
    gd_tensor *memory, *mask, *memory_mask;
    bool causal;
    gd_kv_cache *cache;
} gd_nn_block;

typedef gd_tensor *(*gd_nn_layer_fn)(gd_nn_block o);
/* layer(o) within gd_checkpoint. o has a name, and no cache. */
gd_tensor *gd_nn_checkpointed(gd_nn_block o, gd_nn_layer_fn layer);

/* What hidden, of a feed-forward network for x [.., width], stands for: -1 is 4 * width. */
int64_t gd_nn_hidden(int64_t hidden, const gd_tensor *x);

/* Keys and values [batch, heads, t, d], as gd_attention takes them: with scales in 8 bits, else those are NULL. */
typedef struct gd_kv {
    gd_tensor *k, *v, *k_scale, *v_scale;
} gd_kv;

/* k and v behind those the cache has for `name`; *kv becomes all of them. */
gd_status gd_kv_cache_append(gd_kv_cache *cache, const char *name, gd_kv *kv);
/* Tokens it has for `name`. */
int64_t gd_kv_cache_length_of(const gd_kv_cache *cache, const char *name);

#endif
