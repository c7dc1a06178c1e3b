/* tests/test_op_modes.c: what must not change a result: compiling, the number of threads. Each row
 * of support/op_rows.h, with its gradients, is run eagerly and as a compiled function, which then
 * must allocate nothing; large operands are run with 1, 2 and 3 threads. All bit for bit. Last a
 * whole training step, with its effects. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/compile.h>

#include "support/effort.h"
#include "support/guard.h"
#include "support/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int clear_error(void **state)
{
    (void)state;
    gd_fail_allocations_after(-1);
    gd_error_clear();
    return 0;
}

/* ---- an op and its gradients as a function body ---- */

#define MAX_RESULTS (1 + OP_MAX_OPERANDS)

typedef struct body {
    const op_row *row;
    const int64_t *p;
    gd_context *context;
    bool differentiate;
    int count; /* of results */
    gd_tensor *result[MAX_RESULTS];
} body;

/* The op's result, then the gradient of its sum by each float operand. */
static gd_tensor *run_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    body *b = user;
    b->count = 0;
    gd_tensor *t = b->row->build(b->context, in, b->p);
    if (!t)
        return NULL;
    b->result[b->count++] = t;
    gd_tensor *inputs[OP_MAX_OPERANDS], *grads[OP_MAX_OPERANDS];
    int wanted = 0;
    for (int i = 0; i < b->row->operands; i++)
        if (gd_requires_grad(in[i]))
            inputs[wanted++] = in[i];
    if (!b->differentiate || wanted == 0)
        return t;
    /* A gradient that differs from element to element. */
    gd_tensor *seed = gd_add_scalar(gd_mul_scalar(t, 0.5), 0.25);
    if (gd_grad(1, &t, &seed, wanted, inputs, grads) != GD_OK)
        return NULL;
    for (int i = 0; i < wanted; i++)
        b->result[b->count++] = gd_output(grads[i]);
    return t;
}

static void read_all(const body *b, gd_tensor *const *from, reading *out, const char *what)
{
    for (int i = 0; i < b->count; i++)
        out[i] = reading_take(from[i], what);
}

static void compare_all(const body *b, reading *expected, reading *actual, const char *what)
{
    for (int i = 0; i < b->count; i++) {
        char text[240];
        snprintf(text, sizeof text, "%s, result %d", what, i);
        assert_same_bits(&expected[i], &actual[i], text);
        reading_free(&expected[i]);
        reading_free(&actual[i]);
    }
}

/* The operands as leaves in their layouts: views of leaves keep their strides, and are cut off from
 * their history. */
static void place_inputs(body *b, const operand *o, gd_tensor **in)
{
    for (int i = 0; i < b->row->operands; i++) {
        in[i] = operand_place(b->context, &o[i], false).view;
        if (b->differentiate && gd_dtype_is_float(o[i].dtype) &&
            b->row->operand[i].kind == OPERAND_VALUE)
            in[i] = gd_set_requires_grad(in[i], true);
        if (!in[i])
            fail_msg("%s: %s", b->row->name, gd_error_message());
    }
}

/* ---- eager against compiled ---- */

static void call_compiled(body *b, gd_function *f, gd_tensor *const *in, reading *out, bool again,
                          const char *what)
{
    if (again) /* the plan is there: whatever it needs it has */
        gd_fail_allocations_after(0);
    gd_tensor *t = gd_call(f, b->row->operands, in);
    int64_t asked = again ? gd_fail_allocations_after(-1) : 0;
    if (!t)
        fail_msg("%s: gd_call: %s", what, gd_error_message());
    if (asked)
        fail_msg("%s: a planned call asked for memory %lld times", what, (long long)asked);
    gd_tensor *results[MAX_RESULTS];
    for (int i = 0; i < b->count; i++)
        results[i] = gd_function_result(f, i);
    assert_ptr_equal(results[0], t);
    read_all(b, results, out, what);
}

