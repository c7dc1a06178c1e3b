/* nn/fields.c: the members of specs as tables. */
#include "nn/fields.h"

#include <stddef.h>
#include <string.h>

#define FIELD(type, member, kind)                                                     \
    {                                                                                 \
#member, GD_FIELD_##kind, offsetof(type, member), sizeof(((type *)0)->member) \
    }
#define LAYER_FIELD(id, member, kind) FIELD(gd_layer_spec, member, kind),
#define LOSS_FIELD(id, member, kind)  FIELD(gd_loss_spec, member, kind),

static const gd_spec_field layer_fields[GD_LAYER_FIELD_COUNT] = { GD_LAYER_FIELDS(LAYER_FIELD) };
static const gd_spec_field loss_fields[GD_LOSS_FIELD_COUNT] = { GD_LOSS_FIELDS(LOSS_FIELD) };
static const gd_layer_spec layer_defaults = { GD_LAYER_SPEC_DEFAULTS };
static const gd_loss_spec loss_defaults = { GD_LOSS_SPEC_DEFAULTS };

const gd_field_table gd_layer_fields = { layer_fields, GD_LAYER_FIELD_COUNT, &layer_defaults };
const gd_field_table gd_loss_fields = { loss_fields, GD_LOSS_FIELD_COUNT, &loss_defaults };

_Static_assert(GD_LAYER_FIELD_COUNT <= 64 && GD_LOSS_FIELD_COUNT <= 64, "a bit for each");

const gd_spec_field *gd_field_find(const gd_field_table *table, const char *name)
{
    for (int i = 0; i < table->count; i++)
        if (strcmp(table->fields[i].name, name) == 0)
            return &table->fields[i];
    return NULL;
}

const char *const *gd_choice_names(gd_field_kind kind)
{
    static const char *const activations[] = { "default", "relu",   "gelu", "gelu_tanh",
                                               "silu",    "swiglu", NULL };
    static const char *const norms[] = { "layer", "rms", NULL };
    static const char *const positions[] = { "learned",       "sinusoidal", "rotary",
                                             "rotary_halves", "none",       NULL };
    static const char *const reductions[] = { "mean", "sum", "none", "batch_mean", NULL };
    return kind == GD_FIELD_FEED_FORWARD ? activations
           : kind == GD_FIELD_NORM       ? norms
           : kind == GD_FIELD_POSITION   ? positions
           : kind == GD_FIELD_REDUCTION  ? reductions
                                         : NULL;
}

unsigned gd_choice_of(const gd_spec_field *field, const void *spec)
{
    const void *value = gd_field_of(field, spec);
    switch (field->kind) {
    case GD_FIELD_FEED_FORWARD:
        return (unsigned)*(const gd_activation_kind *)value;
    case GD_FIELD_NORM:
        return (unsigned)*(const gd_norm_kind *)value;
    case GD_FIELD_REDUCTION:
        return (unsigned)*(const gd_reduction *)value;
    default:
        return (unsigned)*(const gd_position_kind *)value;
    }
}

void gd_choice_set(const gd_spec_field *field, void *spec, unsigned choice)
{
    void *value = gd_field_in(field, spec);
    switch (field->kind) {
    case GD_FIELD_FEED_FORWARD:
        *(gd_activation_kind *)value = (gd_activation_kind)choice;
        break;
    case GD_FIELD_NORM:
        *(gd_norm_kind *)value = (gd_norm_kind)choice;
        break;
    case GD_FIELD_REDUCTION:
        *(gd_reduction *)value = (gd_reduction)choice;
        break;
    default:
        *(gd_position_kind *)value = (gd_position_kind)choice;
    }
}

bool gd_field_is_given(const gd_field_table *table, const gd_spec_field *field, const void *spec)
{
    const void *value = gd_field_of(field, spec);
    switch (field->kind) {
    case GD_FIELD_SIZES:
    case GD_FIELD_EACH:
        return ((const gd_shape *)value)->rank != 0;
    case GD_FIELD_PADDING:
        return ((const gd_shape *)value)->rank != 0 || ((const gd_layer_spec *)spec)->same;
    default:
        return memcmp(value, gd_field_of(field, table->defaults), field->size) != 0;
    }
}

uint64_t gd_fields_given(const gd_field_table *table, const void *spec)
{
    uint64_t given = 0;
    for (int i = 0; i < table->count; i++)
        given |= gd_field_is_given(table, &table->fields[i], spec) ? UINT64_C(1) << i : 0;
    return given;
}

const char *gd_field_name(const gd_field_table *table, uint64_t bits)
{
    for (int i = 0; i < table->count; i++)
        if (bits >> i & 1)
            return table->fields[i].name;
    return "?";
}
