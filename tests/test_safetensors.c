/* tests/test_safetensors.c: the safetensors reader and writer against a file of the reference
 * implementation, and on broken files. Without jansson only the refusal is tested. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "io/safetensors.h"
#include "io/file.h"
#include "base/memory.h"
#include "base/random.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef GD_HAVE_JANSSON
#include <jansson.h>
#endif

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int clear_error(void **state)
{
    (void)state;
    gd_fail_allocations_after(-1);
    gd_error_clear();
    return 0;
}

#ifdef GD_HAVE_JANSSON

/* Made by safetensors 0.8.0 and numpy 2.4.6:
 *
 *   safetensors.numpy.save({"fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
 *                           "steps": np.array(7, dtype=np.int64), "mask": np.array([True, False,
 * True]), "half": np.array([1.0, -2.5], dtype=np.float16), "bytes": np.zeros((0, 4),
 * dtype=np.uint8), "d": np.array([0.1]), "i": np.array([[1], [-2]], dtype=np.int32)},
 * metadata={"format": "gradus"})
 */
static const char golden[] =
    "\xc0\x01\0\0\0\0\0\0"
    "{\"__metadata__\":{\"format\":\"gradus\"},"
    "\"steps\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
    "\"d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16]},"
    "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]},"
    "\"i\":{\"dtype\":\"I32\",\"shape\":[2,1],\"data_offsets\":[40,48]},"
    "\"half\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[48,52]},"
    "\"bytes\":{\"dtype\":\"U8\",\"shape\":[0,4],\"data_offsets\":[52,52]},"
    "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[52,55]}}   "
    "\x07\0\0\0\0\0\0\0"
    "\x9a\x99\x99\x99\x99\x99\xb9?"
    "\0\0\0\0\0\0\x80>\0\0\0?\0\0@?\0\0\x80?\0\0\xa0?"
    "\x01\0\0\0\xfe\xff\xff\xff"
    "\0<\0\xc1"
    "\x01\0\x01";
#define GOLDEN_BYTES (sizeof golden - 1)

/* The same tensors, in another order. */
static const int64_t steps[] = { 7 };
static const double d[] = { 0.1 };
static const float weight[] = { 0.0f, 0.25f, 0.5f, 0.75f, 1.0f, 1.25f };
static const int32_t i[] = { 1, -2 };
static const uint16_t half[] = { 0x3c00, 0xc100 };
static const uint8_t mask[] = { 1, 0, 1 };
static const gd_safetensors_entry golden_entries[] = {
    { "mask", "BOOL", 1, (const int64_t[]){ 3 }, mask, sizeof mask, 0 },
    { "bytes", "U8", 2, (const int64_t[]){ 0, 4 }, NULL, 0, 0 },
    { "fc.weight", "F32", 2, (const int64_t[]){ 2, 3 }, weight, sizeof weight, 0 },
    { "i", "I32", 2, (const int64_t[]){ 2, 1 }, i, sizeof i, 0 },
    { "d", "F64", 1, (const int64_t[]){ 1 }, d, sizeof d, 0 },
    { "steps", "I64", 0, NULL, steps, sizeof steps, 0 },
    { "half", "F16", 1, (const int64_t[]){ 2 }, half, sizeof half, 0 },
};
static const gd_safetensors_string golden_metadata[] = { { "format", "gradus" } };

/* ---- a folder for files ---- */

typedef struct folder {
    char path[64];
    char file[128];
} folder;

