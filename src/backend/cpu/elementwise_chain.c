/* backend/cpu/elementwise_chain.c: which steps of an elementwise program are a chain, and its
 * links: what is in the register when, and what has to be stored. What runs them is
 * elementwise_chain_isa.c. */
#include "backend/cpu/elementwise_program.h"

#include <assert.h>

enum {
    /* Steps that are worth a chain, measured. With rows that are not whole blocks, none are. */
    LEAST = 2,
    LEAST_OF_SMALL = 3,
    SMALL = 64 * 1024, /* elements */
};

static const uint8_t of_f32[GD_OP_ELEMENTWISE_COUNT] = {
    [GD_OP_neg] = GD_EW_CHAIN_NEG,
    [GD_OP_abs] = GD_EW_CHAIN_ABS,
    [GD_OP_square] = GD_EW_CHAIN_SQUARE,
    [GD_OP_sqrt] = GD_EW_CHAIN_SQRT,
    [GD_OP_relu] = GD_EW_CHAIN_RELU,
    [GD_OP_reciprocal] = GD_EW_CHAIN_RECIPROCAL,
    [GD_OP_add] = GD_EW_CHAIN_ADD,
    [GD_OP_sub] = GD_EW_CHAIN_SUB,
    [GD_OP_mul] = GD_EW_CHAIN_MUL,
    [GD_OP_div] = GD_EW_CHAIN_DIV,
    [GD_OP_relu_grad] = GD_EW_CHAIN_RELU_GRAD,
    [GD_OP_flush_subnormal] = GD_EW_CHAIN_FLUSH,
    [GD_OP_round_bf16] = GD_EW_CHAIN_ROUND_BF16,
};

uint8_t gd_ew_chain_of(int op, gd_dtype computes)
{
    if (computes == GD_I32)
        return op == GD_OP_bitwise_and ? GD_EW_CHAIN_AND_I32 : 0;
    return computes == GD_F32 ? of_f32[op] : 0;
}

uint8_t gd_ew_chain_of_cast(gd_dtype from, gd_dtype to)
{
    if (from == GD_F32)
        return to == GD_BF16 ? GD_EW_CHAIN_NARROW : 0;
    if (to != GD_F32)
        return 0;
    return from == GD_BF16 ? GD_EW_CHAIN_WIDEN : from == GD_I32 ? GD_EW_CHAIN_FROM_I32 : 0;
}

/* Whether step i must be a chain, even alone: an operand is one number a row. */
static bool takes_number(const gd_ew_program *p, int i)
{
    const gd_ew_step *step = &p->step[i];
    return step->chain && step->kind == GD_EW_LOOP && p->row_length > 0 &&
           (gd_ew_extent_of(p, step->from[0]) == GD_EW_ROW ||
            gd_ew_extent_of(p, step->from[1]) == GD_EW_ROW);
}

/* Whether Adam's step alone reads source s, as one of its numbers: the first element is enough. */
static bool is_number_of_adam(const gd_ew_program *p, int s)
{
    bool is_adams = false, is_others = false;
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < 3 && p->step[i].kind != GD_EW_ADAM; k++)
            is_others |= p->step[i].from[k] == s;
    for (int k = 0; k < GD_ADAM_BF16_OPERANDS; k++) {
        const bool is_number = k >= GD_ADAM_NUMBERS && k < GD_ADAM_WORDS;
        *(is_number ? &is_adams : &is_others) |= p->adam[k] == s;
    }
    return is_adams && !is_others;
}

