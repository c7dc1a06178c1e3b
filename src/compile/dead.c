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
        if (v->kind != GD_IR_OP)
            continue;
        if (!live[i] && !gd_ir_is_effect(v)) {
            v->kind = GD_IR_DEAD;
            ++*changes;
            continue;
        }
        for (int k = 0; k < v->n; k++)
            live[v->in[k]] = true;
    }
    return GD_OK;
}