static void check_compiled(gd_context *context, const op_row *row, int c, gd_dtype dtype,
                           int arrangement, numbers *n)
{
    body b = { .row = row, .p = row->cases[c].p, .context = context };
    b.differentiate = (row->flags & OP_DIFFERENTIABLE) && gd_dtype_is_float(dtype);
    operand o[OP_MAX_OPERANDS];
    for (int i = 0; i < row->operands; i++)
        o[i] = operand_make(row, &row->cases[c], i, dtype,
                            (layout_kind)((arrangement + i) % LAYOUT_COUNT), false, n);
    char what[160];
    snprintf(what, sizeof what, "%s %s, case %d, %s, on %s", row->name, gd_dtype_name(dtype), c,
             layout_names[arrangement], gd_context_device(context));

    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    reading eager[MAX_RESULTS], compiled[MAX_RESULTS];
    gd_scope_begin(context);
    place_inputs(&b, o, in);
    gd_function *f = gd_compile(context, run_body, &b, .detached = true);
    for (int round = 0; round < 2; round++) {
        gd_seed(context, 7 + (uint64_t)round);
        if (!run_body(&b, row->operands, in))
            fail_msg("%s: %s", what, gd_error_message());
        read_all(&b, b.result, eager, what);
        gd_seed(context, 7 + (uint64_t)round);
        call_compiled(&b, f, in, compiled, round > 0, what);
        compare_all(&b, eager, compiled, what);
    }
    assert_int_equal(gd_function_stats(f).traces, 1);
    gd_function_release(f);
    gd_scope_end(context);
    for (int i = 0; i < row->operands; i++)
        operand_free(&o[i]);
}

static void check_device(gd_context *context)
{
    static const gd_dtype dtypes[] = { GD_F32,  GD_F64, GD_I32, GD_BF16,
                                       GD_BOOL, GD_I16, GD_U64, GD_F16 };
    int number = 0;
    for (int r = 0; r < op_row_count; r++) {
        numbers n = numbers_of(op_rows[r], 41);
        for (int c = 0; c < op_rows[r]->case_count; c++)
            for (int d = 0; d < COUNT(dtypes); d++)
                if (op_row_takes(op_rows[r], dtypes[d]) &&
                    (test_tries(&number) || op_row_is_named(op_rows[r])))
                    check_compiled(context, op_rows[r], c, dtypes[d], (c + d) % LAYOUT_COUNT, &n);
    }
    assert_int_equal(watch_faults(), 0);
}

static void test_compiled_on_cpu(void **state)
{
    (void)state;
    gd_context *context = open_cpu(NULL, 2);
    check_device(context);
    close_context(context);
}

static void test_compiled_on_reference(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    gd_context *context = open_reference();
    check_device(context);
    close_context(context);
}

/* The rows of ops that only the compiler makes do lead to them. */
static void test_compiler_only_ops(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    static const gd_op_id ids[] = { GD_OP_linear, GD_OP_matmul_relu_grad, GD_OP_fused,
                                    GD_OP_extra_result };
    gd_context *context = gd_open(test_device(), .threads = 1);
    numbers n = { 43 };
    for (int k = 0; k < COUNT(ids); k++) {
        const op_row *row = op_rows[ids[k]];
        body b = { .row = row, .p = row->cases[0].p, .context = context };
        gd_tensor *in[OP_MAX_OPERANDS];
        gd_scope_begin(context);
        for (int i = 0; i < row->operands; i++) {
            operand o = operand_make(row, &row->cases[0], i, GD_F32, LAYOUT_CONTIGUOUS, false, &n);
            in[i] = operand_place(context, &o, false).view;
            operand_free(&o);
        }
        gd_function *f = gd_compile(context, run_body, &b, .detached = true);
        assert_non_null(gd_call(f, row->operands, in));
        char text[4096];
        gd_plan_format(f, text, sizeof text);
        /* Parts have no line of their own: their instructions are marked. */
        bool is_extra = ids[k] == GD_OP_extra_result;
        if (!strstr(text, is_extra ? "mul*" : row->name) ||
            gd_function_stats(f).kernels != 1 + is_extra)
            fail_msg("%s: the plan is\n%s", row->name, text);
        gd_function_release(f);
        gd_scope_end(context);
    }
    gd_close(context);
}

/* The op between two others. */
static gd_tensor *run_between(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    body *b = user;
    gd_tensor *x[OP_MAX_OPERANDS];
    for (int i = 0; i < b->row->operands; i++)
        x[i] = gd_where(gd_eq(in[i], in[i]), in[i], in[i]);
    gd_tensor *t = b->row->build(b->context, x, b->p);
    return gd_where(gd_ne(t, t), t, gd_maximum(t, t));
}