static folder make_folder(void)
{
    folder made;
    const char *base = getenv("TMPDIR");
    snprintf(made.path, sizeof made.path, "%.40s/gradus-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(made.path));
    snprintf(made.file, sizeof made.file, "%s/model.safetensors", made.path);
    return made;
}

static int count_files(const folder *where)
{
    int count = 0;
    DIR *directory = opendir(where->path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void remove_folder(const folder *where)
{
    unlink(where->file);
    assert_int_equal(rmdir(where->path), 0); /* nothing else lies in it */
}

/* ---- reading ---- */

static void check_golden(const gd_safetensors *file)
{
    assert_int_equal(gd_safetensors_count(file), COUNT(golden_entries));
    for (size_t k = 0; k < COUNT(golden_entries); k++) {
        const gd_safetensors_entry *expected = &golden_entries[k];
        const gd_safetensors_entry *found = gd_safetensors_find(file, expected->name);
        assert_non_null(found);
        assert_string_equal(found->name, expected->name);
        assert_string_equal(found->dtype, expected->dtype);
        assert_int_equal(found->rank, expected->rank);
        if (found->rank > 0)
            assert_memory_equal(found->shape, expected->shape,
                                (size_t)found->rank * sizeof *found->shape);
        assert_int_equal(found->bytes, expected->bytes);
        unsigned char values[64];
        assert_true(found->bytes < sizeof values);
        assert_int_equal(gd_safetensors_read(file, found, values), GD_OK);
        if (found->bytes > 0)
            assert_memory_equal(values, expected->data, found->bytes);
    }
    for (size_t k = 1; k < gd_safetensors_count(file); k++)
        assert_true(strcmp(gd_safetensors_at(file, k - 1)->name, gd_safetensors_at(file, k)->name) <
                    0);
    assert_null(gd_safetensors_at(file, gd_safetensors_count(file)));
    assert_null(gd_safetensors_find(file, "fc.bias"));
    assert_int_equal(gd_safetensors_metadata_count(file), 1);
    assert_string_equal(gd_safetensors_metadata_at(file, 0).key, "format");
    assert_string_equal(gd_safetensors_metadata(file, "format"), "gradus");
    assert_null(gd_safetensors_metadata(file, "author"));
    assert_null(gd_safetensors_metadata_at(file, 1).key);
    assert_int_equal(gd_error_code(), GD_OK);
}

static void test_reads_the_reference(void **state)
{
    (void)state;
    gd_safetensors *file;
    assert_int_equal(gd_safetensors_open_memory(golden, GOLDEN_BYTES, "golden", &file), GD_OK);
    check_golden(file);
    gd_safetensors_close(file);
    gd_safetensors_close(NULL);
}

static void test_writes_the_reference(void **state)
{
    (void)state;
    folder where = make_folder();
    assert_int_equal(
        gd_safetensors_write(where.file, golden_entries, COUNT(golden_entries), golden_metadata, 1),
        GD_OK);
    unsigned char *bytes;
    size_t size;
    assert_int_equal(gd_file_read_all(where.file, SIZE_MAX, &bytes, &size), GD_OK);
    assert_int_equal(size, GOLDEN_BYTES);
    assert_memory_equal(bytes, golden, size);
    gd_free(bytes);

    gd_safetensors *file;
    assert_int_equal(gd_safetensors_open(where.file, &file), GD_OK);
    check_golden(file);
    gd_safetensors_close(file);
    assert_int_equal(count_files(&where), 1);
    remove_folder(&where);
}

/* A file of that header and `values` bytes after it. */
static gd_status open_text(const char *header, size_t values, gd_safetensors **file)
{
    static unsigned char bytes[4096];
    size_t length = strlen(header);
    assert_true(8 + length + values <= sizeof bytes);
    memset(bytes, 0, sizeof bytes);
    bytes[0] = (unsigned char)length;
    bytes[1] = (unsigned char)(length >> 8);
    memcpy(bytes + 8, header, length);
    return gd_safetensors_open_memory(bytes, 8 + length + values, "text", file);
}

#define TENSOR(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_accepts(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t values, count;
    } rows[] = {
        { "{}", 0, 0 },
        { "{}   \n ", 0, 0 },
        { "{\"__metadata__\":{}}", 0, 0 },
        { "{" TENSOR("a", "F32", "[2]", "[0,8]") "}", 8, 1 },
        /* the header's order is free */
        { "{" TENSOR("b", "U8", "[3]", "[4,7]") "," TENSOR("a", "F32", "[1]", "[0,4]") "}", 7, 2 },
        /* empty tensors take no place, whatever the other sizes are */
        { "{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("b", "F64", "[0,9223372036854775807,9]",
                                                           "[1,1]") "," TENSOR("c", "I8", "[0]",
                                                                               "[0,0]") "}",
          1, 3 },
        /* other keys are ignored, as the reference does */
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"note\":[]}}", 1, 1 },
        { "{" TENSOR("", "F8_E4M3", "[1,1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, 1 },
        { "{" TENSOR("\\u00e9\\n", "C64", "[1]", "[0,8]") "}", 8, 1 },
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        gd_safetensors *file;
        if (open_text(rows[k].header, rows[k].values, &file) != GD_OK)
            fail_msg("%s: %s", rows[k].header, gd_error_message());
        assert_int_equal(gd_safetensors_count(file), rows[k].count);
        gd_safetensors_close(file);
    }
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t values;
        gd_status status;
        const char *words;
    } rows[] = {
        { "", 0, GD_ERR_FORMAT, "does not begin with '{'" },
        { " {}", 0, GD_ERR_FORMAT, "does not begin with '{'" },
        { "[]", 0, GD_ERR_FORMAT, "does not begin with '{'" },
        { "{", 0, GD_ERR_FORMAT, "not valid JSON" },
        { "{} x", 0, GD_ERR_FORMAT, "not valid JSON" },
        { "{\"\xff\":{}}", 0, GD_ERR_FORMAT, "not valid JSON" },
        { "{\"a\\u0000\":{}}", 0, GD_ERR_FORMAT, "not valid JSON" },
        { "{}", 1, GD_ERR_FORMAT, "1 bytes at its end belong to no tensor" },
        { "{\"a\":1}", 0, GD_ERR_FORMAT, "lacks" },
        { "{\"a\":{}}", 0, GD_ERR_FORMAT, "tensor \"a\": lacks" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, GD_ERR_FORMAT, "lacks" },
        { "{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, GD_ERR_FORMAT, "lacks" },
        { "{\"__metadata__\":[]}", 0, GD_ERR_FORMAT, "is not an object" },
        { "{\"__metadata__\":{\"k\":1}}", 0, GD_ERR_FORMAT, "value of \"k\" is not a string" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, GD_ERR_FORMAT, "duplicate" },
        { "{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("a", "U8", "[1]", "[1,2]") "}", 2,
          GD_ERR_FORMAT, "duplicate" },
        { "{" TENSOR("a", "F4", "[2]", "[0,1]") "}", 1, GD_ERR_UNSUPPORTED,
          "unknown dtype \"F4\"" },
        { "{" TENSOR("a", "f32", "[1]", "[0,4]") "}", 4, GD_ERR_UNSUPPORTED, "unknown dtype" },
        { "{" TENSOR("a", "U8", "[-1]", "[0,1]") "}", 1, GD_ERR_FORMAT, "not a natural number" },
        { "{" TENSOR("a", "U8", "[1.0]", "[0,1]") "}", 1, GD_ERR_FORMAT, "not a natural number" },
        { "{" TENSOR("a", "U8", "[\"1\"]", "[0,1]") "}", 1, GD_ERR_FORMAT, "not a natural number" },
        { "{" TENSOR("a", "U8", "[99999999999999999999]", "[0,1]") "}", 1, GD_ERR_FORMAT,
          "not valid JSON" },
        { "{" TENSOR("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, GD_ERR_FORMAT,
          "larger than memory" },
        { "{" TENSOR("a", "F64", "[1152921504606846976]", "[0,0]") "}", 0, GD_ERR_FORMAT,
          "larger than memory" },
        { "{" TENSOR("a", "U8", "[1]", "[0]") "}", 1, GD_ERR_FORMAT, "two data_offsets" },
        { "{" TENSOR("a", "U8", "[1]", "[0,1,2]") "}", 1, GD_ERR_FORMAT, "two data_offsets" },
        { "{" TENSOR("a", "U8", "[1]", "[0,1.0]") "}", 1, GD_ERR_FORMAT, "not a range" },
        { "{" TENSOR("a", "U8", "[1]", "[-1,0]") "}", 1, GD_ERR_FORMAT, "not a range" },
        { "{" TENSOR("a", "U8", "[1]", "[1,0]") "}", 1, GD_ERR_FORMAT, "not a range" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]") "}", 1, GD_ERR_FORMAT, "past the end" },
        { "{" TENSOR("a", "U8", "[1]", "[9223372036854775806,9223372036854775807]") "}", 1,
          GD_ERR_FORMAT, "past the end" },
        { "{" TENSOR("a", "F32", "[1]", "[0,8]") "}", 8, GD_ERR_FORMAT,
          "needs 4 bytes and its data_offsets span 8" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("b", "U8", "[2]", "[1,3]") "}", 3,
          GD_ERR_FORMAT, "tensor \"b\": overlaps" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("b", "U8", "[2]", "[0,2]") "}", 2,
          GD_ERR_FORMAT, "overlaps" },
        { "{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("b", "U8", "[1]", "[2,3]") "}", 3,
          GD_ERR_FORMAT, "tensor \"b\": leaves a hole" },
        { "{" TENSOR("a", "U8", "[1]", "[1,2]") "}", 2, GD_ERR_FORMAT, "leaves a hole" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("b", "U8", "[0]", "[1,1]") "}", 2,
          GD_ERR_FORMAT, "overlaps" },
        { "{" TENSOR("a", "U8", "[1]", "[0,1]") "}", 3, GD_ERR_FORMAT, "2 bytes at its end" },
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        gd_safetensors *file;
        gd_error_clear();
        gd_status status = open_text(rows[k].header, rows[k].values, &file);
        if (status != rows[k].status || !strstr(gd_error_message(), rows[k].words))
            fail_msg("%s: expected \"%s\", got %s \"%s\"", rows[k].header, rows[k].words,
                     gd_status_name(status), gd_error_message());
        assert_null(file);
    }
}

