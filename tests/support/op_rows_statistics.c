/* tests/support/op_rows_statistics.c: the rows of ops/statistics.c, of comparisons and extremes with
 * a number, and of further ways to see a shape. */
#include "support/op_row_macros.h"

/* ---- order statistics: p is the axis, the share in eighths, keep ---- */

static const op_case quantile_cases[] = {
    { { SHAPE(5, 7) }, { 1, 3, 0 } },    { { SHAPE(5, 7) }, { 0, 0, 1 } },
    { { SHAPE(6) }, { -1, 8, 0 } },      { { SHAPE(1) }, { 0, 5, 0 } },
    { { SHAPE(2, 3, 4) }, { 1, 5, 1 } }, { { SHAPE(3, 0) }, { 0, 4, 0 } },
};
static const op_refusal quantile_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3, 0) }, { GD_F32 }, { 1, 4, 0 } },
    { GD_ERR_SHAPE, { SHAPE(3) }, { GD_F32 }, { 1, 4, 0 } },
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0, 4, 0 } },
    { GD_ERR_INVALID, { SHAPE(3) }, { GD_F32 }, { 0, 9, 0 } },
    { GD_ERR_INVALID, { SHAPE(3) }, { GD_F32 }, { 0, -1, 0 } },
};
FUNCTION(quantile, 1, DE, RESULT_FLOAT, 0, gd_quantile(x, (int)p[0], (double)p[1] / 8, p[2]),
         VALUES(-20, 20))

static const op_case median_cases[] = {
    { { SHAPE(5, 7) }, { 1, 0 } }, { { SHAPE(6, 3) }, { 0, 1 } }, { { SHAPE(1) }, { -1, 0 } },
    { { SHAPE(2) }, { 0, 0 } },    { { SHAPE(0, 3) }, { 1, 0 } },
};
static const op_refusal median_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(0, 3) }, { GD_F32 }, { 0, 0 } },
    { GD_ERR_SHAPE, { SHAPE(3) }, { GD_F32 }, { -2, 0 } },
};
FUNCTION(median, 1, DE, RESULT_FLOAT, 0, gd_median(x, (int)p[0], p[1]), VALUES(-20, 20))

/* ---- running extremes, differences of neighbours ---- */

static const op_case cummax_cases[] = {
    { { SHAPE(5, 7) }, { 1 } }, { { SHAPE(5, 7) }, { 0 } },    { { SHAPE(9) }, { -1 } },
    { { SHAPE(1) }, { 0 } },    { { SHAPE(2, 4, 3) }, { 1 } }, { { SHAPE(0, 3) }, { 0 } },
    { { SHAPE(3, 0) }, { 0 } },
};
static const op_refusal cummax_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3) }, { GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0 } },
};
#define cummin_cases    cummax_cases
#define cummin_refusals cummax_refusals
#define diff_cases      cummax_cases
#define diff_refusals   cummax_refusals
FUNCTION(cummax, 1, DE, RESULT_SAME, 0, gd_cummax(x, (int)p[0], NULL), VALUES(-20, 20))
FUNCTION(cummin, 1, DE, RESULT_SAME, 0, gd_cummin(x, (int)p[0], NULL), VALUES(-20, 20))
FUNCTION(diff, 1, DE, RESULT_NUMERIC, 0, gd_diff(x, (int)p[0]), VALUES(-20, 20))

static gd_tensor *cummax_index(gd_tensor *x, int axis)
{
    gd_tensor *indices = NULL;
    (void)gd_cummax(x, axis, &indices);
    return indices;
}
#define cummax_indices_cases    cummax_cases
#define cummax_indices_refusals cummax_refusals
FUNCTION(cummax_indices, 1, E, RESULT_I64, 0, cummax_index(x, (int)p[0]), VALUES(-20, 20))

/* ---- counts ---- */

static const op_case count_nonzero_cases[] = { { { SHAPE(5, 7) }, { 0, 0 } },
                                               { { SHAPE(5, 7) }, { 11, 1 } },
                                               { { SHAPE(0, 3) }, { 10, 0 } },
                                               { { NUMBER }, { 0, 0 } } };
static const op_refusal count_nonzero_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3) }, { GD_F32 }, { 11, 0 } },
};
FUNCTION(count_nonzero, 1, E, RESULT_I64, 0, gd_count_nonzero(x, axes_of(p[0]), p[1]),
         VALUES(-2, 2))

static const op_case bincount_cases[] = { { { SHAPE(13) }, { 4 } },
                                          { { SHAPE(3, 4) }, { 9 } },
                                          { { SHAPE(0) }, { 4 } },
                                          { { NUMBER }, { 4 } } };
