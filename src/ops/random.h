/* ops/random.h: words of a context's random stream as they are, for src/optim. */
#ifndef GD_OPS_RANDOM_H
#define GD_OPS_RANDOM_H

#include <gradus/ops.h>

/* The next words of the stream, one for each element of `shape`, as i32. NULL for the context of a tensor that has
 * ended. */
gd_tensor *gd_random_words(gd_context *context, gd_shape shape);

/* The low or the high halves of words as numbers from 0 to 65535, of a float dtype. Words are read as
 * i32: of the high half 2^15 is added to what its sign makes of it, so its first bit is inverted. */
gd_tensor *gd_word_half(gd_tensor *words, bool is_high, gd_dtype dtype);

#endif
