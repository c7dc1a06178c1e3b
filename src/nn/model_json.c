/* nn/model_json.c: from JSON to a gd_model_spec. The keys of a layer are the fields of
 * nn/layer_types.h; start at gd_model_load_json_with(). Back to JSON: nn/model_write.c. Only kinds
 * of values and names of keys are checked here; what they mean is nn/model.c's business. */
#include "nn/layer_types.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON

#include <jansson.h>

/* The spec being filled. Strings in it belong to the JSON document. */
typedef struct reading {
    gd_model_spec spec;
    gd_layer_spec *layers;
    char where[96]; /* what messages call the place: "the model" or a layer */
} reading;

static gd_status fail_kind(const reading *r, const char *key, const char *wanted)
{
    return gd_fail(GD_ERR_FORMAT, "%s: \"%s\" must be %s", r->where, key, wanted);
}

static gd_status read_text(const reading *r, const char *key, const json_t *value, const char **out)
{
    *out = json_string_value(value);
    return *out ? GD_OK : fail_kind(r, key, "a string");
}

static gd_status read_sizes(const reading *r, const char *key, const json_t *value, gd_shape *out)
{
    static const char wanted[] = "a list of 1 to 7 whole numbers, such as [28, 28]";
    if (!json_is_array(value) || json_array_size(value) < 1 ||
        json_array_size(value) >= GD_MAX_RANK)
        return fail_kind(r, key, wanted);
    *out = (gd_shape){ .rank = (int)json_array_size(value) };
    for (int i = 0; i < out->rank; i++) {
        const json_t *size = json_array_get(value, (size_t)i);
        if (!json_is_integer(size))
            return fail_kind(r, key, wanted);
        out->dim[i] = json_integer_value(size);
    }
    return GD_OK;
}

/* ---- keys of a layer ---- */

typedef gd_status (*layer_key_fn)(const reading *r, const char *key, const json_t *value,
                                  gd_layer_spec *layer);

static gd_status read_name(const reading *r, const char *key, const json_t *value,
                           gd_layer_spec *layer)
{
    return read_text(r, key, value, &layer->name);
}

static gd_status read_type(const reading *r, const char *key, const json_t *value,
                           gd_layer_spec *layer)
{
    return read_text(r, key, value, &layer->type);
}

static gd_status read_activation(const reading *r, const char *key, const json_t *value,
                                 gd_layer_spec *layer)
{
    return read_text(r, key, value, &layer->activation);
}

static gd_status read_inputs(const reading *r, const char *key, const json_t *value,
                             gd_layer_spec *layer)
{
    size_t count = json_array_size(value); /* 0 for what is no list */
    if (count < 1 || count > GD_LAYER_MAX_INPUTS)
        return fail_kind(r, key, "a list of 1 to 16 names");
    for (size_t i = 0; i < count; i++) {
        layer->inputs[i] = json_string_value(json_array_get(value, i));
        if (!layer->inputs[i])
            return fail_kind(r, key, "a list of 1 to 16 names");
    }
    return GD_OK;
}

/* A number for all axes, or a list of one for each. */
static gd_status read_each(const reading *r, const char *key, const json_t *value, gd_shape *out)
{
    static const char wanted[] = "a whole number, or a list of 1 to 3";
    bool list = json_is_array(value);
    size_t count = list ? json_array_size(value) : 1;
    if (count < 1 || count > 3)
        return fail_kind(r, key, wanted);
    *out = (gd_shape){ .rank = (int)count };
    for (size_t i = 0; i < count; i++) {
        const json_t *number = list ? json_array_get(value, i) : value;
        if (!json_is_integer(number))
            return fail_kind(r, key, wanted);
        out->dim[i] = json_integer_value(number);
    }
    return GD_OK;
}

static gd_status read_count(const reading *r, const char *key, const json_t *value, int64_t most,
                            int64_t *out)
{
    *out = json_integer_value(value);
    return json_is_integer(value) && *out > 0 && *out <= most
               ? GD_OK
               : fail_kind(r, key,
                           most > INT32_MAX ? "a whole number above 0"
                                            : "a whole number from 1 to 8");
}

static gd_status read_flag(const reading *r, const char *key, const json_t *value, bool *out)
{
    *out = json_is_true(value);
    return json_is_boolean(value) ? GD_OK : fail_kind(r, key, "true or false");
}

static gd_status read_number(const reading *r, const char *key, const json_t *value, double *out)
{
    *out = json_number_value(value);
    return json_is_number(value) ? GD_OK : fail_kind(r, key, "a number");
}

