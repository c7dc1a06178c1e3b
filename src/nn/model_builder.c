/* nn/model_builder.c: a model made by calls, or out of another one: lists of specs that are changed,
 * with strings of their own, and handed to gd_model_make(). Start at gd_model_begin_with() and
 * gd_model_edit(). */
#include "nn/model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <string.h>

/* A parameter or buffer of the model that is being changed. */
typedef struct kept {
    char *path;
    gd_tensor *tensor; /* retained */
    bool parameter;
} kept;

struct gd_model_builder {
    gd_context *context;
    gd_model_options o;
    gd_input_spec *inputs;
    gd_layer_spec *layers;
    gd_loss_spec *losses; /* with tensors retained */
    const char **outputs;
    kept *kept;
    size_t input_count, layer_count, loss_count, output_count, kept_count;
    size_t input_room, layer_room, loss_room, output_room, kept_room;
    gd_status status; /* the first error's, */
    char *message;    /* and its sentence */
};

/* ---- strings ---- */

static void free_text(const char *text)
{
    gd_free((void *)(uintptr_t)text); /* ours, although a spec shows it as const */
}

/* A copy where there is something to copy; false: out of memory. */
static bool copy_text(const char **text)
{
    if (!*text)
        return true;
    *text = gd_strdup(*text);
    return *text != NULL;
}

static bool set_text(const char **text, const char *value)
{
    char *copy = gd_strdup(value);
    if (!copy)
        return false;
    free_text(*text);
    *text = copy;
    return true;
}

/* Copies of `count` texts; on failure those that were made are freed, and all are NULL. */
static bool copy_texts(const char ***texts, int count)
{
    for (int i = 0; i < count; i++)
        if (!copy_text(texts[i])) {
            for (int k = 0; k < count; k++) {
                if (k < i)
                    free_text(*texts[k]);
                *texts[k] = NULL;
            }
            return false;
        }
    return true;
}

enum { MOST_TEXTS = 3 + GD_LAYER_MAX_INPUTS + GD_OPERAND_COUNT + 1 };

/* The members of a layer that are strings. */
static int texts_of(gd_layer_spec *layer, const char **texts[MOST_TEXTS])
{
    int count = 0;
    texts[count++] = &layer->name;
    texts[count++] = &layer->type;
    texts[count++] = &layer->activation;
    for (int i = 0; i < GD_LAYER_MAX_INPUTS; i++)
        texts[count++] = &layer->inputs[i];
    for (int i = 0; i < gd_layer_fields.count && count < MOST_TEXTS; i++)
        if (gd_field_is_text(&gd_layer_fields.fields[i]))
            texts[count++] = gd_field_text(&gd_layer_fields.fields[i], layer);
    return count;
}

static int texts_of_loss(gd_loss_spec *loss, const char **texts[1 + GD_LOSS_MAX_OUTPUTS])
{
    texts[0] = &loss->type;
    for (int i = 0; i < GD_LOSS_MAX_OUTPUTS; i++)
        texts[1 + i] = &loss->outputs[i];
    return 1 + GD_LOSS_MAX_OUTPUTS;
}

static void free_layer(gd_layer_spec *layer)
{
    const char **texts[MOST_TEXTS];
    for (int count = texts_of(layer, texts), i = 0; i < count; i++)
        free_text(*texts[i]);
}

static void free_loss(gd_loss_spec *loss)
{
    const char **texts[1 + GD_LOSS_MAX_OUTPUTS];
    for (int count = texts_of_loss(loss, texts), i = 0; i < count; i++)
        free_text(*texts[i]);
    gd_release(loss->weight);
    gd_release(loss->positive_weight);
}

/* ---- beginning and ending ---- */

static void free_kept(kept *k)
{
    gd_free(k->path);
    gd_release(k->tensor);
}

static void drop_outputs(gd_model_builder *b)
{
    while (b->output_count)
        free_text(b->outputs[--b->output_count]);
}

