/* ops/random.h: words of a context's random stream as they are, for src/optim. */
#ifndef GD_OPS_RANDOM_H
#define GD_OPS_RANDOM_H

#include <gradus/ops.h>

/* The next words of the stream, one for each element of `shape`, as i32. */
gd_tensor *gd_random_words(gd_context *context, gd_shape shape);

#endif
