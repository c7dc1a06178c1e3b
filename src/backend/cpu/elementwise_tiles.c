/* backend/cpu/elementwise_tiles.c: how an elementwise program walks over its operands: which axes are
 * merged, how large a tile is, and which operands go through a register. Read elementwise_program.h
 * first; start at gd_ew_lay_out and gd_ew_divide_into_tiles. */
#include "backend/cpu/elementwise_program.h"
#include "backend/cpu/cpu.h"

#include <assert.h>
#include <stdatomic.h>

enum {
    TILE_LEAST = 64,  /* elements */
    TILE_MOST = 4096, /* where nothing needs a register */
    TILE_MOST_WITH_REGISTERS = 2048,
    TILE_OF_COPY = 64 * 1024,
    STREAM_PIECE = 2 * GD_EW_STREAM_PIECE, /* a tile costs more to begin than a plain loop */
    REGISTERS_BYTES = 24 * 1024, /* together, to stay in the L1 cache with what streams through */
    LONG_PROGRAM = 4,            /* steps; from here on … */
    SLOTS_BYTES = 8 * 1024,  /* … registers and direct operands together: most of a 32 KB cache is
                                then left for what memory brings in meanwhile */
    CHAIN_BYTES = 16 * 1024, /* the same of chains */
    ROWS_BYTES = 20 * 1024,  /* slots together where tiles are whole rows */
    TILE_MOST_ROWS = 64,
    /* The length of a piece where data come from memory: short pieces keep its requests coming. */
    PIECE_OF_FAR = 2 * GD_EW_CHAIN_BLOCK,
    REGISTER_GAP = 64,  /* keeps registers from sharing their low address bits */
    BLOCK_COLUMNS = 32, /* of a block where an operand is transposed */
    BLOCK_COLUMNS_OF_COPY = 64,
    BLOCK_ROWS_OF_COPY = 1024,
    DIRECT_ROW_LEAST = 128, /* a row so long is worth a tile of its own if that saves copying it */
};

/* An eighth of the last cache, found by measuring chains of ops: a result in it, or its operands,
 * may still be there when the next op comes; but where it is not, ordinary stores lose a third. */
bool gd_ew_is_streamed(size_t bytes)
{
    static atomic_size_t least;
    size_t known = atomic_load_explicit(&least, memory_order_relaxed);
    if (known == 0) {
        known = gd_cache_bytes(3) / 8;
        atomic_store_explicit(&least, known, memory_order_relaxed);
    }
    return bytes >= known;
}

gd_dtype gd_ew_dtype_of(const gd_kernel_call *call, int s)
{
    return gd_fused_draws(call->op, call->attr, s) ? GD_I32 : call->in[s].layout->dtype;
}

/* The attribute of a group with reductions, else NULL. */
static const gd_fused_attr *rows_of(const gd_kernel_call *call)
{
    const gd_fused_attr *attr = call->op->id == GD_OP_fused ? call->attr : NULL;
    return attr && attr->row_axes > 0 ? attr : NULL;
}

/* Stride of input s along an axis of the `rank` axes the program walks over. */
static int64_t broadcast_stride(const gd_ew_program *p, const gd_kernel_call *call, int s, int rank,
                                int axis)
{
    const gd_fused_attr *rows = rows_of(call);
    const gd_layout *in = p->source[s].is_drawn ? call->out.layout : call->in[s].layout;
    if (rows && rows->outer_inputs >> s & 1)
        rank = gd_fused_outer_axes(rows);
    int own = axis - (rank - in->rank);
    return own < 0 || own >= in->rank || in->shape[own] == 1 ? 0 : in->stride[own];
}

/* Drop axes of size 1, merge neighbours that every source steps through as one; but a row's axes
 * not with others. */
