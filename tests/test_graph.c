/* tests/test_graph.c: lifetimes, scopes, gradients through graphs, the verifier and printing. What
 * each op computes is tests/test_ops.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gradus/autograd.h>

#include "support/effort.h"
#include "support/guard.h"
#include <gradus/compile.h>
#include <gradus/ops.h>

#include "backend/backend.h"
#include "graph/context.h"
#include "graph/node.h"

static int open_context(void **state)
{
    gd_error_clear();
    *state = gd_open(test_device(), .threads = 1, .seed = 3);
    return *state ? 0 : -1;
}

static int close_context(void **state)
{
    gd_close(*state);
    gd_error_clear();
    return 0;
}

static void assert_error(gd_status status, const char *part)
{
    assert_int_equal(gd_error_code(), status);
    if (!strstr(gd_error_message(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, gd_error_message());
    gd_error_clear();
}

static gd_tensor *vector(gd_context *gd, const double *values, int64_t n)
{
    return gd_from_host(gd, GD_SHAPE(n), GD_F64, values);
}

static gd_tensor *leaf(gd_context *gd, double value)
{
    return gd_set_requires_grad(gd_scalar(gd, value, GD_F64), true);
}

/* ---- lifetimes ---- */

static void scopes_release_their_temporaries(void **state)
{
    gd_context *gd = *state;
    int64_t before = gd_memory(gd).live_tensors;
    size_t used = gd_memory(gd).in_use;
    assert_int_equal(gd_scope_begin(gd), GD_OK);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(100, 100), GD_F32);
    gd_tensor *kept = gd_keep(gd_add(x, x));
    gd_tensor *held = gd_retain(gd_mul(x, x));
    assert_int_equal(gd_scope_end(gd), GD_OK);
    assert_int_equal(gd_memory(gd).live_tensors, before + 2);
    assert_true(gd_item(gd_sum(kept, GD_ALL_AXES, false)) == 20000.0);
    assert_true(gd_item(gd_sum(held, GD_ALL_AXES, false)) == 10000.0);
    gd_release(held);
    assert_true(gd_memory(gd).in_use > used); /* `kept` and the sums belong to the root scope */
    assert_int_equal(gd_scope_end(gd), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "no scope is open");
}

static void a_temporary_may_be_released_by_hand_after_its_scope(void **state)
{
    gd_context *gd = *state;
    int64_t before = gd_memory(gd).live_tensors;
    gd_tensor *view;
    assert_int_equal(gd_scope_begin(gd), GD_OK);
    gd_tensor *x = gd_arange(gd, 0, 6, 1, GD_F32);
    view = gd_retain(gd_slice(x, 0, 2, 5, 1));
    assert_int_equal(gd_scope_end(gd), GD_OK);
    float values[3];
    assert_int_equal(gd_tensor_read(view, values, sizeof values), GD_OK);
    assert_true(values[0] == 2 && values[1] == 3 && values[2] == 4);
    gd_release(view);
    assert_int_equal(gd_memory(gd).live_tensors, before);
}

/* A chain of ten million nodes (where tests are slow of fewer), each holding the one before, is built, differentiated, and released
 * without recursion. */
static void a_chain_of_ten_million_nodes_is_released(void **state)
{
    const int length = test_is_slow() ? 200 * 1000 : 10 * 1000 * 1000;
    gd_context *gd = *state;
    int64_t before = gd_memory(gd).live_tensors;
    assert_int_equal(gd_scope_begin(gd), GD_OK);
    gd_tensor *x = gd_retain(leaf(gd, 1.0)), *one = gd_retain(gd_scalar(gd, 1.0, GD_F64));
    gd_tensor *t = gd_retain(x);
    assert_int_equal(gd_scope_end(gd), GD_OK);
    for (int i = 0; i < length; i++) {
        assert_int_equal(gd_scope_begin(gd), GD_OK);
        gd_tensor *next = gd_retain(gd_add(t, one));
        assert_non_null(next);
        gd_release(t);
        t = next;
        assert_int_equal(gd_scope_end(gd), GD_OK);
    }
    assert_int_equal(gd_memory(gd).live_tensors, before + 2 + length);
    assert_true(gd_item(t) == 1.0 + length);
    gd_release(t);
    gd_release(x);
    gd_release(one);
    assert_int_equal(gd_memory(gd).live_tensors, before);
}

