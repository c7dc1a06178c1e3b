/* tests/test_scalar_value.c: the value of the scalar engine, as a manual in examples. Read
 * src/scalar/scalar.c beside it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/scalar.h>

#include <math.h>
#include <string.h>

/* Every test starts without an error and gives back all it took. */
static int set_up(void **state)
{
    (void)state;
    gd_scalar_error_clear();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return gd_scalar_live_values() == 0 && gd_scalar_trim() == 0 ? 0 : -1;
}

static void assert_close(double actual, double expected)
{
    double error = fabs(actual - expected);
    if (!(error <= 1e-12 * fmax(1.0, fabs(expected))))
        fail_msg("%.17g is not %.17g", actual, expected);
}

/* ---- A leaf ---------------------------------------------------------------------------------- */

static void a_leaf_is_a_number_with_one_holder(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(3.5);
    assert_true(gd_value_data(a) == 3.5);
    assert_true(gd_value_grad(a) == 0.0);
    assert_int_equal(gd_value_operation(a), GD_VALUE_LEAF);
    assert_null(gd_value_operand(a, 0));
    assert_int_equal(gd_value_references(a), 1);
    assert_int_equal(gd_scalar_live_values(), 1);
    gd_value_release(a);
    assert_int_equal(gd_scalar_live_values(), 0);
}

static void only_a_leaf_can_be_set(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(1.0);
    gd_value *c = gd_value_neg(a);
    assert_int_equal(gd_value_set_data(a, 2.0), 0);
    assert_true(gd_value_data(a) == 2.0);
    assert_true(gd_value_data(c) == -1.0); /* computed before */

    assert_int_equal(gd_value_set_data(c, 2.0), -1);
    assert_true(gd_value_data(c) == -1.0);
    assert_non_null(strstr(gd_scalar_error(), "only a leaf"));
    assert_int_equal(gd_value_set_data(NULL, 2.0), -1);
    gd_value_release(c);
    gd_value_release(a);
}

/* ---- Operations: value and derivative -------------------------------------------------------- */

static gd_value *square(gd_value *a)
{
    return gd_value_pow(a, 2.0);
}

static gd_value *inverse_root(gd_value *a)
{
    return gd_value_pow(a, -0.5);
}

static gd_value *zeroth_power(gd_value *a)
{
    return gd_value_pow(a, 0.0);
}

