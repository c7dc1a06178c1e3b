/* nn/model_write.c: a model as JSON. Start at gd_model_format_json(); reading is nn/model_json.c.
 */
#include "nn/model.h"

#include "base/error.h"
#include "base/memory.h"

#include <gradus/compile.h>
#include <gradus/ops.h>

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

/* numbers of a weight, in the order of memory */
static json_t *weights_value(gd_tensor *weight)
{
    gd_context *context = gd_tensor_context(weight);
    int64_t count = gd_tensor_count(weight);
    size_t bytes = (size_t)count * sizeof(double);
    double *numbers = gd_alloc_zero((size_t)count + 1, sizeof *numbers);
    if (!numbers || gd_scope_begin(context) != GD_OK) {
        gd_free(numbers);
        return NULL;
    }
    gd_trace_pause(context);
    gd_tensor *wide = gd_cast(weight, GD_F64);
    json_t *list = wide && gd_tensor_read(wide, numbers, bytes) == GD_OK ? json_array() : NULL;
    gd_trace_resume(context);
    (void)gd_scope_end(context);
    for (int64_t i = 0; list && i < count; i++)
        if (json_array_append_new(list, json_real(numbers[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    gd_free(numbers);
    return list;
}

static json_t *field_value(const gd_spec_field *field, const void *spec)
{
    const void *value = gd_field_of(field, spec);
    switch (field->kind) {
    case GD_FIELD_COUNT:
    case GD_FIELD_INDEX:
        return json_integer(*(const int64_t *)value);
    case GD_FIELD_SMALL:
    case GD_FIELD_AXIS:
        return json_integer(*(const int *)value);
    case GD_FIELD_FLAG:
        return json_boolean(*(const bool *)value);
    case GD_FIELD_NUMBER:
        return json_real(*(const double *)value);
    case GD_FIELD_NUMBER_OR_NULL:
        return isnan(*(const double *)value) ? json_null() : json_real(*(const double *)value);
    case GD_FIELD_SIZES:
        return sizes_value(value, false);
    case GD_FIELD_EACH:
        return sizes_value(value, true);
    case GD_FIELD_PADDING:
        return ((const gd_layer_spec *)spec)->same ? json_string("same") : sizes_value(value, true);
    case GD_FIELD_INIT:
        return json_string(gd_init_name(*(const gd_init *)value));
    case GD_FIELD_NAME:
        return json_string(*(const char *const *)value);
    case GD_FIELD_OBJECT:
        return json_loads(*(const char *const *)value, JSON_REJECT_DUPLICATES, NULL);
    case GD_FIELD_WEIGHTS:
        return weights_value(*(gd_tensor *const *)value);
    case GD_FIELD_FEED_FORWARD:
    case GD_FIELD_NORM:
    case GD_FIELD_POSITION:
    case GD_FIELD_REDUCTION:
        return json_string(gd_choice_names(field->kind)[gd_choice_of(field, spec)]);
    }
    return NULL;
}

/* What a spec gives, as keys of an object. */
static bool set_fields(json_t *object, const gd_field_table *table, const void *spec)
{
    bool ok = true;
    for (int i = 0; ok && i < table->count; i++)
        if (gd_field_is_given(table, &table->fields[i], spec))
            ok = json_object_set_new(object, table->fields[i].name,
                                     field_value(&table->fields[i], spec)) == 0;
    return ok;
}

/* Up to `most` names, as many as there are. */
static json_t *names_value(const char *const *names, int most)
{
    json_t *list = json_array();
    for (int i = 0; list && i < most && names[i]; i++)
        if (json_array_append_new(list, json_string(names[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* The object where all of it was made, else nothing. */
static json_t *whole(json_t *object, bool ok)
{
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *layer_value(const gd_layer_spec *layer)
{
    json_t *object = json_object();
    bool ok = object && json_object_set_new(object, "name", json_string(layer->name)) == 0 &&
              json_object_set_new(object, "type", json_string(layer->type)) == 0 &&
              json_object_set_new(object, "inputs",
                                  names_value(layer->inputs, GD_LAYER_MAX_INPUTS)) == 0 &&
              set_fields(object, &gd_layer_fields, layer);
    if (ok && layer->activation)
        ok = json_object_set_new(object, "activation", json_string(layer->activation)) == 0;
    return whole(object, ok);
}

static json_t *input_value(const gd_input_spec *input)
{
    json_t *object = json_object();
    bool ok = object && json_object_set_new(object, "name", json_string(input->name)) == 0 &&
              json_object_set_new(object, "shape", sizes_value(&input->shape, false)) == 0 &&
              json_object_set_new(object, "dtype", json_string(gd_dtype_name(input->dtype))) == 0;
    return whole(object, ok);
}

static json_t *loss_value(const gd_loss_spec *loss)
{
    json_t *object = json_object();
    bool ok = object && json_object_set_new(object, "type", json_string(loss->type)) == 0 &&
              json_object_set_new(object, "outputs",
                                  names_value(loss->outputs, GD_LOSS_MAX_OUTPUTS)) == 0 &&
              set_fields(object, &gd_loss_fields, loss);
    return whole(object, ok);
}

static json_t *element_value(const gd_model *model, int list, int i)
{
    switch (list) {
    case 0:
        return input_value(&model->inputs[i]);
    case 1:
        return layer_value(&model->layers[i].spec);
    case 2:
        return json_string(gd_model_output_name(model, i));
    default:
        return loss_value(&model->losses[i].spec);
    }
}

static json_t *model_value(const gd_model *model)
{
    static const char *const keys[] = { "inputs", "layers", "outputs", "losses" };
    const int counts[] = { model->input_count, model->count, model->output_count,
                           model->loss_count };
    json_t *object = json_object();
    bool ok = object;
    for (int list = 0; ok && list < 4; list++) {
        json_t *elements = json_array();
        ok = elements;
        for (int i = 0; ok && i < counts[list]; i++)
            ok = json_array_append_new(elements, element_value(model, list, i)) == 0;
        if (ok && counts[list])
            ok = json_object_set(object, keys[list], elements) == 0;
        json_decref(elements);
    }
    return whole(object, ok);
}

/* Write `value`, which is released, by the conventions of gd_tensor_format. */
static size_t write_text(json_t *value, char *text, size_t size)
{
    char *all = value ? json_dumps(value, JSON_INDENT(2)) : NULL;
    json_decref(value);
    if (!all) {
        (void)gd_fail(GD_ERR_MEMORY, "out of memory while writing JSON");
        return 0;
    }
    size_t length = strlen(all);
    if (size)
        snprintf(text, size, "%s", all);
    void (*release)(void *block);
    json_get_alloc_funcs(NULL, &release);
    release(all);
    return length;
}

size_t gd_model_format_json(const gd_model *model, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    return model ? write_text(model_value(model), text, size) : 0;
}

size_t gd_model_layer_format_json(const gd_model *model, int layer, char *text, size_t size)
{
    const gd_layer_spec *spec = gd_model_layer_spec(model, layer);
    if (size)
        text[0] = '\0';
    return spec ? write_text(layer_value(spec), text, size) : 0;
}

#else

static size_t fail_unsupported(const char *who, const void *object, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    if (object)
        (void)gd_fail(GD_ERR_UNSUPPORTED,
                      "%s: this build cannot write JSON (it was built without jansson)", who);
    return 0;
}

size_t gd_model_format_json(const gd_model *model, char *text, size_t size)
{
    return fail_unsupported("gd_model_format_json", model, text, size);
}

size_t gd_model_layer_format_json(const gd_model *model, int layer, char *text, size_t size)
{
    return fail_unsupported("gd_model_layer_format_json", gd_model_layer_spec(model, layer), text,
                            size);
}

#endif
