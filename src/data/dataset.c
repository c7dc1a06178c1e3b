/* data/dataset.c: data sets: their fields, and the values that are in memory. Start at
 * create_source(). Reading samples is data/read.c, giving them out in batches data/loader.c; readers
 * of files, which make data sets, are dataset_idx.c, cifar.c and image_folder.c. */
#include "data/dataset.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "tensor/element.h"

#include <math.h>
#include <string.h>

/* What a source is made of. */
typedef struct form {
    const char *who;
    int64_t count;
    int field_count;
    const gd_field *fields; /* as far apart as the first one's size */
    const void *const *arrays;
    const int64_t *const *lengths; /* NULL: none are known */
    gd_sample_fn get;
    void *user;
    void (*release)(void *user);
    bool one_thread;
    uint64_t fingerprint;
} form;

/* ---- what the fields are ---- */

/* Numbers of a sample, or of one step where the length varies; -1 for a shape that cannot be. */
static int64_t count_values(gd_shape shape, bool varies)
{
    if (shape.rank < 0 || shape.rank >= GD_MAX_RANK)
        return -1;
    int64_t values = 1;
    for (int i = varies; i < shape.rank; i++) {
        if (shape.dim[i] < 1 || shape.dim[i] > (INT64_C(1) << 40) / values)
            return -1;
        values *= shape.dim[i];
    }
    return values;
}

static gd_status check_shape(const form *f, gd_data_field *field)
{
    const gd_field *o = &field->spec;
    field->varies = o->shape.rank > 0 && o->shape.dim[0] == GD_VARIES;
    field->values = count_values(o->shape, field->varies);
    if (field->values < 0)
        return gd_fail(GD_ERR_SHAPE,
                       "%s: field \"%s\": a sample of rank %d with such sizes cannot be", f->who,
                       o->name, o->shape.rank);
    if (field->varies && (o->max_length < 1 || o->max_length > (INT64_C(1) << 40) / field->values))
        return gd_fail(GD_ERR_SHAPE, "%s: field \"%s\": a sequence of at most %lld steps cannot be",
                       f->who, o->name, (long long)o->max_length);
    field->room = field->varies ? field->values * o->max_length : field->values;
    if (f->count > (INT64_C(1) << 56) / 8 / field->room)
        return gd_fail(GD_ERR_INVALID, "%s: %lld samples of %lld numbers", f->who,
                       (long long)f->count, (long long)field->room);
    return GD_OK;
}

static gd_status check_dtypes(const form *f, gd_field *o)
{
    if (gd_dtype_size(o->dtype) == 0)
        return gd_fail(GD_ERR_DTYPE, "%s: field \"%s\": %d is no dtype", f->who, o->name,
                       (int)o->dtype);
    if (o->batch_dtype == GD_DTYPE_COUNT)
        o->batch_dtype = o->dtype;
    if (gd_dtype_size(o->batch_dtype) == 0 || !gd_can_convert(o->dtype, o->batch_dtype))
        return gd_fail(GD_ERR_DTYPE, "%s: field \"%s\": %s cannot be %s in batches", f->who,
                       o->name, gd_dtype_name(o->dtype), gd_dtype_name(o->batch_dtype));
    if (!isfinite(o->scale) || !isfinite(o->shift))
        return gd_fail(GD_ERR_INVALID, "%s: field \"%s\": scale %g and shift %g must be finite",
                       f->who, o->name, o->scale, o->shift);
    if ((o->scale != 1 || o->shift != 0) && !gd_dtype_is_float(o->batch_dtype))
        return gd_fail(GD_ERR_DTYPE,
                       "%s: field \"%s\": what is scaled has a float dtype in batches, not %s",
                       f->who, o->name, gd_dtype_name(o->batch_dtype));
    return GD_OK;
}

static gd_status check_classes(const form *f, const gd_field *o, bool in_memory)
{
    if (o->classes == 0 && !o->class_names)
        return GD_OK;
    if (o->classes < (in_memory ? -1 : 1) || o->classes == 0)
        return gd_fail(GD_ERR_INVALID, "%s: field \"%s\": %lld classes%s", f->who, o->name,
                       (long long)o->classes,
                       o->classes == -1 ? "; they can be counted where values are in memory" : "");
    if (!gd_dtype_is_integer(o->dtype) || !gd_dtype_is_integer(o->batch_dtype))
        return gd_fail(GD_ERR_DTYPE, "%s: field \"%s\": class indices are integers, not %s", f->who,
                       o->name, gd_dtype_name(o->dtype));
    if (o->classes == -1 && o->class_names)
        return gd_fail(GD_ERR_INVALID,
                       "%s: field \"%s\": names of classes that have not been counted", f->who,
                       o->name);
    return GD_OK;
}

