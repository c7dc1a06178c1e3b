/* compile/function.c: gd_compile and gd_call: tracing a body once for each signature, and the cache
 * of plans. */
#include "compile/lazy.h"
#include "compile/plan.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { DEFAULT_CACHE = 16 };

/* What a plan was made for. */
typedef struct signature {
    int count;
    gd_layout *layouts; /* offsets are 0: an argument's address is its element 0's */
    bool *requires_grad;
} signature;

typedef struct entry {
    signature made_for;
    gd_plan *plan;
    gd_structure structure; /* GD_MODE_LAZY: of the trace the plan was made of */
    uint64_t last_used;
} entry;

struct gd_function {
    gd_context *context;
    gd_function_body body;
    void *user;
    gd_mode mode;
    entry *entries;
    size_t count, capacity, limit;
    entry *current;
    gd_tensor *eager_result; /* of the last eager call */
    gd_trace trace;          /* of the call at hand; between calls, room for the next */
    gd_tensor **places;      /* the placeholders of its arguments */
    size_t place_capacity;
    gd_structure structure; /* of the trace (GD_MODE_LAZY) */
    uint64_t calls, traces, evictions;
};

static void entry_free(entry *e)
{
    gd_plan_free(e->plan);
    gd_structure_free(&e->structure);
    gd_free(e->made_for.layouts);
    gd_free(e->made_for.requires_grad);
    *e = (entry){ 0 };
}

static void destroy(void *object)
{
    gd_function *function = object;
    for (size_t i = 0; i < function->count; i++)
        entry_free(&function->entries[i]);
    gd_free(function->entries);
    gd_release(function->eager_result);
    gd_trace_clear(&function->trace);
    gd_structure_free(&function->structure);
    gd_free(function->places);
    gd_free(function);
}

gd_function *gd_compile_with(gd_compile_options options)
{
    if (!options.context || !options.body)
        return gd_fail_null(GD_ERR_INVALID, "gd_compile: the context or the body is NULL");
    if (options.mode != GD_MODE_COMPILED && options.mode != GD_MODE_EAGER &&
        options.mode != GD_MODE_LAZY)
        return gd_fail_null(GD_ERR_INVALID, "gd_compile: %d is no mode", (int)options.mode);
    if (options.cache_limit < 0)
        return gd_fail_null(GD_ERR_INVALID, "gd_compile: the cache limit is %d",
                            options.cache_limit);
    gd_function *function = gd_alloc_zero(1, sizeof *function);
    if (!function)
        return NULL;
    function->context = options.context;
    function->body = options.body;
    function->user = options.user;
    function->mode = options.mode;
    function->limit = options.cache_limit ? (size_t)options.cache_limit : DEFAULT_CACHE;
    if (gd_context_adopt(options.context, function, destroy) != GD_OK) {
        destroy(function);
        return NULL;
    }
    return function;
}

void gd_function_release(gd_function *function)
{
    if (!function)
        return;
    gd_context_disown(function->context, function);
    destroy(function);
}

/* ---- the cache ---- */

static bool same_layout(const gd_layout *a, const gd_layout *b)
{
    if (a->rank != b->rank || a->dtype != b->dtype)
        return false;
    size_t bytes = sizeof(int64_t) * (size_t)a->rank;
    return memcmp(a->shape, b->shape, bytes) == 0 && memcmp(a->stride, b->stride, bytes) == 0;
}

static bool fits(const signature *s, int count, gd_tensor *const *inputs)
{
    if (s->count != count)
        return false;
    for (int i = 0; i < count; i++)
        if (!same_layout(&s->layouts[i], &inputs[i]->layout) ||
            s->requires_grad[i] != inputs[i]->requires_grad)
            return false;
    return true;
}

static entry *find(gd_function *function, int count, gd_tensor *const *inputs)
{
    if (function->current && fits(&function->current->made_for, count, inputs))
        return function->current;
    for (size_t i = 0; i < function->count; i++)
        if (fits(&function->entries[i].made_for, count, inputs))
            return &function->entries[i];
    return NULL;
}