static void test_refuses_lengths(void **state)
{
    (void)state;
    static const struct {
        const char bytes[11];
        const char *words;
    } rows[] = {
        { "\3\0\0\0\0\0\0\0{}", "ends within its header" },
        { "\0\xe1\xf5\5\0\0\0\0{}", "ends within its header" }, /* 100,000,000 */
        { "\1\xe1\xf5\5\0\0\0\0{}", "over 100000000 bytes" },
        { "\2\0\0\0\0\0\0\x80{}", "over 100000000 bytes" },
        { "\xff\xff\xff\xff\xff\xff\xff\xff{}", "over 100000000 bytes" },
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        gd_safetensors *file;
        gd_error_clear();
        assert_int_equal(gd_safetensors_open_memory(rows[k].bytes, 10, "text", &file),
                         GD_ERR_FORMAT);
        assert_non_null(strstr(gd_error_message(), rows[k].words));
    }
}

static void test_get(void **state)
{
    (void)state;
    gd_safetensors *file;
    const gd_safetensors_entry *entry;
    assert_int_equal(open_text("{" TENSOR("a", "U16", "[1]", "[0,2]") "," TENSOR("b", "BF16", "[1]",
                                                                                 "[2,4]") "}",
                               4, &file),
                     GD_OK);
    assert_int_equal(gd_safetensors_get(file, "b", &entry), GD_OK);
    assert_string_equal(entry->dtype, "BF16");
    assert_int_equal(gd_safetensors_get(file, "a", &entry), GD_ERR_UNSUPPORTED);
    assert_null(entry);
    assert_string_equal(gd_error_message(), "text: tensor \"a\": Gradus has no dtype U16");
    gd_error_clear();
    assert_int_equal(gd_safetensors_get(file, "c", &entry), GD_ERR_INVALID);
    assert_string_equal(gd_error_message(), "text: holds no tensor \"c\"");
    assert_non_null(gd_safetensors_find(file, "a"));
    gd_safetensors_close(file);
}

