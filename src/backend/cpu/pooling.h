/* backend/cpu/pooling.h: what pooling.c shares with pooling_isa.c. */
#ifndef GD_BACKEND_CPU_POOLING_H
#define GD_BACKEND_CPU_POOLING_H

#include "backend/cpu/cpu.h"
#include "base/threads.h"
#include "ops/spatial.h"

typedef struct gd_pool_job {
    gd_pool_sizes s;
    const void *in; /* [planes, in_plane], or what has the windows' side in the mean's gradient */
    const void *g;  /* [planes, out_plane], the gradient of a maximum */
    void *out;
} gd_pool_job;

/* max_pool and its gradient; `squares_f32`: the loop over planes for windows of two by two that
 * touch each other, of one instruction set. */
gd_status gd_max_pool_run(const gd_kernel_call *call, gd_range_fn squares_f32);
gd_status gd_max_pool_grad_run(const gd_kernel_call *call, gd_range_fn squares_f32);

/* Planes of f16 and bf16, which become f32 in scratch, some at a time. */
bool gd_pool_takes_halves(const gd_kernel_call *call);
gd_workspace gd_pool_scratch(const gd_kernel_call *call);

#endif
