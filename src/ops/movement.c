/* ops/movement.c: views (reshape, permute, broadcast_to, slice) and copies (copy, pad, concat,
 * cast): rows and builders. */
#include "ops/internal.h"

#include "base/memory.h"

static gd_shape shape_of(const gd_tensor *t)
{
    return gd_tensor_shape(t);
}

/* ---- reshape ---- */

static gd_status infer_reshape(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    const gd_shape_attr *a = attr;
    if (!gd_layout_reshape(in[0], a->shape, out)) {
        char from[GD_SHAPE_TEXT], to[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE, "gd_reshape: %s cannot be seen as %s",
                       gd_layout_text(in[0], from), gd_shape_text(a->shape, to));
    }
    return GD_OK;
}

static bool vjp_reshape(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    return gd_put(&d[0], gd_reshape(g, shape_of(r->inputs[0])));
}

static void format_shape(const void *attr, char *text, size_t size)
{
    char shape[GD_SHAPE_TEXT];
    snprintf(text, size, "shape=%s", gd_shape_text(((const gd_shape_attr *)attr)->shape, shape));
}

const gd_op gd_op_reshape = { .id = GD_OP_reshape,
                              .name = "reshape",
                              .arity = 1,
                              .flags = GD_OP_VIEW,
                              .attr_size = sizeof(gd_shape_attr),
                              .infer = infer_reshape,
                              .vjp = vjp_reshape,
                              .format = format_shape };

/* Replace one -1 by what makes the counts equal; false (recorded) when that is impossible. */
static bool resolve_shape(const gd_tensor *x, gd_shape *shape)
{
    char from[GD_SHAPE_TEXT], to[GD_SHAPE_TEXT];
    if (shape->rank < 0 || shape->rank > GD_MAX_RANK) {
        (void)gd_fail(GD_ERR_SHAPE, "gd_reshape: rank %d is not in 0 … %d", shape->rank,
                      GD_MAX_RANK);
        return false;
    }
    int64_t count = gd_tensor_count(x), known = 1;
    int unknown = -1;
    bool sound = true;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] == -1 && unknown < 0)
            unknown = i;
        else if (shape->dim[i] < 0 || (shape->dim[i] > 0 && known > INT64_MAX / shape->dim[i]))
            sound = false;
        else
            known *= shape->dim[i];
    }
    if (sound && unknown >= 0 && known > 0 && count % known == 0) {
        shape->dim[unknown] = count / known;
        return true;
    }
    if (sound && unknown < 0 && known == count)
        return true;
    (void)gd_fail(GD_ERR_SHAPE, "gd_reshape: %s does not have the elements of %s",
                  gd_layout_text(&x->layout, from), gd_shape_text(*shape, to));
    return false;
}

gd_tensor *gd_reshape(gd_tensor *x, gd_shape shape)
{
    if (!gd_usable(x, "gd_reshape") || !resolve_shape(x, &shape))
        return NULL;
    gd_shape_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.rank = shape.rank;
    memcpy(attr.shape.dim, shape.dim, sizeof(int64_t) * (size_t)shape.rank);
    gd_layout view;
    if (!gd_layout_reshape(&x->layout, shape, &view))
        x = gd_contiguous(x);
    return x ? gd_apply1(GD_OP_reshape, x, &attr) : NULL;
}

gd_tensor *gd_squeeze(gd_tensor *x, int axis)
{
    if (!gd_usable(x, "gd_squeeze"))
        return NULL;
    gd_shape shape = shape_of(x);
    axis = gd_axis_normal(axis, shape.rank, "gd_squeeze");
    if (axis < 0)
        return NULL;
    if (shape.dim[axis] != 1)
        return gd_fail_null(GD_ERR_SHAPE, "gd_squeeze: axis %d has size %lld, not 1", axis,
                            (long long)shape.dim[axis]);
    for (int i = axis; i + 1 < shape.rank; i++)
        shape.dim[i] = shape.dim[i + 1];
    shape.rank--;
    return gd_reshape(x, shape);
}

