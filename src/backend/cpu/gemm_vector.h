/* backend/cpu/gemm_vector.h: products with one row, y[n] = x[k] @ B[k, n]. Nothing is reused here
 * but y, so it is memory that bounds them, or, when small, the latency of an addition chain.
 * Products with one column come here transposed. Included by gemm_isa.c per element type. Start
 * reading at N(multiply_row).
 */

/* One product, or a part of one: C[m, n] = A[m, k] @ B[k, n]. Where the driver found it better, it
 * is the transposed of what the caller asked for, and the bias runs along rows. */
typedef struct product_t {
    int64_t m, n, k;
    const REAL *a;
    int64_t a_row, a_col;
    const REAL *b;
    int64_t b_row, b_col;
    REAL *c;
    int64_t c_row, c_col;
    const REAL *column_bias; // [n] or NULL
    int64_t column_bias_stride;
    const REAL *row_bias; // [m] or NULL
    int64_t row_bias_stride;
    const REAL *relu_result; // as c, or NULL
    bool relu, accumulate, transposed;
    const gd_paths *paths;
} product_t;

/* The derivative of ReLU: C[rows, columns] from (row, column) on becomes 0 where relu_result is not
 * > 0. */
static __attribute__((noinline)) void
N(apply_relu_grad)(const product_t *p, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const int64_t first = row * p->c_row + column * p->c_col;
    const bool by_columns = p->c_row == 1;
    const int64_t lines = by_columns ? columns : rows, count = by_columns ? rows : columns;
    const int64_t line = by_columns ? p->c_col : p->c_row, step = by_columns ? 1 : p->c_col;
    for (int64_t i = 0; i < lines; i++) {
        REAL *restrict c = p->c + first + i * line;
        const REAL *restrict y = p->relu_result + first + i * line;
        for (int64_t j = 0; j < count && step == 1; j++)
            c[j] = y[j] > 0 ? c[j] : (REAL)0;
        for (int64_t j = 0; j < count && step != 1; j++)
            c[j * step] = y[j * step] > 0 ? c[j * step] : (REAL)0;
    }
}

/* values [count] -> columns [first, first+count) of the one row of C, with bias and ReLU. */
static void N(store_row)(const product_t *p, int64_t first, int64_t count, const REAL *values)
{
    REAL *c = p->c + first * p->c_col;
    int64_t j = 0;
    if (p->c_col == 1 && p->column_bias_stride == 1 && !p->row_bias)
        for (; j + LANES <= count; j += LANES) {
            VEC y = V(load)(values + j);
            if (p->column_bias)
                y = V(add)(y, V(load)(p->column_bias + first + j));
            V(store)(c + j, p->relu ? V(relu)(y) : y);
        }
    for (; j < count; j++) {
        REAL y = values[j];
        if (p->column_bias)
            y = y + p->column_bias[(first + j) * p->column_bias_stride];
        if (p->row_bias)
            y = y + p->row_bias[0];
        c[j * p->c_col] = p->relu && y < 0 ? (REAL)0 : y;
    }
}

/* Few columns, contiguous: all of k in registers, blocks side by side. */
static void N(row_chains)(const product_t *p)
{
    REAL values[COLUMNS_MAX];
    for (int64_t j = 0; j < p->n;) {
        int64_t columns = p->n - j < COLUMNS_MAX ? p->n - j : COLUMNS_MAX;
        int64_t vecs = (columns + LANES - 1) / LANES;
        if (!GD_SIMD_MASK_FREE && columns < vecs * LANES) { /* compute some columns twice instead */
            vecs = vecs * LANES <= p->n ? vecs : 1;
            columns = vecs * LANES;
            j = j + columns <= p->n ? j : p->n - columns;
        }
        const bool plain = p->c_col == 1 && p->column_bias_stride == 1;
        const tile_t t = {
            .a = p->a,
            .a_step = p->a_col,
            .b = p->b + j,
            .b_step = p->b_row,
            .c = plain ? p->c + j : values,
            .depth = p->k,
            .columns = columns,
            .column_bias = plain && p->column_bias ? p->column_bias + j : NULL,
            .row_bias = plain ? p->row_bias : NULL,
            .relu = plain && p->relu,
        };
        N(chain_kernels)[vecs - 1](&t);
        if (!plain)
            N(store_row)(p, j, columns, values);
        j += columns;
    }
}

