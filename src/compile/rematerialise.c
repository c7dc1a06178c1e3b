/* compile/rematerialise.c: rematerialisation: less memory for more work (Chen, Xu, Zhang, Guestrin,
 * "Training deep nets with sublinear memory cost", 2016; the greedy choice is that of XLA's pass;
 * see also Kumar et al., "Efficient rematerialization for deep networks", 2019). While the plan
 * needs more than .memory_limit, the step with the most bytes alive is taken, and of the values
 * that are alive across it unread, the one with the most bytes times steps freed for the least work
 * is computed again before its next use; so are operands of its that have died by then. Start at
 * gd_pass_rematerialise.
 *
 * Does nothing without a limit. May compute again only what has the same bits then: ops without
 * effects, on operands that are unchanged (a parameter before its update); random numbers are a
 * function of the stream's position at the beginning of the run, so they may be drawn again. May
 * not touch results, constants and what is computed in place of a parameter. Changes no value, and
 * no order but by the copies. */
#include "compile/passes.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "compile/group.h"
#include "compile/memory.h"

enum { MOST_OPS = 24 /* computed again for one value */ };

typedef struct state {
    gd_ir *ir;
    size_t *alive;  /* [count] bytes at each step */
    int32_t *last;  /* [count] last step that reads each root; -1: none does */
    int32_t *until; /* [count] see gd_ir_find_assignments; of targets written in place as well */
    int32_t *copy;  /* [count] for an original: a copy of it behind the peak, or -1 */
    int32_t *first, *step; /* the steps that read root i: step[first[i]] … ascending */
    int32_t from, to;      /* the op at the peak, with its parts */
    size_t peak;           /* bytes alive there */
} state;

/* An op to be made again: of a group, what one result needs. */
typedef struct recipe {
    const gd_op *op;
    const void *attr;
    int n;
    int32_t in[GD_OP_MAX_INPUTS];
    gd_fused_attr slice;
} recipe;

/* What to compute again, in order, before step `use`. */
typedef struct choice {
    int32_t value, use;
    int32_t ops[MOST_OPS];
    int n;
    double bytes, work; /* freed at the peak; spent, in bytes moved or their like */
    double score;
} choice;

/* ---- what it takes to make a value ---- */

/* The instructions of a group that its instruction `target` needs, as a group of one result. */
static bool cut_slice(const gd_ir *ir, const gd_ir_value *group, int target, recipe *r)
{
    gd_group_draft draft;
    if (!gd_group_open(ir, group, &draft))
        return false;
    memset(draft.is_result, 0, sizeof draft.is_result);
    draft.is_result[target] = true;
    draft.n_instructions = target + 1;
    r->op = gd_op_row(GD_OP_fused);
    r->attr = &r->slice;
    return gd_group_close(&draft, &r->slice, r->in, &r->n);
}

/* Ops that may be made again, and their work for one element of the result beside moving bytes; -1:
 * not made again. */
static double work_each(const gd_ir *ir, const gd_ir_value *v)
{
    const gd_layout *first = v->n ? &ir->values[v->in[0]].layout : &v->layout;
    switch (v->op->id) {
    case GD_OP_matmul:
    case GD_OP_linear: /* a multiply-add is about as dear as half a byte from memory */
        return 0.5 * (double)first->shape[first->rank - 1];
    case GD_OP_fused:
    case GD_OP_part:
    case GD_OP_full:
    case GD_OP_iota:
    case GD_OP_cast:
    case GD_OP_copy:
    case GD_OP_pad:
    case GD_OP_concat:
    case GD_OP_gather:
    case GD_OP_sum:
    case GD_OP_prod:
    case GD_OP_max:
    case GD_OP_min:
        return 0;
    case GD_OP_random_bits:
    case GD_OP_dropout:
    case GD_OP_softmax:
    case GD_OP_log_softmax:
    case GD_OP_normalize:
        return 8;
    default:
        return (v->op->flags & GD_OP_ELEMENTWISE) ? 0 : -1;
    }
}

static bool lies_in_plan(const gd_ir_value *root)
{
    return root->kind == GD_IR_OP && !root->external && !root->is_constant && !root->is_output;
}

/* How to make root value i again. */
static bool find_recipe(const gd_ir *ir, int32_t i, recipe *r)
{
    const gd_ir_value *v = &ir->values[i];
    if (!lies_in_plan(v) || gd_ir_is_view(v) || gd_ir_is_effect(v) || work_each(ir, v) < 0)
        return false;
    const gd_ir_value *group = gd_ir_is_part(v) ? &ir->values[v->in[0]] : v;
    if (group->op->id == GD_OP_fused && ((const gd_fused_attr *)group->attr)->n_more > 0) {
        const gd_fused_attr *a = group->attr;
        return gd_layout_same_shape(&group->layout, &v->layout) &&
               cut_slice(ir, group,
                         v == group ? a->n_instructions - 1
                                    : a->more[((const gd_part_attr *)v->attr)->index],
                         r);
    }
    r->op = v->op;
    r->attr = v->attr;
    r->n = v->n;
    memcpy(r->in, v->in, sizeof(int32_t) * (size_t)v->n);
    return true;
}

