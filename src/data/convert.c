/* data/convert.c: values as a data set has them to values as batches have them. A loader converts
 * every batch anew: reading a quarter of the memory that samples kept as f32 would take is quicker
 * than not converting. Start at gd_convert(). */
#include "data/convert.h"

#include "base/half.h"
#include "tensor/element.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAVE_X86_TARGETS 1
#endif

/* ---- to f32 ---- */

/* `wide` is the type it is computed in. */
#define CONVERT(name, type, wide)                                                                \
    static void convert_##name(const void *in, float *restrict out, int64_t count, double scale, \
                               double shift)                                                     \
    {                                                                                            \
        const type *restrict from = in;                                                          \
        const wide factor = (wide)scale, offset = (wide)shift;                                   \
        for (int64_t i = 0; i < count; i++)                                                      \
            out[i] = (float)((wide)from[i] * factor + offset);                                   \
    }

CONVERT(u8, uint8_t, float)
CONVERT(i8, int8_t, float)
CONVERT(u16, uint16_t, float)
CONVERT(i16, int16_t, float)
CONVERT(u32, uint32_t, double)
CONVERT(i32, int32_t, double)
CONVERT(u64, uint64_t, double)
CONVERT(i64, int64_t, double)
CONVERT(f64, double, double)
CONVERT(scaled_f32, float, float)

static void convert_f32(const void *in, float *restrict out, int64_t count, double scale,
                        double shift)
{
    if (scale == 1.0 && shift == 0.0)
        memcpy(out, in, (size_t)count * sizeof *out);
    else
        convert_scaled_f32(in, out, count, scale, shift);
}

static void convert_f16(const void *in, float *restrict out, int64_t count, double scale,
                        double shift)
{
    const uint16_t *restrict from = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = gd_f16_to_f32(from[i]) * (float)scale + (float)shift;
}

static void convert_bf16(const void *in, float *restrict out, int64_t count, double scale,
                         double shift)
{
    const uint16_t *restrict from = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = gd_bf16_to_f32(from[i]) * (float)scale + (float)shift;
}

#ifdef HAVE_X86_TARGETS
/* The same, 8 and 16 at a time. */
__attribute__((target("avx2"))) static void
convert_u8_avx2(const void *in, float *restrict out, int64_t count, double scale, double shift)
{
    const uint8_t *restrict from = in;
    const __m256 scales = _mm256_set1_ps((float)scale), shifts = _mm256_set1_ps((float)shift);
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(from + i));
        __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_mul_ps(values, scales), shifts));
    }
    convert_u8(from + i, out + i, count - i, scale, shift);
}

__attribute__((target("avx512f"))) static void
convert_u8_avx512(const void *in, float *restrict out, int64_t count, double scale, double shift)
{
    const uint8_t *restrict from = in;
    const __m512 scales = _mm512_set1_ps((float)scale), shifts = _mm512_set1_ps((float)shift);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
        _mm512_storeu_ps(out + i, _mm512_add_ps(_mm512_mul_ps(values, scales), shifts));
    }
    convert_u8(from + i, out + i, count - i, scale, shift);
}
#endif

static const gd_convert_fn plain[GD_DTYPE_COUNT] = {
    [GD_F32] = convert_f32, [GD_F64] = convert_f64,   [GD_I32] = convert_i32,
    [GD_I64] = convert_i64, [GD_U8] = convert_u8,     [GD_BOOL] = convert_u8,
    [GD_F16] = convert_f16, [GD_BF16] = convert_bf16, [GD_I8] = convert_i8,
    [GD_I16] = convert_i16, [GD_U16] = convert_u16,   [GD_U32] = convert_u32,
    [GD_U64] = convert_u64,
};

gd_convert_fn gd_convert_choose(gd_dtype dtype, const char *isa)
{
#ifdef HAVE_X86_TARGETS
    if (plain[dtype] == convert_u8 && strcmp(isa, "avx512") == 0)
        return convert_u8_avx512;
    if (plain[dtype] == convert_u8 && strcmp(isa, "avx2") == 0)
        return convert_u8_avx2;
#endif
    (void)isa;
    return plain[dtype];
}

