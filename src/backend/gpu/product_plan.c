/* backend/gpu/product_plan.c: matrix products as steps of a plan's one kernel (codegen/device/product_plan.txt),
 * which has few work-groups: what counts is how long one takes. All work-groups should have a tile, and
 * the blocks along k, each a chain of its own, are computed at the same time. Start at
 * gd_gpu_plan_product. */
#include "backend/gpu/gpu.h"

enum {
    BLOCK = 256,     /* steps along k that are added up by themselves */
    MOST_LANES = 8,  /* blocks at the same time */
    MOST_DEPTH = 64, /* steps of each that are in local memory */
    LEAST_DEPTH = 16,
    MOST_ELEMENTS = 8,    /* of an item: more do not fit in 128 registers */
    MOST_LOAD_BYTES = 64, /* of what an item waits for */
    LOCAL_BYTES = 30000,  /* with what else is there: on every device */
    MOST_DOWN = 64,       /* items below one another */
    /* By estimate, in cycles of a multiprocessor. */
    LATENCY = 600,      /* until the first elements are there */
    LOAD_BYTES = 32,    /* of a cycle */
    TURN = 100,         /* two barriers, addresses */
    CHAIN = 4,          /* from one multiply-add to the next that needs it */
    LOCAL_LATENCY = 40, /* of a read of local memory */
    SCHEDULERS = 4,
};

/* How a work-group makes a tile: items have `rows` x `columns` elements each of a block along k. */
typedef struct tiling {
    int rows, columns, down, across, lanes, depth;
    double cycles;
} tiling;

typedef struct sizes {
    int64_t m, n, k, products;
    bool left_by_depth, right_by_depth; /* neighbours along k are neighbours in memory */
    int bytes;                          /* of an element */
} sizes;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows or columns of a tile that all items load elements of at once: one each. */
static int lines_at_once(const tiling *t, bool by_depth, int lines, int items)
{
    int at_once = items / t->depth;
    if (by_depth)
        return at_once;
    at_once = at_once < 8 ? 8 : at_once;
    while (at_once < lines && at_once < items / 4)
        at_once *= 2;
    return at_once;
}

static int loads_of(const tiling *t, bool by_depth, int lines, int items)
{
    const int at_once = lines_at_once(t, by_depth, lines, items);
    return t->lanes * (int)gd_gpu_groups(lines, at_once) * (t->depth * at_once / items);
}

static bool fits(const tiling *t, const sizes *s, int items)
{
    const int rows = t->rows * t->down, columns = t->columns * t->across;
    const int loads =
        loads_of(t, s->left_by_depth, rows, items) + loads_of(t, s->right_by_depth, columns, items);
    const int elements = (rows + columns) * (t->depth + 4) + (t->lanes > 1 ? rows * columns : 0);
    return t->rows * t->columns <= MOST_ELEMENTS && t->lanes * t->down * t->across <= items &&
           loads * s->bytes <= MOST_LOAD_BYTES && t->lanes * elements * s->bytes <= LOCAL_BYTES;
}

/* Quads of a line, four steps each, that an item reads ahead: registers are few. */
static int at_once(const tiling *t)
{
    return t->rows * t->columns > 4 ? 2 : 4;
}

static double cycles_of(const tiling *t, const sizes *s, int blocks)
{
    const int64_t tile_rows = t->rows * t->down, tile_columns = t->columns * t->across;
    const int64_t tiles =
        s->products * gd_gpu_groups(s->m, (int)tile_rows) * gd_gpu_groups(s->n, (int)tile_columns);
    const int64_t turns = gd_gpu_groups(gd_gpu_groups(s->k, BLOCK), t->lanes) *
                          gd_gpu_groups(least(s->k, BLOCK), t->depth);
    const double depth = (double)least(s->k, t->depth);
    const double warps = (double)gd_gpu_groups(t->lanes * t->down * t->across, 32);
    const double of_one = (double)gd_gpu_groups((int64_t)warps, SCHEDULERS);
    const double products = t->rows * t->columns, reads = t->rows + t->columns;
    /* for each step along k: a chain waits for itself, schedulers and local memory for nobody */
    double step = CHAIN;
    const double wait = LOCAL_LATENCY / (4.0 * at_once(t)) / of_one;
    step = step > of_one * (products + reads / 4) ? step : of_one * (products + reads / 4);
    step = step > warps * reads / 3 ? step : warps * reads / 3;
    const double bytes = (double)(t->lanes * (tile_rows + tile_columns)) * depth * s->bytes;
    return (double)gd_gpu_groups(tiles, blocks) *
           (LATENCY + (double)turns * (TURN + bytes / LOAD_BYTES + depth * (step + wait)));
}

