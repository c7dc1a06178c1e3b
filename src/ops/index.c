/* ops/index.c: gather and scatter_add, adjoint to each other, scatter, which replaces, and what is
 * made of them. Whole rows are taken and added up by an index that is stretched over them (stride
 * 0): the kernels then move a row at a time. */
#include "ops/internal.h"

static bool is_index(gd_dtype dtype)
{
    return dtype == GD_I64 || dtype == GD_I32;
}

/* An index as kernels take it: other integers become i64. */
static gd_tensor *as_index(gd_tensor *index)
{
    gd_dtype dtype = index->layout.dtype;
    return gd_dtype_is_integer(dtype) && !is_index(dtype) ? gd_as_dtype(index, GD_I64) : index;
}

/* index must have x's rank and, off the axis, be no larger. */
static gd_status check_index(const gd_layout *x, const gd_layout *index, int axis, const char *who)
{
    if (!is_index(index->dtype))
        return gd_fail(GD_ERR_DTYPE, "%s: the index is %s, it must be of integers", who,
                       gd_dtype_name(index->dtype));
    bool fits = index->rank == x->rank;
    for (int i = 0; fits && i < x->rank; i++)
        fits = i == axis || index->shape[i] <= x->shape[i];
    if (fits && x->shape[axis] == 0 && gd_layout_count(index) > 0) /* no kernel looks at these */
        return gd_fail(GD_ERR_INVALID, "%s: axis %d of size 0 has every index out of range", who,
                       axis);
    if (fits)
        return GD_OK;
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    return gd_fail(GD_ERR_SHAPE, "%s: an index %s does not fit %s along axis %d", who,
                   gd_layout_text(index, a), gd_layout_text(x, b), axis);
}

static gd_status infer_gather(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    if (check_index(in[0], in[1], ((const gd_axis_attr *)attr)->axis, "gd_gather") != GD_OK)
        return gd_error_last();
    return gd_infer_like(in[1], in[0]->dtype, "gd_gather", out);
}

static bool vjp_gather(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    int axis = ((const gd_axis_attr *)r->attr)->axis;
    gd_tensor *x = r->inputs[0];
    /* A single zero, broadcast: the kernel fills its result without reading that many zeros. */
    gd_tensor *zeros = gd_as_shape(gd_number_like(x, 0.0), gd_tensor_shape(x));
    return gd_put(&d[0], gd_scatter_add(zeros, r->inputs[1], g, axis));
}

const gd_op gd_op_gather = { .id = GD_OP_gather,
                             .name = "gather",
                             .arity = 2,
                             .flags = GD_OP_PART,
                             .attr_size = sizeof(gd_axis_attr),
                             .infer = infer_gather,
                             .vjp = vjp_gather,
                             .format = gd_format_axis,
                             .flops = gd_flops_none,
                             .recompute = GD_RECOMPUTE_MOVES };

static gd_status infer_scatter_add(int n, const gd_layout *const *in, const void *attr,
                                   gd_layout *out)
{
    (void)n;
    int axis = ((const gd_axis_attr *)attr)->axis;
    if (check_index(in[0], in[1], axis, "gd_scatter_add") != GD_OK)
        return gd_error_last();
    if (!gd_layout_same_shape(in[1], in[2])) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE, "gd_scatter_add: index %s and source %s differ",
                       gd_layout_text(in[1], a), gd_layout_text(in[2], b));
    }
    return gd_infer_like(in[0], in[0]->dtype, "gd_scatter_add", out);
}

static bool vjp_scatter_add(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    int axis = ((const gd_axis_attr *)r->attr)->axis;
    return (!gd_wants_grad(r->inputs[0]) || gd_put(&d[0], g)) &&
           (!gd_wants_grad(r->inputs[2]) || gd_put(&d[2], gd_gather(g, r->inputs[1], axis)));
}

static double flops_scatter_add(int n, const gd_layout *const *in, const gd_layout *out,
                                const void *attr)
{
    (void)n, (void)out, (void)attr;
    return (double)gd_layout_count(in[2]);
}

const gd_op gd_op_scatter_add = { .id = GD_OP_scatter_add,
                                  .name = "scatter_add",
                                  .arity = 3,
                                  .dtypes = GD_DTYPES_COMMON,
                                  .alike = 1 << 2,
                                  .flags = GD_OP_IN_PLACE,
                                  .attr_size = sizeof(gd_axis_attr),
                                  .infer = infer_scatter_add,
                                  .vjp = vjp_scatter_add,
                                  .format = gd_format_axis,
                                  .flops = flops_scatter_add,
                                  .recompute = GD_RECOMPUTE_NEVER };

static gd_status infer_scatter(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    int axis = ((const gd_axis_attr *)attr)->axis;
    if (check_index(in[0], in[1], axis, "gd_scatter") != GD_OK)
        return gd_error_last();
    if (!gd_layout_same_shape(in[1], in[2])) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE, "gd_scatter: index %s and source %s differ",
                       gd_layout_text(in[1], a), gd_layout_text(in[2], b));
    }
    return gd_infer_like(in[0], in[0]->dtype, "gd_scatter", out);
}

