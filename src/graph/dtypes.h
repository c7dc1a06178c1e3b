/* graph/dtypes.h: what an op is computed in, accumulated in and gives: decided here and nowhere
 * else, from the set of dtypes in the op's row. A kernel for a further dtype is a bit in that set
 * and a loop in a back end; builders, errors and compiled groups follow. The rules are in
 * graph/dtypes.c. */
#ifndef GD_GRAPH_DTYPES_H
#define GD_GRAPH_DTYPES_H

#include "graph/op.h"

/* The narrowest of i32, i64 and f32 that is in the set and holds numbers of `dtype`, which is not;
 * GD_DTYPE_COUNT: none. */
gd_dtype gd_choose_dtype(gd_dtype_set set, gd_dtype dtype);

/* The dtype of sums of products of numbers of `dtype`: f32 of halves. */
static inline gd_dtype gd_sums_dtype(gd_dtype dtype)
{
    return gd_dtype_is_half(dtype) ? GD_F32 : dtype;
}

/* The dtype op computes values of `dtype` in: dtype itself where the row has it, else the narrowest
 * of the row's that holds them (f16 and bf16: f32), f32 for integers and bools where the row has
 * only floats. Builders convert operands to it, and results that have the operands' dtype back: so
 * f16 and bf16 are rounded once. GD_DTYPE_COUNT: none, as for floats in bitwise ops. */
static inline gd_dtype gd_compute_dtype(gd_op_id op, gd_dtype dtype)
{
    gd_dtype_set set = gd_op_row(op)->dtypes;
    return !set || gd_dtype_set_has(set, dtype) ? dtype : gd_choose_dtype(set, dtype);
}

/* The dtype that a composite of several ops on real numbers computes in: f32 for f16 and bf16, and
 * for what is no float. */
gd_dtype gd_real_dtype(gd_dtype dtype);

/* The dtype that functions of real numbers give: that of floats, f32 for integers and bools. */
gd_dtype gd_float_dtype(gd_dtype dtype);

/* The dtype that the ops for sums and products of many elements count in: that of floats, u64 for
 * u64, i64 for other integers and bools. */
static inline gd_dtype gd_total_dtype(gd_dtype dtype)
{
    return gd_dtype_is_float(dtype) || dtype == GD_U64 ? dtype : GD_I64;
}

/* The dtype that their builders give: that of floats, u64 for unsigned integers, i64 for other
 * integers and bools. */
static inline gd_dtype gd_sum_dtype(gd_dtype dtype)
{
    bool is_unsigned = dtype == GD_U8 || dtype == GD_U16 || dtype == GD_U32;
    return is_unsigned ? GD_U64 : gd_total_dtype(dtype);
}

/* The dtype that op computes with where operand i has `dtype`: f32 of halves that it may read. */
static inline gd_dtype gd_read_dtype(const gd_op *op, int i, gd_dtype dtype)
{
    return op->halves >> i & 1 ? gd_sums_dtype(dtype) : dtype;
}

/* The dtype of the result of an op that reads `dtype`, and whose attribute says `rounded`. */
static inline gd_dtype gd_rounded_dtype(gd_dtype dtype, int64_t rounded)
{
    return rounded ? (gd_dtype)rounded : gd_sums_dtype(dtype);
}

/* Records GD_ERR_DTYPE with a sentence that names the op, what it was given and what it takes. */
gd_status gd_refuse_dtypes(const gd_op *op, int n, const gd_layout *const *in);

/* Whether operand 0 of op is of its row's dtypes, and the operands that must be like it are; else
 * gd_refuse_dtypes. In the header, because every op that is built asks. */
static inline gd_status gd_check_dtypes(const gd_op *op, int n, const gd_layout *const *in)
{
    if (n == 0 || (!op->dtypes && !op->alike)) /* `call` has more operands than in has room for */
        return GD_OK;
    const gd_dtype dtype = gd_read_dtype(op, 0, in[0]->dtype);
    bool fits = !op->dtypes || gd_dtype_set_has(op->dtypes, dtype);
    for (int i = 1; i < n && op->alike >> i; i++)
        fits = fits && (gd_read_dtype(op, i, in[i]->dtype) == dtype || !(op->alike >> i & 1));
    return fits ? GD_OK : gd_refuse_dtypes(op, n, in);
}

#endif
