/* tests/test_conv_paths.c: the paths of the convolutions on the CPU (backend/cpu/conv_*.c). Against
 * the reference device operands are small whole numbers, whose sums are exact in any order, so that
 * results are compared bit for bit. Among each other, forced by the environment
 * (backend/cpu/paths.h), paths give the same bits for any numbers.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/conv.h>
#include <gradus/ops.h>

#include "support/effort.h"
#include "support/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A convolution over two axes. */
typedef struct problem {
    int64_t n, c, o; /* images, channels in, channels out */
    int64_t in[2], kernel[2], stride[2], before[2], after[2], dilation[2];
} problem;

typedef struct results {
    reading y, dx, dw;
} results;

static void describe(const problem *p, char *to, size_t size)
{
    snprintf(to, size,
             "x [%d, %d, %d, %d], w [%d, %d, %d, %d], strides %d %d, before %d %d, after %d %d, "
             "dilations %d %d",
             (int)p->n, (int)p->c, (int)p->in[0], (int)p->in[1], (int)p->o, (int)p->c,
             (int)p->kernel[0], (int)p->kernel[1], (int)p->stride[0], (int)p->stride[1],
             (int)p->before[0], (int)p->before[1], (int)p->after[0], (int)p->after[1],
             (int)p->dilation[0], (int)p->dilation[1]);
}

/* Whole numbers, or any between -1 and 1. */
static gd_tensor *random_tensor(gd_context *context, gd_shape shape, gd_dtype dtype, bool whole,
                                numbers *n)
{
    const int64_t count = shape_count(shape);
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = whole ? (float)(int)(numbers_next(n) % 9) - 4 : (float)numbers_uniform(n, -1, 1);
    gd_tensor *t = gd_from_host(context, shape, GD_F32, x);
    assert_non_null(t);
    free(x);
    return dtype == GD_F32 ? t : gd_cast(t, dtype);
}

static gd_conv_options options_of(const problem *p)
{
    return (gd_conv_options){ GD_CONV_DEFAULTS, .stride = GD_SHAPE(p->stride[0], p->stride[1]),
                              .padding_before = GD_SHAPE(p->before[0], p->before[1]),
                              .padding_after = GD_SHAPE(p->after[0], p->after[1]),
                              .dilation = GD_SHAPE(p->dilation[0], p->dilation[1]) };
}

/* y, and the gradients that a seed brings to x and w. */
static results run_as(gd_context *context, const problem *p, gd_dtype dtype, bool whole,
                      uint64_t seed)
{
    numbers n = { seed };
    gd_scope_begin(context);
    gd_conv_options o = options_of(p);
    gd_tensor *x = gd_set_requires_grad(
        random_tensor(context, GD_SHAPE(p->n, p->c, p->in[0], p->in[1]), dtype, whole, &n), true);
    gd_tensor *w = gd_set_requires_grad(
        random_tensor(context, GD_SHAPE(p->o, p->c, p->kernel[0], p->kernel[1]), dtype, whole, &n),
        true);
    gd_tensor *y = gd_conv_with(x, w, NULL, 2, &o), *d[2];
    if (!y)
        fail_msg("%s", gd_error_message());
    gd_tensor *g = random_tensor(context, gd_tensor_shape(y), dtype, whole, &n);
    assert_int_equal(gd_grad(1, &y, &g, 2, (gd_tensor *[]){ x, w }, d), GD_OK);
    const results r = { reading_take(y, "y"), reading_take(d[0], "dx"), reading_take(d[1], "dw") };
    gd_scope_end(context);
    return r;
}

static results run(gd_context *context, const problem *p, bool whole, uint64_t seed)
{
    return run_as(context, p, GD_F32, whole, seed);
}

static void results_free(results *r)
{
    reading_free(&r->y);
    reading_free(&r->dx);
    reading_free(&r->dw);
}

static void assert_same_results(const results *expected, const results *actual, const char *what)
{
    char text[400];
    snprintf(text, sizeof text, "y of %s", what);
    assert_same_bits(&expected->y, &actual->y, text);
    snprintf(text, sizeof text, "dx of %s", what);
    assert_same_bits(&expected->dx, &actual->dx, text);
    snprintf(text, sizeof text, "dw of %s", what);
    assert_same_bits(&expected->dw, &actual->dw, text);
}

