/* tests/test_fuse.c: groups with reductions along rows: that they form, and that they give the bits
 * of eager execution, whatever the shapes, strides, dtypes, values and threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include <gradus/gradus.h>

#include "support/context.h"
#include "support/effort.h"

enum { INPUTS = 4 };

/* in[0] x, in[1] like x, in[2] a row's weights or one number, in[3] a number each row: x.shape with
 * the last axis 1. */
typedef struct rows_case {
    gd_axes axes; /* of a row */
    bool drop;    /* reductions drop their axes, which come back by a view */
} rows_case;

static gd_tensor *reduced(const rows_case *c, gd_tensor *(*op)(gd_tensor *, gd_axes, bool),
                          gd_tensor *x)
{
    gd_tensor *r = op(x, c->axes, !c->drop);
    gd_shape shape = gd_tensor_shape(x);
    if (!c->drop || !r)
        return r;
    for (int i = 0; i < c->axes.count; i++)
        shape.dim[(c->axes.axis[i] + shape.rank) % shape.rank] = 1;
    for (int i = 0; i < shape.rank && c->axes.count < 0; i++)
        shape.dim[i] = 1;
    return gd_reshape(r, shape);
}

/* Several results as one, to compare. */
static gd_tensor *joined(gd_tensor **results, int count)
{
    for (int i = 0; i < count; i++)
        results[i] = gd_reshape(gd_cast(results[i], GD_F64), GD_SHAPE(-1));
    return gd_concat(count, results, 0);
}

/* ---- bodies ---- */

static gd_tensor *layer_norm(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const rows_case *c = user;
    gd_tensor *d = gd_sub(in[0], reduced(c, gd_mean, in[0]));
    gd_tensor *v = reduced(c, gd_mean, gd_square(d));
    return gd_mul(gd_mul(d, gd_rsqrt(gd_add_scalar(v, 1e-5))), in[2]);
}

static gd_tensor *rms_norm(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const rows_case *c = user;
    gd_tensor *square = reduced(c, gd_mean, gd_square(in[0]));
    return gd_mul(in[0], gd_rsqrt(gd_add_scalar(square, 1e-5)));
}

static gd_tensor *softmax(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const rows_case *c = user;
    gd_tensor *e = gd_exp(gd_sub(in[0], reduced(c, gd_max, in[0])));
    return gd_div(e, reduced(c, gd_sum, e));
}

/* Results of both kinds, numbers of rows as inputs, products and least values. */
static gd_tensor *many_results(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const rows_case *c = user;
    gd_tensor *x = gd_mul(gd_add(in[0], in[3]), in[2]);
    gd_tensor *low = reduced(c, gd_min, x), *high = reduced(c, gd_max, x);
    gd_tensor *width = gd_sub(high, low);
    gd_tensor *y = gd_div(gd_sub(x, low), width);
    gd_tensor *results[4] = { width, y,
                              gd_sum(gd_where(gd_gt(y, in[1]), y, in[1]), c->axes, !c->drop),
                              gd_add(y, reduced(c, gd_prod, gd_tanh(y))) };
    return joined(results, 4);
}

/* Values of both widths, in turn, that live from one reduction to the next. */
static gd_tensor *both_widths(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const rows_case *c = user;
    gd_tensor *x = gd_cast(in[0], GD_F32), *a = gd_tanh(x);
    gd_tensor *m = reduced(c, gd_sum, gd_square(a));
    gd_tensor *wide = gd_cast(gd_mul(a, m), GD_F64), *b = gd_exp(wide);
    gd_tensor *n = reduced(c, gd_sum, gd_mul(b, wide));
    gd_tensor *narrow = gd_cast(gd_sub(b, n), GD_F32), *d = gd_mul(narrow, x);
    gd_tensor *k = reduced(c, gd_max, d);
    return gd_mul(gd_cast(gd_add(d, k), GD_F64), gd_add(b, gd_cast(reduced(c, gd_sum, d), GD_F64)));
}

/* Everything with gradients, in f64 in part. */
static gd_tensor *gradients(void *user, int count, gd_tensor *const *in)
{
    gd_tensor *x = in[0], *results[2];
    gd_tensor *y = gd_mul(layer_norm(user, count, in), softmax(user, count, in));
    gd_tensor *loss = gd_mean(gd_square(gd_cast(gd_sub(y, in[1]), GD_F64)), GD_ALL_AXES, false);
    if (gd_grad(1, &loss, NULL, 1, &x, &results[0]) != GD_OK)
        return NULL;
    results[1] = loss;
    return joined(results, 2);
}

