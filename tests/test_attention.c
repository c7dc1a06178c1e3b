/* tests/test_attention.c: attention in tiles against the plain composition, on operands larger than
 * a tile: values, gradients, masks, dropout, grouped heads; its memory; threads. Small operands,
 * finite differences and the reference device are in test_ops.c, test_op_gradients.c and
 * test_op_modes.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/apply.h"
#include "graph/node.h"
#include "ops/attrs.h"
#include "support/context.h"
#include "support/effort.h"

typedef struct problem {
    int64_t batch, heads, groups, tq, tk, d, dv;
    bool causal;
    int mask; /* 0 none, 1 bool [tq, tk], 2 numbers [heads, 1, tk], 3 bool [batch, 1, 1, tk] */
    double dropout;
} problem;

typedef struct answer {
    float *value[4]; /* result, gradients of q, k, v */
    size_t count[4];
} answer;

static gd_tensor *mask_of(gd_context *context, const problem *p)
{
    gd_tensor *i = gd_unsqueeze(gd_arange(context, 0, (double)p->tq, 1, GD_I64), 1);
    gd_tensor *j = gd_arange(context, 0, (double)p->tk, 1, GD_I64);
    gd_tensor *seven = gd_scalar(context, 7, GD_I64), *three = gd_scalar(context, 3, GD_I64);
    if (p->mask == 1) /* row 5 may look nowhere */
        return gd_logical_and(gd_ne(gd_mod(gd_add(i, j), seven), three),
                              gd_ne(i, gd_scalar(context, 5, GD_I64)));
    gd_tensor *may = gd_ne(gd_mod(j, seven), three);
    if (p->mask == 3)
        return gd_broadcast_to(may, GD_SHAPE(p->batch, 1, 1, p->tk));
    gd_tensor *slope = gd_arange(context, 1, (double)p->heads + 1, 1, GD_F32);
    gd_tensor *bias = gd_mul(gd_reshape(slope, GD_SHAPE(p->heads, 1, 1)),
                             gd_mul_scalar(gd_cast(j, GD_F32), -0.01));
    return gd_where(may, bias, gd_scalar(context, -INFINITY, GD_F32));
}

/* Normal numbers, rounded to `dtype`. */
static gd_tensor *operand(gd_context *context, gd_shape shape, gd_dtype dtype)
{
    gd_tensor *x = gd_normal(context, shape, 0, 1, GD_F32);
    return dtype == GD_F32 ? x : gd_cast(x, dtype);
}

/* Whether solve_of casts its operands to f32 before. */
static bool solves_widened;

/* Result and gradients, in f32, for operands of `dtype` that depend on the problem alone. */
static answer solve_of(gd_context *context, const problem *p, gd_dtype dtype, bool plain)
{
    gd_scope_begin(context);
    gd_seed(context, 5);
    gd_tensor *q = operand(context, GD_SHAPE(p->batch, p->heads, p->tq, p->d), dtype);
    gd_tensor *k = operand(context, GD_SHAPE(p->batch, p->groups, p->tk, p->d), dtype);
    gd_tensor *v = operand(context, GD_SHAPE(p->batch, p->groups, p->tk, p->dv), dtype);
    gd_tensor *g = operand(context, GD_SHAPE(p->batch, p->heads, p->tq, p->dv), dtype);
    gd_tensor *leaves[3] = { gd_set_requires_grad(q, true), gd_set_requires_grad(k, true),
                             gd_set_requires_grad(v, true) };
    gd_seed(context, 9);
    if (solves_widened) {
        q = gd_cast(q, GD_F32);
        k = gd_cast(k, GD_F32);
        v = gd_cast(v, GD_F32);
    }
    gd_tensor *r = gd_attention(q, k, v, .causal = p->causal, .dropout = p->dropout,
                                .mask = p->mask ? mask_of(context, p) : NULL, .plain = plain);
    r = solves_widened ? gd_cast(r, dtype) : r;
    assert_non_null(r);
    gd_tensor *grads[3], *all[4];
    assert_int_equal(gd_grad(1, &r, &g, 3, leaves, grads), GD_OK);
    all[0] = r;
    memcpy(all + 1, grads, sizeof grads);
    answer a;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(gd_tensor_dtype(all[i]), dtype);
        all[i] = gd_cast(all[i], GD_F32);
        a.count[i] = (size_t)gd_tensor_count(all[i]);
        a.value[i] = malloc(a.count[i] * sizeof(float));
        assert_int_equal(gd_tensor_read(all[i], a.value[i], a.count[i] * sizeof(float)), GD_OK);
    }
    gd_scope_end(context);
    return a;
}

