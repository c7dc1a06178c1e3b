/* tests/support/device_program.h: a small program that does some of everything on a device, for tests
 * in which something fails: ops one by one, a large write, dropout, steps of training, reads. */
#ifndef GD_TESTS_DEVICE_PROGRAM_H
#define GD_TESTS_DEVICE_PROGRAM_H

#include <gradus/gradus.h>

enum { DEVICE_STEPS = 3, DEVICE_FEATURES = 5 };

typedef struct device_outcome {
    float losses[DEVICE_STEPS];
    float read[DEVICE_FEATURES];
} device_outcome;

/* Whether it got through. */
bool device_program(gd_context *gd, device_outcome *out);

#endif
