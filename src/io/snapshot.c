/* io/snapshot.c: tensors copied, to be written later. Start at gd_snapshot_take(). */
#include "io/snapshot.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

static size_t padded(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

static size_t tensor_bytes(const gd_tensor *t)
{
    return (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
}

/* Room for everything, so that nothing moves while it is filled. */
static bool make_room(gd_snapshot *s, size_t count, const gd_named_tensor *tensors,
                      size_t metadata_count, const gd_metadata *metadata)
{
    size_t text = 1, values = 1;
    for (size_t i = 0; i < count; i++) {
        text += strlen(tensors[i].name) + 1;
        values += padded(tensor_bytes(tensors[i].tensor));
    }
    for (size_t i = 0; i < metadata_count; i++)
        text += strlen(metadata[i].key) + strlen(metadata[i].value) + 2;
    return gd_grow((void **)&s->entries, &s->entry_capacity, count + 1, sizeof *s->entries) &&
           gd_grow((void **)&s->dims, &s->dim_capacity, GD_MAX_RANK * (count + 1),
                   sizeof *s->dims) &&
           gd_grow((void **)&s->metadata, &s->metadata_capacity, metadata_count + 1,
                   sizeof *s->metadata) &&
           gd_grow((void **)&s->text, &s->text_capacity, text, 1) &&
           gd_grow((void **)&s->values, &s->value_capacity, values, 1);
}

static const char *copy_text(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

gd_status gd_snapshot_take(gd_snapshot *s, size_t count, const gd_named_tensor *tensors,
                           size_t metadata_count, const gd_metadata *metadata)
{
    s->count = s->metadata_count = 0;
    if (!make_room(s, count, tensors, metadata_count, metadata))
        return GD_ERR_MEMORY;
    char *text = s->text;
    s->metadata[0] = (gd_safetensors_string){ GD_SAFETENSORS_CHECKSUM, GD_SAFETENSORS_NO_CHECKSUM };
    for (size_t i = 0; i < metadata_count; i++) {
        const char *key = copy_text(&text, metadata[i].key);
        s->metadata[1 + i] = (gd_safetensors_string){ key, copy_text(&text, metadata[i].value) };
    }
    unsigned char *values = s->values;
    for (size_t i = 0; i < count; i++) {
        gd_tensor *t = tensors[i].tensor;
        gd_shape shape = gd_tensor_shape(t);
        size_t bytes = tensor_bytes(t);
        gd_status status = gd_tensor_read(t, values, bytes);
        if (status != GD_OK)
            return status;
        gd_fix_byte_order(values, bytes, gd_dtype_size(gd_tensor_dtype(t)));
        int64_t *dims = s->dims + GD_MAX_RANK * i;
        memcpy(dims, shape.dim, sizeof shape.dim);
        s->entries[i] = (gd_safetensors_entry){ .name = copy_text(&text, tensors[i].name),
                                                .dtype = gd_safetensors_dtypes[gd_tensor_dtype(t)],
                                                .rank = shape.rank,
                                                .shape = dims,
                                                .data = values,
                                                .bytes = bytes };
        values += padded(bytes);
    }
    s->count = count;
    s->metadata_count = 1 + metadata_count;
    return GD_OK;
}

gd_status gd_snapshot_write(const gd_snapshot *s, const char *path)
{
    return gd_safetensors_write(path, s->entries, s->count, s->metadata, s->metadata_count);
}

void gd_snapshot_free(gd_snapshot *s)
{
    gd_free(s->entries);
    gd_free(s->dims);
    gd_free(s->metadata);
    gd_free(s->text);
    gd_free(s->values);
    *s = (gd_snapshot){ 0 };
}
