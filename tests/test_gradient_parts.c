/* tests/test_gradient_parts.c: gradients of slices and gathered rows of one tensor, which the walk
 * puts together at once (graph/autograd.c): values, eager against compiled, and what is not copied.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "support/context.h"

enum { ROWS = 5, COLUMNS = 70, MOST_CUTS = COLUMNS };

typedef struct cut {
    int axis;
    int64_t start, stop, step;
} cut;

typedef struct cuts {
    const char *name;
    int count;
    cut cut[6];
    int columns; /* and so many columns, one by one */
    bool whole;  /* and all of it */
} cuts;

static const cuts cases[] = {
    { "three that are all of it", 3, { { 1, 0, 9, 1 }, { 1, 40, 70, 1 }, { 1, 9, 40, 1 } }, 0, 0 },
    { "with gaps", 2, { { 1, 50, 60, 1 }, { 1, 3, 9, 1 } }, 0, 0 },
    { "along the first axis, and all", 2, { { 0, 3, 5, 1 }, { 0, 0, 2, 1 } }, 0, true },
    { "each column", 0, { { 0 } }, 70, 0 },
    { "some columns", 0, { { 0 } }, 33, 0 },
    { "overlapping", 3, { { 1, 0, 30, 1 }, { 1, 29, 60, 1 }, { 1, 65, 70, 1 } }, 0, 0 },
    { "the same twice", 2, { { 1, 4, 8, 1 }, { 1, 4, 8, 1 } }, 0, 0 },
    { "backwards", 2, { { 1, 30, 10, -1 }, { 1, 31, 60, 1 } }, 0, 0 },
    { "with steps", 2, { { 1, 0, 70, 2 }, { 1, 1, 70, 2 } }, 0, 0 },
    { "along both axes", 2, { { 0, 0, 2, 1 }, { 1, 0, 2, 1 } }, 0, 0 },
    { "an empty one", 3, { { 1, 5, 5, 1 }, { 1, 0, 5, 1 }, { 1, 6, 9, 1 } }, 0, 0 },
    { "one", 1, { { 0, 1, 3, 1 } }, 0, 0 },
};

typedef struct task {
    gd_tensor *x; // [ROWS, COLUMNS]
    const cuts *cuts;
} task;

/* The gradient of x by the sum of its parts, part k times k + 1. */
static gd_tensor *gradient_of_cuts(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const task *t = user;
    const cuts *c = t->cuts;
    gd_tensor *x = t->x, *total = in[0], *g;
    for (int k = 0; k < c->count + c->columns + c->whole; k++) {
        gd_tensor *part = x;
        if (k < c->count)
            part = gd_slice(x, c->cut[k].axis, c->cut[k].start, c->cut[k].stop, c->cut[k].step);
        else if (k < c->count + c->columns)
            part = gd_select(x, 1, k - c->count);
        total = gd_add(total, gd_sum(gd_mul_scalar(part, k + 1), GD_ALL_AXES, false));
    }
    return gd_grad(1, &total, NULL, 1, &x, &g) == GD_OK ? g : NULL;
}

static void add_expected(const cuts *c, float expected[ROWS][COLUMNS])
{
    for (int k = 0; k < c->count; k++) {
        cut u = c->cut[k];
        for (int64_t at = u.start; u.step > 0 ? at < u.stop : at > u.stop; at += u.step)
            for (int other = 0; other < (u.axis ? ROWS : COLUMNS); other++)
                expected[u.axis ? other : at][u.axis ? at : other] += (float)(k + 1);
    }
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++) {
            if (column < c->columns)
                expected[row][column] += (float)(c->count + column + 1);
            if (c->whole)
                expected[row][column] += (float)(c->count + c->columns + 1);
        }
}

static void slices_give_the_gradient_of_the_whole(void **state)
{
    gd_context *gd = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        task t = { gd_ones(gd, GD_SHAPE(ROWS, COLUMNS), GD_F32), &cases[i] };
        gd_set_requires_grad(t.x, true);
        gd_tensor *zero = gd_zeros(gd, GD_SCALAR, GD_F32);
        gd_tensor *eager = gradient_of_cuts(&t, 1, &zero);
        float got[ROWS][COLUMNS], expected[ROWS][COLUMNS] = { { 0 } };
        assert_int_equal(gd_tensor_read(eager, got, sizeof got), GD_OK);
        add_expected(&cases[i], expected);
        if (memcmp(got, expected, sizeof got) != 0)
            fail_msg("slices %s: another gradient", cases[i].name);
        assert_same_bits(gd_call(gd_compile(gd, gradient_of_cuts, &t), 1, &zero), eager);
    }
}

/* ---- kernels ---- */

