/* compile/function.c: gd_compile and gd_call: tracing a body once for each signature, and the cache
 * of plans. */
#include "compile/function.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "graph/apply.h"
#include "compile/timed.h"
#include "graph/autocast.h"
#include "graph/trace.h"

enum {
    /* A function that calls itself without an end is stopped before the stack's end is. */
    MAX_CALL_DEPTH = 500,
};

static void entry_free(gd_cache_entry *e)
{
    gd_plan_free(e->plan);
    gd_call_gradient_drop(e->gradient);
    gd_structure_free(&e->structure);
    gd_free(e->signature.layouts);
    gd_free(e->signature.requires_grad);
    *e = (gd_cache_entry){ 0 };
}

static void release_results(gd_function *function)
{
    while (function->n_results)
        gd_unlink(function->results[--function->n_results]);
}

static void release_placeholders(gd_function *function)
{
    while (function->n_placeholders)
        gd_unlink(function->placeholders[--function->n_placeholders]);
}

static void release_inputs(gd_open_trace *open_trace)
{
    while (open_trace->count)
        gd_unlink(open_trace->inputs[--open_trace->count]);
    gd_free(open_trace->inputs);
    open_trace->inputs = NULL;
}

static void destroy(void *object)
{
    gd_function *function = object;
    release_inputs(&function->open_trace); /* of a trace that the context's end interrupts */
    release_placeholders(function);
    release_results(function);
    gd_free(function->results);
    for (size_t i = 0; i < function->count; i++)
        entry_free(&function->entries[i]);
    gd_free(function->entries);
    if (function->trace)
        gd_trace_clear(function->trace);
    gd_free(function->trace);
    gd_structure_free(&function->structure);
    gd_free(function->placeholders);
    gd_free(function->last_outputs);
    gd_free(function);
}

gd_function *gd_compile_with(gd_context *context, gd_function_body body, void *user,
                             const gd_compile_options *options)
{
    gd_compile_options o = { GD_COMPILE_DEFAULTS };
    if (!gd_options_read("gd_compile", &o, sizeof o, options))
        return NULL;
    if (!context)
        return gd_fail_null(GD_ERR_INVALID, "gd_compile: the context is NULL");
    if (o.mode != GD_MODE_COMPILED && o.mode != GD_MODE_EAGER && o.mode != GD_MODE_LAZY)
        return gd_fail_null(GD_ERR_INVALID, "gd_compile: %d is no mode", (int)o.mode);
    if (!body && o.mode == GD_MODE_EAGER)
        return gd_fail_null(GD_ERR_INVALID, "gd_compile: the body is NULL; GD_MODE_EAGER cannot do "
                                            "without one as others can, see gd_trace_begin");
    if (o.cache_limit < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_compile: the cache limit is %d, not 1 or more",
                            o.cache_limit);
    uint32_t passes_off;
    if (gd_passes_read(o.passes, &passes_off) != GD_OK)
        return NULL;
    gd_function *function = gd_alloc_zero(1, sizeof *function);
    if (!function)
        return NULL;
    function->context = context;
    function->body = body;
    function->user = user;
    function->mode = o.mode;
    function->detached = o.detached;
    function->options = (gd_plan_options){ o.memory_limit, passes_off, o.frozen };
    function->limit = (size_t)o.cache_limit;
    if (gd_context_adopt(context, function, destroy) != GD_OK) {
        destroy(function);
        return NULL;
    }
    return function;
}

void gd_function_release(gd_function *function)
{
    if (!function)
        return;
    if (function->running) {
        (void)gd_fail(GD_ERR_STATE, "gd_function_release: the function's body is being run");
        return;
    }
    gd_context_disown(function->context, function);
    destroy(function);
}

gd_context *gd_function_context(const gd_function *function)
{
    return function ? function->context : NULL;
}

/* ---- the body ---- */

/* The body's result, retained; scopes it left open are ended, and what it switched is as before.
 * NULL with an error: so ends a body that recorded one, whatever it returned. */
