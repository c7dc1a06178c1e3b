/* tests/test_passes.c: each pass of the compiler by itself, a section each: what it changes, what
 * it must leave, its switch, and that the bits stay eager's. Memory planning (test_pass_memory.c)
 * and rematerialise (test_pass_rematerialise.c) have files of their own, fuse is tested in
 * test_compile.c; all together are tested there and by the fuzzer. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "graph/apply.h"
#include "graph/context.h"
#include "ops/attrs.h"
#include "support/context.h"

/* ---- a body, compiled with a pass and without ---- */

enum { ROWS = 6, COLUMNS = 8, CALLS = 3, MOST = 4096 };

/* What bodies use beside in[0] [6, 8] and in[1] [8, 5], both f32. */
typedef struct things {
    gd_tensor *state, *other; // [6, 8]
    gd_module *module;
    gd_optimizer *optimizer;
} things;

typedef struct result {
    float values[CALLS][MOST];
    size_t count; /* of each call: all results, then state and other, then what is drawn next */
    int changes, kernels;
    size_t arena_bytes;
    char text[1 << 15];
} result;

static void read_into(result *r, int call, size_t *at, const gd_tensor *t)
{
    gd_tensor *whole =
        gd_cast(gd_reshape(gd_contiguous((gd_tensor *)(uintptr_t)t), GD_SHAPE(-1)), GD_F32);
    size_t count = (size_t)gd_tensor_count(whole);
    assert_true(*at + count <= MOST);
    assert_int_equal(gd_tensor_read(whole, &r->values[call][*at], count * sizeof(float)), GD_OK);
    *at += count;
}

static void run(gd_function_body body, gd_mode mode, const char *pass, const char *switches,
                result *r)
{
    memset(r, 0, sizeof *r);
    gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 6);
    things t = { gd_retain(gd_normal(gd, GD_SHAPE(ROWS, COLUMNS), 0, 1, GD_F32)),
                 gd_retain(gd_normal(gd, GD_SHAPE(ROWS, COLUMNS), 0, 1, GD_F32)),
                 gd_module_create(gd, .seed = 1), NULL };
    t.optimizer = gd_adam(t.module);
    gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(ROWS, COLUMNS), 0, 1, GD_F32),
                         gd_normal(gd, GD_SHAPE(COLUMNS, 5), 0, 1, GD_F32) };
    gd_function *f = gd_compile(gd, body, &t, .mode = mode, .detached = true, .passes = switches);
    for (int call = 0; call < CALLS; call++) {
        if (!gd_call(f, 2, in))
            fail_msg("%s: %s", pass, gd_error_message());
        size_t at = 0;
        read_into(r, call, &at, gd_function_result(f, 0));
        read_into(r, call, &at, t.state);
        read_into(r, call, &at, t.other);
        read_into(r, call, &at, gd_uniform(gd, GD_SHAPE(3), 0, 1, GD_F32));
        r->count = at;
    }
    if (mode == GD_MODE_COMPILED) {
        gd_plan_stats stats = gd_function_stats(f);
        r->kernels = stats.kernels;
        r->arena_bytes = stats.arena_bytes;
        assert_true(gd_plan_format(f, r->text, sizeof r->text) < sizeof r->text);
        r->changes = pass_changes(r->text, pass);
    }
    gd_close(gd);
}

static result eager, with, without;

/* The pass makes `changes` changes (negative: any number but 0); off, it makes none; the bits are
 * the same. Leaves both results to be looked at. */
static void check(const char *pass, gd_function_body body, int changes)
{
    char off[32];
    snprintf(off, sizeof off, "-%s", pass);
    run(body, GD_MODE_EAGER, pass, "", &eager);
    run(body, GD_MODE_COMPILED, pass, "", &with);
    run(body, GD_MODE_COMPILED, pass, off, &without);
    assert_int_equal(without.changes, -1);
    if (changes < 0)
        assert_true(with.changes > 0);
    else
        assert_int_equal(with.changes, changes);
    assert_int_equal(with.count, eager.count);
    assert_memory_equal(eager.values, with.values, sizeof eager.values);
    assert_memory_equal(eager.values, without.values, sizeof eager.values);
}