static void a_long_chain_is_differentiated(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd, 1.0), *t = x;
    for (int i = 0; i < 100 * 1000; i++)
        t = gd_add(t, x);
    assert_int_equal(gd_backward(t), GD_OK);
    assert_true(gd_item(gd_gradient(x)) == 100001.0);
}

/* ---- gradients ---- */

static void backward_accumulates(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd, 3.0);
    assert_null(gd_gradient(x));
    assert_int_equal(gd_backward(gd_square(x)), GD_OK);
    assert_true(gd_item(gd_gradient(x)) == 6.0);
    assert_int_equal(gd_backward(gd_square(x)), GD_OK);
    assert_true(gd_item(gd_gradient(x)) == 12.0);
    assert_int_equal(gd_zero_grad(x), GD_OK);
    assert_true(gd_item(gd_gradient(x)) == 0.0);
}

static void a_shared_operand_gets_every_share(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd, 2.0);
    gd_tensor *y = gd_mul(x, x), *z = gd_add(gd_mul(y, y), gd_mul(y, x)); /* x^4 + x^3 */
    gd_tensor *g;
    assert_int_equal(gd_grad(1, &z, NULL, 1, &x, &g), GD_OK);
    assert_true(gd_item(g) == 4 * 8.0 + 3 * 4.0);
}

static void gradients_can_be_differentiated_again(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd, 2.0), *y = gd_mul(gd_mul(x, x), gd_mul(x, x)); /* x^4 */
    double expected[4] = { 32.0, 48.0, 48.0, 24.0 };
    for (int order = 0; order < 4; order++) {
        gd_tensor *g;
        assert_int_equal(gd_grad(1, &y, NULL, 1, &x, &g), GD_OK);
        assert_true(gd_item(g) == expected[order]);
        y = g;
    }
}

static void grad_takes_seeds_and_inner_tensors(void **state)
{
    gd_context *gd = *state;
    const double values[3] = { 1.0, 2.0, 3.0 }, weights[3] = { 10.0, 0.0, -1.0 };
    gd_tensor *x = gd_set_requires_grad(vector(gd, values, 3), true);
    gd_tensor *inner = gd_square(x), *y = gd_mul_scalar(inner, 3.0), *seed = vector(gd, weights, 3);
    gd_tensor *unrelated = leaf(gd, 1.0);
    gd_tensor *inputs[3] = { x, inner, unrelated }, *g[3];
    assert_int_equal(gd_grad(1, &y, &seed, 3, inputs, g), GD_OK);
    double got[3];
    assert_int_equal(gd_tensor_read(g[0], got, sizeof got), GD_OK);
    assert_true(got[0] == 60.0 && got[1] == 0.0 && got[2] == -18.0);
    assert_int_equal(gd_tensor_read(g[1], got, sizeof got), GD_OK);
    assert_true(got[0] == 30.0 && got[1] == 0.0 && got[2] == -3.0);
    assert_true(gd_item(g[2]) == 0.0);

    gd_tensor *wrong = gd_ones(gd, GD_SHAPE(2), GD_F64);
    assert_int_equal(gd_grad(1, &y, &wrong, 1, inputs, g), GD_ERR_SHAPE);
    assert_error(GD_ERR_SHAPE, "a seed is [2]");
}

static void detach_and_no_grad_cut_history(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd, 3.0);
    gd_tensor *y = gd_mul(x, gd_detach(x));
    gd_tensor *g;
    assert_int_equal(gd_grad(1, &y, NULL, 1, &x, &g), GD_OK);
    assert_true(gd_item(g) == 3.0);
    assert_int_equal(gd_no_grad_begin(gd), GD_OK);
    gd_tensor *z = gd_square(x);
    assert_int_equal(gd_no_grad_end(gd), GD_OK);
    assert_false(gd_requires_grad(z));
    assert_int_equal(gd_backward(z), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "depends on no tensor");
    assert_int_equal(gd_no_grad_end(gd), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "without gd_no_grad_begin");
}

