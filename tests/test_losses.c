/* tests/test_losses.c: losses and their gradients against PyTorch (goldens/losses.h), eagerly and
 * compiled, and what their options may not be. Finite differences, layouts and dtypes are tested by
 * the rows of support/op_rows_loss.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "support/context.h"

typedef struct golden {
    const char *name, *call;
    char by; /* the operand the gradient is taken by */
    double value;
    double gradient[105];
} golden;

#include "goldens/losses.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* The operands, by the names the calls have for them. */
typedef struct operands {
    gd_tensor *x, *y, *z, *p, *q, *w, *s, *signs, *c;
    gd_tensor *t, *labels, *times, *lengths;
} operands;

static operands make_operands(gd_context *gd)
{
    gd_shape table = GD_SHAPE(4, 5);
    return (operands){
        .x = gd_from_host(gd, table, GD_F32, operand_x),
        .y = gd_from_host(gd, table, GD_F32, operand_y),
        .z = gd_from_host(gd, table, GD_F32, operand_z),
        .p = gd_from_host(gd, table, GD_F32, operand_p),
        .q = gd_from_host(gd, table, GD_F32, operand_q),
        .w = gd_from_host(gd, GD_SHAPE(5), GD_F32, operand_w),
        .s = gd_from_host(gd, GD_SHAPE(4), GD_F32, operand_s),
        .signs = gd_from_host(gd, table, GD_F32, operand_signs),
        .c = gd_from_host(gd, GD_SHAPE(7, 3, 5), GD_F32, operand_c),
        .t = gd_from_host(gd, GD_SHAPE(4), GD_I64, operand_t),
        .labels = gd_from_host(gd, GD_SHAPE(3, 4), GD_I64, operand_labels),
        .times = gd_from_host(gd, GD_SHAPE(3), GD_I64, operand_times),
        .lengths = gd_from_host(gd, GD_SHAPE(3), GD_I64, operand_lengths),
    };
}

/* ---- the rows of goldens/losses.h, by name, as they are called here ---- */

#define LOSS(name, call)                             \
    static gd_tensor *loss_##name(const operands *o) \
    {                                                \
        gd_tensor *x = o->x, *y = o->y, *c = o->c;   \
        (void)x, (void)y, (void)c;                   \
        return call;                                 \
    }
LOSS(cross_entropy, gd_cross_entropy(x, o->t))
LOSS(cross_entropy_sum, gd_cross_entropy(x, o->t, .reduction = GD_REDUCE_SUM))
LOSS(cross_entropy_weight, gd_cross_entropy(x, o->t, .weight = o->w))
LOSS(cross_entropy_ignore, gd_cross_entropy(x, o->t, .weight = o->w, .ignore_index = 4))
LOSS(cross_entropy_smooth, gd_cross_entropy(x, o->t, .label_smoothing = 0.1))
LOSS(cross_entropy_all,
     gd_cross_entropy(x, o->t, .weight = o->w, .label_smoothing = 0.2, .ignore_index = 0))
LOSS(cross_entropy_soft, gd_cross_entropy(x, o->q))
LOSS(cross_entropy_soft_all, gd_cross_entropy(x, o->q, .weight = o->w, .label_smoothing = 0.2))
LOSS(cross_entropy_rows,
     gd_cross_entropy(gd_reshape(x, GD_SHAPE(2, 2, 5)), gd_reshape(o->t, GD_SHAPE(2, 2))))
LOSS(nll, gd_nll(x, o->t, .weight = o->w, .ignore_index = 1))
LOSS(bce, gd_bce(o->p, o->q, .reduction = GD_REDUCE_SUM))
LOSS(bce_weight, gd_bce(o->p, o->q, .weight = o->w))
LOSS(bce_with_logits, gd_bce_with_logits(x, o->q))
LOSS(bce_with_logits_all, gd_bce_with_logits(x, o->q, .weight = o->w, .positive_weight = o->w))
LOSS(kl_div, gd_kl_div(x, o->q, .reduction = GD_REDUCE_BATCH_MEAN))
LOSS(kl_div_mean, gd_kl_div(x, o->q))
LOSS(kl_div_log, gd_kl_div(x, y, .log_target = true))
LOSS(mse, gd_mse(x, y))
LOSS(mae, gd_mae(x, y))
LOSS(huber, gd_huber(x, y, .delta = 0.75))
LOSS(smooth_l1, gd_smooth_l1(x, y))
LOSS(smooth_l1_beta, gd_smooth_l1(x, y, .delta = 0.5, .reduction = GD_REDUCE_SUM))
LOSS(hinge, gd_hinge(x, o->signs))
LOSS(hinge_embedding, gd_hinge_embedding(x, o->signs, .margin = 1.5))
LOSS(focal, gd_focal(x, o->q))
LOSS(focal_other, gd_focal(x, o->q, .alpha = NAN, .gamma = 1.5, .reduction = GD_REDUCE_SUM))
LOSS(cosine_similarity, gd_sum(gd_cosine_similarity(x, y, 0), GD_ALL_AXES, false))
LOSS(cosine_embedding, gd_cosine_embedding(x, y, o->s, .margin = -0.5))
LOSS(triplet_margin, gd_triplet_margin(x, y, o->z))
LOSS(triplet_margin_all,
     gd_triplet_margin(x, y, o->z, .margin = 2, .p = 3, .swap = true, .reduction = GD_REDUCE_SUM))
