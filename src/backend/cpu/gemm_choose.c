/* backend/cpu/gemm_choose.c: how a product is computed. Each function is one decision, a rule a
 * line, the first that holds counts, and says what the rule wins. No decision changes a bit of a
 * result (gemm.h), unless the descriptor's types say so. Figures are of Zen 4 where nothing else is
 * said. Start at gd_gemm_choose, at the end.
 *
 * GRADUS_MATMUL (paths.h) replaces the choice where the way can compute the product.
 */
#include "backend/cpu/gemm_plan.h"

#include <string.h>

/* Packing B pays over so many rows, if the rows of B that a tile reads take more than so many
 * pages; copying panels of a transposed A pays over so many columns. Up to CHAIN_ROWS rows of a
 * narrow product are taken one by one. With B packed once, a product of at most ONCE_ROWS rows need
 * not be transposed; where packing widens B, it may take ONCE_BLOCKS blocks. */
#define DIRECT_ROWS    16
#define ONCE_ROWS      12
#define ONCE_BLOCKS    4
#define DIRECT_PAGES   48
#define DIRECT_COLUMNS 64
#define STREAM_STEPS   64 /* C goes past the caches up to so many steps of k */
#define CHAIN_ROWS     3
#define PAGE_BYTES     4096

static const char *const forced = "GRADUS_MATMUL";

/* Whether to compute C^T = B^T A^T: products commute and sums keep their order, so no bit changes.
 * Kernels want the rows of C and B contiguous, and n to fill vectors. */
static gd_gemm_choice choose_transposed(const gd_gemm_micro *micro, const gd_gemm_args *args)
{
    const int64_t m = args->m, n = args->n;
    if (args->access)
        return (gd_gemm_choice){ 0, "operands are no matrices" };
    if (args->b_packed)
        return (gd_gemm_choice){ 0, "B was packed ahead" };
    if (micro->a != micro->b)
        return (gd_gemm_choice){ 0, "A and B are of two types" };
    if (args->paths->matmul == GD_MATMUL_TRANSPOSED)
        return (gd_gemm_choice){ 1, forced };
    if (n == 1 && m > 1)
        return (gd_gemm_choice){ 1, "one column: a product with one row reads B once" };
    if (m == 1 || n == 1)
        return (gd_gemm_choice){ 0, "one row" };
    if (args->c_col_stride != 1 && args->c_row_stride == 1)
        return (gd_gemm_choice){ 1,
                                 "columns of C are contiguous: tiles are stored without copies" };
    /* In quarters of a cycle per step of k: a multiply-add takes a cycle, packing a transposed
     * number about half of one. */
    const int64_t n_vectors = gd_gemm_vectors(micro, n), m_vectors = gd_gemm_vectors(micro, m);
    const int64_t as_is = 4 * m * n_vectors + (args->b_col_stride == 1 ? 0 : 2 * n);
    const int64_t transposed = 4 * n * m_vectors + (args->a_row_stride == 1 ? 0 : 2 * m);
    if (transposed + transposed / 4 < as_is)
        return (gd_gemm_choice){ 1, "rows fill vectors better than columns do" };
    return (gd_gemm_choice){ 0, "columns fill vectors" };
}

/* The way of a product with one row. BLOCKS: none suits the strides of B. */
static gd_gemm_choice choose_row(const gd_gemm_micro *micro, const gd_gemm_product *p, int64_t n)
{
    if (n < micro->lanes && !(micro->any_width && micro->row->chains) && (n == 1 || p->b_col == 1))
        return (gd_gemm_choice){ GD_GEMM_SCALARS, "fewer columns than a vector has lanes" };
    if (micro->row->chains && (p->b_col == 1 || n == 1) && n <= 2 * micro->columns)
        return (gd_gemm_choice){ GD_GEMM_CHAINS, "few columns: all sums stay in registers" };
    if (p->b_col == 1 || n == 1)
        return (gd_gemm_choice){ GD_GEMM_STREAMS, "one row: B is read once, in long runs" };
    if (p->b_row == 1 && n >= micro->lanes)
        return (gd_gemm_choice){ GD_GEMM_DOTS, "one row, B's columns contiguous: B is read once" };
    return (gd_gemm_choice){ GD_GEMM_BLOCKS, "one row, but B has no contiguous rows or columns" };
}

