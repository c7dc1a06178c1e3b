/* tests/test_ops.c: what every op computes. For each row of support/op_rows.h: the reference back
 * end against an oracle and against golden values of NumPy and PyTorch; every back end and
 * instruction set against the reference, in all layouts, shapes and dtypes, on ordinary numbers, on
 * NaN and infinities; dtypes of results; and that bad calls are refused with the right code.
 * Kernels run between guard bytes (watch_kernels). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "graph/dtypes.h"
#include "support/effort.h"
#include "support/tensors.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 8

static gd_context *reference;
static gd_context *devices[MAX_DEVICES]; /* the reference, and the CPU under each instruction set */
static int device_count;

static int open_devices(void **state)
{
    (void)state;
    reference = devices[device_count++] = open_reference();
    for (const char *const *isa = isa_names(); *isa; isa++)
        devices[device_count++] = open_cpu(*isa, 2);
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    for (int i = 0; i < device_count; i++)
        close_context(devices[i]);
    return 0;
}

static int clear_error(void **state)
{
    (void)state;
    gd_error_clear();
    return 0;
}

/* "exp f32 case 3 sliced on avx2" */
static const char *name_run(const op_row *row, int c, const char *dtype, const char *layout,
                            const gd_context *context)
{
    static char text[160];
    snprintf(text, sizeof text, "%s %s, case %d, %s, on %s", row->name, dtype, c, layout,
             gd_context_isa(context));
    return text;
}

/* Build the row on the operands and read the result. */
static reading run(gd_context *context, const op_row *row, const operand *o, const int64_t *p,
                   const char *what)
{
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    gd_scope_begin(context);
    if (row->flags & OP_RANDOM)
        gd_seed(context, 11);
    for (int i = 0; i < row->operands; i++)
        in[i] = operand_place(context, &o[i], false).view;
    reading r = reading_take(row->build(context, in, p), what);
    gd_scope_end(context);
    return r;
}

/* The same numbers, contiguous. */
static void contiguous(const op_row *row, const operand *o, operand *out)
{
    for (int i = 0; i < row->operands; i++) {
        out[i] = o[i];
        out[i].layout = LAYOUT_CONTIGUOUS;
    }
}

static double tolerance(const op_row *row, gd_dtype dtype, bool whole)
{
    if ((row->flags & OP_EXACT) || ((row->flags & OP_SUM) && whole))
        return 0;
    return gd_dtype_is_half(dtype) ? 1 : row->ulp;
}

static gd_dtype expected_dtype(result_rule rule, gd_dtype dtype)
{
    bool is_float = gd_dtype_is_float(dtype);
    switch (rule) {
    case RESULT_NUMERIC:
        return dtype == GD_BOOL ? GD_I32 : dtype;
    case RESULT_FLOAT:
        return is_float ? dtype : GD_F32;
    case RESULT_TOTAL:
        return is_float                                                                  ? dtype
               : dtype == GD_U8 || dtype == GD_U16 || dtype == GD_U32 || dtype == GD_U64 ? GD_U64
                                                                                         : GD_I64;
    case RESULT_BOOL:
        return GD_BOOL;
    case RESULT_I64:
        return GD_I64;
    case RESULT_F32:
        return GD_F32;
    case RESULT_SUMS:
        return gd_dtype_is_half(dtype) ? GD_F32 : dtype;
    default:
        return dtype;
    }
}

/* ---- every device against the reference ---- */

/* One row on one set of numbers: the reference on contiguous operands gives what every device must
 * give on these. */
static void compare_devices(const op_row *row, int c, const operand *o, const int64_t *p,
                            const char *layout, double ulp)
{
    operand plain[OP_MAX_OPERANDS];
    contiguous(row, o, plain);
    const char *dtype = row->operands ? gd_dtype_name(o[0].dtype) : "";
    reading expected = run(reference, row, plain, p, name_run(row, c, dtype, layout, reference));
    for (int i = 0; i < device_count; i++) {
        const char *what = name_run(row, c, dtype, layout, devices[i]);
        reading actual = run(devices[i], row, o, p, what);
        assert_close(&expected, &actual, i == 0 ? 0 : ulp, what);
        reading_free(&actual);
    }
    reading_free(&expected);
}