/* One number of C with several blocks side by side, for fewer columns than a vector holds where
 * masks are not free. */
static REAL N(dot_scalar)(const REAL *x, int64_t x_step, const REAL *y, int64_t y_step, int64_t k)
{
    REAL total = 0;
    for (int64_t from = 0; from < k; from += CHAINS_MAX * GD_GEMM_KC) {
        const int64_t rest = k - from;
        REAL sum[CHAINS_MAX] = { 0 };
        for (int64_t p = 0; p < GD_GEMM_KC && p < rest; p++) {
            UNROLL
            for (int g = 0; g < CHAINS_MAX; g++) {
                const int64_t at = p + g * GD_GEMM_KC;
                if (at < rest)
                    sum[g] = FMA(x[(from + at) * x_step], y[(from + at) * y_step], sum[g]);
            }
        }
        for (int g = 0; g < CHAINS_MAX && g * GD_GEMM_KC < rest; g++)
            total = from == 0 && g == 0 ? sum[g] : total + sum[g];
    }
    return total;
}

/* s [n] = start + `rows` rows of B times x, for a constant number of rows; no start is zeros.
 * Rows read abreast are as many streams, and memory gives several at a lower rate than one; so the
 * rows at `next`, which are read afterwards, are meanwhile fetched into the second-level cache, one
 * after the other. NULL: there are none. */
GD_SIMD_INLINE void N(row_stream)(const product_t *p, int64_t from, const int rows,
                                  const REAL *next, const REAL *start, REAL *s)
{
    const int64_t whole = p->n / LANES * LANES;
    const VMASK mask = V(mask_first)(p->n - whole);
    const REAL *b = p->b + from * p->b_row, *next_end = next ? next + p->n : NULL;
    VEC x[STREAMS];
    UNROLL
    for (int r = 0; r < rows; r++)
        x[r] = V(set1)(p->a[(from + r) * p->a_col]);
    for (int64_t j = 0; j < whole; j += LANES) {
        if (rows > 1 && next) {
            UNROLL
            for (int r = 0; r < rows; r += (int)(LINE / LANES))
                __builtin_prefetch(next + r * LANES, 0, 2);
            next += rows * LANES;
            if (next >= next_end) {
                next += p->b_row - p->n;
                next_end += p->b_row;
            }
        }
        VEC sum = start ? V(load)(start + j) : V(zero)();
        UNROLL
        for (int r = 0; r < rows; r++)
            sum = V(fma)(x[r], V(load)(b + r * p->b_row + j), sum);
        V(store)(s + j, sum);
    }
    if (whole < p->n) {
        VEC sum = start ? V(load)(start + whole) : V(zero)();
        UNROLL
        for (int r = 0; r < rows; r++)
            sum = V(fma)(x[r], V(load_masked)(mask, b + r * p->b_row + whole), sum);
        V(store)(s + whole, sum);
    }
}

/* s [n, rounded up to vectors] = start + the sums over rows [from, end) of one block of k. Row
 * `then` of B is read next; -1: none. */
static __attribute__((noinline)) void N(row_sums)(const product_t *p, int64_t from, int64_t end,
                                                  int64_t then, const REAL *start, REAL *s)
{
    const bool large = p->k * p->n > LARGE;
    for (; from + STREAMS <= end; from += STREAMS, start = s) {
        const int64_t next = from + 2 * STREAMS <= end ? from + STREAMS : then;
        const REAL *fetched = large && next >= 0 ? p->b + next * p->b_row : NULL;
        N(row_stream)(p, from, STREAMS, fetched, start, s);
    }
    for (; from < end; from++, start = s)
        N(row_stream)(p, from, 1, NULL, start, s);
}

/* total [count, rounded up to vectors] += s */
static __attribute__((noinline)) void N(add_sums)(REAL *total, const REAL *s, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES)
        V(store)(total + i, V(add)(V(load)(total + i), V(load)(s + i)));
}

/* Many columns, contiguous: B is read once, several rows abreast, in long runs; sums stay in the
 * first-level cache. */
