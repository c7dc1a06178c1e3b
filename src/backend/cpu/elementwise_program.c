/* backend/cpu/elementwise_program.c: preparing an elementwise call as a program over tiles: which
 * loops it calls, and how it walks over its operands. Read elementwise_program.h first; start at
 * gd_ew_prepare. */
#include "backend/cpu/elementwise_program.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/reduce.h"
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

_Static_assert(sizeof(gd_ew_program) <= GD_EW_PROGRAM_BYTES, "room for a program");

size_t gd_ew_prepare_bytes(void)
{
    return sizeof(gd_ew_program);
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

/* ---- from instructions to steps ---- */

typedef struct row_facts {
    const char *name;
    int arity;
    bool gives_bool; /* else the operands' dtype */
    bool chooses;    /* the first operand is bool, the dtype is that of the others */
} row_facts;

enum { SAME, BOOL };
enum { FLOAT, WHOLE, NUMERIC, INTEGRAL, ALL, CHOOSE };
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
        [GD_F32] = 2,  [GD_F64] = 3, [GD_I32] = 2,  [GD_I64] = 3, [GD_U8] = 0,
        [GD_BOOL] = 0, [GD_F16] = 1, [GD_BF16] = 1, [GD_I8] = 0,  [GD_I16] = 1,
        [GD_U16] = 1,  [GD_U32] = 2, [GD_U64] = 3
    };
    return log2[dtype];
}

_Static_assert(GD_OP_prod == GD_OP_sum + 1 && GD_OP_max == GD_OP_sum + 2 &&
                   GD_OP_min == GD_OP_sum + 3,
               "gd_ew_table.reduce is in the order of the ops");
_Static_assert(GD_FUSED_MOST_ROW <= GD_REDUCE_BLOCK, "a row is one block of its reduction");

/* State of the translation. Values are numbered as in gd_fused_attr. Starts as zeros. */
typedef struct translation {
    gd_ew_program *program;
    const gd_fused_attr *attr;
    gd_dtype dtype[MAX_VALUES];
    int16_t uses_end[MAX_VALUES];              /* instructions from this one on do not read it */
    int16_t breaks[GD_FUSED_MAX_INSTRUCTIONS]; /* ends of stages in instructions so far, its own
                                                  included */
    int16_t place[MAX_VALUES][GD_DTYPE_COUNT]; /* slot of the value as this dtype, plus 1; 0: none.
                                                  Of one number in all in stage place_stage */
    int16_t place_stage[MAX_VALUES];
    int16_t spread[MAX_VALUES][GD_DTYPE_COUNT]; /* and with a row's number at all its elements; in
                                                   stage spread_stage */
    int16_t spread_stage[MAX_VALUES];
    gd_ew_extent extent[MAX_VALUES];
    int16_t stage;                                  /* of the current step, from 1 */
    int16_t result_slot[GD_FUSED_MAX_INSTRUCTIONS]; /* of an instruction whose value is a result; 0:
                                                       none */
    int16_t free_slot[3][GD_EW_MAX_REGISTERS];      /* by extent */
    int n_free[3];
    uint8_t size_log2[GD_EW_MAX_REGISTERS]; /* of the elements of each register */
    bool overflow;                          /* there are not steps or registers enough */
} translation;

static void add_value(translation *t, int value, gd_dtype dtype, int slot, gd_ew_extent extent)
{
    t->dtype[value] = dtype;
    t->place[value][dtype] = (int16_t)(slot + 1);
    t->extent[value] = extent;
}

gd_ew_extent gd_ew_extent_of(const gd_ew_program *p, int slot)
{
    if (slot < p->n_sources)
        return (gd_ew_extent)p->source[slot].extent;
    if (slot < gd_ew_first_register(p))
        return p->result[slot - p->n_sources].is_row ? GD_EW_ROW : GD_EW_TILE;
    return (gd_ew_extent)p->extent[slot - gd_ew_first_register(p)];
}

static void set_skip(gd_ew_program *p, int slot, gd_dtype dtype)
{
    gd_ew_extent extent = gd_ew_extent_of(p, slot);
    p->skip[slot] = (uint8_t)(extent == GD_EW_PART  ? GD_EW_NO_SKIP
                              : extent == GD_EW_ROW ? size_log2(dtype) + GD_EW_SKIP_ROWS
                                                    : size_log2(dtype));
}

