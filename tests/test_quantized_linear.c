/* tests/test_quantized_linear.c: products with weights in blocks of 8 and of 4 bits, without and with least values, as
 * ops/quantized.c defines them: against an oracle written here, with the same bits on every instruction set and number of
 * threads; how far they are from the product that is not rounded; gradients; what is refused. The
 * layouts and dtypes of x, compiled and exported code are tried with the row of the op. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "base/half.h"
#include "support/context.h"
#include "support/isas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 33 blocks: four rounds of the lanes, and one more. The longest has 264. */
enum { MOST_ROWS = 200, MOST_COLUMNS = 35, MOST_INNER = 8448 };

typedef enum form { EIGHT_BITS, FOUR_BITS, EIGHT_WITH_LEAST, FOUR_WITH_LEAST, FORMS } form;

typedef struct product {
    int64_t rows, columns, inner;
    int64_t scales_of_row;
    bool has_least; /* scales are d and e of each block, a weight is d * value - e */
    float *x, *scales, *result;
    int8_t *values;
    uint8_t *halves; /* the same in 4 bits; else NULL */
    uint16_t *half_scales;
} product;

static float uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) * 0x1p-23f - 1.0f;
}

/* As GGUF's Q4_0 and Q4_1 have them: weights i and i + 16 of a block in byte i, without least values plus 8. */
static void put_halves(product *p)
{
    p->halves = calloc((size_t)p->columns, (size_t)p->inner / 2);
    assert_non_null(p->halves);
    for (int64_t i = 0; i < p->columns * p->inner; i++)
        p->halves[i / 32 * 16 + i % 16] |=
            (uint8_t)((unsigned)(p->values[i] + (p->has_least ? 0 : 8)) << (i % 32 < 16 ? 0 : 4));
}

/* Weights are any i8, -128 among them, or any of 4 bits; blocks of x are of sizes from 2^-20 to 2^20. */
static product make_of(int64_t rows, int64_t columns, int64_t inner, form of)
{
    const bool four_bits = of == FOUR_BITS || of == FOUR_WITH_LEAST;
    product p = { .rows = rows,
                  .columns = columns,
                  .inner = inner,
                  .has_least = of == EIGHT_WITH_LEAST || of == FOUR_WITH_LEAST };
    p.scales_of_row = inner / 32 * (p.has_least ? 2 : 1);
    uint64_t state = (uint64_t)(rows * 31 + columns * 7 + inner);
    p.x = calloc((size_t)(rows * inner), sizeof *p.x);
    p.values = calloc((size_t)(columns * inner), 1);
    p.scales = calloc((size_t)(columns * p.scales_of_row), sizeof *p.scales);
    p.half_scales = calloc((size_t)(columns * p.scales_of_row), sizeof *p.half_scales);
    p.result = calloc((size_t)(rows * columns), sizeof *p.result);
    assert_true(p.x && p.values && p.scales && p.half_scales && p.result);
    for (int64_t i = 0; i < rows * inner; i++)
        p.x[i] = ldexpf(uniform(&state), (int)(i / 32 * 7 % 41) - 20);
    for (int64_t i = 0; i < columns * inner; i++)
        p.values[i] = (int8_t)(four_bits ? (int)floorf(uniform(&state) * 8) + (p.has_least ? 8 : 0)
                               : i % 37 == 0 ? -128
                                             : (int)(uniform(&state) * 127.9f));
    for (int64_t i = 0; i < columns * p.scales_of_row; i++) {
        p.half_scales[i] = gd_f32_to_f16(uniform(&state) * 0.01f);
        p.scales[i] = gd_f16_to_f32(p.half_scales[i]);
    }
    if (four_bits)
        put_halves(&p);
    return p;
}

static product make(int64_t rows, int64_t columns, int64_t inner)
{
    return make_of(rows, columns, inner, EIGHT_BITS);
}

static void release(product *p)
{
    free(p->halves);
    free(p->x);
    free(p->values);
    free(p->scales);
    free(p->half_scales);
    free(p->result);
}