static gd_tensor *run_body(gd_function *function, int count, gd_tensor *const *inputs)
{
    gd_context *context = function->context;
    if (!function->body)
        return gd_fail_null(GD_ERR_STATE,
                            "gd_call: the function has no body and no plan for these inputs; trace "
                            "it with gd_trace_begin (within another trace, run what it does)");
    if (context->call_depth == MAX_CALL_DEPTH)
        return gd_fail_null(GD_ERR_STATE,
                            "gd_call: %d calls within one another; a function seems to call itself "
                            "without an end",
                            MAX_CALL_DEPTH);
    gd_scope *outer = context->body_scope;
    const gd_recording before = gd_recording_now(context);
    context->body_scope = context->scope;
    context->call_depth++;
    function->running++;
    gd_tensor *result =
        gd_link(gd_run_body(function->body, function->user, count, inputs, "gd_call"));
    function->running--;
    context->call_depth--;
    while (context->scope != context->body_scope)
        (void)gd_scope_end(context);
    context->body_scope = outer;
    gd_recording_set(context, before);
    return result;
}

/* ---- the cache ---- */

static bool same_layout(const gd_layout *a, const gd_layout *b)
{
    if (a->rank != b->rank || a->dtype != b->dtype)
        return false;
    size_t bytes = sizeof(int64_t) * (size_t)a->rank;
    return memcmp(a->shape, b->shape, bytes) == 0 && memcmp(a->stride, b->stride, bytes) == 0;
}

/* Whether tensors from outside still require gradients where they did, and none of them is a
 * gradient that was dropped. */
static bool same_requires_grad(gd_cache_entry *e, const gd_context *context)
{
    const gd_ir *ir = &e->plan->ir;
    for (size_t i = 0; e->grad_version != context->grad_version && i < ir->count; i++)
        if (ir->values[i].kind == GD_IR_EXTERNAL &&
            (ir->values[i].external->is_dropped ||
             ir->values[i].requires_grad != ir->values[i].external->requires_grad))
            return false;
    e->grad_version = context->grad_version;
    return true;
}

static bool matches(gd_cache_entry *e, const gd_context *context, int count,
                    gd_tensor *const *inputs)
{
    const gd_signature *s = &e->signature;
    if (s->count != count || s->no_grad != (context->no_grad > 0) ||
        s->autocast != gd_autocast_now(context))
        return false;
    for (int i = 0; i < count; i++)
        if (!same_layout(&s->layouts[i], &inputs[i]->layout) ||
            s->requires_grad[i] != inputs[i]->requires_grad)
            return false;
    return same_requires_grad(e, context);
}

static gd_cache_entry *find_entry(gd_function *function, int count, gd_tensor *const *inputs)
{
    const gd_context *context = function->context;
    if (function->current && matches(function->current, context, count, inputs))
        return function->current;
    for (size_t i = 0; i < function->count; i++)
        if (matches(&function->entries[i], context, count, inputs))
            return &function->entries[i];
    return NULL;
}

/* Results of a plan that goes, inputs of the call it goes for, last as long as a temporary of the
 * caller's: the body's scope is still open. */
static void keep_inputs(const gd_cache_entry *e, int count, gd_tensor *const *inputs)
{
    for (int i = 0; i < count; i++)
        if (inputs[i]->storage == e->plan->block && inputs[i]->refs == 1)
            (void)gd_keep(gd_scope_adopt(gd_retain(inputs[i])));
}

/* A free place in the cache, dropping the plan unused for longest when it is full. */
static gd_cache_entry *new_entry(gd_function *function, int count, gd_tensor *const *inputs)
{
    if (function->count < function->limit) {
        if (!gd_grow((void **)&function->entries, &function->capacity, function->count + 1,
                     sizeof(gd_cache_entry)))
            return NULL;
        function->entries[function->count] = (gd_cache_entry){ 0 };
        return &function->entries[function->count++];
    }
    gd_cache_entry *oldest = &function->entries[0];
    for (size_t i = 1; i < function->count; i++)
        if (function->entries[i].last_used < oldest->last_used)
            oldest = &function->entries[i];
    keep_inputs(oldest, count, inputs);
    if (function->last_plan == oldest->plan)
        function->last_plan = NULL;
    entry_free(oldest);
    function->evictions++;
    return oldest;
}

