/* compile/rematerialise.c: rematerialisation: less memory for more work (Chen, Xu, Zhang, Guestrin,
 * "Training deep nets with sublinear memory cost", 2016; the greedy choice is that of XLA's pass;
 * see also Kumar et al., "Efficient rematerialization for deep networks", 2019). While the plan
 * needs more than .memory_limit, the step with the most bytes alive is taken, and of the values
 * that are alive across it unread, those with the most bytes times steps freed for the least work
 * are computed again before their next use; so are operands of theirs that have died by then. A
 * sixteenth of the peak, at least one value, goes at a time, so that the program is looked at a
 * number of times that does not grow with it; how much does not depend on the limit, so that a
 * limit that a plan can reach is reached. Start at gd_pass_rematerialise.
 *
 * Does nothing without a limit. May compute again only what has the same bits then: ops without
 * effects, on operands that are unchanged (a parameter before its update); random numbers are a
 * function of the stream's position at the beginning of the run, so they may be drawn again. May
 * not touch results, constants and what is computed in place of a parameter. Changes no value, and
 * no order but by the copies. */
#include "compile/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "compile/group.h"
#include "compile/memory.h"

enum { MOST_OPS = 24 /* computed again for one value */ };
enum { SHARE = 16 /* of the peak that goes at a time */ };

typedef struct state {
    gd_ir *ir;
    gd_arena scratch; /* of the arrays below, and of a round */
    size_t *alive;    /* [count] bytes at each step */
    size_t *most;  /* [levels, count] most[l, i]: the largest of alive[i] … alive[i + 2^l - 1] */
    int32_t *last; /* [count] last step that reads each root; -1: none does */
    int32_t *
        overwritten_at; /* [count] see gd_ir_find_assignments; of targets written in place as well */
    int32_t *copy;      /* [count] for an original: a copy of it behind the peak, or -1 */
    int32_t *first, *step; /* the steps that read root i: step[first[i]] … ascending */
    int32_t from, to;      /* the op at the peak, with its extra results */
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
    const gd_device_limits *limits = &ir->context->device->limits;
    if (!gd_group_close(&draft, limits, &r->slice, r->in))
        return false;
    r->n = r->slice.n_inputs;
    gd_layout layout = group->layout;
    layout.dtype = (gd_dtype)draft.instruction[target].dtype;
    return gd_ir_device_takes(ir, r->op, r->attr, r->n, r->in, &layout, NULL);
}

/* How to make root value i again. */
static bool find_recipe(const gd_ir *ir, int32_t i, recipe *r)
{
    const gd_ir_value *v = &ir->values[i];
    if (!gd_ir_is_temporary(v) || v->op->recompute == GD_RECOMPUTE_NEVER)
        return false;
    const gd_ir_value *group = gd_ir_is_extra(v) ? &ir->values[v->in[0]] : v;
    if (group->op->extra > 0)
        return false;
    if (group->op->id == GD_OP_fused && ((const gd_fused_attr *)group->attr)->n_extra > 0) {
        const gd_fused_attr *a = group->attr;
        return gd_layout_same_shape(&group->layout, &v->layout) &&
               cut_slice(ir, group,
                         v == group ? a->n_instructions - 1
                                    : a->extra[((const gd_extra_result_attr *)v->attr)->index],
                         r);
    }
    r->op = v->op;
    r->attr = v->attr;
    r->n = v->n;
    memcpy(r->in, v->in, sizeof(int32_t) * (size_t)v->n);
    return true;
}

/* The cost of making value i again, in bytes that could be moved in that time. */
static double work_of(const gd_ir *ir, int32_t i, const recipe *r)
{
    enum { BYTES_A_FUNCTION = 8, FLOPS_A_BYTE = 4 };
    const gd_ir_value *v = &ir->values[i];
    double bytes = 1 + (double)gd_layout_bytes(&v->layout);
    for (int k = 0; k < r->n; k++)
        bytes += (double)gd_layout_bytes(&ir->values[r->in[k]].layout);
    if (v->op->recompute == GD_RECOMPUTE_FUNCTION)
        return bytes + BYTES_A_FUNCTION * (double)gd_layout_count(&v->layout);
    if (v->op->recompute != GD_RECOMPUTE_PRODUCT)
        return bytes;
    const gd_layout *in[GD_OP_MAX_INPUTS];
    gd_ir_layouts(ir, v, in);
    return bytes + v->op->flops(v->n, in, &v->layout, v->attr) / FLOPS_A_BYTE;
}

