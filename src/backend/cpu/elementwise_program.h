/* backend/cpu/elementwise_program.h: what a prepared elementwise call is. Private to
 * elementwise_program.c, elementwise_tiles.c and elementwise_chain.c, which make it, and
 * elementwise_run.c, which runs it.
 *
 * A program has SLOTS, addresses of one tile each: first the sources (the call's inputs), then the
 * results, then registers in the thread's scratch. A STEP is one loop over slots. Sources that lie
 * densely within every tile are read where they are; the others are copied into a register when a
 * tile begins, unless that register holds the very same elements already, as it does for a scalar
 * or a bias row. A TILE is a box of the result's index space, after axes that all operands step
 * through alike have been merged: as many trailing axes as fit, or, where an operand is transposed,
 * a block of two axes.
 *
 * Steps that follow one another and have a handler (gd_ew_chain) are a CHAIN: all of them are done
 * on a block of elements in registers, then on the next one; what no other step reads is not
 * stored. An operand that is one number, or one a row where rows are whole blocks, is read as such,
 * and one of bf16 is widened in the register.
 *
 * A source that a group draws (gd_fused_attr.drawn_inputs) is a register, in which the words of the
 * tile's elements are made when the tile begins.
 *
 * A group with reductions (gd_fused_attr) is a program too. Its tiles are whole rows, and may be
 * larger than the L1 cache: so steps run in STAGES, all steps of a stage on one piece of the tile
 * after another, a piece being some rows or part of a row. What is used within its stage alone
 * needs a register for a piece only. A stage ends before a step that works on the numbers of all
 * rows of the tile. */
#ifndef GD_BACKEND_CPU_ELEMENTWISE_PROGRAM_H
#define GD_BACKEND_CPU_ELEMENTWISE_PROGRAM_H

#include "backend/cpu/elementwise.h"
#include "ops/attrs.h"

enum {
    /* Each: three operands and the result to convert, and the op; those of two steps have no more of them to
     * convert than the group has inputs. */
    GD_EW_MAX_STEPS = GD_FUSED_MAX_ELEMENTWISE * 5,
    GD_EW_MAX_RESULTS = 1 + GD_FUSED_MAX_EXTRA,
    GD_EW_MAX_REGISTERS = GD_EW_MAX_STEPS + GD_FUSED_MAX_INPUTS + GD_EW_MAX_RESULTS,
    GD_EW_PIECE = 512,                               /* most elements of a piece */
    GD_EW_MAX_LINKS = 8 * GD_FUSED_MAX_INSTRUCTIONS, /* three of an op, two of a conversion, ends */
    GD_EW_MAX_SLOTS = GD_FUSED_MAX_INPUTS + GD_EW_MAX_RESULTS + GD_EW_MAX_REGISTERS,
};

/* What a register holds an element for. */
typedef enum gd_ew_extent {
    GD_EW_TILE,
    GD_EW_ROW, /* each of the tile's rows */
    GD_EW_PART /* a piece */
} gd_ew_extent;

typedef struct gd_ew_source {
    int64_t stride[GD_MAX_RANK]; /* elements, over the merged axes */
    int16_t size_log2;
    int16_t is_direct;
    uint8_t extent; /* gd_ew_extent: GD_EW_PART for one number in all */
    uint8_t slot;   /* register it is copied to when not direct */
    bool is_drawn;  /* words of the random stream, which are drawn in that register */
} gd_ew_source;

typedef struct gd_ew_result {
    int16_t size_log2;
    int16_t is_row;
    int16_t slot; /* register it is made in when it is not direct, or streamed */
} gd_ew_result;

typedef enum gd_ew_step_kind {
    GD_EW_LOOP,   /* over the elements */
    GD_EW_ROWS,   /* the loop, over the rows' numbers */
    GD_EW_REDUCE, /* the reducer: a number for each row */
    GD_EW_SPREAD, /* each row's number to all of its elements */
    GD_EW_ADAM,   /* run.adam over program.adam */
} gd_ew_step_kind;

typedef struct gd_ew_step {
    union {
        gd_ew_loop loop;
        const struct gd_reducer *reducer;
        gd_ew_adam_loop adam;
    } run;
    uint8_t from[3], to; /* slots */
    uint8_t kind;        /* gd_ew_step_kind */
    uint8_t chain;       /* the handler of the same op; 0: there is none */
} gd_ew_step;

