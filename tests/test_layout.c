/* tests/test_layout.c: dtypes and promotion, layouts, reshape without a copy, broadcasting. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/random.h"
#include "tensor/layout.h"

#include <limits.h>
#include <string.h>

static int clear_error(void **state)
{
    (void)state;
    gd_error_clear();
    return 0;
}

/* ---- dtypes ---- */

static void test_dtype_rows(void **state)
{
    (void)state;
    static const struct {
        gd_dtype dtype;
        const char *name;
        size_t size;
    } rows[] = { { GD_F32, "f32", 4 }, { GD_F64, "f64", 8 },   { GD_I32, "i32", 4 },
                 { GD_I64, "i64", 8 }, { GD_U8, "u8", 1 },     { GD_BOOL, "bool", 1 },
                 { GD_F16, "f16", 2 }, { GD_BF16, "bf16", 2 }, { GD_DTYPE_COUNT, "?", 0 },
                 { GD_I8, "i8", 1 },   { GD_I16, "i16", 2 },   { GD_U16, "u16", 2 },
                 { GD_U32, "u32", 4 }, { GD_U64, "u64", 8 },   { (gd_dtype)-1, "?", 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(gd_dtype_name(rows[i].dtype), rows[i].name);
        assert_int_equal(gd_dtype_size(rows[i].dtype), rows[i].size);
    }
}

#include "goldens/promotions.h"

/* As NumPy and PyTorch have it; and as the table in gradus/tensor.h does. */
static void test_promotion(void **state)
{
    (void)state;
    const size_t count = sizeof promotions / sizeof *promotions;
    assert_int_equal(count, GD_DTYPE_COUNT * GD_DTYPE_COUNT);
    for (size_t i = 0; i < count; i++) {
        gd_dtype got = gd_dtype_promote(promotions[i].a, promotions[i].b);
        if (got != promotions[i].promoted)
            fail_msg("%s with %s gives %s, expected %s", gd_dtype_name(promotions[i].a),
                     gd_dtype_name(promotions[i].b), gd_dtype_name(got),
                     gd_dtype_name(promotions[i].promoted));
    }
    FILE *f = fopen(GD_SOURCE_DIR "/include/gradus/tensor.h", "r");
    assert_non_null(f);
    const int dtypes = GD_DTYPE_COUNT;
    char line[200], *word;
    bool found = false;
    while (!found && fgets(line, sizeof line, f))
        found = strstr(line, "        bool  u8   i8") != NULL;
    assert_true(found);
    for (int row = 0; row < dtypes; row++) {
        assert_non_null(fgets(line, sizeof line, f));
        word = strtok(line, " *\n");
        assert_string_equal(word, gd_dtype_name(promotions[row * dtypes].a));
        for (int column = 0; column < dtypes; column++) {
            word = strtok(NULL, " *\n");
            assert_non_null(word);
            assert_string_equal(word, gd_dtype_name(promotions[row * dtypes + column].promoted));
        }
    }
    fclose(f);
    assert_int_equal(gd_dtype_promote(GD_F32, GD_DTYPE_COUNT), GD_DTYPE_COUNT);
    assert_int_equal(gd_dtype_promote((gd_dtype)-1, GD_F32), GD_DTYPE_COUNT);
}

/* ---- layouts ---- */

static gd_layout make(gd_shape shape)
{
    gd_layout layout;
    assert_int_equal(gd_layout_init(&layout, shape, GD_F32, "test"), GD_OK);
    return layout;
}

static void test_init(void **state)
{
    (void)state;
    gd_layout l = make(GD_SHAPE(2, 3, 4));
    assert_int_equal(l.rank, 3);
    assert_int_equal(l.offset, 0);
    assert_int_equal(l.stride[0], 12);
    assert_int_equal(l.stride[1], 4);
    assert_int_equal(l.stride[2], 1);
    assert_int_equal(gd_layout_count(&l), 24);
    assert_int_equal(gd_layout_bytes(&l), 96);
    assert_true(gd_layout_is_contiguous(&l));
    gd_shape back = gd_layout_shape(&l);
    assert_int_equal(back.rank, 3);
    assert_int_equal(back.dim[2], 4);

    l = make(GD_SCALAR);
    assert_int_equal(gd_layout_count(&l), 1);
    assert_int_equal(gd_layout_bytes(&l), 4);
    assert_true(gd_layout_is_contiguous(&l));

    l = make(GD_SHAPE(3, 0, 2));
    assert_int_equal(gd_layout_count(&l), 0);
    assert_true(gd_layout_is_contiguous(&l));
    make(GD_SHAPE((int64_t)1 << 46));
    make(GD_SHAPE(1 << 23, 1 << 23));
}

static void assert_refused(gd_shape shape, gd_dtype dtype, gd_status code, const char *sentence)
{
    gd_layout l = { .rank = 77 };
    gd_error_clear();
    assert_int_equal(gd_layout_init(&l, shape, dtype, "gd_zeros"), code);
    assert_int_equal(gd_error_code(), code);
    assert_string_equal(gd_error_message(), sentence);
    assert_int_equal(l.rank, 77); /* left alone */
}

static void test_init_refuses(void **state)
{
    (void)state;
    assert_refused((gd_shape){ .rank = 9 }, GD_F32, GD_ERR_SHAPE,
                   "gd_zeros: rank 9 is not in 0 to 8");
    assert_refused((gd_shape){ .rank = -1 }, GD_F32, GD_ERR_SHAPE,
                   "gd_zeros: rank -1 is not in 0 to 8");
    assert_refused(GD_SHAPE(2, -3), GD_F32, GD_ERR_SHAPE,
                   "gd_zeros: shape [2, -3] has a negative size");
    assert_refused(GD_SHAPE(((int64_t)1 << 46) + 1), GD_F32, GD_ERR_SHAPE,
                   "gd_zeros: shape [70368744177665] has more than 2^46 elements");
    assert_refused(
        GD_SHAPE(INT64_MAX, INT64_MAX), GD_F32, GD_ERR_SHAPE,
        "gd_zeros: shape [9223372036854775807, 9223372036854775807] has more than 2^46 elements");
    assert_refused(GD_SHAPE(0, INT64_MAX), GD_F32, GD_ERR_SHAPE,
                   "gd_zeros: shape [0, 9223372036854775807] has more than 2^46 elements");
    assert_refused(GD_SHAPE(2), GD_DTYPE_COUNT, GD_ERR_DTYPE, "gd_zeros: 13 is no dtype");
}

static void test_contiguity(void **state)
{
    (void)state;
    gd_layout l = make(GD_SHAPE(3, 4));
    l.stride[0] = 5;
    assert_false(gd_layout_is_contiguous(&l));
    l = make(GD_SHAPE(3, 4));
    l.stride[1] = -1;
    assert_false(gd_layout_is_contiguous(&l));
    l = make(GD_SHAPE(3, 1, 4));
    l.stride[1] = 99; /* never used */
    assert_true(gd_layout_is_contiguous(&l));
    l.shape[0] = 0;
    l.stride[0] = 7;
    assert_true(gd_layout_is_contiguous(&l));

    gd_layout a = make(GD_SHAPE(2, 3)), b = make(GD_SHAPE(2, 3)), c = make(GD_SHAPE(2, 3, 1)),
              d = make(GD_SHAPE(2, 4));
    b.stride[0] = 0;
    assert_true(gd_layout_same_shape(&a, &b));
    assert_false(gd_layout_same_shape(&a, &c));
    assert_false(gd_layout_same_shape(&a, &d));
}

static void test_text(void **state)
{
    (void)state;
    char text[GD_SHAPE_TEXT];
    assert_string_equal(gd_shape_text(GD_SHAPE(32, 784), text), "[32, 784]");
    assert_string_equal(gd_shape_text(GD_SCALAR, text), "[]");
    assert_string_equal(gd_shape_text((gd_shape){ .rank = INT_MAX }, text), "[rank 2147483647]");
    gd_shape widest = { .rank = 8 };
    for (int i = 0; i < 8; i++)
        widest.dim[i] = INT64_MIN;
    assert_int_equal(strlen(gd_shape_text(widest, text)), 176);
    gd_layout l = make(GD_SHAPE(5));
    assert_string_equal(gd_layout_text(&l, text), "[5]");
}

static void test_axis(void **state)
{
    (void)state;
    assert_int_equal(gd_axis_normal(0, 3, "t"), 0);
    assert_int_equal(gd_axis_normal(2, 3, "t"), 2);
    assert_int_equal(gd_axis_normal(-1, 3, "t"), 2);
    assert_int_equal(gd_axis_normal(-3, 3, "t"), 0);
    assert_int_equal(gd_error_code(), GD_OK);
    assert_int_equal(gd_axis_normal(3, 3, "gd_sum"), -1);
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    assert_string_equal(gd_error_message(), "gd_sum: axis 3 is not in -3 to 2");
    assert_int_equal(gd_axis_normal(-4, 3, "t"), -1);
    assert_int_equal(gd_axis_normal(INT_MIN, 3, "t"), -1);
    gd_error_clear();
    assert_int_equal(gd_axis_normal(0, 0, "gd_sum"), -1);
    assert_string_equal(gd_error_message(), "gd_sum: axis 0 of a 0-d tensor, which has no axes");
}

/* ---- reshape ---- */

/* Where element number `i` (row-major) lies. */
static int64_t place(const gd_layout *l, int64_t i)
{
    int64_t at = l->offset;
    for (int a = l->rank - 1; a >= 0; a--) {
        at += i % l->shape[a] * l->stride[a];
        i /= l->shape[a];
    }
    return at;
}

static void assert_same_places(const gd_layout *a, const gd_layout *b)
{
    assert_int_equal(gd_layout_count(a), gd_layout_count(b));
    for (int64_t i = 0; i < gd_layout_count(a); i++)
        assert_int_equal(place(a, i), place(b, i));
}

static void test_reshape(void **state)
{
    (void)state;
    gd_layout l = make(GD_SHAPE(4, 6)), out;
    assert_true(gd_layout_reshape(&l, GD_SHAPE(2, 2, 3, 2), &out));
    assert_same_places(&l, &out);
    assert_false(gd_layout_reshape(&l, GD_SHAPE(5, 5), &out));
    assert_false(gd_layout_reshape(&l, GD_SHAPE(-4, -6), &out));
    assert_false(
        gd_layout_reshape(&l, GD_SHAPE((int64_t)1 << 62, 4, 24), &out)); /* product wraps to 24 */

    gd_layout t = {
        .rank = 2, .dtype = GD_F32, .offset = 3, .shape = { 6, 4 }, .stride = { 1, 6 }
    };
    assert_true(gd_layout_reshape(&t, GD_SHAPE(2, 3, 2, 2), &out)); /* each axis split on its own */
    assert_int_equal(out.offset, 3);
    assert_same_places(&t, &out);
    assert_false(gd_layout_reshape(&t, GD_SHAPE(24), &out)); /* transposed: needs a copy */

    gd_layout flipped = {
        .rank = 1, .dtype = GD_F32, .offset = 5, .shape = { 6 }, .stride = { -1 }
    };
    assert_true(gd_layout_reshape(&flipped, GD_SHAPE(2, 3), &out));
    assert_same_places(&flipped, &out);

    gd_layout stretched = { .rank = 2, .dtype = GD_F32, .shape = { 3, 4 }, .stride = { 0, 0 } };
    assert_true(gd_layout_reshape(&stretched, GD_SHAPE(12), &out));
    assert_int_equal(out.stride[0], 0);

    gd_layout one = make(GD_SCALAR);
    assert_true(gd_layout_reshape(&one, GD_SHAPE(1, 1), &out));
    assert_true(gd_layout_reshape(&out, GD_SCALAR, &out)); /* may be the input itself */
    assert_int_equal(out.rank, 0);

    gd_layout empty = make(GD_SHAPE(0, 3));
    assert_true(gd_layout_reshape(&empty, GD_SHAPE(5, 0, 2), &out));
    assert_true(gd_layout_is_contiguous(&out));
    assert_false(gd_layout_reshape(&empty, GD_SHAPE(1), &out));
}

/* Random strided layouts and factorings: what reshape returns walks the same elements; what it
 * refuses has no strides at all (each axis of the new shape would need one stride for all its
 * steps). */
static void test_reshape_random(void **state)
{
    (void)state;
    gd_random random = { .seed = 7 };
    static const int64_t dims[3][4] = { { 2, 3, 4, 2 }, { 4, 1, 6, 2 }, { 12, 2, 1, 2 } };
    static const int64_t strides[6] = { 1, 2, 4, 8, 24, -1 };
    int kept = 0, refused = 0;
    for (int round = 0; round < 4000; round++) {
        gd_layout l = { .rank = 4, .dtype = GD_F32 }, out;
        const int64_t *shape = dims[gd_random_below(&random, 3)];
        bool row_major = gd_random_below(&random, 2);
        int64_t stride = 1;
        for (int a = 3; a >= 0; a--) {
            l.shape[a] = shape[a];
            bool broken = !row_major && gd_random_below(&random, 3) == 0;
            l.stride[a] = broken ? strides[gd_random_below(&random, 6)] : stride;
            stride = l.stride[a] * l.shape[a];
        }
        static const gd_shape targets[] = { { 1, { 48 } },         { 2, { 6, 8 } },
                                            { 2, { 24, 2 } },      { 3, { 2, 12, 2 } },
                                            { 4, { 2, 3, 4, 2 } }, { 3, { 4, 6, 2 } } };
        gd_shape target = targets[gd_random_below(&random, 6)];
        if (gd_layout_reshape(&l, target, &out)) {
            assert_same_places(&l, &out);
            kept++;
            continue;
        }
        refused++;
        gd_layout guess = make(target);
        guess.offset = place(&l, 0);
        int64_t inner = 48;
        for (int a = 0; a < target.rank; a++) { /* the only strides it could have */
            inner /= target.dim[a];
            guess.stride[a] = place(&l, inner) - guess.offset;
        }
        bool same = true;
        for (int64_t i = 0; i < 48; i++)
            same = same && place(&guess, i) == place(&l, i);
        assert_false(same);
    }
    assert_true(kept > 100 && refused > 100);
}

/* ---- broadcasting ---- */

static void test_broadcast(void **state)
{
    (void)state;
    gd_shape out;
    char text[GD_SHAPE_TEXT];
    assert_true(gd_shape_broadcast(GD_SHAPE(8, 1, 6, 1), GD_SHAPE(7, 1, 5), &out));
    assert_string_equal(gd_shape_text(out, text),
                        "[8, 7, 6, 5]"); /* NumPy's manual, "Broadcasting" */
    assert_true(gd_shape_broadcast(GD_SCALAR, GD_SHAPE(3, 4), &out));
    assert_string_equal(gd_shape_text(out, text), "[3, 4]");
    assert_true(gd_shape_broadcast(GD_SHAPE(0, 3), GD_SHAPE(1, 3), &out));
    assert_string_equal(gd_shape_text(out, text), "[0, 3]");
    assert_true(gd_shape_broadcast(GD_SHAPE(1), GD_SHAPE(0), &out));
    assert_string_equal(gd_shape_text(out, text), "[0]");
    assert_false(gd_shape_broadcast(GD_SHAPE(3), GD_SHAPE(4), &out));
    assert_false(gd_shape_broadcast(GD_SHAPE(2, 1), GD_SHAPE(8, 4, 3), &out) && out.dim[1] != 4);
    assert_false(gd_shape_broadcast(GD_SHAPE(0), GD_SHAPE(2), &out));

    gd_layout l = make(GD_SHAPE(3, 1)), view;
    l.offset = 11;
    assert_true(gd_layout_broadcast(&l, GD_SHAPE(2, 3, 5), &view));
    assert_int_equal(view.offset, 11);
    assert_int_equal(view.stride[0], 0);
    assert_int_equal(view.stride[1], 1);
    assert_int_equal(view.stride[2], 0);
    assert_true(gd_layout_broadcast(&l, GD_SHAPE(3, 0), &view));
    assert_int_equal(gd_layout_count(&view), 0);
    assert_false(gd_layout_broadcast(&l, GD_SHAPE(4, 1), &view));
    assert_false(gd_layout_broadcast(&l, GD_SHAPE(3), &view));
    assert_false(gd_layout_broadcast(&l, GD_SHAPE(-2, 3, 1), &view));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_dtype_rows, clear_error),
        cmocka_unit_test_setup(test_promotion, clear_error),
        cmocka_unit_test_setup(test_init, clear_error),
        cmocka_unit_test_setup(test_init_refuses, clear_error),
        cmocka_unit_test_setup(test_contiguity, clear_error),
        cmocka_unit_test_setup(test_text, clear_error),
        cmocka_unit_test_setup(test_axis, clear_error),
        cmocka_unit_test_setup(test_reshape, clear_error),
        cmocka_unit_test_setup(test_reshape_random, clear_error),
        cmocka_unit_test_setup(test_broadcast, clear_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
