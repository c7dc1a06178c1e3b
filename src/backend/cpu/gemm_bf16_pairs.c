/* backend/cpu/gemm_bf16_pairs.c: products of bfloat16 by AVX512-BF16, whose VDPBF16PS adds two
 * products to each lane. Tiles are as high and wide as those of f32 (gemm_tile.h), and walk along k
 * in pairs.
 */
#include "backend/cpu/gemm_half.h"

#ifdef GD_HAVE_AVX512_BF16

#include "backend/cpu/gemm_bf16_pack.h"
#include "backend/cpu/gemm_finish.h"

#include <immintrin.h>

#define DEPTH 512
/* A panel of A is [rows][depth] where its rows are contiguous, each row so many numbers from the last,
 * out of its way; else [depth / 2][16][2]. */
#define A_ROW      (DEPTH + 32)
#define PANEL_ROWS 16
_Static_assert(ROWS_MAX <= PANEL_ROWS, "a panel has room for the rows of a tile");
_Static_assert(2 * ROWS_MAX * A_ROW <= GD_GEMM_PANEL_BYTES &&
                   2 * PANEL_ROWS * DEPTH <= GD_GEMM_PANEL_BYTES,
               "there is room for a panel");

static void pack_a(void *dst, const void *from, int64_t a_row, int64_t a_col, int64_t rows,
                   int64_t depth, int64_t *row, int64_t *step)
{
    const uint16_t *a = from;
    if (a_col != 1) {
        uint32_t *to = dst;
        for (int64_t p = 0; p < depth; p += 2, to += PANEL_ROWS)
            pack_pair(to, a + p * a_col, a_col, a_row, p + 1 < depth, rows, PANEL_ROWS);
        *row = 2;
        *step = PANEL_ROWS;
        return;
    }
    uint16_t *to = dst;
    for (int64_t i = 0; i < rows; i++, a += a_row, to += A_ROW) {
        memcpy(to, a, (size_t)depth * sizeof *to);
        to[depth] = 0; /* the second of an odd depth's last pair */
    }
    *row = A_ROW;
    *step = 1;
}

static void pack_b(void *dst, const void *b, int64_t b_step, int64_t b_col, int64_t depth,
                   int64_t columns)
{
    pack_b_pairs(dst, b, b_step, b_col, depth, columns, 2);
}

/* The pair at `at` in every lane. */
GD_SIMD_INLINE __m512bh pair(const uint16_t *at)
{
    int32_t bits;
    memcpy(&bits, at, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

#define PAIRS_A_LINE (GD_LINE_BYTES / 4) /* pairs of a row in a cache line */

GD_SIMD_INLINE void pairs_body(const gd_gemm_tile *t, const int rows, const int vecs)
{
    const int64_t row = t->a_row, b_step = 2 * t->b_step;
    int64_t a_step = 2 * t->a_step;
    const uint16_t *a0 = t->a, *a4 = a0 + 4 * row, *a8 = a4 + 4 * row, *a12 = a8 + 4 * row;
    const uint16_t *b = t->b;
    const char *next_a = t->next_a;
    int64_t next_lines = t->next_lines;
    VEC sum[ROWS_MAX][VECS_MAX];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            sum[i][v] = V(zero)();
    }
    tile_fetch_c(t, rows, vecs);
    for (int64_t left = (t->depth + 1) / 2; left > 0;) {
        int64_t pairs = left;
        if (next_lines-- > 0) {
            const char *line = next_a;
            for (int i = 0; i < rows; i++, line += t->next_a_bytes)
                __builtin_prefetch(line, 0, 2);
            next_a += t->next_a_step;
            pairs = LEAST(left, PAIRS_A_LINE);
        }
        left -= pairs;
        for (; pairs > 0; pairs--) {
            __m512bh bv[VECS_MAX];
            UNROLL
            for (int v = 0; v < vecs; v++)
                bv[v] = (__m512bh)_mm512_loadu_si512(b + v * 2 * LANES);
            UNROLL
            for (int i = 0; i < rows; i++) {
                const uint16_t *a = i < 4 ? a0 : i < 8 ? a4 : i < 12 ? a8 : a12;
                const __m512bh av = pair(a + (i % 4) * row);
                UNROLL
                for (int v = 0; v < vecs; v++)
                    sum[i][v] = _mm512_dpbf16_ps(sum[i][v], av, bv[v]);
            }
            b += b_step;
            a0 += a_step;
            a4 += a_step;
            a8 += rows > 8 ? a_step : 0;
            a12 += rows > 12 ? a_step : 0;
            OPAQUE(a_step); /* as in gemm_tile.h */
        }
    }
    tile_finish(t, sum, rows, vecs);
}

#define PAIRS_KERNELS(rows)                             \
    static void pairs_##rows##_1(const gd_gemm_tile *t) \
    {                                                   \
        pairs_body(t, rows, 1);                         \
    }                                                   \
    static void pairs_##rows##_2(const gd_gemm_tile *t) \
    {                                                   \
        pairs_body(t, rows, 2);                         \
    }
#define PAIRS_ENTRY(rows) pairs_##rows##_1, pairs_##rows##_2
PAIRS_KERNELS(1)
PAIRS_KERNELS(2)
PAIRS_KERNELS(3)
PAIRS_KERNELS(4)
PAIRS_KERNELS(5)
PAIRS_KERNELS(6)
PAIRS_KERNELS(7)
PAIRS_KERNELS(8)
PAIRS_KERNELS(9)
PAIRS_KERNELS(10)
PAIRS_KERNELS(11)
PAIRS_KERNELS(12)
PAIRS_KERNELS(13)
PAIRS_KERNELS(14)

static const gd_gemm_tile_fn kernels[ROWS_MAX * VECS_MAX] = {
    PAIRS_ENTRY(1),  PAIRS_ENTRY(2),  PAIRS_ENTRY(3),  PAIRS_ENTRY(4),  PAIRS_ENTRY(5),
    PAIRS_ENTRY(6),  PAIRS_ENTRY(7),  PAIRS_ENTRY(8),  PAIRS_ENTRY(9),  PAIRS_ENTRY(10),
    PAIRS_ENTRY(11), PAIRS_ENTRY(12), PAIRS_ENTRY(13), PAIRS_ENTRY(14),
};

const gd_gemm_micro gd_gemm_bf16_pairs = { .name = "AVX512-BF16",
                                           .a = GD_BF16,
                                           .b = GD_BF16,
                                           .c = GD_F32,
                                           .a_bytes = 2,
                                           .b_bytes = 2,
                                           .c_bytes = sizeof(float),
                                           .b_packed_bytes = 2,
                                           .packing = 12,
                                           .lanes = LANES,
                                           .lane_shift = LANE_SHIFT,
                                           .rows = ROWS_MAX,
                                           .columns = COLUMNS_MAX,
                                           .row_unit = 1,
                                           .depth = DEPTH,
                                           .depth_unit = 2,
                                           .any_width = true,
                                           .reads_rows_of_a = true,
                                           .height_unit = 1,
                                           .tiles = kernels,
                                           .widths = VECS_MAX,
                                           .pack_a = pack_a,
                                           .pack_b = pack_b,
                                           .store_columns = store_columns,
                                           .copy_runs = copy_runs,
                                           .stream = STREAM,
                                           .relu_grad = relu_grad };

#else
typedef int gd_nothing_here; /* C wants a declaration */
#endif