/* A free place in the cache, dropping the plan unused for longest when it is full. */
static entry *make_room(gd_function *function)
{
    if (function->count < function->limit) {
        if (!gd_grow((void **)&function->entries, &function->capacity, function->count + 1,
                     sizeof(entry)))
            return NULL;
        function->entries[function->count] = (entry){ 0 };
        return &function->entries[function->count++];
    }
    entry *oldest = &function->entries[0];
    for (size_t i = 1; i < function->count; i++)
        if (function->entries[i].last_used < oldest->last_used)
            oldest = &function->entries[i];
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

/* Run the body with recording on, in a scope of its own that is left open for end_recording to end.
 * The result holds a reference. */
static gd_tensor *record(gd_function *function, int count, gd_tensor *const *inputs)
{
    gd_context *context = function->context;
    gd_trace *trace = &function->trace;
    if (!gd_grow((void **)&function->places, &function->place_capacity, (size_t)count + 1,
                 sizeof(gd_tensor *)))
        return NULL;
    for (int i = 0; i < count; i++) {
        function->places[i] = placeholder(context, trace, inputs[i]);
        if (!function->places[i])
            return NULL;
    }
    gd_scope *scope = context->scope;
    int no_grad = context->no_grad;
    context->trace = trace;
    gd_tensor *result = gd_retain(function->body(function->user, function->places));
    context->trace = NULL;
    context->paused_trace = NULL;
    context->trace_paused = 0;
    context->no_grad = no_grad;
    while (context->scope != scope && context->scope->parent)
        (void)gd_scope_end(context); /* scopes the body left open */
    if (result && (trace->failed || result->context != context)) {
        gd_release(result);
        return gd_fail_null(
            trace->failed ? GD_ERR_MEMORY : GD_ERR_INVALID,
            "gd_call: the body could not be recorded, or its result is of another context");
    }
    if (!result && gd_error_code() == GD_OK)
        (void)gd_fail(GD_ERR_INVALID, "gd_call: the body returned NULL without an error");
    return result;
}

static void end_recording(gd_function *function, gd_tensor *result)
{
    gd_release(result);
    gd_trace_reset(&function->trace);
    (void)gd_scope_end(function->context);
}

/* The plan of what was recorded. */
static gd_plan *make_plan(gd_function *function, int count, gd_tensor *result, double start)
{
    gd_ir ir;
    int traced = (int)function->trace.count;
    gd_plan *plan = NULL;
    if (gd_ir_from_trace(&ir, function->context, &function->trace, function->places, count,
                         result) == GD_OK)
        plan = gd_plan_make(&ir);
    else
        gd_ir_free(&ir);
    if (plan) {
        plan->nodes_traced = traced;
        plan->compile_seconds = gd_seconds() - start;
    }
    return plan;
}

static gd_status fill(entry *e, gd_plan *plan, int count, gd_tensor *const *inputs)
{
    e->plan = plan;
    e->made_for.count = count;
    e->made_for.layouts = gd_alloc(((size_t)count + 1) * sizeof(gd_layout));
    e->made_for.requires_grad = gd_alloc(((size_t)count + 1) * sizeof(bool));
    if (!plan || !e->made_for.layouts || !e->made_for.requires_grad)
        return GD_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        e->made_for.layouts[i] = inputs[i]->layout;
        e->made_for.requires_grad[i] = inputs[i]->requires_grad;
    }
    return GD_OK;
}

/* A plan of what was recorded, in the cache. In GD_MODE_LAZY it takes over the structure. */
static entry *add_plan(gd_function *function, int count, gd_tensor *const *inputs,
                       gd_tensor *result, double start)
{
    function->current = NULL;
    entry fresh = { 0 };
    entry *e = NULL;
    if (fill(&fresh, make_plan(function, count, result, start), count, inputs) == GD_OK)
        e = make_room(function);
    if (e) {
        *e = fresh;
        e->structure = function->structure;
        function->structure = (gd_structure){ 0 };
    } else {
        entry_free(&fresh);
    }
    return e;
}

static entry *find_structure(gd_function *function, int count, gd_tensor *const *inputs)
{
    for (size_t i = 0; i < function->count; i++) {
        entry *e = &function->entries[i];
        if (fits(&e->made_for, count, inputs) &&
            gd_structure_equal(&e->structure, &function->structure))
            return e;
    }
    return NULL;
}

/* Record the body, and find or make the plan of the recording. */
static entry *record_plan(gd_function *function, int count, gd_tensor *const *inputs)
{
    double start = gd_seconds();
    if (gd_scope_begin(function->context) != GD_OK)
        return NULL;
    function->traces++;
    entry *e = NULL;
    gd_tensor *result = record(function, count, inputs);
    bool is_lazy = function->mode == GD_MODE_LAZY;
    if (result && is_lazy &&
        gd_structure_take(&function->structure, function->context, &function->trace,
                          function->places, count, result) == GD_OK) {
        e = find_structure(function, count, inputs);
        if (!e)
            e = add_plan(function, count, inputs, result, start);
    } else if (result && !is_lazy) {
        e = add_plan(function, count, inputs, result, start);
    }
    end_recording(function, result);
    return e;
}

/* ---- calls ---- */

static gd_status check_call(const gd_function *function, int count, gd_tensor *const *inputs)
{
    if (!function || count < 0 || (count > 0 && !inputs))
        return gd_fail(GD_ERR_INVALID,
                       "gd_call: the function or the inputs are NULL, or the count is negative");
    for (int i = 0; i < count; i++) {
        if (!inputs[i])
            return gd_error_code() ? gd_error_code()
                                   : gd_fail(GD_ERR_INVALID, "gd_call: input %d is NULL", i);
        if (inputs[i]->context != function->context)
            return gd_fail(GD_ERR_INVALID, "gd_call: input %d belongs to another context", i);
        if (!inputs[i]->storage && !function->context->trace)
            return gd_fail(GD_ERR_STATE,
                           "gd_call: input %d has no value: it was made while tracing", i);
    }
    return GD_OK;
}

/* Inside another body the function is simply part of it. */
static gd_tensor *call_inline(gd_function *function, gd_tensor *const *inputs)
{
    gd_trace *trace = function->context->trace;
    trace->nested++;
    gd_tensor *result = function->body(function->user, inputs);
    trace->nested--;
    return result;
}

