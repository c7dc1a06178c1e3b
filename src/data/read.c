/* data/read.c: samples of a data set as rows of a batch. Start at gd_dataset_read(). */
#include "data/dataset.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static size_t row_bytes(const gd_data_field *field)
{
    return (size_t)field->room * gd_dtype_size(field->spec.batch_dtype);
}

/* ---- fields in memory ---- */

static const char *value_at(const gd_data_field *field, int64_t index)
{
    return (const char *)field->array +
           (size_t)(index * field->room) * gd_dtype_size(field->spec.dtype);
}

/* Samples lie far apart in memory: ask for those to come while this one is being converted, past the
 * end of the batch too. */
static void prefetch(const char *sample, size_t bytes)
{
    for (size_t at = 0; at < bytes && at < 4096; at += 64)
        __builtin_prefetch(sample + at, 0, 2);
}

static void read_sequences(const gd_dataset *d, const gd_data_field *field, const int64_t *indices,
                           int64_t first, int64_t end, void *out, int64_t *lengths)
{
    for (int64_t i = first; i < end; i++) {
        int64_t index = gd_dataset_index(d, indices[i]);
        lengths[i] = field->lengths[index];
        gd_convert(&field->conversion, value_at(field, index),
                   (char *)out + (size_t)i * row_bytes(field), lengths[i] * field->values);
    }
}

/* Labels: one number of 8 bytes. */
static void read_numbers(const gd_dataset *d, const gd_data_field *field, const int64_t *indices,
                         int64_t first, int64_t end, void *out)
{
    const int64_t *from = field->array;
    int64_t *to = out;
    for (int64_t i = first; i < end; i++)
        to[i] = from[gd_dataset_index(d, indices[i])];
}

static void read_array(const gd_dataset *d, const gd_data_field *field, const int64_t *indices,
                       int64_t first, int64_t end, int64_t known, void *out)
{
    enum { AHEAD = 8 };
    const size_t step = row_bytes(field);
    const size_t bytes = (size_t)field->room * gd_dtype_size(field->spec.dtype);
    const char *from = field->array;
    for (int64_t i = first; i < end; i++) {
        if (i + AHEAD < known)
            prefetch(from + (size_t)gd_dataset_index(d, indices[i + AHEAD]) * bytes, bytes);
        gd_convert(&field->conversion, from + (size_t)gd_dataset_index(d, indices[i]) * bytes,
                   (char *)out + (size_t)i * step, field->room);
    }
}

static void read_field(const gd_dataset *d, int f, const int64_t *indices, int64_t first,
                       int64_t end, int64_t known, const gd_rows *rows)
{
    const gd_data_field *field = &d->source->fields[f];
    if (field->varies)
        read_sequences(d, field, indices, first, end, rows->values[f], rows->lengths[f]);
    else if (field->room == 1 && field->conversion.copies && gd_dtype_size(field->spec.dtype) == 8)
        read_numbers(d, field, indices, first, end, rows->values[f]);
    else
        read_array(d, field, indices, first, end, known, rows->values[f]);
}

/* ---- fields that a callback writes ---- */

static gd_status check_length(const gd_data_field *field, int64_t length)
{
    if (length >= 0 && length <= field->spec.max_length)
        return GD_OK;
    return gd_fail(GD_ERR_SHAPE, "field \"%s\" has %lld steps, of at most %lld", field->spec.name,
                   (long long)length, (long long)field->spec.max_length);
}

static gd_status check_classes(const gd_data_field *field, const void *values, int64_t count)
{
    const gd_conversion widen = { .from = field->spec.batch_dtype, .to = GD_I64 };
    const char *at = values;
    for (int64_t i = 0; i < count; i++, at += gd_dtype_size(field->spec.batch_dtype)) {
        int64_t label;
        gd_convert(&widen, at, &label, 1);
        if (label < 0 || label >= field->spec.classes)
            return gd_fail(GD_ERR_INVALID, "field \"%s\" has label %lld, of %lld classes",
                           field->spec.name, (long long)label, (long long)field->spec.classes);
    }
    return GD_OK;
}

