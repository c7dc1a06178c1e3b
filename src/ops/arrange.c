/* ops/arrange.c: rearrangements made of views, concatenation and choice: split, tile, repeat, roll,
 * triangles and diagonals, grids, padding with elements of the tensor. None has a row of its own.
 */
#include "ops/internal.h"

/* The error of a builder that returns a status and was given NULL. */
static gd_status reason(const char *who)
{
    return gd_fail(GD_ERR_INVALID, "%s: a tensor is NULL", who);
}

/* ---- pieces ---- */

static gd_status split(gd_tensor *x, const int64_t *sizes, int count, int axis, gd_tensor **pieces,
                       const char *who)
{
    int64_t at = 0, length = x->layout.shape[axis];
    bool fits = true;
    for (int i = 0; fits && i < count; i++) {
        fits = sizes[i] >= 0 && sizes[i] <= length - at;
        at += fits ? sizes[i] : 0;
    }
    if (!fits || at != length)
        return gd_fail(GD_ERR_SHAPE, "%s: the sizes do not add up to axis %d of size %lld", who,
                       axis, (long long)length);
    at = 0;
    for (int i = 0; i < count; at += sizes[i++]) {
        pieces[i] = gd_slice(x, axis, at, at + sizes[i], 1);
        if (!pieces[i]) {
            for (int k = 0; k < i; k++)
                pieces[k] = NULL;
            return reason(who);
        }
    }
    return GD_OK;
}

gd_status gd_split(gd_tensor *x, int axis, int count, const int64_t *sizes, gd_tensor **pieces)
{
    for (int i = 0; pieces && i < count; i++)
        pieces[i] = NULL;
    if (!gd_usable(x, "gd_split"))
        return reason("gd_split");
    if (!sizes || !pieces || count < 1)
        return gd_fail(GD_ERR_INVALID, "gd_split: sizes or pieces are NULL, or there are none");
    axis = gd_axis_normal(axis, x->layout.rank, "gd_split");
    return axis < 0 ? gd_error_last() : split(x, sizes, count, axis, pieces, "gd_split");
}

gd_status gd_chunk(gd_tensor *x, int axis, int count, gd_tensor **pieces)
{
    for (int i = 0; pieces && i < count; i++)
        pieces[i] = NULL;
    if (!gd_usable(x, "gd_chunk"))
        return reason("gd_chunk");
    if (!pieces || count < 1)
        return gd_fail(GD_ERR_INVALID, "gd_chunk: pieces is NULL, or there are none");
    axis = gd_axis_normal(axis, x->layout.rank, "gd_chunk");
    if (axis < 0)
        return gd_error_last();
    int64_t length = x->layout.shape[axis], least = length / count, larger = length % count, at = 0;
    for (int i = 0; i < count; i++) {
        int64_t size = least + (i < larger);
        pieces[i] = gd_slice(x, axis, at, at + size, 1);
        at += size;
        if (pieces[i])
            continue;
        for (int k = 0; k < i; k++)
            pieces[k] = NULL;
        return reason("gd_chunk");
    }
    return GD_OK;
}

/* ---- repetition ---- */

/* x seen as [before the axis, n, behind it] with `count` copies of n (inside: of each element of
 * n), in x's shape with the axis that much longer. */
static gd_tensor *repeat(gd_tensor *x, int64_t count, int axis, bool inside)
{
    if (!x)
        return NULL;
    gd_shape shape = gd_tensor_shape(x);
    int64_t before = 1, behind = 1, n = shape.dim[axis];
    for (int i = 0; i < axis; i++)
        before *= shape.dim[i];
    for (int i = axis + 1; i < shape.rank; i++)
        behind *= shape.dim[i];
    if (n > 0 && count > ((int64_t)1 << 46) / n)
        return gd_fail_null(GD_ERR_SHAPE,
                            "gd_repeat: %lld times %lld elements is beyond "
                            "what a tensor can hold",
                            (long long)count, (long long)n);
    gd_shape apart = inside ? GD_SHAPE(before, n, 1, behind) : GD_SHAPE(before, 1, n, behind);
    gd_shape wide =
        inside ? GD_SHAPE(before, n, count, behind) : GD_SHAPE(before, count, n, behind);
    shape.dim[axis] = n * count;
    gd_tensor *t = gd_broadcast_to(gd_reshape(x, apart), wide);
    return t ? gd_reshape(t, shape) : NULL;
}

