/* backend/cpu/attention.c: attention and its gradient on the CPU: the walk over tiles of scores and
 * the matrix products (gemm.h). What happens to a tile in between is in attention_isa.c; the
 * formulas are in ops/attention.c. f32 and halves go through tiles; f64, for checks of gradients, row
 * by row. Start at gd_attention_run().
 *
 * A tile lies in the thread's scratch. Forward, the blocks of queries are dealt out to the threads.
 * Backward it is heads of k and v, with all queries that look at them, since those add to the same
 * gradients: nothing is ever added to by two threads. The C of exports (codegen/kernels.txt)
 * has the same tiles, and so the same bits.
 */
#include "backend/cpu/attention.h"

#include "backend/cpu/gemm_plan.h"
#include "base/random.h"
#include "base/threads.h"
#include "ops/attrs.h"

#include <math.h>
#include <string.h>

#define QUERIES GD_ATTENTION_QUERIES
#define KEYS    GD_ATTENTION_KEYS
#define ROW     GD_ATTENTION_ROW
#define BLOCKS  8  /* of scratch, beside the products' */
#define FEW     16 /* queries or fewer: the rate of memory bounds the speed */

/* Tiles of queries that one thread takes through all keys together, so that keys are transposed
 * once for all of them. */
#define TILES 8

/* The last two axes of an operand in one batch entry and head: row i at data + i * row. */
typedef struct matrix {
    void *data;
    int64_t row, column; /* strides, in elements */
    gd_dtype dtype;
    const float *scale; // of i8: by which each row is multiplied
    int64_t scale_row;
} matrix;

typedef struct job {
    const gd_kernel_call *call;
    const gd_attention_loops *loops;
    const gd_attention_attr *attr;
    gd_operand q, k, v, mask, g;
    gd_operand k_scale, v_scale; /* of i8 */
    gd_layout mask_layout;       /* stretched to the scores */
    const void *packed;          /* the gradient's: what the forward pass gave */
    uint64_t seed, word;         /* dropout: of row 0, key 0 */
    int64_t entries;             /* batch entries times heads of q */
    int64_t heads, groups;       /* of q; of k and v */
    int64_t tq, tk, d, dv;
    bool is_bf16;            /* q, k, v and g, and so are products; else those are f32 */
    bool widens_q, widens_k; /* of halves: q and g; of halves and i8: k and v */
    bool is_narrow;          /* attention_narrow, whose result is O alone */
    int64_t rows;            /* of a tile */
    int64_t blocks, block;   /* of queries, forward: how many, and their size */
} job;

/* Where batch entry and head `entry`, a row-major number, begins in an operand, in elements. */
static int64_t offset_of(const gd_layout *layout, int64_t entry)
{
    int64_t at = 0;
    for (int axis = layout->rank - 3; axis >= 0; axis--) {
        at += entry % layout->shape[axis] * layout->stride[axis];
        entry /= layout->shape[axis];
    }
    return at;
}

/* Where row `row` of `entry` begins in a result [.., time, heads, width] whose rows, of all heads,
 * are `step` apart; in elements. */
static int64_t row_of(int64_t entry, int64_t heads, int64_t time, int64_t row, int64_t width,
                      int64_t step)
{
    return (entry / heads * time + row) * step + entry % heads * width;
}

static matrix matrix_of(const gd_operand *x, int64_t entry)
{
    const gd_layout *layout = x->layout;
    int64_t size = (int64_t)gd_dtype_size(layout->dtype);
    return (matrix){ .data = (char *)x->data + offset_of(layout, entry) * size,
                     .row = layout->stride[layout->rank - 2],
                     .column = layout->stride[layout->rank - 1],
                     .dtype = layout->dtype };
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The entry of k and v that entry of q looks at. */
static int64_t entry_of_keys(const job *j, int64_t entry)
{
    return entry / j->heads * j->groups + entry % j->heads * j->groups / j->heads;
}

/* Whether products multiply bf16 by instructions; else they, too, would widen it. */
static bool multiplies_bf16(const gd_kernel_call *call)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)call->device;
    return cpu->gemm_bf16->b_packed_bytes == (int)sizeof(uint16_t);
}