static void drop_losses(gd_model_builder *b)
{
    while (b->loss_count)
        free_loss(&b->losses[--b->loss_count]);
}

static void destroy(void *object)
{
    gd_model_builder *b = object;
    drop_outputs(b);
    drop_losses(b);
    for (size_t i = 0; i < b->input_count; i++)
        free_text(b->inputs[i].name);
    for (size_t i = 0; i < b->layer_count; i++)
        free_layer(&b->layers[i]);
    for (size_t i = 0; i < b->kept_count; i++)
        free_kept(&b->kept[i]);
    gd_free(b->inputs);
    gd_free(b->layers);
    gd_free(b->losses);
    gd_free(b->outputs);
    gd_free(b->kept);
    gd_free(b->message);
    gd_free(b);
}

static gd_status keep_error(gd_model_builder *b, gd_status status)
{
    if (b->status == GD_OK && status != GD_OK) {
        b->status = status;
        b->message = gd_strdup(gd_error_last_message());
    }
    return status;
}

static gd_model_builder *make_builder(gd_context *context, const gd_model_options *o)
{
    gd_model_builder *b = gd_alloc_zero(1, sizeof *b);
    if (!b)
        return NULL;
    b->context = context;
    b->o = *o;
    if (gd_context_adopt(context, b, destroy) == GD_OK)
        return b;
    destroy(b);
    return NULL;
}

static void end_builder(gd_model_builder *b)
{
    gd_context_disown(b->context, b);
    destroy(b);
}

gd_model_builder *gd_model_begin_with(gd_context *context, gd_shape input,
                                      const gd_model_options *options)
{
    gd_model_options o = { GD_MODEL_DEFAULTS };
    if (!context || !gd_options_read("gd_model_begin", &o, sizeof o, options))
        return NULL;
    gd_model_builder *b = make_builder(context, &o);
    if (b && input.rank && gd_model_add_input(b, "input", input, GD_F32) != GD_OK) {
        end_builder(b);
        return NULL;
    }
    return b;
}

/* gd_model_source: into the module of the model that is made. */
static gd_status put_kept(void *user, gd_module *module)
{
    const gd_model_builder *b = user;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < b->kept_count; i++)
        status = gd_module_put(module, b->kept[i].path, b->kept[i].tensor, b->kept[i].parameter);
    return status;
}

static gd_model *make_model(gd_model_builder *b)
{
    if (b->status != GD_OK)
        return gd_fail_null(b->status, "%s", b->message ? b->message : "out of memory");
    if (b->layer_count > GD_MODEL_MAX_LAYERS)
        return gd_fail_null(GD_ERR_INVALID, "model: there are %zu layers; 1 to %d are allowed",
                            b->layer_count, GD_MODEL_MAX_LAYERS);
    const gd_model_spec spec = {
        GD_MODEL_SPEC_DEFAULTS, .layer_count = (int)b->layer_count,
        .layers = b->layers,    .input_count = (int)b->input_count,
        .inputs = b->inputs,    .output_count = (int)b->output_count,
        .outputs = b->outputs,  .loss_count = (int)b->loss_count,
        .losses = b->losses,
    };
    const gd_model_source source = { put_kept, b };
    return gd_model_make(b->context, &spec, &b->o, &source);
}

gd_model *gd_model_end(gd_model_builder *builder)
{
    if (!builder)
        return NULL;
    gd_model *model = make_model(builder);
    end_builder(builder);
    return model;
}

void gd_model_builder_release(gd_model_builder *builder)
{
    if (builder)
        end_builder(builder);
}

/* ---- adding ---- */

/* The builder of a public function, which must not be NULL. */
static gd_status check_builder(const gd_model_builder *b, const char *who)
{
    return b ? GD_OK : gd_fail(GD_ERR_INVALID, "%s: the builder is NULL", who);
}

