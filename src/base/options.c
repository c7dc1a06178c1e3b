/* base/options.c: see options.h. */
#include "base/options.h"

#include "base/error.h"

#include <string.h>

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return false;
    return true;
}

bool gd_options_read(const char *who, void *own, size_t size, const void *given)
{
    if (!given)
        return true;
    size_t theirs;
    memcpy(&theirs, given, sizeof theirs);
    if (theirs < sizeof theirs) {
        gd_fail(GD_ERR_INVALID,
                "%s: the options have size %zu: begin them with their list of defaults, or fill "
                "them by gd_options_default",
                who, theirs);
        return false;
    }
    if (theirs > size && !is_zero((const unsigned char *)given + size, theirs - size)) {
        gd_fail(GD_ERR_UNSUPPORTED,
                "%s: the options have %zu bytes and set what this version, with %zu, does not have",
                who, theirs, size);
        return false;
    }
    memcpy(own, given, theirs < size ? theirs : size);
    memcpy(own, &size, sizeof size);
    return true;
}
