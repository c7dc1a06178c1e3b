/* backend/reference/product.c: the matrix product, as three loops and a batch, and that with weights
 * in blocks, step by step as ops/quantized.c defines it. */
#include "backend/reference/reference.h"
#include "base/quantized_form.h"

#include <math.h>

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

/* ---- weights in blocks ---- */

#define BLOCK 32

/* The scale of a block of x, and its numbers in 8 bits. */
static float round_block(const float *x, int *q)
{
    float largest = 0;
    bool is_finite = true;
    for (int i = 0; i < BLOCK; i++) {
        is_finite = is_finite && isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    const bool counts = is_finite && largest >= 0x1p-100f;
    const float factor = counts ? 127.0f / largest : 0.0f;
    for (int i = 0; i < BLOCK; i++)
        q[i] = counts ? (int)nearbyintf(x[i] * factor) : 0;
    if (!is_finite)
        return NAN;
    return counts ? largest / 127.0f : 0.0f;
}

/* The weights of a quantized_linear, and their form. */
typedef struct weights {
    const gd_operand *values, *scales;
    gd_quantized_form form;
    int64_t width, scales_of_row;
} weights;

/* Byte `at` of what block b of row j has, or its large block. */
static int byte_of(const weights *w, int64_t j, int64_t b, int at)
{
    const int64_t block = w->form.groups ? b / 8 : b;
    return (int)gd_ref_load_integer(w->values, j * w->width + block * w->form.bytes + at);
}

/* Weight p of block b of row j, before scales. */
static int weight_of(const weights *w, int64_t j, int64_t b, int p)
{
    const int first = w->form.groups ? (int)(b % 8) * w->form.numbers / 8 : 0;
    if (!w->form.four_bits)
        return byte_of(w, j, b, first + p);
    const int half = BLOCK / 2, both = byte_of(w, j, b, first + p % half);
    return (p < half ? both & 15 : both >> 4) - (w->form.has_least ? 0 : 8);
}

/* The scale of the group that weight p of block b is in, or with least its least value; 1: none. */
static int of_group(const weights *w, int64_t j, int64_t b, int p, bool least)
{
    if (!w->form.groups)
        return 1;
    const int group = ((int)(b % 8) * BLOCK + p) * w->form.groups / GD_QUANTIZED_LARGE;
    const int byte = byte_of(w, j, b, w->form.numbers + group + (least ? w->form.groups : 0));
    return byte > 127 ? byte - 256 : byte;
}

static float scale_of(const weights *w, int64_t j, int64_t b, int which)
{
    const int64_t block = w->form.groups ? b / 8 : b;
    return (float)gd_ref_load(w->scales, j * w->scales_of_row + block * w->form.scales + which);
}

/* Term b of the sum for a row of x, `count` numbers, and row j of the weights. */
static float term_of(const gd_operand *in, int64_t row, int64_t count, const weights *w, int64_t j,
                     int64_t b)
{
    float x[BLOCK];
    int q[BLOCK], sum = 0, least = 0;
    for (int p = 0; p < BLOCK; p++)
        x[p] = (float)gd_ref_load(in, row * count + b * BLOCK + p);
    const float scale = round_block(x, q);
    for (int p = 0; p < BLOCK; p++)
        sum += of_group(w, j, b, p, false) * q[p] * weight_of(w, j, b, p);
    const float both = scale * scale_of(w, j, b, 0), term = both * (float)sum;
    if (!w->form.has_least)
        return term;
    for (int p = 0; p < BLOCK; p++)
        least += of_group(w, j, b, p, true) * q[p];
    const float both_least = scale * scale_of(w, j, b, 1), less = both_least * (float)least;
    return term - less;
}

static gd_status quantized_linear(const gd_kernel_call *call)
{
    weights w = { .values = &call->in[1],
                  .scales = &call->in[2],
                  .width = call->in[1].layout->shape[1],
                  .scales_of_row = call->in[2].layout->shape[1] };
    (void)gd_quantized_form_of(w.values->layout->dtype == GD_U8, w.width, w.scales_of_row, &w.form);
    const int64_t columns = call->in[1].layout->shape[0];
    const int64_t inner = gd_quantized_inner(&w.form, w.scales_of_row);
    const int64_t count = gd_layout_count(call->out.layout);
    for (int64_t at = 0; at < count; at++) {
        float lane[8] = { 0 };
        for (int64_t b = 0; b < inner / BLOCK; b++)
            lane[b % 8] += term_of(&call->in[0], at / columns, inner, &w, at % columns, b);
        for (int width = 4; width > 0; width /= 2)
            for (int l = 0; l < width; l++)
                lane[l] += lane[l + width];
        gd_ref_store(&call->out, at, lane[0]);
    }
    return GD_OK;
}

void gd_reference_register_product(gd_kernel_fn *kernel)
{
    kernel[GD_OP_matmul] = matmul;
    kernel[GD_OP_quantized_linear] = quantized_linear;
}
