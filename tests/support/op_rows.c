/* tests/support/op_rows.c: the rows of the ops that are not elementwise, of functions made of
 * several ops, and the table of all. */
#include "support/op_row_macros.h"

#include <gradus/compile.h>

#include "graph/apply.h"
#include "graph/node.h"
#include "ops/adam.h"
#include "ops/random.h"
#include "ops/attrs.h"
#include "ops/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- sources: no operands; the dtype is a parameter ---- */

static const op_case full_cases[] = {
    { .p = { 2, 5, 7, -3, GD_F32 } },  { .p = { 0, 0, 0, 300, GD_F64 } },
    { .p = { 1, 0, 0, 1, GD_F32 } },   { .p = { 1, 13, 0, 255, GD_U8 } },
    { .p = { 2, 1, 11, 7, GD_BOOL } }, { .p = { 1, 3, 0, -300, GD_I32 } },
    { .p = { 1, 5, 0, 77, GD_I64 } },  { .p = { 1, 5, 0, 3, GD_F16 } },
    { .p = { 1, 5, 0, 3, GD_BF16 } },
};
static const op_refusal full_refusals[] = {
    { GD_ERR_SHAPE, .p = { 9, 1, 1, 1, GD_F32 } },
    { GD_ERR_SHAPE, .p = { 2, 5, -1, 1, GD_F32 } },
    { GD_ERR_DTYPE, .p = { 1, 5, 0, 1, GD_DTYPE_COUNT } },
    { GD_ERR_INVALID, .p = { 1, 5, 0, 256, GD_U8 } },
    { GD_ERR_INVALID, .p = { 1, 5, 0, -1, GD_U8 } },
};
/* p[3], and three quarters more of a float dtype */
static double number_of(const int64_t *p)
{
    return (double)p[3] + (gd_dtype_is_float((gd_dtype)p[4]) ? 0.75 : 0.0);
}
OP(full, 0, E, RESULT_FREE, 0, gd_full(context, shape_of(p), number_of(p), (gd_dtype)p[4]), { 0 })

static const op_case iota_cases[] = {
    { .p = { 0, 7, 1, GD_I64 } },  { .p = { 13, -5, -2, GD_I32 } }, { .p = { 0, 5, 1, GD_F32 } },
    { .p = { 3, 3, 1, GD_F32 } },  { .p = { -4, 9, 3, GD_F64 } },   { .p = { 240, 256, 5, GD_U8 } },
    { .p = { 0, 11, 2, GD_F16 } }, { .p = { 0, 300, 1, GD_BF16 } }, { .p = { 0, 5000, 1, GD_F32 } },
};
static const op_refusal iota_refusals[] = {
    { GD_ERR_INVALID, .p = { 0, 5, 0, GD_F32 } },
    { GD_ERR_INVALID, .p = { 250, 270, 7, GD_U8 } },
    { GD_ERR_DTYPE, .p = { 0, 5, 1, GD_BOOL } },
    { GD_ERR_DTYPE, .p = { 0, 5, 1, GD_DTYPE_COUNT } },
};
OP(iota, 0, E, RESULT_FREE, 0,
   gd_arange(context, (double)p[0], (double)p[1], (double)p[2], (gd_dtype)p[3]), { 0 })

static const op_case random_bits_cases[] = {
    { .p = { 2, 5, 7, GD_F32 } },     { .p = { 0, 0, 0, GD_F32 } },
    { .p = { 2, 5, 7, GD_F64 } },     { .p = { 1, 0, 0, GD_F64 } },
    { .p = { 1, 13, 0, GD_F16 } },    { .p = { 2, 3, 1031, GD_F32 } },
    { .p = { 2, 3, 1031, GD_BF16 } },
};
static const op_refusal random_bits_refusals[] = {
    { GD_ERR_SHAPE, .p = { 1, -5, 0, GD_F32 } },
    { GD_ERR_DTYPE, .p = { 1, 5, 0, GD_I32 } },
};
OP(random_bits, 0, E | OP_RANDOM, RESULT_FREE, 0,
   gd_uniform(context, shape_of(p), -3, 5, (gd_dtype)p[3]), { 0 })

#define normal_cases    random_bits_cases
#define normal_refusals random_bits_refusals
FUNCTION(normal, 0, OP_RANDOM, RESULT_FREE, 8,
         gd_normal(context, shape_of(p), 0, 2, (gd_dtype)p[3]), { 0 })

static const op_case linspace_cases[] = {
    { .p = { 0, 1, 7, GD_F32 } }, { .p = { 5, -5, 13, GD_F64 } }, { .p = { 2, 3, 1, GD_F32 } },
    { .p = { 2, 3, 0, GD_F32 } }, { .p = { -1, 1, 5, GD_BF16 } }, { .p = { 0, 1, 11, GD_F16 } },
};
static const op_refusal linspace_refusals[] = {
    { GD_ERR_INVALID, .p = { 0, 1, -1, GD_F32 } },
    { GD_ERR_DTYPE, .p = { 0, 1, 5, GD_I32 } },
};
FUNCTION(linspace, 0, E, RESULT_FREE, 0,
         gd_linspace(context, (double)p[0], (double)p[1], p[2], (gd_dtype)p[3]), { 0 })

static const op_case eye_cases[] = { { .p = { 5, GD_F32 } },
                                     { .p = { 0, GD_F64 } },
                                     { .p = { 1, GD_I32 } },
                                     { .p = { 3, GD_F16 } },
                                     { .p = { 2, GD_BF16 } } };
FUNCTION_SAFE(eye, 0, E, RESULT_FREE, 0, gd_eye(context, p[0], (gd_dtype)p[1]), { 0 })

/* ---- movement ---- */

static const op_case reshape_cases[] = {
    { { SHAPE(5, 7) }, { 2, 7, 5 } },
    { { SHAPE(4, 3, 2) }, { 2, -1, 6 } },
    { { SHAPE(1, 13) }, { 1, 13 } },
    { { NUMBER }, { 3, 1, 1, 1 } },
    { { SHAPE(1, 1) }, { 0 } },
    { { SHAPE(0, 3) }, { 2, 5, 0 } },
    { { SHAPE(2, 3, 2, 2) }, { 3, 6, 2, 2 } },
};
static const op_refusal reshape_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 1, 34 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 2, -1, -1 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 2, -1, 4 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 2, -5, -7 } },
    { GD_ERR_SHAPE, { SHAPE(0) }, { GD_F32 }, { 2, 0, -1 } },
    { GD_ERR_SHAPE, { SHAPE(4) }, { GD_F32 }, { 9, 4 } },
};
OP(reshape, 1, DE, RESULT_SAME, 0, gd_reshape(x, shape_of(p)), VALUES(-20, 20))

