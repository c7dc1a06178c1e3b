/* tests/test_integers.c: what is particular to integer dtypes: the ends of u64 and i64, wrapping,
 * sums, order, indices, shifts, numbers beyond 2^53, printing, files. Every op on every dtype, on
 * every device: tests/test_ops.c; conversions: tests/test_elementwise_kernels.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "support/context.h"

static const gd_dtype integers[] = { GD_I8, GD_I16, GD_I32, GD_I64, GD_U8, GD_U16, GD_U32, GD_U64 };
enum { INTEGERS = 8 };

static bool is_signed(gd_dtype dtype)
{
    return gd_dtype_promote(dtype, GD_I8) == dtype;
}

/* The largest number. */
static uint64_t most_of(gd_dtype dtype)
{
    return UINT64_MAX >> (64 - 8 * gd_dtype_size(dtype) + (is_signed(dtype) ? 1 : 0));
}

/* `count` elements as 64 bits, sign-extended. */
static void expect(gd_tensor *t, gd_dtype dtype, int count, const uint64_t *expected)
{
    if (!t)
        fail_msg("%s", gd_error_message());
    assert_int_equal(gd_tensor_dtype(t), dtype);
    assert_int_equal(gd_tensor_count(t), count);
    uint64_t values[16];
    gd_tensor *wide = gd_cast(t, is_signed(dtype) ? GD_I64 : GD_U64);
    assert_int_equal(gd_tensor_read(wide, values, (size_t)count * 8), GD_OK);
    for (int i = 0; i < count; i++)
        if (values[i] != expected[i])
            fail_msg("%s: element %d is %llx, expected %llx", gd_dtype_name(dtype), i,
                     (unsigned long long)values[i], (unsigned long long)expected[i]);
}

/* { least, most, 1 } */
static gd_tensor *ends(gd_context *gd, gd_dtype dtype)
{
    uint64_t most = most_of(dtype), least = is_signed(dtype) ? ~most : 0;
    gd_tensor *bits = gd_from_host(gd, GD_SHAPE(3), GD_U64, (uint64_t[]){ least, most, 1 });
    return gd_cast(bits, dtype);
}

static void arithmetic_wraps(void **state)
{
    gd_context *gd = *state;
    for (int i = 0; i < INTEGERS; i++) {
        gd_dtype d = integers[i];
        uint64_t most = most_of(d), least = is_signed(d) ? ~most : 0;
        gd_tensor *x = ends(gd, d), *one = gd_ones(gd, GD_SCALAR, d);
        expect(gd_add(x, one), d, 3, (uint64_t[]){ least + 1, least, 2 });
        expect(gd_sub(x, one), d, 3, (uint64_t[]){ most, most - 1, 0 });
        expect(gd_square(x), d, 3, (uint64_t[]){ 0, 1, 1 });
        uint64_t minus = is_signed(d) ? UINT64_MAX : most;
        expect(gd_neg(x), d, 3, (uint64_t[]){ least, is_signed(d) ? least + 1 : 1, minus });
        expect(gd_bitwise_not(x), d, 3,
               (uint64_t[]){ most, least, is_signed(d) ? ~(uint64_t)1 : most - 1 });
        gd_tensor *two = gd_full(gd, GD_SCALAR, 2, d);
        expect(gd_floor_div(x, two), d, 3,
               (uint64_t[]){ (uint64_t)((int64_t)least / 2), most / 2, 0 });
        expect(gd_mod(x, two), d, 3, (uint64_t[]){ 0, 1, 1 });
        expect(gd_matmul(gd_reshape(x, GD_SHAPE(1, 3)), gd_reshape(x, GD_SHAPE(3, 1))), d, 1,
               (uint64_t[]){ 2 });
    }
}

