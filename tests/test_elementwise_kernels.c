/* tests/test_elementwise_kernels.c: the CPU's elementwise kernels, called by hand, on every
 * instruction set this machine has.
 *
 * Values are checked against elementwise_reference.h for dense operands. Everything else, layouts,
 * lengths, threads, fusion, is then checked bit for bit against the dense case. The half dtypes are
 * checked against f32 and a rounding of our own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/elementwise.h"
#include "elementwise_reference.h"
#include "kernel_support.h"
#include "support/effort.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gd_dtype all_dtypes[] = { GD_F32,  GD_F64, GD_I32, GD_I64, GD_U8,  GD_BOOL, GD_F16,
                                       GD_BF16, GD_I8,  GD_I16, GD_U16, GD_U32, GD_U64 };
#define N_DTYPES ((int)(sizeof all_dtypes / sizeof *all_dtypes))

static gd_device *device; /* of the group's instruction set */

/* ---- values of every row against the reference ---- */

static bool agrees(const reference *r, gd_dtype dtype, long double x, long double y,
                   long double got)
{
    if (r->integer && !gd_dtype_is_float(dtype)) {
        if (dtype == GD_U64 && (x >= 0x1p63L || y >= 0x1p63L))
            return true; /* the reference computes in i64: test_integers tries those */
        long double want =
            wrap_integer(r->gives_bool ? GD_BOOL : dtype, r->integer((int64_t)x, (int64_t)y));
        return got == want;
    }
    if (r->f32) {
        long double want = dtype == GD_F32 ? (long double)r->f32((float)x, (float)y)
                                           : (long double)r->f64((double)x, (double)y);
        return is_same(got, want, r->any_zero);
    }
    long double want = r->wide(x, y);
    long double rounded = dtype == GD_F32 ? (long double)(float)want : (long double)(double)want;
    if (is_same(got, rounded, true))
        return true;
    if (isnan(want) || isnan(got))
        return false;
    long double most = dtype == GD_F32 ? (long double)FLT_MAX : (long double)DBL_MAX;
    if (isinf(got) || isinf(rounded)) /* one of them may just have passed the largest number */
        return fabsl(want) > most * (1 - 8e-7L) && signbit(got) == signbit(want);
    return fabsl(got - want) <= r->ulps * unit_in_last_place(dtype, want);
}

/* Where the reference itself is too coarse to judge, or the row is a product of rounded parts. */
static bool is_judged(int op, gd_dtype dtype, long double x, long double y)
{
    if (op == GD_OP_pow_log) /* its parts must be normal numbers */
        return !(x != 0 && fabsl(y * log2l(fabsl(x))) > (dtype == GD_F32 ? 120 : 1000));
    if (op == GD_OP_floor_div) /* a larger quotient is not exact: x less the remainder rounds */
        return isnan(x / y) || isinf(x / y) || y == 0 ||
               fabsl(x / y) < (dtype == GD_F32 ? 0x1p21L : 0x1p50L);
    return true;
}

static void check_values(int op, gd_dtype dtype)
{
    const reference *r = &references[op];
    enum { COUNT = 4096 };
    operand x = operand_dense(dtype, 1, (int64_t[]){ COUNT }),
            y = operand_dense(dtype, 1, (int64_t[]){ COUNT });
    operand out = operand_dense(r->gives_bool ? GD_BOOL : dtype, 1, (int64_t[]){ COUNT });
    fill_pairs(&x, &y);
    run_row(device, op, (const operand *[]){ &x, &y }, r->arity, &out);
    for (int64_t i = 0; i < COUNT; i++) {
        long double a = get(dtype, x.data, i), b = get(dtype, y.data, i);
        long double got = get(out.layout.dtype, out.data, i);
        if (is_judged(op, dtype, a, b) && !agrees(r, dtype, a, b, got))
            fail_msg("%s %s %s: op(%.20Lg, %.20Lg) gave %.20Lg", device->isa, row_name(op),
                     gd_dtype_name(dtype), a, b, got);
    }
    operand_free(&x), operand_free(&y), operand_free(&out);
}

static bool row_accepts(int op, gd_dtype dtype)
{
    const gd_ew_table *table = gd_ew_table_of(device);
    return table->op[dtype][op] != NULL;
}