static const op_case permute_cases[] = {
    { { SHAPE(5, 7, 3) }, { 1201 } }, { { SHAPE(5, 7) }, { 110 } },         { { NUMBER }, { 1 } },
    { { SHAPE(2, 0, 3) }, { 1210 } }, { { SHAPE(2, 3, 1, 5) }, { 13102 } },
};
static const op_refusal permute_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 10 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 100 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 102 } },
};
OP(permute, 1, DE, RESULT_SAME, 0, gd_permute(x, axes_of(p[0])), VALUES(-20, 20))

static const op_case transpose_cases[] = { { { SHAPE(5, 7, 3) }, { 0, -1 } },
                                           { { SHAPE(2, 3) }, { 1, 1 } } };
static const op_refusal transpose_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 0, 2 } },
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0, 0 } }
};
FUNCTION(transpose, 1, DE, RESULT_SAME, 0, gd_transpose(x, (int)p[0], (int)p[1]), VALUES(-20, 20))

static const op_case broadcast_to_cases[] = {
    { { SHAPE(5, 1) }, { 2, 5, 7 } }, { { SHAPE(3) }, { 3, 2, 5, 3 } }, { { NUMBER }, { 2, 3, 2 } },
    { { SHAPE(1, 3) }, { 2, 0, 3 } }, { { SHAPE(2, 3) }, { 2, 2, 3 } },
};
static const op_refusal broadcast_to_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 2) }, { GD_F32 }, { 2, 5, 7 } },
    { GD_ERR_SHAPE, { SHAPE(5, 1) }, { GD_F32 }, { 1, 5 } },
    { GD_ERR_SHAPE, { SHAPE(5) }, { GD_F32 }, { 2, -1, 5 } },
};
OP(broadcast_to, 1, DE, RESULT_SAME, 0, gd_broadcast_to(x, shape_of(p)), VALUES(-20, 20))

static const op_case slice_cases[] = {
    { { SHAPE(5, 7) }, { 1, 1, 6, 2 } },    { { SHAPE(5, 7) }, { 0, -1, GD_END, -1 } },
    { { SHAPE(13) }, { -1, -3, -11, -3 } }, { { SHAPE(7, 2) }, { 0, 5, 2, 1 } },
    { { SHAPE(7) }, { 0, -100, 100, 3 } },  { { SHAPE(0, 3) }, { 0, 0, 5, 1 } },
};
static const op_refusal slice_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(5, 7) }, { GD_F32 }, { 0, 0, 3, 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 2, 0, 3, 1 } },
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0, 0, 3, 1 } },
};
OP(slice, 1, DE, RESULT_SAME, 0, gd_slice(x, (int)p[0], p[1], p[2], p[3]), VALUES(-20, 20))

static const op_case select_cases[] = { { { SHAPE(5, 7) }, { 0, 3 } },
                                        { { SHAPE(5, 7) }, { -1, -2 } } };
static const op_refusal select_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 0, 5 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 0, -6 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { -3, 0 } }
};
FUNCTION(select, 1, DE, RESULT_SAME, 0, gd_select(x, (int)p[0], p[1]), VALUES(-20, 20))

static const op_case flip_cases[] = { { { SHAPE(5, 7) }, { 0 } },
                                      { { SHAPE(5, 7) }, { 11 } },
                                      { { SHAPE(0) }, { 0 } } };
static const op_refusal flip_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 12 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 111 } }
};
FUNCTION(flip, 1, DE, RESULT_SAME, 0, gd_flip(x, axes_of(p[0])), VALUES(-20, 20))

static const op_case squeeze_cases[] = { { { SHAPE(5, 1, 3) }, { 1 } }, { { SHAPE(1) }, { -1 } } };
static const op_refusal squeeze_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 1) }, { GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 1) }, { GD_F32 }, { 2 } }
};
FUNCTION(squeeze, 1, DE, RESULT_SAME, 0, gd_squeeze(x, (int)p[0]), VALUES(-20, 20))

static const op_case unsqueeze_cases[] = { { { SHAPE(5, 3) }, { 1 } },
                                           { { SHAPE(5, 3) }, { -1 } },
                                           { { NUMBER }, { 0 } } };
static const op_refusal unsqueeze_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 1) }, { GD_F32 }, { 3 } },
    { GD_ERR_SHAPE, { SHAPE(1, 1, 1, 1, 1, 1, 1, 1) }, { GD_F32 }, { 0 } }
};
FUNCTION(unsqueeze, 1, DE, RESULT_SAME, 0, gd_unsqueeze(x, (int)p[0]), VALUES(-20, 20))

static const op_case copy_cases[] = { { .shape = { SHAPE(5, 7, 3) } },
                                      { .shape = { SHAPE(2, 0) } },
                                      { .shape = { SHAPE(41, 53) } } };
OP_SAFE(copy, 1, DE, RESULT_SAME, 0, gd_contiguous(gd_transpose(x, 0, -1)), VALUES(-20, 20))

static const op_case pad_cases[] = {
    { { SHAPE(5, 7) }, { 1, 0, 2, 3, 4 } },
    { { SHAPE(13) }, { 2, 0, 5 } },
    { { SHAPE(0, 2) }, { 1, 1, 0, 1, 0 } },
    { { SHAPE(3) }, { 0, 0, 0 } },
};
static const op_refusal pad_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 0, -1, 2, 3, 4 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 0, 1, 2, (int64_t)1 << 47, 4 } },
};
/* p: value, then before and after of each axis */
static gd_tensor *padded(gd_tensor *x, const int64_t *p)
{
    gd_shape before = gd_tensor_shape(x), after = before;
    for (int a = 0; a < before.rank; a++) {
        before.dim[a] = p[1 + 2 * a];
        after.dim[a] = p[2 + 2 * a];
    }
    return gd_pad(x, before, after, (double)p[0]);
}
OP(pad, 1, DE, RESULT_SAME, 0, padded(x, p), VALUES(-20, 20))

static const op_case concat_cases[] = {
    { { SHAPE(5, 7), SHAPE(2, 7), SHAPE(3, 7) }, { 0 } },
    { { SHAPE(5, 2, 3), SHAPE(5, 1, 3), SHAPE(5, 0, 3) }, { 1 } },
    { { SHAPE(7), SHAPE(13), SHAPE(1) }, { -1 } },
};
static const op_refusal concat_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(2, 6), SHAPE(3, 7) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(2), SHAPE(3, 7) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(2), SHAPE(3) }, { GD_F32, GD_F32, GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { NUMBER, NUMBER, NUMBER }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
};
OP(concat, 3, DE, RESULT_SAME, 0, gd_concat(3, in, (int)p[0]), VALUES(-20, 20), VALUES(-20, 20),
   VALUES(-20, 20))

