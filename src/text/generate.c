/* text/generate.c: text from a language model, token by token. Start at gd_generate_with(). */
#include "text/language_model.h"
#include "text/tokenizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <string.h>

struct gd_generator {
    gd_language_model *model;
    gd_kv_cache *cache;
    int32_t *tokens; /* [length]: those whose keys and values the cache has */
    float *logits;   /* [vocabulary] */
};

/* ---- the sequence ---- */

void gd_generator_reset(gd_generator *g)
{
    if (g)
        (void)gd_kv_cache_truncate(g->cache, 0);
}

static void destroy(void *object)
{
    gd_generator *g = object;
    gd_kv_cache_release(g->cache);
    gd_free(g->tokens);
    gd_free(g->logits);
    gd_free(g);
}

void gd_generator_release(gd_generator *g)
{
    if (!g)
        return;
    gd_context_disown(g->model->context, g);
    destroy(g);
}

gd_generator *gd_generator_create(gd_language_model *model)
{
    gd_generator *g = model ? gd_alloc_zero(1, sizeof *g) : NULL;
    if (!g)
        return NULL;
    g->model = model;
    g->cache = gd_kv_cache_create(model->context, model->options.max_length);
    g->tokens = gd_alloc((size_t)model->options.max_length * sizeof *g->tokens);
    g->logits = gd_alloc((size_t)model->options.vocabulary * sizeof(float));
    if (!g->cache || !g->tokens || !g->logits ||
        gd_context_adopt(model->context, g, destroy) != GD_OK) {
        destroy(g);
        return NULL;
    }
    return g;
}

gd_status gd_generator_set_cache_dtype(gd_generator *g, gd_dtype dtype)
{
    return g ? gd_kv_cache_set_dtype(g->cache, dtype) : GD_OK;
}

int64_t gd_generator_length(const gd_generator *g)
{
    return g ? gd_kv_cache_length(g->cache) : 0;
}

/* The logits behind the last of some tokens, into g->logits. */
static gd_status step(gd_generator *g, gd_tensor *tokens)
{
    gd_tensor *logits = gd_language_logits(g->model, tokens, g->cache);
    if (!logits)
        return gd_error_last();
    return gd_tensor_read(logits, g->logits, (size_t)g->model->options.vocabulary * sizeof(float));
}

/* In a scope and without history; a model in training is not, for the time. A failure ends the
 * sequence: the layers' caches may be of different lengths. */
static gd_status run(gd_generator *g, const int32_t *tokens, int64_t count)
{
    gd_context *gd = g->model->context;
    bool training = gd_module_is_training(g->model->module);
    int64_t length = gd_generator_length(g);
    gd_status status = gd_no_grad_begin(gd);
    if (status != GD_OK)
        return status;
    status = gd_scope_begin(gd);
    if (status == GD_OK) {
        gd_module_set_training(g->model->module, false);
        gd_tensor *t = gd_from_host(gd, GD_SHAPE(1, count), GD_I32, tokens);
        status = t ? step(g, t) : gd_error_last();
        gd_module_set_training(g->model->module, training);
        (void)gd_scope_end(gd);
    }
    (void)gd_no_grad_end(gd);
    if (status == GD_OK)
        memmove(g->tokens + length, tokens, (size_t)count * sizeof *tokens);
    else
        gd_generator_reset(g);
    return status;
}

const float *gd_generator_feed(gd_generator *g, int64_t count, const int32_t *tokens)
{
    if (!g)
        return NULL;
    const gd_language_options *o = &g->model->options;
    if (!tokens || count < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_generator_feed: there are no tokens");
    if (count > o->max_length - gd_generator_length(g))
        return gd_fail_null(
            GD_ERR_SHAPE,
            "gd_generator_feed: %lld tokens after %lld are more than the model's %lld",
            (long long)count, (long long)gd_generator_length(g), (long long)o->max_length);
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= o->vocabulary)
            return gd_fail_null(GD_ERR_INVALID, "gd_generator_feed: token %d; the model has %lld",
                                (int)tokens[i], (long long)o->vocabulary);
    return run(g, tokens, count) == GD_OK ? g->logits : NULL;
}

/* ---- text ---- */

