/* backend/cpu/softmax_loops.h: the loops of softmax for one floating dtype: a template, included by
 * softmax_isa.c for f32 and softmax_f64_isa.c for f64. It makes static functions
 * softmax_<TYPE>_<what> and their table, and undefines TYPE. What each does stands in softmax.h.
 * exp and log are functions of one number (vecmath.h) that compilers vectorise; their value does
 * not depend on where in a vector it is made.
 */
#define NAME(what) JOIN(softmax_, JOIN(TYPE, _##what))
#define EXP(x)     JOIN(gd_exp_, TYPE)(x)
#define LOG(x)     JOIN(gd_log_, TYPE)(x)
#define LANES      ((int)(256 / sizeof(TYPE)))
#define LOAD_PADDED(to, x, n) \
    JOIN(load_padded_, TYPE)  \
    (to, x, n, -(TYPE)INFINITY)            /* exp gives 0 \
                                          */
#define LINE    ((int)(64 / sizeof(TYPE))) /* in a cache line */
#define FETCHED 8192                       /* the longest rows of which the next one is fetched */
#define GROUP   ((int)(64 / sizeof(TYPE))) /* exp is taken of so many numbers at once */
#define BIGGER(a, x) \
    ((x) > (a) ? (x) : (a)) /* a NaN may get lost: it comes back through its exp \
                             */

/* ---- rows of at most GROUP numbers: GROUP rows at once, one in each lane, so that a row's maximum
 * and sum are taken from its first number to its last ---- */

/* max and sum [GROUP] of `rows` rows of n numbers, and e[j][r] = exp(x[r][j] - max[r]). */
static inline __attribute__((always_inline)) void
NAME(short_rows)(const TYPE *x, int64_t row_stride, int n, int rows, TYPE max[GROUP],
                 TYPE sum[GROUP], TYPE e[GROUP][GROUP])
{
    for (int j = 0; j < n; j++) {
        for (int r = 0; r < GROUP; r++)
            e[j][r] = 0;
        for (int r = 0; r < rows; r++)
            e[j][r] = x[r * row_stride + j];
    }
    for (int r = 0; r < GROUP; r++) {
        max[r] = -(TYPE)INFINITY;
        sum[r] = 0;
    }
    for (int j = 0; j < n; j++)
        for (int r = 0; r < GROUP; r++)
            max[r] = BIGGER(max[r], e[j][r]);
    for (int j = 0; j < n; j++)
        for (int r = 0; r < GROUP; r++) {
            TYPE value = EXP(e[j][r] - max[r]);
            e[j][r] = value;
            sum[r] += value;
        }
}

static void NAME(short_softmax)(const TYPE *x, int64_t row_stride, int n, TYPE *out, int64_t count)
{
    TYPE max[GROUP], sum[GROUP], e[GROUP][GROUP];
    for (int64_t first = 0; first < count; first += GROUP) {
        int rows = count - first < GROUP ? (int)(count - first) : GROUP;
        NAME(short_rows)(x + first * row_stride, row_stride, n, rows, max, sum, e);
        for (int r = 0; r < GROUP; r++)
            sum[r] = 1 / sum[r];
        for (int j = 0; j < n; j++)
            for (int r = 0; r < GROUP; r++)
                e[j][r] *= sum[r];
        TYPE *to = out + first * n;
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < n; j++)
                to[r * n + j] = e[j][r];
    }
}

static void NAME(short_statistics)(const TYPE *x, int64_t row_stride, int n, TYPE *max, TYPE *sum,
                                   int64_t count)
{
    TYPE m[GROUP], s[GROUP], e[GROUP][GROUP];
    for (int64_t first = 0; first < count; first += GROUP) {
        int rows = count - first < GROUP ? (int)(count - first) : GROUP;
        NAME(short_rows)(x + first * row_stride, row_stride, n, rows, m, s, e);
        memcpy(max + first, m, sizeof(TYPE) * (size_t)rows);
        memcpy(sum + first, s, sizeof(TYPE) * (size_t)rows);
    }
}

/* ---- rows of any length, in blocks ---- */

static TYPE NAME(row_max)(const TYPE *x, int64_t n)
{
    TYPE lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = -(TYPE)INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++)
            lane[j] = BIGGER(lane[j], x[i + j]);
    }
    for (int first = 0; i < n; i += GROUP, first += GROUP) {
        TYPE rest[GROUP];
        LOAD_PADDED(rest, x + i, n - i);
        for (int j = 0; j < GROUP; j++)
            lane[first + j] = BIGGER(lane[first + j], rest[j]);
    }
    FOLD(lane, LANES, BIGGER);
    return lane[0];
}