/* ---- tracing ---- */

/* A value without storage that stands for an argument. */
static gd_tensor *placeholder(gd_context *context, const gd_trace *trace, const gd_tensor *input)
{
    gd_tensor *t = gd_node_new(context, NULL, 0, NULL, NULL, false);
    if (!t)
        return NULL;
    t->layout = input->layout;
    t->layout.offset = 0;
    t->requires_grad = input->requires_grad;
    t->trace = trace;
    return t;
}

/* Make the body's result output 0, before those of gd_output. Takes over the reference. */
static bool add_result(gd_trace *trace, gd_tensor *result)
{
    if (!gd_grow((void **)&trace->outputs, &trace->output_capacity, trace->output_count + 1,
                 sizeof(gd_tensor *))) {
        gd_unlink(result);
        return false;
    }
    memmove(trace->outputs + 1, trace->outputs, trace->output_count * sizeof(gd_tensor *));
    trace->outputs[0] = result;
    trace->output_count++;
    return true;
}

/* Whether the placeholders of the recording before will do. */
static bool have_placeholders(const gd_function *function, int count, gd_tensor *const *inputs)
{
    bool same = function->n_placeholders == count;
    for (int i = 0; same && i < count; i++)
        same = function->placeholders[i]->requires_grad == inputs[i]->requires_grad &&
               same_layout(&function->placeholders[i]->layout, &inputs[i]->layout);
    return same;
}

/* Placeholders, and a trace that begins: where all is as before it expects the same ops again. */
static bool begin_recording(gd_function *function, int count, gd_tensor *const *inputs)
{
    if (!function->trace)
        function->trace = gd_alloc_zero(1, sizeof *function->trace);
    if (!function->trace ||
        !gd_grow((void **)&function->placeholders, &function->placeholder_capacity,
                 (size_t)count + 1, sizeof(gd_tensor *)))
        return false;
    if (have_placeholders(function, count, inputs)) {
        gd_trace_rewind(function->trace);
        return true;
    }
    gd_trace_reset(function->trace);
    release_placeholders(function);
    for (int i = 0; i < count; i++) {
        gd_tensor *place = placeholder(function->context, function->trace, inputs[i]);
        if (!place)
            return false;
        function->placeholders[function->n_placeholders++] = gd_link(place);
    }
    function->placeholders[count] = NULL; /* what a body finds that reads too far */
    return true;
}

static void start_recording(const gd_function *function)
{
    gd_recording now = gd_recording_now(function->context);
    now.trace = function->trace;
    now.paused_trace = NULL;
    now.trace_paused = 0;
    gd_recording_set(function->context, now);
}

/* Run the body with recording on, in a scope of its own that is left open for end_recording to end.
 */
static bool record(gd_function *function, int count, gd_tensor *const *inputs)
{
    gd_context *context = function->context;
    if (!begin_recording(function, count, inputs))
        return false;
    gd_trace *trace = function->trace;
    const gd_recording before = gd_recording_now(context); /* of a body that paused, perhaps */
    start_recording(function);
    gd_tensor *result = run_body(function, count, function->placeholders);
    gd_recording_set(context, before);
    gd_status status = GD_OK;
    if (result && trace->failed)
        status = gd_fail(GD_ERR_MEMORY, "gd_call: no memory to record the body");
    else if (result && result->context != context)
        status = gd_fail(GD_ERR_INVALID, "gd_call: the body's result is of another context");
    if (status == GD_OK)
        return result && add_result(trace, result);
    gd_unlink(result);
    return false;
}

