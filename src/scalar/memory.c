/* memory.c: the allocation hook, the pages that cells lie in, and the first error. memory.h says
 * what a cell is. */
#include <gradus/scalar.h>
#include "scalar/memory.h"

#include <stdlib.h>

/* ---- The first error ----------------------------------------------------------------------- */

const char *gd_scalar_first_error = "";

const char *gd_scalar_error(void)
{
    return gd_scalar_first_error;
}

void gd_scalar_error_clear(void)
{
    gd_scalar_first_error = "";
}

/* ---- The allocation hook ------------------------------------------------------------------- */

static void *default_resize(void *user, void *block, size_t bytes)
{
    (void)user;
    if (bytes == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, bytes);
}

static gd_scalar_allocator allocator = default_resize;
static void *allocator_user;
static size_t held_blocks; /* taken from the allocator and not yet given back */

int gd_scalar_set_allocator(gd_scalar_allocator resize, void *user)
{
    if (held_blocks > 0) {
        gd_scalar_fail("gd_scalar_set_allocator: memory of the old allocator is still in use");
        return -1;
    }
    allocator = resize != NULL ? resize : default_resize;
    allocator_user = resize != NULL ? user : NULL;
    return 0;
}

void *gd_scalar_realloc(void *block, size_t count, size_t size)
{
    if (count == 0) {
        if (block != NULL) {
            allocator(allocator_user, block, 0);
            held_blocks--;
        }
        return NULL;
    }
    void *resized =
        count <= SIZE_MAX / size ? allocator(allocator_user, block, count * size) : NULL;
    if (resized == NULL)
        gd_scalar_fail("gd_scalar: out of memory");
    else if (block == NULL)
        held_blocks++;
    return resized;
}

/* ---- Pages of cells ------------------------------------------------------------------------ */

enum { CHUNK_PAGES = 32 }; /* how many pages are asked for at a time */

typedef struct chunk {
    struct chunk *next;
} chunk;

cell_page *gd_scalar_open_pages;
static chunk *chunks; /* all of them, to give back */

bool gd_scalar_add_pages(void)
{
    chunk *fresh = gd_scalar_realloc(NULL, CHUNK_PAGES + 1, CELL_PAGE_BYTES);
    if (fresh == NULL)
        return false;
    fresh->next = chunks;
    chunks = fresh;

    /* The pages start at the next page boundary. The chunk's link, at its start, is before it:
     * memory comes aligned to 16 bytes at least. */
    size_t offset = CELL_PAGE_BYTES - (uintptr_t)fresh % CELL_PAGE_BYTES;
    for (size_t i = CHUNK_PAGES; i-- > 0;) {
        cell_page *page = (cell_page *)((char *)fresh + offset + i * CELL_PAGE_BYTES);
        page->free = ~UINT64_C(1); /* all but the header */
        page->next = gd_scalar_open_pages;
        gd_scalar_open_pages = page;
    }
    return true;
}

void gd_scalar_free_pages(void)
{
    gd_scalar_open_pages = NULL;
    while (chunks != NULL) {
        chunk *next = chunks->next;
        gd_scalar_realloc(chunks, 0, 1);
        chunks = next;
    }
}
