/* tests/test_image_data.c: folders and lists of images as data sets: what they hold, that files are
 * read when they are asked for and kept as far as the cache has room, errors of files, workers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/folder.h"
#include "support/shared_data.h"

#include <sys/stat.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { HEIGHT = 4, WIDTH = 6, PIXELS = HEIGHT * WIDTH };

/* The bytes of picture number `i`, [HEIGHT, WIDTH, 3]. */
static void fill_picture(int i, unsigned char *pixels)
{
    for (int k = 0; k < PIXELS * 3; k++)
        pixels[k] = (unsigned char)(k * 37 + i * 101 + k / 5);
}

/* PNG is optional. */
static void write_picture(const char *name, int i)
{
#ifndef GD_HAVE_PNG
    skip();
#endif
    unsigned char pixels[PIXELS * 3];
    fill_picture(i, pixels);
    assert_int_equal(gd_image_write(in_folder(name), &(gd_image){ HEIGHT, WIDTH, 3, pixels }),
                     GD_OK);
}

/* Four pictures of two classes. */
static void write_pictures(void)
{
    mkdir(in_folder("dog"), 0700);
    mkdir(in_folder("cat"), 0700);
    write_picture("dog/2.png", 2);
    write_picture("dog/3.PNG", 3);
    write_picture("cat/1.png", 1);
    write_picture("cat/0.png", 0);
}

/* Whether sample `row` of a batch of u8 is picture number `i`. */
static void expect_picture(const gd_tensor *t, int64_t row, int i)
{
    unsigned char pixels[PIXELS * 3], found[8][3][PIXELS];
    fill_picture(i, pixels);
    assert_int_equal(gd_tensor_dtype(t), GD_U8);
    assert_int_equal(gd_tensor_read(t, found, (size_t)gd_tensor_shape(t).dim[0] * sizeof found[0]),
                     GD_OK);
    for (int k = 0; k < PIXELS; k++)
        for (int c = 0; c < 3; c++)
            assert_int_equal(found[row][c][k], pixels[k * 3 + c]);
}

static int64_t label_at(const gd_tensor *t, int64_t row)
{
    int64_t labels[8];
    assert_int_equal(
        gd_tensor_read(t, labels, (size_t)gd_tensor_shape(t).dim[0] * sizeof labels[0]), GD_OK);
    return labels[row];
}

/* ---- folders ---- */

static char warnings[4][512];
static int warning_count;

static void note_warning(void *user, gd_log_level level, const char *message)
{
    (void)user;
    (void)level;
    if (warning_count < COUNT(warnings))
        snprintf(warnings[warning_count++], sizeof warnings[0], "%s", message);
}

static void a_folder(void **state)
{
    gd_context *gd = *state;
    write_pictures();
    write_file("dog/notes.txt", "x", 1);
    write_file(".DS_Store", "x", 1);
    write_file("cat/.DS_Store", "x", 1);
    write_file("README", "x", 1);
    warning_count = 0;
    gd_set_log_callback(note_warning, NULL, GD_LOG_WARNING);
    gd_dataset *d = gd_image_folder(gd, folder, HEIGHT, WIDTH, .batch_dtype = GD_U8);
    gd_set_log_callback(NULL, NULL, GD_LOG_WARNING);
    assert_int_equal(warning_count, 2);
    assert_non_null(strstr(warnings[0], ": left out what is no folder: README"));
    assert_non_null(
        strstr(warnings[1], "dog: left out what is no image (.jpg, .jpeg, .png): notes"));
    assert_int_equal(gd_dataset_count(d), 4);
    const gd_field *image = gd_dataset_field(d, 0), *label = gd_dataset_field(d, 1);
    assert_string_equal(image->name, "image");
    assert_true(image->shape.rank == 3 && image->shape.dim[0] == 3 &&
                image->shape.dim[1] == HEIGHT && image->shape.dim[2] == WIDTH);
    assert_true(strcmp(label->name, "label") == 0 && label->classes == 2);
    assert_string_equal(label->class_names[0], "cat");
    assert_string_equal(label->class_names[1], "dog");
    gd_tensor *t[2];
    assert_int_equal(gd_dataset_get(d, 0, 4, t), GD_OK);
    for (int i = 0; i < 4; i++) {
        expect_picture(t[0], i, i);
        assert_int_equal(label_at(t[1], i), i / 2);
    }
    d = gd_image_folder(gd, folder, HEIGHT, WIDTH); /* 0 … 1 */
    gd_tensor *floats[2];
    assert_int_equal(gd_dataset_get(d, 0, 4, floats), GD_OK);
    gd_tensor *expected = gd_mul_scalar(gd_cast(t[0], GD_F32), 1.0 / 255);
    assert_true(gd_allclose(floats[0], expected, 1e-6, 0, false));
}

