/* ops/indexing.c: indexing as NumPy has it: with several index tensors and masks at once, reading
 * (gd_index) and replacing (gd_index_put); and what depends on values for its size: nonzero,
 * masked_select, unique.
 *
 * Several indices become one: the axes they concern are brought together and merged, their indices
 * turned into positions along the merged axis, and whole slices are taken there. Start at
 * make_plan(). */
#include "ops/internal.h"

#include "base/memory.h"

/* ---- sizes that depend on values: eager execution only ---- */

static bool knows_values(const gd_tensor *t, const char *who)
{
    if (t->storage)
        return true;
    (void)gd_fail(
        GD_ERR_STATE,
        "%s: the size of the result depends on values, which a compiled function does not "
        "have while it is traced; call it outside, or use gd_where",
        who);
    return false;
}

/* Row-major positions at which a bool tensor holds: i64 [count]. */
static gd_tensor *true_positions(gd_tensor *mask)
{
    int64_t count = gd_tensor_count(mask), found = 0;
    uint8_t *holds = gd_alloc((size_t)count + 1);
    int64_t *at = holds ? gd_alloc(((size_t)count + 1) * sizeof *at) : NULL;
    gd_tensor *t = NULL;
    if (at && gd_tensor_read(mask, holds, (size_t)count) == GD_OK) {
        for (int64_t i = 0; i < count; i++)
            if (holds[i])
                at[found++] = i;
        t = gd_from_host(mask->context, GD_SHAPE(found), GD_I64, at);
    }
    gd_free(at);
    gd_free(holds);
    return t;
}

static gd_tensor *build_nonzero(gd_tensor *x)
{
    if (!gd_usable(x, "gd_nonzero") || !knows_values(x, "gd_nonzero"))
        return NULL;
    gd_tensor *at = true_positions(gd_as_dtype(x, GD_BOOL));
    if (!at)
        return NULL;
    int rank = x->layout.rank;
    if (rank == 0)
        return gd_zeros(x->context, GD_SHAPE(gd_tensor_count(at), 0), GD_I64);
    gd_tensor *column[GD_MAX_RANK];
    for (int i = rank - 1; i >= 0; i--) {
        gd_tensor *size = gd_full(x->context, GD_SCALAR, (double)x->layout.shape[i], GD_I64);
        column[i] = gd_mod(at, size);
        at = gd_floor_div(at, size);
    }
    return gd_stack(rank, column, 1);
}

gd_tensor *gd_nonzero(gd_tensor *x)
{
    return GD_AS("gd_nonzero", build_nonzero(x));
}

static gd_tensor *build_masked_select(gd_tensor *x, gd_tensor *mask)
{
    if (!gd_usable(x, "gd_masked_select") || !gd_usable(mask, "gd_masked_select") ||
        !knows_values(mask, "gd_masked_select"))
        return NULL;
    if (mask->layout.dtype != GD_BOOL)
        return gd_fail_null(GD_ERR_DTYPE, "gd_masked_select: the mask is %s, it must be bool",
                            gd_dtype_name(mask->layout.dtype));
    gd_shape shape;
    if (!gd_shape_broadcast(gd_tensor_shape(x), gd_tensor_shape(mask), &shape)) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail_null(GD_ERR_SHAPE, "gd_masked_select: %s and the mask %s do not broadcast",
                            gd_layout_text(&x->layout, a), gd_layout_text(&mask->layout, b));
    }
    gd_tensor *wide = gd_broadcast_to(mask, shape), *all = gd_broadcast_to(x, shape);
    if (!wide || !all)
        return NULL;
    return gd_take(gd_reshape(all, GD_SHAPE(gd_tensor_count(all))), true_positions(wide), 0);
}

gd_tensor *gd_masked_select(gd_tensor *x, gd_tensor *mask)
{
    return GD_AS("gd_masked_select", build_masked_select(x, mask));
}

static gd_tensor *build_unique(gd_tensor *x, gd_tensor **inverse, gd_tensor **counts)
{
    if (inverse)
        *inverse = NULL;
    if (counts)
        *counts = NULL;
    if (!gd_usable(x, "gd_unique") || !knows_values(x, "gd_unique"))
        return NULL;
    int64_t n = gd_tensor_count(x);
    gd_tensor *flat = gd_reshape(gd_detach(x), GD_SHAPE(n));
    gd_tensor *order = gd_argsort(flat, 0, false), *sorted = gd_gather(flat, order, 0);
    /* Where another value begins; NaNs count as one. */
    gd_tensor *right = gd_slice(sorted, 0, 1, GD_END, 1), *left = gd_slice(sorted, 0, 0, -1, 1);
    gd_tensor *same = gd_eq(left, right);
    if (gd_dtype_is_float(x->layout.dtype))
        same = gd_logical_or(same, gd_logical_and(gd_isnan(left), gd_isnan(right)));
    gd_tensor *first = n ? gd_ones(x->context, GD_SHAPE(1), GD_BOOL) : same;
    gd_tensor *begins = n ? gd_concat(2, (gd_tensor *[]){ first, gd_logical_not(same) }, 0) : first;
    gd_tensor *starts = begins ? true_positions(begins) : NULL;
    gd_tensor *values = gd_take(sorted, starts, 0);
    if (!values)
        return NULL;
    if (counts) {
        gd_tensor *end = gd_full(x->context, GD_SHAPE(n ? 1 : 0), (double)n, GD_I64);
        gd_tensor *bounds = gd_concat(2, (gd_tensor *[]){ starts, end }, 0);
        *counts = gd_sub(gd_slice(bounds, 0, 1, GD_END, 1), starts);
    }
    if (inverse) {
        gd_tensor *group = gd_sub_scalar(gd_cumsum(begins, 0), 1.0);
        gd_tensor *back = gd_scatter(gd_zeros_like(group), order, group, 0);
        *inverse = back ? gd_reshape(back, gd_tensor_shape(x)) : NULL;
    }
    bool made = (!counts || *counts) && (!inverse || *inverse);
    if (!made && counts)
        *counts = NULL;
    if (!made && inverse)
        *inverse = NULL;
    return made ? values : NULL;
}

