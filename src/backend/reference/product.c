/* backend/reference/product.c: the matrix product, as three loops and a batch. */
#include "backend/reference/reference.h"

/* The leading axes of an operand, all but the last two. */
static gd_layout batch_of(const gd_layout *layout)
{
    gd_layout batch = *layout;
    batch.rank -= 2;
    return batch;
}

/* out[.., i, j] = sum over p of x[.., i, p] y[.., p, j]; floats in long double, integers modulo
 * 2^64. */
static gd_status matmul(const gd_kernel_call *call)
{
    const gd_operand *x = &call->in[0], *y = &call->in[1], *out = &call->out;
    const int64_t *x_stride = x->layout->stride + x->layout->rank - 2;
    const int64_t *y_stride = y->layout->stride + y->layout->rank - 2;
    int64_t m = out->layout->shape[out->layout->rank - 2];
    int64_t n = out->layout->shape[out->layout->rank - 1];
    int64_t k = x->layout->shape[x->layout->rank - 1];
    bool is_float = gd_dtype_is_float(out->layout->dtype);
    gd_layout batch = batch_of(out->layout), x_batch = batch_of(x->layout),
              y_batch = batch_of(y->layout);
    for (gd_walk w = gd_walk_over(&batch); w.more; gd_walk_next(&w)) {
        int64_t x_first = gd_walk_offset(&w, &x_batch), y_first = gd_walk_offset(&w, &y_batch);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                real sum = 0;
                uint64_t whole = 0;
                for (int64_t p = 0; p < k; p++) {
                    int64_t a = x_first + i * x_stride[0] + p * x_stride[1];
                    int64_t b = y_first + p * y_stride[0] + j * y_stride[1];
                    if (is_float)
                        sum += gd_ref_load(x, a) * gd_ref_load(y, b);
                    else
                        whole += (uint64_t)gd_ref_load_integer(x, a) *
                                 (uint64_t)gd_ref_load_integer(y, b);
                }
                int64_t to = (w.count * m + i) * n + j;
                if (is_float)
                    gd_ref_store(out, to, sum);
                else
                    gd_ref_store_integer(out, to, (int64_t)whole);
            }
        }
    }
    return GD_OK;
}

void gd_reference_register_product(gd_kernel_fn *kernel)
{
    kernel[GD_OP_matmul] = matmul;
}