/* Every elementwise op, in every dtype it takes, is one kernel with what feeds it and what reads
 * it, on the day it has a row. */
static void test_elementwise_ops_fuse(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    gd_context *context = gd_open(test_device(), .threads = 1);
    numbers n = { 44 };
    int fused = 0;
    for (int r = 0; r < op_row_count; r++) {
        const op_row *row = op_rows[r];
        if (row->id == GD_OP_COUNT || !(gd_op_row(row->id)->flags & GD_OP_ELEMENTWISE))
            continue;
        for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++) {
            gd_tensor *in[OP_MAX_OPERANDS];
            body b = { .row = row, .p = row->cases[0].p, .context = context };
            gd_scope_begin(context);
            for (int i = 0; i < row->operands; i++) {
                operand o = operand_make(row, &row->cases[0], i, (gd_dtype)dtype, LAYOUT_CONTIGUOUS,
                                         false, &n);
                in[i] = operand_place(context, &o, false).view;
                operand_free(&o);
            }
            const bool is_taken = row->build(context, in, b.p);
            gd_error_clear();
            gd_function *f = gd_compile(context, run_between, &b, .detached = true);
            gd_status status = gd_function_prepare(f, row->operands, in);
            assert_int_equal(status == GD_OK, is_taken);
            gd_error_clear();
            if (is_taken && gd_function_stats(f).kernels != 1)
                fail_msg("%s of %s is not fused", row->name, gd_dtype_name((gd_dtype)dtype));
            fused += is_taken;
            gd_function_release(f);
            gd_scope_end(context);
        }
    }
    assert_true(fused >= 4 * GD_OP_ELEMENTWISE_COUNT);
    gd_close(context);
}

/* ---- threads ---- */

static void check_threads(gd_context *context, const op_row *row, const op_case *c, gd_dtype dtype,
                          numbers *n)
{
    body b = { .row = row, .p = c->p, .context = context };
    b.differentiate = (row->flags & OP_DIFFERENTIABLE) && gd_dtype_is_float(dtype);
    operand o[OP_MAX_OPERANDS];
    for (int i = 0; i < row->operands; i++)
        o[i] = operand_make(row, c, i, dtype, LAYOUT_CONTIGUOUS, false, n);
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    reading expected[MAX_RESULTS];
    gd_scope_begin(context);
    place_inputs(&b, o, in);
    for (int threads = 1; threads <= 3; threads += TEST_UNDER_TSAN ? 2 : 1) {
        char what[160];
        snprintf(what, sizeof what, "%s %s with %d threads", row->name, gd_dtype_name(dtype),
                 threads);
        assert_int_equal(gd_context_set_threads(context, threads), GD_OK);
        assert_int_equal(gd_context_threads(context), threads);
        gd_scope_begin(context);
        gd_seed(context, 3);
        reading actual[MAX_RESULTS];
        if (!run_body(&b, row->operands, in))
            fail_msg("%s: %s", what, gd_error_message());
        read_all(&b, b.result, threads == 1 ? expected : actual, what);
        for (int i = 0; i < b.count && threads > 1; i++) {
            assert_same_bits(&expected[i], &actual[i], what);
            reading_free(&actual[i]);
        }
        gd_scope_end(context);
    }
    for (int i = 0; i < b.count; i++)
        reading_free(&expected[i]);
    gd_scope_end(context);
    for (int i = 0; i < row->operands; i++)
        operand_free(&o[i]);
}

static void test_threads(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_I32 };
    gd_context *context = open_cpu(NULL, 1);
    int number = 0;
    for (int k = 0; k < op_large_count; k++)
        for (int r = 0; r < op_row_count; r++) {
            const op_large *l = &op_large_cases[k];
            if (!op_large_concerns(l, op_rows[r]))
                continue;
            if (!l->row && !test_tries_alike(&number)) /* one loop for all elementwise ops */
                continue;
            numbers n = numbers_of(op_rows[r], 51);
            const bool one_dtype = TEST_UNDER_TSAN || TEST_UNDER_MEMORY_CHECKS;
            for (int d = 0; d < (one_dtype ? 1 : COUNT(dtypes)); d++)
                if (op_row_takes(op_rows[r], dtypes[d]))
                    check_threads(context, op_rows[r], &l->operands, dtypes[d], &n);
        }
    assert_int_equal(watch_faults(), 0);
    close_context(context);
}

