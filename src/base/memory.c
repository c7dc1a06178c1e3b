/* base/memory.c: the library's malloc, with fault injection. Start at admit(): every request for
 * memory passes through it, and a test can make any of them fail. Blocks come from the allocator
 * the user may replace. */
#include "base/memory.h"
#include "base/error.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void *resize_with_malloc(void *user, void *block, size_t bytes)
{
    (void)user;
    if (bytes == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, bytes);
}

static gd_allocator allocator = { resize_with_malloc, NULL };

static _Atomic int64_t requests;       /* asked for since the last gd_fail_allocations_after() */
static _Atomic int64_t allowance = -1; /* requests from this number on fail; negative: none */

void gd_set_allocator(const gd_allocator *replacement)
{
    allocator = replacement ? *replacement : (gd_allocator){ resize_with_malloc, NULL };
}

int64_t gd_fail_allocations_after(int64_t count)
{
    atomic_store(&allowance, count);
    return atomic_exchange(&requests, 0);
}

/* Count a request; false if it is one of those to fail. */
static bool admit(void)
{
    int64_t index = atomic_fetch_add_explicit(&requests, 1, memory_order_relaxed);
    int64_t limit = atomic_load_explicit(&allowance, memory_order_relaxed);
    return limit < 0 || index < limit;
}

/* A size of 0 means "release" to the allocator, so blocks hold at least one byte. */
static void *resize(void *block, size_t bytes)
{
    size_t size = bytes ? bytes : 1;
    void *moved = admit() ? allocator.resize(allocator.user, block, size) : NULL;
    if (!moved)
        gd_fail_memory(bytes);
    return moved;
}

void *gd_alloc(size_t bytes)
{
    return resize(NULL, bytes);
}

void *gd_alloc_zero(size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        return gd_fail_null(GD_ERR_MEMORY,
                            "out of memory: %zu items of %zu bytes exceed the address space", count,
                            size);
    void *block = gd_alloc(count * size);
    if (block)
        memset(block, 0, count * size);
    return block;
}

void *gd_realloc(void *block, size_t bytes)
{
    return resize(block, bytes);
}

void gd_free(void *block)
{
    if (block)
        allocator.resize(allocator.user, block, 0);
}

char *gd_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = gd_alloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

/* The block that gd_free wants stands just before the aligned one. */
void *gd_alloc_aligned(size_t bytes, size_t alignment)
{
    assert(alignment > 0 && (alignment & (alignment - 1)) == 0 && alignment <= 4096);
    size_t room = sizeof(void *) + alignment - 1;
    if (bytes > SIZE_MAX - room) {
        gd_fail_memory(bytes);
        return NULL;
    }
    unsigned char *block = gd_alloc(bytes + room);
    if (!block)
        return NULL;
    uintptr_t first = (uintptr_t)block + sizeof(void *);
    unsigned char *aligned = block + sizeof(void *) + (-first & (alignment - 1));
    memcpy(aligned - sizeof(void *), &block, sizeof block);
    return aligned;
}

void gd_free_aligned(void *block)
{
    if (!block)
        return;
    void *origin;
    memcpy(&origin, (unsigned char *)block - sizeof(void *), sizeof origin);
    gd_free(origin);
}

bool gd_grow(void **items, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return true;
    size_t most = SIZE_MAX / size;
    if (need > most) {
        gd_fail(GD_ERR_MEMORY, "out of memory: %zu items of %zu bytes exceed the address space",
                need, size);
        return false;
    }
    size_t grown = *capacity > most / 2 ? most : *capacity * 2;
    if (grown < 8 && most >= 8)
        grown = 8;
    if (grown < need)
        grown = need;
    void *moved = gd_realloc(*items, grown * size);
    if (!moved)
        return false;
    *items = moved;
    *capacity = grown;
    return true;
}
