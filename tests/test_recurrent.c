/* tests/test_recurrent.c: recurrent layers against PyTorch's, and the kernels against the same
 * network made of simpler ops, on sizes that fill vectors and threads. Small sizes, finite
 * differences and the reference device: rows of support/op_rows_attention.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"
#include "support/sequence_golden.h"

#include "goldens/recurrent.h"

/* ---- against PyTorch: two layers, both directions, packed lengths ---- */

enum { LSTM, GRU, RNN };

static gd_tensor *run(gd_module *m, int kind, gd_tensor *x, gd_tensor *lengths, gd_tensor **h,
                      gd_tensor **c)
{
    if (kind == LSTM)
        return gd_nn_lstm(m, "net", x, 4, .layers = 2, .bidirectional = true, .lengths = lengths,
                          .last_hidden = h, .last_cell = c);
    if (kind == GRU)
        return gd_nn_gru(m, "net", x, 4, .layers = 2, .bidirectional = true, .lengths = lengths,
                         .last_hidden = h, .last_cell = c);
    return gd_nn_rnn(m, "net", x, 4, .layers = 2, .bidirectional = true, .lengths = lengths,
                     .last_hidden = h, .last_cell = c);
}

static void test_goldens(void **state)
{
    gd_context *context = *state;
    static const int64_t steps[3] = { 6, 2, 4 };
    const double *const outputs[3][3] = { { lstm_output0, lstm_output1, lstm_output2 },
                                          { gru_output0, gru_output1 },
                                          { rnn_output0, rnn_output1 } };
    const size_t counts[3] = { GOLDEN_COUNT(lstm_output0), GOLDEN_COUNT(lstm_output1),
                               GOLDEN_COUNT(lstm_output2) };
    const double *const gradients[3] = { lstm_gradient0, gru_gradient0, rnn_gradient0 };
    const parameter_golden *const sums[3] = { lstm_parameters, gru_parameters, rnn_parameters };
    for (int kind = LSTM; kind <= RNN; kind++) {
        gd_scope_begin(context);
        gd_module *m = gd_module_create(context);
        gd_tensor *x = golden_tensor(context, "x", GD_SHAPE(3, 6, 5));
        gd_tensor *lengths = gd_from_host(context, GD_SHAPE(3), GD_I64, steps), *y[3];
        if (!run(m, kind, x, lengths, &y[1], &y[2]))
            fail_msg("%s", gd_error_message());
        golden_parameters(m);
        y[0] = run(m, kind, x, lengths, &y[1], &y[2]);
        golden_check(m, kind == LSTM ? 3 : 2, y, outputs[kind], counts, 1, &x, &gradients[kind],
                     sums[kind], (int)GOLDEN_COUNT(lstm_parameters));
        gd_module_release(m);
        gd_scope_end(context);
    }
}

/* ---- kernels against simpler ops ---- */

enum { BATCH = 19, TIME = 9, WIDTH = 37 };

typedef struct answer {
    float *value[6]; /* h, last c or h again, gradients of z, weight, bias, h0 */
    size_t count[6];
} answer;

static answer solve(gd_context *context, gd_cell cell, bool reverse, bool lengths, bool plain)
{
    int64_t wide = WIDTH * (cell == GD_CELL_LSTM ? 4 : cell == GD_CELL_GRU ? 3 : 1);
    gd_scope_begin(context);
    gd_seed(context, 2);
    gd_tensor *leaf[4] = { gd_normal(context, GD_SHAPE(BATCH, TIME, wide), 0, 1, GD_F32),
                           gd_normal(context, GD_SHAPE(WIDTH, wide), 0, 0.2, GD_F32),
                           gd_normal(context, GD_SHAPE(wide), 0, 1, GD_F32),
                           gd_normal(context, GD_SHAPE(BATCH, WIDTH), 0, 1, GD_F32) };
    gd_tensor *steps = gd_add_scalar(
        gd_mod(gd_arange(context, 0, BATCH, 1, GD_I64), gd_scalar(context, TIME, GD_I64)), 1);
    for (int i = 0; i < 4; i++)
        leaf[i] = gd_set_requires_grad(gd_detach(leaf[i]), true);
    gd_tensor *c = NULL, *out[6], *seeds[2];
    out[0] =
        gd_recurrent(leaf[0], leaf[1], leaf[2], cell, .first_hidden = leaf[3], .reverse = reverse,
                     .lengths = lengths ? steps : NULL, .plain = plain, .last_cell = &c);
    out[1] = c ? c : out[0];
    if (!out[0])
        fail_msg("%s", gd_error_message());
    seeds[0] = golden_weights(out[0]);
    seeds[1] = golden_weights(out[1]);
    assert_int_equal(gd_grad(2, out, seeds, 4, leaf, out + 2), GD_OK);
    answer a;
    for (int i = 0; i < 6; i++) {
        a.count[i] = (size_t)gd_tensor_count(out[i]);
        a.value[i] = malloc(a.count[i] * sizeof(float));
        assert_int_equal(gd_tensor_read(out[i], a.value[i], a.count[i] * sizeof(float)), GD_OK);
    }
    gd_scope_end(context);
    return a;
}

