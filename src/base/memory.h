/* base/memory.h: the library's malloc, behind the allocation hook. */
#ifndef GD_BASE_MEMORY_H
#define GD_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All return NULL when memory is out and record GD_ERR_MEMORY. gd_free(NULL) does nothing. */
void *gd_alloc(size_t bytes);
void *gd_alloc_zero(size_t count, size_t size); /* count*size checked for overflow */
void *gd_realloc(void *block, size_t bytes);
void gd_free(void *block);
char *gd_strdup(const char *text);

/* Aligned to `alignment` (a power of two, up to 4096). Release with gd_free_aligned. */
void *gd_alloc_aligned(size_t bytes, size_t alignment);
void gd_free_aligned(void *block);

/* Grow *items (of `size` bytes each) to hold at least `need`, doubling. *capacity is in items.
 * false: out of memory, unchanged. */
bool gd_grow(void **items, size_t *capacity, size_t need, size_t size);

#endif