static double work_of(const gd_ir *ir, int32_t i, const recipe *r)
{
    const gd_ir_value *v = &ir->values[i];
    double bytes = (double)gd_layout_bytes(&v->layout);
    for (int k = 0; k < r->n; k++)
        bytes += (double)gd_layout_bytes(&ir->values[r->in[k]].layout);
    return bytes + 1 + work_each(ir, v) * (double)gd_layout_count(&v->layout);
}

/* ---- what is alive, and who reads it ---- */

/* Targets that a value is computed in are written there, as by an assignment. */
static void note_written_targets(state *s)
{
    gd_ir *ir = s->ir;
    uint64_t generation = ++ir->context->generation;
    for (int32_t i = (int32_t)ir->count; i-- > 0;) {
        const gd_ir_value *v = &ir->values[i];
        gd_storage *storage = v->external ? v->external->storage : NULL;
        if (v->kind == GD_IR_OP && storage) {
            storage->mark = generation;
            storage->trace_version = i;
        } else if (v->kind == GD_IR_EXTERNAL && storage->mark == generation &&
                   storage->trace_version < s->until[i]) {
            s->until[i] = storage->trace_version;
        }
    }
}

static bool reads(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && !gd_ir_is_view(v) && !gd_ir_is_part(v);
}

/* All readers of each root, as gd_ir_users_make does it for values. */
static gd_status find_readers(state *s)
{
    const gd_ir *ir = s->ir;
    size_t total = 0;
    for (size_t i = 0; i < ir->count; i++)
        total += reads(&ir->values[i]) ? (size_t)ir->values[i].n : 0;
    s->first = gd_alloc_zero(ir->count + 2 + total, sizeof(int32_t));
    if (!s->first)
        return GD_ERR_MEMORY;
    s->step = s->first + ir->count + 2;
    for (size_t i = 0; i < ir->count; i++)
        for (int k = 0; reads(&ir->values[i]) && k < ir->values[i].n; k++)
            s->first[ir->values[ir->values[i].in[k]].root + 2]++;
    for (size_t i = 2; i < ir->count + 2; i++)
        s->first[i] += s->first[i - 1];
    for (size_t i = 0; i < ir->count; i++)
        for (int k = 0; reads(&ir->values[i]) && k < ir->values[i].n; k++) {
            int32_t root = ir->values[ir->values[i].in[k]].root;
            s->step[s->first[root + 1]++] = (int32_t)i;
        }
    for (size_t i = 0; i < ir->count; i++)
        s->last[i] = s->first[i + 1] > s->first[i] ? s->step[s->first[i + 1] - 1] : -1;
    return GD_OK;
}

static void state_free(state *s)
{
    gd_free(s->alive);
    gd_free(s->last);
    gd_free(s->until);
    gd_free(s->copy);
    gd_free(s->first);
}

/* Look at the program as it is now. */
static gd_status look(state *s, gd_ir *ir, size_t originals)
{
    size_t count = ir->count + 1;
    *s = (state){ .ir = ir };
    s->alive = gd_alloc_zero(count, sizeof *s->alive);
    s->last = gd_alloc(count * sizeof *s->last);
    s->until = gd_alloc(count * sizeof *s->until);
    s->copy = gd_alloc((originals + 1) * sizeof *s->copy);
    if (!s->alive || !s->last || !s->until || !s->copy || find_readers(s) != GD_OK ||
        gd_memory_alive(ir, s->alive) != GD_OK)
        return GD_ERR_MEMORY;
    gd_ir_find_assignments(ir, s->until);
    note_written_targets(s);
    for (int32_t i = 0; i < (int32_t)ir->count; i++)
        s->from = s->alive[i] > s->alive[s->from] ? i : s->from;
    s->peak = s->alive[s->from];
    if (gd_ir_is_part(&ir->values[s->from]))
        s->from = ir->values[s->from].in[0];
    s->to = s->from;
    while (s->to + 1 < (int32_t)ir->count && gd_ir_is_part(&ir->values[s->to + 1]))
        s->to++;
    for (size_t i = 0; i < originals; i++)
        s->copy[i] = -1;
    for (int32_t i = (int32_t)ir->count; --i > s->to;)
        s->copy[ir->values[i].origin] = i;
    return GD_OK;
}

/* ---- choosing ---- */

/* Whether a copy of value x, or x itself, is there to be read before step `use` at no cost at the
 * peak: the value to read, or -1. */
