/* tests/test_device_kernels.c: kernels of devices that compile them, at sizes that reach every path:
 * rows of one block and of several, runs, columns in lanes, tiles that are cut, batches that are
 * broadcast. On the device, without its host, they give the CPU's bits: every fourth case where it is
 * slow (support/effort.h), as neither sanitizers nor the library's compiler see kernels. Skipped where
 * OpenCL finds no device. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/gpu/gpu.h"
#include "base/memory.h"
#include "graph/context.h"
#include "ops/attrs.h"
#include "graph/apply.h"
#include "support/effort.h"
#include "support/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_DEVICE = 77 };

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

/* Numbers in [-2, 2); whole ones of integers. */
static gd_tensor *numbers_in(gd_context *context, gd_shape shape, gd_dtype dtype, uint64_t seed)
{
    const int64_t count = shape_count(shape);
    double *number = malloc(sizeof *number * (size_t)(count + 1));
    numbers n = { seed };
    assert_non_null(number);
    for (int64_t i = 0; i < count; i++)
        number[i] = gd_dtype_is_float(dtype) ? numbers_uniform(&n, -2, 2)
                                             : (double)(int)numbers_uniform(&n, 0, 50);
    reading r = reading_take(gd_cast(gd_from_host(cpu, shape, GD_F64, number), dtype), "numbers");
    gd_tensor *t = gd_from_host(context, shape, dtype, r.data);
    reading_free(&r);
    free(number);
    assert_non_null(t);
    return t;
}

/* What is computed of numbers, in either context. */
typedef gd_tensor *(*build_fn)(gd_context *context, const int64_t *p, gd_dtype dtype);

static void expect_the_cpus_bits(const char *name, build_fn build, const int64_t *p, gd_dtype dtype)
{
    const gd_gpu *g = (const gd_gpu *)device->device;
    reading readings[2];
    char what[120];
    const int length = snprintf(what, sizeof what, "%s %s", name, gd_dtype_name(dtype));
    for (int i = 0; i < 6 && length > 0; i++)
        snprintf(what + strlen(what), sizeof what - strlen(what), " %lld", (long long)p[i]);
    const uint64_t before = g->ran_on_host, launched = g->launched;
    for (int k = 0; k < 2; k++) {
        gd_context *context = k ? device : cpu;
        gd_scope_begin(cpu);
        gd_scope_begin(device);
        readings[k] = reading_take(build(context, p, dtype), what);
        gd_scope_end(device);
        gd_scope_end(cpu);
    }
    if (g->ran_on_host != before)
        fail_msg("%s: %d calls ran on the host", what, (int)(g->ran_on_host - before));
    assert_true(g->launched > launched || readings[0].count == 0);
    assert_same_bits(&readings[0], &readings[1], what);
    reading_free(&readings[0]);
    reading_free(&readings[1]);
}

static bool is_asked_for(const char *name)
{
    const char *part = getenv("GRADUS_TEST_ROW");
    return !part || strstr(name, part);
}

typedef struct kernel_case {
    const char *name;
    build_fn build;
    int64_t p[8];
    bool is_f64_too;
} kernel_case;

/* ---- reductions ---- */

/* p: three sizes, a bit for each reduced axis, how the operand lies: 1 transposed, 2 reversed. */
static gd_tensor *operand_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    gd_tensor *x = numbers_in(context, GD_SHAPE(p[0], p[1], p[2]), dtype, 3);
    if (p[4] & 1)
        x = gd_transpose(x, 0, 2);
    return p[4] & 2 ? gd_flip(x, GD_AXES(1, 2)) : x;
}

static gd_axes axes_of(int64_t bits)
{
    return bits == 7   ? GD_ALL_AXES
           : bits == 1 ? GD_AXES(0)
           : bits == 2 ? GD_AXES(1)
           : bits == 3 ? GD_AXES(0, 1)
           : bits == 4 ? GD_AXES(2)
           : bits == 5 ? GD_AXES(0, 2)
                       : GD_AXES(1, 2);
}