/* A register of the program's, for good. */
static int new_register(gd_ew_program *p, gd_ew_extent extent)
{
    p->extent[p->n_registers] = (uint8_t)extent;
    p->skip[gd_ew_first_register(p) + p->n_registers] = GD_EW_NO_SKIP;
    return gd_ew_first_register(p) + p->n_registers++;
}

/* A register. One that holds more than a piece is used again for elements of the same size only:
 * what it held before is still read in later pieces of the stage, at places by that size. */
static int take_register(translation *t, gd_dtype dtype, gd_ew_extent extent)
{
    gd_ew_program *p = t->program;
    int log2 = size_log2(dtype), *n_free = &t->n_free[extent];
    int16_t *free_slot = t->free_slot[extent];
    bool any_size = t->attr->row_axes == 0 || extent == GD_EW_PART;
    if (p->widest < (int64_t)1 << log2)
        p->widest = (int64_t)1 << log2;
    for (int i = *n_free - 1; i >= 0; i--)
        if (any_size || t->size_log2[free_slot[i] - gd_ew_first_register(p)] == log2) {
            int slot = free_slot[i];
            free_slot[i] = free_slot[--*n_free];
            return slot;
        }
    if (p->n_registers == GD_EW_MAX_STEPS) { /* operands that need one come later */
        t->overflow = true;
        return gd_ew_first_register(p);
    }
    int slot = new_register(p, extent);
    set_skip(p, slot, dtype);
    t->size_log2[slot - gd_ew_first_register(p)] = (uint8_t)log2;
    return slot;
}

static void free_register(translation *t, int slot)
{
    const gd_ew_program *p = t->program;
    if (slot < gd_ew_first_register(p))
        return;
    int extent = p->extent[slot - gd_ew_first_register(p)];
    if (t->n_free[extent] < GD_EW_MAX_REGISTERS)
        t->free_slot[extent][t->n_free[extent]++] = (int16_t)slot;
}

/* Registers of operands not read after instruction i. */
static void free_operands(translation *t, const gd_fused_instruction *instruction, int arity, int i)
{
    for (int k = 0; k < arity; k++) {
        int value = instruction->from[k];
        if (t->uses_end[value] != i + 1)
            continue;
        t->uses_end[value] = 0; /* it may be two operands at once */
        for (int d = 0; d < GD_DTYPE_COUNT; d++) {
            if (t->place[value][d] > 0)
                free_register(t, t->place[value][d] - 1);
            if (t->spread[value][d] > 0)
                free_register(t, t->spread[value][d] - 1);
        }
    }
}

static gd_ew_step *add_step(translation *t, gd_ew_step_kind kind, const int from[3], int to)
{
    gd_ew_program *p = t->program;
    if (p->n_steps == GD_EW_MAX_STEPS) {
        t->overflow = true;
        p->n_steps = 0;
    }
    gd_ew_step *step = &p->step[p->n_steps++];
    *step = (gd_ew_step){ .to = (uint8_t)to, .kind = (uint8_t)kind };
    for (int k = 0; k < 3; k++)
        step->from[k] = (uint8_t)from[k];
    if (kind == GD_EW_ROWS || (kind == GD_EW_REDUCE && p->row_length > p->piece))
        t->stage++;
    return step;
}

static gd_ew_step_kind loop_over(gd_ew_extent extent)
{
    return extent == GD_EW_ROW ? GD_EW_ROWS : GD_EW_LOOP;
}

static void add_cast(translation *t, gd_dtype takes, gd_dtype makes, int from, int to,
                     gd_ew_extent extent)
{
    add_step(t, loop_over(extent), (const int[]){ from, from, from }, to)->run.loop =
        t->program->table->cast[takes][makes];
}

/* The slot of a value as a dtype, converted at its first use. One number in all at its first use in
 * the stage: it is converted to a register of a piece, which another value may take once it is no
 * longer read. */
