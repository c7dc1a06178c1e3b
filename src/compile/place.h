/* compile/place.h: offsets for buffers that are alive at known times. */
#ifndef GD_COMPILE_PLACE_H
#define GD_COMPILE_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradus/base.h>

typedef struct gd_plan_buffer {
    size_t bytes, offset;
    int32_t first, last; /* steps between which it is alive, inclusive */
    int32_t value;
    bool
        in_gaps; /* only where it needs no more memory, at the offset of such a one before it if it can */
} gd_plan_buffer;

#define GD_NO_OFFSET SIZE_MAX

/* Give each of the buffers, in their order, the lowest offset where it overlaps nothing placed
 * before it that is alive at a time it is; GD_NO_OFFSET to those that are to lie in gaps and find
 * none. steps: more than every `last`. *bytes: what all take. */
gd_status gd_place(gd_plan_buffer *buffers, size_t count, size_t steps, size_t *bytes);

#endif