static void refusals(void **state)
{
    gd_context *gd = *state, *none = NULL;
    assert_null(gd_image_folder(none, folder, 2, 4));
    assert_null(gd_image_list(none, folder, 2, 4));
    assert_null(gd_image_folder(gd, NULL, 2, 4));
    expect_error(GD_ERR_INVALID, "gd_image_folder: the path is NULL");
    assert_null(gd_image_list(gd, "list", 0, 4));
    expect_error(GD_ERR_INVALID, "gd_image_list: the path is NULL, or the size");
    assert_null(gd_image_folder(gd, folder, 2, 4, .batch_dtype = GD_I32));
    expect_error(GD_ERR_DTYPE, "u8 or floats, not i32");
    assert_null(gd_image_folder(gd, in_folder("absent"), 2, 4));
    expect_error(GD_ERR_IO, "absent: cannot be read as a folder");
    mkdir(in_folder("a"), 0700);
    assert_null(gd_image_folder(gd, folder, 2, 4));
    expect_error(GD_ERR_IO, "there is no image (.jpg, .jpeg, .png) in its folders");
}

/* The middle of the result's ratio, as if the file were that. */
static void the_middle(void **state)
{
    gd_context *gd = *state;
    write_pictures();
    static const struct {
        int height, width, cut_height, cut_width;
    } rows[] = { { 2, 2, 4, 4 }, { 4, 2, 4, 2 }, { 2, 6, 2, 6 }, { 1, 9, 1, 6 }, { 6, 9, 4, 6 } };
    for (int r = 0; r < COUNT(rows); r++) {
        int h = rows[r].cut_height, w = rows[r].cut_width;
        unsigned char pixels[PIXELS * 3], cut[PIXELS * 3];
        fill_picture(2, pixels);
        for (int y = 0; y < h; y++)
            memcpy(cut + y * w * 3, pixels + (((HEIGHT - h) / 2 + y) * WIDTH + (WIDTH - w) / 2) * 3,
                   (size_t)w * 3);
        gd_image expected;
        assert_int_equal(
            gd_image_resize(&(gd_image){ h, w, 3, cut }, rows[r].height, rows[r].width, &expected),
            GD_OK);
        gd_dataset *d = gd_image_folder(gd, folder, rows[r].height, rows[r].width, .crop = true,
                                        .batch_dtype = GD_U8);
        gd_tensor *t[2];
        assert_int_equal(gd_dataset_get(d, 2, 1, t), GD_OK);
        unsigned char found[3 * 54];
        int plane = rows[r].height * rows[r].width;
        assert_int_equal(gd_tensor_read(t[0], found, (size_t)(3 * plane)), GD_OK);
        for (int k = 0; k < plane * 3; k++)
            assert_int_equal(found[k % 3 * plane + k / 3], expected.pixels[k]);
        gd_image_free(&expected);
    }
}

/* ---- lists ---- */

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static void a_list(void **state)
{
    gd_context *gd = *state;
    write_pictures();
    write_picture("a, b.png", 5);
    char text[1024];
    snprintf(text, sizeof text,
             "path,label\n# two folders\ndog/2.png,wolf\r\n\n\"a, b.png\", bear\n  %s\tbear\n"
             "cat/1.png ,\"a cat\"",
             in_folder("cat/0.png"));
    write_text("list.csv", text);
    gd_dataset *d = gd_image_list(gd, in_folder("list.csv"), HEIGHT, WIDTH, .batch_dtype = GD_U8);
    if (!d)
        fail_msg("%s", gd_error_message());
    const gd_field *label = gd_dataset_field(d, 1);
    assert_int_equal(label->classes, 3);
    assert_string_equal(label->class_names[0], "a cat");
    assert_string_equal(label->class_names[1], "bear");
    assert_string_equal(label->class_names[2], "wolf");
    static const int pictures[] = { 2, 5, 0, 1 }, labels[] = { 2, 1, 1, 0 };
    gd_tensor *t[2];
    assert_int_equal(gd_dataset_count(d), 4);
    assert_int_equal(gd_dataset_get(d, 0, 4, t), GD_OK);
    for (int i = 0; i < 4; i++) {
        expect_picture(t[0], i, pictures[i]);
        assert_int_equal(label_at(t[1], i), labels[i]);
    }
}

