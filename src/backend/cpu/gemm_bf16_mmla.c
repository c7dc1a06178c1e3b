/* backend/cpu/gemm_bf16_mmla.c: products of bfloat16 by BFMMLA (Armv8.6), which adds to 2 x 2 sums the
 * products of 2 rows of 4 numbers of A with 4 rows of 2 numbers of B. These are sixteen multiply-adds, of
 * which BFDOT makes eight and f32's instruction four. A tile is 12 x 8, as f32's: 24 registers of sums,
 * four of B and one or two of A. Start at mmla_body.
 *
 * The instruction's order of additions is the definition of the result: of each two steps of k the two
 * products are added, then their sum to the sum before. Both additions round to odd (what is not exact is
 * cut off, and the last bit becomes 1), and whatever is below 2^-126 becomes 0.
 */
#include "backend/cpu/gemm_half.h"

#ifdef GD_HAVE_NEON_BF16

#include "backend/cpu/gemm_finish.h"

#include <arm_neon.h>
#include <string.h>

#define DEPTH     512
#define STEPS     4 /* of k, in a register: [2 rows or columns][4 steps] */
#define PAIRS_MAX (ROWS_MAX / 2)
#define REGISTER  (2 * STEPS)
_Static_assert(ROWS_MAX % 2 == 0 && LANES == 4, "tiles are made of 2 x 2 sums");
_Static_assert(2 * ROWS_MAX * DEPTH <= GD_GEMM_PANEL_BYTES, "there is room for a panel");

/* ---- packing: of A and of B the same ---- */

/* Up to STEPS steps of `lines` rows of A, or columns of B, to [height][STEPS]: zeros where there is no
 * number. Lines are `line` apart, steps `step`. */
static void pack_steps(uint16_t *to, const uint16_t *from, int64_t step, int64_t line,
                       int64_t steps, int64_t lines, int64_t height)
{
    int64_t i = 0;
    for (; line == 1 && steps == STEPS && i + 4 <= lines; i += 4) {
        const uint16_t *at = from + i;
        const uint16x4x4_t square = { { vld1_u16(at), vld1_u16(at + step), vld1_u16(at + 2 * step),
                                        vld1_u16(at + 3 * step) } };
        vst4_u16(to + i * STEPS, square);
    }
    for (; step == 1 && steps == STEPS && i < lines; i++)
        vst1_u16(to + i * STEPS, vld1_u16(from + i * line));
    for (; i < lines; i++)
        for (int64_t s = 0; s < STEPS; s++)
            to[i * STEPS + s] = s < steps ? from[i * line + s * step] : 0;
    memset(to + lines * STEPS, 0, (size_t)((height - lines) * STEPS) * sizeof *to);
}

/* All steps, to [depth / STEPS][height][STEPS]. */
static void pack_panel(uint16_t *to, const uint16_t *from, int64_t step, int64_t line,
                       int64_t depth, int64_t lines, int64_t height)
{
    for (int64_t p = 0; p < depth; p += STEPS, from += STEPS * step, to += STEPS * height)
        pack_steps(to, from, step, line, LEAST(depth - p, STEPS), lines, height);
}

/* *step: from STEPS steps to the next. */
static void pack_a(void *dst, const void *a, int64_t a_row, int64_t a_col, int64_t rows,
                   int64_t depth, int64_t *row, int64_t *step)
{
    const int64_t height = (rows + 1) / 2 * 2;
    *row = STEPS;
    *step = STEPS * height;
    pack_panel(dst, a, a_col, a_row, depth, rows, height);
}

static void pack_b(void *dst, const void *b, int64_t b_step, int64_t b_col, int64_t depth,
                   int64_t columns)
{
    const int64_t packed_depth = (depth + STEPS - 1) / STEPS * STEPS;
    for (int64_t j = 0; j < columns; j += COLUMNS_MAX) {
        const int64_t count = LEAST(columns - j, COLUMNS_MAX);
        pack_panel((uint16_t *)dst + j * packed_depth, (const uint16_t *)b + j * b_col, b_step,
                   b_col, depth, count, (count + LANES - 1) / LANES * LANES);
    }
}

/* ---- tiles ---- */

GD_SIMD_INLINE bfloat16x8_t load_register(const uint16_t *at)
{
    return vreinterpretq_bf16_u16(vld1q_u16(at));
}