static gd_tensor *total(gd_tensor *x)
{
    return gd_sum(x, GD_ALL_AXES, false);
}

/* ---- cse ---- */

static gd_tensor *says_it_twice(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *a = gd_softmax(gd_exp(in[0]), 1), *b = gd_softmax(gd_exp(in[0]), 1);
    return gd_add(a, gd_mul(b, gd_softmax(gd_exp(in[0]), 0))); /* another axis */
}

/* Equal to look at, different in value: before and after an assignment, two draws. */
static gd_tensor *looks_alike(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *before = gd_exp(t->state);
    gd_assign(t->state, gd_add(t->state, in[0]));
    gd_tensor *after = gd_exp(t->state);
    return gd_add(gd_sub(after, before), gd_sub(gd_dropout(in[0], 0.5), gd_dropout(in[0], 0.5)));
}

static gd_tensor *block(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_softmax(gd_exp(in[0]), 1);
}

/* The second run of a checkpointed block is what memory is to be saved by. */
static gd_tensor *runs_a_block_again(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_set_requires_grad(t->state, true);
    gd_tensor *x = gd_mul(t->state, in[0]),
              *y = total(gd_square(gd_checkpoint(block, NULL, 1, &x))), *g;
    return gd_grad(1, &y, NULL, 1, &t->state, &g) == GD_OK ? g : NULL;
}

static int count_lines(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        n += at == text || at[-1] == '\n';
    return n;
}

static void cse_merges_equal_ops(void **state)
{
    (void)state;
    check("cse", says_it_twice, 3); /* exp twice, softmax once */
    assert_int_equal(count_lines(with.text, "softmax"), 2);
    assert_int_equal(count_lines(without.text, "softmax"), 3);
}

static void cse_leaves_what_only_looks_alike(void **state)
{
    (void)state;
    check("cse", looks_alike, 0);
    assert_int_equal(count_lines(with.text, "dropout"), 2);
    run(runs_a_block_again, GD_MODE_COMPILED, "cse", "", &with);
    assert_int_equal(count_lines(with.text, "softmax "),
                     2); /* its value, and once more for its gradient */
}

/* ---- dead ---- */

/* A draw nobody reads moves those behind it; what is assigned is read by no op, and stays. */
static gd_tensor *does_needless_work(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    (void)gd_softmax(gd_exp(in[0]), 1);
    (void)gd_dropout(in[0], 0.5);
    gd_assign(t->other, gd_softmax(in[0], 1));
    return gd_dropout(in[0], 0.5);
}

static void dead_removes_what_nothing_depends_on(void **state)
{
    (void)state;
    check("dead", does_needless_work, 3);
    assert_int_equal(count_lines(with.text, "dropout"), 1);
    assert_int_equal(count_lines(with.text, "softmax"), 1);
    assert_int_equal(count_lines(without.text, "softmax"), 2);
}

/* ---- fold ---- */

static gd_tensor *has_constants(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_context *gd = gd_tensor_context(in[0]);
    gd_tensor *table = gd_softmax(gd_sin(gd_arange(gd, 0, COLUMNS, 1, GD_F32)), 0); /* constant */
    gd_tensor *follows_state = gd_softmax(t->state, 1);                             /* not */
    gd_tensor *drawn = gd_softmax(gd_uniform(gd, GD_SHAPE(COLUMNS), 0, 1, GD_F32), 0);
    gd_assign(t->state, gd_mul(t->state, table));
    return gd_add(gd_mul(in[0], table), gd_add(follows_state, drawn));
}

static gd_tensor *is_constant(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_softmax(gd_arange(gd_tensor_context(in[0]), 0, COLUMNS, 1, GD_F32), 0);
}

