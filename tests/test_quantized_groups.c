/* tests/test_quantized_groups.c: products with weights whose scales have two levels, as ops/quantized.c defines them:
 * every form against an oracle written here, with the same bits on every instruction set and number of threads; the
 * weights themselves, rows of them, gradients, and what is refused. */
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

enum { LARGE = 256, FORMS = 8 };

/* Whole numbers, and the bytes that hold them. */
typedef struct product {
    bool four_bits, has_least;
    int groups;
    int64_t rows, columns, inner, bytes;
    float *x, *scales, *result, *weights;
    uint16_t *half_scales;
    int *q, *k, *l; /* q [columns, inner]; k and l [columns, inner / 256, groups] */
    uint8_t *values;
} product;

static float uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) * 0x1p-23f - 1.0f;
}

static int whole(uint64_t *state, int low, int high)
{
    return low + (int)((uniform(state) + 1.0f) / 2 * (float)(high - low + 1) * 0.99999f);
}

static void *room(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    assert_non_null(memory);
    return memory;
}

/* Where the numbers of a large block lie: those of 4 bits a block of 32 in 16 bytes, i and i + 16 in byte i. */
static void put_bytes(product *p)
{
    const int numbers = p->four_bits ? LARGE / 2 : LARGE, offset = p->has_least ? 0 : 8;
    for (int64_t b = 0; b < p->columns * p->inner / LARGE; b++) {
        uint8_t *to = p->values + b * p->bytes;
        const int *q = p->q + b * LARGE;
        for (int i = 0; i < LARGE; i++)
            if (p->four_bits)
                to[i / 32 * 16 + i % 16] |=
                    (uint8_t)((unsigned)(q[i] + offset) << (i % 32 < 16 ? 0 : 4));
            else
                to[i] = (uint8_t)q[i];
        for (int g = 0; g < p->groups; g++) {
            to[numbers + g] = (uint8_t)p->k[b * p->groups + g];
            if (p->has_least)
                to[numbers + p->groups + g] = (uint8_t)p->l[b * p->groups + g];
        }
    }
}

/* All whole numbers that a form has are among them, -128 too. */
static product make(int form, int64_t rows, int64_t columns, int64_t inner)
{
    product p = { .four_bits = form & 1,
                  .has_least = form & 2,
                  .groups = form & 4 ? 16 : 8,
                  .rows = rows,
                  .columns = columns,
                  .inner = inner };
    const int low = !p.four_bits ? -128 : p.has_least ? 0 : -8;
    const int high = !p.four_bits ? 127 : p.has_least ? 15 : 7;
    const int64_t large = columns * inner / LARGE, scales = large * (1 + p.has_least);
    uint64_t state = (uint64_t)(form * 101 + rows * 31 + columns * 7 + inner);
    p.bytes = (p.four_bits ? LARGE / 2 : LARGE) + p.groups * (1 + p.has_least);
    p.x = room(rows * inner, sizeof *p.x);
    p.q = room(columns * inner, sizeof *p.q);
    p.k = room(large * p.groups, sizeof *p.k);
    p.l = room(large * p.groups, sizeof *p.l);
    p.values = room(large * p.bytes, 1);
    p.scales = room(scales, sizeof *p.scales);
    p.half_scales = room(scales, sizeof *p.half_scales);
    p.result = room(rows * columns, sizeof *p.result);
    p.weights = room(columns * inner, sizeof *p.weights);
    for (int64_t i = 0; i < rows * inner; i++)
        p.x[i] = ldexpf(uniform(&state), (int)(i / 32 * 7 % 41) - 20);
    for (int64_t i = 0; i < columns * inner; i++)
        p.q[i] = i % 37 == 0 ? low : i % 41 == 0 ? high : whole(&state, low, high);
    for (int64_t i = 0; i < large * p.groups; i++) {
        p.k[i] = i % 23 == 0 ? -128 : i % 29 == 0 ? 127 : whole(&state, -128, 127);
        p.l[i] = i % 19 == 0 ? -128 : whole(&state, -128, 127);
    }
    for (int64_t i = 0; i < scales; i++) {
        p.half_scales[i] = gd_f32_to_f16(uniform(&state) * 0.01f);
        p.scales[i] = gd_f16_to_f32(p.half_scales[i]);
    }
    put_bytes(&p);
    return p;
}

