/* nn/model.c: models written as data. A spec is checked and resolved once (names to numbers, an
 * order in which inputs come first); then a trial run on one sample makes the parameters and finds
 * out whether the shapes fit. Start at gd_model_create_with(); types of layers are in
 * nn/layer_types.c, JSON in nn/model_json.c. */
#include "nn/model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <stdio.h>
#include <string.h>

static const gd_model_loss_row losses[] = {
    { "cross_entropy", gd_cross_entropy, gd_cross_entropy_probabilities },
    { "mse", gd_mse, NULL },
};

/* ---- checking a spec ---- */

static gd_status check_input(const gd_model_spec *spec)
{
    if (spec->input.rank < 1 || spec->input.rank >= GD_MAX_RANK)
        return gd_fail(GD_ERR_SHAPE,
                       "model: the input has %d axes; 1 to %d are allowed beside the batch",
                       spec->input.rank, GD_MAX_RANK - 1);
    int64_t count = 1;
    for (int i = 0; i < spec->input.rank; i++) {
        if (spec->input.dim[i] < 1 || spec->input.dim[i] > (INT64_C(1) << 40) / count)
            return gd_fail(GD_ERR_SHAPE, "model: size %d of the input is %lld", i,
                           (long long)spec->input.dim[i]);
        count *= spec->input.dim[i];
    }
    if (!spec->layers || spec->layer_count < 1 || spec->layer_count > GD_MODEL_MAX_LAYERS)
        return gd_fail(GD_ERR_INVALID, "model: there are %d layers; 1 to %d are allowed",
                       spec->layers ? spec->layer_count : 0, GD_MODEL_MAX_LAYERS);
    return GD_OK;
}

/* Layer i as this version has it; the caller's structs are as large as the first one says. */
static gd_status read_layer(const gd_model_spec *spec, int i, gd_layer_spec *layer)
{
    size_t step = spec->layers->size;
    *layer = (gd_layer_spec){ GD_LAYER_SPEC_DEFAULTS };
    const void *given = (const char *)spec->layers + (size_t)i * step;
    return gd_options_read("gd_layer_spec", layer, sizeof *layer, given) ? GD_OK : gd_error_last();
}

static gd_status check_count(const gd_layer_spec *spec, const gd_layer_field *field)
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
    uint64_t given = gd_layer_spec_given(spec);
    uint64_t extra = given & ~(type->uses | GD_USES(CHECKPOINT)), missing = type->needs & ~given;
    if (extra)
        return gd_fail(GD_ERR_INVALID, "layer \"%s\": type %s does not use \"%s\"", spec->name,
                       type->name, gd_layer_use_name(extra));
    if (missing)
        return gd_fail(GD_ERR_INVALID, "layer \"%s\": type %s needs \"%s\"", spec->name, type->name,
                       gd_layer_use_name(missing));
    gd_status status = GD_OK;
    for (unsigned i = 0; status == GD_OK && i < GD_LAYER_FIELD_COUNT; i++) {
        const gd_layer_field *field = &gd_layer_fields[i];
        if ((given >> i & 1) && (field->kind == GD_FIELD_COUNT || field->kind == GD_FIELD_SMALL))
            status = check_count(spec, field);
    }
    return status;
}

/* Name, type and activation of layer `i`. */
static gd_status take_layer(gd_model *model, const gd_layer_spec *spec, int i)
{
    char allowed[GD_LAYER_TYPES_TEXT];
    gd_model_layer *layer = &model->layers[i];
    if (!spec->name || !*spec->name || strcmp(spec->name, "input") == 0)
        return gd_fail(GD_ERR_INVALID, "model: layer number %d %s", i + 1,
                       spec->name && *spec->name ? "is called \"input\", which is the model's input"
                                                 : "has no name");
    if (!spec->type)
        return gd_fail(GD_ERR_INVALID, "layer \"%s\" has no type; there are %s", spec->name,
                       gd_layer_types_text(false, allowed));
    layer->type = gd_layer_type_find(spec->type);
    if (!layer->type)
        return gd_fail(GD_ERR_INVALID, "layer \"%s\": there is no type \"%s\"; there are %s",
                       spec->name, spec->type, gd_layer_types_text(false, allowed));
    if (spec->activation) {
        layer->activation = gd_layer_type_find(spec->activation);
        if (!layer->activation || !layer->activation->is_activation)
            return gd_fail(GD_ERR_INVALID,
                           "layer \"%s\": there is no activation \"%s\"; there are %s", spec->name,
                           spec->activation, gd_layer_types_text(true, allowed));
    }
    gd_status status = check_uses(spec, layer->type);
    if (status != GD_OK)
        return status;
    if (gd_names_find(&model->names, spec->name) >= 0)
        return gd_fail(GD_ERR_INVALID, "model: two layers are called \"%s\"", spec->name);
    layer->name = gd_strdup(spec->name);
    if (!layer->name || !gd_names_add(&model->names, layer->name, i))
        return GD_ERR_MEMORY;
    layer->model = model;
    layer->spec = *spec;
    layer->spec.name = layer->name;
    layer->spec.type = layer->spec.activation = NULL;
    return GD_OK;
}

