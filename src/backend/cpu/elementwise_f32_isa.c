/* backend/cpu/elementwise_f32_isa.c: the rows of ops/elementwise.def over f32, for one instruction
 * set. Start at elementwise_loops.h. */
#include "backend/cpu/elementwise_program.h"
#include "backend/cpu/isa.h"
#include "base/half.h"

#define GD_T        float
#define GD_T_SUFFIX f32
#define GD_T_FLOAT  1
#include "backend/cpu/elementwise_loops.h"

/* ---- the step of Adam ---- */

typedef struct adam_numbers {
    float step_size, epsilon, rest1, beta2, rest2, decay;
} adam_numbers;

static adam_numbers read_numbers(const void *const *from)
{
    const float *const *number = (const float *const *)from;
    return (adam_numbers){ *number[GD_ADAM_STEP_SIZE], *number[GD_ADAM_EPSILON],
                           *number[GD_ADAM_REST1],     *number[GD_ADAM_BETA2],
                           *number[GD_ADAM_REST2],     *number[GD_ADAM_DECAY] };
}

GD_T_INLINE float moved_first(const adam_numbers *a, float m, float g)
{
    return flush_f32(m + (g - m) * a->rest1);
}

GD_T_INLINE float moved_second(const adam_numbers *a, float v, float g)
{
    return flush_f32(v * a->beta2 + g * a->rest2 * g);
}

GD_T_INLINE float moved_parameter(const adam_numbers *a, float p, float first, float second)
{
    return p * a->decay - first * a->step_size / (__builtin_sqrtf(second) + a->epsilon);
}

void GD_ISA_NAME(gd_ew_adam_f32)(const void *const *from, void *const *to, int64_t n);
void GD_ISA_NAME(gd_ew_adam_f32)(const void *const *from, void *const *to, int64_t n)
{
    const float *p = from[GD_ADAM_P], *g = from[GD_ADAM_G], *m = from[GD_ADAM_M],
                *v = from[GD_ADAM_V];
    const adam_numbers a = read_numbers(from);
    float *new_p = to[GD_ADAM_NEXT_P], *new_m = to[GD_ADAM_NEXT_M], *new_v = to[GD_ADAM_NEXT_V];
    GD_EW_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float first = moved_first(&a, m[i], g[i]), second = moved_second(&a, v[i], g[i]);
        new_p[i] = moved_parameter(&a, p[i], first, second);
        new_m[i] = first;
        new_v[i] = second;
    }
}

/* New parameters may be made in the memory of the words, which the type tells the compiler. */
typedef uint32_t __attribute__((may_alias)) word;

/* x in bf16, rounded by 16 bits. A NaN that was computed is quiet, and stays one in its upper half. */
GD_T_INLINE uint16_t rounded_bf16(float x, uint32_t noise)
{
    return (uint16_t)(gd_bits_f32(gd_round_bf16_by_f32(x, noise)) >> 16);
}

void GD_ISA_NAME(gd_ew_adam_bf16)(const void *const *from, void *const *to, int64_t n);
void GD_ISA_NAME(gd_ew_adam_bf16)(const void *const *from, void *const *to, int64_t n)
{
    const float *p = from[GD_ADAM_P], *g = from[GD_ADAM_G];
    const uint16_t *m = from[GD_ADAM_M], *v = from[GD_ADAM_V];
    const word *words = from[GD_ADAM_WORDS];
    const adam_numbers a = read_numbers(from);
    float *new_p = to[GD_ADAM_NEXT_P];
    uint16_t *new_m = to[GD_ADAM_NEXT_M], *new_v = to[GD_ADAM_NEXT_V];
    GD_EW_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float first = moved_first(&a, gd_bf16_to_f32(m[i]), g[i]);
        const float second = moved_second(&a, gd_bf16_to_f32(v[i]), g[i]);
        const uint32_t bits = words[i];
        new_p[i] = moved_parameter(&a, p[i], first, second);
        new_m[i] = rounded_bf16(first, bits & 0xffff);
        new_v[i] = rounded_bf16(second, bits >> 16 ^ 0x8000);
    }
}