static const op_case stack_cases[] = { { { SHAPE(5, 7), SHAPE(5, 7), SHAPE(5, 7) }, { 1 } },
                                       { { NUMBER, NUMBER, NUMBER }, { 0 } },
                                       { { SHAPE(3), SHAPE(3), SHAPE(3) }, { -1 } } };
static const op_refusal stack_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(2), SHAPE(5) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(5), SHAPE(5) }, { GD_F32, GD_F32, GD_F32 }, { 2 } },
};
FUNCTION(stack, 3, DE, RESULT_SAME, 0, gd_stack(3, in, (int)p[0]), VALUES(-20, 20), VALUES(-20, 20),
         VALUES(-20, 20))

static const op_case cast_cases[] = {
    { { SHAPE(5, 7) }, { GD_F32 } },    { { SHAPE(5, 7) }, { GD_F64 } },
    { { SHAPE(5, 7) }, { GD_I32 } },    { { SHAPE(5, 7) }, { GD_I64 } },
    { { SHAPE(5, 7) }, { GD_U8 } },     { { SHAPE(5, 7) }, { GD_BOOL } },
    { { SHAPE(5, 7) }, { GD_F16 } },    { { SHAPE(5, 7) }, { GD_BF16 } },
    { { NUMBER }, { GD_U8 } },          { { SHAPE(0) }, { GD_I32 } },
    { { SHAPE(3, 1031) }, { GD_I32 } },
};
static const op_refusal cast_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(5) }, { GD_F32 }, { GD_DTYPE_COUNT } },
    { GD_ERR_DTYPE, { SHAPE(5) }, { GD_F32 }, { -1 } }
};
OP(cast, 1, E, RESULT_FREE, 0, gd_cast(x, (gd_dtype)p[0]), VALUES(-700, 700))

static const op_case zeros_like_cases[] = { { .shape = { SHAPE(5, 7) } } };
FUNCTION_SAFE(zeros_like, 1, E, RESULT_SAME, 0, gd_zeros_like(x), VALUES(-700, 700))

/* ---- reductions and scans ---- */

#define REDUCE_CASES                                                                             \
    { { SHAPE(5, 7, 3) }, { 10, 0 } }, { { SHAPE(5, 7, 3) }, { 11, 1 } },                        \
        { { SHAPE(5, 7, 3) }, { -1, 0 } }, { { SHAPE(5, 7, 3) }, { 120, 0 } },                   \
        { { SHAPE(5, 7, 3) }, { 0, 1 } }, { { SHAPE(13) }, { 0, 0 } }, { { NUMBER }, { 0, 0 } }, \
        { { SHAPE(11, 13) }, { 1, 0 } }, { { SHAPE(0, 3) }, { 11, 0 } },                         \
        { { SHAPE(3, 1031) }, { 11, 0 } }, { { SHAPE(1031, 3) }, { 10, 0 } },                    \
    {                                                                                            \
        { SHAPE(2, 3, 2, 5) },                                                                   \
        {                                                                                        \
            102, 0                                                                               \
        }                                                                                        \
    }
static const op_case sum_cases[] = { REDUCE_CASES,
                                     { { SHAPE(0, 3) }, { 10, 0 } },
                                     { { SHAPE(0) }, { 0, 1 } } };
static const op_refusal sum_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 12, 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 100, 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { -3, 0 } },
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 10, 0 } },
};
static const op_case max_cases[] = { REDUCE_CASES };
static const op_refusal max_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 12, 0 } },
    { GD_ERR_SHAPE, { SHAPE(0, 3) }, { GD_F32 }, { 10, 0 } },
    { GD_ERR_SHAPE, { SHAPE(0) }, { GD_I32 }, { 0, 0 } },
};
#define prod_cases    sum_cases
#define prod_refusals sum_refusals
#define min_cases     max_cases
#define min_refusals  max_refusals
OP(sum, 1, D | OP_SUM, RESULT_TOTAL, 16, gd_sum(x, axes_of(p[0]), p[1]), VALUES(0.5, 2))
OP(prod, 1, D, RESULT_TOTAL, 1100, gd_prod(x, axes_of(p[0]), p[1]), VALUES(0.7, 1.3))
OP(max, 1, DE, RESULT_SAME, 0, gd_max(x, axes_of(p[0]), p[1]), VALUES(-20, 20))
OP(min, 1, DE, RESULT_SAME, 0, gd_min(x, axes_of(p[0]), p[1]), VALUES(-20, 20))

#define mean_cases    max_cases
#define mean_refusals sum_refusals
#define var_cases     max_cases
#define var_refusals  sum_refusals
static const op_case std_cases[] = { { { SHAPE(5, 7) }, { 11, 0 } }, { { SHAPE(13) }, { 0, 1 } } };
#define std_refusals       sum_refusals
#define logsumexp_cases    max_cases
#define logsumexp_refusals max_refusals
#define all_cases          sum_cases
#define all_refusals       sum_refusals
#define any_cases          sum_cases
#define any_refusals       sum_refusals
FUNCTION(mean, 1, D, RESULT_FLOAT, 16, gd_mean(x, axes_of(p[0]), p[1]), VALUES(0.5, 2))
FUNCTION(var, 1, D | OP_MUST_VARY, RESULT_FLOAT, 256, gd_var(x, axes_of(p[0]), 0, p[1]),
         VALUES(0.5, 40))
FUNCTION(std, 1, D | OP_MUST_VARY, RESULT_FLOAT, 256, gd_std(x, axes_of(p[0]), 1, p[1]),
         VALUES(0.5, 40))
FUNCTION(logsumexp, 1, D, RESULT_FLOAT, 16, gd_logsumexp(x, axes_of(p[0]), p[1]), VALUES(0.5, 6))
FUNCTION(all, 1, E, RESULT_BOOL, 0, gd_all(x, axes_of(p[0]), p[1]), VALUES(-1, 9))
FUNCTION(any, 1, E, RESULT_BOOL, 0, gd_any(x, axes_of(p[0]), p[1]), VALUES(-0.4, 0.7))

