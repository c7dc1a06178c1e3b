/* io/stream.c: a plain or gzip stream over a file descriptor or memory. Start at gd_stream_read().
 *
 * Both kinds of source present the same thing to the two readers: a run of raw bytes, `next` and
 * `available`, which refill() renews from the file. zlib's memory comes from gd_alloc, so that its
 * failures can be tested.
 */
#include "io/stream.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef GD_HAVE_ZLIB
#include <zlib.h>
#endif

#define BUFFER_BYTES ((size_t)64 << 10)

struct gd_stream {
    char *name;
    int fd;                    /* -1: memory */
    int64_t left;              /* plain bytes not yet read, -1 where unknown */
    const unsigned char *next; /* raw bytes available */
    size_t available;
    unsigned char *buffer; /* [BUFFER_BYTES] of a file's raw bytes */
    bool compressed;
#ifdef GD_HAVE_ZLIB
    z_stream zlib;
    bool zlib_open;
    bool between_members; /* a gzip file is one or more members; here one has ended */
#endif
};

/* ---- raw bytes ---- */

/* Read once from the file, through interruptions. */
static gd_status read_raw(gd_stream *stream, void *out, size_t bytes, size_t *got)
{
    ssize_t done;
    do
        done = read(stream->fd, out, bytes);
    while (done < 0 && errno == EINTR);
    *got = done > 0 ? (size_t)done : 0;
    if (done < 0)
        return gd_fail(GD_ERR_IO, "%s: cannot read: %s", stream->name, strerror(errno));
    return GD_OK;
}

static gd_status read_plain(gd_stream *stream, unsigned char *out, size_t bytes, size_t *got)
{
    gd_status status = GD_OK;
    while (*got < bytes && status == GD_OK) {
        size_t done = stream->available < bytes - *got ? stream->available : bytes - *got;
        if (done > 0) {
            memcpy(out + *got, stream->next, done);
            stream->next += done;
            stream->available -= done;
        } else if (stream->fd >= 0) {
            status = read_raw(stream, out + *got, bytes - *got, &done); /* straight to its place */
        }
        if (done == 0)
            break;
        *got += done;
    }
    if (stream->left >= 0)
        stream->left = stream->left > (int64_t)*got ? stream->left - (int64_t)*got : 0;
    return status;
}

/* ---- gzip ---- */

#ifdef GD_HAVE_ZLIB

/* Make raw bytes available; if there are none afterwards, the stream is at its end. */
static gd_status refill(gd_stream *stream)
{
    if (stream->available > 0 || stream->fd < 0)
        return GD_OK;
    stream->next = stream->buffer;
    return read_raw(stream, stream->buffer, BUFFER_BYTES, &stream->available);
}

void *gd_zlib_alloc(void *opaque, unsigned count, unsigned size)
{
    (void)opaque;
    return gd_alloc_zero(count, size);
}

void gd_zlib_free(void *opaque, void *block)
{
    (void)opaque;
    gd_free(block);
}

static gd_status open_gzip(gd_stream *stream)
{
    stream->zlib = (z_stream){ .zalloc = gd_zlib_alloc, .zfree = gd_zlib_free };
    const int gzip_only = 15 + 16; /* a window of 2^15 bytes, +16: a gzip wrapper and no other */
    if (inflateInit2(&stream->zlib, gzip_only) != Z_OK)
        return gd_fail(GD_ERR_MEMORY, "%s: zlib could not start", stream->name);
    stream->zlib_open = true;
    return GD_OK;
}

static void close_gzip(gd_stream *stream)
{
    if (stream->zlib_open)
        inflateEnd(&stream->zlib);
}

static unsigned clamp_to_unsigned(size_t bytes)
{
    return bytes < UINT_MAX ? (unsigned)bytes : UINT_MAX;
}

/* Decompress into [out, out+room) from the available raw bytes, of which there are some. */
static gd_status inflate_once(gd_stream *stream, unsigned char *out, size_t room, size_t *got)
{
    z_stream *zlib = &stream->zlib;
    unsigned offered = clamp_to_unsigned(stream->available);
    zlib->next_in = (unsigned char *)(uintptr_t)stream->next; /* zlib only reads there */
    zlib->avail_in = offered;
    zlib->next_out = out;
    zlib->avail_out = clamp_to_unsigned(room);
    int result = inflate(zlib, Z_NO_FLUSH);
    stream->next += offered - zlib->avail_in;
    stream->available -= offered - zlib->avail_in;
    *got = (size_t)(zlib->next_out - out);
    stream->between_members = result == Z_STREAM_END;
    if (result == Z_OK || result == Z_STREAM_END)
        return GD_OK;
    if (result == Z_MEM_ERROR)
        return gd_fail(GD_ERR_MEMORY, "%s: out of memory while decompressing", stream->name);
    return gd_fail(GD_ERR_FORMAT, "%s: broken gzip data (%s)", stream->name,
                   zlib->msg ? zlib->msg : "no progress");
}