static void N(row_streams)(const product_t *p, gd_scratch scratch)
{
    const int64_t width = LEAST((p->n + LANES - 1) / LANES * LANES, STREAM_COLUMNS);
    REAL *s = gd_scratch_take(&scratch, (size_t)width * sizeof *s),
         *total = gd_scratch_take(&scratch, (size_t)width * sizeof *total);
    product_t part = *p;
    for (int64_t j = 0; j < p->n; j += STREAM_COLUMNS) {
        part.b = p->b + j;
        part.n = LEAST(p->n - j, STREAM_COLUMNS);
        for (int64_t block = 0; block < p->k; block += GD_GEMM_KC) {
            const int64_t end = LEAST(p->k, block + GD_GEMM_KC);
            const int64_t next = end + STREAMS <= p->k ? end : -1;
            N(row_sums)(&part, block, end, next, NULL, block == 0 ? total : s);
            if (block > 0)
                N(add_sums)(total, s, part.n);
        }
        N(store_row)(p, j, part.n, total);
    }
}

/* The same on several threads, where rows are short. Threads that divided the columns would each
 * read pieces of every row. So B is divided into stretches: ranges of rows, contiguous in memory;
 * and into ranges of columns only where a stretch would be shorter than a block of k. Where a
 * stretch ends within a block of k, its thread computes that part of the block first. The thread of
 * the next stretch does all its other work, and then continues that block from those sums. If they
 * are not there by then, it computes them itself, so that no thread waits. Blocks are added when
 * all are there. */
typedef struct row_work_t {
    const product_t *p;
    int64_t stretches, parts;
    REAL *sums;            // [blocks, width]
    REAL *begun;           // [stretches, width]: of the block that each stretch leaves unfinished
    atomic_bool *is_begun; // [stretches, parts]
    int64_t width;
} row_work_t;

/* The row of k where stretch `index` begins. */
static int64_t N(stretch_begin)(const row_work_t *work, int64_t index)
{
    return index == work->stretches ? work->p->k
                                    : work->p->k * index / work->stretches / STREAMS * STREAMS;
}

static void N(run_stretch)(const row_work_t *work, int64_t stretch, int64_t part)
{
    const int64_t k = work->p->k, width = work->width, vecs = width / LANES;
    const int64_t column = vecs * part / work->parts * LANES;
    product_t p = *work->p;
    p.b += column;
    p.n = LEAST(vecs * (part + 1) / work->parts * LANES, p.n) - column;
    const int64_t begin = N(stretch_begin)(work, stretch);
    const int64_t end = N(stretch_begin)(work, stretch + 1);
    const int64_t first = (begin + GD_GEMM_KC - 1) / GD_GEMM_KC * GD_GEMM_KC; /* whole blocks */
    const int64_t last = end == k ? k : end / GD_GEMM_KC * GD_GEMM_KC;
    REAL *sums = work->sums + column, *begun = work->begun + stretch * width + column;
    atomic_bool *is_begun = work->is_begun + stretch * work->parts + part;
    if (last < end) {
        N(row_sums)(&p, last, end, first < last ? first : begin, NULL, begun);
        atomic_store_explicit(is_begun, true, memory_order_release);
    }
    for (int64_t block = first; block < last; block += GD_GEMM_KC) {
        const int64_t to = LEAST(block + GD_GEMM_KC, last);
        const int64_t next = to + STREAMS <= last ? to : begin < first ? begin : -1;
        N(row_sums)(&p, block, to, next, NULL, sums + block / GD_GEMM_KC * width);
    }
    if (begin < first) {
        sums += (first / GD_GEMM_KC - 1) * width;
        if (atomic_load_explicit(is_begun - work->parts, memory_order_acquire))
            N(row_sums)(&p, begin, first, -1, begun - width, sums);
        else
            N(row_sums)(&p, first - GD_GEMM_KC, first, -1, NULL, sums);
    }
}

static void N(run_stretches)(void *context, int64_t begin, int64_t end, int thread)
{
    const row_work_t *work = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        N(run_stretch)(work, i / work->parts, i % work->parts);
}