static void damaged_lists(void **state)
{
    gd_context *gd = *state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        { "", "list.csv: names no images" },
        { "path,class\n\n", "names no images" },
        { "a.png,x\nb.png\n", "list.csv, line 2: \"b.png\" is no path and class" },
        { "a.png,x\n,y\n", "line 2: there is no path" },
        { "a.png,x\nb.png, \n", "line 2: there is no class" },
    };
    for (int i = 0; i < COUNT(rows); i++) {
        write_text("list.csv", rows[i].text);
        assert_null(gd_image_list(gd, in_folder("list.csv"), 2, 2));
        expect_error(GD_ERR_FORMAT, rows[i].words);
    }
    write_file("list.csv", "a,b\nc\0d,e", 9);
    assert_null(gd_image_list(gd, in_folder("list.csv"), 2, 2));
    expect_error(GD_ERR_FORMAT, "not a text file");
    assert_null(gd_image_list(gd, in_folder("absent.csv"), 2, 2));
    expect_error(GD_ERR_IO, "absent.csv");
    char text[5000] = "";
    memset(text, 'a', 4200);
    memcpy(text + 4200, ",x", 3);
    write_text("list.csv", text);
    assert_null(gd_image_list(gd, in_folder("list.csv"), 2, 2));
    expect_error(GD_ERR_FORMAT, "line 1: the path is too long");
}

/* Many more bytes than any memory has: only what is asked for is read. */
static void larger_than_memory(void **state)
{
    gd_context *gd = *state;
    enum { SAMPLES = 100000 };
    write_picture("0.png", 0);
    FILE *f = fopen(in_folder("list.csv"), "wb");
    for (int i = 0; i < SAMPLES; i++)
        fprintf(f, "0.png,%d\n", i % 3);
    fclose(f);
    gd_dataset *d = gd_image_list(gd, in_folder("list.csv"), 16384, 16384);
    assert_int_equal(gd_dataset_count(d), SAMPLES);
    d = gd_image_list(gd, in_folder("list.csv"), HEIGHT, WIDTH, .batch_dtype = GD_U8,
                      .cache = 3 * PIXELS);
    gd_tensor *t[2];
    assert_int_equal(gd_dataset_get(d, SAMPLES - 2, 2, t), GD_OK);
    expect_picture(t[0], 1, 0);
    assert_int_equal(label_at(t[1], 1), (SAMPLES - 1) % 3);
}

/* ---- errors of files, the cache, workers ---- */

/* A damaged file is found when its sample is asked for; the error names both, and the batch after it
 * comes. */
static void damaged_files(void **state)
{
    gd_context *gd = *state;
    write_pictures();
    write_text("cat/1.png", "no");
    for (int workers = 0; workers <= 3; workers += 3) {
        gd_dataset *d = gd_image_folder(gd, folder, HEIGHT, WIDTH, .batch_dtype = GD_U8);
        assert_non_null(d);
        gd_loader *l = gd_loader_create(d, .batch = 1, .workers = workers);
        gd_batch b;
        for (int epoch = 0; epoch < 2; epoch++) {
            assert_true(gd_loader_next(l, &b));
            assert_false(gd_loader_next(l, &b));
            expect_error(GD_ERR_FORMAT, "sample 1: ");
            for (int i = 2; i < 4; i++) {
                assert_true(gd_loader_next(l, &b));
                expect_picture(b.tensors[0], 0, i);
            }
            assert_false(gd_loader_next(l, &b));
            assert_int_equal(gd_error_code(), GD_OK);
        }
        assert_false(gd_loader_next(l, &b) && gd_loader_next(l, &b));
        expect_error(GD_ERR_FORMAT, "cat/1.png: neither a JPEG nor a PNG image");
        gd_loader_release(l);
        gd_dataset_release(d);
    }
}

