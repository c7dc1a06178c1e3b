/* compile/call_gradient.c: a compiled function called eagerly where history is recorded. Start at
 * gd_call_gradient_run().
 *
 * The call becomes one node, `call`, whose inputs are the arguments and every tensor from outside
 * that the body reads; its value is the memory the plan ran in, and each result is a view of that.
 * The vjp of the node is a plan too. When the body is traced, the gradient of its results is
 * recorded behind it, in the same trace; what that reads of the forward ops are further results of
 * the forward plan (as AOTAutograd does in PyTorch), except views and constants, which are made
 * again. The second derivative is the gradient of the recorded gradient: it is recorded and planned
 * when it is asked for, and computes what it needs from the inputs, the forward ops included. So
 * any order works.
 *
 * What is recorded is what gd_grad makes, so the bits are eager's. A result that no gradient
 * reaches has no seed, rather than zeros: each choice of results has a plan of its own. */
#include "compile/call_gradient.h"

#include <string.h>

#include <gradus/autograd.h>

#include "base/error.h"
#include "base/memory.h"
#include "compile/plan.h"
#include "compile/storages.h"
#include "graph/trace.h"
#include "ops/internal.h"

typedef struct derivative derivative;

/* A program that is called as one node: the body, or a gradient of another stage. */
typedef struct gd_stage {
    gd_call_gradient *gradient;
    gd_tensor **inputs;  /* [n_inputs] as recorded: placeholders, then tensors from outside */
    gd_tensor **outputs; /* [n_outputs] */
    int n_inputs, n_placeholders, n_outputs;
    gd_tensor **saved; /* [n_saved] values the gradient reads; of the body alone */
    size_t *saved_at;  /* [n_saved] where they lie in the memory of a call */
    int n_saved;
    gd_plan *plan;           /* of a gradient; that of the body belongs to the cache */
    gd_tensor **seeds;       /* [n_outputs] of the vjp at hand */
    gd_tensor **operands;    /* [n_inputs + 1] of the node that is made */
    derivative *derivatives; /* made so far */
} gd_stage;

/* The gradient of a stage by its inputs, for some of its outputs. */
struct derivative {
    derivative *next;
    gd_stage made;    /* its inputs: the placeholders of the stage, seeds, tensors from outside */
    bool *is_seeded;  /* [the stage's n_outputs] */
    int *target;      /* [made.n_outputs] the input each gradient belongs to */
    bool *is_read;    /* [the stage's n_inputs] */
    void **arguments; /* addresses for its plan: placeholders, seeds, saved values */
};

struct gd_call_gradient {
    gd_deferred deferred;
    gd_context *context;
    int64_t refs;
    gd_trace *trace;
    size_t forward_count; /* nodes of the body; those of gradients follow */
    uint64_t first_id;    /* of what was recorded */
    uint64_t random_words;
    gd_plan_options options;
    gd_stage body;
    char failure[256]; /* why there is no gradient */
};

/* ---- making and ending ---- */

static void release_all(gd_tensor **tensors, int count)
{
    for (int i = 0; tensors && i < count; i++)
        gd_unlink(tensors[i]);
    gd_free(tensors);
}

static void clear_stage(gd_stage *s)
{
    while (s->derivatives) {
        derivative *d = s->derivatives;
        s->derivatives = d->next;
        clear_stage(&d->made);
        gd_free(d->is_seeded);
        gd_free(d->target);
        gd_free(d->is_read);
        gd_free(d->arguments);
        gd_free(d);
    }
    gd_plan_free(s->plan);
    release_all(s->inputs, s->n_inputs);
    release_all(s->outputs, s->n_outputs);
    gd_free(s->saved); /* held by the trace */
    gd_free(s->saved_at);
    gd_free(s->seeds);
    gd_free(s->operands);
}

static void destroy(gd_deferred *object)
{
    gd_call_gradient *c = (gd_call_gradient *)(void *)object; /* its first member */
    if (c->deferred.before)
        c->deferred.before->after = c->deferred.after;
    else
        c->context->deferred = c->deferred.after;
    if (c->deferred.after)
        c->deferred.after->before = c->deferred.before;
    clear_stage(&c->body);
    if (c->trace)
        gd_trace_clear(c->trace);
    gd_free(c->trace);
    gd_free(c);
}

void gd_call_gradient_retain(gd_call_gradient *gradient)
{
    gradient->refs++;
}

