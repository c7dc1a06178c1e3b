/* tests/test_scalar_gradient.c: gradients of random expression graphs against finite differences.
 *
 * A random program is written down, then computed twice: by the engine, and by plain doubles, which
 * know nothing of graphs. The gradient of the first must be the difference quotient of the second.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/scalar.h>

#include <math.h>

enum { LEAVES = 6, STEPS = 60, NUMBERS = LEAVES + STEPS };

/* One step computes number i from numbers a and b before it. */
typedef struct step {
    gd_value_op op;
    int a, b;
    double extra;
} step;

static double compute(gd_value_op op, double a, double b, double extra)
{
    switch (op) {
    case GD_VALUE_ADD:
        return a + b;
    case GD_VALUE_SUB:
        return a - b;
    case GD_VALUE_MUL:
        return a * b;
    case GD_VALUE_DIV:
        return a / b;
    case GD_VALUE_NEG:
        return -a;
    case GD_VALUE_POW:
        return pow(a, extra);
    case GD_VALUE_EXP:
        return exp(a);
    case GD_VALUE_LOG:
        return log(a);
    case GD_VALUE_RELU:
        return fmax(a, 0.0);
    case GD_VALUE_TANH:
        return tanh(a);
    case GD_VALUE_SIGMOID:
        return 1.0 / (1.0 + exp(-a));
    case GD_VALUE_LEAF:
    case GD_VALUE_OP_COUNT:
        break;
    }
    fail_msg("operation %d", (int)op);
    return NAN;
}

static gd_value *apply(const step *s, gd_value *a, gd_value *b)
{
    switch (s->op) {
    case GD_VALUE_ADD:
        return gd_value_add(a, b);
    case GD_VALUE_SUB:
        return gd_value_sub(a, b);
    case GD_VALUE_MUL:
        return gd_value_mul(a, b);
    case GD_VALUE_DIV:
        return gd_value_div(a, b);
    case GD_VALUE_NEG:
        return gd_value_neg(a);
    case GD_VALUE_POW:
        return gd_value_pow(a, s->extra);
    case GD_VALUE_EXP:
        return gd_value_exp(a);
    case GD_VALUE_LOG:
        return gd_value_log(a);
    case GD_VALUE_RELU:
        return gd_value_relu(a);
    case GD_VALUE_TANH:
        return gd_value_tanh(a);
    case GD_VALUE_SIGMOID:
        return gd_value_sigmoid(a);
    case GD_VALUE_LEAF:
    case GD_VALUE_OP_COUNT:
        break;
    }
    return NULL;
}

/* Whether the step is smooth where it stands and its result neither large nor steep, so that a
 * difference quotient is worth something. */
static bool is_tame(const step *s, double a, double b)
{
    double c = compute(s->op, a, b, s->extra);
    if (!(fabs(c) < 4.0))
        return false;
    if (s->op == GD_VALUE_RELU)
        return fabs(a) > 0.05;
    if (s->op == GD_VALUE_LOG || s->op == GD_VALUE_POW)
        return a > 0.3;
    return s->op != GD_VALUE_DIV || fabs(b) > 0.5;
}

static int pick(gd_scalar_random *random, int count)
{
    return (int)gd_scalar_uniform(random, 0.0, count);
}

/* Fill `program` [STEPS] and `numbers` [NUMBERS], the first LEAVES of which are given. */
static void write_program(gd_scalar_random *random, step *program, double *numbers)
{
    static const double exponents[] = { 2.0, 3.0, 0.5, -1.0, 0.0 };
    for (int i = 0; i < STEPS; i++) {
        step s;
        do {
            s = (step){ .op = (gd_value_op)(1 + pick(random, GD_VALUE_OP_COUNT - 1)),
                        .a = pick(random, LEAVES + i),
                        .b = pick(random, LEAVES + i),
                        .extra = exponents[pick(random, 5)] };
        } while (!is_tame(&s, numbers[s.a], numbers[s.b]));
        program[i] = s;
        numbers[LEAVES + i] = compute(s.op, numbers[s.a], numbers[s.b], s.extra);
    }
}

