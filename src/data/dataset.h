/* data/dataset.h: data sets as loaders, splits and readers of files see them. A gd_dataset is a selection of
 * samples, all or some, of a source, which has the fields and where their values come from. */
#ifndef GD_DATA_DATASET_H
#define GD_DATA_DATASET_H

#include <gradus/data.h>

#include "data/convert.h"

#include <pthread.h>

typedef struct gd_data_field {
    gd_field spec; /* whole; its strings are ours */
    bool varies;
    int64_t values; /* numbers of a sample, where the length varies of one step */
    int64_t room;   /* numbers of the longest sample */
    gd_conversion conversion;
    const void *array;      /* [count, room] of spec.dtype; NULL: `get` writes them */
    const int64_t *lengths; /* [count] where the length varies and is known beforehand, else NULL */
    size_t scratch;         /* where `get` writes values that are converted: an offset into what
                               gd_dataset_read is given; SIZE_MAX: it writes into the batch */
} gd_data_field;

typedef struct gd_source {
    int64_t references; /* counted by the context's thread alone */
    int64_t count;
    int field_count;
    gd_data_field fields[GD_FIELDS_MAX];
    bool owns_arrays, owns_lengths; /* of the fields */
    gd_sample_fn get;               /* NULL: all fields are in memory */
    void *user;
    void (*release)(void *user);
    bool one_thread, has_turn; /* has_turn: the lock has been made */
    pthread_mutex_t turn;      /* of one_thread */
    size_t scratch_bytes;
    uint64_t fingerprint; /* of what `get` writes */
} gd_source;

struct gd_dataset {
    int64_t references; /* its own, and those of its loaders */
    gd_context *context;
    gd_source *source;
    int64_t count;
    int64_t *indices; /* [count] of the source's samples, ours; NULL: all of them */
};

static inline int64_t gd_dataset_index(const gd_dataset *d, int64_t i)
{
    return d->indices ? d->indices[i] : i;
}

gd_dataset *gd_dataset_retain(gd_dataset *dataset);
void gd_dataset_unref(gd_dataset *dataset);

/* A data set whose arrays, [field_count] from gd_alloc, are taken over, whether it succeeds or not. */
gd_dataset *gd_dataset_adopt(gd_context *context, int64_t count, int field_count,
                             const gd_field *fields, void *const *arrays);
/* Samples indices[0 … count) of the source of `dataset`, as a data set of its own. Takes `indices`
 * over, whether it succeeds or not. */
gd_dataset *gd_dataset_select(const gd_dataset *dataset, int64_t count, int64_t *indices);

/* ---- reading: data/read.c ---- */

/* Rows of a batch, in memory. */
typedef struct gd_rows {
    void *values[GD_FIELDS_MAX];     // [size, room] of batch_dtype
    int64_t *lengths[GD_FIELDS_MAX]; // [size], of fields that vary
} gd_rows;

/* Memory for rows; close it all the same after a failure. */
gd_status gd_rows_open(const gd_source *source, int64_t size, gd_rows *rows);
void gd_rows_close(gd_rows *rows);

/* Write rows first … end-1: row i is sample indices[i]. `known` indices may be looked at, to ask for
 * the memory of samples that come later. `scratch` has the source's scratch_bytes. Stops at the first
 * error, whose row is *failed, and whose sentence names the sample. Allocates nothing. */
gd_status gd_dataset_read(const gd_dataset *dataset, const int64_t *indices, int64_t first,
                          int64_t end, int64_t known, const gd_rows *rows, void *scratch,
                          int64_t *failed);

/* The longest of lengths[0 … size), as a multiple of `multiple`, at least 1 and at most max_length. */
int64_t gd_padded_length(const gd_data_field *field, const int64_t *lengths, int64_t size,
                         int64_t multiple);
/* in [size, room] -> out [size, padded length * values], filled up. `out` may be `in`. */
void gd_pad_rows(const gd_data_field *field, const int64_t *lengths, int64_t size, int64_t padded,
                 const void *in, void *out);
/* The shape of a field in a batch. */
gd_shape gd_batch_shape(const gd_data_field *field, int64_t size, int64_t padded);

#endif
