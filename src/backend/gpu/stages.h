/* backend/gpu/stages.h: the steps of a plan that is to be one kernel, and which of them run at the same
 * time. See one_kernel.c. */
#ifndef GD_BACKEND_GPU_STAGES_H
#define GD_BACKEND_GPU_STAGES_H

#include "backend/gpu/gpu.h"

enum { GD_PLAN_SHARED = -1 };

/* A step, and the call that it is of. */
typedef struct gd_plan_step {
    int32_t call;
    int32_t stage, last; /* from its stage on, and to this one's end at most */
    int32_t block;       /* the work-group whose it is; GD_PLAN_SHARED: all of them */
    double operations;
    gd_gpu_step step;
} gd_plan_step;

typedef struct gd_plan_steps {
    gd_plan_step *step;
    size_t count, capacity;
    int stages;
    bool *is_wide; /* of each stage: its steps are shared, or the first work-group's */
} gd_plan_steps;

/* Bytes that an operand of a step lies in, as the device has them now. */
typedef struct gd_plan_range {
    const void *block; /* where addresses are no numbers */
    uint64_t begin, end;
    bool is_written;
} gd_plan_range;

/* ranges [sum of all steps' places], a step's behind those of the one before. */
gd_status gd_gpu_plan_ranges(gd_gpu *gpu, const gd_kernel_call *const *calls,
                             const gd_plan_steps *steps, gd_plan_range *ranges);
/* The stages: a step is in a later one than those before it that it may not run beside. */
gd_status gd_gpu_plan_stages(const gd_gpu *gpu, const gd_kernel_call *const *calls,
                             gd_plan_steps *steps, const gd_plan_range *ranges);
/* Whether the same may be said with other addresses. */
bool gd_gpu_plan_stages_hold(const gd_plan_steps *steps, const gd_plan_range *ranges);

/* Cycles of a multiprocessor that a step takes with so many work-groups, by estimate. */
double gd_gpu_plan_cycles(const gd_gpu *gpu, const gd_kernel_call *call, const gd_plan_step *s,
                          int blocks);
/* Whether a step gains by all work-groups what they cost. */
bool gd_gpu_plan_is_large(const gd_gpu *gpu, const gd_kernel_call *call, const gd_plan_step *s);
/* The cycles of all steps, each a stage. */
double gd_gpu_plan_cycles_of_all(const gd_gpu *gpu, const gd_kernel_call *const *calls,
                                 const gd_plan_steps *steps);

#endif
