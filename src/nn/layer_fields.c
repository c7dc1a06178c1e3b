/* nn/layer_fields.c: the fields of a gd_layer_spec as a table. */
#include "nn/layer_types.h"

#include <stddef.h>
#include <string.h>

const gd_layer_field gd_layer_fields[GD_LAYER_FIELD_COUNT] = {
#define FIELD(id, member, kind)                                  \
    { #member, GD_FIELD_##kind, offsetof(gd_layer_spec, member), \
      sizeof(((gd_layer_spec *)0)->member) },
    GD_LAYER_FIELDS(FIELD)
};

const char *const *gd_choice_names(gd_field_kind kind)
{
    static const char *const activations[] = { "default", "relu",   "gelu", "gelu_tanh",
                                               "silu",    "swiglu", NULL };
    static const char *const norms[] = { "layer", "rms", NULL };
    static const char *const positions[] = { "learned",       "sinusoidal", "rotary",
                                             "rotary_halves", "none",       NULL };
    return kind == GD_FIELD_FEED_FORWARD ? activations
           : kind == GD_FIELD_NORM       ? norms
           : kind == GD_FIELD_POSITION   ? positions
                                         : NULL;
}

unsigned gd_choice_of(const gd_layer_field *field, const gd_layer_spec *spec)
{
    const void *value = gd_field_of(field, spec);
    switch (field->kind) {
    case GD_FIELD_FEED_FORWARD:
        return (unsigned)*(const gd_activation_kind *)value;
    case GD_FIELD_NORM:
        return (unsigned)*(const gd_norm_kind *)value;
    default:
        return (unsigned)*(const gd_position_kind *)value;
    }
}

bool gd_field_is_given(const gd_layer_field *field, const gd_layer_spec *spec)
{
    static const gd_layer_spec defaults = { GD_LAYER_SPEC_DEFAULTS };
    const void *value = gd_field_of(field, spec);
    switch (field->kind) {
    case GD_FIELD_SIZES:
    case GD_FIELD_EACH:
        return ((const gd_shape *)value)->rank != 0;
    case GD_FIELD_PADDING:
        return ((const gd_shape *)value)->rank != 0 || spec->same;
    default:
        return memcmp(value, gd_field_of(field, &defaults), field->size) != 0;
    }
}

uint64_t gd_layer_spec_given(const gd_layer_spec *spec)
{
    uint64_t given = 0;
    for (unsigned i = 0; i < GD_LAYER_FIELD_COUNT; i++)
        given |= gd_field_is_given(&gd_layer_fields[i], spec) ? UINT64_C(1) << i : 0;
    return given;
}

const char *gd_layer_use_name(uint64_t use)
{
    for (unsigned i = 0; i < GD_LAYER_FIELD_COUNT; i++)
        if (use >> i & 1)
            return gd_layer_fields[i].name;
    return "?";
}