/* ---- the oracle: sums as integers, rounding by the C library in double ---- */

static float term(const product *p, int64_t i, int64_t j, int64_t b)
{
    const float *x = p->x + i * p->inner + b * 32;
    float most = 0;
    int64_t sum = 0, of_x = 0;
    for (int k = 0; k < 32; k++)
        most = fmaxf(most, fabsf(x[k]));
    const double largest = (double)most;
    if (largest < ldexp(1, -100))
        return 0;
    const float factor = (float)(127.0 / largest), scale = (float)(largest / 127.0);
    for (int k = 0; k < 32; k++) {
        const int64_t q = lrint((float)((double)x[k] * factor));
        sum += q * p->values[j * p->inner + b * 32 + k];
        of_x += q;
    }
    const float *by = p->scales + j * p->scales_of_row + (p->has_least ? 2 * b : b);
    const float both = (float)((double)scale * (double)by[0]);
    const float all = (float)((double)both * (double)sum);
    if (!p->has_least)
        return all;
    const float both_least = (float)((double)scale * (double)by[1]);
    return all - (float)((double)both_least * (double)of_x);
}

static void compute(product *p)
{
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            float l[8] = { 0 };
            for (int64_t b = 0; b < p->inner / 32; b++)
                l[b % 8] += term(p, i, j, b);
            p->result[i * p->columns + j] =
                ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
        }
}

static gd_tensor *weights_of(gd_context *gd, const product *p)
{
    if (p->halves)
        return gd_from_host(gd, GD_SHAPE(p->columns, p->inner / 2), GD_U8, p->halves);
    return gd_from_host(gd, GD_SHAPE(p->columns, p->inner), GD_I8, p->values);
}

static gd_tensor *scales_of(gd_context *gd, const product *p, gd_dtype dtype)
{
    return gd_from_host(gd, GD_SHAPE(p->columns, p->scales_of_row), dtype,
                        dtype == GD_F16 ? (const void *)p->half_scales : p->scales);
}

static gd_tensor *x_of(gd_context *gd, const product *p)
{
    return gd_from_host(gd, GD_SHAPE(p->rows, p->inner), GD_F32, p->x);
}

static void check(gd_context *gd, const product *p, gd_dtype scales, const char *where)
{
    gd_tensor *y = gd_quantized_linear(x_of(gd, p), weights_of(gd, p), scales_of(gd, p, scales));
    float got[MOST_ROWS * MOST_COLUMNS];
    const size_t bytes = (size_t)(p->rows * p->columns) * sizeof *got;
    assert_true(bytes <= sizeof got);
    assert_int_equal(gd_tensor_read(y, got, bytes), GD_OK);
    for (int64_t i = 0; i < p->rows * p->columns; i++)
        if (memcmp(&got[i], &p->result[i], sizeof *got) != 0)
            fail_msg("%s, %d bits%s: element %lld of %lld x %lld x %lld is %a, the definition "
                     "gives %a",
                     where, p->halves ? 4 : 8, p->has_least ? " with least values" : "",
                     (long long)i, (long long)p->rows, (long long)p->columns, (long long)p->inner,
                     (double)got[i], (double)p->result[i]);
}

static void every_instruction_set_gives_the_defined_bits(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {
        { 1, 1, 32 },         { 1, 21, 224 },       { 3, 5, 256 },          { 2, 7, 288 },
        { 1, 19, 1056 },      { 1, 2, MOST_INNER }, { MOST_ROWS, 9, 1056 }, { 4, 35, 224 },
        { 16, 33, 288 },      { 17, 16, 32 },       { 29, 3, 256 },         { 50, 35, 1056 },
        { 9, 2, MOST_INNER }, { MOST_ROWS, 35, 64 }
    };
    for (size_t n = 0; n < FORMS * (sizeof sizes / sizeof *sizes); n++) {
        const int64_t *size = sizes[n / FORMS];
        product p = make_of(size[0], size[1], size[2], (form)(n % FORMS));
        compute(&p);
        for (size_t i = 0; i < ISAS; i++)
            for (int threads = 1; threads <= 3; threads += 2) {
                gd_context *gd = open_isa(isas[i], threads);
                if (!gd)
                    continue;
                check(gd, &p, GD_F16, isas[i]);
                check(gd, &p, GD_F32, isas[i]);
                gd_close(gd);
            }
        release(&p);
    }
}