/* Field f of row i has been written to sample->data. */
static gd_status take_value(const gd_data_field *field, const gd_sample_values *sample, int f,
                            int64_t i, const gd_rows *rows)
{
    int64_t values = field->room;
    if (field->varies) {
        int64_t length = sample->length[f];
        gd_status status = check_length(field, length);
        if (status != GD_OK)
            return status;
        rows->lengths[f][i] = length;
        values = length * field->values;
    }
    char *out = (char *)rows->values[f] + (size_t)i * row_bytes(field);
    if (field->scratch != SIZE_MAX)
        gd_convert(&field->conversion, sample->data[f], out, values);
    return field->spec.classes > 0 ? check_classes(field, out, values) : GD_OK;
}

static gd_status call_back(const gd_source *s, int64_t index, gd_sample_values *sample)
{
    pthread_mutex_t *turn = (pthread_mutex_t *)&s->turn;
    if (s->one_thread)
        pthread_mutex_lock(turn);
    gd_status status = s->get(s->user, index, sample);
    if (s->one_thread)
        pthread_mutex_unlock(turn);
    return status;
}

static gd_status read_sample(const gd_source *s, int64_t index, int64_t i, const gd_rows *rows,
                             char *scratch)
{
    gd_sample_values sample = { 0 };
    for (int f = 0; f < s->field_count; f++) {
        const gd_data_field *field = &s->fields[f];
        if (field->varies)
            sample.length[f] = field->lengths ? field->lengths[index] : field->spec.max_length;
        if (!field->array)
            sample.data[f] = field->scratch != SIZE_MAX
                                 ? (void *)(scratch + field->scratch)
                                 : (char *)rows->values[f] + (size_t)i * row_bytes(field);
    }
    const uint64_t mark = gd_error_mark();
    gd_status status = gd_callback_status(call_back(s, index, &sample), mark, "gd_dataset_create");
    for (int f = 0; status == GD_OK && f < s->field_count; f++)
        if (!s->fields[f].array)
            status = take_value(&s->fields[f], &sample, f, i, rows);
    return status;
}

gd_status gd_dataset_read(const gd_dataset *d, const int64_t *indices, int64_t first, int64_t end,
                          int64_t known, const gd_rows *rows, void *scratch, int64_t *failed)
{
    const gd_source *s = d->source;
    const uint64_t mark = s->get ? gd_error_mark() : 0;
    for (int64_t i = first; s->get && i < end; i++) {
        gd_status status = read_sample(s, gd_dataset_index(d, indices[i]), i, rows, scratch);
        if (status == GD_OK)
            continue;
        char message[GD_ERROR_MESSAGE_BYTES];
        snprintf(message, sizeof message, "%s", gd_error_last_message());
        gd_error_rollback(mark);
        *failed = i;
        return gd_fail(status, "sample %lld: %s", (long long)indices[i], message);
    }
    for (int f = 0; f < s->field_count; f++)
        if (s->fields[f].array)
            read_field(d, f, indices, first, end, known, rows);
    return GD_OK;
}

/* ---- padding ---- */

int64_t gd_padded_length(const gd_data_field *field, const int64_t *lengths, int64_t size,
                         int64_t multiple)
{
    int64_t most = 1;
    for (int64_t i = 0; i < size; i++)
        most = lengths[i] > most ? lengths[i] : most;
    int64_t padded = (most + multiple - 1) / multiple * multiple;
    return padded < field->spec.max_length ? padded : field->spec.max_length;
}

void gd_pad_rows(const gd_data_field *field, const int64_t *lengths, int64_t size, int64_t padded,
                 const void *in, void *out)
{
    const size_t value = gd_dtype_size(field->spec.batch_dtype);
    const size_t to_step = (size_t)(padded * field->values) * value;
    for (int64_t i = 0; i < size; i++) {
        int64_t there = lengths[i] * field->values;
        char *to = (char *)out + (size_t)i * to_step;
        memmove(to, (const char *)in + (size_t)i * row_bytes(field), (size_t)there * value);
        gd_fill_values(field->spec.batch_dtype, field->spec.padding, to + (size_t)there * value,
                       padded * field->values - there);
    }
}

gd_shape gd_batch_shape(const gd_data_field *field, int64_t size, int64_t padded)
{
    gd_shape sample = field->spec.shape;
    gd_shape shape = { .rank = sample.rank + 1, .dim = { size } };
    memcpy(shape.dim + 1, sample.dim, sizeof(int64_t) * (size_t)sample.rank);
    if (field->varies)
        shape.dim[1] = padded;
    return shape;
}