static gd_tensor *build_repeat(gd_tensor *x, int64_t count, int axis)
{
    if (!gd_usable(x, "gd_repeat"))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, "gd_repeat");
    if (axis < 0)
        return NULL;
    if (count < 0)
        return gd_fail_null(GD_ERR_INVALID, "gd_repeat: %lld repetitions", (long long)count);
    return count == 1 ? x : repeat(x, count, axis, true);
}

gd_tensor *gd_repeat(gd_tensor *x, int axis, int64_t count)
{
    return GD_AS("gd_repeat", build_repeat(x, count, axis));
}

static gd_tensor *build_tile(gd_tensor *x, gd_shape repeats)
{
    if (!gd_usable(x, "gd_tile"))
        return NULL;
    if (repeats.rank < 0 || repeats.rank > GD_MAX_RANK)
        return gd_fail_null(GD_ERR_SHAPE, "gd_tile: rank %d is not in 0 … %d", repeats.rank,
                            GD_MAX_RANK);
    for (int i = 0; i < repeats.rank; i++)
        if (repeats.dim[i] < 0)
            return gd_fail_null(GD_ERR_INVALID, "gd_tile: %lld repetitions of axis %d",
                                (long long)repeats.dim[i], i);
    gd_shape shape = gd_tensor_shape(x), longer = shape;
    if (shape.rank < repeats.rank) {
        longer.rank = repeats.rank;
        for (int i = 0; i < longer.rank; i++) {
            int own = i - (longer.rank - shape.rank);
            longer.dim[i] = own < 0 ? 1 : shape.dim[own];
        }
        x = gd_reshape(x, longer);
    }
    /* From the last axis on, so that what is copied more than once is small. */
    for (int i = repeats.rank - 1; x && i >= 0; i--)
        if (repeats.dim[i] != 1)
            x = repeat(x, repeats.dim[i], longer.rank - repeats.rank + i, false);
    return x;
}

gd_tensor *gd_tile(gd_tensor *x, gd_shape repeats)
{
    return GD_AS("gd_tile", build_tile(x, repeats));
}

gd_tensor *gd_roll(gd_tensor *x, int axis, int64_t shift)
{
    if (!gd_usable(x, "gd_roll"))
        return NULL;
    axis = gd_axis_normal(axis, x->layout.rank, "gd_roll");
    if (axis < 0)
        return NULL;
    int64_t n = x->layout.shape[axis], s = n ? shift % n : 0;
    if (s < 0)
        s += n;
    if (s == 0)
        return x;
    gd_tensor *parts[2] = { gd_slice(x, axis, n - s, n, 1), gd_slice(x, axis, 0, n - s, 1) };
    return gd_concat(2, parts, axis);
}

/* ---- triangles and diagonals ---- */

/* Column minus row of each place of a matrix [m, n], i64. */
static gd_tensor *diagonal_numbers(gd_context *context, int64_t m, int64_t n)
{
    gd_tensor *row = gd_arange(context, 0.0, (double)m, 1.0, GD_I64);
    gd_tensor *column = gd_arange(context, 0.0, (double)n, 1.0, GD_I64);
    return gd_sub(column, gd_unsqueeze(row, 1));
}

static gd_tensor *triangle(gd_tensor *x, int64_t diagonal, bool lower, const char *who)
{
    if (!gd_usable(x, who))
        return NULL;
    int rank = x->layout.rank;
    if (rank < 2)
        return gd_fail_null(GD_ERR_SHAPE, "%s: needs matrices, not a tensor of rank %d", who, rank);
    gd_tensor *number =
        diagonal_numbers(x->context, x->layout.shape[rank - 2], x->layout.shape[rank - 1]);
    const int64_t most = (int64_t)1 << 46; /* beyond every matrix */
    diagonal = diagonal < -most ? -most : diagonal > most ? most : diagonal;
    gd_tensor *edge = number ? gd_full(x->context, GD_SCALAR, (double)diagonal, GD_I64) : NULL;
    gd_tensor *inside = lower ? gd_le(number, edge) : gd_ge(number, edge);
    return gd_where(inside, x, gd_number_like(x, 0.0));
}