static void test_every_truncation(void **state)
{
    (void)state;
    for (size_t length = 0; length < GOLDEN_BYTES; length++) {
        unsigned char *exact =
            malloc(length ? length : 1); /* so that a sanitizer sees any read past the end */
        memcpy(exact, golden, length);
        gd_safetensors *file;
        gd_error_clear();
        assert_int_equal(gd_safetensors_open_memory(exact, length, "cut", &file), GD_ERR_FORMAT);
        assert_int_equal(gd_error_code(), GD_ERR_FORMAT);
        assert_non_null(strstr(gd_error_message(), "cut: "));
        assert_null(file);
        free(exact);
    }
}

/* Whatever was done to the bytes, the reader gives tensors inside them, or a reason. */
static void test_bit_flips(void **state)
{
    (void)state;
    gd_random random = { .seed = 2 };
    int accepted = 0;
    enum { ROUNDS = 20000 };
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char copy[GOLDEN_BYTES];
        memcpy(copy, golden, sizeof copy);
        for (uint64_t flips = 1 + gd_random_below(&random, 3); flips > 0; flips--)
            copy[gd_random_below(&random, sizeof copy)] ^=
                (unsigned char)(1u << gd_random_below(&random, 8));
        gd_safetensors *file;
        gd_error_clear();
        gd_status status = gd_safetensors_open_memory(copy, sizeof copy, "flipped", &file);
        assert_int_equal(status, gd_error_code());
        if (status != GD_OK) {
            assert_true(status == GD_ERR_FORMAT || status == GD_ERR_UNSUPPORTED);
            assert_true(strlen(gd_error_message()) > 0);
            assert_null(file);
            continue;
        }
        accepted++;
        for (size_t k = 0; k < gd_safetensors_count(file); k++) {
            const gd_safetensors_entry *entry = gd_safetensors_at(file, k);
            unsigned char values[sizeof copy];
            assert_true(entry->bytes < sizeof copy);
            assert_int_equal(gd_safetensors_read(file, entry, values), GD_OK);
            assert_ptr_equal(gd_safetensors_find(file, entry->name), entry);
        }
        gd_safetensors_close(file);
    }
    assert_true(accepted > 0 && accepted < ROUNDS);
}