static void operations_of_one_operand(void **state)
{
    (void)state;
    static const struct {
        gd_value *(*apply)(gd_value *);
        gd_value_op op;
        double a, c, dc_da;
    } rows[] = {
        { gd_value_neg, GD_VALUE_NEG, 3.0, -3.0, -1.0 },
        { square, GD_VALUE_POW, -3.0, 9.0, -6.0 },
        { inverse_root, GD_VALUE_POW, 4.0, 0.5, -0.0625 },
        { zeroth_power, GD_VALUE_POW, 0.0, 1.0, 0.0 },
        { gd_value_exp, GD_VALUE_EXP, 0.0, 1.0, 1.0 },
        { gd_value_exp, GD_VALUE_EXP, 1.0, 2.718281828459045, 2.718281828459045 },
        { gd_value_log, GD_VALUE_LOG, 4.0, 1.3862943611198906, 0.25 }, /* ln 4 = 2 ln 2 */
        { gd_value_relu, GD_VALUE_RELU, 2.0, 2.0, 1.0 },
        { gd_value_relu, GD_VALUE_RELU, -2.0, 0.0, 0.0 },
        { gd_value_relu, GD_VALUE_RELU, 0.0, 0.0, 0.0 },
        { gd_value_tanh, GD_VALUE_TANH, 0.0, 0.0, 1.0 },
        { gd_value_tanh, GD_VALUE_TANH, 0.5493061443340549, 0.5, 0.75 }, /* atanh 1/2 */
        { gd_value_sigmoid, GD_VALUE_SIGMOID, 0.0, 0.5, 0.25 },
        { gd_value_sigmoid, GD_VALUE_SIGMOID, 1.0986122886681098, 0.75, 0.1875 }, /* ln 3 */
        { gd_value_sigmoid, GD_VALUE_SIGMOID, -1000.0, 0.0, 0.0 },
        { gd_value_sigmoid, GD_VALUE_SIGMOID, 1000.0, 1.0, 0.0 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gd_value *a = gd_value_create_leaf(rows[i].a);
        gd_value *c = rows[i].apply(a);
        assert_int_equal(gd_value_operation(c), rows[i].op);
        assert_ptr_equal(gd_value_operand(c, 0), a);
        assert_null(gd_value_operand(c, 1));
        assert_int_equal(gd_value_backward(c), 0);
        assert_close(gd_value_data(c), rows[i].c);
        assert_close(gd_value_grad(a), rows[i].dc_da);
        gd_value_release(c);
        gd_value_release(a);
    }
}

static void operations_of_two_operands(void **state)
{
    (void)state;
    static const struct {
        gd_value *(*apply)(gd_value *, gd_value *);
        gd_value_op op;
        double a, b, c, dc_da, dc_db;
    } rows[] = {
        { gd_value_add, GD_VALUE_ADD, 2.0, -3.0, -1.0, 1.0, 1.0 },
        { gd_value_sub, GD_VALUE_SUB, 2.0, -3.0, 5.0, 1.0, -1.0 },
        { gd_value_mul, GD_VALUE_MUL, 2.0, -3.0, -6.0, -3.0, 2.0 },
        { gd_value_div, GD_VALUE_DIV, 3.0, -4.0, -0.75, -0.25, -0.1875 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gd_value *a = gd_value_create_leaf(rows[i].a);
        gd_value *b = gd_value_create_leaf(rows[i].b);
        gd_value *c = rows[i].apply(a, b);
        assert_int_equal(gd_value_operation(c), rows[i].op);
        assert_ptr_equal(gd_value_operand(c, 0), a);
        assert_ptr_equal(gd_value_operand(c, 1), b);
        assert_int_equal(gd_value_backward(c), 0);
        assert_close(gd_value_data(c), rows[i].c);
        assert_close(gd_value_grad(a), rows[i].dc_da);
        assert_close(gd_value_grad(b), rows[i].dc_db);
        gd_value_release(c);
        gd_value_release(b);
        gd_value_release(a);
    }
}

static void outside_its_domain_an_operation_gives_infinity_or_nan(void **state)
{
    (void)state;
    gd_value *zero = gd_value_create_leaf(0.0);
    gd_value *minus = gd_value_create_leaf(-1.0);
    gd_value *nan = gd_value_create_leaf(NAN);
    gd_value *results[] = { gd_value_log(zero), gd_value_log(minus), gd_value_pow(minus, 0.5),
                            gd_value_relu(nan), gd_value_div(minus, zero) };
    assert_true(isinf(gd_value_data(results[0])));
    assert_true(isnan(gd_value_data(results[1])));
    assert_true(isnan(gd_value_data(results[2])));
    assert_true(isnan(gd_value_data(results[3])));
    assert_true(isinf(gd_value_data(results[4])));
    for (size_t i = 0; i < 5; i++)
        gd_value_release(results[i]);
    gd_value_release(nan);
    gd_value_release(minus);
    gd_value_release(zero);
}

static void every_operation_has_a_name(void **state)
{
    (void)state;
    for (int op = 0; op < GD_VALUE_OP_COUNT; op++)
        assert_string_not_equal(gd_value_op_name((gd_value_op)op), "?");
    assert_string_equal(gd_value_op_name(GD_VALUE_SIGMOID), "sigmoid");
    assert_string_equal(gd_value_op_name(GD_VALUE_OP_COUNT), "?");
}

static void create_makes_a_result_of_ones_own(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(2.0);
    gd_value *c = gd_value_create(GD_VALUE_POW, 8.0, a, NULL, 3.0); /* a^3, computed elsewhere */
    assert_int_equal(gd_value_references(a), 2);
    assert_int_equal(gd_value_backward(c), 0);
    assert_close(gd_value_grad(a), 12.0); /* 3 a^2 */

    assert_null(gd_value_create(GD_VALUE_OP_COUNT, 0.0, a, a, 0.0));
    assert_non_null(strstr(gd_scalar_error(), "no such operation"));
    gd_scalar_error_clear();
    assert_null(gd_value_create(GD_VALUE_EXP, 0.0, a, a, 0.0)); /* one operand too many */
    assert_null(gd_value_create(GD_VALUE_LEAF, 0.0, a, NULL, 0.0));
    assert_non_null(strstr(gd_scalar_error(), "more operands"));
    assert_null(gd_value_create(GD_VALUE_ADD, 0.0, a, NULL, 0.0)); /* one too few */
    assert_int_equal(gd_value_references(a), 2);
    gd_value_release(c);
    gd_value_release(a);
}

/* ---- References ------------------------------------------------------------------------------ */

static void a_result_holds_its_operands(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(2.0);
    gd_value *b = gd_value_create_leaf(3.0);
    gd_value *c = gd_value_mul(a, b);
    assert_int_equal(gd_value_references(a), 2);
    gd_value_release(a);
    gd_value_release(b);
    assert_int_equal(gd_scalar_live_values(), 3);
    assert_true(gd_value_data(gd_value_operand(c, 0)) == 2.0);
    gd_value_release(c);
    assert_int_equal(gd_scalar_live_values(), 0);
}

static void release_frees_only_what_nobody_else_holds(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(2.0);
    gd_value *b = gd_value_exp(a);
    gd_value *c = gd_value_mul(a, b);
    gd_value *d = gd_value_add(b, b);
    gd_value_release(b);
    gd_value_release(c);
    assert_int_equal(gd_scalar_live_values(), 3); /* a, b, d */
    gd_value_release(d);
    assert_int_equal(gd_scalar_live_values(), 1);
    assert_true(gd_value_data(a) == 2.0);
    gd_value_release(a);
}

static void retain_adds_a_holder(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(2.0);
    assert_ptr_equal(gd_value_retain(a), a);
    gd_value_release(a);
    assert_true(gd_value_data(a) == 2.0);
    gd_value_release(a);
    assert_int_equal(gd_scalar_live_values(), 0);
}

static void accumulate_takes_its_operands_over(void **state)
{
    (void)state;
    gd_value *x = gd_value_create_leaf(3.0);
    gd_value *total = gd_value_create_leaf(0.0);
    for (int i = 0; i < 4; i++)
        total = gd_value_accumulate(total, gd_value_mul(x, x));
    assert_true(gd_value_data(total) == 36.0);
    assert_int_equal(gd_value_backward(total), 0);
    assert_true(gd_value_grad(x) == 24.0);

    assert_null(gd_value_accumulate(total, NULL)); /* releases the one it got */
    assert_int_equal(gd_scalar_live_values(), 1);
    assert_null(gd_value_accumulate(NULL, x));
    assert_int_equal(gd_scalar_live_values(), 0);
}

static void null_gives_null_in_silence(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(1.0);
    gd_value_release(NULL);
    gd_value_zero_grad(NULL);
    assert_null(gd_value_retain(NULL));
    assert_null(gd_value_add(a, NULL));
    assert_null(gd_value_mul(NULL, a));
    assert_null(gd_value_log(gd_value_exp(gd_value_sub(NULL, NULL))));
    assert_int_equal(gd_value_backward(NULL), -1);
    assert_true(isnan(gd_value_data(NULL)));
    assert_true(isnan(gd_value_grad(NULL)));
    assert_int_equal(gd_value_references(NULL), 0);
    assert_int_equal(gd_value_references(a), 1);
    assert_string_equal(gd_scalar_error(), "");
    gd_value_release(a);
}

static void a_stale_pointer_is_reported_and_left_alone(void **state)
{
    (void)state;
    gd_value *other = gd_value_create_leaf(1.0);
    gd_value *stale = gd_value_create_leaf(2.0);
    gd_value_release(stale);
    assert_string_equal(gd_scalar_error(), "");

    gd_value_release(stale); /* one release too many */
    assert_non_null(strstr(gd_scalar_error(), "has been freed"));
    assert_null(gd_value_retain(stale));
    assert_null(gd_value_add(other, stale));
    assert_null(gd_value_exp(stale));
    assert_int_equal(gd_value_backward(stale), -1);
    assert_true(isnan(gd_value_data(stale)));
    assert_int_equal(gd_value_references(other), 1);
    assert_int_equal(gd_scalar_live_values(), 1);
    gd_value_release(other);
}

static void the_first_error_is_kept(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(1.0);
    gd_value *b = gd_value_neg(a);
    gd_value_set_data(b, 0.0);
    gd_value_create(GD_VALUE_OP_COUNT, 0.0, NULL, NULL, 0.0);
    assert_non_null(strstr(gd_scalar_error(), "only a leaf"));
    gd_scalar_error_clear();
    assert_string_equal(gd_scalar_error(), "");
    gd_value_release(b);
    gd_value_release(a);
}

static void trim_waits_until_nothing_is_alive(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(1.0);
    assert_int_equal(gd_scalar_trim(), -1);
    assert_true(gd_value_data(a) == 1.0);
    gd_value_release(a);
    assert_int_equal(gd_scalar_trim(), 0);
    a = gd_value_create_leaf(2.0); /* and afterwards it starts anew */
    assert_true(gd_value_data(a) == 2.0);
    gd_value_release(a);
}

/* Values are freed in random order and handed out again; each must keep its own number. */
static void freed_memory_is_used_again_but_never_twice_at_once(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static gd_value *values[COUNT];
    gd_scalar_random random = { 1 };
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < COUNT; i++) {
            if (values[i] == NULL) {
                values[i] = gd_value_create_leaf(i);
                assert_int_equal((uintptr_t)values[i] % 64, 0);
            }
        }
        assert_int_equal(gd_scalar_live_values(), COUNT);
        for (int i = 0; i < COUNT; i++) {
            assert_true(gd_value_data(values[i]) == i);
            if (round == 19 || gd_scalar_uniform(&random, 0.0, 1.0) < 0.5) {
                gd_value_release(values[i]);
                values[i] = NULL;
            }
        }
    }
}