/* With the smallest cache that may be asked for, packed rows come in several rounds. */
static void try_a_small_cache(form of)
{
    product p = make_of(MOST_ROWS, 33, 1056, of);
    compute(&p);
    setenv("GRADUS_L2", "64K", 1);
    for (size_t i = 0; i < ISAS; i++)
        for (int threads = 1; threads <= 3; threads++) {
            gd_context *gd = open_isa(isas[i], threads);
            if (!gd)
                continue;
            check(gd, &p, GD_F16, isas[i]);
            gd_close(gd);
        }
    unsetenv("GRADUS_L2");
    release(&p);
}

static void a_small_cache_gives_the_same_bits(void **state)
{
    (void)state;
    for (int of = 0; of < FORMS; of++)
        try_a_small_cache((form)of);
}

/* Longest rows, of which no tile fits the scratch, and one fills it: a 1 in the last block. */
static void longest_rows_fit(gd_context *gd, int64_t rows)
{
    const int64_t inner = 1 << 18;
    gd_tensor *x = gd_cast(
        gd_ge(gd_arange(gd, 0, (double)inner, 1, GD_I32), gd_scalar(gd, (double)inner - 1, GD_I32)),
        GD_F32);
    x = gd_broadcast_to(x, GD_SHAPE(rows, inner));
    gd_tensor *values = gd_full(gd, GD_SHAPE(3, inner), 7, GD_I8);
    gd_tensor *y = gd_quantized_linear(x, values, gd_full(gd, GD_SHAPE(3, inner / 32), 2, GD_F16));
    assert_true(gd_item(gd_min(y, GD_ALL_AXES, false)) == 14.0);
    assert_true(gd_item(gd_max(y, GD_ALL_AXES, false)) == 14.0);
    gd_tensor *halves = gd_full(gd, GD_SHAPE(3, inner / 2), 0xc9, GD_U8); /* 1, and 4 */
    y = gd_quantized_linear(x, halves, gd_full(gd, GD_SHAPE(3, inner / 32), 2, GD_F16));
    assert_true(gd_item(gd_min(y, GD_ALL_AXES, false)) == 8.0);
    assert_true(gd_item(gd_max(y, GD_ALL_AXES, false)) == 8.0);
    gd_tensor *both = gd_full(gd, GD_SHAPE(3, inner / 16), 2, GD_F16); /* d w - e */
    assert_true(gd_item(gd_sum(gd_quantized_linear(x, values, both), GD_ALL_AXES, false)) ==
                12.0 * 3 * (double)rows);
    assert_true(gd_item(gd_sum(gd_quantized_linear(x, halves, both), GD_ALL_AXES, false)) ==
                22.0 * 3 * (double)rows);
}

static void the_longest_row_fits(void **state)
{
    longest_rows_fit(*state, 1);
    longest_rows_fit(*state, 17);
}

/* ---- rows that are not numbers, and very small ones ---- */

