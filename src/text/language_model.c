/* text/language_model.c: decoder-only language models: their sizes, their initial weights, and how
 * the two architectures are configured (config_of). What they compute is gd_nn_decoder_only
 * (nn/transformer.c). */
#include "text/language_model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/random.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <math.h>
#include <string.h>

/* ---- the model ---- */

static gd_transformer_config config_of(const gd_language_options *o)
{
    gd_transformer_config c = { GD_TRANSFORMER_CONFIG_DEFAULTS,
                                .width = o->width,
                                .heads = o->heads,
                                .kv_heads = o->kv_heads,
                                .hidden = o->hidden,
                                .layers = o->layers,
                                .vocabulary = o->vocabulary,
                                .max_length = o->max_length,
                                .pre_norm = true,
                                .tied = o->tied,
                                .checkpoint = o->checkpoint,
                                .dropout = o->dropout,
                                .epsilon = o->epsilon,
                                .rotary_base = o->rotary_base };
    bool llama = o->decoder == GD_DECODER_LLAMA;
    c.activation = llama ? GD_ACTIVATION_SWIGLU : GD_ACTIVATION_GELU_TANH;
    c.norm = llama ? GD_NORM_RMS : GD_NORM_LAYER;
    c.position = llama ? GD_POSITION_ROTARY : GD_POSITION_LEARNED;
    c.bias = !llama;
    return c;
}

gd_tensor *gd_language_logits(gd_language_model *m, gd_tensor *tokens, gd_kv_cache *cache,
                              bool last_only)
{
    if (!m || !tokens)
        return NULL;
    gd_shape shape = gd_tensor_shape(tokens);
    int64_t start = gd_kv_cache_length(cache);
    if (shape.rank != 2 || start + shape.dim[1] > m->options.max_length)
        return gd_fail_null(
            GD_ERR_SHAPE,
            "a language model of length %lld was given tokens of rank %d, %lld long "
            "after %lld; [batch, time] is needed, and no more than its length",
            (long long)m->options.max_length, shape.rank,
            (long long)(shape.rank > 1 ? shape.dim[1] : 0), (long long)start);
    return gd_nn_decoder_only(m->module, NULL, tokens, &m->config, .cache = cache,
                              .last_only = last_only);
}

gd_tensor *gd_language_model_forward(gd_language_model *m, gd_tensor *tokens)
{
    return gd_language_logits(m, tokens, NULL, false);
}

gd_tensor *gd_language_model_loss(gd_language_model *m, gd_tensor *tokens, gd_tensor *targets)
{
    gd_tensor *logits = gd_language_model_forward(m, tokens);
    if (!logits || !targets)
        return NULL;
    int64_t rows = gd_tensor_count(tokens);
    return gd_cross_entropy(gd_reshape(logits, GD_SHAPE(rows, m->options.vocabulary)),
                            gd_reshape(targets, GD_SHAPE(rows)));
}

/* ---- making ---- */

static void destroy(void *object)
{
    gd_language_model *m = object;
    gd_module_release(m->module);
    gd_free(m);
}

void gd_language_model_release(gd_language_model *m)
{
    if (!m)
        return;
    gd_context_disown(m->context, m);
    destroy(m);
}

static gd_status check(const gd_language_options *o)
{
    const int64_t most = 1 << 24;
    const int64_t sizes[] = { o->vocabulary, o->max_length, o->layers,  o->heads,
                              o->width,      o->hidden,     o->kv_heads };
    bool fit = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fit = fit && sizes[i] > 0 && sizes[i] <= most;
    bool llama = o->decoder == GD_DECODER_LLAMA;
    fit = fit && o->width % o->heads == 0 && o->heads % o->kv_heads == 0;
    fit = fit && (llama ? o->width / o->heads % 2 == 0 : o->kv_heads == o->heads);
    if (!fit)
        return gd_fail(
            GD_ERR_INVALID,
            "a %s language model of vocabulary %lld, length %lld, %lld layers, %lld heads, "
            "%lld of keys, width %lld, hidden %lld: all must be 1 to %lld, heads a divisor "
            "of the width%s",
            llama ? "Llama" : "GPT-2", (long long)o->vocabulary, (long long)o->max_length,
            (long long)o->layers, (long long)o->heads, (long long)o->kv_heads, (long long)o->width,
            (long long)o->hidden, (long long)most,
            llama ? " with an even quotient, and those of keys a divisor of the heads"
                  : ", and those of keys as many");
    if (!(o->epsilon > 0.0 && isfinite(o->epsilon) && o->rotary_base > 0.0 &&
          isfinite(o->rotary_base)))
        return gd_fail(GD_ERR_INVALID,
                       "a language model's epsilon is %g and its rotary_base %g; both must be "
                       "positive",
                       o->epsilon, o->rotary_base);
    if (!(o->dropout >= 0.0 && o->dropout < 1.0))
        return gd_fail(GD_ERR_INVALID, "a language model's dropout is %g; it must be 0 to 1",
                       o->dropout);
    return GD_OK;
}