/* ---- to any dtype ---- */

/* An integer or bool, in 64 bits that are those of an i64 or of a u64. */
static uint64_t load_integer(gd_dtype dtype, const char *at)
{
    union {
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
    } v;
    memcpy(&v, at, gd_dtype_size(dtype));
    switch (dtype) {
    case GD_I8:
        return (uint64_t)v.i8;
    case GD_I16:
        return (uint64_t)v.i16;
    case GD_I32:
        return (uint64_t)v.i32;
    case GD_U16:
        return v.u16;
    case GD_U32:
        return v.u32;
    case GD_U8:
    case GD_BOOL:
        return v.u8;
    default:
        return (uint64_t)v.i64;
    }
}

static void store_integer(size_t size, uint64_t value, char *at)
{
    const uint8_t u8 = (uint8_t)value;
    const uint16_t u16 = (uint16_t)value;
    const uint32_t u32 = (uint32_t)value;
    memcpy(at,
           size == 1   ? (const void *)&u8
           : size == 2 ? &u16
           : size == 4 ? &u32
                       : (const void *)&value,
           size);
}

static void to_integers(const gd_conversion *c, const char *in, char *out, int64_t count)
{
    const size_t from = gd_dtype_size(c->from), to = gd_dtype_size(c->to);
    for (int64_t i = 0; i < count; i++, in += from, out += to)
        store_integer(to, load_integer(c->from, in), out);
}

static void to_f64(const gd_conversion *c, const char *in, double *out, int64_t count)
{
    const size_t from = gd_dtype_size(c->from);
    for (int64_t i = 0; i < count; i++, in += from)
        out[i] = gd_element_as_double(c->from, in) * c->scale + c->shift;
}

/* By way of f32. */
static void to_half(const gd_conversion *c, const char *in, uint16_t *out, int64_t count)
{
    enum { AT_ONCE = 256 };
    float values[AT_ONCE];
    const size_t from = gd_dtype_size(c->from);
    for (int64_t done = 0, some; done < count; done += some) {
        some = count - done < AT_ONCE ? count - done : AT_ONCE;
        c->to_f32(in + (size_t)done * from, values, some, c->scale, c->shift);
        for (int64_t i = 0; i < some; i++)
            out[done + i] = c->to == GD_F16 ? gd_f32_to_f16(values[i]) : gd_f32_to_bf16(values[i]);
    }
}

bool gd_can_convert(gd_dtype from, gd_dtype to)
{
    if (from == to || gd_dtype_is_float(to))
        return true;
    return !gd_dtype_is_float(from) && gd_dtype_is_integer(to) && gd_dtype_promote(from, to) == to;
}

gd_conversion gd_conversion_choose(gd_dtype from, gd_dtype to, double scale, double shift,
                                   const char *isa)
{
    return (gd_conversion){ .from = from,
                            .to = to,
                            .scale = scale,
                            .shift = shift,
                            .copies = from == to && scale == 1 && shift == 0,
                            .to_f32 = gd_convert_choose(from, isa) };
}

void gd_convert(const gd_conversion *c, const void *in, void *out, int64_t count)
{
    if (c->copies)
        memcpy(out, in, (size_t)count * gd_dtype_size(c->to));
    else if (c->to == GD_F32)
        c->to_f32(in, out, count, c->scale, c->shift);
    else if (c->to == GD_F64)
        to_f64(c, in, out, count);
    else if (gd_dtype_is_float(c->to))
        to_half(c, in, out, count);
    else
        to_integers(c, in, out, count);
}

void gd_fill_values(gd_dtype dtype, double value, void *out, int64_t count)
{
    const gd_conversion c = { .from = GD_F64, .to = dtype, .scale = 1, .to_f32 = convert_f64 };
    const size_t size = gd_dtype_size(dtype);
    char one[8];
    if (gd_dtype_is_float(dtype))
        gd_convert(&c, &value, one, 1);
    else
        store_integer(size, (uint64_t)(int64_t)value, one);
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)out + (size_t)i * size, one, size);
}
