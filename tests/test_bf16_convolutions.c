/* tests/test_bf16_convolutions.c: convolutions of bfloat16 and their gradients, on every instruction set
 * and extension that this machine has. Of small whole numbers, whose sums are exact in any order, they
 * are the reference back end's bit for bit; of any numbers neither the mode nor the number of threads
 * nor the cache changes a bit, and results stay within the bound of backend/cpu/gemm_half.h.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "support/bf16_targets.h"
#include "support/effort.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A convolution over one to three axes. */
typedef struct problem {
    int axes;
    int64_t n, groups, c, o; /* channels of a group */
    int64_t in[3], kernel[3], stride[3], before[3], after[3], dilation[3];
    bool bias, transposed;
} problem;

static void describe(const problem *p, char *to, size_t size)
{
    size_t at = (size_t)snprintf(to, size, "%d axes, %d images, %d groups, %d -> %d%s%s", p->axes,
                                 (int)p->n, (int)p->groups, (int)p->c, (int)p->o,
                                 p->bias ? ", bias" : "", p->transposed ? ", transposed" : "");
    for (int a = 0; a < p->axes && at < size; a++)
        at += (size_t)snprintf(to + at, size - at,
                               "; %d by %d, stride %d, padding %d and %d, dilation %d",
                               (int)p->in[a], (int)p->kernel[a], (int)p->stride[a],
                               (int)p->before[a], (int)p->after[a], (int)p->dilation[a]);
}

static gd_shape shape_of(int axes, const int64_t *sizes)
{
    gd_shape shape = { .rank = axes };
    memcpy(shape.dim, sizes, (size_t)axes * sizeof *sizes);
    return shape;
}

static gd_shape with_channels(int axes, int64_t first, int64_t second, const int64_t *sizes)
{
    gd_shape shape = { .rank = 2 + axes, .dim = { first, second } };
    memcpy(shape.dim + 2, sizes, (size_t)axes * sizeof *sizes);
    return shape;
}

static gd_tensor *convolve(const problem *p, gd_tensor *x, gd_tensor *w, gd_tensor *bias)
{
    const gd_conv_options o = { GD_CONV_DEFAULTS,
                                .stride = shape_of(p->axes, p->stride),
                                .padding_before = shape_of(p->axes, p->before),
                                .padding_after = shape_of(p->axes, p->after),
                                .dilation = shape_of(p->axes, p->dilation),
                                .groups = p->groups };
    return p->transposed ? gd_conv_transpose_with(x, w, bias, p->axes, &o)
                         : gd_conv_with(x, w, bias, p->axes, &o);
}

/* x, w and the gradient of y in bf16, and an f32 bias. */
enum { X, W, G, BIAS, OPERANDS };

/* Whole numbers, few of which are not 0, or numbers between -1 and 1. */
static gd_tensor *numbers_tensor(gd_context *gd, gd_shape shape, gd_dtype dtype, bool whole,
                                 numbers *n)
{
    const int64_t count = shape_count(shape);
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = whole ? (float)(int)(numbers_next(n) % 5) - 2 : (float)numbers_uniform(n, -1, 1);
    gd_tensor *t = gd_cast(gd_from_host(gd, shape, GD_F32, x), dtype);
    assert_non_null(t);
    free(x);
    return t;
}

static void make_operands(gd_context *gd, const problem *p, bool whole, uint64_t seed,
                          gd_tensor *in[OPERANDS])
{
    numbers n = { seed };
    const int64_t channels = p->groups * p->c, out = p->groups * p->o;
    in[X] = numbers_tensor(gd, with_channels(p->axes, p->n, channels, p->in), GD_BF16, whole, &n);
    in[W] = p->transposed ? numbers_tensor(gd, with_channels(p->axes, channels, p->o, p->kernel),
                                           GD_BF16, whole, &n)
                          : numbers_tensor(gd, with_channels(p->axes, out, p->c, p->kernel),
                                           GD_BF16, whole, &n);
    in[BIAS] = numbers_tensor(gd, GD_SHAPE(out), GD_F32, whole, &n);
    gd_tensor *y = convolve(p, in[X], in[W], NULL);
    if (!y)
        fail_msg("%s", gd_error_message());
    in[G] = numbers_tensor(gd, gd_tensor_shape(y), GD_BF16, whole, &n);
    for (int i = 0; i < OPERANDS; i++)
        if (i != G)
            assert_non_null(gd_set_requires_grad(in[i], true));
}

