/* tests/test_bf16_recurrent.c: recurrent networks whose weight is bfloat16, on every instruction set and
 * extension that this machine has. Of whole numbers, where nothing is rounded, they are the reference
 * back end's bit for bit; of others neither the mode nor the number of threads changes a bit, and they
 * are as near to the reference, which does not round the state, as bfloat16 is fine.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "support/bf16_targets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct problem {
    gd_cell cell;
    int64_t batch, time, width;
    bool reverse, lengths, whole;
} problem;

static int64_t gates_of(gd_cell cell)
{
    return cell == GD_CELL_LSTM ? 4 : cell == GD_CELL_GRU ? 3 : 1;
}

enum { Z, U, B, H0, C0, G, LENGTHS, OPERANDS };

/* Between -scale and scale; whole: -1, 0 or 1, of which all but one in `every` are 0. */
static gd_tensor *numbers_tensor(gd_context *gd, gd_shape shape, const problem *p, double scale,
                                 int every, numbers *n)
{
    const int64_t count = shape_count(shape);
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t word = numbers_next(n);
        x[i] = !p->whole                ? (float)numbers_uniform(n, -scale, scale)
               : word % (uint64_t)every ? 0.0f
                                        : (float)(int)(word / 64 % 3) - 1;
    }
    gd_tensor *t = gd_from_host(gd, shape, GD_F32, x);
    assert_non_null(t);
    free(x);
    return t;
}

static void make_operands(gd_context *gd, const problem *p, uint64_t seed, gd_tensor *in[OPERANDS])
{
    numbers n = { seed };
    const int64_t wide = gates_of(p->cell) * p->width;
    const gd_shape state = GD_SHAPE(p->batch, p->width);
    in[Z] = numbers_tensor(gd, GD_SHAPE(p->batch, p->time, wide), p, 1, 1, &n);
    in[U] = gd_cast(numbers_tensor(gd, GD_SHAPE(p->width, wide), p, 0.3, 8, &n), GD_BF16);
    in[Z] = gd_cast(in[Z], GD_BF16);
    in[B] = numbers_tensor(gd, GD_SHAPE(wide), p, 0.5, 1, &n);
    in[H0] = numbers_tensor(gd, state, p, 1, 1, &n);
    in[C0] = numbers_tensor(gd, state, p, 1, 1, &n);
    in[G] =
        gd_cast(numbers_tensor(gd, GD_SHAPE(p->batch, p->time, p->width), p, 1, 16, &n), GD_BF16);
    int64_t *lengths = malloc((size_t)p->batch * sizeof *lengths);
    assert_non_null(lengths);
    for (int64_t i = 0; i < p->batch; i++)
        lengths[i] = i % (p->time + 1);
    in[LENGTHS] = gd_from_host(gd, GD_SHAPE(p->batch), GD_I64, lengths);
    free(lengths);
    for (int i = Z; i <= C0; i++)
        assert_non_null(gd_set_requires_grad(in[i], true));
}

/* All h, and the gradients by all operands, in f32, end to end. */
static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const problem *p = user;
    gd_context *gd = gd_tensor_context(in[Z]);
    const bool lstm = p->cell == GD_CELL_LSTM;
    if (gd_autocast_begin(gd, GD_BF16) != GD_OK)
        return NULL;
    gd_tensor *h = gd_recurrent(in[Z], in[U], in[B], p->cell, .first_hidden = in[H0],
                                .first_cell = lstm ? in[C0] : NULL, .reverse = p->reverse,
                                .lengths = p->lengths ? in[LENGTHS] : NULL);
    if (gd_autocast_end(gd) != GD_OK || !h || gd_tensor_dtype(h) != GD_BF16)
        return NULL;
    const int many = lstm ? 5 : 4;
    gd_tensor *d[5], *parts[6] = { h };
    if (gd_grad(1, &h, &in[G], many, in, d) != GD_OK)
        return NULL;
    for (int i = 0; i < many; i++)
        parts[1 + i] = d[i];
    for (int i = 0; i < 1 + many; i++)
        parts[i] = gd_reshape(gd_cast(parts[i], GD_F32), GD_SHAPE(-1));
    return gd_concat(1 + many, parts, 0);
}

/* text: room for the plan, which says what the kernels' operands are, or NULL. */
static reading run(gd_context *gd, const problem *p, gd_mode mode, char *text, size_t size)
{
    gd_tensor *in[OPERANDS];
    gd_scope_begin(gd);
    make_operands(gd, p, 11, in);
    gd_function *f = gd_compile(gd, step, (void *)p, .mode = mode, .detached = true);
    assert_non_null(f);
    gd_tensor *result = gd_call(f, OPERANDS, in);
    if (!result)
        fail_msg("%s", gd_error_message());
    reading r = reading_take(result, "recurrent");
    if (text)
        assert_true(gd_plan_explain(f, text, size) < size);
    gd_function_release(f);
    gd_scope_end(gd);
    return r;
}

