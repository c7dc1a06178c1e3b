/* text/sampler.c: choosing the next token. Start at gd_sample(). */
#include "text/sampler.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/random.h"

#include <math.h>

typedef struct candidate {
    float logit;
    int32_t token;
} candidate;

struct gd_sampler {
    gd_sampler_options options;
    gd_random random;
    candidate *candidates; /* [capacity] */
    size_t capacity;
};

/* ---- candidates in order of likelihood: a heap, of which only as many come out as are needed ----
 */

static bool likelier(candidate a, candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void sift(candidate *heap, int64_t count, int64_t i)
{
    candidate c = heap[i];
    for (int64_t child; (child = 2 * i + 1) < count; i = child) {
        child += child + 1 < count && likelier(heap[child + 1], heap[child]);
        if (!likelier(heap[child], c))
            break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

static void make_heap(candidate *heap, int64_t count)
{
    for (int64_t i = count / 2 - 1; i >= 0; i--)
        sift(heap, count, i);
}

/* Move the likeliest to the end, out of the heap. */
static candidate pop(candidate *heap, int64_t *count)
{
    candidate top = heap[0];
    heap[0] = heap[--*count];
    heap[*count] = top;
    if (*count > 0)
        sift(heap, *count, 0);
    return top;
}

/* ---- probabilities ---- */

/* In proportion to a token's probability; 1 for the likeliest. */
static double weight(const gd_sampler *s, candidate c, float best)
{
    return exp(((double)c.logit - (double)best) / s->options.temperature);
}

static double total_weight(const gd_sampler *s, const candidate *from, int64_t count, float best)
{
    double total = 0.0;
    for (int64_t i = 0; i < count; i++)
        total += weight(s, from[i], best);
    return total;
}

/* One of `count` candidates, each with its share of `total`. */
static int32_t draw(gd_sampler *s, const candidate *from, int64_t count, float best, double total)
{
    double left = gd_random_unit(&s->random) * total;
    int64_t last = 0; /* the last that is possible, should rounding leave something over */
    for (int64_t i = 0; i < count; i++) {
        double w = weight(s, from[i], best);
        if (w > 0.0)
            last = i;
        left -= w;
        if (left < 0.0)
            break;
    }
    return from[last].token;
}

/* The candidates that one is drawn from. */
typedef struct chosen {
    const candidate *from;
    int64_t count;
    double total; /* of their weights */
} chosen;

/* The likeliest alone. */
static chosen choose_best(gd_sampler *s, int64_t count, float best)
{
    const gd_sampler_options *o = &s->options;
    candidate *c = s->candidates;
    int64_t inside = count; /* still in the heap; those taken out lie behind it */
    make_heap(c, count);
    int64_t most = o->top_k < count ? o->top_k : count;
    double total = 0.0;
    while (most < count && inside > count - most)
        total += weight(s, pop(c, &inside), best);
    if (most == count)
        total = total_weight(s, c, count, best);
    if (o->top_p >= 1.0)
        return (chosen){ c + (count - most), most, total };
    /* The nucleus. Where top_k has taken candidates out, the likeliest lie last. */
    double kept = 0.0;
    int64_t first = count;
    while ((first == count || kept < o->top_p * total) && first > count - most) {
        if (first == inside)
            (void)pop(c, &inside);
        kept += weight(s, c[--first], best);
    }
    return (chosen){ c + first, count - first, kept };
}

static chosen choose(gd_sampler *s, int64_t count, float best)
{
    if (s->options.top_k < count || s->options.top_p < 1.0)
        return choose_best(s, count, best);
    return (chosen){ s->candidates, count, total_weight(s, s->candidates, count, best) };
}

/* ---- the sampler ---- */

/* The candidates with the penalty applied, and the largest logit. */
static gd_status take(gd_sampler *s, const float *logits, int64_t count, const int32_t *past,
                      int64_t past_count, int64_t *best)
{
    if (!gd_grow((void **)&s->candidates, &s->capacity, (size_t)count, sizeof *s->candidates))
        return GD_ERR_MEMORY;
    candidate *c = s->candidates;
    for (int64_t i = 0; i < count; i++)
        c[i] = (candidate){ logits[i], (int32_t)i };
    float penalty = (float)s->options.repetition_penalty;
    for (int64_t i = 0; past && i < past_count && penalty != 1.0f; i++)
        if (past[i] >= 0 &&
            past[i] < count) { /* from `logits`: a token that occurs twice is penalised once */
            float logit = logits[past[i]];
            c[past[i]].logit = logit > 0.0f ? logit / penalty : logit * penalty;
        }
    *best = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(c[i].logit))
            return gd_fail(GD_ERR_INVALID, "gd_sample: the logit of token %lld is not a number",
                           (long long)i);
        if (c[i].logit > c[*best].logit)
            *best = i;
    }
    if (isinf(c[*best].logit))
        return gd_fail(GD_ERR_INVALID, "gd_sample: the largest of %lld logits is %g",
                       (long long)count, (double)c[*best].logit);
    return GD_OK;
}

int32_t gd_sample(gd_sampler *s, int64_t count, const float *logits, int64_t past_count,
                  const int32_t *past)
{
    if (!s || !logits || count < 1 || count > INT32_MAX || past_count < 0) {
        (void)gd_fail(GD_ERR_INVALID, "gd_sample: %s",
                      !s               ? "the sampler is NULL"
                      : !logits        ? "the logits are NULL"
                      : past_count < 0 ? "there are less than 0 tokens of the past"
                                       : "the number of logits must be 1 to 2147483647");
        return -1;
    }
    int64_t best;
    if (take(s, logits, count, past, past_count, &best) != GD_OK)
        return -1;
    if (s->options.temperature == 0.0)
        return (int32_t)best;
    const float top = s->candidates[best].logit;
    const chosen c = choose(s, count, top);
    return draw(s, c.from, c.count, top, c.total);
}

/* ---- distributions ---- */

gd_status gd_sampler_probabilities(gd_sampler *s, int64_t count, const float *logits,
                                   int64_t past_count, const int32_t *past, double *probabilities)
{
    int64_t best;
    gd_status status = take(s, logits, count, past, past_count, &best);
    for (int64_t i = 0; status == GD_OK && i < count; i++)
        probabilities[i] = 0.0;
    if (status != GD_OK)
        return status;
    if (s->options.temperature == 0.0) {
        probabilities[best] = 1.0;
        return GD_OK;
    }
    const float top = s->candidates[best].logit;
    const chosen c = choose(s, count, top);
    for (int64_t i = 0; i < c.count; i++)
        probabilities[c.from[i].token] = weight(s, c.from[i], top) / c.total;
    return GD_OK;
}

double gd_sampler_unit(gd_sampler *s)
{
    return gd_random_unit(&s->random);
}

int32_t gd_sampler_draw(gd_sampler *s, int64_t count, const double *weights)
{
    double total = 0.0;
    for (int64_t i = 0; i < count; i++)
        total += weights[i];
    double left = gd_sampler_unit(s) * total;
    int64_t last = 0; /* the last that is possible, should rounding leave something over */
    for (int64_t i = 0; i < count && left >= 0.0; i++) {
        last = weights[i] > 0.0 ? i : last;
        left -= weights[i];
    }
    return (int32_t)last;
}

gd_sampler *gd_sampler_create_with(const gd_sampler_options *options)
{
    gd_sampler_options o = { GD_SAMPLER_DEFAULTS };
    if (!gd_options_read("gd_sampler_create", &o, sizeof o, options))
        return NULL;
    if (!(o.temperature >= 0.0) || !(o.top_p >= 0.0 && o.top_p <= 1.0) || o.top_k < 1 ||
        !(o.repetition_penalty > 0.0))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_sampler_create: temperature %g, top_k %lld, top_p %g, "
                            "repetition_penalty %g; 0 or more, 1 or more, 0 to 1, and more than 0 "
                            "are needed",
                            o.temperature, (long long)o.top_k, o.top_p, o.repetition_penalty);
    gd_sampler *s = gd_alloc_zero(1, sizeof *s);
    if (!s)
        return NULL;
    s->options = o;
    s->random.seed = o.seed;
    return s;
}

void gd_sampler_release(gd_sampler *s)
{
    if (!s)
        return;
    gd_free(s->candidates);
    gd_free(s);
}
