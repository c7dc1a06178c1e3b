/* tests/test_table_arrow.c: tables of the Arrow C stream interface, of a producer that counts what it is
 * given back. (Streams of pyarrow, pandas and Polars: tests/python/test_data.py.) */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <gradus/gradus.h>

#include "data/arrow.h"

enum { COLUMNS = 8, ROWS = 4 };

/* A batch of every type, given `batches` times: rows 1 and 2 of arrays of four. */
typedef struct producer {
    int batches, fails_at;   /* the call of get_next that fails */
    const char *format0;     /* instead of the first column's */
    const char *name1;       /* instead of the second's name */
    int64_t length1;         /* instead of its rows */
    bool lacks_buffer;       /* the second column */
    const uint8_t *row_bits; /* validity of whole rows */
    int schemas, arrays;     /* that have not been released */
    int given, released;
    struct ArrowSchema children[COLUMNS], dictionary, *child_list[COLUMNS];
    struct ArrowArray columns[COLUMNS], words, *column_list[COLUMNS];
} producer;

static const uint8_t valid[] = { 0xfb }; /* row 2 is missing */
static const int16_t shorts[] = { 7, -8, 9, 10 };
static const uint64_t longs[] = { 1, UINT64_MAX, 3, 4 };
static const double doubles[] = { 0, 0.1, INFINITY, 0 };
static const uint8_t booleans[] = { 0x02 };
static const int32_t offsets[] = { 0, 1, 4, 4, 5 };
static const char texts[] = "aRomz";
static const int8_t indices[] = { 0, 1, 0, 0 };
static const int32_t word_offsets[] = { 0, 3, 6 };
static const char words[] = "redtea";
static const int64_t micros[] = { 0, -500000, 86400000000, 0 };
static const int32_t days[] = { 0, 11016, -719163, 0 }; /* 2000-02-29; before the year 1 */
static const char views[4][16] = { "", "\3\0\0\0abc", "\2\0\0\0xy", "" };

static const void *buffers[COLUMNS][3] = {
    { valid, shorts },         { NULL, longs },    { NULL, doubles }, { NULL, booleans },
    { valid, offsets, texts }, { valid, indices }, { NULL, micros },  { NULL, days },
};
static const void *word_buffers[3] = { NULL, word_offsets, words };
static const void *no_buffers[3];
static const void *view_buffers[2] = { NULL, views };

static void release_schema(struct ArrowSchema *s)
{
    ((producer *)s->private_data)->schemas--;
    s->release = NULL;
}

static void release_array(struct ArrowArray *a)
{
    ((producer *)a->private_data)->arrays--;
    a->release = NULL;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    static const char *const formats[] = { "s", "L", "g", "b", "u", "c", "tsu:UTC", "tdD" };
    static const char *const names[] = { "short", "long",  "double", "boolean",
                                         "text",  "color", "time",   "day" };
    producer *p = stream->private_data;
    for (int c = 0; c < COLUMNS; c++) {
        p->children[c] = (struct ArrowSchema){ .format = formats[c], .name = names[c] };
        p->child_list[c] = &p->children[c];
    }
    p->dictionary = (struct ArrowSchema){ .format = "u" };
    p->children[5].dictionary = &p->dictionary;
    if (p->format0)
        p->children[0].format = p->format0;
    if (p->name1)
        p->children[1].name = p->name1;
    p->schemas++;
    *out = (struct ArrowSchema){ .format = "+s",
                                 .n_children = COLUMNS,
                                 .children = p->child_list,
                                 .release = release_schema,
                                 .private_data = p };
    return 0;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    producer *p = stream->private_data;
    *out = (struct ArrowArray){ 0 };
    if (p->given == p->fails_at)
        return EIO;
    if (p->given++ == p->batches)
        return 0;
    /* Offsets count together: of the batch 1, of the columns none, but for the views. */
    for (int c = 0; c < COLUMNS; c++) {
        p->columns[c] = (struct ArrowArray){
            .length = ROWS, .null_count = -1, .n_buffers = 3, .buffers = buffers[c]
        };
        p->column_list[c] = &p->columns[c];
    }
    if (p->length1)
        p->columns[1].length = p->length1;
    if (p->lacks_buffer)
        p->columns[1].buffers = no_buffers;
    p->words = (struct ArrowArray){ .length = 2, .n_buffers = 3, .buffers = word_buffers };
    p->columns[5].dictionary = &p->words;
    if (p->format0)
        p->columns[0] =
            (struct ArrowArray){ .length = ROWS, .n_buffers = 2, .buffers = view_buffers };
    p->arrays++;
    *out = (struct ArrowArray){ .length = 2,
                                .offset = 1,
                                .null_count = p->row_bits ? 1 : 0,
                                .n_buffers = 1,
                                .n_children = COLUMNS,
                                .buffers = p->row_bits ? (const void **)&p->row_bits : word_buffers,
                                .children = p->column_list,
                                .release = release_array,
                                .private_data = p };
    return 0;
}

static const char *last_error(struct ArrowArrayStream *stream)
{
    (void)stream;
    return "the disk is gone";
}

static void release_stream(struct ArrowArrayStream *stream)
{
    ((producer *)stream->private_data)->released++;
    stream->release = NULL;
}

static struct ArrowArrayStream stream_of(producer *p)
{
    return (struct ArrowArrayStream){ get_schema, get_next, last_error, release_stream, p };
}

