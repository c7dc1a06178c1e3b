/* tests/test_png.c: PNG images of every depth and kind read against Pillow, damaged ones, and images
 * and tensors written as pictures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "goldens/images.h"
#include "support/folder.h"

#include <math.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* PNG is optional. */
static void need_png(void)
{
#ifndef GD_HAVE_PNG
    gd_image image;
    write_file("a.png", png_goldens[0].file, (size_t)png_goldens[0].size);
    assert_int_equal(gd_image_read(in_folder("a.png"), &image), GD_ERR_UNSUPPORTED);
    expect_error(GD_ERR_UNSUPPORTED, "built without libpng");
    unsigned char grey = 0;
    assert_int_equal(gd_image_write(in_folder("b.png"), &(gd_image){ 1, 1, 1, &grey }),
                     GD_ERR_UNSUPPORTED);
    expect_error(GD_ERR_UNSUPPORTED, "built without libpng");
    skip();
#endif
}

static void every_kind(void **state)
{
    (void)state;
    need_png();
    for (int i = 0; i < COUNT(png_goldens); i++) {
        const struct png_golden *g = &png_goldens[i];
        write_file("a.jpg", g->file, (size_t)g->size); /* told by content, not by name */
        gd_image image;
        if (gd_image_read(in_folder("a.jpg"), &image) != GD_OK)
            fail_msg("%s: %s", g->name, gd_error_message());
        assert_true(image.height == 5 && image.width == 5 && image.channels == 3);
        for (int k = 0; k < 5 * 5 * 3; k++)
            if (image.pixels[k] != g->pixels[k])
                fail_msg("%s: value %d is %d, not %d", g->name, k, image.pixels[k], g->pixels[k]);
        gd_image_free(&image);
    }
}

static const struct png_golden *golden(const char *name)
{
    for (int i = 0; i < COUNT(png_goldens); i++)
        if (strcmp(png_goldens[i].name, name) == 0)
            return &png_goldens[i];
    fail_msg("no %s", name);
    return NULL;
}

/* A file that is cut off anywhere is an error that names it, and so is one with any bit of its
 * critical chunks flipped, for each of them has a check sum. */
static void damaged_files(void **state)
{
    (void)state;
    need_png();
    static const char *const names[] = { "rgb_8", "palette_4_interlaced" };
    gd_image image;
    for (int i = 0; i < COUNT(names); i++) {
        const struct png_golden *g = golden(names[i]);
        unsigned char file[sizeof g->file];
        for (size_t size = 1; size < (size_t)g->size; size++) {
            write_file("cut.png", g->file, size);
            assert_int_equal(gd_image_read(in_folder("cut.png"), &image), GD_ERR_FORMAT);
            assert_null(image.pixels);
            expect_error(GD_ERR_FORMAT, "cut.png: not a PNG image that can be read: ");
        }
        int refused = 0;
        for (int at = 8; at < g->size; at++) {
            memcpy(file, g->file, sizeof file);
            file[at] ^= 0x10;
            write_file("bad.png", file, (size_t)g->size);
            if (gd_image_read(in_folder("bad.png"), &image) == GD_OK)
                assert_memory_equal(image.pixels, g->pixels, sizeof g->pixels);
            else
                refused++, expect_error(GD_ERR_FORMAT, "bad.png: ");
            gd_image_free(&image);
        }
        assert_true(refused > g->size / 2);
    }
}

static void put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* PNG's check sum of a chunk's name and data: CRC-32. */
static uint32_t check_sum(const unsigned char *bytes, size_t count)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

/* A few hundred bytes that claim gigabytes are refused before anything is allocated for them. */
static void claims(void **state)
{
    (void)state;
    need_png();
    static const struct {
        uint32_t height, width;
        const char *words;
    } rows[] = { { 65500, 65500, "claim.png: an image of 65500 x 65500 in a file of 185 bytes" },
                 { 32769, 1, "claim.png: an image of 32769 x 1 in" },
                 { 0x7fffffff, 0x7fffffff, "claim.png: an image of 2147483647 x 2147483647 in" },
                 { 2048, 2048, "claim.png: an image of 2048 x 2048 in" },
                 { 5, 6, "claim.png: not a PNG image that can be read: " },
                 { 6, 5, "claim.png: not a PNG image that can be read: " },
                 { 0, 5, "claim.png: not a PNG image that can be read: " } };
    const struct png_golden *g = golden("rgb_8");
    gd_image image;
    for (int i = 0; i < COUNT(rows); i++) {
        unsigned char file[sizeof g->file];
        memcpy(file, g->file, sizeof file);
        put_u32(file + 16, rows[i].width);
        put_u32(file + 20, rows[i].height);
        put_u32(file + 29, check_sum(file + 12, 17));
        write_file("claim.png", file, (size_t)g->size);
        assert_int_equal(gd_image_read(in_folder("claim.png"), &image), GD_ERR_FORMAT);
        assert_null(image.pixels);
        expect_error(GD_ERR_FORMAT, rows[i].words);
    }
}

/* ---- writing ---- */

/* An image of `channels` without a pattern, 7 x 3. */
static gd_image some_image(int channels, unsigned char *pixels)
{
    for (int i = 0; i < 7 * 3 * channels; i++)
        pixels[i] = (unsigned char)(i * 97 + i / 5);
    return (gd_image){ 7, 3, channels, pixels };
}