LOSS(ctc, gd_ctc(gd_log_softmax(c, 2), o->labels, o->times, o->lengths))
LOSS(ctc_sum, gd_ctc(gd_log_softmax(c, 2), o->labels, o->times, o->lengths, .blank = 3,
                     .reduction = GD_REDUCE_SUM))

/* Four steps are too few for the classes 1, 2, 2, 4. */
static gd_tensor *loss_ctc_infinite(const operands *o)
{
    gd_context *gd = gd_tensor_context(o->c);
    gd_tensor *first = gd_eq(gd_arange(gd, 0, 3, 1, GD_I64), gd_scalar(gd, 0, GD_I64));
    gd_tensor *times = gd_where(first, gd_scalar(gd, 4, GD_I64), o->times);
    return gd_ctc(gd_log_softmax(o->c, 2), o->labels, times, o->lengths, .reduction = GD_REDUCE_SUM,
                  .zero_infinity = true);
}

typedef struct loss_row {
    const char *name;
    gd_tensor *(*loss)(const operands *o);
} loss_row;
#define ROW(name)          \
    {                      \
#name, loss_##name \
    }
static const loss_row rows[] = {
    ROW(cross_entropy),
    ROW(cross_entropy_sum),
    ROW(cross_entropy_weight),
    ROW(cross_entropy_ignore),
    ROW(cross_entropy_smooth),
    ROW(cross_entropy_all),
    ROW(cross_entropy_soft),
    ROW(cross_entropy_soft_all),
    ROW(cross_entropy_rows),
    ROW(nll),
    ROW(bce),
    ROW(bce_weight),
    ROW(bce_with_logits),
    ROW(bce_with_logits_all),
    ROW(kl_div),
    ROW(kl_div_mean),
    ROW(kl_div_log),
    ROW(mse),
    ROW(mae),
    ROW(huber),
    ROW(smooth_l1),
    ROW(smooth_l1_beta),
    ROW(hinge),
    ROW(hinge_embedding),
    ROW(focal),
    ROW(focal_other),
    ROW(cosine_similarity),
    ROW(cosine_embedding),
    ROW(triplet_margin),
    ROW(triplet_margin_all),
    ROW(ctc),
    ROW(ctc_sum),
    ROW(ctc_infinite),
};
_Static_assert(COUNT(rows) == COUNT(goldens), "a golden value for each row, and the other way");

typedef struct body {
    const operands *o;
    const loss_row *row;
    char by;
} body;

static gd_tensor *run(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const body *b = user;
    operands o = *b->o;
    *(b->by == 'x' ? &o.x : b->by == 'p' ? &o.p : &o.c) = in[0];
    gd_tensor *loss = b->row->loss(&o), *d;
    if (!loss || gd_grad(1, &loss, NULL, 1, in, &d) != GD_OK)
        return NULL;
    return gd_concat(
        2, (gd_tensor *[]){ gd_reshape(loss, GD_SHAPE(1)), gd_reshape(d, GD_SHAPE(-1)) }, 0);
}

static void check(const golden *g, float got, double expected, int i)
{
    if (!(fabs((double)got - expected) <= 2e-6 * (0.1 + fabs(expected))))
        fail_msg("%s: number %d is %.9g, PyTorch has %.9g", g->call, i, (double)got, expected);
}