/* What was recorded lazily is kept, to be recognised. */
static void end_recording(gd_function *function, bool keep)
{
    if (!keep && function->trace)
        gd_trace_reset(function->trace);
    if (!keep || !function->trace)
        release_placeholders(function);
    (void)gd_scope_end(function->context);
}

/* Whether the recording is, node by node, the one before, and so the current plan's. */
static bool is_repeated(const gd_function *function)
{
    const gd_trace *trace = function->trace;
    return trace->known == trace->count && trace->output_count == function->last_output_count &&
           memcmp(trace->outputs, function->last_outputs,
                  trace->output_count * sizeof(gd_tensor *)) == 0;
}

static bool note_outputs(gd_function *function)
{
    const gd_trace *trace = function->trace;
    function->last_output_count = 0;
    if (!gd_grow((void **)&function->last_outputs, &function->last_output_capacity,
                 trace->output_count, sizeof(gd_tensor *)))
        return false;
    memcpy(function->last_outputs, trace->outputs, trace->output_count * sizeof(gd_tensor *));
    function->last_output_count = trace->output_count;
    return true;
}

static gd_cache_entry *find_structure(gd_function *function, int count, gd_tensor *const *inputs)
{
    for (size_t i = 0; i < function->count; i++) {
        gd_cache_entry *e = &function->entries[i];
        if (matches(e, function->context, count, inputs) &&
            gd_structure_equal(&e->structure, &function->structure))
            return e;
    }
    return NULL;
}

/* The plan made before of what was recorded (GD_MODE_LAZY), if there is one. */
static gd_status recognise(gd_function *function, int count, gd_tensor *const *inputs,
                           gd_cache_entry **e)
{
    gd_cache_entry *current = function->current;
    if (current && is_repeated(function) && matches(current, function->context, count, inputs)) {
        *e = current;
        return GD_OK;
    }
    if (!note_outputs(function) ||
        gd_structure_take(&function->structure, function->context, function->trace,
                          function->placeholders, count) != GD_OK)
        return GD_ERR_MEMORY;
    *e = find_structure(function, count, inputs);
    return GD_OK;
}

static gd_plan *plan_trace(const gd_function *function, int count)
{
    const gd_trace *trace = function->trace;
    const gd_ir_source source = { .nodes = trace->nodes,
                                  .phases = trace->phases,
                                  .count = trace->count,
                                  .inputs = function->placeholders,
                                  .input_count = count,
                                  .outputs = trace->outputs,
                                  .output_count = trace->output_count,
                                  .random_words = trace->random_words,
                                  .options = function->options };
    gd_ir ir;
    if (gd_ir_make(&ir, function->context, &source) == GD_OK)
        return gd_plan_make(&ir, NULL);
    gd_ir_free(&ir);
    return NULL;
}

/* The plan of what was recorded, and its gradient, which takes the recording, where it has one. */
static gd_plan *make_plan(gd_function *function, int count, gd_call_gradient **gradient,
                          double start)
{
    gd_context *context = function->context;
    int traced = (int)function->trace->count;
    gd_plan *plan = NULL;
    if (function->detached || context->no_grad || !gd_call_gradient_is_wanted(function->trace)) {
        plan = plan_trace(function, count);
    } else {
        *gradient = gd_call_gradient_make(context, function->trace, function->placeholders, count,
                                          function->options);
        if (*gradient)
            function->trace = NULL;
        plan = *gradient ? gd_call_gradient_plan(*gradient) : NULL;
    }
    if (plan) {
        plan->nodes_traced = traced;
        plan->compile_seconds = gd_seconds() - start;
    }
    return plan;
}