static gd_status read_init(const reading *r, const char *key, const json_t *value, gd_init *out)
{
    const char *name = json_string_value(value);
    for (int init = GD_INIT_ZEROS; name && init < GD_INIT_COUNT; init++)
        if (strcmp(name, gd_init_name((gd_init)init)) == 0) {
            *out = (gd_init)init;
            return GD_OK;
        }
    char names[384];
    size_t at = (size_t)snprintf(names, sizeof names, "one of");
    for (int init = GD_INIT_ZEROS; init < GD_INIT_COUNT && at < sizeof names; init++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s %s",
                               init > GD_INIT_ZEROS ? "," : "", gd_init_name((gd_init)init));
    return fail_kind(r, key, names);
}

/* One of the names of a choice. */
static gd_status read_choice(const reading *r, const gd_layer_field *field, const json_t *value,
                             unsigned *out)
{
    const char *name = json_string_value(value);
    const char *const *names = gd_choice_names(field->kind);
    char all[128] = "one of";
    for (unsigned i = 0; names[i]; i++) {
        *out = i;
        if (name && strcmp(names[i], name) == 0)
            return GD_OK;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s %s", i ? "," : "", names[i]);
    }
    return fail_kind(r, field->name, all);
}

static gd_status read_axis(const reading *r, const char *key, const json_t *value, int *out)
{
    json_int_t axis = json_integer_value(value);
    *out = (int)axis;
    bool fits = json_is_integer(value) && axis != 0 && axis > -GD_MAX_RANK && axis < GD_MAX_RANK;
    return fits ? GD_OK : fail_kind(r, key, "a whole number other than 0 (the batch), -7 to 7");
}

static gd_status read_padding(const reading *r, const json_t *value, gd_layer_spec *layer)
{
    const char *text = json_string_value(value);
    layer->same = text && strcmp(text, "same") == 0;
    if (text)
        return layer->same ? GD_OK : fail_kind(r, "padding", "a number, a list, or \"same\"");
    return read_each(r, "padding", value, &layer->padding);
}

static gd_status read_field(const reading *r, const gd_layer_field *field, const json_t *value,
                            gd_layer_spec *layer)
{
    const char *key = field->name;
    void *place = gd_field_in(field, layer);
    int64_t small;
    unsigned choice = 0;
    gd_status status;
    switch (field->kind) {
    case GD_FIELD_COUNT:
        return read_count(r, key, value, INT64_MAX, place);
    case GD_FIELD_SMALL:
        status = read_count(r, key, value, GD_MAX_RANK, &small);
        *(int *)place = status == GD_OK ? (int)small : 0;
        return status;
    case GD_FIELD_FLAG:
        return read_flag(r, key, value, place);
    case GD_FIELD_NUMBER:
        return read_number(r, key, value, place);
    case GD_FIELD_AXIS:
        return read_axis(r, key, value, place);
    case GD_FIELD_SIZES:
        return read_sizes(r, key, value, place);
    case GD_FIELD_EACH:
        return read_each(r, key, value, place);
    case GD_FIELD_PADDING:
        return read_padding(r, value, layer);
    case GD_FIELD_INIT:
        return read_init(r, key, value, place);
    case GD_FIELD_FEED_FORWARD:
        status = read_choice(r, field, value, &choice);
        layer->feed_forward = (gd_activation_kind)choice;
        return status;
    case GD_FIELD_NORM:
        status = read_choice(r, field, value, &choice);
        layer->norm = (gd_norm_kind)choice;
        return status;
    case GD_FIELD_POSITION:
        status = read_choice(r, field, value, &choice);
        layer->position = (gd_position_kind)choice;
        return status;
    }
    return GD_OK;
}

typedef struct layer_key {
    const char *name;
    layer_key_fn read;
} layer_key;

static const layer_key layer_keys[] = {
    { "name", read_name },
    { "type", read_type },
    { "inputs", read_inputs },
    { "activation", read_activation },
};
enum { LAYER_KEYS = sizeof layer_keys / sizeof *layer_keys };

static gd_status fail_key(const reading *r, const char *key)
{
    char keys[512];
    size_t at = 0;
    for (int i = 0; i < LAYER_KEYS + GD_LAYER_FIELD_COUNT && at < sizeof keys; i++)
        at += (size_t)snprintf(keys + at, sizeof keys - at, "%s%s", i ? ", " : "",
                               i < LAYER_KEYS ? layer_keys[i].name
                                              : gd_layer_fields[i - LAYER_KEYS].name);
    return gd_fail(GD_ERR_FORMAT, "%s: there is no key \"%.64s\"; there are %s", r->where, key,
                   keys);
}