/* The way of a piece [m, n] of p. */
static gd_gemm_choice choose_way(const gd_gemm_micro *micro, const gd_paths *paths,
                                 const gd_gemm_product *p, int64_t m, int64_t n)
{
    const gd_matmul_path path = paths->matmul;
    if (p->b_packed)
        return (gd_gemm_choice){ GD_GEMM_BLOCKS, "B was packed ahead" };
    if (path == GD_MATMUL_PACKED || path == GD_MATMUL_DIRECT)
        return (gd_gemm_choice){ GD_GEMM_BLOCKS, forced };
    if (!micro->row || p->accumulate || p->access)
        return (gd_gemm_choice){ GD_GEMM_BLOCKS, p->accumulate ? "added to C" : "the only way" };
    if (m == 1)
        return choose_row(micro, p, n);
    const gd_gemm_choice row = choose_row(micro, p, n);
    if (path == GD_MATMUL_ROWS)
        return (gd_gemm_choice){ row.taken, forced };
    if (m <= CHAIN_ROWS && p->k > micro->depth && n <= micro->columns && p->b_col == 1)
        return (gd_gemm_choice){ row.taken, "few sums: blocks of k side by side hide additions" };
    return (gd_gemm_choice){ GD_GEMM_BLOCKS, "rows of C share B" };
}

/* Whether to pack B; else it is read in place. */
static gd_gemm_choice choose_pack_b(const gd_gemm_micro *micro, const gd_paths *paths,
                                    const gd_gemm_product *p, int64_t m)
{
    if (p->access && p->access->pack_b)
        return (gd_gemm_choice){ 1, "it is no matrix" };
    if (p->b_packed)
        return (gd_gemm_choice){ 1, "it is frozen" };
    if (!micro->reads_b)
        return (gd_gemm_choice){ 1, "tiles read packed operands" };
    if (p->b_col != 1)
        return (gd_gemm_choice){ 1, "its rows are not contiguous" };
    if (paths->matmul == GD_MATMUL_PACKED || paths->matmul == GD_MATMUL_DIRECT)
        return (gd_gemm_choice){ paths->matmul == GD_MATMUL_PACKED, forced };
    /* The first panel of rows packs what it reads, so that packing costs a store for each vector.
     * It wins where a tile's rows of B take more pages than the processor's first-level TLB has
     * entries, 64 to 96: on Emerald Rapids 64 x 768 x 768 takes 0.51 ms instead of 0.60, 256 x 3072 x 768 8.8 instead of 15. */
    const int64_t steps = gd_gemm_least(p->k, micro->depth);
    const int64_t row_bytes = (p->b_row < 0 ? -p->b_row : p->b_row) * micro->b_bytes;
    if (steps * row_bytes <= DIRECT_PAGES * PAGE_BYTES)
        return (gd_gemm_choice){ 0, "the rows that a tile reads take few pages" };
    if (m > DIRECT_ROWS)
        return (gd_gemm_choice){ 1, "many rows read it" };
    return (gd_gemm_choice){ 0, "few rows read it" };
}

/* Whether to copy panels of A. */
static gd_gemm_choice choose_pack_a(const gd_gemm_micro *micro, const gd_paths *paths,
                                    const gd_gemm_product *p, int64_t m, int64_t n)
{
    if (p->access && p->access->pack_a)
        return (gd_gemm_choice){ 1, "it is no matrix" };
    const bool in_rows = micro->reads_rows_of_a && p->a_col == 1 && p->k % micro->depth_unit == 0;
    if (!micro->reads_a && !in_rows)
        return (gd_gemm_choice){ 1, "tiles read packed operands" };
    if (paths->matmul == GD_MATMUL_PACKED || paths->matmul == GD_MATMUL_DIRECT)
        return (gd_gemm_choice){ paths->matmul == GD_MATMUL_PACKED, forced };
    if (p->a_col == 1 && m > 8 && gd_gemm_collide(p->a_row * micro->a_bytes))
        return (gd_gemm_choice){ 1, "rows collide in the caches" };
    if (p->a_col != 1 && (n > DIRECT_COLUMNS || p->access))
        return (gd_gemm_choice){ 1, "transposed, and many columns read it" };
    return (gd_gemm_choice){ 0, "tiles read any strides" };
}

