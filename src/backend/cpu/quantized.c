/* backend/cpu/quantized.c: products with weights in blocks: threads, rows and columns.
 *
 * Few rows: columns of the result, rows of the weights, are divided among the threads; each rounds
 * the activations for itself, some rows at a time, as many as its cache keeps.
 *
 * Many rows: tiles (quantized_blocked.h). As many packed rows as half of the second-level cache
 * keeps meet one panel of packed weights after the other. Threads have rows each, where there are
 * enough for all, else columns. */
#include "backend/cpu/cpu.h"
#include "base/threads.h"

#include <string.h>

/* Bytes of rows in blocks: within the second-level cache, and with a row of the longest within
 * GD_CPU_WIDE_SCRATCH. */
#define ROWS_BYTES (128 * 1024)
/* From so many rows a thread on, all threads packing all weights pays. */
#define ROWS_OF_THREAD 64
#define BLOCKS         3 /* of scratch */

typedef struct job {
    const gd_kernel_call *call;
    const gd_quantized_kernels *kernels;
    const gd_quantized_tiles *tiles; /* for these weights */
    gd_quantized_weights weights;
    int64_t rows, columns, blocks;
    int64_t row_tiles, panels; /* of many rows: whole tiles, each begun one counted */
    bool divides_rows;
} job;

/* ---- few rows ---- */

/* Bytes of a block of a row. */
static int64_t block_bytes(const job *j)
{
    return (int64_t)(GD_QUANTIZED_BLOCK + sizeof(float)) +
           gd_quantized_sums_of(&j->weights.form) * (int64_t)sizeof(int32_t);
}

/* Rows rounded at a time. */
static int64_t step_of(const job *j)
{
    const int64_t step = ROWS_BYTES / (j->blocks * block_bytes(j));
    return step < 1 ? 1 : step < j->rows ? step : j->rows;
}

static void run_columns(void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t inner = j->blocks * GD_QUANTIZED_BLOCK, step = step_of(j);
    gd_scratch scratch = gd_scratch_of(j->call, thread);
    gd_quantized_rows part = { .blocks = j->blocks };
    part.values = gd_scratch_take(&scratch, (size_t)(step * inner));
    part.scales = gd_scratch_take(&scratch, (size_t)(step * j->blocks) * sizeof(float));
    part.sums_of_block = gd_quantized_sums_of(&j->weights.form);
    part.sums = gd_scratch_take(&scratch,
                                (size_t)(step * j->blocks * part.sums_of_block) * sizeof(int32_t));
    const float *x = j->call->in[0].data;
    float *out = j->call->out.data;
    for (int64_t row = 0; row < j->rows; row += step) {
        part.rows = j->rows - row < step ? j->rows - row : step;
        j->kernels->quantize(x + row * inner, &part);
        j->kernels->columns(&part, &j->weights, begin, end, out + row * j->columns, j->columns);
    }
}

/* ---- many rows ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Tiles first … first + count - 1 of rows, packed in `x`, times panels begin … end - 1. */
static void run_panels(const job *j, const char *x, int64_t first, int64_t count, int64_t begin,
                       int64_t end, void *panel)
{
    const gd_quantized_tiles *t = j->tiles;
    const size_t tile_bytes = (size_t)j->blocks * t->row_bytes;
    for (int64_t p = begin; p < end; p++) {
        const int64_t column = p * t->columns, columns = least(j->columns - column, t->columns);
        t->pack_columns(&j->weights, column, columns, j->blocks, panel);
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = (first + i) * t->rows;
            t->multiply(x + (size_t)i * tile_bytes, panel, j->blocks, least(j->rows - row, t->rows),
                        columns, (float *)j->call->out.data + row * j->columns + column,
                        j->columns);
        }
    }
}

/* Packed tiles of rows that the cache and `left` bytes keep: at least one, at most `most`. */
static int64_t tiles_at_once(const job *j, size_t left, int64_t most)
{
    const size_t cache = ((const gd_cpu_device *)j->call->device)->paths.block_bytes;
    const size_t tile_bytes = (size_t)j->blocks * j->tiles->row_bytes;
    const int64_t fit = (int64_t)((cache < left ? cache : left) / tile_bytes);
    return least(fit > 1 ? fit : 1, most);
}

/* Of tiles of rows and panels of columns, the range of one is the thread's. */
static void run_tiles(void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const gd_quantized_tiles *t = j->tiles;
    const int64_t first = j->divides_rows ? begin : 0, last = j->divides_rows ? end : j->row_tiles;
    const int64_t from = j->divides_rows ? 0 : begin, to = j->divides_rows ? j->panels : end;
    const size_t tile_bytes = (size_t)j->blocks * t->row_bytes;
    gd_scratch scratch = gd_scratch_of(j->call, thread);
    void *panel = gd_scratch_take(&scratch, (size_t)j->blocks * t->column_bytes);
    const int64_t step = tiles_at_once(j, gd_scratch_left(&scratch), last - first);
    char *x = gd_scratch_take(&scratch, (size_t)step * tile_bytes);
    const int64_t inner = j->blocks * GD_QUANTIZED_BLOCK;
    for (int64_t tile = first; tile < last; tile += step) {
        const int64_t count = least(last - tile, step);
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = (tile + i) * t->rows;
            t->pack_rows((const float *)j->call->in[0].data + row * inner,
                         least(j->rows - row, t->rows), j->blocks, x + (size_t)i * tile_bytes);
        }
        run_panels(j, x, tile, count, from, to, panel);
    }
}

