/* compile/memory.h: where every value of a program lies. */
#ifndef GD_COMPILE_MEMORY_H
#define GD_COMPILE_MEMORY_H

#include "compile/ir.h"
#include "compile/place.h"

/* Where an op works: memory that the device asked for, beside what is alive at its step. */
typedef struct gd_scratch_place {
    gd_kernel_scratch asked; /* no bytes: it takes none, or, without room for it, the device's */
    size_t offset;
} gd_scratch_place;

typedef struct gd_memory_plan {
    size_t *offset; /* [ir->count] of a root value in the plan's block, aligned to 64; GD_NO_OFFSET:
                       lies elsewhere */
    gd_scratch_place *scratch; /* [ir->count] of an op; ops of one kernel share theirs */
    size_t bytes;              /* of the block */
    size_t live_bytes;         /* the most bytes alive at any step: no plan can be smaller */
    size_t constant_bytes;     /* of them, for what is computed once */
} gd_memory_plan;

/* The bytes a value of this layout takes: whole lines of the cache, or what the device aligns to. */
size_t gd_memory_bytes(const gd_ir *ir, const gd_layout *layout);
/* Offsets for what must have memory: values alive at the same time do not overlap; an elementwise
 * op may take over the memory of an operand that dies there. Constants and outputs live from the
 * first step to the last. Scratch is for the number of threads that the device has. */
gd_status gd_memory_plan_make(gd_memory_plan *plan, const gd_ir *ir);
/* The most bytes alive at any step. */
gd_status gd_memory_live(const gd_ir *ir, size_t *bytes);
/* alive [ir->count]: the bytes alive at each step. */
gd_status gd_memory_alive(const gd_ir *ir, size_t *alive);
/* compile/verify.c: values alive at the same time, and scratch beside them, lie apart, inside the
 * block. Looks at all pairs: for debug builds. */
gd_status gd_memory_verify(const gd_memory_plan *plan, const gd_ir *ir);
void gd_memory_plan_free(gd_memory_plan *plan);

#endif