static gd_tensor *sum_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    return gd_sum(operand_of(context, p, dtype), axes_of(p[3]), false);
}

static gd_tensor *max_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    return gd_max(operand_of(context, p, dtype), axes_of(p[3]), false);
}

static gd_tensor *argmax_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    return gd_argmax(gd_floor(operand_of(context, p, dtype)), (int)p[3], false);
}

static gd_tensor *cumsum_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    return gd_cumsum(operand_of(context, p, dtype), (int)p[3]);
}

/* ---- softmax ---- */

static gd_tensor *softmax_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    return gd_softmax(operand_of(context, p, dtype), (int)p[3]);
}

static gd_tensor *log_softmax_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    return gd_log_softmax(operand_of(context, p, dtype), (int)p[3]);
}

/* ---- cross entropy ---- */

/* p: rows, classes; the labels' dtype; 1: the classes lie along columns; 1: the gradient, 2: with one
 * factor for all rows. */
static gd_tensor *cross_entropy_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    gd_tensor *in[3] = {
        p[3] ? gd_transpose(numbers_in(context, GD_SHAPE(p[1], p[0]), dtype, 3), 0, 1)
             : numbers_in(context, GD_SHAPE(p[0], p[1]), dtype, 3),
        NULL,
        p[4] == 2 ? gd_broadcast_to(numbers_in(context, GD_SHAPE(1), dtype, 5), GD_SHAPE(p[0]))
                  : numbers_in(context, GD_SHAPE(p[0]), dtype, 5),
    };
    int64_t *label = malloc(sizeof *label * (size_t)(p[0] + 1));
    assert_non_null(label);
    for (int64_t i = 0; i < p[0]; i++)
        label[i] = i * 7 % (p[1] < 256 ? p[1] : 256);
    in[1] = gd_cast(gd_from_host(context, GD_SHAPE(p[0]), GD_I64, label), (gd_dtype)p[2]);
    free(label);
    return p[4] ? gd_apply(NULL, GD_OP_cross_entropy_grad, 3, in, &(gd_rounded_attr){ 0 })
                : gd_apply(NULL, GD_OP_cross_entropy, 2, in, NULL);
}

/* ---- attention ---- */

enum { CAUSAL = 1, MASK = 2, MASK_OF_NUMBERS = 4, DROPOUT = 8, STRANGE_LAYOUT = 16, JOINED = 32 };

/* p: heads of q, of k and v; queries, keys; widths of k, of v; what is asked for; whether the gradient.
 * Two entries of a batch. */
static gd_tensor *attention_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    const int64_t tq = p[2], tk = p[3], bits = p[6];
    const bool is_strange = bits & STRANGE_LAYOUT;
    gd_tensor *in[7] = {
        numbers_in(context, GD_SHAPE(2, p[0], tq, p[4]), dtype, 3),
        is_strange ? gd_transpose(numbers_in(context, GD_SHAPE(2, p[1], p[4], tk), dtype, 5), 2, 3)
                   : numbers_in(context, GD_SHAPE(2, p[1], tk, p[4]), dtype, 5),
        is_strange ? gd_flip(numbers_in(context, GD_SHAPE(2, p[1], tk, p[5]), dtype, 7), GD_AXES(3))
                   : numbers_in(context, GD_SHAPE(2, p[1], tk, p[5]), dtype, 7),
    };
    gd_attention_attr attr = { .scale = is_strange ? -0.3 : 0.3,
                               .causal = (bits & CAUSAL) != 0,
                               .dropout = bits & DROPOUT ? 0.3 : 0,
                               .offset = 5,
                               .has_mask = (bits & (MASK | MASK_OF_NUMBERS)) != 0 };
    const int64_t state[2] = { 77, 10 };
    gd_tensor *forward[5] = { in[0], in[1], in[2] };
    int n = 3;
    if (attr.has_mask) {
        gd_tensor *mask = numbers_in(context, GD_SHAPE(tq, tk), dtype, 9);
        forward[n++] = bits & MASK ? gd_gt(mask, gd_zeros(context, GD_SHAPE(1), dtype)) : mask;
    }
    if (attr.dropout > 0)
        forward[n++] = gd_from_host(context, GD_SHAPE(2), GD_I64, state);
    gd_tensor *packed = gd_apply(NULL, GD_OP_attention, n, forward, &attr);
    if (!p[7])
        return packed;
    attr.is_joined = (bits & JOINED) != 0;
    in[3] = packed;
    in[4] = numbers_in(context, GD_SHAPE(2, p[0], tq, p[5]), dtype, 11);
    for (int i = 3; i < n; i++)
        in[i + 2] = forward[i];
    return gd_apply(NULL, GD_OP_attention_grad, n + 2, in, &attr);
}

