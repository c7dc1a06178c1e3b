/* tests/support/fuzz_run.h: runs random cases, for test_compile_fuzz.c and test_kernel_fuzz.c.
 * Start at fuzz_run().
 *
 * A case is a list of whole numbers, its fields; a suite says what they are called, draws them from
 * a seed, and tries a case. Cases run in a child process, so that one that crashes is a failure as
 * well. One that fails is shrunk, field by field, to the simplest that fails in the same way, and
 * printed, with the call that repeats it.
 *
 *     GRADUS_FUZZ_SEED=1000 …                          seeds from this one on
 *     GRADUS_FUZZ_SEED=fresh …                         seeds no run has tried
 *     GRADUS_FUZZ_CASES=50000 test_compile_fuzz        this many cases
 *     GRADUS_FUZZ_SECONDS=60 test_compile_fuzz         as many as there is time for
 *     GRADUS_FUZZ_FAILURES=5 …                         continue after the first failures
 *     GRADUS_FUZZ_ONE="conv: axes=2 size1=8" test_kernel_fuzz      one case, as it was printed
 */
#ifndef GD_TESTS_FUZZ_RUN_H
#define GD_TESTS_FUZZ_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { FUZZ_MOST_FIELDS = 64 };

typedef struct fuzz_case {
    int64_t field[FUZZ_MOST_FIELDS];
} fuzz_case;

typedef enum fuzz_kind {
    FUZZ_NUMBER, /* shrinks towards the simplest */
    FUZZ_SET,    /* bits, each of which shrinks to 0 */
    FUZZ_SEED,   /* stays as it is */
} fuzz_kind;

typedef struct fuzz_field {
    const char *name;
    int64_t simplest; /* what a case has where nothing is said */
    fuzz_kind kind;
} fuzz_field;

/* What a case comes to; exit codes of the child. A case that nobody takes is INVALID: a fault of
 * what draws it. */
typedef enum fuzz_verdict { FUZZ_AGREES, FUZZ_DIFFERS, FUZZ_INVALID } fuzz_verdict;

typedef struct fuzz_suite {
    const char *name; /* "conv" */
    int fields;
    const fuzz_field *field;
    long usual; /* cases where nothing is said */
    void (*draw)(const struct fuzz_suite *suite, uint64_t seed, fuzz_case *c);
    /* With a log, it gets what the case is, and what differs. */
    fuzz_verdict (*attempt)(const struct fuzz_suite *suite, const fuzz_case *c, FILE *log);
    const void *user;
} fuzz_suite;

/* Every field at its simplest. */
fuzz_case fuzz_simplest(const fuzz_suite *suite);
/* Try the suite's cases as the environment says; a cmocka test, which a failing case fails.
 * `suites`: how many share GRADUS_FUZZ_SECONDS. */
void fuzz_run(const fuzz_suite *suite, int suites);
/* The simplest case that ends with this wait status, as c does. */
fuzz_case fuzz_shrink(const fuzz_suite *suite, const fuzz_case *c, int status);
/* Where GRADUS_FUZZ_ONE names a case of one of these suites: tries it in this process, for a
 * debugger, and sets *status to the program's exit status. */
bool fuzz_run_one(const fuzz_suite *suites, int count, int *status);

#endif