void gd_call_gradient_drop(void *gradient)
{
    gd_call_gradient *c = gradient;
    if (c && --c->refs == 0)
        destroy(&c->deferred);
}

/* An array of references; NULL: out of memory. */
static gd_tensor **hold(gd_tensor *const *tensors, int count, int more)
{
    gd_tensor **held = gd_alloc_zero((size_t)count + (size_t)more + 1, sizeof *held);
    for (int i = 0; held && i < count; i++)
        held[i] = gd_link(tensors[i]);
    return held;
}

/* ---- what the body reads from outside ---- */

/* Note t, a tensor from outside, unless it is known. */
static bool add_outside(gd_call_gradient *c, gd_tensor *t, size_t *capacity)
{
    gd_stage *s = &c->body;
    if (!t->storage || t == c->context->random_state || t->mark == c->context->generation)
        return true;
    if (!gd_grow((void **)&s->inputs, capacity, (size_t)s->n_inputs + 1, sizeof *s->inputs))
        return false;
    t->mark = c->context->generation;
    s->inputs[s->n_inputs++] = gd_link(t);
    return true;
}

static bool find_outside(gd_call_gradient *c)
{
    size_t capacity = (size_t)c->body.n_inputs;
    bool ok = true;
    c->context->generation++;
    for (size_t i = 0; ok && i < c->forward_count; i++)
        for (int k = 0; ok && k < c->trace->nodes[i]->n_inputs; k++)
            ok = add_outside(c, c->trace->nodes[i]->inputs[k], &capacity);
    for (int i = 0; ok && i < c->body.n_outputs; i++)
        ok = add_outside(c, c->body.outputs[i], &capacity);
    return ok;
}

/* ---- recording a gradient ---- */

/* A placeholder for the gradient of output t. */
static gd_tensor *seed_for(gd_call_gradient *c, const gd_tensor *t)
{
    gd_tensor *place = gd_node_new(c->context, NULL, 0, NULL, NULL, false);
    if (!place || gd_layout_init(&place->layout, gd_layout_shape(&t->layout), t->layout.dtype,
                                 "gd_grad") != GD_OK)
        return NULL;
    place->requires_grad = true;
    place->trace = c->trace;
    return place;
}

/* The inputs of d's stage: s's placeholders, seeds for its seeded outputs, then what s has from
 * outside. outputs, seeds: the seeded ones. Returns how many there are; -1: out of memory. */
static int make_inputs(gd_stage *s, derivative *d, gd_tensor **outputs, gd_tensor **seeds)
{
    int n = 0;
    for (int i = 0; i < s->n_outputs; i++)
        n += d->is_seeded[i];
    gd_stage *made = &d->made;
    made->inputs = hold(s->inputs, s->n_placeholders, s->n_inputs - s->n_placeholders + n);
    if (!made->inputs)
        return -1;
    made->n_inputs = s->n_placeholders;
    n = 0;
    for (int i = 0; i < s->n_outputs; i++) {
        if (!d->is_seeded[i])
            continue;
        outputs[n] = s->outputs[i];
        seeds[n] = seed_for(s->gradient, s->outputs[i]);
        if (!seeds[n])
            return -1;
        made->inputs[made->n_inputs++] = gd_link(seeds[n++]);
    }
    made->n_placeholders = made->n_inputs;
    for (int i = s->n_placeholders; i < s->n_inputs; i++)
        made->inputs[made->n_inputs++] = gd_link(s->inputs[i]);
    return n;
}

/* With d->made.inputs ready for it, record the gradients, which become d's outputs. Room for
 * [s->n_outputs] twice in pairs, for [s->n_inputs] twice in gradients. */
static gd_status record(gd_stage *s, derivative *d, gd_tensor **pairs, gd_tensor **gradients)
{
    gd_call_gradient *c = s->gradient;
    gd_tensor **outputs = pairs, **seeds = pairs + s->n_outputs,
              **targets = gradients + s->n_inputs;
    int n = make_inputs(s, d, outputs, seeds), n_targets = 0;
    if (n < 0)
        return GD_ERR_MEMORY;
    for (int i = 0; i < s->n_inputs; i++)
        if (s->inputs[i]->requires_grad) {
            d->target[n_targets] = i;
            targets[n_targets++] = s->inputs[i];
        }
    const gd_order_limits limits = { .first_id = c->first_id };
    gd_status status = gd_grad_within(outputs, seeds, n, &limits, targets, gradients, n_targets);
    if (status == GD_OK && c->trace->failed)
        status = GD_ERR_MEMORY;
    for (int i = 0; status == GD_OK && i < n_targets; i++)
        if (gradients[i]) {
            d->target[d->made.n_outputs] = d->target[i];
            d->made.outputs[d->made.n_outputs++] = gd_link(gradients[i]);
        }
    return status;
}