gd_tensor *gd_tril(gd_tensor *x, int64_t diagonal)
{
    return triangle(x, diagonal, true, "gd_tril");
}

gd_tensor *gd_triu(gd_tensor *x, int64_t diagonal)
{
    return triangle(x, diagonal, false, "gd_triu");
}

/* A diagonal of a row-major matrix [m, n] is every (n+1)-th of its elements. */
gd_tensor *gd_diagonal(gd_tensor *x, int axis_a, int axis_b, int64_t offset)
{
    if (!gd_usable(x, "gd_diagonal"))
        return NULL;
    int rank = x->layout.rank;
    int a = gd_axis_normal(axis_a, rank, "gd_diagonal");
    int b = a < 0 ? -1 : gd_axis_normal(axis_b, rank, "gd_diagonal");
    if (b < 0)
        return NULL;
    if (a == b)
        return gd_fail_null(GD_ERR_SHAPE, "gd_diagonal: axis %d is given twice", a);
    gd_axes order = { .count = rank };
    gd_shape flat = GD_SCALAR;
    for (int i = 0; i < rank; i++)
        if (i != a && i != b) {
            order.axis[flat.rank] = i;
            flat.dim[flat.rank++] = x->layout.shape[i];
        }
    order.axis[rank - 2] = a;
    order.axis[rank - 1] = b;
    int64_t m = x->layout.shape[a], n = x->layout.shape[b], length = 0, start = 0;
    if (offset >= 0 && offset < n) {
        length = m < n - offset ? m : n - offset;
        start = offset;
    } else if (offset < 0 && offset > -m) {
        length = m + offset < n ? m + offset : n;
        start = -offset * n;
    }
    flat.dim[flat.rank++] = m * n;
    gd_tensor *line = gd_permute(x, order);
    line = line ? gd_reshape(line, flat) : NULL;
    int64_t stop = length > 0 ? start + (length - 1) * (n + 1) + 1 : start;
    return gd_slice(line, -1, start, stop, n + 1);
}

static gd_tensor *build_diag_embed(gd_tensor *x, int64_t offset)
{
    if (!gd_usable(x, "gd_diag_embed"))
        return NULL;
    int rank = x->layout.rank;
    const int64_t most = (int64_t)1 << 40;
    if (rank < 1 || rank == GD_MAX_RANK || offset < -most || offset > most)
        return gd_fail_null(GD_ERR_SHAPE,
                            "gd_diag_embed: no diagonal number %lld for a tensor of rank %d",
                            (long long)offset, rank);
    int64_t aside = offset < 0 ? -offset : offset;
    gd_shape before = gd_tensor_shape(x), after = before;
    for (int i = 0; i < rank; i++)
        before.dim[i] = after.dim[i] = 0;
    before.dim[rank - 1] = offset > 0 ? aside : 0;
    after.dim[rank - 1] = offset < 0 ? aside : 0;
    gd_tensor *columns = gd_pad(x, before, after, 0.0); /* each element in its column */
    int64_t n = x->layout.shape[rank - 1] + aside;
    gd_tensor *number = columns ? diagonal_numbers(x->context, n, n) : NULL;
    gd_tensor *on = gd_eq(number, gd_number_like(number, (double)offset));
    return gd_where(on, columns ? gd_unsqueeze(columns, -2) : NULL, gd_number_like(x, 0.0));
}

gd_tensor *gd_diag_embed(gd_tensor *x, int64_t offset)
{
    return GD_AS("gd_diag_embed", build_diag_embed(x, offset));
}

static gd_tensor *build_diag(gd_tensor *x, int64_t offset)
{
    if (!gd_usable(x, "gd_diag"))
        return NULL;
    if (x->layout.rank != 1 && x->layout.rank != 2)
        return gd_fail_null(GD_ERR_SHAPE, "gd_diag: takes a vector or a matrix, not rank %d",
                            x->layout.rank);
    return x->layout.rank == 2 ? gd_diagonal(x, 0, 1, offset) : gd_diag_embed(x, offset);
}

