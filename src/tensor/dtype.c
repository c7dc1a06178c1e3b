/* tensor/dtype.c: the element types: names, sizes, and the type two of them are computed in. Not
 * their arithmetic, which is the back ends' business. */
#include "tensor/layout.h"

#include <stdbool.h>

typedef enum category { BOOL, INTEGER, FLOAT } category;

typedef struct dtype_row {
    const char *name;
    size_t size;
    category category;
    bool is_signed;
} dtype_row;

static const dtype_row rows[GD_DTYPE_COUNT] = {
    [GD_F32] = { "f32", 4, FLOAT, true },   [GD_F64] = { "f64", 8, FLOAT, true },
    [GD_F16] = { "f16", 2, FLOAT, true },   [GD_BF16] = { "bf16", 2, FLOAT, true },
    [GD_I8] = { "i8", 1, INTEGER, true },   [GD_U8] = { "u8", 1, INTEGER, false },
    [GD_I16] = { "i16", 2, INTEGER, true }, [GD_U16] = { "u16", 2, INTEGER, false },
    [GD_I32] = { "i32", 4, INTEGER, true }, [GD_U32] = { "u32", 4, INTEGER, false },
    [GD_I64] = { "i64", 8, INTEGER, true }, [GD_U64] = { "u64", 8, INTEGER, false },
    [GD_BOOL] = { "bool", 1, BOOL, false },
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

/* A signed integer and an unsigned one: the smallest signed one that holds both. */
static gd_dtype promote_mixed(gd_dtype with_sign, gd_dtype without)
{
    static const gd_dtype signed_of[] = { GD_I8, GD_I16, GD_I32, GD_I64 };
    size_t least = 2 * rows[without].size;
    if (rows[with_sign].size > least)
        least = rows[with_sign].size;
    for (int i = 0; i < 4; i++)
        if (rows[signed_of[i]].size >= least)
            return signed_of[i];
    return GD_F64;
}

gd_dtype gd_dtype_promote(gd_dtype a, gd_dtype b)
{
    if (!is_dtype(a) || !is_dtype(b))
        return GD_DTYPE_COUNT;
    if (a == b)
        return a;
    if (rows[a].category != rows[b].category)
        return rows[a].category > rows[b].category ? a : b;
    if (rows[a].is_signed != rows[b].is_signed)
        return rows[a].is_signed ? promote_mixed(a, b) : promote_mixed(b, a);
    if (rows[a].size != rows[b].size)
        return rows[a].size > rows[b].size ? a : b;
    return GD_F32; /* f16 with bf16: the smallest type that holds both */
}

bool gd_dtype_holds(gd_dtype to, gd_dtype from)
{
    if (from == GD_BOOL || to == from)
        return true;
    if (to == GD_BOOL || (gd_dtype_is_float(from) && !gd_dtype_is_float(to)))
        return false;
    if (gd_dtype_is_float(from))
        return rows[to].size > rows[from].size;
    size_t bits = 8 * rows[from].size - (rows[from].is_signed ? 1 : 0); /* of a magnitude */
    static const uint8_t digits[GD_DTYPE_COUNT] = {
        [GD_F16] = 11, [GD_BF16] = 8, [GD_F32] = 24, [GD_F64] = 53
    };
    if (digits[to])
        return bits <= digits[to];
    return bits <= 8 * rows[to].size - (rows[to].is_signed ? 1 : 0) &&
           (rows[to].is_signed || !rows[from].is_signed);
}
