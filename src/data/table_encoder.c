/* data/table_encoder.c: what an encoder learns of the columns of the training rows, and what it
 * tells of itself. Start at gd_table_encoder_create_with(). */
#include "data/table.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/options.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const gd_cycle gd_cycles[GD_CYCLE_COUNT] = {
    { "year", GD_CYCLE_YEAR, 365.2425, 0.0 },
    { "week", GD_CYCLE_WEEK, 7.0, 4.0 }, /* 1970-01-05 was a Monday */
    { "day", GD_CYCLE_DAY, 1.0, 0.0 },
};

static const double seconds_per_day = 86400.0;

/* ---- the object ---- */

gd_table_encoder *gd_encoder_make(int64_t column_count)
{
    gd_table_encoder *e = gd_alloc_zero(1, sizeof *e);
    gd_encoder_column *columns =
        e ? gd_alloc_zero((size_t)column_count + 1, sizeof *columns) : NULL;
    if (!columns) {
        gd_free(e);
        return NULL;
    }
    e->columns = columns;
    return e;
}

void gd_table_encoder_release(gd_table_encoder *e)
{
    if (!e)
        return;
    for (int64_t i = 0; i < e->column_count; i++) {
        gd_free(e->columns[i].name);
        gd_categories_free(&e->columns[i].categories);
    }
    gd_free(e->columns);
    gd_free(e->target);
    gd_categories_free(&e->classes);
    gd_free(e);
}

static int64_t cycle_features(int cycles)
{
    int64_t features = 0;
    for (int i = 0; i < GD_CYCLE_COUNT; i++)
        features += cycles & gd_cycles[i].bit ? 2 : 0;
    return features;
}

int64_t gd_encoder_column_features(const gd_encoder_column *c)
{
    int64_t values = c->kind == GD_COLUMN_CATEGORY ? c->categories.count : 1;
    return values + c->other + cycle_features(c->cycles) + c->missing;
}

/* ---- what the columns are ---- */

/* The rows that are learnt from. */
typedef struct learning {
    const gd_table *table;
    const gd_table_encoder_options *options;
    int64_t *rows; /* [count] those whose target is known */
    int64_t count;
    int64_t target; /* -1: none */
} learning;

/* Mean and deviation of a column's known cells, two passes; returns how many there are. */
static int64_t measure(const learning *l, int64_t column, double unit, double *mean,
                       double *deviation)
{
    double sum = 0.0, squares = 0.0;
    int64_t known = 0;
    for (int64_t i = 0; i < l->count; i++) {
        double value = gd_table_number(l->table, l->rows[i], column) / unit;
        if (isnan(value))
            continue;
        sum += value;
        known++;
    }
    *mean = known ? sum / (double)known : 0.0;
    for (int64_t i = 0; i < l->count; i++) {
        double off = gd_table_number(l->table, l->rows[i], column) / unit - *mean;
        squares += isnan(off) ? 0.0 : off * off;
    }
    double variance = known ? squares / (double)known : 0.0;
    /* Equal values whose mean was rounded differ from it by no more than this. */
    bool same = variance <= 1e-28 * *mean * *mean;
    *deviation = same ? 1.0 : sqrt(variance);
    return same && known > 0 ? 1 : known;
}

/* A time of the day other than midnight, in UTC. */
static bool has_clock(const learning *l, int64_t column)
{
    for (int64_t i = 0; i < l->count; i++) {
        double seconds = gd_table_number(l->table, l->rows[i], column);
        if (!isnan(seconds) && fmod(seconds, seconds_per_day) != 0.0)
            return true;
    }
    return false;
}

static int64_t count_missing(const learning *l, int64_t column, gd_column_kind kind)
{
    int64_t missing = 0;
    for (int64_t i = 0; i < l->count; i++)
        missing += kind == GD_COLUMN_CATEGORY
                       ? !gd_table_text(l->table, l->rows[i], column)
                       : isnan(gd_table_number(l->table, l->rows[i], column));
    return missing;
}