/* Layer norm, GELU and softmax with the gradient of a weighted sum: more ops than a group without
 * rows may have, and the loss between them. */
static gd_tensor *block(void *user, int count, gd_tensor *const *in)
{
    const rows_case *c = user;
    gd_tensor *x = in[0], *y = layer_norm(user, count, in), *results[2];
    y = gd_mul(gd_mul_scalar(y, 0.5), gd_add_scalar(gd_erf(gd_mul_scalar(y, 0.70710678)), 1));
    gd_tensor *e = gd_exp(gd_sub(y, gd_detach(reduced(c, gd_max, y))));
    gd_tensor *s = gd_div(e, reduced(c, gd_sum, e));
    gd_tensor *loss = gd_sum(gd_mul(s, in[1]), GD_ALL_AXES, false);
    if (gd_grad(1, &loss, NULL, 1, &x, &results[0]) != GD_OK)
        return NULL;
    results[1] = loss;
    return joined(results, 2);
}

/* One number read before a reduction and behind one, by ops that compute in another dtype when
 * these are halves. */
static gd_tensor *number_in_stages(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *x = gd_mul_scalar(in[0], 0.375);
    gd_tensor *y = gd_div(x, gd_add_scalar(reduced(user, gd_sum, gd_abs(x)), 1));
    return gd_sub(gd_exp(gd_mul_scalar(y, 0.375)), gd_tanh(y));
}

static gd_tensor *(*const bodies[])(void *, int, gd_tensor *const *) = {
    layer_norm, rms_norm, softmax, many_results, gradients, both_widths, block, number_in_stages
};
enum { BODIES = sizeof bodies / sizeof *bodies };

/* ---- bits ---- */

/* Values of all magnitudes; every so often what is not a number or not finite. */
static gd_tensor *values(gd_context *gd, gd_shape shape, gd_dtype dtype, int seed, bool wild)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    double *data = malloc((size_t)(count + 1) * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        double x = (double)((i * 7919 + seed * 104729) % 2003) / 1000 - 1;
        data[i] = !wild || i % 37 ? x : i % 3 == 0 ? (double)NAN : i % 2 ? -INFINITY : -0.0;
    }
    gd_tensor *t = gd_cast(gd_from_host(gd, shape, GD_F64, data), dtype);
    free(data);
    return t;
}

typedef enum lie { DENSE, TRANSPOSED, SLICED, LIES } lie;

/* x of this shape, lying as said. */
static gd_tensor *laid(gd_context *gd, gd_shape shape, gd_dtype dtype, int seed, bool wild, lie how)
{
    gd_shape from = shape;
    int last = shape.rank - 1;
    if (how == TRANSPOSED && last > 0) {
        from.dim[0] = shape.dim[last];
        from.dim[last] = shape.dim[0];
        return gd_transpose(values(gd, from, dtype, seed, wild), 0, last);
    }
    if (how == SLICED) {
        from.dim[last] = 2 * shape.dim[last] + 1;
        return gd_slice(values(gd, from, dtype, seed, wild), last, 1, GD_END, 2);
    }
    return values(gd, shape, dtype, seed, wild);
}

/* Compiled and eager execution give the same bits, with one thread and with two. Kernels of the
 * plan. */
static int check_body(gd_context *gd, int body, rows_case *c, gd_tensor *const *in)
{
    gd_function *f = gd_compile(gd, bodies[body], c),
                *eager = gd_compile(gd, bodies[body], c, .mode = GD_MODE_EAGER);
    for (int threads = 1; threads <= 2; threads++) {
        assert_int_equal(gd_context_set_threads(gd, threads), GD_OK);
        gd_tensor *got = gd_call(f, INPUTS, in), *want = gd_call(eager, INPUTS, in);
        if (!got)
            print_error("%s\n", gd_error_message());
        assert_true(got && want);
        assert_same_bits(got, want);
    }
    int kernels = gd_function_stats(f).kernels;
    gd_function_release(f);
    gd_function_release(eager);
    return kernels;
}

