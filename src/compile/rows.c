/* compile/rows.c: shapes and rows; see rows.h. */
#include "compile/rows.h"

static int outer_axes(const gd_rows *rows)
{
    return rows->whole->rank - rows->axes;
}

gd_row_form gd_rows_form(const gd_rows *rows, const gd_layout *layout)
{
    const gd_layout *whole = rows->whole;
    if (gd_layout_same_shape(whole, layout))
        return GD_FORM_WHOLE;
    int outer = outer_axes(rows);
    if (rows->axes == 0 || (layout->rank != whole->rank && layout->rank != outer))
        return GD_FORM_NONE;
    for (int axis = 0; axis < layout->rank; axis++)
        if (layout->shape[axis] != (axis < outer ? whole->shape[axis] : 1))
            return GD_FORM_NONE;
    return layout->rank == outer ? GD_FORM_OUTER : GD_FORM_KEPT;
}

bool gd_rows_of(const gd_ir *ir, const gd_ir_value *v, gd_rows *rows)
{
    if (v->kind != GD_IR_OP || !gd_fused_reduces(v->op->id) || v->is_constant)
        return false;
    const gd_layout *x = &ir->values[v->in[0]].layout;
    uint32_t axes = ((const gd_reduce_attr *)v->attr)->axes;
    if (!gd_dtype_set_has(GD_DTYPES_REAL, x->dtype) || !gd_layout_is_contiguous(x) ||
        gd_layout_count(x) == 0)
        return false;
    int64_t length = 1;
    bool ended = false; /* all further axes are kept */
    *rows = (gd_rows){ x, 0 };
    for (int axis = x->rank - 1; axis >= 0; axis--) {
        if (x->shape[axis] == 1)
            continue;
        if (!(axes >> axis & 1)) {
            ended = true;
            continue;
        }
        if (ended || x->shape[axis] > ir->context->device->limits.row_length / length)
            return false;
        length *= x->shape[axis];
        rows->axes = x->rank - axis;
    }
    return length >= 2 && gd_rows_form(rows, &v->layout) != GD_FORM_NONE;
}

/* The number of the reader's row: strides of the result of the reduction along the outer axes, none
 * along the row. */
static bool reads_number(const gd_rows *rows, const gd_layout *x, gd_row_form reader)
{
    int outer = outer_axes(rows), frame = reader == GD_FORM_OUTER ? outer : rows->whole->rank;
    int64_t expected = 1;
    for (int axis = frame - 1; axis >= 0; axis--) {
        int own = axis - (frame - x->rank);
        int64_t size = own < 0 ? 1 : x->shape[own];
        int64_t stride = own < 0 || size == 1 ? 0 : x->stride[own];
        if (axis >= outer) {
            if (stride != 0)
                return false;
            continue;
        }
        if (size != rows->whole->shape[axis] || (size > 1 && stride != expected))
            return false;
        expected *= size;
    }
    return x->rank <= frame;
}

bool gd_rows_reads(const gd_rows *rows, const gd_layout *x, gd_row_form made,
                   const gd_ir_value *reader)
{
    bool reduces = gd_fused_reduces(reader->op->id);
    gd_row_form form = gd_rows_form(rows, &reader->layout);
    if (x->offset != 0)
        return false;
    if (made == GD_FORM_WHOLE)
        return (reduces || form == GD_FORM_WHOLE) && gd_layout_same_shape(x, rows->whole) &&
               gd_layout_is_contiguous(x);
    return !reduces && reads_number(rows, x, form);
}