static const op_case argmax_cases[] = {
    { { SHAPE(5, 7, 3) }, { 0, 0 } },  { { SHAPE(5, 7, 3) }, { 1, 1 } },
    { { SHAPE(5, 7, 3) }, { -1, 0 } }, { { SHAPE(13) }, { 0, 0 } },
    { { SHAPE(0, 3) }, { 1, 0 } },     { { SHAPE(3, 1031) }, { 1, 0 } },
    { { SHAPE(1031, 3) }, { 0, 0 } },
};
static const op_refusal argmax_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 2, 0 } },
    { GD_ERR_SHAPE, { SHAPE(0, 3) }, { GD_F32 }, { 0, 0 } },
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0, 0 } },
};
#define argmin_cases    argmax_cases
#define argmin_refusals argmax_refusals
OP(argmax, 1, E, RESULT_I64, 0, gd_argmax(x, (int)p[0], p[1]), VALUES(-6, 6))
OP(argmin, 1, E, RESULT_I64, 0, gd_argmin(x, (int)p[0], p[1]), VALUES(-6, 6))

static const op_case cumsum_cases[] = {
    { { SHAPE(5, 7, 3) }, { 0 } }, { { SHAPE(5, 7, 3) }, { 1 } }, { { SHAPE(5, 7, 3) }, { -1 } },
    { { SHAPE(13) }, { 0 } },      { { SHAPE(0, 3) }, { 0 } },    { { SHAPE(3, 257) }, { 1 } },
};
static const op_refusal cumsum_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 2 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { -3 } },
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0 } },
};
#define cumprod_cases    cumsum_cases
#define cumprod_refusals cumsum_refusals
OP(cumsum, 1, D | OP_SUM, RESULT_TOTAL, 130, gd_cumsum(x, (int)p[0]), VALUES(0.5, 2))
OP(cumprod, 1, D, RESULT_TOTAL, 260, gd_cumprod(x, (int)p[0]), VALUES(0.7, 1.3))

/* ---- products ---- */

static const op_case matmul_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(7, 3) } },
    { .shape = { SHAPE(2, 1, 5, 7), SHAPE(3, 7, 11) } },
    { .shape = { SHAPE(7), SHAPE(7) } },
    { .shape = { SHAPE(5, 7), SHAPE(7) } },
    { .shape = { SHAPE(7), SHAPE(7, 3) } },
    { .shape = { SHAPE(5, 0), SHAPE(0, 3) } },
    { .shape = { SHAPE(0, 3), SHAPE(3, 4) } },
    { .shape = { SHAPE(1, 1), SHAPE(1, 1) } },
    { .shape = { SHAPE(37, 67), SHAPE(67, 19) } },
    { .shape = { SHAPE(3, 2, 2), SHAPE(2, 2) } },
    { .shape = { SHAPE(2, 3), SHAPE(5, 3, 2) } },
    { .shape = { SHAPE(3, 601), SHAPE(601, 2) } },
};
static const op_refusal matmul_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(32, 784), SHAPE(16, 784) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 5, 7), SHAPE(3, 7, 2) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(7) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { NUMBER, SHAPE(7) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(7), NUMBER }, { GD_F32, GD_F32 }, { 0 } },
};
OP(matmul, 2, D | OP_SUM, RESULT_NUMERIC, 64, gd_matmul(x, y), VALUES(0.5, 2), VALUES(0.5, 2))

static const op_case outer_cases[] = { { .shape = { SHAPE(5), SHAPE(7) } },
                                       { .shape = { SHAPE(0), SHAPE(3) } } };
static const op_refusal outer_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 1), SHAPE(5) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5), NUMBER }, { GD_F32, GD_F32 }, { 0 } }
};
FUNCTION(outer, 2, DE, RESULT_NUMERIC, 0, gd_outer(x, y), VALUES(-20, 20), VALUES(-20, 20))

static const op_case dot_cases[] = { { .shape = { SHAPE(13), SHAPE(13) } },
                                     { .shape = { SHAPE(0), SHAPE(0) } } };
static const op_refusal dot_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(7) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 1), SHAPE(5) }, { GD_F32, GD_F32 }, { 0 } }
};
FUNCTION(dot, 2, D | OP_SUM, RESULT_NUMERIC, 16, gd_dot(x, y), VALUES(0.5, 2), VALUES(0.5, 2))

static const op_case affine_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(7, 3), SHAPE(3) } },
                                        { .shape = { SHAPE(2, 5, 7), SHAPE(7, 3), SHAPE(3) } } };
static const op_refusal affine_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(7, 3), SHAPE(4) }, { GD_F32, GD_F32, GD_F32 }, { 0 } }
};
FUNCTION(affine, 3, D | OP_SUM, RESULT_NUMERIC, 32, gd_linear(x, y, z), VALUES(0.5, 2),
         VALUES(0.5, 2), VALUES(0.5, 2))

/* ---- indexing: axes have at least 5 elements where they are indexed ---- */

static const op_case gather_cases[] = {
    { { SHAPE(5, 7), SHAPE(3, 7) }, { 0 } },        { { SHAPE(5, 7), SHAPE(4, 11) }, { 1 } },
    { { SHAPE(2, 5, 3), SHAPE(2, 5, 2) }, { -2 } }, { { SHAPE(13), SHAPE(17) }, { 0 } },
    { { SHAPE(5, 7), SHAPE(0, 7) }, { 0 } },        { { SHAPE(5, 300), SHAPE(9, 300) }, { 0 } },
};
static const op_refusal gather_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(5, 7), SHAPE(3, 7) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3, 8) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3, 7) }, { GD_F32, GD_I64 }, { 2 } },
    { GD_ERR_INVALID,
      { SHAPE(1, 7), SHAPE(3, 7) },
      { GD_F32, GD_I64 },
      { 0 } }, /* indices out of range */
    { GD_ERR_INVALID, { SHAPE(0, 7), SHAPE(3, 7) }, { GD_F32, GD_I32 }, { 0 } },
};
OP(gather, 2, DE, RESULT_SAME, 0, gd_gather(x, y, (int)p[0]), VALUES(-20, 20), INDICES(5))

static const op_case scatter_add_cases[] = {
    { { SHAPE(5, 7), SHAPE(9, 7), SHAPE(9, 7) }, { 0 } },
    { { SHAPE(5, 7), SHAPE(4, 3), SHAPE(4, 3) }, { 1 } },
    { { SHAPE(13), SHAPE(17), SHAPE(17) }, { -1 } },
    { { SHAPE(5, 7), SHAPE(0, 7), SHAPE(0, 7) }, { 0 } },
    { { SHAPE(5, 300), SHAPE(9, 300), SHAPE(9, 300) }, { 0 } },
};
static const op_refusal scatter_add_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(5, 7), SHAPE(3, 7), SHAPE(3, 7) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3, 7), SHAPE(2, 7) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3, 8), SHAPE(3, 8) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3, 7), SHAPE(3, 7) }, { GD_F32, GD_I64, GD_F32 }, { 2 } },
    { GD_ERR_INVALID,
      { SHAPE(1, 7), SHAPE(3, 7), SHAPE(3, 7) },
      { GD_F32, GD_I64, GD_F32 },
      { 0 } },
};
OP(scatter_add, 3, D | OP_SUM, RESULT_NUMERIC, 8, gd_scatter_add(x, y, z, (int)p[0]),
   VALUES(0.5, 2), INDICES(5), VALUES(0.5, 2))

