/* tests/test_cli_arrays.c: gradus train, eval and predict on NumPy's arrays. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sys/stat.h>

#include <gradus/gradus.h>

#ifdef GD_TOOL

#include "support/cli.h"

enum { COUNT = 200, WIDTH = 3, SIDE = 8 };

static void write_npy(const char *name, gd_dtype dtype, gd_shape shape, void *values)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const gd_npy array = { .dtype = dtype,
                           .shape = shape,
                           .data = values,
                           .bytes = (size_t)gd_shape_count(shape) * gd_dtype_size(dtype) };
    assert_int_equal(gd_npy_write(path, &array), GD_OK);
}

static void make(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

/* ---- a ZIP archive of files, stored, as numpy.savez writes it ---- */

static uint32_t crc32_of(const unsigned char *bytes, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void put(FILE *f, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> 8 * i & 255), f);
}

typedef struct entry {
    const char *name, *from; /* "x.npy", the file in the test's folder */
    uint32_t crc, size, at;
} entry;

static void put_header(FILE *f, const entry *e, bool central)
{
    put(f, 4, central ? 0x02014b50 : 0x04034b50);
    if (central)
        put(f, 2, 20);
    put(f, 2, 20);
    put(f, 2, 0);
    put(f, 2, 0);
    put(f, 4, 0);
    put(f, 4, e->crc);
    put(f, 4, e->size);
    put(f, 4, e->size);
    put(f, 2, (uint32_t)strlen(e->name));
    put(f, 2, 0);
    if (central) {
        put(f, 6, 0);
        put(f, 4, 0);
        put(f, 4, e->at);
    }
    fputs(e->name, f);
}

static void write_npz(const char *name, int count, entry *entries)
{
    static unsigned char bytes[1 << 20];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i].from);
        FILE *from = fopen(path, "rb");
        assert_non_null(from);
        entries[i].size = (uint32_t)fread(bytes, 1, sizeof bytes, from);
        fclose(from);
        entries[i].crc = crc32_of(bytes, entries[i].size);
        entries[i].at = (uint32_t)ftell(f);
        put_header(f, &entries[i], false);
        fwrite(bytes, 1, entries[i].size, f);
    }
    uint32_t central = (uint32_t)ftell(f);
    for (int i = 0; i < count; i++)
        put_header(f, &entries[i], true);
    uint32_t end = (uint32_t)ftell(f);
    put(f, 4, 0x06054b50);
    put(f, 4, 0);
    put(f, 2, (uint32_t)count);
    put(f, 2, (uint32_t)count);
    put(f, 4, end - central);
    put(f, 4, central);
    put(f, 2, 0);
    assert_int_equal(fclose(f), 0);
}

/* ---- what is learnt ---- */

/* Rows of features of very different sizes, of which the first decides. */
static void fill_rows(double *x, int64_t *classes, double *numbers)
{
    for (int i = 0; i < COUNT; i++) {
        double first = sin(1.7 * i), second = cos(2.3 * i + 1);
        x[WIDTH * i] = first;
        x[WIDTH * i + 1] = 1000 + 100 * second;
        x[WIDTH * i + 2] = 1e-4 * sin(0.9 * i);
        classes[i] = first > 0;
        numbers[i] = 5e4 + 1e4 * first - 3e3 * second;
    }
}

static int make_rows(void **state)
{
    static double x[COUNT * WIDTH], numbers[COUNT];
    static int64_t classes[COUNT];
    if (make_folder(state) != 0)
        return -1;
    fill_rows(x, classes, numbers);
    make("rows");
    write_npy("rows/x.npy", GD_F64, GD_SHAPE(COUNT, WIDTH), x);
    write_npy("rows/y.npy", GD_I64, GD_SHAPE(COUNT), classes);
    write_npy("numbers.npy", GD_F64, GD_SHAPE(COUNT), numbers);
    write_npy("new.npy", GD_F64, GD_SHAPE(2, WIDTH), x + WIDTH); /* sin(1.7) > 0 > sin(3.4) */
    return 0;
}

static void classes_of_arrays_are_learnt(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run("train rows --run c");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "samples of 3 f64; 2 classes");
    assert_has(r->out, "170 samples for training, 30 for validation");
    assert_has(r->out, "norm   batch_norm");
    r = run("eval c");
    assert_true(number_after(r->out, "30 samples kept for validation: accuracy ") > 90);
    r = run("eval c rows");
    assert_true(number_after(r->out, "200 samples: accuracy ") > 93);
    r = run("predict c new.npy");
    assert_string_equal(r->err, "");
    assert_has(r->out, "class,probability\n1,0.");
    assert_has(r->out, "\n0,0.");
    assert_fails(run("eval c new.npy"), 1, "there is no y, which eval compares with");
    assert_fails(run("predict c numbers.npy"), 1, "samples have 1 number each, the model takes 3");
}

