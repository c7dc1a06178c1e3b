/* tests/test_idx.c: the IDX reader on every type and rank, on broken files, and on the real MNIST.
 * GD_SOURCE_DIR is the source folder. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/data.h>
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef GD_HAVE_ZLIB
#include <zlib.h>
#endif

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int clear_error(void **state)
{
    (void)state;
    gd_fail_allocations_after(-1);
    gd_error_clear();
    return 0;
}

static void assert_all_zero(const gd_idx *idx)
{
    static const gd_idx zero;
    assert_null(idx->data);
    assert_int_equal(idx->bytes, 0);
    assert_int_equal(idx->rank, zero.rank);
    assert_memory_equal(idx->dims, zero.dims, sizeof zero.dims);
}

/* The reader refuses with that status and a message that holds `words`. */
static void assert_refused(const void *bytes, size_t size, gd_status status, const char *words)
{
    gd_idx idx;
    memset(&idx, 0xff, sizeof idx);
    gd_error_clear();
    assert_int_equal(gd_idx_read_memory(bytes, size, &idx), status);
    assert_int_equal(gd_error_code(), status);
    if (!strstr(gd_error_message(), words))
        fail_msg("expected \"%s\" in \"%s\"", words, gd_error_message());
    assert_all_zero(&idx);
    gd_error_clear();
}

/* ---- types, ranks, byte order ---- */

#define HEADER(type, rank) 0, 0, type, rank
#define SIZE(n)            0, 0, 0, n

static void test_all_types(void **state)
{
    (void)state;
    static const unsigned char u8[] = { HEADER(0x08, 1), SIZE(3), 0, 127, 255 };
    static const unsigned char i8[] = { HEADER(0x09, 1), SIZE(3), 0, 127, 255 };
    static const unsigned char i16[] = { HEADER(0x0b, 1), SIZE(2), 0x12, 0x34, 0xff, 0xfe };
    static const unsigned char i32[] = {
        HEADER(0x0c, 1), SIZE(2), 0x12, 0x34, 0x56, 0x78, 0xff, 0xff, 0xff, 0xfe
    };
    static const unsigned char f32[] = {
        HEADER(0x0d, 1), SIZE(2), 0x3f, 0x80, 0, 0, 0xc0, 0x20, 0, 0
    };
    static const unsigned char f64[] = {
        HEADER(0x0e, 1), SIZE(2), 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0, 0x04, 0, 0, 0, 0, 0, 0
    };
    static const int8_t i8_values[] = { 0, 127, -1 };
    static const int16_t i16_values[] = { 0x1234, -2 };
    static const int32_t i32_values[] = { 0x12345678, -2 };
    static const float f32_values[] = { 1.0f, -2.5f };
    static const double f64_values[] = { 1.0, -2.5 };
    static const struct {
        gd_idx_type type;
        const char *name;
        const unsigned char *file;
        size_t size;
        const void *values;
        size_t bytes;
    } rows[] = {
        { GD_IDX_U8, "u8", u8, sizeof u8, u8 + 8, 3 },
        { GD_IDX_I8, "i8", i8, sizeof i8, i8_values, sizeof i8_values },
        { GD_IDX_I16, "i16", i16, sizeof i16, i16_values, sizeof i16_values },
        { GD_IDX_I32, "i32", i32, sizeof i32, i32_values, sizeof i32_values },
        { GD_IDX_F32, "f32", f32, sizeof f32, f32_values, sizeof f32_values },
        { GD_IDX_F64, "f64", f64, sizeof f64, f64_values, sizeof f64_values },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gd_idx idx;
        assert_int_equal(gd_idx_read_memory(rows[i].file, rows[i].size, &idx), GD_OK);
        assert_int_equal(idx.type, rows[i].type);
        assert_string_equal(gd_idx_type_name(idx.type), rows[i].name);
        assert_int_equal(idx.rank, 1);
        assert_int_equal((size_t)idx.dims[0] * gd_idx_type_size(idx.type), idx.bytes);
        assert_int_equal(idx.bytes, rows[i].bytes);
        assert_memory_equal(idx.data, rows[i].values, rows[i].bytes);
        gd_idx_free(&idx);
        assert_all_zero(&idx);
        gd_idx_free(&idx);
    }
    gd_idx_free(NULL);
    assert_string_equal(gd_idx_type_name((gd_idx_type)0x0a), "unknown");
    assert_string_equal(gd_idx_type_name((gd_idx_type)0x0f), "unknown");
    assert_int_equal(gd_idx_type_size((gd_idx_type)0), 0);
}

