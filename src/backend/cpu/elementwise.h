/* backend/cpu/elementwise.h: the engine that runs elementwise ops: single rows of
 * ops/elementwise.def, cast, copy, and fused groups of them. What a row computes stands in the .def
 * file; how it is spelled for a type in formulas.h.
 *
 * Everything is made of contiguous loops, one per op, type and instruction set (gd_ew_loop). A call
 * is prepared into a program: a sequence of such loops over tiles small enough for the L1 cache.
 * Operands that do not lie as a loop wants them (strided, broadcast, of another dtype) are first
 * copied or converted, a tile at a time. A group with reductions is such a program too, over tiles
 * of whole rows, with gd_reducers among its loops. Start at gd_ew_prepare.
 */
#ifndef GD_BACKEND_CPU_ELEMENTWISE_H
#define GD_BACKEND_CPU_ELEMENTWISE_H

#include "backend/backend.h"
#include "backend/cpu/random.h"
#include "backend/cpu/scratch.h"

/* out[i] = f(x[i], y[i], z[i]) for 0 <= i < n; operands an op does not have are ignored. out may be
 * exactly x, y or z where the element sizes agree. An element's value does not depend on its place
 * nor on n. */
typedef void (*gd_ew_loop)(const void *x, const void *y, const void *z, void *out, int64_t n);

/* out[i*out_row_stride + j] = x[i*row_stride + j*col_stride] for i < rows, j < cols; strides in
 * elements. No overlap. */
typedef void (*gd_ew_block_copy)(const void *x, int64_t row_stride, int64_t col_stride, void *out,
                                 int64_t out_row_stride, int64_t rows, int64_t cols);

/* memcpy with non-temporal stores, which fill whole cache lines without reading them first and
 * leave the caches alone. Best in pieces of some hundred bytes that begin at a multiple of 64. What
 * was stored is visible to other threads after gd_ew_stream was called with 0 bytes. */
typedef void (*gd_ew_stream)(void *to, const void *from, size_t bytes);

/* The step of Adam (ops/adam.h) for n elements. from: its operands; of the numbers one each. to: where
 * m', v' and p' go, which may be where m, v and p are. */
typedef void (*gd_ew_adam_loop)(const void *const *from, void *const *to, int64_t n);

struct gd_reducer; /* backend/cpu/reduce.h */

/* Ops on elements of 32 bits that are made one after another with their values in registers
 * (elementwise_chain_isa.c): of f32, or of i32 where the name says so. Binary ones take the register for
 * x and a slot for y; or, + SECOND, the register for y and a slot for x. + NUMBER: of the slot, one
 * number for all elements. WIDEN and NARROW read and write slots of bf16. */
enum {
    GD_EW_CHAIN_SECOND = 2,
    GD_EW_CHAIN_NUMBER = 1,
    GD_EW_CHAIN_END = 0,
    GD_EW_CHAIN_STORE,                          /* from the register to a slot */
    GD_EW_CHAIN_LOAD,                           /* or + NUMBER */
    GD_EW_CHAIN_WIDEN = GD_EW_CHAIN_LOAD + 2,   /* LOAD of bf16 */
    GD_EW_CHAIN_NARROW = GD_EW_CHAIN_WIDEN + 2, /* STORE in bf16, rounded to nearest */
    GD_EW_CHAIN_FROM_I32,
    GD_EW_CHAIN_NEG,
    GD_EW_CHAIN_ABS,
    GD_EW_CHAIN_SQUARE,
    GD_EW_CHAIN_SQRT,
    GD_EW_CHAIN_RELU,
    GD_EW_CHAIN_RECIPROCAL,
    GD_EW_CHAIN_FLUSH,
    GD_EW_CHAIN_ADD, /* and all from here on: binary */
    GD_EW_CHAIN_SUB = GD_EW_CHAIN_ADD + 4,
    GD_EW_CHAIN_MUL = GD_EW_CHAIN_SUB + 4,
    GD_EW_CHAIN_DIV = GD_EW_CHAIN_MUL + 4,
    GD_EW_CHAIN_RELU_GRAD = GD_EW_CHAIN_DIV + 4,
    GD_EW_CHAIN_ROUND_BF16 = GD_EW_CHAIN_RELU_GRAD + 4,
    GD_EW_CHAIN_AND_I32 = GD_EW_CHAIN_ROUND_BF16 + 4,
    GD_EW_CHAIN_COUNT = GD_EW_CHAIN_AND_I32 + 4,
    GD_EW_CHAIN_BLOCK = 128, /* elements that the register holds */
};

