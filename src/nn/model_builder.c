/* nn/model_builder.c: a model made by calls: a list of layer specs that grows, with strings of its
 * own, and is handed to gd_model_create(). Start at gd_model_add_with(). */
#include <gradus/nn.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <string.h>

struct gd_model_builder {
    gd_context *context;
    gd_shape input;
    uint64_t seed;
    gd_dtype dtype;
    char *output, *loss;
    gd_layer_spec *layers;
    size_t count, capacity;
    gd_status status; /* the first error's, */
    char *message;    /* and its sentence */
};

static void free_text(const char *text)
{
    gd_free((void *)(uintptr_t)text); /* ours, although the spec shows it as const */
}

static void free_layer(const gd_layer_spec *layer)
{
    free_text(layer->name);
    free_text(layer->type);
    free_text(layer->activation);
    for (int i = 0; i < GD_LAYER_MAX_INPUTS; i++)
        free_text(layer->inputs[i]);
}

static void destroy(void *object)
{
    gd_model_builder *b = object;
    for (size_t i = 0; i < b->count; i++)
        free_layer(&b->layers[i]);
    gd_free(b->layers);
    gd_free(b->output);
    gd_free(b->loss);
    gd_free(b->message);
    gd_free(b);
}

/* A copy where there is something to copy; false: out of memory. */
static bool copy_text(const char **text)
{
    if (!*text)
        return true;
    *text = gd_strdup(*text);
    return *text != NULL;
}

gd_model_builder *gd_model_begin_with(gd_context *context, gd_shape input,
                                      const gd_model_builder_options *options)
{
    gd_model_builder_options o = { GD_MODEL_BUILDER_DEFAULTS };
    if (!context || !gd_options_read("gd_model_begin", &o, sizeof o, options))
        return NULL;
    gd_model_builder *b = gd_alloc_zero(1, sizeof *b);
    if (!b)
        return NULL;
    b->context = context;
    b->input = input;
    b->seed = o.seed;
    b->dtype = o.dtype;
    b->output = o.output ? gd_strdup(o.output) : NULL;
    b->loss = o.loss ? gd_strdup(o.loss) : NULL;
    bool copied = (b->output || !o.output) && (b->loss || !o.loss);
    if (!copied || gd_context_adopt(b->context, b, destroy) != GD_OK) {
        destroy(b);
        return NULL;
    }
    return b;
}

static gd_status keep_error(gd_model_builder *b, gd_status status)
{
    if (b->status == GD_OK && status != GD_OK) {
        b->status = status;
        b->message = gd_strdup(gd_error_last_message());
    }
    return status;
}

gd_status gd_model_add_with(gd_model_builder *b, const gd_layer_spec *layer)
{
    if (!b)
        return gd_fail(GD_ERR_INVALID, "gd_model_add: the builder is NULL");
    gd_layer_spec own = { GD_LAYER_SPEC_DEFAULTS };
    if (!gd_options_read("gd_model_add", &own, sizeof own, layer))
        return keep_error(b, gd_error_last());
    if (!gd_grow((void **)&b->layers, &b->capacity, b->count + 1, sizeof *b->layers))
        return keep_error(b, GD_ERR_MEMORY);
    gd_layer_spec *copy = &b->layers[b->count];
    *copy = own;
    const char **texts[3 + GD_LAYER_MAX_INPUTS] = { &copy->name, &copy->type, &copy->activation };
    for (int i = 0; i < GD_LAYER_MAX_INPUTS; i++)
        texts[3 + i] = &copy->inputs[i];
    for (int i = 0; i < 3 + GD_LAYER_MAX_INPUTS; i++)
        if (!copy_text(texts[i])) {
            for (int k = i; k < 3 + GD_LAYER_MAX_INPUTS; k++)
                *texts[k] = NULL; /* not ours */
            free_layer(copy);
            return keep_error(b, GD_ERR_MEMORY);
        }
    b->count++;
    return GD_OK;
}

gd_model *gd_model_end(gd_model_builder *b)
{
    if (!b)
        return NULL;
    gd_model *model = NULL;
    if (b->status != GD_OK) {
        (void)gd_fail(b->status, "%s", b->message ? b->message : "out of memory");
    } else if (b->count > GD_MODEL_MAX_LAYERS) {
        (void)gd_fail(GD_ERR_INVALID, "model: there are %zu layers; 1 to %d are allowed", b->count,
                      GD_MODEL_MAX_LAYERS);
    } else {
        gd_model_spec spec = { GD_MODEL_SPEC_DEFAULTS,       .input = b->input,
                               .layer_count = (int)b->count, .layers = b->layers,
                               .output = b->output,          .loss = b->loss };
        model = gd_model_create(b->context, &spec, .seed = b->seed, .dtype = b->dtype);
    }
    gd_context_disown(b->context, b);
    destroy(b);
    return model;
}
