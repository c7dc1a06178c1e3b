/* io/npz.c: .npz files: ZIP archives (PKWARE, "APPNOTE.TXT") of .npy files, stored or deflated. Start
 * at gd_npz_open().
 *
 * The directory at the end of the file is what is read of the archive's structure; sizes and
 * offsets are there, with 64 bits where 32 do not suffice. Every one is checked against the file's
 * size before it is used. */
#include "io/npy.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/stream.h"

#include <stdio.h>
#include <string.h>

#ifdef GD_HAVE_ZLIB
#include <zlib.h>
#endif

enum {
    END_BYTES = 22,     /* of the record at the end, without its comment */
    END64_BYTES = 56,   /* of the record with 64 bits */
    LOCATOR_BYTES = 20, /* of what says where that is */
    ENTRY_BYTES = 46,   /* of a directory's entry, without name, extra field and comment */
    LOCAL_BYTES = 30,   /* of what stands before an entry's data, likewise */
    MAX_COMMENT = 65535,
    MOST_PER_BYTE = 1032, /* bytes that one byte of deflated data can give */
};

typedef struct entry {
    char *name; /* without ".npy" */
    unsigned method;
    uint32_t crc;
    uint64_t packed, size, offset;
} entry;

struct gd_npz {
    gd_file *file;
    char *path;
    entry *entries;
    size_t count, capacity;
};