gd_tensor *gd_unique(gd_tensor *x, gd_tensor **inverse, gd_tensor **counts)
{
    return GD_AS("gd_unique", build_unique(x, inverse, counts));
}

/* ---- several indices at once ---- */

typedef struct index_plan {
    gd_axes order;     /* of x's axes that brings those indexed together */
    gd_shape moved;    /* x's shape in that order */
    gd_tensor *merged; /* x so, the indexed axes as one */
    gd_tensor *at;     /* positions along it, i64, of the indices' common shape */
    int axis;          /* the merged one */
} index_plan;

typedef struct index_list {
    gd_tensor *of_axis[GD_MAX_RANK]; /* NULL: all of the axis */
    int rank;                        /* axes the list has come to */
} index_list;

/* A mask over some axes is the indices of where it holds, one for each of them. */
static bool add_mask(index_list *list, const gd_tensor *x, gd_tensor *mask, const char *who)
{
    const gd_layout *m = &mask->layout;
    bool fits = m->rank > 0 && list->rank + m->rank <= x->layout.rank;
    for (int i = 0; fits && i < m->rank; i++)
        fits = m->shape[i] == x->layout.shape[list->rank + i];
    if (!fits) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        (void)gd_fail(GD_ERR_SHAPE, "%s: a mask %s does not fit %s from axis %d on", who,
                      gd_layout_text(m, a), gd_layout_text(&x->layout, b), list->rank);
        return false;
    }
    if (!knows_values(mask, who))
        return false;
    gd_tensor *where = gd_nonzero(mask);
    for (int i = 0; where && i < m->rank; i++)
        list->of_axis[list->rank++] = gd_select(where, 1, i);
    return where && list->of_axis[list->rank - 1];
}

static bool make_list(index_list *list, const gd_tensor *x, gd_tensor *const *indices, int count,
                      const char *who)
{
    for (int i = 0; i < count; i++) {
        gd_tensor *index = indices[i];
        if (index && !gd_usable(index, who))
            return false;
        if (index && index->layout.dtype == GD_BOOL) {
            if (!add_mask(list, x, index, who))
                return false;
            continue;
        }
        if (list->rank == x->layout.rank) {
            (void)gd_fail(GD_ERR_SHAPE, "%s: more indices than the %d axes", who, x->layout.rank);
            return false;
        }
        if (index && !gd_dtype_is_integer(index->layout.dtype)) {
            (void)gd_fail(GD_ERR_DTYPE, "%s: index %d is %s, it must be of integers or bool", who,
                          i, gd_dtype_name(index->layout.dtype));
            return false;
        }
        list->of_axis[list->rank++] = index;
    }
    return true;
}

/* The indices of several axes as positions along the merged one, negative ones counted from the
 * end. What lies out of range in one axis must not become a position within: it becomes -1. */
static gd_tensor *positions(const index_list *list, const gd_tensor *x)
{
    gd_tensor *at = NULL, *valid = NULL;
    int used = 0;
    for (int i = 0; i < list->rank; i++) {
        if (!list->of_axis[i])
            continue;
        gd_tensor *index = gd_as_dtype(list->of_axis[i], GD_I64);
        gd_tensor *zero = gd_number_like(index, 0.0);
        gd_tensor *size = gd_number_like(index, (double)x->layout.shape[i]);
        index = gd_where(gd_lt(index, zero), gd_add(index, size), index);
        gd_tensor *within = gd_logical_and(gd_ge(index, zero), gd_lt(index, size));
        at = used ? gd_add(gd_mul(at, size), index) : index;
        valid = used ? gd_logical_and(valid, within) : within;
        used++;
    }
    return used > 1 ? gd_where(valid, at, gd_number_like(at, -1.0)) : at;
}

