/* ops/sort.c: order: argsort and searchsorted, which have rows, and sort and topk, which gather by
 * the indices these give, so that their gradients are those of gather. */
#include "ops/internal.h"

/* ---- argsort: along the last axis, of which the first `count` are kept ---- */

static gd_status infer_argsort(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    gd_shape shape = gd_layout_shape(in[0]);
    int64_t *length = &shape.dim[shape.rank - 1];
    if (shape.rank < 1 || *length > UINT32_MAX)
        return gd_fail(GD_ERR_SHAPE, "gd_argsort: needs an axis of fewer than 2^32 elements");
    *length = ((const gd_sort_attr *)attr)->count;
    return gd_layout_init(out, shape, GD_I64, "gd_argsort");
}

static void format_sort(const void *attr, char *text, size_t size)
{
    const gd_sort_attr *a = attr;
    snprintf(text, size, "count=%lld%s", (long long)a->count, a->descending ? " descending" : "");
}

const gd_op gd_op_argsort = { .id = GD_OP_argsort,
                              .name = "argsort",
                              .arity = 1,
                              .attr_size = sizeof(gd_sort_attr),
                              .infer = infer_argsort,
                              .format = format_sort,
                              .flops = gd_flops_none,
                              .recompute = GD_RECOMPUTE_NEVER };

/* The first `count` of the order of x along an axis in 0 … rank-1. */
static gd_tensor *order_of(gd_tensor *x, int axis, int64_t count, bool descending)
{
    int last = x->layout.rank - 1;
    gd_sort_attr attr = { .count = count, .descending = descending };
    gd_tensor *lines = axis == last ? x : gd_transpose(x, axis, last);
    gd_tensor *order = gd_apply1(GD_OP_argsort, lines, &attr);
    return order && axis != last ? gd_transpose(order, axis, last) : order;
}

static gd_tensor *build_argsort(gd_tensor *x, int axis, bool descending)
{
    if (!gd_usable(x, "gd_argsort"))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, "gd_argsort");
    return axis < 0 ? NULL : order_of(x, axis, x->layout.shape[axis], descending);
}

gd_tensor *gd_argsort(gd_tensor *x, int axis, bool descending)
{
    return GD_AS("gd_argsort", build_argsort(x, axis, descending));
}

static gd_tensor *build_sort(gd_tensor *x, int axis, bool descending)
{
    if (!gd_usable(x, "gd_sort"))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, "gd_sort");
    return axis < 0 ? NULL
                    : gd_gather(x, order_of(x, axis, x->layout.shape[axis], descending), axis);
}

gd_tensor *gd_sort(gd_tensor *x, int axis, bool descending)
{
    return GD_AS("gd_sort", build_sort(x, axis, descending));
}

static gd_tensor *build_topk(gd_tensor *x, int64_t k, int axis, bool largest, gd_tensor **indices)
{
    if (indices)
        *indices = NULL;
    if (!gd_usable(x, "gd_topk"))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, "gd_topk");
    if (axis < 0)
        return NULL;
    int64_t n = x->layout.shape[axis];
    if (k < 0 || k > n)
        return gd_fail_null(GD_ERR_INVALID, "gd_topk: %lld of axis %d of size %lld", (long long)k,
                            axis, (long long)n);
    /* The kernel keeps few with a heap; of many it is quicker to sort all. */
    bool few = k < n / 8;
    gd_tensor *order = order_of(x, axis, few ? k : n, largest);
    if (!few && k < n)
        order = gd_slice(order, axis, 0, k, 1);
    gd_tensor *values = order ? gd_gather(x, order, axis) : NULL;
    if (values && indices)
        *indices = order;
    return values;
}

gd_tensor *gd_topk(gd_tensor *x, int axis, int64_t k, bool largest, gd_tensor **indices)
{
    return GD_AS("gd_topk", build_topk(x, k, axis, largest, indices));
}

/* ---- searchsorted ---- */

static gd_status infer_searchsorted(int n, const gd_layout *const *in, const void *attr,
                                    gd_layout *out)
{
    (void)n, (void)attr;
    if (in[0]->rank != 1 || in[0]->dtype != in[1]->dtype) {
        char shape[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE, "gd_searchsorted: searches a vector, not %s",
                       gd_layout_text(in[0], shape));
    }
    return gd_infer_like(in[1], GD_I64, "gd_searchsorted", out);
}

static void format_search(const void *attr, char *text, size_t size)
{
    snprintf(text, size, "%s", ((const gd_search_attr *)attr)->right ? "right" : "left");
}

const gd_op gd_op_searchsorted = { .id = GD_OP_searchsorted,
                                   .name = "searchsorted",
                                   .arity = 2,
                                   .attr_size = sizeof(gd_search_attr),
                                   .infer = infer_searchsorted,
                                   .format = format_search,
                                   .flops = gd_flops_none,
                                   .recompute = GD_RECOMPUTE_NEVER };

gd_tensor *gd_searchsorted(gd_tensor *sorted, gd_tensor *values, bool right)
{
    if (!gd_usable(sorted, "gd_searchsorted") || !gd_usable(values, "gd_searchsorted"))
        return NULL;
    gd_dtype dtype = gd_dtype_promote(sorted->layout.dtype, values->layout.dtype);
    gd_search_attr attr = { .right = right };
    return gd_apply2(GD_OP_searchsorted, gd_as_dtype(sorted, dtype), gd_as_dtype(values, dtype),
                     &attr);
}
