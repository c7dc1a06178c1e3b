/* tests/test_autocast.c: scopes of mixed precision: what each op makes of its operands, that
 * derivatives, blocks that are run again, maps and optimizers compute as they should in them, and
 * that compiled functions do what eager ones do. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "support/tensors.h"

#include "graph/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- every op ---- */

typedef enum rule { AS_GIVEN, LOWER, FULL } rule;

/* Functions made of several ops, and ops whose builders are functions of others; what is not named
 * is as its flags say, and else as given. */
typedef struct function_rule {
    const char *name;
    rule rule;
    int rounded; /* how many operands, from the first; the others stay f32 */
} function_rule;
static const function_rule function_rules[] = {
    { "matmul", LOWER, 2 },
    { "affine", LOWER, 2 },
    { "linear", LOWER, 2 },
    { "dot", LOWER, 2 },
    { "einsum", LOWER, 3 },
    { "einsum_pair", LOWER, 3 },
    { "einsum_triple", LOWER, 3 },
    { "convolution", LOWER, 2 },
    { "convolution_grad_input", LOWER, 2 },
    { "conv_without_bias", LOWER, 2 },
    { "conv_transpose", LOWER, 2 },
    { "attention_result", LOWER, 3 },
    { "attention_plain", LOWER, 3 },
    { "attention_narrow", LOWER, 1 },
    { "mean", FULL, 0 },
    { "var", FULL, 0 },
    { "std", FULL, 0 },
    { "norm", FULL, 0 },
    { "logsumexp", FULL, 0 },
    { "cross_entropy_mean", FULL, 0 },
    { "cross_entropy_soft", FULL, 0 },
    { "cross_entropy_smooth", FULL, 0 },
    { "cross_entropy_weighted", FULL, 0 },
    { "cross_entropy_soft_weighted", FULL, 0 },
    { "cross_entropy_rows", FULL, 0 },
    { "cross_entropy_probabilities", FULL, 0 },
    { "cross_entropy_probabilities_soft", FULL, 0 },
    { "nll", FULL, 0 },
    { "mse", FULL, 0 },
    { "mae", FULL, 0 },
    { "huber", FULL, 0 },
    { "smooth_l1", FULL, 0 },
    { "bce", FULL, 0 },
    { "bce_with_logits", FULL, 0 },
    { "bce_pos_weight", FULL, 0 },
    { "focal", FULL, 0 },
    { "focal_other", FULL, 0 },
    { "hinge", FULL, 0 },
    { "hinge_embedding", FULL, 0 },
    { "kl_div", FULL, 0 },
    { "kl_div_log", FULL, 0 },
    { "cosine_similarity", FULL, 0 },
    { "cosine_embedding", FULL, 0 },
    { "triplet_margin", FULL, 0 },
    { "triplet_margin_other", FULL, 0 },
    { "ctc", FULL, 0 },
    { "rms_norm", FULL, 0 },
    { "layer_norm_bias", FULL, 0 },
    { "group_norm", FULL, 0 },
    { "instance_norm", FULL, 0 },
    { "pow_scalar", FULL, 0 },
    { "rpow_scalar", FULL, 0 },
    { "digamma", FULL, 0 },
};

static function_rule rule_of(const op_row *row)
{
    for (size_t i = 0; i < sizeof function_rules / sizeof *function_rules; i++)
        if (strcmp(function_rules[i].name, row->name) == 0)
            return function_rules[i];
    const unsigned flags = row->id < GD_OP_COUNT ? gd_op_row(row->id)->flags : 0;
    return (function_rule){ row->name, (flags & GD_OP_FULL) ? FULL : AS_GIVEN, 0 };
}

/* The row's result as a tensor of the open scope, of operands that are rounded to bf16, widened to
 * f32, or neither. */
