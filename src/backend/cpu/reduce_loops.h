/* backend/cpu/reduce_loops.h: the loops of one reduction of one dtype: a template, included by
 * reduce_isa.c once for each. It makes static functions named <OP>_<TYPE>_<what> and their table
 * GD_ISA_NAME(<OP>_<TYPE>_reducer), and undefines TYPE, ACC and LANE:
 *
 *   OP, TYPE    as in sum, f32
 *   ACC, LANE   type of an accumulator, and of a lane within a block if not the same
 *   IDENTITY    the reduction of nothing
 *   MERGE(a, x) a combined with the later x, both of type ACC or LANE
 *   ROW_BLOCK   may be defined: a function that does what <OP>_<TYPE>_block does
 *
 * The lanes are plain arrays with loops of a fixed length: compilers keep them in vector registers,
 * whatever their width, and the meaning (reduce.h) does not depend on it.
 */
#ifndef LANE
#define LANE ACC
#endif
#define NAME(what) JOIN(JOIN(OP, _), JOIN(TYPE, _##what))
#define LANES      ((int)(256 / sizeof(LANE)))

#define GROUP ((int)(64 / sizeof(TYPE)))

/* The block x[0 … n-1]. */
#ifdef ROW_BLOCK
static __attribute__((cold, noinline, unused)) LANE NAME(block)(const TYPE *restrict x, int64_t n);
#endif
static LANE NAME(block)(const TYPE *restrict x, int64_t n)
{
    LANE lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = IDENTITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++)
            lane[j] = MERGE(lane[j], (LANE)x[i + j]);
    }
#if JOIN(HAS_PADDED_, TYPE)
    for (int first = 0; i < n; i += GROUP, first += GROUP) {
        TYPE rest[GROUP];
        JOIN(load_padded_, TYPE)(rest, x + i, n - i, IDENTITY);
        for (int j = 0; j < GROUP; j++)
            lane[first + j] = MERGE(lane[first + j], rest[j]);
    }
#else
    for (int j = 0; j < (int)(n - i); j++)
        lane[j] = MERGE(lane[j], (LANE)x[i + j]);
#endif
    FOLD(lane, LANES, MERGE);
    return lane[0];
}

/* The same for n <= SHORT, where most lanes would stay empty. */
#define SHORT 8
static LANE NAME(short_block)(const TYPE *restrict x, int64_t n)
{
#if JOIN(HAS_PADDED_, TYPE)
    LANE lane[GROUP];
    JOIN(load_padded_, TYPE)(lane, x, n, IDENTITY);
    for (int j = 0; j < GROUP; j++)
        lane[j] = MERGE((LANE)IDENTITY, lane[j]); /* as in a block: -0 becomes +0 in a sum */
    FOLD(lane, GROUP, MERGE);
#else
    LANE lane[SHORT];
    for (int j = 0; j < SHORT; j++)
        lane[j] = j < n ? (LANE)x[j] : IDENTITY;
    FOLD(lane, SHORT, MERGE);
#endif
    return lane[0];
}

#ifndef ROW_BLOCK
#define ROW_BLOCK NAME(block)
#endif
static void NAME(rows)(const void *x, int64_t row_stride, int64_t n, void *out, int64_t out_stride,
                       int64_t count)
{
    const TYPE *row = x;
    ACC *to = out;
    if (n <= (JOIN(HAS_PADDED_, TYPE) ? GROUP : SHORT))
        for (int64_t i = 0; i < count; i++)
            to[i * out_stride] = (ACC)NAME(short_block)(row + i * row_stride, n);
    else
        for (int64_t i = 0; i < count; i++)
            to[i * out_stride] = (ACC)ROW_BLOCK(row + i * row_stride, n);
}

static void NAME(columns)(void *acc, const void *x, int64_t rows, int64_t row_stride, int64_t n,
                          bool one_by_one)
{
    ACC *restrict sum = acc;
    const TYPE *restrict row = x;
    int64_t r = 0;
    for (; !one_by_one && r + 8 <= rows; r += 8, row += 8 * row_stride)
        for (int64_t c = 0; c < n; c++) {
            ACC a = sum[c];
            a = MERGE(a, (ACC)row[c]);
            a = MERGE(a, (ACC)row[c + row_stride]);
            a = MERGE(a, (ACC)row[c + 2 * row_stride]);
            a = MERGE(a, (ACC)row[c + 3 * row_stride]);
            a = MERGE(a, (ACC)row[c + 4 * row_stride]);
            a = MERGE(a, (ACC)row[c + 5 * row_stride]);
            a = MERGE(a, (ACC)row[c + 6 * row_stride]);
            a = MERGE(a, (ACC)row[c + 7 * row_stride]);
            sum[c] = a;
        }
    for (; r < rows; r++, row += row_stride)
        for (int64_t c = 0; c < n; c++)
            sum[c] = MERGE(sum[c], (ACC)row[c]);
}

static void NAME(merge)(void *acc, const void *later, int64_t n)
{
    ACC *restrict a = acc;
    const ACC *restrict b = later;
    for (int64_t c = 0; c < n; c++)
        a[c] = MERGE(a[c], b[c]);
}

static void NAME(fill)(void *acc, int64_t n)
{
    ACC *a = acc;
    for (int64_t c = 0; c < n; c++)
        a[c] = IDENTITY;
}

extern const gd_reducer GD_ISA_NAME(NAME(reducer));
const gd_reducer GD_ISA_NAME(NAME(reducer)) = {
    .result = JOIN(DTYPE_, ACC),
    .in_size = sizeof(TYPE),
    .acc_size = sizeof(ACC),
    .rows = NAME(rows),
    .columns = NAME(columns),
    .merge = NAME(merge),
    .fill = NAME(fill),
};

#undef NAME
#undef TYPE
#undef ACC
#undef LANE
#undef LANES
#undef SHORT
#undef GROUP
#undef ROW_BLOCK