static const op_case one_hot_cases[] = { { { SHAPE(5, 3) }, { 5, GD_F32 } },
                                         { { NUMBER }, { 7, GD_I64 } },
                                         { { SHAPE(3) }, { 2, GD_BOOL } },
                                         { { SHAPE(3) }, { 5, GD_F16 } },
                                         { { SHAPE(3) }, { 5, GD_BF16 } } };
static const op_refusal one_hot_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(5) }, { GD_F32 }, { 5, GD_F32 } },
    { GD_ERR_INVALID, { SHAPE(5) }, { GD_I32 }, { -1, GD_F32 } }
};
FUNCTION(one_hot, 1, E | OP_NO_SPECIALS, RESULT_FREE, 0, gd_one_hot(x, p[0], (gd_dtype)p[1]),
         INDICES(5))

/* ---- softmax and losses ---- */

#define softmax_cases        cumsum_cases
#define softmax_refusals     cumsum_refusals
#define log_softmax_cases    cumsum_cases
#define log_softmax_refusals cumsum_refusals
OP(softmax, 1, D, RESULT_FLOAT, 16, gd_softmax(x, (int)p[0]), VALUES(-4, 4))
OP(log_softmax, 1, D, RESULT_FLOAT, 64, gd_log_softmax(x, (int)p[0]), VALUES(-4, 1))

static const op_case cross_entropy_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(5) } },    { .shape = { SHAPE(1, 13), SHAPE(1) } },
    { .shape = { SHAPE(0, 5), SHAPE(0) } },    { .shape = { SHAPE(50, 10), SHAPE(50) } },
    { .shape = { SHAPE(3, 1031), SHAPE(3) } },
};
static const op_refusal cross_entropy_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(4) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(5) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE,
      { SHAPE(5, 7), SHAPE(5) },
      { GD_F32, GD_F32 },
      { 0 } }, /* probabilities of another shape */
    { GD_ERR_INVALID,
      { SHAPE(9, 1), SHAPE(9) },
      { GD_F32, GD_I64 },
      { 0 } }, /* labels out of range */
    { GD_ERR_INVALID, { SHAPE(9, 1), SHAPE(9) }, { GD_F64, GD_U8 }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(5, 7), SHAPE(5) }, { GD_F32, GD_BOOL }, { 0 } },
};
OP(cross_entropy, 2, D, RESULT_FLOAT, 64, gd_cross_entropy_each(x, y), VALUES(-4, 1), INDICES(5))

static const op_case cross_entropy_grad_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(5), SHAPE(5) } },
    { .shape = { SHAPE(0, 5), SHAPE(0), SHAPE(0) } },
    { .shape = { SHAPE(50, 10), SHAPE(50), SHAPE(50) } },
};
static const op_refusal cross_entropy_grad_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5), SHAPE(4) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(4), SHAPE(5) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(9, 1), SHAPE(9), SHAPE(9) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
};
/* Logits in halves as they are where the device reads them so and no derivatives follow, as gd_cross_entropy has it. */
static gd_tensor *class_gradient(gd_tensor *const *in)
{
    const gd_rounded_attr attr = { 0 };
    for (int i = 0; i < 3; i++)
        if (!gd_usable(in[i], "gd_cross_entropy"))
            return NULL;
    gd_tensor *given[3] = { in[0], in[1], gd_widen(in[2]) };
    if (gd_has_history(in[0]) || gd_has_history(in[2]) ||
        !gd_may_read_halves(GD_OP_cross_entropy_grad, 3, given, &attr))
        given[0] = gd_widen(in[0]);
    return gd_apply(NULL, GD_OP_cross_entropy_grad, 3, given, &attr);
}
OP(cross_entropy_grad, 3, D | OP_FLOATS_ONLY, RESULT_SUMS, 64, class_gradient(in), VALUES(-4, 1),
   INDICES(5), VALUES(0.5, 2))

static const op_case cross_entropy_mean_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(5) } },
                                                    { .shape = { SHAPE(50, 10), SHAPE(50) } } };
FUNCTION_SAFE(cross_entropy_mean, 2, D, RESULT_FLOAT, 64, gd_cross_entropy(x, y), VALUES(-4, 1),
              INDICES(5))

static const op_case cross_entropy_soft_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(5, 7) } } };
static const op_refusal cross_entropy_soft_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 6) }, { GD_F32, GD_F32 }, { 0 } }
};
FUNCTION(cross_entropy_soft, 2, D | OP_FLOATS_ONLY, RESULT_FLOAT, 64, gd_cross_entropy(x, y),
         VALUES(-4, 1), VALUES(0.1, 1))

static const op_case mse_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(5, 7) } },
                                     { .shape = { NUMBER, NUMBER } } };
static const op_refusal mse_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5, 6) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(13), NUMBER }, { GD_F32, GD_F32 }, { 0 } },
};
FUNCTION(mse, 2, D, RESULT_FLOAT, 64, gd_mse(x, y), VALUES(-20, -2), VALUES(0, 20))

static const op_case accuracy_cases[] = { { .shape = { SHAPE(50, 5), SHAPE(50) } } };
static const op_refusal accuracy_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(5) }, { GD_F32, GD_I64 }, { 0 } }
};
FUNCTION(accuracy, 2, E, RESULT_F32, 0, gd_accuracy(x, y), VALUES(-4, 4), INDICES(5))

/* ---- effects ---- */

static const op_case assign_cases[] = { { .shape = { SHAPE(5, 7) } },
                                        { .shape = { SHAPE(7) } },
                                        { .shape = { SHAPE(0) } },
                                        { .shape = { NUMBER } } };
static const op_refusal assign_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(4) }, { GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 5, 7) }, { GD_F32 }, { 0 } }
};

/* Into a new tensor [5, 7] of x's dtype, or of its shape when x is 0-d or empty, made before the
 * trace. */
static gd_tensor *assigned(gd_context *context, gd_tensor *x)
{
    gd_shape shape = gd_tensor_count(x) > 1 ? GD_SHAPE(5, 7) : gd_tensor_shape(x);
    gd_trace_pause(context);
    gd_tensor *target = gd_zeros(context, shape, gd_tensor_dtype(x));
    gd_trace_resume(context);
    return gd_assign(target, x);
}
OP(assign, 1, E, RESULT_SAME, 0, x ? assigned(context, x) : gd_assign(x, x), VALUES(-20, 20))

