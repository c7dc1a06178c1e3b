/* support/folder.h: a folder of its own for each test or program, and files in it. Include after cmocka.h. */
#ifndef GD_TESTS_FOLDER_H
#define GD_TESTS_FOLDER_H

#include "support/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

/* In `parent`; NULL: in memory, where there is such a file system, since files are synced to the disk. */
static inline int make_folder_in(const char *parent)
{
    if (!parent)
        parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/gradus_test_XXXXXX", parent);
    return mkdtemp(folder) ? 0 : -1;
}

static inline int delete_folder(void)
{
    char command[sizeof folder + 16];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command) == 0 ? 0 : -1;
}

/* Set-up and teardown of a test with a context and an empty folder. */
static inline int make_folder(void **state)
{
    return make_folder_in(NULL) == 0 ? open_context(state) : -1;
}

static inline int remove_folder(void **state)
{
    return close_context(state) == 0 ? delete_folder() : -1;
}

/* folder/name; static text for a few calls. */
static inline const char *in_folder(const char *name)
{
    static char path[4][512];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

static inline void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

/* A test with a context and an empty folder. */
#define folder_test(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

#endif