static void an_overwritten_value_is_caught(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = leaf(gd, 3.0), *w = leaf(gd, 5.0);
    gd_tensor *y = gd_mul(x, w);
    assert_non_null(gd_assign(w, gd_scalar(gd, 7.0, GD_F64)));
    assert_int_equal(gd_backward(y), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "overwritten");
    /* A derivative that does not need the value does not mind. */
    gd_tensor *z = gd_add(x, w);
    assert_non_null(gd_assign(w, gd_scalar(gd, 9.0, GD_F64)));
    assert_int_equal(gd_backward(z), GD_OK);
    assert_true(gd_item(gd_gradient(x)) == 1.0);
    const double eleven = 11.0;
    gd_tensor *v = gd_square(w);
    assert_int_equal(gd_tensor_write(w, &eleven, sizeof eleven), GD_OK);
    assert_int_equal(gd_backward(v), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "overwritten");
    v = gd_square(w);
    if (gd_context_has_host_memory(gd))
        *(double *)gd_tensor_data(w) = 13.0;
    assert_int_equal(gd_tensor_modified(w), GD_OK);
    assert_int_equal(gd_backward(v), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "overwritten");
    assert_int_equal(gd_backward(gd_square(w)), GD_OK);
    assert_int_equal(gd_tensor_modified(NULL), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "NULL");
}

static void only_float_leaves_require_gradients(void **state)
{
    gd_context *gd = *state;
    assert_null(gd_set_requires_grad(gd_ones(gd, GD_SHAPE(2), GD_I32), true));
    assert_error(GD_ERR_DTYPE, "float");
    gd_tensor *y = gd_square(leaf(gd, 1.0));
    assert_null(gd_set_requires_grad(y, false));
    assert_error(GD_ERR_STATE, "result of square");
}

/* ---- effects ---- */

static void assign_changes_the_storage_views_share(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_arange(gd, 0, 4, 1, GD_F32), *view = gd_flip(x, GD_AXES(0));
    assert_ptr_equal(gd_assign(x, gd_scalar(gd, 2.0, GD_I32)), x); /* broadcast and converted */
    float values[4];
    assert_int_equal(gd_tensor_read(view, values, sizeof values), GD_OK);
    assert_true(values[0] == 2 && values[3] == 2);
    /* From a view of itself: as if the value had been copied first. */
    gd_tensor *y = gd_arange(gd, 0, 4, 1, GD_F32);
    assert_non_null(gd_assign(y, gd_flip(y, GD_AXES(0))));
    assert_int_equal(gd_tensor_read(y, values, sizeof values), GD_OK);
    assert_true(values[0] == 3 && values[1] == 2 && values[2] == 1 && values[3] == 0);
    assert_null(gd_assign(y, gd_ones(gd, GD_SHAPE(3), GD_F32)));
    assert_error(GD_ERR_SHAPE, "stretch");
    gd_tensor *p = leaf(gd, 1.0);
    assert_null(gd_assign(gd_square(p), p));
    assert_error(GD_ERR_STATE, "part of a graph");
}

/* A device that has not the kernel says so in place, too, and changes nothing. */
static void ops_in_place_ask_for_kernels(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32), *two = gd_full(gd, GD_SHAPE(3), 2, GD_F32);
    gd->device->kernel[GD_OP_exp] = NULL;
    assert_null(gd_exp_(x));
    char words[96];
    snprintf(words, sizeof words, "gd_exp_: device %s has no kernel for it", test_device());
    assert_error(GD_ERR_UNSUPPORTED, words);
    gd->device->kernel[GD_OP_assign] = NULL;
    assert_null(gd_assign(x, two));
    snprintf(words, sizeof words, "gd_assign: device %s has no kernel for it", test_device());
    assert_error(GD_ERR_UNSUPPORTED, words);
    assert_true(gd_item(gd_sum(x, GD_ALL_AXES, false)) == 3);
}