/* How far on the next row begins in x and out, to be fetched meanwhile; 0: nowhere. */
typedef struct NAME(next) {
    int64_t x, out;
} NAME(next);

/* The sum of exp(x - max) over a block of at most GD_REDUCE_BLOCK; with `out`, they are put there,
 * which may be x. */
static inline __attribute__((always_inline)) TYPE NAME(block_exp)(const TYPE *x, NAME(next) next,
                                                                  int64_t n, TYPE max, TYPE *out)
{
    TYPE lane[LANES], e[GROUP];
    for (int j = 0; j < LANES; j++)
        lane[j] = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        TYPE value[LANES];
        for (int j = 0; j < LANES; j += LINE) {
            __builtin_prefetch(x + next.x + i + j, 0, 2);
            if (out)
                __builtin_prefetch(out + next.out + i + j, 1, 2);
        }
        for (int j = 0; j < LANES; j++) {
            value[j] = EXP(x[i + j] - max);
            lane[j] += value[j];
        }
        if (out)
            memcpy(out + i, value, sizeof value);
    }
    for (int first = 0; i < n; i += GROUP, first += GROUP) {
        LOAD_PADDED(e, x + i, n - i);
        for (int j = 0; j < GROUP; j++)
            e[j] = EXP(e[j] - max);
        for (int j = 0; j < GROUP; j++)
            lane[first + j] += e[j];
        if (out)
            for (int j = 0; j < GROUP && j < n - i; j++)
                out[i + j] = e[j];
    }
    FOLD(lane, LANES, ADD);
    return lane[0];
}

static TYPE NAME(block_exp_sum)(const TYPE *x, NAME(next) next, int64_t n, TYPE max)
{
    return NAME(block_exp)(x, next, n, max, NULL);
}

static TYPE NAME(block_exp_store)(const TYPE *x, NAME(next) next, int64_t n, TYPE max, TYPE *out)
{
    return NAME(block_exp)(x, next, n, max, out);
}

/* The whole row: block sums go into the tree of reduce.h. */
static TYPE NAME(row_exp)(const TYPE *x, NAME(next) next, int64_t n, TYPE max, TYPE *out)
{
    TYPE level[64];
    uint64_t count = 0;
    for (int64_t i = 0; i < n; i += GD_REDUCE_BLOCK, count++) {
        int64_t size = n - i < GD_REDUCE_BLOCK ? n - i : GD_REDUCE_BLOCK;
        TYPE sum = out ? NAME(block_exp_store)(x + i, next, size, max, out + i)
                       : NAME(block_exp_sum)(x + i, next, size, max);
        int k = 0;
        for (; count >> k & 1; k++)
            sum = level[k] + sum;
        level[k] = sum;
    }
    TYPE sum = 0;
    for (int k = 0; count >> k; k++)
        if (count >> k & 1)
            sum = level[k] + sum;
    return sum;
}

static void NAME(softmax_rows)(const void *x, int64_t row_stride, int64_t n, void *out,
                               int64_t count)
{
    const TYPE *row = x;
    TYPE *to = out;
    if (n <= GROUP) {
        NAME(short_softmax)(row, row_stride, (int)n, to, count);
        return;
    }
    for (int64_t r = 0; r < count; r++, row += row_stride, to += n) {
        NAME(next) next = { 0, 0 };
        if (r + 1 < count && n <= FETCHED)
            next = (NAME(next)){ row_stride, n };
        TYPE scale = 1 / NAME(row_exp)(row, next, n, NAME(row_max)(row, n), to);
        for (int64_t i = 0; i < n; i++)
            to[i] *= scale;
    }
}

static void NAME(statistics_rows)(const void *x, int64_t row_stride, int64_t n, void *max,
                                  void *sum, int64_t count)
{
    const TYPE *row = x;
    TYPE *m = max, *s = sum;
    if (n <= GROUP) {
        NAME(short_statistics)(row, row_stride, (int)n, m, s, count);
        return;
    }
    for (int64_t r = 0; r < count; r++, row += row_stride) {
        m[r] = NAME(row_max)(row, n);
        s[r] = NAME(row_exp)(row, (NAME(next)){ r + 1 < count && n <= FETCHED ? row_stride : 0, 0 },
                             n, m[r], NULL);
    }
}

