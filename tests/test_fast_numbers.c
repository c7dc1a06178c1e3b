/* tests/test_fast_numbers.c: the class of numbers `fast` on the CPU (gd_numbers), which is Winograd's
 * filtering for convolutions of 3 x 3 (backend/cpu/conv_winograd.h). Results are compared with those of
 * the reference device in f64, whose operands are the same numbers, and with the stated bound; then
 * with each other bit for bit. Small shapes take that way because GRADUS_CONV asks for it.
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

/* Channels are those of a group. */
typedef struct problem {
    int64_t n, groups, c, o;
    int64_t in[2], before[2], after[2];
} problem;

static const problem problems[] = {
    { 1, 1, 1, 1, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    { 1, 1, 16, 16, { 4, 4 }, { 1, 1 }, { 1, 1 } },
    { 2, 1, 16, 32, { 3, 3 }, { 0, 0 }, { 0, 0 } },
    { 3, 1, 17, 33, { 7, 9 }, { 1, 1 }, { 1, 1 } },
    { 2, 1, 5, 70, { 11, 6 }, { 2, 2 }, { 2, 2 } },
    { 1, 1, 20, 3, { 5, 13 }, { 0, 1 }, { 2, 0 } },
    { 2, 1, 8, 24, { 2, 5 }, { 4, 3 }, { 3, 5 } },
    { 1, 1, 40, 40, { 14, 14 }, { 1, 1 }, { 1, 1 } },
    { 5, 1, 33, 129, { 6, 7 }, { 1, 1 }, { 1, 1 } },
    { 1, 1, 260, 18, { 9, 8 }, { 1, 1 }, { 1, 1 } },
    { 1, 1, 18, 270, { 5, 5 }, { 1, 1 }, { 1, 1 } },
    { 2, 1, 6, 7, { 9, 67 }, { 1, 1 }, { 1, 1 } },
    { 1, 1, 3, 4, { 10, 150 }, { 1, 0 }, { 1, 2 } },
    { 2, 3, 9, 5, { 8, 10 }, { 1, 1 }, { 1, 1 } },
    { 3, 2, 20, 66, { 13, 6 }, { 1, 1 }, { 1, 1 } },
    { 0, 1, 16, 32, { 8, 8 }, { 1, 1 }, { 1, 1 } },
};

typedef struct results {
    reading y, dx, dw;
} results;

static void results_free(results *r)
{
    reading_free(&r->y);
    reading_free(&r->dx);
    reading_free(&r->dw);
}

/* Ordinary numbers; those whose sizes differ a million times; magnitudes, of the first kind. */
enum kind { ORDINARY, WIDE, MAGNITUDES };

static gd_tensor *random_tensor(gd_context *context, gd_shape shape, gd_dtype dtype, enum kind kind,
                                uint64_t seed)
{
    const int64_t count = shape_count(shape);
    numbers n = { seed };
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)numbers_uniform(&n, -1, 1);
        if (kind == WIDE)
            x[i] *= ldexpf(1, (int)(numbers_next(&n) % 20));
        if (kind == MAGNITUDES)
            x[i] = fabsf(x[i]);
    }
    gd_tensor *t = gd_from_host(context, shape, GD_F32, x);
    assert_non_null(t);
    free(x);
    return dtype == GD_F32 ? t : gd_cast(t, dtype);
}

static gd_conv_options options_of(const problem *p)
{
    return (gd_conv_options){ GD_CONV_DEFAULTS, .groups = p->groups,
                              .padding_before = GD_SHAPE(p->before[0], p->before[1]),
                              .padding_after = GD_SHAPE(p->after[0], p->after[1]) };
}

static gd_shape x_shape(const problem *p)
{
    return GD_SHAPE(p->n, p->groups * p->c, p->in[0], p->in[1]);
}

static gd_shape w_shape(const problem *p)
{
    return GD_SHAPE(p->groups * p->o, p->c, 3, 3);
}

static gd_shape y_shape(const problem *p)
{
    return GD_SHAPE(p->n, p->groups * p->o, p->in[0] + p->before[0] + p->after[0] - 2,
                    p->in[1] + p->before[1] + p->after[1] - 2);
}

enum { SEED_X = 11, SEED_W = 12, SEED_G = 13 };

