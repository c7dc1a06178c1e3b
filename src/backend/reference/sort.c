/* backend/reference/sort.c: argsort and searchsorted, by counting what comes before. */
#include "backend/reference/reference.h"

#include "ops/attrs.h"

#include <math.h>

/* -1, 0, 1 as a stands before, beside or behind b; NaN is behind every number. */
static int compare(real a, real b)
{
    if (isnan(a) || isnan(b))
        return (isnan(a) != 0) - (isnan(b) != 0);
    return (a > b) - (a < b);
}

/* The place of each element is the number of those before it; equal ones keep their order. */
static gd_status argsort(const gd_kernel_call *call)
{
    const gd_sort_attr *attr = call->attr;
    const gd_operand *x = &call->in[0];
    int last = x->layout->rank - 1;
    int64_t n = x->layout->shape[last], stride = x->layout->stride[last];
    int64_t *out = call->out.data;
    for (gd_walk w = gd_walk_over(x->layout); w.more; gd_walk_next(&w)) {
        int64_t i = w.index[last], at = gd_walk_offset(&w, x->layout), first = at - i * stride;
        if (n == 1)
            first = at;
        int64_t place = 0;
        for (int64_t k = 0; k < n; k++) {
            int order = compare(gd_ref_load(x, first + k * stride), gd_ref_load(x, at));
            order = attr->descending ? -order : order;
            place += order < 0 || (order == 0 && k < i);
        }
        if (place < attr->count)
            out[w.count / n * attr->count + place] = i;
    }
    return GD_OK;
}

static gd_status searchsorted(const gd_kernel_call *call)
{
    const gd_operand *sorted = &call->in[0], *values = &call->in[1];
    bool right = ((const gd_search_attr *)call->attr)->right;
    int64_t *out = call->out.data;
    for (gd_walk w = gd_walk_over(values->layout); w.more; gd_walk_next(&w)) {
        real value = gd_ref_load(values, gd_walk_offset(&w, values->layout));
        int64_t place = 0;
        for (; place < sorted->layout->shape[0]; place++) {
            int order = compare(gd_ref_load(sorted, place * sorted->layout->stride[0]), value);
            if (order > 0 || (order == 0 && !right))
                break;
        }
        out[w.count] = place;
    }
    return GD_OK;
}

void gd_reference_register_sort(gd_kernel_fn *kernel)
{
    kernel[GD_OP_argsort] = argsort;
    kernel[GD_OP_searchsorted] = searchsorted;
}