static gd_status fill_entry(gd_cache_entry *e, gd_function *function, int count,
                            gd_tensor *const *inputs, double start)
{
    e->signature.no_grad = function->context->no_grad > 0;
    e->signature.autocast = gd_autocast_now(function->context);
    e->grad_version = function->context->grad_version;
    e->plan = make_plan(function, count, &e->gradient, start);
    e->signature.count = count;
    e->signature.layouts = gd_alloc(((size_t)count + 1) * sizeof(gd_layout));
    e->signature.requires_grad = gd_alloc(((size_t)count + 1) * sizeof(bool));
    if (!e->plan || !e->signature.layouts || !e->signature.requires_grad)
        return GD_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        e->signature.layouts[i] = inputs[i]->layout;
        e->signature.requires_grad[i] = inputs[i]->requires_grad;
    }
    return GD_OK;
}

/* A plan of what was recorded, in the cache. In GD_MODE_LAZY it takes over the structure. */
static gd_cache_entry *add_plan(gd_function *function, int count, gd_tensor *const *inputs,
                                double start)
{
    function->current = NULL;
    gd_cache_entry fresh = { 0 };
    gd_cache_entry *e = NULL;
    if (fill_entry(&fresh, function, count, inputs, start) == GD_OK)
        e = new_entry(function, count, inputs);
    if (e) {
        *e = fresh;
        e->structure = function->structure;
        function->structure = (gd_structure){ 0 };
    } else {
        entry_free(&fresh);
    }
    return e;
}

/* The plan of what was recorded: in GD_MODE_LAZY one that there is, else a new one. */
static gd_cache_entry *plan_of_recording(gd_function *function, int count, gd_tensor *const *inputs,
                                         double start)
{
    gd_cache_entry *e = NULL;
    if (function->mode == GD_MODE_LAZY && recognise(function, count, inputs, &e) != GD_OK)
        return NULL;
    return e ? e : add_plan(function, count, inputs, start);
}

/* Record the body, and find or make the plan of the recording. */
static gd_cache_entry *record_plan(gd_function *function, int count, gd_tensor *const *inputs)
{
    double start = gd_seconds();
    if (gd_scope_begin(function->context) != GD_OK)
        return NULL;
    function->traces++;
    bool ok = record(function, count, inputs);
    gd_cache_entry *e = ok ? plan_of_recording(function, count, inputs, start) : NULL;
    end_recording(function, e && function->mode == GD_MODE_LAZY);
    return e;
}

/* ---- tracing without a body ---- */

/* What was as gd_trace_begin found it, is so again; scopes left open are ended but the trace's own. */
static void close_trace(gd_function *function)
{
    gd_context *context = function->context;
    gd_open_trace *open_trace = &function->open_trace;
    while (context->scope != context->body_scope)
        (void)gd_scope_end(context);
    context->body_scope = open_trace->body_scope;
    context->call_depth--;
    function->running--;
    gd_recording_set(context, open_trace->before);
    open_trace->is_open = false;
}

/* ---- calls ---- */

static gd_status check_call(const gd_function *function, int count, gd_tensor *const *inputs)
{
    if (!function)
        return gd_fail(GD_ERR_INVALID, "gd_call: the function is NULL");
    if (count < 0 || (count > 0 && !inputs))
        return gd_fail(GD_ERR_INVALID, "gd_call: %d inputs%s", count,
                       count < 0 ? "" : ", but the array of them is NULL");
    if (function->running && function->mode != GD_MODE_EAGER && !function->context->trace)
        return gd_fail(GD_ERR_STATE,
                       "gd_call: the function is being traced; its body cannot call it while "
                       "tracing is paused");
    for (int i = 0; i < count; i++) {
        if (!inputs[i])
            return gd_fail(GD_ERR_INVALID, "gd_call: input %d is NULL", i);
        if (!gd_usable(inputs[i], "gd_call"))
            return GD_ERR_STATE;
        if (inputs[i]->context != function->context)
            return gd_fail(GD_ERR_INVALID, "gd_call: input %d belongs to another context", i);
        if (!inputs[i]->storage && !function->context->trace)
            return gd_fail(GD_ERR_STATE,
                           "gd_call: input %d has no value: it was made while tracing", i);
    }
    return GD_OK;
}