static job job_of(const gd_kernel_call *call, const gd_attention_loops *loops, int extras)
{
    const gd_operand *in = call->in;
    const gd_layout *q = in[0].layout, *k = in[1].layout, *v = in[2].layout;
    int rank = q->rank;
    job j = { .call = call,
              .loops = loops,
              .attr = call->attr,
              .q = in[0],
              .k = in[1],
              .v = in[2],
              .is_bf16 = q->dtype == GD_BF16 && multiplies_bf16(call),
              .heads = q->shape[rank - 3],
              .groups = k->shape[rank - 3],
              .tq = q->shape[rank - 2],
              .tk = k->shape[rank - 2],
              .d = q->shape[rank - 1],
              .dv = v->shape[rank - 1] };
    j.widens_q = gd_dtype_is_half(q->dtype) && !j.is_bf16;
    j.widens_k = j.widens_q || k->dtype == GD_I8 || k->dtype != q->dtype;
    j.is_narrow = call->op->id == GD_OP_attention_narrow;
    if (k->dtype == GD_I8) {
        j.k_scale = in[extras++];
        j.v_scale = in[extras++];
    }
    if (j.attr->has_mask) {
        gd_shape scores = gd_layout_shape(q);
        scores.dim[rank - 1] = j.tk;
        j.mask = in[extras++];
        (void)gd_layout_broadcast(j.mask.layout, scores, &j.mask_layout); /* infer has checked */
    }
    j.entries = j.tq > 0 ? gd_layout_count(q) / (j.tq * j.d) : 0;
    int64_t tiles = (j.tq + QUERIES - 1) / QUERIES;
    j.rows = tiles > 0 ? (j.tq + tiles - 1) / tiles : 0;
    j.block = j.rows * TILES;
    j.blocks = (tiles + TILES - 1) / TILES;
    if (j.entries * j.blocks < 4 * call->device->threads) {
        j.block = j.rows;
        j.blocks = tiles;
    }
    return j;
}

/* The words of dropout, whose state follows the mask among operands `extras` and on. */
static void start_dropout(job *j, int extras)
{
    const gd_operand *operand = &j->call->in[extras + j->attr->has_mask];
    if (j->attr->dropout > 0) {
        const int64_t *state = operand->data;
        j->seed = (uint64_t)state[0];
        j->word = (uint64_t)state[operand->layout->stride[0]] + j->attr->offset;
    }
}

/* Queries [row, row + rows) of `entry` against keys [key, key + keys). */
static gd_attention_tile tile_of(const job *j, int64_t entry, int64_t row, int64_t rows,
                                 int64_t key, int64_t keys)
{
    gd_attention_tile t = {
        .rows = rows, .keys = keys, .seen = keys, .scale = (float)j->attr->scale
    };
    if (j->attr->causal) {
        t.seen = row + j->tk - j->tq - key + 1;
        t.seen_step = 1;
    }
    if (j->attr->has_mask) {
        int rank = j->mask_layout.rank;
        t.mask_row = j->mask_layout.stride[rank - 2];
        t.mask_key = j->mask_layout.stride[rank - 1];
        t.mask_is_bool = j->mask_layout.dtype == GD_BOOL;
        t.mask = (const char *)j->mask.data +
                 (offset_of(&j->mask_layout, entry) + row * t.mask_row + key * t.mask_key) *
                     (int64_t)gd_dtype_size(j->mask_layout.dtype);
    }
    if (j->attr->dropout > 0) {
        t.seed = j->seed;
        t.word = j->word + (uint64_t)((entry * j->tq + row) * j->tk + key);
        t.word_row = (uint64_t)j->tk;
        t.drop_below = (uint32_t)ceil(j->attr->dropout * 16777216);
        t.keep = (float)(1 / (1 - j->attr->dropout));
    }
    return t;
}

/* The first query that may look at key `key`. */
static int64_t first_query(const job *j, int64_t key)
{
    int64_t row = key - (j->tk - j->tq);
    return j->attr->causal && row > 0 ? row : 0;
}

/* How many queries, from the first on, see no key. */
static int64_t unseeing(const job *j)
{
    return j->tk > 0 ? first_query(j, 0) : j->tq;
}

/* What a thread's scratch holds: two tiles; of f32, keys and values with their axes exchanged, of
 * bf16 the tiles rounded; halves widened; and what products take. `p` and `ds` are the tiles that are
 * multiplied. */
typedef struct buffers {
    matrix s, dp;  // [QUERIES, KEYS]
    matrix p, ds;  // the same memory, or bf16
    matrix kt, vt; // [d, KEYS], [dv, KEYS]
    float *q, *g;  // [rows of a tile, d], [.., dv]: halves widened; else not there
    float *k, *v;  // [KEYS, d], [KEYS, dv]
    matrix keys;   // backward: a block of k, in place or widened
    gd_workspace products;
} buffers;

/* c [m, n] (+)= a [m, k] @ b [k, n], by one thread. */
static void multiply(const job *j, const buffers *w, int64_t m, int64_t k, int64_t n, matrix a,
                     matrix b, matrix c, bool accumulate)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)j->call->device;
    gd_gemm_args args = { .m = m,
                          .n = n,
                          .k = k,
                          .a = a.data,
                          .a_row_stride = a.row,
                          .a_col_stride = a.column,
                          .b = b.data,
                          .b_row_stride = b.row,
                          .b_col_stride = b.column,
                          .c = c.data,
                          .c_row_stride = c.row,
                          .c_col_stride = c.column,
                          .accumulate = accumulate,
                          .threads = 1,
                          .paths = &cpu->paths,
                          .workspace = w->products };
    gd_gemm(j->is_bf16 ? cpu->gemm_bf16 : cpu->gemm_f32, &args);
}

