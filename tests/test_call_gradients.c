/* tests/test_call_gradients.c: gradients through compiled functions that are called eagerly
 * (compile/call_gradient.c): the bits are those of eager execution. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "support/context.h"

/* ---- a network with dropout, trained by eager steps around a compiled loss ---- */

enum { IN = 12, WIDE = 9, OUT = 5, LAYERS = 3, STEPS = 4 };

typedef struct net {
    gd_tensor *w[LAYERS], *b[LAYERS], *seen;
    int calls;
} net;

static gd_tensor *parameter(gd_context *gd, gd_shape shape)
{
    return gd_set_requires_grad(gd_retain(gd_normal(gd, shape, 0, 0.4, GD_F32)), true);
}

static net make_net(gd_context *gd)
{
    net n = { .seen = gd_retain(gd_zeros(gd, GD_SHAPE(WIDE), GD_F32)) };
    for (int i = 0; i < LAYERS; i++) {
        int64_t from = i ? WIDE : IN, to = i + 1 < LAYERS ? WIDE : OUT;
        n.w[i] = parameter(gd, GD_SHAPE(from, to));
        n.b[i] = parameter(gd, GD_SHAPE(to));
    }
    return n;
}

/* in[0] x [n, IN], in[1] labels [n]: the loss; logits and a running mean of what is in between. */
static gd_tensor *loss_of(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    net *n = user;
    n->calls++;
    gd_tensor *h = gd_layer_norm(in[0], NULL, NULL);
    for (int i = 0; i < LAYERS; i++) {
        h = gd_add(gd_matmul(h, n->w[i]), n->b[i]);
        if (i + 1 == LAYERS)
            break;
        gd_assign(n->seen, gd_add(gd_mul_scalar(n->seen, 0.9), gd_mean(h, GD_AXES(0), false)));
        h = gd_dropout(i ? gd_relu(h) : gd_gelu(h), 0.3);
    }
    gd_output(h);
    return gd_cross_entropy(h, in[1]);
}

typedef struct outcome {
    float loss[STEPS], w[LAYERS][IN * WIDE], seen[WIDE], x[7 * IN];
} outcome;

/* Steps of plain SGD; mode < 0: the body is called as it is. */
static outcome run(int mode, bool by_grad)
{
    gd_context *gd = gd_open(test_device(), .threads = 2, .seed = 11);
    net n = make_net(gd);
    gd_function *f = mode < 0 ? NULL : gd_compile(gd, loss_of, &n, .mode = (gd_mode)mode);
    outcome o;
    memset(&o, 0, sizeof o);
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(gd_scope_begin(gd), GD_OK);
        int64_t rows = step == 2 ? 5 : 7;
        gd_tensor *x = gd_set_requires_grad(
            gd_retain(gd_detach(gd_normal(gd, GD_SHAPE(rows, IN), 0, 1, GD_F32))), true);
        gd_tensor *in[2] = { x, gd_cast(gd_uniform(gd, GD_SHAPE(rows), 0, OUT, GD_F32), GD_I64) };
        gd_tensor *loss = f ? gd_call(f, 2, in) : loss_of(&n, 2, in);
        if (!loss)
            fail_msg("%s", gd_error_message());
        o.loss[step] = (float)gd_item(loss);
        loss = gd_mul_scalar(loss, 3.0);
        gd_tensor *p[2 * LAYERS + 1] = { x }, *g[2 * LAYERS + 1];
        for (int i = 0; i < LAYERS; i++) {
            p[1 + 2 * i] = n.w[i];
            p[2 + 2 * i] = n.b[i];
        }
        if (by_grad) {
            assert_int_equal(gd_grad(1, &loss, NULL, 2 * LAYERS + 1, p, g), GD_OK);
        } else {
            if (gd_backward(loss) != GD_OK)
                fail_msg("%s", gd_error_message());
            for (int i = 0; i < 2 * LAYERS + 1; i++)
                g[i] = gd_gradient(p[i]);
        }
        assert_int_equal(gd_no_grad_begin(gd), GD_OK);
        for (int i = 1; i < 2 * LAYERS + 1; i++) {
            assert_non_null(gd_assign(p[i], gd_sub(p[i], gd_mul_scalar(g[i], 0.1))));
            gd_zero_grad(p[i]);
        }
        assert_int_equal(gd_no_grad_end(gd), GD_OK);
        assert_int_equal(gd_tensor_read(g[0], o.x, sizeof(float) * IN * (size_t)rows), GD_OK);
        gd_release(x);
        assert_int_equal(gd_scope_end(gd), GD_OK);
    }
    for (int i = 0; i < LAYERS; i++)
        assert_int_equal(
            gd_tensor_read(n.w[i], o.w[i], sizeof(float) * (size_t)gd_tensor_count(n.w[i])), GD_OK);
    assert_int_equal(gd_tensor_read(n.seen, o.seen, sizeof o.seen), GD_OK);
    if (mode == GD_MODE_COMPILED)
        assert_int_equal(n.calls, 2); /* one for each batch size */
    gd_close(gd);
    return o;
}

