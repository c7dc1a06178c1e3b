/* gradus/table.h: tables of rows and columns in text files (CSV, TSV), and what makes tensors of
 * them. Start at gd_table_load() for the file, at gd_table_encoder_create() for the numbers a model
 * is trained on.
 *
 *     gd_table *table = gd_table_load(path);
 *     gd_table_encoder *encoder = gd_table_encoder_create(table, .target = "price");
 *     float features[1000];
 *     gd_table_encode(encoder, table, 10, NULL, features, NULL);
 *
 * An encoder belongs to the model that was trained with it: kept as text
 * (gd_table_encoder_format_json) in the model's file, it gives the same numbers for the same row
 * ever after. Neither object belongs to a context; the caller releases both.
 */
#ifndef GRADUS_TABLE_H
#define GRADUS_TABLE_H

#include <gradus/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tables ---- */

#define GD_TABLE_MAX_COLUMNS    16384
#define GD_TABLE_MAX_CATEGORIES 4096 /* different texts of a category, and classes */

/* What the cells of a column are, found out from all of them. */
typedef enum gd_column_kind {
    GD_COLUMN_TEXT,     /* as many different texts as rows, nearly: names, remarks */
    GD_COLUMN_NUMBER,   /* 3, -0.5, 1e-3 */
    GD_COLUMN_BOOLEAN,  /* true false, yes no, t f, y n, in any case; 0 and 1 are numbers */
    GD_COLUMN_CATEGORY, /* texts that recur */
    GD_COLUMN_TIME,     /* ISO 8601: 2024-02-29, 2024-02-29T13:45, 2024-02-29 13:45:06.5+01:00 */
    GD_COLUMN_KIND_COUNT
} gd_column_kind;

/* "text", "number", "boolean", "category", "time"; "?" for a number that is no kind. */
GD_API const char *gd_column_kind_name(gd_column_kind kind);

typedef struct gd_table gd_table;

typedef struct gd_table_options {
    size_t size GD_DEFAULT(sizeof(gd_table_options));
    const char *separator;     /* of cells, one character; NULL: "," "\t" ";" or "|", found out */
    int header GD_DEFAULT(-1); /* 1: the first record has the names of the columns; 0: it is a row,
                                  and they are "column1", "column2" …; -1: found out */
    bool decimal_comma;        /* numbers are written 3,14 */
    const char *comment GD_DEFAULT("#"); /* lines before the first record that begin so are passed
                                            over; NULL: none are */
    size_t max_bytes GD_DEFAULT((size_t)1 << 30); /* of the file, decompressed */
} gd_table_options;
#define GD_TABLE_DEFAULTS \
    .size = sizeof(gd_table_options), .header = -1, .comment = "#", .max_bytes = (size_t)1 << 30

/* gd_table_load("table.csv"), gd_table_load("table.tsv", .separator = "\t"): RFC 4180 with LF, CRLF
 * or CR, UTF-8 with or without its mark, plain or compressed with gzip. Cells without quotation
 * marks lose the spaces around them; lines without a character are passed over. A cell is missing
 * when it is empty, NA, N/A, NaN, null, <NA>, #N/A or ?, in any case, and of a column of numbers
 * when it is infinite or beyond the range of f32. Errors name the file, the line and the column:
 * GD_ERR_IO; GD_ERR_FORMAT (rows of different lengths, an open quotation mark, two columns of one
 * name, not UTF-8, more than max_bytes, no rows); GD_ERR_MEMORY; GD_ERR_UNSUPPORTED (gzip in a
 * build without zlib). */
#define gd_table_load(...) \
    GD_WITH_1(gd_table_load_with, gd_table_options, GD_TABLE_DEFAULTS, __VA_ARGS__, )
GD_API gd_table *gd_table_load_with(const char *path, const gd_table_options *options);
/* The same from `size` bytes of text, which are copied. Errors call them "memory". */
#define gd_table_create(...) \
    GD_WITH_2(gd_table_create_with, gd_table_options, GD_TABLE_DEFAULTS, __VA_ARGS__, )
GD_API gd_table *gd_table_create_with(const char *text, size_t size,
                                      const gd_table_options *options);