/* ---- updates ---- */

static const op_case adam_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(5, 7), SHAPE(5, 7) } },
                                      { .shape = { SHAPE(0, 3), SHAPE(0, 3), SHAPE(0, 3) } },
                                      { .shape = { SHAPE(1031), SHAPE(1031), SHAPE(1031) } },
                                      { .shape = { NUMBER, NUMBER, NUMBER } } };

/* All results of a step of parameter x, gradient y, first moment z and second moment z^2. */
static gd_tensor *adam_results(gd_tensor *x, gd_tensor *y, gd_tensor *z)
{
    gd_tensor *in[GD_ADAM_OPERANDS] = { x, y, z, gd_square(z) }, *out[GD_ADAM_RESULTS];
    static const double number[] = { 0.02, 1e-6, 0.1, 0.999, 0.001, 0.99 };
    for (int k = GD_ADAM_NUMBERS; x && k < GD_ADAM_OPERANDS; k++)
        in[k] = gd_scalar(gd_tensor_context(x), number[k - GD_ADAM_NUMBERS], gd_tensor_dtype(x));
    if (!gd_adam_step(in, out))
        return NULL;
    gd_tensor *one[GD_ADAM_RESULTS];
    for (int r = 0; r < GD_ADAM_RESULTS; r++)
        one[r] = gd_reshape(out[r], GD_SHAPE(gd_tensor_count(x)));
    return gd_concat(GD_ADAM_RESULTS, one, 0);
}
OP_SAFE(adam, 3, E | OP_FLOATS_ONLY | OP_NO_HALVES, RESULT_SAME, 0, adam_results(x, y, z),
        VALUES(-2, 2), VALUES(-2, 2), VALUES(0.5, 2))

/* The same with moments in bf16, which the next words of the stream round. */
#define adam_bf16_cases adam_cases
static gd_tensor *adam_bf16_results(gd_tensor *x, gd_tensor *y, gd_tensor *z)
{
    gd_tensor *in[GD_ADAM_BF16_OPERANDS] = { x, y, gd_cast(z, GD_BF16),
                                             gd_cast(gd_square(z), GD_BF16) };
    gd_tensor *out[GD_ADAM_RESULTS], *one[GD_ADAM_RESULTS];
    static const double number[] = { 0.02, 1e-6, 0.1, 0.999, 0.001, 0.99 };
    for (int k = GD_ADAM_NUMBERS; x && k < GD_ADAM_WORDS; k++)
        in[k] = gd_scalar(gd_tensor_context(x), number[k - GD_ADAM_NUMBERS], gd_tensor_dtype(x));
    if (x)
        in[GD_ADAM_WORDS] = gd_random_words(gd_tensor_context(x), gd_tensor_shape(x));
    if (!gd_adam_step_bf16(in, out))
        return NULL;
    for (int r = 0; r < GD_ADAM_RESULTS; r++)
        one[r] = gd_cast(gd_reshape(out[r], GD_SHAPE(gd_tensor_count(x))), gd_tensor_dtype(x));
    return gd_concat(GD_ADAM_RESULTS, one, 0);
}
OP_SAFE(adam_bf16, 3, E | OP_FLOATS_ONLY | OP_NO_HALVES | OP_RANDOM, RESULT_SAME, 0,
        adam_bf16_results(x, y, z), VALUES(-2, 2), VALUES(-2, 2), VALUES(0.5, 2))

/* ---- what the compiler makes of several ops (test_op_modes.c sees to it that it does) ---- */

#define linear_cases affine_cases
OP_SAFE(linear, 3, OP_SUM, RESULT_NUMERIC, 32, gd_relu(gd_linear(x, y, z)), VALUES(-0.5, 2),
        VALUES(0.5, 2), VALUES(0.5, 2))

static const op_case matmul_relu_grad_cases[] = {
    { .shape = { SHAPE(5, 7), SHAPE(7, 3), SHAPE(5, 3) } },
    { .shape = { SHAPE(2, 3, 4), SHAPE(4, 5), SHAPE(2, 3, 5) } },
    { .shape = { SHAPE(1, 300), SHAPE(300, 33), SHAPE(1, 33) } },
    { .shape = { SHAPE(17, 9), SHAPE(9, 1), SHAPE(17, 1) } },
    { .shape = { SHAPE(3, 0), SHAPE(0, 4), SHAPE(3, 4) } },
    { .shape = { SHAPE(31, 270), SHAPE(270, 35), SHAPE(31, 35) } },
};
OP_SAFE(matmul_relu_grad, 3, OP_SUM, RESULT_NUMERIC, 32, gd_relu_grad(gd_matmul(x, y), z),
        VALUES(-0.5, 2), VALUES(0.5, 2), VALUES(-2, 2))

#define extra_result_cases fused_cases
static const op_case fused_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(7) } },
                                       { .shape = { SHAPE(3, 1031), NUMBER } } };
OP_SAFE(fused, 2, E | OP_DIFFERENTIABLE, RESULT_NUMERIC, 0,
        gd_sub(gd_mul(gd_add(x, y), y), gd_relu(x)), VALUES(-20, 20), VALUES(-20, 20))

/* One group that keeps three values of one shape, for the concatenation. */
static gd_tensor *three_results(gd_tensor *x, gd_tensor *y)
{
    gd_tensor *a = gd_add(x, y), *b = gd_mul(a, x);
    return gd_concat(3, (gd_tensor *[]){ gd_neg(a), b, gd_sub(b, gd_relu(a)) }, 0);
}
OP_SAFE(extra_result, 2, E | OP_DIFFERENTIABLE, RESULT_NUMERIC, 0, three_results(x, y),
        VALUES(-20, 20), VALUES(-20, 20))

/* ---- the table: by the lists that make the ids, so that none can be left out ---- */

#define GD_UNARY(name, ...)   extern const op_row op_row_##name;
#define GD_BINARY(name, ...)  extern const op_row op_row_##name;
#define GD_TERNARY(name, ...) extern const op_row op_row_##name;
#include "ops/elementwise.def"
#define GD_OP(name) extern const op_row op_row_##name;
#include "ops/op_list.def"

