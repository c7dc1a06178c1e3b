/* base/error.c: the calling thread's first error, and the names of status codes. Start at record().
 *
 * The sentence lives in a fixed buffer of the thread, so recording an error (out of memory among
 * them) allocates nothing.
 */
#include "base/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct error_state {
    gd_status status;
    char message[GD_ERROR_MESSAGE_BYTES];
} error_state;

static _Thread_local error_state current;

static const char *const status_names[GD_STATUS_COUNT] = {
    [GD_OK] = "GD_OK",
    [GD_ERR_INVALID] = "GD_ERR_INVALID",
    [GD_ERR_SHAPE] = "GD_ERR_SHAPE",
    [GD_ERR_DTYPE] = "GD_ERR_DTYPE",
    [GD_ERR_MEMORY] = "GD_ERR_MEMORY",
    [GD_ERR_IO] = "GD_ERR_IO",
    [GD_ERR_FORMAT] = "GD_ERR_FORMAT",
    [GD_ERR_UNSUPPORTED] = "GD_ERR_UNSUPPORTED",
    [GD_ERR_STATE] = "GD_ERR_STATE",
    [GD_ERR_DEVICE] = "GD_ERR_DEVICE",
};

const char *gd_status_name(gd_status status)
{
    bool known = (unsigned)status < GD_STATUS_COUNT;
    return known ? status_names[status] : "GD_ERR_UNKNOWN";
}

/* End a sentence that did not fit with "...", never in the middle of a UTF-8 character. */
static void mark_truncated(char *message)
{
    size_t end = GD_ERROR_MESSAGE_BYTES - sizeof "...";
    while (end > 0 && ((unsigned char)message[end] & 0xc0u) == 0x80u)
        end--;
    memcpy(message + end, "...", sizeof "...");
}

GD_PRINTF(2, 0) static void record(gd_status status, const char *format, va_list arguments)
{
    assert(status > GD_OK && status < GD_STATUS_COUNT);
    if (current.status != GD_OK)
        return;
    current.status = status;
    int length = vsnprintf(current.message, sizeof current.message, format, arguments);
    if (length < 0)
        current.message[0] = '\0';
    else if ((size_t)length >= sizeof current.message)
        mark_truncated(current.message);
}

gd_status gd_fail(gd_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(status, format, arguments);
    va_end(arguments);
    return status;
}

void *gd_fail_null(gd_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(status, format, arguments);
    va_end(arguments);
    return NULL;
}

gd_status gd_fail_memory(size_t bytes)
{
    return gd_fail(GD_ERR_MEMORY, "out of memory: %zu bytes could not be allocated", bytes);
}

gd_status gd_error_code(void)
{
    return current.status;
}

const char *gd_error_message(void)
{
    return current.message;
}

void gd_error_clear(void)
{
    current.status = GD_OK;
    current.message[0] = '\0';
}
