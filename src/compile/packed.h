/* compile/packed.h: weights that a plan of a frozen function (gd_compile_options.frozen) keeps in the
 * order in which the device's kernels read them (`pack` in backend.h). They are packed at the first
 * run, and anew where their storage has another version than it had then. */
#ifndef GD_COMPILE_PACKED_H
#define GD_COMPILE_PACKED_H

#include "compile/ir.h"

typedef struct gd_packed_operand {
    const gd_kernel_call *call; /* a step's, whose operand 1 it is */
    gd_storage *memory;
    const gd_storage *source; /* whose version counts: of a working copy, the parameter's */
    uint32_t version;         /* of the source when it was packed */
    bool is_made;
} gd_packed_operand;

typedef struct gd_packed {
    gd_packed_operand *operands;
    size_t count, capacity;
} gd_packed;

/* The size in bytes of operand 1 of `call`, which computes value v, when packed. 0: it is not to be
 * packed. The function is not frozen, the operand is no captured tensor, the program assigns to it, or
 * packing does not pay. */
size_t gd_packed_wanted(const gd_ir *ir, const gd_ir_value *v, const gd_kernel_call *call);
/* Allocates that memory and sets call->packed to it. `call` is a step's. Packs nothing yet. */
gd_status gd_packed_take(gd_packed *packed, const gd_ir *ir, const gd_ir_value *v,
                         gd_kernel_call *call);
/* Packs operands that have not been packed, or have changed since. Allocates nothing. */
void gd_packed_refresh(gd_packed *packed);
size_t gd_packed_bytes(const gd_packed *packed);
void gd_packed_free(gd_packed *packed, gd_context *context);

#endif
