/* backend/reference/reduce.c: sum, prod, max, min, argmax, argmin, cumsum, cumprod. Floats
 * accumulate in long double and are rounded once; integers count in i64, modulo 2^64. */
#include "backend/reference/reference.h"

#include "ops/attrs.h"

#include <math.h>
#include <string.h>

/* An accumulator: floats and extremes use `value`, totals of integers `whole`. */
typedef struct total {
    real value;
    uint64_t whole;
} total;

typedef void (*combine_fn)(total *sum, real value, uint64_t whole);

static void add(total *sum, real value, uint64_t whole)
{
    sum->value += value;
    sum->whole += whole;
}

static void multiply(total *sum, real value, uint64_t whole)
{
    sum->value *= value;
    sum->whole *= whole;
}

/* NaN wins over everything. */
static void keep_larger(total *sum, real value, uint64_t whole)
{
    (void)whole;
    if (!isnan(sum->value) && !(value <= sum->value))
        sum->value = value;
}

static void keep_smaller(total *sum, real value, uint64_t whole)
{
    (void)whole;
    if (!isnan(sum->value) && !(value >= sum->value))
        sum->value = value;
}

static void take(const gd_operand *x, int64_t offset, total *sum, combine_fn combine)
{
    bool is_float = gd_dtype_is_float(x->layout->dtype);
    combine(sum, gd_ref_load(x, offset), is_float ? 0 : (uint64_t)gd_ref_load_integer(x, offset));
}

static void put(const gd_operand *out, int64_t offset, const total *sum, bool counts)
{
    if (counts && out->layout->dtype == GD_I64)
        gd_ref_store_integer(out, offset, (int64_t)sum->whole);
    else
        gd_ref_store(out, offset, sum->value);
}

/* The input's layout cut to its kept axes, or to its reduced ones. */
static gd_layout pick_axes(const gd_layout *in, uint32_t axes)
{
    gd_layout out = { .dtype = in->dtype };
    for (int a = 0; a < in->rank; a++)
        if (axes >> a & 1) {
            out.shape[out.rank] = in->shape[a];
            out.stride[out.rank++] = in->stride[a];
        }
    return out;
}

static gd_status reduce(const gd_kernel_call *call, combine_fn combine, total start, bool counts)
{
    const gd_operand *x = &call->in[0];
    uint32_t axes = ((const gd_reduce_attr *)call->attr)->axes;
    gd_layout kept = pick_axes(x->layout, ~axes), reduced = pick_axes(x->layout, axes);
    for (gd_walk w = gd_walk_over(&kept); w.more; gd_walk_next(&w)) {
        int64_t first = gd_index_offset(w.index, &kept);
        total sum = start;
        for (gd_walk r = gd_walk_over(&reduced); r.more; gd_walk_next(&r))
            take(x, first + gd_index_offset(r.index, &reduced), &sum, combine);
        put(&call->out, w.count, &sum, counts);
    }
    return GD_OK;
}

static gd_status sum(const gd_kernel_call *call)
{
    return reduce(call, add, (total){ 0, 0 }, true);
}

static gd_status prod(const gd_kernel_call *call)
{
    return reduce(call, multiply, (total){ 1, 1 }, true);
}

static gd_status max(const gd_kernel_call *call)
{
    return reduce(call, keep_larger, (total){ -INFINITY, 0 }, false);
}

static gd_status min(const gd_kernel_call *call)
{
    return reduce(call, keep_smaller, (total){ INFINITY, 0 }, false);
}

/* ---- along one axis: the lines of the input are the walk over its other axes ---- */

static uint32_t axis_bit(const gd_kernel_call *call)
{
    return 1u << ((const gd_axis_attr *)call->attr)->axis;
}

/* The first extreme; the first NaN if there is one. */
static gd_status find_extreme(const gd_kernel_call *call, combine_fn combine)
{
    const gd_operand *x = &call->in[0];
    gd_layout lines = pick_axes(x->layout, ~axis_bit(call)),
              line = pick_axes(x->layout, axis_bit(call));
    for (gd_walk w = gd_walk_over(&lines); w.more; gd_walk_next(&w)) {
        int64_t first = gd_index_offset(w.index, &lines), best = 0;
        total extreme = { gd_ref_load(x, first), 0 };
        for (int64_t i = 1; i < line.shape[0]; i++) {
            total before = extreme;
            take(x, first + i * line.stride[0], &extreme, combine);
            if (extreme.value != before.value && !isnan(before.value))
                best = i;
        }
        gd_ref_store_integer(&call->out, w.count, best);
    }
    return GD_OK;
}

static gd_status argmax(const gd_kernel_call *call)
{
    return find_extreme(call, keep_larger);
}

static gd_status argmin(const gd_kernel_call *call)
{
    return find_extreme(call, keep_smaller);
}

static gd_status scan(const gd_kernel_call *call, combine_fn combine, total start)
{
    const gd_operand *x = &call->in[0], *out = &call->out;
    uint32_t bit = axis_bit(call);
    gd_layout lines = pick_axes(x->layout, ~bit), line = pick_axes(x->layout, bit);
    gd_layout out_lines = pick_axes(out->layout, ~bit), out_line = pick_axes(out->layout, bit);
    for (gd_walk w = gd_walk_over(&lines); w.more; gd_walk_next(&w)) {
        int64_t from = gd_index_offset(w.index, &lines), to = gd_index_offset(w.index, &out_lines);
        total running = start;
        for (int64_t i = 0; i < line.shape[0]; i++) {
            take(x, from + i * line.stride[0], &running, combine);
            put(out, to + i * out_line.stride[0], &running, true);
        }
    }
    return GD_OK;
}

static gd_status cumsum(const gd_kernel_call *call)
{
    return scan(call, add, (total){ 0, 0 });
}

static gd_status cumprod(const gd_kernel_call *call)
{
    return scan(call, multiply, (total){ 1, 1 });
}

void gd_reference_register_reduce(gd_kernel_fn *kernel)
{
    kernel[GD_OP_sum] = sum;
    kernel[GD_OP_prod] = prod;
    kernel[GD_OP_max] = max;
    kernel[GD_OP_min] = min;
    kernel[GD_OP_argmax] = argmax;
    kernel[GD_OP_argmin] = argmin;
    kernel[GD_OP_cumsum] = cumsum;
    kernel[GD_OP_cumprod] = cumprod;
}
