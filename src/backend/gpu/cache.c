/* backend/gpu/cache.c: compiled programs on disk, so that a second process compiles nothing. The folder
 * is $GRADUS_CACHE (empty: no cache), else $XDG_CACHE_HOME/gradus, else ~/.cache/gradus.
 *
 * A file is named after the hash of its key: the device with all its versions, and the program's
 * text. It holds the whole key, what was stored, and a hash of both, and is written under another
 * name first: so a reader finds all of it or nothing, and never what belongs to another key. What
 * is stored is code that will run: a folder or file that others may write is not used. */
#include "backend/gpu/gpu.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/memory.h"

enum { PATH_BYTES = 1024, MAGIC_BYTES = 8, MOST_BINARY = 64 << 20 };
static const char magic[MAGIC_BYTES] = { 'g', 'd', '-', 'k', 'e', 'r', 'n', '1' };

typedef struct file_head {
    char magic[MAGIC_BYTES];
    uint64_t key_bytes, binary_bytes;
    uint64_t hash; /* of key and binary */
} file_head;

/* ---- places ---- */

/* The folder's name; false: there is to be no cache. */
static bool folder_name(char path[PATH_BYTES])
{
    const char *given = getenv("GRADUS_CACHE"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int length = -1;
    if (given)
        length = snprintf(path, PATH_BYTES, "%s", given);
    else if (cache && *cache)
        length = snprintf(path, PATH_BYTES, "%s/gradus", cache);
    else if (home && *home)
        length = snprintf(path, PATH_BYTES, "%s/.cache/gradus", home);
    return length > 0 && length < PATH_BYTES - 64;
}

/* Ours, and nobody else writes to it. */
static bool is_safe(const struct stat *s)
{
    return s->st_uid == geteuid() && (s->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* The folder, made if it is not there, and the one above it. */
static bool make_folder(char path[PATH_BYTES])
{
    if (!folder_name(path))
        return false;
    struct stat s;
    if (stat(path, &s) != 0) {
        char *slash = strrchr(path, '/');
        if (slash && slash != path) {
            *slash = '\0';
            (void)mkdir(path, 0700);
            *slash = '/';
        }
        (void)mkdir(path, 0700);
    }
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode) && is_safe(&s);
}

static uint64_t hash_of(const gd_gpu *gpu, const gd_text_buffer *text, const gd_text_buffer *binary)
{
    gd_hash hash;
    gd_hash_begin(&hash);
    gd_hash_add(&hash, gpu->identity, strlen(gpu->identity) + 1);
    gd_hash_add(&hash, text->text, text->length);
    if (binary)
        gd_hash_add(&hash, binary->text, binary->length);
    return gd_hash_end(&hash);
}

static bool file_name(const gd_gpu *gpu, const gd_text_buffer *text, char path[PATH_BYTES])
{
    if (!make_folder(path))
        return false;
    const size_t length = strlen(path);
    snprintf(path + length, PATH_BYTES - length, "/%016llx.kernel",
             (unsigned long long)hash_of(gpu, text, NULL));
    return true;
}

/* ---- reading ---- */

static bool read_part(int file, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = read(file, (char *)to + done, bytes - done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* The file's key is that of the device and the text. */
static bool read_key(const gd_gpu *gpu, const gd_text_buffer *text, int file)
{
    const size_t identity = strlen(gpu->identity) + 1, bytes = identity + text->length;
    char *key = gd_alloc(bytes);
    const bool is_ours = key && read_part(file, key, bytes) &&
                         memcmp(key, gpu->identity, identity) == 0 &&
                         memcmp(key + identity, text->text, text->length) == 0;
    gd_free(key);
    return is_ours;
}

static bool read_file(const gd_gpu *gpu, const gd_text_buffer *text, int file,
                      gd_text_buffer *binary)
{
    struct stat s;
    file_head head;
    if (fstat(file, &s) != 0 || !is_safe(&s) || !read_part(file, &head, sizeof head) ||
        memcmp(head.magic, magic, sizeof magic) != 0 ||
        head.key_bytes != strlen(gpu->identity) + 1 + text->length ||
        head.binary_bytes > MOST_BINARY || !read_key(gpu, text, file))
        return false;
    binary->text = gd_alloc((size_t)head.binary_bytes + 1);
    binary->length = (size_t)head.binary_bytes;
    return binary->text && read_part(file, binary->text, binary->length) &&
           head.hash == hash_of(gpu, text, binary);
}

bool gd_gpu_cache_find(const gd_gpu *gpu, const gd_text_buffer *text, gd_text_buffer *binary)
{
    char path[PATH_BYTES];
    const int file = file_name(gpu, text, path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return false;
    const bool is_found = read_file(gpu, text, file, binary);
    close(file);
    if (!is_found)
        (void)unlink(path);
    return is_found;
}

void gd_gpu_cache_forget(const gd_gpu *gpu, const gd_text_buffer *text)
{
    char path[PATH_BYTES];
    if (file_name(gpu, text, path))
        (void)unlink(path);
}

/* ---- writing ---- */

static bool write_part(int file, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write(file, (const char *)from + done, bytes - done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

void gd_gpu_cache_store(const gd_gpu *gpu, const gd_text_buffer *text, const gd_text_buffer *binary)
{
    char path[PATH_BYTES], part[PATH_BYTES + 32];
    if (binary->length > MOST_BINARY || !file_name(gpu, text, path))
        return;
    const size_t identity = strlen(gpu->identity) + 1;
    file_head head = { .key_bytes = identity + text->length,
                       .binary_bytes = binary->length,
                       .hash = hash_of(gpu, text, binary) };
    memcpy(head.magic, magic, sizeof magic);
    snprintf(part, sizeof part, "%s.part.%ld", path, (long)getpid());
    const int file = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    bool is_written = write_part(file, &head, sizeof head) &&
                      write_part(file, gpu->identity, identity) &&
                      write_part(file, text->text, text->length) &&
                      write_part(file, binary->text, binary->length);
    is_written &= close(file) == 0;
    if (!is_written || rename(part, path) != 0)
        (void)unlink(part);
}
