/* tests/test_npy.c: NumPy's .npy and .npz files as numpy writes them (tests/goldens/make_npy.py), every truncation of
 * them, and arrays written and read back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "support/context.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define FILES        GD_SOURCE_DIR "/tests/data/npy/"

static int clear_error(void **state)
{
    (void)state;
    gd_fail_allocations_after(-1);
    gd_error_clear();
    return 0;
}

static gd_status read_file(const char *name, gd_npy *out)
{
    char path[512];
    snprintf(path, sizeof path, FILES "%s.npy", name);
    return gd_npy_read(path, out);
}

static void assert_all_zero(const gd_npy *npy)
{
    static const gd_npy zero;
    assert_memory_equal(npy, &zero, sizeof zero);
}

/* Element i is i - 3, of unsigned dtypes i, of bools i % 2. */
static void assert_numbers(gd_context *gd, const gd_npy *npy)
{
    gd_tensor *t = gd_from_host(gd, npy->shape, npy->dtype, npy->data);
    gd_tensor *wide = gd_cast(t, GD_F64);
    assert_non_null(wide);
    double values[24];
    int64_t count = gd_tensor_count(wide);
    assert_true(count <= 24);
    assert_int_equal(gd_tensor_read(wide, values, (size_t)count * sizeof *values), GD_OK);
    bool is_unsigned =
        npy->dtype == GD_U8 || npy->dtype == GD_U16 || npy->dtype == GD_U32 || npy->dtype == GD_U64;
    for (int64_t i = 0; i < count; i++)
        assert_true(values[i] == (double)(npy->dtype == GD_BOOL ? i % 2 : is_unsigned ? i : i - 3));
}

static void files_of_numpy_are_read(void **state)
{
    static const struct {
        const char *name;
        gd_dtype dtype;
        gd_shape shape;
    } rows[] = {
        { "b1", GD_BOOL, { 3, { 2, 3, 4 } } },      { "u1", GD_U8, { 3, { 2, 3, 4 } } },
        { "i1", GD_I8, { 3, { 2, 3, 4 } } },        { "u2", GD_U16, { 3, { 2, 3, 4 } } },
        { "i2", GD_I16, { 3, { 2, 3, 4 } } },       { "u4", GD_U32, { 3, { 2, 3, 4 } } },
        { "i4", GD_I32, { 3, { 2, 3, 4 } } },       { "u8", GD_U64, { 3, { 2, 3, 4 } } },
        { "i8", GD_I64, { 3, { 2, 3, 4 } } },       { "f2", GD_F16, { 3, { 2, 3, 4 } } },
        { "f4", GD_F32, { 3, { 2, 3, 4 } } },       { "f8", GD_F64, { 3, { 2, 3, 4 } } },
        { "big_u2", GD_U16, { 3, { 2, 3, 4 } } },   { "big_i4", GD_I32, { 3, { 2, 3, 4 } } },
        { "big_i8", GD_I64, { 3, { 2, 3, 4 } } },   { "big_f2", GD_F16, { 3, { 2, 3, 4 } } },
        { "big_f4", GD_F32, { 3, { 2, 3, 4 } } },   { "big_f8", GD_F64, { 3, { 2, 3, 4 } } },
        { "fortran", GD_F32, { 3, { 2, 3, 4 } } },  { "big_fortran", GD_F64, { 3, { 2, 3, 4 } } },
        { "version2", GD_I32, { 3, { 2, 3, 4 } } }, { "version3", GD_I32, { 3, { 2, 3, 4 } } },
        { "scalar", GD_F32, { .rank = 0 } },        { "vector", GD_F32, { 1, { 5 } } },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gd_npy npy;
        if (read_file(rows[i].name, &npy) != GD_OK)
            fail_msg("%s", gd_error_message());
        assert_int_equal(npy.dtype, rows[i].dtype);
        assert_memory_equal(&npy.shape, &rows[i].shape, sizeof npy.shape);
        assert_numbers(*state, &npy);
        gd_npy_free(&npy);
        assert_all_zero(&npy);
    }
    gd_npy empty;
    assert_int_equal(read_file("empty", &empty), GD_OK);
    assert_int_equal(empty.bytes, 0);
    assert_int_equal(empty.shape.rank, 2);
    assert_int_equal(empty.shape.dim[0], 3);
    gd_npy_free(&empty);
    gd_npy_free(NULL);
}

