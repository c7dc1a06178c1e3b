/* backend/gpu/addresses.c: a driver's blocks of memory as addresses that may be computed with: as many
 * bytes of address space, which nobody may access. */
#include "backend/gpu/gpu.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

/* The first chunk that begins behind `address`. */
static size_t first_behind(const gd_gpu *gpu, const char *address)
{
    size_t low = 0, high = gpu->chunk_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((uintptr_t)gpu->chunks[middle].address <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

gd_status gd_gpu_place_of(const gd_gpu *gpu, const void *address, gd_gpu_place *place)
{
    const size_t behind = first_behind(gpu, address);
    const gd_gpu_chunk *chunk = behind ? &gpu->chunks[behind - 1] : NULL;
    const size_t offset = chunk ? (uintptr_t)address - (uintptr_t)chunk->address : 0;
    if (!chunk || offset >= chunk->bytes)
        return gd_fail(GD_ERR_STATE, "%s: %p is no memory of the device", gpu->base.name, address);
    *place = (gd_gpu_place){ chunk->block, offset };
    return GD_OK;
}

static char *reserve(size_t bytes)
{
    void *address =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

void *gd_gpu_memory_alloc(gd_device *device, size_t bytes)
{
    gd_gpu *gpu = (gd_gpu *)device;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX - page) {
        (void)gd_fail_memory(bytes);
        return NULL;
    }
    if (!gd_grow((void **)&gpu->chunks, &gpu->chunk_capacity, gpu->chunk_count + 1,
                 sizeof(gd_gpu_chunk)))
        return NULL;
    const size_t reserved = (bytes + page) / page * page;
    gd_gpu_chunk chunk = { .bytes = bytes, .reserved = reserved };
    chunk.block = gpu->driver->block_create(gpu, bytes);
    chunk.address = chunk.block ? reserve(reserved) : NULL;
    if (!chunk.address) {
        if (chunk.block) {
            gpu->driver->block_release(gpu, chunk.block);
            (void)gd_fail_memory(bytes);
        }
        return NULL;
    }
    const size_t at = first_behind(gpu, chunk.address);
    memmove(&gpu->chunks[at + 1], &gpu->chunks[at], (gpu->chunk_count - at) * sizeof(gd_gpu_chunk));
    gpu->chunks[at] = chunk;
    gpu->chunk_count++;
    gpu->taken += bytes;
    return chunk.address;
}

void gd_gpu_memory_free(gd_device *device, void *memory, size_t bytes)
{
    gd_gpu *gpu = (gd_gpu *)device;
    (void)bytes;
    const size_t behind = memory ? first_behind(gpu, memory) : 0;
    if (behind == 0)
        return;
    const gd_gpu_chunk chunk = gpu->chunks[behind - 1];
    gpu->driver->block_release(gpu, chunk.block);
    munmap(chunk.address, chunk.reserved);
    memmove(&gpu->chunks[behind - 1], &gpu->chunks[behind],
            (gpu->chunk_count - behind) * sizeof(gd_gpu_chunk));
    gpu->chunk_count--;
    gpu->taken -= chunk.bytes;
    gpu->released++;
}
