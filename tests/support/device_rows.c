/* tests/support/device_rows.c: the CPU's bits on devices, over the rows of all ops. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/device_rows.h"

#include "backend/gpu/gpu.h"
#include "base/cpu.h"
#include "graph/context.h"
#include "tensor/element.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 4099 };
static const gd_dtype floats[4] = { GD_F32, GD_F64, GD_BF16, GD_F16 };

gd_context *device_rows_open_cpu(void)
{
    return open_cpu_unwatched(gd_isa_name(gd_isa_choose()), 2);
}

static gd_tensor *build(gd_context *context, const op_row *row, const operand *o, const int64_t *p)
{
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    if (row->flags & OP_RANDOM)
        gd_seed(context, 11);
    for (int i = 0; i < row->operands; i++)
        in[i] = operand_place(context, &o[i], false).view;
    return row->build(context, in, p);
}

static reading run(gd_context *context, const op_row *row, const operand *o, const int64_t *p,
                   const char *what)
{
    gd_scope_begin(context);
    reading r = reading_take(build(context, row, o, p), what);
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

/* The error is of f64, on the device. */
static void expect_refusal(const op_row *row, const gd_device *device)
{
    char told[80];
    snprintf(told, sizeof told, ": needs f64, which %s (", device->name);
    if (gd_error_code() != GD_ERR_UNSUPPORTED || strncmp(gd_error_message(), "gd_", 3) != 0 ||
        !strstr(gd_error_message(), told))
        fail_msg("%s: \"%s\"", row->name, gd_error_message());
    gd_error_clear();
}

bool device_row_is_refused(gd_context *const contexts[2], const op_row *row, numbers *n)
{
    const op_case *c = &row->cases[0];
    operand o[OP_MAX_OPERANDS];
    for (int i = 0; i < row->operands; i++)
        o[i] = operand_make(row, c, i, GD_F64, LAYOUT_CONTIGUOUS, false, n);
    gd_error_clear();
    gd_scope_begin(contexts[1]);
    const gd_tensor *t = build(contexts[1], row, o, c->p);
    const bool is_refused = !t;
    if (is_refused) {
        expect_refusal(row, contexts[1]->device);
    } else {
        reading actual = reading_take(t, row->name),
                expected = run(contexts[0], row, o, c->p, row->name);
        assert_same_bits(&expected, &actual, row->name);
        reading_free(&expected);
        reading_free(&actual);
    }
    gd_scope_end(contexts[1]);
    for (int i = 0; i < row->operands; i++)
        operand_free(&o[i]);
    return is_refused;
}

/* Whether GRADUS_TEST_SHARD has row, pair or case number i. */
static bool shard_has(int i)
{
    const char *share = getenv("GRADUS_TEST_SHARD");
    int shard = 0, shards = 1;
    if (share && (sscanf(share, "%d/%d", &shard, &shards) != 2 || shard < 0 || shard >= shards))
        fail_msg("GRADUS_TEST_SHARD=%s is not of the form 2/16", share);
    return i % shards == shard;
}

static bool is_asked_for(const char *name, int i)
{
    const char *part = getenv("GRADUS_TEST_ROW");
    return shard_has(i) && (!part || strstr(name, part));
}

/* Ops that have no kernel; all others have, in all that they take. lgamma and polygamma call the C library
 * on the CPU. */
static bool is_without_kernel(const op_row *row)
{
    static const char *const names[] = { "ctc_alpha", "ctc_alpha_grad", "lgamma", "polygamma" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], row->name) == 0)
            return true;
    return false;
}

static bool tries(int row, int c, gd_dtype dtype, int part)
{
    const bool is_first = c == row % op_rows[row]->case_count, is_all = part == DEVICE_ROWS_ALL;
    if (getenv("GRADUS_TEST_ALL"))
        return true;
    if (op_rows[row]->id >= GD_OP_ELEMENTWISE_COUNT && op_rows[row]->id < GD_OP_COUNT) {
        const int share = !gd_dtype_is_float(dtype) ? 5 : is_all ? 1 : 2;
        return dtype == GD_F32 || (is_first && (row + (int)dtype + part) % share == 0);
    }
    return is_first && dtype == floats[row / 5 % 4] &&
           (is_all || (row + part) % 5 == 0 || is_without_kernel(op_rows[row]));
}

static bool is_empty(const op_row *row, const op_case *c)
{
    for (int i = 0; i < row->operands; i++)
        if (shape_count(c->shape[i]) == 0)
            return true;
    return false;
}

/* The cases of a row that are tried in a dtype. How many of them ran on the host, without those that have an empty
 * operand. */
static int compare_row(gd_context *const contexts[2], int r, gd_dtype dtype, int part, numbers *n)
{
    const op_row *row = op_rows[r];
    int on_host = 0;
    for (int c = 0; c < row->case_count; c++)
        if (tries(r, c, dtype, part) &&
            !device_row_gives_the_cpus_bits(contexts, row, &row->cases[c], dtype, c + (int)dtype,
                                            n) &&
            !is_empty(row, &row->cases[c]))
            on_host++;
    if (on_host > 0 && row->id < GD_OP_COUNT && !is_without_kernel(row))
        fail_msg("%s has no kernel in %s", row->name, gd_dtype_name(dtype));
    return on_host;
}

