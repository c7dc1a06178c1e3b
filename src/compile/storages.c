/* compile/storages.c: a hash table of storages with open addressing, at most half full. */
#include "compile/storages.h"

#include "base/memory.h"

enum { FIRST_SLOTS = 32 };

/* The slot of a storage, or the empty one where it belongs. */
static size_t slot_of(const gd_storages *s, const gd_storage *storage)
{
    const uint64_t hash =
        (uint64_t)(uintptr_t)storage * 0x9e3779b97f4a7c15u; /* Fibonacci hashing */
    size_t at = (size_t)(hash >> 32) & (s->slot_count - 1);
    while (s->slots[at] && s->storage[s->slots[at] - 1] != storage)
        at = (at + 1) & (s->slot_count - 1);
    return at;
}

static bool grow_slots(gd_storages *s)
{
    gd_storages larger = *s;
    larger.slot_count = s->slot_count ? 2 * s->slot_count : FIRST_SLOTS;
    larger.slots = gd_alloc_zero(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (int32_t i = 0; i < s->count; i++)
        larger.slots[slot_of(&larger, s->storage[i])] = i + 1;
    gd_free(s->slots);
    *s = larger;
    return true;
}

int32_t gd_storages_add(gd_storages *s, const gd_storage *storage)
{
    if (2 * ((size_t)s->count + 1) > s->slot_count && !grow_slots(s))
        return -1;
    const size_t at = slot_of(s, storage);
    if (s->slots[at])
        return s->slots[at] - 1;
    if (!gd_grow((void **)&s->storage, &s->capacity, (size_t)s->count + 1, sizeof *s->storage))
        return -1;
    s->storage[s->count] = storage;
    s->slots[at] = ++s->count;
    return s->count - 1;
}

int32_t gd_storages_find(const gd_storages *s, const gd_storage *storage)
{
    return s->slot_count ? s->slots[slot_of(s, storage)] - 1 : -1;
}

void gd_storages_free(gd_storages *s)
{
    gd_free((void *)s->storage);
    gd_free(s->slots);
    *s = (gd_storages){ 0 };
}
