/* io/idx.c: the IDX reader. Start at read_array(); bytes come from io/stream.c, gunzipped where
 * need be. */
#include <gradus/data.h>

#include "base/error.h"
#include "base/memory.h"
#include "io/stream.h"

#include <stdio.h>
#include <string.h>

typedef struct type_row {
    const char *name;
    size_t size;
    gd_dtype dtype;
} type_row;

/* By the format's code. Codes without a name do not exist. */
static const type_row types[] = {
    [GD_IDX_U8] = { "u8", 1, GD_U8 },    [GD_IDX_I8] = { "i8", 1, GD_I8 },
    [GD_IDX_I16] = { "i16", 2, GD_I16 }, [GD_IDX_I32] = { "i32", 4, GD_I32 },
    [GD_IDX_F32] = { "f32", 4, GD_F32 }, [GD_IDX_F64] = { "f64", 8, GD_F64 },
};

static const type_row *find_type(unsigned code)
{
    bool known = code < sizeof types / sizeof *types && types[code].name;
    return known ? &types[code] : NULL;
}

const char *gd_idx_type_name(gd_idx_type type)
{
    const type_row *row = find_type((unsigned)type);
    return row ? row->name : "unknown";
}

size_t gd_idx_type_size(gd_idx_type type)
{
    const type_row *row = find_type((unsigned)type);
    return row ? row->size : 0;
}

gd_dtype gd_idx_dtype(gd_idx_type type)
{
    const type_row *row = find_type((unsigned)type);
    return row ? row->dtype : GD_DTYPE_COUNT;
}

/* ---- header ---- */

static uint32_t big_endian_u32(const unsigned char bytes[4])
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* "[60000, 28, 28]", cut short with "..." where there are too many sizes for a message. */
static void print_dims(const gd_idx *idx, char *text, size_t room)
{
    size_t at = (size_t)snprintf(text, room, "[");
    for (int i = 0; i < idx->rank && at < room; i++) {
        if (room - at < 32) {
            at += (size_t)snprintf(text + at, room - at, ", ...");
            break;
        }
        at += (size_t)snprintf(text + at, room - at, "%s%lld", i ? ", " : "",
                               (long long)idx->dims[i]);
    }
    snprintf(text + at, room - at, "]");
}

/* Product of the sizes times the size of a value; false when it exceeds what memory could ever
 * hold. */
static bool count_bytes(const gd_idx *idx, size_t value_size, size_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < idx->rank; i++)
        if (idx->dims[i] == 0)
            return true;
    size_t product = value_size;
    for (int i = 0; i < idx->rank; i++) {
        if ((uint64_t)idx->dims[i] > (uint64_t)PTRDIFF_MAX / product)
            return false;
        product *= (size_t)idx->dims[i];
    }
    *bytes = product;
    return true;
}

static gd_status read_header(gd_stream *stream, gd_idx *out)
{
    const char *name = gd_stream_name(stream);
    unsigned char magic[4];
    size_t got;
    gd_status status = gd_stream_read(stream, magic, sizeof magic, &got);
    if (status != GD_OK)
        return status;
    if (got < sizeof magic)
        return gd_fail(GD_ERR_FORMAT, "%s: %zu bytes are too few for an IDX header", name, got);
    const type_row *type = find_type(magic[2]);
    if (magic[0] != 0 || magic[1] != 0 || !type)
        return gd_fail(GD_ERR_FORMAT, "%s: not an IDX file (it begins %02x %02x %02x %02x)", name,
                       magic[0], magic[1], magic[2], magic[3]);
    out->type = (gd_idx_type)magic[2];
    out->rank = magic[3];

    unsigned char sizes[4 * GD_IDX_MAX_RANK];
    size_t bytes = 4 * (size_t)out->rank;
    status = gd_stream_read(stream, sizes, bytes, &got);
    if (status != GD_OK)
        return status;
    if (got < bytes)
        return gd_fail(GD_ERR_FORMAT, "%s: ends within the IDX header of rank %d", name, out->rank);
    for (int i = 0; i < out->rank; i++)
        out->dims[i] = big_endian_u32(sizes + 4 * i);
    if (!count_bytes(out, type->size, &out->bytes)) {
        char dims[128];
        print_dims(out, dims, sizeof dims);
        return gd_fail(GD_ERR_FORMAT,
                       "%s: the IDX header declares %s of %s, more than memory can hold", name,
                       dims, type->name);
    }
    return GD_OK;
}

