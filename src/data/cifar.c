/* data/cifar.c: CIFAR-10 in its binary form: records of a label byte and 3 x 32 x 32 colour bytes,
 * plane by plane. Start at gd_cifar10_with(). */
#include "data/dataset.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "io/stream.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PIXELS = 3 * 32 * 32, RECORD = 1 + PIXELS, PATH_BYTES = 4096, MOST_RECORDS = 10000 };

static const char *const train_files[] = { "data_batch_1.bin", "data_batch_2.bin",
                                           "data_batch_3.bin", "data_batch_4.bin",
                                           "data_batch_5.bin" };
/* The first that is there. */
static const char *const test_files[] = { "test_batch.bin", "test_batch_first1000.bin" };

static const char *const class_names[10] = { "airplane", "automobile", "bird",  "cat",  "deer",
                                             "dog",      "frog",       "horse", "ship", "truck" };

typedef struct records {
    unsigned char *samples; // [count, 3, 32, 32]
    int64_t *labels;        // [count]
    int64_t count;
} records;

/* The file, or the file with .gz. */
static bool find_file(const char *folder, const char *name, char path[PATH_BYTES])
{
    for (int compressed = 0; compressed < 2; compressed++) {
        int length = snprintf(path, PATH_BYTES, "%s/%s%s", folder, name, compressed ? ".gz" : "");
        if (length > 0 && length < PATH_BYTES && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

static gd_status take_record(records *r, const unsigned char *record, const char *path)
{
    if (record[0] > 9)
        return gd_fail(GD_ERR_FORMAT, "%s: record %lld has label %d; CIFAR-10 has 10 classes", path,
                       (long long)r->count, record[0]);
    r->labels[r->count] = record[0];
    memcpy(r->samples + r->count * PIXELS, record + 1, PIXELS);
    r->count++;
    return GD_OK;
}

static bool make_room(records *r, int64_t more)
{
    size_t count = (size_t)(r->count + more);
    unsigned char *samples = gd_realloc(r->samples, count * PIXELS);
    r->samples = samples ? samples : r->samples;
    int64_t *labels = samples ? gd_realloc(r->labels, count * sizeof *labels) : NULL;
    r->labels = labels ? labels : r->labels;
    return samples && labels;
}

static gd_status read_file(records *r, const char *path)
{
    gd_stream *stream;
    gd_status status = gd_stream_open(path, &stream);
    if (status != GD_OK)
        return status;
    unsigned char record[RECORD];
    size_t got = 0;
    if (!make_room(r, MOST_RECORDS))
        status = GD_ERR_MEMORY;
    for (int64_t i = 0; status == GD_OK; i++) {
        status = gd_stream_read(stream, record, RECORD, &got);
        if (status != GD_OK || got == 0)
            break;
        if (got != RECORD || i == MOST_RECORDS)
            status = gd_fail(GD_ERR_FORMAT, "%s: not a file of CIFAR-10: %s", path,
                             got != RECORD ? "the last record is not whole"
                                           : "more than 10,000 records");
        else
            status = take_record(r, record, path);
    }
    gd_stream_close(stream);
    return status;
}

static gd_status read_all(records *r, const char *folder, bool test)
{
    const char *const *names = test ? test_files : train_files;
    int count = test ? (int)(sizeof test_files / sizeof *test_files)
                     : (int)(sizeof train_files / sizeof *train_files);
    char path[PATH_BYTES];
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < count; i++)
        if (find_file(folder, names[i], path)) {
            status = read_file(r, path);
            if (test)
                return status;
        }
    if (status == GD_OK && r->count == 0)
        status = gd_fail(GD_ERR_IO, "%s: no %s is there, nor %s.gz", folder, names[0], names[0]);
    return status;
}

gd_dataset *gd_cifar10_with(gd_context *context, const char *folder,
                            const gd_cifar10_options *options)
{
    gd_cifar10_options o = { GD_CIFAR10_DEFAULTS };
    if (!gd_options_read("gd_cifar10", &o, sizeof o, options) || !context)
        return NULL;
    if (!folder)
        return gd_fail_null(GD_ERR_INVALID, "gd_cifar10: the folder is NULL");
    if (o.batch_dtype != GD_U8 && !gd_dtype_is_float(o.batch_dtype))
        return gd_fail_null(GD_ERR_DTYPE, "gd_cifar10: batches of images are u8 or floats, not %s",
                            gd_dtype_name(o.batch_dtype));
    records r = { 0 };
    if (read_all(&r, folder, o.test) != GD_OK) {
        gd_free(r.samples);
        gd_free(r.labels);
        return NULL;
    }
    const gd_field fields[2] = {
        { GD_FIELD_DEFAULTS, .name = "image", .shape = GD_SHAPE(3, 32, 32), .dtype = GD_U8,
          .batch_dtype = o.batch_dtype, .scale = o.batch_dtype == GD_U8 ? 1 : 1.0 / 255 },
        { GD_FIELD_DEFAULTS, .name = "label", .dtype = GD_I64, .classes = 10,
          .class_names = class_names },
    };
    void *const arrays[2] = { r.samples, r.labels };
    return gd_dataset_adopt(context, r.count, 2, fields, arrays);
}
