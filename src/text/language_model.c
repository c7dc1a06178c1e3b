/* text/language_model.c: decoder-only Transformers. Start at gd_language_hidden(), which is the
 * whole model; gpt2_layer() and llama_layer() are the two architectures. */
#include "text/language_model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PATH 96

/* ---- parts ---- */

static gd_tensor *drop(const gd_language_model *m, gd_tensor *x)
{
    bool drops = m->options.dropout > 0.0 && gd_module_is_training(m->module);
    return drops ? gd_dropout(x, m->options.dropout) : x;
}

/* "transformer.h.3." and `name` */
static const char *path_of(const gd_language_model *m, int64_t layer, const char *name,
                           char path[PATH])
{
    const char *stem = m->options.decoder == GD_DECODER_GPT2 ? "transformer.h" : "layers";
    snprintf(path, PATH, "%s.%lld.%s", stem, (long long)layer, name);
    return path;
}

/* x @ weight, + bias in GPT-2 */
static gd_tensor *dense(gd_language_model *m, int64_t layer, const char *name, gd_tensor *x,
                        int64_t units)
{
    char path[PATH];
    return gd_linear(m->module, path_of(m, layer, name, path), x, units,
                     .no_bias = m->options.decoder == GD_DECODER_LLAMA);
}

static gd_tensor *norm_at(gd_language_model *m, const char *path, gd_tensor *x)
{
    char full[PATH + 8];
    gd_shape shape = GD_SHAPE(m->options.width);
    snprintf(full, sizeof full, "%s.weight", path);
    gd_tensor *weight = gd_parameter(m->module, full, shape, GD_INIT_ONES);
    if (m->options.decoder == GD_DECODER_LLAMA)
        return gd_rms_norm(x, weight);
    snprintf(full, sizeof full, "%s.bias", path);
    gd_tensor *bias = gd_parameter(m->module, full, shape, GD_INIT_ZEROS);
    return weight && bias ? gd_layer_norm(x, weight, bias) : NULL;
}

static gd_tensor *norm(gd_language_model *m, int64_t layer, const char *name, gd_tensor *x)
{
    char path[PATH];
    return norm_at(m, path_of(m, layer, name, path), x);
}

/* ---- attention ---- */

/* [batch, time, heads * d] -> [batch, heads, time, d] */
static gd_tensor *split_heads(gd_tensor *x, int64_t heads)
{
    if (!x)
        return NULL;
    gd_shape s = gd_tensor_shape(x);
    gd_shape split = GD_SHAPE(s.dim[0], s.dim[1], heads, s.dim[2] / heads);
    return gd_transpose(gd_reshape(x, split), 1, 2);
}

/* and back */
static gd_tensor *join_heads(gd_tensor *x)
{
    if (!x)
        return NULL;
    gd_shape s = gd_tensor_shape(x);
    return gd_reshape(gd_transpose(x, 1, 2), GD_SHAPE(s.dim[0], s.dim[2], s.dim[1] * s.dim[3]));
}

/* `new` behind what is kept, which it replaces. */
static gd_tensor *extend(gd_tensor **kept, gd_tensor *new)
{
    gd_tensor *all = *kept ? gd_concat((gd_tensor *[]){ *kept, new }, 2, 2) : new;
    if (!all)
        return NULL;
    gd_retain(all);
    gd_release(*kept);
    *kept = all;
    return all;
}

/* q, k, v [batch, heads, time, d] -> [batch, time, width] */
static gd_tensor *attend(const gd_language_model *m, int64_t layer, gd_tensor *q, gd_tensor *k,
                         gd_tensor *v, gd_language_cache *cache)
{
    if (cache && k && v) {
        k = extend(&cache->k[layer], k);
        v = extend(&cache->v[layer], v);
    }
    double dropout = gd_module_is_training(m->module) ? m->options.dropout : 0.0;
    return join_heads(gd_attention(q, k, v, .causal = true, .dropout = dropout));
}

/* ---- GPT-2 ---- */