static int value_as(translation *t, int value, gd_dtype dtype)
{
    int16_t *place = t->place[value];
    const bool is_number = value < t->attr->n_inputs && t->extent[value] == GD_EW_PART;
    for (int d = 0; is_number && t->place_stage[value] != t->stage && d < GD_DTYPE_COUNT; d++)
        if (d != (int)t->dtype[value] && place[d] > 0) {
            free_register(t, place[d] - 1);
            place[d] = 0;
        }
    t->place_stage[value] = t->stage;
    if (place[dtype] == 0) {
        int slot = take_register(t, dtype, t->extent[value]);
        add_cast(t, t->dtype[value], dtype, place[t->dtype[value]] - 1, slot, t->extent[value]);
        place[dtype] = (int16_t)(slot + 1);
    }
    return place[dtype] - 1;
}

/* The same with an element for each of the tile's, if the value is one number a row. To be read by
 * steps of this stage. */
static int whole_value_as(translation *t, int value, gd_dtype dtype)
{
    int from = value_as(t, value, dtype);
    if (t->extent[value] != GD_EW_ROW)
        return from;
    if (t->spread_stage[value] != t->stage)
        for (int d = 0; d < GD_DTYPE_COUNT; d++) {
            if (t->spread[value][d] > 0)
                free_register(t, t->spread[value][d] - 1);
            t->spread[value][d] = 0;
        }
    t->spread_stage[value] = t->stage;
    if (t->spread[value][dtype] == 0) {
        int slot = take_register(t, dtype, GD_EW_PART);
        add_step(t, GD_EW_SPREAD, (const int[]){ from, from, from }, slot);
        t->spread[value][dtype] = (int16_t)(slot + 1);
    }
    return t->spread[value][dtype] - 1;
}

/* What an instruction calls: its loop, and the dtypes that takes and makes. */
typedef struct callee {
    const char *name;
    gd_ew_loop loop; /* NULL: none */
    const gd_reducer *reducer;
    int arity;
    gd_dtype takes[3], makes;
    uint8_t chain; /* gd_ew_step.chain */
} callee;

/* Adam, or one of its further results, which its own step makes. */
static bool is_of_adam(const gd_fused_instruction *instruction)
{
    return gd_is_adam((gd_op_id)instruction->op) || instruction->op == GD_OP_extra_result;
}

static callee find_callee(const gd_ew_table *table, const gd_fused_instruction *instruction)
{
    gd_dtype compute = (gd_dtype)instruction->compute;
    int op = instruction->op;
    if (op == GD_OP_cast) {
        gd_dtype makes = (gd_dtype)instruction->dtype;
        return (callee){ "cast", table->cast[compute][makes], NULL, 1, { compute }, makes, 0 };
    }
    if (gd_fused_reduces(op))
        return (callee){
            "a reduction", NULL, table->reduce[op - GD_OP_sum][compute], 1, { compute }, compute, 0
        };
    if (op < 0 || op >= GD_OP_ELEMENTWISE_COUNT)
        return (callee){ "an op that is not elementwise", NULL, NULL, 0, { compute }, compute, 0 };
    const row_facts *row = &facts[op];
    if (gd_dtype_is_half(compute) && !row->chooses)
        compute = GD_F32;
    return (callee){ row->name,
                     table->op[compute][op],
                     NULL,
                     row->arity,
                     { row->chooses ? GD_BOOL : compute, compute, compute },
                     row->gives_bool ? GD_BOOL : compute,
                     table->chain && compute == GD_F32 ? gd_ew_chain_of[op] : 0 };
}

/* What the value of instruction i is made an element for. */
static gd_ew_extent extent_of(const translation *t, int i)
{
    int value = t->attr->n_inputs + i, last = t->uses_end[value] - 1;
    if (t->attr->row_axes == 0)
        return GD_EW_TILE;
    if (t->attr->instruction[i].is_row)
        return GD_EW_ROW;
    return last < 0 || t->breaks[last] == t->breaks[i] ? GD_EW_PART : GD_EW_TILE;
}

static void find_operands(translation *t, const gd_fused_instruction *instruction,
                          const callee *call, int from[3])
{
    bool is_whole = !instruction->is_row && !(call->chain && t->program->rows_are_blocks);
    for (int k = 0; k < 2 * call->arity; k++) /* first those of rows' numbers, which end a stage */
        if (k >= call->arity || t->extent[instruction->from[k]] == GD_EW_ROW)
            from[k % call->arity] =
                value_as(t, instruction->from[k % call->arity], call->takes[k % call->arity]);
    for (int k = 0; k < call->arity && is_whole; k++)
        from[k] = whole_value_as(t, instruction->from[k], call->takes[k]);
    for (int k = call->arity; k < 3; k++)
        from[k] = from[0];
}