static gd_tensor *build(gd_context *gd, const op_row *row, const op_case *c, const operand *o,
                        int rounded, bool widened)
{
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    if (row->flags & OP_RANDOM)
        gd_seed(gd, 11);
    for (int i = 0; i < row->operands; i++) {
        in[i] = operand_place(gd, &o[i], false).view;
        if (i < rounded && o[i].dtype == GD_F32)
            in[i] = gd_cast(gd_cast(in[i], GD_BF16), GD_F32);
        if (widened && o[i].dtype == GD_BF16)
            in[i] = gd_cast(in[i], GD_F32);
    }
    return row->build(gd, in, c->p);
}

/* What the row gives in a scope of bf16 is what it gives outside of operands as the rule has them,
 * and the rule says what dtype that has. */
static void try_row(gd_context *gd, const op_row *row, const op_case *c, gd_dtype dtype)
{
    const function_rule f = rule_of(row);
    numbers n = numbers_of(row, 17);
    operand o[OP_MAX_OPERANDS];
    char what[100];
    snprintf(what, sizeof what, "%s of %s", row->name, gd_dtype_name(dtype));
    for (int i = 0; i < row->operands; i++)
        o[i] = operand_make(row, c, i, dtype, LAYOUT_CONTIGUOUS, false, &n);
    gd_scope_begin(gd);
    const bool lowers = f.rule == LOWER && dtype == GD_F32;
    gd_tensor *by_rule =
        build(gd, row, c, o, lowers ? f.rounded : 0, f.rule == FULL && dtype == GD_BF16);
    reading expected = reading_take(lowers ? gd_cast(by_rule, GD_BF16) : by_rule, what);
    assert_int_equal(gd_autocast_begin(gd, GD_BF16), GD_OK);
    reading got = reading_take(build(gd, row, c, o, 0, false), what);
    assert_int_equal(gd_autocast_end(gd), GD_OK);
    if (got.dtype != expected.dtype)
        fail_msg("%s: the result is %s, expected %s", what, gd_dtype_name(got.dtype),
                 gd_dtype_name(expected.dtype));
    assert_same_bits(&expected, &got, what);
    reading_free(&expected);
    reading_free(&got);
    gd_scope_end(gd);
    for (int i = 0; i < row->operands; i++)
        operand_free(&o[i]);
}

/* Rows that are several functions, each with its rule. */
static bool is_program(const op_row *row)
{
    static const char *const names[] = { "checkpoint",         "call",
                                         "call_result",        "fused",
                                         "extra_result",       "matmul_relu_grad",
                                         "recurrent_result",   "recurrent_plain",
                                         "recurrent_positive", "adam" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(row->name, names[i]) == 0)
            return true;
    return false;
}

static void test_each_op_follows_its_rule(void **state)
{
    (void)state;
    gd_context *gd = open_reference();
    int lowered = 0, full = 0;
    for (int r = 0; r < op_row_count; r++) {
        const op_row *row = op_rows[r];
        for (int half = 0; half < 2 && row->operands > 0 && !is_program(row); half++) {
            const gd_dtype dtype = half ? GD_BF16 : GD_F32;
            if (!op_row_takes(row, dtype))
                continue;
            for (int c = 0; c < row->case_count; c++)
                try_row(gd, row, &row->cases[c], dtype);
        }
        lowered += rule_of(row).rule == LOWER;
        full += rule_of(row).rule == FULL;
    }
    assert_true(lowered > 10 && full > 50);
    close_context(gd);
}

static void expect(gd_status status, gd_status code, const char *words)
{
    assert_int_equal(status, code);
    assert_non_null(strstr(gd_error_message(), words));
    gd_error_clear();
}

/* ---- whole steps ---- */

typedef struct net {
    gd_module *module;
    gd_optimizer *optimizer;
    gd_dtype dtype;  /* of the scope that the body opens; f32: it opens none */
    bool checkpoint; /* the middle is run again for its gradient */
} net;

static gd_tensor *middle(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    net *n = user;
    gd_tensor *h = gd_nn_layer_norm(n->module, "norm", in[0]);
    h = gd_add(gd_nn_multi_head_attention(n->module, "attention", h, 2, .causal = true), in[0]);
    return gd_dropout(gd_gelu(gd_nn_linear(n->module, "wide", h, 24)), 0.25);
}

