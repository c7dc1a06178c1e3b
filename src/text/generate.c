/* text/generate.c: text from a language model, token by token. Start at gd_generate_with(). */
#include "text/generator.h"
#include "text/tokenizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <math.h>
#include <string.h>

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
    g->capacity = (size_t)model->options.vocabulary;
    g->logits = gd_alloc(g->capacity * sizeof *g->logits);
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

/* The logits behind the last of some tokens, or behind all, into g->logits: f32, also where autocast
 * computes in halves. */
static gd_status step(gd_generator *g, gd_tensor *tokens, bool all)
{
    gd_tensor *logits = gd_cast(gd_language_logits(g->model, tokens, g->cache, !all), GD_F32);
    if (!logits)
        return gd_error_last();
    const size_t count = (size_t)gd_tensor_count(logits);
    if (!gd_grow((void **)&g->logits, &g->capacity, count, sizeof *g->logits))
        return GD_ERR_MEMORY;
    return gd_tensor_read(logits, g->logits, count * sizeof *g->logits);
}

/* In a scope and without history; a model in training is not, for the time. A failure ends the
 * sequence: the layers' caches may be of different lengths. */
static gd_status run(gd_generator *g, const int32_t *tokens, int64_t count, bool all)
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
        status = t ? step(g, t, all) : gd_error_last();
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

static gd_status check_tokens(const char *who, const gd_generator *g, int64_t count,
                              const int32_t *tokens)
{
    const int64_t kinds = g->model->options.vocabulary;
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= kinds)
            return gd_fail(GD_ERR_INVALID, "%s: token %d; the model has %lld", who, (int)tokens[i],
                           (long long)kinds);
    return GD_OK;
}

static const float *feed(const char *who, gd_generator *g, int64_t count, const int32_t *tokens,
                         bool all)
{
    if (!g)
        return NULL;
    const gd_language_options *o = &g->model->options;
    if (!tokens || count < 1)
        return gd_fail_null(GD_ERR_INVALID, "%s: there are no tokens", who);
    if (count > o->max_length - gd_generator_length(g))
        return gd_fail_null(
            GD_ERR_SHAPE, "%s: %lld tokens after %lld are more than the model's %lld", who,
            (long long)count, (long long)gd_generator_length(g), (long long)o->max_length);
    if (check_tokens(who, g, count, tokens) != GD_OK)
        return NULL;
    return run(g, tokens, count, all) == GD_OK ? g->logits : NULL;
}

const float *gd_generator_feed(gd_generator *g, int64_t count, const int32_t *tokens)
{
    return feed("gd_generator_feed", g, count, tokens, false);
}

const float *gd_generator_feed_all(gd_generator *g, int64_t count, const int32_t *tokens)
{
    return feed("gd_generator_feed_all", g, count, tokens, true);
}

/* ---- perplexity ---- */

/* -log of the probability of the token behind each of `count`, added up. */
static double surprise(const float *logits, int64_t vocabulary, int64_t count,
                       const int32_t *tokens)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++, logits += vocabulary) {
        double total = 0.0, most = (double)logits[0];
        for (int64_t k = 1; k < vocabulary; k++)
            most = (double)logits[k] > most ? (double)logits[k] : most;
        for (int64_t k = 0; k < vocabulary; k++)
            total += exp((double)logits[k] - most);
        sum += most + log(total) - (double)logits[tokens[i + 1]];
    }
    return sum;
}

