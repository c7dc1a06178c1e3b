/* data/table.h: a table in memory and an encoder, for the files data/table*.c.
 *
 *   table_read.c     text to cells
 *   table_arrow.c    streams of Arrow to cells
 *   table_cells.c    what a cell says: missing, a number, a boolean, a time
 *   table.c          tables: kinds of columns, access
 *   categories.c     different texts, counted
 *   table_encoder.c  what the columns of the training rows are
 *   table_encode.c   rows to numbers
 *   table_json.c     encoders as JSON */
#ifndef GD_DATA_TABLE_H
#define GD_DATA_TABLE_H

#include <gradus/table.h>

#include "data/categories.h"

#define GD_CELL_MISSING SIZE_MAX

typedef struct gd_table_column {
    size_t name; /* in the text */
    gd_column_kind kind;
    int64_t missing, distinct;
} gd_table_column;

struct gd_table {
    char *name;     /* of the file, or "memory" */
    char *text;     /* names and cells, each ended by a 0 */
    size_t *cells;  /* [rows, columns] where a cell begins in the text, or GD_CELL_MISSING */
    int64_t *lines; /* [rows] */
    gd_table_column *column; /* [columns] */
    int64_t rows, columns;
    bool decimal_comma;
};

/* ---- table_read.c ---- */

/* Fill name, text, cells, lines and the columns' names from text that ends with a 0, which the table
 * takes over. */
gd_status gd_table_parse(gd_table *table, char *text, size_t size, const gd_table_options *options);

/* ---- table.c ---- */

/* Missing and different cells of the columns, whose kinds are known but for texts: times, categories
 * or texts. */
gd_status gd_table_take_kinds(gd_table *table);

/* ---- table_cells.c ---- */

bool gd_cell_is_missing(const char *text);
/* A finite number in the range of f32; NaN for an infinite or larger one. False: not a number. */
bool gd_cell_number(const char *text, bool decimal_comma, double *value);
bool gd_cell_boolean(const char *text, double *value);
/* Seconds since 1970-01-01T00:00Z. */
bool gd_cell_time(const char *text, double *value);
/* The value of a cell of that kind, NaN for a missing one (NULL). False: it is none. Texts and
 * categories have none. */
bool gd_cell_value(const gd_table *table, const char *text, gd_column_kind kind, double *value);

/* The number as the shortest text that reads back as it: the name of a class. */
#define GD_NUMBER_TEXT 32
const char *gd_number_text(double value, char text[GD_NUMBER_TEXT]);

/* GD_ERR_FORMAT: "table.csv: line 3, column "age": …". */
gd_status gd_cell_fail(const gd_table *table, int64_t row, int64_t column, const char *problem);

/* What else is to be said of a column that is not there: the table is nothing but names, or "". */
const char *gd_table_only_names(const gd_table *table, const char *name);

/* ---- encoders ---- */

/* Bits of `cycles`. */
enum { GD_CYCLE_YEAR = 1, GD_CYCLE_WEEK = 2, GD_CYCLE_DAY = 4, GD_CYCLE_COUNT = 3 };

typedef struct gd_cycle {
    const char *name;
    int bit;
    double days, start; /* its length, and a day since 1970 on which it begins */
} gd_cycle;
extern const gd_cycle gd_cycles[GD_CYCLE_COUNT];

/* One column and its features, in this order: the number or the categories, "other", the cycles'
 * sines and cosines, "missing". */
typedef struct gd_encoder_column {
    char *name;
    gd_column_kind kind;
    double mean, deviation; /* of times in days */
    int cycles;
    bool other, missing; /* has that feature */
    gd_categories categories;
} gd_encoder_column;

struct gd_table_encoder {
    gd_encoder_column *columns;
    int64_t column_count, features;
    char *target; /* NULL: none */
    gd_column_kind target_kind;
    gd_task task;
    gd_categories classes;
    double mean, deviation; /* of the target, where it is a number */
};

/* Features of one column. */
int64_t gd_encoder_column_features(const gd_encoder_column *column);
/* A new encoder of as many columns, all zero. */
gd_table_encoder *gd_encoder_make(int64_t column_count);
/* The name of the class that a cell of the target is: the text, or a number's shortest. NULL: the
 * cell is missing or, as a number, is none. */
const char *gd_class_text(const gd_table *table, int64_t row, int64_t column, gd_column_kind kind,
                          char number[GD_NUMBER_TEXT]);

#endif
