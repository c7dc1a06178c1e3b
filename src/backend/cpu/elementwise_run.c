/* backend/cpu/elementwise_run.c: running a prepared elementwise call. Start at gd_ew_run, then
 * run_tiles. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/elementwise_program.h"
#include "backend/cpu/reduce.h"
#include "base/threads.h"

/* Work (gd_ew_program.tile_work) that is worth a thread. Reading, writing or computing one element
 * counts 1, some 30 ps; so it is 3 us, twice what starting a thread takes. */
#define GRAIN (96 * 1024)

#define DRAWN_AT_ONCE (2 * GD_EW_CHAIN_BLOCK) /* words */

/* One thread's walk over its tiles: along the last axis, then on to the next row of tiles. */
typedef struct walk {
    const gd_ew_program *program;
    const gd_kernel_call *call;
    char *slot[GD_EW_MAX_SLOTS];
    char *place[GD_EW_MAX_SLOTS];          /* where the current piece begins in each */
    const char *from[GD_FUSED_MAX_INPUTS]; /* where this tile begins in each source … */
    int64_t step[GD_FUSED_MAX_INPUTS];     /* … and bytes to the next one along the last axis */
    char *out[GD_EW_MAX_RESULTS];
    int64_t out_step[GD_EW_MAX_RESULTS];
    /* what the register of a source was loaded from */
    const char *loaded_from[GD_FUSED_MAX_INPUTS];
    int64_t loaded_count[GD_FUSED_MAX_INPUTS], loaded_cols[GD_FUSED_MAX_INPUTS];
    int64_t start[GD_MAX_RANK], extent[GD_MAX_RANK];
    int64_t rows; /* extents of all axes but the last, multiplied */
    bool streams; /* results go past the caches */
} walk;

static void begin_walk(walk *w, const gd_ew_program *p, const gd_kernel_call *call, int64_t tile,
                       gd_scratch scratch)
{
    w->program = p;
    w->call = call;
    w->from[0] = NULL;
    for (int r = 0; r < p->n_registers; r++)
        w->slot[p->n_sources + p->n_results + r] =
            gd_scratch_take(&scratch, (size_t)p->register_bytes[p->extent[r]]);
    int last = p->rank - 1;
    for (int s = 0; s < p->n_sources; s++) {
        const gd_ew_source *source = &p->source[s];
        w->step[s] = source->stride[last] * p->box[last] * ((int64_t)1 << source->size_log2);
        w->loaded_from[s] = NULL;
        if (!source->is_direct)
            w->slot[s] = w->slot[source->slot];
    }
    for (int r = 0; r < p->n_results; r++)
        w->out_step[r] = p->box[last] << p->result[r].size_log2;
    for (int axis = last; axis >= 0; axis--) {
        w->start[axis] = 0;
        if (tile == 0)
            continue;
        int64_t blocks = (p->shape[axis] + p->box[axis] - 1) / p->box[axis];
        w->start[axis] = tile % blocks * p->box[axis];
        tile /= blocks;
    }
}

static int64_t offset_of(const walk *w, const int64_t *stride)
{
    int64_t offset = 0;
    for (int axis = 0; axis < w->program->rank; axis++)
        offset += w->start[axis] * stride[axis];
    return offset;
}

static char *address(void *data, int64_t offset, int size_log2)
{
    return (char *)data + offset * ((int64_t)1 << size_log2);
}

static void begin_row(walk *w)
{
    const gd_ew_program *p = w->program;
    w->rows = 1;
    for (int axis = 0; axis < p->rank - 1; axis++) {
        int64_t rest = p->shape[axis] - w->start[axis];
        w->extent[axis] = rest < p->box[axis] ? rest : p->box[axis];
        w->rows *= w->extent[axis];
    }
    for (int s = 0; s < p->n_sources; s++)
        w->from[s] =
            address(w->call->in[s].data, offset_of(w, p->source[s].stride), p->source[s].size_log2);
    int64_t offset = offset_of(w, p->out_stride);
    for (int r = 0; r < p->n_results; r++)
        w->out[r] =
            address((r ? &w->call->extra[r - 1] : &w->call->out)->data,
                    p->result[r].is_row ? offset / p->row_length : offset, p->result[r].size_log2);
}

/* Columns of the current tile; 0 when the row is done. */
static int64_t begin_tile(walk *w)
{
    const gd_ew_program *p = w->program;
    int last = p->rank - 1;
    int64_t rest = p->shape[last] - w->start[last];
    w->extent[last] = rest < p->box[last] ? rest : p->box[last];
    return w->extent[last];
}

