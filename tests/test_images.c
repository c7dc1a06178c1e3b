/* tests/test_images.c: JPEG images, resizing against PyTorch, CIFAR-10 files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/folder.h"
#include "support/shared_data.h"

#include <unistd.h>

#ifdef GD_HAVE_ZLIB
#include <zlib.h>
#endif

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* 16 x 8 in RGB; the left half is (200, 40, 30), the right (20, 60, 210); made by
 * libjpeg-turbo 2.1.5 at quality 95. */
// clang-format off
static const unsigned char tiny[] = {
    0xff, 0xd8, 0xff, 0xdb, 0x00, 0x43, 0x00, 0x02, 0x01, 0x01, 0x01, 0x01, 0x01, 0x02, 0x01, 0x01,
    0x01, 0x02, 0x02, 0x02, 0x02, 0x02, 0x04, 0x03, 0x02, 0x02, 0x02, 0x02, 0x05, 0x04, 0x04, 0x03,
    0x04, 0x06, 0x05, 0x06, 0x06, 0x06, 0x05, 0x06, 0x06, 0x06, 0x07, 0x09, 0x08, 0x06, 0x07, 0x09,
    0x07, 0x06, 0x06, 0x08, 0x0b, 0x08, 0x09, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x06, 0x08, 0x0b, 0x0c,
    0x0b, 0x0a, 0x0c, 0x09, 0x0a, 0x0a, 0x0a, 0xff, 0xdb, 0x00, 0x43, 0x01, 0x02, 0x02, 0x02, 0x02,
    0x02, 0x02, 0x05, 0x03, 0x03, 0x05, 0x0a, 0x07, 0x06, 0x07, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a,
    0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a,
    0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a,
    0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0xff, 0xc0, 0x00, 0x11,
    0x08, 0x00, 0x08, 0x00, 0x10, 0x03, 0x01, 0x11, 0x00, 0x02, 0x11, 0x01, 0x03, 0x11, 0x01, 0xff,
    0xc4, 0x00, 0x15, 0x00, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x07, 0x08, 0xff, 0xc4, 0x00, 0x14, 0x10, 0x01, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xc4, 0x00, 0x15,
    0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x09, 0x08, 0xff, 0xc4, 0x00, 0x14, 0x11, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xda, 0x00, 0x0c, 0x03, 0x01, 0x00,
    0x02, 0x11, 0x03, 0x11, 0x00, 0x3f, 0x00, 0x96, 0xd3, 0xf9, 0x44, 0x13, 0x9c, 0x80, 0x76, 0xff,
    0xd9,
};
// clang-format on

/* JPEG is optional. */
static void need_jpeg(void)
{
    gd_image image;
    write_file("probe.jpg", tiny, sizeof tiny);
    bool missing = gd_image_read(in_folder("probe.jpg"), &image) == GD_ERR_UNSUPPORTED;
    gd_image_free(&image);
    unlink(in_folder("probe.jpg"));
    if (missing) {
        gd_error_clear();
        skip();
    }
}

static bool is_near(int a, int b)
{
    return abs(a - b) <= 4;
}

/* ---- images ---- */

static void test_jpeg(void **state)
{
    (void)state;
    need_jpeg();
    write_file("a.jpg", tiny, sizeof tiny);
    gd_image image;
    assert_int_equal(gd_image_read(in_folder("a.jpg"), &image), GD_OK);
    assert_int_equal(image.height, 8);
    assert_int_equal(image.width, 16);
    assert_int_equal(image.channels, 3);
    for (int i = 0; i < 8 * 16; i++) {
        const unsigned char *p = image.pixels + 3 * i;
        bool left = i % 16 < 8;
        assert_true(is_near(p[0], left ? 200 : 20) && is_near(p[1], left ? 40 : 60) &&
                    is_near(p[2], left ? 30 : 210));
    }
    gd_image_free(&image);
    gd_image_free(&image);
    gd_image_free(NULL);
}

