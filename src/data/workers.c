/* data/workers.c: threads that make batches ahead of the caller. Start at work().
 *
 * Batches are opened in their order, which says what is in them; a batch is cut into chunks of
 * samples, and a thread that is free takes the next chunk, of the oldest batch that has one. So the
 * threads finish a batch together, however unequal its samples are, and what is made depends neither
 * on how many there are nor on who was quicker. The caller's thread helps with the batch it waits
 * for.
 *
 * A ring of slots contains the batches that are being made or ready and the one the caller has; slot
 * n % ring is batch n's. A slot is opened when opened - released < ring; the rows of a chunk are
 * written by the thread that took it, without the lock; the caller reads the slot when all its chunks
 * are done, and gives it back by asking for the next batch. */
#include "data/loader.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static gd_slot *slot_of(const gd_loader *l, int64_t n)
{
    return &l->slots[n % l->ring];
}

static void open_batch(gd_loader *l)
{
    gd_slot *s = slot_of(l, l->opened);
    s->number = l->opened++;
    s->size = gd_order_size(&l->order, s->number);
    const int64_t *indices = gd_order_batch(&l->order, s->number, s->room, &s->known);
    if (indices != s->room) /* the next epoch may begin while this batch is being made */
        memcpy(s->room, indices, (size_t)s->size * sizeof *indices);
    s->indices = s->room;
    s->known = s->size;
    s->chunks = (s->size + l->chunk - 1) / l->chunk;
    s->begun = s->written = 0;
    s->ready = false;
    s->status = GD_OK;
    s->failed = INT64_MAX;
}

/* A batch with a chunk that nobody has taken, the oldest; one is opened where there is room. NULL:
 * there is nothing to do. */
static gd_slot *find_work(gd_loader *l)
{
    for (int64_t n = l->released; n < l->opened; n++)
        if (slot_of(l, n)->begun < slot_of(l, n)->chunks)
            return slot_of(l, n);
    if (l->opened - l->released == l->ring)
        return NULL;
    open_batch(l);
    return slot_of(l, l->opened - 1);
}

/* The error of the row that comes first counts, whichever thread found it. */
static void take_error(gd_slot *s, gd_status status, int64_t failed)
{
    if (failed >= s->failed)
        return;
    s->status = status;
    s->failed = failed;
    snprintf(s->message, sizeof s->message, "%s", gd_error_last_message());
}

/* The slot's last chunk is written. The lock is held before and after. */
static void finish(gd_loader *l, gd_slot *s)
{
    pthread_mutex_unlock(&l->lock);
    if (s->status == GD_OK) /* else there are rows of unknown length */
        gd_loader_pad(l, s);
    pthread_mutex_lock(&l->lock);
    s->ready = true;
}

/* Makes the next chunk of a slot that has chunks left. The caller holds the lock, which is released
 * while the chunk is made and held again on return. */
static void make_chunk(gd_loader *l, gd_slot *s, void *scratch)
{
    int64_t first = s->begun++ * l->chunk, failed = 0;
    int64_t end = first + l->chunk < s->size ? first + l->chunk : s->size;
    l->busy++;
    pthread_mutex_unlock(&l->lock);
    const uint64_t mark = gd_error_mark();
    gd_status status = gd_loader_make(l, s, first, end, scratch, &failed);
    pthread_mutex_lock(&l->lock);
    if (status != GD_OK) {
        take_error(s, status, failed);
        gd_error_rollback(mark);
    }
    if (++s->written == s->chunks)
        finish(l, s);
    l->busy--;
    if (l->caller_waits && (s->ready || l->busy == 0))
        pthread_cond_signal(&l->more_done);
}

static void *work(void *argument)
{
    gd_worker *worker = argument;
    gd_loader *l = worker->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        gd_slot *s = l->paused ? NULL : find_work(l);
        if (s) {
            make_chunk(l, s, worker->scratch);
            continue;
        }
        l->idle++;
        pthread_cond_wait(&l->more_work, &l->lock);
        l->idle--;
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void wait_for_others(gd_loader *l)
{
    l->caller_waits = true;
    pthread_cond_wait(&l->more_done, &l->lock);
    l->caller_waits = false;
}

/* Workers that wait are woken when half of the ring is free, not for every batch. */
gd_status gd_workers_take(gd_loader *l, gd_slot **slot)
{
    pthread_mutex_lock(&l->lock);
    l->released = l->taken;
    if (l->opened == l->taken)
        open_batch(l);
    gd_slot *s = slot_of(l, l->taken);
    if (l->idle && (!s->ready || 2 * (l->opened - l->released) <= l->ring))
        pthread_cond_broadcast(&l->more_work);
    while (!s->ready)
        if (s->begun < s->chunks)
            make_chunk(l, s, l->scratch);
        else
            wait_for_others(l);
    pthread_mutex_unlock(&l->lock);
    *slot = s;
    return s->status == GD_OK ? GD_OK : gd_fail(s->status, "%s", s->message);
}

void gd_workers_seek(gd_loader *l, int64_t position)
{
    pthread_mutex_lock(&l->lock);
    l->paused = true;
    while (l->busy > 0)
        wait_for_others(l);
    l->opened = l->released = position;
    l->paused = false;
    pthread_cond_broadcast(&l->more_work);
    pthread_mutex_unlock(&l->lock);
}

/* ---- starting and stopping ---- */

gd_status gd_workers_start(gd_loader *l, int count)
{
    l->workers = gd_alloc_zero((size_t)count, sizeof *l->workers);
    if (!l->workers)
        return GD_ERR_MEMORY;
    if (pthread_mutex_init(&l->lock, NULL) != 0)
        return gd_fail(GD_ERR_MEMORY, "gd_loader_create: no lock can be made");
    pthread_cond_init(&l->more_work, NULL);
    pthread_cond_init(&l->more_done, NULL);
    l->has_lock = true;
    l->worker_room = count;
    for (int i = 0; i < count; i++) {
        gd_worker *worker = &l->workers[i];
        worker->loader = l;
        worker->scratch = gd_alloc(l->dataset->source->scratch_bytes + 1);
        if (!worker->scratch)
            return GD_ERR_MEMORY;
    }
    for (int i = 0; i < count; i++) {
        if (pthread_create(&l->workers[i].thread, NULL, work, &l->workers[i]) != 0)
            break;
        l->worker_count++;
    }
    if (l->worker_count < count)
        gd_log_message(GD_LOG_WARNING, "gd_loader_create: %d of %d threads can be started",
                       l->worker_count, count);
    return GD_OK;
}

void gd_workers_stop(gd_loader *l)
{
    if (!l->has_lock) {
        gd_free(l->workers);
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->more_work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->worker_count; i++)
        pthread_join(l->workers[i].thread, NULL);
    for (int i = 0; i < l->worker_room; i++)
        gd_free(l->workers[i].scratch);
    gd_free(l->workers);
    pthread_cond_destroy(&l->more_work);
    pthread_cond_destroy(&l->more_done);
    pthread_mutex_destroy(&l->lock);
}