static void next_tile(walk *w)
{
    const gd_ew_program *p = w->program;
    for (int s = 0; s < p->n_sources; s++)
        w->from[s] += w->step[s];
    for (int r = 0; r < p->n_results; r++)
        w->out[r] += w->out_step[r];
    w->start[p->rank - 1] += p->box[p->rank - 1];
}

static void next_row(walk *w)
{
    const gd_ew_program *p = w->program;
    w->start[p->rank - 1] = 0;
    for (int axis = p->rank - 2; axis >= 0; axis--) {
        w->start[axis] += p->box[axis];
        if (w->start[axis] < p->shape[axis])
            return;
        w->start[axis] = 0;
    }
}

/* Copy a box of a source, with the tile's extents, to dense memory; of numbers of rows, once each;
 * of one number, as often as a piece has room for. */
static void load_box(const walk *w, const gd_ew_source *source, const char *from, char *to)
{
    gd_ew_block_copy copy = w->program->table->copy[source->size_log2];
    int64_t size[GD_MAX_RANK], stride[GD_MAX_RANK]; /* of the box, with axes merged once more */
    int rank = 0;
    int axes = source->extent == GD_EW_ROW ? w->program->row_axis : w->program->rank;
    if (source->extent == GD_EW_PART) {
        copy(from, 0, 0, to, 0, 1, w->program->part);
        return;
    }
    for (int axis = 0; axis < axes; axis++) {
        int64_t extent = w->extent[axis];
        if (extent == 1)
            continue;
        if (rank > 0 && stride[rank - 1] == source->stride[axis] * extent) {
            size[rank - 1] *= extent;
            stride[rank - 1] = source->stride[axis];
        } else {
            size[rank] = extent;
            stride[rank++] = source->stride[axis];
        }
    }
    if (rank < 2) {
        copy(from, 0, rank ? stride[0] : 1, to, 0, 1, rank ? size[0] : 1);
        return;
    }
    int64_t rows = size[rank - 2], cols = size[rank - 1];
    int64_t bytes = (int64_t)1 << source->size_log2;
    int64_t index[GD_MAX_RANK] = { 0 };
    for (;;) {
        copy(from, stride[rank - 2], stride[rank - 1], to, cols, rows, cols);
        to += rows * cols * bytes;
        int axis = rank - 3;
        for (; axis >= 0; axis--) {
            from += stride[axis] * bytes;
            if (++index[axis] < size[axis])
                break;
            from -= size[axis] * stride[axis] * bytes;
            index[axis] = 0;
        }
        if (axis < 0)
            return;
    }
}

/* Prefetches elements [begin, end) of the tile, of the sources that are not copied to a register. */
static void prefetch_sources(const walk *w, int64_t begin, int64_t end)
{
    const gd_ew_program *p = w->program;
    for (int s = 0; s < p->n_sources; s++) {
        const gd_ew_source *source = &p->source[s];
        const char *to = w->from[s] + (end << source->size_log2);
        for (const char *at = w->from[s] + (begin << source->size_log2);
             source->is_direct && source->extent == GD_EW_TILE && at < to; at += GD_EW_LINE)
            __builtin_prefetch(at);
    }
}

/* The words of the tile's elements, by their places in the result, drawn in the register of source s. A
 * tile that is not dense there is a two-axis block. Drawing waits for nothing, so what the steps read
 * next comes from memory meanwhile. */
static void draw_words(const walk *w, int s, int64_t cols)
{
    const gd_ew_program *p = w->program;
    const gd_fused_attr *group = w->call->attr;
    const int64_t *state = w->call->in[s].data; /* [2]: seed, position */
    const uint64_t seed = (uint64_t)state[0];
    uint64_t first = (uint64_t)state[w->call->in[s].layout->stride[0]] + group->first_word[s] +
                     (uint64_t)offset_of(w, p->out_stride);
    uint32_t *to = (uint32_t *)(void *)w->slot[s];
    const int64_t count = w->rows * cols;
    for (int64_t begin = 0, end; p->out_is_direct && begin < count; begin = end) {
        end = count - begin < DRAWN_AT_ONCE ? count : begin + DRAWN_AT_ONCE;
        prefetch_sources(w, begin, end);
        p->table->words(seed, first + (uint64_t)begin, (uint64_t)(end - begin), to + begin);
    }
    if (p->out_is_direct)
        return;
    for (int64_t row = 0; row < w->rows; row++, first += (uint64_t)p->out_stride[p->block_axis])
        p->table->words(seed, first, (uint64_t)cols, to + row * cols);
}