gd_tensor *gd_unsqueeze(gd_tensor *x, int axis)
{
    if (!gd_usable(x, "gd_unsqueeze"))
        return NULL;
    gd_shape shape = shape_of(x);
    if (shape.rank == GD_MAX_RANK)
        return gd_fail_null(GD_ERR_SHAPE, "gd_unsqueeze: the rank would pass %d", GD_MAX_RANK);
    axis = gd_axis_normal(axis, shape.rank + 1, "gd_unsqueeze");
    if (axis < 0)
        return NULL;
    for (int i = shape.rank; i > axis; i--)
        shape.dim[i] = shape.dim[i - 1];
    shape.dim[axis] = 1;
    shape.rank++;
    return gd_reshape(x, shape);
}

gd_tensor *gd_squeeze_all(gd_tensor *x)
{
    if (!gd_usable(x, "gd_squeeze_all"))
        return NULL;
    gd_shape shape = shape_of(x), rest = GD_SCALAR;
    for (int i = 0; i < shape.rank; i++)
        if (shape.dim[i] != 1)
            rest.dim[rest.rank++] = shape.dim[i];
    return GD_AS("gd_squeeze_all", gd_reshape(x, rest));
}

gd_tensor *gd_flatten(gd_tensor *x, int first_axis, int last_axis)
{
    if (!gd_usable(x, "gd_flatten"))
        return NULL;
    gd_shape shape = shape_of(x), flat = GD_SCALAR;
    if (shape.rank == 0 && (first_axis == 0 || first_axis == -1) &&
        (last_axis == 0 || last_axis == -1))
        return GD_AS("gd_flatten", gd_reshape(x, GD_SHAPE(1)));
    int first = gd_axis_normal(first_axis, shape.rank, "gd_flatten");
    int last = first < 0 ? -1 : gd_axis_normal(last_axis, shape.rank, "gd_flatten");
    if (last < 0)
        return NULL;
    if (first > last)
        return gd_fail_null(GD_ERR_SHAPE, "gd_flatten: axis %d stands behind axis %d", first, last);
    for (int i = 0; i < shape.rank; i++) {
        if (i > first && i <= last)
            flat.dim[flat.rank - 1] *= shape.dim[i];
        else
            flat.dim[flat.rank++] = shape.dim[i];
    }
    return GD_AS("gd_flatten", gd_reshape(x, flat));
}

/* ---- permute ---- */

static gd_status infer_permute(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    const gd_permute_attr *a = attr;
    *out = *in[0];
    for (int i = 0; i < in[0]->rank; i++) {
        out->shape[i] = in[0]->shape[a->order[i]];
        out->stride[i] = in[0]->stride[a->order[i]];
    }
    return GD_OK;
}

static bool vjp_permute(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    const gd_permute_attr *a = r->attr;
    gd_axes inverse = { .count = r->layout.rank };
    for (int i = 0; i < r->layout.rank; i++)
        inverse.axis[a->order[i]] = i;
    return gd_put(&d[0], gd_permute(g, inverse));
}

static void format_permute(const void *attr, char *text, size_t size)
{
    const gd_permute_attr *a = attr;
    gd_text t = { text, size, 0 };
    gd_text_add(&t, "order=");
    for (int i = 0; i < GD_MAX_RANK && (i == 0 || a->order[i]); i++)
        gd_text_add(&t, "%s%d", i ? "," : "", a->order[i]);
}

const gd_op gd_op_permute = { .id = GD_OP_permute,
                              .name = "permute",
                              .arity = 1,
                              .flags = GD_OP_VIEW,
                              .attr_size = sizeof(gd_permute_attr),
                              .infer = infer_permute,
                              .vjp = vjp_permute,
                              .format = format_permute };

