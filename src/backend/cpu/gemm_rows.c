/* backend/cpu/gemm_rows.c: products with one row and many columns, y[n] = x[k] @ B[k, n], whose
 * sums lie in memory: on one thread, and by stretches of B on several. The kernels are in
 * gemm_rows.h.
 */
#include "backend/cpu/gemm_plan.h"
#include "base/threads.h"

#include <stdatomic.h>

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void *numbers(gd_scratch *scratch, const gd_gemm_micro *micro, int64_t count)
{
    return gd_scratch_take(scratch, (size_t)(count * micro->c_bytes));
}

static int64_t stream_columns(const gd_gemm_micro *micro)
{
    return GD_GEMM_STREAM_BYTES / micro->c_bytes;
}

size_t gd_gemm_streams_bytes(const gd_gemm_micro *micro, int64_t n)
{
    const int64_t width = gd_gemm_least(round_up(n, micro->lanes), stream_columns(micro));
    return 2 * (size_t)(width * micro->c_bytes);
}

/* B is read once, several rows abreast, in long runs; sums stay in the first-level cache. */
void gd_gemm_streams(const gd_gemm_micro *micro, const gd_gemm_product *p, gd_scratch scratch)
{
    const gd_gemm_row_kernels *row = micro->row;
    const int64_t most = stream_columns(micro);
    const int64_t width = gd_gemm_least(round_up(p->n, micro->lanes), most);
    void *s = numbers(&scratch, micro, width), *total = numbers(&scratch, micro, width);
    gd_gemm_product part = *p;
    for (int64_t j = 0; j < p->n; j += most) {
        part.b = gd_gemm_at(p->b, j, micro->b_bytes);
        part.n = gd_gemm_least(p->n - j, most);
        for (int64_t block = 0; block < p->k; block += micro->depth) {
            const int64_t end = gd_gemm_least(p->k, block + micro->depth);
            const int64_t next = end + GD_GEMM_ABREAST <= p->k ? end : -1;
            row->sums(&part, block, end, next, NULL, block == 0 ? total : s);
            if (block > 0)
                row->add(total, s, part.n);
        }
        row->store(p, j, part.n, total);
    }
}

/* The same on several threads, where rows are short. Threads that divided the columns would each
 * read pieces of every row. So B is divided into stretches: ranges of rows, contiguous in memory;
 * and into ranges of columns only where a stretch would be shorter than a block of k. Where a
 * stretch ends within a block of k, its thread computes that part of the block first. The thread of
 * the next stretch does all its other work, and then continues that block from those sums. If they
 * are not there by then, it computes them itself, so that no thread waits. Blocks are added when
 * all are there. */
typedef struct stretch_work {
    const gd_gemm_micro *micro;
    const gd_gemm_product *p;
    int64_t stretches, parts;
    char *sums;  /* [blocks, width] */
    char *begun; /* [stretches, width]: of the block that each stretch leaves unfinished */
    atomic_bool *is_begun;    /* [stretches, parts] */
    int64_t width, row_bytes; /* of a row of sums */
} stretch_work;

/* The row of k where stretch `index` begins. */
static int64_t stretch_begin(const stretch_work *work, int64_t index)
{
    const int64_t k = work->p->k;
    return index == work->stretches
               ? k
               : k * index / work->stretches / GD_GEMM_ABREAST * GD_GEMM_ABREAST;
}

