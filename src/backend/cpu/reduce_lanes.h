/* backend/cpu/reduce_lanes.h: the block of reduce_loops.h over f32, with its lanes in vector
 * registers, for AVX2 and AVX-512. An array of lanes gcc keeps in memory between the loop over
 * whole groups, the rest and the fold, and it folds extremes with branches; for rows of some
 * hundred elements that took longer than the loop. The meaning is the same (reduce.h). A template,
 * included once for each reduction; it makes the static function <OP>_in_registers and undefines
 * VMERGE:
 *
 *   OP, IDENTITY     as in reduce_loops.h
 *   VMERGE(P, a, x)  MERGE as intrinsics that begin with P
 *   EXACT            defined where VMERGE does not keep NaNs: the function that does, for a row
 *                    with one
 */
#ifndef GD_BACKEND_CPU_REDUCE_LANES_H
#define GD_BACKEND_CPU_REDUCE_LANES_H

#include "backend/cpu/simd.h"

#if defined(GD_ISA_AVX512_BUILD)
#define WIDEST _mm512_
typedef __mmask16 nan_mask;
#define NAN_IN(x, y) _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q)
#define ANY(mask)    ((mask) != 0)
/* The first n, 0 < n, and `pad` for the rest, of which nothing is read. */
GD_SIMD_INLINE vf32 load_rest(const f32 *x, int64_t n, f32 pad)
{
    return _mm512_mask_loadu_ps(_mm512_set1_ps(pad), vf32_mask_first(n < 16 ? n : 16), x);
}
#else
#define WIDEST       _mm256_
typedef int nan_mask;
#define NAN_IN(x, y) _mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_UNORD_Q))
#define ANY(mask)    ((mask) != 0)
GD_SIMD_INLINE vf32 load_rest(const f32 *x, int64_t n, f32 pad)
{
    vf32_mask mask = vf32_mask_first(n < 8 ? n : 8);
    return _mm256_blendv_ps(_mm256_set1_ps(pad), _mm256_maskload_ps(x, mask),
                            _mm256_castsi256_ps(mask));
}
#endif
enum { HELD = 64 / VF32_LANES }; /* vectors of lanes */
#endif

static f32 JOIN(OP, _in_registers)(const f32 *x, int64_t n)
{
    vf32 lane[HELD];
    GD_SIMD_UNROLL
    for (int k = 0; k < HELD; k++)
        lane[k] = vf32_set1(IDENTITY);
    int64_t i = 0;
#if defined(EXACT)
    nan_mask nans = 0;
#define LOOK_FOR_NAN(x, y) nans |= NAN_IN(x, y);
#else
#define LOOK_FOR_NAN(x, y)
#endif
    for (; i + 64 <= n; i += 64) {
        GD_SIMD_UNROLL
        for (int k = 0; k < HELD; k += 2) {
            vf32 first = vf32_load(x + i + k * VF32_LANES);
            vf32 second = vf32_load(x + i + (k + 1) * VF32_LANES);
            lane[k] = VMERGE(WIDEST, lane[k], first);
            lane[k + 1] = VMERGE(WIDEST, lane[k + 1], second);
            LOOK_FOR_NAN(first, second)
        }
    }
    GD_SIMD_UNROLL
    for (int k = 0; k < HELD; k++) {
        int64_t rest = n - i - k * VF32_LANES;
        if (rest <= 0)
            break;
        vf32 last = load_rest(x + i + k * VF32_LANES, rest, IDENTITY);
        lane[k] = VMERGE(WIDEST, lane[k], last);
        LOOK_FOR_NAN(last, last)
    }
#if defined(EXACT)
    if (ANY(nans))
        return EXACT(x, n);
#endif
    GD_SIMD_UNROLL
    for (int half = HELD / 2; half > 0; half /= 2) {
        GD_SIMD_UNROLL
        for (int k = 0; k < half; k++)
            lane[k] = VMERGE(WIDEST, lane[k], lane[k + half]);
    }
#if defined(GD_ISA_AVX512_BUILD)
    __m256 eight =
        VMERGE(_mm256_, _mm512_castps512_ps256(lane[0]), _mm512_extractf32x8_ps(lane[0], 1));
#else
    __m256 eight = lane[0];
#endif
    __m128 four = VMERGE(_mm_, _mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = VMERGE(_mm_, four, _mm_movehl_ps(four, four));
    four = VMERGE(_mm_, four, _mm_movehdup_ps(four));
    return _mm_cvtss_f32(four);
}
#undef VMERGE
#undef EXACT
#undef LOOK_FOR_NAN
