/* backend/cpu/elementwise_program.c: preparing an elementwise call as a program over tiles: which
 * loops it calls, and how it walks over its operands. Read elementwise_program.h first; start at
 * gd_ew_prepare. */
#include "backend/cpu/elementwise_program.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/reduce.h"
#include "base/error.h"

#include <assert.h>

enum {
    MAX_VALUES = GD_FUSED_MAX_INPUTS + GD_FUSED_MAX_INSTRUCTIONS,
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

int gd_ew_size_log2(gd_dtype dtype)
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
                              : extent == GD_EW_ROW ? gd_ew_size_log2(dtype) + GD_EW_SKIP_ROWS
                                                    : gd_ew_size_log2(dtype));
}

int gd_ew_new_register(gd_ew_program *p, gd_ew_extent extent)
{
    p->extent[p->n_registers] = (uint8_t)extent;
    p->skip[gd_ew_first_register(p) + p->n_registers] = GD_EW_NO_SKIP;
    return gd_ew_first_register(p) + p->n_registers++;
}

/* A register. It is used again for elements of the same size only: what it held before is still
 * written and read in later blocks of a chain and pieces of a stage, at places by that size. */
static int take_register(translation *t, gd_dtype dtype, gd_ew_extent extent)
{
    gd_ew_program *p = t->program;
    int log2 = gd_ew_size_log2(dtype), *n_free = &t->n_free[extent];
    int16_t *free_slot = t->free_slot[extent];
    if (p->widest < (int64_t)1 << log2)
        p->widest = (int64_t)1 << log2;
    for (int i = *n_free - 1; i >= 0; i--)
        if (t->size_log2[free_slot[i] - gd_ew_first_register(p)] == log2) {
            int slot = free_slot[i];
            free_slot[i] = free_slot[--*n_free];
            return slot;
        }
    if (p->n_registers == GD_EW_MAX_STEPS) { /* operands that need one come later */
        t->overflow = true;
        return gd_ew_first_register(p);
    }
    int slot = gd_ew_new_register(p, extent);
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
    const gd_ew_table *table = t->program->table;
    gd_ew_step *step = add_step(t, loop_over(extent), (const int[]){ from, from, from }, to);
    step->run.loop = table->cast[takes][makes];
    step->chain = table->chain && step->kind == GD_EW_LOOP ? gd_ew_chain_of_cast(takes, makes) : 0;
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
    bool is_two;   /* a difference before: (x - y) * z, of which a chain has no link */
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
        return (callee){ "cast",
                         table->cast[compute][makes],
                         NULL,
                         1,
                         { compute },
                         makes,
                         table->chain ? gd_ew_chain_of_cast(compute, makes) : 0,
                         false };
    }
    if (gd_fused_reduces(op))
        return (callee){
            "a reduction", NULL, table->reduce[op - GD_OP_sum][compute], 1, { compute }, compute, 0,
            false
        };
    if (op < 0 || op >= GD_OP_ELEMENTWISE_COUNT)
        return (callee){
            "an op that is not elementwise", NULL, NULL, 0, { compute }, compute, 0, false
        };
    const row_facts *row = &facts[op];
    if (gd_dtype_is_half(compute) && !row->chooses)
        compute = GD_F32;
    if (op == GD_OP_scale_centred && compute == GD_F32 && table->chain) {
        const gd_op_id last = GD_OP_mul;
        return (callee){
            row->name, table->op[compute][last],      NULL, 3, { compute, compute, compute },
            compute,   gd_ew_chain_of(last, compute), true
        };
    }
    return (callee){ row->name,
                     table->op[compute][op],
                     NULL,
                     row->arity,
                     { row->chooses ? GD_BOOL : compute, compute, compute },
                     row->gives_bool ? GD_BOOL : compute,
                     table->chain ? gd_ew_chain_of(op, compute) : 0,
                     false };
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

static void add_f32_loop(translation *t, int op, const int from[3], int to, gd_ew_extent extent)
{
    gd_ew_step *step = add_step(t, loop_over(extent), from, to);
    step->run.loop = t->program->table->op[GD_F32][op];
    step->chain = step->kind == GD_EW_LOOP ? gd_ew_chain_of(op, GD_F32) : 0;
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
    const int centred = call.is_two ? take_register(t, call.makes, extent) : 0;

    /* A loop may write over an operand only where the sizes agree: so other operands are freed
     * after the result has its place. */
    bool may_overwrite = !call.reducer;
    for (int k = 0; k < call.arity; k++)
        may_overwrite &= gd_ew_size_log2(call.takes[k]) == gd_ew_size_log2(call.makes);
    if (may_overwrite)
        free_operands(t, instruction, call.arity, i);
    bool needs_cast = call.makes != dtype;
    int made = result && !needs_cast ? result : take_register(t, call.makes, extent);
    if (call.reducer)
        add_step(t, GD_EW_REDUCE, from, made)->run.reducer = call.reducer;
    else {
        if (call.is_two) {
            add_f32_loop(t, GD_OP_sub, (const int[]){ from[0], from[1], from[0] }, centred, extent);
            from[0] = centred;
            from[1] = from[2];
        }
        gd_ew_step *step = add_step(t, loop_over(extent), from, made);
        step->run.loop = call.loop;
        step->chain = step->kind == GD_EW_LOOP ? call.chain : 0;
    }
    if (call.is_two)
        free_register(t, centred);
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
        const gd_dtype dtype = gd_ew_dtype_of(call, v);
        add_value(&t, v, dtype, v, (gd_ew_extent)p->source[v].extent);
        set_skip(p, v, dtype);
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

/* ---- a call ---- */

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
    bool as_they_are = one.loop && one.makes == made && !one.is_two;
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
    gd_ew_lay_out(p, call);
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
    gd_ew_divide_into_tiles(p, call);
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
