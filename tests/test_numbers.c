/* tests/test_numbers.c: C numbers beside tensors: of which dtype they are, what integers can hold,
 * and what is refused rather than changed; functions of integers that stay integers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "support/context.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static gd_tensor *u8_of(gd_context *context, uint8_t a, uint8_t b)
{
    return gd_from_host(context, GD_SHAPE(2), GD_U8, (uint8_t[]){ a, b });
}

static void expect_values(gd_tensor *t, gd_dtype dtype, int n, const double *expected)
{
    if (!t)
        fail_msg("%s", gd_error_message());
    assert_int_equal(gd_tensor_dtype(t), dtype);
    assert_int_equal(gd_tensor_count(t), n);
    for (int i = 0; i < n; i++) {
        double value = gd_item(gd_select(gd_reshape(t, GD_SHAPE(n)), 0, i));
        if (!(value == expected[i] || (isnan(value) && isnan(expected[i]))))
            fail_msg("element %d is %.9g, expected %.9g", i, value, expected[i]);
    }
}

/* Expected: numpy 2.4.6, for instance numpy.array([2, 200], 'u1').astype('f4') / 256. */
static void division_and_powers_take_the_number_as_f32(void **state)
{
    gd_context *context = *state;
    gd_tensor *x = u8_of(context, 2, 200);
    gd_tensor *whole = gd_from_host(context, GD_SHAPE(2), GD_I32, (int32_t[]){ 1, 2 });
    const struct {
        gd_tensor *got;
        double expected[2];
    } rows[] = {
        { gd_div_scalar(x, 256), { 0.0078125, 0.78125 } },
        { gd_div_scalar(x, -2), { -1, -100 } },
        { gd_rdiv_scalar(x, 1000), { 500, 5 } },
        { gd_pow_scalar(x, -1), { 0.5, (float)0.005 } },
        { gd_rpow_scalar(u8_of(context, 2, 3), -1), { 1, -1 } },
        { gd_div_scalar(whole, 1e10), { (float)1e-10, (float)2e-10 } },
        { gd_div_scalar(gd_cast(x, GD_BOOL), 4), { 0.25, 0.25 } },
    };
    for (int i = 0; i < COUNT(rows); i++)
        expect_values(rows[i].got, GD_F32, 2, rows[i].expected);
}

/* NumPy 2 raises OverflowError: "Python integer -1 out of bounds for uint8". */
static void whole_numbers_beyond_the_dtype_are_refused(void **state)
{
    static gd_tensor *(*const functions[])(gd_tensor * x, double c) = {
        gd_add_scalar, gd_sub_scalar,  gd_rsub_scalar,       gd_mul_scalar,  gd_floor_div_scalar,
        gd_mod_scalar, gd_rmod_scalar, gd_rfloor_div_scalar, gd_add_scalar_, gd_mul_scalar_,
    };
    static const char *const names[] = {
        "gd_add_scalar: ",       "gd_sub_scalar: ",  "gd_rsub_scalar: ", "gd_mul_scalar: ",
        "gd_floor_div_scalar: ", "gd_mod_scalar: ",  "gd_rmod_scalar: ", "gd_rfloor_div_scalar: ",
        "gd_add_scalar_: ",      "gd_mul_scalar_: ",
    };
    gd_context *context = *state;
    for (int i = 0; i < COUNT(functions); i++) {
        assert_null(functions[i](u8_of(context, 2, 200), -1));
        assert_int_equal(strncmp(gd_error_message(), names[i], strlen(names[i])), 0);
        expect_error(GD_ERR_INVALID, "u8 cannot hold -1");
        assert_null(functions[i](u8_of(context, 2, 200), 256));
        expect_error(GD_ERR_INVALID, "u8 cannot hold 256");
        assert_null(functions[i](gd_ones(context, GD_SCALAR, GD_I32), 2147483648.0));
        expect_error(GD_ERR_INVALID, "i32 cannot hold 2147483648");
        assert_null(functions[i](gd_ones(context, GD_SCALAR, GD_I64), 0x1p63));
        expect_error(GD_ERR_INVALID, "i64 cannot hold 9.22337203685477");
    }
    const double wide[] = { 0x1p62 + 1 };
    expect_values(gd_add_scalar(gd_ones(context, GD_SCALAR, GD_I64), 0x1p62), GD_I64, 1, wide);
    const double least[] = { -2147483648.0 };
    gd_tensor *zero = gd_zeros(context, GD_SCALAR, GD_BOOL); /* counts as i32 */
    expect_values(gd_add_scalar(zero, -2147483648.0), GD_I32, 1, least);
    assert_null(gd_add_scalar(zero, 2147483648.0));
    expect_error(GD_ERR_INVALID, "i32 cannot hold");
}

