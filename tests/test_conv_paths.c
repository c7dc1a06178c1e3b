/* tests/test_conv_paths.c: the paths of the convolutions on the CPU (backend/cpu/conv_*.h) against
 * the reference device. Operands are small whole numbers, whose sums are exact in any order, so
 * that results are compared bit for bit.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/autograd.h>
#include <gradus/conv.h>
#include <gradus/ops.h>

#include "support/tensors.h"

#include <stdio.h>
#include <stdlib.h>

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

static gd_tensor *whole_numbers(gd_context *context, gd_shape shape, numbers *n)
{
    const int64_t count = shape_count(shape);
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(int)(numbers_next(n) % 9) - 4;
    gd_tensor *t = gd_from_host(context, shape, GD_F32, x);
    assert_non_null(t);
    free(x);
    return t;
}

static gd_conv_options options_of(const problem *p)
{
    gd_conv_options o = { .groups = 1 };
    for (int a = 0; a < 2; a++) {
        o.strides[a] = p->stride[a];
        o.before[a] = p->before[a];
        o.after[a] = p->after[a];
        o.dilations[a] = p->dilation[a];
    }
    return o;
}

/* y, and the gradients that a seed brings to x and w. */
static results run(gd_context *context, const problem *p, uint64_t seed)
{
    numbers n = { seed };
    gd_scope_begin(context);
    gd_conv_options o = options_of(p);
    o.x = gd_set_requires_grad(whole_numbers(context, GD_SHAPE(p->n, p->c, p->in[0], p->in[1]), &n),
                               true);
    o.w = gd_set_requires_grad(
        whole_numbers(context, GD_SHAPE(p->o, p->c, p->kernel[0], p->kernel[1]), &n), true);
    gd_tensor *y = gd_conv_with(2, o), *d[2];
    if (!y)
        fail_msg("%s", gd_error_message());
    gd_tensor *g = whole_numbers(context, gd_tensor_shape(y), &n);
    assert_int_equal(gd_grad(&y, &g, 1, (gd_tensor *[]){ o.x, o.w }, d, 2), GD_OK);
    const results r = { reading_take(y, "y"), reading_take(d[0], "dx"), reading_take(d[1], "dw") };
    gd_scope_end(context);
    return r;
}

static void results_free(results *r)
{
    reading_free(&r->y);
    reading_free(&r->dx);
    reading_free(&r->dw);
}

static void assert_same_results(const results *expected, const results *actual, const char *what)
{
    char text[320];
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
    results expected = run(reference, p, seed);
    close_context(reference);
    for (const char *const *isa = isa_names(); *isa; isa++) {
        gd_context *context = open_cpu(*isa, 2);
        results actual = run(context, p, seed);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strides_along_rows_alone),
        cmocka_unit_test(test_bands_that_just_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
