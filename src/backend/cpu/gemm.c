/* backend/cpu/gemm.c: the decisions of the matrix product that are the same for every instruction
 * set: which products are really one, how many threads and how to divide the work
 * among them. What to compute is chosen in gemm_choose.c and done in gemm_driver.c.
 */
#include "backend/cpu/gemm.h"

/* A thread is worth this many floating-point operations, 2 microseconds: handing it a range costs
 * half of one. 64x64x64 on two threads: 175 GFLOP/s, on one 107. */
#define FLOPS_PER_THREAD 2.5e5

/* A thread's work is cut into pieces of so many, some 100 microseconds, but not into more than so
 * many pieces, nor so that what each packs for itself adds more than a hundredth to one piece a
 * thread. Thin products wait for memory, which is fastest in long runs. On Zen 5 1536 x 2048 x 384 of bf16, A transposed, takes
 * 2.75 ms in two pieces and 3.13 in eight. */
#define THIN            64
#define FLOPS_PER_PIECE 1.6e7
#define MOST_TURNS      4
#define REPEATED_MOST   1.01

#define PACKED_ROWS 16 /* numbers of A that are packed in the time of a vector of B */

size_t gd_gemm_scratch_bytes(const gd_paths *paths)
{
    return paths->block_bytes + GD_GEMM_PANEL_BYTES;
}

static void remove_dimension(gd_gemm_args *args, int d)
{
    args->batch_rank--;
    for (; d < args->batch_rank; d++) {
        args->batch_shape[d] = args->batch_shape[d + 1];
        args->a_batch_stride[d] = args->a_batch_stride[d + 1];
        args->b_batch_stride[d] = args->b_batch_stride[d + 1];
        args->c_batch_stride[d] = args->c_batch_stride[d + 1];
    }
}

/* Whether dimension d is one long dimension with the one inside it. */
static bool continues(const gd_gemm_args *args, int d)
{
    const int64_t inner = args->batch_shape[d + 1];
    return args->a_batch_stride[d] == inner * args->a_batch_stride[d + 1] &&
           args->b_batch_stride[d] == inner * args->b_batch_stride[d + 1] &&
           args->c_batch_stride[d] == inner * args->c_batch_stride[d + 1];
}

/* Whether the products along dimension d are rows of one product. */
static bool continues_rows(const gd_gemm_args *args, int d)
{
    return args->b_batch_stride[d] == 0 &&
           args->a_batch_stride[d] == args->m * args->a_row_stride &&
           args->c_batch_stride[d] == args->m * args->c_row_stride;
}

int64_t gd_gemm_join_batch(gd_gemm_args *args)
{
    for (int d = args->batch_rank - 1; d >= 0; d--)
        if (args->batch_shape[d] == 1)
            remove_dimension(args, d);
    for (int d = args->batch_rank - 2; d >= 0; d--)
        if (continues(args, d)) {
            args->batch_shape[d + 1] *= args->batch_shape[d];
            remove_dimension(args, d);
        }
    while (args->batch_rank > 0 && continues_rows(args, args->batch_rank - 1))
        args->m *= args->batch_shape[--args->batch_rank];

    int64_t batch = 1;
    for (int d = 0; d < args->batch_rank; d++)
        batch *= args->batch_shape[d];
    return batch;
}

int gd_gemm_threads(const gd_gemm_args *args, int64_t batch)
{
    const double flops = 2.0 * (double)args->m * (double)args->n * (double)args->k * (double)batch;
    const double worth = flops / FLOPS_PER_THREAD;
    const int most = args->threads < 1 ? 1 : args->threads;
    return worth < 2 ? 1 : worth < most ? (int)worth : most;
}

/* Cost of one piece's share of k: its multiply-adds, and what every piece repeats, packing A and B. */
static double piece_cost(const gd_gemm_work *w, int64_t row_parts, int64_t column_parts)
{
    const int64_t vecs = (w->n + w->lanes - 1) / w->lanes;
    const double rows = (double)((w->m + row_parts - 1) / row_parts);
    const double piece_vecs = (double)((vecs + column_parts - 1) / column_parts);
    return rows * piece_vecs + w->packing * (piece_vecs + rows / PACKED_ROWS);
}

double gd_gemm_divide(const gd_gemm_work *w, int wanted, int64_t *row_parts, int64_t *column_parts)
{
    /* The fewest pieces per product that make whole rounds of the wanted, to nine tenths. */
    int64_t pieces = 1;
    for (; pieces < wanted; pieces++) {
        const int64_t rounds = (w->batch * pieces + wanted - 1) / wanted;
        if ((double)(w->batch * pieces) >= 0.9 * (double)(rounds * wanted))
            break;
    }
    *row_parts = *column_parts = 1;
    double best = piece_cost(w, 1, 1);
    for (int64_t rows = 1; rows <= pieces; rows++) {
        const double cost = piece_cost(w, rows, pieces / rows);
        if (cost < best) {
            best = cost;
            *row_parts = rows;
            *column_parts = pieces / rows;
        }
    }
    return best * (double)(*row_parts * *column_parts);
}

void gd_gemm_cut(const gd_gemm_work *w, int64_t k, int threads, int64_t *row_parts,
                 int64_t *column_parts)
{
    const double flops = 2.0 * (double)w->m * (double)w->n * (double)k * (double)w->batch;
    const bool is_thin = w->m < THIN || w->n < THIN || k < THIN;
    const double least = gd_gemm_divide(w, threads, row_parts, column_parts);
    for (int turns = threads == 1 || is_thin ? 1 : MOST_TURNS; turns > 1; turns--) {
        int64_t rows, columns;
        if (flops < turns * threads * FLOPS_PER_PIECE ||
            gd_gemm_divide(w, turns * threads, &rows, &columns) > least * REPEATED_MOST)
            continue;
        *row_parts = rows;
        *column_parts = columns;
        return;
    }
}