static gd_status learn_categories(const learning *l, int64_t column, gd_encoder_column *c)
{
    gd_status status = GD_OK;
    for (int64_t i = 0; status == GD_OK && i < l->count; i++) {
        const char *text = gd_table_text(l->table, l->rows[i], column);
        if (text)
            status = gd_categories_add(&c->categories, text);
    }
    c->other = c->categories.count > l->options->max_categories;
    gd_categories_sort(&c->categories, gd_categories_by_count, l->options->max_categories);
    return status;
}

/* *useful: whether its values differ, a missing one being a value. */
static gd_status learn_column(const learning *l, int64_t column, gd_encoder_column *c, bool *useful)
{
    *c = (gd_encoder_column){ .kind = gd_table_column_kind(l->table, column), .deviation = 1.0 };
    int64_t missing = count_missing(l, column, c->kind), values;
    c->missing = missing > 0;
    if (c->kind == GD_COLUMN_CATEGORY) {
        gd_status status = learn_categories(l, column, c);
        if (status != GD_OK)
            return status;
        values = c->categories.count + c->other;
    } else {
        bool time = c->kind == GD_COLUMN_TIME;
        values = measure(l, column, time ? seconds_per_day : 1.0, &c->mean, &c->deviation);
        if (time)
            c->cycles = GD_CYCLE_YEAR | GD_CYCLE_WEEK | (has_clock(l, column) ? GD_CYCLE_DAY : 0);
    }
    *useful = values > 0 && values + c->missing > 1;
    c->name = gd_strdup(gd_table_column_name(l->table, column));
    return c->name ? GD_OK : GD_ERR_MEMORY;
}

static bool is_ignored(const learning *l, int64_t column)
{
    const gd_table_encoder_options *o = l->options;
    if (column == l->target || gd_table_column_kind(l->table, column) == GD_COLUMN_TEXT)
        return true;
    for (int i = 0; i < o->ignore_count; i++)
        if (strcmp(o->ignore[i], gd_table_column_name(l->table, column)) == 0)
            return true;
    return false;
}

static gd_status learn_columns(const learning *l, gd_table_encoder *e)
{
    for (int64_t column = 0; column < gd_table_columns(l->table); column++) {
        if (is_ignored(l, column))
            continue;
        bool useful = false;
        gd_encoder_column *c = &e->columns[e->column_count];
        gd_status status = learn_column(l, column, c, &useful);
        if (status == GD_OK && useful) {
            e->column_count++;
            e->features += gd_encoder_column_features(c);
            continue;
        }
        gd_free(c->name);
        gd_categories_free(&c->categories);
        *c = (gd_encoder_column){ 0 };
        if (status != GD_OK)
            return status;
    }
    if (e->features == 0)
        return gd_fail(GD_ERR_FORMAT,
                       "%s: no column is left to predict from: those of text, with one value only "
                       "and ignored ones are left out",
                       l->table->name);
    return GD_OK;
}

/* ---- what the target is ---- */

static bool are_few_whole_numbers(const gd_table *t, int64_t column)
{
    enum { FEW = 20 };
    if (gd_table_column_distinct(t, column) > FEW)
        return false;
    for (int64_t row = 0; row < t->rows; row++) {
        double value = gd_table_number(t, row, column);
        if (!isnan(value) && value != floor(value))
            return false;
    }
    return true;
}

static gd_task find_task(const learning *l, gd_task wanted)
{
    if (wanted != GD_TASK_DEFAULT)
        return wanted;
    return gd_table_column_kind(l->table, l->target) == GD_COLUMN_NUMBER &&
                   !are_few_whole_numbers(l->table, l->target)
               ? GD_TASK_REGRESSION
               : GD_TASK_CLASSIFICATION;
}

const char *gd_class_text(const gd_table *t, int64_t row, int64_t column, gd_column_kind kind,
                          char number[GD_NUMBER_TEXT])
{
    const char *text = gd_table_text(t, row, column);
    double value;
    if (!text || kind != GD_COLUMN_NUMBER)
        return text;
    return gd_cell_number(text, t->decimal_comma, &value) && !isnan(value)
               ? gd_number_text(value, number)
               : NULL;
}

static gd_status fail_classes(const learning *l, const char *problem)
{
    return gd_fail(GD_ERR_FORMAT, "%s: column \"%s\" cannot be the target of a classification: %s",
                   l->table->name, gd_table_column_name(l->table, l->target), problem);
}

