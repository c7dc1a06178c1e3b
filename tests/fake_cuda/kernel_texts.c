/* tests/fake_cuda/kernel_texts.c: has every kernel made that the rows of ops lead to, in all dtypes and
 * layouts, on a device that keeps their texts ($FAKE_CUDA_TEXTS, fake.h): for tools/check-kernels.
 * What it computes is nonsense. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "support/device_rows.h"
#include "support/tensors.h"

#include <stdio.h>

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

int main(void)
{
    gd_context *gd = gd_open("cuda:0", .threads = 1);
    if (!gd) {
        fprintf(stderr, "kernel_texts: %s\n", gd_error_message());
        return 1;
    }
    for (int r = 0; r < op_row_count; r++) {
        numbers n = numbers_of(op_rows[r], 3);
        for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++)
            for (int c = 0; c < op_rows[r]->case_count; c++)
                for (int a = 0; a < LAYOUT_COUNT && op_row_takes(op_rows[r], (gd_dtype)dtype); a++)
                    make(gd, op_rows[r], c, (gd_dtype)dtype, a, &n);
    }
    device_many_and_long(gd);
    gd_close(gd);
    return 0;
}
