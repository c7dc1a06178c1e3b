/* backend/cpu/gemm_widened.h: products of f16 or bf16 with no instructions of their own: packers widen
 * to f32, which holds both exactly, and the tiles are those of f32, with their definition (gemm.h).
 * Includers define HALF, "f16" or "bf16" without the quotes, and HALF_DTYPE.
 *
 * AVX512-FP16 has multiply-adds of f16 at twice the rate of f32's, but adds up in f16: another class of
 * numbers than sums in f32 (gradus/precision.h).
 */
#ifndef GD_BACKEND_CPU_GEMM_WIDENED_H
#define GD_BACKEND_CPU_GEMM_WIDENED_H

#include "backend/cpu/gemm_half.h"
#include "backend/cpu/simd_half.h"

#define HALF_PASTE_(a, b)         a##_##b
#define HALF_PASTE(a, b)          HALF_PASTE_(a, b)
#define ITEM                      uint16_t
#define ITEM_LOAD(p)              HALF_PASTE(vf32_load, HALF)(p)
#define ITEM_LOAD_FIRST(p, count) HALF_PASTE(vf32_load_first, HALF)(p, count)
#define ITEM_VALUE(x)             HALF_PASTE(HALF_PASTE(gd, HALF), to_f32)(x)

#include "backend/cpu/gemm_finish.h"
#include "backend/cpu/gemm_pack.h"
#include "backend/cpu/gemm_rows.h"

#define HALF_TEXT_(x) #x
#define HALF_TEXT(x)  HALF_TEXT_(x)

static const gd_gemm_row_kernels row_kernels = {
    .dots = row_dots, .scalars = row_scalars, .sums = row_sums, .add = add_sums, .store = store_row
};

const gd_gemm_micro GD_ISA_NAME(HALF_PASTE(gd_gemm, HALF)) = {
    .name = HALF_TEXT(HALF) " widened to f32",
    .a = HALF_DTYPE,
    .b = HALF_DTYPE,
    .c = GD_F32,
    .a_bytes = sizeof(uint16_t),
    .b_bytes = sizeof(uint16_t),
    .c_bytes = sizeof(float),
    .b_packed_bytes = sizeof(float),
    .fused = GD_SIMD_FUSED,
    .packing = 4,
    .lanes = LANES,
    .lane_shift = LANE_SHIFT,
    .rows = ROWS_MAX,
    .columns = COLUMNS_MAX,
    .row_unit = TILE_UNIT,
    .depth = GD_GEMM_KC,
    .depth_unit = 1,
    .any_width = GD_SIMD_MASK_FREE,
    .height_unit = 1,
    .tiles = GD_ISA_NAME(gd_gemm_tiles_f32),
    .widths = VECS_MAX,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .store_columns = store_columns,
    .copy_runs = copy_runs,
    .stream = STREAM,
    .relu_grad = relu_grad,
    .row = &row_kernels,
};

#endif