static void test_values(void **state)
{
    (void)state;
    int checked = 0;
    for (int op = 0; op < GD_OP_ELEMENTWISE_COUNT; op++) {
        const reference *r = &references[op];
        assert_true(r->arity > 0); /* a row without a reference */
        for (int d = 0; d < N_DTYPES && r->arity < 3 && !r->elsewhere; d++) {
            gd_dtype dtype = all_dtypes[d];
            bool has_reference = gd_dtype_is_float(dtype) ? r->f32 || r->wide : r->integer != NULL;
            if (gd_dtype_is_half(dtype))
                continue;
            if (dtype !=
                GD_BOOL) /* a bool is a u8 to the table, but builders never send it to arithmetic */
                assert_int_equal(row_accepts(op, dtype), has_reference);
            if (has_reference && (dtype != GD_BOOL || r->gives_bool)) {
                check_values(op, dtype);
                checked++;
            }
        }
    }
    assert_true(checked > 150);
}

/* f16 and bf16: the f32 kernel's value, rounded once. */
static void test_half_values(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    const int64_t shape[] = { COUNT };
    for (int op = 0; op < GD_OP_ELEMENTWISE_COUNT; op++) {
        const reference *r = &references[op];
        if (r->arity > 2 || !row_accepts(op, GD_F32))
            continue;
        for (int bits = 0; bits < 2; bits++) {
            gd_dtype half = bits ? GD_BF16 : GD_F16;
            operand x = operand_dense(half, 1, shape), y = operand_dense(half, 1, shape);
            operand wide_x = operand_dense(GD_F32, 1, shape),
                    wide_y = operand_dense(GD_F32, 1, shape);
            operand out = operand_dense(r->gives_bool ? GD_BOOL : half, 1, shape);
            operand wide_out = operand_dense(r->gives_bool ? GD_BOOL : GD_F32, 1, shape);
            fill_pairs(&x, &y);
            for (int64_t i = 0; i < COUNT; i++) {
                ((float *)wide_x.data)[i] = (float)get(half, x.data, i);
                ((float *)wide_y.data)[i] = (float)get(half, y.data, i);
            }
            run_row(device, op, (const operand *[]){ &x, &y }, r->arity, &out);
            run_row(device, op, (const operand *[]){ &wide_x, &wide_y }, r->arity, &wide_out);
            for (int64_t i = 0; i < COUNT; i++) {
                long double wide = get(wide_out.layout.dtype, wide_out.data, i);
                long double want = r->gives_bool ? wide : round_to_half(half, wide);
                if (!is_same(get(out.layout.dtype, out.data, i), want, false))
                    fail_msg("%s %s %s: element %d is not %.9Lg rounded once", device->isa,
                             row_name(op), gd_dtype_name(half), (int)i, wide);
            }
            operand_free(&x), operand_free(&y), operand_free(&out);
            operand_free(&wide_x), operand_free(&wide_y), operand_free(&wide_out);
        }
    }
}

static void test_where(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    const int64_t shape[] = { COUNT };
    for (int d = 0; d < N_DTYPES; d++) {
        gd_dtype dtype = all_dtypes[d];
        size_t size = gd_dtype_size(dtype);
        operand c = operand_dense(GD_BOOL, 1, shape), x = operand_dense(dtype, 1, shape);
        operand y = operand_dense(dtype, 1, shape), out = operand_dense(dtype, 1, shape);
        fill(&c), fill(&x), fill(&y);
        run_row(device, GD_OP_where, (const operand *[]){ &c, &x, &y }, 3, &out);
        for (size_t i = 0; i < COUNT; i++) {
            const operand *from = ((const uint8_t *)c.data)[i] ? &x : &y;
            assert_memory_equal((char *)out.data + i * size, (char *)from->data + i * size, size);
        }
        operand_free(&c), operand_free(&x), operand_free(&y), operand_free(&out);
    }
}

/* Whole numbers, of which differences and products are exact. */
static void test_scale_centred(void **state)
{
    (void)state;
    enum { COUNT = 1300 };
    static const gd_dtype dtypes[] = { GD_F32, GD_F64 };
    for (int d = 0; d < 2; d++) {
        operand in[3], out = operand_dense(dtypes[d], 1, (int64_t[]){ COUNT });
        for (int k = 0; k < 3; k++) {
            in[k] = operand_dense(dtypes[d], 1, (int64_t[]){ COUNT });
            for (int i = 0; i < COUNT; i++)
                put(dtypes[d], in[k].data, i, (i * (k + 3) * 37) % 201 - 100);
        }
        run_row(device, GD_OP_scale_centred, (const operand *[]){ &in[0], &in[1], &in[2] }, 3,
                &out);
        for (int i = 0; i < COUNT; i++) {
            const long double x = get(dtypes[d], in[0].data, i), y = get(dtypes[d], in[1].data, i);
            assert_true(get(dtypes[d], out.data, i) == (x - y) * get(dtypes[d], in[2].data, i));
        }
        for (int k = 0; k < 3; k++)
            operand_free(&in[k]);
        operand_free(&out);
    }
}