/* Names of inputs to numbers, once all layers are known. */
static gd_status resolve_inputs(gd_model *model, const gd_layer_spec *spec, int i)
{
    gd_model_layer *layer = &model->layers[i];
    for (int k = 0; k < GD_LAYER_MAX_INPUTS && spec->inputs[k]; k++) {
        const char *name = spec->inputs[k];
        int number =
            strcmp(name, "input") == 0 ? GD_MODEL_INPUT : gd_names_find(&model->names, name);
        if (number < 0 && strcmp(name, "input") != 0)
            return gd_fail(GD_ERR_INVALID,
                           "layer \"%s\": its input \"%s\" is no layer of the model, nor \"input\"",
                           spec->name, name);
        layer->inputs[layer->input_count++] = number;
    }
    if (layer->input_count == 0)
        layer->inputs[layer->input_count++] = i - 1; /* GD_MODEL_INPUT for the first */
    const gd_layer_type *type = layer->type;
    if (layer->input_count < type->min_inputs || layer->input_count > type->max_inputs)
        return gd_fail(GD_ERR_INVALID, "layer \"%s\": type %s takes %s%d input%s, not %d",
                       spec->name, type->name,
                       type->max_inputs > type->min_inputs ? "at least " : "", type->min_inputs,
                       type->min_inputs == 1 ? "" : "s", layer->input_count);
    return GD_OK;
}

/* ---- order ---- */

static bool is_ready(const gd_model *model, int i, const bool *done)
{
    const gd_model_layer *layer = &model->layers[i];
    for (int k = 0; k < layer->input_count; k++)
        if (layer->inputs[k] != GD_MODEL_INPUT && !done[layer->inputs[k]])
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
            if (!done[i] && is_ready(model, i, done)) {
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
            int i = layer->inputs[k];
            bool maps = i != GD_MODEL_INPUT && model->layers[i].is_maps;
            layer->of_maps |= maps && k == 0;
            layer->is_maps |= maps && layer->type->maps == GD_MAPS_AS_INPUT;
        }
    }
}

/* A layer that nothing uses is an error in the spec. */
static gd_status check_all_used(const gd_model *model)
{
    bool *used = gd_alloc_zero((size_t)model->count, sizeof *used);
    if (!used)
        return GD_ERR_MEMORY;
    used[model->output] = true;
    for (int at = model->count; at-- > 0;) {
        const gd_model_layer *layer = &model->layers[model->order[at]];
        for (int k = 0; used[model->order[at]] && k < layer->input_count; k++)
            if (layer->inputs[k] != GD_MODEL_INPUT)
                used[layer->inputs[k]] = true;
    }
    gd_status status = GD_OK;
    for (int i = 0; i < model->count && status == GD_OK; i++)
        if (!used[i])
            status = gd_fail(GD_ERR_INVALID,
                             "model: nothing leads from layer \"%s\" to the output \"%s\"",
                             model->layers[i].name, model->layers[model->output].name);
    gd_free(used);
    return status;
}

static gd_status find_loss(gd_model *model, const char *name)
{
    model->loss = &losses[0];
    if (!name)
        return GD_OK;
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        if (strcmp(losses[i].name, name) == 0) {
            model->loss = &losses[i];
            return GD_OK;
        }
    return gd_fail(GD_ERR_INVALID, "model: there is no loss \"%s\"; there are cross_entropy, mse",
                   name);
}

static gd_status resolve(gd_model *model, const gd_model_spec *spec)
{
    gd_status status = find_loss(model, spec->loss);
    gd_layer_spec layer;
    for (int i = 0; status == GD_OK && i < model->count; i++) {
        status = read_layer(spec, i, &layer);
        if (status == GD_OK)
            status = take_layer(model, &layer, i);
    }
    for (int i = 0; status == GD_OK && i < model->count; i++) {
        status = read_layer(spec, i, &layer);
        if (status == GD_OK)
            status = resolve_inputs(model, &layer, i);
    }
    if (status != GD_OK)
        return status;
    model->output = spec->output ? gd_names_find(&model->names, spec->output) : model->count - 1;
    if (model->output < 0)
        return gd_fail(GD_ERR_INVALID, "model: the output \"%s\" is no layer of the model",
                       spec->output);
    status = order_layers(model);
    if (status != GD_OK)
        return status;
    find_maps(model);
    return check_all_used(model);
}

