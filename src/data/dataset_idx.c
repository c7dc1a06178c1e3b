/* data/dataset_idx.c: data sets from IDX files, and MNIST. Files are read at the same time, a
 * thread each, since decompressing them is most of the work. Start at read_all(). */
#include "data/dataset.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- several files at once ---- */

typedef struct file_job {
    const char *path;
    gd_idx idx;
    pthread_t thread;
    gd_status status;
    bool started;
    char message[GD_ERROR_MESSAGE_BYTES]; /* of the error, which is recorded in `thread` alone */
} file_job;

static void *read_one(void *argument)
{
    file_job *job = argument;
    job->status = gd_idx_read(job->path, &job->idx);
    if (job->status != GD_OK)
        snprintf(job->message, sizeof job->message, "%s", gd_error_last_message());
    return NULL;
}

static void free_all(file_job *jobs, int count)
{
    for (int i = 0; i < count; i++)
        gd_idx_free(&jobs[i].idx);
}

/* Read every job's file. On failure the first job's error is recorded and nothing is left. */
static gd_status read_all(file_job *jobs, int count)
{
    for (int i = 1; i < count; i++)
        jobs[i].started = pthread_create(&jobs[i].thread, NULL, read_one, &jobs[i]) == 0;
    jobs[0].status = gd_idx_read(jobs[0].path, &jobs[0].idx);
    gd_status status = jobs[0].status;
    for (int i = 1; i < count; i++) {
        if (jobs[i].started)
            pthread_join(jobs[i].thread, NULL);
        else
            read_one(&jobs[i]);
        if (status == GD_OK && jobs[i].status != GD_OK)
            status = gd_fail(jobs[i].status, "%s", jobs[i].message);
    }
    if (status != GD_OK)
        free_all(jobs, count);
    return status;
}

/* ---- from two files to a data set ---- */

static int64_t *widen_labels(const gd_idx *idx, int64_t count)
{
    int64_t *labels = gd_alloc((size_t)count * sizeof *labels + 1);
    for (int64_t i = 0; labels && i < count; i++)
        labels[i] = idx->type == GD_IDX_U8    ? ((const uint8_t *)idx->data)[i]
                    : idx->type == GD_IDX_I8  ? ((const int8_t *)idx->data)[i]
                    : idx->type == GD_IDX_I16 ? ((const int16_t *)idx->data)[i]
                                              : ((const int32_t *)idx->data)[i];
    return labels;
}

/* The two files of a data set, by their names. */
static gd_status check_pair(const file_job *samples_file, const file_job *labels_file)
{
    const gd_idx *samples = &samples_file->idx, *labels = &labels_file->idx;
    if ((samples->type != GD_IDX_U8 && samples->type != GD_IDX_F32) || samples->rank < 1 ||
        samples->rank > GD_MAX_RANK || samples->dims[0] < 1)
        return gd_fail(
            GD_ERR_FORMAT,
            "%s: holds %s of rank %d; samples are u8 or f32 of rank 1 to %d, one at least",
            samples_file->path, gd_idx_type_name(samples->type), samples->rank, GD_MAX_RANK);
    for (int i = 1; i < samples->rank; i++)
        if (samples->dims[i] < 1) /* the product of the others need not fit 63 bits */
            return gd_fail(GD_ERR_FORMAT, "%s: a sample has size 0 along axis %d",
                           samples_file->path, i);
    if (!gd_dtype_is_integer(gd_idx_dtype(labels->type)) || labels->rank != 1)
        return gd_fail(GD_ERR_FORMAT, "%s: holds %s of rank %d; labels are integers of rank 1",
                       labels_file->path, gd_idx_type_name(labels->type), labels->rank);
    if (samples->dims[0] != labels->dims[0])
        return gd_fail(GD_ERR_FORMAT, "%s holds %lld samples, but %s %lld labels",
                       samples_file->path, (long long)samples->dims[0], labels_file->path,
                       (long long)labels->dims[0]);
    return GD_OK;
}

/* Make the data set of jobs[0]'s samples, whose memory it takes over, and jobs[1]'s labels. */
static gd_dataset *join(gd_context *context, file_job *jobs, const gd_dataset_idx_options *o)
{
    gd_idx *samples = &jobs[0].idx;
    if (check_pair(&jobs[0], &jobs[1]) != GD_OK)
        return NULL;
    const int64_t count = samples->dims[0];
    gd_field fields[2] = {
        { GD_FIELD_DEFAULTS, .name = "image", .dtype = samples->type == GD_IDX_U8 ? GD_U8 : GD_F32,
          .batch_dtype = GD_F32, .scale = o->scale, .shift = o->shift },
        { GD_FIELD_DEFAULTS, .name = "label", .dtype = GD_I64, .classes = -1 },
    };
    if (isnan(o->scale))
        fields[0].scale = fields[0].dtype == GD_U8 ? 1.0 / 255.0 : 1.0;
    int64_t features = 1;
    fields[0].shape.rank = samples->rank - 1;
    for (int i = 1; i < samples->rank; i++) {
        fields[0].shape.dim[i - 1] = samples->dims[i];
        features *= samples->dims[i];
    }
    if (!o->keep_shape)
        fields[0].shape = GD_SHAPE(features);
    int64_t *wide = widen_labels(&jobs[1].idx, count);
    if (!wide)
        return NULL;
    void *const arrays[2] = { samples->data, wide };
    samples->data = NULL;
    return gd_dataset_adopt(context, count, 2, fields, arrays);
}