/* ---- a training step ---- */

enum { BATCH = 50, IN = 23, HIDDEN = 16, CLASSES = 10, STEPS = 5, PARAMETERS = 4 };

typedef struct trainee {
    gd_tensor *parameter[PARAMETERS]; /* [IN, HIDDEN], [HIDDEN], [HIDDEN, CLASSES], [CLASSES] */
} trainee;

/* Forward, with dropout so that the random stream is used, backward and the update p -= 0.1 g. */
static gd_tensor *train_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor **w = t->parameter;
    gd_tensor *hidden = gd_relu(gd_linear(in[0], w[0], w[1]));
    gd_tensor *kept =
        gd_gt(gd_uniform(gd_tensor_context(in[0]), GD_SHAPE(BATCH, HIDDEN), 0, 1, GD_F32),
              gd_scalar(gd_tensor_context(in[0]), 0.25, GD_F32));
    hidden = gd_mul(hidden, gd_cast(kept, GD_F32));
    gd_tensor *loss = gd_cross_entropy(gd_linear(hidden, w[2], w[3]), in[1]);
    gd_tensor *g[PARAMETERS];
    if (gd_grad(1, &loss, NULL, PARAMETERS, w, g) != GD_OK)
        return NULL;
    for (int i = 0; i < PARAMETERS; i++)
        if (!gd_assign(w[i], gd_sub(gd_detach(w[i]), gd_mul_scalar(g[i], 0.1))))
            return NULL;
    return loss;
}

/* Losses of STEPS steps, then every parameter, as bytes. */
static size_t train(gd_mode mode, int threads, unsigned char *out)
{
    static const gd_shape shapes[PARAMETERS] = { SHAPE(IN, HIDDEN), SHAPE(HIDDEN),
                                                 SHAPE(HIDDEN, CLASSES), SHAPE(CLASSES) };
    gd_context *context = gd_open(test_device(), .threads = threads, .seed = 77);
    assert_non_null(context);
    trainee t;
    for (int i = 0; i < PARAMETERS; i++)
        t.parameter[i] =
            gd_set_requires_grad(gd_uniform(context, shapes[i], -0.3, 0.3, GD_F32), true);
    gd_tensor *x = gd_normal(context, GD_SHAPE(BATCH, IN), 0, 1, GD_F32);
    gd_tensor *labels = gd_cast(gd_uniform(context, GD_SHAPE(BATCH), 0, CLASSES, GD_F32), GD_I64);
    gd_function *f = gd_compile(context, train_step, &t, .mode = mode);
    size_t length = 0;
    float first = 0, last = 0;
    for (int step = 0; step < STEPS; step++) {
        gd_tensor *loss = gd_call(f, 2, (gd_tensor *[]){ x, labels });
        if (!loss)
            fail_msg("training: %s", gd_error_message());
        last = (float)gd_item(loss);
        first = step ? first : last;
        memcpy(out + length, &last, sizeof last);
        length += sizeof last;
    }
    assert_true(last < first); /* it learns */
    for (int i = 0; i < PARAMETERS; i++) {
        size_t bytes = (size_t)gd_tensor_count(t.parameter[i]) * sizeof(float);
        assert_int_equal(gd_tensor_read(t.parameter[i], out + length, bytes), GD_OK);
        length += bytes;
    }
    gd_close(context);
    return length;
}

static void test_training_step(void **state)
{
    (void)state;
    static unsigned char expected[65536], actual[65536];
    size_t length = train(GD_MODE_EAGER, 1, expected);
    for (int threads = 1; threads <= 2; threads++) {
        assert_int_equal(train(GD_MODE_EAGER, threads, actual), length);
        assert_memory_equal(expected, actual, length);
        assert_int_equal(train(GD_MODE_COMPILED, threads, actual), length);
        assert_memory_equal(expected, actual, length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_compiled_on_cpu, clear_error),
        cmocka_unit_test_setup(test_compiled_on_reference, clear_error),
        cmocka_unit_test_setup(test_compiler_only_ops, clear_error),
        cmocka_unit_test_setup(test_elementwise_ops_fuse, clear_error),
        cmocka_unit_test_setup(test_threads, clear_error),
        cmocka_unit_test_setup(test_training_step, clear_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
