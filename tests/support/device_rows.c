/* tests/support/device_rows.c: the CPU's bits on devices, over the rows of all ops. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/device_rows.h"

#include "backend/gpu/gpu.h"
#include "graph/context.h"
#include "tensor/element.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 4099 };
static const gd_dtype floats[4] = { GD_F32, GD_F64, GD_BF16, GD_F16 };

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

bool device_row_gives_the_cpus_bits(gd_context *const contexts[2], const op_row *row,
                                    const op_case *c, gd_dtype dtype, int arrangement, numbers *n)
{
    operand o[OP_MAX_OPERANDS];
    for (int i = 0; i < row->operands; i++)
        o[i] = operand_make(row, c, i, dtype, (layout_kind)((arrangement + i) % LAYOUT_COUNT),
                            false, n);
    char what[160];
    snprintf(what, sizeof what, "%s %s, %s, %s", row->name, gd_dtype_name(dtype),
             c >= row->cases && c < row->cases + row->case_count ? "small" : "large",
             layout_names[arrangement % LAYOUT_COUNT]);
    const gd_gpu *gpu = (const gd_gpu *)contexts[1]->device;
    const uint64_t on_host = gpu->ran_on_host;
    reading expected = run(contexts[0], row, o, c->p, what);
    reading actual = run(contexts[1], row, o, c->p, what);
    assert_same_bits(&expected, &actual, what);
    reading_free(&expected);
    reading_free(&actual);
    for (int i = 0; i < row->operands; i++)
        operand_free(&o[i]);
    return gpu->ran_on_host == on_host;
}

bool device_row_is_asked_for(const op_row *row)
{
    const char *part = getenv("GRADUS_TEST_ROW");
    return !part || strstr(row->name, part);
}

static bool tries(int row, int c, int dtype, int part)
{
    if (getenv("GRADUS_TEST_ALL"))
        return true;
    const bool is_first = c == row % op_rows[row]->case_count;
    if (op_rows[row]->id >= GD_OP_ELEMENTWISE_COUNT && op_rows[row]->id < GD_OP_COUNT)
        return dtype == GD_F32 ||
               (is_first && (gd_dtype_is_float((gd_dtype)dtype) || (row + dtype) % 5 == 0));
    return is_first && (part == DEVICE_ROWS_ALL || (row + part) % 5 == 0) &&
           (gd_dtype)dtype == floats[row / 5 % 4];
}

void device_gives_the_cpus_bits(gd_context *const contexts[2], int part)
{
    for (int r = 0; r < op_row_count; r++) {
        numbers n = numbers_of(op_rows[r], 3);
        for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++)
            for (int c = 0; c < op_rows[r]->case_count; c++)
                if (device_row_is_asked_for(op_rows[r]) &&
                    op_row_takes(op_rows[r], (gd_dtype)dtype) && tries(r, c, dtype, part))
                    (void)device_row_gives_the_cpus_bits(contexts, op_rows[r],
                                                         &op_rows[r]->cases[c], (gd_dtype)dtype,
                                                         c + dtype, &n);
    }
}

void device_gives_the_cpus_bits_of_large_operands(gd_context *const contexts[2])
{
    for (int i = 0; i < op_large_count; i++)
        for (int r = GD_OP_ELEMENTWISE_COUNT; r < op_row_count && op_rows[r]->id < GD_OP_COUNT;
             r++) {
            numbers n = numbers_of(op_rows[r], 7);
            const op_large *large = &op_large_cases[i];
            if (device_row_is_asked_for(op_rows[r]) && op_large_concerns(large, op_rows[r]))
                (void)device_row_gives_the_cpus_bits(contexts, op_rows[r], &large->operands, GD_F32,
                                                     i, &n);
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
        unsigned char number[8] = { (unsigned char)(bits >> 8 & 1) };
        if (dtype != GD_BOOL)
            gd_element_store_real(real, dtype, number);
        memcpy(bytes + (size_t)i * size, i % 2 && dtype != GD_BOOL ? (const void *)&bits : number,
               size);
    }
    return gd_from_host(context, GD_SHAPE(MANY), dtype, bytes);
}

static void compare_any_bits(gd_context *const contexts[2], const op_row *row, gd_dtype dtype)
{
    reading readings[2];
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

void device_gives_the_cpus_bits_of_any_bits(gd_context *const contexts[2], int part)
{
    for (int r = 0; r < GD_OP_ELEMENTWISE_COUNT; r++) {
        assert_true(gd_op_row(op_rows[r]->id)->flags & GD_OP_ELEMENTWISE);
        for (int d = 0; d < 4; d++)
            if (op_row_takes(op_rows[r], floats[d]) &&
                (getenv("GRADUS_TEST_ALL") || part == DEVICE_ROWS_ALL ||
                 (r * 2 + d + part) % 11 == 0))
                compare_any_bits(contexts, op_rows[r], floats[d]);
    }
}

static void compare_cast(gd_context *const contexts[2], gd_dtype from, gd_dtype to)
{
    reading readings[2];
    char what[60];
    snprintf(what, sizeof what, "%s as %s", gd_dtype_name(from), gd_dtype_name(to));
    const gd_gpu *gpu = (const gd_gpu *)contexts[1]->device;
    const uint64_t on_host = gpu->ran_on_host;
    for (int k = 0; k < 2; k++) {
        gd_scope_begin(contexts[k]);
        readings[k] = reading_take(gd_cast(any_bits(contexts[k], from, 9), to), what);
        gd_scope_end(contexts[k]);
    }
    assert_same_bits(&readings[0], &readings[1], what);
    assert_int_equal(gpu->ran_on_host, on_host);
    reading_free(&readings[0]);
    reading_free(&readings[1]);
}

void device_casts_give_the_cpus_bits(gd_context *const contexts[2], int part)
{
    for (int from = 0; from < GD_DTYPE_COUNT; from++)
        for (int to = 0; to < GD_DTYPE_COUNT; to++)
            if (from != to &&
                (getenv("GRADUS_TEST_ALL") || part == DEVICE_ROWS_ALL ||
                 ((gd_dtype_is_half((gd_dtype)from) || gd_dtype_is_half((gd_dtype)to)) &&
                  (from * 3 + to + part) % 4 == 0)))
                compare_cast(contexts, (gd_dtype)from, (gd_dtype)to);
}
