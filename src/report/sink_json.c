/* report/sink_json.c: the run log as JSON: metrics.jsonl, events.jsonl, config.json. */
#include "report/sink.h"

#include "base/error.h"

#ifdef GD_HAVE_JANSSON

#include "base/memory.h"
#include "report/append.h"
#include "base/buffer.h"
#include "report/json_lines.h"

#include <gradus/io.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct json_sink {
    gd_sink sink;
    gd_append_file metrics, events; /* events is not open before its first line */
    char *folder, *config;          /* paths */
} json_sink;

static const char events_name[] = "events.jsonl";

/* ---- opening ---- */

typedef struct cut {
    int64_t after; /* the last step that stays */
    double *time;
} cut;

static gd_status find_cut(void *user, const gd_json_line *line, bool *stop)
{
    const cut *c = user;
    *stop = line->step > c->after;
    if (!*stop && line->time > *c->time)
        *c->time = line->time;
    return GD_OK;
}

static gd_status open_file(gd_append_file *file, const char *folder, const char *name,
                           int64_t resume_step, double *time)
{
    bool resumed = resume_step >= 0;
    gd_status status = gd_append_open(file, folder, name, resumed ? GD_APPEND_OLD : GD_APPEND_NEW);
    if (status != GD_OK || !resumed)
        return status;
    uint64_t end;
    status = gd_json_lines_read(file->path, find_cut, &(cut){ resume_step, time }, &end);
    return status == GD_OK ? gd_append_truncate(file, end) : status;
}

static gd_status json_open(gd_sink **out, const char *folder, const gd_run_log_options *options,
                           double *time)
{
    json_sink *s = gd_alloc_zero(1, sizeof *s);
    if (!s)
        return GD_ERR_MEMORY;
    *out = &s->sink;
    s->metrics = s->events = GD_APPEND_NONE;
    gd_text_buffer config = { 0 }, events = { 0 };
    gd_buffer_add(&config, "%s/config.json", folder);
    gd_buffer_add(&events, "%s/%s", folder, events_name);
    s->config = config.text;
    s->folder = gd_strdup(folder);
    bool has_events = !events.failed && access(events.text, F_OK) == 0;
    gd_free(events.text);
    if (config.failed || events.failed || !s->folder)
        return GD_ERR_MEMORY;
    gd_status status = open_file(&s->metrics, folder, "metrics.jsonl", options->resume_step, time);
    if (status != GD_OK || !has_events) /* it is made with its first line */
        return status;
    return open_file(&s->events, folder, events_name, options->resume_step, time);
}

static void json_close(gd_sink *sink)
{
    json_sink *s = (json_sink *)sink;
    if (s->events.fd >= 0 && s->events.size == 0) /* all cut off by a resumption */
        (void)unlink(s->events.path);
    gd_append_close(&s->metrics);
    gd_append_close(&s->events);
    gd_free(s->folder);
    gd_free(s->config);
    gd_free(s);
}

/* ---- entries ---- */

static json_t *begin_line(const gd_log_entry *e)
{
    json_t *line = json_object();
    bool ok = json_object_set_new(line, "step", json_integer(e->step)) == 0;
    if (e->epoch >= 0)
        ok = ok && json_object_set_new(line, "epoch", json_integer(e->epoch)) == 0;
    ok = ok && json_object_set_new(line, "time", json_real(e->time)) == 0;
    if (ok)
        return line;
    json_decref(line);
    return NULL;
}

/* Takes the line. `ok`: all of it could be put together. */
static gd_status end_line(gd_append_file *file, json_t *line, bool ok)
{
    char *text = ok ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(line);
    if (!text)
        return gd_fail(GD_ERR_MEMORY, "%s: no memory for a line", file->path);
    gd_text_buffer whole = { 0 };
    gd_buffer_add(&whole, "%s\n", text);
    free(text);
    gd_status status = (whole.failed ? GD_ERR_MEMORY : GD_OK);
    if (status == GD_OK)
        status = gd_append(file, whole.text, whole.length);
    gd_free(whole.text);
    return status;
}

static gd_status json_scalars(gd_sink *sink, const gd_log_entry *e, int64_t count,
                              const char *const *names, const double *values)
{
    json_t *line = begin_line(e);
    bool ok = line;
    for (int64_t i = 0; ok && i < count; i++)
        ok = json_object_set_new(line, names[i], gd_json_from_number(values[i])) == 0;
    return end_line(&((json_sink *)sink)->metrics, line, ok);
}

