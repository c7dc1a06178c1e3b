/* base/arena.c: a linear arena. Start at gd_arena_push(): an add and a compare while memory is
 * committed.
 *
 * Addresses are reserved once, so blocks never move; memory is committed behind them in steps that
 * double, so a small arena stays small and a large one makes few system calls. Under
 * AddressSanitizer, released bytes are poisoned.
 */
#include "base/arena.h"
#include "base/error.h"
#include "base/memory.h"

#include <assert.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define POISONING 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISONING 1
#endif
#endif

#ifdef POISONING
#include <sanitizer/asan_interface.h>
#define poison(start, bytes)   ASAN_POISON_MEMORY_REGION(start, bytes)
#define unpoison(start, bytes) ASAN_UNPOISON_MEMORY_REGION(start, bytes)
#else
#define poison(start, bytes)   ((void)0)
#define unpoison(start, bytes) ((void)0)
#endif

#define FIRST_STEP_BYTES   ((size_t)64 << 10)
#define LARGEST_STEP_BYTES ((size_t)64 << 20)

static size_t round_up(size_t bytes, size_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}

bool gd_arena_open(gd_arena *arena, size_t reserve_bytes)
{
    *arena = (gd_arena){ 0 };
    size_t page = gd_page_size();
    if (reserve_bytes > SIZE_MAX - page) {
        gd_fail_memory(reserve_bytes);
        return false;
    }
    size_t reserved = round_up(reserve_bytes ? reserve_bytes : 1, page);
    arena->start = gd_pages_reserve(reserved);
    if (!arena->start)
        return false;
    arena->reserved = reserved;
    return true;
}

void gd_arena_close(gd_arena *arena)
{
    unpoison(arena->start, arena->committed);
    gd_pages_release(arena->start, arena->reserved);
    *arena = (gd_arena){ 0 };
}

/* Commit at least the first `end` bytes, end <= reserved. */
static bool commit_to(gd_arena *arena, size_t end)
{
    size_t step = arena->committed;
    if (step < FIRST_STEP_BYTES)
        step = FIRST_STEP_BYTES;
    if (step > LARGEST_STEP_BYTES)
        step = LARGEST_STEP_BYTES;
    size_t left = arena->reserved - arena->committed;
    size_t need = round_up(end - arena->committed,
                           gd_page_size()); /* reserved is whole pages: this fits in left */
    if (step < need)
        step = need;
    step = round_up(step, gd_page_size());
    if (step > left)
        step = left;
    if (!gd_pages_commit(arena->start + arena->committed, step))
        return false;
    poison(arena->start + arena->committed, step);
    arena->committed += step;
    return true;
}

void *gd_arena_push(gd_arena *arena, size_t bytes, size_t alignment)
{
    assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
    size_t padding = -((uintptr_t)arena->start + arena->used) & (alignment - 1);
    size_t left = arena->reserved - arena->used;
    if (padding > left || bytes > left - padding)
        return gd_fail_null(GD_ERR_MEMORY, "arena full: %zu bytes asked for, %zu of %zu in use",
                            bytes, arena->used, arena->reserved);
    size_t begin = arena->used + padding;
    size_t end = begin + bytes;
    if (end > arena->committed && !commit_to(arena, end))
        return NULL;
    arena->used = end;
    if (arena->peak < end)
        arena->peak = end;
    unpoison(arena->start + begin, bytes);
    return arena->start + begin;
}

void *gd_arena_push_zero(gd_arena *arena, size_t bytes, size_t alignment)
{
    void *block = gd_arena_push(arena, bytes, alignment);
    if (block)
        memset(block, 0, bytes);
    return block;
}

gd_arena_mark gd_arena_mark_now(const gd_arena *arena)
{
    return arena->used;
}

void gd_arena_release(gd_arena *arena, gd_arena_mark mark)
{
    assert(mark <= arena->used);
    poison(arena->start + mark, arena->used - mark);
    arena->used = mark;
}

void gd_arena_reset(gd_arena *arena)
{
    gd_arena_release(arena, 0);
}