static void order_and_extremes(void **state)
{
    gd_context *gd = *state;
    for (int i = 0; i < INTEGERS; i++) {
        gd_dtype d = integers[i];
        uint64_t most = most_of(d), least = is_signed(d) ? ~most : 0;
        gd_tensor *x = ends(gd, d);
        expect(gd_max(x, GD_ALL_AXES, false), d, 1, &most);
        expect(gd_min(x, GD_ALL_AXES, false), d, 1, &least);
        assert_true(gd_item(gd_argmax(x, 0, false)) == 1 && gd_item(gd_argmin(x, 0, false)) == 0);
        expect(gd_sort(x, 0, true), d, 3, (uint64_t[]){ most, 1, least });
        expect(gd_sort(x, 0, false), d, 3, (uint64_t[]){ least, 1, most });
        gd_tensor *sorted = gd_sort(x, 0, false);
        expect(gd_searchsorted(sorted, x, false), GD_I64, 3, (uint64_t[]){ 0, 2, 1 });
        gd_tensor *one = gd_ones(gd, GD_SCALAR, d);
        expect(gd_cast(gd_gt(x, one), GD_I64), GD_I64, 3, (uint64_t[]){ 0, 1, 0 });
        expect(gd_maximum(x, one), d, 3, (uint64_t[]){ 1, most, 1 });
        expect(gd_relu(x), d, 3, (uint64_t[]){ 0, most, 1 });
        expect(gd_abs(x), d, 3, (uint64_t[]){ least, most, 1 });
    }
}

static void sums_count_in_64_bits(void **state)
{
    gd_context *gd = *state;
    for (int i = 0; i < INTEGERS; i++) {
        gd_dtype d = integers[i], total = is_signed(d) ? GD_I64 : GD_U64;
        uint64_t most = most_of(d), least = is_signed(d) ? ~most : 0;
        gd_tensor *x = ends(gd, d);
        expect(gd_sum(x, GD_ALL_AXES, false), total, 1, (uint64_t[]){ least + most + 1 });
        expect(gd_cumsum(x, 0), total, 3, (uint64_t[]){ least, least + most, least + most + 1 });
        gd_tensor *threes = gd_full(gd, GD_SHAPE(4), 3, d);
        expect(gd_prod(threes, GD_ALL_AXES, false), total, 1, (uint64_t[]){ 81 });
        expect(gd_integer_pow(gd_slice(threes, 0, 0, 1, 1), gd_slice(threes, 0, 0, 1, 1)), d, 1,
               (uint64_t[]){ 27 });
        expect(gd_integer_pow(x, gd_full(gd, GD_SHAPE(1), 2, d)), d, 3, (uint64_t[]){ 0, 1, 1 });
        assert_int_equal(gd_tensor_dtype(gd_mean(threes, GD_ALL_AXES, false)), GD_F32);
        assert_true(gd_item(gd_mean(threes, GD_ALL_AXES, false)) == 3);
        gd_tensor *index = gd_from_host(gd, GD_SHAPE(2), GD_I64, (int64_t[]){ 1, 1 });
        gd_tensor *ones = gd_ones(gd, GD_SHAPE(2), d);
        expect(gd_scatter_add(x, index, ones, 0), d, 3, (uint64_t[]){ least, least + 1, 1 });
    }
}

static void move_and_index(void **state)
{
    gd_context *gd = *state;
    gd_tensor *table = gd_arange(gd, 0, 5, 1, GD_F32);
    for (int i = 0; i < INTEGERS; i++) {
        gd_dtype d = integers[i];
        uint64_t most = most_of(d), least = is_signed(d) ? ~most : 0;
        gd_tensor *x = ends(gd, d);
        expect(gd_concat(2, (gd_tensor *[]){ x, gd_flip(x, GD_AXES(0)) }, 0), d, 6,
               (uint64_t[]){ least, most, 1, 1, most, least });
        expect(gd_pad(x, GD_SHAPE(1), GD_SHAPE(0), 7), d, 4, (uint64_t[]){ 7, least, most, 1 });
        expect(gd_where(gd_gt(x, gd_ones(gd, GD_SCALAR, d)), x, gd_zeros(gd, GD_SHAPE(3), d)), d, 3,
               (uint64_t[]){ 0, most, 0 });
        gd_tensor *index = gd_cast(gd_arange(gd, 4, 1, -1, GD_I64), d);
        gd_tensor *taken = gd_take(table, index, 0);
        assert_same_bits(taken, gd_arange(gd, 4, 1, -1, GD_F32));
        assert_same_bits(gd_index(table, 1, (gd_tensor *[]){ index }), taken);
        assert_same_bits(gd_gather(table, index, 0), taken);
        expect(gd_arange(gd, 3, 6, 1, d), d, 3, (uint64_t[]){ 3, 4, 5 });
        expect(gd_cast(gd_one_hot(gd_ones(gd, GD_SHAPE(1), d), 3, d), d), d, 3,
               (uint64_t[]){ 0, 1, 0 });
        gd_tensor *places = gd_full(gd, GD_SCALAR, 3, d);
        uint64_t down = is_signed(d) ? (uint64_t)((int64_t)least / 8) : 0;
        expect(gd_right_shift(x, places), d, 3, (uint64_t[]){ down, most >> 3, 0 });
        expect(gd_left_shift(gd_slice(x, 0, 2, 3, 1), places), d, 1, (uint64_t[]){ 8 });
    }
    assert_true(!gd_take(table, gd_full(gd, GD_SHAPE(1), 0x1p63, GD_U64), 0) ||
                gd_synchronize(gd) != GD_OK); /* on a device that works late */
    expect_error(GD_ERR_INVALID, "out of range");
}