static gd_tensor *loss_of(net *n, gd_tensor *const *in)
{
    gd_tensor *h = gd_nn_linear(n->module, "in", in[0], 8);
    h = n->checkpoint ? gd_checkpoint(middle, n, 1, &h) : middle(n, 1, &h);
    return gd_cross_entropy(gd_nn_linear(n->module, "out", h, 5), in[1]);
}

static gd_tensor *train(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    net *n = user;
    gd_context *gd = gd_module_context(n->module);
    if (n->dtype != GD_F32)
        (void)gd_autocast_begin(gd, n->dtype);
    gd_tensor *loss = loss_of(n, in);
    if (n->dtype != GD_F32)
        (void)gd_autocast_end(gd);
    return gd_minimize(n->optimizer, loss);
}

static net net_new(gd_context *gd, gd_dtype dtype)
{
    net n = { .module = gd_module_create(gd, .seed = 3), .dtype = dtype };
    n.optimizer = gd_adam(n.module, .lr = 1e-2);
    assert_non_null(n.optimizer);
    return n;
}

static void inputs_new(gd_context *gd, gd_tensor *in[2])
{
    assert_int_equal(gd_seed(gd, 5), GD_OK);
    in[0] = gd_normal(gd, GD_SHAPE(4, 6, 7), 0, 1, GD_F32);
    in[1] = gd_randint(gd, GD_SHAPE(4, 6), 0, 5, GD_I64);
    assert_true(in[0] && in[1]);
}

/* Steps in `mode`; `outside`: the scope is open around the calls. */
static void run_steps(gd_context *gd, net *n, gd_mode mode, bool outside)
{
    gd_tensor *in[2];
    inputs_new(gd, in);
    gd_function *f = gd_compile(gd, train, n, .mode = mode);
    const gd_dtype dtype = n->dtype;
    if (outside) {
        assert_int_equal(gd_autocast_begin(gd, dtype), GD_OK);
        n->dtype = GD_F32;
    }
    for (int i = 0; i < 4; i++)
        if (!gd_call(f, 2, in))
            fail_msg("%s", gd_error_message());
    if (outside)
        assert_int_equal(gd_autocast_end(gd), GD_OK);
    n->dtype = dtype;
}

static void assert_same_parameters(const net *a, const net *b, const char *what)
{
    assert_int_equal(gd_module_count(a->module), gd_module_count(b->module));
    for (int i = 0; i < gd_module_count(a->module); i++) {
        assert_int_equal(gd_tensor_dtype(gd_module_tensor(a->module, i)), GD_F32);
        reading x = reading_take(gd_module_tensor(a->module, i), what);
        reading y = reading_take(gd_module_tensor(b->module, i), what);
        assert_same_bits(&x, &y, what);
        reading_free(&x);
        reading_free(&y);
    }
}

/* Eager, compiled and lazy, the scope within the body and around the call, with one thread and with
 * three, with a block that is run again: the same bits; and other ones than without a scope. */
static void test_steps_agree(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_BF16, GD_F16 };
    for (int d = 0; d < 2; d++) {
        gd_context *gd = gd_open("cpu", .threads = 1), *wide = gd_open("cpu", .threads = 3);
        net first = net_new(gd, dtypes[d]), plain = net_new(gd, GD_F32);
        run_steps(gd, &first, GD_MODE_EAGER, false);
        run_steps(gd, &plain, GD_MODE_EAGER, false);
        for (int k = 0; k < 6; k++) {
            gd_context *c = k < 4 ? gd : wide;
            net other = net_new(c, dtypes[d]);
            other.checkpoint = k == 3 || k == 5;
            run_steps(c, &other,
                      k == 1   ? GD_MODE_LAZY
                      : k == 2 ? GD_MODE_EAGER
                               : GD_MODE_COMPILED,
                      k == 2 || k == 4);
            assert_same_parameters(&first, &other, "another way");
        }
        float a[7 * 8], b[7 * 8];
        assert_int_equal(
            gd_tensor_read(gd_module_parameter(first.module, "in.weight"), a, sizeof a), GD_OK);
        assert_int_equal(
            gd_tensor_read(gd_module_parameter(plain.module, "in.weight"), b, sizeof b), GD_OK);
        assert_memory_not_equal(a, b, sizeof a);
        for (int i = 0; i < 7 * 8; i++)
            assert_true(fabsf(a[i] - b[i]) < 0.05f);
        gd_close(gd);
        gd_close(wide);
    }
}

