/* tests/support/op_rows_sort.c: the rows of order (ops/sort.c), of indexing with several indices
 * (ops/indexing.c, ops/index.c) and of einsum. What depends on values for its size has no rows: see
 * tests/test_indexing.c. */
#include "support/op_row_macros.h"

#include <stddef.h>

/* ---- order: axis, descending ---- */

static const op_case argsort_cases[] = {
    { { SHAPE(5, 7) }, { 1, 0 } },   { { SHAPE(5, 7) }, { 0, 1 } },   { { SHAPE(13) }, { -1, 0 } },
    { { SHAPE(0, 3) }, { 0, 0 } },   { { SHAPE(3, 0) }, { 1, 0 } },   { { SHAPE(3, 1) }, { 1, 1 } },
    { { SHAPE(2, 301) }, { 1, 0 } }, { { SHAPE(2, 301) }, { 1, 1 } },
};
static const op_refusal argsort_refusals[] = { { GD_ERR_SHAPE, { SHAPE(5) }, { GD_F32 }, { 1 } },
                                               { GD_ERR_SHAPE, { NUMBER }, { GD_F32 }, { 0 } } };
OP(argsort, 1, E, RESULT_I64, 0, gd_argsort(x, (int)p[0], p[1]), VALUES(-6, 6))
#define sort_cases    argsort_cases
#define sort_refusals argsort_refusals
FUNCTION(sort, 1, DE | OP_MUST_VARY, RESULT_SAME, 0, gd_sort(x, (int)p[0], p[1]), VALUES(-20, 20))

/* k, axis, largest; the values, and the indices behind them */
static gd_tensor *top_both(gd_tensor *x, const int64_t *p)
{
    gd_tensor *indices, *values = gd_topk(x, (int)p[1], p[0], p[2], &indices);
    return values ? gd_concat(2, (gd_tensor *[]){ values, gd_cast(indices, gd_tensor_dtype(x)) },
                              (int)p[1])
                  : NULL;
}
static const op_case topk_cases[] = {
    { { SHAPE(5, 7) }, { 3, 1, 1 } },   { { SHAPE(17, 2) }, { 2, 0, 0 } },
    { { SHAPE(5) }, { 0, 0, 1 } },      { { SHAPE(5) }, { 5, -1, 0 } },
    { { SHAPE(2, 301) }, { 7, 1, 1 } },
};
static const op_refusal topk_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(5) }, { GD_F32 }, { 6, 0, 1 } },
    { GD_ERR_INVALID, { SHAPE(5) }, { GD_F32 }, { -1, 0, 1 } },
    { GD_ERR_SHAPE, { SHAPE(5) }, { GD_F32 }, { 1, 1, 1 } },
};
FUNCTION(topk, 1, DE | OP_MUST_VARY, RESULT_SAME, 0, top_both(x, p), VALUES(-20, 20))

static const op_case searchsorted_cases[] = { { { SHAPE(9), SHAPE(5, 7) }, { 0 } },
                                              { { SHAPE(9), SHAPE(13) }, { 1 } },
                                              { { SHAPE(0), SHAPE(3) }, { 0 } },
                                              { { SHAPE(4), NUMBER }, { 0 } } };
static const op_refusal searchsorted_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(5, 1), SHAPE(3) }, { GD_F32, GD_F32 }, { 0 } }
};
/* In any order of its first operand both back ends must agree: so it is sorted here. */
OP(searchsorted, 2, E, RESULT_I64, 0, gd_searchsorted(gd_sort(x, 0, false), y, p[0]), VALUES(-6, 6),
   VALUES(-6, 6))

static const op_case permutation_cases[] = { { .p = { 0 } }, { .p = { 1 } }, { .p = { 301 } } };
static const op_refusal permutation_refusals[] = { { GD_ERR_INVALID, .p = { -1 } } };
FUNCTION(permutation, 0, E | OP_RANDOM, RESULT_FREE, 0, gd_permutation(context, p[0]), { 0 })

/* ---- indices: axes have at least 4 elements where they are indexed ---- */

