/* base/text.c: numbers as text in the C locale, and text put together in a caller's buffer.
 *
 * A program may have called setlocale, and printf and strtod then write and want the comma of its
 * user's language. Files, C code and messages of the library are the same everywhere: each call
 * here switches its own thread to the C locale, and back. */
#include "base/text.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Returns the locale to go back to. With 0 for a locale, uselocale changes nothing. */
static locale_t enter_c_locale(void)
{
    pthread_once(&once, make_c_locale);
    return uselocale(c_locale);
}

int gd_vsnprintf(char *text, size_t size, const char *format, va_list arguments)
{
    locale_t before = enter_c_locale();
    int length = vsnprintf(text, size, format, arguments);
    uselocale(before);
    return length;
}

int gd_snprintf(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = gd_vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return length;
}

double gd_strtod(const char *text, char **end)
{
    locale_t before = enter_c_locale();
    double number = strtod(text, end);
    uselocale(before);
    return number;
}

void gd_text_add(gd_text *text, const char *format, ...)
{
    bool fits = text->length < text->size;
    va_list arguments;
    va_start(arguments, format);
    int n = gd_vsnprintf(fits ? text->out + text->length : NULL,
                         fits ? text->size - text->length : 0, format, arguments);
    va_end(arguments);
    if (n > 0)
        text->length += (size_t)n;
}

void gd_text_add_escaped(gd_text *text, const char *s)
{
    for (; *s; s++)
        gd_text_add(text, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
}

/* ---- UTF-8 ---- */

/* Unicode, chapter 3, table 3-7. */
int gd_utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    int length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    unsigned char least = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char most = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < least || s[1] > most)
        return 0;
    for (int i = 2; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

bool gd_utf8_is_valid(const char *text)
{
    for (int length; (length = gd_utf8_length(text)) > 0;)
        text += length;
    return *text == '\0';
}

bool gd_utf8_is_printable(const char *text)
{
    int length;
    for (; (length = gd_utf8_length(text)) > 0; text += length) {
        const unsigned char *s = (const unsigned char *)text;
        if (*s < 0x20 || *s == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0))
            return false;
    }
    return *text == '\0';
}
