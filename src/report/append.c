/* report/append.c: see append.h. */
#include "report/append.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static gd_status fail_errno(const gd_append_file *file, const char *what)
{
    return gd_fail(GD_ERR_IO, "%s: %s: %s", file->path, what, strerror(errno));
}

/* File systems without locks go without. */
static gd_status lock(const gd_append_file *file)
{
    if (flock(file->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return GD_OK;
    return gd_fail(GD_ERR_STATE, "%s: another process, or another log of this one, writes it",
                   file->path);
}

gd_status gd_append_open(gd_append_file *file, const char *folder, const char *name,
                         gd_append_mode mode)
{
    gd_text_buffer path = { 0 };
    gd_buffer_add(&path, "%s/%s", folder, name);
    *file = (gd_append_file){ .fd = -1, .path = path.text };
    if (path.failed)
        return GD_ERR_MEMORY;
    file->fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct stat about;
    if (file->fd < 0 || fstat(file->fd, &about) != 0)
        return fail_errno(file, "cannot open");
    if (!S_ISREG(about.st_mode))
        return gd_fail(GD_ERR_IO, "%s: is not a regular file", file->path);
    file->size = (uint64_t)about.st_size;
    gd_status status = lock(file);
    if (status == GD_OK && mode == GD_APPEND_NEW && file->size > 0)
        status = gd_fail(GD_ERR_STATE,
                         "%s: is there already, of an earlier run; resume that run, or take "
                         "another folder",
                         file->path);
    return status;
}

gd_status gd_append_truncate(gd_append_file *file, uint64_t size)
{
    if (ftruncate(file->fd, (off_t)size) != 0)
        return fail_errno(file, "cannot cut off its end");
    file->size = size;
    return GD_OK;
}

gd_status gd_append(gd_append_file *file, const void *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t wrote =
            pwrite(file->fd, (const char *)bytes + done, size - done, (off_t)(file->size + done));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0) {
            gd_status status = fail_errno(file, "cannot write");
            (void)ftruncate(file->fd,
                            (off_t)file->size); /* the next record covers the rest anyway */
            return status;
        }
        done += (size_t)wrote;
    }
    file->size += size;
    return GD_OK;
}

gd_status gd_append_sync(const gd_append_file *file)
{
    if (fsync(file->fd) == 0 || errno == EINVAL || errno == ENOTSUP)
        return GD_OK;
    return fail_errno(file, "cannot be written to the disk");
}

void gd_append_close(gd_append_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    gd_free(file->path);
    *file = GD_APPEND_NONE;
}