static void written_and_read(void **state)
{
    (void)state;
    need_png();
    unsigned char pixels[7 * 3 * 4];
    for (int channels = 1; channels <= 4; channels++) {
        gd_image image = some_image(channels, pixels), back;
        assert_int_equal(gd_image_write(in_folder("a.PNG"), &image), GD_OK);
        assert_int_equal(gd_image_read(in_folder("a.PNG"), &back), GD_OK);
        assert_true(back.height == 7 && back.width == 3);
        for (int i = 0; i < 7 * 3 * 3; i++)
            assert_int_equal(back.pixels[i], pixels[i / 3 * channels + (channels > 2 ? i % 3 : 0)]);
        gd_image_free(&back);
    }
}

static void netpbm(void **state)
{
    (void)state;
    unsigned char pixels[7 * 3 * 4], bytes[128];
    gd_image image = some_image(3, pixels);
    assert_int_equal(gd_image_write(in_folder("a.ppm"), &image), GD_OK);
    FILE *f = fopen(in_folder("a.ppm"), "rb");
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), 11 + 63);
    assert_memory_equal(bytes, "P6\n3 7\n255\n", 11);
    assert_memory_equal(bytes + 11, pixels, 63);
    fclose(f);
    image = some_image(1, pixels);
    assert_int_equal(gd_image_write(in_folder("a.pgm"), &image), GD_OK);
    f = fopen(in_folder("a.pgm"), "rb");
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), 11 + 21);
    assert_memory_equal(bytes, "P5\n3 7\n255\n", 11);
    assert_memory_equal(bytes + 11, pixels, 21);
    fclose(f);
}

static void refused_pictures(void **state)
{
    (void)state;
    unsigned char pixels[7 * 3 * 4];
    gd_image image = some_image(3, pixels);
    assert_int_equal(gd_image_write(NULL, &image), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "there is no path");
    assert_int_equal(gd_image_write(in_folder("a.png"), &(gd_image){ 0 }), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "there is no image");
    assert_int_equal(gd_image_write(in_folder("a.gif"), &image), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "a.gif: an image with 3 channels is written as .png or .ppm");
    assert_int_equal(gd_image_write(in_folder("a.pgm"), &image), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "written as .png or .ppm");
    image.channels = 5;
    assert_int_equal(gd_image_write(in_folder("a.png"), &image), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "7 x 3 with 5 channels");
    image = some_image(3, pixels);
    assert_int_equal(gd_image_write(in_folder("absent/a.ppm"), &image), GD_ERR_IO);
    expect_error(GD_ERR_IO, "absent/a.ppm");
}

static void tensors_as_pictures(void **state)
{
    gd_context *gd = *state;
    const float values[2][1][3] = { { { -1, 0, 0.5f } }, { { 1, 2, NAN } } };
    gd_image image;
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(2, 1, 3), GD_F32, values);
    assert_int_equal(gd_image_from_tensor(x, 0, 1, &image), GD_OK);
    assert_true(image.height == 1 && image.width == 3 && image.channels == 2);
    static const unsigned char expected[] = { 0, 255, 0, 255, 128, 0 };
    assert_memory_equal(image.pixels, expected, sizeof expected);
    gd_image_free(&image);
    gd_tensor *columns = gd_transpose(gd_reshape(x, GD_SHAPE(2, 3)), 0, 1); /* [3, 2], strided */
    assert_int_equal(gd_image_from_tensor(columns, 1, -1, &image), GD_OK);  /* black is 1 */
    static const unsigned char turned[] = { 255, 0, 128, 0, 64, 0 };
    assert_true(image.height == 3 && image.width == 2 && image.channels == 1);
    assert_memory_equal(image.pixels, turned, sizeof turned);
    gd_image_free(&image);
    const uint8_t bytes[] = { 0, 7, 255 };
    gd_tensor *u8 = gd_from_host(gd, GD_SHAPE(1, 3), GD_U8, bytes);
    assert_int_equal(gd_image_from_tensor(u8, 0, 255, &image), GD_OK);
    assert_memory_equal(image.pixels, bytes, sizeof bytes);
    gd_image_free(&image);

    assert_int_equal(gd_image_from_tensor(gd_arange(gd, 0, 3, 1, GD_F32), 0, 1, &image),
                     GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "[height, width] or [channels, height, width]");
    assert_int_equal(gd_image_from_tensor(gd_zeros(gd, GD_SHAPE(5, 2, 2), GD_F32), 0, 1, &image),
                     GD_ERR_SHAPE);
    gd_error_clear();
    assert_int_equal(gd_image_from_tensor(u8, 1, 1, &image), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "from 1 to 1 is no range");
    assert_int_equal(gd_image_from_tensor(NULL, 0, 1, &image), GD_ERR_INVALID);
    gd_error_clear();
}

/* ---- memory ---- */

static bool read_and_write(int i)
{
    gd_image image;
    bool ok = gd_image_read(in_folder(i ? "b.png" : "a.png"), &image) == GD_OK &&
              gd_image_write(in_folder("c.png"), &image) == GD_OK;
    gd_image_free(&image);
    return ok;
}

static void failing_allocations(void **state)
{
    (void)state;
    need_png();
    const struct png_golden *a = golden("rgba_16_interlaced"), *b = golden("palette_2");
    write_file("a.png", a->file, (size_t)a->size);
    write_file("b.png", b->file, (size_t)b->size);
    fail_every_allocation(read_and_write, 0);
    fail_every_allocation(read_and_write, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(every_kind),
        folder_test(damaged_files),
        folder_test(claims),
        folder_test(written_and_read),
        folder_test(netpbm),
        folder_test(refused_pictures),
        folder_test(tensors_as_pictures),
        folder_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