static void strange_numbers_have_a_meaning(void **state)
{
    (void)state;
    static const struct {
        float x;
        bool is_nan, is_zero;
    } cases[] = { { NAN, true, false },        { INFINITY, true, false },
                  { -INFINITY, true, false },  { 0x1p-101f, false, true },
                  { 0x1p-149f, false, true },  { -0.0f, false, true },
                  { 0x1p-100f, false, false }, { 0x1.fffffep127f, false, false } };
    for (size_t i = 0; i < ISAS; i++) {
        gd_context *gd = open_isa(isas[i], 1);
        if (!gd)
            continue;
        gd_tensor *values = gd_full(gd, GD_SHAPE(2, 32), 3, GD_I8);
        gd_tensor *scales[2] = { gd_full(gd, GD_SHAPE(2, 1), 0.5, GD_F16),
                                 gd_full(gd, GD_SHAPE(2, 2), 0.25, GD_F16) };
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            float x[19 * 32] = { 0 }, y[38];
            x[32 + 13] = cases[c].x;
            for (int n = 0; n < 4; n++) {
                const int rows = n < 2 ? 3 : 19;
                gd_tensor *r = gd_quantized_linear(gd_from_host(gd, GD_SHAPE(rows, 32), GD_F32, x),
                                                   values, scales[n % 2]);
                assert_int_equal(gd_tensor_read(r, y, (size_t)rows * 2 * sizeof *y), GD_OK);
                assert_true(y[0] == 0 && y[1] == 0 && y[4] == 0 && y[5] == 0);
                assert_true(isnan(y[2]) == cases[c].is_nan && (y[2] == 0) == cases[c].is_zero);
            }
        }
        gd_close(gd);
    }
}

/* ---- beside the product that is not rounded ---- */

static gd_tensor *dequantized(gd_context *gd, const product *p)
{
    gd_tensor *w =
        gd_from_host(gd, GD_SHAPE(p->columns, p->inner), GD_I8, p->values); /* also of 4 bits */
    w = gd_cast(w, GD_F32);
    gd_tensor *blocks = gd_reshape(w, GD_SHAPE(p->columns, -1, 32));
    gd_tensor *by = gd_reshape(scales_of(gd, p, GD_F32),
                               GD_SHAPE(p->columns, p->inner / 32, p->has_least ? 2 : 1));
    gd_tensor *scaled = gd_mul(blocks, gd_slice(by, 2, 0, 1, 1));
    if (p->has_least)
        scaled = gd_sub(scaled, gd_slice(by, 2, 1, 2, 1));
    return gd_reshape(scaled, GD_SHAPE(p->columns, p->inner));
}

static void weights_are_what_they_stand_for(void **state)
{
    for (int of = 0; of < FORMS; of++)
        for (int i = 0; i < 2; i++) {
            product p = make_of(5, 7, 96, (form)of);
            gd_tensor *values = weights_of(*state, &p);
            gd_tensor *scales = scales_of(*state, &p, i ? GD_F16 : GD_F32);
            assert_same_bits(gd_dequantize(values, scales), dequantized(*state, &p));
            assert_null(gd_dequantize(values, gd_slice(scales, 1, 0, 2, 1)));
            expect_error(GD_ERR_SHAPE, "and [.., in / 32], or [.., in / 16] with least values, or");
            assert_null(gd_dequantize(gd_cast(values, GD_F32), scales));
            expect_error(GD_ERR_DTYPE, "the values are f32");
            release(&p);
        }
}

/* Rounding moves a number by half a step at most, 1/254 of the largest of its block. */
static void round_within_the_bound(gd_context *gd, form of)
{
    product p = make_of(5, 11, 1056, of);
    gd_tensor *x = x_of(gd, &p), *w = dequantized(gd, &p);
    gd_tensor *y = gd_quantized_linear(x, weights_of(gd, &p), scales_of(gd, &p, GD_F16));
    gd_tensor *exact = gd_matmul(gd_cast(x, GD_F64), gd_cast(gd_transpose(w, 0, 1), GD_F64));
    gd_tensor *blocks = gd_reshape(x, GD_SHAPE(5, -1, 32));
    gd_tensor *steps = gd_max(gd_abs(blocks), GD_AXES(2), true);
    gd_tensor *most = gd_reshape(gd_broadcast_to(steps, GD_SHAPE(5, 33, 32)), GD_SHAPE(5, 1056));
    gd_tensor *bound = gd_mul_scalar(gd_matmul(most, gd_transpose(gd_abs(w), 0, 1)), 1.01 / 254);
    gd_tensor *off = gd_abs(gd_sub(gd_cast(y, GD_F64), exact));
    assert_true(gd_item(gd_all(gd_le(off, gd_cast(bound, GD_F64)), GD_ALL_AXES, false)) == 1);
    assert_true(gd_item(gd_max(off, GD_ALL_AXES, false)) > 0);
    release(&p);
}