static void training_through_a_call_gives_eager_bits(void **state)
{
    (void)state;
    outcome eager = run(-1, false);
    assert_true(eager.loss[0] != eager.loss[3] && eager.x[0] != 0 && eager.seen[0] != 0);
    const int modes[] = { GD_MODE_COMPILED, GD_MODE_LAZY, GD_MODE_EAGER };
    for (int i = 0; i < 3; i++)
        for (int by_grad = 0; by_grad < 2; by_grad++) {
            if (modes[i] == GD_MODE_EAGER && by_grad)
                continue;
            outcome other = run(modes[i], by_grad);
            assert_memory_equal(&eager, &other, sizeof eager);
        }
}

/* ---- calls that are alive at the same time ---- */

static gd_tensor *cell(void *user, int count, gd_tensor *const *in) /* h, x */
{
    (void)count;
    gd_tensor *w = user;
    return gd_tanh(gd_add(gd_matmul(in[0], w), gd_mul(in[1], in[0])));
}

/* A recurrent network of calls, and the function of two inputs added up. */
static void many_calls(gd_context *gd, gd_function *f, gd_tensor *w, float *out)
{
    gd_tensor *h = gd_scope_begin(gd) == GD_OK ? gd_full(gd, GD_SHAPE(2, 3), 0.5, GD_F32) : NULL;
    gd_tensor *x = gd_retain(gd_linspace(gd, -1, 1, 3, GD_F32));
    gd_set_requires_grad(x, true);
    for (int t = 0; t < 5; t++) {
        gd_tensor *in[2] = { h, x };
        h = f ? gd_call(f, 2, in) : cell(w, 2, in);
    }
    gd_tensor *a[2] = { h, h }, *b[2] = { gd_neg(h), x };
    gd_tensor *first =
        gd_retain(f ? gd_call(f, 2, a) : cell(w, 2, a)); /* read after the next call */
    gd_tensor *sum = gd_add(first, f ? gd_call(f, 2, b) : cell(w, 2, b));
    gd_release(first);
    gd_tensor *loss = gd_sum(gd_square(sum), GD_ALL_AXES, false), *p[2] = { w, x }, *g[2];
    assert_int_equal(gd_grad(1, &loss, NULL, 2, p, g), GD_OK);
    assert_int_equal(gd_tensor_read(g[0], out, 9 * sizeof(float)), GD_OK);
    assert_int_equal(gd_tensor_read(g[1], out + 9, 3 * sizeof(float)), GD_OK);
    out[12] = (float)gd_item(loss);
    gd_release(x);
    assert_int_equal(gd_scope_end(gd), GD_OK);
}