static void test_all_ranks(void **state)
{
    (void)state;
    for (int rank = 0; rank <= 255; rank++) {
        unsigned char file[4 + 4 * 255 + 8] = { HEADER(0x08, (unsigned char)rank) };
        size_t bytes = 1;
        for (int i = 0; i < rank; i++) {
            unsigned char size = i % 100 == 1 ? 2 : 1;
            file[4 + 4 * i + 3] = size;
            bytes *= size;
        }
        size_t header = 4 + 4 * (size_t)rank;
        memset(file + header, 7, bytes);
        gd_idx idx;
        assert_int_equal(gd_idx_read_memory(file, header + bytes, &idx), GD_OK);
        assert_int_equal(idx.rank, rank);
        assert_int_equal(idx.bytes, bytes);
        for (int i = 0; i < rank; i++)
            assert_int_equal(idx.dims[i], i % 100 == 1 ? 2 : 1);
        assert_int_equal(((unsigned char *)idx.data)[bytes - 1], 7);
        gd_idx_free(&idx);
    }
}

static void test_empty_array(void **state)
{
    (void)state;
    /* The other sizes multiply to more than 2^63, but there is nothing of it. */
    static const unsigned char file[] = {
        HEADER(0x0e, 4), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, SIZE(5)
    };
    gd_idx idx;
    assert_int_equal(gd_idx_read_memory(file, sizeof file, &idx), GD_OK);
    assert_int_equal(idx.bytes, 0);
    assert_int_equal(idx.dims[0], 0xffffffff);
    assert_int_equal(idx.dims[2], 0);
    gd_idx_free(&idx);
}

/* ---- broken input ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const unsigned char wrong_magic[] = { 1, 0, 8, 1, SIZE(1), 0 };
    static const unsigned char wrong_type[] = { HEADER(0x0a, 1), SIZE(1), 0 };
    static const unsigned char type_zero[] = { HEADER(0x00, 1), SIZE(1), 0 };
    static const unsigned char png[] = { 0x89, 'P', 'N', 'G', 13, 10, 26, 10 };
    static const unsigned char overflow[] = {
        HEADER(0x0e, 2), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2
    };
    static const unsigned char lying[] = {
        HEADER(0x08, 2), 0x7f, 0xff, 0xff, 0xff, 0, 0, 1, 0, 1, 2, 3
    };
    static const unsigned char trailing[] = { HEADER(0x08, 1), SIZE(2), 1, 2, 3 };
    assert_refused("", 0, GD_ERR_FORMAT, "memory: 0 bytes are too few");
    assert_refused(NULL, 0, GD_ERR_FORMAT, "too few");
    assert_refused(wrong_magic, sizeof wrong_magic, GD_ERR_FORMAT,
                   "not an IDX file (it begins 01 00 08 01)");
    assert_refused(wrong_type, sizeof wrong_type, GD_ERR_FORMAT, "not an IDX file");
    assert_refused(type_zero, sizeof type_zero, GD_ERR_FORMAT, "not an IDX file");
    assert_refused(png, sizeof png, GD_ERR_FORMAT, "not an IDX file");
    assert_refused(overflow, sizeof overflow, GD_ERR_FORMAT,
                   "[4294967295, 4294967295] of f64, more than memory");
    assert_refused(lying, sizeof lying, GD_ERR_FORMAT, "holds less than the 549755813632 bytes");
    assert_refused(trailing, sizeof trailing, GD_ERR_FORMAT,
                   "holds more than the 2 bytes of values");

    unsigned char many[4 + 4 * 255] = { HEADER(0x08, 255) };
    memset(many + 4, 0x7f, sizeof many - 4);
    assert_refused(many, sizeof many, GD_ERR_FORMAT, ", ...] of u8");

    gd_idx idx;
    assert_int_equal(gd_idx_read(NULL, &idx), GD_ERR_INVALID);
    assert_int_equal(gd_idx_read("x", NULL), GD_ERR_INVALID);
    assert_int_equal(gd_idx_read_memory(NULL, 3, &idx), GD_ERR_INVALID);
    assert_int_equal(gd_idx_read_memory(many, 3, NULL), GD_ERR_INVALID);
}

/* A small file of every kind of field: i16, [2, 3, 4]. */
static size_t make_sample(unsigned char *file)
{
    static const unsigned char header[] = { HEADER(0x0b, 3), SIZE(2), SIZE(3), SIZE(4) };
    memcpy(file, header, sizeof header);
    for (size_t i = 0; i < 48; i++)
        file[sizeof header + i] = (unsigned char)(5 * i);
    return sizeof header + 48;
}

