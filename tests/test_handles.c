/* tests/test_handles.c: handles of tensors that have ended are found: after gd_release, after the
 * end of their scope, and when their memory has been given to others since. What is alive can be
 * listed, and gd_close tells of what was never released. Ops are tried with ended operands in
 * test_ended_operands.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include <gradus/foreign.h>

#include "backend/cpu/scratch.h"
#include "graph/node.h"
#include "ops/attrs.h"
#include "support/context.h"

static const char *const words = "was released, or the scope it was made in has ended";

/* A tensor that has ended, and in its memory `since` others, one after the other. */
static gd_tensor *make_ended(gd_context *gd, int since)
{
    gd_scope_begin(gd);
    gd_tensor *t = gd_ones(gd, GD_SHAPE(2, 3), GD_F32);
    gd_scope_end(gd);
    for (int i = 0; i < since; i++) {
        gd_scope_begin(gd);
        assert_non_null(gd_zeros(gd, GD_SHAPE(7), GD_I64));
        gd_scope_end(gd);
    }
    return t;
}

/* Every function that takes a tensor and is no op: the error, and what it returns. */
static void refuse_everywhere(gd_tensor *ended, gd_tensor *good)
{
    char text[200];
    float numbers[6];
    gd_tensor *list[2] = { good, ended }, *gradient[1];
    assert_null(gd_tensor_context(ended));
    expect_error(GD_ERR_STATE, "gd_tensor_context: the tensor was released");
    assert_int_equal(gd_tensor_shape(ended).rank, 0);
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_tensor_strides(ended).rank, 0);
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_tensor_dtype(ended), GD_F32);
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_tensor_count(ended), 0);
    expect_error(GD_ERR_STATE, words);
    assert_false(gd_tensor_is_contiguous(ended));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_tensor_data(ended));
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_tensor_read(ended, numbers, sizeof numbers), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_tensor_write(ended, numbers, sizeof numbers), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, words);
    assert_true(isnan(gd_item(ended)));
    expect_error(GD_ERR_STATE, "gd_item: the tensor was released");
    gd_tensor_format(ended, text, sizeof text);
    assert_string_equal(text, "(released)");
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_retain(ended));
    expect_error(GD_ERR_STATE, words);
    gd_release(ended);
    expect_error(GD_ERR_STATE, "gd_release: the tensor was released");
    assert_null(gd_keep(ended));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_set_name(ended, "x"));
    expect_error(GD_ERR_STATE, words);
    assert_false(gd_requires_grad(ended));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_set_requires_grad(ended, true));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_detach(ended));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_gradient(ended));
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_zero_grad(ended), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_backward(ended), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_grad(1, &good, NULL, 1, &ended, gradient), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_grad(1, &ended, NULL, 1, &good, gradient), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_grad(1, &good, &ended, 1, &good, gradient), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_assign(ended, good));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_assign(good, ended));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_output(ended));
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_graph_format(ended, text, sizeof text), 0);
    expect_error(GD_ERR_STATE, words);
    assert_int_equal(gd_graph_verify(ended), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_concat(2, list, 0));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_add(good, ended));
    expect_error(GD_ERR_STATE, "gd_add: operand 1 was released, or the scope");
    assert_null(gd_add_(ended, good));
    expect_error(GD_ERR_STATE, "gd_add_: operand 0 was released");
    assert_null(gd_einsum("ij,ij->i", 2, list));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_conv2d(good, ended, NULL));
    expect_error(GD_ERR_STATE, words);
    assert_null(gd_layer_norm(good, ended, NULL));
    expect_error(GD_ERR_STATE, words);
}

static void test_ended_handles_are_refused(void **state)
{
    gd_context *gd = *state;
    gd_tensor *good = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(2, 3), GD_F32), true);
    for (int since = 0; since < 32; since++) {
        int64_t live = gd_memory(gd).live_tensors;
        refuse_everywhere(make_ended(gd, since), good);
        assert_int_equal(gd_memory(gd).live_tensors, live);
    }
    assert_int_equal(gd_item(gd_sum(good, GD_ALL_AXES, false)), 6);
}

