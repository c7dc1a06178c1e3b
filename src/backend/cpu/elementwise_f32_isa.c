/* backend/cpu/elementwise_f32_isa.c: the rows of ops/elementwise.def over f32, for one instruction
 * set. Start at elementwise_loops.h. */
#include "backend/cpu/elementwise_program.h"
#include "backend/cpu/isa.h"

#define GD_T        float
#define GD_T_SUFFIX f32
#define GD_T_FLOAT  1
#include "backend/cpu/elementwise_loops.h"

void GD_ISA_NAME(gd_ew_adam_f32)(const float *const *from, float *const *to, int64_t n);
void GD_ISA_NAME(gd_ew_adam_f32)(const float *const *from, float *const *to, int64_t n)
{
    const float *p = from[GD_ADAM_P], *g = from[GD_ADAM_G], *m = from[GD_ADAM_M],
                *v = from[GD_ADAM_V];
    const float step_size = *from[GD_ADAM_STEP_SIZE], epsilon = *from[GD_ADAM_EPSILON],
                rest1 = *from[GD_ADAM_REST1], beta2 = *from[GD_ADAM_BETA2],
                rest2 = *from[GD_ADAM_REST2], decay = *from[GD_ADAM_DECAY];
    float *new_p = to[GD_ADAM_NEXT_P], *new_m = to[GD_ADAM_NEXT_M], *new_v = to[GD_ADAM_NEXT_V];
    GD_EW_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float first = flush_f32(m[i] + (g[i] - m[i]) * rest1);
        const float second = flush_f32(v[i] * beta2 + g[i] * rest2 * g[i]);
        new_p[i] = p[i] * decay - first * step_size / (__builtin_sqrtf(second) + epsilon);
        new_m[i] = first;
        new_v[i] = second;
    }
}