static void release(product *p)
{
    void *all[] = { p->x,      p->q,           p->k,      p->l,      p->values,
                    p->scales, p->half_scales, p->result, p->weights };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* ---- the oracle: sums as integers, rounding by the C library in double ---- */

static float times(float a, float b)
{
    return (float)((double)a * (double)b);
}

static int64_t group_of(const product *p, int64_t j, int64_t i)
{
    return (j * p->inner + i) / LARGE * p->groups + i % LARGE * p->groups / LARGE;
}

static float scale_of(const product *p, int64_t j, int64_t i, int which)
{
    return p->scales[(j * p->inner + i) / LARGE * (1 + p->has_least) + which];
}

static float term(const product *p, int64_t row, int64_t j, int64_t b)
{
    const float *x = p->x + row * p->inner + b * 32;
    float most = 0;
    int64_t sum = 0, least = 0;
    for (int i = 0; i < 32; i++)
        most = fmaxf(most, fabsf(x[i]));
    const double largest = (double)most;
    if (largest < ldexp(1, -100))
        return 0;
    const float factor = (float)(127.0 / largest), scale = (float)(largest / 127.0);
    for (int i = 0; i < 32; i++) {
        const int64_t rounded = lrint((double)times(x[i], factor)), at = b * 32 + i;
        sum += rounded * p->k[group_of(p, j, at)] * p->q[j * p->inner + at];
        least += rounded * p->l[group_of(p, j, at)];
    }
    const float all = times(times(scale, scale_of(p, j, b * 32, 0)), (float)sum);
    if (!p->has_least)
        return all;
    return all - times(times(scale, scale_of(p, j, b * 32, 1)), (float)least);
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
    for (int64_t j = 0; j < p->columns; j++)
        for (int64_t i = 0; i < p->inner; i++) {
            const int64_t g = group_of(p, j, i);
            const float d = times(scale_of(p, j, i, 0), (float)p->k[g]);
            float w = times(d, (float)p->q[j * p->inner + i]);
            if (p->has_least)
                w -= times(scale_of(p, j, i, 1), (float)p->l[g]);
            p->weights[j * p->inner + i] = w;
        }
}

/* ---- operands ---- */

static gd_tensor *values_of(gd_context *gd, const product *p)
{
    return gd_from_host(gd, GD_SHAPE(p->columns, p->inner / LARGE * p->bytes),
                        p->four_bits ? GD_U8 : GD_I8, p->values);
}

static gd_tensor *scales_of(gd_context *gd, const product *p, gd_dtype dtype)
{
    return gd_from_host(gd, GD_SHAPE(p->columns, p->inner / LARGE * (1 + p->has_least)), dtype,
                        dtype == GD_F16 ? (const void *)p->half_scales : p->scales);
}

static gd_tensor *x_of(gd_context *gd, const product *p)
{
    return gd_from_host(gd, GD_SHAPE(p->rows, p->inner), GD_F32, p->x);
}

static gd_tensor *weights_of(gd_context *gd, const product *p)
{
    return gd_from_host(gd, GD_SHAPE(p->columns, p->inner), GD_F32, p->weights);
}

static void check(gd_context *gd, const product *p, gd_dtype scales, const char *where)
{
    gd_tensor *y = gd_quantized_linear(x_of(gd, p), values_of(gd, p), scales_of(gd, p, scales));
    float *got = room(p->rows * p->columns, sizeof *got);
    assert_int_equal(gd_tensor_read(y, got, (size_t)(p->rows * p->columns) * sizeof *got), GD_OK);
    for (int64_t i = 0; i < p->rows * p->columns; i++)
        if (memcmp(&got[i], &p->result[i], sizeof *got) != 0)
            fail_msg("%s, %d bits, %d groups%s: element %lld of %lld x %lld x %lld is %a, the "
                     "definition gives %a",
                     where, p->four_bits ? 4 : 8, p->groups, p->has_least ? " with least" : "",
                     (long long)i, (long long)p->rows, (long long)p->columns, (long long)p->inner,
                     (double)got[i], (double)p->result[i]);
    free(got);
}

static void every_instruction_set_gives_the_defined_bits(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = { { 1, 1, 256 },    { 1, 19, 1024 }, { 3, 5, 512 },
                                        { 4, 35, 768 },   { 17, 16, 256 }, { 50, 33, 512 },
                                        { 600, 3, 1024 }, { 2, 2, 8448 } };
    for (int form = 0; form < FORMS; form++)
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
            product p = make(form, sizes[n][0], sizes[n][1], sizes[n][2]);
            compute(&p);
            for (size_t i = 0; i < ISAS; i++)
                for (int threads = 1; threads <= 3; threads += 2) {
                    gd_context *gd = open_isa(isas[i], threads);
                    if (!gd)
                        continue;
                    check(gd, &p, threads == 1 ? GD_F16 : GD_F32, isas[i]);
                    gd_close(gd);
                }
            release(&p);
        }
}