/* Whether a panel and a tile of rows fit the scratch: not those of the longest rows. */
static bool fits(const job *j)
{
    const gd_quantized_tiles *t = j->tiles;
    const size_t blocks = (size_t)j->blocks;
    const size_t gaps = 2 * (GD_SCRATCH_ALIGN + GD_SCRATCH_GAP);
    return blocks * (t->row_bytes + t->column_bytes) + gaps <=
           ((const gd_cpu_device *)j->call->device)->workspace.bytes;
}

/* How the result, which has elements, is divided among threads: units of work, of which a thread
 * takes `grain` at least. */
typedef struct division {
    int64_t units, grain;
    bool has_many_rows;
} division;

static division divide(job *j)
{
    const gd_quantized_tiles *t = j->tiles;
    const int64_t inner = j->blocks * GD_QUANTIZED_BLOCK;
    if (j->rows < t->many_rows || !fits(j)) /* 64 K products take some 5 us */
        return (division){ j->columns, 1 + 64 * 1024 / (inner * j->rows), false };
    j->row_tiles = (j->rows + t->rows - 1) / t->rows;
    j->panels = (j->columns + t->columns - 1) / t->columns;
    j->divides_rows = j->rows >= (int64_t)ROWS_OF_THREAD * j->call->device->threads;
    const int64_t products =
        inner * (j->divides_rows ? t->rows * j->columns : t->columns * j->rows);
    return (division){ j->divides_rows ? j->row_tiles : j->panels, 1 + 512 * 1024 / products,
                       true };
}

static const gd_quantized_tiles *tiles_of(const gd_quantized_kernels *kernels,
                                          const gd_quantized_form *form)
{
    if (form->groups == GD_QUANTIZED_GROUPS)
        return kernels->grouped + form->has_least;
    return kernels->tiles + (form->groups ? 2 : form->has_least);
}

static job job_of(const gd_kernel_call *call)
{
    const gd_layout *w = call->in[1].layout;
    const int64_t count = gd_layout_count(call->out.layout);
    job j = { .call = call,
              .kernels = &((const gd_cpu_device *)call->device)->quantized,
              .weights = { .values = call->in[1].data,
                           .scales = call->in[2].data,
                           .half_scales = call->in[2].layout->dtype == GD_F16 },
              .columns = w->shape[0],
              .rows = count ? count / w->shape[0] : 0 };
    const int64_t scales = call->in[2].layout->shape[1];
    (void)gd_quantized_form_of(w->dtype == GD_U8, w->shape[1], scales, &j.weights.form);
    j.tiles = tiles_of(j.kernels, &j.weights.form);
    j.blocks = gd_quantized_inner(&j.weights.form, scales) / GD_QUANTIZED_BLOCK;
    return j;
}

gd_workspace gd_cpu_quantized_scratch(const gd_kernel_call *call)
{
    job j = job_of(call);
    if (j.rows == 0 || j.blocks == 0)
        return (gd_workspace){ 0 };
    const division d = divide(&j);
    const int threads = gd_parallel_ranges(call->device->threads, d.units, d.grain);
    size_t bytes;
    if (d.has_many_rows) {
        const gd_quantized_tiles *t = j.tiles;
        const int64_t most = j.divides_rows ? (j.row_tiles + threads - 1) / threads : j.row_tiles;
        const size_t tile_bytes = (size_t)j.blocks * t->row_bytes;
        bytes = (size_t)j.blocks * t->column_bytes +
                (size_t)tiles_at_once(&j, SIZE_MAX, most) * tile_bytes;
    } else {
        bytes = (size_t)(step_of(&j) * j.blocks * block_bytes(&j));
    }
    return (gd_workspace){ NULL, gd_scratch_bytes(bytes, BLOCKS), threads };
}

void gd_cpu_quantized_explain(const gd_kernel_call *call, gd_text *text)
{
    job j = job_of(call);
    if (j.rows == 0 || j.blocks == 0)
        return;
    const division d = divide(&j);
    const gd_quantized_tiles *t = j.tiles;
    const gd_quantized_form *form = &j.weights.form;
    gd_text_add(text, "%lld x %lld x %lld in blocks of %d, %d bits%s, by ", (long long)j.rows,
                (long long)j.blocks * GD_QUANTIZED_BLOCK, (long long)j.columns,
                form->groups ? GD_QUANTIZED_LARGE / form->groups : GD_QUANTIZED_BLOCK,
                form->four_bits ? 4 : 8, form->has_least ? " with least values" : "");
    if (d.has_many_rows)
        gd_text_add(text, "%d x %d tiles: %d rows or more share packed weights; threads divide %s",
                    (int)t->rows, (int)t->columns, (int)t->many_rows,
                    j.divides_rows ? "rows" : "columns");
    else
        gd_text_add(text, "rows: %s; weights are read once for %lld rows",
                    j.rows < t->many_rows ? "few of them" : "a tile of them does not fit the cache",
                    (long long)step_of(&j));
    gd_cpu_explain_threads(text, gd_parallel_ranges(call->device->threads, d.units, d.grain));
}

static gd_status quantized_linear(const gd_kernel_call *call)
{
    job j = job_of(call);
    if (j.rows == 0)
        return GD_OK;
    if (j.blocks == 0) {
        memset(call->out.data, 0, (size_t)(j.rows * j.columns) * sizeof(float));
        return GD_OK;
    }
    const division d = divide(&j);
    gd_parallel_for(call->device->threads, d.units, d.grain,
                    d.has_many_rows ? run_tiles : run_columns, &j);
    return GD_OK;
}

void gd_cpu_register_quantized(gd_kernel_fn *kernel)
{
    kernel[GD_OP_quantized_linear] = quantized_linear;
}
