/* data/convert.c: samples as they lie in memory to f32. A loader converts every batch anew: reading
 * a quarter of the memory that samples kept as f32 would take is quicker than not converting. */
#include "data/dataset.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAVE_X86_TARGETS 1
#endif

static void convert_u8(const void *in, float *restrict out, int64_t count, float scale, float shift)
{
    const uint8_t *restrict from = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)from[i] * scale + shift;
}

#ifdef HAVE_X86_TARGETS
/* The same, 8 and 16 at a time. */
__attribute__((target("avx2"))) static void convert_u8_avx2(const void *in, float *restrict out,
                                                            int64_t count, float scale, float shift)
{
    const uint8_t *restrict from = in;
    const __m256 scales = _mm256_set1_ps(scale), shifts = _mm256_set1_ps(shift);
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(from + i));
        __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_mul_ps(values, scales), shifts));
    }
    convert_u8(from + i, out + i, count - i, scale, shift);
}

__attribute__((target("avx512f"))) static void
convert_u8_avx512(const void *in, float *restrict out, int64_t count, float scale, float shift)
{
    const uint8_t *restrict from = in;
    const __m512 scales = _mm512_set1_ps(scale), shifts = _mm512_set1_ps(shift);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
        _mm512_storeu_ps(out + i, _mm512_add_ps(_mm512_mul_ps(values, scales), shifts));
    }
    convert_u8(from + i, out + i, count - i, scale, shift);
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
    if (strcmp(isa, "avx512") == 0)
        return convert_u8_avx512;
    if (strcmp(isa, "avx2") == 0)
        return convert_u8_avx2;
#endif
    (void)isa;
    return convert_u8;
}
