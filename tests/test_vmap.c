/* tests/test_vmap.c: gd_vmap_begin … gd_vmap_end. Each row of support/op_rows.h, with its gradients,
 * must give for a batch what it gives in a loop over the batch's elements, whichever of its operands
 * are batched. Then whole functions: gradients of each element, through the map, within compiled
 * functions and within other maps; random numbers; changes of what is outside; errors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/compile.h>
#include <gradus/conv.h>
#include <gradus/loss.h>
#include <gradus/nn.h>
#include <gradus/norm.h>
#include <gradus/optim.h>
#include <gradus/sequence.h>
#include <gradus/vmap.h>

#include "support/guard.h"
#include "support/tensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 3, MAX_RESULTS = 1 + OP_MAX_OPERANDS };

static int clear_error(void **state)
{
    (void)state;
    gd_error_clear();
    return 0;
}

static void assert_near(const gd_tensor *expected, const gd_tensor *actual, double tolerance,
                        const char *what)
{
    reading e = reading_take(expected, what), a = reading_take(actual, what);
    assert_int_equal(e.dtype, a.dtype);
    if (e.count != a.count || e.shape.rank != a.shape.rank)
        fail_msg("%s: %lld elements, rank %d; expected %lld, rank %d", what, (long long)a.count,
                 a.shape.rank, (long long)e.count, e.shape.rank);
    for (int64_t i = 0; i < e.count; i++) {
        const double x = reading_value(&e, i), y = reading_value(&a, i);
        if (!(fabs(x - y) <= tolerance * (1 + fabs(x))) && x != y && !(isnan(x) && isnan(y)))
            fail_msg("%s: element %lld is %.17g, expected %.17g", what, (long long)i, y, x);
    }
    reading_free(&e);
    reading_free(&a);
}

/* ---- rows: an op and its gradients ---- */

/* The op's result, then the gradient of its elements, weighted, by each operand that requires one.
 * How many there are; 0 on an error. */
static int run_row(gd_context *context, const op_row *row, const op_case *c, gd_tensor *const *in,
                   gd_tensor **results)
{
    gd_tensor *wanted[OP_MAX_OPERANDS];
    int count = 0;
    results[0] = row->build(context, in, c->p);
    for (int i = 0; i < row->operands; i++)
        if (gd_requires_grad(in[i]))
            wanted[count++] = in[i];
    if (!results[0] || count == 0)
        return results[0] ? 1 : 0;
    gd_tensor *seed = gd_add_scalar(gd_mul_scalar(results[0], 0.5), 0.25);
    return gd_grad(1, results, &seed, count, wanted, results + 1) == GD_OK ? 1 + count : 0;
}

/* Operand i of each element, and all of them as one. */
static void make_operand(gd_context *context, const op_row *row, const op_case *c, int i,
                         gd_dtype dtype, numbers *n, gd_tensor **element, gd_tensor **whole)
{
    for (int b = 0; b < SIZE; b++) {
        operand o = operand_make(row, c, i, dtype, LAYOUT_CONTIGUOUS, false, n);
        element[b] = operand_place(context, &o, false).view;
        operand_free(&o);
    }
    *whole = gd_stack(SIZE, element, 0);
    assert_non_null(*whole);
}

static gd_tensor *as_leaf(gd_tensor *t, bool differentiate, const operand_spec *spec)
{
    t = gd_detach(t);
    return differentiate && spec->kind == OPERAND_VALUE && gd_dtype_is_float(gd_tensor_dtype(t))
               ? gd_set_requires_grad(t, true)
               : t;
}