/* The last few numbers added up, with leaf `which` moved by `offset`. */
static double evaluate(const step *program, const double *leaves, int which, double offset)
{
    double numbers[NUMBERS];
    for (int i = 0; i < LEAVES; i++)
        numbers[i] = leaves[i] + (i == which ? offset : 0.0);
    for (int i = 0; i < STEPS; i++)
        numbers[LEAVES + i] =
            compute(program[i].op, numbers[program[i].a], numbers[program[i].b], program[i].extra);
    double sum = 0.0;
    for (int i = NUMBERS - 8; i < NUMBERS; i++)
        sum += numbers[i];
    return sum;
}

/* The same through the engine, and its gradients [LEAVES]. */
static double differentiate(const step *program, const double *leaves, double *gradients)
{
    gd_value *values[NUMBERS];
    for (int i = 0; i < LEAVES; i++)
        values[i] = gd_value_create_leaf(leaves[i]);
    for (int i = 0; i < STEPS; i++)
        values[LEAVES + i] = apply(&program[i], values[program[i].a], values[program[i].b]);
    gd_value *sum = gd_value_create_leaf(0.0);
    for (int i = NUMBERS - 8; i < NUMBERS; i++)
        sum = gd_value_accumulate(sum, gd_value_retain(values[i]));
    assert_int_equal(gd_value_backward(sum), 0);
    double result = gd_value_data(sum);
    for (int i = 0; i < LEAVES; i++)
        gradients[i] = gd_value_grad(values[i]);
    gd_value_release(sum);
    for (int i = 0; i < NUMBERS; i++)
        gd_value_release(values[i]);
    assert_int_equal(gd_scalar_live_values(), 0);
    return result;
}

/* d evaluate / d leaf by central differences at three widths, extrapolated twice (Richardson), the
 * error of which is of order h^6; *uncertainty is how far the last step still moved. */
static double difference_quotient(const step *program, const double *leaves, int which,
                                  double *uncertainty)
{
    double d[3];
    for (int k = 0; k < 3; k++) {
        double h = 4e-4 / (1 << k);
        d[k] =
            (evaluate(program, leaves, which, h) - evaluate(program, leaves, which, -h)) / (2 * h);
    }
    double first = (4.0 * d[1] - d[0]) / 3.0;
    double second = (4.0 * d[2] - d[1]) / 3.0;
    double third = (16.0 * second - first) / 15.0;
    *uncertainty = fabs(third - second);
    return third;
}

static void gradients_are_those_of_finite_differences(void **state)
{
    (void)state;
    enum { PROGRAMS = 2000 };
    gd_scalar_random random = { 42 };
    int checked = 0, skipped = 0, used[GD_VALUE_OP_COUNT] = { 0 };
    double largest = 0.0;
    for (int round = 0; round < PROGRAMS; round++) {
        step program[STEPS];
        double numbers[NUMBERS], gradients[LEAVES];
        for (int i = 0; i < LEAVES; i++)
            numbers[i] = gd_scalar_uniform(&random, -1.5, 1.5);
        write_program(&random, program, numbers);
        for (int i = 0; i < STEPS; i++)
            used[program[i].op]++;

        double result = differentiate(program, numbers, gradients);
        double expected = evaluate(program, numbers, -1, 0.0);
        assert_true(fabs(result - expected) <= 1e-13 * fmax(1.0, fabs(expected)));

        for (int i = 0; i < LEAVES; i++) {
            double uncertainty;
            double quotient = difference_quotient(program, numbers, i, &uncertainty);
            double scale = fmax(1.0, fabs(quotient));
            /* A kink within reach of h, or a function too steep for it: the quotient says nothing.
             */
            if (uncertainty > 1e-8 * scale) {
                skipped++;
                continue;
            }
            checked++;
            largest = fmax(largest, fabs(quotient));
            if (!(fabs(gradients[i] - quotient) <= 1e-7 * scale))
                fail_msg("program %d, leaf %d: gradient %.12g, differences %.12g", round, i,
                         gradients[i], quotient);
        }
    }
    for (int op = GD_VALUE_ADD; op < GD_VALUE_OP_COUNT; op++)
        assert_true(used[op] > 1000);
    assert_true(checked > 9 * skipped);
    assert_true(largest > 10.0); /* they were not all nothing */
    print_message("%d derivatives checked, %d left out as too steep\n", checked, skipped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
