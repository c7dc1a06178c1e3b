/* vector.c: a growing array of values, each held by a reference. */
#include <gradus/scalar.h>
#include "scalar/memory.h"

struct gd_scalar_vector {
    gd_value **items; // [capacity], the first `size` in use
    size_t size;
    size_t capacity;
};

gd_scalar_vector *gd_scalar_vector_create(void)
{
    gd_scalar_vector *vector = gd_scalar_realloc(NULL, 1, sizeof(*vector));
    if (vector != NULL)
        *vector = (gd_scalar_vector){ 0 };
    return vector;
}

void gd_scalar_vector_clear(gd_scalar_vector *vector)
{
    if (vector == NULL)
        return;
    while (vector->size > 0)
        gd_value_release(vector->items[--vector->size]);
}

void gd_scalar_vector_destroy(gd_scalar_vector *vector)
{
    if (vector == NULL)
        return;
    gd_scalar_vector_clear(vector);
    gd_scalar_realloc(vector->items, 0, sizeof(gd_value *));
    gd_scalar_realloc(vector, 0, sizeof(*vector));
}

size_t gd_scalar_vector_size(const gd_scalar_vector *vector)
{
    return vector != NULL ? vector->size : 0;
}

gd_value *gd_scalar_vector_get(const gd_scalar_vector *vector, size_t index)
{
    return vector != NULL && index < vector->size ? vector->items[index] : NULL;
}

gd_value *const *gd_scalar_vector_items(const gd_scalar_vector *vector)
{
    return vector != NULL ? vector->items : NULL;
}

/* Doubling makes n pushes cost O(n) copies in all. */
static int grow(gd_scalar_vector *vector)
{
    size_t capacity = vector->capacity > 0 ? 2 * vector->capacity : 8;
    gd_value **items = gd_scalar_realloc(vector->items, capacity, sizeof(gd_value *));
    if (items == NULL)
        return -1;
    vector->items = items;
    vector->capacity = capacity;
    return 0;
}

int gd_scalar_vector_push(gd_scalar_vector *vector, gd_value *value)
{
    if (vector == NULL || (vector->size == vector->capacity && grow(vector) != 0))
        return -1;
    if (gd_value_retain(value) == NULL)
        return -1;
    vector->items[vector->size++] = value;
    return 0;
}

int gd_scalar_vector_push_leaf(gd_scalar_vector *vector, double data)
{
    gd_value *leaf = gd_value_create_leaf(data);
    int status = gd_scalar_vector_push(vector, leaf);
    gd_value_release(leaf); /* the vector holds it now, or nobody does */
    return status;
}
