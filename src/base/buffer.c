/* base/buffer.c: see buffer.h. */
#include "base/buffer.h"

#include "base/memory.h"
#include "base/text.h"

#include <stdarg.h>
#include <string.h>

void gd_buffer_add(gd_text_buffer *buffer, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    va_list again;
    va_copy(again, list);
    int length = gd_vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (length >= 0 && !buffer->failed &&
        gd_grow((void **)&buffer->text, &buffer->capacity, buffer->length + (size_t)length + 1,
                1)) {
        gd_vsnprintf(buffer->text + buffer->length, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    } else {
        buffer->failed = true;
    }
    va_end(again);
}

void gd_buffer_put(gd_text_buffer *buffer, const void *bytes, size_t length)
{
    buffer->failed = buffer->failed || !gd_grow((void **)&buffer->text, &buffer->capacity,
                                                buffer->length + length + 1, 1);
    if (buffer->failed)
        return;
    if (length)
        memcpy(buffer->text + buffer->length, bytes, length);
    buffer->length += length;
    buffer->text[buffer->length] = 0;
}