gd_tensor *gd_diag(gd_tensor *x, int64_t offset)
{
    return GD_AS("gd_diag", build_diag(x, offset));
}

/* ---- grids ---- */

gd_status gd_meshgrid(int count, gd_tensor *const *vectors, gd_tensor **grids)
{
    if (!vectors || !grids || count < 1 || count > GD_MAX_RANK)
        return gd_fail(GD_ERR_INVALID, "gd_meshgrid: takes 1 to %d vectors, %d given", GD_MAX_RANK,
                       count);
    gd_shape shape = { .rank = count };
    for (int i = 0; i < count; i++)
        grids[i] = NULL;
    for (int i = 0; i < count; i++) {
        if (!gd_usable(vectors[i], "gd_meshgrid"))
            return reason("gd_meshgrid");
        if (vectors[i]->layout.rank != 1)
            return gd_fail(GD_ERR_SHAPE, "gd_meshgrid: operand %d has rank %d, not 1", i,
                           vectors[i]->layout.rank);
        shape.dim[i] = vectors[i]->layout.shape[0];
    }
    for (int i = 0; i < count; i++) {
        gd_shape line = { .rank = count };
        for (int k = 0; k < count; k++)
            line.dim[k] = k == i ? shape.dim[i] : 1;
        grids[i] = GD_AS("gd_meshgrid", gd_broadcast_to(gd_reshape(vectors[i], line), shape));
        if (grids[i])
            continue;
        for (int k = 0; k < i; k++)
            grids[k] = NULL;
        return reason("gd_meshgrid");
    }
    return GD_OK;
}

/* ---- padding with elements of the tensor ---- */

/* The index, in an axis of n elements, of the element to put at each position from -before to
 * n+after-1. */
static gd_tensor *inside_index(gd_context *context, int64_t n, int64_t before, int64_t after,
                               bool reflect)
{
    gd_tensor *place = gd_arange(context, (double)-before, (double)(n + after), 1.0, GD_I64);
    double last = (double)(n - 1);
    if (!reflect || n == 1)
        return gd_clip(place, 0.0, last);
    gd_tensor *period = gd_mod(place, gd_number_like(place, 2.0 * last));
    return gd_rsub_scalar(gd_abs(gd_rsub_scalar(period, last)), last);
}

static gd_tensor *pad_inside(gd_tensor *x, gd_shape before, gd_shape after, bool reflect,
                             const char *who)
{
    if (!gd_usable(x, who))
        return NULL;
    const gd_layout layout = x->layout;
    if (before.rank != layout.rank || after.rank != layout.rank)
        return gd_fail_null(GD_ERR_SHAPE, "%s: padding of rank %d and %d for a tensor of rank %d",
                            who, before.rank, after.rank, layout.rank);
    const int64_t most = (int64_t)1 << 39;
    for (int i = 0; i < layout.rank; i++) {
        int64_t low = before.dim[i], high = after.dim[i];
        if (low < 0 || high < 0 || low > most || high > most)
            return gd_fail_null(GD_ERR_SHAPE, "%s: axis %d is padded by %lld and %lld", who, i,
                                (long long)low, (long long)high);
        if ((low || high) && layout.shape[i] == 0)
            return gd_fail_null(GD_ERR_SHAPE, "%s: axis %d is empty and has nothing to pad with",
                                who, i);
    }
    for (int i = 0; x && i < layout.rank; i++)
        if (before.dim[i] || after.dim[i])
            x = gd_take(
                x, inside_index(x->context, layout.shape[i], before.dim[i], after.dim[i], reflect),
                i);
    return x;
}

gd_tensor *gd_pad_reflect(gd_tensor *x, gd_shape before, gd_shape after)
{
    return GD_AS("gd_pad_reflect", pad_inside(x, before, after, true, "gd_pad_reflect"));
}

gd_tensor *gd_pad_replicate(gd_tensor *x, gd_shape before, gd_shape after)
{
    return GD_AS("gd_pad_replicate", pad_inside(x, before, after, false, "gd_pad_replicate"));
}