/* Y and all gradients in f32, end to end. */
static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const problem *p = user;
    gd_context *gd = gd_tensor_context(in[X]);
    if (gd_autocast_begin(gd, GD_BF16) != GD_OK)
        return NULL;
    gd_tensor *y = convolve(p, in[X], in[W], p->bias ? in[BIAS] : NULL);
    if (gd_autocast_end(gd) != GD_OK || !y || gd_tensor_dtype(y) != GD_BF16)
        return NULL;
    gd_tensor *d[3], *by[3] = { in[X], in[W], in[BIAS] };
    const int many = p->bias ? 3 : 2;
    if (gd_grad(1, &y, &in[G], many, by, d) != GD_OK)
        return NULL;
    gd_tensor *parts[4] = { y, d[0], d[1], many > 2 ? d[2] : NULL };
    for (int i = 0; i < 1 + many; i++)
        parts[i] = gd_reshape(gd_cast(parts[i], GD_F32), GD_SHAPE(-1));
    return gd_concat(1 + many, parts, 0);
}

static reading run(gd_context *gd, const problem *p, gd_mode mode, bool whole, uint64_t seed)
{
    gd_tensor *in[OPERANDS];
    gd_scope_begin(gd);
    make_operands(gd, p, whole, seed, in);
    gd_function *f = gd_compile(gd, step, (void *)p, .mode = mode, .detached = true);
    assert_non_null(f);
    gd_tensor *result = gd_call(f, OPERANDS, in);
    if (!result)
        fail_msg("%s", gd_error_message());
    reading r = reading_take(result, "convolution");
    gd_function_release(f);
    gd_scope_end(gd);
    return r;
}

/* ---- problems ---- */

#define ONES    \
    {           \
        1, 1, 1 \
    }