static void translate_instruction(translation *t, int i)
{
    gd_ew_program *p = t->program;
    const gd_fused_instruction *instruction = &t->attr->instruction[i];
    gd_dtype dtype = (gd_dtype)instruction->dtype;
    gd_ew_extent extent = extent_of(t, i);
    int result = t->result_slot[i], from[3] = { 0 };
    callee call = find_callee(p->table, instruction);
    find_operands(t, instruction, &call, from);

    /* A loop may write over an operand only where the sizes agree: so other operands are freed
     * after the result has its place. */
    bool may_overwrite = !call.reducer;
    for (int k = 0; k < call.arity; k++)
        may_overwrite &= size_log2(call.takes[k]) == size_log2(call.makes);
    if (may_overwrite)
        free_operands(t, instruction, call.arity, i);
    bool needs_cast = call.makes != dtype;
    int made = result && !needs_cast ? result : take_register(t, call.makes, extent);
    if (call.reducer)
        add_step(t, GD_EW_REDUCE, from, made)->run.reducer = call.reducer;
    else {
        gd_ew_step *step = add_step(t, loop_over(extent), from, made);
        step->run.loop = call.loop;
        step->chain = step->kind == GD_EW_LOOP ? call.chain : 0;
    }
    if (!may_overwrite)
        free_operands(t, instruction, call.arity, i);

    int placed = made;
    if (needs_cast) {
        placed = result ? result : take_register(t, dtype, extent);
        add_cast(t, call.makes, dtype, made, placed, extent);
        free_register(t, made);
    }
    add_value(t, t->attr->n_inputs + i, dtype, placed, extent);
}

/* Whether the steps of instruction i end a stage: those on rows' numbers, and the reduction of rows
 * longer than a piece. */
static bool ends_stage(const translation *t, int i, const callee *call)
{
    const gd_fused_attr *attr = t->attr;
    const gd_fused_instruction *instruction = &attr->instruction[i];
    if (instruction->is_row && (!call->reducer || t->program->row_length > t->program->piece))
        return true;
    for (int k = 0; k < call->arity; k++) {
        int from = instruction->from[k], made = from - attr->n_inputs;
        bool is_row = made < 0 ? t->extent[from] == GD_EW_ROW : attr->instruction[made].is_row;
        gd_dtype dtype = made < 0 ? t->dtype[from] : (gd_dtype)attr->instruction[made].dtype;
        if (is_row && dtype != call->takes[k])
            return true;
    }
    return false;
}

/* The first instruction that the back end has no loop for; -1: it has them all. */
static int first_without_loop(const gd_ew_table *table, const gd_fused_attr *attr)
{
    for (int i = 0; i < attr->n_instructions; i++) {
        const gd_fused_instruction *instruction = &attr->instruction[i];
        callee call = find_callee(table, instruction);
        if (!call.loop && !call.reducer && !is_of_adam(instruction))
            return i;
    }
    return -1;
}

/* Notes the last use of each value and the ends of stages. */
static void find_last_uses(translation *t)
{
    const gd_fused_attr *attr = t->attr;
    for (int i = 0; i < attr->n_instructions; i++) {
        callee call = find_callee(t->program->table, &attr->instruction[i]);
        const gd_op_id op = (gd_op_id)attr->instruction[i].op;
        const int operands = gd_is_adam(op) ? gd_op_row(op)->arity : call.arity;
        for (int k = 0; k < operands; k++) {
            int value = attr->instruction[i].from[k];
            assert(value >= 0 && value < attr->n_inputs + i);
            t->uses_end[value] = (int16_t)(i + 1);
        }
        t->breaks[i] = (int16_t)((i ? t->breaks[i - 1] : 0) + ends_stage(t, i, &call));
    }
}