static const op_refusal bincount_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(3) }, { GD_F32 }, { 4 } },
    { GD_ERR_INVALID, { SHAPE(3) }, { GD_I64 }, { 1 } },
    { GD_ERR_INVALID, { SHAPE(3) }, { GD_I64 }, { 0 } },
};
FUNCTION(bincount, 1, E | OP_NO_SPECIALS, RESULT_I64, 0, gd_bincount(x, NULL, p[0]), INDICES(4))

static const op_case bincount_weighted_cases[] = { { { SHAPE(13), SHAPE(13) }, { 4 } },
                                                   { { SHAPE(3, 4), SHAPE(3, 4) }, { 9 } },
                                                   { { SHAPE(0), SHAPE(0) }, { 4 } } };
static const op_refusal bincount_weighted_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3), SHAPE(4) }, { GD_F32, GD_I64 }, { 4 } },
    { GD_ERR_DTYPE, { SHAPE(3), SHAPE(3) }, { GD_F32, GD_F32 }, { 4 } },
};
FUNCTION(bincount_weighted, 2, D | OP_SUM | OP_NO_SPECIALS, RESULT_TOTAL, 8,
         x &&y ? gd_bincount(y, x, p[0]) : NULL, VALUES(0.5, 2), INDICES(4))

static const op_case histogram_cases[] = { { { SHAPE(5, 7) }, { 4 } },
                                           { { SHAPE(131) }, { 7 } },
                                           { { SHAPE(0) }, { 3 } },
                                           { { NUMBER }, { 1 } } };
static const op_refusal histogram_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(3) }, { GD_F32 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(3) }, { GD_F32 }, { -1 } },
};
FUNCTION(histogram, 1, E, RESULT_I64, 0, gd_histogram(x, p[0], -10, 10), VALUES(-20, 20))

/* ---- closeness and membership ---- */

static const op_case isclose_cases[] = { { { SHAPE(5, 7), SHAPE(5, 7) }, { 50, 0 } },
                                         { { SHAPE(5, 1), SHAPE(7) }, { 10, 1 } } };
static const op_refusal isclose_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(5), SHAPE(5) }, { GD_F32, GD_F32 }, { -1, 0 } },
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(4) }, { GD_F32, GD_F32 }, { 1, 0 } },
};
FUNCTION(isclose, 2, E, RESULT_BOOL, 0, gd_isclose(x, y, (double)p[0] / 100, 0.25, p[1]),
         VALUES(-3, 3), VALUES(-3, 3))

static const op_case isin_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(4) } },
                                      { .shape = { SHAPE(5), SHAPE(2, 3) } },
                                      { .shape = { SHAPE(5), SHAPE(0) } },
                                      { .shape = { NUMBER, NUMBER } } };
FUNCTION_SAFE(isin, 2, E, RESULT_BOOL, 0, gd_isin(x, y), VALUES(-3, 3), VALUES(-3, 3))

/* ---- with a number: p is twice the number ---- */

static const op_case eq_scalar_cases[] = { { { SHAPE(5, 7) }, { 4 } }, { { SHAPE(13) }, { 5 } },
                                           { { SHAPE(3) }, { -7 } },   { { SHAPE(3) }, { 2000 } },
                                           { { NUMBER }, { 2 } },      { { SHAPE(0) }, { 2 } } };
#define ne_scalar_cases eq_scalar_cases
#define lt_scalar_cases eq_scalar_cases
#define le_scalar_cases eq_scalar_cases
#define gt_scalar_cases eq_scalar_cases
#define ge_scalar_cases eq_scalar_cases
#define HALF(p)         ((double)(p)[0] / 2)
FUNCTION_SAFE(eq_scalar, 1, E, RESULT_BOOL, 0, gd_eq_scalar(x, HALF(p)), VALUES(-4, 4))
FUNCTION_SAFE(ne_scalar, 1, E, RESULT_BOOL, 0, gd_ne_scalar(x, HALF(p)), VALUES(-4, 4))
FUNCTION_SAFE(lt_scalar, 1, E, RESULT_BOOL, 0, gd_lt_scalar(x, HALF(p)), VALUES(-4, 4))
FUNCTION_SAFE(le_scalar, 1, E, RESULT_BOOL, 0, gd_le_scalar(x, HALF(p)), VALUES(-4, 4))
FUNCTION_SAFE(gt_scalar, 1, E, RESULT_BOOL, 0, gd_gt_scalar(x, HALF(p)), VALUES(-4, 4))
FUNCTION_SAFE(ge_scalar, 1, E, RESULT_BOOL, 0, gd_ge_scalar(x, HALF(p)), VALUES(-4, 4))