static gd_status check_name(const form *f, const gd_source *s, int index, const char *name)
{
    if (!name || !*name)
        return gd_fail(GD_ERR_INVALID, "%s: field %d has no name", f->who, index);
    for (int i = 0; i < index; i++)
        if (strcmp(s->fields[i].spec.name, name) == 0)
            return gd_fail(GD_ERR_INVALID, "%s: two fields are called \"%s\"", f->who, name);
    return GD_OK;
}

/* What fills up sequences of integers is one of their dtype's numbers. */
static gd_status check_padding(const form *f, const gd_data_field *field)
{
    const gd_field *o = &field->spec;
    if (!field->varies || gd_dtype_is_float(o->batch_dtype))
        return GD_OK;
    char value[8];
    if (fabs(o->padding) <= 0x1p53) {
        gd_fill_values(o->batch_dtype, o->padding, value, 1);
        if (gd_element_as_double(o->batch_dtype, value) == o->padding)
            return GD_OK;
    }
    return gd_fail(GD_ERR_INVALID, "%s: field \"%s\": %s has no %g to fill up sequences with",
                   f->who, o->name, gd_dtype_name(o->batch_dtype), o->padding);
}

/* Class indices in memory: all of them are less than the number of classes, which is counted where
 * it is not given. */
static gd_status check_labels(const form *f, gd_data_field *field)
{
    const gd_conversion widen = gd_conversion_choose(field->spec.dtype, GD_I64, 1, 0, "");
    const size_t size = gd_dtype_size(field->spec.dtype);
    int64_t most = -1;
    for (int64_t i = 0; i < f->count; i++)
        for (int64_t k = 0; k < field->room; k++) {
            if (field->varies && k >= field->lengths[i] * field->values)
                break;
            int64_t label;
            gd_convert(&widen, (const char *)field->array + (size_t)(i * field->room + k) * size,
                       &label, 1);
            if (label < 0 || label == INT64_MAX)
                return gd_fail(GD_ERR_INVALID, "%s: label %lld of sample %lld is %s", f->who,
                               (long long)label, (long long)i,
                               label < 0 ? "negative" : "too large to count classes");
            if (field->spec.classes > 0 && label >= field->spec.classes)
                return gd_fail(GD_ERR_INVALID, "%s: label %lld of sample %lld, of %lld classes",
                               f->who, (long long)label, (long long)i,
                               (long long)field->spec.classes);
            most = label > most ? label : most;
        }
    if (field->spec.classes < 0)
        field->spec.classes = most + 1;
    return GD_OK;
}

static gd_status check_lengths(const form *f, const gd_data_field *field)
{
    for (int64_t i = 0; field->lengths && i < f->count; i++)
        if (field->lengths[i] < 0 || field->lengths[i] > field->spec.max_length)
            return gd_fail(GD_ERR_SHAPE,
                           "%s: field \"%s\": sample %lld has %lld steps, of at most %lld", f->who,
                           field->spec.name, (long long)i, (long long)field->lengths[i],
                           (long long)field->spec.max_length);
    return GD_OK;
}

/* ---- a source ---- */

static void free_names(gd_field *o, int64_t count)
{
    for (int64_t i = 0; o->class_names && i < count; i++)
        gd_free((char *)(uintptr_t)o->class_names[i]);
    gd_free((void *)(uintptr_t)o->class_names);
    gd_free((char *)(uintptr_t)o->name);
}

static void drop_source(gd_source *s)
{
    if (--s->references > 0)
        return;
    for (int i = 0; i < s->field_count; i++) {
        gd_data_field *field = &s->fields[i];
        free_names(&field->spec, field->spec.classes);
        if (s->owns_arrays)
            gd_free((void *)(uintptr_t)field->array);
        if (s->owns_lengths)
            gd_free((void *)(uintptr_t)field->lengths);
    }
    if (s->release)
        s->release(s->user);
    if (s->has_turn)
        pthread_mutex_destroy(&s->turn);
    gd_free(s);
}

/* Names become ours. On failure the field has none. */
static gd_status copy_names(gd_field *o)
{
    const char *const *given = o->class_names;
    const char **names = given ? gd_alloc_zero((size_t)o->classes, sizeof *names) : NULL;
    o->name = gd_strdup(o->name);
    o->class_names = names;
    bool ok = o->name && (names || !given);
    for (int64_t i = 0; ok && given && i < o->classes; i++)
        ok = (names[i] = gd_strdup(given[i] ? given[i] : "")) != NULL;
    if (ok)
        return GD_OK;
    free_names(o, o->classes);
    o->name = NULL;
    o->class_names = NULL;
    return GD_ERR_MEMORY;
}

