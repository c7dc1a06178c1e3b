/* tests/fake_cuda/kernel_texts.c: has every kernel made that the rows of ops lead to, in all dtypes and
 * layouts, and steps of training as one kernel each, on a device that keeps their texts
 * ($FAKE_CUDA_TEXTS, fake.h): for tools/check-kernels. What it computes is nonsense. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/gpu/gpu.h"
#include "graph/context.h"
#include "support/device_rows.h"
#include "support/tensors.h"

#include <stdio.h>
#include <stdlib.h>

static void make(gd_context *gd, const op_row *row, int c, gd_dtype dtype, int arrangement,
                 numbers *n)
{
    operand o[OP_MAX_OPERANDS];
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    gd_scope_begin(gd);
    for (int i = 0; i < row->operands; i++) {
        o[i] = operand_make(row, &row->cases[c], i, dtype,
                            (layout_kind)((arrangement + i) % LAYOUT_COUNT), false, n);
        in[i] = operand_place(gd, &o[i], false).view;
    }
    (void)row->build(gd, in, row->cases[c].p);
    for (int i = 0; i < row->operands; i++)
        operand_free(&o[i]);
    gd_error_clear(); /* numbers that the host finds are nonsense, too */
    gd_scope_end(gd);
}

/* ---- a step of training: a neuron of two inputs, then a network of MNIST's size ---- */

typedef struct model {
    gd_module *module;
    gd_optimizer *optimizer;
    bool is_neuron;
} model;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const model *m = user;
    if (m->is_neuron) {
        gd_tensor *y = gd_tanh(gd_nn_linear(m->module, "neuron", in[0], 1));
        return gd_minimize(m->optimizer, gd_mean(gd_square(gd_sub(y, in[0])), GD_ALL_AXES, false));
    }
    gd_tensor *h = gd_dropout(gd_relu(gd_nn_linear(m->module, "fc1", in[0], 100)), 0.25);
    h = gd_nn_layer_norm(m->module, "norm", h);
    return gd_minimize(m->optimizer,
                       gd_cross_entropy(gd_nn_linear(m->module, "fc2", h, 10), in[1]));
}

/* Whether it came to be one kernel. */
static bool make_step(gd_context *gd, bool is_neuron, bool is_adam)
{
    model m = { .module = gd_module_create(gd), .is_neuron = is_neuron };
    m.optimizer = is_adam ? gd_adam(m.module) : gd_sgd(m.module);
    gd_tensor *in[2] = { gd_zeros(gd, is_neuron ? GD_SHAPE(4, 2) : GD_SHAPE(100, 784), GD_F32),
                         gd_zeros(gd, GD_SHAPE(100), GD_I64) };
    gd_function *f = gd_compile(gd, step, &m);
    const gd_gpu *gpu = (const gd_gpu *)gd->device;
    const uint64_t before = gpu->one_kernels;
    (void)gd_call(f, 2, in);
    gd_error_clear(); /* labels are nonsense */
    gd_function_release(f);
    gd_optimizer_release(m.optimizer);
    gd_module_release(m.module);
    return gpu->one_kernels > before;
}

/* What goes with products of a library: copies of their operands, a bias of its own. */
static bool make_products(void)
{
    gd_context *gd = gd_open("cuda:0", .threads = 1, .numbers = GD_NUMBERS_LIBRARY);
    static const gd_dtype dtypes[] = { GD_F32, GD_F16, GD_BF16 };
    bool ok = gd != NULL;
    for (int i = 0; ok && i < 3; i++) {
        gd_tensor *x = gd_slice(gd_zeros(gd, GD_SHAPE(3, 10), dtypes[i]), 1, 0, 10, 2);
        gd_tensor *bias = gd_slice(gd_zeros(gd, GD_SHAPE(6), dtypes[i]), 0, 0, 6, 2);
        ok = gd_linear(x, gd_transpose(x, 0, 1), bias) != NULL;
    }
    gd_close(gd);
    return ok;
}

/* With an argument: the steps of training alone. */
int main(int count, char **arguments)
{
    (void)arguments;
    setenv("GRADUS_ONE_KERNEL", "always", 1);
    gd_context *gd = gd_open("cuda:0", .threads = 1);
    if (!gd) {
        fprintf(stderr, "kernel_texts: %s\n", gd_error_message());
        return 1;
    }
    for (int r = 0; count == 1 && r < op_row_count; r++) {
        numbers n = numbers_of(op_rows[r], 3);
        for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++)
            for (int c = 0; c < op_rows[r]->case_count; c++)
                for (int a = 0; a < LAYOUT_COUNT && op_row_takes(op_rows[r], (gd_dtype)dtype); a++)
                    make(gd, op_rows[r], c, (gd_dtype)dtype, a, &n);
    }
    if (count == 1)
        device_many_and_long(gd);
    bool ok = true;
    for (int i = 0; i < 4; i++) {
        gd_scope_begin(gd);
        ok &= make_step(gd, i % 2, i / 2);
        gd_scope_end(gd);
    }
    gd_close(gd);
    if (!ok)
        fprintf(stderr, "kernel_texts: a step of training is not one kernel\n");
    if (!make_products()) {
        fprintf(stderr, "kernel_texts: %s\n", gd_error_message());
        return 1;
    }
    return ok ? 0 : 1;
}
