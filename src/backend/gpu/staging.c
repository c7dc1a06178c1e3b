/* backend/gpu/staging.c: what the host writes is copied into a ring of our own memory, from where the
 * device takes it in its turn: the writer goes on at once. Larger writes wait. */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "base/memory.h"

enum {
    RING = 8 << 20,
    LARGEST = RING / 4, /* of a write through the ring */
    PENDING = 256,      /* writes under way */
    ALIGNMENT = 64,
};

/* A part of the ring that the device still reads. */
typedef struct part {
    size_t begin, end;
    void *mark;
} part;

struct gd_gpu_staging {
    char *ring;
    size_t head;         /* where the next write goes */
    part parts[PENDING]; /* a ring of its own: the oldest, and how many */
    int first, count;
};

static char *ring_create(gd_gpu *gpu)
{
    return gpu->driver->staging_create ? gpu->driver->staging_create(gpu, RING)
                                       : gd_alloc_aligned(RING, ALIGNMENT);
}

static void ring_release(gd_gpu *gpu, char *ring)
{
    if (gpu->driver->staging_release)
        gpu->driver->staging_release(gpu, ring);
    else
        gd_free_aligned(ring);
}

gd_gpu_staging *gd_gpu_staging_open(gd_gpu *gpu)
{
    gd_gpu_staging *s = gd_alloc_zero(1, sizeof *s);
    if (!s)
        return NULL;
    s->ring = ring_create(gpu);
    if (!s->ring) {
        gd_free(s);
        return NULL;
    }
    return s;
}

static gd_status await_oldest(gd_gpu *gpu)
{
    gd_gpu_staging *s = gpu->staging;
    const gd_status status = gpu->driver->await(gpu, s->parts[s->first].mark);
    s->first = (s->first + 1) % PENDING;
    s->count--;
    return status;
}

/* Forget what the device has read. */
static void forget_past(gd_gpu *gpu)
{
    gd_gpu_staging *s = gpu->staging;
    while (s->count && gpu->driver->is_past(gpu, s->parts[s->first].mark)) {
        s->first = (s->first + 1) % PENDING;
        s->count--;
    }
}

void gd_gpu_staging_close(gd_gpu *gpu)
{
    if (!gpu->staging)
        return;
    while (gpu->staging->count)
        (void)await_oldest(gpu);
    ring_release(gpu, gpu->staging->ring);
    gd_free(gpu->staging);
}

static bool is_read(const gd_gpu_staging *s, size_t begin, size_t end)
{
    for (int i = 0; i < s->count; i++) {
        const part *p = &s->parts[(s->first + i) % PENDING];
        if (p->begin < end && begin < p->end)
            return true;
    }
    return false;
}

/* Room for `bytes` from *begin on, and for a part. */
static gd_status make_room(gd_gpu *gpu, size_t bytes, size_t *begin)
{
    gd_gpu_staging *s = gpu->staging;
    forget_past(gpu);
    *begin = s->head + bytes <= RING ? s->head : 0;
    gd_status status = GD_OK;
    while (status == GD_OK && (s->count == PENDING || is_read(s, *begin, *begin + bytes)))
        status = await_oldest(gpu);
    return status;
}

gd_status gd_gpu_staging_write(gd_gpu *gpu, gd_gpu_place to, const void *from, size_t bytes)
{
    if (bytes > LARGEST)
        return gpu->driver->write(gpu, to, from, bytes, NULL);
    gd_gpu_staging *s = gpu->staging;
    size_t begin;
    gd_status status = make_room(gpu, bytes, &begin);
    if (status != GD_OK)
        return status;
    memcpy(s->ring + begin, from, bytes);
    part *p = &s->parts[(s->first + s->count) % PENDING];
    *p = (part){ .begin = begin, .end = begin + bytes };
    status = gpu->driver->write(gpu, to, s->ring + begin, bytes, &p->mark);
    if (status == GD_OK) {
        s->count++;
        s->head = (begin + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return status;
}