// clang-format off
#define FUNCTIONS(_)                                                                               \
    _(clip) _(add_scalar) _(sub_scalar) _(rsub_scalar) _(mul_scalar) _(mul_fraction) _(div_scalar) \
    _(rdiv_scalar) _(pow_scalar) _(normal) _(linspace) _(eye)        \
    _(transpose) _(select) _(flip) _(squeeze) _(unsqueeze) _(stack) _(zeros_like) _(mean) _(var)    \
    _(std) _(logsumexp) _(all) _(any) _(outer) _(dot) _(affine) _(one_hot) _(cross_entropy_mean)   \
    _(cross_entropy_soft) _(mse) _(accuracy) ARRANGE_FUNCTIONS(_) SORT_FUNCTIONS(_) LOSS_FUNCTIONS(_) NORM_FUNCTIONS(_) \
    ATTENTION_FUNCTIONS(_) CONV_FUNCTIONS(_) STATISTICS_FUNCTIONS(_)
/* op_rows_statistics.c */
#define STATISTICS_FUNCTIONS(_)                                                                    \
    _(quantile) _(median) _(cummax) _(cummin) _(cummax_indices) _(diff) _(count_nonzero)           \
    _(bincount) _(bincount_weighted) _(histogram) _(isclose) _(isin) _(eq_scalar) _(ne_scalar)     \
    _(lt_scalar) _(le_scalar) _(gt_scalar) _(ge_scalar) _(maximum_scalar) _(minimum_scalar)        \
    _(nan_to_num) _(lerp) _(flatten) _(movedim) _(squeeze_all) _(ones_like) _(full_like)           \
    _(randint)
/* op_rows_attention.c */
#define ATTENTION_FUNCTIONS(_) _(attention_plain) _(recurrent_plain) _(recurrent_positive) _(rope)
/* op_rows_conv.c */
#define CONV_FUNCTIONS(_)                                                                          \
    _(conv_without_bias) _(conv_transpose) _(adaptive_avg_pool) _(adaptive_max_pool)               \
    _(global_avg_pool) _(global_max_pool)
/* op_rows_sort.c */
#define SORT_FUNCTIONS(_)                                                                          \
    _(sort) _(topk) _(permutation) _(index) _(index_around) _(index_negative) _(index_put)         \
    _(index_accumulate) _(einsum) _(einsum_pair) _(einsum_triple)
/* op_rows_arrange.c */
#define ARRANGE_FUNCTIONS(_)                                                                       \
    _(take) _(index_select) _(embedding) _(index_add) _(masked_fill) _(split) _(chunk) _(tile)     \
    _(repeat) _(roll) _(tril) _(triu) _(diagonal) _(diag_embed) _(diag) _(meshgrid)                \
    _(pad_reflect) _(pad_replicate) _(norm) _(prelu) _(glu) _(log_sigmoid) _(leaky_relu) _(relu6)  \
    _(elu) _(selu) _(mish) _(hard_sigmoid) _(hard_swish) _(softsign)                               \
    _(bernoulli) _(categorical) _(truncated_normal) _(asinh) _(acosh) _(atanh) _(digamma)          \
    _(isfinite) _(floor_div_scalar) _(mod_scalar) _(rpow_scalar) _(rfloor_div_scalar) _(rmod_scalar) _(hypot) _(logaddexp) _(clamp)    \
    _(bitwise_not) _(left_shift) _(right_shift)
/* op_rows_loss.c */
#define LOSS_FUNCTIONS(_)                                                                          \
    _(cross_entropy_smooth) _(cross_entropy_weighted) _(cross_entropy_soft_weighted)               \
    _(cross_entropy_rows) _(cross_entropy_probabilities) _(cross_entropy_probabilities_soft) _(nll) _(bce) _(bce_with_logits) _(bce_pos_weight) _(focal) _(focal_other) \
    _(hinge) _(hinge_embedding) _(kl_div) _(kl_div_log) _(mae) _(huber) _(smooth_l1)               \
    _(cosine_similarity) _(cosine_embedding) _(triplet_margin) _(triplet_margin_other) _(ctc)
/* op_rows_norm.c */
#define NORM_FUNCTIONS(_)                                                                          \
    _(rms_norm) _(layer_norm_bias) _(group_norm) _(instance_norm) _(batch_norm) _(batch_norm_eval)
// clang-format on
#define DECLARE(name) extern const op_row op_row_##name;
FUNCTIONS(DECLARE)

#define ENTRY(name) &op_row_##name,
const op_row *const op_rows[] = {
#define GD_UNARY(name, ...)   [GD_OP_##name] = &op_row_##name,
#define GD_BINARY(name, ...)  [GD_OP_##name] = &op_row_##name,
#define GD_TERNARY(name, ...) [GD_OP_##name] = &op_row_##name,
#include "ops/elementwise.def"
#define GD_OP(name) [GD_OP_##name] = &op_row_##name,
#include "ops/op_list.def"
    FUNCTIONS(ENTRY)
};
const int op_row_count = COUNT(op_rows);

/* The functions stand behind the ops, and every id has its entry. */
#define ONE(name) +1
_Static_assert(COUNT(op_rows) == GD_OP_COUNT FUNCTIONS(ONE),
               "the rows of op_rows.c do not match the lists of ops");

bool op_row_is_named(const op_row *row)
{
    const size_t length = strlen(row->name);
    for (const char *names = getenv("GRADUS_TEST_ROWS"); names; names = strchr(names, ',')) {
        names += *names == ',';
        if (strncmp(names, row->name, length) == 0 && strchr(",", names[length]))
            return true;
    }
    return false;
}

bool op_row_takes(const op_row *row, gd_dtype dtype)
{
    if (row->operands == 0)
        return dtype == GD_F32;
    if (row->operand[0].kind == OPERAND_INDEX && row->operands == 1)
        return dtype == GD_I64 || dtype == GD_I32;
    if (row->flags & OP_INTEGERS_ONLY)
        return !gd_dtype_is_float(dtype);
    if (gd_dtype_is_half(dtype))
        return !(row->flags & OP_NO_HALVES);
    return gd_dtype_is_float(dtype) || !(row->flags & OP_FLOATS_ONLY);
}

/* ---- large operands ---- */

