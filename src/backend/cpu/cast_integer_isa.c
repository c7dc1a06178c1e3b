/* backend/cpu/cast_integer_isa.c: the conversions of cast_isa.c from and to i8, i16, u16, u32 and
 * u64. */
#include "backend/cpu/cast.h"
#include "backend/cpu/isa.h"

GD_CAST_FLOAT_TO_INTEGER(f32, float, i8, int8_t, -0x1p7f, 0x1p7f, INT8_MIN, INT8_MAX)
GD_CAST_FLOAT_TO_INTEGER(f32, float, i16, int16_t, -0x1p15f, 0x1p15f, INT16_MIN, INT16_MAX)
GD_CAST_FLOAT_TO_INTEGER(f32, float, u16, uint16_t, 0.0f, 0x1p16f, 0, UINT16_MAX)
GD_CAST_FLOAT_TO_INTEGER(f32, float, u32, uint32_t, 0.0f, 0x1p32f, 0, UINT32_MAX)
GD_CAST_FLOAT_TO_INTEGER(f32, float, u64, uint64_t, 0.0f, 0x1p64f, 0, UINT64_MAX)
GD_CAST_FLOAT_TO_INTEGER(f64, double, i8, int8_t, -0x1p7, 0x1p7, INT8_MIN, INT8_MAX)
GD_CAST_FLOAT_TO_INTEGER(f64, double, i16, int16_t, -0x1p15, 0x1p15, INT16_MIN, INT16_MAX)
GD_CAST_FLOAT_TO_INTEGER(f64, double, u16, uint16_t, 0.0, 0x1p16, 0, UINT16_MAX)
GD_CAST_FLOAT_TO_INTEGER(f64, double, u32, uint32_t, 0.0, 0x1p32, 0, UINT32_MAX)
GD_CAST_FLOAT_TO_INTEGER(f64, double, u64, uint64_t, 0.0, 0x1p64, 0, UINT64_MAX)

#define LOOP(from, F, to, T, formula)                                                       \
    void GD_ISA_NAME(gd_cast_##from##_##to)(const void *px, const void *py, const void *pz, \
                                            void *po, int64_t n)                            \
    {                                                                                       \
        (void)py, (void)pz;                                                                 \
        GD_CAST_INDEPENDENT                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                   \
            const F x = ((const F *)px)[i];                                                 \
            ((T *)po)[i] = (T)(formula);                                                    \
        }                                                                                   \
    }

/* ---- to them: modulo 2^bits, or saturating ---- */

#define TO_REST(from, F, convert)                    \
    LOOP(from, F, i8, int8_t, convert(from, i8))     \
    LOOP(from, F, i16, int16_t, convert(from, i16))  \
    LOOP(from, F, u16, uint16_t, convert(from, u16)) \
    LOOP(from, F, u32, uint32_t, convert(from, u32)) \
    LOOP(from, F, u64, uint64_t, convert(from, u64))
#define MODULO(from, to)   x
#define SATURATE(from, to) from##_to_##to(x)
#define OF_HALF(from, to)  f32_to_##to(gd_##from##_to_f32(x))
TO_REST(f32, float, SATURATE)
TO_REST(f64, double, SATURATE)
TO_REST(f16, uint16_t, OF_HALF)
TO_REST(bf16, uint16_t, OF_HALF)
TO_REST(i32, int32_t, MODULO)
TO_REST(i64, int64_t, MODULO)
TO_REST(u8, uint8_t, MODULO)

/* ---- from them ---- */

#define FROM_REST(from, F, as_bf16)                       \
    TO_REST(from, F, MODULO)                              \
    LOOP(from, F, i32, int32_t, x)                        \
    LOOP(from, F, i64, int64_t, x)                        \
    LOOP(from, F, u8, uint8_t, x)                         \
    LOOP(from, F, bool, uint8_t, x != 0)                  \
    LOOP(from, F, f32, float, x)                          \
    LOOP(from, F, f64, double, x)                         \
    LOOP(from, F, f16, uint16_t, gd_f32_to_f16((float)x)) \
    LOOP(from, F, bf16, uint16_t, as_bf16)
FROM_REST(i8, int8_t, gd_f32_to_bf16(x))
FROM_REST(i16, int16_t, gd_f32_to_bf16(x))
FROM_REST(u16, uint16_t, gd_f32_to_bf16(x))
FROM_REST(u32, uint32_t, f64_to_bf16(x))
FROM_REST(u64, uint64_t, u64_to_bf16(x))
