/* text/characters.h: UTF-8 and the classes of characters that text is cut by. */
#ifndef GD_TEXT_CHARACTERS_H
#define GD_TEXT_CHARACTERS_H

#include <stddef.h>
#include <stdint.h>

/* A byte that is no part of valid UTF-8 stands for itself as a character beyond Unicode. */
#define GD_STRAY_BYTE 0x110000u

typedef struct gd_character {
    uint32_t point; /* the code point, or GD_STRAY_BYTE + the byte */
    int bytes;      /* 1 … 4 */
} gd_character;

/* The character at text[0], of `size` > 0 bytes that are left. Overlong forms, surrogates and what
 * lies beyond U+10FFFF are stray bytes. */
gd_character gd_character_at(const char *text, size_t size);
/* Write a character; returns its 1 … 4 bytes. */
int gd_character_put(uint32_t point, char out[4]);

typedef enum gd_character_class {
    GD_CLASS_OTHER,
    GD_CLASS_LETTER, /* \p{L} */
    GD_CLASS_NUMBER, /* \p{N} */
    GD_CLASS_SPACE   /* \s: White_Space */
} gd_character_class;

gd_character_class gd_character_class_of(uint32_t point);

#endif
