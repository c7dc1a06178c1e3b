/* tensor/dtype.c: the element types: names, sizes, and the type two of them are computed in. Not
 * their arithmetic, which is the back ends' business. */
#include "tensor/layout.h"

#include <stdbool.h>

typedef struct dtype_row {
    const char *name;
    size_t size;
    int category; /* bool 0 < integer 1 < float 2 */
    int width; /* order within the category; equal widths that differ have no common member of their
                  own */
} dtype_row;

static const dtype_row rows[GD_DTYPE_COUNT] = {
    [GD_F32] = { "f32", 4, 2, 1 }, [GD_F64] = { "f64", 8, 2, 2 },   [GD_I32] = { "i32", 4, 1, 1 },
    [GD_I64] = { "i64", 8, 1, 2 }, [GD_U8] = { "u8", 1, 1, 0 },     [GD_BOOL] = { "bool", 1, 0, 0 },
    [GD_F16] = { "f16", 2, 2, 0 }, [GD_BF16] = { "bf16", 2, 2, 0 },
};

static bool is_dtype(gd_dtype dtype)
{
    return (unsigned)dtype < GD_DTYPE_COUNT;
}

const char *gd_dtype_name(gd_dtype dtype)
{
    return is_dtype(dtype) ? rows[dtype].name : "?";
}

size_t gd_dtype_size(gd_dtype dtype)
{
    return is_dtype(dtype) ? rows[dtype].size : 0;
}

bool(gd_dtype_is_float)(gd_dtype dtype)
{
    return gd_dtype_is_float(dtype);
}

bool(gd_dtype_is_integer)(gd_dtype dtype)
{
    return gd_dtype_is_integer(dtype);
}

gd_dtype gd_dtype_promote(gd_dtype a, gd_dtype b)
{
    if (!is_dtype(a) || !is_dtype(b))
        return GD_DTYPE_COUNT;
    if (a == b)
        return a;
    if (rows[a].category != rows[b].category)
        return rows[a].category > rows[b].category ? a : b;
    if (rows[a].width != rows[b].width)
        return rows[a].width > rows[b].width ? a : b;
    return GD_F32; /* f16 with bf16: the smallest type that holds both */
}
