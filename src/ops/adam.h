/* ops/adam.h: the step of Adam as one op, for src/optim. */
#ifndef GD_OPS_ADAM_H
#define GD_OPS_ADAM_H

#include <gradus/ops.h>

#include "ops/attrs.h"

/* The step of Adam (Kingma and Ba 2015) with decoupled decay (Loshchilov and Hutter 2019), from
 * in[GD_ADAM_OPERANDS], all of one floating-point dtype: p, g, m and v of one shape, the others 0-d;
 * decay may be NULL, which is 1. results: m' and v', which are 0 where they would be subnormal, and p'.
 *
 *     m' = m + rest1 (g - m)        v' = beta2 v + (rest2 g) g
 *     p' = decay p - step_size m' / (sqrt(v') + epsilon)
 *
 * In a trace, where the device has a kernel for it, it is the op `adam`; else it is put together of
 * elementwise ops, to the same bits. Without gradients. false, with the error recorded: failed. */
bool gd_adam_step(gd_tensor *const *in, gd_tensor *results[GD_ADAM_RESULTS]);

/* The same, of p and g in f32, with m and v in bf16: widened, and m' and v' rounded to bf16 once p' is
 * computed of them, by the low and the high halves of in[GD_ADAM_WORDS], i32 of p's shape (gd_word_half,
 * gd_round_bf16). It is the op `adam_bf16`. */
bool gd_adam_step_bf16(gd_tensor *const *in, gd_tensor *results[GD_ADAM_RESULTS]);

#endif