/* One value of another array: neither shapes nor statistics of y tell. */
static void changed_arrays_are_not_gone_on_with(void **state)
{
    (void)state;
    need("jansson");
    static double x[COUNT * WIDTH], numbers[COUNT];
    static int64_t classes[COUNT];
    fill_rows(x, classes, numbers);
    make("same");
    write_npy("same/x.npy", GD_F64, GD_SHAPE(COUNT, WIDTH), x);
    write_npy("same/y.npy", GD_I64, GD_SHAPE(COUNT), classes);
    assert_int_equal(run("train same --run s --epochs 1 --quiet")->code, 0);
    assert_int_equal(run("train --resume s --quiet")->code, 0);
    x[WIDTH * COUNT / 2] += 1;
    write_npy("same/x.npy", GD_F64, GD_SHAPE(COUNT, WIDTH), x);
    assert_fails(run("train --resume s --quiet"), 1,
                 "the data has changed since the run began (its \"contents\"): begin a new run");
    assert_fails(run("eval s"), 1, "(its \"contents\"): give DATA");
}

/* What is kept for validation does not shift what is learnt: numbers are standardised by the mean of those
 * that are trained on. */
static void validation_is_not_learnt_from(void **state)
{
    (void)state;
    need("jansson");
    static double x[COUNT * WIDTH], numbers[COUNT];
    static int64_t classes[COUNT];
    fill_rows(x, classes, numbers);
    double before = NAN;
    int changed = 0;
    make("part");
    write_npy("part/x.npy", GD_F64, GD_SHAPE(COUNT, WIDTH), x);
    for (int i = -1; i < 30;
         i++) { /* one row after the other is far away: some are for validation */
        double saved = i >= 0 ? numbers[i] : 0;
        if (i >= 0)
            numbers[i] = 1e9;
        write_npy("part/y.npy", GD_F64, GD_SHAPE(COUNT), numbers);
        char command[80];
        snprintf(command, sizeof command, "train part --epochs 1 --quiet --run part%d", i);
        assert_int_equal(run(command)->code, 0);
        char path[512];
        snprintf(path, sizeof path, "%s/part%d/model.safetensors", folder, i);
        gd_tensor_file *file = gd_tensor_file_open(path);
        assert_non_null(file);
        double mean = strtod(gd_tensor_file_metadata(file, "target"), NULL);
        gd_tensor_file_close(file);
        if (i < 0)
            before = mean;
        changed += i >= 0 && mean != before;
        if (i >= 0)
            numbers[i] = saved;
    }
    assert_in_range(changed, 15, 29); /* about 85 of 100 */
}

/* The same by any names, and in another order. */
static void two_arrays_need_no_names(void **state)
{
    (void)state;
    need("jansson");
    entry named[] = { { .name = "y.npy", .from = "rows/y.npy" },
                      { .name = "x.npy", .from = "rows/x.npy" },
                      { .name = "other.npy", .from = "numbers.npy" } };
    entry plain[] = { { .name = "arr_0.npy", .from = "rows/y.npy" },
                      { .name = "arr_1.npy", .from = "rows/x.npy" } };
    write_npz("named.npz", 3, named);
    write_npz("plain.npz", 2, plain);
    assert_int_equal(run("train rows --run folder --epochs 3")->code, 0);
    const char *const same[] = { "named.npz", "plain.npz", "rows/x.npy" };
    for (int i = 0; i < 3; i++) {
        char command[1024];
        const result *r = run("train %s --run same%d --epochs 3", same[i], i);
        assert_string_equal(r->err, "");
        snprintf(command, sizeof command,
                 "cd '%s' && cmp folder/model.safetensors same%d/model.safetensors", folder, i);
        assert_int_equal(system(command), 0);
    }
    plain[0].name = "y.npy"; /* one name says what the other one is */
    plain[1].name = "features.npy";
    write_npz("half.npz", 2, plain);
    assert_has(run("train half.npz --run half --epochs 1")->out, "samples of 3 f");
    assert_fails(run("eval half numbers.npy"), 1, "no y");
    named[0].name = "a.npy";
    write_npz("unnamed.npz", 3, named);
    assert_fails(run("train unnamed.npz --run no"), 1, "Call them x and y. There are: a, x, other");
    /* An array of something else is told with the file's name and its own. */
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && sed 's/<i8/|O8/' rows/y.npy > objects.npy",
             folder);
    assert_int_equal(system(command), 0);
    entry objects[] = { { .name = "x.npy", .from = "rows/x.npy" },
                        { .name = "y.npy", .from = "objects.npy" } };
    write_npz("objects.npz", 2, objects);
    assert_fails(run("train objects.npz --run no"), 1, "objects.npz: y: its values are |O");
    assert_false(is_there("no"));
}