static void merge_axes(gd_ew_program *p, const gd_kernel_call *call)
{
    const gd_fused_attr *rows = rows_of(call);
    const gd_layout *out = call->out.layout;
    int rank = rows ? rows->shape.rank : out->rank;
    const int64_t *shape = rows ? rows->shape.dim : out->shape;
    bool in_row = !rows;
    p->rank = p->row_axis = 0;
    for (int axis = 0; axis < rank; axis++) {
        int64_t size = shape[axis];
        if (size == 1)
            continue;
        bool merges = p->rank > 0;
        if (!in_row && axis >= gd_fused_outer_axes(rows)) {
            in_row = true;
            merges = false;
            p->row_axis = p->rank;
        }
        for (int s = 0; s < p->n_sources && merges; s++)
            merges =
                p->source[s].stride[p->rank - 1] == broadcast_stride(p, call, s, rank, axis) * size;
        if (!merges)
            p->shape[p->rank++] = 1;
        int to = p->rank - 1;
        p->shape[to] *= size;
        for (int s = 0; s < p->n_sources; s++)
            p->source[s].stride[to] = broadcast_stride(p, call, s, rank, axis);
    }
    if (p->rank == 0) {
        p->rank = 1;
        p->shape[0] = 1;
        for (int s = 0; s < p->n_sources; s++)
            p->source[s].stride[0] = 1;
    }
    int64_t stride = 1;
    for (int axis = p->rank - 1; axis >= 0; axis--) {
        p->out_stride[axis] = stride;
        stride *= p->shape[axis];
    }
}

/* Which sources and results of a group with reductions are one number a row, where a source that is
 * one number in all stands for both; and how pieces are cut. */
static void find_row_values(gd_ew_program *p, const gd_kernel_call *call)
{
    const gd_fused_attr *rows = rows_of(call);
    p->row_length = rows ? 1 : 0;
    for (int axis = p->row_axis; rows && axis < p->rank; axis++)
        p->row_length *= p->shape[axis];
    for (int s = 0; s < p->n_sources; s++) {
        bool varies = false, varies_in_row = false;
        for (int axis = 0; axis < p->rank; axis++) {
            varies |= p->source[s].stride[axis] != 0;
            varies_in_row |= axis >= p->row_axis && p->source[s].stride[axis] != 0;
        }
        p->source[s].extent = !rows || varies_in_row ? GD_EW_TILE : varies ? GD_EW_ROW : GD_EW_PART;
    }
    for (int r = 0; r < p->n_results; r++)
        p->result[r].is_row =
            rows && rows->instruction[r ? rows->extra[r - 1] : rows->n_instructions - 1].is_row;
    const gd_layout *largest = call->out.layout;
    for (int r = 1; r < p->n_results && p->result[0].is_row; r++)
        if (!p->result[r].is_row)
            largest = call->extra[r - 1].layout;
    p->is_large = gd_ew_is_streamed(gd_layout_bytes(largest));
    int64_t count = p->row_length;
    for (int axis = 0; axis < p->row_axis; axis++)
        count *= p->shape[axis];
    p->is_far = rows && (size_t)count * sizeof(float) > gd_cache_bytes(2);
    p->piece = p->is_far ? PIECE_OF_FAR : GD_EW_PIECE;
    p->piece_rows = rows && p->row_length <= p->piece ? p->piece / p->row_length : 1;
    p->rows_are_blocks = rows && p->row_length % GD_EW_CHAIN_BLOCK == 0;
}

void gd_ew_lay_out(gd_ew_program *p, const gd_kernel_call *call)
{
    for (int s = 0; s < p->n_sources; s++)
        p->source[s].is_drawn = gd_fused_draws(call->op, call->attr, s);
    merge_axes(p, call);
    find_row_values(p, call);
}

/* Whether elements of a tile, along the first `axes` axes, are neighbours in memory, in the tile's
 * order. */