/* y, and the gradients that a seed brings to x and w. */
static results run(gd_context *context, const problem *p, gd_dtype dtype, enum kind kind)
{
    gd_scope_begin(context);
    const gd_conv_options o = options_of(p);
    gd_tensor *x = random_tensor(context, x_shape(p), dtype, kind, SEED_X);
    gd_tensor *w = random_tensor(context, w_shape(p), dtype, kind, SEED_W);
    gd_set_requires_grad(x, true);
    gd_set_requires_grad(w, true);
    gd_tensor *y = gd_conv_with(x, w, NULL, 2, &o), *d[2];
    if (!y)
        fail_msg("%s", gd_error_message());
    gd_tensor *g = random_tensor(context, y_shape(p), dtype, kind, SEED_G);
    assert_int_equal(gd_grad(1, &y, &g, 2, (gd_tensor *[]){ x, w }, d), GD_OK);
    const results r = { reading_take(y, "y"), reading_take(d[0], "dx"), reading_take(d[1], "dw") };
    gd_scope_end(context);
    return r;
}

/* A context on the CPU with these GRADUS_NUMBERS and GRADUS_CONV. */
static gd_context *open_as(const char *isa, const char *class, const char *path, int threads)
{
    setenv("GRADUS_NUMBERS", class, 1);
    if (path)
        setenv("GRADUS_CONV", path, 1);
    gd_context *context = open_cpu(isa, threads);
    unsetenv("GRADUS_NUMBERS");
    unsetenv("GRADUS_CONV");
    return context;
}

static results run_as(const char *isa, const char *class, const char *path, int threads,
                      const problem *p)
{
    gd_context *context = open_as(isa, class, path, threads);
    const results r = run(context, p, GD_F32, ORDINARY);
    close_context(context);
    return r;
}

/* ---- the bound ---- */

/* Whole tensors [n, c, h, w] that a convolution of one direction reads, as the sums of y name them. */
typedef struct view {
    const float *x, *w;
    int64_t n, groups, c, o, in[2], out[2], before[2];
    bool transposed; /* the weight is [groups * c, o, 3, 3], read for the gradient by the input */
} view;

/* The largest magnitude of x in the 6 x 6 elements that the tile of (row, column) sees. */
static double largest_in_tile(const view *v, int64_t n, int64_t channel, int64_t row,
                              int64_t column)
{
    double most = 0;
    for (int64_t i = row / 4 * 4; i < row / 4 * 4 + 6; i++)
        for (int64_t j = column / 4 * 4; j < column / 4 * 4 + 6; j++) {
            const int64_t y = i - v->before[0], x = j - v->before[1];
            if (y < 0 || y >= v->in[0] || x < 0 || x >= v->in[1])
                continue;
            const int64_t plane = n * v->groups * v->c + channel;
            most = fmax(most, fabs((double)v->x[(plane * v->in[0] + y) * v->in[1] + x]));
        }
    return most;
}

static double largest_in_kernel(const view *v, int64_t group, int64_t o, int64_t c)
{
    const int64_t kernel =
        v->transposed ? (group * v->c + c) * v->o + o : (group * v->o + o) * v->c + c;
    double most = 0;
    for (int t = 0; t < 9; t++)
        most = fmax(most, fabs((double)v->w[kernel * 9 + t]));
    return most;
}

/* Each result is within docs/devices.md's 564 (c + 32) 2^-24 times the sum over channels of the largest
 * |x| of the tile by the largest |w| of the kernel; twice that where multiply-adds round twice. */
static void assert_within_bound(const view *v, const reading *exact, const reading *actual,
                                double roundings, const char *what)
{
    const double factor = 564 * roundings * (double)(v->c + 32) * 0x1p-24;
    for (int64_t i = 0; i < exact->count; i++) {
        const int64_t column = i % v->out[1], row = i / v->out[1] % v->out[0];
        const int64_t channel = i / v->out[1] / v->out[0] % (v->groups * v->o);
        const int64_t n = i / v->out[1] / v->out[0] / (v->groups * v->o), group = channel / v->o;
        double sum = 0;
        for (int64_t c = 0; c < v->c; c++)
            sum += largest_in_tile(v, n, group * v->c + c, row, column) *
                   largest_in_kernel(v, group, channel % v->o, c);
        const double error = fabs(reading_value(actual, i) - reading_value(exact, i));
        if (!(error <= factor * sum))
            fail_msg("%s: element %d is %g off, the bound is %g", what, (int)i, error,
                     factor * sum);
    }
}

