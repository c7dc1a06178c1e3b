/* graph/trace.c: the record of the ops a compiled function's body applied, in order. What becomes
 * of it is src/compile's business. */
#include "graph/node.h"

#include <gradus/compile.h>

#include "base/memory.h"

gd_status gd_trace_record(gd_trace *trace, gd_tensor *node)
{
    if (!gd_grow((void **)&trace->nodes, &trace->capacity, trace->count + 1, sizeof(gd_tensor *))) {
        trace->failed = true;
        return GD_ERR_MEMORY;
    }
    trace->nodes[trace->count++] = gd_retain(node);
    return GD_OK;
}

gd_tensor *gd_output(gd_tensor *t)
{
    gd_trace *trace = t ? t->context->trace : NULL;
    if (!trace || trace->nested)
        return t;
    if (!gd_grow((void **)&trace->outputs, &trace->output_capacity, trace->output_count + 1,
                 sizeof(gd_tensor *))) {
        trace->failed = true;
        return NULL;
    }
    trace->outputs[trace->output_count++] = gd_retain(t);
    return t;
}

void gd_trace_reset(gd_trace *trace)
{
    /* Users before their inputs, so that nodes die one at a time. */
    for (size_t i = trace->count; i-- > 0;)
        gd_release(trace->nodes[i]);
    for (size_t i = 0; i < trace->output_count; i++)
        gd_release(trace->outputs[i]);
    trace->count = trace->output_count = 0;
    trace->random_words = 0;
    trace->nested = 0;
    trace->failed = trace->has_backward = trace->is_resumed = false;
}

void gd_trace_clear(gd_trace *trace)
{
    gd_trace_reset(trace);
    gd_free(trace->nodes);
    gd_free(trace->outputs);
    *trace = (gd_trace){ 0 };
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