static void strided_tensors_are_read_and_written(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_arange(gd, 0, 6, 1, GD_I32),
              *t = gd_transpose(gd_reshape(x, GD_SHAPE(2, 3)), 0, 1);
    int32_t values[6], expected[6] = { 0, 3, 1, 4, 2, 5 };
    assert_int_equal(gd_tensor_read(t, values, sizeof values), GD_OK);
    assert_memory_equal(values, expected, sizeof values);
    const int32_t fresh[6] = { 10, 11, 12, 13, 14, 15 };
    assert_int_equal(gd_tensor_write(t, fresh, sizeof fresh), GD_OK);
    int32_t whole[6], whole_expected[6] = { 10, 12, 14, 11, 13, 15 };
    assert_int_equal(gd_tensor_read(x, whole, sizeof whole), GD_OK);
    assert_memory_equal(whole, whole_expected, sizeof whole);
    assert_int_equal(gd_tensor_read(t, values, 5), GD_ERR_SHAPE);
    assert_error(GD_ERR_SHAPE, "5 bytes given");
}

static void host_memory_is_used_in_place(void **state)
{
    gd_context *gd = *state;
    if (!gd_context_has_host_memory(gd))
        skip(); /* tests/test_device.c has the error */
    float *memory = calloc(8, sizeof *memory);
    assert_int_equal(gd_scope_begin(gd), GD_OK);
    gd_tensor *x = gd_from_host_in_place(gd, GD_SHAPE(2, 4), GD_F32, memory, free, memory);
    assert_ptr_equal(gd_tensor_data(x), memory);
    memory[5] = 4.0f;
    assert_true(gd_item(gd_sum(x, GD_ALL_AXES, false)) == 4.0);
    assert_int_equal(gd_scope_end(gd), GD_OK); /* frees the memory: ASan would tell */
    assert_null(gd_from_host_in_place(gd, GD_SHAPE(1), GD_F32, (char *)&gd + 1, NULL, NULL));
    assert_error(GD_ERR_INVALID, "aligned");
}

/* ---- looking ---- */

/* Gradients that meet are added in the place of the first, where nobody else has it. */
static void gradients_are_added_in_place_only_where_nobody_sees_it(void **state)
{
    gd_context *gd = *state;
    gd_tensor *leaves[2], *g[2];
    for (int i = 0; i < 2; i++)
        leaves[i] = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(64, 64), GD_F32), true);
    gd_tensor *x = leaves[0], *both = gd_add(x, leaves[1]); /* one gradient for x and y */
    gd_tensor *seed = gd_ones(gd, GD_SHAPE(64, 64), GD_F32);
    gd_tensor *y = gd_add(gd_add(gd_mul_scalar(x, 2), gd_mul_scalar(x, 3)), both);
    y = gd_add(y, gd_mul_scalar(x, 4));
    size_t before = gd_memory(gd).in_use;
    gd_memory_reset_peak(gd);
    assert_int_equal(gd_grad(1, &y, &seed, 2, leaves, g), GD_OK);
    /* At most the sum, what is added to it, and the numbers 2, 3, 4 with what holds them. */
    assert_in_range(gd_memory(gd).peak - before, 2 * 64 * 64 * 4, 2 * 64 * 64 * 4 + 2048);
    const double expected[3] = { 10, 1, 1 };
    for (int i = 0; i < 3; i++)
        assert_true(gd_item(gd_mean(i < 2 ? g[i] : seed, GD_ALL_AXES, false)) == expected[i]);
}

/* A matrix that is used from its other side, such as a tied embedding, gets its gradient in the
 * order of its own memory. */