/* Where there is no element, no index is in range; where there is no index, nothing is wrong. */
static void no_index_is_in_an_empty_axis(void **state)
{
    gd_context *gd = *state;
    gd_tensor *none = gd_zeros(gd, GD_SHAPE(2, 0), GD_F32);
    gd_tensor *index = gd_zeros(gd, GD_SHAPE(2, 3), GD_I64);
    gd_tensor *source = gd_ones(gd, GD_SHAPE(2, 3), GD_F32);
    assert_null(gd_scatter_add(none, index, source, 1));
    expect_error(GD_ERR_INVALID, "gd_scatter_add: axis 1 of size 0 has every index out of range");
    assert_null(gd_scatter(none, index, source, 1));
    expect_error(GD_ERR_INVALID, "gd_scatter: axis 1 of size 0");
    assert_null(gd_gather(none, index, 1));
    expect_error(GD_ERR_INVALID, "gd_gather: axis 1 of size 0");
    assert_null(gd_index_add(none, gd_zeros(gd, GD_SHAPE(3), GD_I32), source, 1));
    expect_error(GD_ERR_INVALID, "gd_index_add: axis 1 of size 0");
    gd_tensor *no_index = gd_zeros(gd, GD_SHAPE(2, 0), GD_I64);
    assert_same_bits(gd_scatter_add(none, no_index, none, 1), none);
    assert_same_bits(gd_gather(source, no_index, 1), none);
    assert_same_bits(gd_scatter_add(source, no_index, none, 1), source);
    assert_same_bits(gd_scatter_add(none, gd_zeros(gd, GD_SHAPE(0, 3), GD_I64),
                                    gd_zeros(gd, GD_SHAPE(0, 3), GD_F32), 1),
                     none);
}

static void numbers_beyond_doubles(void **state)
{
    gd_context *gd = *state;
    const int64_t odd = ((int64_t)1 << 53) + 1;
    int64_t value;
    gd_tensor *t = gd_full_integer(gd, GD_SCALAR, odd, GD_I64);
    assert_int_equal(gd_tensor_read(t, &value, sizeof value), GD_OK);
    assert_true(value == odd);
    t = gd_full_integer(gd, GD_SHAPE(2), INT64_MIN, GD_I64);
    expect(t, GD_I64, 2, (uint64_t[]){ (uint64_t)INT64_MIN, (uint64_t)INT64_MIN });
    expect(gd_full_integer(gd, GD_SCALAR, INT64_MAX, GD_U64), GD_U64, 1, (uint64_t[]){ INT64_MAX });
    expect(gd_full(gd, GD_SCALAR, 0x1p63, GD_U64), GD_U64, 1, (uint64_t[]){ (uint64_t)1 << 63 });
    expect(gd_full_integer(gd, GD_SCALAR, -3, GD_I8), GD_I8, 1, (uint64_t[]){ (uint64_t)-3 });
    assert_true(gd_item(gd_full_integer(gd, GD_SCALAR, odd, GD_F32)) == 0x1p53);
    assert_null(gd_full_integer(gd, GD_SCALAR, odd, GD_I32));
    expect_error(GD_ERR_INVALID, "gd_full_integer: i32 cannot hold 9007199254740993");
    assert_null(gd_full_integer(gd, GD_SCALAR, -1, GD_U64));
    expect_error(GD_ERR_INVALID, "u64 cannot hold -1");
    for (int i = 0; i < INTEGERS; i++) { /* the range is exact at both ends */
        double most = ldexp(1, 8 * (int)gd_dtype_size(integers[i]) - is_signed(integers[i]));
        assert_null(gd_full(gd, GD_SCALAR, most, integers[i]));
        assert_null(gd_full(gd, GD_SCALAR, is_signed(integers[i]) ? -most * 1.5 : -1, integers[i]));
        gd_error_clear();
        assert_non_null(gd_full(gd, GD_SCALAR, is_signed(integers[i]) ? -most : 0, integers[i]));
    }
}