/* Whether C goes past the caches. */
static gd_gemm_choice choose_streams(const gd_gemm_micro *micro, const gd_paths *paths,
                                     const gd_gemm_product *p, int64_t batch)
{
    if (!micro->stream || p->c_col != 1 || p->c_row * micro->c_bytes % GD_LINE_BYTES != 0 ||
        p->access || p->relu_result)
        return (gd_gemm_choice){ 0, "its rows are no whole lines" };
    if (p->accumulate)
        return (gd_gemm_choice){ 0, "it is added to" };
    /* On Zen 5 262144 x 16 x 128 takes 4.5 ms instead of 6.7 by bf16 (6.3 instead of 7.2 in f32), 768 x
     * 256 x 3072 no less. What the last cache holds is better left there: four of 256 x 64 x 3136, rounded
     * behind, has 229 GFLOP/s past it, 340 in it. */
    if (p->k > STREAM_STEPS)
        return (gd_gemm_choice){ 0, "arithmetic takes longer than memory" };
    if ((size_t)(batch * p->m * p->n * micro->c_bytes) < paths->stream_bytes)
        return (gd_gemm_choice){ 0, "caches have room for it" };
    return (gd_gemm_choice){ 1, "it is larger than the caches" };
}

/* The first product of the batch. Field by field into place: copies of a fresh structure wait for
 * its stores. */
static void set_product(const gd_gemm_micro *micro, const gd_gemm_args *args, bool transposed,
                        gd_gemm_product *p)
{
    p->k = args->k;
    p->c = args->c;
    p->relu = args->relu;
    p->relu_result = args->relu_result;
    p->accumulate = args->accumulate;
    p->access = args->access;
    p->column = 0;
    p->streams = false;
    p->b_packed = args->b_packed;
    p->b_width = args->b_packed ? gd_gemm_vectors(micro, args->n) << micro->lane_shift : 0;
    p->fetch = args->fetch, p->fetches = args->fetches;
    if (!transposed) {
        p->m = args->m, p->n = args->n;
        p->a = args->a, p->a_row = args->a_row_stride, p->a_col = args->a_col_stride;
        p->b = args->b, p->b_row = args->b_row_stride, p->b_col = args->b_col_stride;
        p->c_row = args->c_row_stride, p->c_col = args->c_col_stride;
        p->column_bias = args->bias, p->column_bias_stride = args->bias ? args->bias_stride : 1;
        p->row_bias = NULL, p->row_bias_stride = 1;
        if (args->access) {
            p->row_bias = args->bias, p->row_bias_stride = args->bias_stride;
            p->column_bias = NULL, p->column_bias_stride = 1;
        }
    } else {
        p->m = args->n, p->n = args->m;
        p->a = args->b, p->a_row = args->b_col_stride, p->a_col = args->b_row_stride;
        p->b = args->a, p->b_row = args->a_col_stride, p->b_col = args->a_row_stride;
        p->c_row = args->c_col_stride, p->c_col = args->c_row_stride;
        p->column_bias = NULL, p->column_bias_stride = 1;
        p->row_bias = args->bias, p->row_bias_stride = args->bias_stride;
    }
}

/* k == 0 is the product with one step of zeros, so that one text gives the bias alone. */
static const double zero;
static void set_empty(gd_gemm_args *args)
{
    args->k = 1;
    args->a = args->b = &zero;
    args->b_packed = NULL;
    args->fetches = 0;
    args->a_row_stride = args->a_col_stride = args->b_row_stride = args->b_col_stride = 0;
    memset(args->a_batch_stride, 0, sizeof args->a_batch_stride);
    memset(args->b_batch_stride, 0, sizeof args->b_batch_stride);
}