gd_status gd_model_add_input(gd_model_builder *builder, const char *name, gd_shape shape,
                             gd_dtype dtype)
{
    gd_model_builder *b = builder;
    if (check_builder(b, "gd_model_add_input") != GD_OK)
        return GD_ERR_INVALID;
    if (b->input_count == GD_MODEL_MAX_INPUTS)
        return keep_error(b, gd_fail(GD_ERR_INVALID, "model: there are more than %d inputs",
                                     GD_MODEL_MAX_INPUTS));
    gd_input_spec input = { GD_INPUT_SPEC_DEFAULTS, .name = name, .shape = shape, .dtype = dtype };
    if (!gd_grow((void **)&b->inputs, &b->input_room, b->input_count + 1, sizeof *b->inputs) ||
        !copy_text(&input.name))
        return keep_error(b, GD_ERR_MEMORY);
    b->inputs[b->input_count++] = input;
    return GD_OK;
}

/* A copy of the layer at `place` of the list. */
static gd_status put_layer(gd_model_builder *b, size_t place, const gd_layer_spec *layer)
{
    const char **texts[MOST_TEXTS];
    gd_layer_spec copy = *layer;
    int count = texts_of(&copy, texts);
    if (!gd_grow((void **)&b->layers, &b->layer_room, b->layer_count + 1, sizeof *b->layers) ||
        !copy_texts(texts, count))
        return GD_ERR_MEMORY;
    memmove(&b->layers[place + 1], &b->layers[place], (b->layer_count - place) * sizeof *b->layers);
    b->layers[place] = copy;
    b->layer_count++;
    return GD_OK;
}

gd_status gd_model_add_with(gd_model_builder *builder, const gd_layer_spec *layer)
{
    gd_model_builder *b = builder;
    gd_layer_spec own = { GD_LAYER_SPEC_DEFAULTS };
    if (check_builder(b, "gd_model_add") != GD_OK)
        return GD_ERR_INVALID;
    if (!gd_options_read("gd_model_add", &own, sizeof own, layer))
        return keep_error(b, gd_error_last());
    if (!own.inputs[0] && b->layer_count)
        own.inputs[0] = b->layers[b->layer_count - 1].name;
    else if (!own.inputs[0] && b->input_count)
        own.inputs[0] = b->inputs[0].name;
    return keep_error(b, put_layer(b, b->layer_count, &own));
}

gd_status gd_model_set_outputs(gd_model_builder *builder, int count, const char *const *outputs)
{
    gd_model_builder *b = builder;
    if (check_builder(b, "gd_model_set_outputs") != GD_OK)
        return GD_ERR_INVALID;
    if (count < 0 || count > GD_MODEL_MAX_OUTPUTS || (count && !outputs))
        return keep_error(b, gd_fail(GD_ERR_INVALID,
                                     "model: there are %d outputs; up to %d are allowed",
                                     outputs ? count : 0, GD_MODEL_MAX_OUTPUTS));
    drop_outputs(b);
    for (int i = 0; i < count; i++) {
        const char *name = outputs[i] ? outputs[i] : "";
        if (!gd_grow((void **)&b->outputs, &b->output_room, b->output_count + 1,
                     sizeof *b->outputs) ||
            !copy_text(&name))
            return keep_error(b, GD_ERR_MEMORY);
        b->outputs[b->output_count++] = name;
    }
    return GD_OK;
}

gd_status gd_model_add_loss_with(gd_model_builder *builder, const gd_loss_spec *loss)
{
    gd_model_builder *b = builder;
    gd_loss_spec own = { GD_LOSS_SPEC_DEFAULTS };
    const char **texts[1 + GD_LOSS_MAX_OUTPUTS];
    if (check_builder(b, "gd_model_add_loss") != GD_OK)
        return GD_ERR_INVALID;
    if (!gd_options_read("gd_model_add_loss", &own, sizeof own, loss))
        return keep_error(b, gd_error_last());
    if (b->loss_count == GD_MODEL_MAX_LOSSES)
        return keep_error(b, gd_fail(GD_ERR_INVALID, "model: there are more than %d losses",
                                     GD_MODEL_MAX_LOSSES));
    int count = texts_of_loss(&own, texts);
    if (!gd_grow((void **)&b->losses, &b->loss_room, b->loss_count + 1, sizeof *b->losses) ||
        !copy_texts(texts, count))
        return keep_error(b, GD_ERR_MEMORY);
    own.weight = gd_retain(own.weight);
    own.positive_weight = gd_retain(own.positive_weight);
    b->losses[b->loss_count++] = own;
    return GD_OK;
}

