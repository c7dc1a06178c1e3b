/* compile/storages.h: storages, numbered in the order in which they are added. */
#ifndef GD_COMPILE_STORAGES_H
#define GD_COMPILE_STORAGES_H

#include "graph/node.h"

/* All zero: none. */
typedef struct gd_storages {
    const gd_storage **storage; /* [count] by number */
    int32_t count;
    size_t capacity;
    int32_t *slots; /* [slot_count], a power of two: number + 1 by the address's hash; 0: empty */
    size_t slot_count;
} gd_storages;

/* The number of a storage, which is added if it is not there. -1: out of memory. */
int32_t gd_storages_add(gd_storages *storages, const gd_storage *storage);
/* Its number, or -1. */
int32_t gd_storages_find(const gd_storages *storages, const gd_storage *storage);
void gd_storages_free(gd_storages *storages);

#endif
