/* data/order.c: which samples are in batch number n: those of a shuffle, of the data set's own order,
 * or drawn at random with replacement. Start at gd_order_batch(). */
#include "data/order.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

struct gd_length_key {
    int64_t length, place, item;
};

/* ---- sampling with replacement ---- */

/* Draw number s since the beginning has its own stretch of the random stream. */
enum { WORDS_OF_A_DRAW = 16 };

static int64_t draw(const gd_order *o, uint64_t s)
{
    gd_random random = { .seed = o->seed, .next = s * WORDS_OF_A_DRAW };
    if (!o->sums)
        return (int64_t)gd_random_below(&random, (uint64_t)o->count);
    const double at = gd_random_unit(&random) * o->sums[o->count - 1];
    int64_t low = 0, high = o->count - 1; /* the first sum that is greater */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (o->sums[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static gd_status add_weights(gd_order *o, const double *weights)
{
    o->sums = gd_alloc((size_t)o->count * sizeof *o->sums);
    if (!o->sums)
        return GD_ERR_MEMORY;
    double sum = 0;
    for (int64_t i = 0; i < o->count; i++) {
        if (!(weights[i] >= 0) || !isfinite(weights[i]))
            return gd_fail(GD_ERR_INVALID, "gd_loader_create: weight %g of sample %lld", weights[i],
                           (long long)i);
        sum += weights[i];
        o->sums[i] = sum;
    }
    if (sum > 0 && isfinite(sum))
        return GD_OK;
    return gd_fail(GD_ERR_INVALID, "gd_loader_create: the weights' sum is %g", sum);
}

/* ---- an epoch's order ---- */

static int compare_keys(const void *a, const void *b)
{
    const gd_length_key *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* Within each window sort the samples by length, so that those of a batch are alike, and then, unless
 * the epoch has the data set's order, shuffle the window's full batches. */
static void sort_windows(gd_order *o, gd_random *random)
{
    const int64_t samples = o->window * o->batch;
    for (int64_t i = 0; i < o->batches; i++)
        o->places[i] = i;
    for (int64_t first = 0; first < o->count; first += samples) {
        int64_t count = o->count - first < samples ? o->count - first : samples;
        int64_t *items = o->items + first;
        for (int64_t i = 0; i < count; i++)
            o->keys[i] =
                (gd_length_key){ o->lengths[gd_dataset_index(o->dataset, items[i])], i, items[i] };
        qsort(o->keys, (size_t)count, sizeof *o->keys, compare_keys);
        for (int64_t i = 0; i < count; i++)
            items[i] = o->keys[i].item;
        const int64_t batch = first / o->batch, full = o->batches - (o->rest > 0);
        const int64_t end = batch + o->window < full ? batch + o->window : full;
        if (o->shuffle && batch < end)
            gd_random_shuffle(random, o->places + batch, end - batch);
    }
}

/* The order of an epoch is a shuffle with its own stretch of the random stream. */
static void begin_epoch(gd_order *o, int64_t epoch)
{
    for (int64_t i = 0; i < o->count; i++)
        o->items[i] = i;
    gd_random random = { .seed = o->seed, .next = (uint64_t)epoch << 40 };
    if (o->shuffle)
        gd_random_shuffle(&random, o->items, o->count);
    if (o->window)
        sort_windows(o, &random);
    o->epoch = epoch;
}

int64_t gd_order_size(const gd_order *o, int64_t n)
{
    return o->rest > 0 && n % o->batches == o->batches - 1 ? o->rest : o->batch;
}

const int64_t *gd_order_batch(gd_order *o, int64_t n, int64_t *room, int64_t *known)
{
    const int64_t epoch = n / o->batches, in_epoch = n % o->batches, size = gd_order_size(o, n);
    if (o->items) {
        if (epoch != o->epoch)
            begin_epoch(o, epoch);
        const int64_t first = (o->places ? o->places[in_epoch] : in_epoch) * o->batch;
        *known = o->places ? size : o->count - first;
        return o->items + first;
    }
    *known = size;
    for (int64_t i = 0; i < size; i++)
        room[i] = o->with_replacement ? draw(o, (uint64_t)n * (uint64_t)o->batch + (uint64_t)i)
                                      : in_epoch * o->batch + i;
    return room;
}

/* ---- choosing, opening, closing ---- */

/* Batches by length: of the first field whose lengths are known. */
static gd_status choose_lengths(gd_order *o)
{
    const gd_source *s = o->dataset->source;
    for (int f = 0; f < s->field_count && !o->lengths; f++)
        o->lengths = s->fields[f].lengths;
    if (o->with_replacement)
        return gd_fail(GD_ERR_INVALID,
                       "gd_loader_create: length_window sorts the samples of an epoch; those that "
                       "are drawn with replacement have none");
    if (!o->lengths)
        return gd_fail(GD_ERR_INVALID,
                       "gd_loader_create: length_window needs a field whose lengths are known");
    return GD_OK;
}

static gd_status check(const gd_dataset *d, const gd_loader_options *o, bool with_replacement)
{
    const long long batches = o->batches_per_epoch;
    if (o->batch < 1 || o->batch > (with_replacement ? INT32_MAX : INT64_MAX / 2))
        return gd_fail(
            GD_ERR_INVALID, "gd_loader_create: batch %lld; a batch holds at least 1 sample%s",
            (long long)o->batch, o->batch < 1 ? "" : ", and at most 2147483647 that are drawn");
    if (batches == 0 || batches < -1)
        return gd_fail(GD_ERR_INVALID, "gd_loader_create: %lld batches in an epoch", batches);
    if (o->length_window < 0 || o->length_window > INT32_MAX)
        return gd_fail(GD_ERR_INVALID, "gd_loader_create: length_window %lld",
                       (long long)o->length_window);
    if (o->drop_last && o->batch > d->count && !with_replacement)
        return gd_fail(
            GD_ERR_INVALID,
            "gd_loader_create: %lld samples do not fill a batch of %lld, and drop_last is set",
            (long long)d->count, (long long)o->batch);
    return GD_OK;
}

/* An epoch that ends before the data set does, or one of draws, which may be of any length. */
static gd_status limit_batches(gd_order *o, int64_t batches)
{
    if (batches > o->batches && !o->with_replacement)
        return gd_fail(GD_ERR_INVALID,
                       "gd_loader_create: %lld batches in an epoch; the samples fill %lld, unless "
                       "they are drawn with replacement",
                       (long long)batches, (long long)o->batches);
    if (batches < o->batches)
        o->rest = 0;
    o->batches = batches;
    return GD_OK;
}

gd_status gd_order_choose(const gd_dataset *d, const gd_loader_options *options, gd_order *o)
{
    const bool with_replacement = options->with_replacement || options->weights;
    gd_status status = check(d, options, with_replacement);
    if (status != GD_OK)
        return status;
    *o = (gd_order){ .seed = options->seed,
                     .count = d->count,
                     .batch = options->batch,
                     .shuffle = options->shuffle,
                     .with_replacement = with_replacement,
                     .window = options->length_window,
                     .epoch = -1,
                     .dataset = d };
    o->rest = options->drop_last || with_replacement ? 0 : d->count % o->batch;
    o->batches = d->count / o->batch + (o->rest > 0);
    if (o->batches == 0)
        o->batches = 1; /* drawn, and fewer samples than a batch has */
    if (options->batches_per_epoch != -1)
        status = limit_batches(o, options->batches_per_epoch);
    return status == GD_OK && o->window > 0 ? choose_lengths(o) : status;
}

gd_status gd_order_open(gd_order *o, const double *weights)
{
    if (weights)
        return add_weights(o, weights);
    if (o->with_replacement || !(o->shuffle || o->window))
        return GD_OK;
    o->items = gd_alloc((size_t)o->count * sizeof *o->items);
    if (!o->items || o->window == 0)
        return o->items ? GD_OK : GD_ERR_MEMORY;
    if (o->window > (o->count - 1) / o->batch + 1) /* all samples are one */
        o->window = (o->count - 1) / o->batch + 1;
    int64_t most = o->window * o->batch < o->count ? o->window * o->batch : o->count;
    o->keys = gd_alloc((size_t)most * sizeof *o->keys);
    o->places = gd_alloc((size_t)o->batches * sizeof *o->places);
    return o->keys && o->places ? GD_OK : GD_ERR_MEMORY;
}

void gd_order_close(gd_order *o)
{
    gd_free(o->items);
    gd_free(o->sums);
    gd_free(o->keys);
    gd_free(o->places);
}
