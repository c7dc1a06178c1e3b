/* backend/cpu/cast_isa.c: contiguous loops that convert one dtype to another, all pairs, for one
 * instruction set.
 *
 *   float to integer   toward zero; out of range goes to the nearest end of the range, NaN to 0
 *   integer to integer modulo 2^bits
 *   anything to bool   x != 0
 *   to float           rounded once, to nearest, ties to even, whatever lies between
 *
 * The loops from and to i8, i16, u16, u32 and u64 are in cast_integer_isa.c. Start at the table at the
 * end. */
#include "backend/cpu/cast.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/simd_half.h"

GD_CAST_FLOAT_TO_INTEGER(f32, float, i32, int32_t, -0x1p31f, 0x1p31f, INT32_MIN, INT32_MAX)
GD_CAST_FLOAT_TO_INTEGER(f32, float, i64, int64_t, -0x1p63f, 0x1p63f, INT64_MIN, INT64_MAX)
GD_CAST_FLOAT_TO_INTEGER(f64, double, i32, int32_t, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX)
GD_CAST_FLOAT_TO_INTEGER(f64, double, i64, int64_t, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)

GD_CAST_INLINE uint8_t f32_to_u8(float x)
{
    float inside = x > 0 ? x : 0; /* also for NaN */
    return (uint8_t)(int32_t)(inside < 255 ? inside : 255);
}

GD_CAST_INLINE uint8_t f64_to_u8(double x)
{
    double inside = x > 0 ? x : 0;
    return (uint8_t)(int32_t)(inside < 255 ? inside : 255);
}

#define LOOP(from, F, to, T, formula)                                                           \
    static void from##_to_##to##_loop(const void *px, const void *py, const void *pz, void *po, \
                                      int64_t n)                                                \
    {                                                                                           \
        (void)py, (void)pz;                                                                     \
        GD_CAST_INDEPENDENT                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                       \
            const F x = ((const F *)px)[i];                                                     \
            ((T *)po)[i] = (T)(formula);                                                        \
        }                                                                                       \
    }

LOOP(f32, float, f64, double, x)
LOOP(f32, float, i32, int32_t, f32_to_i32(x))
LOOP(f32, float, i64, int64_t, f32_to_i64(x))
LOOP(f32, float, u8, uint8_t, f32_to_u8(x))
LOOP(f32, float, bool, uint8_t, x != 0)

/* f32 and halves by whole vectors where there are instructions for it. */
#ifdef GD_SIMD_STORES_HALVES
#define TO_HALF(half)                                                                          \
    static void f32_to_##half##_loop(const void *px, const void *py, const void *pz, void *po, \
                                     int64_t n)                                                \
    {                                                                                          \
        (void)py, (void)pz;                                                                    \
        const float *x = px;                                                                   \
        uint16_t *out = po;                                                                    \
        int64_t i = 0;                                                                         \
        for (; i + VF32_LANES <= n; i += VF32_LANES)                                           \
            vf32_store_##half(out + i, vf32_load(x + i));                                      \
        for (; i < n; i++)                                                                     \
            out[i] = gd_f32_to_##half(x[i]);                                                   \
    }