/* Row `row` of two neighbouring 2 x 2 sums. */
GD_SIMD_INLINE VEC row_of(VEC left, VEC right, const int row)
{
    const float64x2_t l = vreinterpretq_f64_f32(left), r = vreinterpretq_f64_f32(right);
    return vreinterpretq_f32_f64(row == 0 ? vtrn1q_f64(l, r) : vtrn2q_f64(l, r));
}

/* What is at `address` is read after x is computed: compilers would read all of A first, and keep some sums in
 * memory for lack of registers. It costs no instruction. */
#define READ_AFTER(address, x) __asm__("" : "+r"(address) : "w"(x))

/* An odd height has a row more, of zeros, which is not stored. */
GD_SIMD_INLINE void mmla_body(const gd_gemm_tile *t, const int rows, const int vecs)
{
    const int pairs = (rows + 1) / 2;
    const uint16_t *a = t->a, *b = t->b;
    const int64_t a_step = t->a_step, b_step = STEPS * t->b_step;
    VEC square[PAIRS_MAX][2 * VECS_MAX], sum[ROWS_MAX][VECS_MAX];
    UNROLL
    for (int i = 0; i < pairs; i++) {
        UNROLL
        for (int j = 0; j < 2 * vecs; j++)
            square[i][j] = V(zero)();
    }
    for (int64_t left = t->depth; left > 0; left -= STEPS, a += a_step, b += b_step) {
        bfloat16x8_t bv[2 * VECS_MAX];
        UNROLL
        for (int j = 0; j < 2 * vecs; j++)
            bv[j] = load_register(b + j * REGISTER);
        UNROLL
        for (int i = 0; i < pairs; i++) {
            const bfloat16x8_t av = load_register(a + i * REGISTER);
            UNROLL
            for (int j = 0; j < 2 * vecs; j++) {
                square[i][j] = vbfmmlaq_f32(square[i][j], av, bv[j]);
                READ_AFTER(a, square[i][j]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            sum[i][v] = row_of(square[i / 2][2 * v], square[i / 2][2 * v + 1], i % 2);
    }
    tile_finish(t, sum, rows, vecs);
}

#define MMLA_KERNELS(rows)                             \
    static void mmla_##rows##_1(const gd_gemm_tile *t) \
    {                                                  \
        mmla_body(t, rows, 1);                         \
    }                                                  \
    static void mmla_##rows##_2(const gd_gemm_tile *t) \
    {                                                  \
        mmla_body(t, rows, 2);                         \
    }
#define MMLA_ENTRY(rows) mmla_##rows##_1, mmla_##rows##_2
MMLA_KERNELS(1)
MMLA_KERNELS(2)
MMLA_KERNELS(3)
MMLA_KERNELS(4)
MMLA_KERNELS(5)
MMLA_KERNELS(6)
MMLA_KERNELS(7)
MMLA_KERNELS(8)
MMLA_KERNELS(9)
MMLA_KERNELS(10)
MMLA_KERNELS(11)
MMLA_KERNELS(12)

static const gd_gemm_tile_fn kernels[ROWS_MAX * VECS_MAX] = {
    MMLA_ENTRY(1), MMLA_ENTRY(2), MMLA_ENTRY(3), MMLA_ENTRY(4),  MMLA_ENTRY(5),  MMLA_ENTRY(6),
    MMLA_ENTRY(7), MMLA_ENTRY(8), MMLA_ENTRY(9), MMLA_ENTRY(10), MMLA_ENTRY(11), MMLA_ENTRY(12),
};

const gd_gemm_micro gd_gemm_bf16_mmla = { .name = "BFMMLA",
                                          .a = GD_BF16,
                                          .b = GD_BF16,
                                          .c = GD_F32,
                                          .a_bytes = 2,
                                          .b_bytes = 2,
                                          .c_bytes = sizeof(float),
                                          .b_packed_bytes = 2,
                                          .packing = 8, /* reckoned, not measured */
                                          .lanes = LANES,
                                          .lane_shift = LANE_SHIFT,
                                          .rows = ROWS_MAX,
                                          .columns = COLUMNS_MAX,
                                          .row_unit = 2,
                                          .depth = DEPTH,
                                          .depth_unit = STEPS,
                                          .any_width = GD_SIMD_MASK_FREE,
                                          .height_unit = 1,
                                          .tiles = kernels,
                                          .widths = VECS_MAX,
                                          .pack_a = pack_a,
                                          .pack_b = pack_b,
                                          .copy_runs = copy_runs,
                                          .stream = STREAM,
                                          .relu_grad = relu_grad };

#else
typedef int gd_nothing_here; /* C wants a declaration */
#endif