/* Where a piece begins in a slot of a group with reductions: log2 of an element's bytes, +
 * GD_EW_SKIP_ROWS for one number a row, or GD_EW_NO_SKIP. */
enum { GD_EW_SKIP_ROWS = 4, GD_EW_NO_SKIP = 8 };

struct gd_ew_program {
    const gd_ew_table *table;
    int32_t n_sources, n_steps, n_registers, rank; /* no steps: a copy */
    int32_t n_results;
    int32_t row_axis;           /* of the merged axes, the first of a row's */
    int16_t out_is_direct;      /* the results; they all lie alike */
    int16_t is_large;           /* the result is better streamed */
    int16_t is_plain;           /* one loop over operands that all lie in line */
    int16_t block_axis;         /* the other axis of a two-axis block, beside the last */
    int16_t overflows;          /* it needs more steps or room than there is */
    int16_t is_far;             /* values of a group with reductions do not fit the level 2 cache */
    int64_t row_length;         /* 0: no reductions */
    int64_t piece, piece_rows;  /* elements of a piece at most; its rows, 1 if it is part of one */
    bool rows_are_blocks;       /* of chains, which then take numbers of rows as operands */
    int64_t register_bytes[3];  /* by extent */
    int64_t widest;             /* bytes of the largest element a register holds */
    int64_t tiles;              /* 0: nothing to do */
    int64_t tile_work;          /* of one, as elementwise_run.c counts it */
    int64_t shape[GD_MAX_RANK]; /* merged axes */
    int64_t box[GD_MAX_RANK];   /* extents of a tile; cut off at the ends of the axes */
    int64_t out_stride[GD_MAX_RANK];
    gd_ew_source source[GD_FUSED_MAX_INPUTS];
    gd_ew_result result[GD_EW_MAX_RESULTS]; /* [0]: the last instruction's */
    gd_ew_step step[GD_EW_MAX_STEPS];
    uint8_t span[GD_EW_MAX_STEPS]; /* so many steps from here on are a chain, 0: none begins here */
    uint16_t first_link[GD_EW_MAX_STEPS]; /* of that chain */
    gd_ew_link link[GD_EW_MAX_LINKS];
    int64_t part;                        /* elements of a register that holds a piece */
    uint8_t extent[GD_EW_MAX_REGISTERS]; /* of each register: gd_ew_extent */
    uint8_t skip[GD_EW_MAX_SLOTS];
    uint8_t adam[GD_ADAM_BF16_OPERANDS + GD_ADAM_RESULTS]; /* slots of operands and results */
};

static inline int gd_ew_first_register(const gd_ew_program *p)
{
    return p->n_sources + p->n_results;
}

/* What a slot of the program holds an element for. */
gd_ew_extent gd_ew_extent_of(const gd_ew_program *p, int slot);

/* log2 of an element's bytes. */
int gd_ew_size_log2(gd_dtype dtype);

/* What source s has elements of. */
gd_dtype gd_ew_dtype_of(const gd_kernel_call *call, int s);

/* A register of the program's, for good: its slot. */
int gd_ew_new_register(gd_ew_program *p, gd_ew_extent extent);

/* The axes that the program walks over and how operands step through them, and which are one number a
 * row; before there are steps. */
void gd_ew_lay_out(gd_ew_program *p, const gd_kernel_call *call);
/* Its tiles, and the slots of what is copied to be read or written; after the steps and their chains. */
void gd_ew_divide_into_tiles(gd_ew_program *p, const gd_kernel_call *call);

/* The handlers of chains that do what a row does over a dtype, and a cast; 0: there is none. */
uint8_t gd_ew_chain_of(int op, gd_dtype computes);
uint8_t gd_ew_chain_of_cast(gd_dtype from, gd_dtype to);

/* Which steps are a chain. Where the whole program is one, a source that is one number in all then
 * needs no more room than a block has. */
void gd_ew_find_chains(gd_ew_program *p);
/* Their links, once every source and result has its slot. */
void gd_ew_link_chains(gd_ew_program *p);

_Static_assert(GD_EW_PIECE % GD_EW_CHAIN_BLOCK == 0, "parts of rows are whole blocks, too");
_Static_assert(GD_EW_MAX_SLOTS <= UINT8_MAX, "slots are numbered in bytes");

#endif