gd_tensor *gd_permute(gd_tensor *x, gd_axes order)
{
    if (!gd_usable(x, "gd_permute"))
        return NULL;
    if (order.count != x->layout.rank)
        return gd_fail_null(GD_ERR_SHAPE, "gd_permute: %d axes given for a tensor of rank %d",
                            order.count, x->layout.rank);
    gd_permute_attr attr = { { 0 } };
    unsigned seen = 0;
    for (int i = 0; i < order.count; i++) {
        attr.order[i] = gd_axis_normal(order.axis[i], order.count, "gd_permute");
        if (attr.order[i] < 0)
            return NULL;
        seen |= 1u << attr.order[i];
    }
    if (seen != (1u << order.count) - 1u)
        return gd_fail_null(GD_ERR_SHAPE, "gd_permute: an axis is named twice");
    return gd_apply1(GD_OP_permute, x, &attr);
}

gd_tensor *gd_movedim(gd_tensor *x, int from, int to)
{
    if (!gd_usable(x, "gd_movedim"))
        return NULL;
    int rank = x->layout.rank;
    from = gd_axis_normal(from, rank, "gd_movedim");
    to = from < 0 ? -1 : gd_axis_normal(to, rank, "gd_movedim");
    if (to < 0)
        return NULL;
    gd_axes order = { .count = rank };
    for (int i = 0; i < rank; i++) /* what stood between moves on by one */
        order.axis[i] = i == to                            ? from
                        : from < to && i >= from && i < to ? i + 1
                        : from > to && i > to && i <= from ? i - 1
                                                           : i;
    return GD_AS("gd_movedim", gd_permute(x, order));
}

gd_tensor *gd_transpose(gd_tensor *x, int axis_a, int axis_b)
{
    if (!gd_usable(x, "gd_transpose"))
        return NULL;
    int rank = x->layout.rank;
    int a = gd_axis_normal(axis_a, rank, "gd_transpose"),
        b = gd_axis_normal(axis_b, rank, "gd_transpose");
    if (a < 0 || b < 0)
        return NULL;
    gd_axes order = { .count = rank };
    for (int i = 0; i < rank; i++)
        order.axis[i] = i == a ? b : i == b ? a : i;
    return gd_permute(x, order);
}

/* ---- broadcast_to ---- */

static gd_status infer_broadcast_to(int n, const gd_layout *const *in, const void *attr,
                                    gd_layout *out)
{
    (void)n;
    const gd_shape_attr *a = attr;
    gd_layout check;
    if (gd_layout_init(&check, a->shape, in[0]->dtype, "gd_broadcast_to") != GD_OK)
        return gd_error_last();
    if (!gd_layout_broadcast(in[0], a->shape, out)) {
        char from[GD_SHAPE_TEXT], to[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE, "gd_broadcast_to: %s does not stretch to %s",
                       gd_layout_text(in[0], from), gd_shape_text(a->shape, to));
    }
    return GD_OK;
}

/* The gradient of what was stretched is summed back by the walk itself (gd_sum_to). */
static bool vjp_same(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    (void)r;
    return gd_put(&d[0], g);
}

const gd_op gd_op_broadcast_to = { .id = GD_OP_broadcast_to,
                                   .name = "broadcast_to",
                                   .arity = 1,
                                   .flags = GD_OP_VIEW,
                                   .attr_size = sizeof(gd_shape_attr),
                                   .infer = infer_broadcast_to,
                                   .vjp = vjp_same,
                                   .format = format_shape };

gd_tensor *gd_broadcast_to(gd_tensor *x, gd_shape shape)
{
    if (x && (shape.rank < 0 || shape.rank > GD_MAX_RANK))
        return gd_fail_null(GD_ERR_SHAPE, "gd_broadcast_to: rank %d is not in 0 … %d", shape.rank,
                            GD_MAX_RANK);
    return gd_as_shape(x, shape);
}

