/* tests/test_table.c: tables: what is read of CSV and TSV, the kinds of columns, and encoders against pandas and
 * scikit-learn (tests/goldens/make_tables.py). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#ifdef GD_HAVE_ZLIB
#include <zlib.h>
#endif

#include "goldens/tables.h"
#include "support/context.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define DATA         GD_SOURCE_DIR "/tests/data/"

static int clear_error(void **state)
{
    (void)state;
    gd_fail_allocations_after(-1);
    gd_error_clear();
    return 0;
}

static gd_table *of_text(const char *text)
{
    gd_table *t = gd_table_create(text, strlen(text));
    if (!t)
        print_error("%s\n", gd_error_message());
    assert_non_null(t);
    return t;
}

static void assert_cell(const gd_table *t, int64_t row, int64_t column, const char *text)
{
    const char *cell = gd_table_text(t, row, column);
    if (!text) {
        assert_null(cell);
        return;
    }
    assert_non_null(cell);
    assert_string_equal(cell, text);
}

/* ---- reading ---- */

/* RFC 4180, section 2, in each kind of line end: quoted separators, newlines and quotation marks. */
static void rfc_4180_is_read(void **state)
{
    (void)state;
    static const char *const ends[] = { "\n", "\r\n", "\r" };
    for (size_t i = 0; i < COUNT(ends); i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "%sname,note%s\"a, b\",\"say \"\"hi\"\"\"%s  c d  ,\"1\n2\" %s%s\"\",x",
                 i == 1 ? "\xef\xbb\xbf" : "", ends[i], ends[i], ends[i], ends[i]);
        gd_table *t = of_text(text);
        assert_int_equal(gd_table_rows(t), 3);
        assert_int_equal(gd_table_columns(t), 2);
        assert_string_equal(gd_table_column_name(t, 0), "name");
        assert_cell(t, 0, 0, "a, b");
        assert_cell(t, 0, 1, "say \"hi\"");
        assert_cell(t, 1, 0, "c d");
        assert_cell(t, 1, 1, "1\n2");
        assert_cell(t, 2, 0, NULL);
        assert_cell(t, 2, 1, "x");
        assert_int_equal(gd_table_line(t, 0), 2);
        assert_int_equal(gd_table_line(t, 1), 3);
        assert_int_equal(gd_table_line(t, 2), 6);
        assert_cell(t, 3, 0, NULL);
        assert_cell(t, 0, 2, NULL);
        gd_table_release(t);
    }
}

static void separators_and_headers_are_found_out(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *cell;
        int64_t rows, columns;
    } rows[] = {
        { "a,b\n1,2\n3,4\n", "a", "1", 2, 2 },
        { "a\tb\n1,5\t2\n", "a", "1,5", 1, 2 },
        { "a;b;c\n1,5;2;x\n2,5;2;y\n", "a", "1,5", 2, 3 },
        { "a|b\n1|2\n", "a", "1", 1, 2 },
        { "1,2\n3,4\n", "column1", "1", 2, 2 },
        { "x\ny\nx\n", "column1", "x", 3, 1 },   /* the first text recurs: no name */
        { "id,y\n1,x\n2,y\n", "id", "1", 2, 2 }, /* "y" recurs; below "id" are numbers alone */
        { "city,sex\nBern,m\nThun,f\n", "city", "Bern", 2, 2 },
        { "x,y\n1,no\n2,yes\n", "x", "1", 2, 2 },
        { ",a\n0,5\n1,6\n", "column1", "0", 2, 2 }, /* the index of pandas */
        { "# a table, of\n# numbers\n1,2\n", "column1", "1", 1, 2 },
        { "\"a,b\";c\n\"1,2\";3\n", "a,b", "1,2", 1, 2 },
        { "a,b\n1,2\n  \n\n3,4", "a", "1", 2, 2 },
        { "7\" pipe,b\n5\" pipe,1\n", "7\" pipe", "5\" pipe", 1, 2 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gd_table *t = of_text(rows[i].text);
        assert_int_equal(gd_table_columns(t), rows[i].columns);
        assert_int_equal(gd_table_rows(t), rows[i].rows);
        assert_string_equal(gd_table_column_name(t, 0), rows[i].name);
        assert_cell(t, 0, 0, rows[i].cell);
        gd_table_release(t);
    }
    static const char numbers[] = "1;2\n3;4\n";
    gd_table *t = gd_table_create(numbers, sizeof numbers - 1, .header = 1, .separator = ",");
    assert_non_null(t);
    assert_string_equal(gd_table_column_name(t, 0), "1;2");
    assert_int_equal(gd_table_find(t, "1;2"), 0);
    assert_int_equal(gd_table_find(t, "3"), -1);
    assert_int_equal(gd_table_find(t, NULL), -1);
    gd_table_release(t);
    static const char words[] = "# x\na,b\nc,d\n";
    t = gd_table_create(words, sizeof words - 1, .header = 0, .comment = NULL, .separator = ",");
    assert_null(t); /* "# x" is a row of one cell */
    expect_error(GD_ERR_FORMAT, "memory: line 2: 2 cells, where line 1 has 1");
    t = gd_table_create(words, sizeof words - 1, .header = 0);
    assert_int_equal(gd_table_rows(t), 2);
    gd_table_release(t);
}

