/* tests/test_opencl.c: devices with memory of their own (backend/gpu), as OpenCL has them: every op
 * gives the CPU's bits, in every layout and dtype, eagerly and compiled, on ordinary numbers and on
 * any bits; which ops have kernels; the cache of programs. Skipped where OpenCL finds no device.
 * GRADUS_TEST_ALL: every row in every dtype, which compiles thousands of kernels. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/compile.h>

#include "backend/gpu/gpu.h"
#include "base/cpu.h"
#include "graph/context.h"
#include "support/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NO_DEVICE = 77, MANY = 4099 };

static gd_context *cpu, *device;

static int open_contexts(void **state)
{
    (void)state;
    cpu = gd_open("cpu", .threads = 2);
    device = gd_open("opencl", .threads = 2);
    return cpu && device ? 0 : -1;
}

static int close_contexts(void **state)
{
    (void)state;
    gd_close(cpu);
    gd_close(device);
    return 0;
}

/* ---- rows of ops ---- */

static reading run(gd_context *context, const op_row *row, const operand *o, const int64_t *p,
                   const char *what)
{
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    gd_scope_begin(context);
    if (row->flags & OP_RANDOM)
        gd_seed(context, 11);
    for (int i = 0; i < row->operands; i++)
        in[i] = operand_place(context, &o[i], false).view;
    reading r = reading_take(row->build(context, in, p), what);
    gd_scope_end(context);
    return r;
}

static void compare(const op_row *row, int c, gd_dtype dtype, int arrangement, numbers *n)
{
    operand o[OP_MAX_OPERANDS];
    for (int i = 0; i < row->operands; i++)
        o[i] = operand_make(row, &row->cases[c], i, dtype,
                            (layout_kind)((arrangement + i) % LAYOUT_COUNT), false, n);
    char what[160];
    snprintf(what, sizeof what, "%s %s, case %d, %s", row->name, gd_dtype_name(dtype), c,
             layout_names[arrangement % LAYOUT_COUNT]);
    reading expected = run(cpu, row, o, row->cases[c].p, what);
    reading actual = run(device, row, o, row->cases[c].p, what);
    assert_same_bits(&expected, &actual, what);
    reading_free(&expected);
    reading_free(&actual);
    for (int i = 0; i < row->operands; i++)
        operand_free(&o[i]);
}

/* Elementwise ops in one dtype or none, which changes from op to op, as each is a kernel to compile;
 * with GRADUS_TEST_ALL in every one. */
static bool tries(int row, int dtype)
{
    const bool is_elementwise = row < GD_OP_ELEMENTWISE_COUNT;
    return getenv("GRADUS_TEST_ALL") || (row * 5 + dtype) % (is_elementwise ? 29 : 4) == 0;
}

static void every_op_gives_the_cpus_bits(void **state)
{
    (void)state;
    for (int r = 0; r < op_row_count; r++) {
        numbers n = numbers_of(op_rows[r], 3);
        for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++)
            for (int c = 0; c < op_rows[r]->case_count; c++)
                if (op_row_takes(op_rows[r], (gd_dtype)dtype) &&
                    (tries(r, dtype) || op_rows[r]->operands == 0))
                    compare(op_rows[r], c, (gd_dtype)dtype, c + dtype, &n);
    }
}

/* ---- any bits ---- */

/* Half of them any bits at all, half of them numbers around 1. */
static gd_tensor *any_bits(gd_context *context, gd_dtype dtype, uint64_t seed)
{
    const size_t size = gd_dtype_size(dtype);
    unsigned char bytes[MANY * 8];
    numbers n = { seed };
    for (int i = 0; i < MANY; i++) {
        const uint64_t bits = numbers_next(&n);
        const double real = numbers_uniform(&n, -4, 4);
        const float narrow = (float)real;
        const void *number = dtype == GD_F32 ? (const void *)&narrow : &real;
        memcpy(bytes + (size_t)i * size, i % 2 ? &bits : number, size);
    }
    return gd_from_host(context, GD_SHAPE(MANY), dtype, bytes);
}

static void compare_any_bits(const op_row *row, gd_dtype dtype)
{
    reading readings[2];
    gd_context *const contexts[2] = { cpu, device };
    const int64_t p[OP_MAX_PARAMETERS] = { 0 };
    for (int k = 0; k < 2; k++) {
        gd_tensor *in[OP_MAX_OPERANDS];
        gd_scope_begin(contexts[k]);
        for (int i = 0; i < row->operands; i++) {
            in[i] = any_bits(contexts[k], dtype, 5 + (uint64_t)i);
            if (row->operand[i].kind == OPERAND_TRUTH)
                in[i] = gd_gt(in[i], gd_scalar(contexts[k], 0, dtype));
        }
        readings[k] = reading_take(row->build(contexts[k], in, p), row->name);
        gd_scope_end(contexts[k]);
    }
    assert_same_bits(&readings[0], &readings[1], row->name);
    reading_free(&readings[0]);
    reading_free(&readings[1]);
}

static void elementwise_ops_give_the_cpus_bits_of_any_bits(void **state)
{
    (void)state;
    for (int r = 0; r < GD_OP_ELEMENTWISE_COUNT; r++) {
        assert_true(gd_op_row(op_rows[r]->id)->flags & GD_OP_ELEMENTWISE);
        for (int dtype = GD_F32; dtype <= GD_F64; dtype++)
            if (op_row_takes(op_rows[r], (gd_dtype)dtype) &&
                (getenv("GRADUS_TEST_ALL") || (r * 2 + dtype) % 9 == 0))
                compare_any_bits(op_rows[r], (gd_dtype)dtype);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_gives_the_cpus_bits),
        cmocka_unit_test(elementwise_ops_give_the_cpus_bits_of_any_bits),
    };
    if (gd_backend_opencl.count() == 0) {
        printf("skipped: OpenCL finds no device\n");
        return NO_DEVICE;
    }
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