static void check_row(gd_context *context, const op_row *row, const op_case *c, gd_dtype dtype,
                      unsigned mask, numbers *n)
{
    const bool differentiate = (row->flags & OP_DIFFERENTIABLE) && gd_dtype_is_float(dtype);
    gd_tensor *element[OP_MAX_OPERANDS][SIZE], *whole[OP_MAX_OPERANDS];
    gd_tensor *loop[MAX_RESULTS][SIZE], *expected, *in[OP_MAX_OPERANDS];
    char what[160];
    snprintf(what, sizeof what, "%s %s, case %d, batched %u", row->name, gd_dtype_name(dtype),
             (int)(c - row->cases), mask);
    for (int i = 0; i < row->operands; i++)
        make_operand(context, row, c, i, dtype, n, element[i], &whole[i]);
    int count = 0;
    for (int b = 0; b < SIZE; b++) {
        gd_tensor *results[MAX_RESULTS];
        for (int i = 0; i < row->operands; i++)
            in[i] = as_leaf(element[i][mask >> i & 1 ? b : 0], differentiate, &row->operand[i]);
        count = run_row(context, row, c, in, results);
        if (!count)
            fail_msg("%s: %s", what, gd_error_message());
        for (int r = 0; r < count; r++)
            loop[r][b] = results[r];
    }
    bool batched[OP_MAX_OPERANDS];
    for (int i = 0; i < row->operands; i++) {
        batched[i] = mask >> i & 1;
        in[i] = as_leaf(batched[i] ? whole[i] : element[i][0], differentiate, &row->operand[i]);
    }
    gd_tensor *places[OP_MAX_OPERANDS], *outputs[MAX_RESULTS], *results[MAX_RESULTS];
    gd_vmap *map = gd_vmap_begin(row->operands, in, batched, places);
    if (!map || run_row(context, row, c, places, outputs) != count ||
        gd_vmap_end(map, count, outputs, results) != GD_OK)
        fail_msg("%s: %s", what, gd_error_message());
    for (int r = 0; r < count; r++) {
        expected = gd_stack(SIZE, loop[r], 0);
        char which[200];
        snprintf(which, sizeof which, "%s, result %d", what, r);
        assert_near(expected, results[r], dtype == GD_F64 ? 1e-9 : 1e-3, which);
    }
}

static bool has_room(const op_row *row, const op_case *c)
{
    for (int i = 0; i < row->operands; i++)
        if (c->shape[i].rank >= GD_MAX_RANK - 1 || shape_count(c->shape[i]) > 20000)
            return false;
    return true;
}

static void test_rows(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device());
    int checked = 0;
    for (int r = 0; r < op_row_count; r++) {
        const op_row *row = op_rows[r];
        const gd_dtype dtype = op_row_takes(row, GD_F64)   ? GD_F64
                               : op_row_takes(row, GD_F32) ? GD_F32
                               : op_row_takes(row, GD_I64) ? GD_I64
                                                           : GD_BOOL;
        /* The packed result of attention is no tensor of elements; assignments: below. */
        if (row->operands == 0 || (row->flags & OP_RANDOM) || row->id == GD_OP_attention ||
            row->id == GD_OP_assign || !op_row_takes(row, dtype))
            continue;
        numbers n = numbers_of(row, 5);
        for (int c = 0; c < row->case_count; c++)
            for (unsigned mask = 1; mask < 1u << row->operands && has_room(row, &row->cases[c]);
                 mask++) {
                gd_scope_begin(context);
                check_row(context, row, &row->cases[c], dtype, mask, &n);
                gd_scope_end(context);
                checked++;
            }
    }
    assert_true(checked > 1000);
    gd_close(context);
}

/* ---- functions: [loss, gradient by the weight] of an element (x, y) ---- */

typedef struct model {
    gd_context *context;
    gd_module *module;
    gd_tensor *weight; /* whose gradient is asked for */
} model;

typedef gd_tensor *(*loss_function)(model *m, gd_tensor *x, gd_tensor *y);

static gd_tensor *mlp_loss(model *m, gd_tensor *x, gd_tensor *y)
{
    gd_tensor *h = gd_relu(gd_matmul(x, m->weight));
    return gd_cross_entropy(gd_matmul(h, gd_transpose(m->weight, 0, 1)), y);
}

/* x [1, channels, height, width] */
static gd_tensor *conv_loss(model *m, gd_tensor *x, gd_tensor *y)
{
    gd_tensor *h = gd_conv2d(gd_unsqueeze(x, 0), m->weight, NULL, .padding = GD_SHAPE(1));
    h = gd_max_pool2d(gd_relu(h), GD_SHAPE(2));
    return gd_cross_entropy(gd_flatten(h, 1, -1), gd_unsqueeze(y, 0));
}

