/* io/tensor_file.c: tensors in and out of safetensors files. The format itself is io/safetensors.c;
 * this turns its arrays into tensors and back. Start at gd_tensors_save() and
 * gd_tensor_file_read(). */
#include <gradus/io.h>

#include "base/error.h"
#include "base/memory.h"
#include "io/snapshot.h"

#include <string.h>

/* ---- dtypes: the format's names ---- */

const char *const gd_safetensors_dtypes[GD_DTYPE_COUNT] = {
    [GD_F32] = "F32",   [GD_F64] = "F64", [GD_I32] = "I32",   [GD_I64] = "I64", [GD_U8] = "U8",
    [GD_BOOL] = "BOOL", [GD_F16] = "F16", [GD_BF16] = "BF16", [GD_I8] = "I8",   [GD_I16] = "I16",
    [GD_U16] = "U16",   [GD_U32] = "U32", [GD_U64] = "U64",
};

static gd_dtype find_dtype(const char *name)
{
    int dtype = 0;
    while (dtype < GD_DTYPE_COUNT && strcmp(gd_safetensors_dtypes[dtype], name) != 0)
        dtype++;
    return (gd_dtype)dtype;
}

/* Values are little-endian in the file: on a big-endian machine the bytes of each are reversed when
 * reading and writing. */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
enum { SAME_BYTE_ORDER = false };
void gd_fix_byte_order(unsigned char *data, size_t bytes, size_t size)
{
    for (size_t at = 0; at + size <= bytes; at += size)
        for (size_t i = 0; i < size / 2; i++) {
            unsigned char byte = data[at + i];
            data[at + i] = data[at + size - 1 - i];
            data[at + size - 1 - i] = byte;
        }
}
#else
enum { SAME_BYTE_ORDER = true };
void gd_fix_byte_order(unsigned char *data, size_t bytes, size_t size)
{
    (void)data, (void)bytes, (void)size;
}
#endif

/* ---- saving ---- */

/* What is written. */
typedef struct plan {
    gd_safetensors_entry *entries; /* [count] */
    int64_t (*dims)[GD_MAX_RANK];  /* [count] */
    gd_safetensors_string *metadata;
    unsigned char *values; /* of the tensors whose memory is not as the file has it */
} plan;

static size_t tensor_bytes(const gd_tensor *t)
{
    return (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
}

/* A tensor's values where they are in memory in the file's order, else NULL. */
static const void *values_in_place(gd_tensor *t)
{
    if (!SAME_BYTE_ORDER || !gd_tensor_is_contiguous(t) ||
        !gd_context_has_host_memory(gd_tensor_context(t)))
        return NULL;
    const uint64_t mark = gd_error_mark();
    const void *values = gd_tensor_map(t, GD_MAP_READ); /* gd_tensor_data is for writing, too */
    if (values)
        (void)gd_tensor_unmap(t);
    else
        gd_error_rollback(mark); /* it is mapped by another */
    return values;
}

static gd_status fill_entry(plan *p, size_t index, const gd_named_tensor *named, size_t *offset)
{
    gd_tensor *t = named->tensor;
    gd_shape shape = gd_tensor_shape(t);
    gd_dtype dtype = gd_tensor_dtype(t);
    size_t bytes = tensor_bytes(t);
    const void *values = values_in_place(t);
    if (!values) {
        unsigned char *copy = p->values + *offset;
        gd_status status = gd_tensor_read(t, copy, bytes);
        if (status != GD_OK)
            return status;
        gd_fix_byte_order(copy, bytes, gd_dtype_size(dtype));
        *offset += (bytes + 7) & ~(size_t)7;
        values = copy;
    }
    memcpy(p->dims[index], shape.dim, sizeof p->dims[index]);
    p->entries[index] = (gd_safetensors_entry){ .name = named->name,
                                                .dtype = gd_safetensors_dtypes[dtype],
                                                .rank = shape.rank,
                                                .shape = p->dims[index],
                                                .data = values,
                                                .bytes = bytes };
    return GD_OK;
}

static gd_status fill(plan *p, const gd_named_tensor *tensors, size_t count,
                      const gd_metadata *metadata, size_t metadata_count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (!tensors[i].tensor || !tensors[i].name)
            return gd_fail(GD_ERR_INVALID, "gd_tensors_save: the %s of tensor %zu is NULL",
                           tensors[i].name ? "tensor" : "name", i);
        if (!values_in_place(tensors[i].tensor))
            total += (tensor_bytes(tensors[i].tensor) + 7) & ~(size_t)7;
    }
    p->entries = gd_alloc_zero(count + 1, sizeof *p->entries);
    p->dims = gd_alloc_zero(count + 1, sizeof *p->dims);
    p->metadata = gd_alloc_zero(metadata_count + 1, sizeof *p->metadata); /* and the checksum */
    p->values = gd_alloc(total + 1);
    if (!p->entries || !p->dims || !p->metadata || !p->values)
        return GD_ERR_MEMORY;
    size_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        gd_status status = fill_entry(p, i, &tensors[i], &offset);
        if (status != GD_OK)
            return status;
    }
    p->metadata[0] = (gd_safetensors_string){ GD_SAFETENSORS_CHECKSUM, GD_SAFETENSORS_NO_CHECKSUM };
    for (size_t i = 0; i < metadata_count; i++)
        p->metadata[1 + i] = (gd_safetensors_string){ metadata[i].key, metadata[i].value };
    return GD_OK;
}