static uint64_t little_endian(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

static gd_status fail_damaged(const gd_npz *z, const char *what)
{
    return gd_fail(GD_ERR_FORMAT, "%s: a damaged .npz archive: %s", z->path, what);
}

/* ---- the directory ---- */

/* Where the directory is, how long, and how many entries it has. */
typedef struct directory {
    uint64_t offset, bytes, count;
} directory;

/* The record of 64 bits, if the locator before the record at `end` leads to one. */
static gd_status read_end64(const gd_npz *z, size_t end, directory *d)
{
    unsigned char locator[LOCATOR_BYTES], record[END64_BYTES];
    if (end < LOCATOR_BYTES)
        return GD_OK;
    gd_status status = gd_file_read_at(z->file, end - LOCATOR_BYTES, LOCATOR_BYTES, locator);
    if (status != GD_OK || memcmp(locator, "PK\6\7", 4) != 0)
        return status;
    uint64_t at = little_endian(locator + 8, 8);
    if (at > end || end - at < END64_BYTES)
        return fail_damaged(z, "its end is not where it says");
    status = gd_file_read_at(z->file, (size_t)at, END64_BYTES, record);
    if (status != GD_OK)
        return status;
    if (memcmp(record, "PK\6\6", 4) != 0)
        return fail_damaged(z, "its end is not where it says");
    *d = (directory){ .count = little_endian(record + 32, 8),
                      .bytes = little_endian(record + 40, 8),
                      .offset = little_endian(record + 48, 8) };
    return GD_OK;
}

/* Search the last bytes of the file for the record at the end, backwards. */
static gd_status find_directory(const gd_npz *z, directory *d)
{
    size_t size = gd_file_size(z->file);
    size_t tail = size < MAX_COMMENT + END_BYTES ? size : MAX_COMMENT + END_BYTES;
    unsigned char *bytes = gd_alloc(tail + 1);
    gd_status status = bytes ? gd_file_read_at(z->file, size - tail, tail, bytes) : GD_ERR_MEMORY;
    size_t found = SIZE_MAX;
    for (size_t at = tail; status == GD_OK && found == SIZE_MAX && at >= END_BYTES; at--)
        if (memcmp(bytes + at - END_BYTES, "PK\5\6", 4) == 0)
            found = at - END_BYTES;
    if (status == GD_OK && found == SIZE_MAX)
        status = gd_fail(GD_ERR_FORMAT, "%s: not a .npz archive", z->path);
    if (status == GD_OK) {
        const unsigned char *end = bytes + found;
        *d = (directory){ .count = little_endian(end + 10, 2),
                          .bytes = little_endian(end + 12, 4),
                          .offset = little_endian(end + 16, 4) };
        status = read_end64(z, size - tail + found, d);
    }
    gd_free(bytes);
    if (status == GD_OK && (d->offset > size || d->bytes > size - d->offset))
        status = fail_damaged(z, "its directory is not in the file");
    return status;
}

/* Sizes and the offset that 32 bits do not hold, in the extra field of the number 1. */
static gd_status read_extra(const gd_npz *z, const unsigned char *extra, size_t bytes, entry *e)
{
    uint64_t *const wide[] = { &e->size, &e->packed, &e->offset };
    while (bytes >= 4) {
        size_t length = (size_t)little_endian(extra + 2, 2), at = 4;
        if (length > bytes - 4)
            return fail_damaged(z, "an entry's extra field");
        for (int i = 0; i < 3 && little_endian(extra, 2) == 1; i++) {
            if (*wide[i] != UINT32_MAX)
                continue;
            if (at + 8 > 4 + length)
                return fail_damaged(z, "an entry's extra field");
            *wide[i] = little_endian(extra + at, 8);
            at += 8;
        }
        extra += 4 + length;
        bytes -= 4 + length;
    }
    return GD_OK;
}

/* The entry at p, of which `left` bytes are there; *used: its length. */
static gd_status read_entry(gd_npz *z, const unsigned char *p, size_t left, size_t *used)
{
    if (left < ENTRY_BYTES || memcmp(p, "PK\1\2", 4) != 0)
        return fail_damaged(z, "its directory");
    size_t name = (size_t)little_endian(p + 28, 2), extra = (size_t)little_endian(p + 30, 2);
    *used = ENTRY_BYTES + name + extra + (size_t)little_endian(p + 32, 2);
    if (*used > left)
        return fail_damaged(z, "its directory");
    if (!gd_grow((void **)&z->entries, &z->capacity, z->count + 1, sizeof *z->entries))
        return GD_ERR_MEMORY;
    entry *e = &z->entries[z->count];
    *e = (entry){ .method = (unsigned)little_endian(p + 10, 2),
                  .crc = (uint32_t)little_endian(p + 16, 4),
                  .packed = little_endian(p + 20, 4),
                  .size = little_endian(p + 24, 4),
                  .offset = little_endian(p + 42, 4) };
    if (little_endian(p + 8, 2) & 1)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: the archive is encrypted", z->path);
    gd_status status = read_extra(z, p + ENTRY_BYTES + name, extra, e);
    if (status != GD_OK || name == 0 || p[ENTRY_BYTES + name - 1] == '/') /* a folder */
        return status;
    e->name = gd_alloc_zero(1, name + 1);
    if (!e->name)
        return GD_ERR_MEMORY;
    memcpy(e->name, p + ENTRY_BYTES, name);
    if (name > 4 && memcmp(e->name + name - 4, ".npy", 4) == 0)
        e->name[name - 4] = '\0';
    z->count++;
    return GD_OK;
}

static gd_status read_directory(gd_npz *z)
{
    directory d;
    gd_status status = find_directory(z, &d);
    unsigned char *bytes = status == GD_OK ? gd_alloc((size_t)d.bytes + 1) : NULL;
    if (!bytes)
        return status == GD_OK ? GD_ERR_MEMORY : status;
    status = gd_file_read_at(z->file, (size_t)d.offset, (size_t)d.bytes, bytes);
    size_t at = 0, used = 0;
    for (uint64_t i = 0; status == GD_OK && i < d.count; i++, at += used)
        status = read_entry(z, bytes + at, (size_t)d.bytes - at, &used);
    gd_free(bytes);
    return status;
}

gd_npz *gd_npz_open(const char *path)
{
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_npz_open: the path is NULL");
    gd_npz *z = gd_alloc_zero(1, sizeof *z);
    if (!z)
        return NULL;
    z->path = gd_strdup(path);
    gd_status status = z->path ? gd_file_open(path, &z->file) : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = read_directory(z);
    if (status == GD_OK)
        return z;
    gd_npz_close(z);
    return NULL;
}

void gd_npz_close(gd_npz *z)
{
    if (!z)
        return;
    for (size_t i = 0; i < z->count; i++)
        gd_free(z->entries[i].name);
    gd_free(z->entries);
    gd_file_close(z->file);
    gd_free(z->path);
    gd_free(z);
}

int64_t gd_npz_count(const gd_npz *z)
{
    return z ? (int64_t)z->count : 0;
}

const char *gd_npz_name(const gd_npz *z, int64_t index)
{
    return z && index >= 0 && index < (int64_t)z->count ? z->entries[index].name : NULL;
}

int64_t gd_npz_find(const gd_npz *z, const char *name)
{
    for (int64_t i = 0; name && i < gd_npz_count(z); i++)
        if (strcmp(gd_npz_name(z, i), name) == 0)
            return i;
    return -1;
}

/* ---- one array ---- */

#ifdef GD_HAVE_ZLIB

/* All of the deflated data at once; zlib counts in 32 bits, so in pieces. */
static gd_status unpack(const gd_npz *z, const entry *e, unsigned char *packed, unsigned char *out)
{
    const uint64_t piece = 1 << 30;
    z_stream zlib = {
        .zalloc = gd_zlib_alloc, .zfree = gd_zlib_free, .next_in = packed, .next_out = out
    };
    if (inflateInit2(&zlib, -15) != Z_OK)
        return gd_fail(GD_ERR_MEMORY, "%s: zlib could not start", z->path);
    int result = Z_OK;
    while (result == Z_OK) {
        uint64_t in = e->packed - (uint64_t)(zlib.next_in - packed);
        uint64_t room = e->size - (uint64_t)(zlib.next_out - out);
        zlib.avail_in = (unsigned)(in < piece ? in : piece);
        zlib.avail_out = (unsigned)(room < piece ? room : piece);
        result = inflate(&zlib, Z_NO_FLUSH);
    }
    bool whole = result == Z_STREAM_END && (uint64_t)(zlib.next_out - out) == e->size;
    inflateEnd(&zlib);
    if (result == Z_MEM_ERROR)
        return gd_fail(GD_ERR_MEMORY, "%s: out of memory while decompressing", z->path);
    return whole ? GD_OK : fail_damaged(z, "its deflated data");
}

static uint32_t checksum(const unsigned char *data, uint64_t size)
{
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t at = 0, piece; at < size; at += piece) {
        piece = size - at < 1 << 30 ? size - at : 1 << 30;
        crc = crc32(crc, data + at, (unsigned)piece);
    }
    return (uint32_t)crc;
}