/* ---- an element's value depends on nothing but its operands ---- */

/* The dtypes of a row's operands and result, for a typical dtype; false when it does not accept
 * that. */
static bool signature(int op, gd_dtype dtype, gd_dtype operands[3], gd_dtype *result)
{
    const reference *r = &references[op];
    operands[0] = r->chooses ? GD_BOOL : dtype;
    operands[1] = operands[2] = dtype;
    *result = r->gives_bool ? GD_BOOL : dtype;
    return row_accepts(op, gd_dtype_is_half(dtype) && !r->chooses ? GD_F32 : dtype);
}

/* Every length up to 70 gives the beginning of the result of length 1100: tails and bodies agree.
 * Guard bytes hold. */
static void test_lengths(void **state)
{
    (void)state;
    enum { LONGEST = 1100 };
    int number = 0;
    for (int op = 0; op < GD_OP_ELEMENTWISE_COUNT; op++)
        for (int d = 0; d < N_DTYPES; d++) {
            gd_dtype operands[3], result;
            if (!signature(op, all_dtypes[d], operands, &result) || !test_tries(&number))
                continue;
            operand in[3], whole = operand_dense(result, 1, (int64_t[]){ LONGEST });
            const operand *from[3] = { &in[0], &in[1], &in[2] };
            for (int k = 0; k < 3; k++) {
                in[k] = operand_dense(operands[k], 1, (int64_t[]){ LONGEST });
                fill(&in[k]);
            }
            run_row(device, op, from, references[op].arity, &whole);
            for (int64_t length = 0; length <= LONGEST; length += length < 70 ? 1 : 515) {
                operand part = operand_dense(result, 1, &length);
                for (int k = 0; k < 3; k++)
                    in[k].layout.shape[0] = length;
                run_row(device, op, from, references[op].arity, &part);
                if (!same_elements(result, part.data, whole.data, length))
                    fail_msg("%s %s %s: length %d differs", device->isa, row_name(op),
                             gd_dtype_name(all_dtypes[d]), (int)length);
                operand_free(&part);
            }
            for (int k = 0; k < 3; k++)
                operand_free(&in[k]);
            operand_free(&whole);
        }
}

/* Run a row over operands that lie anyhow, and over dense copies of them broadcast to the result's
 * shape. */
static void check_layout(int op, const operand *const *in, int n, gd_dtype result, int rank,
                         const int64_t *shape)
{
    operand out = operand_dense(result, rank, shape), want = operand_dense(result, rank, shape);
    operand dense[3];
    const operand *from[3];
    for (int k = 0; k < n; k++) {
        dense[k] = dense_copy(in[k], rank, shape);
        from[k] = &dense[k];
    }
    run_row(device, op, in, n, &out);
    run_row(device, op, from, n, &want);
    if (!same_elements(result, out.data, want.data, gd_layout_count(&out.layout))) {
        char text[3][GD_SHAPE_TEXT];
        for (int k = 0; k < 3; k++)
            gd_layout_text(&in[k < n ? k : 0]->layout, text[k]);
        fail_msg("%s %s %s %s %s: differs from dense", device->isa, row_name(op), text[0], text[1],
                 text[2]);
    }
    for (int k = 0; k < n; k++)
        operand_free(&dense[k]);
    operand_free(&out), operand_free(&want);
}

