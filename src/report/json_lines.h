/* report/json_lines.h: files with a JSON object a line (https://jsonlines.org), of steps. */
#ifndef GD_REPORT_JSON_LINES_H
#define GD_REPORT_JSON_LINES_H

#include <gradus/base.h>

#ifdef GD_HAVE_JANSSON

#include <jansson.h>

typedef struct gd_json_line {
    json_t *object; /* lives during the call */
    int64_t step;   /* not negative */
    double time;    /* 0: it has none */
    uint64_t begin; /* where the line begins in the file */
} gd_json_line;

/* Call `each` for each line until it returns something else than GD_OK, or *stop is set. A last line
 * without an end is left out; *end is where the whole lines end. GD_ERR_FORMAT, with the number of
 * the line, for one that is no object or has no step. */
gd_status gd_json_lines_read(const char *path,
                             gd_status (*each)(void *user, const gd_json_line *line, bool *stop),
                             void *user, uint64_t *end);

/* A number of a line: also "NaN", "Infinity", "-Infinity", and null for NaN. */
bool gd_json_number(const json_t *value, double *number);
/* The other way; NULL when memory is out. */
json_t *gd_json_from_number(double number);
/* The digits as a flag for json_dumps: 15, which show what people wrote as they wrote it, or the 17 that
 * every number needs to be read back as the same. */
size_t gd_json_precision(double number);

#endif
#endif
