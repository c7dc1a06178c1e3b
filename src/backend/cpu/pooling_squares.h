/* backend/cpu/pooling_squares.h: the maximum over windows of two by two that touch each other, and
 * its gradient. The position of the largest of four numbers is unpredictable, so there are no
 * branches. Included by pooling_isa.c for f32 and by pooling.c for f64, with REAL, BITS (unsigned,
 * as wide) and N(name) defined; and, where there are loops over vectors of windows
 * (pooling_rows.h), POOL_ROW and SPREAD_ROW, which do a row if it is long enough. */
#ifndef POOL_ROW
#define POOL_ROW(...)   false
#define SPREAD_ROW(...) false
#endif

/* The first largest of two; NaN is larger than numbers. */
static inline REAL N(larger)(REAL first, REAL second)
{
    const REAL most = first >= second ? first : second;
    return first != first ? first : most;
}

/* All bits where the second is larger than the first, else none. */
static inline BITS N(is_larger)(REAL first, REAL second)
{
    const BITS not_less = second <= first ? 0 : ~(BITS)0;
    return first != first ? 0 : not_less;
}

static inline REAL N(keep)(REAL x, BITS mask)
{
    BITS bits;
    memcpy(&bits, &x, sizeof x);
    bits &= mask;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void N(max_squares)(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const gd_pool_job *job = context;
    const gd_pool_sizes *s = &job->s;
    const int64_t height = s->out[1], width = s->out[2], row = s->in[2];
    for (int64_t i = begin * s->in[0]; i < end * s->in[0]; i++)
        for (int64_t y = 0; y < height; y++) {
            const REAL *above = (const REAL *)job->in + (i * s->in[1] + 2 * y) * row;
            const REAL *below = above + row;
            REAL *restrict to = (REAL *)job->out + (i * height + y) * width;
            if (POOL_ROW(above, below, width, to))
                continue;
            for (int64_t x = 0; x < width; x++) {
                const REAL left = N(larger)(above[2 * x], above[2 * x + 1]);
                to[x] = N(larger)(N(larger)(left, below[2 * x]), below[2 * x + 1]);
            }
        }
}

/* What two rows of the result get from the row g [width] of the gradient. */
static void N(spread_row)(const REAL *above, const REAL *below, const REAL *g, int64_t width,
                          REAL *restrict to_above, REAL *restrict to_below)
{
    if (SPREAD_ROW(above, below, g, width, to_above, to_below))
        return;
    for (int64_t x = 0; x < width; x++) {
        const REAL a = above[2 * x], b = above[2 * x + 1], c = below[2 * x], d = below[2 * x + 1];
        const REAL ab = N(larger)(a, b), abc = N(larger)(ab, c);
        const BITS is_b = N(is_larger)(a, b), is_c = N(is_larger)(ab, c),
                   is_d = N(is_larger)(abc, d);
        const REAL value = 0 + g[x]; /* 0 + -0 is 0, as in sums */
        to_above[2 * x] = N(keep)(value, ~(is_b | is_c | is_d));
        to_above[2 * x + 1] = N(keep)(value, is_b & ~(is_c | is_d));
        to_below[2 * x] = N(keep)(value, is_c & ~is_d);
        to_below[2 * x + 1] = N(keep)(value, is_d);
    }
}

static void N(max_squares_grad)(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const gd_pool_job *job = context;
    const gd_pool_sizes *s = &job->s;
    const int64_t height = s->out[1], width = s->out[2], row = s->in[2];
    for (int64_t i = begin * s->in[0]; i < end * s->in[0]; i++) {
        const REAL *in = (const REAL *)job->in + i * s->in[1] * row;
        const REAL *g = (const REAL *)job->g + i * height * width;
        REAL *to = (REAL *)job->out + i * s->in[1] * row;
        if (2 * width < row || 2 * height < s->in[1]) /* a last row or column that nothing sees */
            memset(to, 0, (size_t)(s->in[1] * row) * sizeof(REAL));
        for (int64_t at = 0; at < 2 * height * row; at += 2 * row, g += width)
            N(spread_row)(in + at, in + at + row, g, width, to + at, to + at + row);
    }
}

#undef REAL
#undef BITS
#undef N
#undef POOL_ROW
#undef SPREAD_ROW
