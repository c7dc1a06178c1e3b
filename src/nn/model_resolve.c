/* nn/model_resolve.c: a spec checked and resolved: names to values, an order in which inputs come
 * first. Start at gd_model_resolve(). What a layer's values mean is its build function's business. */
#include "nn/model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/options.h"

#include <stdio.h>
#include <string.h>

gd_status gd_read_spec(const char *who, const void *array, int i, void *own, size_t size)
{
    size_t step = *(const size_t *)array;
    const void *given = (const char *)array + (size_t)i * step;
    return gd_options_read(who, own, size, given) ? GD_OK : gd_error_last();
}

const char *gd_model_value_name(const gd_model *model, int value)
{
    return value < model->input_count ? model->inputs[value].name
                                      : model->layers[value - model->input_count].name;
}

bool gd_is_below(const char *path, const char *name)
{
    size_t length = strlen(name);
    return strncmp(path, name, length) == 0 && path[length] == '.';
}

/* No layer's name is that of another with a dot and more behind it: see check_name. */
int gd_model_owner(const gd_model *model, const char *path)
{
    char name[256];
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t length = (size_t)(dot - path);
        if (length >= sizeof name)
            return -1;
        memcpy(name, path, length);
        name[length] = '\0';
        int value = gd_names_find(&model->names, name);
        if (value >= model->input_count)
            return value - model->input_count;
    }
    return -1;
}

/* ---- inputs ---- */

static gd_status check_shape(const gd_input_spec *input)
{
    if (input->shape.rank < 0 || input->shape.rank >= GD_MAX_RANK)
        return gd_fail(GD_ERR_SHAPE,
                       "model: the input \"%s\" has %d axes; up to %d are allowed beside the batch",
                       input->name, input->shape.rank, GD_MAX_RANK - 1);
    int64_t count = 1;
    for (int i = 0; i < input->shape.rank; i++) {
        if (input->shape.dim[i] < 1 || input->shape.dim[i] > (INT64_C(1) << 40) / count)
            return gd_fail(GD_ERR_SHAPE, "model: size %d of the input \"%s\" is %lld", i,
                           input->name, (long long)input->shape.dim[i]);
        count *= input->shape.dim[i];
    }
    return GD_OK;
}

static gd_status take_input(gd_model *model, const gd_input_spec *given)
{
    int number = model->input_count;
    if (!given->name || !*given->name)
        return gd_fail(GD_ERR_INVALID, "model: input number %d has no name", number + 1);
    if ((unsigned)given->dtype >= GD_DTYPE_COUNT)
        return gd_fail(GD_ERR_DTYPE, "model: the input \"%s\" has no dtype", given->name);
    if (gd_names_find(&model->names, given->name) >= 0)
        return gd_fail(GD_ERR_INVALID, "model: two inputs are called \"%s\"", given->name);
    gd_status status = check_shape(given);
    if (status != GD_OK)
        return status;
    gd_input_spec *input = &model->inputs[number];
    *input = *given;
    input->name = gd_strdup(given->name);
    if (!input->name)
        return GD_ERR_MEMORY;
    model->input_count++;
    return gd_names_add(&model->names, input->name, number) ? GD_OK : GD_ERR_MEMORY;
}

static gd_status take_inputs(gd_model *model, const gd_model_spec *spec)
{
    const gd_input_spec only = { GD_INPUT_SPEC_DEFAULTS, .name = "input", .shape = spec->input };
    bool several = spec->input_count != 0 || spec->inputs;
    if (several && spec->input.rank)
        return gd_fail(GD_ERR_INVALID, "model: both input and inputs are given");
    if (!several && spec->input.rank < 1)
        return gd_fail(GD_ERR_SHAPE,
                       "model: the input has 0 axes; it needs one beside the batch, or "
                       "a place among several inputs");
    int count = several ? spec->input_count : 1;
    if (count < 1 || count > GD_MODEL_MAX_INPUTS || (several && !spec->inputs))
        return gd_fail(GD_ERR_INVALID, "model: there are %d inputs; 1 to %d are allowed",
                       spec->inputs || !several ? count : 0, GD_MODEL_MAX_INPUTS);
    model->inputs = gd_alloc_zero((size_t)count, sizeof *model->inputs);
    if (!model->inputs)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < count; i++) {
        gd_input_spec input = { GD_INPUT_SPEC_DEFAULTS };
        status =
            gd_read_spec("gd_input_spec", several ? spec->inputs : &only, i, &input, sizeof input);
        if (status == GD_OK)
            status = take_input(model, &input);
    }
    return status;
}

/* ---- layers ---- */

