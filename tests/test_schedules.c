/* tests/test_schedules.c: learning rates against torch.optim.lr_scheduler (goldens/schedules.h),
 * and what a schedule may not be. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "support/context.h"

enum { STEPS = 40 };

typedef struct golden {
    const char *name, *call;
    double lr[STEPS];
} golden;

#include "goldens/schedules.h"

static const int64_t milestones[] = { 3, 11, 12, 30 };

/* The rows of goldens/schedules.h, as they are written here. */
static const struct {
    const char *name;
    gd_schedule schedule;
} rows[] = {
    { "constant", { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_CONSTANT, .lr = 0.5 } },
    { "step",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_STEP, .lr = 0.5, .period = 7, .factor = 0.25 } },
    { "multi_step",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_MULTI_STEP, .lr = 0.5, .factor = 0.5,
        .milestones = milestones, .milestone_count = 4 } },
    { "exponential",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_EXPONENTIAL, .lr = 0.5, .factor = 0.9 } },
    { "linear",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_LINEAR, .lr = 0.5, .lr_end = 0.125,
        .steps = 30 } },
    { "polynomial",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_POLYNOMIAL, .lr = 0.5, .steps = 30,
        .power = 2.5 } },
    { "cosine",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 0.5, .lr_end = 0.125,
        .steps = 39 } },
    { "restarts",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 0.5, .lr_end = 0.125,
        .period = 7 } },
    { "growing_restarts",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 0.5, .period = 5, .growth = 2 } },
    { "warm_cosine",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 0.5, .steps = 40, .warmup = 8 } },
    { "warm_step",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_STEP, .lr = 0.5, .period = 5, .factor = 0.5,
        .warmup = 8 } },
    { "one_cycle",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_ONE_CYCLE, .lr = 0.5, .steps = 40 } },
    { "one_cycle_linear",
      { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_ONE_CYCLE, .lr = 0.5, .steps = 40,
        .rising_share = 0.5, .start_divisor = 10, .end_divisor = 100, .linear_annealing = true } },
};
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
_Static_assert(COUNT(rows) == COUNT(goldens), "a golden value for each row");

static void expect_rate(const golden *g, int step, double got)
{
    if (!(fabs(got - g->lr[step]) <= 1e-13))
        fail_msg("%s: the learning rate of step %d is %.17g, PyTorch has %.17g", g->call, step, got,
                 g->lr[step]);
}

static void schedules_equal_pytorch(void **state)
{
    (void)state;
    for (int r = 0; r < COUNT(rows); r++) {
        assert_string_equal(rows[r].name, goldens[r].name);
        for (int step = 0; step < STEPS; step++)
            expect_rate(&goldens[r], step, gd_schedule_at(&rows[r].schedule, step));
    }
}

static void plateaus_equal_pytorch(void **state)
{
    (void)state;
    gd_plateau start[] = {
        { GD_PLATEAU_DEFAULTS, .factor = 0.5, .patience = 2 },
        { GD_PLATEAU_DEFAULTS, .factor = 0.5, .patience = 1, .threshold = 0.01, .cooldown = 3,
          .lr_end = 0.05 },
        { GD_PLATEAU_DEFAULTS, .rising = true, .factor = 0.25, .patience = 0 },
    };
    assert_int_equal(COUNT(start), COUNT(plateaus));
    for (int r = 0; r < COUNT(start); r++) {
        double lr = 0.5;
        for (int step = 0; step < STEPS; step++) {
            lr = gd_plateau_step(&start[r], lr, metrics[step]);
            expect_rate(&plateaus[r], step, lr);
        }
    }
    gd_plateau p = { GD_PLATEAU_DEFAULTS, .patience = 1 };
    double lr = 1;
    for (int i = 0; i < 3; i++) /* NaN is no improvement, on whatever */
        lr = gd_plateau_step(&p, lr, NAN);
    assert_true(lr == 0.1 && !p.started);
    assert_true(gd_plateau_step(NULL, 0.25, 1) == 0.25);
}

/* Behind the last step everything stays where it ended. */
static void schedules_stay_at_their_end(void **state)
{
    (void)state;
    for (int kind = GD_SCHEDULE_LINEAR; kind <= GD_SCHEDULE_COSINE; kind++) {
        gd_schedule s = { GD_SCHEDULE_DEFAULTS, .kind = (gd_schedule_kind)kind, .lr = 1,
                          .lr_end = 0.25, .steps = 10 };
        assert_true(gd_schedule_at(&s, 10) == 0.25 && gd_schedule_at(&s, 1000) == 0.25);
        assert_true(gd_schedule_at(&s, 0) == 1 && gd_schedule_at(&s, -5) == 1);
    }
    gd_schedule cycle = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_ONE_CYCLE, .lr = 1,
                          .steps = 10 };
    assert_true(gd_schedule_at(&cycle, 1000) == 1.0 / 25.0 / 1e4);
    gd_schedule one = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_ONE_CYCLE, .lr = 1, .steps = 1 };
    assert_true(isfinite(gd_schedule_at(&one, 0)));
    /* The first step is the top, where PyTorch divides 0 by 0. */
    static const struct {
        double share;
        int64_t steps;
    } tops[] = { { 0.1, 10 }, { 0.01, 100 }, { 0.5, 2 } };
    for (int i = 0; i < COUNT(tops); i++) {
        gd_schedule top = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_ONE_CYCLE, .lr = 0.5,
                            .steps = tops[i].steps, .rising_share = tops[i].share };
        assert_true(gd_schedule_at(&top, 0) == 0.5);
        for (int64_t step = 1; step < top.steps; step++)
            assert_true(gd_schedule_at(&top, step) < gd_schedule_at(&top, step - 1));
    }
}

