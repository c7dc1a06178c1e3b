/* text/speculate.c: speculative decoding: a small model drafts tokens, the large one looks at all of them in one pass and keeps those
 * that agree with it. Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023; Chen et al.,
 * "Accelerating Large Language Model Decoding with Speculative Sampling", 2023. Start at gd_generator_speculate(). */
#include "text/generator.h"
#include "text/sampler.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

static const char who[] = "gd_generator_speculate";

typedef struct speculation {
    gd_generator *target, *draft;
    gd_sampler *sampler;
    int64_t vocabulary, count, drafts;
    int32_t *all;  /* the target's tokens, the `count` new ones, then those drafted */
    int64_t begin; /* of the new ones in `all` */
    int32_t *past; /* for the penalty, then those drafted */
    int64_t past_count;
    double *p, *q; /* [vocabulary], [drafts, vocabulary] */
} speculation;

/* Feed the draft what it has not: it may have had other tokens, that the target did not keep. */
static const float *catch_up(const speculation *s)
{
    const int64_t end = s->begin + s->count, has = gd_generator_length(s->draft);
    int64_t same = 0;
    while (same < has && same < end - 1 && s->draft->tokens[same] == s->all[same])
        same++;
    if (gd_kv_cache_truncate(s->draft->cache, same) != GD_OK)
        return NULL;
    return gd_generator_feed(s->draft, end - same, s->all + same);
}

/* The draft's tokens, each drawn from its distribution, which q keeps. */
static gd_status draw_drafts(speculation *s)
{
    const float *logits = s->drafts > 0 ? catch_up(s) : NULL;
    for (int64_t i = 0; i < s->drafts; i++) {
        double *q = s->q + i * s->vocabulary;
        if (!logits || gd_sampler_probabilities(s->sampler, s->vocabulary, logits,
                                                s->past_count + i, s->past, q) != GD_OK)
            return gd_error_last();
        const int32_t token = gd_sampler_draw(s->sampler, s->vocabulary, q);
        s->all[s->begin + s->count + i] = s->past[s->past_count + i] = token;
        if (i + 1 < s->drafts)
            logits = gd_generator_feed(s->draft, 1, &token);
    }
    return GD_OK;
}

/* Whether a drafted token is kept: with probability min(1, p / q). Else it is replaced by one drawn from max(0, p - q). */
static bool keep(speculation *s, const double *q, int32_t *token)
{
    const double *p = s->p;
    double left = 0.0;
    if (gd_sampler_unit(s->sampler) * q[*token] < p[*token])
        return true;
    for (int64_t i = 0; i < s->vocabulary; i++)
        left += p[i] > q[i] ? p[i] - q[i] : 0.0;
    for (int64_t i = 0; left > 0.0 && i < s->vocabulary; i++)
        s->p[i] = p[i] > q[i] ? p[i] - q[i] : 0.0;
    *token = gd_sampler_draw(s->sampler, s->vocabulary, s->p);
    return false;
}

/* The tokens that are kept, and one more. How many; -1: an error. */
static int64_t judge(speculation *s, int32_t *out)
{
    const float *logits = gd_generator_feed_all(s->target, s->count + s->drafts, s->all + s->begin);
    for (int64_t i = 0; logits && i <= s->drafts; i++) {
        const float *row = logits + (s->count - 1 + i) * s->vocabulary;
        if (gd_sampler_probabilities(s->sampler, s->vocabulary, row, s->past_count + i, s->past,
                                     s->p) != GD_OK)
            return -1;
        const bool more = i < s->drafts;
        out[i] =
            more ? s->past[s->past_count + i] : gd_sampler_draw(s->sampler, s->vocabulary, s->p);
        if (more && keep(s, s->q + i * s->vocabulary, &out[i]))
            continue;
        s->target->drafted += s->drafts;
        s->target->accepted += i;
        if (gd_kv_cache_truncate(s->target->cache, s->begin + s->count + i) != GD_OK)
            return -1;
        return i + 1;
    }
    return -1;
}