/* 2 MiB, made anew at every call rather than kept. */
static gd_tensor *has_a_large_constant(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *large = gd_arange(gd_tensor_context(in[0]), 0, 1 << 19, 1, GD_F32);
    return gd_add(gd_max(large, GD_AXES(0), false), total(in[0]));
}

static void fold_computes_constants_once(void **state)
{
    (void)state;
    check("fold", has_constants, -1);
    assert_int_equal(count_lines(with.text, "softmax"), 2);
    assert_int_equal(count_lines(without.text, "softmax"), 3);
    assert_true(with.kernels < without.kernels);
}

static void fold_leaves_results_and_what_is_large(void **state)
{
    (void)state;
    check("fold", is_constant, 1); /* the numbers; the result itself is computed at every call */
    assert_int_equal(count_lines(with.text, "softmax"), 1);
    check("fold", has_a_large_constant, 0);
}

/* ---- simplify ---- */

enum { IDENTITIES = 11, NO_IDENTITIES = 5 };

/* Case k, which gives x back whatever it is. */
static gd_tensor *identity(gd_tensor *x, int k)
{
    gd_context *gd = gd_tensor_context(x);
    gd_tensor *one = gd_scalar(gd, 1, GD_F32), *zero = gd_scalar(gd, 0, GD_F32),
              *minus_zero = gd_scalar(gd, -0.0, GD_F32);
    switch (k) {
    case 0:
        return gd_mul(x, one);
    case 1:
        return gd_mul(one, x);
    case 2:
        return gd_div(x, one);
    case 3:
        return gd_sub(x, zero);
    case 4:
        return gd_add(x, minus_zero);
    case 5:
        return gd_add(minus_zero, x);
    case 6:
        return gd_neg(gd_neg(x));
    case 7:
        return gd_relu(gd_relu(x)); /* the inner one stays */
    case 8:
        return gd_abs(gd_abs(x));
    case 9:
        return gd_cast(gd_cast(x, GD_F64), GD_F32);
    default:
        return gd_mul_scalar(x, 1.0);
    }
}

/* Case k, which is no identity for every value. */
static gd_tensor *no_identity(gd_tensor *x, int k)
{
    gd_context *gd = gd_tensor_context(x);
    gd_tensor *zero = gd_scalar(gd, 0, GD_F32);
    switch (k) {
    case 0:
        return gd_add(x, zero); /* -0 becomes +0 */
    case 1:
        return gd_sub(x, gd_scalar(gd, -0.0, GD_F32));
    case 2:
        return gd_cast(gd_cast(x, GD_F16), GD_F32);
    case 3:
        return gd_sub(zero, gd_neg(x));
    default:
        return gd_relu(gd_neg(gd_relu(x)));
    }
}

static int which;

static gd_tensor *one_case(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_where(gd_gt(in[0], gd_abs(in[0])), in[0], gd_mul_scalar(in[0], 0.0)); /* ±0 */
    x = gd_add(gd_softmax(in[0], 1), x);
    gd_tensor *signed_zeros = gd_mul_scalar(in[0], 0.0);
    gd_tensor *y =
        which >= 0 ? identity(signed_zeros, which) : no_identity(signed_zeros, -1 - which);
    return gd_add(gd_div(x, gd_scalar(gd_tensor_context(x), 3, GD_F32)), gd_reciprocal(y));
}

static void simplify_leaves_out_what_gives_its_operand_back(void **state)
{
    (void)state;
    for (which = 0; which < IDENTITIES; which++)
        check("simplify", one_case, 1);
    for (which = -1; which >= -NO_IDENTITIES; which--)
        check("simplify", one_case, 0);
}

/* The operand is overwritten before the op's value is read. */
static gd_tensor *needs_the_copy(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *old = gd_mul_scalar(t->state, 1.0);
    gd_assign(t->state, in[0]);
    return gd_sub(gd_softmax(old, 1), t->state);
}

