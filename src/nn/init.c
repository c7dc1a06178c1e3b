/* nn/init.c: initial values of parameters. One row a kind; start at gd_init_fill(). Values come
 * from the module's counter-based stream, one word for a uniform number, two for a normal one. */
#include "nn/module.h"

#include "base/error.h"

#include <math.h>

typedef enum distribution { CONSTANT, UNIFORM, NORMAL } distribution;

typedef struct init_row {
    const char *name;
    double size; /* the constant, or s of the variance s / fan */
    distribution distribution;
    bool fan_in, fan_out; /* what is added up for fan */
} init_row;

static const init_row rows[GD_INIT_COUNT] = {
    [GD_INIT_DEFAULT] = { "default", 2.0, UNIFORM, true, true }, /* as glorot_uniform */
    [GD_INIT_ZEROS] = { "zeros", 0.0, CONSTANT, false, false },
    [GD_INIT_ONES] = { "ones", 1.0, CONSTANT, false, false },
    [GD_INIT_GLOROT_UNIFORM] = { "glorot_uniform", 2.0, UNIFORM, true, true },
    [GD_INIT_GLOROT_NORMAL] = { "glorot_normal", 2.0, NORMAL, true, true },
    [GD_INIT_HE_UNIFORM] = { "he_uniform", 2.0, UNIFORM, true, false },
    [GD_INIT_HE_NORMAL] = { "he_normal", 2.0, NORMAL, true, false },
};

const char *gd_init_name(gd_init init)
{
    return (unsigned)init < GD_INIT_COUNT ? rows[init].name : "?";
}

static int64_t shape_count(gd_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    return count;
}

/* Variance of the values. */
static double variance_of(const init_row *row, gd_shape shape)
{
    double fan = 0.0, before = 1.0;
    for (int i = 0; i < shape.rank - 2; i++)
        before *= (double)shape.dim[i];
    if (row->fan_in)
        fan += before * (double)shape.dim[shape.rank - 2];
    if (row->fan_out)
        fan += before * (double)shape.dim[shape.rank - 1];
    return fan > 0.0 ? row->size / fan : 0.0;
}

/* Words of the module's stream, taken in order. */
static void take_words(gd_random *random, uint64_t count, uint32_t *words)
{
    gd_philox_words(random->seed, random->next, count, words);
    random->next += count;
}

enum { CHUNK = 256 };

/* Uniform in [-limit, limit). */
static void fill_uniform(gd_random *random, double limit, float *values, int64_t count)
{
    uint32_t words[CHUNK];
    for (int64_t done = 0; done < count;) {
        int64_t step = count - done < CHUNK ? count - done : CHUNK;
        take_words(random, (uint64_t)step, words);
        for (int64_t i = 0; i < step; i++)
            values[done + i] = (float)(((double)words[i] * 0x1p-31 - 1.0) * limit);
        done += step;
    }
}

/* Box, Muller, "A note on the generation of random normal deviates", 1958. */
static void fill_normal(gd_random *random, double deviation, float *values, int64_t count)
{
    const double two_pi = 6.28318530717958647692;
    uint32_t words[CHUNK];
    for (int64_t done = 0; done < count;) {
        int64_t step = count - done < CHUNK / 2 ? count - done : CHUNK / 2;
        take_words(random, (uint64_t)(2 * step), words);
        for (int64_t i = 0; i < step; i++) {
            double above_zero = ((double)words[2 * i] + 1.0) * 0x1p-32; /* (0, 1] */
            double angle = (double)words[2 * i + 1] * 0x1p-32 * two_pi;
            double value = sqrt(-2.0 * log(above_zero)) * cos(angle);
            values[done + i] = (float)(value * deviation);
        }
        done += step;
    }
}

gd_status gd_init_fill(gd_init init, gd_shape shape, gd_random *random, float *values)
{
    if ((unsigned)init >= GD_INIT_COUNT)
        return gd_fail(GD_ERR_INVALID, "there is no initialiser number %d", (int)init);
    const init_row *row = &rows[init];
    int64_t count = shape_count(shape);
    if (row->distribution == CONSTANT) {
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)row->size;
        return GD_OK;
    }
    if (shape.rank < 2)
        return gd_fail(GD_ERR_SHAPE, "initialiser %s needs at least two axes, not %d", row->name,
                       shape.rank);
    double variance = variance_of(row, shape);
    if (row->distribution == UNIFORM)
        fill_uniform(random, sqrt(3.0 * variance), values, count);
    else
        fill_normal(random, sqrt(variance), values, count);
    return GD_OK;
}