/* Inside another body the function is simply part of it. */
static gd_tensor *call_inline(gd_function *function, int count, gd_tensor *const *inputs)
{
    gd_trace *trace = function->context->trace;
    trace->nested++;
    gd_tensor *result = run_body(function, count, inputs);
    trace->nested--;
    if (result)
        (void)gd_scope_adopt(gd_retain(result));
    gd_unlink(result);
    return result;
}

static bool reserve_results(gd_function *function, int count)
{
    return gd_grow((void **)&function->results, &function->result_capacity, (size_t)count,
                   sizeof(gd_tensor *));
}

/* Make `result` and what the body gave to gd_output the function's results. Takes over the
 * references. */
static gd_tensor *take_results(gd_function *function, gd_tensor *result, gd_eager_outputs *more)
{
    release_results(function); /* of a call of itself */
    bool done = result && !more->failed && reserve_results(function, (int)more->count + 1);
    if (done)
        function->results[function->n_results++] = result;
    else
        gd_unlink(result);
    for (size_t i = 0; i < more->count; i++) {
        if (done)
            function->results[function->n_results++] = more->list[i];
        else
            gd_unlink(more->list[i]);
    }
    gd_free(more->list);
    return done ? result : NULL;
}

static gd_tensor *call_eager(gd_function *function, int count, gd_tensor *const *inputs)
{
    gd_context *context = function->context;
    if (gd_scope_begin(context) != GD_OK)
        return NULL;
    for (int i = 0; i < count; i++)
        (void)gd_link(inputs[i]);
    release_results(function); /* and with them their graph, which need not stay beside a new one */
    gd_eager_outputs more = { 0 }, *outer = context->outputs;
    context->outputs = &more;
    gd_tensor *result = run_body(function, count, inputs);
    context->outputs = outer;
    (void)gd_scope_end(context);
    for (int i = 0; i < count; i++)
        gd_unlink(inputs[i]);
    return take_results(function, result, &more);
}

/* Let go of the results of the call before, so that their memory can be used again; handles nobody
 * else holds are kept, to be the results of the next. */
static void recycle_results(gd_function *function, int n)
{
    for (int i = 0; i < function->n_results; i++)
        if (i >= n || !gd_call_gradient_recycle(function->results[i])) {
            gd_unlink(function->results[i]);
            function->results[i] = NULL;
        }
    for (int i = function->n_results; i < n; i++)
        function->results[i] = NULL;
    function->n_results = 0;
}

/* As a node of the graph. */
static gd_tensor *call_with_gradient(gd_function *function, gd_cache_entry *e, int count,
                                     gd_tensor *const *inputs)
{
    int n = gd_call_gradient_result_count(e->gradient);
    if (!reserve_results(function, n))
        return NULL;
    for (int i = 0; i < count; i++)
        (void)gd_link(inputs[i]);
    recycle_results(function, n);
    gd_status status = gd_call_gradient_run(e->gradient, e->plan, inputs, function->results);
    for (int i = 0; i < count; i++)
        gd_unlink(inputs[i]);
    function->n_results = status == GD_OK ? n : 0;
    return status == GD_OK ? function->results[0] : NULL;
}

/* The plan for these inputs, made if there is none yet; the current one from now on. */
static gd_cache_entry *use_plan(gd_function *function, int count, gd_tensor *const *inputs)
{
    gd_cache_entry *e = NULL;
    if (function->mode == GD_MODE_COMPILED)
        e = find_entry(function, count, inputs);
    else if (!function->body && function->current &&
             matches(function->current, function->context, count, inputs))
        e = function->current; /* what was traced last */
    if (!e)
        e = record_plan(function, count, inputs);
    if (e && gd_plan_check_arguments(e->plan, count, inputs) != GD_OK)
        return NULL;
    if (e) {
        function->current = e;
        e->last_used = function->calls;
    }
    return e;
}