/* The result needs memory of its own. */
static gd_tensor *gives_its_input(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul_scalar(in[0], 1.0);
}

static void simplify_leaves_what_has_a_purpose(void **state)
{
    (void)state;
    check("simplify", needs_the_copy, 0);
    check("simplify", gives_its_input, 0);
}

/* ---- forward ---- */

static gd_tensor *updates(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_assign(t->state, gd_sub(t->state, gd_mul_scalar(in[0], 0.1))); /* reads where it writes */
    gd_assign(t->other, gd_softmax(in[0], 1));
    return total(in[0]);
}

/* A further result of a group goes into the group's first operand, which instructions behind it, of
 * one operand, do not read. */
static gd_tensor *updates_two_at_once(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *moment = gd_add(t->other, in[0]);
    gd_assign(t->other, moment);
    gd_assign(t->state, gd_exp(gd_neg(moment)));
    return total(in[0]);
}

static gd_tensor *reads_later(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *old = t->state, *value = gd_softmax(in[0], 1), *late = gd_softmax(old, 0);
    gd_assign(t->state, value);
    return late;
}

static gd_tensor *reads_elsewhere(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *turned = gd_flip(t->state, GD_AXES(0, 1));
    gd_assign(t->state, gd_add(turned, in[0]));
    return total(in[0]);
}

static gd_tensor *assigns_twice(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_assign(t->state, gd_softmax(in[0], 1));
    gd_assign(t->state, gd_softmax(in[0], 0));
    return total(in[0]);
}

static gd_tensor *is_a_result_too(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *value = gd_softmax(in[0], 1);
    gd_assign(t->state, value);
    return value;
}

static void forward_computes_in_the_target(void **state)
{
    (void)state;
    check("forward", updates, 2);
    assert_int_equal(count_lines(with.text, "assign"), 0);
    assert_int_equal(count_lines(without.text, "assign"), 2);
}

static void forward_computes_further_results_in_the_target(void **state)
{
    (void)state;
    check("forward", updates_two_at_once, 2);
    assert_int_equal(count_lines(with.text, "assign"), 0);
}

static void forward_leaves_old_contents_that_are_read(void **state)
{
    (void)state;
    check("forward", reads_later, 0);
    check("forward", reads_elsewhere, 0);
    check("forward", assigns_twice, 0);
    check("forward", is_a_result_too, 0);
}

/* ---- sink ---- */

/* A moment is assigned, then used: one pass over memory all the same. */
static gd_tensor *moves_by_moment(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *moment = gd_add(gd_mul_scalar(t->other, 0.9), gd_mul_scalar(in[0], 0.1));
    gd_assign(t->other, moment);
    gd_assign(t->state, gd_sub(t->state, gd_mul_scalar(gd_sqrt(gd_abs(moment)), 0.01)));
    return total(in[0]);
}

/* New contents are read, and assigned to again; what is assigned is no value of its own. */
static gd_tensor *needs_it_at_once(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_assign(t->state, gd_mul_scalar(t->state, 0.9));
    gd_tensor *sum = gd_softmax(t->state, 1);
    gd_assign(t->state, gd_add(in[0], sum));
    gd_assign(t->state, gd_exp(t->other));
    gd_assign(t->other, in[0]);
    return gd_add(sum, gd_add(t->state, t->other));
}

/* No op reads the loss: it goes behind the update. */
static gd_tensor *has_a_loss(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *error = gd_sub(in[0], t->state);
    gd_tensor *loss = gd_mul_scalar(gd_sum(gd_square(error), GD_ALL_AXES, false), 0.5);
    gd_assign(t->state, gd_add(t->state, gd_mul_scalar(error, 0.1)));
    return loss;
}

static void sink_moves_the_loss_to_the_end(void **state)
{
    (void)state;
    check("sink", has_a_loss, 2);
}

