/* tests/support/guard.h: a device for tests, gd_open("guard"): the CPU's kernels behind a door that
 * is as narrow as backend/backend.h allows, so that what relies on more than its contract is found
 * on any machine.
 *
 * - The host cannot read or write its memory: an address is one of reserved pages without access, and
 *   is translated for the kernels alone. An address that lies in no memory of the device ends the
 *   program.
 * - It does its work late: kernels, writes and copies wait in a queue until somebody waits for them,
 *   or a few at a time at moments drawn from a seed. What a call points to is copied, and what it
 *   pointed to may be freed or changed.
 * - Errors of kernels come when their turn comes, and are told by the next function that waits.
 * - Addresses are aligned to 256, new memory contains no zeros.
 * - It may refuse calls (guard.refuse), have small limits, and fail on demand.
 *
 * GRADUS_TEST_DEVICE=guard makes tests that open test_device() run on it, GRADUS_GUARD_SEED=n draws
 * otherwise. */
#ifndef GD_TESTS_GUARD_H
#define GD_TESTS_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What calls it refuses; which ones of them is drawn from the seed, each in one of two cases. */
typedef enum guard_refusal {
    GUARD_TAKES_ALL,
    GUARD_REFUSES_REWRITES,  /* what only the compiler makes: results are the same, bit for bit */
    GUARD_REFUSES_COMPOSITE, /* those, and ops that have a decomposition: other roundings */
} guard_refusal;

/* For devices opened from now on, but for what fails, which is for all. All zero after
 * guard_reset, but for the seed, which the environment gives. */
typedef struct guard_settings {
    uint64_t seed;
    guard_refusal refuse;
    bool is_prompt;            /* work is done at once */
    size_t largest_allocation; /* bytes; larger ones fail; 0: no limit */
    /* Fail the n-th such call from now on, counted from 1; 0: none. Of allocations, all from the
     * n-th on. */
    int64_t kernel_to_fail, copy_to_fail, allocation_to_fail;
    bool fails_late; /* the error of a kernel is told by the next function that waits */
} guard_settings;
extern guard_settings guard;
void guard_reset(void);

/* What devices have been told since guard_reset. */
typedef struct guard_counts {
    int64_t kernels, copies, allocations;
    int64_t waits; /* of them, those that found work in the queue */
    int64_t refusals;
} guard_counts;
extern guard_counts guard_count;

/* The device tests run on: "cpu", or what GRADUS_TEST_DEVICE says. */
const char *test_device(void);
/* Whether that is a device whose memory the host can use. */
bool test_device_is_host(void);

#endif