/* Of the dtype of the tensor a fraction cannot be: the result is f32, or, where that has a dtype
 * already, the call is refused. */
static void fractions_are_not_cut_off(void **state)
{
    gd_context *context = *state;
    gd_tensor *x = u8_of(context, 2, 200), *mask = gd_ones(context, GD_SCALAR, GD_BOOL);
    expect_values(gd_add_scalar(x, 0.5), GD_F32, 2, (const double[]){ 2.5, 200.5 });
    expect_values(gd_mod_scalar(x, 1.5), GD_F32, 2, (const double[]){ 0.5, 0.5 });
    expect_values(gd_add_scalar(x, INFINITY), GD_F32, 2, (const double[]){ INFINITY, INFINITY });
    assert_null(gd_add_scalar_(x, 0.5));
    expect_error(GD_ERR_INVALID, "gd_add_scalar_: u8 cannot hold 0.5");
    assert_null(gd_mul_scalar_(x, NAN));
    expect_error(GD_ERR_INVALID, "gd_mul_scalar_: u8 cannot hold nan");
    assert_null(gd_masked_fill(x, mask, 0.5));
    expect_error(GD_ERR_INVALID, "gd_masked_fill: u8 cannot hold 0.5");
    assert_null(gd_masked_fill_(x, mask, -INFINITY));
    expect_error(GD_ERR_INVALID, "gd_masked_fill_: u8 cannot hold -inf");
    assert_null(gd_pad(x, GD_SHAPE(1), GD_SHAPE(1), -1));
    expect_error(GD_ERR_INVALID, "gd_pad: u8 cannot hold -1");
    assert_null(gd_full(context, GD_SHAPE(2), 2.5, GD_I32));
    expect_error(GD_ERR_INVALID, "gd_full: i32 cannot hold 2.5");
    assert_null(gd_scalar(context, 1e10, GD_I32));
    expect_error(GD_ERR_INVALID, "gd_scalar: i32 cannot hold 10000000000");
    assert_null(gd_state(context, GD_SCALAR, NAN, GD_I64));
    expect_error(GD_ERR_INVALID, "gd_state: i64 cannot hold nan");
    assert_null(gd_arange(context, 0, 257, 1, GD_U8));
    expect_error(GD_ERR_INVALID, "gd_arange: u8 cannot hold 256");
    assert_int_equal(gd_tensor_count(gd_arange(context, 0, 256, 1, GD_U8)), 256);
    assert_null(gd_arange(context, -1, 3, 1, GD_U8));
    expect_error(GD_ERR_INVALID, "gd_arange: u8 cannot hold -1");
    expect_values(gd_full(context, GD_SHAPE(2), 2.5, GD_BOOL), GD_BOOL, 2,
                  (const double[]){ 1, 1 });
    const double large[] = { INFINITY };
    expect_values(gd_scalar(context, 1e300, GD_F32), GD_F32, 1, large);
}

/* Expected: numpy.clip of 2.4.6, where integers beyond the dtype do not bind, either; but infinite
 * bounds make float64 of integers there, and a NaN for a bound makes every element NaN. */
