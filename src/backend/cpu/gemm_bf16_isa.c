/* backend/cpu/gemm_bf16_isa.c: products of bfloat16 with no instructions of their own: packers widen
 * to f32, and the tiles are those of f32.
 */
#include "backend/cpu/gemm_bf16.h"
#include "backend/cpu/gemm_finish.h"

#include <string.h>

static float widen(const uint16_t *half)
{
    const uint32_t bits = (uint32_t)*half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rows of A_PANEL_ROW numbers. */
static void pack_a(void *dst, const void *from, int64_t a_row, int64_t a_col, int64_t rows,
                   int64_t depth, int64_t *row, int64_t *step)
{
    const uint16_t *a = from;
    float *to = dst;
    for (int64_t i = 0; i < rows; i++, a += a_row, to += A_PANEL_ROW)
        for (int64_t p = 0; p < depth; p++)
            to[p] = widen(a + p * a_col);
    *row = A_PANEL_ROW;
    *step = 1;
}

static void pack_b(void *dst, const void *from, int64_t b_step, int64_t b_col, int64_t depth,
                   int64_t columns)
{
    const uint16_t *b = from;
    for (int64_t j = 0; j < columns; j += COLUMNS_MAX, b += COLUMNS_MAX * b_col) {
        const int64_t count = LEAST(columns - j, COLUMNS_MAX);
        const int64_t width = (count + LANES - 1) / LANES * LANES;
        float *to = (float *)dst + j * depth;
        for (int64_t p = 0; p < depth; p++, to += width)
            for (int64_t i = 0; i < width; i++)
                to[i] = i < count ? widen(b + p * b_step + i * b_col) : 0.0f;
    }
}

const gd_gemm_micro GD_ISA_NAME(gd_gemm_bf16) = { .name = "bf16 widened to f32",
                                                  .a = GD_BF16,
                                                  .b = GD_BF16,
                                                  .c = GD_F32,
                                                  .a_bytes = 2,
                                                  .b_bytes = 2,
                                                  .c_bytes = sizeof(float),
                                                  .b_packed_bytes = sizeof(float),
                                                  .fused = GD_SIMD_FUSED,
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
                                                  .relu_grad = relu_grad };