/* On every instruction set against the reference device. */
static void check(const problem *p, uint64_t seed)
{
    char what[280];
    describe(p, what, sizeof what);
    gd_context *reference = open_reference();
    results expected = run(reference, p, true, seed);
    close_context(reference);
    for (const char *const *isa = isa_names(); *isa; isa++) {
        gd_context *context = open_cpu(*isa, 2);
        results actual = run(context, p, true, seed);
        assert_same_results(&expected, &actual, what);
        results_free(&actual);
        close_context(context);
    }
    results_free(&expected);
    assert_int_equal(watch_faults(), 0);
}

static int64_t one_of(numbers *n, int64_t least, int64_t most)
{
    return least + (int64_t)(numbers_next(n) % (uint64_t)(most - least + 1));
}

/* ---- strides ---- */

/* Stride 1 from row to row and more along rows, with padding above and below. */
static void test_strides_along_rows_alone(void **state)
{
    (void)state;
    static const problem examples[] = {
        { 1, 1, 1, { 3, 8 }, { 3, 1 }, { 1, 2 }, { 1, 0 }, { 1, 0 }, { 1, 1 } },
        { 1, 1, 1, { 2, 2 }, { 2, 1 }, { 1, 2 }, { 1, 0 }, { 1, 0 }, { 1, 1 } },
    };
    for (int i = 0; i < COUNT(examples); i++)
        check(&examples[i], 1);
    numbers n = { 3 };
    for (int i = 0; i < 60; i++) {
        const int64_t rows = one_of(&n, 2, 5);
        const problem p = { .n = one_of(&n, 1, 3),
                            .c = one_of(&n, 1, 9),
                            .o = one_of(&n, 1, 20),
                            .in = { one_of(&n, rows, 14), one_of(&n, 4, 40) },
                            .kernel = { rows, one_of(&n, 1, 4) },
                            .stride = { 1, one_of(&n, 2, 4) },
                            .before = { one_of(&n, 1, rows - 1), one_of(&n, 0, 3) },
                            .after = { one_of(&n, 1, rows - 1), one_of(&n, 0, 3) },
                            .dilation = { 1, one_of(&n, 1, 2) } };
        if (p.in[1] + p.before[1] + p.after[1] > (p.kernel[1] - 1) * p.dilation[1])
            check(&p, (uint64_t)i);
    }
}

/* ---- the edge of capacities ---- */

/* Single taps of so many channels that an image's band just fits in half a second-level cache of 2
 * MB or 1 MB behind the weights, or just not. */
static void test_bands_that_just_fit(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {
        /* channels in, out, image */
        { 1008, 8, 14, 14 }, { 1016, 8, 14, 14 }, { 1020, 8, 14, 14 },
        { 1024, 8, 14, 14 }, { 8, 1024, 14, 14 }, { 735, 8, 11, 11 },
        { 736, 8, 11, 11 },  { 737, 8, 11, 11 },  { 919, 8, 48, 2 },
    };
    for (int i = 0; i < COUNT(sizes); i++) {
        const problem p = { .n = 1,
                            .c = sizes[i][0],
                            .o = sizes[i][1],
                            .in = { sizes[i][2], sizes[i][3] },
                            .kernel = { 1, 1 },
                            .stride = { 1, 1 },
                            .dilation = { 1, 1 } };
        check(&p, (uint64_t)i);
    }
}

/* ---- paths, sizes of the cache, threads ---- */

static const char *const paths[] = { NULL, "packed", "direct", "images", "narrow", "winograd" };
static const char *const caches[] = { "256K", "512K", "1M", "2M" };
static const int thread_counts[] = { 1, 2, 3, 5, 64 };

static gd_context *open_with(const char *isa, const char *path, const char *cache, int threads)
{
    if (path)
        setenv("GRADUS_CONV", path, 1);
    setenv("GRADUS_L2", cache, 1);
    gd_context *context = open_cpu(isa, threads);
    unsetenv("GRADUS_CONV");
    unsetenv("GRADUS_L2");
    return context;
}