/* As many as were asked for, and fit into both models. */
static int64_t how_many(const speculation *s, int64_t wanted)
{
    const int64_t length = s->begin + s->count;
    const int64_t room = s->target->model->options.max_length - length;
    const int64_t other = s->draft->model->options.max_length - length + 1;
    const int64_t most = room < other ? room : other;
    return most < 0 ? 0 : wanted < most ? wanted : most;
}

static gd_status check(const speculation *s, const int32_t *tokens, int64_t wanted,
                       const int32_t *past, const int32_t *out)
{
    if (!s->target || !s->draft || !s->sampler || !tokens || !out || s->count < 1)
        return gd_fail(GD_ERR_INVALID, "%s: %s", who,
                       !s->target    ? "the generator is NULL"
                       : !s->draft   ? "the draft is NULL"
                       : !s->sampler ? "the sampler is NULL"
                       : !out        ? "there is no room for tokens"
                                     : "there are no tokens");
    const int64_t kinds = s->target->model->options.vocabulary;
    const int64_t drafts = s->draft->model->options.vocabulary;
    if (kinds != drafts || s->target == s->draft)
        return gd_fail(GD_ERR_INVALID,
                       "%s: the model has %lld tokens, the draft's %lld; they must have the same, "
                       "and generators of their own",
                       who, (long long)kinds, (long long)drafts);
    if (wanted < 1 || wanted > GD_MOST_DRAFT_TOKENS || s->past_count < 0 ||
        (s->past_count > 0 && !past))
        return gd_fail(GD_ERR_INVALID,
                       "%s: %lld tokens to draft, %lld of the past; 1 to %d, and 0 "
                       "or more are needed",
                       who, (long long)wanted, (long long)s->past_count, GD_MOST_DRAFT_TOKENS);
    if (s->count > s->target->model->options.max_length - gd_generator_length(s->target))
        return gd_fail(GD_ERR_SHAPE, "%s: %lld tokens after %lld are more than the model's %lld",
                       who, (long long)s->count, (long long)gd_generator_length(s->target),
                       (long long)s->target->model->options.max_length);
    return GD_OK;
}

int64_t gd_generator_speculate(gd_generator *generator, gd_generator *draft, gd_sampler *sampler,
                               int64_t count, const int32_t *tokens, int64_t past_count,
                               const int32_t *past, int64_t draft_tokens, int32_t *out)
{
    speculation s = { .target = generator,
                      .draft = draft,
                      .sampler = sampler,
                      .count = count,
                      .past_count = past_count };
    if (check(&s, tokens, draft_tokens, past, out) != GD_OK)
        return -1;
    s.begin = gd_generator_length(generator);
    s.vocabulary = generator->model->options.vocabulary;
    s.drafts = how_many(&s, draft_tokens);
    const size_t kinds = (size_t)s.vocabulary, more = (size_t)s.drafts;
    s.all = gd_alloc(((size_t)(s.begin + count) + more) * sizeof *s.all);
    s.past = gd_alloc(((size_t)past_count + more + 1) * sizeof *s.past);
    s.p = gd_alloc(kinds * sizeof *s.p);
    s.q = gd_alloc((more * kinds + 1) * sizeof *s.q);
    int64_t made = -1;
    if (s.all && s.past && s.p && s.q) {
        memcpy(s.all, generator->tokens, (size_t)s.begin * sizeof *s.all);
        memcpy(s.all + s.begin, tokens, (size_t)count * sizeof *s.all);
        if (past_count > 0)
            memcpy(s.past, past, (size_t)past_count * sizeof *s.past);
        made = draw_drafts(&s) == GD_OK ? judge(&s, out) : -1;
    }
    gd_free(s.q);
    gd_free(s.p);
    gd_free(s.past);
    gd_free(s.all);
    return made;
}

int64_t gd_generator_drafted(const gd_generator *generator)
{
    return generator ? generator->drafted : 0;
}

int64_t gd_generator_accepted(const gd_generator *generator)
{
    return generator ? generator->accepted : 0;
}