/* x [time, width]: attention, normalisation and a product by the same weight. */
static gd_tensor *attention_loss(model *m, gd_tensor *x, gd_tensor *y)
{
    gd_tensor *q = gd_unsqueeze(gd_matmul(x, m->weight), 0);
    gd_tensor *a = gd_squeeze(gd_attention(q, q, gd_unsqueeze(x, 0), .causal = true), 0);
    gd_tensor *n = gd_layer_norm(a, gd_select(m->weight, 0, 0), gd_select(m->weight, 0, 1));
    return gd_sum(gd_mul(n, y), GD_ALL_AXES, false);
}

static gd_tensor *square_body(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_square(gd_tanh(in[0]));
}

static gd_tensor *checkpoint_loss(model *m, gd_tensor *x, gd_tensor *y)
{
    gd_tensor *h = gd_matmul(x, m->weight);
    h = gd_checkpoint(square_body, NULL, 1, &h);
    return gd_sum(gd_mul(h, y), GD_ALL_AXES, false);
}

/* No rule: element by element. */
static gd_tensor *recurrent_loss(model *m, gd_tensor *x, gd_tensor *y)
{
    gd_tensor *weight = gd_full(m->context, GD_SHAPE(2, 8), 0.3, GD_F64);
    gd_tensor *r = gd_recurrent(gd_unsqueeze(gd_matmul(x, m->weight), 0), weight,
                                gd_zeros(m->context, GD_SHAPE(8), GD_F64), GD_CELL_LSTM);
    return gd_sum(gd_mul(gd_squeeze(r, 0), y), GD_ALL_AXES, false);
}

static gd_tensor *random_tensor(gd_context *context, gd_shape shape)
{
    return gd_uniform(context, shape, -1, 1, GD_F64);
}

static bool loss_and_gradient(model *m, loss_function loss, gd_tensor *x, gd_tensor *y,
                              gd_tensor **results)
{
    results[0] = loss(m, x, y);
    return results[0] && gd_grad(1, results, NULL, 1, &m->weight, results + 1) == GD_OK;
}

static void map_loss(model *m, loss_function loss, gd_tensor *x, gd_tensor *y, gd_tensor **results)
{
    gd_tensor *in[2] = { x, y }, *place[2], *outputs[2];
    gd_vmap *map = gd_vmap_begin(2, in, NULL, place);
    if (!map || !loss_and_gradient(m, loss, place[0], place[1], outputs) ||
        gd_vmap_end(map, 2, outputs, results) != GD_OK)
        fail_msg("%s", gd_error_message());
}

static gd_tensor *compiled_map(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *results[2];
    loss_function *loss = ((void **)user)[1];
    map_loss(((void **)user)[0], *loss, in[0], in[1], results);
    (void)gd_output(results[1]);
    return results[0];
}

