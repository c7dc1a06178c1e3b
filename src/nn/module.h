/* nn/module.h: what layers know of a module. Start at gd_module_layer_find(). */
#ifndef GD_NN_MODULE_H
#define GD_NN_MODULE_H

#include <gradus/io.h>
#include <gradus/model.h>

#include "base/random.h"
#include "nn/names.h"
#include "nn/observe.h"

#define GD_LAYER_MAX_PARAMETERS 4

/* A parameter or buffer. */
typedef struct gd_module_entry {
    char *path;
    gd_tensor *tensor; /* retained */
    bool parameter;
    bool claimed; /* a layer has asked for it; false: it came from a file and waits */
    size_t turn;  /* how many had been asked for, or made, before */
} gd_module_entry;

/* A layer that has been used. */
typedef struct gd_module_layer {
    char *name;
    const char *type;
    const char *activation;                        /* for the summary; NULL: none */
    gd_tensor *parameter[GD_LAYER_MAX_PARAMETERS]; /* the entries' */
    int64_t numbers;                               /* in its parameters */
    gd_shape output;                               /* as last seen */
} gd_module_layer;

/* Begins what a layer keeps for as long as the module lives (nn/checkpointed.c); one block of
 * memory each. */
typedef struct gd_module_block {
    struct gd_module_block *next;
} gd_module_block;

struct gd_module {
    gd_context *context;
    gd_dtype dtype;           /* of parameters */
    gd_random random;         /* of initial values */
    gd_module_entry *entries; /* in order of creation */
    size_t entry_count, entry_capacity, turns;
    gd_names paths; /* -> index into entries */
    gd_module_layer *layers;
    size_t layer_count, layer_capacity;
    gd_names layer_names; /* -> index into layers */
    char *loaded_from;    /* the file it was loaded from while empty, else NULL */
    bool training;
    gd_module_block *blocks;
    gd_observe_fn observe; /* NULL: nobody is told */
    void *observer;
};

/* Take t (retained; NULL is the error already recorded) in as a parameter or buffer of a path that
 * is new. */
gd_status gd_module_entry_add(gd_module *m, const char *path, gd_tensor *t, bool parameter,
                              bool claimed);
/* The layer called `name`, NULL (and no error) when it has not been used. */
gd_module_layer *gd_module_layer_find(gd_module *m, const char *name);
/* Make it. Its parameters are made by the caller before, so that a failure leaves no layer behind.
 * The pointer holds until the next one is made. NULL: out of memory. */
gd_module_layer *gd_module_layer_add(gd_module *m, const char *name, const char *type);
/* gd_module_save, with the description of the model it is of (NULL: of none). */
gd_status gd_module_write(const gd_module *m, const gd_model *model, const char *path);
/* The entries of a module that was loaded, in the order in which layers asked for them, as if they
 * had been made then. GD_ERR_FORMAT: one of them was not asked for. */
gd_status gd_module_order_by_use(gd_module *m, const char *path);
/* "layer.suffix", to be freed with gd_free. */
char *gd_module_join(const char *layer, const char *suffix);

/* What a parameter's initial values are made by. */
typedef struct gd_initialiser {
    gd_init init;
    double scale; /* NaN: the kind's default */
    gd_shape shape;
    int64_t fan_in, fan_out; /* -1: from the shape */
} gd_initialiser;

/* Words of the module's stream that the values of a known kind take. */
uint64_t gd_init_words(gd_init init, gd_shape shape);
/* The values of a parameter of `dtype`; advances random by so many words. GD_ERR_SHAPE: the kind needs two
 * axes. */
gd_status gd_init_fill(const gd_initialiser *initialiser, gd_random *random, gd_dtype dtype,
                       void *values);

/* t, a float tensor just read from a file, in the dtype of parameters. */
gd_tensor *gd_module_convert(gd_tensor *t, gd_dtype dtype);

/* "[50, 784]"; sizes of GD_NN_BATCH and GD_NN_TIME read "batch" and "time". */
#define GD_NN_BATCH      (-1)
#define GD_NN_TIME       (-2)
#define GD_NN_SHAPE_TEXT 192
const char *gd_nn_shape_text(gd_shape shape, char text[GD_NN_SHAPE_TEXT]);

#endif