/* Record the gradient in the trace of the body, as if it were being traced still. */
static gd_status record_in_trace(gd_stage *s, derivative *d)
{
    gd_context *context = s->gradient->context;
    gd_tensor **room = gd_alloc_zero(2 * (size_t)(s->n_outputs + s->n_inputs) + 1, sizeof *room);
    if (!room || gd_scope_begin(context) != GD_OK) {
        gd_free(room);
        return GD_ERR_MEMORY;
    }
    gd_trace *trace = s->gradient->trace;
    const gd_recording before = gd_recording_now(context);
    gd_recording_set(context, (gd_recording){ .trace = trace, .recomputing = before.recomputing });
    gd_status status = record(s, d, room, room + 2 * s->n_outputs);
    gd_recording_set(context, before);
    trace->random_words = s->gradient->random_words;
    (void)gd_scope_end(context);
    gd_free(room);
    return status;
}

/* ---- which recorded ops a gradient needs ---- */

typedef enum need { NOT_NEEDED, MADE, SAVED } need;

typedef struct needs {
    unsigned char *of;    /* [trace->count] */
    bool *is_read;        /* [inputs] */
    gd_storages assigned; /* to which the trace assigns */
    const gd_stage *made;
} needs;

/* What t, an operand or a result, asks for. */
static gd_status ask_for(needs *n, gd_tensor *t)
{
    gd_context *context = n->made->gradient->context;
    if (t == context->random_state)
        return GD_OK;
    if (t->mark != context->generation)
        return gd_fail(GD_ERR_STATE, "the gradient of a compiled function reads a value the "
                                     "function does not");
    if (t->storage && gd_storages_find(&n->assigned, t->storage) >= 0)
        return gd_fail(GD_ERR_STATE, "the gradient of a compiled function needs the value of a "
                                     "tensor from before the function assigns to it");
    if (t->slot < 0)
        n->is_read[-1 - t->slot] = true;
    else
        n->of[t->slot] = MADE;
    return GD_OK;
}

/* Number what was recorded: in slot, where mark is the walk's generation, its place in the trace, or
 * -1 and down for the inputs of n->made. */
static gd_status number_recorded(needs *n)
{
    const gd_stage *made = n->made;
    const gd_call_gradient *c = made->gradient;
    uint64_t generation = ++c->context->generation;
    for (size_t i = 0; i < c->trace->count; i++) {
        gd_tensor *t = c->trace->nodes[i];
        t->mark = generation;
        t->slot = (int64_t)i;
        if (t->op->id == GD_OP_assign && gd_storages_add(&n->assigned, t->inputs[0]->storage) < 0)
            return GD_ERR_MEMORY;
    }
    for (int i = 0; i < made->n_inputs; i++) {
        made->inputs[i]->mark = generation;
        made->inputs[i]->slot = -1 - i;
    }
    return GD_OK;
}

/* Find what the outputs of `made` need. Of the first `saved` nodes, results are taken as saved by
 * the forward plan; only views of them and what reads nothing are made again. */
static gd_status find_needs(needs *n, const gd_stage *made, size_t saved)
{
    const gd_trace *trace = made->gradient->trace;
    n->made = made;
    n->of = gd_alloc_zero(trace->count + 1, 1);
    n->is_read = gd_alloc_zero((size_t)made->n_inputs + 1, sizeof(bool));
    gd_status status = n->of && n->is_read ? number_recorded(n) : GD_ERR_MEMORY;
    for (int i = 0; status == GD_OK && i < made->n_outputs; i++)
        status = ask_for(n, made->outputs[i]);
    for (size_t i = trace->count; status == GD_OK && i-- > 0;) {
        const gd_tensor *t = trace->nodes[i];
        if (n->of[i] != MADE)
            continue;
        bool is_view = t->op->flags & GD_OP_VIEW;
        if (i < saved && !is_view && t->n_inputs > 0) {
            n->of[i] = SAVED;
            continue;
        }
        int reads = is_view ? 1 : t->n_inputs; /* a view's further operands are its vjp's */
        for (int k = 0; status == GD_OK && k < reads; k++)
            status = ask_for(n, t->inputs[k]);
    }
    return status;
}