static void results_of_many_calls_live_side_by_side(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = parameter(gd, GD_SHAPE(3, 3));
    gd_function *f = gd_compile(gd, cell, w);
    float eager[13], called[13];
    many_calls(gd, NULL, w, eager);
    many_calls(gd, f, w, called);
    assert_true(eager[12] == called[12]);
    for (int i = 0; i < 12; i++) /* w is read seven times: sums in another order */
        assert_true(fabsf(eager[i] - called[i]) < 1e-6f * (1 + fabsf(eager[i])));
    assert_int_equal(gd_function_stats(f).traces,
                     3); /* first h is no result; a is one tensor twice */
    /* and again: the memory is what it was */
    gd_memory_stats before = gd_memory(gd);
    for (int i = 0; i < 20; i++)
        many_calls(gd, f, w, called);
    assert_int_equal(gd_memory(gd).live_tensors, before.live_tensors);
    assert_int_equal(gd_memory(gd).in_use, before.in_use);
    assert_int_equal(gd_memory(gd).reserved, before.reserved);
}

/* In a loop without a scope, what nobody holds is the same tensor again. */
static void calls_in_a_loop_make_nothing(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = parameter(gd, GD_SHAPE(3, 3));
    gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(2, 3), GD_F32), gd_ones(gd, GD_SHAPE(3), GD_F32) };
    gd_function *f = gd_compile(gd, cell, w);
    gd_tensor *first = gd_call(f, 2, in);
    double value = gd_item(gd_sum(first, GD_ALL_AXES, false));
    gd_memory_stats before = { 0 };
    for (int i = 0; i < 10; i++) {
        gd_tensor *y = gd_call(f, 2, in);
        if (i == 0) /* the first is held by the sum */
            before = gd_memory(gd);
        else
            assert_ptr_equal(y, gd_function_result(f, 0));
        if (i == 5)
            gd_fail_allocations_after(0);
    }
    assert_int_equal(gd_fail_allocations_after(-1), 0);
    assert_int_equal(gd_memory(gd).live_tensors, before.live_tensors);
    assert_int_equal(gd_memory(gd).in_use, before.in_use);
    assert_true(gd_item(gd_sum(first, GD_ALL_AXES, false)) == value);
    /* other shapes, other kinds, and a failed call in between */
    gd_tensor *other[2] = { gd_ones(gd, GD_SHAPE(4, 3), GD_F32), in[1] };
    gd_tensor *stale = gd_call(f, 2, in);
    assert_non_null(gd_call(f, 2, other));
    in[1] = gd_ones(gd, GD_SHAPE(7), GD_F32);
    assert_null(gd_call(f, 2, in));
    gd_error_clear();
    assert_non_null(stale);
    gd_tensor *y = gd_call(f, 2, other);
    assert_int_equal(gd_tensor_count(y), 12);
    assert_int_equal(gd_backward(gd_sum(y, GD_ALL_AXES, false)), GD_OK);
}

/* ---- several results ---- */

static gd_tensor *three(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0], *shared = gd_exp(x);
    gd_output(gd_log(x)); /* its gradient is infinite at 0 */
    gd_output(gd_argmax(x, 0, false));
    gd_output(gd_transpose(gd_outer(shared, x), 0, 1));
    return gd_mul(shared, x);
}

