/* backend/cpu/elementwise_program.h: what a prepared elementwise call is. Private to
 * elementwise_program.c, which makes it, and elementwise_run.c, which runs it.
 *
 * A program has SLOTS, addresses of one tile each: first the sources (the call's inputs), then the
 * results, then registers in the thread's scratch. A STEP is one loop over slots. Sources that lie
 * densely within every tile are read where they are; the others are copied into a register when a
 * tile begins, unless that register holds the very same elements already, as it does for a scalar
 * or a bias row. A TILE is a box of the result's index space, after axes that all operands step
 * through alike have been merged: as many trailing axes as fit, or, where an operand is transposed,
 * a block of two axes. */
#ifndef GD_BACKEND_CPU_ELEMENTWISE_PROGRAM_H
#define GD_BACKEND_CPU_ELEMENTWISE_PROGRAM_H

#include "backend/cpu/elementwise.h"

enum {
    GD_EW_MAX_STEPS = GD_FUSED_MAX_INSTRUCTIONS *
                      5, /* each: three operands and the result to convert, and the op */
    GD_EW_MAX_RESULTS = 1 + GD_FUSED_MAX_MORE,
    GD_EW_MAX_REGISTERS = GD_EW_MAX_STEPS + GD_FUSED_MAX_INPUTS + GD_EW_MAX_RESULTS,
    GD_EW_MAX_SLOTS = GD_FUSED_MAX_INPUTS + GD_EW_MAX_RESULTS + GD_EW_MAX_REGISTERS,
};

typedef struct gd_ew_source {
    int64_t stride[GD_MAX_RANK]; /* elements, over the merged axes */
    int16_t size_log2;
    int16_t is_direct;
    int32_t slot; /* register it is copied to when not direct */
} gd_ew_source;

typedef struct gd_ew_result {
    int16_t size_log2;
    int16_t slot; /* register it is made in when it is not direct, or streamed */
} gd_ew_result;

typedef struct gd_ew_step {
    gd_ew_loop loop;
    int16_t from[3], to; /* slots */
} gd_ew_step;

struct gd_ew_program {
    const gd_ew_table *table;
    int32_t n_sources, n_steps, n_registers, rank; /* no steps: a copy */
    int32_t n_results;
    int16_t out_is_direct; /* the results; they all lie alike */
    int16_t is_large;      /* the result is better streamed */
    int16_t is_plain;      /* one loop over operands that all lie in line */
    int16_t block_axis;    /* the other axis of a two-axis block, beside the last */
    int64_t register_bytes;
    int64_t widest;             /* bytes of the largest element a register holds */
    int64_t tiles;              /* 0: nothing to do */
    int64_t shape[GD_MAX_RANK]; /* merged axes */
    int64_t box[GD_MAX_RANK];   /* extents of a tile; cut off at the ends of the axes */
    int64_t out_stride[GD_MAX_RANK];
    gd_ew_source source[GD_FUSED_MAX_INPUTS];
    gd_ew_result result[GD_EW_MAX_RESULTS]; /* [0]: the last instruction's */
    gd_ew_step step[GD_EW_MAX_STEPS];
};

#endif