static void needs_free(needs *n)
{
    gd_free(n->of);
    gd_free(n->is_read);
    gd_storages_free(&n->assigned);
}

/* ---- derivatives ---- */

/* Nodes whose results may have been saved: those of the body. */
static size_t saved_nodes(const gd_stage *s)
{
    return s->n_saved ? s->gradient->forward_count : 0;
}

/* Record the gradient by the outputs that are seeded. NULL on failure. */
static derivative *record_derivative(gd_stage *s, const bool *is_seeded)
{
    derivative *d = gd_alloc_zero(1, sizeof *d);
    if (!d)
        return NULL;
    d->next = s->derivatives; /* from here on, clear_stage frees it */
    s->derivatives = d;
    d->made.gradient = s->gradient;
    d->is_seeded = gd_alloc((size_t)s->n_outputs + 1);
    d->target = gd_alloc_zero((size_t)s->n_inputs + 1, sizeof *d->target);
    d->is_read = gd_alloc_zero((size_t)s->n_inputs + 1, sizeof(bool));
    d->made.outputs = gd_alloc_zero((size_t)s->n_inputs + 1, sizeof(gd_tensor *));
    if (!d->is_seeded || !d->target || !d->is_read || !d->made.outputs)
        return NULL;
    memcpy(d->is_seeded, is_seeded, (size_t)s->n_outputs);
    return record_in_trace(s, d) == GD_OK ? d : NULL;
}

/* The derivative made last was no success. */
static void drop_derivative(gd_stage *s)
{
    derivative *d = s->derivatives;
    gd_stage alone = { .derivatives = d };
    if (d) {
        s->derivatives = d->next;
        d->next = NULL;
        clear_stage(&alone);
    }
}

/* The plan of a derivative that was recorded. */
static gd_plan *plan_derivative(gd_stage *s, derivative *d, const needs *n)
{
    gd_call_gradient *c = s->gradient;
    gd_stage *made = &d->made;
    size_t count = 0;
    int arguments = made->n_placeholders + s->n_saved;
    gd_tensor **nodes = gd_alloc((c->trace->count + 1) * sizeof *nodes);
    gd_tensor **inputs = gd_alloc(((size_t)arguments + 1) * sizeof *inputs);
    d->arguments = gd_alloc_zero((size_t)arguments + 1, sizeof *d->arguments);
    gd_plan *plan = NULL;
    if (nodes && inputs && d->arguments) {
        for (size_t i = 0; i < c->trace->count; i++)
            if (n->of[i] == MADE)
                nodes[count++] = c->trace->nodes[i];
        memcpy(inputs, made->inputs, (size_t)made->n_placeholders * sizeof *inputs);
        if (s->n_saved)
            memcpy(inputs + made->n_placeholders, s->saved, (size_t)s->n_saved * sizeof *inputs);
        const gd_ir_source source = { .nodes = nodes,
                                      .count = count,
                                      .inputs = inputs,
                                      .input_count = arguments,
                                      .outputs = made->outputs,
                                      .output_count = (size_t)made->n_outputs,
                                      .random_words = c->random_words,
                                      .options = c->options };
        gd_ir ir;
        if (gd_ir_make(&ir, c->context, &source) == GD_OK)
            plan = gd_plan_make(&ir, NULL);
        else
            gd_ir_free(&ir);
    }
    gd_free(nodes);
    gd_free(inputs);
    return plan;
}

/* Note which of s's inputs d reads: those of d's stage are the same without the seeds. */
static void note_reads(const gd_stage *s, derivative *d, const needs *n)
{
    int seeds = d->made.n_placeholders - s->n_placeholders;
    for (int i = 0; i < s->n_inputs; i++)
        d->is_read[i] = n->is_read[i < s->n_placeholders ? i : i + seeds];
}

static bool make_plan(gd_stage *s, derivative *d)
{
    needs n = { 0 };
    gd_plan_free(d->made.plan); /* of an attempt that failed */
    gd_free(d->arguments);
    gd_free(d->made.seeds);
    gd_free(d->made.operands);
    d->made.plan = NULL;
    d->arguments = NULL;
    if (find_needs(&n, &d->made, saved_nodes(s)) == GD_OK) {
        note_reads(s, d, &n);
        d->made.plan = plan_derivative(s, d, &n);
    }
    needs_free(&n);
    d->made.seeds = gd_alloc_zero((size_t)d->made.n_outputs + 1, sizeof(gd_tensor *));
    d->made.operands = gd_alloc_zero((size_t)d->made.n_inputs + 2, sizeof(gd_tensor *));
    return d->made.plan && d->made.seeds && d->made.operands;
}

