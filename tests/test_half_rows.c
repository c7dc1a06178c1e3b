/* tests/test_half_rows.c: softmax, the losses, normalisation, sums, products and extremes of f16 and bf16, which
 * the CPU reads and writes as they are: on every instruction set of this machine, with 1 and 2 threads,
 * eagerly and compiled, the bits of values and of gradients, first and second, are those of f32's between casts, of any
 * numbers, NaN, infinities and subnormals among them; and no cast passes over memory. Kernels run on
 * guarded memory, with exactly the scratch that they ask for. Start at check_function().
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/backend.h"
#include "base/half.h"
#include "graph/context.h"
#include "support/effort.h"
#include "support/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- functions ---- */

/* x [.., k], weight and bias [k] of x's dtype, labels [n]. */
enum { X, WEIGHT, BIAS, LABELS, OPERANDS };

enum {
    DIFFERENTIABLE = 1,
    MATRIX = 2, /* of rank 2 alone */
    PLANES = 8, /* of rank 3 alone */
    DIRECT =
        4, /* no cast of x or of a result of its size is a pass over memory, eagerly or compiled */
    COMPILED = 16, /* the same where it is compiled alone */
};

typedef struct function {
    const char *name;
    gd_tensor *(*build)(gd_tensor *const *t);
    int flags;
} function;

static gd_tensor *softmax(gd_tensor *const *t)
{
    return gd_softmax(t[X], -1);
}

static gd_tensor *softmax_columns(gd_tensor *const *t)
{
    return gd_softmax(t[X], 0);
}

static gd_tensor *log_softmax(gd_tensor *const *t)
{
    return gd_log_softmax(t[X], -1);
}

static gd_tensor *cross_entropy(gd_tensor *const *t)
{
    return gd_cross_entropy(t[X], t[LABELS], .reduction = GD_REDUCE_NONE);
}

static gd_tensor *layer_norm(gd_tensor *const *t)
{
    return gd_layer_norm(t[X], t[WEIGHT], t[BIAS]);
}

static gd_tensor *layer_norm_bias(gd_tensor *const *t)
{
    return gd_layer_norm(t[X], NULL, t[BIAS]);
}

static gd_tensor *layer_norm_all(gd_tensor *const *t)
{
    return gd_layer_norm(t[X], NULL, NULL, .axes = gd_tensor_shape(t[X]).rank);
}

static gd_tensor *rms_norm(gd_tensor *const *t)
{
    return gd_rms_norm(t[X], t[WEIGHT]);
}

static gd_tensor *sum_rows(gd_tensor *const *t)
{
    return gd_sum(t[X], GD_AXES(-1), true);
}

static gd_tensor *sum_columns(gd_tensor *const *t)
{
    return gd_sum(t[X], GD_AXES(0), false);
}

static gd_tensor *sum_all(gd_tensor *const *t)
{
    return gd_sum(t[X], GD_ALL_AXES, false);
}

static gd_tensor *mean_rows(gd_tensor *const *t)
{
    return gd_mean(t[X], GD_AXES(-1), false);
}

static gd_tensor *mean_columns(gd_tensor *const *t)
{
    return gd_mean(t[X], GD_AXES(0), true);
}

static gd_tensor *max_rows(gd_tensor *const *t)
{
    return gd_max(t[X], GD_AXES(-1), false);
}

static gd_tensor *max_columns(gd_tensor *const *t)
{
    return gd_max(t[X], GD_AXES(0), false);
}

static gd_tensor *min_all(gd_tensor *const *t)
{
    return gd_min(t[X], GD_ALL_AXES, false);
}

static gd_tensor *argmax_rows(gd_tensor *const *t)
{
    return gd_argmax(t[X], -1, false);
}

static gd_tensor *argmin_columns(gd_tensor *const *t)
{
    return gd_argmin(t[X], 0, true);
}

static gd_tensor *prod_rows(gd_tensor *const *t)
{
    return gd_prod(t[X], GD_AXES(-1), false);
}

static gd_tensor *prod_columns(gd_tensor *const *t)
{
    return gd_prod(t[X], GD_AXES(0), true);
}

static gd_tensor *cumsum_rows(gd_tensor *const *t)
{
    return gd_cumsum(t[X], -1);
}

static gd_tensor *cumsum_columns(gd_tensor *const *t)
{
    return gd_cumsum(t[X], 0);
}

static gd_tensor *cumprod_rows(gd_tensor *const *t)
{
    return gd_cumprod(t[X], -1);
}

static gd_tensor *cumprod_columns(gd_tensor *const *t)
{
    return gd_cumprod(t[X], 0);
}

/* The last axis is the planes. */
static gd_tensor *batch_norm(gd_tensor *const *t)
{
    return gd_batch_norm(t[X], NULL, NULL, NULL, NULL, .training = true);
}

