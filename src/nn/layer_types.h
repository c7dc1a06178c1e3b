/* nn/layer_types.h: the types of layers a model written as data may have. To add a type: its
 * function and a row in nn/layer_types.c, nn/layer_types_spatial.c or nn/layer_types_sequence.c.
 * Those of users are kept by nn/layer_registry.c. */
#ifndef GD_NN_LAYER_TYPES_H
#define GD_NN_LAYER_TYPES_H

#include "nn/fields.h"

typedef struct gd_layer_type gd_layer_type;

/* What a layer takes beside its inputs, in the order of GD_LAYER_FIELDS. */
typedef enum gd_layer_operand {
    GD_OPERAND_MASK,
    GD_OPERAND_LENGTHS,
    GD_OPERAND_MEMORY_MASK,
    GD_OPERAND_MEMORY_LENGTHS,
    GD_OPERAND_TARGET_MASK,
    GD_OPERAND_TARGET_LENGTHS,
    GD_OPERAND_COUNT
} gd_layer_operand;

/* One use of a layer. */
typedef struct gd_layer_args {
    gd_module *module;
    const gd_layer_type *type;
    const gd_layer_spec *spec;
    int n; /* inputs, results of other layers */
    gd_tensor *const *in;
    gd_tensor *operand[GD_OPERAND_COUNT]; /* NULL where the spec gives none */
    bool of_maps; /* in[0] is [batch, channels, spatial ..]: see gd_layer_maps */
} gd_layer_args;

/* Whether a type's result is maps, [batch, channels, spatial ..], which linear flattens first. */
typedef enum gd_layer_maps {
    GD_MAPS_NO,
    GD_MAPS_YES,      /* convolution and pooling */
    GD_MAPS_AS_INPUT, /* if an input is: a function of each element, a norm, a sum, a concatenation
                       */
} gd_layer_maps;

struct gd_layer_type {
    const char *name;
    /* NULL reports the error already recorded. */
    gd_tensor *(*build)(const gd_layer_args *args);
    int min_inputs, max_inputs;
    uint64_t uses;      /* GD_USES(…) */
    uint64_t needs;     /* of those, what may not be left out */
    bool is_activation; /* may stand as another layer's "activation" */
    gd_layer_maps maps;
    int spatial;                        /* axes behind the channels, where the type says how many */
    bool has_layers;                    /* it makes layers of its own, named below it */
    bool is_stack;                      /* of layers that are checkpointed each by itself */
    gd_tensor *(*simple)(gd_tensor *x); /* for types that are one function of one tensor */
    gd_layer_build_fn custom;           /* of a user, with the user's data */
    void *user;
};

/* NULL (and no error) when there is no such type, of the library or of the context. */
const gd_layer_type *gd_layer_type_find(gd_context *context, const char *name);
/* Number i of the library's, then of the context's; NULL behind the last. */
const gd_layer_type *gd_layer_type_at(gd_context *context, int i);
/* GD_ERR_INVALID: there is no type (no activation) `name`, which is what `who`, "layer "a"", wants;
 * with the nearest one and all. */
gd_status gd_layer_type_fail(gd_context *context, const char *who, const char *name,
                             bool activations_only);

/* Of sequences: nn/layer_types_sequence.c. */
extern const gd_layer_type gd_sequence_layer_types[];
extern const int gd_sequence_layer_type_count;
/* Convolution, pooling, normalisation: nn/layer_types_spatial.c. */
extern const gd_layer_type gd_spatial_layer_types[];
extern const int gd_spatial_layer_type_count;

/* Number i of a context's own types: nn/layer_registry.c. */
const gd_layer_type *gd_custom_layer_type(gd_context *context, int i);

#endif
