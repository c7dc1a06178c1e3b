/* support/shared_data.c: data of tests that are too large for a source file. */
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>

#include "support/shared_data.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/stream.h"

/* The path of a file, or of the file without .gz; static text, until the next call. NULL: none. */
static const char *find(const char *file, bool compressed_too)
{
    static char path[1024];
    const char *alone = getenv("GRADUS_SHARED_DATA");
    const char *folders[] = { alone ? alone : GD_SOURCE_DIR "/data",
                              alone ? alone : GD_SOURCE_DIR "/../shared/data" };
    for (int i = 0; i < 2; i++)
        for (int compressed = 0; compressed <= (int)compressed_too; compressed++) {
            int length = snprintf(path, sizeof path - 3, "%s/%s", folders[i], file);
            snprintf(path + length, 4, "%s", compressed ? ".gz" : "");
            bool there = access(path, R_OK) == 0;
            path[length] = '\0';
            if (there)
                return path;
        }
    return NULL;
}

const char *shared_data(const char *file)
{
    const char *path = find(file, false);
    if (!path)
        skip();
    return path;
}

char *shared_text(const char *file, size_t *size)
{
    const size_t most = (size_t)64 << 20;
    const char *path = find(file, true);
    if (!path)
        skip();
    gd_stream *stream;
    gd_status status = gd_stream_open(path, &stream);
    if (status == GD_ERR_UNSUPPORTED) { /* compressed, and this build has no zlib */
        gd_error_clear();
        skip();
    }
    assert_int_equal(status, GD_OK);
    char *text = malloc(most);
    assert_non_null(text);
    assert_int_equal(gd_stream_read(stream, text, most - 1, size), GD_OK);
    assert_true(*size < most - 1);
    text[*size] = '\0';
    gd_stream_close(stream);
    return realloc(text, *size + 1);
}
