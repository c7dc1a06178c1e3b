/* backend/cpu/gemm_bf16_tiles.c: products of bfloat16 by AMX, an engine with eight registers of 16
 * rows of 64 bytes. TDPBF16PS adds to 16 x 16 sums the products of 16 rows of 32 numbers of A with
 * 32 rows of 16 numbers of B. A tile here is 32 x 32: four registers of sums, two of A, two of B.
 */
#include "backend/cpu/gemm_half.h"

#ifdef GD_HAVE_AMX_BF16

#include "backend/cpu/gemm_bf16_pack.h"
#include "backend/cpu/gemm_finish.h"

#include <immintrin.h>

#define DEPTH    512
#define ROWS     32
#define STEPS    32                     /* of k, in a register of A */
#define REGISTER (16 * STEPS)           /* numbers of one */
#define A_BLOCK  (ROWS / 16 * REGISTER) /* from step to step of 32 of a panel of A */
_Static_assert(2 * ROWS * DEPTH <= GD_GEMM_PANEL_BYTES, "there is room for a panel");
_Static_assert(sizeof(float) * ROWS * 32 <= GD_GEMM_MOST_TILE_BYTES, "and for a tile");

/* 16 rows of 32 steps of A, transposed in memory, to a register: zeros where A has no number. */
static void pack_square(uint16_t *to, const uint16_t *a, int64_t a_col, int64_t rows, int64_t steps)
{
    const __mmask16 mask = (__mmask16)((1u << rows) - 1);
    VEC square[16];
    UNROLL
    for (int i = 0; i < 16; i++) {
        const __mmask16 low = 2 * i < steps ? mask : 0, high = 2 * i + 1 < steps ? mask : 0;
        const uint16_t *from = a + 2 * i * a_col;
        square[i] = _mm512_castsi512_ps(interleave(_mm256_maskz_loadu_epi16(low, from),
                                                   _mm256_maskz_loadu_epi16(high, from + a_col)));
    }
    V(transpose)(square);
    UNROLL
    for (int i = 0; i < 16; i++)
        V(store)((float *)(void *)(to + i * STEPS), square[i]);
}

static void pack_transposed_a(uint16_t *to, const uint16_t *a, int64_t a_col, int64_t rows,
                              int64_t depth)
{
    for (int64_t p = 0; p < depth; p += STEPS)
        for (int64_t i = 0; i < ROWS; i += 16, to += REGISTER)
            pack_square(to, a + p * a_col + i, a_col, LEAST(rows > i ? rows - i : 0, 16),
                        depth - p);
}

/* A register each, as they are read: [depth / 32][2][16][32], zeros where A has no number. */
static void pack_a(void *dst, const void *from, int64_t a_row, int64_t a_col, int64_t rows,
                   int64_t depth, int64_t *row, int64_t *step)
{
    *row = STEPS;
    *step = A_BLOCK;
    if (a_row == 1 && a_col != 1) {
        pack_transposed_a(dst, from, a_col, rows, depth);
        return;
    }
    for (int64_t i = 0; i < ROWS; i++) {
        const uint16_t *a = (const uint16_t *)from + LEAST(i, rows - 1) * a_row;
        uint16_t *to = (uint16_t *)dst + i / 16 * REGISTER + i % 16 * STEPS;
        for (int64_t p = 0; p < depth; p += STEPS, to += A_BLOCK) {
            const int64_t count = i < rows ? LEAST(depth - p, STEPS) : 0;
            if (a_col == 1) {
                const __mmask32 mask = (__mmask32)((1ull << count) - 1);
                _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(mask, a + p));
                continue;
            }
            for (int64_t s = 0; s < STEPS; s++)
                to[s] = s < count ? a[(p + s) * a_col] : 0;
        }
    }
}

static void pack_b(void *dst, const void *b, int64_t b_step, int64_t b_col, int64_t depth,
                   int64_t columns)
{
    pack_b_pairs(dst, b, b_step, b_col, depth, columns, STEPS);
}