/* ---- writing ---- */

static gd_status write_one(const char *path, gd_safetensors_entry entry)
{
    gd_error_clear();
    return gd_safetensors_write(path, &entry, 1, NULL, 0);
}

static void test_refuses_to_write(void **state)
{
    (void)state;
    folder where = make_folder();
    const int64_t two[] = { 2 }, negative[] = { -2 }, huge[] = { INT64_MAX, INT64_MAX };
    const gd_safetensors_entry good = { "a", "U8", 1, two, "xy", 2, 0 };
    gd_safetensors_entry bad[11];
    for (size_t k = 0; k < COUNT(bad); k++)
        bad[k] = good;
    bad[0].name = NULL;
    bad[1].name = "\xc0\xaf"; /* an overlong slash */
    bad[2].name = "__metadata__";
    bad[3].dtype = "F4";
    bad[4].dtype = NULL;
    bad[5].bytes = 3;
    bad[6].shape = negative;
    bad[7].data = NULL;
    bad[8].shape = huge;
    bad[8].rank = 2;
    bad[9].rank = -1;
    bad[10].name = "\xed\xa0\x80"; /* a surrogate */
    for (size_t k = 0; k < COUNT(bad); k++) {
        assert_int_equal(write_one(where.file, bad[k]), GD_ERR_INVALID);
        assert_true(strlen(gd_error_message()) > 0);
    }
    gd_error_clear();
    const gd_safetensors_entry twice[] = { good, good };
    assert_int_equal(gd_safetensors_write(where.file, twice, 2, NULL, 0), GD_ERR_INVALID);
    assert_non_null(strstr(gd_error_message(), "two tensors are called \"a\""));
    gd_error_clear();
    const gd_safetensors_string same[] = { { "k", "1" }, { "k", "2" } };
    assert_int_equal(gd_safetensors_write(where.file, &good, 1, same, 2), GD_ERR_INVALID);
    assert_non_null(strstr(gd_error_message(), "two metadata values for \"k\""));
    gd_error_clear();
    const gd_safetensors_string broken = { "k", "\x80" };
    assert_int_equal(gd_safetensors_write(where.file, &good, 1, &broken, 1), GD_ERR_INVALID);
    assert_int_equal(count_files(&where), 0);
    assert_int_equal(write_one(where.file, good), GD_OK);
    remove_folder(&where);
}

