/* data/loader.c: batches. They are numbered from 0 on, through all epochs; making batch n is a
 * function of the data set, the seed and n, and is done either in gd_loader_next or ahead of it in
 * a thread. Start at make(), then gd_loader_next().
 *
 * A ring of slots contains the batches that are ready and the one the caller has. `made` and
 * `taken` count batches; slot n % ring is batch n's. Only the maker writes a slot, while made -
 * released < ring; only the caller reads it, while it is taken and not released. */
#include "data/dataset.h"

#include <gradus/compile.h>
#include <gradus/ops.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/random.h"

#include <pthread.h>
#include <string.h>

/* A batch's tensors: for a full batch, or for the smaller last one of an epoch. The caller's are not
 * mapped, all others are, for the maker to write to. */
typedef struct pair {
    gd_tensor *x, *y; /* retained */
    float *samples;   /* x, mapped */
    int64_t *labels;  /* y, mapped */
} pair;

typedef struct slot {
    pair full, last;
} slot;

struct gd_loader {
    const gd_dataset *dataset;
    gd_context *context;
    int64_t batch, batches, rest; /* samples in the last batch when it is not full, else 0 */
    bool shuffle;
    uint64_t seed;
    slot *slots; /* [ring] */
    int64_t ring;
    int64_t *order; /* [dataset count] of the epoch being made */

    bool threaded;
    bool end_told; /* the caller has been told of the epoch's end */
    pair *current; /* the batch the caller has; NULL: none */
    int64_t taken; /* batches the caller got */

    /* Shared with the maker, under the lock. */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more_made, more_room;
    int64_t made, released;
    bool maker_waits, stop;
};

/* ---- making a batch ---- */

/* Begin an epoch: its order is a shuffle with its own stretch of the random stream. */
static void begin_epoch(gd_loader *l, int64_t epoch)
{
    if (!l->shuffle && epoch > 0)
        return;
    for (int64_t i = 0; i < l->dataset->count; i++)
        l->order[i] = i;
    gd_random random = { .seed = l->seed, .next = (uint64_t)epoch << 40 };
    if (l->shuffle)
        gd_random_shuffle(&random, l->order, l->dataset->count);
}

/* Samples lie far apart in memory: ask for those to come while this one is being converted, past
 * the end of the batch too. */
static void prefetch_sample(const gd_dataset *d, int64_t i)
{
    const char *sample = gd_dataset_sample(d, i);
    size_t bytes = (size_t)d->features * gd_dtype_size(d->dtype);
    for (size_t at = 0; at < bytes && at < 4096; at += 64)
        __builtin_prefetch(sample + at, 0, 2);
}

/* Batch number n into its slot. Allocates nothing, cannot fail. */
static void make(gd_loader *l, int64_t n)
{
    enum { AHEAD = 8 };
    const gd_dataset *d = l->dataset;
    int64_t in_epoch = n % l->batches;
    if (in_epoch == 0)
        begin_epoch(l, n / l->batches);
    bool is_rest = l->rest > 0 && in_epoch == l->batches - 1;
    const pair *to = is_rest ? &l->slots[n % l->ring].last : &l->slots[n % l->ring].full;
    int64_t size = is_rest ? l->rest : l->batch, first = in_epoch * l->batch;
    float *x = to->samples;
    int64_t *y = to->labels;
    for (int64_t i = 0; i < size; i++) {
        int64_t sample = l->order[first + i];
        if (first + i + AHEAD < d->count)
            prefetch_sample(d, l->order[first + i + AHEAD]);
        d->convert(gd_dataset_sample(d, sample), x + i * d->features, d->features, d->scale,
                   d->shift);
        y[i] = d->labels[sample];
    }
}

/* ---- the maker's thread ---- */