/* A problem by every path with a cache of every size gives the bits that packing gives. */
static void check_paths(const problem *p, const char *isa, uint64_t seed)
{
    static unsigned turn;
    char what[280], text[360];
    describe(p, what, sizeof what);
    gd_context *context = open_with(isa, "packed", "1M", 1);
    results expected = run(context, p, false, seed);
    close_context(context);
    for (int path = 0; path < COUNT(paths); path++)
        for (int cache = 0; cache < COUNT(caches); cache++) {
            const int threads = thread_counts[turn++ % COUNT(thread_counts)];
            context = open_with(isa, paths[path], caches[cache], threads);
            results actual = run(context, p, false, seed);
            snprintf(text, sizeof text, "%s by %s on %s with %d threads and L2 of %s", what,
                     paths[path] ? paths[path] : "choice", isa, threads, caches[cache]);
            assert_same_results(&expected, &actual, text);
            results_free(&actual);
            close_context(context);
        }
    results_free(&expected);
    assert_int_equal(watch_faults(), 0);
}

/* What half a cache of 256 KB, 512 KB, 1 MB or 2 MB just holds, or just not. */
static void test_paths_at_their_capacity(void **state)
{
    (void)state;
    static const problem problems[] = {
#define SAME(n, c, o, h, w, k)                                                     \
    {                                                                              \
        n, c, o, { h, w }, { k, k }, { 1, 1 }, { k / 2, k / 2 }, { k / 2, k / 2 }, \
        {                                                                          \
            1, 1                                                                   \
        }                                                                          \
    }
        /* many channels that few see, and few that many see */
        SAME(1, 1020, 8, 14, 14, 1),
        SAME(1, 1024, 8, 14, 14, 1),
        SAME(1, 8, 1024, 14, 14, 1),
        SAME(1, 736, 8, 11, 11, 1),
        SAME(1, 417, 8, 7, 7, 1),
        SAME(1, 231, 8, 5, 5, 1),
        SAME(2, 24, 16, 17, 17, 5),
        /* direct: some rows of a few channels */
        SAME(1, 30, 3, 8, 66, 3),
        SAME(1, 30, 3, 8, 69, 3),
        SAME(1, 30, 3, 8, 148, 3),
        SAME(1, 30, 3, 8, 305, 3),
        SAME(1, 30, 3, 8, 616, 3),
        SAME(1, 3, 5, 6, 900, 7),
        /* images: sixteen, or twice as many as AVX2 takes */
        SAME(16, 32, 4, 8, 8, 3),
        SAME(16, 33, 4, 8, 8, 3),
        SAME(17, 64, 4, 8, 8, 3),
        SAME(16, 65, 5, 8, 8, 3),
        /* the weight's gradient: the channels that a part sees */
        SAME(2, 57, 9, 14, 14, 3),
        SAME(2, 61, 9, 14, 14, 3),
        SAME(1, 265, 5, 14, 14, 3),
        /* packed: columns and depths over a block's */
        SAME(1, 64, 15, 12, 11, 3),
        SAME(2, 29, 6, 23, 23, 3),
        /* products: planes that fill vectors of 16, of 8, and neither */
        SAME(3, 70, 33, 16, 17, 1),
        SAME(2, 300, 7, 3, 72, 1),
        SAME(2, 19, 40, 15, 17, 1),
        SAME(3, 19, 1, 8, 24, 1),
        /* strides, dilations, uneven padding */
        { 3, 20, 17, { 15, 18 }, { 3, 5 }, { 2, 3 }, { 1, 2 }, { 2, 0 }, { 1, 1 } },
        { 17, 9, 12, { 9, 11 }, { 3, 2 }, { 1, 2 }, { 2, 1 }, { 1, 1 }, { 2, 1 } },
        { 2, 40, 4, { 9, 12 }, { 3, 3 }, { 1, 1 }, { 2, 2 }, { 2, 2 }, { 2, 2 } },
    };
    int number = 0;
    for (const char *const *isa = isa_names(); *isa; isa++)
        for (int i = 0; i < COUNT(problems); i++)
            if (test_tries_similar(&number))
                check_paths(&problems[i], *isa, (uint64_t)i);
}