static void clips(void **state)
{
    gd_context *context = *state;
    gd_tensor *x = u8_of(context, 2, 200);
    expect_values(gd_clip(x, -1, 100), GD_U8, 2, (const double[]){ 2, 100 });
    expect_values(gd_clip(x, 10, 1000), GD_U8, 2, (const double[]){ 10, 200 });
    expect_values(gd_clip(x, -INFINITY, INFINITY), GD_U8, 2, (const double[]){ 2, 200 });
    expect_values(gd_clip(x, 2.5, 100), GD_F32, 2, (const double[]){ 2.5, 100 });
    assert_null(gd_clip(x, 300, 400));
    expect_error(GD_ERR_INVALID, "gd_clip: u8 cannot hold 300");
    assert_null(gd_clip(x, -5, -2));
    expect_error(GD_ERR_INVALID, "gd_clip: u8 cannot hold -2");
    gd_tensor *real = gd_linspace(context, 0, 1, 3, GD_F64);
    expect_values(gd_clip(real, 0.75, 0.25), GD_F64, 3, (const double[]){ 0.25, 0.25, 0.25 });
    assert_null(gd_clip(real, NAN, 1));
    expect_error(GD_ERR_INVALID, "gd_clip: the bounds are nan and 1");
    gd_tensor *nan = gd_scalar(context, NAN, GD_F64), *one = gd_scalar(context, 1, GD_F64);
    const double none[] = { NAN, NAN, NAN };
    expect_values(gd_clamp(real, nan, one), GD_F64, 3, none);
    expect_values(gd_clamp(real, one, nan), GD_F64, 3, none);
    expect_values(gd_clamp(real, nan, nan), GD_F64, 3, none);
    expect_values(gd_clamp(nan, gd_neg(one), one), GD_F64, 1, none);
    gd_tensor *three = gd_scalar(context, 3, GD_U8);
    expect_values(gd_clamp(x, three, three), GD_U8, 2, (const double[]){ 3, 3 });
}

static void whole_numbers_are_rounded_to_themselves(void **state)
{
    static gd_tensor *(*const functions[])(gd_tensor * x) = { gd_floor, gd_ceil, gd_round,
                                                              gd_trunc };
    gd_context *context = *state;
    for (int i = 0; i < COUNT(functions); i++) {
        gd_tensor *x = gd_scalar(context, 16777217, GD_I64),
                  *y = gd_ones(context, GD_SCALAR, GD_BOOL);
        expect_values(functions[i](x), GD_I64, 1, (const double[]){ 16777217 });
        expect_values(functions[i](y), GD_BOOL, 1, (const double[]){ 1 });
    }
}

/* The operands' dtype, whatever the equation is contracted by; wrapping as products do. */
static void einsum_keeps_the_dtype(void **state)
{
    static const char *const one[] = { "ij->i", "ij->", "ij->ji", "ij" };
    static const char *const two[] = { "ij,jk->ik", "ij,ij->i", "ij,ij->", "ij,jk->", "ij,ij->ij" };
    gd_context *context = *state;
    for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++) {
        gd_tensor *x = gd_full(context, GD_SHAPE(2, 2), 1, (gd_dtype)dtype);
        gd_dtype expected = dtype == GD_BOOL ? GD_I32 : (gd_dtype)dtype;
        for (int i = 0; i < COUNT(one); i++)
            assert_int_equal(gd_tensor_dtype(gd_einsum(one[i], 1, &x)), expected);
        for (int i = 0; i < COUNT(two); i++)
            assert_int_equal(gd_tensor_dtype(gd_einsum(two[i], 2, (gd_tensor *[]){ x, x })),
                             expected);
    }
    gd_tensor *x = u8_of(context, 100, 200);
    expect_values(gd_einsum("i->", 1, &x), GD_U8, 1, (const double[]){ 300 - 256 });
    expect_values(gd_einsum("i,i->", 2, (gd_tensor *[]){ x, x }), GD_U8, 1,
                  (const double[]){ 50000 % 256 });
}

