/* tests/support/op_rows_arrange.c: the rows of what takes, repeats and rearranges elements
 * (ops/arrange.c, the rows of ops/index.c), and of norms. */
#include "support/op_row_macros.h"

#include <math.h>

/* ---- whole rows ---- */

static const op_case take_cases[] = {
    { { SHAPE(5, 7), SHAPE(4) }, { 0 } },        { { SHAPE(3, 5, 2), SHAPE(2, 3) }, { 1 } },
    { { SHAPE(4, 5), SHAPE(3, 1, 2) }, { -1 } }, { { SHAPE(6), NUMBER }, { 0 } },
    { { SHAPE(5, 3), SHAPE(0, 2) }, { 0 } },     { { SHAPE(5, 0), SHAPE(3) }, { 0 } },
    { { SHAPE(5, 300), SHAPE(9) }, { 0 } },
};
static const op_refusal take_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(5, 7), SHAPE(3) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(5, 7), SHAPE(3) }, { GD_F32, GD_BOOL }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3) }, { GD_F32, GD_I64 }, { 2 } },
    { GD_ERR_SHAPE, { NUMBER, SHAPE(3) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 1, 1, 1, 1), SHAPE(1, 1, 1, 1, 1) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(1, 7), SHAPE(3) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(0, 7), SHAPE(3) }, { GD_F32, GD_I32 }, { 0 } },
};
FUNCTION(take, 2, DE, RESULT_SAME, 0, gd_take(x, y, (int)p[0]), VALUES(-20, 20), INDICES(4))

static const op_case index_select_cases[] = { { { SHAPE(5, 7), SHAPE(4) }, { 0 } },
                                              { { SHAPE(3, 5), SHAPE(3) }, { -1 } } };
static const op_refusal index_select_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3, 1) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(1, 7), SHAPE(3) }, { GD_F32, GD_I64 }, { 0 } },
};
FUNCTION(index_select, 2, DE, RESULT_SAME, 0, gd_index_select(x, y, (int)p[0]), VALUES(-20, 20),
         INDICES(4))

static const op_case embedding_cases[] = { { .shape = { SHAPE(4, 7), SHAPE(2, 3) } },
                                           { .shape = { SHAPE(4, 1), NUMBER } } };
static const op_refusal embedding_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7, 2), SHAPE(3) }, { GD_F32, GD_I64 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(1, 7), SHAPE(3) }, { GD_F32, GD_I64 }, { 0 } },
};
FUNCTION(embedding, 2, DE, RESULT_SAME, 0, gd_embedding(y, x), VALUES(-20, 20), INDICES(4))

static const op_case index_add_cases[] = {
    { { SHAPE(5, 7), SHAPE(9), SHAPE(9, 7) }, { 0 } },
    { { SHAPE(3, 5, 2), SHAPE(4), SHAPE(3, 4, 2) }, { 1 } },
    { { SHAPE(4, 5), SHAPE(0), SHAPE(4, 0) }, { -1 } },
};
static const op_refusal index_add_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3), SHAPE(4, 7) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3, 1), SHAPE(3, 7) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3), SHAPE(3, 7) }, { GD_F32, GD_I64, GD_F32 }, { 2 } },
    { GD_ERR_DTYPE, { SHAPE(5, 7), SHAPE(3), SHAPE(3, 7) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(1, 7), SHAPE(3), SHAPE(3, 7) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
};
FUNCTION(index_add, 3, D | OP_SUM, RESULT_NUMERIC, 8, gd_index_add(x, y, z, (int)p[0]),
         VALUES(0.5, 2), INDICES(4), VALUES(0.5, 2))

static const op_case masked_fill_cases[] = { { { SHAPE(5, 7), SHAPE(5, 7) }, { 3 } },
                                             { { SHAPE(2, 5, 7), SHAPE(7) }, { 2 } } };
static const op_refusal masked_fill_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(5), SHAPE(5) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(4) }, { GD_F32, GD_BOOL }, { 0 } },
};
FUNCTION(masked_fill, 2, DE, RESULT_SAME, 0, gd_masked_fill(x, y, (double)p[0]), VALUES(-20, 20),
         { 0, 2, OPERAND_TRUTH })

/* ---- pieces: joined again in another order, so that each is seen ---- */

static gd_tensor *split_and_join(gd_tensor *x, const int64_t *p)
{
    gd_tensor *piece[3] = { NULL };
    gd_status status = gd_split(x, (int)p[0], 3, (int64_t[]){ p[1], p[2], p[3] }, piece);
    if (status != GD_OK)
        return piece[0];
    return gd_concat(3, (gd_tensor *[]){ piece[2], piece[0], piece[1] }, (int)p[0]);
}
static const op_case split_cases[] = { { { SHAPE(7, 3) }, { 0, 2, 4, 1 } },
                                       { { SHAPE(2, 5) }, { -1, 0, 3, 2 } } };
