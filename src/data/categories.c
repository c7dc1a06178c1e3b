/* data/categories.c: different texts, counted. Open addressing, at most half full. */
#include "data/categories.h"

#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a. */
static size_t hash(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return (size_t)(h ^ h >> 32);
}

/* The slot that has the text, or the empty one where it belongs. */
static size_t slot_of(const gd_categories *c, const char *text)
{
    size_t at = hash(text) & (c->slot_count - 1);
    while (c->slots[at] && strcmp(c->items[c->slots[at] - 1].name, text) != 0)
        at = (at + 1) & (c->slot_count - 1);
    return at;
}

static void fill_slots(gd_categories *c)
{
    memset(c->slots, 0, c->slot_count * sizeof *c->slots);
    for (int64_t i = 0; i < c->count; i++)
        c->slots[slot_of(c, c->items[i].name)] = (int32_t)i + 1;
}

static gd_status make_room(gd_categories *c)
{
    if (!gd_grow((void **)&c->items, &c->capacity, (size_t)c->count + 1, sizeof *c->items))
        return GD_ERR_MEMORY;
    if (2 * ((size_t)c->count + 1) <= c->slot_count)
        return GD_OK;
    size_t slot_count = c->slot_count ? 2 * c->slot_count : 16;
    int32_t *slots = gd_alloc(slot_count * sizeof *slots);
    if (!slots)
        return GD_ERR_MEMORY;
    gd_free(c->slots);
    c->slots = slots;
    c->slot_count = slot_count;
    fill_slots(c);
    return GD_OK;
}

gd_status gd_categories_add(gd_categories *c, const char *text)
{
    int64_t known = gd_categories_find(c, text);
    if (known >= 0) {
        c->items[known].count++;
        return GD_OK;
    }
    gd_status status = make_room(c);
    char *name = status == GD_OK ? gd_strdup(text) : NULL;
    if (!name)
        return GD_ERR_MEMORY;
    size_t slot = slot_of(c, text);
    c->items[c->count] = (gd_category){ name, 1 };
    c->slots[slot] = (int32_t)++c->count;
    return GD_OK;
}

int64_t gd_categories_find(const gd_categories *c, const char *text)
{
    return c->slot_count ? (int64_t)c->slots[slot_of(c, text)] - 1 : -1;
}

int gd_categories_by_bytes(const void *a, const void *b)
{
    const gd_category *x = a, *y = b;
    return strcmp(x->name, y->name);
}

int gd_categories_by_count(const void *a, const void *b)
{
    const gd_category *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->name, y->name);
}

int gd_categories_by_number(const void *a, const void *b)
{
    const gd_category *x = a, *y = b;
    double p = gd_strtod(x->name, NULL), q = gd_strtod(y->name, NULL);
    return (p > q) - (p < q);
}

void gd_categories_sort(gd_categories *c, int (*compare)(const void *a, const void *b),
                        int64_t most)
{
    if (c->count == 0)
        return;
    qsort(c->items, (size_t)c->count, sizeof *c->items, compare);
    for (; c->count > most; c->count--)
        gd_free(c->items[c->count - 1].name);
    fill_slots(c);
}

void gd_categories_free(gd_categories *c)
{
    for (int64_t i = 0; i < c->count; i++)
        gd_free(c->items[i].name);
    gd_free(c->items);
    gd_free(c->slots);
    *c = (gd_categories){ 0 };
}
