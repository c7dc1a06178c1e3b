/* nn/model.c: models written as data: made, run, looked at, ended. A spec is checked and resolved
 * once (nn/model_resolve.c); then a trial run on one sample makes the parameters and finds out
 * whether the shapes fit. Start at gd_model_make(); types of layers are in nn/layer_types.c, losses
 * in nn/model_loss.c, JSON in nn/model_json.c and nn/model_write.c, changes in nn/model_builder.c,
 * files in nn/model_file.c. */
#include "nn/model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <stdio.h>
#include <string.h>

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

/* Of a layer made of layers, whose rows stand before its own: numbers that are in none of them. And
 * the batch axis is known in theirs, too. */
static int64_t note_parts(gd_module *m, const char *name)
{
    int64_t numbers = 0;
    for (int i = 0; i < gd_module_count(m); i++)
        if (m->entries[i].parameter && gd_is_below(gd_module_path(m, i), name))
            numbers += gd_tensor_count(gd_module_tensor(m, i));
    for (size_t i = 0; i < m->layer_count; i++)
        if (gd_is_below(m->layers[i].name, name)) {
            numbers -= m->layers[i].numbers;
            if (m->layers[i].output.rank)
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
    if (row->output.rank)
        row->output.dim[0] = GD_NN_BATCH; /* a model knows which axis that is */
    row->activation = layer->activation ? layer->activation->name : NULL;
    return true;
}

/* The layer and its activation: a gd_function_body. in: the values of layer->inputs. */
static gd_tensor *build_layer(void *user, int count, gd_tensor *const *in)
{
    static const gd_layer_spec plain = { GD_LAYER_SPEC_DEFAULTS };
    const gd_model_layer *layer = user;
    gd_module *m = layer->model->module;
    gd_layer_args args = { .module = m,
                           .type = layer->type,
                           .spec = &layer->spec,
                           .n = layer->input_count,
                           .in = in,
                           .of_maps = layer->of_maps };
    uint64_t given = gd_fields_given(&gd_layer_fields, &layer->spec) >> GD_FIELD_ID_MASK;
    for (int k = 0, at = layer->input_count; k < GD_OPERAND_COUNT && at < count; k++)
        if (given >> k & 1)
            args.operand[k] = in[at++];
    gd_tensor *y = layer->type->build(&args);
    if (y && layer->activation) {
        gd_layer_args after = {
            .module = m, .type = layer->activation, .spec = &plain, .n = 1, .in = &y
        };
        y = layer->activation->build(&after);
    }
    return y;
}

static gd_tensor *run_layer(gd_model *model, gd_model_layer *layer)
{
    gd_tensor *in[GD_LAYER_MAX_INPUTS + GD_OPERAND_COUNT];
    int count = layer->input_count + layer->operand_count;
    for (int k = 0; k < count; k++)
        in[k] = model->values[layer->inputs[k]];
    gd_tensor *y = layer->spec.checkpoint && !layer->type->is_stack
                       ? gd_checkpoint(build_layer, layer, count, in)
                       : build_layer(layer, count, in);
    return y && note(model, layer, y) ? y : NULL;
}

/* From the inputs in model->values to those of all layers. */
static bool run(gd_model *model)
{
    for (int at = 0; at < model->count; at++) {
        gd_model_layer *layer = &model->layers[model->order[at]];
        uint64_t mark = gd_error_mark();
        gd_tensor *y = run_layer(model, layer);
        if (!y) {
            name_layer(layer, mark);
            return false;
        }
        model->values[model->input_count + model->order[at]] = y;
    }
    return true;
}

static bool shape_fits(const gd_input_spec *input, gd_shape shape)
{
    bool fits = shape.rank == input->shape.rank + 1;
    for (int i = 0; fits && i < input->shape.rank; i++)
        fits = shape.dim[i + 1] == input->shape.dim[i];
    return fits;
}

/* Floats may be given as integers, which are indices; what is not declared as floats may not. */
static bool dtype_fits(const gd_input_spec *input, gd_dtype dtype)
{
    if (gd_dtype_is_float(input->dtype))
        return true;
    return input->dtype == GD_BOOL ? dtype == GD_BOOL
                                   : dtype != GD_BOOL && !gd_dtype_is_float(dtype);
}

static gd_status check_input(const gd_model *model, const gd_input_spec *input, gd_tensor *x)
{
    char a[GD_NN_SHAPE_TEXT], b[GD_NN_SHAPE_TEXT], name[96] = "x";
    gd_shape shape = gd_tensor_shape(x);
    if (model->input_count > 1)
        snprintf(name, sizeof name, "the input \"%.64s\"", input->name);
    if (!shape_fits(input, shape))
        return gd_fail(GD_ERR_SHAPE, "gd_model_forward: %s is %s; the model takes a batch of %s",
                       name, gd_nn_shape_text(shape, a), gd_nn_shape_text(input->shape, b));
    if (!dtype_fits(input, gd_tensor_dtype(x)))
        return gd_fail(GD_ERR_DTYPE, "gd_model_forward: %s is %s; the model takes %s", name,
                       gd_dtype_name(gd_tensor_dtype(x)), gd_dtype_name(input->dtype));
    int64_t batch = gd_tensor_shape(model->values[0]).dim[0];
    if (shape.dim[0] != batch)
        return gd_fail(GD_ERR_SHAPE,
                       "gd_model_forward: %s is a batch of %lld, the input \"%s\" one of %lld",
                       name, (long long)shape.dim[0], model->inputs[0].name, (long long)batch);
    return GD_OK;
}

gd_status gd_model_forward_all(gd_model *model, int count, gd_tensor *const *inputs,
                               int output_count, gd_tensor **outputs)
{
    for (int k = 0; outputs && k < output_count; k++)
        outputs[k] = NULL;
    if (!model || !inputs || !outputs)
        return gd_fail(GD_ERR_INVALID, "gd_model_forward_all: an argument is NULL");
    if (count != model->input_count || output_count != model->output_count)
        return gd_fail(GD_ERR_INVALID,
                       "gd_model_forward_all: %d inputs and room for %d outputs are given; the "
                       "model has %d and %d",
                       count, output_count, model->input_count, model->output_count);
    for (int i = 0; i < count; i++) {
        model->values[i] = inputs[i];
        gd_status status =
            inputs[i] ? check_input(model, &model->inputs[i], inputs[i])
                      : gd_fail(GD_ERR_INVALID, "gd_model_forward: the input \"%s\" is NULL",
                                model->inputs[i].name);
        if (status != GD_OK)
            return status;
    }
    if (!run(model))
        return gd_error_last();
    for (int k = 0; k < output_count; k++)
        outputs[k] = model->values[model->input_count + model->outputs[k]];
    return GD_OK;
}

gd_tensor *gd_model_forward(gd_model *model, gd_tensor *x)
{
    gd_tensor *y = NULL;
    if (!model || !x)
        return NULL;
    if (model->input_count != 1 || model->output_count != 1)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_model_forward: the model has %d inputs and %d outputs: call "
                            "gd_model_forward_all",
                            model->input_count, model->output_count);
    (void)gd_model_forward_all(model, 1, &x, 1, &y);
    return y;
}