static void kinds_of_columns_are_found_out(void **state)
{
    (void)state;
    static const struct {
        const char *cells;
        gd_column_kind kind;
        int64_t missing;
    } columns[] = {
        { "1\n-2.5\n+3e-2\n.5\n4.", GD_COLUMN_NUMBER, 0 },
        { "1\nNA\n?\nnan\nnull", GD_COLUMN_NUMBER, 4 },
        { "1\n-inf\n1e99\n2\n3", GD_COLUMN_NUMBER, 2 },
        { "1\n0\n1\n0\n1", GD_COLUMN_NUMBER, 0 },
        { "1.2.3\n1\n2\n3\n4", GD_COLUMN_CATEGORY, 0 },
        { "0x10\n1\n2\n3\n4", GD_COLUMN_CATEGORY, 0 },
        { "1e\n1\n2\n3\n4", GD_COLUMN_CATEGORY, 0 },
        { "True\nfalse\nTRUE\nTrue\nN/A", GD_COLUMN_BOOLEAN, 1 },
        { "y\nn\ny\ny\nn", GD_COLUMN_BOOLEAN, 0 },
        { "yes\nno\nmaybe\nno\nno", GD_COLUMN_CATEGORY, 0 },
        { "2024-02-29\n1970-01-01\n\"\"\n2024-02-29T23:59:60Z\n2024-02-29 01:02", GD_COLUMN_TIME,
          1 },
        { "2023-02-29\n1970-01-01\n1\n2\n3", GD_COLUMN_CATEGORY, 0 }, /* no leap year */
        { "2023-13-01\n1970-01-01\n1\n2\n3", GD_COLUMN_CATEGORY, 0 },
        { "2023-01-01T24:00\n1970-01-01\n1\n2\n3", GD_COLUMN_CATEGORY, 0 },
        { "NA\nNA\n?\nNA\nNA", GD_COLUMN_TEXT, 5 },
    };
    for (size_t i = 0; i < COUNT(columns); i++) {
        gd_table *t = gd_table_create(columns[i].cells, strlen(columns[i].cells), .header = 0,
                                      .separator = ",");
        assert_non_null(t);
        if (gd_table_column_kind(t, 0) != columns[i].kind)
            fail_msg("row %zu: %s", i, gd_column_kind_name(gd_table_column_kind(t, 0)));
        assert_int_equal(gd_table_column_missing(t, 0), columns[i].missing);
        assert_int_equal(gd_table_known_rows(t, 0, NULL), 5 - columns[i].missing);
        gd_table_release(t);
    }
    char many[4096] = "";
    for (int i = 0; i < 50; i++)
        sprintf(many + strlen(many), "text %d\n", i);
    gd_table *t = of_text(many);
    assert_int_equal(gd_table_column_kind(t, 0), GD_COLUMN_TEXT);
    assert_int_equal(gd_table_column_distinct(t, 0), gd_table_rows(t));
    gd_table_release(t);
    assert_string_equal(gd_column_kind_name(GD_COLUMN_TIME), "time");
    assert_string_equal(gd_column_kind_name(GD_COLUMN_KIND_COUNT), "?");
}

