/* nn/layer_types.h: the types of layers a model written as data may have. */
#ifndef GD_NN_LAYER_TYPES_H
#define GD_NN_LAYER_TYPES_H

#include <gradus/nn.h>

/* What a spec gives beside name, type, inputs and activation. */
enum {
    GD_USES_UNITS = 1 << 0,
    GD_USES_BIAS = 1 << 1,
    GD_USES_INIT = 1 << 2,
    GD_USES_AXIS = 1 << 3,
    GD_USES_SHAPE = 1 << 4,
};

typedef struct gd_layer_type {
    const char *name;
    /* in[] are the results of the layer's inputs. NULL reports the error already recorded. */
    gd_tensor *(*build)(gd_module *m, const gd_layer_spec *spec, int n, gd_tensor *const *in);
    int min_inputs, max_inputs;
    unsigned uses;      /* GD_USES_… */
    unsigned needs;     /* of those, what may not be left out */
    bool is_activation; /* may stand as another layer's "activation" */
} gd_layer_type;

/* NULL (and no error) when there is no such type. */
const gd_layer_type *gd_layer_type_find(const char *name);
/* "linear, relu, …": all, or those fit for activations. */
#define GD_LAYER_TYPES_TEXT 256
const char *gd_layer_types_text(bool activations_only, char text[GD_LAYER_TYPES_TEXT]);
/* "units" for GD_USES_UNITS. */
const char *gd_layer_use_name(unsigned use);

#endif
