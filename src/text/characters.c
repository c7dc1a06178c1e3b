/* text/characters.c: UTF-8 and character classes. */
#include "text/characters.h"

/* The Unicode Standard, table 3-7: which second bytes are allowed depends on the first byte. */
static int sequence_length(const unsigned char *s, size_t size)
{
    int length = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] > 0xf4 || length == 0 || (size_t)length > size)
        return 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return length;
}

gd_character gd_character_at(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    int length = sequence_length(s, size);
    if (length == 0)
        return (gd_character){ GD_STRAY_BYTE + s[0], 1 };
    uint32_t point = length == 1 ? s[0] : s[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++)
        point = point << 6 | (s[i] & 0x3fu);
    return (gd_character){ point, length };
}

int gd_character_put(uint32_t point, char out[4])
{
    if (point >= GD_STRAY_BYTE || point < 0x80) {
        out[0] = (char)(unsigned char)(point & 0xff);
        return 1;
    }
    int length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, point >>= 6)
        out[i] = (char)(unsigned char)(0x80 | (point & 0x3f));
    out[0] = (char)(unsigned char)((0xf00u >> length & 0xff) | point);
    return length;
}

/* Where a class begins: the code point, and the class in the two low bits. The table is ours, and
 * not the C library's or another library's of the day, so that a text has the same tokens
 * everywhere. */
#define O(point) ((point) << 2 | GD_CLASS_OTHER)
#define L(point) ((point) << 2 | GD_CLASS_LETTER)
#define N(point) ((point) << 2 | GD_CLASS_NUMBER)
#define S(point) ((point) << 2 | GD_CLASS_SPACE)
static const uint32_t starts[] = {
#include "text/character_classes.inc"
};
#undef O
#undef L
#undef N
#undef S

gd_character_class gd_character_class_of(uint32_t point)
{
    size_t low = 0, high = sizeof starts / sizeof *starts; /* starts[low] <= point < starts[high] */
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (starts[middle] >> 2 <= point)
            low = middle;
        else
            high = middle;
    }
    return point >= GD_STRAY_BYTE ? GD_CLASS_OTHER : (gd_character_class)(starts[low] & 3);
}
