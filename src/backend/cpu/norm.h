/* backend/cpu/norm.h: the ops normalize and normalize_grad (what they compute: ops/norm.c). The
 * loops over a row depend on dtype and instruction set (norm_loops.h, made for f32 by norm_isa.c
 * and for f64 by norm.c); the walk over rows and threads is norm.c.
 *
 * The order of additions is defined, whatever the vector width and the number of threads. A sum
 * along a row of k numbers is taken in blocks of 4096: 32 lanes, lane[j] adding x[j], x[32 + j], …
 * one after another, are folded (lane[j] += lane[j + h], h = 16, 8, 4, 2, 1), and the blocks' sums
 * are added in f64, in order. Sums over rows, for weight and bias, are added row by row within a
 * block of rows (ops/attrs.h). f16 and bf16 are computed in f32, with the bits of casts before and behind.
 */
#ifndef GD_BACKEND_CPU_NORM_H
#define GD_BACKEND_CPU_NORM_H

#include "backend/cpu/cpu.h"
#include "ops/attrs.h"

/* Rows of one dtype, one after another. weight and bias [k] or NULL. */
typedef struct gd_norm_rows_job {
    const void *x, *g;           // [count, k]
    const void *weight, *bias;   // [k]
    void *out;                   // [count, k]
    void *weight_sum, *bias_sum; // [k], to which the rows are added; NULL: not wanted
    int64_t count, k;
    double epsilon;
    bool center;
} gd_norm_rows_job;

typedef struct gd_norm_loops {
    size_t size; /* of an element */
    void (*forward)(const gd_norm_rows_job *job);
    void (*backward)(const gd_norm_rows_job *job);
    /* out = (x - *center) g, or without g (x - *center)^2 */
    void (*centred)(const void *x, const void *center, const void *g, void *out, int64_t n);
} gd_norm_loops;

extern const gd_norm_loops gd_norm_f64_loops;

gd_workspace gd_norm_scratch(const gd_kernel_call *call);
bool gd_norm_takes_halves(const gd_kernel_call *call);
gd_status gd_normalize_run(const gd_kernel_call *call, const gd_norm_loops *loops);
gd_status gd_normalize_grad_run(const gd_kernel_call *call, const gd_norm_loops *loops);

gd_workspace gd_centred_scratch(const gd_kernel_call *call);
bool gd_centred_takes_halves(const gd_kernel_call *call);
gd_status gd_centred_products_run(const gd_kernel_call *call, const gd_norm_loops *loops);

#endif