/* What there is to do with sums besides storing them: those of the rows and columns of C. */
static void finish(const gd_gemm_tile *t, int64_t width)
{
    const float *column_bias = t->column_bias, *row_bias = t->row_bias;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < width; j += LANES) {
            float *c = (float *)t->c + i * t->c_row + j;
            VEC x = V(load)(c);
            if (column_bias)
                x = V(add)(x, V(load)(column_bias + j));
            if (row_bias)
                x = V(add)(x, V(set1)(row_bias[i * t->row_bias_stride]));
            V(store)(c, t->relu ? V(relu)(x) : x);
        }
}

/* Registers 0 to 3 are sums, by rows and columns; 4 and 5 of A; 6 and 7 of B. */
GD_SIMD_INLINE void tiles_body(const gd_gemm_tile *t, const bool two_rows, const bool two_columns)
{
    const uint16_t *a = t->a, *b = t->b;
    float *c = t->c;
    const int64_t c_bytes = t->c_row * (int64_t)sizeof(float), b_bytes = 4 * t->b_step;
    float *below = c + 16 * t->c_row;
    if (t->accumulate) {
        _tile_loadd(0, c, c_bytes);
        if (two_columns)
            _tile_loadd(1, c + 16, c_bytes);
        if (two_rows)
            _tile_loadd(2, below, c_bytes);
        if (two_rows && two_columns)
            _tile_loadd(3, below + 16, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t p = 0; p < t->depth; p += STEPS, a += t->a_step, b += STEPS * t->b_step) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (two_columns) {
            _tile_loadd(7, b + 32, b_bytes);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, a + REGISTER, 64);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (two_rows && two_columns)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    if (two_columns)
        _tile_stored(1, c + 16, c_bytes);
    if (two_rows)
        _tile_stored(2, below, c_bytes);
    if (two_rows && two_columns)
        _tile_stored(3, below + 16, c_bytes);
    if (t->column_bias || t->row_bias || t->relu)
        finish(t, two_columns ? 32 : 16);
}

static void tile_16_16(const gd_gemm_tile *t)
{
    tiles_body(t, false, false);
}

static void tile_16_32(const gd_gemm_tile *t)
{
    tiles_body(t, false, true);
}

static void tile_32_16(const gd_gemm_tile *t)
{
    tiles_body(t, true, false);
}

static void tile_32_32(const gd_gemm_tile *t)
{
    tiles_body(t, true, true);
}

/* The engine's shape is state of a thread: eight registers of 16 rows of 64 bytes. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} shape = { .palette = 1,
            .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
            .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };

static void begin(void)
{
    _tile_loadconfig(&shape);
}

static void end(void)
{
    _tile_release();
}

#define FOUR(x) x, x, x, x
#define LOW     tile_16_16, tile_16_32
#define HIGH    tile_32_16, tile_32_32
static const gd_gemm_tile_fn kernels[ROWS * 2] = {
    FOUR(LOW),  FOUR(LOW),  FOUR(LOW),  FOUR(LOW), /* up to 16 rows */
    FOUR(HIGH), FOUR(HIGH), FOUR(HIGH), FOUR(HIGH),
};

const gd_gemm_micro gd_gemm_bf16_tiles = { .name = "AMX",
                                           .a = GD_BF16,
                                           .b = GD_BF16,
                                           .c = GD_F32,
                                           .a_bytes = 2,
                                           .b_bytes = 2,
                                           .c_bytes = sizeof(float),
                                           .b_packed_bytes = 2,
                                           .packing = 80, /* reckoned, not measured */
                                           .lanes = LANES,
                                           .lane_shift = LANE_SHIFT,
                                           .rows = ROWS,
                                           .columns = 32,
                                           .row_unit = 16,
                                           .depth = DEPTH,
                                           .depth_unit = STEPS,
                                           .height_unit = 16,
                                           .tiles = kernels,
                                           .widths = 2,
                                           .pack_a = pack_a,
                                           .pack_b = pack_b,
                                           .copy_runs = copy_runs,
                                           .stream = STREAM,
                                           .relu_grad = relu_grad,
                                           .begin = begin,
                                           .end = end };

#else
typedef int gd_nothing_here; /* C wants a declaration */
#endif