/* Python: datetime.fromisoformat("…").timestamp() of the same, with UTC where no zone stands. */
static void times_are_seconds_since_1970(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double seconds;
    } rows[] = {
        { "1970-01-01", 0 },
        { "2024-02-29", 1709164800 },
        { "1900-03-01", -2203891200.0 },
        { "0001-01-01", -62135596800.0 },
        { "9999-12-31T23:59:59Z", 253402300799.0 },
        { "2024-02-29T13:45:06.5+01:00", 1709210706.5 },
        { "2024-02-29 13:45-0530", 1709234100 },
        { "2024-02-29T13:45+05", 1709196300 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gd_table *t = gd_table_create(rows[i].text, strlen(rows[i].text), .header = 0);
        assert_non_null(t);
        assert_int_equal(gd_table_column_kind(t, 0), GD_COLUMN_TIME);
        assert_true(gd_table_number(t, 0, 0) == rows[i].seconds);
        gd_table_release(t);
    }
}

static void decimal_commas_are_read_where_asked_for(void **state)
{
    (void)state;
    static const char text[] = "a;b\n3,14;x\n-0,5;y\n";
    gd_table *t = gd_table_create(text, sizeof text - 1, .decimal_comma = true);
    assert_int_equal(gd_table_column_kind(t, 0), GD_COLUMN_NUMBER);
    assert_true(gd_table_number(t, 0, 0) == 3.14);
    assert_true(gd_table_number(t, 1, 0) == -0.5);
    assert_true(isnan(gd_table_number(t, 0, 1)));
    gd_table_release(t);
}

static void broken_tables_are_refused_with_file_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words;
    } rows[] = {
        { "", "there are no rows" },
        { "\n\n", "there are no rows" },
        { "# only remarks\n", "there are no rows" },
        { "a,b\n1,2\n3\n", "memory: line 3: 1 cells, where line 1 has 2" },
        { "a,b\n1,2\n\"3\n4,5\n6,7\n",
          "memory: line 3, column 1: the quotation mark is never closed" },
        { "a,b\n1,\"2\"x\n",
          "memory: line 2, column 2: there is text after the closing quotation mark" },
        { "a,b,a\n1,2,3\n", "memory: line 1: two columns are called \"a\"" },
        { "a,b\n1,\xe9\n", "memory: line 2: byte e9 is not UTF-8" },
        { "a,b\r\n1,2\r\n3,\xed\xa0\x80\r\n", "memory: line 3: byte ed is not UTF-8" },
        { "\xff\xfe"
          "a,b\n",
          "is it UTF-16" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_null(gd_table_create(rows[i].text, strlen(rows[i].text)));
        expect_error(GD_ERR_FORMAT, rows[i].words);
    }
    assert_null(gd_table_create("a\0b\n", 4));
    expect_error(GD_ERR_FORMAT, "byte 00");
    assert_null(gd_table_create("a,b\n1,2\n", 8, .max_bytes = 7));
    expect_error(GD_ERR_FORMAT, "more than the 7 bytes");
    assert_null(gd_table_create("a,b\n", 4, .header = 1));
    expect_error(GD_ERR_FORMAT, "and no rows");
    gd_table *names = gd_table_create("a,b\n", 4); /* a row, for all that is known */
    assert_null(gd_table_encoder_create(names, .target = "a"));
    expect_error(GD_ERR_INVALID, "no column \"a\": it has names of columns, and no rows");
    gd_table_release(names);
    assert_null(gd_table_create("a,b\n", 4, .separator = "::"));
    expect_error(GD_ERR_INVALID, "one character");
    assert_null(gd_table_create(NULL, 0));
    expect_error(GD_ERR_INVALID, "NULL");
    assert_null(gd_table_load("/nowhere/table.csv"));
    expect_error(GD_ERR_IO, "/nowhere/table.csv");
    char *wide = malloc(20001);
    assert_non_null(wide);
    memset(wide, ',', 20000);
    assert_null(gd_table_create(wide, 20000));
    expect_error(GD_ERR_FORMAT, "line 1 has more than 16384 cells");
    free(wide);
    assert_int_equal(gd_table_rows(NULL), 0);
    gd_table_release(NULL);
}

#ifdef GD_HAVE_ZLIB
static void compressed_tables_are_the_same(void **state)
{
    (void)state;
    char path[] = "/tmp/gradus-table-XXXXXX.csv.gz";
    int fd = mkstemps(path, 7);
    assert_true(fd >= 0);
    gzFile file = gzdopen(fd, "wb");
    static const char text[] = "a,b\n1,x\n2,y\n";
    assert_int_equal(gzwrite(file, text, sizeof text - 1), sizeof text - 1);
    gzclose(file);
    path[strlen(path) - 3] = '\0'; /* the name without .gz finds it, too */
    gd_table *t = gd_table_load(path);
    path[strlen(path)] = '.';
    unlink(path);
    assert_non_null(t);
    assert_int_equal(gd_table_rows(t), 2);
    assert_cell(t, 1, 1, "y");
    gd_table_release(t);
}
#endif