static matrix transposed(matrix a)
{
    return (matrix){ .data = a.data, .row = a.column, .column = a.row, .dtype = a.dtype };
}

static int64_t bytes_of(matrix a)
{
    return (int64_t)gd_dtype_size(a.dtype);
}

static matrix rows_from(matrix a, int64_t row)
{
    a.data = (char *)a.data + row * a.row * bytes_of(a);
    return a;
}

static matrix columns_from(matrix a, int64_t column)
{
    a.data = (char *)a.data + column * a.column * bytes_of(a);
    return a;
}

/* Rows [row, row + rows) of a tile, which see its first `keys` keys at most; rows above see the
 * first `above` of them at most. */
typedef struct strip {
    int64_t row, rows, above, keys;
    int64_t height; /* rows that a strip has, but for the last */
} strip;

/* Before the first strip. Products of bf16 pack their operands, which many rows must pay for. */
static strip strips_of(const job *j)
{
    return (strip){ .height = j->is_bf16 ? GD_ATTENTION_STRIP : 1 };
}

/* The keys row `row` sees, and a few more. */
static int64_t keys_of(const gd_attention_tile *t, int64_t row)
{
    const int64_t seen = t->seen + row * t->seen_step, fine = GD_ATTENTION_LANES;
    return least(t->keys, (seen + fine - 1) / fine * fine);
}

/* The next strip: of a tile on the diagonal a few rows, elsewhere all. What products leave out of
 * sums is 0, so no bit of f32 changes. */
static bool next_strip(const gd_attention_tile *t, strip *s)
{
    const int64_t row = s->row + s->rows;
    if (row >= t->rows)
        return false;
    s->row = row;
    s->above = s->keys;
    s->keys = keys_of(t, least(row + s->height, t->rows) - 1);
    s->rows = (s->keys < t->keys ? least(t->rows, s->keys - t->seen + 1) : t->rows) - row;
    return true;
}

/* s [rows, keys] = a [rows, d] @ b [d, keys], where scores count. */
static void multiply_scores(const job *j, const buffers *w, const gd_attention_tile *t, int64_t d,
                            matrix a, matrix b, matrix s)
{
    for (strip p = strips_of(j); next_strip(t, &p);)
        multiply(j, w, p.rows, d, p.keys, rows_from(a, p.row), b, rows_from(s, p.row), false);
}

/* c [rows, n] (+)= s [rows, keys] @ b [keys, n] */
static void multiply_rows(const job *j, const buffers *w, const gd_attention_tile *t, int64_t n,
                          matrix s, matrix b, matrix c, bool accumulate)
{
    for (strip p = strips_of(j); next_strip(t, &p);)
        multiply(j, w, p.rows, p.keys, n, rows_from(s, p.row), b, rows_from(c, p.row), accumulate);
}

/* c [keys, n] (+)= s [rows, keys]^T @ a [rows, n] */
static void multiply_keys(const job *j, const buffers *w, const gd_attention_tile *t, int64_t n,
                          matrix s, matrix a, matrix c, bool accumulate)
{
    for (strip p = strips_of(j); next_strip(t, &p);)
        multiply(j, w, p.keys - p.above, t->rows - p.row, n,
                 transposed(columns_from(rows_from(s, p.row), p.above)), rows_from(a, p.row),
                 rows_from(c, p.above), accumulate);
}

/* Zeros in rows [from, to) of m, n wide. */
static void clear(matrix m, int64_t from, int64_t to, int64_t n)
{
    for (int64_t i = from; i < to; i++)
        memset((float *)m.data + i * m.row, 0, (size_t)n * sizeof(float));
}

static matrix in_scratch(void *data, gd_dtype dtype)
{
    return (matrix){ .data = data, .row = ROW, .column = 1, .dtype = dtype };
}

/* Rows of f32, `row` apart. */
static matrix f32_rows(float *data, int64_t row)
{
    return (matrix){ .data = data, .row = row, .column = 1, .dtype = GD_F32 };
}

/* Whether the transposes of keys and values are made. */
static bool transposes(const job *j)
{
    return j->d + j->dv <= GD_ATTENTION_WIDTH && !j->is_bf16;
}

/* Bytes of rows that `widen` makes. */
static size_t wide_bytes(int64_t rows, int64_t width)
{
    return (size_t)(rows * width + GD_ATTENTION_SLACK) * sizeof(float);
}