static void test_layouts(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t shape[GD_MAX_RANK];
    } shapes[] = {
        { 0, { 0 } },          { 1, { 1 } },        { 1, { 37 } },
        { 2, { 5, 7 } },       { 3, { 5, 7, 11 } }, { 2, { 50, 10 } },
        { 2, { 3, 2500 } },    { 2, { 700, 33 } },  { 3, { 1, 13, 1 } },
        { 4, { 2, 3, 4, 5 } }, { 2, { 70, 90 } },   { 3, { 9, 65, 67 } },
        { 3, { 40, 3, 50 } },  { 2, { 0, 5 } },     { 3, { 4, 0, 3 } },
        { 2, { 4, 130 } },     { 2, { 3, 400 } },   { 8, { 2, 1, 3, 2, 1, 2, 3, 2 } },
        { 3, { 300, 4, 4 } },
    };
    static const struct {
        int op;
        gd_dtype dtype;
    } cases[] = { { GD_OP_add, GD_F32 },          { GD_OP_sub, GD_F64 },
                  { GD_OP_lt, GD_F32 },           { GD_OP_sub, GD_I32 },
                  { GD_OP_bitwise_xor, GD_U8 },   { GD_OP_sub, GD_F16 },
                  { GD_OP_le, GD_BF16 },          { GD_OP_mul, GD_I64 },
                  { GD_OP_where, GD_F32 },        { GD_OP_where, GD_BF16 },
                  { GD_OP_sqrt, GD_F32 },         { GD_OP_logical_xor, GD_BOOL },
                  { GD_OP_scale_centred, GD_F32 } };
    int number = 0;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int round = 0; round < 10; round++) {
                if (!test_tries(&number))
                    continue;
                gd_dtype operands[3], result;
                assert_true(signature(cases[c].op, cases[c].dtype, operands, &result));
                operand in[3];
                const operand *from[3] = { &in[0], &in[1], &in[2] };
                for (int k = 0; k < 3; k++)
                    in[k] = operand_anyhow(operands[k], shapes[s].rank, shapes[s].shape);
                check_layout(cases[c].op, from, references[cases[c].op].arity, result,
                             shapes[s].rank, shapes[s].shape);
                for (int k = 0; k < 3; k++)
                    operand_free(&in[k]);
            }
}

static void test_in_place(void **state)
{
    (void)state;
    int number = 0;
    for (int op = 0; op < GD_OP_ELEMENTWISE_COUNT; op++)
        for (int d = 0; d < N_DTYPES; d++) {
            gd_dtype operands[3], result;
            if (!signature(op, all_dtypes[d], operands, &result) || !test_tries(&number))
                continue;
            for (int over = 0; over < references[op].arity; over++) {
                if (gd_dtype_size(operands[over]) != gd_dtype_size(result))
                    continue;
                const int64_t shape[] = { 37, 61 };
                operand in[3], want = operand_dense(result, 2, shape);
                const operand *from[3] = { &in[0], &in[1], &in[2] };
                for (int k = 0; k < 3; k++)
                    in[k] = k == over ? operand_dense(operands[k], 2, shape)
                                      : operand_anyhow(operands[k], 2, shape);
                fill(&in[over]);
                run_row(device, op, from, references[op].arity, &want);
                operand out = in[over];
                out.layout.dtype = result;
                run_row(device, op, from, references[op].arity, &out);
                if (!same_elements(result, out.data, want.data, 37 * 61))
                    fail_msg("%s %s %s: over operand %d differs", device->isa, row_name(op),
                             gd_dtype_name(all_dtypes[d]), over);
                for (int k = 0; k < 3; k++)
                    operand_free(&in[k]);
                operand_free(&want);
            }
        }
}

static void test_threads(void **state)
{
    (void)state;
    static const struct {
        int op;
        gd_dtype dtype;
    } cases[] = {
        { GD_OP_exp, GD_F32 }, { GD_OP_add, GD_F32 }, { GD_OP_mul, GD_F16 }, { GD_OP_gt, GD_F64 }
    };
    const int64_t shape[] = { 331, 1009 };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int round = 0; round < 3; round++) {
            gd_dtype operands[3], result;
            assert_true(signature(cases[c].op, cases[c].dtype, operands, &result));
            operand in[2], out[3];
            const operand *from[2] = { &in[0], &in[1] };
            for (int k = 0; k < 2; k++) {
                in[k] = round == 0 ? operand_dense(operands[k], 2, shape)
                                   : operand_anyhow(operands[k], 2, shape);
                fill(&in[k]);
            }
            static const int threads[] = { 1, 2, 8 };
            for (int t = 0; t < 3; t++) {
                assert_int_equal(gd_backend_cpu.set_threads(device, threads[t]), GD_OK);
                out[t] = operand_dense(result, 2, shape);
                run_row(device, cases[c].op, from, references[cases[c].op].arity, &out[t]);
                assert_true(same_elements(result, out[t].data, out[0].data, 331 * 1009));
            }
            for (int t = 0; t < 3; t++)
                operand_free(&out[t]);
            operand_free(&in[0]), operand_free(&in[1]);
        }
    assert_int_equal(gd_backend_cpu.set_threads(device, 1), GD_OK);
}

/* ---- cast and copy ---- */

