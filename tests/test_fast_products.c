/* tests/test_fast_products.c: products of f32 in the class of numbers `fast` on the CPU (gd_numbers), as three of
 * bfloat16 (backend/cpu/gemm_bf16x3.c). AMX takes that way by itself where products are large; any instructions
 * for bfloat16 do where GRADUS_MATMUL asks. Results are held to those of the reference device in f64, within
 * the bound of backend/cpu/gemm_half.h, and to each other bit for bit.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include "support/bf16_targets.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* x [batch, m, k] @ w [k, n] + b; transposed ones lie in memory the other way round. */
typedef struct problem {
    int64_t batch, m, k, n;
    bool x_transposed, w_transposed;
} problem;

static const problem problems[] = {
    { 1, 1, 1, 1, false, false },      { 1, 3, 40, 5, false, true },
    { 2, 17, 33, 31, true, false },    { 1, 64, 256, 48, false, true },
    { 3, 9, 300, 65, true, true },     { 1, 130, 70, 129, false, false },
    { 1, 33, 700, 34, true, false },   { 2, 5, 0, 7, false, false },
    { 1, 0, 5, 9, false, false },      { 1, 15, 31, 100, true, true },
    { 1, 200, 520, 150, false, true },
};

enum { X, W, BIAS, SEED, OPERANDS };

static gd_tensor *make_operand(gd_context *gd, const problem *p, int which, gd_dtype dtype,
                               bool magnitude)
{
    const gd_shape shapes[] = {
        p->x_transposed ? GD_SHAPE(p->batch, p->k, p->m) : GD_SHAPE(p->batch, p->m, p->k),
        p->w_transposed ? GD_SHAPE(p->n, p->k) : GD_SHAPE(p->k, p->n),
        GD_SHAPE(p->n),
        GD_SHAPE(p->batch, p->m, p->n),
    };
    const int64_t count = shape_count(shapes[which]);
    numbers n = { (uint64_t)(which + 31) };
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)numbers_uniform(&n, -1, 1) * ldexpf(1, (int)(numbers_next(&n) % 6));
        x[i] = magnitude ? fabsf(x[i]) : x[i];
    }
    gd_tensor *t = gd_from_host(gd, shapes[which], GD_F32, x);
    assert_non_null(t);
    free(x);
    t = dtype == GD_F32 ? t : gd_cast(t, dtype);
    if (which == X && p->x_transposed)
        return gd_transpose(t, 1, 2);
    return which == W && p->w_transposed ? gd_transpose(t, 0, 1) : t;
}

enum { Y, DX, DW, RESULTS };

/* y, and the gradients by x and w, one behind the other. */
static gd_tensor *layer(void *user, int count, gd_tensor *const *in)
{
    (void)user;
    assert_int_equal(count, OPERANDS);
    gd_tensor *x = gd_set_requires_grad(gd_mul_scalar(in[X], 1), true);
    gd_tensor *w = gd_set_requires_grad(gd_mul_scalar(in[W], 1), true), *d[2];
    gd_tensor *y = gd_linear(x, w, in[BIAS]), *seed = in[SEED];
    if (!y || gd_grad(1, &y, &seed, 2, (gd_tensor *[]){ x, w }, d) != GD_OK)
        fail_msg("%s", gd_error_message());
    gd_tensor *all[RESULTS] = { y, d[0], d[1] };
    for (int i = 0; i < RESULTS; i++)
        all[i] = gd_reshape(all[i], GD_SHAPE(-1));
    return gd_concat(RESULTS, all, 0);
}

static void operands_of(gd_context *gd, const problem *p, gd_dtype dtype, bool magnitude,
                        gd_tensor **in)
{
    for (int i = 0; i < OPERANDS; i++)
        in[i] = make_operand(gd, p, i, dtype, magnitude);
}

static reading run(gd_context *gd, const problem *p, gd_dtype dtype, bool magnitude)
{
    gd_tensor *in[OPERANDS];
    gd_scope_begin(gd);
    operands_of(gd, p, dtype, magnitude, in);
    const reading r = reading_take(layer(NULL, OPERANDS, in), "results");
    gd_scope_end(gd);
    return r;
}

/* A context for a target with these GRADUS_NUMBERS and GRADUS_MATMUL; NULL: not on this machine. */
static gd_context *open_as(const target *t, const char *class, const char *path, int threads)
{
    setenv("GRADUS_NUMBERS", class, 1);
    if (path)
        setenv("GRADUS_MATMUL", path, 1);
    gd_context *gd = open_target(t, threads);
    unsetenv("GRADUS_NUMBERS");
    unsetenv("GRADUS_MATMUL");
    return gd;
}