static void a_kind_can_be_chosen(void **state)
{
    (void)state;
    gd_table *t = of_text("code,b\n8001,x\n3000,2\n8001,3\n");
    assert_int_equal(gd_table_column_kind(t, 0), GD_COLUMN_NUMBER);
    assert_int_equal(gd_table_set_column_kind(t, 0, GD_COLUMN_CATEGORY), GD_OK);
    assert_int_equal(gd_table_column_kind(t, 0), GD_COLUMN_CATEGORY);
    assert_int_equal(gd_table_column_distinct(t, 0), 2);
    gd_table_set_column_kind(t, 1, GD_COLUMN_NUMBER);
    expect_error(GD_ERR_FORMAT, "memory: line 2, column \"b\": \"x\" is not a number");
    gd_table_set_column_kind(t, 2, GD_COLUMN_NUMBER);
    expect_error(GD_ERR_INVALID, "gd_table_set_column_kind");
    gd_table_release(t);
}

/* ---- encoders ---- */

static gd_table *load(const char *file)
{
    char path[512];
    snprintf(path, sizeof path, DATA "%s", file);
    gd_table *t = gd_table_load(path);
    if (!t)
        print_error("%s\n", gd_error_message());
    assert_non_null(t);
    return t;
}

static void assert_near(const float *values, const double *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fabs((double)values[i] - expected[i]) > 2e-7 * (1.0 + fabs(expected[i])))
            fail_msg("value %zu: %.9g, expected %.9g", i, (double)values[i], expected[i]);
}

static void features_are_those_of_scikit_learn(void **state)
{
    (void)state;
    static const struct {
        const char *file, *target;
        const double *rows;
        int64_t features, classes, count;
    } sets[] = {
        { "iris.csv", "species", golden_iris_rows, 4, 3, 150 },
        { "wine.csv", "target", golden_wine_rows, 13, 3, 178 },
        { "diabetes.csv", "target", golden_diabetes_rows, 10, 0, 442 },
    };
    for (size_t i = 0; i < COUNT(sets); i++) {
        gd_table *t = load(sets[i].file);
        assert_int_equal(gd_table_rows(t), sets[i].count);
        gd_table_encoder *e = gd_table_encoder_create(t, .target = sets[i].target);
        assert_non_null(e);
        assert_int_equal(gd_table_encoder_features(e), sets[i].features);
        assert_int_equal(gd_table_encoder_classes(e), sets[i].classes);
        const int64_t rows[] = { 0, 17, sets[i].count - 1 };
        float x[3 * 13];
        assert_int_equal(gd_table_encode(e, t, 3, rows, x, NULL), GD_OK);
        assert_near(x, sets[i].rows, 3 * (size_t)sets[i].features);
        gd_table_encoder_release(e);
        gd_table_release(t);
    }
}

static void a_number_as_target_is_standardised_and_decoded(void **state)
{
    (void)state;
    gd_table *t = load("diabetes.csv");
    gd_table_encoder *e = gd_table_encoder_create(t, .target = "target");
    float y[442];
    assert_int_equal(gd_table_encode(e, t, 442, NULL, NULL, y), GD_OK);
    for (int64_t i = 0; i < 442; i++) {
        double truth = gd_table_number(t, i, gd_table_find(t, "target"));
        double expected = (truth - golden_diabetes_target[0]) / golden_diabetes_target[1];
        assert_true(fabs((double)y[i] - expected) < 1e-6);
        assert_true(fabs(gd_table_encoder_decode(e, (double)y[i]) - truth) < 1e-4);
    }
    gd_table_encoder_release(e);
    gd_table_release(t);
}

