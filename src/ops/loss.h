/* ops/loss.h: what the files of losses share. */
#ifndef GD_OPS_LOSS_H
#define GD_OPS_LOSS_H

#include "base/options.h"
#include "ops/internal.h"

/* The losses of elements or rows, reduced, as dtype. `share` is what each counts in the mean, NULL:
 * 1. */
gd_tensor *gd_reduce_losses(gd_tensor *each, gd_tensor *share, gd_reduction reduction,
                            gd_dtype dtype, const char *who);
/* Whether shapes are equal; if not, the error is recorded. */
bool gd_same_shapes(const gd_tensor *x, const gd_tensor *y, const char *who);

/* log(p), at least -100; where it would be less the gradient is 0. */
gd_tensor *gd_bounded_log(gd_tensor *p);

#endif
