/* set.c: which pointers have been seen. A hash table with open addressing (Knuth, TAOCP vol.
 * 3, 6.4, algorithm L). */
#include <gradus/scalar.h>
#include "scalar/memory.h"

struct gd_scalar_set {
    const void **slots; // [capacity]; NULL is an empty slot
    size_t capacity;    // a power of two, at least twice `size`; 0 before the first insertion
    size_t size;
};

gd_scalar_set *gd_scalar_set_create(void)
{
    gd_scalar_set *set = gd_scalar_realloc(NULL, 1, sizeof(*set));
    if (set != NULL)
        *set = (gd_scalar_set){ 0 };
    return set;
}

void gd_scalar_set_destroy(gd_scalar_set *set)
{
    if (set == NULL)
        return;
    gd_scalar_realloc(set->slots, 0, sizeof(const void *));
    gd_scalar_realloc(set, 0, sizeof(*set));
}

size_t gd_scalar_set_size(const gd_scalar_set *set)
{
    return set != NULL ? set->size : 0;
}

/* The slot that holds `item`, or the empty one where it belongs. At least half the slots are empty,
 * so the search ends. Addresses differ in their middle bits; the multiplication (2^64 / golden
 * ratio) carries those to the top, and the top bits choose the slot (Knuth's multiplicative
 * hashing). */
static size_t find_slot(const void *const *slots, size_t capacity, const void *item)
{
    uint64_t hash = (uint64_t)(uintptr_t)item * UINT64_C(0x9E3779B97F4A7C15);
    size_t slot = (size_t)(hash >> 32) & (capacity - 1);
    while (slots[slot] != NULL && slots[slot] != item)
        slot = (slot + 1) & (capacity - 1);
    return slot;
}

bool gd_scalar_set_contains(const gd_scalar_set *set, const void *item)
{
    if (set == NULL || set->size == 0 || item == NULL)
        return false;
    return set->slots[find_slot(set->slots, set->capacity, item)] == item;
}

/* Move everything to a table twice as large. */
static int grow(gd_scalar_set *set)
{
    size_t capacity = set->capacity > 0 ? 2 * set->capacity : 16;
    const void **slots = gd_scalar_realloc(NULL, capacity, sizeof(const void *));
    if (slots == NULL)
        return -1;
    for (size_t i = 0; i < capacity; i++)
        slots[i] = NULL;
    for (size_t i = 0; i < set->capacity; i++)
        if (set->slots[i] != NULL)
            slots[find_slot(slots, capacity, set->slots[i])] = set->slots[i];
    gd_scalar_realloc(set->slots, 0, sizeof(const void *));
    set->slots = slots;
    set->capacity = capacity;
    return 0;
}

int gd_scalar_set_insert(gd_scalar_set *set, const void *item)
{
    if (set == NULL || item == NULL)
        return -1;
    if (gd_scalar_set_contains(set, item))
        return 0;
    if (2 * (set->size + 1) > set->capacity && grow(set) != 0)
        return -1;
    set->slots[find_slot(set->slots, set->capacity, item)] = item;
    set->size++;
    return 1;
}