/* ---- recurrent networks ---- */

enum { REVERSED = 1, LENGTHS = 2, OF_CELL = 4, ACROSS = 8 };

/* p: batch, steps, units, cell; how; whether the gradient. */
static gd_tensor *recurrent_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    const int64_t batch = p[0], w = p[2], wide = w * gd_recurrent_gates((int32_t)p[3]);
    const bool is_lstm = p[3] == GD_CELL_LSTM;
    gd_recurrent_attr attr = { .cell = (int32_t)p[3],
                               .reverse = (p[4] & REVERSED) != 0,
                               .has_lengths = (p[4] & LENGTHS) != 0 };
    gd_tensor *u = gd_mul_scalar(numbers_in(context, GD_SHAPE(w, wide), dtype, 7), 0.1);
    gd_tensor *forward[6] = {
        numbers_in(context, GD_SHAPE(batch, p[1], wide), dtype, 5), u,
        numbers_in(context, GD_SHAPE(wide), dtype, 9),
        p[4] & ACROSS ? gd_transpose(numbers_in(context, GD_SHAPE(w, batch), dtype, 11), 0, 1)
                      : numbers_in(context, GD_SHAPE(batch, w), dtype, 11)
    };
    int n = 4, m = 3;
    if (is_lstm)
        forward[n++] = numbers_in(context, GD_SHAPE(batch, w), dtype, 13);
    if (attr.has_lengths)
        forward[n++] = gd_arange(context, 1, (double)batch + 1, 1, GD_I64);
    gd_tensor *kept = gd_apply(NULL, GD_OP_recurrent, n, forward, &attr);
    if (!p[5])
        return kept;
    attr.part = (p[4] & OF_CELL) != 0;
    gd_tensor *in[6] = { kept,
                         p[4] & ACROSS ? gd_transpose(u, 0, 1)
                                       : gd_contiguous(gd_transpose(u, 0, 1)),
                         forward[3] };
    for (int i = 4; i < n; i++)
        in[m++] = forward[i];
    in[m++] = attr.part ? numbers_in(context, GD_SHAPE(batch, w), dtype, 15)
                        : numbers_in(context, GD_SHAPE(batch, p[1], w), dtype, 15);
    return gd_apply(NULL, GD_OP_recurrent_grad, m, in, &attr);
}

/* ---- concat ---- */

/* p: how many parts. */
static gd_tensor *concat_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    gd_tensor *parts[16];
    for (int i = 0; i < p[0]; i++)
        parts[i] = numbers_in(context, GD_SHAPE(3, 1 + i % 3, 5), dtype, (uint64_t)i);
    return gd_concat((int)p[0], parts, 1);
}

/* ---- products ---- */

/* p: batch, m, k, n; 1: the left one, 2: the right one is transposed, 4: the right one is the same
 * for the whole batch. */
static gd_tensor *product_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    const int64_t b = p[0], m = p[1], k = p[2], n = p[3], right = p[4] & 4 ? 1 : b;
    gd_tensor *x = p[4] & 1 ? gd_transpose(numbers_in(context, GD_SHAPE(b, k, m), dtype, 5), 1, 2)
                            : numbers_in(context, GD_SHAPE(b, m, k), dtype, 5);
    gd_tensor *w = p[4] & 2
                       ? gd_transpose(numbers_in(context, GD_SHAPE(right, n, k), dtype, 7), 1, 2)
                       : numbers_in(context, GD_SHAPE(right, k, n), dtype, 7);
    return gd_matmul(x, w);
}

