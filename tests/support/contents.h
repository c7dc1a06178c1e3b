/* tests/support/contents.h: what a run leaves in its tensors, as bytes, to be compared with another
 * run's. */
#ifndef GD_TESTS_CONTENTS_H
#define GD_TESTS_CONTENTS_H

#include <gradus/tensor.h>

#include <stdio.h>

enum { CONTENTS_MOST_MARKS = 512 };

/* A tensor: its elements begin at byte `at`. */
typedef struct contents_mark {
    char what[40];
    gd_dtype dtype;
    gd_shape shape;
    size_t at, count;
} contents_mark;

/* Tensors, one after the other, row-major; every NaN as the same one. */
typedef struct contents {
    unsigned char *bytes;
    size_t size, capacity;
    contents_mark marks[CONTENTS_MOST_MARKS];
    int count;
} contents;

/* Add a tensor, called "what number"; NULL adds nothing. */
void contents_note(contents *c, const gd_tensor *t, const char *what, int number);
void contents_free(contents *c);
/* Element i of a mark as a double. */
double contents_value(const contents *c, const contents_mark *mark, size_t i);
/* Whether tensors, dtypes, shapes and bits are the same; the log gets the first difference.
 * `a_name`: what a is called in it, "eagerly". */
bool contents_same(const contents *a, const char *a_name, const contents *b, const char *b_name,
                   FILE *log);
/* Whether there are as many tensors, of the same dtypes and shapes. */
bool contents_alike(const contents *a, const char *a_name, const contents *b, const char *b_name,
                    FILE *log);

#endif
