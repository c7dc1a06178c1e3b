/* nn/fields.h: the members of a gd_layer_spec and of a gd_loss_spec as tables, of which JSON is read
 * and written, errors are worded, and it is told what a spec gives. To add a member: in the struct,
 * and a line in its list below. */
#ifndef GD_NN_FIELDS_H
#define GD_NN_FIELDS_H

#include <gradus/model.h>

/* What a layer gives beside name, type, inputs and activation: id, member and key in JSON, kind. */
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
    _(CHECKPOINT, checkpoint, FLAG)             \
    _(MASK, mask, NAME)                         \
    _(LENGTHS, lengths, NAME)                   \
    _(MEMORY_MASK, memory_mask, NAME)           \
    _(MEMORY_LENGTHS, memory_lengths, NAME)     \
    _(TARGET_MASK, target_mask, NAME)           \
    _(TARGET_LENGTHS, target_lengths, NAME)     \
    _(CONFIG, config, OBJECT)

/* What a loss gives beside type and outputs. */
#define GD_LOSS_FIELDS(_)                       \
    _(SCALE, scale, NUMBER)                     \
    _(WEIGHT, weight, WEIGHTS)                  \
    _(POSITIVE_WEIGHT, positive_weight, WEIGHTS) \
    _(LABEL_SMOOTHING, label_smoothing, NUMBER) \
    _(IGNORE_INDEX, ignore_index, INDEX)        \
    _(ALPHA, alpha, NUMBER_OR_NULL)             \
    _(GAMMA, gamma, NUMBER)                     \
    _(MARGIN, margin, NUMBER)                   \
    _(DELTA, delta, NUMBER)                     \
    _(P, p, NUMBER)                             \
    _(BLANK, blank, INDEX)                      \
    _(LOG_TARGET, log_target, FLAG)             \
    _(SWAP, swap, FLAG)                         \
    _(ZERO_INFINITY, zero_infinity, FLAG)       \
    _(REDUCTION, reduction, REDUCTION)
// clang-format on

typedef enum gd_field_kind {
    GD_FIELD_COUNT,          /* int64_t, 1 to 2^31 */
    GD_FIELD_INDEX,          /* int64_t, any */
    GD_FIELD_SMALL,          /* int, 1 to 8 */
    GD_FIELD_FLAG,           /* bool */
    GD_FIELD_NUMBER,         /* double */
    GD_FIELD_NUMBER_OR_NULL, /* double; null is NaN */
    GD_FIELD_AXIS,           /* int, not 0 */
    GD_FIELD_SIZES,          /* gd_shape */
    GD_FIELD_EACH,           /* gd_shape: one number for all spatial axes, or one for each */
    GD_FIELD_PADDING,        /* likewise, or "same" (the member same) */
    GD_FIELD_INIT,           /* gd_init */
    GD_FIELD_NAME,           /* const char *: a layer or an input of the model */
    GD_FIELD_OBJECT,         /* const char *: an object as JSON text */
    GD_FIELD_WEIGHTS,        /* gd_tensor *: numbers, a list */
    GD_FIELD_FEED_FORWARD,   /* a name of gd_choice_names, as an enum */
    GD_FIELD_NORM,
    GD_FIELD_POSITION,
    GD_FIELD_REDUCTION,
} gd_field_kind;

enum {
#define GD_FIELD_ID(id, member, kind) GD_FIELD_ID_##id,
    GD_LAYER_FIELDS(GD_FIELD_ID)
#undef GD_FIELD_ID
        GD_LAYER_FIELD_COUNT
};
enum {
#define GD_FIELD_ID(id, member, kind) GD_LOSS_FIELD_ID_##id,
    GD_LOSS_FIELDS(GD_FIELD_ID)
#undef GD_FIELD_ID
        GD_LOSS_FIELD_COUNT
};
/* GD_USES(UNITS), GD_LOSS_USES(WEIGHT): a member as a bit of what a type uses. */
#define GD_USES(id)      (UINT64_C(1) << GD_FIELD_ID_##id)
#define GD_LOSS_USES(id) (UINT64_C(1) << GD_LOSS_FIELD_ID_##id)

typedef struct gd_spec_field {
    const char *name; /* its key in JSON */
    gd_field_kind kind;
    size_t offset, size;
} gd_spec_field;

/* The members of one struct. */
typedef struct gd_field_table {
    const gd_spec_field *fields;
    int count; /* at most 64 */
    const void *defaults;
} gd_field_table;
extern const gd_field_table gd_layer_fields, gd_loss_fields;

static inline void *gd_field_in(const gd_spec_field *field, void *spec)
{
    return (char *)spec + field->offset;
}
static inline const void *gd_field_of(const gd_spec_field *field, const void *spec)
{
    return (const char *)spec + field->offset;
}
/* The member that is a name or an object. */
static inline const char **gd_field_text(const gd_spec_field *field, void *spec)
{
    return (const char **)gd_field_in(field, spec);
}
static inline bool gd_field_is_text(const gd_spec_field *field)
{
    return field->kind == GD_FIELD_NAME || field->kind == GD_FIELD_OBJECT;
}

/* NULL: there is none of that name. */
const gd_spec_field *gd_field_find(const gd_field_table *table, const char *name);
/* Whether the spec gives it, that is, differs from the defaults there. */
bool gd_field_is_given(const gd_field_table *table, const gd_spec_field *field, const void *spec);
/* Which members a spec gives, as bits. */
uint64_t gd_fields_given(const gd_field_table *table, const void *spec);
/* The name of the lowest bit: "units". */
const char *gd_field_name(const gd_field_table *table, uint64_t bits);
/* The names of a kind of field that is a choice, in the order of its enum and ended by NULL; NULL:
 * it is none. */
const char *const *gd_choice_names(gd_field_kind kind);
/* Which of them the spec gives, and giving it. */
unsigned gd_choice_of(const gd_spec_field *field, const void *spec);
void gd_choice_set(const gd_spec_field *field, void *spec, unsigned choice);

#endif