/* ---- values ---- */

static gd_status fail_size(gd_stream *stream, const gd_idx *idx, const char *problem)
{
    char dims[128];
    print_dims(idx, dims, sizeof dims);
    return gd_fail(GD_ERR_FORMAT,
                   "%s: %s than the %zu bytes of values its IDX header declares (%s of %s)",
                   gd_stream_name(stream), problem, idx->bytes, dims, gd_idx_type_name(idx->type));
}

/* Fill out->data with out->bytes bytes. */
static gd_status read_values(gd_stream *stream, gd_idx *out)
{
    int64_t left = gd_stream_left(stream);
    if (left >= 0 && (uint64_t)left != out->bytes)
        return fail_size(stream, out, (uint64_t)left < out->bytes ? "holds less" : "holds more");
    size_t got;
    gd_status status = gd_stream_take(stream, out->bytes, &out->data, &got);
    if (status == GD_OK && got < out->bytes)
        status = fail_size(stream, out, "holds less");
    if (status != GD_OK)
        return status;

    unsigned char extra;
    status = gd_stream_read(stream, &extra, 1, &got); /* reaches gzip's checksum too */
    if (status == GD_OK && got > 0)
        status = fail_size(stream, out, "holds more");
    return status;
}

/* Compilers turn these loops into byte swaps, or into nothing on a big-endian machine. */
static void from_big_endian(unsigned char *data, size_t bytes, size_t size)
{
    if (size == 2) {
        for (size_t at = 0; at < bytes; at += 2) {
            uint16_t value = (uint16_t)(data[at] << 8 | data[at + 1]);
            memcpy(data + at, &value, sizeof value);
        }
    } else if (size == 4) {
        for (size_t at = 0; at < bytes; at += 4) {
            uint32_t value = big_endian_u32(data + at);
            memcpy(data + at, &value, sizeof value);
        }
    } else if (size == 8) {
        for (size_t at = 0; at < bytes; at += 8) {
            uint64_t value =
                (uint64_t)big_endian_u32(data + at) << 32 | big_endian_u32(data + at + 4);
            memcpy(data + at, &value, sizeof value);
        }
    }
}

static gd_status read_array(gd_stream *stream, gd_idx *out)
{
    gd_status status = read_header(stream, out);
    if (status == GD_OK)
        status = read_values(stream, out);
    if (status == GD_OK)
        from_big_endian(out->data, out->bytes, gd_idx_type_size(out->type));
    else
        gd_idx_free(out);
    return status;
}

gd_status gd_idx_read(const char *path, gd_idx *out)
{
    if (!path || !out)
        return gd_fail(GD_ERR_INVALID, "gd_idx_read: %s is NULL", path ? "out" : "path");
    memset(out, 0, sizeof *out);
    gd_stream *stream;
    gd_status status = gd_stream_open(path, &stream);
    if (status == GD_OK)
        status = read_array(stream, out);
    gd_stream_close(stream);
    return status;
}

gd_status gd_idx_read_memory(const void *bytes, size_t size, gd_idx *out)
{
    if (!out || (!bytes && size > 0))
        return gd_fail(GD_ERR_INVALID, "gd_idx_read_memory: %s is NULL", out ? "bytes" : "out");
    memset(out, 0, sizeof *out);
    gd_stream *stream;
    gd_status status = gd_stream_open_memory("memory", bytes, size, &stream);
    if (status == GD_OK)
        status = read_array(stream, out);
    gd_stream_close(stream);
    return status;
}

void gd_idx_free(gd_idx *idx)
{
    if (!idx)
        return;
    gd_free(idx->data);
    memset(idx, 0, sizeof *idx);
}