static void test_names_survive(void **state)
{
    (void)state;
    folder where = make_folder();
    static const char *const names[] = { "",
                                         "a\"b\\c/d\n\t\x01",
                                         "\xc3\xa9",
                                         "\xe2\x82\xac",
                                         "\xf0\x9f\x98\x80",
                                         "\xf4\x8f\xbf\xbf",
                                         "blocks.0.attn.weight" };
    gd_safetensors_entry entries[COUNT(names)];
    unsigned char values[COUNT(names)];
    for (size_t k = 0; k < COUNT(names); k++) {
        values[k] = (unsigned char)(k + 1);
        entries[k] = (gd_safetensors_entry){ names[k], "U8", 0, NULL, &values[k], 1, 0 };
    }
    const gd_safetensors_string metadata[] = { { "z", "" }, { "a\n", "{\"json\": true}" } };
    assert_int_equal(gd_safetensors_write(where.file, entries, COUNT(names), metadata, 2), GD_OK);
    gd_safetensors *file;
    assert_int_equal(gd_safetensors_open(where.file, &file), GD_OK);
    for (size_t k = 0; k < COUNT(names); k++) {
        const gd_safetensors_entry *entry;
        assert_int_equal(gd_safetensors_get(file, names[k], &entry), GD_OK);
        unsigned char value;
        assert_int_equal(gd_safetensors_read(file, entry, &value), GD_OK);
        assert_int_equal(value, k + 1);
    }
    assert_string_equal(gd_safetensors_metadata_at(file, 0).key, "z"); /* the order is kept */
    assert_string_equal(gd_safetensors_metadata(file, "a\n"), "{\"json\": true}");
    gd_safetensors_close(file);
    remove_folder(&where);
}

static void test_values_lie_aligned(void **state)
{
    (void)state;
    folder where = make_folder();
    static const char *const kinds[] = { "U8", "F16", "F32", "F64", "BOOL", "I64", "BF16", "I32" };
    static const size_t sizes[] = { 1, 2, 4, 8, 1, 8, 2, 4 };
    static const int64_t three[] = { 3 };
    static const double zeros[3];
    gd_safetensors_entry entries[COUNT(kinds)];
    for (size_t k = 0; k < COUNT(kinds); k++)
        entries[k] = (gd_safetensors_entry){ kinds[k], kinds[k], 1, three, zeros, 3 * sizes[k], 0 };
    assert_int_equal(gd_safetensors_write(where.file, entries, COUNT(kinds), NULL, 0), GD_OK);
    gd_safetensors *file;
    assert_int_equal(gd_safetensors_open(where.file, &file), GD_OK);
    for (size_t k = 0; k < COUNT(kinds); k++)
        assert_int_equal(gd_safetensors_find(file, kinds[k])->begin % sizes[k], 0);
    assert_int_equal(gd_safetensors_metadata_count(file), 0);
    gd_safetensors_close(file);
    remove_folder(&where);
}

static void test_missing_file(void **state)
{
    (void)state;
    gd_safetensors *file;
    assert_int_equal(gd_safetensors_open("/nonexistent/x.safetensors", &file), GD_ERR_IO);
    assert_null(file);
    assert_non_null(strstr(gd_error_message(), "/nonexistent/x.safetensors: cannot open"));
    gd_error_clear();
    assert_int_equal(write_one("/nonexistent/x.safetensors", golden_entries[0]), GD_ERR_IO);
}

/* ---- out of memory, jansson's included ---- */

