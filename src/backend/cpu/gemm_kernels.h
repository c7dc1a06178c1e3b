/* backend/cpu/gemm_kernels.h: all micro-kernels of products of one element type, and the descriptor
 * of them, GEMM_NAME. gemm_f32_isa.c and gemm_f64_isa.c are this text and nothing else.
 */
#ifndef GD_BACKEND_CPU_GEMM_KERNELS_H
#define GD_BACKEND_CPU_GEMM_KERNELS_H

#include "backend/cpu/gemm_pack.h"
#include "backend/cpu/gemm_tile.h"

#include "backend/cpu/gemm_rows.h"

static const gd_gemm_row_kernels row_kernels = { .chains = row_chains,
                                                 .dots = row_dots,
                                                 .scalars = row_scalars,
                                                 .sums = row_sums,
                                                 .add = add_sums,
                                                 .store = store_row };

_Static_assert(sizeof(REAL) * ROWS_MAX * COLUMNS_MAX <= GD_GEMM_MOST_TILE_BYTES &&
                   sizeof(REAL) * COLUMNS_MAX <= GD_GEMM_MOST_WIDTH_BYTES,
               "the driver has room for a tile");
_Static_assert(sizeof(REAL) * ROWS_MAX * A_PANEL_ROW <= GD_GEMM_PANEL_BYTES &&
                   sizeof(REAL) * GD_GEMM_KC * ((ROWS_MAX + LANES - 1) / LANES * LANES) <=
                       GD_GEMM_PANEL_BYTES,
               "there is room for a panel of A");

const gd_gemm_micro GEMM_NAME = { .a = GEMM_DTYPE,
                                  .b = GEMM_DTYPE,
                                  .c = GEMM_DTYPE,
                                  .a_bytes = sizeof(REAL),
                                  .b_bytes = sizeof(REAL),
                                  .c_bytes = sizeof(REAL),
                                  .b_packed_bytes = sizeof(REAL),
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
                                  .reads_a = true,
                                  .reads_b = true,
                                  .tiles = TILES_NAME,
                                  .widths = VECS_MAX,
                                  .pack_a = pack_a,
                                  .pack_b = pack_b,
                                  .pack_transposed = pack_transposed,
                                  .store_columns = store_columns,
                                  .copy_runs = copy_runs,
                                  .stream = STREAM,
                                  .relu_grad = relu_grad,
                                  .row = &row_kernels };

#endif