/* ---- Backward -------------------------------------------------------------------------------- */

static void the_gradient_of_a_leaf_in_itself_is_one(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(5.0);
    assert_int_equal(gd_value_backward(a), 0);
    assert_true(gd_value_grad(a) == 1.0);
    gd_value_release(a);
}

static void an_operand_used_twice_receives_both_parts(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(3.0);
    gd_value *c = gd_value_mul(a, a);
    gd_value *d = gd_value_add(c, c);
    gd_value_backward(d);
    assert_true(gd_value_grad(c) == 2.0);
    assert_true(gd_value_grad(a) == 12.0); /* d = 2 a^2 */
    gd_value_release(d);
    gd_value_release(c);
    gd_value_release(a);
}

/* a -> b -> d and a -> c -> d, and b also feeds c: the grad of b is complete only after c's. */
static void results_come_before_their_operands(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(2.0);
    gd_value *b = gd_value_mul(a, a); /* a^2 */
    gd_value *c = gd_value_mul(b, a); /* a^3 */
    gd_value *d = gd_value_mul(b, c); /* a^5 */
    gd_value_backward(d);
    assert_close(gd_value_grad(c), 4.0);  /* b */
    assert_close(gd_value_grad(b), 16.0); /* c + b a */
    assert_close(gd_value_grad(a), 80.0); /* 5 a^4 */
    gd_value_release(d);
    gd_value_release(c);
    gd_value_release(b);
    gd_value_release(a);
}

