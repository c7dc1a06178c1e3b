/* compile/plan.h: a program ready to run: kernel calls with every address known, over one block of
 * memory. */
#ifndef GD_COMPILE_PLAN_H
#define GD_COMPILE_PLAN_H

#include <gradus/compile.h>

#include <stdio.h>

#include "base/poison.h"
#include "base/text.h"
#include "compile/ir.h"
#include "compile/memory.h"
#include "compile/packed.h"
#include "compile/passes.h"

typedef struct gd_step {
    gd_kernel_fn run;
    gd_kernel_call call;
    gd_operand *in, *extra; /* the call's, to be moved with the block */
    int32_t value;          /* of the IR */
    int32_t together;       /* so many steps from here on are run as one kernel, by this one */
} gd_step;

/* What a kernel leaves in its scratch is nobody's. */
static inline gd_status gd_step_run(const gd_step *step)
{
    const gd_status status = step->run(&step->call);
    const gd_kernel_scratch *s = &step->call.scratch;
    if (s->memory)
        gd_unpoison(s->memory, s->bytes * (size_t)s->areas);
    return status;
}

/* An address that depends on an argument: set before every run. */
typedef struct gd_patch {
    gd_operand *operand;
    int32_t input;
    int64_t bytes; /* from the argument's element 0 */
} gd_patch;

typedef struct gd_plan {
    gd_ir ir; /* layouts, attributes and operands live here; it also holds on to the external
                 tensors */
    gd_memory_plan memory;
    gd_storage *block;
    struct gd_call_gradient
        *gradient; /* blocks hold on to it, as long as they live; NULL: to nothing */
    gd_step *steps;
    size_t n_steps, n_kernels;
    const gd_kernel_call *
        *calls;        /* of the steps, for a device that runs them all at once; else NULL */
    gd_replay *replay; /* the device's */
    gd_packed packed;  /* operands of steps */
    gd_patch *patches;
    size_t n_patches, patch_capacity;
    gd_storage *kept; /* of arguments that are results of the call before; NULL: there were none */
    gd_storage **written; /* external storage the effects change */
    size_t n_written;
    gd_tensor **results; /* [ir.output_count] over the block; those that others reference keep
                            their contents when the plan runs again, and are replaced here */
    gd_pass_report report;
    bool is_small; /* it runs on one thread */
    int nodes_traced;
    double compile_seconds;
} gd_plan;

/* Between the two the device has as many threads as the plan takes. `before` is what the first
 * returns. */
static inline int gd_plan_take_threads(const gd_plan *plan)
{
    const int before = plan->ir.context->device->threads;
    if (plan->is_small)
        plan->ir.context->device->threads = 1;
    return before;
}
static inline void gd_plan_give_threads(const gd_plan *plan, int before)
{
    plan->ir.context->device->threads = before;
}

/* Takes over `ir` (also on failure). NULL on failure. */
gd_plan *gd_plan_make(gd_ir *ir, struct gd_call_gradient *gradient);
void gd_plan_free(gd_plan *plan);

/* The order of an argument's reads and of writes to it is not looked at: an argument that the plan
 * assigns to is refused. */
gd_status gd_plan_check_arguments(const gd_plan *plan, int count, gd_tensor *const *inputs);
/* gd_plan_begin sets addresses, then the steps run in order, then gd_plan_end takes note of what
 * they changed. */
gd_status gd_plan_begin(gd_plan *plan, gd_tensor *const *inputs);
void gd_plan_end(gd_plan *plan);
gd_status gd_plan_run(gd_plan *plan, gd_tensor *const *inputs);
/* The same, with the seconds that the kernels of each phase take added to seconds[GD_PHASES]: the clock is
 * read where the phase changes, and a device waited for there. */
gd_status gd_plan_run_timed(gd_plan *plan, gd_tensor *const *inputs, double *seconds);
/* The same on arguments given by the address of element 0. */
gd_status gd_plan_run_at(gd_plan *plan, void *const *arguments);

/* compile/show.c */
/* explained: with how kernels are computed, where there are several ways. */
void gd_plan_add_text(const gd_plan *plan, bool explained, gd_text *text);
void gd_plan_add_dot(const gd_plan *plan, gd_text *text);
/* compile/draw.c: bars are of rows' seconds, or, where rows is NULL, of the bytes moved. GD_ERR_MEMORY. */
gd_status gd_plan_add_svg(const gd_plan *plan, int count, const gd_kernel_profile *rows,
                          gd_text *text);
/* compile/profile.c: run `runs` times with every kernel timed; fills the first `capacity` rows. */
gd_status gd_plan_profile(gd_plan *plan, gd_tensor *const *inputs, int runs,
                          gd_kernel_profile *rows, size_t capacity);
/* compile/export.c */
gd_status gd_plan_export(const gd_plan *plan, const char *name, FILE *file);
/* All of a kernel's description but the times. */
void gd_plan_describe(const gd_plan *plan, const gd_step *kernel, gd_kernel_profile *out);

#endif
