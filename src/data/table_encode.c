/* data/table_encode.c: rows of a table as the numbers an encoder makes of them. Start at
 * gd_table_encode(). */
#include "data/table.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The table that is encoded, and which of its columns each of the encoder's is. */
typedef struct encoding {
    const gd_table_encoder *encoder;
    const gd_table *table;
    int64_t *columns; /* [column_count] */
    int64_t target;
} encoding;

static gd_status fail_column(const gd_table *table, const char *name)
{
    gd_nearest nearest = { .given = name };
    char words[GD_NEAREST_TEXT];
    for (int64_t c = 0; c < gd_table_columns(table); c++)
        gd_nearest_try(&nearest, gd_table_column_name(table, c));
    return gd_fail(GD_ERR_FORMAT, "%s: there is no column \"%s\"%s%s", table->name, name,
                   gd_table_only_names(table, name), gd_nearest_words(&nearest, words));
}

static gd_status find_columns(encoding *n, bool wants_x, bool wants_y)
{
    const gd_table_encoder *e = n->encoder;
    n->columns = gd_alloc_zero((size_t)e->column_count, sizeof *n->columns);
    if (!n->columns)
        return GD_ERR_MEMORY;
    for (int64_t i = 0; wants_x && i < e->column_count; i++) {
        n->columns[i] = gd_table_find(n->table, e->columns[i].name);
        if (n->columns[i] < 0)
            return fail_column(n->table, e->columns[i].name);
    }
    n->target = gd_table_find(n->table, e->target);
    if (wants_y && !e->target)
        return gd_fail(GD_ERR_INVALID, "gd_table_encode: the encoder has no target");
    return wants_y && n->target < 0 ? fail_column(n->table, e->target) : GD_OK;
}

static float *encode_category(const gd_encoder_column *c, const char *text, float *x)
{
    int64_t index = text ? gd_categories_find(&c->categories, text) : -1;
    for (int64_t i = 0; i < c->categories.count; i++)
        *x++ = i == index ? 1.0f : 0.0f;
    if (c->other)
        *x++ = text && index < 0 ? 1.0f : 0.0f;
    return x;
}

static float *encode_cycles(const gd_encoder_column *c, double days, float *x)
{
    const double turn = 6.283185307179586;
    for (int i = 0; i < GD_CYCLE_COUNT; i++) {
        if (!(c->cycles & gd_cycles[i].bit))
            continue;
        double angle = turn * fmod((days - gd_cycles[i].start) / gd_cycles[i].days, 1.0);
        *x++ = isnan(days) ? 0.0f : (float)sin(angle);
        *x++ = isnan(days) ? 0.0f : (float)cos(angle);
    }
    return x;
}

/* The features of one cell. Returns where the next ones go; NULL: the cell is not of the kind. */
static float *encode_cell(const encoding *n, const gd_encoder_column *c, int64_t row,
                          int64_t column, float *x)
{
    const char *text = gd_table_text(n->table, row, column);
    double value = 0.0;
    if (!gd_cell_value(n->table, text, c->kind, &value)) {
        char problem[160];
        snprintf(problem, sizeof problem, "\"%.64s\" is not a %s, as it was where it was learnt",
                 text, gd_column_kind_name(c->kind));
        (void)gd_cell_fail(n->table, row, column, problem);
        return NULL;
    }
    bool missing = c->kind == GD_COLUMN_CATEGORY ? !text : isnan(value);
    if (c->kind == GD_COLUMN_CATEGORY)
        x = encode_category(c, text, x);
    else {
        value = c->kind == GD_COLUMN_TIME ? value / 86400.0 : value;
        *x++ = missing ? 0.0f : (float)((value - c->mean) / c->deviation);
        x = encode_cycles(c, value, x);
    }
    if (c->missing)
        *x++ = missing ? 1.0f : 0.0f;
    return x;
}

static gd_status encode_row(const encoding *n, int64_t row, float *x)
{
    for (int64_t i = 0; x && i < n->encoder->column_count; i++)
        x = encode_cell(n, &n->encoder->columns[i], row, n->columns[i], x);
    return x ? GD_OK : GD_ERR_FORMAT;
}