static void rounding_stays_within_its_bound(void **state)
{
    for (int of = 0; of < FORMS; of++)
        round_within_the_bound(*state, (form)of);
}

static void try_gradients(gd_context *gd, form of)
{
    product p = make_of(5, 11, 96, of);
    for (int rank = 1; rank <= 3; rank++) {
        gd_tensor *x =
            rank == 1 ? gd_contiguous(gd_reshape(gd_slice(x_of(gd, &p), 0, 0, 1, 1), GD_SHAPE(96)))
            : rank == 2 ? x_of(gd, &p)
                        : gd_reshape(x_of(gd, &p), GD_SHAPE(1, 5, 96));
        x = gd_set_requires_grad(gd_detach(x), true);
        gd_tensor *y = gd_quantized_linear(x, weights_of(gd, &p), scales_of(gd, &p, GD_F16));
        gd_tensor *seed = gd_add_scalar(gd_detach(y), 1.0), *d;
        assert_int_equal(gd_grad(1, &y, &seed, 1, &x, &d), GD_OK);
        assert_same_bits(d, gd_matmul(seed, dequantized(gd, &p)));
    }
    release(&p);
}

static void x_has_the_gradient_of_the_product_and_weights_none(void **state)
{
    for (int of = 0; of < FORMS; of++)
        try_gradients(*state, (form)of);
}

static void other_dtypes_of_x_are_taken_as_f32(void **state)
{
    gd_context *gd = *state;
    product p = make(3, 7, 96);
    gd_tensor *w = weights_of(gd, &p), *s = scales_of(gd, &p, GD_F16);
    static const gd_dtype dtypes[] = { GD_BF16, GD_F16, GD_F64, GD_I32 };
    for (int i = 0; i < 4; i++) {
        gd_tensor *x = gd_cast(gd_uniform(gd, GD_SHAPE(3, 96), -9, 9, GD_F32), dtypes[i]);
        gd_tensor *y = gd_quantized_linear(x, w, s);
        const gd_dtype gives = dtypes[i] == GD_I32 ? GD_F32 : dtypes[i];
        assert_int_equal(gd_tensor_dtype(y), gives);
        assert_same_bits(y, gd_cast(gd_quantized_linear(gd_cast(x, GD_F32), w, s), gives));
    }
    release(&p);
}

static void other_dtypes_of_weights_are_refused(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_zeros(gd, GD_SHAPE(2, 32), GD_F32), *w = gd_zeros(gd, GD_SHAPE(3, 32), GD_I8);
    gd_tensor *s = gd_zeros(gd, GD_SHAPE(3, 1), GD_F16);
    assert_null(gd_quantized_linear(x, gd_cast(w, GD_I16), s));
    expect_error(GD_ERR_DTYPE, "i8 or u8, and f16 or f32, expected");
    assert_null(gd_quantized_linear(x, w, gd_cast(s, GD_BF16)));
    expect_error(GD_ERR_DTYPE, "i8 or u8, and f16 or f32, expected");
    assert_null(gd_quantized_linear(x, gd_cast(w, GD_U8), s));
    expect_error(GD_ERR_SHAPE, "u8 [out, in / 2] and [out, in / 32], or");
    assert_null(gd_quantized_linear(x, gd_zeros(gd, GD_SHAPE(3, 16), GD_I8), s));
    expect_error(GD_ERR_SHAPE, "i8 [out, in] and [out, in / 32], or");
    const int64_t inner = (1 << 18) + 32;
    assert_null(gd_quantized_linear(gd_zeros(gd, GD_SHAPE(inner), GD_F32),
                                    gd_zeros(gd, GD_SHAPE(1, inner), GD_I8),
                                    gd_zeros(gd, GD_SHAPE(1, inner / 32), GD_F16)));
    expect_error(GD_ERR_SHAPE, "at most 262144");
}