static answer solve(gd_context *context, const problem *p, bool plain)
{
    return solve_of(context, p, GD_F32, plain);
}

static void answer_free(answer *a)
{
    for (int i = 0; i < 4; i++)
        free(a->value[i]);
}

static const problem problems[] = {
    { 2, 2, 2, 300, 300, 64, 64, false, 0, 0 },   { 1, 2, 2, 300, 300, 32, 32, true, 0, 0 },
    { 1, 4, 2, 129, 257, 16, 16, true, 1, 0 },    { 1, 6, 1, 70, 333, 20, 12, false, 2, 0 },
    { 2, 2, 1, 257, 65, 8, 24, false, 3, 0 },     { 1, 1, 1, 600, 128, 33, 7, true, 0, 0 },
    { 1, 2, 2, 1, 700, 64, 64, true, 0, 0 },      { 1, 2, 2, 300, 300, 16, 16, true, 0, 0.25 },
    { 2, 4, 2, 131, 140, 16, 16, false, 1, 0.5 },
};
#define PROBLEMS ((int)(sizeof problems / sizeof *problems))

/* Operands are about 1 in size. Results are means of v's rows, gradients sums of some hundred
 * terms: a few hundred roundings of 6e-8 each. */
static void test_tiles_equal_plain(void **state)
{
    gd_context *context = *state;
    static const char *const what[] = { "result", "gradient of q", "gradient of k",
                                        "gradient of v" };
    for (int i = 0; i < PROBLEMS; i++) {
        answer tiles = solve(context, &problems[i], false),
               plain = solve(context, &problems[i], true);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(tiles.count[k], plain.count[k]);
            for (size_t j = 0; j < plain.count[k]; j++) {
                float a = tiles.value[k][j], b = plain.value[k][j];
                if (!(fabsf(a - b) <= 4e-6f * (1 + fabsf(b))))
                    fail_msg("problem %d, %s, element %zu: %.9g, plain %.9g", i, what[k], j,
                             (double)a, (double)b);
            }
        }
        answer_free(&tiles);
        answer_free(&plain);
    }
}

/* Halves, their digits, and where both are rounded: the result and gradients once, half a unit; where
 * bf16 is multiplied, probabilities and their gradients before. Of many terms of random signs that is an
 * error of sqrt(sum of squares) / 2^9; the largest of tens of thousands of numbers is about five times
 * as far off. The plain composition, in f32, rounds its result alone. */
static const struct half {
    gd_dtype dtype;
    double most, whole; /* the error of a number, and of all together, squared */
} halves[] = { { GD_BF16, 0x1p-5, 0x1p-15 }, { GD_F16, 0x1p-9, 0x1p-20 } };
#define HALVES ((int)(sizeof halves / sizeof *halves))

static void test_halves_are_near_plain(void **state)
{
    gd_context *context = *state;
    for (int i = 0; i < PROBLEMS * HALVES; i += TEST_UNDER_TSAN ? 5 : 1) {
        const problem *p = &problems[i / HALVES];
        const struct half *h = &halves[i % HALVES];
        answer tiles = solve_of(context, p, h->dtype, false),
               plain = solve_of(context, p, h->dtype, true);
        for (int k = 0; k < 4; k++) {
            double off = 0, size = 0;
            assert_int_equal(tiles.count[k], plain.count[k]);
            for (size_t j = 0; j < plain.count[k]; j++) {
                const double a = (double)tiles.value[k][j], b = (double)plain.value[k][j];
                if (!(fabs(a - b) <= h->most * (1 + fabs(b))))
                    fail_msg("problem %d, answer %d, element %zu: %.9g, plain %.9g", i, k, j, a, b);
                off += (a - b) * (a - b);
                size += b * b;
            }
            if (!(off <= size * h->whole))
                fail_msg("problem %d, answer %d: off by %g of its size", i, k, sqrt(off / size));
        }
        answer_free(&tiles);
        answer_free(&plain);
    }
}

