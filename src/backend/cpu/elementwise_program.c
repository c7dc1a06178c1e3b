/* backend/cpu/elementwise_program.c: preparing an elementwise call as a program over tiles: which
 * loops it calls, and how it walks over its operands. Read elementwise_program.h first; start at
 * gd_ew_prepare. */
#include "backend/cpu/elementwise_program.h"
#include "backend/cpu/cpu.h"
#include "base/error.h"

#include <assert.h>
#include <stdatomic.h>

enum {
    MAX_VALUES = GD_FUSED_MAX_INPUTS + GD_FUSED_MAX_INSTRUCTIONS,

    TILE_LEAST = 64,  /* elements */
    TILE_MOST = 4096, /* where nothing needs a register */
    TILE_MOST_WITH_REGISTERS = 2048,
    TILE_OF_COPY = 64 * 1024,
    STREAM_PIECE = 2 * GD_EW_STREAM_PIECE, /* a tile costs more to begin than a plain loop */
    REGISTERS_BYTES = 24 * 1024, /* together, to stay in the L1 cache with what streams through */
    LONG_PROGRAM = 4,            /* steps; from here on … */
    SLOTS_BYTES = 8 * 1024, /* … registers and direct operands together: most of a 32 KB cache is
                               then left for what memory brings in meanwhile */
    REGISTER_GAP = 64,      /* keeps registers from sharing their low address bits */
    BLOCK_COLUMNS = 32,     /* of a block where an operand is transposed */
    BLOCK_COLUMNS_OF_COPY = 64,
    BLOCK_ROWS_OF_COPY = 1024,
    DIRECT_ROW_LEAST = 128, /* a row so long is worth a tile of its own if that saves copying it */
};

_Static_assert(sizeof(gd_ew_program) <= GD_EW_PROGRAM_BYTES, "room for a program");

size_t gd_ew_prepare_bytes(void)
{
    return sizeof(gd_ew_program);
}

/* ---- from instructions to steps ---- */

typedef struct row_facts {
    const char *name;
    int arity;
    bool gives_bool; /* else the operands' dtype */
    bool chooses;    /* the first operand is bool, the dtype is that of the others */
} row_facts;