static void expect_text(gd_tensor *t, const char *expected)
{
    char text[200];
    assert_true(gd_tensor_format(t, text, sizeof text) < sizeof text);
    assert_string_equal(text, expected);
}

/* np.array([0, 2**64 - 1, 1], 'u8') and its like */
static void print_as_numpy(void **state)
{
    gd_context *gd = *state;
    expect_text(ends(gd, GD_U64),
                "[                   0 18446744073709551615                    1]");
    expect_text(ends(gd, GD_I8), "[-128  127    1]");
    expect_text(ends(gd, GD_I16), "[-32768  32767      1]");
    expect_text(ends(gd, GD_U16), "[    0 65535     1]");
    expect_text(ends(gd, GD_U32), "[         0 4294967295          1]");
    expect_text(gd_select(ends(gd, GD_U64), 0, 1), "18446744073709551615");
    assert_true(gd_item(gd_select(ends(gd, GD_U64), 0, 1)) == 0x1p64);
    assert_true(gd_item(gd_select(ends(gd, GD_I8), 0, 0)) == -128);
}

static void live_in_files(void **state)
{
    need_json();
    gd_context *gd = *state;
    char path[64];
    snprintf(path, sizeof path, "integers_%d.safetensors", (int)getpid());
    gd_named_tensor list[INTEGERS];
    for (int i = 0; i < INTEGERS; i++)
        list[i] = (gd_named_tensor){ gd_dtype_name(integers[i]), ends(gd, integers[i]) };
    assert_int_equal(gd_tensors_save(path, INTEGERS, list, 0, NULL), GD_OK);
    gd_tensor_file *file = gd_tensor_file_open(path);
    assert_non_null(file);
    for (int i = 0; i < INTEGERS; i++) {
        int64_t k = gd_tensor_file_find(file, list[i].name);
        assert_true(k >= 0);
        assert_same_bits(gd_tensor_file_read(file, gd, k), list[i].tensor);
    }
    gd_tensor_file_close(file);
    unlink(path);
    /* IDX of i16, big-endian: [2] = 258, -2 */
    static const unsigned char idx_file[] = { 0, 0, 0x0b, 1, 0, 0, 0, 2, 1, 2, 0xff, 0xfe };
    gd_idx idx;
    assert_int_equal(gd_idx_read_memory(idx_file, sizeof idx_file, &idx), GD_OK);
    assert_int_equal(gd_idx_dtype(idx.type), GD_I16);
    expect(gd_from_host(gd, GD_SHAPE(2), gd_idx_dtype(idx.type), idx.data), GD_I16, 2,
           (uint64_t[]){ 258, (uint64_t)-2 });
    gd_idx_free(&idx);
    assert_int_equal(gd_idx_dtype((gd_idx_type)0x0a), GD_DTYPE_COUNT);
}

/* Eager, compiled and on the reference device: groups with every integer dtype in them. */
static gd_tensor *mixture(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *sum = gd_cast(in[0], GD_F64);
    for (int i = 0; i < INTEGERS; i++) {
        gd_tensor *x = gd_cast(gd_mul_scalar(in[0], 100.5), integers[i]);
        gd_tensor *y = gd_floor_div(gd_add_scalar(x, 7),
                                    gd_full(gd_tensor_context(x), GD_SCALAR, 3, integers[i]));
        sum = gd_add(sum, gd_where(gd_lt(y, x), gd_cast(y, GD_F64), gd_cast(gd_mod(x, y), GD_F64)));
    }
    return sum;
}

static void compiled_as_eager(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_arange(gd, -50, 50, 0.37, GD_F32);
    gd_tensor *eager = mixture(NULL, 1, &x);
    gd_function *f = gd_compile(gd, mixture, NULL);
    assert_true(gd_call(f, 1, &x));
    assert_same_bits(gd_function_result(f, 0), eager);
    gd_context *plain = gd_open("reference");
    gd_tensor *there = mixture(NULL, 1, (gd_tensor *[]){ gd_arange(plain, -50, 50, 0.37, GD_F32) });
    assert_same_bits(there, eager);
    gd_close(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(arithmetic_wraps),
        context_test(order_and_extremes),
        context_test(sums_count_in_64_bits),
        context_test(move_and_index),
        context_test(no_index_is_in_an_empty_axis),
        context_test(numbers_beyond_doubles),
        context_test(print_as_numpy),
        context_test(live_in_files),
        context_test(compiled_as_eager),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