/* Halves go into the op as they are, sums come out in f32, and both ways are rounded once; but where
 * rows that are widened would not fit the scratch. */
static void test_halves_are_taken_as_they_are(void **state)
{
    gd_context *context = *state;
    static const int64_t widths[] = { 8, 128, 129 };
    for (int i = 0; i < HALVES * 3; i++) {
        const gd_dtype dtype = halves[i % HALVES].dtype;
        const int64_t width = widths[i / HALVES];
        gd_scope_begin(context);
        gd_tensor *x = gd_set_requires_grad(operand(context, GD_SHAPE(2, 5, width), dtype), true);
        gd_tensor *d, *r = gd_attention(x, x, x);
        const gd_layout *const in[] = { &x->layout, &x->layout, &x->layout };
        const gd_attention_attr attr = { .scale = 1 };
        const bool is_taken = gd_op_is_taken(context, GD_OP_attention, 3, in, &attr);
        const char *isa = getenv("GRADUS_ISA");
        const bool by_instructions = dtype == GD_BF16 && is_taken && width > 128;
        assert_true(is_taken || width > 128);
        if (isa && strstr(isa, "_bf16"))
            assert_true(is_taken == (width <= 128 || dtype == GD_BF16));
        if (isa &&
            (strcmp(isa, "avx512") == 0 || strcmp(isa, "avx2") == 0 || strcmp(isa, "neon") == 0))
            assert_false(by_instructions);
        assert_int_equal(r->op->id, GD_OP_cast);
        const gd_tensor *sums = r->inputs[0];
        assert_int_equal(sums->op->id, GD_OP_attention_result);
        assert_int_equal(sums->layout.dtype, GD_F32);
        for (int k = 1; k <= 3; k++)
            assert_int_equal(sums->inputs[k]->layout.dtype, is_taken ? dtype : GD_F32);
        assert_int_equal(gd_grad(1, &r, NULL, 1, &x, &d), GD_OK);
        assert_int_equal(gd_tensor_dtype(d), dtype);
        gd_scope_end(context);
    }
}

/* Of f16 the result and gradients are those of the same numbers in f32, rounded. */
static void test_f16_has_the_bits_of_f32(void **state)
{
    gd_context *context = *state;
    for (int i = 0; i < PROBLEMS; i++) {
        answer halves_of = solve_of(context, &problems[i], GD_F16, false), exact;
        solves_widened = true;
        exact = solve_of(context, &problems[i], GD_F16, false);
        solves_widened = false;
        for (int k = 0; k < 4; k++)
            assert_memory_equal(halves_of.value[k], exact.value[k], exact.count[k] * sizeof(float));
        answer_free(&halves_of);
        answer_free(&exact);
    }
}

/* The reference rounds nothing but its result: as from the same numbers in f32. */
static void test_halves_on_the_reference(void **state)
{
    const problem small = { 1, 2, 1, 9, 7, 5, 3, true, 1, 0.25 };
    gd_context *reference = gd_open("reference");
    assert_non_null(reference);
    for (int i = 0; i < HALVES; i++) {
        const gd_dtype dtype = halves[i].dtype;
        answer exact = solve_of(reference, &small, dtype, false),
               ours = solve_of(*state, &small, dtype, false),
               plain = solve_of(reference, &small, dtype, true);
        for (int k = 0; k < 4; k++)
            for (size_t j = 0; j < exact.count[k]; j++) {
                const float a = exact.value[k][j];
                assert_true(fabsf(a - plain.value[k][j]) <= 0x1p-8f * fabsf(a) + 1e-6f);
                assert_true(fabs((double)(a - ours.value[k][j])) <=
                            halves[i].most / 2 * (1 + fabs((double)a)));
            }
        answer_free(&exact);
        answer_free(&ours);
        answer_free(&plain);
    }
    gd_close(reference);
}