/* ---- running ---- */

/* Put the layer's name before the error recorded since the mark, if any. */
static void name_layer(const gd_model_layer *layer, uint64_t mark)
{
    char message[GD_ERROR_MESSAGE_BYTES];
    gd_status status = gd_error_since(mark);
    if (status == GD_OK)
        return;
    snprintf(message, sizeof message, "%s", gd_error_last_message());
    gd_error_rollback(mark);
    (void)gd_fail(status, "layer \"%s\" (%s): %s", layer->name, layer->type->name, message);
}

/* Whether a layer or a parameter is one of the layer `name`. */
static bool is_below(const char *path, const char *name)
{
    size_t length = strlen(name);
    return strncmp(path, name, length) == 0 && path[length] == '.';
}

/* Of a layer made of layers, whose rows stand before its own: numbers that are in none of them. And
 * the batch axis is known in theirs, too. */
static int64_t note_parts(gd_module *m, const char *name)
{
    int64_t numbers = 0;
    for (int i = 0; i < gd_module_count(m); i++)
        if (m->entries[i].parameter && is_below(gd_module_path(m, i), name))
            numbers += gd_tensor_count(gd_module_tensor(m, i));
    for (size_t i = 0; i < m->layer_count; i++)
        if (is_below(m->layers[i].name, name)) {
            numbers -= m->layers[i].numbers;
            m->layers[i].output.dim[0] = GD_NN_BATCH;
        }
    return numbers;
}

/* Keep what the summary shows. */
static bool note(gd_model *model, const gd_model_layer *layer, const gd_tensor *result)
{
    gd_module_layer *row = gd_module_layer_find(model->module, layer->name);
    if (!row)
        row = gd_module_layer_add(model->module, layer->name, layer->type->name);
    if (!row)
        return false;
    if (layer->type->has_layers)
        row->numbers = note_parts(model->module, layer->name);
    row->output = gd_tensor_shape(result);
    row->output.dim[0] = GD_NN_BATCH; /* a model knows which axis that is */
    row->activation = layer->activation ? layer->activation->name : NULL;
    return true;
}

/* The layer and its activation: a gd_function_body. */
static gd_tensor *build_layer(void *user, int count, gd_tensor *const *in)
{
    static const gd_layer_spec plain = { GD_LAYER_SPEC_DEFAULTS };
    const gd_model_layer *layer = user;
    gd_module *m = layer->model->module;
    gd_layer_call call = { .module = m,
                           .type = layer->type,
                           .spec = &layer->spec,
                           .n = count,
                           .in = in,
                           .of_maps = layer->of_maps };
    gd_tensor *y = layer->type->build(&call);
    if (y && layer->activation) {
        gd_layer_call after = {
            .module = m, .type = layer->activation, .spec = &plain, .n = 1, .in = &y
        };
        y = layer->activation->build(&after);
    }
    return y;
}

static gd_tensor *run_layer(gd_model *model, gd_model_layer *layer, gd_tensor *x)
{
    gd_tensor *in[GD_LAYER_MAX_INPUTS];
    for (int k = 0; k < layer->input_count; k++)
        in[k] = layer->inputs[k] == GD_MODEL_INPUT ? x : model->values[layer->inputs[k]];
    gd_tensor *y = layer->spec.checkpoint && !layer->type->is_stack
                       ? gd_checkpoint(build_layer, layer, layer->input_count, in)
                       : build_layer(layer, layer->input_count, in);
    return y && note(model, layer, y) ? y : NULL;
}

static gd_tensor *run(gd_model *model, gd_tensor *x)
{
    for (int at = 0; at < model->count; at++) {
        gd_model_layer *layer = &model->layers[model->order[at]];
        uint64_t mark = gd_error_mark();
        gd_tensor *y = run_layer(model, layer, x);
        if (!y) {
            name_layer(layer, mark);
            return NULL;
        }
        model->values[model->order[at]] = y;
    }
    return model->values[model->output];
}

gd_tensor *gd_model_forward(gd_model *model, gd_tensor *x)
{
    if (!model || !x)
        return NULL;
    gd_shape shape = gd_tensor_shape(x);
    bool fits = shape.rank == model->input.rank + 1;
    for (int i = 0; fits && i < model->input.rank; i++)
        fits = shape.dim[i + 1] == model->input.dim[i];
    if (!fits) {
        char a[GD_NN_SHAPE_TEXT], b[GD_NN_SHAPE_TEXT];
        return gd_fail_null(GD_ERR_SHAPE,
                            "gd_model_forward: x is %s; the model takes a batch of %s",
                            gd_nn_shape_text(shape, a), gd_nn_shape_text(model->input, b));
    }
    return run(model, x);
}