static void sink_leaves_updates_whole(void **state)
{
    (void)state;
    check("sink", moves_by_moment, 2);
    assert_int_equal(count_lines(with.text, "fused"), 1);
    assert_int_equal(count_lines(without.text, "fused"), 2);
    assert_int_equal(count_lines(with.text, "assign"), 0);
}

static void sink_keeps_reads_and_writes_in_order(void **state)
{
    (void)state;
    check("sink", needs_it_at_once, -1);
}

/* ---- recompute ---- */

/* The gradient of this GELU reads tanh, and x / 2, 1 + tanh and 0.04 x^2, which are made of it and
 * x. */
static gd_tensor *gelu_of_ops(gd_tensor *x)
{
    gd_tensor *cubic = gd_mul(gd_mul_scalar(gd_square(x), 0.044715), x);
    gd_tensor *tanh = gd_tanh(gd_mul_scalar(gd_add(x, cubic), 0.79788456080286535588));
    return gd_mul(gd_mul_scalar(x, 0.5), gd_add_scalar(tanh, 1.0));
}

static gd_tensor *activates(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_set_requires_grad(t->state, true);
    gd_tensor *x = gd_softmax(gd_mul(t->state, in[0]), 0), *dx;
    gd_tensor *y = gd_matmul(gelu_of_ops(x), in[1]), *loss = total(gd_square(y));
    return gd_grad(1, &loss, NULL, 1, &x, &dx) == GD_OK ? gd_softmax(dx, 0) : NULL;
}

/* What else reads a product, or lacks what it is made of, keeps it. */
static gd_tensor *is_needed_whole(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *x = gd_softmax(in[0], 0), *product = gd_mul(x, t->other), *other = gd_neg(x);
    gd_tensor *y = gd_softmax(gd_exp(gd_add(product, other)), 1);
    return gd_add(gd_add(gd_mul(y, product), gd_softmax(product, 0)), gd_mul(y, gd_abs(other)));
}

/* Its reader has more rows. */
static gd_tensor *is_read_by_more_rows(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_softmax(gd_slice(in[0], 0, 0, 1, 1), 1), *twice = gd_mul_scalar(x, 2.0);
    gd_tensor *y = gd_softmax(gd_exp(twice), 1);
    return gd_add(gd_mul(gd_add(twice, in[0]), x), y);
}

static void recompute_keeps_what_is_dear_alone(void **state)
{
    (void)state;
    check("recompute", activates, 3);
    assert_int_equal(with.kernels, without.kernels);
    assert_true(with.arena_bytes < without.arena_bytes);
}

static void recompute_keeps_what_is_needed(void **state)
{
    (void)state;
    check("recompute", is_needed_whole, 0);
    check("recompute", is_read_by_more_rows, 0);
}

/* ---- epilogue ---- */

static gd_tensor *dense(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *bias = gd_select(in[1], 0, 0); // [5]
    gd_tensor *wide = gd_cast(in[0], GD_F64), *weight = gd_cast(in[1], GD_F64);
    gd_tensor *a = gd_relu(gd_add(gd_matmul(in[0], in[1]), bias));
    gd_tensor *b = gd_relu(gd_matmul(gd_neg(in[0]), in[1]));
    gd_tensor *c = gd_add(gd_matmul(wide, weight), gd_cast(bias, GD_F64));
    return gd_add(gd_softmax(gd_add(a, b), 1), gd_cast(c, GD_F32));
}

static gd_tensor *convolved(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *image = gd_reshape(in[0], GD_SHAPE(1, 1, ROWS, COLUMNS));
    gd_tensor *kernel =
        gd_reshape(gd_slice(gd_reshape(in[1], GD_SHAPE(-1)), 0, 0, 18, 1), GD_SHAPE(2, 1, 3, 3));
    return gd_softmax(gd_relu(gd_conv2d(image, kernel, NULL)), -1);
}