/* The class of a row. */
static gd_status encode_class(const encoding *n, int64_t row, int64_t *y)
{
    const gd_table_encoder *e = n->encoder;
    char number[GD_NUMBER_TEXT], problem[160];
    const char *text = gd_class_text(n->table, row, n->target, e->target_kind, number);
    *y = text ? gd_categories_find(&e->classes, text) : -1;
    if (*y >= 0)
        return GD_OK;
    const char *cell = gd_table_text(n->table, row, n->target);
    snprintf(problem, sizeof problem, "\"%.64s\" is none of the %lld classes that were learnt",
             cell ? cell : "", (long long)e->classes.count);
    return gd_cell_fail(n->table, row, n->target, cell ? problem : "the target is missing");
}

static gd_status encode_number(const encoding *n, int64_t row, float *y)
{
    const gd_table_encoder *e = n->encoder;
    const char *text = gd_table_text(n->table, row, n->target);
    double value;
    gd_column_kind kind =
        e->target_kind == GD_COLUMN_BOOLEAN ? GD_COLUMN_BOOLEAN : GD_COLUMN_NUMBER;
    if (!gd_cell_value(n->table, text, kind, &value))
        return gd_cell_fail(n->table, row, n->target, "the target is not a number");
    if (isnan(value))
        return gd_cell_fail(n->table, row, n->target, "the target is missing");
    *y = (float)((value - e->mean) / e->deviation);
    return GD_OK;
}

static gd_status encode_rows(const encoding *n, int64_t row_count, const int64_t *rows, float *x,
                             void *y)
{
    gd_status status = GD_OK;
    for (int64_t i = 0; status == GD_OK && i < row_count; i++) {
        int64_t row = rows ? rows[i] : i;
        if (row < 0 || row >= gd_table_rows(n->table))
            return gd_fail(GD_ERR_SHAPE, "gd_table_encode: row %lld of %lld", (long long)row,
                           (long long)gd_table_rows(n->table));
        if (x)
            status = encode_row(n, row, x + i * n->encoder->features);
        if (status == GD_OK && y)
            status = n->encoder->task == GD_TASK_CLASSIFICATION
                         ? encode_class(n, row, (int64_t *)y + i)
                         : encode_number(n, row, (float *)y + i);
    }
    return status;
}

gd_status gd_table_encode(const gd_table_encoder *encoder, const gd_table *table, int64_t row_count,
                          const int64_t *rows, float *x, void *y)
{
    if (!encoder || !table)
        return gd_fail(GD_ERR_INVALID, "gd_table_encode: the %s is NULL",
                       encoder ? "table" : "encoder");
    encoding n = { .encoder = encoder, .table = table };
    gd_status status = find_columns(&n, x != NULL, y != NULL);
    if (status == GD_OK)
        status = encode_rows(&n, row_count, rows, x, y);
    gd_free(n.columns);
    return status;
}

static gd_dataset *make_dataset(gd_context *context, const gd_table_encoder *e, int64_t row_count,
                                float *x, void *y)
{
    const char **names = gd_alloc_zero((size_t)e->classes.count + 1, sizeof *names);
    if (!names)
        return NULL;
    for (int64_t i = 0; i < e->classes.count; i++)
        names[i] = e->classes.items[i].name;
    bool classes = e->task == GD_TASK_CLASSIFICATION;
    const gd_field fields[] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(e->features) },
        { GD_FIELD_DEFAULTS, .name = "y", .dtype = classes ? GD_I64 : GD_F32,
          .shape = classes ? GD_SCALAR : GD_SHAPE(1), .classes = e->classes.count,
          .class_names = classes ? names : NULL },
    };
    const void *const arrays[] = { x, y };
    gd_dataset *d = gd_dataset_from_arrays(context, row_count, e->target ? 2 : 1, fields, arrays);
    gd_free(names);
    return d;
}

gd_dataset *gd_table_dataset(gd_context *context, const gd_table_encoder *encoder,
                             const gd_table *table, int64_t row_count, const int64_t *rows)
{
    if (!context)
        return NULL;
    if (!encoder || row_count < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_table_dataset: no encoder, or no rows");
    float *x = gd_alloc_zero((size_t)row_count, (size_t)encoder->features * sizeof *x);
    int64_t *y = gd_alloc_zero((size_t)row_count, sizeof *y); /* or as many f32 */
    gd_dataset *d = NULL;
    if (x && y &&
        gd_table_encode(encoder, table, row_count, rows, x, encoder->target ? y : NULL) == GD_OK)
        d = make_dataset(context, encoder, row_count, x, y);
    gd_free(x);
    gd_free(y);
    return d;
}
