/* data/fingerprint.c: a number that tells data sets apart, so that a training goes on with the data it was
 * begun with. Start at gd_dataset_fingerprint(). */
#include "data/fingerprint.h"

#include "data/dataset.h"

#include <string.h>

enum { WHOLE = 16 << 20, PIECES = 1024, PIECE = 4096, ROWS = 4096 };

void gd_hash_add_spread(gd_hash *hash, const void *bytes, size_t size)
{
    if (size <= WHOLE) {
        gd_hash_add(hash, bytes, size);
        return;
    }
    for (size_t i = 0; i < PIECES; i++) {
        const size_t at = (size - PIECE) / (PIECES - 1) * i;
        gd_hash_add(hash, (const char *)bytes + (i == PIECES - 1 ? size - PIECE : at), PIECE);
    }
}

static void add_number(gd_hash *hash, int64_t number)
{
    gd_hash_add(hash, &number, sizeof number);
}

static void add_text(gd_hash *hash, const char *text)
{
    gd_hash_add(hash, text, strlen(text) + 1);
}

static void add_spec(gd_hash *hash, const gd_field *spec)
{
    const double numbers[] = { spec->scale, spec->shift, spec->padding };
    add_text(hash, spec->name);
    add_number(hash, spec->shape.rank);
    for (int i = 0; i < spec->shape.rank; i++)
        add_number(hash, spec->shape.dim[i]);
    add_number(hash, spec->dtype);
    add_number(hash, spec->batch_dtype);
    add_number(hash, spec->max_length);
    add_number(hash, spec->classes);
    gd_hash_add(hash, numbers, sizeof numbers);
    for (int64_t i = 0; spec->class_names && i < spec->classes; i++)
        add_text(hash, spec->class_names[i]);
}

/* What lies behind the end of a sequence is nobody's. */
static void add_sequences(gd_hash *hash, const gd_data_field *field, int64_t count)
{
    const size_t value = gd_dtype_size(field->spec.dtype);
    const size_t row = (size_t)field->room * value;
    const bool is_small = (size_t)count * row <= WHOLE;
    const int64_t step = is_small ? 1 : (count + ROWS - 1) / ROWS;
    for (int64_t i = 0; i < count; i += step) {
        const size_t there = (size_t)(field->lengths[i] * field->values) * value;
        gd_hash_add(hash, (const char *)field->array + (size_t)i * row,
                    is_small || there < PIECE ? there : PIECE);
    }
}

static void add_field(gd_hash *hash, const gd_data_field *field, int64_t count)
{
    add_spec(hash, &field->spec);
    if (field->lengths)
        gd_hash_add_spread(hash, field->lengths, (size_t)count * sizeof *field->lengths);
    if (field->array && field->varies)
        add_sequences(hash, field, count);
    else if (field->array)
        gd_hash_add_spread(hash, field->array,
                           (size_t)(count * field->room) * gd_dtype_size(field->spec.dtype));
}

uint64_t gd_dataset_fingerprint(const gd_dataset *d)
{
    if (!d)
        return 0;
    gd_hash hash;
    gd_hash_begin(&hash);
    add_number(&hash, d->source->count);
    add_number(&hash, d->count);
    if (d->indices)
        gd_hash_add_spread(&hash, d->indices, (size_t)d->count * sizeof *d->indices);
    gd_hash_add(&hash, &d->source->fingerprint, sizeof d->source->fingerprint);
    for (int i = 0; i < d->source->field_count; i++)
        add_field(&hash, &d->source->fields[i], d->source->count);
    return gd_hash_end(&hash);
}