/* The instruction that is result r of the op adam, instruction i; -1: nobody reads it. */
static int result_of_adam(const gd_fused_attr *attr, int i, int r)
{
    if (r == 0)
        return i;
    for (int e = i + 1; e < attr->n_instructions; e++) {
        const gd_fused_instruction *extra = &attr->instruction[e];
        if (extra->op == GD_OP_extra_result && extra->from[0] == attr->n_inputs + i &&
            extra->from[1] == r - 1)
            return e;
    }
    return -1;
}

/* Adam as one step, which makes all its results. */
static void translate_adam(translation *t, int i)
{
    gd_ew_program *p = t->program;
    const gd_fused_instruction *instruction = &t->attr->instruction[i];
    const bool is_bf16 = instruction->op == GD_OP_adam_bf16;
    const gd_dtype moments = is_bf16 ? GD_BF16 : GD_F32;
    const int operands = gd_op_row((gd_op_id)instruction->op)->arity;
    for (int k = 0; k < operands; k++)
        p->adam[k] = (uint8_t)value_as(t, instruction->from[k],
                                       k == GD_ADAM_M || k == GD_ADAM_V ? moments
                                       : k == GD_ADAM_WORDS             ? GD_I32
                                                                        : GD_F32);
    for (int k = operands; k < GD_ADAM_BF16_OPERANDS; k++)
        p->adam[k] = p->adam[GD_ADAM_G];
    for (int r = 0; r < GD_ADAM_RESULTS; r++) {
        const gd_dtype dtype = r == GD_ADAM_NEXT_P ? GD_F32 : moments;
        const int made = result_of_adam(t->attr, i, r);
        const int result = made < 0 ? 0 : t->result_slot[made];
        const int slot = result ? result : take_register(t, dtype, GD_EW_TILE);
        p->adam[GD_ADAM_BF16_OPERANDS + r] = (uint8_t)slot;
        if (made >= 0)
            add_value(t, t->attr->n_inputs + made, dtype, slot, GD_EW_TILE);
    }
    const int g = p->adam[GD_ADAM_G];
    add_step(t, GD_EW_ADAM, (const int[]){ g, g, g }, p->adam[GD_ADAM_BF16_OPERANDS])->run.adam =
        is_bf16 ? p->table->adam_bf16 : p->table->adam;
    free_operands(t, instruction, operands, i);
}

/* first: the instruction whose value is the call's first result. */
static gd_status translate(gd_ew_program *p, const gd_fused_attr *attr, const gd_kernel_call *call,
                           int first)
{
    const int missing = first_without_loop(p->table, attr);
    if (missing >= 0)
        return gd_fail(GD_ERR_UNSUPPORTED, "cpu: no kernel for %s of %s",
                       find_callee(p->table, &attr->instruction[missing]).name,
                       gd_dtype_name((gd_dtype)attr->instruction[missing].compute));
    translation t = { .program = p, .attr = attr, .stage = 1 };
    for (int v = 0; v < attr->n_inputs; v++) {
        add_value(&t, v, call->in[v].layout->dtype, v, (gd_ew_extent)p->source[v].extent);
        set_skip(p, v, call->in[v].layout->dtype);
    }
    for (int r = 0; r < p->n_results; r++) {
        int i = r ? attr->extra[r - 1] : first;
        t.result_slot[i] = (int16_t)(p->n_sources + r);
        set_skip(p, p->n_sources + r, (gd_dtype)attr->instruction[i].dtype);
    }
    find_last_uses(&t);
    for (int i = 0; i < attr->n_instructions; i++)
        if (!is_of_adam(&attr->instruction[i]))
            translate_instruction(&t, i);
        else if (gd_is_adam((gd_op_id)attr->instruction[i].op))
            translate_adam(&t, i);
    p->overflows = t.overflow;
    return GD_OK;
}

/* ---- from layouts to tiles ---- */

/* The attribute of a group with reductions, else NULL. */
static const gd_fused_attr *rows_of(const gd_kernel_call *call)
{
    const gd_fused_attr *attr = call->op->id == GD_OP_fused ? call->attr : NULL;
    return attr && attr->row_axes > 0 ? attr : NULL;
}