/* ---- convolutions ---- */

enum { BY_INPUT = 1, BY_WEIGHT, STRIDED = 4, PADDED = 8, DILATED = 16, OF_VOLUMES = 32 };

/* p: images, groups, channels of x and of y in a group, size of x, of the kernel, how. Axes differ: the
 * last one of x is longer by one, that of the kernel by one, too. */
static gd_tensor *convolution_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    const int64_t how = p[6];
    gd_conv_attr attr = { .groups = p[1] };
    int64_t x[5] = { p[0], p[1] * p[2] }, w[5] = { p[1] * p[3], p[2] }, y[5] = { p[0], w[0] };
    int rank = 2;
    for (int a = 0; a < GD_SPATIAL; a++) {
        const bool used = a > 0 || (how & OF_VOLUMES);
        const int64_t size = p[4] + (a == 2), kernel = p[5] + (a == 2);
        attr.stride[a] = used && (how & STRIDED) ? a : 1;
        attr.stride[a] += attr.stride[a] == 0;
        attr.dilation[a] = used && (how & DILATED) ? 2 : 1;
        attr.before[a] = attr.after[a] = used && (how & PADDED) ? p[5] / 2 + (a == 1) : 0;
        attr.size[a] = (how & 3) == BY_INPUT    ? (used ? size : 1)
                       : (how & 3) == BY_WEIGHT ? (used ? kernel : 1)
                                                : 0;
        if (!used)
            continue;
        x[rank] = size;
        w[rank] = kernel;
        y[rank++] =
            (size + 2 * attr.before[a] - (kernel - 1) * attr.dilation[a] - 1) / attr.stride[a] + 1;
    }
    const gd_shape of_x = { rank, { x[0], x[1], x[2], x[3], x[4] } },
                   of_w = { rank, { w[0], w[1], w[2], w[3], w[4] } },
                   of_y = { rank, { y[0], y[1], y[2], y[3], y[4] } };
    gd_tensor *in[3] = { numbers_in(context, (how & 3) ? of_y : of_x, dtype, 5),
                         numbers_in(context, (how & 3) == BY_WEIGHT ? of_x : of_w, dtype, 7) };
    if (how & 3)
        return gd_apply(NULL,
                        (how & 3) == BY_INPUT ? GD_OP_convolution_grad_input
                                              : GD_OP_convolution_grad_weight,
                        2, in, &attr);
    in[2] = numbers_in(context, GD_SHAPE(w[0]), dtype, 9);
    return gd_apply(NULL, GD_OP_convolution, 3, in, &attr);
}

static gd_tensor *linear_of(gd_context *context, const int64_t *p, gd_dtype dtype)
{
    return gd_linear(numbers_in(context, GD_SHAPE(p[1], p[2]), dtype, 5),
                     numbers_in(context, GD_SHAPE(p[2], p[3]), dtype, 7),
                     numbers_in(context, GD_SHAPE(p[3]), dtype, 9));
}