/* All that was handed out has been given back. */
static gd_table *read_all(producer *p)
{
    struct ArrowArrayStream stream = stream_of(p);
    gd_table *t = gd_table_create_arrow(&stream);
    assert_int_equal(p->schemas, 0);
    assert_int_equal(p->arrays, 0);
    assert_int_equal(p->released, 1);
    assert_null(stream.release);
    return t;
}

#define PRODUCER(...)                             \
    {                                             \
        .batches = 1, .fails_at = -1, __VA_ARGS__ \
    }

static void cells_and_kinds_are_the_streams(void **state)
{
    (void)state;
    producer p = PRODUCER(.batches = 2);
    gd_table *t = read_all(&p);
    assert_non_null(t);
    assert_int_equal(gd_table_rows(t), 4);
    assert_int_equal(gd_table_columns(t), COLUMNS);
    static const gd_column_kind kinds[] = { GD_COLUMN_NUMBER,   GD_COLUMN_NUMBER,
                                            GD_COLUMN_NUMBER,   GD_COLUMN_BOOLEAN,
                                            GD_COLUMN_CATEGORY, GD_COLUMN_CATEGORY,
                                            GD_COLUMN_TIME,     GD_COLUMN_TIME };
    for (int c = 0; c < COLUMNS; c++)
        assert_int_equal(gd_table_column_kind(t, c), kinds[c]);
    for (int row = 0; row < 4; row += 2) {
        assert_true(gd_table_number(t, row, 0) == -8 && isnan(gd_table_number(t, row + 1, 0)));
        assert_string_equal(gd_table_text(t, row, 1), "18446744073709551615");
        assert_true(gd_table_number(t, row, 2) == 0.1 && isnan(gd_table_number(t, row + 1, 2)));
        assert_true(gd_table_number(t, row, 3) == 1 && gd_table_number(t, row + 1, 3) == 0);
        assert_string_equal(gd_table_text(t, row, 4), "Rom");
        assert_null(gd_table_text(t, row + 1, 4));
        assert_string_equal(gd_table_text(t, row, 5), "tea");
        assert_string_equal(gd_table_text(t, row, 6), "1969-12-31T23:59:59.500000000");
        assert_true(gd_table_number(t, row, 6) == -0.5);
        assert_string_equal(gd_table_text(t, row + 1, 6), "1970-01-02");
        assert_string_equal(gd_table_text(t, row, 7), "2000-02-29");
        assert_null(gd_table_text(t, row + 1, 7));
    }
    assert_int_equal(gd_table_column_missing(t, 2), 2);
    assert_int_equal(gd_table_line(t, 3), 4);
    gd_table_release(t);

    producer sparse = PRODUCER(.row_bits = (const uint8_t[]){ 0x04 }); /* rows 1 and 2: no, yes */
    t = read_all(&sparse);
    assert_non_null(t);
    assert_null(gd_table_text(t, 0, 1));
    assert_string_equal(gd_table_text(t, 1, 1), "3");
    gd_table_release(t);

    producer viewed = PRODUCER(.format0 = "vu");
    t = read_all(&viewed);
    assert_string_equal(gd_table_text(t, 0, 0), "abc");
    assert_string_equal(gd_table_text(t, 1, 0), "xy");
    gd_table_release(t);
}

static void expect(producer p, gd_status status, const char *sentence)
{
    assert_null(read_all(&p));
    assert_int_equal(gd_error_code(), status);
    if (!strstr(gd_error_message(), sentence))
        fail_msg("\"%s\" in: %s", sentence, gd_error_message());
    gd_error_clear();
}

static void errors_are_told_and_all_is_given_back(void **state)
{
    (void)state;
    expect((producer)PRODUCER(.batches = 0), GD_ERR_FORMAT, "there are no rows");
    expect((producer)PRODUCER(.fails_at = 0), GD_ERR_IO, "the disk is gone");
    expect((producer)PRODUCER(.batches = 3, .fails_at = 2), GD_ERR_IO, "the disk is gone");
    expect((producer)PRODUCER(.format0 = "+l"), GD_ERR_UNSUPPORTED,
           "column \"short\" has the type \"+l\"");
    expect((producer)PRODUCER(.name1 = "day"), GD_ERR_FORMAT, "two columns are called \"day\"");
    expect((producer)PRODUCER(.length1 = 2), GD_ERR_FORMAT,
           "column 2 of a batch of 2 rows is shorter");
    expect((producer)PRODUCER(.lacks_buffer = true), GD_ERR_FORMAT, "lacks a buffer");
    expect((producer)PRODUCER(.name1 = "\xff"), GD_ERR_FORMAT, "not UTF-8");
    assert_null(gd_table_create_arrow(NULL));
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    gd_error_clear();
    producer p = PRODUCER(.batches = 1);
    struct ArrowArrayStream stream = stream_of(&p);
    gd_table_release(gd_table_create_arrow(&stream));
    assert_null(gd_table_create_arrow(&stream)); /* it has been released */
    gd_error_clear();
}

static void memory_that_is_refused_loses_nothing(void **state)
{
    (void)state;
    bool failed = true;
    for (int64_t n = 0; failed; n++) {
        producer p = PRODUCER(.batches = 2);
        gd_fail_allocations_after(n);
        gd_table *t = read_all(&p);
        gd_fail_allocations_after(-1);
        failed = t == NULL;
        if (failed && gd_error_code() != GD_ERR_MEMORY)
            fail_msg("after %d allocations: %s", (int)n, gd_error_message());
        gd_error_clear();
        gd_table_release(t);
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_and_kinds_are_the_streams),
        cmocka_unit_test(errors_are_told_and_all_is_given_back),
        cmocka_unit_test(memory_that_is_refused_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
