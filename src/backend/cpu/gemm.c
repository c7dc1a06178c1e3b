/* backend/cpu/gemm.c: the decisions of the matrix product that are the same for every instruction
 * set: which products are really one, how many threads and how to divide the work
 * among them. What to compute is chosen in gemm_choose.c and done in gemm_driver.c.
 */
#include "backend/cpu/gemm.h"

/* A thread is worth this many floating-point operations, 2 microseconds: handing it a range costs
 * half of one. 64x64x64 on two threads: 175 GFLOP/s, on one 107. */
#define FLOPS_PER_THREAD 2.5e5

/* A thread's work is cut into pieces of so many, some 100 microseconds, but not into more than so
 * many pieces: each packs its part of B. Thin products wait for memory, which is fastest in long
 * runs. */
#define THIN            64
#define FLOPS_PER_PIECE 1.6e7
#define MOST_TURNS      4

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

int gd_gemm_pieces(const gd_gemm_args *args, int64_t batch, int threads)
{
    const double flops = 2.0 * (double)args->m * (double)args->n * (double)args->k * (double)batch;
    const double turns = flops / threads / FLOPS_PER_PIECE;
    const bool is_thin = args->m < THIN || args->n < THIN || args->k < THIN;
    if (threads == 1 || turns < 2 || is_thin)
        return threads;
    return threads * (turns < MOST_TURNS ? (int)turns : MOST_TURNS);
}

/* Cost of one piece's share of k: its multiply-adds, and what every piece repeats, reading A and
 * packing B. */
static double piece_cost(int64_t m, int64_t n, int64_t lanes, int64_t row_parts,
                         int64_t column_parts)
{
    const int64_t vecs = (n + lanes - 1) / lanes;
    const double rows = (double)((m + row_parts - 1) / row_parts);
    const double piece_vecs = (double)((vecs + column_parts - 1) / column_parts);
    return rows * piece_vecs + 4 * piece_vecs + rows / 4;
}

void gd_gemm_divide(int64_t m, int64_t n, int64_t lanes, int64_t batch, int wanted,
                    int64_t *row_parts, int64_t *column_parts)
{
    /* The fewest pieces per product that make whole rounds of the wanted, to nine tenths. */
    int64_t pieces = 1;
    for (; pieces < wanted; pieces++) {
        const int64_t rounds = (batch * pieces + wanted - 1) / wanted;
        if ((double)(batch * pieces) >= 0.9 * (double)(rounds * wanted))
            break;
    }
    *row_parts = *column_parts = 1;
    double best = piece_cost(m, n, lanes, 1, 1);
    for (int64_t rows = 1; rows <= pieces; rows++) {
        const double cost = piece_cost(m, n, lanes, rows, pieces / rows);
        if (cost < best) {
            best = cost;
            *row_parts = rows;
            *column_parts = pieces / rows;
        }
    }
}