/* Files that are gone are still in the cache, as many as it has room for. */
static void kept_images(void **state)
{
    gd_context *gd = *state;
    for (int room = 0; room <= 5; room++) {
        write_pictures();
        gd_dataset *d = gd_image_folder(gd, folder, HEIGHT, WIDTH, .batch_dtype = GD_U8,
                                        .cache = room < 5 ? (size_t)room * 3 * PIXELS : SIZE_MAX);
        gd_tensor *t[2];
        assert_int_equal(gd_dataset_get(d, 0, 4, t), GD_OK);
        static const char *const names[] = { "cat/0.png", "cat/1.png", "dog/2.png", "dog/3.PNG" };
        for (int i = 0; i < 4; i++)
            unlink(in_folder(names[i]));
        for (int i = 0; i < 4; i++) {
            gd_status status = gd_dataset_get(d, i, 1, t);
            assert_int_equal(status, i < room ? GD_OK : GD_ERR_IO);
            if (status == GD_OK)
                expect_picture(t[0], 0, i);
            gd_error_clear();
        }
    }
}

/* The same batches with any number of workers, cached or not. */
static void workers_agree(void **state)
{
    gd_context *gd = *state;
    write_pictures();
    for (int workers = 0; workers <= 3; workers++)
        for (int kept = 0; kept <= 4; kept += 2) {
            gd_dataset *d = gd_image_folder(gd, folder, HEIGHT, WIDTH, .batch_dtype = GD_U8,
                                            .cache = (size_t)kept * 3 * PIXELS);
            gd_loader *l = gd_loader_create(d, .batch = 3, .shuffle = true, .seed = 9,
                                            .workers = workers, .draws = 2);
            gd_batch b;
            for (int epoch = 0; epoch < 4; epoch++)
                while (gd_loader_next(l, &b))
                    for (int64_t i = 0; i < b.size; i++) {
                        expect_picture(b.tensors[0], i, (int)b.indices[i]);
                        assert_int_equal(label_at(b.tensors[1], i), b.indices[i] / 2);
                    }
            assert_int_equal(gd_error_code(), GD_OK);
            gd_loader_release(l);
            gd_dataset_release(d);
        }
}

static bool read_folder(int as_list)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_dataset *d = !gd       ? NULL
                    : as_list ? gd_image_list(gd, in_folder("list.csv"), 3, 3, .crop = true)
                              : gd_image_folder(gd, folder, 3, 3);
    gd_tensor *t[2];
    bool ok = d && gd_dataset_get(d, 0, 2, t) == GD_OK && gd_dataset_get(d, 1, 1, t) == GD_OK;
    gd_close(gd);
    return ok;
}

static void failing_allocations(void **state)
{
    (void)state;
    write_pictures();
    write_text("list.csv", "cat/0.png,a\ndog/2.png,b\n");
    gd_set_log_callback(note_warning, NULL, GD_LOG_WARNING);
    fail_every_allocation(read_folder, 0);
    fail_every_allocation(read_folder, 1);
    gd_set_log_callback(NULL, NULL, GD_LOG_WARNING);
}

/* ---- real photographs ---- */

static void photographs(void **state)
{
    gd_context *gd = *state;
    char path[1024];
    snprintf(path, sizeof path, "%s", shared_data("cats_dogs/test"));
    gd_dataset *d = gd_image_folder(gd, path, 32, 32);
    assert_true(gd_dataset_count(d) > 0 && gd_dataset_field(d, 1)->classes == 2);
    gd_tensor *t[2];
#ifndef GD_HAVE_JPEG
    assert_int_equal(gd_dataset_get(d, 0, 1, t), GD_ERR_UNSUPPORTED);
    expect_error(GD_ERR_UNSUPPORTED, "built without libjpeg-turbo");
    return;
#endif
    int64_t few = gd_dataset_count(d) < 8 ? gd_dataset_count(d) : 8;
    if (gd_dataset_get(d, 0, few, t) != GD_OK)
        fail_msg("%s", gd_error_message());
    double mean = gd_item(gd_mean(t[0], GD_ALL_AXES, false));
    double spread = gd_item(gd_std(t[0], GD_ALL_AXES, 0, false));
    assert_true(mean > 0.2 && mean < 0.8 && spread > 0.1 && spread < 0.4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(a_folder),      folder_test(refusals),
        folder_test(the_middle),    folder_test(a_list),
        folder_test(damaged_lists), folder_test(larger_than_memory),
        folder_test(damaged_files), folder_test(kept_images),
        folder_test(workers_agree), folder_test(failing_allocations),
        folder_test(photographs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
