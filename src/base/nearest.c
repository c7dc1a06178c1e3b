/* base/nearest.c: the known name that is nearest to a given one. */
#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 48 }; /* longer names are not compared */

/* How many letters must be changed, put in or left out (Levenshtein). */
static int distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int row[MOST + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (int)j;
    for (size_t i = 0; i < a_length; i++) {
        int corner = row[0];
        row[0] = (int)i + 1;
        for (size_t j = 0; j < b_length; j++) {
            int changed = corner + (a[i] != b[j]);
            int least = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            corner = row[j + 1];
            row[j + 1] = changed < least ? changed : least;
        }
    }
    return row[b_length];
}

void gd_nearest_try(gd_nearest *nearest, const char *known)
{
    size_t a = strnlen(nearest->given, MOST + 1), b = strnlen(known, MOST + 1);
    if (a > MOST || b > MOST)
        return;
    int d = distance(nearest->given, a, known, b);
    int most = a < 5 ? 1 : a < 9 ? 2 : 3;
    if (d <= most && d < (int)b && (!nearest->name || d < nearest->distance)) {
        nearest->name = known;
        nearest->distance = d;
    }
}

const char *gd_nearest_words(const gd_nearest *nearest, char text[GD_NEAREST_TEXT])
{
    text[0] = '\0';
    if (nearest->name)
        snprintf(text, GD_NEAREST_TEXT, ": did you mean \"%s\"?", nearest->name);
    return text;
}