static int32_t at_hand(const state *s, int32_t x, int32_t use)
{
    const gd_ir_value *v = &s->ir->values[x];
    if (!lies_in_plan(v) || s->last[x] >= s->from || x > s->to)
        return x;
    int32_t copy = s->copy[v->origin];
    return copy >= 0 && copy < use && lies_in_plan(&s->ir->values[copy]) ? copy : -1;
}

/* Whether reading root x on until `use` makes another step as bad as the peak. */
static bool makes_peak(const state *s, int32_t x, int32_t use, size_t freed)
{
    size_t bytes = gd_layout_bytes(&s->ir->values[x].layout), peak = s->alive[s->from];
    int32_t begin = s->last[x] > s->to ? s->last[x] + 1 : s->to + 1;
    for (int32_t i = begin; i <= use; i++)
        if (s->alive[i] + bytes >= peak + (i < use ? freed : 0))
            return true;
    return false;
}

/* Add what makes value i again before c->use, operands first. */
static bool add_op(const state *s, choice *c, int32_t i)
{
    recipe r;
    size_t freed = gd_layout_bytes(&s->ir->values[c->value].layout);
    for (int k = 0; k < c->n; k++)
        if (c->ops[k] == i)
            return true;
    if (c->n == MOST_OPS || !find_recipe(s->ir, i, &r))
        return false;
    double work = work_of(s->ir, i, &r);
    for (int k = 0; k < r.n; k++) {
        int32_t root = s->ir->values[r.in[k]].root, source = at_hand(s, root, c->use);
        const gd_ir_value *v = &s->ir->values[root];
        if (v->kind == GD_IR_EXTERNAL && s->until[root] < c->use)
            return false;
        if (source >= 0 && lies_in_plan(&s->ir->values[source]) && s->last[source] < c->use &&
            makes_peak(s, source, c->use, freed))
            source = -1; /* rather make it again */
        if (source < 0 && !add_op(s, c, root))
            return false;
    }
    if (c->n == MOST_OPS)
        return false;
    c->work += work;
    c->ops[c->n++] = i;
    return true;
}

/* Making value i again for its uses behind the peak, if it is alive there and not read. */
static bool consider(const state *s, int32_t i, choice *c)
{
    const gd_ir_value *v = &s->ir->values[i];
    if (v->root != i || !lies_in_plan(v) || s->last[i] <= s->to || gd_layout_bytes(&v->layout) == 0)
        return false;
    int32_t before = i;
    int32_t u = s->first[i];
    for (; s->step[u] <= s->to; u++)
        before = s->step[u];
    if (before >= s->from)
        return false;
    *c = (choice){ .value = i, .use = s->step[u], .bytes = (double)gd_layout_bytes(&v->layout) };
    if (!add_op(s, c, i))
        return false;
    size_t beside = 0; /* made for it, while it is alive as well */
    for (int k = 0; k + 1 < c->n; k++)
        beside += gd_layout_bytes(&s->ir->values[c->ops[k]].layout);
    if (s->alive[c->use] + beside >= s->alive[s->from] && beside > 0)
        return false;
    c->score = c->bytes * (double)(c->use - before) / c->work;
    return true;
}

/* ---- carrying it out ---- */

/* The value to read in place of x: made again itself, or a view of what is. map: 0 where nothing
 * is, else the new value. -1: out of memory. */
static int32_t now(gd_ir *ir, int32_t *map, int32_t x)
{
    if (map[x] || !gd_ir_is_view(&ir->values[x]))
        return map[x] ? map[x] : x;
    int32_t base = now(ir, map, ir->values[x].in[0]);
    if (base == ir->values[x].in[0] || base < 0)
        return base < 0 ? -1 : x;
    const gd_ir_value *v = &ir->values[x];
    int32_t origin = v->origin;
    const gd_layout layout = v->layout;
    int32_t made = gd_ir_push(ir, v->op, 1, &base, v->attr, &layout);
    if (made >= 0)
        ir->values[made].origin = origin;
    return map[x] = made;
}

static gd_status make_again(const state *s, const choice *c, int32_t *map, int32_t i)
{
    gd_ir *ir = s->ir;
    recipe r;
    if (!find_recipe(ir, i, &r))
        return gd_fail(GD_ERR_STATE, "compiler fault in rematerialise: value %d", i);
    for (int k = 0; k < r.n; k++) {
        int32_t root = ir->values[r.in[k]].root;
        if (!map[root]) {
            int32_t source = at_hand(s, root, c->use);
            map[root] = source == root ? 0 : source;
        }
        r.in[k] = now(ir, map, r.in[k]);
        if (r.in[k] < 0)
            return GD_ERR_MEMORY;
    }
    const gd_layout layout = ir->values[i].layout;
    int32_t origin = ir->values[i].origin;
    int32_t made = gd_ir_push(ir, r.op, r.n, r.in, r.attr, &layout);
    if (made < 0)
        return GD_ERR_MEMORY;
    ir->values[made].origin = origin;
    ir->values[made].is_recomputed = true;
    map[i] = made;
    return GD_OK;
}