/* Operands of layers, losses, loaders: what is built on the public functions. */
static void test_ended_operands_of_layers(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd, .seed = 1);
    for (int since = 0; since < 3; since++) {
        gd_tensor *x = make_ended(gd, since);
        assert_null(gd_nn_linear(m, "fc", x, 4));
        expect_error(GD_ERR_STATE, words);
        assert_null(gd_mse(x, gd_ones(gd, GD_SHAPE(2, 3), GD_F32)));
        expect_error(GD_ERR_STATE, words);
        assert_null(gd_minimize(gd_sgd(m, .lr = 1), x));
        expect_error(GD_ERR_STATE, words);
    }
}

static gd_tensor *twice(void *user, int count, gd_tensor *const *in)
{
    (void)user;
    return count == 1 ? gd_mul_scalar(in[0], 2) : NULL;
}

static void test_ended_arguments(void **state)
{
    gd_context *gd = *state;
    const gd_mode modes[] = { GD_MODE_COMPILED, GD_MODE_EAGER, GD_MODE_LAZY };
    for (int i = 0; i < 3; i++) {
        gd_function *f = gd_compile(gd, twice, NULL, .mode = modes[i]);
        gd_tensor *x = make_ended(gd, i);
        assert_null(gd_call(f, 1, &x));
        expect_error(GD_ERR_STATE, "gd_call");
        x = gd_ones(gd, GD_SHAPE(2), GD_F32);
        assert_int_equal(gd_item(gd_sum(gd_call(f, 1, &x), GD_ALL_AXES, false)), 4);
    }
}

/* What a body makes while it is traced has ended when the call is over. */
static gd_tensor *seen;
static gd_tensor *show(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    seen = gd_exp(in[0]);
    return gd_mul_scalar(seen, 2);
}

static void test_traced_values_end(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2), GD_F32);
    gd_function *f = gd_compile(gd, show, NULL);
    assert_non_null(gd_call(f, 1, &x));
    gd_function_release(f);
    assert_null(gd_exp(seen));
    assert_int_equal(gd_error_code(), GD_ERR_STATE);
    gd_error_clear();
}

static void test_a_second_release(void **state)
{
    gd_context *gd = *state;
    /* Of a tensor that only its scope has yet. */
    gd_tensor *t = gd_retain(gd_ones(gd, GD_SHAPE(3), GD_F32));
    gd_release(t);
    gd_release(t);
    expect_error(GD_ERR_STATE, "gd_release: the tensor was not retained");
    assert_int_equal(gd_item(gd_sum(t, GD_ALL_AXES, false)), 3);
    /* Of one that a graph needs. */
    gd_tensor *w = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(3), GD_F32), true);
    gd_tensor *loss = gd_sum(gd_square(w), GD_ALL_AXES, false);
    gd_retain(w);
    gd_release(w);
    gd_release(w);
    expect_error(GD_ERR_STATE, "not retained");
    assert_int_equal(gd_backward(loss), GD_OK);
    gd_release(gd_gradient(w)); /* the leaf's, not the caller's */
    expect_error(GD_ERR_STATE, "not retained");
    assert_int_equal(gd_item(gd_sum(gd_gradient(w), GD_ALL_AXES, false)), 6);
    /* Of one that nobody has any more. */
    gd_scope_begin(gd);
    t = gd_retain(gd_ones(gd, GD_SHAPE(3), GD_F32));
    gd_scope_end(gd);
    gd_release(t);
    gd_release(t);
    expect_error(GD_ERR_STATE, words);
    gd_release(NULL);
    assert_null(gd_retain(NULL));
    assert_int_equal(gd_error_code(), GD_OK);
}

