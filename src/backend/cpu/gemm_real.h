/* backend/cpu/gemm_real.h: the spellings in the texts of the micro-kernels of products and
 * convolutions, which are compiled once per instruction set: for f32, and, where
 * GD_GEMM_F64 is defined, for f64. REAL is a number, VEC a vector of LANES of them, VMASK its mask,
 * V(op) an operation of simd.h, FMA its multiply-add on one number.
 */
#ifndef GD_BACKEND_CPU_GEMM_REAL_H
#define GD_BACKEND_CPU_GEMM_REAL_H

#include "backend/cpu/gemm_micro.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/simd.h"

#include <math.h>

#if defined(GD_GEMM_F64)
#define GEMM_NAME  GD_ISA_NAME(gd_gemm_f64)
#define TILES_NAME GD_ISA_NAME(gd_gemm_tiles_f64)
#define GEMM_DTYPE GD_F64
#define REAL       double
#define VEC        vf64
#define VMASK      vf64_mask
#define LANES      VF64_LANES
#define V(op)      vf64_##op
#if GD_SIMD_FUSED
#define FMA(a, b, c) fma(a, b, c)
#endif
#else
#define GEMM_NAME  GD_ISA_NAME(gd_gemm_f32)
#define TILES_NAME GD_ISA_NAME(gd_gemm_tiles_f32)
#define GEMM_DTYPE GD_F32
#define REAL       float
#define VEC        vf32
#define VMASK      vf32_mask
#define LANES      VF32_LANES
#define V(op)      vf32_##op
#if GD_SIMD_FUSED
#define FMA(a, b, c) fmaf(a, b, c)
#endif
#endif
#ifndef FMA
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

#if defined(__SSE2__)
void GD_ISA_NAME(gd_ew_stream)(void *to, const void *from, size_t bytes); /* elementwise.h */
#define STREAM GD_ISA_NAME(gd_ew_stream)
#else
#define STREAM NULL
#endif

#define LANE_SHIFT (LANES == 16 ? 4 : LANES == 8 ? 3 : LANES == 4 ? 2 : LANES == 2 ? 1 : 0)
_Static_assert(1 << LANE_SHIFT == LANES, "the lanes of a vector are a power of two");

/* The tallest tile. Two vectors wide, it fills the registers, of which there are 32 (16 before
 * AVX-512), together with two vectors of B and at least one of A. */
#if defined(GD_ISA_AVX512_BUILD)
#define ROWS_MAX 14
#elif defined(__aarch64__)
#define ROWS_MAX 12
#else
#define ROWS_MAX 6
#endif
#define TILE_UNIT   2 /* tiles have even heights; an odd one takes two kernels */
#define VECS_MAX    2
#define COLUMNS_MAX (VECS_MAX * LANES)
#define A_PANEL_ROW (GD_GEMM_KC + LANES) /* numbers from row to row of a packed panel of A */

#define LINE        (GD_LINE_BYTES / (int64_t)sizeof(REAL)) /* numbers in a cache line */
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define OPAQUE(x)   __asm__("" : "+r"(x)) /* the compiler may assume nothing about x's value */
#define UNROLL      GD_SIMD_UNROLL

#endif