void device_gives_the_cpus_bits(gd_context *const contexts[2], int part)
{
    for (int r = 0; r < op_row_count; r++) {
        if (!is_asked_for(op_rows[r]->name, r))
            continue;
        numbers n = numbers_of(op_rows[r], 3);
        int on_host = 0;
        for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++)
            if (op_row_takes(op_rows[r], (gd_dtype)dtype))
                on_host += compare_row(contexts, r, (gd_dtype)dtype, part, &n);
        if (on_host == 0 && is_without_kernel(op_rows[r]))
            fail_msg("%s has a kernel", op_rows[r]->name);
    }
}

void device_gives_the_cpus_bits_of_large_operands(gd_context *const contexts[2])
{
    for (int i = 0; i < op_large_count; i++)
        for (int r = GD_OP_ELEMENTWISE_COUNT; r < op_row_count && op_rows[r]->id < GD_OP_COUNT;
             r++) {
            numbers n = numbers_of(op_rows[r], 7);
            const op_large *large = &op_large_cases[i];
            if (is_asked_for(op_rows[r]->name, r) && op_large_concerns(large, op_rows[r]))
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
            if (is_asked_for(op_rows[r]->name, r) && op_row_takes(op_rows[r], floats[d]) &&
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
            if (from != to && is_asked_for("cast", from * GD_DTYPE_COUNT + to) &&
                (getenv("GRADUS_TEST_ALL") || part == DEVICE_ROWS_ALL ||
                 ((gd_dtype_is_half((gd_dtype)from) || gd_dtype_is_half((gd_dtype)to)) &&
                  (from * 3 + to + part) % 4 == 0)))
                compare_cast(contexts, (gd_dtype)from, (gd_dtype)to);
}

/* ---- many parts, long lines, nothing ---- */

typedef gd_tensor *(*builder)(gd_context *gd, gd_dtype dtype);

static gd_tensor *whole_numbers(gd_context *gd, gd_shape shape, gd_dtype dtype, uint64_t seed)
{
    enum { MOST = 3 * 9001 };
    float values[MOST];
    numbers n = { seed };
    int64_t count = 1;
    for (int a = 0; a < shape.rank; a++)
        count *= shape.dim[a];
    for (int64_t i = 0; i < count; i++)
        values[i] = i % 50 == 49 && gd_dtype_is_float(dtype)
                        ? NAN
                        : (float)(int)numbers_uniform(&n, -100, 100);
    return gd_cast(gd_from_host(gd, shape, GD_F32, values), dtype);
}

/* 61 parts of 0 to 4 rows or columns. */
static gd_tensor *join(gd_context *gd, gd_dtype dtype, int axis)
{
    gd_tensor *parts[61];
    for (int i = 0; i < 61; i++) {
        gd_shape shape = GD_SHAPE(3, 5);
        shape.dim[axis] = i * 7 % 5;
        parts[i] = whole_numbers(gd, shape, dtype, 3 + (uint64_t)i);
        if (i % 3 == 0 && axis == 1)
            parts[i] = gd_flip(parts[i], GD_AXES(0));
    }
    return gd_concat(61, parts, axis);
}

static gd_tensor *rows_joined(gd_context *gd, gd_dtype dtype)
{
    return join(gd, dtype, 0);
}

static gd_tensor *columns_joined(gd_context *gd, gd_dtype dtype)
{
    return join(gd, dtype, 1);
}

static gd_tensor *order(gd_context *gd, gd_dtype dtype)
{
    return gd_argsort(whole_numbers(gd, GD_SHAPE(3, 9001), dtype, 7), 1, false);
}

static gd_tensor *falling_order(gd_context *gd, gd_dtype dtype)
{
    return gd_argsort(gd_transpose(whole_numbers(gd, GD_SHAPE(4097, 2), dtype, 7), 0, 1), 1, true);
}

static gd_tensor *largest(gd_context *gd, gd_dtype dtype)
{
    gd_tensor *places = NULL;
    return gd_topk(whole_numbers(gd, GD_SHAPE(2, 9001), dtype, 7), -1, 13, true, &places) ? places
                                                                                          : NULL;
}

static gd_tensor *sums_of_nothing(gd_context *gd, gd_dtype dtype)
{
    gd_tensor *nothing = gd_zeros(gd, GD_SHAPE(5, 0, 3), dtype);
    return gd_add(gd_sum(nothing, GD_AXES(1), false), gd_prod(nothing, GD_AXES(1), false));
}

/* Numbers whose sums depend on their order, in f32 or a dtype of integers. */
static gd_tensor *uneven_numbers(gd_context *gd, gd_shape shape, gd_dtype dtype, uint64_t seed)
{
    enum { MOST = 271 * 131 };
    float values[MOST];
    numbers n = { seed };
    int64_t count = 1;
    for (int a = 0; a < shape.rank; a++)
        count *= shape.dim[a];
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)numbers_uniform(&n, -100, 100);
    gd_tensor *t = gd_from_host(gd, shape, GD_F32, values);
    return gd_dtype_is_float(dtype) ? t : gd_cast(t, dtype);
}

/* 16 products of an odd size: enough to be made in large squares. */
enum { PRODUCTS = 16, ROWS = 131, STEPS = 271 };

static gd_tensor *large_products(gd_context *gd, gd_dtype dtype)
{
    gd_tensor *x = uneven_numbers(gd, GD_SHAPE(ROWS, STEPS), dtype, 5);
    x = gd_mul(x, uneven_numbers(gd, GD_SHAPE(PRODUCTS, 1, 1), dtype, 7));
    return gd_matmul(x, uneven_numbers(gd, GD_SHAPE(STEPS, ROWS), dtype, 9));
}

static gd_tensor *large_products_of_transposed(gd_context *gd, gd_dtype dtype)
{
    gd_tensor *x = uneven_numbers(gd, GD_SHAPE(STEPS, ROWS), dtype, 5);
    x = gd_mul(x, uneven_numbers(gd, GD_SHAPE(PRODUCTS, 1, 1), dtype, 7));
    gd_tensor *y = uneven_numbers(gd, GD_SHAPE(ROWS, STEPS), dtype, 9);
    return gd_matmul(gd_transpose(x, -1, -2), gd_transpose(y, -1, -2));
}

/* In the largest tiles (product_large.txt), the last of which are cut. */
static gd_tensor *large_product(gd_context *gd, gd_dtype dtype)
{
    gd_tensor *x = uneven_numbers(gd, GD_SHAPE(1531, 23), dtype, 5);
    return gd_matmul(x, uneven_numbers(gd, GD_SHAPE(23, 1409), dtype, 9));
}

static gd_tensor *large_layer(gd_context *gd, gd_dtype dtype)
{
    gd_tensor *x = uneven_numbers(gd, GD_SHAPE(1031, 3), dtype, 5);
    gd_tensor *w = uneven_numbers(gd, GD_SHAPE(3, 1031), dtype, 7);
    return gd_relu(gd_linear(x, w, uneven_numbers(gd, GD_SHAPE(1031), dtype, 9)));
}

/* Each product is a negative number too small for f32: -0, which a sum with 0 would make 0. */
static gd_tensor *vanishing_products(gd_context *gd, gd_dtype dtype)
{
    (void)dtype;
    return gd_matmul(gd_full(gd, GD_SHAPE(70, 3), -1e-30, GD_F32),
                     gd_full(gd, GD_SHAPE(3, 70), 1e-30, GD_F32));
}

static const struct {
    const char *what;
    builder build;
} unusual[] = { { "rows joined", rows_joined },
                { "columns joined", columns_joined },
                { "order", order },
                { "falling order", falling_order },
                { "largest", largest },
                { "sums of nothing", sums_of_nothing },
                { "large products", large_products },
                { "large products of transposed operands", large_products_of_transposed },
                { "large product", large_product },
                { "large layer", large_layer },
                { "vanishing products", vanishing_products } };
enum { UNUSUAL = sizeof unusual / sizeof *unusual, UNUSUAL_DTYPES = 3 };
static const gd_dtype unusual_dtypes[UNUSUAL_DTYPES] = { GD_F32, GD_BF16, GD_I64 };

void device_many_and_long(gd_context *gd)
{
    for (int c = 0; c < UNUSUAL; c++)
        for (int d = 0; d < UNUSUAL_DTYPES; d++) {
            gd_scope_begin(gd);
            assert_non_null(unusual[c].build(gd, unusual_dtypes[d]));
            gd_scope_end(gd);
        }
}

static void compare_unusual(gd_context *const contexts[2], int c, gd_dtype dtype)
{
    reading readings[2];
    const gd_gpu *gpu = (const gd_gpu *)contexts[1]->device;
    const uint64_t on_host = gpu->ran_on_host;
    for (int k = 0; k < 2; k++) {
        gd_scope_begin(contexts[k]);
        readings[k] = reading_take(unusual[c].build(contexts[k], dtype), unusual[c].what);
        gd_scope_end(contexts[k]);
    }
    assert_true(readings[0].count > 0);
    assert_same_bits(&readings[0], &readings[1], unusual[c].what);
    assert_int_equal(gpu->ran_on_host, on_host);
    reading_free(&readings[0]);
    reading_free(&readings[1]);
}

void device_many_and_long_give_the_cpus_bits(gd_context *const contexts[2])
{
    for (int c = 0; c < UNUSUAL; c++)
        for (int d = 0; d < UNUSUAL_DTYPES; d++)
            if (is_asked_for(unusual[c].what, c * UNUSUAL_DTYPES + d))
                compare_unusual(contexts, c, unusual_dtypes[d]);
}
