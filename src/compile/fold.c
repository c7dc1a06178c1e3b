/* compile/fold.c: constant folding. Marks what depends on nothing that changes between calls
 * (constants, sequences, and ops on them alone); the plan computes those once, when it is made,
 * with the same kernels, and keeps them.
 *
 * May not mark results, whose memory the caller may write to, nor anything over 1 MiB, which would
 * be memory held for good. What reads arguments, tensors from outside or the random stream is no
 * constant, whatever it holds. Removes and moves nothing. */
#include "compile/passes.h"

enum { MOST_BYTES = 1 << 20 };

gd_status gd_pass_fold(gd_ir *ir, gd_arena *scratch, int *changes)
{
    (void)scratch;
    for (size_t i = 0; i < ir->count; i++) {
        gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP || gd_ir_is_effect(v) || v->is_output ||
            gd_layout_bytes(&v->layout) > MOST_BYTES)
            continue;
        bool constant = true;
        for (int k = 0; k < v->n; k++)
            constant &= ir->values[v->in[k]].is_constant;
        v->is_constant = constant;
        *changes += constant && !gd_ir_is_view(v);
    }
    return GD_OK;
}