static void test_cast(void **state)
{
    (void)state;
    enum { COUNT = 6000 };
    const int64_t shape[] = { COUNT };
    for (int f = 0; f < N_DTYPES; f++)
        for (int t = 0; t < N_DTYPES; t++) {
            gd_dtype from = all_dtypes[f], to = all_dtypes[t];
            operand x = operand_dense(from, 1, shape), out = operand_dense(to, 1, shape);
            fill_for_cast(&x);
            run(device, GD_OP_cast, NULL, (const operand *[]){ &x }, 1, &out);
            for (int64_t i = 0; i < COUNT; i++) {
                long double value = get(from, x.data, i), got = get(to, out.data, i);
                if (!is_same(got, convert(to, value, gd_dtype_is_float(from)),
                             !gd_dtype_is_float(to)))
                    fail_msg("%s: %.20Lg from %s to %s gave %.20Lg", device->isa, value,
                             gd_dtype_name(from), gd_dtype_name(to), got);
            }
            operand_free(&x), operand_free(&out);
        }
}

static void test_copy(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t shape[GD_MAX_RANK];
    } shapes[] = { { 0, { 0 } },
                   { 1, { 1000 } },
                   { 2, { 33, 65 } },
                   { 3, { 17, 31, 63 } },
                   { 4, { 5, 3, 20, 21 } },
                   { 2, { 200, 330 } },
                   { 3, { 0, 3, 2 } },
                   { 3, { 64, 3, 700 } },
                   { 2, { 3, 1200 } },
                   { 8, { 2, 3, 1, 2, 3, 2, 1, 2 } } };
    int number = 0;
    for (int d = 0; d < N_DTYPES; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int round = 0; round < 8; round++) {
                if (!test_tries_alike(&number))
                    continue;
                gd_backend_cpu.set_threads(device, 1 + round % 2);
                operand x = operand_anyhow(all_dtypes[d], shapes[s].rank, shapes[s].shape);
                x.layout = *stretched(&x.layout, shapes[s].rank, shapes[s].shape);
                operand want = dense_copy(&x, shapes[s].rank, shapes[s].shape);
                operand out = operand_dense(all_dtypes[d], shapes[s].rank, shapes[s].shape);
                run(device, GD_OP_copy, NULL, (const operand *[]){ &x }, 1, &out);
                assert_memory_equal(out.data, want.data, gd_layout_bytes(&out.layout));
                operand_free(&x), operand_free(&want), operand_free(&out);
            }
    gd_backend_cpu.set_threads(device, 1);
}

/* ---- results that go past the caches ---- */

static void test_streaming_copies(void **state)
{
    (void)state;
    const gd_ew_table *table = gd_ew_table_of(device);
    for (int round = 0; round < 2000; round++) {
        int64_t size = (int64_t)random_below(700), from = (int64_t)random_below(70);
        int64_t to = (int64_t)random_below(70), room = 900;
        operand x = operand_dense(GD_U8, 1, &room);
        operand shifted = operand_dense(GD_U8, 1, &(int64_t){ size + to });
        fill(&x);
        table->stream((char *)shifted.data + to, (char *)x.data + from, (size_t)size);
        table->stream(NULL, NULL, 0);
        assert_memory_equal((char *)shifted.data + to, (char *)x.data + from, (size_t)size);
        operand_free(&x), operand_free(&shifted);
    }
    for (int log2 = 0; log2 < 4; log2++)
        for (int round = 0; round < 200; round++) {
            static const gd_dtype dtypes[] = { GD_U8, GD_F16, GD_F32, GD_F64 };
            int64_t rows = (int64_t)random_below(70), cols = (int64_t)random_below(70);
            int64_t row = random_below(2) ? 1 : 90, col = row == 1 ? 90 : 1, out_row = 96;
            operand x = operand_dense(dtypes[log2], 2, (int64_t[]){ 90, 90 });
            operand out = operand_dense(dtypes[log2], 2, (int64_t[]){ 71, out_row });
            operand want = operand_dense(dtypes[log2], 2, (int64_t[]){ 71, out_row });
            fill(&x);
            char *at = out.data, *want_at = want.data;
            size_t skip =
                (round & 1) ? -(uintptr_t)at & 63 : 0; /* to a line's beginning, as results do */
            table->copy_streamed[log2](x.data, row, col, at + skip, out_row, rows, cols);
            table->copy[log2](x.data, row, col, want_at + skip, out_row, rows, cols);
            table->stream(NULL, NULL, 0);
            assert_memory_equal(at, want_at, out.bytes);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < cols; j++)
                    assert_memory_equal(want_at + skip + ((size_t)(i * out_row + j) << log2),
                                        (char *)x.data + ((size_t)(i * row + j * col) << log2),
                                        1u << log2);
            operand_free(&x), operand_free(&out), operand_free(&want);
        }
}

