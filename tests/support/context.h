/* tests/support/context.h: set-up that tests of the public API share: a context for each test,
 * what an error must say, and tensors compared. Include after cmocka.h. */
#ifndef GD_TESTS_CONTEXT_H
#define GD_TESTS_CONTEXT_H

#include <gradus/gradus.h>

#include "support/effort.h"
#include "support/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* *state is a context of test_device() with two threads; results do not depend on how many. */
static inline int open_context(void **state)
{
    gd_error_clear();
    *state = gd_open(test_device(), .threads = 2);
    return *state ? 0 : -1;
}

static inline int close_context(void **state)
{
    gd_close(*state);
    return 0;
}

/* Skips the test in a build without a JSON reader, which headers of safetensors need, too. */
static inline void need_json(void)
{
#ifndef GD_HAVE_JANSSON
    skip();
#endif
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

/* Whether an element is NaN, of a float dtype of this many bytes; `most` is infinity's bits. */
static inline bool is_nan_element(const char *element, size_t size, uint64_t most)
{
    uint16_t half;
    uint32_t single;
    uint64_t bits;
    if (size == 2)
        bits = (memcpy(&half, element, 2), half);
    else if (size == 4)
        bits = (memcpy(&single, element, 4), single);
    else
        memcpy(&bits, element, 8);
    return (bits & (UINT64_MAX >> (65 - 8 * size))) > most;
}

/* The same elements, bit for bit; but any NaN is the same as another: of x + y with two of them, a
 * compiler may return either. */
static inline void assert_same_bits(const gd_tensor *a, const gd_tensor *b)
{
    if (!a || !b)
        fail_msg("%s", gd_error_message());
    assert_int_equal(gd_tensor_dtype(a), gd_tensor_dtype(b));
    assert_int_equal(gd_tensor_count(a), gd_tensor_count(b));
    size_t bytes = (size_t)gd_tensor_count(a) * gd_dtype_size(gd_tensor_dtype(a));
    char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    assert_true(x && y);
    assert_int_equal(gd_tensor_read(a, x, bytes), GD_OK);
    assert_int_equal(gd_tensor_read(b, y, bytes), GD_OK);
    static const uint64_t infinity[GD_DTYPE_COUNT] = { [GD_F32] = UINT64_C(0x7f800000),
                                                       [GD_F64] = UINT64_C(0x7ff0000000000000),
                                                       [GD_F16] = UINT64_C(0x7c00),
                                                       [GD_BF16] = UINT64_C(0x7f80) };
    uint64_t most = infinity[gd_tensor_dtype(a)];
    size_t size = gd_dtype_size(gd_tensor_dtype(a));
    for (size_t at = 0; at < bytes && most; at += size)
        if (is_nan_element(x + at, size, most) && is_nan_element(y + at, size, most))
            memcpy(x + at, y + at, size);
    assert_memory_equal(x, y, bytes);
    free(x);
    free(y);
}

/* The number that stands behind a pass's name in the text of a plan; -1: it is off. */
static inline int pass_changes(const char *text, const char *pass)
{
    char word[32];
    snprintf(word, sizeof word, " %s ", pass);
    const char *line = strstr(text, "passes on "), *at = line ? strstr(line, word) : NULL;
    assert_non_null(at);
    return strncmp(at + strlen(word), "off;", 4) == 0 ? -1 : atoi(at + strlen(word));
}

/* everything(argument) with every allocation failing in turn (effort.h), until it succeeds: each failure
 * is GD_ERR_MEMORY. GRADUS_TEST_ALLOCATIONS=no skips it: on a real GPU each turn opens a context, in a quarter
 * of a second, and what fails is the host's (tools/gpu-check). */
static inline void fail_every_allocation(bool (*everything)(int argument), int argument)
{
    const char *wanted = getenv("GRADUS_TEST_ALLOCATIONS");
    if (wanted && strcmp(wanted, "no") == 0)
        skip();
    for (int64_t n = 0;; n += test_allocation_step()) {
        gd_error_clear();
        gd_fail_allocations_after(n);
        bool ok = everything(argument);
        gd_fail_allocations_after(-1);
        if (ok)
            break;
        assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
        assert_true(n < 100000);
    }
    gd_error_clear();
}

/* A test with a context of its own. */
#define context_test(function) \
    cmocka_unit_test_setup_teardown(function, open_context, close_context)

#endif