static const problem problems[] = {
    /* planes that end within vectors, blocks of several depths, panels of several heights */
    { 2, 1, 1, 3, 6, { 9, 9 }, { 3, 3 }, ONES, ONES, ONES, ONES, true, false },
    { 2, 3, 1, 20, 33, { 7, 7 }, { 3, 3 }, ONES, ONES, ONES, ONES, false, false },
    { 2, 2, 1, 61, 40, { 14, 13 }, { 3, 3 }, ONES, ONES, ONES, ONES, true, false },
    { 2, 5, 1, 6, 16, { 14, 14 }, { 5, 5 }, ONES, { 0 }, { 0 }, ONES, true, false },
    { 2, 2, 1, 3, 18, { 31, 40 }, { 7, 7 }, { 2, 2 }, { 3, 3 }, { 3, 3 }, ONES, false, false },
    { 2, 17, 1, 8, 4, { 4, 4 }, { 2, 2 }, ONES, { 0 }, { 0 }, ONES, true, false },
    /* a window is an element */
    { 2, 2, 1, 70, 33, { 16, 17 }, { 1, 1 }, ONES, { 0 }, { 0 }, ONES, true, false },
    { 2, 3, 2, 19, 40, { 15, 17 }, { 1, 1 }, ONES, { 0 }, { 0 }, ONES, true, false },
    { 2, 4, 1, 530, 9, { 5, 5 }, { 1, 1 }, ONES, { 0 }, { 0 }, ONES, true, false },
    { 2, 2, 1, 9, 17, { 8, 9 }, { 1, 1 }, { 2, 2 }, { 0 }, { 0 }, ONES, true, false },
    /* strides, dilations, uneven padding, elements that no tap reaches */
    { 2, 3, 1, 20, 17, { 15, 18 }, { 3, 5 }, { 2, 3 }, { 1, 2 }, { 2, 0 }, ONES, true, false },
    { 2, 2, 1, 9, 12, { 9, 11 }, { 3, 2 }, { 1, 2 }, { 2, 1 }, { 1, 1 }, { 2, 1 }, true, false },
    { 2, 2, 1, 40, 4, { 9, 12 }, { 3, 3 }, ONES, { 2, 2 }, { 2, 2 }, { 2, 2 }, false, false },
    { 2, 2, 1, 3, 5, { 13, 14 }, { 2, 1 }, { 3, 4 }, { 1, 0 }, { 0, 1 }, ONES, true, false },
    { 2, 2, 1, 3, 5, { 13, 14 }, { 2, 3 }, { 2, 4 }, { 1, 0 }, { 0, 1 }, { 2, 2 }, true, false },
    { 2, 1, 1, 2, 3, { 40, 3 }, { 3, 3 }, { 1, 2 }, ONES, ONES, ONES, true, false },
    /* groups */
    { 2, 2, 4, 5, 3, { 8, 9 }, { 3, 3 }, { 1, 2 }, ONES, ONES, ONES, true, false },
    { 2, 2, 12, 1, 1, { 8, 9 }, { 3, 3 }, ONES, ONES, ONES, ONES, true, false },
    { 2, 2, 2, 33, 35, { 6, 6 }, { 3, 3 }, ONES, ONES, ONES, ONES, true, false },
    /* one axis, and three */
    { 1, 3, 1, 7, 20, { 70 }, { 9 }, { 1 }, { 4 }, { 4 }, { 1 }, true, false },
    { 1, 2, 1, 40, 5, { 33 }, { 4 }, { 3 }, { 2 }, { 1 }, { 2 }, true, false },
    { 3, 2, 1, 4, 6, { 5, 6, 7 }, { 2, 3, 3 }, ONES, { 0, 1, 1 }, ONES, ONES, true, false },
    { 3, 2, 2, 3, 5, { 6, 5, 9 }, { 3, 2, 3 }, { 2, 1, 2 }, ONES, ONES, { 1, 2, 1 }, true, false },
    /* more taps than are kept for all channels */
    { 2, 9, 1, 2, 3, { 30, 9 }, { 23, 3 }, ONES, { 11, 1 }, { 11, 1 }, ONES, false, false },
    /* and more than whose places in a panel are */
    { 2, 2, 1, 3, 3, { 20, 12 }, { 12, 11 }, ONES, { 6, 5 }, { 5, 5 }, ONES, true, false },
    /* transposed */
    { 2, 2, 1, 12, 9, { 8, 9 }, { 4, 4 }, { 2, 2 }, ONES, ONES, ONES, true, true },
    { 2, 2, 2, 5, 20, { 7, 7 }, { 3, 3 }, ONES, ONES, ONES, ONES, true, true },
    { 1, 2, 1, 17, 3, { 19 }, { 5 }, { 3 }, { 1 }, { 0 }, { 1 }, true, true },
    /* nothing to add up, and nothing to compute */
    { 2, 2, 1, 0, 3, { 5, 5 }, { 3, 3 }, ONES, ONES, ONES, ONES, true, false },
    { 2, 0, 1, 2, 3, { 5, 5 }, { 3, 3 }, ONES, ONES, ONES, ONES, true, false },
};

/* By the kernels of bf16 whatever the channels, or as convolutions choose. */
static const char *const paths[] = { "packed", NULL };

static gd_context *open_with(const target *t, const char *path, const char *cache, int threads)
{
    if (path)
        setenv("GRADUS_CONV", path, 1);
    setenv("GRADUS_L2", cache, 1);
    gd_context *gd = open_target(t, threads);
    unsetenv("GRADUS_CONV");
    unsetenv("GRADUS_L2");
    return gd;
}

