/* tests/test_conv.c: what the rows of support/op_rows_conv.c do not cover: the definition of f32
 * convolution bit for bit (backend/cpu/conv.h) on sizes that reach every path of the packed core,
 * on every instruction set and number of threads; the ReLU that the compiler joins; ties of maxima.
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

#include "backend/cpu/gemm.h"
#include "support/effort.h"
#include "support/guard.h"
#include "support/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the definition ---- */

typedef struct conv_case {
    int64_t n, groups, c, o; /* channels of a group */
    int64_t in[3], kernel[3], stride[3], pad[3], dilation[3];
} conv_case;

static const conv_case cases[] = {
    { 2, 1, 37, 19, { 1, 9, 15 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
    { 3, 1, 30, 45, { 1, 7, 7 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
    { 1, 1, 3, 16, { 1, 37, 35 }, { 1, 7, 7 }, { 1, 2, 2 }, { 0, 3, 3 }, { 1, 1, 1 } },
    { 2, 1, 3, 8, { 1, 17, 32 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
    { 2, 1, 300, 33, { 1, 5, 5 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } },
    { 2, 1, 20, 18, { 1, 11, 13 }, { 1, 1, 1 }, { 1, 2, 2 }, { 0, 0, 0 }, { 1, 1, 1 } },
    { 3,
      3,
      10,
      7,
      { 1, 16, 17 },
      { 1, 1, 1 },
      { 1, 1, 1 },
      { 0, 0, 0 },
      { 1, 1, 1 } }, /* a product */
    { 2, 3, 5, 7, { 1, 11, 13 }, { 1, 3, 2 }, { 1, 2, 1 }, { 0, 2, 1 }, { 1, 1, 2 } },
    { 2, 9, 1, 1, { 1, 21, 40 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
    { 1, 5, 1, 2, { 1, 12, 17 }, { 1, 5, 5 }, { 1, 2, 2 }, { 0, 2, 2 }, { 1, 1, 1 } },
    { 1, 1, 4, 6, { 5, 6, 7 }, { 3, 2, 3 }, { 2, 1, 3 }, { 1, 1, 1 }, { 1, 2, 1 } },
    { 1, 1, 6, 16, { 1, 14, 14 }, { 1, 5, 5 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } },
    { 7, 1, 1, 6, { 1, 28, 28 }, { 1, 5, 5 }, { 1, 1, 1 }, { 0, 2, 2 }, { 1, 1, 1 } },
    { 3, 2, 12, 20, { 1, 11, 10 }, { 1, 5, 5 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 2, 1 } },
    { 5, 1, 8, 5, { 1, 9, 12 }, { 1, 3, 4 }, { 1, 1, 1 }, { 0, 1, 0 }, { 1, 1, 1 } },
    { 13, 1, 5, 70, { 1, 5, 6 }, { 1, 3, 3 }, { 1, 2, 3 }, { 0, 4, 5 }, { 1, 2, 2 } },
    /* Small images in the lanes of vectors, or just not: numbers of images and channels about what
     * a tile has; blocks that end within a line of taps; blocks of taps that are all left out;
     * positions that see padding alone. */
    { 15, 1, 5, 7, { 1, 5, 6 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
    { 16, 1, 6, 16, { 1, 7, 8 }, { 1, 5, 5 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } },
    { 17, 1, 4, 8, { 1, 4, 4 }, { 1, 2, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
    { 31, 2, 6, 4, { 1, 7, 5 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 2, 1 } },
    { 65, 1, 9, 5, { 1, 4, 3 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 2 }, { 1, 1, 1 } },
    { 16, 1, 4, 5, { 1, 3, 2 }, { 1, 17, 17 }, { 1, 1, 1 }, { 0, 8, 8 }, { 1, 1, 1 } },
    { 16, 1, 40, 7, { 1, 3, 4 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
    { 16, 1, 8, 4, { 1, 9, 11 }, { 1, 3, 3 }, { 1, 2, 3 }, { 0, 1, 2 }, { 1, 1, 1 } },
    { 16, 1, 6, 4, { 1, 1, 3 }, { 1, 2, 2 }, { 1, 1, 1 }, { 0, 4, 4 }, { 1, 1, 1 } },
    { 64, 1, 3, 1, { 1, 5, 5 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
};

static float multiply_add(float a, float b, float c, bool fused)
{
    volatile float product = a * b; /* rounded, where there is no fused multiply-add */
    return fused ? fmaf(a, b, c) : product + c;
}

/* A sum in blocks of GD_GEMM_KC steps. */
typedef struct chain {
    float block, total;
    int64_t steps;
    bool fused;
} chain;

static void chain_add(chain *s, float a, float b)
{
    if (s->steps > 0 && s->steps % GD_GEMM_KC == 0) {
        s->total = s->steps == GD_GEMM_KC ? s->block : s->total + s->block;
        s->block = 0;
    }
    s->block = multiply_add(a, b, s->block, s->fused);
    s->steps++;
}

static float chain_end(const chain *s)
{
    return s->steps <= GD_GEMM_KC ? s->block : s->total + s->block;
}

/* What the operands of a case are: numbers whose products are no zeros; so small ones that all are,
 * and which zero is asked; weights that make a NaN of padding. */
enum kind { ORDINARY, TINY, NOT_FINITE, KINDS };

typedef struct sizes {
    const conv_case *c;
    int64_t out[3], in_plane, taps, plane;
} sizes;

static sizes sizes_of(const conv_case *c)
{
    sizes s = { .c = c, .in_plane = 1, .taps = 1, .plane = 1 };
    for (int a = 0; a < 3; a++) {
        s.out[a] =
            (c->in[a] + 2 * c->pad[a] - c->dilation[a] * (c->kernel[a] - 1) - 1) / c->stride[a] + 1;
        s.in_plane *= c->in[a];
        s.taps *= c->kernel[a];
        s.plane *= s.out[a];
    }
    return s;
}

/* Index along axis a of the index `flat` in a box of these sizes. */
static int64_t along(const int64_t size[3], int64_t flat, int a)
{
    return a == 2 ? flat % size[2] : a == 1 ? flat / size[2] % size[1] : flat / size[2] / size[1];
}

/* x's element seen from position p through tap k, in a plane; -1 in the padding. */
static int64_t seen(const sizes *s, int64_t p, int64_t k)
{
    int64_t flat = 0;
    for (int a = 0; a < 3; a++) {
        const int64_t at = along(s->out, p, a) * s->c->stride[a] - s->c->pad[a] +
                           along(s->c->kernel, k, a) * s->c->dilation[a];
        if (at < 0 || at >= s->c->in[a])
            return -1;
        flat = flat * s->c->in[a] + at;
    }
    return flat;
}

/* The position that sees element q through tap k; -1 outside, -2 between two. */
static int64_t seeing(const sizes *s, int64_t q, int64_t k)
{
    int64_t flat = 0;
    bool outside = false;
    for (int a = 0; a < 3; a++) {
        const int64_t at =
            along(s->c->in, q, a) + s->c->pad[a] - along(s->c->kernel, k, a) * s->c->dilation[a];
        if (at % s->c->stride[a])
            return -2;
        const int64_t p = at / s->c->stride[a];
        outside = outside || p < 0 || p >= s->out[a];
        flat = flat * s->out[a] + p;
    }
    return outside ? -1 : flat;
}

static void expected_forward(const sizes *s, const float *x, const float *w, const float *bias,
                             bool fused, float *y)
{
    const conv_case *c = s->c;
    for (int64_t i = 0; i < c->n * c->groups * c->o * s->plane; i++) {
        const int64_t p = i % s->plane, o = i / s->plane % (c->groups * c->o),
                      n = i / s->plane / (c->groups * c->o);
        chain sum = { .fused = fused };
        for (int64_t k = 0; k < c->c * s->taps; k++) {
            const int64_t at = seen(s, p, k % s->taps),
                          plane = n * c->groups * c->c + o / c->o * c->c + k / s->taps;
            chain_add(&sum, w[o * c->c * s->taps + k], at < 0 ? 0 : x[plane * s->in_plane + at]);
        }
        y[i] = chain_end(&sum) + (bias ? bias[o] : 0);
    }
}

static void expected_grad_input(const sizes *s, const float *g, const float *w, bool fused,
                                float *dx)
{
    const conv_case *c = s->c;
    for (int64_t i = 0; i < c->n * c->groups * c->c * s->in_plane; i++) {
        const int64_t q = i % s->in_plane, channel = i / s->in_plane % (c->groups * c->c),
                      n = i / s->in_plane / (c->groups * c->c), group = channel / c->c;
        chain sum = { .fused = fused };
        for (int64_t k = 0; k < c->o * s->taps; k++) {
            const int64_t p = seeing(s, q, k % s->taps), o = group * c->o + k / s->taps;
            if (p > -2)
                chain_add(&sum, w[(o * c->c + channel % c->c) * s->taps + k % s->taps],
                          p < 0 ? 0 : g[(n * c->groups * c->o + o) * s->plane + p]);
        }
        dx[i] = chain_end(&sum) + 0;
    }
}

static void expected_grad_weight(const sizes *s, const float *g, const float *x, bool fused,
                                 float *dw)
{
    const conv_case *c = s->c;
    for (int64_t i = 0; i < c->groups * c->o * c->c * s->taps; i++) {
        const int64_t k = i % s->taps, o = i / s->taps / c->c,
                      channel = o / c->o * c->c + i / s->taps % c->c;
        chain sum = { .fused = fused };
        for (int64_t j = 0; j < c->n * s->plane; j++) {
            const int64_t n = j / s->plane, at = seen(s, j % s->plane, k);
            chain_add(&sum, g[(n * c->groups * c->o + o) * s->plane + j % s->plane],
                      at < 0 ? 0 : x[(n * c->groups * c->c + channel) * s->in_plane + at]);
        }
        dw[i] = chain_end(&sum);
    }
}

static float *random_numbers(numbers *n, int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)numbers_uniform(n, -1, 1);
    return x;
}

static void assert_same_numbers(gd_tensor *t, const float *expected, int64_t count,
                                const char *what, int c, const gd_context *context)
{
    if (!t)
        fail_msg("%s, case %d on %s: %s", what, c, gd_context_isa(context), gd_error_message());
    float *actual = malloc((size_t)count * sizeof *actual);
    assert_non_null(actual);
    assert_int_equal(gd_tensor_count(t), count);
    assert_int_equal(gd_tensor_read(t, actual, (size_t)count * sizeof *actual), GD_OK);
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&actual[i], &expected[i], sizeof *actual) != 0 &&
            !(isnan(actual[i]) && isnan(expected[i])))
            fail_msg("%s, case %d on %s with %d threads: element %lld is %.9g, not %.9g", what, c,
                     gd_context_isa(context), gd_context_threads(context), (long long)i,
                     (double)actual[i], (double)expected[i]);
    free(actual);
}

/* y, and the gradients that g brings to x and w, on one device. */
static void check_bits(gd_context *context, int index, const float *x, const float *w,
                       const float *bias, const float *g, float *const expected[3])
{
    const conv_case *c = &cases[index];
    const sizes s = sizes_of(c);
    const gd_conv_options o = {
        GD_CONV_DEFAULTS, .stride = GD_SHAPE(c->stride[0], c->stride[1], c->stride[2]),
        .padding = GD_SHAPE(c->pad[0], c->pad[1], c->pad[2]),
        .dilation = GD_SHAPE(c->dilation[0], c->dilation[1], c->dilation[2]), .groups = c->groups
    };
    gd_scope_begin(context);
    const int64_t channels = c->groups * c->c, outs = c->groups * c->o;
    gd_tensor *tx = gd_set_requires_grad(
        gd_from_host(context, GD_SHAPE(c->n, channels, c->in[0], c->in[1], c->in[2]), GD_F32, x),
        true);
    gd_tensor *tw = gd_set_requires_grad(
        gd_from_host(context, GD_SHAPE(outs, c->c, c->kernel[0], c->kernel[1], c->kernel[2]),
                     GD_F32, w),
        true);
    gd_tensor *tb = bias ? gd_from_host(context, GD_SHAPE(outs), GD_F32, bias) : NULL;
    gd_tensor *y = gd_conv_with(tx, tw, tb, 3, &o), *grads[2];
    gd_tensor *seed =
        gd_from_host(context, GD_SHAPE(c->n, outs, s.out[0], s.out[1], s.out[2]), GD_F32, g);
    assert_same_numbers(y, expected[0], c->n * outs * s.plane, "forward", index, context);
    assert_int_equal(gd_grad(1, &y, &seed, 2, (gd_tensor *[]){ tx, tw }, grads), GD_OK);
    assert_same_numbers(grads[0], expected[1], c->n * channels * s.in_plane, "gradient by input",
                        index, context);
    assert_same_numbers(grads[1], expected[2], outs * c->c * s.taps, "gradient by weight", index,
                        context);
    gd_scope_end(context);
}

/* A case on every instruction set, with 1 and 3 threads, with and without a bias. */
static void check_case(int index, enum kind kind, numbers *n)
{
    const conv_case *c = &cases[index];
    const sizes s = sizes_of(c);
    const int64_t outs = c->groups * c->o;
    const int64_t count[3] = { c->n * outs * s.plane, c->n * c->groups * c->c * s.in_plane,
                               outs * c->c * s.taps };
    float *g = random_numbers(n, count[0]), *x = random_numbers(n, count[1]),
          *w = random_numbers(n, count[2]), *some = random_numbers(n, outs), *expected[3];
    const float *bias = index % 2 || kind == TINY ? some : NULL;
    if (kind == TINY) {
        for (int64_t i = 0; i < count[0]; i++)
            g[i] *= 1e-30f;
        for (int64_t i = 0; i < count[1]; i++)
            x[i] *= 1e-30f;
        for (int64_t i = 0; i < count[2]; i++)
            w[i] *= 1e-30f;
        for (int64_t i = 0; i < outs; i++)
            some[i] = index % 2 && i % 3 == 1 ? -0.0f : 0;
    }
    if (kind == NOT_FINITE)
        w[count[2] / 2] = index % 2 ? INFINITY : NAN;
    for (int k = 0; k < 3; k++)
        expected[k] = random_numbers(n, count[k]);
    int was_fused = -1;
    for (const char *const *isa = isa_names(); *isa; isa++) {
        if (test_is_slow() && isa[1]) /* the best alone */
            continue;
        const bool fused = isa_fuses(*isa);
        if (was_fused != fused) {
            expected_forward(&s, x, w, bias, fused, expected[0]);
            expected_grad_input(&s, g, w, fused, expected[1]);
            expected_grad_weight(&s, g, x, fused, expected[2]);
        }
        was_fused = fused;
        for (int threads = 1; threads <= 3; threads += 2) {
            gd_context *context = open_cpu(*isa, threads);
            check_bits(context, index, x, w, bias, g, expected);
            close_context(context);
        }
    }
    free(g), free(x), free(w), free(some);
    for (int k = 0; k < 3; k++)
        free(expected[k]);
}

static void test_definition(void **state)
{
    (void)state;
    numbers n = { 5 };
    for (int i = 0; i < COUNT(cases); i++) {
        const conv_case *c = &cases[i];
        const sizes s = sizes_of(c);
        const bool large =
            c->n * c->groups * c->o * c->c * s.plane * s.taps > (test_is_slow() ? 100000 : 400000);
        for (int kind = 0; kind < (large ? 1 : KINDS); kind++)
            check_case(i, (enum kind)kind, &n);
    }
    assert_int_equal(watch_faults(), 0);
}

/* ---- the compiler ---- */

static gd_tensor *conv_relu(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_relu(gd_conv2d(in[0], in[1], in[2], .padding = GD_SHAPE(1)));
}

static gd_tensor *step_by_step(gd_tensor *const *in)
{
    gd_tensor *bias = gd_reshape(in[2], GD_SHAPE(-1, 1, 1));
    return gd_relu(gd_add(gd_conv2d(in[0], in[1], NULL, .padding = GD_SHAPE(1)), bias));
}

/* Bias and ReLU behind a convolution are part of its kernel, and change no bit: of wide rows, and
 * of short ones. */
static void test_joined_relu(void **state)
{
    (void)state;
    static const int64_t channel_counts[][2] = { { 3, 5 }, { 20, 16 } };
    gd_context *context = gd_open(test_device(), .threads = 1);
    for (int i = 0; i < COUNT(channel_counts); i++) {
        const int64_t channels = channel_counts[i][0], outs = channel_counts[i][1];
        gd_scope_begin(context);
        gd_tensor *in[3] = { gd_normal(context, GD_SHAPE(2, channels, 9, 11), 0, 1, GD_F32),
                             gd_normal(context, GD_SHAPE(outs, channels, 3, 3), 0, 1, GD_F32),
                             gd_normal(context, GD_SHAPE(outs), 0, 1, GD_F32) };
        gd_function *f = gd_compile(context, conv_relu, NULL);
        reading plain = reading_take(step_by_step(in), "step by step");
        reading eager = reading_take(conv_relu(NULL, 3, in), "eager");
        reading compiled = reading_take(gd_call(f, 3, in), "compiled");
        assert_same_bits(&plain, &eager, "relu(conv2d(x, w) + b)");
        assert_same_bits(&eager, &compiled, "relu(conv2d(x, w, b))");
        assert_int_equal(gd_function_stats(f).kernels, 1);
        reading_free(&plain);
        reading_free(&eager);
        reading_free(&compiled);
        gd_function_release(f);
        gd_scope_end(context);
    }
    gd_close(context);
}

/* ---- maxima ---- */

/* Of equal elements the first in row-major order gets the gradient, on every device. */
static void test_ties_of_maxima(void **state)
{
    (void)state;
    static const float x[] = { 1, 1, 2, 0, 1, 1, 2, 2 }, expected[] = { 1, 0, 1, 0, 0, 0, 0, 0 };
    for (int k = 0; k < 2; k++) {
        gd_context *context = k ? open_cpu(NULL, 1) : open_reference();
        gd_scope_begin(context);
        gd_tensor *leaf =
            gd_set_requires_grad(gd_from_host(context, GD_SHAPE(1, 1, 2, 4), GD_F32, x), true);
        gd_tensor *y = gd_sum(gd_max_pool2d(leaf, GD_SHAPE(2)), GD_ALL_AXES, false), *d;
        assert_int_equal(gd_grad(1, &y, NULL, 1, &leaf, &d), GD_OK);
        float actual[8];
        assert_int_equal(gd_tensor_read(d, actual, sizeof actual), GD_OK);
        assert_memory_equal(actual, expected, sizeof expected);
        gd_scope_end(context);
        close_context(context);
    }
}

/* Windows of two by two, whose loops are vectors: every order of numbers, zeros, infinities and NaN
 * gives the bits that the plain loops give. */
static void test_maxima_of_squares(void **state)
{
    (void)state;
    enum { PLANES = 3, HEIGHT = 9, WIDTH = 47, COUNT_IN = PLANES * HEIGHT * WIDTH };
    enum { COUNT_OUT = PLANES * (HEIGHT / 2) * (WIDTH / 2) };
    static const float values[] = { 0.0f, -0.0f, 1, 2, -INFINITY, INFINITY, NAN };
    float x[COUNT_IN], g[COUNT_OUT], results[2][COUNT_OUT], gradients[2][COUNT_IN];
    numbers n = { 11 };
    float *choices = random_numbers(&n, COUNT_IN);
    for (int i = 0; i < COUNT_IN; i++)
        x[i] = values[(unsigned)(int)(fabsf(choices[i]) * 1000) % COUNT(values)];
    for (int i = 0; i < COUNT_OUT; i++)
        g[i] = i % 5 ? choices[i] : -0.0f;
    free(choices);
    for (const char *const *isa = isa_names(); *isa; isa++)
        for (int k = 0; k < 2; k++) {
            gd_context *context = k ? open_cpu(*isa, 2) : open_reference();
            gd_scope_begin(context);
            gd_tensor *leaf = gd_set_requires_grad(
                gd_from_host(context, GD_SHAPE(1, PLANES, HEIGHT, WIDTH), GD_F32, x), true);
            gd_tensor *seed =
                gd_from_host(context, GD_SHAPE(1, PLANES, HEIGHT / 2, WIDTH / 2), GD_F32, g);
            gd_tensor *y = gd_max_pool2d(leaf, GD_SHAPE(2)), *d;
            assert_int_equal(gd_grad(1, &y, &seed, 1, &leaf, &d), GD_OK);
            assert_int_equal(gd_tensor_read(y, results[k], sizeof results[k]), GD_OK);
            assert_int_equal(gd_tensor_read(d, gradients[k], sizeof gradients[k]), GD_OK);
            gd_scope_end(context);
            close_context(context);
            assert_memory_equal(results[k], results[0], sizeof results[0]);
            assert_memory_equal(gradients[k], gradients[0], sizeof gradients[0]);
        }
}

/* ---- options ---- */

static void test_same_padding(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device(), .threads = 1);
    for (int64_t size = 1; size < 9; size++)
        for (int64_t kernel = 1; kernel < 5; kernel++)
            for (int64_t stride = 1; stride < 4; stride++)
                for (int64_t dilation = 1; dilation < 3; dilation++) {
                    gd_scope_begin(context);
                    gd_tensor *x = gd_ones(context, GD_SHAPE(1, 1, size), GD_F32),
                              *w = gd_ones(context, GD_SHAPE(1, 1, kernel), GD_F32);
                    gd_tensor *y = gd_conv1d(x, w, NULL, .stride = GD_SHAPE(stride),
                                             .dilation = GD_SHAPE(dilation), .same = true);
                    assert_non_null(y);
                    assert_int_equal(gd_tensor_shape(y).dim[2], (size + stride - 1) / stride);
                    gd_tensor *back =
                        gd_conv_transpose1d(x, w, NULL, .stride = GD_SHAPE(stride),
                                            .dilation = GD_SHAPE(dilation), .same = true);
                    assert_non_null(back);
                    assert_int_equal(gd_tensor_shape(back).dim[2], size * stride);
                    gd_scope_end(context);
                }
    gd_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),     cmocka_unit_test(test_joined_relu),
        cmocka_unit_test(test_ties_of_maxima), cmocka_unit_test(test_maxima_of_squares),
        cmocka_unit_test(test_same_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