static gd_status read_layer_key(const reading *r, const char *key, const json_t *value,
                                gd_layer_spec *layer)
{
    for (int i = 0; i < LAYER_KEYS; i++)
        if (strcmp(layer_keys[i].name, key) == 0)
            return layer_keys[i].read(r, key, value, layer);
    for (int i = 0; i < GD_LAYER_FIELD_COUNT; i++)
        if (strcmp(gd_layer_fields[i].name, key) == 0)
            return read_field(r, &gd_layer_fields[i], value, layer);
    return fail_key(r, key);
}

static gd_status read_layer(reading *r, json_t *object, int number)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    if (name)
        snprintf(r->where, sizeof r->where, "layer \"%.64s\"", name);
    else
        snprintf(r->where, sizeof r->where, "layer number %d", number + 1);
    if (!json_is_object(object))
        return gd_fail(GD_ERR_FORMAT, "%s must be an object {\"name\": .., \"type\": ..}",
                       r->where);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        gd_status status = read_layer_key(r, key, value, &r->layers[number]);
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

/* ---- the model ---- */

static gd_status read_layers(reading *r, const json_t *value)
{
    size_t count = json_array_size(value);
    if (count < 1 || count > GD_MODEL_MAX_LAYERS)
        return fail_kind(r, "layers", "a list of 1 to 4096 layers");
    r->layers = gd_alloc_zero(count, sizeof *r->layers);
    if (!r->layers)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        r->layers[i] = (gd_layer_spec){ GD_LAYER_SPEC_DEFAULTS };
    r->spec.layers = r->layers;
    r->spec.layer_count = (int)count;
    for (size_t i = 0; i < count; i++) {
        gd_status status = read_layer(r, json_array_get(value, i), (int)i);
        if (status != GD_OK)
            return status;
    }
    snprintf(r->where, sizeof r->where, "the model");
    return GD_OK;
}

static gd_status read_key(reading *r, const char *key, const json_t *value)
{
    if (strcmp(key, "input") == 0)
        return read_sizes(r, key, value, &r->spec.input);
    if (strcmp(key, "layers") == 0)
        return read_layers(r, value);
    if (strcmp(key, "output") == 0)
        return read_text(r, key, value, &r->spec.output);
    if (strcmp(key, "loss") == 0)
        return read_text(r, key, value, &r->spec.loss);
    return gd_fail(GD_ERR_FORMAT,
                   "the model: there is no key \"%.64s\"; there are input, layers, output, loss",
                   key);
}

static gd_status read_model(reading *r, json_t *root)
{
    snprintf(r->where, sizeof r->where, "the model");
    if (!json_is_object(root))
        return gd_fail(GD_ERR_FORMAT,
                       "the model must be an object {\"input\": [..], \"layers\": [..]}");
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        gd_status status = read_key(r, key, value);
        if (status != GD_OK)
            return status;
    }
    if (r->spec.input.rank == 0 || !r->layers)
        return gd_fail(GD_ERR_FORMAT, "the model has no \"%s\"", r->layers ? "input" : "layers");
    return GD_OK;
}

static bool is_text(const char *json)
{
    return json[strspn(json, " \t\r\n")] == '{';
}

static json_t *parse(const char *json)
{
    json_error_t error;
    bool text = is_text(json);
    json_t *root = text ? json_loads(json, JSON_REJECT_DUPLICATES, &error)
                        : json_load_file(json, JSON_REJECT_DUPLICATES, &error);
    if (root)
        return root;
    enum json_error_code code = json_error_code(&error);
    if (code == json_error_cannot_open_file)
        return gd_fail_null(GD_ERR_IO, "%s: the model file cannot be opened", json);
    if (code == json_error_out_of_memory)
        return gd_fail_null(GD_ERR_MEMORY, "out of memory while reading JSON");
    return gd_fail_null(GD_ERR_FORMAT, "%s: not JSON: line %d, column %d: %s",
                        text ? "the model" : json, error.line, error.column, error.text);
}

gd_model *gd_model_load_json_with(gd_context *context, const char *json,
                                  const gd_model_options *options)
{
    if (!context)
        return NULL;
    if (!json)
        return gd_fail_null(GD_ERR_INVALID, "gd_model_load_json: neither a path nor text");
    json_t *root = parse(json);
    if (!root)
        return NULL;
    reading r = { .spec = { GD_MODEL_SPEC_DEFAULTS } };
    gd_model *model =
        read_model(&r, root) == GD_OK ? gd_model_create_with(context, &r.spec, options) : NULL;
    gd_free(r.layers);
    json_decref(root);
    return model;
}

#else

gd_model *gd_model_load_json_with(gd_context *context, const char *json,
                                  const gd_model_options *options)
{
    (void)json, (void)options;
    if (!context)
        return NULL;
    return gd_fail_null(GD_ERR_UNSUPPORTED,
                        "gd_model_load_json: this build cannot read JSON (it was built without "
                        "jansson); gd_model_create takes the same model from C");
}

#endif
