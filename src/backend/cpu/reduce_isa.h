/* backend/cpu/reduce_isa.h: what reduce_isa.c and arg_scan_isa.c share within one instruction set.
 * Only for …_isa.c files. */
#ifndef GD_BACKEND_CPU_REDUCE_ISA_H
#define GD_BACKEND_CPU_REDUCE_ISA_H

#include "backend/cpu/isa.h"
#include "backend/cpu/reduce.h"

#include <math.h>

typedef float f32;
typedef double f64;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;

#define DTYPE_f32 GD_F32
#define DTYPE_f64 GD_F64
#define DTYPE_i32 GD_I32
#define DTYPE_i64 GD_I64
#define DTYPE_u8  GD_U8

#define LOWEST_f32  (-INFINITY)
#define LOWEST_f64  (-(f64)INFINITY)
#define LOWEST_i32  INT32_MIN
#define LOWEST_i64  INT64_MIN
#define LOWEST_u8   0
#define HIGHEST_f32 INFINITY
#define HIGHEST_f64 ((f64)INFINITY)
#define HIGHEST_i32 INT32_MAX
#define HIGHEST_i64 INT64_MAX
#define HIGHEST_u8  UINT8_MAX

#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

/* Before a loop that may write what it reads, but only at the same index. */
#ifdef __clang__
#define INDEPENDENT
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* lane[0] becomes MERGE of all `count` lanes, a constant power of two: lane[j], lane[j + count/2],
 * and so on down. */
#define FOLD_STEP(lane, half, MERGE)             \
    for (int fold_ = 0; fold_ < (half); fold_++) \
        (lane)[fold_] = MERGE((lane)[fold_], (lane)[fold_ + (half)]);
#define FOLD(lane, count, MERGE)        \
    do {                                \
        if ((count) > 128)              \
            FOLD_STEP(lane, 128, MERGE) \
        if ((count) > 64)               \
            FOLD_STEP(lane, 64, MERGE)  \
        if ((count) > 32)               \
            FOLD_STEP(lane, 32, MERGE)  \
        if ((count) > 16)               \
            FOLD_STEP(lane, 16, MERGE)  \
        if ((count) > 8)                \
            FOLD_STEP(lane, 8, MERGE)   \
        FOLD_STEP(lane, 4, MERGE)       \
        FOLD_STEP(lane, 2, MERGE)       \
        FOLD_STEP(lane, 1, MERGE)       \
    } while (0)

/* The first n of a group of 64 bytes, n >= 0, and `pad` for the rest, of which nothing is read. */
#if defined(GD_ISA_AVX512_BUILD)
#include <immintrin.h>
GD_STATIC_INLINE void load_padded_f32(f32 out[16], const f32 *x, int64_t n, f32 pad)
{
    __mmask16 mask = (__mmask16)(n < 16 ? (1u << n) - 1u : 0xffffu);
    _mm512_storeu_ps(out, _mm512_mask_loadu_ps(_mm512_set1_ps(pad), mask, x));
}
GD_STATIC_INLINE void load_padded_f64(f64 out[8], const f64 *x, int64_t n, f64 pad)
{
    __mmask8 mask = (__mmask8)(n < 8 ? (1u << n) - 1u : 0xffu);
    _mm512_storeu_pd(out, _mm512_mask_loadu_pd(_mm512_set1_pd(pad), mask, x));
}
#elif defined(GD_ISA_AVX2_BUILD)
#include <immintrin.h>
GD_STATIC_INLINE void load_padded_f32(f32 out[16], const f32 *x, int64_t n, f32 pad)
{
    __m256i count = _mm256_set1_epi32(n < 16 ? (int)n : 16);
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i low = _mm256_cmpgt_epi32(count, lane);
    __m256i high = _mm256_cmpgt_epi32(count, _mm256_add_epi32(lane, _mm256_set1_epi32(8)));
    __m256 rest = _mm256_set1_ps(pad);
    _mm256_storeu_ps(out,
                     _mm256_blendv_ps(rest, _mm256_maskload_ps(x, low), _mm256_castsi256_ps(low)));
    const f32 *second = n > 8 ? x + 8 : x;
    _mm256_storeu_ps(out + 8, _mm256_blendv_ps(rest, _mm256_maskload_ps(second, high),
                                               _mm256_castsi256_ps(high)));
}
GD_STATIC_INLINE void load_padded_f64(f64 out[8], const f64 *x, int64_t n, f64 pad)
{
    __m256i count = _mm256_set1_epi64x(n < 8 ? n : 8);
    __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
    __m256i low = _mm256_cmpgt_epi64(count, lane);
    __m256i high = _mm256_cmpgt_epi64(count, _mm256_add_epi64(lane, _mm256_set1_epi64x(4)));
    __m256d rest = _mm256_set1_pd(pad);
    _mm256_storeu_pd(out,
                     _mm256_blendv_pd(rest, _mm256_maskload_pd(x, low), _mm256_castsi256_pd(low)));
    const f64 *second = n > 4 ? x + 4 : x;
    _mm256_storeu_pd(out + 4, _mm256_blendv_pd(rest, _mm256_maskload_pd(second, high),
                                               _mm256_castsi256_pd(high)));
}
#else
GD_STATIC_INLINE void load_padded_f32(f32 out[16], const f32 *x, int64_t n, f32 pad)
{
    for (int j = 0; j < 16; j++)
        out[j] = j < n ? x[j] : pad;
}
GD_STATIC_INLINE void load_padded_f64(f64 out[8], const f64 *x, int64_t n, f64 pad)
{
    for (int j = 0; j < 8; j++)
        out[j] = j < n ? x[j] : pad;
}
#endif
#define HAS_PADDED_f32 1
#define HAS_PADDED_f64 1
#define HAS_PADDED_i32 0
#define HAS_PADDED_i64 0
#define HAS_PADDED_u8  0

#define ADD(a, x)      ((a) + (x))
#define MULTIPLY(a, x) ((a) * (x))
#define IS_NAN(x)      ((x) != (x)) /* false for integers, without a warning */
/* Whether x beats a in max, in min. A NaN beats any number and is beaten by nothing. */
#define IS_LARGER(a, x)  ((x) > (a) || (IS_NAN(x) && !IS_NAN(a)))
#define IS_SMALLER(a, x) ((x) < (a) || (IS_NAN(x) && !IS_NAN(a)))
/* What remains of the two. That a later NaN replaces an earlier one saves a comparison. */
#define LARGER(a, x)  ((((x) > (a)) | IS_NAN(x)) ? (x) : (a))
#define SMALLER(a, x) ((((x) < (a)) | IS_NAN(x)) ? (x) : (a))

/* By dtype, NULL where there is none. bool shares the tables of u8. */
extern const gd_reducer *const GD_ISA_NAME(gd_reducers_sum)[GD_DTYPE_COUNT];
extern const gd_reducer *const GD_ISA_NAME(gd_reducers_prod)[GD_DTYPE_COUNT];
extern const gd_reducer *const GD_ISA_NAME(gd_reducers_max)[GD_DTYPE_COUNT];
extern const gd_reducer *const GD_ISA_NAME(gd_reducers_min)[GD_DTYPE_COUNT];

void GD_ISA_NAME(gd_cpu_register_arg_scan)(gd_kernel_fn *kernel);

#endif