typedef struct generation {
    gd_generator *generator;
    const gd_tokenizer *tokenizer;
    gd_sampler *sampler;
    gd_generate_options options;
} generation;

/* The tokens of the prompt, behind the begin token where there is one; never none. */
static gd_status begin(const generation *o, gd_tokens *tokens)
{
    int32_t first = gd_tokenizer_begin(o->tokenizer), end = gd_tokenizer_end(o->tokenizer);
    gd_status status = GD_OK;
    if (first >= 0 && gd_generator_length(o->generator) == 0)
        status = gd_tokens_add(tokens, first);
    if (status == GD_OK && o->options.prompt)
        status = gd_tokenize(o->tokenizer, o->options.prompt, strlen(o->options.prompt), tokens);
    if (status == GD_OK && tokens->count == 0)
        status = gd_tokens_add(tokens, end >= 0 ? end : 0);
    return status;
}

/* Whether a token ends a text: the end token, or the begin token of another one. */
static bool ends(const gd_tokenizer *tokenizer, int32_t token)
{
    return token == gd_tokenizer_end(tokenizer) || token == gd_tokenizer_begin(tokenizer);
}

/* The logits after one more token. A sequence that has reached the model's length is begun anew
 * with its last half, the new token among them; it may have grown over several calls. */
static const float *feed_last(gd_generator *g, int32_t token)
{
    int64_t length = g->model->options.max_length;
    if (gd_generator_length(g) < length)
        return gd_generator_feed(g, 1, &token);
    int64_t again = (length + 1) / 2, kept = again - 1;
    memmove(g->tokens, g->tokens + (length - kept), (size_t)kept * sizeof *g->tokens);
    g->tokens[kept] = token;
    gd_generator_reset(g);
    return gd_generator_feed(g, again, g->tokens);
}

/* *stop is set where the callback wants to. */
static gd_status tell(const gd_generate_options *o, int32_t token, const char *text, size_t size,
                      bool *stop)
{
    if (!o->callback)
        return GD_OK;
    const uint64_t mark = gd_error_mark();
    bool wanted = false;
    gd_status status = o->callback(o->user, token, text, size, &wanted);
    *stop |= wanted;
    return gd_callback_status(status, mark, "gd_generate");
}

/* Choose, tell, feed, over and over. `tokens` holds those of this call, for the penalty. */
static int64_t continue_text(const generation *o, gd_tokens *tokens)
{
    gd_generator *g = o->generator;
    const gd_language_options *model = &g->model->options;
    int64_t made = 0;
    const float *logits = gd_generator_feed(g, tokens->count, tokens->ids);
    while (logits) {
        int32_t token =
            gd_sample(o->sampler, model->vocabulary, logits, tokens->count, tokens->ids);
        if (token < 0)
            return -1;
        if (ends(o->tokenizer, token))
            return made;
        size_t size;
        int32_t previous = tokens->ids[tokens->count - 1];
        const char *text = gd_token_text(o->tokenizer, previous, token, &size);
        if (!text || gd_tokens_add(tokens, token) != GD_OK)
            return -1;
        made++;
        bool stop = o->options.max_tokens < 0 && gd_generator_length(g) == model->max_length;
        if (tell(&o->options, token, text, size, &stop) != GD_OK)
            return -1;
        if (stop || made == o->options.max_tokens)
            return made;
        logits = feed_last(g, token);
    }
    return -1;
}

int64_t gd_generate_with(gd_generator *generator, const gd_tokenizer *tokenizer,
                         gd_sampler *sampler, const gd_generate_options *options)
{
    generation o = { generator, tokenizer, sampler, { GD_GENERATE_DEFAULTS } };
    if (!gd_options_read("gd_generate", &o.options, sizeof o.options, options))
        return -1;
    if (!generator || !tokenizer || !sampler) {
        (void)gd_fail(GD_ERR_INVALID, "gd_generate: the %s is NULL",
                      !generator   ? "generator"
                      : !tokenizer ? "tokeniser"
                                   : "sampler");
        return -1;
    }
    if (o.options.max_tokens == 0)
        return 0;
    gd_tokens tokens = { 0 };
    int64_t made = begin(&o, &tokens) == GD_OK ? continue_text(&o, &tokens) : -1;
    gd_tokens_free(&tokens);
    return made;
}