/* The weight's gradient by lines of 3 and 5 taps, for whole vectors of channels and for halves: every number of
 * lines, rows of positions shorter than a line, blocks of positions that end within a row, and numbers that
 * are not finite beside padding, which they must not meet. */
static void test_lines_of_taps(void **state)
{
    (void)state;
    numbers n = { 17 };
    int number = 0;
    for (int i = 0; i < 120; i++) {
        const int64_t taps = i % 2 ? 5 : 3, rows = one_of(&n, 1, 5);
        const problem p = { .n = one_of(&n, 1, 5),
                            .c = one_of(&n, 1, i % 3 ? 4 : 20),
                            .o = i % 4 == 3 ? one_of(&n, 17, 40) : one_of(&n, 1, i % 4 ? 16 : 8),
                            .in = { one_of(&n, rows, 9), one_of(&n, taps - 2, i % 5 ? 12 : 70) },
                            .kernel = { rows, taps },
                            .stride = { one_of(&n, 1, 2), 1 },
                            .before = { one_of(&n, 0, rows - 1), one_of(&n, 1, taps - 1) },
                            .after = { one_of(&n, 0, rows - 1), one_of(&n, 1, taps - 1) },
                            .dilation = { 1, 1 } };
        if (!test_tries_similar(&number))
            continue;
        for (const char *const *isa = isa_names(); *isa; isa++) {
            gd_context *packed = open_with(*isa, "packed", "1M", 1),
                       *lines = open_with(*isa, NULL, "1M", (int)one_of(&n, 1, 3));
            results expected = run(packed, &p, false, (uint64_t)i);
            results actual = run(lines, &p, false, (uint64_t)i);
            char what[280];
            describe(&p, what, sizeof what);
            assert_same_results(&expected, &actual, what);
            results_free(&expected);
            results_free(&actual);
            close_context(packed);
            close_context(lines);
        }
    }
    assert_int_equal(watch_faults(), 0);
}

/* x has an infinity in one corner: sums that see it are not finite, and all others have the bits of a plain x. */
static void test_lines_beside_infinities(void **state)
{
    (void)state;
    enum { C = 3, SIDE = 6, O = 5 };
    for (const char *const *isa = isa_names(); *isa; isa++) {
        reading dw[2];
        for (int spoilt = 0; spoilt < 2; spoilt++) {
            gd_context *gd = open_with(*isa, NULL, "1M", 1);
            numbers n = { 23 };
            float x[C * SIDE * SIDE];
            for (int i = 0; i < C * SIDE * SIDE; i++)
                x[i] = (float)numbers_uniform(&n, -1, 1);
            if (spoilt)
                x[SIDE * SIDE] = INFINITY; /* channel 1 */
            gd_tensor *w = gd_set_requires_grad(
                random_tensor(gd, GD_SHAPE(O, C, 3, 3), GD_F32, false, &n), true);
            gd_tensor *y = gd_conv2d(gd_from_host(gd, GD_SHAPE(1, C, SIDE, SIDE), GD_F32, x), w,
                                     NULL, .padding = GD_SHAPE(1, 1));
            gd_tensor *g = random_tensor(gd, GD_SHAPE(1, O, SIDE, SIDE), GD_F32, false, &n), *d;
            assert_int_equal(gd_grad(1, &y, &g, 1, &w, &d), GD_OK);
            dw[spoilt] = reading_take(d, "dw");
            close_context(gd);
        }
        for (int64_t i = 0; i < dw[0].count; i++) {
            const int64_t channel = i / 9 % C, ty = i / 3 % 3, tx = i % 3;
            if (channel == 1 && ty <= 1 && tx <= 1) /* the taps that meet the corner */
                assert_true(isfinite(reading_value(&dw[1], i)) == 0);
            else
                assert_true(reading_value(&dw[1], i) == reading_value(&dw[0], i));
        }
        reading_free(&dw[0]);
        reading_free(&dw[1]);
    }
    assert_int_equal(watch_faults(), 0);
}

