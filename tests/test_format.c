/* tests/test_format.c: arrays as text, against strings NumPy 2.4.6 printed: each row is the str()
 * of the call it names. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/half.h"
#include "tensor/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct golden {
    const char *call;
    gd_dtype dtype;
    gd_shape shape;
    const char *text;
    double values[12];
    double step; /* if not 0: element i is i * step */
} golden;

// clang-format off
static const golden goldens[] = {
    { "np.array([1, 2.25, 3], 'f4')", GD_F32, { 1, { 3 } },
      "[1.   2.25 3.  ]",
      .values = { 1, 2.25, 3 } },
    { "np.array([[1, 2], [3, 4]], 'f4')", GD_F32, { 2, { 2, 2 } },
      "[[1. 2.]\n"
      " [3. 4.]]",
      .values = { 1, 2, 3, 4 } },
    { "np.array([0.1, 0.2, 0.3], 'f4')", GD_F32, { 1, { 3 } },
      "[0.1 0.2 0.3]",
      .values = { 0.10000000149011612, 0.20000000298023224, 0.30000001192092896 } },
    { "np.array([1/3, 2/3, 1e-3], 'f8')", GD_F64, { 1, { 3 } },
      "[0.33333333 0.66666667 0.001     ]",
      .values = { 0.3333333333333333, 0.6666666666666666, 0.001 } },
    { "np.array([1e-5, 1.2345679e-5], 'f4')", GD_F32, { 1, { 2 } },
      "[9.9999997e-06 1.2345679e-05]",
      .values = { 9.999999747378752e-06, 1.2345679351710714e-05 } },
    { "np.array([1e-10, 1, 123456789.123456789], 'f8')", GD_F64, { 1, { 3 } },
      "[1.00000000e-10 1.00000000e+00 1.23456789e+08]",
      .values = { 1e-10, 1, 123456789.12345679 } },
    { "np.array([1e100, -1e-100], 'f8')", GD_F64, { 1, { 2 } },
      "[ 1.e+100 -1.e-100]",
      .values = { 1e+100, -1e-100 } },
    { "np.array([999999, -1], 'f4')", GD_F32, { 1, { 2 } },
      "[ 9.99999e+05 -1.00000e+00]",
      .values = { 999999, -1 } },
    { "np.array([1e6, 5e5], 'f4')", GD_F32, { 1, { 2 } },
      "[1.e+06 5.e+05]",
      .values = { 1000000, 500000 } },
    { "np.array([1e8, 5e7], 'f8')", GD_F64, { 1, { 2 } },
      "[1.e+08 5.e+07]",
      .values = { 100000000, 50000000 } },
    { "np.array([np.nan, np.inf, -np.inf, -0.0], 'f4')", GD_F32, { 1, { 4 } },
      "[ nan  inf -inf  -0.]",
      .values = { NAN, INFINITY, -INFINITY, -0.0 } },
    { "np.array([np.nan, np.nan], 'f4')", GD_F32, { 1, { 2 } },
      "[nan nan]",
      .values = { NAN, NAN } },
    { "np.array([np.inf, 1e-7, -2], 'f8')", GD_F64, { 1, { 3 } },
      "[    inf  1.e-07 -2.e+00]",
      .values = { INFINITY, 1e-07, -2 } },
    { "np.array([0.1, 1/3, 100, 6e-8], 'f2')", GD_F16, { 1, { 4 } },
      "[9.998e-02 3.333e-01 1.000e+02 5.960e-08]",
      .values = { 0.0999755859375, 0.333251953125, 100, 5.960464477539063e-08 } },
    { "np.array([0.1, -2.5, 99.9], 'f2')", GD_F16, { 1, { 3 } },
      "[ 0.1 -2.5 99.9]",
      .values = { 0.0999755859375, -2.5, 99.875 } },
    { "np.array([65504, 1], 'f2')", GD_F16, { 1, { 2 } },
      "[6.55e+04 1.00e+00]",
      .values = { 65504, 1 } },
    { "np.array([[1, -20], [300, 4]], 'i4')", GD_I32, { 2, { 2, 2 } },
      "[[  1 -20]\n"
      " [300   4]]",
      .values = { 1, -20, 300, 4 } },
    { "np.array([-9007199254740992, 7], 'i8')", GD_I64, { 1, { 2 } },
      "[-9007199254740992                 7]",
      .values = { -9007199254740992.0, 7 } },
    { "np.array([0, 255, 17], 'u1')", GD_U8, { 1, { 3 } },
      "[  0 255  17]",
      .values = { 0, 255, 17 } },
    { "np.array([True, False, True], '?')", GD_BOOL, { 1, { 3 } },
      "[ True False  True]",
      .values = { 1, 0, 1 } },
    { "np.array([[True, True], [True, True]], '?')", GD_BOOL, { 2, { 2, 2 } },
      "[[ True  True]\n"
      " [ True  True]]",
      .values = { 1, 1, 1, 1 } },
    { "np.arange(12, dtype='f4').reshape(2, 3, 2)", GD_F32, { 3, { 2, 3, 2 } },
      "[[[ 0.  1.]\n"
      "  [ 2.  3.]\n"
      "  [ 4.  5.]]\n"
      "\n"
      " [[ 6.  7.]\n"
      "  [ 8.  9.]\n"
      "  [10. 11.]]]",
      .values = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 } },
    { "np.arange(8, dtype='i4').reshape(2, 1, 2, 2)", GD_I32, { 4, { 2, 1, 2, 2 } },
      "[[[[0 1]\n"
      "   [2 3]]]\n"
      "\n"
      "\n"
      " [[[4 5]\n"
      "   [6 7]]]]",
      .values = { 0, 1, 2, 3, 4, 5, 6, 7 } },
    { "np.arange(30, dtype='f4') / 8", GD_F32, { 1, { 30 } },
      "[0.    0.125 0.25  0.375 0.5   0.625 0.75  0.875 1.    1.125 1.25  1.375\n"
      " 1.5   1.625 1.75  1.875 2.    2.125 2.25  2.375 2.5   2.625 2.75  2.875\n"
      " 3.    3.125 3.25  3.375 3.5   3.625]",
      .step = 0.125 },
    { "np.arange(40, dtype='f8').reshape(2, 20) * 1.5", GD_F64, { 2, { 2, 20 } },
      "[[ 0.   1.5  3.   4.5  6.   7.5  9.  10.5 12.  13.5 15.  16.5 18.  19.5\n"
      "  21.  22.5 24.  25.5 27.  28.5]\n"
      " [30.  31.5 33.  34.5 36.  37.5 39.  40.5 42.  43.5 45.  46.5 48.  49.5\n"
      "  51.  52.5 54.  55.5 57.  58.5]]",
      .step = 1.5 },
    { "np.arange(1001, dtype='i4')", GD_I32, { 1, { 1001 } },
      "[   0    1    2 ...  998  999 1000]",
      .step = 1 },
    { "np.arange(2400, dtype='f4').reshape(40, 60)", GD_F32, { 2, { 40, 60 } },
      "[[0.000e+00 1.000e+00 2.000e+00 ... 5.700e+01 5.800e+01 5.900e+01]\n"
      " [6.000e+01 6.100e+01 6.200e+01 ... 1.170e+02 1.180e+02 1.190e+02]\n"
      " [1.200e+02 1.210e+02 1.220e+02 ... 1.770e+02 1.780e+02 1.790e+02]\n"
      " ...\n"
      " [2.220e+03 2.221e+03 2.222e+03 ... 2.277e+03 2.278e+03 2.279e+03]\n"
      " [2.280e+03 2.281e+03 2.282e+03 ... 2.337e+03 2.338e+03 2.339e+03]\n"
      " [2.340e+03 2.341e+03 2.342e+03 ... 2.397e+03 2.398e+03 2.399e+03]]",
      .step = 1 },
    { "np.arange(1200, dtype='i4').reshape(10, 10, 12)", GD_I32, { 3, { 10, 10, 12 } },
      "[[[   0    1    2 ...    9   10   11]\n"
      "  [  12   13   14 ...   21   22   23]\n"
      "  [  24   25   26 ...   33   34   35]\n"
      "  ...\n"
      "  [  84   85   86 ...   93   94   95]\n"
      "  [  96   97   98 ...  105  106  107]\n"
      "  [ 108  109  110 ...  117  118  119]]\n"
      "\n"
      " [[ 120  121  122 ...  129  130  131]\n"
      "  [ 132  133  134 ...  141  142  143]\n"
      "  [ 144  145  146 ...  153  154  155]\n"
      "  ...\n"
      "  [ 204  205  206 ...  213  214  215]\n"
      "  [ 216  217  218 ...  225  226  227]\n"
      "  [ 228  229  230 ...  237  238  239]]\n"
      "\n"
      " [[ 240  241  242 ...  249  250  251]\n"
      "  [ 252  253  254 ...  261  262  263]\n"
      "  [ 264  265  266 ...  273  274  275]\n"
      "  ...\n"
      "  [ 324  325  326 ...  333  334  335]\n"
      "  [ 336  337  338 ...  345  346  347]\n"
      "  [ 348  349  350 ...  357  358  359]]\n"
      "\n"
      " ...\n"
      "\n"
      " [[ 840  841  842 ...  849  850  851]\n"
      "  [ 852  853  854 ...  861  862  863]\n"
      "  [ 864  865  866 ...  873  874  875]\n"
      "  ...\n"
      "  [ 924  925  926 ...  933  934  935]\n"
      "  [ 936  937  938 ...  945  946  947]\n"
      "  [ 948  949  950 ...  957  958  959]]\n"
      "\n"
      " [[ 960  961  962 ...  969  970  971]\n"
      "  [ 972  973  974 ...  981  982  983]\n"
      "  [ 984  985  986 ...  993  994  995]\n"
      "  ...\n"
      "  [1044 1045 1046 ... 1053 1054 1055]\n"
      "  [1056 1057 1058 ... 1065 1066 1067]\n"
      "  [1068 1069 1070 ... 1077 1078 1079]]\n"
      "\n"
      " [[1080 1081 1082 ... 1089 1090 1091]\n"
      "  [1092 1093 1094 ... 1101 1102 1103]\n"
      "  [1104 1105 1106 ... 1113 1114 1115]\n"
      "  ...\n"
      "  [1164 1165 1166 ... 1173 1174 1175]\n"
      "  [1176 1177 1178 ... 1185 1186 1187]\n"
      "  [1188 1189 1190 ... 1197 1198 1199]]]",
      .step = 1 },
    { "np.zeros((0, 3), 'f4')", GD_F32, { 2, { 0, 3 } },
      "[]", .values = { 0 } },
    { "np.zeros((1, 1, 1), 'f4')", GD_F32, { 3, { 1, 1, 1 } },
      "[[[0.]]]",
      .values = { 0 } },
    { "np.array(2.5, 'f4')", GD_F32, { .rank = 0 },
      "2.5",
      .values = { 2.5 } },
    { "np.array(3, 'f4')", GD_F32, { .rank = 0 },
      "3.0",
      .values = { 3 } },
    { "np.array(0.1, 'f4')", GD_F32, { .rank = 0 },
      "0.1",
      .values = { 0.10000000149011612 } },
    { "np.array(1e6, 'f4')", GD_F32, { .rank = 0 },
      "1e+06",
      .values = { 1000000 } },
    { "np.array(-1.5e-7, 'f4')", GD_F32, { .rank = 0 },
      "-1.5e-07",
      .values = { -1.500000053056283e-07 } },
    { "np.array(-0.0, 'f4')", GD_F32, { .rank = 0 },
      "-0.0",
      .values = { -0.0 } },
    { "np.array(np.nan, 'f4')", GD_F32, { .rank = 0 },
      "nan",
      .values = { NAN } },
    { "np.array(-np.inf, 'f4')", GD_F32, { .rank = 0 },
      "-inf",
      .values = { -INFINITY } },
    { "np.array(2.0**-103, 'f4')", GD_F32, { .rank = 0 },
      "9.8607613e-32",
      .values = { 9.860761315262648e-32 } },
    { "np.array(1/3, 'f8')", GD_F64, { .rank = 0 },
      "0.3333333333333333",
      .values = { 0.3333333333333333 } },
    { "np.array(1e16, 'f8')", GD_F64, { .rank = 0 },
      "1e+16",
      .values = { 1e+16 } },
    { "np.array(123456789012345.0, 'f8')", GD_F64, { .rank = 0 },
      "123456789012345.0",
      .values = { 123456789012345 } },
    { "np.array(2.0**-44, 'f8')", GD_F64, { .rank = 0 },
      "5.684341886080802e-14",
      .values = { 5.684341886080802e-14 } },
    { "np.array(5e-324, 'f8')", GD_F64, { .rank = 0 },
      "5e-324",
      .values = { 5e-324 } },
    { "np.array(1/3, 'f2')", GD_F16, { .rank = 0 },
      "0.3333",
      .values = { 0.333251953125 } },
    { "np.array(1000, 'f2')", GD_F16, { .rank = 0 },
      "1e+03",
      .values = { 1000 } },
    { "np.array(-12, 'i8')", GD_I64, { .rank = 0 },
      "-12",
      .values = { -12 } },
    { "np.array(True, '?')", GD_BOOL, { .rank = 0 },
      "True",
      .values = { 1 } },
    { "np.array(200, 'u1')", GD_U8, { .rank = 0 },
      "200",
      .values = { 200 } },
};
// clang-format on

