/* base/arena.h: a linear arena over reserved address space. Blocks never move; a reset is one
 * store. */
#ifndef GD_BASE_ARENA_H
#define GD_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gd_arena {
    unsigned char *start; /* reserved addresses */
    size_t reserved;      /* bytes of address space */
    size_t committed;     /* bytes backed by memory, a prefix */
    size_t used;          /* bytes handed out, a prefix of committed */
    size_t peak;          /* the largest `used` ever seen */
} gd_arena;

typedef size_t gd_arena_mark;

bool gd_arena_open(gd_arena *arena, size_t reserve_bytes);
void gd_arena_close(gd_arena *arena);

/* `alignment` is a power of two. Not zeroed after a release or reset. NULL (and GD_ERR_MEMORY) when
 * the reservation is full. */
void *gd_arena_push(gd_arena *arena, size_t bytes, size_t alignment);
void *gd_arena_push_zero(gd_arena *arena, size_t bytes, size_t alignment);

gd_arena_mark gd_arena_mark_now(const gd_arena *arena);
void gd_arena_release(gd_arena *arena,
                      gd_arena_mark mark); /* everything pushed since `mark`, O(1) */
void gd_arena_reset(gd_arena *arena);      /* everything, O(1); keeps the memory committed */

#endif
