/* train/fit_file.c: what gd_fit puts into a checkpoint beside the training itself: how far it is, the
 * loader's position, sums of metrics and the last validation, as lines of one string, "fit". */
#include "train/fit.h"

#include "base/error.h"
#include "base/memory.h"
#include "train/words.h"

#include <math.h>
#include <string.h>

static size_t format(const gd_fit *f, char *out, size_t size)
{
    gd_text text = { out, size, 0 };
    gd_text_add(&text, "done %lld\nposition %lld\nbad %lld\n", (long long)f->done,
                (long long)gd_loader_position(f->train), (long long)f->bad);
    gd_text_add(&text, "loader %lld %lld %lld %lld\n", (long long)gd_loader_samples(f->train),
                (long long)gd_loader_batches(f->train), (long long)gd_loader_batch_size(f->train),
                (long long)f->options.accumulate);
    gd_text_add(&text, "data %llu\nprecision %s\n", (unsigned long long)f->data,
                gd_dtype_name(f->options.precision));
    if (!isnan(f->best))
        gd_text_add(&text, "best %.17g\n", f->best);
    gd_meter_write(&f->meter, &text);
    const gd_metrics *v = &f->now.validation;
    if (v->samples > 0)
        gd_text_add(&text, "validation %lld\n", (long long)v->samples);
    for (int i = 0; i < v->count; i++)
        gd_text_add(&text, "metric %s %.17g\n", v->list[i].name, v->list[i].value);
    return text.length;
}

/* All that is saved; the strings are [1 + metadata_count], the first of them "fit". */
static gd_training training_of(gd_fit *f, int strings, const gd_metadata *metadata)
{
    const gd_fit_options *o = &f->options;
    return (gd_training){ GD_TRAINING_DEFAULTS,
                          .model = o->model,
                          .module = f->module,
                          .optimizer = f->optimizer,
                          .ema = o->ema,
                          .plateau = o->plateau,
                          .tensor_count = o->tensor_count,
                          .tensors = o->tensors,
                          .metadata_count = strings,
                          .metadata = metadata };
}

gd_status gd_fit_save(gd_fit *f, bool best)
{
    const gd_fit_options *o = &f->options;
    double begin = gd_seconds();
    size_t size = format(f, NULL, 0) + 1;
    char *text = gd_alloc(size);
    gd_metadata *strings = gd_alloc_zero((size_t)o->metadata_count + 1, sizeof *strings);
    gd_status status = text && strings ? GD_OK : GD_ERR_MEMORY;
    if (status == GD_OK) {
        (void)format(f, text, size);
        strings[0] = (gd_metadata){ "fit", text };
        for (int i = 0; i < o->metadata_count; i++)
            strings[1 + i] = o->metadata[i];
        gd_training training = training_of(f, 1 + o->metadata_count, strings);
        status = gd_run_save(o->run, &training, best);
    }
    gd_free(text);
    gd_free(strings);
    f->saved = f->done;
    f->last_save = gd_seconds();
    f->now.save_seconds += f->last_save - begin;
    return status;
}

/* ---- going on ---- */

/* "NAME VALUE" */
static bool restore_metric(gd_metrics *metrics, const char *line)
{
    gd_metric metric = { 0 };
    if (metrics->count == GD_METRICS_MAX || !gd_take_name(&line, metric.name, sizeof metric.name))
        return false;
    metric.value = gd_strtod(line, NULL);
    metrics->list[metrics->count++] = metric;
    return true;
}

/* A position means the same samples only to a loader like the one that was saved. */
static gd_status check_loader(const gd_fit *f, const char *line)
{
    const gd_loader *l = f->train;
    int64_t samples = -1, batches = -1, batch = -1, accumulate = -1;
    (void)(gd_take_whole(&line, &samples) && gd_take_whole(&line, &batches) &&
           gd_take_whole(&line, &batch) && gd_take_whole(&line, &accumulate));
    if (samples == gd_loader_samples(l) && batches == gd_loader_batches(l) &&
        batch == gd_loader_batch_size(l) && accumulate == f->options.accumulate)
        return GD_OK;
    return gd_fail(GD_ERR_INVALID,
                   "gd_fit: cannot go on: the checkpoint is of epochs of %lld samples in %lld "
                   "batches of %lld, accumulated by %lld; these are %lld in %lld of %lld, by %lld",
                   (long long)samples, (long long)batches, (long long)batch, (long long)accumulate,
                   (long long)gd_loader_samples(l), (long long)gd_loader_batches(l),
                   (long long)gd_loader_batch_size(l), (long long)f->options.accumulate);
}

