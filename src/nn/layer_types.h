/* nn/layer_types.h: the types of layers a model written as data may have, and the fields of a
 * gd_layer_spec they use. To add a type: its function and a row in nn/layer_types.c,
 * nn/layer_types_spatial.c or nn/layer_types_sequence.c. To add a field: its member in
 * gd_layer_spec and a line in GD_LAYER_FIELDS; JSON and messages follow. */
#ifndef GD_NN_LAYER_TYPES_H
#define GD_NN_LAYER_TYPES_H

#include <gradus/nn.h>

/* What a spec gives beside name, type, inputs and activation: id, member and key in JSON, kind. */
// clang-format off
#define GD_LAYER_FIELDS(_)                      \
    _(UNITS, units, COUNT)                      \
    _(BIAS, bias, FLAG)                         \
    _(INIT, init, INIT)                         \
    _(AXIS, axis, AXIS)                         \
    _(SHAPE, shape, SIZES)                      \
    _(INIT_SCALE, init_scale, NUMBER)           \
    _(CHANNELS, channels, COUNT)                \
    _(KERNEL, kernel, EACH)                     \
    _(STRIDE, stride, EACH)                     \
    _(PADDING, padding, PADDING)                \
    _(DILATION, dilation, EACH)                 \
    _(OUTPUT_PADDING, output_padding, EACH)     \
    _(GROUPS, groups, COUNT)                    \
    _(VOCABULARY, vocabulary, COUNT)            \
    _(AXES, axes, SMALL)                        \
    _(DROPOUT, dropout, NUMBER)                 \
    _(ALPHA, alpha, NUMBER)                     \
    _(EPSILON, epsilon, NUMBER)                 \
    _(MOMENTUM, momentum, NUMBER)               \
    _(AFFINE, affine, FLAG)                     \
    _(PER_CHANNEL, per_channel, FLAG)           \
    _(CEIL_MODE, ceil_mode, FLAG)               \
    _(COUNT_PADDING, count_padding, FLAG)       \
    _(HEADS, heads, COUNT)                      \
    _(KV_HEADS, kv_heads, COUNT)                \
    _(HIDDEN, hidden, COUNT)                    \
    _(LAYERS, layers, COUNT)                    \
    _(MAX_LENGTH, max_length, COUNT)            \
    _(FEED_FORWARD, feed_forward, FEED_FORWARD) \
    _(NORM, norm, NORM)                         \
    _(POSITION, position, POSITION)             \
    _(BIDIRECTIONAL, bidirectional, FLAG)       \
    _(CAUSAL, causal, FLAG)                     \
    _(PRE_NORM, pre_norm, FLAG)                 \
    _(TIED, tied, FLAG)                         \
    _(CHECKPOINT, checkpoint, FLAG)
// clang-format on

typedef enum gd_field_kind {
    GD_FIELD_COUNT,        /* int64_t, 1 to 2^31 */
    GD_FIELD_SMALL,        /* int, 1 to 8 */
    GD_FIELD_FLAG,         /* bool */
    GD_FIELD_NUMBER,       /* double */
    GD_FIELD_AXIS,         /* int, not 0 */
    GD_FIELD_SIZES,        /* gd_shape */
    GD_FIELD_EACH,         /* gd_shape: one number for all spatial axes, or one for each */
    GD_FIELD_PADDING,      /* likewise, or "same" (the member same) */
    GD_FIELD_INIT,         /* gd_init */
    GD_FIELD_FEED_FORWARD, /* a name of gd_choice_names, as an enum */
    GD_FIELD_NORM,
    GD_FIELD_POSITION,
} gd_field_kind;

enum {
#define GD_FIELD_NUMBER_OF(id, member, kind) GD_FIELD_ID_##id,
    GD_LAYER_FIELDS(GD_FIELD_NUMBER_OF)
#undef GD_FIELD_NUMBER_OF
        GD_LAYER_FIELD_COUNT
};
/* GD_USES(UNITS): a field as a bit of what a type uses. */
#define GD_USES(id) (UINT64_C(1) << GD_FIELD_ID_##id)

typedef struct gd_layer_field {
    const char *name; /* its key in JSON */
    gd_field_kind kind;
    size_t offset, size;
} gd_layer_field;
extern const gd_layer_field gd_layer_fields[GD_LAYER_FIELD_COUNT];

static inline void *gd_field_in(const gd_layer_field *field, gd_layer_spec *spec)
{
    return (char *)spec + field->offset;
}
static inline const void *gd_field_of(const gd_layer_field *field, const gd_layer_spec *spec)
{
    return (const char *)spec + field->offset;
}
/* Whether the spec gives it, that is, differs from the defaults there. */
bool gd_field_is_given(const gd_layer_field *field, const gd_layer_spec *spec);
/* Which of GD_USES(…) a spec gives. */
uint64_t gd_layer_spec_given(const gd_layer_spec *spec);
/* The names of a kind of field that is a choice, in the order of its enum and ended by NULL; NULL:
 * it is none. */
const char *const *gd_choice_names(gd_field_kind kind);
/* Which of them the spec gives. */
unsigned gd_choice_of(const gd_layer_field *field, const gd_layer_spec *spec);
/* The name of the lowest bit: "units". */
const char *gd_layer_use_name(uint64_t use);

typedef struct gd_layer_type gd_layer_type;

/* One use of a layer. */
typedef struct gd_layer_call {
    gd_module *module;
    const gd_layer_type *type;
    const gd_layer_spec *spec;
    int n; /* inputs, results of other layers */
    gd_tensor *const *in;
    bool of_maps; /* in[0] is [batch, channels, spatial ..]: see gd_layer_maps */
} gd_layer_call;

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
    gd_tensor *(*build)(const gd_layer_call *call);
    int min_inputs, max_inputs;
    uint64_t uses;      /* GD_USES(…) */
    uint64_t needs;     /* of those, what may not be left out */
    bool is_activation; /* may stand as another layer's "activation" */
    gd_layer_maps maps;
    int spatial;                        /* axes behind the channels, where the type says how many */
    bool has_layers;                    /* it makes layers of its own, named below it */
    bool is_stack;                      /* of layers that are checkpointed each by itself */
    gd_tensor *(*simple)(gd_tensor *x); /* for types that are one function of one tensor */
};

/* NULL (and no error) when there is no such type. */
const gd_layer_type *gd_layer_type_find(const char *name);
/* "linear, relu, …": all, or those fit for activations. */
#define GD_LAYER_TYPES_TEXT 1024
const char *gd_layer_types_text(bool activations_only, char text[GD_LAYER_TYPES_TEXT]);

/* Of sequences: nn/layer_types_sequence.c. */
extern const gd_layer_type gd_sequence_layer_types[];
extern const int gd_sequence_layer_type_count;
/* Convolution, pooling, normalisation: nn/layer_types_spatial.c. */
extern const gd_layer_type gd_spatial_layer_types[];
extern const int gd_spatial_layer_type_count;

#endif