static void what_gradus_has_no_dtype_for_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *words;
    } rows[] = { { "complex", "its values are <c8" },
                 { "text", "its values are <U1" },
                 { "records", "records" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gd_npy npy;
        assert_int_equal(read_file(rows[i].name, &npy), GD_ERR_UNSUPPORTED);
        expect_error(GD_ERR_UNSUPPORTED, rows[i].words);
        assert_all_zero(&npy);
    }
}

/* ---- broken files ---- */

static char temporary[64];

static const char *write_bytes(const void *bytes, size_t size)
{
    snprintf(temporary, sizeof temporary, "/tmp/gradus-npy-%ld", (long)getpid());
    assert_int_equal(gd_file_write(temporary, bytes, size), GD_OK);
    return temporary;
}

static const char *write_header(const char *dictionary, size_t values)
{
    unsigned char file[1024] = "\x93NUMPY\1";
    size_t length = strlen(dictionary);
    file[8] = (unsigned char)length;
    memcpy(file + 10, dictionary, length);
    return write_bytes(file, 10 + length + values);
}

static void broken_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *dictionary, *words;
        gd_status status;
    } rows[] = {
        { "", "no dictionary", GD_ERR_FORMAT },
        { "{}", "lacks descr", GD_ERR_FORMAT },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "no comma", GD_ERR_FORMAT },
        { "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", "no True or False",
          GD_ERR_FORMAT },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2.5,)}", "no comma", GD_ERR_FORMAT },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "no size", GD_ERR_FORMAT },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "no size",
          GD_ERR_FORMAT },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
          "more values than memory", GD_ERR_FORMAT },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
          "more than 8 axes", GD_ERR_UNSUPPORTED },
        { "{'descr': '<f4', 'descr': '<f4'}", "unknown or twice", GD_ERR_FORMAT },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "less than the 12 bytes",
          GD_ERR_FORMAT },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "more than the 4 bytes",
          GD_ERR_FORMAT },
        { "{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", "its values are <f16",
          GD_ERR_UNSUPPORTED },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gd_npy npy;
        assert_int_equal(gd_npy_read(write_header(rows[i].dictionary, 8), &npy), rows[i].status);
        expect_error(rows[i].status, rows[i].words);
        assert_all_zero(&npy);
    }
    gd_npy npy;
    assert_int_equal(
        gd_npy_read(write_header("{\"shape\": (2, 1L), 'fortran_order':True,'descr':'<f4',}", 8),
                    &npy),
        GD_OK);
    assert_int_equal(npy.bytes, 8);
    gd_npy_free(&npy);
    gd_npy_read(write_bytes("NUMPY", 5), &npy);
    expect_error(GD_ERR_FORMAT, "ends within");
    gd_npy_read(write_bytes("\x93NUMPY\4\0\0\0", 10), &npy);
    expect_error(GD_ERR_FORMAT, "not a .npy file of version 1, 2 or 3");
    gd_npy_read(NULL, &npy);
    expect_error(GD_ERR_INVALID, "NULL");
    unlink(temporary);
}

static unsigned char *bytes_of(const char *name, size_t *size)
{
    static unsigned char bytes[4096];
    char path[512];
    snprintf(path, sizeof path, FILES "%s", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    return bytes;
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = bytes_of("fortran.npy", &size);
    for (size_t n = 0; n < size; n++) {
        gd_npy npy;
        assert_int_equal(gd_npy_read(write_bytes(bytes, n), &npy), GD_ERR_FORMAT);
        assert_all_zero(&npy);
        gd_error_clear();
    }
    bytes = bytes_of("stored.npz", &size);
    for (size_t n = 0; n < size; n++) {
        assert_null(gd_npz_open(write_bytes(bytes, n)));
        assert_int_equal(gd_error_code(), GD_ERR_FORMAT);
        gd_error_clear();
    }
    unlink(temporary);
}

/* ---- archives ---- */

static void archives_of_numpy_are_read(void **state)
{
    static const char *const names[] = { "stored", "deflated" };
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[512];
        snprintf(path, sizeof path, FILES "%s.npz", names[i]);
        gd_npz *npz = gd_npz_open(path);
        assert_non_null(npz);
        assert_int_equal(gd_npz_count(npz), 2 + (int64_t)i);
        assert_string_equal(gd_npz_name(npz, 0), "x");
        assert_int_equal(gd_npz_find(npz, "labels"), 1);
        assert_int_equal(gd_npz_find(npz, "y"), -1);
        assert_null(gd_npz_name(npz, 9));
        for (int64_t k = 0; k < 2; k++) {
            gd_npy npy;
            gd_status status = gd_npz_read(npz, k, &npy);
#ifndef GD_HAVE_ZLIB
            if (i == 1) {
                expect_error(GD_ERR_UNSUPPORTED, "without zlib");
                continue;
            }
#endif
            assert_int_equal(status, GD_OK);
            assert_numbers(*state, &npy);
            gd_npy_free(&npy);
        }
        gd_npy npy;
        gd_npz_read(npz, 9, &npy);
        expect_error(GD_ERR_INVALID, "no array 9");
        gd_npz_close(npz);
    }
    gd_npz_close(NULL);
    assert_int_equal(gd_npz_count(NULL), 0);
    assert_null(gd_npz_open(FILES "f4.npy"));
    expect_error(GD_ERR_FORMAT, "not a .npz archive");
}