static void losses_and_gradients_equal_pytorch(void **state)
{
    operands o = make_operands(*state);
    for (int r = 0; r < COUNT(rows); r++) {
        const golden *g = &goldens[r];
        assert_string_equal(g->name, rows[r].name);
        body b = { &o, &rows[r], g->by };
        gd_tensor *in = g->by == 'x' ? o.x : g->by == 'p' ? o.p : o.c;
        assert_non_null(gd_set_requires_grad(in, true));
        int count = 1 + (int)gd_tensor_count(in);
        float got[2][106];
        for (int mode = GD_MODE_COMPILED; mode <= GD_MODE_EAGER; mode++) {
            gd_function *f = gd_compile(*state, run, &b, .mode = (gd_mode)mode);
            gd_tensor *result = gd_call(f, 1, &in);
            if (!result)
                fail_msg("%s: %s", g->call, gd_error_message());
            assert_int_equal(gd_tensor_read(result, got[mode], (size_t)count * sizeof(float)),
                             GD_OK);
            gd_function_release(f);
        }
        check(g, got[0][0], g->value, 0);
        for (int i = 1; i < count; i++)
            check(g, got[0][i], g->gradient[i - 1], i);
        assert_memory_equal(got[0], got[1], (size_t)count * sizeof(float));
    }
}

/* The functions of the same names do what the macros do without options. */
static void functions_stand_behind_the_macros(void **state)
{
    operands o = make_operands(*state);
    gd_tensor *(*const two[])(gd_tensor *, gd_tensor *) = {
        gd_cross_entropy,   gd_mse,   gd_mae,    gd_huber,          gd_smooth_l1, gd_hinge,
        gd_hinge_embedding, gd_focal, gd_kl_div, gd_bce_with_logits
    };
    gd_tensor *const expected[] = {
        gd_cross_entropy(o.x, o.q),   gd_mse(o.x, o.q),       gd_mae(o.x, o.q),
        gd_huber(o.x, o.q),           gd_smooth_l1(o.x, o.q), gd_hinge(o.x, o.q),
        gd_hinge_embedding(o.x, o.q), gd_focal(o.x, o.q),     gd_kl_div(o.x, o.q),
        gd_bce_with_logits(o.x, o.q)
    };
    for (int i = 0; i < COUNT(two); i++)
        assert_true(gd_item(two[i](o.x, o.q)) == gd_item(expected[i]));
    assert_true(gd_item((gd_bce)(o.p, o.q)) == gd_item(gd_bce(o.p, o.q)));
    assert_true(gd_item((gd_nll)(o.x, o.t)) == gd_item(gd_nll(o.x, o.t)));
    assert_true(gd_item((gd_cosine_embedding)(o.x, o.y, o.s)) ==
                gd_item(gd_cosine_embedding(o.x, o.y, o.s)));
    assert_true(gd_item((gd_triplet_margin)(o.x, o.y, o.z)) ==
                gd_item(gd_triplet_margin(o.x, o.y, o.z)));
}

/* F.binary_cross_entropy(torch.tensor([0., 1.]), torch.tensor([.25, .25]), reduction="none") gives
 * [25, 75]; the gradient is the other logarithm's alone. */
static void bce_is_bounded_at_the_ends(void **state)
{
    const float ends[2] = { 0.0f, 1.0f };
    gd_tensor *p = gd_set_requires_grad(gd_from_host(*state, GD_SHAPE(2), GD_F32, ends), true);
    gd_tensor *y = gd_full(*state, GD_SHAPE(2), 0.25, GD_F32), *d;
    gd_tensor *each = gd_bce(p, y, .reduction = GD_REDUCE_NONE);
    float got[2];
    assert_int_equal(gd_tensor_read(each, got, sizeof got), GD_OK);
    assert_true(got[0] == 25.0f && got[1] == 75.0f);
    assert_int_equal(gd_grad(1, &each, NULL, 1, &p, &d), GD_OK);
    assert_int_equal(gd_tensor_read(d, got, sizeof got), GD_OK);
    assert_true(got[0] == 0.75f && got[1] == -0.25f);
}

static void losses_do_not_overflow(void **state)
{
    const float far[3] = { 200.0f, -200.0f, 0.0f }, truth[3] = { 0.0f, 1.0f, 0.0f };
    gd_tensor *x = gd_set_requires_grad(gd_from_host(*state, GD_SHAPE(3), GD_F32, far), true);
    gd_tensor *y = gd_from_host(*state, GD_SHAPE(3), GD_F32, truth), *d;
    gd_tensor *losses[] = { gd_bce_with_logits(x, y), gd_focal(x, y),
                            gd_cosine_similarity(x, gd_zeros_like(x), 0) };
    for (int i = 0; i < COUNT(losses); i++) {
        assert_true(isfinite(gd_item(losses[i])));
        assert_int_equal(gd_grad(1, &losses[i], NULL, 1, &x, &d), GD_OK);
        assert_true(isfinite(gd_item(gd_sum(d, GD_ALL_AXES, false))));
    }
}

