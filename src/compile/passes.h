/* compile/passes.h: the passes, in the order they run. Each may be switched off by name. */
#ifndef GD_COMPILE_PASSES_H
#define GD_COMPILE_PASSES_H

#include "compile/ir.h"

/* Which passes a list such as "-fuse,-cse" or "-all,+fuse" switches off, later items over earlier
 * ones; NULL: that of the environment variable GRADUS_PASSES. GD_ERR_INVALID: a name that is none. */
gd_status gd_passes_read(const char *list, uint32_t *passes_off);

/* Run all that are on. `report` says what each did, for gd_plan_format; it may be NULL. */
#define GD_PASS_COUNT 18
typedef struct gd_pass_report {
    const char *name[GD_PASS_COUNT];
    int changes[GD_PASS_COUNT]; /* values removed, merged or rewritten; -1: switched off */
} gd_pass_report;
gd_status gd_passes_run(gd_ir *ir, gd_pass_report *report);

/* Whether the device has a kernel for op on these values: asked before a pass writes an op that was
 * not in the program. extra: layouts of a fused group's extra results, NULL when there are none.
 * compile/passes.c. */
bool gd_ir_device_takes(const gd_ir *ir, const gd_op *op, const void *attr, int n,
                        const int32_t *in, const gd_layout *out, const gd_layout *const *extra);

/* One pass: GD_OK, with what it changed counted in *changes. Its arrays are of `scratch`, which is
 * emptied when it has run. */
gd_status gd_pass_simplify(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_cse(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_join_attention(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_dead(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_transpose(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_move_casts(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_fold(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_working_copies(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_epilogue(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_sink(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_halves(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_fuse(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_recompute(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_forward(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_schedule(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_rematerialise(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_words(gd_ir *ir, gd_arena *scratch, int *changes);
gd_status gd_pass_multi_tensor(gd_ir *ir, gd_arena *scratch, int *changes);

#endif