static void a_second_backward_adds_to_the_leaves_once_more(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(3.0);
    gd_value *b = gd_value_mul(a, a);
    gd_value *c = gd_value_exp(gd_value_operand(b, 0));
    gd_value *d = gd_value_mul(b, c);
    gd_value_backward(d);
    double once = gd_value_grad(a), inner = gd_value_grad(b);
    gd_value_backward(d);
    assert_close(gd_value_grad(a), 2.0 * once);
    assert_close(gd_value_grad(b), inner); /* in between: of this pass alone */
    gd_value_zero_grad(a);
    gd_value_backward(d);
    assert_close(gd_value_grad(a), once);
    gd_value_release(d);
    gd_value_release(c);
    gd_value_release(b);
    gd_value_release(a);
}

static void two_results_may_share_a_part(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(2.0);
    gd_value *shared = gd_value_mul(a, a);
    gd_value *c = gd_value_neg(shared);
    gd_value *d = gd_value_mul(shared, a);
    gd_value_backward(c); /* -2 a = -4 */
    gd_value_backward(d); /* 3 a^2 = 12 */
    assert_close(gd_value_grad(a), 8.0);
    gd_value_release(d);
    gd_value_release(c);
    gd_value_release(shared);
    gd_value_release(a);
}

/* The example of micrograd's README. Expected: micrograd 0.1.0 from PyPI, repr of g.data, a.grad
 * and b.grad. Constants are leaves; x += y is x = x + y. */
static gd_value *keep(gd_scalar_vector *all, gd_value *value)
{
    assert_int_equal(gd_scalar_vector_push(all, value), 0);
    gd_value_release(value); /* `all` holds it */
    return value;
}