/* Numbers, categories with "other", missing cells, booleans and dates; statistics of the first 60 rows. */
static void all_kinds_of_columns_are_those_of_pandas_and_scikit_learn(void **state)
{
    (void)state;
    gd_table *t = load("mixed.csv");
    assert_int_equal(gd_table_column_missing(t, gd_table_find(t, "age")),
                     (int64_t)golden_mixed_missing[0]);
    assert_int_equal(gd_table_column_missing(t, gd_table_find(t, "city")),
                     (int64_t)golden_mixed_missing[1]);
    int64_t training[60], rows[20];
    for (int i = 0; i < 60; i++)
        training[i] = i;
    for (int i = 0; i < 20; i++)
        rows[i] = i < 10 ? i : 60 + i;
    const char *const ignore[] = { "id" };
    gd_table_encoder *e =
        gd_table_encoder_create(t, .target = "income", .ignore_count = 1, .ignore = ignore,
                                .max_categories = 3, .row_count = 60, .rows = training);
    assert_non_null(e);
    static const char *const names[] = { "age",
                                         "age missing",
                                         NULL,
                                         NULL,
                                         NULL,
                                         "city other",
                                         "city missing",
                                         "member",
                                         "joined",
                                         "joined year sin",
                                         "joined year cos",
                                         "joined week sin",
                                         "joined week cos" };
    assert_int_equal(gd_table_encoder_features(e), COUNT(names));
    for (size_t i = 0; i < COUNT(names); i++) {
        char name[64], city[64];
        size_t length = gd_table_encoder_format_feature(e, (int64_t)i, name, sizeof name);
        assert_int_equal(length, strlen(name));
        if (!names[i])
            snprintf(city, sizeof city, "city=%s", golden_mixed_cities[i - 2]);
        assert_string_equal(name, names[i] ? names[i] : city);
    }
    char none[8] = "x";
    assert_int_equal(gd_table_encoder_format_feature(e, COUNT(names), none, sizeof none), 0);
    assert_string_equal(none, "");
    float x[20 * COUNT(names)];
    assert_int_equal(gd_table_encode(e, t, 20, rows, x, NULL), GD_OK);
    assert_near(x, golden_mixed_rows, COUNT(x));
    gd_table_encoder_release(e);
    gd_table_release(t);
}

static void the_target_decides_the_task(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        gd_task task;
        int64_t classes;
        const char *first, *last;
    } rows[] = {
        { "x,y\n1,b\n2,a\n3,b\n", GD_TASK_DEFAULT, 2, "a", "b" },
        { "x,y\n1,True\n2,False\n3,True\n", GD_TASK_DEFAULT, 2, "False", "True" },
        { "x,y\n1,10\n2,9\n3,9.0\n", GD_TASK_DEFAULT, 2, "9", "10" },
        { "x,y\n1,1.5\n2,2\n3,1\n", GD_TASK_DEFAULT, 0, NULL, NULL },
        { "x,y\n1,1.5\n2,-2\n3,1\n", GD_TASK_CLASSIFICATION, 3, "-2", "1.5" },
        { "x,y\n1,10\n2,9\n3,9\n", GD_TASK_REGRESSION, 0, NULL, NULL },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gd_table *t = of_text(rows[i].text);
        gd_table_encoder *e = gd_table_encoder_create(t, .target = "y", .task = rows[i].task);
        assert_non_null(e);
        assert_int_equal(gd_table_encoder_classes(e), rows[i].classes);
        assert_string_equal(gd_table_encoder_target(e), "y");
        int64_t classes[3];
        float x[3];
        if (rows[i].classes) {
            assert_string_equal(gd_table_encoder_class_name(e, 0), rows[i].first);
            assert_string_equal(gd_table_encoder_class_name(e, rows[i].classes - 1), rows[i].last);
            assert_int_equal(gd_table_encode(e, t, 3, NULL, x, classes), GD_OK);
            assert_int_equal(classes[0], i == 4 ? 2 : 1);
            assert_int_equal(classes[1], 0);
        }
        assert_null(gd_table_encoder_class_name(e, rows[i].classes));
        gd_table_encoder_release(e);
        gd_table_release(t);
    }
}