/* ---- making and ending ---- */

static void destroy(void *object)
{
    gd_model *model = object;
    gd_model_free_losses(model);
    for (int i = 0; model->layers && i < model->count; i++) {
        gd_free(model->layers[i].name);
        gd_free(model->layers[i].config);
    }
    for (int i = 0; i < model->input_count; i++)
        gd_free(
            (void *)(uintptr_t)model->inputs[i].name); /* ours, although a spec shows it as const */
    gd_names_clear(&model->names);
    gd_free(model->inputs);
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

/* A sample of zeros for each input. */
static bool make_samples(gd_model *model)
{
    for (int i = 0; i < model->input_count; i++) {
        const gd_input_spec *input = &model->inputs[i];
        gd_shape shape = { .rank = input->shape.rank + 1, .dim = { 1 } };
        memcpy(shape.dim + 1, input->shape.dim, sizeof(int64_t) * (size_t)input->shape.rank);
        gd_dtype dtype =
            gd_dtype_is_float(input->dtype) ? gd_module_dtype(model->module) : input->dtype;
        model->values[i] = gd_zeros(model->context, shape, dtype);
        if (!model->values[i])
            return false;
    }
    return true;
}

/* The samples through the model, outside of any trace, without history, and not in training, so that
 * no statistics and no random numbers are touched. */
static gd_status try_out(gd_model *model)
{
    gd_context *context = model->context;
    gd_status status = gd_scope_begin(context);
    if (status != GD_OK)
        return status;
    gd_trace_pause(context);
    (void)gd_no_grad_begin(context);
    gd_module_set_training(model->module, false);
    if (!make_samples(model) || !run(model))
        status = gd_error_last();
    gd_module_set_training(model->module, true);
    (void)gd_no_grad_end(context);
    gd_trace_resume(context);
    (void)gd_scope_end(context);
    return status;
}

static gd_status fill(gd_model *model, const gd_model_spec *spec, const gd_model_options *o,
                      const gd_model_source *source)
{
    model->module = gd_module_create(model->context, .seed = o->seed, .dtype = o->dtype);
    if (!model->module)
        return gd_error_last();
    gd_status status = gd_model_resolve(model, spec);
    if (status == GD_OK && source)
        status = source->fill(source->user, model->module);
    return status == GD_OK ? try_out(model) : status;
}

gd_model *gd_model_make(gd_context *context, const gd_model_spec *spec, const gd_model_options *o,
                        const gd_model_source *source)
{
    gd_model *model = gd_alloc_zero(1, sizeof *model);
    if (!model)
        return NULL;
    model->context = context;
    if (fill(model, spec, o, source) != GD_OK ||
        gd_context_adopt(model->context, model, destroy) != GD_OK) {
        destroy(model);
        return NULL;
    }
    return model;
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
    return gd_model_make(context, &own, &o, NULL);
}

/* ---- looking at one ---- */

gd_module *gd_model_module(const gd_model *model)
{
    return model ? model->module : NULL;
}

int gd_model_input_count(const gd_model *model)
{
    return model ? model->input_count : 0;
}

static const gd_input_spec *input_at(const gd_model *model, int index)
{
    return index >= 0 && index < gd_model_input_count(model) ? &model->inputs[index] : NULL;
}

const char *gd_model_input_name(const gd_model *model, int index)
{
    const gd_input_spec *input = input_at(model, index);
    return input ? input->name : NULL;
}

gd_shape gd_model_input_shape(const gd_model *model, int index)
{
    const gd_input_spec *input = input_at(model, index);
    return input ? input->shape : GD_SCALAR;
}

gd_dtype gd_model_input_dtype(const gd_model *model, int index)
{
    const gd_input_spec *input = input_at(model, index);
    return input ? input->dtype : GD_F32;
}

int gd_model_output_count(const gd_model *model)
{
    return model ? model->output_count : 0;
}

const char *gd_model_output_name(const gd_model *model, int index)
{
    return index >= 0 && index < gd_model_output_count(model)
               ? model->layers[model->outputs[index]].name
               : NULL;
}

int gd_model_layer_count(const gd_model *model)
{
    return model ? model->count : 0;
}

static const gd_model_layer *layer_at(const gd_model *model, int layer)
{
    return layer >= 0 && layer < gd_model_layer_count(model) ? &model->layers[layer] : NULL;
}

int gd_model_layer_find(const gd_model *model, const char *name)
{
    int value = model && name ? gd_names_find(&model->names, name) : -1;
    return value >= gd_model_input_count(model) && value >= 0 ? value - model->input_count : -1;
}

const gd_layer_spec *gd_model_layer_spec(const gd_model *model, int layer)
{
    const gd_model_layer *l = layer_at(model, layer);
    return l ? &l->spec : NULL;
}

gd_shape gd_model_layer_shape(const gd_model *model, int layer)
{
    const gd_model_layer *l = layer_at(model, layer);
    const gd_module_layer *row = l ? gd_module_layer_find(model->module, l->name) : NULL;
    return row ? row->output : GD_SCALAR;
}

/* Number `index` of the entries of the module that are the layer's; -1 behind the last. */
static int entry_of(const gd_model *model, int layer, int index)
{
    const gd_model_layer *l = layer_at(model, layer);
    for (int i = 0; l && i < gd_module_count(model->module); i++)
        if (gd_is_below(gd_module_path(model->module, i), l->name) && index-- == 0)
            return i;
    return -1;
}

int64_t gd_model_layer_parameter_count(const gd_model *model, int layer)
{
    const gd_model_layer *l = layer_at(model, layer);
    int64_t count = 0;
    for (int i = 0; l && i < gd_module_count(model->module); i++)
        if (gd_module_is_parameter(model->module, i) &&
            gd_is_below(gd_module_path(model->module, i), l->name))
            count += gd_tensor_count(gd_module_tensor(model->module, i));
    return count;
}

int gd_model_layer_tensor_count(const gd_model *model, int layer)
{
    int count = 0;
    while (entry_of(model, layer, count) >= 0)
        count++;
    return count;
}

const char *gd_model_layer_tensor_path(const gd_model *model, int layer, int index)
{
    int entry = index >= 0 ? entry_of(model, layer, index) : -1;
    return entry >= 0 ? gd_module_path(model->module, entry) : NULL;
}