/* As small as leaves twice of what is wanted of both sides. */
static void test_reduced_jpeg(void **state)
{
    (void)state;
    need_jpeg();
    write_file("a.jpg", tiny, sizeof tiny);
    static const struct {
        int height, width, by;
    } rows[] = { { 1, 1, 4 }, { 1, 2, 4 }, { 2, 1, 2 }, { 1, 3, 2 },
                 { 2, 4, 2 }, { 3, 1, 1 }, { 1, 5, 1 }, { 100, 100, 1 } };
    gd_image image;
    for (int r = 0; r < COUNT(rows); r++) {
        assert_int_equal(
            gd_image_read_reduced(in_folder("a.jpg"), rows[r].height, rows[r].width, &image),
            GD_OK);
        assert_true(image.height == 8 / rows[r].by && image.width == 16 / rows[r].by);
        for (int i = 0; i < image.height * image.width; i++) {
            const unsigned char *p = image.pixels + 3 * i;
            bool left = i % image.width < image.width / 2;
            assert_true(is_near(p[0], left ? 200 : 20) && is_near(p[1], left ? 40 : 60) &&
                        is_near(p[2], left ? 30 : 210));
        }
        gd_image_free(&image);
    }
    assert_int_equal(gd_image_read_reduced(in_folder("a.jpg"), 0, 1, &image), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "gd_image_read_reduced: 0 x 1");
    assert_int_equal(gd_image_read_reduced(NULL, 1, 1, &image), GD_ERR_INVALID);
    gd_error_clear();
}

/* Every truncation is an error that names the file: libjpeg itself would fill in grey. */
static void test_broken_jpeg(void **state)
{
    (void)state;
    need_jpeg();
    gd_image image;
    for (size_t size = 1; size < sizeof tiny; size++) {
        write_file("cut.jpg", tiny, size);
        assert_int_equal(gd_image_read(in_folder("cut.jpg"), &image), GD_ERR_FORMAT);
        assert_null(image.pixels);
        expect_error(GD_ERR_FORMAT, "cut.jpg: not a JPEG image that can be read: ");
    }
    write_file("no.jpg", "this is no image", 16);
    assert_int_equal(gd_image_read(in_folder("no.jpg"), &image), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "no.jpg: neither a JPEG nor a PNG image");
    write_file("empty.jpg", "", 0);
    assert_int_equal(gd_image_read(in_folder("empty.jpg"), &image), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "empty.jpg: neither a JPEG nor a PNG image");
    assert_int_equal(gd_image_read(in_folder("absent.jpg"), &image), GD_ERR_IO);
    expect_error(GD_ERR_IO, "absent.jpg");
    assert_int_equal(gd_image_read(NULL, &image), GD_ERR_INVALID);
    gd_error_clear();
}

/* `tiny` with other sizes in its frame header, and as a baseline (0xc0) or progressive (0xc2) one.
 */
static void write_claim(const char *name, unsigned char frame, unsigned height, unsigned width)
{
    unsigned char file[sizeof tiny];
    memcpy(file, tiny, sizeof tiny);
    size_t at = 0;
    while (file[at] != 0xff || file[at + 1] != 0xc0)
        at++;
    file[at + 1] = frame;
    file[at + 5] = (unsigned char)(height >> 8), file[at + 6] = (unsigned char)height;
    file[at + 7] = (unsigned char)(width >> 8), file[at + 8] = (unsigned char)width;
    write_file(name, file, sizeof file);
}

/* A few hundred bytes that claim gigabytes are refused before anything is allocated for them. */
static void test_jpeg_claims(void **state)
{
    (void)state;
    need_jpeg();
    static const struct {
        unsigned height, width;
        const char *words;
    } claims[] = { { 65500, 65500, "claim.jpg: an image of 65500 x 65500 in a file of 273 bytes" },
                   { 32769, 1, "claim.jpg: an image of 32769 x 1 in" },
                   { 16384, 16384, "claim.jpg: an image of 16384 x 16384 in" },
                   { 2048, 2048, "claim.jpg: an image of 2048 x 2048 in" } };
    gd_image image;
    for (int i = 0; i < COUNT(claims); i++)
        for (unsigned char frame = 0xc0; frame <= 0xc2; frame += 2) {
            write_claim("claim.jpg", frame, claims[i].height, claims[i].width);
            assert_int_equal(gd_image_read(in_folder("claim.jpg"), &image), GD_ERR_FORMAT);
            expect_error(GD_ERR_FORMAT, claims[i].words);
        }
    write_claim("small.jpg", 0xc0, 8, 8); /* the same bytes: sizes alone decide */
    assert_int_equal(gd_image_read(in_folder("small.jpg"), &image), GD_OK);
    gd_image_free(&image);
}

static size_t put(unsigned char *file, size_t at, const unsigned char *bytes, size_t count)
{
    memcpy(file + at, bytes, count);
    return at + count;
}

/* A progressive grey image of 8 x 8 in `scans` scans, each of them in order: the constant part,
 * then bit 1 of the 63 others one by one, then their bit 0. */