const op_large op_large_cases[] = {
    { NULL, { .shape = { SHAPE(127, 1031), SHAPE(127, 1031), SHAPE(127, 1031) } } },
    { NULL, { .shape = { SHAPE(509, 257), SHAPE(257), SHAPE(509, 1) } } },
    { "copy", { .shape = { SHAPE(509, 257) } } },
    { "copy", { .shape = { SHAPE(3, 131, 97) } } },
    { "cast", { { SHAPE(509, 257) }, { GD_BF16 } } },
    { "pad", { { SHAPE(509, 257) }, { 1, 2, 3, 4, 5 } } },
    { "concat", { { SHAPE(301, 257), SHAPE(7, 257), SHAPE(203, 257) }, { 0 } } },
    { "random_bits", { .p = { 2, 509, 257, GD_F32 } } },
    { "normal", { .p = { 2, 509, 257, GD_F64 } } },
    { "dropout", { { SHAPE(509, 257) }, { 25 } } },
    { "categorical", { { SHAPE(509, 257) }, { 1 } } },
    { "sum", { { SHAPE(509, 257) }, { 10, 0 } } },
    { "sum", { { SHAPE(509, 257) }, { 11, 0 } } },
    { "sum", { { SHAPE(509, 257) }, { 0, 0 } } },
    { "sum", { { SHAPE(131, 31, 37) }, { 102, 0 } } },
    { "prod", { { SHAPE(509, 257) }, { 11, 0 } } },
    { "max", { { SHAPE(509, 257) }, { 10, 0 } } },
    { "min", { { SHAPE(509, 257) }, { 0, 0 } } },
    { "mean", { { SHAPE(509, 257) }, { 0, 0 } } },
    { "var", { { SHAPE(509, 257) }, { 10, 0 } } },
    { "argmax", { { SHAPE(509, 257) }, { 0, 0 } } },
    { "argmin", { { SHAPE(509, 257) }, { 1, 0 } } },
    { "centred_products", { { SHAPE(67, 31, 97), SHAPE(31), SHAPE(67, 31, 97) }, { 0 } } },
    { "centred_products", { { SHAPE(3, 5, 131, 97), SHAPE(5), SHAPE(3, 5, 131, 97) }, { 1 } } },
    { "cumsum", { { SHAPE(509, 257) }, { 0 } } },
    { "cumprod", { { SHAPE(509, 257) }, { 1 } } },
    { "matmul", { .shape = { SHAPE(251, 317), SHAPE(317, 193) } } },
    { "matmul", { .shape = { SHAPE(7, 67, 71), SHAPE(7, 71, 61) } } },
    { "matmul", { .shape = { SHAPE(701, 513), SHAPE(513) } } },
    { "quantized_linear", { .shape = { SHAPE(7, 1056), SHAPE(131, 1056), SHAPE(131, 33) } } },
    { "quantized_linear", { .shape = { SHAPE(301, 544), SHAPE(37, 544), SHAPE(37, 17) } } },
    { "quantized_linear", { .shape = { SHAPE(7, 1056), SHAPE(131, 528), SHAPE(131, 33) } } },
    { "quantized_linear", { .shape = { SHAPE(7, 1024), SHAPE(131, 576), SHAPE(131, 8) } } },
    { "quantized_linear", { .shape = { SHAPE(301, 512), SHAPE(37, 544), SHAPE(37, 2) } } },
    { "affine", { .shape = { SHAPE(251, 317), SHAPE(317, 193), SHAPE(193) } } },
    { "convolution", { { SHAPE(3, 12, 29, 37), SHAPE(20, 12, 3, 3), SHAPE(20) }, { 2, 1, 1 } } },
    { "convolution",
      { { SHAPE(2, 24, 29, 23), SHAPE(24, 1, 3, 3), SHAPE(24) }, { 2, 1, 1, 1, 24 } } },
    { "convolution", { { SHAPE(2, 5, 29, 23), SHAPE(31, 5, 5, 3), SHAPE(31) }, { 2, 2, 1 } } },
    { "convolution", { { SHAPE(46, 7, 9, 11), SHAPE(9, 7, 3, 3), SHAPE(9) }, { 2, 1, 1 } } },
    { "convolution_grad_input", { { SHAPE(46, 9, 9, 11), SHAPE(9, 7, 3, 3) }, { 2, 1, 1 } } },
    { "max_pool", { { SHAPE(9, 12, 29, 37) }, { 2, 3, 2, 1 } } },
    { "max_pool", { { SHAPE(9, 12, 30, 38) }, { 2, 2 } } },
    { "avg_pool", { { SHAPE(9, 12, 29, 37) }, { 2, 2 } } },
    { "gather", { { SHAPE(5, 20011), SHAPE(9, 20011) }, { 0 } } },
    { "take", { { SHAPE(5, 20011), SHAPE(3, 4) }, { 0 } } },
    { "take", { { SHAPE(301, 5, 67), SHAPE(7) }, { 1 } } },
    { "index_add", { { SHAPE(5, 20011), SHAPE(9), SHAPE(9, 20011) }, { 0 } } },
    { "scatter", { { SHAPE(5, 20011), SHAPE(9, 20011), SHAPE(9, 20011) }, { 0 } } },
    { "argsort", { { SHAPE(61, 67) }, { 1, 0 } } },
    { "argsort", { { SHAPE(3, 2003) }, { 1, 1 } } },
    { "topk", { { SHAPE(3, 2003) }, { 9, 1, 1 } } },
    { "scatter_add", { { SHAPE(5, 20011), SHAPE(9, 20011), SHAPE(9, 20011) }, { 0 } } },
    { "scatter_add", { { SHAPE(40009), SHAPE(50021), SHAPE(50021) }, { 0 } } },
    { "softmax", { { SHAPE(509, 257) }, { 1 } } },
    { "softmax", { { SHAPE(509, 257) }, { 0 } } },
    { "log_softmax", { { SHAPE(509, 257) }, { 1 } } },
    { "attention_result", { { SHAPE(3, 251, 3), SHAPE(3, 257, 3), SHAPE(3, 257, 5) }, { 1 } } },
    { "attention_grad", { { SHAPE(4, 67, 4), SHAPE(2, 2, 131, 4), SHAPE(4, 67, 4) }, { 0, 3 } } },
    { "cross_entropy", { .shape = { SHAPE(509, 257), SHAPE(509) } } },
    { "cross_entropy_grad", { .shape = { SHAPE(509, 257), SHAPE(509), SHAPE(509) } } },
    { "ctc_alpha", { .shape = { SHAPE(67, 31, 21), SHAPE(67, 21) } } },
    { "ctc_alpha_grad", { .shape = { SHAPE(67, 31, 21), SHAPE(67, 21), SHAPE(67, 31, 21) } } },
    { "normalize", { { SHAPE(509, 257), SHAPE(257), SHAPE(257) }, { 1 } } },
    { "normalize_grad", { { SHAPE(1109, 97), SHAPE(1109, 97), SHAPE(97) }, { 1, 2 } } },
    { "normalize_grad", { { SHAPE(67, 1031), SHAPE(67, 1031), SHAPE(1031) }, { 0, 1 } } },
};
const int op_large_count = COUNT(op_large_cases);

bool op_large_concerns(const op_large *large, const op_row *row)
{
    return large->row ? strcmp(large->row, row->name) == 0 : row->id < GD_OP_ELEMENTWISE_COUNT;
}
