/* tests/test_file.c: whole files in and out; a write that fails leaves the old file and nothing
 * else. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "io/file.h"

#include <gradus/io.h>
#include "base/memory.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct folder {
    char path[64];
    char file[128];
} folder;

static int open_folder(void **state)
{
    static folder made;
    const char *base = getenv("TMPDIR");
    snprintf(made.path, sizeof made.path, "%.40s/gradus-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(made.path))
        return -1;
    snprintf(made.file, sizeof made.file, "%s/file", made.path);
    *state = &made;
    gd_error_clear();
    return 0;
}

/* Fails when a temporary file was left behind. */
static int close_folder(void **state)
{
    folder *where = *state;
    gd_fail_allocations_after(-1);
    gd_error_clear();
    unlink(where->file);
    return rmdir(where->path);
}

static void assert_holds(const char *path, const void *bytes, size_t size)
{
    unsigned char *found;
    size_t found_size;
    assert_int_equal(gd_file_read_all(path, SIZE_MAX, &found, &found_size), GD_OK);
    assert_int_equal(found_size, size);
    assert_memory_equal(found, bytes, size);
    assert_int_equal(found[size], 0);
    gd_free(found);

    gd_file *file;
    assert_int_equal(gd_file_open(path, &file), GD_OK);
    assert_int_equal(gd_file_size(file), size);
    unsigned char *copy = malloc(size + 1);
    const size_t cuts[] = { 0, size / 3, size };
    for (size_t i = 0; i + 1 < sizeof cuts / sizeof *cuts; i++)
        assert_int_equal(gd_file_read_at(file, cuts[i], cuts[i + 1] - cuts[i], copy + cuts[i]),
                         GD_OK);
    assert_memory_equal(copy, bytes, size);
    assert_int_equal(gd_file_read_at(file, size, 1, copy), GD_ERR_IO);
    assert_int_equal(gd_file_read_at(file, SIZE_MAX, 2, copy), GD_ERR_IO);
    gd_error_clear();
    free(copy);
    gd_file_close(file);
    gd_file_close(NULL);
}

static gd_status write_text(const char *path, const char *text)
{
    return gd_file_write_atomic(path, &(gd_file_part){ text, strlen(text) }, 1);
}

static void test_write_and_read(void **state)
{
    folder *where = *state;
    assert_int_equal(write_text(where->file, "first"), GD_OK);
    assert_holds(where->file, "first", 5);
    const gd_file_part parts[] = { { "se", 2 }, { NULL, 0 }, { "con", 3 }, { "d", 1 } };
    assert_int_equal(gd_file_write_atomic(where->file, parts, 4), GD_OK);
    assert_holds(where->file, "second", 6);
    assert_int_equal(gd_file_write_atomic(where->file, NULL, 0), GD_OK);
    assert_holds(where->file, "", 0);

    static unsigned char large[300001];
    for (size_t k = 0; k < sizeof large; k++)
        large[k] = (unsigned char)(k % 253);
    assert_int_equal(gd_file_write_atomic(where->file, &(gd_file_part){ large, sizeof large }, 1),
                     GD_OK);
    assert_holds(where->file, large, sizeof large);
}

static void test_relative_path(void **state)
{
    folder *where = *state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(where->path), 0);
    gd_status status = write_text("file", "here");
    assert_int_equal(chdir(before), 0);
    assert_int_equal(status, GD_OK);
    assert_holds(where->file, "here", 4);
}