enum { SAME, BOOL };
enum { FLOAT, NUMERIC, INTEGRAL, ALL, CHOOSE };
static const row_facts facts[GD_OP_ELEMENTWISE_COUNT] = {
#define GD_UNARY(name, types, result, ...) \
    [GD_OP_##name] = { #name, 1, result == BOOL, types == CHOOSE },
#define GD_BINARY(name, types, result, ...) \
    [GD_OP_##name] = { #name, 2, result == BOOL, types == CHOOSE },
#define GD_TERNARY(name, types, result, ...) \
    [GD_OP_##name] = { #name, 3, result == BOOL, types == CHOOSE },
#include "ops/elementwise.def"
};

static int size_log2(gd_dtype dtype)
{
    static const int8_t log2[GD_DTYPE_COUNT] = {
        [GD_F32] = 2, [GD_F64] = 3,  [GD_I32] = 2, [GD_I64] = 3,
        [GD_U8] = 0,  [GD_BOOL] = 0, [GD_F16] = 1, [GD_BF16] = 1
    };
    return log2[dtype];
}

/* State of the translation. Values are numbered as in gd_fused_attr. Starts as zeros. */
typedef struct translation {
    gd_ew_program *program;
    const gd_fused_attr *attr;
    gd_dtype dtype[MAX_VALUES];
    int16_t uses_end[MAX_VALUES]; /* instructions from this one on do not read it */
    int16_t place[MAX_VALUES]
                 [GD_DTYPE_COUNT]; /* slot of the value as this dtype, plus 1; 0: none */
    int16_t result_slot[GD_FUSED_MAX_INSTRUCTIONS]; /* of an instruction whose value is a result; 0:
                                                       none */
    int16_t free_slot[GD_EW_MAX_REGISTERS];
    int n_free;
} translation;

static int first_register(const gd_ew_program *p)
{
    return p->n_sources + p->n_results;
}

static void add_value(translation *t, int value, gd_dtype dtype, int slot)
{
    t->dtype[value] = dtype;
    t->place[value][dtype] = (int16_t)(slot + 1);
}

static int take_register(translation *t, gd_dtype dtype)
{
    gd_ew_program *p = t->program;
    int64_t bytes = (int64_t)1 << size_log2(dtype);
    if (bytes > p->widest)
        p->widest = bytes;
    if (t->n_free > 0)
        return t->free_slot[--t->n_free];
    return first_register(p) + p->n_registers++;
}

static void free_register(translation *t, int slot)
{
    if (slot >= first_register(t->program))
        t->free_slot[t->n_free++] = (int16_t)slot;
}

/* Registers of operands not read after instruction i. */
static void free_operands(translation *t, const gd_fused_instruction *instruction, int arity, int i)
{
    for (int k = 0; k < arity; k++) {
        int value = instruction->from[k];
        if (t->uses_end[value] != i + 1)
            continue;
        t->uses_end[value] = 0; /* it may be two operands at once */
        for (int d = 0; d < GD_DTYPE_COUNT; d++)
            if (t->place[value][d] > 0)
                free_register(t, t->place[value][d] - 1);
    }
}

static void add_step(gd_ew_program *p, gd_ew_loop loop, const int from[3], int to)
{
    assert(p->n_steps < GD_EW_MAX_STEPS);
    p->step[p->n_steps++] = (gd_ew_step){
        .loop = loop,
        .from = { (int16_t)from[0], (int16_t)from[1], (int16_t)from[2] },
        .to = (int16_t)to,
    };
}

static void add_cast(translation *t, gd_dtype from_dtype, gd_dtype to_dtype, int from, int to)
{
    add_step(t->program, t->program->table->cast[from_dtype][to_dtype],
             (const int[]){ from, from, from }, to);
}

/* The slot of a value as a dtype, converted at its first use. */
static int value_as(translation *t, int value, gd_dtype dtype)
{
    int16_t *place = t->place[value];
    if (place[dtype] == 0) {
        int slot = take_register(t, dtype);
        add_cast(t, t->dtype[value], dtype, place[t->dtype[value]] - 1, slot);
        place[dtype] = (int16_t)(slot + 1);
    }
    return place[dtype] - 1;
}

/* What an instruction calls: its loop, and the dtypes that takes and makes. */
typedef struct callee {
    const char *name;
    gd_ew_loop loop; /* NULL: none */
    int arity;
    gd_dtype takes[3], makes;
} callee;

static callee find_callee(const gd_ew_table *table, const gd_fused_instruction *instruction)
{
    gd_dtype compute = (gd_dtype)instruction->compute;
    int op = instruction->op;
    if (op == GD_OP_cast) {
        gd_dtype makes = (gd_dtype)instruction->dtype;
        return (callee){ "cast", table->cast[compute][makes], 1, { compute }, makes };
    }
    if (op < 0 || op >= GD_OP_ELEMENTWISE_COUNT)
        return (callee){ "an op that is not elementwise", NULL, 0, { compute }, compute };
    const row_facts *row = &facts[op];
    if (gd_dtype_is_half(compute) && !row->chooses)
        compute = GD_F32;
    return (callee){ row->name,
                     table->op[compute][op],
                     row->arity,
                     { row->chooses ? GD_BOOL : compute, compute, compute },
                     row->gives_bool ? GD_BOOL : compute };
}

static void translate_instruction(translation *t, int i)
{
    gd_ew_program *p = t->program;
    const gd_fused_instruction *instruction = &t->attr->instruction[i];
    gd_dtype dtype = (gd_dtype)instruction->dtype;
    int result = t->result_slot[i];
    callee call = find_callee(p->table, instruction);

    int from[3] = { 0 };
    for (int k = 0; k < call.arity; k++)
        from[k] = value_as(t, instruction->from[k], call.takes[k]);
    for (int k = call.arity; k < 3; k++)
        from[k] = from[0];

    /* A loop may write over an operand only where the sizes agree: so other operands are freed
     * after the result has its place. */
    bool may_overwrite = true;
    for (int k = 0; k < call.arity; k++)
        may_overwrite &= size_log2(call.takes[k]) == size_log2(call.makes);
    if (may_overwrite)
        free_operands(t, instruction, call.arity, i);
    bool needs_cast = call.makes != dtype;
    int made = result && !needs_cast ? result : take_register(t, call.makes);
    add_step(p, call.loop, from, made);
    if (!may_overwrite)
        free_operands(t, instruction, call.arity, i);

    int placed = made;
    if (needs_cast) {
        placed = result ? result : take_register(t, dtype);
        add_cast(t, call.makes, dtype, made, placed);
        free_register(t, made);
    }
    add_value(t, t->attr->n_inputs + i, dtype, placed);
}

/* Checks every instruction before any is translated, and notes the last use of each value. */
static gd_status find_last_uses(translation *t)
{
    const gd_fused_attr *attr = t->attr;
    for (int i = 0; i < attr->n_instructions; i++) {
        callee call = find_callee(t->program->table, &attr->instruction[i]);
        if (!call.loop)
            return gd_fail(GD_ERR_UNSUPPORTED, "cpu: no kernel for %s of %s", call.name,
                           gd_dtype_name((gd_dtype)attr->instruction[i].compute));
        for (int k = 0; k < call.arity; k++) {
            int value = attr->instruction[i].from[k];
            assert(value >= 0 && value < attr->n_inputs + i);
            t->uses_end[value] = (int16_t)(i + 1);
        }
    }
    return GD_OK;
}

static gd_status translate(gd_ew_program *p, const gd_fused_attr *attr, const gd_kernel_call *call)
{
    translation t = { .program = p, .attr = attr };
    for (int v = 0; v < attr->n_inputs; v++)
        add_value(&t, v, call->in[v].layout->dtype, v);
    t.result_slot[attr->n_instructions - 1] = (int16_t)p->n_sources;
    for (int r = 1; r < p->n_results; r++)
        t.result_slot[attr->more[r - 1]] = (int16_t)(p->n_sources + r);
    gd_status status = find_last_uses(&t);
    for (int i = 0; i < attr->n_instructions && status == GD_OK; i++)
        translate_instruction(&t, i);
    return status;
}

/* ---- from layouts to tiles ---- */

/* Stride of an input along an axis of the result it is broadcast to. */
static int64_t broadcast_stride(const gd_layout *in, const gd_layout *out, int axis)
{
    int own = axis - (out->rank - in->rank);
    return own < 0 || in->shape[own] == 1 ? 0 : in->stride[own];
}

/* Drop axes of size 1, merge neighbours that every source steps through as one. */
static void merge_axes(gd_ew_program *p, const gd_kernel_call *call)
{
    const gd_layout *out = call->out.layout;
    p->rank = 0;
    for (int axis = 0; axis < out->rank; axis++) {
        int64_t size = out->shape[axis];
        if (size == 1)
            continue;
        bool merges = p->rank > 0;
        for (int s = 0; s < p->n_sources && merges; s++)
            merges = p->source[s].stride[p->rank - 1] ==
                     broadcast_stride(call->in[s].layout, out, axis) * size;
        if (!merges)
            p->shape[p->rank++] = 1;
        int to = p->rank - 1;
        p->shape[to] *= size;
        for (int s = 0; s < p->n_sources; s++)
            p->source[s].stride[to] = broadcast_stride(call->in[s].layout, out, axis);
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

/* Whether elements of a tile are neighbours in memory, in the tile's order. */
static bool is_dense(const gd_ew_program *p, const int64_t *stride)
{
    int64_t expected = 1;
    bool is_whole = true; /* so far, the axes that may be cut off have nothing before them */
    for (int axis = p->rank - 1; axis >= 0; axis--) {
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
    if (p->rank < 2 || p->box[last - 1] == 1 || p->shape[last] < DIRECT_ROW_LEAST)
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

bool gd_ew_is_in_place(const gd_kernel_call *call)
{
    bool result = false;
    int more = call->op->id == GD_OP_fused ? ((const gd_fused_attr *)call->attr)->n_more : 0;
    for (int k = 0; k < call->n; k++) {
        result |= call->in[k].data == call->out.data;
        for (int r = 0; r < more; r++)
            result |= call->in[k].data == call->more[r].data;
    }
    return result;
}

static int64_t tile_capacity(const gd_ew_program *p)
{
    if (p->n_steps == 0)
        return TILE_OF_COPY;
    int64_t registers = p->n_registers + p->n_results - 1;
    for (int s = 0; s < p->n_sources; s++)
        registers += p->rank > 1 || p->source[s].stride[0] != 1;
    if (registers == 0)
        return TILE_MOST;
    int64_t all = p->n_registers + p->n_results + p->n_sources;
    int64_t capacity = p->n_steps >= LONG_PROGRAM ? SLOTS_BYTES / (all * p->widest)
                                                  : REGISTERS_BYTES / (registers * p->widest);
    capacity = capacity / TILE_LEAST * TILE_LEAST;
    if (capacity < TILE_LEAST)
        return TILE_LEAST;
    return smaller(capacity, TILE_MOST_WITH_REGISTERS);
}

static void divide_into_tiles(gd_ew_program *p, const gd_kernel_call *call)
{
    for (int s = 0; s < p->n_sources; s++) {
        int log2 = size_log2(call->in[s].layout->dtype);
        p->source[s].size_log2 = (int16_t)log2;
        if (p->widest < (int64_t)1 << log2)
            p->widest = (int64_t)1 << log2;
    }
    for (int r = 0; r < p->n_results; r++) {
        int log2 = size_log2((r ? &call->more[r - 1] : &call->out)->layout->dtype);
        p->result[r].size_log2 = (int16_t)log2;
        if (p->widest < (int64_t)1 << log2)
            p->widest = (int64_t)1 << log2;
    }
    merge_axes(p, call);
    p->tiles = 0;
    for (int axis = 0; axis < p->rank; axis++)
        if (p->shape[axis] == 0)
            return;
    p->is_large = gd_ew_is_streamed(gd_layout_bytes(call->out.layout));
    int64_t capacity = tile_capacity(p);
    if (p->rank < 2 || !choose_transposed_box(p, capacity)) {
        if (p->is_large && p->n_steps > 0)
            capacity = smaller(capacity, STREAM_PIECE >> p->result[0].size_log2);
        choose_trailing_box(p, capacity);
    }

    p->tiles = 1;
    int64_t count = 1;
    for (int axis = 0; axis < p->rank; axis++) {
        p->tiles *= (p->shape[axis] + p->box[axis] - 1) / p->box[axis];
        count *= p->box[axis];
    }
    p->register_bytes = (count * p->widest + 63) / 64 * 64 + REGISTER_GAP;
    for (int s = 0; s < p->n_sources; s++) {
        p->source[s].is_direct = is_dense(p, p->source[s].stride);
        p->source[s].slot = s;
        if (!p->source[s].is_direct && p->n_steps > 0)
            p->source[s].slot = first_register(p) + p->n_registers++;
    }
    p->out_is_direct = is_dense(p, p->out_stride);
    for (int r = 0; r < p->n_results; r++) {
        bool in_register = (!p->out_is_direct || p->is_large) && p->n_steps > 0;
        p->result[r].slot =
            (int16_t)(in_register ? first_register(p) + p->n_registers++ : p->n_sources + r);
    }
    p->is_plain = p->rank == 1 && p->n_steps == 1 && p->n_registers == 0;
    assert(p->n_registers <= GD_EW_MAX_REGISTERS);
    assert((size_t)(p->n_registers * p->register_bytes) <= GD_CPU_SCRATCH);
}

static const gd_ew_table *const tables[GD_ISA_COUNT] = {
    [GD_ISA_BASELINE] = &gd_ew_table_baseline,
#ifdef GD_HAVE_AVX2
    [GD_ISA_AVX2] = &gd_ew_table_avx2,
#endif
#ifdef GD_HAVE_AVX512
    [GD_ISA_AVX512] = &gd_ew_table_avx512,
#endif
#ifdef GD_HAVE_NEON
    [GD_ISA_NEON] = &gd_ew_table_neon,
#endif
};

const gd_ew_table *gd_ew_table_of(const gd_device *device)
{
    return tables[((const gd_cpu_device *)device)->isa];
}

/* A row or a cast: one loop where it takes the operands as they are, else a program of one
 * instruction. */
static gd_status translate_single(gd_ew_program *p, const gd_kernel_call *call)
{
    gd_dtype typical =
        call->in[call->n > 1 ? 1 : 0].layout->dtype; /* not that of where's condition */
    gd_dtype made = call->out.layout->dtype;
    gd_fused_instruction instruction = { .op = (int16_t)call->op->id,
                                         .dtype = (int16_t)made,
                                         .from = { 0, 1, 2 },
                                         .compute = (int16_t)typical };
    if (call->op->id == GD_OP_cast && typical == made)
        return GD_OK; /* no step: a copy */
    callee one = find_callee(p->table, &instruction);
    bool as_they_are = one.loop && one.makes == made;
    for (int k = 0; k < call->n; k++)
        as_they_are &= call->in[k].layout->dtype == one.takes[k];
    if (as_they_are) {
        add_step(p, one.loop, (const int[]){ 0, call->n > 1 ? 1 : 0, call->n > 2 ? 2 : 0 },
                 p->n_sources);
        return GD_OK;
    }
    gd_fused_attr single; /* only what one instruction needs is set */
    single.n_inputs = call->n;
    single.n_instructions = 1;
    single.n_more = 0;
    single.instruction[0] = instruction;
    return translate(p, &single, call);
}

gd_status gd_ew_prepare(const gd_kernel_call *call, void *memory)
{
    gd_ew_program *p = memory;
    p->table = gd_ew_table_of(call->device);
    p->n_sources = call->n;
    p->n_results = 1;
    p->n_steps = p->n_registers = 0;
    p->block_axis = 0;
    p->is_plain = false;
    p->widest = 1;
    gd_status status = GD_OK;
    if (call->op->id == GD_OP_fused) {
        p->n_results += ((const gd_fused_attr *)call->attr)->n_more;
        status = translate(p, call->attr, call);
    } else if (call->op->id != GD_OP_copy) {
        status = translate_single(p, call);
    }
    if (status == GD_OK)
        divide_into_tiles(p, call);
    return status;
}
