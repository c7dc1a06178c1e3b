/* report/run_log.c: the log of a run: checks what it is given, and hands it to the formats. To read:
 * gd_run_log_open_with(), then gd_run_log_scalars(). A format is a sink: sink.h. */
#include <gradus/autograd.h>
#include <gradus/log.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "base/buffer.h"
#include "report/pixels.h"
#include "report/sink.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { MOST_SINKS = 4 };

struct gd_run_log {
    char *folder;
    gd_sink *sinks[MOST_SINKS];
    int count;
    double begin; /* of gd_seconds(), as if the run had not been interrupted */
};

/* ---- text ---- */

void gd_run_folder_name(const char *folder, char *name)
{
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && folder[begin - 1] != '/')
        begin--;
    memcpy(name, folder + begin, end - begin);
    name[end - begin] = '\0';
}

bool gd_text_is_number(const char *text, double *number)
{
    char *end;
    *number = gd_strtod(text, &end);
    bool looks = isdigit((unsigned char)*text) || *text == '-' || *text == '+' || *text == '.';
    return looks && end != text && !*end && isfinite(*number) && !strpbrk(text, "xX");
}

/* ---- opening ---- */

static gd_status make_folder(const char *folder)
{
    gd_text_buffer path = { 0 };
    gd_buffer_add(&path, "%s", folder);
    if (path.failed)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    for (size_t i = 1; status == GD_OK && i <= path.length; i++) {
        char here = path.text[i];
        if (here != '/' && here != '\0')
            continue;
        path.text[i] = '\0';
        if (mkdir(path.text, 0777) != 0 && errno != EEXIST)
            status =
                gd_fail(GD_ERR_IO, "%s: cannot make the folder: %s", path.text, strerror(errno));
        path.text[i] = here;
    }
    gd_free(path.text);
    return status;
}

static gd_status open_sinks(gd_run_log *log, const gd_run_log_options *options, double *time)
{
    const struct {
        const gd_sink_type *type;
        bool asked;
    } rows[MOST_SINKS] = { { &gd_json_sink, options->json },
                           { &gd_csv_sink, options->csv },
                           { &gd_tensorboard_sink, options->tensorboard },
                           { &gd_prometheus_sink, options->prometheus } };
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < MOST_SINKS; i++) {
        if (!rows[i].asked)
            continue;
        gd_sink *sink = NULL;
        status = rows[i].type->open(&sink, log->folder, options, time);
        if (!sink)
            continue;
        sink->type = rows[i].type;
        log->sinks[log->count++] = sink;
    }
    return status;
}

gd_run_log *gd_run_log_open_with(const char *folder, const gd_run_log_options *given)
{
    gd_run_log_options options = { GD_RUN_LOG_DEFAULTS };
    if (!gd_options_read("gd_run_log_open", &options, sizeof options, given))
        return NULL;
    if (!folder || !*folder || !(options.prometheus_seconds >= 0) || options.resume_step < -1)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_run_log_open: the folder is missing, prometheus_seconds is "
                            "negative, or resume_step is less than -1");
    gd_run_log *log = gd_alloc_zero(1, sizeof *log);
    if (!log)
        return NULL;
    double time = 0;
    log->folder = gd_strdup(folder);
    if (log->folder && make_folder(folder) == GD_OK && open_sinks(log, &options, &time) == GD_OK) {
        log->begin = gd_seconds() - time;
        return log;
    }
    gd_run_log_close(log);
    return NULL;
}

void gd_run_log_close(gd_run_log *log)
{
    if (!log)
        return;
    for (int i = 0; i < log->count; i++)
        log->sinks[i]->type->close(log->sinks[i]);
    gd_free(log->folder);
    gd_free(log);
}

/* ---- entries ---- */

static gd_status check_name(const char *who, const char *name)
{
    if (name && *name && gd_utf8_is_printable(name))
        return GD_OK;
    return gd_fail(GD_ERR_INVALID, "%s: a name is missing, empty, or not printable UTF-8", who);
}

