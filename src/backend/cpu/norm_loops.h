/* backend/cpu/norm_loops.h: rows of normalize, normalize_grad and centred_products for one floating dtype: a
 * template, included with TYPE and NAME(what) defined. It makes the static table NAME(loops), and
 * undefines both. The order of additions stands in norm.h.
 */
#define LANES 32
#define BLOCK 4096

static inline __attribute__((always_inline)) TYPE NAME(fold)(TYPE lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

/* The sum over a row of `term`, an expression in i. */
#define ROW_SUM(total, k, term)                                                \
    double total = 0;                                                          \
    for (int64_t first_ = 0; first_ < (k); first_ += BLOCK) {                  \
        int64_t end_ = (k)-first_ < BLOCK ? (k) : first_ + BLOCK, i_ = first_; \
        TYPE lane_[LANES] = { 0 };                                             \
        for (; i_ + LANES <= end_; i_ += LANES)                                \
            for (int j_ = 0; j_ < LANES; j_++) {                               \
                int64_t i = i_ + j_;                                           \
                lane_[j_] += (term);                                           \
            }                                                                  \
        for (int j_ = 0; i_ + j_ < end_; j_++) {                               \
            int64_t i = i_ + j_;                                               \
            lane_[j_] += (term);                                               \
        }                                                                      \
        total += (double)NAME(fold)(lane_);                                    \
    }

/* The same sums in f64, for rows whose numbers or squares are too large for TYPE: sum of (x -
 * mean)^power, power 1 or 2. */
static double NAME(wide_sum)(const TYPE *x, int64_t k, double mean, int power)
{
    double total = 0;
    for (int64_t i = 0; i < k; i++) {
        double c = (double)x[i] - mean;
        total += power == 1 ? c : c * c;
    }
    return total;
}

static TYPE NAME(mean)(const TYPE *x, int64_t k)
{
    ROW_SUM(total, k, x[i])
    if (!isfinite(total))
        total = NAME(wide_sum)(x, k, 0, 1);
    return (TYPE)(total / (double)k);
}

/* 1 / sqrt(mean((x - mean)^2) + epsilon) */
static TYPE NAME(scale)(const TYPE *x, int64_t k, TYPE mean, double epsilon)
{
    ROW_SUM(total, k, (x[i] - mean) * (x[i] - mean))
    if (!isfinite(total))
        total = NAME(wide_sum)(x, k, (double)mean, 2);
    return (TYPE)(1.0 / sqrt(total / (double)k + epsilon));
}

static void NAME(forward)(const gd_norm_rows_job *job)
{
    int64_t k = job->k;
    const TYPE *restrict weight = job->weight, *restrict bias = job->bias;
    for (int64_t row = 0; row < job->count; row++) {
        const TYPE *restrict x = (const TYPE *)job->x + row * k;
        TYPE *restrict out = (TYPE *)job->out + row * k;
        TYPE mean = job->center ? NAME(mean)(x, k) : 0;
        TYPE scale = NAME(scale)(x, k, mean, job->epsilon);
        if (bias)
            for (int64_t i = 0; i < k; i++)
                out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
        else if (weight)
            for (int64_t i = 0; i < k; i++)
                out[i] = (x[i] - mean) * scale * weight[i];
        else
            for (int64_t i = 0; i < k; i++)
                out[i] = (x[i] - mean) * scale;
    }
}

/* out = s (w g - mean(w g) - h mean(w g h)), h = (x - mean) s */
static void NAME(row_backward)(const gd_norm_rows_job *job, const TYPE *restrict x,
                               const TYPE *restrict g, TYPE mean, TYPE scale, TYPE *restrict out)
{
    int64_t k = job->k;
    const TYPE *restrict weight = job->weight;
    TYPE middle = 0, along;
    if (weight) {
        ROW_SUM(product, k, g[i] * weight[i] * ((x[i] - mean) * scale))
        along = (TYPE)(product / (double)k);
        if (job->center) {
            ROW_SUM(sum, k, g[i] * weight[i])
            middle = (TYPE)(sum / (double)k);
        }
        for (int64_t i = 0; i < k; i++)
            out[i] = scale * (g[i] * weight[i] - middle - (x[i] - mean) * scale * along);
    } else {
        ROW_SUM(product, k, g[i] * ((x[i] - mean) * scale))
        along = (TYPE)(product / (double)k);
        if (job->center) {
            ROW_SUM(sum, k, g[i])
            middle = (TYPE)(sum / (double)k);
        }
        for (int64_t i = 0; i < k; i++)
            out[i] = scale * (g[i] - middle - (x[i] - mean) * scale * along);
    }
}

static void NAME(backward)(const gd_norm_rows_job *job)
{
    int64_t k = job->k;
    TYPE *restrict weight_sum = job->weight_sum, *restrict bias_sum = job->bias_sum;
    for (int64_t row = 0; row < job->count; row++) {
        const TYPE *restrict x = (const TYPE *)job->x + row * k, *restrict g =
                                                                     (const TYPE *)job->g + row * k;
        TYPE mean = job->center ? NAME(mean)(x, k) : 0;
        TYPE scale = NAME(scale)(x, k, mean, job->epsilon);
        NAME(row_backward)(job, x, g, mean, scale, (TYPE *)job->out + row * k);
        if (weight_sum)
            for (int64_t i = 0; i < k; i++)
                weight_sum[i] += g[i] * ((x[i] - mean) * scale);
        if (bias_sum)
            for (int64_t i = 0; i < k; i++)
                bias_sum[i] += g[i];
    }
}

static void NAME(centred)(const void *px, const void *pcenter, const void *pg, void *pout,
                          int64_t n)
{
    const TYPE *restrict x = px, *restrict g = pg;
    const TYPE center = *(const TYPE *)pcenter;
    TYPE *restrict out = pout;
    if (g)
        for (int64_t i = 0; i < n; i++)
            out[i] = (x[i] - center) * g[i];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = (x[i] - center) * (x[i] - center);
}

#undef ROW_SUM
#undef LANES
#undef BLOCK
#undef TYPE
#undef NAME