static void store(gd_dtype dtype, void *at, int64_t i, double value)
{
    switch (dtype) {
    case GD_F32:
        ((float *)at)[i] = (float)value;
        break;
    case GD_F64:
        ((double *)at)[i] = value;
        break;
    case GD_I32:
        ((int32_t *)at)[i] = (int32_t)value;
        break;
    case GD_I64:
        ((int64_t *)at)[i] = (int64_t)value;
        break;
    case GD_F16:
        ((uint16_t *)at)[i] = gd_f32_to_f16((float)value);
        break;
    case GD_BF16:
        ((uint16_t *)at)[i] = gd_f32_to_bf16((float)value);
        break;
    default:
        ((uint8_t *)at)[i] = (uint8_t)value;
    }
}

static void test_as_numpy(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof goldens / sizeof *goldens; g++) {
        const golden *row = &goldens[g];
        gd_layout layout;
        assert_int_equal(gd_layout_init(&layout, row->shape, row->dtype, "test"), GD_OK);
        int64_t count = gd_layout_count(&layout);
        void *data = malloc((size_t)count * 8 + 8);
        for (int64_t i = 0; i < count; i++)
            store(row->dtype, data, i, row->step != 0 ? (double)i * row->step : row->values[i]);
        size_t length = gd_format_array(&layout, data, NULL, 0);
        char *text = malloc(length + 1);
        assert_int_equal(gd_format_array(&layout, data, text, length + 1), length);
        if (strcmp(text, row->text) != 0)
            print_error("%s\nexpected:\n%s\nprinted:\n%s\n", row->call, row->text, text);
        assert_string_equal(text, row->text);
        free(text);
        free(data);
    }
}