/* The first `mixed` arrangement has every operand contiguous, the others give each operand another
 * layout. */
static void try_case(const op_row *row, int c, gd_dtype dtype, bool whole, numbers *n)
{
    const op_case *oc = &row->cases[c];
    int arrangements = row->operands ? LAYOUT_COUNT + 1 : 1;
    /* Dtypes that share the code of others: contiguous, and one more arrangement each. */
    bool is_rare = dtype >= GD_I8;
    for (int a = 0; a < arrangements; a++) {
        operand o[OP_MAX_OPERANDS];
        if (is_rare && a > 0 && a != 1 + (c + (int)dtype) % LAYOUT_COUNT)
            continue;
        for (int i = 0; i < row->operands; i++) {
            layout_kind layout =
                a == 0 ? LAYOUT_CONTIGUOUS : (layout_kind)((a - 1 + i) % LAYOUT_COUNT);
            if (layout == LAYOUT_STRETCHED && (row->flags & OP_MUST_VARY))
                layout = LAYOUT_CONTIGUOUS;
            o[i] = operand_make(row, oc, i, dtype, layout, whole, n);
        }
        gd_dtype result = expected_dtype(row->result, dtype);
        compare_devices(row, c, o, oc->p, a ? layout_names[a - 1] : "plain",
                        tolerance(row, result, whole));
        for (int i = 0; i < row->operands; i++)
            operand_free(&o[i]);
    }
}

static void test_devices_agree(void **state)
{
    (void)state;
    int number = 0;
    for (int r = 0; r < op_row_count; r++) {
        numbers n = numbers_of(op_rows[r], 1);
        for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++) {
            if (!op_row_takes(op_rows[r], (gd_dtype)dtype))
                continue;
            for (int c = 0; c < op_rows[r]->case_count; c++) {
                if (!test_tries_similar(&number) && !op_row_is_named(op_rows[r]))
                    continue;
                try_case(op_rows[r], c, (gd_dtype)dtype, false, &n);
                if (op_rows[r]->flags & OP_SUM)
                    try_case(op_rows[r], c, (gd_dtype)dtype, true, &n);
            }
        }
    }
    assert_int_equal(watch_faults(), 0);
}

/* ---- half precision ---- */

static const gd_dtype halves[2] = { GD_F16, GD_BF16 };

/* The row's result of operands converted to f32, as `dtype`. */
static reading through_f32(const op_row *row, const operand *o, const int64_t *p, gd_dtype dtype,
                           const char *what)
{
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    gd_scope_begin(reference);
    if (row->flags & OP_RANDOM)
        gd_seed(reference, 11);
    for (int i = 0; i < row->operands; i++) {
        in[i] = operand_place(reference, &o[i], false).view;
        if (gd_dtype_is_half(o[i].dtype))
            in[i] = gd_cast(in[i], GD_F32);
    }
    reading r = reading_take(gd_cast(row->build(reference, in, p), dtype), what);
    gd_scope_end(reference);
    return r;
}

/* How many functions the row is a program of, each of which rounds; 1 for all others. */
static int functions_of(const op_row *row)
{
    static const struct {
        const char *name;
        int functions;
    } programs[] = { { "checkpoint", 2 },
                     { "call", 2 },
                     { "call_result", 4 },
                     { "fused", 3 },
                     { "extra_result", 3 } };
    for (int i = 0; i < COUNT(programs); i++)
        if (strcmp(row->name, programs[i].name) == 0)
            return programs[i].functions;
    return 1;
}

/* Each function rounds a value that is at most about as large as the largest element: half a unit in the last
 * place of that for each. */