/* ---- slice ---- */

static gd_status infer_slice(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    const gd_slice_attr *a = attr;
    *out = *in[0];
    for (int i = 0; i < out->rank; i++) {
        out->shape[i] = a->size[i];
        out->stride[i] = in[0]->stride[i] * a->step[i];
        if (a->size[i] > 0)
            out->offset += in[0]->stride[i] * a->start[i];
    }
    return GD_OK;
}

/* g with step-1 zeros between its elements along an axis: [n] -> [(n-1)*step + 1]. The other axes
 * are merged, so that there is room for one more at any rank. */
static gd_tensor *dilate(gd_tensor *g, int axis, int64_t step)
{
    gd_shape merged = shape_of(g), apart = GD_SHAPE(1, merged.dim[axis], 1, 1);
    for (int i = 0; i < merged.rank; i++)
        apart.dim[i < axis ? 0 : 3] *= i == axis ? 1 : merged.dim[i];
    int64_t n = merged.dim[axis];
    merged.dim[axis] = n * step;
    gd_tensor *padded =
        gd_pad(gd_reshape(g, apart), GD_SHAPE(0, 0, 0, 0), GD_SHAPE(0, 0, step - 1, 0), 0.0);
    return gd_slice(gd_reshape(padded, merged), axis, 0, (n - 1) * step + 1, 1);
}

/* The adjoint of a slice: its gradient put back where it came from, zeros elsewhere. */
static bool vjp_slice(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    const gd_slice_attr *a = r->attr;
    const gd_layout *whole = &r->inputs[0]->layout;
    gd_shape before = GD_SCALAR, after = GD_SCALAR;
    before.rank = after.rank = whole->rank;
    if (gd_layout_count(&r->layout) == 0)
        return gd_put(&d[0], gd_zeros_like(r->inputs[0]));
    for (int i = 0; g && i < whole->rank; i++) {
        int64_t step = a->step[i] < 0 ? -a->step[i] : a->step[i];
        int64_t last = a->start[i] + (a->size[i] - 1) * a->step[i];
        int64_t low = a->step[i] < 0 ? last : a->start[i],
                high = a->step[i] < 0 ? a->start[i] : last;
        if (a->step[i] < 0)
            g = gd_flip(g, GD_AXES(i));
        if (step > 1 && a->size[i] > 1)
            g = dilate(g, i, step);
        before.dim[i] = low;
        after.dim[i] = whole->shape[i] - 1 - high;
    }
    return gd_put(&d[0], gd_pad(g, before, after, 0.0));
}

static void format_slice(const void *attr, char *text, size_t size)
{
    const gd_slice_attr *a = attr;
    gd_text t = { text, size, 0 };
    for (int i = 0; i < GD_MAX_RANK && a->step[i]; i++)
        gd_text_add(&t, "%s%lld:%lld*%lld", i ? ", " : "", (long long)a->start[i],
                    (long long)a->size[i], (long long)a->step[i]);
}

const gd_op gd_op_slice = { .id = GD_OP_slice,
                            .name = "slice",
                            .arity = 1,
                            .flags = GD_OP_VIEW | GD_OP_PART,
                            .attr_size = sizeof(gd_slice_attr),
                            .infer = infer_slice,
                            .vjp = vjp_slice,
                            .format = format_slice };

/* The attribute that takes everything. */
static gd_slice_attr slice_all(const gd_tensor *x)
{
    gd_slice_attr attr;
    memset(&attr, 0, sizeof attr);
    for (int i = 0; i < x->layout.rank; i++) {
        attr.step[i] = 1;
        attr.size[i] = x->layout.shape[i];
    }
    return attr;
}

