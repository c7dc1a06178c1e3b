/* cli/train_log.c: what gradus train writes to its log: metrics and times, and for TensorBoard the graph,
 * samples, and how weights and gradients are spread. Start at cli_log_progress(). */
#include "pictures.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gd_run_log *cli_log_open(const cli_training *t, int64_t resume_step)
{
    return gd_run_log_open(t->folder, .resume_step = resume_step, .csv = t->settings->csv,
                           .tensorboard = t->settings->tensorboard,
                           .prometheus = t->settings->prometheus);
}

/* ---- times ---- */

void cli_add_times(cli_training *t, const gd_fit_progress *p)
{
    cli_times *times = &t->times;
    times->memory = p->memory;
    if (!p->epoch_done)
        return;
    times->data += p->data_seconds;
    times->forward += p->forward_seconds;
    times->backward += p->backward_seconds;
    times->update += p->update_seconds;
    times->validation += p->validation_seconds;
    times->save += p->save_seconds;
}

/* What is sampled, of all steps, may come to more than there was: then all of it is less. */
static void limit_samples(cli_times *times, double all)
{
    const double sampled = times->forward + times->backward + times->update;
    const double room = fmax(all - times->data - times->validation - times->save - times->log, 0.0);
    if (sampled <= room)
        return;
    times->forward *= room / sampled;
    times->backward *= room / sampled;
    times->update *= room / sampled;
}

void cli_print_times(const cli_training *t)
{
    cli_times limited = t->times, *times = &limited;
    const double all = times->end - times->begin;
    limit_samples(times, all);
    const struct {
        const char *name;
        double seconds;
    } rows[] = {
        { "forward", times->forward },       { "backward", times->backward },
        { "update", times->update },         { "waiting for data", times->data },
        { "validation", times->validation }, { "saving", times->save },
        { "logging", times->log },
    };
    double rest = all;
    char line[256];
    int length = snprintf(line, sizeof line, "%.1f s:", all);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double share = 100.0 * rows[i].seconds / all;
        rest -= rows[i].seconds;
        if (share >= 0.5)
            length += snprintf(line + length, sizeof line - (size_t)length, " %s %.0f %%,",
                               rows[i].name, share);
    }
    snprintf(line + length, sizeof line - (size_t)length, " the rest %.0f %%.",
             rest > 0.0 ? 100.0 * rest / all : 0.0);
    printf("\n");
    cli_print_wrapped(line, 0, 0);
    printf("At most %.1f MB in tensors.\n", (double)times->memory / 1e6);
}

/* ---- metrics ---- */

enum { MOST_SCALARS = 2 * GD_METRICS_MAX + 10, NAME_BYTES = GD_METRIC_NAME_SIZE + 16 };

typedef struct scalars {
    int count;
    char texts[MOST_SCALARS][NAME_BYTES];
    double values[MOST_SCALARS];
} scalars;

static void add(scalars *s, const char *group, const char *name, double value)
{
    snprintf(s->texts[s->count], NAME_BYTES, "%s%s", group, name);
    s->values[s->count++] = value;
}

/* What an epoch took, in seconds, and the memory in bytes. */
static void add_epoch(scalars *s, const gd_fit_progress *p)
{
    add(s, "time/", "epoch", p->seconds + p->validation_seconds);
    add(s, "time/", "data", p->data_seconds);
    add(s, "time/", "forward", p->forward_seconds);
    add(s, "time/", "backward", p->backward_seconds);
    add(s, "time/", "update", p->update_seconds);
    add(s, "time/", "validation", p->validation_seconds);
    add(s, "time/", "save", p->save_seconds);
    add(s, "", "memory", (double)p->memory);
}

static gd_status log_metrics(cli_training *t, const gd_fit_progress *p)
{
    scalars s = { 0 };
    const char *names[MOST_SCALARS];
    for (int i = 0; i < p->train.count; i++)
        add(&s, "train/", p->train.list[i].name, p->train.list[i].value);
    for (int i = 0; p->validated && i < p->validation.count; i++)
        add(&s, "validation/", p->validation.list[i].name, p->validation.list[i].value);
    add(&s, "", "lr", p->lr);
    if (p->epoch_done)
        add_epoch(&s, p);
    for (int i = 0; i < s.count; i++)
        names[i] = s.texts[i];
    t->logged = gd_seconds();
    return gd_run_log_scalars(t->log, p->total_step, p->epoch, s.count, names, s.values);
}