static void assert_rounded_in_each(const reading *exact, const reading *actual, int functions,
                                   const char *what)
{
    double largest = 0;
    for (int64_t i = 0; i < exact->count; i++)
        largest = fmax(largest, fabs(reading_value(exact, i)));
    const double epsilon = actual->dtype == GD_F16 ? 0x1p-10 : 0x1p-7;
    const double most = functions * epsilon / 2 * largest;
    assert_int_equal(actual->count, exact->count);
    for (int64_t i = 0; i < exact->count; i++) {
        const double e = reading_value(exact, i), a = reading_value(actual, i);
        if (!(fabs(a - e) <= most))
            fail_msg("%s: element %lld is %g, in f32 %g: more than %g apart", what, (long long)i, a,
                     e, most);
    }
}

static void try_halves(const op_row *row, int c, gd_dtype dtype, numbers *n)
{
    const op_case *oc = &row->cases[c];
    const int functions = functions_of(row);
    operand o[OP_MAX_OPERANDS];
    for (int i = 0; i < row->operands; i++)
        o[i] = operand_make(row, oc, i, dtype, LAYOUT_CONTIGUOUS, false, n);
    const char *what = name_run(row, c, gd_dtype_name(dtype), "halves", reference);
    reading once = run(reference, row, o, oc->p, what);
    if (functions == 1) {
        reading expected = through_f32(row, o, oc->p, once.dtype, what);
        assert_close(&expected, &once, 0, what);
        reading_free(&expected);
    } else {
        reading exact = through_f32(row, o, oc->p, GD_F32, what);
        assert_rounded_in_each(&exact, &once, functions, what);
        reading_free(&exact);
    }
    reading_free(&once);
    for (int i = 0; i < row->operands; i++)
        operand_free(&o[i]);
}

/* What is computed of f16 and bf16 is computed in f32 and rounded once: of every op, and of every
 * function made of several. */
static void test_halves_round_once(void **state)
{
    (void)state;
    for (int r = 0; r < op_row_count; r++) {
        const op_row *row = op_rows[r];
        numbers n = numbers_of(row, 9);
        for (int half = 0; half < 2 && row->operands > 0; half++)
            for (int c = 0; c < row->case_count && op_row_takes(row, halves[half]); c++)
                try_halves(row, c, halves[half], &n);
    }
}

/* Rows whose dtype is a parameter, and which one it is. */
static const struct {
    const char *name;
    int at;
} dtype_parameters[] = {
    { "full", 4 },     { "iota", 3 }, { "random_bits", 3 },      { "normal", 3 },
    { "linspace", 3 }, { "eye", 1 },  { "truncated_normal", 3 }, { "one_hot", 1 },
};

/* The number of the parameter that is the row's dtype, -1: none. */
static int dtype_parameter(const op_row *row)
{
    for (int i = 0; i < COUNT(dtype_parameters); i++)
        if (strcmp(row->name, dtype_parameters[i].name) == 0)
            return dtype_parameters[i].at;
    return -1;
}

/* What is made in f16 and bf16 is what is made in f32, rounded; numbers of [low, high) that would round to
 * `high` are the one below it. */
static void test_halves_are_made_of_f32(void **state)
{
    (void)state;
    for (int r = 0; r < op_row_count; r++) {
        const op_row *row = op_rows[r];
        const int at = dtype_parameter(row);
        numbers n = numbers_of(row, 10);
        for (int c = 0; c < row->case_count && at >= 0; c++) {
            const op_case *oc = &row->cases[c];
            const gd_dtype dtype = (gd_dtype)oc->p[at];
            if (!gd_dtype_is_half(dtype))
                continue;
            int64_t p[OP_MAX_PARAMETERS];
            memcpy(p, oc->p, sizeof p);
            p[at] = GD_F32;
            operand o[OP_MAX_OPERANDS];
            for (int i = 0; i < row->operands; i++)
                o[i] = operand_make(row, oc, i, GD_F32, LAYOUT_CONTIGUOUS, false, &n);
            const char *what = name_run(row, c, gd_dtype_name(dtype), "halves", reference);
            reading once = run(reference, row, o, oc->p, what);
            reading expected = through_f32(row, o, p, dtype, what);
            assert_close(&expected, &once, row->id == GD_OP_random_bits, what);
            reading_free(&expected);
            reading_free(&once);
            for (int i = 0; i < row->operands; i++)
                operand_free(&o[i]);
        }
    }
}