static void test_every_truncation(void **state)
{
    (void)state;
    unsigned char sample[100];
    size_t size = make_sample(sample);
    for (size_t length = 0; length < size; length++) {
        unsigned char *exact =
            malloc(length + 1); /* so that a sanitizer sees any read past the end */
        memcpy(exact, sample, length);
        exact = realloc(exact, length ? length : 1);
        assert_refused(exact, length, GD_ERR_FORMAT, "memory");
        free(exact);
    }
    gd_idx idx;
    assert_int_equal(gd_idx_read_memory(sample, size, &idx), GD_OK);
    gd_idx_free(&idx);
}

/* Whatever was done to the bytes, the reader gives an array that fits together, or a reason. */
static bool read_something(const unsigned char *bytes, size_t size)
{
    gd_idx idx;
    gd_error_clear();
    gd_status status = gd_idx_read_memory(bytes, size, &idx);
    assert_int_equal(status, gd_error_code());
    if (status != GD_OK) {
        assert_true(strlen(gd_error_message()) > 0);
        assert_all_zero(&idx);
        return false;
    }
    size_t product = gd_idx_type_size(idx.type);
    for (int i = 0; i < idx.rank; i++)
        product *= (size_t)idx.dims[i];
    assert_int_equal(product, idx.bytes);
    gd_idx_free(&idx);
    return true;
}

static void flip_bits(const unsigned char *bytes, size_t size, int rounds)
{
    gd_random random = { .seed = 1 };
    unsigned char *copy = malloc(size);
    int accepted = 0;
    for (int round = 0; round < rounds; round++) {
        memcpy(copy, bytes, size);
        for (uint64_t flips = 1 + gd_random_below(&random, 3); flips > 0; flips--)
            copy[gd_random_below(&random, size)] ^=
                (unsigned char)(1u << gd_random_below(&random, 8));
        accepted += read_something(copy, size);
    }
    free(copy);
    assert_true(accepted < rounds);
    gd_error_clear();
}

static void test_bit_flips(void **state)
{
    (void)state;
    unsigned char sample[100];
    size_t size = make_sample(sample);
    flip_bits(sample, size, 20000);
}

/* ---- files ---- */

typedef struct folder {
    char path[64];
} folder;