/* The adjoint of broadcasting: a sum over axes 0 and 1 of three, or 0 of two. */
static gd_tensor *bias_added(gd_tensor *const *t)
{
    return gd_add(t[X], t[BIAS]);
}

/* x as 1 image of planes. */
static gd_tensor *image(gd_tensor *const *t)
{
    const gd_shape shape = gd_tensor_shape(t[X]);
    return gd_reshape(t[X], shape.rank == 3 ? GD_SHAPE(1, shape.dim[0], shape.dim[1], shape.dim[2])
                                            : GD_SHAPE(1, 1, shape.dim[0], shape.dim[1]));
}

static gd_tensor *max_pool(gd_tensor *const *t)
{
    return gd_max_pool2d(image(t), GD_SHAPE(3, 2), .padding = GD_SHAPE(1), .stride = GD_SHAPE(2));
}

static gd_tensor *max_pool_squares(gd_tensor *const *t)
{
    return gd_adaptive_max_pool(
        gd_max_pool2d(gd_pad(image(t), GD_SHAPE(0, 0, 1, 1), GD_SHAPE(0, 0, 0, 0), 1), GD_SHAPE(2)),
        GD_SHAPE(1, 1));
}

static gd_tensor *avg_pool(gd_tensor *const *t)
{
    return gd_avg_pool2d(image(t), GD_SHAPE(2, 3), .padding = GD_SHAPE(1));
}

static const function functions[] = {
    { "softmax", softmax, DIFFERENTIABLE | DIRECT },
    { "softmax of columns", softmax_columns, DIFFERENTIABLE },
    { "log_softmax", log_softmax, DIFFERENTIABLE | DIRECT },
    { "cross_entropy", cross_entropy, DIFFERENTIABLE | MATRIX | DIRECT },
    { "layer_norm", layer_norm, DIFFERENTIABLE | DIRECT },
    { "layer_norm without weight", layer_norm_bias, DIFFERENTIABLE },
    { "layer_norm of all", layer_norm_all, DIFFERENTIABLE },
    { "rms_norm", rms_norm, DIFFERENTIABLE | DIRECT },
    { "sum of rows", sum_rows, DIFFERENTIABLE | DIRECT },
    { "sum of columns", sum_columns, DIFFERENTIABLE | DIRECT },
    { "sum of all", sum_all, DIFFERENTIABLE | DIRECT },
    { "mean of rows", mean_rows, DIFFERENTIABLE | DIRECT },
    { "mean of columns", mean_columns, DIFFERENTIABLE | DIRECT },
    { "max of rows", max_rows, DIFFERENTIABLE | DIRECT },
    { "max of columns", max_columns, DIFFERENTIABLE | DIRECT },
    { "min of all", min_all, DIFFERENTIABLE | DIRECT },
    { "argmax of rows", argmax_rows, DIRECT },
    { "argmin of columns", argmin_columns, 0 },
    { "max_pool", max_pool, DIFFERENTIABLE | DIRECT },
    { "max_pool of squares", max_pool_squares, DIFFERENTIABLE | DIRECT },
    { "avg_pool", avg_pool, DIFFERENTIABLE | DIRECT },
    { "bias added", bias_added, DIFFERENTIABLE },
    { "prod of rows", prod_rows, DIFFERENTIABLE | DIRECT },
    { "prod of columns", prod_columns, DIFFERENTIABLE | DIRECT },
    { "cumsum of rows", cumsum_rows, DIFFERENTIABLE | DIRECT },
    { "cumsum of columns", cumsum_columns, DIFFERENTIABLE | DIRECT },
    { "cumprod of rows", cumprod_rows, DIFFERENTIABLE | DIRECT },
    { "cumprod of columns", cumprod_columns, DIFFERENTIABLE | DIRECT },
    { "batch_norm", batch_norm, DIFFERENTIABLE | PLANES | COMPILED },
};

/* ---- operands ---- */

/* Odd numbers of rows and columns, and what is cut into blocks, tiles and pieces for threads. */
static const gd_shape shapes[] = {
    { 2, { 7, 11 } },    { 2, { 5, 1 } },     { 2, { 1, 300 } },    { 2, { 3, 65 } },
    { 3, { 5, 7, 33 } }, { 2, { 70, 16 } },   { 2, { 19, 2100 } },  { 2, { 5001, 3 } },
    { 2, { 2, 9001 } },  { 2, { 1, 40001 } }, { 3, { 3, 21, 64 } }, { 2, { 300, 130 } },
};

enum contents { ORDINARY, SUBNORMAL, EXTREME, CONTENTS };

static uint16_t half_of(gd_dtype dtype, float x)
{
    return dtype == GD_F16 ? gd_f32_to_f16(x) : gd_f32_to_bf16(x);
}

