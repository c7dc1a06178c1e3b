/* data/table.c: tables: loading, the kinds of their columns, access. Start at gd_table_load_with();
 * the text is taken apart in data/table_read.c. */
#include "data/table.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "io/stream.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[GD_COLUMN_KIND_COUNT] = { "text", "number", "boolean",
                                                              "category", "time" };

const char *gd_column_kind_name(gd_column_kind kind)
{
    return (unsigned)kind < GD_COLUMN_KIND_COUNT ? kind_names[kind] : "?";
}

/* ---- kinds of columns ---- */

/* The first cell that is not of the kind, or -1. */
static int64_t first_other(const gd_table *t, int64_t column, gd_column_kind kind)
{
    double value;
    for (int64_t row = 0; row < t->rows; row++)
        if (!gd_cell_value(t, gd_table_text(t, row, column), kind, &value))
            return row;
    return -1;
}

static gd_status count_distinct(gd_table *t, int64_t column)
{
    gd_categories texts = { 0 };
    gd_status status = GD_OK;
    t->column[column].missing = 0;
    for (int64_t row = 0; status == GD_OK && row < t->rows; row++) {
        const char *text = gd_table_text(t, row, column);
        if (!text)
            t->column[column].missing++;
        else if (texts.count <= GD_TABLE_MAX_CATEGORIES)
            status = gd_categories_add(&texts, text);
    }
    t->column[column].distinct = texts.count;
    gd_categories_free(&texts);
    return status;
}

/* A category, if its texts recur. */
static gd_column_kind kind_of_texts(const gd_table *t, int64_t column)
{
    enum { FEW = 20 };
    const gd_table_column *c = &t->column[column];
    int64_t known = t->rows - c->missing;
    bool recur =
        c->distinct <= FEW || (c->distinct <= GD_TABLE_MAX_CATEGORIES && c->distinct <= known / 2);
    return known > 0 && recur ? GD_COLUMN_CATEGORY : GD_COLUMN_TEXT;
}

/* A number, boolean or time if all its cells are that. */
static gd_column_kind find_kind(const gd_table *t, int64_t column)
{
    static const gd_column_kind kinds[] = { GD_COLUMN_NUMBER, GD_COLUMN_BOOLEAN, GD_COLUMN_TIME };
    const gd_table_column *c = &t->column[column];
    int64_t known = t->rows - c->missing;
    for (size_t i = 0; known > 0 && i < sizeof kinds / sizeof *kinds; i++)
        if (first_other(t, column, kinds[i]) < 0)
            return kinds[i];
    return kind_of_texts(t, column);
}

/* Cells that are infinite count as missing in a column of numbers. */
static int64_t count_missing(const gd_table *t, int64_t column)
{
    int64_t missing = 0;
    for (int64_t row = 0; row < t->rows; row++)
        missing += isnan(gd_table_number(t, row, column));
    return missing;
}

static gd_status find_kinds(gd_table *t)
{
    gd_status status = GD_OK;
    for (int64_t c = 0; status == GD_OK && c < t->columns; c++) {
        status = count_distinct(t, c);
        t->column[c].kind = find_kind(t, c);
        if (t->column[c].kind == GD_COLUMN_NUMBER)
            t->column[c].missing = count_missing(t, c);
    }
    return status;
}

gd_status gd_table_take_kinds(gd_table *t)
{
    gd_status status = GD_OK;
    for (int64_t i = 0; status == GD_OK && i < t->columns; i++) {
        gd_table_column *c = &t->column[i];
        status = count_distinct(t, i);
        if (c->kind == GD_COLUMN_NUMBER)
            c->missing = count_missing(t, i);
        else if (c->kind == GD_COLUMN_CATEGORY)
            c->kind = c->missing < t->rows && first_other(t, i, GD_COLUMN_TIME) < 0
                          ? GD_COLUMN_TIME
                          : kind_of_texts(t, i);
    }
    return status;
}

gd_status gd_table_set_column_kind(gd_table *t, int64_t column, gd_column_kind kind)
{
    if (!t || column < 0 || column >= t->columns || (unsigned)kind >= GD_COLUMN_KIND_COUNT)
        return gd_fail(GD_ERR_INVALID, "gd_table_set_column_kind: no table, column or kind");
    gd_table_column *c = &t->column[column];
    int64_t other = first_other(t, column, kind);
    if (other >= 0) {
        char problem[128];
        snprintf(problem, sizeof problem, "\"%.64s\" is not a %s", gd_table_text(t, other, column),
                 gd_column_kind_name(kind));
        return gd_cell_fail(t, other, column, problem);
    }
    if (kind == GD_COLUMN_CATEGORY && c->distinct > GD_TABLE_MAX_CATEGORIES)
        return gd_fail(GD_ERR_FORMAT, "%s: column \"%s\" has more than %d different texts", t->name,
                       gd_table_column_name(t, column), GD_TABLE_MAX_CATEGORIES);
    gd_status status = count_distinct(t, column);
    c->kind = kind;
    if (kind == GD_COLUMN_NUMBER)
        c->missing = count_missing(t, column);
    return status;
}

/* ---- reading ---- */

