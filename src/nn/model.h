/* nn/model.h: a model written as data, checked and resolved: for what runs it, changes it, and writes
 * it. */
#ifndef GD_NN_MODEL_H
#define GD_NN_MODEL_H

#include "nn/layer_types.h"
#include "nn/module.h"

/* VALUES of a model are its inputs, number 0 …, and behind them the results of its layers in the
 * order in which they are listed. */

typedef struct gd_model_layer {
    char *name;
    char *config; /* the spec's; NULL: none */
    const gd_layer_type *type;
    const gd_layer_type *activation; /* NULL: none */
    /* Values: input_count inputs, then the operands that the spec gives, in order. */
    int inputs[GD_LAYER_MAX_INPUTS + GD_OPERAND_COUNT];
    int input_count, operand_count;
    bool of_maps, is_maps; /* its first input, its result: gd_layer_maps */
    struct gd_model *model;
    gd_layer_spec spec; /* whole: its strings are names of this model's values, or of types */
} gd_model_layer;

typedef struct gd_loss_row gd_loss_row;

typedef struct gd_model_loss_term {
    const gd_loss_row *row;
    int outputs[GD_LOSS_MAX_OUTPUTS]; /* numbers among the model's outputs */
    bool of_probabilities;            /* cross_entropy behind a softmax */
    gd_loss_spec spec; /* its strings are names of layers; its tensors are retained */
} gd_model_loss_term;

struct gd_model {
    gd_context *context;
    gd_module *module;
    gd_input_spec *inputs;  /* [input_count], with names of their own */
    gd_model_layer *layers; /* [count] as listed */
    int *order;             /* [count] numbers of layers, inputs before users */
    gd_tensor **values;     /* [input_count + count] while a forward pass runs */
    int input_count, count;
    int outputs[GD_MODEL_MAX_OUTPUTS]; /* numbers of layers */
    int output_count;
    gd_model_loss_term *losses; /* [loss_count] */
    int loss_count;
    gd_names names; /* -> value */
};

/* What puts parameters into a new model's module before its layers make theirs. */
typedef struct gd_model_source {
    gd_status (*fill)(void *user, gd_module *module);
    void *user;
} gd_model_source;

/* gd_model_create of a spec that gd_options_read has read, under the name of `who`. source may be
 * NULL. */
gd_model *gd_model_make(gd_context *context, const gd_model_spec *spec, const gd_model_options *o,
                        const gd_model_source *source);

/* Check a spec and put it into model, of which only the context is set: nn/model_resolve.c. */
gd_status gd_model_resolve(gd_model *model, const gd_model_spec *spec);
/* The losses of a model whose layers and outputs are resolved: nn/model_loss.c. */
gd_status gd_model_resolve_losses(gd_model *model, const gd_model_spec *spec);
void gd_model_free_losses(gd_model *model);

/* The name of a value. */
const char *gd_model_value_name(const gd_model *model, int value);
/* Element i of an array of specs, which are as far apart as the first one's size says, as this
 * version has it: in *own, which holds the defaults. */
gd_status gd_read_spec(const char *who, const void *array, int i, void *own, size_t size);
/* Whether a path is that of something of the layer `name`: "name.". */
bool gd_is_below(const char *path, const char *name);
/* The layer of the model to which a parameter of its module belongs; -1: none. */
int gd_model_owner(const gd_model *model, const char *path);

/* GD_ERR_FORMAT: the config of a layer is no JSON text of an object. */
gd_status gd_model_check_config(const char *layer, const char *config);
/* JSON, a path or text, as a model: nn/model_json.c. */
gd_model *gd_model_read_json(gd_context *context, const char *who, const char *json,
                             const gd_model_options *o, const gd_model_source *source);

#endif
