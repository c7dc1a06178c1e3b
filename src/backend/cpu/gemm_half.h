/* backend/cpu/gemm_half.h: products of bfloat16 and f16 with sums in f32, C = A @ B with C in f32. Nothing
 * is rounded to 16 bits on the way: products of two such numbers are exact in f32, and sums round as the
 * instruction set's do. So results differ between instruction sets, within
 *     |c - exact| <= (k + 1) eps sum |a||b|, eps = 2^-23,
 * numbers below 2^-126 counting as 0 where the processor's instructions flush them; on one
 * instruction set neither the number of threads nor the blocking changes a bit.
 */
#ifndef GD_BACKEND_CPU_GEMM_HALF_H
#define GD_BACKEND_CPU_GEMM_HALF_H

#include "backend/cpu/gemm_micro.h"
#include "base/cpu.h"

/* Widened to f32 as they are packed, and multiplied by its tiles: everywhere, with its definition
 * (gemm.h). */
#define GD_GEMM_HALF_DECLARE(isa) extern const gd_gemm_micro gd_gemm_bf16_##isa, gd_gemm_f16_##isa;
GD_GEMM_HALF_DECLARE(baseline)
GD_GEMM_HALF_DECLARE(avx2)
GD_GEMM_HALF_DECLARE(avx512)
GD_GEMM_HALF_DECLARE(neon)
extern const gd_gemm_micro gd_gemm_bf16_pairs; /* AVX512-BF16: two multiply-adds a lane */
extern const gd_gemm_micro gd_gemm_bf16_tiles; /* AMX-BF16: tiles of 16 x 32 by 32 x 16 */
extern const gd_gemm_micro gd_gemm_bf16_mmla;  /* BFMMLA of Armv8.6: 2 x 4 by 4 x 2 */

/* Products of f32 as three of bfloat16, whose operands are the halves of A and B: class fast (gd_numbers).
 *     |c - exact| <= sum (3 (k + 3) 2^-23 + 2^-14) |a||b| + 2^-126 (|a| + |b|);
 * numbers below 2^-126 count as 0, and so do the low halves of others, which the last term is for. On one
 * instruction set neither the number of threads nor the blocking changes a bit. */
extern const gd_gemm_micro gd_gemm_bf16x3_pairs, gd_gemm_bf16x3_tiles;

/* Of those: what multiplies faster than f32's own instructions, or, if it was asked for, any; NULL: none. */
const gd_gemm_micro *gd_gemm_bf16x3(gd_isa isa, bool is_asked);

/* The best that this processor and this build have for an instruction set, and GRADUS_ISA allows. */
const gd_gemm_micro *gd_gemm_bf16(gd_isa isa);
const gd_gemm_micro *gd_gemm_f16(gd_isa isa);

#endif
