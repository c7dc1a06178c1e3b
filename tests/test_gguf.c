/* tests/test_gguf.c: GGUF files: all types bit for bit as the Python package gguf reads and writes them (tests/goldens/make_gguf.py), values of all
 * kinds, every truncation, and files written and read back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradus/gradus.h>

#include "io/gguf.h"

#include "support/context.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define GOLDEN       GD_SOURCE_DIR "/tests/data/gguf/golden.gguf"

static const char *temporary(void)
{
    static char path[512];
    snprintf(path, sizeof path, GD_BINARY_DIR "/test_gguf_%d.gguf", (int)getpid());
    return path;
}

static unsigned char *file_bytes(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    unsigned char *bytes = malloc(1 << 20);
    *size = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

static void write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

static int64_t count_of(gd_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    return count;
}

/* Not by their bytes: the struct has padding. */
static void assert_same_shape(gd_shape a, gd_shape b)
{
    assert_int_equal(a.rank, b.rank);
    assert_memory_equal(a.dim, b.dim, (size_t)a.rank * sizeof *a.dim);
}

/* ---- types ---- */

static const char *const types[] = { "F32",  "F16",  "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
                                     "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K" };

static void all_types_are_read_as_the_package_does(void **state)
{
    gd_gguf *g = gd_gguf_open(GOLDEN);
    assert_non_null(g);
    assert_int_equal(gd_gguf_count(g), 1 + 2 * 13 + 7);
    for (size_t i = 0; i < COUNT(types); i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.read", types[i]);
        gd_gguf_info info, read;
        gd_gguf_type type;
        int64_t at = gd_gguf_find(g, types[i]), expected_at = gd_gguf_find(g, name);
        assert_int_equal(gd_gguf_tensor_info(g, at, &info), GD_OK);
        assert_int_equal(gd_gguf_tensor_info(g, expected_at, &read), GD_OK);
        assert_true(gd_gguf_type_find(types[i], &type) && type == info.type);
        assert_string_equal(gd_gguf_type_name(type), types[i]);
        assert_true(info.shape.rank == 2 && info.shape.dim[0] == 2 &&
                    info.shape.dim[1] == (strchr(types[i], 'K') ? 256 : 64));
        assert_same_shape(info.shape, read.shape);
        float got[512], expected[512];
        size_t size = (size_t)count_of(info.shape) * sizeof *got;
        assert_int_equal(gd_tensor_read(gd_gguf_read(g, *state, at), got, size), GD_OK);
        assert_int_equal(gd_tensor_read(gd_gguf_read(g, *state, expected_at), expected, size),
                         GD_OK);
        assert_memory_equal(got, expected, size);
    }
    assert_int_equal(gd_gguf_find(g, "Q8_1"), -1);
    assert_null(gd_gguf_read(g, *state, gd_gguf_count(g)));
    expect_error(GD_ERR_INVALID, "no tensor number");
    gd_gguf_close(g);
}

static void all_types_are_written_as_the_package_does(void **state)
{
    size_t size;
    unsigned char *file = file_bytes(GOLDEN, &size), blocks[1024];
    gd_gguf *g = gd_gguf_open(GOLDEN);
    float numbers[256];
    assert_int_equal(gd_tensor_read(gd_gguf_read(g, *state, gd_gguf_find(g, "numbers")), numbers,
                                    sizeof numbers),
                     GD_OK);
    int seen = 0;
    for (size_t i = 0; i < COUNT(types); i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.written", types[i]);
        const gd_gguf_entry *e = gd_gguf_entry_at(g, gd_gguf_find(g, name));
        size_t at;
        if (!e)
            continue;
        assert_true(gd_blocks_write(e->format, numbers, NULL, COUNT(numbers), blocks, &at));
        assert_memory_equal(blocks, file + e->at, e->bytes);
        seen++;
    }
    assert_int_equal(seen, 7);
    gd_gguf_close(g);
    free(file);
}