static gd_tensor *call_eager(gd_function *function, gd_tensor *const *inputs)
{
    gd_context *context = function->context;
    if (gd_scope_begin(context) != GD_OK)
        return NULL;
    gd_tensor *result = gd_retain(function->body(function->user, inputs));
    (void)gd_scope_end(context);
    gd_release(function->eager_result);
    function->eager_result = result;
    return result;
}

/* The plan for these inputs, made if there is none yet; the current one from now on. */
static entry *use_plan(gd_function *function, int count, gd_tensor *const *inputs)
{
    entry *e = function->mode == GD_MODE_LAZY ? NULL : find(function, count, inputs);
    if (!e)
        e = record_plan(function, count, inputs);
    if (e) {
        function->current = e;
        e->last_used = function->calls;
    }
    return e;
}

gd_tensor *gd_call(gd_function *function, int count, gd_tensor *const *inputs)
{
    if (check_call(function, count, inputs) != GD_OK)
        return NULL;
    function->calls++;
    if (function->context->trace)
        return call_inline(function, inputs);
    if (function->mode == GD_MODE_EAGER)
        return call_eager(function, inputs);
    entry *e = use_plan(function, count, inputs);
    return e && gd_plan_run(e->plan, inputs) == GD_OK ? e->plan->results[0] : NULL;
}

gd_status gd_function_prepare(gd_function *function, int count, gd_tensor *const *inputs)
{
    if (check_call(function, count, inputs) != GD_OK)
        return gd_error_code();
    if (function->mode != GD_MODE_COMPILED || function->context->trace)
        return gd_fail(
            GD_ERR_STATE,
            "gd_function_prepare: only a compiled function outside of a trace has plans");
    return use_plan(function, count, inputs) ? GD_OK : gd_error_code();
}

gd_tensor *gd_function_result(gd_function *function, int index)
{
    if (!function || index < 0)
        return NULL;
    if (function->mode == GD_MODE_EAGER)
        return index == 0 ? function->eager_result : NULL;
    const gd_plan *plan = function->current ? function->current->plan : NULL;
    return plan && (size_t)index < plan->ir.output_count ? plan->results[index] : NULL;
}

gd_plan_stats gd_function_stats(const gd_function *function)
{
    gd_plan_stats stats = { 0 };
    if (!function)
        return stats;
    stats.plans = (int)function->count;
    stats.calls = function->calls;
    stats.traces = function->traces;
    stats.evictions = function->evictions;
    const gd_plan *plan = function->current ? function->current->plan : NULL;
    if (!plan)
        return stats;
    stats.nodes_traced = plan->nodes_traced;
    for (size_t i = 0; i < plan->ir.count; i++)
        stats.nodes_planned += plan->ir.values[i].kind == GD_IR_OP;
    stats.kernels = (int)plan->n_steps;
    stats.arena_bytes = plan->memory.bytes;
    stats.live_bytes = plan->memory.live_bytes;
    stats.compile_seconds = plan->compile_seconds;
    return stats;
}

size_t gd_plan_format(const gd_function *function, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    gd_text out = { text, size, 0 };
    if (function && function->current)
        gd_plan_add_text(function->current->plan, &out);
    return out.length;
}

size_t gd_plan_format_dot(const gd_function *function, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    gd_text out = { text, size, 0 };
    if (function && function->current)
        gd_plan_add_dot(function->current->plan, &out);
    return out.length;
}

static bool is_c_name(const char *name)
{
    bool ok = name && *name && !(*name >= '0' && *name <= '9');
    for (const char *c = name; ok && *c; c++)
        ok = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
             *c == '_';
    return ok;
}

gd_status gd_export_c(const gd_function *function, const char *name, FILE *file)
{
    if (!function || !file || !is_c_name(name))
        return gd_fail(GD_ERR_INVALID, "gd_export_c: %s",
                       is_c_name(name) ? "the function or the file is NULL"
                                       : "the name is no name of a C function");
    if (!function->current)
        return gd_fail(GD_ERR_STATE, "gd_export_c: the function has not been called yet");
    return gd_plan_export(function->current->plan, name, file);
}

int gd_function_profile(gd_function *function, int count, gd_tensor *const *inputs, int runs,
                        gd_kernel_profile *rows, int capacity)
{
    if (runs < 1 || capacity < 0 || (capacity > 0 && !rows)) {
        (void)gd_fail(GD_ERR_INVALID, "gd_function_profile: %d runs into %d rows", runs, capacity);
        return -1;
    }
    if (function && (function->mode != GD_MODE_COMPILED || function->context->trace)) {
        (void)gd_fail(
            GD_ERR_STATE,
            "gd_function_profile: only a compiled function outside of a trace has kernels to time");
        return -1;
    }
    if (!gd_call(function, count, inputs))
        return -1;
    gd_plan *plan = function->current->plan;
    gd_status status = gd_plan_profile(plan, inputs, runs, rows, (size_t)capacity);
    return status == GD_OK ? (int)plan->n_steps : -1;
}