static const op_case maximum_scalar_cases[] = { { { SHAPE(5, 7) }, { 4 } }, { { NUMBER }, { 2 } } };
static const op_refusal maximum_scalar_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(3) }, { GD_U8 }, { 2000 } },
};
#define minimum_scalar_cases    maximum_scalar_cases
#define minimum_scalar_refusals maximum_scalar_refusals
FUNCTION(maximum_scalar, 1, DE, RESULT_NUMERIC, 0, gd_maximum_scalar(x, HALF(p)), VALUES(-20, 20))
FUNCTION(minimum_scalar, 1, DE, RESULT_NUMERIC, 0, gd_minimum_scalar(x, HALF(p)), VALUES(-20, 20))

static const op_case nan_to_num_cases[] = { { .shape = { SHAPE(5, 7) } }, { .shape = { NUMBER } } };
FUNCTION_SAFE(nan_to_num, 1, DE, RESULT_SAME, 0, gd_nan_to_num(x, 1, 2, 3), VALUES(-20, 20))

static const op_case lerp_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(5, 7), SHAPE(5, 7) } },
                                      { .shape = { SHAPE(5, 1), SHAPE(7), NUMBER } } };
static const op_refusal lerp_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(4), SHAPE(5) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
FUNCTION(lerp, 3, DE, RESULT_FLOAT, 0, gd_lerp(x, y, z), VALUES(-20, 20), VALUES(-20, 20),
         VALUES(0, 1))

/* ---- shapes ---- */

static const op_case flatten_cases[] = { { { SHAPE(2, 3, 4) }, { 0, -1 } },
                                         { { SHAPE(2, 3, 4) }, { 1, 2 } },
                                         { { SHAPE(2, 3, 4) }, { 1, 1 } },
                                         { { SHAPE(2, 0, 4) }, { 0, 1 } },
                                         { { NUMBER }, { 0, -1 } } };
static const op_refusal flatten_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(2, 3) }, { GD_F32 }, { 1, 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 3) }, { GD_F32 }, { 0, 2 } },
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0, 1 } },
};
FUNCTION(flatten, 1, DE, RESULT_SAME, 0, gd_flatten(x, (int)p[0], (int)p[1]), VALUES(-20, 20))

static const op_case movedim_cases[] = { { { SHAPE(2, 3, 4) }, { 0, 2 } },
                                         { { SHAPE(2, 3, 4) }, { -1, 0 } },
                                         { { SHAPE(2, 3, 4, 5) }, { 1, 2 } },
                                         { { SHAPE(3) }, { 0, 0 } } };
static const op_refusal movedim_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(2, 3) }, { GD_F32 }, { 2, 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 3) }, { GD_F32 }, { 0, -3 } },
};
FUNCTION(movedim, 1, DE, RESULT_SAME, 0, gd_movedim(x, (int)p[0], (int)p[1]), VALUES(-20, 20))

static const op_case squeeze_all_cases[] = { { .shape = { SHAPE(1, 3, 1, 4, 1) } },
                                             { .shape = { SHAPE(1, 1) } },
                                             { .shape = { SHAPE(2, 3) } },
                                             { .shape = { NUMBER } } };
FUNCTION_SAFE(squeeze_all, 1, DE, RESULT_SAME, 0, gd_squeeze_all(x), VALUES(-20, 20))

static const op_case ones_like_cases[] = { { .shape = { SHAPE(5, 7) } }, { .shape = { NUMBER } } };
FUNCTION_SAFE(ones_like, 1, E, RESULT_SAME, 0, gd_ones_like(x), VALUES(-20, 20))

static const op_case full_like_cases[] = { { { SHAPE(5, 7) }, { 3 } }, { { SHAPE(0) }, { 1 } } };
static const op_refusal full_like_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(3) }, { GD_U8 }, { -1 } },
};
FUNCTION(full_like, 1, E, RESULT_SAME, 0, gd_full_like(x, (double)p[0]), VALUES(-20, 20))

static const op_case randint_cases[] = { { .p = { 2, 5, 7, GD_I64, -3, 9 } },
                                         { .p = { 1, 13, 0, GD_U8, 0, 256 } },
                                         { .p = { 1, 0, 0, GD_I32, 0, 1 } } };
static const op_refusal randint_refusals[] = {
    { GD_ERR_INVALID, .p = { 1, 5, 0, GD_I32, 2, 2 } },
    { GD_ERR_INVALID, .p = { 1, 5, 0, GD_U8, -1, 2 } },
    { GD_ERR_DTYPE, .p = { 1, 5, 0, GD_F32, 0, 2 } },
};
FUNCTION(randint, 0, E | OP_RANDOM, RESULT_FREE, 0,
         gd_randint(context, shape_of(p), p[4], p[5], (gd_dtype)p[3]), { 0 })