#ifdef GD_HAVE_ZLIB
/* Whatever byte is flipped: the same numbers, or an error; a value's is found by the checksum. */
static void flipped_bytes_are_found(void **state)
{
    size_t size;
    int refused = 0;
    unsigned char *bytes = bytes_of("deflated.npz", &size);
    for (size_t at = 0; at < size; at++) {
        bytes[at] ^= 0x10;
        gd_npz *npz = gd_npz_open(write_bytes(bytes, size));
        gd_npy npy;
        if (npz && gd_npz_find(npz, "x") == 0 && gd_npz_read(npz, 0, &npy) == GD_OK) {
            assert_numbers(*state, &npy);
            gd_npy_free(&npy);
        } else {
            refused++;
        }
        gd_npz_close(npz);
        gd_error_clear();
        bytes[at] ^= 0x10;
    }
    assert_true(refused > 200);
    unlink(temporary);
}
#endif

/* ---- writing ---- */

/* Byte for byte what numpy.save writes. */
static void written_arrays_are_those_of_numpy(void **state)
{
    (void)state;
    static const char *const names[] = { "b1", "u1", "i2",     "i8",     "f2",
                                         "f4", "f8", "scalar", "vector", "empty" };
    for (size_t i = 0; i < COUNT(names); i++) {
        gd_npy npy;
        char file[32];
        unsigned char again[4096];
        size_t size, same;
        assert_int_equal(read_file(names[i], &npy), GD_OK);
        assert_int_equal(gd_npy_write(write_bytes("", 0), &npy), GD_OK);
        FILE *written = fopen(temporary, "rb");
        assert_non_null(written);
        same = fread(again, 1, sizeof again, written);
        fclose(written);
        snprintf(file, sizeof file, "%s.npy", names[i]);
        unsigned char *bytes = bytes_of(file, &size);
        assert_int_equal(size, same);
        assert_memory_equal(again, bytes, size);
        gd_npy_free(&npy);
    }
    float values[2] = { 1, 2 };
    gd_npy npy = { .dtype = GD_F32, .shape = GD_SHAPE(3), .data = values, .bytes = sizeof values };
    gd_npy_write(temporary, &npy);
    expect_error(GD_ERR_INVALID, "8 bytes");
    npy =
        (gd_npy){ .dtype = GD_BF16, .shape = GD_SHAPE(4), .data = values, .bytes = sizeof values };
    gd_npy_write(temporary, &npy);
    expect_error(GD_ERR_INVALID, "NumPy has no bf16");
    unlink(temporary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_of_numpy_are_read, open_context, close_context),
        cmocka_unit_test_setup(what_gradus_has_no_dtype_for_is_refused, clear_error),
        cmocka_unit_test_setup(broken_headers_are_refused, clear_error),
        cmocka_unit_test_setup(every_truncation_is_refused, clear_error),
        cmocka_unit_test_setup_teardown(archives_of_numpy_are_read, open_context, close_context),
#ifdef GD_HAVE_ZLIB
        cmocka_unit_test_setup_teardown(flipped_bytes_are_found, open_context, close_context),
#endif
        cmocka_unit_test_setup(written_arrays_are_those_of_numpy, clear_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
