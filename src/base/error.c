/* base/error.c: the calling thread's errors, and the names of status codes. Start at record().
 *
 * The user sees the first error since it was last cleared. The newest is kept beside it, and errors
 * are counted, so that a function can tell what went wrong in itself from what went wrong before.
 * The sentences live in fixed buffers of the thread: recording an error (out of memory among them)
 * allocates nothing.
 */
#include "base/error.h"
#include "base/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct error {
    gd_status status;
    char message[GD_ERROR_MESSAGE_BYTES];
} error;

static _Thread_local error first; /* GD_OK: none is pending */
static _Thread_local error newest;
static _Thread_local uint64_t recorded; /* errors so far */
static _Thread_local uint64_t cleared;  /* of them, those before the last gd_error_clear */
static _Thread_local const char
    *called;                     /* the public function, where it is made of others: GD_AS */
static _Thread_local int nested; /* calls of gd_name_begin that are open */

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
    size_t end = sizeof newest.message - sizeof "...";
    while (end > 0 && ((unsigned char)message[end] & 0xc0u) == 0x80u)
        end--;
    memcpy(message + end, "...", sizeof "...");
}

/* How many bytes of the sentence are the name of a function and stand before a colon; "opencl:0: …"
 * begins with that of a device. */
static size_t name_length(const char *message)
{
    size_t length = strspn(message, "abcdefghijklmnopqrstuvwxyz_0123456789");
    return message[length] == ':' && message[length + 1] == ' ' ? length : 0;
}

/* Put `name` where the sentence has the name of a function. */
static void rename_function(char *message, const char *name)
{
    char rest[GD_ERROR_MESSAGE_BYTES];
    size_t length = name_length(message);
    if (length == 0)
        return;
    memcpy(rest, message + length, strlen(message + length) + 1);
    if (snprintf(message, GD_ERROR_MESSAGE_BYTES, "%s%s", name, rest) >= GD_ERROR_MESSAGE_BYTES)
        mark_truncated(message);
}

GD_PRINTF(2, 0) static void record(gd_status status, const char *format, va_list arguments)
{
    assert(status > GD_OK && status < GD_STATUS_COUNT);
    recorded++;
    newest.status = status;
    int length = gd_vsnprintf(newest.message, sizeof newest.message, format, arguments);
    if (length < 0)
        newest.message[0] = '\0';
    else if ((size_t)length >= sizeof newest.message)
        mark_truncated(newest.message);
    if (called)
        rename_function(newest.message, called);
    if (first.status == GD_OK)
        first = newest;
}

void gd_name_begin(const char *name)
{
    if (nested++ == 0)
        called = name;
}

void *gd_name_end(void *result)
{
    if (--nested == 0)
        called = NULL;
    return result;
}

gd_status gd_name_end_status(gd_status result)
{
    (void)gd_name_end(NULL);
    return result;
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

gd_status gd_fail_traced(const char *who)
{
    return gd_fail(GD_ERR_STATE,
                   "%s: a function is being traced: this would happen once, now, and not at every "
                   "call; do it outside of the body, or after gd_trace_pause",
                   who);
}

gd_status gd_fail_memory(size_t bytes)
{
    return gd_fail(GD_ERR_MEMORY, "out of memory: %zu bytes could not be allocated", bytes);
}

gd_status gd_error_code(void)
{
    return first.status;
}

const char *gd_error_message(void)
{
    return first.message;
}

void gd_error_clear(void)
{
    first.status = GD_OK;
    first.message[0] = '\0';
    cleared = recorded;
}

gd_status gd_error_record(gd_status status, const char *message)
{
    bool is_error = status > GD_OK && status < GD_STATUS_COUNT;
    return gd_fail(is_error ? status : GD_ERR_INVALID, "%s", message ? message : "");
}

/* ---- marks ---- */

uint64_t gd_error_mark(void)
{
    return recorded;
}

gd_status gd_error_since(uint64_t mark)
{
    return recorded > mark && recorded > cleared ? newest.status : GD_OK;
}

gd_status gd_error_last(void)
{
    assert(newest.status != GD_OK);
    return newest.status;
}

const char *gd_error_last_message(void)
{
    return newest.message;
}

void gd_error_rollback(uint64_t mark)
{
    bool was_clean = cleared >= mark; /* or was cleared since */
    recorded = mark;
    if (was_clean)
        gd_error_clear();
}

gd_status gd_callback_status(gd_status returned, uint64_t mark, const char *who)
{
    if (returned < GD_OK || returned >= GD_STATUS_COUNT)
        return gd_fail(GD_ERR_INVALID, "%s: the callback returned %d, which is no gd_status", who,
                       (int)returned);
    if (returned == GD_OK || gd_error_since(mark) != GD_OK)
        return returned;
    return gd_fail(returned, "%s: the callback returned %s", who, gd_status_name(returned));
}