/* ---- live bytes and readers ---- */

/* Targets that a value is computed in are written there, as by an assignment. */
static gd_status note_written_targets(state *s)
{
    const gd_ir *ir = s->ir;
    /* of each memory, the next value that is computed there, in the walk up the program; 0: none */
    int32_t *next = gd_arena_array(&s->scratch, (size_t)ir->memory_count + 1, sizeof *next);
    if (!next)
        return GD_ERR_MEMORY;
    for (int32_t i = (int32_t)ir->count; i-- > 0;) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind == GD_IR_OP && v->memory >= 0)
            next[v->memory] = i;
        else if (v->kind == GD_IR_EXTERNAL && next[v->memory] &&
                 next[v->memory] < s->overwritten_at[i])
            s->overwritten_at[i] = next[v->memory];
    }
    return GD_OK;
}

static bool reads(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && !gd_ir_is_view(v) && !gd_ir_is_extra(v);
}

/* All readers of each root, as gd_ir_users_make does it for values. */
static gd_status find_readers(state *s)
{
    const gd_ir *ir = s->ir;
    size_t total = 0;
    for (size_t i = 0; i < ir->count; i++)
        total += reads(&ir->values[i]) ? (size_t)ir->values[i].n : 0;
    s->first = gd_arena_array(&s->scratch, ir->count + 2 + total, sizeof(int32_t));
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

static gd_status find_most_alive(state *s)
{
    const size_t count = s->ir->count;
    size_t levels = 1;
    while ((size_t)1 << levels <= count)
        levels++;
    s->most = gd_arena_array(&s->scratch, levels * count + 1, sizeof *s->most);
    if (!s->most)
        return GD_ERR_MEMORY;
    memcpy(s->most, s->alive, count * sizeof *s->most);
    for (size_t l = 1; l < levels; l++)
        for (size_t i = 0; i + ((size_t)1 << l) <= count; i++) {
            const size_t *half = s->most + (l - 1) * count + i;
            const size_t a = half[0], b = half[(size_t)1 << (l - 1)];
            s->most[l * count + i] = a > b ? a : b;
        }
    return GD_OK;
}

/* Look at the program as it is now. */
static gd_status look(state *s, gd_ir *ir, size_t originals)
{
    size_t count = ir->count + 1;
    *s = (state){ .ir = ir };
    s->alive = gd_arena_array(&s->scratch, count, sizeof *s->alive);
    s->last = gd_arena_array(&s->scratch, count, sizeof *s->last);
    s->overwritten_at = gd_ir_find_assignments(ir, &s->scratch);
    s->copy = gd_arena_array(&s->scratch, originals + 1, sizeof *s->copy);
    if (!s->alive || !s->last || !s->overwritten_at || !s->copy || find_readers(s) != GD_OK ||
        gd_memory_alive(ir, s->alive) != GD_OK || find_most_alive(s) != GD_OK ||
        note_written_targets(s) != GD_OK)
        return GD_ERR_MEMORY;
    for (int32_t i = 0; i < (int32_t)ir->count; i++)
        s->from = s->alive[i] > s->alive[s->from] ? i : s->from;
    s->peak = s->alive[s->from];
    if (gd_ir_is_extra(&ir->values[s->from]))
        s->from = ir->values[s->from].in[0];
    s->to = s->from;
    while (s->to + 1 < (int32_t)ir->count && gd_ir_is_extra(&ir->values[s->to + 1]))
        s->to++;
    for (size_t i = 0; i < originals; i++)
        s->copy[i] = -1;
    for (int32_t i = (int32_t)ir->count; --i > s->to;)
        s->copy[ir->values[i].origin] = i;
    return GD_OK;
}

/* ---- choosing ---- */

/* The value that can be read in place of x before step `use` without more bytes alive at the peak: x
 * itself, or a copy of it that is made behind the peak. -1: there is none. */
static int32_t available(const state *s, int32_t x, int32_t use)
{
    const gd_ir_value *v = &s->ir->values[x];
    if (!gd_ir_is_temporary(v) || s->last[x] >= s->from || x > s->to)
        return x;
    int32_t copy = s->copy[v->origin];
    return copy >= 0 && copy < use && gd_ir_is_temporary(&s->ir->values[copy]) ? copy : -1;
}

/* The most bytes alive at steps begin … end - 1. */
static size_t most_alive(const state *s, int32_t begin, int32_t end)
{
    if (begin >= end)
        return 0;
    const int level = 31 - __builtin_clz((unsigned)(end - begin));
    const size_t *most = s->most + (size_t)level * s->ir->count;
    const size_t a = most[begin], b = most[end - (1 << level)];
    return a > b ? a : b;
}

/* Whether reading root x on overwritten_at `use` makes another step as bad as the peak. */
static bool makes_peak(const state *s, int32_t x, int32_t use, size_t freed)
{
    size_t bytes = gd_layout_bytes(&s->ir->values[x].layout), peak = s->alive[s->from];
    int32_t begin = s->last[x] > s->to ? s->last[x] + 1 : s->to + 1;
    return most_alive(s, begin, use) + bytes >= peak + freed ||
           (begin <= use && s->alive[use] + bytes >= peak);
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
        int32_t root = s->ir->values[r.in[k]].root, source = available(s, root, c->use);
        const gd_ir_value *v = &s->ir->values[root];
        if (v->kind == GD_IR_EXTERNAL && s->overwritten_at[root] < c->use)
            return false;
        if (source >= 0 && gd_ir_is_temporary(&s->ir->values[source]) && s->last[source] < c->use &&
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
    if (v->root != i || !gd_ir_is_temporary(v) || s->last[i] <= s->to ||
        gd_layout_bytes(&v->layout) == 0)
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

/* A round of choices as they are carried out: the values that are new stand behind the program's
 * `count` overwritten_at they are brought into order. */
typedef struct round_of {
    const state *s;
    gd_ir *ir;
    int32_t count;
    int32_t *before; /* [new values] the step that new value count + i goes before */
    size_t capacity;
    int32_t *use;  /* [count] of a value made again: the step from which its copy is read; else 0 */
    int32_t *copy; /* [count] what is read from then on in place of it, or of a view of it; or 0 */
    int32_t *here; /* [count] what the ops of choice number stamp[i] read in place of i */
    int32_t *stamp;
    int32_t choice;           /* its number, from 1 */
    unsigned char *is_needed; /* [count] read by what is made again */
} round_of;

static int32_t push(round_of *r, int32_t before, int32_t like, const recipe *made)
{
    gd_ir *ir = r->ir;
    const gd_layout layout = ir->values[like].layout;
    const int32_t origin = ir->values[like].origin;
    if (!gd_grow((void **)&r->before, &r->capacity, ir->count + 1 - (size_t)r->count,
                 sizeof *r->before))
        return -1;
    const int32_t at = gd_ir_push(ir, made->op, made->n, made->in, made->attr, &layout);
    if (at < 0)
        return -1;
    r->before[at - r->count] = before;
    ir->values[at].origin = origin;
    ir->values[at].phase = GD_PHASE_BACKWARD; /* which it is made again for */
    return at;
}

/* What step `before` is to read in place of x: root's substitute itself, or the same view of it,
 * which map remembers. -1: out of memory. */
static int32_t view_of(round_of *r, int32_t *map, int32_t *stamp, int32_t before, int32_t x,
                       int32_t root, int32_t substitute)
{
    if (x == root)
        return substitute;
    if (map[x] && (!stamp || stamp[x] == r->choice))
        return map[x];
    const gd_ir_value *v = &r->ir->values[x];
    recipe view = { .op = v->op, .attr = v->attr, .n = 1 };
    view.in[0] = view_of(r, map, stamp, before, v->in[0], root, substitute);
    if (view.in[0] < 0)
        return -1;
    if (stamp)
        stamp[x] = r->choice;
    return map[x] = push(r, before, x, &view);
}

static gd_status make_again(round_of *r, const choice *c, int32_t i)
{
    recipe again;
    if (!find_recipe(r->ir, i, &again))
        return gd_fail(GD_ERR_STATE, "compiler fault in rematerialise: value %d", i);
    for (int k = 0; k < again.n; k++) {
        const int32_t x = again.in[k], root = r->ir->values[x].root;
        const int32_t source =
            r->stamp[root] == r->choice ? r->here[root] : available(r->s, root, c->use);
        if (source < r->count)
            r->is_needed[r->ir->values[source].root] = 1;
        if (source != root)
            again.in[k] = view_of(r, r->here, r->stamp, c->use, x, root, source);
        if (again.in[k] < 0)
            return GD_ERR_MEMORY;
    }
    const int32_t made = push(r, c->use, i, &again);
    if (made < 0)
        return GD_ERR_MEMORY;
    r->ir->values[made].is_recomputed = true;
    r->stamp[i] = r->choice;
    r->here[i] = made;
    return GD_OK;
}

/* Reads of values made again, from their next use on, are of the copies. */
static gd_status redirect(round_of *r)
{
    gd_ir *ir = r->ir;
    for (int32_t i = 0; i < r->count; i++) {
        for (int k = 0; ir->values[i].kind == GD_IR_OP && k < ir->values[i].n; k++) {
            const int32_t x = ir->values[i].in[k], root = ir->values[x].root;
            if (root >= r->count || !r->use[root] || i < r->use[root] ||
                gd_ir_is_extra(&ir->values[i]))
                continue;
            const int32_t y = view_of(r, r->copy, NULL, r->use[root], x, root, r->copy[root]);
            if (y < 0)
                return GD_ERR_MEMORY;
            ir->values[i].in[k] = y;
        }
        if (gd_ir_is_view(&ir->values[i]))
            ir->values[i].root = ir->values[ir->values[i].in[0]].root;
    }
    return GD_OK;
}

/* New values go before their steps, in the order they were made. */
static gd_status bring_into_order(round_of *r, gd_arena *scratch)
{
    const int32_t total = (int32_t)r->ir->count, count = r->count;
    int32_t *order = gd_arena_array(scratch, (size_t)total + 1, sizeof *order);
    /* of the first new value before a step; then of the step */
    int32_t *place = gd_arena_array(scratch, (size_t)count + 1, sizeof *place);
    if (!order || !place)
        return GD_ERR_MEMORY;
    for (int32_t i = count; i < total; i++)
        place[r->before[i - count] + 1]++;
    for (int32_t i = 0; i < count; i++)
        place[i + 1] += place[i] + 1;
    /* place[i]: where what belongs to step i begins */
    for (int32_t i = count; i < total; i++)
        order[place[r->before[i - count]]++] = i;
    for (int32_t i = 0; i < count; i++)
        order[place[i]] = i;
    return gd_ir_reorder(r->ir, order, (size_t)total);
}

/* Whether a choice can be carried out beside those of the round: nothing it reads is computed again
 * by them, and they do not read what it computes again. */
static bool is_compatible(const round_of *r, const choice *c)
{
    if (r->is_needed[c->value] || r->use[c->value])
        return false;
    for (int k = 0; k < c->n; k++) {
        recipe again;
        if (!find_recipe(r->ir, c->ops[k], &again))
            return false;
        for (int j = 0; j < again.n; j++) {
            const int32_t root = r->ir->values[again.in[j]].root;
            const int32_t source = available(r->s, root, c->use);
            if (r->use[root] || (source >= 0 && r->use[r->ir->values[source].root]))
                return false;
        }
    }
    return true;
}

static int by_score(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->value < y->value ? -1 : 1;
}

/* The best of n choices, overwritten_at a share of the peak is freed. */
static gd_status carry_out(state *s, choice *choices, size_t n)
{
    gd_ir *ir = s->ir;
    round_of r = { .s = s, .ir = ir, .count = (int32_t)ir->count };
    r.use = gd_arena_array(&s->scratch, ir->count + 1, sizeof *r.use);
    r.copy = gd_arena_array(&s->scratch, ir->count + 1, sizeof *r.copy);
    r.here = gd_arena_array(&s->scratch, ir->count + 1, sizeof *r.here);
    r.stamp = gd_arena_array(&s->scratch, ir->count + 1, sizeof *r.stamp);
    r.is_needed = gd_arena_array(&s->scratch, ir->count + 1, 1);
    gd_status status = r.use && r.copy && r.here && r.stamp && r.is_needed ? GD_OK : GD_ERR_MEMORY;
    qsort(choices, n, sizeof *choices, by_score);
    double freed = 0;
    for (size_t i = 0; status == GD_OK && i < n; i++) {
        const choice *c = &choices[i];
        if (i > 0 && (freed + c->bytes > (double)s->peak / SHARE || !is_compatible(&r, c)))
            continue;
        r.choice++;
        for (int k = 0; status == GD_OK && k < c->n; k++)
            status = make_again(&r, c, c->ops[k]);
        r.use[c->value] = c->use;
        r.copy[c->value] = r.here[c->value];
        freed += c->bytes;
    }
    if (status == GD_OK)
        status = redirect(&r);
    if (status == GD_OK)
        status = bring_into_order(&r, &s->scratch);
    gd_free(r.before);
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

/* A round: fewer values at the peak. The plan's bytes are looked at only where they may be the
 * least so far, or within the limit: no plan is smaller than what is alive at its peak. *done: it
 * fits, or there is no value that could go. */
static gd_status lower_peak(gd_ir *ir, size_t originals, size_t *lowest_peak, size_t *least,
                            bool *done)
{
    state s;
    size_t n = 0;
    gd_status status = look(&s, ir, originals);
    if (status == GD_OK && (s.peak < *lowest_peak || s.peak <= ir->options.memory_limit)) {
        size_t bytes = 0;
        status = planned(ir, &bytes);
        *lowest_peak = s.peak < *lowest_peak ? s.peak : *lowest_peak;
        *least = bytes < *least ? bytes : *least;
    }
    *done = *least <= ir->options.memory_limit;
    if (status == GD_OK && !*done) {
        choice *choices = gd_arena_array(&s.scratch, (size_t)s.from + 1, sizeof *choices);
        status = choices ? GD_OK : GD_ERR_MEMORY;
        for (int32_t i = 0; status == GD_OK && i < s.from; i++)
            n += consider(&s, i, &choices[n]) && choices[n].score > 0;
        *done = n == 0;
        if (status == GD_OK && !*done)
            status = carry_out(&s, choices, n);
    }
    gd_arena_close(&s.scratch);
    return status;
}

gd_status gd_pass_rematerialise(gd_ir *ir, gd_arena *scratch, int *changes)
{
    (void)scratch; /* a round has its own */
    if (ir->options.memory_limit == SIZE_MAX)
        return GD_OK;
    gd_status status = planned(ir, &ir->unlimited_bytes);
    for (size_t i = 0; i < ir->count; i++)
        ir->values[i].origin = (int32_t)i;
    size_t originals = ir->count, most = 4 * originals + 64;
    size_t least = ir->unlimited_bytes, peak = SIZE_MAX;
    bool done = least <= ir->options.memory_limit;
    while (status == GD_OK && !done && ir->count <= most)
        status = lower_peak(ir, originals, &peak, &least, &done);
    for (size_t i = 0; i < ir->count; i++)
        *changes += ir->values[i].is_recomputed;
    if (status != GD_OK || least <= ir->options.memory_limit)
        return status;
    return gd_fail(GD_ERR_MEMORY,
                   "gd_compile: the plan cannot be made to fit .memory_limit = %zu B; the least "
                   "that was reached is %zu B",
                   ir->options.memory_limit, least);
}
