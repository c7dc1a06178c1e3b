/* io/stream.h: bytes in sequence from a file or from memory, decompressed if they are gzip. */
#ifndef GD_IO_STREAM_H
#define GD_IO_STREAM_H

#include <gradus/base.h>

typedef struct gd_stream gd_stream;

/* Open for reading; when `path` does not exist, "path.gz" is tried. Gzip is recognised by its first
 * two bytes, not by the name. On failure *out is NULL: GD_ERR_IO, GD_ERR_MEMORY, GD_ERR_UNSUPPORTED
 * (gzip in a build without zlib). */
gd_status gd_stream_open(const char *path, gd_stream **out);

/* The same over bytes that the caller keeps until the stream is closed. Messages call it `name`, copied. */
gd_status gd_stream_open_memory(const char *name, const void *bytes, size_t size, gd_stream **out);

void gd_stream_close(gd_stream *stream);

/* Read up to `bytes`; *got is less only at the end. GD_ERR_IO, GD_ERR_FORMAT (broken gzip data),
 * GD_ERR_MEMORY. */
gd_status gd_stream_read(gd_stream *stream, void *out, size_t bytes, size_t *got);

/* Read up to `bytes` into new memory, *out (gd_free it, also on failure). Where the source's size is
 * not known beforehand, `bytes` is not believed: memory doubles as they arrive. */
gd_status gd_stream_take(gd_stream *stream, size_t bytes, void **out, size_t *got);

/* Bytes left, where that is known without reading them (regular files and memory, not compressed),
 * else -1. */
int64_t gd_stream_left(const gd_stream *stream);

/* What messages call the source: the path that was opened, or the name that was given. */
const char *gd_stream_name(const gd_stream *stream);

/* zlib's memory, from gd_alloc, so that its failures can be tested: zalloc and zfree of a z_stream. */
void *gd_zlib_alloc(void *opaque, unsigned count, unsigned size);
void gd_zlib_free(void *opaque, void *block);

#endif