static folder make_folder(void)
{
    folder made;
    const char *base = getenv("TMPDIR");
    snprintf(made.path, sizeof made.path, "%.40s/gradus-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(made.path));
    return made;
}

static void write_file(const folder *where, const char *name, const void *bytes, size_t size,
                       char path[128])
{
    snprintf(path, 128, "%s/%s", where->path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void test_plain_file(void **state)
{
    (void)state;
    unsigned char sample[100];
    size_t size = make_sample(sample);
    folder where = make_folder();
    char path[128];
    write_file(&where, "sample", sample, size, path);
    gd_idx idx;
    assert_int_equal(gd_idx_read(path, &idx), GD_OK);
    assert_int_equal(idx.rank, 3);
    assert_int_equal(((int16_t *)idx.data)[1], 0x0a0f);
    gd_idx_free(&idx);

    write_file(&where, "sample", sample, size - 1, path);
    assert_int_equal(gd_idx_read(path, &idx), GD_ERR_FORMAT);
    assert_non_null(strstr(gd_error_message(), path));
    gd_error_clear();
    unlink(path);

    assert_int_equal(gd_idx_read(path, &idx), GD_ERR_IO);
    assert_non_null(strstr(gd_error_message(), "no such file, with or without .gz"));
    assert_all_zero(&idx);
    gd_error_clear();
    assert_int_equal(gd_idx_read(where.path, &idx), GD_ERR_IO); /* a directory */
    rmdir(where.path);
}

/* A pipe does not tell its size, so memory grows as the values arrive. */
static void test_pipe(void **state)
{
    (void)state;
    enum { VALUES = 300000 };
    folder where = make_folder();
    char path[128], command[512];
    static unsigned char file[8 + VALUES] = { HEADER(0x08, 1), VALUES >> 24, VALUES >> 16 & 255,
                                              VALUES >> 8 & 255, VALUES & 255 };
    for (size_t i = 0; i < VALUES; i++)
        file[8 + i] = (unsigned char)(i % 251);
    write_file(&where, "plain", file, sizeof file, path);
    char pipe[128];
    snprintf(pipe, sizeof pipe, "%s/pipe", where.path);
    for (int shorter = 0; shorter <= 1; shorter++) {
        assert_int_equal(mkfifo(pipe, 0600), 0);
        snprintf(command, sizeof command, "head -c %d '%s' > '%s' &", (int)sizeof file - shorter,
                 path, pipe);
        assert_int_equal(system(command), 0);
        gd_idx idx;
        gd_status status = gd_idx_read(pipe, &idx);
        assert_int_equal(status, shorter ? GD_ERR_FORMAT : GD_OK);
        if (status == GD_OK)
            assert_memory_equal(idx.data, file + 8, VALUES);
        gd_idx_free(&idx);
        unlink(pipe);
    }
    unlink(path);
    rmdir(where.path);
}

/* ---- gzip ---- */

#ifdef GD_HAVE_ZLIB

static size_t compress_gzip(const void *bytes, size_t size, unsigned char *out, size_t room)
{
    z_stream zlib = { 0 };
    assert_int_equal(deflateInit2(&zlib, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    zlib.next_in = (unsigned char *)(uintptr_t)bytes;
    zlib.avail_in = (unsigned)size;
    zlib.next_out = out;
    zlib.avail_out = (unsigned)room;
    assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    deflateEnd(&zlib);
    return room - zlib.avail_out;
}

static void test_gzip_memory(void **state)
{
    (void)state;
    unsigned char sample[100], packed[300];
    size_t size = make_sample(sample);
    size_t length = compress_gzip(sample, size, packed, sizeof packed);
    gd_idx plain, idx;
    assert_int_equal(gd_idx_read_memory(sample, size, &plain), GD_OK);
    assert_int_equal(gd_idx_read_memory(packed, length, &idx), GD_OK);
    assert_int_equal(idx.bytes, plain.bytes);
    assert_memory_equal(idx.data, plain.data, idx.bytes);
    gd_idx_free(&idx);

    /* Two members one after another are one file (RFC 1952, 2.2), wherever they are cut. */
    for (size_t cut = 0; cut <= size; cut++) {
        length = compress_gzip(sample, cut, packed, sizeof packed);
        length += compress_gzip(sample + cut, size - cut, packed + length, sizeof packed - length);
        assert_int_equal(gd_idx_read_memory(packed, length, &idx), GD_OK);
        assert_memory_equal(idx.data, plain.data, idx.bytes);
        gd_idx_free(&idx);
    }
    gd_idx_free(&plain);
}

static void test_gzip_refusals(void **state)
{
    (void)state;
    unsigned char sample[100], packed[400];
    size_t size = make_sample(sample);
    size_t length = compress_gzip(sample, size, packed, sizeof packed);
    for (size_t shorter = 2; shorter < length; shorter++)
        assert_refused(packed, shorter, GD_ERR_FORMAT, "the gzip data ends early");
    packed[length - 5] ^= 1; /* the checksum */
    assert_refused(packed, length, GD_ERR_FORMAT, "broken gzip data (incorrect data check)");
    packed[length - 5] ^= 1;
    packed[length] = 'x'; /* not the start of another member */
    packed[length + 1] = 'y';
    assert_refused(packed, length + 2, GD_ERR_FORMAT, "broken gzip data (incorrect header check)");
    flip_bits(packed, length, 20000);

    length = compress_gzip(sample, size - 1, packed, sizeof packed);
    assert_refused(packed, length, GD_ERR_FORMAT, "holds less");
    sample[size] = 1;
    length = compress_gzip(sample, size + 1, packed, sizeof packed);
    assert_refused(packed, length, GD_ERR_FORMAT, "holds more");
}

typedef struct meter {
    size_t largest;
} meter;

static void *measure(void *user, void *block, size_t bytes)
{
    meter *seen = user;
    if (bytes > seen->largest)
        seen->largest = bytes;
    if (bytes == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, bytes);
}

/* A header that declares 549 GB, and 100,000 bytes after it: memory follows the bytes, not the
 * header. */
static void test_gzip_lying_header_takes_no_memory(void **state)
{
    (void)state;
    static unsigned char file[100000] = { HEADER(0x08, 2), 0x7f, 0xff, 0xff, 0xff, 0, 0, 1, 0 },
                         packed[2000];
    size_t length = compress_gzip(file, sizeof file, packed, sizeof packed);
    meter seen = { 0 };
    gd_set_allocator(&(gd_allocator){ measure, &seen });
    gd_idx idx;
    gd_status status = gd_idx_read_memory(packed, length, &idx);
    gd_set_allocator(NULL);
    assert_int_equal(status, GD_ERR_FORMAT);
    assert_true(seen.largest <= 2 * sizeof file);
}

static void test_gzip_file(void **state)
{
    (void)state;
    unsigned char sample[100], packed[300];
    size_t size = make_sample(sample);
    size_t length = compress_gzip(sample, size, packed, sizeof packed);
    folder where = make_folder();
    char path[128], bare[128];
    write_file(&where, "sample.gz", packed, length, path);
    snprintf(bare, sizeof bare, "%s/sample", where.path);
    gd_idx idx;
    assert_int_equal(gd_idx_read(path, &idx), GD_OK);
    gd_idx_free(&idx);
    assert_int_equal(gd_idx_read(bare, &idx), GD_OK); /* found as sample.gz */
    gd_idx_free(&idx);

    write_file(&where, "sample.gz", sample, size, path); /* plain whatever the name says */
    assert_int_equal(gd_idx_read(path, &idx), GD_OK);
    gd_idx_free(&idx);

    write_file(&where, "sample.gz", packed, length - 1, path);
    assert_int_equal(gd_idx_read(bare, &idx), GD_ERR_FORMAT);
    assert_non_null(strstr(gd_error_message(), path)); /* the file that was opened */
    unlink(path);
    rmdir(where.path);
}

#else

static void test_gzip_needs_zlib(void **state)
{
    (void)state;
    static const unsigned char packed[] = { 0x1f, 0x8b, 8, 0 };
    assert_refused(packed, sizeof packed, GD_ERR_UNSUPPORTED, "built without zlib");
}

#endif

/* ---- out of memory ---- */

static void fail_every_allocation(const char *path, const void *bytes, size_t size)
{
    int64_t requests = 0;
    for (int64_t n = 0;; n++) {
        gd_idx idx;
        gd_error_clear();
        gd_fail_allocations_after(n);
        gd_status status = path ? gd_idx_read(path, &idx) : gd_idx_read_memory(bytes, size, &idx);
        requests = gd_fail_allocations_after(-1);
        gd_idx_free(&idx);
        if (status == GD_OK)
            break;
        assert_int_equal(status, GD_ERR_MEMORY);
        assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
        assert_true(requests > n);
    }
    assert_true(requests >= 3); /* the stream, its name, the values */
}

static void test_every_failing_allocation(void **state)
{
    (void)state;
    unsigned char sample[100];
    size_t size = make_sample(sample);
    fail_every_allocation(NULL, sample, size);
    folder where = make_folder();
    char path[128];
    write_file(&where, "sample", sample, size, path);
    fail_every_allocation(path, NULL, 0);
    unlink(path);
#ifdef GD_HAVE_ZLIB
    static unsigned char large[200008] = { HEADER(0x08, 1), 0, 3, 0x0d, 0x40 },
                         packed[2000]; /* grows twice */
    size_t length = compress_gzip(large, sizeof large, packed, sizeof packed);
    fail_every_allocation(NULL, packed, length);
    write_file(&where, "large.gz", packed, length, path);
    fail_every_allocation(path, NULL, 0);
    unlink(path);
#endif
    rmdir(where.path);
}

/* ---- MNIST ---- */

#ifdef GD_HAVE_ZLIB

/* Python: values = gzip.open(path).read()[4 + 4 * rank:]; zlib.crc32(values), sum(values) */
static void test_mnist(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int rank;
        int64_t dims[3];
        uint64_t sum;
        uint32_t crc;
    } rows[] = {
        { "train-images-idx3-ubyte", 3, { 60000, 28, 28 }, 1567298545, 0xf3639b56 },
        { "t10k-images-idx3-ubyte", 3, { 10000, 28, 28 }, 264923200, 0xe4ca5f57 },
        { "train-labels-idx1-ubyte", 1, { 60000 }, 267236, 0xba07e8ef },
        { "t10k-labels-idx1-ubyte", 1, { 10000 }, 44434, 0xee8604d9 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/data/mnist/%s", GD_SOURCE_DIR, rows[i].name);
        gd_idx idx;
        if (gd_idx_read(path, &idx) != GD_OK)
            fail_msg("%s", gd_error_message());
        assert_int_equal(idx.type, GD_IDX_U8);
        assert_int_equal(idx.rank, rows[i].rank);
        assert_memory_equal(idx.dims, rows[i].dims, sizeof rows[i].dims);
        const unsigned char *values = idx.data;
        uint64_t sum = 0;
        for (size_t at = 0; at < idx.bytes; at++)
            sum += values[at];
        assert_int_equal(sum, rows[i].sum);
        assert_int_equal(crc32(0, values, (unsigned)idx.bytes), rows[i].crc);
        gd_idx_free(&idx);
    }
}

#endif

#define TEST(function) cmocka_unit_test_setup_teardown(function, clear_error, clear_error)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_all_types),
        TEST(test_all_ranks),
        TEST(test_empty_array),
        TEST(test_refusals),
        TEST(test_every_truncation),
        TEST(test_bit_flips),
        TEST(test_plain_file),
        TEST(test_pipe),
#ifdef GD_HAVE_ZLIB
        TEST(test_gzip_memory),
        TEST(test_gzip_refusals),
        TEST(test_gzip_lying_header_takes_no_memory),
        TEST(test_gzip_file),
        TEST(test_mnist),
#else
        TEST(test_gzip_needs_zlib),
#endif
        TEST(test_every_failing_allocation),
    };
    return cmocka_run_group_tests_name("idx", tests, NULL, NULL);
}