static void set_batch(const gd_gemm_args *args, gd_gemm_plan *plan)
{
    const size_t bytes = (size_t)args->batch_rank * sizeof(int64_t);
    const bool transposed = plan->transposed.taken;
    plan->batch_rank = args->batch_rank;
    if (args->batch_rank == 0)
        return;
    memcpy(plan->batch_shape, args->batch_shape, bytes);
    memcpy(transposed ? plan->b_batch_stride : plan->a_batch_stride, args->a_batch_stride, bytes);
    memcpy(transposed ? plan->a_batch_stride : plan->b_batch_stride, args->b_batch_stride, bytes);
    memcpy(plan->c_batch_stride, args->c_batch_stride, bytes);
}

/* How many threads, and the pieces that they compute. */
static void choose_pieces(const gd_gemm_micro *micro, const gd_gemm_args *args, int64_t batch,
                          gd_gemm_plan *plan)
{
    const gd_gemm_product *p = &plan->first;
    plan->row_parts = plan->column_parts = 1;
    plan->threads = args->threads > 1 ? gd_gemm_threads(args, batch) : 1;
    if (plan->threads > 1) {
        const gd_gemm_work work = { p->m, p->n, batch, micro->lanes, micro->packing };
        if (args->access)
            gd_gemm_divide(&work, plan->threads, &plan->row_parts, &plan->column_parts);
        else
            gd_gemm_cut(&work, p->k, plan->threads, &plan->row_parts, &plan->column_parts);
    }
    plan->pieces = batch * plan->row_parts * plan->column_parts;
}

bool gd_gemm_choose(const gd_gemm_micro *micro, const gd_gemm_args *args, gd_gemm_plan *plan)
{
    gd_gemm_args changed;
    int64_t batch = 1;
    for (int d = 0; d < args->batch_rank; d++)
        batch *= args->batch_shape[d];
    if (args->m <= 0 || args->n <= 0 || batch <= 0 || (args->k <= 0 && args->accumulate))
        return false;
    if (args->k <= 0 || args->batch_rank > 0) {
        changed = *args;
        args = &changed;
        if (args->k <= 0)
            set_empty(&changed);
        batch = gd_gemm_join_batch(&changed);
    }
    plan->has_steps = args->a != &zero;
    plan->asked = args->threads;
    plan->transposed = choose_transposed(micro, args);
    set_product(micro, args, plan->transposed.taken, &plan->first);
    set_batch(args, plan);
    choose_pieces(micro, args, batch, plan);
    if (plan->threads > 1 && batch == 1 &&
        gd_gemm_takes_stretches(micro, &plan->first, args->paths, plan->threads)) {
        plan->way =
            (gd_gemm_choice){ GD_GEMM_STRETCHES, "one row, short: threads share B by rows" };
        return true;
    }
    /* the largest piece */
    const gd_gemm_product *p = &plan->first;
    int64_t m = p->m, n = p->n;
    if (plan->row_parts > 1)
        m = (m + plan->row_parts - 1) / plan->row_parts;
    if (plan->column_parts > 1)
        n = (gd_gemm_vectors(micro, n) + plan->column_parts - 1) / plan->column_parts *
            micro->lanes;
    plan->way = choose_way(micro, args->paths, p, m, n);
    if (plan->way.taken != GD_GEMM_BLOCKS)
        return true;
    plan->pack_a = choose_pack_a(micro, args->paths, p, m, n);
    plan->pack_b = choose_pack_b(micro, args->paths, p, m);
    plan->block_columns = gd_gemm_block_columns(micro, args->paths);
    plan->stream_c = choose_streams(micro, args->paths, p, batch);
    plan->first.streams = plan->stream_c.taken;
    return true;
}

/* Whether a product that is computed as `plan` says runs faster with B packed once. Figures are of one
 * thread of an Emerald Rapids, against the plan, weights out of the second-level cache. */