static void place_sources(walk *w, int64_t cols)
{
    const gd_ew_program *p = w->program;
    int64_t count = w->rows * cols;
    for (int s = 0; s < p->n_sources; s++) {
        if (p->source[s].is_drawn) {
            draw_words(w, s, cols);
        } else if (p->source[s].is_direct) {
            w->slot[s] = (char *)(uintptr_t)w->from[s];
        } else if (w->loaded_from[s] != w->from[s] || w->loaded_count[s] != count ||
                   w->loaded_cols[s] != cols) {
            /* At most two extents vary from tile to tile, one of them the last. */
            load_box(w, &p->source[s], w->from[s], w->slot[s]);
            w->loaded_from[s] = w->from[s];
            w->loaded_count[s] = count;
            w->loaded_cols[s] = cols;
        }
    }
}

/* A two-axis block, from where it lies with these strides, to its place in result r. */
static void store_block(const walk *w, const gd_ew_block_copy *copy, int r, const char *from,
                        int64_t row_stride, int64_t col_stride)
{
    const gd_ew_program *p = w->program;
    copy[p->result[r].size_log2](from, row_stride, col_stride, w->out[r],
                                 p->out_stride[p->block_axis], w->extent[p->block_axis],
                                 w->extent[p->rank - 1]);
}

typedef struct ew_job {
    const gd_ew_program *program;
    const gd_kernel_call *call;
    bool streams;
} ew_job;

/* The chain that begins with step i: whole blocks in registers, what is left by loops. */
static void run_chain(const gd_ew_program *p, int i, char *const *slot, int64_t count)
{
    int64_t done = count / GD_EW_CHAIN_BLOCK * GD_EW_CHAIN_BLOCK;
    int64_t bytes = done * (int64_t)sizeof(float);
    p->table->chain(&p->link[p->first_link[i]], slot, 0, bytes, 0);
    for (int k = i; k < i + p->span[i] && done < count; k++) {
        const gd_ew_step *step = &p->step[k];
        char *at[3];
        for (int o = 0; o < 3; o++) {
            int s = step->from[o];
            bool is_number = s < p->n_sources && p->source[s].extent == GD_EW_PART;
            at[o] = slot[s] + (is_number ? 0 : bytes >> (step->chain == GD_EW_CHAIN_WIDEN));
        }
        char *to = slot[step->to] + (bytes >> (step->chain == GD_EW_CHAIN_NARROW));
        step->run.loop(at[0], at[1], at[2], to, count - done);
    }
}

/* The same in a group with reductions, over rows, or a part of one, that are whole blocks. */
static void run_chain_of_rows(const gd_ew_program *p, int i, char *const *slot, int64_t rows,
                              int64_t cols)
{
    const int64_t bytes = cols * (int64_t)sizeof(float);
    for (int64_t row = 0; row < rows; row++)
        p->table->chain(&p->link[p->first_link[i]], slot, row * bytes, (row + 1) * bytes,
                        row * (int64_t)sizeof(float));
}

/* What steps [first, end) have made of the results, past the caches. */
static void stream_results(const walk *w, int first, int end, const int64_t *bytes, int64_t count)
{
    const gd_ew_program *p = w->program;
    for (int i = first; i < end; i++) {
        int slot = p->step[i].to, r = slot - p->n_sources;
        if (r >= 0 && r < p->n_results && p->skip[slot] < GD_EW_SKIP_ROWS)
            p->table->stream(w->out[r] + bytes[p->skip[slot]], w->slot[slot] + bytes[p->skip[slot]],
                             (size_t)count << p->result[r].size_log2);
    }
}

