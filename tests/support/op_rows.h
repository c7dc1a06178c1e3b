/* tests/support/op_rows.h: one row per op: how to build it, on what operands, and what is expected
 * of it. The tests of ops are loops over these rows: test_ops.c (values), test_op_gradients.c,
 * test_op_modes.c (compiled, threads).
 *
 * Every op id of elementwise.def and op_list.def must have a row: the table in op_rows.c is made
 * from those lists and names op_row_<name> for each, so an op without a row does not compile.
 * Functions made of several ops have rows as well, behind. */
#ifndef GD_TESTS_OP_ROWS_H
#define GD_TESTS_OP_ROWS_H

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include "graph/op.h"

#define OP_MAX_OPERANDS   3
#define OP_MAX_PARAMETERS 8

/* What an operand is made of. */
typedef enum operand_kind {
    OPERAND_VALUE, /* any dtype: numbers uniform in [low, high), whole ones for integers */
    OPERAND_INDEX, /* i64 (or i32): whole numbers in [low, high) */
    OPERAND_TRUTH, /* bool */
} operand_kind;

typedef struct operand_spec {
    double low, high;
    operand_kind kind;
} operand_spec;

typedef struct op_case {
    gd_shape shape[OP_MAX_OPERANDS];
    int64_t p[OP_MAX_PARAMETERS]; /* what the row's build makes of them: axes, sizes, … */
} op_case;

/* A call that must be refused. */
typedef struct op_refusal {
    gd_status code;
    gd_shape shape[OP_MAX_OPERANDS];
    gd_dtype dtype[OP_MAX_OPERANDS];
    int64_t p[OP_MAX_PARAMETERS];
} op_refusal;

typedef enum result_rule {
    RESULT_SAME,    /* the (promoted) operands' dtype */
    RESULT_NUMERIC, /* bool becomes i32 */
    RESULT_FLOAT,   /* integers and bool become f32 */
    RESULT_TOTAL,   /* unsigned integers become u64, others and bool i64 */
    RESULT_BOOL,
    RESULT_I64,
    RESULT_F32,
    RESULT_SUMS, /* the operands' dtype, f32 of halves */
    RESULT_FREE, /* not checked */
} result_rule;

enum {
    OP_DIFFERENTIABLE = 1 << 0,
    OP_EXACT = 1 << 1, /* every back end gives the same bits as the reference */
    OP_SUM = 1 << 2, /* adds many terms: exact on small whole numbers, else within the tolerance */
    OP_INTEGERS_ONLY = 1 << 3, /* floats are refused */
    OP_FLOATS_ONLY = 1 << 4,   /* and halves, unless OP_NO_HALVES */
    OP_RANDOM = 1 << 5,        /* reads the context's random stream */
    OP_NO_SPECIALS = 1 << 6,   /* NaN and infinities are not tried (as indices, …) */
    OP_MUST_VARY = 1 << 7,  /* not tried on operands that are equal along an axis: the result is 0
                                but for rounding */
    OP_COMPOUND = 1 << 8,   /* one op whose formula rounds several times: the oracle, which rounds
                                once, is within `ulp` of the reference, not within 1 */
    OP_ONCE = 1 << 12,      /* has first derivatives only; asking for second ones is refused */
    OP_NO_HALVES = 1 << 13, /* not tried in f16 and bf16; test_ops.c has the reasons */
};

typedef struct op_row {
    const char *name;
    gd_op_id id; /* GD_OP_COUNT for a function made of several ops */
    int operands;
    unsigned flags;
    result_rule result;
    double ulp; /* f32, f64: most units in the last place from the reference */
    operand_spec operand[OP_MAX_OPERANDS];
    const op_case *cases;
    int case_count;
    const op_refusal *refusals;
    int refusal_count;
    gd_tensor *(*build)(gd_context *context, gd_tensor *const *in, const int64_t *p);
    /* What an elementwise op computes, with libm in long double; NULL for others. */
    long double (*oracle)(long double x, long double y, long double z);
} op_row;

extern const op_row *const op_rows[]; /* the ops by id, then the functions */
extern const int op_row_count;
/* Whether it is tried with operands of this dtype; rows without operands have theirs among their
 * parameters, and are tried once. */
bool op_row_takes(const op_row *row, gd_dtype dtype);
/* Whether GRADUS_TEST_ROWS, names with commas between, has the row's: where tests try a part of all cases, they
 * try each of this row. */
bool op_row_is_named(const op_row *row);

/* Operands so large that every kernel cuts its work into pieces; sizes that do not divide evenly.
 */
typedef struct op_large {
    const char *row; /* NULL: every elementwise op */
    op_case operands;
} op_large;
extern const op_large op_large_cases[];
extern const int op_large_count;
bool op_large_concerns(const op_large *large, const op_row *row);

/* Constant expressions, unlike GD_SHAPE. */
#define SHAPE(...)                                                   \
    {                                                                \
        (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
        {                                                            \
            __VA_ARGS__                                              \
        }                                                            \
    }
#define NUMBER \
    {          \
        0,     \
        {      \
            0  \
        }      \
    }
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

#endif