static void shifts_and_identities_say_what_is_wrong(void **state)
{
    gd_context *context = *state;
    gd_tensor *x = gd_ones(context, GD_SHAPE(2), GD_I32);
    assert_null(gd_left_shift(x, gd_scalar(context, -1, GD_I32)));
    expect_error(GD_ERR_INVALID, "gd_left_shift: a shift by -1 places; 0 or more are possible");
    static const uint64_t places[] = { 63, 64, 1000, UINT64_MAX };
    gd_tensor *far = gd_from_host(context, GD_SHAPE(4), GD_U64, places);
    const gd_dtype dtypes[] = { GD_I64, GD_U64, GD_I8, GD_U16 }; /* u16 is promoted to u64 */
    for (int i = 0; i < 4; i++) {
        const bool is_signed = i % 2 == 0;
        gd_tensor *one = gd_full_integer(context, GD_SCALAR, is_signed ? -1 : 1, dtypes[i]);
        gd_tensor *left = gd_cast(gd_left_shift(one, far), GD_U64),
                  *right = gd_right_shift(one, far);
        uint64_t bits[4];
        assert_int_equal(gd_tensor_read(left, bits, sizeof bits), GD_OK);
        assert_true(bits[0] == (i == 2 ? 0 : (uint64_t)1 << 63));
        for (int k = 0; k < 4; k++) {
            assert_true(k == 0 || bits[k] == 0);
            assert_true(gd_item(gd_select(right, 0, k)) == (is_signed ? -1 : 0));
        }
    }
    assert_null(gd_eye(context, -1, GD_F32));
    expect_error(GD_ERR_INVALID, "gd_eye: -1 rows");
    assert_int_equal(gd_tensor_count(gd_eye(context, 0, GD_F32)), 0);
    gd_tensor *all = gd_ones(context, GD_SHAPE(2, 2), GD_F32);
    assert_int_equal(gd_tensor_count(gd_tril(all, INT64_MAX)), 4);
    assert_true(gd_item(gd_sum(gd_triu(all, INT64_MAX), GD_ALL_AXES, false)) == 0);
}

static void powers_of_integers(void **state)
{
    gd_context *context = *state;
    gd_tensor *x = gd_from_host(context, GD_SHAPE(5), GD_I64, (int64_t[]){ -3, -1, 0, 1, 2 });
    gd_tensor *odd = gd_full(context, GD_SCALAR, 3, GD_I64),
              *none = gd_zeros(context, GD_SCALAR, GD_I64);
    expect_values(gd_integer_pow(x, odd), GD_I64, 5, (const double[]){ -27, -1, 0, 1, 8 });
    expect_values(gd_integer_pow(x, none), GD_I64, 5, (const double[]){ 1, 1, 1, 1, 1 });
    expect_values(gd_integer_pow(x, gd_neg(odd)), GD_I64, 5, (const double[]){ 0, -1, 0, 1, 0 });
    expect_values(gd_integer_pow(x, gd_scalar(context, -2, GD_I64)), GD_I64, 5,
                  (const double[]){ 0, 1, 0, 1, 0 });
    expect_values(gd_integer_pow(gd_scalar(context, 2, GD_I32), gd_scalar(context, 31, GD_I32)),
                  GD_I32, 1, (const double[]){ INT32_MIN });
    assert_null(gd_integer_pow(x, gd_ones(context, GD_SCALAR, GD_F32)));
    expect_error(GD_ERR_DTYPE, "gd_integer_pow");
}