static void test_whole_numbers_as_the_reference(void **state)
{
    (void)state;
    char what[400], text[460];
    int tried = 0, number = 0;
    for (size_t i = 0; i < COUNT(problems); i++) {
        if (!test_tries_alike(&number))
            continue;
        const problem *p = &problems[i];
        describe(p, what, sizeof what);
        gd_context *reference = open_reference();
        reading expected = run(reference, p, GD_MODE_EAGER, true, i + 1);
        close_context(reference);
        for (size_t k = 0; k < 2 * COUNT(targets); k++) {
            const target *t = &targets[k / 2];
            gd_context *gd = open_with(t, paths[k % 2], "1M", 2);
            if (!gd)
                continue;
            reading actual = run(gd, p, GD_MODE_EAGER, true, i + 1);
            snprintf(text, sizeof text, "%s: %s", t->name, what);
            assert_same_bits(&expected, &actual, text);
            reading_free(&actual);
            close_context(gd);
            tried++;
        }
        reading_free(&expected);
    }
    assert_true(tried > 0);
}

static void test_one_machine_one_result(void **state)
{
    (void)state;
    static const struct {
        gd_mode mode;
        const char *cache;
        int threads;
    } others[] = { { GD_MODE_COMPILED, "256K", 1 },
                   { GD_MODE_LAZY, "2M", 1 },
                   { GD_MODE_EAGER, "2M", 2 },
                   { GD_MODE_COMPILED, "1M", 3 } };
    char what[400], text[460];
    int number = 0;
    for (size_t k = 0; k < 2 * COUNT(targets); k++)
        for (size_t i = 0; i < COUNT(problems); i++) {
            if (!test_tries_similar(&number))
                continue;
            const target *t = &targets[k / 2];
            const problem *p = &problems[i];
            describe(p, what, sizeof what);
            snprintf(text, sizeof text, "%s: %s", t->name, what);
            gd_context *gd = open_with(t, paths[k % 2], "1M", 1);
            if (!gd)
                continue;
            reading first = run(gd, p, GD_MODE_EAGER, false, i + 1);
            close_context(gd);
            for (size_t m = 0; m < COUNT(others); m++) {
                gd = open_with(t, paths[k % 2], others[m].cache, others[m].threads);
                reading other = run(gd, p, others[m].mode, false, i + 1);
                assert_same_bits(&first, &other, text);
                reading_free(&other);
                close_context(gd);
            }
            reading_free(&first);
        }
}

/* ---- the bound ---- */

/* Y and the gradients in double; absolute: of the sizes of all operands. terms: those of a sum at
 * most. */
static reading exact(gd_context *gd, const problem *p, bool absolute, uint64_t seed)
{
    gd_tensor *in[OPERANDS];
    gd_scope_begin(gd);
    make_operands(gd, p, false, seed, in);
    for (int i = 0; i < OPERANDS; i++) {
        gd_tensor *x = gd_cast(gd_detach(in[i]), GD_F64);
        in[i] = gd_set_requires_grad(absolute ? gd_abs(x) : x, true);
    }
    gd_tensor *y = convolve(p, in[X], in[W], p->bias ? in[BIAS] : NULL);
    gd_tensor *d[3], *by[3] = { in[X], in[W], in[BIAS] };
    const int many = p->bias ? 3 : 2;
    assert_int_equal(gd_grad(1, &y, &in[G], many, by, d), GD_OK);
    gd_tensor *parts[4] = { y, d[0], d[1], many > 2 ? d[2] : NULL };
    for (int i = 0; i < 1 + many; i++)
        parts[i] = gd_reshape(parts[i], GD_SHAPE(-1));
    reading r = reading_take(gd_concat(1 + many, parts, 0), "exact");
    gd_scope_end(gd);
    return r;
}

static int64_t most_terms(const problem *p)
{
    int64_t taps = 1, positions = p->n;
    for (int a = 0; a < p->axes; a++) {
        taps *= p->kernel[a];
        const int64_t reach = p->dilation[a] * (p->kernel[a] - 1);
        positions *= p->transposed ? p->in[a] * p->stride[a] + reach + 1
                                   : p->in[a] + p->before[a] + p->after[a];
    }
    const int64_t channels = taps * (p->c > p->o ? p->c : p->o);
    return channels > positions ? channels : positions;
}