static const kernel_case cases[] = {
    { "sum", sum_of, { 3, 5, 5000, 4, 0 }, true },
    { "sum", sum_of, { 2, 3, 7, 4, 0 }, true },
    { "sum", sum_of, { 20, 90, 30, 7, 0 }, true },
    { "sum", sum_of, { 20, 3, 300, 5, 0 }, true },
    { "sum", sum_of, { 40, 30, 20, 5, 0 }, false },
    { "sum", sum_of, { 40, 30, 20, 5, 3 }, false },
    { "sum", sum_of, { 1, 5000, 3, 2, 0 }, true },
    { "sum", sum_of, { 1, 700, 40, 2, 0 }, false },
    { "sum", sum_of, { 1, 300, 200, 2, 0 }, false },
    { "sum", sum_of, { 30, 7, 200, 1, 0 }, false },
    { "sum", sum_of, { 30, 50, 20, 3, 2 }, false },
    { "sum", sum_of, { 1, 1, 1, 7, 0 }, false },
    { "max", max_of, { 3, 5, 5000, 4, 0 }, false },
    { "max", max_of, { 1, 5000, 3, 2, 0 }, true },
    { "argmax", argmax_of, { 3, 5, 700, 2, 0 }, true },
    { "argmax", argmax_of, { 3, 70, 9, 1, 2 }, false },
    { "argmax", argmax_of, { 3, 70, 90, 1, 0 }, false },
    { "cumsum", cumsum_of, { 3, 70, 9, 1, 1 }, false },
    { "softmax", softmax_of, { 3, 5, 10, 2, 0 }, true },
    { "softmax", softmax_of, { 3, 5, 700, 2, 0 }, true },
    { "softmax", softmax_of, { 1, 2, 9000, 2, 0 }, true },
    { "softmax", softmax_of, { 1, 2, 20481, 2, 0 }, true },
    { "softmax", softmax_of, { 3, 700, 5, 1, 0 }, true },
    { "softmax", softmax_of, { 3, 70, 15, 2, 3 }, false },
    { "log_softmax", log_softmax_of, { 3, 5, 700, 2, 0 }, true },
    { "log_softmax", log_softmax_of, { 7, 3, 2, 0, 0 }, false },
    { "cross_entropy", cross_entropy_of, { 50, 10, GD_I64, 0, 0 }, true },
    { "cross_entropy", cross_entropy_of, { 300, 5, GD_U8, 1, 0 }, true },
    { "cross_entropy", cross_entropy_of, { 5, 700, GD_I32, 0, 0 }, true },
    { "cross_entropy", cross_entropy_of, { 3, 9000, GD_I64, 1, 0 }, true },
    { "cross_entropy", cross_entropy_of, { 3, 9000, GD_I64, 0, 0 }, false },
    { "cross_entropy", cross_entropy_of, { 3, 20481, GD_I64, 0, 0 }, true },
    { "cross_entropy_grad", cross_entropy_of, { 50, 10, GD_U8, 0, 1 }, true },
    { "cross_entropy_grad", cross_entropy_of, { 50, 10, GD_I64, 1, 2 }, true },
    { "cross_entropy_grad", cross_entropy_of, { 5, 700, GD_I32, 0, 2 }, true },
    { "cross_entropy_grad", cross_entropy_of, { 3, 9000, GD_I64, 1, 1 }, true },
    { "cross_entropy_grad", cross_entropy_of, { 3, 20481, GD_I64, 1, 1 }, true },
    { "attention", attention_of, { 2, 1, 40, 40, 8, 8, CAUSAL, 0 }, false },
    { "attention", attention_of, { 3, 3, 19, 530, 40, 20, 0, 0 }, false },
    { "attention", attention_of, { 2, 2, 300, 270, 3, 70, CAUSAL, 0 }, false },
    { "attention", attention_of, { 2, 1, 9, 300, 530, 5, MASK | STRANGE_LAYOUT, 0 }, false },
    { "attention", attention_of, { 2, 1, 33, 290, 8, 8, DROPOUT | MASK_OF_NUMBERS, 0 }, false },
    { "attention_grad", attention_of, { 2, 1, 40, 40, 8, 8, CAUSAL | JOINED, 1 }, false },
    { "attention_grad", attention_of, { 3, 3, 139, 530, 20, 40, 0, 1 }, false },
    { "attention_grad", attention_of, { 2, 2, 300, 270, 3, 70, CAUSAL, 1 }, false },
    { "attention_grad", attention_of, { 2, 1, 9, 300, 270, 530, MASK | STRANGE_LAYOUT, 1 }, false },
    { "attention_grad", attention_of, { 2, 1, 133, 290, 8, 8, DROPOUT | CAUSAL, 1 }, false },
    { "attention", attention_of, { 4, 2, 100, 100, 64, 64, CAUSAL, 0 }, false },
    { "attention", attention_of, { 1, 1, 70, 600, 64, 72, CAUSAL | DROPOUT, 0 }, false },
    { "attention_grad", attention_of, { 4, 2, 100, 100, 64, 64, CAUSAL, 1 }, false },
    { "attention_grad", attention_of, { 2, 2, 257, 601, 64, 64, CAUSAL | DROPOUT, 1 }, false },
    { "attention_grad", attention_of, { 40, 20, 300, 600, 3, 2, CAUSAL, 1 }, false }, /* in turns */
    { "recurrent", recurrent_of, { 3, 5, 150, GD_CELL_RNN, 0, 0 }, false },
    { "recurrent", recurrent_of, { 3, 4, 300, GD_CELL_RNN_RELU, REVERSED, 0 }, false },
    { "recurrent", recurrent_of, { 4, 5, 140, GD_CELL_LSTM, LENGTHS | ACROSS, 0 }, false },
    { "recurrent", recurrent_of, { 2, 3, 290, GD_CELL_LSTM, REVERSED, 0 }, false },
    { "recurrent", recurrent_of, { 4, 5, 135, GD_CELL_GRU, REVERSED | LENGTHS, 0 }, false },
    { "recurrent", recurrent_of, { 2, 3, 300, GD_CELL_GRU, ACROSS, 0 }, false },
    { "recurrent_grad", recurrent_of, { 3, 5, 150, GD_CELL_RNN, 0, 1 }, false },
    { "recurrent_grad", recurrent_of, { 3, 4, 300, GD_CELL_RNN_RELU, REVERSED, 1 }, false },
    { "recurrent_grad", recurrent_of, { 4, 5, 140, GD_CELL_LSTM, LENGTHS | ACROSS, 1 }, false },
    { "recurrent_grad", recurrent_of, { 2, 3, 290, GD_CELL_LSTM, REVERSED | OF_CELL, 1 }, false },
    { "recurrent_grad", recurrent_of, { 4, 5, 135, GD_CELL_GRU, REVERSED | LENGTHS, 1 }, false },
    { "recurrent_grad", recurrent_of, { 2, 3, 300, GD_CELL_GRU, ACROSS, 1 }, false },
    { "concat", concat_of, { 5 }, true },
    { "concat", concat_of, { 16 }, false },
    { "matmul", product_of, { 1, 5, 3, 4, 0 }, true },
    { "matmul", product_of, { 1, 50, 784, 64, 0 }, false },
    { "matmul", product_of, { 1, 65, 300, 130, 1 }, true },
    { "matmul", product_of, { 3, 65, 20, 70, 2 }, false },
    { "matmul", product_of, { 3, 7, 513, 9, 7 }, true },
    { "matmul", product_of, { 2, 4, 0, 3, 0 }, false },
    { "linear", linear_of, { 1, 33, 257, 18, 0 }, true },
    /* k is split, the last block is short; of the last of these the workspace takes 63 of 70 blocks */
    { "linear", linear_of, { 1, 16, 5000, 100, 0 }, true },
    { "matmul", product_of, { 2, 30, 4099, 33, 3 }, false },
    { "matmul", product_of, { 1, 509, 17900, 512, 0 }, false },
    /* product_large.txt, its operands in every order, rows that are multiples of 16 bytes and not */
    { "matmul", product_of, { 1, 1531, 530, 1403, 0 }, false },
    { "matmul", product_of, { 1, 1531, 530, 1403, 3 }, false },
    { "matmul", product_of, { 1, 1532, 516, 1404, 1 }, false },
    { "matmul", product_of, { 1, 1532, 516, 1404, 2 }, false },
    { "linear", linear_of, { 1, 1536, 600, 1409, 0 }, false },
    /* tiles of 16 x 128, 16 x 256, 32 x 256 and 64 x 256 */
    { "matmul", product_of, { 1, 14, 100, 17000, 2 }, false },
    { "matmul", product_of, { 1, 31, 90, 40001, 0 }, false },
    { "matmul", product_of, { 1, 60, 300, 40001, 1 }, false },
    { "convolution", convolution_of, { 3, 2, 5, 7, 9, 3, PADDED }, true },
    { "convolution", convolution_of, { 2, 1, 31, 20, 8, 3, STRIDED }, false },
    { "convolution", convolution_of, { 5, 1, 3, 14, 60, 3, PADDED | DILATED }, false },
    { "convolution", convolution_of, { 5, 1, 31, 62, 60, 3, PADDED }, false },
    { "convolution", convolution_of, { 2, 2, 3, 5, 6, 2, PADDED | OF_VOLUMES }, false },
    { "convolution_grad_input", convolution_of, { 3, 2, 5, 7, 9, 3, BY_INPUT | PADDED }, true },
    { "convolution_grad_input", convolution_of, { 2, 1, 20, 31, 8, 3, BY_INPUT }, false },
    { "convolution_grad_input",
      convolution_of,
      { 2, 1, 20, 100, 9, 3, BY_INPUT | STRIDED },
      false },
    { "convolution_grad_input", convolution_of, { 5, 1, 31, 40, 60, 3, BY_INPUT | PADDED }, false },
    { "convolution_grad_input",
      convolution_of,
      { 2, 2, 3, 5, 6, 2, BY_INPUT | OF_VOLUMES | STRIDED | DILATED },
      false },
    { "convolution_grad_weight", convolution_of, { 3, 2, 5, 7, 9, 3, BY_WEIGHT | PADDED }, true },
    { "convolution_grad_weight",
      convolution_of,
      { 9, 1, 3, 14, 30, 3, BY_WEIGHT | PADDED },
      false },
    { "convolution_grad_weight",
      convolution_of,
      { 9, 1, 33, 62, 30, 3, BY_WEIGHT | STRIDED },
      false },
    { "convolution_grad_weight",
      convolution_of,
      { 7, 2, 3, 5, 8, 2, BY_WEIGHT | OF_VOLUMES | DILATED },
      false },
};

