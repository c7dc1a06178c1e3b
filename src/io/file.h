/* io/file.h: whole files, in and out. Reading sees one size; writing is all or nothing. */
#ifndef GD_IO_FILE_H
#define GD_IO_FILE_H

#include <gradus/base.h>

/* A file's bytes, mapped or read. The mapping starts at a page. */
typedef struct gd_file_view {
    const unsigned char *data;
    size_t size;
    bool mapped;
} gd_file_view;

/* Map a regular file for reading (anything else is read to its end). Whoever else writes the file
 * in place while it is mapped changes these bytes; replacing it as gd_file_write_atomic() does
 * leaves them alone. GD_ERR_IO, GD_ERR_MEMORY. */
gd_status gd_file_view_open(const char *path, gd_file_view *out);
void gd_file_view_close(gd_file_view *view);

/* Read a file to its end into *out (gd_free it), with a 0 byte after the last. A file of more than
 * `limit` bytes is GD_ERR_FORMAT and is not read to its end. */
gd_status gd_file_read_all(const char *path, size_t limit, unsigned char **out, size_t *size);

typedef struct gd_file_part {
    const void *data;
    size_t bytes;
} gd_file_part;

/* Make `path` hold exactly the parts, one after another: written to a temporary file in the same
 * directory, flushed to the disk, then renamed, so that at any instant `path` is either the old
 * file or the whole new one. An existing file's permissions are kept. On GD_ERR_IO or GD_ERR_MEMORY
 * the old file stands and the temporary one is gone. */
gd_status gd_file_write_atomic(const char *path, const gd_file_part *parts, size_t count);

#endif
