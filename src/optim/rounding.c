/* optim/rounding.c: storing in 16 bits what an update has computed in 32: to nearest, or stochastically
 * (Gupta et al., "Deep learning with limited numerical precision", 2015). */
#include "optim/optimizer.h"

#include "ops/random.h"

/* 16 random bits for each element: the low halves of the words, then the high ones. */
static gd_tensor *next_noise(gd_rounding *rounding, gd_tensor *x)
{
    const bool is_high = rounding->used++ % 2 != 0;
    if (!is_high)
        rounding->words = gd_random_words(gd_tensor_context(x), gd_tensor_shape(x));
    return gd_word_half(rounding->words, is_high, gd_tensor_dtype(x));
}

gd_tensor *gd_optimizer_stored(gd_rounding *rounding, gd_tensor *x, gd_dtype dtype,
                               bool stochastically)
{
    if (!x || gd_tensor_dtype(x) == dtype)
        return x;
    return gd_cast(stochastically ? gd_round_bf16(x, next_noise(rounding, x)) : x, dtype);
}