static void numbers_of_arrays_are_learnt(void **state)
{
    (void)state;
    need("jansson");
    entry entries[] = { { .name = "x.npy", .from = "rows/x.npy" },
                        { .name = "y.npy", .from = "numbers.npy" } };
    write_npz("numbers.npz", 2, entries);
    assert_int_equal(run("train numbers.npz --run n --quiet")->code, 0);
    assert_true(number_after(run("eval n")->out, "R2 ") > 0.9);
    const result *r = run("predict n new.npy");
    assert_true(fabs(number_after(r->out, "y\n") - (5e4 + 1e4 * sin(1.7) - 3e3 * cos(3.3))) < 6e3);
    /* Classes as numbers, where that is asked for. */
    assert_has(run("train rows --run q --epochs 1 --task regression")->out, "y: 1 number\n");
    assert_fails(run("train numbers.npz --run z --task classification"), 1,
                 "y is no class of each sample");
    assert_fails(run("train rows --run z --target y"), 1, "is no table");
}

/* Bytes with the colours last, as programs of pictures have them. */
static void pictures_in_arrays_are_learnt(void **state)
{
    (void)state;
    need("jansson");
    static unsigned char pixels[COUNT * SIDE * SIDE * 3];
    static unsigned char labels[COUNT];
    for (int i = 0; i < COUNT; i++) {
        labels[i] = (unsigned char)(i % 3);
        for (int p = 0; p < SIDE * SIDE; p++)
            for (int c = 0; c < 3; c++) /* each class has a colour */
                pixels[(i * SIDE * SIDE + p) * 3 + c] =
                    (unsigned char)((c == i % 3 ? 150 : 60) + (i * 31 + p * 7 + c) % 50);
    }
    make("pictures");
    write_npy("pictures/x.npy", GD_U8, GD_SHAPE(COUNT, SIDE, SIDE, 3), pixels);
    write_npy("pictures/y.npy", GD_U8, GD_SHAPE(COUNT), labels);
    const result *r = run("train pictures --run p --epochs 4");
    assert_string_equal(r->err, "");
    assert_has(r->out, "samples of 3 x 8 x 8 u8; 3 classes");
    assert_has(r->out, "conv2d");
    assert_true(number_after(run("eval p pictures")->out, "200 samples: accuracy ") > 99);
}

static void mistakes_about_arrays_are_told(void **state)
{
    (void)state;
    need("jansson");
    double x[] = { 1, 2, NAN, 4 }, y[] = { 0, 1, 0 };
    make("wrong");
    write_npy("wrong/x.npy", GD_F64, GD_SHAPE(2, 2), x);
    write_npy("wrong/y.npy", GD_F64, GD_SHAPE(3), y);
    assert_fails(run("train wrong"), 1, "x has 2 samples, y 3");
    write_npy("wrong/y.npy", GD_F64, GD_SHAPE(2), y);
    assert_fails(run("train wrong"), 1, "x of sample 1 has a value that is no finite number");
    write_npy("wrong/x.npy", GD_F64, GD_SHAPE(2, 1), (double[]){ 1e300, 2 });
    assert_fails(run("train wrong"), 1, "x of sample 0 has a value that is no finite number");
    write_npy("wrong/x.npy", GD_F64, GD_SHAPE(2, 1), x);
    write_npy("wrong/y.npy", GD_F64, GD_SHAPE(2), (double[]){ 1e200, -1e200 });
    assert_fails(run("train wrong"), 1, "y has numbers too large");
    write_npy("wrong/y.npy", GD_F64, GD_SHAPE(2, 0), y);
    assert_fails(run("train wrong"), 1, "y has no numbers");
    write_npy("wrong/other.npy", GD_F64, GD_SHAPE(2), y);
    assert_fails(run("train wrong/other.npy"), 1, "one array has no answers to learn");
    write_text("table.parquet", "PAR1");
    assert_fails(run("train table.parquet"), 1,
                 "is a Parquet file, which is read in Python: pandas.read_parquet(FILE).to_csv");
    write_text("table.arrow", "ARROW1");
    assert_fails(run("train table.arrow"), 1,
                 "is a file of Arrow, which is read in Python: pandas.read_feather(FILE).to_csv");
    assert_fails(run("train none.parquet"), 1, "none.parquet is not there");
    write_text("broken.npz", "PK");
    assert_fails(run("train broken.npz"), 1, "broken.npz");
    assert_false(is_there("runs/wrong"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_of_arrays_are_learnt),
        cmocka_unit_test(two_arrays_need_no_names),
        cmocka_unit_test(changed_arrays_are_not_gone_on_with),
        cmocka_unit_test(validation_is_not_learnt_from),
        cmocka_unit_test(numbers_of_arrays_are_learnt),
        cmocka_unit_test(pictures_in_arrays_are_learnt),
        cmocka_unit_test(mistakes_about_arrays_are_told),
    };
    return cmocka_run_group_tests(tests, make_rows, remove_folder);
}

#else

int main(void)
{
    return 77; /* no tool in this build */
}

#endif
