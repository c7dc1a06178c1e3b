/* tensor/pool.c: the caching pool. Device memory is taken in chunks and cut into blocks; a freed
 * block joins its free neighbours and waits in a size class. Start at gd_pool_alloc and
 * gd_pool_free; gd_pool_check states every invariant.
 *
 * Size classes are those of TLSF (Masmano, Ripoll, Crespo and Real, "TLSF: a new dynamic memory
 * allocator for real-time systems", 2004): a power of two, cut into 16. Two levels of bitmaps find
 * the first class that has blocks in a few instructions. Unlike TLSF's, the list of a class is
 * sorted by size and the request's own class is searched first, so the fit is the best there is: no
 * free block that is large enough is smaller than the one taken.
 */
#include "tensor/pool.h"

#include "base/error.h"
#include "base/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIRST_CHUNK   ((size_t)1 << 20)
#define LARGEST_CHUNK ((size_t)64 << 20)
#define SUB_CLASSES   16
#define SUB_BITS      4
#define LEVELS        64
#define SLAB_RECORDS  64

/* Block records are made in slabs and live until the pool closes; unused ones are linked by
 * free_after. */
typedef struct slab {
    struct slab *next;
    gd_pool_block record[SLAB_RECORDS];
} slab;

typedef struct chunk {
    gd_pool_block *first; /* always: a split and a merge keep the left block's record */
    size_t bytes;
} chunk;

struct gd_pool {
    gd_pool_source source;
    size_t unit;           /* sizes and addresses are multiples of it: the source's alignment */
    unsigned unit_bits;    /* its logarithm */
    gd_memory_stats stats; /* largest_free is found when asked for */
    size_t next_chunk;     /* bytes of the next ordinary chunk */
    uint64_t level_map;    /* bit l: a class of level l has blocks */
    uint16_t sub_map[LEVELS];
    gd_pool_block *list[LEVELS][SUB_CLASSES]; /* each sorted by size */
    gd_pool_block *unused_records;
    slab *slabs;
    chunk *chunks;
    size_t chunk_count, chunk_capacity;
};

/* ---- size classes ---- */

typedef struct size_class {
    unsigned level, sub;
} size_class;

/* Below 16 units each size is a class of its own (level 0); from there on every power of two
 * has 16. */
static size_class class_of(const gd_pool *pool, size_t bytes)
{
    uint64_t units = bytes >> pool->unit_bits;
    if (units < SUB_CLASSES)
        return (size_class){ 0, (unsigned)units };
    unsigned log2 = 63u - (unsigned)__builtin_clzll(units);
    return (size_class){ log2 - SUB_BITS + 1,
                         (unsigned)(units >> (log2 - SUB_BITS)) % SUB_CLASSES };
}

static void list_insert(gd_pool *pool, gd_pool_block *block)
{
    size_class c = class_of(pool, block->bytes);
    gd_pool_block **head = &pool->list[c.level][c.sub];
    gd_pool_block *before = NULL, *after = *head;
    while (after && after->bytes < block->bytes) {
        before = after;
        after = after->free_after;
    }
    block->is_free = true;
    block->free_before = before;
    block->free_after = after;
    if (after)
        after->free_before = block;
    if (before)
        before->free_after = block;
    else
        *head = block;
    pool->sub_map[c.level] = (uint16_t)(pool->sub_map[c.level] | 1u << c.sub);
    pool->level_map |= (uint64_t)1 << c.level;
    pool->stats.free_blocks++;
}

static void list_remove(gd_pool *pool, gd_pool_block *block)
{
    if (block->free_after)
        block->free_after->free_before = block->free_before;
    if (block->free_before) {
        block->free_before->free_after = block->free_after;
    } else {
        size_class c = class_of(pool, block->bytes);
        pool->list[c.level][c.sub] = block->free_after;
        if (!block->free_after) {
            pool->sub_map[c.level] = (uint16_t)(pool->sub_map[c.level] & ~(1u << c.sub));
            if (!pool->sub_map[c.level])
                pool->level_map &= ~((uint64_t)1 << c.level);
        }
    }
    block->is_free = false;
    pool->stats.free_blocks--;
}