/* The derivative for the seeds at hand, with its plan. NULL on failure. */
static derivative *find_derivative(gd_stage *s)
{
    bool *is_seeded = gd_alloc_zero((size_t)s->n_outputs + 1, sizeof(bool));
    if (!is_seeded)
        return NULL;
    for (int i = 0; i < s->n_outputs; i++)
        is_seeded[i] = s->seeds[i] != NULL;
    derivative *d = s->derivatives;
    while (d && memcmp(d->is_seeded, is_seeded, (size_t)s->n_outputs) != 0)
        d = d->next;
    bool is_new = !d;
    if (is_new) {
        s->gradient->trace->is_resumed = true;
        d = record_derivative(s, is_seeded);
    }
    bool ok = d && ((d->made.plan && d->made.operands) || make_plan(s, d));
    if (!ok && is_new)
        drop_derivative(s);
    gd_free(is_seeded);
    return ok ? d : NULL;
}

/* ---- calls as nodes ---- */

bool gd_call_gradient_recycle(gd_tensor *t)
{
    if (!t->scope || t->refs != 2 || t->grad)
        return false;
    if (t->n_inputs)
        gd_unlink(t->inputs[0]);
    gd_storage_drop(t->context, t->storage);
    t->storage = NULL;
    t->n_inputs = 0;
    t->requires_grad = t->replaced = t->keeps_grad = false;
    gd_name_free(t->name);
    t->name = NULL;
    t->trace = (const gd_trace *)(const void *)t; /* of no trace: to use it is refused */
    return true;
}

/* View of a call; the handle is a recycled one, or NULL. */
static gd_tensor *view_result(gd_tensor *call, const gd_layout *layout, int index,
                              gd_tensor *handle)
{
    gd_call_result_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.layout = *layout;
    attr.index = index;
    gd_tensor *t = handle;
    if (!t)
        t = gd_node_new(call->context, gd_op_row(GD_OP_call_result), 1, &call, &attr, true);
    if (!t)
        return NULL;
    if (handle) {
        memcpy((void *)(uintptr_t)t->attr, &attr, sizeof attr);
        t->inputs[0] = gd_link(call);
        t->versions[0] = call->storage->version;
        t->n_inputs = 1;
        t->id = t->context->next_id++;
        t->trace = NULL;
    }
    t->layout = *layout;
    t->storage = call->storage;
    t->storage->refs++;
    t->version = t->storage->version;
    t->requires_grad = true;
    return t;
}

/* Leaf over the plan's block. */
static gd_tensor *leaf_result(gd_plan *plan, const gd_layout *layout, gd_tensor *handle)
{
    plan->block->refs++;
    if (!handle)
        return gd_leaf_new(plan->ir.context, layout, plan->block);
    handle->layout = *layout;
    handle->storage = plan->block;
    handle->version = plan->block->version;
    handle->id = handle->context->next_id++;
    handle->trace = NULL;
    return handle;
}

/* The node of stage s, whose plan has just run, on the first n of its operands. */
static gd_tensor *make_call(gd_stage *s, gd_plan *plan, int n, uint64_t position)
{
    gd_call_attr attr = { s, position, (int64_t)plan->block->bytes };
    const gd_op *op = gd_op_row(GD_OP_call);
    gd_tensor *call = gd_node_new(s->gradient->context, op, n, s->operands, &attr, true);
    if (!call || op->infer(n, NULL, &attr, &call->layout) != GD_OK)
        return NULL;
    call->storage = plan->block;
    call->storage->refs++;
    call->version = call->storage->version;
    call->requires_grad = true;
    return call;
}

/* Result `index` of the plan: a view of the call, where a gradient may pass, else a leaf. */
static gd_tensor *make_result(gd_stage *s, gd_plan *plan, gd_tensor *call, int index,
                              gd_tensor *handle)
{
    const gd_layout *layout = &plan->results[index]->layout;
    bool is_view = call && s->outputs[index]->requires_grad;
    return is_view ? view_result(call, layout, index, handle) : leaf_result(plan, layout, handle);
}

/* The same with a reference for the caller. *result: a recycled handle, which may be of the other
 * kind, or NULL. */
