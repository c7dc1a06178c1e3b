/* data/split.c: some of a data set's samples as a data set of its own: chosen by their indices, by
 * shares and by folds; and how many samples a class has. Start at gd_dataset_split_with() and
 * gd_dataset_fold_with(). */
#include "data/dataset.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

gd_dataset *gd_dataset_subset(const gd_dataset *dataset, int64_t count, const int64_t *indices)
{
    if (!dataset)
        return NULL;
    if (count < 1 || !indices)
        return gd_fail_null(GD_ERR_INVALID, "gd_dataset_subset: %lld indices", (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= dataset->count)
            return gd_fail_null(GD_ERR_SHAPE, "gd_dataset_subset: sample %lld of %lld",
                                (long long)indices[i], (long long)dataset->count);
    int64_t *own = gd_alloc((size_t)count * sizeof *own);
    if (!own)
        return NULL;
    for (int64_t i = 0; i < count; i++)
        own[i] = gd_dataset_index(dataset, indices[i]);
    return gd_dataset_select(dataset, count, own);
}

/* ---- classes of the samples ---- */

typedef struct classes {
    int64_t *label; // [count]
    int64_t *count; // [classes] samples of each
    int64_t classes;
} classes;

static void close_classes(classes *c)
{
    gd_free(c->label);
    gd_free(c->count);
}

/* One label after the other: a callback may write large samples. */
static gd_status call_back(const gd_dataset *d, int f, int64_t *labels)
{
    const gd_conversion widen = { .from = d->source->fields[f].spec.batch_dtype, .to = GD_I64 };
    gd_rows rows = { 0 };
    void *scratch = gd_alloc(d->source->scratch_bytes + 1);
    gd_status status = scratch ? gd_rows_open(d->source, 1, &rows) : GD_ERR_MEMORY;
    for (int64_t i = 0, failed; status == GD_OK && i < d->count; i++) {
        status = gd_dataset_read(d, &i, 0, 1, 1, &rows, scratch, &failed);
        if (status == GD_OK)
            gd_convert(&widen, rows.values[f], &labels[i], 1);
    }
    gd_rows_close(&rows);
    gd_free(scratch);
    return status;
}

static gd_status read_labels(const gd_dataset *d, int f, int64_t *labels)
{
    const gd_data_field *field = &d->source->fields[f];
    if (!field->array)
        return call_back(d, f, labels);
    const gd_conversion widen = { .from = field->spec.dtype, .to = GD_I64 };
    const size_t size = gd_dtype_size(field->spec.dtype);
    for (int64_t i = 0; i < d->count; i++)
        gd_convert(&widen, (const char *)field->array + (size_t)gd_dataset_index(d, i) * size,
                   &labels[i], 1);
    return GD_OK;
}

/* The class of every sample. Close it all the same after a failure. */
static gd_status open_classes(const char *who, const gd_dataset *d, int f, classes *c)
{
    const gd_field *field = gd_dataset_field(d, f);
    if (!field)
        return gd_fail(GD_ERR_INVALID, "%s: there is no field %d", who, f);
    if (field->classes < 1 || d->source->fields[f].varies || d->source->fields[f].room != 1)
        return gd_fail(GD_ERR_INVALID, "%s: field \"%s\" has %s", who, field->name,
                       field->classes < 1 ? "no classes" : "several classes a sample");
    c->classes = field->classes;
    c->label = gd_alloc((size_t)d->count * sizeof *c->label);
    c->count = gd_alloc_zero((size_t)c->classes, sizeof *c->count);
    if (!c->label || !c->count)
        return GD_ERR_MEMORY;
    gd_status status = read_labels(d, f, c->label);
    for (int64_t i = 0; status == GD_OK && i < d->count; i++)
        if (c->label[i] >= 0 && c->label[i] < c->classes)
            c->count[c->label[i]]++;
        else /* memory that was lent has changed */
            status = gd_fail(GD_ERR_INVALID, "%s: label %lld of sample %lld, of %lld classes", who,
                             (long long)c->label[i], (long long)i, (long long)c->classes);
    return status;
}

static double weight_of(const gd_dataset *d, const classes *c, int64_t class)
{
    return c->count[class] ? (double)d->count / ((double)c->classes * (double)c->count[class]) : 0;
}

gd_status gd_dataset_class_weights(const gd_dataset *d, int field, double *weights)
{
    if (!d || !weights)
        return gd_fail(GD_ERR_INVALID, "gd_dataset_class_weights: an argument is NULL");
    classes c = { 0 };
    gd_status status = open_classes("gd_dataset_class_weights", d, field, &c);
    for (int64_t k = 0; status == GD_OK && k < c.classes; k++)
        weights[k] = weight_of(d, &c, k);
    close_classes(&c);
    return status;
}

gd_status gd_dataset_sample_weights(const gd_dataset *d, int field, double *weights)
{
    if (!d || !weights)
        return gd_fail(GD_ERR_INVALID, "gd_dataset_sample_weights: an argument is NULL");
    classes c = { 0 };
    gd_status status = open_classes("gd_dataset_sample_weights", d, field, &c);
    for (int64_t i = 0; status == GD_OK && i < d->count; i++)
        weights[i] = weight_of(d, &c, c.label[i]);
    close_classes(&c);
    return status;
}

/* ---- who is in which part ---- */

/* A data set that is cut in two. */
typedef struct cut {
    const char *who;
    const gd_dataset *dataset;
    gd_dataset_split_options options;
    classes classes; /* of stratified cuts */
    int64_t *order;  // [count] in which samples are given to the parts
    bool *is_first;  // [count] which samples are in the first part
} cut;

static void close_cut(cut *c)
{
    close_classes(&c->classes);
    gd_free(c->order);
    gd_free(c->is_first);
}

/* Order the samples by their classes, which keep the order among their own. */
static gd_status sort_by_class(cut *c)
{
    const int64_t count = c->dataset->count;
    int64_t *starts = gd_alloc((size_t)c->classes.classes * sizeof *starts);
    int64_t *sorted = gd_alloc((size_t)count * sizeof *sorted);
    gd_status status = starts && sorted ? GD_OK : GD_ERR_MEMORY;
    for (int64_t k = 0, sum = 0; status == GD_OK && k < c->classes.classes; k++) {
        starts[k] = sum;
        sum += c->classes.count[k];
    }
    for (int64_t i = 0; status == GD_OK && i < count; i++)
        sorted[starts[c->classes.label[c->order[i]]]++] = c->order[i];
    if (status == GD_OK)
        memcpy(c->order, sorted, (size_t)count * sizeof *sorted);
    gd_free(starts);
    gd_free(sorted);
    return status;
}

/* Of a cut whose options are set. */
static gd_status open_cut(cut *c)
{
    const gd_dataset_split_options o = c->options;
    const int64_t count = c->dataset->count;
    c->order = gd_alloc((size_t)count * sizeof *c->order);
    c->is_first = gd_alloc_zero((size_t)count, sizeof *c->is_first);
    if (!c->order || !c->is_first)
        return GD_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        c->order[i] = i;
    gd_random random = { .seed = o.seed };
    if (o.shuffle)
        gd_random_shuffle(&random, c->order, count);
    if (o.stratify == -1)
        return GD_OK;
    gd_status status = open_classes(c->who, c->dataset, o.stratify, &c->classes);
    return status == GD_OK ? sort_by_class(c) : status;
}

static gd_dataset *part_of(const cut *c, bool first)
{
    const int64_t count = c->dataset->count;
    int64_t size = 0;
    for (int64_t i = 0; i < count; i++)
        size += c->is_first[i] == first;
    int64_t *indices = gd_alloc((size_t)size * sizeof *indices + 1);
    if (!indices)
        return NULL;
    for (int64_t i = 0, next = 0; i < count; i++)
        if (c->is_first[i] == first)
            indices[next++] = gd_dataset_index(c->dataset, i);
    return gd_dataset_select(c->dataset, size, indices);
}

static gd_status make_parts(const cut *c, gd_dataset **first, gd_dataset **second)
{
    *first = part_of(c, true);
    *second = *first ? part_of(c, false) : NULL;
    if (*second)
        return GD_OK;
    gd_status status = gd_error_last();
    gd_dataset_release(*first);
    *first = NULL;
    return status;
}

/* ---- shares ---- */

/* Samples order[begin … begin + part) are in the first part. */
static void take_first(cut *c, int64_t begin, int64_t part)
{
    for (int64_t i = 0; i < part; i++)
        c->is_first[c->order[begin + i]] = true;
}

/* Each class gives the whole number of samples below its share, and those with the largest rest one
 * more, until the first part is full. */
static gd_status take_shares(cut *c, double share, int64_t size)
{
    const int64_t count = c->classes.classes;
    double *rests = gd_alloc((size_t)count * sizeof *rests);
    int64_t *parts = gd_alloc((size_t)count * sizeof *parts);
    gd_status status = rests && parts ? GD_OK : GD_ERR_MEMORY;
    for (int64_t k = 0; status == GD_OK && k < count; k++) {
        double wanted = share * (double)c->classes.count[k];
        parts[k] = (int64_t)floor(wanted);
        rests[k] = wanted - floor(wanted);
        size -= parts[k];
    }
    for (; status == GD_OK && size > 0; size--) {
        int64_t most = 0;
        for (int64_t k = 1; k < count; k++)
            most = rests[k] > rests[most] ? k : most;
        parts[most]++;
        rests[most] = -1;
    }
    for (int64_t k = 0, begin = 0; status == GD_OK && k < count; begin += c->classes.count[k++])
        take_first(c, begin, parts[k]);
    gd_free(rests);
    gd_free(parts);
    return status;
}

gd_status gd_dataset_split_with(const gd_dataset *dataset, double share, gd_dataset **first,
                                gd_dataset **second, const gd_dataset_split_options *options)
{
    cut c = { .who = "gd_dataset_split",
              .dataset = dataset,
              .options = { GD_DATASET_SPLIT_DEFAULTS } };
    if (!gd_options_read(c.who, &c.options, sizeof c.options, options))
        return gd_error_last();
    if (!dataset || !first || !second)
        return gd_fail(GD_ERR_INVALID, "gd_dataset_split: an argument is NULL");
    *first = *second = NULL;
    const int64_t size = share > 0 && share < 1 ? llround(share * (double)dataset->count) : 0;
    if (size < 1 || size >= dataset->count)
        return gd_fail(GD_ERR_INVALID,
                       "gd_dataset_split: a share of %g of %lld samples: one part would have none",
                       share, (long long)dataset->count);
    gd_status status = open_cut(&c);
    if (status == GD_OK && c.options.stratify != -1)
        status = take_shares(&c, share, size);
    else if (status == GD_OK)
        take_first(&c, 0, size);
    if (status == GD_OK)
        status = make_parts(&c, first, second);
    close_cut(&c);
    return status;
}

/* ---- folds ---- */

/* The first of `count` samples in that fold: the first folds have one more where they cannot be as
 * large as each other. */
static int64_t fold_begin(int64_t count, int64_t folds, int64_t fold)
{
    const int64_t more = count % folds;
    return count / folds * fold + (fold < more ? fold : more);
}

gd_status gd_dataset_fold_with(const gd_dataset *dataset, int folds, int index, gd_dataset **rest,
                               gd_dataset **fold, const gd_dataset_split_options *options)
{
    cut c = { .who = "gd_dataset_fold",
              .dataset = dataset,
              .options = { GD_DATASET_SPLIT_DEFAULTS } };
    if (!gd_options_read(c.who, &c.options, sizeof c.options, options))
        return gd_error_last();
    if (!dataset || !rest || !fold)
        return gd_fail(GD_ERR_INVALID, "gd_dataset_fold: an argument is NULL");
    *rest = *fold = NULL;
    if (folds < 2 || folds > dataset->count || index < 0 || index >= folds)
        return gd_fail(GD_ERR_INVALID, "gd_dataset_fold: fold %d of %d, of %lld samples", index,
                       folds, (long long)dataset->count);
    gd_status status = open_cut(&c);
    /* sorted by class each fold takes every folds-th; else it is a stretch of the order */
    const bool is_sorted = c.options.stratify != -1;
    const int64_t count = dataset->count;
    const int64_t begin = is_sorted ? index : fold_begin(count, folds, index);
    const int64_t end = is_sorted ? count : fold_begin(count, folds, index + 1);
    for (int64_t i = begin; status == GD_OK && i < end; i += is_sorted ? folds : 1)
        c.is_first[c.order[i]] = true;
    if (status == GD_OK)
        status = make_parts(&c, fold, rest);
    close_cut(&c);
    return status;
}