static bool is_softmax(const gd_layer_type *type)
{
    return type && strcmp(type->name, "softmax") == 0;
}

bool gd_model_gives_probabilities(const gd_model *model)
{
    if (!model)
        return false;
    const gd_model_layer *last = &model->layers[model->output];
    return is_softmax(last->activation) || (is_softmax(last->type) && !last->activation);
}

gd_tensor *gd_model_loss(const gd_model *model, gd_tensor *output, gd_tensor *target)
{
    if (!model || !output)
        return NULL;
    if (!gd_model_gives_probabilities(model) || !model->loss->of_probabilities)
        return model->loss->loss(output, target);
    const gd_model_layer *last = &model->layers[model->output];
    int axis = is_softmax(last->activation) ? -1 : last->spec.axis;
    if (axis != -1 && axis != gd_tensor_shape(output).rank - 1)
        return gd_fail_null(GD_ERR_SHAPE,
                            "gd_model_loss: the softmax of layer \"%s\" is along axis %d; %s wants "
                            "classes along the last one",
                            last->name, axis, model->loss->name);
    return model->loss->of_probabilities(output, target);
}

gd_module *gd_model_module(const gd_model *model)
{
    return model ? model->module : NULL;
}

gd_shape gd_model_input_shape(const gd_model *model)
{
    return model ? model->input : GD_SCALAR;
}

/* ---- making and ending ---- */

static void destroy(void *object)
{
    gd_model *model = object;
    for (int i = 0; model->layers && i < model->count; i++)
        gd_free(model->layers[i].name);
    gd_names_clear(&model->names);
    gd_free(model->layers);
    gd_free(model->order);
    gd_free(model->values);
    gd_module_release(model->module);
    gd_free(model);
}

void gd_model_release(gd_model *model)
{
    if (!model)
        return;
    gd_context_disown(model->context, model);
    destroy(model);
}

/* One sample of zeros through the model, outside of any trace, without history, and not in
 * training, so that no statistics and no random numbers are touched. */
static gd_status try_out(gd_model *model)
{
    gd_context *context = model->context;
    gd_shape shape = { .rank = model->input.rank + 1, .dim = { 1 } };
    memcpy(shape.dim + 1, model->input.dim, sizeof(int64_t) * (size_t)model->input.rank);
    gd_status status = gd_scope_begin(context);
    if (status != GD_OK)
        return status;
    gd_trace_pause(context);
    (void)gd_no_grad_begin(context);
    gd_module_set_training(model->module, false);
    if (!run(model, gd_zeros(context, shape, gd_module_dtype(model->module))))
        status = gd_error_last();
    gd_module_set_training(model->module, true);
    (void)gd_no_grad_end(context);
    gd_trace_resume(context);
    (void)gd_scope_end(context);
    return status;
}

static gd_status fill(gd_model *model, const gd_model_spec *spec, const gd_model_options *o)
{
    gd_status status = check_input(spec);
    if (status != GD_OK)
        return status;
    model->count = spec->layer_count;
    model->input = spec->input;
    model->layers = gd_alloc_zero((size_t)model->count, sizeof *model->layers);
    model->order = gd_alloc_zero((size_t)model->count, sizeof *model->order);
    model->values = gd_alloc_zero((size_t)model->count, sizeof(gd_tensor *));
    if (!model->layers || !model->order || !model->values)
        return GD_ERR_MEMORY;
    status = resolve(model, spec);
    if (status != GD_OK)
        return status;
    model->module = gd_module_create(model->context, .seed = o->seed, .dtype = o->dtype);
    return model->module ? try_out(model) : gd_error_last();
}

gd_model *gd_model_create_with(gd_context *context, const gd_model_spec *spec,
                               const gd_model_options *options)
{
    static const char who[] = "gd_model_create";
    gd_model_options o = { GD_MODEL_DEFAULTS };
    gd_model_spec own = { GD_MODEL_SPEC_DEFAULTS };
    if (!context || !gd_options_read(who, &o, sizeof o, options))
        return NULL;
    if (!spec)
        return gd_fail_null(GD_ERR_INVALID, "%s: the spec is NULL", who);
    if (!gd_options_read("gd_model_spec", &own, sizeof own, spec))
        return NULL;
    gd_model *model = gd_alloc_zero(1, sizeof *model);
    if (!model)
        return NULL;
    model->context = context;
    if (fill(model, &own, &o) != GD_OK ||
        gd_context_adopt(model->context, model, destroy) != GD_OK) {
        destroy(model);
        return NULL;
    }
    return model;
}
