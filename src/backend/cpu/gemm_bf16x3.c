/* backend/cpu/gemm_bf16x3.c: products of f32 by instructions that multiply bfloat16. Packers write each
 * number x as two of 16 bits, high = x rounded to bfloat16 and low = x - high, which is exact, rounded
 * likewise. A tile is three tiles of the kernels of bfloat16,
 *     C + (A_low @ B_high + A_high @ B_low), to which A_high @ B_high is added.
 * So C^T = B^T A^T has the same bits. A_low @ B_low, at most 2^-16 of a product, is left out (Henry,
 * Tang & Heinecke 2019, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
 * computations").
 */
#include "backend/cpu/gemm_half.h"

#ifdef GD_HAVE_AVX512_BF16

#include "backend/cpu/gemm_finish.h"
#include "backend/cpu/simd_half.h"

#include <immintrin.h>

#define DEPTH     256
#define COLUMNS   32 /* of a panel of B */
#define LOW_PANEL (GD_GEMM_PANEL_BYTES / 2)
#define MOST_ROWS 32
/* Numbers from one line of a stage to the next where lines go along k: not whole pages apart. */
#define STAGE_LINE (DEPTH + 32)

/* Some numbers as packers of bfloat16 read them. */
typedef struct stage {
    uint16_t high[MOST_ROWS * STAGE_LINE], low[MOST_ROWS * STAGE_LINE];
} stage;

/* What has no finite high part has the largest, so that low, which need not be finite, makes sums that
 * are what they were: infinite, or NaN. Numbers below 2^-126 become 0. */
static inline void split(__m512 x, __mmask16 mask, uint16_t *high, uint16_t *low)
{
    const __m512 most = _mm512_set1_ps(0x1.fep127f);
    const __m512 least = _mm512_set1_ps(-0x1.fep127f);
    /* the second operand, where one is NaN */
    const __m512 within = _mm512_max_ps(least, _mm512_min_ps(most, x));
    const __m256i upper = (__m256i)_mm512_cvtneps_pbh(within);
    _mm256_mask_storeu_epi16(high, mask, upper);
    _mm256_mask_storeu_epi16(low, mask,
                             (__m256i)_mm512_cvtneps_pbh(_mm512_sub_ps(x, vf32_of_bf16(upper))));
}

/* x [lines, count], numbers of a line `step` apart, to a stage whose lines are `stride` apart. */
static void split_lines(const float *x, int64_t line, int64_t step, int64_t lines, int64_t count,
                        stage *to, int64_t stride)
{
    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < count; j += 16) {
            const float *from = x + i * line + j * step;
            const __mmask16 mask = V(mask_first)(LEAST(count - j, LANES));
            float gathered[16];
            if (step != 1) {
                for (int64_t l = 0; l < 16 && j + l < count; l++)
                    gathered[l] = from[l * step];
                from = gathered;
            }
            split(_mm512_maskz_loadu_ps(mask, from), mask, to->high + i * stride + j,
                  to->low + i * stride + j);
        }
}

/* a [rows, depth] -> a panel of high parts and, LOW_PANEL bytes on, one of low parts. */
static inline void pack_a(const gd_gemm_micro *half, void *dst, const float *a, int64_t a_row,
                          int64_t a_col, int64_t rows, int64_t depth, int64_t *row, int64_t *step)
{
    stage s;
    const bool along = a_row != 1 || a_col == 1; /* lines are rows; else they are steps */
    const int64_t s_row = along ? STAGE_LINE : 1, s_col = along ? 1 : MOST_ROWS;
    if (along)
        split_lines(a, a_row, a_col, rows, depth, &s, STAGE_LINE);
    else
        split_lines(a, a_col, a_row, depth, rows, &s, MOST_ROWS);
    half->pack_a(dst, s.high, s_row, s_col, rows, depth, row, step);
    half->pack_a((char *)dst + LOW_PANEL, s.low, s_row, s_col, rows, depth, row, step);
}

/* b [depth, columns] -> panels of 32 columns, high parts and then low parts, as the kernels' packer
 * leaves them. */
static inline void pack_b(const gd_gemm_micro *half, void *dst, const float *b, int64_t b_step,
                          int64_t b_col, int64_t depth, int64_t columns)
{
    const int64_t unit = half->depth_unit, packed_depth = (depth + unit - 1) / unit * unit;
    const bool along = b_step == 1 && b_col != 1; /* lines are columns; else they are steps */
    for (int64_t j = 0; j < columns; j += COLUMNS) {
        stage s;
        const int64_t count = LEAST(columns - j, COLUMNS);
        const int64_t width = gd_gemm_vectors(half, count) << half->lane_shift;
        uint16_t *high = (uint16_t *)dst + 2 * j * packed_depth, *low = high + width * packed_depth;
        if (along)
            split_lines(b + j * b_col, b_col, b_step, count, depth, &s, STAGE_LINE);
        else
            split_lines(b + j * b_col, b_step, b_col, depth, count, &s, COLUMNS);
        half->pack_b(high, s.high, along ? 1 : COLUMNS, along ? STAGE_LINE : 1, depth, count);
        half->pack_b(low, s.low, along ? 1 : COLUMNS, along ? STAGE_LINE : 1, depth, count);
    }
}

