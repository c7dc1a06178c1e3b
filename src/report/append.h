/* report/append.h: files that grow by whole records, and are written by one process. */
#ifndef GD_REPORT_APPEND_H
#define GD_REPORT_APPEND_H

#include <gradus/base.h>

typedef struct gd_append_file {
    int fd; /* -1: not open */
    char *path;
    uint64_t size; /* of the whole records in it */
} gd_append_file;

#define GD_APPEND_NONE \
    (gd_append_file)   \
    {                  \
        .fd = -1       \
    }

typedef enum gd_append_mode {
    GD_APPEND_NEW, /* GD_ERR_STATE if there is such a file with bytes in it */
    GD_APPEND_OLD  /* or a new one */
} gd_append_mode;

/* "folder/name". GD_ERR_STATE: also where another process writes it. Closed whatever it returns. */
gd_status gd_append_open(gd_append_file *file, const char *folder, const char *name,
                         gd_append_mode mode);
/* Where the next record goes: what is behind is cut off. */
gd_status gd_append_truncate(gd_append_file *file, uint64_t size);
/* One record, which is there as a whole or, on GD_ERR_IO, not at all. */
gd_status gd_append(gd_append_file *file, const void *bytes, size_t size);
gd_status gd_append_sync(const gd_append_file *file);
void gd_append_close(gd_append_file *file);

#endif