static void gradients_lie_as_what_they_belong_to(void **state)
{
    gd_context *gd = *state;
    static const float numbers[6] = { 0, 1, 2, 3, 4, 5 };
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(2, 3), GD_F32, numbers);
    gd_tensor *w = gd_ones(gd, GD_SHAPE(4, 3), GD_F32);
    gd_tensor *leaves[2] = { gd_set_requires_grad(x, true), gd_set_requires_grad(w, true) };
    gd_tensor *y = gd_matmul(leaves[0], gd_transpose(leaves[1], 0, 1)), *g[2];
    assert_int_equal(gd_grad(1, &y, NULL, 2, leaves, g), GD_OK);
    assert_true(gd_tensor_is_contiguous(g[0]) && gd_tensor_is_contiguous(g[1]));
    float values[12];
    assert_int_equal(gd_tensor_read(g[1], values, sizeof values), GD_OK);
    for (int i = 0; i < 12; i++)
        assert_true(values[i] == (float)(3 + 2 * (i % 3))); /* sums of the columns of x */
}

static void graphs_are_printed(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_set_name(leaf(gd, 1.0), "x"), *y = gd_relu(gd_add(x, x));
    char text[512];
    size_t length = gd_graph_format(y, text, sizeof text);
    assert_string_equal(
        text,
        "%0 = full() {value=1} f64 [] \"x\"\n%1 = add(%0, %0) f64 []\n%2 = relu(%1) f64 []\n");
    assert_int_equal(length, strlen(text));
    char small[8];
    assert_int_equal(gd_graph_format(y, small, sizeof small), length);
    assert_string_equal(small, "%0 = fu");
    gd_set_name(x, "a\"b");
    gd_graph_format_dot(y, text, sizeof text);
    assert_non_null(strstr(text, "digraph gradus {"));
    assert_non_null(strstr(text, "a\\\"b"));
    assert_non_null(strstr(text, "n1 -> n2;"));
}

static void the_verifier_finds_faults(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(2, 3), GD_F32), true);
    gd_tensor *y = gd_transpose(gd_exp(x), 0, 1), *z = gd_sum(y, GD_ALL_AXES, false);
    assert_int_equal(gd_graph_verify(z), GD_OK);
    y->layout.shape[0] = 4;
    assert_int_equal(gd_graph_verify(z), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "gd_graph_verify");
    y->layout.shape[0] = 3;
    z->layout.dtype = GD_F64;
    assert_int_equal(gd_graph_verify(z), GD_ERR_STATE);
    gd_error_clear();
    z->layout.dtype = GD_F32;
    assert_int_equal(gd_graph_verify(z), GD_OK);
}

/* In a trace a view of a tensor that exists has no memory yet. */
static gd_tensor *verified(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_matmul(in[0], gd_transpose(user, 0, 1));
    return gd_graph_verify(y) == GD_OK ? y : NULL;
}

static void the_verifier_takes_traces(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_ones(gd, GD_SHAPE(2, 3), GD_F32), *x = gd_ones(gd, GD_SHAPE(4, 3), GD_F32);
    assert_non_null(gd_call(gd_compile(gd, verified, w), 1, &x));
}

/* ---- errors ---- */

static void errors_name_what_is_wrong(void **state)
{
    gd_context *gd = *state;
    gd_tensor *a = gd_ones(gd, GD_SHAPE(32, 784), GD_F32),
              *b = gd_ones(gd, GD_SHAPE(16, 784), GD_F32);
    /* NULL in gives NULL out, and the first error is the one kept. */
    assert_null(gd_relu(gd_add(gd_matmul(a, b), a)));
    assert_null(gd_reshape(a, GD_SHAPE(5)));
    assert_error(GD_ERR_SHAPE, "gd_matmul: [32, 784] @ [16, 784]: inner sizes differ (784, 16)");
    assert_null(gd_relu(NULL));
    assert_int_equal(gd_error_code(), GD_OK);

    gd_context *other = gd_open(test_device(), .threads = 1);
    assert_null(gd_add(a, gd_ones(other, GD_SHAPE(1), GD_F32)));
    assert_error(GD_ERR_INVALID, "different contexts");
    gd_close(other);

    assert_null(gd_open("abacus"));
    assert_error(GD_ERR_INVALID, "abacus");
    assert_null(gd_open(test_device(), .threads = 0));
    assert_error(GD_ERR_INVALID, "0 threads; 1 to");
    assert_null(gd_open(test_device(), .threads = -2));
    assert_error(GD_ERR_INVALID, "-2 threads");
    assert_null(gd_zeros(gd, GD_SHAPE(-1), GD_F32));
    gd_error_clear();
    assert_null(gd_zeros(gd, GD_SHAPE(1), (gd_dtype)99));
    gd_error_clear();
    assert_true(isnan(gd_item(a)));
    assert_error(GD_ERR_SHAPE, "exactly one element");
    assert_null(gd_zeros(gd, GD_SHAPE((int64_t)1 << 62, 16), GD_F32));
    gd_error_clear();
}