/* A result large enough to be streamed has the bits of one that is made row by row and is not. */
static void test_large(void **state)
{
    (void)state;
    enum { COLS = 1001 };
    const int64_t rows = (int64_t)(gd_cache_bytes(3) / 8 / sizeof(float) / COLS) + 3;
    const int64_t shape[] = { rows, COLS }, swapped[] = { COLS, rows };
    assert_true(gd_ew_is_streamed((size_t)(rows * COLS) * sizeof(float)));
    operand x = operand_dense(GD_F32, 2, shape), y = operand_dense(GD_F32, 2, shape);
    operand bias = operand_dense(GD_F32, 1, &shape[1]), number = operand_dense(GD_F32, 0, NULL);
    operand turned = operand_dense(GD_F32, 2, swapped), out = operand_dense(GD_F32, 2, shape);
    fill(&x), fill(&y), fill(&bias), fill(&number), fill(&turned);
    turned.layout = x.layout;
    turned.layout.stride[0] = 1, turned.layout.stride[1] = rows;
    const operand *second[] = { &y, &bias, &number, &turned, &x };
    int case_number = 0;
    for (size_t s = 0; s < sizeof second / sizeof *second; s++)
        for (int threads = 2; threads >= 1; threads--) {
            if (!test_tries(&case_number))
                continue;
            gd_backend_cpu.set_threads(device, threads);
            bool over_x = second[s] == &x; /* in place, and last: x is lost */
            operand kept = dense_copy(&x, 2, shape);
            run_row(device, GD_OP_add, (const operand *[]){ &x, second[s] }, 2, over_x ? &x : &out);
            for (int64_t i = 0; i < rows; i += i + 23 < rows ? 23 : 1) {
                operand x_row = kept, y_row = second[s] == &x ? kept : *second[s];
                operand want = operand_dense(GD_F32, 1, &shape[1]);
                x_row.layout = want.layout;
                x_row.data = (float *)kept.data + i * COLS;
                if (y_row.layout.rank == 2) {
                    y_row.data = (float *)y_row.data + i * y_row.layout.stride[0];
                    y_row.layout.shape[0] = 1;
                }
                operand want_row = want;
                want_row.layout = (gd_layout){
                    .rank = 2, .dtype = GD_F32, .shape = { 1, COLS }, .stride = { COLS, 1 }
                };
                run_row(device, GD_OP_add, (const operand *[]){ &x_row, &y_row }, 2, &want_row);
                const operand *got = over_x ? &x : &out;
                assert_true(same_elements(GD_F32, (float *)got->data + i * COLS, want.data, COLS));
                operand_free(&want);
            }
            operand_free(&kept);
        }
    run(device, GD_OP_copy, NULL, (const operand *[]){ &turned }, 1, &out);
    operand want = dense_copy(&turned, 2, shape);
    assert_memory_equal(out.data, want.data, out.bytes);
    run(device, GD_OP_copy, NULL, (const operand *[]){ &y }, 1, &out);
    assert_memory_equal(out.data, y.data, out.bytes);
    operand_free(&want), operand_free(&x), operand_free(&y), operand_free(&bias),
        operand_free(&number);
    operand_free(&turned), operand_free(&out);
    gd_backend_cpu.set_threads(device, 1);
}

/* ---- fused groups ---- */

/* Run the program one instruction at a time, by the single kernels, and all at once; the results
 * are the same bits. */
static void check_fused(const gd_fused_attr *attr, const operand *const *in, int rank,
                        const int64_t *shape)
{
    operand value[GD_FUSED_MAX_INPUTS + GD_FUSED_MAX_ELEMENTWISE];
    for (int i = 0; i < attr->n_inputs; i++)
        value[i] = *in[i];
    for (int i = 0; i < attr->n_instructions; i++) {
        const gd_fused_instruction *instruction = &attr->instruction[i];
        const operand *from[3];
        int arity = instruction->op == GD_OP_cast ? 1 : references[instruction->op].arity;
        for (int k = 0; k < arity; k++)
            from[k] = &value[instruction->from[k]];
        operand *made = &value[attr->n_inputs + i];
        *made = operand_dense((gd_dtype)instruction->dtype, rank, shape);
        run(device, instruction->op, NULL, from, arity, made);
    }
    const operand *want = &value[attr->n_inputs + attr->n_instructions - 1];
    operand out = operand_dense(want->layout.dtype, rank, shape);
    operand more[GD_FUSED_MAX_EXTRA];
    for (int r = 0; r < attr->n_extra; r++)
        more[r] = operand_dense((gd_dtype)attr->instruction[attr->extra[r]].dtype, rank, shape);
    more_results = more;
    run(device, GD_OP_fused, attr, in, attr->n_inputs, &out);
    for (int r = 0; r < attr->n_extra; r++) {
        const operand *part = &value[attr->n_inputs + attr->extra[r]];
        if (!same_elements(part->layout.dtype, more[r].data, part->data,
                           gd_layout_count(&part->layout)))
            fail_msg("%s: further result %d of a fused group of %d differs", device->isa, r,
                     attr->n_instructions);
        operand_free(&more[r]);
    }
    if (!same_elements(out.layout.dtype, out.data, want->data, gd_layout_count(&out.layout)))
        fail_msg("%s: a fused group of %d differs from its parts", device->isa,
                 attr->n_instructions);
    for (int i = 0; i < attr->n_instructions; i++)
        operand_free(&value[attr->n_inputs + i]);
    operand_free(&out);
}