static void numbers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const float wrong[] = { NAN, INFINITY, -INFINITY, 3e38f };
    unsigned char blocks[128];
    for (size_t i = 0; i < COUNT(wrong); i++) {
        float numbers[64] = { 1 };
        size_t at;
        numbers[40] = wrong[i];
        assert_false(
            gd_blocks_write(gd_block_format_of(GD_GGUF_Q8_0), numbers, NULL, 64, blocks, &at));
        assert_int_equal(at, 32);
        assert_false(
            gd_blocks_write(gd_block_format_of(GD_GGUF_Q4_1), numbers, NULL, 64, blocks, &at));
        assert_false(
            gd_blocks_write(gd_block_format_of(GD_GGUF_F16), numbers, NULL, 64, blocks, &at));
        assert_int_equal(at, 40);
    }
    float tiny[64] = { 1e-44f, -1e-45f }; /* 1 / scale is beyond f32 */
    size_t at;
    assert_true(gd_blocks_write(gd_block_format_of(GD_GGUF_Q8_0), tiny, NULL, 64, blocks, &at));
}

/* ---- values ---- */

static void values_of_every_kind_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double value;
    } numbers[] = { { "u8", 200 },
                    { "i8", -100 },
                    { "u16", 60000 },
                    { "i16", -30000 },
                    { "u32", 4000000000.0 },
                    { "i32", -2000000000.0 },
                    { "f32", 0.15625 },
                    { "bool", 1 },
                    { "u64", 4503599627370496.0 },
                    { "i64", -4503599627370496.0 },
                    { "f64", 1.0 / 3 } };
    gd_gguf *g = gd_gguf_open(GOLDEN);
    size_t size;
    double got;
    for (size_t i = 0; i < COUNT(numbers); i++) {
        char key[32];
        snprintf(key, sizeof key, "kinds.%s", numbers[i].name);
        assert_int_equal(gd_gguf_length(g, key), 1);
        assert_true(gd_gguf_number(g, key, 0, &got));
        assert_true(got == numbers[i].value);
        assert_false(gd_gguf_number(g, key, 1, &got));
        assert_null(gd_gguf_text(g, key, 0, &size));
    }
    assert_string_equal(gd_gguf_text(g, "general.architecture", 0, NULL), "golden");
    assert_string_equal(gd_gguf_text(g, "kinds.text", 0, &size), "tokens \xe2\x96\x81 and bytes");
    assert_int_equal(size, 20);
    assert_int_equal(gd_gguf_length(g, "kinds.numbers"), 3);
    assert_true(gd_gguf_number(g, "kinds.numbers", 1, &got) && got == -1);
    assert_true(gd_gguf_number(g, "kinds.reals", 1, &got) && got == -2.25);
    assert_int_equal(gd_gguf_length(g, "kinds.texts"), 3);
    assert_string_equal(gd_gguf_text(g, "kinds.texts", 0, &size), "");
    assert_int_equal(size, 0);
    assert_string_equal(gd_gguf_text(g, "kinds.texts", 2, &size), "zw\xc3\xb6lf");
    assert_null(gd_gguf_text(g, "kinds.texts", 3, &size));
    assert_int_equal(gd_gguf_length(g, "kinds.none"), -1);
    assert_string_equal(gd_gguf_key(g, 0), "general.architecture");
    assert_null(gd_gguf_key(g, -1));
    assert_int_equal(gd_error_code(), GD_OK);
    gd_gguf_close(g);
}

/* ---- hostile files ---- */

/* What is opened is read to its end, or is an error. */
static void open_and_read(gd_context *gd, bool values)
{
    gd_gguf *g = gd_gguf_open(temporary());
    if (!g)
        assert_true(gd_error_code() == GD_ERR_FORMAT || gd_error_code() == GD_ERR_UNSUPPORTED);
    gd_error_clear();
    for (int64_t k = 0; values && k < gd_gguf_count(g); k++) {
        gd_tensor *t = gd_gguf_read(g, gd, k);
        assert_true(t || gd_error_code() == GD_ERR_UNSUPPORTED);
        gd_error_clear();
    }
    gd_gguf_close(g);
}