static reading run_as(const target *t, const char *class, const char *path, int threads,
                      const problem *p)
{
    gd_context *gd = open_as(t, class, path, threads);
    const reading r = run(gd, p, GD_F32, false);
    close_context(gd);
    return r;
}

/* Those that may multiply bfloat16, by which products of f32 can be computed. */
static bool multiplies(const target *t)
{
    const bool x86 = t->extension == GD_CPU_AVX512_BF16 || t->extension == GD_CPU_AMX_BF16;
    gd_context *gd = x86 ? open_target(t, 1) : NULL;
    if (gd)
        close_context(gd);
    return gd != NULL;
}

/* `check` on each; skipped where there is none. */
static void for_each_target(void (*check)(const target *t))
{
    int tried = 0;
    for (int i = 0; i < COUNT(targets); i++)
        if (multiplies(&targets[i])) {
            check(&targets[i]);
            tried++;
        }
    gd_error_clear();
    if (tried == 0)
        skip();
    assert_int_equal(watch_faults(), 0);
}

/* ---- the bound ---- */

static void check_bound(const target *t)
{
    gd_context *reference = open_reference();
    for (int i = 0; i < COUNT(problems); i++) {
        const problem *p = &problems[i];
        const int64_t rows = p->batch * p->m;
        const int64_t ends[RESULTS] = { rows * p->n, rows * (p->n + p->k),
                                        rows * (p->n + p->k) + p->k * p->n };
        const int64_t steps[RESULTS] = { p->k, p->n, rows };
        reading exact = run(reference, p, GD_F64, false), sizes = run(reference, p, GD_F64, true);
        reading fast = run_as(t, "fast", "bf16x3", 2, p), plain = run_as(t, "exact", NULL, 2, p);
        assert_int_equal(fast.count, ends[DW]);
        for (int64_t e = 0; e < fast.count; e++) {
            const int which = e < ends[Y] ? Y : e < ends[DX] ? DX : DW;
            const double factor = 3 * (double)(steps[which] + 3) * FLT_EPSILON + 0x1p-14;
            const double error = fabs(reading_value(&fast, e) - reading_value(&exact, e));
            if (!(error <= factor * reading_value(&sizes, e)))
                fail_msg("problem %d on %s, result %d: %g off, the bound is %g", i, t->name, which,
                         error, factor * reading_value(&sizes, e));
        }
        if (fast.count > 1000)
            assert_false(same_bits(&fast, &plain)); /* it was computed in fast numbers */
        reading *all[] = { &exact, &sizes, &fast, &plain };
        for (int r = 0; r < COUNT(all); r++)
            reading_free(all[r]);
    }
    close_context(reference);
}

static void errors_are_within_the_bound(void **state)
{
    (void)state;
    for_each_target(check_bound);
}

/* ---- bits ---- */

/* That f, which is body compiled, gives eager's bits. What its plan says. */
static const char *check_compiled(gd_function *f, gd_function_body body, void *user, int count,
                                  gd_tensor *const *in)
{
    static char text[1 << 16];
    gd_tensor *out = gd_call(f, count, in);
    if (!out)
        fail_msg("%s", gd_error_message());
    reading compiled = reading_take(out, "compiled");
    reading eager = reading_take(body(user, count, in), "eager");
    assert_same_bits(&eager, &compiled, "compiled results");
    reading_free(&eager);
    reading_free(&compiled);
    assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
    return text;
}

/* Threads, the size of the cache, and compilation change none; the plan says what is computed how. */
static void check_bits(const target *t)
{
    for (int i = 0; i < COUNT(problems); i++) {
        const problem *p = &problems[i];
        reading first = run_as(t, "fast", "bf16x3", 1, p);
        for (int threads = 2; threads <= 3; threads++) {
            setenv("GRADUS_L2", threads == 2 ? "256K" : "2M", 1);
            reading other = run_as(t, "fast", "bf16x3", threads, p);
            unsetenv("GRADUS_L2");
            assert_same_bits(&first, &other, "results with more threads");
            reading_free(&other);
        }
        gd_context *gd = open_as(t, "fast", "bf16x3", 2);
        gd_tensor *in[OPERANDS];
        operands_of(gd, p, GD_F32, false, in);
        gd_function *f = gd_compile(gd, layer, NULL);
        const char *text = check_compiled(f, layer, NULL, OPERANDS, in);
        if (p->m > 1)
            assert_non_null(strstr(text, "three of bf16 by "));
        reading_free(&first);
        gd_function_release(f);
        close_context(gd);
    }
}

