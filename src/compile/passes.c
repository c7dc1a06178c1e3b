/* compile/passes.c: which passes run, in which order. */
#include "compile/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static const struct {
    const char *name;
    gd_status (*run)(gd_ir *ir, gd_arena *scratch, int *changes);
} passes[GD_PASS_COUNT] = {
    { "simplify", gd_pass_simplify },             /* leave out what gives its operand back */
    { "cse", gd_pass_cse },                       /* merge equal ops */
    { "join_attention", gd_pass_join_attention }, /* gradients of attention side by side */
    { "dead", gd_pass_dead },                     /* remove what nobody reads */
    { "transpose", gd_pass_transpose },           /* products that are read transposed */
    { "move_casts", gd_pass_move_casts },         /* behind views, into groups and copies */
    { "fold", gd_pass_fold }, /* find what never changes: computed once, when the plan is made */
    { "working_copies", gd_pass_working_copies }, /* 16 bits of parameters, made by the update */
    { "epilogue", gd_pass_epilogue },             /* matmul + bias + ReLU: one kernel */
    { "sink", gd_pass_sink },                     /* assignments out of the way of groups */
    { "halves", gd_pass_halves },                 /* read and written as they are, not cast */
    { "fuse", gd_pass_fuse },                     /* elementwise groups: one kernel */
    { "recompute", gd_pass_recompute }, /* what a later group makes cheaply is not kept for it */
    { "forward", gd_pass_forward },     /* make an assigned value in its target */
    { "schedule", gd_pass_schedule },   /* updates as soon as their gradients are there */
    { "rematerialise", gd_pass_rematerialise }, /* compute again, to stay within .memory_limit */
    { "words", gd_pass_words },                 /* drawn by the group that reads them */
    { "multi_tensor", gd_pass_multi_tensor },   /* updates of several tensors: one kernel */
};

static gd_status unknown_pass(const char *item, size_t length)
{
    char names[256] = "";
    gd_text text = { names, sizeof names, 0 };
    for (int i = 0; i < GD_PASS_COUNT; i++)
        gd_text_add(&text, " %s", passes[i].name);
    return gd_fail(GD_ERR_INVALID,
                   "gd_compile: \"%.*s\" in .passes or GRADUS_PASSES is not -PASS, +PASS, -all or "
                   "+all; the passes are%s",
                   (int)length, item, names);
}

/* The passes that a name stands for, as bits; 0: none. */
static uint32_t passes_named(const char *name, size_t length)
{
    if (length == 3 && memcmp(name, "all", 3) == 0)
        return (1u << GD_PASS_COUNT) - 1;
    for (int i = 0; i < GD_PASS_COUNT; i++)
        if (strlen(passes[i].name) == length && memcmp(passes[i].name, name, length) == 0)
            return 1u << i;
    return 0;
}

gd_status gd_passes_read(const char *list, uint32_t *passes_off)
{
    *passes_off = 0;
    list = list ? list : getenv("GRADUS_PASSES");
    while (list && *list) {
        const size_t skip = strspn(list, " ,"), length = strcspn(list + skip, " ,");
        const char *item = list + skip;
        const bool is_off = *item == '-';
        const uint32_t named = is_off || *item == '+' ? passes_named(item + 1, length - 1) : 0;
        if (length > 0 && named == 0)
            return unknown_pass(item, length);
        *passes_off = is_off ? *passes_off | named : *passes_off & ~named;
        list = item + length;
    }
    return GD_OK;
}

gd_status gd_passes_run(gd_ir *ir, gd_pass_report *report)
{
    if (gd_ir_verify(ir, "tracing") != GD_OK)
        return gd_error_last();
    for (int i = 0; i < GD_PASS_COUNT; i++) {
        int changes = -1;
        if (!(ir->options.passes_off >> i & 1)) {
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

/* ---- asking the device ---- */

bool gd_ir_device_takes(const gd_ir *ir, const gd_op *op, const void *attr, int n,
                        const int32_t *in, const gd_layout *out, const gd_layout *const *extra)
{
    gd_device *device = ir->context->device;
    if (!device->kernel[op->id] || (!device->takes[op->id] && !op->halves))
        return device->kernel[op->id];
    gd_operand operands[GD_OP_MAX_INPUTS], results[GD_FUSED_MAX_EXTRA];
    for (int i = 0; i < n; i++)
        operands[i] = (gd_operand){ NULL, &ir->values[in[i]].layout };
    const int n_extra = extra ? ((const gd_fused_attr *)attr)->n_extra : 0;
    for (int i = 0; i < n_extra; i++)
        results[i] = (gd_operand){ NULL, extra[i] };
    const gd_kernel_call call = { .device = device,
                                  .op = op,
                                  .attr = attr,
                                  .n = n,
                                  .in = operands,
                                  .out = { NULL, out },
                                  .extra = n_extra ? results : NULL };
    return gd_device_takes(&call);
}