/* Rows of floats that are not tried in f16 and bf16. Ops among them do not compute in these. */
static const struct {
    const char *name, *reason;
} without_halves[] = {
    { "ctc_alpha", "gd_ctc widens before it and rounds behind it; row ctc" },
    { "ctc_alpha_grad", "the same" },
    { "recurrent", "gd_recurrent widens before it and rounds behind it; row recurrent_positive" },
    { "recurrent_grad", "the same" },
    { "recurrent_result", "8 is added to it, and would be rounded again; row recurrent_positive" },
    { "recurrent_plain", "the same" },
    { "adam", "optimizers of halves compute in f32; tests/test_bf16_states.c" },
    { "adam_bf16", "the same; its moments are in bf16 whatever the parameter is" },
};

static const char *reason_without_halves(const op_row *row)
{
    for (int i = 0; i < COUNT(without_halves); i++)
        if (strcmp(row->name, without_halves[i].name) == 0)
            return without_halves[i].reason;
    return NULL;
}

/* Whether the row is tried with operands of the dtype, or where that is a parameter with it. */
static bool is_tried_in(const op_row *row, gd_dtype dtype)
{
    const int at = dtype_parameter(row);
    bool is_tried = at < 0 && row->operands > 0 && op_row_takes(row, dtype);
    for (int c = 0; c < row->case_count && at >= 0; c++)
        is_tried |= row->cases[c].p[at] == (int64_t)dtype;
    return is_tried;
}

/* Whether the row makes floats of nothing. */
static bool makes_floats(const op_row *row)
{
    if (row->operands > 0)
        return false;
    reading r = run(reference, row, NULL, row->cases[0].p, row->name);
    const bool is_float = gd_dtype_is_float(r.dtype);
    reading_free(&r);
    return is_float;
}

/* Rows that compute floats do so in f16 and in bf16, too. */
static void test_floats_have_halves(void **state)
{
    (void)state;
    int reasons = 0;
    for (int r = 0; r < op_row_count; r++) {
        const op_row *row = op_rows[r];
        const char *reason = reason_without_halves(row);
        reasons += reason != NULL;
        if (makes_floats(row) && dtype_parameter(row) < 0)
            fail_msg("%s: dtype_parameters does not say which parameter is its dtype", row->name);
        const bool is_of_floats = is_tried_in(row, GD_F32) || is_tried_in(row, GD_F64);
        const bool has_both = is_tried_in(row, GD_F16) && is_tried_in(row, GD_BF16);
        if (is_of_floats && !has_both && !reason)
            fail_msg("%s is not tried in f16 and bf16, and there is no reason", row->name);
        if (reason && (has_both || (row->id < GD_OP_COUNT &&
                                    gd_dtype_is_half(gd_compute_dtype(row->id, GD_BF16)))))
            fail_msg("%s takes halves, though it is said that %s", row->name, reason);
    }
    assert_int_equal(reasons, COUNT(without_halves));
}

/* Sums are of small whole numbers, so that every order of additions gives the same. */
static void test_devices_agree_on_large_operands(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_U8 };
    int number = 0;
    for (int k = 0; k < op_large_count; k++)
        for (int r = 0; r < op_row_count; r++) {
            const op_row *row = op_rows[r];
            const op_large *l = &op_large_cases[k];
            int kinds = row->oracle ? 1 : COUNT(dtypes);
            numbers n = numbers_of(row, 6);
            for (int d = 0; d < kinds && op_large_concerns(l, row); d++) {
                if (!op_row_takes(row, dtypes[d]) ||
                    (!test_tries_similar(&number) && !op_row_is_named(row)))
                    continue;
                operand o[OP_MAX_OPERANDS];
                bool whole = (row->flags & OP_SUM) != 0;
                for (int i = 0; i < row->operands; i++)
                    o[i] = operand_make(row, &l->operands, i, dtypes[d],
                                        (layout_kind)((d + i) % LAYOUT_SLICED), whole, &n);
                compare_devices(row, k, o, l->operands.p, "large",
                                tolerance(row, expected_dtype(row->result, dtypes[d]), whole));
                for (int i = 0; i < row->operands; i++)
                    operand_free(&o[i]);
            }
        }
    assert_int_equal(watch_faults(), 0);
}