static bool is_dense(const gd_ew_program *p, const int64_t *stride, int axes)
{
    int64_t expected = 1;
    bool is_whole = true; /* so far, the axes that may be cut off have nothing before them */
    for (int axis = axes - 1; axis >= 0; axis--) {
        if (p->box[axis] == 1)
            continue;
        if (stride[axis] != expected || !is_whole)
            return false;
        expected *= p->box[axis];
        is_whole = p->box[axis] == p->shape[axis];
    }
    return true;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Where a source has large steps along the last axis and small ones along another, walk in blocks
 * of these two axes, so that each cache line is used up while it is there. */
static bool choose_transposed_box(gd_ew_program *p, int64_t capacity)
{
    int last = p->rank - 1;
    int other = -1;
    for (int s = 0; s < p->n_sources && other < 0; s++) {
        const int64_t *stride = p->source[s].stride;
        int64_t least = stride[last] < 0 ? -stride[last] : stride[last];
        if (least <= 1)
            continue;
        for (int axis = 0; axis < last; axis++) {
            int64_t step = stride[axis] < 0 ? -stride[axis] : stride[axis];
            if (step != 0 && step < least) {
                least = step;
                other = axis;
            }
        }
    }
    if (other < 0)
        return false;
    bool is_copy = p->n_steps == 0; /* and goes through no register */
    int64_t cols = smaller(p->shape[last], is_copy ? BLOCK_COLUMNS_OF_COPY : BLOCK_COLUMNS);
    int64_t rows = smaller(p->shape[other], is_copy ? BLOCK_ROWS_OF_COPY : capacity / cols);
    if (!is_copy)
        cols = smaller(p->shape[last], capacity / rows);
    if (rows * cols < 512 && p->rank > 2)
        return false; /* many small matrices: take several at a time */
    for (int axis = 0; axis < last; axis++)
        p->box[axis] = 1;
    p->box[other] = rows;
    p->box[last] = cols;
    p->block_axis = (int16_t)other;
    return true;
}

/* As many trailing axes as fit, and as much as fits of the next one. */
static void choose_trailing_box(gd_ew_program *p, int64_t capacity)
{
    int64_t count = 1;
    for (int axis = p->rank - 1; axis >= 0; axis--) {
        p->box[axis] = count < capacity ? smaller(p->shape[axis], capacity / count) : 1;
        count = p->box[axis] == p->shape[axis] ? count * p->box[axis] : capacity;
    }
    /* One row at a time, if that lets rows be read where they are. */
    int last = p->rank - 1;
    if (p->rank < 2 || p->box[last - 1] == 1 || p->shape[last] < DIRECT_ROW_LEAST ||
        (p->row_length > 0 && p->row_axis < last))
        return;
    for (int s = 0; s < p->n_sources; s++) {
        const int64_t *stride = p->source[s].stride;
        if (stride[last] == 1 && stride[last - 1] != 0 && stride[last - 1] != p->shape[last]) {
            for (int axis = 0; axis < last; axis++)
                p->box[axis] = 1;
            return;
        }
    }
}

bool gd_ew_is_in_place(const gd_kernel_call *call)
{
    bool result = false;
    int more = gd_op_extra_count(call->op, call->attr);
    for (int k = 0; k < call->n; k++) {
        result |= call->in[k].data == call->out.data;
        for (int r = 0; r < more; r++)
            result |= call->in[k].data == call->extra[r].data;
    }
    return result;
}

/* Rows of a tile: at least one, and whole pieces. Where data come from memory, a row that does not
 * fit the cache costs more than passes over memory do. */
static int64_t tile_rows(gd_ew_program *p)
{
    int64_t slots = 1;
    for (int s = 0; s < p->n_sources; s++)
        slots += p->source[s].extent == GD_EW_TILE;
    for (int r = 0; r < p->n_results; r++)
        slots += !p->result[r].is_row;
    for (int r = 0; r < p->n_registers; r++)
        slots += p->extent[r] == GD_EW_TILE;
    int64_t rows = smaller(ROWS_BYTES / (slots * p->widest * p->row_length), TILE_MOST_ROWS);
    p->overflows |= p->is_far && rows == 0;
    return rows < p->piece_rows ? p->piece_rows : rows / p->piece_rows * p->piece_rows;
}

static int64_t tile_capacity(gd_ew_program *p)
{
    if (p->n_steps == 0)
        return TILE_OF_COPY;
    int64_t registers = p->n_registers + p->n_results - 1;
    for (int s = 0; s < p->n_sources; s++)
        registers += p->rank > 1 || p->source[s].stride[0] != 1 || p->source[s].is_drawn;
    int64_t all = p->n_registers + p->n_results + p->n_sources;
    bool is_chain = p->span[0] == p->n_steps;
    for (int s = 0; s < p->n_sources && is_chain; s++)
        all -= p->source[s].extent == GD_EW_PART;
    if (p->row_length > 0)
        return p->row_length * tile_rows(p);
    if (registers == 0)
        return TILE_MOST;
    int64_t capacity = is_chain                     ? CHAIN_BYTES / (all * p->widest)
                       : p->n_steps >= LONG_PROGRAM ? SLOTS_BYTES / (all * p->widest)
                                                    : REGISTERS_BYTES / (registers * p->widest);
    const int64_t least = is_chain ? GD_EW_CHAIN_BLOCK : TILE_LEAST;
    capacity = capacity / least * least;
    if (capacity < least)
        return least;
    return smaller(capacity, TILE_MOST_WITH_REGISTERS);
}

static void choose_box(gd_ew_program *p)
{
    int64_t capacity = tile_capacity(p);
    if (p->row_length == 0 && p->rank > 1 && choose_transposed_box(p, capacity))
        return;
    if (p->row_length == 0 && p->is_large && p->n_steps > 0)
        capacity = smaller(capacity, STREAM_PIECE >> p->result[0].size_log2);
    choose_trailing_box(p, capacity);
}

/* Slots for what must be copied to be read or written. */
static void place_operands(gd_ew_program *p)
{
    for (int s = 0; s < p->n_sources; s++) {
        gd_ew_source *source = &p->source[s];
        gd_ew_extent extent = (gd_ew_extent)source->extent;
        source->is_direct =
            extent == GD_EW_PART
                ? p->part == 1
                : !source->is_drawn &&
                      is_dense(p, source->stride, extent == GD_EW_ROW ? p->row_axis : p->rank);
        source->slot = (uint8_t)s;
        if (!source->is_direct && p->n_steps > 0)
            source->slot = (uint8_t)gd_ew_new_register(p, extent);
    }
    p->out_is_direct = is_dense(p, p->out_stride, p->rank);
    for (int r = 0; r < p->n_results; r++) {
        bool in_register =
            (!p->out_is_direct || p->is_large) && p->n_steps > 0 && !p->result[r].is_row;
        p->result[r].slot =
            (int16_t)(in_register ? gd_ew_new_register(p, GD_EW_TILE) : p->n_sources + r);
    }
}

/* An element read, written or computed counts 1; Adam's loop does the work of so many more steps, and
 * so does drawing a word. */
static int64_t work_of_tile(const gd_ew_program *p)
{
    enum { ADAM_STEPS = 12, DRAW_STEPS = 8 };
    int64_t elements = 1, each = p->n_sources + p->n_results + p->n_steps;
    for (int axis = 0; axis < p->rank; axis++)
        elements *= p->box[axis];
    for (int s = 0; s < p->n_sources; s++)
        each += p->source[s].is_drawn ? DRAW_STEPS : 0;
    for (int i = 0; i < p->n_steps; i++)
        each += p->step[i].kind == GD_EW_ADAM ? ADAM_STEPS : 0;
    return elements * each;
}

void gd_ew_divide_into_tiles(gd_ew_program *p, const gd_kernel_call *call)
{
    for (int s = 0; s < p->n_sources; s++) {
        int log2 = gd_ew_size_log2(gd_ew_dtype_of(call, s));
        p->source[s].size_log2 = (int16_t)log2;
        if (p->widest < (int64_t)1 << log2)
            p->widest = (int64_t)1 << log2;
    }
    for (int r = 0; r < p->n_results; r++) {
        const gd_layout *layout = (r ? &call->extra[r - 1] : &call->out)->layout;
        int log2 = gd_ew_size_log2(layout->dtype);
        p->result[r].size_log2 = (int16_t)log2;
        if (p->widest < (int64_t)1 << log2)
            p->widest = (int64_t)1 << log2;
    }
    p->tiles = 0;
    for (int axis = 0; axis < p->rank; axis++)
        if (p->shape[axis] == 0)
            return;
    choose_box(p);
    p->tiles = 1;
    int64_t count = 1;
    for (int axis = 0; axis < p->rank; axis++) {
        p->tiles *= (p->shape[axis] + p->box[axis] - 1) / p->box[axis];
        count *= p->box[axis];
    }
    place_operands(p);
    int64_t bytes = 0, elements[3] = { count, 0, p->part };
    if (p->row_length > 0)
        elements[GD_EW_ROW] = count / p->row_length;
    for (int i = 0; i < 3; i++)
        p->register_bytes[i] = (elements[i] * p->widest + 63) / 64 * 64 + REGISTER_GAP;
    for (int r = 0; r < p->n_registers; r++)
        bytes += p->register_bytes[p->extent[r]];
    gd_ew_link_chains(p);
    p->tile_work = work_of_tile(p);
    p->is_plain = p->rank == 1 && p->n_steps == 1 && p->n_registers == 0 && p->row_length == 0 &&
                  p->step[0].kind == GD_EW_LOOP;
    assert(p->n_registers <= GD_EW_MAX_REGISTERS);
    p->overflows |= (size_t)bytes > GD_CPU_SCRATCH;
}
