/* report/history.c: the folder of a run, read: metrics.jsonl and config.json, which nobody vouches for. */
#include <gradus/log.h>

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"
#include "base/buffer.h"
#include "report/json_lines.h"
#include "report/sink.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct metric {
    char *name;
    double *steps, *times, *values; /* [count] */
    size_t count, capacity[3];
} metric;

typedef struct option {
    char *name, *value;
} option;

struct gd_history {
    char *name;
    metric *metrics;
    size_t count, capacity;
    option *options;
    size_t option_count, option_capacity;
    int64_t last_step;
    double seconds;
};

void gd_history_release(gd_history *history)
{
    if (!history)
        return;
    for (size_t i = 0; i < history->count; i++) {
        gd_free(history->metrics[i].name);
        gd_free(history->metrics[i].steps);
        gd_free(history->metrics[i].times);
        gd_free(history->metrics[i].values);
    }
    for (size_t i = 0; i < history->option_count; i++) {
        gd_free(history->options[i].name);
        gd_free(history->options[i].value);
    }
    gd_free(history->metrics);
    gd_free(history->options);
    gd_free(history->name);
    gd_free(history);
}

#ifdef GD_HAVE_JANSSON

enum { MOST_METRICS = 4096, CONFIG_BYTES_MAX = 1 << 26 };

/* ---- metrics.jsonl ---- */

static metric *find_or_add(gd_history *history, const char *name)
{
    for (size_t i = 0; i < history->count; i++)
        if (strcmp(history->metrics[i].name, name) == 0)
            return &history->metrics[i];
    if (history->count == MOST_METRICS)
        return gd_fail_null(GD_ERR_FORMAT, "%s: metrics.jsonl has more than %d names",
                            history->name, MOST_METRICS);
    if (!gd_grow((void **)&history->metrics, &history->capacity, history->count + 1,
                 sizeof *history->metrics))
        return NULL;
    metric *m = &history->metrics[history->count];
    *m = (metric){ .name = gd_strdup(name) };
    if (!m->name)
        return NULL;
    history->count++;
    return m;
}

static gd_status add_point(metric *m, double step, double time, double value)
{
    double **columns[3] = { &m->steps, &m->times, &m->values };
    const double point[3] = { step, time, value };
    for (int i = 0; i < 3; i++) {
        if (!gd_grow((void **)columns[i], &m->capacity[i], m->count + 1, sizeof(double)))
            return GD_ERR_MEMORY;
        (*columns[i])[m->count] = point[i];
    }
    m->count++;
    return GD_OK;
}