static void targets_and_columns_that_cannot_be_are_refused(void **state)
{
    (void)state;
    gd_table *t = of_text("price,size,when\n1.5,1,2024-01-01\n2.5,2,2024-01-02\nNA,3,2024-01-03\n");
    assert_null(gd_table_encoder_create(t, .target = "prize"));
    expect_error(GD_ERR_INVALID, "has no column \"prize\": did you mean \"price\"?");
    const char *const ignore[] = { "sizes" };
    assert_null(gd_table_encoder_create(t, .target = "price", .ignore_count = 1, .ignore = ignore));
    expect_error(GD_ERR_INVALID, "has no column \"sizes\" to ignore: did you mean \"size\"?");
    assert_null(gd_table_encoder_create(t, .target = "when"));
    expect_error(GD_ERR_FORMAT, "it has times");
    const char *const both[] = { "size", "when" };
    assert_null(gd_table_encoder_create(t, .target = "price", .ignore_count = 2, .ignore = both));
    expect_error(GD_ERR_FORMAT, "no column is left");
    const int64_t last[] = { 2 }, none[] = { 3 };
    assert_null(gd_table_encoder_create(t, .target = "price", .row_count = 1, .rows = last));
    expect_error(GD_ERR_FORMAT, "the target is missing in all of them");
    assert_null(gd_table_encoder_create(t, .row_count = 1, .rows = none));
    expect_error(GD_ERR_SHAPE, "row 3 of 3");
    assert_null(gd_table_encoder_create(NULL));
    expect_error(GD_ERR_INVALID, "NULL");
    gd_table_release(t);
    t = of_text("a,b\n1,x\n2,y\n3,x\n");
    assert_null(gd_table_encoder_create(t, .target = "b", .task = GD_TASK_REGRESSION));
    expect_error(GD_ERR_FORMAT, "memory: line 2, column \"b\": \"x\" is not a number");
    gd_table_release(t);
    t = of_text("a,b\n1,x\n2,x\n3,x\n");
    assert_null(gd_table_encoder_create(t, .target = "b"));
    expect_error(GD_ERR_FORMAT, "one value only");
    gd_table_release(t);
}

static void other_tables_are_encoded_by_name_or_refused(void **state)
{
    (void)state;
    gd_table *t = of_text("age,city,y\n1,Bern,a\n3,Thun,b\n");
    gd_table_encoder *e = gd_table_encoder_create(t, .target = "y");
    assert_int_equal(gd_table_encoder_features(e), 3);
    float x[9];
    int64_t y;
    /* Other order, further columns, no target, an unknown city and a missing number. */
    gd_table *other = of_text("more,city,age\n7,Zug,NA\n8,Thun,5\n");
    const int64_t rows[] = { 0, 1 };
    assert_int_equal(gd_table_encode(e, other, 1, rows, x, NULL), GD_OK);
    assert_true(x[0] == 0.0f && x[1] == 0.0f && x[2] == 0.0f);
    assert_int_equal(gd_table_encode(e, other, 1, rows + 1, x, NULL), GD_OK);
    assert_true(x[0] == 3.0f && x[1] == 0.0f && x[2] == 1.0f);
    gd_table_encode(e, other, 1, rows, x, &y);
    expect_error(GD_ERR_FORMAT, "there is no column \"y\"");
    gd_table_encode(e, other, 3, NULL, x, NULL);
    expect_error(GD_ERR_SHAPE, "row 2 of 2");
    gd_table_release(other);
    other = of_text("Age,city\n1,Bern\n");
    gd_table_encode(e, other, 1, NULL, x, NULL);
    expect_error(GD_ERR_FORMAT, "there is no column \"age\": did you mean \"Age\"?");
    gd_table_release(other);
    other = of_text("age,city,y\nold,Bern,c\n2,Bern,c\n3,Bern,NA\n");
    gd_table_encode(e, other, 1, NULL, x, NULL);
    expect_error(GD_ERR_FORMAT, "memory: line 2, column \"age\": \"old\" is not a number");
    gd_table_encode(e, other, 1, rows + 1, x, &y);
    expect_error(GD_ERR_FORMAT, "memory: line 3, column \"y\": \"c\" is none of the 2 classes");
    const int64_t third[] = { 2 };
    gd_table_encode(e, other, 1, third, x, &y);
    expect_error(GD_ERR_FORMAT, "memory: line 4, column \"y\": the target is missing");
    gd_table_release(other);
    gd_table_encoder_release(e);
    gd_table_release(t);
}

