/* backend/cpu/convolution_loops.h: plain convolution loops, included by convolution.c once per
 * element type REAL; N(name) is a name of our own. Every element is a sum in the order channels,
 * taps (gradient of the weight: batch, positions), each product and each sum rounded. */

/* Planes [begin, end) of y [n, o]. */
static void N(forward)(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conv_job *job = context;
    const gd_conv_sizes *s = &job->s;
    const int64_t step = job->attr->stride[2], rows = s->out[0] * s->out[1], width = s->out[2];
    for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / (s->groups * s->o), o = i % (s->groups * s->o);
        const REAL *x = (const REAL *)job->a + (n * s->groups + o / s->o) * s->c * s->in_plane;
        const REAL *w = (const REAL *)job->b + o * s->c * s->taps; /* [c, taps] */
        REAL *y = (REAL *)job->out + i * s->out_plane;
        for (int64_t p = 0; p < s->out_plane; p++)
            y[p] = 0;
        for (int64_t k = 0; k < s->c * s->taps; k++) {
            const tap t = tap_at(s, k % s->taps);
            const REAL *plane = x + k / s->taps * s->in_plane, factor = w[k];
            int64_t first, last;
            row_inside(job, &t, &first, &last);
            for (int64_t row = 0; row < rows; row++) {
                REAL *to = y + row * width;
                const int64_t from = row_seen(job, &t, row / s->out[1], row % s->out[1]);
                const int64_t low = from < 0 ? width : first, high = from < 0 ? width : last;
                const REAL *seen_row = plane + (from < 0 ? 0 : from + seen(job, &t, 2, 0));
                for (int64_t p = 0; p < low; p++)
                    to[p] += factor * 0;
                for (int64_t p = low; p < high; p++)
                    to[p] += factor * seen_row[p * step];
                for (int64_t p = high; p < width; p++)
                    to[p] += factor * 0;
            }
        }
        const REAL bias = job->bias ? ((const REAL *)job->bias)[o] : 0;
        for (int64_t p = 0; p < s->out_plane; p++) {
            const REAL value = job->bias ? y[p] + bias : y[p];
            y[p] = job->attr->relu && value < 0 ? 0 : value;
        }
    }
}

/* Row (z, y) of x's plane gathers what tap t brings it from g's plane. */
static void N(gather_row)(const conv_job *job, const tap *t, const int64_t at[2], const REAL *g,
                          REAL factor, REAL *to)
{
    const gd_conv_sizes *s = &job->s;
    const gd_conv_attr *attr = job->attr;
    int64_t row = 0;
    bool inside = true;
    for (int a = 0; a < 2; a++) {
        const int64_t place = at[a] + attr->before[a] - t->at[a] * attr->dilation[a];
        if (place % attr->stride[a])
            return;
        const int64_t p = place / attr->stride[a];
        inside = inside && p >= 0 && p < s->out[a];
        row = row * s->out[a] + p;
    }
    const int64_t step = attr->stride[2], shift = attr->before[2] - t->at[2] * attr->dilation[2];
    for (int64_t q = ((-shift) % step + step) % step; q < s->in[2]; q += step) {
        const int64_t p = (q + shift) / step;
        to[q] += factor * (inside && p >= 0 && p < s->out[2] ? g[row * s->out[2] + p] : 0);
    }
}

/* Planes [begin, end) of x's gradient [n, c]. */
static void N(grad_input)(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conv_job *job = context;
    const gd_conv_sizes *s = &job->s;
    for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / (s->groups * s->c), c = i % s->c, group = i / s->c % s->groups;
        REAL *x = (REAL *)job->out + i * s->in_plane;
        for (int64_t q = 0; q < s->in_plane; q++)
            x[q] = 0;
        for (int64_t o = group * s->o; o < (group + 1) * s->o; o++) {
            const REAL *g = (const REAL *)job->a + (n * s->groups * s->o + o) * s->out_plane;
            const REAL *w = (const REAL *)job->b + (o * s->c + c) * s->taps; /* [taps] */
            for (int64_t k = 0; k < s->taps; k++) {
                const tap t = tap_at(s, k);
                for (int64_t row = 0; row < s->in[0] * s->in[1]; row++) {
                    const int64_t at[2] = { row / s->in[1], row % s->in[1] };
                    N(gather_row)(job, &t, at, g, w[k], x + row * s->in[2]);
                }
            }
        }
    }
}

/* Kernels [begin, end) of the weight's gradient [o, c]. */
static void N(grad_weight)(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conv_job *job = context;
    const gd_conv_sizes *s = &job->s;
    const int64_t step = job->attr->stride[2], rows = s->out[0] * s->out[1], width = s->out[2];
    for (int64_t i = begin * s->taps; i < end * s->taps; i++) {
        const tap t = tap_at(s, i % s->taps);
        const int64_t o = i / s->taps / s->c, c = o / s->o * s->c + i / s->taps % s->c;
        int64_t first, last;
        row_inside(job, &t, &first, &last);
        REAL sum = 0;
        for (int64_t row = 0; row < s->n * rows; row++) {
            const int64_t n = row / rows, y = row % rows;
            const REAL *g = (const REAL *)job->a +
                            ((n * s->groups * s->o + o) * rows + y) * width; /* [width] */
            const REAL *x = (const REAL *)job->b + (n * s->groups * s->c + c) * s->in_plane;
            const int64_t from = row_seen(job, &t, y / s->out[1], y % s->out[1]);
            const int64_t low = from < 0 ? width : first, high = from < 0 ? width : last;
            x += from < 0 ? 0 : from + seen(job, &t, 2, 0);
            for (int64_t p = 0; p < low; p++)
                sum += g[p] * 0;
            for (int64_t p = low; p < high; p++)
                sum += g[p] * x[p * step];
            for (int64_t p = high; p < width; p++)
                sum += g[p] * 0;
        }
        ((REAL *)job->out)[i] = sum;
    }
}

#undef REAL
#undef N
