/* tests/test_attention_narrow.c: attention over keys and values that are kept in fewer bits than the
 * queries: halves, and 8 bits with a scale for each row. On every instruction set the result has the bits
 * of attention over the same numbers in f32, in every mode, with any number of threads.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "support/bf16_targets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct problem {
    int64_t batch, heads, groups, tq, tk, d, dv;
    int64_t capacity; /* of a cache, of which k and v are the first tk rows; 0: they are all */
    bool causal;
    int mask;        /* 0 none, 1 bool [tq, tk], 2 numbers [heads, 1, tk] */
    bool transposed; /* the axes of k and v lie the other way round */
} problem;

static const problem problems[] = {
    /* one query behind a cache, blocks of 256 keys and what is left of them, heads that share keys */
    { 1, 4, 4, 1, 700, 64, 64, 1024, true, 0, false },
    { 2, 6, 2, 1, 513, 48, 33, 520, true, 0, false },
    { 1, 2, 2, 5, 300, 20, 12, 0, true, 1, false },
    { 1, 2, 1, 1, 256, 7, 5, 300, false, 2, false },
    { 1, 3, 3, 1, 1, 16, 16, 64, true, 0, false },
    /* many queries, which take keys transposed */
    { 1, 2, 2, 40, 290, 64, 64, 400, true, 0, false },
    { 2, 4, 2, 300, 300, 32, 24, 0, true, 1, false },
    { 1, 1, 1, 1100, 270, 16, 16, 0, false, 2, false },
    { 1, 2, 2, 33, 65, 24, 40, 0, false, 0, true },
    { 1, 2, 2, 2, 65, 24, 40, 0, true, 0, true },
    /* the widest that are read as they are, and wider */
    { 1, 1, 1, 3, 260, 128, 128, 0, true, 0, false },
    { 1, 1, 1, 3, 70, 129, 128, 0, true, 0, false },
    /* nothing to see */
    { 1, 2, 2, 3, 0, 8, 8, 0, false, 0, false },
    { 1, 2, 2, 0, 5, 8, 8, 0, false, 0, false },
    { 1, 2, 2, 9, 4, 8, 8, 0, true, 0, false },
};

enum { Q, K, V, K_SCALE, V_SCALE, OPERANDS };

static const gd_dtype dtypes[] = { GD_I8, GD_F16, GD_BF16 };

static gd_tensor *numbers_tensor(gd_context *gd, gd_shape shape, double low, double high,
                                 gd_dtype dtype, numbers *n)
{
    const int64_t count = shape_count(shape);
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)numbers_uniform(n, low, high);
    gd_tensor *t = gd_from_host(gd, shape, GD_F32, x);
    free(x);
    assert_non_null(t);
    return dtype == GD_F32 ? t : gd_cast(dtype == GD_I8 ? gd_round(t) : t, dtype);
}

/* k or v, or their scales, as a cache has them. */
static gd_tensor *kept(gd_context *gd, const problem *p, int64_t width, double low, double high,
                       gd_dtype dtype, numbers *n)
{
    const int64_t room = p->capacity ? p->capacity : p->tk;
    if (p->transposed)
        return gd_transpose(
            numbers_tensor(gd, GD_SHAPE(p->batch, p->groups, width, room), low, high, dtype, n), -1,
            -2);
    gd_tensor *all =
        numbers_tensor(gd, GD_SHAPE(p->batch, p->groups, room, width), low, high, dtype, n);
    return p->capacity ? gd_slice(all, 2, 0, p->tk, 1) : all;
}

static void make_operands(gd_context *gd, const problem *p, gd_dtype dtype, gd_tensor *in[OPERANDS])
{
    numbers n = { 3 };
    const double most = dtype == GD_I8 ? 127 : 2;
    in[Q] = numbers_tensor(gd, GD_SHAPE(p->batch, p->heads, p->tq, p->d), -1, 1, GD_F32, &n);
    in[K] = kept(gd, p, p->d, -most, most, dtype, &n);
    in[V] = kept(gd, p, p->dv, -most, most, dtype, &n);
    in[K_SCALE] = kept(gd, p, 1, 0.001, 0.03, GD_F32, &n);
    in[V_SCALE] = kept(gd, p, 1, -0.03, 0.03, GD_F32, &n);
}