static gd_tensor *call(gd_function *function, int count, gd_tensor *const *inputs)
{
    function->calls++;
    if (function->context->trace)
        return call_inline(function, count, inputs);
    if (function->mode == GD_MODE_EAGER)
        return call_eager(function, count, inputs);
    function->last_plan = NULL;
    gd_cache_entry *e = use_plan(function, count, inputs);
    if (e && e->gradient)
        return call_with_gradient(function, e, count, inputs);
    bool ok =
        e && (function->phase_seconds ? gd_plan_run_timed(e->plan, inputs, function->phase_seconds)
                                      : gd_plan_run(e->plan, inputs)) == GD_OK;
    release_results(function); /* which may be inputs */
    function->last_plan = ok ? e->plan : NULL;
    return ok ? e->plan->results[0] : NULL;
}

gd_tensor *gd_call(gd_function *function, int count, gd_tensor *const *inputs)
{
    if (function)
        gd_release_given_back(function->context);
    if (check_call(function, count, inputs) != GD_OK)
        return NULL;
    gd_use use;
    if (gd_use_begin(&use, function->context, "gd_call") != GD_OK)
        return NULL;
    /* A callback that makes room may release an input. */
    bool may_be_released = function->context->memory_callback;
    for (int i = 0; may_be_released && i < count; i++)
        (void)gd_link(inputs[i]);
    gd_tensor *result = call(function, count, inputs);
    for (int i = 0; may_be_released && i < count; i++)
        gd_unlink(inputs[i]);
    gd_use_end(&use);
    return result;
}

gd_tensor *gd_call_timed(gd_function *function, int count, gd_tensor *const *inputs,
                         double seconds[GD_PHASES])
{
    function->phase_seconds = seconds;
    gd_tensor *result = gd_call(function, count, inputs);
    function->phase_seconds = NULL;
    return result;
}

bool gd_function_has_plan(gd_function *function, int count, gd_tensor *const *inputs)
{
    return GD_AS("gd_function_has_plan", check_call(function, count, inputs)) == GD_OK &&
           function->mode == GD_MODE_COMPILED && find_entry(function, count, inputs);
}

static gd_status check_begin(gd_function *function, int count, gd_tensor *const *inputs)
{
    gd_status status = check_call(function, count, inputs);
    if (status == GD_OK && function->mode != GD_MODE_COMPILED && function->body)
        status = gd_fail(GD_ERR_STATE, "gd_trace_begin: only a compiled function, or a lazy one "
                                       "without a body, is traced so");
    if (status == GD_OK && function->context->trace)
        status = gd_fail(GD_ERR_STATE, "gd_trace_begin: a function is being traced; run what this "
                                       "one does as a part of it");
    return status;
}

gd_status gd_trace_begin(gd_function *function, int count, gd_tensor *const *inputs,
                         gd_tensor **placeholders)
{
    for (int i = 0; placeholders && i < count; i++)
        placeholders[i] = NULL;
    if (GD_AS("gd_trace_begin", check_begin(function, count, inputs)) != GD_OK)
        return gd_error_last();
    if (count > 0 && !placeholders)
        return gd_fail(GD_ERR_INVALID, "gd_trace_begin: the array for the placeholders is NULL");
    gd_context *context = function->context;
    gd_open_trace open_trace = { .is_open = true,
                                 .inputs = gd_alloc(((size_t)count + 1) * sizeof(gd_tensor *)),
                                 .body_scope = context->body_scope,
                                 .before = gd_recording_now(context),
                                 .start = gd_seconds() };
    if (!open_trace.inputs || gd_scope_begin(context) != GD_OK) {
        gd_free(open_trace.inputs);
        return GD_ERR_MEMORY;
    }
    if (!begin_recording(function, count, inputs)) {
        end_recording(function, false);
        gd_free(open_trace.inputs);
        return GD_ERR_MEMORY;
    }
    for (int i = 0; i < count; i++) {
        open_trace.inputs[open_trace.count++] = gd_link(inputs[i]);
        placeholders[i] = function->placeholders[i];
    }
    open_trace.mark = gd_error_mark();
    context->body_scope = context->scope;
    context->call_depth++;
    function->running++;
    function->traces++;
    function->open_trace = open_trace;
    start_recording(function);
    return GD_OK;
}