gd_status gd_model_drop_losses(gd_model_builder *builder)
{
    if (check_builder(builder, "gd_model_drop_losses") != GD_OK)
        return GD_ERR_INVALID;
    drop_losses(builder);
    return GD_OK;
}

/* ---- changing ---- */

/* Place of the layer of that name; the count of layers, with an error, if there is none. */
static size_t find_layer(gd_model_builder *b, const char *who, const char *name)
{
    for (size_t i = 0; name && i < b->layer_count; i++)
        if (b->layers[i].name && strcmp(b->layers[i].name, name) == 0)
            return i;
    (void)keep_error(
        b, gd_fail(GD_ERR_INVALID, "%s: there is no layer \"%.64s\"", who, name ? name : ""));
    return b->layer_count;
}

static bool rename_text(const char **text, const char *from, const char *to)
{
    return !*text || strcmp(*text, from) != 0 || set_text(text, to);
}

/* Whatever takes the value `from`, a layer but `except`, an output, a loss, takes `to`. */
static gd_status redirect(gd_model_builder *b, const char *from, const char *to, size_t except)
{
    bool ok = true;
    for (size_t i = 0; i < b->layer_count; i++) {
        const char **texts[MOST_TEXTS];
        int count = texts_of(&b->layers[i], texts);
        for (int k = 3; ok && i != except && k < count; k++) /* not name, type, activation */
            if (texts[k] != &b->layers[i].config)
                ok = rename_text(texts[k], from, to);
    }
    for (size_t i = 0; ok && i < b->output_count; i++)
        ok = rename_text(&b->outputs[i], from, to);
    for (size_t i = 0; i < b->loss_count; i++)
        for (int k = 0; ok && k < GD_LOSS_MAX_OUTPUTS; k++)
            ok = rename_text(&b->losses[i].outputs[k], from, to);
    return ok ? GD_OK : GD_ERR_MEMORY;
}

/* The parameters of a layer are no longer wanted. */
static void forget_parameters(gd_model_builder *b, const char *name)
{
    size_t left = 0;
    for (size_t i = 0; i < b->kept_count; i++)
        if (gd_is_below(b->kept[i].path, name))
            free_kept(&b->kept[i]);
        else
            b->kept[left++] = b->kept[i];
    b->kept_count = left;
}

/* Where a layer behind `after` stands in the list: 0 behind an input. SIZE_MAX: there is no such
 * value. */
static size_t place_after(gd_model_builder *b, const char *who, const char *after)
{
    for (size_t i = 0; after && i < b->input_count; i++)
        if (b->inputs[i].name && strcmp(b->inputs[i].name, after) == 0)
            return 0;
    size_t place = find_layer(b, who, after);
    return place < b->layer_count ? place + 1 : SIZE_MAX;
}

gd_status gd_model_insert_with(gd_model_builder *builder, const char *after,
                               const gd_layer_spec *layer)
{
    static const char who[] = "gd_model_insert";
    gd_model_builder *b = builder;
    gd_layer_spec own = { GD_LAYER_SPEC_DEFAULTS };
    if (check_builder(b, who) != GD_OK)
        return GD_ERR_INVALID;
    if (!gd_options_read(who, &own, sizeof own, layer))
        return keep_error(b, gd_error_last());
    if (!own.name)
        return keep_error(b, gd_fail(GD_ERR_INVALID, "%s: the layer has no name", who));
    size_t place = place_after(b, who, after);
    if (place == SIZE_MAX)
        return gd_error_last();
    if (!own.inputs[0])
        own.inputs[0] = after;
    gd_status status = put_layer(b, place, &own);
    if (status == GD_OK)
        status = redirect(b, after, own.name, place);
    return keep_error(b, status);
}

