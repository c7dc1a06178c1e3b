/* report/sink_prometheus.c: the newest scalars in Prometheus' text format
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). The name of a scalar is a label, since
 * Prometheus' own names have no slash and two of ours could become one. */
#include "report/sink.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"
#include "base/buffer.h"

#include <math.h>
#include <string.h>

typedef struct newest {
    char *name;
    double value;
} newest;

typedef struct prometheus_sink {
    gd_sink sink;
    char *path, *run;
    double interval, written; /* seconds; when it was last written */
    bool changed;
    gd_log_entry entry;
    newest *scalars;
    size_t count, capacity;
} prometheus_sink;

static gd_status prometheus_open(gd_sink **out, const char *folder,
                                 const gd_run_log_options *options, double *time)
{
    (void)time;
    prometheus_sink *s = gd_alloc_zero(1, sizeof *s);
    if (!s)
        return GD_ERR_MEMORY;
    *out = &s->sink;
    s->path = gd_strdup(options->prometheus);
    s->run = gd_alloc(strlen(folder) + 1);
    s->interval = options->prometheus_seconds;
    s->written = -INFINITY;
    if (!s->path || !s->run)
        return GD_ERR_MEMORY;
    gd_run_folder_name(folder, s->run);
    return GD_OK;
}

static void add_label(gd_text_buffer *b, const char *text)
{
    for (; *text; text++)
        if (*text == '\n')
            gd_buffer_add(b, "\\n");
        else
            gd_buffer_add(b, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
}

static void add_number(gd_text_buffer *b, double number)
{
    if (isfinite(number))
        gd_buffer_add(b, "%.17g\n", number);
    else
        gd_buffer_add(b, "%s\n", isnan(number) ? "NaN" : number > 0 ? "+Inf" : "-Inf");
}

static void add_gauge(const prometheus_sink *s, gd_text_buffer *b, const char *name,
                      const char *help, double value)
{
    gd_buffer_add(b, "# HELP %s %s\n# TYPE %s gauge\n%s{run=\"", name, help, name, name);
    add_label(b, s->run);
    gd_buffer_add(b, "\"} ");
    add_number(b, value);
}

static gd_status replace(prometheus_sink *s)
{
    if (!s->changed)
        return GD_OK;
    static const char metric[] = "gradus_run_metric";
    gd_text_buffer b = { 0 };
    add_gauge(s, &b, "gradus_run_step", "The step that was logged last.", (double)s->entry.step);
    if (s->entry.epoch >= 0)
        add_gauge(s, &b, "gradus_run_epoch", "Its epoch.", (double)s->entry.epoch);
    add_gauge(s, &b, "gradus_run_seconds", "How long the run has taken until then.", s->entry.time);
    add_gauge(s, &b, "gradus_run_timestamp_seconds", "When that was, since 1970.", s->entry.wall);
    gd_buffer_add(&b, "# HELP %s The newest value of a scalar.\n# TYPE %s gauge\n", metric, metric);
    for (size_t i = 0; i < s->count; i++) {
        gd_buffer_add(&b, "%s{run=\"", metric);
        add_label(&b, s->run);
        gd_buffer_add(&b, "\",name=\"");
        add_label(&b, s->scalars[i].name);
        gd_buffer_add(&b, "\"} ");
        add_number(&b, s->scalars[i].value);
    }
    gd_status status = (b.failed ? GD_ERR_MEMORY : GD_OK);
    if (status == GD_OK)
        status = gd_file_write_atomic(s->path, &(gd_file_part){ b.text, b.length }, 1);
    gd_free(b.text);
    if (status == GD_OK) {
        s->changed = false;
        s->written = gd_seconds();
    }
    return status;
}

static gd_status keep(prometheus_sink *s, const char *name, double value)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->scalars[i].name, name) == 0) {
            s->scalars[i].value = value;
            return GD_OK;
        }
    if (!gd_grow((void **)&s->scalars, &s->capacity, s->count + 1, sizeof *s->scalars))
        return GD_ERR_MEMORY;
    char *copy = gd_strdup(name);
    if (!copy)
        return GD_ERR_MEMORY;
    s->scalars[s->count++] = (newest){ copy, value };
    return GD_OK;
}

static gd_status prometheus_scalars(gd_sink *sink, const gd_log_entry *e, int64_t count,
                                    const char *const *names, const double *values)
{
    prometheus_sink *s = (prometheus_sink *)sink;
    gd_status status = GD_OK;
    for (int64_t i = 0; status == GD_OK && i < count; i++)
        status = keep(s, names[i], values[i]);
    s->entry = *e;
    s->changed = true;
    bool due = gd_seconds() - s->written >= s->interval;
    return status == GD_OK && due ? replace(s) : status;
}

static gd_status prometheus_flush(gd_sink *sink)
{
    return replace((prometheus_sink *)sink);
}

static void prometheus_close(gd_sink *sink)
{
    prometheus_sink *s = (prometheus_sink *)sink;
    (void)replace(s);
    for (size_t i = 0; i < s->count; i++)
        gd_free(s->scalars[i].name);
    gd_free(s->scalars);
    gd_free(s->path);
    gd_free(s->run);
    gd_free(s);
}

const gd_sink_type gd_prometheus_sink = { .open = prometheus_open,
                                          .scalars = prometheus_scalars,
                                          .flush = prometheus_flush,
                                          .close = prometheus_close };
