/* graph/trace.c: the record of the ops a compiled function's body applied, in order. What becomes
 * of it is src/compile's business. */
#include "graph/context.h"
#include "graph/node.h"
#include "graph/trace.h"

#include <gradus/compile.h>

#include <string.h>

#include "base/memory.h"

/* Users before their inputs, so that nodes die one at a time. */
static void forget_from(gd_trace *trace, size_t from)
{
    for (size_t i = trace->known > trace->count ? trace->known : trace->count; i-- > from;)
        gd_unlink(trace->nodes[i]);
    trace->count = trace->count < from ? trace->count : from;
    trace->known = 0;
}

gd_status gd_trace_record(gd_trace *trace, gd_tensor *node)
{
    if (trace->known > trace->count)
        forget_from(trace, trace->count);
    if (!gd_grow((void **)&trace->nodes, &trace->capacity, trace->count + 1, sizeof(gd_tensor *)) ||
        !gd_grow((void **)&trace->phases, &trace->phase_capacity, trace->count + 1, 1)) {
        trace->failed = true;
        return GD_ERR_MEMORY;
    }
    trace->phases[trace->count] = trace->phase;
    trace->nodes[trace->count++] = gd_link(node);
    return GD_OK;
}

gd_tensor *gd_trace_repeat(gd_trace *trace, const gd_op *op, int n, gd_tensor *const *inputs,
                           const void *attr, bool requires_grad)
{
    if (trace->count >= trace->known)
        return NULL;
    gd_tensor *t = trace->nodes[trace->count];
    if (t->is_marked) /* by the body, which may do so again */
        t->requires_grad = t->is_marked = false;
    bool same = t->op == op && t->n_inputs == n && t->requires_grad == requires_grad &&
                t->region == t->context->region;
    for (int i = 0; same && i < n; i++)
        same = t->inputs[i] == inputs[i];
    if (!same || (op->attr_size && memcmp(t->attr, attr, op->attr_size) != 0)) {
        forget_from(trace, trace->count);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        t->versions[i] = inputs[i]->storage ? inputs[i]->storage->version : 0;
    t->id = t->context->next_id++;
    t->replaced = false;
    trace->phases[trace->count++] = trace->phase;
    return t;
}

/* Append t to a list of outputs. */
static bool append_output(gd_tensor ***list, size_t *count, size_t *capacity, gd_tensor *t)
{
    if (!gd_grow((void **)list, capacity, *count + 1, sizeof(gd_tensor *)))
        return false;
    (*list)[(*count)++] = gd_link(t);
    return true;
}

gd_tensor *gd_output(gd_tensor *t)
{
    if (!gd_usable(t, "gd_output"))
        return NULL;
    gd_trace *trace = t->context->trace;
    gd_eager_outputs *eager = t->context->outputs;
    if (trace && !trace->nested) {
        if (append_output(&trace->outputs, &trace->output_count, &trace->output_capacity, t))
            return t;
        trace->failed = true;
        return NULL;
    }
    if (!trace && eager && t->context->trace_paused == 0 &&
        !append_output(&eager->list, &eager->count, &eager->capacity, t)) {
        eager->failed = true;
        return NULL;
    }
    return t;
}

/* Let go of all but the nodes. */
static void clear_notes(gd_trace *trace)
{
    trace->zeroed_count = 0;
    for (size_t i = 0; i < trace->output_count; i++)
        gd_unlink(trace->outputs[i]);
    trace->output_count = 0;
    trace->random_words = 0;
    trace->nested = 0;
    trace->phase = GD_PHASE_FORWARD;
    trace->failed = trace->has_backward = trace->is_resumed = false;
}

void gd_trace_reset(gd_trace *trace)
{
    clear_notes(trace);
    forget_from(trace, 0);
}

void gd_trace_rewind(gd_trace *trace)
{
    clear_notes(trace);
    if (trace->known > trace->count)
        forget_from(trace, trace->count);
    trace->known = trace->count;
    trace->count = 0;
}

void gd_trace_clear(gd_trace *trace)
{
    gd_trace_reset(trace);
    gd_free(trace->nodes);
    gd_free(trace->phases);
    gd_free(trace->outputs);
    gd_free(trace->zeroed);
    *trace = (gd_trace){ 0 };
}

gd_phase gd_trace_set_phase(gd_context *context, gd_phase phase)
{
    if (!context->trace)
        return GD_PHASE_FORWARD;
    gd_phase before = (gd_phase)context->trace->phase;
    context->trace->phase = (uint8_t)phase;
    return before;
}

bool gd_is_tracing(const gd_context *context)
{
    return context && context->trace;
}

void gd_trace_pause(gd_context *context)
{
    if (!context || (!context->trace && context->trace_paused == 0))
        return;
    if (context->trace_paused++ == 0) {
        context->paused_trace = context->trace;
        context->trace = NULL;
    }
}

void gd_trace_resume(gd_context *context)
{
    if (context && context->trace_paused > 0 && --context->trace_paused == 0) {
        context->trace = context->paused_trace;
        context->paused_trace = NULL;
    }
}
