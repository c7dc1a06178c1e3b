/* compile/recompute.c: results of a group that later groups can compute cheaply are not kept. The
 * gradient of a GELU made of ops, say, reads tanh, 1 + tanh, x / 2 and x^2: one pass over memory for
 * each, to write it and to read it. Where a few additions and multiplications make such an extra result of
 * values that all its readers read anyway, those groups make it again, in registers, and the first
 * one keeps it no longer. (Deciding what a gradient computes again is what functorch's min-cut
 * partitioner is for; this is its case without a cost.)
 *
 * May put again only ops that take no longer than to load their result (GD_OP_CHEAP), on the same
 * operands: the same bits. May not make anything live longer: what is read must be an operand
 * of the reader, or constant. Start at gd_pass_recompute. */
#include "compile/passes.h"

#include <string.h>

#include "base/error.h"
#include "compile/group.h"

/* A group with extra results. */
typedef struct maker {
    gd_ir *ir;
    gd_group_draft draft;
    /* What each instruction makes, as others see it; NONE: they do not, or no longer. */
    int32_t value[GD_DRAFT_MOST];
} maker;

/* A later group that reads one of them. */
typedef struct reader {
    gd_group_draft draft;
    gd_fused_instruction again[GD_FUSED_MAX_ELEMENTWISE]; /* to go before its own */
    int n_again;
    int16_t number[GD_FUSED_MAX_INPUTS + GD_DRAFT_MOST]; /* here, of the maker's operands */
} reader;

/* Instructions to go before a reader's own are numbered from AGAIN on until they do. */
enum { NONE = -1, AGAIN = GD_FUSED_MAX_INPUTS + GD_DRAFT_MOST };

/* The number of value `v` as an operand of the reader; a constant becomes one. */
static int16_t operand(const gd_ir *ir, reader *r, int32_t v)
{
    for (int i = 0; i < r->draft.n_inputs; i++)
        if (r->draft.in[i] == v)
            return (int16_t)i;
    if (!ir->values[v].is_constant || r->draft.n_inputs == GD_FUSED_MAX_INPUTS)
        return NONE;
    r->draft.in[r->draft.n_inputs] = v;
    return (int16_t)r->draft.n_inputs++;
}

/* Let the reader have what the maker numbers `of`: its number there. */
static int16_t bring(const maker *m, reader *r, int of)
{
    int i = of - GD_FUSED_MAX_INPUTS;
    int32_t value = i < 0 ? m->draft.in[of] : m->value[i];
    if (r->number[of] == NONE && value != NONE)
        r->number[of] = operand(m->ir, r, value);
    if (r->number[of] != NONE || i < 0 ||
        !(gd_op_row((gd_op_id)m->draft.instruction[i].op)->flags & GD_OP_CHEAP))
        return r->number[of];
    gd_fused_instruction again = m->draft.instruction[i];
    for (int k = 0; k < gd_op_row((gd_op_id)again.op)->arity; k++) {
        again.from[k] = bring(m, r, again.from[k]);
        if (again.from[k] == NONE)
            return NONE;
    }
    if (r->n_again == GD_FUSED_MAX_ELEMENTWISE)
        return NONE;
    r->again[r->n_again] = again;
    return r->number[of] = (int16_t)(AGAIN + r->n_again++);
}

/* Put them before the reader's own instructions, which read `by` instead of input `replaced`. */
static void put_before(reader *r, int replaced, int by)
{
    gd_group_draft *d = &r->draft;
    memmove(d->instruction + r->n_again, d->instruction,
            sizeof *d->instruction * (size_t)d->n_instructions);
    memmove(d->is_result + r->n_again, d->is_result, sizeof(bool) * (size_t)d->n_instructions);
    memcpy(d->instruction, r->again, sizeof *r->again * (size_t)r->n_again);
    memset(d->is_result, 0, sizeof(bool) * (size_t)r->n_again);
    d->n_instructions += r->n_again;
    for (int i = 0; i < d->n_instructions; i++)
        for (int k = 0; k < gd_op_row((gd_op_id)d->instruction[i].op)->arity; k++) {
            int from = d->instruction[i].from[k] == replaced ? by : d->instruction[i].from[k];
            if (from >= AGAIN)
                from -= AGAIN - GD_FUSED_MAX_INPUTS;
            else if (from >= GD_FUSED_MAX_INPUTS)
                from += r->n_again;
            d->instruction[i].from[k] = (int16_t)from;
        }
}

static const gd_device_limits *limits_of(const gd_ir *ir)
{
    return &ir->context->device->limits;
}

/* Whether the device runs the group as op `value`, whose extra results those are. */
static bool device_takes(const gd_ir *ir, int32_t value, const gd_fused_attr *attr,
                         const int32_t *in, const int32_t *extra_results)
{
    const gd_layout *extra[GD_FUSED_MAX_EXTRA];
    for (int i = 0; i < attr->n_extra; i++)
        extra[i] = &ir->values[extra_results[i]].layout;
    return gd_ir_device_takes(ir, gd_op_row(GD_OP_fused), attr, attr->n_inputs, in,
                              &ir->values[value].layout, extra);
}

static gd_status write_group(gd_ir *ir, int32_t value, const gd_fused_attr *attr, const int32_t *in)
{
    int32_t n = attr->n_inputs;
    gd_fused_attr *own_attr = gd_arena_push(&ir->memory, sizeof *attr, 8);
    int32_t *own_in = gd_arena_push(&ir->memory, sizeof(int32_t) * (size_t)n, sizeof(int32_t));
    if (!own_attr || !own_in)
        return GD_ERR_MEMORY;
    *own_attr = *attr;
    memcpy(own_in, in, sizeof(int32_t) * (size_t)n);
    gd_ir_value *v = &ir->values[value];
    v->op = gd_op_row(GD_OP_fused);
    v->attr = own_attr;
    v->in = own_in;
    v->n = n;
    return GD_OK;
}

