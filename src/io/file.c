/* io/file.c: files through POSIX calls. Start at gd_file_write_atomic() for writing, gd_file_open()
 * for reading. Streams (gzip among them) are io/stream.c. */
#include "io/file.h"

#include <gradus/io.h>

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
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

/* The file's size; 0 where the system does not say. */
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

struct gd_file {
    char *path;
    int fd;               /* -1: the bytes are in memory */
    unsigned char *bytes; /* the contents, where the file is not a regular one (a pipe) */
    size_t size;
};

void gd_file_close(gd_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    gd_free(file->bytes);
    gd_free(file->path);
    gd_free(file);
}

gd_status gd_file_open(const char *path, gd_file **out)
{
    *out = NULL;
    gd_file *file = gd_alloc_zero(1, sizeof *file);
    if (!file)
        return GD_ERR_MEMORY;
    file->fd = -1;
    file->path = gd_strdup(path);
    struct stat info;
    gd_status status =
        file->path ? open_for_reading(path, &file->fd, &info) : gd_fail_memory(strlen(path));
    file->size = status == GD_OK ? size_hint(&info) : 0;
    if (status == GD_OK && file->size == 0) { /* empty, or its end is where reading ends */
        status = read_to_end(file->fd, path, 0, SIZE_MAX / 2, &file->bytes, &file->size);
        close(file->fd);
        file->fd = -1;
    }
    if (status == GD_OK)
        *out = file;
    else
        gd_file_close(file);
    return status;
}

size_t gd_file_size(const gd_file *file)
{
    return file->size;
}