/* Bit k of `used`: result k takes part in the loss. */
static void gradient_of_three(gd_context *gd, int used, bool is_compiled, float *out)
{
    const float values[4] = { 0.0f, 0.5f, -0.0f, 2.0f };
    gd_tensor *x = gd_set_requires_grad(gd_from_host(gd, GD_SHAPE(4), GD_F32, values), true);
    gd_tensor *r[4], *loss = gd_scalar(gd, 0, GD_F32);
    if (is_compiled) {
        gd_function *f = gd_compile(gd, three, NULL);
        assert_non_null(gd_call(f, 1, &x));
        for (int i = 0; i < 4; i++)
            r[i] = gd_function_result(f, i);
        assert_null(gd_function_result(f, 4));
        assert_false(gd_requires_grad(r[2]));
        gd_function_release(f); /* the results are the scope's as well */
    } else {
        gd_tensor *shared = gd_exp(x);
        r[0] = gd_mul(shared, x);
        r[1] = gd_log(x);
        r[3] = gd_transpose(gd_outer(shared, x), 0, 1);
    }
    for (int i = 0; i < 4; i++)
        if (used & (1 << i))
            loss = gd_add(loss, gd_sum(gd_mul(r[i], r[i]), GD_ALL_AXES, false));
    gd_tensor *g;
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &x, &g), GD_OK);
    assert_int_equal(gd_tensor_read(g, out, 4 * sizeof(float)), GD_OK);
}

static void results_no_gradient_reaches_take_no_part(void **state)
{
    const int used[] = { 1, 8, 9 };
    for (int i = 0; i < 3; i++) {
        float eager[4], called[4];
        gradient_of_three(*state, used[i], false, eager);
        gradient_of_three(*state, used[i], true, called);
        for (int k = 0; k < 4; k++)
            assert_true(fabsf(eager[k]) < 1e6f && eager[k] == called[k]);
    }
    float called[4];
    gradient_of_three(*state, 3, true, called);
    assert_true(isnan(called[0]) || isinf(called[0]));
}

static gd_tensor *twice_the_input(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_output(in[0]);
    gd_output(user);
    return in[0];
}

static void inputs_and_parameters_may_be_results(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = parameter(gd, GD_SHAPE(3)),
              *x = gd_set_requires_grad(gd_arange(gd, 1, 4, 1, GD_F32), true);
    gd_function *f = gd_compile(gd, twice_the_input, w);
    gd_tensor *r = gd_call(f, 1, &x);
    gd_tensor *all = gd_add(gd_mul(r, gd_function_result(f, 1)), gd_function_result(f, 2));
    gd_tensor *loss = gd_sum(all, GD_ALL_AXES, false), *p[2] = { x, w }, *g[2];
    assert_int_equal(gd_grad(1, &loss, NULL, 2, p, g), GD_OK);
    float values[3];
    assert_int_equal(gd_tensor_read(g[0], values, sizeof values), GD_OK);
    assert_true(values[0] == 2 && values[1] == 4 && values[2] == 6);
    assert_int_equal(gd_tensor_read(g[1], values, sizeof values), GD_OK);
    assert_true(values[0] == 1 && values[2] == 1);
}

/* ---- gradients of gradients ---- */

static gd_tensor *wave(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *w = user;
    return gd_sin(gd_mul(gd_mul(in[0], in[0]), w));
}

/* Derivatives of order 1 to 3 of sum(sin(w x^2)), mixed in x and w. */
static void derivatives(gd_context *gd, bool is_compiled, double *out)
{
    gd_tensor *w = gd_set_requires_grad(gd_scalar(gd, 0.7, GD_F64), true);
    gd_tensor *x = gd_set_requires_grad(gd_linspace(gd, 0.5, 1.5, 3, GD_F64), true);
    gd_function *f = gd_compile(gd, wave, w);
    gd_tensor *y = is_compiled ? gd_call(f, 1, &x) : wave(w, 1, &x);
    for (int order = 0; order < 3; order++) {
        gd_tensor *p[2] = { x, w }, *g[2];
        y = gd_sum(y, GD_ALL_AXES, false);
        if (gd_grad(1, &y, NULL, 2, p, g) != GD_OK)
            fail_msg("order %d: %s", order + 1, gd_error_message());
        assert_int_equal(gd_tensor_read(g[0], out + 4 * order, 3 * sizeof(double)), GD_OK);
        out[4 * order + 3] = gd_item(g[1]);
        y = gd_mul(g[0], g[1]);
    }
}

