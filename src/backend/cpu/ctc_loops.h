/* backend/cpu/ctc_loops.h: ctc_alpha and its gradient for one sample and one dtype. Included by
 * ctc.c with N(name), REAL, EXP and LOG defined. Tables are [time, states], strided in the
 * operands, contiguous in the result. */

/* log(exp a + exp b + exp c) */
static REAL N(log_sum)(REAL a, REAL b, REAL c)
{
    if (a == -INFINITY && b == -INFINITY && c == -INFINITY)
        return a;
    REAL most = a > b ? a : b;
    most = most > c ? most : c;
    return most + LOG(EXP(a - most) + EXP(b - most) + EXP(c - most));
}

/* before: alpha one time earlier, its elements `stride` apart. */
static REAL N(state_before)(const REAL *before, int64_t stride, int64_t s)
{
    return s < 0 ? (REAL)-INFINITY : before[s * stride];
}

static void N(alpha)(const job *j, int64_t n)
{
    const gd_layout *e = j->table->layout;
    const REAL *from = (const REAL *)j->table->data + n * e->stride[0];
    const bool *skip = (const bool *)j->skip->data + n * j->skip->layout->stride[0];
    int64_t skip_stride = j->skip->layout->stride[1];
    REAL *out = (REAL *)j->out + n * j->time * j->states;
    for (int64_t s = 0; s < j->states; s++)
        out[s] = s < 2 ? from[s * e->stride[2]] : (REAL)-INFINITY + from[s * e->stride[2]];
    for (int64_t t = 1; t < j->time; t++) {
        const REAL *row = from + t * e->stride[1], *before = out + (t - 1) * j->states;
        for (int64_t s = 0; s < j->states; s++) {
            bool skips = s >= 2 && skip[s * skip_stride];
            out[t * j->states + s] =
                row[s * e->stride[2]] + N(log_sum)(before[s], N(state_before)(before, 1, s - 1),
                                                   skips ? before[s - 2] : (REAL)-INFINITY);
        }
    }
}

/* From the last time to the first: the gradient of a state goes to the states before it. */
static void N(alpha_grad)(const job *j, int64_t n)
{
    const gd_layout *a = j->table->layout, *gl = j->g->layout;
    const REAL *alpha = (const REAL *)j->table->data + n * a->stride[0];
    const REAL *g = (const REAL *)j->g->data + n * gl->stride[0];
    const bool *skip = (const bool *)j->skip->data + n * j->skip->layout->stride[0];
    int64_t skip_stride = j->skip->layout->stride[1], step = a->stride[2];
    REAL *out = (REAL *)j->out + n * j->time * j->states;
    for (int64_t t = j->time - 1; t >= 0; t--) {
        REAL *row = out + t * j->states, *after = row + j->states;
        const REAL *before = alpha + t * a->stride[1];
        for (int64_t s = 0; s < j->states; s++)
            row[s] = g[t * gl->stride[1] + s * gl->stride[2]];
        for (int64_t s = 0; s < j->states && t + 1 < j->time; s++) {
            bool skips = s >= 2 && skip[s * skip_stride];
            REAL x = before[s * step], y = N(state_before)(before, step, s - 1);
            REAL z = skips ? before[(s - 2) * step] : (REAL)-INFINITY;
            REAL total = N(log_sum)(x, y, z);
            if (total == -INFINITY)
                continue;
            row[s] += EXP(x - total) * after[s];
            if (s >= 1)
                row[s - 1] += EXP(y - total) * after[s];
            if (skips)
                row[s - 2] += EXP(z - total) * after[s];
        }
    }
    for (int64_t s = 2; s < j->states && j->time > 0; s++)
        out[s] = 0; /* no path begins there */
}

#undef N
#undef REAL
#undef EXP
#undef LOG