static buffers buffers_of(const job *j, int thread)
{
    _Static_assert(
        (2 * QUERIES + GD_ATTENTION_WIDTH) * ROW * sizeof(float) +
                (QUERIES + KEYS) * GD_ATTENTION_WIDTH * sizeof(float) +
                4 * GD_ATTENTION_SLACK * sizeof(float) <=
            GD_CPU_WIDE_SCRATCH,
        "two tiles, transposed keys and values and what is widened must fit the scratch");
    gd_scratch s = gd_scratch_of(j->call, thread);
    const size_t row = ROW * sizeof(float);
    const bool copies = transposes(j);
    buffers w = { .s = in_scratch(gd_scratch_take(&s, QUERIES * row), GD_F32) };
    w.dp = in_scratch(gd_scratch_take(&s, QUERIES * row), GD_F32);
    if (j->is_bf16) {
        w.p = in_scratch(gd_scratch_take(&s, QUERIES * row / 2), GD_BF16);
        w.ds = in_scratch(gd_scratch_take(&s, QUERIES * row / 2), GD_BF16);
    } else {
        w.p = w.s;
        w.ds = w.dp;
        w.kt = in_scratch(gd_scratch_take(&s, copies ? (size_t)j->d * row : 0), GD_F32);
        w.vt = in_scratch(gd_scratch_take(&s, copies ? (size_t)j->dv * row : 0), GD_F32);
    }
    if (j->widens_q) {
        w.q = gd_scratch_take(&s, wide_bytes(j->rows, j->d));
        w.g = gd_scratch_take(&s, wide_bytes(j->rows, j->dv));
    }
    if (j->widens_k) {
        w.k = gd_scratch_take(&s, wide_bytes(KEYS, j->d));
        w.v = gd_scratch_take(&s, wide_bytes(KEYS, j->dv));
    }
    w.products = gd_scratch_rest(&s);
    return w;
}

/* The same in bytes. Products are of a tile's rows, keys, and the widths of k and v. */
static size_t bytes_of_thread(const job *j)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)j->call->device;
    const size_t row = ROW * sizeof(float), tiles = (size_t)(j->is_bf16 ? 3 : 2) * QUERIES * row;
    const int64_t wide = j->d > j->dv ? j->d : j->dv, most = wide > KEYS ? wide : KEYS;
    size_t copies = transposes(j) ? (size_t)(j->d + j->dv) * row : 0;
    if (j->widens_q)
        copies += wide_bytes(j->rows, j->d) + wide_bytes(j->rows, j->dv);
    if (j->widens_k)
        copies += wide_bytes(KEYS, j->d) + wide_bytes(KEYS, j->dv);
    return gd_scratch_bytes(tiles + copies, BLOCKS) +
           gd_gemm_most_bytes(j->is_bf16 ? cpu->gemm_bf16 : cpu->gemm_f32, &cpu->paths, most, most);
}

/* Rows of x, `width` wide, as products take them: in place, or widened, in `to`. */
static matrix rows_of(const job *j, matrix x, int64_t rows, int64_t width, float *to)
{
    if (x.dtype == GD_F32 || j->is_bf16)
        return x;
    const gd_attention_rows from = { x.data, x.row, x.column, rows, width, x.scale, x.scale_row };
    j->loops->widen[x.dtype](&from, to);
    return f32_rows(to, width);
}

/* Rows [key, key + keys) of k or v, `width` wide, of entry `of_keys`. */
static matrix keys_at(const job *j, const gd_operand *x, const gd_operand *scale, int64_t of_keys,
                      int64_t key, int64_t keys, int64_t width, float *to)
{
    matrix all = matrix_of(x, of_keys);
    if (scale->data) {
        const matrix by = matrix_of(scale, of_keys);
        all.scale = (const float *)by.data + key * by.row;
        all.scale_row = by.row;
    }
    return rows_of(j, rows_from(all, key), keys, width, to);
}

static matrix k_at(const job *j, const buffers *w, int64_t of_keys, int64_t key, int64_t keys)
{
    return keys_at(j, &j->k, &j->k_scale, of_keys, key, keys, j->d, w->k);
}

static matrix v_at(const job *j, const buffers *w, int64_t of_keys, int64_t key, int64_t keys)
{
    return keys_at(j, &j->v, &j->v_scale, of_keys, key, keys, j->dv, w->v);
}

/* The transpose of keys or values x [keys, d], as the right operand of products with many rows: in
 * memory, or those would each make one. Products of bf16 pack it whatever its strides are. */
static matrix transpose_keys(const job *j, int64_t keys, int64_t d, matrix x, matrix to)
{
    if (!transposes(j) || j->rows <= FEW)
        return transposed(x);
    j->loops->transpose(x.data, x.row, x.column, keys, d, to.data);
    return to;
}

/* ---- forward ---- */