static void derivatives_of_any_order_are_eager_bits(void **state)
{
    double eager[12], called[12];
    derivatives(*state, false, eager);
    derivatives(*state, true, called);
    assert_memory_equal(eager, called, 8 * sizeof(double));
    for (int i = 8; i < 12; i++)
        assert_true(fabs(eager[i] - called[i]) <= 1e-12 * fabs(eager[i]));
}

/* A gradient penalty: the body itself differentiates. */
static gd_tensor *slope(void *user, int count, gd_tensor *const *in)
{
    gd_tensor *y = wave(user, count, in), *x = in[0], *g;
    return gd_grad(1, &y, NULL, 1, &x, &g) == GD_OK ? g : NULL;
}

static void a_body_that_differentiates_can_be_differentiated(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(gd_scalar(gd, 0.7, GD_F64), true);
    gd_tensor *x = gd_set_requires_grad(gd_linspace(gd, 0.5, 1.5, 3, GD_F64), true);
    gd_function *f = gd_compile(gd, slope, w);
    double values[2];
    for (int i = 0; i < 2; i++) {
        gd_tensor *y = gd_sum(i ? gd_call(f, 1, &x) : slope(w, 1, &x), GD_ALL_AXES, false), *g;
        assert_int_equal(gd_grad(1, &y, NULL, 1, &w, &g), GD_OK);
        values[i] = gd_item(g);
    }
    assert_true(values[0] == values[1] && values[0] != 0);
}

/* ---- more parameters than an op has operands ---- */

enum { MANY = 150 };

static gd_tensor *of_many(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor **w = user, *y = in[0];
    for (int i = 0; i < MANY; i++)
        y = gd_add(gd_mul(y, w[i]), gd_mul_scalar(w[i], (double)i));
    return y;
}

static void a_function_may_have_many_parameters(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w[MANY], *g[2][MANY], *x = gd_linspace(gd, 0.5, 1.5, 3, GD_F64);
    for (int i = 0; i < MANY; i++)
        w[i] = gd_set_requires_grad(gd_scalar(gd, 1 - i * 1e-3, GD_F64), true);
    gd_function *f = gd_compile(gd, of_many, w);
    for (int i = 0; i < 2; i++) {
        gd_tensor *y = gd_sum(i ? gd_call(f, 1, &x) : of_many(w, 1, &x), GD_ALL_AXES, false);
        assert_int_equal(gd_graph_verify(y), GD_OK);
        assert_true(gd_graph_format(y, NULL, 0) > 0);
        if (gd_grad(1, &y, NULL, MANY, w, g[i]) != GD_OK)
            fail_msg("%s", gd_error_message());
    }
    for (int i = 0; i < MANY; i++)
        assert_true(gd_item(g[0][i]) == gd_item(g[1][i]) && gd_item(g[0][i]) != 0);
    gd_tensor *second[2];
    for (int i = 0; i < 2; i++) {
        gd_tensor *y = gd_mul(g[i][3], g[i][MANY - 1]);
        assert_int_equal(gd_grad(1, &y, NULL, 1, &w[7], &second[i]), GD_OK);
    }
    assert_true(fabs(gd_item(second[0]) / gd_item(second[1]) - 1) < 1e-12);
}

/* ---- functions in functions, blocks that are run again ---- */

static gd_tensor *calls_another(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_call(user, 1, in);
    return gd_add(gd_call(user, 1, &y), y);
}

static gd_tensor *in_a_block(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_checkpoint(calls_another, user, 1, in);
}

