/* tests/test_fuzz_run.c: what fails is found in a child process, and shrunk to the simplest case
 * that fails in the same way. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>

#include "support/fuzz_run.h"

enum { SEED, SIZE, OFFSET, FLAGS, FIELDS };
static const fuzz_field fields[FIELDS] = {
    [SEED] = { "seed", 0, FUZZ_SEED },
    [SIZE] = { "size", 1, FUZZ_NUMBER },
    [OFFSET] = { "offset", 0, FUZZ_NUMBER },
    [FLAGS] = { "flags", 0, FUZZ_SET },
};

/* Differs from size 7 and offset -3 on with bit 2; divides by zero from size 100 on. */
static fuzz_verdict attempt(const fuzz_suite *suite, const fuzz_case *c, FILE *log)
{
    (void)suite, (void)log;
    if (c->field[SIZE] >= 100)
        raise(SIGFPE);
    return c->field[SIZE] >= 7 && c->field[OFFSET] <= -3 && c->field[FLAGS] & 4 ? FUZZ_DIFFERS
                                                                                : FUZZ_AGREES;
}

static const fuzz_suite suite = { "example", FIELDS, fields, 0, NULL, attempt, NULL };

static void shrinks_to(fuzz_case from, int status, int64_t size, int64_t offset, int64_t flags)
{
    const fuzz_case least = fuzz_shrink(&suite, &from, status);
    assert_int_equal(least.field[SEED], from.field[SEED]);
    assert_int_equal(least.field[SIZE], size);
    assert_int_equal(least.field[OFFSET], offset);
    assert_int_equal(least.field[FLAGS], flags);
}

static void failures_shrink(void **state)
{
    (void)state;
    shrinks_to((fuzz_case){ { 9, 83, -1000, 0xff } }, FUZZ_DIFFERS << 8, 7, -3, 4);
    shrinks_to((fuzz_case){ { 9, 5000, -1000, 0xff } }, SIGFPE, 100, 0, 0);
}

/* As they are printed; what names no field is refused. */
static void cases_are_read_back(void **state)
{
    (void)state;
    int status = -1;
    setenv("GRADUS_FUZZ_ONE", "example: size=8 offset=-5 flags=0xc", 1);
    assert_true(fuzz_run_one(&suite, 1, &status));
    assert_int_equal(status, FUZZ_DIFFERS);
    setenv("GRADUS_FUZZ_ONE", "example: size=8 offset=-5 flags=0x8", 1);
    assert_true(fuzz_run_one(&suite, 1, &status));
    assert_int_equal(status, FUZZ_AGREES);
    setenv("GRADUS_FUZZ_ONE", "example: width=8", 1);
    assert_true(fuzz_run_one(&suite, 1, &status));
    assert_int_equal(status, 2);
    unsetenv("GRADUS_FUZZ_ONE");
    assert_false(fuzz_run_one(&suite, 1, &status));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(failures_shrink),
                                        cmocka_unit_test(cases_are_read_back) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
