/* nn/model_json.c: from JSON to a gd_model_spec. The keys of layers and losses are the tables of
 * nn/fields.h; start at gd_model_read_json(). Back to JSON: nn/model_write.c. Only kinds of values
 * and names of keys are checked here; what they mean is nn/model_resolve.c's business. */
#include "nn/model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/options.h"

#include <gradus/compile.h>
#include <gradus/ops.h>

#include <stdio.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON

#include <jansson.h>

/* The spec being filled. Strings in it belong to the JSON document, but configs. */
typedef struct reading {
    gd_context *context;
    gd_model_spec spec;
    gd_layer_spec *layers;
    gd_input_spec *inputs;
    gd_loss_spec *losses;
    const char **outputs;
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

/* `least` to 7 sizes. */
static gd_status read_sizes(const reading *r, const char *key, const json_t *value, size_t least,
                            gd_shape *out)
{
    const char *wanted = least ? "a list of 1 to 7 whole numbers, such as [28, 28]"
                               : "a list of 0 to 7 whole numbers, such as [28, 28]";
    if (!json_is_array(value) || json_array_size(value) < least ||
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

/* A list of at most `most` strings. */
static gd_status read_names(const reading *r, const char *key, const json_t *value, size_t most,
                            const char **out)
{
    size_t count = json_array_size(value); /* 0 for what is no list */
    char wanted[48];
    snprintf(wanted, sizeof wanted, "a list of 1 to %zu names", most);
    if (count < 1 || count > most)
        return fail_kind(r, key, wanted);
    for (size_t i = 0; i < count; i++) {
        out[i] = json_string_value(json_array_get(value, i));
        if (!out[i])
            return fail_kind(r, key, wanted);
    }
    return GD_OK;
}

/* ---- values of the members of a spec ---- */

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
static gd_status read_choice(const reading *r, const gd_spec_field *field, const json_t *value,
                             void *spec)
{
    const char *name = json_string_value(value);
    const char *const *names = gd_choice_names(field->kind);
    char all[128] = "one of";
    for (unsigned i = 0; names[i]; i++) {
        if (name && strcmp(names[i], name) == 0) {
            gd_choice_set(field, spec, i);
            return GD_OK;
        }
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

static gd_status read_index(const reading *r, const char *key, const json_t *value, int64_t *out)
{
    *out = json_integer_value(value);
    return json_is_integer(value) ? GD_OK : fail_kind(r, key, "a whole number");
}

static gd_status read_number_or_null(const reading *r, const char *key, const json_t *value,
                                     double *out)
{
    *out = json_is_null(value) ? (double)NAN : json_number_value(value);
    return json_is_number(value) || json_is_null(value) ? GD_OK
                                                        : fail_kind(r, key, "a number or null");
}

/* A list of numbers as a tensor, a temporary. */
static gd_status read_weights(const reading *r, const char *key, const json_t *value,
                              gd_tensor **out)
{
    static const char wanted[] = "a list of numbers";
    size_t count = json_array_size(value);
    if (count < 1)
        return fail_kind(r, key, wanted);
    double *numbers = gd_alloc_zero(count, sizeof *numbers);
    if (!numbers)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < count; i++) {
        const json_t *number = json_array_get(value, i);
        numbers[i] = json_number_value(number);
        if (!json_is_number(number))
            status = fail_kind(r, key, wanted);
    }
    if (status == GD_OK) {
        *out = gd_from_host(r->context, GD_SHAPE((int64_t)count), GD_F64, numbers);
        status = *out ? GD_OK : gd_error_last();
    }
    gd_free(numbers);
    return status;
}

/* An object as JSON text of our own. */
static gd_status read_object(const reading *r, const char *key, const json_t *value,
                             const char **out)
{
    if (!json_is_object(value))
        return fail_kind(r, key, "an object");
    char *text = json_dumps(value, 0);
    *out = text ? gd_strdup(text) : NULL;
    void (*release)(void *block);
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return *out ? GD_OK : text ? GD_ERR_MEMORY : gd_fail_memory(0);
}

gd_status gd_model_check_config(const char *layer, const char *config)
{
    json_error_t error;
    json_t *object = json_loads(config, JSON_REJECT_DUPLICATES, &error);
    bool ok = json_is_object(object);
    json_decref(object);
    return ok ? GD_OK
              : gd_fail(GD_ERR_FORMAT, "layer \"%s\": its config is no JSON text of an object",
                        layer);
}

static gd_status read_small(const reading *r, const char *key, const json_t *value, int *out)
{
    int64_t small;
    gd_status status = read_count(r, key, value, GD_MAX_RANK, &small);
    *out = status == GD_OK ? (int)small : 0;
    return status;
}

static gd_status read_field(const reading *r, const gd_spec_field *field, const json_t *value,
                            void *spec)
{
    const char *key = field->name;
    void *place = gd_field_in(field, spec);
    switch (field->kind) {
    case GD_FIELD_COUNT:
        return read_count(r, key, value, INT64_MAX, place);
    case GD_FIELD_INDEX:
        return read_index(r, key, value, place);
    case GD_FIELD_SMALL:
        return read_small(r, key, value, place);
    case GD_FIELD_FLAG:
        return read_flag(r, key, value, place);
    case GD_FIELD_NUMBER:
        return read_number(r, key, value, place);
    case GD_FIELD_NUMBER_OR_NULL:
        return read_number_or_null(r, key, value, place);
    case GD_FIELD_AXIS:
        return read_axis(r, key, value, place);
    case GD_FIELD_SIZES:
        return read_sizes(r, key, value, 1, place);
    case GD_FIELD_EACH:
        return read_each(r, key, value, place);
    case GD_FIELD_PADDING:
        return read_padding(r, value, spec);
    case GD_FIELD_INIT:
        return read_init(r, key, value, place);
    case GD_FIELD_NAME:
        return read_text(r, key, value, place);
    case GD_FIELD_OBJECT:
        return read_object(r, key, value, place);
    case GD_FIELD_WEIGHTS:
        return read_weights(r, key, value, place);
    case GD_FIELD_FEED_FORWARD:
    case GD_FIELD_NORM:
    case GD_FIELD_POSITION:
    case GD_FIELD_REDUCTION:
        return read_choice(r, field, value, spec);
    }
    return GD_OK;
}

/* ---- keys ---- */

/* `keys`, ended by NULL, and the table, if any, are all there are. */
static gd_status fail_key(const reading *r, const char *key, const char *const *keys,
                          const gd_field_table *table)
{
    char all[768], words[GD_NEAREST_TEXT];
    size_t at = 0;
    gd_nearest nearest = { .given = key };
    int own = 0;
    while (keys[own])
        own++;
    for (int i = 0; i < own + (table ? table->count : 0) && at < sizeof all; i++) {
        const char *name = i < own ? keys[i] : table->fields[i - own].name;
        gd_nearest_try(&nearest, name);
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", name);
    }
    return gd_fail(GD_ERR_FORMAT, "%s: there is no key \"%.64s\"%s%s there are %s", r->where, key,
                   gd_nearest_words(&nearest, words), nearest.name ? "" : ";", all);
}

static gd_status read_layer_key(const reading *r, const char *key, const json_t *value,
                                gd_layer_spec *layer)
{
    static const char *const keys[] = { "name", "type", "inputs", "activation", NULL };
    const gd_spec_field *field = gd_field_find(&gd_layer_fields, key);
    if (field)
        return read_field(r, field, value, layer);
    if (strcmp(key, "name") == 0)
        return read_text(r, key, value, &layer->name);
    if (strcmp(key, "type") == 0)
        return read_text(r, key, value, &layer->type);
    if (strcmp(key, "inputs") == 0)
        return read_names(r, key, value, GD_LAYER_MAX_INPUTS, layer->inputs);
    if (strcmp(key, "activation") == 0)
        return read_text(r, key, value, &layer->activation);
    return fail_key(r, key, keys, &gd_layer_fields);
}

static gd_status read_loss_key(const reading *r, const char *key, const json_t *value,
                               gd_loss_spec *loss)
{
    static const char *const keys[] = { "type", "outputs", NULL };
    const gd_spec_field *field = gd_field_find(&gd_loss_fields, key);
    if (field)
        return read_field(r, field, value, loss);
    if (strcmp(key, "type") == 0)
        return read_text(r, key, value, &loss->type);
    if (strcmp(key, "outputs") == 0)
        return read_names(r, key, value, GD_LOSS_MAX_OUTPUTS, loss->outputs);
    return fail_key(r, key, keys, &gd_loss_fields);
}

static gd_status read_dtype(const reading *r, const char *key, const json_t *value, gd_dtype *out)
{
    const char *name = json_string_value(value);
    for (int dtype = 0; name && dtype < GD_DTYPE_COUNT; dtype++)
        if (strcmp(gd_dtype_name((gd_dtype)dtype), name) == 0) {
            *out = (gd_dtype)dtype;
            return GD_OK;
        }
    return fail_kind(r, key, "the name of a dtype, such as \"f32\", \"i64\", \"bool\"");
}

static gd_status read_input_key(const reading *r, const char *key, const json_t *value,
                                gd_input_spec *input)
{
    static const char *const keys[] = { "name", "shape", "dtype", NULL };
    if (strcmp(key, "name") == 0)
        return read_text(r, key, value, &input->name);
    if (strcmp(key, "shape") == 0)
        return read_sizes(r, key, value, 0, &input->shape);
    if (strcmp(key, "dtype") == 0)
        return read_dtype(r, key, value, &input->dtype);
    return fail_key(r, key, keys, NULL);
}

/* What messages call element `number` of the list of layers, inputs, losses: `what`. */
static void enter(reading *r, const json_t *object, const char *what, const char *key, int number)
{
    const char *name = json_string_value(json_object_get(object, key));
    if (name)
        snprintf(r->where, sizeof r->where, "%s \"%.64s\"", what, name);
    else
        snprintf(r->where, sizeof r->where, "%s number %d", what, number + 1);
}

static gd_status read_layer(reading *r, json_t *object, int number)
{
    enter(r, object, "layer", "name", number);
    if (!json_is_object(object))
        return gd_fail(GD_ERR_FORMAT, "%s must be an object {\"name\": .., \"type\": ..}",
                       r->where);
    const char *key;
    json_t *value;
    gd_status status = GD_OK;
    json_object_foreach(object, key, value)
    {
        status = read_layer_key(r, key, value, &r->layers[number]);
        if (status != GD_OK)
            break;
    }
    return status;
}

static gd_status read_input(reading *r, json_t *object, int number)
{
    enter(r, object, "input", "name", number);
    if (!json_is_object(object) || !json_object_get(object, "shape"))
        return gd_fail(GD_ERR_FORMAT, "%s must be an object {\"name\": .., \"shape\": [..]}",
                       r->where);
    const char *key;
    json_t *value;
    gd_status status = GD_OK;
    json_object_foreach(object, key, value)
    {
        status = read_input_key(r, key, value, &r->inputs[number]);
        if (status != GD_OK)
            break;
    }
    return status;
}

/* An object, or the type alone. */
static gd_status read_loss(reading *r, json_t *object, int number)
{
    gd_loss_spec *loss = &r->losses[number];
    enter(r, object, "loss", "type", number);
    loss->type = json_string_value(object);
    if (loss->type)
        return GD_OK;
    if (!json_is_object(object) || !json_object_get(object, "type"))
        return gd_fail(GD_ERR_FORMAT, "%s must be the name of a loss, or an object {\"type\": ..}",
                       r->where);
    const char *key;
    json_t *value;
    gd_status status = GD_OK;
    json_object_foreach(object, key, value)
    {
        status = read_loss_key(r, key, value, loss);
        if (status != GD_OK)
            break;
    }
    return status;
}

/* ---- the model ---- */

/* An array of specs with their defaults, one for each element of a list of 1 to `most`. */
static gd_status make_specs(const reading *r, const char *key, const json_t *value, size_t most,
                            const void *defaults, size_t size, void **out, int *count)
{
    size_t n = json_array_size(value);
    char wanted[48];
    snprintf(wanted, sizeof wanted, "a list of 1 to %zu %s", most, key);
    if (n < 1 || n > most)
        return fail_kind(r, key, wanted);
    char *specs = gd_alloc_zero(n, size);
    if (!specs)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        memcpy(specs + i * size, defaults, size);
    *out = specs;
    *count = (int)n;
    return GD_OK;
}

static gd_status read_list(reading *r, const json_t *value, int count,
                           gd_status (*read)(reading *r, json_t *object, int number))
{
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < count; i++)
        status = read(r, json_array_get(value, (size_t)i), i);
    if (status == GD_OK)
        snprintf(r->where, sizeof r->where, "the model");
    return status;
}

static gd_status read_layers(reading *r, const json_t *value)
{
    static const gd_layer_spec defaults = { GD_LAYER_SPEC_DEFAULTS };
    gd_status status = make_specs(r, "layers", value, GD_MODEL_MAX_LAYERS, &defaults,
                                  sizeof defaults, (void **)&r->layers, &r->spec.layer_count);
    r->spec.layers = r->layers;
    return status == GD_OK ? read_list(r, value, r->spec.layer_count, read_layer) : status;
}

static gd_status read_inputs(reading *r, const json_t *value)
{
    static const gd_input_spec defaults = { GD_INPUT_SPEC_DEFAULTS };
    gd_status status = make_specs(r, "inputs", value, GD_MODEL_MAX_INPUTS, &defaults,
                                  sizeof defaults, (void **)&r->inputs, &r->spec.input_count);
    r->spec.inputs = r->inputs;
    return status == GD_OK ? read_list(r, value, r->spec.input_count, read_input) : status;
}

static gd_status read_losses(reading *r, const json_t *value)
{
    static const gd_loss_spec defaults = { GD_LOSS_SPEC_DEFAULTS };
    if (r->losses)
        return gd_fail(GD_ERR_FORMAT, "the model has both \"loss\" and \"losses\"");
    gd_status status = make_specs(r, "losses", value, GD_MODEL_MAX_LOSSES, &defaults,
                                  sizeof defaults, (void **)&r->losses, &r->spec.loss_count);
    r->spec.losses = r->losses;
    return status == GD_OK ? read_list(r, value, r->spec.loss_count, read_loss) : status;
}

/* "loss": .. is "losses": [ .. ]. */
static gd_status read_only_loss(reading *r, json_t *value)
{
    json_t *list = json_pack("[O]", value);
    if (!list)
        return gd_fail_memory(0);
    gd_status status = read_losses(r, list);
    json_decref(list);
    return status;
}

static gd_status read_outputs(reading *r, const json_t *value)
{
    r->outputs = gd_alloc_zero(GD_MODEL_MAX_OUTPUTS, sizeof *r->outputs);
    if (!r->outputs)
        return GD_ERR_MEMORY;
    gd_status status = read_names(r, "outputs", value, GD_MODEL_MAX_OUTPUTS, r->outputs);
    r->spec.outputs = r->outputs;
    r->spec.output_count = (int)json_array_size(value);
    return status;
}

static gd_status read_key(reading *r, const char *key, json_t *value)
{
    static const char *const keys[] = { "input",   "inputs", "layers", "output",
                                        "outputs", "loss",   "losses", NULL };
    if (strcmp(key, "input") == 0)
        return read_sizes(r, key, value, 1, &r->spec.input);
    if (strcmp(key, "inputs") == 0)
        return read_inputs(r, value);
    if (strcmp(key, "layers") == 0)
        return read_layers(r, value);
    if (strcmp(key, "output") == 0)
        return read_text(r, key, value, &r->spec.output);
    if (strcmp(key, "outputs") == 0)
        return read_outputs(r, value);
    if (strcmp(key, "loss") == 0)
        return read_only_loss(r, value);
    if (strcmp(key, "losses") == 0)
        return read_losses(r, value);
    return fail_key(r, key, keys, NULL);
}

static gd_status read_model(reading *r, json_t *root)
{
    snprintf(r->where, sizeof r->where, "the model");
    if (!json_is_object(root))
        return gd_fail(GD_ERR_FORMAT,
                       "the model must be an object {\"input\": [..], \"layers\": [..]}");
    const char *key;
    json_t *value;
    gd_status status = GD_OK;
    json_object_foreach(root, key, value)
    {
        status = read_key(r, key, value);
        if (status != GD_OK)
            return status;
    }
    if (!r->layers)
        return gd_fail(GD_ERR_FORMAT, "the model has no \"layers\"");
    if (r->spec.input.rank == 0 && !r->inputs)
        return gd_fail(GD_ERR_FORMAT, "the model has no \"input\"");
    return GD_OK;
}

static void free_reading(reading *r)
{
    for (int i = 0; r->layers && i < r->spec.layer_count; i++)
        gd_free((void *)(uintptr_t)r->layers[i].config); /* ours: read_object */
    gd_free(r->layers);
    gd_free(r->inputs);
    gd_free(r->losses);
    gd_free(r->outputs);
}

/* What is read makes temporaries: the weights of losses. */
static gd_model *read_root(gd_context *context, json_t *root, const gd_model_options *o,
                           const gd_model_source *source)
{
    reading r = { .context = context, .spec = { GD_MODEL_SPEC_DEFAULTS } };
    gd_model *model = NULL;
    gd_trace_pause(context);
    if (gd_scope_begin(context) == GD_OK) {
        if (read_model(&r, root) == GD_OK)
            model = gd_model_make(context, &r.spec, o, source);
        (void)gd_scope_end(context);
    }
    gd_trace_resume(context);
    free_reading(&r);
    return model;
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

/* Put the path before the error recorded since the mark: parse() names it itself. */
static void name_file(const char *path, uint64_t mark)
{
    char message[GD_ERROR_MESSAGE_BYTES];
    const gd_status status = gd_error_since(mark);
    if (status == GD_OK)
        return;
    snprintf(message, sizeof message, "%s", gd_error_last_message());
    gd_error_rollback(mark);
    (void)gd_fail(status, "%s: %s", path, message);
}

gd_model *gd_model_read_json(gd_context *context, const char *who, const char *json,
                             const gd_model_options *o, const gd_model_source *source)
{
    if (!json)
        return gd_fail_null(GD_ERR_INVALID, "%s: neither a path nor text", who);
    json_t *root = parse(json);
    if (!root)
        return NULL;
    const uint64_t mark = gd_error_mark();
    gd_model *model = read_root(context, root, o, source);
    json_decref(root);
    if (!model && !is_text(json))
        name_file(json, mark);
    return model;
}

#else

gd_status gd_model_check_config(const char *layer, const char *config)
{
    (void)layer, (void)config;
    return GD_OK; /* nobody will read it */
}

gd_model *gd_model_read_json(gd_context *context, const char *who, const char *json,
                             const gd_model_options *o, const gd_model_source *source)
{
    (void)context, (void)json, (void)o, (void)source;
    return gd_fail_null(GD_ERR_UNSUPPORTED,
                        "%s: this build cannot read JSON (it was built without jansson); "
                        "gd_model_create takes the same model from C",
                        who);
}

#endif

gd_model *gd_model_load_json_with(gd_context *context, const char *json,
                                  const gd_model_options *options)
{
    static const char who[] = "gd_model_load_json";
    gd_model_options o = { GD_MODEL_DEFAULTS };
    if (!context || !gd_options_read(who, &o, sizeof o, options))
        return NULL;
    return gd_model_read_json(context, who, json, &o, NULL);
}