/* Of ordinary numbers no error is above 2^-20 of the largest sum of magnitudes. */
static void assert_close_to(const reading *exact, const reading *magnitudes, const reading *actual,
                            const char *what)
{
    double most = 0, error = 0;
    for (int64_t i = 0; i < exact->count; i++) {
        most = fmax(most, reading_value(magnitudes, i));
        error = fmax(error, fabs(reading_value(actual, i) - reading_value(exact, i)));
    }
    if (!(error <= 0x1p-20 * most))
        fail_msg("%s: an error of %g, magnitudes are up to %g", what, error, most);
}

/* The operands of a problem as views of y's sums and of those of x's gradient. */
typedef struct operands {
    reading x, w, g;
    view forward, backward;
} operands;

static operands operands_of(const problem *p, enum kind kind)
{
    gd_context *gd = open_reference();
    operands o = {
        .x = reading_take(random_tensor(gd, x_shape(p), GD_F32, kind, SEED_X), "x"),
        .w = reading_take(random_tensor(gd, w_shape(p), GD_F32, kind, SEED_W), "w"),
        .g = reading_take(random_tensor(gd, y_shape(p), GD_F32, kind, SEED_G), "g"),
    };
    close_context(gd);
    const int64_t *y = o.g.shape.dim;
    o.forward = (view){ .x = o.x.data,
                        .w = o.w.data,
                        .n = p->n,
                        .groups = p->groups,
                        .c = p->c,
                        .o = p->o,
                        .in = { p->in[0], p->in[1] },
                        .out = { y[2], y[3] },
                        .before = { p->before[0], p->before[1] } };
    o.backward = (view){ .x = o.g.data,
                         .w = o.w.data,
                         .n = p->n,
                         .groups = p->groups,
                         .c = p->o,
                         .o = p->c,
                         .in = { y[2], y[3] },
                         .out = { p->in[0], p->in[1] },
                         .before = { 2 - p->before[0], 2 - p->before[1] },
                         .transposed = true };
    return o;
}

static void check_bound(const problem *p, enum kind kind)
{
    gd_context *reference = open_reference();
    operands o = operands_of(p, kind);
    results exact = run(reference, p, GD_F64, kind);
    results magnitudes = run(reference, p, GD_F64, MAGNITUDES);
    close_context(reference);
    for (const char *const *isa = isa_names(); *isa; isa++) {
        const double roundings = isa_fuses(*isa) ? 1 : 2;
        gd_context *context = open_as(*isa, "fast", "winograd", 2);
        results actual = run(context, p, GD_F32, kind);
        close_context(context);
        char what[160];
        snprintf(what, sizeof what, "%d x (%d groups of %d - %d) at %d x %d on %s", (int)p->n,
                 (int)p->groups, (int)p->c, (int)p->o, (int)p->in[0], (int)p->in[1], *isa);
        assert_within_bound(&o.forward, &exact.y, &actual.y, roundings, what);
        assert_within_bound(&o.backward, &exact.dx, &actual.dx, roundings, what);
        if (kind == ORDINARY) {
            assert_close_to(&exact.y, &magnitudes.y, &actual.y, what);
            assert_close_to(&exact.dx, &magnitudes.dx, &actual.dx, what);
        }
        results_free(&actual);
    }
    reading_free(&o.x);
    reading_free(&o.w);
    reading_free(&o.g);
    results_free(&exact);
    results_free(&magnitudes);
    assert_int_equal(watch_faults(), 0);
}

static void errors_are_within_the_bound(void **state)
{
    (void)state;
    int number = 0;
    for (int i = 0; i < COUNT(problems); i++)
        if (test_tries_similar(&number)) {
            check_bound(&problems[i], ORDINARY);
            check_bound(&problems[i], WIDE);
        }
}

/* ---- bits ---- */

/* Any number of threads and size of the cache gives the same; so do the instruction sets that fuse. The
 * gradient by the weight is exact. */