/* Nodes of every size: with many inputs, too. */
static void test_slots_of_every_size(void **state)
{
    gd_context *gd = *state;
    enum { MOST = 4000 };
    static gd_tensor *in[MOST], *ended[64];
    const gd_op *op = gd_op_row(GD_OP_concat);
    gd_axis_attr attr = { 0 };
    for (int i = 0; i < MOST; i++)
        in[i] = gd_zeros(gd, GD_SHAPE(1), GD_F32);
    for (int round = 0; round < 3; round++) {
        int made = 0;
        gd_scope_begin(gd);
        for (int n = 1; n < MOST; n += 1 + n / 8) {
            gd_tensor *t = gd_node_new(gd, op, n, in, &attr, true);
            assert_non_null(t);
            assert_int_equal(t->n_inputs, n);
            assert_ptr_equal(t->inputs[n - 1], in[n - 1]);
            t->versions[n - 1] = 7;
            ended[made++ % 64] = t;
        }
        gd_scope_end(gd);
        for (int i = 0; i < (made < 64 ? made : 64); i++)
            assert_false(gd_is_alive(ended[i]));
    }
}

/* Whoever looks into an ended tensor without asking is found by the address sanitizer. */
static void test_ended_tensors_are_poisoned(void **state)
{
#ifdef GD_POISONING
    gd_tensor *good = gd_ones(*state, GD_SHAPE(2), GD_F32);
    assert_null(__asan_region_is_poisoned(good, sizeof *good));
    gd_storage *storage = good->storage;
    assert_null(__asan_region_is_poisoned(storage, sizeof *storage));
    for (int since = 0; since < 3; since++) {
        gd_tensor *ended = make_ended(*state, since);
        for (size_t i = 0; i < sizeof *ended; i++)
            assert_true(__asan_address_is_poisoned((char *)ended + i));
    }
#else
    (void)state;
    skip();
#endif
}

/* To MemorySanitizer the memory of what has ended is unwritten for whoever gets it next: a tensor's
 * elements, a node, a kernel's scratch block. */
static void test_memory_is_forgotten(void **state)
{
#ifdef GD_FORGETTING
    gd_context *gd = *state;
    enum { BYTES = 4096 };
    gd_scope_begin(gd);
    gd_tensor *ones = gd_ones(gd, GD_SHAPE(BYTES / 4), GD_F32);
    const void *data = gd_tensor_data(ones);
    assert_int_equal(__msan_test_shadow(data, BYTES), -1);
    gd_scope_end(gd);
    gd_storage *storage = gd_storage_new(gd, BYTES);
    assert_ptr_equal(storage->data, data);
    assert_int_equal(__msan_test_shadow(data, BYTES), 0);
    memset(storage->data, 0, BYTES / 2);
    assert_int_equal(__msan_test_shadow(data, BYTES), BYTES / 2);
    gd_storage_drop(gd, storage);

    uint32_t size_class;
    gd_tensor *node = gd_slot_take(gd, sizeof *node, &size_class);
    assert_int_equal(__msan_test_shadow(node, sizeof *node), 0);
    memset((void *)node, 0, sizeof *node);
    node->size_class = size_class;
    gd_slot_give(gd, node);

    static _Alignas(GD_SCRATCH_ALIGN) char area[BYTES];
    for (int i = 0; i < 2; i++) {
        gd_scratch scratch = gd_scratch_make(area, sizeof area);
        char *block = gd_scratch_take(&scratch, 100);
        assert_int_equal(__msan_test_shadow(block, 100), 0);
        memset(block, 0, 100);
    }
#else
    (void)state;
    skip();
#endif
}

/* ---- what is alive ---- */