/* The gradient of the sum of squares of the gradient, through the plain composition. */
static void second_gradient(gd_tensor *numbers, float *values, size_t bytes)
{
    gd_tensor *x = gd_set_requires_grad(numbers, true), *d, *second;
    gd_tensor *loss = gd_sum(gd_square(gd_attention(x, x, x, .causal = true)), GD_ALL_AXES, false);
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &x, &d), GD_OK);
    loss = gd_sum(gd_square(d), GD_ALL_AXES, false);
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &x, &second), GD_OK);
    assert_int_equal(gd_tensor_dtype(second), gd_tensor_dtype(x));
    assert_int_equal(gd_tensor_read(gd_cast(second, GD_F32), values, bytes), GD_OK);
}

static void test_halves_have_second_derivatives(void **state)
{
    gd_context *context = *state;
    enum { COUNT = 2 * 9 * 4 };
    float rounded[COUNT], exact[COUNT];
    for (int k = 0; k < HALVES; k++) {
        double off = 0, size = 0;
        gd_scope_begin(context);
        gd_seed(context, 4);
        gd_tensor *x = operand(context, GD_SHAPE(2, 9, 4), halves[k].dtype);
        second_gradient(gd_cast(x, GD_F32), exact, sizeof exact);
        second_gradient(x, rounded, sizeof rounded);
        for (int i = 0; i < COUNT; i++) {
            off += pow((double)(rounded[i] - exact[i]), 2);
            size += pow((double)exact[i], 2);
        }
        assert_true(size > 0 && off < 32 * halves[k].whole * size);
        gd_scope_end(context);
    }
}

static void threads_agree(gd_context *context, gd_dtype dtype)
{
    for (int i = 0; i < PROBLEMS; i += TEST_UNDER_TSAN ? 3 : 1) {
        answer one = { 0 };
        for (int threads = 1; threads <= 3; threads++) {
            assert_int_equal(gd_context_set_threads(context, threads), GD_OK);
            answer a = solve_of(context, &problems[i], dtype, false);
            for (int k = 0; threads > 1 && k < 4; k++)
                assert_memory_equal(a.value[k], one.value[k], a.count[k] * sizeof(float));
            if (threads == 1)
                one = a;
            else
                answer_free(&a);
        }
        answer_free(&one);
    }
    gd_context_set_threads(context, 2);
}

static void test_threads_and_calls_agree(void **state)
{
    threads_agree(*state, GD_F32);
    for (int i = 0; i < (TEST_UNDER_TSAN ? 1 : HALVES); i++)
        threads_agree(*state, halves[i].dtype);
}

/* ---- compiled ---- */

static gd_tensor *loss_gradient(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *qkv[3];
    for (int i = 0; i < 3; i++) /* [time, 3 * 2 heads * 8] cut as self-attention does */
        qkv[i] = gd_transpose(
            gd_reshape(gd_slice(in[0], 1, i * 16, i * 16 + 16, 1), GD_SHAPE(140, 2, 8)), 0, 1);
    gd_tensor *r = gd_attention(qkv[0], qkv[1], qkv[2], .causal = true), *d;
    gd_tensor *x = in[0];
    if (gd_grad(1, &r, NULL, 1, &x, &d) != GD_OK)
        return NULL;
    return gd_concat(2, (gd_tensor *[]){ d, gd_reshape(gd_transpose(r, 0, 1), GD_SHAPE(140, 16)) },
                     1);
}

static void test_compiled_halves_have_the_same_bits(void **state)
{
    gd_context *context = *state;
    uint16_t eager[140 * 64], compiled[140 * 64];
    for (int i = 0; i < HALVES; i++) {
        gd_scope_begin(context);
        gd_tensor *x = operand(context, GD_SHAPE(140, 48), halves[i].dtype);
        (void)gd_set_requires_grad(x, true);
        gd_function *f = gd_compile(context, loss_gradient, NULL);
        assert_int_equal(gd_tensor_read(loss_gradient(NULL, 1, &x), eager, sizeof eager), GD_OK);
        assert_int_equal(gd_tensor_read(gd_call(f, 1, &x), compiled, sizeof compiled), GD_OK);
        assert_memory_equal(eager, compiled, sizeof eager);
        gd_function_release(f);
        gd_scope_end(context);
    }
}

/* ---- masks ---- */