/* False where that is no better, or the scratch of `threads` threads too small. */
static __attribute__((noinline)) bool N(row_stretches)(const product_t *p, const gd_workspace *w,
                                                       int threads)
{
    if (!HAS_STRETCHES)
        return false;
    const int64_t blocks = (p->k + GD_GEMM_KC - 1) / GD_GEMM_KC;
    const int64_t width = (p->n + LANES - 1) / LANES * LANES;
    const size_t room = (size_t)threads * gd_gemm_scratch_bytes(p->paths) / sizeof(REAL);
    if (p->m > 1 || p->b_col != 1 || p->accumulate || p->relu_result || p->n <= 2 * COLUMNS_MAX ||
        p->n > STREAM_COLUMNS || 2 * blocks > (int64_t)room / width)
        return false;
    int64_t stretches = 1; /* as many as give most threads something to do */
    for (int64_t i = 2; i <= LEAST(threads, p->k / GD_GEMM_KC); i++)
        if (threads % i <= threads % stretches)
            stretches = i;
    const int64_t parts = threads / stretches;
    atomic_bool is_begun[GD_MAX_THREADS] = { false };
    gd_scratch scratch = gd_scratch_of_threads(w, threads);
    REAL *sums = gd_scratch_take(&scratch, (size_t)(blocks * width) * sizeof *sums);
    REAL *begun = gd_scratch_take(&scratch, (size_t)(stretches * width) * sizeof *begun);
    row_work_t work = { p, stretches, parts, sums, begun, is_begun, width };
    gd_parallel_for(threads, stretches * parts, 1, N(run_stretches), &work);
    for (int64_t block = 1; block < blocks; block++)
        N(add_sums)(sums, sums + block * width, width);
    N(store_row)(p, 0, p->n, sums);
    return true;
}

/* B transposed in memory, so y[j] is a dot product of contiguous rows: squares of B are transposed
 * in registers, for the lanes must be different j if each sum is to run along k in order. Squares
 * lie across as many streams; while some columns are multiplied the next are fetched into the
 * second level of caches one after the other, and the next square into the first. n >= LANES. */
static void N(row_dots)(const product_t *p)
{
    const bool fetch = p->b_col == p->k && p->k * p->n > LARGE;
    const int64_t b_col = p->b_col;
    for (int64_t j = 0; j < p->n; j += LANES) {
        const int64_t first = LEAST(j, p->n - LANES); /* at the edge some columns twice */
        const REAL *b = p->b + first * b_col, *next = b + LANES * b_col;
        VEC total = V(zero)();
        for (int64_t block = 0; block < p->k; block += GD_GEMM_KC) {
            const int64_t end = LEAST(p->k, block + GD_GEMM_KC);
            const REAL *x = p->a + block * p->a_col;
            VEC sum = V(zero)();
            int64_t q = block;
            for (; q + LANES <= end; q += LANES) {
                VEC square[LANES];
                const REAL *column = b + q;
                UNROLL
                for (int i = 0; i < LANES; i++) {
                    square[i] = V(load)(column + i % 4 * b_col);
                    if (fetch)
                        __builtin_prefetch(column + i % 4 * b_col + LANES, 0, 3);
                    if (i % 4 == 3) { /* one pointer: sixteen were walked from memory */
                        column += 4 * b_col;
                        OPAQUE(column);
                    }
                    if (fetch && i % (LINE / LANES) == 0)
                        __builtin_prefetch(next + i * LANES, 0, 2);
                }
                next += LANES * LANES;
                V(transpose)(square);
                UNROLL
                for (int i = 0; i < LANES; i++, x += p->a_col)
                    sum = V(fma)(V(set1)(*x), square[i], sum);
            }
            for (; q < end; q++, x += p->a_col) {
                REAL row[LANES];
                for (int i = 0; i < LANES; i++)
                    row[i] = b[i * b_col + q];
                sum = V(fma)(V(set1)(*x), V(load)(row), sum);
            }
            total = block == 0 ? sum : V(add)(total, sum);
        }
        REAL values[LANES];
        V(store)(values, total);
        N(store_row)(p, first, LANES, values);
    }
}

/* y = x @ B. False when the strides of B suit none of the ways above, and packing it is best. */
static bool N(multiply_row)(const product_t *p, gd_scratch scratch)
{
    if (p->n < LANES && !GD_SIMD_MASK_FREE && (p->n == 1 || p->b_col == 1)) {
        for (int64_t j = 0; j < p->n; j++) {
            const REAL y = N(dot_scalar)(p->a, p->a_col, p->b + j * p->b_col, p->b_row, p->k);
            N(store_row)(p, j, 1, &y);
        }
        return true;
    }
    if (p->b_col == 1 || p->n == 1) {
        if (p->n <= 2 * COLUMNS_MAX)
            N(row_chains)(p);
        else
            N(row_streams)(p, scratch);
        return true;
    }
    if (p->b_row == 1 && p->n >= LANES) {
        N(row_dots)(p);
        return true;
    }
    return false;
}