gd_tensor *gd_slice(gd_tensor *x, int axis, int64_t start, int64_t stop, int64_t step)
{
    if (!gd_usable(x, "gd_slice"))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, "gd_slice");
    if (axis < 0)
        return NULL;
    if (step == 0 || step == INT64_MIN)
        return gd_fail_null(GD_ERR_INVALID, "gd_slice: the step is %lld", (long long)step);
    /* Python's slice.indices(). */
    int64_t size = x->layout.shape[axis];
    int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? size - 1 : size;
    if (start < 0)
        start = start + size < lowest ? lowest : start + size;
    else if (start > highest)
        start = highest;
    if (stop == GD_END)
        stop = step < 0 ? -1 : size;
    else if (stop < 0)
        stop = stop + size < lowest ? lowest : stop + size;
    else if (stop > highest)
        stop = highest;
    int64_t span = step < 0 ? start - stop : stop - start, stride = step < 0 ? -step : step;
    gd_slice_attr attr = slice_all(x);
    attr.size[axis] = span > 0 ? (span - 1) / stride + 1 : 0;
    /* A single element needs no step, and the one given may overflow when multiplied. */
    attr.step[axis] = attr.size[axis] > 1 ? step : 1;
    attr.start[axis] = attr.size[axis] ? start : 0;
    return gd_apply1(GD_OP_slice, x, &attr);
}

gd_tensor *gd_select(gd_tensor *x, int axis, int64_t index)
{
    if (!gd_usable(x, "gd_select"))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, "gd_select");
    if (axis < 0)
        return NULL;
    int64_t size = x->layout.shape[axis];
    if (index < -size || index >= size)
        return gd_fail_null(GD_ERR_SHAPE,
                            "gd_select: index %lld is out of range for axis %d of size %lld",
                            (long long)index, axis, (long long)size);
    if (index < 0)
        index += size;
    return gd_squeeze(gd_slice(x, axis, index, index + 1, 1), axis);
}

gd_tensor *gd_flip(gd_tensor *x, gd_axes axes)
{
    if (!gd_usable(x, "gd_flip"))
        return NULL;
    bool ok;
    uint32_t mask = gd_axes_mask(axes, x->layout.rank, "gd_flip", &ok);
    if (!ok)
        return NULL;
    gd_slice_attr attr = slice_all(x);
    for (int i = 0; i < x->layout.rank; i++)
        if (mask & (1u << i)) {
            attr.start[i] = attr.size[i] ? attr.size[i] - 1 : 0;
            attr.step[i] = -1;
        }
    return gd_apply1(GD_OP_slice, x, &attr);
}

/* ---- copy, cast ---- */

static gd_status infer_copy(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)attr;
    return gd_infer_like(in[0], in[0]->dtype, "gd_contiguous", out);
}

const gd_op gd_op_copy = { .id = GD_OP_copy,
                           .name = "copy",
                           .arity = 1,
                           .infer = infer_copy,
                           .vjp = vjp_same,
                           .flops = gd_flops_none,
                           .recompute = GD_RECOMPUTE_MOVES };

gd_tensor *gd_contiguous(gd_tensor *x)
{
    if (!gd_usable(x, "gd_contiguous"))
        return NULL;
    return gd_layout_is_contiguous(&x->layout) ? x : gd_apply1(GD_OP_copy, x, NULL);
}

static gd_status infer_cast(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    return gd_infer_like(in[0], (gd_dtype)((const gd_cast_attr *)attr)->dtype, "gd_cast", out);
}

static void format_cast(const void *attr, char *text, size_t size)
{
    snprintf(text, size, "dtype=%s", gd_dtype_name((gd_dtype)((const gd_cast_attr *)attr)->dtype));
}

const gd_op gd_op_cast = { .id = GD_OP_cast,
                           .name = "cast",
                           .arity = 1,
                           .attr_size = sizeof(gd_cast_attr),
                           .infer = infer_cast,
                           .vjp = vjp_same, /* the walk converts it back */
                           .format = format_cast,
                           .flops = gd_flops_none,
                           .recompute = GD_RECOMPUTE_MOVES };