/* Keys or values [key, key + KEYS) of `entry` on their way into the second-level cache. A few
 * queries take no longer over keys than memory does, and would wait for those of every head. */
static void fetch(const gd_operand *x, int64_t entry, int64_t key)
{
    const gd_layout *layout = x->layout;
    const matrix m = matrix_of(x, entry);
    const int64_t size = bytes_of(m), line = 64 / size, width = layout->shape[layout->rank - 1];
    const int64_t end = least(key + KEYS, layout->shape[layout->rank - 2]);
    for (; m.column == 1 && key < end; key++)
        for (int64_t i = 0; i < width; i += line)
            __builtin_prefetch((const char *)m.data + (key * m.row + i) * size, 0, 2);
}

/* One block of queries against all keys. */
static void block_forward(const job *j, int64_t entry, int64_t row, int64_t rows, int thread)
{
    float max[TILES * QUERIES], sum[TILES * QUERIES];
    int64_t at = entry * j->tq + row, of_keys = entry_of_keys(j, entry);
    matrix o = f32_rows((float *)j->call->out.data +
                            row_of(entry, j->heads, j->tq, row, j->dv, j->heads * j->dv),
                        j->heads * j->dv);
    float *logarithm =
        j->is_narrow ? NULL : (float *)j->call->out.data + j->entries * j->tq * j->dv + at;
    for (int64_t i = 0; i < rows; i++) {
        max[i] = -INFINITY;
        sum[i] = 0;
    }
    clear(o, 0, least(unseeing(j) - row, rows), j->dv);
    matrix q = rows_from(matrix_of(&j->q, entry), row);
    buffers w = buffers_of(j, thread);
    for (int64_t key = 0; key < j->tk && first_query(j, key) < row + rows; key += KEYS) {
        int64_t keys = least(KEYS, j->tk - key), first = first_query(j, key) - row;
        if (rows <= FEW)
            fetch(&j->v, of_keys, key);
        matrix k = k_at(j, &w, of_keys, key, keys), v = v_at(j, &w, of_keys, key, keys);
        matrix kt = transpose_keys(j, keys, j->d, k, w.kt);
        for (int64_t tile = 0; tile < rows; tile += j->rows) {
            int64_t from = tile < first ? first : tile, count = least(tile + j->rows, rows) - from;
            if (count <= 0)
                continue;
            matrix result = rows_from(o, from);
            matrix queries = rows_of(j, rows_from(q, from), count, j->d, w.q);
            gd_attention_tile t = tile_of(j, entry, row + from, count, key, keys);
            t.s = w.s.data;
            t.s_bf16 = j->is_bf16 ? w.p.data : NULL;
            t.max = max + from;
            t.sum = sum + from;
            t.o = result.data;
            t.o_row = result.row;
            t.width = key > 0 ? j->dv : 0; /* nothing there yet */
            multiply_scores(j, &w, &t, j->d, queries, kt, w.s);
            if (rows <= FEW && key + keys < j->tk)
                fetch(&j->k, of_keys, key + keys);
            else if (rows <= FEW && entry + 1 < j->entries)
                fetch(&j->k, entry_of_keys(j, entry + 1), 0);
            j->loops->weights(&t);
            multiply_rows(j, &w, &t, j->dv, w.p, v, result, key > 0);
        }
    }
    gd_attention_tile t = { .rows = rows, .max = max, .sum = sum, .o = o.data };
    t.o_row = o.row;
    t.width = j->dv;
    j->loops->finish(&t, logarithm);
}

static void range_forward(void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = item % j->blocks * j->block;
        if (row < j->tq)
            block_forward(j, item / j->blocks, row, least(j->block, j->tq - row), thread);
    }
}

/* ---- backward ---- */

/* Where the gradients go, and what the forward pass left. */
typedef struct gradient {
    float *q, *k, *v; // [batch, tq, heads, d], [batch, tk, groups, d], [.., tk, groups, dv]
    int64_t q_row, k_row, v_row;
    const float *o;         // [batch, tq, heads, dv]
    const float *logarithm; // [batch, heads, tq]
} gradient;

static gd_attention_offsets places_of(const job *j)
{
    return gd_attention_grad_offsets(
        j->attr, (const gd_layout *[]){ j->q.layout, j->k.layout, j->v.layout });
}

static gradient gradient_of(const job *j)
{
    const gd_attention_offsets p = places_of(j);
    float *out = j->call->out.data;
    const float *packed = j->packed;
    return (gradient){ .q = out + p.at[0],
                       .k = out + p.at[1],
                       .v = out + p.at[2],
                       .q_row = p.row[0],
                       .k_row = p.row[1],
                       .v_row = p.row[2],
                       .o = packed,
                       .logarithm = packed + j->entries * j->tq * j->dv };
}