static void answer_free(answer *a)
{
    for (int i = 0; i < 6; i++)
        free(a->value[i]);
}

/* The sums have some hundred terms of size 1. */
static void test_kernels_equal_plain(void **state)
{
    gd_context *context = *state;
    for (int k = 0; k < 16; k++) {
        gd_cell cell = (gd_cell)(k / 4);
        answer fast = solve(context, cell, k & 1, k & 2, false);
        answer plain = solve(context, cell, k & 1, k & 2, true);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(fast.count[i], plain.count[i]);
            for (size_t j = 0; j < plain.count[i]; j++) {
                float a = fast.value[i][j], b = plain.value[i][j];
                if (!(fabsf(a - b) <= 2e-5f * (1 + fabsf(b))))
                    fail_msg("cell %d, variant %d, value %d, element %zu: %.9g, plain %.9g",
                             (int)cell, k & 3, i, j, (double)a, (double)b);
            }
        }
        answer_free(&fast);
        answer_free(&plain);
    }
}

static void test_threads_agree(void **state)
{
    gd_context *context = *state;
    for (int k = 0; k < 4; k++) {
        answer one = solve(context, (gd_cell)k, false, true, false);
        for (int threads = 2; threads <= 3; threads++) {
            gd_context_set_threads(context, threads);
            answer more = solve(context, (gd_cell)k, false, true, false);
            for (int i = 0; i < 6; i++)
                assert_memory_equal(one.value[i], more.value[i], one.count[i] * sizeof(float));
            answer_free(&more);
        }
        gd_context_set_threads(context, 1);
        answer_free(&one);
    }
}

/* A sequence in two parts, with the state handed over, gives what it gives in one. */
static void test_state_is_handed_over(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    gd_module *m = gd_module_create(context, .seed = 1);
    gd_tensor *x = gd_normal(context, GD_SHAPE(2, 7, 3), 0, 1, GD_F32), *h, *c;
    float all[2 * 7 * 5], part[2 * 4 * 5];
    gd_tensor *y = gd_nn_lstm(m, "lstm", x, 5, .layers = 2);
    assert_int_equal(gd_tensor_read(y, all, sizeof all), GD_OK);
    assert_non_null(gd_nn_lstm(m, "lstm", gd_slice(x, 1, 0, 3, 1), 5, .layers = 2,
                               .last_hidden = &h, .last_cell = &c));
    y = gd_nn_lstm(m, "lstm", gd_slice(x, 1, 3, 7, 1), 5, .layers = 2, .first_hidden = h,
                   .first_cell = c);
    assert_int_equal(gd_tensor_read(y, part, sizeof part), GD_OK);
    for (int row = 0; row < 2; row++)
        assert_memory_equal(part + row * 20, all + row * 35 + 15, 20 * sizeof(float));
    gd_module_release(m);
    gd_scope_end(context);
}

static void test_refusals(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    gd_module *m = gd_module_create(context);
    gd_tensor *x = gd_zeros(context, GD_SHAPE(2, 3, 4), GD_F32);
    static const gd_status expected[] = { GD_ERR_INVALID, GD_ERR_INVALID, GD_ERR_INVALID,
                                          GD_ERR_SHAPE,   GD_ERR_SHAPE,   GD_ERR_SHAPE };
    for (int i = 0; i < 6; i++) {
        gd_tensor *bad = i == 3   ? gd_nn_gru(m, "a", gd_select(x, 0, 0), 5)
                         : i == 4 ? gd_nn_gru(m, "a", x, 5, .first_hidden = x)
                         : i == 5 ? gd_nn_lstm(m, "a", x, 5, .lengths = gd_select(x, 0, 0))
                         : i == 0 ? gd_nn_lstm(m, "", x, 5)
                         : i == 1 ? gd_nn_lstm(m, "a", x, 0)
                                  : gd_nn_lstm(m, "a", x, 5, .layers = 65);
        assert_null(bad);
        assert_int_equal(gd_error_code(), expected[i]);
        gd_error_clear();
    }
    assert_null(gd_nn_rnn(m, "a", NULL, 5));
    assert_null(gd_recurrent(NULL, x, x, GD_CELL_RNN));
    assert_int_equal(gd_error_code(), GD_OK);
    gd_module_release(m);
    gd_scope_end(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),       cmocka_unit_test(test_kernels_equal_plain),
        cmocka_unit_test(test_threads_agree), cmocka_unit_test(test_state_is_handed_over),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