static void test_permissions_are_kept(void **state)
{
    folder *where = *state;
    assert_int_equal(write_text(where->file, "a"), GD_OK);
    struct stat info;
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat(where->file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
    assert_int_equal(chmod(where->file, 0640), 0);
    assert_int_equal(write_text(where->file, "b"), GD_OK);
    assert_int_equal(stat(where->file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

static void test_limit(void **state)
{
    folder *where = *state;
    assert_int_equal(write_text(where->file, "12345"), GD_OK);
    unsigned char *bytes;
    size_t size;
    assert_int_equal(gd_file_read_all(where->file, 5, &bytes, &size), GD_OK);
    gd_free(bytes);
    assert_int_equal(gd_file_read_all(where->file, 4, &bytes, &size), GD_ERR_FORMAT);
    assert_null(bytes);
    assert_int_equal(size, 0);
    assert_non_null(strstr(gd_error_message(), "more than the 4 bytes"));
}

/* A file that tells no size: its end is where reading ends. */
static void test_sizeless_file(void **state)
{
    (void)state;
    unsigned char *bytes;
    size_t size;
    assert_int_equal(gd_file_read_all("/proc/self/stat", 1 << 20, &bytes, &size), GD_OK);
    assert_true(size > 20);
    gd_free(bytes);
    gd_file *file;
    char text[20];
    assert_int_equal(gd_file_open("/proc/self/stat", &file), GD_OK);
    assert_true(gd_file_size(file) > sizeof text);
    assert_int_equal(gd_file_read_at(file, 0, sizeof text, text), GD_OK);
    assert_int_equal(atoi(text), getpid());
    gd_file_close(file);
}

/* Another process makes an open file shorter: an error, where a mapping would be a signal. */
static void test_file_that_shrinks(void **state)
{
    folder *where = *state;
    gd_file *file;
    char text[8];
    assert_int_equal(write_text(where->file, "12345678"), GD_OK);
    assert_int_equal(gd_file_open(where->file, &file), GD_OK);
    assert_int_equal(truncate(where->file, 3), 0);
    assert_int_equal(gd_file_read_at(file, 0, 3, text), GD_OK);
    assert_int_equal(gd_file_read_at(file, 2, 2, text), GD_ERR_IO);
    assert_non_null(strstr(gd_error_message(), "file: has become shorter"));
    gd_error_clear();
    assert_int_equal(write_text(where->file, "replaced"), GD_OK); /* the open one is another */
    assert_int_equal(gd_file_read_at(file, 0, 3, text), GD_OK);
    assert_memory_equal(text, "123", 3);
    gd_file_close(file);
}

/* A symbolic link stays one; what it points to is replaced, there or not. */
static void test_symbolic_links(void **state)
{
    folder *where = *state;
    char link[160], other[160], inside[160];
    snprintf(link, sizeof link, "%s/link", where->path);
    snprintf(other, sizeof other, "%s/other", where->path);
    snprintf(inside, sizeof inside, "%s/folder", where->path);
    struct stat info;
    assert_int_equal(mkdir(inside, 0700), 0);
    assert_int_equal(symlink("file", other), 0); /* relative, … */
    assert_int_equal(symlink(other, link), 0);   /* … and a link to it that is absolute */
    for (int there = 0; there < 2; there++) {
        assert_int_equal(gd_file_check_writable(link), GD_OK);
        assert_int_equal(write_text(link, there ? "again" : "first"), GD_OK);
        assert_int_equal(lstat(link, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        assert_int_equal(lstat(where->file, &info), 0);
        assert_true(S_ISREG(info.st_mode));
        assert_holds(where->file, there ? "again" : "first", 5);
    }
    assert_int_equal(unlink(other), 0);
    assert_int_equal(symlink("link", other), 0); /* a circle */
    assert_int_equal(write_text(link, "x"), GD_ERR_IO);
    assert_non_null(strstr(gd_error_message(), "link: cannot follow the symbolic link"));
    assert_int_equal(unlink(link) | unlink(other) | rmdir(inside), 0);
}

/* A device is written to as it is. */
static void test_devices(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(write_text("/dev/null", "x"), GD_OK);
    assert_int_equal(gd_file_check_writable("/dev/null"), GD_OK);
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    int ends[2]; /* a pipe, as /dev/stdout is: a link to a name that is no file's */
    char name[64], text[8] = "";
    assert_int_equal(pipe(ends), 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", ends[1]);
    assert_int_equal(gd_file_check_writable(name), GD_OK);
    assert_int_equal(write_text(name, "through"), GD_OK);
    assert_int_equal(read(ends[0], text, sizeof text), 7);
    assert_string_equal(text, "through");
    close(ends[0]);
    close(ends[1]);
    if (stat("/dev/full", &info) == 0) {
        assert_int_equal(write_text("/dev/full", "x"), GD_ERR_IO);
        assert_non_null(strstr(gd_error_message(), "/dev/full: cannot write: No space left"));
    }
}

static void test_check_writable(void **state)
{
    folder *where = *state;
    struct stat info;
    assert_int_equal(gd_file_check_writable(NULL), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(gd_file_write(NULL, "x", 1), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(gd_file_check_writable(where->file), GD_OK);
    assert_int_equal(stat(where->file, &info), -1); /* nothing has been made */
    assert_int_equal(gd_file_write(where->file, "old", 3), GD_OK);
    assert_int_equal(gd_file_check_writable(where->file), GD_OK);
    assert_holds(where->file, "old", 3);
    assert_int_equal(gd_file_check_writable("/nonexistent/file"), GD_ERR_IO);
    assert_non_null(strstr(gd_error_message(), "/nonexistent/file: cannot create a temporary"));
    gd_error_clear();
    assert_int_equal(gd_file_check_writable(where->path), GD_ERR_IO);
    assert_non_null(strstr(gd_error_message(), "is a directory"));
}

static void test_unreadable(void **state)
{
    folder *where = *state;
    unsigned char *bytes;
    size_t size;
    gd_file *file;
    assert_int_equal(gd_file_read_all(where->file, 100, &bytes, &size), GD_ERR_IO);
    assert_non_null(strstr(gd_error_message(), "file: cannot open: No such file"));
    gd_error_clear();
    assert_int_equal(gd_file_read_all(where->path, 100, &bytes, &size),
                     GD_ERR_IO); /* a directory */
    assert_non_null(strstr(gd_error_message(), "cannot read"));
    gd_error_clear();
    gd_status status = gd_file_open(where->path, &file);
    if (status == GD_OK) { /* a directory may have a size */
        status = gd_file_read_at(file, 0, 1, &size);
        gd_file_close(file);
    }
    assert_int_equal(status, GD_ERR_IO);
}

static void test_unwritable(void **state)
{
    folder *where = *state;
    assert_int_equal(write_text("/nonexistent/file", "x"), GD_ERR_IO);
    assert_non_null(strstr(gd_error_message(), "cannot create a temporary file"));
    gd_error_clear();
    assert_int_equal(write_text("", "x"), GD_ERR_IO);
    gd_error_clear();
    assert_int_equal(mkdir(where->file, 0700), 0);
    assert_int_equal(write_text(where->file, "x"), GD_ERR_IO); /* a directory is in the way */
    assert_non_null(strstr(gd_error_message(), "cannot replace"));
    assert_int_equal(rmdir(where->file), 0);
}

/* The disk fills up half way: here, a limit on the size of files. */
static void test_failed_write_keeps_the_old_file(void **state)
{
    folder *where = *state;
    static const unsigned char large[100000];
    assert_int_equal(write_text(where->file, "old"), GD_OK);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){ 10000, before.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    gd_status status = gd_file_write_atomic(where->file, &(gd_file_part){ large, sizeof large }, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, GD_ERR_IO);
    assert_non_null(strstr(gd_error_message(), "cannot write: File too large"));
    gd_error_clear();
    assert_holds(where->file, "old", 3);
}

static void test_every_failing_allocation(void **state)
{
    folder *where = *state;
    assert_int_equal(write_text(where->file, "old"), GD_OK);
    gd_status status = GD_ERR_MEMORY;
    int64_t n = 0;
    for (; status != GD_OK; n++) {
        gd_error_clear();
        gd_fail_allocations_after(n);
        status = write_text(where->file, "new text");
        gd_fail_allocations_after(-1);
        assert_true(status == GD_OK || status == GD_ERR_MEMORY);
        assert_int_equal(status, gd_error_code());
        gd_error_clear();
        assert_holds(where->file, status == GD_OK ? "new text" : "old", status == GD_OK ? 8 : 3);
    }
    assert_true(n > 1);
    unsigned char *bytes;
    size_t size;
    gd_fail_allocations_after(0);
    assert_int_equal(gd_file_read_all(where->file, 100, &bytes, &size), GD_ERR_MEMORY);
    gd_fail_allocations_after(-1);
    assert_null(bytes);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_folder, close_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_write_and_read),
        TEST(test_relative_path),
        TEST(test_permissions_are_kept),
        TEST(test_limit),
        TEST(test_sizeless_file),
        TEST(test_file_that_shrinks),
        TEST(test_symbolic_links),
        TEST(test_devices),
        TEST(test_check_writable),
        TEST(test_unreadable),
        TEST(test_unwritable),
        TEST(test_failed_write_keeps_the_old_file),
        TEST(test_every_failing_allocation),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