/* Whether the trace that this function began is the one that goes on. */
static gd_status check_open(const gd_function *function, const char *who)
{
    if (!function || !function->open_trace.is_open)
        return gd_fail(GD_ERR_STATE, "%s: without gd_trace_begin", who);
    if (function->context->trace != function->trace)
        return gd_fail(GD_ERR_STATE, "%s: tracing is paused, or another function is being traced",
                       who);
    return GD_OK;
}

/* The outputs in front of those of gd_output, in their order. */
static gd_status add_outputs(const gd_function *function, int count, gd_tensor *const *outputs)
{
    for (int i = 0; i < count; i++) {
        if (!outputs[i])
            return gd_fail(GD_ERR_INVALID, "gd_trace_end: output %d is NULL", i);
        if (!gd_usable(outputs[i], "gd_trace_end"))
            return GD_ERR_STATE;
        if (outputs[i]->context != function->context)
            return gd_fail(GD_ERR_INVALID, "gd_trace_end: output %d is of another context", i);
    }
    for (int i = count - 1; i >= 0; i--)
        if (!add_result(function->trace, gd_link(outputs[i])))
            return GD_ERR_MEMORY;
    return GD_OK;
}

gd_status gd_trace_end(gd_function *function, int count, gd_tensor *const *outputs)
{
    if (check_open(function, "gd_trace_end") != GD_OK)
        return GD_ERR_STATE;
    gd_open_trace *open_trace = &function->open_trace;
    gd_status status = gd_error_since(open_trace->mark);
    if (status == GD_OK && (count < 1 || !outputs))
        status = gd_fail(GD_ERR_INVALID, "gd_trace_end: there are no outputs");
    if (status == GD_OK)
        status = add_outputs(function, count, outputs);
    if (status == GD_OK && function->trace->failed)
        status = gd_fail(GD_ERR_MEMORY, "gd_trace_end: no memory to record what was done");
    close_trace(function);
    gd_cache_entry *e = NULL;
    if (status == GD_OK) {
        e = plan_of_recording(function, open_trace->count, open_trace->inputs, open_trace->start);
        status = e ? GD_OK : gd_error_last();
        function->current = e;
        if (e)
            e->last_used = function->calls;
    }
    end_recording(function, e && function->mode == GD_MODE_LAZY);
    release_inputs(open_trace);
    return status;
}

gd_status gd_trace_abandon(gd_function *function)
{
    if (check_open(function, "gd_trace_abandon") != GD_OK)
        return GD_ERR_STATE;
    close_trace(function);
    end_recording(function, false);
    release_inputs(&function->open_trace);
    return GD_OK;
}

gd_status gd_function_prepare(gd_function *function, int count, gd_tensor *const *inputs)
{
    if (check_call(function, count, inputs) != GD_OK)
        return gd_error_last();
    if (gd_check_free(function->context, "gd_function_prepare") != GD_OK)
        return GD_ERR_STATE;
    if (function->mode != GD_MODE_COMPILED || function->context->trace)
        return gd_fail(
            GD_ERR_STATE,
            "gd_function_prepare: only a compiled function outside of a trace has plans");
    gd_use use;
    if (gd_use_begin(&use, function->context, "gd_function_prepare") != GD_OK)
        return GD_ERR_STATE;
    gd_status status = use_plan(function, count, inputs) ? GD_OK : gd_error_last();
    gd_use_end(&use);
    return status;
}

gd_tensor *gd_function_result(gd_function *function, int index)
{
    if (!function || index < 0)
        return NULL;
    if (index < function->n_results)
        return function->results[index];
    const gd_plan *plan = function->last_plan;
    return plan && (size_t)index < plan->ir.output_count ? plan->results[index] : NULL;
}