static void test_memory_report(void **state)
{
    gd_context *gd = *state;
    char text[4000];
    gd_scope_begin(gd);
    gd_tensor *w = gd_retain(gd_set_name(gd_zeros(gd, GD_SHAPE(100, 10), GD_F32), "weight"));
    gd_set_requires_grad(w, true);
    gd_tensor *y = gd_exp(gd_transpose(w, 0, 1));
    assert_non_null(y);
    size_t length = gd_memory_report(gd, text, sizeof text);
    assert_int_equal(length, strlen(text));
    const char *const lines[] = {
        "4 tensors, 8016 bytes\n",
        "  exp             f32  [10, 100]             scope 1\n",
        "  parameter       f32  [100, 10]             scope 1, retained 1, graph 1  \"weight\"\n",
        "        shared  permute         f32  [10, 100]             scope 1, graph 1\n",
        "  leaf            i64  [2]                   scope 0, retained 1  \"random state\"\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i]))
            fail_msg("no line \"%s\" in\n%s", lines[i], text);
    assert_true(strstr(text, "exp") < strstr(text, "random state")); /* large ones first */
    char part[20];
    assert_int_equal(gd_memory_report(gd, part, sizeof part), length);
    assert_memory_equal(part, text, sizeof part - 1);
    assert_int_equal(gd_memory_report(gd, NULL, 0), length);
    gd_scope_end(gd);
    gd_memory_report(gd, text, sizeof text);
    assert_non_null(strstr(text, "2 tensors, 4016 bytes\n"));
    assert_non_null(strstr(text, "  retained 1  \"weight\"\n"));
    gd_release(w);
    gd_memory_report(gd, text, sizeof text);
    assert_non_null(strstr(text, "1 tensor, 16 bytes\n"));
    assert_int_equal(gd_memory_report(NULL, text, sizeof text), 0);
}

static char log_text[20000];
static void take_message(void *user, gd_log_level level, const char *message)
{
    (void)user;
    if (level != GD_LOG_WARNING)
        return;
    strncat(log_text, message, sizeof log_text - strlen(log_text) - 2);
    strcat(log_text, "\n");
}

static gd_tensor *step(void *optimizer, int count, gd_tensor *const *in)
{
    gd_module *m = gd_optimizer_module(optimizer);
    return count == 1 ? gd_minimize(optimizer, gd_mean(gd_square(gd_nn_linear(m, "fc", in[0], 3)),
                                                       GD_ALL_AXES, false))
                      : NULL;
}

static const char *close_after(bool warn, int leaks)
{
    log_text[0] = '\0';
    gd_set_log_callback(take_message, NULL, GD_LOG_WARNING);
    gd_context *gd = gd_open(test_device(), .threads = 1, .warn_leaks = warn);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2, 4), GD_F32);
    gd_optimizer *o = gd_adam(gd_module_create(gd, .seed = 1), .lr = 0.1);
    gd_function *f = gd_compile(gd, step, o),
                *eager = gd_compile(gd, twice, NULL, .mode = GD_MODE_EAGER);
    for (int i = 0; i < 3; i++)
        assert_true(gd_call(f, 1, &x) && gd_call(eager, 1, &x));
    gd_tensor *leaf = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(4), GD_F32), true);
    assert_int_equal(gd_backward(gd_sum(gd_square(leaf), GD_ALL_AXES, false)), GD_OK);
    for (int i = 0; i < leaks; i++)
        gd_retain(gd_set_name(gd_exp(gd_ones(gd, GD_SHAPE(i + 1), GD_F32)), "forgotten"));
    gd_close(gd);
    gd_set_log_callback(NULL, NULL, GD_LOG_WARNING);
    return log_text;
}

