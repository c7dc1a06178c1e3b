/* data/categories.h: a list of different texts and how often each occurred, found by hashing. */
#ifndef GD_DATA_CATEGORIES_H
#define GD_DATA_CATEGORIES_H

#include <gradus/base.h>

typedef struct gd_category {
    char *name; /* ours */
    int64_t count;
} gd_category;

typedef struct gd_categories {
    gd_category *items; /* [count] */
    int64_t count;
    size_t capacity;
    int32_t *slots; /* [slot_count] an index plus one, or 0; a power of two */
    size_t slot_count;
} gd_categories;

/* Count the text once more. GD_ERR_MEMORY. */
gd_status gd_categories_add(gd_categories *categories, const char *text);
/* Its index, -1 if it is none of them. */
int64_t gd_categories_find(const gd_categories *categories, const char *text);
/* Put them in qsort's order by `compare`, of two gd_category, and keep the first `most`. */
void gd_categories_sort(gd_categories *categories, int (*compare)(const void *a, const void *b),
                        int64_t most);
/* The most frequent first, equally frequent ones by their bytes. */
int gd_categories_by_count(const void *a, const void *b);
int gd_categories_by_bytes(const void *a, const void *b);
/* Of texts that are numbers. */
int gd_categories_by_number(const void *a, const void *b);
void gd_categories_free(gd_categories *categories);

#endif
