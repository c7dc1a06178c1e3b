/* data/table_arrow.c: tables of the Arrow C stream interface, from Parquet files and the tables of other
 * libraries. Start at gd_table_create_arrow(). A cell is kept as text, as one of a file is, so that
 * encoders and whatever else takes tables need to know nothing of Arrow; its column is of the kind
 * that the stream says. */
#include "data/table.h"

#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/arrow.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A table whose cells are being added. */
typedef struct builder {
    gd_table *table;
    size_t size, capacity; /* of the text */
    size_t cell_capacity, line_capacity;
} builder;

/* ---- types: the format strings of the specification ---- */

static bool is_integer(const char *format)
{
    return format[0] && strchr("cCsSiIlL", format[0]) && !format[1];
}

static bool is_float(const char *format)
{
    return format[0] && strchr("efg", format[0]) && !format[1];
}

static bool is_string(const char *format)
{
    return strcmp(format, "u") == 0 || strcmp(format, "U") == 0 || strcmp(format, "vu") == 0;
}

/* Dates, and timestamps with a zone or without. */
static bool is_time(const char *format)
{
    return strcmp(format, "tdD") == 0 || strcmp(format, "tdm") == 0 ||
           (strncmp(format, "ts", 2) == 0 && format[2] && strchr("smun", format[2]));
}

/* Of 128 bits: "d:19,10", digits and how many of them are behind the point. */
static bool is_decimal(const char *format)
{
    const char *comma = strchr(format, ',');
    return strncmp(format, "d:", 2) == 0 && comma && !strchr(comma + 1, ',');
}

/* GD_COLUMN_KIND_COUNT: a type that tables do not have. */
static gd_column_kind kind_of(const struct ArrowSchema *s)
{
    const char *format = s->format;
    if (!format)
        return GD_COLUMN_KIND_COUNT;
    if (s->dictionary)
        return is_integer(format) ? kind_of(s->dictionary) : GD_COLUMN_KIND_COUNT;
    if (is_integer(format) || is_float(format) || is_decimal(format))
        return GD_COLUMN_NUMBER;
    if (strcmp(format, "b") == 0)
        return GD_COLUMN_BOOLEAN;
    if (is_string(format))
        return GD_COLUMN_CATEGORY;
    if (is_time(format))
        return GD_COLUMN_TIME;
    return strcmp(format, "n") == 0 ? GD_COLUMN_TEXT : GD_COLUMN_KIND_COUNT;
}

/* ---- text of the cells ---- */

static gd_status put(builder *b, const char *text, size_t length, size_t *at)
{
    if (!gd_grow((void **)&b->table->text, &b->capacity, b->size + length + 1, 1))
        return GD_ERR_MEMORY;
    if (length > 0)
        memcpy(b->table->text + b->size, text, length);
    b->table->text[b->size + length] = '\0';
    *at = b->size;
    b->size += length + 1;
    return GD_OK;
}

static bool bit(const void *bits, int64_t k)
{
    return ((const uint8_t *)bits)[k / 8] >> (k % 8) & 1;
}

static bool is_missing(const struct ArrowSchema *s, const struct ArrowArray *a, int64_t k)
{
    if (!s->dictionary && strcmp(s->format, "n") == 0)
        return true;
    return a->null_count != 0 && a->n_buffers > 0 && a->buffers[0] && !bit(a->buffers[0], k);
}

/* A signed integer; unsigned ones of 64 bits are read as such where they are written. */
static int64_t integer_at(char type, const void *values, int64_t k)
{
    switch (type) {
    case 'c':
        return ((const int8_t *)values)[k];
    case 'C':
        return ((const uint8_t *)values)[k];
    case 's':
        return ((const int16_t *)values)[k];
    case 'S':
        return ((const uint16_t *)values)[k];
    case 'i':
        return ((const int32_t *)values)[k];
    case 'I':
        return ((const uint32_t *)values)[k];
    default:
        return ((const int64_t *)values)[k];
    }
}

static double float_at(char type, const void *values, int64_t k)
{
    return type == 'e'   ? (double)gd_f16_to_f32(((const uint16_t *)values)[k])
           : type == 'f' ? (double)((const float *)values)[k]
                         : ((const double *)values)[k];
}

static gd_status put_integer(builder *b, char type, const void *values, int64_t k, size_t *at)
{
    char text[32];
    int64_t value = integer_at(type, values, k);
    int length = type == 'L' ? snprintf(text, sizeof text, "%" PRIu64, (uint64_t)value)
                             : snprintf(text, sizeof text, "%" PRId64, value);
    return put(b, text, (size_t)length, at);
}