static const op_refusal split_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(7) }, { GD_F32 }, { 0, 2, 4, 2 } },
    { GD_ERR_SHAPE, { SHAPE(7) }, { GD_F32 }, { 0, 2, 4, 0 } },
    { GD_ERR_SHAPE, { SHAPE(7) }, { GD_F32 }, { 0, 9, -3, 1 } },
    { GD_ERR_SHAPE, { SHAPE(7) }, { GD_F32 }, { 1, 2, 4, 1 } },
};

static gd_tensor *chunk_and_join(gd_tensor *x, const int64_t *p)
{
    gd_tensor *piece[3] = { NULL };
    if (gd_chunk(x, (int)p[0], (int)p[1], piece) != GD_OK)
        return piece[0];
    return gd_concat(2, (gd_tensor *[]){ piece[p[1] - 1], piece[0] }, (int)p[0]);
}
static const op_case chunk_cases[] = { { { SHAPE(7, 3) }, { 0, 3 } },
                                       { { SHAPE(2, 4) }, { -1, 2 } },
                                       { { SHAPE(2) }, { 0, 3 } } };
static const op_refusal chunk_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(7) }, { GD_F32 }, { 0, 0 } },
    { GD_ERR_SHAPE, { SHAPE(7) }, { GD_F32 }, { 1, 2 } },
};

/* The vectors' grids, subtracted, which does not commute. */
static gd_tensor *grids(gd_tensor *x, gd_tensor *y)
{
    gd_tensor *grid[2] = { NULL };
    if (gd_meshgrid(2, (gd_tensor *[]){ x, y }, grid) != GD_OK)
        return grid[1];
    return gd_sub(grid[0], grid[1]);
}
static const op_case meshgrid_cases[] = { { .shape = { SHAPE(5), SHAPE(3) } },
                                          { .shape = { SHAPE(0), SHAPE(3) } } };
static const op_refusal meshgrid_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 1), SHAPE(3) }, { GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5), NUMBER }, { GD_F32, GD_F32 }, { 0 } },
};

/* A NULL tensor is an error for these, which give a status: here it is no operand to begin with. */
FUNCTION(split, 1, DE, RESULT_SAME, 0, x ? split_and_join(x, p) : NULL, VALUES(-20, 20))
FUNCTION(chunk, 1, DE, RESULT_SAME, 0, x ? chunk_and_join(x, p) : NULL, VALUES(-20, 20))
FUNCTION(meshgrid, 2, DE, RESULT_NUMERIC, 0, x &&y ? grids(x, y) : NULL, VALUES(-20, 20),
         VALUES(-20, 20))

/* ---- repetition ---- */

static const op_case tile_cases[] = {
    { { SHAPE(2, 3) }, { 2, 2, 3 } },
    { { SHAPE(3) }, { 3, 2, 1, 2 } },
    { { SHAPE(2, 3, 2) }, { 1, 3 } },
    { { NUMBER }, { 2, 2, 3 } },
    { { SHAPE(2, 3) }, { 2, 0, 2 } },
    { { SHAPE(2, 0) }, { 2, 2, 2 } },
    { { SHAPE(1, 1, 1, 1, 1, 1, 1, 2) }, { 3, 2, 1, 2 } },
};
static const op_refusal tile_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(2) }, { GD_F32 }, { 9, 1 } },
    { GD_ERR_INVALID, { SHAPE(2) }, { GD_F32 }, { 1, -1 } },
    { GD_ERR_SHAPE, { SHAPE(2) }, { GD_F32 }, { 1, INT64_MAX } },
};
FUNCTION(tile, 1, DE, RESULT_SAME, 0, gd_tile(x, shape_of(p)), VALUES(-20, 20))

static const op_case repeat_cases[] = {
    { { SHAPE(2, 3) }, { 3, 0 } }, { { SHAPE(2, 3) }, { 2, -1 } }, { { SHAPE(2, 3) }, { 0, 0 } },
    { { SHAPE(2, 3) }, { 1, 1 } }, { { SHAPE(0, 3) }, { 2, 0 } },
};
static const op_refusal repeat_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(2) }, { GD_F32 }, { -1, 0 } },
    { GD_ERR_SHAPE, { SHAPE(2) }, { GD_F32 }, { 2, 1 } },
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 2, 0 } },
};
FUNCTION(repeat, 1, DE, RESULT_SAME, 0, gd_repeat(x, (int)p[1], p[0]), VALUES(-20, 20))

