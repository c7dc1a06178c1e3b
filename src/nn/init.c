/* nn/init.c: initial values of parameters. One row a kind; start at gd_init_fill(). Values come
 * from the module's counter-based stream, a fixed number of words for each. */
#include "nn/module.h"

#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"

#include <math.h>

typedef enum distribution { CONSTANT, UNIFORM, NORMAL, TRUNCATED, ORTHOGONAL } distribution;

typedef struct init_row {
    const char *name;
    distribution distribution;
    double size;          /* s of the variance s / fan; 0 where no fan counts */
    bool fan_in, fan_out; /* what is averaged for fan */
    double scale;         /* taken where none is given: the constant, limit, deviation or factor */
} init_row;

static const init_row rows[GD_INIT_COUNT] = {
    [GD_INIT_DEFAULT] = { "default", UNIFORM, 1.0, true, true, 1.0 }, /* as glorot_uniform */
    [GD_INIT_ZEROS] = { "zeros", CONSTANT, 0.0, false, false, 0.0 },
    [GD_INIT_ONES] = { "ones", CONSTANT, 0.0, false, false, 1.0 },
    [GD_INIT_GLOROT_UNIFORM] = { "glorot_uniform", UNIFORM, 1.0, true, true, 1.0 },
    [GD_INIT_GLOROT_NORMAL] = { "glorot_normal", NORMAL, 1.0, true, true, 1.0 },
    [GD_INIT_HE_UNIFORM] = { "he_uniform", UNIFORM, 2.0, true, false, 1.0 },
    [GD_INIT_HE_NORMAL] = { "he_normal", NORMAL, 2.0, true, false, 1.0 },
    [GD_INIT_LECUN_UNIFORM] = { "lecun_uniform", UNIFORM, 1.0, true, false, 1.0 },
    [GD_INIT_LECUN_NORMAL] = { "lecun_normal", NORMAL, 1.0, true, false, 1.0 },
    [GD_INIT_CONSTANT] = { "constant", CONSTANT, 0.0, false, false, 0.0 },
    [GD_INIT_UNIFORM] = { "uniform", UNIFORM, 0.0, false, false, 0.05 },
    [GD_INIT_NORMAL] = { "normal", NORMAL, 0.0, false, false, 0.05 },
    [GD_INIT_TRUNCATED_NORMAL] = { "truncated_normal", TRUNCATED, 0.0, false, false, 0.05 },
    [GD_INIT_ORTHOGONAL] = { "orthogonal", ORTHOGONAL, 0.0, false, false, 1.0 },
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

uint64_t gd_init_words(gd_init init, gd_shape shape)
{
    static const uint64_t each[] = {
        [CONSTANT] = 0, [UNIFORM] = 1, [NORMAL] = 2, [TRUNCATED] = 1, [ORTHOGONAL] = 2
    };
    return each[rows[init].distribution] * (uint64_t)shape_count(shape);
}

/* The variance of the values of a row that counts fans. */
static double variance_of(const init_row *row, const gd_initialiser *i)
{
    double before = 1.0;
    for (int axis = 0; axis < i->shape.rank - 2; axis++)
        before *= (double)i->shape.dim[axis];
    double in =
        i->fan_in >= 0 ? (double)i->fan_in : before * (double)i->shape.dim[i->shape.rank - 2];
    double out =
        i->fan_out >= 0 ? (double)i->fan_out : before * (double)i->shape.dim[i->shape.rank - 1];
    double fan = row->fan_out ? (in + out) / 2.0 : in;
    return fan > 0.0 ? row->size / fan : 0.0;
}

/* Words of the module's stream, taken in order. */
static void take_words(gd_random *random, uint64_t count, uint32_t *words)
{
    gd_philox_words(random->seed, random->next, count, words);
    random->next += count;
}

enum { CHUNK = 256 };

/* Where values go. */
typedef struct sink {
    gd_dtype dtype;
    void *values;
} sink;

static void put(const sink *to, int64_t i, double value)
{
    if (to->dtype == GD_F64)
        ((double *)to->values)[i] = value;
    else if (to->dtype == GD_BF16)
        ((uint16_t *)to->values)[i] = gd_f32_to_bf16((float)value);
    else
        ((float *)to->values)[i] = (float)value;
}

/* Uniform in [-limit, limit). */
static void fill_uniform(gd_random *random, double limit, const sink *to, int64_t count)
{
    uint32_t words[CHUNK];
    for (int64_t done = 0; done < count;) {
        int64_t step = count - done < CHUNK ? count - done : CHUNK;
        take_words(random, (uint64_t)step, words);
        for (int64_t i = 0; i < step; i++)
            put(to, done + i, ((double)words[i] * 0x1p-31 - 1.0) * limit);
        done += step;
    }
}

/* Box, Muller, "A note on the generation of random normal deviates", 1958. */
static void fill_normal(gd_random *random, double deviation, const sink *to, int64_t count)
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
            put(to, done + i, value * deviation);
        }
        done += step;
    }
}