/* The tiling that takes least, by estimate. */
static tiling choose(const sizes *s, int items, int blocks)
{
    tiling best = { 1, 1, 1, 1, 1, LEAST_DEPTH, -1 }, t;
    const int most = s->bytes == 8 ? 2 : 4;
    for (t.lanes = 1; t.lanes <= MOST_LANES && (t.lanes == 1 || (t.lanes - 1) * BLOCK < s->k);
         t.lanes *= 2)
        for (t.depth = LEAST_DEPTH; t.depth <= MOST_DEPTH; t.depth *= 2)
            for (t.rows = 1; t.rows <= most; t.rows *= 2)
                for (t.columns = 1; t.columns <= most; t.columns *= 2)
                    for (t.across = 1; t.across <= 32; t.across *= 2)
                        for (t.down = 1; t.down <= MOST_DOWN; t.down++) {
                            if (!fits(&t, s, items))
                                break;
                            t.cycles = cycles_of(&t, s, blocks);
                            if (best.cycles < 0 || t.cycles < best.cycles)
                                best = t;
                        }
    return best;
}

/* false: the call is none, or its numbers are a library's. */
static bool sizes_of(const gd_kernel_call *call, sizes *s)
{
    const gd_op_id id = call->op->id;
    if ((id != GD_OP_matmul && id != GD_OP_linear && id != GD_OP_matmul_relu_grad) ||
        gd_gpu_is_library_product(call) || gd_layout_count(call->out.layout) == 0)
        return false;
    const gd_layout *x = call->in[0].layout, *w = call->in[1].layout;
    s->m = x->shape[x->rank - 2];
    s->n = w->shape[w->rank - 1];
    s->k = x->shape[x->rank - 1];
    s->products = gd_layout_count(call->out.layout) / (s->m * s->n);
    s->left_by_depth = x->stride[x->rank - 1] == 1;
    s->right_by_depth = w->stride[w->rank - 2] == 1;
    s->bytes = (int)gd_dtype_size(call->out.layout->dtype);
    return true;
}

double gd_gpu_plan_product_cycles(const gd_kernel_call *call, int items, int blocks)
{
    sizes s;
    return sizes_of(call, &s) ? choose(&s, items, blocks).cycles : 0;
}

bool gd_gpu_plan_product(const gd_kernel_call *call, int items, int blocks, gd_gpu_job *job)
{
    sizes s;
    if (!sizes_of(call, &s))
        return false;
    const tiling t = choose(&s, items, blocks);
    const int rows = t.rows * t.down, columns = t.columns * t.across;
    job->steps = 0;
    gd_gpu_step *step = gd_gpu_add_kernel(
        job, "plan_product", s.products * gd_gpu_groups(s.m, rows) * gd_gpu_groups(s.n, columns),
        items);
    gd_gpu_define(step, "ITEMS", "%d", items);
    gd_gpu_define(step, "ROWS", "%d", t.rows);
    gd_gpu_define(step, "COLUMNS", "%d", t.columns);
    gd_gpu_define(step, "ITEMS_DOWN", "%d", t.down);
    gd_gpu_define(step, "ITEMS_ACROSS", "%d", t.across);
    gd_gpu_define(step, "LANES", "%d", t.lanes);
    gd_gpu_define(step, "TURN", "%d", t.depth);
    gd_gpu_define(step, "UNROLL_QUADS", "_Pragma(\"unroll %d\")", at_once(&t));
    gd_gpu_define(step, "LEFT_BY_DEPTH", "%d", s.left_by_depth);
    gd_gpu_define(step, "RIGHT_BY_DEPTH", "%d", s.right_by_depth);
    gd_gpu_define(step, "LEFT_AT_ONCE", "%d", lines_at_once(&t, s.left_by_depth, rows, items));
    gd_gpu_define(step, "RIGHT_AT_ONCE", "%d", lines_at_once(&t, s.right_by_depth, columns, items));
    gd_gpu_finish_product(call, step);
    return true;
}