static void fields_of_zero_are_honoured(void **state)
{
    (void)state;
    gd_schedule s = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_STEP, .lr = 1, .factor = 0 };
    assert_true(gd_schedule_at(&s, 0) == 1 && gd_schedule_at(&s, 1) == 0); /* period 1 */
    s.kind = GD_SCHEDULE_EXPONENTIAL;
    assert_true(gd_schedule_at(&s, 1) == 0);
    s = (gd_schedule){ GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_POLYNOMIAL, .lr = 1, .steps = 4,
                       .power = 0 };
    assert_true(gd_schedule_at(&s, 3) == 1 && gd_schedule_at(&s, 4) == 0);
    s = (gd_schedule){ GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_ONE_CYCLE, .lr = 1, .steps = 10,
                       .rising_share = 0,    .linear_annealing = true };
    double end = 1.0 / 25.0 / 1e4; /* falls from one step before the first: 1 + (end - 1) / 10 */
    assert_true(fabs(gd_schedule_at(&s, 0) - (1 + (end - 1) / 10)) < 1e-15);
    gd_plateau p = { GD_PLATEAU_DEFAULTS, .factor = 0, .patience = 0, .threshold = 0 };
    assert_true(gd_plateau_step(&p, 0.5, 1) == 0.5);        /* the first */
    assert_true(gd_plateau_step(&p, 0.5, 1 - 1e-9) == 0.5); /* better by any amount */
    assert_true(gd_plateau_step(&p, 0.5, 1) == 0);
    gd_plateau nobody = { .patience = 1 };
    assert_true(isnan(gd_plateau_step(&nobody, 0.5, 1)));
    expect_error(GD_ERR_INVALID, "gd_plateau_step: the options have size 0");
}

static void a_fit_fills_in_the_steps(void **state)
{
    (void)state;
    gd_schedule s = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_LINEAR, .lr = 1 };
    double lr;
    assert_int_equal(gd_schedule_follow(&s, 5, 10, &lr), GD_OK);
    assert_true(lr == 0.5);
    s.steps = 20;
    assert_int_equal(gd_schedule_follow(&s, 5, 10, &lr), GD_OK);
    assert_true(lr == 0.75);
}

static void wrong_fields_are_errors(void **state)
{
    (void)state;
    const struct {
        gd_schedule schedule;
        const char *words;
    } wrong[] = {
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COUNT, .lr = 1 }, "kind is unknown" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_CONSTANT, .lr = -1 },
          "lr and lr_end must be 0 or more" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_CONSTANT, .lr = NAN }, "lr and lr_end" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 1 },
          "steps must be more than warmup" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_LINEAR, .lr = 1, .steps = 5, .warmup = 5 },
          "more than warmup" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_STEP, .lr = 1, .period = 0 },
          "period must be at least 1" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 1, .steps = 9, .period = 0 },
          "period must" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_CONSTANT, .lr = 1, .warmup = -1 },
          "must not be negative" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_LINEAR, .lr = 1, .steps = 0 },
          "more than warmup" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_ONE_CYCLE, .lr = 1, .steps = 9,
            .end_divisor = 0 },
          "divisors" },
        { { .kind = GD_SCHEDULE_CONSTANT, .lr = 1 }, "have size 0" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_STEP, .lr = 1, .factor = -1 },
          "factor and power" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 1, .period = 3, .growth = 0.5 },
          "growth must be 1 or more" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE, .lr = 1, .period = 3,
            .growth = INFINITY },
          "growth must be 1" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_STEP, .lr = 0, .factor = INFINITY },
          "factor and power" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_POLYNOMIAL, .lr = 1, .steps = 5,
            .power = INFINITY },
          "factor and power" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_ONE_CYCLE, .lr = 1, .steps = 9,
            .rising_share = 1 },
          "rising_share" },
        { { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_MULTI_STEP, .lr = 1, .milestone_count = 2 },
          "milestones is NULL" },
    };
    gd_error_clear();
    for (int i = 0; i < COUNT(wrong); i++) {
        assert_true(isnan(gd_schedule_at(&wrong[i].schedule, 3)));
        expect_error(GD_ERR_INVALID, wrong[i].words);
    }
    double lr = 1;
    assert_int_equal(gd_schedule_follow(NULL, 0, 1, &lr), GD_ERR_INVALID);
    assert_true(isnan(lr));
    expect_error(GD_ERR_INVALID, "the schedule is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_equal_pytorch),     cmocka_unit_test(plateaus_equal_pytorch),
        cmocka_unit_test(schedules_stay_at_their_end), cmocka_unit_test(a_fit_fills_in_the_steps),
        cmocka_unit_test(fields_of_zero_are_honoured), cmocka_unit_test(wrong_fields_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