/* By blocks and by channels: what is read is half a step off at most, scales are those that are defined, and a product with
 * them is near that of the weights. */
static void weights_of_ones_own_are_rounded(void **state)
{
    enum { ROWS = 6, INNER = 96, BLOCKS = INNER / 32, SAMPLES = 5 };
    float w[ROWS * INNER], x[SAMPLES * INNER], scales[ROWS * BLOCKS], back[ROWS * INNER];
    for (int i = 0; i < ROWS * INNER; i++)
        w[i] = sinf((float)(i * 37 % 101)) * (i % 32 == 5 ? 3.0f : 1.0f);
    memset(w + INNER, 0, INNER * sizeof *w); /* a row of zeros */
    for (int i = 0; i < SAMPLES * INNER; i++)
        x[i] = cosf((float)(i * 53 % 97));
    gd_tensor *weights = gd_from_host(*state, GD_SHAPE(ROWS, INNER), GD_F32, w), *s = NULL;
    gd_tensor *in = gd_from_host(*state, GD_SHAPE(SAMPLES, INNER), GD_F32, x);
    for (int per_channel = 0; per_channel < 2; per_channel++) {
        gd_tensor *q = gd_quantize(weights, per_channel, &s);
        assert_non_null(q);
        assert_int_equal(gd_tensor_dtype(q), GD_I8);
        assert_int_equal(gd_tensor_read(s, scales, sizeof scales), GD_OK);
        assert_int_equal(gd_tensor_read(gd_dequantize(q, s), back, sizeof back), GD_OK);
        for (int r = 0; r < ROWS; r++)
            for (int b = 0; b < BLOCKS; b++) {
                const int from = per_channel ? 0 : b * 32, to = per_channel ? INNER : from + 32;
                float most = 0;
                for (int i = from; i < to; i++)
                    most = fmaxf(most, fabsf(w[r * INNER + i]));
                const float scale = scales[r * BLOCKS + b];
                assert_true(scale == most / 127.0f);
                for (int i = 0; i < 32; i++) {
                    const int at = r * INNER + b * 32 + i;
                    assert_true(fabsf(back[at] - w[at]) <= 0.5001f * scale);
                }
            }
        float ours[SAMPLES * ROWS], exact[SAMPLES * ROWS];
        assert_int_equal(gd_tensor_read(gd_quantized_linear(in, q, s), ours, sizeof ours), GD_OK);
        assert_int_equal(
            gd_tensor_read(gd_matmul(in, gd_transpose(weights, 0, 1)), exact, sizeof exact), GD_OK);
        double error = 0, size = 0;
        for (int i = 0; i < SAMPLES * ROWS; i++) {
            error += pow((double)ours[i] - (double)exact[i], 2);
            size += pow((double)exact[i], 2);
        }
        assert_true(error > 0 && sqrt(error / size) < 0.02);
    }
    assert_null(gd_quantize(gd_slice(weights, 1, 0, 40, 1), true, &s));
    expect_error(GD_ERR_SHAPE, "rows must be multiples of 32");
    assert_null(gd_quantize(gd_cast(weights, GD_I32), true, &s));
    expect_error(GD_ERR_DTYPE, "gd_quantize: x is i32");
    assert_null(gd_quantize(weights, true, NULL));
    expect_error(GD_ERR_INVALID, "no place for the scales");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_gives_the_defined_bits),
        cmocka_unit_test(a_small_cache_gives_the_same_bits),
        cmocka_unit_test_setup_teardown(the_longest_row_fits, open_context, close_context),
        cmocka_unit_test(strange_numbers_have_a_meaning),
        cmocka_unit_test_setup_teardown(weights_are_what_they_stand_for, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(weights_of_ones_own_are_rounded, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(rounding_stays_within_its_bound, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(x_has_the_gradient_of_the_product_and_weights_none,
                                        open_context, close_context),
        cmocka_unit_test_setup_teardown(other_dtypes_of_x_are_taken_as_f32, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(other_dtypes_of_weights_are_refused, open_context,
                                        close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