/* Of a target that cannot be aligned, without zero_infinity. */
static void an_impossible_alignment_is_infinite(void **state)
{
    operands o = make_operands(*state);
    gd_tensor *c = gd_set_requires_grad(o.c, true), *d;
    gd_tensor *short_times = gd_full(*state, GD_SHAPE(3), 1, GD_I64);
    gd_tensor *loss = gd_ctc(gd_log_softmax(c, 2), o.labels, short_times, o.lengths);
    assert_true(gd_item(loss) == INFINITY);
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &c, &d), GD_OK);
    assert_true(gd_item(gd_sum(gd_abs(d), GD_ALL_AXES, false)) == 0.0);
    gd_tensor *none = gd_full(*state, GD_SHAPE(3), 0, GD_I64);
    gd_tensor *empty =
        gd_ctc(gd_log_softmax(c, 2), o.labels, o.times, none, .reduction = GD_REDUCE_NONE);
    gd_tensor *blanks = gd_neg(
        gd_sum(gd_slice(gd_select(gd_log_softmax(c, 2), 1, 1), 0, 0, 5, 1), GD_AXES(0), false));
    float got[3], want[5];
    assert_int_equal(gd_tensor_read(empty, got, sizeof got), GD_OK);
    assert_int_equal(gd_tensor_read(blanks, want, sizeof want), GD_OK);
    assert_true(fabsf(got[1] - want[0]) <= 1e-5f);
}

static void ctc_is_differentiated_once(void **state)
{
    operands o = make_operands(*state);
    gd_tensor *c = gd_set_requires_grad(o.c, true), *d, *dd;
    gd_tensor *loss = gd_ctc(gd_log_softmax(c, 2), o.labels, o.times, o.lengths);
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &c, &d), GD_OK);
    gd_tensor *slope = gd_sum(gd_square(d), GD_ALL_AXES, false);
    assert_int_equal(gd_grad(1, &slope, NULL, 1, &c, &dd), GD_ERR_UNSUPPORTED);
    expect_error(GD_ERR_UNSUPPORTED, "once");
}

static void wrong_options_are_errors(void **state)
{
    operands o = make_operands(*state);
    assert_null(gd_cross_entropy(o.x, o.t, .label_smoothing = 1.5));
    expect_error(GD_ERR_INVALID, "gd_cross_entropy: label_smoothing is 1.5");
    assert_null(gd_cross_entropy(o.x, o.q, .ignore_index = 0));
    expect_error(GD_ERR_INVALID, "ignore_index is for class indices");
    assert_null(gd_cross_entropy(o.x, o.t, .weight = o.s));
    expect_error(GD_ERR_SHAPE, "weight [4]; one number for each of 5 classes");
    assert_null(gd_cross_entropy(o.x, o.t, .reduction = (gd_reduction)9));
    expect_error(GD_ERR_INVALID, "9 is no reduction");
    assert_null(gd_cross_entropy(o.x, o.labels));
    expect_error(GD_ERR_SHAPE, "scores [4, 5] and target [3, 4]");
    assert_null(gd_mse(o.x, o.w));
    expect_error(GD_ERR_SHAPE, "gd_mse: shapes [4, 5] and [5] differ");
    assert_null(gd_huber(o.x, o.y, .delta = -1));
    expect_error(GD_ERR_INVALID, "gd_huber: delta is -1");
    assert_null(gd_focal(o.x, o.y, .gamma = -1));
    expect_error(GD_ERR_INVALID, "gamma -1");
    assert_null(gd_hinge(o.x, o.y, .margin = NAN));
    expect_error(GD_ERR_INVALID, "gd_hinge: the margin is");
    assert_null(gd_triplet_margin(o.x, o.y, o.z, .p = 0.5));
    expect_error(GD_ERR_INVALID, "p is 0.5");
    assert_null(gd_ctc(o.c, o.labels, o.times, o.lengths, .blank = 5));
    expect_error(GD_ERR_INVALID, "gd_ctc: blank is 5, there are 5 classes");
    gd_tensor *nine = gd_full(*state, GD_SHAPE(3), 9, GD_I64);
    assert_true(!gd_ctc(o.c, o.labels, nine, o.lengths) || gd_synchronize(*state) != GD_OK);
    expect_error(GD_ERR_INVALID, "out of range");
    assert_true(!gd_ctc(o.c, o.labels, o.times, nine) || gd_synchronize(*state) != GD_OK);
    expect_error(GD_ERR_INVALID, "out of range");
    assert_null(gd_ctc(o.c, NULL, o.times, o.lengths));
    assert_int_equal(gd_error_code(), GD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(losses_and_gradients_equal_pytorch),
        context_test(functions_stand_behind_the_macros),
        context_test(bce_is_bounded_at_the_ends),
        context_test(losses_do_not_overflow),
        context_test(an_impossible_alignment_is_infinite),
        context_test(ctc_is_differentiated_once),
        context_test(wrong_options_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
