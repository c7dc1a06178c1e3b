/* tensor/layout.c: shapes and strides: row-major layouts, reshaping without a copy, broadcasting.
 * No memory is touched here. Start at gd_layout_init; the one algorithm to study is
 * gd_layout_reshape. */
#include "tensor/layout.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>

/* The most elements a tensor may have. Leaves room in 63 bits for a byte count and for every index
 * calculation. */
#define MAX_COUNT ((int64_t)1 << 46)

int64_t gd_layout_count(const gd_layout *layout)
{
    int64_t count = 1;
    for (int a = 0; a < layout->rank; a++)
        count *= layout->shape[a];
    return count;
}

size_t gd_layout_bytes(const gd_layout *layout)
{
    return (size_t)gd_layout_count(layout) * gd_dtype_size(layout->dtype);
}

bool gd_layout_is_contiguous(const gd_layout *layout)
{
    int64_t expected = 1;
    bool row_major = true;
    for (int a = layout->rank - 1; a >= 0; a--) {
        if (layout->shape[a] == 0)
            return true; /* no element lies in the wrong place */
        if (layout->shape[a] == 1)
            continue; /* its stride is never used */
        row_major = row_major && layout->stride[a] == expected;
        expected *= layout->shape[a];
    }
    return row_major;
}

bool gd_layout_same_shape(const gd_layout *a, const gd_layout *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

gd_shape gd_layout_shape(const gd_layout *layout)
{
    gd_shape shape = { .rank = layout->rank };
    for (int a = 0; a < layout->rank; a++)
        shape.dim[a] = layout->shape[a];
    return shape;
}

/* ---- shapes ---- */

static bool is_rank(int rank)
{
    return rank >= 0 && rank <= GD_MAX_RANK;
}

int64_t gd_shape_count(gd_shape shape)
{
    int64_t count = 1, sizes = 1; /* sizes: of those that are not 0, whose strides must fit too */
    for (int a = 0; a < shape.rank && a < GD_MAX_RANK; a++) {
        int64_t size = shape.dim[a];
        if (size < 0 || (size > 0 && sizes > MAX_COUNT / size))
            return -1;
        sizes *= size > 0 ? size : 1;
        count *= size;
    }
    return is_rank(shape.rank) ? count : -1;
}

bool gd_shape_equal(gd_shape a, gd_shape b)
{
    bool equal = a.rank == b.rank && is_rank(a.rank);
    for (int i = 0; equal && i < a.rank; i++)
        equal = a.dim[i] == b.dim[i];
    return equal;
}

gd_shape gd_shape_strides(gd_shape shape)
{
    gd_shape strides = { .rank = is_rank(shape.rank) ? shape.rank : 0 };
    int64_t stride = 1;
    for (int a = strides.rank - 1; a >= 0; a--) {
        strides.dim[a] = stride;
        stride *= shape.dim[a] > 0 ? shape.dim[a] : 1;
    }
    return strides;
}

int64_t gd_shape_offset(gd_shape strides, gd_shape index)
{
    int64_t offset = 0;
    for (int a = 0; a < strides.rank && a < index.rank && a < GD_MAX_RANK; a++)
        offset += strides.dim[a] * index.dim[a];
    return offset;
}

/* Row-major strides over out->shape. A dimension of 0 counts as 1, so that the others keep distinct
 * strides. */
static void set_row_major(gd_layout *out)
{
    int64_t stride = 1;
    for (int a = out->rank - 1; a >= 0; a--) {
        out->stride[a] = stride;
        stride *= out->shape[a] > 0 ? out->shape[a] : 1;
    }
}

gd_status gd_layout_init(gd_layout *out, gd_shape shape, gd_dtype dtype, const char *who)
{
    if (gd_dtype_size(dtype) == 0)
        return gd_fail(GD_ERR_DTYPE, "%s: %d is no dtype", who, (int)dtype);
    if (shape.rank < 0 || shape.rank > GD_MAX_RANK)
        return gd_fail(GD_ERR_SHAPE, "%s: rank %d is not in 0 to %d", who, shape.rank, GD_MAX_RANK);
    char text[GD_SHAPE_TEXT];
    int64_t count = 1;
    for (int a = 0; a < shape.rank; a++) {
        int64_t dim = shape.dim[a];
        if (dim < 0)
            return gd_fail(GD_ERR_SHAPE, "%s: shape %s has a negative size", who,
                           gd_shape_text(shape, text));
        /* As in NumPy, the limit holds for the sizes that are not 0, even when another is: their
         * strides must fit too. */
        if (dim > 0 && count > MAX_COUNT / dim)
            return gd_fail(GD_ERR_SHAPE, "%s: shape %s has more than 2^46 elements", who,
                           gd_shape_text(shape, text));
        count *= dim > 0 ? dim : 1;
    }
    *out = (gd_layout){ .rank = shape.rank, .dtype = dtype };
    for (int a = 0; a < shape.rank; a++)
        out->shape[a] = shape.dim[a];
    set_row_major(out);
    return GD_OK;
}

/* ---- text ---- */

const char *gd_shape_text(gd_shape shape, char text[GD_SHAPE_TEXT])
{
    if (shape.rank < 0 || shape.rank > GD_MAX_RANK) {
        snprintf(text, GD_SHAPE_TEXT, "[rank %d]", shape.rank);
        return text;
    }
    /* At most 8 sizes of 20 characters, 7 separators of 2 and the brackets: 177 bytes with the
     * terminator. */
    char *at = text;
    *at++ = '[';
    for (int a = 0; a < shape.rank; a++)
        at += sprintf(at, "%s%" PRId64, a ? ", " : "", shape.dim[a]);
    *at++ = ']';
    *at = '\0';
    return text;
}

const char *gd_layout_text(const gd_layout *layout, char text[GD_SHAPE_TEXT])
{
    return gd_shape_text(gd_layout_shape(layout), text);
}

int gd_axis_normal(int axis, int rank, const char *who)
{
    if (axis >= -rank && axis < rank)
        return axis < 0 ? axis + rank : axis;
    if (rank == 0)
        gd_fail(GD_ERR_SHAPE, "%s: axis %d of a 0-d tensor, which has no axes", who, axis);
    else
        gd_fail(GD_ERR_SHAPE, "%s: axis %d is not in %d to %d", who, axis, -rank, rank - 1);
    return -1;
}

/* ---- reshape ---- */

/* Give the axes [first, end) of `out` strides that walk the same elements as one axis of stride
 * `inner` would: the last of them has stride `inner`, each one before it steps over all that
 * follow. */
static void set_group_strides(gd_layout *out, int first, int end, int64_t inner)
{
    int64_t stride = inner;
    for (int a = end - 1; a >= first; a--) {
        out->stride[a] = stride;
        stride *= out->shape[a];
    }
}

/* The strides of a reshape without a copy, as NumPy finds them. Old and new axes are matched in
 * groups of equal element count, from the left: [4, 6] -> [2, 2, 6] groups (4 | 2, 2) and (6 | 6).
 * A group can be kept in place when its old axes lie in memory as one axis would: stride[i] ==
 * shape[i+1] * stride[i+1]. */
static bool match_groups(const gd_layout *in, gd_layout *out)
{
    int old_rank = 0;
    int64_t old_shape[GD_MAX_RANK] = { 0 }, old_stride[GD_MAX_RANK] = { 0 };
    for (int a = 0; a < in->rank; a++) { /* axes of size 1 constrain nothing */
        if (in->shape[a] == 1)
            continue;
        old_shape[old_rank] = in->shape[a];
        old_stride[old_rank++] = in->stride[a];
    }

    int old_at = 0, new_at = 0;
    while (old_at < old_rank && new_at < out->rank) {
        int old_end = old_at + 1, new_end = new_at + 1;
        int64_t old_count = old_shape[old_at], new_count = out->shape[new_at];
        while (old_count != new_count) { /* ends: both sides have the same product */
            if (new_count < old_count)
                new_count *= out->shape[new_end++];
            else
                old_count *= old_shape[old_end++];
        }
        for (int a = old_at; a + 1 < old_end; a++)
            if (old_stride[a] != old_shape[a + 1] * old_stride[a + 1])
                return false;
        set_group_strides(out, new_at, new_end, old_stride[old_end - 1]);
        old_at = old_end;
        new_at = new_end;
    }
    for (; new_at < out->rank; new_at++)
        out->stride[new_at] = 1; /* what is left has size 1 */
    return true;
}

bool gd_layout_reshape(const gd_layout *in, gd_shape shape, gd_layout *out)
{
    gd_layout view = { .rank = shape.rank, .dtype = in->dtype, .offset = in->offset };
    if (shape.rank < 0 || shape.rank > GD_MAX_RANK)
        return false;
    int64_t count = 1;
    for (int a = 0; a < shape.rank; a++) {
        view.shape[a] = shape.dim[a];
        if (shape.dim[a] < 0 || (shape.dim[a] > 0 && count > MAX_COUNT / shape.dim[a]))
            return false;
        count *= shape.dim[a];
    }
    if (count != gd_layout_count(in))
        return false;
    if (count == 0 || gd_layout_is_contiguous(in))
        set_row_major(&view);
    else if (!match_groups(in, &view))
        return false;
    *out = view;
    return true;
}

/* ---- broadcasting ---- */

bool gd_shape_broadcast(gd_shape a, gd_shape b, gd_shape *out)
{
    if (!is_rank(a.rank) || !is_rank(b.rank))
        return false;
    gd_shape result = { .rank = a.rank > b.rank ? a.rank : b.rank };
    for (int i = 1; i <= result.rank; i++) { /* from the last axis to the first */
        int64_t from_a = i <= a.rank ? a.dim[a.rank - i] : 1;
        int64_t from_b = i <= b.rank ? b.dim[b.rank - i] : 1;
        if (from_a != from_b && from_a != 1 && from_b != 1)
            return false;
        result.dim[result.rank - i] = from_a == 1 ? from_b : from_a;
    }
    *out = result;
    return true;
}

bool gd_layout_broadcast(const gd_layout *in, gd_shape shape, gd_layout *out)
{
    int added = shape.rank - in->rank;
    if (added < 0 || shape.rank > GD_MAX_RANK)
        return false;
    gd_layout view = { .rank = shape.rank, .dtype = in->dtype, .offset = in->offset };
    for (int a = 0; a < shape.rank; a++) {
        view.shape[a] = shape.dim[a];
        if (shape.dim[a] < 0)
            return false;
        if (a < added)
            continue; /* stride 0 */
        if (in->shape[a - added] == shape.dim[a])
            view.stride[a] = in->stride[a - added];
        else if (in->shape[a - added] != 1)
            return false;
    }
    *out = view;
    return true;
}
