/* memory.h: where the scalar engine's memory comes from. Private to src/scalar.
 *
 * Two sources: gd_scalar_realloc for arrays, and cells, 64-byte blocks of which each value takes
 * one. Nothing here knows what a value is; to learn how the engine works, read scalar.c and take
 * cell_take and cell_give for granted.
 */
#ifndef GRADUS_SCALAR_MEMORY_H
#define GRADUS_SCALAR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Make `block` (NULL for a new one) hold `count` items of `size` bytes, contents kept; count 0
 * frees it. NULL if there is no memory, in which case `block` is as it was, or after freeing. */
void *gd_scalar_realloc(void *block, size_t count, size_t size);

extern const char *gd_scalar_first_error; /* "" if there is none */

/* Keep `sentence`, a literal, as the error if it is the first. */
static inline void gd_scalar_fail(const char *sentence)
{
    if (gd_scalar_first_error[0] == '\0')
        gd_scalar_first_error = sentence;
}

/* Cells lie in pages of 64. Cell 0 is the page's header, in which bit i says whether cell i is
 * free. So the lowest free cell is one instruction away, and the page of a cell is found by
 * clearing the low bits of its address.
 *
 * A list of free cells would be less code. But it hands cells out in the order in which they were
 * freed; a training loop frees its graph in another order than it built it; and so neighbours in
 * the graph come to lie far apart in memory. With bench_scalar's network a value takes the same time
 * with either in the first rounds, and with the list three times as long after a hundred. */
enum { CELL_BYTES = 64, CELL_PAGE_BYTES = 64 * CELL_BYTES };

typedef struct cell_page {
    uint64_t free;          /* bit i: cell i is free. Bit 0 is never set. */
    struct cell_page *next; /* in `gd_scalar_open_pages`, while any bit of `free` is set */
} cell_page;

extern cell_page *gd_scalar_open_pages; /* pages with a free cell */

/* Ask the allocator for more pages. They are kept when they empty: after its first round a training
 * loop asks the system for nothing. */
bool gd_scalar_add_pages(void);

/* Give all pages back to the allocator. No cell may be in use. */
void gd_scalar_free_pages(void);

/* Have the processor fetch what `address` points at, which will be needed soon. */
static inline void prefetch(const void *address)
{
#if defined(__GNUC__)
    __builtin_prefetch(address);
#else
    (void)address;
#endif
}

static inline size_t lowest_bit(uint64_t bits) /* of `bits`, which are not all 0 */
{
#if defined(__GNUC__)
    return (size_t)__builtin_ctzll(bits);
#else
    size_t index = 0;
    while ((bits >> index & 1) == 0)
        index++;
    return index;
#endif
}

/* 64 bytes on a boundary of 64, or NULL: out of memory. */
static inline void *cell_take(void)
{
    if (gd_scalar_open_pages == NULL && !gd_scalar_add_pages())
        return NULL;
    cell_page *page = gd_scalar_open_pages;
    void *cell = (char *)page + lowest_bit(page->free) * CELL_BYTES;
    page->free &= page->free - 1; /* clears the lowest bit */
    if (page->free == 0)
        gd_scalar_open_pages = page->next;
    return cell;
}

static inline void cell_give(void *cell)
{
    uintptr_t offset = (uintptr_t)cell % CELL_PAGE_BYTES;
    cell_page *page = (cell_page *)((uintptr_t)cell - offset);
    if (page->free == 0) {
        page->next = gd_scalar_open_pages;
        gd_scalar_open_pages = page;
    }
    page->free |= UINT64_C(1) << offset / CELL_BYTES;
}

#endif