/* What is not finite is missing. */
static gd_status put_float(builder *b, double value, size_t *at)
{
    char text[GD_NUMBER_TEXT];
    if (!isfinite(value))
        return GD_OK;
    (void)gd_number_text(value, text);
    return put(b, text, strlen(text), at);
}

/* The integer of 128 bits, low half first, by a power of ten: as near as a double is. */
static gd_status put_decimal(builder *b, const char *format, const void *values, int64_t k,
                             size_t *at)
{
    const uint64_t low = ((const uint64_t *)values)[2 * k];
    const int64_t high = ((const int64_t *)values)[2 * k + 1];
    const double scale = pow(10.0, strtod(strchr(format, ',') + 1, NULL));
    /* Numbers of 64 bits are rounded once. */
    const double whole = high == 0               ? (double)low
                         : high == -1 && low > 0 ? -(double)(0 - low)
                                                 : (double)high * 0x1p64 + (double)low;
    return put_float(b, whole / scale, at);
}

/* Year, month and day of a day since 1970 (Howard Hinnant, "chrono-compatible low-level date
 * algorithms"). */
static void date_of(int64_t days, int *year, int *month, int *day)
{
    days += 719468;
    const int64_t era = (days >= 0 ? days : days - 146096) / 146097, of_era = days - era * 146097;
    const int64_t y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int64_t of_year = of_era - (365 * y + y / 4 - y / 100), m = (5 * of_year + 2) / 153;
    *day = (int)(of_year - (153 * m + 2) / 5 + 1);
    *month = (int)(m < 10 ? m + 3 : m - 9);
    *year = (int)(y + era * 400 + (*month <= 2));
}

/* ISO 8601. Years that it has no four digits for are missing. */
static gd_status put_time(builder *b, const char *format, const void *values, int64_t k, size_t *at)
{
    const bool days_alone = strcmp(format, "tdD") == 0;
    const char unit = strcmp(format, "tdm") == 0 ? 'm' : format[2];
    const int64_t ticks = days_alone    ? 1
                          : unit == 's' ? 1
                          : unit == 'm' ? 1000
                          : unit == 'u' ? 1000000
                                        : 1000000000;
    const int64_t a_day = days_alone ? 1 : 86400 * ticks;
    const int64_t value = integer_at(days_alone ? 'i' : 'l', values, k);
    const int64_t day_number = value / a_day - (value % a_day < 0),
                  rest = value - day_number * a_day;
    int year, month, day;
    char text[64];
    if (day_number < -719162 || day_number > 2932896) /* 0001-01-01, 9999-12-31 */
        return GD_OK;
    date_of(day_number, &year, &month, &day);
    int length = snprintf(text, sizeof text, "%04d-%02d-%02d", year, month, day);
    const int64_t seconds = rest / ticks;
    if (rest > 0)
        length +=
            snprintf(text + length, sizeof text - (size_t)length, "T%02d:%02d:%02d.%09" PRId64,
                     (int)(seconds / 3600), (int)(seconds / 60 % 60), (int)(seconds % 60),
                     rest % ticks * (1000000000 / ticks));
    return put(b, text, (size_t)length, at);
}

/* A view: its length, and up to 12 bytes, or 4 of them, the number of a buffer and an offset in it. */
static const char *view_at(const struct ArrowArray *a, int64_t k, int64_t *length)
{
    const char *view = (const char *)a->buffers[1] + 16 * k;
    int32_t size, buffer, offset;
    memcpy(&size, view, sizeof size);
    *length = size;
    if (size <= 12)
        return view + 4;
    memcpy(&buffer, view + 8, sizeof buffer);
    memcpy(&offset, view + 12, sizeof offset);
    if (buffer < 0 || 2 + (int64_t)buffer >= a->n_buffers || !a->buffers[2 + buffer] || offset < 0)
        *length = -1;
    return *length < 0 ? view : (const char *)a->buffers[2 + buffer] + offset;
}

static const char *string_at(const char *format, const struct ArrowArray *a, int64_t k,
                             int64_t *length)
{
    if (format[0] == 'v')
        return view_at(a, k, length);
    const char type = format[0] == 'u' ? 'i' : 'l';
    const int64_t begin = integer_at(type, a->buffers[1], k);
    *length = integer_at(type, a->buffers[1], k + 1) - begin;
    return (const char *)a->buffers[2] + begin;
}