/* Steps [first, end) on a piece: `cols` columns from `col` of `rows` rows from `row`. */
static void run_piece(walk *w, int first, int end, int64_t row, int64_t rows, int64_t col,
                      int64_t cols)
{
    const gd_ew_program *p = w->program;
    int64_t skip = row * p->row_length + col, count = rows * cols;
    const int64_t bytes[GD_EW_NO_SKIP + 1] = { skip, 2 * skip, 4 * skip, 8 * skip, /* whole */
                                               row,  2 * row,  4 * row,  8 * row,  /* of rows */
                                               0 };
    char *const *place = skip > 0 ? w->place : w->slot;
    for (int s = 0; s < gd_ew_first_register(p) + p->n_registers && skip > 0; s++)
        w->place[s] = w->slot[s] + bytes[p->skip[s]];
    for (int i = first; i < end; i += p->span[i] ? p->span[i] : 1) {
        const gd_ew_step *step = &p->step[i];
        const char *x = place[step->from[0]];
        char *to = place[step->to];
        if (p->span[i])
            run_chain_of_rows(p, i, place, rows, cols);
        else if (step->kind == GD_EW_LOOP)
            step->run.loop(x, place[step->from[1]], place[step->from[2]], to, count);
        else if (step->kind == GD_EW_REDUCE)
            step->run.reducer->rows(x, cols, cols, to, 1, rows);
        else
            p->table->copy[p->skip[step->from[0]] - GD_EW_SKIP_ROWS](x, 1, 0, to, cols, rows, cols);
    }
    if (w->streams)
        stream_results(w, first, end, bytes, count);
}

/* A stage over all rows of the tile. */
static void run_stage(walk *w, int first, int end, int64_t rows)
{
    const gd_ew_program *p = w->program;
    int64_t length = p->row_length;
    for (int64_t row = 0; row < rows; row += p->piece_rows) {
        int64_t rest = rows - row, n = rest < p->piece_rows ? rest : p->piece_rows;
        int64_t width = length <= p->piece ? length : p->piece;
        for (int64_t col = 0; col < length; col += width)
            run_piece(w, first, end, row, n, col, length - col < width ? length - col : width);
    }
}

/* The steps over a tile of whole rows. */
static void run_row_steps(walk *w, int64_t rows)
{
    const gd_ew_program *p = w->program;
    bool rows_are_pieces = p->row_length <= p->piece;
    for (int i = 0, end; i < p->n_steps; i = end) {
        for (end = i; end < p->n_steps; end++) {
            int kind = p->step[end].kind;
            if (kind == GD_EW_ROWS || (kind == GD_EW_REDUCE && !rows_are_pieces))
                break;
        }
        if (end > i) {
            run_stage(w, i, end, rows);
            continue;
        }
        const gd_ew_step *step = &p->step[end++];
        const char *x = w->slot[step->from[0]];
        if (step->kind == GD_EW_REDUCE)
            step->run.reducer->rows(x, p->row_length, p->row_length, w->slot[step->to], 1, rows);
        else
            step->run.loop(x, w->slot[step->from[1]], w->slot[step->from[2]], w->slot[step->to],
                           rows);
    }
}

static void run_adam(const walk *w, const gd_ew_step *step, int64_t count)
{
    const void *from[GD_ADAM_BF16_OPERANDS];
    void *to[GD_ADAM_RESULTS];
    const uint8_t *slot = w->program->adam;
    for (int k = 0; k < GD_ADAM_BF16_OPERANDS; k++)
        from[k] = w->slot[slot[k]];
    for (int k = 0; k < GD_ADAM_RESULTS; k++)
        to[k] = w->slot[slot[GD_ADAM_BF16_OPERANDS + k]];
    step->run.adam(from, to, count);
}

static void run_tile(walk *w, int64_t cols)
{
    const gd_ew_program *p = w->program;
    bool streams = w->streams;
    int64_t count = w->rows * cols;
    char **result = &w->slot[p->n_sources];
    for (int r = 0; r < p->n_results; r++)
        result[r] = p->out_is_direct && (!streams || p->result[r].is_row)
                        ? w->out[r]
                        : w->slot[p->result[r].slot];
    place_sources(w, cols);
    if (p->row_length > 0) {
        run_row_steps(w, count / p->row_length);
        return;
    }
    for (int i = 0; i < p->n_steps; i++) {
        const gd_ew_step *step = &p->step[i];
        if (p->span[i]) {
            run_chain(p, i, w->slot, count);
            i += p->span[i] - 1;
            continue;
        }
        if (step->kind == GD_EW_ADAM)
            run_adam(w, step, count);
        else
            step->run.loop(w->slot[step->from[0]], w->slot[step->from[1]], w->slot[step->from[2]],
                           w->slot[step->to], count);
    }
    for (int r = 0; r < p->n_results; r++) {
        if (streams)
            p->table->stream(w->out[r], result[r], (size_t)count << p->result[r].size_log2);
        else if (!p->out_is_direct)
            store_block(w, p->table->copy, r, result[r], cols, 1);
    }
}

