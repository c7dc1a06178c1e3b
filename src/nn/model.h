/* nn/model.h: a model written as data, checked and resolved: for nn/model.c and what reads it. */
#ifndef GD_NN_MODEL_H
#define GD_NN_MODEL_H

#include "nn/layer_types.h"
#include "nn/module.h"

typedef struct gd_model_layer {
    char *name;
    const gd_layer_type *type;
    const gd_layer_type *activation; /* NULL: none */
    int inputs[GD_LAYER_MAX_INPUTS]; /* numbers of layers, GD_MODEL_INPUT for the model's input */
    int input_count;
    bool of_maps, is_maps; /* its first input, its result: gd_layer_maps */
    struct gd_model *model;
    gd_layer_spec spec; /* for the build functions; of its strings only the name is kept */
} gd_model_layer;

enum { GD_MODEL_INPUT = -1 };

typedef struct gd_model_loss_row {
    const char *name;
    gd_tensor *(*loss)(gd_tensor *output, gd_tensor *target);
    /* The same of an output that is probabilities; NULL: it makes no difference. */
    gd_tensor *(*of_probabilities)(gd_tensor *output, gd_tensor *target);
} gd_model_loss_row;

struct gd_model {
    gd_context *context;
    gd_module *module;
    gd_model_layer *layers; /* [count] as listed */
    int *order;             /* [count] numbers, inputs before users */
    gd_tensor **values;     /* [count] results, while a forward pass runs */
    int count, output;
    gd_names names;
    gd_shape input;
    const gd_model_loss_row *loss;
};

#endif