static gd_status put_string(builder *b, const char *format, const struct ArrowArray *a, int64_t k,
                            size_t *at)
{
    int64_t length;
    const char *text = string_at(format, a, k, &length);
    if (length < 0)
        return gd_fail(GD_ERR_FORMAT, "%s: the place of a text is none", b->table->name);
    gd_status status = put(b, text, (size_t)length, at);
    if (status == GD_OK &&
        (strlen(b->table->text + *at) != (size_t)length || !gd_utf8_is_valid(b->table->text + *at)))
        return gd_fail(GD_ERR_FORMAT, "%s: a text is not UTF-8, or has a byte 0", b->table->name);
    return status;
}

/* Element k of the array's buffers, its offset counted in. *at: where its text is, or missing. */
static gd_status put_value(builder *b, const struct ArrowSchema *s, const struct ArrowArray *a,
                           int64_t k, size_t *at)
{
    const char *format = s->format;
    *at = GD_CELL_MISSING;
    if (is_missing(s, a, k))
        return GD_OK;
    if (s->dictionary) {
        int64_t index = integer_at(format[0], a->buffers[1], k);
        if (index < 0 || index >= a->dictionary->length)
            return gd_fail(GD_ERR_FORMAT, "%s: index %lld into a dictionary of %lld",
                           b->table->name, (long long)index, (long long)a->dictionary->length);
        return put_value(b, s->dictionary, a->dictionary, a->dictionary->offset + index, at);
    }
    if (is_integer(format))
        return put_integer(b, format[0], a->buffers[1], k, at);
    if (is_float(format))
        return put_float(b, float_at(format[0], a->buffers[1], k), at);
    if (is_decimal(format))
        return put_decimal(b, format, a->buffers[1], k, at);
    if (is_time(format))
        return put_time(b, format, a->buffers[1], k, at);
    if (is_string(format))
        return put_string(b, format, a, k, at);
    return bit(a->buffers[1], k) ? put(b, "true", 4, at) : put(b, "false", 5, at);
}

/* ---- columns and rows ---- */

static gd_status check_schema(const struct ArrowSchema *s, const char *name)
{
    if (!s->format || strcmp(s->format, "+s") != 0 || s->n_children < 1)
        return gd_fail(GD_ERR_FORMAT, "%s: no columns: a stream of structs is expected", name);
    if (s->n_children > GD_TABLE_MAX_COLUMNS)
        return gd_fail(GD_ERR_FORMAT, "%s: more than %d columns", name, GD_TABLE_MAX_COLUMNS);
    for (int64_t c = 0; c < s->n_children; c++)
        if (kind_of(s->children[c]) == GD_COLUMN_KIND_COUNT)
            return gd_fail(GD_ERR_UNSUPPORTED,
                           "%s: column \"%s\" has the type \"%s\" of Arrow, which tables do not "
                           "have: convert it to numbers, texts or times, or drop it",
                           name, s->children[c]->name ? s->children[c]->name : "",
                           s->children[c]->format ? s->children[c]->format : "");
    return GD_OK;
}

static gd_status add_columns(builder *b, const struct ArrowSchema *s)
{
    gd_table *t = b->table;
    gd_categories names = { 0 };
    gd_status status = GD_OK;
    t->columns = s->n_children;
    t->column = gd_alloc_zero((size_t)t->columns, sizeof *t->column);
    if (!t->column)
        return GD_ERR_MEMORY;
    for (int64_t c = 0; status == GD_OK && c < t->columns; c++) {
        char own[32];
        const char *name = s->children[c]->name;
        if (!name || !*name) {
            snprintf(own, sizeof own, "column%lld", (long long)c + 1);
            name = own;
        }
        t->column[c].kind = kind_of(s->children[c]);
        if (!gd_utf8_is_valid(name) || gd_categories_find(&names, name) >= 0)
            status = gd_fail(GD_ERR_FORMAT, "%s: %s \"%s\"", t->name,
                             gd_utf8_is_valid(name) ? "two columns are called"
                                                    : "a column's name is not UTF-8:",
                             name);
        else
            status = gd_categories_add(&names, name);
        if (status == GD_OK)
            status = put(b, name, strlen(name), &t->column[c].name);
    }
    gd_categories_free(&names);
    return status;
}

/* Whether an array has `length` elements, and the buffers that its type has. */
static bool is_whole(const struct ArrowSchema *s, const struct ArrowArray *a, int64_t length)
{
    if (!a || a->offset < 0 || a->length < length)
        return false;
    if (!s->dictionary && strcmp(s->format, "n") == 0)
        return true;
    const bool has_text = s->format[0] == 'u' || s->format[0] == 'U';
    if (a->n_buffers < (has_text && !s->dictionary ? 3 : 2) || !a->buffers)
        return false;
    return (a->length == 0 || a->buffers[1]) &&
           (!s->dictionary || is_whole(s->dictionary, a->dictionary, 0));
}

