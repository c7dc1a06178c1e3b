/* backend/cpu/centred.c: centred_products (ops/norm.c): x, and g, are read once; what is added up is made in
 * scratch, a block of the sum's order (reduce.h) at a time, or some rows where they are short. f16 and bf16
 * become f32 there, a piece at a time. Start at gd_centred_products_run(). */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/norm.h"
#include "backend/cpu/reduce.h"
#include "base/threads.h"

enum { BLOCK = GD_REDUCE_BLOCK, PIECE = 512 /* of f16 and bf16 */, LEVELS = 64 };

typedef struct work {
    const gd_kernel_call *call;
    const gd_norm_loops *loops;
    const gd_reducer *sum;
    gd_ew_loop widen_x, widen_g; /* NULL: they are not halves */
    int64_t size_x, size_g;      /* of an element */
    int64_t channels, k;
} work;

/* Of a thread: what is added up, pieces of x and of g, and sums of blocks. */
typedef struct room {
    char *block, *leaf, *levels;
    float *x, *g;
} room;

static room room_of(const work *w, int thread)
{
    gd_scratch s = gd_scratch_of(w->call, thread);
    room r = { .block = gd_scratch_take(&s, BLOCK * w->loops->size) };
    r.leaf = gd_scratch_take(&s, w->loops->size);
    r.levels = gd_scratch_take(&s, LEVELS * w->loops->size);
    r.x = gd_scratch_take(&s, PIECE * sizeof(float));
    r.g = gd_scratch_take(&s, PIECE * sizeof(float));
    return r;
}

/* What elements first, first + 1, … of x and g give, all of one row. */
static void fill(const work *w, const room *r, int64_t first, int64_t n, char *to)
{
    const gd_operand *in = w->call->in;
    const int64_t size = (int64_t)w->loops->size;
    const char *center = (const char *)in[1].data + first / w->k % w->channels * size;
    const int64_t most = w->widen_x || w->widen_g ? PIECE : n;
    for (int64_t i = 0; i < n; i += most) {
        const int64_t count = n - i < most ? n - i : most;
        const void *x = (const char *)in[0].data + (first + i) * w->size_x;
        const void *g = w->call->n > 2 ? (const char *)in[2].data + (first + i) * w->size_g : NULL;
        if (w->widen_x) {
            w->widen_x(x, NULL, NULL, r->x, count);
            x = r->x;
        }
        if (w->widen_g) {
            w->widen_g(g, NULL, NULL, r->g, count);
            g = r->g;
        }
        w->loops->centred(x, center, g, to + i * size, count);
    }
}

/* A row of more than a block. */
static void sum_long_row(const work *w, const room *r, int64_t row, char *out)
{
    gd_tree tree = {
        .merge = w->sum->merge, .levels = r->levels, .width = 1, .bytes = w->loops->size
    };
    for (int64_t i = 0; i < w->k; i += BLOCK) {
        const int64_t n = w->k - i < BLOCK ? w->k - i : BLOCK;
        fill(w, r, row * w->k + i, n, r->block);
        w->sum->rows(r->block, 0, n, r->leaf, 0, 1);
        gd_tree_push(&tree, r->leaf);
    }
    memcpy(out, gd_tree_end(&tree), w->loops->size);
}

static void sum_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const work *w = context;
    const room r = room_of(w, thread);
    const int64_t size = (int64_t)w->loops->size, most = w->k <= BLOCK ? BLOCK / w->k : 1;
    for (int64_t row = begin; row < end; row += most) {
        char *out = (char *)w->call->out.data + row * size;
        if (w->k > BLOCK) {
            sum_long_row(w, &r, row, out);
            continue;
        }
        const int64_t count = end - row < most ? end - row : most;
        for (int64_t i = 0; i < count; i++)
            fill(w, &r, (row + i) * w->k, w->k, r.block + i * w->k * size);
        w->sum->rows(r.block, w->k, w->k, out, 1, count);
    }
}

bool gd_centred_takes_halves(const gd_kernel_call *call)
{
    return call->in[1].layout->dtype == GD_F32;
}

static int64_t grain_of(const gd_layout *x)
{
    const int64_t k = gd_centred_row(x);
    return 1 + GD_PARALLEL_ELEMENTS / (k > 0 ? k : 1);
}

gd_workspace gd_centred_scratch(const gd_kernel_call *call)
{
    const gd_layout *x = call->in[0].layout;
    const size_t bytes = (BLOCK + 1 + LEVELS) * sizeof(double) + 2 * PIECE * sizeof(float);
    return (gd_workspace){ NULL, gd_scratch_bytes(bytes, 5),
                           gd_parallel_ranges(call->device->threads, x->shape[0] * x->shape[1],
                                              grain_of(x)) };
}

gd_status gd_centred_products_run(const gd_kernel_call *call, const gd_norm_loops *loops)
{
    const gd_layout *x = call->in[0].layout;
    const gd_dtype dtype = call->out.layout->dtype;
    work w = { .call = call,
               .loops = loops,
               .sum = gd_ew_table_of(call->device)->reduce[0][dtype],
               .widen_x = gd_ew_half_cast(call, &call->in[0]),
               .size_x = (int64_t)gd_dtype_size(x->dtype),
               .channels = x->shape[1],
               .k = gd_centred_row(x) };
    if (call->n > 2) {
        w.widen_g = gd_ew_half_cast(call, &call->in[2]);
        w.size_g = (int64_t)gd_dtype_size(call->in[2].layout->dtype);
    }
    const int64_t rows = x->shape[0] * w.channels;
    if (w.k == 0)
        w.sum->fill(call->out.data, rows);
    else
        gd_parallel_for(call->device->threads, rows, grain_of(x), sum_rows, &w);
    return GD_OK;
}