static void bits_are_the_same_however_it_is_divided(void **state)
{
    (void)state;
    static const char *const caches[] = { "256K", "1M", "2M" };
    int number = 0;
    for (int i = 0; i < COUNT(problems); i++) {
        if (!test_tries_similar(&number))
            continue;
        const problem *p = &problems[i];
        results fused = { 0 };
        bool has_fused = false;
        for (const char *const *isa = isa_names(); *isa; isa++) {
            results first = run_as(*isa, "fast", "winograd", 1, p);
            results exact = run_as(*isa, "exact", NULL, 1, p);
            assert_same_bits(&exact.dw, &first.dw, "the gradient by the weight");
            for (int threads = 2; threads <= 3; threads++) {
                setenv("GRADUS_L2", caches[(i + threads) % COUNT(caches)], 1);
                results other = run_as(*isa, "fast", "winograd", threads, p);
                unsetenv("GRADUS_L2");
                assert_same_bits(&first.y, &other.y, "y with more threads");
                assert_same_bits(&first.dx, &other.dx, "dx with more threads");
                results_free(&other);
            }
            if (isa_fuses(*isa) && has_fused) {
                assert_same_bits(&fused.y, &first.y, "y on another instruction set");
                assert_same_bits(&fused.dx, &first.dx, "dx on another instruction set");
            }
            results_free(&exact);
            if (isa_fuses(*isa) && !has_fused) {
                fused = first;
                has_fused = true;
            } else {
                results_free(&first);
            }
        }
        if (has_fused)
            results_free(&fused);
    }
    assert_int_equal(watch_faults(), 0);
}

static const problem large = { 2, 1, 48, 80, { 13, 18 }, { 1, 1 }, { 1, 1 } };

/* Without GRADUS_CONV: a shape for which it pays has other bits than exact ones, the same as where it is
 * asked for; fast numbers change no other shape, and exact ones heed no GRADUS_CONV. */
static void shapes_decide(void **state)
{
    (void)state;
    static const problem small = { 1, 1, 8, 8, { 12, 12 }, { 1, 1 }, { 1, 1 } };
    for (const char *const *isa = isa_names(); *isa; isa++) {
        results asked = run_as(*isa, "fast", "winograd", 1, &large);
        results chosen = run_as(*isa, "fast", NULL, 2, &large);
        results packed = run_as(*isa, "fast", "packed", 2, &large);
        results exact = run_as(*isa, "exact", "winograd", 2, &large);
        results plain = run_as(*isa, "exact", NULL, 1, &large);
        assert_same_bits(&asked.y, &chosen.y, "y of the shape");
        assert_same_bits(&asked.dx, &chosen.dx, "dx of the shape");
        assert_false(same_bits(&chosen.y, &plain.y) || same_bits(&chosen.dx, &plain.dx));
        assert_same_bits(&plain.y, &exact.y, "exact y");
        assert_same_bits(&plain.dx, &exact.dx, "exact dx");
        assert_same_bits(&plain.y, &packed.y, "y by packing");
        results few = run_as(*isa, "fast", NULL, 2, &small);
        results few_exact = run_as(*isa, "exact", NULL, 2, &small);
        assert_same_bits(&few_exact.y, &few.y, "y of few channels");
        assert_same_bits(&few_exact.dx, &few.dx, "dx of few channels");
        results *all[] = { &asked, &chosen, &packed, &exact, &plain, &few, &few_exact };
        for (int i = 0; i < COUNT(all); i++)
            results_free(all[i]);
    }
}

/* Strides, dilations, other kernels, three axes and products are exact in a fast context, too. */
static reading run_other(const char *class, const char *path, int which)
{
    gd_context *gd = open_as(NULL, class, path, 2);
    gd_tensor *x = random_tensor(gd, GD_SHAPE(2, 32, 12, 12), GD_F32, ORDINARY, 3);
    gd_tensor *w = random_tensor(gd, GD_SHAPE(32, 32, 3, 3), GD_F32, ORDINARY, 4);
    gd_tensor *y = NULL;
    if (which == 0)
        y = gd_conv2d(x, w, NULL, .stride = GD_SHAPE(2, 2));
    else if (which == 1)
        y = gd_conv2d(x, w, NULL, .dilation = GD_SHAPE(2, 2));
    else if (which == 2)
        y = gd_conv2d(x, gd_slice(w, 3, 0, 2, 1), NULL);
    else if (which == 3)
        y = gd_conv3d(gd_reshape(x, GD_SHAPE(1, 32, 2, 12, 12)),
                      gd_reshape(w, GD_SHAPE(32, 32, 1, 3, 3)), NULL);
    else
        y = gd_matmul(gd_reshape(x, GD_SHAPE(96, 96)), gd_reshape(w, GD_SHAPE(96, 96)));
    if (!y)
        fail_msg("%s", gd_error_message());
    reading r = reading_take(y, "result");
    close_context(gd);
    return r;
}

