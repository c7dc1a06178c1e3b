/* backend/gpu/product_choose.c: which tile a product is made with, and whether its steps along k are split, by
 * an estimate of the cycles that it takes on a large device. Results do not depend on it. Start at
 * gd_gpu_product_choose. */
#include "backend/gpu/product.h"

#include "backend/cpu/gemm.h"

/* A device as large as NVIDIA's H100. Estimates, in cycles of its clock. */
enum {
    MULTIPROCESSORS = 132,
    LANES = 128,    /* multiply-adds of f32 that a multiprocessor does in a cycle */
    TURN = 600,     /* from a load of operands until they are in local memory, behind a barrier */
    LAUNCH = 3000,  /* a kernel, and what its groups do before and behind their steps */
    TRAFFIC = 1400, /* bytes of memory in a cycle */
};

enum {
    MOST_BYTES = 64 << 20, /* of the workspace */
    MOST_LAUNCHES = 8,     /* that fill it, one after another */
};

/* A tile, and which share of the rate of multiply-adds its resident groups reach, in percent
 * (tools/kernel_mix.py, of convolutions). */
typedef struct candidate {
    gd_gpu_product_tile tile;
    int share;
    bool is_f32; /* alone: other types would take too many registers */
} candidate;

static const candidate candidates[] = {
    { { 16, 1, 1, 16, 2 }, 12, false }, { { 16, 4, 4, 16, 2 }, 42, false },
    { { 4, 4, 2, 16, 1 }, 30, true },   { { 4, 4, 4, 16, 1 }, 33, true },
    { { 4, 8, 4, 8, 1 }, 49, true },    { { 8, 8, 8, 8, 1 }, 72, true },
    { { 16, 8, 8, 8, 1 }, 75, true },
};
enum { CANDIDATES = sizeof candidates / sizeof *candidates };

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Of `groups` groups that take so many steps each. */
static double cycles_of(const candidate *c, int64_t groups, int64_t steps)
{
    const int64_t each = divide_up(groups, MULTIPROCESSORS);
    const double elements =
        (double)(gd_gpu_product_rows(&c->tile) * gd_gpu_product_columns(&c->tile));
    const double computing =
        (double)each * elements * (double)steps * 100 / ((double)LANES * c->share);
    const double waiting =
        (double)divide_up(each, c->tile.resident) * (double)divide_up(steps, c->tile.depth) * TURN;
    return LAUNCH + larger(computing, waiting);
}

/* Blocks of a launch, where k is split; 0: it cannot be. */
static int64_t blocks_of(const gd_gpu_product_size *s)
{
    const double sums =
        (double)s->m * (double)s->n * (double)s->products * (double)gd_dtype_size(s->dtype);
    const int64_t blocks = divide_up(s->k, GD_GEMM_KC);
    if (!s->may_split || blocks < 2 || sums * 3 > MOST_BYTES)
        return 0;
    const int64_t room = (int64_t)(MOST_BYTES / sums);
    if (blocks <= room)
        return blocks;
    /* One place is the sum of what was added up before. */
    return divide_up(blocks, room - 1) <= MOST_LAUNCHES ? room - 1 : 0;
}

static double split_cycles(const candidate *c, const gd_gpu_product_size *s, int64_t pieces,
                           int64_t blocks)
{
    const int64_t all = divide_up(s->k, GD_GEMM_KC), launches = divide_up(all, blocks);
    const double sums =
        (double)s->m * (double)s->n * (double)s->products * (double)gd_dtype_size(s->dtype);
    return (double)launches * (cycles_of(c, pieces * blocks, GD_GEMM_KC) + LAUNCH) +
           2 * sums * (double)all / TRAFFIC;
}

/* With a tile, k split or not, as is faster. */
static gd_gpu_product_plan plan_of(const candidate *c, const gd_gpu_product_size *s)
{
    const int64_t blocks = blocks_of(s), all = divide_up(s->k, GD_GEMM_KC);
    gd_gpu_product_plan plan = { .tile = c->tile };
    plan.pieces = s->products * divide_up(s->m, gd_gpu_product_rows(&c->tile)) *
                  divide_up(s->n, gd_gpu_product_columns(&c->tile));
    plan.cycles = cycles_of(c, plan.pieces, s->k);
    const double split = blocks > 0 ? split_cycles(c, s, plan.pieces, blocks) : plan.cycles;
    if (split < plan.cycles) {
        plan.blocks = blocks;
        plan.slots = blocks + (blocks < all);
        plan.cycles = split;
    }
    return plan;
}

gd_gpu_product_plan gd_gpu_product_choose(const gd_gpu_product_size *size)
{
    gd_gpu_product_plan best = { .pieces = 0 };
    for (int i = 0; i < CANDIDATES; i++) {
        candidate c = candidates[i];
        if (c.is_f32 && size->dtype != GD_F32)
            continue;
        if (gd_dtype_size(size->dtype) > 4 && c.tile.work_m > 1) {
            c.tile.depth /= 2;
            c.tile.resident = 1;
        }
        const gd_gpu_product_plan plan = plan_of(&c, size);
        if (best.pieces == 0 || plan.cycles < best.cycles)
            best = plan;
    }
    return best;
}