/* One function, called in three scopes: three plans, each with its own numbers. */
static gd_tensor *product(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_matmul(in[0], in[1]);
}

static void test_functions_are_traced_for_each_scope(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    gd_tensor *in[2] = { gd_normal(gd, GD_SHAPE(5, 6), 0, 1, GD_F32),
                         gd_normal(gd, GD_SHAPE(6, 3), 0, 1, GD_F32) };
    gd_function *f = gd_compile(gd, product, NULL);
    static const gd_dtype dtypes[] = { GD_F32, GD_BF16, GD_F16 };
    for (int k = 0; k < 6; k++) {
        assert_int_equal(gd_autocast_begin(gd, dtypes[k % 3]), GD_OK);
        assert_int_equal(gd_autocast_get(gd), dtypes[k % 3]);
        gd_tensor *r = gd_call(f, 2, in);
        assert_int_equal(gd_tensor_dtype(r), dtypes[k % 3]);
        reading x = reading_take(r, "compiled"), y = reading_take(gd_matmul(in[0], in[1]), "eager");
        assert_same_bits(&x, &y, "a function in a scope");
        reading_free(&x);
        reading_free(&y);
        assert_int_equal(gd_autocast_end(gd), GD_OK);
    }
    assert_int_equal(gd_function_stats(f).traces, 3);
    gd_close(gd);
}

/* Gradients of f32 leaves are f32, and the same whether the walk is in the scope or not. */
static void test_derivatives_need_no_scope(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    reading of[2][2];
    for (int inside = 0; inside < 2; inside++) {
        gd_seed(gd, 1);
        gd_tensor *x = gd_normal(gd, GD_SHAPE(5, 6), 0, 1, GD_F32);
        gd_tensor *w = gd_set_requires_grad(gd_normal(gd, GD_SHAPE(6, 3), 0, 1, GD_F32), true);
        gd_tensor *b = gd_set_requires_grad(gd_normal(gd, GD_SHAPE(3), 0, 1, GD_F32), true);
        assert_int_equal(gd_autocast_begin(gd, GD_BF16), GD_OK);
        gd_tensor *y = gd_linear(x, w, b);
        assert_int_equal(gd_tensor_dtype(y), GD_BF16);
        gd_tensor *loss =
            gd_sum(gd_softmax(gd_matmul(gd_relu(y), gd_transpose(w, 0, 1)), 1), GD_AXES(0), false);
        loss = gd_mse(loss, gd_zeros(gd, GD_SHAPE(6), GD_F32));
        assert_int_equal(gd_tensor_dtype(loss), GD_F32);
        if (!inside)
            assert_int_equal(gd_autocast_end(gd), GD_OK);
        assert_int_equal(gd_backward(loss), GD_OK);
        if (inside)
            assert_int_equal(gd_autocast_end(gd), GD_OK);
        assert_int_equal(gd_tensor_dtype(gd_gradient(w)), GD_F32);
        of[inside][0] = reading_take(gd_gradient(w), "weight");
        of[inside][1] = reading_take(gd_gradient(b), "bias");
    }
    for (int i = 0; i < 2; i++) {
        assert_same_bits(&of[0][i], &of[1][i], "gradients in and outside of the scope");
        reading_free(&of[0][i]);
        reading_free(&of[1][i]);
    }
    gd_close(gd);
}

