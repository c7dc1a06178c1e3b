/* tensor/pool.h: a caching pool over a device's memory: best fit, split, merge, statistics, limit.
 * Block records lie outside the memory they describe, so the memory may be a device's. Not
 * thread-safe: a context is used by one thread at a time. */
#ifndef GD_TENSOR_POOL_H
#define GD_TENSOR_POOL_H

#include <gradus/tensor.h>

/* Where a pool's memory comes from; alloc returns NULL when out. */
typedef struct gd_pool_source {
    void *(*alloc)(void *user, size_t bytes);
    void (*release)(void *user, void *memory, size_t bytes);
    void *user;
    size_t alignment; /* of what alloc gives: a power of two */
} gd_pool_source;

typedef struct gd_pool gd_pool;
typedef struct gd_pool_block gd_pool_block;

struct gd_pool_block {
    void *address; /* aligned as the source is */
    size_t bytes;  /* at least what was asked for, a multiple of the alignment */
    /* the rest belongs to the pool */
    gd_pool_block *before, *after; /* neighbours in memory within one chunk, NULL at its ends */
    gd_pool_block *free_before, *free_after; /* in the list of a size class */
    bool is_free;
    bool starts_chunk;
};

/* A pool that takes at most `limit` bytes from the device; SIZE_MAX: any number. */
gd_pool *gd_pool_open(gd_pool_source source, size_t limit);
void gd_pool_close(gd_pool *pool); /* gives every chunk back, used or not */
/* NULL and GD_ERR_MEMORY when the device is out or the limit is passed. bytes 0 gives a block
 * of one alignment. */
gd_pool_block *gd_pool_alloc(gd_pool *pool, size_t bytes);
void gd_pool_free(gd_pool *pool, gd_pool_block *block);
void gd_pool_trim(gd_pool *pool);
void gd_pool_stats(const gd_pool *pool, gd_memory_stats *out); /* fills all but live_tensors */
void gd_pool_reset_peak(gd_pool *pool);
/* Walk the structure and check it (order, sizes, lists, counts); false on a fault. For tests and
 * debug builds. */
bool gd_pool_check(const gd_pool *pool);

#endif
