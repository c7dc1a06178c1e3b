/* tests/support/op_row_macros.h: how the files of rows (op_rows*.c) spell a row, and their
 * parameters. Rows of functions of one element have macros of their own in
 * op_rows_elementwise.c. */
#ifndef GD_TESTS_OP_ROW_MACROS_H
#define GD_TESTS_OP_ROW_MACROS_H

#include "support/op_rows.h"

#define D  OP_DIFFERENTIABLE
#define E  OP_EXACT
#define DE (D | E)

#define VALUES(low, high)        \
    {                            \
        low, high, OPERAND_VALUE \
    }
#define INDICES(high)          \
    {                          \
        0, high, OPERAND_INDEX \
    }

/* A row whose build is `call`, of the operands x, y, z and the parameters p. */
#define ROW_(id_, name_, operands_, flags_, result_, ulp_, call, refusals_, refusal_count_, ...) \
    static gd_tensor *build_##name_(gd_context *context, gd_tensor *const *in, const int64_t *p) \
    {                                                                                            \
        gd_tensor *x = operands_ > 0 ? in[0] : NULL, *y = operands_ > 1 ? in[1] : NULL,          \
                  *z = operands_ > 2 ? in[2] : NULL;                                             \
        (void)context, (void)p, (void)x, (void)y, (void)z;                                       \
        return call;                                                                             \
    }                                                                                            \
    extern const op_row op_row_##name_;                                                          \
    const op_row op_row_##name_ = { .name = #name_,                                              \
                                    .id = id_,                                                   \
                                    .operands = operands_,                                       \
                                    .flags = flags_,                                             \
                                    .result = result_,                                           \
                                    .ulp = ulp_,                                                 \
                                    .operand = { __VA_ARGS__ },                                  \
                                    .cases = name_##_cases,                                      \
                                    .case_count = COUNT(name_##_cases),                          \
                                    .refusals = refusals_,                                       \
                                    .refusal_count = refusal_count_,                             \
                                    .build = build_##name_ };
/* An op; it has name_refusals. */
#define OP(name, operands, flags, result, ulp, call, ...)                         \
    ROW_(GD_OP_##name, name, operands, flags, result, ulp, call, name##_refusals, \
         COUNT(name##_refusals), __VA_ARGS__)
/* An op that can be refused nothing its type does not already exclude. */
#define OP_SAFE(name, operands, flags, result, ulp, call, ...) \
    ROW_(GD_OP_##name, name, operands, flags, result, ulp, call, NULL, 0, __VA_ARGS__)
/* A function made of several ops. */
#define FUNCTION(name, operands, flags, result, ulp, call, ...)                  \
    ROW_(GD_OP_COUNT, name, operands, flags, result, ulp, call, name##_refusals, \
         COUNT(name##_refusals), __VA_ARGS__)
#define FUNCTION_SAFE(name, operands, flags, result, ulp, call, ...) \
    ROW_(GD_OP_COUNT, name, operands, flags, result, ulp, call, NULL, 0, __VA_ARGS__)

/* p[0] dimensions, p[1 …]. */
static inline gd_shape shape_of(const int64_t *p)
{
    gd_shape shape = { .rank = (int)p[0] };
    for (int a = 0; a < shape.rank && a < OP_MAX_PARAMETERS - 1; a++)
        shape.dim[a] = p[1 + a];
    return shape;
}

/* A list of axes as decimal digits after a leading 1: 1 none, 10 axis 0, 120 axes 2 and 0; 0 means
 * all, negative one axis counted from the end. */
static inline gd_axes axes_of(int64_t code)
{
    gd_axes axes = { 0 };
    if (code == 0)
        return GD_ALL_AXES;
    if (code < 0)
        return GD_AXES((int)code);
    int64_t place = 1;
    while (place * 10 <= code)
        place *= 10;
    for (place /= 10; place > 0; place /= 10)
        axes.axis[axes.count++] = (int)(code / place % 10);
    return axes;
}

#endif