static const problem problems[] = {
    { GD_CELL_RNN, 40, 5, 33, false, false, false },
    { GD_CELL_RNN_RELU, 33, 4, 17, true, true, false },
    { GD_CELL_LSTM, 40, 6, 33, false, true, false },
    { GD_CELL_LSTM, 70, 3, 150, true, false, false }, /* more rows than scratch holds */
    { GD_CELL_LSTM, 32, 2, 500, false, false, false },
    { GD_CELL_GRU, 37, 6, 40, false, true, false },
    { GD_CELL_GRU, 64, 3, 65, true, false, false },
    { GD_CELL_LSTM, 31, 3, 20, false, false, false }, /* widened: too few sequences */
    { GD_CELL_RNN_RELU, 40, 4, 33, false, false, true },
    { GD_CELL_RNN_RELU, 65, 3, 64, true, true, true },
};

/* Whether an operand of the kernel in the plan is bf16. */
static bool reads_bf16(const char *plan, const char *kernel)
{
    const char *line = strstr(plan, kernel);
    assert_non_null(line);
    const char *half = strstr(line, " bf16["), *end = strchr(line, '\n');
    return half && end && half < end;
}

static void test_one_machine_one_result(void **state)
{
    (void)state;
    static char text[1 << 16];
    char what[100];
    for (size_t i = 0; i < COUNT(problems); i++) {
        const problem *p = &problems[i];
        if (TEST_UNDER_TSAN && !getenv("GRADUS_TEST_ALL") && i % 3 != 0)
            continue; /* threads share rows alike in all of them */
        gd_context *reference = open_reference();
        reading expected = run(reference, p, GD_MODE_EAGER, NULL, 0);
        close_context(reference);
        for (size_t k = 0; k < COUNT(targets); k++) {
            if (test_is_slow() && (i + k) % 2 != 0)
                continue;
            gd_context *one = open_target(&targets[k], 1), *three = open_target(&targets[k], 3);
            if (!one)
                continue;
            snprintf(what, sizeof what, "%s, problem %d", targets[k].name, (int)i);
            reading first = run(one, p, GD_MODE_EAGER, NULL, 0);
            gd_context *const contexts[] = { one, one, three, three };
            static const gd_mode modes[] = { GD_MODE_COMPILED, GD_MODE_LAZY, GD_MODE_EAGER,
                                             GD_MODE_COMPILED };
            for (int m = test_is_slow() ? 2 : 0; m < 4; m++) {
                char *plan = modes[m] == GD_MODE_COMPILED ? text : NULL;
                reading other = run(contexts[m], p, modes[m], plan, sizeof text);
                assert_same_bits(&first, &other, what);
                reading_free(&other);
            }
            const bool pays = targets[k].extension >= 0 && p->batch >= 32;
            assert_int_equal(reads_bf16(text, "recurrent "), pays);
            assert_int_equal(reads_bf16(text, "recurrent_grad "), pays);
            if (p->whole)
                assert_same_bits(&expected, &first, what);
            double most = 0;
            for (int64_t n = 0; n < first.count; n++)
                most = fmax(most, fabs(reading_value(&expected, n)));
            for (int64_t n = 0; n < first.count; n++)
                if (!(fabs(reading_value(&first, n) - reading_value(&expected, n)) < most / 64))
                    fail_msg("%s: number %lld is %g, not %g", what, (long long)n,
                             reading_value(&first, n), reading_value(&expected, n));
            reading_free(&first);
            close_context(one);
            close_context(three);
        }
        reading_free(&expected);
    }
}

/* A weight of bf16 beside f32 is the kernel's; any other pair is an error. */
static void test_dtypes(void **state)
{
    (void)state;
    gd_context *gd = open_reference();
    gd_tensor *z = gd_zeros(gd, GD_SHAPE(2, 3, 4), GD_F64),
              *u = gd_zeros(gd, GD_SHAPE(4, 4), GD_BF16);
    gd_tensor *b = gd_zeros(gd, GD_SHAPE(4), GD_BF16);
    gd_tensor *h = gd_recurrent(z, u, b, GD_CELL_RNN);
    assert_non_null(h);
    assert_int_equal(gd_tensor_dtype(h), GD_F64);
    h = gd_recurrent(gd_cast(z, GD_F32), u, b, GD_CELL_RNN);
    assert_int_equal(gd_tensor_dtype(h), GD_F32);
    h = gd_recurrent(gd_cast(z, GD_BF16), u, b, GD_CELL_RNN);
    assert_int_equal(gd_tensor_dtype(h), GD_BF16);
    h = gd_recurrent(gd_cast(z, GD_F16), u, b, GD_CELL_RNN);
    assert_int_equal(gd_tensor_dtype(h), GD_F32);
    close_context(gd);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_one_machine_one_result),
                                        cmocka_unit_test(test_dtypes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