static json_t *json_list(int count, const double *numbers, const int64_t *integers)
{
    json_t *list = json_array();
    for (int i = 0; list && i < count; i++)
        if (json_array_append_new(list, numbers ? json_real(numbers[i])
                                                : json_integer(integers[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* A line of events.jsonl. */
static gd_status end_event(json_sink *s, json_t *line, bool ok)
{
    if (s->events.fd < 0) {
        gd_status status = gd_append_open(&s->events, s->folder, events_name, GD_APPEND_NEW);
        if (status != GD_OK) {
            gd_append_close(&s->events);
            json_decref(line);
            return status;
        }
    }
    return end_line(&s->events, line, ok);
}

static gd_status json_histogram(gd_sink *sink, const gd_log_entry *e, const gd_log_histogram *h)
{
    json_t *line = begin_line(e);
    bool ok = line && json_object_set_new(line, "histogram", json_string(e->name)) == 0 &&
              json_object_set_new(line, "count", json_integer(h->count)) == 0 &&
              json_object_set_new(line, "not_finite", json_integer(h->not_finite)) == 0;
    int bins = h->count ? GD_LOG_BINS : 0;
    ok = ok &&
         json_object_set_new(line, "edges", json_list(bins ? bins + 1 : 0, h->edges, NULL)) == 0 &&
         json_object_set_new(line, "counts", json_list(bins, NULL, h->counts)) == 0;
    return end_event((json_sink *)sink, line, ok);
}

static gd_status json_text(gd_sink *sink, const gd_log_entry *e, const char *text)
{
    json_t *line = begin_line(e);
    bool ok = line && json_object_set_new(line, "text", json_string(e->name)) == 0 &&
              json_object_set_new(line, "value", json_string(text)) == 0;
    return end_event((json_sink *)sink, line, ok);
}

static gd_status json_hyperparameters(gd_sink *sink, const gd_log_entry *e, int64_t count,
                                      const char *const *names, const char *const *values)
{
    (void)e;
    const json_sink *s = (const json_sink *)sink;
    if (access(s->config, F_OK) == 0)
        return GD_OK;
    json_t *config = json_object();
    bool ok = config;
    size_t precision = JSON_REAL_PRECISION(15);
    for (int64_t i = 0; ok && i < count; i++) {
        double number = 0;
        json_t *value =
            gd_text_is_number(values[i], &number) ? json_real(number) : json_string(values[i]);
        if (gd_json_precision(number) > precision)
            precision = gd_json_precision(number);
        if (json_is_real(value) && number == (double)(int64_t)number &&
            strpbrk(values[i], ".eE") == NULL) {
            json_decref(value);
            value = json_integer((json_int_t)number);
        }
        ok = json_object_set_new(config, names[i], value) == 0;
    }
    char *text = ok ? json_dumps(config, JSON_INDENT(4) | JSON_PRESERVE_ORDER | precision) : NULL;
    json_decref(config);
    if (!text)
        return gd_fail(GD_ERR_MEMORY, "%s: no memory for it", s->config);
    gd_text_buffer whole = { 0 };
    gd_buffer_add(&whole, "%s\n", text);
    free(text);
    gd_status status =
        whole.failed ? GD_ERR_MEMORY : gd_file_write(s->config, whole.text, whole.length);
    gd_free(whole.text);
    return status;
}

static gd_status json_flush(gd_sink *sink)
{
    const json_sink *s = (const json_sink *)sink;
    gd_status status = gd_append_sync(&s->metrics);
    return status == GD_OK && s->events.fd >= 0 ? gd_append_sync(&s->events) : status;
}

const gd_sink_type gd_json_sink = {
    .open = json_open,
    .scalars = json_scalars,
    .histogram = json_histogram,
    .text = json_text,
    .hyperparameters = json_hyperparameters,
    .flush = json_flush,
    .close = json_close,
};

#else

static gd_status json_open(gd_sink **out, const char *folder, const gd_run_log_options *options,
                           double *time)
{
    (void)out, (void)options, (void)time;
    return gd_fail(GD_ERR_UNSUPPORTED, "gd_run_log_open: %s: this build has no JSON (Jansson)",
                   folder);
}

const gd_sink_type gd_json_sink = { .open = json_open };

#endif
