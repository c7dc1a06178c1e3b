/* backend/cpu/gemm_bf16_pack.h: B packed for instructions that add the products of two neighbours in
 * k: a panel is [depth / 2][columns][2]. Included by gemm_bf16_pairs.c and gemm_bf16_tiles.c.
 */
#ifndef GD_BACKEND_CPU_GEMM_BF16_PACK_H
#define GD_BACKEND_CPU_GEMM_BF16_PACK_H

#include "backend/cpu/gemm_real.h"

#include <string.h>

/* Columns [0, count) of rows p and p + 1, or of row p and zeros, to [width][2]. */
static inline void pack_pair(uint32_t *to, const uint16_t *b, int64_t b_step, int64_t b_col,
                             bool two, int64_t count, int64_t width)
{
    if (b_col == 1) {
        for (int64_t j = 0; j < width; j += 16) {
            const int64_t left = LEAST(count - j, 16);
            const __mmask16 mask = (__mmask16)((1u << left) - 1);
            const __mmask16 second = two ? mask : 0;
            const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, b + j));
            const __m512i high =
                _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, b + b_step + j));
            _mm512_storeu_si512(to + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
        return;
    }
    for (int64_t j = 0; j < width; j++) {
        const uint16_t *at = b + j * b_col;
        to[j] = j >= count ? 0 : two ? at[0] | (uint32_t)at[b_step] << 16 : at[0];
    }
}

/* Panels of 32 columns, `unit` steps or a multiple of them deep; zeros where B has no number. */
static inline void pack_b_pairs(void *dst, const uint16_t *b, int64_t b_step, int64_t b_col,
                                int64_t depth, int64_t columns, int64_t unit)
{
    const int64_t packed_depth = (depth + unit - 1) / unit * unit;
    for (int64_t j = 0; j < columns; j += 32) {
        const int64_t count = LEAST(columns - j, 32), width = (count + 15) / 16 * 16;
        uint32_t *to = (uint32_t *)dst + j * packed_depth / 2;
        const uint16_t *from = b + j * b_col;
        for (int64_t p = 0; p < depth; p += 2, to += width)
            pack_pair(to, from + p * b_step, b_step, b_col, p + 1 < depth, count, width);
        memset(to, 0, (size_t)((packed_depth - (depth + 1) / 2 * 2) / 2 * width) * sizeof *to);
    }
}

#endif