static inline void multiply_tile(const gd_gemm_micro *half, const gd_gemm_tile *t)
{
    _Alignas(GD_LINE_BYTES) float low_high[MOST_ROWS * COLUMNS], high_low[MOST_ROWS * COLUMNS];
    const int64_t vectors = gd_gemm_vectors(half, t->columns), unit = half->depth_unit;
    const int64_t packed_depth = (t->depth + unit - 1) / unit * unit;
    const int64_t rows = (t->rows + half->height_unit - 1) / half->height_unit * half->height_unit;
    const gd_gemm_tile_fn multiply = gd_gemm_tile_kernel(half, t->rows, vectors);
    const char *a_low = (const char *)t->a + LOW_PANEL;
    const uint16_t *b_low = (const uint16_t *)t->b + t->b_step * packed_depth;
    gd_gemm_tile part = *t;
    part.column_bias = part.row_bias = NULL;
    part.accumulate = part.relu = false;
    part.c_row = COLUMNS;
    part.a = a_low;
    part.c = low_high;
    multiply(&part);
    part.next_lines = 0;
    part.a = t->a;
    part.b = b_low;
    part.c = high_low;
    multiply(&part);
    float *c = t->c;
    for (int64_t i = 0; i < rows; i++, c += t->c_row)
        for (int64_t j = 0; j < vectors * LANES; j += LANES) {
            const __mmask16 mask =
                V(mask_first)(half->any_width ? LEAST(t->columns - j, LANES) : LANES);
            const int64_t at = i * COLUMNS + j;
            __m512 sum = _mm512_add_ps(_mm512_maskz_load_ps(mask, low_high + at),
                                       _mm512_maskz_load_ps(mask, high_low + at));
            if (t->accumulate)
                sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c + j), sum);
            _mm512_mask_storeu_ps(c + j, mask, sum);
        }
    part = *t;
    part.accumulate = true;
    part.next_lines = 0;
    multiply(&part);
}

/* Functions of the kernels `half`, and what the descriptor of both has. */
#define FOUR(x)    x, x, x, x
#define SIXTEEN(x) FOUR(x), FOUR(x), FOUR(x), FOUR(x)
#define DEFINE_KERNELS(name, half)                                                             \
    static void name##_pack_a(void *dst, const void *a, int64_t a_row, int64_t a_col,          \
                              int64_t rows, int64_t depth, int64_t *row, int64_t *step)        \
    {                                                                                          \
        pack_a(&half, dst, a, a_row, a_col, rows, depth, row, step);                           \
    }                                                                                          \
    static void name##_pack_b(void *dst, const void *b, int64_t b_step, int64_t b_col,         \
                              int64_t depth, int64_t columns)                                  \
    {                                                                                          \
        pack_b(&half, dst, b, b_step, b_col, depth, columns);                                  \
    }                                                                                          \
    static void name##_tile(const gd_gemm_tile *t)                                             \
    {                                                                                          \
        multiply_tile(&half, t);                                                               \
    }                                                                                          \
    static const gd_gemm_tile_fn name##_kernels[2 * MOST_ROWS] = {                             \
        SIXTEEN(name##_tile), SIXTEEN(name##_tile), SIXTEEN(name##_tile), SIXTEEN(name##_tile) \
    };
#define COMMON(name)                                                                           \
    .a = GD_F32, .b = GD_F32, .c = GD_F32, .a_bytes = sizeof(float), .b_bytes = sizeof(float), \
    .c_bytes = sizeof(float), .b_packed_bytes = sizeof(float), .lanes = LANES,                 \
    .lane_shift = LANE_SHIFT, .columns = COLUMNS, .depth = DEPTH, .tiles = name##_kernels,     \
    .widths = COLUMNS / LANES, .pack_a = name##_pack_a, .pack_b = name##_pack_b,               \
    .store_columns = store_columns, .copy_runs = copy_runs, .stream = STREAM,                  \
    .relu_grad = relu_grad

DEFINE_KERNELS(pairs, gd_gemm_bf16_pairs)
const gd_gemm_micro gd_gemm_bf16x3_pairs = {
    COMMON(pairs),    .name = "three of bf16 by AVX512-BF16",
    .packing = 12, /* reckoned, not measured */
    .rows = ROWS_MAX, .row_unit = 1,
    .depth_unit = 2,  .any_width = true,
    .height_unit = 1
};

#ifdef GD_HAVE_AMX_BF16
static void begin(void)
{
    gd_gemm_bf16_tiles.begin();
}

static void end(void)
{
    gd_gemm_bf16_tiles.end();
}

DEFINE_KERNELS(tiles, gd_gemm_bf16_tiles)
const gd_gemm_micro gd_gemm_bf16x3_tiles = { COMMON(tiles),     .name = "three of bf16 by AMX",
                                             .packing = 80, /* reckoned, not measured */
                                             .rows = MOST_ROWS, .row_unit = 16,
                                             .depth_unit = 32,  .height_unit = 16,
                                             .begin = begin,    .end = end };
#endif

#else
typedef int gd_nothing_here; /* C wants a declaration */
#endif
