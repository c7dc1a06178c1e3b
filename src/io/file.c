/* io/file.c: whole files through POSIX calls. Start at gd_file_write_atomic() for writing,
 * gd_file_view_open() for reading. Streams (gzip among them) are io/stream.c. */
#include "io/file.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static gd_status fail_errno(const char *path, const char *action)
{
    gd_fail(GD_ERR_IO, "%s: %s: %s", path, action, strerror(errno));
    return GD_ERR_IO;
}

static gd_status open_for_reading(const char *path, int *fd, struct stat *info)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return fail_errno(path, "cannot open");
    if (fstat(*fd, info) == 0)
        return GD_OK;
    gd_status status = fail_errno(path, "cannot examine");
    close(*fd);
    return status;
}

/* Read to the end of `fd`. `hint` is the size to expect; it may turn out otherwise. */
static gd_status read_to_end(int fd, const char *path, size_t hint, size_t limit,
                             unsigned char **out, size_t *size)
{
    void *bytes = NULL;
    size_t capacity = 0, used = 0;
    size_t want = hint < limit ? hint : limit;
    if (!gd_grow(&bytes, &capacity, want + 1, 1))
        return GD_ERR_MEMORY;
    for (;;) {
        ssize_t got = read(fd, (unsigned char *)bytes + used, capacity - used);
        if (got < 0 && errno == EINTR)
            continue;
        gd_status status = GD_OK;
        if (got < 0)
            status = fail_errno(path, "cannot read");
        else if ((size_t)got > limit - used)
            status = gd_fail(GD_ERR_FORMAT, "%s: more than the %zu bytes such a file may have",
                             path, limit);
        else if ((size_t)got == capacity - used && !gd_grow(&bytes, &capacity, capacity + 1, 1))
            status = GD_ERR_MEMORY;
        if (status != GD_OK) {
            gd_free(bytes);
            return status;
        }
        used += (size_t)got;
        if (got == 0)
            break;
    }
    ((unsigned char *)bytes)[used] = '\0'; /* used < capacity: a full buffer has grown */
    *out = bytes;
    *size = used;
    return GD_OK;
}

static size_t size_hint(const struct stat *info)
{
    return S_ISREG(info->st_mode) && info->st_size > 0 ? (size_t)info->st_size : 0;
}

gd_status gd_file_read_all(const char *path, size_t limit, unsigned char **out, size_t *size)
{
    *out = NULL;
    *size = 0;
    if (limit > SIZE_MAX / 2)
        limit = SIZE_MAX / 2; /* leaves room for the final 0 */
    int fd;
    struct stat info;
    gd_status status = open_for_reading(path, &fd, &info);
    if (status != GD_OK)
        return status;
    status = read_to_end(fd, path, size_hint(&info), limit, out, size);
    close(fd);
    return status;
}

gd_status gd_file_view_open(const char *path, gd_file_view *out)
{
    *out = (gd_file_view){ 0 };
    int fd;
    struct stat info;
    gd_status status = open_for_reading(path, &fd, &info);
    if (status != GD_OK)
        return status;
    size_t size = size_hint(&info);
    void *data = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (data != MAP_FAILED) {
        *out = (gd_file_view){ .data = data, .size = size, .mapped = true };
    } else { /* empty, a pipe, or a file system that cannot map */
        unsigned char *bytes = NULL;
        status = read_to_end(fd, path, size, SIZE_MAX / 2, &bytes, &size);
        if (status == GD_OK)
            *out = (gd_file_view){ .data = bytes, .size = size };
    }
    close(fd);
    return status;
}

void gd_file_view_close(gd_file_view *view)
{
    if (view->mapped)
        munmap((void *)(uintptr_t)view->data,
               view->size); /* through an integer: the view is of const bytes */
    else
        gd_free((void *)(uintptr_t)view->data);
    *view = (gd_file_view){ 0 };
}

/* ---- writing ---- */

/* Create a file beside `path`, under a name of its own. *temporary is gd_free'd by the caller. */
static gd_status create_beside(const char *path, char **temporary, int *fd)
{
    enum { TRIES = 1000 };
    static atomic_uint serial;
    size_t room = strlen(path) + 64;
    *temporary = gd_alloc(room);
    if (!*temporary)
        return GD_ERR_MEMORY;
    for (int i = 0; i < TRIES; i++) {
        snprintf(*temporary, room, "%s.%ld-%u.tmp", path, (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        *fd = open(*temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0)
            return GD_OK;
        if (errno != EEXIST)
            break;
    }
    gd_status status = fail_errno(path, "cannot create a temporary file beside it");
    gd_free(*temporary);
    *temporary = NULL;
    return status;
}

static bool write_all(int fd, const gd_file_part *part)
{
    const unsigned char *data = part->data;
    size_t left = part->bytes;
    while (left > 0) {
        ssize_t done = write(fd, data, left);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return false;
        data += done;
        left -= (size_t)done;
    }
    return true;
}

/* Fill the temporary file, push it to the disk and close it, whatever happens. */
static gd_status fill_and_close(int fd, const char *path, const gd_file_part *parts, size_t count)
{
    struct stat old;
    bool replaces = stat(path, &old) == 0 && S_ISREG(old.st_mode);
    if (replaces && fchmod(fd, old.st_mode & 07777) != 0)
        gd_log_message(GD_LOG_WARNING, "%s: its permissions could not be kept: %s", path,
                       strerror(errno));
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++)
        ok = write_all(fd, &parts[i]);
    ok = ok && fsync(fd) == 0;
    gd_status status = ok ? GD_OK : fail_errno(path, "cannot write");
    if (close(fd) != 0 && ok)
        status = fail_errno(path, "cannot write");
    return status;
}

/* The directory that holds `path`; *fd is -1 where it may be written but not read. */
static gd_status open_directory(const char *path, int *fd)
{
    const char *slash = strrchr(path, '/');
    char *directory = gd_strdup(slash ? path : ".");
    if (!directory)
        return GD_ERR_MEMORY;
    if (slash)
        directory[slash == path ? 1 : slash - path] = '\0';
    *fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    gd_free(directory);
    return GD_OK;
}

/* A rename lasts through a power failure once its directory is on the disk. Some file systems
 * cannot sync one. */
static gd_status sync_directory(int fd, const char *path)
{
    if (fd < 0 || fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP)
        return GD_OK;
    return fail_errno(path, "written, but its directory could not be synced");
}

gd_status gd_file_write_atomic(const char *path, const gd_file_part *parts, size_t count)
{
    char *temporary = NULL;
    int directory, fd;
    gd_status status = open_directory(path, &directory);
    if (status != GD_OK)
        return status;
    status = create_beside(path, &temporary, &fd);
    if (status == GD_OK) {
        status = fill_and_close(fd, path, parts, count);
        if (status == GD_OK && rename(temporary, path) != 0)
            status = fail_errno(path, "cannot replace");
        if (status != GD_OK)
            unlink(temporary);
        else
            status = sync_directory(directory, path);
    }
    gd_free(temporary);
    if (directory >= 0)
        close(directory);
    return status;
}
