/* nn/names.h: a map from names to small numbers. The names stay the caller's. */
#ifndef GD_NN_NAMES_H
#define GD_NN_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gd_names_slot {
    const char *name; /* NULL: free */
    uint32_t hash;
    int number;
} gd_names_slot;

/* All zero is an empty map. */
typedef struct gd_names {
    gd_names_slot *slots; /* [capacity], open addressing, linear probing */
    size_t capacity;      /* 0 or a power of two, at least twice `count` */
    size_t count;
} gd_names;

/* The number of `name`, -1 if it has none. */
int gd_names_find(const gd_names *names, const char *name);
/* Give `name`, which must be new, a number. `name` must outlive the map. false: out of memory. */
bool gd_names_add(gd_names *names, const char *name, int number);
/* Forget all names, and the memory. */
void gd_names_clear(gd_names *names);

#endif
