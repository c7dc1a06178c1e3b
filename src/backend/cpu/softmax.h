/* backend/cpu/softmax.h: softmax and what is made of the same parts: log_softmax, cross_entropy and
 * its gradient. The loops that depend on dtype and instruction set are a gd_softmax_loops
 * (softmax_isa.c); the walk over tensors is softmax.c.
 *
 *     m = max x,  e_i = exp(x_i - m),  s = sum e,   softmax_i = e_i * (1 / s),   log_softmax_i =
 * (x_i - m) - log s
 *
 * The order of additions does not depend on threads or vector width. Along the last axis, a row of
 * at most 64 bytes is added from its first number to its last; a longer one by rows as in reduce.h.
 * Along another axis, by columns with k = 1. Multiplying by the rounded 1 / s adds at most half an
 * ulp to dividing and is several times as fast. A NaN, a +inf or nothing but -inf makes the whole
 * line NaN, as in PyTorch. f16 and bf16 are computed in f32, with the bits of casts before and behind.
 */
#ifndef GD_BACKEND_CPU_SOFTMAX_H
#define GD_BACKEND_CPU_SOFTMAX_H

#include "backend/cpu/reduce.h"

typedef struct gd_softmax_loops {
    size_t size; /* of an element, 4 or 8 */

    /* Rows x[r * row_stride + 0 … n-1] for r < count; out is [count, n] and may be x itself. */
    void (*softmax_rows)(const void *x, int64_t row_stride, int64_t n, void *out, int64_t count);
    /* max[r] and sum[r] = s of each row */
    void (*statistics_rows)(const void *x, int64_t row_stride, int64_t n, void *max, void *sum,
                            int64_t count);
    /* out = (x - max[r]) - log_sum[r] */
    void (*shift_rows)(const void *x, int64_t row_stride, int64_t n, const void *max,
                       const void *log_sum, void *out, int64_t count);
    /* out [count, n] = (out - onehot(label[r])) * g[r * g_stride] */
    void (*gradient_rows)(void *out, int64_t n, const int64_t *label, const void *g,
                          int64_t g_stride, int64_t count);

    /* One row of n columns. */
    void (*column_max)(void *max, const void *x, int64_t n); /* max[c] = larger of max[c], x[c] */
    /* e = exp(x[c] - max[c]); sum[c] += e; out[c] = e unless out is NULL */
    void (*column_exp)(void *out, void *sum, const void *x, const void *max, int64_t n);
    void (*column_add)(void *acc, const void *later, int64_t n);    /* acc[c] += later[c] */
    void (*column_scale)(void *out, const void *factor, int64_t n); /* out[c] *= factor[c] */
    void (*column_shift)(void *out, const void *x, const void *max, const void *log_sum, int64_t n);

    /* n numbers */
    void (*lowest)(void *x, int64_t n);     /* x[i] = -inf */
    void (*reciprocal)(void *x, int64_t n); /* x[i] = 1 / x[i] */
    void (*log)(void *x, int64_t n);        /* x[i] = log x[i] */
    /* out[i] = log_sum[i] - (picked[i] - max[i]) */
    void (*loss)(void *out, const void *log_sum, const void *picked, const void *max, int64_t n);
} gd_softmax_loops;

/* Of rows that follow one another, along the last axis. */
bool gd_softmax_takes_halves(const gd_kernel_call *call);
gd_workspace gd_softmax_scratch(const gd_kernel_call *call);
gd_status gd_softmax_run(const gd_kernel_call *call, const gd_softmax_loops *loops);
gd_status gd_log_softmax_run(const gd_kernel_call *call, const gd_softmax_loops *loops);
/* logits [n, c], labels [n] i64, i32 or u8 -> [n]: -log softmax(logits)[label] */
gd_status gd_cross_entropy_run(const gd_kernel_call *call, const gd_softmax_loops *loops);
/* logits [n, c], labels [n], g [n] -> [n, c]: (softmax(logits) - onehot(labels)) * g */
gd_status gd_cross_entropy_grad_run(const gd_kernel_call *call, const gd_softmax_loops *loops);

#endif
