/* base/buffer.h: text and bytes of unknown length. */
#ifndef GD_BASE_BUFFER_H
#define GD_BASE_BUFFER_H

#include <gradus/base.h>

/* A text that grows, with a 0 behind its end (NULL while there is nothing). After a failed allocation
 * nothing more is added; `failed` is asked once, at the end. The owner calls gd_free(text). */
typedef struct gd_text_buffer {
    char *text;
    size_t length, capacity;
    bool failed;
} gd_text_buffer;

/* As printf, in the C locale. */
void gd_buffer_add(gd_text_buffer *buffer, const char *format, ...) GD_PRINTF(2, 3);
void gd_buffer_put(gd_text_buffer *buffer, const void *bytes, size_t length);

#endif