/* In f64, where the kernels are plain loops, at any number of threads. */
static void test_f64(void **state)
{
    (void)state;
    static const problem p = {
        3, 5, 7, { 9, 11 }, { 3, 2 }, { 1, 2 }, { 2, 1 }, { 1, 1 }, { 2, 1 }
    };
    results first = { 0 };
    for (int i = -1; i < COUNT(thread_counts); i++) {
        gd_context *context = i < 0 ? open_reference() : open_cpu(NULL, thread_counts[i]);
        results r = run_as(context, &p, GD_F64, true, 9);
        close_context(context);
        if (i < 0) {
            first = r;
            continue;
        }
        assert_same_results(&first, &r, "a convolution in f64");
        results_free(&r);
    }
    results_free(&first);
}

/* ---- what the plan says ---- */

/* One number of y and of the gradients, so that a plan has all three kernels. */
static gd_tensor *all_kernels(void *user, int count, gd_tensor *const *in)
{
    assert_int_equal(count, 2);
    const gd_conv_options o = options_of(user);
    gd_tensor *x = gd_set_requires_grad(gd_add_scalar(in[0], 0), true);
    gd_tensor *w = gd_set_requires_grad(gd_add_scalar(in[1], 0), true);
    gd_tensor *y = gd_conv_with(x, w, NULL, 2, &o), *d[2];
    assert_int_equal(gd_grad(1, &y, NULL, 2, (gd_tensor *[]){ x, w }, d), GD_OK);
    gd_tensor *dx = gd_sum(d[0], GD_ALL_AXES, false), *dw = gd_sum(d[1], GD_ALL_AXES, false);
    return gd_add(gd_add(gd_sum(y, GD_ALL_AXES, false), dx), dw);
}

/* The lines of the plan that tell how convolutions are computed. */
static void explain(const problem *p, const char *isa, const char *path, char *to, size_t size)
{
    gd_context *context = open_with(isa, path, "1M", 1);
    numbers n = { 1 };
    gd_tensor *in[] = {
        random_tensor(context, GD_SHAPE(p->n, p->c, p->in[0], p->in[1]), GD_F32, true, &n),
        random_tensor(context, GD_SHAPE(p->o, p->c, p->kernel[0], p->kernel[1]), GD_F32, true, &n)
    };
    gd_function *f = gd_compile(context, all_kernels, (void *)p);
    if (!gd_call(f, 2, in))
        fail_msg("%s", gd_error_message());
    char text[16384];
    assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
    to[0] = '\0';
    const char *const ops[] = { "\nconvolution ", "\nconvolution_grad_input ",
                                "\nconvolution_grad_weight " };
    for (int i = 0; i < COUNT(ops); i++) {
        const char *at = strstr(text, ops[i]);
        assert_non_null(at);
        at = strchr(at + 1, '\n') + 1;
        assert_memory_equal(at, "    ", 4);
        snprintf(to + strlen(to), size - strlen(to), "%.*s\n", (int)strcspn(at, "\n"), at);
    }
    gd_function_release(f);
    close_context(context);
}