/* false: an error, or (plan->at NULL) nothing is indexed. */
static bool make_plan(index_plan *plan, gd_tensor *x, gd_tensor *const *indices, int count,
                      const char *who)
{
    index_list list = { .rank = 0 };
    if (count < 0 || (count > 0 && !indices)) {
        (void)gd_fail(GD_ERR_INVALID, "%s: %d indices", who, count);
        return false;
    }
    if (!make_list(&list, x, indices, count, who))
        return false;
    int rank = x->layout.rank, first = -1, last = -1, used = 0;
    for (int i = 0; i < list.rank; i++)
        if (list.of_axis[i]) {
            first = first < 0 ? i : first;
            last = i;
            used++;
        }
    *plan = (index_plan){ .order = { .count = rank } };
    if (used == 0)
        return true;
    /* Indexed axes that are neighbours stay where they are; otherwise their common axis comes first
     * (NumPy). */
    plan->axis = last - first + 1 == used ? first : 0;
    gd_shape merged = GD_SCALAR;
    int64_t length = 1;
    for (int pass = 0; pass < 3; pass++) /* before, the indexed axes, behind */
        for (int i = 0; i < rank; i++) {
            bool indexed = i < list.rank && list.of_axis[i];
            int place = indexed ? 1 : i < plan->axis ? 0 : 2;
            if (place != pass)
                continue;
            plan->order.axis[plan->moved.rank] = i;
            plan->moved.dim[plan->moved.rank++] = x->layout.shape[i];
            if (indexed)
                length *= x->layout.shape[i];
            else
                merged.dim[merged.rank++] = x->layout.shape[i];
            if (indexed && plan->moved.rank == plan->axis + used)
                merged.dim[merged.rank++] = length;
        }
    plan->merged = gd_permute(x, plan->order);
    plan->merged = plan->merged ? gd_reshape(plan->merged, merged) : NULL;
    plan->at = positions(&list, x);
    return plan->merged && plan->at;
}

static gd_tensor *build_index(gd_tensor *x, gd_tensor *const *indices, int count)
{
    index_plan plan;
    if (!gd_usable(x, "gd_index") || !make_plan(&plan, x, indices, count, "gd_index"))
        return NULL;
    return plan.at ? gd_take(plan.merged, plan.at, plan.axis) : x;
}

gd_tensor *gd_index(gd_tensor *x, int count, gd_tensor *const *indices)
{
    return GD_AS("gd_index", build_index(x, indices, count));
}

/* value, broadcast to what gd_index would give, with the axes of the positions as one. */
static gd_tensor *fit_value(const index_plan *plan, gd_tensor *value)
{
    gd_shape rows = gd_tensor_shape(plan->merged), within = gd_tensor_shape(plan->at);
    gd_shape whole = GD_SCALAR;
    if (rows.rank - 1 + within.rank > GD_MAX_RANK)
        return gd_fail_null(GD_ERR_SHAPE, "gd_index_put: what is replaced would have rank %d",
                            rows.rank - 1 + within.rank);
    for (int i = 0; i < rows.rank; i++) {
        if (i != plan->axis)
            whole.dim[whole.rank++] = rows.dim[i];
        for (int k = 0; i == plan->axis && k < within.rank; k++)
            whole.dim[whole.rank++] = within.dim[k];
    }
    rows.dim[plan->axis] = gd_tensor_count(plan->at);
    value = gd_broadcast_to(gd_as_dtype(value, plan->merged->layout.dtype), whole);
    return value ? gd_reshape(value, rows) : NULL;
}

static gd_tensor *build_index_put(gd_tensor *x, gd_tensor *const *indices, int count,
                                  gd_tensor *value, bool accumulate)
{
    index_plan plan;
    if (!gd_usable(x, "gd_index_put") || !gd_usable(value, "gd_index_put") ||
        !make_plan(&plan, x, indices, count, "gd_index_put"))
        return NULL;
    if (!plan.at) {
        value = gd_broadcast_to(gd_as_dtype(value, x->layout.dtype), gd_tensor_shape(x));
        return accumulate ? gd_add(x, value) : gd_apply1(GD_OP_copy, value, NULL);
    }
    gd_tensor *source = fit_value(&plan, value), *t = plan.merged;
    if (!source)
        return NULL;
    gd_shape line = gd_tensor_shape(t);
    for (int i = 0; i < line.rank; i++)
        line.dim[i] = i == plan.axis ? gd_tensor_count(plan.at) : 1;
    gd_tensor *at = gd_broadcast_to(gd_reshape(plan.at, line), gd_tensor_shape(source));
    t = accumulate ? gd_scatter_add(t, at, source, plan.axis)
                   : gd_scatter(t, at, source, plan.axis);
    gd_axes inverse = { .count = plan.order.count };
    for (int i = 0; i < inverse.count; i++)
        inverse.axis[plan.order.axis[i]] = i;
    t = t ? gd_reshape(t, plan.moved) : NULL;
    return t ? gd_permute(t, inverse) : NULL;
}

gd_tensor *gd_index_put(gd_tensor *x, int count, gd_tensor *const *indices, gd_tensor *value,
                        bool accumulate)
{
    return GD_AS("gd_index_put", build_index_put(x, indices, count, value, accumulate));
}