/* Reads of c->value from step `use` on are of its copy. */
static gd_status redirect(gd_ir *ir, const choice *c, int32_t *map, int32_t count)
{
    for (int32_t i = c->use; i < count; i++) {
        for (int k = 0; ir->values[i].kind == GD_IR_OP && k < ir->values[i].n; k++) {
            int32_t x = ir->values[i].in[k];
            if (ir->values[x].root != c->value || gd_ir_is_part(&ir->values[i]))
                continue;
            int32_t y = now(ir, map, x);
            if (y < 0)
                return GD_ERR_MEMORY;
            ir->values[i].in[k] = y;
        }
        if (gd_ir_is_view(&ir->values[i]))
            ir->values[i].root = ir->values[ir->values[i].in[0]].root;
    }
    return GD_OK;
}

static gd_status carry_out(const state *s, const choice *c)
{
    gd_ir *ir = s->ir;
    int32_t count = (int32_t)ir->count;
    int32_t *map = gd_alloc_zero(ir->count + 1, sizeof *map), *order = NULL;
    gd_status status = map ? GD_OK : GD_ERR_MEMORY;
    for (int k = 0; status == GD_OK && k < c->n; k++)
        status = make_again(s, c, map, c->ops[k]);
    /* What was made on the way is for the copy alone: later readers keep to what they read. */
    for (int k = 0; status == GD_OK && k < count; k++)
        if (k != c->value && ir->values[k].root != c->value)
            map[k] = 0;
    if (status == GD_OK)
        status = redirect(ir, c, map, count);
    order = status == GD_OK ? gd_alloc((ir->count + 1) * sizeof *order) : NULL;
    if (order) {
        size_t n = 0;
        for (int32_t i = 0; i < c->use; i++)
            order[n++] = i;
        for (int32_t i = count; i < (int32_t)ir->count; i++)
            order[n++] = i;
        for (int32_t i = c->use; i < count; i++)
            order[n++] = i;
        status = gd_ir_reorder(ir, order, n);
    } else if (status == GD_OK) {
        status = GD_ERR_MEMORY;
    }
    gd_free(map);
    gd_free(order);
    return status;
}

/* ---- the pass ---- */

/* The bytes the plan will take. */
static gd_status planned(const gd_ir *ir, size_t *bytes)
{
    gd_memory_plan plan;
    gd_status status = gd_memory_plan_make(&plan, ir);
    *bytes = plan.bytes;
    gd_memory_plan_free(&plan);
    return status;
}

/* One value less at the peak. The plan's bytes are looked at only where they may be the least so
 * far, or within the limit: no plan is smaller than what is alive at its peak. *done: it fits, or
 * there is no value that could go. */
static gd_status lower_peak(gd_ir *ir, size_t originals, size_t *lowest_peak, size_t *least,
                            bool *done)
{
    state s;
    choice best = { .score = 0 }, c;
    gd_status status = look(&s, ir, originals);
    if (status == GD_OK && (s.peak < *lowest_peak || s.peak <= ir->memory_limit)) {
        size_t bytes = 0;
        status = planned(ir, &bytes);
        *lowest_peak = s.peak < *lowest_peak ? s.peak : *lowest_peak;
        *least = bytes < *least ? bytes : *least;
    }
    *done = *least <= ir->memory_limit;
    if (status == GD_OK && !*done) {
        for (int32_t i = 0; i < s.from; i++)
            if (consider(&s, i, &c) && c.score > best.score)
                best = c;
        *done = best.score <= 0;
        if (!*done)
            status = carry_out(&s, &best);
    }
    state_free(&s);
    return status;
}

gd_status gd_pass_rematerialise(gd_ir *ir, int *changes)
{
    if (ir->memory_limit == 0)
        return GD_OK;
    gd_status status = planned(ir, &ir->unlimited_bytes);
    for (size_t i = 0; i < ir->count; i++)
        ir->values[i].origin = (int32_t)i;
    size_t originals = ir->count, most = 4 * originals + 64;
    size_t least = ir->unlimited_bytes, peak = SIZE_MAX;
    bool done = least <= ir->memory_limit;
    while (status == GD_OK && !done && ir->count <= most)
        status = lower_peak(ir, originals, &peak, &least, &done);
    for (size_t i = 0; i < ir->count; i++)
        *changes += ir->values[i].is_recomputed;
    if (status != GD_OK || least <= ir->memory_limit)
        return status;
    return gd_fail(GD_ERR_MEMORY,
                   "gd_compile: the plan cannot be made to fit .memory_limit = %zu B; the least "
                   "that was reached is %zu B",
                   ir->memory_limit, least);
}
