/* ops/formulas.h: the formulas of ops/elementwise.def as text, for what generates source. */
#ifndef GD_OPS_FORMULAS_H
#define GD_OPS_FORMULAS_H

#include "graph/op.h"

typedef struct gd_op_formula {
    const char *text; /* C over x, y, z, with the words of backend/cpu/formulas.h */
    int arity;
    bool gives_bool; /* the result is bool, else of the operands' dtype */
    bool chooses;    /* x is bool, y and z are the operands */
} gd_op_formula;

/* Of an elementwise op. */
const gd_op_formula *gd_op_formula_of(gd_op_id id);

#endif
