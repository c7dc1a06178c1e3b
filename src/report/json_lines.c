/* report/json_lines.c: see json_lines.h. */
#include "report/json_lines.h"

#include "report/sink.h"

#ifdef GD_HAVE_JANSSON

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 32)

bool gd_json_number(const json_t *value, double *number)
{
    const char *text = json_string_value(value);
    *number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (text && strcmp(text, "Infinity") == 0)
        *number = INFINITY;
    else if (text && strcmp(text, "-Infinity") == 0)
        *number = -INFINITY;
    else if (text)
        return strcmp(text, "NaN") == 0;
    return json_is_number(value) || json_is_null(value) || text;
}

json_t *gd_json_from_number(double number)
{
    if (isnan(number))
        return json_string("NaN");
    if (isinf(number))
        return json_string(number > 0 ? "Infinity" : "-Infinity");
    return json_real(number);
}

static gd_status parse_line(const char *path, int64_t number, const char *text, size_t size,
                            gd_json_line *line)
{
    json_error_t error;
    line->object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!line->object)
        return gd_fail(GD_ERR_FORMAT, "%s: line %lld is not JSON: %s", path, (long long)number,
                       error.text);
    const json_t *step = json_object_get(line->object, "step");
    line->step = json_integer_value(step);
    if (!json_is_integer(step) || line->step < 0)
        return gd_fail(GD_ERR_FORMAT,
                       "%s: line %lld is not an object whose \"step\" is a whole number from 0",
                       path, (long long)number);
    line->time = json_number_value(json_object_get(line->object, "time"));
    return GD_OK;
}

gd_status gd_json_lines_read(const char *path,
                             gd_status (*each)(void *user, const gd_json_line *line, bool *stop),
                             void *user, uint64_t *end)
{
    unsigned char *bytes;
    size_t size, begin = 0;
    gd_status status = gd_file_read_all(path, FILE_BYTES_MAX, &bytes, &size);
    if (status != GD_OK)
        return status;
    bool stop = false;
    for (int64_t number = 1; status == GD_OK && !stop && begin < size; number++) {
        const unsigned char *newline = memchr(bytes + begin, '\n', size - begin);
        if (!newline)
            break;
        gd_json_line line = { .begin = begin };
        size_t length = (size_t)(newline - bytes) - begin;
        status = parse_line(path, number, (const char *)bytes + begin, length, &line);
        if (status == GD_OK)
            status = each(user, &line, &stop);
        json_decref(line.object);
        if (status == GD_OK && !stop)
            begin += length + 1;
    }
    *end = begin;
    gd_free(bytes);
    return status;
}

size_t gd_json_precision(double number)
{
    json_t *json = json_real(number); /* NULL: not finite */
    char *text = json ? json_dumps(json, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
    double back = number;
    bool same = !text || (gd_text_is_number(text, &back) && back == number);
    free(text);
    json_decref(json);
    return same ? JSON_REAL_PRECISION(15) : JSON_REAL_PRECISION(17);
}

#endif