static void the_example_of_micrograd(void **state)
{
    (void)state;
    gd_scalar_vector *v = gd_scalar_vector_create();
    gd_value *a = keep(v, gd_value_create_leaf(-4.0));
    gd_value *b = keep(v, gd_value_create_leaf(2.0));
    gd_value *one = keep(v, gd_value_create_leaf(1.0));
    gd_value *two = keep(v, gd_value_create_leaf(2.0));
    gd_value *three = keep(v, gd_value_create_leaf(3.0));
    gd_value *ten = keep(v, gd_value_create_leaf(10.0));

    gd_value *c = keep(v, gd_value_add(a, b));
    gd_value *d = keep(v, gd_value_add(keep(v, gd_value_mul(a, b)), keep(v, gd_value_pow(b, 3.0))));
    /* c += c + 1; c += 1 + c + (-a) */
    c = keep(v, gd_value_add(c, keep(v, gd_value_add(c, one))));
    gd_value *inner =
        keep(v, gd_value_add(keep(v, gd_value_add(one, c)), keep(v, gd_value_neg(a))));
    c = keep(v, gd_value_add(c, inner));
    /* d += d * 2 + (b + a).relu(); d += 3 * d + (b - a).relu() */
    inner = keep(v, gd_value_relu(keep(v, gd_value_add(b, a))));
    inner = keep(v, gd_value_add(keep(v, gd_value_mul(d, two)), inner));
    d = keep(v, gd_value_add(d, inner));
    inner = keep(v, gd_value_relu(keep(v, gd_value_sub(b, a))));
    inner = keep(v, gd_value_add(keep(v, gd_value_mul(three, d)), inner));
    d = keep(v, gd_value_add(d, inner));
    /* e = c - d; f = e**2; g = f / 2.0; g += 10.0 / f */
    gd_value *f = keep(v, gd_value_pow(keep(v, gd_value_sub(c, d)), 2.0));
    gd_value *g = keep(v, gd_value_div(f, two));
    g = keep(v, gd_value_add(g, keep(v, gd_value_div(ten, f))));

    assert_int_equal(gd_value_backward(g), 0);
    assert_close(gd_value_data(g), 24.70408163265306);
    assert_close(gd_value_grad(a), 138.83381924198252);
    assert_close(gd_value_grad(b), 645.5772594752186);
    gd_scalar_vector_destroy(v);
}

/* Two million values one after another: neither backward nor release may recurse. The second chain
 * hangs to the right, where release goes first. */
static void a_long_chain_needs_no_stack(void **state)
{
    (void)state;
    enum { LENGTH = 2000000 };
    for (int to_the_right = 0; to_the_right < 2; to_the_right++) {
        gd_value *a = gd_value_create_leaf(1.0);
        gd_value *one = gd_value_create_leaf(1.0);
        gd_value *chain = gd_value_retain(a);
        for (int i = 0; i < LENGTH; i++) {
            gd_value *next = to_the_right ? gd_value_add(one, chain) : gd_value_add(chain, one);
            gd_value_release(chain);
            chain = next;
        }
        assert_true(gd_value_data(chain) == 1.0 + LENGTH);
        assert_int_equal(gd_value_backward(chain), 0);
        assert_true(gd_value_grad(a) == 1.0);
        assert_true(gd_value_grad(one) == LENGTH);
        gd_value_release(chain);
        assert_int_equal(gd_scalar_live_values(), 2);
        gd_value_release(one);
        gd_value_release(a);
    }
}

/* a (a (a ... + a) + a): with sharing, the number of paths is 2^n and the work must stay n. */
static void shared_operands_are_visited_once(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(1.0);
    gd_value *x = gd_value_retain(a);
    for (int i = 0; i < 60; i++) {
        gd_value *twice = gd_value_add(x, x);
        gd_value_release(x);
        x = twice;
    }
    assert_int_equal(gd_value_backward(x), 0);
    assert_true(gd_value_grad(a) == 0x1p60);
    gd_value_release(x);
    gd_value_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_leaf_is_a_number_with_one_holder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_a_leaf_can_be_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(operations_of_one_operand, set_up, tear_down),
        cmocka_unit_test_setup_teardown(operations_of_two_operands, set_up, tear_down),
        cmocka_unit_test_setup_teardown(outside_its_domain_an_operation_gives_infinity_or_nan,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_operation_has_a_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(create_makes_a_result_of_ones_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_result_holds_its_operands, set_up, tear_down),
        cmocka_unit_test_setup_teardown(release_frees_only_what_nobody_else_holds, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(retain_adds_a_holder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(accumulate_takes_its_operands_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(null_gives_null_in_silence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stale_pointer_is_reported_and_left_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_first_error_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trim_waits_until_nothing_is_alive, set_up, tear_down),
        cmocka_unit_test_setup_teardown(freed_memory_is_used_again_but_never_twice_at_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_gradient_of_a_leaf_in_itself_is_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_operand_used_twice_receives_both_parts, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(results_come_before_their_operands, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_second_backward_adds_to_the_leaves_once_more, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(two_results_may_share_a_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_example_of_micrograd, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_chain_needs_no_stack, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shared_operands_are_visited_once, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