gd_dataset *gd_dataset_load_idx_with(gd_context *context, const char *samples, const char *labels,
                                     const gd_dataset_idx_options *options)
{
    gd_dataset_idx_options o = { GD_DATASET_IDX_DEFAULTS };
    if (!gd_options_read("gd_dataset_load_idx", &o, sizeof o, options) || !context)
        return NULL;
    if (!samples || !labels)
        return gd_fail_null(GD_ERR_INVALID, "gd_dataset_load_idx: a path is NULL");
    file_job jobs[2] = { { .path = samples }, { .path = labels } };
    if (read_all(jobs, 2) != GD_OK)
        return NULL;
    gd_dataset *d = join(context, jobs, &o);
    free_all(jobs, 2);
    return d;
}

/* ---- MNIST ---- */

#define PATH_BYTES 4096

static const char *const mnist_files[4] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                            "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" };

static gd_status mnist_path(const char *folder, const char *name, char path[PATH_BYTES])
{
    int length = snprintf(path, PATH_BYTES - 3, "%s/%s", folder, name);
    if (length < 0 || length >= PATH_BYTES - 3)
        return gd_fail(GD_ERR_INVALID, "gd_mnist: the folder's path is too long");
    if (access(path, F_OK) == 0)
        return GD_OK;
    memcpy(path + length, ".gz", 4);
    if (access(path, F_OK) == 0)
        return GD_OK;
    return gd_fail(GD_ERR_IO,
                   "%s: %s is not there, nor %s.gz. MNIST's four files lie in data/mnist of the "
                   "source of Gradus; they "
                   "can also be had from https://ossci-datasets.s3.amazonaws.com/mnist/",
                   folder, name, name);
}

/* Half of MNIST, from files that have been found. */
static gd_dataset *mnist_half(gd_context *context, bool keep_shape, file_job *jobs)
{
    const gd_dataset_idx_options o = { GD_DATASET_IDX_DEFAULTS, .keep_shape = keep_shape };
    gd_dataset *d = join(context, jobs, &o);
    const gd_data_field *fields = d ? d->source->fields : NULL;
    if (d && (fields[0].room != 784 || fields[1].spec.classes > 10)) {
        (void)gd_fail(
            GD_ERR_FORMAT,
            "%s: not MNIST's: %lld numbers a sample, %lld classes; there should be 784 and 10",
            jobs[0].path, (long long)fields[0].room, (long long)fields[1].spec.classes);
        gd_dataset_release(d);
        return NULL;
    }
    return d;
}

gd_dataset *gd_mnist_with(gd_context *context, const char *folder, const gd_mnist_options *options)
{
    gd_mnist_options o = { GD_MNIST_DEFAULTS };
    if (!gd_options_read("gd_mnist", &o, sizeof o, options) || !context)
        return NULL;
    if (!folder)
        return gd_fail_null(GD_ERR_INVALID, "gd_mnist: the folder is NULL");
    char paths[2][PATH_BYTES];
    file_job jobs[2] = { { .path = paths[0] }, { .path = paths[1] } };
    for (int i = 0; i < 2; i++)
        if (mnist_path(folder, mnist_files[o.test ? 2 + i : i], paths[i]) != GD_OK)
            return NULL;
    if (read_all(jobs, 2) != GD_OK)
        return NULL;
    gd_dataset *d = mnist_half(context, o.keep_shape, jobs);
    free_all(jobs, 2);
    return d;
}

gd_status gd_mnist_pair(gd_context *context, const char *folder, gd_dataset **train,
                        gd_dataset **test)
{
    if (!context || !folder || !train || !test)
        return gd_fail(GD_ERR_INVALID, "gd_mnist_pair: an argument is NULL");
    *train = *test = NULL;
    char paths[4][PATH_BYTES];
    file_job jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (file_job){ .path = paths[i] };
        gd_status status = mnist_path(folder, mnist_files[i], paths[i]);
        if (status != GD_OK)
            return status;
    }
    gd_status status = read_all(jobs, 4);
    if (status != GD_OK)
        return status;
    *train = mnist_half(context, false, jobs);
    *test = *train ? mnist_half(context, false, jobs + 2) : NULL;
    free_all(jobs, 4);
    if (*test)
        return GD_OK;
    gd_dataset_release(*train);
    *train = NULL;
    return gd_error_last();
}
