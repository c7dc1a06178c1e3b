/* tests/support/contents.c: see contents.h. */
#include "support/contents.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "tensor/element.h"
#include "tensor/layout.h"

static void forget_nan_bits(gd_dtype dtype, unsigned char *bytes, size_t count)
{
    const size_t size = gd_dtype_size(dtype);
    static const float nan32 = NAN;
    static const double nan64 = NAN;
    static const uint16_t nan16 = 0x7fff;
    const void *same = dtype == GD_F32   ? (const void *)&nan32
                       : dtype == GD_F64 ? (const void *)&nan64
                                         : &nan16;
    for (size_t i = 0; i < count && gd_dtype_is_float(dtype); i++)
        if (isnan(gd_element_as_double(dtype, bytes + i * size)))
            memcpy(bytes + i * size, same, size);
}

void contents_note(contents *c, const gd_tensor *t, const char *what, int number)
{
    if (!t || c->count == CONTENTS_MOST_MARKS)
        return;
    contents_mark *k = &c->marks[c->count];
    *k = (contents_mark){ .dtype = gd_tensor_dtype(t),
                          .shape = gd_tensor_shape(t),
                          .at = c->size,
                          .count = (size_t)gd_tensor_count(t) };
    snprintf(k->what, sizeof k->what, "%s %d", what, number);
    const size_t bytes = k->count * gd_dtype_size(k->dtype);
    if (c->size + bytes > c->capacity) {
        c->capacity = 2 * (c->size + bytes);
        c->bytes = realloc(c->bytes, c->capacity);
        if (!c->bytes)
            abort();
    }
    if (gd_tensor_read(t, c->bytes + c->size, bytes) != GD_OK)
        return;
    forget_nan_bits(k->dtype, c->bytes + c->size, k->count);
    c->size += bytes;
    c->count++;
}

void contents_free(contents *c)
{
    free(c->bytes);
    *c = (contents){ .bytes = NULL };
}

double contents_value(const contents *c, const contents_mark *mark, size_t i)
{
    return gd_element_as_double(mark->dtype, c->bytes + mark->at + i * gd_dtype_size(mark->dtype));
}

static bool same_shape(gd_shape a, gd_shape b)
{
    bool same = a.rank == b.rank;
    for (int i = 0; same && i < a.rank; i++)
        same = a.dim[i] == b.dim[i];
    return same;
}

bool contents_alike(const contents *a, const char *a_name, const contents *b, const char *b_name,
                    FILE *log)
{
    for (int i = 0; i < a->count && i < b->count; i++) {
        const contents_mark *x = &a->marks[i], *y = &b->marks[i];
        if (same_shape(x->shape, y->shape) && x->dtype == y->dtype)
            continue;
        if (log)
            fprintf(log, "    %s of another shape or dtype: %s %zu elements, %s, %s %zu, %s\n",
                    x->what, b_name, y->count, gd_dtype_name(y->dtype), a_name, x->count,
                    gd_dtype_name(x->dtype));
        return false;
    }
    if (log && a->count != b->count)
        fprintf(log, "    %s: %d tensors, %s %d\n", b_name, b->count, a_name, a->count);
    return a->count == b->count;
}

bool contents_same(const contents *a, const char *a_name, const contents *b, const char *b_name,
                   FILE *log)
{
    if (!contents_alike(a, a_name, b, b_name, log))
        return false;
    for (int i = 0; i < a->count; i++) {
        const contents_mark *x = &a->marks[i], *y = &b->marks[i];
        const size_t size = gd_dtype_size(x->dtype);
        for (size_t k = 0; k < x->count; k++) {
            if (memcmp(a->bytes + x->at + k * size, b->bytes + y->at + k * size, size) == 0)
                continue;
            if (log)
                fprintf(log, "    %s: element %zu of %s is %.17g, %s %.17g\n", b_name, k, x->what,
                        contents_value(b, y, k), a_name, contents_value(a, x, k));
            return false;
        }
    }
    return true;
}