static const op_case roll_cases[] = {
    { { SHAPE(5, 3) }, { 2, 0 } }, { { SHAPE(5, 3) }, { -1, -1 } }, { { SHAPE(5) }, { 12, 0 } },
    { { SHAPE(5) }, { 0, 0 } },    { { SHAPE(0) }, { 3, 0 } },
};
static const op_refusal roll_refusals[] = { { GD_ERR_SHAPE, { SHAPE(2) }, { GD_F32 }, { 1, 1 } } };
FUNCTION(roll, 1, DE, RESULT_SAME, 0, gd_roll(x, (int)p[1], p[0]), VALUES(-20, 20))

/* ---- triangles and diagonals ---- */

static const op_case tril_cases[] = {
    { { SHAPE(4, 6) }, { 0 } },   { { SHAPE(2, 5, 3) }, { 1 } }, { { SHAPE(4, 4) }, { -2 } },
    { { SHAPE(3, 3) }, { 100 } }, { { SHAPE(0, 3) }, { 0 } },
};
static const op_refusal tril_refusals[] = { { GD_ERR_SHAPE, { SHAPE(5) }, { GD_F32 }, { 0 } },
                                            { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0 } } };
#define triu_cases    tril_cases
#define triu_refusals tril_refusals
FUNCTION(tril, 1, DE, RESULT_SAME, 0, gd_tril(x, p[0]), VALUES(-20, 20))
FUNCTION(triu, 1, DE, RESULT_SAME, 0, gd_triu(x, p[0]), VALUES(-20, 20))

static const op_case diagonal_cases[] = {
    { { SHAPE(4, 6) }, { 0, 0, 1 } },   { { SHAPE(4, 6) }, { 3, 0, 1 } },
    { { SHAPE(4, 3) }, { -2, 0, -1 } }, { { SHAPE(3, 2, 4) }, { 1, 2, 0 } },
    { { SHAPE(2, 3) }, { 3, 0, 1 } },   { { SHAPE(2, 3) }, { -2, 0, 1 } },
    { { SHAPE(0, 3) }, { 0, 0, 1 } },
};
static const op_refusal diagonal_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5) }, { GD_F32 }, { 0, 0, 1 } },
    { GD_ERR_SHAPE, { SHAPE(5, 2) }, { GD_F32 }, { 0, 1, -1 } },
    { GD_ERR_SHAPE, { SHAPE(5, 2) }, { GD_F32 }, { 0, 2, 0 } },
};
FUNCTION(diagonal, 1, DE, RESULT_SAME, 0, gd_diagonal(x, (int)p[1], (int)p[2], p[0]),
         VALUES(-20, 20))

static const op_case diag_embed_cases[] = {
    { { SHAPE(4) }, { 0 } },
    { { SHAPE(2, 3) }, { 2 } },
    { { SHAPE(3) }, { -1 } },
    { { SHAPE(0) }, { 1 } },
};
static const op_refusal diag_embed_refusals[] = {
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2) }, { GD_F32 }, { INT64_MIN } },
};
FUNCTION(diag_embed, 1, DE, RESULT_SAME, 0, gd_diag_embed(x, p[0]), VALUES(-20, 20))

static const op_case diag_cases[] = { { { SHAPE(4) }, { 1 } }, { { SHAPE(4, 3) }, { -1 } } };
static const op_refusal diag_refusals[] = {
    { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(2, 2, 2) }, { GD_F32 }, { 0 } }
};
FUNCTION(diag, 1, DE, RESULT_SAME, 0, gd_diag(x, p[0]), VALUES(-20, 20))

/* ---- padding: p is before and after of axis 0, then of axis 1 ---- */

static gd_shape paddings(const gd_tensor *x, const int64_t *p)
{
    gd_shape shape = gd_tensor_shape(x);
    for (int i = 0; i < shape.rank; i++)
        shape.dim[i] = i < 2 ? p[2 * i] : 0;
    return shape;
}
static const op_case pad_reflect_cases[] = {
    { { SHAPE(5, 4) }, { 2, 3, 0, 1 } }, { { SHAPE(3) }, { 7, 9 } },
    { { SHAPE(1, 2) }, { 2, 1 } },       { { SHAPE(2, 3, 2) }, { 0, 0, 2, 2 } },
    { { SHAPE(0, 2) }, { 0, 0, 1, 1 } }, { { NUMBER }, { 0 } },
};
static const op_refusal pad_reflect_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(0) }, { GD_F32 }, { 1, 0 } },
    { GD_ERR_SHAPE, { SHAPE(4) }, { GD_F32 }, { -1, 2 } },
    { GD_ERR_SHAPE, { SHAPE(4) }, { GD_F32 }, { 1, INT64_MAX } },
};
#define pad_replicate_cases    pad_reflect_cases
#define pad_replicate_refusals pad_reflect_refusals
FUNCTION(pad_reflect, 1, DE, RESULT_SAME, 0,
         x ? gd_pad_reflect(x, paddings(x, p), paddings(x, p + 1)) : NULL, VALUES(-20, 20))