/* An update is what it is without a scope, of f32 parameters and of bf16 ones. */
static void test_optimizers_compute_as_without(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    reading of[2];
    for (int inside = 0; inside < 2; inside++) {
        gd_module *m = gd_module_create(gd);
        gd_seed(gd, 2);
        gd_tensor *w = gd_set_requires_grad(gd_normal(gd, GD_SHAPE(40), 0, 1, GD_F32), true);
        assert_int_equal(gd_module_put(m, "w", w, true), GD_OK);
        gd_optimizer *o = gd_lamb(m, .lr = 1e-2, .weight_decay = 0.1);
        assert_non_null(w);
        gd_optimizer_clip_norm(o, 0.5);
        if (inside)
            assert_int_equal(gd_autocast_begin(gd, GD_BF16), GD_OK);
        assert_int_equal(gd_backward(gd_square(w)), GD_OK);
        assert_int_equal(gd_optimizer_step(o), GD_OK);
        if (inside)
            assert_int_equal(gd_autocast_end(gd), GD_OK);
        of[inside] = reading_take(w, "parameter");
    }
    assert_same_bits(&of[0], &of[1], "an update");
    reading_free(&of[0]);
    reading_free(&of[1]);
    gd_close(gd);
}

/* All steps of a network in one call: the inputs' share and the weight are rounded, what is between
 * the steps is not. */
static void test_recurrent_layers(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    gd_tensor *z = gd_normal(gd, GD_SHAPE(2, 5, 12), 0, 1, GD_F32);
    gd_tensor *u = gd_normal(gd, GD_SHAPE(3, 12), 0, 1, GD_F32);
    gd_tensor *b = gd_normal(gd, GD_SHAPE(12), 0, 1, GD_F32);
    for (int plain = 0; plain < 2; plain++) {
        assert_int_equal(gd_autocast_begin(gd, GD_BF16), GD_OK);
        gd_tensor *h = gd_recurrent(z, u, b, GD_CELL_LSTM, .plain = plain != 0);
        assert_int_equal(gd_autocast_end(gd), GD_OK);
        gd_tensor *rounded_z = gd_cast(gd_cast(z, GD_BF16), GD_F32);
        gd_tensor *rounded_u = gd_cast(gd_cast(u, GD_BF16), GD_F32);
        gd_tensor *by_hand =
            gd_recurrent(rounded_z, rounded_u, b, GD_CELL_LSTM, .plain = plain != 0);
        reading x = reading_take(h, "in a scope");
        reading y = reading_take(gd_cast(by_hand, GD_BF16), "by hand");
        assert_same_bits(&x, &y, "a recurrent layer");
        reading_free(&x);
        reading_free(&y);
    }
    gd_close(gd);
}

static gd_tensor *attend(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mean(gd_matmul(gd_attention(in[0], in[0], in[0]), in[1]), GD_AXES(1), false);
}

/* A map over samples, in the scope, gives what each sample does by itself. */
static void test_maps(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    gd_tensor *x = gd_normal(gd, GD_SHAPE(3, 2, 4, 5), 0, 1, GD_F32);
    gd_tensor *w = gd_normal(gd, GD_SHAPE(5, 2), 0, 1, GD_F32);
    assert_int_equal(gd_autocast_begin(gd, GD_BF16), GD_OK);
    gd_tensor *element[2], *all;
    gd_vmap *map =
        gd_vmap_begin(2, (gd_tensor *[]){ x, w }, (const bool[]){ true, false }, element);
    gd_tensor *each = attend(NULL, 2, element);
    if (gd_vmap_end(map, 1, &each, &all) != GD_OK)
        fail_msg("%s", gd_error_message());
    for (int i = 0; i < 3; i++) {
        gd_tensor *one = attend(NULL, 2, (gd_tensor *[]){ gd_select(x, 0, i), w });
        reading a = reading_take(gd_select(all, 0, i), "mapped"), b = reading_take(one, "alone");
        assert_close(&b, &a, 1, "a map in a scope");
        reading_free(&a);
        reading_free(&b);
    }
    assert_int_equal(gd_autocast_end(gd), GD_OK);
    gd_close(gd);
}