/* The same bits are those of the same samples. */
static gd_status check_data(const gd_fit *f, const char *line)
{
    uint64_t data = 0;
    if (gd_take_unsigned(&line, &data) && data == f->data)
        return GD_OK;
    return gd_fail(GD_ERR_INVALID,
                   "gd_fit: cannot go on: the training data have changed since the checkpoint was "
                   "saved: begin another run, or bring them back");
}

/* And of the same precision. Checkpoints from before there was a choice do not say: f32. */
static gd_status check_precision(const gd_fit *f, const char *line)
{
    char name[8];
    const char *now = gd_dtype_name(f->options.precision), *then = gd_dtype_name(GD_F32);
    if (line && gd_take_name(&line, name, sizeof name))
        then = name;
    if (strcmp(then, now) == 0)
        return GD_OK;
    return gd_fail(GD_ERR_INVALID,
                   "gd_fit: cannot go on: the checkpoint was trained in %s, this would be in %s",
                   then, now);
}

static bool restore_line(gd_fit *f, const char *line, int64_t *done, int64_t *position)
{
    const struct {
        const char *key;
        int64_t *number;
    } rows[] = { { "done", done },
                 { "position", position },
                 { "bad", &f->bad },
                 { "validation", &f->now.validation.samples } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = gd_after_key(line, rows[i].key);
        if (text)
            return gd_take_whole(&text, rows[i].number);
    }
    const char *best = gd_after_key(line, "best"), *metric = gd_after_key(line, "metric");
    if (best)
        f->best = gd_strtod(best, NULL);
    return !metric || restore_metric(&f->now.validation, metric);
}

static gd_status restore(gd_fit *f, const char *text)
{
    const char *loader = strstr(text, "\nloader ");
    const char *data = strstr(text, "\ndata "), *precision = strstr(text, "\nprecision ");
    gd_status same = check_loader(f, loader ? loader + 8 : "");
    if (same == GD_OK)
        same = check_data(f, data ? data + 6 : "");
    if (same == GD_OK)
        same = check_precision(f, precision ? precision + 11 : NULL);
    if (same != GD_OK)
        return same;
    int64_t done = -1, position = -1;
    bool ok = true;
    for (const char *at = text, *end; ok && at && *at; at = end ? end + 1 : NULL) {
        end = strchr(at, '\n');
        ok = restore_line(f, at, &done, &position);
    }
    if (!ok || done < 0 || position < 0)
        return gd_fail(GD_ERR_FORMAT, "gd_fit: a checkpoint does not tell how far it is");
    f->done = f->saved = done;
    gd_status status = gd_meter_restore(&f->meter, text);
    return status == GD_OK ? gd_loader_seek(f->train, position) : status;
}

gd_status gd_fit_resume(gd_fit *f)
{
    const gd_fit_options *o = &f->options;
    if (!gd_run_has_checkpoint(o->run))
        return GD_OK;
    const char *path;
    gd_training training = training_of(f, 0, NULL);
    gd_status status = gd_run_load(o->run, &training, &path);
    gd_tensor_file *file = status == GD_OK ? gd_tensor_file_open(path) : NULL;
    if (!file)
        return gd_error_last();
    const char *text = gd_tensor_file_metadata(file, "fit");
    status =
        text ? restore(f, text) : gd_fail(GD_ERR_FORMAT, "%s: is no checkpoint of gd_fit", path);
    gd_tensor_file_close(file);
    if (status == GD_OK && o->result)
        *o->result = f->evaluates ? f->now.validation : gd_meter_read(&f->meter);
    return status;
}