static bool give_result(gd_stage *s, gd_plan *plan, gd_tensor *call, int index, gd_tensor **result)
{
    gd_tensor *handle = *result;
    if (handle && (handle->op != NULL) != s->outputs[index]->requires_grad) {
        gd_unlink(handle);
        handle = *result = NULL;
    }
    gd_tensor *t = make_result(s, plan, call, index, handle);
    if (t && !handle)
        *result = gd_link(t);
    return t;
}

gd_status gd_call_gradient_run(gd_call_gradient *c, gd_plan *plan, gd_tensor *const *inputs,
                               gd_tensor **results)
{
    gd_stage *s = &c->body;
    uint64_t position = c->context->random_position;
    gd_status status = GD_OK;
    if (c->context->recomputing && plan->n_written)
        status = gd_fail(GD_ERR_STATE, "gd_call: the function has effects, which would happen "
                                       "again in the second run of a checkpointed block");
    for (int i = 0; i < s->n_inputs; i++)
        s->operands[i] = i < s->n_placeholders ? inputs[i] : s->inputs[i];
    if (status == GD_OK)
        status = gd_plan_run(plan, inputs);
    gd_tensor *call = status == GD_OK ? make_call(s, plan, s->n_inputs, position) : NULL;
    bool ok = call;
    for (int i = 0; ok && i < s->n_outputs; i++)
        ok = give_result(s, plan, call, i, &results[i]);
    if (call) { /* it lives as long as its results */
        gd_scope_leave(call);
        gd_release(call);
    }
    for (int i = 0; !ok && i < s->n_outputs; i++) {
        gd_unlink(results[i]);
        results[i] = NULL;
    }
    return status != GD_OK ? status : ok ? GD_OK : GD_ERR_MEMORY;
}

/* ---- the ops ---- */

/* Values the derivative reads must be those the call read. */
static bool is_current(const gd_tensor *r, const gd_stage *s, const derivative *d)
{
    bool same = r->storage->version == r->version;
    for (int i = 0; same && i < s->n_inputs; i++)
        same = !d->is_read[i] || r->inputs[i]->storage->version == r->versions[i];
    if (!same)
        (void)gd_fail(GD_ERR_STATE, "the gradient of gd_call needs a value that has been "
                                    "overwritten since (in place, by gd_assign, by "
                                    "gd_tensor_write or by the next batch)");
    return same;
}

/* Sort the list of gradients into s->seeds, each contiguous as its placeholder. */
static bool take_seeds(gd_stage *s, gd_tensor *list)
{
    memset(s->seeds, 0, (size_t)s->n_outputs * sizeof *s->seeds);
    for (; list; list = list->n_inputs > 1 ? list->inputs[1] : NULL) {
        gd_tensor *g = list->inputs[0];
        if (!gd_layout_is_contiguous(&g->layout))
            g = gd_apply1(GD_OP_copy, g, NULL);
        if (!g)
            return false;
        s->seeds[((const gd_call_result_attr *)list->attr)->index] = g;
    }
    return true;
}

/* Run the derivative for call r, at r's position of the random stream. */
static gd_status run_derivative(const gd_tensor *r, const gd_stage *s, derivative *d)
{
    gd_context *context = r->context;
    int n = 0;
    for (int i = 0; i < s->n_placeholders; i++)
        d->arguments[n++] = gd_node_data(r->inputs[i]);
    for (int i = 0; i < s->n_outputs; i++)
        if (s->seeds[i])
            d->arguments[n++] = gd_node_data(s->seeds[i]);
    for (int i = 0; i < s->n_saved; i++)
        d->arguments[n++] = (char *)r->storage->data + s->saved_at[i];
    uint64_t now = context->random_position;
    context->random_position = ((const gd_call_attr *)r->attr)->position;
    gd_status status = gd_plan_run_at(d->made.plan, d->arguments);
    context->random_position = now;
    return status;
}

/* The node of the derivative: its inputs are those of r, with the seeds between, and r itself,
 * which holds on to all they point to. */
static gd_tensor *derivative_call(gd_tensor *r, gd_stage *s, derivative *d)
{
    gd_tensor **inputs = d->made.operands;
    int n = 0;
    for (int i = 0; i < s->n_placeholders; i++)
        inputs[n++] = r->inputs[i];
    for (int i = 0; i < s->n_outputs; i++)
        if (s->seeds[i])
            inputs[n++] = s->seeds[i];
    for (int i = s->n_placeholders; i < s->n_inputs; i++)
        inputs[n++] = r->inputs[i];
    inputs[n++] = r;
    return make_call(&d->made, d->made.plan, n, ((const gd_call_attr *)r->attr)->position);
}

