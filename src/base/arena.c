/* base/arena.c: an arena in chunks. Start at gd_arena_push(): an add and a compare while the newest
 * chunk has room.
 *
 * A chunk is as large as all before it, up to a limit, so a small arena stays small and a large one
 * makes few requests. Address space is taken only for what is used: a process may have little of it
 * (RLIMIT_AS). Under the address sanitizer, what was not handed out is poisoned.
 */
#include "base/arena.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/poison.h"

struct gd_arena_chunk {
    gd_arena_chunk *before;
    size_t bytes; /* with this header */
};

static const size_t first_bytes = (size_t)16 << 10, largest_bytes = (size_t)4 << 20;

/* A chunk with at least `need` bytes. The rest of the one before stays unused. */
static bool add_chunk(gd_arena *arena, size_t need)
{
    if (need > SIZE_MAX - sizeof(gd_arena_chunk)) {
        gd_fail_memory(need);
        return false;
    }
    size_t bytes = arena->reserved < first_bytes ? first_bytes : arena->reserved;
    if (bytes > largest_bytes)
        bytes = largest_bytes;
    if (bytes < need + sizeof(gd_arena_chunk))
        bytes = need + sizeof(gd_arena_chunk);
    gd_arena_chunk *chunk = gd_alloc(bytes);
    if (!chunk)
        return false;
    *chunk = (gd_arena_chunk){ arena->newest, bytes };
    arena->newest = chunk;
    arena->reserved += bytes;
    arena->free = (unsigned char *)(chunk + 1);
    arena->left = bytes - sizeof *chunk;
    gd_poison(arena->free, arena->left);
    return true;
}

static size_t padding_of(const gd_arena *arena, size_t alignment)
{
    return -(uintptr_t)arena->free & (alignment - 1);
}

void *gd_arena_push(gd_arena *arena, size_t bytes, size_t alignment)
{
    assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
    size_t padding = padding_of(arena, alignment);
    if (padding > arena->left || bytes > arena->left - padding || !arena->free) {
        if (bytes > SIZE_MAX - alignment)
            return gd_fail_null(GD_ERR_MEMORY, "out of memory: %zu bytes asked for", bytes);
        if (!add_chunk(arena, bytes + alignment - 1))
            return NULL;
        padding = padding_of(arena, alignment);
    }
    unsigned char *block = arena->free + padding;
    arena->free = block + bytes;
    arena->left -= padding + bytes;
    gd_unpoison(block, bytes);
    return block;
}

void *gd_arena_push_zero(gd_arena *arena, size_t bytes, size_t alignment)
{
    void *block = gd_arena_push(arena, bytes, alignment);
    if (block)
        memset(block, 0, bytes);
    return block;
}

void *gd_arena_array(gd_arena *arena, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        return gd_fail_null(GD_ERR_MEMORY,
                            "out of memory: %zu items of %zu bytes exceed the address space", count,
                            size);
    return gd_arena_push_zero(arena, count * size, _Alignof(max_align_t));
}

void gd_arena_close(gd_arena *arena)
{
    while (arena->newest) {
        gd_arena_chunk *chunk = arena->newest;
        arena->newest = chunk->before;
        gd_unpoison(chunk, chunk->bytes);
        gd_free(chunk);
    }
    *arena = (gd_arena){ 0 };
}
