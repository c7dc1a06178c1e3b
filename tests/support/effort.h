/* tests/support/effort.h: how many of many cases are tried. ThreadSanitizer makes a test ten to
 * fifty times as slow and looks for races, which do not depend on values: under it a few cases do,
 * the kernels this machine would choose, and nothing that one thread computes.
 * AddressSanitizer and MemorySanitizer make it five to ten times as slow: of cases that differ in
 * values or dtype alone, some do. qemu is as slow as ThreadSanitizer, but a program cannot ask for
 * it: GRADUS_TEST_SLOW says so, which `make neon`, `make msan` and the stages asan and minimal of
 * `make test` set; the stage release tries all cases. GRADUS_TEST_ALL tries all anyway. */
#ifndef GD_TEST_EFFORT_H
#define GD_TEST_EFFORT_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* gcc defines macros, clang has features. */
#ifdef __has_feature
#define TEST_HAS_FEATURE(name) __has_feature(name)
#else
#define TEST_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || TEST_HAS_FEATURE(thread_sanitizer)
#define TEST_UNDER_TSAN 1
#else
#define TEST_UNDER_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__) || TEST_HAS_FEATURE(address_sanitizer) || \
    TEST_HAS_FEATURE(memory_sanitizer)
#define TEST_UNDER_MEMORY_CHECKS 1
#else
#define TEST_UNDER_MEMORY_CHECKS 0
#endif

static inline bool test_is_slow(void)
{
    return (TEST_UNDER_TSAN || getenv("GRADUS_TEST_SLOW")) && !getenv("GRADUS_TEST_ALL");
}

/* Whether this is the second time that the same is tried, with no sanitizer to see more of it: paths on
 * which something fails do not depend on the compiler. */
static inline bool test_is_repetition(void)
{
    return test_is_slow() && !TEST_UNDER_TSAN && !TEST_UNDER_MEMORY_CHECKS;
}

/* Of very many calls that fail in turn, from one to the next: every `step`-th. Where it is slow fewer do, and other
 * ones. */
static inline int64_t test_call_step(int64_t step)
{
    return getenv("GRADUS_TEST_ALL") ? 1
           : test_is_repetition()    ? 5 * step
           : test_is_slow()          ? 6 * step + 1
                                     : step;
}

/* The same of allocations: all fail in turn, but where nothing more would be seen. */
static inline int64_t test_allocation_step(void)
{
    return getenv("GRADUS_TEST_ALL") ? 1 : TEST_UNDER_TSAN ? 17 : test_is_repetition() ? 5 : 1;
}

/* Of so many like cases, those that are tried: all, or where it is slow a seventeenth. */
static inline int test_share(int cases)
{
    return test_is_slow() ? (cases + 16) / 17 : cases;
}

/* Whether the next of many like cases is tried: all are; where it is slow every 17th. */
static inline bool test_tries(int *number)
{
    return !test_is_slow() || (*number)++ % 17 == 0;
}

/* The same for cases that differ little: under these two every third. */
static inline bool test_tries_similar(int *number)
{
    return test_is_slow()
               ? test_tries(number)
               : !TEST_UNDER_MEMORY_CHECKS || getenv("GRADUS_TEST_ALL") || (*number)++ % 3 == 0;
}

/* The same for cases in which threads do the same, or in which there is one: ThreadSanitizer alone
 * tries every 17th. */
static inline bool test_tries_alike(int *number)
{
    return !TEST_UNDER_TSAN || test_tries(number);
}

/* At the beginning of a cmocka case whose work one thread does: ThreadSanitizer skips it. */
#define TEST_OF_ONE_THREAD()                               \
    do {                                                   \
        if (TEST_UNDER_TSAN && !getenv("GRADUS_TEST_ALL")) \
            skip();                                        \
    } while (0)

/* Whether this instruction set's kernels are tried: all are that this machine has; under
 * ThreadSanitizer those it would choose. */
static inline bool test_tries_isa(gd_isa isa)
{
    return gd_isa_available(isa) &&
           (!TEST_UNDER_TSAN || getenv("GRADUS_TEST_ALL") || isa == gd_isa_choose());
}

#endif