/* What was replaced has no gradient; of several sources for one place only the last has. To know
 * which, the sources' numbers are scattered in the same way. */
static bool vjp_scatter(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    int axis = ((const gd_axis_attr *)r->attr)->axis;
    gd_tensor *base = r->inputs[0], *index = r->inputs[1], *source = r->inputs[2];
    gd_tensor *zero = gd_number_like(g, 0.0);
    gd_shape shape = gd_tensor_shape(source);
    if (gd_wants_grad(base) && !gd_put(&d[0], gd_scatter(g, index, gd_as_shape(zero, shape), axis)))
        return false;
    if (!gd_wants_grad(source))
        return true;
    gd_context *context = g->context;
    gd_tensor *numbers =
        gd_reshape(gd_arange(context, 0.0, (double)gd_tensor_count(source), 1.0, GD_I64), shape);
    gd_tensor *none = gd_broadcast_to(gd_scalar(context, -1.0, GD_I64), gd_tensor_shape(base));
    gd_tensor *winner = gd_gather(gd_scatter(none, index, numbers, axis), index, axis);
    return gd_put(&d[2], gd_where(gd_eq(winner, numbers), gd_gather(g, index, axis), zero));
}

const gd_op gd_op_scatter = { .id = GD_OP_scatter,
                              .name = "scatter",
                              .arity = 3,
                              .alike = 1 << 2,
                              .flags = GD_OP_IN_PLACE,
                              .attr_size = sizeof(gd_axis_attr),
                              .infer = infer_scatter,
                              .vjp = vjp_scatter,
                              .format = gd_format_axis,
                              .flops = gd_flops_none,
                              .recompute = GD_RECOMPUTE_NEVER };

static gd_tensor *build_scatter(gd_tensor *base, gd_tensor *index, gd_tensor *source, int axis)
{
    if (!gd_usable(base, "gd_scatter") || !gd_usable(index, "gd_scatter") ||
        !gd_usable(source, "gd_scatter"))
        return NULL;
    gd_axis_attr attr = { .axis = gd_axis_normal(axis, base->layout.rank, "gd_scatter") };
    if (attr.axis < 0)
        return NULL;
    gd_tensor *inputs[3] = { base, as_index(index), gd_as_dtype(source, base->layout.dtype) };
    return gd_apply(NULL, GD_OP_scatter, 3, inputs, &attr);
}

gd_tensor *gd_scatter(gd_tensor *base, gd_tensor *index, gd_tensor *source, int axis)
{
    return GD_AS("gd_scatter", build_scatter(base, index, source, axis));
}

static gd_tensor *build_gather(gd_tensor *x, gd_tensor *index, int axis)
{
    if (!gd_usable(x, "gd_gather") || !gd_usable(index, "gd_gather"))
        return NULL;
    gd_axis_attr attr = { .axis = gd_axis_normal(axis, x->layout.rank, "gd_gather") };
    return attr.axis < 0 ? NULL : gd_apply2(GD_OP_gather, x, as_index(index), &attr);
}

gd_tensor *gd_gather(gd_tensor *x, gd_tensor *index, int axis)
{
    return GD_AS("gd_gather", build_gather(x, index, axis));
}

static gd_tensor *build_scatter_add(gd_tensor *base, gd_tensor *index, gd_tensor *source, int axis)
{
    if (!gd_usable(base, "gd_scatter_add") || !gd_usable(index, "gd_scatter_add") ||
        !gd_usable(source, "gd_scatter_add"))
        return NULL;
    gd_axis_attr attr = { .axis = gd_axis_normal(axis, base->layout.rank, "gd_scatter_add") };
    if (attr.axis < 0)
        return NULL;
    gd_dtype dtype = base->layout.dtype, compute = gd_compute_dtype(GD_OP_scatter_add, dtype);
    gd_tensor *inputs[3] = { gd_as_dtype(base, compute), as_index(index),
                             gd_as_dtype(source, compute) };
    gd_tensor *r = gd_apply(NULL, GD_OP_scatter_add, 3, inputs, &attr);
    return dtype == GD_BOOL ? r : gd_as_dtype(r, dtype);
}

gd_tensor *gd_scatter_add(gd_tensor *base, gd_tensor *index, gd_tensor *source, int axis)
{
    return GD_AS("gd_scatter_add", build_scatter_add(base, index, source, axis));
}

/* ---- whole rows ---- */

/* An index [n] or of any shape, as one along `axis` of rows of x: x's shape, but n along the axis.
 */
static gd_tensor *stretch_index(gd_tensor *x, gd_tensor *index, int axis, const char *who)
{
    index = as_index(index);
    if (!index || !is_index(index->layout.dtype))
        return !index ? NULL
                      : gd_fail_null(GD_ERR_DTYPE, "%s: the index is %s, it must be of integers",
                                     who, gd_dtype_name(index->layout.dtype));
    gd_shape rows = gd_tensor_shape(x), line = rows;
    for (int i = 0; i < line.rank; i++)
        line.dim[i] = 1;
    rows.dim[axis] = line.dim[axis] = gd_tensor_count(index);
    return gd_as_shape(gd_reshape(index, line), rows);
}