static gd_status check_batch(const gd_table *t, const struct ArrowSchema *s,
                             const struct ArrowArray *batch)
{
    if (batch->n_children != t->columns || !batch->children)
        return gd_fail(GD_ERR_FORMAT, "%s: a batch of %lld columns, of %lld", t->name,
                       (long long)batch->n_children, (long long)t->columns);
    if (batch->length < 0 || batch->offset < 0 || batch->offset > INT64_MAX - batch->length ||
        batch->length > INT64_MAX / t->columns - t->rows - 1)
        return gd_fail(GD_ERR_FORMAT, "%s: a batch of %lld rows from %lld on", t->name,
                       (long long)batch->length, (long long)batch->offset);
    for (int64_t c = 0; c < t->columns; c++)
        if (!is_whole(s->children[c], batch->children[c], batch->offset + batch->length))
            return gd_fail(GD_ERR_FORMAT,
                           "%s: column %lld of a batch of %lld rows is shorter, or lacks a buffer",
                           t->name, (long long)c + 1, (long long)batch->length);
    return GD_OK;
}

/* The rows of a batch, whose own offset counts for all columns. */
static gd_status add_rows(builder *b, const struct ArrowSchema *s, const struct ArrowArray *batch)
{
    gd_table *t = b->table;
    gd_status status = check_batch(t, s, batch);
    if (status != GD_OK)
        return status;
    const int64_t rows = t->rows + batch->length;
    if (!gd_grow((void **)&t->cells, &b->cell_capacity, (size_t)(rows * t->columns) + 1,
                 sizeof *t->cells) ||
        !gd_grow((void **)&t->lines, &b->line_capacity, (size_t)rows + 1, sizeof *t->lines))
        return GD_ERR_MEMORY;
    for (int64_t i = 0; i < batch->length; i++, t->rows++) {
        const bool missing = is_missing(s, batch, batch->offset + i); /* the whole row */
        t->lines[t->rows] = t->rows + 1;
        for (int64_t c = 0; status == GD_OK && c < t->columns; c++) {
            const struct ArrowArray *a = batch->children[c];
            size_t *cell = &t->cells[t->rows * t->columns + c];
            *cell = GD_CELL_MISSING;
            if (!missing)
                status = put_value(b, s->children[c], a, a->offset + batch->offset + i, cell);
        }
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

/* ---- the stream ---- */

static gd_status fail_stream(struct ArrowArrayStream *stream, const char *name, int code)
{
    const char *why = stream->get_last_error ? stream->get_last_error(stream) : NULL;
    return gd_fail(GD_ERR_IO, "%s: %.400s", name, why ? why : strerror(code));
}

static gd_status read_batches(builder *b, struct ArrowArrayStream *stream,
                              const struct ArrowSchema *s)
{
    gd_status status = GD_OK;
    for (bool more = true; status == GD_OK && more;) {
        struct ArrowArray batch = { 0 };
        int code = stream->get_next(stream, &batch);
        more = code == 0 && batch.release;
        if (code != 0)
            status = fail_stream(stream, b->table->name, code);
        else if (more)
            status = add_rows(b, s, &batch);
        if (batch.release)
            batch.release(&batch);
    }
    if (status == GD_OK && b->table->rows == 0)
        return gd_fail(GD_ERR_FORMAT, "%s: there are no rows", b->table->name);
    return status;
}

static gd_status read_stream(builder *b, struct ArrowArrayStream *stream)
{
    struct ArrowSchema schema = { 0 };
    int code = stream->get_schema(stream, &schema);
    if (code != 0)
        return fail_stream(stream, b->table->name, code);
    gd_status status = check_schema(&schema, b->table->name);
    if (status == GD_OK)
        status = add_columns(b, &schema);
    if (status == GD_OK)
        status = read_batches(b, stream, &schema);
    if (schema.release)
        schema.release(&schema);
    return status == GD_OK ? gd_table_take_kinds(b->table) : status;
}

gd_table *gd_table_create_arrow(ArrowArrayStream *stream)
{
    if (!stream || !stream->release)
        return gd_fail_null(GD_ERR_INVALID, "gd_table_create_arrow: %s",
                            stream ? "the stream has been released" : "the stream is NULL");
    builder b = { .table = gd_alloc_zero(1, sizeof *b.table) };
    gd_status status = b.table && (b.table->name = gd_strdup("Arrow")) ? GD_OK : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = read_stream(&b, stream);
    stream->release(stream);
    if (status == GD_OK)
        return b.table;
    gd_table_release(b.table);
    return NULL;
}