static void NAME(shift_rows)(const void *x, int64_t row_stride, int64_t n, const void *max,
                             const void *log_sum, void *out, int64_t count)
{
    const TYPE *row = x, *m = max, *l = log_sum;
    TYPE *to = out;
    for (int64_t r = 0; r < count; r++, row += row_stride, to += n) {
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            to[i] = (row[i] - m[r]) - l[r];
    }
}

static void NAME(gradient_rows)(void *out, int64_t n, const int64_t *label, const void *g,
                                int64_t g_stride, int64_t count)
{
    TYPE *to = out;
    const TYPE *weight = g;
    for (int64_t r = 0; r < count; r++, to += n) {
        TYPE w = weight[r * g_stride];
        TYPE at_label = (to[label[r]] - 1) * w;
        for (int64_t i = 0; i < n; i++)
            to[i] *= w;
        to[label[r]] = at_label;
    }
}

/* ---- columns ---- */

static void NAME(column_max)(void *max, const void *x, int64_t n)
{
    TYPE *restrict m = max;
    const TYPE *restrict row = x;
    for (int64_t c = 0; c < n; c++)
        m[c] = BIGGER(m[c], row[c]);
}

static void NAME(column_exp)(void *out, void *sum, const void *x, const void *max, int64_t n)
{
    TYPE *restrict to = out, *restrict s = sum;
    const TYPE *restrict row = x, *restrict m = max;
    if (to)
        for (int64_t c = 0; c < n; c++) {
            to[c] = EXP(row[c] - m[c]);
            s[c] += to[c];
        }
    else
        for (int64_t c = 0; c < n; c++)
            s[c] += EXP(row[c] - m[c]);
}

static void NAME(column_add)(void *acc, const void *later, int64_t n)
{
    TYPE *restrict a = acc;
    const TYPE *restrict b = later;
    for (int64_t c = 0; c < n; c++)
        a[c] += b[c];
}

static void NAME(column_scale)(void *out, const void *factor, int64_t n)
{
    TYPE *restrict to = out;
    const TYPE *restrict f = factor;
    for (int64_t c = 0; c < n; c++)
        to[c] *= f[c];
}

static void NAME(column_shift)(void *out, const void *x, const void *max, const void *log_sum,
                               int64_t n)
{
    TYPE *restrict to = out;
    const TYPE *restrict row = x, *restrict m = max, *restrict l = log_sum;
    for (int64_t c = 0; c < n; c++)
        to[c] = (row[c] - m[c]) - l[c];
}

/* ---- numbers ---- */

static void NAME(lowest)(void *x, int64_t n)
{
    TYPE *a = x;
    for (int64_t i = 0; i < n; i++)
        a[i] = -(TYPE)INFINITY;
}

static void NAME(reciprocal)(void *x, int64_t n)
{
    TYPE *a = x;
    for (int64_t i = 0; i < n; i++)
        a[i] = 1 / a[i];
}

static void NAME(log)(void *x, int64_t n)
{
    TYPE *a = x;
    for (int64_t i = 0; i < n; i++)
        a[i] = LOG(a[i]);
}

static void NAME(loss)(void *out, const void *log_sum, const void *picked, const void *max,
                       int64_t n)
{
    TYPE *restrict to = out;
    const TYPE *restrict l = log_sum, *restrict x = picked, *restrict m = max;
    for (int64_t i = 0; i < n; i++)
        to[i] = l[i] - (x[i] - m[i]);
}

static const gd_softmax_loops NAME(loops) = {
    .size = sizeof(TYPE),
    .softmax_rows = NAME(softmax_rows),
    .statistics_rows = NAME(statistics_rows),
    .shift_rows = NAME(shift_rows),
    .gradient_rows = NAME(gradient_rows),
    .column_max = NAME(column_max),
    .column_exp = NAME(column_exp),
    .column_add = NAME(column_add),
    .column_scale = NAME(column_scale),
    .column_shift = NAME(column_shift),
    .lowest = NAME(lowest),
    .reciprocal = NAME(reciprocal),
    .log = NAME(log),
    .loss = NAME(loss),
};

#undef NAME
#undef EXP
#undef LOG
#undef LANES
#undef LOAD_PADDED
#undef LINE
#undef FETCHED
#undef GROUP
#undef BIGGER
#undef TYPE