static void test_result_dtypes(void **state)
{
    (void)state;
    for (int r = 0; r < op_row_count; r++)
        for (int d = 0; d < GD_DTYPE_COUNT; d++) {
            const op_row *row = op_rows[r];
            gd_dtype dtype = (gd_dtype)d;
            numbers n = numbers_of(row, 2);
            if (row->result == RESULT_FREE || !op_row_takes(row, dtype) || row->operands == 0)
                continue;
            operand o[OP_MAX_OPERANDS];
            for (int i = 0; i < row->operands; i++)
                o[i] = operand_make(row, &row->cases[0], i, dtype, LAYOUT_CONTIGUOUS, false, &n);
            reading result = run(reference, row, o, row->cases[0].p, row->name);
            if (result.dtype != expected_dtype(row->result, dtype))
                fail_msg("%s of %s gives %s, expected %s", row->name, gd_dtype_name(dtype),
                         gd_dtype_name(result.dtype),
                         gd_dtype_name(expected_dtype(row->result, dtype)));
            reading_free(&result);
            for (int i = 0; i < row->operands; i++)
                operand_free(&o[i]);
        }
}

/* ---- the reference against the oracle ---- */

/* Units in the last place between the reference and the oracle, which rounds once: ops whose
 * definition rounds twice are off by one, functions of several ops by as much as back ends may
 * differ; the long double of an f64 oracle is itself rounded a second time. */
static double oracle_tolerance(const op_row *row, gd_dtype dtype)
{
    if (row->id == GD_OP_pow_log)
        return 3;
    bool once = (row->flags & OP_EXACT) && dtype != GD_F64 && row->id != GD_OP_rsqrt;
    if (row->flags & OP_COMPOUND)
        return row->ulp;
    return once ? 0 : row->id == GD_OP_COUNT && !(row->flags & OP_EXACT) ? row->ulp : 1;
}

static void check_oracle(const op_row *row, const operand *o, const reading *result, bool is_float)
{
    for (int64_t i = 0; i < result->count; i++) {
        double x = o[0].value[i], y = row->operands > 1 ? o[1].value[i] : 0;
        double z = row->operands > 2 ? o[2].value[i] : 0;
        bool by_zero = row->id == GD_OP_fmod || row->id == GD_OP_floor_div || row->id == GD_OP_mod;
        if (!is_float && by_zero && y == 0)
            continue; /* integers; see test_integer_division */
        long double exact = row->oracle((long double)x, (long double)y, (long double)z);
        double expected = result->dtype == GD_F32 ? (double)(float)exact : (double)exact;
        double ulp = ulp_distance(result->dtype, expected, reading_value(result, i));
        if (!(ulp <= oracle_tolerance(row, result->dtype)))
            fail_msg("%s(%.17g, %.17g, %.17g) is %.17g on the reference, expected %.17g", row->name,
                     x, y, z, reading_value(result, i), expected);
    }
}

