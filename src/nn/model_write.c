/* nn/model_write.c: a model as JSON. Start at gd_model_format_json(); reading is nn/model_json.c.
 */
#include "nn/model.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON

#include <jansson.h>

/* sizes as a list, or as one number where that says the same */
static json_t *sizes_value(const gd_shape *sizes, bool one)
{
    if (one && sizes->rank == 1)
        return json_integer(sizes->dim[0]);
    json_t *list = json_array();
    for (int i = 0; list && i < sizes->rank; i++)
        if (json_array_append_new(list, json_integer(sizes->dim[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *field_value(const gd_layer_field *field, const gd_layer_spec *spec)
{
    const void *value = gd_field_of(field, spec);
    switch (field->kind) {
    case GD_FIELD_COUNT:
        return json_integer(*(const int64_t *)value);
    case GD_FIELD_SMALL:
    case GD_FIELD_AXIS:
        return json_integer(*(const int *)value);
    case GD_FIELD_FLAG:
        return json_boolean(*(const bool *)value);
    case GD_FIELD_NUMBER:
        return json_real(*(const double *)value);
    case GD_FIELD_SIZES:
        return sizes_value(value, false);
    case GD_FIELD_EACH:
        return sizes_value(value, true);
    case GD_FIELD_PADDING:
        return spec->same ? json_string("same") : sizes_value(value, true);
    case GD_FIELD_INIT:
        return json_string(gd_init_name(*(const gd_init *)value));
    case GD_FIELD_FEED_FORWARD:
    case GD_FIELD_NORM:
    case GD_FIELD_POSITION:
        return json_string(gd_choice_names(field->kind)[gd_choice_of(field, spec)]);
    }
    return NULL;
}

static json_t *inputs_value(const gd_model *model, const gd_model_layer *layer)
{
    json_t *list = json_array();
    for (int i = 0; list && i < layer->input_count; i++) {
        int number = layer->inputs[i];
        const char *name = number == GD_MODEL_INPUT ? "input" : model->layers[number].name;
        if (json_array_append_new(list, json_string(name)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *layer_value(const gd_model *model, const gd_model_layer *layer)
{
    json_t *object = json_object();
    bool ok = object && json_object_set_new(object, "name", json_string(layer->name)) == 0 &&
              json_object_set_new(object, "type", json_string(layer->type->name)) == 0 &&
              json_object_set_new(object, "inputs", inputs_value(model, layer)) == 0;
    for (int i = 0; ok && i < GD_LAYER_FIELD_COUNT; i++)
        if (gd_field_is_given(&gd_layer_fields[i], &layer->spec))
            ok = json_object_set_new(object, gd_layer_fields[i].name,
                                     field_value(&gd_layer_fields[i], &layer->spec)) == 0;
    if (ok && layer->activation)
        ok = json_object_set_new(object, "activation", json_string(layer->activation->name)) == 0;
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *model_value(const gd_model *model)
{
    json_t *object = json_object(), *layers = json_array();
    bool ok = object && layers;
    for (int i = 0; ok && i < model->count; i++)
        ok = json_array_append_new(layers, layer_value(model, &model->layers[i])) == 0;
    ok = ok && json_object_set_new(object, "input", sizes_value(&model->input, false)) == 0 &&
         json_object_set_new(object, "loss", json_string(model->loss->name)) == 0 &&
         json_object_set_new(object, "output", json_string(model->layers[model->output].name)) ==
             0 &&
         json_object_set(object, "layers", layers) == 0;
    json_decref(layers);
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

size_t gd_model_format_json(const gd_model *model, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    if (!model)
        return 0;
    json_t *object = model_value(model);
    char *whole = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    if (!whole) {
        (void)gd_fail(GD_ERR_MEMORY, "out of memory while writing JSON");
        return 0;
    }
    size_t length = strlen(whole);
    if (size)
        snprintf(text, size, "%s", whole);
    void (*release)(void *block);
    json_get_alloc_funcs(NULL, &release);
    release(whole);
    return length;
}

#else

size_t gd_model_format_json(const gd_model *model, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    if (model)
        (void)gd_fail(GD_ERR_UNSUPPORTED,
                      "gd_model_format_json: this build cannot write JSON (it was built without "
                      "jansson)");
    return 0;
}

#endif