/* IEEE 754's nextUp and copySign; NumPy's signbit. */
static void signs_and_neighbours(void **state)
{
    gd_context *context = *state;
    gd_tensor *x =
        gd_from_host(context, GD_SHAPE(4), GD_F32, (float[]){ 1, 0, -INFINITY, (float)0x1p-149 });
    gd_tensor *down = gd_scalar(context, -INFINITY, GD_F32);
    expect_values(gd_nextafter(x, gd_scalar(context, INFINITY, GD_F32)), GD_F32, 4,
                  (const double[]){ 0x1.000002p0, 0x1p-149, -(double)FLT_MAX, 0x1p-148 });
    expect_values(gd_nextafter(x, down), GD_F32, 4,
                  (const double[]){ 0x1.fffffep-1, -0x1p-149, -INFINITY, 0 });
    expect_values(gd_nextafter(gd_ones(context, GD_SCALAR, GD_F64), down), GD_F64, 1,
                  (const double[]){ 0x1.fffffffffffffp-1 });
    gd_tensor *small =
        gd_from_host(context, GD_SHAPE(5), GD_F32,
                     (float[]){ FLT_MIN, -FLT_MIN, nextafterf(FLT_MIN, 0), -0x1p-149F, -INFINITY });
    expect_values(gd_flush_subnormal(small), GD_F32, 5,
                  (const double[]){ FLT_MIN, -FLT_MIN, 0, 0, -INFINITY });
    expect_values(gd_flush_subnormal(gd_scalar(context, 0x1p-1023, GD_F64)), GD_F64, 1,
                  (const double[]){ 0 });
    gd_tensor *third = gd_from_host(
        context, GD_SHAPE(7), GD_F32,
        (float[]){ 0x1.00fep0F, -0x1.00fep0F, 0x1.02p0F, 0x1p-149F, FLT_MAX, -INFINITY, -0.0F });
    gd_tensor *noise = gd_from_host(context, GD_SHAPE(3, 1), GD_F32, (float[]){ 0, 33023, 33024 });
    /* 0xff00 * 2^-16 of a unit wants 256 to be rounded up, 0x7f00 wants 33024 */
    expect_values(gd_round_bf16(third, noise), GD_F32, 21,
                  (const double[]){ 1,        -1,        0x1.02p0, 0, INFINITY, -INFINITY, -0.0,
                                    1,        -1,        0x1.02p0, 0, INFINITY, -INFINITY, -0.0,
                                    0x1.02p0, -0x1.02p0, 0x1.02p0, 0, INFINITY, -INFINITY, -0.0 });
    expect_values(
        gd_round_bf16(gd_scalar(context, 0x1.01p0, GD_F64),
                      gd_from_host(context, GD_SHAPE(2), GD_F64, (double[]){ 32767, 32768 })),
        GD_F64, 2, (const double[]){ 1, 0x1.02p0 });
    gd_tensor *zero = gd_scalar(context, -0.0, GD_F32);
    expect_values(gd_signbit(gd_asinh(zero)), GD_BOOL, 1, (const double[]){ 1 });
    expect_values(gd_signbit(gd_atanh(zero)), GD_BOOL, 1, (const double[]){ 1 });
    expect_values(gd_signbit(gd_sign(zero)), GD_BOOL, 1, (const double[]){ 0 });
    gd_tensor *signs =
        gd_from_host(context, GD_SHAPE(4), GD_F32, (float[]){ -0.0f, 0, -NAN, -INFINITY });
    expect_values(gd_signbit(signs), GD_BOOL, 4, (const double[]){ 1, 0, 1, 1 });
    expect_values(gd_copysign(gd_full(context, GD_SCALAR, 2, GD_F32), signs), GD_F32, 4,
                  (const double[]){ -2, 2, -2, -2 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(division_and_powers_take_the_number_as_f32),
        context_test(whole_numbers_beyond_the_dtype_are_refused),
        context_test(fractions_are_not_cut_off),
        context_test(clips),
        context_test(whole_numbers_are_rounded_to_themselves),
        context_test(einsum_keeps_the_dtype),
        context_test(shifts_and_identities_say_what_is_wrong),
        context_test(powers_of_integers),
        context_test(signs_and_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