static void make_inputs(gd_context *gd, gd_shape shape, gd_dtype dtype, bool wild, lie how,
                        gd_tensor **in)
{
    int last = shape.rank - 1;
    gd_shape row = GD_SHAPE(shape.dim[last]), number = shape;
    number.dim[last] = 1;
    in[0] = gd_set_requires_grad(gd_detach(laid(gd, shape, dtype, 1, wild, how)), true);
    in[1] = laid(gd, shape, dtype, 2, false, how);
    in[2] = values(gd, how == SLICED ? GD_SCALAR : row, dtype, 3, false);
    in[3] = values(gd, number, dtype, 4, false);
}

static const gd_shape shapes[] = {
    { 2, { 3, 5 } },    { 2, { 1, 2 } },     { 1, { 7 } },
    { 2, { 70, 64 } },  { 2, { 9, 300 } },   { 2, { 5, 513 } },
    { 2, { 2, 4096 } }, { 2, { 2, 4097 } },  { 2, { 129, 17 } },
    { 2, { 6, 1 } },    { 3, { 2, 3, 33 } }, { 4, { 2, 1, 5, 7 } },
    { 3, { 4, 1, 9 } }, { 3, { 1, 1, 40 } }, { 4, { 2, 3, 16, 16 } },
    { 2, { 1000, 8 } },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void groups_give_the_bits_of_eager_execution(void **state)
{
    gd_context *gd = *state;
    int number = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int variant = 0; variant < 16; variant++) {
            if (!test_tries(&number))
                continue;
            int rank = shapes[s].rank;
            rows_case c = { variant & 1   ? GD_AXES(-1)
                            : rank == 3   ? GD_AXES(1, 2)
                            : rank == 4   ? GD_AXES(2, -1)
                            : variant & 2 ? GD_ALL_AXES
                                          : GD_AXES(rank - 1),
                            variant & 4 };
            gd_dtype dtype = variant & 8 ? GD_F64 : GD_F32;
            assert_int_equal(gd_scope_begin(gd), GD_OK);
            gd_tensor *in[INPUTS];
            make_inputs(gd, shapes[s], dtype, variant % 3 == 0, (lie)(variant % LIES), in);
            for (int body = 0; body < BODIES; body++)
                (void)check_body(gd, body, &c, in);
            assert_int_equal(gd_scope_end(gd), GD_OK);
        }
}

static void other_axes_and_types_are_left_alone(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[INPUTS];
    make_inputs(gd, GD_SHAPE(6, 5, 8), GD_F32, false, DENSE, in);
    rows_case c = { .axes = GD_AXES(0) };
    assert_true(check_body(gd, 0, &c, in) > 1);
    c.axes = GD_AXES(1);
    assert_true(check_body(gd, 0, &c, in) > 1);
    c.axes = GD_AXES(0, 2);
    assert_true(check_body(gd, 0, &c, in) > 1);
    c.axes = GD_AXES(-1);
    for (int i = 0; i < 4; i++) {
        const gd_dtype dtype = i < 2 ? GD_F16 : GD_BF16;
        make_inputs(gd, i % 2 ? GD_SHAPE(5, 300) : GD_SHAPE(6, 8), dtype, false, DENSE, in);
        for (int body = 0; body < BODIES; body++)
            (void)check_body(gd, body, &c, in);
    }
    make_inputs(gd, GD_SHAPE(0, 8), GD_F32, false, DENSE, in);
    for (int body = 0; body < BODIES; body++)
        (void)check_body(gd, body, &c, in);
}

static void normalisations_are_one_kernel(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[INPUTS];
    rows_case c = { .axes = GD_AXES(-1) };
    for (int drop = 0; drop < 2; drop++)
        for (int64_t length = 20; length < 5000; length *= 13) {
            c.drop = drop;
            make_inputs(gd, GD_SHAPE(4, 3, length), GD_F32, false, DENSE, in);
            for (int body = 0; body < 3; body++)
                assert_int_equal(check_body(gd, body, &c, in), 1);
            assert_int_equal(check_body(gd, 3, &c, in), 3); /* one; casts, joining */
            assert_in_range(check_body(gd, 4, &c, in), 1, 9);
            if (length < 1000) /* one; the loss, casts, joining */
                assert_int_equal(check_body(gd, 6, &c, in), 6);
        }
    gd_function *f = gd_compile(gd, layer_norm, &c);
    char text[4000];
    in[0] = gd_detach(in[0]); /* or values are kept for a gradient through the call */
    assert_non_null(gd_call(f, INPUTS, in));
    assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "{sum div sub square sum div add rsqrt mul mul}"));
}

/* ---- what is written over ---- */