/* ---- scaled losses ---- */

typedef struct scaled {
    gd_optimizer *optimizer;
    gd_tensor *w;
    bool by_hand; /* gd_backward and gd_optimizer_step */
} scaled;

/* The loss is sum(w * x): the gradient is x. */
static gd_tensor *linear_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    scaled *s = user;
    gd_tensor *loss = gd_sum(gd_mul(s->w, in[0]), GD_ALL_AXES, false);
    if (!s->by_hand)
        return gd_minimize(s->optimizer, loss);
    return gd_optimizer_zero_grad(s->optimizer) == GD_OK &&
                   gd_backward(gd_scale_loss(s->optimizer, loss)) == GD_OK &&
                   gd_optimizer_step(s->optimizer) == GD_OK
               ? loss
               : NULL;
}

static scaled scaled_new(gd_context *gd, bool scales, bool by_hand)
{
    gd_module *m = gd_module_create(gd);
    scaled s = { .w = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(3), GD_F32), true),
                 .by_hand = by_hand };
    assert_int_equal(gd_module_put(m, "w", s.w, true), GD_OK);
    s.optimizer = gd_adam(m, .lr = 0.125);
    gd_optimizer_clip_norm(s.optimizer, 4);
    if (scales)
        assert_int_equal(gd_optimizer_scale_losses(s.optimizer, .initial = 1024, .interval = 3),
                         GD_OK);
    return s;
}

static void expect_w(const scaled *s, const float expected[3])
{
    float w[3];
    assert_int_equal(gd_tensor_read(s->w, w, sizeof w), GD_OK);
    for (int i = 0; i < 3; i++)
        if (w[i] != expected[i])
            fail_msg("w[%d] is %.9g, expected %.9g", i, (double)w[i], (double)expected[i]);
}

/* With powers of 2 the updates are those without a scale, bit for bit; a step with an infinity or a
 * NaN changes nothing but the factor; after three finite ones it grows. In a file, too. */
static void test_losses_are_scaled(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    static const float gradients[8][3] = { { 1, -2, 0.5f }, { 3, 0, 1 },  { 1, INFINITY, 0 },
                                           { 2, 2, 2 },     { 0, 1, -1 }, { NAN, 0, 0 },
                                           { 1, 1, 1 },     { 4, -4, 9 } };
    static const double factors[8] = { 1024, 1024, 512, 512, 512, 256, 256, 256 };
    for (int k = 0; k < 6; k++) {
        const gd_mode mode = k % 3 == 0   ? GD_MODE_EAGER
                             : k % 3 == 1 ? GD_MODE_COMPILED
                                          : GD_MODE_LAZY;
        scaled with = scaled_new(gd, true, k > 2), without = scaled_new(gd, false, k > 2);
        gd_function *f = gd_compile(gd, linear_step, &with, .mode = mode);
        gd_function *g = gd_compile(gd, linear_step, &without, .mode = mode);
        assert_true(gd_optimizer_loss_scale(with.optimizer) == 1024);
        assert_true(gd_optimizer_loss_scale(without.optimizer) == 1);
        for (int i = 0; i < 8; i++) {
            gd_tensor *x = gd_from_host(gd, GD_SHAPE(3), GD_F32, gradients[i]);
            const float sum = gradients[i][0] + gradients[i][1] + gradients[i][2];
            if (!gd_call(f, 1, &x) || (isfinite(sum) && !gd_call(g, 1, &x)))
                fail_msg("%s", gd_error_message());
            float expected[3];
            assert_int_equal(gd_tensor_read(without.w, expected, sizeof expected), GD_OK);
            expect_w(&with, expected);
            if (gd_optimizer_loss_scale(with.optimizer) != factors[i])
                fail_msg("step %d: the factor is %g", i, gd_optimizer_loss_scale(with.optimizer));
        }
        gd_tensor *x = gd_from_host(gd, GD_SHAPE(3), GD_F32, gradients[0]);
        assert_non_null(gd_call(f, 1, &x));
        assert_true(gd_optimizer_loss_scale(with.optimizer) == 512); /* the third in a row */
    }
    gd_close(gd);
}