static void nested_functions_and_checkpoints_go_along(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(gd_scalar(gd, 0.7, GD_F64), true);
    gd_tensor *x = gd_set_requires_grad(gd_linspace(gd, 0.5, 1.5, 3, GD_F64), true);
    gd_function *inner = gd_compile(gd, wave, w), *outer = gd_compile(gd, calls_another, inner),
                *block = gd_compile(gd, in_a_block, inner);
    double values[4];
    for (int i = 0; i < 4; i++) {
        gd_tensor *y = i == 0   ? calls_another(inner, 1, &x) /* two nodes */
                       : i == 1 ? gd_call(outer, 1, &x)       /* one */
                       : i == 2 ? gd_call(block, 1, &x)
                                : in_a_block(inner, 1, &x), /* nodes that are made again */
            *g;
        y = gd_sum(y, GD_ALL_AXES, false);
        if (gd_grad(1, &y, NULL, 1, &x, &g) != GD_OK)
            fail_msg("%d: %s", i, gd_error_message());
        values[i] = gd_item(gd_sum(g, GD_ALL_AXES, false));
    }
    for (int i = 1; i < 4; i++)
        assert_true(values[i] == values[0]);
}

/* ---- what has no history, and what is refused ---- */

static void where_there_is_no_history(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = parameter(gd, GD_SHAPE(3, 3));
    gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(2, 3), GD_F32), gd_ones(gd, GD_SHAPE(3), GD_F32) };
    gd_function *f = gd_compile(gd, cell, w), *detached = gd_compile(gd, cell, w, .detached = true);
    assert_true(gd_requires_grad(gd_call(f, 2, in)));
    assert_false(gd_requires_grad(gd_call(detached, 2, in)));
    FILE *file = tmpfile();
    assert_int_equal(gd_export_c(f, "f", file), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, ".detached");
    assert_int_equal(gd_export_c(detached, "f", file), GD_OK);
    fclose(file);
    assert_int_equal(gd_no_grad_begin(gd), GD_OK);
    for (int i = 0; i < 3; i++) {
        if (i == 2) { /* nothing is allocated */
            gd_fail_allocations_after(0);
            assert_non_null(gd_call(f, 2, in));
            assert_int_equal(gd_fail_allocations_after(-1), 0);
        }
        assert_false(gd_requires_grad(gd_call(f, 2, in)));
    }
    assert_int_equal(gd_no_grad_end(gd), GD_OK);
    assert_int_equal(gd_function_stats(f).traces, 2);
    /* Switching a parameter off and on changes what is traced. */
    gd_set_requires_grad(w, false);
    assert_false(gd_requires_grad(gd_call(f, 2, in)));
    gd_set_requires_grad(w, true);
    assert_true(gd_requires_grad(gd_call(f, 2, in)));
    assert_int_equal(gd_function_stats(f).traces, 3);
}

static gd_tensor *step_of(void *user, int count, gd_tensor *const *in)
{
    net *n = user;
    gd_tensor *loss = loss_of(n, count, in);
    return n->calls % 2 ? loss : gd_backward(loss) == GD_OK ? loss : NULL;
}

static void a_training_step_keeps_nothing(void **state)
{
    gd_context *gd = *state;
    net n = make_net(gd);
    n.calls = 1;
    gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(7, IN), 0, 1, GD_F32),
                         gd_zeros(gd, GD_SHAPE(7), GD_I64) };
    gd_function *f = gd_compile(gd, step_of, &n);
    assert_false(gd_requires_grad(gd_call(f, 2, in)));
    gd_tensor *g = gd_gradient(n.w[0]);
    assert_true(g && gd_item(gd_sum(gd_abs(g), GD_ALL_AXES, false)) > 0);
}

static gd_tensor *differentiates_outside(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor **loss_and_x = user, *g;
    return gd_grad(1, loss_and_x, NULL, 1, loss_and_x + 1, &g) == GD_OK ? gd_add(g, in[0]) : NULL;
}

static gd_tensor *reads_what_it_assigns(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_mul(in[0], user);
    gd_assign(user, gd_add_scalar(user, 1));
    return y;
}

/* A block that does something at once, whenever it is run. */
static gd_tensor *pauses(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_trace_pause(user);
    double two = gd_item(gd_full(user, GD_SCALAR, 2, GD_F32));
    gd_trace_resume(user);
    return gd_mul_scalar(gd_exp(in[0]), two);
}

