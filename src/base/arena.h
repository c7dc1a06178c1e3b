/* base/arena.h: many small blocks that end together. Blocks never move. */
#ifndef GD_BASE_ARENA_H
#define GD_BASE_ARENA_H

#include <stddef.h>

typedef struct gd_arena_chunk gd_arena_chunk;

/* All zero: an empty arena, ready for use. */
typedef struct gd_arena {
    unsigned char *free;    /* the newest chunk's first free byte */
    size_t left;            /* bytes free from there on */
    gd_arena_chunk *newest; /* each has the one before it */
    size_t reserved;        /* bytes in chunks */
} gd_arena;

/* `alignment` is a power of two. NULL: out of memory. */
void *gd_arena_push(gd_arena *arena, size_t bytes, size_t alignment);
void *gd_arena_push_zero(gd_arena *arena, size_t bytes, size_t alignment);
/* `count` items of `size` bytes, zeroed and aligned for any type. */
void *gd_arena_array(gd_arena *arena, size_t count, size_t size);
/* Release every block. The arena is empty again. */
void gd_arena_close(gd_arena *arena);

#endif