static int lines_in(const char *text)
{
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void test_close_warns_of_leaks(void **state)
{
    (void)state;
    assert_string_equal(close_after(true, 0), "");
    assert_string_equal(close_after(false, 3), "");
    const char *text = close_after(true, 1);
    assert_non_null(strstr(text, "gd_close: 1 tensor was retained and never released:\n"));
    assert_non_null(strstr(text, "exp             f32  [1]"));
    assert_non_null(strstr(text, "retained 1  \"forgotten\"\n"));
    text = close_after(true, 30);
    assert_non_null(strstr(text, "gd_close: 30 tensors were retained and never released; the "
                                 "largest:\n"));
    assert_int_equal(lines_in(text), 21);
    assert_non_null(strstr(text, "[30]"));
    assert_null(strstr(text, "[5]"));
}

/* ---- gd_release_later ---- */

typedef struct given_back {
    gd_tensor **tensors; /* [count] one reference to each */
    int count;
} given_back;

static void *give_back(void *argument)
{
    given_back *g = argument;
    for (int i = 0; i < g->count; i++)
        gd_release_later(g->tensors[i]);
    return NULL;
}

/* Threads give references back, some of them to the same tensors, while the context is used. */
static void test_references_given_back_by_other_threads(void **state)
{
    enum { THREADS = 4, TENSORS = 200 };
    gd_context *gd = *state;
    static gd_tensor *tensors[TENSORS];
    int64_t before = gd_memory(gd).live_tensors;
    for (int i = 0; i < TENSORS; i++) {
        tensors[i] = gd_claim(gd, gd_full(gd, GD_SHAPE(2), i, GD_F32));
        for (int k = 1; k < THREADS; k++)
            gd_retain(tensors[i]);
    }
    given_back all = { tensors, TENSORS };
    pthread_t threads[THREADS];
    for (int k = 0; k < THREADS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, give_back, &all), 0);
    for (int i = 0; i < TENSORS; i++)
        gd_release(gd_claim(gd, gd_ones(gd, GD_SHAPE(3), GD_F32)));
    for (int k = 0; k < THREADS; k++)
        pthread_join(threads[k], NULL);
    gd_claim(gd, NULL);
    assert_int_equal(gd_memory(gd).live_tensors, before);
    assert_int_equal(gd_error_code(), GD_OK);
}

/* Each of the functions that are said to. */
static void test_references_are_taken_off(void **state)
{
    gd_context *gd = *state;
    int64_t before = gd_memory(gd).live_tensors;
    gd_release_later(NULL);
    gd_scope_begin(gd);
    gd_release_later(gd_claim(gd, gd_ones(gd, GD_SHAPE(2), GD_F32)));
    assert_int_equal(gd_memory(gd).live_tensors, before + 1);
    gd_scope_end(gd);
    assert_int_equal(gd_memory(gd).live_tensors, before);
    gd_release_later(gd_claim(gd, gd_ones(gd, GD_SHAPE(2), GD_F32)));
    assert_null(gd_call(gd_compile(gd, NULL, NULL), 0, NULL));
    expect_error(GD_ERR_STATE, "");
    assert_int_equal(gd_memory(gd).live_tensors, before);
    gd_tensor *kept = gd_retain(gd_ones(gd, GD_SHAPE(2), GD_F32));
    gd_release_later(kept);
    gd_release_later(kept); /* one too many */
    gd_claim(gd, NULL);
    expect_error(GD_ERR_STATE, "gd_release: the tensor was");
    gd_release_later(gd_retain(gd_ones(gd, GD_SHAPE(2), GD_F32))); /* gd_close sees to it */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)

static gd_tensor *double_it(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_add(in[0], in[0]);
}

/* gradus/foreign.h: what gd_claim(op(..)) gives, owned, with no temporaries left. */
static void test_an_op_and_its_claim_are_one_call(void **state)
{
    gd_context *gd = *state;
    const gd_axes first = GD_AXES(0);
    const gd_shape flat = GD_SHAPE(6);
    gd_scope_begin(gd);
    gd_tensor *x = gd_claim(gd, gd_full(gd, GD_SHAPE(2, 3), 2, GD_F32));
    const int64_t before = gd_memory(gd).live_tensors;
    gd_tensor *made[] = { gd_claim_of_one(gd_mish, x), gd_claim_of_two(gd_add, x, x),
                          gd_claim_along_axes(gd_sum, x, &first, true),
                          gd_claim_to_shape(gd_reshape, x, &flat),
                          gd_claim_with_number(gd_mul_scalar, x, 0.5) };
    const int64_t count = sizeof made / sizeof *made;
    assert_int_equal(gd_memory(gd).live_tensors, before + count); /* mish is made of several ops */
    assert_true(gd_item(gd_max(made[1], GD_ALL_AXES, false)) == 4);
    assert_true(gd_item(gd_max(made[2], GD_ALL_AXES, false)) == 4);
    assert_int_equal(gd_tensor_shape(made[2]).rank, 2);
    assert_int_equal(gd_tensor_shape(made[3]).rank, 1);
    assert_true(gd_item(gd_max(made[4], GD_ALL_AXES, false)) == 1);
    assert_null(gd_claim_of_two(gd_matmul, x, x));
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    gd_error_clear();
    for (int64_t i = 0; i < count; i++)
        gd_release(made[i]);

    gd_function *f = gd_compile(gd, double_it, NULL);
    assert_null(gd_claim_call(f, 1, &x)); /* no plan yet */
    assert_int_equal(gd_error_code(), GD_OK);
    assert_int_equal(gd_function_prepare(f, 1, &x), GD_OK);
    gd_tensor *doubled = gd_claim_call(f, 1, &x);
    assert_true(gd_item(gd_max(doubled, GD_ALL_AXES, false)) == 4);
    gd_release(doubled);
    assert_int_equal(gd_error_code(), GD_OK);
    gd_function_release(f);
    gd_release(x);
    gd_scope_end(gd);
}