/* Of the longest rows only the last block counts: 1 times what the last weights are. */
static void the_longest_row_fits(void **state)
{
    gd_context *gd = *state;
    const int64_t inner = 1 << 18;
    gd_tensor *at = gd_arange(gd, 0, (double)inner, 1, GD_I32);
    gd_tensor *x = gd_cast(gd_ge(at, gd_scalar(gd, (double)inner - 1, GD_I32)), GD_F32);
    gd_tensor *values = gd_full(gd, GD_SHAPE(3, inner / LARGE * 288), 7, GD_I8);
    gd_tensor *scales = gd_full(gd, GD_SHAPE(3, inner / LARGE * 2), 2, GD_F16);
    for (int rows = 1; rows <= 17; rows += 16) {
        gd_tensor *y =
            gd_quantized_linear(gd_broadcast_to(x, GD_SHAPE(rows, inner)), values, scales);
        const double expected = 2.0 * 7 * 7 - 2.0 * 7; /* d k w - e l */
        assert_true(gd_item(gd_min(y, GD_ALL_AXES, false)) == expected);
        assert_true(gd_item(gd_max(y, GD_ALL_AXES, false)) == expected);
    }
}

static void rows_that_are_not_numbers_give_nan(void **state)
{
    (void)state;
    for (size_t i = 0; i < ISAS; i++)
        for (int form = 0; form < FORMS; form++) {
            gd_context *gd = open_isa(isas[i], 1);
            if (!gd)
                continue;
            product p = make(form, 3, 2, 512);
            p.x[512 + 300] = i % 2 ? NAN : -INFINITY;
            float y[6];
            gd_tensor *r =
                gd_quantized_linear(x_of(gd, &p), values_of(gd, &p), scales_of(gd, &p, GD_F16));
            assert_int_equal(gd_tensor_read(r, y, sizeof y), GD_OK);
            for (int k = 0; k < 6; k++)
                assert_true(isnan(y[k]) == (k / 2 == 1));
            release(&p);
            gd_close(gd);
        }
}

/* ---- the weights ---- */