static void test_reference_against_oracle(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_I32, GD_I64 };
    const op_case same_shape = { .shape = { SHAPE(997), SHAPE(997), SHAPE(997) } };
    for (int r = 0; r < op_row_count; r++)
        for (int d = 0; d < COUNT(dtypes); d++) {
            const op_row *row = op_rows[r];
            if (!row->oracle || !op_row_takes(row, dtypes[d]))
                continue;
            numbers n = numbers_of(row, 3);
            operand o[OP_MAX_OPERANDS];
            for (int i = 0; i < row->operands; i++)
                o[i] = operand_make(row, &same_shape, i, dtypes[d], LAYOUT_CONTIGUOUS, false, &n);
            reading result = run(reference, row, o, same_shape.p, row->name);
            check_oracle(row, o, &result, gd_dtype_is_float(dtypes[d]));
            reading_free(&result);
            for (int i = 0; i < row->operands; i++)
                operand_free(&o[i]);
        }
}

/* ---- special values ---- */

static const double specials[] = { 0.0,      -0.0,     1.0,
                                   -1.0,     0.5,      -0.5,
                                   2.5,      -2.5,     3.0,
                                   -3.0,     INFINITY, -INFINITY,
                                   NAN,      1e-40,    -1e-40,
                                   1e-310,   FLT_MIN,  FLT_MAX,
                                   -FLT_MAX, 1e30,     -1e30,
                                   88.0,     -104.0,   710.0,
                                   -746.0,   1e-3,     -1e-3,
                                   0.999999, 1.000001, 1e8,
                                   -1e8,     16777217, 3.1415926535897931 };

static operand special_operand(gd_shape shape, gd_dtype dtype)
{
    operand o = {
        .shape = shape, .dtype = dtype, .layout = LAYOUT_CONTIGUOUS, .count = shape_count(shape)
    };
    o.value = malloc((size_t)o.count * sizeof(double));
    for (int64_t i = 0; i < o.count; i++) {
        double x = specials[i % COUNT(specials)];
        o.value[i] = dtype == GD_F32 ? (double)(float)x : x;
    }
    return o;
}

/* Elementwise ops on all pairs of special values. */
static void test_special_values(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_F32, GD_F64 };
    int64_t n = COUNT(specials);
    for (int r = 0; r < op_row_count; r++)
        for (int d = 0; d < COUNT(dtypes); d++) {
            const op_row *row = op_rows[r];
            if (!row->oracle || row->operands > 2 || !op_row_takes(row, dtypes[d]))
                continue;
            operand o[2] = { special_operand(row->operands == 2 ? GD_SHAPE(n, 1) : GD_SHAPE(n),
                                             dtypes[d]),
                             special_operand(GD_SHAPE(n), dtypes[d]) };
            compare_devices(row, 0, o, row->cases[0].p, "special values",
                            tolerance(row, dtypes[d], false));
            operand_free(&o[0]);
            operand_free(&o[1]);
        }
    assert_int_equal(watch_faults(), 0);
}

/* All other ops with NaN and infinities among ordinary numbers. */
static void test_specials_among_numbers(void **state)
{
    (void)state;
    static const double odd[] = { NAN, INFINITY, -INFINITY, -0.0, 0.0 };
    for (int r = 0; r < op_row_count; r++) {
        const op_row *row = op_rows[r];
        numbers n = numbers_of(row, 4);
        if (row->oracle || row->operands == 0 || (row->flags & (OP_NO_SPECIALS | OP_INTEGERS_ONLY)))
            continue;
        for (int c = 0; c < row->case_count; c++)
            for (int round = 0; round < 5; round++) {
                operand o[OP_MAX_OPERANDS];
                for (int i = 0; i < row->operands; i++) {
                    o[i] =
                        operand_make(row, &row->cases[c], i, GD_F32, LAYOUT_CONTIGUOUS, false, &n);
                    for (int64_t k = 0; k < o[i].count && row->operand[i].kind == OPERAND_VALUE;
                         k++)
                        if (numbers_next(&n) % 8 == 0)
                            o[i].value[k] = odd[round < 4 ? round : (int)(numbers_next(&n) % 5)];
                }
                compare_devices(row, c, o, row->cases[c].p, "with NaN and infinities",
                                tolerance(row, GD_F32, false));
                for (int i = 0; i < row->operands; i++)
                    operand_free(&o[i]);
            }
    }
    assert_int_equal(watch_faults(), 0);
}

