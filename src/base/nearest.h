/* base/nearest.h: for messages about an unknown name: which known one was probably meant. Try the
 * known names one after the other, then ask for the words. */
#ifndef GD_BASE_NEAREST_H
#define GD_BASE_NEAREST_H

typedef struct gd_nearest {
    const char *given; /* may be of any length */
    const char *name;  /* the nearest so far; NULL: none is near */
    int distance;
} gd_nearest;

void gd_nearest_try(gd_nearest *nearest, const char *known);
/* ": did you mean \"units\"?", or "" where no name is near. */
#define GD_NEAREST_TEXT 96
const char *gd_nearest_words(const gd_nearest *nearest, char text[GD_NEAREST_TEXT]);

#endif
