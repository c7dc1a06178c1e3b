/* data/table_read.c: from the text of a CSV or TSV file (RFC 4180) to the cells of a table. Start at
 * gd_table_parse().
 *
 * The text is decoded in place: a cell and the 0 after it never need more bytes than it has in the
 * file with its separator. */
#include "data/table.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    gd_table *table;
    unsigned char *at, *end; /* *end is 0, and belongs to the text */
    unsigned char separator;
    int64_t line;
    size_t cell_capacity, line_capacity;
    int64_t cell_count; /* of all records read */
} reader;

static bool ends_line(unsigned char c)
{
    return c == '\n' || c == '\r';
}

/* Step over LF, CR or CRLF. */
static void step_line(reader *r)
{
    if (r->at < r->end && *r->at == '\r')
        r->at++;
    else if (r->at < r->end && *r->at == '\n') {
        r->at++;
        r->line++;
        return;
    } else
        return;
    if (r->at < r->end && *r->at == '\n')
        r->at++;
    r->line++;
}

/* ---- is it text at all ---- */

/* Bytes of the UTF-8 sequence at p, 0 for none (RFC 3629: no overlong forms, no surrogates). */
static int utf8_length(const unsigned char *p, const unsigned char *end)
{
    static const struct {
        unsigned char first, last, low, high; /* of the first byte; of the second */
        int length;
    } forms[] = {
        { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
        { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };
    if (*p < 0x80)
        return *p != 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (*p < forms[i].first || *p > forms[i].last)
            continue;
        if (end - p < forms[i].length || p[1] < forms[i].low || p[1] > forms[i].high)
            return 0;
        for (int b = 2; b < forms[i].length; b++)
            if (p[b] < 0x80 || p[b] > 0xbf)
                return 0;
        return forms[i].length;
    }
    return 0;
}

static gd_status check_utf8(const reader *r)
{
    int64_t line = 1;
    for (const unsigned char *p = r->at; p < r->end;) {
        int length = utf8_length(p, r->end);
        if (length == 0)
            return gd_fail(GD_ERR_FORMAT, "%s: line %lld: byte %02x is not UTF-8%s", r->table->name,
                           (long long)line, *p,
                           *p == 0 || *p >= 0xfe ? " (is it UTF-16, or no table at all?)"
                                                 : "; iconv -f latin1 -t utf-8 may convert it");
        line += *p == '\n' || (*p == '\r' && p + 1 < r->end && p[1] != '\n');
        p += length;
    }
    return GD_OK;
}

/* ---- separators ---- */

/* Cells of the record at p if they were separated by `separator`; *after is where it ends. */
static int64_t count_cells(const unsigned char *p, const unsigned char *end,
                           unsigned char separator, const unsigned char **after)
{
    int64_t cells = 1;
    bool quoted = false, begins = true;
    for (; p < end && (quoted || !ends_line(*p)); p++) {
        if (*p == '"' && (quoted || begins))
            quoted = !quoted; /* a doubled one switches twice */
        cells += !quoted && *p == separator;
        begins = (begins && *p == ' ') || *p == separator || *p == '"';
    }
    while (p < end && ends_line(*p))
        p++;
    *after = p;
    return cells;
}

/* Of the separators that divide the first records all alike, the one that makes the most cells. */
static unsigned char find_separator(const reader *r)
{
    enum { RECORDS = 16 };
    static const unsigned char candidates[] = { ',', '\t', ';', '|' };
    unsigned char best = ',';
    int64_t most = 1;
    for (size_t i = 0; i < sizeof candidates; i++) {
        const unsigned char *p = r->at;
        int64_t cells = count_cells(p, r->end, candidates[i], &p);
        bool alike = true;
        for (int record = 1; alike && record < RECORDS && p < r->end; record++)
            alike = count_cells(p, r->end, candidates[i], &p) == cells;
        if (alike && cells > most) {
            most = cells;
            best = candidates[i];
        }
    }
    return best;
}

/* ---- cells ---- */

static gd_status fail_cell(const reader *r, int64_t line, int64_t cell, const char *problem)
{
    return gd_fail(GD_ERR_FORMAT, "%s: line %lld, column %lld: %s", r->table->name, (long long)line,
                   (long long)cell + 1, problem);
}

/* Decode "a ""cell""" at r->at to `out`, which does not run ahead of it. Returns its end. */
static unsigned char *read_quoted(reader *r, unsigned char *out)
{
    for (r->at++; r->at < r->end; r->at++) {
        if (*r->at == '"' && r->at[1] != '"') {
            r->at++;
            return out;
        }
        r->at += *r->at == '"';
        r->line += *r->at == '\n' || (*r->at == '\r' && r->at[1] != '\n');
        *out++ = *r->at;
    }
    return NULL;
}

static bool is_blank(const reader *r, unsigned char c)
{
    return (c == ' ' || c == '\t') && c != r->separator;
}

/* The cell at r->at, decoded and without a 0 after it yet; r->at is then at what ends it. */
static gd_status read_cell(reader *r, int64_t number, unsigned char **begin, unsigned char **end)
{
    const int64_t line = r->line;
    while (is_blank(r, *r->at))
        r->at++;
    *begin = r->at;
    if (*r->at == '"') {
        *end = read_quoted(r, r->at);
        if (!*end)
            return fail_cell(r, line, number, "the quotation mark is never closed");
        while (is_blank(r, *r->at))
            r->at++;
        if (r->at < r->end && *r->at != r->separator && !ends_line(*r->at))
            return fail_cell(r, r->line, number, "there is text after the closing quotation mark");
        return GD_OK;
    }
    while (r->at < r->end && *r->at != r->separator && !ends_line(*r->at))
        r->at++;
    *end = r->at;
    while (*end > *begin && is_blank(r, (*end)[-1]))
        --*end;
    return GD_OK;
}

static gd_status add_cell(reader *r, const unsigned char *begin)
{
    gd_table *t = r->table;
    if (!gd_grow((void **)&t->cells, &r->cell_capacity, (size_t)r->cell_count + 1,
                 sizeof *t->cells))
        return GD_ERR_MEMORY;
    t->cells[r->cell_count++] = (size_t)((const char *)begin - t->text);
    return GD_OK;
}

/* ---- records ---- */

/* The cells of one record to the end of the list. *cells: how many. */
static gd_status read_record(reader *r, int64_t *cells)
{
    *cells = 0;
    for (bool more = true; more; ++*cells) {
        unsigned char *begin, *end;
        if (*cells == GD_TABLE_MAX_COLUMNS)
            return gd_fail(GD_ERR_FORMAT, "%s: line %lld has more than %d cells", r->table->name,
                           (long long)r->line, GD_TABLE_MAX_COLUMNS);
        gd_status status = read_cell(r, *cells, &begin, &end);
        if (status == GD_OK)
            status = add_cell(r, begin);
        if (status != GD_OK)
            return status;
        more = r->at < r->end && *r->at == r->separator;
        if (more)
            r->at++;
        else
            step_line(r);
        *end = '\0'; /* after the separator or the line's end has been looked at: it may be there */
    }
    return GD_OK;
}

/* Lines of blanks, too. */
static void skip_empty_lines(reader *r)
{
    for (;;) {
        const unsigned char *p = r->at;
        while (p < r->end && is_blank(r, *p))
            p++;
        if (p == r->end || !ends_line(*p)) {
            r->at = p == r->end ? r->end : r->at;
            return;
        }
        r->at += p - r->at;
        step_line(r);
    }
}

static void skip_comments(reader *r, const char *comment)
{
    skip_empty_lines(r);
    size_t length = comment ? strlen(comment) : 0;
    while (length > 0 && (size_t)(r->end - r->at) >= length &&
           memcmp(r->at, comment, length) == 0) {
        while (r->at < r->end && !ends_line(*r->at))
            r->at++;
        skip_empty_lines(r);
    }
}

static gd_status add_line(reader *r, int64_t line)
{
    gd_table *t = r->table;
    if (!gd_grow((void **)&t->lines, &r->line_capacity, (size_t)t->rows + 1, sizeof *t->lines))
        return GD_ERR_MEMORY;
    t->lines[t->rows++] = line;
    return GD_OK;
}

static gd_status read_records(reader *r)
{
    gd_table *t = r->table;
    for (skip_empty_lines(r); r->at < r->end; skip_empty_lines(r)) {
        const int64_t line = r->line;
        int64_t cells;
        gd_status status = add_line(r, line);
        if (status == GD_OK)
            status = read_record(r, &cells);
        if (status != GD_OK)
            return status;
        if (t->columns == 0)
            t->columns = cells;
        if (cells != t->columns)
            return gd_fail(GD_ERR_FORMAT, "%s: line %lld: %lld cells, where line %lld has %lld",
                           t->name, (long long)line, (long long)cells, (long long)t->lines[0],
                           (long long)t->columns);
    }
    return t->rows > 0 ? GD_OK : gd_fail(GD_ERR_FORMAT, "%s: there are no rows", t->name);
}

/* ---- the header ---- */

static bool is_word(const char *text, bool decimal_comma)
{
    double value;
    return *text && !gd_cell_number(text, decimal_comma, &value) && !gd_cell_time(text, &value);
}

/* Whether the first record has the columns' names: words, of which the first may be empty (as
 * pandas writes the index). Among the first rows either a word has numbers alone below it, or none of them
 * occurs again in its column. */
static bool begins_with_names(const gd_table *t)
{
    enum { ROWS = 100 };
    bool has_numbers = false, recurs = false;
    for (int64_t c = 0; c < t->columns; c++) {
        const char *name = t->text + t->cells[c];
        if (!is_word(name, t->decimal_comma) && !(c == 0 && *name == '\0' && t->columns > 1))
            return false;
        bool are_numbers = *name != '\0' && t->rows > 1;
        for (int64_t row = 1; row < t->rows && row < ROWS; row++) {
            const char *cell = t->text + t->cells[row * t->columns + c];
            recurs |= strcmp(cell, name) == 0;
            are_numbers &= *cell != '\0' && !is_word(cell, t->decimal_comma);
        }
        has_numbers |= are_numbers;
    }
    return t->rows > 1 && (has_numbers || !recurs);
}

/* Text of the columns' names behind the cells, for those that have none in the file. */
static gd_status make_names(gd_table *t, bool header, size_t size)
{
    enum { NAME_BYTES = 32 };
    char *text = gd_realloc(t->text, size + 1 + (size_t)t->columns * NAME_BYTES);
    if (!text)
        return GD_ERR_MEMORY;
    t->text = text;
    size_t at = size + 1;
    for (int64_t c = 0; c < t->columns; c++) {
        t->column[c].name = t->cells[c];
        if (header && text[t->cells[c]])
            continue;
        t->column[c].name = at;
        at += (size_t)snprintf(text + at, NAME_BYTES, "column%lld", (long long)c + 1) + 1;
    }
    return GD_OK;
}

/* Names must tell columns apart. */
static gd_status check_names(const gd_table *t)
{
    gd_categories names = { 0 };
    gd_status status = GD_OK;
    for (int64_t c = 0; status == GD_OK && c < t->columns; c++) {
        const char *name = t->text + t->column[c].name;
        if (gd_categories_find(&names, name) >= 0)
            status = gd_fail(GD_ERR_FORMAT, "%s: line %lld: two columns are called \"%s\"", t->name,
                             (long long)t->lines[0], name);
        else
            status = gd_categories_add(&names, name);
    }
    gd_categories_free(&names);
    return status;
}

static gd_status take_header(gd_table *t, size_t size, int header)
{
    t->column = gd_alloc_zero((size_t)t->columns, sizeof *t->column);
    if (!t->column)
        return GD_ERR_MEMORY;
    bool has_names = header < 0 ? begins_with_names(t) : header > 0;
    gd_status status = make_names(t, has_names, size);
    if (status == GD_OK)
        status = check_names(t);
    if (status != GD_OK || !has_names)
        return status;
    if (t->rows == 1)
        return gd_fail(GD_ERR_FORMAT, "%s: there are names of columns, and no rows", t->name);
    t->rows--;
    memmove(t->lines, t->lines + 1, (size_t)t->rows * sizeof *t->lines);
    memmove(t->cells, t->cells + t->columns, (size_t)(t->rows * t->columns) * sizeof *t->cells);
    return GD_OK;
}

static void find_missing(gd_table *t)
{
    for (int64_t i = 0; i < t->rows * t->columns; i++)
        if (gd_cell_is_missing(t->text + t->cells[i]))
            t->cells[i] = GD_CELL_MISSING;
}

gd_status gd_table_parse(gd_table *t, char *text, size_t size, const gd_table_options *o)
{
    t->text = text;
    t->decimal_comma = o->decimal_comma;
    reader r = { .table = t, .at = (unsigned char *)text, .line = 1 };
    r.end = r.at + size;
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* the mark of UTF-8 */
        r.at += 3;
    gd_status status = check_utf8(&r);
    if (status != GD_OK)
        return status;
    skip_comments(&r, o->comment);
    r.separator = o->separator ? (unsigned char)o->separator[0] : find_separator(&r);
    status = read_records(&r);
    if (status == GD_OK)
        status = take_header(t, size, o->header);
    if (status == GD_OK)
        find_missing(t);
    return status;
}