gd_status gd_generator_loss(gd_generator *g, int64_t count, const int32_t *tokens, double *loss)
{
    const char *who = "gd_generator_loss";
    enum { LONGEST = 1024 }; /* sequence: with a vocabulary of 50,000 its logits are 200 MB */
    if (!g || !loss)
        return gd_fail(GD_ERR_INVALID, "%s: the generator or the result is NULL", who);
    if (!tokens || count < 2)
        return gd_fail(GD_ERR_INVALID, "%s: %lld tokens: two at least are needed", who,
                       (long long)(tokens ? count : 0));
    const gd_language_options *o = &g->model->options;
    const int64_t most = o->max_length < LONGEST ? o->max_length : LONGEST;
    if (check_tokens(who, g, count, tokens) != GD_OK)
        return gd_error_last();
    double sum = 0.0;
    for (int64_t at = 0; at < count - 1; at += most) {
        const int64_t some = count - 1 - at < most ? count - 1 - at : most;
        gd_generator_reset(g);
        const float *logits = feed(who, g, some, tokens + at, true);
        if (!logits)
            return gd_error_last();
        sum += surprise(logits, o->vocabulary, some, tokens + at);
    }
    gd_generator_reset(g);
    *loss = sum / (double)(count - 1);
    return GD_OK;
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

/* What is fed after one more token: that token. A sequence that has reached the model's length is begun anew with its last
 * half, the new token among them; it may have grown over several calls. */
static const int32_t *next_feed(gd_generator *g, const int32_t *token, int64_t *count)
{
    int64_t length = g->model->options.max_length;
    *count = 1;
    if (gd_generator_length(g) < length)
        return token;
    *count = (length + 1) / 2;
    int64_t kept = *count - 1;
    memmove(g->tokens, g->tokens + (length - kept), (size_t)kept * sizeof *g->tokens);
    g->tokens[kept] = *token;
    gd_generator_reset(g);
    return g->tokens;
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

/* One token behind those that are fed, or with a draft as many as it gets right and one more. How many; -1: an error. */
static int64_t choose(const generation *o, const gd_tokens *tokens, int64_t count,
                      const int32_t *fed, int32_t chosen[GD_MOST_DRAFT_TOKENS + 1])
{
    gd_generator *g = o->generator;
    if (o->options.draft)
        return gd_generator_speculate(g, o->options.draft, o->sampler, count, fed, tokens->count,
                                      tokens->ids, o->options.draft_tokens, chosen);
    const float *logits = gd_generator_feed(g, count, fed);
    if (!logits)
        return -1;
    chosen[0] =
        gd_sample(o->sampler, g->model->options.vocabulary, logits, tokens->count, tokens->ids);
    return chosen[0] < 0 ? -1 : 1;
}

/* Take in a token that was chosen behind `length` others. *stop: it is the last. */
static gd_status take(const generation *o, gd_tokens *tokens, int32_t token, int64_t length,
                      bool *stop)
{
    size_t size;
    int32_t previous = tokens->ids[tokens->count - 1];
    const char *text = gd_token_text(o->tokenizer, previous, token, &size);
    if (!text)
        return gd_error_last();
    gd_status status = gd_tokens_add(tokens, token);
    *stop = o->options.max_tokens < 0 && length == o->generator->model->options.max_length;
    return status == GD_OK ? tell(&o->options, token, text, size, stop) : status;
}

/* Feed, choose, tell, over and over. `tokens` has those of this call, for the penalty. */
static int64_t continue_text(const generation *o, gd_tokens *tokens)
{
    gd_generator *g = o->generator;
    int32_t chosen[GD_MOST_DRAFT_TOKENS + 1], last;
    const int32_t *fed = tokens->ids;
    int64_t made = 0, count = tokens->count;
    for (;;) {
        int64_t length = gd_generator_length(g) + count;
        int64_t many = choose(o, tokens, count, fed, chosen);
        bool stop = false;
        if (many < 0)
            return -1;
        for (int64_t i = 0; i < many && !stop; i++, length++) {
            const bool end = ends(o->tokenizer, chosen[i]);
            if (!end && take(o, tokens, chosen[i], length, &stop) != GD_OK)
                return -1;
            made += !end;
            stop = stop || end || made == o->options.max_tokens;
            if (stop && gd_kv_cache_truncate(g->cache, length) != GD_OK)
                return -1;
        }
        if (stop)
            return made;
        last = chosen[many - 1];
        fed = next_feed(g, &last, &count);
    }
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
    if (o.options.draft &&
        (o.options.draft_tokens < 1 || o.options.draft_tokens > GD_MOST_DRAFT_TOKENS)) {
        (void)gd_fail(GD_ERR_INVALID, "gd_generate: %lld tokens to draft; 1 to %d are needed",
                      (long long)o.options.draft_tokens, GD_MOST_DRAFT_TOKENS);
        return -1;
    }
    if (o.options.max_tokens == 0)
        return 0;
    gd_tokens tokens = { 0 };
    int64_t made = begin(&o, &tokens) == GD_OK ? continue_text(&o, &tokens) : -1;
    gd_tokens_free(&tokens);
    return made;
}
