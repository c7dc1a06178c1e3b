/* backend/cpu/gemm_bf16_pack.h: B packed for instructions that add the products of two neighbours in
 * k: a panel is [depth / 2][columns][2]. Included by gemm_bf16_pairs.c, gemm_bf16_tiles.c and
 * conv_bf16_isa.c.
 */
#ifndef GD_BACKEND_CPU_GEMM_BF16_PACK_H
#define GD_BACKEND_CPU_GEMM_BF16_PACK_H

#include "backend/cpu/gemm_real.h"

#include <string.h>

/* The words of two rows side by side: low[0] high[0] low[1] high[1] … */
static inline __m512i interleave(__m256i low, __m256i high)
{
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

/* How far ahead packers fetch: rows of B, or numbers of its columns, four cache lines. Of 2 MB that lie in
 * memory, a thread of Zen 5 packs the columns in 97 us instead of 335, and in 58 out of the caches. */
#define ROWS_AHEAD    32
#define NUMBERS_AHEAD 128

static inline __mmask32 first_of_32(int64_t count)
{
    return count >= 32 ? UINT32_MAX : count <= 0 ? 0 : (__mmask32)((1u << count) - 1);
}

/* 16 columns of two rows, or 32, to [width][2]. */
static inline void store_pair(uint32_t *to, __m512i low, __m512i high, int64_t width)
{
    _mm512_storeu_si512(to, interleave(_mm512_castsi512_si256(low), _mm512_castsi512_si256(high)));
    if (width > 16)
        _mm512_storeu_si512(to + 16, interleave(_mm512_extracti64x4_epi64(low, 1),
                                                _mm512_extracti64x4_epi64(high, 1)));
}

/* Columns [0, count) of rows p and p + 1, or of row p and zeros, to [width][2]. */
static inline void pack_pair(uint32_t *to, const uint16_t *b, int64_t b_step, int64_t b_col,
                             bool two, int64_t count, int64_t width)
{
    if (b_col == 1 && width <= 16) { /* a whole vector would read more lines */
        const __mmask16 mask = (__mmask16)first_of_32(count);
        const __m256i low = _mm256_maskz_loadu_epi16(mask, b);
        const __m256i high = _mm256_maskz_loadu_epi16(two ? mask : 0, b + b_step);
        _mm512_storeu_si512(to, interleave(low, high));
        return;
    }
    if (b_col == 1) {
        const __mmask32 mask = first_of_32(count);
        const __m512i low = _mm512_maskz_loadu_epi16(mask, b);
        const __m512i high = _mm512_maskz_loadu_epi16(two ? mask : 0, b + b_step);
        store_pair(to, low, high, width);
        return;
    }
    for (int64_t j = 0; j < width; j++) {
        const uint16_t *at = b + j * b_col;
        to[j] = j >= count ? 0 : two ? at[0] | (uint32_t)at[b_step] << 16 : at[0];
    }
}

/* Columns [0, count) of B, transposed in memory, to [packed_depth / 2][width][2]: squares of 16 columns
 * by 16 pairs, a cache line of each column, are transposed in registers. Fetched is what is
 * NUMBERS_AHEAD further on; at the end of the columns what is `next` further, 0: nothing. */
static inline void pack_columns_of_pairs(uint32_t *to, const uint16_t *b, int64_t b_col,
                                         int64_t depth, int64_t packed_depth, int64_t count,
                                         int64_t width, int64_t next)
{
    for (int64_t p = 0; p < packed_depth; p += 32) {
        const __mmask32 mask = first_of_32(depth - p);
        const int64_t pairs = LEAST(packed_depth - p, 32) / 2;
        const int64_t further = p + NUMBERS_AHEAD < depth ? NUMBERS_AHEAD : next;
        for (int64_t j = 0; j < width; j += 16) {
            for (int64_t i = j; further && i < j + 16; i++)
                __builtin_prefetch(b + i * b_col + p + further, 0, 3);
            vf32 square[16];
            GD_SIMD_UNROLL
            for (int i = 0; i < 16; i++) {
                const int64_t column = LEAST(j + i, count - 1); /* those beyond nobody keeps */
                square[i] =
                    _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, b + column * b_col + p));
            }
            vf32_transpose(square);
            for (int64_t i = 0; i < pairs; i++)
                _mm512_storeu_ps(to + (p / 2 + i) * width + j, square[i]);
        }
    }
}

/* Panels of 32 columns, `unit` steps or a multiple of them deep; zeros where B has no row. */
static inline void pack_b_pairs(void *dst, const uint16_t *b, int64_t b_step, int64_t b_col,
                                int64_t depth, int64_t columns, int64_t unit)
{
    const int64_t packed_depth = (depth + unit - 1) / unit * unit;
    for (int64_t j = 0; j < columns; j += 32) {
        const int64_t count = LEAST(columns - j, 32), width = (count + 15) / 16 * 16;
        uint32_t *to = (uint32_t *)dst + j * packed_depth / 2;
        const uint16_t *from = b + j * b_col;
        if (b_step == 1 && b_col != 1) {
            /* the first lines of the next panel's columns */
            const int64_t lines = (depth + 31) / 32 * 32;
            const int64_t next = j + 64 <= columns ? 32 * b_col + NUMBERS_AHEAD - lines : 0;
            pack_columns_of_pairs(to, from, b_col, depth, packed_depth, count, width, next);
            continue;
        }
        for (int64_t p = 0; p < depth; p += 2, to += width) {
            const uint16_t *at = from + p * b_step;
            if (b_col == 1 && j == 0 && p + ROWS_AHEAD < depth) {
                __builtin_prefetch(at + ROWS_AHEAD * b_step, 0, 3);
                __builtin_prefetch(at + (ROWS_AHEAD + 1) * b_step, 0, 3);
            }
            if (b_col == 1 && j + 32 < columns) { /* the next panel's */
                __builtin_prefetch(at + 32, 0, 3);
                __builtin_prefetch(at + 32 + b_step, 0, 3);
            }
            pack_pair(to, at, b_step, b_col, p + 1 < depth, count, width);
        }
        memset(to, 0, (size_t)((packed_depth - (depth + 1) / 2 * 2) / 2 * width) * sizeof *to);
    }
}

#endif