/* Any bits among ordinary numbers when EXTREME. */
static gd_tensor *half_tensor(gd_context *gd, gd_shape shape, gd_dtype dtype, enum contents kind,
                              numbers *n)
{
    const int64_t count = shape_count(shape);
    uint16_t *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = half_of(dtype, (float)numbers_uniform(n, -4, 4));
        if (kind == SUBNORMAL)
            x[i] = (uint16_t)(numbers_next(n) & 0x807fu);
        else if (kind == EXTREME && numbers_next(n) % 97 == 0)
            x[i] = (uint16_t)numbers_next(n);
    }
    gd_tensor *t = gd_from_host(gd, shape, dtype, x);
    free(x);
    return t;
}

static void make_operands(gd_context *gd, gd_shape shape, gd_dtype dtype, enum contents kind,
                          numbers *n, gd_tensor **t)
{
    const int64_t rows = shape.dim[0], k = shape.dim[shape.rank - 1];
    t[X] = half_tensor(gd, shape, dtype, kind, n);
    t[WEIGHT] = half_tensor(gd, GD_SHAPE(k), dtype, ORDINARY, n);
    t[BIAS] = half_tensor(gd, GD_SHAPE(k), dtype, ORDINARY, n);
    t[LABELS] =
        gd_fmod(gd_arange(gd, 0, (double)rows, 1, GD_I64), gd_scalar(gd, (double)k, GD_I64));
    for (int i = 0; i < OPERANDS; i++)
        assert_non_null(t[i]);
}

/* ---- casts counted ---- */

static gd_kernel_fn cast_kernel;
static int64_t cast_size; /* elements of those that count; 0: none does */
static int casts;

static gd_status count_casts(const gd_kernel_call *call)
{
    casts += gd_layout_count(call->out.layout) == cast_size;
    return cast_kernel(call);
}

/* ---- values and gradients ---- */

/* Named by the function and the shape that are tried. */
static char tried[160];

static void expect_bits(const gd_tensor *t, const gd_tensor *expected, const char *what)
{
    char name[200];
    snprintf(name, sizeof name, "%s, %s", tried, what);
    reading a = reading_take(expected, name), b = reading_take(t, name);
    assert_same_bits(&a, &b, name);
    reading_free(&a);
    reading_free(&b);
}

/* The function of f32 between casts. */
static gd_tensor *between_casts(const function *f, gd_tensor *const *t)
{
    const gd_dtype dtype = gd_tensor_dtype(t[X]);
    gd_tensor *wide[OPERANDS];
    for (int i = 0; i < OPERANDS; i++)
        wide[i] = i == LABELS ? t[i] : gd_cast(t[i], GD_F32);
    gd_tensor *y = f->build(wide);
    return y && gd_tensor_dtype(y) == GD_F32 ? gd_cast(y, dtype) : y;
}

/* dx, dweight, dbias of sum(y * seed). */
static void gradients_of(gd_tensor *y, gd_tensor *seed, gd_tensor *const *t, gd_tensor **d)
{
    assert_int_equal(gd_grad(1, &y, &seed, 3, t, d), GD_OK);
}

static void expect_no_casts(int flags, const char *what)
{
    if (flags && casts > 0)
        fail_msg("%s, %s: %d casts pass over memory", tried, what, casts);
}

/* The gradient by x of sum(d * seed). */
static gd_tensor *second_of(gd_tensor *d, gd_tensor *x, gd_tensor *seed)
{
    gd_tensor *second = NULL;
    assert_int_equal(gd_grad(1, &d, &seed, 1, &x, &second), GD_OK);
    return second;
}

typedef struct body {
    const function *f;
    bool by_x; /* the gradient */
} body;

/* t and the seed */
static gd_tensor *run_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const body *b = user;
    gd_tensor *t[OPERANDS], *d[3];
    for (int i = 0; i < OPERANDS; i++)
        t[i] = b->by_x && i != LABELS ? gd_set_requires_grad(gd_detach(in[i]), true) : in[i];
    gd_tensor *y = b->f->build(t);
    if (b->by_x)
        gradients_of(y, in[OPERANDS], t, d);
    return b->by_x ? d[0] : y;
}

static void check_compiled(gd_context *gd, body b, gd_tensor *const *t, gd_tensor *seed,
                           const gd_tensor *expected)
{
    gd_tensor *in[OPERANDS + 1];
    memcpy(in, t, OPERANDS * sizeof *in);
    in[OPERANDS] = seed;
    casts = 0;
    gd_function *compiled = gd_compile(gd, run_body, &b);
    expect_bits(gd_call(compiled, OPERANDS + 1, in), expected,
                b.by_x ? "compiled gradient" : "compiled");
    if (!b.by_x)
        expect_no_casts(b.f->flags & (DIRECT | COMPILED), "compiled");
    gd_function_release(compiled);
}

