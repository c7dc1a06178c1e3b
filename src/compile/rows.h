/* compile/rows.h: rows of a fused group with reductions: what is cut into rows, and how the shapes
 * and views of other values relate to that. For the pass fuse. */
#ifndef GD_COMPILE_ROWS_H
#define GD_COMPILE_ROWS_H

#include "compile/ir.h"

typedef struct gd_rows {
    const gd_layout *whole; /* the shape that is cut */
    int axes;               /* its last so many make a row; 0: the group has no reductions */
} gd_rows;

/* What a value is to the group, by its shape. */
typedef enum gd_row_form {
    GD_FORM_NONE,
    GD_FORM_WHOLE, /* it has the shape that is cut into rows */
    GD_FORM_KEPT,  /* one number a row, the row's axes kept with size 1 */
    GD_FORM_OUTER, /* one number a row, its axes gone */
} gd_row_form;

gd_row_form gd_rows_form(const gd_rows *rows, const gd_layout *layout);
static inline bool gd_rows_is_number(gd_row_form form)
{
    return form == GD_FORM_KEPT || form == GD_FORM_OUTER;
}

/* The rows that op `v` reduces, if it is a reduction a group may hold: of floats, along the last
 * axes of an operand without gaps, so that the order of additions is that of a row by itself. */
bool gd_rows_of(const gd_ir *ir, const gd_ir_value *v, gd_rows *rows);

/* Whether an op of the group that reads layout `x` of a member's memory, itself or a view, reads
 * the element of the same place, or the number of the same row. */
bool gd_rows_reads(const gd_rows *rows, const gd_layout *x, gd_row_form made,
                   const gd_ir_value *reader);

#endif