/* All of a stream, with a 0 byte after it. */
static gd_status read_all(gd_stream *stream, size_t limit, char **text, size_t *size)
{
    size_t capacity = 0, got = 1;
    gd_status status = GD_OK;
    while (status == GD_OK && got > 0) {
        if (!gd_grow((void **)text, &capacity, *size + ((size_t)1 << 16) + 1, 1))
            return GD_ERR_MEMORY;
        size_t room = capacity - *size - 1;
        status = gd_stream_read(stream, *text + *size, room, &got);
        *size += got;
        if (status == GD_OK && *size > limit)
            return gd_fail(GD_ERR_FORMAT, "%s: more than the %zu bytes of max_bytes",
                           gd_stream_name(stream), limit);
    }
    (*text)[*size] = '\0';
    return status;
}

static bool is_one_character(const char *text)
{
    return !text || (strlen(text) == 1 && !strchr("\"\r\n", text[0]));
}

static gd_table *read_table(const char *who, gd_stream *stream, const gd_table_options *o)
{
    if (!is_one_character(o->separator))
        return gd_fail_null(GD_ERR_INVALID,
                            "%s: the separator is one character, no quotation mark and no end of "
                            "a line",
                            who);
    gd_table *table = gd_alloc_zero(1, sizeof *table);
    char *text = NULL;
    size_t size = 0;
    gd_status status = table ? GD_OK : GD_ERR_MEMORY;
    if (table && !(table->name = gd_strdup(gd_stream_name(stream))))
        status = GD_ERR_MEMORY;
    if (status == GD_OK)
        status = read_all(stream, o->max_bytes, &text, &size);
    if (status == GD_OK)
        status = gd_table_parse(table, text, size, o);
    else
        gd_free(text);
    if (status == GD_OK)
        status = find_kinds(table);
    if (status == GD_OK)
        return table;
    gd_table_release(table);
    return NULL;
}

gd_table *gd_table_load_with(const char *path, const gd_table_options *options)
{
    gd_table_options o = { GD_TABLE_DEFAULTS };
    gd_stream *stream;
    if (!gd_options_read("gd_table_load", &o, sizeof o, options))
        return NULL;
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_table_load: the path is NULL");
    if (gd_stream_open(path, &stream) != GD_OK)
        return NULL;
    gd_table *table = read_table("gd_table_load", stream, &o);
    gd_stream_close(stream);
    return table;
}

gd_table *gd_table_create_with(const char *text, size_t size, const gd_table_options *options)
{
    gd_table_options o = { GD_TABLE_DEFAULTS };
    gd_stream *stream;
    if (!gd_options_read("gd_table_create", &o, sizeof o, options))
        return NULL;
    if (!text)
        return gd_fail_null(GD_ERR_INVALID, "gd_table_create: the text is NULL");
    if (gd_stream_open_memory("memory", text, size, &stream) != GD_OK)
        return NULL;
    gd_table *table = read_table("gd_table_create", stream, &o);
    gd_stream_close(stream);
    return table;
}

void gd_table_release(gd_table *t)
{
    if (!t)
        return;
    gd_free(t->name);
    gd_free(t->text);
    gd_free(t->cells);
    gd_free(t->lines);
    gd_free(t->column);
    gd_free(t);
}

/* ---- access ---- */

static bool has_column(const gd_table *t, int64_t column)
{
    return t && column >= 0 && column < t->columns;
}

int64_t gd_table_rows(const gd_table *t)
{
    return t ? t->rows : 0;
}

int64_t gd_table_columns(const gd_table *t)
{
    return t ? t->columns : 0;
}

const char *gd_table_column_name(const gd_table *t, int64_t column)
{
    return has_column(t, column) ? t->text + t->column[column].name : NULL;
}

int64_t gd_table_find(const gd_table *t, const char *name)
{
    for (int64_t c = 0; name && t && c < t->columns; c++)
        if (strcmp(gd_table_column_name(t, c), name) == 0)
            return c;
    return -1;
}

gd_column_kind gd_table_column_kind(const gd_table *t, int64_t column)
{
    return has_column(t, column) ? t->column[column].kind : GD_COLUMN_TEXT;
}

int64_t gd_table_column_missing(const gd_table *t, int64_t column)
{
    return has_column(t, column) ? t->column[column].missing : 0;
}

int64_t gd_table_column_distinct(const gd_table *t, int64_t column)
{
    return has_column(t, column) ? t->column[column].distinct : 0;
}

const char *gd_table_text(const gd_table *t, int64_t row, int64_t column)
{
    if (!has_column(t, column) || row < 0 || row >= t->rows)
        return NULL;
    size_t cell = t->cells[row * t->columns + column];
    return cell == GD_CELL_MISSING ? NULL : t->text + cell;
}

double gd_table_number(const gd_table *t, int64_t row, int64_t column)
{
    double value = NAN;
    const char *text = gd_table_text(t, row, column);
    if (text && !gd_cell_value(t, text, t->column[column].kind, &value))
        value = NAN;
    return value;
}

int64_t gd_table_line(const gd_table *t, int64_t row)
{
    return t && row >= 0 && row < t->rows ? t->lines[row] : 0;
}

int64_t gd_table_known_rows(const gd_table *t, int64_t column, int64_t *rows)
{
    if (!has_column(t, column))
        return 0;
    bool number = t->column[column].kind == GD_COLUMN_NUMBER;
    int64_t known = 0;
    for (int64_t row = 0; row < t->rows; row++) {
        if (!gd_table_text(t, row, column) || (number && isnan(gd_table_number(t, row, column))))
            continue;
        if (rows)
            rows[known] = row;
        known++;
    }
    return known;
}