static void check_function(gd_context *gd, const function *f, gd_tensor *const *t, numbers *n)
{
    gd_scope_begin(gd);
    gd_tensor *expected = between_casts(f, t), *d[3], *wanted[3];
    const gd_shape shape = gd_tensor_shape(t[X]);
    const bool is_one_line = shape.dim[0] == 1 || shape.dim[shape.rank - 1] == 1;
    cast_size = is_one_line ? 0 : gd_tensor_count(t[X]); /* else results may be of that size */
    casts = 0;
    gd_tensor *y = f->build(t);
    expect_no_casts(f->flags & DIRECT, "without history");
    expect_bits(y, expected, "without history");
    gd_tensor *seed = NULL;
    if (f->flags & DIFFERENTIABLE) {
        seed = half_tensor(gd, gd_tensor_shape(y), gd_tensor_dtype(y), ORDINARY, n);
        gd_tensor *leaf[OPERANDS];
        for (int i = 0; i < OPERANDS; i++)
            leaf[i] = i == LABELS ? t[i] : gd_set_requires_grad(gd_detach(t[i]), true);
        gradients_of(between_casts(f, leaf), seed, leaf, wanted);
        y = f->build(leaf);
        expect_bits(y, expected, "with history");
        gradients_of(y, seed, leaf, d);
        for (int i = 0; i < 3; i++)
            expect_bits(d[i], wanted[i], "gradient");
        expect_bits(second_of(d[X], leaf[X], t[X]), second_of(wanted[X], leaf[X], t[X]),
                    "second gradient");
        check_compiled(gd, (body){ f, true }, t, seed, wanted[0]);
    }
    check_compiled(gd, (body){ f, false }, t, seed ? seed : t[X], expected);
    gd_scope_end(gd);
}

static void check_context(gd_context *gd, numbers *n)
{
    cast_kernel = gd->device->kernel[GD_OP_cast];
    gd->device->kernel[GD_OP_cast] = count_casts;
    int number = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int half = 0; half < 2; half++)
            for (int kind = 0; kind < CONTENTS; kind++) {
                if (!test_tries_similar(&number))
                    continue;
                gd_scope_begin(gd);
                gd_tensor *t[OPERANDS];
                make_operands(gd, shapes[s], half ? GD_BF16 : GD_F16, (enum contents)kind, n, t);
                for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
                    if (shapes[s].rank == (functions[f].flags & PLANES ? 3 : 2) ||
                        !(functions[f].flags & (MATRIX | PLANES))) {
                        snprintf(tried, sizeof tried, "%s of %s %d, %d threads: %s, shape %d, %d",
                                 gd->device->isa, half ? "bf16" : "f16", kind, gd->device->threads,
                                 functions[f].name, (int)s, (int)shapes[s].rank);
                        check_function(gd, &functions[f], t, n);
                    }
                gd_scope_end(gd);
            }
    gd->device->kernel[GD_OP_cast] = cast_kernel;
}

static void test_bits_of_casts(void **state)
{
    (void)state;
    numbers n = { 5 };
    for (const char *const *isa = isa_names(); *isa; isa++)
        for (int threads = 1; threads <= 2; threads++) {
            gd_context *gd = open_cpu(*isa, threads);
            check_context(gd, &n);
            close_context(gd);
        }
    assert_int_equal(watch_faults(), 0);
}

/* Sums of a state as it was before the body assigned to it, cast before. */
static gd_tensor *sum_and_assign(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *state = user, *wide = gd_cast(state, GD_F32);
    assert_non_null(gd_assign(state, in[0]));
    return gd_sum(wide, GD_AXES(0), false);
}

static void test_reads_before_assignments(void **state)
{
    (void)state;
    gd_context *gd = open_cpu(NULL, 1);
    numbers n = { 7 };
    gd_scope_begin(gd);
    gd_tensor *x = half_tensor(gd, GD_SHAPE(50, 70), GD_BF16, ORDINARY, &n),
              *memory = half_tensor(gd, GD_SHAPE(50, 70), GD_BF16, ORDINARY, &n);
    gd_tensor *expected = gd_sum(gd_cast(memory, GD_F32), GD_AXES(0), false);
    gd_function *compiled = gd_compile(gd, sum_and_assign, memory);
    gd_tensor *sums = gd_call(compiled, 1, &x);
    snprintf(tried, sizeof tried, "a state that is assigned to");
    expect_bits(sums, expected, "sums");
    expect_bits(memory, x, "state");
    gd_function_release(compiled);
    gd_scope_end(gd);
    close_context(gd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_before_assignments),
        cmocka_unit_test(test_bits_of_casts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