/* The product is read by others; the bias is no vector along the last axis. */
static gd_tensor *not_dense(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *product = gd_matmul(in[0], in[1]), *column = gd_slice(in[0], 1, 0, 1, 1); // [6, 1]
    gd_tensor *kept = gd_relu(product);
    return gd_add(gd_softmax(product, 1),
                  gd_add(kept, gd_add(gd_matmul(gd_neg(in[0]), in[1]), column)));
}

static void epilogue_finishes_products_in_one_kernel(void **state)
{
    (void)state;
    check("epilogue", dense, -1);
    assert_int_equal(count_lines(with.text, "linear"), 3);
    assert_int_equal(count_lines(with.text, "matmul"), 0);
    assert_int_equal(count_lines(without.text, "matmul"), 3);
    run(dense, GD_MODE_COMPILED, "epilogue", "-fuse", &with);
    run(dense, GD_MODE_COMPILED, "epilogue", "-fuse,-epilogue", &without);
    assert_int_equal(without.kernels - with.kernels, 4); /* two biases, two ReLU */
    assert_memory_equal(with.values, without.values, sizeof with.values);
    check("epilogue", convolved, 1);
    assert_true(with.kernels == without.kernels - 1);
}

/* The gradient of layers with ReLU between them. */
static gd_tensor *dense_gradient(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const things *t = user;
    gd_tensor *y = gd_relu(gd_nn_linear(t->module, "first", in[0], 2 * COLUMNS));
    gd_tensor *z = gd_relu(gd_nn_linear(t->module, "second", y, COLUMNS));
    return gd_minimize(t->optimizer, total(gd_square(gd_nn_linear(t->module, "third", z, 3))));
}

static void epilogue_ends_gradients_of_relu_in_the_product(void **state)
{
    (void)state;
    run(dense_gradient, GD_MODE_EAGER, "epilogue", "", &eager);
    run(dense_gradient, GD_MODE_COMPILED, "epilogue", "-fuse", &with);
    run(dense_gradient, GD_MODE_COMPILED, "epilogue", "-epilogue,-fuse", &without);
    assert_memory_equal(eager.values, with.values, sizeof eager.values);
    assert_memory_equal(without.values, with.values, sizeof eager.values);
    assert_int_equal(count_lines(with.text, "matmul_relu_grad"), 2);
    assert_int_equal(count_lines(without.text, "relu_grad"), 2);
}

/* A product that is computed once, when the plan is made, where the ReLU's result is not there. */
static gd_tensor *constant_gradient(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_context *gd = gd_tensor_context(in[0]);
    gd_tensor *y = gd_relu(in[0]);
    gd_tensor *product = gd_matmul(gd_ones(gd, GD_SHAPE(ROWS, 2), GD_F32),
                                   gd_ones(gd, GD_SHAPE(2, COLUMNS), GD_F32));
    return gd_softmax(gd_relu_grad(product, y), 1);
}

static void epilogue_leaves_what_is_folded(void **state)
{
    (void)state;
    run(constant_gradient, GD_MODE_EAGER, "epilogue", "", &eager);
    run(constant_gradient, GD_MODE_COMPILED, "epilogue", "", &with);
    assert_memory_equal(eager.values, with.values, sizeof eager.values);
}

static void epilogue_leaves_what_others_read(void **state)
{
    (void)state;
    run(not_dense, GD_MODE_EAGER, "epilogue", "", &eager);
    run(not_dense, GD_MODE_COMPILED, "epilogue", "-fuse", &with);
    run(not_dense, GD_MODE_COMPILED, "epilogue", "-epilogue,-fuse", &without);
    assert_int_equal(with.kernels, without.kernels); /* products may be called linear, no more */
    assert_memory_equal(eager.values, with.values, sizeof eager.values);
}

/* ---- join_attention ---- */

enum { IN_ORDER, OTHER_ORDER, READ_TWICE, FEWER_QUERIES };