static gd_tensor *mask_of(gd_context *gd, const problem *p)
{
    gd_tensor *j = gd_arange(gd, 0, (double)p->tk, 1, GD_I64);
    gd_tensor *i = gd_unsqueeze(gd_arange(gd, 0, (double)p->tq, 1, GD_I64), 1);
    gd_tensor *seven = gd_scalar(gd, 7, GD_I64), *three = gd_scalar(gd, 3, GD_I64);
    if (p->mask == 1)
        return gd_ne(gd_mod(gd_add(i, j), seven), three);
    gd_tensor *slope =
        gd_reshape(gd_arange(gd, 1, (double)p->heads + 1, 1, GD_F32), GD_SHAPE(p->heads, 1, 1));
    return gd_where(gd_ne(gd_mod(j, seven), three), gd_mul(slope, gd_cast(j, GD_F32)),
                    gd_scalar(gd, -INFINITY, GD_F32));
}

static gd_tensor *narrow(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const problem *p = user;
    const bool scaled = gd_tensor_dtype(in[K]) == GD_I8;
    return gd_attention(in[Q], in[K], in[V], .causal = p->causal,
                        .mask = p->mask ? mask_of(gd_tensor_context(in[Q]), p) : NULL,
                        .k_scale = scaled ? in[K_SCALE] : NULL,
                        .v_scale = scaled ? in[V_SCALE] : NULL);
}

/* What k or v stands for, in f32. */
static gd_tensor *widened(gd_tensor *x, gd_tensor *scale)
{
    return gd_tensor_dtype(x) == GD_I8 ? gd_mul(gd_cast(x, GD_F32), scale) : gd_cast(x, GD_F32);
}

static gd_tensor *wide(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const problem *p = user;
    return gd_attention(in[Q], widened(in[K], in[K_SCALE]), widened(in[V], in[V_SCALE]),
                        .causal = p->causal,
                        .mask = p->mask ? mask_of(gd_tensor_context(in[Q]), p) : NULL);
}

static reading run(gd_context *gd, gd_tensor *(*f)(void *, int, gd_tensor *const *),
                   const problem *p, gd_dtype dtype, gd_mode mode)
{
    gd_tensor *in[OPERANDS];
    gd_scope_begin(gd);
    make_operands(gd, p, dtype, in);
    gd_function *function = gd_compile(gd, f, (void *)p, .mode = mode);
    gd_tensor *result = gd_call(function, OPERANDS, in);
    if (!result)
        fail_msg("%s", gd_error_message());
    reading r = reading_take(result, "attention");
    gd_function_release(function);
    gd_scope_end(gd);
    return r;
}

static void test_bits_are_those_of_f32(void **state)
{
    (void)state;
    static const struct {
        gd_mode mode;
        int threads;
    } ways[] = { { GD_MODE_EAGER, 1 }, { GD_MODE_COMPILED, 3 }, { GD_MODE_LAZY, 2 } };
    char what[120];
    int tried = 0, number = 0;
    for (size_t t = 0; t < COUNT(targets); t++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            gd_context *gd = open_target(&targets[t], ways[w].threads);
            if (!gd)
                continue;
            for (size_t i = 0; i < COUNT(problems) * COUNT(dtypes); i++) {
                const problem *p = &problems[i / COUNT(dtypes)];
                const gd_dtype dtype = dtypes[i % COUNT(dtypes)];
                if (!test_tries_alike(&number))
                    continue;
                snprintf(what, sizeof what, "%s, problem %d of %s, way %d", targets[t].name,
                         (int)(i / COUNT(dtypes)), gd_dtype_name(dtype), (int)w);
                reading expected = run(gd, wide, p, dtype, GD_MODE_EAGER);
                reading actual = run(gd, narrow, p, dtype, ways[w].mode);
                assert_same_bits(&expected, &actual, what);
                reading_free(&expected);
                reading_free(&actual);
                tried++;
            }
            close_context(gd);
        }
    assert_true(tried > 0);
}

/* How often the plan has attention over narrow keys. */
static int narrow_ops(gd_context *gd, const problem *p, gd_dtype dtype)
{
    char text[8192];
    gd_tensor *in[OPERANDS];
    gd_scope_begin(gd);
    make_operands(gd, p, dtype, in);
    gd_function *f = gd_compile(gd, narrow, (void *)p);
    assert_non_null(gd_call(f, OPERANDS, in));
    assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
    int count = 0;
    for (const char *at = strstr(text, "attention_narrow"); at;
         at = strstr(at + 1, "attention_narrow"))
        count++;
    gd_function_release(f);
    gd_scope_end(gd);
    return count;
}

