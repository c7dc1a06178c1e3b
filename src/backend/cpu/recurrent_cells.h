/* backend/cpu/recurrent_cells.h: one row of one step of a recurrent network, forward and back: a
 * template, included by recurrent_isa.c for f32 and for f64, with REAL, SIGMOID,
 * TANH, N(name) and INDEPENDENT defined, which says of a loop that its arrays do not overlap: there
 * are more of them than compilers check when they vectorise. The formulas are in ops/recurrent.c.
 */

/* z [gates * w], a = h u without the bias; h and c [w] become the next; gates [kept] is kept for
 * the gradient. */
static void N(cell_forward)(int cell, int64_t w, const void *z_, const void *b_, const void *a_,
                            void *h_, void *c_, void *gates_)
{
    const REAL *restrict z = z_, *restrict b = b_, *restrict a = a_;
    REAL *restrict h = h_, *restrict c = c_, *restrict kept = gates_;
    switch (cell) {
    case GD_CELL_RNN:
        for (int64_t j = 0; j < w; j++)
            h[j] = TANH(z[j] + (a[j] + b[j]));
        break;
    case GD_CELL_RNN_RELU:
        for (int64_t j = 0; j < w; j++) {
            REAL x = z[j] + (a[j] + b[j]);
            h[j] = x < 0 ? 0 : x;
        }
        break;
    case GD_CELL_LSTM:
        INDEPENDENT
        for (int64_t j = 0; j < w; j++) {
            REAL i = SIGMOID(z[j] + (a[j] + b[j]));
            REAL f = SIGMOID(z[w + j] + (a[w + j] + b[w + j]));
            REAL g = TANH(z[2 * w + j] + (a[2 * w + j] + b[2 * w + j]));
            REAL o = SIGMOID(z[3 * w + j] + (a[3 * w + j] + b[3 * w + j]));
            kept[j] = i;
            kept[w + j] = f;
            kept[2 * w + j] = g;
            kept[3 * w + j] = o;
            c[j] = f * c[j] + i * g;
            h[j] = o * TANH(c[j]);
        }
        break;
    default: /* GRU */
        for (int64_t j = 0; j < 2 * w; j++)
            kept[j] = SIGMOID(z[j] + (a[j] + b[j]));
        for (int64_t j = 0; j < w; j++) {
            REAL an = a[2 * w + j] + b[2 * w + j], k = kept[w + j];
            REAL n = TANH(z[2 * w + j] + kept[j] * an);
            kept[2 * w + j] = n;
            kept[3 * w + j] = an;
            h[j] = (1 - k) * n + k * h[j];
        }
    }
}

/* dh and dc: gradients by this step's h and c. They become what reaches the step before directly;
 * da u^T is added to dh by the caller. */
static void N(cell_backward)(int cell, int64_t w, const void *gates_, const void *h_,
                             const void *before_, const void *c_, const void *c_before_, void *dh_,
                             void *dc_, void *dz_, void *da_)
{
    const REAL *restrict kept = gates_, *restrict h = h_, *restrict before = before_;
    const REAL *restrict c = c_, *restrict c_before = c_before_;
    REAL *restrict dh = dh_, *restrict dc = dc_, *restrict dz = dz_, *restrict da = da_;
    switch (cell) {
    case GD_CELL_RNN:
        for (int64_t j = 0; j < w; j++) {
            da[j] = dh[j] * (1 - h[j] * h[j]);
            dh[j] = 0;
        }
        break;
    case GD_CELL_RNN_RELU:
        for (int64_t j = 0; j < w; j++) {
            da[j] = h[j] > 0 ? dh[j] : 0;
            dh[j] = 0;
        }
        break;
    case GD_CELL_LSTM:
        INDEPENDENT
        for (int64_t j = 0; j < w; j++) {
            REAL i = kept[j], f = kept[w + j], g = kept[2 * w + j], o = kept[3 * w + j];
            REAL s = TANH(c[j]), d = dc[j] + dh[j] * o * (1 - s * s);
            da[j] = d * g * (i * (1 - i));
            da[w + j] = d * c_before[j] * (f * (1 - f));
            da[2 * w + j] = d * i * (1 - g * g);
            da[3 * w + j] = dh[j] * s * (o * (1 - o));
            dc[j] = d * f;
            dh[j] = 0;
        }
        break;
    default: /* GRU */
        INDEPENDENT
        for (int64_t j = 0; j < w; j++) {
            REAL r = kept[j], k = kept[w + j], n = kept[2 * w + j], an = kept[3 * w + j];
            REAL dn = dh[j] * (1 - k) * (1 - n * n);
            dz[j] = da[j] = dn * an * (r * (1 - r));
            dz[w + j] = da[w + j] = dh[j] * (before[j] - n) * (k * (1 - k));
            dz[2 * w + j] = dn;
            da[2 * w + j] = dn * r;
            dh[j] = dh[j] * k;
        }
        return;
    }
    int64_t count = cell == GD_CELL_LSTM ? 4 * w : w;
    for (int64_t j = 0; j < count; j++)
        dz[j] = da[j];
}
