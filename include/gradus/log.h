/* gradus/log.h: the log of a training history, written while it trains and read back afterwards.
 *
 * A run has a folder. gd_run_log writes into it what is known of each step, in as many formats as
 * are asked for; a killed process loses nothing that was logged, and a run that is resumed goes on
 * in the same files, without entries of steps that are done again:
 *
 *     gd_run_log *log = gd_run_log_open("runs/first", .tensorboard = true);
 *     gd_run_log_scalar(log, 100, "train/loss", 0.31);
 *     gd_run_log_close(log);
 *
 * gd_history reads such a folder, of this or another program that writes the same JSON. The folder may
 * be that of a gd_run (gradus/checkpoint.h), too.
 */
#ifndef GRADUS_LOG_H
#define GRADUS_LOG_H

#include <gradus/options.h>
#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- writing ---- */

/* Used by one thread at a time. */
typedef struct gd_run_log gd_run_log;

typedef struct gd_run_log_options {
    size_t size GD_DEFAULT(sizeof(gd_run_log_options));
    /* The last step whose entries stay, for a run that goes on from a checkpoint: what follows the
     * first entry of a later step is cut off. -1: a new history, whose folder has no log yet. */
    int64_t resume_step GD_DEFAULT(-1);
    /* metrics.jsonl: an object a line, {"step": 100, "epoch": 1, "time": 3.25, "train/loss": 0.31},
     * the time in seconds since the run began, without those between an end and a resumption.
     * Numbers that JSON does not have are the strings "NaN", "Infinity" and "-Infinity". Histograms
     * and texts: an object a line of events.jsonl, which is made with the first. Hyperparameters:
     * config.json, unless there is one already. Needs a build with jansson. */
    bool json GD_DEFAULT(true);
    /* metrics.csv: a row a step, a column a name; empty where a step has no such scalar. */
    bool csv;
    /* events.out.tfevents.…: what TensorBoard reads. Needs a build with protobuf-c. */
    bool tensorboard;
    /* A file in Prometheus' text format with the newest value of each scalar, for node_exporter's
     * textfile collector (which wants its name to end in .prom); NULL: none. It is replaced as a
     * whole, at most every `prometheus_seconds`, when it is flushed and when the log is closed. The
     * label `run` is the folder's name. */
    const char *prometheus;
    double prometheus_seconds GD_DEFAULT(5);
} gd_run_log_options;
#define GD_RUN_LOG_DEFAULTS \
    .size = sizeof(gd_run_log_options), .resume_step = -1, .json = true, .prometheus_seconds = 5

/* Open the log of a run; the folder is made if there is none. The caller closes it. NULL:
 * GD_ERR_INVALID; GD_ERR_STATE: the folder has a log already and resume_step is -1, or another
 * process writes it; GD_ERR_IO; GD_ERR_FORMAT, with the line: a log to be resumed is damaged
 * before its last line (which may be cut short); GD_ERR_UNSUPPORTED; GD_ERR_MEMORY. */
GD_API gd_run_log *gd_run_log_open_with(const char *folder, const gd_run_log_options *options);
#define gd_run_log_open(...) \
    GD_WITH_1(gd_run_log_open_with, gd_run_log_options, GD_RUN_LOG_DEFAULTS, __VA_ARGS__, )
/* NULL is fine. Nothing is lost by not closing one but the newest values for Prometheus. */
GD_API void gd_run_log_close(gd_run_log *log);

/* Names are UTF-8 and not empty; a slash makes groups of them, "train/loss". Steps are not negative.
 * A failure to write (GD_ERR_IO: a full disk) leaves whole lines in the files, and the next call
 * tries again with its own. What a format cannot show is left out of it: histograms, images, texts,
 * graphs and hyperparameters of CSV and Prometheus, images and graphs of JSON. */