/* A number for each row is kept in a state that the group reads, too, and by columns; values are
 * made in the state. */
static gd_tensor *running(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor **state = user;
    gd_tensor *mean = gd_mean(gd_mul(in[0], state[0]), GD_AXES(-1), false);
    gd_assign(state[0], gd_add(gd_mul_scalar(state[0], 0.9), gd_mul_scalar(mean, 0.1)));
    gd_tensor *y = gd_mul(gd_sub(state[1], gd_unsqueeze(mean, 1)), in[0]);
    gd_tensor *sum = gd_sum(y, GD_AXES(-1), true);
    gd_assign(state[1], gd_div(y, sum));
    return gd_sum(sum, GD_ALL_AXES, false);
}

/* The gradient of a ReLU [n, c, h, w], summed to that of a bias [c]; *user: and the former. */
static gd_tensor *bias_gradient(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const bool *with_both = user;
    gd_tensor *g = gd_relu_grad(in[1], in[0]), *sum = gd_sum(g, GD_AXES(0, 2, 3), false);
    return *with_both ? joined((gd_tensor *[]){ sum, g }, 2) : sum;
}

/* (0, 2, 3) is summed as (2, 3), by what makes the rows, and then 0. */
static void sums_of_channels_join_what_makes_them(void **state)
{
    static const gd_shape images[] = { { 4, { 5, 3, 4, 4 } },
                                       { 4, { 3, 2, 28, 28 } },
                                       { 4, { 2, 3, 32, 40 } },
                                       { 4, { 4, 2, 7, 3 } } };
    gd_context *gd = *state;
    for (int i = 0; i < 16; i++) {
        gd_tensor *in[INPUTS];
        bool with_both = i & 4;
        make_inputs(gd, images[i % 4], i & 8 ? GD_F64 : GD_F32, false, DENSE, in);
        gd_function *f = gd_compile(gd, bias_gradient, &with_both);
        gd_tensor *want = bias_gradient(&with_both, INPUTS, in);
        for (int threads = 1; threads <= 2; threads++) {
            assert_int_equal(gd_context_set_threads(gd, threads), GD_OK);
            assert_same_bits(gd_call(f, 2, in), want);
        }
        if (!with_both)
            assert_int_equal(gd_function_stats(f).kernels, 2);
        gd_function_release(f);
    }
}

static void states_are_updated_alike(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = values(gd, GD_SHAPE(16, 16), GD_F32, 5, false), *kept[2][2];
    for (int mode = 0; mode < 2; mode++) {
        kept[mode][0] = gd_retain(values(gd, GD_SHAPE(16), GD_F32, 6, false));
        kept[mode][1] = gd_retain(values(gd, GD_SHAPE(16, 16), GD_F32, 7, false));
        gd_function *f =
            gd_compile(gd, running, kept[mode], .mode = mode ? GD_MODE_EAGER : GD_MODE_COMPILED);
        for (int i = 0; i < 3; i++)
            assert_non_null(gd_call(f, 1, &x));
    }
    assert_same_bits(kept[0][0], kept[1][0]);
    assert_same_bits(kept[0][1], kept[1][1]);
    for (int i = 0; i < 4; i++)
        gd_release(kept[i / 2][i % 2]);
}

/* ---- out of memory ---- */

static bool compile_and_call(int body)
{
    bool ok = false;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    if (gd && gd_scope_begin(gd) == GD_OK) {
        rows_case c = { .axes = GD_AXES(-1), .drop = true };
        gd_tensor *in[INPUTS] = { gd_set_requires_grad(gd_ones(gd, GD_SHAPE(3, 8), GD_F32), true),
                                  gd_ones(gd, GD_SHAPE(3, 8), GD_F32),
                                  gd_ones(gd, GD_SHAPE(8), GD_F32),
                                  gd_ones(gd, GD_SHAPE(3, 1), GD_F32) };
        gd_function *f = gd_compile(gd, bodies[body], &c);
        ok = in[3] && f && gd_call(f, INPUTS, in) != NULL;
    }
    gd_close(gd);
    return ok;
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    fail_every_allocation(compile_and_call, 3);
    fail_every_allocation(compile_and_call, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(groups_give_the_bits_of_eager_execution),
        context_test(other_axes_and_types_are_left_alone),
        context_test(normalisations_are_one_kernel),
        context_test(sums_of_channels_join_what_makes_them),
        context_test(states_are_updated_alike),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