/* Keys and values no query may see have no influence at all. */
static void test_masks_are_exact(void **state)
{
    gd_context *context = *state;
    enum { T = 150, D = 8 };
    gd_scope_begin(context);
    gd_tensor *q = gd_normal(context, GD_SHAPE(1, T, D), 0, 1, GD_F32);
    gd_tensor *k = gd_normal(context, GD_SHAPE(1, T, D), 0, 1, GD_F32);
    gd_tensor *j = gd_arange(context, 0, T, 1, GD_I64);
    gd_tensor *may = gd_lt(j, gd_scalar(context, 100, GD_I64));
    gd_tensor *column = gd_unsqueeze(may, 1);
    gd_tensor *other = gd_where(column, k, gd_scalar(context, 1e30, GD_F32));
    float a[T * D], b[T * D];
    assert_int_equal(gd_tensor_read(gd_attention(q, k, k, .mask = may), a, sizeof a), GD_OK);
    assert_int_equal(gd_tensor_read(gd_attention(q, other, other, .mask = may), b, sizeof b),
                     GD_OK);
    assert_memory_equal(a, b, sizeof a);
    gd_tensor *nowhere = gd_attention(q, k, k, .mask = gd_logical_and(may, gd_logical_not(may)));
    assert_int_equal(gd_tensor_read(nowhere, a, sizeof a), GD_OK);
    for (int i = 0; i < T * D; i++)
        assert_true(a[i] == 0);
    gd_scope_end(context);
}

/* More queries than keys: the first ones see nothing, get zeros and give no gradient. */
static void test_queries_before_all_keys(void **state)
{
    gd_context *context = *state;
    problem p = { 1, 1, 1, 40, 10, 4, 4, true, 0, 0 };
    answer a = solve(context, &p, false);
    for (int i = 0; i < 30 * 4; i++)
        assert_true(a.value[0][i] == 0 && a.value[1][i] == 0);
    for (size_t i = 30 * 4; i < a.count[0]; i++)
        assert_true(a.value[0][i] != 0);
    answer_free(&a);
}

static void test_mask_gradient(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    gd_tensor *q = gd_normal(context, GD_SHAPE(2, 3, 4), 0, 1, GD_F32);
    gd_tensor *mask = gd_set_requires_grad(gd_zeros(context, GD_SHAPE(3, 3), GD_F32), true), *d;
    gd_tensor *loss = gd_sum(gd_square(gd_attention(q, q, q, .mask = mask)), GD_ALL_AXES, false);
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &mask, &d), GD_OK);
    float g[9];
    assert_int_equal(gd_tensor_read(d, g, sizeof g), GD_OK);
    for (int row = 0; row < 3; row++) { /* shifting a row of scores changes nothing */
        assert_true(fabsf(g[3 * row] + g[3 * row + 1] + g[3 * row + 2]) < 1e-5f);
        assert_true(g[3 * row] != 0);
    }
    gd_scope_end(context);
}

/* ---- dropout ---- */

static gd_tensor *dropped(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0];
    gd_tensor *r = gd_attention(x, x, x, .dropout = 0.3, .causal = true), *d;
    gd_tensor *noise = gd_uniform(gd_tensor_context(x), GD_SHAPE(3), 0, 1, GD_F32); /* after it */
    if (gd_grad(1, &r, NULL, 1, &x, &d) != GD_OK)
        return NULL;
    return gd_add(gd_add(r, d), gd_sum(noise, GD_ALL_AXES, false));
}

/* The stream moves on by what was drawn, eagerly and compiled alike; the gradient uses the numbers
 * of the forward pass. */
static void test_dropout_stream(void **state)
{
    gd_context *context = *state;
    enum { T = 33, D = 4 };
    float eager[2][T * D], compiled[2][T * D];
    gd_scope_begin(context);
    gd_tensor *x =
        gd_set_requires_grad(gd_uniform(context, GD_SHAPE(1, T, D), 0.5, 2, GD_F32), true);
    gd_function *f = gd_compile(context, dropped, NULL);
    gd_seed(context, 3);
    for (int i = 0; i < 2; i++)
        assert_int_equal(gd_tensor_read(dropped(NULL, 1, &x), eager[i], sizeof eager[i]), GD_OK);
    gd_seed(context, 3);
    for (int i = 0; i < 2; i++)
        assert_int_equal(gd_tensor_read(gd_call(f, 1, &x), compiled[i], sizeof compiled[i]), GD_OK);
    assert_memory_equal(eager, compiled, sizeof eager);
    assert_memory_not_equal(eager[0], eager[1], sizeof eager[0]);
    gd_function_release(f);
    gd_scope_end(context);
}