static bool packing_once_pays(const gd_gemm_micro *micro, const gd_gemm_args *args,
                              const gd_gemm_plan *plan)
{
    const gd_gemm_product *p = &plan->first;
    /* Widened numbers take twice the memory: 768 x 2304 in bf16 loses 6 % with 16 rows, 384 x 1152 wins 16. */
    if (micro->b_packed_bytes > micro->b_bytes &&
        gd_gemm_ahead_bytes(micro, args->k, args->n) > ONCE_BLOCKS * args->paths->block_bytes)
        return false;
    /* 8 x 768 x 768, B transposed: 0.11 ms instead of 0.23. */
    if (plan->transposed.taken)
        return p->n <= ONCE_ROWS && p->m >= micro->columns && args->c_col_stride == 1;
    if (plan->way.taken != GD_GEMM_BLOCKS)
        return false;
    /* Else it is packed at each run: 32 x 768 x 2304: 1.1 ms instead of 1.5. */
    if (plan->pack_b.taken)
        return true;
    /* In place, a tile reads from many pages: 8 x 768 x 2304: 0.57 ms instead of 0.94. */
    if (p->k * p->n > GD_GEMM_LARGE)
        return true;
    /* In place, vectors cross cache lines: 8 x 256 x 120: 4.7 us instead of 5.6. */
    return p->b_row * micro->b_bytes % GD_LINE_BYTES != 0;
}

bool gd_gemm_packs_once(const gd_gemm_micro *micro, const gd_gemm_args *args)
{
    gd_gemm_plan plan;
    if (args->access || args->accumulate || !gd_matmul_may_choose(args->paths) ||
        !gd_gemm_choose(micro, args, &plan) || !plan.has_steps)
        return false;
    const int64_t *shared = plan.transposed.taken ? plan.a_batch_stride : plan.b_batch_stride;
    for (int d = 0; d < plan.batch_rank; d++)
        if (shared[d] != 0)
            return false;
    return packing_once_pays(micro, args, &plan);
}

static const char *const way_names[] = {
    [GD_GEMM_BLOCKS] = "blocks", [GD_GEMM_CHAINS] = "chains",   [GD_GEMM_STREAMS] = "streams",
    [GD_GEMM_DOTS] = "dots",     [GD_GEMM_SCALARS] = "scalars", [GD_GEMM_STRETCHES] = "stretches",
};

static void explain_packing(gd_text *text, char operand, gd_gemm_choice pack, bool once)
{
    const char *how = once ? "packed once" : pack.taken ? "packed" : "in place";
    gd_text_add(text, "; %c %s: %s", operand, how, pack.why);
}

void gd_gemm_explain(const gd_gemm_micro *micro, const gd_gemm_plan *plan, gd_text *text)
{
    const gd_gemm_product *p = &plan->first;
    const int64_t products = plan->pieces / (plan->row_parts * plan->column_parts);
    if (products > 1)
        gd_text_add(text, "%lld times ", (long long)products);
    gd_text_add(text, "%lld x %lld x %lld by %s", (long long)p->m, (long long)p->k, (long long)p->n,
                way_names[plan->way.taken]);
    if (plan->way.taken == GD_GEMM_BLOCKS)
        gd_text_add(text, " of %d x %d tiles%s%s", micro->rows, micro->columns,
                    micro->name ? ", " : "", micro->name ? micro->name : "");
    gd_text_add(text, ": %s", plan->way.why);
    if (plan->transposed.taken)
        gd_text_add(text, "; C^T = B^T A^T: %s", plan->transposed.why);
    if (plan->way.taken == GD_GEMM_BLOCKS) {
        explain_packing(text, 'B', plan->pack_b, p->b_packed != NULL);
        explain_packing(text, 'A', plan->pack_a, false);
        if (plan->stream_c.taken)
            gd_text_add(text, "; C past the caches: %s", plan->stream_c.why);
    }
    gd_text_add(text, "; %d thread%s", plan->threads, plan->threads == 1 ? "" : "s");
    if (plan->row_parts * plan->column_parts > 1)
        gd_text_add(text, ", %lld x %lld pieces", (long long)plan->row_parts,
                    (long long)plan->column_parts);
}