static bool plan_has(const gd_function *f, const char *word)
{
    size_t length = gd_plan_format(f, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    (void)gd_plan_format(f, text, length + 1);
    bool has = strstr(text, word) != NULL;
    free(text);
    return has;
}

/* Pieces of one tensor, squared: their gradients are one concat, and nothing is padded. */
static void pieces_are_put_side_by_side(void **state)
{
    gd_context *gd = *state;
    task t = { gd_ones(gd, GD_SHAPE(ROWS, COLUMNS), GD_F32), &cases[0] };
    gd_set_requires_grad(t.x, true);
    gd_tensor *zero = gd_zeros(gd, GD_SCALAR, GD_F32);
    gd_function *f = gd_compile(gd, gradient_of_cuts, &t);
    assert_int_equal(gd_function_prepare(f, 1, &zero), GD_OK);
    assert_true(plan_has(f, "concat"));
    assert_false(plan_has(f, "pad"));
}

/* ---- gathered rows ---- */

enum { TOKENS = 5, WORDS = 3000, WIDTH = 16 };

typedef struct tied {
    gd_tensor *table; // [WORDS, WIDTH]
    bool is_tied;
} tied;

static gd_tensor *loss_of(const tied *t, gd_tensor *words)
{
    gd_tensor *x = gd_embedding(words, t->table);
    gd_tensor *y = t->is_tied ? gd_matmul(x, gd_transpose(t->table, 0, 1)) : x;
    return gd_mean(gd_square(y), GD_ALL_AXES, false);
}

static gd_tensor *gradient_of_table(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    tied *t = user;
    gd_tensor *loss = loss_of(t, in[0]), *g;
    return gd_grad(1, &loss, NULL, 1, &t->table, &g) == GD_OK ? g : NULL;
}

static gd_tensor *largest_gradient(void *user, int count, gd_tensor *const *in)
{
    return gd_max(gradient_of_table(user, count, in), GD_ALL_AXES, false);
}

static gd_tensor *accumulate(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *loss = loss_of(user, in[0]);
    return gd_backward(loss) == GD_OK ? loss : NULL;
}

static tied make_table(gd_context *gd, bool is_tied, gd_dtype dtype)
{
    gd_seed(gd, 3);
    gd_tensor *table = gd_cast(gd_normal(gd, GD_SHAPE(WORDS, WIDTH), 0, 1, GD_F32), dtype);
    return (tied){ gd_set_requires_grad(table, true), is_tied };
}

static gd_tensor *some_words(gd_context *gd)
{
    return gd_mod(gd_arange(gd, 0, TOKENS, 1, GD_I64), gd_scalar(gd, 3, GD_I64));
}

/* Into the gradient that is there, in both modes, with the same bits. */
static void rows_are_added_to_what_is_there(void **state)
{
    gd_context *gd = *state;
    static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_BF16 };
    for (int i = 0; i < 6; i++) {
        tied t = make_table(gd, i % 2, dtypes[i / 2]);
        gd_tensor *words = some_words(gd);
        gd_function *f = gd_compile(gd, gradient_of_table, &t);
        assert_same_bits(gd_call(f, 1, &words), gradient_of_table(&t, 1, &words));
        assert_true(plan_has(f, "scatter_add"));

        tied u = make_table(gd, i % 2, dtypes[i / 2]);
        gd_function *step = gd_compile(gd, accumulate, &u);
        for (int call = 0; call < 3; call++) {
            assert_non_null(accumulate(&t, 1, &words));
            assert_non_null(gd_call(step, 1, &words));
            assert_same_bits(gd_gradient(t.table), gd_gradient(u.table));
        }
    }
}

/* Once there is a gradient, another few rows take no memory of its size, nor does a tied table's
 * beyond its product's. */
static void rows_are_added_in_place(void **state)
{
    gd_context *gd = *state;
    const size_t whole = WORDS * WIDTH * 4;
    gd_tensor *words = some_words(gd);
    tied t = make_table(gd, false, GD_F32);
    assert_non_null(accumulate(&t, 1, &words));
    gd_memory_reset_peak(gd);
    size_t before = gd_memory(gd).in_use;
    assert_non_null(accumulate(&t, 1, &words));
    assert_true(gd_memory(gd).peak - before < whole / 2);

    t.is_tied = true;
    gd_function *f = gd_compile(gd, largest_gradient, &t, .detached = true);
    assert_int_equal(gd_function_prepare(f, 1, &words), GD_OK);
    assert_in_range(gd_function_stats(f).arena_bytes, whole, whole + whole / 2);
    gd_function *step = gd_compile(gd, accumulate, &t); /* here the product itself is elsewhere */
    assert_int_equal(gd_function_prepare(step, 1, &words), GD_OK);
    assert_in_range(gd_function_stats(step).arena_bytes, whole, whole + whole / 2);
}

/* An index that was overwritten after it was used is an error, as for other operands. */
static void an_overwritten_index_is_caught(void **state)
{
    gd_context *gd = *state;
    tied t = make_table(gd, false, GD_F32);
    gd_tensor *words = gd_zeros(gd, GD_SHAPE(4), GD_I64);
    for (int call = 0; call < 2; call++) {
        gd_tensor *loss = loss_of(&t, words);
        static const int64_t others[4] = { 1, 2, 3, 4 };
        assert_int_equal(gd_tensor_write(words, others, sizeof others), GD_OK);
        assert_int_equal(gd_backward(loss), GD_ERR_STATE);
        expect_error(GD_ERR_STATE, "overwritten");
    }
}

/* ---- memory ---- */

static bool both_once(int argument)
{
    (void)argument;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    bool ok = gd != NULL;
    if (ok) {
        task s = { gd_set_requires_grad(gd_ones(gd, GD_SHAPE(ROWS, COLUMNS), GD_F32), true),
                   &cases[1] };
        tied t = make_table(gd, true, GD_F32);
        gd_tensor *zero = gd_zeros(gd, GD_SCALAR, GD_F32), *words = some_words(gd);
        ok = zero && words && gradient_of_cuts(&s, 1, &zero) && accumulate(&t, 1, &words);
    }
    gd_close(gd);
    return ok;
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    fail_every_allocation(both_once, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(slices_give_the_gradient_of_the_whole),
        context_test(pieces_are_put_side_by_side),
        context_test(rows_are_added_to_what_is_there),
        context_test(rows_are_added_in_place),
        context_test(an_overwritten_index_is_caught),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