static void run_stretch(const stretch_work *work, int64_t stretch, int64_t part)
{
    const gd_gemm_micro *micro = work->micro;
    const int64_t k = work->p->k, kc = micro->depth, vectors = work->width / micro->lanes;
    const int64_t column = vectors * part / work->parts * micro->lanes;
    gd_gemm_product p = *work->p;
    p.b = gd_gemm_at(p.b, column, micro->b_bytes);
    p.n = gd_gemm_least(vectors * (part + 1) / work->parts * micro->lanes, p.n) - column;
    const int64_t begin = stretch_begin(work, stretch), end = stretch_begin(work, stretch + 1);
    const int64_t first = round_up(begin, kc); /* whole blocks */
    const int64_t last = end == k ? k : end / kc * kc;
    char *sums = work->sums + column * micro->c_bytes;
    char *begun = work->begun + stretch * work->row_bytes + column * micro->c_bytes;
    atomic_bool *is_begun = work->is_begun + stretch * work->parts + part;
    if (last < end) {
        micro->row->sums(&p, last, end, first < last ? first : begin, NULL, begun);
        atomic_store_explicit(is_begun, true, memory_order_release);
    }
    for (int64_t block = first; block < last; block += kc) {
        const int64_t to = gd_gemm_least(block + kc, last);
        const int64_t next = to + GD_GEMM_ABREAST <= last ? to : begin < first ? begin : -1;
        micro->row->sums(&p, block, to, next, NULL, sums + block / kc * work->row_bytes);
    }
    if (begin < first) {
        sums += (first / kc - 1) * work->row_bytes;
        if (atomic_load_explicit(is_begun - work->parts, memory_order_acquire))
            micro->row->sums(&p, begin, first, -1, begun - work->row_bytes, sums);
        else
            micro->row->sums(&p, first - kc, first, -1, NULL, sums);
    }
}

static void run_stretches(void *context, int64_t begin, int64_t end, int thread)
{
    const stretch_work *work = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        run_stretch(work, i / work->parts, i % work->parts);
}

bool gd_gemm_takes_stretches(const gd_gemm_micro *micro, const gd_gemm_product *p,
                             const gd_paths *paths, int threads)
{
    if (!micro->row || p->m > 1 || p->b_col != 1 || p->accumulate || p->relu_result ||
        p->n <= 2 * micro->columns || p->n > stream_columns(micro))
        return false;
    const int64_t blocks = (p->k + micro->depth - 1) / micro->depth;
    const int64_t room =
        (int64_t)((size_t)threads * gd_gemm_scratch_bytes(paths) / (size_t)micro->c_bytes);
    return 2 * blocks <= room / round_up(p->n, micro->lanes);
}

/* As many as give most threads something to do. */
static int64_t stretches_of(const gd_gemm_micro *micro, int64_t k, int threads)
{
    int64_t stretches = 1;
    for (int64_t i = 2; i <= gd_gemm_least(threads, k / micro->depth); i++)
        if (threads % i <= threads % stretches)
            stretches = i;
    return stretches;
}

size_t gd_gemm_stretches_bytes(const gd_gemm_micro *micro, const gd_gemm_product *p, int threads)
{
    const int64_t blocks = (p->k + micro->depth - 1) / micro->depth;
    return (size_t)((blocks + stretches_of(micro, p->k, threads)) * round_up(p->n, micro->lanes) *
                    micro->c_bytes);
}

void gd_gemm_stretches(const gd_gemm_micro *micro, const gd_gemm_product *p,
                       const gd_workspace *workspace, int threads)
{
    const int64_t blocks = (p->k + micro->depth - 1) / micro->depth;
    const int64_t width = round_up(p->n, micro->lanes), row_bytes = width * micro->c_bytes;
    const int64_t stretches = stretches_of(micro, p->k, threads), parts = threads / stretches;
    atomic_bool is_begun[GD_MAX_THREADS] = { false };
    gd_scratch scratch = gd_scratch_of_threads(workspace, threads);
    char *sums = numbers(&scratch, micro, blocks * width);
    char *begun = numbers(&scratch, micro, stretches * width);
    stretch_work work = { micro, p, stretches, parts, sums, begun, is_begun, width, row_bytes };
    gd_parallel_for(threads, stretches * parts, 1, run_stretches, &work);
    for (int64_t block = 1; block < blocks; block++)
        micro->row->add(sums, sums + block * row_bytes, width);
    micro->row->store(p, 0, p->n, sums);
}