static void test_strides(void **state)
{
    (void)state;
    const float data[] = { 0, 1, 2, 3, 4, 5 };
    char text[100];
    gd_layout t = { .rank = 2, .dtype = GD_F32, .shape = { 3, 2 }, .stride = { 1, 3 } };
    gd_format_array(&t, data, text, sizeof text);
    assert_string_equal(text, "[[0. 3.]\n [1. 4.]\n [2. 5.]]"); /* np.arange(6.).reshape(2, 3).T */
    gd_layout backwards = { .rank = 1, .dtype = GD_F32, .shape = { 3 }, .stride = { -2 } };
    gd_format_array(&backwards, data + 5, text, sizeof text);
    assert_string_equal(text, "[5. 3. 1.]"); /* np.arange(6.)[::-2] */
    gd_layout stretched = { .rank = 1, .dtype = GD_F32, .shape = { 3 }, .stride = { 0 } };
    gd_format_array(&stretched, data + 2, text, sizeof text);
    assert_string_equal(text, "[2. 2. 2.]");
}

/* bfloat16 has no NumPy of its own: the fewest digits that no other bfloat16 is nearer to, in the
 * float rules. */
static void test_bf16(void **state)
{
    (void)state;
    uint16_t data[3] = { gd_f32_to_bf16(0.1f), gd_f32_to_bf16(3.14159f), gd_f32_to_bf16(-2) };
    gd_layout layout = { .rank = 1, .dtype = GD_BF16, .shape = { 3 }, .stride = { 1 } };
    char text[64];
    gd_format_array(&layout, data, text, sizeof text);
    assert_string_equal(text, "[ 0.1   3.14 -2.  ]");
}