static const op_case scatter_cases[] = {
    { { SHAPE(5, 7), SHAPE(3, 7), SHAPE(3, 7) }, { 0 } },
    { { SHAPE(5, 7), SHAPE(4, 3), SHAPE(4, 3) }, { 1 } },
    { { SHAPE(6), SHAPE(9), SHAPE(9) }, { -1 } },
    { { SHAPE(5, 7), SHAPE(0, 7), SHAPE(0, 7) }, { 0 } },
};
static const op_refusal scatter_refusals[] = {
    { GD_ERR_DTYPE, { SHAPE(5, 7), SHAPE(3, 7), SHAPE(3, 7) }, { GD_F32, GD_F32, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3, 7), SHAPE(2, 7) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(5, 7), SHAPE(3, 8), SHAPE(3, 8) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_INVALID,
      { SHAPE(1, 7), SHAPE(3, 7), SHAPE(3, 7) },
      { GD_F32, GD_I64, GD_F32 },
      { 0 } },
};
OP(scatter, 3, DE, RESULT_SAME, 0, gd_scatter(x, y, z, (int)p[0]), VALUES(-20, 20), INDICES(5),
   VALUES(-20, 20))

/* Two indices: of neighbouring axes; of axes apart; and counted from the end. */
static const op_case index_cases[] = {
    { .shape = { SHAPE(4, 5, 3), SHAPE(3), SHAPE(2, 1) } },
    { .shape = { SHAPE(4, 5), SHAPE(2), NUMBER } },
    { .shape = { SHAPE(4, 5, 2), SHAPE(0), SHAPE(1) } },
};
static const op_refusal index_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(4), SHAPE(3), SHAPE(3) }, { GD_F32, GD_I64, GD_I64 }, { 0 } },
    { GD_ERR_SHAPE, { SHAPE(4, 4), SHAPE(3), SHAPE(2) }, { GD_F32, GD_I64, GD_I64 }, { 0 } },
    { GD_ERR_DTYPE, { SHAPE(4, 4), SHAPE(3), SHAPE(3) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(4, 1), SHAPE(3), SHAPE(3) }, { GD_F32, GD_I64, GD_I64 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(1, 4), SHAPE(3), SHAPE(3) }, { GD_F32, GD_I64, GD_I64 }, { 0 } },
};
FUNCTION(index, 3, DE, RESULT_SAME, 0, y &&z ? gd_index(x, 2, (gd_tensor *[]){ y, z }) : NULL,
         VALUES(-20, 20), INDICES(4), INDICES(4))

static const op_case index_around_cases[] = {
    { .shape = { SHAPE(4, 3, 5), SHAPE(2), SHAPE(2) } },
    { .shape = { SHAPE(4, 2, 4, 2), SHAPE(3, 1), SHAPE(2) } },
};
FUNCTION_SAFE(index_around, 3, DE, RESULT_SAME, 0,
              y &&z ? gd_index(x, 3, (gd_tensor *[]){ y, NULL, z }) : NULL, VALUES(-20, 20),
              INDICES(4), INDICES(4))

static const op_case index_negative_cases[] = { { .shape = { SHAPE(3, 4, 2), SHAPE(3) } } };
static const op_refusal index_negative_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(3, 1, 2), SHAPE(3) }, { GD_F32, GD_I64 }, { 0 } }
};
FUNCTION(index_negative, 2, DE, RESULT_SAME, 0,
         y ? gd_index(x, 2, (gd_tensor *[]){ NULL, gd_sub_scalar(gd_neg(y), 1) }) : NULL,
         VALUES(-20, 20), INDICES(4))

static const op_case index_put_cases[] = {
    { .shape = { SHAPE(4, 5, 3), SHAPE(3), SHAPE(3, 1, 3) } },
    { .shape = { SHAPE(4, 5), SHAPE(2), NUMBER } },
};
static const op_refusal index_put_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(4, 5), SHAPE(3), SHAPE(4) }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
    { GD_ERR_INVALID, { SHAPE(1, 5), SHAPE(3), NUMBER }, { GD_F32, GD_I64, GD_F32 }, { 0 } },
};
FUNCTION(index_put, 3, DE, RESULT_FREE, 0,
         y ? gd_index_put(x, 1, (gd_tensor *[]){ y }, z, false) : NULL, VALUES(-20, 20), INDICES(4),
         VALUES(-20, 20))

static const op_case index_accumulate_cases[] = {
    { .shape = { SHAPE(3, 5, 2), SHAPE(4), SHAPE(2) } },
};
FUNCTION_SAFE(index_accumulate, 3, D | OP_SUM, RESULT_NUMERIC, 16,
              y ? gd_index_put(x, 2, (gd_tensor *[]){ NULL, y }, z, true) : NULL, VALUES(0.5, 2),
              INDICES(4), VALUES(0.5, 2))

/* ---- einsum: p[0] chooses the equation ---- */