static gd_tensor *build_take(gd_tensor *x, gd_tensor *index, int axis)
{
    if (!gd_usable(x, "gd_take") || !gd_usable(index, "gd_take"))
        return NULL;
    int rank = x->layout.rank;
    axis = gd_axis_normal(axis, rank, "gd_take");
    if (axis < 0)
        return NULL;
    gd_shape out = GD_SCALAR, within = gd_tensor_shape(index);
    if (rank - 1 + within.rank > GD_MAX_RANK)
        return gd_fail_null(GD_ERR_SHAPE, "gd_take: the result would have rank %d, beyond %d",
                            rank - 1 + within.rank, GD_MAX_RANK);
    for (int i = 0; i < axis; i++)
        out.dim[out.rank++] = x->layout.shape[i];
    for (int i = 0; i < within.rank; i++)
        out.dim[out.rank++] = within.dim[i];
    for (int i = axis + 1; i < rank; i++)
        out.dim[out.rank++] = x->layout.shape[i];
    gd_tensor *rows = gd_gather(x, stretch_index(x, index, axis, "gd_take"), axis);
    return rows ? gd_reshape(rows, out) : NULL;
}

gd_tensor *gd_take(gd_tensor *x, gd_tensor *index, int axis)
{
    return GD_AS("gd_take", build_take(x, index, axis));
}

gd_tensor *gd_index_select(gd_tensor *x, gd_tensor *index, int axis)
{
    if (x && gd_usable(index, "gd_index_select") && index->layout.rank != 1) {
        char shape[GD_SHAPE_TEXT];
        return gd_fail_null(GD_ERR_SHAPE,
                            "gd_index_select: the index must be a vector, it is %s (see gd_take)",
                            gd_layout_text(&index->layout, shape));
    }
    return GD_AS("gd_index_select", gd_take(x, index, axis));
}

gd_tensor *gd_embedding(gd_tensor *index, gd_tensor *weight)
{
    if (gd_usable(weight, "gd_embedding") && index && weight->layout.rank != 2) {
        char shape[GD_SHAPE_TEXT];
        return gd_fail_null(GD_ERR_SHAPE, "gd_embedding: the table must be [rows, width], it is %s",
                            gd_layout_text(&weight->layout, shape));
    }
    return GD_AS("gd_embedding", gd_take(weight, index, 0));
}

static gd_tensor *build_index_add(gd_tensor *base, gd_tensor *index, gd_tensor *source, int axis)
{
    if (!gd_usable(base, "gd_index_add") || !gd_usable(index, "gd_index_add") ||
        !gd_usable(source, "gd_index_add"))
        return NULL;
    axis = gd_axis_normal(axis, base->layout.rank, "gd_index_add");
    if (axis < 0)
        return NULL;
    if (index->layout.rank != 1) {
        char shape[GD_SHAPE_TEXT];
        return gd_fail_null(GD_ERR_SHAPE, "gd_index_add: the index must be a vector, it is %s",
                            gd_layout_text(&index->layout, shape));
    }
    return gd_scatter_add(base, stretch_index(base, index, axis, "gd_index_add"), source, axis);
}

gd_tensor *gd_index_add(gd_tensor *base, gd_tensor *index, gd_tensor *source, int axis)
{
    return GD_AS("gd_index_add", build_index_add(base, index, source, axis));
}

gd_tensor *gd_masked_fill(gd_tensor *x, gd_tensor *mask, double value)
{
    if (x && gd_usable(mask, "gd_masked_fill") && mask->layout.dtype != GD_BOOL)
        return gd_fail_null(GD_ERR_DTYPE, "gd_masked_fill: the mask is %s, it must be bool",
                            gd_dtype_name(mask->layout.dtype));
    return GD_AS("gd_masked_fill", gd_where(mask, gd_number_like(x, value), x));
}

static gd_tensor *build_one_hot(gd_tensor *index, int64_t classes, gd_dtype dtype)
{
    if (!gd_usable(index, "gd_one_hot"))
        return NULL;
    if (gd_dtype_is_float(index->layout.dtype) || classes < 0)
        return gd_fail_null(classes < 0 ? GD_ERR_INVALID : GD_ERR_DTYPE,
                            "gd_one_hot: needs integers and a class count, got %s and %lld",
                            gd_dtype_name(index->layout.dtype), (long long)classes);
    gd_tensor *wide = gd_as_dtype(index, GD_I64);
    gd_tensor *all = gd_arange(index->context, 0.0, (double)classes, 1.0, GD_I64);
    return gd_cast(gd_eq(gd_unsqueeze(wide, -1), all), dtype);
}

gd_tensor *gd_one_hot(gd_tensor *index, int64_t classes, gd_dtype dtype)
{
    return GD_AS("gd_one_hot", build_one_hot(index, classes, dtype));
}