/* One tile: queries [row, row + rows) of `entry` and keys [key, key + keys), whose transposes are
 * in w. `first`: no other tile has added to the gradients of these keys. */
static void tile_backward(const job *j, const buffers *w, int64_t entry, int64_t row, int64_t rows,
                          int64_t key, int64_t keys, bool first)
{
    gradient to = gradient_of(j);
    int64_t of_keys = entry_of_keys(j, entry), at = entry * j->tq + row;
    matrix q = rows_of(j, rows_from(matrix_of(&j->q, entry), row), rows, j->d, w->q);
    matrix g = rows_of(j, rows_from(matrix_of(&j->g, entry), row), rows, j->dv, w->g);
    matrix k = w->keys;
    matrix dq = f32_rows(to.q + row_of(entry, j->heads, j->tq, row, j->d, to.q_row), to.q_row);
    matrix dk = f32_rows(to.k + row_of(of_keys, j->groups, j->tk, key, j->d, to.k_row), to.k_row);
    matrix dv = f32_rows(to.v + row_of(of_keys, j->groups, j->tk, key, j->dv, to.v_row), to.v_row);

    gd_attention_tile t = tile_of(j, entry, row, rows, key, keys);
    multiply_scores(j, w, &t, j->d, q, w->kt, w->s);
    multiply_scores(j, w, &t, j->dv, g, w->vt, w->dp);
    t.s = w->s.data;
    t.dp = w->dp.data;
    t.s_bf16 = j->is_bf16 ? w->p.data : NULL;
    t.dp_bf16 = j->is_bf16 ? w->ds.data : NULL;
    t.logarithm = to.logarithm + at;
    t.result_row = j->heads * j->dv;
    t.result = to.o + row_of(entry, j->heads, j->tq, row, j->dv, t.result_row);
    t.width = j->dv;
    t.g = g.data;
    t.g_row = g.row;
    t.g_column = g.column;
    j->loops->gradients(&t);
    multiply_keys(j, w, &t, j->dv, w->p, g, dv, !first);
    multiply_keys(j, w, &t, j->d, w->ds, q, dk, !first);
    multiply_rows(j, w, &t, j->d, w->ds, k, dq, key > 0);
    if (first) { /* keys that later queries see first */
        clear(dk, keys_of(&t, rows - 1), keys, j->d);
        clear(dv, keys_of(&t, rows - 1), keys, j->dv);
    }
}

/* A block of keys from `key` on, and all queries of the heads from `head` on that look at them. */
static void keys_backward(const job *j, int64_t of_keys, int64_t key, int64_t head, int64_t share,
                          int thread)
{
    int64_t keys = least(KEYS, j->tk - key), first = first_query(j, key);
    buffers w = buffers_of(j, thread);
    w.keys = k_at(j, &w, of_keys, key, keys);
    w.kt = transpose_keys(j, keys, j->d, w.keys, w.kt);
    w.vt = transpose_keys(j, keys, j->dv, v_at(j, &w, of_keys, key, keys), w.vt);
    for (int64_t entry = head; entry < head + share; entry++)
        for (int64_t row = first / j->rows * j->rows; row < j->tq; row += j->rows) {
            int64_t from = row < first ? first : row, rows = least(row + j->rows, j->tq) - from;
            tile_backward(j, &w, entry, from, rows, key, keys, entry == head && from == first);
        }
}

/* Heads of k and v [begin, end), with every head of q that looks at them. */
static void range_backward(void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    gradient to = gradient_of(j);
    int64_t share = j->heads / j->groups;
    for (int64_t of_keys = begin; of_keys < end; of_keys++) {
        int64_t head = of_keys / j->groups * j->heads + of_keys % j->groups * share;
        matrix dq = f32_rows(to.q + row_of(head, j->heads, j->tq, 0, j->d, to.q_row), to.q_row);
        clear(dq, 0, unseeing(j), share * j->d);
        for (int64_t key = 0; key < j->tk; key += KEYS)
            keys_backward(j, of_keys, key, head, share, thread);
    }
}

/* ---- f64: row by row, scores computed anew wherever they are needed ---- */

/* The score of query i and key n; -inf where excluded. */
static double score_f64(const job *j, int64_t entry, int64_t i, int64_t n)
{
    if (j->attr->causal && n > i + j->tk - j->tq)
        return -INFINITY;
    matrix q = matrix_of(&j->q, entry), k = matrix_of(&j->k, entry_of_keys(j, entry));
    const double *a = (const double *)q.data + i * q.row;
    const double *b = (const double *)k.data + n * k.row;
    double sum = 0;
    for (int64_t c = 0; c < j->d; c++)
        sum += a[c * q.column] * b[c * k.column];
    sum *= j->attr->scale;
    if (!j->attr->has_mask)
        return sum;
    gd_operand mask = { j->mask.data, &j->mask_layout };
    matrix m = matrix_of(&mask, entry);
    int64_t at = i * m.row + n * m.column;
    if (j->mask_layout.dtype == GD_BOOL)
        return ((const uint8_t *)m.data)[at] ? sum : -INFINITY;
    double x = ((const double *)m.data)[at];
    return x == -INFINITY ? x : sum + x;
}