static void bits_are_the_same_however_it_is_divided(void **state)
{
    (void)state;
    for_each_target(check_bits);
}

/* A product that is read transposed: the compiler computes it so. */
static gd_tensor *transposed(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul_scalar(gd_transpose(gd_matmul(in[0], in[1]), 0, 1), 2);
}

static void check_transposed(const target *t)
{
    static const problem p = { 1, 45, 600, 70, false, false };
    gd_context *gd = open_as(t, "fast", "bf16x3", 2);
    gd_tensor *in[] = { gd_reshape(make_operand(gd, &p, X, GD_F32, false), GD_SHAPE(p.m, p.k)),
                        make_operand(gd, &p, W, GD_F32, false) };
    gd_function *f = gd_compile(gd, transposed, NULL);
    assert_non_null(strstr(check_compiled(f, transposed, NULL, 2, in), "70 x 600 x 45"));
    gd_function_release(f);
    close_context(gd);
}

static void sides_may_change_places(void **state)
{
    (void)state;
    for_each_target(check_transposed);
}

/* x @ w, then ReLU, whose weight is constant: packed once it gives the same bits. */
static gd_tensor *infer(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_relu(gd_matmul(in[0], user));
}

static void check_frozen(const target *t)
{
    static const problem p = { 1, 37, 300, 117, false, true };
    gd_context *gd = open_as(t, "fast", "bf16x3", 2);
    gd_tensor *x = make_operand(gd, &p, X, GD_F32, false);
    gd_tensor *w = gd_retain(make_operand(gd, &p, W, GD_F32, false));
    gd_function *frozen = gd_compile(gd, infer, w, .frozen = true);
    check_compiled(frozen, infer, w, 1, &x);
    assert_true(gd_function_stats(frozen).packed_bytes > 0);
    gd_function_release(frozen);
    gd_release(w);
    close_context(gd);
}

static void weights_are_packed_once(void **state)
{
    (void)state;
    for_each_target(check_frozen);
}

/* ---- who takes it ---- */

static reading product_as(const target *t, const char *class, const char *path, const problem *p)
{
    gd_context *gd = open_as(t, class, path, 2);
    gd_tensor *x = make_operand(gd, p, X, GD_F32, false);
    const reading r =
        reading_take(gd_matmul(x, make_operand(gd, p, W, GD_F32, false)), "a product");
    close_context(gd);
    return r;
}

static void expect(const target *t, bool differs, const char *class, const char *path,
                   const problem *p)
{
    reading exact = product_as(t, "exact", NULL, p), r = product_as(t, class, path, p);
    if (same_bits(&exact, &r) == differs)
        fail_msg("%lld x %lld x %lld on %s, GRADUS_NUMBERS=%s, GRADUS_MATMUL=%s: %s",
                 (long long)p->m, (long long)p->k, (long long)p->n, t->name, class,
                 path ? path : "", differs ? "exact" : "not exact");
    reading_free(&exact);
    reading_free(&r);
}

/* Unasked, AMX alone does, of large products; exact numbers heed no GRADUS_MATMUL, and fast ones give way to
 * other paths. The rows of both halves of a batch are those of one product. */
static void check_choice(const target *t)
{
    const bool is_fast = t->extension == GD_CPU_AMX_BF16;
    static const problem large = { 2, 64, 40, 130, false, false };
    expect(t, false, "exact", "bf16x3", &large);
    expect(t, true, "fast", "bf16x3", &large);
    expect(t, is_fast, "fast", NULL, &large);
    expect(t, false, "fast", "packed", &large);
    static const problem few_rows = { 1, 127, 40, 130, false, false };
    static const problem few_columns = { 1, 128, 40, 127, false, false };
    static const problem few_steps = { 1, 128, 31, 128, false, false };
    expect(t, false, "fast", NULL, &few_rows);
    expect(t, false, "fast", NULL, &few_columns);
    expect(t, false, "fast", NULL, &few_steps);
}

static void shapes_and_instructions_decide(void **state)
{
    (void)state;
    for_each_target(check_choice);
}

int main(void)
{
    unsetenv("GRADUS_NUMBERS");
    unsetenv("GRADUS_MATMUL");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_within_the_bound),
        cmocka_unit_test(bits_are_the_same_however_it_is_divided),
        cmocka_unit_test(sides_may_change_places),
        cmocka_unit_test(weights_are_packed_once),
        cmocka_unit_test(shapes_and_instructions_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