static gd_tensor *calls_pausing_block(void *user, int count, gd_tensor *const *in)
{
    return gd_checkpoint(pauses, user, count, in);
}

/* Within a pause a function is called and differentiated, for a number. */
static gd_tensor *differentiates_in_a_pause(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_context *gd = gd_tensor_context(in[0]);
    gd_trace_pause(gd);
    gd_tensor *x = gd_set_requires_grad(gd_full(gd, GD_SHAPE(3), 0, GD_F32), true), *g;
    gd_tensor *y = gd_sum(gd_call(user, 1, &x), GD_ALL_AXES, false);
    double slope =
        gd_grad(1, &y, NULL, 1, &x, &g) == GD_OK ? gd_item(gd_mean(g, GD_ALL_AXES, false)) : 0;
    gd_trace_resume(gd);
    return gd_mul_scalar(in[0], slope);
}

static void pauses_nest_in_gradients(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(4), GD_F32);
    gd_function *inner = gd_compile(gd, calls_pausing_block, gd);
    gd_function *outer = gd_compile(gd, differentiates_in_a_pause, inner);
    assert_same_bits(gd_call(outer, 1, &x), gd_full(gd, GD_SHAPE(4), 2, GD_F32));
}

static void misuse_is_an_error(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(gd_retain(gd_scalar(gd, 2, GD_F64)), true);
    gd_tensor *x = gd_set_requires_grad(gd_scalar(gd, 3, GD_F64), true), *g;
    gd_function *f = gd_compile(gd, wave, w);
    gd_tensor *y = gd_call(f, 1, &x);
    assert_int_equal(gd_no_grad_begin(gd), GD_OK);
    gd_assign(w, gd_scalar(gd, 5, GD_F64));
    assert_int_equal(gd_no_grad_end(gd), GD_OK);
    assert_int_equal(gd_backward(y), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "overwritten since");

    gd_tensor *pair[2] = { gd_call(f, 1, &x), x };
    gd_function *other = gd_compile(gd, differentiates_outside, pair);
    assert_null(gd_call(other, 1, &x));
    expect_error(GD_ERR_UNSUPPORTED, "another function is traced");
    assert_int_equal(gd_grad(1, pair, NULL, 1, &x, &g), GD_OK); /* nothing is broken */
    assert_true(gd_item(g) == 2 * 3 * 5 * cos(45.0));

    gd_tensor *state_of = gd_retain(gd_scalar(gd, 4, GD_F64));
    gd_function *h = gd_compile(gd, reads_what_it_assigns, state_of);
    assert_null(gd_reshape(x, GD_SHAPE(2))); /* an error from before is not the reason */
    y = gd_call(h, 1, &x);
    expect_error(GD_ERR_SHAPE, "gd_reshape");
    assert_true(gd_item(y) == 12 && gd_item(state_of) == 5);
    assert_int_equal(gd_backward(y), GD_ERR_UNSUPPORTED);
    expect_error(GD_ERR_UNSUPPORTED, "could not be recorded: the gradient of mul");

    /* Changed in place, as eagerly. */
    y = gd_call(f, 1, &x);
    gd_tensor *z = gd_add_(y, x);
    assert_non_null(z);
    assert_int_equal(gd_backward(z), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "overwritten since");
}

/* The plan is dropped from the cache, and the function released, before the gradient is taken. */
static void a_history_outlives_its_function(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(gd_scalar(gd, 0.7, GD_F64), true), *y[4], *g;
    gd_function *f = gd_compile(gd, wave, w, .cache_limit = 1);
    for (int i = 0; i < 4; i++) {
        gd_tensor *x = gd_full(gd, GD_SHAPE(i + 1), 0.5, GD_F64);
        y[i] = gd_sum(gd_call(f, 1, &x), GD_ALL_AXES, false);
    }
    assert_int_equal(gd_function_stats(f).evictions, 3);
    gd_function_release(f);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(gd_grad(1, &y[i], NULL, 1, &w, &g), GD_OK);
        assert_true(fabs(gd_item(g) - (i + 1) * 0.25 * cos(0.7 * 0.25)) < 1e-12);
    }
    (void)gd_retain(y[0]); /* never released: gd_close ends it */
}