/* Eagerly, compiled, and its derivative, against a loop. */
static void check_loss(gd_context *context, loss_function loss, gd_shape x_shape, gd_shape y_shape,
                       gd_shape weight_shape, int64_t classes)
{
    gd_scope_begin(context);
    gd_seed(context, 3);
    model m = { .context = context, .weight = random_tensor(context, weight_shape) };
    (void)gd_set_requires_grad(m.weight, true);
    gd_tensor *x = random_tensor(context, x_shape);
    gd_tensor *y =
        classes ? gd_cast(gd_mul_scalar(gd_abs(random_tensor(context, y_shape)), (double)classes),
                          GD_I64)
                : random_tensor(context, y_shape);
    gd_tensor *loop[2][SIZE], *results[2];
    for (int b = 0; b < SIZE; b++) {
        gd_tensor *of[2];
        assert_true(loss_and_gradient(&m, loss, gd_select(x, 0, b), gd_select(y, 0, b), of));
        loop[0][b] = of[0];
        loop[1][b] = of[1];
    }
    gd_tensor *expected[2] = { gd_stack(SIZE, loop[0], 0), gd_stack(SIZE, loop[1], 0) };
    map_loss(&m, loss, x, y, results);
    for (int i = 0; i < 2; i++)
        assert_near(expected[i], results[i], 1e-9, "eager");

    /* The gradient of a function of the gradients. */
    gd_tensor *norm[2] = { gd_sum(gd_square(expected[1]), GD_ALL_AXES, false),
                           gd_sum(gd_square(results[1]), GD_ALL_AXES, false) };
    gd_tensor *second[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(gd_grad(1, &norm[i], NULL, 1, &m.weight, &second[i]), GD_OK);
    assert_near(second[0], second[1], 1e-9, "second derivative");

    gd_function *f = gd_compile(context, compiled_map, ((void *[]){ &m, &loss }));
    gd_tensor *in[2] = { x, y }, *compiled = gd_call(f, 2, in);
    assert_non_null(compiled);
    assert_near(expected[0], compiled, 1e-9, "compiled");
    assert_near(expected[1], gd_function_result(f, 1), 1e-9, "compiled");
    gd_function_release(f);
    gd_scope_end(context);
}

static void test_gradients_of_each(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device());
    const int64_t before = gd_memory(context).live_tensors;
    check_loss(context, mlp_loss, GD_SHAPE(SIZE, 2, 4), GD_SHAPE(SIZE, 2), GD_SHAPE(4, 5), 4);
    check_loss(context, conv_loss, GD_SHAPE(SIZE, 2, 6, 6), GD_SHAPE(SIZE), GD_SHAPE(3, 2, 3, 3),
               9);
    check_loss(context, attention_loss, GD_SHAPE(SIZE, 5, 4), GD_SHAPE(SIZE, 5, 4), GD_SHAPE(4, 4),
               0);
    check_loss(context, checkpoint_loss, GD_SHAPE(SIZE, 3), GD_SHAPE(SIZE, 4), GD_SHAPE(3, 4), 0);
    check_loss(context, recurrent_loss, GD_SHAPE(SIZE, 5, 4), GD_SHAPE(SIZE, 5, 2), GD_SHAPE(4, 8),
               0);
    assert_int_equal(gd_memory(context).live_tensors, before);
    gd_close(context);
}

/* Outer products of all pairs: a map within a map, whose function reads a value of the outer one. */
static void test_maps_nest(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device());
    gd_tensor *x = random_tensor(context, GD_SHAPE(3, 4)),
              *y = random_tensor(context, GD_SHAPE(5, 4));
    gd_tensor *row, *other, *inner, *pairs;
    gd_vmap *over_x = gd_vmap_begin(1, &x, NULL, &row);
    gd_vmap *over_y = gd_vmap_begin(1, &y, NULL, &other);
    gd_tensor *product = gd_dot(row, other);
    assert_int_equal(gd_vmap_end(over_y, 1, &product, &inner), GD_OK);
    assert_int_equal(gd_tensor_shape(inner).rank, 1);
    assert_int_equal(gd_vmap_end(over_x, 1, &inner, &pairs), GD_OK);
    assert_near(gd_matmul(x, gd_transpose(y, 0, 1)), pairs, 1e-12, "pairs");
    gd_release(gd_retain(pairs)); /* a temporary, like any result */
    assert_int_equal(gd_error_code(), GD_OK);
    gd_close(context);
}

/* What is recorded is contiguous, so these must be made so. */
static void test_strided_inputs(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device());
    const double values[] = { 1, 90, 2, 90, 3, 90, 4, 90 };
    gd_tensor *bias = gd_slice(gd_from_host(context, GD_SHAPE(8), GD_F64, values), 0, 0, 8, 2);
    gd_tensor *in[3] = { gd_zeros(context, GD_SHAPE(SIZE, 1, 1, 3), GD_F64),
                         gd_ones(context, GD_SHAPE(4, 1, 1), GD_F64), bias };
    gd_tensor *of[3], *result;
    gd_vmap *map = gd_vmap_begin(3, in, (const bool[]){ true, false, false }, of);
    gd_tensor *out = gd_conv1d(of[0], of[1], of[2]);
    assert_int_equal(gd_vmap_end(map, 1, &out, &result), GD_OK);
    gd_tensor *wanted = gd_broadcast_to(gd_reshape(bias, GD_SHAPE(4, 1)), gd_tensor_shape(result));
    assert_near(result, wanted, 0, "bias");
    gd_close(context);
}