static void a_table_is_a_data_set(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu", .threads = 1);
    gd_table *t = load("iris.csv");
    gd_table_encoder *e = gd_table_encoder_create(t, .target = "species");
    const int64_t rows[] = { 0, 149 };
    gd_dataset *d = gd_table_dataset(gd, e, t, 2, rows);
    assert_non_null(d);
    gd_table_encoder_release(e);
    gd_table_release(t);
    assert_int_equal(gd_dataset_count(d), 2);
    const gd_field *y = gd_dataset_field(d, gd_dataset_field_find(d, "y"));
    assert_int_equal(y->classes, 3);
    assert_string_equal(y->class_names[2], "virginica");
    gd_tensor *tensors[2];
    float x[8];
    int64_t labels[2];
    assert_int_equal(gd_dataset_get(d, 0, 2, tensors), GD_OK);
    assert_int_equal(gd_tensor_read(tensors[0], x, sizeof x), GD_OK);
    assert_int_equal(gd_tensor_read(tensors[1], labels, sizeof labels), GD_OK);
    assert_near(x, golden_iris_rows, 4);
    assert_int_equal(labels[0], 0);
    assert_int_equal(labels[1], 2);
    t = load("diabetes.csv");
    e = gd_table_encoder_create(t, .target = "target");
    d = gd_table_dataset(gd, e, t, 442, NULL);
    assert_int_equal(gd_dataset_field(d, 1)->shape.rank, 1);
    assert_int_equal(gd_dataset_field(d, 1)->dtype, GD_F32);
    gd_table_encoder_release(e);
    e = gd_table_encoder_create(t); /* no target: x alone */
    assert_int_equal(gd_dataset_field_count(gd_table_dataset(gd, e, t, 3, NULL)), 1);
    assert_null(gd_table_dataset(gd, e, t, 0, NULL));
    expect_error(GD_ERR_INVALID, "no rows");
    gd_table_encoder_release(e);
    gd_table_release(t);
    gd_close(gd);
}

static void useless_columns_are_left_out(void **state)
{
    (void)state;
    gd_table *t = of_text("same,empty,third,x,word\n0.1,NA,5,1,k\n0.1,,5,2,k\n0.1,?,NA,4,k\n");
    gd_table_encoder *e = gd_table_encoder_create(t);
    char name[32];
    assert_int_equal(gd_table_encoder_features(e),
                     3); /* third: its value, and that it is missing */
    gd_table_encoder_format_feature(e, 1, name, sizeof name);
    assert_string_equal(name, "third missing");
    assert_null(gd_table_encoder_target(e));
    float x[9];
    assert_int_equal(gd_table_encode(e, t, 3, NULL, x, NULL), GD_OK);
    assert_true(x[0] == 0.0f && x[1] == 0.0f && x[6] == 0.0f && x[7] == 1.0f);
    gd_table_encoder_release(e);
    gd_table_release(t);
}

/* ---- JSON ---- */

static void an_encoder_read_back_gives_the_same_bits(void **state)
{
    (void)state;
    need_json();
    static const struct {
        const char *file, *target;
    } sets[] = { { "iris.csv", "species" },
                 { "diabetes.csv", "target" },
                 { "mixed.csv", "income" },
                 { "mixed.csv", "member" } };
    for (size_t i = 0; i < COUNT(sets); i++) {
        gd_table *t = load(sets[i].file);
        gd_table_encoder *e = gd_table_encoder_create(t, .target = sets[i].target);
        char json[8192], again[8192];
        size_t length = gd_table_encoder_format_json(e, json, sizeof json);
        assert_true(length > 0 && length < sizeof json);
        assert_int_equal(gd_table_encoder_format_json(e, NULL, 0), length);
        gd_table_encoder *back = gd_table_encoder_create_json(json);
        if (!back)
            print_error("%s\n", gd_error_message());
        assert_non_null(back);
        assert_int_equal(gd_table_encoder_format_json(back, again, sizeof again), length);
        assert_string_equal(json, again);
        size_t features = (size_t)gd_table_encoder_features(e), rows = (size_t)gd_table_rows(t);
        assert_int_equal(gd_table_encoder_features(back), features);
        float *x = malloc(2 * rows * features * sizeof *x);
        int64_t y[2][442];
        assert_non_null(x);
        memset(y, 0, sizeof y);
        assert_int_equal(gd_table_encode(e, t, (int64_t)rows, NULL, x, y[0]), GD_OK);
        assert_int_equal(gd_table_encode(back, t, (int64_t)rows, NULL, x + rows * features, y[1]),
                         GD_OK);
        assert_memory_equal(x, x + rows * features, rows * features * sizeof *x);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_true(gd_table_encoder_decode(e, 0.7) == gd_table_encoder_decode(back, 0.7));
        free(x);
        gd_table_encoder_release(back);
        gd_table_encoder_release(e);
        gd_table_release(t);
    }
}

