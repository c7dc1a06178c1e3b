/* data/order.c: which samples are in batch number n. Start at gd_order_batch(). */
#include "data/order.h"

#include "base/memory.h"
#include "base/random.h"

gd_status gd_order_open(gd_order *o)
{
    o->epoch = -1;
    if (!o->shuffle)
        return GD_OK;
    o->items = gd_alloc((size_t)o->count * sizeof *o->items);
    return o->items ? GD_OK : GD_ERR_MEMORY;
}

void gd_order_close(gd_order *o)
{
    gd_free(o->items);
    o->items = NULL;
}

/* The order of an epoch is a shuffle with its own stretch of the random stream. */
static void begin_epoch(gd_order *o, int64_t epoch)
{
    for (int64_t i = 0; i < o->count; i++)
        o->items[i] = i;
    gd_random random = { .seed = o->seed, .next = (uint64_t)epoch << 40 };
    gd_random_shuffle(&random, o->items, o->count);
    o->epoch = epoch;
}

int64_t gd_order_size(const gd_order *o, int64_t n)
{
    return o->rest > 0 && n % o->batches == o->batches - 1 ? o->rest : o->batch;
}

const int64_t *gd_order_batch(gd_order *o, int64_t n, int64_t *room, int64_t *known)
{
    const int64_t epoch = n / o->batches, first = n % o->batches * o->batch;
    if (o->items) {
        if (epoch != o->epoch)
            begin_epoch(o, epoch);
        *known = o->count - first;
        return o->items + first;
    }
    const int64_t size = gd_order_size(o, n);
    for (int64_t i = 0; i < size; i++)
        room[i] = first + i;
    *known = size;
    return room;
}