/* Whether op `user` can make instruction i's `value` itself; written only if `commit`. */
static gd_status make_again(const maker *m, int i, int32_t value, int32_t user, bool commit,
                            bool *can)
{
    reader r = { .n_again = 0 };
    gd_fused_attr attr;
    int32_t in[GD_FUSED_MAX_INPUTS];
    *can = false;
    const gd_ir_value *values = m->ir->values;
    if (!gd_group_open(m->ir, &values[user], &r.draft) ||
        !gd_layout_same_shape(&values[value].layout, &values[user].layout))
        return GD_OK;
    for (size_t k = 0; k < sizeof r.number / sizeof *r.number; k++)
        r.number[k] = NONE;
    int by = bring(m, &r, GD_FUSED_MAX_INPUTS + i);
    if (by == NONE)
        return GD_OK;
    put_before(&r, operand(m->ir, &r, value), by);
    int32_t extra_results[GD_FUSED_MAX_EXTRA];
    for (int k = 0; k < GD_FUSED_MAX_EXTRA; k++)
        extra_results[k] = user + 1 + k;
    *can = gd_group_close(&r.draft, limits_of(m->ir), &attr, in) &&
           device_takes(m->ir, user, &attr, in, extra_results);
    return *can && commit ? write_group(m->ir, user, &attr, in) : GD_OK;
}

/* The maker's group with the results it has now. false: it cannot be one. */
static bool close_maker(maker *m, int32_t group, gd_fused_attr *attr, int32_t *in)
{
    int32_t extra_results[GD_DRAFT_MOST];
    int n = 0;
    for (int i = 0; i < m->draft.n_instructions; i++) {
        m->draft.is_result[i] = m->value[i] != NONE;
        if (m->value[i] != NONE && m->value[i] != group)
            extra_results[n++] = m->value[i];
    }
    return gd_group_close(&m->draft, limits_of(m->ir), attr, in) &&
           device_takes(m->ir, group, attr, in, extra_results);
}

/* Give up extra result `value`, of instruction i, if all its readers can do without. */
static gd_status give_up(maker *m, int32_t group, int i, const gd_ir_users *users, bool *given_up)
{
    int32_t value = m->value[i], begin = users->first[value], end = users->first[value + 1];
    gd_fused_attr attr;
    int32_t in[GD_FUSED_MAX_INPUTS];
    gd_status status = GD_OK;
    m->value[i] = NONE;
    bool can = !m->ir->values[value].is_output && begin < end && close_maker(m, group, &attr, in);
    for (int commit = 0; commit < 2; commit++)
        for (int32_t u = begin; u < end && can && status == GD_OK; u++)
            if (u == begin || users->op[u] != users->op[u - 1])
                status = make_again(m, i, value, users->op[u], commit, &can);
    *given_up = can;
    if (can)
        m->ir->values[value].kind = GD_IR_DEAD;
    else
        m->value[i] = value;
    return status;
}

/* The group without the results given up; the others are counted anew. */
static gd_status write_maker(maker *m, int32_t group)
{
    gd_fused_attr attr;
    int32_t in[GD_FUSED_MAX_INPUTS];
    int index = 0;
    for (int i = 0; i < m->draft.n_instructions; i++) {
        if (m->value[i] == NONE || m->value[i] == group)
            continue;
        gd_ir_value *extra = &m->ir->values[m->value[i]];
        gd_extra_result_attr *own = gd_arena_push(&m->ir->memory, sizeof *own, 8);
        if (!own)
            return GD_ERR_MEMORY;
        *own = *(const gd_extra_result_attr *)extra->attr;
        own->index = index++;
        extra->attr = own;
    }
    if (!close_maker(m, group, &attr, in)) /* as it was when the last result was given up */
        return gd_fail(GD_ERR_STATE, "compiler fault in recompute: value %d", group);
    return write_group(m->ir, group, &attr, in);
}

static gd_status shorten(gd_ir *ir, int32_t group, const gd_ir_users *users, int *changes)
{
    maker m = { .ir = ir };
    const gd_ir_value *v = &ir->values[group];
    if (v->kind != GD_IR_OP || v->op->id != GD_OP_fused || !gd_group_open(ir, v, &m.draft))
        return GD_OK;
    const gd_fused_attr *attr = v->attr;
    for (int i = 0; i < GD_DRAFT_MOST; i++)
        m.value[i] = NONE;
    m.value[attr->n_instructions - 1] = group;
    for (int i = 0; i < attr->n_extra; i++)
        m.value[attr->extra[i]] = group + 1 + i;
    gd_status status = GD_OK;
    int given_up = 0;
    for (int i = 0; i < attr->n_extra && status == GD_OK; i++) {
        bool is_given_up;
        status = give_up(&m, group, attr->extra[i], users, &is_given_up);
        given_up += is_given_up;
    }
    *changes += given_up;
    return status == GD_OK && given_up > 0 ? write_maker(&m, group) : status;
}

gd_status gd_pass_recompute(gd_ir *ir, gd_arena *scratch, int *changes)
{
    gd_ir_users users;
    gd_status status = gd_ir_users_make(&users, ir, scratch);
    for (int32_t i = 0; i < (int32_t)ir->count && status == GD_OK; i++)
        status = shorten(ir, i, &users, changes);
    return status == GD_OK ? gd_ir_remove_dead(ir) : status;
}