/* Field number i of the source, whose fields before it are whole. */
static gd_status add_field(gd_source *s, const form *f, int i, const char *isa)
{
    gd_data_field *field = &s->fields[i];
    field->spec = (gd_field){ GD_FIELD_DEFAULTS };
    const char *given = (const char *)f->fields + (size_t)i * f->fields->size;
    if (!gd_options_read("gd_field", &field->spec, sizeof field->spec, given))
        return gd_error_last();
    gd_field *o = &field->spec;
    field->array = f->arrays ? f->arrays[i] : NULL;
    field->lengths = f->lengths ? f->lengths[i] : NULL;
    gd_status status = check_name(f, s, i, o->name);
    if (status == GD_OK && !field->array && !f->get)
        status =
            gd_fail(GD_ERR_INVALID, "%s: the values of field \"%s\" are NULL", f->who, o->name);
    if (status == GD_OK)
        status = check_dtypes(f, o);
    if (status == GD_OK)
        status = check_shape(f, field);
    if (status == GD_OK)
        status = check_padding(f, field);
    if (status == GD_OK)
        status = check_classes(f, o, field->array != NULL);
    if (!field->varies)
        field->lengths = NULL;
    if (status == GD_OK && field->array && field->varies && !field->lengths)
        status =
            gd_fail(GD_ERR_INVALID, "%s: the lengths of field \"%s\" are needed", f->who, o->name);
    if (status == GD_OK)
        status = check_lengths(f, field);
    if (status == GD_OK && field->array && o->classes)
        status = check_labels(f, field);
    if (status == GD_OK)
        status = copy_names(o);
    if (status != GD_OK)
        return status;
    s->field_count++;
    field->conversion = gd_conversion_choose(o->dtype, o->batch_dtype, o->scale, o->shift, isa);
    field->scratch = SIZE_MAX;
    if (!field->array && !field->conversion.copies) {
        field->scratch = s->scratch_bytes;
        s->scratch_bytes += ((size_t)field->room * gd_dtype_size(o->dtype) + 63) & ~(size_t)63;
    }
    return GD_OK;
}

static gd_status check_form(const form *f)
{
    if (f->count < 1)
        return gd_fail(GD_ERR_INVALID, "%s: %lld samples", f->who, (long long)f->count);
    if (f->field_count < 1 || f->field_count > GD_FIELDS_MAX || !f->fields)
        return gd_fail(GD_ERR_INVALID, "%s: %d fields; a sample has 1 to %d", f->who,
                       f->field_count, GD_FIELDS_MAX);
    return GD_OK;
}

/* On failure nothing is left, `release` has been called, and the arrays are the caller's. */
static gd_source *create_source(gd_context *context, const form *f)
{
    gd_source *s = check_form(f) == GD_OK ? gd_alloc_zero(1, sizeof *s) : NULL;
    if (!s) {
        if (f->release)
            f->release(f->user);
        return NULL;
    }
    *s = (gd_source){ .references = 1,
                      .count = f->count,
                      .get = f->get,
                      .user = f->user,
                      .release = f->release,
                      .one_thread = f->one_thread,
                      .fingerprint = f->fingerprint };
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < f->field_count; i++)
        status = add_field(s, f, i, gd_context_isa(context));
    s->has_turn = pthread_mutex_init(&s->turn, NULL) == 0;
    if (status == GD_OK && !s->has_turn)
        status = gd_fail(GD_ERR_MEMORY, "%s: no lock can be made", f->who);
    if (status == GD_OK)
        return s;
    drop_source(s);
    return NULL;
}

/* The lengths, which are few, and with `copy` the arrays become ours. */
static gd_status copy_arrays(gd_source *s, bool copy)
{
    bool ok = true;
    s->owns_arrays = copy;
    s->owns_lengths = true;
    for (int i = 0; i < s->field_count; i++) {
        gd_data_field *field = &s->fields[i];
        const void *array = field->array;
        const int64_t *lengths = field->lengths;
        size_t bytes = (size_t)(s->count * field->room) * gd_dtype_size(field->spec.dtype);
        void *own = ok && copy && array ? gd_alloc(bytes) : NULL;
        int64_t *own_lengths = ok && lengths ? gd_alloc((size_t)s->count * sizeof *lengths) : NULL;
        ok = ok && (own || !array || !copy) && (own_lengths || !lengths);
        if (own)
            memcpy(own, array, bytes);
        if (own_lengths)
            memcpy(own_lengths, lengths, (size_t)s->count * sizeof *lengths);
        field->array = copy ? own : array;
        field->lengths = own_lengths;
    }
    return ok ? GD_OK : GD_ERR_MEMORY;
}

/* ---- data sets ---- */

gd_dataset *gd_dataset_retain(gd_dataset *d)
{
    d->references++;
    return d;
}