static gd_status check_count(const gd_layer_spec *spec, const gd_spec_field *field)
{
    int64_t count = field->kind == GD_FIELD_COUNT ? *(const int64_t *)gd_field_of(field, spec)
                                                  : *(const int *)gd_field_of(field, spec);
    if (count < 1)
        return gd_fail(GD_ERR_INVALID, "layer \"%s\": \"%s\" is %lld, it must be at least 1",
                       spec->name, field->name, (long long)count);
    if (count > INT64_C(1) << 31)
        return gd_fail(GD_ERR_INVALID,
                       "layer \"%s\": \"%s\" is %lld, more than any machine has memory for",
                       spec->name, field->name, (long long)count);
    return GD_OK;
}

static gd_status check_uses(const gd_layer_spec *spec, const gd_layer_type *type)
{
    uint64_t given = gd_fields_given(&gd_layer_fields, spec);
    uint64_t extra = given & ~(type->uses | GD_USES(CHECKPOINT)), missing = type->needs & ~given;
    if (extra)
        return gd_fail(GD_ERR_INVALID, "layer \"%s\": type %s does not use \"%s\"", spec->name,
                       type->name, gd_field_name(&gd_layer_fields, extra));
    if (missing)
        return gd_fail(GD_ERR_INVALID, "layer \"%s\": type %s needs \"%s\"", spec->name, type->name,
                       gd_field_name(&gd_layer_fields, missing));
    gd_status status = GD_OK;
    for (unsigned i = 0; status == GD_OK && i < GD_LAYER_FIELD_COUNT; i++) {
        const gd_spec_field *field = &gd_layer_fields.fields[i];
        if ((given >> i & 1) && (field->kind == GD_FIELD_COUNT || field->kind == GD_FIELD_SMALL))
            status = check_count(spec, field);
    }
    return status;
}

/* "layer \"a\"", for messages. */
#define WHO 96
static const char *who_of(const gd_layer_spec *spec, char text[WHO])
{
    snprintf(text, WHO, "layer \"%.64s\"", spec->name);
    return text;
}

static gd_status find_types(gd_model *model, gd_model_layer *layer, const gd_layer_spec *spec)
{
    char who[WHO];
    if (!spec->type)
        return gd_fail(GD_ERR_INVALID, "%s has no type", who_of(spec, who));
    layer->type = gd_layer_type_find(model->context, spec->type);
    if (!layer->type)
        return gd_layer_type_fail(model->context, who_of(spec, who), spec->type, false);
    if (!spec->activation)
        return GD_OK;
    layer->activation = gd_layer_type_find(model->context, spec->activation);
    if (!layer->activation || !layer->activation->is_activation)
        return gd_layer_type_fail(model->context, who_of(spec, who), spec->activation, true);
    return GD_OK;
}

/* Everything of layer `i` but the values it takes. */
static gd_status take_layer(gd_model *model, const gd_layer_spec *spec, int i)
{
    gd_model_layer *layer = &model->layers[i];
    if (!spec->name || !*spec->name)
        return gd_fail(GD_ERR_INVALID, "model: layer number %d has no name", i + 1);
    gd_status status = find_types(model, layer, spec);
    if (status == GD_OK)
        status = check_uses(spec, layer->type);
    if (status != GD_OK)
        return status;
    int other = gd_names_find(&model->names, spec->name);
    if (other >= 0 && other < model->input_count)
        return gd_fail(GD_ERR_INVALID,
                       "model: layer number %d is called \"%s\", which is an input of the model",
                       i + 1, spec->name);
    if (other >= 0)
        return gd_fail(GD_ERR_INVALID, "model: two layers are called \"%s\"", spec->name);
    if (spec->config)
        status = gd_model_check_config(spec->name, spec->config);
    if (status != GD_OK)
        return status;
    layer->name = gd_strdup(spec->name);
    layer->config = spec->config ? gd_strdup(spec->config) : NULL;
    if (!layer->name || (spec->config && !layer->config) ||
        !gd_names_add(&model->names, layer->name, model->input_count + i))
        return GD_ERR_MEMORY;
    layer->model = model;
    layer->spec = *spec;
    layer->spec.size = sizeof layer->spec;
    layer->spec.name = layer->name;
    layer->spec.type = layer->type->name;
    layer->spec.activation = layer->activation ? layer->activation->name : NULL;
    layer->spec.config = layer->config;
    return GD_OK;
}

/* A layer's parameters are told by their paths, which begin with its name and a dot. */
static gd_status check_name(const gd_model *model, const gd_model_layer *layer)
{
    int owner = gd_model_owner(model, layer->name);
    if (owner < 0)
        return GD_OK;
    return gd_fail(
        GD_ERR_INVALID,
        "model: the layer \"%s\" cannot be told from parameters of the layer \"%s\"; call "
        "it otherwise",
        layer->name, model->layers[owner].name);
}