/* The smallest free block of at least `bytes`, NULL when there is none. */
static gd_pool_block *best_fit(const gd_pool *pool, size_t bytes)
{
    size_class c = class_of(pool, bytes);
    for (gd_pool_block *block = pool->list[c.level][c.sub]; block; block = block->free_after)
        if (block->bytes >= bytes)
            return block;
    unsigned subs = pool->sub_map[c.level] & ~0u << (c.sub + 1);
    if (!subs) { /* no larger class on this level: the first class of the next level that has any */
        uint64_t levels = pool->level_map & ~(uint64_t)0 << (c.level + 1);
        if (!levels)
            return NULL;
        c.level = (unsigned)__builtin_ctzll(levels);
        subs = pool->sub_map[c.level];
    }
    return pool->list[c.level][__builtin_ctz(subs)];
}

/* ---- records ---- */

static bool reserve_record(gd_pool *pool)
{
    if (pool->unused_records)
        return true;
    slab *fresh = gd_alloc(sizeof *fresh);
    if (!fresh)
        return false;
    fresh->next = pool->slabs;
    pool->slabs = fresh;
    for (int i = 0; i < SLAB_RECORDS; i++) {
        fresh->record[i].free_after = pool->unused_records;
        pool->unused_records = &fresh->record[i];
    }
    return true;
}

/* After reserve_record. */
static gd_pool_block *take_record(gd_pool *pool)
{
    gd_pool_block *record = pool->unused_records;
    pool->unused_records = record->free_after;
    *record = (gd_pool_block){ 0 };
    return record;
}

static void give_record(gd_pool *pool, gd_pool_block *record)
{
    record->free_after = pool->unused_records;
    pool->unused_records = record;
}

/* ---- chunks ---- */

static void release_chunk(gd_pool *pool, size_t index)
{
    chunk c = pool->chunks[index];
    pool->source.release(pool->source.user, c.first->address, c.bytes);
    pool->stats.reserved -= c.bytes;
    list_remove(pool, c.first);
    give_record(pool, c.first);
    pool->chunks[index] = pool->chunks[--pool->chunk_count];
}

void gd_pool_trim(gd_pool *pool)
{
    for (size_t i = pool->chunk_count; i-- > 0;) {
        const gd_pool_block *first = pool->chunks[i].first;
        if (first->is_free && first->bytes == pool->chunks[i].bytes)
            release_chunk(pool, i);
    }
}

/* One attempt to take a chunk, within the limit. */
static void *take_memory(gd_pool *pool, size_t bytes)
{
    size_t limit = pool->stats.limit;
    if (bytes > limit - pool->stats.reserved) /* reserved <= limit always */
        return NULL;
    return pool->source.alloc(pool->source.user, bytes);
}

/* A device's reason comes with it; a host's is no more than these words. */
static void fail_chunk(const gd_pool *pool, size_t bytes, const char *reason)
{
    const size_t taken = pool->stats.reserved, limit = pool->stats.limit;
    char copy[GD_ERROR_MESSAGE_BYTES];
    snprintf(copy, sizeof copy, "%s", reason);
    const bool is_said = strncmp(copy, "out of memory", 13) == 0;
    if (bytes > limit - taken)
        gd_fail(GD_ERR_MEMORY, "out of memory: %zu bytes wanted, %zu of the limit of %zu are taken",
                bytes, taken, limit);
    else
        gd_fail(GD_ERR_MEMORY, "out of memory: %zu bytes could not be allocated%s%s", bytes,
                is_said || !copy[0] ? "" : ": ", is_said ? "" : copy);
}

/* Take a new chunk that holds `bytes`: of the ordinary size if that can be had, else of just the
 * size wanted, and failing that again after giving back what lies unused. Its one block is in no
 * list yet. */
