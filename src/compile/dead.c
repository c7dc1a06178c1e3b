/* compile/dead.c: dead-code elimination. Removes every op that no output and no effect depends on.
 * May not remove effects, nor change what is left. Drawing from the random stream is counted at
 * tracing, so removing an unused draw does not move the others. */
#include "compile/passes.h"

gd_status gd_pass_dead(gd_ir *ir, gd_arena *scratch, int *changes)
{
    bool *live = gd_arena_array(scratch, ir->count + 1, sizeof *live);
    if (!live)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < ir->output_count; i++)
        live[ir->outputs[i]] = true;
    for (size_t i = ir->count; i-- > 0;) {
        gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP || gd_ir_is_extra(v))
            continue;
        const int extra = gd_ir_extra_count(v); /* which live and die with the op */
        for (int e = 1; e <= extra; e++)
            live[i] |= live[i + (size_t)e];
        if (!live[i] && !gd_ir_is_effect(v)) {
            for (int e = 0; e <= extra; e++)
                ir->values[i + (size_t)e].kind = GD_IR_DEAD;
            *changes += 1 + extra;
            continue;
        }
        for (int k = 0; k < v->n; k++)
            live[v->in[k]] = true;
    }
    return GD_OK;
}