static double factor_f64(const job *j, int64_t entry, int64_t i, int64_t n)
{
    uint32_t word;
    if (j->attr->dropout == 0)
        return 1;
    gd_philox_words(j->seed, j->word + (uint64_t)((entry * j->tq + i) * j->tk + n), 1, &word);
    return (word & 0xffffff) >= ceil(j->attr->dropout * 16777216) ? 1 / (1 - j->attr->dropout) : 0;
}

/* max passes over NaN, which comes back through exp. */
static void range_forward_f64(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const job *j = context;
    for (int64_t r = begin; r < end; r++) { /* rows of q */
        int64_t entry = r / j->tq, i = r % j->tq;
        matrix v = matrix_of(&j->v, entry_of_keys(j, entry));
        double *o = (double *)j->call->out.data +
                    row_of(entry, j->heads, j->tq, i, j->dv, j->heads * j->dv);
        double max = -INFINITY, sum = 0;
        memset(o, 0, (size_t)j->dv * sizeof *o);
        for (int64_t n = 0; n < j->tk; n++) {
            const double score = score_f64(j, entry, i, n);
            max = score > max ? score : max;
        }
        double base = max == -INFINITY ? 0 : max;
        for (int64_t n = 0; n < j->tk; n++) {
            double p = j->loops->exp(score_f64(j, entry, i, n) - base),
                   f = factor_f64(j, entry, i, n);
            const double *from = (const double *)v.data + n * v.row;
            sum += p;
            for (int64_t c = 0; c < j->dv; c++)
                o[c] += p * f * from[c * v.column];
        }
        for (int64_t c = 0; c < j->dv && sum != 0; c++)
            o[c] /= sum;
        ((double *)j->call->out.data)[j->entries * j->tq * j->dv + r] =
            sum != 0 ? base + j->loops->log(sum) : INFINITY;
    }
}

/* Row i of entry: into the gradients of q, and of k and v from entry of_keys on, whose rows are
 * k_row and v_row apart. */
static void row_backward_f64(const job *j, int64_t entry, int64_t i, double *dq, double *dk,
                             int64_t k_row, double *dv, int64_t v_row)
{
    int64_t of_keys = entry_of_keys(j, entry), r = entry * j->tq + i;
    matrix q = matrix_of(&j->q, entry), k = matrix_of(&j->k, of_keys);
    matrix v = matrix_of(&j->v, of_keys), g = matrix_of(&j->g, entry);
    const double *o =
        (const double *)j->packed + row_of(entry, j->heads, j->tq, i, j->dv, j->heads * j->dv);
    const double *a = (const double *)q.data + i * q.row, *u = (const double *)g.data + i * g.row;
    double l = ((const double *)j->packed)[j->entries * j->tq * j->dv + r], along = 0;
    for (int64_t c = 0; c < j->dv; c++)
        along += o[c] * u[c * g.column];
    for (int64_t n = 0; n < j->tk; n++) {
        const double *b = (const double *)k.data + n * k.row;
        const double *w = (const double *)v.data + n * v.row;
        double p = j->loops->exp(score_f64(j, entry, i, n) - l), f = factor_f64(j, entry, i, n),
               dp = 0;
        if (p == 0)
            continue;
        for (int64_t c = 0; c < j->dv; c++) {
            dp += u[c * g.column] * w[c * v.column];
            dv[n * v_row + c] += p * f * u[c * g.column];
        }
        double ds = p * (dp * f - along) * j->attr->scale;
        for (int64_t c = 0; c < j->d; c++) {
            dq[c] += ds * b[c * k.column];
            dk[n * k_row + c] += ds * a[c * q.column];
        }
    }
}

static void range_backward_f64(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const job *j = context;
    const gd_attention_offsets p = places_of(j);
    int64_t share = j->heads / j->groups, q_row = p.row[0], k_row = p.row[1], v_row = p.row[2];
    double *dq = (double *)j->call->out.data + p.at[0], *dk = (double *)j->call->out.data + p.at[1],
           *dv = (double *)j->call->out.data + p.at[2];
    for (int64_t of_keys = begin; of_keys < end; of_keys++) {
        double *k = dk + row_of(of_keys, j->groups, j->tk, 0, j->d, k_row);
        double *v = dv + row_of(of_keys, j->groups, j->tk, 0, j->dv, v_row);
        for (int64_t r = of_keys * share * j->tq; r < (of_keys + 1) * share * j->tq; r++)
            row_backward_f64(j, r / j->tq, r % j->tq,
                             dq + row_of(r / j->tq, j->heads, j->tq, r % j->tq, j->d, q_row), k,
                             k_row, v, v_row);
    }
}