static const char *const equations[] = { "ii->i",     "ij->ji",          "ijk->k",
                                         "...i->...", "i...->...i",      "iij->ij",
                                         "ab,bc->ac", "bij,bjk->bik",    "i,j->ij",
                                         "ij,ij->",   "ij , jk",         "...ij,...jk->...ik",
                                         "bi,bi->b",  "ijk,jk->i",       "ij,jk,kl->il",
                                         "i,i,i->i",  "bhqd,bhkd->bhqk", "ab,cb,ad->cd",
                                         "ii,i->",    "ij,j->ji",        "ij->k",
                                         "ij",        "i.j->ij",         "ij,jk->ikk",
                                         "i,,j->ij",  "ij->i->j" };
static const op_case einsum_cases[] = {
    { { SHAPE(4, 4) }, { 0 } },    { { SHAPE(4, 5) }, { 1 } },    { { SHAPE(2, 3, 4) }, { 2 } },
    { { SHAPE(2, 3, 4) }, { 3 } }, { { SHAPE(2, 3, 4) }, { 4 } }, { { SHAPE(3, 3, 2) }, { 5 } },
    { { SHAPE(3, 0) }, { 1 } },
};
static const op_refusal einsum_refusals[] = {
    { GD_ERR_INVALID, { SHAPE(4, 4) }, { GD_F32 }, { 20 } },
    { GD_ERR_SHAPE, { SHAPE(4, 4, 4) }, { GD_F32 }, { 21 } },
    { GD_ERR_SHAPE, { SHAPE(4) }, { GD_F32 }, { 21 } },
    { GD_ERR_INVALID, { SHAPE(4, 4) }, { GD_F32 }, { 22 } },
    { GD_ERR_INVALID, { SHAPE(4, 4) }, { GD_F32 }, { 6 } },
    { GD_ERR_INVALID, { SHAPE(4, 4) }, { GD_F32 }, { 25 } },
    { GD_ERR_SHAPE, { SHAPE(4, 3) }, { GD_F32 }, { 0 } },
};
FUNCTION(einsum, 1, D | OP_SUM, RESULT_FREE, 16, gd_einsum(equations[p[0]], 1, &x), VALUES(0.5, 2))

static const op_case einsum_pair_cases[] = {
    { { SHAPE(3, 4), SHAPE(4, 5) }, { 6 } },
    { { SHAPE(2, 3, 4), SHAPE(2, 4, 5) }, { 7 } },
    { { SHAPE(3), SHAPE(4) }, { 8 } },
    { { SHAPE(3, 4), SHAPE(3, 4) }, { 9 } },
    { { SHAPE(3, 4), SHAPE(4, 2) }, { 10 } },
    { { SHAPE(2, 1, 3, 4), SHAPE(5, 4, 2) }, { 11 } },
    { { SHAPE(3, 4), SHAPE(3, 4) }, { 12 } },
    { { SHAPE(2, 3, 4), SHAPE(3, 4) }, { 13 } },
    { { SHAPE(2, 2, 3, 4), SHAPE(2, 2, 5, 4) }, { 16 } },
    { { SHAPE(3, 3), SHAPE(3) }, { 18 } },
    { { SHAPE(3, 1), SHAPE(4) }, { 19 } },
    { { SHAPE(3, 0), SHAPE(0, 2) }, { 6 } },
};
static const op_refusal einsum_pair_refusals[] = {
    { GD_ERR_SHAPE, { SHAPE(3, 4), SHAPE(5, 4) }, { GD_F32, GD_F32 }, { 6 } },
    { GD_ERR_INVALID, { SHAPE(3, 4), SHAPE(4, 4) }, { GD_F32, GD_F32 }, { 23 } },
    { GD_ERR_INVALID, { SHAPE(3, 4), SHAPE(4, 4) }, { GD_F32, GD_F32 }, { 1 } },
    { GD_ERR_SHAPE, { SHAPE(3), SHAPE(4) }, { GD_F32, GD_F32 }, { 24 } },
};
FUNCTION(einsum_pair, 2, D | OP_SUM, RESULT_FREE, 64,
         gd_einsum(equations[p[0]], 2, (gd_tensor *[]){ x, y }), VALUES(0.5, 2), VALUES(0.5, 2))

static const op_case einsum_triple_cases[] = {
    { { SHAPE(2, 3), SHAPE(3, 4), SHAPE(4, 5) }, { 14 } },
    { { SHAPE(3), SHAPE(3), SHAPE(3) }, { 15 } },
    { { SHAPE(2, 3), SHAPE(4, 3), SHAPE(2, 5) }, { 17 } },
};
FUNCTION_SAFE(einsum_triple, 3, D | OP_SUM, RESULT_FREE, 64, gd_einsum(equations[p[0]], 3, in),
              VALUES(0.5, 2), VALUES(0.5, 2), VALUES(0.5, 2))