static gd_tensor *gpt2_attention(gd_language_model *m, int64_t layer, gd_tensor *x,
                                 gd_language_cache *cache)
{
    int64_t heads = m->options.heads, width = m->options.width;
    gd_tensor *qkv = split_heads(dense(m, layer, "attn.c_attn", x, 3 * width), 3 * heads);
    gd_tensor *y =
        attend(m, layer, gd_slice(qkv, 1, 0, heads, 1), gd_slice(qkv, 1, heads, 2 * heads, 1),
               gd_slice(qkv, 1, 2 * heads, 3 * heads, 1), cache);
    return dense(m, layer, "attn.c_proj", y, width);
}

static gd_tensor *gpt2_layer(gd_language_model *m, int64_t layer, gd_tensor *x,
                             gd_language_cache *cache)
{
    gd_tensor *a = gpt2_attention(m, layer, norm(m, layer, "ln_1", x), cache);
    x = gd_add(x, drop(m, a));
    gd_tensor *h = dense(m, layer, "mlp.c_fc", norm(m, layer, "ln_2", x), m->options.hidden);
    gd_tensor *f = dense(m, layer, "mlp.c_proj", gd_gelu_tanh(h), m->options.width);
    return gd_add(x, drop(m, f));
}

/* ---- Llama ---- */

static gd_tensor *llama_attention(gd_language_model *m, int64_t layer, gd_tensor *x,
                                  gd_language_cache *cache)
{
    const gd_language_options *o = &m->options;
    int64_t start = cache ? cache->length : 0, kv_width = o->width / o->heads * o->kv_heads;
    gd_tensor *q = split_heads(dense(m, layer, "attention.wq", x, o->width), o->heads);
    gd_tensor *k = split_heads(dense(m, layer, "attention.wk", x, kv_width), o->kv_heads);
    gd_tensor *v = split_heads(dense(m, layer, "attention.wv", x, kv_width), o->kv_heads);
    gd_tensor *y =
        attend(m, layer, gd_rope(q, .start = start), gd_rope(k, .start = start), v, cache);
    return dense(m, layer, "attention.wo", y, o->width);
}

static gd_tensor *llama_layer(gd_language_model *m, int64_t layer, gd_tensor *x,
                              gd_language_cache *cache)
{
    gd_tensor *a = llama_attention(m, layer, norm(m, layer, "attention_norm", x), cache);
    x = gd_add(x, drop(m, a));
    gd_tensor *n = norm(m, layer, "ffn_norm", x);
    gd_tensor *gate = gd_silu(dense(m, layer, "feed_forward.w1", n, m->options.hidden));
    gd_tensor *h = gd_mul(gate, dense(m, layer, "feed_forward.w3", n, m->options.hidden));
    return gd_add(x, drop(m, dense(m, layer, "feed_forward.w2", h, m->options.width)));
}

/* ---- the model ---- */

static gd_tensor *embedding(gd_language_model *m)
{
    const char *path =
        m->options.decoder == GD_DECODER_GPT2 ? "transformer.wte.weight" : "tok_embeddings.weight";
    return gd_parameter(m->module, path, GD_SHAPE(m->options.vocabulary, m->options.width),
                        GD_INIT_ZEROS);
}

/* GPT-2 adds what it has learned of each position. */
static gd_tensor *add_positions(gd_language_model *m, gd_tensor *x, int64_t start, int64_t time)
{
    gd_tensor *positions =
        gd_parameter(m->module, "transformer.wpe.weight",
                     GD_SHAPE(m->options.length, m->options.width), GD_INIT_ZEROS);
    return gd_add(x, gd_slice(positions, 0, start, start + time, 1));
}

gd_tensor *gd_language_hidden(gd_language_model *m, gd_tensor *tokens, gd_language_cache *cache)
{
    if (!m || !tokens)
        return NULL;
    gd_shape shape = gd_tensor_shape(tokens);
    int64_t start = cache ? cache->length : 0;
    if (shape.rank != 2 || start + shape.dim[1] > m->options.length)
        return gd_fail_null(
            GD_ERR_SHAPE,
            "a language model of length %lld was given tokens of rank %d, %lld long "
            "after %lld; [batch, time] is needed, and no more than its length",
            (long long)m->options.length, shape.rank,
            (long long)(shape.rank > 1 ? shape.dim[1] : 0), (long long)start);
    bool gpt2 = m->options.decoder == GD_DECODER_GPT2;
    gd_tensor *weight = embedding(m);
    gd_tensor *x = weight ? gd_embedding(weight, tokens) : NULL;
    if (gpt2)
        x = add_positions(m, x, start, shape.dim[1]);
    x = drop(m, x);
    for (int64_t layer = 0; layer < m->options.layers; layer++)
        x = gpt2 ? gpt2_layer(m, layer, x, cache) : llama_layer(m, layer, x, cache);
    if (cache)
        cache->length += shape.dim[1];
    return norm_at(m, gpt2 ? "transformer.ln_f" : "norm", x);
}