/* A table of another library's: of the Arrow C stream interface
 * (https://arrow.apache.org/docs/format/CStreamInterface.html), which pyarrow, Polars, pandas, DuckDB and
 * the Arrow libraries of C++, Rust and GLib give, of Parquet files, too. The stream is read to its end
 * and released in any case. Columns of integers, floats, decimals of 128 bits, booleans, texts, dates
 * and timestamps (in UTC), and dictionaries of them; nulls and numbers that are not finite are missing. Kinds are the
 * stream's, but that texts are categories where they recur, and times where all of them are ISO 8601.
 * gd_table_line() counts the rows. GD_ERR_UNSUPPORTED: a column of another type, which is named;
 * GD_ERR_IO: the stream's own error; GD_ERR_FORMAT: no columns or rows, two columns of one name, texts
 * that are not UTF-8; GD_ERR_MEMORY, GD_ERR_INVALID. */
typedef struct ArrowArrayStream ArrowArrayStream;
GD_API gd_table *gd_table_create_arrow(ArrowArrayStream *stream);
GD_API void gd_table_release(gd_table *table);

/* 0 for NULL. */
GD_API int64_t gd_table_rows(const gd_table *table);
GD_API int64_t gd_table_columns(const gd_table *table);
/* Of column 0 … columns-1; NULL for any other. */
GD_API const char *gd_table_column_name(const gd_table *table, int64_t column);
/* The column of that name, -1 (and no error) if there is none. */
GD_API int64_t gd_table_find(const gd_table *table, const char *name);
/* GD_COLUMN_TEXT for no column. */
GD_API gd_column_kind gd_table_column_kind(const gd_table *table, int64_t column);
/* Read the column as of another kind: a code as a category, not as a number. GD_ERR_FORMAT names
 * the first cell that is none, or GD_TABLE_MAX_CATEGORIES. */
GD_API gd_status gd_table_set_column_kind(gd_table *table, int64_t column, gd_column_kind kind);
/* Cells of the column that are missing; 0 for no column. */
GD_API int64_t gd_table_column_missing(const gd_table *table, int64_t column);
/* Different texts in the column, those that are missing left out; counted up to
 * GD_TABLE_MAX_CATEGORIES + 1. */
GD_API int64_t gd_table_column_distinct(const gd_table *table, int64_t column);
/* A cell as it stands in the file, without its quotation marks; NULL where it is missing, or is no
 * cell. */
GD_API const char *gd_table_text(const gd_table *table, int64_t row, int64_t column);
/* A cell of a number, a boolean (1, 0) or a time (seconds since 1970-01-01T00:00Z, local times
 * taken as UTC); NaN where it is missing or none of these. */
GD_API double gd_table_number(const gd_table *table, int64_t row, int64_t column);
/* The line of the file, from 1, in which a row begins; 0 for no row. */
GD_API int64_t gd_table_line(const gd_table *table, int64_t row);
/* The rows whose cell of that column is not missing, into rows[gd_table_rows()], in order; returns
 * how many there are. rows NULL: they are counted. */
GD_API int64_t gd_table_known_rows(const gd_table *table, int64_t column, int64_t *rows);

/* ---- encoders: from rows to numbers ---- */

typedef enum gd_task {
    GD_TASK_DEFAULT,        /* as the target column says */
    GD_TASK_CLASSIFICATION, /* the target is a class */
    GD_TASK_REGRESSION      /* the target is a number */
} gd_task;

typedef struct gd_table_encoder gd_table_encoder;

typedef struct gd_table_encoder_options {
    size_t size GD_DEFAULT(sizeof(gd_table_encoder_options));
    const char *target; /* the column that is to be predicted; NULL: none, and there is no y */
    gd_task task;
    int ignore_count;          /* columns that are left out: numbers of rows, other targets */
    const char *const *ignore; /* [ignore_count] */
    int64_t max_categories GD_DEFAULT(32); /* of one column; rarer ones are "other" */
    int64_t row_count GD_DEFAULT(-1);      /* the rows that are learnt from; -1: all */
    const int64_t *rows;                   /* [row_count] */
} gd_table_encoder_options;
#define GD_TABLE_ENCODER_DEFAULTS \
    .size = sizeof(gd_table_encoder_options), .max_categories = 32, .row_count = -1, .rows = NULL

