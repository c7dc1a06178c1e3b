/* data/convert.c: samples as they lie in memory to f32. One loop, compiled for several instruction
 * sets: a loader converts every batch anew, which reads a quarter of the memory that samples kept
 * as f32 would take. */
#include "data/dataset.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86_TARGETS 1
#endif

static inline __attribute__((always_inline)) void
convert_u8(const void *in, float *out, int64_t count, float scale, float shift)
{
    const uint8_t *from = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)from[i] * scale + shift;
}

static void convert_u8_baseline(const void *in, float *out, int64_t count, float scale, float shift)
{
    convert_u8(in, out, count, scale, shift);
}

#ifdef HAVE_X86_TARGETS
/* Without FMA in the target, and with -ffp-contract=off, it rounds as the other does. */
__attribute__((target("avx2"))) static void convert_u8_avx2(const void *in, float *out,
                                                            int64_t count, float scale, float shift)
{
    convert_u8(in, out, count, scale, shift);
}
#endif

static void convert_f32(const void *in, float *out, int64_t count, float scale, float shift)
{
    const float *from = in;
    if (scale == 1.0f && shift == 0.0f) {
        memcpy(out, in, (size_t)count * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = from[i] * scale + shift;
}

gd_convert_fn gd_convert_choose(gd_dtype dtype, const char *isa)
{
    if (dtype == GD_F32)
        return convert_f32;
#ifdef HAVE_X86_TARGETS
    if (strcmp(isa, "avx512") == 0 || strcmp(isa, "avx2") == 0)
        return convert_u8_avx2;
#endif
    (void)isa;
    return convert_u8_baseline;
}
