/* report/sink_csv.c: the run log as CSV (RFC 4180), a column a name. A name that comes later adds a
 * column: the file is written anew, as a whole. */
#include "report/sink.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "report/append.h"
#include "base/buffer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 32)

static const char *const fixed_names[] = { "step", "epoch", "time" };
enum { FIXED = sizeof fixed_names / sizeof *fixed_names };

typedef struct csv_sink {
    gd_sink sink;
    char *folder;
    gd_append_file file;
    char **names; /* of the columns behind the fixed ones */
    size_t count, capacity;
    bool has_header;
} csv_sink;

static const char file_name[] = "metrics.csv";

/* ---- columns ---- */

static gd_status add_column(csv_sink *s, const char *name)
{
    if (!gd_grow((void **)&s->names, &s->capacity, s->count + 1, sizeof *s->names))
        return GD_ERR_MEMORY;
    s->names[s->count] = gd_strdup(name);
    if (!s->names[s->count])
        return GD_ERR_MEMORY;
    s->count++;
    return GD_OK;
}

static bool has_column(const csv_sink *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->names[i], name) == 0)
            return true;
    return false;
}

static void add_field(gd_text_buffer *b, const char *name)
{
    if (!strpbrk(name, ",\"\r\n")) {
        gd_buffer_add(b, "%s", name);
        return;
    }
    gd_buffer_add(b, "\"");
    for (; *name; name++)
        gd_buffer_add(b, *name == '"' ? "\"\"" : "%c", *name);
    gd_buffer_add(b, "\"");
}

static void add_header(const csv_sink *s, gd_text_buffer *b)
{
    for (size_t i = 0; i < FIXED; i++)
        gd_buffer_add(b, "%s%s", i ? "," : "", fixed_names[i]);
    for (size_t i = 0; i < s->count; i++) {
        gd_buffer_add(b, ",");
        add_field(b, s->names[i]);
    }
    gd_buffer_add(b, "\n");
}

/* ---- reading what is there ---- */

/* One field, unquoted in place; returns what follows its comma or line end, NULL if it has no end.
 * *last: it ends its line. */
static char *read_field(char *at, const char *end, char **field, bool *last)
{
    char *out = *field = at;
    bool quoted = at < end && *at == '"';
    at += quoted;
    for (; at < end; at++) {
        if (quoted && *at == '"') {
            if (at + 1 < end && at[1] == '"')
                at++;
            else {
                quoted = false;
                continue;
            }
        } else if (!quoted && (*at == ',' || *at == '\n')) {
            *last = *at == '\n';
            *out = '\0';
            return at + 1;
        }
        *out++ = *at;
    }
    return NULL;
}

static gd_status fail_line(const csv_sink *s, int64_t line, const char *what)
{
    return gd_fail(GD_ERR_FORMAT, "%s: line %lld %s", s->file.path, (long long)line, what);
}

/* The header's names. *at: the first row; NULL: the file ends before. */
static gd_status read_header(csv_sink *s, char **at, const char *end)
{
    bool last = false;
    for (size_t i = 0; !last; i++) {
        char *field;
        *at = read_field(*at, end, &field, &last);
        if (!*at)
            return GD_OK;
        if (i < FIXED ? strcmp(field, fixed_names[i]) != 0 : has_column(s, field))
            return fail_line(s, 1, "is not the header of a run's metrics");
        if (i >= FIXED && add_column(s, field) != GD_OK)
            return GD_ERR_MEMORY;
        if (last && i + 1 < FIXED)
            return fail_line(s, 1, "is not the header of a run's metrics");
    }
    s->has_header = true;
    return GD_OK;
}

/* Where the first row of a later step begins; *time: of the last row before. */
static gd_status find_cut(const csv_sink *s, char *bytes, char *at, const char *end, int64_t after,
                          double *time, uint64_t *cut)
{
    *cut = (uint64_t)(at - bytes);
    for (int64_t line = 2; at < end; line++) {
        char *fields[FIXED], *field, *rest;
        size_t count = 0;
        for (bool last = false; at && !last; count++) {
            at = read_field(at, end, &field, &last);
            if (count < FIXED)
                fields[count] = field;
        }
        if (!at)
            return GD_OK; /* cut short */
        if (count != FIXED + s->count)
            return fail_line(s, line, "does not have a field for each name of the header");
        int64_t step = strtoll(fields[0], &rest, 10);
        if (!*fields[0] || *rest || step < 0)
            return fail_line(s, line, "does not begin with a step, a whole number from 0");
        if (step > after)
            return GD_OK;
        double seconds = gd_strtod(fields[2], &rest);
        if (seconds > *time)
            *time = seconds;
        *cut = (uint64_t)(at - bytes);
    }
    return GD_OK;
}

static gd_status cut_off(csv_sink *s, int64_t after, double *time)
{
    unsigned char *bytes;
    size_t size;
    gd_status status = gd_file_read_all(s->file.path, FILE_BYTES_MAX, &bytes, &size);
    if (status != GD_OK)
        return status;
    char *first = (char *)bytes, *at = first;
    uint64_t cut = 0;
    status = size ? read_header(s, &at, first + size) : GD_OK;
    if (status == GD_OK && s->has_header)
        status = find_cut(s, first, at, first + size, after, time, &cut);
    gd_free(bytes);
    return status == GD_OK ? gd_append_truncate(&s->file, cut) : status;
}