static void others_are_exact(void **state)
{
    (void)state;
    for (int which = 0; which < 5; which++) {
        reading exact = run_other("exact", NULL, which);
        reading fast = run_other("fast", "winograd", which);
        assert_same_bits(&exact, &fast, "what Winograd's filtering cannot compute");
        reading_free(&exact);
        reading_free(&fast);
    }
    assert_int_equal(watch_faults(), 0);
}

/* A convolution with bias and ReLU, which the compiler joins, and its gradient by the input. */
static gd_tensor *layer(void *user, int count, gd_tensor *const *in)
{
    assert_int_equal(count, 3);
    const gd_conv_options o = options_of(user);
    gd_tensor *x = gd_set_requires_grad(gd_add_scalar(in[0], 0), true), *dx;
    gd_tensor *y = gd_relu(gd_conv_with(x, in[1], in[2], 2, &o));
    assert_int_equal(gd_grad(1, &y, NULL, 1, &x, &dx), GD_OK);
    return gd_concat(
        2, (gd_tensor *[]){ gd_reshape(y, GD_SHAPE(-1)), gd_reshape(dx, GD_SHAPE(-1)) }, 0);
}

static void compiled_is_eager(void **state)
{
    (void)state;
    for (const char *const *isa = isa_names(); *isa; isa++)
        for (int threads = 1; threads <= 3; threads++) {
            gd_context *gd = open_as(*isa, "fast", NULL, threads);
            gd_tensor *in[] = { random_tensor(gd, x_shape(&large), GD_F32, ORDINARY, 5),
                                random_tensor(gd, w_shape(&large), GD_F32, ORDINARY, 6),
                                random_tensor(gd, GD_SHAPE(large.o), GD_F32, ORDINARY, 7) };
            reading eager = reading_take(layer((void *)&large, 3, in), "eager");
            gd_function *f = gd_compile(gd, layer, (void *)&large);
            gd_tensor *out = gd_call(f, 3, in);
            if (!out)
                fail_msg("%s", gd_error_message());
            reading compiled = reading_take(out, "compiled");
            assert_same_bits(&eager, &compiled, "a layer");
            static char text[16384];
            assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
            const char *said = strstr(text, "Winograd's F(4 x 4, 3 x 3): numbers are fast");
            assert_non_null(said);
            assert_non_null(strstr(said + 1, "Winograd's F(4 x 4, 3 x 3): numbers are fast"));
            reading_free(&eager);
            reading_free(&compiled);
            gd_function_release(f);
            close_context(gd);
        }
}

/* ---- numbers that are not finite ---- */

/* y of x [1, 16, 12, 12] and w [16, 16, 3, 3], with `value` at an element of each; -1: nowhere. */
static reading run_with(const char *isa, float value, int64_t in_x, int64_t in_w)
{
    gd_context *gd = open_as(isa, "fast", "winograd", 1);
    numbers n = { 9 };
    static float x[16 * 12 * 12], w[16 * 16 * 9];
    for (int i = 0; i < COUNT(x); i++)
        x[i] = (float)numbers_uniform(&n, -1, 1);
    for (int i = 0; i < COUNT(w); i++)
        w[i] = (float)numbers_uniform(&n, -1, 1);
    if (in_x >= 0)
        x[in_x] = value;
    if (in_w >= 0)
        w[in_w] = value;
    gd_tensor *y = gd_conv2d(gd_from_host(gd, GD_SHAPE(1, 16, 12, 12), GD_F32, x),
                             gd_from_host(gd, GD_SHAPE(16, 16, 3, 3), GD_F32, w), NULL,
                             .padding = GD_SHAPE(1, 1));
    if (!y)
        fail_msg("%s", gd_error_message());
    reading r = reading_take(y, "y");
    close_context(gd);
    return r;
}

static bool is_finite(const reading *r, int64_t i)
{
    return isfinite(reading_value(r, i)) != 0;
}

/* An element of x that is not finite makes no result finite whose window has it; and none of a tile that
 * does not see it changes. A weight does so to all of its channel, and to no other. */
