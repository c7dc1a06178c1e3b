/* data/loader.h: a loader, as loader.c and workers.c share it. */
#ifndef GD_DATA_LOADER_H
#define GD_DATA_LOADER_H

#include "data/order.h"

#include "base/error.h"

#include <pthread.h>

/* A batch's tensors: for a full batch, or for the smaller last one of an epoch. Those of fields that
 * vary are [size * room]: rows as long as the longest sample that there can be, of which a padded batch
 * takes the beginning. */
typedef struct gd_batch_set {
    gd_tensor *tensors[GD_BATCH_TENSORS_MAX]; /* retained */
    void *memory[GD_BATCH_TENSORS_MAX]; /* of the tensors, mapped; NULL: the caller has them */
    gd_rows rows;
    float *draws;
} gd_batch_set;

/* Room for a batch that is being made or ready. */
typedef struct gd_slot {
    gd_batch_set full, last;
    int64_t *room; /* [batch] for the indices */

    int64_t number, size; /* of the batch */
    const int64_t *indices;
    int64_t known;                 /* indices that can be read, of this batch and of later ones */
    int64_t padded[GD_FIELDS_MAX]; /* the length of the fields that vary */

    /* Shared by the workers, under the lock. */
    int64_t chunks, begun, written; /* chunks of its samples */
    bool ready;                     /* all are written, and padded */
    gd_status status;               /* of the first row that failed */
    int64_t failed;                 /* that row */
    char message[GD_ERROR_MESSAGE_BYTES];
} gd_slot;

typedef struct gd_worker {
    struct gd_loader *loader;
    pthread_t thread;
    void *scratch; /* what gd_dataset_read needs */
} gd_worker;

struct gd_loader {
    gd_dataset *dataset; /* one of its references is ours */
    gd_context *context;
    gd_order order;
    int draws;
    int64_t length_multiple;
    int tensor_count;
    gd_slot *slots; /* [ring] */
    int64_t ring;
    gd_tensor *varying[GD_FIELDS_MAX]; /* of the batch given last, fields that vary: views of its
                                          set's; retained */
    void *scratch;                     /* of the caller's thread */

    bool end_told;         /* the caller has been told of the epoch's end */
    gd_batch_set *current; /* the batch the caller has; NULL: none */
    int64_t taken;         /* the number of the next batch */

    int64_t chunk;      /* samples a worker makes at a time */
    int worker_count;   /* threads; 0: batches are made in the call */
    gd_worker *workers; /* [worker_room] */
    int worker_room;
    bool has_lock;

    /* Shared with them, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t more_work, more_done;
    int64_t opened;   /* the number of the next batch to be begun */
    int64_t released; /* batches before this one need no slot */
    int busy;         /* threads that are making a chunk */
    int idle;         /* workers that wait for room */
    bool caller_waits, paused, stop;
};

/* Write rows first … end-1 of the slot's batch. Allocates nothing; by any thread. */
gd_status gd_loader_make(gd_loader *loader, gd_slot *slot, int64_t first, int64_t end,
                         void *scratch, int64_t *failed);
/* Pad the fields that vary to the longest sample of the slot's batch, whose rows are written, where they
 * are. Allocates nothing; by any thread. */
void gd_loader_pad(gd_loader *loader, gd_slot *slot);
/* The set of tensors of the slot's batch. */
static inline gd_batch_set *gd_slot_set(const gd_loader *l, gd_slot *s)
{
    return s->size < l->order.batch ? &s->last : &s->full;
}

/* ---- data/workers.c ---- */

/* Start `count` threads, or as many as there can be, which may be 0. GD_ERR_MEMORY. */
gd_status gd_workers_start(gd_loader *loader, int count);
/* Wait for them and end them. */
void gd_workers_stop(gd_loader *loader);
/* Wait for the batch with the number `taken`, whose predecessors are given back, helping to make it.
 * An error of one of its samples is recorded. */
gd_status gd_workers_take(gd_loader *loader, gd_slot **slot);
/* Begin again at batch number `position`. */
void gd_workers_seek(gd_loader *loader, int64_t position);

#endif
