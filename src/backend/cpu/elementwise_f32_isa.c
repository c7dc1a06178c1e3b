/* backend/cpu/elementwise_f32_isa.c: the rows of ops/elementwise.def over f32, for one instruction
 * set. Start at elementwise_loops.h. */
#include "backend/cpu/elementwise_program.h"
#include "backend/cpu/isa.h"

#define GD_T        float
#define GD_T_SUFFIX f32
#define GD_T_FLOAT  1
#include "backend/cpu/elementwise_loops.h"

#if !defined(GD_ISA_AVX512_BUILD) /* division is no faster there: AVX2's is taken */
void GD_ISA_NAME(gd_ew_adam_f32)(const float *const *from, float *const *to, int64_t n);
void GD_ISA_NAME(gd_ew_adam_f32)(const float *const *from, float *const *to, int64_t n)
{
    const float *p = from[GD_EW_ADAM_P], *g = from[GD_EW_ADAM_G], *m = from[GD_EW_ADAM_M],
                *v = from[GD_EW_ADAM_V];
    const float size = *from[GD_EW_ADAM_SIZE], spread = *from[GD_EW_ADAM_SPREAD],
                pull = *from[GD_EW_ADAM_PULL], beta2 = *from[GD_EW_ADAM_BETA2],
                rest2 = *from[GD_EW_ADAM_REST2], keep = *from[GD_EW_ADAM_KEEP];
    float *new_p = to[0], *new_m = to[1], *new_v = to[2];
    GD_EW_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float moment = m[i] + (g[i] - m[i]) * pull;
        const float speed = v[i] * beta2 + g[i] * rest2 * g[i];
        new_p[i] = p[i] * keep - moment * size / (__builtin_sqrtf(speed) + spread);
        new_m[i] = moment;
        new_v[i] = speed;
    }
}
#endif