/* A random instruction over the values made so far: a row whose operands are there, else a cast. */
static gd_fused_instruction random_instruction(const gd_dtype *dtype, int n_values)
{
    for (;;) {
        int from = (int)random_below((uint64_t)n_values);
        if (random_below(5) == 0) {
            gd_dtype to = all_dtypes[random_below((uint64_t)N_DTYPES)];
            if (to == dtype[from])
                continue;
            return (gd_fused_instruction){ .op = GD_OP_cast,
                                           .dtype = (int16_t)to,
                                           .from = { (int16_t)from },
                                           .compute = (int16_t)dtype[from] };
        }
        int op = (int)random_below(GD_OP_ELEMENTWISE_COUNT);
        gd_dtype operands[3], result;
        if (!signature(op, dtype[from], operands, &result))
            continue;
        gd_fused_instruction instruction = { .op = (int16_t)op,
                                             .dtype = (int16_t)result,
                                             .compute = (int16_t)dtype[from] };
        int found = 0;
        for (int tries = 0; tries < 50 && found < references[op].arity; tries++) {
            int other = tries == 0 ? from : (int)random_below((uint64_t)n_values);
            if (dtype[other] == operands[found])
                instruction.from[found++] = (int16_t)other;
        }
        if (found == references[op].arity)
            return instruction;
    }
}

static void test_fused(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t shape[GD_MAX_RANK];
    } shapes[] = { { 1, { 1 } },    { 1, { 3000 } },   { 2, { 50, 10 } },    { 2, { 20, 300 } },
                   { 0, { 0 } },    { 2, { 40, 41 } }, { 3, { 7, 11, 13 } }, { 2, { 300, 257 } },
                   { 2, { 0, 3 } }, { 1, { 40000 } } };
    int number = 1;
    for (int round = 0; round < 250; round++) {
        if (!test_tries(&number))
            continue;
        gd_backend_cpu.set_threads(device, round % 3 + 1);
        int rank = shapes[round % 10].rank;
        const int64_t *shape = shapes[round % 10].shape;
        gd_fused_attr attr = { .n_inputs = 1 + (int)random_below(GD_FUSED_MAX_INPUTS),
                               .n_instructions = 1 + (int)random_below(GD_FUSED_MAX_ELEMENTWISE) };
        gd_dtype dtype[GD_FUSED_MAX_INPUTS + GD_FUSED_MAX_ELEMENTWISE];
        operand in[GD_FUSED_MAX_INPUTS];
        const operand *from[GD_FUSED_MAX_INPUTS];
        bool mixed = random_below(2) == 0; /* else all f32, as groups mostly are */
        for (int i = 0; i < attr.n_inputs; i++) {
            dtype[i] = mixed ? all_dtypes[random_below((uint64_t)N_DTYPES)] : GD_F32;
            in[i] = operand_anyhow(dtype[i], rank, shape);
            from[i] = &in[i];
        }
        for (int i = 0; i < attr.n_instructions; i++) {
            attr.instruction[i] = random_instruction(dtype, attr.n_inputs + i);
            dtype[attr.n_inputs + i] = (gd_dtype)attr.instruction[i].dtype;
        }
        for (int i = 0; i < attr.n_instructions - 1 && attr.n_extra < GD_FUSED_MAX_EXTRA; i++)
            if (random_below(6) == 0)
                attr.extra[attr.n_extra++] = (int16_t)i;
        check_fused(&attr, from, rank, shape);
        for (int i = 0; i < attr.n_inputs; i++)
            operand_free(&in[i]);
    }
    gd_backend_cpu.set_threads(device, 1);
}

/* A group that keeps everything alive to its end, at the widest dtype: the most registers there can
 * be. */
