/* backend/cpu/gemm_isa.c: the matrix product of gemm.h, compiled once per instruction set, and
 * within it twice from one text, for f32 and f64. In reading order: gemm_driver.h (threads, blocks,
 * which way), gemm_vector.h (one row), gemm_pack.h (copies), gemm_tile.h (micro-kernels), simd.h
 * (vectors).
 */
#include "backend/cpu/gemm.h"

#include "backend/cpu/conv.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/simd.h"
#include "base/threads.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

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
#define CHAINS_MAX  4 /* blocks of k side by side */
#define A_PANEL_ROW (GD_GEMM_KC + LANES)

#define PACK_DEPTH     16 /* steps of k packed at a time: rows of B are read in as many streams */
#define STREAMS        8  /* rows of B read abreast by a product with one row */
#define STREAM_COLUMNS (16384 / (int64_t)sizeof(REAL)) /* in runs of so many columns */

/* Packing B pays over so many rows, a quarter as many if rows of B collide in the caches; copying
 * panels of a transposed A pays over so many columns. Up to CHAIN_ROWS rows of a narrow product are
 * taken one by one. */
#define DIRECT_ROWS    512
#define DIRECT_COLUMNS 64
#define CHAIN_ROWS     3
#define THIN_ROWS      32 /* B is fetched a block ahead for at most so many rows */

/* Numbers that the second-level cache does not hold: they are fetched before they are needed. */
#define LARGE ((int64_t)1 << 18)

#define LINE        (64 / (int64_t)sizeof(REAL)) /* numbers in a cache line */
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define OPAQUE(x)   __asm__("" : "+r"(x)) /* the compiler may assume nothing about x's value */
#define UNROLL      GD_SIMD_UNROLL

/* Spellings in the included texts: REAL a number, VEC a vector of LANES of them, V(op) an operation
 * of simd.h, FMA its multiply-add on one number, N(name) a name of our own; of types, for short: */
#define tile_t     N(tile)
#define tile_fn    N(tile_kernel)
#define product_t  N(product)
#define block_t    N(block)
#define work_t     N(work)
#define row_work_t N(row_work)

#define REAL          float
#define VEC           vf32
#define VMASK         vf32_mask
#define LANES         VF32_LANES
#define V(op)         vf32_##op
#define N(op)         op##_f32
#define HAS_STRETCHES 1
#if GD_SIMD_FUSED
#define FMA(a, b, c) fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
#include "backend/cpu/gemm_tile.h"
#include "backend/cpu/gemm_pack.h"
#include "backend/cpu/gemm_vector.h"
#include "backend/cpu/gemm_driver.h"
#include "backend/cpu/conv_window.h"
#include "backend/cpu/conv_band_tile.h"
#include "backend/cpu/conv_driver.h"
#include "backend/cpu/conv_grad_weight.h"
#undef REAL
#undef VEC
#undef VMASK
#undef LANES
#undef V
#undef N
#undef HAS_STRETCHES
#undef FMA

#define REAL          double
#define VEC           vf64
#define VMASK         vf64_mask
#define LANES         VF64_LANES
#define V(op)         vf64_##op
#define N(op)         op##_f64
#define HAS_STRETCHES 0 /* code saved where speed matters less */
#if GD_SIMD_FUSED
#define FMA(a, b, c) fma(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
#include "backend/cpu/gemm_tile.h"
#include "backend/cpu/gemm_pack.h"
#include "backend/cpu/gemm_vector.h"
#include "backend/cpu/gemm_driver.h"

void GD_ISA_NAME(gd_gemm_f32)(const gd_gemm_args *args)
{
    run_f32(args);
}

void GD_ISA_NAME(gd_gemm_f64)(const gd_gemm_args *args)
{
    run_f64(args);
}

void GD_ISA_NAME(gd_gemm_reference_f32)(const gd_gemm_args *args)
{
    reference_f32(args);
}

void GD_ISA_NAME(gd_gemm_reference_f64)(const gd_gemm_args *args)
{
    reference_f64(args);
}