/* Each path is taken where it is meant to be, by each of the three kernels: none vanishes unseen. */
static void test_plans_tell_the_path(void **state)
{
    (void)state;
    static const problem lenet = { 32,       12,       32,       { 14, 14 }, { 5, 5 },
                                   { 1, 1 }, { 0, 0 }, { 0, 0 }, { 1, 1 } };
    static const problem wide = { 2,        16,       64,       { 40, 64 }, { 3, 3 },
                                  { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } };
    static const problem strided = { 2,        16,       64,       { 41, 41 }, { 3, 3 },
                                     { 2, 2 }, { 1, 1 }, { 1, 1 }, { 1, 1 } };
    static const problem pointwise = { 2,        16,       64,       { 40, 64 }, { 1, 1 },
                                       { 1, 1 }, { 0, 0 }, { 0, 0 }, { 1, 1 } };
    static const struct {
        const problem *p;
        const char *path, *y, *dx, *dw;
    } told[] = {
        { &lenet, NULL, "images in the lanes: small", "images in the lanes: small", "bands" },
        { &wide, NULL, "bands: rows are copied", "bands: rows are copied", "bands" },
        { &wide, "packed", "packing: GRADUS_CONV", "packing: GRADUS_CONV", "packing" },
        { &wide, "direct", "bands: GRADUS_CONV", "bands: GRADUS_CONV", "bands" },
        { &lenet, "images", "images in the lanes", "images in the lanes", "bands" },
        { &strided, NULL, "", "so each 4th element, and the others likewise", "bands" },
        { &pointwise, NULL, "a product, a window", "a product, a window",
          "packing: windows do not overlap" },
        { &pointwise, "packed", "packing: GRADUS_CONV", "packing: GRADUS_CONV", "packing" },
    };
    for (const char *const *isa = isa_names(); *isa; isa++)
        for (int i = 0; i < COUNT(told); i++) {
            char text[2048];
            explain(told[i].p, *isa, told[i].path, text, sizeof text);
            const char *const expected[] = { told[i].y, told[i].dx, told[i].dw };
            const char *line = text;
            for (int k = 0; k < 3; k++, line = strchr(line, '\n') + 1) {
                const char *found = strstr(line, expected[k]);
                if (!found || found > strchr(line, '\n'))
                    fail_msg("problem %d, line %d on %s: \"%s\" is not in\n%s", i, k, *isa,
                             expected[k], text);
            }
        }
    static const problem narrow = { 4,        3,        8,        { 12, 12 }, { 3, 3 },
                                    { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } };
    for (const char *const *isa = isa_names(); *isa; isa++)
        for (int i = 0; i < 2 && strcmp(*isa, "avx512") == 0; i++) {
            char text[2048];
            explain(&narrow, *isa, i ? "direct" : NULL, text, sizeof text);
            assert_non_null(strstr(text, i ? "and read at each tap's shift"
                                           : "and read once for the taps of a line"));
        }
    assert_int_equal(watch_faults(), 0);
}

/* A value that is not known is an error with a sentence that says what is. */
static void test_unknown_values(void **state)
{
    (void)state;
    static const char *const wrong[][3] = {
        { "GRADUS_CONV", "fast", "packed, direct, images, narrow or winograd" },
        { "GRADUS_CONV", "Packed", "packed, direct" },
        { "GRADUS_MATMUL", "lanes", "packed, direct, rows, transposed or bf16x3" },
        { "GRADUS_L2", "fast", "64K to 64M" },
        { "GRADUS_L2", "12", "64K to 64M" },
        { "GRADUS_L2", "256k", "64K to 64M" },
        { "GRADUS_L2", "1M ", "64K to 64M" },
        { "GRADUS_L2", "-1", "64K to 64M" },
        { "GRADUS_L2", "99999999999999999999999M", "64K to 64M" },
        { "GRADUS_L2", "M", "64K to 64M" },
    };
    for (int i = 0; i < COUNT(wrong); i++) {
        setenv(wrong[i][0], wrong[i][1], 1);
        assert_null(gd_open("cpu"));
        assert_int_equal(gd_error_code(), GD_ERR_INVALID);
        assert_non_null(strstr(gd_error_message(), wrong[i][0]));
        assert_non_null(strstr(gd_error_message(), wrong[i][2]));
        gd_error_clear();
        unsetenv(wrong[i][0]);
    }
    static const char *const right[] = { "65536", "64K", "256K", "2M", "64M", "" };
    for (int i = 0; i < COUNT(right); i++) {
        setenv("GRADUS_L2", right[i], 1);
        gd_context *context = gd_open("cpu", .threads = 1);
        assert_non_null(context);
        gd_close(context);
    }
    unsetenv("GRADUS_L2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strides_along_rows_alone), cmocka_unit_test(test_bands_that_just_fit),
        cmocka_unit_test(test_paths_at_their_capacity),  cmocka_unit_test(test_lines_of_taps),
        cmocka_unit_test(test_lines_beside_infinities),  cmocka_unit_test(test_f64),
        cmocka_unit_test(test_plans_tell_the_path),      cmocka_unit_test(test_unknown_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
