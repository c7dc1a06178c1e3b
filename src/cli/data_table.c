/* cli/data_table.c: tables (CSV, TSV): which column is predicted, training and validation rows, and a
 * multilayer perceptron over their features. Start at open_table(). */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_table(const char *path)
{
    struct stat status;
    static const char *const endings[] = { ".csv", ".tsv", ".tab", ".data" };
    if (stat(path, &status) != 0 || S_ISDIR(status.st_mode))
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (cli_has_ending(path, endings[i]))
            return true;
    return false;
}

/* ---- what the user says of it ---- */

/* "which column …: age, city, price" */
static bool ask_for_target(const gd_table *t)
{
    char text[1024];
    if (gd_table_rows(t) < 2 && strcmp(gd_table_column_name(t, 0), "column1") == 0)
        return gd_error_record(GD_ERR_FORMAT, "the table has names of columns and no rows, or one "
                                              "row alone") == GD_OK;
    int at = snprintf(text, sizeof text,
                      "which column is to be predicted? --target NAME. There "
                      "are: ");
    for (int64_t c = 0; c < gd_table_columns(t) && at < (int)sizeof text - 80; c++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%.64s", c ? ", " : "",
                       gd_table_column_name(t, c));
    (void)gd_error_record(GD_ERR_INVALID, text);
    return false;
}

/* The task's code; -1: there is none of that name, which is recorded. */
static int find_task(const char *name)
{
    char problem[160];
    if (!name)
        return GD_TASK_DEFAULT;
    if (strcmp(name, "classification") == 0)
        return GD_TASK_CLASSIFICATION;
    if (strcmp(name, "regression") == 0)
        return GD_TASK_REGRESSION;
    snprintf(problem, sizeof problem, "--task is classification or regression, not '%.64s'", name);
    (void)gd_error_record(GD_ERR_INVALID, problem);
    return -1;
}

#define MAX_IGNORED 64

typedef struct wishes {
    gd_task task;
    char *text; /* of the names */
    const char *ignored[MAX_IGNORED];
    int ignored_count;
} wishes;

static bool read_wishes(wishes *w, const cli_data_options *o)
{
    int task = find_task(o->task);
    *w = (wishes){ .task = task < 0 ? GD_TASK_DEFAULT : (gd_task)task };
    w->text = strdup(o->ignore ? o->ignore : "");
    for (char *at = w->text, *name; w->text && (name = strsep(&at, ",")) && *name;)
        if (w->ignored_count < MAX_IGNORED)
            w->ignored[w->ignored_count++] = name;
    return task >= 0 && w->text;
}

static gd_table_encoder *learn(const cli_data *d, const cli_data_options *o, const wishes *w,
                               int64_t count, const int64_t *rows)
{
    return gd_table_encoder_create(d->table, .target = o->target, .task = w->task,
                                   .ignore_count = w->ignored_count, .ignore = w->ignored,
                                   .row_count = count, .rows = rows);
}

/* ---- the split ---- */

/* The rows of a part of a data set whose first field is their numbers. */
static bool read_rows(const gd_dataset *part, int64_t *rows)
{
    gd_tensor *tensors[2];
    size_t bytes = (size_t)gd_dataset_count(part) * sizeof *rows;
    return gd_dataset_get(part, 0, gd_dataset_count(part), tensors) == GD_OK &&
           gd_tensor_read(tensors[0], rows, bytes) == GD_OK;
}

/* Training rows to the front of `rows`, validation rows behind them; *training: how many there are.
 * Classes are in both in the same shares. */
static bool split_rows(const cli_data *d, const cli_data_options *o, int64_t count, int64_t *rows,
                       const int64_t *classes, int64_t *training)
{
    const gd_field fields[] = {
        { GD_FIELD_DEFAULTS, .name = "row", .dtype = GD_I64 },
        { GD_FIELD_DEFAULTS, .name = "class", .dtype = GD_I64, .classes = -1 },
    };
    const void *const arrays[] = { rows, classes };
    gd_dataset *all = gd_dataset_from_arrays(d->context, count, classes ? 2 : 1, fields, arrays);
    gd_dataset *first = NULL, *second = NULL;
    bool ok =
        all && gd_dataset_split(all, 1.0 - o->validation, &first, &second,
                                .seed = (uint64_t)o->seed, .stratify = classes ? 1 : -1) == GD_OK;
    *training = gd_dataset_count(first);
    ok = ok && read_rows(first, rows) && read_rows(second, rows + *training);
    gd_dataset_release(first);
    gd_dataset_release(second);
    gd_dataset_release(all);
    return ok;
}

