/* report/chart.h: what a chart holds, for those that draw it: report/svg*.c and report/terminal.c. */
#ifndef GD_REPORT_CHART_H
#define GD_REPORT_CHART_H

#include <gradus/chart.h>
#include <gradus/io.h>

#include "base/buffer.h"
#include "report/pixels.h"

typedef enum gd_chart_kind { GD_CHART_AXES, GD_CHART_MATRIX, GD_CHART_IMAGES } gd_chart_kind;

/* A line through points, or bars between edges. */
typedef struct gd_series {
    char *name; /* NULL: not in the legend */
    size_t count;
    double *x, *y;           /* of a line [count]; of bars, edges [count + 1] and heights [count] */
    double *smoothed;        /* [count]; NULL: not smoothed */
    bool bars, dashed, pale; /* pale: for comparison only, without a colour of its own */
} gd_series;

typedef struct gd_chart_note {
    double x;
    char *text;
} gd_chart_note;

typedef struct gd_caption {
    char *text; /* NULL: none */
    bool wrong;
} gd_caption;

struct gd_chart {
    gd_chart_kind kind;
    char *title, *x_label, *y_label;
    bool log_x, log_y;
    int64_t width, height;
    double low[2], high[2]; /* ranges of x and y; NaN: what the data have */
    gd_series *series;
    size_t series_count, series_capacity;
    gd_chart_note *marks;
    size_t mark_count, mark_capacity;
    int64_t classes;      /* of a matrix */
    int64_t *counts;      /* [classes, classes], truth in rows */
    char **names;         /* [classes] */
    gd_image image;       /* of images: all of them */
    gd_image_grid grid;   /* and where each is */
    gd_caption *captions; /* [grid.count]; NULL: there are none */
};

/* ---- axes ---- */

enum { GD_MOST_TICKS = 24 };

/* A range with round numbers on it. */
typedef struct gd_axis {
    bool log;
    double low, high; /* of a logarithmic one, positive */
    int count;
    double ticks[GD_MOST_TICKS];
    char labels[GD_MOST_TICKS][16];
} gd_axis;

/* The axis 0 (x) or 1 (y) of a chart with at most about so many ticks. */
void gd_axis_of(const gd_chart *chart, int which, int most, gd_axis *axis);
/* Where a value is between low (0) and high (1); NaN: nowhere. */
double gd_axis_place(const gd_axis *axis, double value);
/* A number as a person writes it, of 4 significant digits. */
void gd_chart_number(double number, char text[16]);

/* ---- drawing ---- */

void gd_svg_axes(const gd_chart *chart, gd_text_buffer *out);
void gd_svg_matrix(const gd_chart *chart, gd_text_buffer *out);
gd_status gd_svg_image(const gd_chart *chart, gd_text_buffer *out);
/* The document's begin with its size and styles; <text> with what XML reserves written so. */
void gd_svg_begin(const gd_chart *chart, double width, double height, gd_text_buffer *out);
void gd_svg_text(gd_text_buffer *out, double x, double y, const char *attributes, const char *text);

gd_status gd_chart_print(const gd_chart *chart, int columns, int rows, gd_text_style style,
                         gd_text_buffer *out);

/* One row of the grid of images, whose pixels it shares. */
gd_image gd_chart_band(const gd_chart *chart, int64_t row);

/* Characters of UTF-8 text, and the bytes of at most `most` of them. */
size_t gd_text_characters(const char *text);
size_t gd_text_bytes(const char *text, size_t most);

#endif