static void broken_encoders_are_refused(void **state)
{
    (void)state;
    need_json();
#define COLUMN "{\"name\": \"a\", \"kind\": \"number\", \"mean\": 1, \"deviation\": 2}"
    static const struct {
        const char *json, *words;
    } rows[] = {
        { "", "not JSON" },
        { "[]", "no list of \"columns\"" },
        { "{\"columns\": []}", "no list of \"columns\"" },
        { "{\"columns\": [" COLUMN "], \"tarket\": 1}",
          "there is no key \"tarket\": did you mean \"target\"?" },
        { "{\"columns\": [{\"name\": \"a\"}]}", "column 0: \"kind\" must be" },
        { "{\"columns\": [{\"name\": \"a\", \"kind\": \"text\"}]}", "column 0: \"kind\" must be" },
        { "{\"columns\": [{\"name\": \"a\", \"kind\": \"number\", \"mean\": 1, \"deviation\": 0}]}",
          "\"deviation\" must be a number above 0" },
        { "{\"columns\": [{\"name\": \"a\", \"kind\": \"category\", \"categories\": [\"x\", "
          "\"x\"]}]}",
          "\"categories\" must be a list of different strings" },
        { "{\"columns\": [{\"name\": \"a\", \"kind\": \"time\", \"mean\": 1, \"deviation\": 1, "
          "\"cycles\": "
          "[\"moon\"]}]}",
          "\"cycles\" must be" },
        { "{\"columns\": [" COLUMN
          "], \"target\": {\"name\": \"y\", \"kind\": \"category\", \"classes\": []}}",
          "the encoder's target: \"classes\" must be" },
        { "{\"columns\": [" COLUMN ", 3]}", "the encoder's column must be an object" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_null(gd_table_encoder_create_json(rows[i].json));
        expect_error(GD_ERR_FORMAT, rows[i].words);
    }
    gd_table_encoder *e = gd_table_encoder_create_json("{\"columns\": [" COLUMN "]}");
    assert_int_equal(gd_table_encoder_features(e), 1);
    gd_table_encoder_release(e);
    assert_null(gd_table_encoder_create_json(NULL));
    expect_error(GD_ERR_INVALID, "NULL");
}

/* Memory that runs out anywhere is an error, and nothing is lost or used again. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char text[] = "n,c,y,t\n1,x,a,2024-01-01\n2,y,b,2024-01-02\nNA,x,a,2024-01-03\n";
    for (int64_t allocations = 0;; allocations++) {
        gd_fail_allocations_after(allocations);
        gd_table *t = gd_table_create(text, sizeof text - 1);
        gd_table_encoder *e = t ? gd_table_encoder_create(t, .target = "y") : NULL;
        float x[64];
        bool done = e && gd_table_encode(e, t, 3, NULL, x, NULL) == GD_OK;
        gd_fail_allocations_after(-1);
        if (!done)
            assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
        gd_table_encoder_release(e);
        gd_table_release(t);
        gd_error_clear();
        if (done) {
            assert_true(allocations > 20);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(rfc_4180_is_read, clear_error),
        cmocka_unit_test_setup(separators_and_headers_are_found_out, clear_error),
        cmocka_unit_test_setup(kinds_of_columns_are_found_out, clear_error),
        cmocka_unit_test_setup(times_are_seconds_since_1970, clear_error),
        cmocka_unit_test_setup(decimal_commas_are_read_where_asked_for, clear_error),
        cmocka_unit_test_setup(broken_tables_are_refused_with_file_line_and_column, clear_error),
#ifdef GD_HAVE_ZLIB
        cmocka_unit_test_setup(compressed_tables_are_the_same, clear_error),
#endif
        cmocka_unit_test_setup(a_kind_can_be_chosen, clear_error),
        cmocka_unit_test_setup(features_are_those_of_scikit_learn, clear_error),
        cmocka_unit_test_setup(a_number_as_target_is_standardised_and_decoded, clear_error),
        cmocka_unit_test_setup(all_kinds_of_columns_are_those_of_pandas_and_scikit_learn,
                               clear_error),
        cmocka_unit_test_setup(the_target_decides_the_task, clear_error),
        cmocka_unit_test_setup(targets_and_columns_that_cannot_be_are_refused, clear_error),
        cmocka_unit_test_setup(other_tables_are_encoded_by_name_or_refused, clear_error),
        cmocka_unit_test_setup(a_table_is_a_data_set, clear_error),
        cmocka_unit_test_setup(useless_columns_are_left_out, clear_error),
        cmocka_unit_test_setup(an_encoder_read_back_gives_the_same_bits, clear_error),
        cmocka_unit_test_setup(broken_encoders_are_refused, clear_error),
        cmocka_unit_test_setup(every_allocation_may_fail, clear_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