gd_status gd_tensors_save(const char *path, int64_t count, const gd_named_tensor *tensors,
                          int64_t metadata_count, const gd_metadata *metadata)
{
    if (!path || (!tensors && count) || (!metadata && metadata_count))
        return gd_fail(GD_ERR_INVALID, "gd_tensors_save: %s is NULL",
                       !path ? "the path" : "a list");
    if (count < 0 || metadata_count < 0)
        return gd_fail(GD_ERR_INVALID, "gd_tensors_save: %lld tensors and %lld strings",
                       (long long)count, (long long)metadata_count);
    plan p = { 0 };
    gd_status status = fill(&p, tensors, (size_t)count, metadata, (size_t)metadata_count);
    if (status == GD_OK)
        status = gd_safetensors_write(path, p.entries, (size_t)count, p.metadata,
                                      1 + (size_t)metadata_count);
    gd_free(p.entries);
    gd_free(p.dims);
    gd_free(p.metadata);
    gd_free(p.values);
    return status;
}

/* ---- reading ---- */

/* The public name of gd_safetensors: the same object. */
static const gd_safetensors *inside(const gd_tensor_file *file)
{
    return (const gd_safetensors *)file;
}

gd_tensor_file *gd_tensor_file_open(const char *path)
{
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_tensor_file_open: the path is NULL");
    gd_safetensors *file = NULL;
    return gd_safetensors_open(path, &file) == GD_OK ? (gd_tensor_file *)file : NULL;
}

void gd_tensor_file_close(gd_tensor_file *file)
{
    if (file)
        gd_safetensors_close((gd_safetensors *)file);
}

int64_t gd_tensor_file_count(const gd_tensor_file *file)
{
    return file ? (int64_t)gd_safetensors_count(inside(file)) : 0;
}

/* Entry `index`, described. */
static const gd_safetensors_entry *look_at(const gd_tensor_file *file, int64_t index,
                                           gd_tensor_info *info)
{
    if (index < 0 || index >= gd_tensor_file_count(file))
        return gd_fail_null(GD_ERR_INVALID, "gd_tensor_file: there is no tensor number %lld",
                            (long long)index);
    const gd_safetensors_entry *entry = gd_safetensors_at(inside(file), (size_t)index);
    *info = (gd_tensor_info){ .name = entry->name, .dtype = find_dtype(entry->dtype) };
    if (info->dtype == GD_DTYPE_COUNT || entry->rank > GD_MAX_RANK)
        return gd_fail_null(GD_ERR_UNSUPPORTED, "tensor \"%s\" is %s of rank %d, not used here",
                            entry->name, entry->dtype, entry->rank);
    info->shape.rank = entry->rank;
    for (int i = 0; i < entry->rank; i++)
        info->shape.dim[i] = entry->shape[i];
    return entry;
}

gd_status gd_tensor_file_info(const gd_tensor_file *file, int64_t index, gd_tensor_info *info)
{
    if (!info)
        return gd_fail(GD_ERR_INVALID, "gd_tensor_file_info: info is NULL");
    return look_at(file, index, info) ? GD_OK : gd_error_last();
}

int64_t gd_tensor_file_find(const gd_tensor_file *file, const char *name)
{
    const gd_safetensors_entry *entry =
        file && name ? gd_safetensors_find(inside(file), name) : NULL;
    return entry ? entry - gd_safetensors_at(inside(file), 0) : -1;
}

gd_tensor *gd_tensor_file_read(const gd_tensor_file *file, gd_context *context, int64_t index)
{
    gd_tensor_info info = { 0 };
    const gd_safetensors_entry *entry = look_at(file, index, &info);
    if (!entry)
        return NULL;
    unsigned char *copy = gd_alloc(entry->bytes + 1); /* aligned, in this machine's byte order */
    if (!copy)
        return NULL;
    gd_tensor *t = NULL;
    if (gd_safetensors_read(inside(file), entry, copy) == GD_OK) {
        gd_fix_byte_order(copy, entry->bytes, gd_dtype_size(info.dtype));
        t = gd_from_host(context, info.shape, info.dtype, copy);
    }
    gd_free(copy);
    return t;
}

gd_status gd_tensor_file_verify(const gd_tensor_file *file)
{
    return file ? gd_safetensors_verify(inside(file))
                : gd_fail(GD_ERR_INVALID, "gd_tensor_file_verify: the file is NULL");
}

const char *gd_tensor_file_metadata(const gd_tensor_file *file, const char *key)
{
    return file && key ? gd_safetensors_metadata(inside(file), key) : NULL;
}