static void weights_are_what_they_stand_for(void **state)
{
    gd_context *gd = *state;
    for (int form = 0; form < FORMS; form++) {
        product p = make(form, 1, 6, 768);
        compute(&p);
        gd_tensor *values = values_of(gd, &p), *w = weights_of(gd, &p);
        for (int i = 0; i < 2; i++)
            assert_same_bits(gd_dequantize(values, scales_of(gd, &p, i ? GD_F16 : GD_F32)), w);
        int64_t numbers[4] = { 5, 0, 3, 3 };
        gd_tensor *index = gd_from_host(gd, GD_SHAPE(2, 2), GD_I64, numbers);
        gd_tensor *scales = scales_of(gd, &p, GD_F16);
        assert_same_bits(gd_dequantize(gd_embedding(index, values), gd_embedding(index, scales)),
                         gd_embedding(index, w));
        release(&p);
    }
}

static void x_has_the_gradient_of_the_product_and_weights_none(void **state)
{
    gd_context *gd = *state;
    for (int form = 0; form < FORMS; form++) {
        product p = make(form, 5, 11, 512);
        compute(&p);
        gd_tensor *x = gd_set_requires_grad(x_of(gd, &p), true), *d;
        gd_tensor *y = gd_quantized_linear(x, values_of(gd, &p), scales_of(gd, &p, GD_F16));
        gd_tensor *seed = gd_add_scalar(gd_detach(y), 1.0);
        assert_int_equal(gd_grad(1, &y, &seed, 1, &x, &d), GD_OK);
        assert_same_bits(d, gd_matmul(seed, weights_of(gd, &p)));
        release(&p);
    }
}

/* Each of these is near to a form, and none. */
static void other_sizes_are_refused(void **state)
{
    gd_context *gd = *state;
    static const struct {
        gd_dtype dtype;
        int64_t inner, bytes, scales;
    } wrong[] = {
        { GD_U8, 256, 144, 3 }, { GD_U8, 256, 145, 2 }, { GD_U8, 512, 144, 2 },
        { GD_I8, 256, 144, 2 }, { GD_I8, 256, 272, 8 }, { GD_I8, 512, 544, 3 },
        { GD_U8, 288, 162, 2 }, { GD_I8, 128, 136, 1 }, { GD_I8, 256, 256, 1 },
        { GD_U8, 256, 128, 2 }, { GD_I8, 512, 272, 1 }, { GD_U8, 0, 144, 1 },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gd_tensor *x = gd_zeros(gd, GD_SHAPE(2, wrong[i].inner), GD_F32);
        gd_tensor *values = gd_zeros(gd, GD_SHAPE(3, wrong[i].bytes), wrong[i].dtype);
        gd_tensor *scales = gd_zeros(gd, GD_SHAPE(3, wrong[i].scales), GD_F16);
        if (gd_quantized_linear(x, values, scales))
            fail_msg("%lld of %lld bytes and %lld scales: taken", (long long)wrong[i].inner,
                     (long long)wrong[i].bytes, (long long)wrong[i].scales);
        expect_error(GD_ERR_SHAPE, "gd_quantized_linear");
    }
    gd_tensor *x = gd_zeros(gd, GD_SHAPE(2, 256), GD_F32);
    gd_tensor *values = gd_zeros(gd, GD_SHAPE(3, 144), GD_U8);
    assert_null(gd_quantized_linear(x, values, gd_zeros(gd, GD_SHAPE(4, 2), GD_F16)));
    expect_error(GD_ERR_SHAPE, "gd_quantized_linear");
    assert_null(gd_dequantize(values, gd_zeros(gd, GD_SHAPE(3, 3), GD_F16)));
    expect_error(GD_ERR_SHAPE, "gd_dequantize");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_gives_the_defined_bits),
        cmocka_unit_test_setup_teardown(the_longest_row_fits, open_context, close_context),
        cmocka_unit_test(rows_that_are_not_numbers_give_nan),
        cmocka_unit_test_setup_teardown(weights_are_what_they_stand_for, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(x_has_the_gradient_of_the_product_and_weights_none,
                                        open_context, close_context),
        cmocka_unit_test_setup_teardown(other_sizes_are_refused, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