gd_tensor *gd_language_output(gd_language_model *m, gd_tensor *hidden)
{
    if (!hidden)
        return NULL;
    if (m->options.untied)
        return gd_linear(m->module, "output", hidden, m->options.vocabulary, .no_bias = true);
    return gd_matmul(hidden, gd_transpose(embedding(m), 0, 1));
}

gd_tensor *gd_language_model_forward(gd_language_model *m, gd_tensor *tokens)
{
    return gd_language_output(m, gd_language_hidden(m, tokens, NULL));
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
    gd_context_disown(m->options.context, m);
    destroy(m);
}

static gd_status check(const gd_language_options *o)
{
    const int64_t most = 1 << 24;
    const int64_t sizes[] = { o->vocabulary, o->length, o->layers,  o->heads,
                              o->width,      o->hidden, o->kv_heads };
    bool fit = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fit = fit && sizes[i] > 0 && sizes[i] <= most;
    bool llama = o->decoder == GD_DECODER_LLAMA;
    fit = fit && o->width % o->heads == 0 && o->heads % o->kv_heads == 0;
    fit = fit && (llama ? o->width / o->heads % 2 == 0 : o->kv_heads == o->heads && !o->untied);
    if (!fit)
        return gd_fail(
            GD_ERR_INVALID,
            "a %s language model of vocabulary %lld, length %lld, %lld layers, %lld heads, "
            "%lld of keys, width %lld, hidden %lld: all must be 1 to %lld, heads a divisor "
            "of the width%s",
            llama ? "Llama" : "GPT-2", (long long)o->vocabulary, (long long)o->length,
            (long long)o->layers, (long long)o->heads, (long long)o->kv_heads, (long long)o->width,
            (long long)o->hidden, (long long)most,
            llama ? " with an even quotient, and those of keys a divisor of the heads"
                  : ", and those of keys as many; its output is tied");
    if (!(o->dropout >= 0.0 && o->dropout < 1.0))
        return gd_fail(GD_ERR_INVALID, "a language model's dropout is %g; it must be 0 to 1",
                       o->dropout);
    return GD_OK;
}

gd_language_model *gd_language_model_new(gd_language_options o)
{
    if (!o.context)
        return NULL;
    o.kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads;
    o.hidden = o.hidden == 0 ? 4 * o.width : o.hidden;
    if (check(&o) != GD_OK)
        return NULL;
    gd_language_model *m = gd_alloc_zero(1, sizeof *m);
    if (!m)
        return NULL;
    m->options = o;
    m->module = gd_module_create(o.context, .seed = o.seed);
    if (!m->module || gd_context_adopt(o.context, m, destroy) != GD_OK) {
        destroy(m);
        return NULL;
    }
    return m;
}

/* A forward pass on one token makes what is missing. */
gd_status gd_language_fill(gd_language_model *m)
{
    gd_context *gd = m->options.context;
    static const int64_t token = 0;
    gd_status status = gd_no_grad_begin(gd);
    if (status != GD_OK)
        return status;
    status = gd_scope_begin(gd);
    if (status == GD_OK) {
        if (!gd_language_model_forward(m, gd_from_host(gd, GD_SHAPE(1, 1), GD_I64, &token)))
            status = gd_error_code();
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
        bool adds = ends_with(path, "c_proj.weight") || ends_with(path, "wo.weight") ||
                    ends_with(path, "w2.weight");
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

gd_language_model *gd_language_model_create_with(gd_language_options o)
{
    gd_language_model *m = gd_language_model_new(o);
    if (m && (gd_language_fill(m) != GD_OK || draw_weights(m) != GD_OK)) {
        gd_language_model_release(m);
        return NULL;
    }
    return m;
}

gd_module *gd_language_model_module(const gd_language_model *m)
{
    return m ? m->module : NULL;
}

gd_language_options gd_language_model_options(const gd_language_model *m)
{
    return m ? m->options : (gd_language_options){ 0 };
}