static void *make_ahead(void *argument)
{
    gd_loader *l = argument;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (l->made - l->released == l->ring) {
            l->maker_waits = true;
            pthread_cond_wait(&l->more_room, &l->lock);
            l->maker_waits = false;
            continue;
        }
        int64_t n = l->made;
        pthread_mutex_unlock(&l->lock);
        make(l, n);
        pthread_mutex_lock(&l->lock);
        l->made++;
        pthread_cond_signal(&l->more_made);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Give the caller's batch back and wait for the next. The maker is woken when half of the ring is
 * free, not for every batch. */
static void exchange(gd_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->released += l->current != NULL;
    if (l->maker_waits && 2 * (l->made - l->released) <= l->ring)
        pthread_cond_signal(&l->more_room);
    while (l->made == l->taken)
        pthread_cond_wait(&l->more_made, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

static void start_maker(gd_loader *l)
{
    if (pthread_mutex_init(&l->lock, NULL) != 0)
        return;
    pthread_cond_init(&l->more_made, NULL);
    pthread_cond_init(&l->more_room, NULL);
    l->threaded = pthread_create(&l->thread, NULL, make_ahead, l) == 0;
    if (!l->threaded)
        gd_log_message(
            GD_LOG_WARNING,
            "gd_loader_create: no thread can be started; batches are made when asked for");
}

static void stop_maker(gd_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->more_room);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->more_made);
    pthread_cond_destroy(&l->more_room);
    pthread_mutex_destroy(&l->lock);
}

/* ---- next ---- */

static gd_status map_pair(pair *p)
{
    p->samples = gd_tensor_map(p->x, GD_MAP_WRITE);
    p->labels = p->samples ? gd_tensor_map(p->y, GD_MAP_WRITE) : NULL;
    return p->labels ? GD_OK : gd_error_last();
}

static gd_status unmap_pair(pair *p)
{
    p->samples = NULL;
    p->labels = NULL;
    gd_status status = gd_tensor_unmap(p->x);
    return status == GD_OK ? gd_tensor_unmap(p->y) : status;
}

bool gd_loader_next(gd_loader *l, gd_batch *batch)
{
    if (!l || !batch)
        return false;
    *batch = (gd_batch){ 0 };
    if (gd_is_tracing(l->context)) {
        (void)gd_fail_traced("gd_loader_next");
        return false;
    }
    int64_t in_epoch = l->taken % l->batches;
    if (in_epoch == 0 && l->taken > 0 && !l->end_told) {
        l->end_told = true;
        return false;
    }
    l->end_told = false;
    if (l->current && map_pair(l->current) != GD_OK)
        return false;
    if (l->threaded)
        exchange(l);
    else
        make(l, l->taken);
    slot *s = &l->slots[l->taken++ % l->ring];
    pair *p = l->rest > 0 && in_epoch == l->batches - 1 ? &s->last : &s->full;
    l->current = p;
    *batch = (gd_batch){ .count = 2,
                         .tensors = { p->x, p->y },
                         .size = p == &s->last ? l->rest : l->batch };
    return unmap_pair(p) == GD_OK;
}

int64_t gd_loader_batches(const gd_loader *l)
{
    return l ? l->batches : 0;
}

int64_t gd_loader_samples(const gd_loader *l)
{
    return l ? l->batches * l->batch - (l->rest ? l->batch - l->rest : 0) : 0;
}

int64_t gd_loader_batch_size(const gd_loader *l)
{
    return l ? l->batch : 0;
}

/* ---- opening and closing ---- */

static void close_pair(pair *p)
{
    if (p->samples)
        (void)gd_tensor_unmap(p->x);
    if (p->labels)
        (void)gd_tensor_unmap(p->y);
    gd_release(p->x);
    gd_release(p->y);
}

static void destroy(void *object)
{
    gd_loader *l = object;
    if (l->threaded)
        stop_maker(l);
    gd_trace_pause(l->context); /* it may be released in a function that is being traced */
    for (int64_t i = 0; l->slots && i < l->ring; i++) {
        close_pair(&l->slots[i].full);
        close_pair(&l->slots[i].last);
    }
    gd_trace_resume(l->context);
    gd_free(l->slots);
    gd_free(l->order);
    gd_free(l);
}

void gd_loader_release(gd_loader *l)
{
    if (!l)
        return;
    gd_context_disown(l->context, l);
    destroy(l);
}

static gd_status open_pair(const gd_loader *l, int64_t size, pair *p)
{
    gd_shape sample = l->dataset->shape;
    gd_shape shape = { .rank = sample.rank + 1, .dim = { size } };
    memcpy(shape.dim + 1, sample.dim, sizeof(int64_t) * (size_t)sample.rank);
    p->x = gd_state(l->context, shape, 0, GD_F32);
    p->y = p->x ? gd_state(l->context, GD_SHAPE(size), 0, GD_I64) : NULL;
    return p->y ? map_pair(p) : gd_error_last();
}

static gd_status open_slots(gd_loader *l)
{
    l->order = gd_alloc((size_t)l->dataset->count * sizeof *l->order);
    l->slots = gd_alloc_zero((size_t)l->ring, sizeof *l->slots);
    if (!l->order || !l->slots)
        return GD_ERR_MEMORY;
    gd_status status = gd_scope_begin(l->context);
    if (status != GD_OK)
        return status;
    for (int64_t i = 0; status == GD_OK && i < l->ring; i++) {
        if (l->batches > (l->rest > 0))
            status = open_pair(l, l->batch, &l->slots[i].full);
        if (status == GD_OK && l->rest > 0)
            status = open_pair(l, l->rest, &l->slots[i].last);
    }
    (void)gd_scope_end(l->context);
    return status;
}

static gd_status check(const gd_dataset *dataset, const gd_loader_options *o)
{
    if (o->batch < 1 || o->prefetch < 0 || o->prefetch > 1024)
        return gd_fail(
            GD_ERR_INVALID,
            "gd_loader_create: batch %lld, prefetch %d; a batch holds at least 1 sample, "
            "and up to 1024 batches can be made ahead",
            (long long)o->batch, o->prefetch);
    if (o->drop_last && o->batch > dataset->count)
        return gd_fail(
            GD_ERR_INVALID,
            "gd_loader_create: %lld samples do not fill a batch of %lld, and drop_last is set",
            (long long)dataset->count, (long long)o->batch);
    return GD_OK;
}

gd_loader *gd_loader_create_with(gd_dataset *dataset, const gd_loader_options *options)
{
    gd_loader_options o = { GD_LOADER_DEFAULTS };
    if (!gd_options_read("gd_loader_create", &o, sizeof o, options) || !dataset ||
        check(dataset, &o) != GD_OK)
        return NULL;
    gd_loader *l = gd_alloc_zero(1, sizeof *l);
    if (!l)
        return NULL;
    l->dataset = dataset;
    l->context = dataset->context;
    l->batch = o.batch;
    l->rest = o.drop_last ? 0 : dataset->count % o.batch;
    l->batches = dataset->count / o.batch + (l->rest > 0);
    l->shuffle = o.shuffle;
    l->seed = o.seed;
    l->ring = o.prefetch + 1;
    if (open_slots(l) != GD_OK || gd_context_adopt(l->context, l, destroy) != GD_OK) {
        destroy(l);
        return NULL;
    }
    if (o.prefetch > 0)
        start_maker(l);
    return l;
}