/* ---- the kernels ---- */

/* Items of so many multiply-adds a thread is worth waking for. */
static int64_t grain(const job *j, int64_t queries)
{
    const int64_t worth = 500000, rows = queries < FEW ? FEW : queries;
    return 1 + worth / (rows * j->tk * (j->d + j->dv) + 1);
}

bool gd_attention_takes(const gd_kernel_call *call)
{
    const gd_layout *q = call->in[0].layout, *k = call->in[1].layout, *v = call->in[2].layout;
    const bool widens = gd_dtype_is_half(k->dtype) || k->dtype == GD_I8;
    return !widens || (q->dtype == GD_BF16 && multiplies_bf16(call)) ||
           q->shape[q->rank - 1] + v->shape[v->rank - 1] <= GD_ATTENTION_WIDTH;
}

void gd_attention_explain(const gd_kernel_call *call, gd_text *text)
{
    const bool backward = call->op->id == GD_OP_attention_grad;
    const job j = job_of(call, NULL, backward ? 5 : 3);
    if (j.entries == 0)
        return;
    gd_text_add(text, "%lld heads, %lld queries x %lld keys by ", (long long)j.entries,
                (long long)j.tq, (long long)j.tk);
    if (call->out.layout->dtype == GD_F64) {
        gd_text_add(text, "rows: f64");
        return;
    }
    gd_text_add(text, "tiles of %lld x %d%s%s%s", (long long)j.rows, KEYS,
                j.is_bf16 ? " in bf16" : "", j.attr->causal ? ", on the diagonal by strips" : "",
                j.widens_k ? "; widened by blocks" : "");
    if (j.is_bf16)
        gd_text_add(text, "; products pack keys");
    else if (j.rows <= FEW)
        gd_text_add(text, "; keys in place: few queries, which memory bounds");
    else if (j.d + j.dv > GD_ATTENTION_WIDTH)
        gd_text_add(text, "; keys in place: their transpose does not fit the scratch");
    else
        gd_text_add(text, "; keys transposed once for up to %lld queries", (long long)j.block);
    gd_text_add(text, "; threads take heads%s", backward ? "" : " and blocks of queries");
    gd_cpu_explain_threads(text, gd_attention_scratch(call).threads);
}

gd_status gd_attention_run(const gd_kernel_call *call, const gd_attention_loops *loops)
{
    job j = job_of(call, loops, 3);
    start_dropout(&j, 3);
    int threads = call->device->threads;
    if (call->out.layout->dtype == GD_F64)
        gd_parallel_for(threads, j.entries * j.tq, grain(&j, 1), range_forward_f64, &j);
    else /* a causal mask leaves less of the first blocks than of the last */
        gd_parallel_for(threads, j.entries * j.blocks, grain(&j, j.block), range_forward, &j);
    return GD_OK;
}

/* Heads of keys, with all queries that look at them. */
static int64_t items_backward(const job *j, int64_t *least_items)
{
    *least_items = grain(j, j->tq * j->heads / j->groups);
    return j->entries / j->heads * j->groups;
}

gd_workspace gd_attention_scratch(const gd_kernel_call *call)
{
    const bool backward = call->op->id == GD_OP_attention_grad;
    const job j = job_of(call, NULL, backward ? 5 : 3);
    if (call->out.layout->dtype == GD_F64 || j.entries == 0)
        return (gd_workspace){ 0 };
    int64_t items = j.entries * j.blocks, least_items = grain(&j, j.block);
    if (backward)
        items = items_backward(&j, &least_items);
    return (gd_workspace){ NULL, bytes_of_thread(&j),
                           gd_parallel_ranges(call->device->threads, items, least_items) };
}

gd_status gd_attention_grad_run(const gd_kernel_call *call, const gd_attention_loops *loops)
{
    job j = job_of(call, loops, 5);
    start_dropout(&j, 5);
    j.packed = call->in[3].data;
    j.g = call->in[4];
    bool is_f64 = call->out.layout->dtype == GD_F64;
    size_t size = gd_dtype_size(call->out.layout->dtype);
    if (j.entries == 0 || is_f64) /* keys nobody looks at; sums */
        memset(call->out.data, 0, (size_t)gd_layout_count(call->out.layout) * size);
    if (j.entries == 0)
        return GD_OK;
    int64_t least_items;
    const int64_t items = items_backward(&j, &least_items);
    gd_parallel_for(call->device->threads, items, least_items,
                    is_f64 ? range_backward_f64 : range_backward, &j);
    return GD_OK;
}