/* Whatever the buffer's size, the text is the prefix that fits, terminated, and the length is that
 * of the whole. */
static void test_truncation(void **state)
{
    (void)state;
    const float data[] = { 1, 2.25f, 3, 4 };
    gd_layout layout = { .rank = 2, .dtype = GD_F32, .shape = { 2, 2 }, .stride = { 2, 1 } };
    const char *whole = "[[1.   2.25]\n [3.   4.  ]]";
    char text[64];
    for (size_t size = 1; size < sizeof text; size++) {
        memset(text, 'x', sizeof text);
        assert_int_equal(gd_format_array(&layout, data, text, size), strlen(whole));
        size_t kept = size <= strlen(whole) ? size - 1 : strlen(whole);
        assert_memory_equal(text, whole, kept);
        assert_int_equal(text[kept], '\0');
        for (size_t i = kept + 1; i < sizeof text; i++)
            assert_int_equal(text[i], 'x');
    }
}

/* In the shortest text, every f16 reads back as itself. */
static void test_every_f16_reads_back(void **state)
{
    (void)state;
    gd_layout layout = { .dtype = GD_F16 };
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t half = (uint16_t)bits;
        char text[32];
        assert_true(gd_format_array(&layout, &half, text, sizeof text) < 13);
        if (isnan(gd_f16_to_f32(half)))
            assert_string_equal(text, "nan");
        else
            assert_int_equal(gd_f32_to_f16(strtof(text, NULL)), half);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_numpy),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_every_f16_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
