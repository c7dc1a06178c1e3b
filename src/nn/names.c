/* nn/names.c: a hash map from names to numbers. Names are only ever added. */
#include "nn/names.h"

#include "base/memory.h"

#include <string.h>

/* FNV-1a. */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (const unsigned char *byte = (const unsigned char *)name; *byte; byte++)
        hash = (hash ^ *byte) * 16777619u;
    return hash;
}

/* Where `name` is, or would be put. There is always a free slot. */
static gd_names_slot *probe(const gd_names *names, const char *name, uint32_t hash)
{
    size_t mask = names->capacity - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
        gd_names_slot *slot = &names->slots[at];
        if (!slot->name || (slot->hash == hash && strcmp(slot->name, name) == 0))
            return slot;
    }
}

int gd_names_find(const gd_names *names, const char *name)
{
    if (names->count == 0)
        return -1;
    const gd_names_slot *slot = probe(names, name, hash_of(name));
    return slot->name ? slot->number : -1;
}

static bool grow(gd_names *names)
{
    gd_names bigger = { .capacity = names->capacity ? 2 * names->capacity : 16,
                        .count = names->count };
    bigger.slots = gd_alloc_zero(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots)
        return false;
    for (size_t i = 0; i < names->capacity; i++)
        if (names->slots[i].name)
            *probe(&bigger, names->slots[i].name, names->slots[i].hash) = names->slots[i];
    gd_free(names->slots);
    *names = bigger;
    return true;
}

bool gd_names_add(gd_names *names, const char *name, int number)
{
    if (2 * (names->count + 1) > names->capacity && !grow(names))
        return false;
    uint32_t hash = hash_of(name);
    *probe(names, name, hash) = (gd_names_slot){ name, hash, number };
    names->count++;
    return true;
}

void gd_names_clear(gd_names *names)
{
    gd_free(names->slots);
    *names = (gd_names){ 0 };
}