/* Within the bound of sums in f32, and one rounding to bf16. */
static void assert_within_bound(const reading *r, const reading *value, const reading *size,
                                int64_t terms, const char *what)
{
    assert_int_equal(r->count, value->count);
    for (int64_t i = 0; i < r->count; i++) {
        const double x = reading_value(r, i), e = reading_value(value, i);
        const double sums = (double)(terms + 2) * FLT_EPSILON * reading_value(size, i);
        if (!(fabs(x - e) <= sums + (fabs(e) + sums) / 256))
            fail_msg("%s: number %lld is %.9g, not %.9g", what, (long long)i, x, e);
    }
}

static void test_results_are_within_the_bound(void **state)
{
    (void)state;
    char what[400], text[460];
    int number = 0;
    for (size_t i = 0; i < COUNT(problems); i++) {
        if (!test_tries_alike(&number))
            continue;
        const problem *p = &problems[i];
        describe(p, what, sizeof what);
        gd_context *plain = gd_open("cpu", .threads = 1);
        reading value = exact(plain, p, false, i + 1), size = exact(plain, p, true, i + 1);
        gd_close(plain);
        for (size_t k = 0; k <= COUNT(targets); k++) {
            gd_context *gd =
                k == COUNT(targets) ? open_reference() : open_with(&targets[k], "packed", "1M", 2);
            if (!gd)
                continue;
            snprintf(text, sizeof text, "%s: %s",
                     k == COUNT(targets) ? "reference" : targets[k].name, what);
            reading r = run(gd, p, GD_MODE_EAGER, false, i + 1);
            assert_within_bound(&r, &value, &size, most_terms(p), text);
            reading_free(&r);
            close_context(gd);
        }
        reading_free(&value);
        reading_free(&size);
    }
}

/* ---- plans ---- */

static gd_tensor *forward(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_conv2d(in[0], in[1], NULL, .padding = GD_SHAPE(1, 1));
}

/* How often `word` stands in the plan of a convolution of bf16 from some channels to others. */
static int plan_says(gd_context *gd, int64_t c, int64_t o, const char *word)
{
    char text[4096];
    gd_scope_begin(gd);
    gd_tensor *in[2] = { gd_cast(gd_normal(gd, GD_SHAPE(2, c, 9, 9), 0, 1, GD_F32), GD_BF16),
                         gd_cast(gd_normal(gd, GD_SHAPE(o, c, 3, 3), 0, 1, GD_F32), GD_BF16) };
    gd_function *f = gd_compile(gd, forward, NULL);
    assert_non_null(gd_call(f, 2, in));
    assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
    int count = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        count++;
    gd_function_release(f);
    gd_scope_end(gd);
    return count;
}

/* bf16 is multiplied as it is where that pays: by the extensions of AVX-512, from 8 channels or more to
 * 16 or more. */
static void test_plans_multiply_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(targets); i++) {
        gd_context *gd = open_target(&targets[i], 1);
        if (!gd)
            continue;
        const int pays = targets[i].extension >= 0 && targets[i].isa == GD_ISA_AVX512;
        assert_int_equal(plan_says(gd, 8, 16, "windows packed in bf16"), pays);
        assert_int_equal(plan_says(gd, 8, 16, targets[i].kernel), pays);
        assert_int_equal(plan_says(gd, 7, 16, "in bf16"), 0);
        assert_int_equal(plan_says(gd, 8, 15, "in bf16"), 0);
        close_context(gd);
        gd = open_with(&targets[i], "packed", "1M", 1);
        assert_int_equal(plan_says(gd, 1, 3, "windows packed in bf16"), pays);
        close_context(gd);
    }
}

/* ---- training ---- */

enum { CLASSES = 5, STEPS = 12 };

typedef struct net {
    gd_module *module;
    gd_optimizer *optimizer;
    gd_dtype dtype; /* of the scope */
} net;