static void test_random_numbers_are_of_each(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device());
    gd_tensor *x = gd_ones(context, GD_SHAPE(SIZE, 200), GD_F32), *row, *results[3], *gradient;
    (void)gd_set_requires_grad(x, true);
    gd_vmap *map = gd_vmap_begin(1, &x, NULL, &row);
    gd_tensor *dropped = gd_dropout(row, 0.5),
              *drawn = gd_uniform(context, GD_SHAPE(200), 0, 1, GD_F32);
    assert_int_equal(gd_grad(1, &dropped, NULL, 1, &row, &gradient), GD_OK);
    assert_int_equal(gd_vmap_end(map, 3, (gd_tensor *[]){ dropped, gradient, drawn }, results),
                     GD_OK);
    /* Of ones, the gradient is the result; no two elements have the same numbers. */
    assert_near(results[0], results[1], 0, "mask");
    for (int r = 0; r < 3; r += 2)
        for (int b = 1; b < SIZE; b++) {
            gd_tensor *same = gd_eq(gd_select(results[r], 0, 0), gd_select(results[r], 0, b));
            assert_true(gd_item(gd_sum(gd_cast(same, GD_F32), GD_ALL_AXES, false)) < 150);
        }
    const double mean = gd_item(gd_mean(results[2], GD_ALL_AXES, false));
    assert_true(mean > 0.45 && mean < 0.55);
    /* Of eight axes there is room for no other: element by element. */
    map = gd_vmap_begin(1, &x, NULL, &row);
    drawn = gd_uniform(context, GD_SHAPE(1, 1, 1, 1, 1, 1, 1, 50), 0, 1, GD_F32);
    drawn = gd_reshape(drawn, GD_SHAPE(50));
    assert_int_equal(gd_vmap_end(map, 1, &drawn, results), GD_OK);
    gd_tensor *equal = gd_eq(gd_select(results[0], 0, 0), gd_select(results[0], 0, 1));
    assert_true(gd_item(gd_sum(gd_cast(equal, GD_F32), GD_ALL_AXES, false)) < 10);
    results[2] = gd_reshape(results[0], GD_SHAPE(SIZE * 50));
    /* None, of no elements. */
    gd_tensor *none = gd_zeros(context, GD_SHAPE(0, 8), GD_F32);
    map = gd_vmap_begin(1, &none, NULL, &row);
    dropped = gd_dropout(row, 0.5);
    assert_int_equal(gd_vmap_end(map, 1, &dropped, results), GD_OK);
    assert_int_equal(gd_tensor_shape(results[0]).dim[0], 0);
    /* What is drawn next is not drawn again. */
    gd_tensor *next = gd_uniform(context, GD_SHAPE(SIZE * 50), 0, 1, GD_F32);
    assert_true(gd_item(gd_sum(gd_cast(gd_eq(next, results[2]), GD_F32), GD_ALL_AXES, false)) < 10);
    gd_close(context);
}

static void test_what_is_outside(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device());
    gd_tensor *x = random_tensor(context, GD_SHAPE(SIZE, 2)), *row, *result;
    gd_tensor *counter = gd_zeros(context, GD_SCALAR, GD_F64);
    /* Once, not for each element; a result that does not depend on the batch is repeated. */
    gd_vmap *map = gd_vmap_begin(1, &x, NULL, &row);
    assert_non_null(gd_assign(counter, gd_add_scalar(counter, 1)));
    assert_int_equal(gd_vmap_end(map, 1, &counter, &result), GD_OK);
    assert_true(gd_item(counter) == 1);
    assert_int_equal(gd_tensor_shape(result).dim[0], SIZE);

    map = gd_vmap_begin(1, &x, NULL, &row);
    assert_non_null(gd_assign(counter, gd_sum(row, GD_ALL_AXES, false)));
    assert_int_equal(gd_vmap_end(map, 1, &row, &result), GD_ERR_STATE);
    assert_null(result);
    assert_non_null(strstr(gd_error_message(), "changed"));
    gd_error_clear();
    assert_true(gd_item(counter) == 1);

    gd_tensor *weight = gd_set_requires_grad(gd_ones(context, GD_SHAPE(2), GD_F64), true);
    map = gd_vmap_begin(1, &x, NULL, &row);
    assert_int_equal(gd_backward(gd_dot(row, weight)), GD_OK);
    assert_int_equal(gd_vmap_end(map, 1, &row, &result), GD_ERR_STATE);
    gd_error_clear();

    /* gd_no_grad within it, and no history without a wish for one. */
    map = gd_vmap_begin(1, &x, NULL, &row);
    gd_no_grad_begin(context);
    gd_tensor *without = gd_mul(row, weight);
    gd_no_grad_end(context);
    gd_tensor *both[2] = { without, gd_mul(row, weight) }, *results[2];
    assert_int_equal(gd_vmap_end(map, 2, both, results), GD_OK);
    assert_false(gd_requires_grad(results[0]));
    assert_true(gd_requires_grad(results[1]));
    gd_close(context);
}

