/* tests/support/op_rows_random.c: the rows of what draws from the random stream and has operands or
 * bounds. Whether the numbers have their distribution: tests/test_random.c. */
#include "support/op_row_macros.h"

#include <math.h>

static const op_case dropout_cases[] = {
    { { SHAPE(5, 7) }, { 30 } }, { { SHAPE(13) }, { 100 } },     { { NUMBER }, { 50 } },
    { { SHAPE(0, 3) }, { 50 } }, { { SHAPE(3, 1031) }, { 10 } }, { { SHAPE(5) }, { 0 } },
};
static const op_refusal dropout_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(5) }, { GD_F32 }, { -1 } },
    { GD_ERR_INVALID, { SHAPE(5) }, { GD_F32 }, { 101 } },
};
OP(dropout, 1, DE | OP_RANDOM, RESULT_FLOAT, 0, gd_dropout(x, (double)p[0] / 100), VALUES(-20, 20))

static const op_case bernoulli_cases[] = { { .shape = { SHAPE(5, 7) } },
                                           { .shape = { SHAPE(0) } },
                                           { .shape = { NUMBER } } };
FUNCTION_SAFE(bernoulli, 1, E | OP_RANDOM, RESULT_FLOAT, 0, gd_bernoulli(x), VALUES(0, 1))

static const op_case categorical_cases[] = { { { SHAPE(5, 7) }, { 1 } },
                                             { { SHAPE(5, 7) }, { 0 } },
                                             { { SHAPE(5, 0, 3) }, { 0 } } };
static const op_refusal categorical_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 0) }, { GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { SHAPE(5) }, { GD_F32 }, { 1 } },
};
FUNCTION(categorical, 1, E | OP_RANDOM, RESULT_I64, 0, gd_categorical(x, (int)p[0]), VALUES(-3, 3))

static const op_case truncated_normal_cases[] = {
    { .p = { 2, 5, 7, GD_F32, -1, 2 } },    { .p = { 2, 5, 7, GD_F64, -100, 1 } },
    { .p = { 1, 13, 0, GD_BF16, 0, 100 } }, { .p = { 2, 3, 7, GD_F16, -1, 2 } },
    { .p = { 1, 0, 0, GD_F32, -1, 1 } },
};
static const op_refusal truncated_normal_refusals[] = {
    { GD_ERR_INVALID, .p = { 1, 5, 0, GD_F32, 2, 2 } },
    { GD_ERR_DTYPE, .p = { 1, 5, 0, GD_I32, -1, 2 } },
};
static double bound_of(int64_t p)
{
    return p == 100 ? (double)INFINITY : p == -100 ? -(double)INFINITY : (double)p;
}
FUNCTION(truncated_normal, 0, OP_RANDOM, RESULT_FREE, 64,
         gd_truncated_normal(context, shape_of(p), 0, 1.5, bound_of(p[4]), bound_of(p[5]),
                             (gd_dtype)p[3]),
         { 0 })