/* The gradient of attention among rows of in[0], whose queries, keys and values, of two heads, are
 * cut out of one product. */
static gd_tensor *attend(const things *t, gd_tensor *const *in, int how)
{
    gd_tensor *all = gd_nn_linear(t->module, "qkv", in[0], 3 * COLUMNS), *qkv[3];
    for (int i = 0; i < 3; i++) {
        int at = (how == OTHER_ORDER ? 2 - i : i) * COLUMNS;
        gd_tensor *part = gd_slice(all, 1, at, at + COLUMNS, 1);
        part = how == FEWER_QUERIES && i == 0 ? gd_slice(part, 0, 0, ROWS / 2, 1) : part;
        qkv[i] = gd_transpose(gd_reshape(part, GD_SHAPE(-1, 2, COLUMNS / 2)), 0, 1);
    }
    gd_tensor *y = gd_attention(qkv[0], qkv[1], qkv[2], .causal = true);
    gd_tensor *loss = total(gd_square(y));
    loss = how == READ_TWICE ? gd_add(loss, total(gd_sin(qkv[1]))) : loss;
    return gd_minimize(t->optimizer, loss);
}

static gd_tensor *attends(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return attend(user, in, IN_ORDER);
}

static gd_tensor *attends_in_bf16(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_context *context = gd_tensor_context(in[0]);
    assert_int_equal(gd_autocast_begin(context, GD_BF16), GD_OK);
    gd_tensor *loss = attend(user, in, IN_ORDER);
    assert_int_equal(gd_autocast_end(context), GD_OK);
    return loss;
}

/* Whether the device multiplies bf16 in attention, else f32 whose gradients are rounded one by one.
 */
static bool multiplies_bf16(void)
{
    gd_context *context = gd_open(test_device());
    gd_tensor *x = gd_zeros(context, GD_SHAPE(1, 2, 2), GD_BF16);
    const gd_layout *const in[] = { &x->layout, &x->layout, &x->layout };
    const gd_attention_attr attr = { .scale = 1 };
    const bool is_taken = gd_dtype_set_has(context->device->half_products, GD_BF16) &&
                          gd_op_is_taken(context, GD_OP_attention, 3, in, &attr);
    gd_close(context);
    return is_taken;
}

static gd_tensor *attends_in_other_order(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return attend(user, in, OTHER_ORDER);
}

static gd_tensor *attends_and_reads_keys(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return attend(user, in, READ_TWICE);
}

static gd_tensor *attends_with_fewer_queries(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return attend(user, in, FEWER_QUERIES);
}

/* The gradient is also a result, in the order it has eagerly. */
static gd_tensor *gives_the_gradient(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_set_requires_grad(t->state, true);
    gd_tensor *x = gd_concat(3, (gd_tensor *[]){ in[0], t->state, t->other }, 1), *qkv[3], *g;
    for (int i = 0; i < 3; i++) {
        gd_tensor *part = gd_slice(x, 1, i * COLUMNS, (i + 1) * COLUMNS, 1);
        qkv[i] = gd_transpose(gd_reshape(part, GD_SHAPE(-1, 2, COLUMNS / 2)), 0, 1);
    }
    gd_tensor *loss = total(gd_square(gd_attention(qkv[0], qkv[1], qkv[2])));
    return gd_grad(1, &loss, NULL, 1, &x, &g) == GD_OK ? g : NULL;
}

static void join_attention_puts_gradients_side_by_side(void **state)
{
    (void)state;
    check("join_attention", attends, 1);
    assert_non_null(strstr(with.text, " joined}"));
    assert_null(strstr(with.text, "concat"));
    assert_non_null(strstr(without.text, "concat"));
    assert_int_equal(with.kernels, without.kernels - 1);
    assert_true(with.arena_bytes <= without.arena_bytes);
}