gd_tensor *gd_cast(gd_tensor *x, gd_dtype dtype)
{
    if (x && gd_dtype_size(dtype) == 0)
        return gd_fail_null(GD_ERR_DTYPE, "gd_cast: %d is no dtype", (int)dtype);
    return gd_as_dtype(x, dtype);
}

/* ---- pad ---- */

static gd_status infer_pad(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    const gd_pad_attr *a = attr;
    gd_shape shape = gd_layout_shape(in[0]);
    for (int i = 0; i < shape.rank; i++) {
        const int64_t most = (int64_t)1 << 46;
        if (a->before[i] < 0 || a->after[i] < 0 || a->before[i] > most || a->after[i] > most)
            return gd_fail(GD_ERR_SHAPE, "gd_pad: axis %d is padded by %lld and %lld", i,
                           (long long)a->before[i], (long long)a->after[i]);
        shape.dim[i] += a->before[i] + a->after[i];
    }
    return gd_layout_init(out, shape, in[0]->dtype, "gd_pad");
}

static bool vjp_pad(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    const gd_pad_attr *a = r->attr;
    for (int i = 0; g && i < r->layout.rank; i++)
        if (a->before[i] || a->after[i])
            g = gd_slice(g, i, a->before[i], a->before[i] + r->inputs[0]->layout.shape[i], 1);
    return gd_put(&d[0], g);
}

static void format_pad(const void *attr, char *text, size_t size)
{
    gd_snprintf(text, size, "value=%g", ((const gd_pad_attr *)attr)->value);
}

const gd_op gd_op_pad = { .id = GD_OP_pad,
                          .name = "pad",
                          .arity = 1,
                          .attr_size = sizeof(gd_pad_attr),
                          .infer = infer_pad,
                          .vjp = vjp_pad,
                          .format = format_pad,
                          .flops = gd_flops_none,
                          .recompute = GD_RECOMPUTE_MOVES };

gd_tensor *gd_pad(gd_tensor *x, gd_shape before, gd_shape after, double value)
{
    if (!gd_usable(x, "gd_pad"))
        return NULL;
    if (before.rank != x->layout.rank || after.rank != x->layout.rank)
        return gd_fail_null(GD_ERR_SHAPE,
                            "gd_pad: padding of rank %d and %d for a tensor of rank %d",
                            before.rank, after.rank, x->layout.rank);
    if (!gd_check_number(value, x->layout.dtype, "gd_pad"))
        return NULL;
    gd_pad_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.value = value;
    bool any = false;
    for (int i = 0; i < x->layout.rank; i++) {
        attr.before[i] = before.dim[i];
        attr.after[i] = after.dim[i];
        any |= before.dim[i] != 0 || after.dim[i] != 0;
    }
    return any ? gd_apply1(GD_OP_pad, x, &attr) : x;
}

/* ---- concat ---- */

static gd_status infer_concat(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    int axis = ((const gd_axis_attr *)attr)->axis;
    gd_shape shape = gd_layout_shape(in[0]);
    for (int i = 1; i < n; i++) {
        bool fits = in[i]->rank == shape.rank && in[i]->dtype == in[0]->dtype;
        for (int k = 0; fits && k < shape.rank; k++)
            fits = k == axis || in[i]->shape[k] == shape.dim[k];
        if (!fits) {
            char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
            return gd_fail(GD_ERR_SHAPE, "gd_concat: %s and %s do not join along axis %d",
                           gd_layout_text(in[0], a), gd_layout_text(in[i], b), axis);
        }
        shape.dim[axis] += in[i]->shape[axis];
    }
    return gd_layout_init(out, shape, in[0]->dtype, "gd_concat");
}

