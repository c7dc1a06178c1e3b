/* support/shared_data.c: data that is not part of the project. */
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>

#include "support/shared_data.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

const char *shared_data(const char *file)
{
    static char path[1024];
    const char *folder = getenv("GRADUS_SHARED_DATA");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : GD_SOURCE_DIR "/../shared/data", file);
    FILE *f = fopen(path, "rb");
    if (!f)
        skip();
    else
        fclose(f);
    return path;
}

char *shared_text(const char *file, size_t *size)
{
    FILE *f = fopen(shared_data(file), "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *size, f), *size);
    text[*size] = '\0';
    fclose(f);
    return text;
}