static gd_status check(const char *who, const gd_run_log *log, int64_t step)
{
    if (!log)
        return gd_fail(GD_ERR_INVALID, "%s: the log is NULL", who);
    if (step < 0)
        return gd_fail(GD_ERR_INVALID, "%s: step %lld", who, (long long)step);
    return GD_OK;
}

static gd_log_entry entry_of(const gd_run_log *log, int64_t step, const char *name)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    double seconds = gd_seconds() - log->begin;
    return (gd_log_entry){ .step = step,
                           .epoch = -1,
                           .time = round(seconds * 1e6) / 1e6,
                           .wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
                           .name = name };
}

/* `call` with each sink that has the function; the first failure is the result, and the others go on.
 */
#define EACH_SINK(log, status, function, ...)                                              \
    for (int i = 0; i < (log)->count; i++)                                                 \
        if ((log)->sinks[i]->type->function) {                                             \
            gd_status one = (log)->sinks[i]->type->function((log)->sinks[i], __VA_ARGS__); \
            (status) = (status) == GD_OK ? one : (status);                                 \
        }

static gd_status check_scalars(int64_t count, const char *const *names, const double *values)
{
    static const char who[] = "gd_run_log_scalars";
    if (count < 0 || (count > 0 && (!names || !values)))
        return gd_fail(GD_ERR_INVALID, "%s: %lld scalars, or a NULL", who, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        gd_status status = check_name(who, names[i]);
        if (status != GD_OK)
            return status;
        bool taken = strcmp(names[i], "step") == 0 || strcmp(names[i], "epoch") == 0 ||
                     strcmp(names[i], "time") == 0;
        for (int64_t k = 0; !taken && k < i; k++)
            taken = strcmp(names[i], names[k]) == 0;
        if (taken)
            return gd_fail(GD_ERR_INVALID,
                           "%s: \"%s\" is there twice, or is one of step, epoch, "
                           "time",
                           who, names[i]);
    }
    return GD_OK;
}

gd_status gd_run_log_scalars(gd_run_log *log, int64_t step, int64_t epoch, int64_t count,
                             const char *const *names, const double *values)
{
    gd_status status = check("gd_run_log_scalars", log, step);
    if (status == GD_OK)
        status = check_scalars(count, names, values);
    if (status != GD_OK)
        return status;
    gd_log_entry entry = entry_of(log, step, NULL);
    entry.epoch = epoch < 0 ? -1 : epoch;
    EACH_SINK(log, status, scalars, &entry, count, names, values)
    return status;
}

gd_status gd_run_log_scalar(gd_run_log *log, int64_t step, const char *name, double value)
{
    return gd_run_log_scalars(log, step, -1, 1, &name, &value);
}

static void add_value(gd_log_histogram *h, double value)
{
    if (!isfinite(value)) {
        h->not_finite++;
        return;
    }
    h->min = h->count == 0 || value < h->min ? value : h->min;
    h->max = h->count == 0 || value > h->max ? value : h->max;
    h->sum += value;
    h->sum_squares += value * value;
    h->count++;
}

/* One value, or equal ones, are in the middle of a bin's width of 1. */
static void fill_bins(gd_log_histogram *h, const double *values, int64_t count)
{
    double low = h->min, high = h->max;
    if (!(high > low))
        low -= 0.5, high += 0.5;
    double width = high / GD_LOG_BINS - low / GD_LOG_BINS; /* high - low may be too large */
    for (int i = 0; i < GD_LOG_BINS; i++)
        h->edges[i] = low + width * i;
    h->edges[GD_LOG_BINS] = high;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        double place = (values[i] / width - low / width);
        int bin = place >= GD_LOG_BINS ? GD_LOG_BINS - 1 : place > 0 ? (int)place : 0;
        while (bin > 0 && values[i] < h->edges[bin])
            bin--;
        while (bin < GD_LOG_BINS - 1 && values[i] >= h->edges[bin + 1])
            bin++;
        h->counts[bin]++;
    }
}