static bool vjp_call(gd_tensor *r, gd_tensor *g, gd_tensor **gradients)
{
    gd_stage *s = ((const gd_call_attr *)r->attr)->stage;
    const gd_call_gradient *c = s->gradient;
    if (r->context->trace || c->failure[0]) {
        (void)gd_fail(GD_ERR_UNSUPPORTED, "gd_call: %s",
                      r->context->trace
                          ? "the gradient of a call from before cannot be taken while another "
                            "function is traced; make the call inside it"
                          : c->failure);
        return false;
    }
    derivative *d = take_seeds(s, g) ? find_derivative(s) : NULL;
    if (!d || !is_current(r, s, d) || run_derivative(r, s, d) != GD_OK)
        return false;
    gd_tensor *call = r->context->no_grad == 0 ? derivative_call(r, s, d) : NULL;
    bool ok = call || r->context->no_grad > 0;
    for (int i = 0; ok && i < d->made.n_outputs; i++)
        ok = gd_put(&gradients[d->target[i]], make_result(&d->made, d->made.plan, call, i, NULL));
    return ok;
}

static gd_status infer_call(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)in;
    return gd_layout_init(out, GD_SHAPE(((const gd_call_attr *)attr)->bytes), GD_BOOL, "gd_call");
}

const gd_op gd_op_call = { .id = GD_OP_call,
                           .name = "call",
                           .arity = GD_OP_VARIADIC,
                           .flags = GD_OP_COMPILER_ONLY | GD_OP_SEVERAL,
                           .attr_size = sizeof(gd_call_attr),
                           .infer = infer_call,
                           .vjp = vjp_call,
                           .flops = gd_flops_none,
                           .recompute = GD_RECOMPUTE_NEVER };

static gd_status infer_call_result(int n, const gd_layout *const *in, const void *attr,
                                   gd_layout *out)
{
    (void)n, (void)in;
    *out = ((const gd_call_result_attr *)attr)->layout;
    return GD_OK;
}

static bool vjp_call_result(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    d[0] = gd_link_gradient(r, g, NULL);
    return d[0] != NULL;
}

const gd_op gd_op_call_result = { .id = GD_OP_call_result,
                                  .name = "call_result",
                                  .arity = 1,
                                  .flags = GD_OP_COMPILER_ONLY | GD_OP_VIEW,
                                  .attr_size = sizeof(gd_call_result_attr),
                                  .infer = infer_call_result,
                                  .vjp = vjp_call_result };

/* ---- making the gradient of a body ---- */

bool gd_call_gradient_is_wanted(const gd_trace *trace)
{
    bool wanted = false;
    for (size_t i = 0; i < trace->output_count; i++)
        wanted |= trace->outputs[i]->requires_grad;
    for (size_t i = 0; wanted && i < trace->count; i++)
        wanted =
            trace->nodes[i]->op->id != GD_OP_assign || !trace->nodes[i]->inputs[0]->requires_grad;
    return wanted && !trace->has_backward;
}

/* The values the gradient by all results reads, which the forward plan is to keep. */
static bool find_saved(gd_call_gradient *c, const derivative *d)
{
    gd_stage *s = &c->body;
    needs n = { 0 };
    bool ok = find_needs(&n, &d->made, c->forward_count) == GD_OK;
    s->saved = gd_alloc_zero(c->forward_count + 1, sizeof *s->saved);
    s->saved_at = gd_alloc_zero(c->forward_count + 1, sizeof *s->saved_at);
    ok = ok && s->saved && s->saved_at;
    for (size_t i = 0; ok && i < c->forward_count; i++)
        if (n.of[i] == SAVED)
            s->saved[s->n_saved++] = c->trace->nodes[i];
    needs_free(&n);
    return ok;
}

/* Record the gradient by all results that have one. What forbids it is said when it is asked for;
 * only want of memory is a failure now. */