static gd_status add_line(void *user, const gd_json_line *line, bool *stop)
{
    (void)stop;
    gd_history *history = user;
    history->last_step = line->step;
    history->seconds = line->time;
    const char *name;
    json_t *value;
    json_object_foreach(line->object, name, value)
    {
        double number;
        if (strcmp(name, "step") == 0 || strcmp(name, "time") == 0 ||
            !gd_json_number(value, &number))
            continue;
        metric *m = find_or_add(history, name);
        if (!m)
            return gd_error_last();
        gd_status status = add_point(m, (double)line->step, line->time, number);
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

/* ---- config.json ---- */

/* The value as JSON, a string without its quotation marks; NULL: no memory. */
static char *value_text(const json_t *value)
{
    if (json_is_string(value))
        return gd_strdup(json_string_value(value));
    char *json = json_dumps(value, JSON_ENCODE_ANY | JSON_PRESERVE_ORDER |
                                       gd_json_precision(json_number_value(value)));
    if (!json)
        return gd_fail_null(GD_ERR_MEMORY, "config.json: no memory for a value");
    char *text = gd_strdup(json);
    free(json);
    return text;
}

static gd_status add_option(gd_history *history, const char *name, const json_t *value)
{
    if (!gd_grow((void **)&history->options, &history->option_capacity, history->option_count + 1,
                 sizeof *history->options))
        return GD_ERR_MEMORY;
    option *o = &history->options[history->option_count];
    *o = (option){ gd_strdup(name), value_text(value) };
    history->option_count++;
    return o->name && o->value ? GD_OK : GD_ERR_MEMORY;
}

/* Objects by the paths of their members; the parser bounds how deep they are. */
static gd_status add_options(gd_history *history, const char *prefix, json_t *object)
{
    const char *name;
    json_t *value;
    gd_status status = GD_OK;
    json_object_foreach(object, name, value)
    {
        gd_text_buffer path = { 0 };
        gd_buffer_add(&path, "%s%s%s", prefix, *prefix ? "." : "", name);
        status = (path.failed ? GD_ERR_MEMORY : GD_OK);
        if (status == GD_OK)
            status = json_is_object(value) && json_object_size(value) > 0
                         ? add_options(history, path.text, value)
                         : add_option(history, path.text, value);
        gd_free(path.text);
        if (status != GD_OK)
            break;
    }
    return status;
}

static gd_status read_config(gd_history *history, const char *path)
{
    if (access(path, F_OK) != 0)
        return GD_OK;
    unsigned char *bytes;
    size_t size;
    gd_status status = gd_file_read_all(path, CONFIG_BYTES_MAX, &bytes, &size);
    if (status != GD_OK)
        return status;
    json_error_t error;
    json_t *config = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, &error);
    gd_free(bytes);
    if (!config)
        status =
            gd_fail(GD_ERR_FORMAT, "%s: line %d is not JSON: %s", path, error.line, error.text);
    else if (!json_is_object(config))
        status = gd_fail(GD_ERR_FORMAT, "%s: is not an object", path);
    else
        status = add_options(history, "", config);
    json_decref(config);
    return status;
}

static gd_status read_run(gd_history *history, const char *folder)
{
    gd_text_buffer path = { 0 };
    gd_buffer_add(&path, "%s/metrics.jsonl", folder);
    uint64_t end;
    gd_status status = (path.failed ? GD_ERR_MEMORY : GD_OK);
    if (status == GD_OK)
        status = gd_json_lines_read(path.text, add_line, history, &end);
    path.length = 0;
    gd_buffer_add(&path, "%s/config.json", folder);
    if (status == GD_OK)
        status = (path.failed ? GD_ERR_MEMORY : GD_OK);
    if (status == GD_OK)
        status = read_config(history, path.text);
    gd_free(path.text);
    return status;
}

#else

static gd_status read_run(gd_history *history, const char *folder)
{
    (void)history;
    return gd_fail(GD_ERR_UNSUPPORTED, "gd_history_load: %s: this build has no JSON (Jansson)",
                   folder);
}

#endif

gd_history *gd_history_load(const char *folder)
{
    if (!folder || !*folder)
        return gd_fail_null(GD_ERR_INVALID, "gd_history_load: the folder is missing");
    gd_history *history = gd_alloc_zero(1, sizeof *history);
    if (!history)
        return NULL;
    history->last_step = -1;
    history->name = gd_alloc(strlen(folder) + 1);
    if (history->name)
        gd_run_folder_name(folder, history->name);
    if (history->name && read_run(history, folder) == GD_OK)
        return history;
    gd_history_release(history);
    return NULL;
}

/* ---- what is asked ---- */

const char *gd_history_name(const gd_history *history)
{
    return history ? history->name : "";
}

static const metric *metric_at(const gd_history *history, int64_t index)
{
    return history && index >= 0 && (uint64_t)index < history->count ? &history->metrics[index]
                                                                     : NULL;
}

int64_t gd_history_metric_count(const gd_history *history)
{
    return history ? (int64_t)history->count : 0;
}

const char *gd_history_metric_name(const gd_history *history, int64_t index)
{
    const metric *m = metric_at(history, index);
    return m ? m->name : NULL;
}

int64_t gd_history_metric_find(const gd_history *history, const char *name)
{
    for (size_t i = 0; history && name && i < history->count; i++)
        if (strcmp(history->metrics[i].name, name) == 0)
            return (int64_t)i;
    return -1;
}

int64_t gd_history_metric_points(const gd_history *history, int64_t index)
{
    const metric *m = metric_at(history, index);
    return m ? (int64_t)m->count : 0;
}

const double *gd_history_metric_steps(const gd_history *history, int64_t index)
{
    const metric *m = metric_at(history, index);
    return m ? m->steps : NULL;
}

const double *gd_history_metric_times(const gd_history *history, int64_t index)
{
    const metric *m = metric_at(history, index);
    return m ? m->times : NULL;
}

const double *gd_history_metric_values(const gd_history *history, int64_t index)
{
    const metric *m = metric_at(history, index);
    return m ? m->values : NULL;
}

int64_t gd_history_last_step(const gd_history *history)
{
    return history ? history->last_step : -1;
}

double gd_history_seconds(const gd_history *history)
{
    return history ? history->seconds : 0;
}

int64_t gd_history_option_count(const gd_history *history)
{
    return history ? (int64_t)history->option_count : 0;
}

const char *gd_history_option_name(const gd_history *history, int64_t index)
{
    bool there = history && index >= 0 && (uint64_t)index < history->option_count;
    return there ? history->options[index].name : NULL;
}

const char *gd_history_option(const gd_history *history, const char *name)
{
    for (size_t i = 0; history && name && i < history->option_count; i++)
        if (strcmp(history->options[i].name, name) == 0)
            return history->options[i].value;
    return NULL;
}
