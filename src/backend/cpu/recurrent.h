/* backend/cpu/recurrent.h: recurrent networks on the CPU: the walk over steps is in recurrent.c,
 * what happens in a cell in recurrent_cells.h. */
#ifndef GD_BACKEND_CPU_RECURRENT_H
#define GD_BACKEND_CPU_RECURRENT_H

#include "backend/cpu/cpu.h"

#include <gradus/ops.h>

typedef struct gd_recurrent_loops {
    void (*forward)(int cell, int64_t w, const void *z, const void *b, const void *a, void *h,
                    void *c, void *gates);
    void (*backward)(int cell, int64_t w, const void *gates, const void *h, const void *before,
                     const void *c, const void *c_before, void *dh, void *dc, void *dz, void *da);
    /* count numbers to bf16 */
    void (*round)(uint16_t *to, const float *from, int64_t count);
} gd_recurrent_loops;

/* f32 and f64; a weight of bf16 where instructions multiply it, and sequences enough. */
bool gd_recurrent_takes(const gd_kernel_call *call);

gd_workspace gd_recurrent_scratch(const gd_kernel_call *call);
void gd_recurrent_explain(const gd_kernel_call *call, gd_text *text);
/* loops: of the result's dtype. */
gd_status gd_recurrent_run(const gd_kernel_call *call, const gd_recurrent_loops *loops);
gd_status gd_recurrent_grad_run(const gd_kernel_call *call, const gd_recurrent_loops *loops);

#endif