static bool vjp_concat(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    int axis = ((const gd_axis_attr *)r->attr)->axis;
    int64_t at = 0;
    for (int i = 0; i < r->n_inputs; i++) {
        int64_t size = r->inputs[i]->layout.shape[axis];
        if (gd_wants_grad(r->inputs[i]) && !gd_put(&d[i], gd_slice(g, axis, at, at + size, 1)))
            return false;
        at += size;
    }
    return true;
}

const gd_op gd_op_concat = { .id = GD_OP_concat,
                             .name = "concat",
                             .arity = GD_OP_VARIADIC,
                             .attr_size = sizeof(gd_axis_attr),
                             .infer = infer_concat,
                             .vjp = vjp_concat,
                             .format = gd_format_axis,
                             .flops = gd_flops_none,
                             .recompute = GD_RECOMPUTE_MOVES };

/* list [count] joined: in groups of as many as an op may have, then groups of groups. Overwrites
 * the list. */
static gd_tensor *join(gd_tensor **list, int count, const gd_axis_attr *attr)
{
    do {
        int joined = 0;
        for (int i = 0; i < count; i += GD_OP_MAX_INPUTS) {
            int some = count - i < GD_OP_MAX_INPUTS ? count - i : GD_OP_MAX_INPUTS;
            bool is_left_over = some == 1 && joined > 0;
            list[joined] =
                is_left_over ? list[i] : gd_apply(NULL, GD_OP_concat, some, list + i, attr);
            if (!list[joined++])
                return NULL;
        }
        count = joined;
    } while (count > 1);
    return list[0];
}

/* list: room for `count` tensors. */
static gd_tensor *concat(gd_tensor *const *tensors, int count, int axis, gd_tensor **list)
{
    for (int i = 0; i < count; i++)
        if (!gd_usable(tensors[i], "gd_concat"))
            return NULL;
    gd_dtype dtype = tensors[0]->layout.dtype;
    for (int i = 1; i < count; i++)
        dtype = gd_dtype_promote(dtype, tensors[i]->layout.dtype);
    for (int i = 0; i < count; i++) {
        list[i] = gd_as_dtype(tensors[i], dtype);
        if (!list[i])
            return NULL;
    }
    gd_axis_attr attr = { .axis = gd_axis_normal(axis, list[0]->layout.rank, "gd_concat") };
    return attr.axis < 0 ? NULL : join(list, count, &attr);
}

gd_tensor *gd_concat(int count, gd_tensor *const *tensors, int axis)
{
    if (!tensors || count < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_concat: %d tensors", tensors ? count : 0);
    gd_tensor *few[GD_OP_MAX_INPUTS];
    if (count <= GD_OP_MAX_INPUTS)
        return concat(tensors, count, axis, few);
    gd_tensor **list = gd_alloc((size_t)count * sizeof *list);
    gd_tensor *all = list ? concat(tensors, count, axis, list) : NULL;
    gd_free(list);
    return all;
}

/* list: room for `count` tensors. */
static gd_tensor *stack(gd_tensor *const *tensors, int count, int axis, gd_tensor **list)
{
    for (int i = 0; i < count; i++) {
        list[i] = gd_unsqueeze(tensors[i], axis);
        if (!list[i])
            return NULL;
    }
    return gd_concat(count, list, axis < 0 ? axis + list[0]->layout.rank : axis);
}

static gd_tensor *build_stack(gd_tensor *const *tensors, int count, int axis)
{
    if (!tensors || count < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_stack: %d tensors", tensors ? count : 0);
    gd_tensor *few[GD_OP_MAX_INPUTS];
    if (count <= GD_OP_MAX_INPUTS)
        return stack(tensors, count, axis, few);
    gd_tensor **list = gd_alloc((size_t)count * sizeof *list);
    gd_tensor *all = list ? stack(tensors, count, axis, list) : NULL;
    gd_free(list);
    return all;
}

gd_tensor *gd_stack(int count, gd_tensor *const *tensors, int axis)
{
    return GD_AS("gd_stack", build_stack(tensors, count, axis));
}
