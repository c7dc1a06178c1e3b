/* report/sink.h: what a format of the run log implements. To add one: a file report/sink_NAME.c
 * with a gd_sink_type, and a row in report/run_log.c. */
#ifndef GD_REPORT_SINK_H
#define GD_REPORT_SINK_H

#include <gradus/io.h>
#include <gradus/log.h>

/* When and of what an entry is. */
typedef struct gd_log_entry {
    int64_t step, epoch; /* epoch -1: not known */
    double time;         /* seconds since the run began */
    double wall;         /* seconds since 1970 */
    const char *name;    /* NULL for scalars */
} gd_log_entry;

enum { GD_LOG_BINS = 64 };

typedef struct gd_log_histogram {
    double min, max, sum, sum_squares; /* of the finite values */
    int64_t count, not_finite;
    double edges[GD_LOG_BINS + 1];
    int64_t counts[GD_LOG_BINS]; /* bin i has edges[i] <= x < edges[i + 1]; the last its max, too */
} gd_log_histogram;

typedef struct gd_sink_type gd_sink_type;

/* The first member of each sink. */
typedef struct gd_sink {
    const gd_sink_type *type;
} gd_sink;

/* What is NULL is left out of the format. */
struct gd_sink_type {
    /* Without resume_step: nothing of the format may be there. *time: of the last entry that stays, if
     * the format tells and it is later. What *out holds is closed, whatever is returned. */
    gd_status (*open)(gd_sink **out, const char *folder, const gd_run_log_options *options,
                      double *time);
    gd_status (*scalars)(gd_sink *sink, const gd_log_entry *entry, int64_t count,
                         const char *const *names, const double *values);
    gd_status (*histogram)(gd_sink *sink, const gd_log_entry *entry,
                           const gd_log_histogram *histogram);
    gd_status (*image)(gd_sink *sink, const gd_log_entry *entry, const gd_image *pixels);
    gd_status (*text)(gd_sink *sink, const gd_log_entry *entry, const char *text);
    /* Of the tensors of a graph, each behind its inputs. */
    gd_status (*graph)(gd_sink *sink, const gd_log_entry *entry, int64_t count,
                       gd_tensor *const *tensors);
    gd_status (*hyperparameters)(gd_sink *sink, const gd_log_entry *entry, int64_t count,
                                 const char *const *names, const char *const *values);
    gd_status (*flush)(gd_sink *sink);
    void (*close)(gd_sink *sink);
};

extern const gd_sink_type gd_json_sink, gd_csv_sink, gd_prometheus_sink, gd_tensorboard_sink;

/* The last part of a folder's path, written to a buffer of its length: "runs/first/" -> "first". */
void gd_run_folder_name(const char *folder, char *name);

/* Whether all of the text is one finite number, and which. */
bool gd_text_is_number(const char *text, double *number);

#endif