/* ---- what a layer takes ---- */

/* The value called `name`; *known gets its name in the model. */
static gd_status find_value(const gd_model *model, const gd_model_layer *layer, const char *what,
                            const char *name, int *value, const char **known)
{
    *value = gd_names_find(&model->names, name);
    if (*value >= 0) {
        *known = gd_model_value_name(model, *value);
        return GD_OK;
    }
    char words[GD_NEAREST_TEXT];
    gd_nearest nearest = { .given = name };
    for (int i = 0; i < model->input_count + model->count; i++)
        gd_nearest_try(&nearest, gd_model_value_name(model, i));
    return gd_fail(GD_ERR_INVALID,
                   "layer \"%s\": its %s \"%.64s\" is no layer of the model, nor an input of it%s",
                   layer->name, what, name, gd_nearest_words(&nearest, words));
}

static gd_status resolve_operands(gd_model *model, gd_model_layer *layer)
{
    gd_status status = GD_OK;
    for (int k = 0; status == GD_OK && k < GD_OPERAND_COUNT; k++) {
        const gd_spec_field *field = &gd_layer_fields.fields[GD_FIELD_ID_MASK + k];
        const char **name = gd_field_text(field, &layer->spec);
        if (*name)
            status = find_value(model, layer, field->name, *name,
                                &layer->inputs[layer->input_count + layer->operand_count++], name);
    }
    return status;
}

/* Names to values, once all layers are known. */
static gd_status resolve_layer(gd_model *model, int i)
{
    gd_model_layer *layer = &model->layers[i];
    const gd_layer_type *type = layer->type;
    const char **names = layer->spec.inputs;
    if (!names[0])
        names[0] = gd_model_value_name(model, i > 0 ? model->input_count + i - 1 : 0);
    gd_status status = GD_OK;
    for (int k = 0; status == GD_OK && k < GD_LAYER_MAX_INPUTS && names[k]; k++)
        status = find_value(model, layer, "input", names[k], &layer->inputs[layer->input_count++],
                            &names[k]);
    if (status != GD_OK)
        return status;
    if (layer->input_count < type->min_inputs || layer->input_count > type->max_inputs)
        return gd_fail(GD_ERR_INVALID, "layer \"%s\": type %s takes %s%d input%s, not %d",
                       layer->name, type->name,
                       type->max_inputs > type->min_inputs ? "at least " : "", type->min_inputs,
                       type->min_inputs == 1 ? "" : "s", layer->input_count);
    return resolve_operands(model, layer);
}

/* ---- order ---- */

static bool is_ready(const gd_model *model, const gd_model_layer *layer, const bool *done)
{
    for (int k = 0; k < layer->input_count + layer->operand_count; k++)
        if (layer->inputs[k] >= model->input_count && !done[layer->inputs[k] - model->input_count])
            return false;
    return true;
}

/* Each round takes, in the order of the list, what has become ready. One round when the list is in
 * order already. */
static gd_status order_layers(gd_model *model)
{
    bool *done = gd_alloc_zero((size_t)model->count, sizeof *done);
    if (!done)
        return GD_ERR_MEMORY;
    int placed = 0, before = -1;
    while (placed > before && placed < model->count) {
        before = placed;
        for (int i = 0; i < model->count; i++)
            if (!done[i] && is_ready(model, &model->layers[i], done)) {
                done[i] = true;
                model->order[placed++] = i;
            }
    }
    gd_status status = GD_OK;
    for (int i = 0; i < model->count && status == GD_OK; i++)
        if (!done[i])
            status = gd_fail(
                GD_ERR_INVALID,
                "model: layer \"%s\" depends on itself, directly or through others (a cycle)",
                model->layers[i].name);
    gd_free(done);
    return status;
}

/* Which layers see maps and which give them: in order, inputs come first. */
static void find_maps(gd_model *model)
{
    for (int at = 0; at < model->count; at++) {
        gd_model_layer *layer = &model->layers[model->order[at]];
        layer->is_maps = layer->type->maps == GD_MAPS_YES;
        for (int k = 0; k < layer->input_count; k++) {
            int i = layer->inputs[k] - model->input_count;
            bool maps = i >= 0 && model->layers[i].is_maps;
            layer->of_maps |= maps && k == 0;
            layer->is_maps |= maps && layer->type->maps == GD_MAPS_AS_INPUT;
        }
    }
}

static void mark_used(const gd_model *model, bool *used)
{
    for (int k = 0; k < model->output_count; k++)
        used[model->input_count + model->outputs[k]] = true;
    for (int at = model->count; at-- > 0;) {
        const gd_model_layer *layer = &model->layers[model->order[at]];
        bool is_used = used[model->input_count + model->order[at]];
        for (int k = 0; is_used && k < layer->input_count + layer->operand_count; k++)
            used[layer->inputs[k]] = true;
    }
}