static gd_status one(void *user, size_t first, size_t count, float *out)
{
    (void)user, (void)first, (void)count;
    *out = 1.0f;
    return GD_OK;
}

static void broken_files_are_errors(void **state)
{
    enum { HEADER = 2500 }; /* most of what stands before the tensors */
    static const unsigned char wrong[] = { 0, 1, 0x7f, 0xff };
    size_t size;
    unsigned char *file = file_bytes(GOLDEN, &size);
    write_bytes(temporary(), file, size);
    int fd = open(temporary(), O_RDWR);
    assert_true(fd >= 0);
    for (size_t at = 0; at < HEADER; at++) {
        for (size_t i = 0; i < COUNT(wrong); i++) {
            assert_int_equal(pwrite(fd, &wrong[i], 1, (off_t)at), 1);
            open_and_read(*state, at % 64 == 0);
        }
        assert_int_equal(pwrite(fd, file + at, 1, (off_t)at), 1);
    }
    /* behind the last tensor is padding */
    for (size_t cut = size - 32; cut > 0; cut -= cut <= HEADER ? 1 : 99) {
        assert_int_equal(ftruncate(fd, (off_t)cut), 0);
        assert_null(gd_gguf_open(temporary()));
        expect_error(GD_ERR_FORMAT, temporary());
    }
    close(fd);
    remove(temporary());
    free(file);
    /* a type that is not known, of a size that is not believed: 10^12 numbers */
    gd_gguf_values v = { 0 };
    gd_gguf_part part = { .name = "huge",
                          .format = gd_block_format_of(GD_GGUF_F32),
                          .shape = GD_SHAPE(1, 1),
                          .values = one };
    gd_gguf_quantize_options o = { GD_GGUF_QUANTIZE_DEFAULTS };
    assert_int_equal(gd_gguf_write("test", temporary(), &v, 1, &part, &o), GD_OK);
    fd = open(temporary(), O_RDWR);
    static const unsigned char shape[] = {
        0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 19
    };
    assert_int_equal(pwrite(fd, shape, sizeof shape, 4 + 4 + 8 + 8 + 8 + 4 + 4), sizeof shape);
    close(fd);
    gd_gguf *g = gd_gguf_open(temporary());
    assert_int_equal(gd_gguf_entry_at(g, 0)->type, 19);
    assert_null(gd_gguf_read(g, *state, 0));
    expect_error(GD_ERR_UNSUPPORTED, "\"huge\" is of ggml's type 19");
    gd_gguf_close(g);
    remove(temporary());
    assert_null(gd_gguf_open("/nowhere/model.gguf"));
    expect_error(GD_ERR_IO, "/nowhere/model.gguf");
    assert_null(gd_gguf_open(GD_SOURCE_DIR "/README.md"));
    expect_error(GD_ERR_FORMAT, "no GGUF file");
}

/* ---- writing ---- */

static gd_status count_up(void *user, size_t first, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)((int)((first + i) % 64) - 32) / *(const float *)user;
    return GD_OK;
}

static gd_status refuse(void *user, size_t first, size_t count, float *out)
{
    (void)user, (void)first, (void)count, (void)out;
    return gd_error_record(GD_ERR_STATE, "enough");
}

static gd_status count_done(void *user, const gd_gguf_written *tensor, bool *stop)
{
    assert_true(tensor->name && tensor->bytes > 0 && !*stop);
    ++*(int *)user;
    return GD_OK;
}