/* Those of all rows, so that a rare one is known even if no training row has it. */
static gd_status learn_classes(const learning *l, gd_table_encoder *e)
{
    char number[GD_NUMBER_TEXT];
    gd_status status = GD_OK;
    if (e->target_kind == GD_COLUMN_TIME)
        return fail_classes(l, "it has times");
    if (e->target_kind == GD_COLUMN_TEXT && l->options->task == GD_TASK_DEFAULT)
        return fail_classes(l, "its texts do not recur");
    for (int64_t row = 0; status == GD_OK && row < l->table->rows; row++) {
        const char *text = gd_class_text(l->table, row, l->target, e->target_kind, number);
        if (text)
            status = gd_categories_add(&e->classes, text);
        if (e->classes.count > GD_TABLE_MAX_CATEGORIES)
            return fail_classes(l, "it has too many different values");
    }
    if (status == GD_OK && e->classes.count < 2)
        return fail_classes(l, "it has one value only");
    gd_categories_sort(&e->classes,
                       e->target_kind == GD_COLUMN_NUMBER ? gd_categories_by_number
                                                          : gd_categories_by_bytes,
                       GD_TABLE_MAX_CATEGORIES);
    return status;
}

static gd_status learn_number(const learning *l, gd_table_encoder *e)
{
    double value;
    for (int64_t row = 0; row < l->table->rows; row++) {
        const char *text = gd_table_text(l->table, row, l->target);
        if (e->target_kind != GD_COLUMN_BOOLEAN && text &&
            !gd_cell_number(text, l->table->decimal_comma, &value)) {
            char problem[128];
            snprintf(problem, sizeof problem,
                     "\"%.64s\" is not a number, which a regression predicts", text);
            return gd_cell_fail(l->table, row, l->target, problem);
        }
    }
    (void)measure(l, l->target, 1.0, &e->mean, &e->deviation);
    return GD_OK;
}

static gd_status learn_target(const learning *l, gd_table_encoder *e)
{
    if (l->target < 0)
        return GD_OK;
    e->target = gd_strdup(l->options->target);
    e->target_kind = gd_table_column_kind(l->table, l->target);
    e->task = find_task(l, l->options->task);
    if (!e->target)
        return GD_ERR_MEMORY;
    return e->task == GD_TASK_CLASSIFICATION ? learn_classes(l, e) : learn_number(l, e);
}

/* ---- creation ---- */

static gd_status fail_column(const gd_table *table, const char *what, const char *name)
{
    gd_nearest nearest = { .given = name };
    char words[GD_NEAREST_TEXT];
    for (int64_t c = 0; c < gd_table_columns(table); c++)
        gd_nearest_try(&nearest, gd_table_column_name(table, c));
    return gd_fail(GD_ERR_INVALID, "gd_table_encoder_create: %s has no column \"%s\"%s%s%s",
                   table->name, name, what, gd_table_only_names(table, name),
                   gd_nearest_words(&nearest, words));
}

static gd_status check(const gd_table *table, const gd_table_encoder_options *o)
{
    static const char who[] = "gd_table_encoder_create";
    if (!table)
        return gd_fail(GD_ERR_INVALID, "%s: the table is NULL", who);
    if (o->max_categories < 1 || o->max_categories > GD_TABLE_MAX_CATEGORIES)
        return gd_fail(GD_ERR_INVALID, "%s: max_categories %lld; 1 to %d are possible", who,
                       (long long)o->max_categories, GD_TABLE_MAX_CATEGORIES);
    if ((unsigned)o->task > GD_TASK_REGRESSION)
        return gd_fail(GD_ERR_INVALID, "%s: there is no task %d", who, (int)o->task);
    if (o->ignore_count < 0 || (o->ignore_count > 0 && !o->ignore) ||
        (o->row_count >= 0 && !o->rows))
        return gd_fail(GD_ERR_INVALID, "%s: a list is NULL", who);
    if (o->target && gd_table_find(table, o->target) < 0)
        return fail_column(table, "", o->target);
    for (int i = 0; i < o->ignore_count; i++) {
        if (gd_table_find(table, o->ignore[i]) < 0)
            return fail_column(table, " to ignore", o->ignore[i]);
        if (o->target && strcmp(o->target, o->ignore[i]) == 0)
            return gd_fail(GD_ERR_INVALID,
                           "%s: column \"%s\" is to be predicted, and to be ignored", who,
                           o->target);
    }
    for (int64_t i = 0; i < o->row_count; i++)
        if (o->rows[i] < 0 || o->rows[i] >= table->rows)
            return gd_fail(GD_ERR_SHAPE, "%s: row %lld of %lld", who, (long long)o->rows[i],
                           (long long)table->rows);
    return GD_OK;
}