/* A layer or an input that nothing uses is an error in the spec. */
static gd_status check_all_used(const gd_model *model)
{
    bool *used = gd_alloc_zero((size_t)model->input_count + (size_t)model->count, sizeof *used);
    if (!used)
        return GD_ERR_MEMORY;
    mark_used(model, used);
    gd_status status = GD_OK;
    for (int i = 0; i < model->input_count + model->count && status == GD_OK; i++)
        if (!used[i])
            status = gd_fail(GD_ERR_INVALID,
                             "model: nothing leads from %s \"%s\" to the output%s "
                             "\"%s\"%s",
                             i < model->input_count ? "the input" : "layer",
                             gd_model_value_name(model, i), model->output_count > 1 ? "s" : "",
                             model->layers[model->outputs[0]].name,
                             model->output_count > 1 ? ", …" : "");
    gd_free(used);
    return status;
}

/* ---- outputs ---- */

static gd_status take_output(gd_model *model, const char *name)
{
    int value = name ? gd_names_find(&model->names, name) : -1;
    if (value < model->input_count) {
        char words[GD_NEAREST_TEXT];
        gd_nearest nearest = { .given = name ? name : "" };
        for (int i = 0; i < model->count; i++)
            gd_nearest_try(&nearest, model->layers[i].name);
        return gd_fail(GD_ERR_INVALID, "model: the output \"%.64s\" is no layer of the model%s",
                       nearest.given, gd_nearest_words(&nearest, words));
    }
    for (int k = 0; k < model->output_count; k++)
        if (model->outputs[k] == value - model->input_count)
            return gd_fail(GD_ERR_INVALID, "model: the output \"%s\" is listed twice", name);
    model->outputs[model->output_count++] = value - model->input_count;
    return GD_OK;
}

static gd_status take_outputs(gd_model *model, const gd_model_spec *spec)
{
    if (spec->output && spec->output_count)
        return gd_fail(GD_ERR_INVALID, "model: both output and outputs are given");
    if (spec->output)
        return take_output(model, spec->output);
    if (spec->output_count < 0 || spec->output_count > GD_MODEL_MAX_OUTPUTS ||
        (spec->output_count && !spec->outputs))
        return gd_fail(GD_ERR_INVALID, "model: there are %d outputs; 1 to %d are allowed",
                       spec->outputs ? spec->output_count : 0, GD_MODEL_MAX_OUTPUTS);
    if (!spec->output_count)
        return take_output(model, model->layers[model->count - 1].name);
    gd_status status = GD_OK;
    for (int k = 0; status == GD_OK && k < spec->output_count; k++)
        status = take_output(model, spec->outputs[k]);
    return status;
}

static gd_status take_layers(gd_model *model, const gd_model_spec *spec)
{
    if (!spec->layers || spec->layer_count < 1 || spec->layer_count > GD_MODEL_MAX_LAYERS)
        return gd_fail(GD_ERR_INVALID, "model: there are %d layers; 1 to %d are allowed",
                       spec->layers ? spec->layer_count : 0, GD_MODEL_MAX_LAYERS);
    size_t count = (size_t)spec->layer_count;
    model->layers = gd_alloc_zero(count, sizeof *model->layers);
    model->order = gd_alloc_zero(count, sizeof *model->order);
    model->values = gd_alloc_zero(count + (size_t)model->input_count, sizeof(gd_tensor *));
    if (!model->layers || !model->order || !model->values)
        return GD_ERR_MEMORY;
    model->count = spec->layer_count;
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < model->count; i++) {
        gd_layer_spec layer = { GD_LAYER_SPEC_DEFAULTS };
        status = gd_read_spec("gd_layer_spec", spec->layers, i, &layer, sizeof layer);
        if (status == GD_OK)
            status = take_layer(model, &layer, i);
    }
    for (int i = 0; status == GD_OK && i < model->count; i++)
        status = check_name(model, &model->layers[i]);
    for (int i = 0; status == GD_OK && i < model->count; i++)
        status = resolve_layer(model, i);
    return status;
}

gd_status gd_model_resolve(gd_model *model, const gd_model_spec *spec)
{
    gd_status status = take_inputs(model, spec);
    if (status == GD_OK)
        status = take_layers(model, spec);
    if (status == GD_OK)
        status = take_outputs(model, spec);
    if (status == GD_OK)
        status = order_layers(model);
    if (status != GD_OK)
        return status;
    find_maps(model);
    status = check_all_used(model);
    return status == GD_OK ? gd_model_resolve_losses(model, spec) : status;
}