/* Convolutions with bias and ReLU, a stride, groups and a window that is an element. */
static gd_tensor *train(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    net *n = user;
    gd_context *gd = gd_module_context(n->module);
    if (gd_autocast_begin(gd, n->dtype) != GD_OK)
        return NULL;
    const gd_shape pad = GD_SHAPE(1, 1);
    gd_tensor *h = gd_nn_conv2d(n->module, "a", in[0], 16, GD_SHAPE(3, 3), .padding = pad);
    h = gd_nn_conv2d(n->module, "b", gd_relu(h), 32, GD_SHAPE(3, 3), .padding = pad,
                     .stride = GD_SHAPE(2, 2));
    h = gd_nn_conv2d(n->module, "c", gd_relu(h), 32, GD_SHAPE(3, 3), .padding = pad, .groups = 2);
    h = gd_nn_conv2d(n->module, "d", gd_relu(h), 24, GD_SHAPE(1, 1));
    h = gd_nn_linear(n->module, "out", gd_mean(gd_relu(h), GD_AXES(2, 3), false), CLASSES);
    gd_tensor *loss = gd_cross_entropy(h, in[1]);
    return gd_autocast_end(gd) == GD_OK ? gd_minimize(n->optimizer, loss) : NULL;
}

/* The losses of some steps, then all parameters. */
static reading train_some(gd_context *gd, gd_dtype dtype, gd_mode mode)
{
    net n = { .module = gd_module_create(gd, .seed = 3), .dtype = dtype };
    n.optimizer = gd_adam(n.module, .lr = 1e-2);
    assert_int_equal(gd_seed(gd, 5), GD_OK);
    gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(10, 8, 16, 16), 0, 1, GD_F32),
                         gd_randint(gd, GD_SHAPE(10), 0, CLASSES, GD_I64) };
    gd_function *f = gd_compile(gd, train, &n, .mode = mode);
    gd_tensor *parts[STEPS + 10];
    for (int i = 0; i < STEPS; i++) {
        gd_tensor *loss = gd_call(f, 2, in);
        if (!loss)
            fail_msg("%s", gd_error_message());
        parts[i] = gd_reshape(gd_copy(loss), GD_SHAPE(1));
    }
    assert_int_equal(gd_module_count(n.module), 10);
    for (int i = 0; i < 10; i++)
        parts[STEPS + i] = gd_reshape(gd_module_tensor(n.module, i), GD_SHAPE(-1));
    reading r = reading_take(gd_concat(STEPS + 10, parts, 0), "training");
    gd_function_release(f);
    return r;
}

static void test_networks_learn(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(targets); i++) {
        gd_context *gd = open_target(&targets[i], 1), *wide = open_target(&targets[i], 3);
        if (!gd)
            continue;
        reading first = train_some(gd, GD_BF16, GD_MODE_EAGER);
        for (int k = test_is_slow() ? 2 : 0; k < 4; k++) {
            reading other =
                train_some(k < 2 ? gd : wide, GD_BF16, k % 2 ? GD_MODE_LAZY : GD_MODE_COMPILED);
            assert_same_bits(&first, &other, targets[i].name);
            reading_free(&other);
        }
        reading plain = train_some(gd, GD_F32, GD_MODE_COMPILED);
        assert_true(reading_value(&plain, STEPS - 1) < 0.9 * reading_value(&plain, 0));
        for (int k = 0; k < STEPS; k++)
            if (!(fabs(reading_value(&first, k) - reading_value(&plain, k)) < 0.03))
                fail_msg("%s: step %d has loss %g, in f32 %g", targets[i].name, k,
                         reading_value(&first, k), reading_value(&plain, k));
        reading_free(&first);
        reading_free(&plain);
        close_context(gd);
        close_context(wide);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_whole_numbers_as_the_reference),
                                        cmocka_unit_test(test_one_machine_one_result),
                                        cmocka_unit_test(test_results_are_within_the_bound),
                                        cmocka_unit_test(test_plans_multiply_bf16),
                                        cmocka_unit_test(test_networks_learn) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