/* gd_claim is of the tensor's context, whichever it is given; an op that failed empties its operand's. */
static void test_a_claim_is_of_the_tensors_context(void **state)
{
    gd_context *gd = *state, *other = gd_open("cpu", .threads = 1);
    gd_scope_begin(gd);
    gd_scope_begin(other);
    gd_tensor *here = gd_ones(gd, GD_SHAPE(2), GD_F32);
    gd_tensor *there = gd_claim(gd, gd_exp(gd_ones(other, GD_SHAPE(2), GD_F32)));
    assert_ptr_equal(gd_tensor_context(there), other);
    assert_int_equal(gd_memory(other).live_tensors, 2); /* with the random state */
    assert_true(gd_get(here, 1) == 1);                  /* still there */
    assert_null(gd_add(here, there));
    char contexts[80];
    snprintf(contexts, sizeof contexts, "different contexts (%s and cpu); gd_to",
             gd_context_device(gd));
    assert_non_null(strstr(gd_error_message(), contexts));
    gd_error_clear();
    (void)gd_neg(there);
    assert_null(gd_claim_of_two(gd_matmul, there, here));
    gd_error_clear();
    assert_int_equal(gd_memory(other).live_tensors, 2);
    gd_claim(gd, NULL);
    assert_int_equal(gd_memory(gd).live_tensors, 1);
    gd_release(there);
    assert_true(gd_close_if_unused(other));
    gd_scope_end(gd);
}

/* A context is closed once nothing of it is retained: tensors, objects, memory that is mapped. */
static void test_a_context_that_is_used_is_not_closed(void **state)
{
    (void)state;
    gd_context *other = gd_open("cpu", .threads = 1);
    gd_tensor *x = gd_retain(gd_ones(other, GD_SHAPE(2), GD_F32));
    gd_ones(other, GD_SHAPE(3), GD_F32); /* a temporary is no use */
    assert_false(gd_close_if_unused(other));
    gd_function *f = gd_compile(other, double_it, NULL);
    gd_release_later(x);
    assert_false(gd_close_if_unused(other));
    gd_function_release(f);
    gd_tensor *y = gd_ones(other, GD_SHAPE(2), GD_F32);
    assert_non_null(gd_tensor_map(y, GD_MAP_READ));
    assert_false(gd_close_if_unused(other));
    gd_tensor_unmap(y);
    assert_true(gd_close_if_unused(other));
    assert_false(gd_close_if_unused(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_ended_handles_are_refused),
        TEST(test_ended_operands_of_layers),
        TEST(test_ended_arguments),
        TEST(test_traced_values_end),
        TEST(test_a_second_release),
        TEST(test_slots_of_every_size),
        TEST(test_ended_tensors_are_poisoned),
        TEST(test_memory_is_forgotten),
        TEST(test_memory_report),
        TEST(test_close_warns_of_leaks),
        TEST(test_references_given_back_by_other_threads),
        TEST(test_references_are_taken_off),
        TEST(test_an_op_and_its_claim_are_one_call),
        TEST(test_a_claim_is_of_the_tensors_context),
        TEST(test_a_context_that_is_used_is_not_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
