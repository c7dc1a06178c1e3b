/* optim/rounding.c: storing in 16 bits what an update has computed in 32: to nearest, or stochastically
 * (Gupta et al., "Deep learning with limited numerical precision", 2015). */
#include "optim/optimizer.h"

#include "ops/random.h"

/* 16 random bits for each element, as whole numbers of x's dtype: the low halves of the words, then the
 * high ones, whose sign is taken for a digit by an offset. */
static gd_tensor *next_noise(gd_rounding *rounding, gd_tensor *x)
{
    const bool is_high = rounding->used++ % 2 != 0;
    gd_context *context = gd_tensor_context(x);
    if (!is_high)
        rounding->words = gd_random_words(context, gd_tensor_shape(x));
    gd_tensor *mask = gd_scalar(context, is_high ? -65536 : 65535, GD_I32);
    gd_tensor *half = gd_cast(gd_bitwise_and(rounding->words, mask), gd_tensor_dtype(x));
    return is_high ? gd_add_scalar(gd_mul_scalar(half, 0x1p-16), 32768) : half;
}

gd_tensor *gd_optimizer_stored(gd_rounding *rounding, gd_tensor *x, gd_dtype dtype,
                               bool stochastically)
{
    if (x && dtype == GD_BF16 && stochastically)
        x = gd_round_bf16(x, next_noise(rounding, x));
    return gd_cast(x, dtype);
}