void gd_ew_find_chains(gd_ew_program *p)
{
    int64_t count = 1;
    for (int axis = 0; axis < p->rank; axis++)
        count *= p->shape[axis];
    bool has_chains = p->row_length > 0 ? p->rows_are_blocks : count >= GD_EW_CHAIN_BLOCK;
    int least = !has_chains                           ? GD_EW_MAX_STEPS + 1
                : p->row_length == 0 && count < SMALL ? LEAST_OF_SMALL
                                                      : LEAST;
    for (int i = 0, end; i < p->n_steps; i = end) {
        for (end = i; end < p->n_steps && p->step[end].chain; end++)
            ;
        end += end == i;
        for (int k = i; k < end; k++)
            p->span[k] =
                (uint8_t)(k == i && (end - i >= least || takes_number(p, i)) ? end - i : 0);
    }
    p->part = GD_EW_PIECE;
    bool has_adam = false;
    for (int i = 0; i < p->n_steps; i++)
        has_adam |= p->step[i].kind == GD_EW_ADAM;
    if (p->row_length > 0 || p->n_steps == 0 || (p->span[0] < p->n_steps && !has_adam))
        return;
    p->part = has_adam ? 1 : GD_EW_CHAIN_BLOCK;
    for (int s = 0; s < p->n_sources; s++) {
        bool varies = has_adam && !is_number_of_adam(p, s);
        for (int axis = 0; axis < p->rank; axis++)
            varies |= p->source[s].stride[axis] != 0;
        if (!varies)
            p->source[s].extent = GD_EW_PART;
    }
}

/* Whether Adam's step reads this slot. */
static bool adam_reads(const gd_ew_program *p, int slot)
{
    int k = 0;
    while (k < GD_ADAM_BF16_OPERANDS && p->adam[k] != slot)
        k++;
    return k < GD_ADAM_BF16_OPERANDS;
}

/* Whether a step behind `i`, of a chain that ends before `end`, reads from memory what that one
 * makes: the next one finds it in the register. */
static bool is_read_again(const gd_ew_program *p, int i, int end)
{
    int slot = p->step[i].to;
    for (int k = i + 1; k < p->n_steps; k++) {
        const gd_ew_step *step = &p->step[k];
        bool x = step->from[0] == slot, y = step->from[1] == slot, z = step->from[2] == slot;
        bool in_register = k == i + 1 && k < end && !(x && y && step->chain >= GD_EW_CHAIN_ADD);
        if (((x || y || z) && !in_register) || (step->kind == GD_EW_ADAM && adam_reads(p, slot)))
            return true;
        if (step->to == slot)
            return false;
    }
    return false;
}

static void add_link(gd_ew_program *p, int *n, int handler, int slot)
{
    assert(*n < GD_EW_MAX_LINKS);
    p->link[(*n)++] = (gd_ew_link){ .handler = (uint8_t)handler, .slot = (uint8_t)slot };
}

/* The same of a handler that takes an operand. */
static void add_operand(gd_ew_program *p, int *n, int handler, int slot)
{
    gd_ew_extent extent = gd_ew_extent_of(p, slot);
    bool is_number = slot < p->n_sources && extent == GD_EW_PART, is_row = extent == GD_EW_ROW;
    add_link(p, n, is_number || is_row ? handler + GD_EW_CHAIN_NUMBER : handler, slot);
    p->link[*n - 1].is_row = is_row;
}

void gd_ew_link_chains(gd_ew_program *p)
{
    for (int i = 0, n = 0; i < p->n_steps; i += p->span[i] ? p->span[i] : 1) {
        int end = i + p->span[i], in_register = -1; /* the slot whose value is in the register */
        p->first_link[i] = (uint16_t)n;
        for (int k = i; k < end; k++) {
            const gd_ew_step *step = &p->step[k];
            int x = step->from[0], y = step->from[1];
            bool is_binary = step->chain >= GD_EW_CHAIN_ADD;
            bool is_second = is_binary && in_register == y && in_register != x;
            if (step->chain == GD_EW_CHAIN_WIDEN)
                add_operand(p, &n, GD_EW_CHAIN_WIDEN, x);
            else if (!is_second && in_register != x)
                add_operand(p, &n, GD_EW_CHAIN_LOAD, x);
            if (step->chain == GD_EW_CHAIN_NARROW) { /* x stays in the register */
                add_link(p, &n, GD_EW_CHAIN_NARROW, step->to);
                in_register = x;
                continue;
            }
            if (is_binary)
                add_operand(p, &n, step->chain + is_second * GD_EW_CHAIN_SECOND, is_second ? x : y);
            else if (step->chain != GD_EW_CHAIN_WIDEN)
                add_link(p, &n, step->chain, x);
            in_register = step->to;
            if (in_register < gd_ew_first_register(p) || is_read_again(p, k, end))
                add_link(p, &n, GD_EW_CHAIN_STORE, in_register);
        }
        if (p->span[i])
            add_link(p, &n, GD_EW_CHAIN_END, 0);
    }
}