static bool record_first(gd_call_gradient *c)
{
    gd_stage *s = &c->body;
    const uint64_t mark = gd_error_mark();
    bool *is_seeded = gd_alloc_zero((size_t)s->n_outputs + 1, sizeof(bool));
    if (!is_seeded)
        return false;
    for (int i = 0; i < s->n_outputs; i++)
        is_seeded[i] = s->outputs[i]->requires_grad;
    const derivative *d = record_derivative(s, is_seeded);
    gd_free(is_seeded);
    if (d && find_saved(c, d))
        return true;
    drop_derivative(s);
    s->n_saved = 0;
    const gd_status status = gd_error_since(mark);
    if (c->trace->failed || status == GD_OK || status == GD_ERR_MEMORY)
        return false;
    gd_text text = { c->failure, sizeof c->failure, 0 };
    gd_text_add(&text, "its gradient could not be recorded: %s", gd_error_last_message());
    gd_error_rollback(mark);
    return true;
}

gd_call_gradient *gd_call_gradient_make(gd_context *context, gd_trace *trace,
                                        gd_tensor *const *placeholders, int count,
                                        gd_plan_options options)
{
    gd_call_gradient *c = gd_alloc_zero(1, sizeof *c);
    if (!c)
        return NULL;
    c->context = context;
    c->refs = 1;
    c->deferred = (gd_deferred){ .after = context->deferred, .destroy = destroy };
    if (context->deferred)
        context->deferred->before = &c->deferred;
    context->deferred = &c->deferred;
    c->trace = trace;
    c->forward_count = trace->count;
    c->random_words = trace->random_words;
    c->options = options;
    c->first_id = count          ? placeholders[0]->id
                  : trace->count ? trace->nodes[0]->id
                                 : context->next_id;
    gd_stage *s = &c->body;
    s->gradient = c;
    s->inputs = hold(placeholders, count, 0);
    s->n_inputs = s->n_placeholders = s->inputs ? count : 0;
    s->outputs = hold(trace->outputs, (int)trace->output_count, 0);
    s->n_outputs = s->outputs ? (int)trace->output_count : 0;
    s->seeds = gd_alloc_zero(trace->output_count + 1, sizeof *s->seeds);
    bool ok = s->inputs && s->outputs && s->seeds && find_outside(c) && record_first(c);
    s->operands = ok ? gd_alloc_zero((size_t)s->n_inputs + 1, sizeof *s->operands) : NULL;
    if (s->operands)
        return c;
    c->trace = NULL; /* still the caller's */
    gd_call_gradient_drop(c);
    return NULL;
}

int gd_call_gradient_result_count(const gd_call_gradient *gradient)
{
    return gradient->body.n_outputs;
}

/* Which output of the forward plan is saved value t: one of the results, or one behind them. */
static int output_of(const gd_stage *s, const gd_tensor *t, int *behind)
{
    for (int i = 0; i < s->n_outputs; i++)
        if (s->outputs[i] == t)
            return i;
    return (*behind)++;
}

static gd_plan *plan_forward(gd_call_gradient *c)
{
    gd_stage *s = &c->body;
    gd_tensor **outputs = gd_alloc((size_t)(s->n_outputs + s->n_saved + 1) * sizeof *outputs);
    int count = s->n_outputs;
    gd_plan *plan = NULL;
    if (!outputs)
        return NULL;
    memcpy(outputs, s->outputs, (size_t)count * sizeof *outputs);
    for (int i = 0; i < s->n_saved; i++)
        outputs[output_of(s, s->saved[i], &count)] = s->saved[i];
    const gd_ir_source source = { .nodes = c->trace->nodes,
                                  .count = c->forward_count,
                                  .inputs = s->inputs,
                                  .input_count = s->n_placeholders,
                                  .outputs = outputs,
                                  .output_count = (size_t)count,
                                  .random_words = c->random_words,
                                  .options = c->options };
    gd_ir ir;
    if (gd_ir_make(&ir, c->context, &source) == GD_OK)
        plan = gd_plan_make(&ir, c);
    else
        gd_ir_free(&ir);
    count = s->n_outputs;
    for (int i = 0; plan && i < s->n_saved; i++) {
        const gd_layout *layout = &plan->results[output_of(s, s->saved[i], &count)]->layout;
        s->saved_at[i] = (size_t)layout->offset * gd_dtype_size(layout->dtype);
    }
    gd_free(outputs);
    return plan;
}

gd_plan *gd_call_gradient_plan(gd_call_gradient *c)
{
    const uint64_t mark = gd_error_mark();
    gd_plan *plan = plan_forward(c);
    if (plan || c->options.memory_limit == SIZE_MAX || c->body.n_saved == 0)
        return plan;
    gd_error_rollback(mark);
    c->body.n_saved = 0; /* no room for what the gradient reads: it computes it again */
    return plan_forward(c);
}