static gd_pool_block *add_chunk(gd_pool *pool, size_t bytes)
{
    if (!reserve_record(pool) || !gd_grow((void **)&pool->chunks, &pool->chunk_capacity,
                                          pool->chunk_count + 1, sizeof *pool->chunks))
        return NULL;
    const uint64_t mark = gd_error_mark();
    size_t size = bytes > pool->next_chunk ? bytes : pool->next_chunk;
    void *memory = take_memory(pool, size);
    if (!memory && size > bytes)
        memory = take_memory(pool, size = bytes);
    if (!memory) {
        gd_pool_trim(pool);
        memory = take_memory(pool, size = bytes);
    }
    if (!memory) {
        fail_chunk(pool, bytes, gd_error_since(mark) == GD_OK ? "" : gd_error_last_message());
        return NULL;
    }
    gd_error_rollback(mark); /* of attempts that failed before this one */
    if (size == pool->next_chunk && size < LARGEST_CHUNK)
        pool->next_chunk *= 2;

    gd_pool_block *block = take_record(pool);
    block->address = memory;
    block->bytes = size;
    block->starts_chunk = true;
    pool->chunks[pool->chunk_count++] = (chunk){ block, size };
    pool->stats.reserved += size;
    pool->stats.from_device++;
    return block;
}

/* ---- the pool ---- */

gd_pool *gd_pool_open(gd_pool_source source, size_t limit)
{
    gd_pool *pool = gd_alloc_zero(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->source = source;
    pool->unit = source.alignment;
    pool->unit_bits = (unsigned)__builtin_ctzll(source.alignment);
    pool->stats.limit = limit;
    pool->next_chunk = FIRST_CHUNK;
    return pool;
}

void gd_pool_close(gd_pool *pool)
{
    if (!pool)
        return;
    for (size_t i = 0; i < pool->chunk_count; i++)
        pool->source.release(pool->source.user, pool->chunks[i].first->address,
                             pool->chunks[i].bytes);
    for (slab *s = pool->slabs, *next; s; s = next) {
        next = s->next;
        gd_free(s);
    }
    gd_free(pool->chunks);
    gd_free(pool);
}

/* Cut a block that is in no list to `bytes`; the rest becomes a free block. After reserve_record.
 */
static void split(gd_pool *pool, gd_pool_block *block, size_t bytes)
{
    gd_pool_block *rest = take_record(pool);
    rest->address = (char *)block->address + bytes;
    rest->bytes = block->bytes - bytes;
    rest->before = block;
    rest->after = block->after;
    if (rest->after)
        rest->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
    list_insert(pool, rest);
    pool->stats.splits++;
}

gd_pool_block *gd_pool_alloc(gd_pool *pool, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        gd_fail_memory(bytes);
        return NULL;
    }
    size_t size = bytes ? (bytes + pool->unit - 1) & ~(pool->unit - 1) : pool->unit;
    gd_pool_block *block = best_fit(pool, size);
    if (block && block->bytes > size && !reserve_record(pool))
        return NULL; /* before anything has changed */
    if (block) {
        list_remove(pool, block);
    } else {
        block = add_chunk(pool, size);
        if (!block)
            return NULL;
        if (block->bytes > size && !reserve_record(pool)) {
            list_insert(pool, block); /* the chunk stays, for the next request */
            return NULL;
        }
    }
    if (block->bytes > size)
        split(pool, block, size);
    pool->stats.allocations++;
    pool->stats.in_use += size;
    if (pool->stats.peak < pool->stats.in_use)
        pool->stats.peak = pool->stats.in_use;
    return block;
}

/* Join `right` to `left`, its neighbour; both are in no list. */
static gd_pool_block *merge(gd_pool *pool, gd_pool_block *left, gd_pool_block *right)
{
    left->bytes += right->bytes;
    left->after = right->after;
    if (left->after)
        left->after->before = left;
    give_record(pool, right);
    pool->stats.merges++;
    return left;
}