static void join_attention_looks_behind_the_rounding(void **state)
{
    (void)state;
    const bool joins = multiplies_bf16();
    check("join_attention", attends_in_bf16, joins);
    assert_true(joins == (strstr(with.text, " joined}") != NULL));
    assert_true(joins == (strstr(with.text, "concat") == NULL));
}

static void join_attention_leaves_what_is_read_otherwise(void **state)
{
    (void)state;
    check("join_attention", attends_in_other_order, 0);
    check("join_attention", attends_and_reads_keys, 0);
    check("join_attention", attends_with_fewer_queries, 0);
    check("join_attention", gives_the_gradient, 0);
}

/* ---- schedule ---- */

static gd_tensor *train(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *h = in[0];
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        h = gd_relu(gd_nn_linear(t->module, name, h, 24));
    }
    return gd_minimize(t->optimizer, gd_mean(gd_square(h), GD_ALL_AXES, false));
}

/* A small op that reads what is assigned later may not pass the assignment, in either direction. */
static gd_tensor *reads_around(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *large = gd_outer(gd_reshape(in[0], GD_SHAPE(-1)), gd_reshape(in[0], GD_SHAPE(-1)));
    gd_tensor *small = gd_sum(gd_softmax(large, 1), GD_AXES(0), false);
    gd_tensor *before = gd_softmax(t->state, 1);
    gd_assign(t->state, gd_mul(t->state, gd_reshape(small, GD_SHAPE(ROWS, COLUMNS))));
    return gd_add(before, gd_softmax(t->state, 1));
}

static void schedule_ends_gradients_early(void **state)
{
    (void)state;
    check("schedule", train, -1);
    assert_true(with.arena_bytes < without.arena_bytes);
    /* The same ops, however many of them are one kernel. */
    assert_int_equal(with.kernels + pass_changes(with.text, "multi_tensor"),
                     without.kernels + pass_changes(without.text, "multi_tensor"));
}

static void schedule_keeps_reads_and_writes_in_order(void **state)
{
    (void)state;
    run(reads_around, GD_MODE_EAGER, "schedule", "", &eager);
    run(reads_around, GD_MODE_COMPILED, "schedule", "", &with);
    assert_memory_equal(eager.values, with.values, sizeof eager.values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cse_merges_equal_ops),
        cmocka_unit_test(cse_leaves_what_only_looks_alike),
        cmocka_unit_test(dead_removes_what_nothing_depends_on),
        cmocka_unit_test(fold_computes_constants_once),
        cmocka_unit_test(fold_leaves_results_and_what_is_large),
        cmocka_unit_test(simplify_leaves_out_what_gives_its_operand_back),
        cmocka_unit_test(simplify_leaves_what_has_a_purpose),
        cmocka_unit_test(forward_computes_in_the_target),
        cmocka_unit_test(forward_computes_further_results_in_the_target),
        cmocka_unit_test(forward_leaves_old_contents_that_are_read),
        cmocka_unit_test(sink_moves_the_loss_to_the_end),
        cmocka_unit_test(sink_leaves_updates_whole),
        cmocka_unit_test(sink_keeps_reads_and_writes_in_order),
        cmocka_unit_test(epilogue_finishes_products_in_one_kernel),
        cmocka_unit_test(epilogue_ends_gradients_of_relu_in_the_product),
        cmocka_unit_test(epilogue_leaves_what_is_folded),
        cmocka_unit_test(epilogue_leaves_what_others_read),
        cmocka_unit_test(recompute_keeps_what_is_dear_alone),
        cmocka_unit_test(recompute_keeps_what_is_needed),
        cmocka_unit_test(join_attention_puts_gradients_side_by_side),
        cmocka_unit_test(join_attention_looks_behind_the_rounding),
        cmocka_unit_test(join_attention_leaves_what_is_read_otherwise),
        cmocka_unit_test(schedule_ends_gradients_early),
        cmocka_unit_test(schedule_keeps_reads_and_writes_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