/* ---- for TensorBoard ---- */

enum { SAMPLES = 32, SHOWN = 16 };

static gd_status log_histogram(const cli_training *t, int64_t step, const char *group,
                               const char *path, gd_tensor *values)
{
    char name[256];
    snprintf(name, sizeof name, "%s/%.200s", group, path);
    for (char *c = name; *c; c++)
        *c = *c == '.' ? '/' : *c;
    return values ? gd_run_log_histogram(t->log, step, name, values) : GD_OK;
}

/* How the parameters are spread, and the gradients of the first samples' loss. */
static gd_status log_parameters(const cli_training *t, int64_t step, gd_tensor *loss)
{
    gd_module *m = cli_train_module(t);
    int count = gd_module_count(m), wanted = 0;
    gd_tensor **parameters = calloc(2 * (size_t)count + 1, sizeof *parameters);
    const char **paths = calloc((size_t)count + 1, sizeof *paths);
    gd_status status = parameters && paths ? GD_OK : GD_ERR_MEMORY;
    for (int i = 0; status == GD_OK && i < count; i++)
        if (gd_module_is_parameter(m, i) && gd_requires_grad(gd_module_tensor(m, i))) {
            parameters[wanted] = gd_module_tensor(m, i);
            paths[wanted++] = gd_module_path(m, i);
        }
    gd_tensor **gradients = parameters + count;
    if (status == GD_OK && wanted > 0)
        status = gd_grad(1, &loss, NULL, wanted, parameters, gradients);
    for (int i = 0; status == GD_OK && i < wanted; i++) {
        status = log_histogram(t, step, "weights", paths[i], parameters[i]);
        if (status == GD_OK)
            status = log_histogram(t, step, "gradients", paths[i], gradients[i]);
    }
    free(parameters);
    free(paths);
    return status;
}

/* The graph, the network in words, and samples of images. */
static gd_status log_beginning(const cli_training *t, int64_t step, gd_tensor *loss)
{
    char summary[8192], text[8300];
    gd_module_summary(cli_train_module(t), summary, sizeof summary);
    snprintf(text, sizeof text, "```\n%s```", summary);
    gd_status status = gd_run_log_graph(t->log, step, loss);
    if (status == GD_OK)
        status = gd_run_log_text(t->log, step, "network", text);
    gd_tensor *images = status == GD_OK ? cli_sample_images(&t->data, t->data.train, SHOWN) : NULL;
    if (images)
        status = gd_run_log_image(t->log, step, "samples", images);
    if (status != GD_ERR_UNSUPPORTED)
        return status;
    gd_error_clear(); /* a build without libpng */
    return GD_OK;
}

/* As in evaluation and eagerly, so that nothing changes by it. */
static gd_status log_tensors(const cli_training *t, int64_t step)
{
    gd_module *m = cli_train_module(t);
    gd_random_stream random = gd_random_position(t->context);
    bool was_training = gd_module_is_training(m);
    gd_status status = gd_scope_begin(t->context);
    if (status != GD_OK)
        return status;
    gd_module_set_training(m, false);
    gd_tensor *loss = cli_sample_loss(&t->data, t->model, t->language, t->data.train, SAMPLES);
    status = loss ? GD_OK : gd_error_code();
    if (status == GD_OK && !t->has_begun_log)
        status = log_beginning(t, step, loss);
    if (status == GD_OK)
        status = log_parameters(t, step, loss);
    gd_module_set_training(m, was_training);
    gd_status back = gd_random_seek(t->context, random.seed, random.position);
    (void)gd_scope_end(t->context);
    return status == GD_OK ? back : status;
}

gd_status cli_log_progress(cli_training *t, const gd_fit_progress *p)
{
    if (!t->log)
        t->log = cli_log_open(t, p->total_step - 1);
    gd_status status = t->log ? log_metrics(t, p) : gd_error_code();
    if (status != GD_OK || !p->epoch_done || !t->settings->tensorboard)
        return status;
    status = log_tensors(t, p->total_step);
    t->has_begun_log = true;
    return status;
}