static void the_memory_limit_is_an_error(void **state)
{
    (void)state;
    gd_context *gd = gd_open(test_device(), .threads = 1, .memory_limit = 8 << 20);
    assert_null(gd_zeros(gd, GD_SHAPE(16, 1024, 1024), GD_F32));
    assert_error(GD_ERR_MEMORY, "");
    assert_non_null(gd_zeros(gd, GD_SHAPE(1024), GD_F32));
    gd_close(gd);
}

static void random_streams_repeat(void **state)
{
    gd_context *gd = *state;
    float a[64], b[64];
    gd_seed(gd, 11);
    gd_tensor *x = gd_uniform(gd, GD_SHAPE(64), -1, 1, GD_F32),
              *z = gd_normal(gd, GD_SHAPE(64), 0, 1, GD_F32);
    gd_seed(gd, 11);
    gd_tensor *y = gd_uniform(gd, GD_SHAPE(64), -1, 1, GD_F32);
    assert_int_equal(gd_tensor_read(x, a, sizeof a), GD_OK);
    assert_int_equal(gd_tensor_read(y, b, sizeof b), GD_OK);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(gd_tensor_read(z, b, sizeof b), GD_OK);
    assert_memory_not_equal(a, b, sizeof a);

    gd_tensor *many = gd_normal(gd, GD_SHAPE(100000), 2.0, 3.0, GD_F64);
    assert_true(fabs(gd_item(gd_mean(many, GD_ALL_AXES, false)) - 2.0) < 0.05);
    assert_true(fabs(gd_item(gd_std(many, GD_ALL_AXES, 0, false)) - 3.0) < 0.05);
    gd_tensor *flat = gd_uniform(gd, GD_SHAPE(100000), 5.0, 6.0, GD_F16);
    assert_true(gd_item(gd_min(gd_cast(flat, GD_F32), GD_ALL_AXES, false)) >= 5.0);
}

#define IN_CONTEXT(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CONTEXT(scopes_release_their_temporaries),
        IN_CONTEXT(a_temporary_may_be_released_by_hand_after_its_scope),
        IN_CONTEXT(a_chain_of_ten_million_nodes_is_released),
        IN_CONTEXT(a_long_chain_is_differentiated),
        IN_CONTEXT(backward_accumulates),
        IN_CONTEXT(a_shared_operand_gets_every_share),
        IN_CONTEXT(gradients_can_be_differentiated_again),
        IN_CONTEXT(grad_takes_seeds_and_inner_tensors),
        IN_CONTEXT(detach_and_no_grad_cut_history),
        IN_CONTEXT(an_overwritten_value_is_caught),
        IN_CONTEXT(only_float_leaves_require_gradients),
        IN_CONTEXT(assign_changes_the_storage_views_share),
        IN_CONTEXT(ops_in_place_ask_for_kernels),
        IN_CONTEXT(strided_tensors_are_read_and_written),
        IN_CONTEXT(host_memory_is_used_in_place),
        IN_CONTEXT(gradients_are_added_in_place_only_where_nobody_sees_it),
        IN_CONTEXT(gradients_lie_as_what_they_belong_to),
        IN_CONTEXT(graphs_are_printed),
        IN_CONTEXT(the_verifier_finds_faults),
        IN_CONTEXT(the_verifier_takes_traces),
        IN_CONTEXT(errors_name_what_is_wrong),
        IN_CONTEXT(the_memory_limit_is_an_error),
        IN_CONTEXT(random_streams_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
