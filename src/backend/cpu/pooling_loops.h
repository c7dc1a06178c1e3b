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

/* The windows of planes [begin, end), row-major, and what to do with them. */
#define EACH_WINDOW(name, BEFORE_PLANE, BODY)                                  \
    static void N(name)(void *context, int64_t begin, int64_t end, int thread) \
    {                                                                          \
        (void)thread;                                                          \
        const gd_pool_job *job = context;                                      \
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
