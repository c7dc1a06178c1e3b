/* backend/cpu/pooling_loops.h: pooling of planes, included by pooling.c once per element type REAL;
 * N(name) is a name of our own. Start at N(each_window). */

/* Place of the first largest element that a window sees in a plane; NaN is larger than numbers. */
static __attribute__((noinline)) int64_t N(largest)(const gd_pool_sizes *s, const box *b,
                                                    const REAL *plane)
{
    const gd_pool_window *w = b->w;
    int64_t found = (w[0].first * s->in[1] + w[1].first) * s->in[2] + w[2].first;
    REAL most = plane[found];
    for (int64_t z = w[0].first; z < w[0].end; z += w[0].step)
        for (int64_t y = w[1].first; y < w[1].end; y += w[1].step) {
            const int64_t row = (z * s->in[1] + y) * s->in[2];
            for (int64_t x = w[2].first; x < w[2].end; x += w[2].step) {
                const REAL value = plane[row + x];
                if (!(value <= most) && most == most) {
                    most = value;
                    found = row + x;
                }
            }
        }
    return found;
}

static __attribute__((noinline)) REAL N(total)(const gd_pool_sizes *s, const box *b,
                                               const REAL *plane)
{
    const gd_pool_window *w = b->w;
    REAL sum = 0;
    for (int64_t z = w[0].first; z < w[0].end; z++)
        for (int64_t y = w[1].first; y < w[1].end; y++) {
            const REAL *row = plane + (z * s->in[1] + y) * s->in[2];
            for (int64_t x = w[2].first; x < w[2].end; x++)
                sum += row[x];
        }
    return sum;
}

static __attribute__((noinline)) void N(add_everywhere)(const gd_pool_sizes *s, const box *b,
                                                        REAL value, REAL *plane)
{
    const gd_pool_window *w = b->w;
    for (int64_t z = w[0].first; z < w[0].end; z++)
        for (int64_t y = w[1].first; y < w[1].end; y++) {
            REAL *row = plane + (z * s->in[1] + y) * s->in[2];
            for (int64_t x = w[2].first; x < w[2].end; x++)
                row[x] += value;
        }
}

/* Of windows of two by two that touch each other, row by row. */
static int N(first_largest)(const REAL *above, const REAL *below, REAL *most)
{
    const REAL v[4] = { above[0], above[1], below[0], below[1] };
    int found = 0;
    *most = v[0];
    for (int k = 1; k < 4; k++) {
        const bool larger = !(v[k] <= *most) & (*most == *most);
        *most = larger ? v[k] : *most;
        found = larger ? k : found;
    }
    return found;
}

static void N(max_squares)(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pool_job *job = context;
    const gd_pool_sizes *s = &job->s;
    const int64_t height = s->out[1], width = s->out[2], row = s->in[2];
    for (int64_t i = begin * s->in[0]; i < end * s->in[0]; i++)
        for (int64_t y = 0; y < height; y++) {
            const REAL *above = (const REAL *)job->in + (i * s->in[1] + 2 * y) * row;
            REAL *to = (REAL *)job->out + (i * height + y) * width;
            for (int64_t x = 0; x < width; x++)
                (void)N(first_largest)(above + 2 * x, above + row + 2 * x, &to[x]);
        }
}

static void N(max_squares_grad)(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pool_job *job = context;
    const gd_pool_sizes *s = &job->s;
    const int64_t height = s->out[1], width = s->out[2], row = s->in[2];
    for (int64_t i = begin * s->in[0]; i < end * s->in[0]; i++) {
        const REAL *in = (const REAL *)job->in + i * s->in[1] * row;
        REAL *to = (REAL *)job->out + i * s->in[1] * row;
        memset(to, 0, (size_t)(s->in[1] * row) * sizeof(REAL));
        for (int64_t y = 0; y < height; y++) {
            const REAL *g = (const REAL *)job->g + (i * height + y) * width;
            const int64_t at = 2 * y * row;
            for (int64_t x = 0; x < width; x++) {
                REAL most;
                const int k = N(first_largest)(in + at + 2 * x, in + at + row + 2 * x, &most);
                to[at + (k >> 1) * row + 2 * x + (k & 1)] = 0 + g[x]; /* 0 + -0 is 0, as in sums */
            }
        }
    }
}

/* The windows of planes [begin, end), row-major, and what to do with them. */
#define EACH_WINDOW(name, BEFORE_PLANE, BODY)                                  \
    static void N(name)(void *context, int64_t begin, int64_t end, int thread) \
    {                                                                          \
        (void)thread;                                                          \
        const pool_job *job = context;                                         \
        const gd_pool_sizes *s = &job->s;                                      \
        for (int64_t i = begin; i < end; i++) {                                \
            int64_t p = i * s->out_plane;                                      \
            BEFORE_PLANE;                                                      \
            box b;                                                             \
            for (int64_t z = 0; z < s->out[0]; z++) {                          \
                set_window(s, 0, z, &b);                                       \
                for (int64_t y = 0; y < s->out[1]; y++) {                      \
                    set_window(s, 1, y, &b);                                   \
                    for (int64_t x = 0; x < s->out[2]; x++, p++) {             \
                        set_window(s, 2, x, &b);                               \
                        BODY;                                                  \
                    }                                                          \
                }                                                              \
            }                                                                  \
        }                                                                      \
    }

#define INPUT_PLANE const REAL *plane = (const REAL *)job->in + i * s->in_plane
#define EMPTY_PLANE                                \
    REAL *to = (REAL *)job->out + i * s->in_plane; \
    for (int64_t q = 0; q < s->in_plane; q++)      \
    to[q] = 0

EACH_WINDOW(max_pool, INPUT_PLANE, ((REAL *)job->out)[p] = plane[N(largest)(s, &b, plane)])
EACH_WINDOW(max_pool_index, INPUT_PLANE, ((int64_t *)job->out)[p] = N(largest)(s, &b, plane))
EACH_WINDOW(max_pool_grad, INPUT_PLANE;
            EMPTY_PLANE, to[N(largest)(s, &b, plane)] += ((const REAL *)job->g)[p])
EACH_WINDOW(avg_pool, INPUT_PLANE,
            ((REAL *)job->out)[p] = N(total)(s, &b, plane) / (REAL)divisor(s, &b))
EACH_WINDOW(avg_pool_grad, EMPTY_PLANE,
            N(add_everywhere)(s, &b, ((const REAL *)job->g)[p] / (REAL)divisor(s, &b), to))

#undef EACH_WINDOW
#undef INPUT_PLANE
#undef EMPTY_PLANE
#undef REAL
#undef N