static gd_status csv_open(gd_sink **out, const char *folder, const gd_run_log_options *options,
                          double *time)
{
    csv_sink *s = gd_alloc_zero(1, sizeof *s);
    if (!s)
        return GD_ERR_MEMORY;
    *out = &s->sink;
    s->file = GD_APPEND_NONE;
    s->folder = gd_strdup(folder);
    if (!s->folder)
        return GD_ERR_MEMORY;
    bool resumed = options->resume_step >= 0;
    gd_status status =
        gd_append_open(&s->file, folder, file_name, resumed ? GD_APPEND_OLD : GD_APPEND_NEW);
    return status == GD_OK && resumed ? cut_off(s, options->resume_step, time) : status;
}

static void csv_close(gd_sink *sink)
{
    csv_sink *s = (csv_sink *)sink;
    gd_append_close(&s->file);
    for (size_t i = 0; i < s->count; i++)
        gd_free(s->names[i]);
    gd_free(s->names);
    gd_free(s->folder);
    gd_free(s);
}

/* ---- writing ---- */

/* The file with its new header, and `added` empty fields behind each row. Quotation marks come in
 * pairs, so that a line end between an odd and an even one is a field's. */
static gd_status rewrite(csv_sink *s, size_t added)
{
    unsigned char *bytes;
    size_t size, at = 0;
    gd_status status = gd_file_read_all(s->file.path, FILE_BYTES_MAX, &bytes, &size);
    if (status != GD_OK)
        return status;
    if (size > s->file.size)
        size = (size_t)s->file.size;
    gd_text_buffer b = { 0 };
    add_header(s, &b);
    bool quoted = false, header = true;
    for (size_t begin = 0; at < size; at++) {
        quoted ^= bytes[at] == '"';
        if (bytes[at] != '\n' || quoted)
            continue;
        if (!header) {
            gd_buffer_put(&b, bytes + begin, at - begin);
            for (size_t i = 0; i < added; i++)
                gd_buffer_put(&b, ",", 1);
            gd_buffer_put(&b, "\n", 1);
        }
        header = false;
        begin = at + 1;
    }
    gd_free(bytes);
    status = (b.failed ? GD_ERR_MEMORY : GD_OK);
    if (status == GD_OK)
        status = gd_file_write_atomic(s->file.path, &(gd_file_part){ b.text, b.length }, 1);
    gd_free(b.text);
    if (status != GD_OK)
        return status;
    gd_append_close(&s->file);
    return gd_append_open(&s->file, s->folder, file_name, GD_APPEND_OLD);
}

static gd_status add_columns(csv_sink *s, int64_t count, const char *const *names)
{
    size_t before = s->count;
    gd_status status = GD_OK;
    for (int64_t i = 0; status == GD_OK && i < count; i++)
        if (!has_column(s, names[i]))
            status = add_column(s, names[i]);
    if (status == GD_OK && (s->count > before || !s->has_header))
        status = rewrite(s, s->count - before);
    if (status == GD_OK) {
        s->has_header = true;
        return GD_OK;
    }
    while (s->count > before) /* the file has them not */
        gd_free(s->names[--s->count]);
    return status;
}

static gd_status csv_scalars(gd_sink *sink, const gd_log_entry *e, int64_t count,
                             const char *const *names, const double *values)
{
    csv_sink *s = (csv_sink *)sink;
    gd_status status = GD_OK;
    if (s->file.fd < 0) { /* it could not be opened again after it was written anew */
        gd_append_close(&s->file);
        status = gd_append_open(&s->file, s->folder, file_name, GD_APPEND_OLD);
    }
    if (status == GD_OK)
        status = add_columns(s, count, names);
    if (status != GD_OK)
        return status;
    gd_text_buffer row = { 0 };
    gd_buffer_add(&row, "%lld,", (long long)e->step);
    if (e->epoch >= 0)
        gd_buffer_add(&row, "%lld", (long long)e->epoch);
    gd_buffer_add(&row, ",%.17g", e->time);
    for (size_t column = 0; column < s->count; column++) {
        gd_buffer_add(&row, ",");
        for (int64_t i = 0; i < count; i++)
            if (strcmp(names[i], s->names[column]) == 0)
                gd_buffer_add(&row, "%.17g", values[i]);
    }
    gd_buffer_add(&row, "\n");
    status = (row.failed ? GD_ERR_MEMORY : GD_OK);
    if (status == GD_OK)
        status = gd_append(&s->file, row.text, row.length);
    gd_free(row.text);
    return status;
}

static gd_status csv_flush(gd_sink *sink)
{
    const csv_sink *s = (const csv_sink *)sink;
    return s->file.fd < 0 ? GD_OK : gd_append_sync(&s->file);
}

const gd_sink_type gd_csv_sink = {
    .open = csv_open, .scalars = csv_scalars, .flush = csv_flush, .close = csv_close
};