static void test_every_failing_allocation(void **state)
{
    (void)state;
    json_set_alloc_funcs(gd_alloc, gd_free);
    gd_status status = GD_ERR_MEMORY;
    int64_t opened = 0, written = 0;
    for (int64_t n = 0; status != GD_OK; n++, opened++) {
        gd_safetensors *file;
        gd_error_clear();
        gd_fail_allocations_after(n);
        status = gd_safetensors_open_memory(golden, GOLDEN_BYTES, "golden", &file);
        gd_fail_allocations_after(-1);
        if (status == GD_OK) {
            gd_error_clear();
            check_golden(file);
        } else {
            /* jansson calls a string it has no memory for a syntax error, which cannot be told from
             * a real one. */
            assert_true(status == GD_ERR_MEMORY || status == GD_ERR_FORMAT);
            assert_int_equal(gd_error_code(), GD_ERR_MEMORY); /* recorded by gd_alloc, before */
            assert_null(file);
        }
        gd_safetensors_close(file);
    }

    folder where = make_folder();
    assert_int_equal(write_one(where.file, golden_entries[0]), GD_OK);
    struct stat before, after;
    stat(where.file, &before);
    status = GD_ERR_MEMORY;
    for (int64_t n = 0; status != GD_OK; n++, written++) {
        gd_error_clear();
        gd_fail_allocations_after(n);
        status = gd_safetensors_write(where.file, golden_entries, COUNT(golden_entries),
                                      golden_metadata, 1);
        gd_fail_allocations_after(-1);
        stat(where.file, &after);
        assert_int_equal(count_files(&where), 1);
        assert_int_equal(after.st_size, status == GD_OK ? (off_t)GOLDEN_BYTES : before.st_size);
        assert_true(status == GD_OK || status == GD_ERR_MEMORY);
    }
    json_set_alloc_funcs(malloc, free);
    gd_safetensors *file;
    gd_error_clear();
    assert_int_equal(gd_safetensors_open(where.file, &file), GD_OK);
    check_golden(file);
    gd_safetensors_close(file);
    remove_folder(&where);
    assert_true(opened > 20 && written > 20); /* jansson's were among them */
}

static int64_t requests, failing; /* the one that fails */

/* New memory has no earlier contents that could pass for what was to be written. */
static void *resize_but_one(void *user, void *block, size_t bytes)
{
    (void)user;
    if (bytes == 0) {
        free(block);
        return NULL;
    }
    void *resized = requests++ == failing ? NULL : realloc(block, bytes);
    if (resized && !block)
        memset(resized, 'x', bytes);
    return resized;
}

/* One allocation fails, those after it succeed: what is written is whole, or nothing is. */
static void test_each_failing_allocation(void **state)
{
    (void)state;
    json_set_alloc_funcs(gd_alloc, gd_free);
    gd_set_allocator(&(gd_allocator){ resize_but_one, NULL });
    folder where = make_folder();
    for (int64_t n = 0; n == 0 || requests > n - 1; n++) {
        gd_error_clear();
        requests = 0, failing = n;
        gd_status status = gd_safetensors_write(where.file, golden_entries, COUNT(golden_entries),
                                                golden_metadata, 1);
        const int64_t asked = requests;
        failing = -1;
        if (status == GD_OK) {
            gd_safetensors *file;
            gd_error_clear();
            assert_int_equal(gd_safetensors_open(where.file, &file), GD_OK);
            check_golden(file);
            gd_safetensors_close(file);
        }
        assert_true(status == GD_OK || status == GD_ERR_MEMORY);
        requests = asked;
    }
    gd_set_allocator(NULL);
    json_set_alloc_funcs(malloc, free);
    gd_error_clear();
    remove_folder(&where);
}

#else

static void test_needs_jansson(void **state)
{
    (void)state;
    gd_safetensors *file;
    assert_int_equal(gd_safetensors_open_memory("\2\0\0\0\0\0\0\0{}", 10, "text", &file),
                     GD_ERR_UNSUPPORTED);
    assert_null(file);
    gd_error_clear();
    assert_int_equal(gd_safetensors_write("model.safetensors", NULL, 0, NULL, 0),
                     GD_ERR_UNSUPPORTED);
    assert_non_null(strstr(gd_error_message(), "built without jansson"));
}

#endif

#define TEST(function) cmocka_unit_test_setup_teardown(function, clear_error, clear_error)

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef GD_HAVE_JANSSON
        TEST(test_reads_the_reference),
        TEST(test_writes_the_reference),
        TEST(test_accepts),
        TEST(test_refuses),
        TEST(test_refuses_lengths),
        TEST(test_get),
        TEST(test_every_truncation),
        TEST(test_bit_flips),
        TEST(test_refuses_to_write),
        TEST(test_names_survive),
        TEST(test_values_lie_aligned),
        TEST(test_missing_file),
        TEST(test_every_failing_allocation),
        TEST(test_each_failing_allocation),
#else
        TEST(test_needs_jansson),
#endif
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