#define OF_HALF(half)                                                                        \
    static void half##_to_f32_loop(const void *px, const void *py, const void *pz, void *po, \
                                   int64_t n)                                                \
    {                                                                                        \
        (void)py, (void)pz;                                                                  \
        const uint16_t *x = px;                                                              \
        float *out = po;                                                                     \
        int64_t i = 0;                                                                       \
        for (; i + VF32_LANES <= n; i += VF32_LANES)                                         \
            vf32_store(out + i, vf32_load_##half(x + i));                                    \
        for (; i < n; i++)                                                                   \
            out[i] = gd_##half##_to_f32(x[i]);                                               \
    }
#else
#define TO_HALF(half) LOOP(f32, float, half, uint16_t, gd_f32_to_##half(x))
#define OF_HALF(half) LOOP(half, uint16_t, f32, float, gd_##half##_to_f32(x))
#endif
TO_HALF(f16)
TO_HALF(bf16)
OF_HALF(f16)
OF_HALF(bf16)

LOOP(f64, double, f32, float, x)
LOOP(f64, double, i32, int32_t, f64_to_i32(x))
LOOP(f64, double, i64, int64_t, f64_to_i64(x))
LOOP(f64, double, u8, uint8_t, f64_to_u8(x))
LOOP(f64, double, bool, uint8_t, x != 0)
LOOP(f64, double, f16, uint16_t, f64_to_f16(x))
LOOP(f64, double, bf16, uint16_t, f64_to_bf16(x))

LOOP(i32, int32_t, f32, float, x)
LOOP(i32, int32_t, f64, double, x)
LOOP(i32, int32_t, i64, int64_t, x)
LOOP(i32, int32_t, u8, uint8_t, x)
LOOP(i32, int32_t, bool, uint8_t, x != 0)
LOOP(i32, int32_t, f16, uint16_t, gd_f32_to_f16((float)x))
LOOP(i32, int32_t, bf16, uint16_t, f64_to_bf16(x))

LOOP(i64, int64_t, f32, float, x)
LOOP(i64, int64_t, f64, double, x)
LOOP(i64, int64_t, i32, int32_t, x)
LOOP(i64, int64_t, u8, uint8_t, x)
LOOP(i64, int64_t, bool, uint8_t, x != 0)
LOOP(i64, int64_t, f16, uint16_t, gd_f32_to_f16((float)x))
LOOP(i64, int64_t, bf16, uint16_t, i64_to_bf16(x))

LOOP(u8, uint8_t, f32, float, x)
LOOP(u8, uint8_t, f64, double, x)
LOOP(u8, uint8_t, i32, int32_t, x)
LOOP(u8, uint8_t, i64, int64_t, x)
LOOP(u8, uint8_t, u8, uint8_t, x) /* bool to u8 */
LOOP(u8, uint8_t, bool, uint8_t, x != 0)
LOOP(u8, uint8_t, f16, uint16_t, gd_f32_to_f16(x))
LOOP(u8, uint8_t, bf16, uint16_t, gd_f32_to_bf16(x))

#define HALF_LOOPS(half)                                                  \
    LOOP(half, uint16_t, f64, double, gd_##half##_to_f32(x))              \
    LOOP(half, uint16_t, i32, int32_t, f32_to_i32(gd_##half##_to_f32(x))) \
    LOOP(half, uint16_t, i64, int64_t, f32_to_i64(gd_##half##_to_f32(x))) \
    LOOP(half, uint16_t, u8, uint8_t, f32_to_u8(gd_##half##_to_f32(x)))   \
    LOOP(half, uint16_t, bool, uint8_t, (x & 0x7fff) != 0)
HALF_LOOPS(f16)
HALF_LOOPS(bf16)
LOOP(f16, uint16_t, bf16, uint16_t, gd_f32_to_bf16(gd_f16_to_f32(x)))
LOOP(bf16, uint16_t, f16, uint16_t, gd_f32_to_f16(gd_bf16_to_f32(x)))

extern const gd_ew_loop GD_ISA_NAME(gd_ew_casts)[GD_DTYPE_COUNT][GD_DTYPE_COUNT];
const gd_ew_loop GD_ISA_NAME(gd_ew_casts)[GD_DTYPE_COUNT][GD_DTYPE_COUNT] = {
    [GD_F32] = { [GD_F64] = f32_to_f64_loop,
                 [GD_I32] = f32_to_i32_loop,
                 [GD_I64] = f32_to_i64_loop,
                 [GD_U8] = f32_to_u8_loop,
                 [GD_BOOL] = f32_to_bool_loop,
                 [GD_F16] = f32_to_f16_loop,
                 [GD_BF16] = f32_to_bf16_loop,
                 GD_CAST_TO_REST(f32) },
    [GD_F64] = { [GD_F32] = f64_to_f32_loop,
                 [GD_I32] = f64_to_i32_loop,
                 [GD_I64] = f64_to_i64_loop,
                 [GD_U8] = f64_to_u8_loop,
                 [GD_BOOL] = f64_to_bool_loop,
                 [GD_F16] = f64_to_f16_loop,
                 [GD_BF16] = f64_to_bf16_loop,
                 GD_CAST_TO_REST(f64) },
    [GD_I32] = { [GD_F32] = i32_to_f32_loop,
                 [GD_F64] = i32_to_f64_loop,
                 [GD_I64] = i32_to_i64_loop,
                 [GD_U8] = i32_to_u8_loop,
                 [GD_BOOL] = i32_to_bool_loop,
                 [GD_F16] = i32_to_f16_loop,
                 [GD_BF16] = i32_to_bf16_loop,
                 GD_CAST_TO_REST(i32) },
    [GD_I64] = { [GD_F32] = i64_to_f32_loop,
                 [GD_F64] = i64_to_f64_loop,
                 [GD_I32] = i64_to_i32_loop,
                 [GD_U8] = i64_to_u8_loop,
                 [GD_BOOL] = i64_to_bool_loop,
                 [GD_F16] = i64_to_f16_loop,
                 [GD_BF16] = i64_to_bf16_loop,
                 GD_CAST_TO_REST(i64) },
    [GD_U8] = { [GD_F32] = u8_to_f32_loop,
                [GD_F64] = u8_to_f64_loop,
                [GD_I32] = u8_to_i32_loop,
                [GD_I64] = u8_to_i64_loop,
                [GD_BOOL] = u8_to_bool_loop,
                [GD_F16] = u8_to_f16_loop,
                [GD_BF16] = u8_to_bf16_loop,
                GD_CAST_TO_REST(u8) },
    [GD_BOOL] = { [GD_F32] = u8_to_f32_loop,
                  [GD_F64] = u8_to_f64_loop,
                  [GD_I32] = u8_to_i32_loop,
                  [GD_I64] = u8_to_i64_loop,
                  [GD_U8] = u8_to_u8_loop,
                  [GD_F16] = u8_to_f16_loop,
                  [GD_BF16] = u8_to_bf16_loop,
                  GD_CAST_TO_REST(u8) },
    [GD_F16] = { [GD_F32] = f16_to_f32_loop,
                 [GD_F64] = f16_to_f64_loop,
                 [GD_I32] = f16_to_i32_loop,
                 [GD_I64] = f16_to_i64_loop,
                 [GD_U8] = f16_to_u8_loop,
                 [GD_BOOL] = f16_to_bool_loop,
                 [GD_BF16] = f16_to_bf16_loop,
                 GD_CAST_TO_REST(f16) },
    [GD_BF16] = { [GD_F32] = bf16_to_f32_loop,
                  [GD_F64] = bf16_to_f64_loop,
                  [GD_I32] = bf16_to_i32_loop,
                  [GD_I64] = bf16_to_i64_loop,
                  [GD_U8] = bf16_to_u8_loop,
                  [GD_BOOL] = bf16_to_bool_loop,
                  [GD_F16] = bf16_to_f16_loop,
                  GD_CAST_TO_REST(bf16) },
    GD_CAST_FROM_REST(GD_I8, i8),
    GD_CAST_FROM_REST(GD_I16, i16),
    GD_CAST_FROM_REST(GD_U16, u16),
    GD_CAST_FROM_REST(GD_U32, u32),
    GD_CAST_FROM_REST(GD_U64, u64),
};