/* One number, as a line of its own. */
GD_API gd_status gd_run_log_scalar(gd_run_log *log, int64_t step, const char *name, double value);
/* Several of a step, as one line. `epoch` is -1 where it is not known. */
GD_API gd_status gd_run_log_scalars(gd_run_log *log, int64_t step, int64_t epoch, int64_t count,
                                    const char *const *names, const double *values);
/* How the finite ones of a tensor's values are spread, in 64 bins of equal width; how many are not
 * finite is told in JSON. */
GD_API gd_status gd_run_log_histogram(gd_run_log *log, int64_t step, const char *name,
                                      gd_tensor *values);
/* An image [channels, height, width], or several [n, channels, height, width] as a grid; channels
 * are 1 or 3, u8 from 0 to 255 or floats from 0 to 1, others are clamped. GD_ERR_UNSUPPORTED: a
 * build without libpng, where TensorBoard's events are asked for. */
GD_API gd_status gd_run_log_image(gd_run_log *log, int64_t step, const char *name,
                                  gd_tensor *image);
/* A text, UTF-8 of any length; TensorBoard shows it as Markdown. */
GD_API gd_status gd_run_log_text(gd_run_log *log, int64_t step, const char *name, const char *text);
/* The graph behind a tensor, a loss that was computed eagerly: its ops, parameters and inputs, an op that
 * reads a parameter in the box of its layer. TensorBoard shows the last one. */
GD_API gd_status gd_run_log_graph(gd_run_log *log, int64_t step, gd_tensor *result);
/* What the run was started with, once: values that are numbers as a whole are numbers. */
GD_API gd_status gd_run_log_hyperparameters(gd_run_log *log, int64_t count,
                                            const char *const *names, const char *const *values);
/* Have the operating system write everything to the disk, and replace Prometheus' file. */
GD_API gd_status gd_run_log_flush(gd_run_log *log);

/* ---- reading ---- */

/* The folder of a history, as it was when it was loaded. */
typedef struct gd_history gd_history;

/* Read metrics.jsonl and, if there is one, config.json. A last line of metrics.jsonl that is cut
 * short, as that of a run being written, is left out. The caller releases it. NULL: GD_ERR_IO;
 * GD_ERR_FORMAT, with the line; GD_ERR_MEMORY; GD_ERR_UNSUPPORTED: a build without jansson. */
GD_API gd_history *gd_history_load(const char *folder);
GD_API void gd_history_release(gd_history *history);

/* The folder's name, without those above it. "" for NULL. */
GD_API const char *gd_history_name(const gd_history *history);
/* Names of the scalars in the order in which they first occur, "step" and "time" not among them.
 * NULL (and no error): there is no such number. */
GD_API int64_t gd_history_metric_count(const gd_history *history);
GD_API const char *gd_history_metric_name(const gd_history *history, int64_t index);
/* The number of the metric called `name`, -1 (and no error) if there is none. */
GD_API int64_t gd_history_metric_find(const gd_history *history, const char *name);
/* How many values a metric has; 0 for NULL, and for a number that is none. */
GD_API int64_t gd_history_metric_points(const gd_history *history, int64_t index);
/* Its steps, times and values, [points] each; they live as long as the history. NULL for NULL, and for
 * a number that is none. */
GD_API const double *gd_history_metric_steps(const gd_history *history, int64_t index);
GD_API const double *gd_history_metric_times(const gd_history *history, int64_t index);
GD_API const double *gd_history_metric_values(const gd_history *history, int64_t index);
/* The last line's step and time; -1 and 0 for a run without lines. */
GD_API int64_t gd_history_last_step(const gd_history *history);
GD_API double gd_history_seconds(const gd_history *history);
/* config.json's values by their path, "optimizer.lr", as JSON writes them but strings without
 * quotation marks, in the order of the file. NULL (and no error): there is no such number or path. */
GD_API int64_t gd_history_option_count(const gd_history *history);
GD_API const char *gd_history_option_name(const gd_history *history, int64_t index);
GD_API const char *gd_history_option(const gd_history *history, const char *name);

#ifdef __cplusplus
}
#endif
#endif
