/* graph/dtypes.c: the rules of graph/dtypes.h. Promotion of two operands to one dtype is
 * gd_dtype_promote (tensor/dtype.c). */
#include "graph/dtypes.h"

#include "base/error.h"
#include "base/text.h"

/* Whether values of `from` may be computed with in `to`. i64 takes u64's, as both count modulo
 * 2^64: who compares them turns the top bit before. */
static bool takes(gd_dtype to, gd_dtype from)
{
    if (to == GD_F32)
        return from != GD_F64;
    return !gd_dtype_is_float(from) && (to == GD_I64 || gd_dtype_holds(to, from));
}

gd_dtype gd_choose_dtype(gd_dtype_set set, gd_dtype dtype)
{
    static const gd_dtype wider[] = { GD_I32, GD_I64, GD_F32 };
    for (int i = 0; i < 3; i++)
        if (gd_dtype_set_has(set, wider[i]) && takes(wider[i], dtype))
            return wider[i];
    return GD_DTYPE_COUNT;
}

gd_dtype gd_real_dtype(gd_dtype dtype)
{
    return gd_dtype_set_has(GD_DTYPES_REAL, dtype) ? dtype : gd_choose_dtype(GD_DTYPES_REAL, dtype);
}

gd_dtype gd_float_dtype(gd_dtype dtype)
{
    return gd_dtype_is_float(dtype) ? dtype : GD_F32;
}

/* "f32, f64" */
static const char *set_text(gd_dtype_set set, char *text, size_t size)
{
    gd_text t = { text, size, 0 };
    for (int d = 0; d < GD_DTYPE_COUNT; d++)
        if (gd_dtype_set_has(set, (gd_dtype)d))
            gd_text_add(&t, "%s%s", t.length ? ", " : "", gd_dtype_name((gd_dtype)d));
    return text;
}

gd_status gd_refuse_dtypes(const gd_op *op, int n, const gd_layout *const *in)
{
    const gd_dtype dtype = gd_read_dtype(op, 0, in[0]->dtype);
    if (op->dtypes && !gd_dtype_set_has(op->dtypes, dtype)) {
        char text[120];
        return gd_fail(GD_ERR_DTYPE, "gd_%s: computes with %s, not with %s", op->name,
                       set_text(op->dtypes, text, sizeof text), gd_dtype_name(dtype));
    }
    int i = 1;
    while (i < n - 1 && (gd_read_dtype(op, i, in[i]->dtype) == dtype || !(op->alike >> i & 1)))
        i++;
    return gd_fail(GD_ERR_DTYPE, "gd_%s: operand 0 is %s and operand %d %s; they must be alike",
                   op->name, gd_dtype_name(dtype), i, gd_dtype_name(in[i]->dtype));
}
