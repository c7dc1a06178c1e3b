/* io/file.h: whole files, in and out. Reading sees one size; writing is all or nothing. */
#ifndef GD_IO_FILE_H
#define GD_IO_FILE_H

#include <gradus/base.h>

/* A file open for reading at any position. Nothing is mapped: a file that another process truncates
 * in the meantime is an error where a mapping would be a signal. Replacing it as
 * gd_file_write_atomic() does leaves the open one as it was. */
typedef struct gd_file gd_file;

/* What is no regular file (a pipe) is read to its end here. On failure *out is NULL: GD_ERR_IO,
 * GD_ERR_MEMORY. */
gd_status gd_file_open(const char *path, gd_file **out);
void gd_file_close(gd_file *file);
size_t gd_file_size(const gd_file *file); /* when it was opened */

/* Read exactly `bytes` from position `at`. Several threads may. GD_ERR_IO: also where the file ends
 * before that. */
gd_status gd_file_read_at(const gd_file *file, size_t at, size_t bytes, void *out);

/* Read a file to its end into *out (gd_free it), with a 0 byte after the last. A file of more than
 * `limit` bytes is GD_ERR_FORMAT and is not read to its end. */
gd_status gd_file_read_all(const char *path, size_t limit, unsigned char **out, size_t *size);

typedef struct gd_file_part {
    const void *data;
    size_t bytes;
} gd_file_part;

/* Make `path` hold exactly the parts, one after another: written to a temporary file in the same
 * directory, flushed to the disk, then renamed, so that at any instant `path` is either the old
 * file or the whole new one. An existing file's permissions are kept. Where `path` is a symbolic
 * link, all this is done to what it points to; where it is no regular file (a device, a pipe), the
 * parts are written to it as they are. On GD_ERR_IO or GD_ERR_MEMORY the old file stands and the
 * temporary one is gone. */
gd_status gd_file_write_atomic(const char *path, const gd_file_part *parts, size_t count);

/* The same for what is not in memory as a whole: `source` writes it piece by piece. What it returns, if
 * not GD_OK, is returned, and the old file stands. */
typedef struct gd_file_sink gd_file_sink;
typedef gd_status (*gd_file_source)(void *user, gd_file_sink *sink);
gd_status gd_file_write_streamed(const char *path, gd_file_source source, void *user);
gd_status gd_file_sink_write(gd_file_sink *sink, const void *bytes, size_t size);

/* Rename a file, over an old one, so that it lasts through a power failure. */
gd_status gd_file_rename(const char *from, const char *to);
/* The same contents under a second name, in place of what has it: a hard link. GD_ERR_UNSUPPORTED, and
 * no error is recorded: the file system has none. */
gd_status gd_file_link(const char *from, const char *to);
/* Make a folder and those it lies in, where they are not there. */
gd_status gd_folder_create(const char *path);

#endif
