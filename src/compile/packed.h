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
    uint32_t version;         /* that it was packed of */
    bool is_made;
} gd_packed_operand;

typedef struct gd_packed {
    gd_packed_operand *operands;
    size_t count, capacity;
} gd_packed;

/* Bytes of operand 1 of `call`, of value v, packed once; 0: it is read where it lies, as the function
 * is not frozen, it is no tensor outside, the program assigns to it, or packing does not pay. */
size_t gd_packed_wanted(const gd_ir *ir, const gd_ir_value *v, const gd_kernel_call *call);
/* Memory for it, which is call->packed then; of a step. */
gd_status gd_packed_take(gd_packed *packed, const gd_ir *ir, const gd_ir_value *v,
                         gd_kernel_call *call);
/* Pack what is not as its tensor is now. Allocates nothing. */
void gd_packed_refresh(gd_packed *packed);
size_t gd_packed_bytes(const gd_packed *packed);
void gd_packed_free(gd_packed *packed, gd_context *context);

#endif
