/* tests/test_device_bits.c: the device that GRADUS_TEST_DEVICE names gives the CPU's bits in every op:
 * for machines with devices of their own (tools/gpu-check). Skipped where that is no device of
 * backend/gpu; test_opencl and test_cuda try those that there are everywhere. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/gpu/gpu.h"
#include "graph/context.h"
#include "support/device_rows.h"
#include "support/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_DEVICE = 77 };

static gd_context *contexts[2];

static void every_op_gives_the_cpus_bits(void **state)
{
    (void)state;
    device_gives_the_cpus_bits(contexts, DEVICE_ROWS_ALL);
}

static void large_operands_give_the_cpus_bits(void **state)
{
    (void)state;
    device_gives_the_cpus_bits_of_large_operands(contexts);
}

static void elementwise_ops_give_the_cpus_bits_of_any_bits(void **state)
{
    (void)state;
    device_gives_the_cpus_bits_of_any_bits(contexts, DEVICE_ROWS_ALL);
}

static void many_parts_and_long_lines_give_the_cpus_bits(void **state)
{
    (void)state;
    device_many_and_long_give_the_cpus_bits(contexts);
}

static void casts_give_the_cpus_bits_of_any_bits(void **state)
{
    (void)state;
    device_casts_give_the_cpus_bits(contexts, DEVICE_ROWS_ALL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_gives_the_cpus_bits),
        cmocka_unit_test(large_operands_give_the_cpus_bits),
        cmocka_unit_test(elementwise_ops_give_the_cpus_bits_of_any_bits),
        cmocka_unit_test(many_parts_and_long_lines_give_the_cpus_bits),
        cmocka_unit_test(casts_give_the_cpus_bits_of_any_bits),
    };
    const char *name = getenv("GRADUS_TEST_DEVICE");
    if (!name || (strncmp(name, "cuda", 4) != 0 && strncmp(name, "opencl", 6) != 0)) {
        printf("skipped: GRADUS_TEST_DEVICE names no device that compiles\n");
        return NO_DEVICE;
    }
    contexts[0] = device_rows_open_cpu();
    contexts[1] = gd_open(test_device(), .threads = 2);
    if (!contexts[0] || !contexts[1]) {
        printf("%s\n", gd_error_message());
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const gd_gpu *gpu = (const gd_gpu *)contexts[1]->device;
    printf("%s: %llu launches, %llu calls on the host, %llu kernels compiled, %llu found\n",
           gpu->base.isa, (unsigned long long)gpu->launched, (unsigned long long)gpu->ran_on_host,
           (unsigned long long)gpu->compiled, (unsigned long long)gpu->loaded);
    gd_close(contexts[0]);
    gd_close(contexts[1]);
    return failed;
}