gd_language_model *gd_language_model_new(gd_context *context, gd_language_options o)
{
    if (!context)
        return NULL;
    o.kv_heads = o.kv_heads == -1 ? o.heads : o.kv_heads;
    o.hidden = o.hidden == -1 ? 4 * o.width : o.hidden;
    if (check(&o) != GD_OK)
        return NULL;
    gd_language_model *m = gd_alloc_zero(1, sizeof *m);
    if (!m)
        return NULL;
    m->context = context;
    m->options = o;
    m->config = config_of(&o);
    m->module = gd_module_create(context, .seed = o.seed);
    if (!m->module || gd_context_adopt(context, m, destroy) != GD_OK) {
        destroy(m);
        return NULL;
    }
    return m;
}

/* A forward pass on one token makes what is missing. */
gd_status gd_language_fill(gd_language_model *m)
{
    gd_context *gd = m->context;
    static const int64_t token = 0;
    gd_status status = gd_no_grad_begin(gd);
    if (status != GD_OK)
        return status;
    status = gd_scope_begin(gd);
    if (status == GD_OK) {
        if (!gd_language_model_forward(m, gd_from_host(gd, GD_SHAPE(1, 1), GD_I64, &token)))
            status = gd_error_last();
        (void)gd_scope_end(gd);
    }
    (void)gd_no_grad_end(gd);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* Normal values by Box and Muller, from the module's seed; matrices only. */
static gd_status draw_weights(gd_language_model *m)
{
    gd_random random = { .seed = m->options.seed };
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < gd_module_count(m->module); i++) {
        gd_tensor *t = gd_module_tensor(m->module, i);
        const char *path = gd_module_path(m->module, i);
        if (gd_tensor_shape(t).rank < 2)
            continue;
        bool adds = ends_with(path, "self.out.weight") || ends_with(path, "ff.down.weight");
        double deviation = adds ? 0.02 / sqrt(2.0 * (double)m->options.layers) : 0.02;
        int64_t count = gd_tensor_count(t);
        float *values = gd_alloc((size_t)count * sizeof *values);
        for (int64_t k = 0; values && k < count; k++) {
            double radius = sqrt(-2.0 * log(1.0 - gd_random_unit(&random)));
            values[k] =
                (float)(deviation * radius * cos(6.283185307179586 * gd_random_unit(&random)));
        }
        status =
            values ? gd_tensor_write(t, values, (size_t)count * sizeof *values) : GD_ERR_MEMORY;
        gd_free(values);
    }
    return status;
}

gd_language_model *gd_language_model_create_with(gd_context *context,
                                                 const gd_language_options *options)
{
    gd_language_options o = { GD_LANGUAGE_DEFAULTS };
    if (!gd_options_read("gd_language_model_create", &o, sizeof o, options))
        return NULL;
    gd_language_model *m = gd_language_model_new(context, o);
    if (m && (gd_language_fill(m) != GD_OK || draw_weights(m) != GD_OK)) {
        gd_language_model_release(m);
        return NULL;
    }
    return m;
}

gd_status gd_language_refuse_quantized(const char *who)
{
    return gd_fail(
        GD_ERR_UNSUPPORTED,
        "%s: the model was loaded with .quantized and has its matrices in blocks; load it "
        "without to save it",
        who);
}

gd_module *gd_language_model_module(const gd_language_model *m)
{
    return m ? m->module : NULL;
}

const gd_language_options *gd_language_model_options(const gd_language_model *m)
{
    return m ? &m->options : NULL;
}