static void kernels_give_the_cpus_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const kernel_case *c = &cases[i];
        if (!is_asked_for(c->name) || (test_is_slow() && i % 4 != 0))
            continue;
        expect_the_cpus_bits(c->name, c->build, c->p, GD_F32);
        if (c->is_f64_too)
            expect_the_cpus_bits(c->name, c->build, c->p, GD_F64);
    }
}

static void whole_numbers_are_exact(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_I32, GD_I64, GD_U8 };
    for (int i = 0; i < 3; i++) {
        expect_the_cpus_bits("matmul", product_of, (const int64_t[8]){ 1, 17, 40, 5 }, dtypes[i]);
        expect_the_cpus_bits("sum", sum_of, (const int64_t[8]){ 3, 50, 7, 2, 0 }, dtypes[i]);
        expect_the_cpus_bits("cumsum", cumsum_of, (const int64_t[8]){ 3, 50, 7, 1, 0 }, dtypes[i]);
    }
}

/* Or PoCL's threads share the memory: GD_LOCAL_INLINE in codegen/device/opencl.txt. */
static void functions_that_are_given_local_memory_are_part_of_their_kernel(void **state)
{
    (void)state;
    gd_text_buffer text = { 0 };
    int given = 0;
    gd_codegen_unpack(&text);
    assert_false(text.failed);
    for (const char *at = text.text; (at = strstr(at, "LOCAL ")); at++) {
        if (at[-1] != '(' && at[-1] != ' ')
            continue;
        const char *begin = at; /* of the function */
        while (begin > text.text &&
               !(begin[-1] == '\n' && !strchr(" \n{", *begin) && strncmp(begin, "#pragma", 7) != 0))
            begin--;
        if (*begin == '#' || *begin == '/' || strncmp(begin, "KERNEL", 6) == 0)
            continue;
        given++;
        if (strncmp(begin, "GD_LOCAL_INLINE ", 16) != 0)
            fail_msg("%.60s", begin);
    }
    assert_true(given > 5);
    gd_free(text.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_give_the_cpus_bits),
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(functions_that_are_given_local_memory_are_part_of_their_kernel),
    };
    if (gd_backend_opencl.count() == 0) {
        printf("skipped: OpenCL finds no device\n");
        return NO_DEVICE;
    }
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
