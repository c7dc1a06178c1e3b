/* base/text.h: numbers as text and back with a decimal point, whatever the process's locale
 * (LC_NUMERIC) says, and text put together in a caller's buffer. */
#ifndef GD_BASE_TEXT_H
#define GD_BASE_TEXT_H

#include <stdarg.h>

#include <gradus/base.h>

/* As the functions of the standard library without gd_, in the C locale. */
int gd_vsnprintf(char *text, size_t size, const char *format, va_list arguments) GD_PRINTF(3, 0);
int gd_snprintf(char *text, size_t size, const char *format, ...) GD_PRINTF(3, 4);
double gd_strtod(const char *text, char **end);

/* Text assembled in a caller's buffer, as snprintf does: `length` counts what the whole text needs.
 */
typedef struct gd_text {
    char *out;
    size_t size, length;
} gd_text;
void gd_text_add(gd_text *text, const char *format, ...) GD_PRINTF(2, 3);
/* With a backslash before quotation marks and backslashes, as Graphviz has it. */
void gd_text_add_escaped(gd_text *text, const char *s);

/* The bytes of the UTF-8 character at `text`: 0 at the closing 0, and where there is none. */
int gd_utf8_length(const char *text);
/* Whether all of it is UTF-8; and without control characters. */
bool gd_utf8_is_valid(const char *text);
bool gd_utf8_is_printable(const char *text);

#endif