/* Division of whole numbers at its corners, on every device. Python: [x // y if y else 0 …], [x % y
 * if y else 0 …]; the quotient of the least number by -1 wraps, as in NumPy. */
static void test_integer_division(void **state)
{
    (void)state;
    static const int32_t x[] = { 7, -7, 7, -7, 7, 0, INT32_MIN, INT32_MIN, 6, -6 };
    static const int32_t y[] = { 2, 2, -2, -2, 0, 0, -1, 2, 3, 3 };
    static const int32_t quotient[] = { 3, -4, -4, 3, 0, 0, INT32_MIN, INT32_MIN / 2, 2, -2 };
    static const int32_t rest[] = { 1, 1, -1, -1, 0, 0, 0, 0, 0, 0 };
    for (int i = 0; i < device_count; i++) {
        gd_context *context = devices[i];
        gd_scope_begin(context);
        gd_tensor *a = gd_from_host(context, GD_SHAPE(10), GD_I32, x);
        gd_tensor *b = gd_from_host(context, GD_SHAPE(10), GD_I32, y);
        int32_t out[10];
        assert_int_equal(gd_tensor_read(gd_floor_div(a, b), out, sizeof out), GD_OK);
        assert_memory_equal(out, quotient, sizeof out);
        assert_int_equal(gd_tensor_read(gd_mod(a, b), out, sizeof out), GD_OK);
        assert_memory_equal(out, rest, sizeof out);
        gd_scope_end(context);
    }
}

/* ---- refusals ---- */

static void assert_refused(gd_context *context, const op_row *row, int number,
                           const op_refusal *bad)
{
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    gd_scope_begin(context);
    for (int i = 0; i < row->operands; i++) {
        /* Indices of 1 are out of range for an axis of size 1 or 0. */
        in[i] = gd_full(context, bad->shape[i], 1, bad->dtype[i]);
        assert_non_null(in[i]);
    }
    gd_error_clear();
    gd_tensor *t = row->build(context, in, bad->p);
    if (t || gd_error_code() != bad->code)
        fail_msg("%s, refusal %d on %s: %s with %s \"%s\", expected %s", row->name, number,
                 gd_context_isa(context), t ? "accepted" : "refused",
                 gd_status_name(gd_error_code()), gd_error_message(), gd_status_name(bad->code));
    assert_true(strlen(gd_error_message()) > 8);
    gd_error_clear();
    gd_scope_end(context);
}

static void test_refusals(void **state)
{
    (void)state;
    for (int d = 0; d < device_count; d++)
        for (int r = 0; r < op_row_count; r++)
            for (int i = 0; i < op_rows[r]->refusal_count; i++)
                assert_refused(devices[d], op_rows[r], i, &op_rows[r]->refusals[i]);
}

/* NULL for any operand gives NULL, and records nothing. */
static void test_null_operands(void **state)
{
    (void)state;
    numbers n = { 5 };
    for (int r = 0; r < op_row_count; r++)
        for (int absent = 0; absent < op_rows[r]->operands; absent++) {
            const op_row *row = op_rows[r];
            bool optional =
                absent == 2 &&
                (row->id == GD_OP_linear || row->id == GD_OP_convolution ||
                 strcmp(row->name, "affine") == 0 || strcmp(row->name, "conv_transpose") == 0);
            if (optional)
                continue;
            gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
            gd_scope_begin(reference);
            gd_dtype dtype = row->flags & OP_INTEGERS_ONLY ? GD_I32 : GD_F32;
            for (int i = 0; i < row->operands; i++) {
                operand o =
                    operand_make(row, &row->cases[0], i, dtype, LAYOUT_CONTIGUOUS, false, &n);
                if (i != absent)
                    in[i] = operand_place(reference, &o, false).view;
                operand_free(&o);
            }
            if (row->build(reference, in, row->cases[0].p) || gd_error_code() != GD_OK)
                fail_msg("%s with operand %d NULL: code %s \"%s\"", row->name, absent,
                         gd_status_name(gd_error_code()), gd_error_message());
            gd_scope_end(reference);
        }
}