/* Of equal weights 1/T on ones, the share that remains, grown by 1/(1-p). */
static void test_dropout_rate(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    gd_seed(context, 1);
    gd_tensor *zero = gd_zeros(context, GD_SHAPE(1, 400, 2), GD_F32);
    gd_tensor *ones = gd_ones(context, GD_SHAPE(1, 400, 2), GD_F32);
    gd_tensor *r = gd_attention(zero, zero, ones, .dropout = 0.2);
    double mean = gd_item(gd_mean(r, GD_ALL_AXES, false));
    assert_true(fabs(mean - 1) < 0.006); /* deviation sqrt(0.25 / 160000) */
    double spread = gd_item(gd_std(gd_select(r, -1, 0), GD_ALL_AXES, 1, false));
    assert_true(spread > 0.02 && spread < 0.03); /* sqrt(0.25 / 400) = 0.025 */
    gd_scope_end(context);
}

/* ---- memory ---- */

static void test_memory_is_linear(void **state)
{
    gd_context *context = *state;
    size_t extra[2];
    for (int i = 0; i < 2; i++) {
        problem p = { 1, 1, 1, 1024 << i, 1024 << i, 8, 8, true, 0, 0 };
        gd_memory_trim(context);
        size_t before = gd_memory(context).in_use;
        gd_memory_reset_peak(context);
        answer a = solve(context, &p, false);
        extra[i] = gd_memory(context).peak - before;
        answer_free(&a);
    }
    assert_true(extra[1] < 2048 * 2048 * sizeof(float) / 2); /* all of it, operands included */
    assert_true(extra[1] <= 2 * extra[0] + 4096);
}

/* ---- refusals beyond those of the rows ---- */

static void test_refusals(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    gd_tensor *x = gd_zeros(context, GD_SHAPE(2, 3, 4), GD_F32);
    gd_tensor *mask = gd_zeros(context, GD_SHAPE(3, 4), GD_BOOL);
    static const struct {
        gd_status code;
        double dropout, scale;
        int what;
    } bad[] = { { GD_ERR_INVALID, 1, 1, 0 },   { GD_ERR_INVALID, -0.1, 1, 0 },
                { GD_ERR_INVALID, NAN, 1, 0 }, { GD_ERR_INVALID, 0, INFINITY, 0 },
                { GD_ERR_SHAPE, 0, 1, 1 },     { GD_ERR_SHAPE, 0.5, 1, 2 } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gd_error_clear();
        gd_tensor *k = bad[i].what == 2 ? gd_slice(x, 2, 0, 3, 1) : x;
        gd_tensor *r = gd_attention(x, k, x, .dropout = bad[i].dropout, .scale = bad[i].scale,
                                    .mask = bad[i].what == 1 ? mask : NULL);
        assert_null(r);
        assert_int_equal(gd_error_code(), bad[i].code);
    }
    gd_error_clear();
    gd_scope_end(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_equal_plain),
        cmocka_unit_test(test_threads_and_calls_agree),
        cmocka_unit_test(test_halves_are_near_plain),
        cmocka_unit_test(test_halves_are_taken_as_they_are),
        cmocka_unit_test(test_f16_has_the_bits_of_f32),
        cmocka_unit_test(test_halves_on_the_reference),
        cmocka_unit_test(test_halves_have_second_derivatives),
        cmocka_unit_test(test_compiled_halves_have_the_same_bits),
        cmocka_unit_test(test_masks_are_exact),
        cmocka_unit_test(test_queries_before_all_keys),
        cmocka_unit_test(test_mask_gradient),
        cmocka_unit_test(test_dropout_stream),
        cmocka_unit_test(test_dropout_rate),
        cmocka_unit_test(test_memory_is_linear),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