/* ---- opening ---- */

/* Whether a feature is made of the column: features are called by it, with more behind. */
static bool is_used(const gd_table_encoder *e, const char *column)
{
    size_t length = strlen(column);
    for (int64_t i = 0; i < gd_table_encoder_features(e); i++) {
        char feature[512];
        (void)gd_table_encoder_format_feature(e, i, feature, sizeof feature);
        if (strncmp(feature, column, length < sizeof feature ? length : sizeof feature - 1) == 0)
            return true;
    }
    return false;
}

/* "; left out: id, remark" of the columns that nothing is predicted from; into the text from `at` on. */
static int describe_left_out(const cli_data *d, const char *target, char *text, int at, int size)
{
    int left_out = 0;
    for (int64_t c = 0; c < gd_table_columns(d->table) && left_out < 8; c++) {
        const char *name = gd_table_column_name(d->table, c);
        if (strcmp(name, target) != 0 && !is_used(d->encoder, name))
            at += snprintf(text + at, (size_t)(size - at), "%s%.24s",
                           left_out++ ? ", " : " (left out: ", name);
    }
    return at + snprintf(text + at, (size_t)(size - at), "%s", left_out ? ")" : "");
}

static void describe(cli_data *d, const cli_data_options *o)
{
    int64_t columns = gd_table_columns(d->table), features = gd_table_encoder_features(d->encoder);
    int at = snprintf(d->about, sizeof d->about, "%lld columns, %lld feature%s", (long long)columns,
                      (long long)features, features == 1 ? "" : "s");
    at = describe_left_out(d, o->target, d->about, at, (int)sizeof d->about);
    at += snprintf(d->about + at, sizeof d->about - (size_t)at, "; %.64s: ", o->target);
    if (d->regression) {
        snprintf(d->about + at, sizeof d->about - (size_t)at, "a number");
        return;
    }
    at += snprintf(d->about + at, sizeof d->about - (size_t)at, "%lld classes",
                   (long long)d->outputs);
    for (int64_t i = 0; i < d->outputs && i < 8; i++)
        at += snprintf(d->about + at, sizeof d->about - (size_t)at, "%s%.24s", i ? ", " : " (",
                       gd_table_encoder_class_name(d->encoder, i));
    snprintf(d->about + at, sizeof d->about - (size_t)at, d->outputs > 8 ? ", ...)" : ")");
}

static bool keep_encoder(cli_data *d)
{
    size_t length = gd_table_encoder_format_json(d->encoder, NULL, 0);
    char *json = length ? malloc(length + 1) : NULL;
    bool ok = json && gd_table_encoder_format_json(d->encoder, json, length + 1) == length &&
              cli_data_keep(d, "encoder", json);
    free(json);
    return ok;
}

/* Encoder and data sets, of the rows whose target is known. */
static bool make_sets(cli_data *d, const cli_data_options *o, const wishes *w, int64_t *rows,
                      int64_t *classes)
{
    int64_t count = gd_table_known_rows(d->table, gd_table_find(d->table, o->target), rows);
    gd_table_encoder *all = learn(d, o, w, count, rows);
    if (!all)
        return false;
    int64_t training = 0;
    bool classify = gd_table_encoder_classes(all) > 0;
    bool ok = (!classify || gd_table_encode(all, d->table, count, rows, NULL, classes) == GD_OK) &&
              split_rows(d, o, count, rows, classify ? classes : NULL, &training);
    gd_table_encoder_release(all);
    if (!ok)
        return false;
    d->encoder = learn(d, o, w, training, rows);
    d->train = gd_table_dataset(d->context, d->encoder, d->table, training, rows);
    d->validation =
        gd_table_dataset(d->context, d->encoder, d->table, count - training, rows + training);
    d->rows = malloc((size_t)(count - training + 1) * sizeof *d->rows);
    if (d->rows)
        memcpy(d->rows, rows + training, (size_t)(count - training) * sizeof *rows);
    return d->train && d->validation && d->rows;
}

/* ---- decimal commas ---- */