static size_t write_scans(const char *name, int scans)
{
    static const unsigned char head[] = { 0xff, 0xd8, 0xff, 0xc2, 0,    11, 8, 0, 8, 0, 8, 1,
                                          1,    0x11, 0, /* 8 x 8, a component */
                                          0xff, 0xc4, 0,    20,   0x00, 1,  0, 0, 0, 0, 0, 0,
                                          0,    0,    0,    0,    0,    0,  0, 0, 0, 0, /* "0": 0 */
                                          0xff, 0xc4, 0,    20,   0x10, 1,  0, 0, 0, 0, 0, 0,
                                          0,    0,    0,    0,    0,    0,  0, 0, 0, 0 };
    static unsigned char file[sizeof head + 69 + 200 * 16];
    size_t at = put(file, 0, head, 2);
    at = put(file, at, (unsigned char[]){ 0xff, 0xdb, 0, 67, 0 }, 5);
    memset(file + at, 1, 64);
    at = put(file, at + 64, head + 2, sizeof head - 2);
    for (int scan = 0; scan < scans; scan++) {
        unsigned char band = (unsigned char)(scan == 0 ? 0 : (scan - 1) % 63 + 1);
        unsigned char bits = scan == 0 ? 0x00 : scan <= 63 ? 0x01 : 0x10;
        const unsigned char sos[] = { 0xff, 0xda, 0, 8, 1, 1, 0x00, band, band, bits, 0x7f };
        at = put(file, at, sos, sizeof sos);
    }
    at = put(file, at, (unsigned char[]){ 0xff, 0xd9 }, 2);
    write_file(name, file, at);
    return at;
}

static void test_jpeg_scans(void **state)
{
    (void)state;
    need_jpeg();
    gd_image image;
    write_scans("few.jpg", 1 + 63);
    assert_int_equal(gd_image_read(in_folder("few.jpg"), &image), GD_OK);
    assert_true(image.height == 8 && image.pixels[0] == 128);
    gd_image_free(&image);
    write_scans("many.jpg", 1 + 2 * 63);
    assert_int_equal(gd_image_read(in_folder("many.jpg"), &image), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "many.jpg: not a JPEG image that can be read: more than 100 scans");
}

/* PyTorch 2.15.0: i = torch.arange(30.); x = (i * 37 % 251).reshape(1, 1, 6, 5);
 * F.interpolate(x, size=(h, w), mode="bilinear", antialias=True, align_corners=False).round() */
typedef struct resizing {
    int height, width;
    unsigned char pixels[64];
} resizing;

static const resizing resizings[] = {
    { 3, 2, { 104, 93, 124, 137, 142, 108 } },
    { 9, 7, { 0,   21,  48,  74,  100, 127, 148, 92,  114, 104, 41,  67,  94, 115, 174, 195,
              162, 39,  65,  74,  71,  130, 151, 166, 162, 189, 125, 27,  86, 107, 134, 160,
              186, 159, 108, 84,  81,  90,  116, 142, 169, 190, 207, 109, 46, 72,  98,  125,
              146, 205, 154, 127, 154, 90,  81,  102, 172, 193, 220, 246, 93, 48,  69 } },
    { 6, 5, { 0,  37, 74,  111, 148, 185, 222, 8,  45, 82,  119, 156, 193, 230, 16,
              53, 90, 127, 164, 201, 238, 24,  61, 98, 135, 172, 209, 246, 32,  69 } },
    { 1, 1, { 120 } },
    { 2, 10, { 106, 115, 134, 128, 100, 95,  113, 116, 103, 97,
               160, 146, 118, 112, 131, 134, 121, 116, 119, 120 } },
};

