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

static gd_dtype choose(gd_dtype_set set, gd_dtype dtype)
{
    static const gd_dtype wider[] = { GD_I32, GD_I64, GD_F32 };
    if (!set || gd_dtype_set_has(set, dtype))
        return dtype;
    for (int i = 0; i < 3; i++)
        if (gd_dtype_set_has(set, wider[i]) && takes(wider[i], dtype))
            return wider[i];
    return GD_DTYPE_COUNT;
}

gd_dtype gd_compute_dtype(gd_op_id op, gd_dtype dtype)
{
    return choose(gd_op_row(op)->dtypes, dtype);
}

gd_dtype gd_real_dtype(gd_dtype dtype)
{
    return choose(GD_DTYPES_REAL, dtype);
}

gd_dtype gd_float_dtype(gd_dtype dtype)
{
    return gd_dtype_is_float(dtype) ? dtype : GD_F32;
}

gd_dtype gd_total_dtype(gd_dtype dtype)
{
    return gd_dtype_is_float(dtype) || dtype == GD_U64 ? dtype : GD_I64;
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

gd_status gd_check_dtypes(const gd_op *op, int n, const gd_layout *const *in)
{
    if (n == 0 || (!op->dtypes && !op->alike)) /* `call` has more operands than in has room for */
        return GD_OK;
    const gd_dtype dtype = in[0]->dtype;
    if (op->dtypes && !gd_dtype_set_has(op->dtypes, dtype)) {
        char text[120];
        return gd_fail(GD_ERR_DTYPE, "gd_%s: computes with %s, not with %s", op->name,
                       set_text(op->dtypes, text, sizeof text), gd_dtype_name(dtype));
    }
    for (int i = 1; i < n; i++)
        if (in[i]->dtype != dtype && op->alike >> i & 1)
            return gd_fail(GD_ERR_DTYPE,
                           "gd_%s: operand 0 is %s and operand %d %s; they must be alike", op->name,
                           gd_dtype_name(dtype), i, gd_dtype_name(in[i]->dtype));
    return GD_OK;
}