/* A tile of a program without steps. */
static void copy_tile(walk *w, int64_t cols, bool streams)
{
    const gd_ew_program *p = w->program;
    const gd_ew_source *source = &p->source[0];
    if (!p->out_is_direct)
        store_block(w, streams ? p->table->copy_streamed : p->table->copy, 0, w->from[0],
                    source->stride[p->block_axis], source->stride[p->rank - 1]);
    else if (streams && source->is_direct)
        p->table->stream(w->out[0], w->from[0], (size_t)(w->rows * cols) << p->result[0].size_log2);
    else
        load_box(w, source, w->from[0], w->out[0]);
}

static void run_tiles(void *context, int64_t begin, int64_t end, int thread)
{
    const ew_job *job = context;
    const gd_ew_program *p = job->program;
    walk w;
    begin_walk(&w, p, job->call, begin, gd_scratch_of(job->call, thread));
    w.streams = job->streams;
    for (int64_t tile = begin; tile < end; next_row(&w)) {
        begin_row(&w);
        for (int64_t cols; tile < end && (cols = begin_tile(&w)) > 0; tile++, next_tile(&w)) {
            if (p->n_steps > 0)
                run_tile(&w, cols);
            else
                copy_tile(&w, cols, job->streams);
        }
    }
    if (job->streams)
        p->table->stream(NULL, NULL, 0);
}

gd_workspace gd_ew_scratch(const gd_kernel_call *call)
{
    _Alignas(8) char memory[GD_EW_PROGRAM_BYTES];
    const gd_ew_program *p = (const gd_ew_program *)(const void *)memory;
    if (gd_ew_prepare(call, memory) != GD_OK || p->tiles == 0 || p->n_registers == 0)
        return (gd_workspace){ 0 };
    size_t bytes = 0;
    for (int r = 0; r < p->n_registers; r++)
        bytes += (size_t)p->register_bytes[p->extent[r]];
    const int64_t grain = (GRAIN + p->tile_work - 1) / p->tile_work;
    return (gd_workspace){ NULL, gd_scratch_bytes(bytes, (size_t)p->n_registers),
                           gd_parallel_ranges(call->device->threads, p->tiles, grain) };
}

static ew_job job_of(const gd_ew_program *p, const gd_kernel_call *call)
{
    bool can_stream = p->is_large && (p->out_is_direct || p->n_steps == 0);
    return (ew_job){ p, call, can_stream && !gd_ew_is_in_place(call) };
}

void gd_ew_run(const gd_ew_program *p, const gd_kernel_call *call)
{
    enum { PLAIN_MOST = 2 * GRAIN / 3 }; /* elements that one thread takes: each counts 3 or more */
    if (p->tiles == 0)
        return;
    if (p->is_plain && p->shape[0] < PLAIN_MOST) {
        const gd_ew_step *step = &p->step[0];
        step->run.loop(call->in[step->from[0]].data, call->in[step->from[1]].data,
                       call->in[step->from[2]].data, call->out.data, p->shape[0]);
        return;
    }
    ew_job job = job_of(p, call);
    if (p->tiles == 1) {
        run_tiles(&job, 0, 1, 0);
        return;
    }
    gd_parallel_for(call->device->threads, p->tiles, (GRAIN + p->tile_work - 1) / p->tile_work,
                    run_tiles, &job);
}

/* How many of the program's tiles begin within the first `work` of it. */
static int64_t tiles_within(const gd_ew_program *p, int64_t work)
{
    if (work >= p->tiles * p->tile_work)
        return p->tiles;
    return work <= 0 ? 0 : (work + p->tile_work - 1) / p->tile_work;
}

/* Of the work of all calls, one behind the other, the tiles that begin in [begin, end). */
static void run_share(void *context, int64_t begin, int64_t end, int thread)
{
    int64_t at = 0; /* where the call's work begins */
    for (const gd_kernel_call *call = context; call && at < end; call = call->next) {
        const gd_ew_program *p = call->prepared;
        const int64_t first = tiles_within(p, begin - at), last = tiles_within(p, end - at);
        ew_job job = job_of(p, call);
        if (first < last)
            run_tiles(&job, first, last, thread);
        at += p->tiles * p->tile_work;
    }
}

gd_status gd_ew_run_together(const gd_kernel_call *call)
{
    int64_t work = 0;
    for (const gd_kernel_call *c = call; c; c = c->next) {
        const gd_ew_program *p = c->prepared;
        work += p->tiles * p->tile_work;
    }
    gd_parallel_for(call->device->threads, work, GRAIN, run_share, (void *)(uintptr_t)call);
    return GD_OK;
}
