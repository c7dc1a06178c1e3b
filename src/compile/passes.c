/* compile/passes.c: which passes run, in which order. */
#include "compile/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const struct {
    const char *name;
    gd_status (*run)(gd_ir *ir, gd_arena *scratch, int *changes);
} passes[GD_PASS_COUNT] = {
    { "simplify", gd_pass_simplify },             /* leave out what gives its operand back */
    { "cse", gd_pass_cse },                       /* merge equal ops */
    { "join_attention", gd_pass_join_attention }, /* gradients of attention side by side */
    { "dead", gd_pass_dead },                     /* remove what nobody reads */
    { "fold", gd_pass_fold }, /* find what never changes: computed once, when the plan is made */
    { "epilogue", gd_pass_epilogue },   /* matmul + bias + ReLU: one kernel */
    { "sink", gd_pass_sink },           /* assignments out of the way of groups */
    { "fuse", gd_pass_fuse },           /* elementwise groups: one kernel */
    { "recompute", gd_pass_recompute }, /* what a later group makes cheaply is not kept for it */
    { "forward", gd_pass_forward },     /* make an assigned value in its target */
    { "schedule", gd_pass_schedule },   /* updates as soon as their gradients are there */
    { "rematerialise", gd_pass_rematerialise }, /* compute again, to stay within .memory_limit */
    { "multi_tensor", gd_pass_multi_tensor },   /* updates of several tensors: one kernel */
};

static gd_status unknown_pass(const char *item, int length)
{
    char names[256] = "";
    gd_text text = { names, sizeof names, 0 };
    for (int i = 0; i < GD_PASS_COUNT; i++)
        gd_text_add(&text, " %s", passes[i].name);
    return gd_fail(GD_ERR_INVALID,
                   "GRADUS_PASSES: \"%.*s\" is not -PASS, +PASS, -all or +all; the passes are%s",
                   length, item, names);
}

/* What GRADUS_PASSES says: a list such as "-fuse,-cse" or "-all,+fuse", later items over earlier
 * ones. */
static gd_status read_switches(bool *is_off)
{
    const char *list = getenv("GRADUS_PASSES");
    while (list && *list) {
        const size_t skip = strspn(list, " ,"), length = strcspn(list + skip, " ,");
        const char *item = list + skip, *name = item + 1;
        bool found = length == 0;
        for (int i = 0; i < GD_PASS_COUNT && (*item == '-' || *item == '+'); i++) {
            const bool is_all = length == 4 && memcmp(name, "all", 3) == 0;
            if (is_all || (strlen(passes[i].name) == length - 1 &&
                           memcmp(passes[i].name, name, length - 1) == 0)) {
                is_off[i] = *item == '-';
                found = true;
            }
        }
        if (!found)
            return unknown_pass(item, (int)length);
        list = item + length;
    }
    return GD_OK;
}

gd_status gd_passes_run(gd_ir *ir, gd_pass_report *report)
{
    bool is_off[GD_PASS_COUNT] = { false };
    if (read_switches(is_off) != GD_OK || gd_ir_verify(ir, "tracing") != GD_OK)
        return gd_error_last();
    for (int i = 0; i < GD_PASS_COUNT; i++) {
        int changes = -1;
        if (!is_off[i]) {
            changes = 0;
            gd_arena scratch = { 0 };
            gd_status status = passes[i].run(ir, &scratch, &changes);
            gd_arena_close(&scratch);
            if (status != GD_OK)
                return status;
#ifdef GD_DEBUG_CHECKS
            if (gd_ir_verify(ir, passes[i].name) != GD_OK)
                return gd_error_last();
#endif
        }
        if (report) {
            report->name[i] = passes[i].name;
            report->changes[i] = changes;
        }
    }
    return GD_OK;
}