static void test_resize_as_torch(void **state)
{
    (void)state;
    unsigned char pixels[30];
    for (int i = 0; i < 30; i++)
        pixels[i] = (unsigned char)(i * 37 % 251);
    gd_image source = { 6, 5, 1, pixels }, image;
    for (int r = 0; r < COUNT(resizings); r++) {
        const resizing *row = &resizings[r];
        assert_int_equal(gd_image_resize(&source, row->height, row->width, &image), GD_OK);
        for (int i = 0; i < row->height * row->width; i++)
            if (abs(image.pixels[i] - row->pixels[i]) > 1) /* halves may round either way */
                fail_msg("%d x %d: pixel %d is %d, expected %d", row->height, row->width, i,
                         image.pixels[i], row->pixels[i]);
        gd_image_free(&image);
    }
    assert_int_equal(gd_image_resize(&source, 0, 5, &image), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(gd_image_resize(&(gd_image){ 0 }, 5, 5, &image), GD_ERR_INVALID);
    gd_error_clear();
}

/* ---- CIFAR-10 ---- */

enum { RECORD = 3073 };

static void test_cifar(void **state)
{
    gd_context *gd = *state;
    unsigned char *records = calloc(3, RECORD);
    for (int i = 0; i < 3; i++) {
        records[i * RECORD] = (unsigned char)(3 * i);
        records[i * RECORD + 1] = 255;                              /* red, top left */
        records[i * RECORD + RECORD - 1] = (unsigned char)(51 * i); /* blue, bottom right */
    }
    write_file("data_batch_2.bin", records, 2 * RECORD);
    write_file("data_batch_5.bin", records + 2 * RECORD, RECORD);
    gd_dataset *d = gd_cifar10(gd, folder);
    assert_int_equal(gd_dataset_count(d), 3);
    gd_tensor *t[2]; /* images, labels */
    assert_int_equal(gd_dataset_get(d, 2, 1, t), GD_OK);
    assert_true(gd_item(t[1]) == 6);
    float *values = malloc(3072 * sizeof *values);
    assert_int_equal(gd_tensor_read(t[0], values, 3072 * sizeof *values), GD_OK);
    assert_true(values[0] == 1 && values[1] == 0 && values[3071] > 0.39f && values[3071] < 0.41f);
    free(values);
    assert_string_equal(gd_dataset_field(d, 1)->class_names[6], "frog");
    d = gd_cifar10(gd, folder, .batch_dtype = GD_U8);
    assert_int_equal(gd_dataset_get(d, 2, 1, t), GD_OK);
    unsigned char *bytes = malloc(3072);
    assert_int_equal(gd_tensor_read(t[0], bytes, 3072), GD_OK);
    assert_true(bytes[0] == 255 && bytes[1] == 0 && bytes[3071] == 102);
    free(bytes);
    assert_null(gd_cifar10(gd, folder, .batch_dtype = GD_I64));
    expect_error(GD_ERR_DTYPE, "u8 or floats, not i64");
    assert_null(gd_cifar10(gd, folder, .test = true));
    expect_error(GD_ERR_IO, "no test_batch.bin is there");
#ifdef GD_HAVE_ZLIB
    gzFile compressed = gzopen(in_folder("test_batch_first1000.bin.gz"), "wb");
    assert_int_equal(gzwrite(compressed, records, 2 * RECORD), 2 * RECORD);
    assert_int_equal(gzclose(compressed), Z_OK);
    d = gd_cifar10(gd, folder, .test = true);
    assert_int_equal(gd_dataset_count(d), 2);
    assert_int_equal(gd_dataset_get(d, 1, 1, t), GD_OK);
    assert_true(gd_item(t[1]) == 3);
#endif
    write_file("test_batch.bin", records, RECORD + 5);
    assert_null(gd_cifar10(gd, folder, .test = true));
    expect_error(GD_ERR_FORMAT, "the last record is not whole");
    records[0] = 10;
    write_file("test_batch.bin", records, RECORD);
    assert_null(gd_cifar10(gd, folder, .test = true));
    expect_error(GD_ERR_FORMAT, "record 0 has label 10");
    free(records);
}

/* The real files, compressed. */
static void test_shared_data(void **state)
{
    gd_context *gd = *state;
    char path[1024];
    snprintf(path, sizeof path, "%s", shared_data("cifar10/data_batch_1.bin.gz"));
    *strrchr(path, '/') = '\0';
    gd_dataset *d = gd_cifar10(gd, path, .test = true);
#ifndef GD_HAVE_ZLIB
    assert_null(d);
    expect_error(GD_ERR_UNSUPPORTED, "gzip");
    return;
#endif
    assert_int_equal(gd_dataset_count(d), 1000);
    assert_int_equal(gd_dataset_field(d, 1)->classes, 10);
    gd_tensor *t[2];
    int64_t labels[4];
    assert_int_equal(gd_dataset_get(d, 0, 4, t), GD_OK);
    assert_int_equal(gd_tensor_read(t[1], labels, sizeof labels), GD_OK);
    assert_true(labels[0] == 3 && labels[1] == 8 && labels[2] == 8 &&
                labels[3] == 0); /* cat ship ship airplane */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(test_jpeg),        folder_test(test_reduced_jpeg),
        folder_test(test_broken_jpeg), folder_test(test_jpeg_claims),
        folder_test(test_jpeg_scans),  folder_test(test_resize_as_torch),
        folder_test(test_cifar),       folder_test(test_shared_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