/* Attention and a recurrent layer whose own operands want no gradient: derivatives read views of
 * their results alone. */
static gd_tensor *frozen_layers(void *w, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *h = gd_attention(in[0], gd_sin(in[0]), in[0], .causal = true); // [1, 4, 3]
    gd_tensor *u = gd_full(gd_tensor_context(in[0]), GD_SHAPE(3, 3), 0.25, GD_F32);
    gd_tensor *b = gd_full(gd_tensor_context(in[0]), GD_SHAPE(3), 0.5, GD_F32);
    h = gd_mul(gd_mul(gd_recurrent(gd_tanh(in[0]), u, b, GD_CELL_RNN), w), gd_mul(h, w));
    return gd_sum(h, GD_ALL_AXES, false);
}

static void frozen_operands_are_not_needed(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(gd_linspace(gd, 0.5, 1.5, 3, GD_F32), true);
    gd_tensor *x = gd_normal(gd, GD_SHAPE(1, 4, 3), 0, 1, GD_F32), *g[2];
    gd_function *f = gd_compile(gd, frozen_layers, w);
    for (int call = 0; call < 2; call++) {
        gd_tensor *y[2] = { frozen_layers(w, 1, &x), gd_call(f, 1, &x) };
        for (int i = 0; i < 2; i++)
            if (!y[i] || gd_grad(1, &y[i], NULL, 1, &w, &g[i]) != GD_OK)
                fail_msg("%s", gd_error_message());
        assert_same_bits(g[0], g[1]);
    }
}

static bool everything(int orders)
{
    gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 2);
    gd_tensor *w = gd ? gd_set_requires_grad(gd_scalar(gd, 0.7, GD_F64), true) : NULL;
    gd_tensor *x = w ? gd_set_requires_grad(gd_linspace(gd, 0.5, 1.5, 3, GD_F64), true) : NULL;
    gd_function *f = x ? gd_compile(gd, wave, w) : NULL;
    bool ok = f;
    for (int round = 0; ok && round < 2; round++) {
        gd_tensor *y = gd_call(f, 1, &x);
        for (int order = 0; (ok = y) && order < orders; order++) {
            gd_tensor *p[2] = { x, w }, *g[2];
            y = gd_sum(y, GD_ALL_AXES, false);
            ok = y && gd_grad(1, &y, NULL, 2, p, g) == GD_OK;
            y = ok ? gd_mul(g[0], g[1]) : NULL;
        }
        ok = ok && gd_backward(gd_sum(gd_call(f, 1, &x), GD_ALL_AXES, false)) == GD_OK;
    }
    gd_close(gd);
    return ok;
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    fail_every_allocation(everything, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_through_a_call_gives_eager_bits),
        context_test(results_of_many_calls_live_side_by_side),
        context_test(calls_in_a_loop_make_nothing),
        context_test(results_no_gradient_reaches_take_no_part),
        context_test(inputs_and_parameters_may_be_results),
        context_test(derivatives_of_any_order_are_eager_bits),
        context_test(a_body_that_differentiates_can_be_differentiated),
        context_test(a_function_may_have_many_parameters),
        context_test(nested_functions_and_checkpoints_go_along),
        context_test(where_there_is_no_history),
        context_test(a_training_step_keeps_nothing),
        context_test(misuse_is_an_error),
        context_test(pauses_nest_in_gradients),
        context_test(a_history_outlives_its_function),
        context_test(frozen_operands_are_not_needed),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
