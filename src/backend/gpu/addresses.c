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

/* An address for a block, which is ours to release but for a foreign one. NULL: the block is as
 * before. */
static char *add_chunk(gd_gpu *gpu, void *block, size_t bytes, bool is_foreign)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!gd_grow((void **)&gpu->chunks, &gpu->chunk_capacity, gpu->chunk_count + 1,
                 sizeof(gd_gpu_chunk)))
        return NULL;
    gd_gpu_chunk chunk = { .bytes = bytes,
                           .reserved = (bytes + page) / page * page,
                           .block = block,
                           .is_foreign = is_foreign };
    chunk.address = reserve(chunk.reserved);
    if (!chunk.address) {
        (void)gd_fail_memory(bytes);
        return NULL;
    }
    const size_t at = first_behind(gpu, chunk.address);
    memmove(&gpu->chunks[at + 1], &gpu->chunks[at], (gpu->chunk_count - at) * sizeof(gd_gpu_chunk));
    gpu->chunks[at] = chunk;
    gpu->chunk_count++;
    return chunk.address;
}

void *gd_gpu_memory_alloc(gd_device *device, size_t bytes)
{
    gd_gpu *gpu = (gd_gpu *)device;
    if (bytes > SIZE_MAX - (size_t)sysconf(_SC_PAGESIZE)) {
        (void)gd_fail_memory(bytes);
        return NULL;
    }
    void *block = gpu->driver->block_create(gpu, bytes);
    char *address = block ? add_chunk(gpu, block, bytes, false) : NULL;
    if (address)
        gpu->taken += bytes;
    else if (block)
        gpu->driver->block_release(gpu, block);
    return address;
}

void gd_gpu_memory_free(gd_device *device, void *memory, size_t bytes)
{
    gd_gpu *gpu = (gd_gpu *)device;
    (void)bytes;
    const size_t behind = memory ? first_behind(gpu, memory) : 0;
    if (behind == 0)
        return;
    const gd_gpu_chunk chunk = gpu->chunks[behind - 1];
    if (!chunk.is_foreign)
        gpu->driver->block_release(gpu, chunk.block);
    munmap(chunk.address, chunk.reserved);
    memmove(&gpu->chunks[behind - 1], &gpu->chunks[behind],
            (gpu->chunk_count - behind) * sizeof(gd_gpu_chunk));
    gpu->chunk_count--;
    gpu->taken -= chunk.is_foreign ? 0 : chunk.bytes;
    gpu->released++;
}

gd_status gd_gpu_memory_name(gd_device *device, const void *address, gd_foreign_place *place)
{
    const gd_gpu *gpu = (const gd_gpu *)device;
    gd_gpu_place at = { NULL, 0 };
    const gd_status status = address ? gd_gpu_place_of(gpu, address, &at) : GD_OK;
    if (status != GD_OK)
        return status;
    *place = (gd_foreign_place){ gpu->driver->dlpack_type, gpu->index, at.block, at.offset };
    if (gpu->driver->is_addressed && address) {
        place->pointer = (char *)place->pointer + place->offset;
        place->offset = 0;
    }
    return GD_OK;
}

void *gd_gpu_memory_adopt(gd_device *device, const gd_foreign_place *place, size_t bytes)
{
    gd_gpu *gpu = (gd_gpu *)device;
    if (place->device_type != gpu->driver->dlpack_type || place->device_id != gpu->index)
        return gd_fail_null(GD_ERR_UNSUPPORTED,
                            "%s: the memory is that of device %d of DLPack's type %d", device->name,
                            (int)place->device_id, (int)place->device_type);
    void *block = place->pointer;
    size_t offset = (size_t)place->offset;
    if (gpu->driver->is_addressed) {
        block = (char *)block + offset;
        offset = 0;
    }
    if (bytes > SIZE_MAX - offset - (size_t)sysconf(_SC_PAGESIZE)) {
        (void)gd_fail_memory(bytes);
        return NULL;
    }
    if (gpu->driver->block_adopt(gpu, block, offset + bytes) != GD_OK)
        return NULL;
    char *address = add_chunk(gpu, block, offset + bytes, true);
    return address ? address + offset : NULL;
}

void gd_gpu_memory_disown(gd_device *device, void *address)
{
    gd_gpu *gpu = (gd_gpu *)device;
    const uint64_t mark = gd_error_mark();
    (void)gpu->driver->synchronize(gpu); /* what went wrong is told to who waits next */
    gd_error_rollback(mark);
    gd_gpu_memory_free(device, address, 0);
}