gd_status gd_run_log_histogram(gd_run_log *log, int64_t step, const char *name, gd_tensor *values)
{
    static const char who[] = "gd_run_log_histogram";
    gd_status status = check(who, log, step);
    if (status == GD_OK)
        status = check_name(who, name);
    if (status == GD_OK && !values)
        status = gd_fail(GD_ERR_INVALID, "%s: the tensor is NULL", who);
    if (status != GD_OK)
        return status;
    double *numbers = gd_doubles_read(values);
    if (!numbers)
        return gd_error_last();
    gd_log_histogram h = { 0 };
    for (int64_t i = 0; i < gd_tensor_count(values); i++)
        add_value(&h, numbers[i]);
    if (h.count)
        fill_bins(&h, numbers, gd_tensor_count(values));
    gd_free(numbers);
    gd_log_entry entry = entry_of(log, step, name);
    EACH_SINK(log, status, histogram, &entry, &h)
    return status;
}

gd_status gd_run_log_image(gd_run_log *log, int64_t step, const char *name, gd_tensor *image)
{
    static const char who[] = "gd_run_log_image";
    gd_status status = check(who, log, step);
    if (status == GD_OK)
        status = check_name(who, name);
    if (status != GD_OK)
        return status;
    gd_image pixels;
    status = gd_pixels_read(who, image, false, 0, NULL, &pixels);
    if (status != GD_OK)
        return status;
    gd_log_entry entry = entry_of(log, step, name);
    EACH_SINK(log, status, image, &entry, &pixels)
    gd_free(pixels.pixels);
    return status;
}

gd_status gd_run_log_text(gd_run_log *log, int64_t step, const char *name, const char *text)
{
    static const char who[] = "gd_run_log_text";
    gd_status status = check(who, log, step);
    if (status == GD_OK)
        status = check_name(who, name);
    if (status != GD_OK)
        return status;
    if (!text || !gd_utf8_is_valid(text))
        return gd_fail(GD_ERR_INVALID, "%s: the text is NULL or not UTF-8", who);
    gd_log_entry entry = entry_of(log, step, name);
    EACH_SINK(log, status, text, &entry, text)
    return status;
}

gd_status gd_run_log_graph(gd_run_log *log, int64_t step, gd_tensor *result)
{
    static const char who[] = "gd_run_log_graph";
    gd_status status = check(who, log, step);
    if (status == GD_OK && !result)
        status = gd_fail(GD_ERR_INVALID, "%s: the tensor is NULL", who);
    int64_t count = status == GD_OK ? gd_graph_order(result, NULL, 0) : 0;
    if (status == GD_OK && count == 0)
        status = gd_error_last();
    gd_tensor **order = status == GD_OK ? gd_alloc_zero((size_t)count, sizeof *order) : NULL;
    if (!order)
        return status == GD_OK ? GD_ERR_MEMORY : status;
    (void)gd_graph_order(result, order, count);
    gd_log_entry entry = entry_of(log, step, NULL);
    EACH_SINK(log, status, graph, &entry, count, order)
    gd_free(order);
    return status;
}

gd_status gd_run_log_hyperparameters(gd_run_log *log, int64_t count, const char *const *names,
                                     const char *const *values)
{
    static const char who[] = "gd_run_log_hyperparameters";
    gd_status status = check(who, log, 0);
    if (status == GD_OK && (count < 0 || (count > 0 && (!names || !values))))
        status = gd_fail(GD_ERR_INVALID, "%s: %lld of them, or a NULL", who, (long long)count);
    for (int64_t i = 0; status == GD_OK && i < count; i++) {
        status = check_name(who, names[i]);
        if (status == GD_OK && (!values[i] || !gd_utf8_is_printable(values[i])))
            status = gd_fail(GD_ERR_INVALID,
                             "%s: the value of \"%s\" is missing, or not printable "
                             "UTF-8",
                             who, names[i]);
    }
    if (status != GD_OK)
        return status;
    gd_log_entry entry = entry_of(log, 0, NULL);
    EACH_SINK(log, status, hyperparameters, &entry, count, names, values)
    return status;
}

gd_status gd_run_log_flush(gd_run_log *log)
{
    gd_status status = check("gd_run_log_flush", log, 0);
    for (int i = 0; status != GD_ERR_INVALID && i < log->count; i++) {
        gd_status one = log->sinks[i]->type->flush(log->sinks[i]);
        status = status == GD_OK ? one : status;
    }
    return status;
}