/* gd_table_encoder_create(table, .target = "price"): learns from the
 * training rows what each column is:
 *
 *   number, boolean   (value - mean) / deviation; missing: 0, the mean
 *   category          one feature each, 0 or 1, the most frequent first; "other" for those beyond
 *                     max_categories, where there are any. One that was not seen, then: "other",
 *                     else all 0
 *   time              days, as a number; sine and cosine of the year and the week, and of the day
 *                     where times of the day occur; missing: 0
 *   all kinds         one feature more, "missing", where a cell of the training rows is
 *
 * Columns of text, those with one value only and the ignored ones are left out. The deviation is
 * that of the population (as scikit-learn's StandardScaler).
 *
 * The target is a class (text, category, boolean, and whole numbers of at most 20 different values)
 * or a number, standardised like the features; .task decides otherwise. Classes are those of the
 * whole table, in the order of their numbers, or else of their bytes. Rows whose target is missing
 * are passed over. GD_ERR_INVALID: no such column; GD_ERR_FORMAT: a target that cannot be what is
 * wanted of it, or no column that tells anything; GD_ERR_MEMORY. */
#define gd_table_encoder_create(...)                                                             \
    GD_WITH_1(gd_table_encoder_create_with, gd_table_encoder_options, GD_TABLE_ENCODER_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_table_encoder *gd_table_encoder_create_with(const gd_table *table,
                                                      const gd_table_encoder_options *options);
GD_API void gd_table_encoder_release(gd_table_encoder *encoder);

/* Features of a row: the width of x. */
GD_API int64_t gd_table_encoder_features(const gd_table_encoder *encoder);
/* What feature 0 … features-1 is, "age", "age missing", "city=Paris", "day week sin", into `text` by
 * the conventions of gd_tensor_format; 0 for any other. */
GD_API size_t gd_table_encoder_format_feature(const gd_table_encoder *encoder, int64_t feature,
                                              char *text, size_t size);
/* The target column; NULL: there is none. */
GD_API const char *gd_table_encoder_target(const gd_table_encoder *encoder);
/* Classes of the target; 0: it is a number, or there is none. */
GD_API int64_t gd_table_encoder_classes(const gd_table_encoder *encoder);
/* The name of class 0 … classes-1; NULL for any other. */
GD_API const char *gd_table_encoder_class_name(const gd_table_encoder *encoder, int64_t index);
/* A prediction of a standardised target in the target's own unit: value * deviation + mean. */
GD_API double gd_table_encoder_decode(const gd_table_encoder *encoder, double value);

/* The numbers of `row_count` rows of a table, rows[i] or, where rows is NULL, i: x [row_count,
 * features], and the target into y: int64_t [row_count], its classes, or float [row_count],
 * standardised. x or y NULL: not wanted; without y the target column may be missing. The table's
 * columns are found by name and may stand in any order. GD_ERR_FORMAT: a column is missing, or a
 * cell is not of the kind that was learnt, a class unknown, a target missing: file, line and column
 * are named. GD_ERR_SHAPE: a row there is none of. */
GD_API gd_status gd_table_encode(const gd_table_encoder *encoder, const gd_table *table,
                                 int64_t row_count, const int64_t *rows, float *x, void *y);

/* The same as a data set of the context: the field "x" [features], and where the encoder has a target
 * "y", class indices i64 with their names, or numbers f32 [1]. The table and the encoder may be
 * released after it. Errors of gd_table_encode and gd_dataset_from_arrays. */
GD_API gd_dataset *gd_table_dataset(gd_context *context, const gd_table_encoder *encoder,
                                    const gd_table *table, int64_t row_count, const int64_t *rows);

/* The encoder as JSON text by the conventions of gd_tensor_format, and back: the numbers it gives
 * are the same bit for bit. 0 or NULL: GD_ERR_FORMAT, GD_ERR_MEMORY, GD_ERR_UNSUPPORTED (a build
 * without jansson). */
GD_API size_t gd_table_encoder_format_json(const gd_table_encoder *encoder, char *text,
                                           size_t size);
GD_API gd_table_encoder *gd_table_encoder_create_json(const char *json);

#ifdef __cplusplus
}
#endif
#endif
