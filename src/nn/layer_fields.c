/* nn/layer_fields.c: the fields of a gd_layer_spec as a table. */
#include "nn/layer_types.h"

#include <stddef.h>

const gd_layer_field gd_layer_fields[GD_LAYER_FIELD_COUNT] = {
#define FIELD(id, key, kind, member) { key, GD_FIELD_##kind, offsetof(gd_layer_spec, member) },
    GD_LAYER_FIELDS(FIELD)
};

bool gd_field_is_given(const gd_layer_field *field, const gd_layer_spec *spec)
{
    const void *value = gd_field_of(field, spec);
    switch (field->kind) {
    case GD_FIELD_COUNT:
        return *(const int64_t *)value != 0;
    case GD_FIELD_SMALL:
    case GD_FIELD_AXIS:
        return *(const int *)value != 0;
    case GD_FIELD_FLAG:
    case GD_FIELD_UNLESS:
        return *(const bool *)value;
    case GD_FIELD_NUMBER:
        return *(const double *)value < 0.0 || *(const double *)value > 0.0;
    case GD_FIELD_SIZES:
    case GD_FIELD_EACH:
        return ((const gd_shape *)value)->rank != 0;
    case GD_FIELD_PADDING:
        return ((const gd_shape *)value)->rank != 0 || spec->same;
    case GD_FIELD_INIT:
        return *(const gd_init *)value != GD_INIT_DEFAULT;
    }
    return false;
}

unsigned gd_layer_spec_given(const gd_layer_spec *spec)
{
    unsigned given = 0;
    for (unsigned i = 0; i < GD_LAYER_FIELD_COUNT; i++)
        given |= gd_field_is_given(&gd_layer_fields[i], spec) ? 1u << i : 0u;
    return given;
}

const char *gd_layer_use_name(unsigned use)
{
    for (unsigned i = 0; i < GD_LAYER_FIELD_COUNT; i++)
        if (use & 1u << i)
            return gd_layer_fields[i].name;
    return "?";
}