/* A cell as 12,5; *is_sure: with other than three digits behind the comma, where it is no 1,250. */
static bool has_decimal_comma(const char *cell, bool *is_sure)
{
    static const char digits[] = "0123456789";
    cell += *cell == '-' || *cell == '+';
    size_t before = strspn(cell, digits);
    if (before == 0 || cell[before] != ',')
        return false;
    size_t behind = strspn(cell + before + 1, digits);
    *is_sure |= behind != 3;
    return behind > 0 && cell[before + 1 + behind] == '\0';
}

/* Whether numbers are written 12,5 in the column: most of its cells are. (Whole numbers have none.) */
static bool is_column_with_commas(const gd_table *t, int64_t column)
{
    int64_t with = 0, known = 0;
    bool is_sure = false;
    gd_column_kind kind = gd_table_column_kind(t, column);
    if (kind != GD_COLUMN_TEXT && kind != GD_COLUMN_CATEGORY)
        return false;
    for (int64_t row = 0; row < gd_table_rows(t); row++) {
        const char *cell = gd_table_text(t, row, column);
        known += cell != NULL;
        with += cell && has_decimal_comma(cell, &is_sure);
    }
    return is_sure && 2 * with > known;
}

static int64_t count_numbers(const gd_table *t)
{
    int64_t count = 0;
    for (int64_t c = 0; c < gd_table_columns(t); c++)
        count += gd_table_column_kind(t, c) == GD_COLUMN_NUMBER;
    return count;
}

/* The table, with decimal commas where more of its columns are numbers then. */
static gd_table *load_table(const char *path, bool *has_commas)
{
    gd_table *plain = gd_table_load(path);
    *has_commas = false;
    for (int64_t c = 0; plain && !*has_commas && c < gd_table_columns(plain); c++)
        *has_commas = is_column_with_commas(plain, c);
    if (!*has_commas)
        return plain;
    gd_table *other = gd_table_load(path, .decimal_comma = true);
    *has_commas = other && count_numbers(other) > count_numbers(plain);
    gd_table_release(*has_commas ? plain : other);
    return *has_commas ? other : plain;
}

static bool open_table(cli_data *d, const cli_data_options *o)
{
    bool has_commas;
    d->table = load_table(o->path, &has_commas);
    if (!d->table || (has_commas && !cli_data_keep(d, "decimal_comma", "true")))
        return false;
    if (!o->target)
        return ask_for_target(d->table);
    wishes w;
    size_t rows = (size_t)gd_table_rows(d->table);
    int64_t *lists = malloc(2 * rows * sizeof *lists);
    bool ok = read_wishes(&w, o) && lists && make_sets(d, o, &w, lists, lists + rows);
    free(lists);
    free(w.text);
    if (!ok)
        return false;
    cli_data_take_classes(d);
    describe(d, o);
    return keep_encoder(d);
}

/* All rows, with the target where the table has it. */
static bool reopen_table(cli_data *d, const char *path, gd_tensor_file *file)
{
    const char *json = gd_tensor_file_metadata(file, "encoder");
    d->encoder = json ? gd_table_encoder_create_json(json) : NULL;
    bool has_commas = gd_tensor_file_metadata(file, "decimal_comma") != NULL;
    d->table = d->encoder ? gd_table_load(path, .decimal_comma = has_commas) : NULL;
    if (!json)
        (void)gd_error_record(GD_ERR_FORMAT, "the model's file has no encoder of tables");
    d->outputs = gd_table_encoder_classes(d->encoder);
    d->regression = d->outputs == 0;
    d->outputs = d->regression ? 1 : d->outputs;
    return d->table != NULL;
}

/* Two hidden layers, which most tables are content with. */
static gd_model *propose_table(const cli_data *d, uint64_t seed)
{
    static const int64_t widths[] = { 64, 64 };
    gd_model_builder *b = gd_model_begin_mlp(d->context, gd_table_encoder_features(d->encoder), 2,
                                             widths, d->outputs, .seed = seed);
    if (d->regression)
        (void)gd_model_add_loss(b, "mse");
    return gd_model_end(b);
}

const cli_data_kind cli_table_kind = {
    .name = "table",
    .sample = "row",
    .is = is_table,
    .open = open_table,
    .reopen = reopen_table,
    .propose = propose_table,
    .epochs = 100,
    .batch = 32,
    .lr = 3e-3,
    .monitor = "loss",
};
