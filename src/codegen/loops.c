/* codegen/loops.c: loops over a shape, as few as there can be. */
#include "codegen/codegen.h"

static int64_t broadcast_stride(const gd_layout *in, const gd_layout *over, int axis)
{
    int own = axis - (over->rank - in->rank);
    return own < 0 || in->shape[own] == 1 ? 0 : in->stride[own];
}

void gd_codegen_merge(gd_loops *l, const gd_layout *over, const gd_layout *const *operands, int n)
{
    l->rank = 0;
    l->operands = n;
    for (int axis = 0; axis < over->rank; axis++) {
        if (over->shape[axis] == 1)
            continue;
        bool merges = l->rank > 0;
        for (int k = 0; k < n && merges; k++)
            merges = l->stride[k][l->rank - 1] ==
                     broadcast_stride(operands[k], over, axis) * over->shape[axis];
        if (!merges)
            l->size[l->rank++] = 1;
        l->size[l->rank - 1] *= over->shape[axis];
        for (int k = 0; k < n; k++)
            l->stride[k][l->rank - 1] = broadcast_stride(operands[k], over, axis);
    }
}