static gd_status check_sum(const gd_npz *z, const entry *e, const unsigned char *data)
{
    return checksum(data, e->size) == e->crc ? GD_OK : fail_damaged(z, "a checksum differs");
}

#else

static gd_status unpack(const gd_npz *z, const entry *e, unsigned char *packed, unsigned char *out)
{
    (void)e, (void)packed, (void)out;
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "%s: compressed, which this build cannot read (it was built without zlib)",
                   z->path);
}

static gd_status check_sum(const gd_npz *z, const entry *e, const unsigned char *data)
{
    (void)z, (void)e, (void)data;
    return GD_OK;
}

#endif

/* Where the entry's data begin, behind a header with a name and an extra field of its own. */
static gd_status find_data(const gd_npz *z, const entry *e, size_t *at)
{
    unsigned char local[LOCAL_BYTES];
    size_t size = gd_file_size(z->file);
    if (size < LOCAL_BYTES || e->offset > size - LOCAL_BYTES)
        return fail_damaged(z, "an array is not in the file");
    gd_status status = gd_file_read_at(z->file, (size_t)e->offset, LOCAL_BYTES, local);
    if (status != GD_OK)
        return status;
    if (memcmp(local, "PK\3\4", 4) != 0)
        return fail_damaged(z, "an array is not where it says");
    *at = (size_t)e->offset + LOCAL_BYTES + (size_t)little_endian(local + 26, 2) +
          (size_t)little_endian(local + 28, 2);
    if (*at > size || e->packed > size - *at)
        return fail_damaged(z, "an array is not in the file");
    return GD_OK;
}

/* The bytes of the .npy file in the archive; gd_free them. */
static gd_status read_bytes(const gd_npz *z, const entry *e, unsigned char **out)
{
    enum { STORED = 0, DEFLATED = 8 };
    size_t at = 0;
    *out = NULL;
    if (e->method != STORED && e->method != DEFLATED)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: compression method %u", z->path, e->method);
    if (e->method == STORED ? e->size != e->packed
                            : e->size / MOST_PER_BYTE > e->packed || e->size > PTRDIFF_MAX)
        return fail_damaged(z, "an array's size");
    gd_status status = find_data(z, e, &at);
    unsigned char *packed = status == GD_OK ? gd_alloc((size_t)e->packed + 1) : NULL;
    if (!packed)
        return status == GD_OK ? GD_ERR_MEMORY : status;
    status = gd_file_read_at(z->file, at, (size_t)e->packed, packed);
    if (e->method == STORED) {
        *out = packed;
    } else {
        *out = status == GD_OK ? gd_alloc((size_t)e->size + 1) : NULL;
        if (status == GD_OK)
            status = *out ? unpack(z, e, packed, *out) : GD_ERR_MEMORY;
        gd_free(packed);
    }
    return status == GD_OK ? check_sum(z, e, *out) : status;
}

gd_status gd_npz_read(const gd_npz *z, int64_t index, gd_npy *out)
{
    if (out)
        *out = (gd_npy){ 0 };
    if (!z || !out || !gd_npz_name(z, index))
        return gd_fail(GD_ERR_INVALID, "gd_npz_read: no file, no result, or no array %lld",
                       (long long)index);
    const entry *e = &z->entries[index];
    char name[512]; /* the array's, in messages */
    unsigned char *bytes;
    gd_stream *stream = NULL;
    gd_snprintf(name, sizeof name, "%.400s: %.100s", z->path, e->name);
    gd_status status = read_bytes(z, e, &bytes);
    /* A stream would undo gzip, too: a few bytes could become any number. */
    if (status == GD_OK && e->size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
        status = fail_damaged(z, "an array that is compressed twice");
    if (status == GD_OK)
        status = gd_stream_open_memory(name, bytes, (size_t)e->size, &stream);
    if (status == GD_OK)
        status = gd_npy_read_stream(stream, out);
    gd_stream_close(stream);
    gd_free(bytes);
    return status;
}