FUNCTION(pad_replicate, 1, DE, RESULT_SAME, 0,
         x ? gd_pad_replicate(x, paddings(x, p), paddings(x, p + 1)) : NULL, VALUES(-20, 20))

/* ---- norms: p[0] the order, 100 for infinity ---- */

static double order_of(int64_t p)
{
    return p == 100 ? (double)INFINITY : p == -100 ? -(double)INFINITY : (double)p;
}
static const op_case norm_cases[] = {
    { { SHAPE(5, 7) }, { 2, 11, 0 } },   { { SHAPE(5, 7) }, { 1, 10, 1 } },
    { { SHAPE(5, 7) }, { 3, 0, 0 } },    { { SHAPE(5, 7) }, { 100, 11, 0 } },
    { { SHAPE(5, 7) }, { -100, 0, 0 } }, { { SHAPE(5, 7) }, { 0, 11, 1 } },
    { { SHAPE(0, 3) }, { 2, 10, 0 } },
};
static const op_refusal norm_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(5) }, { GD_F32 }, { -2, 0 } },
    { GD_ERR_SHAPE, { SHAPE(5) }, { GD_F32 }, { 2, 12 } },
    { GD_ERR_SHAPE, { SHAPE(0) }, { GD_F32 }, { 100, 0 } },
};
FUNCTION(norm, 1, D | OP_MUST_VARY, RESULT_FLOAT, 64,
         gd_norm(x, axes_of(p[1]), order_of(p[0]), p[2]), VALUES(0.5, 3))

/* ---- activations of more than one element ---- */

static const op_case prelu_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(7) } },
                                       { .shape = { SHAPE(2, 3, 4), SHAPE(3, 1) } } };
static const op_refusal prelu_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(5) }, { GD_F32, GD_F32 }, { 0 } }
};
FUNCTION(prelu, 2, DE, RESULT_NUMERIC, 0, gd_prelu(x, y), VALUES(-20, 20), VALUES(-1, 1))

static const op_case glu_cases[] = { { { SHAPE(5, 6) }, { 1 } }, { { SHAPE(4, 3) }, { -2 } } };
static const op_refusal glu_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 7) }, { GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { SHAPE(5, 6) }, { GD_F32 }, { 2 } },
};
FUNCTION(glu, 1, D, RESULT_FLOAT, 4, gd_glu(x, (int)p[0]), VALUES(-4, 4))

/* ---- of two or three numbers ---- */

static const op_case hypot_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(7) } },
                                       { .shape = { SHAPE(13), SHAPE(13) } },
                                       { .shape = { SHAPE(0), SHAPE(1) } } };
static const op_refusal hypot_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(4) }, { GD_F32, GD_F32 }, { 0 } }
};
#define logaddexp_cases    hypot_cases
#define logaddexp_refusals hypot_refusals
FUNCTION(hypot, 2, D, RESULT_FLOAT, 3, gd_hypot(x, y), VALUES(0.5, 20), VALUES(-20, -0.5))
FUNCTION(logaddexp, 2, D, RESULT_FLOAT, 4, gd_logaddexp(x, y), VALUES(0.5, 9), VALUES(0.5, 9))

static const op_case clamp_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(7), SHAPE(5, 1) } } };
FUNCTION_SAFE(clamp, 3, DE, RESULT_SAME, 0, gd_clamp(x, y, z), VALUES(-20, 20), VALUES(-9, -1),
              VALUES(1, 9))

static const op_case bitwise_not_cases[] = { { .shape = { SHAPE(5, 7) } } };
static const op_refusal bitwise_not_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(5) }, { GD_F32 }, { 0 } }
};
FUNCTION(bitwise_not, 1, E | OP_INTEGERS_ONLY, RESULT_SAME, 0, gd_bitwise_not(x), VALUES(-100, 100))

static const op_case left_shift_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(7) } } };
static const op_refusal left_shift_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(5), SHAPE(5) }, { GD_F32, GD_I32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5), SHAPE(4) }, { GD_I32, GD_I32 }, { 0 } },
};
#define right_shift_cases    left_shift_cases
#define right_shift_refusals left_shift_refusals
FUNCTION(left_shift, 2, E | OP_INTEGERS_ONLY, RESULT_NUMERIC, 0, gd_left_shift(x, y),
         VALUES(-100, 100), VALUES(0, 63))
FUNCTION(right_shift, 2, E | OP_INTEGERS_ONLY, RESULT_NUMERIC, 0, gd_right_shift(x, y),
         VALUES(-100, 100), VALUES(0, 63))