/* ---- some samples as tensors ---- */

void gd_rows_close(gd_rows *rows)
{
    for (int f = 0; f < GD_FIELDS_MAX; f++) {
        gd_free(rows->values[f]);
        gd_free(rows->lengths[f]);
    }
}

gd_status gd_rows_open(const gd_source *s, int64_t size, gd_rows *rows)
{
    bool ok = true;
    for (int f = 0; ok && f < s->field_count; f++) {
        rows->values[f] = gd_alloc((size_t)size * row_bytes(&s->fields[f]) + 1);
        if (s->fields[f].varies)
            rows->lengths[f] = gd_alloc((size_t)size * sizeof(int64_t));
        ok = rows->values[f] && (rows->lengths[f] || !s->fields[f].varies);
    }
    return ok ? GD_OK : GD_ERR_MEMORY;
}

static gd_tensor *padded_tensor(const gd_dataset *d, const gd_data_field *field, int64_t size,
                                const int64_t *lengths, const void *values)
{
    int64_t padded = gd_padded_length(field, lengths, size, 1);
    gd_shape shape = gd_batch_shape(field, size, padded);
    void *rows =
        gd_alloc((size_t)(size * padded * field->values) * gd_dtype_size(field->spec.batch_dtype));
    if (!rows)
        return NULL;
    gd_pad_rows(field, lengths, size, padded, values, rows);
    gd_tensor *t = gd_from_host(d->context, shape, field->spec.batch_dtype, rows);
    gd_free(rows);
    return t;
}

static gd_status make_tensors(const gd_dataset *d, int64_t size, const gd_rows *rows,
                              gd_tensor **tensors)
{
    const gd_source *s = d->source;
    int next = s->field_count;
    for (int f = 0; f < s->field_count; f++) {
        const gd_data_field *field = &s->fields[f];
        tensors[f] = field->varies
                         ? padded_tensor(d, field, size, rows->lengths[f], rows->values[f])
                         : gd_from_host(d->context, gd_batch_shape(field, size, 0),
                                        field->spec.batch_dtype, rows->values[f]);
        if (!tensors[f])
            return gd_error_last();
        if (field->varies &&
            !(tensors[next++] = gd_from_host(d->context, GD_SHAPE(size), GD_I64, rows->lengths[f])))
            return gd_error_last();
    }
    return GD_OK;
}

static gd_status get(const gd_dataset *d, const int64_t *indices, int64_t count, void *scratch,
                     gd_tensor **tensors)
{
    gd_rows rows = { 0 };
    int64_t failed = 0;
    gd_status status = gd_rows_open(d->source, count, &rows);
    if (status == GD_OK)
        status = gd_dataset_read(d, indices, 0, count, count, &rows, scratch, &failed);
    if (status == GD_OK)
        status = make_tensors(d, count, &rows, tensors);
    gd_rows_close(&rows);
    return status;
}

gd_status gd_dataset_get(const gd_dataset *d, int64_t first, int64_t count, gd_tensor **tensors)
{
    if (!d || !tensors)
        return gd_fail(GD_ERR_INVALID, "gd_dataset_get: the %s NULL",
                       d ? "tensors are" : "data set is");
    const int tensor_count = gd_dataset_tensor_count(d);
    memset(tensors, 0, (size_t)tensor_count * sizeof *tensors);
    if (first < 0 || count < 1 || first > d->count - count)
        return gd_fail(GD_ERR_SHAPE, "gd_dataset_get: samples %lld to %lld of %lld",
                       (long long)first, (long long)(first + count - 1), (long long)d->count);
    int64_t *indices = gd_alloc((size_t)count * sizeof *indices);
    void *scratch = indices ? gd_alloc(d->source->scratch_bytes + 1) : NULL;
    for (int64_t i = 0; scratch && i < count; i++)
        indices[i] = first + i;
    gd_status status = scratch ? get(d, indices, count, scratch, tensors) : GD_ERR_MEMORY;
    gd_free(indices);
    gd_free(scratch);
    if (status != GD_OK)
        memset(tensors, 0, (size_t)tensor_count * sizeof *tensors);
    return status;
}