void gd_dataset_unref(gd_dataset *d)
{
    if (--d->references > 0)
        return;
    drop_source(d->source);
    gd_free(d->indices);
    gd_free(d);
}

static void destroy(void *object)
{
    gd_dataset_unref(object);
}

void gd_dataset_release(gd_dataset *d)
{
    if (!d)
        return;
    gd_context_disown(d->context, d);
    destroy(d);
}

/* Takes the reference to the source, and the indices, over. */
static gd_dataset *open_dataset(gd_context *context, gd_source *source, int64_t count,
                                int64_t *indices)
{
    gd_dataset *d = gd_alloc_zero(1, sizeof *d);
    if (!d) {
        drop_source(source);
        gd_free(indices);
        return NULL;
    }
    *d = (gd_dataset){
        .references = 1, .context = context, .source = source, .count = count, .indices = indices
    };
    if (gd_context_adopt(context, d, destroy) == GD_OK)
        return d;
    destroy(d);
    return NULL;
}

gd_dataset *gd_dataset_select(const gd_dataset *dataset, int64_t count, int64_t *indices)
{
    dataset->source->references++;
    return open_dataset(dataset->context, dataset->source, count, indices);
}

gd_dataset *gd_dataset_adopt(gd_context *context, int64_t count, int field_count,
                             const gd_field *fields, void *const *arrays)
{
    const void *values[GD_FIELDS_MAX] = { 0 };
    memcpy(values, arrays, (size_t)field_count * sizeof *arrays);
    const form f = { .who = "gd_dataset",
                     .count = count,
                     .field_count = field_count,
                     .fields = fields,
                     .arrays = values };
    gd_source *s = create_source(context, &f);
    if (!s) {
        for (int i = 0; i < field_count; i++)
            gd_free(arrays[i]);
        return NULL;
    }
    s->owns_arrays = true;
    return open_dataset(context, s, count, NULL);
}

static gd_dataset *create(gd_context *context, const form *f, bool copy)
{
    gd_source *s = create_source(context, f);
    if (s && copy_arrays(s, copy) != GD_OK) {
        drop_source(s);
        return NULL;
    }
    return s ? open_dataset(context, s, f->count, NULL) : NULL;
}

gd_dataset *gd_dataset_create_with(gd_context *context, int64_t count, int field_count,
                                   const gd_field *fields, gd_sample_fn get, void *user,
                                   const gd_dataset_options *options)
{
    gd_dataset_options o = { GD_DATASET_DEFAULTS };
    if (!gd_options_read("gd_dataset_create", &o, sizeof o, options) || !context)
        return NULL;
    const form f = { .who = "gd_dataset_create",
                     .count = count,
                     .field_count = field_count,
                     .fields = fields,
                     .arrays = o.arrays,
                     .lengths = o.lengths,
                     .get = get,
                     .user = user,
                     .release = o.release,
                     .one_thread = o.one_thread,
                     .fingerprint = o.fingerprint };
    if (get)
        return create(context, &f, o.copy);
    if (o.release)
        o.release(user);
    return gd_fail_null(GD_ERR_INVALID, "gd_dataset_create: the callback is NULL");
}

gd_dataset *gd_dataset_from_arrays_with(gd_context *context, int64_t count, int field_count,
                                        const gd_field *fields, const void *const *arrays,
                                        const gd_dataset_from_arrays_options *options)
{
    gd_dataset_from_arrays_options o = { GD_DATASET_FROM_ARRAYS_DEFAULTS };
    if (!gd_options_read("gd_dataset_from_arrays", &o, sizeof o, options) || !context)
        return NULL;
    const form f = { .who = "gd_dataset_from_arrays",
                     .count = count,
                     .field_count = field_count,
                     .fields = fields,
                     .arrays = arrays,
                     .lengths = o.lengths };
    return create(context, &f, o.copy);
}

/* ---- what a data set is ---- */

int64_t gd_dataset_count(const gd_dataset *d)
{
    return d ? d->count : 0;
}

int gd_dataset_field_count(const gd_dataset *d)
{
    return d ? d->source->field_count : 0;
}

const gd_field *gd_dataset_field(const gd_dataset *d, int index)
{
    return d && index >= 0 && index < d->source->field_count ? &d->source->fields[index].spec
                                                             : NULL;
}

int gd_dataset_field_find(const gd_dataset *d, const char *name)
{
    for (int i = 0; name && i < gd_dataset_field_count(d); i++)
        if (strcmp(d->source->fields[i].spec.name, name) == 0)
            return i;
    return -1;
}

int gd_dataset_tensor_count(const gd_dataset *d)
{
    int count = gd_dataset_field_count(d);
    for (int i = 0; i < gd_dataset_field_count(d); i++)
        count += d->source->fields[i].varies;
    return count;
}