/* Keys and values are read as they are up to a width, on the CPU; elsewhere they are widened. */
static void test_plans_read_what_is_kept(void **state)
{
    (void)state;
    static const problem fits = { 1, 2, 2, 1, 40, 128, 128, 64, true, 0, false },
                         too_wide = { 1, 2, 2, 1, 40, 128, 129, 64, true, 0, false };
    gd_context *gd = open_cpu(NULL, 1), *reference = open_reference();
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        assert_true(narrow_ops(gd, &fits, dtypes[i]) > 0);
        assert_int_equal(narrow_ops(gd, &too_wide, dtypes[i]), 0);
        assert_int_equal(narrow_ops(reference, &fits, dtypes[i]), 0);
    }
    close_context(gd);
    close_context(reference);
}

/* A gradient by q, or by the scales, passes through what k and v stand for. */
static void test_gradients(void **state)
{
    (void)state;
    static const problem p = { 1, 2, 2, 4, 20, 8, 6, 0, true, 0, false };
    gd_context *gd = open_cpu(NULL, 2);
    gd_tensor *in[OPERANDS], *d[2][3];
    make_operands(gd, &p, GD_I8, in);
    gd_tensor *by[] = { gd_set_requires_grad(in[Q], true), gd_set_requires_grad(in[K_SCALE], true),
                        gd_set_requires_grad(in[V_SCALE], true) };
    for (int i = 0; i < 2; i++) {
        gd_tensor *y = (i ? wide : narrow)((void *)&p, OPERANDS, in);
        assert_int_equal(gd_grad(1, &y, NULL, 3, by, d[i]), GD_OK);
    }
    for (int i = 0; i < 3; i++) {
        reading a = reading_take(d[0][i], "narrow"), b = reading_take(d[1][i], "wide");
        assert_same_bits(&b, &a, "gradient");
        reading_free(&a);
        reading_free(&b);
    }
    close_context(gd);
}

/* In a scope of mixed precision operands are rounded as without scales. */
static void test_scopes(void **state)
{
    (void)state;
    static const problem p = { 1, 2, 2, 4, 20, 8, 6, 0, true, 0, false };
    gd_context *gd = open_cpu(NULL, 1);
    gd_tensor *in[OPERANDS];
    make_operands(gd, &p, GD_I8, in);
    assert_int_equal(gd_autocast_begin(gd, GD_F16), GD_OK);
    gd_tensor *a = narrow((void *)&p, OPERANDS, in), *b = wide((void *)&p, OPERANDS, in);
    assert_int_equal(gd_autocast_end(gd), GD_OK);
    reading x = reading_take(a, "narrow"), y = reading_take(b, "wide");
    assert_int_equal(x.dtype, GD_F16);
    assert_same_bits(&y, &x, "scope");
    reading_free(&x);
    reading_free(&y);
    close_context(gd);
}

static void expect_error(gd_status status, const char *words)
{
    if (gd_error_code() != status || !strstr(gd_error_message(), words))
        fail_msg("expected \"%s\" in \"%s\"", words, gd_error_message());
    gd_error_clear();
}

static void test_refusals(void **state)
{
    (void)state;
    static const problem p = { 1, 2, 2, 3, 5, 8, 6, 0, true, 0, false };
    gd_context *gd = open_cpu(NULL, 1);
    gd_tensor *in[OPERANDS];
    make_operands(gd, &p, GD_I8, in);
    assert_null(gd_attention(in[Q], in[K], in[V], .k_scale = in[K_SCALE]));
    expect_error(GD_ERR_INVALID, "of the two scales one is not given");
    assert_null(gd_attention(in[Q], gd_cast(in[K], GD_F32), in[V], .k_scale = in[K_SCALE],
                             .v_scale = in[V_SCALE]));
    expect_error(GD_ERR_DTYPE, "keys or values of f32 with scales of f32; i8 and f32 are needed");
    assert_null(gd_attention(in[Q], in[K], in[V], .k_scale = in[K_SCALE],
                             .v_scale = gd_cast(in[V_SCALE], GD_F16)));
    expect_error(GD_ERR_DTYPE, "keys or values of i8 with scales of f16");
    assert_null(gd_attention(in[Q], in[K], in[V], .k_scale = in[K_SCALE],
                             .v_scale = gd_slice(in[V_SCALE], 2, 1, 5, 1)));
    expect_error(GD_ERR_SHAPE, "one for each row");
    assert_null(gd_attention(in[Q], in[V], in[K], .k_scale = in[V_SCALE], .v_scale = in[K_SCALE]));
    expect_error(GD_ERR_SHAPE, "the widths of q and k differ");
    close_context(gd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_f32),
        cmocka_unit_test(test_plans_read_what_is_kept),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