static void test_errors(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device());
    const int64_t before = gd_memory(context).live_tensors;
    gd_scope_begin(context);
    gd_tensor *x = random_tensor(context, GD_SHAPE(SIZE, 2)),
              *y = random_tensor(context, GD_SHAPE(4));
    gd_tensor *number = gd_scalar(context, 1, GD_F64), *place[2], *result;
    assert_null(gd_vmap_begin(2, (gd_tensor *[]){ x, y }, NULL, place));
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    gd_error_clear();
    assert_null(gd_vmap_begin(1, &number, NULL, place));
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    gd_error_clear();
    assert_null(gd_vmap_begin(1, &x, (bool[]){ false }, place));
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    gd_error_clear();
    assert_null(gd_vmap_begin(0, NULL, NULL, place));
    gd_error_clear();
    assert_int_equal(gd_vmap_end(NULL, 1, &x, &result), GD_ERR_INVALID);
    gd_error_clear();

    gd_vmap *map = gd_vmap_begin(1, &x, NULL, place);
    double value[2];
    assert_int_equal(gd_tensor_read(place[0], value, sizeof value), GD_ERR_STATE);
    gd_error_clear();
    gd_tensor *wrong = gd_matmul(place[0], y);
    assert_null(wrong);
    assert_int_equal(gd_vmap_end(map, 1, &wrong, &result),
                     GD_ERR_SHAPE); /* the error that is pending */
    gd_error_clear();
    assert_false(gd_is_tracing(context));

    map = gd_vmap_begin(1, &x, NULL, place);
    assert_non_null(gd_retain(place[0]));
    assert_int_equal(gd_vmap_abandon(map), GD_OK);
    assert_null(gd_relu(place[0])); /* the map is over */
    gd_error_clear();
    gd_release(place[0]);
    assert_int_equal(gd_vmap_abandon(NULL), GD_OK);

    /* Nobody in the batch. */
    gd_tensor *none = gd_zeros(context, GD_SHAPE(0, 2), GD_F64);
    map = gd_vmap_begin(1, &none, NULL, place);
    gd_tensor *sum = gd_sum(gd_square(place[0]), GD_ALL_AXES, false);
    assert_int_equal(gd_vmap_end(map, 1, &sum, &result), GD_OK);
    assert_int_equal(gd_tensor_shape(result).rank, 1);
    assert_int_equal(gd_tensor_count(result), 0);
    gd_scope_end(context);
    assert_int_equal(gd_memory(context).live_tensors, before);

    /* One that is open when its context ends goes with it. */
    x = random_tensor(context, GD_SHAPE(SIZE, 2));
    assert_non_null(gd_vmap_begin(1, &x, NULL, place));
    gd_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_rows, clear_error),
        cmocka_unit_test_setup(test_gradients_of_each, clear_error),
        cmocka_unit_test_setup(test_maps_nest, clear_error),
        cmocka_unit_test_setup(test_strided_inputs, clear_error),
        cmocka_unit_test_setup(test_random_numbers_are_of_each, clear_error),
        cmocka_unit_test_setup(test_what_is_outside, clear_error),
        cmocka_unit_test_setup(test_errors, clear_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
