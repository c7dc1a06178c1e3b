/* compile/passes.c: which passes run, in which order. */
#include "compile/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const struct {
    const char *name;
    gd_status (*run)(gd_ir *ir, int *changes);
} passes[GD_PASS_COUNT] = {
    { "simplify", gd_pass_simplify }, /* leave out what gives its operand back */
    { "cse", gd_pass_cse },           /* merge equal ops */
    { "layout", gd_pass_layout },     /* where a value lies as its readers want it */
    { "dead", gd_pass_dead },         /* remove what nobody reads */
    { "fold", gd_pass_fold }, /* find what never changes: computed once, when the plan is made */
    { "epilogue", gd_pass_epilogue },   /* matmul + bias + ReLU: one kernel */
    { "sink", gd_pass_sink },           /* assignments out of the way of groups */
    { "fuse", gd_pass_fuse },           /* elementwise groups: one kernel */
    { "recompute", gd_pass_recompute }, /* what a later group makes cheaply is not kept for it */
    { "forward", gd_pass_forward },     /* make an assigned value in its target */
    { "schedule", gd_pass_schedule },   /* updates as soon as their gradients are there */
    { "rematerialise", gd_pass_rematerialise }, /* compute again, to stay within .memory_limit */
};

/* Whether GRADUS_PASSES, a list such as "-fuse,-cse", switches `name` off. */
static bool is_off(const char *name)
{
    const char *list = getenv("GRADUS_PASSES");
    size_t length = strlen(name);
    while (list && *list) {
        const char *end = strchr(list, ',');
        size_t item = end ? (size_t)(end - list) : strlen(list);
        if (item == length + 1 && list[0] == '-' && memcmp(list + 1, name, length) == 0)
            return true;
        list = end ? end + 1 : NULL;
    }
    return false;
}

gd_status gd_passes_run(gd_ir *ir, gd_pass_report *report)
{
    if (gd_ir_verify(ir, "tracing") != GD_OK)
        return gd_error_code();
    for (int i = 0; i < GD_PASS_COUNT; i++) {
        int changes = -1;
        if (!is_off(passes[i].name)) {
            changes = 0;
            gd_status status = passes[i].run(ir, &changes);
            if (status != GD_OK)
                return status;
#ifdef GD_DEBUG_CHECKS
            if (gd_ir_verify(ir, passes[i].name) != GD_OK)
                return gd_error_code();
#endif
        }
        if (report) {
            report->name[i] = passes[i].name;
            report->changes[i] = changes;
        }
    }
    return GD_OK;
}