void gd_pool_free(gd_pool *pool, gd_pool_block *block)
{
    if (!block)
        return;
    assert(!block->is_free);
    pool->stats.in_use -= block->bytes;
    gd_pool_block *before = block->before, *after = block->after;
    if (after && after->is_free) {
        list_remove(pool, after);
        block = merge(pool, block, after);
    }
    if (before && before->is_free) {
        list_remove(pool, before);
        block = merge(pool, before, block);
    }
    list_insert(pool, block);
}

/* ---- statistics and checking ---- */

void gd_pool_stats(const gd_pool *pool, gd_memory_stats *out)
{
    int64_t live_tensors = out->live_tensors;
    *out = pool->stats;
    out->live_tensors = live_tensors;
    out->largest_free = 0;
    if (!pool->level_map)
        return;
    unsigned level = 63u - (unsigned)__builtin_clzll(pool->level_map);
    unsigned sub = 31u - (unsigned)__builtin_clz(pool->sub_map[level]);
    const gd_pool_block *block = pool->list[level][sub];
    while (block->free_after)
        block = block->free_after;
    out->largest_free = block->bytes;
}

void gd_pool_reset_peak(gd_pool *pool)
{
    pool->stats.peak = pool->stats.in_use;
}

typedef struct totals {
    size_t blocks, used_bytes, bytes;
    int64_t free_blocks;
} totals;

/* The blocks of a chunk tile it, know their neighbours, and no two free ones touch. */
static bool check_chunk(const gd_pool *pool, const chunk *c, totals *sum)
{
    const char *address = c->first->address;
    const gd_pool_block *before = NULL;
    size_t bytes = 0;
    if (!c->first->starts_chunk)
        return false;
    for (const gd_pool_block *b = c->first; b; before = b, b = b->after) {
        bool in_place = b->address == address + bytes && (uintptr_t)b->address % pool->unit == 0;
        bool sized = b->bytes > 0 && b->bytes % pool->unit == 0;
        if (!in_place || !sized || b->before != before || (before && b->starts_chunk) ||
            (before && before->is_free && b->is_free))
            return false;
        bytes += b->bytes;
        sum->blocks++;
        sum->free_blocks += b->is_free;
        sum->used_bytes += b->is_free ? 0 : b->bytes;
    }
    sum->bytes += bytes;
    return bytes == c->bytes;
}

/* Every list is sorted, linked both ways, of free blocks of its class, and marked in the bitmaps
 * exactly when it has any. */
static bool check_lists(const gd_pool *pool, size_t *listed)
{
    for (unsigned level = 0; level < LEVELS; level++) {
        if ((pool->level_map >> level & 1) != (pool->sub_map[level] != 0))
            return false;
        for (unsigned sub = 0; sub < SUB_CLASSES; sub++) {
            const gd_pool_block *before = NULL, *block = pool->list[level][sub];
            if ((pool->sub_map[level] >> sub & 1) != (block != NULL))
                return false;
            for (; block; before = block, block = block->free_after) {
                size_class c = class_of(pool, block->bytes);
                if (!block->is_free || block->free_before != before || c.level != level ||
                    c.sub != sub || (before && before->bytes > block->bytes))
                    return false;
                ++*listed;
            }
        }
    }
    return true;
}

bool gd_pool_check(const gd_pool *pool)
{
    totals sum = { 0 };
    for (size_t i = 0; i < pool->chunk_count; i++)
        if (!check_chunk(pool, &pool->chunks[i], &sum))
            return false;
    size_t listed = 0;
    if (!check_lists(pool, &listed))
        return false;
    size_t records = 0, unused = 0;
    for (const slab *s = pool->slabs; s; s = s->next)
        records += SLAB_RECORDS;
    for (const gd_pool_block *r = pool->unused_records; r; r = r->free_after)
        unused++;
    const gd_memory_stats *stats = &pool->stats;
    return (int64_t)listed == sum.free_blocks && stats->free_blocks == sum.free_blocks &&
           stats->in_use == sum.used_bytes && stats->reserved == sum.bytes &&
           stats->peak >= stats->in_use && stats->reserved <= stats->limit &&
           records == unused + sum.blocks;
}
