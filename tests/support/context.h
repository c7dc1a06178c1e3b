/* tests/support/context.h: set-up that tests of the public API share: a context for each test, and
 * what an error must say. Include after cmocka.h. */
#ifndef GD_TESTS_CONTEXT_H
#define GD_TESTS_CONTEXT_H

#include <gradus/gradus.h>

#include <string.h>

/* *state is a context of the CPU with one thread. */
static inline int open_context(void **state)
{
    gd_error_clear();
    *state = gd_open("cpu", .threads = 1);
    return *state ? 0 : -1;
}

static inline int close_context(void **state)
{
    gd_close(*state);
    return 0;
}

/* Exactly this code, and these words in the sentence. Clears the error. */
static inline void expect_error(gd_status status, const char *words)
{
    if (!strstr(gd_error_message(), words))
        print_error("expected \"%s\" in \"%s\"\n", words, gd_error_message());
    assert_non_null(strstr(gd_error_message(), words));
    assert_int_equal(gd_error_code(), status);
    gd_error_clear();
}

/* A test with a context of its own. */
#define context_test(function) \
    cmocka_unit_test_setup_teardown(function, open_context, close_context)

#endif