static void test_factors_are_state(void **state)
{
    (void)state;
#ifndef GD_HAVE_JANSSON
    skip(); /* headers of safetensors need it */
#endif
    gd_context *gd = gd_open("cpu");
    scaled a = scaled_new(gd, true, false), b = scaled_new(gd, true, false),
           plain = scaled_new(gd, false, false);
    gd_tensor *x = gd_full(gd, GD_SHAPE(3), NAN, GD_F32);
    assert_non_null(linear_step(&a, 1, &x));
    assert_true(gd_optimizer_loss_scale(a.optimizer) == 512);
    const char *path = GD_BINARY_DIR "/tests/scaled.safetensors";
    assert_int_equal(gd_optimizer_save(a.optimizer, path), GD_OK);
    assert_int_equal(gd_optimizer_load(b.optimizer, path), GD_OK);
    assert_true(gd_optimizer_loss_scale(b.optimizer) == 512);
    expect(gd_optimizer_load(plain.optimizer, path), GD_ERR_FORMAT, "loss_scale");
    remove(path);
    expect(gd_optimizer_scale_losses(NULL), GD_ERR_INVALID, "NULL");
    expect(gd_optimizer_scale_losses(plain.optimizer, .initial = 0), GD_ERR_INVALID, "initial 0");
    expect(gd_optimizer_scale_losses(plain.optimizer, .growth = 0.5), GD_ERR_INVALID, "growth 0.5");
    expect(gd_optimizer_scale_losses(plain.optimizer, .backoff = 2), GD_ERR_INVALID, "backoff 2");
    expect(gd_optimizer_scale_losses(plain.optimizer, .interval = 0), GD_ERR_INVALID, "interval 0");
    assert_null(gd_scale_loss(NULL, x));
    gd_error_clear();
    gd_close(gd);
}

/* ---- scopes ---- */

static gd_tensor *opens(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    (void)gd_autocast_begin(gd_tensor_context(in[0]), GD_BF16);
    return gd_matmul(in[0], in[0]);
}

static void test_scopes(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    expect(gd_autocast_begin(NULL, GD_BF16), GD_ERR_INVALID, "NULL");
    expect(gd_autocast_begin(gd, GD_F64), GD_ERR_DTYPE, "given f64");
    expect(gd_autocast_end(gd), GD_ERR_STATE, "without");
    expect(gd_autocast_end(NULL), GD_ERR_STATE, "without");
    assert_int_equal(gd_autocast_get(NULL), GD_F32);
    for (int i = 0; i < 32; i++)
        assert_int_equal(gd_autocast_begin(gd, i % 2 ? GD_F16 : GD_BF16), GD_OK);
    expect(gd_autocast_begin(gd, GD_BF16), GD_ERR_STATE, "32");
    for (int i = 31; i >= 0; i--) {
        assert_int_equal(gd_autocast_get(gd), i % 2 ? GD_F16 : GD_BF16);
        assert_int_equal(gd_autocast_end(gd), GD_OK);
    }
    assert_int_equal(gd_autocast_get(gd), GD_F32);
    gd_tensor *x = gd_normal(gd, GD_SHAPE(4, 4), 0, 1, GD_F32);
    gd_function *f = gd_compile(gd, opens, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gd_tensor_dtype(gd_call(f, 1, &x)), GD_BF16);
        assert_int_equal(gd_autocast_get(gd), GD_F32); /* the body's scope ended with it */
    }
    gd_close(gd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_op_follows_its_rule),
        cmocka_unit_test(test_steps_agree),
        cmocka_unit_test(test_functions_are_traced_for_each_scope),
        cmocka_unit_test(test_derivatives_need_no_scope),
        cmocka_unit_test(test_optimizers_compute_as_without),
        cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_losses_are_scaled),
        cmocka_unit_test(test_factors_are_state),
        cmocka_unit_test(test_scopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