static void what_is_not_finite_spreads_over_tiles(void **state)
{
    (void)state;
    enum { ROW = 5, COLUMN = 9, CHANNEL = 3 };
    static const float values[] = { INFINITY, -INFINITY, NAN };
    for (const char *const *isa = isa_names(); *isa; isa++)
        for (int k = 0; k < COUNT(values); k++) {
            reading plain = run_with(*isa, 0, -1, -1);
            reading of_x = run_with(*isa, values[k], (CHANNEL * 12 + ROW) * 12 + COLUMN, -1);
            reading of_w = run_with(*isa, values[k], -1, (CHANNEL * 16 + 2) * 9 + 4);
            for (int64_t i = 0; i < plain.count; i++) {
                const int64_t column = i % 12, row = i / 12 % 12;
                const bool in_window =
                    labs((long)(row - ROW)) <= 1 && labs((long)(column - COLUMN)) <= 1;
                const int64_t top = row / 4 * 4 - 1, left = column / 4 * 4 - 1;
                const bool in_tile =
                    ROW >= top && ROW < top + 6 && COLUMN >= left && COLUMN < left + 6;
                if (in_window)
                    assert_false(is_finite(&of_x, i));
                if (!in_tile)
                    assert_true(reading_value(&of_x, i) == reading_value(&plain, i));
                if (i / 144 == CHANNEL)
                    assert_false(is_finite(&of_w, i));
                else
                    assert_true(reading_value(&of_w, i) == reading_value(&plain, i));
            }
            reading_free(&plain);
            reading_free(&of_x);
            reading_free(&of_w);
        }
}

/* ---- opening ---- */

static void expect_error(gd_status code, const char *words)
{
    assert_int_equal(gd_error_code(), code);
    if (!strstr(gd_error_message(), words))
        fail_msg("expected \"%s\" in \"%s\"", words, gd_error_message());
    gd_error_clear();
}

/* Whether a context computes `large` in other numbers than exact ones. Closes it. */
static bool is_fast(gd_context *gd)
{
    assert_non_null(gd);
    results r = run(gd, &large, GD_F32, ORDINARY), exact = run_as(NULL, "exact", NULL, 1, &large);
    gd_close(gd);
    const bool fast = !same_bits(&r.y, &exact.y);
    results_free(&r);
    results_free(&exact);
    return fast;
}

static void numbers_are_chosen_by_name(void **state)
{
    (void)state;
    assert_true(is_fast(gd_open("cpu", .numbers = GD_NUMBERS_FAST)));
    assert_false(is_fast(gd_open("cpu", .numbers = GD_NUMBERS_EXACT)));
    assert_false(is_fast(gd_open("cpu")));
    static const char *const exact[] = { "", "exact", "library", "tf32" };
    for (int i = 0; i < COUNT(exact); i++) {
        setenv("GRADUS_NUMBERS", exact[i], 1);
        assert_false(is_fast(gd_open("cpu")));
    }
    setenv("GRADUS_NUMBERS", "fast", 1);
    assert_true(is_fast(gd_open("cpu")));
    assert_false(is_fast(gd_open("cpu", .numbers = GD_NUMBERS_EXACT)));
    setenv("GRADUS_NUMBERS", "quick", 1);
    assert_null(gd_open("cpu"));
    expect_error(GD_ERR_INVALID, "GRADUS_NUMBERS=quick: must be exact, library, tf32 or fast");
    unsetenv("GRADUS_NUMBERS");
    assert_null(gd_open("reference", .numbers = GD_NUMBERS_FAST));
    expect_error(GD_ERR_UNSUPPORTED, "library and tf32 can be had on cuda, fast on cpu and cuda");
    assert_null(gd_open("cpu", .numbers = GD_NUMBERS_TF32));
    expect_error(GD_ERR_UNSUPPORTED, "cpu computes with the engine's own kernels alone, whose "
                                     "numbers are exact or fast");
    assert_null(gd_open("cpu", .numbers = (gd_numbers)(GD_NUMBERS_FAST + 1)));
    expect_error(GD_ERR_INVALID, "they are exact (1), library (2), tf32 (3) or fast (4)");
}

int main(void)
{
    unsetenv("GRADUS_NUMBERS");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_within_the_bound),
        cmocka_unit_test(bits_are_the_same_however_it_is_divided),
        cmocka_unit_test(shapes_decide),
        cmocka_unit_test(others_are_exact),
        cmocka_unit_test(compiled_is_eager),
        cmocka_unit_test(what_is_not_finite_spreads_over_tiles),
        cmocka_unit_test(numbers_are_chosen_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