static gd_status read_gzip(gd_stream *stream, unsigned char *out, size_t bytes, size_t *got)
{
    while (*got < bytes) {
        gd_status status = refill(stream);
        if (status != GD_OK)
            return status;
        if (stream->available == 0 && stream->between_members)
            return GD_OK; /* the end */
        if (stream->available == 0)
            return gd_fail(GD_ERR_FORMAT, "%s: the gzip data ends early", stream->name);
        if (stream->between_members)
            inflateReset(&stream->zlib); /* fails only on a stream that was never open */
        size_t done;
        status = inflate_once(stream, out + *got, bytes - *got, &done);
        *got += done;
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

#else

static gd_status open_gzip(gd_stream *stream)
{
    return gd_fail(
        GD_ERR_UNSUPPORTED,
        "%s: compressed with gzip, which this build cannot read (it was built without zlib)",
        stream->name);
}

static void close_gzip(gd_stream *stream)
{
    (void)stream;
}

static gd_status read_gzip(gd_stream *stream, unsigned char *out, size_t bytes, size_t *got)
{
    (void)out, (void)bytes, (void)got;
    return open_gzip(stream);
}

#endif

/* ---- opening ---- */

/* Look at the first bytes. A stream shorter than two bytes is plain. */
static gd_status recognise(gd_stream *stream)
{
    while (stream->fd >= 0 && stream->available < 2) {
        size_t done;
        gd_status status = read_raw(stream, stream->buffer + stream->available,
                                    BUFFER_BYTES - stream->available, &done);
        if (status != GD_OK)
            return status;
        if (done == 0)
            break;
        stream->available += done;
    }
    stream->compressed =
        stream->available >= 2 && stream->next[0] == 0x1f && stream->next[1] == 0x8b;
    if (!stream->compressed)
        return GD_OK;
    stream->left = -1;
    return open_gzip(stream);
}

static gd_stream *create(const char *name, size_t extra)
{
    gd_stream *stream = gd_alloc_zero(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->fd = -1;
    stream->left = -1;
    size_t room = strlen(name) + extra + 1;
    stream->name = gd_alloc(room);
    if (!stream->name) {
        gd_free(stream);
        return NULL;
    }
    snprintf(stream->name, room, "%s", name);
    return stream;
}

gd_status gd_stream_open_memory(const char *name, const void *bytes, size_t size, gd_stream **out)
{
    *out = NULL;
    gd_stream *stream = create(name, 0);
    if (!stream)
        return GD_ERR_MEMORY;
    stream->next = bytes;
    stream->available = size;
    stream->left = (int64_t)size;
    gd_status status = recognise(stream);
    if (status == GD_OK)
        *out = stream;
    else
        gd_stream_close(stream);
    return status;
}

/* Open stream->name, or else that name with ".gz" after it. */
static gd_status open_file(gd_stream *stream)
{
    stream->fd = open(stream->name, O_RDONLY | O_CLOEXEC);
    if (stream->fd < 0 && errno == ENOENT) {
        size_t length = strlen(stream->name);
        memcpy(stream->name + length, ".gz", sizeof ".gz"); /* create() left the room */
        stream->fd = open(stream->name, O_RDONLY | O_CLOEXEC);
        if (stream->fd < 0 && errno == ENOENT) {
            stream->name[length] = '\0';
            return gd_fail(GD_ERR_IO, "%s: no such file, with or without .gz", stream->name);
        }
    }
    struct stat info;
    if (stream->fd < 0 || fstat(stream->fd, &info) != 0)
        return gd_fail(GD_ERR_IO, "%s: cannot open: %s", stream->name, strerror(errno));
    if (S_ISREG(info.st_mode))
        stream->left = info.st_size;
    return GD_OK;
}

gd_status gd_stream_open(const char *path, gd_stream **out)
{
    *out = NULL;
    gd_stream *stream = create(path, strlen(".gz"));
    if (!stream)
        return GD_ERR_MEMORY;
    stream->buffer = gd_alloc(BUFFER_BYTES);
    stream->next = stream->buffer;
    gd_status status = stream->buffer ? open_file(stream) : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = recognise(stream);
    if (status == GD_OK)
        *out = stream;
    else
        gd_stream_close(stream);
    return status;
}

void gd_stream_close(gd_stream *stream)
{
    if (!stream)
        return;
    close_gzip(stream);
    if (stream->fd >= 0)
        close(stream->fd);
    gd_free(stream->buffer);
    gd_free(stream->name);
    gd_free(stream);
}

gd_status gd_stream_read(gd_stream *stream, void *out, size_t bytes, size_t *got)
{
    *got = 0;
    return stream->compressed ? read_gzip(stream, out, bytes, got)
                              : read_plain(stream, out, bytes, got);
}

int64_t gd_stream_left(const gd_stream *stream)
{
    return stream->left;
}

const char *gd_stream_name(const gd_stream *stream)
{
    return stream->name;
}

gd_status gd_stream_take(gd_stream *stream, size_t bytes, void **out, size_t *got)
{
    const size_t first_step = (size_t)1 << 16;
    int64_t left = gd_stream_left(stream);
    bool known = bytes < first_step || (left >= 0 && (uint64_t)left >= bytes);
    size_t capacity = known ? bytes : first_step;
    *out = NULL;
    *got = 0;
    for (;;) {
        void *grown = gd_realloc(*out, capacity ? capacity : 1);
        if (!grown)
            return GD_ERR_MEMORY;
        *out = grown;
        size_t more;
        gd_status status =
            gd_stream_read(stream, (unsigned char *)*out + *got, capacity - *got, &more);
        *got += more;
        if (status != GD_OK || *got < capacity || capacity == bytes)
            return status;
        capacity = bytes - capacity < capacity ? bytes : 2 * capacity;
    }
}