/* z with P(0 < Z < z) = p, 0 <= p < 0.4773, for a standard normal Z: Newton's iteration from 0,
 * which the concave distribution function makes rise without overshooting. */
static double half_normal_quantile(double p)
{
    const double root_half = 0.70710678118654752440, density_at_0 = 0.39894228040143267794;
    double z = 0.0;
    for (int i = 0; i < 12; i++) {
        double step = (p - 0.5 * erf(z * root_half)) / (density_at_0 * exp(-0.5 * z * z));
        z += step;
        if (step < 1e-12)
            break;
    }
    return z;
}

/* Normal, without what lies beyond two deviations, by the inverse of the distribution function. */
static void fill_truncated(gd_random *random, double deviation, const sink *to, int64_t count)
{
    const double within = 0.47724986805182079; /* P(0 < Z < 2) */
    uint32_t words[CHUNK];
    for (int64_t done = 0; done < count;) {
        int64_t step = count - done < CHUNK ? count - done : CHUNK;
        take_words(random, (uint64_t)step, words);
        for (int64_t i = 0; i < step; i++) {
            double p = ((double)words[i] * 0x1p-31 - 1.0) * within;
            put(to, done + i, copysign(half_normal_quantile(fabs(p)), p) * deviation);
        }
        done += step;
    }
}

/* v of `n` numbers made orthogonal to the `count` vectors before it, and of length 1; twice, which
 * is enough (Giraud, Langou, Rozloznik 2005). */
static void orthonormalize(double *v, const double *before, int64_t count, int64_t n)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t k = 0; k < count; k++) {
            double dot = 0.0;
            for (int64_t i = 0; i < n; i++)
                dot += v[i] * before[k * n + i];
            for (int64_t i = 0; i < n; i++)
                v[i] -= dot * before[k * n + i];
        }
        double square = 0.0;
        for (int64_t i = 0; i < n; i++)
            square += v[i] * v[i];
        for (int64_t i = 0; i < n && square > 0.0; i++)
            v[i] /= sqrt(square);
    }
}

/* The first axis by the rest, a matrix whose rows or columns, whichever are fewer, are orthonormal.
 * Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear
 * neural networks", 2014. */
static gd_status fill_orthogonal(gd_random *random, double gain, gd_shape shape, const sink *to)
{
    int64_t count = shape_count(shape), height = shape.dim[0], width = height ? count / height : 0;
    int64_t vectors = height < width ? height : width, n = height < width ? width : height;
    double *v = gd_alloc((size_t)count * sizeof *v + 1);
    if (!v)
        return GD_ERR_MEMORY;
    fill_normal(random, 1.0, &(sink){ GD_F64, v }, count);
    for (int64_t k = 0; k < vectors; k++)
        orthonormalize(v + k * n, v, k, n);
    for (int64_t k = 0; k < vectors; k++)
        for (int64_t i = 0; i < n; i++)
            put(to, vectors == height ? k * n + i : i * vectors + k, gain * v[k * n + i]);
    gd_free(v);
    return GD_OK;
}

gd_status gd_init_fill(const gd_initialiser *i, gd_random *random, gd_dtype dtype, void *values)
{
    const sink to = { dtype, values };
    if ((unsigned)i->init >= GD_INIT_COUNT)
        return gd_fail(GD_ERR_INVALID, "there is no initialiser number %d", (int)i->init);
    const init_row *row = &rows[i->init];
    int64_t count = shape_count(i->shape);
    bool is_fixed = i->init == GD_INIT_ZEROS || i->init == GD_INIT_ONES;
    double scale = isnan(i->scale) || is_fixed ? row->scale : i->scale;
    if (!isfinite(scale))
        return gd_fail(GD_ERR_INVALID, "initialiser %s: the scale is %g", row->name, scale);
    bool fans_given = i->fan_in >= 0 && (i->fan_out >= 0 || !row->fan_out);
    if (i->shape.rank < 2 && (row->distribution == ORTHOGONAL || (row->fan_in && !fans_given)))
        return gd_fail(GD_ERR_SHAPE, "initialiser %s needs at least two axes, not %d", row->name,
                       i->shape.rank);
    double variance = row->fan_in ? variance_of(row, i) : 1.0;
    switch (row->distribution) {
    case CONSTANT:
        for (int64_t k = 0; k < count; k++)
            put(&to, k, scale);
        return GD_OK;
    case UNIFORM: /* a limit, or the limit of that deviation */
        fill_uniform(random, row->fan_in ? scale * sqrt(3.0 * variance) : scale, &to, count);
        return GD_OK;
    case NORMAL:
        fill_normal(random, scale * sqrt(variance), &to, count);
        return GD_OK;
    case TRUNCATED:
        fill_truncated(random, scale, &to, count);
        return GD_OK;
    case ORTHOGONAL:
        return fill_orthogonal(random, scale, i->shape, &to);
    }
    return GD_OK;
}