/* Rows for integers alone refuse every float dtype. */
static void test_dtypes_refused(void **state)
{
    (void)state;
    static const gd_dtype floats[] = { GD_F32, GD_F64, GD_F16, GD_BF16 };
    for (int r = 0; r < op_row_count; r++)
        for (int d = 0; d < COUNT(floats) && (op_rows[r]->flags & OP_INTEGERS_ONLY); d++) {
            op_refusal bad = {
                GD_ERR_DTYPE, { SHAPE(3), SHAPE(3) }, { floats[d], floats[d] }, { 0 }
            };
            assert_refused(reference, op_rows[r], d, &bad);
        }
}

/* ---- golden values ---- */

typedef struct golden {
    const char *call; /* that gave `expected` */
    const char *row;
    gd_dtype dtype;
    double ulp;
    gd_shape shape[OP_MAX_OPERANDS];
    double value[OP_MAX_OPERANDS][24];
    int64_t p[OP_MAX_PARAMETERS];
    gd_shape result;
    double expected[24];
} golden;

#include "support/op_goldens.h"

static const op_row *find_row(const char *name)
{
    for (int r = 0; r < op_row_count; r++)
        if (strcmp(op_rows[r]->name, name) == 0)
            return op_rows[r];
    fail_msg("no row %s", name);
    return NULL;
}

static void test_golden_values(void **state)
{
    (void)state;
    for (int g = 0; g < COUNT(goldens); g++) {
        const golden *row = &goldens[g];
        const op_row *op = find_row(row->row);
        operand o[OP_MAX_OPERANDS];
        for (int i = 0; i < op->operands; i++) {
            o[i] = (operand){ .shape = row->shape[i],
                              .dtype = operand_dtype(op, i, row->dtype),
                              .count = shape_count(row->shape[i]) };
            o[i].value = malloc(sizeof row->value[i]);
            memcpy(o[i].value, row->value[i], sizeof row->value[i]);
        }
        for (int d = 0; d < device_count; d++) {
            char what[200];
            snprintf(what, sizeof what, "%s on %s", row->call, gd_context_isa(devices[d]));
            reading actual = run(devices[d], op, o, row->p, what);
            assert_int_equal(actual.count, shape_count(row->result));
            assert_int_equal(actual.shape.rank, row->result.rank);
            for (int64_t i = 0; i < actual.count; i++) {
                double expected =
                    actual.dtype == GD_F32 ? (double)(float)row->expected[i] : row->expected[i];
                double got = reading_value(&actual, i);
                if (!(ulp_distance(actual.dtype, expected, got) <= row->ulp))
                    fail_msg("%s: element %lld is %.17g, expected %.17g", what, (long long)i, got,
                             expected);
            }
            reading_free(&actual);
        }
        for (int i = 0; i < op->operands; i++)
            operand_free(&o[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_reference_against_oracle, clear_error),
        cmocka_unit_test_setup(test_golden_values, clear_error),
        cmocka_unit_test_setup(test_result_dtypes, clear_error),
        cmocka_unit_test_setup(test_devices_agree, clear_error),
        cmocka_unit_test_setup(test_devices_agree_on_large_operands, clear_error),
        cmocka_unit_test_setup(test_floats_have_halves, clear_error),
        cmocka_unit_test_setup(test_halves_round_once, clear_error),
        cmocka_unit_test_setup(test_halves_are_made_of_f32, clear_error),
        cmocka_unit_test_setup(test_special_values, clear_error),
        cmocka_unit_test_setup(test_specials_among_numbers, clear_error),
        cmocka_unit_test_setup(test_integer_division, clear_error),
        cmocka_unit_test_setup(test_refusals, clear_error),
        cmocka_unit_test_setup(test_null_operands, clear_error),
        cmocka_unit_test_setup(test_dtypes_refused, clear_error),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