gd_status gd_model_replace_with(gd_model_builder *builder, const gd_layer_spec *layer)
{
    static const char who[] = "gd_model_replace";
    gd_model_builder *b = builder;
    gd_layer_spec own = { GD_LAYER_SPEC_DEFAULTS };
    if (check_builder(b, who) != GD_OK)
        return GD_ERR_INVALID;
    if (!gd_options_read(who, &own, sizeof own, layer))
        return keep_error(b, gd_error_last());
    size_t place = find_layer(b, who, own.name);
    if (place == b->layer_count)
        return gd_error_last();
    if (!own.inputs[0])
        memcpy(own.inputs, b->layers[place].inputs, sizeof own.inputs);
    gd_status status = put_layer(b, place, &own);
    if (status != GD_OK)
        return keep_error(b, status);
    forget_parameters(b, b->layers[place].name);
    free_layer(&b->layers[place + 1]);
    b->layer_count--;
    memmove(&b->layers[place + 1], &b->layers[place + 2],
            (b->layer_count - place - 1) * sizeof *b->layers);
    return GD_OK;
}

gd_status gd_model_remove(gd_model_builder *builder, const char *name)
{
    static const char who[] = "gd_model_remove";
    gd_model_builder *b = builder;
    if (check_builder(b, who) != GD_OK)
        return GD_ERR_INVALID;
    size_t place = find_layer(b, who, name);
    if (place == b->layer_count)
        return gd_error_last();
    gd_layer_spec removed = b->layers[place];
    b->layer_count--;
    memmove(&b->layers[place], &b->layers[place + 1], (b->layer_count - place) * sizeof *b->layers);
    forget_parameters(b, removed.name);
    gd_status status = GD_OK;
    if (removed.inputs[0])
        status = redirect(b, removed.name, removed.inputs[0], SIZE_MAX);
    free_layer(&removed);
    return keep_error(b, status);
}

/* ---- a builder of all that a model is ---- */

static gd_status keep_parameters(gd_model_builder *b, const gd_module *module)
{
    for (int i = 0; i < gd_module_count(module); i++) {
        if (!gd_grow((void **)&b->kept, &b->kept_room, b->kept_count + 1, sizeof *b->kept))
            return GD_ERR_MEMORY;
        char *path = gd_strdup(gd_module_path(module, i));
        if (!path)
            return GD_ERR_MEMORY;
        b->kept[b->kept_count++] = (kept){ path, gd_retain(gd_module_tensor(module, i)),
                                           gd_module_is_parameter(module, i) };
    }
    return GD_OK;
}

static gd_status copy_model(gd_model_builder *b, const gd_model *model)
{
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < model->input_count; i++)
        status = gd_model_add_input(b, model->inputs[i].name, model->inputs[i].shape,
                                    model->inputs[i].dtype);
    for (int i = 0; status == GD_OK && i < model->count; i++)
        status = put_layer(b, b->layer_count, &model->layers[i].spec);
    const char *outputs[GD_MODEL_MAX_OUTPUTS];
    for (int k = 0; k < model->output_count; k++)
        outputs[k] = model->layers[model->outputs[k]].name;
    if (status == GD_OK)
        status = gd_model_set_outputs(b, model->output_count, outputs);
    for (int i = 0; status == GD_OK && i < model->loss_count; i++)
        status = gd_model_add_loss_with(b, &model->losses[i].spec);
    return status == GD_OK ? keep_parameters(b, model->module) : status;
}

gd_model_builder *gd_model_edit(const gd_model *model, uint64_t seed)
{
    if (!model)
        return NULL;
    const gd_model_options o = { GD_MODEL_DEFAULTS, .seed = seed,
                                 .dtype = gd_module_dtype(model->module) };
    gd_model_builder *b = make_builder(model->context, &o);
    if (b && copy_model(b, model) != GD_OK) {
        end_builder(b);
        return NULL;
    }
    return b;
}