/* The training rows whose target is known. */
static gd_status choose_rows(learning *l)
{
    const gd_table_encoder_options *o = l->options;
    int64_t count = o->row_count >= 0 ? o->row_count : l->table->rows;
    l->rows = gd_alloc((size_t)count * sizeof *l->rows + 1);
    if (!l->rows)
        return GD_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = o->row_count >= 0 ? o->rows[i] : i;
        if (l->target < 0 || gd_table_text(l->table, row, l->target))
            l->rows[l->count++] = row;
    }
    if (l->count == 0)
        return gd_fail(GD_ERR_FORMAT, "%s: there are no rows to learn from%s", l->table->name,
                       l->target >= 0 ? ": the target is missing in all of them" : "");
    return GD_OK;
}

gd_table_encoder *gd_table_encoder_create_with(const gd_table *table,
                                               const gd_table_encoder_options *options)
{
    gd_table_encoder_options o = { GD_TABLE_ENCODER_DEFAULTS };
    if (!gd_options_read("gd_table_encoder_create", &o, sizeof o, options) ||
        check(table, &o) != GD_OK)
        return NULL;
    learning l = { .table = table, .options = &o, .target = gd_table_find(table, o.target) };
    gd_table_encoder *e = gd_encoder_make(gd_table_columns(table));
    gd_status status = e ? choose_rows(&l) : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = learn_target(&l, e);
    if (status == GD_OK)
        status = learn_columns(&l, e);
    gd_free(l.rows);
    if (status == GD_OK)
        return e;
    gd_table_encoder_release(e);
    return NULL;
}

/* ---- what it tells ---- */

int64_t gd_table_encoder_features(const gd_table_encoder *e)
{
    return e ? e->features : 0;
}

/* The name of feature `at` of one column. */
static void format_feature(gd_text *text, const gd_encoder_column *c, int64_t at)
{
    bool category = c->kind == GD_COLUMN_CATEGORY;
    int64_t values = category ? c->categories.count : 1;
    gd_text_add(text, "%s", c->name);
    if (at < values) {
        if (category)
            gd_text_add(text, "=%s", c->categories.items[at].name);
        return;
    }
    at -= values;
    if (c->other && at-- == 0) {
        gd_text_add(text, " other");
        return;
    }
    for (int i = 0; i < GD_CYCLE_COUNT; i++) {
        if (!(c->cycles & gd_cycles[i].bit))
            continue;
        if (at < 2) {
            gd_text_add(text, " %s %s", gd_cycles[i].name, at == 0 ? "sin" : "cos");
            return;
        }
        at -= 2;
    }
    gd_text_add(text, " missing");
}

size_t gd_table_encoder_format_feature(const gd_table_encoder *e, int64_t feature, char *text,
                                       size_t size)
{
    gd_text out = { text, size, 0 };
    if (size > 0)
        text[0] = '\0';
    for (int64_t i = 0; e && feature >= 0 && i < e->column_count; i++) {
        int64_t features = gd_encoder_column_features(&e->columns[i]);
        if (feature < features) {
            format_feature(&out, &e->columns[i], feature);
            break;
        }
        feature -= features;
    }
    return out.length;
}

const char *gd_table_encoder_target(const gd_table_encoder *e)
{
    return e ? e->target : NULL;
}

int64_t gd_table_encoder_classes(const gd_table_encoder *e)
{
    return e ? e->classes.count : 0;
}

const char *gd_table_encoder_class_name(const gd_table_encoder *e, int64_t index)
{
    return e && index >= 0 && index < e->classes.count ? e->classes.items[index].name : NULL;
}

double gd_table_encoder_decode(const gd_table_encoder *e, double value)
{
    return e && e->task == GD_TASK_REGRESSION ? value * e->deviation + e->mean : value;
}