typedef struct gd_ew_link {
    uint8_t handler;
    uint8_t slot;
    uint8_t is_row; /* the number is one of each row's */
} gd_ew_link;

/* Runs links up to an END over bytes [begin, end) of the slots, whole blocks of one row, whose
 * numbers lie at byte `row` of theirs; at half of these in slots of bf16. */
typedef void (*gd_ew_chain)(const gd_ew_link *links, char *const *slot, int64_t begin, int64_t end,
                            int64_t row);

/* The loops of one instruction set. */
typedef struct gd_ew_table {
    /* op[dtype][op]: a row over operands of this dtype (for `where`: of y and z); NULL where the
     * row does not accept it. The half dtypes have none but `where`: they are computed in f32. */
    const gd_ew_loop *op[GD_DTYPE_COUNT];
    const gd_ew_loop (*cast)[GD_DTYPE_COUNT]; /* cast[from][to]; NULL on the diagonal */
    gd_ew_block_copy copy[4];                 /* for elements of 1, 2, 4, 8 bytes */
    gd_ew_block_copy copy_streamed[4]; /* the same with non-temporal stores where those pay */
    gd_ew_stream stream;
    gd_ew_chain chain; /* NULL: none */
    gd_ew_adam_loop adam, adam_bf16;
    gd_random_fn words;
    /* reduce[op - GD_OP_sum][dtype]: sum, prod, max, min, for groups with reductions */
    const struct gd_reducer *const *reduce[4];
} gd_ew_table;

extern const gd_ew_table gd_ew_table_baseline, gd_ew_table_avx2, gd_ew_table_avx512,
    gd_ew_table_neon;

/* The table of a CPU device's instruction set. */
const gd_ew_table *gd_ew_table_of(const gd_device *device);

/* For a kernel that computes in f32: the loop that makes f32 of an operand in f16 or bf16, or such a result
 * (of == &call->out) of f32. NULL for other dtypes: nothing is to be converted. */
gd_ew_loop gd_ew_half_cast(const gd_kernel_call *call, const gd_operand *of);

/* Whether a result of this many bytes is better streamed: it will have left the caches before it is
 * read. */
bool gd_ew_is_streamed(size_t bytes);
/* Whether the result of a call is one of its inputs. */
bool gd_ew_is_in_place(const gd_kernel_call *call);
/* Bytes to stream at a time: longer pieces break the rhythm of the prefetchers (measured on Zen 4).
 */
#define GD_EW_STREAM_PIECE 1024
/* How far ahead loops fetch what they read in pieces, in bytes, by cache lines: while a piece is stored,
 * Zen 5 does not go on reading by itself. A ReLU beyond the caches goes at 58 GB/s instead of 34. */
#define GD_EW_AHEAD 4096
#define GD_EW_LINE  64

/* A prepared call: everything that follows from layouts and attribute alone, so that it is worked
 * out once where the same call runs again and again. It holds no pointers into the call. */
typedef struct gd_ew_program gd_ew_program;

/* Bytes a program needs, aligned to 8: the same for every call, and at most the constant. */
size_t gd_ew_prepare_bytes(void);
#define GD_EW_PROGRAM_BYTES 7168

/* Prepare `call`, of an elementwise row, cast, copy or fused, in `memory`. Data pointers and
 * call->prepared are not read. GD_ERR_UNSUPPORTED, recorded, for an op or dtype that has no loop.
 */
gd_status gd_ew_prepare(const gd_kernel_call *call, void *memory);

/* Scratch of a call that is prepared. */
gd_workspace gd_ew_scratch(const gd_kernel_call *call);

/* Whether gd_ew_prepare and gd_ew_run can do a group: with reductions, its rows may be too long for
 * the scratch of a thread. */
bool gd_ew_takes_group(const gd_kernel_call *call);

/* Run a prepared call on the data of `call`, whose layouts are those it was prepared with. */
void gd_ew_run(const gd_ew_program *program, const gd_kernel_call *call);

/* Prepared calls, one behind the other by `next`: see gd_backend. */
gd_status gd_ew_run_together(const gd_kernel_call *call);

/* The kernels. Each takes a program from call->prepared, or does without. */
gd_status gd_ew_kernel_row(const gd_kernel_call *call);
gd_status gd_ew_kernel_cast(const gd_kernel_call *call);
gd_status gd_ew_kernel_program(const gd_kernel_call *call); /* copy, fused, adam, adam_bf16 */

#endif