/* Stride of input s along an axis of the `rank` axes the program walks over. */
static int64_t broadcast_stride(const gd_kernel_call *call, int s, int rank, int axis)
{
    const gd_fused_attr *rows = rows_of(call);
    const gd_layout *in = call->in[s].layout;
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
                p->source[s].stride[p->rank - 1] == broadcast_stride(call, s, rank, axis) * size;
        if (!merges)
            p->shape[p->rank++] = 1;
        int to = p->rank - 1;
        p->shape[to] *= size;
        for (int s = 0; s < p->n_sources; s++)
            p->source[s].stride[to] = broadcast_stride(call, s, rank, axis);
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
        registers += p->rank > 1 || p->source[s].stride[0] != 1;
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
    capacity = capacity / TILE_LEAST * TILE_LEAST;
    if (capacity < TILE_LEAST)
        return TILE_LEAST;
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
                : is_dense(p, source->stride, extent == GD_EW_ROW ? p->row_axis : p->rank);
        source->slot = (uint8_t)s;
        if (!source->is_direct && p->n_steps > 0)
            source->slot = (uint8_t)new_register(p, extent);
    }
    p->out_is_direct = is_dense(p, p->out_stride, p->rank);
    for (int r = 0; r < p->n_results; r++) {
        bool in_register =
            (!p->out_is_direct || p->is_large) && p->n_steps > 0 && !p->result[r].is_row;
        p->result[r].slot = (int16_t)(in_register ? new_register(p, GD_EW_TILE) : p->n_sources + r);
    }
}

/* An element read, written or computed counts 1; Adam's loop does the work of so many more steps.
 */
static int64_t work_of_tile(const gd_ew_program *p)
{
    enum { ADAM_STEPS = 12 };
    int64_t elements = 1, each = p->n_sources + p->n_results + p->n_steps;
    for (int axis = 0; axis < p->rank; axis++)
        elements *= p->box[axis];
    for (int i = 0; i < p->n_steps; i++)
        each += p->step[i].kind == GD_EW_ADAM ? ADAM_STEPS : 0;
    return elements * each;
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
        const gd_layout *layout = (r ? &call->extra[r - 1] : &call->out)->layout;
        int log2 = size_log2(layout->dtype);
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
        p->step[p->n_steps++] = (gd_ew_step){
            .run.loop = one.loop,
            .from = { 0, call->n > 1, call->n > 2 ? 2 : 0 },
            .to = (uint8_t)p->n_sources,
        };
        return GD_OK;
    }
    gd_fused_attr single; /* only what one instruction needs is set */
    single.n_inputs = call->n;
    single.n_instructions = 1;
    single.n_extra = 0;
    single.row_axes = 0;
    single.instruction[0] = instruction;
    return translate(p, &single, call, 0);
}

static gd_status prepare(const gd_kernel_call *call, gd_ew_program *p)
{
    p->table = gd_ew_table_of(call->device);
    p->n_sources = call->n;
    p->n_results = 1;
    p->n_steps = p->n_registers = 0;
    p->block_axis = 0;
    p->is_plain = p->overflows = false;
    p->widest = 1;
    p->n_results += gd_op_extra_count(call->op, call->attr);
    merge_axes(p, call);
    find_row_values(p, call);
    gd_status status = GD_OK;
    if (call->op->id == GD_OP_fused) {
        const gd_fused_attr *group = call->attr;
        status = translate(p, group, call, group->n_instructions - 1);
    } else if (gd_is_adam(call->op->id)) {
        const gd_fused_attr group = gd_fused_adam(call->op);
        status = translate(p, &group, call, 0);
    } else if (call->op->id != GD_OP_copy)
        status = translate_single(p, call);
    if (status != GD_OK)
        return status;
    gd_ew_find_chains(p);
    divide_into_tiles(p, call);
    return GD_OK;
}

gd_status gd_ew_prepare(const gd_kernel_call *call, void *memory)
{
    gd_ew_program *p = memory;
    gd_status status = prepare(call, p);
    if (status == GD_OK && p->overflows)
        return gd_fail(GD_ERR_UNSUPPORTED, "cpu: a fused group too large for its scratch");
    return status;
}

bool gd_ew_takes_group(const gd_kernel_call *call)
{
    gd_ew_program p;
    if (first_without_loop(gd_ew_table_of(call->device), call->attr) >= 0)
        return false;
    return ((const gd_fused_attr *)call->attr)->row_axes == 0 ||
           (prepare(call, &p) == GD_OK && !p.overflows);
}