static void what_is_written_is_read_back(void **state)
{
    float divisor = 32;
    gd_gguf_values v = { 0 };
    gd_gguf_add_text(&v, "general.architecture", "none");
    gd_gguf_add_u32(&v, "a.number", 7);
    gd_gguf_add_real(&v, "a.real", 0.25f);
    gd_gguf_add_bool(&v, "a.truth", true);
    gd_gguf_add_list(&v, "a.list", GD_GGUF_TEXT, 2);
    gd_gguf_put_text(&v, "x", 1);
    gd_gguf_put_text(&v, "yz", 2);
    gd_gguf_part parts[] = {
        { .name = "q8",
          .format = gd_block_format_of(GD_GGUF_Q8_0),
          .shape = GD_SHAPE(3, 70016),
          .values = count_up,
          .user = &divisor },
        { .name = "f32",
          .format = gd_block_format_of(GD_GGUF_F32),
          .shape = GD_SHAPE(7),
          .values = count_up,
          .user = &divisor },
        { .name = "q4",
          .format = gd_block_format_of(GD_GGUF_Q4_0),
          .shape = GD_SHAPE(2, 3, 32),
          .values = count_up,
          .user = &divisor },
    };
    int done = 0;
    gd_gguf_quantize_options o = { GD_GGUF_QUANTIZE_DEFAULTS }, counting = o;
    counting.callback = count_done;
    counting.user = &done;
    assert_int_equal(gd_gguf_write("test", temporary(), &v, COUNT(parts), parts, &counting), GD_OK);
    assert_int_equal(done, 3);
    gd_gguf *g = gd_gguf_open(temporary()), *again;
    assert_non_null(g);
    double number;
    assert_true(gd_gguf_number(g, "a.number", 0, &number) && number == 7);
    assert_true(gd_gguf_number(g, "a.real", 0, &number) && number == 0.25);
    assert_true(gd_gguf_number(g, "a.truth", 0, &number) && number == 1);
    assert_string_equal(gd_gguf_text(g, "a.list", 1, NULL), "yz");
    assert_true(parts[1].squared_error == 0.0 && parts[1].squares > 0.0);
    for (size_t i = 0; i < COUNT(parts); i++) {
        int64_t count = count_of(parts[i].shape);
        float *values = malloc((size_t)count * sizeof *values);
        gd_gguf_info info;
        assert_int_equal(gd_gguf_tensor_info(g, (int64_t)i, &info), GD_OK);
        assert_string_equal(info.name, parts[i].name);
        assert_same_shape(info.shape, parts[i].shape);
        assert_int_equal(gd_tensor_read(gd_gguf_read(g, *state, (int64_t)i), values,
                                        (size_t)count * sizeof *values),
                         GD_OK);
        double largest = 0.0, bound = i == 0 ? 0.5 / 127 + 4e-4 : i == 1 ? 0.0 : 1.0 / 8 + 1e-6;
        for (int64_t k = 0; k < count; k++)
            largest = fmax(largest, fabs((double)values[k] - (double)((k % 64) - 32) / 32));
        assert_true(largest == parts[i].largest_error);
        assert_true(largest <= bound);
        free(values);
    }
    gd_gguf_values copy = { 0 }; /* the values of a file in another one: lists of texts, too */
    for (int64_t i = 0; gd_gguf_key(g, i); i++)
        assert_int_equal(gd_gguf_copy_value(g, i, &copy), GD_OK);
    assert_int_equal(copy.size, v.size);
    assert_memory_equal(copy.bytes, v.bytes, v.size);
    gd_gguf_close(g);

    parts[2].values = refuse; /* the old file stands */
    assert_int_equal(gd_gguf_write("test", temporary(), &v, COUNT(parts), parts, &o), GD_ERR_STATE);
    gd_error_clear();
    divisor = 0; /* infinities */
    parts[2].values = count_up;
    assert_int_equal(gd_gguf_write("test", temporary(), &v, COUNT(parts), parts, &o),
                     GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "not finite, or too large for Q8_0");
    again = gd_gguf_open(temporary());
    assert_int_equal(gd_gguf_count(again), 3);
    gd_gguf_close(again);
    gd_gguf_values_free(&copy);
    gd_gguf_values_free(&v);
    remove(temporary());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_types_are_read_as_the_package_does, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(all_types_are_written_as_the_package_does, open_context,
                                        close_context),
        cmocka_unit_test(numbers_that_do_not_fit_are_refused),
        cmocka_unit_test(values_of_every_kind_are_read),
        cmocka_unit_test_setup_teardown(broken_files_are_errors, open_context, close_context),
        cmocka_unit_test_setup_teardown(what_is_written_is_read_back, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