static void test_fused_at_its_limits(void **state)
{
    (void)state;
    const int64_t shape[] = { 90, 70 };
    gd_fused_attr attr = { .n_inputs = GD_FUSED_MAX_INPUTS,
                           .n_instructions = GD_FUSED_MAX_ELEMENTWISE };
    operand in[GD_FUSED_MAX_INPUTS];
    const operand *from[GD_FUSED_MAX_INPUTS];
    for (int i = 0; i < GD_FUSED_MAX_INPUTS; i++) {
        in[i] = operand_anyhow(GD_BF16, 2, shape);
        from[i] = &in[i];
    }
    enum { HALF = GD_FUSED_MAX_ELEMENTWISE / 2 };
    for (int i = 0; i < GD_FUSED_MAX_ELEMENTWISE; i++) {
        int other = i < HALF ? i % GD_FUSED_MAX_INPUTS : GD_FUSED_MAX_INPUTS + 2 * HALF - 1 - i;
        int last = i == 0 ? 0 : GD_FUSED_MAX_INPUTS + i - 1;
        attr.instruction[i] = (gd_fused_instruction){
            .op = (int16_t)(i == 0      ? GD_OP_cast
                            : i >= HALF ? GD_OP_add
                            : i % 2     ? GD_OP_abs
                                        : GD_OP_neg),
            .dtype = GD_F64,
            .from = { (int16_t)last, (int16_t)(i < HALF ? 0 : other) },
            .compute = (int16_t)(i == 0 ? GD_BF16 : GD_F64),
        };
    }
    check_fused(&attr, from, 2, shape);
    for (int i = 0; i < GD_FUSED_MAX_EXTRA; i++)
        attr.extra[attr.n_extra++] = (int16_t)(HALF + 2 * i);
    check_fused(&attr, from, 2, shape);
    for (int i = 0; i < GD_FUSED_MAX_INPUTS; i++)
        operand_free(&in[i]);
}

static void test_errors(void **state)
{
    (void)state;
    const int64_t shape[] = { 5 };
    operand x = operand_dense(GD_I32, 1, shape), out = operand_dense(GD_I32, 1, shape);
    fill(&x);
    assert_int_equal(try_run(device, GD_OP_exp, NULL, (const operand *[]){ &x }, 1, &out),
                     GD_ERR_UNSUPPORTED);
    assert_string_equal(gd_error_message(), "cpu: no kernel for exp of i32");
    gd_error_clear();
    gd_fused_attr attr = { .n_inputs = 1, .n_instructions = 1 };
    attr.instruction[0] =
        (gd_fused_instruction){ .op = GD_OP_matmul, .dtype = GD_I32, .compute = GD_I32 };
    assert_int_equal(try_run(device, GD_OP_fused, &attr, (const operand *[]){ &x }, 1, &out),
                     GD_ERR_UNSUPPORTED);
    gd_error_clear();
    /* The question whether it could be run is no error. */
    const gd_op op = { .id = GD_OP_fused, .name = "fused", .arity = 1 };
    const gd_operand in = { x.data, &x.layout };
    const gd_kernel_call call = { .device = device,
                                  .op = &op,
                                  .attr = &attr,
                                  .n = 1,
                                  .in = &in,
                                  .out = { out.data, &out.layout } };
    assert_false(gd_ew_takes_group(&call));
    assert_int_equal(gd_error_code(), GD_OK);
    operand_free(&x), operand_free(&out);
}

static int open_device(void **state)
{
    const char *isa = *state;
    if (setenv("GRADUS_ISA", isa, 1) != 0)
        return -1;
    device = gd_backend_cpu.open(&(gd_open_options){ GD_OPEN_DEFAULTS, .threads = 1 }, 0);
    return device ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    gd_backend_cpu.close(device);
    return 0;
}

int main(void)
{
    int failed = 0;
    for (gd_isa isa = 0; isa < GD_ISA_COUNT; isa++) {
        if (!test_tries_isa(isa))
            continue;
        void *name = (void *)(uintptr_t)gd_isa_name(isa);
#define ROW(test)                                    \
    {                                                \
#test, test, open_device, close_device, name \
    }
        const struct CMUnitTest tests[] = {
            ROW(test_values),
            ROW(test_half_values),
            ROW(test_where),
            ROW(test_scale_centred),
            ROW(test_lengths),
            ROW(test_layouts),
            ROW(test_in_place),
            ROW(test_threads),
            ROW(test_cast),
            ROW(test_copy),
            ROW(test_streaming_copies),
            ROW(test_large),
            ROW(test_fused),
            ROW(test_fused_at_its_limits),
            ROW(test_errors),
        };
        fprintf(stderr, "instruction set %s\n", gd_isa_name(isa));
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}