gd_status gd_file_read_at(const gd_file *file, size_t at, size_t bytes, void *out)
{
    if (at > file->size || bytes > file->size - at)
        return gd_fail(GD_ERR_IO, "%s: has %zu bytes, %zu from byte %zu on are wanted", file->path,
                       file->size, bytes, at);
    if (file->fd < 0) {
        memcpy(out, file->bytes + at, bytes);
        return GD_OK;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t got =
            pread(file->fd, (unsigned char *)out + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(file->path, "cannot read");
        if (got == 0)
            return gd_fail(GD_ERR_IO, "%s: has become shorter than it was when it was opened",
                           file->path);
        done += (size_t)got;
    }
    return GD_OK;
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

struct gd_file_sink {
    int fd;
    const char *path;
};

gd_status gd_file_sink_write(gd_file_sink *sink, const void *bytes, size_t size)
{
    for (const unsigned char *data = bytes; size > 0;) {
        ssize_t done = write(sink->fd, data, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail_errno(sink->path, "cannot write");
        data += done;
        size -= (size_t)done;
    }
    return GD_OK;
}

/* What writes a file's bytes. */
typedef struct contents {
    gd_file_source write;
    void *user;
} contents;

/* Fill the temporary file, push it to the disk and close it, whatever happens. */
static gd_status fill_and_close(int fd, const char *path, const contents *c)
{
    struct stat old;
    bool replaces = stat(path, &old) == 0 && S_ISREG(old.st_mode);
    if (replaces && fchmod(fd, old.st_mode & 07777) != 0)
        gd_log_message(GD_LOG_WARNING, "%s: its permissions could not be kept: %s", path,
                       strerror(errno));
    gd_status status = c->write(c->user, &(gd_file_sink){ fd, path });
    if (status == GD_OK && fsync(fd) != 0)
        status = fail_errno(path, "cannot write");
    if (close(fd) != 0 && status == GD_OK)
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

/* The file that symbolic links lead to, there or not, to be gd_free'd. */
static gd_status follow_links(const char *path, char **out)
{
    enum { MOST_LINKS = 40 };
    char target[PATH_MAX];
    *out = gd_strdup(path);
    for (int i = 0; *out; i++) {
        ssize_t length = readlink(*out, target, sizeof target);
        if (length < 0)
            return GD_OK; /* no link; if it cannot be written either, creating a file tells */
        if (length == (ssize_t)sizeof target || i == MOST_LINKS) {
            gd_free(*out);
            *out = NULL;
            (void)gd_fail(GD_ERR_IO, "%s: cannot follow the symbolic link", path);
            return GD_ERR_IO;
        }
        target[length] = '\0';
        const char *slash = target[0] == '/' ? NULL : strrchr(*out, '/');
        size_t folder = slash ? (size_t)(slash - *out) + 1 : 0; /* a relative one starts there */
        char *next = gd_alloc(folder + (size_t)length + 1);
        if (next) {
            memcpy(next, *out, folder);
            memcpy(next + folder, target, (size_t)length + 1);
        }
        gd_free(*out);
        *out = next;
    }
    return GD_ERR_MEMORY;
}

/* A device or a pipe cannot be replaced. Asked before links are followed: /dev/stdout is a link to
 * the name of what may be a pipe, which leads nowhere. */
static bool is_special(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

static gd_status write_special(const char *path, const contents *c)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(path, "cannot open");
    gd_status status = c->write(c->user, &(gd_file_sink){ fd, path });
    if (close(fd) != 0 && status == GD_OK)
        status = fail_errno(path, "cannot write");
    return status;
}

static gd_status replace_file(const char *path, const contents *c)
{
    char *temporary = NULL;
    int directory, fd;
    gd_status status = open_directory(path, &directory);
    if (status != GD_OK)
        return status;
    status = create_beside(path, &temporary, &fd);
    if (status == GD_OK) {
        status = fill_and_close(fd, path, c);
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

gd_status gd_file_write_streamed(const char *path, gd_file_source source, void *user)
{
    const contents c = { source, user };
    if (is_special(path))
        return write_special(path, &c);
    char *target;
    gd_status status = follow_links(path, &target);
    if (status == GD_OK)
        status = replace_file(target, &c);
    gd_free(target);
    return status;
}

typedef struct part_list {
    const gd_file_part *parts;
    size_t count;
} part_list;

static gd_status write_parts(void *user, gd_file_sink *sink)
{
    const part_list *list = user;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < list->count; i++)
        status = gd_file_sink_write(sink, list->parts[i].data, list->parts[i].bytes);
    return status;
}

gd_status gd_file_write_atomic(const char *path, const gd_file_part *parts, size_t count)
{
    return gd_file_write_streamed(path, write_parts, &(part_list){ parts, count });
}

gd_status gd_file_rename(const char *from, const char *to)
{
    int directory;
    gd_status status = open_directory(to, &directory);
    if (status != GD_OK)
        return status;
    status =
        rename(from, to) == 0 ? sync_directory(directory, to) : fail_errno(to, "cannot replace");
    if (directory >= 0)
        close(directory);
    return status;
}

gd_status gd_file_link(const char *from, const char *to)
{
    size_t size = strlen(to) + sizeof ".link";
    char *name = gd_alloc(size);
    if (!name)
        return GD_ERR_MEMORY;
    snprintf(name, size, "%s.link", to);
    (void)unlink(name);
    gd_status status = link(from, name) == 0 ? gd_file_rename(name, to) : GD_ERR_UNSUPPORTED;
    (void)unlink(name); /* there still where both were the same file already */
    gd_free(name);
    return status;
}

gd_status gd_folder_create(const char *path)
{
    char *part = gd_strdup(path);
    if (!part)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    for (char *at = part; status == GD_OK && at; *at = '/') {
        at = strchr(at + 1, '/');
        if (at)
            *at = '\0';
        struct stat info;
        bool there = stat(part, &info) == 0;
        if (there && !S_ISDIR(info.st_mode))
            status = gd_fail(GD_ERR_IO, "%s: is not a folder", part);
        else if (!there && mkdir(part, 0777) != 0 && errno != EEXIST)
            status = fail_errno(part, "cannot create the folder");
        if (!at)
            break;
    }
    gd_free(part);
    return status;
}

gd_status gd_file_write(const char *path, const void *bytes, size_t size)
{
    if (!path || (!bytes && size > 0))
        return gd_fail(GD_ERR_INVALID, "gd_file_write: the %s NULL",
                       path ? "bytes are" : "path is");
    return gd_file_write_atomic(path, &(gd_file_part){ bytes, size }, 1);
}

gd_status gd_file_check_writable(const char *path)
{
    if (!path)
        return gd_fail(GD_ERR_INVALID, "gd_file_check_writable: the path is NULL");
    if (is_special(path))
        return access(path, W_OK) == 0 ? GD_OK : fail_errno(path, "cannot write");
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return gd_fail(GD_ERR_IO, "%s: is a directory", path);
    char *target, *temporary;
    int fd;
    gd_status status = follow_links(path, &target);
    if (status == GD_OK)
        status = create_beside(target, &temporary, &fd);
    if (status == GD_OK) {
        close(fd);
        unlink(temporary);
        gd_free(temporary);
    }
    gd_free(target);
    return status;
}
